//! Yardstick 16: the cost of a transaction compared with the same commands without one.

use super::against_null::{POINTS, fill};
use super::{CACHE_GB, Pairs, Row, Spec};
use crate::docs;
use crate::lab::{DB, Lab, Target};
use crate::linkbench::transaction::Session;
use crate::report::Outcome;
use muniment_load::conn::{self, Conn, InsertTemplate, Message, check, number_at};
use muniment_load::fail::{Failure, Result};
use muniment_load::load::{self, Limit, Worker};
use muniment_load::meter::Meter;
use muniment_load::rng::Rng;
use muniment_load::stats::{Side, median};
use muniment_value::{Doc, DocBuf, doc};
use std::time::{Duration, Instant};

pub(super) const SPEC: Spec = Spec {
    number: 16,
    title: "a transaction of 4 updates of 2 KB documents, of 100 inserts, of 4 finds, against the same without one, one connection",
    target_text: "≤ 1.3 ×, 1.15 ×, 1.15 × the time",
    run,
};

/// A placeholder in a message, which is replaced by the transaction's number.
const NUMBER: i64 = i64::from_le_bytes(*b"\x01number\x01");

/// The commands that are run in a transaction and without one.
#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    /// Four updates with `$set` by `_id`.
    Updates,
    /// One insert of a hundred documents.
    Inserts,
    /// Four finds by `_id`.
    Finds,
}

impl What {
    /// The number of commands, not counting the commit.
    fn commands(self) -> usize {
        match self {
            What::Updates | What::Finds => 4,
            What::Inserts => 1,
        }
    }

    /// The number of documents of a command.
    fn documents(self) -> u64 {
        match self {
            What::Updates | What::Finds => 1,
            What::Inserts => 100,
        }
    }
}

const ROWS: [(&str, &str, What, f64); 3] = [
    (
        "16a",
        "transaction of 4 updates, time over 4 updates",
        What::Updates,
        1.3,
    ),
    (
        "16b",
        "transaction of 100 inserts, time over insertMany(100)",
        What::Inserts,
        1.15,
    ),
    (
        "16c",
        "transaction of 4 finds, time over 4 finds",
        What::Finds,
        1.15,
    ),
];

fn run(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    let mut target = lab.target(Some(CACHE_GB))?;
    fill(lab, &target, "points", POINTS, docs::point)?;
    lab.settle(&target, Duration::from_secs(20));
    let trip = round_trip(&target)?;
    let time = Duration::from_millis(lab.preset.pick(600, 2000, 10_000));
    let mut seed = 0;
    for (id, title, what, limit) in ROWS {
        // The ratio of the plain commands' rate to the transactions' rate equals the ratio of the
        // time of a transaction to that of the plain commands.
        let pairs = Pairs::measure(lab, out, |lab, side| {
            seed += 1;
            let transaction = side == Side::B;
            let who = if transaction {
                "in transactions"
            } else {
                "plain"
            };
            let name = format!("Yardstick 16, {what:?}, {who}");
            lab.progress.step(name.clone());
            let unit = Unit::new(target.connect()?, what, seed, transaction);
            let limit = Limit::time(time);
            let load = load::run(&name, vec![unit], limit, target.pid, &mut lab.progress)?;
            Ok((load.rate(), Some(load)))
        })?;
        if let Some(row) = pairs.row(id, title, ["plain", "in transactions"], limit) {
            let detail = format!("{}; {}", cost(&pairs, what, limit, trip), row.detail);
            rows.push(Row {
                at_most: true,
                detail,
                ..row
            });
        }
    }
    target.check_alive()?;
    lab.done(target);
    Ok(())
}

/// The seconds of the round trip of a command that does nothing.
fn round_trip(target: &Target) -> Result<f64> {
    let mut c = target.connect()?;
    let mut ping = Message::command("admin", &doc! { "ping": 1 });
    let mut times = Vec::new();
    for _ in 0..2000 {
        let began = Instant::now();
        check(c.call(&mut ping)?)?;
        times.push(began.elapsed().as_secs_f64());
    }
    Ok(median(&times))
}

/// The parts of a ratio in words: the times, and the share of them that the commit's round trip
/// takes.
fn cost(pairs: &Pairs, what: What, limit: f64, trip: f64) -> String {
    let commands = what.commands();
    let size = commands as f64 * what.documents() as f64;
    let (plain, within) = (size / median(&pairs.a), size / median(&pairs.b));
    let mut s = format!(
        "{:.0} µs in {} round trips (the commit is one) against {:.0} µs in {commands}; a ping's is {:.0} µs, {:.2} × the plain commands: without it {:.2} ×",
        within * 1e6,
        commands + 1,
        plain * 1e6,
        trip * 1e6,
        trip / plain,
        (within - trip) / plain,
    );
    if 1.0 + trip / plain > limit {
        s += " (the round trip alone exceeds the target)";
    }
    if !pairs.a_us.is_empty() && !pairs.b_us.is_empty() {
        s += &format!(
            "; the server's CPU time {:.2} ×",
            median(&pairs.b_us) / median(&pairs.a_us)
        );
    }
    s
}

