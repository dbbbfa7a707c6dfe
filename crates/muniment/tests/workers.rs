//! A few threads for all connections (`--workers`): what waits, computes or stalls holds up nobody else, no
//! message is lost on the way from one worker to the next, and silent connections cost next to nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{Doc, DocBuf, array, doc};
use muniment_wire::op_msg::MORE_TO_COME;
use muniment_wire::{Connection, OpMsg, begin_request};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions, endless, request_bytes};

/// A server in which one worker computes at a time, so that nothing is hidden by a second one.
fn server() -> Server {
    let options = ServerOptions::new().arg("--workers").arg("1");
    Server::start(options.arg("--setParameter").arg("enableTestCommands=1"))
}

fn threads(s: &Server) -> usize {
    let tasks = format!("/proc/{}/task", s.pid().unwrap());
    std::fs::read_dir(tasks).unwrap().count()
}

fn ping() -> DocBuf {
    doc! { "ping": 1 }
}

/// Waits until this holds, and panics with `what` if it does not within a minute.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn open_connections(c: &mut Connection) -> i64 {
    let status = c.command("admin", &doc! { "serverStatus": 1 }).unwrap();
    let connections = status.as_doc().get_doc("connections").unwrap();
    connections.get("current").unwrap().as_i64_exact().unwrap()
}

/// The longest of some pings, each on its own connection.
fn slowest_ping(s: &Server) -> Duration {
    let one = |_| {
        let mut c = s.connect();
        let began = Instant::now();
        c.command("admin", &ping()).unwrap();
        began.elapsed()
    };
    (0..5).map(one).max().unwrap()
}

#[test]
fn operations_that_wait_or_compute_hold_up_nobody() {
    let s = server();
    let mut c = s.connect();
    let block = doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn",
    "data": doc! { "failCommands": array!["count"], "blockConnection": true, "blockTimeMS": 8000 } };
    c.command("admin", &block).unwrap();
    c.command(
        "t",
        &doc! { "create": "capped", "capped": true, "size": 4096 },
    )
    .unwrap();
    c.command(
        "t",
        &doc! { "insert": "capped", "documents": array![doc! { "_id": 1 }] },
    )
    .unwrap();
    let hello = c.command("admin", &doc! { "hello": 1 }).unwrap();
    let version = hello.as_doc().get_doc("topologyVersion").unwrap().to_buf();
    let mut busy = Vec::new();
    for _ in 0..40 {
        // An announced wait, one that is not announced, and one for data.
        for (db, command) in [
            ("t", doc! { "count": "c" }),
            (
                "admin",
                doc! { "hello": 1, "topologyVersion": &version, "maxAwaitTimeMS": 8000 },
            ),
        ] {
            let mut waits = s.connect();
            waits.send_command(db, &command, 0, &[]).unwrap();
            busy.push(waits);
        }
        let mut waits = s.connect();
        let find = doc! { "find": "capped", "tailable": true, "awaitData": true };
        let reply = waits.command("t", &find).unwrap();
        let cursor = reply.as_doc().get_doc("cursor").unwrap();
        let id = cursor.get("id").unwrap().as_i64_exact().unwrap();
        let more = doc! { "getMore": id, "collection": "capped", "maxTimeMS": 60_000 };
        waits.send_command("t", &more, 0, &[]).unwrap();
        busy.push(waits);
    }
    for _ in 0..8 {
        let mut computes = s.connect();
        computes
            .send_command("t", &endless("endless"), 0, &[])
            .unwrap();
        busy.push(computes);
    }
    let slowest = slowest_ping(&s);
    assert!(slowest < Duration::from_secs(5), "a ping took {slowest:?}");
    // New data and killOp reach those for which they are meant.
    let insert = doc! { "insert": "capped", "documents": array![doc! { "_id": 2 }] };
    c.command("t", &insert).unwrap();
    for waits in busy.iter_mut().take(120).skip(2).step_by(3) {
        let reply = waits.recv().unwrap().body;
        let batch = reply.get_doc("cursor").unwrap().get_array("nextBatch");
        assert_eq!(batch.unwrap().count(), 1);
    }
    let running = doc! { "currentOp": 1, "command.comment": "endless" };
    let running = c.command("admin", &running).unwrap();
    let ops = running.as_doc().get_array("inprog").unwrap();
    let ids: Vec<_> = ops
        .values()
        .map(|op| {
            op.as_doc()
                .unwrap()
                .get("opid")
                .unwrap()
                .as_i64_exact()
                .unwrap()
        })
        .collect();
    assert_eq!(ids.len(), 8);
    for id in &ids {
        let mut kill = doc! { "killOp": 1 };
        kill.append("op", *id);
        c.command("admin", &kill).unwrap();
    }
    for computes in busy.iter_mut().skip(120) {
        assert_eq!(
            computes.recv().unwrap().body.get_str("codeName"),
            Some("Interrupted")
        );
    }
    // The rest ends with its clients.
    drop(busy);
    wait_for("the connections end", || open_connections(&mut c) == 1);
}

