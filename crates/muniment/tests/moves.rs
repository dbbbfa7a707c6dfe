//! Ranges that move between shards, step by step.
//!
//! What happens to all of it at once, and to moves whose servers end, is in `moves_at_once.rs` and `moves_faults.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod moving;

use moving::*;
use muniment_value::{DocBuf, Value, doc};
use muniment_wire::Connection;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use testkit::{Cluster, shell};

/// The same documents in `one.c`, which is whole on a shard, and in `many.c`, which is divided.
fn twins(c: &mut Connection, key: &str, at: &[&str]) {
    divide(c, "many.c", key, at);
    for db in ["one", "many"] {
        let docs = (0..200).map(|i| {
            doc! {
                "_id": i, "k": i * 7 % 201, "x": i % 10, "s": format!("s{}", i % 13),
                "t": (0..i % 3).map(|n| format!("t{n}")).collect::<muniment_value::ArrayBuf>(),
                "d": doc! { "e": i % 5, "f": i * i },
            }
        });
        insert(c, db, "c", docs);
        let index = "{createIndexes: 'c', indexes: [{key: {s: 1, k: 1}, name: 's'}, {key: {t: 1}, name: 't'}]}";
        run(c, db, index);
        run(
            c,
            db,
            "{create: 'v', viewOn: 'c', pipeline: [{$match: {x: {$lt: 5}}}]}",
        );
        run(
            c,
            db,
            "{insert: 'other', documents: [{_id: 1, n: 'one'}, {_id: 2, n: 'two'}, {_id: 3, n: 'three'}]}",
        );
    }
}

/// Reads whose results are compared as sets.
const SETS: [&str; 19] = [
    "{find: 'c'}",
    "{find: 'c', batchSize: 7}",
    "{find: 'c', filter: {_id: 14}}",
    "{find: 'c', filter: {k: 14}}",
    "{find: 'c', filter: {k: {$in: [7, 14, 21, 1000]}}}",
    "{find: 'c', filter: {k: {$gte: 50, $lt: 120}}}",
    "{find: 'c', filter: {s: 's4'}, hint: 's', batchSize: 3}",
    "{find: 'c', filter: {s: {$in: ['s4', 's7']}}, projection: {_id: 0, s: 1, k: 1}, hint: 's'}",
    "{find: 'c', filter: {t: 't1'}, hint: 't'}",
    "{find: 'c', filter: {$or: [{k: 7}, {x: 3, s: 's4'}]}}",
    "{find: 'v', filter: {x: {$gt: 2}}, projection: {x: 1}}",
    "{aggregate: 'c', pipeline: [{$unwind: '$t'}, {$group: {_id: '$t', n: {$sum: 1}, a: {$avg: '$x'}}}], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$group: {_id: null, lo: {$min: '$k'}, hi: {$max: '$d.f'}, s: {$sum: '$x'}}}], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$count: 'n'}], cursor: {}}",
    "{aggregate: 'other', pipeline: [{$lookup: {from: 'c', localField: '_id', foreignField: 'x', pipeline: [{$count: 'n'}], as: 'c'}}], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$match: {k: {$lt: 20}}}, {$graphLookup: {from: 'c', startWith: '$x', connectFromField: 'x', connectToField: '_id', maxDepth: 0, as: 'g'}}], cursor: {}}",
    "{aggregate: 'other', pipeline: [{$unionWith: {coll: 'c', pipeline: [{$project: {k: 1}}]}}], cursor: {}}",
    "{aggregate: 'v', pipeline: [{$group: {_id: '$x', n: {$sum: 1}}}], cursor: {}}",
    "{find: 'c', readConcern: {level: 'snapshot'}}",
];

/// Reads in an order.
const LISTS: [&str; 4] = [
    "{find: 'c', sort: {_id: 1}}",
    "{find: 'c', sort: {x: -1, _id: 1}, batchSize: 7}",
    "{find: 'c', sort: {s: 1, k: 1}, skip: 13, limit: 30, projection: {s: 1, _id: 0}}",
    "{aggregate: 'c', pipeline: [{$sort: {k: 1}}, {$skip: 7}, {$limit: 9}], cursor: {}}",
];