/// A command that is encoded once, and the positions at which it is patched.
struct Step {
    message: Message,
    number_at: Option<usize>,
    /// The position of the `_id` in a find or an update.
    id_at: usize,
    /// The position of an update's value.
    value_at: usize,
    id: i64,
    /// The template and source of an insert's documents.
    template: Option<InsertTemplate>,
}

/// A worker whose every operation is the commands, in a transaction or not.
struct Unit {
    conn: Conn,
    what: What,
    steps: Vec<Step>,
    commit: Option<Step>,
    number: i64,
    rng: Rng,
    now: i64,
}

impl Unit {
    fn new(conn: Conn, what: What, seed: u64, transaction: bool) -> Unit {
        let lsid = Session::new(seed).lsid();
        let w1 = doc! { "w": 1 };
        let within = |first: bool| {
            let mut fields = doc! { "lsid": &lsid, "txnNumber": NUMBER };
            if first {
                fields.append("startTransaction", true);
            }
            fields.append("autocommit", false);
            fields
        };
        let steps = (0..what.commands())
            .map(|i| {
                // Commands in a transaction must not have a write concern; the commit has it.
                let fields = match (transaction, what) {
                    (true, _) => within(i == 0),
                    (false, What::Finds) => DocBuf::new(),
                    (false, _) => doc! { "writeConcern": &w1 },
                };
                Step::new(what, &fields)
            })
            .collect();
        let commit = transaction.then(|| {
            let mut message = Message::command("admin", &doc! { "commitTransaction": 1 });
            message.append(&within(false));
            message.append(&doc! { "writeConcern": &w1 });
            Step::of(message)
        });
        Unit {
            conn,
            what,
            steps,
            commit,
            number: 0,
            rng: Rng::new(seed),
            now: docs::now_ms(),
        }
    }
}

impl Step {
    fn of(message: Message) -> Step {
        Step {
            number_at: message.find(&NUMBER.to_le_bytes()),
            message,
            id_at: 0,
            value_at: 0,
            id: 0,
            template: None,
        }
    }

    fn new(what: What, fields: &DocBuf) -> Step {
        let (mut message, id_at, value_at) = match what {
            What::Updates => conn::update_by_id(DB, "points"),
            What::Finds => {
                let (m, at) = conn::find_by_id(DB, "points");
                (m, at, 0)
            }
            What::Inserts => {
                let mut body = doc! { "insert": "inserted", "ordered": true };
                for e in fields.as_doc() {
                    body.append_elem(e);
                }
                let template = Message::insert_command(DB, body, false);
                let mut message = Message(Vec::new());
                template.begin(&mut message);
                return Step {
                    template: Some(template),
                    ..Step::of(message)
                };
            }
        };
        message.append(fields);
        Step {
            id_at,
            value_at,
            ..Step::of(message)
        }
    }

    fn patch(&mut self, number: i64) {
        if let Some(at) = self.number_at {
            self.message.patch(at, &number.to_le_bytes());
        }
    }
}

impl Worker for Unit {
    fn prepare(&mut self) -> bool {
        self.number += 1;
        for s in &mut self.steps {
            if let Some(t) = &s.template {
                t.begin(&mut s.message);
                for _ in 0..self.what.documents() {
                    docs::w3(&mut self.rng, self.now, docs::object_id(), &mut s.message.0);
                }
                t.seal(&mut s.message);
            } else {
                s.id = self.rng.below(POINTS) as i64;
                s.message.patch(s.id_at, &s.id.to_le_bytes());
                if self.what == What::Updates {
                    let value = self.rng.next_u64() as i32;
                    s.message.patch(s.value_at, &value.to_le_bytes());
                }
            }
            s.patch(self.number);
        }
        if let Some(c) = &mut self.commit {
            c.patch(self.number);
        }
        true
    }

