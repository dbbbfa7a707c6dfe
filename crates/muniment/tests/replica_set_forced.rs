//! Forced configurations: all of their members use them, with the same voters, however they have heard of
//! them. Otherwise two majorities without a common member could acknowledge writes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{Doc, DocBuf, Result, Value, array, doc, number};
use testkit::{ServerOptions, Set};

fn members(set: &Set, which: &[usize]) -> Vec<DocBuf> {
    let member = |i: &usize| doc! { "_id": *i as i32, "host": set.host(*i) };
    which.iter().map(member).collect()
}

fn int(d: Doc<'_>, name: &str) -> i64 {
    d.get(name).and_then(number::to_i64_exact).unwrap_or(-1)
}

fn admin(set: &Set, i: usize, command: &DocBuf) -> Result<DocBuf> {
    set.connect(i).command("admin", command)
}

/// What a member replies. One that begins anew closes its connections, and is asked again.
fn asked(set: &Set, i: usize, command: &DocBuf) -> DocBuf {
    set.until("it does not reply", || {
        set.connect(i).command_raw("admin", command).ok()
    })
}

/// The configuration that a member uses.
fn config(set: &Set, i: usize) -> DocBuf {
    set.until("it tells no configuration", || {
        let reply = asked(set, i, &doc! { "replSetGetConfig": 1 });
        reply.as_doc().get_doc("config").map(|d| d.to_buf())
    })
}

fn version(set: &Set, i: usize) -> i64 {
    int(config(set, i).as_doc(), "version")
}

/// A configuration with these members and the next version.
fn next(set: &Set, i: usize, members: &[DocBuf]) -> DocBuf {
    let mut d = doc! { "_id": "rs0", "version": version(set, i) + 1 };
    for e in set.config(members.to_vec()).as_doc() {
        if e.name() != "_id" {
            d.append_elem(e);
        }
    }
    d
}

fn force(set: &Set, i: usize, members: &[DocBuf]) {
    let next = next(set, i, members);
    admin(set, i, &doc! { "replSetReconfig": next, "force": true }).unwrap();
}

/// The member's status.
fn status(set: &Set, i: usize) -> DocBuf {
    asked(set, i, &doc! { "replSetGetStatus": 1 })
}

/// Makes this member lead.
fn lead(set: &Set, i: usize) {
    set.until("it does not lead", || {
        let p = set.primary();
        if p != i {
            admin(set, i, &doc! { "replSetStepUp": 1 }).ok();
        }
        (p == i).then_some(())
    });
}

/// Waits until all of these members use the same configuration with this many voters.
fn agree(set: &Set, all: &[usize], voting: i64) {
    set.until("they do not go by the same configuration", || {
        let newest = all.iter().map(|i| version(set, *i)).max()?;
        let same = |i: &usize| {
            let d = status(set, *i);
            version(set, *i) == newest && int(d.as_doc(), "votingMembersCount") == voting
        };
        all.iter().all(same).then_some(())
    });
}

fn leads(set: &Set, i: usize) -> bool {
    let told = admin(set, i, &doc! { "hello": 1 }).ok();
    told.is_some_and(|d| {
        let leads = d.as_doc().get("isWritablePrimary");
        matches!(leads, Some(Value::Bool(true)))
    })
}

/// Waits until one of these members leads.
fn elected(set: &Set, among: &[usize]) -> usize {
    set.until("nobody leads", || {
        among.iter().copied().find(|i| leads(set, *i))
    })
}

/// Writes until this many members acknowledge it. A member that seems to lead may first have to hear that it
/// no longer does.
fn write(set: &Set, id: i32, w: i32) {
    let command = doc! {
        "update": "c",
        "updates": array![doc! { "q": doc! { "_id": id }, "u": doc! { "a": 1 }, "upsert": true }],
        "writeConcern": doc! { "w": w, "wtimeout": 5000 },
    };
    set.until("it is not written", || {
        let leader = set.running().find(|i| leads(set, *i))?;
        let reply = set.connect(leader).command("test", &command).ok()?;
        let written = reply.as_doc().get("writeConcernError").is_none();
        written.then_some(())
    });
}

