//! The settings and states that each member of a replica set has for itself: real servers, over the wire.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod set;

use muniment_value::{ArrayBuf, DocBuf, Value, array, doc};
use muniment_wire::Connection;
use set::{ids, initiate_over_data, insert, lines, status_of, told_of};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::{ServerOptions, Set};

fn admin(c: &mut Connection, cmd: DocBuf) -> DocBuf {
    c.command("admin", &cmd)
        .unwrap_or_else(|e| panic!("{cmd:?}: {e}"))
}

fn refused(c: &mut Connection, db: &str, cmd: &DocBuf) -> i32 {
    c.command(db, cmd).unwrap_err().code().0
}

fn int(d: &DocBuf, name: &str) -> i64 {
    let (name, rest) = name.split_once('.').unwrap_or((name, ""));
    let found = d.as_doc().get(name);
    match (found, rest) {
        (Some(Value::Document(d)), rest) if !rest.is_empty() => int(&d.to_buf(), rest),
        (Some(v), "") => v.as_i64_exact().unwrap(),
        _ => panic!("no {name} in {d:?}"),
    }
}

fn told(reply: &DocBuf) {
    let failed = reply.as_doc().get("writeConcernError");
    assert!(failed.is_none(), "{reply:?}");
}

fn is(d: &DocBuf, name: &str) -> bool {
    matches!(d.as_doc().get(name), Some(Value::Bool(true)))
}

#[test]
fn a_member_in_maintenance_follows_and_is_neither_read_nor_elected() {
    let mut set = Set::start(3);
    let primary = set.primary();
    let (kept, other) = ((primary + 1) % 3, (primary + 2) % 3);
    let mut c = set.connect(primary);
    for id in 0..20 {
        told(&insert(&mut c, id, doc! { "w": 3 }));
    }
    let mut m = set.connect(kept);
    let find = doc! {
        "find": "c", "batchSize": 5, "$readPreference": doc! { "mode": "secondary" },
    };
    let cursor = m.command("test", &find).unwrap();
    let more = doc! { "getMore": int(&cursor, "cursor.id"), "collection": "c", "batchSize": 5 };
    m.command("test", &more).unwrap();
    let before = admin(&mut m, doc! { "hello": 1 });
    assert!(is(&before, "secondary"));
    let on = || doc! { "replSetMaintenance": true };
    let off = || doc! { "replSetMaintenance": false };
    assert_eq!(refused(&mut c, "admin", &on()), 95);
    assert_eq!(refused(&mut m, "admin", &off()), 96);
    // Maintenance mode can be switched on more than once.
    admin(&mut m, on());
    admin(&mut m, on());
    let hello = admin(&mut m, doc! { "hello": 1 });
    assert!(
        !is(&hello, "secondary") && !is(&hello, "isWritablePrimary"),
        "{hello:?}"
    );
    let counter = |d: &DocBuf| int(d, "topologyVersion.counter");
    assert!(counter(&hello) > counter(&before));
    let is_master = admin(&mut m, doc! { "isMaster": 1 });
    assert!(!is(&is_master, "secondary") && !is(&is_master, "ismaster"));
    assert_eq!(
        int(&admin(&mut m, doc! { "replSetGetStatus": 1 }), "myState"),
        3
    );
    let host = set.host(kept);
    assert_eq!(int(&status_of(&mut m, &host), "maintenanceMode"), 2);
    set.until("the others do not hear of it", || {
        let told = [primary, other].map(|i| status_of(&mut set.connect(i), &host));
        let recovering = |d: &DocBuf| d.as_doc().get_str("stateStr") == Some("RECOVERING");
        told.iter().all(recovering).then_some(())
    });
    assert_eq!(refused(&mut m, "test", &find), 13436);
    assert_eq!(refused(&mut m, "test", &more), 13436);
    assert_eq!(refused(&mut m, "test", &doc! { "find": "c" }), 13435);
    assert_eq!(refused(&mut m, "test", &doc! { "drop": "c" }), 10107);
    // It gets the writes, and reports that.
    told(&insert(&mut c, 20, doc! { "w": 3 }));
    // A primary that steps down knows the members to which it cannot hand over.
    let down = doc! { "replSetStepDown": 2, "secondaryCatchUpPeriodSecs": 1 };
    admin(&mut c, down);
    assert_eq!(set.primary(), other);
    told(&insert(&mut set.connect(other), 21, doc! { "w": 3 }));
    // It also votes: the remaining member needs its vote.
    set.members[other].kill9();
    assert_eq!(set.primary(), primary);
    told(&insert(&mut set.connect(primary), 22, doc! { "w": 2 }));
    set.members[other].start_again();
    admin(&mut m, off());
    assert_eq!(refused(&mut m, "test", &find), 13436);
    admin(&mut m, off());
    assert_eq!(refused(&mut m, "admin", &off()), 96);
    set.settle();
    assert_eq!(ids(&mut m), (0..=22).collect::<Vec<_>>());
    m.command("test", &more).unwrap();
    // Maintenance mode ends with the process.
    admin(&mut m, on());
    set.members[kept].restart();
    set.settle();
    assert_eq!(ids(&mut set.connect(kept)).len(), 23);
}

