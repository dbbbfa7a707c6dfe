//! Yardstick 14: the speed at which the log is applied after a crash.

use super::log_bytes::log_bytes;
use super::{CACHE_GB, Row, Spec};
use crate::docs;
use crate::lab::{DB, Lab};
use crate::process::{self, ServerOptions, TempDir};
use crate::report::Outcome;
use crate::report::table::bytes;
use muniment_load::access::Peer;
use muniment_load::conn::{Conn, Message, check};
use muniment_load::fail::Result;
use muniment_load::procs;
use muniment_load::stop;
use std::time::Instant;

pub(super) const SPEC: Spec = Spec {
    number: 14,
    title: "start after kill -9 with a log of 1 GB",
    target_text: "300 MB/s a core",
    run,
};

/// The documents written between two reports of progress.
const DOCUMENTS: i64 = 50_000;

fn run(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    let size: f64 = lab.preset.pick(0.05e9, 1e9, 1e9);
    let dir = TempDir::new(&lab.data_parent)?;
    let options = ServerOptions {
        program: process::own()?,
        data: dir.path().join("data"),
        // The writes must still be only in memory when the server dies, or there is nothing to
        // apply.
        cache_gb: Some(CACHE_GB * 2.0),
        ..ServerOptions::default()
    };
    let (mut server, address) = process::server_with(dir, &options)?;
    let mut c = Conn::connect(&Peer::open(&address))?;
    let before = log_bytes(&mut c)?;
    let template = Message::insert(DB, "logged", None);
    let mut m = Message(Vec::new());
    let (mut sent, mut i) = (0.0, 0);
    while sent < size {
        if stop::asked() {
            return Ok(());
        }
        template.begin(&mut m);
        for k in i..i + 1000 {
            docs::point(k, &mut m.0);
        }
        template.seal(&mut m);
        check(c.call(&mut m)?)?;
        sent += m.0.len() as f64;
        i += 1000;
        if i % DOCUMENTS == 0 {
            lab.progress
                .step(format!("Yardstick 14: {} written", bytes(sent)));
        }
    }
    let log = log_bytes(&mut c)?.zip(before).map(|(a, b)| a - b);
    lab.progress.step("Yardstick 14: start after a crash");
    server.kill9();
    let began = Instant::now();
    let address = server.server_again(&options)?;
    let wall = began.elapsed().as_secs_f64();
    let cpu = procs::sample(server.pid()).map_or(wall, |s| s.cpu_seconds);
    let mut c = Conn::connect(&Peer::open(&address))?;
    let found = c.command(DB, &muniment_value::doc! { "count": "logged" })?;
    let found = muniment_load::conn::number_at(found.as_doc(), "n").unwrap_or(0.0);
    if found != i as f64 {
        out.warnings.push(format!(
            "14: {found} documents after the crash, {i} were acknowledged"
        ));
    }
    let (read, says) = match log {
        Some(n) => (n, "of log"),
        None => (
            sent,
            "of documents sent (the server does not tell the size of its log)",
        ),
    };
    // Recovery works with several threads, so its CPU time can exceed the time by the clock.
    let core = cpu.max(0.001);
    rows.push(
        Row::at_least("14", "recovery, a core", read / core / 1e6, "MB/s", 300.0).because(format!(
            "{} {says}; it answered after {wall:.2} s and {cpu:.2} s of CPU",
            bytes(read)
        )),
    );
    Ok(())
}
