//! Power cuts: writes that were acknowledged as journaled survive; of the others, only those of the last
//! commit interval may be missing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::{Load, Promise, Rng, consistent, create_indexes, long, seed};
use std::time::Duration;
use testkit::{Server, ServerOptions};

/// The time that syncs and scheduling may add to the commit interval before the flush is done, on a machine
/// with a processor for every thread that is ready to run.
const SLACK: Duration = Duration::from_millis(200);

/// Runs rounds of load and power cut. Returns the numbers of acknowledged and of lost writes.
fn cuts(
    options: ServerOptions,
    interval: u64,
    journaled_percent: u64,
    rounds: u64,
) -> (usize, usize) {
    cuts_of(options, interval, journaled_percent, rounds, |l| l)
}

/// Does the same as [`cuts`], with another kind of load.
fn cuts_of(
    options: ServerOptions,
    interval: u64,
    journaled_percent: u64,
    rounds: u64,
    kind: fn(Load) -> Load,
) -> (usize, usize) {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let options = options
        .sync_delay(Duration::from_millis(1))
        .arg("--journalCommitInterval")
        .arg(interval.to_string());
    let mut server = Server::start(options);
    create_indexes(&mut server.connect());
    let mut load = kind(Load::new(seed, 4, journaled_percent));
    let (mut acknowledged, mut lost) = (0, 0);
    // The creation of the indexes is as durable as any unjournaled write.
    std::thread::sleep(Duration::from_millis(interval) + 5 * SLACK);
    for _ in 0..rounds {
        let time = Duration::from_millis(20 + rng.below(2 * interval + 200));
        let address = server.address();
        let crash = load.run(&address, time, || server.kill9());
        server.cut_power();
        server.start_again();
        acknowledged += load.acknowledged();
        let mut c = server.connect();
        // On a busy machine every thread that is ready has to wait, the flush as well.
        let bound = Duration::from_millis(interval) + SLACK + 3 * crash.stall;
        let cut = crash.at;
        lost += load.judge(&mut c, Promise::Journaled { cut, bound });
        consistent(&mut c);
    }
    println!(
        "{rounds} power cuts, {acknowledged} acknowledged writes, {lost} lost within the bound"
    );
    (acknowledged, lost)
}

#[test]
fn journaled_writes_survive() {
    let rounds = if long() { 60 } else { 8 };
    let (acknowledged, lost) = cuts(ServerOptions::new().powerloss(), 100, 100, rounds);
    assert!(acknowledged > 0);
    assert_eq!(lost, 0);
}

#[test]
fn others_are_lost_for_at_most_the_commit_interval() {
    let rounds = if long() { 40 } else { 6 };
    let (_, lost) = cuts(ServerOptions::new().powerloss(), 100, 20, rounds);
    println!("{lost} lost");
}

#[test]
fn a_long_interval_loses_some_which_shows_that_the_test_can_tell() {
    let rounds = if long() { 20 } else { 5 };
    let (_, lost) = cuts(ServerOptions::new().powerloss(), 500, 0, rounds);
    assert!(lost > 0, "no write was lost: is the layer active?");
}

#[test]
fn during_flushes_and_compactions() {
    let rounds = if long() { 40 } else { 4 };
    let options = ServerOptions::new().powerloss();
    cuts_of(options, 500, 30, rounds, Load::large);
}

#[test]
fn on_a_file_system_that_orders_its_metadata() {
    let rounds = if long() { 40 } else { 4 };
    cuts(ServerOptions::new().powerloss_ordered(), 100, 30, rounds);
}
