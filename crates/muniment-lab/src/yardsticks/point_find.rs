//! Yardstick 2: find by `_id` against the null responder.

use super::against_null::{POINTS, fill, measure};
use super::{CACHE_GB, Row, Spec};
use crate::docs;
use crate::lab::Lab;
use crate::report::Outcome;
use crate::workers::Finds;
use muniment_load::fail::Result;
use muniment_load::stats::Side;

pub(super) const SPEC: Spec = Spec {
    number: 2,
    title: "find by _id of 2 KB documents, 16 connections, cached, against the null responder",
    target_text: "0.6 ×",
    run,
};

fn run(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    let mut target = lab.target(Some(CACHE_GB))?;
    fill(lab, &target, "points", POINTS, docs::point)?;
    let pairs = measure(
        lab,
        out,
        &target,
        "Yardstick 2, find by _id",
        |c, seed, side| Finds::new(c, "points", POINTS, seed, side == Side::A),
    )?;
    rows.extend(pairs.row("2", "find by _id / null responder", ["server", "null"], 0.6));
    target.check_alive()?;
    lab.done(target);
    Ok(())
}
