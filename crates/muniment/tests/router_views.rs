//! Views over divided collections, and what reads them, in transactions and outside of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::DocBuf;
use muniment_wire::Connection;
use testkit::ask::{all, run};
use testkit::{Cluster, divided_and_alone, shell};

/// The fields that make a command a statement of the transaction with this number.
fn of_transaction(number: usize) -> String {
    format!(
        ", lsid: {{id: UUID('00000000-0000-4000-8000-000000000001')}}, txnNumber: NumberLong({number}), autocommit: false"
    )
}

/// The fields that make it the first statement.
fn beginning(number: usize) -> String {
    format!("{}, startTransaction: true", of_transaction(number))
}

/// A command without its end, with further fields.
fn with(command: &str, fields: &str) -> DocBuf {
    shell(&format!("{{{command}{fields}}}"))
}

/// The code of a reply, and its documents or values.
fn said(reply: &DocBuf) -> String {
    let reply = reply.as_doc();
    let batch = reply.get_doc("cursor").and_then(|d| d.get("firstBatch"));
    format!(
        "{:?} {:?}",
        reply.get("code"),
        batch.or(reply.get("values"))
    )
}

/// Runs a command on `d` whether it fails or not, and tells what it said.
fn tell(c: &mut Connection, command: &str, fields: &str) -> String {
    let reply = c.command_raw("d", &with(command, fields)).unwrap();
    format!("{command}{fields}: {}", said(&reply))
}

/// Inserts documents with the `_id`s below `n` into a collection of `d`.
fn fill(c: &mut Connection, name: &str, n: usize) {
    let docs: Vec<String> = (0..n)
        .map(|i| format!("{{_id: {i}, x: {}}}", i % 4))
        .collect();
    let docs = docs.join(", ");
    run(
        c,
        "d",
        &format!("{{insert: '{name}', documents: [{docs}]}}"),
    );
}

fn view(c: &mut Connection, name: &str, on: &str, stages: &str) {
    run(
        c,
        "d",
        &format!("{{create: '{name}', viewOn: '{on}', pipeline: [{stages}]}}"),
    );
}

fn end(c: &mut Connection, how: &str, number: usize) {
    let ended = c.command_raw(
        "admin",
        &with(&format!("{how}: 1"), &of_transaction(number)),
    );
    drop(ended.unwrap());
}

/// Both have said the same to the same commands, and none of them was a failure unless `may_fail`.
fn are_equal([routed, alone]: [Vec<String>; 2], may_fail: bool) {
    assert!(!routed.is_empty());
    for (routed, alone) in routed.iter().zip(&alone) {
        assert_eq!(routed, alone);
        assert!(may_fail || routed.contains(": None Some("), "{routed}");
    }
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
        fill(c, "c", 10);
        fill(c, "u", 10);
        let join = "{$lookup: {from: 'v', localField: '_id', foreignField: 'x', as: 'r'}}, {$set: {r: {$size: '$r'}}}";
        view(c, "v", "c", "{$match: {_id: {$gte: 2}}}");
        view(c, "w", "v", "{$set: {y: 1}}");
        view(c, "j", "u", join);
        view(c, "vu", "u", "{$match: {x: 1}}");
        let mut told = Vec::new();
        for first in 0..statements.len() {
            // One server knows no such command.
            drop(c.command("admin", &shell("{flushRouterConfig: 1}")));
            let all = statements[first..].iter().chain(&statements[..first]);
            for (i, statement) in all.enumerate() {
                let fields = match i {
                    0 => beginning(first),
                    _ => of_transaction(first),
                };
                told.push(tell(c, statement, &fields));
                let write = "update: 'c', updates: [{q: {_id: 5}, u: {$inc: {n: 1}}}]";
                c.command("d", &with(write, &of_transaction(first))).unwrap();
            }
            end(c, "commitTransaction", first);
        }
        told
    });
    drop(servers);
    are_equal(told, false);
}

