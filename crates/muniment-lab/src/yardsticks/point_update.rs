//! Yardstick 4: `$set` of one field by `_id` against the null responder.

use super::against_null::{POINTS, fill, measure};
use super::{CACHE_GB, Row, Spec};
use crate::docs;
use crate::lab::Lab;
use crate::report::Outcome;
use crate::workers::Updates;
use muniment_load::fail::Result;
use muniment_load::stats::Side;

pub(super) const SPEC: Spec = Spec {
    number: 4,
    title: "update ($set of one field of a 2 KB document by _id), 16 connections, against the null responder",
    target_text: "0.4 ×",
    run,
};

fn run(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    let mut target = lab.target(Some(CACHE_GB))?;
    fill(lab, &target, "points", POINTS, docs::point)?;
    let pairs = measure(
        lab,
        out,
        &target,
        "Yardstick 4, $set by _id",
        |c, seed, side| Updates::new(c, "points", POINTS, seed, side == Side::A),
    )?;
    rows.extend(pairs.row("4", "$set by _id / null responder", ["server", "null"], 0.4));
    target.check_alive()?;
    lab.done(target);
    Ok(())
}
