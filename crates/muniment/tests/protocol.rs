//! Correct and incorrect uses of the wire protocol: handshakes of every driver generation, malformed
//! messages, limits, w:0, exhaust, compression, idle and half-open connections, failCommand.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{Code, DocBuf, Value, array, doc};
use muniment_wire::op_msg::CHECKSUM_PRESENT;
use muniment_wire::op_query::parse_op_reply;
use muniment_wire::{Compressor, Connection, Header, OP_MSG, Stream, begin_request};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions};

fn server() -> Server {
    Server::start(
        ServerOptions::new()
            .arg("--setParameter")
            .arg("enableTestCommands=1"),
    )
}

fn get_i64(d: &DocBuf, name: &str) -> i64 {
    d.as_doc()
        .get(name)
        .and_then(|v| v.as_i64_exact())
        .unwrap_or_else(|| panic!("{name} in {d:?}"))
}

#[test]
fn old_drivers_shake_hands_with_op_query() {
    let s = server();
    let mut c = s.connect();
    let client = doc! {
        "driver": doc! { "name": "mongo-java-driver", "version": "3.12" },
        "os": doc! { "type": "Linux" },
    };
    for hello in ["isMaster", "ismaster"] {
        let mut cmd = DocBuf::new();
        cmd.append(hello, 1)
            .append("client", &client)
            .append("helloOk", true);
        c.send_bytes(&testkit::op_query("admin.$cmd", &cmd))
            .unwrap();
        let reply = parse_op_reply(c.recv_bytes().unwrap()).unwrap().to_buf();
        let d = reply.as_doc();
        assert_eq!(
            d.get("ismaster").and_then(|v| v.as_bool()),
            Some(true),
            "{reply:?}"
        );
        assert_eq!(d.get("helloOk").and_then(|v| v.as_bool()), Some(true));
        assert_eq!(get_i64(&reply, "maxWireVersion"), 25);
        assert_eq!(get_i64(&reply, "minWireVersion"), 0);
        assert_eq!(get_i64(&reply, "maxBsonObjectSize"), 16_777_216);
        assert_eq!(get_i64(&reply, "maxMessageSizeBytes"), 48_000_000);
        assert_eq!(get_i64(&reply, "maxWriteBatchSize"), 100_000);
        assert_eq!(get_i64(&reply, "logicalSessionTimeoutMinutes"), 30);
        assert!(matches!(d.get("localTime"), Some(Value::DateTime(_))));
        assert!(d.get("setName").is_none() && d.get("msg").is_none());
    }
    // Java driver 3.12 asks for the version in the same way.
    c.send_bytes(&testkit::op_query("admin.$cmd", &doc! { "buildinfo": 1 }))
        .unwrap();
    let reply = parse_op_reply(c.recv_bytes().unwrap()).unwrap().to_buf();
    assert_eq!(reply.as_doc().get_array("versionArray").unwrap().count(), 4);
    // All other commands must come as OP_MSG.
    for (ns, cmd) in [("t.$cmd", doc! { "find": "c" }), ("t.c", doc! {})] {
        c.send_bytes(&testkit::op_query(ns, &cmd)).unwrap();
        let reply = parse_op_reply(c.recv_bytes().unwrap()).unwrap().to_buf();
        assert_eq!(get_i64(&reply, "code"), 352, "{reply:?}");
    }
}

#[test]
fn new_drivers_shake_hands_with_op_msg() {
    let s = server();
    let mut c = s.connect();
    let reply = c.hello().unwrap();
    let d = reply.as_doc();
    assert_eq!(
        d.get("isWritablePrimary").and_then(|v| v.as_bool()),
        Some(true)
    );
    assert!(d.get("ismaster").is_none());
    let topology = d.get_doc("topologyVersion").unwrap();
    assert!(matches!(
        topology.get("processId"),
        Some(Value::ObjectId(_))
    ));
    assert!(matches!(topology.get("counter"), Some(Value::Int64(_))));
    // The client document belongs to the connection for its whole life.
    let other = doc! { "hello": 1, "client": doc! {
    "driver": doc! { "name": "x", "version": "1" }, "os": doc! { "type": "y" } } };
    assert_eq!(c.command("admin", &other).unwrap_err().code().0, 186);
    let bare = doc! { "hello": 1, "client": doc! { "driver": doc! {} } };
    assert_eq!(
        s.connect().command("admin", &bare).unwrap_err().code().0,
        183
    );
}

