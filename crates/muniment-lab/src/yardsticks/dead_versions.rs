//! Yardstick 11: dead data cost nothing: old versions of a counter, and documents that expired.

use super::against_null::fill;
use super::{CACHE_GB, Row, Spec};
use crate::docs;
use crate::lab::{DB, Lab};
use crate::report::Outcome;
use crate::report::table::ms;
use crate::workers::Updates;
use muniment_load::conn::Conn;
use muniment_load::fail::{Failure, Result};
use muniment_load::load::{self, Limit};
use muniment_load::stats::median;
use muniment_load::stop;
use muniment_value::{Value, array, doc};
use std::time::{Duration, Instant};

pub(super) const SPEC: Spec = Spec {
    number: 11,
    title: "a scan of one document after a million updates of it; find({}) after a million documents expired",
    target_text: "2 × before; 2 ms",
    run,
};

fn run(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    counter(lab, out, rows)?;
    if stop::asked() {
        return Ok(());
    }
    expired(lab, rows)
}

/// The median time of some scans of a whole collection, ms.
fn scan(c: &mut Conn, coll: &str) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..101 {
        let began = Instant::now();
        c.command(DB, &doc! { "find": coll, "filter": doc! { "none": -1 } })?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(&times))
}

fn counter(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    const CONNECTIONS: u64 = 4;
    let updates: u64 = lab.preset.pick(100_000, 1_000_000, 1_000_000);
    let mut target = lab.target(Some(CACHE_GB))?;
    fill(lab, &target, "counter", 1, docs::point)?;
    let mut c = target.connect()?;
    let before = scan(&mut c, "counter")?;
    let workers = target
        .connections(CONNECTIONS as usize)?
        .into_iter()
        .zip(1..)
        .map(|(c, seed)| Updates::new(c, "counter", 1, seed, true))
        .collect();
    lab.progress
        .step(format!("Yardstick 11: {updates} updates"));
    let load = load::run(
        "counter",
        workers,
        Limit::operations(updates / CONNECTIONS, Duration::from_secs(900)),
        target.pid,
        &mut lab.progress,
    )?;
    out.samples.push(load.samples);
    let after = scan(&mut c, "counter")?;
    rows.push(
        Row::at_most(
            "11a",
            "scan of one document, after over before",
            after / before,
            "×",
            2.0,
        )
        .because(format!(
            "{} ms before, {} ms right after {updates} updates of it",
            ms(before),
            ms(after)
        )),
    );
    target.check_alive()?;
    lab.done(target);
    Ok(())
}

fn expired(lab: &mut Lab, rows: &mut Vec<Row>) -> Result<()> {
    let documents: u64 = lab.preset.pick(50_000, 1_000_000, 1_000_000);
    let mut target = lab.target(Some(CACHE_GB))?;
    let mut c = target.connect()?;
    lab.progress
        .step(format!("Yardstick 11: {documents} documents that expire"));
    let mut i = 0;
    while i < documents && !stop::asked() {
        let batch: muniment_value::ArrayBuf = (i..(i + 1000).min(documents))
            .map(|k| doc! { "_id": k as i64, "at": Value::DateTime(0), "s": "a document that expires" })
            .collect();
        c.command(DB, &doc! { "insert": "expiring", "documents": batch })?;
        i += 1000;
    }
    c.command(
        "admin",
        &doc! { "setParameter": 1, "ttlMonitorSleepSecs": 1 },
    )?;
    c.command(
        DB,
        &doc! { "createIndexes": "expiring", "indexes": array![
            doc! { "key": doc! { "at": 1 }, "name": "at", "expireAfterSeconds": 0 },
        ] },
    )?;
    let began = Instant::now();
    while target.count(&mut c, "expiring")? > 0 {
        if stop::asked() {
            return Ok(());
        }
        if began.elapsed() > Duration::from_secs(900) {
            return Err(Failure::new(
                "the documents did not expire within a quarter of an hour",
            ));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let deleted = began.elapsed().as_secs_f64();
    let at_once = scan(&mut c, "expiring")?;
    lab.progress.step("Yardstick 11: compaction has its turn");
    lab.settle(&target, Duration::from_secs(60));
    let after = scan(&mut c, "expiring")?;
    rows.push(
        Row::at_most("11b", "find({}) after all expired", after, "ms", 2.0).because(format!(
            "{documents} documents deleted in {deleted:.1} s; {} ms right after, {} ms once the server \
             was idle",
            ms(at_once),
            ms(after)
        )),
    );
    target.check_alive()?;
    lab.done(target);
    Ok(())
}
