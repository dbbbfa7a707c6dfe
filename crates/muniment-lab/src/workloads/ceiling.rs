//! The load generator's own ceiling: the rates that one host reaches against a server that does
//! nothing, for each way in which the threads of such a server can serve its connections.

use super::Spec;
use super::only::{CORES, Dimension, texts};
use super::options::{numbers, seconds};
use crate::lab::Lab;
use crate::process::Process;
use crate::report::{Outcome, experiments};
use crate::responder::Responder;
use crate::workers::Inserts;
use muniment_load::access::Peer;
use muniment_load::conn::Conn;
use muniment_load::fail::{Context, Failure, Result};
use muniment_load::load::{self, Limit, Load};
use muniment_load::placement::{Placement, Server};
use muniment_load::procs::own_cpu_seconds;
use muniment_load::stop;
use muniment_options::{Opt, Takes};
use std::net::TcpStream;
use std::time::Duration;

pub(crate) const SPEC: Spec = Spec {
    name: "ceiling",
    title: "The load generator's own ceiling",
    about: "Single inserts of {a: 1, b: \"hat\"} against the null responder, which parses each message as the server does and answers a constant: what is left is the client, the kernel's sockets and the switches between threads. The responder serves its connections in four ways: with a thread for each, with one worker that waits for all, with a worker for each core, and with such workers that poll for 20 µs before they sleep. One connection is measured with both on one core and on two. No figure of another experiment can be above that of the threads; one above half of it says so.",
    disk_gb: [0.0, 0.0, 0.0],
    options: &[
        Opt::new(
            "connections",
            "N,N…",
            Takes::Checked(|v| numbers(v, 4096).map(drop).map_err(|e| e.0)),
            "how many (1,2,4,16,48,200,1000)",
        ),
        Opt::new(
            "idle",
            "N",
            Takes::Checked(|v| idle(v).map(drop).map_err(|e| e.0)),
            "connections that do nothing beside them (0)",
        ),
        Opt::new(
            "seconds",
            "S",
            Takes::Checked(|v| seconds(v).map(drop).map_err(|e| e.0)),
            "for each number and form (1 to 10 by preset)",
        ),
    ],
    dimensions: &[CORES, FORM],
    run,
};

/// How the responder serves its connections.
const FORM: Dimension = Dimension {
    name: "form",
    about: "of the responder",
    values: |_| texts(Responder::ALL.map(Responder::name)),
};

/// The numbers of connections, each with one worker.
const CONNECTIONS: [usize; 7] = [1, 2, 4, 16, 48, 200, 1000];

/// Parses the number of idle connections.
fn idle(text: &str) -> Result<usize> {
    let n = text.parse().ok().filter(|n| *n <= 100_000);
    n.ok_or_else(|| Failure::new("it must be a number up to 100000"))
}

/// The measurement of one number of connections.
pub(crate) struct Row {
    /// The number of connections.
    pub connections: usize,
    /// How the responder served them.
    pub form: Responder,
    /// The placement of client and responder.
    pub placement: Placement,
    pub load: Load,
    /// The CPU seconds of the whole client process.
    pub client_cpu: f64,
}

/// A responder with the connections that do nothing.
struct Served {
    form: Responder,
    server: Server,
    _idle: Vec<TcpStream>,
    _process: Process,
}

fn run(lab: &mut Lab, out: &mut Outcome) -> Result<()> {
    let connections = match lab.options.text("connections") {
        Some(list) => numbers(list, 4096)?,
        None => CONNECTIONS.to_vec(),
    };
    let seconds = match lab.options.text("seconds") {
        Some(text) => seconds(text)?,
        None => lab.preset.pick(1.0, 3.0, 10.0),
    };
    let forms = lab
        .only
        .keep("form", Responder::ALL.to_vec(), |r| r.name().to_string())?;
    let mut served = Vec::new();
    for form in forms {
        served.push(serve(lab, form)?);
    }
    let mut rows = Vec::new();
    let result = measure(lab, &served, &connections, seconds, &mut rows);
    experiments::ceiling::tell(&rows, out);
    result
}

/// Starts a responder, and opens the connections that do nothing.
fn serve(lab: &Lab, form: Responder) -> Result<Served> {
    let idle = lab.options.text("idle").map_or(Ok(0), idle)?;
    let (process, server) = lab.another_null(form)?;
    let idle = (0..idle).map(|_| TcpStream::connect(&server.address));
    let idle = idle.collect::<std::io::Result<Vec<_>>>();
    Ok(Served {
        form,
        server,
        _idle: idle.context("opening idle connections")?,
        _process: process,
    })
}

/// Measures every number of connections with each responder, one after the other, so that what
/// changes on the machine meanwhile meets all of them.
fn measure(
    lab: &mut Lab,
    served: &[Served],
    connections: &[usize],
    seconds: f64,
    rows: &mut Vec<Row>,
) -> Result<()> {
    for &n in connections {
        let placements = match (n, served.first()) {
            (1, Some(one)) => lab.placements(&one.server)?,
            _ => vec![Placement::Anywhere],
        };
        for placement in placements {
            for one in served {
                if stop::asked() {
                    return Ok(());
                }
                rows.push(measure_one(lab, one, n, placement, seconds)?);
            }
        }
    }
    Ok(())
}

fn measure_one(
    lab: &mut Lab,
    served: &Served,
    connections: usize,
    placement: Placement,
    seconds: f64,
) -> Result<Row> {
    let Served { form, server, .. } = served;
    let name = placement.called(&format!("{connections} connections, {}", form.name()));
    lab.progress.step(format!("Ceiling, {name}"));
    let workers = (0..connections)
        .map(|_| {
            let conn = Conn::connect(&Peer::open(&server.address))?;
            Ok(Inserts::w1_document(conn, "ceiling", None))
        })
        .collect::<Result<Vec<_>>>()?;
    let before = own_cpu_seconds();
    let limit = Limit::time(Duration::from_secs_f64(seconds));
    let load = lab.placed(server, placement, &name, |lab| {
        load::run(&name, workers, limit, server.pid, &mut lab.progress)
    })?;
    Ok(Row {
        connections,
        form: *form,
        placement,
        load,
        client_cpu: own_cpu_seconds() - before,
    })
}
