//! Anything that the server accepts nests no deeper than every place that shows it can represent: documents
//! and definitions, by whatever command they come, in finds, the oplog, change streams, images, lists,
//! `validate` and after a kill. Deeper nesting is refused with 15 Overflow.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{DocBuf, MAX_DEPTH, MAX_MESSAGE_DEPTH, Value, array, doc};
use muniment_wire::Connection;
use testkit::Set;

fn nested(levels: usize) -> DocBuf {
    (1..levels).fold(doc! {}, |inner, _| doc! { "a": inner })
}

fn code(c: &mut Connection, db: &str, command: &DocBuf) -> i64 {
    let reply = c.command_raw(db, command).unwrap();
    let errors = reply.as_doc().get_array("writeErrors");
    let first = errors.and_then(|e| e.values().next()?.as_doc());
    let code = first.unwrap_or(reply.as_doc()).get("code");
    code.map_or(0, |v| v.as_i64_exact().unwrap())
}

/// The commands that store something with this many levels, with the commands that they need before them.
fn commands(n: usize) -> Vec<(&'static str, Vec<DocBuf>)> {
    let id = n as i64;
    let with = |below: usize| doc! { "_id": id, "x": nested(below) };
    let name = |kind: &str| format!("{kind}{n}");
    let update = |to: &str, u: DocBuf| {
        let q = doc! { "q": doc! { "_id": id }, "u": u, "upsert": true };
        doc! { "update": to, "updates": array![q] }
    };
    let insert = |to: &str, below: usize| doc! { "insert": to, "documents": array![with(below)] };
    let lsid = doc! { "id": Value::Binary { subtype: 4, bytes: &[id as u8; 16] } };
    let in_session = |mut d: DocBuf, txn: i64| {
        d.append("lsid", &lsid);
        d.append("txnNumber", txn);
        d
    };
    let mut begun = in_session(insert("t", n - 1), 3);
    begun.append("autocommit", false);
    begun.append("startTransaction", true);
    let mut committed = in_session(doc! { "commitTransaction": 1, "$db": "admin" }, 3);
    committed.append("autocommit", false);
    let scope = nested(n - 1);
    let code = Value::CodeWithScope {
        code: "",
        scope: scope.as_doc(),
    };
    let coded = doc! { "_id": -id, "x": code };
    let ops = |op: DocBuf| doc! { "applyOps": array![op], "$db": "admin" };
    let index = doc! {
        "key": doc! { "k": 1 }, "name": "k", "partialFilterExpression": doc! { "k": nested(n - 2) },
    };
    let filter = || doc! { "k": nested(n - 1) };
    vec![
        ("insert", vec![insert("c", n - 1)]),
        (
            "insert of a scope",
            vec![doc! { "insert": "c", "documents": array![coded] }],
        ),
        ("insert with images", vec![insert("images", n - 1)]),
        (
            "a change with images",
            vec![
                insert("images", n - 1),
                update("images", doc! { "$set": doc! { "y": 1 } }),
            ],
        ),
        (
            "replacement",
            vec![insert("r", 1), update("r", doc! { "x": nested(n - 1) })],
        ),
        (
            "operators",
            vec![
                insert("s", 1),
                update("s", doc! { "$set": doc! { "x.a": nested(n - 2) } }),
            ],
        ),
        ("upsert", vec![update("p", doc! { "x": nested(n - 1) })]),
        (
            "retryable",
            vec![in_session(
                doc! {
                    "findAndModify": "f", "query": doc! { "_id": id }, "update": doc! { "x": nested(n - 1) },
                    "upsert": true, "new": true,
                },
                2,
            )],
        ),
        ("transaction", vec![begun, committed]),
        (
            "applyOps",
            vec![ops(doc! { "op": "i", "ns": "d.o", "o": with(n - 1) })],
        ),
        (
            "note",
            vec![doc! { "appendOplogNote": 1, "data": nested(n), "$db": "admin" }],
        ),
        (
            "validator",
            vec![doc! { "create": name("v"), "validator": filter() }],
        ),
        (
            "changed validator",
            vec![
                doc! { "create": name("w") },
                doc! { "collMod": name("w"), "validator": filter() },
            ],
        ),
        (
            "applied validator",
            vec![ops(doc! {
                "op": "c", "ns": "d.$cmd", "o": doc! { "create": name("x"), "validator": filter() },
            })],
        ),
        (
            "index",
            vec![doc! { "createIndexes": name("i"), "indexes": array![&index] }],
        ),
        (
            "view",
            vec![doc! {
                "create": name("view"), "viewOn": "c",
                "pipeline": array![doc! { "$match": doc! { "k": nested(n - 4) } }],
            }],
        ),
    ]
}

