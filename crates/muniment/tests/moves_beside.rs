//! What else happens to a collection while a range of it moves: indexes, transactions, drops, deletion by age, change
//! streams; and moves that their routers leave.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod moving;

use moving::*;
use muniment_value::{Code, DocBuf, doc};
use muniment_wire::Connection;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use testkit::shell;

/// A collection with 200 documents on one shard, which owns all of it in two chunks.
fn on_one_shard(c: &mut Connection) -> Vec<Chunk> {
    divide(c, "d.c", "{k: 1}", &["{k: 100}"]);
    insert(
        c,
        "d",
        "c",
        (0..200).map(|i| doc! { "_id": i, "k": i, "n": 0 }),
    );
    chunks(c, "d.c")
}

fn count(c: &mut Connection) -> i64 {
    number(&run(c, "d", "{count: 'c', query: {k: {$gte: 0}}}"), "n")
}

fn indexes(c: &mut Connection) -> Vec<String> {
    let all = all(c, "d", "{listIndexes: 'c'}");
    let mut names: Vec<_> = all
        .iter()
        .map(|d| d.as_doc().get_str("name").unwrap().to_string())
        .collect();
    names.sort();
    names
}

/// An index that the documents of one shard do not allow is on the other one alone. Ranges cannot move there then, and
/// everything else goes on.
#[test]
fn an_index_that_one_shard_does_not_allow_stops_moves_alone() {
    let cluster = cluster(2, 1, 2);
    let (mut c, mut late) = (cluster.connect(), cluster.routers[1].connect());
    let all_of = on_one_shard(&mut c);
    let (from, to) = (all_of[0].shard.as_str(), other(&all_of[0].shard));
    move_to(&mut c, "d.c", &all_of[1], to, true).unwrap();
    run(
        &mut c,
        "d",
        "{update: 'c', updates: [{q: {k: 5}, u: {$set: {x: [1, 2], y: [1, 2]}}}]}",
    );
    fails(
        &mut c,
        "d",
        "{createIndexes: 'c', indexes: [{key: {x: 1, y: 1}, name: 'xy'}]}",
        171,
    );
    let there = usize::from(to == "s1");
    assert!(indexes(&mut cluster.shards[there].connect(0)).contains(&"xy".to_string()));
    assert!(!indexes(&mut cluster.shards[1 - there].connect(0)).contains(&"xy".to_string()));
    for c in [&mut c, &mut late] {
        for _ in 0..3 {
            let e = move_to(c, "d.c", &all_of[0], to, true).unwrap_err();
            assert_eq!(e.code(), Code::CannotIndexParallelArrays, "{e}");
            assert_eq!(count(c), 200);
        }
        run(
            c,
            "d",
            "{update: 'c', updates: [{q: {}, u: {$inc: {n: 1}}, multi: true}]}",
        );
    }
    assert_eq!(chunks(&mut c, "d.c")[0].shard, from);
    // Without the index nothing is in the way. It is dropped where it is.
    fails(&mut c, "d", "{dropIndexes: 'c', index: 'none'}", 27);
    run(
        &mut c,
        "d",
        "{createIndexes: 'c', indexes: [{key: {n: 1}, name: 'n'}]}",
    );
    run(&mut c, "d", "{dropIndexes: 'c', index: ['xy', 'n']}");
    for shard in &cluster.shards {
        assert_eq!(indexes(&mut shard.connect(0)), ["_id_", "k_1"]);
    }
    move_to(&mut c, "d.c", &all_of[0], to, true).unwrap();
    assert_eq!((count(&mut c), count(&mut late)), (200, 200));
}

