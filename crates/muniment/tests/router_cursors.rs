//! Cursors of a router, and those on shards that they read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{DocBuf, array, doc};
use muniment_wire::Connection;
use std::time::{Duration, Instant};
use testkit::ask::{fails, number, run};
use testkit::{Cluster, Set, shell};

/// For so long a server keeps a cursor that nobody uses.
const TIMEOUT: Duration = Duration::from_secs(5);
const ARGS: [&str; 4] = [
    "--setParameter",
    "cursorTimeoutMillis=5000",
    "--setParameter",
    "enableTestCommands=1",
];

/// A cluster of two shards, on both of which `d.c` has documents with numbers.
fn cluster(documents: i32) -> (Cluster, Connection) {
    let cluster = Cluster::prepare(2, 1, 1, &ARGS);
    let mut c = cluster.connect();
    cluster.add_shards(&mut c);
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {_id: 'hashed'}}",
    );
    let docs: Vec<DocBuf> = (0..documents).map(|i| doc! { "_id": i }).collect();
    let docs: muniment_value::ArrayBuf = docs.iter().collect();
    c.command("d", &doc! { "insert": "c", "documents": docs })
        .unwrap();
    (cluster, c)
}

/// The number of the cursor that a command opens.
fn opened(c: &mut Connection, cmd: &str) -> i64 {
    let reply = run(c, "d", cmd);
    let id = number(&reply.as_doc().get_doc("cursor").unwrap().to_buf(), "id");
    assert_ne!(id, 0, "{reply:?}");
    id
}

/// How many cursors are open on a shard.
fn open_on(shard: &Set) -> i64 {
    let status = run(&mut shard.connect(0), "admin", "{serverStatus: 1}");
    let cursors = status.as_doc().get_doc("metrics").unwrap();
    let open = cursors.get_doc("cursor").unwrap().get_doc("open").unwrap();
    number(&open.to_buf(), "total")
}

fn open_on_all(cluster: &Cluster) -> i64 {
    cluster.shards.iter().map(open_on).sum()
}

/// Waits until no shard has an open cursor.
fn until_closed(cluster: &Cluster) {
    let end = Instant::now() + Duration::from_secs(30);
    while open_on_all(cluster) != 0 {
        assert!(Instant::now() < end, "a cursor stays open");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A client that reads slowly takes longer for the documents of one shard than the others keep a cursor that nobody uses.
#[test]
fn cursors_of_shards_stay_open_while_one_is_read() {
    let (cluster, mut c) = cluster(400);
    let finds = [
        "{find: 'c', batchSize: 0}",
        "{find: 'c', sort: {_id: 1}, batchSize: 0}",
        "{aggregate: 'c', pipeline: [{$match: {_id: {$gte: 0}}}], cursor: {batchSize: 0}}",
    ];
    let ids = finds.map(|find| opened(&mut c, find));
    let mut read = [0; 3];
    let end = Instant::now() + 3 * TIMEOUT;
    let mut batch = 1;
    while batch < 1000 {
        for (id, read) in ids.iter().zip(&mut read) {
            let more = doc! { "getMore": *id, "collection": "c", "batchSize": batch };
            let next = c.command("d", &more).unwrap();
            let next = next.as_doc().get_doc("cursor").unwrap();
            *read += next.get_array("nextBatch").unwrap().values().count();
        }
        std::thread::sleep(TIMEOUT / 4);
        if Instant::now() > end {
            batch = 1000;
            for (id, read) in ids.iter().zip(&mut read) {
                let more = doc! { "getMore": *id, "collection": "c" };
                let next = c.command("d", &more).unwrap();
                let next = next.as_doc().get_doc("cursor").unwrap();
                *read += next.get_array("nextBatch").unwrap().values().count();
                assert_eq!(number(&next.to_buf(), "id"), 0);
            }
        }
    }
    assert_eq!(read, [400; 3]);
    assert_eq!(open_on_all(&cluster), 0);
}

/// The time limit of a cursor is the router's, which then closes those on the shards; so does the end of a router, also if
/// the client's cursor was to have no time limit.
#[test]
fn cursors_of_shards_end_with_those_of_the_router() {
    let (mut cluster, mut c) = cluster(400);
    let id = opened(&mut c, "{find: 'c', batchSize: 2}");
    let stays = opened(&mut c, "{find: 'c', batchSize: 2, noCursorTimeout: true}");
    assert_eq!(open_on_all(&cluster), 4);
    std::thread::sleep(2 * TIMEOUT);
    let more = |id: i64| format!("{{getMore: NumberLong('{id}'), collection: 'c', batchSize: 2}}");
    fails(&mut c, "d", &more(id), 43);
    run(&mut c, "d", &more(stays));
    cluster.routers[0].kill9();
    until_closed(&cluster);
}

/// A shard tells which cursors it has.
#[test]
fn a_shard_tells_which_cursors_are_open() {
    let (cluster, _) = cluster(400);
    let mut shard = cluster.shards[0].connect(0);
    let find = "{find: 'c', batchSize: 2}";
    let [kept, lost] = [find, find].map(|find| opened(&mut shard, find));
    let mut ask = |ids: &[i64], keep: bool| {
        let ids: muniment_value::ArrayBuf = ids.iter().collect();
        let ask = doc! { "_shardCursors": 1, "cursors": ids, "keep": keep };
        let reply = shard.command("admin", &ask).unwrap();
        let gone = reply.as_doc().get_array("gone").unwrap();
        let gone: Vec<i64> = gone.values().filter_map(|v| v.as_i64_exact()).collect();
        gone
    };
    let end = Instant::now() + 2 * TIMEOUT;
    assert_eq!(ask(&[lost, kept, 17], false), [17]);
    while Instant::now() < end {
        assert!(ask(&[kept], true).is_empty());
        std::thread::sleep(TIMEOUT / 4);
    }
    assert_eq!(ask(&[lost, kept], false), [lost]);
}

/// If one shard fails, what the others have begun for the same pipeline is ended.
#[test]
fn no_cursor_stays_open_after_an_error_of_one_shard() {
    let (cluster, mut c) = cluster(400);
    run(&mut c, "admin", "{enableSharding: 'd'}");
    run(&mut c, "d", "{insert: 'whole', documents: [{_id: 1}]}");
    let union =
        "{aggregate: 'whole', pipeline: [{$unionWith: {coll: 'c', pipeline: []}}], cursor: {}}";
    for shard in &cluster.shards {
        let mut failing = shard.connect(0);
        let fail = doc! {
            "configureFailPoint": "failCommand", "mode": doc! { "times": 1 },
            "data": doc! {
                "failCommands": array!["aggregate"], "errorCode": 2, "namespace": "d.c",
            },
        };
        failing.command("admin", &fail).unwrap();
        fails(&mut c, "d", union, 2);
        // Long before the shards would have done it.
        let open: Vec<i64> = cluster.shards.iter().map(open_on).collect();
        assert_eq!(open, [0, 0]);
    }
    assert_eq!(c.find_all("d", &shell(union)).unwrap().len(), 401);
}
