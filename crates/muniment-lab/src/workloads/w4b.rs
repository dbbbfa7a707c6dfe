//! W4b: sixty million inserts with and without a secondary index, in six batches.

use super::Spec;
use super::only::{CORES, Dimension, texts};
use crate::docs::{self, W4B_NAME};
use crate::lab::{DB, Lab, Preset, Target};
use crate::report::table::rate;
use crate::report::{Outcome, experiments};
use crate::workers::Inserts;
use muniment_load::conn::{Conn, number_at};
use muniment_load::fail::Result;
use muniment_load::load::{self, Limit, Load};
use muniment_load::placement::Placement;
use muniment_load::stop;
use muniment_value::{array, doc};
use std::time::{Duration, Instant};

pub(crate) const SPEC: Spec = Spec {
    name: "w4b",
    title: "Inserts with and without a secondary index",
    about: "Six batches of the same 2401-byte rows are inserted one by one with w:0, first without a secondary index, then into a fresh server with the index {name: 1} on ten random letters. After each batch a find by name is done twice and the collection's statistics are read. The cache is scaled with the data, so that the data outgrow it six-fold a batch, as they did the post's memory. Everything once with client and server on one core and once on two.",
    disk_gb: [0.6, 3.0, 300.0],
    options: &[],
    dimensions: &[
        Dimension {
            name: "index",
            about: "without and with the secondary index",
            values: |_| texts(INDEXES),
        },
        CORES,
    ],
    run,
};

/// The values for `--only`: without and with the index.
const INDEXES: [&str; 2] = ["none", "name"];

const COLLECTION: &str = "rows";
/// The number of batches; each one inserts the same number of rows.
pub(crate) const BATCHES: usize = 6;
/// The post's memory and rows a batch. Their ratio is kept, so that the data outgrow the cache at
/// the same batch.
const POST_MEMORY_GB: f64 = 4.0;
const POST_ROWS: f64 = 10_000_000.0;

/// The results of the experiment.
pub(crate) struct Found {
    /// The runs without and with the index, in each placement.
    pub runs: Vec<Run>,
    /// The rows of a batch.
    pub rows: u64,
    /// The server's cache, bytes, if it is known.
    pub cache: Option<f64>,
}

/// All batches in one placement, without or with the index.
pub(crate) struct Run {
    /// Whether the collection has the index.
    pub indexed: bool,
    /// The placement of client and server.
    pub placement: Placement,
    /// The batches in order.
    pub batches: Vec<Batch>,
}

impl Run {
    /// The name of its loads, with `what` added.
    pub(crate) fn called(&self, what: &str) -> String {
        let index = if self.indexed { "indexed" } else { "unindexed" };
        self.placement.called(&format!("{index}{what}"))
    }
}

/// The results of one batch.
pub(crate) struct Batch {
    /// The load of the inserts.
    pub load: Load,
    /// The times of the two finds after it, ms.
    pub finds_ms: [f64; 2],
    /// The bytes of documents after it.
    pub data: f64,
    /// The bytes of the files after it.
    pub storage: f64,
    /// The bytes of the indexes after it.
    pub indexes: f64,
}

fn run(lab: &mut Lab, out: &mut Outcome) -> Result<()> {
    let rows: u64 = lab.preset.pick(10_000, 100_000, 10_000_000);
    let own = POST_MEMORY_GB * rows as f64 / POST_ROWS;
    let cache_gb = lab.cache(Some(own)).unwrap_or(own);
    out.deviations = vec![
        "The post's exact names are not known; ten random letters are used, except for one row a batch that the finds look for.".into(),
        "The post's machine had 4 GB of memory in all; here only the server's cache is scaled, and the operating system's file cache is not.".into(),
        "The post gave up its indexed run at 20 M rows; here both go to the end.".into(),
    ];
    match lab.preset {
        Preset::Smoke => out.deviations.push(format!(
            "Smoke: 6 × {} rows instead of 6 × 10 M, at most 3 s a batch.",
            rate(rows as f64)
        )),
        Preset::Quick => out.deviations.push(format!(
            "Quick: 6 × {} rows instead of 6 × 10 M.",
            rate(rows as f64)
        )),
        Preset::Paper => {}
    }
    if lab.endpoint.is_external() {
        out.deviations.push(
            "An external target keeps its own cache: its size relative to the data is not known."
                .into(),
        );
    }
    let indexes = lab
        .only
        .keep("index", INDEXES.to_vec(), ToString::to_string)?;
    let mut found = Found {
        runs: Vec::new(),
        rows,
        cache: (!lab.endpoint.is_external()).then_some(cache_gb * 1024.0 * 1024.0 * 1024.0),
    };
    let mut failure = Ok(());
    // The possible placements are known only once the first server runs.
    let mut left: Option<Vec<Run>> = None;
    while failure.is_ok() && !stop::asked() && left.as_ref().is_none_or(|l| !l.is_empty()) {
        failure = (|| -> Result<()> {
            let mut target = lab.target(Some(cache_gb))?;
            let r = next(lab, &target, &indexes, &mut left).and_then(|run| {
                let Some(mut run) = run else { return Ok(()) };
                let r = grow(lab, &target, rows, &mut run, out);
                found.runs.push(run);
                r
            });
            target.check_alive()?;
            lab.done(target);
            r
        })();
    }
    experiments::w4b::tell(&found, out);
    failure
}