/// Indexes that come and go around a move are the same on both shards in the end, or the move fails.
#[test]
fn indexes_change_around_a_move() {
    let cluster = cluster(2, 1, 2);
    let (mut c, mut late) = (cluster.connect(), cluster.routers[1].connect());
    let all_of = on_one_shard(&mut c);
    let (from, to) = (all_of[0].shard.as_str(), other(&all_of[0].shard));
    let number_of = |shard: &str| usize::from(shard == "s1");
    let mut there = cluster.shards[number_of(to)].connect(0);
    let mut here = cluster.shards[number_of(from)].connect(0);
    for (turn, step) in ["afterBegin", "afterCopy", "afterGive"]
        .into_iter()
        .enumerate()
    {
        let create = format!(
            "{{createIndexes: 'c', indexes: [{{key: {{n: 1, x{turn}: 1}}, name: 'x{turn}'}}]}}"
        );
        let made = thread::scope(|s| {
            let late = &mut late;
            let (made, is_made) = std::sync::mpsc::channel();
            while_stopped(&cluster, step, ("d.c", &all_of[0], to), || {
                let make = s.spawn(move || {
                    run(late, "d", &create);
                    let _ = made.send(());
                });
                // After the donor has given, it takes no more indexes: the command waits for the move.
                let waits = step == "afterGive";
                let got =
                    is_made.recv_timeout(Duration::from_millis(if waits { 300 } else { 20_000 }));
                assert_eq!(got.is_ok(), !waits, "{step}");
                if !waits {
                    make.join().unwrap();
                }
            })
        });
        let name = format!("x{turn}");
        match made {
            Err(e) => assert_eq!(e.code().0, 117, "{step}: {e}"),
            Ok(_) => {
                assert_eq!(step, "afterGive");
                assert!(
                    indexes(&mut there).contains(&name),
                    "{step}: {:?}",
                    indexes(&mut there)
                );
            }
        }
        assert!(indexes(&mut here).contains(&name), "{step}");
        assert_eq!(count(&mut c), 200);
    }
    // The shard that had no chunk for a while hears of what was dropped and changed meanwhile.
    move_to(&mut c, "d.c", &all_of[0], from, true).unwrap();
    run(&mut c, "d", "{dropIndexes: 'c', index: 'x1'}");
    run(
        &mut c,
        "d",
        "{createIndexes: 'c', indexes: [{key: {k: 1, u: 1}, name: 'u', unique: true}]}",
    );
    run(&mut c, "d", "{collMod: 'c', validator: {n: {$lt: 10}}}");
    move_to(&mut c, "d.c", &all_of[1], to, true).unwrap();
    assert_eq!(indexes(&mut here), indexes(&mut there));
    let refused = c.command(
        "d",
        &shell("{insert: 'c', documents: [{_id: 150.5, k: 150.5, n: 11}]}"),
    );
    assert!(refused.unwrap().as_doc().get("writeErrors").is_some());
    for shard in [&mut here, &mut there] {
        let valid = run(shard, "d", "{validate: 'c', full: true}");
        assert!(valid.as_doc().get("valid").unwrap().truthy(), "{valid:?}");
    }
    assert_eq!(all(&mut c, "d", "{find: 'c', hint: 'x0'}").len(), 200);
}

/// A drop waits for the move, or ends it; nothing is left on a shard.
#[test]
fn a_collection_is_dropped_while_it_moves() {
    let cluster = cluster(2, 1, 2);
    let (mut c, mut late) = (cluster.connect(), cluster.routers[1].connect());
    for step in ["afterBegin", "afterCopy", "afterGive", "afterFinish"] {
        let all_of = on_one_shard(&mut c);
        let to = other(&all_of[0].shard);
        thread::scope(|s| {
            let late = &mut late;
            let mut dropped = None;
            let _ = while_stopped(&cluster, step, ("d.c", &all_of[0], to), || {
                dropped = Some(s.spawn(move || run(late, "d", "{drop: 'c'}")));
                // The right to change the collection grows old meanwhile, once.
                let pause = if step == "afterGive" { 9000 } else { 100 };
                thread::sleep(Duration::from_millis(pause));
            });
            dropped.unwrap().join().unwrap();
        });
        for shard in &cluster.shards {
            let left = all(&mut shard.connect(0), "d", "{listCollections: 1}");
            assert!(left.is_empty(), "{step}: {left:?}");
        }
        assert_eq!(count(&mut c), 0);
        assert!(all(&mut c, "config", "{find: 'chunks'}").is_empty());
    }
}