/// The size and the hours of the member's oplog, as the member shows them.
fn window(c: &mut Connection) -> (i64, String) {
    let stats = c
        .command("local", &doc! { "collStats": "oplog.rs" })
        .unwrap();
    let find = doc! { "find": "replset.oplogWindow", "projection": doc! { "_id": 0 } };
    let shown = c.find_all("local", &find).unwrap();
    let shown: Vec<_> = shown.iter().map(|d| d.as_doc().to_display()).collect();
    (int(&stats, "maxSize") >> 20, shown.concat())
}

/// A set of three, each with a log of 64 MB, and with a document.
fn with_small_oplogs() -> Set {
    let args = [
        "--oplogSize",
        "64",
        "--setParameter",
        "enableTestCommands=1",
    ];
    let options = args.iter().fold(ServerOptions::new(), |o, arg| o.arg(*arg));
    let mut set = Set::prepare(3, &options);
    let members = (0..3).map(|i| doc! { "_id": i, "host": set.host(i as usize) });
    let config = set.config(members.collect());
    let args = [&args[..], &["--replSet", "rs0"]].concat();
    initiate_over_data(&mut set, 0, &args, &config);
    set
}

#[test]
fn a_size_of_the_oplog_is_of_one_member() {
    if !testkit::persistent() {
        return;
    }
    let mut set = with_small_oplogs();
    let primary = set.primary();
    let (small, other) = ((primary + 1) % 3, (primary + 2) % 3);
    let resize = |i: usize, mb: f64| doc! { "replSetResizeOplog": 1, "size": mb + i as f64 };
    let kept = |i: usize, mb: i64| {
        let mb = mb + i as i64;
        (mb, format!("{{ size: {} }}", mb << 20))
    };
    admin(&mut set.connect(small), resize(small, 1000.0));
    admin(&mut set.connect(primary), resize(primary, 2000.0));
    let check = |set: &Set| {
        assert_eq!(window(&mut set.connect(small)), kept(small, 1000));
        assert_eq!(window(&mut set.connect(primary)), kept(primary, 2000));
        assert_eq!(window(&mut set.connect(other)), (64, String::new()));
    };
    check(&set);
    told(&insert(&mut set.connect(primary), 1, doc! { "w": 3 }));
    for i in 0..3 {
        let member = &mut set.members[i];
        member.kill9();
        member.start_again();
        set.settle();
    }
    check(&set);
    // A member that has lost everything except `oplogWindow` copies another one's data, and keeps that file.
    let member = &mut set.members[small];
    member.terminate();
    for entry in std::fs::read_dir(member.dir()).unwrap() {
        let path = entry.unwrap().path();
        match path.file_name().unwrap() == "oplogWindow" {
            true => {}
            false if path.is_dir() => std::fs::remove_dir_all(&path).unwrap(),
            false => std::fs::remove_file(&path).unwrap(),
        }
    }
    let before = lines(member, "Starting initial sync");
    let begun = lines(member, "Waiting for connections");
    member.start_again();
    let synced = |set: &Set| {
        let ready = lines(&set.members[small], "Waiting for connections");
        lines(&set.members[small], "Starting initial sync") > before && ready > begun + 1
    };
    set.until("nothing is copied", || synced(&set).then_some(()));
    set.settle();
    assert_eq!(ids(&mut set.connect(small)), [0, 1]);
    check(&set);
}

