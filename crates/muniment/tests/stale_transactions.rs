//! Transactions at a router that does not know yet where documents have gone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod moving;

use moving::*;
use muniment_value::{Code, doc};

/// A router learns with the first statement of a transaction that ranges have moved, and begins the transaction anew,
/// without the client. A later statement fails, since it would go on with what an earlier one has seen.
#[test]
fn the_first_statement_of_a_transaction_is_repeated() {
    let cluster = cluster(2, 1, 2);
    let (mut c, mut late) = (cluster.connect(), cluster.routers[1].connect());
    divide(&mut c, "d.c", "{k: 1}", &["{k: 0}"]);
    insert(
        &mut c,
        "d",
        "c",
        (-50..50).map(|i| doc! { "_id": i, "k": i, "n": 0 }),
    );
    let sum = "{aggregate: 'c', pipeline: [{$group: {_id: null, n: {$sum: '$n'}}}], cursor: {}}";
    let firsts = [
        ("{find: 'c', filter: {k: {$gte: 0}}, batchSize: 200}", 0),
        (
            "{find: 'c', filter: {}, batchSize: 200, readConcern: {level: 'snapshot'}}",
            0,
        ),
        (
            "{aggregate: 'c', pipeline: [{$match: {k: -3}}], cursor: {}}",
            0,
        ),
        (sum, 0),
        (
            "{update: 'c', updates: [{q: {k: 3}, u: {$inc: {n: 1}}}]}",
            1,
        ),
        // The other shard has done its part before.
        (
            "{update: 'c', updates: [{q: {}, u: {$inc: {n: 1}}, multi: true}]}",
            100,
        ),
        (
            "{update: 'c', updates: [{q: {k: -7}, u: {$inc: {n: 1}}}, {q: {k: 7}, u: {$inc: {n: 1}}}]}",
            2,
        ),
        (
            "{findAndModify: 'c', query: {k: 9}, update: {$inc: {n: 1}}}",
            1,
        ),
        (
            "{findAndModify: 'c', query: {_id: 9}, update: {$inc: {n: 1}}}",
            1,
        ),
        (
            "{insert: 'c', documents: [{_id: 'a', k: -9, n: 1}, {_id: 'b', k: 9, n: 1}]}",
            2,
        ),
        (
            "{bulkWrite: 1, ops: [{update: 0, filter: {}, updateMods: {$inc: {n: 1}}, multi: true}], nsInfo: [{ns: 'd.c'}]}",
            102,
        ),
        (
            "{bulkWrite: 1, ops: [{insert: 0, document: {_id: 'c', k: 9, n: 1}}, {insert: 0, document: {_id: 'd', k: -9, n: 1}}], nsInfo: [{ns: 'd.c'}]}",
            2,
        ),
    ];
    let mut expected = 0;
    for (turn, (first, more)) in firsts.into_iter().enumerate() {
        assert_eq!(all(&mut late, "d", sum).len(), 1);
        let chunk = chunks(&mut c, "d.c").remove(turn % 2);
        move_to(&mut c, "d.c", &chunk, other(&chunk.shard), true).unwrap();
        let id = session(7, turn as u64);
        let of = (&id, 1);
        let db = if first.starts_with("{bulkWrite") {
            "admin"
        } else {
            "d"
        };
        statement(&mut late, db, first, of, true).unwrap_or_else(|e| panic!("{first}: {e}"));
        let update =
            "{update: 'c', updates: [{q: {k: {$in: [-1, 1]}}, u: {$inc: {n: 1}}, multi: true}]}";
        statement(&mut late, "d", update, of, false).unwrap_or_else(|e| panic!("{first}: {e}"));
        commit(&mut late, of);
        expected += more + 2;
        let told = all(&mut c, "d", sum);
        assert_eq!(number(&told[0], "n"), expected, "{first}");
    }
    // The second statement of another one.
    run(&mut late, "d", "{insert: 'whole', documents: [{_id: 1}]}");
    let chunk = chunks(&mut c, "d.c").remove(0);
    move_to(&mut c, "d.c", &chunk, other(&chunk.shard), true).unwrap();
    let id = session(7, 100);
    statement(&mut late, "d", "{find: 'whole'}", (&id, 1), true).unwrap();
    let e = statement(
        &mut late,
        "d",
        "{find: 'c', filter: {k: -3}}",
        (&id, 1),
        false,
    );
    let e = e.unwrap_err();
    assert!(e.labels().contains(&"TransientTransactionError"), "{e}");
}

/// The same if a collection is divided, or its database has moved.
#[test]
fn the_first_statement_finds_what_has_become_of_the_collection() {
    let cluster = cluster(2, 1, 2);
    let (mut c, mut late) = (cluster.connect(), cluster.routers[1].connect());
    run(&mut c, "admin", "{enableSharding: 'd', primaryShard: 's0'}");
    for c in [&mut c, &mut late] {
        run(
            c,
            "d",
            "{update: 'c', updates: [{q: {_id: 1}, u: {$inc: {n: 1}}, upsert: true}]}",
        );
    }
    let update = "{update: 'c', updates: [{q: {_id: 1}, u: {$inc: {n: 1}}}]}";
    let changes = [
        "{movePrimary: 'd', to: 's1'}",
        "{shardCollection: 'd.c', key: {_id: 1}}",
    ];
    for (turn, change) in changes.into_iter().enumerate() {
        run(&mut c, "admin", change);
        let id = session(8, turn as u64);
        let of = (&id, 1);
        statement(&mut late, "d", update, of, true).unwrap_or_else(|e| panic!("{change}: {e}"));
        commit(&mut late, of);
    }
    assert_eq!(number(&all(&mut c, "d", "{find: 'c'}")[0], "n"), 4);
}

/// If shards and router go on to differ, the first statement fails in time, and nothing follows it.
#[test]
fn a_first_statement_that_is_never_taken_ends_the_transaction() {
    let cluster = cluster(2, 1, 1);
    let mut c = cluster.connect();
    divide(&mut c, "d.c", "{k: 1}", &["{k: 0}"]);
    run(&mut c, "d", "{insert: 'c', documents: [{_id: 1, k: 1}]}");
    let refuse = |mode: &str| {
        for shard in &cluster.shards {
            let data = "data: {failCommands: ['find'], errorCode: 13388}";
            let fail = format!("{{configureFailPoint: 'failCommand', mode: {mode}, {data}}}");
            run(&mut shard.connect(0), "admin", &fail);
        }
    };
    let find = "{find: 'c', filter: {k: 1}}";
    refuse("'alwaysOn'");
    let id = session(9, 1);
    let limited = "{find: 'c', filter: {k: 1}, maxTimeMS: 500}";
    let e = statement(&mut c, "d", limited, (&id, 1), true).unwrap_err();
    assert_eq!(e.code(), Code::MaxTimeMSExpired, "{e}");
    refuse("'off'");
    let e = statement(&mut c, "d", find, (&id, 1), false).unwrap_err();
    assert_eq!(e.code(), Code::NoSuchTransaction, "{e}");
    // It is the client's to begin another one.
    let e = statement(&mut c, "d", find, (&id, 1), true).unwrap_err();
    assert_eq!(e.code(), Code::ConflictingOperationInProgress, "{e}");
    refuse("{times: 1}");
    statement(&mut c, "d", find, (&id, 2), true).unwrap();
    commit(&mut c, (&id, 2));
}

fn commit(c: &mut muniment_wire::Connection, (session, number): (&[u8; 16], i64)) {
    let mut commit = numbered(doc! { "commitTransaction": 1 }, session, number);
    commit.append("autocommit", false);
    c.command("admin", &commit).unwrap();
}
