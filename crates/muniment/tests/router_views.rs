//! Views over divided collections, and what reads them, in transactions and outside of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_wire::Connection;
use testkit::ask::run;
use testkit::{Cluster, Server, ServerOptions, shell};

/// A cluster and a server, with a connection to each. The cluster's `d.c` is divided.
fn divided_and_alone() -> ((Cluster, Server), Connection, Connection) {
    let cluster = Cluster::start(3, 1, 1);
    let server = Server::start(ServerOptions::new());
    let (mut c, alone) = (cluster.connect(), server.connect());
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {_id: 'hashed'}}",
    );
    ((cluster, server), c, alone)
}

/// In a transaction a shard's refusal would abort it, so the router looks before whether a view is over a divided
/// collection: each statement may be the first of its transaction, and the router may know nothing of the view.
#[test]
fn views_over_divided_collections_are_read_in_transactions() {
    let (servers, mut c, mut alone) = divided_and_alone();
    let sorted = "{$sort: {_id: 1}}";
    let statements = [
        "find: 'v', sort: {_id: 1}, filter: {x: {$lt: 4}}".to_string(),
        "find: 'w', sort: {_id: 1}, limit: 3".to_string(),
        "distinct: 'v', key: 'x'".to_string(),
        format!("aggregate: 'w', pipeline: [{sorted}], cursor: {{}}"),
        format!("aggregate: 'j', pipeline: [{sorted}], cursor: {{}}"),
        format!(
            "aggregate: 'u', pipeline: [{sorted}, {{$lookup: {{from: 'w', localField: '_id', foreignField: '_id', as: 'r'}}}}], cursor: {{}}"
        ),
        format!(
            "aggregate: 'c', pipeline: [{sorted}, {{$graphLookup: {{from: 'v', startWith: '$x', connectFromField: 'x', connectToField: '_id', as: 'r'}}}}, {{$set: {{r: {{$size: '$r'}}}}}}], cursor: {{}}"
        ),
        "aggregate: 'vu', pipeline: [{$count: 'n'}], cursor: {}".to_string(),
        "find: 'vu', sort: {_id: 1}".to_string(),
    ];
    let told = [&mut c, &mut alone].map(|c| {
        for i in 0..10 {
            let doc = format!("{{_id: {i}, x: {}}}", i % 4);
            run(c, "d", &format!("{{insert: 'c', documents: [{doc}]}}"));
            run(c, "d", &format!("{{insert: 'u', documents: [{doc}]}}"));
        }
        let lookup = "{$lookup: {from: 'v', localField: '_id', foreignField: 'x', as: 'r'}}, {$set: {r: {$size: '$r'}}}";
        for (view, on, stages) in [
            ("v", "c", "{$match: {_id: {$gte: 2}}}"),
            ("w", "v", "{$set: {y: 1}}"),
            ("j", "u", lookup),
            ("vu", "u", "{$match: {x: 1}}"),
        ] {
            run(c, "d", &format!("{{create: '{view}', viewOn: '{on}', pipeline: [{stages}]}}"));
        }
        let mut told = Vec::new();
        let mut number = 0;
        for first in 0..statements.len() {
            number += 1;
            // One server knows no such command.
            drop(c.command("admin", &shell("{flushRouterConfig: 1}")));
            let rest = format!(
                "lsid: {{id: UUID('00000000-0000-4000-8000-000000000001')}}, txnNumber: NumberLong({number}), autocommit: false"
            );
            let write = "update: 'c', updates: [{q: {_id: 5}, u: {$inc: {n: 1}}}]".to_string();
            let all = statements[first..].iter().chain([&write]).chain(&statements[..first]);
            for (i, statement) in all.enumerate() {
                let starts = if i == 0 { ", startTransaction: true" } else { "" };
                let reply = run(c, "d", &format!("{{{statement}, {rest}{starts}}}"));
                let reply = reply.as_doc();
                let batch = reply.get_doc("cursor").and_then(|d| d.get("firstBatch"));
                told.push(format!("{statement}: {:?}", batch.or(reply.get("values"))));
            }
            run(c, "admin", &format!("{{commitTransaction: 1, {rest}}}"));
        }
        told
    });
    drop(servers);
    let [routed, alone] = told;
    for (routed, alone) in routed.iter().zip(&alone) {
        assert_eq!(routed, alone);
    }
}