/// A transaction that uses the collection makes a move wait and give up, on either shard; others are not held up.
#[test]
fn transactions_hold_moves_up() {
    let cluster = cluster(2, 1, 1);
    let mut c = cluster.connect();
    let all_of = on_one_shard(&mut c);
    let to = other(&all_of[0].shard);
    move_to(&mut c, "d.c", &all_of[1], to, true).unwrap();
    for (turn, k) in [5, 150, 6, 151].into_iter().enumerate() {
        let of = (session(3, turn as u64), 1_i64);
        let of = (&of.0, of.1);
        let update =
            format!("{{update: 'c', updates: [{{q: {{k: {k}}}, u: {{$inc: {{n: 1}}}}}}]}}");
        statement(&mut c, "d", &update, of, true).unwrap();
        let worst = thread::scope(|s| {
            let (mut mover, mut writer) = (cluster.connect(), cluster.connect());
            let chunk = &all_of[0];
            let moved = s.spawn(move || move_to(&mut mover, "d.c", chunk, to, false));
            let mut worst = Duration::ZERO;
            let begun = Instant::now();
            while !moved.is_finished() {
                for k in [50, 120] {
                    let one = Instant::now();
                    let update = format!(
                        "{{update: 'c', updates: [{{q: {{k: {k}}}, u: {{$inc: {{m: 1}}}}}}]}}"
                    );
                    run(&mut writer, "d", &update);
                    worst = worst.max(one.elapsed());
                }
                // The later ones end their transaction before the move gives up.
                if turn >= 2 && begun.elapsed() > Duration::from_millis(1500) {
                    let mut commit = numbered(doc! { "commitTransaction": 1 }, of.0, of.1);
                    commit.append("autocommit", false);
                    c.command("admin", &commit).unwrap();
                    break;
                }
            }
            match moved.join().unwrap() {
                Ok(_) => assert!(turn >= 2, "turn {turn}: moved"),
                Err(e) => {
                    assert_eq!(e.code().0, 24, "{e}");
                    assert!(turn < 2, "turn {turn}: {e}");
                }
            }
            worst
        });
        assert!(worst < Duration::from_secs(4), "turn {turn}: {worst:?}");
        if turn < 2 {
            // The transaction goes on.
            statement(&mut c, "d", &update, of, false).unwrap();
            let mut commit = numbered(doc! { "commitTransaction": 1 }, of.0, of.1);
            commit.append("autocommit", false);
            c.command("admin", &commit).unwrap();
        } else {
            move_to(&mut c, "d.c", &all_of[0], &all_of[0].shard, true).unwrap();
        }
    }
    let sum = all(
        &mut c,
        "d",
        "{aggregate: 'c', pipeline: [{$group: {_id: null, n: {$sum: '$n'}, c: {$sum: 1}}}], cursor: {}}",
    );
    assert_eq!((number(&sum[0], "n"), number(&sum[0], "c")), (6, 200));
}

/// A long read is not ended since a range that it reads has moved away, nor since it comes back.
#[test]
fn a_range_is_not_cleaned_under_those_that_read_it() {
    let cluster = cluster(2, 1, 2);
    let mut c = cluster.connect();
    let all_of = on_one_shard(&mut c);
    let (chunk, from) = (&all_of[0], all_of[0].shard.clone());
    let mut mover = cluster.routers[1].connect();
    // An operation that looks at one document after the other. While it runs there is no cursor yet, but the cursor that it
    // leaves begins its view again.
    let slow = "{find: 'c', filter: {$where: 'sleep(20) || true'}, batchSize: 150}";
    thread::scope(|s| {
        let reader = s.spawn(|| {
            let mut c = cluster.connect();
            let first = run(&mut c, "d", slow);
            let id = number(&first.as_doc().get_doc("cursor").unwrap().to_buf(), "id");
            let more = doc! { "getMore": id, "collection": "c" };
            let rest = c.command("d", &more).unwrap();
            let rest = rest.as_doc().get_doc("cursor").unwrap();
            rest.get_array("nextBatch").unwrap().values().count()
        });
        thread::sleep(Duration::from_millis(300));
        move_to(&mut mover, "d.c", chunk, other(&from), false).unwrap();
        // The cleaner looks twice a second.
        thread::sleep(Duration::from_millis(1200));
        assert!(!reader.is_finished(), "the read was to last longer");
        move_to(&mut mover, "d.c", chunk, &from, false).unwrap();
        assert_eq!(reader.join().unwrap(), 50);
    });
    // A cursor between its batches.
    let pad = "x".repeat(2000);
    let more = (200..2000).map(|i| doc! { "_id": i, "k": i - 2000, "pad": &*pad });
    insert(&mut c, "d", "c", more);
    let open = run(&mut c, "d", "{find: 'c', batchSize: 3}");
    let id = number(&open.as_doc().get_doc("cursor").unwrap().to_buf(), "id");
    move_to(&mut mover, "d.c", chunk, other(&from), false).unwrap();
    thread::scope(|s| {
        let (from, mover) = (&from, &mut mover);
        let back = s.spawn(move || move_to(mover, "d.c", chunk, from, false));
        thread::sleep(Duration::from_millis(1200));
        assert!(!back.is_finished(), "the range came back too early");
        let more = doc! { "getMore": id, "collection": "c" };
        let rest = c.command("d", &more).unwrap();
        let rest = rest.as_doc().get_doc("cursor").unwrap();
        assert_eq!(rest.get_array("nextBatch").unwrap().values().count(), 1997);
        back.join().unwrap().unwrap();
    });
    assert_eq!(count(&mut c), 200);
    until_clean(&cluster, "d", "c", 2000);
}

