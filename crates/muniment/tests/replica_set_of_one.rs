//! A replica set of one member: initiating, restarting, stepping down, the reply of `hello`, and the cluster
//! time. `scripts/replica_set/` has the replies of single commands.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{Doc, DocBuf, Value, array, doc};
use muniment_wire::{Connection, Reserved};
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions, run_script};

fn set(extra: &[&str]) -> Server {
    let args = ["--replSet", "rs0"].iter().chain(extra);
    Server::start(args.fold(ServerOptions::new(), |o, a| o.arg(*a)))
}

fn ask(c: &mut Connection, db: &str, command: DocBuf) -> DocBuf {
    c.command_raw(db, &command).unwrap()
}

fn admin(c: &mut Connection, command: DocBuf) -> DocBuf {
    ask(c, "admin", command)
}

fn hello(c: &mut Connection) -> DocBuf {
    admin(c, doc! { "hello": 1 })
}

fn code(reply: &DocBuf) -> i64 {
    int(reply.as_doc(), "code").unwrap_or(0)
}

fn int(d: Doc<'_>, path: &str) -> Option<i64> {
    at(d, path).and_then(|v| v.as_i64_exact())
}

fn at<'a>(d: Doc<'a>, path: &str) -> Option<Value<'a>> {
    match path.split_once('.') {
        None => d.get(path),
        Some((head, rest)) => match d.get(head)? {
            Value::Document(d) | Value::Array(d) => at(d, rest),
            _ => None,
        },
    }
}

fn flag(d: &DocBuf, name: &str) -> Option<bool> {
    d.as_doc().get(name).map(|v| v.truthy())
}

fn time(d: &DocBuf, path: &str) -> (u32, u32) {
    match at(d.as_doc(), path) {
        Some(Value::Timestamp { t, i }) => (t, i),
        other => panic!("{path}: {other:?} in {d:?}"),
    }
}

fn cluster_time(at: (u32, u32)) -> DocBuf {
    doc! {
        "clusterTime": Value::Timestamp { t: at.0, i: at.1 },
        "signature": doc! {
            "hash": Value::Binary { subtype: 0, bytes: &[0; 20] }, "keyId": 0_i64,
        },
    }
}

fn names(d: Doc<'_>) -> Vec<String> {
    d.iter().map(|e| e.name().to_string()).collect()
}

fn election(term: u8) -> [u8; 12] {
    [0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, term]
}

fn election_of(hello: Doc<'_>) -> Option<[u8; 12]> {
    match hello.get("electionId") {
        Some(Value::ObjectId(id)) => Some(id),
        _ => None,
    }
}

