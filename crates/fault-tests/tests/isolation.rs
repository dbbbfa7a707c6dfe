//! Random transactions that append to lists and read them, with kills: they must read what snapshot isolation
//! allows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::appends::{Manner, Shared, lists};
use fault_tests::isolation::{Transaction, judge};
use fault_tests::session::Address;
use fault_tests::{DB, long, seed};
use muniment_value::{array, doc};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use testkit::{Server, ServerOptions};

const CLIENTS: u64 = 4;

/// Runs transactions until this many were committed, with this many kills in between.
fn history(
    transactions: usize,
    kills: usize,
    manner: Manner,
) -> (Vec<Transaction>, BTreeMap<i64, Vec<i64>>) {
    let seed = seed();
    let mut server = Server::start(ServerOptions::new());
    let mut c = server.connect();
    let spec = doc! { "key": doc! { "k": 1 }, "name": "k" };
    c.command(
        DB,
        &doc! { "createIndexes": "lists", "indexes": array![spec] },
    )
    .unwrap();
    let shared = Shared::new(Address::new(server.address()), manner);
    let all = std::thread::scope(|scope| {
        let _guard = shared.address.guard();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|i| {
                let shared = &shared;
                scope.spawn(move || shared.run(i, seed))
            })
            .collect();
        let reach = |wanted: usize| {
            while shared.committed.load(SeqCst) < wanted {
                assert!(!clients.iter().any(|c| c.is_finished()), "a client failed");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        for kill in 1..=kills {
            let until = transactions * kill / (kills + 1);
            reach(until);
            server.kill9();
            server.start_again();
            shared.address.set(server.address());
        }
        reach(transactions);
        shared.stop.store(true, SeqCst);
        let all = clients.into_iter().flat_map(|c| c.join().unwrap());
        all.collect::<Vec<_>>()
    });
    let mut c = server.connect();
    let last = c.find_all(DB, &doc! { "find": "lists" }).unwrap();
    (all, lists(&last))
}

#[test]
fn transactions_are_isolated_as_snapshots() {
    let (transactions, kills) = if long() { (100_000, 40) } else { (2_500, 4) };
    let (all, last) = history(transactions, kills, Manner::Alone);
    let verdict = judge(&all, &last);
    println!(
        "{} transactions, {} committed, {kills} kills, {} write skews",
        all.len(),
        verdict.committed,
        verdict.write_skews
    );
    assert!(verdict.anomalies.is_empty(), "{:#?}", verdict.anomalies);
    assert!(
        verdict.committed > transactions / 4,
        "{}",
        verdict.committed
    );
    // Snapshot isolation allows them, and random transactions cause some. Without any, the test would prove
    // nothing.
    assert!(verdict.write_skews > 0);
}

/// The check works: it detects reads that do not keep to their view.
#[test]
fn reads_of_the_newest_state_are_found() {
    let (all, last) = history(2_000, 0, Manner::Newest);
    let verdict = judge(&all, &last);
    println!("{} anomalies", verdict.anomalies.len());
    assert!(!verdict.anomalies.is_empty());
}
