//! Locks of all writes of a cluster, by its routers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::DocBuf;
use testkit::ask::{fails, run};
use testkit::{Cluster, shell};

/// fsync with a lock holds writes back on all shards until fsyncUnlock, whichever router it comes to.
#[test]
fn writes_are_locked_on_all_shards() {
    let mut cluster = Cluster::start(2, 1, 2);
    let (mut c, mut other) = (cluster.routers[0].connect(), cluster.routers[1].connect());
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {_id: 'hashed'}}",
    );
    let synced = run(&mut c, "admin", "{fsync: 1}");
    let files = synced
        .as_doc()
        .get("numFiles")
        .and_then(|v| v.as_i64_exact());
    assert_eq!(files, Some(3));
    let depth = |reply: &DocBuf| {
        reply
            .as_doc()
            .get("lockCount")
            .and_then(|v| v.as_i64_exact())
    };
    fails(&mut other, "admin", "{fsyncUnlock: 1}", 20);
    assert_eq!(
        depth(&run(&mut c, "admin", "{fsync: 1, lock: true}")),
        Some(1)
    );
    assert_eq!(
        depth(&run(&mut other, "admin", "{fsync: 1, lock: true}")),
        Some(2)
    );
    assert_eq!(depth(&run(&mut c, "admin", "{fsyncUnlock: 1}")), Some(1));
    for id in 0..8 {
        let insert = format!("{{insert: 'c', documents: [{{_id: {id}}}], maxTimeMS: 100}}");
        fails(&mut c, "d", &insert, 50);
    }
    let all = run(&mut other, "admin", "{fsyncUnlock: 1}");
    assert_eq!(depth(&all), Some(0));
    assert_eq!(all.as_doc().get_doc("all").unwrap().iter().count(), 3);
    run(
        &mut c,
        "d",
        "{insert: 'c', documents: [{_id: 100}, {_id: 101}, {_id: 102}]}",
    );
    // What was not unlocked on one set would be locked for ever: it is unlocked where it can be.
    run(&mut c, "admin", "{fsync: 1, lock: true}");
    cluster.shards[1].members[0]
        .connect()
        .command("admin", &shell("{fsyncUnlock: 1}"))
        .unwrap();
    assert_eq!(depth(&run(&mut c, "admin", "{fsyncUnlock: 1}")), Some(0));
    run(
        &mut c,
        "d",
        "{insert: 'c', documents: [{_id: 200}, {_id: 201}, {_id: 202}]}",
    );
    // If one set cannot be locked, none stays locked.
    cluster.shards[1].members[0].kill9();
    let lock = shell("{fsync: 1, lock: true, maxTimeMS: 1000}");
    assert!(c.command("admin", &lock).is_err());
    let mut first = cluster.shards[0].members[0].connect();
    fails(&mut first, "admin", "{fsyncUnlock: 1}", 20);
}
