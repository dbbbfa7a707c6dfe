//! W4b: sixty million inserts with and without a secondary index, in six batches.

use super::Spec;
use super::only::{CORES, Dimension, texts};
use crate::conn::{Conn, number_at};
use crate::docs::{self, W4B_NAME};
use crate::fail::Result;
use crate::lab::{DB, Lab, Preset, Target};
use crate::load::{self, Limit, Load};
use crate::placement::{self, Placement};
use crate::report::svg::{Axis, Mark, Plot, Scale, Series};
use crate::report::table::{Table, bytes, ms, rate};
use crate::report::{Outcome, Statistic};
use crate::stop;
use crate::workers::Inserts;
use muniment_value::{array, doc};
use std::time::{Duration, Instant};

/// The experiment.
pub const SPEC: Spec = Spec {
    name: "w4b",
    title: "Inserts with and without a secondary index",
    about: "Six batches of the same 2401-byte rows are inserted one by one with w:0, first without a secondary index, then into a fresh server with the index {name: 1} on ten random letters. After each batch a find by name is done twice and the collection's statistics are read. The cache is scaled with the data, so that the data outgrow it six-fold a batch, as they did the post's memory. Everything once with client and server on one core and once on two.",
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

/// Without and with the index, as `--only` calls it.
const INDEXES: [&str; 2] = ["none", "name"];

const COLLECTION: &str = "rows";
const BATCHES: usize = 6;
/// The post's memory and rows a batch: their ratio is kept.
const POST_MEMORY_GB: f64 = 4.0;
const POST_ROWS: f64 = 10_000_000.0;
/// The post's rates: unindexed flat (inferred from its totals), indexed in its two batches.
const POST_PLAIN: f64 = 8_500.0;
const POST_INDEXED: [f64; 2] = [3_492.0, 2_281.0];

/// All batches in one placement, without or with the index.
struct Run {
    indexed: bool,
    placement: Placement,
    batches: Vec<Batch>,
}

impl Run {
    fn called(&self) -> String {
        let index = if self.indexed { "indexed" } else { "unindexed" };
        self.placement.called(index)
    }
}

/// What one batch showed.
struct Batch {
    load: Load,
    finds_ms: [f64; 2],
    data: f64,
    storage: f64,
    indexes: f64,
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
    let mut runs: Vec<Run> = Vec::new();
    let mut failure = Ok(());
    // Which placements there are is known when the first server runs.
    let mut left: Option<Vec<Run>> = None;
    while failure.is_ok() && !stop::asked() && left.as_ref().is_none_or(|l| !l.is_empty()) {
        failure = (|| -> Result<()> {
            let mut target = lab.target(Some(cache_gb))?;
            let r = next(lab, &target, &indexes, &mut left).and_then(|run| {
                let Some(mut run) = run else { return Ok(()) };
                let r = grow(lab, &target, rows, &mut run, out);
                runs.push(run);
                r
            });
            target.check_alive()?;
            lab.done(target);
            r
        })();
    }
    let cache = (!lab.endpoint.is_external()).then_some(cache_gb * 1024.0 * 1024.0 * 1024.0);
    write_down(&runs, rows, cache, out);
    failure
}

/// The next of what is left; the first time that is everything, once in each placement.
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
        let index = if run.indexed { "indexed" } else { "unindexed" };
        let name = run.placement.called(&format!("{index} batch {b}"));
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

/// The post's find; there is one match a batch.
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
        return Err(crate::fail::Failure(format!(
            "find by name returned {found} rows, but {expected} have that name"
        )));
    }
    Ok(took)
}

