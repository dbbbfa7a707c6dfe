//! `local.oplog.rs` as tools use it: followed while many write, and applied to another server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{ArrayBuf, Doc, DocBuf, Value, array, doc};
use muniment_wire::Connection;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use testkit::{Server, ServerOptions, run_script, shell};

/// The timestamp of an oplog entry, and the entry.
type Entry = ((u32, u32), DocBuf);

fn ask(c: &mut Connection, db: &str, command: &DocBuf) -> DocBuf {
    let reply = c.command_raw(db, command).unwrap();
    let ok = reply.as_doc().get("ok").is_some_and(|v| v.truthy());
    let written = reply.as_doc().get("writeErrors").is_none();
    assert!(ok && written, "{command:?}: {reply:?}");
    reply
}

fn ts(d: Doc<'_>) -> (u32, u32) {
    match d.get("ts") {
        Some(Value::Timestamp { t, i }) => (t, i),
        other => panic!("{other:?}"),
    }
}

/// The documents of a cursor's batch, and the cursor's id.
fn batch(reply: &DocBuf) -> (Vec<Entry>, i64) {
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    let first = cursor.get_array("firstBatch");
    let docs = first.or_else(|| cursor.get_array("nextBatch")).unwrap();
    let docs = docs.values().filter_map(|v| v.as_doc());
    let all = docs.map(|d| (ts(d), d.to_buf())).collect();
    (all, cursor.get("id").unwrap().as_i64_exact().unwrap())
}

/// All entries after the one with this timestamp.
fn after(c: &mut Connection, at: (u32, u32)) -> Vec<Entry> {
    let at = Value::Timestamp { t: at.0, i: at.1 };
    let find = doc! { "find": "oplog.rs", "filter": doc! { "ts": doc! { "$gt": at } } };
    let (mut all, mut id) = batch(&ask(c, "local", &find));
    while id != 0 {
        let more = doc! { "getMore": id, "collection": "oplog.rs" };
        let (next, still) = batch(&ask(c, "local", &more));
        all.extend(next);
        id = still;
    }
    all
}

fn last(c: &mut Connection) -> (u32, u32) {
    let find = doc! {
        "find": "oplog.rs", "sort": doc! { "$natural": -1 }, "limit": 1,
    };
    batch(&ask(c, "local", &find)).0.first().unwrap().0
}

