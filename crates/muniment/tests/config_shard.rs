//! The configuration's set as a shard, before real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{DocBuf, Value, doc};
use muniment_wire::Connection;
use std::thread;
use std::time::{Duration, Instant};
use testkit::ask::{all, fails, number, run};
use testkit::{Cluster, shell};

fn admin(c: &mut Connection, cmd: &str) -> DocBuf {
    run(c, "admin", cmd)
}

fn text<'d>(d: &'d DocBuf, name: &str) -> &'d str {
    d.as_doc().get_str(name).unwrap_or_default()
}

/// The names of the shards.
fn shards(c: &mut Connection) -> Vec<String> {
    let list = admin(c, "{listShards: 1}");
    let shards = list.as_doc().get_array("shards").unwrap().values();
    let id = |d: muniment_value::Doc<'_>| d.get_str("_id").unwrap().to_string();
    shards.map(|v| id(v.as_doc().unwrap())).collect()
}

fn sum(c: &mut Connection) -> i64 {
    let docs = all(c, "d", "{find: 'c'}");
    docs.iter().map(|d| number(d, "n")).sum()
}

/// A command of a transaction of the session with this byte.
fn within(mut command: DocBuf, (session, nth): (u8, i64), starts: bool) -> DocBuf {
    let id = Value::Binary {
        subtype: 4,
        bytes: &[session; 16],
    };
    command.append("lsid", doc! { "id": id });
    command.append("txnNumber", nth);
    command.append("autocommit", false);
    command.append_some("startTransaction", starts.then_some(true));
    command
}

/// Adds to the document with this key, in a transaction.
fn add(c: &mut Connection, (k, n): (i32, i32), of: (u8, i64), starts: bool) {
    let change = format!("{{update: 'c', updates: [{{q: {{k: {k}}}, u: {{$inc: {{n: {n}}}}}}}]}}");
    let done = c.command("d", &within(shell(&change), of, starts)).unwrap();
    assert_eq!(number(&done, "n"), 1);
}

fn commit(c: &mut Connection, of: (u8, i64)) {
    let commit = within(doc! { "commitTransaction": 1 }, of, false);
    c.command("admin", &commit).unwrap();
}

fn cursor_of(reply: &DocBuf) -> i64 {
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap()
}

