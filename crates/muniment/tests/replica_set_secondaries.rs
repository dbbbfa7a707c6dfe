//! The answers of a member that is not primary, and how it becomes primary on request: real servers, over the
//! wire.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod set;

use muniment_value::{ArrayBuf, Doc, DocBuf, Value, array, doc};
use muniment_wire::Connection;
use set::insert;
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions, Set};

fn admin(c: &mut Connection, cmd: DocBuf) -> DocBuf {
    c.command("admin", &cmd).unwrap()
}

/// The error code of the reply; 0 if there is no error.
fn code(c: &mut Connection, db: &str, cmd: &DocBuf) -> i64 {
    let reply = c.command_raw(db, cmd).unwrap();
    let code = reply.as_doc().get("code");
    code.map_or(0, |v| v.as_i64_exact().unwrap())
}

fn at<'d>(d: Doc<'d>, path: &str) -> Option<Value<'d>> {
    match path.split_once('.') {
        Some((first, rest)) => at(d.get_doc(first)?, rest),
        None => d.get(path),
    }
}

fn int(d: &DocBuf, path: &str) -> i64 {
    let v = at(d.as_doc(), path).unwrap_or_else(|| panic!("no {path} in {d:?}"));
    v.as_i64_exact().unwrap()
}

fn is_primary(c: &mut Connection) -> bool {
    let hello = admin(c, doc! { "hello": 1 });
    matches!(
        hello.as_doc().get("isWritablePrimary"),
        Some(Value::Bool(true))
    )
}

/// The commands that a secondary runs always, if the client allows it, or never.
#[test]
fn a_secondary_runs_what_mongodb_s_does() {
    let set = Set::start(3);
    let primary = set.primary();
    insert(&mut set.connect(primary), 1, doc! { "w": 3 });
    let mut c = set.connect((primary + 1) % 3);
    let always = [
        doc! { "dbHash": 1 },
        doc! { "validate": "c" },
        doc! { "collStats": "c" },
        doc! { "dbStats": 1 },
        doc! { "dataSize": "test.c" },
        doc! { "profile": -1 },
        doc! { "profile": 0, "slowms": 200, "sampleRate": 0.5 },
        doc! { "profile": 0, "filter": doc! { "op": "query" } },
        doc! { "profile": 0, "slowms": 100, "sampleRate": 1.0, "filter": "unset" },
    ];
    for cmd in always {
        assert_eq!(code(&mut c, "test", &cmd), 0, "{cmd:?}");
    }
    let where_asked_for = [
        doc! { "find": "c" },
        doc! { "count": "c" },
        doc! { "listCollections": 1 },
        doc! { "listIndexes": "c" },
        doc! { "planCacheClear": "c" },
        doc! { "planCacheListFilters": "c" },
        doc! { "explain": doc! { "find": "c" } },
    ];
    for cmd in where_asked_for {
        assert_eq!(code(&mut c, "test", &cmd), 13435, "{cmd:?}");
        let mut asked = cmd.clone();
        asked.append("$readPreference", doc! { "mode": "secondary" });
        assert_eq!(code(&mut c, "test", &asked), 0, "{cmd:?}");
    }
    let never = [
        ("test", doc! { "create": "d" }),
        ("test", doc! { "reIndex": "c" }),
        ("admin", doc! { "appendOplogNote": 1, "data": doc! {} }),
        (
            "admin",
            doc! { "setDefaultRWConcern": 1, "defaultReadConcern": doc! { "level": "local" } },
        ),
    ];
    for (db, mut cmd) in never {
        cmd.append("$readPreference", doc! { "mode": "secondary" });
        assert_eq!(code(&mut c, db, &cmd), 10107, "{cmd:?}");
    }
    // Its data comes from the primary, so it cannot store settings.
    let reply = c.command_raw("test", &doc! { "profile": 1 }).unwrap();
    let d = reply.as_doc();
    assert_eq!(d.get("code").unwrap().as_i64_exact(), Some(20), "{d:?}");
    assert!(d.get_str("errmsg").unwrap().contains("slowms"), "{d:?}");
    // A level that was set before can be reset even where it cannot be set.
    let mut p = set.connect(primary);
    assert_eq!(code(&mut p, "test", &doc! { "profile": 2 }), 0);
    admin(&mut p, doc! { "replSetStepDown": 30 });
    assert_eq!(code(&mut p, "test", &doc! { "profile": 1 }), 0);
    assert_eq!(code(&mut p, "test", &doc! { "profile": 2 }), 20);
    assert_eq!(code(&mut p, "test", &doc! { "profile": 0 }), 0);
}

