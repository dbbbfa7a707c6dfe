//! A set whose members have two versions: this build, and the one in `MUNIMENT_PREVIOUS` (`cargo xtask test
//! --only versions` builds it from the repository's history). Each member is upgraded under load, and then
//! downgraded: no write that a majority has acknowledged is lost, and all members have the same data.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::wire::int;
use muniment_value::{DocBuf, doc};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use testkit::{Load, ServerOptions, Set};

/// The variable with the binary of the other version.
const PREVIOUS: &str = "MUNIMENT_PREVIOUS";

fn config(set: &Set) -> DocBuf {
    let members = (0..3).map(|i| doc! { "_id": i as i32, "host": set.host(i) });
    set.config(members.collect())
}

/// Makes a change of the catalog and one of the configuration, so that each version writes records of both.
fn change(set: &Set, name: &str) {
    let mut c = set.connect(set.primary());
    c.command("test", &doc! { "create": name }).unwrap();
    set.until("the set is not reconfigured", || {
        let mut c = set.connect(set.primary());
        let reply = c.command("admin", &doc! { "replSetGetConfig": 1 }).ok()?;
        let version = int(reply.as_doc().get_doc("config")?, "version");
        let mut next = doc! { "version": version + 1 };
        config(set)
            .as_doc()
            .iter()
            .for_each(|e| _ = next.append_elem(e));
        let taken = c.command("admin", &doc! { "replSetReconfig": next });
        taken.ok().map(|_| ())
    });
}

/// Restarts a member with this version, or with the other one.
fn replace(set: &mut Set, i: usize, binary: Option<&Path>, load: &Load) {
    let before = load.written();
    set.members[i].terminate();
    set.members[i].set_binary(binary);
    set.members[i].start_again();
    set.settle();
    set.until("nothing is written", || {
        (load.written() > before).then_some(())
    });
}

#[test]
fn members_of_two_versions_are_one_set() {
    let Some(previous) = std::env::var_os(PREVIOUS) else {
        println!("skipped: {PREVIOUS} names no binary of another version");
        return;
    };
    let previous = Some(Path::new(&previous));
    let mut set = Set::prepare(3, &ServerOptions::new());
    for i in 0..3 {
        set.members[i].terminate();
        set.members[i].set_binary(previous);
        set.members[i].start_again();
    }
    set.initiate(&config(&set));
    let hosts = Mutex::new((0..3).map(|i| set.host(i)).collect::<Vec<_>>());
    let load = Load::default();
    std::thread::scope(|s| {
        s.spawn(|| load.run(&hosts));
        for (to, binary) in [("up", None), ("down", previous)] {
            for i in 0..3 {
                replace(&mut set, i, binary, &load);
                change(&set, &format!("{to}{i}"));
            }
        }
        // A member that has lost its disk copies from a member of the other version, in both directions.
        for (i, binary) in [(0, None), (1, previous)] {
            let primary = set.primary();
            let lost = if primary == i { 2 } else { i };
            set.members[lost].kill9();
            set.members[lost].empty();
            set.members[lost].set_binary(binary);
            set.members[lost].start_again();
            set.until("it copies nothing", || {
                let mut c = set.connect(lost);
                let status = c.command("admin", &doc! { "replSetGetStatus": 1 }).ok()?;
                (int(status.as_doc(), "myState") == 2).then_some(())
            });
            set.settle();
        }
        load.stop();
    });
    set.settle();
    let there = load.acknowledged();
    let read = |i: usize| {
        let find = doc! { "find": "c", "$readPreference": doc! { "mode": "nearest" } };
        let found = set.connect(i).find_all("test", &find).unwrap();
        found.iter().map(|d| int(d.as_doc(), "_id")).collect()
    };
    let all: [BTreeSet<i64>; 3] = [0, 1, 2].map(read);
    for (i, found) in all.iter().enumerate() {
        let lost: Vec<_> = there.difference(found).collect();
        assert!(lost.is_empty(), "member {i} has lost {lost:?}");
        assert_eq!(found, &all[0], "member {i}");
    }
    println!("{} writes acknowledged", there.len());
}
