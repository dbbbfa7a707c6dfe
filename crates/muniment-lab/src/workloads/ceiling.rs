//! The load generator's own ceiling: what one host reaches when the server does nothing.

use super::Spec;
use super::only::CORES;
use super::options::{Opt, numbers, seconds};
use crate::conn::Conn;
use crate::fail::Result;
use crate::lab::Lab;
use crate::load::{self, Limit};
use crate::placement::{self, Placement};
use crate::procs::own_cpu_seconds;
use crate::report::Outcome;
use crate::report::table::{Table, ms, rate};
use crate::stop;
use crate::workers::Inserts;
use std::time::Duration;

/// The experiment.
pub const SPEC: Spec = Spec {
    name: "ceiling",
    title: "The load generator's own ceiling",
    about: "Single inserts of {a: 1, b: \"hat\"} against the null responder, which parses each message as the server does and answers a constant: what is left is the client, the kernel's sockets and the switches between two processes. One connection is measured with both on one core and on two. No figure of another experiment can be above this; one above half of it says so.",
    options: &[
        Opt {
            name: "connections",
            value: "N,N…",
            about: "how many (1,4,16,32)",
            check: |v| numbers(v, 4096).map(|_| ()),
        },
        Opt {
            name: "seconds",
            value: "S",
            about: "for each number (2 to 10 by preset)",
            check: |v| seconds(v).map(|_| ()),
        },
    ],
    dimensions: &[CORES],
    run,
};

/// Connections, one worker each.
const CONNECTIONS: [usize; 4] = [1, 4, 16, 32];

fn run(lab: &mut Lab, out: &mut Outcome) -> Result<()> {
    let connections = match lab.options.get("connections") {
        Some(list) => numbers(list, 4096)?,
        None => CONNECTIONS.to_vec(),
    };
    let seconds = match lab.options.get("seconds") {
        Some(text) => seconds(text)?,
        None => lab.preset.pick(2.0, 3.0, 10.0),
    };
    let mut t = Table::new(
        "Single inserts against the null responder",
        &[
            ">connections",
            "<cores",
            ">operations/s",
            ">client µs each",
            ">responder µs each",
            ">both",
            ">p50 ms",
            ">p99 ms",
            ">busiest worker",
        ],
    );
    let address = lab.null_address()?;
    let pid = lab.null_pid();
    let server = lab.null_server()?;
    let mut rows = Vec::new();
    for n in connections {
        let placements = match n {
            1 => lab.placements(&server)?,
            _ => vec![Placement::Anywhere],
        };
        rows.extend(placements.into_iter().map(|p| (n, p)));
    }
    for (n, placement) in rows {
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
        let cpu = own_cpu_seconds();
        let limit = Limit::time(Duration::from_secs_f64(seconds));
        let name = placement.called(&format!("{n} connections"));
        let load = lab.placed(&server, placement, &name, |lab| {
            load::run(&name, workers, limit, pid, &mut lab.progress)
        })?;
        let cpu = own_cpu_seconds() - cpu;
        let operations = load.samples.operations.max(1) as f64;
        let client = cpu * 1e6 / operations;
        let responder = load.server_us();
        let latency = &load.samples.latency;
        t.row([
            rate(n as f64),
            placement.name().to_string(),
            rate(load.rate()),
            format!("{client:.2}"),
            responder.map_or_else(|| "–".into(), |r| format!("{r:.2}")),
            responder.map_or_else(|| "–".into(), |r| format!("{:.2}", client + r)),
            ms(latency.quantile_ms(0.5)),
            ms(latency.quantile_ms(0.99)),
            format!("{:.0} %", load.busiest_worker * 100.0),
        ]);
        out.figure(format!("{name}, rate"), load.rate(), "operations/s", None);
        out.figure(format!("{name}, client CPU"), client, "µs", None);
        if let Some(r) = responder {
            out.figure(format!("{name}, responder CPU"), r, "µs", None);
        }
        out.samples.push(load.samples);
    }
    t.note(format!(
        "CPU is that of the whole process, user and system: the driver's own thread is in it. {}",
        placement::NOTE
    ));
    out.tables.push(t);
    Ok(())
}
