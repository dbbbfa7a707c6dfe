//! W4a: single inserts by write concern, with one thread and with ten.

use super::Spec;
use super::only::{CORES, Dimension, texts};
use crate::docs;
use crate::lab::{DB, Lab, Preset, Target};
use crate::report::{Outcome, experiments};
use crate::workers::Inserts;
use muniment_load::fail::Result;
use muniment_load::hist::Latency;
use muniment_load::load::{self, Limit, Load};
use muniment_load::placement::Placement;
use muniment_load::stop;
use muniment_value::{DocBuf, array, doc};
use std::time::Duration;

pub(crate) const SPEC: Spec = Spec {
    name: "w4a",
    title: "Inserts by write concern, one thread and ten",
    about: "Documents of 2382 to 2400 bytes are inserted one by one into a fresh collection with an index on fName: with one thread, then with ten that share the count; in the post's order NONE, JOURNAL_SAFE, NORMAL, SAFE. The clock of w:0 ends when an acknowledged command on the same connections shows that everything is applied. One thread is measured with client and server on one core and on two.",
    disk_gb: [0.3, 1.0, 10.0],
    options: &[],
    dimensions: &[
        Dimension {
            name: "threads",
            about: "connections",
            values: |_| texts([1, THREADS]),
        },
        Dimension {
            name: "concern",
            about: "write concern",
            values: |_| texts(CONCERNS.iter().map(|c| c.0)),
        },
        CORES,
    ],
    run,
};

const COLLECTION: &str = "person";
/// The number of connections in the second half.
pub(crate) const THREADS: u64 = 10;

/// The name in an old driver, its meaning today, and the document.
type Concern = (&'static str, &'static str, fn() -> DocBuf);

/// The results of the experiment.
#[derive(Default)]
pub(crate) struct Found {
    /// The measurements, in the order in which they were made.
    pub all: Vec<One>,
    /// The disk's own write and sync, if it was measured.
    pub fdatasync: Option<Latency>,
}

/// The measurement of one concern.
pub(crate) struct One {
    /// The concern's name in an old driver.
    pub name: &'static str,
    /// The concern's meaning today.
    pub means: &'static str,
    /// The number of connections.
    pub threads: u64,
    /// The placement of client and server.
    pub placement: Placement,
    pub load: Load,
}

/// The write concerns in the post's order.
pub(crate) const CONCERNS: &[Concern] = &[
    ("NONE", "w:0", || doc! { "w": 0 }),
    ("JOURNAL_SAFE", "j:true", || doc! { "w": 1, "j": true }),
    ("NORMAL", "w:0", || doc! { "w": 0 }),
    ("SAFE", "w:1", || doc! { "w": 1 }),
];

fn run(lab: &mut Lab, out: &mut Outcome) -> Result<()> {
    out.deviations = vec![
        "The old driver's concerns are mapped: NONE and NORMAL to w:0, SAFE to w:1, JOURNAL_SAFE to j:true.".into(),
        "Rates of w:0 are of applied documents; the post's client stopped its clock when everything was sent.".into(),
    ];
    match lab.preset {
        Preset::Smoke => out
            .deviations
            .push("Smoke: 10,000 documents instead of 1 M, at most 2 s a variant.".into()),
        Preset::Quick => out
            .deviations
            .push("Quick: 50,000 documents instead of 1 M, at most 60 s a variant.".into()),
        Preset::Paper => {}
    }
    let mut target = lab.target(None)?;
    let mut found = Found::default();
    let result = measure(lab, &target, &mut found.all, out);
    found.fdatasync.clone_from(&lab.fdatasync);
    experiments::w4a::tell(&found, out);
    target.check_alive()?;
    lab.done(target);
    result
}

/// The measurements to make, in order: threads, placement and concern.
fn steps(lab: &mut Lab, target: &Target) -> Result<Vec<(u64, Placement, Concern)>> {
    let all = vec![1, THREADS];
    let concerns = lab
        .only
        .keep("concern", CONCERNS.to_vec(), |c| c.0.to_string())?;
    let mut rows = Vec::new();
    for threads in lab.only.keep("threads", all, ToString::to_string)? {
        let placements = match threads {
            1 => lab.placements(&target.server())?,
            _ => vec![Placement::Anywhere],
        };
        for placement in placements {
            rows.extend(concerns.iter().map(|c| (threads, placement, *c)));
        }
    }
    Ok(rows)
}

fn measure(lab: &mut Lab, target: &Target, loads: &mut Vec<One>, out: &mut Outcome) -> Result<()> {
    let total: u64 = lab.preset.pick(10_000, 50_000, 1_000_000);
    let time = Duration::from_secs(lab.preset.pick(2, 60, 86_400));
    let mut admin = target.connect()?;
    for (threads, placement, (name, means, concern)) in steps(lab, target)? {
        if stop::asked() {
            return Ok(());
        }
        let label = placement.called(&format!(
            "{name} ({means}), {threads} thread{}",
            if threads == 1 { "" } else { "s" }
        ));
        lab.progress.step(format!("W4a {label}"));
        target.drop_collection(&mut admin, COLLECTION)?;
        admin.command(
            DB,
            &doc! { "createIndexes": COLLECTION, "indexes": array![doc! { "key": doc! { "fName": 1 }, "name": "fName_1" }] },
        )?;
        let share = total / threads;
        let c = concern();
        let workers = target
            .connections(threads as usize)?
            .into_iter()
            .enumerate()
            .map(|(k, conn)| {
                let mut i = k as u64 * share;
                Inserts::new(
                    conn,
                    COLLECTION,
                    Some(&c),
                    Box::new(move |o| {
                        i += 1;
                        docs::w4a(i, docs::object_id(), o);
                    }),
                )
            })
            .collect();
        let limit = Limit::operations(share, time);
        let load = lab.placed(&target.server(), placement, &label, |lab| {
            load::run(&label, workers, limit, target.pid, &mut lab.progress)
        })?;
        let stored = target.count(&mut admin, COLLECTION)?;
        if stored != load.documents {
            out.warnings.push(format!(
                "{label}: {stored} documents are stored of {} sent",
                load.documents
            ));
        }
        if means == "w:1" {
            lab.doubt(&load.samples.name, &load, threads as usize);
        }
        loads.push(One {
            name,
            means,
            threads,
            placement,
            load,
        });
    }
    Ok(())
}
