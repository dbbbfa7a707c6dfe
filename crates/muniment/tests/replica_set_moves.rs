//! Members that move to other addresses, leave, return, and start with directories that are not theirs. A
//! member's identity is in its directory, and nothing that the majority has acknowledged is lost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_consensus::{MemberId, StateFile};
use muniment_io::OsDisk;
use muniment_value::{Doc, DocBuf, Result, Value, array, doc, number};
use muniment_wire::Connection;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use testkit::{Load, ServerOptions, Set};

fn members(hosts: &[String]) -> Vec<DocBuf> {
    let hosts = hosts.iter().enumerate();
    hosts
        .map(|(i, host)| doc! { "_id": i as i32, "host": host.as_str() })
        .collect()
}

fn hosts(set: &Set, n: usize) -> Vec<String> {
    (0..n).map(|i| set.host(i)).collect()
}

fn admin(c: &mut Connection, command: &DocBuf) -> Result<DocBuf> {
    c.command("admin", command)
}

fn int(d: Doc<'_>, name: &str) -> i64 {
    d.get(name).and_then(number::to_i64_exact).unwrap_or(-1)
}

fn version(c: &mut Connection) -> Result<i64> {
    let reply = admin(c, &doc! { "replSetGetConfig": 1 })?;
    let config = reply.as_doc().get_doc("config");
    Ok(int(config.unwrap_or(Doc::EMPTY), "version"))
}

fn config(set: &Set, members: &[DocBuf], version: i64) -> DocBuf {
    let mut d = doc! { "_id": "rs0", "version": version };
    for e in set.config(members.to_vec()).as_doc() {
        if e.name() != "_id" {
            d.append_elem(e);
        }
    }
    d
}

/// Makes the primary accept a configuration with these members.
fn reconfigure(set: &Set, members: &[DocBuf]) {
    set.until("the set is not reconfigured", || {
        let mut c = set.connect(set.primary());
        let next = config(set, members, version(&mut c).ok()? + 1);
        let taken = admin(&mut c, &doc! { "replSetReconfig": next });
        taken.inspect_err(|e| eprintln!("reconfiguring: {e}")).ok()
    });
}

fn force(set: &Set, i: usize, members: &[DocBuf]) {
    let mut c = set.connect(i);
    let next = config(set, members, version(&mut c).unwrap() + 1);
    admin(&mut c, &doc! { "replSetReconfig": next, "force": true }).unwrap();
}

/// Makes the member hand over if it leads.
fn follow(set: &Set, i: usize) {
    if set.primary() == i {
        admin(&mut set.connect(i), &doc! { "replSetStepDown": 60 }).unwrap();
        set.until("it leads again", || (set.primary() != i).then_some(()));
    }
}

fn insert(c: &mut Connection, id: i64, concern: DocBuf) -> Result<DocBuf> {
    let command = doc! {
        "insert": "c", "documents": array![doc! { "_id": id }], "writeConcern": concern,
    };
    c.command("test", &command)
}

fn ids(c: &mut Connection) -> Result<BTreeSet<i64>> {
    let find = doc! { "find": "c", "$readPreference": doc! { "mode": "secondaryPreferred" } };
    let found = c.find_all("test", &find)?;
    Ok(found.iter().map(|d| int(d.as_doc(), "_id")).collect())
}

/// Checks that all members have everything that was acknowledged, and the same data.
fn check(set: &Set, n: usize, load: &Load) {
    set.settle();
    let there = load.acknowledged();
    let all: Vec<_> = (0..n).map(|i| ids(&mut set.connect(i)).unwrap()).collect();
    for (i, found) in all.iter().enumerate() {
        let lost: Vec<_> = there.difference(found).collect();
        assert!(lost.is_empty(), "member {i} has lost {lost:?}");
        assert_eq!(found, &all[0], "member {i}");
    }
}

/// `myState`, even of a server that is not a member.
fn state(set: &Set, i: usize) -> i64 {
    // A member that goes on with the data of another one closes its connections.
    let reply = set.until("it does not tell its state", || {
        let mut c = set.connect(i);
        c.command_raw("admin", &doc! { "replSetGetStatus": 1 }).ok()
    });
    let d = reply.as_doc();
    int(d, "myState").max(int(d, "state"))
}