/// The default write concern and the time limit of reads that are in force at the member.
fn settings(c: &mut Connection) -> (String, i64) {
    let concern = admin(c, doc! { "getDefaultRWConcern": 1 });
    let w = concern.as_doc().get_doc("defaultWriteConcern").unwrap();
    let w = w.get("w").unwrap().to_display();
    let limit = admin(c, doc! { "getClusterParameter": "defaultMaxTimeMS" });
    let limit = limit.as_doc().get_array("clusterParameters").unwrap();
    let limit = limit.get_doc("0").unwrap().to_buf();
    (w, int(&limit, "readOperations"))
}

fn default_concern(w: i32, wc: DocBuf) -> DocBuf {
    doc! {
        "setDefaultRWConcern": 1,
        "defaultWriteConcern": doc! { "w": w, "wtimeout": 0 },
        "writeConcern": wc,
    }
}

#[test]
fn settings_hold_on_a_member_as_soon_as_it_has_them() {
    let mut set = Set::start(3);
    let first = set.primary();
    let others: Vec<usize> = (0..3).filter(|i| *i != first).collect();
    let mut c = set.connect(first);
    let everywhere = |set: &Set, w: &str, limit: i64| {
        for i in 0..3 {
            let found = settings(&mut set.connect(i));
            assert_eq!(found, (w.to_string(), limit), "member {i}");
        }
    };
    let all = || doc! { "w": 3 };
    everywhere(&set, "\"majority\"", 0);
    for (w, limit) in [(1, 60_000_i64), (2, 50_000)] {
        // The command waits for a majority, and the next one then shows that all members have it.
        let limited = doc! { "defaultMaxTimeMS": doc! { "readOperations": limit } };
        admin(&mut c, doc! { "setClusterParameter": limited });
        told(&admin(&mut c, default_concern(w, all())));
        everywhere(&set, &w.to_string(), limit);
    }
    // These are settings that clients write and remove directly.
    let delete = doc! {
        "delete": "clusterParameters",
        "deletes": array![doc! { "q": doc! { "_id": "defaultMaxTimeMS" }, "limit": 1 }],
        "writeConcern": all(),
    };
    told(&c.command("config", &delete).unwrap());
    everywhere(&set, "2", 0);
    let update = doc! {
        "update": "settings",
        "updates": array![doc! {
            "q": doc! { "_id": "ReadWriteConcernDefaults" },
            "u": doc! { "$set": doc! { "defaultWriteConcern.w": 1 } },
        }],
        "writeConcern": all(),
    };
    told(&c.command("config", &update).unwrap());
    everywhere(&set, "1", 0);
    let drop = doc! { "drop": "settings", "writeConcern": all() };
    told(&c.command("config", &drop).unwrap());
    everywhere(&set, "\"majority\"", 0);
    // A setting that is rolled back is not in force any more.
    for i in &others {
        set.members[*i].kill9();
    }
    admin(&mut c, default_concern(1, doc! { "w": 1, "j": true }));
    assert_eq!(settings(&mut c).0, "1");
    set.members[first].kill9();
    for i in &others {
        set.members[*i].start_again();
    }
    let second = set.primary();
    told(&insert(&mut set.connect(second), 0, doc! { "w": 2 }));
    set.members[first].start_again();
    set.until("nothing is rolled back", || {
        (lines(&set.members[first], "Rollback: giving up") > 0).then_some(())
    });
    set.settle();
    told(&insert(&mut set.connect(set.primary()), 1, all()));
    everywhere(&set, "\"majority\"", 0);
}

