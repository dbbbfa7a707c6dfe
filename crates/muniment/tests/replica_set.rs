//! Replica sets of several members: real servers, over the wire.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod set;

use muniment_value::{ArrayBuf, DocBuf, Value, array, doc};
use muniment_wire::Connection;
use set::{ids, insert, reconfigure};
use std::time::{Duration, Instant};
use testkit::{ServerOptions, Set};

fn count(c: &mut Connection) -> i64 {
    let cmd = doc! {
        "count": "c",
        "$readPreference": doc! { "mode": "secondaryPreferred" },
    };
    let reply = c.command("test", &cmd).unwrap();
    reply.as_doc().get("n").unwrap().as_i64_exact().unwrap()
}

fn hash(c: &mut Connection) -> String {
    let cmd = doc! {
        "dbHash": 1,
        "$readPreference": doc! { "mode": "secondaryPreferred" },
    };
    let reply = c.command("test", &cmd).unwrap();
    reply.as_doc().get_str("md5").unwrap().to_string()
}

fn error_code(reply: &DocBuf) -> i64 {
    let e = reply.as_doc().get_doc("writeConcernError").unwrap();
    e.get("code").unwrap().as_i64_exact().unwrap()
}

#[test]
fn writes_are_on_all_members() {
    let set = Set::start(3);
    let primary = set.primary();
    let mut c = set.connect(primary);
    for id in 0..100 {
        let reply = insert(&mut c, id, doc! { "w": 3 });
        assert!(
            reply.as_doc().get("writeConcernError").is_none(),
            "{reply:?}"
        );
    }
    c.command(
        "test",
        &doc! {
            "createIndexes": "c",
            "indexes": array![doc! { "key": doc! { "x": 1 }, "name": "x_1" }],
            "writeConcern": doc! { "w": 3 },
        },
    )
    .unwrap();
    let wanted = hash(&mut c);
    for i in 0..3 {
        let mut c = set.connect(i);
        assert_eq!(ids(&mut c), (0..100).collect::<Vec<_>>(), "member {i}");
        assert_eq!(hash(&mut c), wanted, "member {i}");
    }
    // The command itself does not wait for acknowledgements, on any member.
    for i in 0..3 {
        let cmd = doc! {
            "aggregate": "c",
            "pipeline": array![doc! { "$count": "n" }],
            "cursor": doc! {},
            "$readPreference": doc! { "mode": "secondaryPreferred" },
        };
        let reply = set.connect(i).command("test", &cmd).unwrap();
        let told = reply.as_doc().get("writeConcernError");
        assert!(told.is_none(), "member {i}: {reply:?}");
    }
    // The primary writes the result, and the member that ran the command can read it afterwards.
    for i in 0..3 {
        let to = format!("out{i}");
        let cmd = doc! {
            "aggregate": "c",
            "pipeline": array![doc! { "$out": to.as_str() }],
            "cursor": doc! {},
            "$readPreference": doc! { "mode": "secondaryPreferred" },
        };
        let mut c = set.connect(i);
        c.command("test", &cmd).unwrap();
        let cmd = doc! {
            "find": to.as_str(), "$readPreference": doc! { "mode": "secondaryPreferred" },
        };
        assert_eq!(c.find_all("test", &cmd).unwrap().len(), 100);
    }
    // A snapshot shows what the majority has, whatever is written meanwhile.
    insert(&mut c, 500, doc! { "w": 1 });
    let at_once = doc! { "find": "c", "readConcern": doc! { "level": "snapshot" } };
    c.command("test", &at_once).unwrap();
    // A member that is not primary takes no writes, and only reads that allow a secondary.
    let other = (primary + 1) % 3;
    let mut o = set.connect(other);
    let cmd = doc! { "insert": "c", "documents": array![doc! { "_id": -1 }] };
    assert_eq!(o.command("test", &cmd).unwrap_err().code().0, 10107);
    let cmd = doc! { "find": "c" };
    assert_eq!(o.command("test", &cmd).unwrap_err().code().0, 13435);
    // A client that asks for no answer learns of the refusal by the end of the connection.
    let unacknowledged = doc! {
        "insert": "c",
        "documents": array![doc! { "_id": -1 }],
        "writeConcern": doc! { "w": 0 },
    };
    o.send_only("test", &unacknowledged).unwrap();
    o.command("admin", &doc! { "ping": 1 }).unwrap_err();
    // These writes can never be acknowledged, or not in time.
    assert_eq!(error_code(&insert(&mut c, 1000, doc! { "w": 4 })), 100);
    assert_eq!(error_code(&insert(&mut c, 1001, doc! { "w": "nope" })), 79);
    let hello = c.command("admin", &doc! { "hello": 1 }).unwrap();
    assert_eq!(hello.as_doc().get_array("hosts").unwrap().count(), 3);
    let writable = hello.as_doc().get("isWritablePrimary");
    assert!(matches!(writable, Some(Value::Bool(true))));
}

