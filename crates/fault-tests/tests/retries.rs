//! kill -9 under clients that send everything again until it is answered: retryable writes and
//! commits count exactly once, transactions whole or not at all. And a change stream that is resumed
//! from its token after every kill tells all of it, once and in order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::{DB, Rng, long, seed};
use muniment_value::{Code, Doc, DocBuf, Value, array, doc, number};
use muniment_wire::Connection;
use std::collections::{BTreeMap, BTreeSet};
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

/// What a change stream has told.
#[derive(Default)]
struct Told {
    /// The counters as they were told last.
    counters: BTreeMap<i64, DocBuf>,
    rows: BTreeSet<String>,
    moves: BTreeSet<String>,
    events: u64,
    resumed: u64,
}

impl Told {
    fn apply(&mut self, event: Doc<'_>) {
        self.events += 1;
        let id = event.get_doc("documentKey").unwrap().get("_id").unwrap();
        let full = event.get_doc("fullDocument").unwrap();
        match event.get_doc("ns").unwrap().get_str("coll").unwrap() {
            "counters" => {
                // Each change is on top of the one before: nothing was left out or told twice.
                let id = id.as_i64_exact().unwrap();
                let before = self.counters.insert(id, full.to_buf());
                let said = event
                    .get_doc("fullDocumentBeforeChange")
                    .map(|d| d.to_buf());
                assert_eq!(said, before, "{}", event.to_display());
            }
            name => {
                let all = if name == "rows" {
                    &mut self.rows
                } else {
                    &mut self.moves
                };
                let new = all.insert(id.as_str().unwrap().to_string());
                assert!(new, "twice: {}", event.to_display());
            }
        }
    }
}

/// Follows the database until it has told the write to `end`.
fn follow(address: &Mutex<String>) -> Told {
    let mut told = Told::default();
    let mut token: Option<DocBuf> = None;
    loop {
        let address = address.lock().unwrap().clone();
        let Ok(mut c) = Connection::connect(&address) else {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        };
        let mut stage = doc! {
            "fullDocument": "required", "fullDocumentBeforeChange": "whenAvailable",
        };
        match &token {
            Some(t) => stage.append("resumeAfter", t),
            // From the first of all on.
            None => stage.append("startAtOperationTime", Value::Timestamp { t: 0, i: 1 }),
        };
        let pipeline = array![doc! { "$changeStream": stage }];
        let open = doc! { "aggregate": 1, "pipeline": pipeline, "cursor": doc! {} };
        let mut reply = c.command_raw(DB, &open);
        told.resumed += 1;
        while let Ok(r) = &reply {
            let cursor = r
                .as_doc()
                .get_doc("cursor")
                .unwrap_or_else(|| panic!("{r:?}"));
            let batch = cursor
                .get_array("firstBatch")
                .or(cursor.get_array("nextBatch"));
            for e in batch.unwrap().values().map(|v| v.as_doc().unwrap()) {
                if e.get_str("operationType") != Some("insert")
                    && e.get_str("operationType") != Some("update")
                {
                    continue;
                }
                if e.get_doc("ns").unwrap().get_str("coll") == Some("end") {
                    return told;
                }
                told.apply(e);
            }
            token = cursor.get_doc("postBatchResumeToken").map(|d| d.to_buf());
            let id = cursor.get("id").unwrap();
            let more = doc! {
                "getMore": id, "collection": "$cmd.aggregate", "batchSize": 7, "maxTimeMS": 500,
            };
            reply = c.command_raw(DB, &more);
        }
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
    let images = doc! { "enabled": true };
    c.command(
        DB,
        &doc! { "create": "counters", "changeStreamPreAndPostImages": images },
    )
    .unwrap();
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
    let (tallies, told): (Vec<Tally>, Told) = std::thread::scope(|scope| {
        let follower = scope.spawn(|| follow(&address));
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
        let tallies = clients.into_iter().map(|c| c.join().unwrap()).collect();
        let mut c = server.connect();
        c.command(
            DB,
            &doc! { "insert": "end", "documents": array![doc! { "_id": 1 }] },
        )
        .unwrap();
        (tallies, follower.join().unwrap())
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
    // The stream has told what is stored.
    let stored: BTreeMap<i64, DocBuf> = c
        .find_all(DB, &doc! { "find": "counters" })
        .unwrap()
        .into_iter()
        .map(|d| {
            (
                d.as_doc()
                    .get("_id")
                    .and_then(|v| v.as_i64_exact())
                    .unwrap(),
                d,
            )
        })
        .collect();
    assert_eq!(told.counters, stored);
    assert_eq!(
        (told.rows.len() as i64, told.moves.len() as i64),
        (all.rows, all.moved)
    );
    println!("{} events, resumed {} times", told.events, told.resumed);
    assert!(told.resumed > 1);
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
