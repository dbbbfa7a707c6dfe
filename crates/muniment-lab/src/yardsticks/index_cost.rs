//! Yardstick 7: the cost of a secondary index on a random field, whether the rate holds as the data
//! grow, and the longest stall of a single insert.

use super::{CACHE_GB, Row, Spec};
use crate::docs;
use crate::lab::{DB, Lab, Target};
use crate::report::{Outcome, experiments};
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

pub(crate) const SPEC: Spec = Spec {
    number: 7,
    title: "inserts of 2401-byte documents with a secondary index on a random field against without, as the data grow",
    target_text: "0.5 ×; 0.8 × of the rate at the start; longest stall 250 ms",
    run,
};

const CONNECTIONS: usize = 8;
/// The number of slices of each side.
pub(crate) const SLICES: usize = 24;
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
    let mut found = Found::of(data);
    'all: for (i, pair) in abba(SLICES).into_iter().enumerate() {
        for side in pair {
            if stop::asked() {
                break 'all;
            }
            let coll = if side == Side::A { "indexed" } else { "plain" };
            lab.progress
                .step(format!("Yardstick 7, {coll}, slice {} of {SLICES}", i + 1));
            let load = one(lab, &target, coll, &next, slice)?;
            match side {
                Side::A => {
                    found.indexed.add(&load);
                    found.cpu.extend(load.server_us());
                }
                Side::B => found.plain.add(&load),
            }
            out.samples.push(load.samples);
        }
    }
    experiments::index_cost::tell(&found, rows, out);
    target.check_alive()?;
    lab.done(target);
    Ok(())
}

/// The slices of one side.
pub(crate) struct Course {
    /// The documents a second, slice by slice.
    pub rates: Vec<f64>,
    /// The latencies of all slices.
    pub latency: Latency,
}

impl Course {
    fn of_nothing() -> Course {
        Course {
            rates: Vec::new(),
            latency: Latency::new(),
        }
    }

    fn add(&mut self, load: &Load) {
        self.latency.merge(&load.samples.latency);
        self.rates.push(load.rate());
    }

    /// The rates without that of the first slice, which creates files and threads.
    pub(crate) fn warm(&self) -> &[f64] {
        self.rates.get(1..).unwrap_or_default()
    }
}

/// The results of the yardstick.
pub(crate) struct Found {
    /// The bytes of each collection.
    pub data: f64,
    /// The course with the index.
    pub indexed: Course,
    /// The course without it.
    pub plain: Course,
    /// The server's CPU time with the index, µs a document, slice by slice.
    pub cpu: Vec<f64>,
}

impl Found {
    /// Makes an empty result for collections of so many bytes.
    pub(crate) fn of(data: f64) -> Found {
        Found {
            data,
            indexed: Course::of_nothing(),
            plain: Course::of_nothing(),
            cpu: Vec::new(),
        }
    }

    /// The ratio of the rate with the index to the rate without it.
    pub(crate) fn ratio(&self) -> Option<Ratio> {
        Ratio::of_pairs(self.indexed.warm(), self.plain.warm())
    }

    /// The rate with the index and its CPU time, in the first and in the last quarter of the
    /// course.
    pub(crate) fn growth(&self) -> [(f64, f64); 2] {
        let rates = self.indexed.warm();
        let quarter = (rates.len() / 4).max(1);
        let [start, end] = ends(rates, quarter);
        // On a busy host the rate drifts for other reasons than the index; CPU time drifts less.
        let [cpu_start, cpu_end] = ends(self.cpu.get(1..).unwrap_or_default(), quarter);
        [(start, cpu_start), (end, cpu_end)]
    }

    /// The longest time that a single insert took, ms.
    pub(crate) fn stall(&self) -> f64 {
        self.indexed
            .latency
            .max_ms()
            .max(self.plain.latency.max_ms())
    }
}

/// The medians of the first and the last `quarter` values of a course.
fn ends(course: &[f64], quarter: usize) -> [f64; 2] {
    let last = course.len().saturating_sub(quarter);
    [course.get(..quarter), course.get(last..)].map(|part| median(part.unwrap_or_default()))
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