/// Members get their votes one by one, but a client that was told that the set exists relies on all of them.
#[test]
fn a_set_that_was_just_initiated_can_lose_its_primary() {
    let mut set = Set::prepare(3, &ServerOptions::new());
    let members = (0..3_i32).map(|i| doc! { "_id": i, "host": set.host(i as usize) });
    let config = set.config(members.collect());
    let mut c = set.connect(0);
    c.command("admin", &doc! { "replSetInitiate": config })
        .unwrap();
    set.members[0].kill9();
    assert_ne!(set.primary(), 0);
}

#[test]
fn a_killed_primary_is_replaced_and_comes_back() {
    let mut set = Set::start(3);
    let first = set.primary();
    let mut c = set.connect(first);
    for id in 0..50 {
        insert(&mut c, id, doc! { "w": "majority" });
    }
    set.members[first].kill9();
    let second = set.primary();
    assert_ne!(first, second);
    let mut c = set.connect(second);
    assert_eq!(count(&mut c), 50);
    for id in 50..100 {
        let reply = insert(&mut c, id, doc! { "w": "majority" });
        assert!(
            reply.as_doc().get("writeConcernError").is_none(),
            "{reply:?}"
        );
    }
    // There is no third member.
    let reply = insert(&mut c, 100, doc! { "w": 3, "wtimeout": 100 });
    assert_eq!(error_code(&reply), 64);
    set.members[first].start_again();
    set.settle();
    let primary = set.primary();
    let mut c = set.connect(primary);
    let reply = insert(&mut c, 101, doc! { "w": 3 });
    assert!(
        reply.as_doc().get("writeConcernError").is_none(),
        "{reply:?}"
    );
    let wanted: Vec<i64> = (0..=101).collect();
    for i in 0..3 {
        let mut c = set.connect(i);
        assert_eq!(ids(&mut c), wanted, "member {i}");
        // Every member knows the terms in which the documents were written.
        let term = |c: &mut Connection, id: i32| {
            let cmd = doc! { "find": "oplog.rs", "filter": doc! { "o._id": id } };
            let found = c.find_all("local", &cmd).unwrap();
            assert_eq!(found.len(), 1, "member {i}: {found:?}");
            found[0].as_doc().get("t").unwrap().as_i64_exact().unwrap()
        };
        let (first, last) = (term(&mut c, 0), term(&mut c, 101));
        assert!(first >= 1 && last > first, "member {i}: {first}, {last}");
    }
}

/// How many documents are in the files with a member's rolled back writes.
fn rolled_back(dir: &std::path::Path) -> usize {
    let mut n = 0;
    for uuid in std::fs::read_dir(dir.join("rollback")).unwrap() {
        for file in std::fs::read_dir(uuid.unwrap().path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            let mut rest = bytes.as_slice();
            while let Some(head) = rest.first_chunk() {
                let (doc, behind) = rest.split_at(u32::from_le_bytes(*head) as usize);
                let doc = muniment_value::validate(doc).unwrap();
                assert!(doc.get("_id").unwrap().as_i64_exact().unwrap() >= 1000);
                rest = behind;
                n += 1;
            }
        }
    }
    n
}