#[test]
fn a_set_has_an_oplog() {
    let options = ["--replSet", "rs0", "--autoInitiate", "--oplogSize", "64"];
    let s = Server::start(options.iter().fold(ServerOptions::new(), |o, a| o.arg(*a)));
    let text = include_str!("scripts/replica_set/oplog.txt");
    let failures = run_script("oplog.txt", text, &mut s.connect());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn its_new_size_holds_after_a_restart() {
    if !testkit::persistent() {
        return;
    }
    let options = ["--replSet", "rs0", "--autoInitiate", "--oplogSize", "64"];
    let mut s = Server::start(options.iter().fold(ServerOptions::new(), |o, a| o.arg(*a)));
    let shown = |s: &Server| {
        let stats = ask(&mut s.connect(), "local", &doc! { "collStats": "oplog.rs" });
        let size = stats.as_doc().get("maxSize").unwrap();
        let kept = doc! { "find": "replset.oplogWindow", "projection": doc! { "_id": 0 } };
        let kept = ask(&mut s.connect(), "local", &kept);
        let kept = kept.as_doc().get_doc("cursor").unwrap();
        let kept = kept.get_array("firstBatch").unwrap();
        (size.as_i64_exact().unwrap() >> 20, kept.to_display())
    };
    assert_eq!(shown(&s).0, 64);
    let resize = doc! { "replSetResizeOplog": 1, "size": 2000.0 };
    ask(&mut s.connect(), "admin", &resize);
    s.kill9();
    s.start_again();
    assert_eq!(shown(&s).0, 2000);
    let resize = doc! { "replSetResizeOplog": 1, "minRetentionHours": 0.5 };
    ask(&mut s.connect(), "admin", &resize);
    s.restart();
    let (size, kept) = shown(&s);
    assert_eq!(size, 2000);
    assert_eq!(kept, "{ 0: { size: 2097152000, minRetentionHours: 0.5 } }");
}

/// Writes until it is told to stop.
fn write(s: &Server, client: i32, stop: &AtomicBool) {
    let mut c = s.connect();
    let id = [client as u8; 16];
    let lsid = doc! { "id": Value::Binary { subtype: 4, bytes: &id } };
    let mut n = 0_i32;
    while !stop.load(SeqCst) {
        n += 1;
        let key = client * 1_000_000 + n;
        let one = doc! { "_id": key, "x": "x".repeat((n % 50) as usize * 20) };
        let command = match n % 5 {
            0 => doc! { "update": "c", "updates": array![doc! {
                "q": doc! { "_id": key - 1 }, "u": doc! { "$set": doc! { "n": n } },
            }] },
            1 => doc! { "delete": "c", "deletes": array![doc! {
                "q": doc! { "_id": key - 2 }, "limit": 1,
            }] },
            2 => doc! { "insert": "c", "documents": array![one, doc! { "_id": -key }] },
            3 => doc! {
                "insert": "c", "documents": array![one], "lsid": &lsid, "txnNumber": i64::from(n),
                "autocommit": false, "startTransaction": true,
            },
            _ => doc! { "insert": "c", "documents": array![one] },
        };
        ask(&mut c, "followed", &command);
        if n % 5 == 3 {
            let commit = doc! {
                "commitTransaction": 1, "lsid": &lsid, "txnNumber": i64::from(n),
                "autocommit": false,
            };
            ask(&mut c, "admin", &commit);
        }
    }
}

#[test]
fn a_follower_gets_everything_once_in_order() {
    let s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    ask(&mut c, "followed", &doc! { "create": "c" });
    let begin = last(&mut c);
    let stop = AtomicBool::new(false);
    let told: Vec<Entry> = std::thread::scope(|scope| {
        let writers: Vec<_> = (1..5)
            .map(|client| {
                let (s, stop) = (&s, &stop);
                scope.spawn(move || write(s, client, stop))
            })
            .collect();
        // The follower asks again and again with the last timestamp that it got.
        let mut told: Vec<Entry> = Vec::new();
        let mut following = 0;
        let mut c = s.connect();
        let began = std::time::Instant::now();
        loop {
            let from = told.last().map_or(begin, |e| e.0);
            let from = Value::Timestamp {
                t: from.0,
                i: from.1,
            };
            let find = doc! {
                "find": "oplog.rs", "filter": doc! { "ts": doc! { "$gt": from } },
                "tailable": true, "awaitData": true, "oplogReplay": true, "batchSize": 7,
            };
            let (first, id) = batch(&ask(&mut c, "local", &find));
            told.extend(first);
            assert_ne!(id, 0);
            for n in 0..20 {
                let more = doc! {
                    "getMore": id, "collection": "oplog.rs", "maxTimeMS": 50,
                    "batchSize": 1 + (following + n) % 90,
                };
                told.extend(batch(&ask(&mut c, "local", &more)).0);
            }
            following += 1;
            c = s.connect();
            // A busy machine takes longer for enough of it.
            let enough = following > 3 && told.len() > 500;
            if enough && began.elapsed() > std::time::Duration::from_secs(4) {
                break;
            }
            assert!(
                began.elapsed().as_secs() < 60,
                "{following}, {}",
                told.len()
            );
        }
        stop.store(true, SeqCst);
        writers.into_iter().for_each(|w| w.join().unwrap());
        let from = told.last().map_or(begin, |e| e.0);
        told.extend(after(&mut c, from));
        told
    });
    let all = after(&mut c, begin);
    assert!(all.len() > 500, "{}", all.len());
    assert!(all.windows(2).all(|w| w[0].0 < w[1].0));
    assert_eq!(told.len(), all.len());
    assert!(told == all);
    // The entries together give the content of the collection.
    let mut held: HashMap<String, bool> = HashMap::new();
    let mut apply = |d: Doc<'_>| {
        let field = match d.get_str("op") {
            Some("u") => "o2",
            _ => "o",
        };
        let id = d.get_doc(field).and_then(|o| o.get("_id"));
        let id = id.map_or(String::new(), |v| v.to_display());
        held.insert(id, d.get_str("op") != Some("d"));
    };
    for (_, e) in &all {
        let e = e.as_doc();
        match e.get_doc("o").and_then(|o| o.get_array("applyOps")) {
            Some(ops) => ops.values().filter_map(|v| v.as_doc()).for_each(&mut apply),
            None if e.get_str("ns") == Some("followed.c") => apply(e),
            None => {}
        }
    }
    let count = ask(&mut c, "followed", &doc! { "count": "c", "query": doc! {} });
    let n = count.as_doc().get("n").unwrap().as_i64_exact().unwrap();
    assert_eq!(held.values().filter(|v| **v).count() as i64, n);
}

