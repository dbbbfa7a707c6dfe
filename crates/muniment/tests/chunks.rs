//! Chunks that are split, merged and balanced, zones, and shards that are taken out, before real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{ArrayBuf, DocBuf, Value, array, doc};
use muniment_wire::Connection;
use std::thread;
use std::time::{Duration, Instant};
use testkit::ask::{all, run};
use testkit::{Cluster, shell};

fn admin(c: &mut Connection, cmd: &str) -> DocBuf {
    run(c, "admin", cmd)
}

fn fails(c: &mut Connection, cmd: &str, code: i32) {
    testkit::ask::fails(c, "admin", cmd, code);
}

fn text<'d>(d: &'d DocBuf, name: &str) -> &'d str {
    d.as_doc().get_str(name).unwrap_or_default()
}

/// The chunks of a collection by their lower bounds, each as `shard[min, max)`.
fn chunks(c: &mut Connection, ns: &str) -> Vec<String> {
    let of = format!("{{find: 'collections', filter: {{_id: '{ns}'}}}}");
    let collection = all(c, "config", &of).remove(0);
    let find = doc! {
        "find": "chunks", "sort": doc! { "min": 1 },
        "filter": doc! { "uuid": collection.as_doc().get("uuid").unwrap() },
    };
    let found = c.find_all("config", &find).unwrap();
    let show = |d: &DocBuf, name: &str| {
        let bound = d.as_doc().get_doc(name).unwrap();
        bound.first().unwrap().value().to_display()
    };
    let shown = found.iter().map(|d| {
        let (min, max) = (show(d, "min"), show(d, "max"));
        format!("{}[{min}, {max})", text(d, "shard"))
    });
    shown.collect()
}

/// `t.c`, divided by `k` and whole on the shard `s0`, with this many documents of some bytes.
fn filled(c: &mut Connection, n: i32, bytes: usize) {
    admin(c, "{enableSharding: 't', primaryShard: 's0'}");
    admin(c, "{shardCollection: 't.c', key: {k: 1}}");
    let pad = "x".repeat(bytes);
    for from in (0..n).step_by(100) {
        let docs: ArrayBuf = (from..n.min(from + 100))
            .map(|i| doc! { "_id": i, "k": i, "pad": &pad })
            .collect();
        c.command("t", &doc! { "insert": "c", "documents": docs })
            .unwrap();
    }
}

fn is_compliant(status: &DocBuf) -> bool {
    let v = status.as_doc().get("balancerCompliant");
    v.is_some_and(|v| v.truthy())
}

fn count(c: &mut Connection) -> usize {
    all(c, "t", "{find: 'c', projection: {_id: 1}}").len()
}