#[test]
fn an_awaitable_hello_waits_and_streams() {
    let s = server();
    let mut c = s.connect();
    let reply = c.hello().unwrap();
    let topology = reply.as_doc().get_doc("topologyVersion").unwrap();
    let wait = doc! { "hello": 1, "topologyVersion": topology, "maxAwaitTimeMS": 80 };
    let began = Instant::now();
    c.command("admin", &wait).unwrap();
    assert!(
        began.elapsed() >= Duration::from_millis(80),
        "{:?}",
        began.elapsed()
    );
    c.send_exhaust("admin", &wait).unwrap();
    for _ in 0..3 {
        let (reply, more) = c.recv_exhaust().unwrap();
        assert!(more);
        assert!(reply.as_doc().get("topologyVersion").is_some());
    }
    // The version comes from another process, so the server answers at once.
    let stale = doc! { "hello": 1, "maxAwaitTimeMS": 60_000,
    "topologyVersion": doc! { "processId": Value::ObjectId([9; 12]), "counter": 0_i64 } };
    let began = Instant::now();
    s.connect().command("admin", &stale).unwrap();
    assert!(began.elapsed() < Duration::from_secs(5));
    let half = doc! { "hello": 1, "maxAwaitTimeMS": 10 };
    assert_eq!(
        s.connect().command("admin", &half).unwrap_err().code().0,
        31368
    );
}

#[test]
fn exhaust_streams_a_cursor_to_its_end() {
    let s = server();
    let mut c = s.connect();
    let docs: Vec<_> = (0..100).map(|i| doc! { "_id": i }).collect();
    c.command_with("t", &doc! { "insert": "c" }, &[("documents", &docs)])
        .unwrap();
    let first = c
        .command("t", &doc! { "find": "c", "batchSize": 10 })
        .unwrap();
    let id = get_i64(&first.as_doc().get_doc("cursor").unwrap().to_buf(), "id");
    assert_ne!(id, 0);
    c.send_exhaust(
        "t",
        &doc! { "getMore": id, "collection": "c", "batchSize": 20 },
    )
    .unwrap();
    let (mut seen, mut replies) = (10, 0);
    loop {
        let (reply, more) = c.recv_exhaust().unwrap();
        let batch = reply
            .as_doc()
            .get_doc("cursor")
            .unwrap()
            .get_array("nextBatch")
            .unwrap();
        seen += batch.count();
        replies += 1;
        if !more {
            break;
        }
    }
    assert_eq!(seen, 100);
    assert!(replies >= 5, "{replies}");
    assert!(c.command("admin", &doc! { "ping": 1 }).is_ok());
    let gone = doc! { "getMore": id, "collection": "c" };
    assert_eq!(
        c.command("t", &gone).unwrap_err().code(),
        Code::CursorNotFound
    );
}

#[test]
fn compression_is_negotiated_and_used() {
    let s = server();
    let mut c = s.connect();
    let hello = doc! { "hello": 1, "compression": array!["zstd", "lz4", "snappy", "zlib"] };
    let reply = c.command("admin", &hello).unwrap();
    let list = reply.as_doc().get_array("compression").unwrap();
    let names: Vec<_> = list.values().filter_map(|v| v.as_str()).collect();
    assert_eq!(
        names,
        ["zstd", "snappy", "zlib"],
        "the client's order, ours only"
    );
    let text = "the same again ".repeat(2000);
    for with in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        c.set_compressor(Some(with));
        let insert = doc! { "insert": "c", "documents": array![doc! { "t": text.as_str() }] };
        c.command("t", &insert).unwrap();
        let found = c.find_all("t", &doc! { "find": "c" }).unwrap();
        assert_eq!(
            found.last().unwrap().as_doc().get_str("t"),
            Some(text.as_str())
        );
    }
}

