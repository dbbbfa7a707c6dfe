//! A router that stands still for longer than its right lasts, or that ends in the middle of something, and what other
//! routers do meanwhile: nothing that it says afterwards takes documents away.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod moving;

use moving::*;
use muniment_value::{DocBuf, Result, doc};
use muniment_wire::Connection;
use std::thread;
use std::time::Duration;
use testkit::{Cluster, shell};

/// So many documents the collection has.
const DOCUMENTS: i64 = 40;

/// A cluster with two routers. The database is on the first shard, and so is its collection.
fn started() -> (Cluster, Connection, Connection) {
    let cluster = cluster(2, 1, 2);
    let (mut c, late) = (cluster.connect(), cluster.routers[1].connect());
    run(&mut c, "admin", "{enableSharding: 'd', primaryShard: 's0'}");
    let documents: String = (0..DOCUMENTS)
        .map(|i| format!("{{_id: {i}, k: {i}}},"))
        .collect();
    let insert = format!("{{insert: 'c', documents: [{documents}]}}");
    run(&mut c, "d", &insert);
    (cluster, c, late)
}

/// Divides the collection, and moves a half of it.
fn divided(c: &mut Connection) {
    run(
        c,
        "d",
        "{createIndexes: 'c', indexes: [{key: {k: 1}, name: 'k'}]}",
    );
    run(c, "admin", "{shardCollection: 'd.c', key: {k: 1}}");
    run(
        c,
        "admin",
        "{moveRange: 'd.c', min: {k: 20}, toShard: 's1'}",
    );
}