/// Waits until something holds, a minute at most.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "{what} did not come about");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn chunks_are_split_and_merged() {
    let cluster = Cluster::start(2, 1, 2);
    let mut c = cluster.connect();
    let mut other = cluster.routers[1].connect();
    filled(&mut c, 200, 10);
    // This router knows the state before.
    assert_eq!(count(&mut other), 200);
    admin(&mut c, "{split: 't.c', middle: {k: 50}}");
    admin(&mut c, "{split: 't.c', find: {k: 150}}");
    admin(&mut c, "{split: 't.c', bounds: [{k: MinKey}, {k: 50}]}");
    let four = [
        "s0[MinKey, 25)",
        "s0[25, 50)",
        "s0[50, 125)",
        "s0[125, MaxKey)",
    ];
    assert_eq!(chunks(&mut c, "t.c"), four);
    for (cmd, code) in [
        ("{split: 't.c', middle: {k: 50}}", 96),
        ("{split: 't.c', middle: {x: 50}}", 96),
        ("{split: 't.c', find: {x: 1}}", 96),
        ("{split: 't.c', bounds: [{k: 25}, {k: 51}]}", 96),
        ("{split: 't.c', bounds: [{k: 25}]}", 2),
        ("{split: 't.c'}", 2),
        ("{split: 't.c', middle: {k: 1}, find: {k: 1}}", 2),
        ("{split: 't.none', middle: {k: 1}}", 118),
        ("{split: 't.c', middle: {k: 1}, nope: 1}", 40415),
        ("{mergeChunks: 't.c', bounds: [{k: 25}, {k: 51}]}", 20),
        ("{mergeChunks: 't.c', bounds: [{k: 50}, {k: 25}]}", 20),
        ("{mergeChunks: 't.none', bounds: [{k: 50}, {k: 75}]}", 118),
        ("{mergeAllChunksOnShard: 't.c', shard: 'nope'}", 70),
        ("{clearJumboFlag: 't.c'}", 2),
    ] {
        fails(&mut c, cmd, code);
    }
    assert_eq!(chunks(&mut c, "t.c"), four);
    assert_eq!(count(&mut other), 200);
    run(
        &mut other,
        "t",
        "{update: 'c', updates: [{q: {k: {$gte: 20, $lt: 130}}, u: {$set: {a: 1}}, multi: true}]}",
    );
    admin(&mut c, "{mergeChunks: 't.c', bounds: [{k: 25}, {k: 125}]}");
    let three = ["s0[MinKey, 25)", "s0[25, 125)", "s0[125, MaxKey)"];
    assert_eq!(chunks(&mut c, "t.c"), three);
    // A merge of one chunk has nothing to do.
    admin(&mut c, "{mergeChunks: 't.c', bounds: [{k: 25}, {k: 125}]}");
    let marked = all(&mut other, "t", "{find: 'c', filter: {a: 1}}");
    assert_eq!(marked.len(), 110);
    // A chunk with one key has no middle.
    admin(&mut c, "{split: 't.c', middle: {k: 100}}");
    admin(&mut c, "{split: 't.c', middle: {k: 101}}");
    fails(&mut c, "{split: 't.c', find: {k: 100}}", 87);
    let log = all(&mut c, "config", "{find: 'changelog', filter: {ns: 't.c'}}");
    let kinds: Vec<&str> = log.iter().map(|d| text(d, "what")).collect();
    assert_eq!(
        kinds,
        ["split", "split", "split", "merge", "split", "split"]
    );
    // Versions only rise, and each is there once.
    let newest = "{find: 'chunks', sort: {lastmod: -1}, limit: 1}";
    let newest = all(&mut c, "config", newest).remove(0);
    let version = |d: &DocBuf, name: &str| match d.as_doc().get(name) {
        Some(Value::Timestamp { t, i }) => (t, i),
        other => panic!("{other:?}"),
    };
    assert_eq!(version(&newest, "lastmod"), (1, 11));
    let told = admin(&mut c, "{getShardVersion: 't.c'}");
    assert_eq!(version(&told, "version"), (1, 11));
}

#[test]
fn a_router_that_knows_an_older_state_finds_what_has_moved() {
    let cluster = Cluster::start(2, 1, 2);
    let mut c = cluster.connect();
    let mut other = cluster.routers[1].connect();
    filled(&mut c, 30, 10);
    admin(&mut c, "{split: 't.c', middle: {k: 10}}");
    admin(&mut c, "{split: 't.c', middle: {k: 20}}");
    let find = "{find: 'c', filter: {k: 15}}";
    assert_eq!(all(&mut other, "t", find).len(), 1);
    // The whole chunk moves, and its former shard keeps chunks that have not changed.
    admin(&mut c, "{moveRange: 't.c', min: {k: 10}, toShard: 's1'}");
    assert_eq!(all(&mut other, "t", find).len(), 1);
    // It comes back, so the other shard has nothing left.
    admin(&mut c, "{moveRange: 't.c', min: {k: 10}, toShard: 's0'}");
    assert_eq!(all(&mut other, "t", find).len(), 1);
    assert_eq!(count(&mut other), 30);
    // It is dropped, and the other router drops what has its name by now.
    run(&mut c, "t", "{drop: 'c'}");
    run(&mut c, "t", "{insert: 'c', documents: [{_id: 1}]}");
    run(&mut other, "t", "{drop: 'c'}");
    assert_eq!(count(&mut c), 0);
}

#[test]
fn hashed_chunks_are_split_in_their_middle() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    admin(&mut c, "{shardCollection: 't.h', key: {k: 'hashed'}}");
    let docs: ArrayBuf = (0..100).map(|i| doc! { "_id": i, "k": i }).collect();
    c.command("t", &doc! { "insert": "h", "documents": docs })
        .unwrap();
    admin(&mut c, "{split: 't.h', find: {k: 7}}");
    assert_eq!(chunks(&mut c, "t.h").len(), 3);
    assert_eq!(all(&mut c, "t", "{find: 'h'}").len(), 100);
}