#[test]
fn a_checksum_is_checked_and_answered() {
    let s = server();
    let mut c = s.connect();
    let ping = doc! { "ping": 1 };
    c.send_command("admin", &ping, CHECKSUM_PRESENT, &[])
        .unwrap();
    assert_eq!(c.recv().unwrap().flags & CHECKSUM_PRESENT, CHECKSUM_PRESENT);
    let mut m = Vec::new();
    let body = doc! { "ping": 1, "$db": "admin" };
    begin_request(&mut m, 3, CHECKSUM_PRESENT)
        .body(body.as_doc())
        .finish()
        .unwrap();
    *m.last_mut().unwrap() ^= 1;
    c.send_bytes(&m).unwrap();
    let reply = c.recv().unwrap().body.to_buf();
    assert_eq!(get_i64(&reply, "code"), 288);
    assert!(
        c.command("admin", &ping).is_err(),
        "the connection is closed"
    );
}

#[test]
fn get_more_runs_on_what_is_left_of_the_time() {
    let s = server();
    let mut c = s.connect();
    let docs: Vec<_> = (0..30).map(|i| doc! { "_id": i }).collect();
    c.command_with("t", &doc! { "insert": "c" }, &[("documents", &docs)])
        .unwrap();
    let find = doc! { "find": "c", "batchSize": 2, "maxTimeMS": 300 };
    let first = c.command("t", &find).unwrap();
    let id = get_i64(&first.as_doc().get_doc("cursor").unwrap().to_buf(), "id");
    let more = doc! { "getMore": id, "collection": "c", "batchSize": 2 };
    // The time between the commands does not count.
    std::thread::sleep(Duration::from_millis(400));
    c.command("t", &more).unwrap();
    let block = doc! { "configureFailPoint": "failCommand", "mode": doc! { "times": 1 },
    "data": doc! { "failCommands": array!["find"], "blockConnection": true, "blockTimeMS": 500 } };
    s.connect().command("admin", &block).unwrap();
    assert_eq!(
        c.command("t", &find).unwrap_err().code(),
        Code::MaxTimeMSExpired
    );
}

#[test]
fn the_stable_api_is_checked() {
    let s = server();
    let mut c = s.connect();
    for (cmd, code) in [
        (doc! { "ping": 1, "apiVersion": "1", "apiStrict": true }, 0),
        (doc! { "ping": 1, "apiVersion": "2" }, 322),
        (doc! { "ping": 1, "apiStrict": true }, 4886600),
        (doc! { "serverStatus": 1, "apiVersion": "1" }, 0),
        (
            doc! { "serverStatus": 1, "apiVersion": "1", "apiStrict": true },
            323,
        ),
    ] {
        let reply = c.command_raw("admin", &cmd).unwrap();
        let got = reply.as_doc().get("code").and_then(|v| v.as_i64_exact());
        assert_eq!(got.unwrap_or(0), code, "{cmd:?}");
    }
    let set = |on: bool| doc! { "setParameter": 1, "requireApiVersion": on, "apiVersion": "1" };
    c.command("admin", &set(true)).unwrap();
    assert_eq!(
        c.command("admin", &doc! { "ping": 1 })
            .unwrap_err()
            .code()
            .0,
        322
    );
    c.command("admin", &set(false)).unwrap();
    c.command("admin", &doc! { "ping": 1 }).unwrap();
}

/// Sends bytes on a new connection, and checks that the server answers or closes it.
fn throw(s: &Server, bytes: &[u8]) {
    let mut t = TcpStream::connect(s.address()).unwrap();
    t.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let _ = t.write_all(bytes);
    let _ = t.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    // A reset is as good as a close. A hang is a failure.
    if let Err(e) = t.read_to_end(&mut answer) {
        assert!(
            !matches!(
                e.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
            ),
            "the server hangs on {bytes:?}"
        );
    }
}