/// A cursor that was opened after a range was given away is not waited for when the range comes back, also if another
/// range has joined what was given away. Sets of several members keep the rows.
#[test]
fn a_range_comes_back_beside_those_that_never_saw_it() {
    let cluster = cluster(2, 2, 1);
    let mut c = cluster.connect();
    divide(&mut c, "d.c", "{k: 1}", &["{k: 0}", "{k: 100}"]);
    let pad = "x".repeat(2000);
    let docs = (-100..2000).map(|i| doc! { "_id": i, "k": i, "pad": &*pad });
    insert(&mut c, "d", "c", docs);
    let all_of = chunks(&mut c, "d.c");
    let from = all_of[0].shard.clone();
    for chunk in &all_of[..2] {
        move_to(&mut c, "d.c", chunk, other(&from), false).unwrap();
    }
    // The cleaner has looked.
    thread::sleep(Duration::from_millis(1200));
    let open = run(
        &mut c,
        "d",
        "{find: 'c', filter: {k: {$gte: 100}}, batchSize: 3}",
    );
    assert_ne!(
        number(&open.as_doc().get_doc("cursor").unwrap().to_buf(), "id"),
        0
    );
    for chunk in &all_of[..2] {
        move_to(&mut c, "d.c", chunk, &from, false).unwrap();
    }
    assert_eq!(count(&mut c), 2000);
}

/// A transaction that began before a move reads what it saw, or is told to begin anew.
#[test]
fn transactions_older_than_a_move() {
    let cluster = cluster(2, 1, 1);
    let mut c = cluster.connect();
    let all_of = on_one_shard(&mut c);
    let to = other(&all_of[0].shard);
    move_to(&mut c, "d.c", &all_of[1], to, true).unwrap();
    run(&mut c, "d", "{insert: 'other', documents: [{_id: 1}]}");
    let find = "{find: 'c', filter: {k: {$gte: 0}}, batchSize: 1000}";
    for (turn, first) in [
        "{find: 'other', readConcern: {level: 'snapshot'}}",
        "{find: 'c', filter: {k: 150}, readConcern: {level: 'snapshot'}}",
    ]
    .into_iter()
    .enumerate()
    {
        let id = session(4, turn as u64);
        let mut mover = cluster.connect();
        statement(&mut c, "d", first, (&id, 1), true).unwrap();
        let there = chunks(&mut mover, "d.c")[0].shard.clone();
        let moved = move_to(&mut mover, "d.c", &all_of[0], other(&there), true);
        if let Err(e) = moved {
            assert_eq!(e.code().0, 24, "{e}");
        }
        run(
            &mut mover,
            "d",
            "{update: 'c', updates: [{q: {k: 7}, u: {$inc: {n: 1}}}]}",
        );
        match statement(&mut c, "d", find, (&id, 1), false) {
            Ok(found) => {
                let batch = found
                    .as_doc()
                    .get_doc("cursor")
                    .unwrap()
                    .get_array("firstBatch")
                    .unwrap();
                assert_eq!(batch.values().count(), 200, "{first}");
                let seven = batch
                    .values()
                    .find(|d| d.as_doc().unwrap().get("_id").unwrap().as_i64_exact() == Some(7));
                let n = seven
                    .unwrap()
                    .as_doc()
                    .unwrap()
                    .get("n")
                    .unwrap()
                    .as_i64_exact();
                assert_eq!(n, Some(turn as i64), "{first}");
            }
            Err(e) => {
                assert!(
                    e.labels().contains(&"TransientTransactionError"),
                    "{first}: {e}"
                );
            }
        }
        let mut abort = numbered(doc! { "abortTransaction": 1 }, &id, 1);
        abort.append("autocommit", false);
        let _ = c.command("admin", &abort);
    }
}

