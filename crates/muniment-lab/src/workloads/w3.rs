//! W3: insertMany against the batch size.

use super::Spec;
use super::only::{CORES, Dimension, texts};
use crate::batches::{Batches, Documents};
use crate::fail::Result;
use crate::lab::{DB, Lab, Preset, Target};
use crate::load::{self, Limit, Load};
use crate::placement::{self, Placement};
use crate::report::svg::{Axis, Mark, Plot, Scale, Series};
use crate::report::table::{Table, rate};
use crate::report::{Outcome, Statistic};
use crate::stats::median;
use crate::stop;
use muniment_value::doc;
use std::sync::Arc;
use std::time::Duration;

/// The experiment.
pub const SPEC: Spec = Spec {
    name: "w3",
    title: "insertMany batch sweep",
    about: "One client inserts documents of about 113 bytes into a fresh collection with insertMany batches of 1 to 400,000; batches above the server's maxWriteBatchSize are split, as drivers do. The documents are built in memory before the clock starts. Once with the server's default write concern, once with w:0: no reply is read, and an acknowledged command on the same connection closes the clock. Each with client and server on one core and on two.",
    options: &[],
    dimensions: &[
        Dimension {
            name: "batch",
            about: "documents a batch",
            values: |preset| texts(sizes(preset)),
        },
        Dimension {
            name: "concern",
            about: "write concern",
            values: |_| texts(CONCERNS),
        },
        CORES,
    ],
    run,
};

/// As they are called, and whether nothing is acknowledged.
const CONCERNS: [&str; 2] = ["default", "w:0"];

const COLLECTION: &str = "batches";
/// The post's rate at a batch of 1000 on both of its versions; beyond 1000 it says flat.
const PUBLISHED: f64 = 102_000.0;

/// The batch sizes of a preset.
fn sizes(p: Preset) -> &'static [u64] {
    p.pick(
        &[1, 10, 100, 1000, 10_000, 100_000, 400_000],
        &[
            1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000,
            200_000, 400_000,
        ],
        &[
            1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000,
            200_000, 400_000,
        ],
    )
}

/// Documents at this batch size: whole batches.
fn documents(p: Preset, batch: u64) -> u64 {
    let wanted = match p {
        Preset::Smoke if batch < 10 => 10_000,
        Preset::Smoke if batch < 1000 => 50_000,
        Preset::Smoke => 200_000,
        Preset::Quick => 400_000,
        Preset::Paper => 1_000_000,
    };
    // 400,000 does not divide a million: the last batch is short, as it was in the post.
    if p == Preset::Smoke {
        wanted.max(batch)
    } else {
        wanted
    }
}

fn run(lab: &mut Lab, out: &mut Outcome) -> Result<()> {
    let p = lab.preset;
    out.deviations = vec![
        "The post's shell most likely measured the default write concern in both of its series (its option was misplaced) and was bound by the shell itself; this is inferred. Here w:0 is w:0.".into(),
        "The client is not a shell: documents are encoded before the clock starts, so rates are the server's.".into(),
    ];
    match p {
        Preset::Smoke => out.deviations.push("Smoke: 10,000 documents at batch 1, 50,000 below 1000, 200,000 from there (400,000 for the largest batch) instead of 1 M; seven batch sizes; once each.".into()),
        Preset::Quick => out.deviations.push("Quick: 400,000 documents a size instead of 1 M (a hundredth would not fill one batch of 400,000); twice each, the median.".into()),
        Preset::Paper => out.deviations.push("Three times each, the median; the post ran each once.".into()),
    }
    lab.progress.step("W3 building the documents");
    let sizes = lab
        .only
        .keep("batch", sizes(p).to_vec(), ToString::to_string)?;
    let most = sizes.iter().map(|b| documents(p, *b)).max().unwrap_or(0);
    let documents = Arc::new(Documents::make(most));
    let mut target = lab.target(None)?;
    let result = sweep(lab, &target, &sizes, &documents, out);
    target.check_alive()?;
    lab.done(target);
    result
}

/// One batch size's results in one placement.
struct Row {
    batch: u64,
    placement: Placement,
    default: Vec<f64>,
    applied: Vec<f64>,
    sent: Vec<f64>,
    server_us: Vec<f64>,
}

