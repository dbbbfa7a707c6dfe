//! How much of a server connections, sessions and names can use up: messages that do not end, replies that
//! the client does not read, sessions without number.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Value, array, doc};
use muniment_wire::{Connection, Header, OP_MSG};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
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

/// A connection that has sent the beginning of a message: 3 MB of 40.
fn beginning(s: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(s.address()).unwrap();
    let mut head = Vec::new();
    Header {
        message_length: 40_000_000,
        request_id: 7,
        response_to: 0,
        op_code: OP_MSG,
    }
    .put(&mut head);
    stream.write_all(&head).unwrap();
    stream.write_all(&vec![0; 3 << 20]).unwrap();
    stream
}

fn messages(c: &mut Connection, what: &str) -> i64 {
    let path = format!("muniment.memory.accounts.messages.{what}");
    number(&status(c), &path)
}

#[test]
fn a_message_for_which_there_is_never_room_is_answered_and_thrown_away() {
    let s = server();
    let mut c = s.connect();
    set(&mut c, "munimentMessageMemoryBytes", 8 << 20);
    let mut clients: Vec<TcpStream> = (0..8).map(|_| beginning(&s)).collect();
    for stream in &mut clients {
        let mut reply = Vec::new();
        muniment_wire::read_message(stream, &mut reply).unwrap();
        let header = Header::parse(&reply).unwrap();
        assert_eq!(header.response_to, 7);
        let body = Doc::new(&reply[21..]);
        assert_eq!(body.get("code").unwrap().as_i64_exact(), Some(146));
        assert_eq!(body.get_str("codeName"), Some("ExceededMemoryLimit"));
    }
    assert_eq!(messages(&mut c, "usedBytes"), 0);
    assert!(messages(&mut c, "peakBytes") <= 8 << 20);
    // The connection continues with the next message.
    let stream = &mut clients[0];
    let rest = 40_000_000 - Header::LEN - (3 << 20);
    stream.write_all(&vec![0; rest]).unwrap();
    let mut ping = Vec::new();
    let ping_body = doc! { "ping": 1, "$db": "admin" };
    Header {
        message_length: (21 + ping_body.as_bytes().len()) as i32,
        request_id: 8,
        response_to: 0,
        op_code: OP_MSG,
    }
    .put(&mut ping);
    ping.extend_from_slice(&[0; 5]);
    ping.extend_from_slice(ping_body.as_bytes());
    stream.write_all(&ping).unwrap();
    let mut reply = Vec::new();
    muniment_wire::read_message(stream, &mut reply).unwrap();
    assert_eq!(Header::parse(&reply).unwrap().response_to, 8);
    // Complete messages that fit get through.
    let long = "x".repeat(3 << 20);
    for i in 0..5 {
        let d = doc! { "_id": i, "s": long.as_str() };
        c.command("t", &doc! { "insert": "c", "documents": array![d] })
            .unwrap();
    }
}

#[test]
fn a_large_message_waits_for_room_and_who_keeps_it_for_nothing_is_cut_off() {
    let s = server();
    let mut c = s.connect();
    set(&mut c, "munimentMessageMemoryBytes", 64 << 20);
    let mut stopped = beginning(&s);
    s.until("the message has room", || {
        (messages(&mut c, "usedBytes") >= 40_000_000).then_some(())
    });
    // There is not enough memory for both. Smaller messages pass meanwhile.
    let mut other = s.connect();
    let waits = std::thread::spawn(move || {
        let long = "x".repeat(10 << 20);
        let docs: Vec<DocBuf> = (0..4)
            .map(|i| doc! { "_id": i, "s": long.as_str() })
            .collect();
        let insert = doc! { "insert": "large" };
        other
            .command_with("t", &insert, &[("documents", &docs)])
            .unwrap();
    });
    let long = "x".repeat(4 << 20);
    c.command(
        "t",
        &doc! { "insert": "c", "documents": array![doc! { "s": long }] },
    )
    .unwrap();
    waits.join().unwrap();
    assert_eq!(stopped.read(&mut [0]).unwrap_or(0), 0, "it is closed");
    let status = status(&mut c);
    assert_eq!(number(&status, "connections.closedAsTooSlow"), 1);
    assert!(number(&status, "muniment.memory.accounts.messages.peakBytes") <= 64 << 20);
}

