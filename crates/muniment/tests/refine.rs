//! A shard key gets more fields, while clients use the collection and routers end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod moving;

use moving::load::{Load, routers_of};
use moving::*;
use muniment_value::{DocBuf, array, doc};
use muniment_wire::Connection;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};
use testkit::shell;

const REFINE: &str = "{refineCollectionShardKey: 'd.c', key: {k: 1, b: 1}}";

/// A collection by `k` with documents on both shards, some of which have no `b`, and an index on both.
fn on_both(c: &mut Connection) {
    divide(c, "d.c", "{k: 1}", &["{k: 100}"]);
    let all_of = chunks(c, "d.c");
    move_to(c, "d.c", &all_of[1], other(&all_of[0].shard), true).unwrap();
    insert(
        c,
        "d",
        "c",
        (0..200).map(|i| {
            let mut d = doc! { "_id": i, "k": i, "n": 0 };
            d.append_some("b", (i % 3 > 0).then_some(i));
            d
        }),
    );
    run(
        c,
        "d",
        "{createIndexes: 'c', indexes: [{key: {k: 1, b: 1}, name: 'kb'}]}",
    );
}

fn bounds(c: &mut Connection, ns: &str) -> Vec<String> {
    let shown = |d: &DocBuf| d.as_doc().to_display();
    let all = chunks(c, ns);
    all.iter()
        .map(|chunk| format!("{} {}", shown(&chunk.min), shown(&chunk.max)))
        .collect()
}

fn key(c: &mut Connection) -> String {
    let found = all(c, "config", "{find: 'collections', filter: {_id: 'd.c'}}");
    let key = found[0].as_doc().get_doc("key").unwrap();
    key.to_display()
}

