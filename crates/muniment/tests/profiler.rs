//! `profile` over the wire: the records in system.profile, and what filters and samples leave out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{ArrayBuf, DocBuf, Value, array, doc};
use muniment_wire::Connection;
use testkit::{Server, ServerOptions};

fn run(c: &mut Connection, command: &DocBuf) -> DocBuf {
    c.command_raw("t", command).unwrap()
}

fn ok(c: &mut Connection, command: &DocBuf) -> DocBuf {
    let reply = run(c, command);
    let fine = reply.as_doc().get("ok").is_some_and(|v| v.truthy());
    assert!(fine, "{command:?}: {reply:?}");
    reply
}

fn recorded(c: &mut Connection, filter: DocBuf) -> i64 {
    let reply = ok(c, &doc! { "count": "system.profile", "query": filter });
    reply.as_doc().get("n").unwrap().as_i64_exact().unwrap()
}

#[test]
fn operations_are_recorded_by_level_filter_and_sample() {
    let s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    ok(
        &mut c,
        &doc! { "insert": "c", "documents": array![doc! { "_id": 1 }] },
    );
    let find = doc! { "find": "c", "filter": doc! { "_id": 1 } };
    let of_find = || doc! { "op": "query", "ns": "t.c" };

    // Every command counts as slow, so level 1 records all of them unless sampling leaves them out.
    ok(&mut c, &doc! { "profile": 1, "slowms": 0 });
    ok(&mut c, &find);
    assert_eq!(recorded(&mut c, of_find()), 1);
    ok(&mut c, &doc! { "profile": 1, "sampleRate": 0 });
    ok(&mut c, &find);
    assert_eq!(recorded(&mut c, of_find()), 1);
    // Level 2 records everything.
    ok(&mut c, &doc! { "profile": 2 });
    ok(&mut c, &find);
    assert_eq!(recorded(&mut c, of_find()), 2);

    // A filter replaces slowms and sampleRate.
    let filter = doc! { "op": "insert", "ninserted": doc! { "$gt": 1 } };
    ok(&mut c, &doc! { "profile": 1, "filter": &filter });
    ok(&mut c, &find);
    for ids in [array![doc! { "_id": 2 }], array![doc! {}, doc! {}]] {
        ok(&mut c, &doc! { "insert": "c", "documents": ids });
    }
    assert_eq!(recorded(&mut c, of_find()), 2);
    assert_eq!(recorded(&mut c, doc! { "op": "insert" }), 1);
    assert_eq!(recorded(&mut c, doc! { "op": "insert", "ninserted": 2 }), 1);
    let told = run(&mut c, &doc! { "profile": -1 });
    let told = told.as_doc();
    assert!(matches!(told.get("was"), Some(Value::Int32(1))), "{told:?}");
    let shown = told.get_doc("filter").unwrap().to_buf();
    let equal = doc! {
        "$and": array![
            doc! { "op": doc! { "$eq": "insert" } },
            doc! { "ninserted": doc! { "$gt": 1 } },
        ],
    };
    assert_eq!(shown, equal);
    assert!(told.get_str("note").is_some());

    // Without the filter, sampling applies again. Other databases never had the filter.
    ok(
        &mut c,
        &doc! { "profile": 1, "filter": "unset", "sampleRate": 1.0 },
    );
    ok(&mut c, &find);
    assert_eq!(recorded(&mut c, of_find()), 3);
    let told = run(&mut c, &doc! { "profile": -1 });
    assert!(told.as_doc().get("filter").is_none(), "{told:?}");
    // A command that fails is recorded with its error.
    run(&mut c, &doc! { "find": "c", "filter": doc! { "$nope": 1 } });
    assert_eq!(recorded(&mut c, doc! { "errName": "BadValue" }), 1);
    for wrong in [
        doc! { "profile": 1, "filter": "UNSET" },
        doc! { "profile": 1, "filter": 1 },
        doc! { "profile": 1, "filter": doc! { "$nope": 1 } },
        doc! { "profile": 1, "sampleRate": 1.5 },
    ] {
        let reply = run(&mut c, &wrong);
        let code = reply.as_doc().get("code").unwrap().as_i64_exact();
        assert_eq!(code, Some(2), "{wrong:?}");
    }
}