#[test]
fn clients_that_stall_hold_up_nobody() {
    let s = server();
    let mut c = s.connect();
    let text = "x".repeat(1 << 20);
    let rows: Vec<DocBuf> = (0..15).map(|n| doc! { "_id": n, "x": &*text }).collect();
    for row in &rows {
        c.command("t", &doc! { "insert": "c", "documents": array![row] })
            .unwrap();
    }
    // These take nothing of replies of 15 MB.
    let find = request_bytes(&doc! { "find": "c", "batchSize": 100, "$db": "t" });
    let mut deaf = Vec::new();
    for _ in 0..10 {
        let mut socket = TcpStream::connect(s.address()).unwrap();
        socket.write_all(&find).unwrap();
        deaf.push(socket);
    }
    // These send a byte at a time.
    let ping = request_bytes(&doc! { "ping": 1, "$db": "admin" });
    let mut slow: Vec<TcpStream> = (0..200)
        .map(|_| TcpStream::connect(s.address()).unwrap())
        .collect();
    let few = threads(&s);
    for at in 0..ping.len() {
        for socket in &mut slow {
            socket.write_all(&ping[at..=at]).unwrap();
        }
        if at % 16 == 0 {
            let slowest = slowest_ping(&s);
            assert!(slowest < Duration::from_secs(5), "a ping took {slowest:?}");
        }
    }
    assert!(
        threads(&s) <= few + 15,
        "{few} threads and then {}",
        threads(&s)
    );
    for socket in &mut slow {
        let mut reply = Vec::new();
        muniment_wire::read_message(socket, &mut reply).unwrap();
        assert_eq!(
            Doc::new(&reply[21..])
                .get("ok")
                .and_then(|v| v.as_i64_exact()),
            Some(1)
        );
    }
    for socket in &mut deaf {
        let mut reply = Vec::new();
        muniment_wire::read_message(socket, &mut reply).unwrap();
        assert!(reply.len() > 15 << 20);
    }
    // Half of a message, and then the end.
    for socket in &mut slow {
        socket.write_all(&ping[..20]).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let limit = Some(Duration::from_secs(30));
        socket.set_read_timeout(limit).unwrap();
        let end = socket.read(&mut [0; 8]).map_err(|e| e.kind());
        assert!(
            matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)),
            "{end:?}"
        );
    }
    drop(deaf);
    wait_for("the connections end", || open_connections(&mut c) == 1);
}

/// Some clients send without a pause and read no replies, since they ask for none.
#[test]
fn clients_that_send_without_a_pause_hold_up_nobody() {
    let s = server();
    let mut one = Vec::new();
    begin_request(&mut one, 3, MORE_TO_COME)
        .body(doc! { "ping": 1, "$db": "admin" }.as_doc())
        .finish()
        .unwrap();
    let many = one.repeat((1 << 20) / one.len());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut socket = TcpStream::connect(s.address()).unwrap();
                while !stop.load(SeqCst) {
                    socket.write_all(&many).unwrap();
                }
            });
        }
        std::thread::sleep(Duration::from_millis(300));
        let slowest: Vec<Duration> = (0..10).map(|_| slowest_ping(&s)).collect();
        stop.store(true, SeqCst);
        // With a worker that serves one client as long as it sends, none of them ends before that.
        assert!(
            slowest.iter().all(|t| *t < Duration::from_secs(2)),
            "pings took {slowest:?}"
        );
    });
}

/// Clients of other protocols are told so, and waited for, but not by the worker that others need.
#[test]
fn strangers_hold_up_nobody() {
    let s = server();
    let mut c = s.connect();
    let mut all: Vec<TcpStream> = (0..150)
        .map(|_| TcpStream::connect(s.address()).unwrap())
        .collect();
    for socket in &mut all {
        socket.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    }
    let began = Instant::now();
    c.command("admin", &ping()).unwrap();
    // One after the other, they would take half a second each.
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "a ping took {took:?}");
    for socket in &mut all {
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("over HTTP"), "{answer}");
    }
}

