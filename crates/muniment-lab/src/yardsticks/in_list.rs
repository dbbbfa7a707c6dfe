//! Yardstick 9: a query that names a hundred thousand values.

use super::against_null::fill;
use super::{CACHE_GB, Row, Spec};
use crate::docs;
use crate::lab::{DB, Lab};
use crate::report::Outcome;
use crate::report::table::ms;
use muniment_load::conn::{Conn, Message, check};
use muniment_load::fail::Result;
use muniment_load::stats::median;
use muniment_load::stop;
use muniment_value::{ArrayBuf, Doc, DocBuf, Value, array, doc};
use std::time::{Duration, Instant};

pub(super) const SPEC: Spec = Spec {
    number: 9,
    title: "find of 100,000 values by $in: by _id, and by a secondary index",
    target_text: "200,000 values/s",
    run,
};

const VALUES: u64 = 100_000;
const COLLECTION: &str = "listed";

fn run(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    let documents = lab.preset.pick(200_000, 1_000_000, 5_000_000);
    let mut target = lab.target(Some(CACHE_GB))?;
    fill(lab, &target, COLLECTION, documents, docs::small)?;
    let mut c = target.connect()?;
    lab.progress.step("Yardstick 9: an index");
    // The index has entries of its own, while documents are stored in the order of their _id.
    c.command(
        DB,
        &doc! { "createIndexes": COLLECTION, "indexes": array![
            doc! { "key": doc! { "_id": 1, "y": 1 }, "name": "id_y" },
        ] },
    )?;
    lab.settle(&target, Duration::from_secs(20));
    let step = (documents / VALUES).max(1);
    let list: ArrayBuf = (0..VALUES)
        .map(|i| Value::Int64((i * step) as i64))
        .collect();
    for (id, what, hint) in [
        ("9a", "$in of 100,000 _ids", "_id_"),
        ("9b", "$in of 100,000 values by a secondary index", "id_y"),
    ] {
        let filter = doc! { "_id": doc! { "$in": list.clone() } };
        let mut times = Vec::new();
        for i in 0..lab.preset.pick(4, 8, 15) {
            if stop::asked() {
                return Ok(());
            }
            lab.progress.step(format!("Yardstick 9: {hint}, {}", i + 1));
            let (found, took) = find(&mut c, &filter, hint)?;
            if found != VALUES {
                out.warnings
                    .push(format!("{id}: {found} documents were found"));
            }
            // The first run fills the cache and is not counted.
            if i > 0 {
                times.push(took);
            }
        }
        let seconds = median(&times);
        let rate = VALUES as f64 / seconds;
        rows.push(
            Row::at_least(id, what, rate, "docs/s", 200_000.0).because(format!(
                "{} ms of wall time for the whole result, {documents} documents, {} runs",
                ms(seconds * 1e3),
                times.len()
            )),
        );
    }
    target.check_alive()?;
    lab.done(target);
    Ok(())
}

/// Reads a whole result; returns the number of documents and the seconds that it took.
fn find(c: &mut Conn, filter: &DocBuf, hint: &str) -> Result<(u64, f64)> {
    let mut m = Message::command(
        DB,
        &doc! {
            "find": COLLECTION, "filter": filter, "hint": hint, "batchSize": VALUES as i64,
        },
    );
    let began = Instant::now();
    let reply = c.call(&mut m)?;
    check(reply)?;
    let (mut found, mut id) = (batch(reply, "firstBatch"), cursor_id(reply));
    while id != 0 {
        let r = c.command(DB, &doc! { "getMore": id, "collection": COLLECTION })?;
        found += batch(r.as_doc(), "nextBatch");
        id = cursor_id(r.as_doc());
    }
    Ok((found, began.elapsed().as_secs_f64()))
}

fn cursor_id(reply: Doc<'_>) -> i64 {
    reply
        .get_doc("cursor")
        .and_then(|c| c.get("id"))
        .and_then(|id| id.as_i64_exact())
        .unwrap_or(0)
}

fn batch(reply: Doc<'_>, name: &str) -> u64 {
    reply
        .get_doc("cursor")
        .and_then(|c| c.get_array(name))
        .map_or(0, |b| b.count() as u64)
}