/// While a primary hands over no client can write. So it does not hand over to a member that would not take
/// over: neither to one that has stepped down, whatever its priority, nor to one that is frozen.
#[test]
fn a_member_that_has_stepped_down_is_not_offered_the_lead() {
    let set = Set::prepare(3, &ServerOptions::new());
    let member = |i: usize| {
        let better = if i == 0 { 3.0 } else { 1.0 };
        doc! { "_id": i as i32, "host": set.host(i), "priority": better }
    };
    let members: ArrayBuf = (0..3).map(member).collect();
    // The timeout is so long that a busy machine makes no member lose the leadership.
    let settings = doc! { "electionTimeoutMillis": 3000, "heartbeatIntervalMillis": 200 };
    set.initiate(&doc! { "_id": "rs0", "members": members, "settings": settings });
    let primary = || set.until("nobody is primary", || Some(set.primary()));
    set.until("the best one does not lead", || {
        (primary() == 0).then_some(())
    });
    let down = doc! { "replSetStepDown": 600, "secondaryCatchUpPeriodSecs": 30 };
    admin(&mut set.connect(0), down.clone());
    let second = set.until("nobody else leads", || Some(primary()).filter(|i| *i != 0));
    let mut c = set.connect(second);
    let end = Instant::now() + Duration::from_secs(8);
    let mut id = 0;
    while Instant::now() < end {
        told(&insert(&mut c, id, doc! {}));
        id += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    // A frozen member is not the successor either.
    let third = 3 - second;
    admin(&mut c, down);
    set.until("the third does not lead", || {
        (primary() == third).then_some(())
    });
    // The best member takes over when it may lead again.
    admin(&mut set.connect(0), doc! { "replSetFreeze": 0 });
    set.until("the best one does not lead again", || {
        (primary() == 0).then_some(())
    });
}

#[test]
fn every_member_syncs_from_the_primary() {
    let set = Set::start(3);
    let primary = set.primary();
    let (asked, other) = ((primary + 1) % 3, (primary + 2) % 3);
    let mut c = set.connect(asked);
    let from = |i: usize| doc! { "replSetSyncFrom": set.host(i) };
    let reply = admin(&mut c, from(primary));
    let host = set.host(primary);
    let requested = reply.as_doc().get_str("syncFromRequested");
    let before = reply.as_doc().get_str("prevSyncTarget");
    assert_eq!(
        (requested, before),
        (Some(host.as_str()), Some(host.as_str()))
    );
    assert_eq!(refused(&mut c, "admin", &from(other)), 20);
    assert_eq!(refused(&mut c, "admin", &from(asked)), 72);
    assert_eq!(
        refused(&mut c, "admin", &doc! { "replSetSyncFrom": "h:1" }),
        74
    );
    assert_eq!(
        refused(&mut set.connect(primary), "admin", &from(other)),
        95
    );
    // Each member reports this about all members.
    let source = |d: &DocBuf| {
        let host = d.as_doc().get_str("syncSourceHost").unwrap().to_string();
        (host, int(d, "syncSourceId"))
    };
    for i in 0..3 {
        let mut c = set.connect(i);
        let wanted = |of: usize| match of == primary {
            true => (String::new(), -1),
            false => (host.clone(), primary as i64),
        };
        set.until("sync sources are not told", || {
            let status = admin(&mut c, doc! { "replSetGetStatus": 1 });
            let of = |of: usize, c: &mut Connection| source(&status_of(c, &set.host(of)));
            let all = (0..3).all(|m| of(m, &mut c) == wanted(m));
            (source(&status) == wanted(i) && all).then_some(())
        });
    }
}

/// No other process gets the directory of a member that begins anew in place.
#[test]
fn a_member_that_begins_anew_keeps_the_lock_on_its_directory() {
    if !testkit::persistent() {
        return;
    }
    let mut set = Set::prepare(3, &ServerOptions::new());
    let members = (0..3).map(|i| doc! { "_id": i, "host": set.host(i as usize) });
    let config = set.config(members.collect());
    let stop = AtomicBool::new(false);
    let path = set.members[1].dir().join("muniment.lock");
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let file = std::fs::File::open(path).unwrap();
            let end = Instant::now() + Duration::from_secs(120);
            while !stop.load(SeqCst) && Instant::now() < end {
                if file.try_lock().is_ok() {
                    return true;
                }
            }
            false
        });
        initiate_over_data(&mut set, 0, &["--replSet", "rs0"], &config);
        stop.store(true, SeqCst);
        assert!(!watch.join().unwrap(), "the lock was free");
    });
    let begun = lines(&set.members[1], "Waiting for connections");
    assert!(begun > 1, "it did not begin anew");
    assert_eq!(ids(&mut set.connect(1)), [0]);
}

