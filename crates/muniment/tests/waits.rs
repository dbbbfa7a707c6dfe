//! Every wait of an operation ends soon when its time is over, when it is killed, and when its client is
//! gone, and the operation then does nothing afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{DocBuf, JsonMode, doc};
use muniment_wire::Connection;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions};

const DB: &str = "waits";

/// How long a wait may last. Tests are built without optimization and share the machine with others.
const SOON: Duration = if cfg!(debug_assertions) {
    Duration::from_millis(400)
} else {
    Duration::from_millis(100)
};

/// The `maxTimeMS` of operations that have to end by it.
const LIMIT: Duration = Duration::from_millis(100);

fn j(text: &str) -> DocBuf {
    DocBuf::from_json(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The id of the running operation whose command has this comment.
fn running(admin: &mut Connection, comment: &str) -> Option<i64> {
    let reply = admin.command("admin", &doc! { "currentOp": 1 }).unwrap();
    let list = reply.as_doc().get_array("inprog").unwrap();
    list.values().filter_map(|v| v.as_doc()).find_map(|op| {
        let its = op.get_doc("command").and_then(|d| d.get_str("comment"));
        let id = op.get("opid").and_then(|v| v.as_i64_exact());
        id.filter(|_| its == Some(comment))
    })
}

/// Waits until the operation runs; `None` if it does not.
fn found(admin: &mut Connection, comment: &str) -> Option<i64> {
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        if let Some(id) = running(admin, comment) {
            // By now it is waiting.
            std::thread::sleep(Duration::from_millis(30));
            return running(admin, comment).map(|_| id);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

fn with(cmd: &DocBuf, name: &str, value: impl muniment_value::Put) -> DocBuf {
    let mut cmd = cmd.clone();
    cmd.append(name, value);
    cmd
}

/// The timeout is longer than any wait may take, so that a wait that never ends is distinguished from a late
/// end.
fn impatient(server: &Server) -> Connection {
    let mut c = server.connect();
    c.set_timeout(Some(Duration::from_millis(1500))).unwrap();
    c
}

/// The result of a command: its own error, or that of its first failed statement.
fn code(result: &muniment_value::Result<DocBuf>) -> i64 {
    match result {
        Err(e) => i64::from(e.code().0),
        Ok(reply) => {
            let errors = reply.as_doc().get_array("writeErrors");
            let first = errors.and_then(|a| a.first()?.value().as_doc()?.get("code"));
            first.and_then(|v| v.as_i64_exact()).unwrap_or(0)
        }
    }
}

/// The command has not waited: it succeeded, or the document existed already.
fn ran(result: &muniment_value::Result<DocBuf>) -> bool {
    matches!(code(result), 0 | 11_000)
}

/// Runs a command that has to wait, and ends it in each of three ways. It adds to `wrong` if that takes too
/// long. A command that does not have to wait after all is fine if `may_succeed`.
fn must_end(server: &Server, db: &str, cmd: &str, may_succeed: bool, wrong: &mut Vec<String>) {
    let base = j(cmd);
    let mut admin = server.connect();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, SeqCst);
    let (killed, gone) = (format!("killed {number}"), format!("gone {number}"));
    // The command ends by maxTimeMS.
    let limited = with(&base, "maxTimeMS", LIMIT.as_millis() as i64);
    let began = Instant::now();
    let result = impatient(server).command(db, &limited);
    let took = began.elapsed();
    let ended = code(&result) == 50 && took < LIMIT + SOON;
    let fine = ended || (may_succeed && ran(&result));
    if !fine {
        wrong.push(format!("maxTimeMS, {took:?}: {cmd}: {result:?}"));
    }
    // The command ends by killOp.
    let cmd_killed = with(&base, "comment", killed.as_str());
    std::thread::scope(|scope| {
        let mut c = impatient(server);
        let victim = scope.spawn(move || (c.command(db, &cmd_killed), Instant::now()));
        let Some(id) = found(&mut admin, &killed) else {
            let (result, _) = victim.join().unwrap();
            if !(may_succeed && ran(&result)) {
                wrong.push(format!("it never waits: {cmd}: {result:?}"));
            }
            return;
        };
        let at = Instant::now();
        admin
            .command("admin", &doc! { "killOp": 1, "op": id })
            .unwrap();
        let (result, ended) = victim.join().unwrap();
        let took = ended.saturating_duration_since(at);
        let ended = code(&result) == 11_601 && took < SOON;
        let fine = ended || (may_succeed && ran(&result));
        if !fine {
            wrong.push(format!("killOp, {took:?}: {cmd}: {result:?}"));
        }
    });
    // The command ends because its client goes away.
    let mut c = server.connect();
    let cmd_gone = with(&base, "comment", gone.as_str());
    c.send_command(db, &cmd_gone, 0, &[]).unwrap();
    if found(&mut admin, &gone).is_none() {
        if !may_succeed {
            wrong.push(format!("it never waits: {cmd}"));
        }
        return;
    }
    drop(c);
    let at = Instant::now();
    while at.elapsed() < Duration::from_millis(1500) && running(&mut admin, &gone).is_some() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let took = at.elapsed();
    if took >= SOON {
        wrong.push(format!("client gone, {took:?}: {cmd}"));
    }
}

/// The content of the database.
fn everything(c: &mut Connection) -> String {
    let mut all = String::new();
    let mut infos = c.find_all(DB, &doc! { "listCollections": 1 }).unwrap();
    let name = |d: &DocBuf| d.as_doc().get_str("name").unwrap_or_default().to_owned();
    infos.sort_by_key(name);
    for info in &infos {
        let name = name(info);
        let docs = c.find_all(DB, &doc! { "find": name.as_str() }).unwrap();
        let indexes = c
            .find_all(DB, &doc! { "listIndexes": name.as_str() })
            .unwrap();
        for d in [info].into_iter().chain(&indexes).chain(&docs) {
            all += &d.as_doc().to_json(JsonMode::Relaxed);
            all.push('\n');
        }
    }
    all
}

fn prepared() -> Server {
    let server = Server::start(ServerOptions::new());
    let mut c = server.connect();
    for cmd in [
        r#"{"insert": "c", "documents": [{"_id": 1, "u": 1, "v": 1}, {"_id": 2, "u": 2, "v": 2}, {"_id": 3, "u": 3, "v": 3}]}"#,
        r#"{"insert": "d", "documents": [{"_id": 1}]}"#,
        r#"{"createIndexes": "c", "indexes": [
            {"key": {"u": 1}, "name": "u_1", "unique": true},
            {"key": {"v": 1}, "name": "v_1", "prepareUnique": true}]}"#,
    ] {
        c.command(DB, &j(cmd)).unwrap();
    }
    server
}

/// Commands that write documents.
const WRITES: &[&str] = &[
    r#"{"insert": "c", "documents": [{"_id": 9}]}"#,
    r#"{"insert": "new", "documents": [{"_id": 9}]}"#,
    r#"{"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"x": 1}}}]}"#,
    r#"{"update": "c", "updates": [{"q": {}, "u": {"$set": {"x": 1}}, "multi": true}]}"#,
    r#"{"update": "c", "updates": [{"q": {"_id": 8}, "u": {"$set": {"x": 1}}, "upsert": true}]}"#,
    r#"{"delete": "c", "deletes": [{"q": {"_id": 2}, "limit": 1}]}"#,
    r#"{"findAndModify": "c", "query": {"u": 3}, "update": {"$set": {"x": 1}}}"#,
    r#"{"aggregate": "c", "pipeline": [{"$merge": "d"}], "cursor": {}}"#,
];

/// Commands that change the catalog.
const CHANGES: &[&str] = &[
    r#"{"create": "new"}"#,
    r#"{"drop": "d"}"#,
    r#"{"createIndexes": "c", "indexes": [{"key": {"w": 1}, "name": "w_1"}]}"#,
    r#"{"dropIndexes": "c", "index": "v_1"}"#,
    r#"{"collMod": "c", "index": {"name": "v_1", "hidden": true}}"#,
    r#"{"collMod": "c", "index": {"name": "v_1", "unique": true}}"#,
    r#"{"convertToCapped": "d", "size": 4096}"#,
    r#"{"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}}"#,
    r#"{"dropDatabase": 1}"#,
];

/// killOp, maxTimeMS and a closed connection end the wait of every kind of write for fsyncUnlock, and the
/// write does nothing afterwards.
#[test]
fn waits_for_the_fsync_lock_end_soon() {
    let server = prepared();
    let mut admin = server.connect();
    let before = everything(&mut admin);
    admin
        .command("admin", &doc! { "fsync": 1, "lock": true })
        .unwrap();
    let mut wrong = Vec::new();
    for cmd in WRITES {
        must_end(&server, DB, cmd, false, &mut wrong);
    }
    for ordered in [true, false] {
        let ops = r#"[{"insert": 0, "document": {"_id": 9}}, {"delete": 0, "filter": {"_id": 1}}]"#;
        let cmd = format!(
            r#"{{"bulkWrite": 1, "ops": {ops}, "nsInfo": [{{"ns": "waits.c"}}], "ordered": {ordered}}}"#
        );
        must_end(&server, "admin", &cmd, false, &mut wrong);
    }
    // currentOp shows the operations that the lock blocks.
    let mut blocked = server.connect();
    let insert = with(&j(WRITES[0]), "comment", "shown");
    blocked.send_command(DB, &insert, 0, &[]).unwrap();
    let waiting = doc! { "currentOp": 1, "waitingForLock": true, "locks.Collection": "w" };
    let shown = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(2));
        let reply = admin.command("admin", &waiting).unwrap();
        let found = reply.as_doc().get_array("inprog").unwrap();
        found
            .values()
            .any(|v| v.as_doc().unwrap().get_str("ns") == Some(&format!("{DB}.c")))
    });
    if !shown {
        wrong.push("currentOp does not show that an insert waits for a lock".to_owned());
    }
    drop(blocked);
    while running(&mut admin, "shown").is_some() {
        std::thread::sleep(Duration::from_millis(2));
    }
    admin.command("admin", &doc! { "fsyncUnlock": 1 }).unwrap();
    let after = everything(&mut admin);
    if before != after {
        wrong.push(format!("done all the same:\n{after}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The wait of a hello for a change of the topology ends, too.
#[test]
fn an_awaitable_hello_ends_soon() {
    let server = Server::start(ServerOptions::new());
    let hello = server.connect().hello().unwrap();
    let version = hello.as_doc().get_doc("topologyVersion").unwrap();
    let cmd = doc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 60_000 };
    let mut wrong = Vec::new();
    let cmd = cmd.as_doc().to_json(JsonMode::Canonical);
    must_end(&server, "admin", &cmd, false, &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What a statement of a bulkWrite has stored before it failed is counted.
#[test]
fn a_bulk_write_tells_what_a_failed_statement_stored() {
    let server = Server::start(ServerOptions::new());
    let mut c = server.connect();
    for cmd in [
        r#"{"insert": "c", "documents": [{"_id": 1, "x": 1}, {"_id": 2, "x": "s"}]}"#,
        r#"{"createIndexes": "c", "indexes": [{"key": {"x": 1}, "name": "x_1"}]}"#,
    ] {
        c.command(DB, &j(cmd)).unwrap();
    }
    let cmd = r#"{"bulkWrite": 1, "nsInfo": [{"ns": "waits.c"}], "ops": [
        {"update": 0, "filter": {"x": {"$in": [1, "s"]}}, "updateMods": {"$inc": {"x": 10}}, "multi": true}]}"#;
    let reply = c.command("admin", &j(cmd)).unwrap();
    let (reply, int) = (reply.as_doc(), |d: muniment_value::Doc<'_>, name: &str| {
        d.get(name).and_then(|v| v.as_i64_exact())
    });
    assert_eq!(int(reply, "nErrors"), Some(1));
    assert_eq!(int(reply, "nMatched"), Some(1));
    assert_eq!(int(reply, "nModified"), Some(1));
    let batch = reply.get_doc("cursor").unwrap().get_array("firstBatch");
    let item = batch.unwrap().first().unwrap().value().as_doc().unwrap();
    assert_eq!(int(item, "code"), Some(14));
    assert_eq!((int(item, "n"), int(item, "nModified")), (Some(1), Some(1)));
    let changed = doc! { "find": "c", "filter": doc! { "x": 11 } };
    assert_eq!(c.find_all(DB, &changed).unwrap().len(), 1);
}

/// The same for changes of the catalog: one of them waits for fsyncUnlock, and the others wait for its locks.
#[test]
fn waits_for_changes_of_the_catalog_end_soon() {
    let server = prepared();
    let mut admin = server.connect();
    let before = everything(&mut admin);
    admin
        .command("admin", &doc! { "fsync": 1, "lock": true })
        .unwrap();
    let mut wrong = Vec::new();
    std::thread::scope(|scope| {
        let mut first = server.connect();
        first.set_timeout(None).unwrap();
        let (cmd, undo) = (
            r#"{"create": "first", "comment": "first"}"#,
            doc! { "drop": "first" },
        );
        let blocker = scope.spawn(move || {
            first.command(DB, &j(cmd)).unwrap();
            first.command(DB, &undo).unwrap();
        });
        if found(&mut admin, "first").is_none() {
            wrong.push("creating a collection does not wait for fsyncUnlock".to_owned());
        }
        for cmd in CHANGES {
            must_end(&server, DB, cmd, false, &mut wrong);
        }
        let rename = r#"{"renameCollection": "waits.c", "to": "waits.d", "dropTarget": true}"#;
        must_end(&server, "admin", rename, false, &mut wrong);
        admin.command("admin", &doc! { "fsyncUnlock": 1 }).unwrap();
        blocker.join().unwrap();
    });
    let after = everything(&mut admin);
    if before != after {
        wrong.push(format!("done all the same:\n{after}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The wait for a document that another operation is changing ends soon, however long the change takes.
#[test]
fn waits_for_a_document_in_use_end_soon() {
    let server = prepared();
    let mut admin = server.connect();
    let mut wrong = Vec::new();
    std::thread::scope(|scope| {
        let mut slow = server.connect();
        slow.set_timeout(None).unwrap();
        let holder = scope.spawn(move || {
            // This would take minutes, and is killed.
            let cmd = r#"{"update": "c", "comment": "slow", "updates": [{"q": {"_id": 1}, "u": [
                {"$set": {"x": {"$size": {"$filter": {"input": {"$range": [0, 1000000]}, "as": "o",
                    "cond": {"$eq": [-1, {"$size": {"$filter": {"input": {"$range": [0, 100000]},
                        "as": "i", "cond": {"$eq": ["$$i", {"$subtract": ["$$o", "$u"]}]}}}}]}}}}}}]}]}"#;
            let reply = slow.command(DB, &j(cmd));
            let failed = match &reply {
                Ok(r) => r.as_doc().get_array("writeErrors").is_some(),
                Err(_) => true,
            };
            assert!(failed, "the slow update was not slow: {reply:?}");
        });
        let id = found(&mut admin, "slow").expect("the slow update runs");
        // By now it has the document.
        std::thread::sleep(Duration::from_millis(500));
        for cmd in [
            r#"{"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"y": 1}}}]}"#,
            r#"{"update": "c", "updates": [{"q": {"u": 1}, "u": {"$set": {"y": 1}}}]}"#,
            r#"{"update": "c", "updates": [{"q": {}, "u": {"$set": {"y": 1}}, "multi": true}]}"#,
            r#"{"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"y": 1}}}"#,
            r#"{"insert": "c", "documents": [{"_id": 1}], "ordered": false}"#,
            r#"{"delete": "c", "deletes": [{"q": {"_id": 1, "y": 7}, "limit": 1}]}"#,
            r#"{"collMod": "c", "index": {"name": "v_1", "hidden": true}}"#,
            r#"{"createIndexes": "c", "indexes": [{"key": {"w": 1}, "name": "w_1"}]}"#,
        ] {
            must_end(&server, DB, cmd, true, &mut wrong);
        }
        admin
            .command("admin", &doc! { "killOp": 1, "op": id })
            .unwrap();
        holder.join().unwrap();
    });
    let one = doc! { "find": "c", "filter": doc! { "_id": 1 } };
    let changed = |d: &DocBuf| d.as_doc().get("x").is_some();
    assert!(!admin.find_all(DB, &one).unwrap().iter().any(changed));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The server notices a client that closes its end, or only its sending direction. Writes for which it wants no
/// reply are still executed, also if they have to wait.
#[test]
fn a_client_that_hangs_up_ends_what_waits_but_for_what_needs_no_reply() {
    let server = prepared();
    let mut admin = server.connect();
    admin
        .command("admin", &doc! { "fsync": 1, "lock": true })
        .unwrap();
    for half in [false, true] {
        let comment = if half { "half" } else { "whole" };
        let mut c = server.connect();
        c.send_command(DB, &with(&j(WRITES[0]), "comment", comment), 0, &[])
            .unwrap();
        found(&mut admin, comment).expect("it waits");
        match half {
            true => c.stream().shutdown_write().unwrap(),
            false => c.stream().shutdown().unwrap(),
        }
        let at = Instant::now();
        while running(&mut admin, comment).is_some() {
            assert!(at.elapsed() < Duration::from_secs(20), "{comment}");
            std::thread::sleep(Duration::from_millis(1));
        }
        println!("a client that closes its {comment} end: {:?}", at.elapsed());
    }
    for id in 100..120 {
        if id == 110 {
            // By now the first ones have waited for longer than any grace.
            std::thread::sleep(Duration::from_millis(50));
            admin.command("admin", &doc! { "fsyncUnlock": 1 }).unwrap();
        }
        let mut c = server.connect();
        let cmd = format!(
            r#"{{"insert": "c", "documents": [{{"_id": {id}, "u": {id}, "v": {id}}}],
                 "writeConcern": {{"w": 0}}}}"#
        );
        // A driver does not wait for an answer here.
        c.send_only(DB, &j(&cmd)).unwrap();
        drop(c);
    }
    let sent = doc! { "find": "c", "filter": doc! { "_id": doc! { "$gte": 100 } } };
    let at = Instant::now();
    while admin.find_all(DB, &sent).unwrap().len() < 20 {
        assert!(at.elapsed() < Duration::from_secs(20), "writes were lost");
        std::thread::sleep(Duration::from_millis(5));
    }
}
