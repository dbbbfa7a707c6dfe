//! The memory that long operations take while other clients write.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::wire::{insert, int, j, write};
use fault_tests::{Rng, long};
use muniment_lab::mix::{self, Size};
use muniment_value::{ArrayBuf, DocBuf, doc};
use muniment_wire::Connection;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions};

const DB: &str = "memory";
const DOCS: u64 = 2000;

fn text(rng: &mut Rng) -> String {
    rng.text(100).repeat(80)
}

/// Replaces documents of 8 KB at full speed.
fn replace(c: &mut Connection, stop: &AtomicBool, seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let mut written = 0;
    while !stop.load(SeqCst) {
        let updates: ArrayBuf = (0..50)
            .map(|_| {
                let id = rng.below(DOCS) as i64;
                doc! { "q": doc! { "_id": id }, "u": doc! { "_id": id, "text": text(&mut rng) } }
            })
            .collect();
        write(c, DB, &doc! { "update": "c", "updates": updates }).unwrap();
        written += 50;
    }
    written
}

/// The most memory that the server takes during `time` under full writes.
fn peak(server: &Server, time: Duration) -> u64 {
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut most = 0;
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (mut c, stop, written) = (server.connect(), &stop, &written);
            scope.spawn(move || {
                written.fetch_add(replace(&mut c, stop, seed), SeqCst);
            });
        }
        let until = Instant::now() + time;
        while Instant::now() < until {
            most = most.max(server.rss_bytes());
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, SeqCst);
    });
    println!(
        "{} MB at most, {} documents written",
        most >> 20,
        written.into_inner()
    );
    most
}

/// A long aggregation does not keep memory that writers fill meanwhile: it adds less than 64 MB.
#[test]
fn a_long_aggregation_under_full_writes_takes_little_memory() {
    let options = ServerOptions::new().arg("--cacheSizeGB").arg("0.05");
    let server = Server::start(options);
    let mut c = server.connect();
    let mut rng = Rng::new(1);
    for from in (0..DOCS as i64).step_by(100) {
        let docs: Vec<DocBuf> = (from..from + 100)
            .map(|i| doc! { "_id": i, "text": text(&mut rng) })
            .collect();
        insert(&mut c, DB, "c", &docs).unwrap();
    }
    let time = Duration::from_secs(if long() { 60 } else { 8 });
    let before = peak(&server, time.min(Duration::from_secs(10)));
    let with = std::thread::scope(|scope| {
        let mut other = server.connect();
        // It answers when it is killed, which is after a minute in the long run.
        other.set_timeout(None).unwrap();
        scope.spawn(move || {
            let cmd = r#"{"aggregate": "c", "cursor": {}, "comment": "long", "pipeline": [
                {"$set": {"m": {"$range": [0, 100000]}}}, {"$unwind": "$m"}, {"$match": {"m": -1}}]}"#;
            let e = other.command(DB, &j(cmd));
            assert!(e.is_err(), "it ended by itself");
        });
        let with = peak(&server, time);
        let running = c.command("admin", &doc! { "currentOp": 1 }).unwrap();
        let list = running.as_doc().get_array("inprog").unwrap();
        let mut killed = 0;
        for op in list.values().filter_map(|v| v.as_doc()) {
            let its = op.get_doc("command").and_then(|d| d.get_str("comment"));
            if its == Some("long") {
                let kill = doc! { "killOp": 1, "op": int(op, "opid") };
                c.command("admin", &kill).unwrap();
                killed += 1;
            }
        }
        assert_eq!(killed, 1, "the aggregation does not run");
        with
    });
    let more = with.saturating_sub(before) >> 20;
    assert!(more < 64, "the aggregation adds {more} MB");
}

/// Under everything at once that takes memory, the server stays within its bounds, and reports each account.
/// Clients that do ordinary things are not disconnected.
#[test]
fn everything_at_once_stays_within_bounds() {
    const CACHE: u64 = 128 << 20;
    // The code and the stacks of a test build take more than those of a release. The yardstick `resident`
    // measures how much a release takes in addition to the cache.
    const BESIDE: u64 = 200_000_000;
    let options = ServerOptions::new().arg("--cacheSizeGB").arg("0.125");
    let mut server = Server::start(options);
    let size = Size {
        workers: 2,
        transactions: 40,
        slow: 40,
        partial: 20,
    };
    let time = Duration::from_secs(if long() { 300 } else { 12 });
    let tally = mix::run(&server.address(), size, time).unwrap();
    println!("{}", mix::describe(&tally));
    assert!(server.is_running());
    let peak = server.peak_bytes();
    println!("{} MB at most", peak >> 20);
    assert!(peak < CACHE * 5 / 4 + BESIDE, "{} MB", peak >> 20);
    // All kinds of work ran, and the ordinary load was not disturbed.
    for (kind, d) in &tally {
        assert!(d.done > 0, "{kind}");
    }
    let ordinary = tally["ordinary load"];
    assert_eq!((ordinary.refused, ordinary.closed), (0, 0));
    let mut c = server.connect();
    let status = c.command("admin", &doc! { "serverStatus": 1 }).unwrap();
    let memory = status.as_doc().get_doc("muniment").unwrap();
    let memory = memory.get_doc("memory").unwrap();
    println!("{memory:?}");
    let accounts = memory.get_doc("accounts").unwrap();
    for account in ["messages", "replies", "transactions", "sessions"] {
        let figures = accounts.get_doc(account).unwrap();
        assert!(int(figures, "peakBytes") > 0, "{account}");
    }
}
