//! Time goes wrong for a server under load: its process is stopped, or its wall clock is set back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::{DB, Load, Promise, consistent, create_indexes, long, seed};
use muniment_value::{ArrayBuf, DocBuf, Value, array, doc};
use muniment_wire::Connection;
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions, Set, freeze, thaw};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// A command in the transaction of this session.
fn in_transaction(mut body: DocBuf, session: &DocBuf, first: bool) -> DocBuf {
    body.append("lsid", session);
    body.append("txnNumber", 1_i64);
    if first {
        body.append("startTransaction", true);
    }
    body.append("autocommit", false);
    body
}

fn number_of(reply: &DocBuf, field: &str) -> i64 {
    let value = reply.as_doc().get(field).and_then(|v| v.as_i64_exact());
    value.unwrap_or_else(|| panic!("no {field}: {reply:?}"))
}

/// Opens a cursor on a collection of its own, which has returned one document.
fn open_cursor(c: &mut Connection) -> i64 {
    let docs: ArrayBuf = (0..50).map(|i| doc! { "_id": i }).collect();
    c.command(DB, &doc! { "insert": "cursor", "documents": docs })
        .unwrap();
    let reply = c.command(DB, &doc! { "find": "cursor", "batchSize": 1 });
    let reply = reply.unwrap();
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap()
}

/// The process is stopped for a while, and continues: no client got a wrong answer, and open cursors and
/// transactions still exist, or fail because they took too long.
#[test]
fn a_server_that_stood_still_goes_on() {
    let seed = seed();
    let still = Duration::from_secs(if long() { 60 } else { 3 });
    let mut server = Server::start(ServerOptions::new());
    let pid = server.pid().unwrap();
    let mut c = server.connect();
    c.set_timeout(Some(still + Duration::from_secs(60)))
        .unwrap();
    create_indexes(&mut c);
    let cursor = open_cursor(&mut c);
    let session = doc! { "id": Value::Binary { subtype: 4, bytes: &[7; 16] } };
    let insert = doc! { "insert": "held", "documents": array![doc! { "_id": 1 }] };
    c.command(DB, &doc! { "create": "held" }).unwrap();
    c.command(DB, &in_transaction(insert, &session, true))
        .unwrap();

    let mut load = Load::new(seed, 3, 20).patience(still + Duration::from_secs(60));
    let address = server.address();
    let turn = Duration::from_millis(300);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(turn);
            freeze(pid);
            std::thread::sleep(still);
            thaw(pid);
        });
        load.run(&address, turn * 3 + still, || {
            assert_eq!(server.pid(), Some(pid));
            assert!(server.is_running(), "{}", server.log());
            let more = doc! { "getMore": cursor, "collection": "cursor" };
            let more = c.command(DB, &more).unwrap();
            let batch = more.as_doc().get_doc("cursor").unwrap();
            assert_eq!(batch.get_array("nextBatch").unwrap().iter().count(), 49);
            let commit = in_transaction(doc! { "commitTransaction": 1 }, &session, false);
            let committed = c.command("admin", &commit);
            if let Err(e) = &committed {
                // The transaction has lasted for longer than is allowed.
                assert!(long() && e.code().0 == 251, "{e:?}");
            }
            let held = c.command(DB, &doc! { "count": "held" }).unwrap();
            assert_eq!(number_of(&held, "n"), i64::from(committed.is_ok()));
            server.kill9();
        });
    });
    assert!(load.acknowledged() > 0, "the load hardly ran");
    server.start_again();
    let mut c = server.connect();
    load.judge(&mut c, Promise::All);
    consistent(&mut c);
}

/// The timestamp of a write.
fn operation_time(c: &mut Connection) -> (u32, u32) {
    let write = doc! { "insert": "times", "documents": array![doc! {}] };
    let reply = c.command(DB, &write).unwrap();
    match reply.as_doc().get("operationTime") {
        Some(Value::Timestamp { t, i }) => (t, i),
        other => panic!("no operationTime: {other:?}"),
    }
}

/// A connection to a set of one, once it has a primary.
fn primary(server: &Server) -> Connection {
    let mut c = server.connect();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let hello = c.command("admin", &doc! { "hello": 1 }).unwrap();
        if hello
            .as_doc()
            .get("isWritablePrimary")
            .is_some_and(|v| v.truthy())
        {
            return c;
        }
        assert!(Instant::now() < deadline, "no primary: {hello:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The wall clock is set back by a day while the server runs, by another day across a restart, and forward
/// again: the order of commits stays, writes continue, and nothing is lost.
#[test]
fn a_clock_that_is_set_back_changes_no_order() {
    let seed = seed();
    let options = ServerOptions::new().clock();
    let mut set = Set::prepare(1, &options.arg("--cacheSizeGB").arg("0.03"));
    set.initiate(&set.config(vec![doc! { "_id": 0, "host": set.host(0) }]));
    let server = &mut set.members[0];
    let mut c = primary(server);
    create_indexes(&mut c);
    let mut load = Load::new(seed, 3, 20).large();
    let mut last = operation_time(&mut c);
    let time = Duration::from_millis(if long() { 10_000 } else { 400 });
    for (round, days) in [0, -1, -2, 0, -1].into_iter().enumerate() {
        let address = server.address();
        let mut before = 0;
        load.run(&address, time, || {
            server.set_clock(days * DAY_MS);
            let end = Instant::now() + time;
            while Instant::now() < end {
                let now = operation_time(&mut c);
                assert!(now > last, "{now:?} after {last:?}");
                last = now;
                before += 1;
            }
            match round % 2 {
                0 => server.kill9(),
                _ => assert!(server.terminate().success()),
            }
        });
        assert!(before > 0 && load.acknowledged() > 0, "round {round}");
        server.start_again();
        c = primary(server);
        load.judge(&mut c, Promise::All);
        consistent(&mut c);
        let now = operation_time(&mut c);
        assert!(now > last, "{now:?} after {last:?} and a restart");
        last = now;
    }
    let times = c.command(DB, &doc! { "count": "times" }).unwrap();
    assert!(number_of(&times, "n") > 10);
}