/// It takes ranges, databases and transactions like any shard, while it serves the routers; and stops being one.
#[test]
fn the_configuration_is_a_shard_for_a_while() {
    let cluster = Cluster::start(1, 1, 2);
    let (mut c, mut other) = (cluster.connect(), cluster.routers[1].connect());
    let address = cluster.config.address();
    let refused = c.command("admin", &doc! { "addShard": &address });
    let refused = refused.unwrap_err();
    assert_eq!(refused.code().0, 96, "{refused}");
    assert!(
        refused
            .message()
            .contains("transitionFromDedicatedConfigServer")
    );
    fails(
        &mut c,
        "admin",
        "{transitionToDedicatedConfigServer: 1}",
        70,
    );
    for _ in 0..2 {
        admin(&mut c, "{transitionFromDedicatedConfigServer: 1}");
        assert_eq!(shards(&mut c), ["config", "s0"]);
    }
    admin(&mut c, "{enableSharding: 'd', primaryShard: 's0'}");
    admin(&mut c, "{shardCollection: 'd.c', key: {k: 1}}");
    let docs = (0..200).map(|i| doc! { "_id": i, "k": i, "n": 0 });
    let docs: muniment_value::ArrayBuf = docs.collect();
    c.command("d", &doc! { "insert": "c", "documents": docs })
        .unwrap();
    admin(&mut c, "{split: 'd.c', middle: {k: 100}}");
    admin(&mut c, "{moveChunk: 'd.c', find: {k: 150}, to: 'config'}");
    // A database of its own.
    admin(&mut c, "{enableSharding: 'e', primaryShard: 'config'}");
    run(
        &mut c,
        "e",
        "{insert: 'x', documents: [{_id: 1}, {_id: 2}]}",
    );
    for c in [&mut c, &mut other] {
        assert_eq!(all(c, "d", "{find: 'c'}").len(), 200);
        assert_eq!(all(c, "e", "{find: 'x'}").len(), 2);
    }
    let mut there = cluster.config.connect(0);
    assert_eq!(number(&run(&mut there, "d", "{count: 'c'}"), "n"), 100);
    // The databases of the configuration are shown once, and those of the data with them.
    let list = admin(&mut c, "{listDatabases: 1, nameOnly: true}");
    let names: Vec<_> = list
        .as_doc()
        .get_array("databases")
        .unwrap()
        .values()
        .collect();
    let names: Vec<_> = names
        .iter()
        .map(|v| v.as_doc().unwrap().get_str("name").unwrap())
        .collect();
    assert_eq!(names, ["admin", "config", "d", "e"]);
    let stream = "{aggregate: 'c', pipeline: [{$changeStream: {}}], cursor: {}}";
    let mut stream = cursor_of(&run(&mut other, "d", stream));
    for nth in 1..=5 {
        add(&mut c, (1, -1), (7, nth), true);
        add(&mut c, (150, 1), (7, nth), false);
        commit(&mut c, (7, nth));
    }
    let mut seen = Vec::new();
    while seen.len() < 10 {
        let more = doc! { "getMore": stream, "collection": "c", "maxTimeMS": 1000 };
        let reply = other.command("d", &more).unwrap();
        stream = cursor_of(&reply);
        let cursor = reply.as_doc().get_doc("cursor").unwrap();
        let batch = cursor.get_array("nextBatch").unwrap().values();
        let key = |v: Value<'_>| {
            v.as_doc()?
                .get_doc("documentKey")?
                .get("_id")?
                .as_i64_exact()
        };
        seen.extend(batch.map(|v| key(v).unwrap()));
    }
    seen.sort_unstable();
    assert_eq!(seen, [[1; 5], [150; 5]].concat());
    assert_eq!(sum(&mut other), 0);
    let moved = all(&mut other, "d", "{find: 'c', filter: {k: 150}}");
    assert_eq!(number(&moved[0], "n"), 5);
    // One that changes data of the set is not held to the short time of those that change the configuration.
    add(&mut c, (150, 1), (8, 1), true);
    thread::sleep(Duration::from_millis(6500));
    commit(&mut c, (8, 1));
    // It drains.
    fails(
        &mut c,
        "admin",
        "{getTransitionToDedicatedConfigServerStatus: 1}",
        20,
    );
    let begun = admin(&mut c, "{transitionToDedicatedConfigServer: 1}");
    assert_eq!(text(&begun, "state"), "started");
    admin(&mut c, "{stopTransitionToDedicatedConfigServer: 1}");
    fails(
        &mut c,
        "admin",
        "{commitTransitionToDedicatedConfigServer: 1}",
        20,
    );
    admin(&mut c, "{startTransitionToDedicatedConfigServer: 1}");
    let until = Instant::now() + Duration::from_secs(40);
    loop {
        admin(&mut c, "{balancerStart: 1}");
        let status = admin(&mut c, "{getTransitionToDedicatedConfigServerStatus: 1}");
        let left = status.as_doc().get_doc("remaining").unwrap();
        assert_eq!(left.get("dbs").and_then(|v| v.as_i64_exact()), Some(1));
        if left.get("chunks").and_then(|v| v.as_i64_exact()) == Some(0) {
            break;
        }
        assert!(Instant::now() < until, "{status:?}");
        thread::sleep(Duration::from_millis(50));
    }
    fails(
        &mut c,
        "admin",
        "{commitTransitionToDedicatedConfigServer: 1}",
        20,
    );
    admin(&mut c, "{movePrimary: 'e', to: 's0'}");
    let done = admin(&mut c, "{transitionToDedicatedConfigServer: 1}");
    assert_eq!(text(&done, "state"), "completed");
    assert_eq!(shards(&mut other), ["s0"]);
    for c in [&mut other, &mut c] {
        assert_eq!(all(c, "d", "{find: 'c'}").len(), 200);
        assert_eq!(all(c, "e", "{find: 'x'}").len(), 2);
    }
    assert_eq!(sum(&mut other), 1);
    // Nothing is left there, so that it can be one again.
    while number(&run(&mut there, "d", "{count: 'c'}"), "n") > 0 {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(50));
    }
    admin(&mut other, "{transitionFromDedicatedConfigServer: 1}");
    admin(&mut other, "{moveChunk: 'd.c', find: {k: 1}, to: 'config'}");
    assert_eq!(all(&mut c, "d", "{find: 'c'}").len(), 200);
}

/// A router that has not heard that a shard drained, was taken out and ended, finds its documents where they are.
#[test]
fn a_router_forgets_a_shard_that_is_no_more() {
    let mut cluster = Cluster::start(2, 1, 2);
    let (mut c, mut other) = (cluster.connect(), cluster.routers[1].connect());
    admin(&mut c, "{enableSharding: 'd', primaryShard: 's1'}");
    admin(&mut c, "{shardCollection: 'd.c', key: {k: 1}}");
    run(&mut c, "d", "{insert: 'c', documents: [{k: 1}, {k: 2}]}");
    run(&mut c, "d", "{insert: 'whole', documents: [{_id: 1}]}");
    assert_eq!(all(&mut other, "d", "{find: 'c'}").len(), 2);
    assert_eq!(all(&mut other, "d", "{find: 'whole'}").len(), 1);
    let early = admin(&mut c, "{hello: 1}");
    let early = early.as_doc().get("operationTime").unwrap();
    admin(&mut c, "{startShardDraining: 's1'}");
    admin(&mut c, "{moveChunk: 'd.c', find: {k: 1}, to: 's0'}");
    admin(&mut c, "{movePrimary: 'd', to: 's0'}");
    admin(&mut c, "{commitShardRemoval: 's1'}");
    // What it had earlier cannot be told any more, and is not left out in silence.
    let concern = doc! { "level": "snapshot", "atClusterTime": early };
    let read = doc! { "find": "c", "readConcern": concern };
    assert_eq!(c.command("d", &read).unwrap_err().code().0, 246);
    drop(cluster.shards.pop());
    let until = Instant::now() + Duration::from_secs(60);
    for (name, n) in [("c", 2), ("whole", 1)] {
        let find = shell(&format!("{{find: '{name}', maxTimeMS: 1000}}"));
        loop {
            match other.find_all("d", &find) {
                Ok(found) => break assert_eq!(found.len(), n),
                Err(e) => assert!(Instant::now() < until, "{e}"),
            }
            thread::sleep(Duration::from_millis(200));
        }
    }
}
