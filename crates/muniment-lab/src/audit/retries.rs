//! Retries must take effect exactly once. After the crash each writer sends its last write again
//! under its old transaction number, answered or not; the counters must then hold exactly what was
//! sent, and every document must be there once.

use super::concern::Concern;
use super::document::{self, COLLECTION};
use super::history::History;
use super::judge::Tally;
use super::writer::Work;
use crate::lab::DB;
use crate::linkbench::transaction::Session;
use muniment_load::access::Peer;
use muniment_load::conn::{Conn, Message, check, number_at};
use muniment_load::fail::{Failure, Result};
use muniment_load::rng::Rng;
use muniment_value::{ArrayBuf, Doc, DocBuf, array, doc};
use std::time::{Duration, Instant};

/// The collection of the counter that all writers increment.
pub(super) const SHARED: &str = "audit_shared";
/// The most documents in a batch.
const BATCH: u64 = 20;

/// Writes the shared counter durably; the other documents are those of the write concerns' rounds.
///
/// # Errors
/// The server refuses the write.
pub(crate) fn prepare(server: &Peer) -> Result<()> {
    let mut c = Conn::connect(server)?;
    c.set_timeout(Some(Duration::from_secs(60)))?;
    match c.command(DB, &doc! { "drop": SHARED }) {
        Err(e) if !e.0.contains("(26 ") => return Err(e),
        _ => {}
    }
    let durable = doc! { "w": "majority", "j": true, "wtimeout": 30_000 };
    let counter = doc! { "_id": 0, "added": 0i64 };
    c.command(
        DB,
        &doc! { "insert": SHARED, "documents": array![counter], "writeConcern": durable },
    )?;
    Ok(())
}

/// The content that the reply to a write must have.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Answer {
    /// The reply counts so many documents.
    Documents(u32),
    /// The reply has this value of the counter, as findAndModify returns it.
    Value(u64),
}

impl Answer {
    /// Checks that a reply has this content.
    ///
    /// # Errors
    /// The server refused the write, or the reply has other content.
    fn check(self, reply: Doc<'_>) -> Result<()> {
        check(reply)?;
        let (says, want) = match self {
            Answer::Documents(n) => (number_at(reply, "n"), f64::from(n)),
            Answer::Value(v) => (number_at(reply, "value.added"), v as f64),
        };
        if says != Some(want) {
            return Err(Failure(format!("an answer of {want} says {reply:?}")));
        }
        Ok(())
    }
}

/// A writer that can send its last write again.
pub(crate) struct Retries {
    conn: Conn,
    thread: usize,
    mark: u64,
    lsid: DocBuf,
    number: i64,
    concern: DocBuf,
    rng: Rng,
    /// The last write that was sent, and the reply that it must get.
    last: Option<(Message, Answer)>,
    answered: bool,
    /// The number of increments of the shared counter that were sent.
    shared: u64,
}

/// The results of sending again.
#[derive(Debug, Default)]
pub(crate) struct Again {
    /// The number of writes that had not been answered.
    pub unanswered: u64,
    /// Increments of the shared counter that were sent, each counted once.
    pub shared: u64,
    /// Writes that were refused or got a wrong reply, in words.
    pub faults: Vec<String>,
}

impl Retries {
    /// Makes writer number `thread` of the round with this mark.
    ///
    /// # Errors
    /// There is no connection.
    pub(crate) fn new(
        server: &Peer,
        thread: usize,
        mark: u64,
        concern: &Concern,
    ) -> Result<Retries> {
        Ok(Retries {
            conn: connect(server)?,
            thread,
            mark,
            lsid: Session::new(mark ^ thread as u64).lsid(),
            number: 0,
            concern: concern.doc.clone(),
            rng: Rng::new(mark ^ (thread as u64 + 1)),
            last: None,
            answered: true,
            shared: 0,
        })
    }

