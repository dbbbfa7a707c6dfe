//! A locked member (fsyncLock) takes and acknowledges the log, while its directory can be copied file by
//! file. Nothing that it has acknowledged is lost, however it ends.
#![allow(clippy::unwrap_used, clippy::panic)]

mod set;

use muniment_value::{DocBuf, Value, array, doc};
use muniment_wire::Connection;
use set::{config, ids, lines, reconfigure, status_of};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions, Set};

const ASIDE: &str = "replication.aside";

fn admin(c: &mut Connection, cmd: DocBuf) -> DocBuf {
    c.command("admin", &cmd).unwrap()
}

fn lock(c: &mut Connection) -> i64 {
    let reply = admin(c, doc! { "fsync": 1, "lock": true });
    number(&reply, "lockCount")
}

fn unlock(c: &mut Connection) -> i64 {
    number(&admin(c, doc! { "fsyncUnlock": 1 }), "lockCount")
}

fn number(d: &DocBuf, name: &str) -> i64 {
    d.as_doc().get(name).unwrap().as_i64_exact().unwrap()
}

/// The text of the row with this number.
fn text(id: i64) -> String {
    format!("{id} ").repeat(20 + (id % 300) as usize)
}

fn written(c: &mut Connection, id: i64, concern: DocBuf) -> bool {
    let row = doc! { "_id": id, "text": text(id) };
    let cmd = doc! { "insert": "c", "documents": array![row], "writeConcern": concern };
    let reply = c.command("test", &cmd);
    reply.is_ok_and(|r| r.as_doc().get("writeConcernError").is_none())
}

/// Checks the rows of a member, and returns their numbers.
fn rows(c: &mut Connection) -> Vec<i64> {
    let cmd = doc! {
        "find": "c", "sort": doc! { "_id": 1 },
        "$readPreference": doc! { "mode": "secondaryPreferred" },
    };
    let all = c.find_all("test", &cmd).unwrap();
    let id = |d: &DocBuf| {
        let id = number(d, "_id");
        assert_eq!(d.as_doc().get_str("text"), Some(&*text(id)));
        id
    };
    all.iter().map(id).collect()
}

fn is_valid(c: &mut Connection) {
    let cmd = doc! {
        "validate": "c", "full": true, "$readPreference": doc! { "mode": "secondaryPreferred" },
    };
    let reply = c.command("test", &cmd).unwrap();
    let valid = reply.as_doc().get("valid");
    assert!(matches!(valid, Some(Value::Bool(true))), "{reply:?}");
}

