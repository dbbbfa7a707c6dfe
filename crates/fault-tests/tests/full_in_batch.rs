//! A disk that becomes full during a command, at each of its writes in turn: the reply says exactly what is
//! stored, both then and after a kill.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::wire::{
    collections, ids, index, indexes, insert, int, j, sound, write, write_errors,
};
use muniment_value::{ArrayBuf, DocBuf, JsonMode, array, doc};
use muniment_wire::Connection;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions};

const DB: &str = "full";
const OUT_OF_DISK: i64 = 14_031;

/// More writes than any command here makes.
const MANY: u64 = 20_000;

/// How many writes succeed before the disk is full: each of the first ones in turn, then in growing steps,
/// since a new segment of the log alone takes a thousand.
fn budgets() -> impl Iterator<Item = u64> {
    let steps = std::iter::successors(Some(24_u64), |n| Some(n + n / 4));
    (0..24).chain(steps)
}

/// Waits until the server accepts writes again; false if it does not.
fn taken_again(c: &mut Connection) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    let probe = [doc! { "a": 1 }];
    while insert(c, "elsewhere", "probe", &probe).is_err() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// The effect of a statement that succeeds.
#[derive(Clone, Copy, Debug)]
enum Effect {
    /// This `_id` exists with `v: 0`.
    Inserted(i64),
    /// `v` of this `_id` is one more than before.
    Raised(i64),
    /// This `_id` does not exist.
    Deleted(i64),
}

/// A write command with the effects of its statements.
struct Case {
    name: &'static str,
    /// The options of the collection; empty for none.
    create: &'static str,
    index: Option<&'static str>,
    command: DocBuf,
    /// The effects in the order of the statements; `None` for a statement that must fail by itself.
    effects: Vec<Option<Effect>>,
    ordered: bool,
    /// The collection keeps only this many of the newest documents.
    capped: Option<usize>,
}

/// The number of documents at first, with the `_id`s 1 to 20.
const BEFORE: i64 = 20;

fn seeds() -> Vec<DocBuf> {
    (1..=BEFORE)
        .map(|i| doc! { "_id": i, "v": 0, "u": -i })
        .collect()
}

