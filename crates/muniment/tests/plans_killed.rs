//! Cursors that are idle while their index or collection goes away. Their next batch has the rest of all
//! rows, or fails with 175 QueryPlanKilled; they never just end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{DocBuf, doc};
use muniment_wire::Connection;
use std::time::Duration;
use testkit::{Server, ServerOptions};

const DB: &str = "plans";
const ROWS: i64 = 5000;

fn j(text: &str) -> DocBuf {
    DocBuf::from_json(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Appends the `_id`s of a batch, and returns the cursor's id.
fn take(reply: &DocBuf, ids: &mut Vec<i64>) -> i64 {
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    let batch = cursor.get_array("firstBatch");
    let batch = batch.or_else(|| cursor.get_array("nextBatch")).unwrap();
    for d in batch.values().filter_map(|v| v.as_doc()) {
        ids.push(d.get("_id").and_then(|v| v.as_i64_exact()).unwrap());
    }
    cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap()
}

/// Fills a collection that has an index on `k`.
fn fill(c: &mut Connection, db: &str, name: &str) {
    let spec = muniment_value::array![doc! { "key": doc! { "k": 1 }, "name": "k_1" }];
    c.command(db, &doc! { "createIndexes": name, "indexes": spec })
        .unwrap();
    let docs: Vec<DocBuf> = (0..ROWS)
        .map(|i| doc! { "_id": i, "k": i % 100, "text": "x".repeat(100) })
        .collect();
    c.command_with(db, &doc! { "insert": name }, &[("documents", &docs)])
        .unwrap();
}

/// A cursor whose index or collection is dropped, converted, renamed or replaced while it is idle continues
/// with all rows or fails with 175, both soon afterwards and after it has released its view.
#[test]
fn a_cursor_whose_index_or_collection_goes_away_never_ends_early() {
    let server = Server::start(ServerOptions::new());
    let mut c = server.connect();
    let changes: &[(&str, &str)] = &[
        ("plans", r#"{"dropIndexes": "NAME", "index": "k_1"}"#),
        ("plans", r#"{"dropIndexes": "NAME", "index": "*"}"#),
        ("plans", r#"{"drop": "NAME"}"#),
        ("plans", r#"{"convertToCapped": "NAME", "size": 100000000}"#),
        (
            "admin",
            r#"{"renameCollection": "plans.NAME", "to": "plans.NAME_new"}"#,
        ),
        (
            "admin",
            r#"{"renameCollection": "plans.small", "to": "plans.NAME", "dropTarget": true}"#,
        ),
        (
            "plans",
            r#"{"aggregate": "few", "pipeline": [{"$out": "NAME"}], "cursor": {}}"#,
        ),
        (
            "plans",
            r#"{"collMod": "NAME", "index": {"name": "k_1", "unique": true}}"#,
        ),
        ("plans_NAME", r#"{"dropDatabase": 1}"#),
    ];
    for name in ["small", "few"] {
        let insert = doc! { "insert": name, "documents": muniment_value::array![doc! {}] };
        c.command(DB, &insert).unwrap();
    }
    let mut wrong = Vec::new();
    let mut open = Vec::new();
    for (n, (db, change)) in changes.iter().enumerate() {
        let name = format!("c{n}");
        let change = change.replace("NAME", &name);
        let (db, home) = match *db {
            "plans_NAME" => (format!("plans_{name}"), format!("plans_{name}")),
            db => (db.to_owned(), DB.to_owned()),
        };
        if change.contains("unique") {
            // Every k occurs once, and there is nothing else to wait for.
            let spec = r#"{"key": {"k": 1}, "name": "k_1", "prepareUnique": true}"#;
            let spec = muniment_value::array![j(spec)];
            let create = doc! { "createIndexes": name.as_str(), "indexes": spec };
            c.command(&home, &create).unwrap();
            let docs: Vec<DocBuf> = (0..ROWS).map(|i| doc! { "_id": i, "k": i }).collect();
            let insert = doc! { "insert": name.as_str() };
            c.command_with(&home, &insert, &[("documents", &docs)])
                .unwrap();
        } else {
            fill(&mut c, &home, &name);
        }
        // One cursor is used at once, one later; each by the index, by a scan, and in a pipeline.
        let finds = [
            r#"{"find": "NAME", "filter": {"k": {"$gte": 0}}, "hint": "k_1", "batchSize": 10}"#,
            r#"{"find": "NAME", "batchSize": 10}"#,
            r#"{"aggregate": "NAME", "cursor": {"batchSize": 10}, "hint": "k_1", "pipeline": [
                {"$match": {"k": {"$gte": 0}}}, {"$replaceWith": {"_id": "$_id"}}]}"#,
        ];
        for find in finds {
            for later in [false, true] {
                let find = j(&find.replace("NAME", &name));
                let reply = c.command(&home, &find).unwrap();
                let mut ids = Vec::new();
                let id = take(&reply, &mut ids);
                open.push((
                    later,
                    home.clone(),
                    name.clone(),
                    change.clone(),
                    find,
                    id,
                    ids,
                ));
            }
        }
        c.command(&db, &j(&change)).unwrap();
    }
    let mut waited = false;
    open.sort_by_key(|o| o.0);
    for (later, home, name, change, find, mut id, mut ids) in open {
        if later && !waited {
            // This is longer than an idle cursor keeps its view.
            std::thread::sleep(Duration::from_millis(4000));
            waited = true;
        }
        let mut killed = None;
        while id != 0 && killed.is_none() {
            let more = doc! { "getMore": id, "collection": name.as_str(), "batchSize": 1000 };
            match c.command(&home, &more) {
                Ok(reply) => id = take(&reply, &mut ids),
                Err(e) => killed = Some(e),
            }
        }
        ids.sort_unstable();
        ids.dedup();
        let n = ids.len() as i64;
        let fine = match &killed {
            Some(e) => e.code().0 == 175,
            None => n == ROWS,
        };
        if !fine {
            wrong.push(format!(
                "{change}, later: {later}: {n} rows, {killed:?} of {find:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
