//! kill -9 under clients that send everything again until it is answered: retryable writes and
//! commits count exactly once, transactions whole or not at all.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::{DB, Rng, long, seed};
use muniment_value::{Code, DocBuf, Value, array, doc, number};
use muniment_wire::Connection;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use testkit::{Server, ServerOptions};

/// Counters that all clients share.
const COUNTERS: u64 = 6;
const CLIENTS: u64 = 4;

/// What a client knows to be done.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Tally {
    /// Added to `n` of counters.
    added: i64,
    /// Documents inserted into `rows`.
    rows: i64,
    /// Transactions: each adds 1 to two counters' `t` and a document to `moves`.
    moved: i64,
    /// Times that something was sent again.
    again: i64,
}

/// A client with a session, which goes on where the server comes back.
struct Client<'a> {
    address: &'a Mutex<String>,
    connection: Option<Connection>,
    lsid: [u8; 16],
    number: i64,
    rng: Rng,
    tally: Tally,
}

impl Client<'_> {
    /// The command with the session's fields.
    fn of_session(&self, command: &DocBuf, transaction: Option<bool>) -> DocBuf {
        let mut d = command.clone();
        let id = Value::Binary {
            subtype: 4,
            bytes: &self.lsid,
        };
        d.append("lsid", doc! { "id": id });
        d.append("txnNumber", self.number);
        if let Some(starts) = transaction {
            d.append("autocommit", false);
            if starts {
                d.append("startTransaction", true);
            }
        }
        d
    }

    /// Sends once; `None` when the connection ended before the answer.
    fn once(&mut self, db: &str, command: &DocBuf) -> Option<DocBuf> {
        let address = self.address.lock().unwrap().clone();
        if self.connection.is_none() {
            self.connection = Connection::connect(&address).ok();
            if self.connection.is_none() {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let c = self.connection.as_mut()?;
        match c.command_raw(db, command) {
            Ok(reply) => Some(reply),
            Err(_) => {
                self.connection = None;
                None
            }
        }
    }

    /// Sends until it is answered.
    fn until_answered(&mut self, db: &str, command: &DocBuf) -> DocBuf {
        loop {
            match self.once(db, command) {
                Some(reply) => return reply,
                None => self.tally.again += 1,
            }
        }
    }

    /// One operation, until its fate is known.
    fn operate(&mut self, serial: i64) {
        self.number += 1;
        let counter = self.rng.below(COUNTERS) as i64;
        let ok = |reply: &DocBuf| {
            let r = reply.as_doc();
            assert!(r.get("ok").is_some_and(|v| v.truthy()), "{reply:?}");
            assert!(r.get("writeErrors").is_none(), "{reply:?}");
        };
        match self.rng.below(4) {
            0 => {
                let update = doc! { "q": doc! { "_id": counter }, "u": doc! { "$inc": doc! { "n": 1_i64 } } };
                let command = doc! { "update": "counters", "updates": array![update] };
                let command = self.of_session(&command, None);
                let reply = self.until_answered(DB, &command);
                ok(&reply);
                assert_eq!(
                    reply.as_doc().get("n").and_then(number::to_i64_exact),
                    Some(1)
                );
                self.tally.added += 1;
            }
            1 => {
                let command = doc! {
                    "findAndModify": "counters", "query": doc! { "_id": counter }, "new": true,
                    "update": doc! { "$inc": doc! { "n": 1_i64 } },
                };
                let command = self.of_session(&command, None);
                let reply = self.until_answered(DB, &command);
                ok(&reply);
                // Sent once more, it gives the same document.
                let again = self.until_answered(DB, &command);
                let value = |r: &DocBuf| r.as_doc().get_doc("value").map(|d| d.as_bytes().to_vec());
                assert_eq!(value(&reply), value(&again));
                self.tally.added += 1;
            }
            2 => {
                let id = format!("{:02x}-{serial}", self.lsid[0]);
                let rows = array![
                    doc! { "_id": format!("{id}-a") },
                    doc! { "_id": format!("{id}-b") }
                ];
                let command = doc! { "insert": "rows", "documents": rows };
                let command = self.of_session(&command, None);
                let reply = self.until_answered(DB, &command);
                ok(&reply);
                assert_eq!(
                    reply.as_doc().get("n").and_then(number::to_i64_exact),
                    Some(2)
                );
                self.tally.rows += 2;
            }
            _ => {
                if self.transaction(counter, serial) {
                    self.tally.moved += 1;
                }
            }
        }
    }

    /// True if it was committed; a conflict or a crash before the commit gives it up.
    fn transaction(&mut self, counter: i64, serial: i64) -> bool {
        let other = (counter + 1) % COUNTERS as i64;
        let statement = |id: i64| {
            doc! { "q": doc! { "_id": id }, "u": doc! { "$inc": doc! { "t": 1_i64 } } }
        };
        let steps = [
            doc! { "update": "counters", "updates": array![statement(counter)] },
            doc! { "insert": "moves", "documents": array![doc! { "_id": format!("{:02x}-{serial}", self.lsid[0]) }] },
            doc! { "update": "counters", "updates": array![statement(other)] },
        ];
        for (i, step) in steps.iter().enumerate() {
            let command = self.of_session(step, Some(i == 0));
            // The transaction is gone with the server that had it.
            let Some(reply) = self.once(DB, &command) else {
                return false;
            };
            let code = reply.as_doc().get("code").and_then(number::to_i64_exact);
            match code {
                None => {}
                Some(c) if c == i64::from(Code::WriteConflict.0) => return false,
                Some(c) if c == i64::from(Code::NoSuchTransaction.0) => return false,
                Some(_) => panic!("{reply:?}"),
            }
        }
        let commit = self.of_session(&doc! { "commitTransaction": 1 }, Some(false));
        let reply = self.until_answered("admin", &commit);
        let r = reply.as_doc();
        if r.get("ok").is_some_and(|v| v.truthy()) {
            return true;
        }
        let code = r.get("code").and_then(number::to_i64_exact);
        assert_eq!(
            code,
            Some(i64::from(Code::NoSuchTransaction.0)),
            "{reply:?}"
        );
        false
    }
}

fn sum(c: &mut Connection, collection: &str, field: &str) -> i64 {
    let group = doc! { "$group": doc! { "_id": Value::Null, "n": doc! { "$sum": field } } };
    let command = doc! { "aggregate": collection, "pipeline": array![group], "cursor": doc! {} };
    let found = c.find_all(DB, &command).unwrap();
    let n = found.first().and_then(|d| d.as_doc().get("n"));
    n.and_then(number::to_i64_exact).unwrap_or(0)
}

#[test]
fn what_is_sent_again_is_done_once() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut server = Server::start(ServerOptions::new());
    let mut c = server.connect();
    for id in 0..COUNTERS as i64 {
        let d = doc! { "_id": id, "n": 0_i64, "t": 0_i64 };
        c.command(DB, &doc! { "insert": "counters", "documents": array![d] })
            .unwrap();
    }
    let spec = doc! { "key": doc! { "t": 1 }, "name": "t" };
    c.command(
        DB,
        &doc! { "createIndexes": "counters", "indexes": array![spec] },
    )
    .unwrap();
    c.command(DB, &doc! { "create": "moves" }).unwrap();
    let address = Mutex::new(server.address());
    let (stop, operations) = (AtomicBool::new(false), AtomicU64::new(0));
    let rounds = if long() { 200 } else { 12 };
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|i| {
                let (address, stop, operations) = (&address, &stop, &operations);
                scope.spawn(move || {
                    let mut lsid = [0; 16];
                    lsid[0] = i as u8 + 1;
                    let mut client = Client {
                        address,
                        connection: None,
                        lsid,
                        number: 0,
                        rng: Rng::new(seed ^ (i + 1)),
                        tally: Tally::default(),
                    };
                    let mut serial = 0;
                    while !stop.load(SeqCst) {
                        serial += 1;
                        client.operate(serial);
                        operations.fetch_add(1, SeqCst);
                    }
                    client.tally
                })
            })
            .collect();
        for _ in 0..rounds {
            std::thread::sleep(Duration::from_millis(60 + rng.below(250)));
            server.kill9();
            server.start_again();
            *address.lock().unwrap() = server.address();
        }
        stop.store(true, SeqCst);
        clients.into_iter().map(|c| c.join().unwrap()).collect()
    });
    let mut all = Tally::default();
    for t in &tallies {
        all.added += t.added;
        all.rows += t.rows;
        all.moved += t.moved;
        all.again += t.again;
    }
    let mut c = server.connect();
    let stored = Tally {
        added: sum(&mut c, "counters", "$n"),
        rows: c.find_all(DB, &doc! { "find": "rows" }).unwrap().len() as i64,
        moved: c.find_all(DB, &doc! { "find": "moves" }).unwrap().len() as i64,
        again: all.again,
    };
    assert_eq!(stored, all);
    assert_eq!(sum(&mut c, "counters", "$t"), 2 * all.moved);
    for collection in ["counters", "rows", "moves"] {
        let reply = c
            .command(DB, &doc! { "validate": collection, "full": true })
            .unwrap();
        assert!(
            reply.as_doc().get("valid").is_some_and(|v| v.truthy()),
            "{reply:?}"
        );
    }
    println!(
        "{rounds} kills, {} operations, {all:?}",
        operations.load(SeqCst)
    );
    assert!(
        all.again > 0 && all.moved > 0 && all.added > 0,
        "the load hardly ran: {all:?}"
    );
}