/// Commands for everything that an oplog can have.
const SCRIPT: &[(&str, &str)] = &[
    (
        "a",
        "{create: 'plain', validator: {x: {$gte: 0}}, validationLevel: 'moderate'}",
    ),
    ("a", "{create: 'capped', capped: true, size: 8192, max: 3}"),
    (
        "a",
        "{create: 'clustered', clusteredIndex: {key: {_id: 1}, unique: true}}",
    ),
    (
        "a",
        "{create: 'collated', collation: {locale: 'de', strength: 2}}",
    ),
    (
        "a",
        "{create: 'view', viewOn: 'plain', pipeline: [{$match: {x: 1}}]}",
    ),
    (
        "a",
        "{create: 'images', changeStreamPreAndPostImages: {enabled: true}}",
    ),
    (
        "a",
        "{create: 'series', timeseries: {timeField: 't', metaField: 'm', granularity: 'minutes'}}",
    ),
    (
        "a",
        "{insert: 'plain', documents: [{_id: 1, x: 1, a: [1, 2, {b: 3}], p: 'pppppppppppppppppppp'}, {_id: 2, x: 2}, {_id: 3, x: 3}]}",
    ),
    (
        "a",
        "{insert: 'capped', documents: [{_id: 1}, {_id: 2}, {_id: 3}, {_id: 4}, {_id: 5}]}",
    ),
    (
        "a",
        "{insert: 'clustered', documents: [{_id: 'b'}, {_id: 'a'}]}",
    ),
    (
        "a",
        "{insert: 'collated', documents: [{_id: 'A'}, {_id: 'b'}]}",
    ),
    (
        "a",
        "{insert: 'series', documents: [{_id: 1, t: ISODate('2024-01-01T00:00:00Z'), m: 'x', v: 1}, {_id: 2, t: ISODate('2024-01-01T00:01:00Z'), m: 'y', v: 2}]}",
    ),
    (
        "a",
        "{update: 'plain', updates: [{q: {_id: 1}, u: {$set: {'a.2.b': 4, y: 5}, $unset: {p: ''}}}, {q: {_id: 2}, u: {$push: {l: {$each: [1, 2, 3]}}}}, {q: {_id: 3}, u: {_id: 3, x: 9}}, {q: {_id: 4}, u: {$set: {x: 4}}, upsert: true}, {q: {_id: 1}, u: [{$set: {z: {$add: ['$y', 1]}}}]}]}",
    ),
    (
        "a",
        "{update: 'collated', updates: [{q: {_id: 'a'}, u: {$set: {x: 1}}}]}",
    ),
    (
        "a",
        "{update: 'series', updates: [{q: {m: 'x'}, u: {$set: {m: 'z'}}, multi: true}]}",
    ),
    (
        "a",
        "{delete: 'series', deletes: [{q: {m: 'y'}, limit: 0}]}",
    ),
    (
        "a",
        "{findAndModify: 'plain', query: {_id: 2}, update: {$inc: {x: 10}}}",
    ),
    ("a", "{delete: 'plain', deletes: [{q: {_id: 3}, limit: 1}]}"),
    (
        "a",
        "{createIndexes: 'plain', indexes: [{key: {x: 1}, name: 'x_1', unique: true, sparse: true}, {key: {y: -1}, name: 'y_z', expireAfterSeconds: 1000}, {key: {y: 1, z: -1}, name: 'yz'}, {key: {w: 'text'}, name: 'w_text'}]}",
    ),
    (
        "a",
        "{createIndexes: 'made', indexes: [{key: {g: '2dsphere'}, name: 'g'}]}",
    ),
    (
        "a",
        "{collMod: 'plain', index: {name: 'y_z', expireAfterSeconds: 2000}}",
    ),
    (
        "a",
        "{collMod: 'plain', index: {name: 'x_1', hidden: true}}",
    ),
    (
        "a",
        "{collMod: 'plain', validator: {x: {$gte: -1}}, validationAction: 'warn'}",
    ),
    ("a", "{dropIndexes: 'plain', index: 'w_text'}"),
    ("a", "{insert: 'images', documents: [{_id: 1, x: 1}]}"),
    (
        "a",
        "{update: 'images', updates: [{q: {}, u: {$set: {x: 2}}}]}",
    ),
    (
        "a",
        "{insert: 'plain', documents: [{_id: 20, x: 20}], lsid: {id: UUID('0a000000-0000-4000-8000-000000000001')}, txnNumber: Long('1'), autocommit: false, startTransaction: true}",
    ),
    (
        "a",
        "{update: 'plain', updates: [{q: {_id: 20}, u: {$set: {x: 21}}}], lsid: {id: UUID('0a000000-0000-4000-8000-000000000001')}, txnNumber: Long('1'), autocommit: false}",
    ),
    (
        "a",
        "{insert: 'in_transaction', documents: [{_id: 1}], lsid: {id: UUID('0a000000-0000-4000-8000-000000000001')}, txnNumber: Long('1'), autocommit: false}",
    ),
    (
        "admin",
        "{commitTransaction: 1, lsid: {id: UUID('0a000000-0000-4000-8000-000000000001')}, txnNumber: Long('1'), autocommit: false}",
    ),
    (
        "a",
        "{insert: 'plain', documents: [{_id: 30, x: 30}, {_id: 31, x: 31}], lsid: {id: UUID('0a000000-0000-4000-8000-000000000002')}, txnNumber: Long('1')}",
    ),
    ("a", "{insert: 'old', documents: [{_id: 1}]}"),
    ("a", "{insert: 'target', documents: [{_id: 2}]}"),
    (
        "admin",
        "{renameCollection: 'a.old', to: 'a.target', dropTarget: true}",
    ),
    ("admin", "{renameCollection: 'a.target', to: 'a.renamed'}"),
    ("admin", "{renameCollection: 'a.images', to: 'b.images'}"),
    ("a", "{create: 'gone'}"),
    ("a", "{drop: 'gone'}"),
    ("a", "{create: 'gone', capped: true, size: 4096}"),
    (
        "a",
        "{aggregate: 'plain', pipeline: [{$match: {x: {$exists: true}}}, {$out: 'out'}], cursor: {}}",
    ),
    ("a", "{convertToCapped: 'made', size: 10000}"),
    (
        "a",
        "{collMod: 'view', viewOn: 'plain', pipeline: [{$match: {x: 2}}]}",
    ),
    ("c", "{insert: 'x', documents: [{_id: 1}]}"),
    ("c", "{dropDatabase: 1}"),
    ("d", "{insert: 'x', documents: [{_id: 1}]}"),
    ("admin", "{appendOplogNote: 1, data: {a: 1}}"),
];