#[test]
fn a_key_gets_more_fields() {
    let cluster = cluster(2, 1, 2);
    let (mut c, mut late) = (cluster.connect(), cluster.routers[1].connect());
    run(&mut c, "admin", "{balancerStop: 1}");
    fails(&mut c, "admin", REFINE, 118);
    run(&mut c, "d", "{create: 'c'}");
    fails(&mut c, "admin", REFINE, 118);
    on_both(&mut c);
    assert_eq!(number(&run(&mut late, "d", "{count: 'c'}"), "n"), 200);
    for (cmd, code) in [
        ("{refineCollectionShardKey: 'd.c', key: {b: 1, k: 1}}", 72),
        ("{refineCollectionShardKey: 'd.c', key: {b: 1}}", 72),
        (
            "{refineCollectionShardKey: 'd.c', key: {k: 'hashed', b: 1}}",
            72,
        ),
        ("{refineCollectionShardKey: 'd.c', key: {k: 1, x: 1}}", 72),
        ("{refineCollectionShardKey: 'd.c', key: {k: -1}}", 2),
        ("{refineCollectionShardKey: 'd.c'}", 40414),
    ] {
        fails(&mut c, "admin", cmd, code);
    }
    // It is what it is already.
    run(
        &mut c,
        "admin",
        "{refineCollectionShardKey: 'd.c', key: {k: 1}}",
    );
    // A value that no key can have. After the refusal such values may be stored again.
    for id in [1000, 1001] {
        let wrong = format!("{{insert: 'c', documents: [{{_id: {id}, k: 150, b: [1]}}]}}");
        assert_eq!(number(&run(&mut late, "d", &wrong), "n"), 1);
        fails(&mut c, "admin", REFINE, 61);
    }
    run(
        &mut late,
        "d",
        "{delete: 'c', deletes: [{q: {_id: {$gte: 1000}}, limit: 0}]}",
    );
    run(&mut c, "admin", "{addShardToZone: 's0', zone: 'low'}");
    run(
        &mut c,
        "admin",
        "{updateZoneKeyRange: 'd.c', min: {k: MinKey}, max: {k: 50}, zone: 'low'}",
    );
    run(&mut c, "admin", REFINE);
    let (low, mid, high) = (
        "{k: MinKey, b: MinKey}",
        "{k: 100, b: MinKey}",
        "{k: MaxKey, b: MaxKey}",
    );
    let spaced = |all: Vec<String>| -> Vec<String> {
        let plain = |s: &String| {
            s.replace(['"', ' '], "")
                .replace("{$minKey:1}", "MinKey")
                .replace("{$maxKey:1}", "MaxKey")
        };
        all.iter().map(plain).collect()
    };
    let wanted = vec![format!("{low} {mid}"), format!("{mid} {high}")];
    assert_eq!(spaced(bounds(&mut c, "d.c")), spaced(wanted));
    let tags = all(&mut c, "config", "{find: 'tags'}");
    let tag = tags[0].as_doc();
    let tag = format!(
        "{} {}",
        tag.get("min").unwrap().to_display(),
        tag.get("max").unwrap().to_display()
    );
    assert_eq!(
        spaced(vec![tag]),
        spaced(vec![format!("{low} {{k: 50, b: MinKey}}")])
    );
    // A router that knows the shorter key.
    assert_eq!(
        number(
            &run(&mut late, "d", "{count: 'c', query: {k: {$gte: 0}}}"),
            "n"
        ),
        200
    );
    for k in [3, 130] {
        let update =
            format!("{{update: 'c', updates: [{{q: {{k: {k}}}, u: {{$inc: {{n: 1}}}}}}]}}");
        assert_eq!(number(&run(&mut late, "d", &update), "n"), 1);
        // Null and absent are the same key.
        let find = format!(
            "{{find: 'c', filter: {{k: {k}, b: {}}}}}",
            if k == 3 { "null".into() } else { k.to_string() }
        );
        assert_eq!(all(&mut late, "d", &find).len(), 1);
    }
    let wrong = late.command(
        "d",
        &shell("{insert: 'c', documents: [{_id: 1002, k: 150, b: [1]}]}"),
    );
    let wrong = wrong.unwrap();
    assert!(wrong.as_doc().get("writeErrors").is_some(), "{wrong:?}");
    fails(
        &mut late,
        "d",
        "{createIndexes: 'c', indexes: [{key: {k: 1}, name: 'u', unique: true}]}",
        67,
    );
    // One that there is already stands in the way of a longer key.
    divide(&mut c, "d.u", "{k: 1}", &["{k: 100}"]);
    for (key, more) in [("k: 1, b: 1", ""), ("k: 1", ", unique: true")] {
        let index =
            format!("{{createIndexes: 'u', indexes: [{{key: {{{key}}}, name: '{key}'{more}}}]}}");
        run(&mut c, "d", &index);
    }
    fails(
        &mut c,
        "admin",
        "{refineCollectionShardKey: 'd.u', key: {k: 1, b: 1}}",
        72,
    );
    // Documents of one `k` can be divided now.
    insert(
        &mut late,
        "d",
        "c",
        (0..20).map(|i| doc! { "_id": 500 + i, "k": 7, "b": 100 + i }),
    );
    run(&mut c, "admin", "{split: 'd.c', middle: {k: 7, b: 110}}");
    run(&mut c, "admin", "{split: 'd.c', middle: {k: 8, b: MinKey}}");
    let all_of = chunks(&mut c, "d.c");
    let to = other(&all_of[1].shard);
    move_to(&mut c, "d.c", &all_of[1], to, true).unwrap();
    until_clean(&cluster, "d", "c", 220);
    assert_eq!(all(&mut late, "d", "{find: 'c', filter: {k: 7}}").len(), 21);
    assert_eq!(
        all(
            &mut late,
            "d",
            "{find: 'c', filter: {k: 7, b: {$gte: 110}}}"
        )
        .len(),
        10
    );
    let moved = "{update: 'c', updates: [{q: {k: 7, b: 105}, u: {$set: {b: 115.5}}}]}";
    assert_eq!(number(&run(&mut late, "d", moved), "nModified"), 1);
    assert_eq!(
        all(&mut c, "d", "{find: 'c', filter: {k: 7, b: {$gte: 110}}}").len(),
        11
    );
}

