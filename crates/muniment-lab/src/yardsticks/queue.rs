//! Yardstick 10: a queue: documents are inserted at one end and taken from the other.

use super::{CACHE_GB, Row, Spec};
use crate::lab::{DB, Lab};
use crate::report::Outcome;
use muniment_load::conn::number_at;
use muniment_load::fail::{Failure, Result};
use muniment_load::stop;
use muniment_value::{array, doc};
use std::time::Instant;

pub(super) const SPEC: Spec = Spec {
    number: 10,
    title: "queue: an insert and a findAndModify with sort and remove, 40,000 times",
    target_text: "last quarter ≤ 1.2 × the first; ≤ 150 µs a pair",
    run,
};

/// The number of documents that wait in the queue.
const LENGTH: i64 = 10;

fn run(lab: &mut Lab, _: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    let pairs: usize = lab.preset.pick(4_000, 40_000, 40_000);
    let mut target = lab.target(Some(CACHE_GB))?;
    let mut c = target.connect()?;
    let put = |n: i64| {
        doc! { "insert": "queue", "documents": array![
            doc! { "_id": n, "at": n, "state": "ready", "payload": "some work to be done" },
        ] }
    };
    for n in 0..LENGTH {
        c.command(DB, &put(n))?;
    }
    c.command(
        DB,
        &doc! { "createIndexes": "queue", "indexes": array![
            doc! { "key": doc! { "state": 1, "at": 1 }, "name": "next" },
        ] },
    )?;
    let take = doc! {
        "findAndModify": "queue", "query": doc! { "state": "ready" },
        "sort": doc! { "at": 1 }, "remove": true,
    };
    let mut quarters = Vec::new();
    let mut n = LENGTH;
    for quarter in 1..=4 {
        lab.progress
            .step(format!("Yardstick 10: quarter {quarter} of 4"));
        let began = Instant::now();
        for _ in 0..pairs / 4 {
            c.command(DB, &put(n))?;
            let taken = c.command(DB, &take)?;
            if number_at(taken.as_doc(), "value._id") != Some((n - LENGTH) as f64) {
                return Err(Failure(format!(
                    "the queue gave another document than {}",
                    n - LENGTH
                )));
            }
            n += 1;
            if stop::asked() {
                return Ok(());
            }
        }
        quarters.push(began.elapsed().as_secs_f64());
    }
    let (first, last) = (quarters.first().copied(), quarters.last().copied());
    if let (Some(first), Some(last)) = (first, last) {
        let us = quarters.iter().sum::<f64>() * 1e6 / pairs as f64;
        let all: Vec<String> = quarters.iter().map(|q| format!("{q:.2} s")).collect();
        let detail = format!("quarters of {} pairs: {}", pairs / 4, all.join(", "));
        rows.push(
            Row::at_most(
                "10a",
                "queue, last quarter over the first",
                last / first,
                "×",
                1.2,
            )
            .because(detail.clone()),
        );
        rows.push(Row::at_most("10b", "queue, time of a pair", us, "µs", 150.0).because(detail));
    }
    target.check_alive()?;
    lab.done(target);
    Ok(())
}