/// Documents that expire while their range moves are deleted once it has, and none twice or too early.
#[test]
fn documents_expire_while_their_range_moves() {
    let cluster = cluster(2, 1, 1);
    let mut c = cluster.connect();
    divide(&mut c, "d.c", "{k: 1}", &["{k: 50}"]);
    run(
        &mut c,
        "d",
        "{createIndexes: 'c', indexes: [{key: {at: 1}, name: 'at', expireAfterSeconds: 0}]}",
    );
    for shard in &cluster.shards {
        run(
            &mut shard.connect(0),
            "admin",
            "{setParameter: 1, ttlMonitorSleepSecs: 1}",
        );
    }
    let all_of = chunks(&mut c, "d.c");
    let far = i64::MAX / 2;
    let now = || {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_millis() as i64
    };
    let begun = now();
    insert(
        &mut c,
        "d",
        "c",
        (0..100).map(|i| {
            let at = if i % 2 == 0 { begun + 40 * i } else { far };
            doc! { "_id": i, "k": i, "at": muniment_value::Value::DateTime(at) }
        }),
    );
    let mut to = other(&all_of[0].shard);
    while now() < begun + 5000 {
        for chunk in &all_of {
            move_to(&mut c, "d.c", chunk, to, false).unwrap();
        }
        to = other(to);
        let found = all(&mut c, "d", "{find: 'c', filter: {k: {$mod: [2, 1]}}}").len();
        assert_eq!(found, 50);
    }
    let end = Instant::now() + Duration::from_secs(30);
    while count(&mut c) > 50 {
        assert!(Instant::now() < end, "{} documents are left", count(&mut c));
        thread::sleep(Duration::from_millis(100));
    }
    until_clean(&cluster, "d", "c", 50);
}

/// A change stream of a shard shows what clients do, and nothing of moves.
#[test]
fn change_streams_do_not_show_moves() {
    let cluster = cluster(2, 1, 1);
    let mut c = cluster.connect();
    let all_of = on_one_shard(&mut c);
    let to = other(&all_of[0].shard);
    move_to(&mut c, "d.c", &all_of[1], to, true).unwrap();
    let mut streams: Vec<(Connection, i64)> = Vec::new();
    for shard in &cluster.shards {
        let mut direct = shard.connect(0);
        let open = run(
            &mut direct,
            "d",
            "{aggregate: 'c', pipeline: [{$changeStream: {}}], cursor: {}}",
        );
        let id = open
            .as_doc()
            .get_doc("cursor")
            .unwrap()
            .get("id")
            .unwrap()
            .as_i64_exact()
            .unwrap();
        streams.push((direct, id));
    }
    move_to(&mut c, "d.c", &all_of[0], to, true).unwrap();
    run(
        &mut c,
        "d",
        "{update: 'c', updates: [{q: {k: 5}, u: {$inc: {n: 1}}}]}",
    );
    run(
        &mut c,
        "d",
        "{delete: 'c', deletes: [{q: {k: 6}, limit: 1}]}",
    );
    move_to(&mut c, "d.c", &all_of[0], &all_of[0].shard, true).unwrap();
    run(&mut c, "d", "{insert: 'c', documents: [{_id: 6, k: 6}]}");
    until_clean(&cluster, "d", "c", 200);
    let mut seen = Vec::new();
    for (direct, id) in &mut streams {
        loop {
            let more = doc! { "getMore": *id, "collection": "c", "maxTimeMS": 300 };
            let reply = direct.command("d", &more).unwrap();
            let batch = reply
                .as_doc()
                .get_doc("cursor")
                .unwrap()
                .get_array("nextBatch")
                .unwrap();
            if batch.is_empty() {
                break;
            }
            let what = |v: muniment_value::Value<'_>| {
                v.as_doc()
                    .unwrap()
                    .get_str("operationType")
                    .unwrap()
                    .to_string()
            };
            seen.extend(batch.values().map(what));
        }
    }
    seen.sort();
    assert_eq!(seen, ["delete", "insert", "update"]);
    // The oplog says what they are.
    let mut direct = cluster.shards[0].connect(0);
    let moved = all(
        &mut direct,
        "local",
        "{find: 'oplog.rs', filter: {ns: 'd.c', fromMigrate: true}}",
    );
    assert!(moved.len() >= 100, "{}", moved.len());
}