fn sweep(
    lab: &mut Lab,
    target: &Target,
    sizes: &[u64],
    documents: &Arc<Documents>,
    out: &mut Outcome,
) -> Result<()> {
    let p = lab.preset;
    let concerns = lab
        .only
        .keep("concern", CONCERNS.to_vec(), ToString::to_string)?;
    let placements = lab.placements(&target.server())?;
    let mut rows: Vec<Row> = Vec::new();
    for &batch in sizes {
        rows.extend(placements.iter().map(|placement| Row {
            batch,
            placement: *placement,
            default: Vec::new(),
            applied: Vec::new(),
            sent: Vec::new(),
            server_us: Vec::new(),
        }));
    }
    let result = (|| -> Result<()> {
        for round in 0..p.pick(1, 2, 3) {
            for (k, r) in rows.iter_mut().enumerate() {
                // A B, B A: neither mode always runs first.
                let first = (round + k) % 2 == 0;
                for unacknowledged in [!first, first] {
                    if !concerns.contains(&CONCERNS[usize::from(unacknowledged)]) {
                        continue;
                    }
                    if stop::asked() {
                        return Ok(());
                    }
                    let load = one(lab, target, documents, r, unacknowledged, out)?;
                    if unacknowledged {
                        r.applied.push(load.rate());
                        r.sent.push(load.sent_rate());
                    } else {
                        r.default.push(load.rate());
                        r.server_us.extend(load.server_us());
                    }
                    let batch = r.batch;
                    if !unacknowledged && batch < 1000 {
                        lab.doubt(&load.samples.name, &load, 1);
                    } else if !unacknowledged {
                        lab.doubt_client(&load.samples.name, &load);
                    }
                    out.samples.push(load.samples);
                }
            }
        }
        Ok(())
    })();
    write_down(&rows, out);
    result
}

fn one(
    lab: &mut Lab,
    target: &Target,
    made: &Arc<Documents>,
    row: &Row,
    unacknowledged: bool,
    out: &mut Outcome,
) -> Result<Load> {
    let batch = row.batch;
    let n = documents(lab.preset, batch);
    let name = name_of(row, unacknowledged);
    lab.progress.step(format!("W3 {name}"));
    let mut admin = target.connect()?;
    target.drop_collection(&mut admin, COLLECTION)?;
    admin.command(DB, &doc! { "create": COLLECTION })?;
    let concern = unacknowledged.then(|| doc! { "w": 0 });
    let w = Batches::new(
        target.connect()?,
        COLLECTION,
        concern.as_ref(),
        made.clone(),
        n,
        batch,
        target.max_batch as u64,
    );
    let time = Duration::from_secs(lab.preset.pick(4, 120, 3600));
    let limit = Limit::operations(n.div_ceil(batch), time);
    let load = lab.placed(&target.server(), row.placement, &name, |lab| {
        load::run(&name, vec![w], limit, target.pid, &mut lab.progress)
    })?;
    let stored = target.count(&mut admin, COLLECTION)?;
    if stored != load.documents {
        out.warnings.push(format!(
            "{name}: {stored} documents are stored of {} sent",
            load.documents
        ));
    }
    if load.cut_short && !stop::asked() {
        out.warnings.push(format!(
            "{name}: cut short by the preset's time limit after {} documents",
            rate(load.documents as f64)
        ));
    }
    Ok(load)
}

/// What the loads of one kind are called.
fn name_of(row: &Row, unacknowledged: bool) -> String {
    let concern = CONCERNS[usize::from(unacknowledged)];
    let name = format!("{concern} batch {}", rate(row.batch as f64));
    row.placement.called(&name)
}