#[test]
fn one_that_is_forced_on_a_secondary_reaches_the_leader() {
    let set = Set::start(3);
    let p = set.primary();
    let before = version(&set, p);
    let mut named = members(&set, &[0, 1, 2]);
    named[1].append("tags", doc! { "a": "b" });
    force(&set, (p + 1) % 3, &named);
    agree(&set, &[0, 1, 2], 3);
    for i in 0..3 {
        let now = config(&set, i);
        assert!(int(now.as_doc(), "version") > before);
        assert!(now.as_doc().to_display().contains("a: \"b\""), "{now:?}");
    }
    write(&set, 1, 3);
}

/// Every member counts by the new voters as soon as it has the configuration.
#[test]
fn one_that_leaves_out_two_of_five_has_one_majority() {
    let mut set = Set::start(5);
    lead(&set, 0);
    for i in [3, 4] {
        set.members[i].kill9();
    }
    force(&set, 0, &members(&set, &[0, 1, 2]));
    write(&set, 1, 3);
    agree(&set, &[0, 1, 2], 3);
    for i in 0..3 {
        set.members[i].kill9();
        set.members[i].start_again();
    }
    agree(&set, &[0, 1, 2], 3);
    write(&set, 2, 3);
}

/// A member that is away gets a forced configuration from the log, into which it was written meanwhile. The
/// member then counts by the same voters as those on which it was forced, not by the former ones.
#[test]
fn one_that_comes_by_the_log_says_who_votes() {
    let mut set = Set::start(5);
    lead(&set, 0);
    for i in [2, 3, 4] {
        set.members[i].kill9();
    }
    force(&set, 0, &members(&set, &[0, 1, 2]));
    write(&set, 1, 2);
    agree(&set, &[0, 1], 3);
    for i in 0..2 {
        set.members[i].kill9();
        set.members[i].start_again();
    }
    // The forced configuration is not part of greetings any more.
    write(&set, 2, 2);
    set.members[2].start_again();
    agree(&set, &[0, 1, 2], 3);
    set.members[2].kill9();
    set.members[2].start_again();
    agree(&set, &[0, 1, 2], 3);
    write(&set, 3, 3);
}

/// Two of five members are left, and each of them can lead both.
#[test]
fn either_of_two_that_are_left_can_lead() {
    let mut set = Set::start(5);
    lead(&set, 1);
    for i in [2, 3, 4] {
        set.members[i].kill9();
    }
    force(&set, 0, &members(&set, &[0, 1]));
    write(&set, 1, 2);
    agree(&set, &[0, 1], 2);
    let p = elected(&set, &[0, 1]);
    set.members[p].kill9();
    set.members[p].start_again();
    elected(&set, &[0, 1]);
    lead(&set, 1 - elected(&set, &[0, 1]));
    write(&set, 2, 2);
}

fn is_secondary(set: &Set, i: usize) -> Option<()> {
    (int(status(set, i).as_doc(), "myState") == 2).then_some(())
}

/// A joining member takes part in nothing yet, but still learns the addresses of the others.
#[test]
fn one_that_joins_finds_a_set_that_is_moved_by_force() {
    let mut set = Set::start(3);
    lead(&set, 1);
    set.members[0].kill9();
    set.members[2].kill9();
    set.members[2].empty();
    set.members[2].start_again();
    set.until("it does not join", || {
        admin(&set, 2, &doc! { "replSetGetConfig": 1 }).ok()
    });
    set.members[1].kill9();
    for i in [0, 1] {
        set.move_member(i);
        set.members[i].start_again();
    }
    force(&set, 0, &members(&set, &[0, 1, 2]));
    set.until("it has not joined", || is_secondary(&set, 2));
    write(&set, 1, 3);
}

/// A member that was away has to copy from members that have all moved meanwhile.
#[test]
fn one_that_was_away_copies_from_where_the_others_are() {
    let mut set = Set::prepare(4, &ServerOptions::new());
    let all = |set: &Set| {
        let mut all = members(set, &[0, 1, 2, 3]);
        all[3].append("votes", 0);
        all[3].append("priority", 0);
        all
    };
    set.initiate(&set.config(all(&set)));
    set.members[3].terminate();
    for i in 0..3 {
        lead(&set, (i + 1) % 3);
        set.members[i].kill9();
        set.members[i].empty();
        set.move_member(i);
        set.members[i].start_again();
        let next = next(&set, (i + 1) % 3, &all(&set));
        set.until("it is not reconfigured", || {
            let next = doc! { "replSetReconfig": &next };
            admin(&set, set.primary(), &next).ok()
        });
        set.until("it copies nothing", || is_secondary(&set, i));
        write(&set, i as i32, 3);
    }
    set.members[3].start_again();
    set.until("it has not caught up", || is_secondary(&set, 3));
    write(&set, 3, 4);
}