/// A router ends at a step of a move. Others go on within seconds, with what was decided; in the end there are no rows
/// but those that are owned, and ranges move again.
#[test]
fn a_router_ends_at_a_step() {
    let mut cluster = cluster(2, 1, 2);
    let mut late = cluster.routers[1].connect();
    let mut c = cluster.connect();
    on_one_shard(&mut c);
    let steps = [
        "afterBegin",
        "afterCopy",
        "afterGive",
        "afterFinish",
        "afterCommit",
    ];
    for (turn, step) in steps.into_iter().enumerate() {
        let mut c = cluster.connect();
        // The first of the turns give the other shard its first chunk.
        let chunk = chunks(&mut c, "d.c")[0].clone();
        let to = other(&chunk.shard);
        let moving = chunk.clone();
        let moved = stopped(&cluster, step, move |c| {
            move_to(c, "d.c", &moving, to, false)
        });
        cluster.routers[0].kill9();
        let _ = moved.join().unwrap();
        let begun = Instant::now();
        let update =
            format!("{{update: 'c', updates: [{{q: {{k: {turn}}}, u: {{$inc: {{n: 1}}}}}}]}}");
        assert_eq!(number(&run(&mut late, "d", &update), "n"), 1, "{step}");
        let all_of = "{update: 'c', updates: [{q: {}, u: {$inc: {n: 1}}, multi: true}]}";
        assert_eq!(
            number(&run(&mut late, "d", all_of), "nModified"),
            200,
            "{step}"
        );
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{step}: {:?}",
            begun.elapsed()
        );
        let owner = chunks(&mut late, "d.c")[0].shard.clone();
        assert_eq!(owner == to, step == "afterCommit", "{step}");
        until_clean(&cluster, "d", "c", 200);
        assert_eq!(count(&mut late), 200);
        move_to(&mut late, "d.c", &chunk, other(&owner), true).unwrap();
        move_to(&mut late, "d.c", &chunk, &owner, true).unwrap();
        assert_eq!(count(&mut late), 200);
        cluster.routers[0].start_again();
    }
}

/// A router that stands still for longer than its right lasts has moved nothing, or all; its late messages change
/// nothing.
#[test]
fn a_router_stands_still_at_a_step() {
    let cluster = cluster(2, 1, 2);
    let mut late = cluster.routers[1].connect();
    let mut c = cluster.connect();
    let all_of = on_one_shard(&mut c);
    for (turn, step) in ["afterCopy", "afterGive", "afterFinish"]
        .into_iter()
        .enumerate()
    {
        let chunk = chunks(&mut c, "d.c")[0].clone();
        let to = other(&chunk.shard);
        let moved = while_stopped(&cluster, step, ("d.c", &chunk, to), || {
            let pid = cluster.routers[0].pid().unwrap();
            testkit::freeze(pid);
            let begun = Instant::now();
            run(
                &mut late,
                "d",
                "{update: 'c', updates: [{q: {k: 5}, u: {$inc: {n: 1}}}]}",
            );
            assert!(begun.elapsed() < Duration::from_secs(18), "{step}");
            thread::sleep(Duration::from_secs(9).saturating_sub(begun.elapsed()));
            // The other one moves the same range, there and back.
            move_to(&mut late, "d.c", &chunk, to, false).unwrap();
            run(
                &mut late,
                "d",
                "{update: 'c', updates: [{q: {k: 6}, u: {$inc: {n: 1}}}]}",
            );
            if turn % 2 == 0 {
                move_to(&mut late, "d.c", &chunk, &chunk.shard, false).unwrap();
                run(
                    &mut late,
                    "d",
                    "{update: 'c', updates: [{q: {k: 7}, u: {$inc: {n: 1}}}]}",
                );
            }
            testkit::thaw(pid);
        });
        let e = moved.expect_err("it had lost its right");
        assert_eq!(e.code().0, 117, "{step}: {e}");
        assert_eq!(count(&mut c), 200, "{step}");
        until_clean(&cluster, "d", "c", 200);
        assert_eq!(count(&mut late), 200, "{step}");
    }
    drop(all_of);
    let sum = all(
        &mut c,
        "d",
        "{aggregate: 'c', pipeline: [{$group: {_id: null, n: {$sum: '$n'}}}], cursor: {}}",
    );
    assert_eq!(number(&sum[0], "n"), 8);
}

/// A shard that was not told of a move by its router hears of it before the next one, so that reads at times in between
/// find each document once.
#[test]
fn a_shard_hears_of_each_move() {
    let mut cluster = cluster(3, 1, 2);
    let mut c = cluster.connect();
    let all_of = on_one_shard(&mut c);
    let from = all_of[0].shard.clone();
    let others: Vec<&str> = ["s0", "s1", "s2"]
        .into_iter()
        .filter(|s| *s != from)
        .collect();
    let chunk = all_of[0].clone();
    let to = others[0].to_string();
    let moved = stopped(&cluster, "afterCommit", move |c| {
        move_to(c, "d.c", &chunk, &to, false)
    });
    // The shards do not know that the first range has moved. Its router is gone.
    cluster.routers[0].kill9();
    let _ = moved.join().unwrap();
    let mut late = cluster.routers[1].connect();
    let now = |c: &mut Connection| -> DocBuf {
        let found = run(
            c,
            "d",
            "{find: 'c', batchSize: 1000, readConcern: {level: 'snapshot'}}",
        );
        let at = found
            .as_doc()
            .get_doc("cursor")
            .unwrap()
            .get("atClusterTime")
            .unwrap();
        doc! { "level": "snapshot", "atClusterTime": at }
    };
    move_to(&mut late, "d.c", &all_of[0], others[1], false).unwrap();
    let between = now(&mut late);
    move_to(&mut late, "d.c", &all_of[1], others[1], false).unwrap();
    let find = doc! { "find": "c", "readConcern": between, "batchSize": 1000 };
    assert_eq!(late.find_all("d", &find).unwrap().len(), 200);
    until_clean(&cluster, "d", "c", 200);
}

