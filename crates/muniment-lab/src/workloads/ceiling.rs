//! The load generator's own ceiling: the rates that one host reaches against a server that does
//! nothing.

use super::Spec;
use super::only::CORES;
use super::options::{numbers, seconds};
use crate::lab::Lab;
use crate::report::{Outcome, experiments};
use crate::workers::Inserts;
use muniment_load::conn::Conn;
use muniment_load::fail::Result;
use muniment_load::load::{self, Limit, Load};
use muniment_load::placement::Placement;
use muniment_load::procs::own_cpu_seconds;
use muniment_load::stop;
use muniment_options::{Opt, Takes};
use std::time::Duration;

pub(crate) const SPEC: Spec = Spec {
    name: "ceiling",
    title: "The load generator's own ceiling",
    about: "Single inserts of {a: 1, b: \"hat\"} against the null responder, which parses each message as the server does and answers a constant: what is left is the client, the kernel's sockets and the switches between two processes. One connection is measured with both on one core and on two. No figure of another experiment can be above this; one above half of it says so.",
    disk_gb: [0.0, 0.0, 0.0],
    options: &[
        Opt::new(
            "connections",
            "N,N…",
            Takes::Checked(|v| numbers(v, 4096).map(drop).map_err(|e| e.0)),
            "how many (1,4,16,32)",
        ),
        Opt::new(
            "seconds",
            "S",
            Takes::Checked(|v| seconds(v).map(drop).map_err(|e| e.0)),
            "for each number (2 to 10 by preset)",
        ),
    ],
    dimensions: &[CORES],
    run,
};

/// The numbers of connections, each with one worker.
const CONNECTIONS: [usize; 4] = [1, 4, 16, 32];

/// The measurement of one number of connections.
pub(crate) struct Row {
    /// The number of connections.
    pub connections: usize,
    /// The placement of client and responder.
    pub placement: Placement,
    pub load: Load,
    /// The CPU seconds of the whole client process.
    pub client_cpu: f64,
}

fn run(lab: &mut Lab, out: &mut Outcome) -> Result<()> {
    let connections = match lab.options.text("connections") {
        Some(list) => numbers(list, 4096)?,
        None => CONNECTIONS.to_vec(),
    };
    let seconds = match lab.options.text("seconds") {
        Some(text) => seconds(text)?,
        None => lab.preset.pick(2.0, 3.0, 10.0),
    };
    let mut rows = Vec::new();
    let result = measure(lab, &connections, seconds, &mut rows);
    experiments::ceiling::tell(&rows, out);
    result
}

fn measure(lab: &mut Lab, connections: &[usize], seconds: f64, rows: &mut Vec<Row>) -> Result<()> {
    let address = lab.null_address()?;
    let pid = lab.null_pid();
    let server = lab.null_server()?;
    let mut steps = Vec::new();
    for &n in connections {
        let placements = match n {
            1 => lab.placements(&server)?,
            _ => vec![Placement::Anywhere],
        };
        steps.extend(placements.into_iter().map(|p| (n, p)));
    }
    for (n, placement) in steps {
        if stop::asked() {
            break;
        }
        lab.progress.step(format!("Ceiling, {n} connections"));
        let workers = (0..n)
            .map(|_| {
                let conn = Conn::connect(&address)?;
                Ok(Inserts::w1_document(conn, "ceiling", None))
            })
            .collect::<Result<Vec<_>>>()?;
        let before = own_cpu_seconds();
        let limit = Limit::time(Duration::from_secs_f64(seconds));
        let name = placement.called(&format!("{n} connections"));
        let load = lab.placed(&server, placement, &name, |lab| {
            load::run(&name, workers, limit, pid, &mut lab.progress)
        })?;
        rows.push(Row {
            connections: n,
            placement,
            load,
            client_cpu: own_cpu_seconds() - before,
        });
    }
    Ok(())
}