#[test]
fn malformed_messages_get_an_error_or_a_closed_connection() {
    let s = server();
    let mut good = Vec::new();
    let ping = doc! { "ping": 1, "$db": "admin" };
    begin_request(&mut good, 3, 0)
        .body(ping.as_doc())
        .finish()
        .unwrap();
    for n in 0..good.len() {
        throw(&s, &good[..n]);
    }
    for at in 0..good.len() {
        for v in [0, 1, 0x7F, 0x80, 0xFF] {
            let mut bad = good.clone();
            bad[at] = v;
            throw(&s, &bad);
        }
    }
    for len in [
        i32::MIN,
        -1,
        0,
        15,
        16,
        17,
        20,
        47_999_999,
        48_000_001,
        i32::MAX,
    ] {
        let mut m = Vec::new();
        Header {
            message_length: len,
            request_id: 1,
            response_to: 0,
            op_code: OP_MSG,
        }
        .put(&mut m);
        throw(&s, &m);
    }
    throw(&s, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for op in [
        1, 1000, 2001, 2002, 2004, 2005, 2006, 2007, 2010, 2011, 2012, 2013, 9999,
    ] {
        let mut m = Vec::new();
        Header {
            message_length: 20,
            request_id: 1,
            response_to: 0,
            op_code: op,
        }
        .put(&mut m);
        m.extend_from_slice(&[0; 4]);
        throw(&s, &m);
    }
    assert!(s.connect().command("admin", &doc! { "ping": 1 }).is_ok());
}

#[test]
fn unknown_commands_and_missing_databases() {
    let s = server();
    let mut c = s.connect();
    let e = c.command("t", &doc! { "frobnicate": 1 }).unwrap_err();
    assert_eq!(
        (e.code().0, e.message()),
        (59, "no such command: 'frobnicate'")
    );
    let mut m = Vec::new();
    begin_request(&mut m, 3, 0)
        .body(doc! { "ping": 1 }.as_doc())
        .finish()
        .unwrap();
    c.send_bytes(&m).unwrap();
    let reply = c.recv().unwrap().body.to_buf();
    assert_eq!(get_i64(&reply, "code"), 40571);
    for db in ["", "a.b", "a b", &"x".repeat(64)] {
        let e = c.command(db, &doc! { "ping": 1 }).unwrap_err();
        assert_eq!(e.code(), Code::InvalidNamespace, "{db:?}");
    }
    let e = c.command("t", &doc! { "shutdown": 1 }).unwrap_err();
    assert_eq!(e.code(), Code::Unauthorized);
}

/// `{a: {a: … 1 …}}` with `depth` levels of documents.
fn nested(depth: usize) -> Vec<u8> {
    let mut inner = doc! { "a": 1 }.into_bytes();
    for _ in 1..depth {
        inner = doc! { "a": muniment_value::Doc::new(&inner) }.into_bytes();
    }
    inner
}

#[test]
fn nesting_is_limited() {
    let s = server();
    let mut c = s.connect();
    for (depth, fine) in [(100, true), (170, true), (200, false), (2000, false)] {
        let d = nested(depth);
        let d = muniment_value::Doc::new(&d);
        let reply = c
            .command_raw("t", &doc! { "insert": "c", "documents": array![d] })
            .unwrap();
        let ok = reply.as_doc().get("ok").unwrap().truthy();
        assert_eq!(ok, fine, "{depth}: {reply:?}");
        // The same document is used as a filter, whose parser must not overflow its stack.
        let _ = c
            .command_raw("t", &doc! { "find": "c", "filter": d })
            .unwrap();
    }
    let mut filter = doc! { "a": 1 };
    for _ in 0..85 {
        filter = doc! { "$and": array![&filter] };
    }
    let _ = c
        .command_raw("t", &doc! { "find": "c", "filter": &filter })
        .unwrap();
    assert!(c.command("admin", &doc! { "ping": 1 }).is_ok());
}

#[test]
fn batches_and_documents_are_limited() {
    let s = server();
    let mut c = s.connect();
    let none = doc! { "insert": "c", "documents": array![] };
    let e = c.command("t", &none).unwrap_err();
    assert_eq!(e.code(), Code::InvalidLength);
    assert_eq!(
        e.message(),
        "Write batch sizes must be between 1 and 100000. Got 0 operations."
    );
    let many = vec![doc! {}; 100_001];
    let e = c
        .command_with("t", &doc! { "insert": "c" }, &[("documents", &many)])
        .unwrap_err();
    assert_eq!(e.code(), Code::InvalidLength);
    let reply = c
        .command_with(
            "t",
            &doc! { "insert": "c" },
            &[("documents", &many[..100_000])],
        )
        .unwrap();
    assert_eq!(get_i64(&reply, "n"), 100_000);
    let big = doc! { "b": "x".repeat(16 << 20) };
    let reply = c.command_with("t", &doc! { "insert": "c" }, &[("documents", &[big])]);
    let code = match reply {
        Err(e) => e.code().0,
        Ok(r) => {
            let errors = r.as_doc().get_array("writeErrors").expect("an error");
            let first = errors.values().next().unwrap();
            first
                .as_doc()
                .unwrap()
                .get("code")
                .unwrap()
                .as_i64_exact()
                .unwrap() as i32
        }
    };
    assert_eq!(code, 10334);
    let unknown = doc! { "insert": "c" };
    let e = c
        .command_with("t", &unknown, &[("updates", &[doc! {}])])
        .unwrap_err();
    assert_eq!(e.code().0, 40415);
}

#[test]
fn unacknowledged_writes_get_no_reply() {
    let s = server();
    let mut c = s.connect();
    for i in 0..50 {
        let cmd = doc! { "insert": "c", "documents": array![doc! { "_id": i }],
        "writeConcern": doc! { "w": 0 } };
        c.send_only("t", &cmd).unwrap();
    }
    // Errors are not answered either.
    c.send_only(
        "t",
        &doc! { "insert": "c", "writeConcern": doc! { "w": 0 } },
    )
    .unwrap();
    let reply = c.command("t", &doc! { "count": "c" }).unwrap();
    assert_eq!(
        get_i64(&reply, "n"),
        50,
        "one connection's commands run in order"
    );
    let asked =
        doc! { "insert": "c", "documents": array![doc! {}], "writeConcern": doc! { "w": 0 } };
    assert_eq!(c.command("t", &asked).unwrap(), doc! { "ok": 1.0 });
}

#[test]
fn fail_command() {
    let s = server();
    let mut c = s.connect();
    let set = |mode: DocBuf, data: DocBuf| {
        let mut cmd = doc! { "configureFailPoint": "failCommand" };
        cmd.append_elem(mode.as_doc().first().unwrap())
            .append("data", data);
        s.connect().command("admin", &cmd).unwrap()
    };
    let times = |n: i32| doc! { "mode": doc! { "times": n } };
    set(
        times(1),
        doc! { "failCommands": array!["find"], "errorCode": 13436,
        "errorLabels": array!["A", "B"] },
    );
    let reply = c.command_raw("t", &doc! { "find": "c" }).unwrap();
    assert_eq!(get_i64(&reply, "code"), 13436);
    assert_eq!(reply.as_doc().get_array("errorLabels").unwrap().count(), 2);
    assert!(c.command("t", &doc! { "find": "c" }).is_ok());

    set(
        times(1),
        doc! { "failCommands": array!["insert"],
        "writeConcernError": doc! { "code": 91, "errmsg": "x" } },
    );
    let insert = doc! { "insert": "c", "documents": array![doc! {}] };
    let reply = c.command("t", &insert).unwrap();
    let error = reply.as_doc().get_doc("writeConcernError").unwrap();
    let sent = doc! { "code": 91, "errmsg": "x" };
    assert_eq!(error.as_bytes(), sent.as_bytes());
    assert!(reply.as_doc().get("errorLabels").is_none());
    // The label lets a driver send a retryable write again.
    set(
        times(1),
        doc! { "failCommands": array!["insert"],
        "writeConcernError": doc! { "code": 91 } },
    );
    let mut insert = insert;
    let id = Value::Binary {
        subtype: 4,
        bytes: &[7; 16],
    };
    insert.append("lsid", doc! { "id": id });
    insert.append("txnNumber", 1_i64);
    let reply = c.command("t", &insert).unwrap();
    let labels = reply.as_doc().get_array("errorLabels").unwrap();
    assert_eq!(
        labels.values().next().and_then(|v| v.as_str()),
        Some("RetryableWriteError")
    );
    assert_eq!(get_i64(&reply, "n"), 1, "the write was done");

    set(
        times(1),
        doc! { "failCommands": array!["ping"], "blockConnection": true, "blockTimeMS": 120 },
    );
    let began = Instant::now();
    c.command("admin", &doc! { "ping": 1 }).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(120));

    set(
        times(1),
        doc! { "failCommands": array!["ping"], "closeConnection": true },
    );
    assert!(c.command("admin", &doc! { "ping": 1 }).is_err());
    let mut c = s.connect();
    assert!(c.command("admin", &doc! { "ping": 1 }).is_ok());

    // This also works for a command that does not exist.
    set(
        times(2),
        doc! { "failCommands": array!["autoCompact"], "errorCode": 91 },
    );
    let create = doc! { "autoCompact": "u" };
    let code = |c: &mut muniment_wire::Connection| {
        get_i64(&c.command_raw("admin", &create).unwrap(), "code")
    };
    assert_eq!([code(&mut c), code(&mut c), code(&mut c)], [91, 91, 59]);
    set(
        times(1),
        doc! { "failCommands": array!["autoCompact"], "closeConnection": true },
    );
    assert!(c.command_raw("admin", &create).is_err());

    let none = Server::start(ServerOptions::new());
    let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
    assert_eq!(
        none.connect().command("admin", &off).unwrap_err().code().0,
        59
    );
}