/// The options of all collections of a database.
fn listed(c: &mut Connection, db: &str) -> Vec<String> {
    let list = doc! { "listCollections": 1 };
    let reply = ask(c, db, &list);
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    let docs = cursor.get_array("firstBatch").unwrap().values();
    let mut all: Vec<String> = docs.map(|v| v.to_display()).collect();
    all.sort();
    all
}

/// A collection's indexes.
fn indexes(c: &mut Connection, db: &str, name: &str) -> String {
    let reply = ask(c, db, &doc! { "listIndexes": name });
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    let docs = cursor.get_array("firstBatch").unwrap().values();
    let mut all: Vec<String> = docs.map(|v| v.to_display()).collect();
    all.sort();
    all.join(" ")
}

fn hashes(c: &mut Connection, db: &str) -> String {
    let reply = ask(c, db, &doc! { "dbHash": 1 });
    reply.as_doc().get_doc("collections").unwrap().to_display()
}

#[test]
fn its_entries_make_an_empty_server_the_same() {
    let (from, to) = (
        Server::start(ServerOptions::new()),
        Server::start(ServerOptions::new()),
    );
    let (mut a, mut b) = (from.connect(), to.connect());
    let begin = last(&mut a);
    for (db, command) in SCRIPT {
        ask(&mut a, db, &shell(command));
    }
    let all = after(&mut a, begin);
    for (_, entry) in &all {
        let mut one = ArrayBuf::new();
        one.push(entry);
        ask(&mut b, "admin", &doc! { "applyOps": one });
    }
    for db in ["a", "b", "c", "d"] {
        assert_eq!(listed(&mut a, db), listed(&mut b, db), "{db}");
        assert_eq!(hashes(&mut a, db), hashes(&mut b, db), "{db}");
    }
    for name in [
        "plain",
        "clustered",
        "collated",
        "made",
        "series",
        "renamed",
    ] {
        assert_eq!(
            indexes(&mut a, "a", name),
            indexes(&mut b, "a", name),
            "{name}"
        );
    }
    // A second time, entries that allow it are applied again without harm.
    assert!(all.len() > 40, "{}", all.len());
}

