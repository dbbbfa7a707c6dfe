//! Yardstick 8: the resident memory of the servers that ran before it.

use super::against_null::{POINTS, fill};
use super::{Row, Spec};
use crate::docs;
use crate::lab::Lab;
use crate::report::Outcome;
use crate::report::table::bytes;
use crate::workers::{Finds, Updates};
use muniment_load::fail::Result;
use muniment_load::load::{self, Limit};
use std::time::Duration;

/// A cache that the data of this yardstick fill, GB; the data of the other yardsticks do not fill
/// theirs.
const SMALL_CACHE_GB: f64 = 0.125;

pub(super) const SPEC: Spec = Spec {
    number: 8,
    title: "resident memory above the configured cache, under all of these",
    target_text: "150 MB",
    run,
};

fn run(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    fill_the_cache(lab, out)?;
    // The peak resident size of each server, which the kernel records.
    let worst = lab
        .memory
        .iter()
        .max_by(|a, b| (a.1 - a.2).total_cmp(&(b.1 - b.2)));
    if let Some((doing, peak, cache)) = worst {
        rows.push(Row {
            id: "8".into(),
            what: "peak resident memory above the cache".into(),
            value: ((peak - cache) / 1e6).max(0.0),
            unit: "MB",
            ratio: None,
            target: 150.0,
            at_most: true,
            otherwise: None,
            detail: format!(
                "highest of {} servers, in {doing}: {} resident, cache {}",
                lab.memory.len(),
                bytes(*peak),
                bytes(*cache)
            ),
        });
    }
    Ok(())
}

fn fill_the_cache(lab: &mut Lab, out: &mut Outcome) -> Result<()> {
    let mut target = lab.target(Some(SMALL_CACHE_GB))?;
    let n = POINTS * lab.preset.pick(5, 15, 50);
    fill(lab, &target, "points", n, docs::point)?;
    let time = Duration::from_secs(lab.preset.pick(3, 15, 120));
    let finds = target
        .connections(16)?
        .into_iter()
        .zip(1..)
        .map(|(c, seed)| Finds::new(c, "points", n, seed, true))
        .collect();
    lab.progress.step("Yardstick 8: finds");
    let load = load::run(
        "memory, finds",
        finds,
        Limit::time(time),
        target.pid,
        &mut lab.progress,
    )?;
    out.samples.push(load.samples);
    let updates = target
        .connections(16)?
        .into_iter()
        .zip(1..)
        .map(|(c, seed)| Updates::new(c, "points", n, seed, true))
        .collect();
    lab.progress.step("Yardstick 8: updates");
    let load = load::run(
        "memory, updates",
        updates,
        Limit::time(time),
        target.pid,
        &mut lab.progress,
    )?;
    out.samples.push(load.samples);
    target.check_alive()?;
    lab.done(target);
    Ok(())
}
