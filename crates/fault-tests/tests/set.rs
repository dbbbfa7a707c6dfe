//! A set of three under everything that can happen to it: kills, power cuts, new disks, stopped processes,
//! partitions in one direction and both, clocks that jump. Registers must be linearizable, transactions
//! isolated, and no write that a majority has acknowledged may be lost.
//!
//! `MUNIMENT_LONG=1` runs for half an hour.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::appends::{Manner, Shared, lists};
use fault_tests::both::{Done, beside};
use fault_tests::isolation::judge;
use fault_tests::registers::Registers;
use fault_tests::session::Address;
use fault_tests::{DB, Rng, long, seed};
use muniment_lab::topology::cluster::{Cluster, PATIENCE, Way};
use muniment_lab::topology::shape::Shape;
use muniment_value::{ArrayBuf, Code, DocBuf, array, doc};
use muniment_wire::Connection;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The most milliseconds by which a clock is wrong.
const CLOCK: u64 = 300_000;

/// All documents of a collection, read linearizably. A set may elect at any time, also when nothing is done to
/// it any more, so a read that its primary could not end is sent to the next one.
fn last_state(cluster: &Cluster, of: &str) -> Vec<DocBuf> {
    let find = doc! { "find": of, "readConcern": doc! { "level": "linearizable" } };
    let until = Instant::now() + PATIENCE;
    loop {
        let primary = cluster.wait_until_well(PATIENCE).unwrap();
        let mut c = Connection::connect(cluster.address(primary).unwrap()).unwrap();
        match c.find_all(DB, &find) {
            Ok(all) => return all,
            Err(e) => {
                let deposed = matches!(
                    e.code(),
                    Code::PrimarySteppedDown
                        | Code::NotWritablePrimary
                        | Code::InterruptedDueToReplStateChange
                );
                assert!(deposed && Instant::now() < until, "{of}: {e}");
            }
        }
    }
}

/// Does bad things to the set, until the end.
fn misfortunes(
    cluster: &mut Cluster,
    rng: &mut Rng,
    until: Instant,
) -> BTreeMap<&'static str, usize> {
    let mut count = BTreeMap::new();
    let pause = |rng: &mut Rng, least: u64, most: u64| {
        std::thread::sleep(Duration::from_millis(least + rng.below(most - least)));
    };
    let mut soon = false;
    while Instant::now() < until {
        match std::mem::take(&mut soon) {
            true => pause(rng, 1, 300),
            false => pause(rng, 300, 1500),
        }
        let primary = cluster.primary_of(&[0, 1, 2], PATIENCE).unwrap();
        let any = rng.below(3) as usize;
        let one = if rng.below(3) > 0 { primary } else { any };
        let others: Vec<usize> = (0..3).filter(|m| *m != one).collect();
        let ways = [Way::Both, Way::There, Way::Back];
        let name = match rng.below(10) {
            0 => {
                cluster.kill(one).unwrap();
                pause(rng, 100, 3000);
                cluster.restart(one).unwrap();
                "killed"
            }
            1 => {
                let two = [one, others[rng.below(2) as usize]];
                two.iter().for_each(|m| cluster.kill(*m).unwrap());
                pause(rng, 100, 2000);
                two.iter().for_each(|m| cluster.restart(*m).unwrap());
                "two killed"
            }
            2 => {
                (0..3).for_each(|m| cluster.kill(m).unwrap());
                (0..3).for_each(|m| cluster.restart(m).unwrap());
                "all killed"
            }
            3 => {
                cluster.freeze(one).unwrap();
                pause(rng, 500, 4000);
                cluster.thaw(one).unwrap();
                "frozen"
            }
            4 => {
                // The clock stays like this until its next jump.
                let ms = rng.below(2 * CLOCK) as i64 - CLOCK as i64;
                cluster.set_clock(one, ms).unwrap();
                "clock set"
            }
            5 => {
                cluster.cut_power(one).unwrap();
                pause(rng, 100, 3000);
                cluster.restart(one).unwrap();
                "power cut"
            }
            6 => {
                (0..3).for_each(|m| cluster.cut_power(m).unwrap());
                (0..3).for_each(|m| cluster.restart(m).unwrap());
                "all power cut"
            }
            7 => {
                // A member with an empty disk counts for nothing until it is filled, so only one of three may
                // be empty at a time. The next faults may come during the copy.
                cluster.wait_until_well(PATIENCE).unwrap();
                cluster.replace_disk(one).unwrap();
                cluster.restart(one).unwrap();
                soon = true;
                "new disk"
            }
            cut => {
                // All of its connections are cut, or one of them: then both members still reach the third.
                let all = cut == 8;
                let to = if all {
                    &others[..]
                } else {
                    &others[rng.below(2) as usize..][..1]
                };
                let way = ways[rng.below(3) as usize];
                cluster.part(&[one], to, way).unwrap();
                pause(rng, 500, 4000);
                cluster.heal().unwrap();
                if all { "cut off" } else { "line cut" }
            }
        };
        *count.entry(name).or_default() += 1;
    }
    count
}

