//! W3: the rate of insertMany by batch size.

use super::Spec;
use super::only::{CORES, Dimension, texts};
use crate::batches::{Batches, Documents};
use crate::lab::{DB, Lab, Preset, Target};
use crate::report::table::rate;
use crate::report::{Outcome, experiments};
use muniment_load::fail::Result;
use muniment_load::load::{self, Limit, Load};
use muniment_load::placement::Placement;
use muniment_load::stop;
use muniment_value::doc;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const SPEC: Spec = Spec {
    name: "w3",
    title: "insertMany batch sweep",
    about: "One client inserts documents of about 113 bytes into a fresh collection with insertMany batches of 1 to 400,000; batches above the server's maxWriteBatchSize are split, as drivers do. The documents are built in memory before the clock starts. Once with the server's default write concern, once with w:0: no reply is read, and an acknowledged command on the same connection closes the clock. Each with client and server on one core and on two.",
    disk_gb: [1.0, 3.5, 10.0],
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

/// The names of the write concerns; w:0 is not acknowledged.
const CONCERNS: [&str; 2] = ["default", "w:0"];

const COLLECTION: &str = "batches";

/// The batch sizes for a preset.
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

/// The number of documents at this batch size.
fn documents(p: Preset, batch: u64) -> u64 {
    let wanted = match p {
        Preset::Smoke if batch < 10 => 10_000,
        Preset::Smoke if batch < 1000 => 50_000,
        Preset::Smoke => 200_000,
        Preset::Quick => 400_000,
        Preset::Paper => 1_000_000,
    };
    // 400,000 does not divide a million, so the last batch is short, as it was in the post.
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

/// The rates of one batch size in one placement, one for each round.
#[derive(Default)]
pub(crate) struct Row {
    /// The documents of a batch.
    pub batch: u64,
    /// The placement of client and server.
    pub placement: Placement,
    /// The documents a second with the default concern.
    pub default: Vec<f64>,
    /// The documents a second with w:0, until they were applied.
    pub applied: Vec<f64>,
    /// The documents a second with w:0, until they were sent.
    pub sent: Vec<f64>,
    /// The server's CPU time with the default concern, µs a document.
    pub server_us: Vec<f64>,
}

impl Row {
    /// The name of its loads.
    pub(crate) fn called(&self, unacknowledged: bool) -> String {
        let concern = CONCERNS[usize::from(unacknowledged)];
        let name = format!("{concern} batch {}", rate(self.batch as f64));
        self.placement.called(&name)
    }
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
            ..Row::default()
        }));
    }
    let result = (|| -> Result<()> {
        for round in 0..p.pick(1, 2, 3) {
            for (k, r) in rows.iter_mut().enumerate() {
                // The two modes alternate in the order A B, B A, so that neither always runs first.
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
    experiments::w3::tell(&rows, out);
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
    let name = row.called(unacknowledged);
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
