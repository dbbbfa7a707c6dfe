//! Everything at once while ranges move all the time: each change takes effect once, and each read sees all of it.
//!
//! `MUNIMENT_LONG=1` runs for five minutes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod moving;

use moving::load::{Load, routers_of};
use moving::*;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

#[test]
fn everything_at_once() {
    let cluster = cluster(2, 1, 2);
    let mut c = cluster.connect();
    let load = Load::prepare(&mut c, false);
    let time = if std::env::var_os("MUNIMENT_LONG").is_some() {
        300
    } else {
        7
    };
    let routers = routers_of(&cluster);
    thread::scope(|s| {
        let (load, routers) = (&load, &routers);
        let all = [
            "change", "change", "insert", "multi", "batch", "audit", "read", "read", "snapshot",
            "transfer",
        ];
        let mut threads: Vec<_> = (all.into_iter().enumerate())
            .map(|(i, what)| s.spawn(move || load.work(routers, i, what)))
            .collect();
        threads.push(s.spawn(move || load.moves(routers, 0)));
        for _ in 0..time * 10 {
            thread::sleep(Duration::from_millis(100));
            if threads.iter().any(|t| t.is_finished()) {
                break;
            }
        }
        load.stop.store(true, SeqCst);
    });
    let done = load.done.lock().unwrap().clone();
    assert!(done.get("move").is_some_and(|n| *n >= 5), "{done:?}");
    assert_eq!(
        done.len(),
        9 + usize::from(done.contains_key("busy")),
        "{done:?}"
    );
    load.check(&mut c);
    until_clean(&cluster, "d", "c", load.rows());
    until_clean(&cluster, "d", "bank", load.accounts());
    load.check(&mut c);
}
