//! Replica sets of several members: real servers, over the wire.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use muniment_value::{DocBuf, Value, array, doc};
use muniment_wire::Connection;
use testkit::{ServerOptions, Set};

fn insert(c: &mut Connection, id: i32, wc: DocBuf) -> DocBuf {
    let cmd = doc! { "insert": "c", "documents": array![doc! { "_id": id }], "writeConcern": wc };
    c.command("test", &cmd).unwrap()
}

fn count(c: &mut Connection) -> i64 {
    let cmd = doc! {
        "count": "c",
        "$readPreference": doc! { "mode": "secondaryPreferred" },
    };
    let reply = c.command("test", &cmd).unwrap();
    reply.as_doc().get("n").unwrap().as_i64_exact().unwrap()
}

fn ids(c: &mut Connection) -> Vec<i64> {
    let cmd = doc! {
        "find": "c",
        "sort": doc! { "_id": 1 },
        "$readPreference": doc! { "mode": "secondaryPreferred" },
    };
    let all = c.find_all("test", &cmd).unwrap();
    let id = |d: &DocBuf| d.as_doc().get("_id").unwrap().as_i64_exact().unwrap();
    all.iter().map(id).collect()
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
fn what_is_written_is_on_all_members() {
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
    // A snapshot is what the majority has, whatever comes meanwhile.
    insert(&mut c, 500, doc! { "w": 1 });
    let at_once = doc! { "find": "c", "readConcern": doc! { "level": "snapshot" } };
    c.command("test", &at_once).unwrap();
    // Who is no primary takes no writes, and no reads that do not say so.
    let other = (primary + 1) % 3;
    let mut o = set.connect(other);
    let cmd = doc! { "insert": "c", "documents": array![doc! { "_id": -1 }] };
    assert_eq!(o.command("test", &cmd).unwrap_err().code().0, 10107);
    let cmd = doc! { "find": "c" };
    assert_eq!(o.command("test", &cmd).unwrap_err().code().0, 13435);
    // What can never be acknowledged, and what is not in time.
    assert_eq!(error_code(&insert(&mut c, 1000, doc! { "w": 4 })), 100);
    assert_eq!(error_code(&insert(&mut c, 1001, doc! { "w": "nope" })), 79);
    let hello = c.command("admin", &doc! { "hello": 1 }).unwrap();
    assert_eq!(hello.as_doc().get_array("hosts").unwrap().count(), 3);
    let writable = hello.as_doc().get("isWritablePrimary");
    assert!(matches!(writable, Some(Value::Bool(true))));
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
    // Nobody else is there to be the third.
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
        assert_eq!(ids(&mut set.connect(i)), wanted, "member {i}");
    }
}

/// How many documents are in the files of what a member gave up.
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

/// The others are dead when the primary writes, so nobody has it but the primary, and it is dead when
/// they come back.
#[test]
fn what_lost_an_election_is_rolled_back() {
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
    // Until it finds that it has no majority any more.
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
    // Without the set it can be read, and nothing happens that could not be rolled back.
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
    for i in &others {
        set.members[*i].start_again();
    }
    let second = set.primary();
    let mut c = set.connect(second);
    for id in 20..40 {
        insert(&mut c, id, doc! { "w": "majority" });
    }
    set.members[first].start_again();
    set.settle();
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
    // The last one may have been stored and not acknowledged.
    let given_up = rolled_back(&set.members[first].dir()) as i32;
    assert!(
        given_up == alone || given_up == alone + 1,
        "{given_up} of {alone}"
    );
    assert_eq!(rbid(second), Some(1));
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
        let reply = c.command("admin", &doc! { "replSetGetConfig": 1 }).unwrap();
        let config = reply.as_doc().get_doc("config").unwrap();
        let version = config.get("version").unwrap().as_i64_exact().unwrap() + 1;
        let members: Vec<_> = (0..=n)
            .map(|i| doc! { "_id": i as i32, "host": set.host(i) })
            .collect();
        let mut next = set.config(members);
        next.append("version", version);
        c.command("admin", &doc! { "replSetReconfig": next })
            .unwrap();
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