/// The primary, and the reason for its election that it reports.
fn elected(set: &Set) -> (usize, String) {
    let primary = set.primary();
    let status = admin(&mut set.connect(primary), doc! { "replSetGetStatus": 1 });
    let metrics = status.as_doc().get_doc("electionCandidateMetrics");
    let reason = metrics.and_then(|d| d.get_str("lastElectionReason"));
    (primary, reason.unwrap_or_default().to_string())
}

#[test]
fn a_primary_tells_why_it_was_elected() {
    let mut set = Set::prepare(3, &ServerOptions::new());
    let members = [1, 3, 2].iter().enumerate();
    let members = members
        .map(|(i, n)| doc! { "_id": i as i32, "host": set.host(i), "priority": *n })
        .collect();
    set.initiate(&set.config(members));
    let until = |set: &Set, primary: usize, reason: &str| {
        set.until("it is not elected, or for another reason", || {
            (elected(set) == (primary, reason.to_string())).then_some(())
        });
    };
    until(&set, 1, "priorityTakeover");
    // The primary hands over to the first member that has everything; among several, to the one with the
    // highest priority.
    let written = insert(&mut set.connect(1), 0, doc! { "w": 3, "j": true });
    told(&written);
    set.settle();
    // The time is longer than the test takes.
    admin(&mut set.connect(1), doc! { "replSetStepDown": 600 });
    until(&set, 2, "stepUpRequestSkipDryRun");
    set.members[2].kill9();
    until(&set, 0, "electionTimeout");
    let one = Set::prepare(1, &ServerOptions::new());
    // The set has the default timeout, which is longer than the step down.
    let member = doc! { "_id": 0, "host": one.host(0) };
    one.initiate(&doc! { "_id": "rs0", "members": array![member] });
    assert_eq!(elected(&one), (0, "electionTimeout".to_string()));
    let down = doc! { "replSetStepDown": 1, "secondaryCatchUpPeriodSecs": 0, "force": true };
    admin(&mut one.connect(0), down);
    until(&one, 0, "singleNodePromptElection");
}

/// The events of a stream from a token on, until none comes.
fn events(c: &mut Connection, stage: DocBuf) -> (Vec<i64>, DocBuf) {
    let cmd = doc! {
        "aggregate": "c",
        "pipeline": array![doc! { "$changeStream": stage }],
        "cursor": doc! {},
        "$readPreference": doc! { "mode": "secondaryPreferred" },
    };
    let (mut told, mut batch) = (Vec::new(), "firstBatch");
    let mut reply = c.command("test", &cmd).unwrap();
    loop {
        let cursor = reply.as_doc().get_doc("cursor").unwrap();
        let before = told.len();
        for event in cursor.get_array(batch).unwrap().values() {
            let key = event.as_doc().unwrap().get_doc("documentKey").unwrap();
            told.push(key.get("_id").unwrap().as_i64_exact().unwrap());
        }
        if batch == "nextBatch" && told.len() == before {
            let token = cursor.get_doc("postBatchResumeToken").unwrap().to_buf();
            return (told, token);
        }
        batch = "nextBatch";
        let id = int(&reply, "cursor.id");
        let more = doc! { "getMore": id, "collection": "c", "maxTimeMS": 500 };
        reply = c.command("test", &more).unwrap();
    }
}