/// Commands that leave no trace in both, or the same.
const COMMANDS: [&str; 10] = [
    "{count: 'c'}",
    "{count: 'c', query: {x: 3}}",
    "{count: 'c', query: {k: {$gte: 50, $lt: 120}}}",
    "{distinct: 'c', key: 's'}",
    "{distinct: 'c', key: 'k', query: {x: 3}}",
    "{update: 'c', updates: [{q: {_id: 14}, u: {$inc: {m: 1}}}, {q: {k: 21}, u: {$inc: {m: 1}}}]}",
    "{update: 'c', updates: [{q: {x: {$lt: 7}}, u: {$inc: {m: 1}}, multi: true}]}",
    "{findAndModify: 'c', query: {x: 3}, sort: {_id: 1}, update: {$inc: {m: 1}}, new: true}",
    "{delete: 'c', deletes: [{q: {_id: {$gte: 1000}}, limit: 0}]}",
    "{insert: 'c', documents: [{_id: 1000, k: 5, x: 1, d: {e: 1}}, {_id: 1001, k: 150, x: 8, d: {e: 4}}]}",
];

/// What a client sees of a reply: without times, hosts and sizes that differ from server to server.
fn seen(reply: &DocBuf) -> String {
    const OWN: [&str; 6] = [
        "$clusterTime",
        "operationTime",
        "electionId",
        "opTime",
        "raw",
        "cursor",
    ];
    let mut d = DocBuf::new();
    for e in reply.as_doc().iter().filter(|e| !OWN.contains(&e.name())) {
        match e.value().as_array().filter(|_| e.name() == "values") {
            Some(values) => {
                let values: BTreeSet<String> = values.values().map(|v| v.to_display()).collect();
                d.append("values", format!("{values:?}"));
            }
            None => {
                d.append_elem(e);
            }
        }
    }
    d.as_doc().to_display()
}

fn compare(cluster: &Cluster, c: &mut Connection, when: &str) {
    for cmd in SETS {
        let (one, many) = (all(c, "one", cmd), all(c, "many", cmd));
        assert_eq!(
            (one.len(), as_set(&one)),
            (many.len(), as_set(&many)),
            "{when}: {cmd}"
        );
    }
    for cmd in LISTS {
        assert_eq!(all(c, "one", cmd), all(c, "many", cmd), "{when}: {cmd}");
    }
    for cmd in COMMANDS {
        let [one, many] =
            ["one", "many"].map(|db| seen(&run(c, db, cmd)).replace("one.c", "many.c"));
        assert_eq!(one, many, "{when}: {cmd}");
    }
    // Each shard shows a client that asks it directly what it owns.
    for cmd in [
        "{find: 'c'}",
        "{find: 'c', filter: {s: {$gte: ''}}, hint: 's'}",
    ] {
        let mut direct = Vec::new();
        for shard in &cluster.shards {
            direct.extend(all(&mut shard.connect(0), "many", cmd));
        }
        let one = all(c, "one", cmd);
        assert_eq!(
            (one.len(), as_set(&one)),
            (direct.len(), as_set(&direct)),
            "{when}: {cmd}"
        );
    }
}

/// Every command gives the same on a collection whose ranges move and on a whole one.
fn answers_stay_the_same(key: &str, at: &[&str]) {
    let cluster = cluster(2, 1, 2);
    let mut c = cluster.connect();
    let mut late = cluster.routers[1].connect();
    twins(&mut c, key, at);
    compare(&cluster, &mut c, "before");
    let mut dice = Dice(7);
    for turn in 0..7 {
        let all = chunks(&mut c, "many.c");
        let chunk = &all[dice.below(all.len())];
        let to = other(&chunk.shard);
        let when = format!(
            "{key}, turn {turn}: {} -> {:?} to {to}",
            chunk.min.as_doc().to_display(),
            chunk.max
        );
        let moved = move_to(&mut c, "many.c", chunk, to, turn % 2 == 0);
        moved.unwrap_or_else(|e| panic!("{when}: {e}"));
        // The other router does not know of it yet.
        compare(
            &cluster,
            if turn % 3 == 1 { &mut late } else { &mut c },
            &when,
        );
    }
    until_clean(&cluster, "many", "c", 202);
    compare(&cluster, &mut c, "in the end");
    for shard in &cluster.shards {
        let valid = run(&mut shard.connect(0), "many", "{validate: 'c', full: true}");
        assert!(valid.as_doc().get("valid").unwrap().truthy(), "{valid:?}");
    }
}

#[test]
fn answers_stay_the_same_by_a_key() {
    answers_stay_the_same("{k: 1}", &["{k: 40}", "{k: 80}", "{k: 120}"]);
}