/// When all members are dead, the others come back and write 20 to 39, then the first one comes back as well.
/// Returns the primary that they elected.
fn go_on_without(set: &mut Set, first: usize) -> usize {
    for i in (0..3).filter(|i| *i != first) {
        set.members[i].start_again();
    }
    let second = set.primary();
    let mut c = set.connect(second);
    for id in 20..40 {
        insert(&mut c, id, doc! { "w": "majority" });
    }
    set.members[first].start_again();
    set.settle();
    second
}

/// The others are dead when the primary writes, so only the primary has these writes, and it is dead when the
/// others come back.
#[test]
fn writes_that_lost_an_election_are_rolled_back() {
    let mut set = Set::start(3);
    let first = set.primary();
    let others: Vec<usize> = (0..3).filter(|i| *i != first).collect();
    let mut c = set.connect(first);
    for id in 0..20 {
        insert(&mut c, id, doc! { "w": 3 });
    }
    for i in &others {
        set.members[*i].kill9();
    }
    // The primary still takes writes until it notices that it has no majority any more.
    let mut alone = 0;
    let lone = |id: i32| {
        doc! {
            "insert": "c",
            "documents": array![doc! { "_id": id }],
            "writeConcern": doc! { "w": 1, "j": true },
        }
    };
    while alone < 100 && c.command("test", &lone(1000 + alone)).is_ok() {
        alone += 1;
    }
    assert!(alone > 0, "nothing was written to be rolled back");
    set.members[first].kill9();
    // Without the set, the member can be read, and nothing happens that could not be rolled back.
    let member = &mut set.members[first];
    member.set_args(&[]);
    member.start_again();
    let mut kept = member.connect();
    assert_eq!(ids(&mut kept).len() as i32, 20 + alone);
    let writes = [
        lone(2000),
        doc! { "drop": "c" },
        doc! { "aggregate": "c", "pipeline": array![doc! { "$out": "d" }], "cursor": doc! {} },
        doc! { "createIndexes": "c", "indexes": array![doc! { "key": doc! { "x": 1 }, "name": "x" }] },
    ];
    for write in writes {
        let refused = kept.command("test", &write).unwrap_err();
        assert_eq!(refused.code().0, 20, "{refused}");
    }
    let hello = kept.command("admin", &doc! { "hello": 1 }).unwrap();
    assert!(matches!(
        hello.as_doc().get("readOnly"),
        Some(Value::Bool(true))
    ));
    member.terminate();
    member.set_args(&["--replSet", "rs0"]);
    let second = go_on_without(&mut set, first);
    let mut c = set.connect(set.primary());
    let reply = insert(&mut c, 40, doc! { "w": 3 });
    assert!(
        reply.as_doc().get("writeConcernError").is_none(),
        "{reply:?}"
    );
    let wanted: Vec<i64> = (0..=40).collect();
    for i in 0..3 {
        assert_eq!(ids(&mut set.connect(i)), wanted, "member {i}");
    }
    let rbid = |i: usize| {
        let reply = set
            .connect(i)
            .command("admin", &doc! { "replSetGetRBID": 1 });
        reply.unwrap().as_doc().get("rbid").unwrap().as_i64_exact()
    };
    assert_eq!(rbid(first), Some(2));
    // The last write may have been stored but not acknowledged.
    let given_up = rolled_back(&set.members[first].dir()) as i32;
    assert!(
        given_up == alone || given_up == alone + 1,
        "{given_up} of {alone}"
    );
    assert_eq!(rbid(second), Some(1));
}

/// A change stream: its cursor, the events that it has returned so far, and where to continue.
struct Watch {
    cursor: i64,
    told: Vec<i64>,
    token: DocBuf,
}

impl Watch {
    fn begin(c: &mut Connection, after: Option<&DocBuf>) -> Watch {
        let mut stage = DocBuf::new();
        stage.append_some("resumeAfter", after);
        let cmd = doc! {
            "aggregate": "c",
            "pipeline": array![doc! { "$changeStream": stage }],
            "cursor": doc! {},
            "$readPreference": doc! { "mode": "secondaryPreferred" },
        };
        let mut watch = Watch {
            cursor: 0,
            told: Vec::new(),
            token: DocBuf::new(),
        };
        watch.take(&c.command("test", &cmd).unwrap(), "firstBatch");
        watch
    }

