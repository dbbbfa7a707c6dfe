//! Refusals of members that are not primary, and the handover by a primary that ends: real servers, over the
//! wire. `cargo xtask test --only pymongo` and the like show the same with drivers (`handovers.py`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod set;

use muniment_value::{Doc, DocBuf, Value, array, doc};
use muniment_wire::Connection;
use set::{insert, lines};
use std::time::{Duration, Instant};
use testkit::{ServerOptions, Set, ask_to_end, freeze, thaw};

/// A set of three with the default election timeout, so that a handover which has to wait for it is noticed.
fn slow_set(options: &ServerOptions) -> Set {
    let set = Set::prepare(3, options);
    let members = (0..3).map(|i| doc! { "_id": i, "host": set.host(i as usize) });
    let members = members.collect::<Vec<_>>();
    let members = members.iter().collect::<muniment_value::ArrayBuf>();
    set.initiate(&doc! { "_id": "rs0", "members": members });
    set
}

fn code(reply: Doc<'_>) -> Option<i64> {
    reply.get("code")?.as_i64_exact()
}

/// A planned end of the primary takes moments, whether a signal or a command asks for it.
#[test]
fn a_primary_that_ends_hands_over() {
    let mut set = slow_set(&ServerOptions::new());
    for (id, how) in ["signal", "command"].into_iter().enumerate() {
        let first = set.primary();
        insert(&mut set.connect(first), id as i32, doc! { "w": 3 });
        let began = Instant::now();
        if how == "command" {
            // The reply may or may not come before the connection ends.
            let _ = set
                .connect(first)
                .command_raw("admin", &doc! { "shutdown": 1 });
        }
        let status = set.members[first].terminate();
        assert!(status.success(), "{how}: {status}");
        let second = set.primary();
        let took = began.elapsed();
        assert_ne!(first, second);
        assert!(
            took < Duration::from_secs(5),
            "{how}: no primary for {took:?}"
        );
        set.members[first].start_again();
        set.settle();
    }
}

/// A set whose members are all ended at once ends soon: its last primary does not wait for a successor.
#[test]
fn a_set_that_ends_as_a_whole_ends_soon() {
    let mut set = slow_set(&ServerOptions::new());
    let began = Instant::now();
    let pids = set.members.iter().map(|m| m.pid().unwrap());
    pids.for_each(ask_to_end);
    while set.members.iter_mut().any(|m| m.is_running()) {
        let took = began.elapsed();
        assert!(took < Duration::from_secs(8), "{took:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// No member can take over. The command is refused unless it is forced. A signal waits for the configured
/// time, and ends the server at once if it comes twice.
#[test]
fn without_a_successor_a_server_ends_all_the_same() {
    let patience = "shutdownTimeoutMillisForSignaledShutdown=1000";
    let options = ServerOptions::new().arg("--setParameter").arg(patience);
    let mut set = slow_set(&options);
    let alone = |set: &Set| {
        let primary = set.primary();
        let others: Vec<u32> = (0..3)
            .filter(|i| *i != primary)
            .map(|i| set.members[i].pid().unwrap())
            .collect();
        others.iter().for_each(|pid| freeze(*pid));
        // The primary writes a document that the others do not get any more.
        insert(&mut set.connect(primary), others[0] as i32, doc! { "w": 1 });
        (primary, others)
    };
    let goes_on = |set: &mut Set, primary: usize, others: &[u32]| {
        others.iter().for_each(|pid| thaw(*pid));
        set.members[primary].start_again();
        set.settle();
    };
    let (primary, others) = alone(&set);
    let shutdown = |force: bool| doc! { "shutdown": 1, "force": force, "timeoutSecs": 1 };
    let mut c = set.connect(primary);
    let reply = c.command_raw("admin", &shutdown(false)).unwrap();
    assert_eq!(code(reply.as_doc()), Some(262), "{reply:?}");
    assert!(set.members[primary].is_running());
    let began = Instant::now();
    let _ = c.command_raw("admin", &shutdown(true));
    set.members[primary].terminate();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(8), "force: {took:?}");
    goes_on(&mut set, primary, &others);

    let (primary, others) = alone(&set);
    let began = Instant::now();
    set.members[primary].terminate();
    let took = began.elapsed();
    assert!(took > Duration::from_millis(900), "{took:?}");
    assert!(took < Duration::from_secs(8), "{took:?}");
    assert!(lines(&set.members[primary], "No other member has taken over") > 0);
    goes_on(&mut set, primary, &others);

    let (primary, others) = alone(&set);
    let longer = doc! { "setParameter": 1, "shutdownTimeoutMillisForSignaledShutdown": 600_000 };
    set.connect(primary).command("admin", &longer).unwrap();
    let pid = set.members[primary].pid().unwrap();
    ask_to_end(pid);
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        set.members[primary].is_running(),
        "it waits for a successor"
    );
    let began = Instant::now();
    set.members[primary].terminate();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "twice: {took:?}");
    goes_on(&mut set, primary, &others);
}

