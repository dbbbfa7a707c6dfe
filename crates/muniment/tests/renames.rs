//! renameCollection of collections that are divided, or away from the shard of their database.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod moving;

use moving::*;
use muniment_value::doc;
use muniment_wire::Connection;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Cluster, shell};

/// `d.<name>` with 200 documents: those below 100 are on a shard, the others on another one.
fn divided(c: &mut Connection, name: &str) {
    let ns = format!("d.{name}");
    divide(c, &ns, "{k: 1}", &["{k: 100}"]);
    insert(
        c,
        "d",
        name,
        (0..200).map(|i| doc! { "_id": i, "k": i, "n": 0, "of": name }),
    );
    let index = format!("{{createIndexes: '{name}', indexes: [{{key: {{n: 1}}, name: 'n_1'}}]}}");
    run(c, "d", &index);
    // A part comes and goes, and leaves rows that nobody may see.
    for to in ["s1", "s0"] {
        let low = chunks(c, &ns)[0].clone();
        move_to(c, &ns, &low, to, false).unwrap();
    }
    let high = chunks(c, &ns)[1].clone();
    move_to(c, &ns, &high, "s1", false).unwrap();
}

fn rename(from: &str, to: &str, more: &str) -> String {
    format!("{{renameCollection: 'd.{from}', to: 'd.{to}'{more}}}")
}

fn count(c: &mut Connection, name: &str) -> i64 {
    let all = all(c, "d", &format!("{{find: '{name}'}}"));
    all.len() as i64
}

/// The names that the configuration knows, without those of its own.
fn known(c: &mut Connection) -> Vec<String> {
    let all = all(
        c,
        "config",
        "{find: 'collections', filter: {_id: {$regex: '^d'}}, sort: {_id: 1}}",
    );
    let mut names = Vec::new();
    for d in &all {
        assert!(d.as_doc().get("renamed").is_none(), "{d:?}");
        names.push(d.as_doc().get_str("_id").unwrap().to_string());
    }
    names
}

fn begin(routers: usize) -> (Cluster, Connection) {
    let cluster = cluster(2, 1, routers);
    let mut c = cluster.connect();
    run(&mut c, "admin", "{enableSharding: 'd', primaryShard: 's0'}");
    (cluster, c)
}