    fn take(&mut self, reply: &DocBuf, batch: &str) {
        let cursor = reply.as_doc().get_doc("cursor").unwrap();
        self.cursor = cursor.get("id").unwrap().as_i64_exact().unwrap();
        self.token = cursor.get_doc("postBatchResumeToken").unwrap().to_buf();
        for event in cursor.get_array(batch).unwrap().values() {
            let key = event.as_doc().unwrap().get_doc("documentKey").unwrap();
            self.told
                .push(key.get("_id").unwrap().as_i64_exact().unwrap());
        }
    }

    /// Reads events until none has come for this time.
    fn go_on(&mut self, c: &mut Connection, ms: i64) {
        loop {
            let before = self.told.len();
            let cmd = doc! { "getMore": self.cursor, "collection": "c", "maxTimeMS": ms };
            self.take(&c.command("test", &cmd).unwrap(), "nextBatch");
            if self.told.len() == before {
                return;
            }
        }
    }

    /// Reads events until this one has come.
    fn until(&mut self, c: &mut Connection, id: i64) {
        while !self.told.contains(&id) {
            self.go_on(c, 200);
        }
    }
}

/// A stream does not return events that only the primary has, since the election undoes them.
#[test]
fn a_stream_tells_what_the_majority_has() {
    let mut set = Set::start(3);
    let first = set.primary();
    let others: Vec<usize> = (0..3).filter(|i| *i != first).collect();
    let mut c = set.connect(first);
    insert(&mut c, 0, doc! { "w": 3 });
    let (mut here, mut there) = (set.connect(first), set.connect(others[0]));
    let mut watch = Watch::begin(&mut here, None);
    let mut elsewhere = Watch::begin(&mut there, None);
    for id in 1..20 {
        insert(&mut c, id, doc! { "w": 1 });
    }
    watch.until(&mut here, 19);
    elsewhere.until(&mut there, 19);
    let wanted: Vec<i64> = (1..20).collect();
    assert_eq!((&watch.told, &elsewhere.told), (&wanted, &wanted));
    for i in &others {
        set.members[*i].kill9();
    }
    for id in 1000..1010 {
        insert(&mut c, id, doc! { "w": 1, "j": true });
    }
    assert_eq!(ids(&mut c).len(), 30);
    watch.go_on(&mut here, 300);
    assert_eq!(watch.told, wanted);
    // A stream does not begin at a point from which it might not be able to continue.
    let cmd = doc! {
        "aggregate": "c",
        "pipeline": array![doc! { "$changeStream": doc! {} }],
        "cursor": doc! {},
        "maxTimeMS": 100,
    };
    let late = set.connect(first).command("test", &cmd);
    assert_eq!(late.unwrap_err().code().0, 50);
    // Nor does the primary know the state at a time at which another primary may have written.
    let hello = c.command("admin", &doc! { "hello": 1 }).unwrap();
    let now = hello.as_doc().get("operationTime").unwrap();
    let Value::Timestamp { t, i } = now else {
        panic!("{now:?}");
    };
    let at = Value::Timestamp { t: t + 1, i };
    let cmd = doc! {
        "find": "c",
        "readConcern": doc! { "level": "snapshot", "atClusterTime": at },
        "$clusterTime": doc! { "clusterTime": at },
        "$readPreference": doc! { "mode": "primaryPreferred" },
        "maxTimeMS": 100,
    };
    let found = c.command("test", &cmd);
    assert_eq!(found.unwrap_err().code().0, 50);
    set.members[first].kill9();
    let second = go_on_without(&mut set, first);
    // The stream returns the same events from whichever point it continues.
    for (i, token) in [
        (first, &watch.token),
        (others[0], &elsewhere.token),
        (second, &watch.token),
    ] {
        let mut c = set.connect(i);
        let mut watch = Watch::begin(&mut c, Some(token));
        watch.until(&mut c, 39);
        assert_eq!(watch.told, (20..40).collect::<Vec<_>>(), "member {i}");
    }
}

