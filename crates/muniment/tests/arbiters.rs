//! Sets with arbiters: real servers, over the wire.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod set;

use muniment_value::{DocBuf, Value, array, doc};
use muniment_wire::Connection;
use set::{ids, insert};
use testkit::{ServerOptions, Set};

/// The arbiter's index in the set.
const ARBITER: usize = 2;

fn admin(c: &mut Connection, cmd: &DocBuf) -> DocBuf {
    c.command_raw("admin", cmd).unwrap()
}

fn int(d: &DocBuf, name: &str) -> i64 {
    let v = d.as_doc().get(name);
    let v = v.unwrap_or_else(|| panic!("{name}: {d:?}"));
    v.as_i64_exact().unwrap()
}

fn is(d: &DocBuf, name: &str) -> bool {
    matches!(d.as_doc().get(name), Some(Value::Bool(true)))
}

fn code(d: &DocBuf) -> i64 {
    match d.as_doc().get("code") {
        Some(code) => code.as_i64_exact().unwrap(),
        None => 0,
    }
}

fn hosts(d: &DocBuf, name: &str) -> Vec<String> {
    let all = d.as_doc().get_array(name);
    let all = all.iter().flat_map(|all| all.values());
    all.map(|v| v.as_str().unwrap().to_string()).collect()
}

fn members(set: &Set) -> Vec<DocBuf> {
    let member = |i: usize| doc! { "_id": i as i32, "host": set.host(i) };
    let mut all: Vec<DocBuf> = (0..=ARBITER).map(member).collect();
    all[ARBITER].append("arbiterOnly", true);
    all
}

fn start() -> Set {
    let set = Set::prepare(3, &ServerOptions::new());
    set.initiate(&set.config(members(&set)));
    set
}

/// The state of a member, according to the primary.
fn state(set: &Set, of: usize) -> DocBuf {
    let mut c = set.connect(set.primary());
    let status = admin(&mut c, &doc! { "replSetGetStatus": 1 });
    let members = status.as_doc().get_array("members").unwrap();
    let mut all = members.values().map(|v| v.as_doc().unwrap());
    all.find(|d| d.get_str("name") == Some(&set.host(of)))
        .unwrap()
        .to_buf()
}

/// Writes with the write concern majority.
fn write(set: &Set, id: i32) {
    let mut c = set.connect(set.primary());
    let reply = insert(&mut c, id, doc! { "w": "majority", "wtimeout": 30_000 });
    assert!(
        reply.as_doc().get("writeConcernError").is_none(),
        "{reply:?}"
    );
}

#[test]
fn an_arbiter_votes_and_stores_nothing() {
    let set = start();
    write(&set, 1);
    let primary = set.primary();
    let (mut c, mut a) = (set.connect(primary), set.connect(ARBITER));
    for i in 0..3 {
        let hello = admin(&mut set.connect(i), &doc! { "hello": 1 });
        assert_eq!(hosts(&hello, "arbiters"), [set.host(ARBITER)]);
        assert_eq!(hosts(&hello, "hosts").len(), 2);
        assert_eq!(is(&hello, "arbiterOnly"), i == ARBITER);
    }
    let hello = admin(&mut a, &doc! { "hello": 1 });
    assert!(!is(&hello, "secondary") && !is(&hello, "isWritablePrimary") && !is(&hello, "passive"));
    assert_eq!(hello.as_doc().get_str("primary"), Some(&*set.host(primary)));

    let status = admin(&mut c, &doc! { "replSetGetStatus": 1 });
    for (name, wanted) in [
        ("majorityVoteCount", 2),
        ("writeMajorityCount", 2),
        ("votingMembersCount", 3),
        ("writableVotingMembersCount", 2),
    ] {
        assert_eq!(int(&status, name), wanted, "{name}");
    }
    for seen in [state(&set, ARBITER), {
        let status = admin(&mut a, &doc! { "replSetGetStatus": 1 });
        assert_eq!(int(&status, "myState"), 7);
        let members = status.as_doc().get_array("members").unwrap();
        members
            .values()
            .nth(ARBITER)
            .unwrap()
            .as_doc()
            .unwrap()
            .to_buf()
    }] {
        assert_eq!(
            seen.as_doc().get_str("stateStr"),
            Some("ARBITER"),
            "{seen:?}"
        );
        assert!(seen.as_doc().get("optime").is_none() && int(&seen, "syncSourceId") == -1);
    }

    // An arbiter accepts neither reads nor writes.
    let find = doc! { "find": "c" };
    let mut anywhere = find.clone();
    anywhere.append("$readPreference", doc! { "mode": "nearest" });
    for (cmd, wanted) in [
        (find, 13435),
        (anywhere, 13436),
        (
            doc! { "insert": "c", "documents": array![doc! { "_id": 7 }] },
            10107,
        ),
        (doc! { "ping": 1 }, 0),
        (doc! { "serverStatus": 1 }, 0),
    ] {
        let reply = a.command_raw("test", &cmd).unwrap();
        assert_eq!(code(&reply), wanted, "{cmd:?}: {reply:?}");
        assert!(reply.as_doc().get("$clusterTime").is_none(), "{reply:?}");
    }

    // The arbiter acknowledges nothing, and a write that would need it does not wait.
    let reply = insert(&mut c, 2, doc! { "w": 3 });
    let error = reply
        .as_doc()
        .get_doc("writeConcernError")
        .unwrap()
        .to_buf();
    assert_eq!(code(&error), 100);
    let implied = admin(&mut c, &doc! { "getDefaultRWConcern": 1 });
    let write = implied
        .as_doc()
        .get_doc("defaultWriteConcern")
        .unwrap()
        .to_buf();
    assert_eq!(int(&write, "w"), 1);
    let reply = insert(&mut c, 3, doc! { "w": 2, "wtimeout": 30_000 });
    assert!(
        reply.as_doc().get("writeConcernError").is_none(),
        "{reply:?}"
    );
}