/// A client reads its own writes on secondaries while ranges move: a member that lags waits, or the router asks again.
#[test]
fn causal_reads_on_secondaries() {
    let cluster = hasty_cluster(2, 3, 2);
    let mut c = cluster.connect();
    let all_of = on_one_shard(&mut c);
    move_to(&mut c, "d.c", &all_of[1], other(&all_of[0].shard), true).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|s| {
        let readers: Vec<_> = (0..3)
            .map(|i: usize| {
                let (cluster, stop) = (&cluster, &stop);
                s.spawn(move || {
                    let mut c = cluster.routers[i % 2].connect();
                    let mut dice = Dice(i as u64);
                    let mut reads = 0;
                    while !stop.load(SeqCst) {
                        let n = dice.below(65) as i64 * 3 + i as i64;
                        let update = format!("{{update: 'c', updates: [{{q: {{k: {n}}}, u: {{$inc: {{n: 1}}}}}}], writeConcern: {{w: 1}}}}");
                        let done = run(&mut c, "d", &update);
                        assert_eq!(number(&done, "n"), 1);
                        let at = done.as_doc().get("operationTime").unwrap();
                        let after = doc! { "level": "local", "afterClusterTime": at };
                        let by = doc! { "mode": "secondary" };
                        let find = doc! { "find": "c", "filter": doc! { "k": doc! { "$gte": 0 } }, "readConcern": after, "$readPreference": by, "batchSize": 500 };
                        let found = c.find_all("d", &find).unwrap();
                        assert_eq!(found.len(), 200);
                        let last = doc! { "find": "c", "filter": doc! { "k": n }, "readConcern": doc! { "level": "majority", "afterClusterTime": at }, "$readPreference": doc! { "mode": "secondaryPreferred" } };
                        let one = c.find_all("d", &last).unwrap();
                        let wanted = found.iter().find(|d| number(d, "k") == n).unwrap();
                        assert_eq!((one.len(), number(&one[0], "n")), (1, number(wanted, "n")));
                        reads += 1;
                    }
                    reads
                })
            })
            .collect();
        let begun = Instant::now();
        let mut dice = Dice(4);
        let mut moves = 0;
        while begun.elapsed() < Duration::from_secs(6) && !readers.iter().any(|r| r.is_finished()) {
            let all = chunks(&mut c, "d.c");
            let chunk = &all[dice.below(all.len())];
            move_to(&mut c, "d.c", chunk, other(&chunk.shard), false).unwrap();
            moves += 1;
        }
        stop.store(true, SeqCst);
        let reads: Vec<i32> = readers.into_iter().map(|r| r.join().unwrap()).collect();
        assert!(
            moves >= 4 && reads.iter().all(|r| *r >= 4),
            "{moves} moves, {reads:?} reads"
        );
    });
}