#[test]
fn answers_stay_the_same_by_hash() {
    answers_stay_the_same("{k: 'hashed'}", &[]);
}

#[test]
fn answers_stay_the_same_by_two_fields() {
    answers_stay_the_same("{x: 1, k: 1}", &["{x: 3, k: 50}", "{x: 6, k: 100}"]);
}

#[test]
fn answers_stay_the_same_by_a_nested_field() {
    answers_stay_the_same(
        "{'d.e': 1, k: 1}",
        &["{'d.e': 2, k: 100}", "{'d.e': 4, k: MinKey}"],
    );
}

/// A read at a time that a client remembers finds what was there then, wherever it is now.
#[test]
fn reads_at_times_before_moves() {
    let cluster = cluster(3, 1, 2);
    let (mut c, mut late) = (cluster.connect(), cluster.routers[1].connect());
    divide(
        &mut c,
        "d.c",
        "{a: 1}",
        &["{a: 20}", "{a: 40}", "{a: 60}", "{a: 80}"],
    );
    insert(
        &mut c,
        "d",
        "c",
        (0..100).map(|i| doc! { "_id": i, "a": i, "b": 1 }),
    );
    let mut dice = Dice(3);
    let mut times: Vec<(DocBuf, i64)> = Vec::new();
    for turn in 0..16 {
        let all = chunks(&mut c, "d.c");
        let chunk = &all[dice.below(all.len())];
        let to = ["s0", "s1", "s2"]
            .into_iter()
            .filter(|s| *s != chunk.shard)
            .nth(dice.below(2))
            .unwrap();
        move_to(&mut c, "d.c", chunk, to, turn % 2 == 0).unwrap();
        run(
            &mut c,
            "d",
            "{update: 'c', updates: [{q: {}, u: {$inc: {b: 1}}, multi: true}]}",
        );
        let now = run(
            &mut c,
            "d",
            "{find: 'c', batchSize: 1, readConcern: {level: 'snapshot'}}",
        );
        let cursor = now.as_doc().get_doc("cursor").unwrap();
        let at = doc! { "at": cursor.get("atClusterTime").unwrap() };
        times.push((at, turn + 2));
        for (at, b) in times.iter().rev().take(6) {
            let at = at.as_doc().get("at").unwrap();
            let concern = || doc! { "level": "snapshot", "atClusterTime": at };
            for c in [&mut c, &mut late] {
                let find = doc! { "find": "c", "readConcern": concern(), "batchSize": 9 };
                let found = c.find_all("d", &find).unwrap();
                let ids: BTreeSet<i64> = found.iter().map(|d| number(d, "_id")).collect();
                assert_eq!((found.len(), ids.len()), (100, 100), "turn {turn}, at {b}");
                assert!(
                    found.iter().all(|d| number(d, "b") == *b),
                    "turn {turn}, at {b}: {found:?}"
                );
                let count = doc! {
                    "aggregate": "c", "readConcern": concern(), "cursor": doc! {},
                    "pipeline": muniment_value::array![doc! { "$group": doc! { "_id": Value::Null, "b": doc! { "$sum": "$b" } } }],
                };
                let sum = c.find_all("d", &count).unwrap();
                assert_eq!(number(&sum[0], "b"), 100 * b, "turn {turn}");
            }
        }
    }
}