/// Rows that were given away before, and reads at times before, are what they were.
#[test]
fn what_has_moved_before_is_known_by_the_longer_key() {
    let cluster = cluster(2, 1, 1);
    let mut c = cluster.connect();
    on_both(&mut c);
    let first = c
        .command(
            "d",
            &shell("{find: 'c', batchSize: 2, readConcern: {level: 'snapshot'}}"),
        )
        .unwrap();
    let at = first
        .as_doc()
        .get_doc("cursor")
        .unwrap()
        .get("atClusterTime")
        .unwrap();
    let again = doc! { "level": "snapshot", "atClusterTime": at };
    let all_of = chunks(&mut c, "d.c");
    // The cursor keeps the rows from being cleaned.
    move_to(&mut c, "d.c", &all_of[0], other(&all_of[0].shard), false).unwrap();
    run(
        &mut c,
        "d",
        "{delete: 'c', deletes: [{q: {k: {$lt: 10}}, limit: 0}]}",
    );
    run(&mut c, "admin", REFINE);
    assert_eq!(
        number(
            &run(&mut c, "d", "{count: 'c', query: {k: {$gte: 0}}}"),
            "n"
        ),
        190
    );
    let find = doc! { "find": "c", "readConcern": again };
    assert_eq!(c.find_all("d", &find).unwrap().len(), 200);
    let id = first.as_doc().get_doc("cursor").unwrap().get("id").unwrap();
    let kill = doc! { "killCursors": "c", "cursors": muniment_value::array![id] };
    c.command("d", &kill).unwrap();
    until_clean(&cluster, "d", "c", 190);
    assert_eq!(all(&mut c, "d", "{find: 'c'}").len(), 190);
}

/// Everything at once while keys get longer: clients see no error.
#[test]
fn keys_get_longer_while_everything_goes_on() {
    let cluster = cluster(2, 1, 2);
    let mut c = cluster.connect();
    let load = Load::prepare(&mut c, false);
    for (name, key) in [("c", "k"), ("bank", "a")] {
        for more in ["_id: 1", "_id: 1, z: 1"] {
            let index = format!(
                "{{createIndexes: '{name}', indexes: [{{key: {{{key}: 1, {more}}}, name: '{}'}}]}}",
                more.len()
            );
            run(&mut c, "d", &index);
        }
    }
    let routers = routers_of(&cluster);
    thread::scope(|s| {
        let (load, routers) = (&load, &routers);
        let all = [
            "change", "change", "insert", "multi", "batch", "audit", "read", "read", "transfer",
        ];
        let mut threads: Vec<_> = (all.into_iter().enumerate())
            .map(|(i, what)| s.spawn(move || load.work(routers, i, what)))
            .collect();
        let mut mover = cluster.connect();
        threads.push(s.spawn(move || {
            for turn in 0.. {
                if load.stop.load(SeqCst) {
                    return;
                }
                let ns = ["d.c", "d.bank"][turn % 2];
                let all = chunks(&mut mover, ns);
                let chunk = &all[turn % all.len()];
                // The bounds may be of the shorter key by now, and transactions may be in the way.
                if let Err(e) = move_to(&mut mover, ns, chunk, other(&chunk.shard), false) {
                    assert!([24, 96, 117].contains(&e.code().0), "{e}");
                }
            }
        }));
        let mut done = Vec::new();
        for more in ["_id: 1", "_id: 1, z: 1"] {
            thread::sleep(Duration::from_millis(700));
            for (name, key) in [("c", "k"), ("bank", "a")] {
                let refine =
                    format!("{{refineCollectionShardKey: 'd.{name}', key: {{{key}: 1, {more}}}}}");
                done.push(c.command("admin", &shell(&refine)));
            }
        }
        thread::sleep(Duration::from_millis(700));
        let all_go_on = threads.iter().all(|t| !t.is_finished());
        load.stop.store(true, SeqCst);
        assert!(all_go_on);
        for refined in done {
            refined.unwrap();
        }
    });
    load.check(&mut c);
    until_clean(&cluster, "d", "c", load.rows());
    until_clean(&cluster, "d", "bank", load.accounts());
    load.check(&mut c);
}