/// A member that has not reached the time yet waits.
#[test]
fn the_state_at_a_time_can_be_read_on_every_member() {
    let set = Set::start(3);
    let primary = set.primary();
    let mut c = set.connect(primary);
    let mut others: Vec<Connection> = (0..3).map(|i| set.connect(i)).collect();
    for id in 0..50 {
        let reply = insert(&mut c, id, doc! { "w": 1 });
        let at = reply.as_doc().get("operationTime").unwrap();
        for c in &mut others {
            let cmd = doc! {
                "find": "c",
                "readConcern": doc! { "level": "snapshot", "atClusterTime": at },
                "$clusterTime": doc! { "clusterTime": at },
                "$readPreference": doc! { "mode": "secondaryPreferred" },
            };
            let found = c.find_all("test", &cmd).unwrap();
            assert_eq!(found.len() as i32, id + 1);
        }
    }
    // For a while every member can still be read at a time, even though later writes have come.
    let before = insert(&mut c, 60, doc! { "w": 3 });
    let first = before.as_doc().get("operationTime").unwrap();
    let mut reply = before.clone();
    for n in 0..100 {
        let update = doc! { "q": doc! { "_id": 60 }, "u": doc! { "$set": doc! { "n": n } } };
        let cmd = doc! {
            "update": "c", "updates": array![update], "writeConcern": doc! { "w": 3 },
        };
        reply = c.command("test", &cmd).unwrap();
    }
    let last = reply.as_doc().get("operationTime").unwrap();
    for c in &mut others {
        for (at, wanted) in [(first, None), (last, Some(99)), (first, None)] {
            let cmd = doc! {
                "find": "c",
                "filter": doc! { "_id": 60 },
                "readConcern": doc! { "level": "snapshot", "atClusterTime": at },
                "$readPreference": doc! { "mode": "secondaryPreferred" },
            };
            let found = c.find_all("test", &cmd).unwrap();
            let n = found[0].as_doc().get("n").and_then(|v| v.as_i64_exact());
            assert_eq!(n, wanted);
        }
    }
    let delete = doc! { "q": doc! { "_id": 60 }, "limit": 1 };
    c.command("test", &doc! { "delete": "c", "deletes": array![delete] })
        .unwrap();
    // This also holds for a transaction, as long as there is a reader at that time; later writes conflict
    // with it.
    insert(&mut c, 50, doc! { "w": "majority" });
    let cmd = doc! { "find": "c", "readConcern": doc! { "level": "snapshot" } };
    let found = c.command("test", &cmd).unwrap();
    let cursor = found.as_doc().get_doc("cursor").unwrap();
    let at = cursor.get("atClusterTime").unwrap();
    insert(&mut c, 51, doc! { "w": "majority" });
    let within = |mut cmd: DocBuf, number: i64, at: Option<Value<'_>>| {
        cmd.append(
            "lsid",
            doc! { "id": Value::Binary { subtype: 4, bytes: &[7; 16] } },
        );
        cmd.append("txnNumber", number);
        cmd.append("autocommit", false);
        if let Some(at) = at {
            cmd.append("startTransaction", true);
            let concern = doc! { "level": "snapshot", "atClusterTime": at };
            cmd.append("readConcern", concern);
        }
        cmd
    };
    let find = || doc! { "find": "c", "filter": doc! { "_id": doc! { "$gte": 50 } } };
    let found = c.find_all("test", &within(find(), 1, Some(at))).unwrap();
    assert_eq!(found.len(), 1);
    let add = doc! { "insert": "c", "documents": array![doc! { "_id": 51 }] };
    let refused = c.command("test", &within(add, 1, None)).unwrap_err();
    assert_eq!(refused.code().0, 112, "{refused}");
    let old = Value::Timestamp { t: 1, i: 1 };
    let refused = c.command("test", &within(find(), 2, Some(old)));
    assert_eq!(refused.unwrap_err().code().0, 239);
}