/// A retryable statement whose range has moved since is not done again, wherever it is repeated.
#[test]
fn a_repeated_statement_takes_effect_once() {
    let cluster = cluster(2, 1, 2);
    let (mut c, mut late) = (cluster.connect(), cluster.routers[1].connect());
    divide(&mut c, "d.c", "{k: 1}", &["{k: 100}"]);
    insert(
        &mut c,
        "d",
        "c",
        (0..200).map(|i| doc! { "_id": i, "k": i, "n": 0 }),
    );
    let both = chunks(&mut c, "d.c");
    move_to(&mut c, "d.c", &both[1], other(&both[0].shard), true).unwrap();
    let commands = [
        "{update: 'c', updates: [{q: {k: 3}, u: {$inc: {n: 1}}}, {q: {_id: 5}, u: {$inc: {n: 1}}}, {q: {_id: 150}, u: {$inc: {n: 1}}}]}",
        "{update: 'c', updates: [{q: {n: 0}, u: {$inc: {n: 1}}}]}",
        "{insert: 'c', documents: [{_id: 1000, k: 50}, {_id: 1001, k: 150}, {_id: 1002, k: 51}]}",
        "{delete: 'c', deletes: [{q: {k: 10}, limit: 1}, {q: {n: 0}, limit: 1}]}",
        "{findAndModify: 'c', query: {k: 20}, update: {$inc: {n: 1}}, new: true}",
        "{findAndModify: 'c', query: {n: 0}, sort: {k: 1}, remove: true}",
        "{update: 'c', updates: [{q: {_id: 2000, k: 60}, u: {$inc: {n: 1}}, upsert: true}]}",
        // These move documents to the other shard, and within the shard.
        "{update: 'c', updates: [{q: {_id: 30}, u: {$inc: {k: 1000}}}]}",
        "{update: 'c', updates: [{q: {_id: 160}, u: {$inc: {k: -1000}}}]}",
        "{update: 'c', updates: [{q: {_id: 31}, u: {$inc: {k: -1000}}}]}",
    ];
    let all_of = |c: &mut Connection| all(c, "d", "{find: 'c', sort: {_id: 1}}");
    for (i, command) in commands.iter().enumerate() {
        let command = numbered(shell(command), &session(1, i as u64 % 3), i as i64 + 1);
        let done = c.command("d", &command).unwrap();
        let after = all_of(&mut c);
        for turn in 0..4 {
            let all = chunks(&mut c, "d.c");
            let chunk = &all[turn % 2];
            // Both shards lose their last chunk once.
            move_to(&mut c, "d.c", chunk, other(&chunk.shard), turn < 2).unwrap();
            for c in [&mut c, &mut late] {
                let again = c.command("d", &command).unwrap();
                let shown = |d: &DocBuf| {
                    let fields = [
                        "n",
                        "nModified",
                        "value",
                        "lastErrorObject",
                        "upserted",
                        "writeErrors",
                    ];
                    fields.map(|f| d.as_doc().get(f).map(|v| v.to_display()))
                };
                assert_eq!(
                    shown(&again),
                    shown(&done),
                    "{command:?}, turn {turn}: {again:?}"
                );
            }
            assert_eq!(all_of(&mut late), after, "{command:?}, turn {turn}");
        }
    }
}