    /// Makes the next write. Of a hundred writes 55 insert (every fourth of them a batch), 20
    /// update the writer's counter, 15 find and modify it, and 10 update the shared counter.
    fn next(&mut self, history: &mut History) -> (DocBuf, Answer) {
        match self.rng.below(100) {
            0..55 => {
                let count = match self.rng.below(4) {
                    0 => 2 + self.rng.below(BATCH - 1) as u32,
                    _ => 1,
                };
                let first = history.insert(count);
                let documents: ArrayBuf = (first..first + u64::from(count))
                    .map(|n| document::document(self.mark, self.thread, n))
                    .collect();
                let body = doc! { "insert": COLLECTION, "documents": documents };
                (body, Answer::Documents(count))
            }
            55..75 => {
                let update = document::update(self.mark, self.thread, history.update());
                let body = doc! { "update": COLLECTION, "updates": array![update] };
                (body, Answer::Documents(1))
            }
            75..90 => {
                let value = history.update();
                let update = document::update(self.mark, self.thread, value);
                let part = |name: &str| update.as_doc().get_doc(name).unwrap_or(Doc::EMPTY);
                let body = doc! {
                    "findAndModify": COLLECTION, "query": part("q"), "update": part("u"), "new": true,
                };
                (body, Answer::Value(value))
            }
            _ => {
                self.shared += 1;
                let update =
                    doc! { "q": doc! { "_id": 0 }, "u": doc! { "$inc": doc! { "added": 1i64 } } };
                let body = doc! { "update": SHARED, "updates": array![update] };
                (body, Answer::Documents(1))
            }
        }
    }

    /// Sends the last write again, with its number, to the given server, and once more after
    /// it has been answered: neither may take effect a second time.
    ///
    /// # Errors
    /// The connection fails.
    pub(crate) fn again(&mut self, server: &Peer, history: &mut History) -> Result<Again> {
        let mut a = Again {
            shared: self.shared,
            unanswered: u64::from(!self.answered),
            faults: Vec::new(),
        };
        let Some((message, answer)) = &mut self.last else {
            return Ok(a);
        };
        self.conn = connect(server)?;
        for _ in 0..2 {
            match answer.check(self.conn.call(message)?) {
                Ok(()) => history.acknowledge(Instant::now()),
                Err(e) => a.faults.push(format!(
                    "writer {} sent its last write again: {e}",
                    self.thread
                )),
            }
        }
        Ok(a)
    }
}

fn connect(server: &Peer) -> Result<Conn> {
    let conn = Conn::connect(server)?;
    conn.set_timeout(Some(Duration::from_secs(15)))?;
    Ok(conn)
}

impl Work for Retries {
    fn write(&mut self, history: &mut History) -> Result<()> {
        let (mut body, answer) = self.next(history);
        self.number += 1;
        body.append("writeConcern", &self.concern)
            .append("lsid", &self.lsid)
            .append("txnNumber", self.number);
        self.answered = false;
        let (message, answer) = self.last.insert((Message::command(DB, &body), answer));
        answer.check(self.conn.call(message)?)?;
        self.answered = true;
        history.acknowledge(Instant::now());
        Ok(())
    }
}

/// Reads the value of the shared counter.
///
/// # Errors
/// The server does not answer.
pub(crate) fn shared(c: &mut Conn) -> Result<Option<f64>> {
    let r = c.command(DB, &doc! { "find": SHARED, "singleBatch": true })?;
    let batch = r.as_doc().get_doc("cursor");
    let first = batch.and_then(|c| c.get_array("firstBatch")?.get_doc("0"));
    Ok(first.and_then(|d| number_at(d, "added")))
}

