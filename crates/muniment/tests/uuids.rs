//! Commands that name collections by their UUID, while other clients rename them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{DocBuf, Value, array, doc};
use muniment_wire::Connection;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions};

fn ask(c: &mut Connection, db: &str, command: &DocBuf) -> DocBuf {
    c.command_raw(db, command).unwrap()
}

fn is_ok(reply: &DocBuf) -> bool {
    reply.as_doc().get("ok").is_some_and(|v| v.truthy())
}

fn code(reply: &DocBuf) -> Option<i64> {
    reply.as_doc().get("code")?.as_i64_exact()
}

/// A UUID as a BSON value.
fn named(bytes: &[u8; 16]) -> Value<'_> {
    Value::Binary { subtype: 4, bytes }
}

/// The UUID of a collection.
fn uuid(c: &mut Connection, name: &str) -> [u8; 16] {
    let list = doc! { "listCollections": 1, "filter": doc! { "name": name } };
    let reply = ask(c, "d", &list);
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    let first = cursor.get_array("firstBatch").unwrap();
    let first = first.values().next().unwrap().as_doc().unwrap();
    match first.get_doc("info").unwrap().get("uuid") {
        Some(Value::Binary { bytes, .. }) => bytes.try_into().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Two collections exchange their names all the time. A write to one of them by its UUID always reaches that
/// one.
#[test]
fn a_write_by_uuid_is_in_that_collection() {
    let s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    for name in ["a", "b"] {
        assert!(is_ok(&ask(&mut c, "d", &doc! { "create": name })));
        // With this document, no read is empty.
        let mark = doc! { "insert": name, "documents": array![doc! { "_id": name }] };
        assert!(is_ok(&ask(&mut c, "d", &mark)));
    }
    let (a, b) = (uuid(&mut c, "a"), uuid(&mut c, "b"));
    let stop = AtomicBool::new(false);
    let until = Instant::now() + Duration::from_secs(3);
    let (renames, applied, bulk, mismatched) = std::thread::scope(|scope| {
        let renamer = scope.spawn(|| {
            let mut c = s.connect();
            let mut n = 0;
            while !stop.load(SeqCst) {
                for (from, to) in [("d.a", "d.t"), ("d.b", "d.a"), ("d.t", "d.b")] {
                    let rename = doc! { "renameCollection": from, "to": to };
                    assert!(is_ok(&ask(&mut c, "admin", &rename)));
                }
                n += 1;
            }
            n
        });
        let applier = scope.spawn(|| {
            let mut c = s.connect();
            let mut n = 0;
            while Instant::now() < until {
                n += 1;
                let entry = doc! {
                    "op": "i", "ns": "d.any", "ui": named(&a), "o": doc! { "_id": n },
                };
                let reply = ask(&mut c, "admin", &doc! { "applyOps": array![entry] });
                assert!(is_ok(&reply), "{reply:?}");
            }
            n
        });
        let writer = scope.spawn(|| {
            let mut c = s.connect();
            let (mut n, mut mismatched) = (0, 0);
            while Instant::now() < until {
                let key = -1 - n;
                let write = doc! {
                    "bulkWrite": 1,
                    "ops": array![doc! { "insert": 0, "document": doc! { "_id": key } }],
                    "nsInfo": array![doc! { "ns": "d.b", "collectionUUID": named(&b) }],
                };
                let reply = ask(&mut c, "admin", &write);
                assert!(is_ok(&reply), "{reply:?}");
                let inserted = reply
                    .as_doc()
                    .get("nInserted")
                    .and_then(|v| v.as_i64_exact());
                if inserted == Some(1) {
                    n += 1;
                    continue;
                }
                mismatched += 1;
                let cursor = reply.as_doc().get_doc("cursor").unwrap();
                let first = cursor.get_array("firstBatch").unwrap();
                let first = first.values().next().unwrap().as_doc().unwrap();
                let code = first.get("code").and_then(|v| v.as_i64_exact());
                // With 175, the collection had lost its name and has got it again.
                assert!(matches!(code, Some(361 | 175)), "{first:?}");
            }
            (n, mismatched)
        });
        let mut c = s.connect();
        while Instant::now() < until {
            let find =
                doc! { "find": named(&a), "filter": doc! { "_id": doc! { "$type": "string" } } };
            let reply = ask(&mut c, "d", &find);
            match is_ok(&reply) {
                false => assert!(matches!(code(&reply), Some(175 | 26)), "{reply:?}"),
                true => {
                    let cursor = reply.as_doc().get_doc("cursor").unwrap();
                    let first = cursor.get_array("firstBatch").unwrap();
                    assert_eq!(first.to_display(), r#"{ 0: { _id: "a" } }"#);
                }
            }
        }
        let applied = applier.join().unwrap();
        let (bulk, mismatched) = writer.join().unwrap();
        stop.store(true, SeqCst);
        (renamer.join().unwrap(), applied, bulk, mismatched)
    });
    assert!(
        renames > 10 && applied > 10 && mismatched > 0,
        "{renames} {applied} {mismatched}"
    );
    let count = |c: &mut Connection, of: &[u8; 16], filter: DocBuf| {
        let reply = ask(c, "d", &doc! { "count": named(of), "query": filter });
        reply
            .as_doc()
            .get("n")
            .and_then(|v| v.as_i64_exact())
            .unwrap()
    };
    let (above, below) = (
        doc! { "_id": doc! { "$gt": 0 } },
        doc! { "_id": doc! { "$lt": 0 } },
    );
    assert_eq!(count(&mut c, &a, above.clone()), i64::from(applied));
    assert_eq!(count(&mut c, &b, below.clone()), i64::from(bulk));
    assert_eq!((count(&mut c, &a, below), count(&mut c, &b, above)), (0, 0));
}