/// How often the member has begun to copy another member's data.
fn copies(set: &Set, i: usize) -> usize {
    set.members[i]
        .log()
        .matches("Starting initial sync")
        .count()
}

/// Waits until the server knows that it is not a member: it takes no reads, and does not claim to be a
/// secondary.
fn is_removed(set: &Set, i: usize) {
    set.until("it does not know that it is no member", || {
        (state(set, i) == 10).then_some(())
    });
    let mut c = set.connect(i);
    let hello = admin(&mut c, &doc! { "hello": 1 }).unwrap();
    for name in ["secondary", "isWritablePrimary"] {
        let told = hello.as_doc().get(name);
        assert!(matches!(told, Some(Value::Bool(false))), "{name}");
    }
    assert!(hello.as_doc().get("setName").is_none());
    assert_eq!(ids(&mut c).unwrap_err().code().0, 13436);
    let e = admin(&mut c, &doc! { "replSetGetStatus": 1 }).unwrap_err();
    assert_eq!(e.code().0, 93, "{e}");
}

#[test]
fn all_hosts_change_one_after_the_other_under_load() {
    let mut set = Set::start(3);
    let mut named = hosts(&set, 3);
    let known = Mutex::new(named.clone());
    let load = Load::default();
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| load.run(&known));
        }
        for i in 0..3 {
            follow(&set, i);
            let before = load.written();
            if i == 1 {
                // The configuration changes first: the member hears that it is elsewhere.
                let running = set.host(i);
                named[i] = set.move_member(i);
                reconfigure(&set, &members(&named));
                let mut c = Connection::connect(&running).unwrap();
                set.until("it does not hear that it moves", || {
                    let hello = admin(&mut c, &doc! { "hello": 1 }).ok()?;
                    (hello.as_doc().get("setName").is_none()).then_some(())
                });
                set.members[i].terminate();
            } else {
                set.members[i].terminate();
                named[i] = set.move_member(i);
            }
            if i == 2 {
                // The name changes as well.
                named[i] = named[i].replace("127.0.0.1", "localhost");
            }
            set.members[i].start_again();
            known.lock().unwrap().push(set.host(i));
            if i != 1 {
                is_removed(&set, i);
                reconfigure(&set, &members(&named));
            }
            set.settle();
            assert!(load.written() > before, "nothing was written");
        }
        load.stop();
    });
    check(&set, 3, &load);
    let copied: usize = (0..3).map(|i| copies(&set, i)).sum();
    assert_eq!(copied, 2, "the two that joined at first");
    let mut c = set.connect(set.primary());
    insert(&mut c, -1, doc! { "w": 3 }).unwrap();
}

/// Members get another name for the same server. No server is restarted, and members with a key still
/// authenticate each other.
#[test]
fn members_are_named_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, "abcdef").unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let options = ServerOptions::new().arg("--noauth").arg("--keyFile");
    let set = Set::prepare(3, &options.arg(key.to_str().unwrap()));
    let mut named = hosts(&set, 3);
    set.initiate(&set.config(members(&named)));
    for i in 0..3 {
        follow(&set, i);
        named[i] = named[i].replace("127.0.0.1", "localhost");
        reconfigure(&set, &members(&named));
        let mut c = set.connect(set.primary());
        let reply = insert(&mut c, i as i64, doc! { "w": 3, "wtimeout": 20_000 }).unwrap();
        assert!(
            reply.as_doc().get("writeConcernError").is_none(),
            "{reply:?}"
        );
        set.until("it has not its new name", || {
            let hello = admin(&mut set.connect(i), &doc! { "hello": 1 }).ok()?;
            (hello.as_doc().get_str("me") == Some(named[i].as_str())).then_some(())
        });
    }
}

