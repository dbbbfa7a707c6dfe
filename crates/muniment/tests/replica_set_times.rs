//! How long the members of a set wait for each other: real servers, over the wire.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod set;

use muniment_value::{ArrayBuf, Code, DocBuf, Value, array, doc};
use muniment_wire::Connection;
use set::insert;
use std::time::{Duration, Instant};
use testkit::{ServerOptions, Set};

/// Twelve hours, which tests and maintenance use.
const LONG: i32 = 43_200_000;

fn admin(c: &mut Connection, cmd: &DocBuf) -> DocBuf {
    c.command("admin", cmd)
        .unwrap_or_else(|e| panic!("{cmd:?}: {e}"))
}

fn members(set: &Set, n: usize) -> ArrayBuf {
    let member = |i: usize| doc! { "_id": i as i32, "host": set.host(i) };
    (0..n).map(member).collect()
}

fn config(set: &Set, n: usize, version: i32, election_ms: i32) -> DocBuf {
    doc! {
        "_id": "rs0", "version": version, "members": members(set, n),
        "settings": doc! { "electionTimeoutMillis": election_ms, "heartbeatIntervalMillis": 200 },
    }
}

/// The number of members that is a majority in a set of three.
const MAJORITY: i32 = 2;

fn written(c: &mut Connection, id: i32, members: i32) {
    let reply = insert(c, id, doc! { "w": members, "wtimeout": 20_000 });
    let failed = reply.as_doc().get("writeConcernError");
    assert!(failed.is_none(), "{reply:?}");
}

/// Joining, catching up and heartbeats do not wait for as long as elections would.
#[test]
fn a_member_joins_a_set_whose_elections_are_far_away() {
    let set = Set::prepare(2, &ServerOptions::new());
    let one = doc! { "_id": "rs0", "members": members(&set, 1) };
    let mut c = set.connect(0);
    admin(&mut c, &doc! { "replSetInitiate": one });
    assert_eq!(set.primary(), 0);
    let began = Instant::now();
    let two = config(&set, 2, 2, LONG);
    admin(&mut c, &doc! { "replSetReconfig": two });
    set.until("the new member hears of no primary", || {
        let hello = admin(&mut set.connect(1), &doc! { "hello": 1 });
        hello.as_doc().get_str("primary").map(drop)
    });
    set.settle();
    written(&mut c, 1, 2);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
}