    fn operate(&mut self, meter: &mut Meter) -> Result<u64> {
        let mut documents = 0;
        for s in &mut self.steps {
            if self.what != What::Finds {
                meter.payload(s.message.0.len());
            }
            let reply = self.conn.call(&mut s.message)?;
            check(reply)?;
            if !answers(self.what, s.id, reply) {
                let what = self.what;
                return Err(Failure(format!("{what:?}: another answer: {reply:?}")));
            }
            documents += self.what.documents();
        }
        if let Some(c) = &mut self.commit {
            check(self.conn.call(&mut c.message)?)?;
        }
        Ok(documents)
    }
}

/// Whether a reply confirms that the command did what was asked.
fn answers(what: What, id: i64, reply: Doc<'_>) -> bool {
    match what {
        What::Updates | What::Inserts => number_at(reply, "n") == Some(what.documents() as f64),
        What::Finds => {
            let found = reply
                .get_doc("cursor")
                .and_then(|c| c.get_array("firstBatch"))
                .and_then(|b| b.get_doc("0"))
                .and_then(|d| number_at(d, "_id"));
            found == Some(id as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use muniment_load::fake;
    use muniment_load::meter::Board;
    use muniment_value::array;
    use std::sync::Arc;

    /// The messages of two operations: the commands' names, and the fields of transactions.
    fn sent(what: What, transaction: bool) -> Vec<(String, Option<i64>, bool, bool)> {
        let (address, heard) = fake::server(|_, d| match d.first().unwrap().name() {
            "find" => {
                let id = d.get_doc("filter").unwrap().get("_id").unwrap();
                let cursor = doc! { "id": 0_i64, "firstBatch": array![doc! { "_id": id }] };
                doc! { "cursor": cursor, "ok": 1.0 }
            }
            "insert" => doc! { "n": 100, "ok": 1.0 },
            _ => doc! { "n": 1, "ok": 1.0 },
        });
        let mut u = Unit::new(
            Conn::connect(&muniment_load::access::Peer::open(&address)).unwrap(),
            what,
            1,
            transaction,
        );
        let mut meter = Meter::new(Arc::new(Board::default()));
        let documents = what.commands() as u64 * what.documents();
        for _ in 0..2 {
            assert!(u.prepare());
            assert_eq!(u.operate(&mut meter), Ok(documents));
        }
        let of = |d: &DocBuf| {
            let d = d.as_doc();
            let number = d.get("txnNumber").and_then(|n| n.as_i64_exact());
            let autocommit = d.get("autocommit").and_then(|a| a.as_bool()) == Some(false);
            assert_eq!(number.is_some(), autocommit);
            (
                d.first().unwrap().name().to_string(),
                number,
                d.get("startTransaction").is_some(),
                d.get("writeConcern").is_some(),
            )
        };
        heard.all().iter().map(of).collect()
    }

    #[test]
    fn a_transaction_begins_with_its_first_command_and_commits() {
        let all = sent(What::Updates, true);
        assert_eq!(all.len(), 10);
        for (i, (name, number, start, concern)) in all.iter().enumerate() {
            let last = i % 5 == 4;
            let want = if last { "commitTransaction" } else { "update" };
            assert_eq!(name, want);
            assert_eq!(*number, Some(1 + i as i64 / 5));
            assert_eq!((*start, *concern), (i % 5 == 0, last));
        }
        assert_eq!(sent(What::Inserts, true).len(), 4);
        assert_eq!(sent(What::Finds, true).len(), 10);
    }

    #[test]
    fn plain_commands_are_the_same_without_it() {
        let update = ("update".to_string(), None, false, true);
        assert_eq!(sent(What::Updates, false), vec![update; 8]);
        let find = ("find".to_string(), None, false, false);
        assert_eq!(sent(What::Finds, false), vec![find; 8]);
        let insert = ("insert".to_string(), None, false, true);
        assert_eq!(sent(What::Inserts, false), vec![insert; 2]);
    }

    #[test]
    fn the_commits_round_trip_is_told_apart() {
        let mut pairs = Pairs {
            a: vec![40_000.0],
            b: vec![25_000.0],
            ..Pairs::default()
        };
        // The plain commands take 100 µs and the transaction 160, of which 25 are the commit's
        // round trip.
        let s = cost(&pairs, What::Updates, 1.3, 25e-6);
        assert!(s.starts_with("160 µs in 5 round trips"), "{s}");
        assert!(
            s.contains("against 100 µs in 4") && s.ends_with("without it 1.35 ×"),
            "{s}"
        );
        let s = cost(&pairs, What::Finds, 1.15, 25e-6);
        assert!(s.contains("the round trip alone exceeds the target"), "{s}");
        pairs.a_us = vec![10.0];
        pairs.b_us = vec![15.0];
        assert!(cost(&pairs, What::Updates, 1.3, 0.0).ends_with("the server's CPU time 1.50 ×"));
    }
}
