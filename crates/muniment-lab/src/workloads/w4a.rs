//! W4a: single inserts by write concern, with one thread and with ten.

use super::Spec;
use super::only::{CORES, Dimension, texts};
use crate::docs;
use crate::fail::Result;
use crate::lab::{DB, Lab, Preset, Target};
use crate::load::{self, Limit, Load};
use crate::placement::{self, Placement};
use crate::report::svg::{Axis, Mark, Plot, Scale, Series};
use crate::report::table::{Table, ms, rate};
use crate::report::{Outcome, Statistic};
use crate::stop;
use crate::workers::Inserts;
use muniment_value::{DocBuf, array, doc};
use std::time::Duration;

/// The experiment.
pub const SPEC: Spec = Spec {
    name: "w4a",
    title: "Inserts by write concern, one thread and ten",
    about: "Documents of 2382 to 2400 bytes are inserted one by one into a fresh collection with an index on fName: with one thread, then with ten that share the count; in the post's order NONE, JOURNAL_SAFE, NORMAL, SAFE. The clock of w:0 ends when an acknowledged command on the same connections shows that everything is applied. One thread is measured with client and server on one core and on two.",
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
const THREADS: u64 = 10;

/// An old driver's name, what it means today, and the document.
type Concern = (&'static str, &'static str, fn() -> DocBuf);

/// One measurement: the concern's name, threads, and where they were.
struct One {
    name: &'static str,
    threads: u64,
    placement: Placement,
    load: Load,
}

const CONCERNS: &[Concern] = &[
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
    let mut loads = Vec::new();
    let result = measure(lab, &target, &mut loads, out);
    write_down(lab, &loads, out);
    target.check_alive()?;
    lab.done(target);
    result
}

fn measure(lab: &mut Lab, target: &Target, loads: &mut Vec<One>, out: &mut Outcome) -> Result<()> {
    let total: u64 = lab.preset.pick(10_000, 50_000, 1_000_000);
    let time = Duration::from_secs(lab.preset.pick(2, 60, 86_400));
    let mut admin = target.connect()?;
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
    for (threads, placement, (name, means, concern)) in rows {
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
            threads,
            placement,
            load,
        });
    }
    Ok(())
}