/// The first election and a handover happen at once, and members that were away come back. A shorter timeout
/// is in force as soon as the configuration is.
#[test]
fn a_set_with_a_long_election_timeout_works_until_it_gets_a_short_one() {
    let mut set = Set::prepare(3, &ServerOptions::new());
    let began = Instant::now();
    set.initiate(&config(&set, 3, 1, LONG));
    let first = set.primary();
    written(&mut set.connect(first), 1, 3);
    // This is an ordinary step down.
    let down = doc! { "replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 4 };
    admin(&mut set.connect(first), &down);
    let second = set.primary();
    assert_ne!(first, second);
    written(&mut set.connect(second), 2, 3);
    // A secondary was away.
    let other = (0..3).find(|i| ![first, second].contains(i)).unwrap();
    set.members[other].kill9();
    written(&mut set.connect(second), 3, MAJORITY);
    set.members[other].start_again();
    written(&mut set.connect(second), 4, 3);
    // A member that does not answer neither delays the handover to another member for long, nor stops the
    // primary.
    let stopped = set.members[other].pid().unwrap();
    testkit::freeze(stopped);
    written(&mut set.connect(second), 5, MAJORITY);
    testkit::thaw(stopped);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");
    let status = admin(&mut set.connect(second), &doc! { "replSetGetStatus": 1 });
    let n = |name: &str| status.as_doc().get(name).unwrap().as_i64_exact();
    assert_eq!(n("heartbeatIntervalMillis"), Some(200));
    let short = config(&set, 3, 2, 1000);
    admin(&mut set.connect(second), &doc! { "replSetReconfig": short });
    set.until("it is not in force everywhere", || {
        let version = |i| {
            let reply = admin(&mut set.connect(i), &doc! { "replSetGetConfig": 1 });
            let config = reply.as_doc().get_doc("config").unwrap();
            config.get("version").unwrap().as_i64_exact()
        };
        (0..3).all(|i| version(i) == Some(2)).then_some(())
    });
    set.settle();
    let stopped = set.members[second].pid().unwrap();
    testkit::freeze(stopped);
    let began = Instant::now();
    let third = set.until("nobody was elected", || {
        let mut others = set.running().filter(|i| *i != second);
        others.find(|i| {
            let hello = admin(&mut set.connect(*i), &doc! { "hello": 1 });
            matches!(
                hello.as_doc().get("isWritablePrimary"),
                Some(Value::Bool(true))
            )
        })
    });
    let took = began.elapsed();
    testkit::thaw(stopped);
    assert!(took < Duration::from_secs(15), "{took:?}");
    written(&mut set.connect(third), 6, 3);
}

/// A set of three with the default settings.
fn usual() -> Set {
    let set = Set::prepare(3, &ServerOptions::new());
    set.initiate(&doc! { "_id": "rs0", "members": members(&set, 3) });
    set
}

/// A member other than `old` that takes writes, if there is one within this time.
fn other_primary(set: &Set, old: usize, patience: Duration) -> Option<usize> {
    let end = Instant::now() + patience;
    while Instant::now() < end {
        let mut others = set.running().filter(|i| *i != old);
        let found = others.find(|i| {
            let hello = admin(&mut set.connect(*i), &doc! { "hello": 1 });
            matches!(
                hello.as_doc().get("isWritablePrimary"),
                Some(Value::Bool(true))
            )
        });
        if found.is_some() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// Its sockets are closed, and that is enough: the set does not wait for the election timeout of ten seconds.
#[test]
fn a_primary_that_is_killed_is_replaced_at_once() {
    let mut set = usual();
    let mut id = 0;
    for round in 0..4 {
        let old = set.primary();
        written(&mut set.connect(old), id, 3);
        set.members[old].kill9();
        let began = Instant::now();
        let new = other_primary(&set, old, Duration::from_secs(8));
        let new = new.unwrap_or_else(|| panic!("round {round}: nobody is primary"));
        println!("round {round}: {:?}", began.elapsed());
        written(&mut set.connect(new), id + 1, MAJORITY);
        id += 2;
        set.members[old].start_again();
        set.settle();
    }
}

/// A member that finds the killed server again finds no primary there, since the server says so itself.
#[test]
fn a_primary_that_is_killed_and_starts_again_at_once_is_replaced_at_once() {
    let mut set = usual();
    for (id, delay) in [0, 100, 300, 700].into_iter().enumerate() {
        let old = set.primary();
        written(&mut set.connect(old), id as i32, 3);
        set.members[old].kill9();
        let began = Instant::now();
        std::thread::sleep(Duration::from_millis(delay));
        set.members[old].start_again();
        let new = set.primary();
        let took = began.elapsed();
        println!("after {delay} ms: {new} in place of {old} after {took:?}");
        assert!(took < Duration::from_secs(7), "{delay}: {took:?}");
        set.settle();
    }
}

/// Events that close no socket of the primary are no reason for an election: neither the end of a secondary,
/// nor a primary that is stopped for less than the election timeout.
#[test]
fn a_primary_that_is_only_silent_stays_for_the_election_timeout() {
    let mut set = usual();
    let first = set.primary();
    let term = |set: &Set| {
        let status = admin(&mut set.connect(first), &doc! { "replSetGetStatus": 1 });
        status.as_doc().get("term").unwrap().as_i64_exact()
    };
    let before = term(&set);
    let other = (first + 1) % 3;
    set.members[other].kill9();
    std::thread::sleep(Duration::from_millis(1500));
    set.members[other].start_again();
    let pid = set.members[first].pid().unwrap();
    testkit::freeze(pid);
    let elected = other_primary(&set, first, Duration::from_secs(4));
    testkit::thaw(pid);
    assert_eq!(elected, None);
    set.settle();
    assert_eq!((set.primary(), term(&set)), (first, before));
}

#[test]
fn a_set_that_is_told_to_waits_for_the_election_timeout() {
    let options = ServerOptions::new()
        .arg("--setParameter")
        .arg("munimentElectWhenPrimaryIsGone=false");
    let mut set = Set::prepare(3, &options);
    set.initiate(&doc! { "_id": "rs0", "members": members(&set, 3) });
    let first = set.primary();
    set.members[first].kill9();
    assert_eq!(other_primary(&set, first, Duration::from_secs(5)), None);
    // The behaviour can be changed at any time.
    for i in set.running() {
        let on = doc! { "setParameter": 1, "munimentElectWhenPrimaryIsGone": true };
        admin(&mut set.connect(i), &on);
    }
    assert!(other_primary(&set, first, Duration::from_secs(4)).is_some());
}

/// A backup of the only secondary: the secondary applies nothing meanwhile, but answers. The primary stays in
/// office, and writes that do not wait for other members continue.
#[test]
fn a_set_of_two_keeps_its_primary_while_the_other_is_locked() {
    let set = Set::start(2);
    let first = set.primary();
    let mut l = set.connect(1 - first);
    admin(&mut l, &doc! { "fsync": 1, "lock": true });
    let mut c = set.connect(first);
    let began = Instant::now();
    let mut id = 0;
    // The time is that of five election timeouts.
    while began.elapsed() < Duration::from_secs(5) {
        written(&mut c, id, 1);
        id += 1;
        let hello = admin(&mut c, &doc! { "hello": 1 });
        let leads = hello.as_doc().get("isWritablePrimary");
        assert!(matches!(leads, Some(Value::Bool(true))), "{hello:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    admin(&mut l, &doc! { "fsyncUnlock": 1 });
    written(&mut c, id, 2);
}

/// A collection that was made just now is not in what the majority has. A read of what the majority has waits for that, as
/// in MongoDB, and does not fail.
#[test]
fn a_read_of_a_new_collection_waits_for_the_majority() {
    let set = Set::prepare(3, &ServerOptions::new());
    set.initiate(&config(&set, 3, 1, LONG));
    let primary = set.primary();
    written(&mut set.connect(primary), 1, 3);
    let others = set.running().filter(|i| *i != primary);
    let others: Vec<u32> = others.map(|i| set.members[i].pid().unwrap()).collect();
    others.iter().for_each(|pid| testkit::freeze(*pid));
    let insert = doc! {
        "insert": "new", "documents": array![doc! { "_id": 1 }], "writeConcern": doc! { "w": 1 },
    };
    set.connect(primary).command("test", &insert).unwrap();
    let read = |limit_ms: i32| {
        let find = doc! {
            "find": "new", "readConcern": doc! { "level": "majority" }, "maxTimeMS": limit_ms,
        };
        set.connect(primary).command("test", &find)
    };
    assert_eq!(read(300).unwrap_err().code(), Code::MaxTimeMSExpired);
    let found = std::thread::scope(|s| {
        let read = s.spawn(|| read(30_000).unwrap());
        std::thread::sleep(Duration::from_millis(200));
        others.iter().for_each(|pid| testkit::thaw(*pid));
        read.join().unwrap()
    });
    // The majority may have the collection and not the document yet.
    let cursor = found.as_doc().get_doc("cursor").unwrap();
    assert!(cursor.get_array("firstBatch").unwrap().values().count() <= 1);
    written(&mut set.connect(primary), 2, MAJORITY);
    let found = read(30_000).unwrap();
    let cursor = found.as_doc().get_doc("cursor").unwrap();
    assert_eq!(cursor.get_array("firstBatch").unwrap().values().count(), 1);
}

/// `$$CLUSTER_TIME` is the time of the set, which is not before what a client was told.
#[test]
fn expressions_know_the_time_of_the_set() {
    let set = Set::start(1);
    let c = &mut set.connect(0);
    insert(c, 1, doc! { "w": 1 });
    let told = c.command("test", &doc! { "ping": 1 }).unwrap();
    let Some(Value::Timestamp { t, i }) = told.as_doc().get("operationTime") else {
        panic!("{told:?}");
    };
    let stage = doc! { "$project": doc! { "at": "$$CLUSTER_TIME" } };
    let in_a_find = doc! {
        "find": "c", "filter": doc! { "$expr": doc! { "$gte": array!["$$CLUSTER_TIME", Value::Timestamp { t, i }] } },
        "projection": doc! { "at": "$$CLUSTER_TIME" },
    };
    for read in [
        doc! { "aggregate": "c", "pipeline": array![&stage], "cursor": doc! {} },
        in_a_find,
    ] {
        let reply = c.command("test", &read).unwrap();
        let batch = reply
            .as_doc()
            .get_doc("cursor")
            .unwrap()
            .get_array("firstBatch")
            .unwrap();
        let first = batch.values().next().unwrap().as_doc().unwrap();
        let Some(Value::Timestamp { t: at, i: step }) = first.get("at") else {
            panic!("{reply:?}");
        };
        assert!((at, step) >= (t, i), "{reply:?}");
    }
}