/// Without its set a member does not know what became of the writes that only it had.
#[test]
fn a_member_without_its_set_tells_only_of_what_the_set_has() {
    if !testkit::persistent() {
        return;
    }
    let mut set = Set::start(3);
    let first = set.primary();
    let mut c = set.connect(first);
    let (_, token) = events(&mut c, doc! {});
    for id in 0..10 {
        told(&insert(&mut c, id, doc! { "w": 3 }));
    }
    // The election makes the member note what is committed.
    let down = doc! { "replSetStepDown": 2, "secondaryCatchUpPeriodSecs": 1 };
    admin(&mut c, down);
    let second = set.primary();
    assert_ne!(second, first);
    set.settle();
    let mut c = set.connect(second);
    told(&insert(&mut c, 10, doc! { "w": 3 }));
    for i in (0..3).filter(|i| *i != second) {
        set.members[i].kill9();
    }
    for id in 1000..1005 {
        insert(&mut c, id, doc! { "w": 1, "j": true });
    }
    let member = &mut set.members[second];
    member.kill9();
    // The records of the log are always applied; with the parameter, a start as a member is a mistake.
    let recovers = ["--setParameter", "recoverFromOplogAsStandalone=true"];
    member.set_args(&[&recovers[..], &["--replSet", "rs0"]].concat());
    member.try_start().unwrap_err();
    assert!(lines(member, "is for a start without --replSet") > 0);
    member.set_args(&recovers);
    member.start_again();
    let mut c = member.connect();
    assert_eq!(ids(&mut c).len(), 16);
    let (told_of, _) = events(&mut c, doc! { "resumeAfter": &token });
    let known = told_of.len() as i64;
    assert!((1..=11).contains(&known), "{told_of:?}");
    assert_eq!(told_of, (0..known).collect::<Vec<_>>());
    // A new stream begins at the point up to which everything is known, and its token is valid for the set.
    let (nothing, token) = events(&mut c, doc! {});
    assert!(nothing.is_empty(), "{nothing:?}");
    let majority = doc! { "find": "c", "readConcern": doc! { "level": "majority" } };
    let found = c.find_all("test", &majority).unwrap();
    assert_eq!(found.len() as i64, known);
    let member = &mut set.members[second];
    member.terminate();
    for i in (0..3).filter(|i| *i != second) {
        set.members[i].start_again();
    }
    let third = set.primary();
    told(&insert(&mut set.connect(third), 11, doc! { "w": 2 }));
    let member = &mut set.members[second];
    member.set_args(&["--replSet", "rs0"]);
    member.start_again();
    set.until("nothing is rolled back", || {
        (lines(&set.members[second], "Rollback: giving up") > 0).then_some(())
    });
    set.settle();
    let (told_of, _) = events(&mut set.connect(second), doc! { "resumeAfter": &token });
    assert_eq!(told_of, (known..=11).collect::<Vec<_>>());
}

/// The terms of the last operations of the sessions, by session.
fn terms(c: &mut Connection) -> Vec<(u8, i64)> {
    let find = doc! {
        "find": "transactions", "$readPreference": doc! { "mode": "secondaryPreferred" },
    };
    let all = c.find_all("config", &find).unwrap();
    let mut found: Vec<_> = all
        .iter()
        .map(|d| {
            let session = d.as_doc().get_doc("_id").unwrap().get("id");
            let Some(Value::Binary { bytes, .. }) = session else {
                panic!("{d:?}");
            };
            (bytes[0], int(d, "lastWriteOpTime.t"))
        })
        .collect();
    found.sort_unstable();
    found
}

#[test]
fn a_session_s_last_write_has_the_term_in_which_it_was_written() {
    let mut set = Set::start(3);
    let mut wanted = Vec::new();
    for session in 1..=3_u8 {
        let primary = set.primary();
        let mut c = set.connect(primary);
        for n in 0..2 {
            let id = [session, n, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7];
            let cmd = doc! {
                "insert": "c",
                "documents": array![doc! { "_id": i32::from(session) * 10 + i32::from(n) }],
                "lsid": doc! { "id": Value::Binary { subtype: 4, bytes: &id } },
                "txnNumber": 1_i64,
                "writeConcern": doc! { "w": 3 },
            };
            told(&c.command("test", &cmd).unwrap());
            let term = int(&admin(&mut c, doc! { "replSetGetStatus": 1 }), "term");
            wanted.push((session, term));
        }
        set.members[primary].kill9();
        set.primary();
        set.members[primary].start_again();
        set.settle();
    }
    assert!(
        wanted[0].1 < wanted[2].1 && wanted[2].1 < wanted[4].1,
        "{wanted:?}"
    );
    for i in 0..3 {
        assert_eq!(terms(&mut set.connect(i)), wanted, "member {i}");
    }
}

