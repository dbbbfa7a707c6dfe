//! The simulator of a replica set, from commands to log: three to seven members in one thread and
//! virtual time, all drawn from one seed.
//!
//! Each member ([`member`]) is the real server without sockets and threads: commands go through
//! `request`, the storage is the real one over a disk in memory that loses what was not synced, tears
//! writes, fails and fills up, and the driver of the consensus is the real one, whose turns the simulator
//! calls ([`hands`]). Frames go as bytes over connections that are slow, break and are cut off ([`network`]).
//! Clients send retryable statements and transactions again and again ([`clients`]), and an oracle
//! ([`oracle`]) that knows every record of every log says what each member has to show. At the end
//! everything is healed, and all members have to be equal.
//!
//! The simulation differs from a server in this: a command never waits in its thread. It is sent with
//! `w: 1`, and for the majority the simulator waits where the command would ([`Node::begin_wait`]). A
//! connection keeps the order of its frames, as TCP does; the core's own simulator reorders them. Members
//! lose their disks and are filled ([`fill`]) without the sockets of an initial sync, its threads and its
//! directory; before that the leader always commits a record of its own for them. Times that only reports
//! and figures show, and the wall clock in a session's record, are not drawn from the seed, and have no
//! influence on what happens.
//!
//! [`Node::begin_wait`]: muniment_member::Node::begin_wait
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod ask;
pub(crate) mod bugs;
mod clients;
mod course;
mod faults;
mod fill;
pub(crate) mod hands;
mod locks;
pub(crate) mod member;
pub(crate) mod network;
mod oracle;
pub(crate) mod random;
pub(crate) mod seeds;
mod sim;
mod upkeep;

pub use bugs::Bugs;

use course::Course;
use member::Member;
use muniment_member::Request;
use muniment_op::question;
use random::{Random, Time};
use seeds::{first_to_find, run_seeds};
use sim::Sim;

/// Runs a seed, in a thread with a stack like that of a connection.
fn run(seed: u64, bugs: Bugs) -> Result<Course, String> {
    let thread = std::thread::Builder::new().stack_size(16 << 20);
    let run = thread.spawn(move || Sim::new(seed, bugs).run());
    let run = run.unwrap().join();
    run.unwrap_or_else(|_| Err("a panic, see above".into()))
}

#[test]
fn simulate_sets() {
    // Some 50 s on two cores, unoptimised.
    run_seeds("simulate_sets", 200, |seed| run(seed, Bugs::default()));
}

/// Whenever the power fails while a set is initiated, afterwards there is a set that takes writes, or none
/// at all.
#[test]
fn an_initiation_survives_a_power_cut_at_any_moment() {
    let mut cut_short = 0;
    for n in 0.. {
        let mut random = Random::new(n);
        let time = Time::new();
        let mut m = Member::new(0, &time, &mut random, Bugs::default());
        m.fuse(n, random.next());
        let begun = m.initiate(&mut random);
        if !m.fell() {
            begun.unwrap();
            break;
        }
        m.crash(false, random.next());
        cut_short += 1;
        match m.start(&mut random) {
            Ok(()) => assert!(m.running.unwrap().set().is_primary(), "cut {n}"),
            Err(e) if m.state_file().read().unwrap().is_none() => drop(e),
            Err(e) => panic!("cut {n}: {e}"),
        }
    }
    assert!(cut_short > 10);
}

/// What commands have told a member of elections is forgotten when its process ends, and kept when it begins
/// anew in place.
#[test]
fn a_member_that_begins_anew_stays_frozen() {
    let (mut random, time) = (Random::new(1), Time::new());
    let mut m = Member::new(0, &time, &mut random, Bugs::default());
    m.initiate(&mut random).unwrap();
    let mut leads_after = |frozen: bool, anew: bool| {
        let r = m.running.as_mut().unwrap();
        if frozen {
            let (to, _from) = question();
            r.node.ask(Request::Freeze(600_000, to));
            r.driver.turn_now();
        }
        match anew {
            true => m.stop_to_begin_anew(),
            false => m.stop(),
        }
        m.start(&mut random).unwrap();
        m.running.as_ref().unwrap().set().is_primary()
    };
    assert!(leads_after(false, true));
    assert!(!leads_after(true, true));
    assert!(leads_after(true, false));
}

#[test]
fn a_seed_runs_the_same_twice() {
    for seed in 0..3 {
        let [a, b] = [run(seed, Bugs::default()), run(seed, Bugs::default())];
        assert_eq!(a.unwrap().trace, b.unwrap().trace, "seed {seed}");
    }
}

fn is_found(name: &str, bugs: Bugs) {
    is_found_from(name, bugs, 0);
}

/// As above, from a seed on that is shortly before one which finds the bug.
fn is_found_from(name: &str, bugs: Bugs, first: u64) {
    let found = first_to_find(
        first,
        |seed| run(seed, bugs),
        |seed| run(seed, Bugs::default()),
    );
    let (seed, why) = found.unwrap_or_else(|| panic!("{name}: not found in 1000 seeds"));
    let why = why.lines().next().unwrap_or_default();
    println!("{name}: found at seed {seed}: {why}");
}

#[test]
fn what_is_told_to_be_durable_too_early_is_found() {
    let bugs = Bugs {
        acknowledge_early: true,
        ..Bugs::default()
    };
    is_found("acknowledge early", bugs);
}

#[test]
fn records_of_other_terms_that_are_passed_are_found() {
    let bugs = Bugs {
        ignore_terms: true,
        ..Bugs::default()
    };
    is_found("ignore terms", bugs);
}

#[test]
fn copies_for_which_the_leader_was_not_asked_are_found() {
    let bugs = Bugs {
        copies_unasked: true,
        ..Bugs::default()
    };
    is_found_from("copies unasked", bugs, 155);
}

#[test]
fn what_is_set_aside_and_acknowledged_before_it_is_synced_is_found() {
    let bugs = Bugs {
        aside_unsynced: true,
        ..Bugs::default()
    };
    is_found_from("aside unsynced", bugs, 55);
}

#[test]
fn what_is_set_aside_and_dropped_at_the_unlock_is_found() {
    let bugs = Bugs {
        aside_dropped: true,
        ..Bugs::default()
    };
    is_found("aside dropped", bugs);
}

#[test]
fn a_state_that_is_ahead_of_what_a_copy_has_is_found() {
    let bugs = Bugs {
        state_ahead: true,
        ..Bugs::default()
    };
    is_found("state ahead", bugs);
}

#[test]
fn flushes_above_the_commit_point_are_found() {
    let bugs = Bugs {
        commit_all: true,
        ..Bugs::default()
    };
    is_found("commit all", bugs);
}
