//! Collections with options over the wire: validators, views, collMod.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{ArrayBuf, Doc, DocBuf, array, doc};
use muniment_wire::Connection;
use testkit::{Server, ServerOptions};

fn run(c: &mut Connection, command: &DocBuf) -> DocBuf {
    c.command_raw("t", command).unwrap()
}

fn code(reply: &DocBuf) -> i64 {
    let d = reply.as_doc();
    let error = d
        .get_array("writeErrors")
        .and_then(|a| a.values().next())
        .and_then(|v| v.as_doc())
        .unwrap_or(d);
    error
        .get("code")
        .and_then(|v| v.as_i64_exact())
        .unwrap_or(0)
}

fn batch(reply: &DocBuf) -> Vec<DocBuf> {
    let cursor = reply
        .as_doc()
        .get_doc("cursor")
        .unwrap_or_else(|| panic!("{reply:?}"));
    let batch = cursor.get_array("firstBatch").unwrap();
    batch
        .values()
        .filter_map(|v| v.as_doc())
        .map(|d: Doc<'_>| d.to_buf())
        .collect()
}

fn insert(c: &mut Connection, into: &str, documents: ArrayBuf) -> DocBuf {
    run(c, &doc! { "insert": into, "documents": documents })
}

#[test]
fn validators_can_be_set_changed_and_passed_by() {
    let s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    let schema = doc! { "$jsonSchema": doc! { "required": array!["a"] } };
    let create = doc! { "create": "v", "validator": &schema };
    assert_eq!(code(&run(&mut c, &create)), 0);
    // The same command again is not an error; other options are.
    assert_eq!(code(&run(&mut c, &create)), 0);
    assert_eq!(code(&run(&mut c, &doc! { "create": "v" })), 48);
    let refused = insert(&mut c, "v", array![doc! { "_id": 1 }]);
    assert_eq!(code(&refused), 121);
    let shown = format!("{refused:?}");
    assert!(shown.contains("missingProperties"), "{shown}");
    let bypass = doc! {
        "insert": "v", "documents": array![doc! { "_id": 1 }], "bypassDocumentValidation": true,
    };
    assert_eq!(code(&run(&mut c, &bypass)), 0);
    let moderate = doc! { "collMod": "v", "validationLevel": "moderate" };
    assert_eq!(code(&run(&mut c, &moderate)), 0);
    let update = doc! {
        "update": "v", "updates": array![doc! { "q": doc! { "_id": 1 }, "u": doc! { "$set": doc! { "b": 1 } } }],
    };
    assert_eq!(code(&run(&mut c, &update)), 0);
    let listed = batch(&run(&mut c, &doc! { "listCollections": 1 }));
    assert_eq!(
        listed[0].as_doc().get_doc("options").unwrap().to_buf(),
        doc! { "validator": &schema, "validationLevel": "moderate" }
    );
    for (change, wanted) in [
        (doc! { "collMod": "v", "validationLevel": "Strict" }, 2),
        (
            doc! { "collMod": "v", "validator": doc! { "$where": "1" } },
            2,
        ),
        (doc! { "collMod": "v", "viewOn": "x" }, 72),
        (doc! { "collMod": "v", "cappedSize": 4096 }, 72),
        (doc! { "collMod": "w", "validator": doc! {} }, 26),
        (doc! { "collMod": "v", "dryRun": true }, 72),
        (doc! { "collMod": "v", "validator": doc! {} }, 0),
    ] {
        assert_eq!(code(&run(&mut c, &change)), wanted, "{change:?}");
    }
    assert_eq!(code(&insert(&mut c, "v", array![doc! { "_id": 2 }])), 0);
}

#[test]
fn views_are_made_read_changed_and_dropped() {
    let s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    let documents = array![
        doc! { "_id": 1, "a": 1 },
        doc! { "_id": 2, "a": 2 },
        doc! { "_id": 3, "a": 2 }
    ];
    insert(&mut c, "c", documents);
    let only = |a: i32| array![doc! { "$match": doc! { "a": a } }];
    let create = doc! { "create": "w", "viewOn": "c", "pipeline": only(2) };
    assert_eq!(code(&run(&mut c, &create)), 0);
    assert_eq!(batch(&run(&mut c, &doc! { "find": "w" })).len(), 2);
    let count = run(&mut c, &doc! { "count": "w" });
    assert_eq!(count.as_doc().get("n").unwrap().as_i64_exact(), Some(2));
    let sum = doc! { "$group": doc! { "_id": 1, "n": doc! { "$sum": "$_id" } } };
    let aggregate = doc! { "aggregate": "w", "pipeline": array![sum], "cursor": doc! {} };
    assert_eq!(batch(&run(&mut c, &aggregate)), [doc! { "_id": 1, "n": 5 }]);
    for (command, wanted) in [
        (doc! { "insert": "w", "documents": array![doc! {}] }, 166),
        (
            doc! { "delete": "w", "deletes": array![doc! { "q": doc! {}, "limit": 0 }] },
            166,
        ),
        (
            doc! { "createIndexes": "w", "indexes": array![doc! { "key": doc! { "a": 1 }, "name": "a" }] },
            166,
        ),
        (doc! { "dropIndexes": "w", "index": "*" }, 166),
        (doc! { "create": "w" }, 48),
        (doc! { "create": "x", "viewOn": "x" }, 5),
        (
            doc! { "create": "x", "viewOn": "c", "pipeline": array![doc! { "$out": "y" }] },
            167,
        ),
        (
            doc! { "collMod": "w", "index": doc! { "name": "a", "hidden": true } },
            72,
        ),
        (doc! { "collMod": "w", "pipeline": only(1) }, 0),
    ] {
        assert_eq!(code(&run(&mut c, &command)), wanted, "{command:?}");
    }
    assert_eq!(batch(&run(&mut c, &doc! { "find": "w" })).len(), 1);
    let views = batch(&run(
        &mut c,
        &doc! { "listCollections": 1, "filter": doc! { "type": "view" } },
    ));
    assert_eq!(views.len(), 1);
    assert_eq!(code(&run(&mut c, &doc! { "drop": "w" })), 0);
    assert!(batch(&run(&mut c, &doc! { "find": "w" })).is_empty());
}

#[test]
fn an_index_becomes_unique() {
    let s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    let documents = array![doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 1 }];
    insert(&mut c, "c", documents);
    let index = doc! { "key": doc! { "a": 1 }, "name": "a" };
    run(
        &mut c,
        &doc! { "createIndexes": "c", "indexes": array![index] },
    );
    let change = |d: DocBuf| {
        let mut index = doc! { "name": "a" };
        index.append_all(d.as_doc());
        doc! { "collMod": "c", "index": index }
    };
    let unique = change(doc! { "unique": true });
    assert_eq!(code(&run(&mut c, &unique)), 72);
    assert_eq!(
        code(&run(&mut c, &change(doc! { "prepareUnique": true }))),
        0
    );
    assert_eq!(
        code(&insert(&mut c, "c", array![doc! { "_id": 3, "a": 1 }])),
        11000
    );
    assert_eq!(code(&run(&mut c, &unique)), 359);
    run(
        &mut c,
        &doc! { "delete": "c", "deletes": array![doc! { "q": doc! { "_id": 2 }, "limit": 1 }] },
    );
    let done = run(&mut c, &unique);
    assert_eq!(
        done.as_doc().get("unique_new").and_then(|v| v.as_bool()),
        Some(true)
    );
    assert_eq!(
        code(&insert(&mut c, "c", array![doc! { "_id": 3, "a": 1 }])),
        11000
    );
}