/// A member that begins anew in place after a rollback is still in maintenance mode.
#[test]
fn maintenance_outlasts_a_rollback() {
    let mut set = Set::start(3);
    let first = set.primary();
    let others: Vec<usize> = (0..3).filter(|i| *i != first).collect();
    let mut c = set.connect(first);
    told(&insert(&mut c, 0, doc! { "w": 3 }));
    for i in &others {
        set.members[*i].kill9();
    }
    insert(&mut c, 1000, doc! { "w": 1, "j": true });
    let on = doc! { "replSetMaintenance": true };
    set.until("it does not step down", || c.command("admin", &on).ok());
    for i in &others {
        set.members[*i].start_again();
    }
    let second = set.primary();
    assert_ne!(second, first);
    told(&insert(&mut set.connect(second), 1, doc! { "w": 2 }));
    let host = set.host(first);
    set.until("nothing is rolled back", || {
        told(&insert(&mut set.connect(second), 2, doc! { "w": 3 }));
        let begun = lines(&set.members[first], "Waiting for connections");
        (begun > 1).then_some(())
    });
    let own = set.until("it is not there again", || {
        told_of(&mut set.connect(first), &host)
    });
    assert_eq!(own.as_doc().get_str("stateStr"), Some("RECOVERING"));
    assert_eq!(int(&own, "maintenanceMode"), 1);
    let mut c = set.connect(first);
    admin(&mut c, doc! { "replSetMaintenance": false });
    assert_eq!(ids(&mut c), [0, 1, 2]);
}

/// A backup locks a secondary while another member is down.
#[test]
fn a_locked_member_keeps_the_primary_in_office() {
    let mut set = Set::start(3);
    let primary = set.primary();
    let (locked, other) = ((primary + 1) % 3, (primary + 2) % 3);
    let mut c = set.connect(primary);
    told(&insert(&mut c, 0, doc! { "w": 3 }));
    let mut l = set.connect(locked);
    let lock = || doc! { "fsync": 1, "lock": true };
    assert_eq!(int(&admin(&mut l, lock()), "lockCount"), 1);
    let term = |c: &mut Connection| int(&admin(c, doc! { "replSetGetStatus": 1 }), "term");
    let begun = term(&mut c);
    insert(&mut c, 1, doc! { "w": 1 });
    // The locked member shows nothing, but the set has a majority: the election timeout is a second.
    set.members[other].kill9();
    std::thread::sleep(Duration::from_secs(4));
    assert!(is(&admin(&mut c, doc! { "hello": 1 }), "isWritablePrimary"));
    assert_eq!(term(&mut c), begun);
    let health = status_of(&mut l, &set.host(primary));
    assert_eq!(int(&health, "state"), 1, "{health:?}");
    assert_eq!(ids(&mut l), [0]);
    // The locked member counts for the majority, but not for a write concern with a number of members, which
    // have to show the write.
    told(&insert(
        &mut c,
        8,
        doc! { "w": "majority", "wtimeout": 20_000 },
    ));
    let late = insert(&mut c, 2, doc! { "w": 2, "wtimeout": 500 });
    assert!(late.as_doc().get("writeConcernError").is_some(), "{late:?}");
    // Locks nest, and after the last unlock the member has everything.
    assert_eq!(int(&admin(&mut l, lock()), "lockCount"), 2);
    let unlock = || doc! { "fsyncUnlock": 1 };
    assert_eq!(int(&admin(&mut l, unlock()), "lockCount"), 1);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(ids(&mut l), [0]);
    assert_eq!(int(&admin(&mut l, unlock()), "lockCount"), 0);
    told(&insert(&mut c, 3, doc! { "w": 2, "wtimeout": 30_000 }));
    assert_eq!(ids(&mut l), [0, 1, 2, 3, 8]);
    set.members[other].start_again();
    told(&insert(&mut c, 4, doc! { "w": 3, "wtimeout": 30_000 }));

    // It votes, but is not elected itself, whatever its log has.
    admin(&mut l, lock());
    set.members[primary].kill9();
    set.until("the other one is elected", || {
        let mut c = set.connect(other);
        is(&admin(&mut c, doc! { "hello": 1 }), "isWritablePrimary").then_some(())
    });
    let mut c = set.connect(other);
    insert(&mut c, 5, doc! { "w": 1 });
    admin(&mut l, unlock());
    told(&insert(&mut c, 6, doc! { "w": 2, "wtimeout": 30_000 }));
    assert_eq!(ids(&mut l), [0, 1, 2, 3, 4, 5, 6, 8]);

    // A change of the configuration waits for a locked primary, and for nothing else.
    admin(&mut c, lock());
    let mut asks = set.connect(other);
    let config = set::config(&mut asks);
    let mut next = doc! { "version": int(&config, "version") + 1 };
    for e in config.as_doc().iter().filter(|e| e.name() != "version") {
        next.append_elem(e);
    }
    let asked =
        std::thread::spawn(move || asks.command("admin", &doc! { "replSetReconfig": next }));
    std::thread::sleep(Duration::from_secs(3));
    assert!(!asked.is_finished());
    assert!(is(&admin(&mut c, doc! { "hello": 1 }), "isWritablePrimary"));
    admin(&mut c, unlock());
    asked.join().unwrap().unwrap();
    told(&insert(&mut c, 7, doc! { "w": 2, "wtimeout": 30_000 }));
}

