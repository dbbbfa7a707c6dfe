//! Yardstick 7: what a secondary index on a random field costs, whether the rate holds as the
//! data grow, and the longest stall of a single insert.

use super::{CACHE_GB, Row, Spec};
use crate::docs;
use crate::lab::{DB, Lab, Target};
use crate::report::Outcome;
use crate::report::plot::{Axis, Mark, Plot, Series};
use crate::report::table::{bytes, ms, rate};
use crate::workers::Inserts;
use muniment_load::fail::Result;
use muniment_load::hist::Latency;
use muniment_load::load::{self, Limit, Load};
use muniment_load::stats::{Ratio, Side, abba, median};
use muniment_load::stop;
use muniment_value::{array, doc};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The yardstick.
pub const SPEC: Spec = Spec {
    number: 7,
    title: "inserts of 2401-byte documents with a secondary index on a random field against without, as the data grow",
    target_text: "0.5 ×; 0.8 × of the rate at the start; longest stall 250 ms",
    run,
};

const CONNECTIONS: usize = 8;
/// Slices of each side.
const SLICES: usize = 24;
const DOCUMENT: f64 = 2401.0;

fn run(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    let data: f64 = lab.preset.pick(0.15e9, 1e9, 5e9);
    let slice = (data / DOCUMENT / SLICES as f64 / CONNECTIONS as f64).ceil() as u64;
    let mut target = lab.target(Some(CACHE_GB))?;
    let mut c = target.connect()?;
    for coll in ["plain", "indexed"] {
        c.command(DB, &doc! { "create": coll })?;
    }
    c.command(
        DB,
        &doc! { "createIndexes": "indexed", "indexes": array![doc! { "key": doc! { "name": 1 }, "name": "name_1" }] },
    )?;
    let next = Arc::new(AtomicU64::new(1));
    let (mut indexed, mut plain, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    let (mut slow_indexed, mut slow_plain) = (Latency::new(), Latency::new());
    'all: for (i, pair) in abba(SLICES).into_iter().enumerate() {
        for side in pair {
            if stop::asked() {
                break 'all;
            }
            let coll = if side == Side::A { "indexed" } else { "plain" };
            lab.progress
                .step(format!("Yardstick 7, {coll}, slice {} of {SLICES}", i + 1));
            let load = one(lab, &target, coll, &next, slice)?;
            if side == Side::A {
                slow_indexed.merge(&load.samples.latency);
                indexed.push(load.rate());
                cpu.extend(load.server_us());
            } else {
                slow_plain.merge(&load.samples.latency);
                plain.push(load.rate());
            }
            out.samples.push(load.samples);
        }
    }
    write_down([&indexed, &plain], &cpu, data, rows, out);
    let stall = slow_indexed.max_ms().max(slow_plain.max_ms());
    rows.push(Row {
        id: "7c".into(),
        what: "longest stall of a single insert".into(),
        value: stall,
        unit: "ms",
        ratio: None,
        target: 250.0,
        at_most: true,
        otherwise: None,
        detail: format!(
            "indexed max {} ms, p99.9 {} ms; unindexed max {} ms, p99.9 {} ms",
            ms(slow_indexed.max_ms()),
            ms(slow_indexed.quantile_ms(0.999)),
            ms(slow_plain.max_ms()),
            ms(slow_plain.quantile_ms(0.999))
        ),
    });
    target.check_alive()?;
    lab.done(target);
    Ok(())
}

fn one(
    lab: &mut Lab,
    target: &Target,
    coll: &str,
    next: &Arc<AtomicU64>,
    slice: u64,
) -> Result<Load> {
    let concern = doc! { "w": 1 };
    let now = docs::now_ms();
    let workers = target
        .connections(CONNECTIONS)?
        .into_iter()
        .map(|c| {
            let next = next.clone();
            let make = Box::new(move |o: &mut Vec<u8>| {
                docs::w4b(
                    next.fetch_add(1, Ordering::Relaxed),
                    now,
                    docs::object_id(),
                    o,
                );
            });
            Inserts::new(c, coll, Some(&concern), make)
        })
        .collect();
    let limit = Limit::operations(slice, Duration::from_secs(600));
    load::run(coll, workers, limit, target.pid, &mut lab.progress)
}