/// Connections of clients that ask for much and read nothing.
fn not_reading(s: &Server, n: usize) -> Vec<TcpStream> {
    let find = doc! { "find": "c", "batchSize": 1000, "$db": "t" };
    let one = |_| {
        let mut stream = TcpStream::connect(s.address()).unwrap();
        let mut message = Vec::new();
        Header {
            message_length: (21 + find.as_bytes().len()) as i32,
            request_id: 1,
            response_to: 0,
            op_code: OP_MSG,
        }
        .put(&mut message);
        message.extend_from_slice(&[0; 5]);
        message.extend_from_slice(find.as_bytes());
        stream.write_all(&message).unwrap();
        stream
    };
    (0..n).map(one).collect()
}

#[test]
fn clients_that_do_not_read_take_a_bounded_memory_and_are_cut_off() {
    let s = server();
    let mut c = s.connect();
    set(&mut c, "munimentMessageMemoryBytes", 24 << 20);
    let long = "x".repeat(500_000);
    for from in [0, 20] {
        let docs: ArrayBuf = (from..from + 20)
            .map(|i| doc! { "_id": i, "s": long.as_str() })
            .collect();
        c.command("t", &doc! { "insert": "c", "documents": docs })
            .unwrap();
    }
    let mut clients = not_reading(&s, 12);
    let replies = |c: &mut Connection, what: &str| {
        let path = format!("muniment.memory.accounts.replies.{what}");
        number(&status(c), &path)
    };
    s.until("there is no more room", || {
        (replies(&mut c, "refused") > 0).then_some(())
    });
    // A client that finally reads gets a complete reply, unless its connection was ended before.
    clients[0]
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut reply = Vec::new();
    muniment_wire::read_message(&mut clients[0], &mut reply).unwrap();
    let cursor = Doc::new(&reply[21..]).get_doc("cursor").unwrap();
    assert!(cursor.get_array("firstBatch").unwrap().values().count() > 0);
    // A client that reads gets everything, in more and smaller batches. It uses a new connection, because a
    // busy one keeps the buffer of its largest reply.
    let all = s.connect().find_all("t", &doc! { "find": "c" }).unwrap();
    assert_eq!(all.len(), 40);
    assert!(replies(&mut c, "peakBytes") <= 28 << 20);
    // The twelve clients may have shared the memory so that the sockets' buffers took all their replies. A
    // single client gets a reply that is too large for them.
    drop(clients);
    s.until("no reply is kept", || {
        (replies(&mut c, "usedBytes") < 1 << 20).then_some(())
    });
    let too_slow = |c: &mut Connection| number(&status(c), "connections.closedAsTooSlow");
    let before = too_slow(&mut c);
    set(&mut c, "munimentReplyTimeoutSeconds", 1);
    let _alone = not_reading(&s, 1);
    s.until("a client is cut off", || {
        (too_slow(&mut c) > before).then_some(())
    });
    // Their cursors stay, but no memory is kept for their replies.
    s.until("no reply is kept", || {
        (replies(&mut c, "usedBytes") < 1 << 20).then_some(())
    });
    assert!(number(&status(&mut c), "metrics.cursor.open.total") > 0);
}

fn lsid(n: u8) -> DocBuf {
    let id = [n; 16];
    doc! { "id": Value::Binary { subtype: 4, bytes: &id } }
}

#[test]
fn there_are_no_more_sessions_than_max_sessions_says() {
    let s = Server::start(
        ServerOptions::new()
            .arg("--setParameter")
            .arg("maxSessions=3"),
    );
    let mut c = s.connect();
    let ping = |n: u8| doc! { "ping": 1, "lsid": lsid(n) };
    for n in 0..3 {
        c.command("t", &ping(n)).unwrap();
    }
    let e = c.command("t", &ping(3)).unwrap_err();
    assert_eq!(e.code(), Code::TooManyLogicalSessions);
    assert!(
        e.message()
            .contains("number of active sessions is too high")
    );
    // Existing sessions continue, and a session that ends makes room.
    c.command("t", &ping(0)).unwrap();
    c.command("admin", &doc! { "endSessions": array![lsid(1)] })
        .unwrap();
    c.command("t", &ping(3)).unwrap();
    let get = doc! { "getParameter": 1, "maxSessions": 1 };
    assert_eq!(number(&c.command("admin", &get).unwrap(), "maxSessions"), 3);
    let set = doc! { "setParameter": 1, "maxSessions": 4 };
    assert!(c.command("admin", &set).is_err());
}