#[test]
fn members_come_and_go_by_reconfiguration() {
    let set = Set::prepare(3, &ServerOptions::new());
    set.initiate(&set.config(vec![doc! { "_id": 0, "host": set.host(0) }]));
    let mut c = set.connect(0);
    for id in 0..50 {
        insert(&mut c, id, doc! { "w": 1 });
    }
    for n in 1..3 {
        let members = (0..=n).map(|i| doc! { "_id": i as i32, "host": set.host(i) });
        reconfigure(&set, members.collect());
        let reply = insert(&mut c, 100 + n as i32, doc! { "w": n as i32 + 1 });
        assert!(
            reply.as_doc().get("writeConcernError").is_none(),
            "{reply:?}"
        );
    }
    set.settle();
    let wanted: Vec<i64> = (0..50).chain([101, 102]).collect();
    for i in 0..3 {
        assert_eq!(ids(&mut set.connect(i)), wanted, "member {i}");
    }
}

#[test]
fn a_primary_steps_down_for_who_has_caught_up() {
    let set = Set::start(3);
    let first = set.primary();
    let mut c = set.connect(first);
    for id in 0..20 {
        insert(&mut c, id, doc! { "w": 3 });
    }
    c.command("admin", &doc! { "replSetStepDown": 30 }).unwrap();
    let second = set.primary();
    assert_ne!(first, second);
    let mut c = set.connect(second);
    let reply = insert(&mut c, 20, doc! { "w": 3 });
    assert!(
        reply.as_doc().get("writeConcernError").is_none(),
        "{reply:?}"
    );
}

/// If no majority follows, the primary takes almost no writes any more, and says so.
#[test]
fn writers_wait_for_a_majority_that_is_behind() {
    let options = ServerOptions::new().arg("--setParameter");
    let options = options.arg("enableTestCommands=1").arg("--setParameter");
    let set = Set::prepare(3, &options.arg("flowControlTargetLagSeconds=1"));
    let members = (0..3).map(|i| doc! { "_id": i, "host": set.host(i as usize) });
    // The timeout is so long that a busy machine causes no election.
    set.initiate(&doc! {
        "_id": "rs0",
        "members": members.collect::<Vec<_>>().iter().collect::<ArrayBuf>(),
        "settings": doc! { "electionTimeoutMillis": 30_000, "heartbeatIntervalMillis": 200 },
    });
    let primary = set.primary();
    let producer = |mode: &str| {
        for i in (0..3).filter(|i| *i != primary) {
            let cmd = doc! { "configureFailPoint": "stopReplProducer", "mode": mode };
            set.connect(i).command("admin", &cmd).unwrap();
        }
    };
    let mut c = set.connect(primary);
    let text = "x".repeat(2000);
    let mut id = 0;
    let mut write_for = |c: &mut Connection, ms: u64| {
        let (begin, before) = (Instant::now(), id);
        while begin.elapsed() < Duration::from_millis(ms) {
            id += 1;
            let cmd = doc! {
                "insert": "c",
                "documents": array![doc! { "_id": id, "text": text.as_str() }],
                "writeConcern": doc! { "w": 1 },
            };
            c.command("test", &cmd).unwrap();
        }
        id - before
    };
    let status = |c: &mut Connection, section: &str| {
        let reply = c.command("admin", &doc! { "serverStatus": 1 }).unwrap();
        reply.as_doc().get_doc(section).unwrap().to_buf()
    };
    let lags = |c: &mut Connection| {
        let found = status(c, "flowControl");
        matches!(found.as_doc().get("isLagged"), Some(Value::Bool(true)))
    };
    let before = write_for(&mut c, 1000);
    assert!(!lags(&mut c));
    producer("alwaysOn");
    write_for(&mut c, 3500);
    assert!(lags(&mut c));
    let held = write_for(&mut c, 1000);
    assert!(held < before / 4, "{held} a second after {before}");
    producer("off");
    set.settle();
    set.until("the primary holds its writers back still", || {
        write_for(&mut c, 50);
        (!lags(&mut c)).then_some(())
    });
    set.settle();
    // The secondaries have counted the operations that they applied.
    for i in (0..3).filter(|i| *i != primary) {
        let counted = status(&mut set.connect(i), "opcountersRepl");
        let inserts = counted.as_doc().get("insert").unwrap().as_i64_exact();
        assert!(inserts.unwrap() >= i64::from(id), "member {i}: {counted:?}");
    }
}