#[test]
fn a_client_that_leaves_and_kill_op_end_an_operation() {
    let s = server();
    let mut admin = s.connect();
    let block = doc! { "configureFailPoint": "failCommand", "mode": doc! { "times": 2 },
    "data": doc! { "failCommands": array!["find"], "blockConnection": true, "blockTimeMS": 60_000 } };
    admin.command("admin", &block).unwrap();
    let mut running = |want: usize| {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let reply = admin
                .command("admin", &doc! { "currentOp": 1, "command.find": "c" })
                .unwrap();
            let list = reply.as_doc().get_array("inprog").unwrap();
            if list.count() == want {
                return list
                    .values()
                    .filter_map(|v| v.as_doc()?.get("opid")?.as_i64_exact())
                    .collect::<Vec<_>>();
            }
            assert!(Instant::now() < deadline, "{reply:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let mut leaver = s.connect();
    leaver
        .send_command("t", &doc! { "find": "c" }, 0, &[])
        .unwrap();
    running(1);
    drop(leaver);
    running(0);
    let mut victim = s.connect();
    victim
        .send_command("t", &doc! { "find": "c" }, 0, &[])
        .unwrap();
    let ids = running(1);
    s.connect()
        .command("admin", &doc! { "killOp": 1, "op": ids[0] })
        .unwrap();
    let reply = victim.recv().unwrap().body.to_buf();
    assert_eq!(get_i64(&reply, "code"), 11601);
}

#[test]
fn a_thousand_idle_connections_are_cheap_and_disturb_nobody() {
    let s = Server::start(ServerOptions::new().arg("--quiet"));
    let mut c = s.connect();
    c.command("admin", &doc! { "ping": 1 }).unwrap();
    let before = s.rss_bytes();
    let mut idle: Vec<Connection> = (0..1000).map(|_| s.connect()).collect();
    for c in &mut idle {
        c.command("admin", &doc! { "ping": 1 }).unwrap();
    }
    std::thread::sleep(Duration::from_millis(1500));
    let each = s.rss_bytes().saturating_sub(before) / 1000;
    println!("{each} bytes of resident memory for each idle connection");
    // Unoptimized code has much larger stack frames.
    let limit = if cfg!(debug_assertions) {
        120_000
    } else {
        40_000
    };
    assert!(each < limit, "{each} bytes for each idle connection");
    let began = Instant::now();
    for _ in 0..100 {
        c.command("admin", &doc! { "ping": 1 }).unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(5));
    for c in idle.iter_mut().rev().take(10) {
        c.command("admin", &doc! { "ping": 1 }).unwrap();
    }
}

#[test]
fn memory_of_a_large_command_is_given_back_when_the_server_idles() {
    let s = Server::start(ServerOptions::new().arg("--quiet"));
    let mut c = s.connect();
    c.command("admin", &doc! { "ping": 1 }).unwrap();
    let before = s.rss_bytes();
    let large = doc! {
        "aggregate": 1,
        "pipeline": array![
            doc! { "$documents": array![doc! {}] },
            doc! { "$project": doc! {
                "n": doc! { "$size": doc! { "$map": doc! {
                    "input": doc! { "$range": array![0, 300_000] },
                    "in": doc! { "$concat": array!["x".repeat(150), doc! { "$toString": "$$this" }] },
                } } },
            } },
        ],
        "cursor": doc! {},
    };
    c.command("t", &large).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let now = s.rss_bytes().saturating_sub(before);
        if now < 12 << 20 {
            break;
        }
        assert!(Instant::now() < deadline, "{now} bytes more than before");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn slow_and_half_open_clients_disturb_nobody() {
    let s = server();
    // These connections send headers without bodies, one byte at a time, or nothing.
    let mut held = Vec::new();
    for n in [0, 1, 15, 16, 20] {
        let mut t = TcpStream::connect(s.address()).unwrap();
        let mut m = Vec::new();
        Header {
            message_length: 40_000_000,
            request_id: 1,
            response_to: 0,
            op_code: OP_MSG,
        }
        .put(&mut m);
        m.resize(20, 0);
        t.write_all(&m[..n]).unwrap();
        held.push(t);
    }
    // This connection asks for much and reads nothing.
    let mut c = s.connect();
    let docs: Vec<_> = (0..8)
        .map(|i| doc! { "_id": i, "b": "x".repeat(1 << 20) })
        .collect();
    c.command_with("t", &doc! { "insert": "c" }, &[("documents", &docs)])
        .unwrap();
    let mut deaf = s.connect();
    for _ in 0..4 {
        deaf.send_command("t", &doc! { "find": "c" }, 0, &[])
            .unwrap();
    }
    for _ in 0..20 {
        let began = Instant::now();
        s.connect().command("admin", &doc! { "ping": 1 }).unwrap();
        assert!(began.elapsed() < Duration::from_secs(3));
    }
    assert!(s.rss_bytes() < 400 << 20, "{}", s.rss_bytes());
}

#[test]
fn more_connections_than_allowed_are_answered_and_closed() {
    let s = Server::start(ServerOptions::new().arg("--maxConns").arg("8"));
    // The harness's own connection may still count when the first of these connections come.
    let mut kept = Vec::new();
    let mut refused = loop {
        assert!(kept.len() <= 8, "nothing is refused");
        let mut c = s.connect();
        match c.command("admin", &doc! { "ping": 1 }) {
            Ok(_) => kept.push(c),
            Err(e) => {
                assert!(e.message().contains("--maxConns"), "{e}");
                break c;
            }
        }
    };
    assert!(kept.len() >= 7, "{}", kept.len());
    assert!(refused.command("admin", &doc! { "ping": 1 }).is_err());
    drop(kept.pop());
    let deadline = Instant::now() + Duration::from_secs(10);
    while s.connect().command("admin", &doc! { "ping": 1 }).is_err() {
        assert!(Instant::now() < deadline, "the place is not given back");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_unix_socket_works_and_goes() {
    let dir = tempfile::tempdir().unwrap();
    let mut s = Server::start(
        ServerOptions::new()
            .arg("--unixSocketPrefix")
            .arg(dir.path().to_str().unwrap()),
    );
    let path = dir.path().join(format!("mongodb-{}.sock", s.port()));
    let stream = Stream::connect(path.to_str().unwrap(), None).unwrap();
    let mut c = Connection::over(stream);
    assert!(c.command("admin", &doc! { "ping": 1 }).is_ok());
    assert!(s.terminate().success());
    assert!(!path.exists());
}

#[test]
fn signals_and_the_command_end_the_server_in_order() {
    let mut s = server();
    let mut c = s.connect();
    c.command(
        "t",
        &doc! { "insert": "c", "documents": array![doc! { "_id": 1 }] },
    )
    .unwrap();
    let mut idle = s.connect();
    idle.command("admin", &doc! { "ping": 1 }).unwrap();
    let began = Instant::now();
    assert!(s.terminate().success());
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    s.start_again();
    let mut c = s.connect();
    let reply = c.command("t", &doc! { "count": "c" }).unwrap();
    assert_eq!(get_i64(&reply, "n"), i64::from(testkit::persistent()));
    let _ = c.command("admin", &doc! { "shutdown": 1, "force": true });
    let deadline = Instant::now() + Duration::from_secs(10);
    while s.is_running() {
        assert!(
            Instant::now() < deadline,
            "shutdown does not end the server"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_second_server_on_the_directory_is_refused() {
    let s = server();
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_muniment"))
        .args(["serve", "--port", "0", "--dbpath"])
        .arg(s.dir())
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(100));
    let said = String::from_utf8_lossy(&out.stderr);
    let pid = s.pid().unwrap().to_string();
    assert!(said.contains(&pid), "names the other process: {said}");
    assert!(s.connect().command("admin", &doc! { "ping": 1 }).is_ok());
}