/// The primary keeps a session that is used only on a secondary.
#[test]
fn sessions_of_a_secondary_are_told_to_the_primary() {
    let options = ServerOptions::new().arg("--setParameter");
    let set = Set::prepare(2, &options.arg("enableTestCommands=1"));
    let members = (0..2).map(|i| doc! { "_id": i, "host": set.host(i as usize) });
    set.initiate(&set.config(members.collect()));
    let primary = set.primary();
    let (mut p, mut s) = (set.connect(primary), set.connect(1 - primary));
    let id = [7_u8; 16];
    let uuid = Value::Binary {
        subtype: 4,
        bytes: &id,
    };
    admin(&mut s, doc! { "ping": 1, "lsid": doc! { "id": uuid } });
    let refresh = doc! { "refreshLogicalSessionCacheNow": 1 };
    let stored = |p: &mut Connection| {
        let cmd = doc! { "count": "system.sessions", "query": doc! { "_id.id": uuid } };
        int(&p.command("config", &cmd).unwrap(), "n")
    };
    admin(&mut p, refresh.clone());
    assert_eq!(stored(&mut p), 0);
    admin(&mut s, refresh.clone());
    admin(&mut p, refresh.clone());
    assert_eq!(stored(&mut p), 1);
    admin(&mut s, doc! { "endSessions": array![doc! { "id": uuid }] });
    admin(&mut s, refresh.clone());
    admin(&mut p, refresh);
    assert_eq!(stored(&mut p), 0);
}

/// The sections of serverStatus show the actual events.
#[test]
fn the_figures_of_a_member_are_its_own() {
    let set = Set::start(3);
    let first = set.primary();
    let mut c = set.connect(first);
    for id in 0..10 {
        insert(&mut c, id, doc! { "w": 3 });
    }
    let status = |i: usize| admin(&mut set.connect(i), doc! { "serverStatus": 1, "oplog": 1 });
    let plain = admin(&mut c, doc! { "serverStatus": 1 });
    assert!(plain.as_doc().get("oplog").is_none());
    for i in 0..3 {
        let d = status(i);
        let time = |name: &str| match at(d.as_doc(), name) {
            Some(Value::Timestamp { t, i }) => (t, i),
            other => panic!("{name}: {other:?}"),
        };
        assert!(time("oplog.earliestOptime") < time("oplog.latestOptime"));
        assert_eq!(int(&d, "metrics.repl.waiters.replication"), 0);
        assert_eq!(int(&d, "metrics.repl.buffer.write.sizeBytes"), 0);
        let last = at(
            d.as_doc(),
            "metrics.repl.stateTransition.lastStateTransition",
        );
        let wanted = if i == first { "stepUp" } else { "" };
        assert_eq!(last.unwrap().as_str(), Some(wanted));
        let selected = int(&d, "metrics.repl.syncSource.numSelections");
        assert!(i == first || selected > 0, "{d:?}");
        assert!(
            i == first || int(&d, "metrics.repl.apply.ops") >= 10,
            "{d:?}"
        );
    }
    admin(&mut c, doc! { "replSetStepDown": 30 });
    let d = status(first);
    let last = at(
        d.as_doc(),
        "metrics.repl.stateTransition.lastStateTransition",
    );
    assert_eq!(last.unwrap().as_str(), Some("stepDown"));
    // A client that wants no answer to a write learns of the refusal by the end of its connection.
    let mut quiet = set.connect(first);
    let cmd = doc! { "insert": "c", "documents": array![doc! { "_id": 12 }], "writeConcern": doc! { "w": 0 } };
    quiet.send_only("test", &cmd).unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while int(
        &status(first),
        "metrics.repl.network.notPrimaryUnacknowledgedWrites",
    ) != 1
    {
        assert!(Instant::now() < end, "nobody counts it");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A member that is asked takes over at once; one that may not lead refuses.
#[test]
fn a_secondary_steps_up_when_it_is_asked() {
    let set = Set::prepare(3, &ServerOptions::new());
    let members = (0..3).map(|i| {
        let mut d = doc! { "_id": i, "host": set.host(i as usize) };
        if i == 2 {
            d.append("priority", 0);
        }
        d
    });
    // The timeout is so long that it causes no election during this test.
    let members: Vec<DocBuf> = members.collect();
    set.initiate(&doc! { "_id": "rs0", "members": members.iter().collect::<ArrayBuf>() });
    let first = set.primary();
    let up = || doc! { "replSetStepUp": 1 };
    let mut a = set.connect(first);
    let mut b = set.connect(1 - first);
    admin(&mut a, up());
    assert!(is_primary(&mut a));
    for _ in 0..3 {
        let began = Instant::now();
        admin(&mut b, up());
        assert!(is_primary(&mut b));
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
        std::mem::swap(&mut a, &mut b);
        set.settle();
    }
    // A member that may not be primary does not become one, and the primary stays.
    assert_eq!(code(&mut set.connect(2), "admin", &up()), 125);
    admin(&mut b, doc! { "replSetFreeze": 60 });
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(code(&mut b, "admin", &up()), 125);
    assert!(is_primary(&mut a));
    insert(&mut a, 1, doc! { "w": 3 });
    // These are commands of MongoDB's members, and of its catch-up.
    let abort = doc! { "replSetAbortPrimaryCatchUp": 1 };
    let beat = doc! { "replSetHeartbeat": "rs0", "configVersion": 1 };
    assert_eq!(code(&mut a, "admin", &abort), 20);
    assert_eq!(code(&mut a, "admin", &beat), 115);
    let alone = Server::start(ServerOptions::new());
    let mut c = alone.connect();
    for cmd in [up(), abort, beat] {
        assert_eq!(code(&mut c, "admin", &cmd), 76, "{cmd:?}");
    }
}
