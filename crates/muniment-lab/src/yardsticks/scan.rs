//! Yardstick 6: a collection scan that matches nothing, and count({}), which needs no scan.

use super::against_null::fill;
use super::{CACHE_GB, Row, Spec};
use crate::docs;
use crate::lab::{DB, Lab, Target};
use crate::report::Outcome;
use crate::report::table::{ms, rate};
use muniment_load::conn::{Conn, number_at};
use muniment_load::fail::Result;
use muniment_load::hist::Latency;
use muniment_load::procs;
use muniment_load::stats::median;
use muniment_load::stop;
use muniment_value::{array, doc};
use std::time::{Duration, Instant};

pub(super) const SPEC: Spec = Spec {
    number: 6,
    title: "collection scan of 1 M small documents with a filter that matches none; count({}) exact without a scan",
    target_text: "1 M docs/s a core",
    run,
};

const DOCUMENTS: u64 = 1_000_000;
const COLLECTION: &str = "scanned";

fn run(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    let mut target = lab.target(Some(CACHE_GB))?;
    fill(lab, &target, COLLECTION, DOCUMENTS, docs::small)?;
    if stop::asked() {
        return Ok(());
    }
    lab.progress
        .step("Yardstick 6: waiting until the server is idle");
    settle(&target);
    let mut c = target.connect()?;
    let (mut walls, mut cpus) = (Vec::new(), Vec::new());
    for i in 0..lab.preset.pick(5, 9, 15) {
        lab.progress.step(format!("Yardstick 6: scan {}", i + 1));
        let before = target.pid.and_then(procs::sample);
        let t = Instant::now();
        let r = c.command(DB, &doc! { "find": COLLECTION, "filter": doc! { "x": -1 } })?;
        let wall = t.elapsed().as_secs_f64();
        let after = target.pid.and_then(procs::sample);
        let found = r
            .as_doc()
            .get_doc("cursor")
            .and_then(|c| c.get_array("firstBatch"))
            .map_or(1, |b| b.count());
        if found != 0 {
            out.warnings
                .push("6: the scan's filter matched something".into());
        }
        // The first scan fills the cache and is not counted.
        if i > 0 {
            walls.push(wall);
            cpus.extend(
                before
                    .zip(after)
                    .map(|(b, a)| a.cpu_seconds - b.cpu_seconds)
                    .filter(|s| *s > 0.0),
            );
        }
    }
    let n = DOCUMENTS as f64;
    let (wall, cpu) = (median(&walls), median(&cpus));
    rows.push(Row {
        id: "6a".into(),
        what: "scan, documents/s a core".into(),
        value: n / cpu,
        unit: "docs/s",
        ratio: None,
        target: 1e6,
        at_most: false,
        otherwise: None,
        detail: format!(
            "{:.0} ms of server CPU and {:.0} ms by the clock for {} documents, {} scans",
            cpu * 1e3,
            wall * 1e3,
            rate(n),
            walls.len()
        ),
    });
    count(&mut c, &target, wall, rows)?;
    target.check_alive()?;
    lab.done(target);
    Ok(())
}

/// Tests that count({}) is exact, also after changes, and far too fast for a scan.
fn count(c: &mut Conn, target: &Target, scan: f64, rows: &mut Vec<Row>) -> Result<()> {
    let mut latency = Latency::new();
    let mut exact = true;
    let mut expect = DOCUMENTS;
    for i in 0..50 {
        // Each round inserts one document and deletes two.
        c.command(
            DB,
            &doc! { "insert": COLLECTION, "documents": array![doc! { "_id": -1 - i, "x": 0 }] },
        )?;
        c.command(
            DB,
            &doc! { "delete": COLLECTION, "deletes": array![
                doc! { "q": doc! { "_id": i64::from(2 * i) }, "limit": 1 },
                doc! { "q": doc! { "_id": i64::from(2 * i + 1) }, "limit": 1 },
            ] },
        )?;
        expect -= 1;
        let t = Instant::now();
        let n = target.count(c, COLLECTION)?;
        latency.record(t.elapsed().as_nanos() as u64);
        exact &= n == expect;
        let r = c.command(DB, &doc! { "count": COLLECTION, "query": doc! {} })?;
        exact &= number_at(r.as_doc(), "n") == Some(expect as f64);
    }
    let p50 = latency.quantile_ms(0.5);
    rows.push(Row {
        id: "6b".into(),
        what: "count({}), p50".into(),
        value: if exact { p50 } else { f64::NAN },
        unit: "ms",
        ratio: None,
        // No scan can answer in a hundredth of a scan's time.
        target: (scan * 1e3 / 100.0).min(2.0),
        at_most: true,
        otherwise: None,
        detail: format!(
            "{} over 50 rounds of inserts and deletes; max {} ms; a scan takes {} ms",
            if exact { "exact" } else { "NOT EXACT" },
            ms(latency.max_ms()),
            ms(scan * 1e3)
        ),
    });
    Ok(())
}

/// Waits until the server uses less than 3 % of a core over 300 ms, but at most 20 s.
fn settle(target: &Target) {
    let begin = Instant::now();
    let Some(mut last) = target.pid.and_then(procs::sample) else {
        return;
    };
    while begin.elapsed() < Duration::from_secs(20) && !stop::asked() {
        std::thread::sleep(Duration::from_millis(300));
        let Some(now) = target.pid.and_then(procs::sample) else {
            return;
        };
        if now.cpu_seconds - last.cpu_seconds < 0.011 {
            return;
        }
        last = now;
    }
}
