//! Yardstick 1: insertMany against the raw engine.

use super::{CACHE_GB, Pairs, Row, Spec};
use crate::batches::{Batches, Documents};
use crate::lab::{DB, Lab, Target};
use crate::raw_engine::RawEngine;
use crate::report::Outcome;
use muniment_load::fail::Result;
use muniment_load::load::{self, Limit};
use muniment_load::stats::Side;
use muniment_value::doc;
use std::sync::Arc;
use std::time::Duration;

pub(super) const SPEC: Spec = Spec {
    number: 1,
    title: "insertMany(1000) of 113-byte documents, one connection, against the raw engine",
    target_text: "0.75 ×",
    run,
};

const BATCH: u64 = 1000;

fn run(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    let n: u64 = lab.preset.pick(100_000, 300_000, 1_000_000);
    lab.progress.step("Yardstick 1: building the documents");
    let documents = Arc::new(Documents::make(n));
    let mut raw = RawEngine::start(&lab.data_parent, CACHE_GB)?;
    let mut target = lab.target(Some(CACHE_GB))?;
    let mut next = 0;
    let pairs = Pairs::measure(lab, out, |lab, side| match side {
        Side::A => {
            next += 1;
            server(lab, &target, &documents, n, next)
        }
        Side::B => {
            lab.progress.step("Yardstick 1: raw engine");
            Ok((raw.insert(n, BATCH)?, None))
        }
    })?;
    rows.extend(pairs.row(
        "1",
        "insertMany(1000) / raw engine",
        ["server", "raw engine"],
        0.75,
    ));
    target.check_alive()?;
    lab.done(target);
    Ok(())
}

/// Inserts into a fresh collection each time, as the raw engine inserts under a fresh prefix.
fn server(
    lab: &mut Lab,
    target: &Target,
    documents: &Arc<Documents>,
    n: u64,
    run: u32,
) -> Result<super::Slice> {
    let coll = format!("bulk{run}");
    target
        .connect()?
        .command(DB, &doc! { "create": coll.as_str() })?;
    let w = Batches::new(
        target.connect()?,
        &coll,
        None,
        documents.clone(),
        n,
        BATCH,
        BATCH,
    );
    lab.progress.step("Yardstick 1: server");
    let limit = Limit::operations(n.div_ceil(BATCH), Duration::from_secs(600));
    let load = load::run(
        "insertMany(1000)",
        vec![w],
        limit,
        target.pid,
        &mut lab.progress,
    )?;
    Ok((load.rate(), Some(load)))
}