/// Adds to a round's tally the results that only this check has: those of sending again, and the
/// value of the shared counter.
pub(crate) fn judge(t: &mut Tally, again: &[Again], shared: Option<f64>) {
    for a in again {
        t.sent_again += a.unanswered;
        t.damaged += a.faults.len() as u64;
        t.examples.extend(a.faults.iter().cloned());
    }
    let sent = again.iter().map(|a| a.shared).sum::<u64>() as f64;
    if shared != Some(sent) {
        t.damaged += 1;
        t.examples.push(format!(
            "the counter of all holds {shared:?} after {sent} increments"
        ));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use muniment_load::fake;

    /// Makes the reply of a healthy server.
    fn healthy(d: Doc<'_>) -> DocBuf {
        match d.first().unwrap().name() {
            "insert" => {
                let n = d.get_array("documents").unwrap().count() as i32;
                doc! { "n": n, "ok": 1.0 }
            }
            "findAndModify" => {
                let set = d.get_doc("update").and_then(|u| u.get_doc("$set")).unwrap();
                let value = set.get("set").unwrap();
                doc! { "value": doc! { "added": value }, "ok": 1.0 }
            }
            _ => doc! { "n": 1, "ok": 1.0 },
        }
    }

    fn writer(
        answer: impl FnMut(usize, Doc<'_>) -> DocBuf + Send + 'static,
    ) -> (Retries, Peer, fake::Heard) {
        let (address, heard) = fake::server(answer);
        let server = Peer::open(address);
        let concern = &super::super::concern::parse_list("majority+j:true").unwrap()[0];
        let w = Retries::new(&server, 0, 7, concern).unwrap();
        (w, server, heard)
    }

    fn number(d: &DocBuf) -> Option<i64> {
        d.as_doc().get("txnNumber").and_then(|n| n.as_i64_exact())
    }

    #[test]
    fn what_was_not_answered_is_sent_again_with_its_number() {
        // The sixth write is refused, which stands for a server that has gone away.
        let (mut w, server, heard) = writer(|n, d| match n {
            5 => doc! { "ok": 0.0, "errmsg": "gone", "code": 91 },
            _ => healthy(d),
        });
        let mut h = History::default();
        for _ in 0..5 {
            w.write(&mut h).unwrap();
        }
        assert!(w.write(&mut h).is_err());
        let a = w.again(&server, &mut h).unwrap();
        assert_eq!((a.unanswered, a.faults.len()), (1, 0));
        assert!(h.writes.iter().all(|w| w.acknowledged.is_some()));
        let all = heard.all();
        let numbers: Vec<_> = all.iter().filter_map(number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 6, 6]);
        assert!(all[5] == all[6] && all[6] == all[7], "byte for byte");
    }

    #[test]
    fn an_answer_that_says_more_was_done_is_a_fault() {
        let (mut w, server, _) = writer(|n, d| match n {
            3.. => doc! { "n": 77, "value": doc! { "added": 77i64 }, "ok": 1.0 },
            _ => healthy(d),
        });
        let mut h = History::default();
        for _ in 0..3 {
            w.write(&mut h).unwrap();
        }
        let a = w.again(&server, &mut h).unwrap();
        assert_eq!((a.unanswered, a.faults.len()), (0, 2));
        let mut t = Tally::default();
        judge(&mut t, &[a], Some(w.shared as f64));
        assert_eq!((t.damaged, t.sent_again), (2, 0));
        assert!(t.examples[0].contains("sent its last write again"));
    }

    #[test]
    fn the_counter_of_all_is_exact() {
        let again = || {
            [3, 4].map(|shared| Again {
                shared,
                unanswered: 1,
                ..Again::default()
            })
        };
        for (value, damaged) in [(Some(7.0), 0), (Some(8.0), 1), (Some(6.0), 1), (None, 1)] {
            let mut t = Tally::default();
            judge(&mut t, &again(), value);
            assert_eq!((t.damaged, t.sent_again), (damaged, 2), "{value:?}");
        }
    }

    #[test]
    fn every_kind_of_write_is_sent() {
        let (mut w, _, heard) = writer(|_, d| healthy(d));
        let mut h = History::default();
        for _ in 0..200 {
            w.write(&mut h).unwrap();
        }
        let mut kinds: Vec<String> = heard
            .all()
            .iter()
            .map(|d| {
                let first = d.as_doc().first().unwrap();
                format!("{} {:?}", first.name(), first.value())
            })
            .collect();
        kinds.sort();
        kinds.dedup();
        assert_eq!(kinds.len(), 4, "{kinds:?}");
    }
}