fn write_down(lab: &Lab, loads: &[One], out: &mut Outcome) {
    let of = |name: &str, threads: u64, placement: Placement| {
        loads
            .iter()
            .find(|o| o.name == name && o.threads == threads && o.placement == placement)
            .map_or(f64::NAN, |o| o.load.rate())
    };
    let mut placements: Vec<Placement> = Vec::new();
    for o in loads.iter().filter(|o| o.threads == 1) {
        if !placements.contains(&o.placement) {
            placements.push(o.placement);
        }
    }
    let rate_of = |name: &str, threads: u64| match threads {
        1 => of(name, 1, placement::representative(&placements)),
        n => of(name, n, Placement::Anywhere),
    };
    let mut t = Table::new(
        "Documents a second",
        &[
            "<write concern",
            "<means",
            ">threads",
            "<cores",
            ">n",
            ">sent/s",
            ">applied/s",
            ">avg ms",
            ">p99 ms",
            ">max ms",
            ">server CPU µs/doc",
            ">bytes written/doc",
            "*docs/s",
        ],
    );
    for o in loads {
        let (name, threads, l) = (&o.name, &o.threads, &o.load);
        let means = CONCERNS.iter().find(|c| c.0 == *name).map_or("", |c| c.1);
        let h = &l.samples.latency;
        t.row([
            (*name).to_string(),
            means.to_string(),
            threads.to_string(),
            o.placement.name().to_string(),
            rate(l.documents as f64),
            rate(l.sent_rate()),
            rate(l.rate()),
            ms(h.mean_ms()),
            ms(h.quantile_ms(0.99)),
            ms(h.max_ms()),
            l.server_us()
                .map_or_else(|| "–".into(), |u| format!("{u:.1}")),
            l.server.map_or_else(
                || "–".into(),
                |s| rate((s.written / l.documents as f64).round()),
            ),
            if *name == "JOURNAL_SAFE" && *threads == 1 {
                "24".into()
            } else {
                String::new()
            },
        ]);
        out.figure(
            o.placement.called(&format!("{name} {threads} threads")),
            l.rate(),
            "docs/s",
            (*name == "JOURNAL_SAFE" && *threads == 1).then_some(24.0),
        )
        .of(&l.samples.name, Statistic::Rate);
        out.samples.push(l.samples.clone());
        if l.cut_short {
            out.findings.push(format!(
                "{}: the time limit came after {} documents; the rate is of those.",
                l.samples.name,
                rate(l.documents as f64)
            ));
        }
    }
    if let Some(d) = &lab.fdatasync {
        t.note(format!(
            "The disk's own 4 KiB write + fdatasync: p50 {} ms, {}/s.",
            ms(d.quantile_ms(0.5)),
            rate(1000.0 / d.quantile_ms(0.5))
        ));
    }
    out.tables.push(t);
    // The post's own statements are ratios, so these are what is compared.
    let ratios: [(&str, f64, Option<f64>, &str); 5] = [
        (
            "SAFE/NORMAL time",
            rate_of("NORMAL", 1) / rate_of("SAFE", 1),
            Some(3.5),
            "SAFE takes 3.5 × NORMAL",
        ),
        (
            "SAFE 10:1",
            rate_of("SAFE", THREADS) / rate_of("SAFE", 1),
            Some(1.4),
            "SAFE × 1.4 with 10 threads",
        ),
        (
            "JOURNAL_SAFE 10:1",
            rate_of("JOURNAL_SAFE", THREADS) / rate_of("JOURNAL_SAFE", 1),
            Some(10.0),
            "JOURNAL_SAFE × 10 with 10 threads",
        ),
        (
            "NONE 10:1",
            rate_of("NONE", THREADS) / rate_of("NONE", 1),
            None,
            "falls with 10 threads",
        ),
        (
            "NORMAL 10:1",
            rate_of("NORMAL", THREADS) / rate_of("NORMAL", 1),
            None,
            "falls with 10 threads",
        ),
    ];
    let mut r = Table::new("Ratios", &["<ratio", ">ours", "*ratio", "*in words"]);
    for (name, ours, post, words) in ratios.iter().filter(|r| r.1.is_finite()) {
        r.row([
            (*name).to_string(),
            format!("{ours:.2}"),
            post.map_or_else(|| "below 1".into(), |p| p.to_string()),
            (*words).to_string(),
        ]);
        out.figure(*name, *ours, "ratio", *post);
    }
    r.note(match placement::representative(&placements).name() {
        "" => "10:1 is the rate with ten threads over the rate with one.".to_string(),
        name => format!(
            "10:1 is the rate with ten threads over the rate with one, which is the one on {name}, as in all ratios."
        ),
    });
    if !r.rows.is_empty() {
        out.tables.push(r);
    }
    let bar = |name: &str, color, published, points| Series {
        name: name.into(),
        mark: Mark::Bar,
        published,
        color,
        points,
    };
    let points = |threads: u64, placement: Placement| -> Vec<(f64, f64)> {
        CONCERNS
            .iter()
            .enumerate()
            .map(|(i, c)| (i as f64, of(c.0, threads, placement)))
            .filter(|p| p.1.is_finite())
            .collect()
    };
    let mut series: Vec<Series> = placements
        .iter()
        .enumerate()
        .map(|(i, p)| bar(&p.called("1 thread"), i, false, points(1, *p)))
        .collect();
    let ten = points(THREADS, Placement::Anywhere);
    series.push(bar("10 threads", series.len(), false, ten));
    series.retain(|s| !s.points.is_empty());
    series.push(bar("post, 1 thread", 0, true, vec![(1.0, 24.0)]));
    out.plots.push(Plot {
        title: "Documents a second by write concern".into(),
        caption: "Logarithmic, since JOURNAL_SAFE waits for the disk. The post gives only JOURNAL_SAFE's 24/s with one thread.".into(),
        x: Axis { label: "write concern".into(), scale: Scale::Linear },
        y: Axis { label: "documents/s".into(), scale: Scale::Log },
        categories: CONCERNS.iter().map(|c| c.0.to_string()).collect(),
        series,
    });
    if ratios.iter().all(|r| !r.1.is_finite()) {
        return;
    }
    out.plots.push(Plot {
        title: "Ratios, ours and the post's".into(),
        caption: "SAFE/NORMAL is a ratio of times with one thread; 10:1 is rate with ten threads over rate with one.".into(),
        x: Axis { label: "ratio".into(), scale: Scale::Linear },
        y: Axis { label: "ratio".into(), scale: Scale::Linear },
        categories: ratios.iter().map(|x| x.0.to_string()).collect(),
        series: vec![
            bar("ours", 0, false, ratios.iter().enumerate().filter(|x| x.1.1.is_finite()).map(|(i, x)| (i as f64, x.1)).collect()),
            bar("post", 0, true, ratios.iter().enumerate().filter_map(|(i, x)| Some((i as f64, x.2?))).collect()),
        ],
    });
}
