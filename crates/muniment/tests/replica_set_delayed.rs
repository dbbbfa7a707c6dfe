//! Members that get the log late, because the configuration says so, or because they were away while it
//! changed. Real servers, over the wire.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod set;

use muniment_value::{DocBuf, Value, array, doc, number};
use muniment_wire::Connection;
use set::reconfigure;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use testkit::{ServerOptions, Set};

/// The seconds by which the delayed member lags.
const DELAY: i64 = 4;

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_millis() as i64
}

/// Writes a document with its time. Returns the error code of the write concern.
fn insert(c: &mut Connection, w: i32, wtimeout: i32) -> Option<i64> {
    let cmd = doc! {
        "insert": "c",
        "documents": array![doc! { "at": now_ms() }],
        "writeConcern": doc! { "w": w, "wtimeout": wtimeout },
    };
    let reply = c.command("test", &cmd).unwrap();
    let e = reply.as_doc().get_doc("writeConcernError")?;
    e.get("code").and_then(number::to_i64_exact)
}

/// The times of all documents.
fn times(c: &mut Connection) -> Vec<i64> {
    let cmd = doc! { "find": "c", "$readPreference": doc! { "mode": "secondaryPreferred" } };
    let found = c.find_all("test", &cmd).unwrap();
    let at = |d: &DocBuf| d.as_doc().get("at").and_then(number::to_i64_exact);
    found.iter().map(|d| at(d).unwrap()).collect()
}

/// Checks that a member has nothing that is younger than the delay, which is counted in whole seconds.
fn check_age(times: &[i64], asked: i64) {
    let youngest = times.iter().max().copied().unwrap_or(0);
    assert!(
        asked - youngest > (DELAY - 1) * 1000,
        "{} ms old",
        asked - youngest
    );
}

/// Writes for this many seconds, and checks the delayed member meanwhile.
fn write_for(set: &Set, secs: u64, delayed: usize) {
    let mut c = set.connect(set.primary());
    let mut d = set.connect(delayed);
    for _ in 0..secs * 10 {
        insert(&mut c, 1, 0);
        // The documents are read before the time, so that they can only seem older, not younger.
        let found = times(&mut d);
        check_age(&found, now_ms());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Three members, of which the last one is delayed and may have a vote.
fn members(set: &Set, delay: i64, votes: i32) -> Vec<DocBuf> {
    let one = |i: usize| doc! { "_id": i as i32, "host": set.host(i) };
    let mut last = one(2);
    last.append("priority", 0);
    last.append("votes", votes);
    last.append("hidden", true);
    last.append("secondaryDelaySecs", delay);
    vec![one(0), one(1), last]
}

#[test]
fn a_delayed_member_has_what_is_so_old() {
    let mut set = Set::prepare(3, &ServerOptions::new());
    set.initiate(&set.config(members(&set, DELAY, 0)));
    let first = set.primary();
    set.until("the delayed member to join", || {
        let reply = set.connect(2).command("admin", &doc! { "hello": 1 }).ok()?;
        let d = reply.as_doc();
        let secondary = matches!(d.get("secondary"), Some(Value::Bool(true)));
        let delay = d.get("secondaryDelaySecs").and_then(number::to_i64_exact);
        // The primary delays nothing until it has heard that the member has joined.
        let status = set
            .connect(first)
            .command("admin", &doc! { "replSetGetStatus": 1 });
        let status = status.ok()?;
        let members = status.as_doc().get_array("members")?;
        let last = members.values().nth(2)?.as_doc()?;
        let heard = last.get_str("stateStr") == Some("SECONDARY");
        (secondary && heard && delay == Some(DELAY)).then_some(())
    });
    write_for(&set, 6, 2);
    // The delayed member counts for a write concern once it has the write.
    let mut c = set.connect(first);
    assert_eq!(insert(&mut c, 3, 500), Some(64));
    assert_eq!(insert(&mut c, 3, 60_000), None);
    // It is also late after its restart, and on its own.
    for _ in 0..20 {
        insert(&mut c, 2, 0);
    }
    set.members[2].kill9();
    set.members[2].start_again();
    let found = set.until("the delayed member", || {
        let mut d = Connection::connect(&set.members[2].address()).ok()?;
        let cmd = doc! { "ping": 1 };
        d.command("admin", &cmd).ok().map(|_| times(&mut d))
    });
    check_age(&found, now_ms());
    // It is also late under another primary, from which it continues where it was.
    set.members[first].kill9();
    set.members[first].start_again();
    let before = times(&mut set.connect(2)).len();
    write_for(&set, 6, 2);
    assert!(times(&mut set.connect(2)).len() > before);
    // A member whose delay is removed gets everything at once.
    reconfigure(&set, members(&set, 0, 0));
    let mut c = set.connect(set.primary());
    assert_eq!(insert(&mut c, 3, 60_000), None);
    set.settle();
    let wanted = times(&mut c);
    assert_eq!(times(&mut set.connect(2)), wanted);
    // A member whose delay is restored keeps what it has.
    reconfigure(&set, members(&set, 3600, 0));
    insert(&mut c, 2, 0);
    assert_eq!(insert(&mut c, 3, 2000), Some(64));
    assert_eq!(times(&mut set.connect(2)), wanted);
}

/// A delayed member votes. It has joined at once, and a majority that needs it waits for it.
#[test]
fn a_delayed_voter_is_waited_for() {
    let mut set = Set::prepare(3, &ServerOptions::new());
    set.initiate(&set.config(members(&set, DELAY, 1)));
    let primary = set.primary();
    let majority = |c: &mut Connection, wtimeout: i32| {
        let cmd = doc! {
            "insert": "c",
            "documents": array![doc! { "at": now_ms() }],
            "writeConcern": doc! { "w": "majority", "wtimeout": wtimeout },
        };
        let reply = c.command("test", &cmd).unwrap();
        reply.as_doc().get_doc("writeConcernError").is_none()
    };
    let mut c = set.connect(primary);
    assert!(majority(&mut c, 60_000));
    // It got everything without delay until it voted.
    std::thread::sleep(Duration::from_secs(1));
    let other = 1 - primary;
    set.members[other].kill9();
    assert!(!majority(&mut c, 1000));
    assert!(majority(&mut c, 60_000));
    set.members[other].start_again();
    set.settle();
}

/// A member was away while another one was added, and that one leads when it comes back. No member has told
/// it of the new leader, whose log it needs.
#[test]
fn a_leader_that_came_meanwhile_is_answered() {
    let mut set = Set::prepare(4, &ServerOptions::new());
    let one = |set: &Set, i: usize| doc! { "_id": i as i32, "host": set.host(i) };
    set.initiate(&set.config((0..3).map(|i| one(&set, i)).collect()));
    let away = (set.primary() + 1) % 3;
    let mut c = set.connect(set.primary());
    assert_eq!(insert(&mut c, 3, 60_000), None);
    set.members[away].kill9();
    let mut all: Vec<DocBuf> = (0..4).map(|i| one(&set, i)).collect();
    all[3].append("priority", 5);
    reconfigure(&set, all);
    set.until("the new member to lead", || {
        let reply = set.connect(3).command("admin", &doc! { "hello": 1 }).ok()?;
        let leads = reply.as_doc().get("isWritablePrimary");
        matches!(leads, Some(Value::Bool(true))).then_some(())
    });
    set.members[away].start_again();
    let mut c = set.connect(3);
    assert_eq!(insert(&mut c, 4, 60_000), None);
    set.settle();
}