/// A cursor that is open while its range moves finds everything once, or ends with 175 once rows were deleted.
#[test]
fn cursors_stay_open_across_a_move() {
    let cluster = cluster(2, 1, 1);
    let mut c = cluster.connect();
    divide(&mut c, "d.c", "{k: 1}", &["{k: 3000}"]);
    insert(
        &mut c,
        "d",
        "c",
        (0..4000).map(|i| doc! { "_id": i, "k": i, "pad": "x".repeat(50) }),
    );
    let finds = [
        "{find: 'c', batchSize: 100}",
        "{find: 'c', hint: {k: 1}, filter: {k: {$gte: 0}}, batchSize: 100}",
        "{find: 'c', sort: {k: -1}, batchSize: 100}",
        "{aggregate: 'c', pipeline: [{$match: {k: {$gte: 0}}}], cursor: {batchSize: 100}}",
    ];
    let open = |c: &mut Connection, cmd: &str| {
        let reply = run(c, "d", cmd);
        let cursor = reply.as_doc().get_doc("cursor").unwrap();
        let ids: Vec<i64> = ids_of(cursor, "firstBatch");
        (
            cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap(),
            ids,
        )
    };
    // Nothing is deleted while cursors are open that are older than the move.
    let mut cursors: Vec<_> = finds.iter().map(|cmd| open(&mut c, cmd)).collect();
    let first = chunks(&mut c, "d.c")[0].clone();
    move_to(&mut c, "d.c", &first, other(&first.shard), false).unwrap();
    run(
        &mut c,
        "d",
        "{insert: 'c', documents: [{_id: 9000, k: 9000}, {_id: -1, k: -1}]}",
    );
    run(
        &mut c,
        "d",
        "{delete: 'c', deletes: [{q: {k: -1}, limit: 1}, {q: {k: 9000}, limit: 1}]}",
    );
    for (cmd, (id, ids)) in finds.iter().zip(&mut cursors) {
        while let Some(more) = get_more(&mut c, *id).unwrap_or_else(|e| panic!("{cmd}: {e}")) {
            ids.extend(more);
        }
        ids.sort_unstable();
        assert_eq!(ids.len(), 4000, "{cmd}");
        assert!(ids.iter().copied().eq(0..4000), "{cmd}");
    }
    until_clean(&cluster, "d", "c", 4000);
    // A move that waits for the deletion ends them: none of them finds less without saying so.
    let chunk = chunks(&mut c, "d.c")[0].clone();
    for (back, find) in finds.iter().enumerate() {
        let (id, mut ids) = open(&mut c, find);
        std::thread::scope(|s| {
            let mut mover = cluster.connect();
            let (chunk, to) = (
                &chunk,
                if back % 2 == 0 {
                    first.shard.as_str()
                } else {
                    chunk.shard.as_str()
                },
            );
            let moved = s.spawn(move || move_to(&mut mover, "d.c", chunk, to, true));
            loop {
                match get_more(&mut c, id) {
                    Ok(Some(more)) => ids.extend(more),
                    Ok(None) => {
                        ids.sort_unstable();
                        assert!(ids.iter().copied().eq(0..4000), "{find}: {}", ids.len());
                        break;
                    }
                    Err(e) => {
                        assert_eq!(e.code().0, 175, "{e}");
                        break;
                    }
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            moved.join().unwrap().unwrap();
        });
        until_clean(&cluster, "d", "c", 4000);
    }
}

fn ids_of(cursor: muniment_value::Doc<'_>, batch: &str) -> Vec<i64> {
    let batch = cursor.get_array(batch).unwrap();
    let id = |v: Value<'_>| {
        v.as_doc()
            .unwrap()
            .get("_id")
            .unwrap()
            .as_i64_exact()
            .unwrap()
    };
    batch.values().map(id).collect()
}

/// The next batch; `None` after the last one.
fn get_more(c: &mut Connection, id: i64) -> muniment_value::Result<Option<Vec<i64>>> {
    if id == 0 {
        return Ok(None);
    }
    let more = doc! { "getMore": id, "collection": "c", "batchSize": 100 };
    let reply = match c.command("d", &more) {
        Ok(reply) => reply,
        // It has ended with the batch before.
        Err(e) if e.code().0 == 43 => return Ok(None),
        Err(e) => return Err(e),
    };
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    Ok(Some(ids_of(cursor, "nextBatch")))
}

/// Documents with one `_id` on both shards make a move fail, and change nothing.
#[test]
fn documents_with_one_id() {
    let cluster = cluster(2, 1, 1);
    let mut c = cluster.connect();
    divide(&mut c, "d.c", "{k: 1}", &["{k: 100}", "{k: 200}"]);
    let all_of = chunks(&mut c, "d.c");
    let (home, away) = (all_of[0].shard.clone(), other(&all_of[0].shard));
    move_to(&mut c, "d.c", &all_of[0], away, true).unwrap();
    insert(
        &mut c,
        "d",
        "c",
        (0..300).map(|i| doc! { "_id": i, "k": i }),
    );
    // 5 is on `away` with k 5, and comes to `home` with k 150.
    run(
        &mut c,
        "d",
        "{insert: 'c', documents: [{_id: 5, k: 150, twin: true}]}",
    );
    for (chunk, to) in [(&all_of[0], home.as_str()), (&all_of[1], away)] {
        let e = move_to(&mut c, "d.c", chunk, to, false).unwrap_err();
        assert_eq!(e.code().0, 11000, "{e}");
    }
    let begun = Instant::now();
    run(
        &mut c,
        "d",
        "{update: 'c', updates: [{q: {k: 5}, u: {$inc: {n: 1}}}, {q: {k: 150}, u: {$inc: {n: 1}}, multi: true}]}",
    );
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "the shards are usable at once"
    );
    assert_eq!(all(&mut c, "d", "{find: 'c'}").len(), 301);
    until_clean(&cluster, "d", "c", 301);
    // Another range moves, and after the deletion of one of the two, this one, too.
    move_to(&mut c, "d.c", &all_of[2], away, false).unwrap();
    run(
        &mut c,
        "d",
        "{delete: 'c', deletes: [{q: {_id: 5, twin: true, k: 150}, limit: 1}]}",
    );
    move_to(&mut c, "d.c", &all_of[0], &home, false).unwrap();
    assert_eq!(all(&mut c, "d", "{find: 'c'}").len(), 300);
    // Rows that were given away are not in the way of other documents with their `_id`.
    move_to(&mut c, "d.c", &all_of[1], away, false).unwrap();
    run(
        &mut c,
        "d",
        "{delete: 'c', deletes: [{q: {k: 150}, limit: 1}]}",
    );
    for cmd in [
        "{insert: 'c', documents: [{_id: 150, k: 7}]}",
        "{update: 'c', updates: [{q: {_id: 151, k: 8}, u: {$set: {up: 1}}, upsert: true}]}",
        "{findAndModify: 'c', query: {_id: 152, k: 9}, update: {$set: {up: 1}}, upsert: true}",
    ] {
        run(&mut c, "d", cmd);
    }
    until_clean(&cluster, "d", "c", 302);
}

