//! The resources that all operations share and none may use up: tickets, memory for messages, memory for
//! queries.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{ArrayBuf, Code, DocBuf, Value, array, doc};
use muniment_wire::Connection;
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions};

fn server() -> Server {
    Server::start(ServerOptions::new())
}

fn number(d: &DocBuf, path: &str) -> i64 {
    let (parents, name) = path.rsplit_once('.').unwrap_or(("", path));
    let mut at = d.as_doc();
    for p in parents.split('.').filter(|p| !p.is_empty()) {
        at = at
            .get_doc(p)
            .unwrap_or_else(|| panic!("{p} of {path} in {d:?}"));
    }
    at.get(name)
        .and_then(|v| v.as_i64_exact())
        .unwrap_or_else(|| panic!("{path} in {d:?}"))
}

fn set(c: &mut Connection, name: &str, value: i64) {
    let mut command = doc! { "setParameter": 1 };
    command.append(name, value);
    c.command("admin", &command).unwrap();
}

fn status(c: &mut Connection) -> DocBuf {
    c.command("admin", &doc! { "serverStatus": 1 }).unwrap()
}

#[test]
fn a_cursor_that_waits_for_data_holds_no_ticket() {
    let s = server();
    let mut c = s.connect();
    set(&mut c, "storageEngineConcurrentReadTransactions", 1);
    c.command("t", &doc! { "create": "c", "capped": true, "size": 4096 })
        .unwrap();
    c.command(
        "t",
        &doc! { "insert": "c", "documents": array![doc! { "_id": 1 }] },
    )
    .unwrap();
    let first = c
        .command(
            "t",
            &doc! { "find": "c", "tailable": true, "awaitData": true },
        )
        .unwrap();
    let id = number(&first, "cursor.id");
    let mut waiting = s.connect();
    let waiter = std::thread::spawn(move || {
        let began = Instant::now();
        let more = doc! { "getMore": id, "collection": "c", "maxTimeMS": 3000 };
        waiting.command("t", &more).unwrap();
        began.elapsed()
    });
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    for _ in 0..20 {
        c.command("t", &doc! { "find": "c" }).unwrap();
    }
    assert!(began.elapsed() < Duration::from_millis(1500));
    assert!(waiter.join().unwrap() >= Duration::from_millis(2500));
    let status = status(&mut c);
    for path in [
        "queues.execution.read",
        "wiredTiger.concurrentTransactions.read",
    ] {
        assert_eq!(number(&status, &format!("{path}.totalTickets")), 1);
        assert_eq!(number(&status, &format!("{path}.out")), 0);
        assert_eq!(number(&status, &format!("{path}.available")), 1);
    }
}

#[test]
fn an_operation_that_waits_for_a_ticket_can_be_stopped() {
    let s = server();
    let mut c = s.connect();
    set(&mut c, "storageEngineConcurrentWriteTransactions", 1);
    let insert = |n: i32| doc! { "insert": "c", "documents": array![doc! { "_id": n }] };
    c.command("t", &insert(0)).unwrap();
    c.command("admin", &doc! { "fsync": 1, "lock": true })
        .unwrap();
    let mut held = s.connect();
    let holder = std::thread::spawn(move || held.command("t", &insert(1)).is_ok());
    s.until("the write has a ticket", || {
        (number(&status(&mut c), "queues.execution.write.out") > 0).then_some(())
    });
    // The wait ends by its time limit.
    let began = Instant::now();
    let mut limited = insert(2);
    limited.append("maxTimeMS", 200);
    let e = c.command("t", &limited).unwrap_err();
    assert_eq!(e.code(), Code::MaxTimeMSExpired);
    assert!(began.elapsed() < Duration::from_millis(1500));
    // The wait ends when its client goes away.
    let mut gone = s.connect();
    let stream = std::thread::spawn(move || {
        let _ = gone.set_timeout(Some(Duration::from_millis(200)));
        let _ = gone.command("t", &insert(3));
    });
    stream.join().unwrap();
    let began = Instant::now();
    while number(
        &status(&mut c),
        "queues.execution.write.normalPriority.queueLength",
    ) > 0
    {
        assert!(began.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(10));
    }
    // Reads continue, and so does everything once the lock is released.
    c.command("t", &doc! { "find": "c" }).unwrap();
    c.command("admin", &doc! { "fsyncUnlock": 1 }).unwrap();
    assert!(holder.join().unwrap());
    c.command("t", &insert(4)).unwrap();
    let n = c.command("t", &doc! { "count": "c" }).unwrap();
    assert_eq!(number(&n, "n"), 3);
}

