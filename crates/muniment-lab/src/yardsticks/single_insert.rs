//! Yardstick 3: single inserts with w:1 against the null responder.

use super::against_null::measure;
use super::{CACHE_GB, Row, Spec};
use crate::docs;
use crate::lab::Lab;
use crate::report::Outcome;
use crate::workers::Inserts;
use muniment_load::fail::Result;
use muniment_load::rng::Rng;
use muniment_value::doc;

pub(super) const SPEC: Spec = Spec {
    number: 3,
    title: "single insert w:1 of 113-byte documents, 16 connections, against the null responder",
    target_text: "0.5 ×",
    run,
};

fn run(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    let mut target = lab.target(Some(CACHE_GB))?;
    let w1 = doc! { "w": 1 };
    let now = docs::now_ms();
    let pairs = measure(
        lab,
        out,
        &target,
        "Yardstick 3, insert w:1",
        |c, seed, _| {
            let mut rng = Rng::new(seed);
            let make =
                Box::new(move |o: &mut Vec<u8>| docs::w3(&mut rng, now, docs::object_id(), o));
            Inserts::new(c, "singles", Some(&w1), make)
        },
    )?;
    rows.extend(pairs.row("3", "insert w:1 / null responder", ["server", "null"], 0.5));
    target.check_alive()?;
    lab.done(target);
    Ok(())
}