#[test]
fn a_whole_set_is_moved_by_force() {
    for to_each in [false, true] {
        let mut set = Set::start(3);
        let known = Mutex::new(hosts(&set, 3));
        let load = Load::default();
        std::thread::scope(|s| {
            s.spawn(|| load.run(&known));
            set.until("nothing is written", || (load.written() > 50).then_some(()));
            for i in 0..3 {
                set.members[i].terminate();
            }
            load.stop();
        });
        for i in 0..3 {
            set.move_member(i);
            set.members[i].start_again();
        }
        (0..3).for_each(|i| is_removed(&set, i));
        let wanted = members(&hosts(&set, 3));
        let told = if to_each { 3 } else { 1 };
        (0..told).for_each(|i| force(&set, i, &wanted));
        check(&set, 3, &load);
        let mut c = set.connect(set.primary());
        insert(&mut c, -1, doc! { "w": 3 }).unwrap();
        // By now the configuration is in the log, so a member that starts again has it, too.
        for i in 0..3 {
            set.members[i].restart();
        }
        check(&set, 3, &load);
        let copied: usize = (0..3).map(|i| copies(&set, i)).sum();
        assert_eq!(copied, 2, "the two that joined at first");
    }
}

/// A member's number belongs to one process at one address. The other process with the same directory takes
/// part in nothing.
#[test]
fn of_two_copies_of_a_directory_one_is_the_member() {
    let mut set = Set::start(3);
    follow(&set, 2);
    let load = Load::default();
    let write = |set: &Set, id: i64, w: i32| {
        let mut c = set.connect(set.primary());
        let reply = insert(&mut c, id, doc! { "w": w, "wtimeout": 20_000 }).unwrap();
        assert!(
            reply.as_doc().get("writeConcernError").is_none(),
            "{reply:?}"
        );
        load.note(id);
    };
    write(&set, 1, 3);
    set.members[2].terminate();
    let copy = set.add_server(&ServerOptions::new());
    set.members[copy].copy_from(&set.members[2]);
    // While the member is away the copy does not acknowledge in its place.
    set.members[copy].start_again();
    is_removed(&set, copy);
    let mut c = set.connect(set.primary());
    let concern = doc! { "w": 3, "wtimeout": 1500 };
    let reply = insert(&mut c, 2, concern).unwrap();
    assert!(
        reply.as_doc().get("writeConcernError").is_some(),
        "{reply:?}"
    );
    set.members[2].start_again();
    write(&set, 3, 3);
    is_removed(&set, copy);
    // The member moves to the address of the copy, so the other process is not a member.
    let mut named = hosts(&set, 3);
    named[2] = set.host(copy);
    reconfigure(&set, &members(&named));
    write(&set, 4, 3);
    is_removed(&set, 2);
    set.until("the copy is no secondary", || {
        (state(&set, copy) == 2).then_some(())
    });
    let found = ids(&mut set.connect(copy)).unwrap();
    assert_eq!(found, BTreeSet::from([1, 2, 3, 4]));
}

#[test]
fn a_removed_member_knows_it_and_goes_on_where_it_was_when_it_is_added_again() {
    let mut set = Set::start(3);
    follow(&set, 2);
    let all = members(&hosts(&set, 3));
    for (turn, away) in [false, true].into_iter().enumerate() {
        if away {
            set.members[2].terminate();
        }
        reconfigure(&set, &all[..2]);
        if away {
            set.members[2].start_again();
        }
        is_removed(&set, 2);
        let mut c = set.connect(set.primary());
        insert(&mut c, turn as i64, doc! { "w": 2 }).unwrap();
        let mut again = all.clone();
        again[2] = doc! { "_id": 7 + turn as i32, "host": set.host(2) };
        reconfigure(&set, &again);
        set.settle();
        let reply = insert(
            &mut c,
            10 + turn as i64,
            doc! { "w": 3, "wtimeout": 20_000 },
        )
        .unwrap();
        assert!(
            reply.as_doc().get("writeConcernError").is_none(),
            "{reply:?}"
        );
        assert_eq!(state(&set, 2), 2);
    }
    let found = ids(&mut set.connect(2)).unwrap();
    assert_eq!(found, BTreeSet::from([0, 1, 10, 11]));
    assert_eq!(copies(&set, 2), 1, "when it joined at first");
}