#[test]
fn zones_are_checked() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    admin(&mut c, "{balancerStop: 1}");
    filled(&mut c, 10, 10);
    let zone = |min: &str, max: &str, zone: &str| {
        format!("{{updateZoneKeyRange: 't.c', min: {min}, max: {max}, zone: {zone}}}")
    };
    fails(&mut c, &zone("{k: 0}", "{k: 10}", "'a'"), 177);
    fails(&mut c, "{addShardToZone: 'nope', zone: 'a'}", 70);
    admin(&mut c, "{addShardToZone: 's0', zone: 'a'}");
    admin(&mut c, "{addShardToZone: 's0', zone: 'a'}");
    admin(&mut c, &zone("{k: 0}", "{k: 10}", "'a'"));
    // The same once more changes nothing.
    admin(&mut c, &zone("{k: 0}", "{k: 10}", "'a'"));
    for (min, max, name, code) in [
        ("{k: 5}", "{k: 15}", "'a'", 178),
        ("{k: 0}", "{k: 5}", "'a'", 178),
        ("{k: 20}", "{k: 20}", "'a'", 2),
        ("{x: 20}", "{x: 30}", "'a'", 61),
        ("{k: 20}", "{k: 30}", "7", 14),
    ] {
        fails(&mut c, &zone(min, max, name), code);
    }
    admin(&mut c, &zone("{k: 10}", "{k: 15}", "'a'"));
    fails(&mut c, "{removeShardFromZone: 's0', zone: 'a'}", 163);
    fails(&mut c, "{removeShard: 's0'}", 163);
    admin(&mut c, "{addShardToZone: 's1', zone: 'a'}");
    admin(&mut c, "{removeShardFromZone: 's0', zone: 'a'}");
    let status = admin(&mut c, "{balancerCollectionStatus: 't.c'}");
    assert_eq!(text(&status, "firstComplianceViolation"), "zoneViolation");
    admin(&mut c, &zone("{k: 0}", "{k: 10}", "null"));
    admin(&mut c, &zone("{k: 10}", "{k: 15}", "null"));
    assert!(all(&mut c, "config", "{find: 'tags'}").is_empty());
    admin(&mut c, "{removeShardFromZone: 's1', zone: 'a'}");
    let status = admin(&mut c, "{balancerCollectionStatus: 't.c'}");
    assert!(is_compliant(&status));
}

#[test]
fn the_balancer_evens_out_and_keeps_to_zones() {
    let cluster = Cluster::start(2, 1, 2);
    let mut c = cluster.connect();
    let mut other = cluster.routers[1].connect();
    admin(&mut c, "{balancerStop: 1}");
    let status = admin(&mut c, "{balancerStatus: 1}");
    assert_eq!(text(&status, "mode"), "off");
    filled(&mut c, 700, 10_000);
    let size = "{configureCollectionBalancing: 't.c', chunkSize: 1}";
    admin(&mut c, size);
    fails(
        &mut c,
        "{configureCollectionBalancing: 't.c', chunkSize: 5000}",
        2,
    );
    let status = admin(&mut c, "{balancerCollectionStatus: 't.c'}");
    assert_eq!(text(&status, "firstComplianceViolation"), "chunksImbalance");
    // A collection that is not to be balanced stays where it is.
    let forbids = |no: bool| {
        format!(
            "{{update: 'collections', updates: [{{q: {{_id: 't.c'}}, u: {{$set: {{noBalance: {no}}}}}}}]}}"
        )
    };
    run(&mut c, "config", &forbids(true));
    let rounds = |c: &mut Connection| {
        admin(c, "{balancerStart: 1}");
        let status = admin(c, "{balancerStatus: 1}");
        let n = status.as_doc().get("numBalancerRounds");
        n.and_then(|v| v.as_i64_exact()).unwrap()
    };
    let before = rounds(&mut c);
    until("two rounds", || rounds(&mut c) >= before + 2);
    assert_eq!(chunks(&mut c, "t.c"), ["s0[MinKey, MaxKey)"]);
    run(&mut c, "config", &forbids(false));
    until("a balance", || {
        rounds(&mut c);
        assert_eq!(count(&mut other), 700);
        let status = admin(&mut c, "{balancerCollectionStatus: 't.c'}");
        is_compliant(&status)
    });
    let moved = chunks(&mut c, "t.c")
        .iter()
        .filter(|c| c.starts_with("s1"))
        .count();
    assert!(moved >= 2, "{:?}", chunks(&mut c, "t.c"));
    let log = "{find: 'actionlog', filter: {what: 'balancer.round'}}";
    assert!(!all(&mut c, "config", log).is_empty());
    // A range that belongs to another shard goes there.
    admin(&mut c, "{addShardToZone: 's1', zone: 'z'}");
    admin(
        &mut c,
        "{updateZoneKeyRange: 't.c', min: {k: 600}, max: {k: 610}, zone: 'z'}",
    );
    until("the zone", || {
        rounds(&mut c);
        chunks(&mut c, "t.c").contains(&"s1[600, 610)".to_string())
    });
    assert_eq!(count(&mut other), 700);
}