#[test]
fn a_set_that_initiated_itself_replies_as_the_script_says() {
    let s = set(&["--autoInitiate", "--setParameter", "enableTestCommands=1"]);
    let text = include_str!("scripts/replica_set/one.txt");
    let failures = run_script("one.txt", text, &mut s.connect());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_first_hello_is_that_of_a_primary() {
    let s = set(&["--autoInitiate"]);
    // There is no other command before it, not even a handshake.
    let mut c = Connection::connect(&s.address()).unwrap();
    let h = hello(&mut c);
    let me = s.address();
    let fields = names(h.as_doc());
    assert_eq!(
        fields[..11],
        [
            "topologyVersion",
            "hosts",
            "setName",
            "setVersion",
            "isWritablePrimary",
            "secondary",
            "primary",
            "me",
            "electionId",
            "lastWrite",
            "maxBsonObjectSize",
        ]
    );
    let end: Vec<_> = fields.iter().rev().take(3).rev().collect();
    assert_eq!(end, ["ok", "$clusterTime", "operationTime"]);
    let d = h.as_doc();
    assert_eq!(at(d, "hosts.0").and_then(|v| v.as_str()), Some(&*me));
    assert!(at(d, "hosts.1").is_none());
    assert_eq!(d.get_str("setName"), Some("rs0"));
    assert_eq!(int(d, "setVersion"), Some(1));
    assert_eq!(flag(&h, "isWritablePrimary"), Some(true));
    assert_eq!(flag(&h, "secondary"), Some(false));
    assert_eq!(
        (d.get_str("primary"), d.get_str("me")),
        (Some(&*me), Some(&*me))
    );
    assert_eq!(election_of(d), Some(election(1)));
    assert_eq!(int(d, "lastWrite.opTime.t"), Some(1));
    assert_eq!(time(&h, "lastWrite.opTime.ts"), time(&h, "operationTime"));
    assert_eq!(int(d, "logicalSessionTimeoutMinutes"), Some(30));
    assert!(d.get("msg").is_none());
    // The command's old name has the old field.
    let old = admin(&mut c, doc! { "isMaster": 1 });
    assert_eq!(flag(&old, "ismaster"), Some(true));
    assert_eq!(flag(&old, "isWritablePrimary"), None);
}

#[test]
fn status_and_configuration() {
    let s = set(&["--autoInitiate"]);
    let mut c = s.connect();
    let status = admin(&mut c, doc! { "replSetGetStatus": 1 });
    let d = status.as_doc();
    for (path, n) in [
        ("myState", 1),
        ("term", 1),
        ("heartbeatIntervalMillis", 2000),
        ("majorityVoteCount", 1),
        ("writeMajorityCount", 1),
        ("votingMembersCount", 1),
        ("writableVotingMembersCount", 1),
        ("optimes.appliedOpTime.t", 1),
        ("electionCandidateMetrics.electionTerm", 1),
        ("electionCandidateMetrics.numVotesNeeded", 1),
        ("members.0._id", 0),
        ("members.0.health", 1),
        ("members.0.state", 1),
        ("members.0.configVersion", 1),
        ("members.0.configTerm", 1),
    ] {
        assert_eq!(int(d, path), Some(n), "{path}");
    }
    assert_eq!(d.get_str("set"), Some("rs0"));
    assert_eq!(
        at(d, "members.0.name").and_then(|v| v.as_str()),
        Some(&*s.address())
    );
    assert_eq!(
        at(d, "members.0.stateStr").and_then(|v| v.as_str()),
        Some("PRIMARY")
    );
    // A write advances every time.
    let before = time(&status, "optimes.lastCommittedOpTime.ts");
    let written = ask(
        &mut c,
        "t",
        doc! { "insert": "c", "documents": array![doc! { "_id": 1 }] },
    );
    assert!(time(&written, "operationTime") > before);
    let status = admin(&mut c, doc! { "replSetGetStatus": 1 });
    assert_eq!(
        time(&status, "members.0.optime.ts"),
        time(&written, "operationTime")
    );

    let got = admin(
        &mut c,
        doc! { "replSetGetConfig": 1, "commitmentStatus": true },
    );
    assert_eq!(flag(&got, "commitmentStatus"), Some(true));
    let config = got.as_doc().get_doc("config").unwrap();
    assert_eq!(
        names(config),
        [
            "_id",
            "version",
            "term",
            "members",
            "protocolVersion",
            "writeConcernMajorityJournalDefault",
            "settings"
        ]
    );
    assert!(matches!(
        at(config, "settings.replicaSetId"),
        Some(Value::ObjectId(_))
    ));
    let status = admin(&mut c, doc! { "serverStatus": 1 });
    let repl = status.as_doc().get_doc("repl").unwrap();
    assert_eq!(repl.get_str("setName"), Some("rs0"));
    assert!(repl.get("isWritablePrimary").is_some_and(|v| v.truthy()));
    let opts = admin(&mut c, doc! { "getCmdLineOpts": 1 });
    assert_eq!(
        at(opts.as_doc(), "parsed.replication.replSet").and_then(|v| v.as_str()),
        Some("rs0")
    );
}

#[test]
fn nothing_is_served_before_it_is_initiated() {
    let s = set(&[]);
    let mut c = s.connect();
    let h = hello(&mut c);
    assert_eq!(flag(&h, "isWritablePrimary"), Some(false));
    assert_eq!(flag(&h, "secondary"), Some(false));
    assert_eq!(flag(&h, "isreplicaset"), Some(true));
    assert_eq!(
        h.as_doc().get_str("info"),
        Some("Does not have a valid replica set config")
    );
    for absent in ["setName", "hosts", "$clusterTime", "operationTime"] {
        assert!(h.as_doc().get(absent).is_none(), "{absent}");
    }
    let insert = || doc! { "insert": "c", "documents": array![doc! { "_id": 1 }] };
    let mut may_read = doc! { "find": "c" };
    may_read.append("$readPreference", doc! { "mode": "primaryPreferred" });
    for (db, command, wanted) in [
        ("admin", doc! { "replSetGetStatus": 1 }, 94),
        ("admin", doc! { "replSetGetConfig": 1 }, 94),
        ("admin", doc! { "replSetGetRBID": 1 }, 94),
        ("admin", doc! { "replSetStepDown": 1 }, 94),
        ("admin", doc! { "replSetFreeze": 1 }, 94),
        ("admin", doc! { "replSetReconfig": doc! {} }, 94),
        ("t", insert(), 10107),
        ("t", doc! { "create": "c" }, 10107),
        ("t", doc! { "find": "c" }, 13435),
        ("t", may_read, 13436),
        ("t", doc! { "listCollections": 1 }, 13435),
        ("t", doc! { "ping": 1 }, 0),
        ("local", insert(), 20),
        ("local", doc! { "find": "c" }, 0),
        ("admin", doc! { "serverStatus": 1 }, 0),
    ] {
        let reply = ask(&mut c, db, command.clone());
        assert_eq!(code(&reply), wanted, "{command:?}: {reply:?}");
    }
    let me = s.address();
    let with = |name: &str, members: muniment_value::ArrayBuf| {
        doc! { "replSetInitiate": doc! { "_id": name, "members": members } }
    };
    let member = |host: &str| doc! { "_id": 0, "host": host };
    for (command, text) in [
        (with("rs1", array![member(&me)]), "command line reports rs0"),
        (
            with("rs0", array![member("h.invalid:1")]),
            "maps to this node",
        ),
        (
            with("rs0", array![member(&me), doc! { "_id": 1, "host": "h:1" }]),
            "Either all host names",
        ),
    ] {
        let reply = admin(&mut c, command);
        assert_eq!(code(&reply), 93, "{reply:?}");
        let message = reply.as_doc().get_str("errmsg").unwrap();
        assert!(message.contains(text), "{message}");
    }
    // The configuration is complete, with tags and a mode.
    let mut tagged = member(&me);
    tagged.append("tags", doc! { "dc": "east" });
    let config = doc! {
        "_id": "rs0",
        "members": array![tagged],
        "settings": doc! { "getLastErrorModes": doc! { "near": doc! { "dc": 1 } } },
    };
    let reply = admin(&mut c, doc! { "replSetInitiate": config });
    assert_eq!(code(&reply), 0, "{reply:?}");
    assert!(time(&reply, "operationTime") > (0, 0));
    let h = hello(&mut c);
    assert_eq!(flag(&h, "isWritablePrimary"), Some(true));
    assert_eq!(
        at(h.as_doc(), "tags.dc").and_then(|v| v.as_str()),
        Some("east")
    );
    let mut near = insert();
    near.append("writeConcern", doc! { "w": "near" });
    let reply = ask(&mut c, "t", near);
    assert_eq!(int(reply.as_doc(), "n"), Some(1));
    assert!(reply.as_doc().get("writeConcernError").is_none());
}

#[test]
fn a_default_configuration_names_the_server() {
    let s = set(&[]);
    let mut c = s.connect();
    let reply = admin(&mut c, doc! { "replSetInitiate": doc! {} });
    assert_eq!(reply.as_doc().get_str("me"), Some(&*s.address()));
    assert!(reply.as_doc().get_str("info2").is_some());
    assert_eq!(hello(&mut c).as_doc().get_str("me"), Some(&*s.address()));
}

#[test]
fn a_client_that_waits_for_another_topology_hears_of_the_election() {
    let s = set(&[]);
    let mut c = s.connect();
    let known = hello(&mut c)
        .as_doc()
        .get_doc("topologyVersion")
        .unwrap()
        .to_buf();
    let mut waiting = s.connect();
    let begun = Instant::now();
    let waiter = std::thread::spawn(move || {
        let ask = doc! {
            "hello": 1, "topologyVersion": known, "maxAwaitTimeMS": 60_000,
        };
        admin(&mut waiting, ask)
    });
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(code(&admin(&mut c, doc! { "replSetInitiate": 1 })), 0);
    let h = waiter.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(flag(&h, "isWritablePrimary"), Some(true));
    assert_eq!(int(h.as_doc(), "topologyVersion.counter"), Some(1));
}

#[test]
fn a_stream_of_hellos_has_one_for_each_change() {
    let s = set(&["--autoInitiate"]);
    let mut c = s.connect();
    // The version comes from another process, so the first reply comes at once.
    let known = doc! { "processId": Value::ObjectId([7; 12]), "counter": 70_i64 };
    let mut stream = s.connect();
    let ask = doc! { "hello": 1, "topologyVersion": known, "maxAwaitTimeMS": 60_000 };
    stream.send_exhaust("admin", &ask).unwrap();
    let mut next = || {
        let (h, more) = stream.recv_exhaust().unwrap();
        assert!(more);
        let counter = int(h.as_doc(), "topologyVersion.counter").unwrap();
        (counter, flag(&h, "isWritablePrimary").unwrap())
    };
    assert_eq!(next(), (1, true));
    let down = doc! { "replSetStepDown": 600, "force": true };
    assert_eq!(code(&admin(&mut c, down)), 0);
    assert_eq!(next(), (2, false));
    assert_eq!(code(&admin(&mut c, doc! { "replSetFreeze": 0 })), 0);
    assert_eq!(next(), (3, true));
    let config = doc! {
        "_id": "rs0", "version": 2, "members": array![doc! { "_id": 0, "host": s.address() }],
    };
    assert_eq!(code(&admin(&mut c, doc! { "replSetReconfig": config })), 0);
    assert_eq!(next(), (4, true));
}

#[test]
fn a_restart_keeps_the_set_and_begins_a_term() {
    if !testkit::persistent() {
        return;
    }
    let port = Reserved::new().unwrap();
    let mut s = set(&["--port", &port.port().to_string()]);
    let mut c = s.connect();
    assert_eq!(code(&admin(&mut c, doc! { "replSetInitiate": 1 })), 0);
    let id = |c: &mut Connection| {
        let got = admin(c, doc! { "replSetGetConfig": 1 });
        let config = got.as_doc().get_doc("config").unwrap();
        let id = match at(config, "settings.replicaSetId") {
            Some(Value::ObjectId(id)) => id,
            other => panic!("{other:?}"),
        };
        (id, int(config, "version"), int(config, "term"))
    };
    let (first, version, term) = id(&mut c);
    assert_eq!((version, term), (Some(1), Some(1)));
    let before = time(&hello(&mut c), "operationTime");
    s.kill9();
    s.start_again();
    let mut c = s.connect();
    assert_eq!(id(&mut c), (first, Some(1), Some(2)));
    let h = hello(&mut c);
    assert_eq!(election_of(h.as_doc()), Some(election(2)));
    assert!(time(&h, "operationTime") > before);

    // At another address it is not a member, unless it may set its address itself.
    s.terminate();
    s.set_args(&["--replSet", "rs0"]);
    s.start_again();
    let mut c = s.connect();
    let h = hello(&mut c);
    assert_eq!(flag(&h, "isreplicaset"), Some(true));
    let status = admin(&mut c, doc! { "replSetGetStatus": 1 });
    assert_eq!(code(&status), 93);
    assert_eq!(int(status.as_doc(), "state"), Some(10));
    let config = doc! {
        "_id": "rs0", "version": 2, "members": array![doc! { "_id": 0, "host": s.address() }],
    };
    let plain = doc! { "replSetReconfig": &config };
    assert_eq!(code(&admin(&mut c, plain)), 10107);
    let forced = doc! { "replSetReconfig": &config, "force": true };
    let reply = admin(&mut c, forced);
    assert_eq!(code(&reply), 0, "{reply:?}");
    assert_eq!(election_of(hello(&mut c).as_doc()), Some(election(3)));
    let forced = id(&mut c).1.unwrap();
    s.terminate();
    s.set_args(&["--replSet", "rs0", "--autoInitiate"]);
    s.start_again();
    let mut c = s.connect();
    assert_eq!(id(&mut c), (first, Some(forced + 1), Some(4)));
    assert_eq!(hello(&mut c).as_doc().get_str("me"), Some(&*s.address()));

    // There is no version after the greatest one.
    let greatest = doc! {
        "_id": "rs0", "version": i32::MAX, "members": array![doc! { "_id": 0, "host": s.address() }],
    };
    let reply = admin(&mut c, doc! { "replSetReconfig": greatest });
    assert_eq!(code(&reply), 0, "{reply:?}");
    for _ in 0..2 {
        s.terminate();
        s.start_again();
        let mut c = s.connect();
        assert_eq!(id(&mut c).1, Some(i64::from(i32::MAX)));
        assert_eq!(hello(&mut c).as_doc().get_str("me"), Some(&*s.address()));
    }

    // The directory belongs to another set.
    s.terminate();
    s.set_args(&["--replSet", "rs1", "--autoInitiate"]);
    assert!(s.try_start().is_err());
    let said = "Local replica set configuration document reports set name of rs0, but command line \
                reports rs1";
    assert!(s.log().contains(said), "{}", s.log());

    // Without a set it is a standalone that logs a warning.
    s.set_args(&[]);
    s.start_again();
    let mut c = s.connect();
    let h = hello(&mut c);
    assert_eq!(flag(&h, "isWritablePrimary"), Some(true));
    assert!(h.as_doc().get("setName").is_none());
    assert!(h.as_doc().get("operationTime").is_none());
    assert_eq!(code(&admin(&mut c, doc! { "replSetGetStatus": 1 })), 76);
    let log = admin(&mut c, doc! { "getLog": "startupWarnings" });
    let lines = log.as_doc().get_array("log").unwrap();
    let warned = |v: Value<'_>| v.as_str().is_some_and(|l| l.contains("without --replSet"));
    assert!(lines.values().any(warned));
}

#[test]
fn a_set_whose_disk_is_full_has_a_primary_as_soon_as_there_is_room() {
    if !testkit::persistent() {
        return;
    }
    let options = ServerOptions::new().budget(u64::MAX);
    let options = ["--replSet", "rs0", "--autoInitiate"]
        .iter()
        .fold(options, |o, a| o.arg(*a));
    let mut s = Server::start(options);
    // The log makes its next segment in the background. A start without any room needs it.
    let log = s.dir().join("log");
    s.until("the next segment is there", || {
        let files = std::fs::read_dir(&log).unwrap();
        let segment = |f: &std::fs::DirEntry| f.file_name().to_string_lossy().ends_with(".log");
        (files.map(Result::unwrap).filter(segment).count() > 1).then_some(())
    });
    s.terminate();
    s.set_budget(0);
    s.start_again();
    let mut c = s.connect();
    let h = hello(&mut c);
    // Its data can be read meanwhile.
    assert_eq!(flag(&h, "isWritablePrimary"), Some(false));
    assert_eq!(flag(&h, "secondary"), Some(true));
    assert_eq!(h.as_doc().get_str("me"), Some(&*s.address()));
    let log = admin(&mut c, doc! { "getLog": "startupWarnings" });
    let lines = log.as_doc().get_array("log").unwrap();
    let warned = |v: Value<'_>| {
        v.as_str()
            .is_some_and(|l| l.contains("could not be stored"))
    };
    assert!(lines.values().any(warned), "{}", s.log());
    s.set_budget(u64::MAX);
    let insert = doc! { "insert": "c", "documents": array![doc! { "_id": 1 }] };
    let begun = Instant::now();
    while matches!(code(&ask(&mut c, "t", insert.clone())), 14031 | 10107) {
        assert!(begun.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn reconfiguring() {
    let s = set(&["--autoInitiate"]);
    let mut c = s.connect();
    let config = |version: i32, tags: DocBuf| {
        doc! {
            "_id": "rs0",
            "version": version,
            "members": array![doc! { "_id": 0, "host": s.address(), "priority": 2, "tags": tags }],
            "settings": doc! { "electionTimeoutMillis": 5000 },
        }
    };
    let before = hello(&mut c);
    let reconfig = doc! { "replSetReconfig": config(2, doc! { "rack": "1" }) };
    let reply = admin(&mut c, reconfig);
    assert_eq!(code(&reply), 0, "{reply:?}");
    let h = hello(&mut c);
    assert_eq!(int(h.as_doc(), "setVersion"), Some(2));
    assert_eq!(
        at(h.as_doc(), "tags.rack").and_then(|v| v.as_str()),
        Some("1")
    );
    assert_eq!(election_of(h.as_doc()), Some(election(1)));
    let counter = |h: &DocBuf| int(h.as_doc(), "topologyVersion.counter").unwrap();
    assert_eq!(counter(&h), counter(&before) + 1);
    let got = admin(&mut c, doc! { "replSetGetConfig": 1 });
    for (path, n) in [
        ("config.term", 1),
        ("config.members.0.priority", 2),
        ("config.settings.electionTimeoutMillis", 5000),
        ("config.settings.heartbeatTimeoutSecs", 10),
    ] {
        assert_eq!(int(got.as_doc(), path), Some(n), "{path}");
    }
    let mut wc = doc! { "insert": "c", "documents": array![doc! {}] };
    wc.append("writeConcern", doc! { "w": doc! { "rack": 1 } });
    assert!(
        ask(&mut c, "t", wc)
            .as_doc()
            .get("writeConcernError")
            .is_none()
    );
    // When it is forced, the version rises by itself by a large random number, and the configuration has no
    // term.
    let forced = doc! { "replSetReconfig": config(1, doc! {}), "force": true };
    assert_eq!(code(&admin(&mut c, forced)), 0);
    let got = admin(&mut c, doc! { "replSetGetConfig": 1 });
    let version = int(got.as_doc(), "config.version").unwrap();
    assert!((10_002..20_002).contains(&version), "{version}");
    assert!(at(got.as_doc(), "config.term").is_none());
    let idle = doc! {
        "_id": "rs0", "version": version + 1,
        "members": array![doc! { "_id": 0, "host": s.address(), "priority": 0 }],
    };
    assert_eq!(code(&admin(&mut c, doc! { "replSetReconfig": idle })), 93);
}

#[test]
fn stepping_down_for_a_while() {
    let s = set(&["--autoInitiate"]);
    let mut c = s.connect();
    let insert = |n: i32| doc! { "insert": "c", "documents": array![doc! { "_id": n }] };
    assert_eq!(code(&ask(&mut c, "t", insert(1))), 0);
    let down = |secs: i32| doc! { "replSetStepDown": secs, "force": true };
    assert_eq!(code(&admin(&mut c, down(600))), 0);
    let h = hello(&mut c);
    assert_eq!(flag(&h, "isWritablePrimary"), Some(false));
    assert_eq!(flag(&h, "secondary"), Some(true));
    assert!(h.as_doc().get("primary").is_none());
    assert!(h.as_doc().get("electionId").is_none());
    let mut may_read = doc! { "find": "c" };
    may_read.append("$readPreference", doc! { "mode": "secondaryPreferred" });
    let out =
        doc! { "aggregate": "c", "pipeline": array![doc! { "$out": "d" }], "cursor": doc! {} };
    // An aggregation that could be sent here would need a primary to run it, and there is none.
    let mut sent = out.clone();
    sent.append("$readPreference", doc! { "mode": "secondaryPreferred" });
    let linear = || doc! { "readConcern": doc! { "level": "linearizable" } };
    let mut linearizable = may_read.clone();
    linearizable.append_all(linear().as_doc());
    for (command, wanted) in [
        (insert(2), 10107),
        (doc! { "drop": "c" }, 10107),
        (out, 13435),
        (sent, 10107),
        (doc! { "find": "c" }, 13435),
        (may_read, 0),
        (linearizable, 10107),
    ] {
        let reply = ask(&mut c, "t", command.clone());
        assert_eq!(code(&reply), wanted, "{command:?}: {reply:?}");
    }
    let refused = ask(&mut c, "t", insert(2));
    let told = |d: &DocBuf| int(d.as_doc(), "topologyVersion.counter");
    assert_eq!(told(&refused), told(&h));
    assert_eq!(code(&admin(&mut c, down(600))), 10107);
    assert_eq!(code(&admin(&mut c, doc! { "replSetMaintenance": 0 })), 96);
    let status = admin(&mut c, doc! { "replSetGetStatus": 1 });
    assert_eq!(int(status.as_doc(), "members.0.state"), Some(2));
    assert_eq!(code(&admin(&mut c, doc! { "replSetFreeze": 0 })), 0);
    assert_eq!(election_of(hello(&mut c).as_doc()), Some(election(2)));
    assert_eq!(code(&ask(&mut c, "t", insert(2))), 0);

    // It becomes primary again by itself, too.
    let begun = Instant::now();
    assert_eq!(code(&admin(&mut c, down(1))), 0);
    while flag(&hello(&mut c), "isWritablePrimary") == Some(false) {
        assert!(begun.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let status = admin(&mut c, doc! { "replSetGetStatus": 1 });
    assert_eq!(int(status.as_doc(), "term"), Some(3));
    let mut found = doc! { "count": "c" };
    found.append_all(linear().as_doc());
    assert_eq!(int(ask(&mut c, "t", found).as_doc(), "n"), Some(2));
}

#[test]
fn a_time_that_clients_have_heard_of_is_taken_over() {
    let s = set(&["--autoInitiate"]);
    let mut c = s.connect();
    let now = time(&hello(&mut c), "$clusterTime.clusterTime");
    let ahead = (now.0 + 1000, 7);
    let ping = doc! { "ping": 1, "$clusterTime": cluster_time(ahead) };
    let reply = admin(&mut c, ping);
    assert_eq!(time(&reply, "$clusterTime.clusterTime"), ahead);
    assert!(time(&reply, "operationTime") < ahead);
    // Earlier writes have earlier times than this one; a write that comes now has a later time.
    let after = doc! { "afterClusterTime": Value::Timestamp { t: ahead.0, i: ahead.1 } };
    let find = doc! { "find": "c", "readConcern": &after };
    let reply = ask(&mut c, "t", find);
    assert_eq!(code(&reply), 0, "{reply:?}");
    assert!(time(&reply, "operationTime") > ahead);
    let insert = doc! { "insert": "c", "documents": array![doc! { "_id": 1 }] };
    let written = ask(&mut c, "t", insert);
    assert!(time(&written, "operationTime") > time(&reply, "operationTime"));
    let beyond = doc! { "afterClusterTime": Value::Timestamp { t: ahead.0 + 1000, i: 1 } };
    let find = doc! { "find": "c", "readConcern": beyond };
    assert_eq!(code(&ask(&mut c, "t", find)), 72);
}

#[test]
fn commits_of_nothing_outlive_a_crash() {
    if !testkit::persistent() {
        return;
    }
    let port = Reserved::new().unwrap();
    let mut s = set(&["--autoInitiate", "--port", &port.port().to_string()]);
    let mut c = s.connect();
    let now = time(&hello(&mut c), "operationTime");
    let mut last = now;
    for n in 1..20 {
        let ahead = (now.0, now.1 + n * 100);
        let find = doc! {
            "find": "c",
            "readConcern": doc! { "afterClusterTime": Value::Timestamp { t: ahead.0, i: ahead.1 } },
            "$clusterTime": cluster_time(ahead),
        };
        let reply = ask(&mut c, "t", find);
        assert_eq!(code(&reply), 0, "{reply:?}");
        last = time(&reply, "operationTime");
        assert!(last > ahead || last.0 > now.0);
    }
    let insert = doc! { "insert": "c", "documents": array![doc! { "_id": 1 }] };
    assert_eq!(code(&ask(&mut c, "t", insert)), 0);
    s.kill9();
    s.start_again();
    let mut c = s.connect();
    assert!(time(&hello(&mut c), "operationTime") > last);
    let valid = ask(&mut c, "t", doc! { "validate": "c", "full": true });
    assert_eq!(flag(&valid, "valid"), Some(true), "{valid:?}");
    let count = ask(&mut c, "t", doc! { "count": "c" });
    assert_eq!(int(count.as_doc(), "n"), Some(1));
}

#[test]
fn a_standalone_says_what_it_is() {
    let s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    for command in [
        doc! { "replSetInitiate": 1 },
        doc! { "replSetReconfig": doc! {} },
        doc! { "replSetStepDown": 1 },
        doc! { "replSetFreeze": 1 },
        doc! { "replSetMaintenance": 1 },
        doc! { "replSetSyncFrom": "h:1" },
        doc! { "replSetGetRBID": 1 },
        doc! { "replSetGetConfig": 1 },
        doc! { "replSetGetStatus": 1 },
    ] {
        let reply = admin(&mut c, command.clone());
        assert_eq!(code(&reply), 76, "{command:?}");
    }
    let ping = doc! { "ping": 1, "$clusterTime": cluster_time((1, 1)) };
    let reply = admin(&mut c, ping);
    assert_eq!(reply, doc! { "ok": 1.0 });
    let status = admin(&mut c, doc! { "serverStatus": 1 });
    assert!(status.as_doc().get("repl").is_none());
}

/// Only the server that has the lock on the directory may touch the copy that a member makes there.
#[test]
fn a_second_server_leaves_the_copy_of_an_initial_sync_alone() {
    let s = set(&["--autoInitiate"]);
    let copy = s.dir().join("initial-sync");
    std::fs::create_dir(&copy).unwrap();
    let said = s.refused_second();
    assert!(said.contains("Unable to lock"), "{said}");
    assert!(copy.exists());
}