#[test]
fn sorts_and_groups_share_their_memory() {
    let s = server();
    let mut c = s.connect();
    set(&mut c, "munimentQueryMemoryBudgetBytes", 8 << 20);
    for batch in 0..8 {
        let docs: ArrayBuf = (0..500)
            .map(|i| {
                let id = batch * 500 + i;
                doc! { "_id": id, "k": (id * 7919) % 4000, "s": "x".repeat(1000) }
            })
            .collect();
        c.command("t", &doc! { "insert": "c", "documents": docs })
            .unwrap();
    }
    let sort = |disk: bool| {
        doc! {
            "find": "c", "sort": doc! { "k": 1 }, "batchSize": 2, "allowDiskUse": disk,
        }
    };
    // The memory of idle cursors stays booked.
    let mut ids = Vec::new();
    for _ in 0..4 {
        let r = c.command("t", &sort(true)).unwrap();
        ids.push(number(&r, "cursor.id"));
    }
    let d = status(&mut c);
    let used = number(&d, "muniment.memory.accounts.stages.usedBytes");
    assert!((4 << 20..10 << 20).contains(&used), "{used}");
    assert!(number(&d, "muniment.memory.accounts.stages.pressed") > 0);
    // An operation that may not spill fails.
    let e = c.command("t", &sort(false)).unwrap_err();
    assert_eq!(e.code(), Code::QueryExceededMemoryLimitNoDiskUseAllowed);
    let group = array![
        doc! { "$group": doc! { "_id": "$k", "all": doc! { "$push": "$s" } } },
        doc! { "$count": "n" },
    ];
    let r = c
        .command(
            "t",
            &doc! { "aggregate": "c", "pipeline": group, "cursor": doc! {} },
        )
        .unwrap();
    let n = r.as_doc().get_doc("cursor").unwrap();
    let n = n.get_array("firstBatch").unwrap();
    assert_eq!(
        n.values()
            .next()
            .unwrap()
            .as_doc()
            .unwrap()
            .get("n")
            .unwrap()
            .as_i64_exact(),
        Some(4000)
    );
    // All rows come, in order, and no memory stays booked.
    for id in ids {
        let more = doc! { "getMore": id, "collection": "c" };
        let r = c.command("t", &more).unwrap();
        let batch = r.as_doc().get_doc("cursor").unwrap();
        let batch = batch.get_array("nextBatch").unwrap();
        let keys: Vec<i64> = batch
            .values()
            .map(|d| {
                d.as_doc()
                    .unwrap()
                    .get("k")
                    .unwrap()
                    .as_i64_exact()
                    .unwrap()
            })
            .collect();
        assert!(keys == (2..4000).collect::<Vec<i64>>());
    }
    assert_eq!(
        number(&status(&mut c), "muniment.memory.accounts.stages.usedBytes"),
        0
    );
}

#[test]
fn a_command_of_almost_16_mb_is_explained() {
    const LIMIT: usize = 16 << 20;
    let s = server();
    let mut c = s.connect();
    let docs = array![doc! { "_id": 1, "a": 1 }];
    c.command("t", &doc! { "insert": "c", "documents": docs })
        .unwrap();
    // The plan is cut first. If the reply has no room for the command itself, the command is left out.
    for (less, told) in [(20_000, true), (3000, false)] {
        let long = "x".repeat(LIMIT - less);
        let filter = doc! { "a": long.as_str() };
        let pipeline = array![
            doc! { "$match": &filter },
            doc! { "$group": doc! { "_id": 1 } }
        ];
        let commands = [
            doc! { "find": "c", "filter": &filter },
            doc! { "count": "c", "query": &filter },
            doc! { "distinct": "c", "key": "a", "query": &filter },
            doc! { "aggregate": "c", "pipeline": pipeline, "cursor": doc! {} },
            doc! { "delete": "c", "deletes": array![doc! { "q": &filter, "limit": 0 }] },
        ];
        for command in &commands {
            let what = command.as_doc().first().unwrap().name().to_string();
            let reply = c.command("t", &doc! { "explain": command }).unwrap();
            assert!(reply.as_bytes().len() < LIMIT, "{what}");
            assert!(reply.as_bytes().len() > 1000, "{what}");
            let warning = reply.as_doc().get_str("warning");
            let want = "command has been omitted due to BSON size limit for explain";
            assert_eq!(warning, (!told).then_some(want), "{what}");
            assert_eq!(reply.as_doc().get("command").is_some(), told, "{what}");
        }
        let index = array![doc! { "key": doc! { "a": 1 }, "name": "a" }];
        c.command("t", &doc! { "createIndexes": "c", "indexes": index })
            .unwrap();
    }
    // A command that fits is shown in full.
    let filter = doc! { "a": "x".repeat(1 << 20).as_str() };
    let find = doc! { "find": "c", "filter": &filter };
    let reply = c.command("t", &doc! { "explain": &find }).unwrap();
    let told = reply.as_doc().get_doc("command").unwrap();
    assert_eq!(told.get_doc("filter").unwrap().to_buf(), filter);
    assert_eq!(told.get_str("$db"), Some("t"));
    let plan = reply.as_doc().get_doc("queryPlanner").unwrap();
    assert!(plan.get("warning").is_none());
}

