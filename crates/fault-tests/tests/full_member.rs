//! A replica set with members whose disks are full: a member with room leads, one without room follows as far
//! as it can, its state can be seen, and everything continues by itself when there is room again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{Code, DocBuf, Error, Result, Value, array, doc};
use muniment_wire::Connection;
use std::time::Duration;
use testkit::{ServerOptions, Set};

/// The free room is less than the server reserves for itself, but enough for what it still writes.
const SHORT: u64 = 200 << 20;
const ROOM: u64 = u64::MAX;
/// The message that members report about one without room.
const SAID: &str = "out of disk space: it takes no writes until there is more";

/// A set of three members, of which the first is preferred.
fn start() -> Set {
    let set = Set::prepare(3, &ServerOptions::new().budget(ROOM));
    let member = |i: i32| {
        let priority = if i == 0 { 2.0 } else { 1.0 };
        doc! { "_id": i, "host": set.host(i as usize), "priority": priority }
    };
    set.initiate(&set.config((0..3).map(member).collect()));
    set
}

fn insert(c: &mut Connection, id: i32, w: Value<'_>) -> Result<()> {
    let rows = array![doc! { "_id": id, "t": "t".repeat(1000) }];
    let wc = doc! { "w": w, "wtimeout": 30_000 };
    let cmd = doc! { "insert": "c", "documents": rows, "writeConcern": wc };
    failed_in(&c.command("test", &cmd)?)
}

/// Turns an error inside a successful reply into an error.
fn failed_in(reply: &DocBuf) -> Result<()> {
    let d = reply.as_doc();
    let first = d.get_array("writeErrors").and_then(|a| a.first());
    let wrong = first.and_then(|e| e.value().as_doc());
    match wrong.or_else(|| d.get_doc("writeConcernError")) {
        None => Ok(()),
        Some(e) => {
            let code = e.get("code").and_then(|v| v.as_i64_exact()).unwrap_or(0);
            Err(Error::location(
                code as i32,
                e.get_str("errmsg").unwrap_or_default(),
            ))
        }
    }
}

/// The message that a member reports about itself or another one.
fn said(set: &Set, by: usize, of: usize) -> String {
    let status = set
        .connect(by)
        .command("admin", &doc! { "replSetGetStatus": 1 });
    let (status, host) = (status.unwrap(), set.host(of));
    let members = status.as_doc().get_array("members").unwrap();
    let mut all = members.values().filter_map(|v| v.as_doc());
    let one = all.find(|d| d.get_str("name") == Some(&host)).unwrap();
    let name = if by == of {
        "infoMessage"
    } else {
        "lastHeartbeatMessage"
    };
    one.get_str(name).unwrap().to_string()
}

fn says_that_it_is_full(set: &Set, i: usize) -> bool {
    let status = set
        .connect(i)
        .command("admin", &doc! { "serverStatus": 1 })
        .unwrap();
    let repl = status.as_doc().get_doc("repl").unwrap();
    matches!(repl.get("outOfDiskSpace"), Some(Value::Bool(true)))
}

fn term(set: &Set, i: usize) -> i64 {
    let status = set
        .connect(i)
        .command("admin", &doc! { "replSetGetStatus": 1 })
        .unwrap();
    status.as_doc().get("term").unwrap().as_i64_exact().unwrap()
}

#[test]
fn a_primary_without_room_hands_over_to_a_member_that_has_some() {
    let set = start();
    set.until("the preferred one leads", || {
        (set.primary() == 0).then_some(())
    });
    insert(&mut set.connect(0), 0, Value::Int32(3)).unwrap();
    set.members[0].set_budget(SHORT);
    let next = set.until("nobody else leads", || {
        Some(set.primary()).filter(|i| *i != 0)
    });
    assert!(set.members[0].log().contains("disk of this member is full"));
    for id in 1..50 {
        insert(&mut set.connect(next), id, Value::String("majority")).unwrap();
    }
    assert!(says_that_it_is_full(&set, 0) && !says_that_it_is_full(&set, next));
    assert_eq!(said(&set, 0, 0), SAID);
    set.until("the others do not say so", || {
        (said(&set, next, 0) == SAID).then_some(())
    });
    // The first member is preferred, but does not get the leadership back meanwhile.
    let before = term(&set, next);
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!((set.primary(), term(&set, next)), (next, before));
    // With room it takes over again by itself.
    set.members[0].set_budget(ROOM);
    insert(&mut set.connect(next), 50, Value::Int32(3)).unwrap();
    set.until("the preferred one leads again", || {
        (set.primary() == 0).then_some(())
    });
    assert!(!says_that_it_is_full(&set, 0));
    set.settle();
    assert_eq!(said(&set, next, 0), "");
}