fn read_all(c: &mut Connection) -> usize {
    let mut n = 0;
    for (db, name) in [
        ("local", "oplog.rs"),
        ("config", "system.preimages"),
        ("config", "transactions"),
        ("config", "image_collection"),
        ("d", "system.profile"),
    ] {
        n += c.find_all(db, &doc! { "find": name }).unwrap().len();
    }
    let pipeline = array![doc! { "$changeStream": doc! {
        "startAtOperationTime": Value::Timestamp { t: 1, i: 1 }, "allChangesForCluster": true,
        "fullDocumentBeforeChange": "whenAvailable", "showExpandedEvents": true,
    } }];
    let watch = doc! { "aggregate": 1, "pipeline": pipeline, "cursor": doc! {} };
    let reply = c.command("admin", &watch).unwrap();
    let mut cursor = reply.as_doc().get_doc("cursor").unwrap().to_buf();
    loop {
        let batch = ["firstBatch", "nextBatch"].map(|b| cursor.as_doc().get_array(b));
        let events = batch.into_iter().flatten().next().unwrap().count();
        n += events;
        if events == 0 {
            break;
        }
        let id = cursor.as_doc().get("id").unwrap().as_i64_exact().unwrap();
        let more = doc! { "getMore": id, "collection": "$cmd.aggregate", "maxTimeMS": 300 };
        let reply = c.command("admin", &more).unwrap();
        cursor = reply.as_doc().get_doc("cursor").unwrap().to_buf();
    }
    for d in c.find_all("d", &doc! { "listCollections": 1 }).unwrap() {
        let name = d.as_doc().get_str("name").unwrap();
        n += c.find_all("d", &doc! { "find": name }).unwrap().len();
        if d.as_doc().get_str("type") == Some("view") {
            continue;
        }
        n += c
            .find_all("d", &doc! { "listIndexes": name })
            .unwrap()
            .len();
        let reply = c
            .command("d", &doc! { "validate": name, "full": true })
            .unwrap();
        let valid = reply.as_doc().get("valid").is_some_and(|v| v.truthy());
        assert!(valid, "{name}: {reply:?}");
    }
    n
}

#[test]
fn everything_accepted_can_be_shown() {
    let mut set = Set::start(1);
    let mut c = set.connect(0);
    let images =
        doc! { "create": "images", "changeStreamPreAndPostImages": doc! { "enabled": true } };
    assert_eq!(code(&mut c, "d", &images), 0);
    assert_eq!(code(&mut c, "d", &doc! { "create": "o" }), 0);
    assert_eq!(code(&mut c, "d", &doc! { "profile": 2 }), 0);
    for n in MAX_DEPTH - 4..MAX_DEPTH + 5 {
        for (what, commands) in commands(n) {
            let mut codes = commands.iter().map(|d| code(&mut c, "d", d));
            let got = codes.find(|got| *got != 0 && *got != 11000).unwrap_or(0);
            // A definition inside another one has a level or two less.
            match n {
                ..=178 => assert_eq!(got, 0, "{what} of {n} levels"),
                181.. => assert!([15, 251].contains(&got), "{what} of {n} levels: {got}"),
                _ => assert!([0, 15, 251].contains(&got), "{what} of {n} levels: {got}"),
            }
        }
    }
    // The profiler also records commands that nest as deep as messages may.
    let deep = doc! { "find": "c", "filter": doc! { "k": nested(MAX_MESSAGE_DEPTH - 2) } };
    assert_eq!(code(&mut c, "d", &deep), 0);
    assert_eq!(code(&mut c, "d", &doc! { "profile": 0 }), 0);
    assert!(read_all(&mut c) > 200);
    drop(c);
    set.members[0].kill9();
    set.members[0].start_again();
    set.settle();
    assert!(read_all(&mut set.connect(0)) > 200);
}
