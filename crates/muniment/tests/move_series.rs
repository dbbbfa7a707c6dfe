//! Time series of a database that moves to another shard: they move as collections that are whole do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod moving;

use moving::*;
use muniment_value::{DocBuf, Value, array, doc};
use muniment_wire::Connection;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use testkit::{Cluster, shell};

fn measurement(i: i64) -> DocBuf {
    doc! { "at": Value::DateTime(1_600_000_000_000 + i * 500), "m": i % 7, "v": i }
}

/// Two routers, and a database on `s0` with a time series of 3000 measurements, an empty one and a collection.
fn begin() -> (Cluster, Connection) {
    let cluster = cluster(2, 1, 2);
    let mut c = cluster.connect();
    run(&mut c, "admin", "{enableSharding: 'd', primaryShard: 's0'}");
    for name in ["t", "empty"] {
        let create = format!(
            "{{create: '{name}', timeseries: {{timeField: 'at', metaField: 'm', granularity: 'minutes'}}}}"
        );
        run(&mut c, "d", &create);
    }
    insert(&mut c, "d", "t", (0..3000).map(measurement));
    run(
        &mut c,
        "d",
        "{createIndexes: 't', indexes: [{key: {v: 1}, name: 'v_1'}]}",
    );
    run(&mut c, "d", "{insert: 'c', documents: [{_id: 1}]}");
    (cluster, c)
}

/// What clients see of the series.
fn seen(c: &mut Connection) -> Vec<DocBuf> {
    let mut all_of = all(c, "d", "{listCollections: 1, filter: {type: 'timeseries'}}");
    all_of.sort_by_key(|d| d.as_doc().to_display());
    all_of.extend(all(c, "d", "{listIndexes: 't'}"));
    let figures = "{aggregate: 't', pipeline: [{$group: {_id: '$m', n: {$sum: 1}, v: {$sum: '$v'}, last: {$max: '$at'}}}, {$sort: {_id: 1}}], cursor: {}}";
    all_of.extend(all(c, "d", figures));
    all_of
}

#[test]
fn a_database_moves_with_its_time_series() {
    let (cluster, mut c) = begin();
    let mut late = cluster.routers[1].connect();
    let before = seen(&mut c);
    // As drivers send it: in a session.
    let mut moves = shell("{movePrimary: 'd', to: 's1'}");
    let id = Value::Binary {
        subtype: 4,
        bytes: &[7; 16],
    };
    moves.append("lsid", doc! { "id": id });
    c.command("admin", &moves).unwrap();
    assert_eq!((seen(&mut late), seen(&mut c)), (before.clone(), before));
    assert!(names(&cluster, 0).is_empty(), "{:?}", names(&cluster, 0));
    assert_eq!(names(&cluster, 1), ["c", "empty", "t"]);
    // Each measurement that was acknowledged meanwhile is there, once.
    let ends = AtomicBool::new(false);
    let written = thread::scope(|s| {
        let writer = s.spawn(|| {
            let mut n = 3000;
            while !ends.load(SeqCst) {
                let documents = array![measurement(n)];
                let one = doc! { "insert": "t", "documents": documents };
                // What is sent again takes effect once, wherever the series is by then.
                let one = numbered(one, &session(8, 0), n);
                for _ in 0..2 {
                    assert_eq!(number(&late.command("d", &one).unwrap(), "n"), 1);
                }
                n += 1;
            }
            n
        });
        for to in ["s0", "s1"] {
            run(
                &mut c,
                "admin",
                &format!("{{movePrimary: 'd', to: '{to}'}}"),
            );
        }
        ends.store(true, SeqCst);
        writer.join().unwrap()
    });
    assert!(written > 3000);
    let sum = "{aggregate: 't', pipeline: [{$group: {_id: null, n: {$sum: 1}, v: {$sum: '$v'}}}], cursor: {}}";
    let sum = &all(&mut c, "d", sum)[0];
    let of_all = (number(sum, "n"), number(sum, "v"));
    assert_eq!(of_all, (written, written * (written - 1) / 2));
    run(
        &mut c,
        "d",
        "{delete: 't', deletes: [{q: {m: 3}, limit: 0}]}",
    );
    run(&mut c, "d", "{drop: 't'}");
    assert_eq!(names(&cluster, 1), ["c", "empty"]);
}

#[test]
fn a_router_ends_while_time_series_move() {
    let (mut cluster, _) = begin();
    let mut late = cluster.routers[1].connect();
    let before = seen(&mut late);
    let moved = stopped(&cluster, "beforeDecision", |c| {
        c.command("admin", &shell("{movePrimary: 'd', to: 's1'}"))
    });
    cluster.routers[0].kill9();
    let _ = moved.join().unwrap();
    insert(&mut late, "d", "t", (3000..3010).map(measurement));
    run(
        &mut late,
        "d",
        "{delete: 't', deletes: [{q: {m: 3}, limit: 0}]}",
    );
    insert(&mut late, "d", "empty", (0..5).map(measurement));
    let left = (0..3010).filter(|i| i % 7 != 3).count();
    assert_eq!(
        number(&run(&mut late, "d", "{count: 't'}"), "n"),
        left as i64
    );
    assert_eq!(names(&cluster, 1), ["c", "empty", "t"]);
    run(&mut late, "admin", "{movePrimary: 'd', to: 's1'}");
    assert_eq!(
        number(&run(&mut late, "d", "{count: 't'}"), "n"),
        left as i64
    );
    assert_eq!(number(&run(&mut late, "d", "{count: 'empty'}"), "n"), 5);
    assert_eq!(seen(&mut late).len(), before.len() - 1);
    assert!(names(&cluster, 0).is_empty());
}