#[test]
fn divided_collections_get_other_names() {
    let (cluster, mut c) = begin(2);
    let mut late = cluster.routers[1].connect();
    // It would split the chunk for its zone while the test moves it.
    run(&mut c, "admin", "{balancerStop: 1}");
    divided(&mut c, "c");
    run(&mut c, "admin", "{addShardToZone: 's1', zone: 'z'}");
    run(
        &mut c,
        "admin",
        "{updateZoneKeyRange: 'd.c', min: {k: 150}, max: {k: 160}, zone: 'z'}",
    );
    run(&mut c, "d", "{create: 'v', viewOn: 'c', pipeline: []}");
    assert_eq!((count(&mut late, "c"), count(&mut late, "e")), (200, 0));
    for (cmd, code) in [
        (rename("none", "e", ""), 26),
        (rename("c", "c", ""), 20),
        (rename("c", "v", ""), 48),
        ("{renameCollection: 'd.c', to: 'other.c'}".to_string(), 125),
        (
            rename(
                "c",
                "e",
                ", collectionUUID: UUID('00000000-0000-4000-8000-000000000000')",
            ),
            361,
        ),
    ] {
        fails(&mut c, "admin", &cmd, code);
    }
    run(&mut c, "admin", &rename("c", "e", ""));
    // A router that was not told does not mistake one for the other.
    assert_eq!((count(&mut late, "c"), count(&mut late, "e")), (0, 200));
    assert_eq!(known(&mut c), ["d.e"]);
    assert_eq!(names(&cluster, 0), ["e", "v"]);
    assert_eq!(names(&cluster, 1), ["e"]);
    assert_eq!(all(&mut late, "d", "{listIndexes: 'e'}").len(), 3);
    let zones = all(&mut c, "config", "{find: 'tags', filter: {ns: 'd.e'}}");
    assert_eq!(zones.len(), 1);
    let update = "{update: 'e', updates: [{q: {k: 150}, u: {$inc: {n: 1}}}, {q: {n: 0}, u: {$inc: {n: 5}}, multi: true}]}";
    assert_eq!(number(&run(&mut late, "d", update), "nModified"), 200);
    let high = chunks(&mut c, "d.e")[1].clone();
    move_to(&mut late, "d.e", &high, "s0", true).unwrap();
    assert_eq!((count(&mut c, "e"), count(&mut late, "e")), (200, 200));

    // The old name is free.
    run(&mut late, "d", "{insert: 'c', documents: [{_id: 'new'}]}");
    fails(&mut c, "admin", &rename("e", "c", ""), 48);
    run(&mut late, "admin", &rename("e", "c", ", dropTarget: true"));
    assert_eq!((count(&mut c, "c"), count(&mut c, "e")), (200, 0));
    assert_eq!(
        (known(&mut c), names(&cluster, 0)),
        (vec!["d.c".into()], vec!["c".into(), "v".into()])
    );

    // One replaces another.
    divided(&mut c, "x");
    fails(&mut c, "admin", &rename("x", "c", ""), 48);
    fails(
        &mut c,
        "admin",
        &rename("x", "c", ", dropTarget: true"),
        125,
    );
    run(
        &mut c,
        "admin",
        "{updateZoneKeyRange: 'd.c', min: {k: 150}, max: {k: 160}, zone: null}",
    );
    run(&mut c, "admin", &rename("x", "c", ", dropTarget: true"));
    assert_eq!(
        (known(&mut c), count(&mut late, "x")),
        (vec!["d.c".into()], 0)
    );
    assert_eq!(
        all(&mut late, "d", "{find: 'c', filter: {of: 'x'}}").len(),
        200
    );
    assert_eq!(
        (names(&cluster, 0), names(&cluster, 1)),
        (vec!["c".into(), "v".into()], vec!["c".into()])
    );
    let chunks_left = all(&mut c, "config", "{find: 'chunks', filter: {}}");
    let of_others = chunks_left
        .iter()
        .filter(|d| d.as_doc().get_doc("min").unwrap().get("k").is_some());
    assert_eq!(of_others.count(), 2);

    // What is whole replaces it, and is whole.
    run(
        &mut c,
        "d",
        "{insert: 'w', documents: [{_id: 1}, {_id: 2}]}",
    );
    run(&mut c, "admin", &rename("w", "c", ", dropTarget: true"));
    assert_eq!(count(&mut late, "c"), 2);
    assert!(known(&mut c).is_empty() && names(&cluster, 1).is_empty());
    // What is away from its database's shard stays there, and makes way.
    run(&mut c, "admin", "{moveCollection: 'd.c', toShard: 's1'}");
    run(&mut c, "admin", &rename("c", "away", ""));
    assert_eq!((count(&mut late, "away"), count(&mut late, "c")), (2, 0));
    assert_eq!(chunks(&mut c, "d.away")[0].shard, "s1");
    run(&mut c, "d", "{insert: 'w', documents: [{_id: 3}]}");
    run(&mut c, "admin", &rename("w", "away", ", dropTarget: true"));
    assert_eq!((count(&mut late, "away"), count(&mut late, "w")), (1, 0));
    assert!(known(&mut c).is_empty() && names(&cluster, 1).is_empty());
}

/// A router that takes both collections for whole ones, on the shard that it remembers.
#[test]
fn a_late_router_renames() {
    let (cluster, mut c) = begin(2);
    let mut late = cluster.routers[1].connect();
    for name in ["a", "b", "t", "u"] {
        insert(
            &mut late,
            "d",
            name,
            (0..20).map(|i| doc! { "_id": i, "k": i, "of": name }),
        );
        assert_eq!(count(&mut late, name), 20);
    }
    // The target of one, and the source of another one, are divided by now.
    for name in ["b", "u"] {
        let index = format!("{{createIndexes: '{name}', indexes: [{{key: {{k: 1}}, name: 'k'}}]}}");
        run(&mut c, "d", &index);
        run(
            &mut c,
            "admin",
            &format!("{{shardCollection: 'd.{name}', key: {{k: 1}}}}"),
        );
        run(
            &mut c,
            "admin",
            &format!("{{split: 'd.{name}', middle: {{k: 10}}}}"),
        );
        let high = chunks(&mut c, &format!("d.{name}"))[1].clone();
        move_to(&mut c, &format!("d.{name}"), &high, "s1", false).unwrap();
    }
    run(&mut late, "admin", &rename("a", "b", ", dropTarget: true"));
    run(&mut late, "admin", &rename("u", "v", ""));
    for c in [&mut c, &mut late] {
        for (name, of) in [("b", "a"), ("v", "u")] {
            let found = all(
                c,
                "d",
                &format!("{{find: '{name}', filter: {{of: '{of}'}}}}"),
            );
            assert_eq!((found.len(), count(c, name)), (20, 20), "{name}");
        }
        assert_eq!((count(c, "a"), count(c, "u")), (0, 0));
    }
    // The database has gone to another shard.
    run(&mut c, "admin", "{movePrimary: 'd', to: 's1'}");
    run(&mut late, "admin", &rename("t", "w", ""));
    assert_eq!((count(&mut c, "t"), count(&mut c, "w")), (0, 20));
    insert(&mut c, "d", "x", (0..3).map(|i| doc! { "_id": i }));
    fails(&mut late, "admin", &rename("w", "x", ""), 48);
}