#[test]
fn balancing_goes_on_after_an_election() {
    let cluster = Cluster::prepare_with(3, 2, 1, 1, &[]);
    let mut c = cluster.connect();
    cluster.add_shards(&mut c);
    admin(&mut c, "{balancerStop: 1}");
    filled(&mut c, 600, 10_000);
    admin(
        &mut c,
        "{configureCollectionBalancing: 't.c', chunkSize: 0.25}",
    );
    let wake = "{balancerStart: 1}";
    admin(&mut c, wake);
    until("the first move", || chunks(&mut c, "t.c").len() > 1);
    let mut primary = cluster.config.connect(cluster.config.primary());
    let down = "{replSetStepDown: 30, force: true}";
    let _ = primary.command("admin", &shell(down));
    until("a balance", || {
        let _ = c.command("admin", &shell(wake));
        let status = "{balancerCollectionStatus: 't.c'}";
        let status = c.command("admin", &shell(status));
        assert_eq!(count(&mut c), 600);
        status.is_ok_and(|status| is_compliant(&status))
    });
    // The former primary has stopped.
    let old = primary.command("admin", &shell("{currentOp: 1}"));
    if let Ok(old) = old {
        assert!(!old.as_doc().to_display().contains("balancer"), "{old:?}");
    }
}

#[test]
fn one_range_that_cannot_move_holds_up_no_other() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    filled(&mut c, 40, 10);
    admin(&mut c, "{enableSharding: 'u', primaryShard: 's1'}");
    admin(&mut c, "{split: 't.c', middle: {k: 10}}");
    admin(&mut c, "{split: 't.c', middle: {k: 20}}");
    admin(&mut c, "{moveRange: 't.c', min: {k: 20}, toShard: 's1'}");
    // The same `_id` on both shards: the first chunk cannot go to the second shard.
    run(
        &mut c,
        "t",
        "{insert: 'c', documents: [{_id: 'same', k: 1}]}",
    );
    run(
        &mut c,
        "t",
        "{insert: 'c', documents: [{_id: 'same', k: 30}]}",
    );
    admin(&mut c, "{addShardToZone: 's1', zone: 'z'}");
    let zone = |min: &str, max: &str| {
        format!("{{updateZoneKeyRange: 't.c', min: {min}, max: {max}, zone: 'z'}}")
    };
    admin(&mut c, &zone("{k: MinKey}", "{k: 10}"));
    admin(&mut c, &zone("{k: 10}", "{k: 20}"));
    until("the second chunk moves", || {
        admin(&mut c, "{balancerStart: 1}");
        let now = chunks(&mut c, "t.c");
        now == ["s0[MinKey, 10)", "s1[10, 20)", "s1[20, MaxKey)"]
    });
    let failed = "{find: 'actionlog', filter: {'details.errorOccurred': true}}";
    assert!(!all(&mut c, "config", failed).is_empty());
    assert_eq!(count(&mut c), 42);
}