#[test]
fn writes_of_a_majority_outlive_any_killed_member() {
    let mut set = start();
    let mut wanted = vec![0];
    write(&set, 0);
    for turn in 1..=6 {
        let id = turn * 10;
        let primary = set.primary();
        // Sometimes the arbiter is killed at the same moment. It has to remember its vote.
        if turn % 3 == 0 {
            set.members[ARBITER].kill9();
            set.members[ARBITER].start_again();
        }
        // The other member can lead only with the arbiter's vote.
        set.members[primary].kill9();
        let other = set.primary();
        assert_ne!(other, ARBITER);
        let mut c = set.connect(other);
        insert(&mut c, id, doc! { "w": 1 });
        let reply = insert(&mut c, id + 1, doc! { "w": "majority", "wtimeout": 200 });
        assert!(
            reply.as_doc().get("writeConcernError").is_some(),
            "{reply:?}"
        );
        set.members[primary].start_again();
        write(&set, id + 2);
        set.settle();
        wanted.extend([id, id + 1, id + 2].map(i64::from));
    }
    for i in 0..ARBITER {
        assert_eq!(ids(&mut set.connect(i)), wanted, "member {i}");
    }
    let log = set.members[ARBITER].log();
    assert!(!log.contains("Starting initial sync"), "{log}");
}

/// There is a limited number of JavaScript engines. Writes that have used one and wait for a member that is
/// down leave it to others.
#[test]
fn writes_that_wait_for_others_keep_no_javascript_engine() {
    let mut set = start();
    write(&set, 1);
    let primary = set.primary();
    let other = (0..ARBITER).find(|i| *i != primary).unwrap();
    set.members[other].kill9();
    let set = &set;
    std::thread::scope(|threads| {
        let one = |_| {
            threads.spawn(move || {
                let mut c = set.connect(primary);
                let update =
                    doc! { "q": doc! { "$where": "true" }, "u": doc! { "$inc": doc! { "n": 1 } } };
                let concern = doc! { "w": 2, "wtimeout": 15_000 };
                let cmd =
                    doc! { "update": "c", "updates": array![update], "writeConcern": concern };
                c.command_raw("test", &cmd).unwrap()
            })
        };
        let waiting: Vec<_> = (0..24).map(one).collect();
        let mut c = set.connect(primary);
        set.until("all have written", || {
            let n = c.find_all("test", &doc! { "find": "c" }).unwrap();
            let n = n[0].as_doc().get("n").and_then(|n| n.as_i64_exact());
            (n == Some(24)).then_some(())
        });
        let find = doc! { "find": "c", "filter": doc! { "$where": "true" }, "maxTimeMS": 5000 };
        assert_eq!(c.find_all("test", &find).unwrap().len(), 1);
        for thread in waiting {
            let reply = thread.join().unwrap();
            assert!(
                reply.as_doc().get("writeConcernError").is_some(),
                "{reply:?}"
            );
        }
    });
}