/// An insert of these documents. Those without an effect must fail by themselves.
fn inserts(name: &'static str, docs: Vec<(i64, i64, bool)>, ordered: bool, padding: usize) -> Case {
    let text = "x".repeat(padding);
    let documents: ArrayBuf = docs
        .iter()
        .map(|(id, u, _)| doc! { "_id": *id, "v": 0, "u": *u, "text": text.as_str() })
        .collect();
    Case {
        name,
        create: "",
        index: Some(r#"{"key": {"u": 1}, "name": "u_1", "unique": true}"#),
        command: doc! { "insert": "c", "documents": documents, "ordered": ordered },
        effects: docs
            .iter()
            .map(|(id, _, fine)| fine.then_some(Effect::Inserted(*id)))
            .collect(),
        ordered,
        capped: None,
    }
}

fn cases() -> Vec<Case> {
    let plain = |from: i64, to: i64| (from..=to).map(|i| (i, i, true));
    let mut twice: Vec<_> = plain(101, 109).collect();
    twice.push((105, 1000, false));
    let mut twice_inside: Vec<_> = plain(101, 105).collect();
    twice_inside.push((103, 1000, false));
    twice_inside.extend(plain(106, 108));
    twice_inside.push((104, 1001, false));
    twice_inside.extend(plain(109, 110));
    let mut same_key: Vec<_> = plain(101, 106).collect();
    same_key.push((107, 103, false));
    same_key.extend(plain(108, 112));
    let statement = |q: &str, u: &str, upsert: bool| {
        let mut d = doc! { "q": j(q), "u": j(u) };
        if upsert {
            d.append("upsert", true);
        }
        d
    };
    const RAISE: &str = r#"{"$inc": {"v": 1}}"#;
    let by_id = |i: i64| statement(&format!(r#"{{"_id": {i}}}"#), RAISE, false);
    let by_range = |i: i64| {
        let q = format!(r#"{{"_id": {{"$gte": {i}, "$lte": {i}}}}}"#);
        statement(&q, RAISE, false)
    };
    let updates = |name, statements: Vec<DocBuf>, effects: Vec<Effect>, ordered: bool| Case {
        name,
        create: "",
        index: Some(r#"{"key": {"v": 1}, "name": "v_1"}"#),
        command: doc! {
            "update": "c", "ordered": ordered,
            "updates": statements.iter().map(DocBuf::as_doc).collect::<ArrayBuf>(),
        },
        effects: effects.into_iter().map(Some).collect(),
        ordered,
        capped: None,
    };
    use Effect::{Deleted, Inserted, Raised};
    let repeated = [1, 2, 3, 1, 4, 1];
    let mixed = |ordered| {
        updates(
            if ordered {
                "mixed updates"
            } else {
                "mixed updates, unordered"
            },
            vec![
                by_id(1),
                by_id(2),
                by_range(5),
                by_id(1),
                statement(r#"{"_id": 200}"#, r#"{"$set": {"v": 0}}"#, true),
                by_id(200),
                by_id(3),
            ],
            vec![
                Raised(1),
                Raised(2),
                Raised(5),
                Raised(1),
                Inserted(200),
                Raised(200),
                Raised(3),
            ],
            ordered,
        )
    };
    let delete = |i: i64, range: bool| {
        let q = match range {
            true => format!(r#"{{"_id": {{"$gte": {i}, "$lte": {i}}}}}"#),
            false => format!(r#"{{"_id": {i}}}"#),
        };
        doc! { "q": j(&q), "limit": 1 }
    };
    let capped: Vec<i64> = (101..=112).collect();
    vec![
        inserts("an _id twice at the end", twice, true, 0),
        inserts("an _id twice, unordered", twice_inside, false, 0),
        inserts("a unique key twice, unordered", same_key, false, 0),
        inserts(
            "larger than one commit",
            plain(101, 108).collect(),
            true,
            600_000,
        ),
        updates(
            "a document updated twice",
            repeated.iter().map(|i| by_id(*i)).collect(),
            repeated.iter().map(|i| Raised(*i)).collect(),
            true,
        ),
        mixed(true),
        mixed(false),
        Case {
            name: "deletes",
            create: "",
            index: Some(r#"{"key": {"v": 1}, "name": "v_1"}"#),
            command: doc! {
                "delete": "c",
                "deletes": array![
                    delete(1, false), delete(2, false), delete(3, true), delete(4, false),
                ],
            },
            effects: (1..=4).map(|i| Some(Deleted(i))).collect(),
            ordered: true,
            capped: None,
        },
        // A capped insert never reports an error for a document that it stores.
        Case {
            name: "inserts that push one another out",
            create: r#"{"capped": true, "size": 100000, "max": 5}"#,
            index: None,
            command: doc! {
                "insert": "c", "ordered": true,
                "documents": capped.iter().map(|i| doc! { "_id": *i, "v": 0 }).collect::<ArrayBuf>(),
            },
            effects: capped.iter().map(|i| Some(Inserted(*i))).collect(),
            ordered: true,
            capped: Some(5),
        },
    ]
}

/// The documents as (`_id`, `v`): sorted by `_id`, or in the order of a capped collection.
fn stored(c: &mut Connection, case: &Case) -> Vec<(i64, i64)> {
    let docs = c.find_all(DB, &doc! { "find": "c" }).unwrap();
    let mut all: Vec<(i64, i64)> = docs
        .iter()
        .map(|d| (int(d.as_doc(), "_id"), int(d.as_doc(), "v")))
        .collect();
    let n = c.command(DB, &doc! { "count": "c" }).unwrap();
    assert_eq!(
        int(n.as_doc(), "n"),
        all.len() as i64,
        "{}: count",
        case.name
    );
    if case.capped.is_none() {
        all.sort_unstable();
    }
    sound(c, DB, "c");
    all
}

/// The documents that must exist after this reply, whether everything succeeded, and the errors in the reply
/// itself.
fn told(case: &Case, reply: &DocBuf) -> (Vec<(i64, i64)>, bool, Vec<String>) {
    let mut all: Vec<(i64, i64)> = (1..=BEFORE).map(|i| (i, 0)).collect();
    if let Some(max) = case.capped {
        all.drain(..all.len() - max);
    }
    if !reply.as_doc().get("ok").is_some_and(|v| v.truthy()) {
        return (all, false, Vec::new());
    }
    let errors: BTreeMap<i64, i64> = write_errors(reply).into_iter().collect();
    let first = errors.keys().next().copied().unwrap_or(i64::MAX);
    let (mut n, mut lies) = (0, Vec::new());
    for (i, effect) in case.effects.iter().enumerate() {
        let i = i as i64;
        if errors.contains_key(&i) || (case.ordered && i > first) {
            continue;
        }
        n += 1;
        match effect {
            None => lies.push(format!("statement {i} should have failed")),
            Some(Effect::Inserted(id)) => all.push((*id, 0)),
            Some(Effect::Raised(id)) => {
                if let Some(d) = all.iter_mut().find(|d| d.0 == *id) {
                    d.1 += 1;
                }
            }
            Some(Effect::Deleted(id)) => all.retain(|d| d.0 != *id),
        }
    }
    let said = int(reply.as_doc(), "n");
    if said != n {
        lies.push(format!("n is {said}, but by the errors it is {n}"));
    }
    if let Some(max) = case.capped {
        all.drain(..all.len().saturating_sub(max));
    } else {
        all.sort_unstable();
    }
    let fine = !errors.values().any(|code| *code == OUT_OF_DISK);
    (all, fine, lies)
}

/// The disk becomes full during a batch, at each of its writes in turn. Exactly the statements for which the
/// reply has no error are stored, also after a kill.
#[test]
fn a_batch_on_a_disk_that_fills_replies_what_is_stored() {
    let mut wrong = Vec::new();
    for case in cases() {
        let mut server = Server::start(ServerOptions::new().budget(u64::MAX));
        for writes in budgets() {
            assert!(writes < MANY, "{}: it never succeeds", case.name);
            let mut c = server.connect();
            c.command(DB, &doc! { "drop": "c" }).unwrap();
            let mut create = doc! { "create": "c" };
            create.append_all(
                j(if case.create.is_empty() {
                    "{}"
                } else {
                    case.create
                })
                .as_doc(),
            );
            c.command(DB, &create).unwrap();
            if let Some(spec) = case.index {
                index(&mut c, DB, "c", spec).unwrap();
            }
            insert(&mut c, DB, "c", &seeds()).unwrap();
            server.set_writes(writes);
            let reply = c.command_raw(DB, &case.command).unwrap();
            server.set_budget(u64::MAX);
            let (expected, fine, lies) = told(&case, &reply);
            let json = reply.as_doc().to_json(JsonMode::Relaxed);
            if !lies.is_empty() {
                wrong.push(format!(
                    "{}, full after {writes} writes: {lies:?}: {json}",
                    case.name
                ));
            }
            if !taken_again(&mut c) {
                wrong.push(format!(
                    "{}, full after {writes} writes: no write is taken again",
                    case.name
                ));
                server.kill9();
                server.start_again();
                c = server.connect();
            }
            for killed in [false, true] {
                if killed {
                    server.kill9();
                    server.start_again();
                    c = server.connect();
                }
                let found = stored(&mut c, &case);
                if found != expected {
                    let less: Vec<_> = expected.iter().filter(|d| !found.contains(d)).collect();
                    let more: Vec<_> = found.iter().filter(|d| !expected.contains(d)).collect();
                    wrong.push(format!(
                        "{}, full after {writes} writes{}: {}\n  not there: {less:?}, there: {more:?}",
                        case.name,
                        if killed { ", after a kill" } else { "" },
                        json,
                    ));
                    break;
                }
            }
            if fine {
                println!("{}: {writes} writes", case.name);
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Everything that can be seen of a database.
fn everything(c: &mut Connection) -> String {
    let mut all = String::new();
    for name in collections(c, DB).unwrap() {
        let list = doc! { "listCollections": 1, "filter": doc! { "name": name.as_str() } };
        let info = c.find_all(DB, &list).unwrap();
        let options = info.first().and_then(|d| d.as_doc().get_doc("options"));
        let options = options.map(|o| o.to_json(JsonMode::Relaxed));
        let find = doc! { "find": name.as_str() };
        let mut found = ids(c, DB, &find).unwrap();
        found.sort_unstable();
        // The leftovers of a command may be removed at any moment.
        let Ok(indexes) = indexes(c, DB, &name) else {
            continue;
        };
        all += &format!("{name} {options:?}\n  {indexes:?}\n  {found:?}\n");
        if !name.starts_with("tmp") {
            sound(c, DB, &name);
        }
    }
    all
}

fn prepare(c: &mut Connection) {
    c.command(DB, &doc! { "dropDatabase": 1 }).unwrap();
    insert(c, DB, "c", &seeds()).unwrap();
    index(c, DB, "c", r#"{"key": {"v": 1}, "name": "v_1"}"#).unwrap();
    index(
        c,
        DB,
        "c",
        r#"{"key": {"u": 1}, "name": "u_1", "prepareUnique": true}"#,
    )
    .unwrap();
    let others: Vec<DocBuf> = (500..550)
        .map(|i| doc! { "_id": i, "v": 1, "u": i })
        .collect();
    insert(c, DB, "d", &others).unwrap();
    index(c, DB, "d", r#"{"key": {"v": -1}, "name": "v_-1"}"#).unwrap();
}

/// The disk becomes full during a change of the catalog, at each of its writes in turn. A change that is
/// reported as failed has changed nothing (an index whose build could not be recorded is not used), and one
/// that is reported as done is done, also after a kill.
#[test]
fn a_change_of_the_catalog_on_a_disk_that_fills_is_whole_or_nothing() {
    let changes = [
        ("full", r#"{"create": "e", "capped": true, "size": 4096}"#),
        ("full", r#"{"drop": "c"}"#),
        (
            "full",
            r#"{"createIndexes": "c", "indexes": [{"key": {"v": 1, "u": 1}, "name": "both"}]}"#,
        ),
        ("full", r#"{"dropIndexes": "c", "index": "v_1"}"#),
        (
            "admin",
            r#"{"renameCollection": "full.d", "to": "full.c", "dropTarget": true}"#,
        ),
        ("full", r#"{"convertToCapped": "c", "size": 1000000}"#),
        (
            "full",
            r#"{"aggregate": "d", "pipeline": [{"$out": "c"}], "cursor": {}}"#,
        ),
        (
            "full",
            r#"{"collMod": "c", "index": {"name": "u_1", "unique": true}}"#,
        ),
        (
            "full",
            r#"{"collMod": "c", "index": {"name": "v_1", "hidden": true}}"#,
        ),
    ];
    let mut wrong = Vec::new();
    for (db, change) in changes {
        let mut server = Server::start(ServerOptions::new().budget(u64::MAX));
        let mut c = server.connect();
        prepare(&mut c);
        let before = everything(&mut c);
        c.command(db, &j(change)).unwrap();
        let after = everything(&mut c);
        assert_ne!(before, after, "{change}: does nothing");
        for writes in budgets() {
            assert!(writes < MANY, "{change}: it never succeeds");
            prepare(&mut c);
            server.set_writes(writes);
            let reply = c.command_raw(db, &j(change)).unwrap();
            server.set_budget(u64::MAX);
            let done = reply.as_doc().get("ok").is_some_and(|v| v.truthy());
            let expected = if done { &after } else { &before };
            if !taken_again(&mut c) {
                wrong.push(format!(
                    "{change}, full after {writes} writes: no write is taken again"
                ));
                server.kill9();
                server.start_again();
                c = server.connect();
            }
            for killed in [false, true] {
                if killed {
                    server.kill9();
                    server.start_again();
                    c = server.connect();
                }
                // The leftovers of a failed change may be removed without the client.
                let deadline = Instant::now() + Duration::from_secs(3);
                let mut found = everything(&mut c);
                // If the disk was so full that a build could not even be cancelled, the build continues after
                // a restart, like every build that a crash has interrupted.
                let builds = change.contains("createIndexes") || change.contains("unique");
                if killed && builds && found == after {
                    break;
                }
                while found != *expected && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(50));
                    found = everything(&mut c);
                }
                if found != *expected {
                    let only = |a: &str, b: &str| -> Vec<String> {
                        let differs = |l: &&str| !b.lines().any(|o| o == *l);
                        a.lines().filter(differs).map(str::to_owned).collect()
                    };
                    wrong.push(format!(
                        "{change}, full after {writes} writes{}: {}\n  not there: {:?}\n  there: {:?}",
                        if killed { ", after a kill" } else { "" },
                        reply.as_doc().to_json(JsonMode::Relaxed),
                        only(expected, &found),
                        only(&found, expected),
                    ));
                    break;
                }
            }
            if done {
                println!("{change}: {writes} writes");
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// While writes are refused and while they are accepted again, reads continue, and a long read does not delay
/// the writes.
#[test]
fn readers_go_on_while_a_full_disk_is_overcome() {
    let server = Server::start(ServerOptions::new().budget(u64::MAX));
    let mut c = server.connect();
    let docs: Vec<DocBuf> = (0..1000).map(|i| doc! { "_id": i, "v": 0 }).collect();
    insert(&mut c, DB, "c", &docs).unwrap();
    let (stop, slowest) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut taken = None;
    std::thread::scope(|scope| {
        // This reader keeps its view all the time.
        let mut long = server.connect();
        scope.spawn(move || {
            let cmd = r#"{"aggregate": "c", "cursor": {}, "comment": "long", "pipeline": [
                {"$set": {"m": {"$range": [0, 100000]}}}, {"$unwind": "$m"}, {"$match": {"m": -1}}]}"#;
            // It is killed at the end.
            let _ = long.command(DB, &j(cmd));
        });
        let mut reader = server.connect();
        let (stop, slowest) = (&stop, &slowest);
        scope.spawn(move || {
            while !stop.load(SeqCst) {
                let began = Instant::now();
                let find = doc! { "find": "c", "filter": doc! { "_id": 7 } };
                assert_eq!(reader.find_all(DB, &find).unwrap().len(), 1);
                let took = began.elapsed().as_millis() as u64;
                slowest.fetch_max(took, SeqCst);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        slowest.store(0, SeqCst);
        // The write fails halfway.
        server.set_writes(2);
        let text = "x".repeat(100_000);
        let large: Vec<DocBuf> = (5000..5030)
            .map(|i| doc! { "_id": i, "text": text.as_str() })
            .collect();
        let refused = insert(&mut c, DB, "c", &large);
        std::thread::sleep(Duration::from_millis(300));
        server.set_budget(u64::MAX);
        let back = Instant::now();
        while back.elapsed() < Duration::from_secs(4) && taken.is_none() {
            if insert(&mut c, DB, "c", &[doc! { "v": 1 }]).is_ok() {
                taken = Some(back.elapsed());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, SeqCst);
        kill_by_comment(&mut c, "long");
        assert!(refused.is_err(), "acknowledged on a full disk");
    });
    let slowest = slowest.into_inner();
    println!("slowest read {slowest} ms, writes taken after {taken:?}");
    assert!(slowest < 250, "a read waited {slowest} ms");
    assert!(taken.is_some(), "no write was taken while a read went on");
}

fn kill_by_comment(c: &mut Connection, comment: &str) {
    let running = c.command("admin", &doc! { "currentOp": 1 }).unwrap();
    let list = running.as_doc().get_array("inprog").unwrap();
    for op in list.values().filter_map(|v| v.as_doc()) {
        let its = op.get_doc("command").and_then(|d| d.get_str("comment"));
        if its == Some(comment) {
            let kill = doc! { "killOp": 1, "op": int(op, "opid") };
            c.command("admin", &kill).unwrap();
        }
    }
}

/// After a failed sync, nothing is acknowledged as journaled that a power cut then undoes, nor anything
/// before it. Each sync fails in turn.
#[test]
fn after_a_failed_sync_what_is_acknowledged_survives_a_power_cut() {
    let options = ServerOptions::new()
        .budget(u64::MAX)
        .powerloss()
        .sync_delay(Duration::from_millis(30));
    let mut server = Server::start(options);
    let mut next = 0_i64;
    let mut wrong = Vec::new();
    let mut acknowledged: Vec<i64> = Vec::new();
    let mut refused = 0;
    for syncs in 0..12 {
        let mut c = server.connect();
        server.fail_sync(syncs);
        let mut one = |c: &mut Connection, journaled: bool| {
            let documents = array![doc! { "_id": next, "text": "x".repeat(100) }];
            let concern = doc! { "w": 1, "j": journaled };
            let cmd = doc! { "insert": "c", "documents": documents, "writeConcern": concern };
            next += 1;
            let reply = write(c, DB, &cmd)?;
            match reply.as_doc().get("writeConcernError") {
                None => Ok(next - 1),
                Some(e) => Err(muniment_value::Error::internal(format!("{e:?}"))),
            }
        };
        // The writes before the last one are covered by its journaling.
        let mut failed = 0;
        let mut here = Vec::new();
        for i in 0..20 {
            match one(&mut c, i % 5 == 4) {
                Ok(id) => here.push(id),
                Err(_) => failed += 1,
            }
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match one(&mut c, true) {
                Ok(id) => {
                    here.push(id);
                    break;
                }
                Err(e) => assert!(Instant::now() < deadline, "no write is taken: {e}"),
            }
            failed += 1;
        }
        acknowledged.extend(here);
        refused += failed;
        // The server has a good disk when it starts again.
        server.cut_power();
        server.set_budget(u64::MAX);
        server.start_again();
        let found = ids(&mut server.connect(), DB, &doc! { "find": "c" }).unwrap();
        let lost: Vec<i64> = acknowledged
            .iter()
            .copied()
            .filter(|id| !found.contains(id))
            .collect();
        if !lost.is_empty() {
            wrong.push(format!(
                "sync {syncs} failed ({failed} inserts refused): lost {lost:?}"
            ));
            acknowledged.retain(|id| found.contains(id));
        }
    }
    println!("{refused} inserts refused");
    assert!(refused > 0, "no sync ever failed");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