#[test]
fn a_shard_is_taken_out() {
    let cluster = Cluster::start(2, 1, 2);
    let mut c = cluster.connect();
    let mut other = cluster.routers[1].connect();
    filled(&mut c, 100, 10);
    admin(&mut c, "{enableSharding: 'u', primaryShard: 's1'}");
    admin(&mut c, "{shardCollection: 'u.c', key: {k: 1}}");
    run(&mut c, "u", "{insert: 'c', documents: [{k: 1}, {k: 2}]}");
    fails(&mut c, "{removeShard: 'nope'}", 70);
    fails(&mut c, "{shardDrainingStatus: 's1'}", 20);
    fails(&mut c, "{commitShardRemoval: 's1'}", 20);
    let reply = admin(&mut c, "{removeShard: 's1'}");
    assert_eq!(text(&reply, "state"), "started");
    fails(&mut c, "{removeShard: 's0'}", 20);
    let state = |c: &mut Connection| {
        let reply = admin(c, "{removeShard: 's1'}");
        let left = reply.as_doc().get_doc("remaining");
        let chunks = left
            .and_then(|d| d.get("chunks"))
            .and_then(|v| v.as_i64_exact());
        (text(&reply, "state").to_string(), chunks)
    };
    // It gets nothing new.
    fails(
        &mut c,
        "{moveRange: 't.c', min: {k: MinKey}, max: {k: 5}, toShard: 's1'}",
        20,
    );
    assert_eq!(chunks(&mut c, "t.c"), ["s0[MinKey, MaxKey)"]);
    for db in ["v", "w"] {
        run(&mut c, db, "{insert: 'c', documents: [{a: 1}]}");
    }
    let found = all(
        &mut c,
        "config",
        "{find: 'databases', filter: {_id: {$in: ['v', 'w']}}}",
    );
    assert!(
        found.iter().all(|d| text(d, "primary") == "s0"),
        "{found:?}"
    );
    until("no chunks", || {
        admin(&mut c, "{balancerStart: 1}");
        let (state, chunks) = state(&mut c);
        assert_eq!(state, "ongoing");
        chunks == Some(0)
    });
    assert_eq!(all(&mut other, "u", "{find: 'c'}").len(), 2);
    fails(&mut c, "{commitShardRemoval: 's1'}", 20);
    admin(&mut c, "{stopShardDraining: 's1'}");
    fails(&mut c, "{shardDrainingStatus: 's1'}", 20);
    admin(&mut c, "{startShardDraining: 's1'}");
    let status = admin(&mut c, "{shardDrainingStatus: 's1'}");
    let dbs = status.as_doc().get_array("dbsToMove").unwrap();
    assert_eq!(dbs.values().next().and_then(|v| v.as_str()), Some("u"));
    // What a router has left that ended while it divided a collection keeps no shard.
    let mut config = cluster.config.connect(0);
    let left = all(&mut config, "config", "{find: 'chunks', limit: 1}");
    let mut chunk = doc! { "_id": "left", "uuid": Value::Binary { subtype: 4, bytes: &[7; 16] }, "shard": "s1" };
    for e in left[0].as_doc() {
        if !["_id", "uuid", "shard"].contains(&e.name()) {
            chunk.append_elem(e);
        }
    }
    let insert = doc! { "insert": "chunks", "documents": array![chunk] };
    config.command("config", &insert).unwrap();
    // More than are read at a time.
    for part in 0..11 {
        let docs = (0..1000).map(|i| doc! { "_id": format!("x{part}_{i}"), "primary": "s1" });
        let docs: ArrayBuf = docs.collect();
        config
            .command("config", &doc! { "insert": "databases", "documents": docs })
            .unwrap();
    }
    let status = admin(&mut c, "{shardDrainingStatus: 's1'}");
    let dbs = status.as_doc().get_array("dbsToMove").unwrap();
    assert_eq!(dbs.iter().count(), 11_001);
    run(
        &mut config,
        "config",
        "{delete: 'databases', deletes: [{q: {_id: /^x/}, limit: 0}]}",
    );
    // A database that is not sharded is moved by the user.
    run(&mut c, "u", "{insert: 'd', documents: [{a: 1}]}");
    admin(&mut c, "{movePrimary: 'u', to: 's0'}");
    assert_eq!(state(&mut c), ("completed".to_string(), None));
    let shards = admin(&mut c, "{listShards: 1}");
    assert_eq!(
        shards.as_doc().get_array("shards").unwrap().iter().count(),
        1
    );
    assert_eq!(count(&mut other), 100);
    for (name, n) in [("c", 2), ("d", 1)] {
        let find = format!("{{find: '{name}'}}");
        assert_eq!(all(&mut other, "u", &find).len(), n, "{name}");
    }
    fails(&mut c, "{removeShard: 's0'}", 20);
}

