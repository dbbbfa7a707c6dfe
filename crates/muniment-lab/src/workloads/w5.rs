//! W5: YCSB on one server. It runs the post's five scenarios and YCSB's own workloads A to F, and
//! finds the number of workers from which more do not help.
//!
//! Source: YCSB's workload files, and a post of 2015 that ran YCSB on one server and on 2–8 shards
//! of the same machine. The shards are in `sharded`.

use super::Spec;
use super::only::{CORES, Dimension, texts};
use super::scenarios::{
    Data, Extent, LOAD, LONGEST_PAUSE, POST, SCENARIOS, STOCK, Scenario, Size, WORKERS,
    all_scenarios, run_one,
};
use super::sharded;
use crate::lab::{Lab, Target};
use crate::report::{Outcome, Statistic, experiments};
use crate::topology::option::{self, TOPOLOGY};
use crate::ycsb::Phase;
use muniment_load::fail::{Failure, Result};
use muniment_load::placement::{self, Placement};
use muniment_load::samples::SampleSet;
use muniment_load::stop;

pub(crate) const SPEC: Spec = Spec {
    name: "w5",
    title: "YCSB: five scenarios, workloads A to F",
    about: "YCSB's CoreWorkload through the lab's raw client: keys, choices and values as the released YCSB makes them. S1 loads documents of 8 fields of 250 bytes with 32 workers; S2 to S5 read, update and insert by uniform keys; A to F are YCSB's own files (10 fields of 100 bytes). The sweep runs S3's mix with more and more workers and fits the Universal Scalability Law; one worker is measured with client and server on one core and on two, and counts as on two. --topology shards=server,1,2,4,6,8 runs S1 to S5 on clusters of so many shards instead, all on this machine and behind a router, and on one server without one, and measures what the router costs (with one shard) and what a move costs (with two).",
    disk_gb: [0.6, 3.0, 30.0],
    options: sharded::OPTIONS,
    dimensions: &[
        Dimension {
            name: "scenario",
            about: "what runs; loads that it needs run too",
            values: |_| texts(names().into_iter().chain([sharded::ROUTER, sharded::MOVE])),
        },
        Dimension {
            name: "workers",
            about: "of the sweep",
            values: |_| texts(SWEPT),
        },
        CORES,
    ],
    run,
};

/// The numbers of workers in the sweep.
const SWEPT: [u64; 7] = [1, 2, 4, 8, 16, 32, 48];

/// The name of the sweep among the scenarios, for `--only`.
const SWEEPS: &str = "sweep";

/// The names of everything that can run, in its order.
fn names() -> Vec<&'static str> {
    all_scenarios().map(|s| s.name).chain([SWEEPS]).collect()
}

/// The name of the sweep's figures.
pub(crate) const SWEEP: &str = "S3's mix";
/// The results of the experiment.
#[derive(Default)]
pub(crate) struct Found {
    /// The scenarios that ran, in order.
    pub rows: Vec<Row>,
    /// The sweep: the numbers of workers with the operations a second.
    pub sweep: Vec<(f64, f64)>,
}

/// The result of one scenario.
pub(crate) struct Row {
    pub scenario: &'static Scenario,
    /// Its phase of YCSB.
    pub phase: Phase,
}

impl Row {
    /// The operations a second.
    pub(crate) fn rate(&self) -> f64 {
        self.phase.load.samples.operations as f64 / self.phase.load.samples.seconds
    }
}

fn run(lab: &mut Lab, out: &mut Outcome) -> Result<()> {
    if let Some(counts) = lab.options.text(TOPOLOGY.name).and_then(option::shards) {
        return sharded::run(lab, &counts, out);
    }
    if lab.options.text(sharded::MACHINES).is_some() {
        return Err(Failure::new("--machines belongs to --topology shards=…"));
    }
    let size = Size::of(lab.preset);
    out.deviations.extend(size.deviation(lab.preset));
    out.deviations.push(
        "One server: the post's 2 to 8 shards are measured by --topology shards=server,1,2,4,6,8."
            .into(),
    );
    let wanted = lab.only.keep("scenario", names(), ToString::to_string)?;
    let swept = lab
        .only
        .keep("workers", SWEPT.to_vec(), ToString::to_string)?;
    if lab.only.values("workers").is_some() && !wanted.contains(&SWEEPS) {
        return Err(Failure(format!(
            "--only workers are the sweep's, which was not asked for: --only scenario={SWEEPS}"
        )));
    }
    // The post's machine held all of its data in memory, so the cache does too.
    let mut target = lab.target(Some(lab.preset.pick(1.0, 1.0, 24.0)))?;
    let mut found = Found::default();
    let result =
        scenarios(lab, &target, &size, &wanted, &mut found.rows).and_then(|data| {
            match data.filter(|_| wanted.contains(&SWEEPS)) {
                Some(data) => sweep(lab, &target, (&size, &swept), data, &mut found.sweep, out),
                None => Ok(()),
            }
        });
    if result.is_err() {
        target.check_alive()?;
    }
    for row in &found.rows {
        let name = row.scenario.name;
        lab.doubt(name, &row.phase.load, WORKERS as usize);
        if let Some(e) = &row.phase.error {
            out.warnings
                .push(format!("{name}: the server's first error: {e}"));
        }
    }
    experiments::w5::tell(&found, out);
    lab.done(target);
    result
}