/// A read stops at urgent data, although there is more.
#[test]
fn urgent_data_hides_no_message() {
    let s = server();
    let ping = request_bytes(&doc! { "ping": 1, "$db": "admin" });
    let mut all: Vec<TcpStream> = (0..20)
        .map(|_| TcpStream::connect(s.address()).unwrap())
        .collect();
    for socket in &mut all {
        // The urgent byte is none of the message.
        let (begin, end) = ping.split_at(ping.len() / 2);
        socket.write_all(&ping).unwrap();
        socket.write_all(begin).unwrap();
        // SAFETY: the socket is open, and one byte of this function's stack is read.
        let sent =
            unsafe { libc::send(socket.as_raw_fd(), [7_u8].as_ptr().cast(), 1, libc::MSG_OOB) };
        assert_eq!(sent, 1);
        socket.write_all(end).unwrap();
    }
    for socket in &mut all {
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        for _ in 0..2 {
            muniment_wire::read_message(socket, &mut Vec::new()).unwrap();
        }
    }
}

/// Connections go from a few busy ones, each of which has a thread of its own, to many that take turns, and back.
/// Each has its own row, and knows what is in it; messages are sent several at a time; some clients go in the
/// middle.
#[test]
fn no_message_is_lost_or_answered_twice_as_connections_come_and_go() {
    const CLIENTS: usize = 150;
    let s = Server::start(ServerOptions::new().arg("--workers").arg("2"));
    let mut c = s.connect();
    let (done, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (s, done, stop) = (&s, &done, &stop);
            scope.spawn(move || {
                let mut c = s.connect();
                let mut sum = 0_i64;
                let mut n = client as i64;
                while !stop.load(SeqCst) {
                    // Sometimes more than a worker handles at once.
                    let several = if n % 7 == 0 { 40 } else { 1 + n % 4 };
                    for _ in 0..several {
                        n += 1;
                        let update = array![doc! { "q": doc! { "_id": client as i64 },
                        "u": doc! { "$inc": doc! { "n": n } }, "upsert": true }];
                        let update = doc! { "update": "rows", "updates": update };
                        c.send_command("t", &update, 0, &[]).unwrap();
                        sum += n;
                    }
                    for _ in 0..several {
                        let reply = c.recv_bytes().unwrap();
                        let reply = OpMsg::parse(reply).unwrap().body;
                        assert_eq!(reply.get("n").unwrap().as_i64_exact(), Some(1), "{reply:?}");
                    }
                    done.fetch_add(several as usize, SeqCst);
                    if n % 97 == 0 {
                        let find = doc! { "find": "rows", "filter": doc! { "_id": client as i64 } };
                        // The client goes while its message is on the way, and comes back.
                        c.send_command("t", &find, 0, &[]).unwrap();
                        c = s.connect();
                    }
                    // Most are silent most of the time in every second second.
                    if client > 3 && n / 100 % 2 == 1 {
                        std::thread::sleep(Duration::from_millis(40));
                    }
                }
                let find = doc! { "find": "rows", "filter": doc! { "_id": client as i64 } };
                let rows = c.find_all("t", &find).unwrap();
                let has = rows[0].as_doc().get("n").unwrap().as_i64_exact();
                assert_eq!(has, Some(sum), "of client {client}");
            });
        }
        let until = Instant::now() + Duration::from_secs(8);
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
            c.command("admin", &ping()).unwrap();
        }
        stop.store(true, SeqCst);
    });
    assert!(done.load(SeqCst) > CLIENTS * 10);
    wait_for("the connections end", || open_connections(&mut c) == 1);
    // Threads that have nothing to do end.
    let few = threads(&server());
    wait_for("the threads end", || threads(&s) <= few + 4);
}

#[test]
fn silent_connections_have_no_thread_and_little_memory() {
    const SILENT: usize = 3000;
    let s = Server::start(ServerOptions::new().arg("--workers").arg("2"));
    let mut c = s.connect();
    c.command("admin", &ping()).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let (few, memory) = (threads(&s), s.rss_bytes());
    let mut silent: Vec<Connection> = (0..SILENT).map(|_| s.connect()).collect();
    for c in &mut silent {
        c.hello().unwrap();
    }
    let most = 3500;
    let mut each = usize::MAX;
    wait_for("their memory is given back", || {
        each = (s.rss_bytes().saturating_sub(memory)) as usize / SILENT;
        each <= most && threads(&s) <= few + 2
    });
    println!(
        "{SILENT} silent connections: {each} bytes each, {} threads",
        threads(&s)
    );
    for c in &mut silent {
        c.command("admin", &ping()).unwrap();
    }
}

#[test]
fn a_server_ends_while_its_connections_are_busy() {
    let mut s = server();
    let mut all: Vec<Connection> = (0..50).map(|_| s.connect()).collect();
    for (n, c) in all.iter_mut().enumerate() {
        match n % 2 {
            0 => c.send_command("t", &endless("endless"), 0, &[]).unwrap(),
            _ => c.command("admin", &ping()).map(drop).unwrap(),
        };
    }
    let began = Instant::now();
    assert!(s.terminate().success());
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
}