/// A collection below a view is divided after the router has looked at the view: the next transaction fails once, and the
/// one after that reads it.
#[test]
fn a_view_is_looked_at_anew_after_a_refusal() {
    let cluster = Cluster::start(3, 1, 1);
    let c = &mut cluster.connect();
    for i in 0..9 {
        run(
            c,
            "d",
            &format!("{{insert: 'c', documents: [{{_id: {i}}}]}}"),
        );
        run(
            c,
            "d",
            &format!("{{insert: 'u', documents: [{{_id: {i}}}]}}"),
        );
    }
    run(c, "d", "{create: 'v', viewOn: 'c', pipeline: []}");
    run(
        c,
        "d",
        "{create: 'j', viewOn: 'u', pipeline: [{$unionWith: 'v'}]}",
    );
    let mut number = 0;
    let mut count = |c: &mut Connection, command: &str| {
        number += 1;
        let rest = format!(
            "lsid: {{id: UUID('00000000-0000-4000-8000-000000000002')}}, txnNumber: NumberLong({number}), autocommit: false"
        );
        let asked = shell(&format!("{{{command}, {rest}, startTransaction: true}}"));
        let reply = c.command_raw("d", &asked).unwrap();
        let abort = format!("{{abortTransaction: 1, {rest}}}");
        drop(c.command_raw("admin", &shell(&abort)).unwrap());
        let reply = reply.as_doc();
        let label = reply.get_array("errorLabels");
        let label = label.and_then(|l| Some(l.values().next()?.as_str()?.to_string()));
        let batch = reply
            .get_doc("cursor")
            .and_then(|d| d.get_array("firstBatch"));
        (batch.map(|b| b.values().count()), label)
    };
    let read = [
        "find: 'v'",
        "aggregate: 'v', pipeline: [], cursor: {}",
        "find: 'j'",
    ];
    let wanted = [9, 9, 18];
    for (read, wanted) in read.iter().zip(wanted) {
        assert_eq!(count(c, read), (Some(wanted), None), "{read}");
    }
    run(c, "admin", "{shardCollection: 'd.c', key: {_id: 1}}");
    for (read, wanted) in read.iter().zip(wanted) {
        let transient = Some("TransientTransactionError".to_string());
        for attempt in 0.. {
            let (found, label) = count(c, read);
            if found.is_some() {
                assert_eq!(found, Some(wanted), "{read}");
                break;
            }
            assert_eq!((attempt, label), (0, transient.clone()), "{read}");
        }
    }
}

/// What is wrong with a read of a view is said in a transaction, too, and strings compare as in the view.
#[test]
fn reads_of_views_are_checked_in_transactions() {
    let (servers, mut c, mut alone) = divided_and_alone();
    run(&mut c, "admin", "{shardCollection: 'd.s', key: {s: 1}}");
    run(&mut c, "admin", "{split: 'd.s', middle: {s: 'a'}}");
    run(
        &mut c,
        "admin",
        "{moveRange: 'd.s', min: {s: 'a'}, toShard: 's2'}",
    );
    let statements = [
        "find: 'v', filter: 5",
        "find: 'v', limit: -3",
        "find: 'v', skip: -1",
        "find: 'v', min: {_id: 1}, hint: {_id: 1}",
        "find: 'v', returnKey: true",
        "find: 'v', tailable: true",
        "find: 'v', noCursorTimeout: true",
        "find: 'v', awaitData: true",
        "find: 'v', sort: {$natural: 1}",
        "aggregate: 'v', pipeline: []",
        "aggregate: 'v', pipeline: 5, cursor: {}",
        "distinct: 'v', key: 'a\\u0000b'",
        "find: 'w', filter: {s: 'abc'}, sort: {_id: 1}",
        "aggregate: 'w', pipeline: [{$match: {s: 'ABC'}}, {$sort: {_id: 1}}], cursor: {}",
        "distinct: 'w', key: '_id', query: {s: 'abc'}",
    ];
    let told = [&mut c, &mut alone].map(|c| {
        run(c, "d", "{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}, {_id: 4}]}");
        run(c, "d", "{insert: 's', documents: [{_id: 1, s: 'abc'}, {_id: 2, s: 'ABC'}]}");
        run(c, "d", "{create: 'v', viewOn: 'c', pipeline: []}");
        run(
            c,
            "d",
            "{create: 'w', viewOn: 's', pipeline: [], collation: {locale: 'en', strength: 2}}",
        );
        let mut told = Vec::new();
        for (i, statement) in statements.iter().enumerate() {
            let rest = format!(
                "lsid: {{id: UUID('00000000-0000-4000-8000-000000000003')}}, txnNumber: NumberLong({}), autocommit: false",
                i + 1
            );
            for of in [format!(", {rest}, startTransaction: true"), String::new()] {
                let reply = c.command_raw("d", &shell(&format!("{{{statement}{of}}}"))).unwrap();
                let reply = reply.as_doc();
                let batch = reply.get_doc("cursor").and_then(|d| d.get("firstBatch"));
                let found = batch.or(reply.get("values"));
                told.push(format!("{statement}{of}: {:?} {found:?}", reply.get("code")));
            }
            drop(c.command_raw("admin", &shell(&format!("{{abortTransaction: 1, {rest}}}"))));
        }
        told
    });
    drop(servers);
    let [routed, alone] = told;
    for (routed, alone) in routed.iter().zip(&alone) {
        assert_eq!(routed, alone);
    }
}

