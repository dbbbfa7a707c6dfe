//! A collection is divided by another key, while clients use it and routers end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod moving;

use moving::load::{Load, routers_of};
use moving::*;
use muniment_value::{Doc, DocBuf, Result, doc};
use muniment_wire::Connection;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Cluster, shell};

/// A collection by `k` with 300 documents on both shards.
fn on_both(c: &mut Connection, name: &str) {
    let ns = format!("d.{name}");
    divide(c, &ns, "{k: 1}", &["{k: 100}", "{k: 200}"]);
    let all_of = chunks(c, &ns);
    move_to(c, &ns, &all_of[1], other(&all_of[0].shard), true).unwrap();
    let new = |i: i32| doc! { "_id": i, "k": i, "b": i * 7 % 300, "n": 0 };
    insert(c, "d", name, (0..300).map(new));
}

fn reshard(c: &mut Connection, name: &str, more: &str) -> Result<DocBuf> {
    c.command(
        "admin",
        &shell(&format!("{{reshardCollection: 'd.{name}', {more}}}")),
    )
}

fn docs(c: &mut Connection, name: &str) -> BTreeSet<String> {
    let found = all(c, "d", &format!("{{find: '{name}'}}"));
    let set = as_set(&found);
    assert_eq!(set.len(), found.len(), "{name}");
    set
}

fn key(c: &mut Connection, name: &str) -> String {
    let find = format!("{{find: 'collections', filter: {{_id: 'd.{name}'}}}}");
    let found = all(c, "config", &find);
    let key = found[0].as_doc().get_doc("key").unwrap();
    key.iter().map(|e| e.name()).collect::<Vec<_>>().join(" ")
}