/// The other members do not answer the campaigns of a lonely member, and its data is what a backup needs.
#[test]
fn a_member_without_a_majority_can_be_locked() {
    let mut set = Set::start(3);
    let primary = set.primary();
    let (left, other) = ((primary + 1) % 3, (primary + 2) % 3);
    told(&insert(&mut set.connect(primary), 0, doc! { "w": 3 }));
    set.members[primary].kill9();
    set.members[other].kill9();
    let mut c = set.connect(left);
    std::thread::sleep(Duration::from_secs(4));
    let begun = Instant::now();
    admin(&mut c, doc! { "fsync": 1, "lock": true });
    assert!(begun.elapsed() < Duration::from_secs(2), "{begun:?}");
    set.members[other].start_again();
    set.until("the other one is elected", || {
        let mut c = set.connect(other);
        is(&admin(&mut c, doc! { "hello": 1 }), "isWritablePrimary").then_some(())
    });
    admin(&mut c, doc! { "fsyncUnlock": 1 });
    told(&insert(
        &mut set.connect(other),
        1,
        doc! { "w": 2, "wtimeout": 30_000 },
    ));
    assert_eq!(ids(&mut c), [0, 1]);
}

/// The log that the member would need is gone by the end of the lock. It copies everything after that, not
/// before, because its directory is being copied itself.
#[test]
fn a_locked_member_does_not_begin_a_copy() {
    if !testkit::persistent() {
        return;
    }
    let set = with_small_oplogs();
    set.settle();
    let primary = set.primary();
    let locked = (primary + 1) % 3;
    let mut l = set.connect(locked);
    let copies = lines(&set.members[locked], "Starting initial sync");
    admin(&mut l, doc! { "fsync": 1, "lock": true });
    // The records are lost, as on a member without room to set them aside.
    let stop = |mode: &str| doc! { "configureFailPoint": "stopReplProducer", "mode": mode };
    admin(&mut l, stop("alwaysOn"));
    let mut c = set.connect(primary);
    let text = "x".repeat(3 << 20);
    let far = "A member needs more of the log than is kept";
    let before = lines(&set.members[primary], far);
    let mut n = 0;
    while lines(&set.members[primary], far) == before {
        n += 1;
        assert!(n < 300, "{}", set.members[primary].log());
        let row = doc! { "_id": n, "text": text.as_str() };
        c.command(
            "test",
            &doc! { "insert": "large", "documents": array![row] },
        )
        .unwrap();
    }
    std::thread::sleep(Duration::from_secs(3));
    let own = status_of(&mut l, &set.host(locked));
    assert_eq!(int(&own, "state"), 2, "{own:?}");
    assert_eq!(lines(&set.members[locked], "Starting initial sync"), copies);
    assert!(!set.members[locked].dir().join("initial-sync").exists());
    admin(&mut l, stop("off"));
    let again = admin(&mut l, doc! { "fsync": 1, "lock": true });
    assert_eq!(int(&again, "lockCount"), 2);
    admin(&mut l, doc! { "fsyncUnlock": 1 });
    admin(&mut l, doc! { "fsyncUnlock": 1 });
    set.until("it copies everything", || {
        (lines(&set.members[locked], "Starting initial sync") > copies).then_some(())
    });
    set.settle();
    let count = doc! {
        "count": "large", "$readPreference": doc! { "mode": "secondaryPreferred" },
    };
    let counted = set.connect(locked).command("test", &count).unwrap();
    assert_eq!(int(&counted, "n"), i64::from(n));
}
