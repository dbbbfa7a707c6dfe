//! Yardstick 18: the resident memory of open sessions, and of an open transaction.

use super::{CACHE_GB, Row, Spec};
use crate::docs;
use crate::lab::{DB, Lab, Target};
use crate::linkbench::transaction::Session;
use crate::report::Outcome;
use crate::report::table::{bytes, rate};
use muniment_load::conn::{Conn, Message, check, number_at};
use muniment_load::fail::{Failure, Result};
use muniment_load::procs;
use muniment_load::rng::Rng;
use muniment_load::stop;
use muniment_value::{DocBuf, doc};
use std::time::Duration;

pub(super) const SPEC: Spec = Spec {
    number: 18,
    title: "resident memory of 10,000 open sessions; of a transaction of 100,000 inserts of 113-byte documents",
    target_text: "< 20 MB; < 3 × its documents",
    run,
};

const SESSIONS: u64 = 10_000;
const DOCUMENTS: u64 = 100_000;
const BATCH: u64 = 1000;
const COLLECTION: &str = "held";

fn run(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    // Each measurement gets its own server: memory that the first one freed stays in the server's
    // allocator, and the second would use it without growing.
    for measure in [sessions, transaction] {
        if stop::asked() {
            return Ok(());
        }
        let mut target = lab.target(Some(CACHE_GB))?;
        match target.pid {
            Some(pid) => rows.push(measure(lab, &target, pid)?),
            None => out
                .warnings
                .push("18: the server's process cannot be read".into()),
        }
        target.check_alive()?;
        lab.done(target);
    }
    Ok(())
}

fn sample(pid: u32) -> Result<procs::Sample> {
    procs::sample(pid).ok_or_else(|| Failure::new("the server's process cannot be read any more"))
}

/// Runs a find, in a session or not.
fn find(c: &mut Conn, session: Option<&Session>) -> Result<()> {
    let mut body = doc! { "find": COLLECTION, "limit": 1, "singleBatch": true };
    if let Some(s) = session {
        body.append("lsid", s.lsid());
    }
    check(c.call(&mut Message::command(DB, &body))?)
}

fn sessions(lab: &mut Lab, target: &Target, pid: u32) -> Result<Row> {
    let mut c = target.connect()?;
    c.command(
        DB,
        &doc! { "insert": COLLECTION, "documents": muniment_value::array![doc! { "_id": 1 }] },
    )?;
    // The first finds cause allocations that stay and do not belong to a session, so they are made
    // before the measurement.
    for n in 0..SESSIONS {
        find(&mut c, (n < 100).then(|| Session::new(n)).as_ref())?;
    }
    lab.settle(target, Duration::from_secs(20));
    let before = sample(pid)?;
    lab.progress
        .step(format!("Yardstick 18: {SESSIONS} sessions"));
    for n in 0..SESSIONS {
        find(&mut c, Some(&Session::new(1000 + n)))?;
    }
    let after = sample(pid)?;
    let more = after.rss - before.rss;
    // The server itself must report that the sessions are open.
    let status = c.command("admin", &doc! { "serverStatus": 1 })?;
    let active = "logicalSessionRecordCache.activeSessionsCount";
    let open = match number_at(status.as_doc(), active) {
        Some(n) => format!("{} sessions open, says the server", rate(n)),
        None => "the server does not say how many are open".into(),
    };
    let what = "resident memory of 10,000 open sessions";
    Ok(
        Row::at_most("18a", what, more.max(0.0) / 1e6, "MB", 20.0).because(format!(
            "{} resident before, {} after: {:.0} bytes a session, each used by one find; {open}",
            bytes(before.rss),
            bytes(after.rss),
            more / SESSIONS as f64
        )),
    )
}

/// Inserts `n` documents in a transaction that stays open; returns the bytes of the documents.
fn insert(c: &mut Conn, lsid: &DocBuf, number: i64, n: u64, rng: &mut Rng) -> Result<u64> {
    let now = docs::now_ms();
    let (mut i, mut payload) = (0, 0);
    let mut message = Message(Vec::new());
    while i < n && !stop::asked() {
        let mut body = doc! { "insert": COLLECTION, "lsid": lsid, "txnNumber": number };
        if i == 0 {
            body.append("startTransaction", true);
        }
        body.append("autocommit", false);
        let template = Message::insert_command(DB, body, false);
        template.begin(&mut message);
        let head = message.0.len();
        for _ in 0..BATCH.min(n - i) {
            docs::w3(rng, now, docs::object_id(), &mut message.0);
        }
        payload += (message.0.len() - head) as u64;
        template.seal(&mut message);
        check(c.call(&mut message)?)?;
        i += BATCH;
    }
    Ok(payload)
}

fn transaction(lab: &mut Lab, target: &Target, pid: u32) -> Result<Row> {
    let mut c = target.connect()?;
    c.command(DB, &doc! { "create": COLLECTION })?;
    let lsid = Session::new(18).lsid();
    let mut rng = Rng::new(18);
    let commit = |c: &mut Conn, number: i64| {
        c.command(
            "admin",
            &doc! {
                "commitTransaction": 1, "lsid": &lsid, "txnNumber": number, "autocommit": false,
            },
        )
    };
    // A small transaction runs first, so that allocations which any transaction causes exist
    // already.
    insert(&mut c, &lsid, 1, BATCH, &mut rng)?;
    commit(&mut c, 1)?;
    lab.settle(target, Duration::from_secs(20));
    lab.progress.step(format!(
        "Yardstick 18: a transaction of {DOCUMENTS} inserts"
    ));
    let before = match procs::reset_peak(pid) {
        Some(rss) => rss,
        None => sample(pid)?.peak_rss,
    };
    let payload = insert(&mut c, &lsid, 2, DOCUMENTS, &mut rng)? as f64;
    let open = sample(pid)?;
    commit(&mut c, 2)?;
    let done = sample(pid)?;
    let times = |peak: f64| (peak - before).max(0.0) / payload;
    let what = "memory of an open transaction of 100,000 inserts / its documents";
    Ok(
        Row::at_most("18b", what, times(open.peak_rss), "×", 3.0).because(format!(
            "{} resident before, at most {} until the commit; documents {}; {:.2} × with the commit",
            bytes(before),
            bytes(open.peak_rss),
            bytes(payload),
            times(done.peak_rss)
        )),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use muniment_load::fake;

    #[test]
    fn a_large_transaction_is_sent_in_batches_and_begins_once() {
        let (address, heard) = fake::server(|_, _| doc! { "n": 1, "ok": 1.0 });
        let mut c = Conn::connect(&muniment_load::access::Peer::open(&address)).unwrap();
        let lsid = Session::new(1).lsid();
        let payload = insert(&mut c, &lsid, 4, 2500, &mut Rng::new(1)).unwrap();
        assert!((2500 * 100..=2500 * 113).contains(&payload), "{payload}");
        let all = heard.all();
        let starts: Vec<_> = all
            .iter()
            .map(|d| d.as_doc().get("startTransaction").is_some())
            .collect();
        assert_eq!(starts, [true, false, false]);
        for d in &all {
            let d = d.as_doc();
            assert_eq!(d.get("txnNumber").and_then(|n| n.as_i64_exact()), Some(4));
            assert_eq!(d.get_doc("lsid").map(|l| l.to_buf()), Some(lsid.clone()));
        }
    }
}