fn write_down(runs: &[Run], rows: u64, cache: Option<f64>, out: &mut Outcome) {
    let mut t = Table::new(
        "After each batch",
        &[
            "<index",
            "<cores",
            ">batch",
            ">rows/s applied",
            ">sent/s",
            ">longest stall of one insert, ms",
            ">find 1, ms",
            ">find 2, ms",
            ">data",
            ">storage",
            ">indexes",
            ">data : cache",
            ">server CPU µs/row",
            "*rows/s",
        ],
    );
    for run in runs {
        for (i, b) in run.batches.iter().enumerate() {
            let l = &b.load;
            let post = if run.indexed {
                POST_INDEXED.get(i).copied()
            } else {
                Some(POST_PLAIN)
            };
            t.row([
                if run.indexed { "{name: 1}" } else { "none" }.to_string(),
                run.placement.name().to_string(),
                (i + 1).to_string(),
                rate(l.rate()),
                rate(l.sent_rate()),
                ms(l.samples.latency.max_ms()),
                ms(b.finds_ms[0]),
                ms(b.finds_ms[1]),
                bytes(b.data),
                bytes(b.storage),
                bytes(b.indexes),
                cache.map_or_else(|| "–".into(), |c| format!("{:.1}", b.data / c)),
                l.server_us()
                    .map_or_else(|| "–".into(), |u| format!("{u:.1}")),
                post.map_or_else(String::new, rate),
            ]);
            let which = if run.indexed { "indexed" } else { "unindexed" };
            let called = |what: &str| {
                let name = format!("{which} batch {}{what}", i + 1);
                run.placement.called(&name)
            };
            out.figure(called(""), l.rate(), "rows/s", post)
                .of(&l.samples.name, Statistic::Rate);
            out.figure(
                called(" longest stall"),
                l.samples.latency.max_ms(),
                "ms",
                None,
            );
            out.samples.push(l.samples.clone());
        }
    }
    t.note(format!(
        "A batch is {} rows of 2401 bytes. With w:0 a stall is a send that blocks because the server does not read. The post's unindexed rate is inferred. {}",
        rate(rows as f64),
        placement::NOTE
    ));
    out.tables.push(t);
    let mut r = Table::new(
        "Indexed rate over unindexed rate",
        &["<batch", "<cores", ">ours", "*ratio"],
    );
    for run in runs.iter().filter(|r| r.indexed) {
        let plain = runs
            .iter()
            .find(|r| !r.indexed && r.placement == run.placement)
            .map_or(&[][..], |r| r.batches.as_slice());
        for (i, (a, b)) in run.batches.iter().zip(plain).enumerate() {
            let ratio = a.load.rate() / b.load.rate();
            let post = [0.40, 0.27].get(i).copied();
            r.row([
                (i + 1).to_string(),
                run.placement.name().to_string(),
                format!("{ratio:.2}"),
                post.map_or_else(String::new, |p| format!("{p:.2}")),
            ]);
            let name = format!("indexed/unindexed batch {}", i + 1);
            out.figure(run.placement.called(&name), ratio, "ratio", post);
        }
    }
    if !r.rows.is_empty() {
        out.tables.push(r);
    }
    for run in runs {
        let (name, b) = (run.called(), run.batches.as_slice());
        if let (Some(first), Some(last)) = (b.first(), b.last()) {
            out.findings.push(format!(
                "{name}: the last batch runs at {:.2} × the rate of the first; longest stall of a single insert {} ms.",
                last.load.rate() / first.load.rate(),
                ms(b.iter().map(|b| b.load.samples.latency.max_ms()).fold(0.0, f64::max))
            ));
        }
    }
    let points = |b: &[Batch]| {
        b.iter()
            .enumerate()
            .map(|(i, b)| (i as f64 + 1.0, b.load.rate()))
            .collect()
    };
    let line = |name: &str, color, published, points| Series {
        name: name.into(),
        mark: Mark::Line,
        published,
        color,
        points,
    };
    out.plots.push(Plot {
        title: "Rows a second, batch after batch".into(),
        caption: "Dashed: the post, which abandoned its indexed run after two batches.".into(),
        x: Axis {
            label: "batch".into(),
            scale: Scale::Linear,
        },
        y: Axis {
            label: "rows/s".into(),
            scale: Scale::Linear,
        },
        categories: Vec::new(),
        series: runs
            .iter()
            .enumerate()
            .map(|(i, r)| line(&r.called(), i, false, points(&r.batches)))
            .chain(runs.iter().position(|r| !r.indexed).map(|i| {
                let points = (1..=BATCHES).map(|i| (i as f64, POST_PLAIN)).collect();
                line("post, unindexed (inferred)", i, true, points)
            }))
            .chain(runs.iter().position(|r| r.indexed).map(|i| {
                let points = POST_INDEXED.iter().enumerate();
                let points = points.map(|(i, y)| (i as f64 + 1.0, *y)).collect();
                line("post, indexed", i, true, points)
            }))
            .collect(),
    });
}