#[test]
fn an_arbiter_without_its_directory_begins_anew() {
    let mut set = start();
    write(&set, 1);
    set.members[ARBITER].kill9();
    set.members[ARBITER].empty();
    set.members[ARBITER].start_again();
    set.until("the arbiter does not come back", || {
        let status = admin(&mut set.connect(ARBITER), &doc! { "replSetGetStatus": 1 });
        (code(&status) == 0 && int(&status, "myState") == 7).then_some(())
    });
    let primary = set.primary();
    set.members[primary].kill9();
    let other = set.primary();
    assert_eq!(ids(&mut set.connect(other)), [1]);
}

/// A primary that was elected since then can commit nothing before the secondary acknowledges, which has lost
/// its data.
#[test]
fn a_secondary_that_lost_its_disk_is_filled_after_an_election() {
    let mut set = start();
    let mut wanted: Vec<i64> = (0..20).collect();
    wanted.iter().for_each(|id| write(&set, *id as i32));
    for turn in 1..=2 {
        let primary = set.primary();
        let other = 1 - primary;
        set.members[other].kill9();
        set.members[other].empty();
        set.members[primary].kill9();
        set.members[primary].start_again();
        assert_eq!(set.primary(), primary);
        let mut c = set.connect(primary);
        insert(&mut c, 100 * turn, doc! { "w": 1 });
        set.members[other].start_again();
        write(&set, 100 * turn + 1);
        set.settle();
        wanted.extend([100 * turn, 100 * turn + 1].map(i64::from));
        // The secondary has everything that it had acknowledged, and votes and leads as any other.
        set.members[primary].kill9();
        assert_eq!(set.primary(), other);
        assert_eq!(ids(&mut set.connect(other)), wanted);
        set.members[primary].start_again();
        set.settle();
    }
}

/// A primary that cannot write makes no record for which the secondary could wait. It knows everything that
/// was acknowledged, and fills the secondary without such a record.
#[test]
fn a_secondary_that_lost_its_disk_is_filled_by_a_locked_primary() {
    let mut set = start();
    write(&set, 1);
    let primary = set.primary();
    let other = 1 - primary;
    set.members[other].kill9();
    set.members[other].empty();
    let mut c = set.connect(primary);
    let locked = admin(&mut c, &doc! { "fsync": 1, "lock": true });
    assert_eq!(code(&locked), 0, "{locked:?}");
    set.members[other].start_again();
    set.until("the secondary is not filled", || {
        let status = admin(&mut set.connect(other), &doc! { "replSetGetStatus": 1 });
        (code(&status) == 0 && int(&status, "myState") == 2).then_some(())
    });
    assert_eq!(ids(&mut set.connect(other)), [1]);
    let unlocked = admin(&mut c, &doc! { "fsyncUnlock": 1 });
    assert_eq!(code(&unlocked), 0, "{unlocked:?}");
    write(&set, 2);
}

fn reconfigure(set: &Set, members: Vec<DocBuf>, force: bool) -> DocBuf {
    let mut c = set.connect(set.primary());
    let now = admin(&mut c, &doc! { "replSetGetConfig": 1 });
    let version = int(&now.as_doc().get_doc("config").unwrap().to_buf(), "version");
    let mut config = set.config(members);
    config.append("version", version + 1);
    admin(&mut c, &doc! { "replSetReconfig": config, "force": force })
}