fn admin(cmd: &'static str) -> impl FnOnce(&mut Connection) -> Result<DocBuf> + Send + 'static {
    move |c| c.command("admin", &shell(cmd))
}

/// Has the first router begin something, stand still at a step until its right is too old, and go on after something else
/// was done.
fn while_it_stands_still<T>(
    cluster: &Cluster,
    step: &str,
    command: &'static str,
    meanwhile: impl FnOnce() -> T,
) -> T {
    let begun = stopped(cluster, step, admin(command));
    let pid = cluster.routers[0].pid().unwrap();
    testkit::freeze(pid);
    thread::sleep(Duration::from_secs(9));
    let done = meanwhile();
    testkit::thaw(pid);
    go_on(&mut cluster.connect());
    begun.join().unwrap().expect_err("it had lost its right");
    done
}

/// All routers find this many documents, now and after the cleaner had time, and the cluster is consistent.
fn has(cluster: &Cluster, name: &str, wanted: i64) {
    for round in 0..3 {
        for router in &cluster.routers {
            let mut c = router.connect();
            let found = all(&mut c, "d", &format!("{{find: '{name}'}}")).len();
            assert_eq!(found as i64, wanted, "{name}, round {round}");
            run(&mut c, "admin", "{flushRouterConfig: 1}");
        }
        thread::sleep(Duration::from_millis(700));
    }
    let problems = all(&mut cluster.connect(), "d", "{checkMetadataConsistency: 1}");
    assert!(problems.is_empty(), "{problems:?}");
}

/// The collection comes back to the shard of its database, which has it for itself then. What the first router says of the
/// generation that has ended is refused.
#[test]
fn a_generation_that_has_ended_stays_so() {
    for step in ["afterCopy", "afterGive"] {
        let (cluster, _, mut late) = started();
        while_it_stands_still(
            &cluster,
            step,
            "{moveCollection: 'd.c', toShard: 's1'}",
            || {
                run(&mut late, "d", "{count: 'c'}");
                run(&mut late, "admin", "{moveCollection: 'd.c', toShard: 's0'}");
                run(&mut late, "d", "{insert: 'c', documents: [{_id: 100}]}");
            },
        );
        has(&cluster, "c", DOCUMENTS + 1);
    }
}

/// The first router goes on while the second one has told the shard that the collection stays, and is about to have the
/// configuration forget it. Nobody learns that it has.
#[test]
fn what_stays_is_not_taken_back() {
    let (cluster, _, mut late) = started();
    let untracks = while_it_stands_still(
        &cluster,
        "afterCopy",
        "{moveCollection: 'd.c', toShard: 's1'}",
        || {
            run(&mut late, "d", "{count: 'c'}");
            stopped_at(
                &cluster.routers[1],
                "duringUntrack",
                admin("{moveCollection: 'd.c', toShard: 's0'}"),
            )
        },
    );
    let unconfirmed = "writeConcernError: {code: 64, errmsg: 'lost'}";
    cluster
        .config
        .fail_commands(&["commitTransaction"], "{times: 1}", unconfirmed);
    go_on(&mut late);
    untracks.join().unwrap().unwrap_err();
    has(&cluster, "c", DOCUMENTS);
}

/// The first router knows that the shard had less than it has now.
#[test]
fn an_older_placement_is_refused_while_the_collection_is_to_stay() {
    let (cluster, mut c, mut late) = started();
    divided(&mut c);
    run(&mut late, "d", "{count: 'c'}");
    let untracks = while_it_stands_still(
        &cluster,
        "afterCopy",
        "{moveChunk: 'd.c', find: {k: 1}, to: 's1'}",
        || {
            stopped_at(
                &cluster.routers[1],
                "duringUntrack",
                admin("{unshardCollection: 'd.c', toShard: 's0'}"),
            )
        },
    );
    thread::sleep(Duration::from_secs(2));
    go_on(&mut late);
    untracks.join().unwrap().unwrap();
    has(&cluster, "c", DOCUMENTS);
}

/// A router ends before it has taken the views of a database from the shard that this has left. One of them is a collection
/// when the database comes back.
#[test]
fn a_collection_with_the_name_of_a_view_is_no_view() {
    let (mut cluster, mut c, mut late) = started();
    run(&mut c, "d", "{create: 'v', viewOn: 'c', pipeline: []}");
    let moves = stopped(
        &cluster,
        "movePrimaryDecided",
        admin("{movePrimary: 'd', to: 's1'}"),
    );
    cluster.routers[0].kill9();
    moves.join().unwrap().unwrap_err();
    run(&mut late, "d", "{drop: 'v'}");
    run(
        &mut late,
        "d",
        "{insert: 'v', documents: [{_id: 1}, {_id: 2}, {_id: 3}]}",
    );
    run(&mut late, "admin", "{movePrimary: 'd', to: 's0'}");
    cluster.routers[0].start_again();
    has(&cluster, "v", 3);
    has(&cluster, "c", DOCUMENTS);
}

/// A resharded collection gets another name before its router has told the shards that it is resharded.
#[test]
fn a_resharded_collection_that_was_renamed_keeps_its_chunks() {
    let (cluster, mut c, mut late) = started();
    divided(&mut c);
    let reshards = stopped(
        &cluster,
        "reshardDecided",
        admin("{reshardCollection: 'd.c', key: {_id: 'hashed'}}"),
    );
    run(&mut late, "admin", "{renameCollection: 'd.c', to: 'd.e'}");
    go_on(&mut c);
    let _ = reshards.join().unwrap();
    has(&cluster, "e", DOCUMENTS);
}

/// A client names the collection that is to take the place of another one.
#[test]
fn a_collection_that_is_resharded_is_not_given_up() {
    let (cluster, mut c, mut late) = started();
    divided(&mut c);
    for key in ["{_id: 'hashed'}", "{k: 'hashed'}"] {
        let command: &'static str = format!("{{reshardCollection: 'd.c', key: {key}}}").leak();
        let reshards = stopped(&cluster, "reshardComplete", admin(command));
        let list = doc! { "listCollections": 1, "nameOnly": true };
        let names = late.find_all("d", &list).unwrap();
        let names = names.iter().filter_map(|d| d.as_doc().get_str("name"));
        for name in names.filter(|name| name.starts_with("system.resharding.")) {
            let count = doc! { "count": name };
            let _ = late.command("d", &count);
        }
        go_on(&mut c);
        // It may have been aborted, since its router stood at that step for too long.
        let _ = reshards.join().unwrap();
        has(&cluster, "c", DOCUMENTS);
    }
}

/// A router that divides the collection ends before that is decided. A write that was sent meanwhile, of whose reply a part
/// stands (here that its primary has stepped down), is done on the shard of the database then.
#[test]
fn a_write_goes_on_when_the_collection_is_not_divided_after_all() {
    let (mut cluster, _, mut late) = started();
    let divides = stopped(
        &cluster,
        "shardPlaced",
        admin("{shardCollection: 'd.c', key: {_id: 1}}"),
    );
    cluster.routers[0].kill9();
    divides.join().unwrap().unwrap_err();
    let steps_down = "writeConcernError: {code: 189, errmsg: 'stepped down'}";
    cluster.shards[0].fail_commands(&["update"], "{times: 1}", steps_down);
    let update = "{update: 'c', updates: [{q: {_id: 1}, u: {$inc: {n: 1}}}]}";
    let reply = late.command_raw("d", &shell(update)).unwrap();
    assert_eq!(number(&reply, "n"), 1, "{reply:?}");
    assert!(reply.as_doc().get("writeErrors").is_none(), "{reply:?}");
    let found = run(&mut late, "d", "{count: 'c', query: {n: 1}}");
    assert_eq!(number(&found, "n"), 1);
    cluster.routers[0].start_again();
    has(&cluster, "c", DOCUMENTS);
}