/// A configuration in the form in which members send it: its members with number, `_id` and host, all or none
/// of which vote.
fn sent(version: u64, members: &[(u64, u32, &str)], vote: bool, document: &DocBuf) -> Vec<u8> {
    fn run(w: &mut Vec<u8>, bytes: &[u8]) {
        w.extend((bytes.len() as u32).to_le_bytes());
        w.extend(bytes);
    }
    let mut w = vec![0; 16];
    w.extend(version.to_le_bytes());
    w.extend(99u64.to_le_bytes());
    w.extend((members.len() as u32).to_le_bytes());
    for (id, key, host) in members {
        w.extend(id.to_le_bytes());
        w.extend(key.to_le_bytes());
        run(&mut w, host.as_bytes());
        w.push(u8::from(vote));
        w.extend(1000u32.to_le_bytes());
        w.extend(0u32.to_le_bytes());
    }
    w.extend(0u32.to_le_bytes());
    run(&mut w, document.as_doc().as_bytes());
    w.extend(1u32.to_le_bytes());
    run(&mut w, b"");
    w
}

/// A configuration that no start could use is refused, whichever member sends it.
#[test]
fn one_that_cannot_be_used_is_refused() {
    let mut set = Set::start(1);
    let own = config(&set, 0);
    let settings = own.as_doc().get_doc("settings").unwrap();
    let id = settings.get("replicaSetId").unwrap();
    let host = set.host(0);
    let mut other = doc! { "_id": "other", "version": 1_000_000 };
    let mut newer = doc! { "_id": "rs0", "version": 1_000_000 };
    for e in own.as_doc() {
        if !matches!(e.name(), "_id" | "version" | "term") {
            other.append_elem(e);
            newer.append_elem(e);
        }
    }
    let me = (1, 0, host.as_str());
    let evil = (9, 9, "evil:1");
    for (version, members, vote, document) in [
        (1 << 40, vec![evil, me], false, &own),
        (1_000_000, vec![me], false, &newer),
        (1_000_000, vec![evil, me], true, &newer),
        (1_000_001, vec![me], true, &newer),
        (1_000_000, vec![me], true, &other),
    ] {
        let bytes = &sent(version, &members, vote, document);
        let greeting = doc! {
            "least": 1, "newest": 1, "from": 9_i64, "to": 1_i64, "host": "evil:1",
            "inForce": Value::Binary { subtype: 0, bytes }, "setId": id,
        };
        let greeting = doc! { "_replSetStream": "rs0", "greeting": greeting };
        let e = admin(&set, 0, &greeting).unwrap_err();
        assert_eq!(e.code().0, 93, "{e}");
        assert!(e.message().contains("cannot be used"), "{e}");
    }
    assert_eq!(config(&set, 0), own);
    set.members[0].restart();
    assert_eq!(elected(&set, &[0]), 0);
}

/// A configuration is forced on two members at once, which have not heard of each other. Finally all use one
/// of the two.
#[test]
fn of_two_that_are_forced_at_once_one_holds() {
    let set = Set::start(3);
    set.primary();
    let named = |tag: &str| {
        let mut named = members(&set, &[0, 1, 2]);
        named[1].append("tags", doc! { "a": tag });
        let next = next(&set, 0, &named);
        doc! { "replSetReconfig": next, "force": true }
    };
    let (one, other) = (named("one"), named("other"));
    std::thread::scope(|s| {
        for (i, command) in [(1, &one), (2, &other)] {
            let set = &set;
            s.spawn(move || admin(set, i, command).unwrap());
        }
    });
    agree(&set, &[0, 1, 2], 3);
    write(&set, 1, 3);
    agree(&set, &[0, 1, 2], 3);
    let mut all = (0..3).map(|i| config(&set, i));
    let first = all.next().unwrap();
    assert!(all.all(|c| c == first), "{first:?}");
}