/// Documents of the range that moves may be deleted, and others with the same `_id` or the same unique key may come,
/// anywhere.
#[test]
fn keys_are_used_again_while_their_range_moves() {
    for clustered in [false, true] {
        let cluster = cluster(2, 1, 1);
        let mut c = cluster.connect();
        if clustered {
            run(
                &mut c,
                "d",
                "{create: 'c', clusteredIndex: {key: {_id: 1}, unique: true}}",
            );
        }
        divide(&mut c, "d.c", "{k: 1}", &["{k: 100}"]);
        run(
            &mut c,
            "d",
            "{createIndexes: 'c', indexes: [{key: {k: 1, u: 1}, name: 'u', unique: true}]}",
        );
        let all_of = chunks(&mut c, "d.c");
        move_to(&mut c, "d.c", &all_of[1], other(&all_of[0].shard), true).unwrap();
        insert(
            &mut c,
            "d",
            "c",
            (0..200).map(|i| doc! { "_id": i, "k": i, "u": i % 7 }),
        );
        let mut to = other(&all_of[0].shard);
        for step in ["afterBegin", "afterCopy"] {
            let mut c = cluster.connect();
            let moved = while_stopped(&cluster, step, ("d.c", &all_of[0], to), || {
                for cmd in [
                    // The same unique key.
                    "{delete: 'c', deletes: [{q: {k: 10}, limit: 1}]}",
                    "{insert: 'c', documents: [{_id: 1010, k: 10, u: 3}]}",
                    // Two documents change places.
                    "{update: 'c', updates: [{q: {k: 11}, u: {$set: {u: 1000}}}]}",
                    "{insert: 'c', documents: [{_id: 1011, k: 11, u: 4}]}",
                    "{update: 'c', updates: [{q: {_id: 11, k: 11}, u: {$set: {u: 5}}}]}",
                    "{update: 'c', updates: [{q: {_id: 1011, k: 11}, u: {$set: {u: 1000}}}]}",
                    "{update: 'c', updates: [{q: {_id: 11, k: 11}, u: {$set: {u: 4}}}]}",
                    // The same `_id` on the other shard, by two statements and by one.
                    "{delete: 'c', deletes: [{q: {k: 20}, limit: 1}]}",
                    "{insert: 'c', documents: [{_id: 20, k: 120, u: 100}]}",
                    "{update: 'c', updates: [{q: {_id: 21}, u: {$inc: {k: 100}, $set: {u: 101}}}]}",
                    "{update: 'c', updates: [{q: {_id: 22}, u: {$inc: {k: 100}, $set: {u: 102}}}]}",
                    // And back.
                    "{update: 'c', updates: [{q: {_id: 22}, u: {$inc: {k: -100}}}]}",
                ] {
                    run(&mut c, "d", cmd);
                }
            });
            moved.unwrap_or_else(|e| panic!("{step}, clustered {clustered}: {e}"));
            let found = all(&mut c, "d", "{find: 'c', sort: {_id: 1}}");
            let ids: Vec<i64> = found.iter().map(|d| number(d, "_id")).collect();
            let wanted = (0..200).filter(|i| *i != 10).chain([1010, 1011]);
            assert_eq!(
                ids,
                wanted.collect::<Vec<_>>(),
                "{step}, clustered {clustered}"
            );
            until_clean(&cluster, "d", "c", 201);
            // The same again in the other direction.
            run(
                &mut c,
                "d",
                "{delete: 'c', deletes: [{q: {_id: {$in: [10, 11, 20, 21, 22, 1010, 1011]}}, limit: 0}]}",
            );
            insert(
                &mut c,
                "d",
                "c",
                [10, 11, 20, 21, 22]
                    .into_iter()
                    .map(|i| doc! { "_id": i, "k": i, "u": i % 7 }),
            );
            to = other(to);
            move_to(&mut c, "d.c", &all_of[1], other(to), true).unwrap();
        }
    }
}