/// The others do not have the log that a member missed while it was removed, since each has a copy of later
/// data by then. So the member has to copy as well.
#[test]
fn a_member_that_returns_too_late_copies() {
    let mut set = Set::start(4);
    follow(&set, 3);
    let all = members(&hosts(&set, 4));
    set.members[3].terminate();
    reconfigure(&set, &all[..3]);
    set.settle();
    insert(&mut set.connect(set.primary()), 1, doc! { "w": 3 }).unwrap();
    for i in 0..3 {
        follow(&set, i);
        let before = copies(&set, i);
        set.members[i].kill9();
        set.members[i].empty();
        set.members[i].start_again();
        set.until("it copies nothing", || {
            (copies(&set, i) > before && state(&set, i) == 2).then_some(())
        });
        set.settle();
    }
    set.members[3].start_again();
    is_removed(&set, 3);
    let mut again = all.clone();
    again[3] = doc! { "_id": 7, "host": set.host(3) };
    reconfigure(&set, &again);
    set.settle();
    assert_eq!(ids(&mut set.connect(3)).unwrap(), BTreeSet::from([1]));
    assert_eq!(copies(&set, 3), 2);
}

/// A member that was removed while it was away is emptied and added again, while a member that gets the log
/// late still addresses it as the former one.
#[test]
fn an_emptied_member_is_added_again_beside_one_that_is_late() {
    let mut set = Set::prepare(4, &ServerOptions::new());
    let mut all = members(&hosts(&set, 4));
    for (name, value) in [("priority", 0), ("votes", 0), ("secondaryDelaySecs", 30)] {
        all[2].append(name, value);
    }
    set.initiate(&set.config(all.clone()));
    follow(&set, 3);
    set.members[3].kill9();
    set.members[3].empty();
    reconfigure(&set, &all[..3]);
    set.members[3].start_again();
    // The late member has greeted it.
    set.until("nobody has taken it for a member", || {
        let named = set
            .connect(3)
            .command("admin", &doc! { "replSetGetConfig": 1 });
        named.ok().map(|_| ())
    });
    all[3] = doc! { "_id": 9, "host": set.host(3) };
    reconfigure(&set, &all);
    set.until("it does not join", || (state(&set, 3) == 2).then_some(()));
    let mut c = set.connect(set.primary());
    let reply = insert(&mut c, 1, doc! { "w": 3, "wtimeout": 20_000 }).unwrap();
    assert!(
        reply.as_doc().get("writeConcernError").is_none(),
        "{reply:?}"
    );
}

/// A new member whose directory is a copy of another one's continues from there. A member that has voted and
/// now has such a copy as its directory has forgotten its votes, and copies everything.
#[test]
fn a_directory_that_was_another_member_s_serves() {
    let mut set = Set::start(3);
    follow(&set, 1);
    let mut c = set.connect(set.primary());
    for id in 0..20 {
        insert(&mut c, id, doc! { "w": 3 }).unwrap();
    }
    let new = set.add_server(&ServerOptions::new());
    set.members[1].terminate();
    set.members[new].copy_from(&set.members[1]);
    set.members[1].start_again();
    set.settle();
    insert(&mut set.connect(set.primary()), 20, doc! { "w": 3 }).unwrap();
    set.members[new].start_again();
    reconfigure(&set, &members(&hosts(&set, 4)));
    set.settle();
    assert_eq!(ids(&mut set.connect(new)).unwrap().len(), 21);
    assert_eq!(copies(&set, new), 0);
    let log = set.members[new].log();
    assert_eq!(log.matches("goes on as another member").count(), 1, "{log}");

    follow(&set, 2);
    set.members[2].kill9();
    set.members[1].terminate();
    set.members[2].copy_from(&set.members[1]);
    set.members[1].start_again();
    let before = copies(&set, 2);
    set.members[2].start_again();
    set.until("it does not copy", || {
        (copies(&set, 2) > before && state(&set, 2) == 2).then_some(())
    });
    set.settle();
    let mut c = set.connect(set.primary());
    insert(&mut c, 21, doc! { "w": 4 }).unwrap();
    for i in 0..4 {
        assert_eq!(ids(&mut set.connect(i)).unwrap().len(), 22, "member {i}");
    }
}

