//! YCSB with stock property files: the keys, values, choices, pacing and output of the released
//! client, through the lab's raw client.

pub(crate) mod cli;
pub(crate) mod client;
pub(crate) mod core;
pub(crate) mod output;
pub(crate) mod properties;
pub(crate) mod settings;

use crate::lab::Target;
use crate::progress::Progress;
use client::Client;
use muniment_load::fail::Result;
use muniment_load::load::{self, Limit, Load, Status, Watch};
use settings::Settings;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// One phase of a run.
pub(crate) struct Phase {
    /// Its name: `load` or `run`.
    pub name: &'static str,
    pub load: Load,
    /// The first error that the server returned, if there was one.
    pub error: Option<String>,
}

/// Runs the load phase or the transaction phase against `target`.
///
/// # Errors
/// There is no connection, or an insert of the load failed for good.
pub(crate) fn phase(
    target: &Target,
    workload: &Arc<core::Workload>,
    settings: &Arc<Settings>,
    loads: bool,
    progress: &mut Progress,
    show: &mut dyn FnMut(&Status),
) -> Result<Phase> {
    let name = if loads { "load" } else { "run" };
    progress.step(format!("YCSB {name}"));
    let error = Arc::new(OnceLock::new());
    let clients = target
        .connections(settings.threads as usize)?
        .into_iter()
        .enumerate()
        .map(|(i, conn)| {
            let seed = 0x9c5b_0000 + i as u64 + if loads { 0 } else { 1 << 20 };
            Client::new(conn, workload, settings, loads, seed, &error)
        })
        .collect();
    let operations = match loads {
        true => workload.insert_count,
        false => workload.operations,
    };
    let longest = settings.longest.unwrap_or(Duration::MAX);
    let limit = Limit {
        extra: operations % settings.threads,
        pace: settings.pace(),
        ..match operations {
            0 if !loads => Limit::time(longest),
            n => Limit::operations(n / settings.threads, longest),
        }
    };
    let watch = settings.status.then_some(Watch {
        every: settings.status_every,
        show,
    });
    let load = load::run_watched(name, clients, limit, target.pid, progress, watch)?;
    Ok(Phase {
        name,
        load,
        error: error.get().cloned(),
    })
}