#[test]
fn arbiters_come_and_go_by_reconfiguration() {
    let set = Set::prepare(4, &ServerOptions::new());
    let all = members(&set);
    set.initiate(&set.config(all[..2].to_vec()));
    write(&set, 1);
    // The implicit default write concern would change with the arbiter, so a default has to be set explicitly
    // first.
    for force in [false, true] {
        let reply = reconfigure(&set, all.clone(), force);
        assert_eq!(code(&reply), 103, "{reply:?}");
        let why = reply.as_doc().get_str("errmsg").unwrap();
        assert!(
            why.contains("would change the implicit default write concern"),
            "{why}"
        );
    }
    let mut c = set.connect(set.primary());
    let concern = doc! { "w": "majority" };
    let said = admin(
        &mut c,
        &doc! { "setDefaultRWConcern": 1, "defaultWriteConcern": concern },
    );
    assert_eq!(code(&said), 0, "{said:?}");
    let reply = reconfigure(&set, all.clone(), false);
    assert_eq!(code(&reply), 0, "{reply:?}");
    set.settle();
    assert_eq!(int(&state(&set, ARBITER), "state"), 7);

    let mut two = all.clone();
    two.push(doc! { "_id": 3, "host": set.host(3), "arbiterOnly": true });
    let reply = reconfigure(&set, two, false);
    assert_eq!(code(&reply), 93, "{reply:?}");
    let mut other = all.clone();
    other[ARBITER] = doc! { "_id": ARBITER as i32, "host": set.host(ARBITER) };
    let reply = reconfigure(&set, other, false);
    assert_eq!(code(&reply), 103, "{reply:?}");

    // The member that is left with the arbiter continues, even after the other one is gone for good.
    let second = 1 - set.primary();
    let left = all.iter().enumerate().filter(|(i, _)| *i != second);
    let reply = reconfigure(&set, left.map(|(_, m)| m.clone()).collect(), false);
    assert_eq!(code(&reply), 0, "{reply:?}");
    write(&set, 2);
    let reply = reconfigure(&set, vec![all[1 - second].clone()], false);
    assert_eq!(code(&reply), 0, "{reply:?}");
    write(&set, 3);
    assert_eq!(ids(&mut set.connect(set.primary())), [1, 2, 3]);
}

/// Puts a configuration with these members in force, and tries until it is accepted.
fn reconfigured(set: &Set, members: &[DocBuf]) {
    set.until("the set is not reconfigured", || {
        let reply = reconfigure(set, members.to_vec(), false);
        (code(&reply) == 0).then_some(())
    });
}

/// Sets the default write concern, without which no arbiter may be added or removed.
fn wait_for_majority(set: &Set) {
    let mut c = set.connect(set.primary());
    let said = doc! { "setDefaultRWConcern": 1, "defaultWriteConcern": doc! { "w": "majority" } };
    assert_eq!(code(&admin(&mut c, &said)), 0);
}

/// Waits until the arbiter and the primary agree that it is an arbiter, and it votes.
fn is_arbiter(set: &Set) {
    set.until("it is no arbiter", || {
        // A member that begins anew closes its connections.
        let asked = doc! { "replSetGetStatus": 1 };
        let own = set.connect(ARBITER).command_raw("admin", &asked).ok()?;
        let own = own.as_doc().get("myState")?.as_i64_exact();
        let seen = int(&state(set, ARBITER), "state");
        let status = admin(
            &mut set.connect(set.primary()),
            &doc! { "replSetGetStatus": 1 },
        );
        let voting = int(&status, "votingMembersCount");
        (own == Some(7) && seen == 7 && voting == 3).then_some(())
    });
}

#[test]
fn an_arbiter_that_was_removed_is_added_again() {
    let set = start();
    write(&set, 1);
    wait_for_majority(&set);
    let all = members(&set);
    reconfigured(&set, &all[..2]);
    write(&set, 2);
    set.until("it does not know that it was removed", || {
        let own = admin(&mut set.connect(ARBITER), &doc! { "replSetGetStatus": 1 });
        (own.as_doc().get("state")?.as_i64_exact() == Some(10)).then_some(())
    });
    reconfigured(&set, &all);
    write(&set, 3);
    is_arbiter(&set);
}

/// An arbiter stores nothing: a server with a member's data does not become one, and says why. It becomes one
/// as soon as its directory is emptied.
#[test]
fn a_member_with_data_becomes_an_arbiter_when_its_directory_is_emptied() {
    let mut set = Set::prepare(3, &ServerOptions::new());
    let all = members(&set);
    let mut third = doc! { "_id": ARBITER as i32, "host": set.host(ARBITER) };
    third.append("priority", 0);
    set.initiate(&set.config(vec![all[0].clone(), all[1].clone(), third]));
    write(&set, 1);
    set.settle();
    wait_for_majority(&set);
    reconfigured(&set, &all[..2]);
    write(&set, 2);
    reconfigured(&set, &all);
    set.until("the reason cannot be read", || {
        let seen = state(&set, ARBITER);
        let told = seen.as_doc().get_str("lastHeartbeatMessage")?;
        let why = "that one is an arbiter, whose directory is empty, and there are data in this one: \
                   start the server with an empty directory";
        told.ends_with(why).then_some(())
    });
    write(&set, 3);
    set.members[ARBITER].terminate();
    set.members[ARBITER].empty();
    set.members[ARBITER].start_again();
    is_arbiter(&set);
}