#[test]
fn many_small_transactions_have_a_limit_together() {
    let s = server();
    let mut c = s.connect();
    c.command("t", &doc! { "create": "c" }).unwrap();
    set(&mut c, "munimentTransactionMemoryBytes", 8 << 20);
    let text = "x".repeat(980_000);
    let insert = |n: i32, text: &str| {
        let session = doc! { "id": Value::Binary { subtype: 4, bytes: &[n as u8; 16] } };
        doc! {
            "insert": "c", "documents": array![doc! { "_id": n, "s": text }],
            "lsid": session, "txnNumber": 1_i64, "startTransaction": true, "autocommit": false,
        }
    };
    let mut open = 0;
    let e = loop {
        match c.command("t", &insert(open, &text)) {
            Ok(_) => open += 1,
            Err(e) => break e,
        }
        assert!(open < 30, "there is no limit");
    };
    assert!((7..10).contains(&open), "{open}");
    assert_eq!(e.code(), Code::WriteConflict, "{e:?}");
    assert!(
        e.message().contains("munimentTransactionMemoryBytes"),
        "{e:?}"
    );
    // Neither a small transaction nor a write without a transaction is refused.
    c.command("t", &insert(100, "x")).unwrap();
    let plain = doc! { "insert": "c", "documents": array![doc! { "_id": -1, "s": text.as_str() }] };
    c.command("t", &plain).unwrap();
    let d = status(&mut c);
    let peak = number(&d, "muniment.memory.accounts.transactions.peakBytes");
    assert!(peak <= 9 << 20, "{peak}");
    assert!(number(&d, "muniment.memory.accounts.transactions.refused") > 0);
}

#[test]
fn keys_of_a_document_are_bounded_by_parameters() {
    let s = server();
    let mut c = s.connect();
    let index = array![doc! { "key": doc! { "a": 1 }, "name": "a" }];
    c.command("t", &doc! { "createIndexes": "c", "indexes": index })
        .unwrap();
    let insert = |id: i32, n: i32| {
        let all: ArrayBuf = (0..n).collect();
        doc! { "insert": "c", "documents": array![doc! { "_id": id, "a": all }] }
    };
    let code = |r: DocBuf| {
        let errors = r.as_doc().get_array("writeErrors")?;
        errors
            .values()
            .next()?
            .as_doc()?
            .get("code")?
            .as_i64_exact()
    };
    set(&mut c, "indexMaxNumGeneratedKeysPerDocument", 100);
    assert_eq!(code(c.command("t", &insert(1, 101)).unwrap()), Some(201));
    assert_eq!(code(c.command("t", &insert(1, 100)).unwrap()), None);
    set(&mut c, "munimentIndexMaxKeyBytesPerDocument", 1 << 10);
    assert_eq!(code(c.command("t", &insert(2, 1000)).unwrap()), Some(201));
    let d = doc! { "getParameter": 1, "munimentIndexMaxKeyBytesPerDocument": 1 };
    let d = c.command("admin", &d).unwrap();
    assert_eq!(number(&d, "munimentIndexMaxKeyBytesPerDocument"), 1 << 10);
}

#[test]
fn scripts_reserve_their_heaps() {
    let s = server();
    let mut c = s.connect();
    c.command(
        "t",
        &doc! { "insert": "c", "documents": array![doc! { "_id": 1 }] },
    )
    .unwrap();
    // The limit leaves room for one engine.
    set(&mut c, "munimentScriptMemoryBytes", 20 << 20);
    let call = |body: &str| {
        let function = doc! { "body": body, "args": array![], "lang": "js" };
        let stage = doc! { "$project": doc! { "n": doc! { "$function": function } } };
        doc! { "aggregate": "c", "pipeline": array![stage], "cursor": doc! {} }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut other = s.connect();
            scope.spawn(move || {
                other
                    .command("t", &call("function() { sleep(50); }"))
                    .unwrap()
            });
        }
    });
    let d = status(&mut c);
    let scripts = "muniment.memory.accounts.scripts";
    assert_eq!(number(&d, &format!("{scripts}.peakBytes")), 16 << 20);
    assert_eq!(number(&d, &format!("{scripts}.usedBytes")), 0);
    let e = c
        .command(
            "t",
            &call("function() { var a = []; while (true) a.push('x'.repeat(1e6) + a); }"),
        )
        .unwrap_err();
    assert_eq!(e.code(), Code::JSInterpreterFailure, "{e:?}");
}
