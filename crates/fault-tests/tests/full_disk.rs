//! A full disk: writes are refused with 14031 OutOfDiskSpace, reads continue, nothing acknowledged is lost,
//! and writes are accepted again when there is space, without a restart.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{ArrayBuf, DocBuf, Error, Result, doc};
use muniment_wire::Connection;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions};

const DB: &str = "full";

/// Inserts documents `from..to`. An error in the reply counts as an error.
fn insert(c: &mut Connection, from: i64, to: i64) -> Result<()> {
    let docs: ArrayBuf = (from..to)
        .map(|i| doc! { "_id": i, "x": i, "text": "t".repeat(500) })
        .collect();
    let reply = c.command(DB, &doc! { "insert": "c", "documents": docs })?;
    let first = reply
        .as_doc()
        .get_array("writeErrors")
        .and_then(|a| a.first());
    match first.and_then(|e| e.value().as_doc()) {
        None => Ok(()),
        Some(e) => {
            let code = e.get("code").and_then(|v| v.as_i64_exact()).unwrap_or(0);
            let text = e.get_str("errmsg").unwrap_or_default();
            Err(Error::location(code as i32, text))
        }
    }
}

fn refused(e: &Error) {
    assert_eq!(e.code().0, 14031, "{e:?}");
    assert!(e.message().contains("disk"), "not a clear message: {e:?}");
}

/// Checks that all acknowledged documents exist. Refused ones may or may not.
fn has(c: &mut Connection, acknowledged: i64) {
    let docs = c
        .find_all(DB, &doc! { "find": "c", "sort": doc! { "_id": 1 } })
        .unwrap();
    let id = |d: &DocBuf| {
        d.as_doc()
            .get("_id")
            .and_then(|v| v.as_i64_exact())
            .unwrap()
    };
    let ids: Vec<i64> = docs.iter().map(id).filter(|i| *i < acknowledged).collect();
    assert_eq!(ids, (0..acknowledged).collect::<Vec<i64>>());
    let one = c.find_all(
        DB,
        &doc! { "find": "c", "filter": doc! { "x": acknowledged - 1 } },
    );
    assert_eq!(one.unwrap().len(), 1, "through the index");
}

/// Tries for ten seconds until a write is accepted.
fn taken_again(c: &mut Connection, from: i64, to: i64) {
    let deadline = Instant::now() + Duration::from_secs(10);
    // Documents of a refused insert may exist.
    let cleared = |c: &mut Connection| {
        let q = doc! { "q": doc! { "_id": doc! { "$gte": from } }, "limit": 0 };
        c.command(
            DB,
            &doc! { "delete": "c", "deletes": muniment_value::array![q] },
        )
        .map(|_| ())
    };
    loop {
        match cleared(c).and_then(|()| insert(c, from, to)) {
            Ok(()) => return,
            Err(e) if Instant::now() > deadline => panic!("no write is taken: {e:?}"),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn index(c: &mut Connection) {
    let spec = doc! { "key": doc! { "x": 1 }, "name": "x_1" };
    let cmd = doc! { "createIndexes": "c", "indexes": muniment_value::array![spec] };
    c.command(DB, &cmd).unwrap();
}

#[test]
fn a_disk_that_is_suddenly_full() {
    let mut server = Server::start(ServerOptions::new().budget(u64::MAX));
    let mut c = server.connect();
    index(&mut c);
    insert(&mut c, 0, 1000).unwrap();
    for round in 1..=3 {
        let n = round * 1000;
        server.set_budget(0);
        // Data that the server has buffered may still reach the file system.
        let mut refusals = 0;
        for _ in 0..20 {
            match insert(&mut c, n, n + 100) {
                Ok(()) => panic!("acknowledged on a full disk"),
                Err(e) => refused(&e),
            }
            refusals += 1;
            has(&mut c, n);
        }
        assert_eq!(refusals, 20);
        server.set_budget(u64::MAX);
        taken_again(&mut c, n, n + 1000);
        has(&mut c, n + 1000);
    }
    drop(c);
    server.kill9();
    server.start_again();
    has(&mut server.connect(), 4000);
}

#[test]
fn many_writers_on_a_disk_that_is_full_now_and_then() {
    let mut server = Server::start(ServerOptions::new().budget(u64::MAX));
    index(&mut server.connect());
    let stop = AtomicBool::new(false);
    let ends = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for writer in 0..6_i64 {
            let (mut c, stop, ends) = (server.connect(), &stop, &ends);
            scope.spawn(move || {
                let mut acknowledged = Vec::new();
                let (mut refusals, mut next) = (0, writer * 1_000_000);
                while !stop.load(Ordering::SeqCst) {
                    next += 1;
                    match insert(&mut c, next, next + 1) {
                        Ok(()) => acknowledged.push(next),
                        Err(e) => {
                            refused(&e);
                            refusals += 1;
                        }
                    }
                }
                ends.lock().unwrap().push((acknowledged, refusals));
            });
        }
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(300));
            server.set_budget(0);
            std::thread::sleep(Duration::from_millis(300));
            server.set_budget(u64::MAX);
            // The others still try meanwhile.
            let mut c = server.connect();
            taken_again(&mut c, 90_000_000, 90_000_001);
        }
        stop.store(true, Ordering::SeqCst);
    });
    let ends = ends.into_inner().unwrap();
    let refusals: i32 = ends.iter().map(|e| e.1).sum();
    let acknowledged: BTreeSet<i64> = ends.into_iter().flat_map(|e| e.0).collect();
    println!("{} acknowledged, {refusals} refused", acknowledged.len());
    assert!(refusals > 0);
    for killed in [false, true] {
        if killed {
            server.kill9();
            server.start_again();
        }
        let mut c = server.connect();
        let docs = c.find_all(DB, &doc! { "find": "c", "projection": doc! { "_id": 1 } });
        let id = |d: &DocBuf| d.as_doc().get("_id").and_then(|v| v.as_i64_exact());
        let found: BTreeSet<i64> = docs.unwrap().iter().filter_map(id).collect();
        let lost: Vec<_> = acknowledged.difference(&found).collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
        let reply = c
            .command(DB, &doc! { "validate": "c", "full": true })
            .unwrap();
        let valid = reply.as_doc().get("valid").is_some_and(|v| v.truthy());
        assert!(valid, "{reply:?}");
    }
}

#[test]
fn a_disk_that_fills_up() {
    // The server keeps a reserve of 256 MiB, so the disk counts as full after some ten megabytes.
    let limit = 300_000_000;
    let options = ServerOptions::new().patience(Duration::from_secs(60));
    let mut server = Server::start(options.budget(limit));
    let mut c = server.connect();
    index(&mut c);
    let mut n = 0;
    let e = loop {
        match insert(&mut c, n, n + 2000) {
            Ok(()) => n += 2000,
            Err(e) => break e,
        }
        assert!(n < 2_000_000, "the disk never fills");
    };
    println!("refused after {n} documents");
    refused(&e);
    has(&mut c, n);
    server.set_budget(u64::MAX);
    taken_again(&mut c, n, n + 1000);
    has(&mut c, n + 1000);
    assert!(server.terminate().success());
    server.start_again();
    has(&mut server.connect(), n + 1000);
}