/// A member that is filled anew in the middle of a move has the rows that arrive, and may lead afterwards.
#[test]
fn a_member_is_filled_while_a_range_arrives() {
    let mut cluster = hasty_cluster(2, 3, 1);
    let mut c = cluster.connect();
    let all_of = on_one_shard(&mut c);
    let to = other(&all_of[0].shard);
    for gets in [true, false] {
        let which = usize::from((if gets { to } else { all_of[0].shard.as_str() }) == "s1");
        let chunk = chunks(&mut c, "d.c")[0].clone();
        let to = other(&chunk.shard);
        let moved = stopped(&cluster, "afterCopy", move |c| {
            move_to(c, "d.c", &chunk, to, false)
        });
        run(
            &mut c,
            "d",
            "{update: 'c', updates: [{q: {}, u: {$inc: {n: 1}}, multi: true}]}",
        );
        let shard = &mut cluster.shards[which];
        let empty = (shard.primary() + 1) % 3;
        // A member that holds foreign rows says so of none of them.
        let valid = run(
            &mut shard.connect(shard.primary()),
            "d",
            "{validate: 'c', full: true}",
        );
        assert!(valid.as_doc().get("valid").unwrap().truthy(), "{valid:?}");
        shard.members[empty].kill9();
        shard.members[empty].empty();
        shard.members[empty].start_again();
        shard.settle();
        go_on(&mut c);
        // The right may have grown old meanwhile.
        if let Err(e) = moved.join().unwrap() {
            assert_eq!(e.code().0, 117, "{e}");
            let chunk = chunks(&mut c, "d.c")[0].clone();
            move_to(&mut c, "d.c", &chunk, to, false).unwrap();
        }
        shard.settle();
        let ask = shell("{replSetStepUp: 1}");
        shard.until("it leads", || {
            let _ = shard.connect(empty).command("admin", &ask);
            (shard.primary() == empty).then_some(())
        });
        // The router finds the new primary first: a write of many documents cannot be repeated.
        for k in [50, 150] {
            let write = doc! { "q": doc! { "k": k }, "u": doc! { "$set": doc! { "seen": k } } };
            let write = doc! { "update": "c", "updates": muniment_value::array![write] };
            shard.until("the router finds the primary", || {
                c.command("d", &write).ok()
            });
        }
        let reply = run(
            &mut c,
            "d",
            "{update: 'c', updates: [{q: {}, u: {$inc: {n: 1}}, multi: true}]}",
        );
        assert_eq!(number(&reply, "nModified"), 200);
        let valid = run(
            &mut shard.connect(empty),
            "d",
            "{validate: 'c', full: true}",
        );
        assert!(valid.as_doc().get("valid").unwrap().truthy(), "{valid:?}");
        until_clean(&cluster, "d", "c", 200);
    }
    let sum = all(
        &mut c,
        "d",
        "{aggregate: 'c', pipeline: [{$group: {_id: null, n: {$sum: '$n'}, c: {$sum: 1}}}], cursor: {}}",
    );
    assert_eq!((number(&sum[0], "n"), number(&sum[0], "c")), (800, 200));
}

/// An operation of bulkWrite has found nothing where it looked, and before it goes on a range moves: it is done all the
/// same, once.
#[test]
fn no_operation_of_bulk_write_is_lost_beside_a_move() {
    let cluster = hasty_cluster(2, 1, 2);
    let mut c = cluster.routers[1].connect();
    divide(&mut c, "d.c", "{k: 1}", &["{k: 50}"]);
    let moves = |c: &mut Connection, place: usize| {
        let chunk = &chunks(c, "d.c")[place];
        let to = if chunk.shard == "s0" { "s1" } else { "s0" };
        move_to(c, "d.c", chunk, to, false).unwrap();
    };
    moves(&mut c, 1);
    let bulk = |op: &str| format!("{{bulkWrite: 1, nsInfo: [{{ns: 'd.c'}}], ops: [{op}]}}");
    let cases = [
        (
            "beforeUpsert",
            "{update: 0, multi: true, upsert: true, filter: {k: {$gte: 0}, n: 5}, updateMods: [{$set: {k: 7, n: 5}}]}",
        ),
        (
            "afterChoice",
            "{update: 0, filter: {n: 1}, updateMods: {$set: {z: 1}}}",
        ),
    ];
    for (step, op) in cases {
        run(&mut c, "d", "{delete: 'c', deletes: [{q: {}, limit: 0}]}");
        run(
            &mut c,
            "d",
            "{insert: 'c', documents: [{_id: 1, k: 1, n: 1}, {_id: 2, k: 60, n: 1}]}",
        );
        let op = bulk(op);
        let done = stopped(&cluster, step, move |c| c.command("admin", &shell(&op)));
        run(
            &mut c,
            "d",
            "{update: 'c', updates: [{q: {_id: 1, k: 1}, u: {$set: {n: 2}}}]}",
        );
        moves(&mut c, 0);
        go_on(&mut cluster.connect());
        let reply = done.join().unwrap().unwrap();
        assert_eq!(number(&reply, "nErrors"), 0, "{reply:?}");
        let filter = match step {
            "beforeUpsert" => "{find: 'c', filter: {n: 5}}",
            _ => "{find: 'c', filter: {z: 1}}",
        };
        assert_eq!(all(&mut c, "d", filter).len(), 1, "{step}: {reply:?}");
        moves(&mut c, 0);
    }
}