fn counts(set: &Set) -> Vec<i64> {
    let mut c = set.connect(set.primary());
    let status = admin(&mut c, &doc! { "replSetGetStatus": 1 }).unwrap();
    let names = [
        "votingMembersCount",
        "writableVotingMembersCount",
        "majorityVoteCount",
        "writeMajorityCount",
    ];
    names.iter().map(|n| int(status.as_doc(), n)).collect()
}

/// Voters that were added and have no data yet keep no write waiting, and count when they have data.
#[test]
fn a_voter_without_data_raises_no_majority() {
    let mut set = Set::start(1);
    assert_eq!(counts(&set), [1, 1, 1, 1]);
    let mut named = hosts(&set, 1);
    for n in 1..=2 {
        let new = set.add_server(&ServerOptions::new());
        named.push(set.host(new));
        reconfigure(&set, &members(&named));
        assert_eq!(counts(&set), [1, 1, 1, 1]);
        let mut c = set.connect(0);
        let concern = doc! { "w": "majority", "wtimeout": 10_000 };
        let reply = insert(&mut c, n, concern).unwrap();
        assert!(
            reply.as_doc().get("writeConcernError").is_none(),
            "{reply:?}"
        );
        // A write that asks for more members waits for them.
        let reply = insert(&mut c, 10 + n, doc! { "w": 2, "wtimeout": 300 }).unwrap();
        assert!(
            reply.as_doc().get("writeConcernError").is_some(),
            "{reply:?}"
        );
    }
    for (new, wanted) in [(1, [2, 2, 2, 2]), (2, [3, 3, 2, 2])] {
        set.members[new].start_again();
        set.until("it gets no vote", || (counts(&set) == wanted).then_some(()));
    }
}

/// There is a member of another set at an address. Both report that, and both sets continue.
#[test]
fn a_member_of_another_set_is_refused() {
    let set = Set::start(2);
    let foreign = Set::start(1);
    let mut named = hosts(&set, 2);
    named.push(foreign.host(0));
    let mut wanted = members(&named);
    wanted[2].append("votes", 0);
    wanted[2].append("priority", 0);
    reconfigure(&set, &wanted);
    set.until("the foreign member is not refused", || {
        let mut c = set.connect(set.primary());
        let status = admin(&mut c, &doc! { "replSetGetStatus": 1 }).unwrap();
        let members = status.as_doc().get_array("members").unwrap();
        let third = members.values().nth(2)?;
        let told = third.as_doc()?.get_str("lastHeartbeatMessage")?;
        told.contains("another replica set").then_some(())
    });
    for (set, w) in [(&set, 2), (&foreign, 1)] {
        let mut c = set.connect(set.primary());
        insert(&mut c, 1, doc! { "w": w }).unwrap();
    }
}

/// The reply means that the removed member is not needed any more. A client that reads it may end that
/// member, and the other one leads, even if it is killed itself at this moment.
#[test]
fn a_removed_member_may_end_when_its_removal_is_answered() {
    for who_leads_ends in [false, true] {
        let mut set = Set::start(2);
        let (p, all) = (set.primary(), members(&hosts(&set, 2)));
        let mut c = set.connect(p);
        insert(&mut c, 1, doc! { "w": 2 }).unwrap();
        let next = config(&set, &all[p..=p], version(&mut c).unwrap() + 1);
        admin(&mut c, &doc! { "replSetReconfig": next }).unwrap();
        set.members[1 - p].kill9();
        if who_leads_ends {
            set.members[p].kill9();
            set.members[p].start_again();
        }
        set.until("it does not lead alone", || {
            let mut c = Connection::connect(&set.host(p)).ok()?;
            insert(&mut c, 2, doc! { "w": "majority" }).ok()
        });
    }
}