#[test]
fn an_administrator_s_step_down_needs_no_room() {
    let set = start();
    set.until("the preferred one leads", || {
        (set.primary() == 0).then_some(())
    });
    set.members[0].set_budget(SHORT);
    let mut c = set.connect(0);
    c.set_timeout(Some(Duration::from_secs(10))).unwrap();
    c.command(
        "admin",
        &doc! { "replSetStepDown": 30, "secondaryCatchUpPeriodSecs": 5 },
    )
    .unwrap();
    assert_ne!(set.primary(), 0);
}

#[test]
fn a_secondary_without_room_is_seen_and_stops_nobody() {
    let set = start();
    set.until("the preferred one leads", || {
        (set.primary() == 0).then_some(())
    });
    let before = term(&set, 0);
    // Either its writes fail, or only its reserve is left.
    for budget in [0, SHORT] {
        set.members[1].set_budget(budget);
        for id in 0..30 {
            let id = 1000 * (budget > 0) as i32 + id;
            insert(&mut set.connect(0), id, Value::String("majority")).unwrap();
        }
        set.until("it does not say so", || {
            says_that_it_is_full(&set, 1).then_some(())
        });
        set.until("the primary does not say so", || {
            (said(&set, 0, 1) == SAID).then_some(())
        });
        set.members[1].set_budget(ROOM);
        let id = 5000 + (budget > 0) as i32;
        insert(&mut set.connect(0), id, Value::Int32(3)).unwrap();
        set.until("it is full for good", || {
            (!says_that_it_is_full(&set, 1)).then_some(())
        });
    }
    assert_eq!((set.primary(), term(&set, 0)), (0, before));
}

#[test]
fn where_no_member_has_room_the_primary_stays_and_deletions_are_taken() {
    let set = start();
    set.until("the preferred one leads", || {
        (set.primary() == 0).then_some(())
    });
    for id in 0..20 {
        insert(&mut set.connect(0), id, Value::Int32(3)).unwrap();
    }
    let before = term(&set, 0);
    for m in &set.members {
        m.set_budget(SHORT);
    }
    for i in 0..3 {
        set.until("it does not say so", || {
            says_that_it_is_full(&set, i).then_some(())
        });
    }
    let mut leader = set.primary();
    // The last member to report it may have had the leadership once before.
    let mut now = term(&set, leader);
    assert!(now <= before + 2, "{now}, {before} before");
    std::thread::sleep(Duration::from_secs(5));
    leader = set.primary();
    assert_eq!(term(&set, leader), now);
    let mut c = set.connect(leader);
    let refused = insert(&mut c, 100, Value::String("majority")).unwrap_err();
    assert_eq!(refused.code(), Code::OutOfDiskSpace);
    let deletes = array![doc! { "q": doc! { "_id": doc! { "$lt": 10 } }, "limit": 0 }];
    let wc = doc! { "w": "majority", "wtimeout": 30_000 };
    let delete = doc! { "delete": "c", "deletes": deletes, "writeConcern": wc };
    failed_in(&c.command("test", &delete).unwrap()).unwrap();
    for m in &set.members {
        m.set_budget(ROOM);
    }
    for i in 0..3 {
        set.until("it is full for good", || {
            (!says_that_it_is_full(&set, i)).then_some(())
        });
    }
    leader = set.primary();
    insert(&mut set.connect(leader), 101, Value::Int32(3)).unwrap();
    now = term(&set, leader);
    assert!(now <= before + 4, "{now}, {before} before");
}
