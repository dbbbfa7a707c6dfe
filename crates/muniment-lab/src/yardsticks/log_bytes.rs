//! Yardstick 12: the bytes that an update of one field of a large document adds to the log.

use super::against_null::fill;
use super::{CACHE_GB, Row, Spec};
use crate::docs;
use crate::lab::{DB, Lab};
use crate::report::Outcome;
use crate::report::table::bytes;
use muniment_load::conn::{Conn, number_at};
use muniment_load::fail::Result;
use muniment_value::{array, doc};

pub(super) const SPEC: Spec = Spec {
    number: 12,
    title: "bytes in the log for a $set of one field of a 2 KB document",
    target_text: "below 400",
    run,
};

const UPDATES: i64 = 2000;

/// The fields in which servers report the bytes written to their log.
const FIGURES: [&str; 3] = [
    "muniment.log.bytes",
    "muniment.journal.bytes",
    "wiredTiger.log.log bytes written",
];

fn run(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    let mut target = lab.target(Some(CACHE_GB))?;
    fill(lab, &target, "points", UPDATES as u64, docs::point)?;
    let mut c = target.connect()?;
    lab.progress.step("Yardstick 12: updates");
    let before = log_bytes(&mut c)?;
    for i in 0..UPDATES {
        c.command(
            DB,
            &doc! { "update": "points", "updates": array![
                doc! { "q": doc! { "_id": i }, "u": doc! { "$set": doc! { "n": 7 } } },
            ] },
        )?;
    }
    match before.zip(log_bytes(&mut c)?) {
        Some((before, after)) => {
            let each = (after - before) / UPDATES as f64;
            rows.push(
                Row::at_most("12", "bytes in the log for a $set", each, "bytes", 400.0).because(
                    format!(
                        "{} for {UPDATES} updates of 2 KB documents",
                        bytes(after - before)
                    ),
                ),
            );
        }
        None => out
            .warnings
            .push("12: the server does not tell what it has written to its log".into()),
    }
    target.check_alive()?;
    lab.done(target);
    Ok(())
}

/// The bytes that the server reports to have written to its log so far.
pub(super) fn log_bytes(c: &mut Conn) -> Result<Option<f64>> {
    let status = c.command("admin", &doc! { "serverStatus": 1 })?;
    Ok(FIGURES
        .iter()
        .find_map(|path| number_at(status.as_doc(), path)))
}
