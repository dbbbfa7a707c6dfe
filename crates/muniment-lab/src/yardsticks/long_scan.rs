//! Yardstick 13: one long read of documents that others update meanwhile.
//!
//! The other side is the same read of a collection that nobody writes, while the writers write
//! elsewhere. It takes as much CPU time, so the difference is the price of reading old versions.

use super::against_null::{POINTS, fill};
use super::{CACHE_GB, Row, Spec};
use crate::docs;
use crate::lab::{DB, Lab, Target};
use crate::report::Outcome;
use crate::report::table::{bytes, rate};
use crate::workers::Updates;
use muniment_load::conn::Conn;
use muniment_load::fail::{Failure, Result};
use muniment_load::load::{self, Limit};
use muniment_load::procs;
use muniment_load::stop;
use muniment_value::{DocBuf, array, doc};
use std::time::{Duration, Instant};

pub(super) const SPEC: Spec = Spec {
    number: 13,
    title: "writers beside a read that takes a minute, of what they write against of something else; the memory it costs",
    target_text: "0.9 ×; 64 MB",
    run,
};

const WRITERS: usize = 8;

fn run(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    let seconds = lab.preset.pick(5, 60, 60);
    let mut target = lab.target(Some(CACHE_GB))?;
    for coll in ["written", "quiet"] {
        fill(lab, &target, coll, POINTS, docs::point)?;
    }
    let mut c = target.connect()?;
    // Calibrates the work for each document, so that one pass takes the wanted time.
    let probe = Instant::now();
    c.command(DB, &reading("quiet", 1000, Some(500)))?;
    let each = probe.elapsed().as_secs_f64() / 500.0;
    let wanted = seconds as f64 / POINTS as f64;
    let work = (1000.0 * wanted / each).clamp(10.0, 1e6) as i32;
    let mut sides = Vec::new();
    for coll in ["quiet", "written"] {
        if stop::asked() {
            return Ok(());
        }
        lab.settle(&target, Duration::from_secs(30));
        lab.progress
            .step(format!("Yardstick 13: a long read of \"{coll}\""));
        sides.push(one(lab, out, &target, coll, work, seconds)?);
    }
    if let [quiet, written] = sides.as_slice() {
        rows.push(
            Row::at_least(
                "13a",
                "writers beside a long read of what they write",
                written.rate / quiet.rate,
                "×",
                0.9,
            )
            .because(format!(
                "{}/s beside a read of it of {:.0} s, {}/s beside one of another collection of {:.0} s",
                rate(written.rate),
                written.seconds,
                rate(quiet.rate),
                quiet.seconds
            )),
        );
        if let (Some(a), Some(b)) = (written.grew, quiet.grew) {
            rows.push(
                Row::at_most(
                    "13b",
                    "memory a long read costs",
                    (a - b).max(0.0) / 1e6,
                    "MB",
                    64.0,
                )
                .because(format!(
                    "the server grew by {} during it, by {} during the other",
                    bytes(a),
                    bytes(b)
                )),
            );
        }
    }
    target.check_alive()?;
    lab.done(target);
    Ok(())
}

/// A read that spends `work` steps on every document.
fn reading(coll: &str, work: i32, limit: Option<i32>) -> DocBuf {
    let sum = doc! { "$reduce": doc! {
        "input": doc! { "$range": array![0, work] },
        "initialValue": 0,
        "in": doc! { "$add": array!["$$value", "$$this"] },
    } };
    let found = doc! { "$match": doc! { "$expr": doc! { "$gte": array![sum, 0] } } };
    let end = doc! { "$count": "n" };
    let stages = match limit {
        Some(n) => array![doc! { "$limit": n }, found, end],
        None => array![found, end],
    };
    doc! { "aggregate": coll, "pipeline": stages, "cursor": doc! {} }
}

struct One {
    /// The writes a second.
    rate: f64,
    /// The time that the read took.
    seconds: f64,
    /// The growth of the server's largest resident size, bytes.
    grew: Option<f64>,
}

fn one(
    lab: &mut Lab,
    out: &mut Outcome,
    target: &Target,
    coll: &'static str,
    work: i32,
    seconds: u64,
) -> Result<One> {
    let mut reader: Conn = target.connect()?;
    let writers = target
        .connections(WRITERS)?
        .into_iter()
        .zip(1..)
        .map(|(c, seed)| Updates::new(c, "written", POINTS, seed, true))
        .collect();
    let before = target.pid.and_then(procs::reset_peak);
    let name = format!("writers beside a read of {coll}");
    let (load, read) = std::thread::scope(|s| {
        let read = s.spawn(move || -> Result<f64> {
            let began = Instant::now();
            reader.set_timeout(None)?;
            reader.command(DB, &reading(coll, work, None))?;
            Ok(began.elapsed().as_secs_f64())
        });
        // The writers end at about the same time as the read, so that they are measured only while
        // it runs.
        let limit = Limit::time(Duration::from_secs(seconds));
        let load = load::run(&name, writers, limit, target.pid, &mut lab.progress);
        (load, read.join())
    });
    let load = load?;
    let took = read.map_err(|_| Failure::new("the long read broke off"))??;
    let peak = target.pid.and_then(procs::sample).map(|s| s.peak_rss);
    let rate = load.rate();
    out.samples.push(load.samples);
    Ok(One {
        rate,
        seconds: took,
        grew: peak.zip(before).map(|(p, b)| p - b),
    })
}