/// A getMore is recorded with the comment of the command whose cursor it reads.
#[test]
fn a_get_more_has_the_comment_of_its_cursor() {
    let s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    let documents = array![doc! {}, doc! {}, doc! {}, doc! {}];
    ok(&mut c, &doc! { "insert": "c", "documents": documents });
    ok(&mut c, &doc! { "profile": 2 });
    let find = doc! { "find": "c", "batchSize": 1, "comment": "why" };
    let reply = ok(&mut c, &find);
    let id = reply.as_doc().get_doc("cursor").unwrap().get("id").unwrap();
    let id = id.as_i64_exact().unwrap();
    let more = doc! { "getMore": id, "collection": "c", "batchSize": 1 };
    ok(&mut c, &more);
    let mut own = more.clone();
    own.append("comment", "mine");
    ok(&mut c, &own);
    for comment in ["why", "mine"] {
        let filter = doc! { "op": "getmore", "command.comment": comment };
        assert_eq!(recorded(&mut c, filter), 1, "{comment}");
    }
}

/// Of a command that is longer than 50 KB, the beginning is recorded as text.
#[test]
fn long_commands_are_cut_off() {
    let s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    ok(&mut c, &doc! { "profile": 2 });
    let long = "x".repeat(60_000);
    let find = doc! { "find": "c", "filter": doc! { "a": long.as_str() }, "comment": "long" };
    ok(&mut c, &find);
    let read = doc! { "find": "system.profile", "filter": doc! { "command.comment": "long" } };
    let reply = ok(&mut c, &read);
    let batch = reply.as_doc().get_doc("cursor").unwrap();
    let batch = batch.get_array("firstBatch").unwrap();
    let first = batch.values().next().unwrap().as_doc().unwrap();
    let text = first.get_doc("command").unwrap().get_str("$truncated");
    let text = text.unwrap();
    assert!(
        text.starts_with("{ find: \"c\", filter: { a: \"xxx"),
        "{text}"
    );
    assert_eq!(text.len(), 50 << 10);
}

/// opcounters count the statements that were tried: an ordered command ends at its first error.
#[test]
fn opcounters_count_the_statements_that_were_tried() {
    let s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    let ids = |ids: &[i32]| -> ArrayBuf { ids.iter().map(|id| doc! { "_id": *id }).collect() };
    run(
        &mut c,
        &doc! { "insert": "c", "documents": ids(&[1, 1, 2, 3]) },
    );
    run(
        &mut c,
        &doc! { "insert": "c", "documents": ids(&[4, 4, 5]), "ordered": false },
    );
    let bad = || doc! { "q": doc! { "_id": 1 }, "u": doc! { "$inc": doc! { "_id": 1 } } };
    run(
        &mut c,
        &doc! { "update": "c", "updates": array![bad(), bad(), bad()] },
    );
    let bad = || doc! { "q": doc! { "$nope": 1 }, "limit": 0 };
    run(
        &mut c,
        &doc! { "delete": "c", "deletes": array![bad(), bad()], "ordered": false },
    );
    let status = c.command("admin", &doc! { "serverStatus": 1 }).unwrap();
    let counted = status.as_doc().get_doc("opcounters").unwrap();
    let of = |name: &str| counted.get(name).unwrap().as_i64_exact().unwrap();
    assert_eq!((of("insert"), of("update"), of("delete")), (2 + 3, 1, 2));
}

/// An aggregation counts as a query, and a bulkWrite as its operations.
#[test]
fn opcounters_count_what_commands_do() {
    let s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    let counted = |c: &mut Connection| -> Vec<i64> {
        let status = c.command("admin", &doc! { "serverStatus": 1 }).unwrap();
        let all = status.as_doc().get_doc("opcounters").unwrap();
        ["insert", "query", "update", "delete", "getmore", "command"]
            .map(|n| all.get(n).unwrap().as_i64_exact().unwrap())
            .to_vec()
    };
    let pipeline = array![doc! { "$match": doc! { "a": 1 } }];
    let bulk = doc! {
        "bulkWrite": 1,
        "ops": array![
            doc! { "insert": 0, "document": doc! { "_id": 1 } },
            doc! { "insert": 0, "document": doc! { "_id": 1 } },
            doc! { "update": 0, "filter": doc! {}, "updateMods": doc! { "$set": doc! { "a": 1 } } },
            doc! { "delete": 0, "filter": doc! { "a": 2 } },
        ],
        "ordered": false,
        "nsInfo": array![doc! { "ns": "d.c" }],
    };
    let modify = doc! { "findAndModify": "c", "query": doc! {}, "remove": true };
    // The columns are insert, query, update, delete, getmore and command; serverStatus itself counts as a
    // command.
    for (db, command, wanted) in [
        ("d", doc! { "find": "c" }, [0, 1, 0, 0, 0, 1]),
        (
            "d",
            doc! { "aggregate": "c", "pipeline": pipeline, "cursor": doc! {} },
            [0, 1, 0, 0, 0, 1],
        ),
        ("admin", bulk, [2, 0, 1, 1, 0, 1]),
        ("d", doc! { "count": "c" }, [0, 0, 0, 0, 0, 2]),
        ("d", modify, [0, 0, 0, 0, 0, 2]),
        ("d", doc! { "ping": 1 }, [0, 0, 0, 0, 0, 2]),
    ] {
        let before = counted(&mut c);
        c.command(db, &command).unwrap();
        let after = counted(&mut c);
        let more: Vec<i64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
        assert_eq!(more, wanted, "{command:?}");
    }
}

