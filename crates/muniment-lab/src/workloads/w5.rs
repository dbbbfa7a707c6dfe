//! W5: YCSB on one server. It runs the post's five scenarios and YCSB's own workloads A to F, and
//! finds the number of workers from which more do not help.
//!
//! Source: YCSB's workload files, and a post of 2015 that ran YCSB on one server and on 2–8 shards
//! of the same machine (shards will come with the router).

use super::Spec;
use super::only::{CORES, Dimension, texts};
use crate::lab::{DB, Lab, Preset, Target};
use crate::report::table::rate;
use crate::report::{Outcome, Statistic, experiments};
use crate::ycsb::core::Workload;
use crate::ycsb::properties::Properties;
use crate::ycsb::settings::Settings;
use crate::ycsb::{Phase, phase};
use muniment_load::fail::{Failure, Result};
use muniment_load::placement::{self, Placement};
use muniment_load::samples::SampleSet;
use muniment_load::stop;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const SPEC: Spec = Spec {
    name: "w5",
    title: "YCSB: five scenarios, workloads A to F",
    about: "YCSB's CoreWorkload through the lab's raw client: keys, choices and values as the released YCSB makes them. S1 loads documents of 8 fields of 250 bytes with 32 workers; S2 to S5 read, update and insert by uniform keys; A to F are YCSB's own files (10 fields of 100 bytes). The sweep runs S3's mix with more and more workers and fits the Universal Scalability Law; one worker is measured with client and server on one core and on two, and counts as on two.",
    disk_gb: [0.6, 3.0, 30.0],
    options: &[],
    dimensions: &[
        Dimension {
            name: "scenario",
            about: "what runs; loads that it needs run too",
            values: |_| texts(names()),
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
    let scenarios = [&LOAD].into_iter().chain(&SCENARIOS).chain(&STOCK);
    scenarios.map(|s| s.name).chain([SWEEPS]).collect()
}

/// The longest time that the server may take to finish the work that a load leaves to it.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The name of the sweep's figures.
pub(crate) const SWEEP: &str = "S3's mix";
/// The number of workers of the scenarios.
const WORKERS: u64 = 32;

/// The transactions of a scenario.
pub(crate) struct Scenario {
    /// The name in the post or in YCSB.
    pub name: &'static str,
    /// A few words about its operations.
    pub what: &'static str,
    properties: &'static str,
    /// The operations a second in the post.
    pub published: Option<f64>,
}

const POST: &str = "fieldcount=8\nfieldlength=250\nrequestdistribution=uniform\n";

/// The post's scenarios that run after its load.
pub(crate) const SCENARIOS: [Scenario; 4] = [
    Scenario {
        name: "S2",
        what: "read 10 %, update 90 %",
        properties: "readproportion=0.1\nupdateproportion=0.9",
        published: Some(12_102.0),
    },
    Scenario {
        name: "S3",
        what: "read 65 %, update 10 %, insert 25 %",
        properties: "readproportion=0.65\nupdateproportion=0.10\ninsertproportion=0.25",
        published: Some(15_982.0),
    },
    Scenario {
        name: "S4",
        what: "read 90 %, update 5 %, insert 5 %",
        properties: "readproportion=0.90\nupdateproportion=0.05\ninsertproportion=0.05",
        published: Some(19_102.0),
    },
    Scenario {
        name: "S5",
        what: "read",
        properties: "readproportion=1\nupdateproportion=0",
        published: Some(49_020.0),
    },
];

/// YCSB's own workloads.
pub(crate) const STOCK: [Scenario; 6] = [
    Scenario {
        name: "A",
        what: "read 50 %, update 50 %, zipfian",
        properties: "readproportion=0.5\nupdateproportion=0.5\nrequestdistribution=zipfian",
        published: None,
    },
    Scenario {
        name: "B",
        what: "read 95 %, update 5 %, zipfian",
        properties: "readproportion=0.95\nupdateproportion=0.05\nrequestdistribution=zipfian",
        published: None,
    },
    Scenario {
        name: "C",
        what: "read, zipfian",
        properties: "readproportion=1\nupdateproportion=0\nrequestdistribution=zipfian",
        published: None,
    },
    Scenario {
        name: "D",
        what: "read 95 %, insert 5 %, latest",
        properties: "readproportion=0.95\nupdateproportion=0\ninsertproportion=0.05\nrequestdistribution=latest",
        published: None,
    },
    Scenario {
        name: "E",
        what: "scan 95 %, insert 5 %, zipfian, up to 100 documents",
        properties: "readproportion=0\nupdateproportion=0\nscanproportion=0.95\ninsertproportion=0.05\nrequestdistribution=zipfian\nmaxscanlength=100",
        published: None,
    },
    Scenario {
        name: "F",
        what: "read 50 %, read-modify-write 50 %, zipfian",
        properties: "readproportion=0.5\nupdateproportion=0\nreadmodifywriteproportion=0.5\nrequestdistribution=zipfian",
        published: None,
    },
];

/// The load of the post.
pub(crate) const LOAD: Scenario = Scenario {
    name: "S1",
    what: "load",
    properties: "",
    published: Some(7295.0),
};

/// The counts for a preset.
struct Size {
    records: u64,
    operations: u64,
    stock_records: u64,
    stock_operations: u64,
    /// The longest time of a scenario, s.
    longest: u64,
    sweep_seconds: u64,
}

impl Size {
    fn of(preset: Preset) -> Size {
        Size {
            records: preset.pick(10_000, 50_000, 5_000_000),
            operations: preset.pick(1_000_000, 1_000_000, 100_000_000),
            stock_records: preset.pick(10_000, 50_000, 5_000_000),
            stock_operations: preset.pick(1_000_000, 200_000, 10_000_000),
            longest: preset.pick(1, 60, 36_000),
            sweep_seconds: preset.pick(1, 3, 60),
        }
    }
}

/// The state of a collection.
struct Data {
    table: &'static str,
    common: &'static str,
    records: u64,
}

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
    let size = Size::of(lab.preset);
    if lab.preset != Preset::Paper {
        out.deviations.push(format!(
            "{} documents and up to {} operations (at most {} s) a scenario instead of 5 M and 100 M.",
            rate(size.records as f64),
            rate(size.operations as f64),
            size.longest
        ));
    }
    out.deviations
        .push("One server: the post's 2 to 8 shards need the router.".into());
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
    let phase = run_one(
        lab, target, scenario, data, operations, longest, WORKERS, loads,
    )?;
    Ok(Row { scenario, phase })
}

#[allow(clippy::too_many_arguments)]
fn run_one(
    lab: &mut Lab,
    target: &Target,
    scenario: &Scenario,
    data: &mut Data,
    operations: u64,
    seconds: u64,
    workers: u64,
    loads: bool,
) -> Result<Phase> {
    let mut p = Properties::default();
    p.read(data.common)?;
    p.read(scenario.properties)?;
    p.read(&format!(
        "table={}\nrecordcount={}\noperationcount={operations}\nthreadcount={workers}\nmaxexecutiontime={seconds}",
        data.table, data.records
    ))?;
    let workload = Arc::new(Workload::new(&p)?);
    let settings = Arc::new(Settings {
        database: DB.into(),
        ..Settings::new(&p)?
    });
    lab.progress.step(format!("W5 {}", scenario.name));
    let done = phase(
        target,
        &workload,
        &settings,
        loads,
        &mut lab.progress,
        &mut |_| {},
    )
    .map_err(|e| e.while_doing(scenario.name))?;
    // The next scenario inserts after the keys of this one.
    if let Some(last) = workload.new_keys.last() {
        data.records = data.records.max(last + 1);
    }
    Ok(done)
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
                run_one(lab, target, s3, &mut data, 0, seconds, workers, false)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_scenario_is_a_workload_whose_proportions_make_one() {
        for s in SCENARIOS.iter().chain(&STOCK) {
            let mut p = Properties::default();
            p.read("recordcount=1000").unwrap();
            p.read(POST).unwrap();
            p.read(s.properties).unwrap();
            Workload::new(&p).unwrap();
            let sum: f64 = [
                ("readproportion", 0.95),
                ("updateproportion", 0.05),
                ("insertproportion", 0.0),
                ("scanproportion", 0.0),
                ("readmodifywriteproportion", 0.0),
            ]
            .iter()
            .map(|(n, d)| p.number(n, *d).unwrap())
            .sum();
            assert!((sum - 1.0).abs() < 1e-9, "{}: {sum}", s.name);
        }
    }
}