fn write_down(rows: &[Row], out: &mut Outcome) {
    let mut t = Table::new(
        "Documents a second",
        &[
            "<batch size",
            "<cores",
            ">default concern",
            ">w:0 sent",
            ">w:0 applied",
            ">w:0 / default",
            ">server CPU µs/doc",
            "*docs/s",
        ],
    );
    // By placement: (batch, rate) with the default concern, and applied of w:0.
    type Points = Vec<(f64, f64)>;
    let mut lines: Vec<(Placement, Points, Points)> = Vec::new();
    for r in rows {
        if r.default.is_empty() && r.applied.is_empty() {
            continue;
        }
        let (d, a, s) = (median(&r.default), median(&r.applied), median(&r.sent));
        let b = r.batch as f64;
        if lines.iter().all(|l| l.0 != r.placement) {
            lines.push((r.placement, Vec::new(), Vec::new()));
        }
        if let Some((_, default, applied)) = lines.iter_mut().find(|l| l.0 == r.placement) {
            default.push((b, d));
            applied.push((b, a));
        }
        t.row([
            rate(b),
            r.placement.name().to_string(),
            rate(d),
            rate(s),
            rate(a),
            if (a / d).is_finite() {
                format!("{:.2}", a / d)
            } else {
                "–".into()
            },
            if r.server_us.is_empty() {
                "–".into()
            } else {
                format!("{:.1}", median(&r.server_us))
            },
            if r.batch == 1000 {
                rate(PUBLISHED)
            } else {
                String::new()
            },
        ]);
        let called = |what: &str| r.placement.called(&format!("{what} batch {}", r.batch));
        let post = (r.batch == 1000).then_some(PUBLISHED);
        if !r.default.is_empty() {
            out.figure(called("default"), d, "docs/s", post)
                .of(name_of(r, false), Statistic::Rate);
        }
        if !r.applied.is_empty() {
            out.figure(called("w:0 applied"), a, "docs/s", None)
                .of(name_of(r, true), Statistic::Rate);
            out.figure(called("w:0 sent"), s, "docs/s", None);
        }
    }
    t.note(format!(
        "The post: 102k/s at batch 1000 on both of its versions (16 vCPU, NVMe), flat beyond; w:0 \"marginal\". {}",
        placement::NOTE
    ));
    for (placement, default, _) in &lines {
        beyond_one(*placement, default, out);
    }
    out.tables.push(t);
    let series = |name: &str, color, published, points| Series {
        name: name.into(),
        mark: Mark::Line,
        published,
        color,
        points,
    };
    out.plots.push(Plot {
        title: "Documents a second against batch size".into(),
        caption: "Dashed: the post's 102k/s, which it calls flat from 1000 on.".into(),
        x: Axis {
            label: "batch size".into(),
            scale: Scale::Log,
        },
        y: Axis {
            label: "documents/s".into(),
            scale: Scale::Linear,
        },
        categories: Vec::new(),
        series: lines
            .into_iter()
            .enumerate()
            .flat_map(|(i, (placement, default, applied))| {
                [
                    series(
                        &placement.called("default concern"),
                        2 * i,
                        false,
                        measured(default),
                    ),
                    series(
                        &placement.called("w:0 applied"),
                        2 * i + 1,
                        false,
                        measured(applied),
                    ),
                ]
            })
            .filter(|s| !s.points.is_empty())
            .chain([series(
                "post, default concern",
                0,
                true,
                vec![(1000.0, PUBLISHED), (400_000.0, PUBLISHED)],
            )])
            .collect(),
    });
}

/// Without what was not measured.
fn measured(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.into_iter().filter(|p| p.1.is_finite()).collect()
}

/// What batches are worth, and what larger ones than 1000 are.
fn beyond_one(placement: Placement, default: &[(f64, f64)], out: &mut Outcome) {
    let at = |x: f64| {
        let found = default.iter().find(|p| p.0 == x).map(|p| p.1);
        found.filter(|r| r.is_finite())
    };
    let Some(thousand) = at(1000.0) else { return };
    let whose = match placement.name() {
        "" => String::new(),
        name => format!(" on {name}"),
    };
    if let Some(one) = at(1.0) {
        out.findings.push(format!(
            "Batches of 1000 insert {:.1} × as fast as single inserts{whose}.",
            thousand / one
        ));
    }
    let beyond: Vec<f64> = default
        .iter()
        .filter(|p| p.0 > 1000.0)
        .map(|p| p.1 / thousand)
        .collect();
    if let (Some(lo), Some(hi)) = (
        beyond.iter().copied().reduce(f64::min),
        beyond.iter().copied().reduce(f64::max),
    ) {
        out.findings.push(format!(
            "Beyond 1000 the rate is {lo:.2} to {hi:.2} × that of 1000{whose} (the post: flat)."
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_at_least_a_batch() {
        for p in [Preset::Smoke, Preset::Quick, Preset::Paper] {
            assert_eq!(sizes(p).first(), Some(&1));
            assert_eq!(sizes(p).last(), Some(&400_000));
            assert!(sizes(p).iter().all(|b| documents(p, *b) >= *b));
        }
    }
}