/// All members end between the record of a configuration and that of the removal which follows from it. The
/// removed member is needed for that, but the configuration no longer has its address.
#[test]
fn a_removal_is_finished_after_all_members_have_ended() {
    let mut set = Set::start(2);
    let (p, all) = (set.primary(), members(&hosts(&set, 2)));
    let mut c = set.connect(p);
    insert(&mut c, 1, doc! { "w": 2 }).unwrap();
    set.settle();
    let reply = admin(&mut c, &doc! { "replSetGetConfig": 1 }).unwrap();
    let now = reply.as_doc().get_doc("config").unwrap();
    let mut left = doc! {
        "_id": "rs0", "version": int(now, "version") + 1, "members": array![all[p].clone()],
    };
    for e in now {
        if !matches!(e.name(), "_id" | "version" | "members") {
            left.append_elem(e);
        }
    }
    for i in 0..2 {
        set.members[i].kill9();
    }
    let mut going: Option<MemberId> = None;
    for i in 0..2 {
        let file = StateFile::new(Arc::new(OsDisk), &set.members[i].dir());
        let mut state = file.read().unwrap().unwrap();
        let now = &state.in_force.config;
        let mut next = now.clone();
        next.version += 1;
        next.members.retain(|m| m.key == p as i32);
        next.document = left.clone().into_bytes();
        let next = now.number(next);
        assert_eq!(state.in_force.voters.len(), 2);
        going = next.going().into_keys().next();
        state.in_force.config = next;
        file.write(&state).unwrap();
    }
    for i in 0..2 {
        set.members[i].start_again();
    }
    set.until("nobody leads alone", || {
        (counts_at(&set, p)? == 1).then_some(())
    });
    set.members[1 - p].kill9();
    set.members[p].restart();
    set.until("it does not lead alone", || {
        let mut c = Connection::connect(&set.host(p)).ok()?;
        insert(&mut c, 2, doc! { "w": "majority" }).ok()
    });
    // No member remembers its address.
    set.members[p].terminate();
    let file = StateFile::new(Arc::new(OsDisk), &set.members[p].dir());
    let state = file.read().unwrap().unwrap();
    assert!(going.is_some() && state.in_force.config.going().is_empty());
}

/// How many members vote, according to a primary.
fn counts_at(set: &Set, i: usize) -> Option<i64> {
    let mut c = Connection::connect(&set.host(i)).ok()?;
    let status = admin(&mut c, &doc! { "replSetGetStatus": 1 }).ok()?;
    (int(status.as_doc(), "myState") == 1).then(|| int(status.as_doc(), "votingMembersCount"))
}

/// While all members are down, two get each other's directories. There is no leader that could say whether
/// they may give up what is in them, so they keep it, and the set continues when each has its own directory
/// again.
#[test]
fn two_directories_are_swapped_and_swapped_back() {
    let mut set = Set::start(3);
    insert(&mut set.connect(set.primary()), 1, doc! { "w": 3 }).unwrap();
    let before: Vec<usize> = (0..3).map(|i| copies(&set, i)).collect();
    let between = set.add_server(&ServerOptions::new());
    for turn in 0..2 {
        for i in 0..3 {
            set.members[i].terminate();
        }
        for (to, from) in [(between, 1), (1, 2), (2, between)] {
            set.members[to].copy_from(&set.members[from]);
        }
        for i in 0..3 {
            set.members[i].start_again();
        }
        if turn == 0 {
            for i in 1..3 {
                set.until("nobody addresses it as another member", || {
                    let status = set
                        .connect(0)
                        .command("admin", &doc! { "replSetGetStatus": 1 });
                    let status = status.ok()?;
                    let members = status.as_doc().get_array("members")?;
                    let member = members.values().nth(i)?.as_doc()?;
                    let said = member.get_str("lastHeartbeatMessage")?;
                    said.contains("is about to become").then_some(())
                });
            }
        }
    }
    set.settle();
    insert(&mut set.connect(set.primary()), 2, doc! { "w": 3 }).unwrap();
    for (i, before) in before.into_iter().enumerate() {
        assert_eq!(ids(&mut set.connect(i)).unwrap(), BTreeSet::from([1, 2]));
        assert_eq!(copies(&set, i), before, "member {i}");
    }
}