/// Copies a directory file by file, each slowly from beginning to end.
fn copy_slowly(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if path.is_dir() {
            copy_slowly(&path, &to.join(name));
            continue;
        }
        // The file with the state of the elections may be renamed meanwhile.
        let Ok(mut file) = std::fs::File::open(&path) else {
            assert!(name.to_string_lossy().ends_with(".new"), "{path:?}");
            continue;
        };
        if name == "muniment.lock" {
            continue;
        }
        let mut copy = std::fs::File::create(to.join(name)).unwrap();
        // A file that keeps growing is copied up to some point.
        let mut part = vec![0; 16 << 10];
        for _ in 0..4000 {
            let n = file.read(&mut part).unwrap();
            if n == 0 {
                break;
            }
            copy.write_all(part.get(..n).unwrap()).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A set of two whose secondary is locked, with ten rows on both.
fn locked() -> (Set, usize) {
    let set = Set::start(2);
    let primary = set.primary();
    let mut c = set.connect(primary);
    assert!((0..10).all(|id| written(&mut c, id, doc! { "w": 2 })));
    assert_eq!(lock(&mut set.connect(1 - primary)), 1);
    (set, primary)
}

/// Writes rows with the write concern majority, from the tenth on, until it is told to stop or a write fails.
fn load(mut c: Connection, stop: &AtomicBool, acknowledged: &AtomicI64) {
    for id in 10.. {
        let majority = doc! { "w": "majority", "wtimeout": 20_000 };
        if stop.load(SeqCst) || !written(&mut c, id, majority) {
            return;
        }
        acknowledged.store(id, SeqCst);
    }
}

#[test]
fn a_locked_member_counts_for_the_majority_and_its_copy_starts() {
    if !testkit::persistent() {
        return;
    }
    let (mut set, primary) = locked();
    let mut l = set.connect(1 - primary);
    let new = set.add_server(&ServerOptions::new());
    let mut alone = Server::prepare(ServerOptions::new());
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicI64::new(9));
    std::thread::scope(|s| {
        let c = set.connect(primary);
        s.spawn(|| load(c, &stop, &acknowledged));
        let from = set.members[1 - primary].dir();
        let begun = Instant::now();
        while acknowledged.load(SeqCst) < 60 {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(10));
        }
        copy_slowly(&from, &set.members[new].dir());
        copy_slowly(&from, &alone.dir());
        assert!(from.join(ASIDE).exists());
        stop.store(true, SeqCst);
    });
    let last = acknowledged.load(SeqCst);
    assert!(last > 70, "{last}");
    // The locked member has not applied the writes, so it counts only for the majority.
    assert_eq!(rows(&mut l), (0..10).collect::<Vec<_>>());
    let mut c = set.connect(primary);
    assert!(!written(&mut c, 100_000, doc! { "w": 2, "wtimeout": 500 }));
    assert!(written(&mut c, 100_001, doc! { "w": 1 }));
    // Locks nest.
    assert_eq!(lock(&mut l), 2);
    assert_eq!(unlock(&mut l), 1);
    assert_eq!(rows(&mut l).len(), 10);

    // The copy alone shows the same as the member.
    alone.start_again();
    let mut a = alone.connect();
    assert_eq!(rows(&mut a), (0..10).collect::<Vec<_>>());
    is_valid(&mut a);

    assert_eq!(unlock(&mut l), 0);
    assert!(written(
        &mut c,
        100_002,
        doc! { "w": 2, "wtimeout": 30_000 }
    ));
    let all = rows(&mut c);
    assert!(all.len() as i64 >= last + 4);
    assert_eq!(rows(&mut l), all);
    is_valid(&mut l);
    set.until("the file stays", || {
        let file = set.members[1 - primary].dir().join(ASIDE);
        (!file.exists()).then_some(())
    });

    // As a new member the copy continues from its data, and it needs more than the log of the locked member
    // had.
    set.members[new].start_again();
    let hosts = (0..3).map(|i| doc! { "_id": i as i32, "host": set.host(i) });
    reconfigure(&set, hosts.collect());
    set.settle();
    assert_eq!(rows(&mut set.connect(new)), all);
    is_valid(&mut set.connect(new));
    assert_eq!(lines(&set.members[new], "Starting initial sync"), 0);
    assert_eq!(lines(&set.members[new], "is put into its log"), 1);
}

/// Acknowledged writes survive however the locked member ends, even if the primary is lost for good at the
/// same time.
#[test]
fn writes_that_a_locked_member_has_acknowledged_outlive_it_and_the_primary() {
    if !testkit::persistent() {
        return;
    }
    for ends in ["killed", "stopped", "both"] {
        let (mut set, primary) = locked();
        let left = 1 - primary;
        let (stop, acknowledged) = (AtomicBool::new(false), AtomicI64::new(9));
        std::thread::scope(|s| {
            let c = set.connect(primary);
            s.spawn(|| load(c, &stop, &acknowledged));
            let begun = Instant::now();
            while acknowledged.load(SeqCst) < 100 {
                assert!(begun.elapsed() < Duration::from_secs(60));
                std::thread::sleep(Duration::from_millis(10));
            }
            match ends {
                "stopped" => drop(set.members[left].terminate()),
                _ => set.members[left].kill9(),
            }
            set.members[primary].kill9();
        });
        let last = acknowledged.load(SeqCst);
        set.members[left].start_again();
        if ends == "both" {
            // It is killed again while it puts the records into its log.
            set.members[left].kill9();
            set.members[left].start_again();
        }
        let mut l = set.connect(left);
        set.until("something is lost", || {
            (rows(&mut l).len() as i64 > last).then_some(())
        });
        let found: BTreeSet<i64> = rows(&mut l).into_iter().collect();
        assert!((0..=last).all(|id| found.contains(&id)), "{ends}: {last}");
        is_valid(&mut l);
        let mut next = config(&mut l).as_doc().to_buf();
        let all = next.as_doc().get_array("members").unwrap();
        let own = all.values().filter_map(|m| m.as_doc());
        let own = own.filter(|m| m.get_str("host") == Some(&*set.host(left)));
        let members = array![own.last().unwrap().to_buf()];
        next = set::with(&next, "members", members);
        let force = doc! { "replSetReconfig": next, "force": true };
        set.until("it cannot be forced", || {
            l.command("admin", &force).ok().map(|_| ())
        });
        set.until("it is not primary", || {
            written(&mut l, 200_000, doc! { "w": "majority" }).then_some(())
        });
        assert!(ids(&mut l).len() as i64 >= last + 2);
    }
}