/// The rows of the rate with an index, and the plot of both rates.
fn write_down(
    [indexed, plain]: [&[f64]; 2],
    cpu: &[f64],
    data: f64,
    rows: &mut Vec<Row>,
    out: &mut Outcome,
) {
    // The first slice creates files and threads on both sides.
    let (Some(a), Some(b)) = (indexed.get(1..), plain.get(1..)) else {
        return;
    };
    let Some(ratio) = Ratio::of_pairs(a, b) else {
        return;
    };
    rows.push(Row {
        id: "7a".into(),
        what: "indexed / unindexed insert rate".into(),
        value: ratio.median,
        unit: "×",
        ratio: Some(ratio),
        target: 0.5,
        at_most: false,
        otherwise: None,
        detail: format!(
            "indexed {}/s, unindexed {}/s",
            rate(median(a)),
            rate(median(b))
        ),
    });
    rows.push(grown(a, cpu.get(1..).unwrap_or_default(), data));
    out.plots.push(plot(indexed, plain, data));
}

/// Medians of the first quarter of a course and of the last one, of which each has so many values.
fn ends(course: &[f64], quarter: usize) -> [f64; 2] {
    let last = course.len().saturating_sub(quarter);
    [course.get(..quarter), course.get(last..)].map(|part| median(part.unwrap_or_default()))
}

/// What the growth of the data did to the rate with an index.
fn grown(indexed: &[f64], cpu: &[f64], data: f64) -> Row {
    let quarter = (indexed.len() / 4).max(1);
    let [start, end] = ends(indexed, quarter);
    // On a busy host the rate drifts for reasons of its own; CPU time drifts less.
    let cpu = ends(cpu, quarter);
    let promise = match data >= 5e9 {
        true => "",
        false => " (the promise is made for 5 GB: --preset paper)",
    };
    Row {
        id: "7b".into(),
        what: format!("indexed rate after {} / at the start", bytes(data)),
        value: end / start,
        unit: "×",
        ratio: None,
        target: 0.8,
        at_most: false,
        otherwise: None,
        detail: format!(
            "first quarter {}/s ({:.1} µs server CPU), last quarter {}/s ({:.1} µs){promise}",
            rate(start),
            cpu[0],
            rate(end),
            cpu[1]
        ),
    }
}

fn plot(indexed: &[f64], plain: &[f64], data: f64) -> Plot {
    let line = |name: &str, color, rates: &[f64]| {
        let slice = data / SLICES as f64 / 1e6;
        let all = rates.iter().enumerate();
        let points = all.map(|(i, y)| ((i as f64 + 1.0) * slice, *y));
        Series::new(name, Mark::Line, color, points.collect())
    };
    Plot::new(
        "Inserts a second as the data grow",
        "Slices of the two collections alternate; the x axis is the data in each.",
        Axis::linear("MB in each collection"),
        Axis::linear("documents/s"),
    )
    .series([
        line("unindexed", 0, plain),
        line("indexed {name: 1}", 1, indexed),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_and_interrupted() {
        let rates = |first: f64, step: f64| -> Vec<f64> {
            (0..SLICES).map(|i| first - step * i as f64).collect()
        };
        let (indexed, plain) = (rates(50_000.0, 300.0), rates(80_000.0, 100.0));
        let cpu = rates(30.0, -0.1);
        let (mut rows, mut out) = (Vec::new(), Outcome::default());
        write_down([&indexed, &plain], &cpu, 1e9, &mut rows, &mut out);
        crate::report::experiments::yardsticks::tell(&rows, &mut out);
        crate::report::experiments::fixtures::check("index-cost", &out);
        let (mut rows, mut out) = (Vec::new(), Outcome::default());
        write_down([&indexed[..1], &plain[..1]], &cpu, 1e9, &mut rows, &mut out);
        assert!(rows.is_empty() && out.plots.is_empty());
    }
}