/// A router ends at a step. Others go on within seconds, with what was decided.
#[test]
fn a_router_ends_while_a_key_gets_longer() {
    let mut cluster = cluster(2, 1, 2);
    let mut late = cluster.routers[1].connect();
    on_both(&mut cluster.connect());
    for step in ["refineMarked", "refineFrozen", "refineDecided"] {
        let refined = stopped(&cluster, step, |c| c.command("admin", &shell(REFINE)));
        cluster.routers[0].kill9();
        refined.join().unwrap().unwrap_err();
        let begun = Instant::now();
        // An array is no value of a key, and may be stored if `b` is none of its fields.
        let array = "{insert: 'c', documents: [{_id: 1000, k: 150, b: [1]}]}";
        let stored = late.command("d", &shell(array)).unwrap();
        let done = step == "refineDecided";
        assert_eq!(number(&stored, "n") == 0, done, "{step}: {stored:?}");
        run(
            &mut late,
            "d",
            "{delete: 'c', deletes: [{q: {_id: 1000}, limit: 0}]}",
        );
        let all_of = "{update: 'c', updates: [{q: {}, u: {$inc: {n: 1}}, multi: true}]}";
        assert_eq!(
            number(&run(&mut late, "d", all_of), "nModified"),
            200,
            "{step}"
        );
        assert!(begun.elapsed() < Duration::from_secs(20), "{step}");
        assert_eq!(key(&mut late).contains('b'), done, "{step}");
        let chunk = chunks(&mut late, "d.c")[0].clone();
        move_to(&mut late, "d.c", &chunk, other(&chunk.shard), true).unwrap();
        assert_eq!(all(&mut late, "d", "{find: 'c'}").len(), 200, "{step}");
        cluster.routers[0].start_again();
    }
}

/// A transaction that uses the collection is waited for; others are not held up for long.
#[test]
fn a_transaction_goes_on_while_a_key_gets_longer() {
    let cluster = cluster(2, 1, 1);
    let mut c = cluster.connect();
    on_both(&mut c);
    let id = session(9, 1);
    let update = "{update: 'c', updates: [{q: {k: 5}, u: {$set: {b: [1]}}}]}";
    statement(&mut c, "d", update, (&id, 1), true).unwrap();
    let mut commit = numbered(doc! { "commitTransaction": 1 }, &id, 1);
    commit.append("autocommit", false);
    thread::scope(|s| {
        let mut refiner = cluster.connect();
        let refined = s.spawn(move || refiner.command("admin", &shell(REFINE)));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            let one = Instant::now();
            run(
                &mut c,
                "d",
                "{update: 'c', updates: [{q: {k: 6}, u: {$inc: {n: 1}}}]}",
            );
            assert!(one.elapsed() < Duration::from_secs(4));
        }
        assert!(!refined.is_finished(), "{:?}", refined.join());
        c.command("admin", &commit).unwrap();
        // It has stored what no key can have.
        assert_eq!(refined.join().unwrap().unwrap_err().code().0, 61);
    });
    run(
        &mut c,
        "d",
        "{update: 'c', updates: [{q: {k: 5}, u: {$set: {b: 1}}}]}",
    );
    run(&mut c, "admin", REFINE);
    assert_eq!(
        all(&mut c, "d", "{find: 'c', filter: {k: 5, b: 1}}").len(),
        1
    );
}

/// What a shard has given away, and could have no key by the longer one, does not come back.
#[test]
fn rows_that_were_given_away_stay_away() {
    // Members of sets keep such rows for a while.
    let cluster = cluster(2, 3, 1);
    let mut c = cluster.connect();
    divide(&mut c, "d.c", "{k: 1}", &["{k: 100}"]);
    run(
        &mut c,
        "d",
        "{createIndexes: 'c', indexes: [{key: {k: 1, b: 1}, name: 'kb'}]}",
    );
    insert(
        &mut c,
        "d",
        "c",
        [doc! { "_id": 1, "k": 1, "b": array![1, 2] }].into_iter(),
    );
    let low = chunks(&mut c, "d.c")[0].clone();
    move_to(&mut c, "d.c", &low, other(&low.shard), false).unwrap();
    let refine = "{refineCollectionShardKey: 'd.c', key: {k: 1, b: 1}}";
    fails(&mut c, "admin", refine, 61);
    run(
        &mut c,
        "d",
        "{update: 'c', updates: [{q: {k: 1}, u: {$set: {b: 5}}}]}",
    );
    run(&mut c, "admin", refine);
    let found = all(&mut c, "d", "{find: 'c'}");
    assert_eq!(found.len(), 1, "{found:?}");
}