/// Moves collections that are whole and a whole database, while a second router does not know of it.
#[test]
fn whole_collections_and_databases_move() {
    let cluster = Cluster::start(2, 1, 2);
    let mut c = cluster.connect();
    let mut late = cluster.routers[1].connect();
    admin(&mut c, "{enableSharding: 'm', primaryShard: 's0'}");
    run(
        &mut c,
        "m",
        "{insert: 'a', documents: [{_id: 1, u: 1}, {_id: 2, u: 2}]}",
    );
    let unique = "{createIndexes: 'a', indexes: [{key: {u: 1}, name: 'u', unique: true}]}";
    run(&mut c, "m", unique);
    run(
        &mut c,
        "m",
        "{create: 'v', viewOn: 'a', pipeline: [{$match: {u: 1}}]}",
    );
    admin(&mut c, "{shardCollection: 'm.d', key: {k: 1}}");
    run(&mut c, "m", "{insert: 'd', documents: [{k: 1}, {k: 9}]}");
    admin(&mut c, "{split: 'm.d', middle: {k: 5}}");
    let seen = |c: &mut Connection| {
        let count = |c: &mut Connection, of: &str| all(c, "m", &format!("{{find: '{of}'}}")).len();
        (count(c, "a"), count(c, "v"), count(c, "d"))
    };
    assert_eq!(seen(&mut late), (2, 1, 2));
    admin(&mut c, "{moveCollection: 'm.a', toShard: 's1'}");
    assert_eq!((seen(&mut late), seen(&mut c)), ((2, 1, 2), (2, 1, 2)));
    let again = shell("{insert: 'a', documents: [{u: 2}]}");
    let refused = late.command("m", &again).unwrap();
    assert!(refused.as_doc().get("writeErrors").is_some(), "{refused:?}");
    let tracked = "{find: 'collections', filter: {_id: 'm.a', unsplittable: true}}";
    assert_eq!(all(&mut c, "config", tracked).len(), 1);
    fails(&mut c, "{moveCollection: 'm.d', toShard: 's1'}", 20);
    admin(&mut c, "{movePrimary: 'm', to: 's1'}");
    assert_eq!(all(&mut c, "config", tracked).len(), 0);
    // The router that has not heard of that divides the collection where it is by now.
    admin(&mut late, "{shardCollection: 'm.a', key: {u: 1}}");
    assert_eq!((seen(&mut late), seen(&mut c)), ((2, 1, 2), (2, 1, 2)));
    admin(&mut late, "{unshardCollection: 'm.a'}");
    assert_eq!((seen(&mut late), seen(&mut c)), ((2, 1, 2), (2, 1, 2)));
    // A message of an earlier move that comes late changes nothing.
    for (shard, left) in [(0, false), (1, true)] {
        let mut shard = cluster.shards[shard].connect(0);
        let tell = shell(&format!(
            "{{_shardLeaveDatabase: 1, left: {left}, at: Timestamp(9, 1)}}"
        ));
        assert_eq!(shard.command("m", &tell).unwrap_err().code().0, 117);
    }
    // A view that an earlier move left on the other shard does not come back.
    let mut other = cluster.shards[0].connect(0);
    run(
        &mut other,
        "m",
        "{create: 'v', viewOn: 'old', pipeline: []}",
    );
    admin(&mut c, "{movePrimary: 'm', to: 's0'}");
    assert_eq!(seen(&mut c), (2, 1, 2));
    admin(&mut c, "{movePrimary: 'm', to: 's1'}");
    assert_eq!((seen(&mut late), seen(&mut c)), ((2, 1, 2), (2, 1, 2)));
    // What is made at the router that did not know is found by the other.
    run(&mut late, "m", "{insert: 'new', documents: [{_id: 1}]}");
    assert_eq!(all(&mut c, "m", "{find: 'new'}").len(), 1);
    assert_eq!(chunks(&mut c, "m.d"), ["s0[MinKey, 5)", "s0[5, MaxKey)"]);
    // The shard that the database has left is still asked about this one.
    let mut touch = shell("{update: 'd', updates: [{q: {}, u: {$set: {x: 1}}}]}");
    let id = Value::Binary {
        subtype: 4,
        bytes: &[7; 16],
    };
    touch.append("lsid", doc! { "id": id });
    touch.append("txnNumber", 1_i64);
    let touched = c.command("m", &touch).unwrap();
    assert_eq!(touched.as_doc().get("n").unwrap().to_display(), "1");
    let whole = "{checkMetadataConsistency: 1, checkIndexes: true}";
    assert_eq!(all(&mut c, "m", whole), Vec::<DocBuf>::new());
    admin(&mut c, "{unshardCollection: 'm.d'}");
    assert_eq!((seen(&mut late), seen(&mut c)), ((2, 1, 2), (2, 1, 2)));
    let divided = "{find: 'collections', filter: {_id: /^m/}}";
    assert_eq!(all(&mut c, "config", divided).len(), 0);
    let mut shard = cluster.shards[0].connect(0);
    run(&mut shard, "m", "{insert: 'lost', documents: [{_id: 1}]}");
    let found = all(&mut c, "m", whole);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(text(&found[0], "type"), "MisplacedCollection");
}

