//! YCSB's scenarios as W5 runs them: the post's and YCSB's own, their counts by preset, and one run
//! of one of them.

use crate::lab::{DB, Lab, Preset, Target};
use crate::report::table::rate;
use crate::ycsb::core::Workload;
use crate::ycsb::properties::Properties;
use crate::ycsb::settings::Settings;
use crate::ycsb::{Phase, phase};
use muniment_load::fail::Result;
use std::sync::Arc;
use std::time::Duration;

/// The longest time that the server may take to finish the work that a load leaves to it.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The number of workers of the scenarios.
pub(super) const WORKERS: u64 = 32;

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

/// The properties of the post's documents.
pub(super) const POST: &str = "fieldcount=8\nfieldlength=250\nrequestdistribution=uniform\n";

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

/// The scenarios, the load first.
pub(super) fn all_scenarios() -> impl Iterator<Item = &'static Scenario> {
    [&LOAD].into_iter().chain(&SCENARIOS).chain(&STOCK)
}

/// The counts for a preset.
pub(super) struct Size {
    pub records: u64,
    pub operations: u64,
    pub stock_records: u64,
    pub stock_operations: u64,
    /// The longest time of a scenario, s.
    pub longest: u64,
    /// The time of each number of workers in the sweep, s.
    pub sweep_seconds: u64,
}

impl Size {
    pub(super) fn of(preset: Preset) -> Size {
        Size {
            records: preset.pick(10_000, 50_000, 5_000_000),
            operations: preset.pick(1_000_000, 1_000_000, 100_000_000),
            stock_records: preset.pick(10_000, 50_000, 5_000_000),
            stock_operations: preset.pick(1_000_000, 200_000, 10_000_000),
            longest: preset.pick(1, 60, 36_000),
            sweep_seconds: preset.pick(1, 3, 60),
        }
    }

    /// The sentence on how these counts differ from the post's.
    pub(super) fn deviation(&self, preset: Preset) -> Option<String> {
        (preset != Preset::Paper).then(|| {
            format!(
                "{} documents and up to {} operations (at most {} s) a scenario instead of 5 M and 100 M.",
                rate(self.records as f64),
                rate(self.operations as f64),
                self.longest
            )
        })
    }
}

/// The state of a collection.
pub(super) struct Data {
    pub table: &'static str,
    /// The properties of all its scenarios.
    pub common: &'static str,
    pub records: u64,
}

/// How much of a scenario is run.
pub(super) struct Extent {
    /// 0 for no limit.
    pub operations: u64,
    /// The run ends after so many seconds; 0 for no limit.
    pub seconds: u64,
    pub workers: u64,
    /// Whether the load of the scenario is run, not its operations.
    pub loads: bool,
}

/// Runs one scenario or its load.
pub(super) fn run_one(
    lab: &mut Lab,
    target: &Target,
    scenario: &Scenario,
    data: &mut Data,
    extent: &Extent,
) -> Result<Phase> {
    let Extent {
        operations,
        seconds,
        workers,
        loads,
    } = *extent;
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