/// A set of three continues with one locked member and another one that is down. Changes of the configuration
/// and of the catalog reach the locked member as all other changes do.
#[test]
fn records_that_come_under_the_lock_are_there_after_it() {
    let mut set = Set::start(3);
    let primary = set.primary();
    let (still, other) = ((primary + 1) % 3, (primary + 2) % 3);
    let mut c = set.connect(primary);
    assert!(written(&mut c, 0, doc! { "w": 3 }));
    let mut l = set.connect(still);
    lock(&mut l);
    set.members[other].kill9();
    let majority = || doc! { "w": "majority", "wtimeout": 20_000 };
    assert!(written(&mut c, 1, majority()));
    let create = doc! { "create": "made", "writeConcern": majority() };
    c.command("test", &create).unwrap();
    let spec = doc! { "key": doc! { "n": 1 }, "name": "n", "unique": true };
    let index =
        doc! { "createIndexes": "made", "indexes": array![spec], "writeConcern": majority() };
    c.command("test", &index).unwrap();
    let row = doc! { "_id": 1, "n": 1 };
    let insert = doc! { "insert": "made", "documents": array![row], "writeConcern": majority() };
    c.command("test", &insert).unwrap();
    // A change of the configuration is committed with its acknowledgement.
    let old = config(&mut c);
    let members = old.as_doc().get_array("members").unwrap();
    let members = members.values().filter_map(|m| m.as_doc()).map(|m| {
        let own = m.get_str("host") == Some(&*set.host(still));
        match own {
            true => set::with(&m.to_buf(), "priority", 0.5_f64),
            false => m.to_buf(),
        }
    });
    reconfigure(&set, members.collect());
    // No other configuration can be forced on it now.
    let force = doc! { "replSetReconfig": config(&mut l), "force": true };
    let refused = l.command("admin", &force).unwrap_err();
    assert_eq!(
        refused.code(),
        muniment_value::Code::ConfigurationInProgress
    );
    // None of these changes can be read.
    assert_eq!(rows(&mut l), [0]);
    let own = status_of(&mut l, &set.host(still));
    assert_eq!(number(&own, "state"), 2, "{own:?}");
    unlock(&mut l);
    assert!(written(&mut c, 2, doc! { "w": 2, "wtimeout": 20_000 }));
    assert_eq!(rows(&mut l), [0, 1, 2]);
    let validate = doc! {
        "validate": "made", "$readPreference": doc! { "mode": "secondaryPreferred" },
    };
    let reply = l.command("test", &validate).unwrap();
    assert_eq!(number(&reply, "nIndexes"), 2, "{reply:?}");
    assert_eq!(number(&reply, "nrecords"), 1, "{reply:?}");
    set.members[other].start_again();
    set.settle();
    assert!(written(&mut c, 3, doc! { "w": 3, "wtimeout": 20_000 }));
}

/// A locked primary takes no writes. When another member has been elected, it continues as any locked
/// secondary.
#[test]
fn a_primary_that_was_locked_acknowledges_when_it_follows() {
    let mut set = Set::start(3);
    let first = set.primary();
    assert!(written(&mut set.connect(first), 0, doc! { "w": 3 }));
    let mut l = set.connect(first);
    lock(&mut l);
    let pid = set.members[first].pid().unwrap();
    testkit::freeze(pid);
    let is_primary = |i: usize| {
        let mut c = set.connect(i);
        let hello = admin(&mut c, doc! { "hello": 1 });
        let leads = hello.as_doc().get("isWritablePrimary");
        matches!(leads, Some(Value::Bool(true)))
    };
    let others = [(first + 1) % 3, (first + 2) % 3];
    let next = set.until("nobody takes over", || {
        others.into_iter().find(|i| is_primary(*i))
    });
    testkit::thaw(pid);
    let mut c = set.connect(next);
    assert!(written(&mut c, 1, doc! { "w": "majority" }));
    set.members[3 - first - next].kill9();
    let majority = doc! { "w": "majority", "wtimeout": 20_000 };
    assert!(written(&mut c, 2, majority));
    assert_eq!(rows(&mut l), [0]);
    unlock(&mut l);
    assert!(written(&mut c, 3, doc! { "w": 2, "wtimeout": 20_000 }));
    assert_eq!(rows(&mut l), [0, 1, 2, 3]);
}