/// Takes the next run that is left. The first call makes the list: every index variant in each
/// placement.
fn next(
    lab: &mut Lab,
    target: &Target,
    indexes: &[&str],
    left: &mut Option<Vec<Run>>,
) -> Result<Option<Run>> {
    let all = match left {
        Some(all) => all,
        None => {
            let mut all = Vec::new();
            for placement in lab.placements(&target.server())? {
                all.extend(indexes.iter().map(|index| Run {
                    indexed: *index != "none",
                    placement,
                    batches: Vec::new(),
                }));
            }
            all.reverse();
            left.insert(all)
        }
    };
    Ok(all.pop())
}

fn grow(lab: &mut Lab, target: &Target, rows: u64, run: &mut Run, out: &mut Outcome) -> Result<()> {
    let mut admin = target.connect()?;
    admin.command(DB, &doc! { "create": COLLECTION })?;
    if run.indexed {
        admin.command(
            DB,
            &doc! { "createIndexes": COLLECTION, "indexes": array![doc! { "key": doc! { "name": 1 }, "name": "name_1" }] },
        )?;
    }
    let time = Duration::from_secs(lab.preset.pick(3, 600, 86_400));
    let concern = doc! { "w": 0 };
    let mut stored = 0;
    for b in 1..=BATCHES {
        if stop::asked() {
            return Ok(());
        }
        let name = run.called(&format!(" batch {b}"));
        lab.progress.step(format!("W4b {name}"));
        let mut i = 0;
        let now = docs::now_ms();
        let w = Inserts::new(
            target.connect()?,
            COLLECTION,
            Some(&concern),
            Box::new(move |o| {
                docs::w4b(i, now, docs::object_id(), o);
                i += 1;
            }),
        );
        let limit = Limit::operations(rows, time);
        let load = lab.placed(&target.server(), run.placement, &name, |lab| {
            load::run(&name, vec![w], limit, target.pid, &mut lab.progress)
        })?;
        stored += load.documents;
        if load.cut_short && !stop::asked() {
            out.warnings.push(format!(
                "{name}: cut short by the preset's time limit after {} rows",
                rate(load.documents as f64)
            ));
        }
        if load.rate() >= load.sent_rate() * 0.99 {
            lab.doubt_client(&name, &load);
        }
        let n = target.count(&mut admin, COLLECTION)?;
        if n != stored {
            out.warnings
                .push(format!("{name}: {n} documents are stored of {stored} sent"));
        }
        lab.progress.step(format!("W4b {name}: finds"));
        let finds_ms = [find(&mut admin, b)?, find(&mut admin, b)?];
        let stats = admin.command(DB, &doc! { "collStats": COLLECTION })?;
        let s = |p: &str| number_at(stats.as_doc(), p).unwrap_or(f64::NAN);
        run.batches.push(Batch {
            load,
            finds_ms,
            data: s("size"),
            storage: s("storageSize"),
            indexes: s("totalIndexSize"),
        });
    }
    Ok(())
}

/// Runs the post's find, which has one match for each batch.
fn find(conn: &mut Conn, expected: usize) -> Result<f64> {
    let t = Instant::now();
    let r = conn.command(
        DB,
        &doc! { "find": COLLECTION, "filter": doc! { "name": W4B_NAME } },
    )?;
    let took = t.elapsed().as_secs_f64() * 1e3;
    let found = r
        .as_doc()
        .get_doc("cursor")
        .and_then(|c| c.get_array("firstBatch"))
        .map_or(0, |b| b.count());
    if found != expected {
        return Err(muniment_load::fail::Failure(format!(
            "find by name returned {found} rows, but {expected} have that name"
        )));
    }
    Ok(took)
}
