//! The simulator of a cluster: configuration, shards and routers in virtual time, all drawn from one seed.
//!
//! The servers are real ones without sockets and threads: members of sets as the simulator of a set has them
//! ([`members`], [`network`]), and routers. In two of three runs each set has one member, whose fall is the fall of its set.
//! In the others most sets have three, so that others are elected, and what was not committed is given up. Whatever takes time is a fibre ([`fibres`]): a client with its router, the execution of
//! one request on a member, what a member does by itself. Each has a thread, and one of them runs at a time. It gives
//! the baton back when it waits for a reply, a lock or a time; the simulator then draws what happens
//! next. Messages are slow, get lost with their connections, links are cut, the power of members fails, also in the
//! middle of something, and routers are killed ([`faults`]).
//!
//! Clients insert, increment, delete, read and count documents of one collection, while its ranges move ([`clients`]).
//! Others move amounts between the documents of a second one in transactions, and read all of them at one time
//! ([`bank`], [`ledger`]).
//! Another collection, and the database of both, are divided, moved and dropped beside that ([`admin`]). An oracle
//! ([`oracle`]) knows what clients were told. After each step no two shards take writes to the same key; in the end
//! everything is healed, and shards, configuration and clients agree ([`ways`]).
//!
//! The simulation differs from a cluster in this: a router's client is in the router's process, and a thread that another
//! one wakes goes on after a moment, and not at once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod activities;
mod admin;
mod bank;
mod bugs;
mod clients;
mod cluster;
mod course;
mod faults;
mod fibres;
mod ledger;
mod members;
mod network;
mod oracle;
mod roads;
mod server;
mod sim;
mod ways;
mod wire;
mod worker;
mod world;

pub(crate) use wire::Wire;

use crate::replica_set::simulation::Bugs;
use crate::replica_set::simulation::seeds::{first_to_find, run_seeds};
use bugs::Bug;
use course::Course;
use muniment_op::Mistake;
use sim::Sim;

/// Runs a seed, in a thread with a stack like that of a connection.
fn run(seed: u64, bug: Option<Bug>) -> Result<Course, String> {
    let thread = std::thread::Builder::new().stack_size(16 << 20);
    let run = thread.spawn(move || Sim::new(seed, bug)?.run());
    let run = run.unwrap().join();
    run.unwrap_or_else(|_| Err("a panic, see above".into()))
}

#[test]
fn simulate_clusters() {
    run_seeds("simulate_clusters", 200, |seed| run(seed, None));
}

#[test]
fn a_seed_of_a_cluster_runs_the_same_twice() {
    for seed in 0..3 {
        let [a, b] = [run(seed, None), run(seed, None)].map(Result::unwrap);
        assert_eq!((a.steps, a.trace), (b.steps, b.trace), "seed {seed}");
    }
}

/// The first seed from `first` on that finds a bug, and nothing without it. `first` is shortly before one that does.
fn is_found(bug: Bug, first: u64) {
    let found = first_to_find(first, |seed| run(seed, Some(bug)), |seed| run(seed, None));
    let (seed, why) = found.unwrap_or_else(|| panic!("{bug:?}: not found in 1000 seeds"));
    println!("{bug:?}: found at seed {seed}: {why}");
}

#[test]
fn writes_to_a_range_that_is_given_away_are_found() {
    is_found(Bug::Made(Mistake::NoGate), 0);
}

#[test]
fn a_freeze_that_does_not_survive_the_fall_of_the_primary_is_found() {
    is_found(Bug::FreezeForgotten, 12);
}

#[test]
fn a_move_without_its_last_round_is_found() {
    is_found(Bug::Made(Mistake::LastRoundSkipped), 49);
}

#[test]
fn sessions_that_are_not_copied_are_found() {
    is_found(Bug::Made(Mistake::SessionsForgotten), 53);
}

#[test]
fn sessions_that_a_donor_may_give_up_are_found() {
    is_found(Bug::Made(Mistake::SessionsUnconfirmed), 3740);
}

#[test]
fn readers_that_see_what_is_owned_now_are_found() {
    is_found(Bug::Made(Mistake::NewestFilter), 190);
}

#[test]
fn shards_that_are_told_before_the_decision_are_found() {
    is_found(Bug::Made(Mistake::ResolveFirst), 34);
}

#[test]
fn members_that_tell_too_early_that_records_are_durable_are_found() {
    let bugs = Bugs {
        acknowledge_early: true,
        ..Bugs::default()
    };
    is_found(Bug::OfMembers(bugs), 320);
}

#[test]
fn ranges_that_are_not_accounted_for_are_found() {
    is_found(Bug::Made(Mistake::NotAccounted), 13);
}