#[test]
fn a_set_is_linearizable_and_isolated_whatever_happens() {
    let time = Duration::from_secs(if long() { 1800 } else { 25 });
    let seed = seed();
    let dir = tempfile::tempdir().unwrap();
    let program = testkit::binary();
    let shape = Shape::side_by_side(3);
    let mut cluster =
        Cluster::start_under(Some(testkit::layer()), shape, &program, dir.path(), 0.1).unwrap();
    let first = cluster.wait_until_well(PATIENCE).unwrap();
    let mut c = Connection::connect(cluster.address(first).unwrap()).unwrap();
    let index = doc! { "key": doc! { "k": 1 }, "name": "k" };
    let create = doc! { "createIndexes": "lists", "indexes": array![index] };
    c.command(DB, &create).unwrap();
    c.command(DB, &doc! { "create": "registers" }).unwrap();
    // These documents make the copy for a new disk take some time.
    let text = "a document that is there ".repeat(40);
    for batch in 0..10 {
        let document = |i| doc! { "_id": batch * 1000 + i, "t": text.as_str(), "k": i };
        let documents = (0..1000).map(document).collect::<ArrayBuf>();
        let insert = doc! { "insert": "ballast", "documents": documents };
        c.command(DB, &insert).unwrap();
    }
    let appends = Shared::new(Address::of_set(cluster.addresses()), Manner::Majority);
    let registers = Registers::new();
    let done = beside((&appends, &registers), seed, || {
        misfortunes(&mut cluster, &mut Rng::new(seed), Instant::now() + time)
    });
    let Done {
        transactions,
        operations,
        work: what,
    } = done;
    let last = lists(&last_state(&cluster, "lists"));
    let verdict = judge(&transactions, &last);
    let found = registers.judge(operations, &last_state(&cluster, "registers"));
    println!(
        "{what:?}: {} transactions committed of {}, {} operations on {} registers, {} write skews",
        verdict.committed,
        transactions.len(),
        found.answered,
        found.registers,
        verdict.write_skews,
    );
    assert!(verdict.anomalies.is_empty(), "{:#?}", verdict.anomalies);
    assert!(found.wrong.is_empty(), "{}", found.wrong.join("\n"));
    assert!(verdict.committed > 100, "{}", verdict.committed);
    assert!(found.registers > 3, "{}", found.registers);
    // All members have the same data.
    let hash = |m: usize| {
        let mut c = Connection::connect(cluster.address(m).unwrap()).unwrap();
        let command = doc! {
            "dbHash": 1, "$readPreference": doc! { "mode": "secondaryPreferred" },
        };
        let reply = c.command(DB, &command).unwrap();
        reply.as_doc().get_str("md5").unwrap().to_string()
    };
    cluster.wait_until_well(PATIENCE).unwrap();
    assert_eq!((hash(0), hash(1)), (hash(1), hash(2)));
}

#[test]
fn a_primary_that_stood_still_is_not_taken_for_the_one_that_leads() {
    let dir = tempfile::tempdir().unwrap();
    let program = testkit::binary();
    let shape = Shape::side_by_side(3);
    let cluster =
        Cluster::start_under(Some(testkit::layer()), shape, &program, dir.path(), 0.1).unwrap();
    for _ in 0..3 {
        let old = cluster.wait_until_well(PATIENCE).unwrap();
        let others: Vec<usize> = (0..3).filter(|m| *m != old).collect();
        cluster.freeze(old).unwrap();
        cluster.primary_of(&others, PATIENCE).unwrap();
        cluster.thaw(old).unwrap();
        let primary = cluster.wait_until_well(PATIENCE).unwrap();
        let mut c = Connection::connect(cluster.address(primary).unwrap()).unwrap();
        let find = doc! { "find": "c", "readConcern": doc! { "level": "linearizable" } };
        c.command(DB, &find).unwrap();
    }
}