/// Nothing is left of what was, anywhere: each shard has what it owns, under the collections' names, and configuration
/// and shards agree.
fn nothing_is_left(cluster: &Cluster, c: &mut Connection, name: &str, rows: i64) {
    until_clean(cluster, "d", name, rows);
    for shard in &cluster.shards {
        let mut primary = shard.connect(shard.primary());
        let found = all(&mut primary, "d", "{listCollections: 1}");
        let names = found.iter().map(|d| d.as_doc().get_str("name").unwrap());
        let left: Vec<&str> = names.filter(|n| n.starts_with("system.")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    let left = all(c, "config", "{find: 'reshardingOperations'}");
    assert!(left.is_empty(), "{left:?}");
    let pipeline = "[{$lookup: {from: 'collections', localField: 'uuid', foreignField: 'uuid', as: 'of'}}, \
                    {$match: {of: []}}]";
    let left = all(
        c,
        "config",
        &format!("{{aggregate: 'chunks', pipeline: {pipeline}, cursor: {{}}}}"),
    );
    assert!(left.is_empty(), "{left:?}");
    let check = "{checkMetadataConsistency: 1, checkIndexes: true, cursor: {}}";
    let wrong = all(c, "d", check);
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_collection_gets_another_key() {
    let cluster = cluster(2, 1, 2);
    let (mut c, mut late) = (cluster.connect(), cluster.routers[1].connect());
    run(&mut c, "admin", "{balancerStop: 1}");
    run(&mut c, "d", "{insert: 'whole', documents: [{_id: 1}]}");
    assert_eq!(
        reshard(&mut c, "whole", "key: {b: 1}")
            .unwrap_err()
            .code()
            .0,
        118
    );
    on_both(&mut c, "c");
    for index in [
        "{key: {n: 1}, name: 'n', expireAfterSeconds: 10000}",
        "{key: {k: 1, _id: 1}, name: 'u', unique: true}",
    ] {
        run(
            &mut c,
            "d",
            &format!("{{createIndexes: 'c', indexes: [{index}]}}"),
        );
    }
    run(&mut c, "d", "{collMod: 'c', validator: {n: {$lt: 10}}}");
    for (more, code) in [
        ("key: {b: 1}", 72),
        ("key: {b: -1}", 2),
        ("key: {b: 1}, unique: true", 2),
        ("key: {b: 1}, numInitialChunks: 0", 2),
        ("key: {b: 1}, collation: {locale: 'de'}", 2),
        ("key: {b: 1}, zones: [{zone: 'x'}]", 2),
        ("unique: false", 40414),
        (
            "key: {b: 1}, reshardingUUID: UUID('00000000-0000-4000-8000-000000000000')",
            238,
        ),
    ] {
        assert_eq!(
            reshard(&mut c, "c", more).unwrap_err().code().0,
            code,
            "{more}"
        );
    }
    run(&mut c, "d", "{dropIndexes: 'c', index: 'u'}");
    for (more, code) in [
        (
            "key: {b: 1}, zones: [{zone: 'x', min: {b: 1}, max: {b: 5}}]",
            177,
        ),
        ("key: {b: 1}, shardDistribution: [{shard: 'x'}]", 70),
        (
            "key: {b: 1}, shardDistribution: [{shard: 's0', min: {b: MinKey}, max: {b: 5}}]",
            2,
        ),
        ("key: {n: 1}, numInitialChunks: 5", 4_952_606),
    ] {
        let e = reshard(&mut c, "c", more).unwrap_err();
        assert_eq!(e.code().0, code, "{more}: {e}");
    }
    let before = docs(&mut late, "c");
    let uuid = |c: &mut Connection| {
        let found = all(c, "d", "{listCollections: 1, filter: {name: 'c'}}");
        let info = found[0].as_doc().get_doc("info").unwrap();
        info.get("uuid").unwrap().to_display()
    };
    // It is what it is already.
    let same = uuid(&mut c);
    reshard(&mut c, "c", "key: {k: 1}").unwrap();
    assert_eq!(uuid(&mut c), same);
    run(&mut c, "admin", "{addShardToZone: 's0', zone: 'low'}");
    for (i, more) in [
        "key: {b: 1}",
        "key: {_id: 'hashed'}",
        "key: {b: 1, k: 1}, numInitialChunks: 6, zones: [{zone: 'low', min: {b: 0}, max: {b: 50}}]",
        "key: {k: 'hashed'}, zones: []",
        "key: {k: 1}, shardDistribution: [{shard: 's1'}]",
        "key: {k: 1}, forceRedistribution: true, shardDistribution: \
         [{shard: 's0', min: {k: MinKey}, max: {k: 150}}, {shard: 's1', min: {k: 150}, max: {k: MaxKey}}]",
    ]
    .into_iter()
    .enumerate()
    {
        let was = uuid(&mut c);
        if i == 3 {
            // The collection has zones.
            assert_eq!(reshard(&mut c, "c", "key: {k: 'hashed'}").unwrap_err().code().0, 2);
        }
        reshard(&mut c, "c", more).unwrap_or_else(|e| panic!("{more}: {e}"));
        assert_ne!(uuid(&mut c), was, "{more}");
        let find = format!("{{find: 'c', filter: {{b: {}}}}}", i * 10);
        assert_eq!(all(&mut late, "d", &find).len(), 1, "{more}");
        assert_eq!(docs(&mut late, "c"), before, "{more}");
        let owners: BTreeSet<String> = chunks(&mut c, "d.c").into_iter().map(|c| c.shard).collect();
        assert_eq!(owners.len(), if i == 4 { 1 } else { 2 }, "{more}");
        let refused = late.command("d", &shell("{insert: 'c', documents: [{_id: 1000, n: 11}]}"));
        assert!(refused.unwrap().as_doc().get("writeErrors").is_some(), "{more}");
        let indexes = all(&mut late, "d", "{listIndexes: 'c'}");
        let expires = |d: &&DocBuf| d.as_doc().get("expireAfterSeconds").is_some();
        assert_eq!(indexes.iter().filter(expires).count(), 1, "{more}");
        for shard in &cluster.shards {
            let found = shard.connect(0).command("d", &shell("{validate: 'c', full: true}"));
            // A shard that has nothing does not have the collection.
            if let Ok(valid) = found {
                assert!(valid.as_doc().get("valid").unwrap().truthy(), "{more}: {valid:?}");
            }
        }
        nothing_is_left(&cluster, &mut c, "c", 300);
    }
    assert_eq!(all(&mut c, "config", "{find: 'tags'}").len(), 0);
    // Ranges move, and the collection is dropped, as before.
    let chunk = chunks(&mut c, "d.c")[0].clone();
    move_to(&mut late, "d.c", &chunk, other(&chunk.shard), true).unwrap();
    assert_eq!(docs(&mut c, "c"), before);
    run(&mut late, "d", "{drop: 'c'}");
    for shard in &cluster.shards {
        let left = all(
            &mut shard.connect(0),
            "d",
            "{listCollections: 1, filter: {name: 'c'}}",
        );
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Everything at once while collections are divided anew: each change takes effect once.
#[test]
fn everything_at_once() {
    let cluster = cluster(2, 1, 2);
    let mut c = cluster.connect();
    // Cursors that are open when a collection is replaced end with an error, as in MongoDB.
    let load = Load::prepare(&mut c, true);
    let routers = routers_of(&cluster);
    let mut done = Vec::new();
    thread::scope(|s| {
        let (load, routers) = (&load, &routers);
        let all = [
            "change", "change", "change", "insert", "insert", "batch", "audit", "read", "transfer",
        ];
        let threads: Vec<_> = (all.into_iter().enumerate())
            .map(|(i, what)| s.spawn(move || load.work(routers, i, what)))
            .collect();
        for (name, more) in [
            ("c", "key: {_id: 'hashed'}"),
            ("bank", "key: {_id: 1}"),
            ("c", "key: {k: 1, _id: 1}, numInitialChunks: 5"),
            ("bank", "key: {a: 'hashed'}"),
            ("c", "key: {k: 'hashed'}"),
            ("bank", "key: {a: 1}"),
        ] {
            thread::sleep(Duration::from_millis(300));
            done.push(reshard(&mut c, name, more));
        }
        thread::sleep(Duration::from_millis(300));
        let all_go_on = threads.iter().all(|t| !t.is_finished());
        load.stop.store(true, SeqCst);
        assert!(all_go_on);
    });
    for one in done {
        one.unwrap();
    }
    load.check(&mut c);
    nothing_is_left(&cluster, &mut c, "c", load.rows());
    nothing_is_left(&cluster, &mut c, "bank", load.accounts());
}

/// Begins to divide a collection anew, which stops at a step.
fn begun(cluster: &Cluster, name: &str, step: &str) -> thread::JoinHandle<Result<DocBuf>> {
    let of = name.to_string();
    stopped(cluster, step, move |c| reshard(c, &of, "key: {b: 1}"))
}

const STEPS: [&str; 6] = [
    "reshardMade",
    "reshardCopied",
    "reshardCaughtUp",
    "reshardFrozen",
    "reshardComplete",
    "reshardDecided",
];

/// A router ends at a step. Others go on within seconds, with what was decided, and nothing is left.
#[test]
fn a_router_ends_at_a_step() {
    let mut cluster = cluster(2, 1, 2);
    let mut late = cluster.routers[1].connect();
    for step in STEPS {
        on_both(&mut cluster.connect(), step);
    }
    let all_of = STEPS.map(|step| begun(&cluster, step, step));
    cluster.routers[0].kill9();
    for one in all_of {
        one.join().unwrap().unwrap_err();
    }
    let begun = Instant::now();
    for (i, step) in STEPS.into_iter().enumerate() {
        for id in [5, 150, 250] {
            let update = format!(
                "{{update: '{step}', updates: [{{q: {{_id: {id}}}, u: {{$inc: {{n: 1}}}}}}]}}"
            );
            assert_eq!(number(&run(&mut late, "d", &update), "n"), 1, "{step}");
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{step}");
        assert_eq!(docs(&mut late, step).len(), 300);
        let decided = step == "reshardDecided";
        assert_eq!(
            key(&mut late, step),
            if decided { "b" } else { "k" },
            "{step}"
        );
        let clean = format!("{{cleanupReshardCollection: 'd.{step}'}}");
        let end = Instant::now() + Duration::from_secs(20);
        while i != 1
            && let Err(e) = late.command("admin", &shell(&clean))
        {
            assert!(e.code().0 == 338 && Instant::now() < end, "{step}: {e}");
            thread::sleep(Duration::from_millis(50));
        }
        // The next one to divide it, or to drop it, takes away what is left.
        if i == 1 {
            reshard(&mut late, step, "key: {b: 1}").unwrap();
        }
        if step == "reshardMade" {
            run(&mut late, "d", &format!("{{drop: '{step}'}}"));
        }
    }
    for step in &STEPS[1..] {
        assert_eq!(docs(&mut late, step).len(), 300);
        nothing_is_left(&cluster, &mut late, step, 300);
    }
}

/// What is under way is shown, and ended from another router: the collection is as it was, whatever the step.
#[test]
fn it_is_aborted_and_committed() {
    let cluster = cluster(2, 1, 2);
    let (mut c, mut late) = (cluster.connect(), cluster.routers[1].connect());
    on_both(&mut c, "c");
    let before = docs(&mut c, "c");
    for command in ["abortReshardCollection", "commitReshardCollection"] {
        fails(&mut late, "admin", &format!("{{{command}: 'd.c'}}"), 339);
    }
    run(&mut late, "admin", "{cleanupReshardCollection: 'd.c'}");
    let abort = "{abortReshardCollection: 'd.c'}";
    for step in &STEPS[..5] {
        let divides = begun(&cluster, "c", step);
        fails(&mut late, "admin", "{cleanupReshardCollection: 'd.c'}", 338);
        let shown = run(
            &mut c,
            "admin",
            "{currentOp: 1, 'originatingCommand.reshardCollection': 'd.c'}",
        );
        let shown = shown.as_doc().get_array("inprog").unwrap();
        let shown: Vec<Doc<'_>> = shown.values().filter_map(|v| v.as_doc()).collect();
        let copied = if *step == "reshardMade" { 0 } else { 300 };
        assert_eq!(
            number(&shown[0].to_buf(), "documentsCopied"),
            copied,
            "{step}"
        );
        assert_eq!(number(&shown[0].to_buf(), "approxDocumentsToCopy"), 300);
        run(&mut late, "admin", abort);
        // Clients need not wait for the router that stands still.
        let update = "{update: 'c', updates: [{q: {_id: 5}, u: {$set: {n: 0}}}]}";
        assert_eq!(number(&run(&mut late, "d", update), "n"), 1, "{step}");
        assert_eq!(docs(&mut late, "c"), before, "{step}");
        nothing_is_left(&cluster, &mut late, "c", 300);
        go_on(&mut c);
        let e = divides.join().unwrap().unwrap_err();
        assert_eq!(e.code().0, 341, "{step}: {e}");
        assert_eq!(
            (docs(&mut late, "c"), key(&mut c, "c")),
            (before.clone(), "k".into())
        );
        nothing_is_left(&cluster, &mut late, "c", 300);
    }
    let divides = begun(&cluster, "c", "reshardCopied");
    run(&mut late, "admin", "{commitReshardCollection: 'd.c'}");
    assert!(!divides.is_finished());
    let noted = all(&mut late, "config", "{find: 'reshardingOperations'}");
    assert_eq!(
        noted[0].as_doc().get("commits").and_then(|v| v.as_bool()),
        Some(true)
    );
    go_on(&mut c);
    divides.join().unwrap().unwrap();
    assert_eq!(
        (docs(&mut late, "c"), key(&mut c, "c")),
        (before, "b".into())
    );
    // An abort that comes after the decision says so, and does what is left.
    on_both(&mut c, "e");
    let divides = begun(&cluster, "e", "reshardDecided");
    fails(&mut late, "admin", "{abortReshardCollection: 'd.e'}", 340);
    nothing_is_left(&cluster, &mut late, "e", 300);
    go_on(&mut c);
    divides.join().unwrap().unwrap();
    assert_eq!(
        (docs(&mut late, "e").len(), key(&mut c, "e")),
        (300, "b".into())
    );
}

/// What cannot be divided so stays as it was.
#[test]
fn documents_that_stand_in_the_way() {
    let cluster = cluster(2, 1, 1);
    let mut c = cluster.connect();
    on_both(&mut c, "c");
    // The same `_id` on both shards, which one shard would get.
    run(
        &mut c,
        "d",
        "{insert: 'c', documents: [{_id: 7, k: 150, b: 0}]}",
    );
    let before = docs(&mut c, "c");
    let whole = "key: {b: 1}, numInitialChunks: 1";
    assert_eq!(reshard(&mut c, "c", whole).unwrap_err().code().0, 11000);
    assert_eq!(docs(&mut c, "c"), before);
    nothing_is_left(&cluster, &mut c, "c", 301);
    // Numbers are the same `_id` whatever their types.
    run(
        &mut c,
        "d",
        "{delete: 'c', deletes: [{q: {_id: 7, k: 150}, limit: 1}]}",
    );
    run(
        &mut c,
        "d",
        "{insert: 'c', documents: [{_id: 7.0, k: 150, b: 0}, {_id: 8, k: NumberLong(151), b: 0}]}",
    );
    let before = docs(&mut c, "c");
    assert_eq!(before.len(), 302);
    assert_eq!(reshard(&mut c, "c", whole).unwrap_err().code().0, 11000);
    assert_eq!(docs(&mut c, "c"), before);
    nothing_is_left(&cluster, &mut c, "c", 302);
    run(
        &mut c,
        "d",
        "{delete: 'c', deletes: [{q: {_id: 8, k: 151}, limit: 1}]}",
    );
    let before = docs(&mut c, "c");
    // They may be on different shards.
    let apart = "key: {b: 1}, shardDistribution: \
                 [{shard: 's0', min: {b: MinKey}, max: {b: 1}}, {shard: 's1', min: {b: 1}, max: {b: MaxKey}}]";
    reshard(&mut c, "c", apart).unwrap();
    assert_eq!(docs(&mut c, "c"), before);
    nothing_is_left(&cluster, &mut c, "c", 301);
    // An array is no value of a key.
    run(
        &mut c,
        "d",
        "{insert: 'c', documents: [{_id: 500, k: [1], b: 1}]}",
    );
    let before = docs(&mut c, "c");
    assert_eq!(
        reshard(&mut c, "c", "key: {k: 1}").unwrap_err().code().0,
        61
    );
    assert_eq!(docs(&mut c, "c"), before);
    nothing_is_left(&cluster, &mut c, "c", 302);
    // An index is made meanwhile.
    run(
        &mut c,
        "d",
        "{delete: 'c', deletes: [{q: {_id: {$in: [7, 500]}}, limit: 0}]}",
    );
    let divides = stopped(&cluster, "reshardCopied", |c| {
        reshard(c, "c", "key: {k: 1}")
    });
    run(
        &mut c,
        "d",
        "{createIndexes: 'c', indexes: [{key: {n: 1}, name: 'n'}]}",
    );
    go_on(&mut c);
    assert_eq!(divides.join().unwrap().unwrap_err().code().0, 117);
    nothing_is_left(&cluster, &mut c, "c", 299);
    reshard(&mut c, "c", "key: {k: 1}").unwrap();
    assert_eq!(all(&mut c, "d", "{find: 'c', hint: 'n'}").len(), 299);
}

/// A retryable statement that was executed before is not executed again.
#[test]
fn a_repeated_statement_takes_effect_once() {
    let cluster = cluster(2, 1, 2);
    let (mut c, mut late) = (cluster.connect(), cluster.routers[1].connect());
    on_both(&mut c, "c");
    let commands = [
        "{update: 'c', updates: [{q: {k: 3}, u: {$inc: {n: 1}}}, {q: {_id: 150}, u: {$inc: {n: 1}}}]}",
        "{insert: 'c', documents: [{_id: 1000, k: 50, b: 1}, {_id: 1001, k: 150, b: 299}]}",
        "{delete: 'c', deletes: [{q: {k: 10}, limit: 1}, {q: {b: 299}, limit: 1}]}",
        "{findAndModify: 'c', query: {k: 20}, update: {$inc: {n: 1}}, new: true}",
        "{update: 'c', updates: [{q: {_id: 2000, k: 60, b: 60}, u: {$inc: {n: 1}}, upsert: true}]}",
        // These move documents by one key, and not by another one.
        "{update: 'c', updates: [{q: {_id: 160}, u: {$inc: {k: -150, b: 3}}}]}",
        "{update: 'c', updates: [{q: {_id: 161}, u: {$inc: {k: -150}}}]}",
        "{update: 'c', updates: [{q: {k: 162, n: 0}, u: {$inc: {b: 150}}}]}",
        "{findAndModify: 'c', query: {n: 0, k: {$gt: 200}}, sort: {k: 1}, update: {$inc: {b: 150, n: 1}}}",
    ];
    let commands = commands.iter().enumerate();
    let commands: Vec<DocBuf> = commands
        .map(|(i, command)| numbered(shell(command), &session(1, i as u64), 1))
        .collect();
    let first: Vec<DocBuf> = commands
        .iter()
        .map(|cmd| c.command("d", cmd).unwrap())
        .collect();
    let after = docs(&mut c, "c");
    for more in ["key: {b: 1}", "key: {_id: 'hashed'}", "key: {k: 1}"] {
        reshard(&mut c, "c", more).unwrap();
        for (command, first) in commands.iter().zip(&first) {
            for c in [&mut c, &mut late] {
                let again = c.command("d", command).unwrap();
                for field in ["n", "nModified", "value", "upserted", "writeErrors"] {
                    let shown = |d: &DocBuf| d.as_doc().get(field).map(|v| v.to_display());
                    assert_eq!(shown(&again), shown(first), "{command:?}: {again:?}");
                }
            }
        }
        let now = docs(&mut c, "c");
        let differs: Vec<&String> = now.symmetric_difference(&after).collect();
        assert!(differs.is_empty(), "{more}: {differs:?}");
    }
}

/// Transactions that use the collection are waited for; those that are older begin anew.
#[test]
fn transactions_beside_it() {
    let cluster = cluster(2, 1, 2);
    let (mut c, mut late) = (cluster.connect(), cluster.routers[1].connect());
    on_both(&mut c, "c");
    run(&mut c, "d", "{insert: 'other', documents: [{_id: 1}]}");
    let (holds, old) = (session(5, 1), session(5, 2));
    let update = "{update: 'c', updates: [{q: {k: 5}, u: {$inc: {n: 1}}}]}";
    statement(&mut late, "d", update, (&holds, 1), true).unwrap();
    let read = "{find: 'other', readConcern: {level: 'snapshot'}}";
    statement(&mut late, "d", read, (&old, 1), true).unwrap();
    thread::scope(|s| {
        let divides = s.spawn(|| reshard(&mut c, "c", "key: {b: 1}"));
        let begun = Instant::now();
        let mut writer = cluster.routers[1].connect();
        while begun.elapsed() < Duration::from_secs(2) {
            let one = Instant::now();
            run(
                &mut writer,
                "d",
                "{update: 'c', updates: [{q: {k: 6}, u: {$inc: {m: 1}}}]}",
            );
            assert!(one.elapsed() < Duration::from_secs(4));
        }
        assert!(!divides.is_finished(), "{:?}", divides.join());
        let mut commit = numbered(doc! { "commitTransaction": 1 }, &holds, 1);
        commit.append("autocommit", false);
        late.command("admin", &commit).unwrap();
        divides.join().unwrap().unwrap();
    });
    assert_eq!(
        all(&mut c, "d", "{find: 'c', filter: {k: 5, n: 1}}").len(),
        1
    );
    let find = "{find: 'c', filter: {k: {$gte: 0}}, batchSize: 1000}";
    let e = statement(&mut late, "d", find, (&old, 1), false).unwrap_err();
    assert!(e.labels().contains(&"TransientTransactionError"), "{e}");
    let new = session(5, 3);
    let both = "{update: 'c', updates: [{q: {_id: {$lt: 10}}, u: {$inc: {n: 1}}, multi: true}]}";
    assert_eq!(
        number(
            &statement(&mut late, "d", both, (&new, 1), true).unwrap(),
            "n"
        ),
        10
    );
    let mut commit = numbered(doc! { "commitTransaction": 1 }, &new, 1);
    commit.append("autocommit", false);
    late.command("admin", &commit).unwrap();
    assert_eq!(
        all(&mut c, "d", "{find: 'c', filter: {n: {$gt: 0}}}").len(),
        10
    );
    nothing_is_left(&cluster, &mut c, "c", 300);
}

/// A change stream shows what clients do before, meanwhile and after, once and in order, and nothing of the copying.
#[test]
fn change_streams_go_on() {
    let cluster = cluster(2, 1, 2);
    let (mut c, mut late) = (cluster.connect(), cluster.routers[1].connect());
    on_both(&mut c, "c");
    let mut streams = Vec::new();
    for (of, options) in [
        ("'c'", ""),
        ("'c'", "fullDocument: 'updateLookup'"),
        ("1", ""),
    ] {
        let mut watcher = cluster.routers[1].connect();
        let open = format!(
            "{{aggregate: {of}, pipeline: [{{$changeStream: {{{options}}}}}], cursor: {{}}}}"
        );
        let open = run(&mut watcher, "d", &open);
        let cursor = open.as_doc().get_doc("cursor").unwrap();
        let id = cursor.get("id").unwrap().as_i64_exact().unwrap();
        let name = cursor
            .get_str("ns")
            .unwrap()
            .split_once('.')
            .unwrap()
            .1
            .to_string();
        streams.push((watcher, id, name));
    }
    let mut wanted = 0;
    for more in ["key: {b: 1}", "key: {_id: 'hashed'}"] {
        thread::scope(|s| {
            let divides = s.spawn(|| reshard(&mut c, "c", more));
            let mut least = 30;
            while !divides.is_finished() || least > 0 {
                let id = wanted % 300;
                let update = format!(
                    "{{update: 'c', updates: [{{q: {{_id: {id}}}, u: {{$inc: {{n: 1}}}}}}]}}"
                );
                assert_eq!(number(&run(&mut late, "d", &update), "n"), 1);
                wanted += 1;
                least -= 1;
            }
            divides.join().unwrap().unwrap();
        });
    }
    for (watcher, id, name) in &mut streams {
        let mut seen = Vec::new();
        let end = Instant::now() + Duration::from_secs(20);
        while (seen.len() as i64) < wanted && Instant::now() < end {
            let more = doc! { "getMore": *id, "collection": name.as_str(), "maxTimeMS": 500 };
            let reply = watcher.command("d", &more).unwrap();
            let cursor = reply.as_doc().get_doc("cursor").unwrap();
            for event in cursor.get_array("nextBatch").unwrap().values() {
                let event = event.as_doc().unwrap();
                assert_eq!(
                    event.get_str("operationType"),
                    Some("update"),
                    "{name}: {event:?}"
                );
                let key = event.get_doc("documentKey").unwrap();
                seen.push(key.get("_id").unwrap().as_i64_exact().unwrap());
            }
        }
        let all_of: Vec<i64> = (0..wanted).map(|n| n % 300).collect();
        assert_eq!(seen, all_of, "{name}");
    }
}

/// Unique keys that are given to other documents while the collection is divided anew stay unique, and nothing is lost.
#[test]
fn unique_keys_are_used_again() {
    let cluster = cluster(2, 1, 2);
    let mut c = cluster.connect();
    divide(&mut c, "d.c", "{a: 1}", &["{a: 10}"]);
    let all_of = chunks(&mut c, "d.c");
    move_to(&mut c, "d.c", &all_of[1], other(&all_of[0].shard), true).unwrap();
    run(
        &mut c,
        "d",
        "{createIndexes: 'c', indexes: [{key: {a: 1, b: 1}, name: 'u', unique: true}]}",
    );
    let new = |i: i64| doc! { "_id": i, "a": i % 20, "b": i / 20 };
    insert(&mut c, "d", "c", (0..400).map(new));
    let stop = AtomicBool::new(false);
    let mut there: BTreeSet<i64> = (0..400).collect();
    let written = thread::scope(|s| {
        let writer = s.spawn(|| {
            let mut c = cluster.routers[1].connect();
            let (mut dice, mut next) = (Dice(7), 1000_i64);
            while !stop.load(SeqCst) {
                let old = *there.iter().nth(dice.below(there.len())).unwrap();
                let found = all(&mut c, "d", &format!("{{find: 'c', filter: {{_id: {old}}}}}"));
                let mut taken = found[0].clone();
                let twice = doc! { "_id": -1, "a": taken.as_doc().get("a"), "b": taken.as_doc().get("b") };
                let twice = doc! { "insert": "c", "documents": muniment_value::array![twice] };
                let refused = c.command("d", &twice).unwrap();
                assert!(refused.as_doc().get("writeErrors").is_some(), "{twice:?}");
                let gone = format!("{{delete: 'c', deletes: [{{q: {{_id: {old}}}, limit: 1}}]}}");
                assert_eq!(number(&run(&mut c, "d", &gone), "n"), 1, "{old}");
                taken = doc! { "_id": next, "a": taken.as_doc().get("a"), "b": taken.as_doc().get("b") };
                insert(&mut c, "d", "c", std::iter::once(taken));
                there.remove(&old);
                there.insert(next);
                next += 1;
            }
            next - 1000
        });
        for more in [
            "key: {a: 1, b: 1}",
            "key: {a: 1}",
            "key: {a: 1, b: 1}, numInitialChunks: 8",
        ] {
            thread::sleep(Duration::from_millis(100));
            let done = reshard(&mut c, "c", more);
            if done.is_err() {
                stop.store(true, SeqCst);
            }
            done.unwrap();
        }
        stop.store(true, SeqCst);
        writer.join().unwrap()
    });
    assert!(written > 20, "{written}");
    let found = all(&mut c, "d", "{find: 'c'}");
    let ids: BTreeSet<i64> = found.iter().map(|d| number(d, "_id")).collect();
    let keys: BTreeSet<(i64, i64)> = found
        .iter()
        .map(|d| (number(d, "a"), number(d, "b")))
        .collect();
    assert_eq!((found.len(), keys.len()), (400, 400));
    assert_eq!(ids, there);
    nothing_is_left(&cluster, &mut c, "c", 400);
}

/// The primaries of shards change in the middle: what was copied, and what is frozen, is on the majority.
#[test]
fn other_members_lead_from_a_step_on() {
    let cluster = hasty_cluster(2, 3, 1);
    let mut c = cluster.connect();
    on_both(&mut c, "c");
    let before = docs(&mut c, "c");
    for step in ["reshardCopied", "reshardComplete"] {
        let divides = begun(&cluster, "c", step);
        for shard in &cluster.shards {
            let primary = shard.primary();
            let down = doc! { "replSetStepDown": 30, "secondaryCatchUpPeriodSecs": 10 };
            shard.connect(primary).command("admin", &down).unwrap();
            let end = Instant::now() + Duration::from_secs(20);
            while shard.primary() == primary {
                assert!(Instant::now() < end, "{step}");
                thread::sleep(Duration::from_millis(20));
            }
        }
        go_on(&mut c);
        divides.join().unwrap().unwrap();
        assert_eq!(
            (docs(&mut c, "c"), key(&mut c, "c")),
            (before.clone(), "b".into())
        );
        reshard(&mut c, "c", "key: {k: 1}").unwrap();
        assert_eq!(docs(&mut c, "c"), before, "{step}");
    }
    let update = "{update: 'c', updates: [{q: {}, u: {$inc: {n: 1}}, multi: true}]}";
    assert_eq!(number(&run(&mut c, "d", update), "nModified"), 300);
    nothing_is_left(&cluster, &mut c, "c", 300);
}
