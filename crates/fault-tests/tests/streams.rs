//! A thousand open change streams on one collection: the log is read once for all of them, an idle stream
//! takes little memory, and none has a thread of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::wire::insert;
use fault_tests::{DB, Rng};
use muniment_value::{DocBuf, array, doc};
use muniment_wire::Connection;
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions};

const STREAMS: usize = 1000;

fn threads(server: &Server) -> usize {
    let tasks = format!("/proc/{}/task", server.pid().unwrap());
    std::fs::read_dir(tasks).unwrap().count()
}

/// The bytes that the process has read from files, and written, by system calls.
fn io(server: &Server) -> (u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/{}/io", server.pid().unwrap())).unwrap();
    let field = |name: &str| -> u64 {
        let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    };
    (field("rchar:"), field("wchar:"))
}

fn open(c: &mut Connection) -> i64 {
    let pipeline = array![doc! { "$changeStream": doc! {} }];
    let open = doc! { "aggregate": "c", "pipeline": pipeline, "cursor": doc! {} };
    let reply = c.command(DB, &open).unwrap();
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    cursor.get("id").unwrap().as_i64_exact().unwrap()
}

fn more(id: i64, batch: i32) -> DocBuf {
    doc! { "getMore": id, "collection": "c", "batchSize": batch, "maxTimeMS": 20_000 }
}

fn events(reply: muniment_value::Doc<'_>) -> usize {
    let batch = reply
        .get_doc("cursor")
        .and_then(|c| c.get_array("nextBatch"));
    batch.unwrap_or_else(|| panic!("{reply:?}")).count()
}

fn rows(rng: &mut Rng, from: i64, n: i64, size: usize) -> Vec<DocBuf> {
    let one = |id: i64| doc! { "_id": id, "text": rng.text(size) };
    (from..from + n).map(one).collect()
}

/// The least memory that the server comes to take, until that is `enough` or the time is over.
fn settled(server: &Server, enough: u64, time: Duration) -> u64 {
    let until = Instant::now() + time;
    let mut least = server.rss_bytes();
    while Instant::now() < until && least > enough {
        std::thread::sleep(Duration::from_millis(50));
        least = least.min(server.rss_bytes());
    }
    least
}

#[test]
fn idle_streams_keep_little_memory_and_no_thread() {
    let server = Server::start(ServerOptions::new().arg("--cacheSizeGB").arg("0.1"));
    let mut c = server.connect();
    let mut rng = Rng::new(1);
    insert(&mut c, DB, "c", &rows(&mut rng, 0, 1, 10)).unwrap();
    let pause = Duration::from_secs(1);
    let (memory, before) = (settled(&server, 0, pause), threads(&server));
    let ids: Vec<i64> = (0..STREAMS).map(|_| open(&mut c)).collect();
    let fresh = server.rss_bytes().saturating_sub(memory) / STREAMS as u64;
    let after = threads(&server);
    println!(
        "{STREAMS} streams: {fresh} bytes each when they are open, {before} threads and then {after}"
    );
    assert!(fresh < 32 << 10 && after <= before + 1);
    // This is more than the server keeps in memory for all streams, so each stream lags and reads the log
    // itself.
    for n in 0..30 {
        insert(&mut c, DB, "c", &rows(&mut rng, 1 + n * 1000, 1000, 1000)).unwrap();
    }
    let memory = settled(&server, 0, pause);
    for id in &ids {
        let reply = c.command(DB, &more(*id, 1)).unwrap();
        assert_eq!(events(reply.as_doc()), 1);
    }
    let at_once = server.rss_bytes().saturating_sub(memory) / STREAMS as u64;
    // Few streams keep a reader of their own, and those at the same record share it.
    assert!(at_once <= 128 << 10, "a stream takes {at_once} bytes");
    let most = 32 << 10;
    let patience = Duration::from_secs(30);
    let idle = settled(&server, memory + most * STREAMS as u64, patience);
    let idle = idle.saturating_sub(memory) / STREAMS as u64;
    println!("{at_once} bytes each just after a batch, {idle} some seconds later");
    assert!(idle <= most, "an idle stream keeps {idle} bytes");
    // Workers that were called while one was busy end when they had nothing to do for ten seconds.
    server.until("as few threads as before", || {
        (threads(&server) <= before + 1).then_some(())
    });
}

#[test]
fn waiting_streams_read_the_log_once() {
    let server = Server::start(ServerOptions::new());
    let mut c = server.connect();
    let mut rng = Rng::new(2);
    insert(&mut c, DB, "c", &rows(&mut rng, 0, 1, 10)).unwrap();
    let before = threads(&server);
    let mut streams: Vec<(Connection, i64, usize)> = (0..STREAMS)
        .map(|_| {
            let mut c = server.connect();
            let id = open(&mut c);
            (c, id, 0)
        })
        .collect();
    for (c, id, _) in &mut streams {
        c.send_command(DB, &more(*id, 1000), 0, &[]).unwrap();
    }
    std::thread::sleep(Duration::from_millis(500));
    let waiting = threads(&server) - before;
    let (read, written) = io(&server);
    const WRITES: usize = 400;
    for n in 0..WRITES {
        let at = 1 + n as i64;
        insert(&mut c, DB, "c", &rows(&mut rng, at, 1, 1000)).unwrap();
    }
    for (c, id, seen) in &mut streams {
        loop {
            *seen += events(c.recv().unwrap().body);
            if *seen == WRITES {
                break;
            }
            c.send_command(DB, &more(*id, 1000), 0, &[]).unwrap();
        }
    }
    let (read, written) = (io(&server).0 - read, io(&server).1 - written);
    println!(
        "{STREAMS} streams, {} threads more than their connections; {WRITES} writes: {written} bytes \
         written, {read} read",
        waiting.saturating_sub(STREAMS)
    );
    assert!(waiting <= STREAMS + 2);
}