#[test]
fn what_shards_have_is_shown() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    filled(&mut c, 100, 10);
    admin(&mut c, "{split: 't.c', middle: {k: 30}}");
    admin(
        &mut c,
        "{moveChunk: 't.c', find: {k: 50}, to: 's1', _waitForDelete: true}",
    );
    let stage = "{aggregate: 1, pipeline: [{$shardedDataDistribution: {}}], cursor: {}}";
    let found = all(&mut c, "admin", stage);
    let shards = found[0].as_doc().get_array("shards").unwrap();
    let owned: Vec<String> = shards
        .values()
        .filter_map(|v| v.as_doc())
        .map(|d| {
            let number = |name: &str| d.get(name).unwrap().to_display();
            let (docs, orphans) = (number("numOwnedDocuments"), number("numOrphanedDocs"));
            format!("{} {docs} {orphans}", d.get_str("shardName").unwrap())
        })
        .collect();
    assert_eq!(owned, ["s0 30 0", "s1 70 0"]);
    let figure = |shard: usize, name: &str| {
        let status = admin(&mut cluster.shards[shard].connect(0), "{serverStatus: 1}");
        let figures = status.as_doc().get_doc("shardingStatistics").unwrap();
        figures.get(name).unwrap().as_i64_exact().unwrap()
    };
    assert_eq!(figure(0, "countDonorMoveChunkStarted"), 1);
    assert_eq!(figure(0, "countDocsClonedOnDonor"), 70);
    assert_eq!(figure(0, "countDocsDeletedByRangeDeleter"), 70);
    assert_eq!(figure(0, "rangeDeleterTasks"), 0);
    assert_eq!(figure(1, "countRecipientMoveChunkStarted"), 1);
    assert_eq!(figure(1, "countDocsClonedOnRecipient"), 70);
    assert!(figure(1, "countBytesClonedOnRecipient") > 70 * 10);
    let success =
        "{find: 'changelog', filter: {what: 'moveChunk.from', 'details.note': 'success'}}";
    assert_eq!(all(&mut c, "config", success).len(), 1);
}

/// A router reads the chunks of a collection in pages, all of them as of one time, while others change.
#[test]
fn many_chunks_are_read_in_pages() {
    const CHUNKS: usize = 15_000;
    let cluster = Cluster::start(2, 1, 2);
    let mut c = cluster.connect();
    admin(&mut c, "{enableSharding: 't', primaryShard: 's0'}");
    let divide =
        format!("{{shardCollection: 't.c', key: {{k: 'hashed'}}, numInitialChunks: {CHUNKS}}}");
    admin(&mut c, &divide);
    let docs: Vec<_> = (0..500).map(|k| doc! { "k": k }).collect();
    c.command_with("t", &doc! { "insert": "c" }, &[("documents", &docs)])
        .unwrap();
    thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let mut c = cluster.connect();
            for i in 0..6 {
                let found = all(
                    &mut c,
                    "config",
                    "{find: 'chunks', sort: {min: 1}, limit: 1}",
                );
                let to = if text(&found[0], "shard") == "s0" {
                    "s1"
                } else {
                    "s0"
                };
                let mut command = doc! { "moveChunk": "t.c", "to": to };
                let bounds = ["min", "max"].map(|name| found[0].as_doc().get(name).unwrap());
                command.append("bounds", array![bounds[0], bounds[1]]);
                c.command("admin", &command)
                    .unwrap_or_else(|e| panic!("{i}: {e}"));
            }
        });
        let mut late = cluster.routers[1].connect();
        while !mover.is_finished() {
            admin(&mut late, "{flushRouterConfig: 1}");
            assert_eq!(all(&mut late, "t", "{find: 'c', filter: {k: 7}}").len(), 1);
            assert_eq!(
                all(&mut late, "t", "{find: 'c', batchSize: 1000}").len(),
                500
            );
        }
    });
    let counted = "{aggregate: 'chunks', pipeline: [{$count: 'n'}], cursor: {}}";
    let n = all(&mut c, "config", counted);
    assert_eq!(testkit::ask::number(&n[0], "n"), CHUNKS as i64);
}