/// The state of a session is known whether it is in memory or was moved out because the session was idle.
#[test]
fn a_session_that_idles_loses_nothing() {
    let s = server();
    let mut c = s.connect();
    let text = "x".repeat(3900);
    let one = array![doc! { "_id": 1, "n": 0, "text": text.as_str() }];
    c.command("t", &doc! { "insert": "c", "documents": one })
        .unwrap();
    let in_session = |mut d: DocBuf, n: u8, number: i64, transaction: bool| {
        d.append("lsid", lsid(n)).append("txnNumber", number);
        if transaction {
            d.append("autocommit", false);
        }
        d
    };
    let begin = |n: u8| {
        let find = doc! { "find": "c", "startTransaction": true };
        in_session(find, n, 5, true)
    };
    let increase = |id: i32| {
        doc! {
            "findAndModify": "c", "query": doc! { "_id": id },
            "update": doc! { "$inc": doc! { "n": 1 } },
        }
    };
    // A write with a large result, one that changes nothing, and transactions with two different ends.
    let written = in_session(increase(1), 1, 5, false);
    let first = c.command("t", &written).unwrap();
    let nothing = in_session(increase(9), 2, 5, false);
    c.command("t", &nothing).unwrap();
    c.command("t", &begin(3)).unwrap();
    let commit = in_session(doc! { "commitTransaction": 1 }, 3, 5, true);
    c.command("admin", &commit).unwrap();
    c.command("t", &begin(4)).unwrap();
    let abort = in_session(doc! { "abortTransaction": 1 }, 4, 5, true);
    c.command("admin", &abort).unwrap();
    for round in 0..2 {
        let again = c.command("t", &written).unwrap();
        let value = |d: &DocBuf| d.as_doc().get_doc("value").unwrap().to_buf();
        assert_eq!(value(&again), value(&first));
        assert_eq!(number(&again, "retriedStmtId"), 0);
        c.command("admin", &commit).unwrap();
        let e = c.command("admin", &abort).unwrap_err();
        assert_eq!(e.code(), Code::NoSuchTransaction);
        assert!(e.message().contains("has been aborted"), "{e}");
        for n in 1..5 {
            let older = in_session(increase(1), n, 4, false);
            let e = c.command("t", &older).unwrap_err();
            assert_eq!(e.code(), Code::TransactionTooOld, "session {n}");
        }
        if round == 0 {
            // This is longer than an unused session is kept in memory.
            std::thread::sleep(Duration::from_millis(2500));
        }
    }
    let n = c.command("t", &doc! { "find": "c" }).unwrap();
    let cursor = n.as_doc().get_doc("cursor").unwrap();
    let batch = cursor.get_array("firstBatch").unwrap();
    let d = batch.values().next().unwrap().as_doc().unwrap();
    assert_eq!(d.get("n").unwrap().as_i64_exact(), Some(1));
}

#[test]
fn a_collection_s_definition_takes_no_more_than_a_document() {
    let s = server();
    let mut c = s.connect();
    let index = |field: &str| {
        let name = field.repeat(9 << 20);
        let mut key = DocBuf::new();
        key.append(field, 1);
        doc! { "createIndexes": "c", "indexes": array![doc! { "key": key, "name": name }] }
    };
    c.command("t", &index("a")).unwrap();
    let e = c.command("t", &index("b")).unwrap_err();
    assert_eq!(e.code(), Code::BSONObjectTooLarge);
    // The index is listed, and can be dropped.
    let list = c.command("t", &doc! { "listIndexes": "c" }).unwrap();
    let cursor = list.as_doc().get_doc("cursor").unwrap();
    assert_eq!(cursor.get_array("firstBatch").unwrap().values().count(), 2);
    let all = doc! { "dropIndexes": "c", "index": "*" };
    c.command("t", &all).unwrap();
    c.command("t", &index("b")).unwrap();
}

#[test]
fn a_time_series_has_a_name_that_its_buckets_can_have() {
    let s = server();
    let mut c = s.connect();
    // The name has 255 bytes with the database, the dot and "system.buckets.".
    let create = |n: usize| {
        let series = doc! { "timeField": "t" };
        doc! { "create": "s".repeat(n), "timeseries": series }
    };
    c.command("t", &create(238)).unwrap();
    let e = c.command("t", &create(239)).unwrap_err();
    assert_eq!(e.code(), Code::InvalidNamespace);
    let buckets = format!("system.buckets.{}", "s".repeat(238));
    c.command("t", &doc! { "find": buckets }).unwrap();
}