/// A router ends at a step: nothing was renamed, or all; others go on.
#[test]
fn a_router_ends_while_it_renames() {
    let (mut cluster, mut c) = begin(2);
    divided(&mut c, "c");
    divided(&mut c, "x");
    let mut late = cluster.routers[1].connect();
    assert_eq!((count(&mut late, "c"), count(&mut late, "x")), (200, 200));
    for (step, to, more) in [
        ("afterFreeze", "e", ""),
        ("afterCommit", "e", ""),
        ("afterCommit", "x", ", dropTarget: true"),
    ] {
        let from = if to == "e" { "c" } else { "e" };
        let cmd = rename(from, to, more);
        let renamed = stopped(&cluster, step, move |c| c.command("admin", &shell(&cmd)));
        cluster.routers[0].kill9();
        let _ = renamed.join().unwrap();
        let was_renamed = step == "afterCommit";
        let (there, gone) = if was_renamed { (to, from) } else { (from, to) };
        let begun = Instant::now();
        assert_eq!(count(&mut late, gone), 0, "{step}");
        let update = format!(
            "{{update: '{there}', updates: [{{q: {{}}, u: {{$inc: {{n: 1}}}}, multi: true}}]}}"
        );
        assert_eq!(number(&run(&mut late, "d", &update), "n"), 200, "{step}");
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{step}: {:?}",
            begun.elapsed()
        );
        assert_eq!(
            all(
                &mut late,
                "d",
                &format!("{{find: '{there}', filter: {{of: 'c'}}}}")
            )
            .len(),
            200
        );
        assert!(!names(&cluster, 0).contains(&gone.to_string()), "{step}");
        assert!(!names(&cluster, 1).contains(&gone.to_string()), "{step}");
        assert!(known(&mut late).contains(&format!("d.{there}")));
        cluster.routers[0].start_again();
    }
    run(&mut late, "d", "{drop: 'x'}");
    assert!(known(&mut late).is_empty() && names(&cluster, 0).is_empty());
}

/// Each acknowledged change is there in the end, under whichever name it was made.
#[test]
fn changes_beside_renames_are_not_lost() {
    let (cluster, mut c) = begin(2);
    divided(&mut c, "c");
    let ends = AtomicBool::new(false);
    let changes = AtomicI64::new(0);
    thread::scope(|s| {
        for i in 0..2 {
            let mut w = cluster.routers[1].connect();
            let (ends, changes) = (&ends, &changes);
            s.spawn(move || {
                let mut turn = i;
                while !ends.load(SeqCst) {
                    turn += 1;
                    let name = ["c", "e"][turn % 2];
                    let key = turn * 37 % 200;
                    let update = format!(
                        "{{update: '{name}', updates: [{{q: {{k: {key}}}, u: {{$inc: {{n: 1}}}}}}]}}"
                    );
                    let n = number(&run(&mut w, "d", &update), "nModified");
                    changes.fetch_add(n, SeqCst);
                }
            });
        }
        for (from, to) in [("c", "e"), ("e", "c"), ("c", "e"), ("e", "c")] {
            let before = changes.load(SeqCst);
            let end = Instant::now() + Duration::from_secs(20);
            while changes.load(SeqCst) < before + 10 {
                assert!(Instant::now() < end, "nobody changes anything");
                thread::sleep(Duration::from_millis(1));
            }
            run(&mut c, "admin", &rename(from, to, ""));
        }
        ends.store(true, SeqCst);
    });
    let sum = all(
        &mut c,
        "d",
        "{aggregate: 'c', pipeline: [{$group: {_id: null, n: {$sum: '$n'}}}], cursor: {}}",
    );
    assert_eq!(number(&sum[0], "n"), changes.load(SeqCst));
}