/// A command that waits for a write concern continues to wait while the primary offers the leadership to a
/// member that does not take it, and can be ended during that and afterwards.
#[test]
fn a_write_that_waits_beside_a_vain_handover_can_be_ended() {
    let set = Set::prepare(5, &ServerOptions::new());
    // Two of them may lead, and with any other member they are a majority.
    let members = (0..5_i32)
        .map(|i| doc! { "_id": i, "host": set.host(i as usize), "priority": i32::from(i < 2) });
    let members = members.collect::<Vec<_>>();
    let members = members.iter().collect::<muniment_value::ArrayBuf>();
    let settings = doc! { "electionTimeoutMillis": 3000 };
    set.initiate(&doc! { "_id": "rs0", "members": members, "settings": settings });
    let primary = set.primary();
    insert(&mut set.connect(primary), 1, doc! { "w": 5 });
    let frozen = [1 - primary, 2].map(|i| set.members[i].pid().unwrap());
    freeze(frozen[1]);
    let waiting = |id: i32, max_ms: i32| {
        let mut c = set.connect(primary);
        let cmd = doc! {
            "insert": "c", "documents": array![doc! { "_id": id }], "maxTimeMS": max_ms,
            "writeConcern": doc! { "w": 5 }, "comment": id,
        };
        std::thread::spawn(move || c.command_raw("test", &cmd).unwrap())
    };
    let (limited, killed) = (waiting(77, 6000), waiting(78, 0));
    std::thread::sleep(Duration::from_millis(500));
    freeze(frozen[0]);
    let mut c = set.connect(primary);
    // The member was heard a moment ago, so it is asked to take over.
    let down = doc! { "replSetStepDown": 30, "secondaryCatchUpPeriodSecs": 1 };
    let reply = c.command_raw("admin", &down).unwrap();
    assert_eq!(code(reply.as_doc()), Some(262), "{reply:?}");
    assert!(!killed.is_finished() && !limited.is_finished());
    let ops = doc! { "currentOp": 1, "command.comment": 78 };
    let ops = c.command("admin", &ops).unwrap();
    let op = ops.as_doc().get_array("inprog").unwrap().values().next();
    let op = op.unwrap().as_doc().unwrap().get("opid").unwrap();
    c.command("admin", &doc! { "killOp": 1, "op": op }).unwrap();
    for (waiter, wanted) in [(killed, 11601), (limited, 50)] {
        let began = Instant::now();
        while !waiter.is_finished() {
            assert!(began.elapsed() < Duration::from_secs(10), "{wanted}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let reply = waiter.join().unwrap();
        let error = reply.as_doc().get_doc("writeConcernError").unwrap();
        assert_eq!(code(error), Some(wanted), "{reply:?}");
    }
    frozen.into_iter().for_each(thaw);
}

/// A step down that is cancelled while the primary waits for a successor does not happen later either.
#[test]
fn a_step_down_that_is_given_up_does_not_happen() {
    let set = slow_set(&ServerOptions::new());
    let primary = set.primary();
    let mut c = set.connect(primary);
    let asks = [
        doc! { "shutdown": 1, "timeoutSecs": 60, "maxTimeMS": 300 },
        doc! { "replSetStepDown": 60, "secondaryCatchUpPeriodSecs": 50, "maxTimeMS": 300 },
    ];
    for (id, ask) in asks.iter().enumerate() {
        insert(&mut c, 2 * id as i32, doc! { "w": 3 });
        let others = (0..3).filter(|i| *i != primary);
        let others: Vec<u32> = others.map(|i| set.members[i].pid().unwrap()).collect();
        others.iter().for_each(|pid| freeze(*pid));
        insert(&mut c, 2 * id as i32 + 1, doc! { "w": 1 });
        let reply = c.command_raw("admin", ask).unwrap();
        assert_eq!(code(reply.as_doc()), Some(50), "{reply:?}");
        others.iter().for_each(|pid| thaw(*pid));
        let reply = insert(&mut c, 100 + id as i32, doc! { "w": 3, "wtimeout": 20_000 });
        assert!(
            reply.as_doc().get("writeConcernError").is_none(),
            "{reply:?}"
        );
        std::thread::sleep(Duration::from_millis(500));
        let hello = c.command("admin", &doc! { "hello": 1 }).unwrap();
        let leads = hello.as_doc().get("isWritablePrimary");
        assert!(matches!(leads, Some(Value::Bool(true))), "{hello:?}");
    }
}

/// A shutdown whose time limit is over ends the server, or leaves a member that may become primary.
#[test]
fn a_shutdown_whose_time_is_over_leaves_nobody_who_never_leads() {
    let mut set = slow_set(&ServerOptions::new());
    for (id, ms) in [40, 80, 150].into_iter().enumerate() {
        let primary = set.primary();
        let mut c = set.connect(primary);
        insert(&mut c, id as i32, doc! { "w": 3 });
        let ask = doc! { "shutdown": 1, "maxTimeMS": ms };
        let reply = c.command_raw("admin", &ask);
        let refused = reply.is_ok_and(|r| code(r.as_doc()) == Some(50));
        if refused {
            set.settle();
            let mut c = set.connect(primary);
            c.command("admin", &doc! { "replSetStepUp": 1 }).unwrap();
        } else {
            let began = Instant::now();
            while set.members[primary].is_running() {
                assert!(began.elapsed() < Duration::from_secs(5), "{ms}");
                std::thread::sleep(Duration::from_millis(20));
            }
            set.members[primary].terminate();
            set.members[primary].start_again();
        }
        set.settle();
    }
}

/// A command in a session, as drivers send it.
fn of_session(command: &DocBuf, id: u8, more: DocBuf) -> DocBuf {
    let id = Value::Binary {
        subtype: 4,
        bytes: &[id; 16],
    };
    let mut d = command.clone();
    d.append("lsid", doc! { "id": id });
    d.append_all(more.as_doc());
    d
}

fn labels(reply: Doc<'_>) -> Vec<String> {
    let all = reply.get_array("errorLabels").unwrap_or(Doc::EMPTY);
    all.values()
        .map(|v| v.as_str().unwrap().to_string())
        .collect()
}

/// A member that is not primary refuses with the labels that make drivers send a command again, and with the
/// topology version by which they recognize outdated answers.
#[test]
fn a_refusal_has_the_labels_that_its_command_deserves() {
    let set = Set::start(3);
    let primary = set.primary();
    let mut c = set.connect((primary + 1) % 3);
    let retryable = || doc! { "txnNumber": 1_i64 };
    let starts = || doc! { "txnNumber": 1_i64, "autocommit": false, "startTransaction": true };
    let goes_on = || doc! { "txnNumber": 1_i64, "autocommit": false };
    let insert = doc! { "insert": "c", "documents": array![doc! { "_id": 1 }] };
    let update = doc! { "update": "c", "updates": array![doc! { "q": doc! {}, "u": doc! { "$set": doc! { "a": 1 } } }] };
    let delete = doc! { "delete": "c", "deletes": array![doc! { "q": doc! {}, "limit": 1 }] };
    let modify = doc! { "findAndModify": "c", "remove": true };
    let bulk = doc! {
        "bulkWrite": 1,
        "ops": array![doc! { "insert": 0, "document": doc! { "_id": 1 } }],
        "nsInfo": array![doc! { "ns": "test.c" }],
    };
    let find = doc! { "find": "c" };
    let watch = doc! { "aggregate": "c", "pipeline": array![doc! { "$changeStream": doc! {} }], "cursor": doc! {} };
    let (write, again, resume) = (
        "RetryableWriteError",
        "TransientTransactionError",
        "ResumableChangeStreamError",
    );
    let mut cases = vec![
        ("test", insert.clone(), 10107, None),
        ("test", find.clone(), 13435, None),
        ("test", watch, 13435, Some(resume)),
        ("test", doc! { "create": "d" }, 10107, None),
        ("test", of_session(&find, 9, starts()), 10107, Some(again)),
    ];
    for (session, cmd) in [&insert, &update, &delete, &modify].into_iter().enumerate() {
        let session = session as u8;
        cases.push((
            "test",
            of_session(cmd, session, retryable()),
            10107,
            Some(write),
        ));
        cases.push((
            "test",
            of_session(cmd, session + 10, starts()),
            10107,
            Some(again),
        ));
    }
    cases.push((
        "admin",
        of_session(&bulk, 20, retryable()),
        10107,
        Some(write),
    ));
    cases.push(("admin", of_session(&bulk, 21, starts()), 10107, Some(again)));
    for d in [
        doc! { "commitTransaction": 1 },
        doc! { "abortTransaction": 1 },
    ] {
        cases.push(("admin", of_session(&d, 9, goes_on()), 10107, Some(write)));
    }
    for (db, command, wanted, label) in cases {
        let reply = c.command_raw(db, &command).unwrap();
        let d = reply.as_doc();
        assert_eq!(code(d), Some(wanted), "{command:?}: {reply:?}");
        assert_eq!(
            labels(d),
            label.into_iter().collect::<Vec<_>>(),
            "{command:?}: {reply:?}"
        );
        let hello = c.command("admin", &doc! { "hello": 1 }).unwrap();
        let topology = |d: Doc<'_>| d.get_doc("topologyVersion").unwrap().to_buf();
        assert_eq!(topology(d), topology(hello.as_doc()), "{command:?}");
    }
}

/// No answer of a member that is not primary has the topology version of the time in which it was: a driver
/// would take it for outdated, and ask the same member again. Writes that wait for other members when the
/// primary hands over are acknowledged, since the next primary has them.
#[test]
fn writes_beside_a_step_down_are_acknowledged_or_refused_with_the_new_state() {
    let set = Set::start(3);
    for round in 0..4 {
        let primary = set.primary();
        let before = set
            .connect(primary)
            .command("admin", &doc! { "hello": 1 })
            .unwrap();
        let counter = |d: Doc<'_>| {
            let d = d.get_doc("topologyVersion").unwrap();
            d.get("counter").unwrap().as_i64_exact().unwrap()
        };
        let before = counter(before.as_doc());
        std::thread::scope(|s| {
            let writers: Vec<_> = (0..4)
                .map(|w| {
                    let mut c = set.connect(primary);
                    s.spawn(move || write_until_refused(&mut c, round * 4 + w))
                })
                .collect();
            std::thread::sleep(Duration::from_millis(100));
            let down = doc! { "replSetStepDown": 2, "secondaryCatchUpPeriodSecs": 1 };
            set.connect(primary).command("admin", &down).unwrap();
            for w in writers {
                let refused = w.join().unwrap();
                let after = counter(refused.as_doc());
                assert!(after > before, "{before}: {refused:?}");
            }
        });
        set.settle();
        // After this time the member that has stepped down may be elected again.
        std::thread::sleep(Duration::from_millis(2200));
    }
}

/// Writes with the write concern majority until the member is not primary any more, and returns its refusal.
fn write_until_refused(c: &mut Connection, writer: i32) -> DocBuf {
    for n in 0.. {
        let document = doc! { "w": writer, "n": n };
        let cmd = doc! { "insert": "c", "documents": array![document], "writeConcern": doc! { "w": "majority" } };
        let reply = c.command_raw("test", &cmd).unwrap();
        let d = reply.as_doc();
        if code(d).is_some() || d.get("writeConcernError").is_some() {
            return reply;
        }
    }
    unreachable!()
}