/// A stage of a view that reads a divided collection may be opened only after the first batch. The cursor ends with an
/// error then, and does not show one shard's part for the whole.
#[test]
fn later_batches_show_no_part_for_the_whole() {
    let (_servers, mut c, _) = divided_and_alone();
    let docs = |n: usize| {
        (0..n)
            .map(|i| format!("{{_id: {i}}}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    run(
        &mut c,
        "d",
        &format!("{{insert: 'c', documents: [{}]}}", docs(60)),
    );
    run(
        &mut c,
        "d",
        &format!("{{insert: 'u', documents: [{}]}}", docs(150)),
    );
    run(
        &mut c,
        "d",
        "{create: 'v', viewOn: 'u', pipeline: [{$unionWith: 'c'}]}",
    );
    let mut number = 0;
    for command in [
        "find: 'v'",
        "aggregate: 'v', pipeline: [], cursor: {}",
        "find: 'v', batchSize: 2",
    ] {
        for in_transaction in [false, true] {
            number += 1;
            let rest = match in_transaction {
                true => format!(
                    ", lsid: {{id: UUID('00000000-0000-4000-8000-000000000004')}}, txnNumber: NumberLong({number}), autocommit: false"
                ),
                false => String::new(),
            };
            let starts = if in_transaction {
                ", startTransaction: true"
            } else {
                ""
            };
            let mut reply = c
                .command("d", &shell(&format!("{{{command}{rest}{starts}}}")))
                .unwrap();
            let mut found = 0;
            let failed = loop {
                let cursor = reply.as_doc().get_doc("cursor").unwrap();
                let batch = cursor
                    .get_array("firstBatch")
                    .or(cursor.get_array("nextBatch"));
                found += batch.unwrap().values().count();
                let id = cursor.get("id").unwrap().as_i64_exact().unwrap();
                if id == 0 {
                    break None;
                }
                let more = format!("{{getMore: NumberLong('{id}'), collection: 'v'{rest}}}");
                match c.command("d", &shell(&more)) {
                    Ok(next) => reply = next,
                    Err(e) => break Some(e.code().0),
                }
            };
            assert_eq!((failed, found), (None, 210), "{command}");
        }
    }
}

/// What reads a collection that is whole may read a divided one in its turn, also below views.
#[test]
fn whole_collections_are_joined_with_divided_ones_below() {
    let (servers, mut c, mut alone) = divided_and_alone();
    let join = "{$lookup: {from: 'FROM', localField: '_id', foreignField: '_id', as: 'r'}}";
    let statements = [
        "distinct: 'j', key: '_id'".to_string(),
        "distinct: 'j', key: 'r._id'".to_string(),
        format!(
            "aggregate: 'x', pipeline: [{{$sort: {{_id: 1}}}}, {}], cursor: {{}}",
            join.replace("FROM", "j")
        ),
        format!(
            "aggregate: 'x', pipeline: [{{$sort: {{_id: 1}}}}, {{$lookup: {{from: 'u', pipeline: [{{$match: {{_id: {{$lt: 3}}}}}}, {{$sort: {{_id: 1}}}}, {}], as: 'l'}}}}], cursor: {{}}",
            join.replace("FROM", "c")
        ),
        "aggregate: 'j', pipeline: [{$sort: {_id: 1}}], cursor: {}".to_string(),
    ];
    let told = [&mut c, &mut alone].map(|c| {
        for name in ["c", "u", "x"] {
            run(c, "d", &format!("{{insert: '{name}', documents: [{{_id: 1}}, {{_id: 2}}, {{_id: 3}}, {{_id: 4}}]}}"));
        }
        run(c, "d", "{create: 'v', viewOn: 'c', pipeline: [{$match: {_id: {$gte: 2}}}]}");
        run(c, "d", &format!("{{create: 'j', viewOn: 'u', pipeline: [{}]}}", join.replace("FROM", "v")));
        let mut told = Vec::new();
        for (i, statement) in statements.iter().enumerate() {
            let rest = format!(
                ", lsid: {{id: UUID('00000000-0000-4000-8000-000000000005')}}, txnNumber: NumberLong({}), autocommit: false",
                i + 1
            );
            for of in [format!("{rest}, startTransaction: true"), String::new()] {
                let reply = run(c, "d", &format!("{{{statement}{of}}}"));
                let reply = reply.as_doc();
                let batch = reply.get_doc("cursor").and_then(|d| d.get("firstBatch"));
                told.push(format!("{statement}{of}: {:?}", batch.or(reply.get("values"))));
            }
            run(c, "admin", &format!("{{commitTransaction: 1{rest}}}"));
        }
        told
    });
    drop(servers);
    let [routed, alone] = told;
    for (routed, alone) in routed.iter().zip(&alone) {
        assert_eq!(routed, alone);
    }
}

/// Another router divides a collection below a view that this one has looked at: a cursor that comes to it later ends with
/// an error, and the next one shows all.
#[test]
fn a_cursor_ends_at_a_collection_that_was_divided_meanwhile() {
    let cluster = Cluster::start(3, 1, 2);
    let (mut c, mut other) = (cluster.routers[0].connect(), cluster.routers[1].connect());
    let docs = |n: usize| {
        (0..n)
            .map(|i| format!("{{_id: {i}}}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    run(
        &mut c,
        "d",
        &format!("{{insert: 'c', documents: [{}]}}", docs(60)),
    );
    run(
        &mut c,
        "d",
        &format!("{{insert: 'u', documents: [{}]}}", docs(150)),
    );
    run(
        &mut c,
        "d",
        "{create: 'v', viewOn: 'u', pipeline: [{$unionWith: 'c'}]}",
    );
    let mut read = || -> Result<usize, i32> {
        let all = c.find_all("d", &shell("{find: 'v'}"));
        all.map(|all| all.len()).map_err(|e| e.code().0)
    };
    assert_eq!(read(), Ok(210));
    run(
        &mut other,
        "admin",
        "{shardCollection: 'd.c', key: {_id: 1}}",
    );
    run(&mut other, "admin", "{split: 'd.c', middle: {_id: 30}}");
    let home = other
        .find_all("config", &shell("{find: 'databases', filter: {_id: 'd'}}"))
        .unwrap();
    let home = home[0].as_doc().get_str("primary").unwrap().to_string();
    let shards = other
        .find_all("config", &shell("{find: 'shards'}"))
        .unwrap();
    let mut shards = shards
        .iter()
        .map(|d| d.as_doc().get_str("_id").unwrap().to_string());
    let to = shards.find(|name| *name != home).unwrap();
    run(
        &mut other,
        "admin",
        &format!("{{moveRange: 'd.c', min: {{_id: 30}}, toShard: '{to}'}}"),
    );
    assert_eq!(read(), Err(175));
    assert_eq!(read(), Ok(210));
}