/// Runs the wanted scenarios and the loads that they need. Returns the post's collection in the
/// state that they leave, if it was needed.
fn scenarios(
    lab: &mut Lab,
    target: &Target,
    size: &Size,
    wanted: &[&str],
    rows: &mut Vec<Row>,
) -> Result<Option<Data>> {
    let mut post = Data {
        table: "usertable",
        common: POST,
        records: size.records,
    };
    let needs_post = [SWEEPS, LOAD.name]
        .into_iter()
        .chain(SCENARIOS.iter().map(|s| s.name))
        .any(|n| wanted.contains(&n));
    if needs_post {
        let row = load(lab, target, &mut post, size)?;
        if wanted.contains(&LOAD.name) {
            rows.push(row);
        }
    }
    let operations = size.operations;
    all_of(
        lab,
        target,
        &SCENARIOS,
        wanted,
        (&mut post, operations),
        size,
        rows,
    )?;
    let post = needs_post.then_some(post);
    if stop::asked() || !STOCK.iter().any(|s| wanted.contains(&s.name)) {
        return Ok(post);
    }
    let mut stock = Data {
        table: "usertable_stock",
        common: "",
        records: size.stock_records,
    };
    load(lab, target, &mut stock, size)?;
    let operations = size.stock_operations;
    all_of(
        lab,
        target,
        &STOCK,
        wanted,
        (&mut stock, operations),
        size,
        rows,
    )?;
    Ok(post)
}

/// Loads a collection, and lets the server finish the work that the load leaves to it.
fn load(lab: &mut Lab, target: &Target, data: &mut Data, size: &Size) -> Result<Row> {
    let records = data.records;
    let row = one(lab, target, &LOAD, data, records, size, true)?;
    lab.settle(target, LONGEST_PAUSE);
    Ok(row)
}

/// Runs the wanted scenarios, each with so many operations on `data`.
fn all_of(
    lab: &mut Lab,
    target: &Target,
    scenarios: &'static [Scenario],
    wanted: &[&str],
    (data, operations): (&mut Data, u64),
    size: &Size,
    rows: &mut Vec<Row>,
) -> Result<()> {
    for s in scenarios.iter().filter(|s| wanted.contains(&s.name)) {
        if stop::asked() {
            break;
        }
        rows.push(one(lab, target, s, data, operations, size, false)?);
    }
    Ok(())
}

/// Runs one scenario on `data`, which grows by the documents that it inserts.
fn one(
    lab: &mut Lab,
    target: &Target,
    scenario: &'static Scenario,
    data: &mut Data,
    operations: u64,
    size: &Size,
    loads: bool,
) -> Result<Row> {
    let longest = if loads { 0 } else { size.longest };
    let extent = Extent {
        operations,
        seconds: longest,
        workers: WORKERS,
        loads,
    };
    let phase = run_one(lab, target, scenario, data, &extent)?;
    Ok(Row { scenario, phase })
}

/// Runs S3's mix with more and more workers; appends the workers and the operations a second to
/// `points`.
fn sweep(
    lab: &mut Lab,
    target: &Target,
    (size, swept): (&Size, &[u64]),
    mut data: Data,
    points: &mut Vec<(f64, f64)>,
    out: &mut Outcome,
) -> Result<()> {
    let s3 = SCENARIOS
        .iter()
        .find(|s| s.name == "S3")
        .ok_or_else(|| Failure::new("there is no S3"))?;
    for &workers in swept {
        let placements = match workers {
            1 => lab.placements(&target.server())?,
            _ => vec![Placement::Anywhere],
        };
        for &placement in &placements {
            if stop::asked() {
                return Ok(());
            }
            let mut name = format!("{SWEEP}, {workers} workers");
            let seconds = size.sweep_seconds;
            let p = lab.placed(&target.server(), placement, &name, |lab| {
                let extent = Extent {
                    operations: 0,
                    seconds,
                    workers,
                    loads: false,
                };
                run_one(lab, target, s3, &mut data, &extent)
            })?;
            let x = p.load.samples.operations as f64 / p.load.samples.seconds;
            // The curve has one point for one worker. Its names are those of the sweep's figures.
            if placement == placement::representative(&placements) {
                points.push((workers as f64, x));
            } else {
                name = placement.called(&name);
                out.figure(&name, x, "operations/s", None)
                    .of(&name, Statistic::Rate);
            }
            out.samples.push(SampleSet {
                name,
                ..p.load.samples
            });
        }
    }
    Ok(())
}