/// A collection below a view is divided after the router has looked at the view: the next transaction fails once, and the
/// one after that reads it.
#[test]
fn a_view_is_looked_at_anew_after_a_refusal() {
    let cluster = Cluster::start(3, 1, 1);
    let c = &mut cluster.connect();
    fill(c, "c", 9);
    fill(c, "u", 9);
    view(c, "v", "c", "");
    view(c, "j", "u", "{$unionWith: 'v'}");
    let mut number = 0;
    let mut count = |c: &mut Connection, command: &str| {
        number += 1;
        let reply = c
            .command_raw("d", &with(command, &beginning(number)))
            .unwrap();
        end(c, "abortTransaction", number);
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
        fill(c, "c", 4);
        run(
            c,
            "d",
            "{insert: 's', documents: [{_id: 1, s: 'abc'}, {_id: 2, s: 'ABC'}]}",
        );
        view(c, "v", "c", "");
        let folded =
            "{create: 'w', viewOn: 's', pipeline: [], collation: {locale: 'en', strength: 2}}";
        run(c, "d", folded);
        let mut told = Vec::new();
        for (number, statement) in statements.iter().enumerate() {
            told.push(tell(c, statement, &beginning(number)));
            told.push(tell(c, statement, ""));
            end(c, "abortTransaction", number);
        }
        told
    });
    drop(servers);
    are_equal(told, true);
}

/// A stage of a view that reads a divided collection may be opened only after the first batch. The shard of the view must
/// not show its part of that collection for the whole.
#[test]
fn later_batches_show_no_part_for_the_whole() {
    let (_servers, mut c, _) = divided_and_alone();
    fill(&mut c, "c", 60);
    fill(&mut c, "u", 150);
    view(&mut c, "v", "u", "{$unionWith: 'c'}");
    let commands = [
        "find: 'v'",
        "aggregate: 'v', pipeline: [], cursor: {}",
        "find: 'v', batchSize: 2",
    ];
    for (number, command) in commands.iter().enumerate() {
        let in_transaction = (beginning(number), of_transaction(number));
        for (first, next) in [(String::new(), String::new()), in_transaction] {
            let mut reply = c.command("d", &with(command, &first)).unwrap();
            let mut found = 0;
            loop {
                let cursor = reply.as_doc().get_doc("cursor").unwrap();
                let batch = cursor
                    .get_array("firstBatch")
                    .or(cursor.get_array("nextBatch"));
                found += batch.unwrap().values().count();
                let id = cursor.get("id").unwrap().as_i64_exact().unwrap();
                if id == 0 {
                    break;
                }
                let more = format!("getMore: NumberLong('{id}'), collection: 'v'");
                reply = c.command("d", &with(&more, &next)).unwrap();
            }
            assert_eq!(found, 210, "{command}{first}");
            if !first.is_empty() {
                end(&mut c, "commitTransaction", number);
            }
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
            fill(c, name, 5);
        }
        view(c, "v", "c", "{$match: {_id: {$gte: 2}}}");
        view(c, "j", "u", &join.replace("FROM", "v"));
        let mut told = Vec::new();
        for (number, statement) in statements.iter().enumerate() {
            told.push(tell(c, statement, &beginning(number)));
            told.push(tell(c, statement, ""));
            end(c, "commitTransaction", number);
        }
        told
    });
    drop(servers);
    are_equal(told, false);
}

/// Another router divides a collection below a view that this one has looked at: a cursor that comes to it later ends with
/// an error, and the next one shows all.
#[test]
fn a_cursor_ends_at_a_collection_that_was_divided_meanwhile() {
    let cluster = Cluster::start(3, 1, 2);
    let (mut c, mut other) = (cluster.routers[0].connect(), cluster.routers[1].connect());
    fill(&mut c, "c", 60);
    fill(&mut c, "u", 150);
    view(&mut c, "v", "u", "{$unionWith: 'c'}");
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
    let home = all(
        &mut other,
        "config",
        "{find: 'databases', filter: {_id: 'd'}}",
    );
    let home = home[0].as_doc().get_str("primary").unwrap();
    let shards = all(&mut other, "config", "{find: 'shards'}");
    let mut names = shards.iter().map(|d| d.as_doc().get_str("_id").unwrap());
    let to = names.find(|name| *name != home).unwrap();
    let half = format!("{{moveRange: 'd.c', min: {{_id: 30}}, toShard: '{to}'}}");
    run(&mut other, "admin", &half);
    assert_eq!(read(), Err(175));
    assert_eq!(read(), Ok(210));
}
