//! Yardstick 5: j:true inserts with 64 connections against one.

use super::{CACHE_GB, Pairs, Row, Spec};
use crate::lab::{Lab, Target};
use crate::report::Outcome;
use crate::workers::Inserts;
use muniment_load::conn::number_at;
use muniment_load::fail::Result;
use muniment_load::load::{self, Limit};
use muniment_load::stats::Side;
use muniment_value::doc;
use std::time::Duration;

pub(super) const SPEC: Spec = Spec {
    number: 5,
    title: "j:true inserts, 64 connections against one on the same disk",
    target_text: "10 ×, or 45 commits a sync",
    run,
};

const MANY: usize = 64;
const COMMITS_A_SYNC: f64 = 45.0;

fn run(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    let mut target = lab.target(Some(CACHE_GB))?;
    let concern = doc! { "w": 1, "j": true };
    let time = Duration::from_millis(lab.preset.pick(1000, 3000, 10_000));
    let (mut commits, mut syncs) = (0.0, 0.0);
    let pairs = Pairs::measure(lab, out, |lab, side| {
        let n = if side == Side::A { MANY } else { 1 };
        let workers = target
            .connections(n)?
            .into_iter()
            .map(|c| Inserts::w1_document(c, "journaled", Some(&concern)))
            .collect();
        lab.progress
            .step(format!("Yardstick 5, j:true inserts, {n} connection(s)"));
        let before = journal(&target);
        let load = load::run(
            &format!("j:true, {n} connections"),
            workers,
            Limit::time(time),
            target.pid,
            &mut lab.progress,
        )?;
        if let (Side::A, Some(b), Some(a)) = (side, before, journal(&target)) {
            commits += a.0 - b.0;
            syncs += a.1 - b.1;
        }
        Ok((load.rate(), Some(load)))
    })?;
    if let Some(mut row) = pairs.row("5", "j:true, 64 connections / 1", ["64:", "1:"], 10.0) {
        if syncs > 0.0 {
            let each = commits / syncs;
            if each >= COMMITS_A_SYNC {
                row.otherwise = Some(format!(
                    "{each:.1} commits a sync with 64 connections (promised: {COMMITS_A_SYNC})"
                ));
            } else {
                row.detail
                    .push_str(&format!("; {each:.1} commits a sync with 64 connections"));
            }
            out.figure("5 commits a sync", each, "commits", None);
        } else {
            row.detail.push_str(
                "; serverStatus has no muniment.journal, so commits a sync are not known",
            );
        }
        if let Some(d) = &lab.fdatasync {
            row.detail.push_str(&format!(
                "; the disk's own fdatasync p50 {:.3} ms",
                d.quantile_ms(0.5)
            ));
        }
        rows.push(row);
    }
    target.check_alive()?;
    lab.done(target);
    Ok(())
}

/// The commits and syncs of the journal so far.
fn journal(target: &Target) -> Option<(f64, f64)> {
    let r = target
        .connect()
        .ok()?
        .command("admin", &doc! { "serverStatus": 1 })
        .ok()?;
    let get = |p: &str| number_at(r.as_doc(), p);
    Some((
        get("muniment.journal.commits")?,
        get("muniment.journal.syncs")?,
    ))
}