fn apply(c: &mut Connection, entry: &DocBuf) -> DocBuf {
    let mut one = ArrayBuf::new();
    one.push(entry);
    c.command_raw("admin", &doc! { "applyOps": one }).unwrap()
}

/// Entries are applied as mongorestore does it: the dumped data may be newer than the entries.
#[test]
fn entries_are_applied_over_what_is_newer() {
    let s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    ask(&mut c, "a", &doc! { "create": "c" });
    let begin = last(&mut c);
    for command in [
        "{insert: 'c', documents: [{_id: 1, x: 1}, {_id: 2}]}",
        "{update: 'c', updates: [{q: {_id: 1}, u: {$set: {x: 2}}}]}",
        "{update: 'c', updates: [{q: {_id: 2}, u: {y: 1}}]}",
        "{delete: 'c', deletes: [{q: {_id: 1}, limit: 1}]}",
    ] {
        ask(&mut c, "a", &shell(command));
    }
    let all = after(&mut c, begin);
    let before = hashes(&mut c, "a");
    ask(
        &mut c,
        "a",
        &shell("{delete: 'c', deletes: [{q: {_id: 2}, limit: 1}]}"),
    );
    let updates = |e: &&Entry| e.1.as_doc().get_str("op") == Some("u");
    assert_eq!(all.iter().filter(updates).count(), 2);
    // An update by a difference does nothing without its document; a replacement inserts it.
    for (_, entry) in all.iter().filter(updates) {
        let reply = apply(&mut c, entry);
        assert!(
            reply.as_doc().get("ok").is_some_and(|v| v.truthy()),
            "{reply:?}"
        );
    }
    assert_eq!(hashes(&mut c, "a"), before);
    // An update that is not an oplog entry has to find its document.
    let mut own = DocBuf::new();
    for e in all[1].1.as_doc().iter().filter(|e| e.name() != "ts") {
        own.append_elem(e);
    }
    let reply = apply(&mut c, &own);
    assert_eq!(
        reply.as_doc().get_str("codeName"),
        Some("UnknownError"),
        "{reply:?}"
    );
}

/// A dump that begins while a transaction is open sees nothing of the collections that it creates, so the
/// entries have to tell of them.
#[test]
fn a_dump_begun_within_a_transaction_learns_of_the_collections_that_it_makes() {
    let (from, to) = (
        Server::start(ServerOptions::new()),
        Server::start(ServerOptions::new()),
    );
    let (mut a, mut b) = (from.connect(), to.connect());
    let mut other = from.connect();
    let lsid = doc! { "id": Value::Binary { subtype: 4, bytes: &[7; 16] } };
    let in_transaction = |command: &str, starts: bool| {
        let mut d = shell(command);
        d.append("lsid", &lsid);
        d.append("txnNumber", 1_i64);
        d.append("autocommit", false);
        if starts {
            d.append("startTransaction", true);
        }
        d
    };
    for (i, command) in [
        "{create: 'indexed'}",
        "{createIndexes: 'indexed', indexes: [{key: {x: 1}, name: 'x_1', unique: true}]}",
        "{insert: 'indexed', documents: [{_id: 1, x: 1}]}",
        "{insert: 'implicit', documents: [{_id: 1}]}",
        "{create: 'empty'}",
    ]
    .iter()
    .enumerate()
    {
        ask(&mut a, "a", &in_transaction(command, i == 0));
    }
    let begin = last(&mut other);
    assert!(listed(&mut other, "a").is_empty());
    ask(
        &mut a,
        "admin",
        &in_transaction("{commitTransaction: 1}", false),
    );
    for (_, entry) in after(&mut a, begin) {
        ask(&mut b, "admin", &doc! { "applyOps": array![entry] });
    }
    assert_eq!(listed(&mut a, "a").len(), 3);
    assert_eq!(listed(&mut a, "a"), listed(&mut b, "a"));
    assert_eq!(hashes(&mut a, "a"), hashes(&mut b, "a"));
    assert_eq!(
        indexes(&mut a, "a", "indexed"),
        indexes(&mut b, "a", "indexed")
    );
}