/// The slow-operation log shows what writes have examined and changed, as the records do.
#[test]
fn slow_writes_are_logged_with_what_they_did() {
    let s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    let documents = array![
        doc! { "_id": 1, "a": 1 },
        doc! { "_id": 2, "a": 2 },
        doc! { "_id": 3, "a": 2 }
    ];
    ok(&mut c, &doc! { "insert": "c", "documents": documents });
    ok(&mut c, &doc! { "profile": 0, "slowms": 0 });
    let set = || doc! { "$set": doc! { "b": 1 } };
    for q in [doc! { "a": 2 }, doc! { "_id": 3 }] {
        let updates = array![doc! { "q": q, "u": set() }];
        ok(&mut c, &doc! { "update": "c", "updates": updates });
    }
    let modify =
        doc! { "findAndModify": "c", "query": doc! { "a": 2 }, "remove": true, "comment": "why" };
    ok(&mut c, &modify);
    ok(&mut c, &doc! { "count": "c" });
    ok(&mut c, &doc! { "profile": 0, "slowms": 100 });
    let log = c.command("admin", &doc! { "getLog": "global" }).unwrap();
    let lines = log.as_doc().get_array("log").unwrap();
    let lines: Vec<&str> = lines.values().filter_map(|v| v.as_str()).collect();
    let has = |parts: &[&str]| {
        let found = |line: &&&str| {
            line.contains("Slow query") && parts.iter().all(|part| line.contains(part))
        };
        assert!(lines.iter().find(found).is_some(), "{parts:?}: {lines:#?}");
    };
    let updated = r#""nMatched":1,"nModified":1,"nUpserted":0,"numYields":0"#;
    has(&[
        r#""planSummary":"COLLSCAN","keysExamined":0,"docsExamined":2"#,
        updated,
    ]);
    has(&[r#""keysExamined":1,"docsExamined":1"#, updated]);
    has(&[r#""comment":"why""#, r#""docsExamined":2,"ndeleted":1"#]);
    has(&[r#""planSummary":"RECORD_STORE_FAST_COUNT""#]);
}

/// A slow getMore is logged as a slow find is. Time in which a command waited for news is no part of what
/// it took.
#[test]
fn a_get_more_is_slow_by_what_it_does_and_not_by_what_it_waits_for() {
    const WAIT_MILLIS: i64 = 2000;
    let s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    ok(
        &mut c,
        &doc! { "create": "k", "capped": true, "size": 4096 },
    );
    let documents = array![doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 3 }];
    ok(&mut c, &doc! { "insert": "k", "documents": documents });
    let cursor = |c: &mut Connection, find: DocBuf| {
        let reply = ok(c, &find);
        reply
            .as_doc()
            .get_doc("cursor")
            .unwrap()
            .get("id")
            .unwrap()
            .as_i64_exact()
            .unwrap()
    };
    let plain = cursor(&mut c, doc! { "find": "k", "batchSize": 1 });
    let tailing = cursor(
        &mut c,
        doc! { "find": "k", "tailable": true, "awaitData": true },
    );
    let hello = ok(&mut c, &doc! { "hello": 1 });
    let topology = hello.as_doc().get_doc("topologyVersion").unwrap().to_buf();

    ok(&mut c, &doc! { "profile": 0, "slowms": 0 });
    ok(&mut c, &doc! { "getMore": plain, "collection": "k" });
    ok(&mut c, &doc! { "profile": 0, "slowms": WAIT_MILLIS });
    let wait = doc! { "getMore": tailing, "collection": "k", "maxTimeMS": WAIT_MILLIS };
    ok(&mut c, &wait);
    let wait = doc! { "hello": 1, "topologyVersion": topology, "maxAwaitTimeMS": WAIT_MILLIS };
    ok(&mut c, &wait);

    let log = c.command("admin", &doc! { "getLog": "global" }).unwrap();
    let lines = log.as_doc().get_array("log").unwrap();
    let of_get_more = lines
        .values()
        .filter_map(|v| v.as_str())
        .filter(|line| line.contains("Slow query") && line.contains(r#""command":{"getMore":"#));
    let of_get_more: Vec<&str> = of_get_more.collect();
    assert_eq!(of_get_more.len(), 1, "{of_get_more:#?}");
    assert!(
        of_get_more[0].contains(r#""originatingCommand":{"find":"k""#),
        "{of_get_more:#?}"
    );
    let status = ok(&mut c, &doc! { "serverStatus": 1 });
    for kind in ["reads", "commands"] {
        let latencies = status.as_doc().get_doc("opLatencies").unwrap();
        let micros = latencies.get_doc(kind).unwrap().get("latency").unwrap();
        assert!(
            micros.as_i64_exact().unwrap() < WAIT_MILLIS * 1000,
            "{kind}: {micros:?}"
        );
    }
}

/// Records have the thread's time on a processor, if the system reports it.
#[test]
fn records_tell_the_time_on_a_processor() {
    let s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    ok(&mut c, &doc! { "profile": 2 });
    ok(
        &mut c,
        &doc! { "insert": "c", "documents": array![doc! { "_id": 1 }] },
    );
    let updates = array![doc! { "q": doc! { "_id": 1 }, "u": doc! { "$set": doc! { "a": 1 } } }];
    ok(&mut c, &doc! { "update": "c", "updates": updates });
    ok(&mut c, &doc! { "find": "c" });
    let told = if cfg!(target_os = "linux") { 3 } else { 0 };
    let filter = doc! { "ns": "t.c", "cpuNanos": doc! { "$gt": 0 } };
    assert_eq!(recorded(&mut c, filter), told);
}

/// A server with a document, all of whose commands are recorded from now on.
fn profiled() -> (Server, Connection) {
    let s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    ok(
        &mut c,
        &doc! { "insert": "c", "documents": array![doc! { "_id": 1 }] },
    );
    ok(&mut c, &doc! { "profile": 2 });
    (s, c)
}

/// Of a plan that is too large for the collection of the records, only the name of its first stage is
/// recorded.
#[test]
fn long_plans_are_cut_off() {
    let (_server, mut c) = profiled();
    let values: ArrayBuf = (0..150_000).collect();
    let find =
        doc! { "find": "c", "filter": doc! { "a": doc! { "$in": values } }, "comment": "long" };
    ok(&mut c, &find);
    let filter = doc! {
        "command.comment": "long",
        "execStats.stage": "COLLSCAN",
        "execStats.warning": doc! { "$exists": true },
    };
    assert_eq!(recorded(&mut c, filter), 1);
}

/// While writes are locked, reads are answered and leave no record, and a waiting `profile` command can be
/// ended.
#[test]
fn a_lock_of_all_writes_keeps_no_reader_waiting_for_its_record() {
    let (s, mut c) = profiled();
    let mut admin = s.connect();
    let lock = doc! { "fsync": 1, "lock": true };
    admin.command("admin", &lock).unwrap();
    c.set_timeout(Some(std::time::Duration::from_secs(20)))
        .unwrap();
    for name in ["locked", "locked"] {
        ok(&mut c, &doc! { "find": "c", "comment": name });
    }
    let profile = doc! { "profile": 2, "maxTimeMS": 50 };
    let e = c.command("other", &profile).unwrap_err();
    assert_eq!(e.code().0, 50);
    admin.command("admin", &doc! { "fsyncUnlock": 1 }).unwrap();
    ok(&mut c, &doc! { "find": "c", "comment": "unlocked" });
    assert_eq!(recorded(&mut c, doc! { "command.comment": "locked" }), 0);
    assert_eq!(recorded(&mut c, doc! { "command.comment": "unlocked" }), 1);
}
