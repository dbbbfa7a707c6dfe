//! Collections that are divided over shards, before real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{DocBuf, Value, array, doc};
use muniment_wire::Connection;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use testkit::ask::{all, fails, number, run};
use testkit::{Cluster, shell};

/// What a client sees of a reply: without times, hosts and sizes that differ from server to server.
fn seen(reply: &DocBuf) -> String {
    const OWN: [&str; 6] = [
        "$clusterTime",
        "operationTime",
        "electionId",
        "opTime",
        "raw",
        "cursor",
    ];
    let mut d = DocBuf::new();
    for e in reply.as_doc().iter().filter(|e| !OWN.contains(&e.name())) {
        d.append_elem(e);
    }
    d.as_doc().to_display()
}

fn as_set(docs: &[DocBuf]) -> BTreeSet<String> {
    docs.iter().map(|d| d.as_doc().to_display()).collect()
}

/// The same documents in `one.c`, which is whole on a shard, and in `many.c`, which is divided by `key`.
fn twins(c: &mut Connection, key: &str) {
    run(
        c,
        "admin",
        &format!("{{shardCollection: 'many.c', key: {key}}}"),
    );
    for db in ["one", "many"] {
        for part in 0..5 {
            let docs = (part * 40..part * 40 + 40).map(|i| {
                doc! {
                    "_id": i, "k": i * 7 % 201, "x": i % 10, "s": format!("s{}", i % 13),
                    "t": (0..i % 3).map(|n| format!("t{n}")).collect::<muniment_value::ArrayBuf>(),
                    "d": doc! { "e": i % 5, "f": i * i },
                }
            });
            let docs: muniment_value::ArrayBuf = docs.collect();
            let insert = doc! { "insert": "c", "documents": docs, "ordered": part % 2 == 0 };
            assert_eq!(number(&c.command(db, &insert).unwrap(), "n"), 40);
        }
        if db == "one" {
            let index = format!("{{createIndexes: 'c', indexes: [{{key: {key}, name: 'key'}}]}}");
            run(c, db, &index);
        }
        run(
            c,
            db,
            "{create: 'v', viewOn: 'c', pipeline: [{$match: {x: {$lt: 5}}}]}",
        );
        run(
            c,
            db,
            "{insert: 'other', documents: [{_id: 1, n: 'one'}, {_id: 2, n: 'two'}, {_id: 3, n: 'three'}]}",
        );
    }
}

/// Reads whose order is not fixed.
const SETS: [&str; 16] = [
    "{find: 'c'}",
    "{find: 'c', filter: {k: 14}}",
    "{find: 'c', filter: {k: {$in: [7, 14, 21, 1000]}}}",
    "{find: 'c', filter: {k: {$gte: 50, $lt: 60}}}",
    "{find: 'c', filter: {$or: [{k: 7}, {x: 3, s: 's4'}]}}",
    "{find: 'c', filter: {x: 3}, projection: {_id: 0, s: 1}}",
    "{find: 'c', filter: {k: null}}",
    "{find: 'v', filter: {x: {$gt: 2}}, projection: {x: 1}}",
    "{aggregate: 'c', pipeline: [{$match: {x: 3}}, {$set: {y: {$add: ['$x', 1]}}}], cursor: {batchSize: 3}}",
    "{aggregate: 'c', pipeline: [{$unwind: '$t'}, {$group: {_id: '$t', n: {$sum: 1}, a: {$avg: '$x'}}}], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$group: {_id: null, lo: {$min: '$k'}, hi: {$max: '$d.f'}, s: {$sum: '$x'}}}], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$match: {k: 14}}, {$lookup: {from: 'other', localField: 'x', foreignField: '_id', as: 'o'}}], cursor: {}}",
    "{aggregate: 'other', pipeline: [{$lookup: {from: 'c', let: {i: '$_id'}, pipeline: [{$match: {$expr: {$eq: ['$x', '$$i']}}}, {$count: 'n'}], as: 'c'}}], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$match: {k: {$lt: 20}}}, {$graphLookup: {from: 'c', startWith: '$x', connectFromField: 'x', connectToField: '_id', maxDepth: 0, as: 'g'}}], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$project: {x: 1}}, {$unionWith: {coll: 'other', pipeline: [{$project: {n: 1}}]}}], cursor: {}}",
    "{aggregate: 'v', pipeline: [{$group: {_id: '$x', n: {$sum: 1}}}], cursor: {}}",
];

/// Reads in an order.
const LISTS: [&str; 11] = [
    "{find: 'c', sort: {_id: 1}}",
    "{find: 'c', sort: {x: -1, _id: 1}, batchSize: 7}",
    "{find: 'c', sort: {'d.f': -1}, skip: 13, limit: 30, projection: {s: 1, _id: 0}}",
    "{find: 'c', filter: {x: {$ne: 2}}, sort: {s: 1, k: 1}, limit: 1}",
    "{find: 'v', sort: {k: 1}, skip: 5, limit: 20}",
    "{aggregate: 'c', pipeline: [{$sort: {k: 1}}, {$skip: 7}, {$limit: 9}], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$sort: {x: 1, k: -1}}, {$group: {_id: '$x', f: {$first: '$k'}, l: {$last: '$k'}}}, {$sort: {_id: 1}}], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$sortByCount: '$d.e'}, {$sort: {_id: 1}}], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$facet: {a: [{$count: 'n'}], b: [{$sort: {k: -1}}, {$limit: 2}]}}], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$bucketAuto: {groupBy: '$k', buckets: 4}}], cursor: {}}",
    "{aggregate: 'c', pipeline: [{$setWindowFields: {sortBy: {_id: 1}, output: {r: {$sum: '$x', window: {documents: [-2, 0]}}}}}, {$sort: {_id: 1}}, {$project: {r: 1}}], cursor: {}}",
];

/// Commands whose whole reply is compared, after which the collections are.
const WRITES: [&str; 36] = [
    "{count: 'c', query: {x: 3}}",
    "{count: 'c', query: {x: 3}, skip: 5, limit: 7}",
    "{count: 'v', query: {x: 3}}",
    "{distinct: 'c', key: 's', query: {x: {$lt: 4}}}",
    "{update: 'c', updates: [{q: {k: 14}, u: {$set: {w: 1}}}, {q: {k: 21}, u: {$inc: {w: 1}}}]}",
    "{update: 'c', updates: [{q: {x: 4}, u: {$set: {w: 2}}, multi: true}]}",
    "{update: 'c', updates: [{q: {_id: 77}, u: {$set: {w: 3}}}]}",
    "{update: 'c', updates: [{q: {x: 4, s: 's4'}, u: {$push: {t: 'new'}}, multi: true}, {q: {none: 1}, u: {$set: {z: 1}}}]}",
    "{update: 'c', updates: [{q: {k: 5000, _id: 5000}, u: {$set: {x: 1}}, upsert: true}]}",
    "{update: 'c', ordered: false, updates: [{q: {k: 28}, u: {$set: {a: 1}}}, {q: {k: 28}, u: {$set: {_id: 1}}}, {q: {k: 35}, u: {$set: {a: 1}}}]}",
    "{update: 'c', updates: [{q: {k: 28}, u: {$set: {b: 1}}}, {q: {k: 28}, u: {$set: {_id: 1}}}, {q: {k: 35}, u: {$set: {b: 1}}}]}",
    "{delete: 'c', deletes: [{q: {k: 42}, limit: 1}, {q: {x: 9, s: 's3'}, limit: 0}]}",
    "{delete: 'c', deletes: [{q: {_id: 3}, limit: 1}]}",
    "{insert: 'c', ordered: false, documents: [{_id: 900, k: 1}, {_id: 14, k: 98, x: 4}, {_id: 901, k: 2}]}",
    "{insert: 'c', documents: [{_id: 902, k: 1}, {_id: 16, k: 112, x: 6}, {_id: 903, k: 2}]}",
    "{update: 'c', updates: [{q: {none: 1}, u: {$nope: {x: 1}}}]}",
    "{update: 'c', updates: [{q: {none: 1}, u: {$set: {x: 1}}, hint: 'nope_1'}]}",
    "{update: 'c', updates: [{q: {none: 1}, u: {$nope: {x: 1}}, multi: true}]}",
    "{findAndModify: 'c', query: {k: 49}, update: {$set: {f: 1}}, new: true}",
    "{findAndModify: 'c', query: {x: 7}, sort: {_id: -1}, update: {$set: {f: 2}}, new: true, fields: {f: 1}}",
    "{findAndModify: 'c', query: {_id: 20}, remove: true}",
    "{findAndModify: 'c', query: {_id: 20}, remove: true}",
    "{findAndModify: 'c', query: {k: 6000, _id: 6000}, update: {$set: {x: 1}}, upsert: true}",
    "{update: 'c', updates: [{q: {_id: 7000, x: 12}, u: {$set: {w: 1, k: 13}}, upsert: true}]}",
    "{update: 'c', updates: [{q: {_id: 7001, x: 13}, u: {$setOnInsert: {k: 17}}, multi: true, upsert: true}]}",
    "{update: 'c', updates: [{q: {x: {$in: [1, 2]}}, u: {$set: {up: 1}}, multi: true, upsert: true}]}",
    "{update: 'c', updates: [{q: {_id: 30}, u: {$set: {k: 5001, x: 4}}}, {q: {k: 5001}, u: {$inc: {k: 1}, $set: {m: 1}}}]}",
    "{update: 'c', updates: [{q: {_id: 31}, u: {k: 5003, x: 77, replaced: true}}]}",
    "{update: 'c', updates: [{q: {_id: 32, t: 't0'}, u: {$set: {'t.$': 'changed', k: 5004}}}]}",
    "{update: 'c', updates: [{q: {k: 5004}, u: [{$set: {k: {$add: ['$k', 1]}, x: 55}}]}]}",
    "{findAndModify: 'c', query: {_id: 33}, update: {$set: {k: 5010, x: 99}}, new: true, fields: {k: 1}}",
    "{findAndModify: 'c', query: {_id: 34}, update: {$inc: {k: 3000}}}",
    "{createIndexes: 'c', indexes: [{key: {x: 1}, name: 'x_1'}]}",
    "{collMod: 'c', validator: {x: {$not: {$gt: 1000}}}}",
    "{insert: 'c', documents: [{_id: 950, k: 3, x: 5000}]}",
    "{delete: 'c', deletes: [{q: {}, limit: 0}]}",
];

/// Every command gives the same on a divided collection and on a whole one.
fn answers_are_those_of_one_collection(key: &str) {
    let cluster = Cluster::start(3, 1, 1);
    let mut c = cluster.connect();
    twins(&mut c, key);
    for cmd in SETS {
        let (one, many) = (all(&mut c, "one", cmd), all(&mut c, "many", cmd));
        assert_eq!(
            (one.len(), as_set(&one)),
            (many.len(), as_set(&many)),
            "{key}: {cmd}"
        );
    }
    for cmd in LISTS {
        let (one, many) = (all(&mut c, "one", cmd), all(&mut c, "many", cmd));
        assert_eq!(one, many, "{key}: {cmd}");
    }
    for cmd in WRITES {
        let mut answers = Vec::new();
        for db in ["one", "many"] {
            answers.push(match c.command(db, &shell(cmd)) {
                Ok(reply) => seen(&reply).replace("one.c", "many.c"),
                Err(e) => format!("{}: {}", e.code().0, e.message()),
            });
        }
        let (many, one) = (answers.pop().unwrap(), answers.pop().unwrap());
        assert_eq!(one, many, "{key}: {cmd}");
        let now = "{find: 'c', sort: {_id: 1}}";
        assert_eq!(
            all(&mut c, "one", now),
            all(&mut c, "many", now),
            "{key}: after {cmd}"
        );
    }
}

#[test]
fn answers_are_those_of_one_collection_by_hash() {
    answers_are_those_of_one_collection("{k: 'hashed'}");
}

#[test]
fn answers_are_those_of_one_collection_by_two_fields() {
    answers_are_those_of_one_collection("{x: 'hashed', k: 1}");
}

/// `$$NOW` is one time, at whichever shard it is used.
#[test]
fn now_is_the_same_on_all_shards() {
    let cluster = Cluster::start(3, 1, 1);
    let mut c = cluster.connect();
    twins(&mut c, "{k: 'hashed'}");
    let update = "{update: 'c', updates: [{q: {}, u: [{$set: {at: '$$NOW'}}], multi: true}]}";
    let read = "{aggregate: 'c', pipeline: [{$project: {at: '$$NOW'}}], cursor: {}}";
    // What the router asks for by itself has the time of the command, too.
    let joined = "{aggregate: 'c', pipeline: [{$limit: 2}, {$lookup: {from: 'c', pipeline: [{$project: {at: '$$NOW'}}], as: 'of'}}, {$unwind: '$of'}, {$project: {at: '$of.at'}}, {$unionWith: {coll: 'c', pipeline: [{$project: {at: '$$NOW'}}]}}], cursor: {}}";
    let merge = "{aggregate: 'c', pipeline: [{$merge: {into: 'c', whenMatched: [{$set: {at: '$$NOW'}}]}}], cursor: {}}";
    for _ in 0..20 {
        let find = shell("{find: 'c', projection: {at: 1}}");
        c.command("many", &shell(update)).unwrap();
        let updated = c.find_all("many", &find).unwrap();
        let read = c.find_all("many", &shell(read)).unwrap();
        let joined = c.find_all("many", &shell(joined)).unwrap();
        assert_eq!(joined.len(), 600);
        c.command("many", &shell(merge)).unwrap();
        let merged = c.find_all("many", &find).unwrap();
        for found in [updated, read, joined, merged] {
            let times = found
                .iter()
                .map(|d| d.as_doc().get("at").unwrap().to_display());
            assert_eq!(times.collect::<BTreeSet<_>>().len(), 1);
        }
    }
}

/// So are the variables of a command, whatever they are computed of.
#[test]
fn variables_are_the_same_on_all_shards() {
    let cluster = Cluster::start(3, 1, 1);
    let mut c = cluster.connect();
    twins(&mut c, "{k: 'hashed'}");
    let variable = "let: {r: {$rand: {}}, gone: '$$REMOVE'}";
    for command in [
        format!("{{find: 'c', {variable}, projection: {{_id: 0, r: '$$r', gone: '$$gone'}}}}"),
        format!(
            "{{aggregate: 'c', {variable}, pipeline: [{{$project: {{_id: 0, r: '$$r', gone: '$$gone'}}}}], cursor: {{}}}}"
        ),
    ] {
        let found = c.find_all("many", &shell(&command)).unwrap();
        let different: BTreeSet<String> = found.iter().map(|d| d.as_doc().to_display()).collect();
        assert_eq!((found.len(), different.len()), (200, 1), "{different:?}");
        assert!(found[0].as_doc().get("gone").is_none());
    }
}

#[test]
fn a_drop_tells_how_many_indexes_there_were() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    twins(&mut c, "{k: 'hashed'}");
    let index = "{createIndexes: 'c', indexes: [{key: {own: 1}, name: 'own'}]}";
    run(&mut c, "many", index);
    let list = all(&mut c, "many", "{listIndexes: 'c'}").len() as i64;
    let dropped = run(&mut c, "many", "{drop: 'c'}");
    assert!(list > 2);
    assert_eq!(number(&dropped, "nIndexesWas"), list);
}

#[test]
fn operations_in_bulk_are_those_of_one_collection() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    twins(&mut c, "{k: 'hashed'}");
    let ops = "ops: [{insert: 0, document: {_id: 700, k: 1}}, {update: 0, filter: {_id: 700}, updateMods: {$set: {a: 1}}},
        {update: 0, filter: {x: 2}, updateMods: {$set: {a: 2}}, multi: true}, {insert: 0, document: {_id: 5, k: 35}},
        {delete: 0, filter: {k: 21}}, {insert: 1, document: {_id: 1}}, {delete: 0, filter: {x: 5}, multi: true},
        {update: 0, filter: {k: 8000, _id: 8000}, updateMods: {$set: {a: 1}}, upsert: true}]";
    for ordered in [true, false] {
        let mut answers = Vec::new();
        for db in ["one", "many"] {
            let cmd = format!(
                "{{bulkWrite: 1, ordered: {ordered}, {ops}, nsInfo: [{{ns: '{db}.c'}}, {{ns: '{db}.fresh'}}], cursor: {{}}}}"
            );
            let reply = c.command("admin", &shell(&cmd)).unwrap();
            let batch = reply
                .as_doc()
                .get_doc("cursor")
                .unwrap()
                .get_array("firstBatch")
                .unwrap();
            let batch = format!("{} {}", seen(&reply), Value::Array(batch).to_display());
            answers.push(batch.replace("one.", "many."));
        }
        assert_eq!(answers[0], answers[1]);
        let now = "{find: 'c', sort: {_id: 1}}";
        assert_eq!(all(&mut c, "one", now), all(&mut c, "many", now));
    }
    // A document without an `_id` gets it before its shard is looked for.
    run(
        &mut c,
        "admin",
        "{shardCollection: 'ids.c', key: {_id: 'hashed'}}",
    );
    let cmd = "{bulkWrite: 1, ops: [{insert: 0, document: {a: 1}}, {insert: 0, document: {a: 2}}], nsInfo: [{ns: 'ids.c'}]}";
    assert_eq!(number(&run(&mut c, "admin", cmd), "nInserted"), 2);
    run(&mut c, "ids", "{insert: 'c', documents: [{a: 3}, {a: 4}]}");
    assert_eq!(
        all(
            &mut c,
            "ids",
            "{find: 'c', filter: {_id: {$type: 'objectId'}}}"
        )
        .len(),
        4
    );
}

#[test]
fn operations_in_bulk_reach_the_set_of_their_database() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    twins(&mut c, "{k: 'hashed'}");
    // `config` stands first by name in one command, and last in the other; its documents are the configuration's.
    for (first, second, id) in [
        ("config.mine", "many.c", 800),
        ("many.c", "config.mine", 900),
    ] {
        let ops: Vec<_> = (0..8)
            .map(|i| {
                let at = i % 2;
                format!("{{insert: {at}, document: {{_id: {}, k: {i}}}}}", id + i)
            })
            .collect();
        let ops = ops.join(", ");
        let cmd = format!(
            "{{bulkWrite: 1, ops: [{ops}], nsInfo: [{{ns: '{first}'}}, {{ns: '{second}'}}]}}"
        );
        let reply = run(&mut c, "admin", &cmd);
        assert_eq!(number(&reply, "nInserted"), 8, "{reply:?}");
        for (db, coll) in [first, second].map(|ns| ns.split_once('.').unwrap()) {
            let find = format!(
                "{{find: '{coll}', filter: {{_id: {{$gte: {id}, $lt: {}}}}}}}",
                id + 8
            );
            assert_eq!(all(&mut c, db, &find).len(), 4, "{db}.{coll}");
        }
    }
    for shard in &cluster.shards {
        let found = all(&mut shard.connect(0), "config", "{find: 'mine'}");
        assert!(
            found.is_empty(),
            "a shard holds documents of the configuration"
        );
    }
}

#[test]
fn what_a_sharded_collection_must_have() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    run(
        &mut c,
        "d",
        "{insert: 'c', documents: [{_id: 1, a: 1}, {_id: 2, a: 2}]}",
    );
    // There is no index that begins with the key, and it cannot be made beside documents.
    fails(&mut c, "admin", "{shardCollection: 'd.c', key: {a: 1}}", 72);
    run(
        &mut c,
        "d",
        "{createIndexes: 'c', indexes: [{key: {a: 1, b: 1}, name: 'a_1_b_1'}]}",
    );
    run(
        &mut c,
        "d",
        "{createIndexes: 'c', indexes: [{key: {z: 1}, name: 'z_1', unique: true, sparse: true}]}",
    );
    fails(&mut c, "admin", "{shardCollection: 'd.c', key: {a: 1}}", 72);
    run(&mut c, "d", "{dropIndexes: 'c', index: 'z_1'}");
    run(&mut c, "admin", "{shardCollection: 'd.c', key: {a: 1}}");
    // Again with the same key it changes nothing; with another one it is refused.
    run(&mut c, "admin", "{shardCollection: 'd.c', key: {a: 1}}");
    fails(&mut c, "admin", "{shardCollection: 'd.c', key: {b: 1}}", 23);
    fails(&mut c, "admin", "{shardCollection: 'd.c', key: {a: 2}}", 2);
    fails(
        &mut c,
        "admin",
        "{shardCollection: 'd.x', key: {a: 'hashed'}, unique: true}",
        72,
    );
    fails(
        &mut c,
        "admin",
        "{shardCollection: 'config.x', key: {a: 1}}",
        20,
    );
    run(&mut c, "d", "{create: 'w', viewOn: 'c', pipeline: []}");
    fails(
        &mut c,
        "admin",
        "{shardCollection: 'd.w', key: {a: 1}}",
        166,
    );
    run(
        &mut c,
        "d",
        "{create: 'capped', capped: true, size: 100000}",
    );
    fails(
        &mut c,
        "admin",
        "{shardCollection: 'd.capped', key: {_id: 1}}",
        72,
    );
    fails(
        &mut c,
        "d",
        "{createIndexes: 'c', indexes: [{key: {q: 1}, name: 'q', unique: true}]}",
        67,
    );
    // An array is no value of a key, and a document without it counts as null.
    let e = c
        .command("d", &shell("{insert: 'c', documents: [{_id: 3, a: [1]}]}"))
        .unwrap();
    let errors = e.as_doc().get_array("writeErrors").unwrap();
    let first = errors.values().next().and_then(|v| v.as_doc()).unwrap();
    assert_eq!(first.get("code").and_then(|v| v.as_i64_exact()), Some(61));
    run(&mut c, "d", "{insert: 'c', documents: [{_id: 4}]}");
    assert_eq!(all(&mut c, "d", "{find: 'c', filter: {a: null}}").len(), 1);
    // The configuration has MongoDB's documents.
    let found = all(
        &mut c,
        "config",
        "{find: 'collections', filter: {_id: 'd.c'}}",
    );
    let d = found[0].as_doc();
    assert_eq!(d.get_doc("key").unwrap().to_display(), "{ a: 1 }");
    let uuid = d.get("uuid").unwrap();
    let chunks = c
        .find_all(
            "config",
            &doc! { "find": "chunks", "filter": doc! { "uuid": uuid } },
        )
        .unwrap();
    assert_eq!(chunks.len(), 1, "{chunks:?}");
}

/// Shards keep to what they own, also directly, after a restart and for a router that knows nothing.
#[test]
fn a_shard_refuses_what_is_not_its_own() {
    let mut cluster = Cluster::start(2, 1, 2);
    let mut c = cluster.connect();
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {_id: 'hashed'}}",
    );
    let mut other = cluster.routers[1].connect();
    for i in 0..100 {
        run(
            &mut other,
            "d",
            &format!("{{insert: 'c', documents: [{{_id: {i}}}]}}"),
        );
    }
    for shard in &mut cluster.shards {
        shard.members[0].restart();
    }
    let mut counts = Vec::new();
    let mut refused = 0;
    for shard in &cluster.shards {
        shard.primary();
        let mut direct = shard.connect(0);
        counts.push(number(&run(&mut direct, "d", "{count: 'c'}"), "n"));
        for i in 100..120 {
            let insert = shell(&format!("{{insert: 'c', documents: [{{_id: {i}}}]}}"));
            let reply = direct.command("d", &insert).unwrap();
            let Some(errors) = reply.as_doc().get_array("writeErrors") else {
                continue;
            };
            let first = errors.values().next().and_then(|v| v.as_doc()).unwrap();
            assert_eq!(
                first.get("code").and_then(|v| v.as_i64_exact()),
                Some(13388)
            );
            refused += 1;
        }
    }
    assert_eq!(counts.iter().sum::<i64>(), 100);
    assert!(counts.iter().all(|n| *n > 20), "{counts:?}");
    // Each of the twenty keys belongs to exactly one of the two shards.
    assert_eq!(refused, 20);
    assert_eq!(number(&run(&mut c, "d", "{count: 'c'}"), "n"), 120);
}

/// A router learns of what others have done when it uses the collection.
#[test]
fn routers_learn_of_changes_by_others() {
    let cluster = Cluster::start(2, 1, 2);
    let (mut a, mut b) = (cluster.connect(), cluster.routers[1].connect());
    run(&mut a, "d", "{insert: 'c', documents: [{_id: 1, k: 1}]}");
    assert_eq!(all(&mut b, "d", "{find: 'c'}").len(), 1);
    run(&mut a, "d", "{drop: 'c'}");
    run(
        &mut a,
        "admin",
        "{shardCollection: 'd.c', key: {k: 'hashed'}}",
    );
    // This one takes the collection to be whole.
    let many = (0..50)
        .map(|i| format!("{{_id: {i}, k: {i}}}"))
        .collect::<Vec<_>>()
        .join(", ");
    run(
        &mut b,
        "d",
        &format!("{{insert: 'c', documents: [{many}]}}"),
    );
    assert_eq!(all(&mut a, "d", "{find: 'c'}").len(), 50);
    assert_eq!(all(&mut b, "d", "{find: 'c', filter: {k: 7}}").len(), 1);
    // Dropped and made anew by another key, after a router that knows the first.
    run(&mut a, "d", "{drop: 'c'}");
    run(
        &mut a,
        "admin",
        "{shardCollection: 'd.c', key: {other: 'hashed'}}",
    );
    run(
        &mut a,
        "d",
        &format!("{{insert: 'c', documents: [{many}]}}"),
    );
    assert_eq!(all(&mut b, "d", "{find: 'c', filter: {k: 7}}").len(), 1);
    run(
        &mut b,
        "d",
        "{update: 'c', updates: [{q: {k: {$lt: 10}}, u: {$set: {z: 1}}, multi: true}]}",
    );
    assert_eq!(all(&mut a, "d", "{find: 'c', filter: {z: 1}}").len(), 10);
    // Dropped and made anew without a key.
    run(&mut a, "d", "{drop: 'c'}");
    run(&mut a, "d", "{insert: 'c', documents: [{_id: 1}]}");
    assert_eq!(all(&mut b, "d", "{find: 'c'}").len(), 1);
    run(&mut b, "d", "{insert: 'c', documents: [{_id: 2}]}");
    run(&mut a, "d", "{dropDatabase: 1}");
    assert!(all(&mut b, "d", "{find: 'c'}").is_empty());
    assert!(all(&mut a, "config", "{find: 'collections'}").is_empty());
    assert!(all(&mut a, "config", "{find: 'chunks'}").is_empty());
    assert!(all(&mut a, "config", "{find: 'ddl'}").is_empty());
}

/// A retryable statement takes effect once, also where the router has to look for its document.
#[test]
fn a_repeated_statement_takes_effect_once() {
    let cluster = Cluster::start(2, 1, 2);
    let (mut a, mut b) = (cluster.connect(), cluster.routers[1].connect());
    run(
        &mut a,
        "admin",
        "{shardCollection: 'd.c', key: {k: 'hashed'}}",
    );
    let many = (0..40)
        .map(|i| format!("{{_id: {i}, k: {i}, n: 0}}"))
        .collect::<Vec<_>>()
        .join(", ");
    run(
        &mut a,
        "d",
        &format!("{{insert: 'c', documents: [{many}]}}"),
    );
    let session = Value::Binary {
        subtype: 4,
        bytes: &[7; 16],
    };
    let mut number_of = 0_i64;
    let mut twice = |command: &str| {
        number_of += 1;
        let mut cmd = shell(command);
        cmd.append("lsid", doc! { "id": session });
        cmd.append("txnNumber", number_of);
        let first = a.command("d", &cmd).unwrap();
        (first, b.command("d", &cmd).unwrap())
    };
    for command in [
        // After it the filter matches others.
        "{update: 'c', updates: [{q: {n: 0}, u: {$inc: {n: 1}}}]}",
        "{update: 'c', updates: [{q: {k: 3}, u: {$inc: {n: 100}}}, {q: {_id: 5}, u: {$inc: {n: 100}}}]}",
        "{delete: 'c', deletes: [{q: {n: 0}, limit: 1}]}",
        "{insert: 'c', documents: [{_id: 100, k: 1}, {_id: 101, k: 2}, {_id: 102, k: 3}], ordered: false}",
        "{findAndModify: 'c', query: {n: 0}, sort: {_id: 1}, update: {$inc: {n: 10000}}}",
        // These change the shard key: some of them move their documents.
        "{update: 'c', updates: [{q: {_id: 20}, u: {$inc: {k: 1000}}}]}",
        "{update: 'c', updates: [{q: {_id: 21}, u: {$inc: {k: 1000}}}]}",
        "{update: 'c', updates: [{q: {_id: 22}, u: {$inc: {k: 1000}}}]}",
        "{update: 'c', updates: [{q: {_id: 23}, u: {$inc: {k: 1000}}}]}",
        "{update: 'c', updates: [{q: {_id: 24}, u: {$inc: {k: 1000}}}]}",
        "{update: 'c', updates: [{q: {_id: 25}, u: {$inc: {k: 1000}}}]}",
    ] {
        let (first, second) = twice(command);
        let (n, again) = (first.as_doc().get("n"), second.as_doc().get("n"));
        assert_eq!(
            n.map(|v| v.to_display()),
            again.map(|v| v.to_display()),
            "{command}: {second:?}"
        );
        assert!(second.as_doc().get("writeErrors").is_none(), "{second:?}");
    }
    let sum = "{aggregate: 'c', pipeline: [{$group: {_id: null, n: {$sum: '$n'}, c: {$sum: 1}}}], cursor: {}}";
    let found = all(&mut cluster.connect(), "d", sum);
    assert_eq!(
        found[0].as_doc().to_display(),
        "{ _id: null, n: 10201, c: 42 }"
    );
}

/// While routers write through, the collection is made, divided and dropped over and over. Nothing that was
/// acknowledged is missing from the collection that it was written into, and nothing is there twice.
#[test]
fn writers_go_on_while_a_collection_is_divided() {
    let cluster = Cluster::start(2, 1, 3);
    for turn in 0..4 {
        let ns = format!("c{turn}");
        let mut c = cluster.connect();
        run(&mut c, "d", &format!("{{create: '{ns}'}}"));
        run(
            &mut c,
            "d",
            &format!("{{createIndexes: '{ns}', indexes: [{{key: {{k: 1}}, name: 'k_1'}}]}}"),
        );
        let stop = AtomicBool::new(false);
        let written: Vec<Vec<i64>> = thread::scope(|s| {
            let writers: Vec<_> = (0..3_i64)
                .map(|w| {
                    let (ns, stop, router) = (&ns, &stop, &cluster.routers[w as usize]);
                    s.spawn(move || {
                        let mut c = router.connect();
                        let mut mine = Vec::new();
                        let mut next = w * 1_000_000;
                        while !stop.load(SeqCst) {
                            let docs = array![
                                doc! { "_id": next, "k": next, "n": 0 },
                                doc! { "_id": next + 1, "k": next + 1, "n": 0 }
                            ];
                            let insert = doc! { "insert": ns.as_str(), "documents": docs };
                            let reply = c.command("d", &insert).unwrap();
                            assert_eq!(number(&reply, "n"), 2, "{reply:?}");
                            let update = doc! { "q": doc! { "_id": next }, "u": doc! { "$inc": doc! { "n": 1 } } };
                            let update = doc! { "update": ns.as_str(), "updates": array![update] };
                            assert_eq!(number(&c.command("d", &update).unwrap(), "n"), 1);
                            let count = doc! { "count": ns.as_str(), "query": doc! { "_id": next } };
                            assert_eq!(number(&c.command("d", &count).unwrap(), "n"), 1);
                            mine.extend([next, next + 1]);
                            next += 2;
                        }
                        mine
                    })
                })
                .collect();
            thread::sleep(Duration::from_millis(300));
            let key = if turn % 2 == 0 { "{k: 1}" } else { "{_id: 1}" };
            run(
                &mut c,
                "admin",
                &format!("{{shardCollection: 'd.{ns}', key: {key}}}"),
            );
            thread::sleep(Duration::from_millis(300));
            stop.store(true, SeqCst);
            writers.into_iter().map(|w| w.join().unwrap()).collect()
        });
        let wanted: BTreeSet<i64> = written.into_iter().flatten().collect();
        let found = all(
            &mut c,
            "d",
            &format!("{{find: '{ns}', projection: {{n: 1}}}}"),
        );
        let ids: BTreeSet<i64> = found.iter().map(|d| number(d, "_id")).collect();
        assert_eq!((found.len(), &ids), (wanted.len(), &wanted));
        for d in &found {
            assert_eq!(number(d, "n"), 1 - number(d, "_id") % 2, "{d:?}");
        }
    }
}

/// A router is killed at any moment of dividing and dropping. Another one finds the collection usable, with all its
/// documents or dropped, and can go on.
#[test]
fn a_router_may_end_while_it_divides_or_drops() {
    let mut cluster = Cluster::start(2, 1, 2);
    let mut c = cluster.routers[1].connect();
    for turn in 0..12_u64 {
        let ns = format!("d.c{turn}");
        let name = format!("c{turn}");
        let filled = turn % 3 == 0;
        if filled {
            run(
                &mut c,
                "d",
                &format!("{{insert: '{name}', documents: [{{_id: 1}}, {{_id: 2}}, {{_id: 3}}]}}"),
            );
        }
        let drops = turn % 4 == 3;
        if drops {
            run(
                &mut c,
                "admin",
                &format!("{{shardCollection: '{ns}', key: {{_id: 1}}}}"),
            );
        }
        let mut dying = cluster.routers[0].connect();
        let cmd = match drops {
            true => shell(&format!("{{drop: '{name}'}}")),
            false => shell(&format!("{{shardCollection: '{ns}', key: {{_id: 1}}}}")),
        };
        let db = if drops { "d" } else { "admin" };
        let sent = thread::spawn(move || dying.command(db, &cmd).is_ok());
        thread::sleep(Duration::from_millis(turn * 7));
        cluster.routers[0].kill9();
        let done = sent.join().unwrap();
        // What the dead router has begun is settled after its lease has ended.
        let begun = Instant::now();
        let mut n = count_when_settled(&mut c, &name);
        let was = if filled { 3 } else { 0 };
        if drops {
            assert!(n == was || n == 0, "turn {turn}: {n}");
            assert!(!done || n == 0, "turn {turn}: dropped, and there are {n}");
        } else {
            assert_eq!(n, was, "turn {turn}");
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
        run(
            &mut c,
            "admin",
            &format!("{{shardCollection: '{ns}', key: {{_id: 1}}}}"),
        );
        if drops {
            // A drop that nobody was told of may have been ended by this command.
            let now = count_when_settled(&mut c, &name);
            assert!(now == n || now == 0, "turn {turn}: {now} of {n}");
            n = now;
        }
        for i in 10..15 {
            run(
                &mut c,
                "d",
                &format!("{{insert: '{name}', documents: [{{_id: {i}}}]}}"),
            );
            n += 1;
        }
        assert_eq!(
            all(&mut c, "d", &format!("{{find: '{name}'}}")).len() as i64,
            n
        );
        cluster.routers[0].start_again();
    }
}

/// The number of documents, once no command is refused because a change is not settled.
fn count_when_settled(c: &mut Connection, name: &str) -> i64 {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match c.command("d", &doc! { "count": name }) {
            Ok(reply) => return number(&reply, "n"),
            Err(e) if e.code().0 == 13388 && Instant::now() < until => {}
            Err(e) => panic!("{name}: {e}"),
        }
    }
}

/// The chunks of a file may be on several shards.
#[test]
fn a_files_checksum_is_that_of_all_its_chunks() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    for (db, key) in [
        ("whole", None),
        ("by", Some("{files_id: 1, n: 1}")),
        ("hashed", Some("{files_id: 'hashed'}")),
    ] {
        if let Some(key) = key {
            let divide = format!("{{shardCollection: '{db}.fs.chunks', key: {key}}}");
            run(&mut c, "admin", &divide);
        }
        if db == "by" {
            for at in 1..4 {
                let split = format!("{{split: 'by.fs.chunks', middle: {{files_id: 1, n: {at}}}}}");
                run(&mut c, "admin", &split);
            }
            for (at, to) in [(0, "s0"), (1, "s1"), (2, "s0")] {
                let cmd = format!(
                    "{{moveChunk: 'by.fs.chunks', find: {{files_id: 1, n: {at}}}, to: '{to}', _waitForDelete: true}}"
                );
                run(&mut c, "admin", &cmd);
            }
        }
        let add = "{insert: 'fs.chunks', documents: [{_id: 'b', files_id: 1, n: 1, data: HexData(0, '62')}, {_id: 'a', files_id: 1, n: 0, data: HexData(0, '61')}, {_id: 'c', files_id: 1, n: 2, data: HexData(0, '63')}, {_id: 'z', files_id: 2, n: 0, data: HexData(0, '7a')}]}";
        run(&mut c, db, add);
        let told = run(&mut c, db, "{filemd5: 1, root: 'fs'}");
        assert_eq!(number(&told, "numChunks"), 3);
        // The checksum of "abc".
        let md5 = told.as_doc().get_str("md5");
        assert_eq!(md5, Some("900150983cd24fb0d6963f7d28e17f72"), "{db}");
    }
    // The configuration may have files, too, and `local` is each server's own.
    let add = "{insert: 'fs.chunks', documents: [{files_id: 1, n: 0, data: HexData(0, '61')}]}";
    run(&mut c, "admin", add);
    let told = run(&mut c, "admin", "{filemd5: 1}");
    assert_eq!(number(&told, "numChunks"), 1);
    let e = c.command("local", &shell("{filemd5: 1}")).unwrap_err();
    assert_eq!(e.code().0, 73);
}

/// A view compares as it says, whatever the collection below it does.
#[test]
fn a_view_over_shards_has_a_collation_of_its_own() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    run(
        &mut c,
        "d",
        "{create: 'c', collation: {locale: 'en', strength: 2}}",
    );
    let divide = "{shardCollection: 'd.c', key: {_id: 'hashed'}, collation: {locale: 'simple'}}";
    run(&mut c, "admin", divide);
    let insert = "{insert: 'c', documents: [{_id: 1, s: 'abc'}, {_id: 2, s: 'ABC'}, {_id: 3, s: 'Abc'}, {_id: 4, s: 'x'}]}";
    run(&mut c, "d", insert);
    run(&mut c, "d", "{create: 'v', viewOn: 'c', pipeline: []}");
    let of = |c: &mut Connection, name: &str| {
        let found = all(c, "d", &format!("{{find: '{name}', filter: {{s: 'ABC'}}}}"));
        let count = run(c, "d", &format!("{{count: '{name}', query: {{s: 'ABC'}}}}"));
        (found.len(), number(&count, "n"))
    };
    assert_eq!((of(&mut c, "c"), of(&mut c, "v")), ((3, 3), (1, 1)));
    let other = "collation: {locale: 'en', strength: 1}";
    for command in [
        format!("{{find: 'v', {other}}}"),
        format!("{{aggregate: 'v', pipeline: [], cursor: {{}}, {other}}}"),
        format!("{{explain: {{find: 'v', {other}}}}}"),
    ] {
        let e = c.command("d", &shell(&command)).unwrap_err();
        assert_eq!(e.code().0, 167, "{command}");
    }
}

#[test]
fn explain_shows_the_shards() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    twins(&mut c, "{k: 'hashed'}");
    let stage = |c: &mut Connection, inner: &str| {
        let cmd = format!("{{explain: {inner}, verbosity: 'executionStats'}}");
        let reply = run(c, "many", &cmd);
        let planner = reply.as_doc().get_doc("queryPlanner").unwrap();
        let plan = planner.get_doc("winningPlan").unwrap();
        let shards = plan.get_array("shards").unwrap().values().count();
        let stats = reply.as_doc().get_doc("executionStats").unwrap().to_buf();
        (
            plan.get_str("stage").unwrap().to_string(),
            shards,
            number(&stats, "nReturned"),
        )
    };
    let of = |name: &str, shards, n| (name.to_string(), shards, n);
    assert_eq!(
        stage(&mut c, "{find: 'c', filter: {k: 14}}"),
        of("SINGLE_SHARD", 1, 1)
    );
    assert_eq!(
        stage(&mut c, "{find: 'c', filter: {x: 3}}"),
        of("SHARD_MERGE", 2, 20)
    );
    assert_eq!(
        stage(&mut c, "{find: 'c', sort: {x: 1}}"),
        of("SHARD_MERGE_SORT", 2, 200)
    );
    let cmd = "{explain: {aggregate: 'c', pipeline: [{$group: {_id: '$x'}}], cursor: {}}}";
    let reply = run(&mut c, "many", cmd);
    let parts = reply.as_doc().get_doc("splitPipeline").unwrap();
    assert!(parts.get_array("shardsPart").is_some() && parts.get_array("mergerPart").is_some());
    assert_eq!(reply.as_doc().get_doc("shards").unwrap().iter().count(), 2);
    // Stages that read what is on other shards run at the router, also for what is on one shard.
    let join = "{$lookup: {from: 'c', localField: '_id', foreignField: 'x', as: 'w'}}";
    for (of, first, shards) in [
        ("other", "", 1),
        ("c", "{$match: {k: 14}}, ", 1),
        ("c", "", 2),
    ] {
        let inner = format!("aggregate: '{of}', pipeline: [{first}{join}], cursor: {{}}");
        for cmd in [
            format!("{{explain: {{{inner}}}}}"),
            format!("{{{inner}, explain: true}}"),
        ] {
            let reply = run(&mut c, "many", &cmd);
            let parts = reply.as_doc().get_doc("splitPipeline").unwrap();
            let merger = parts.get_array("mergerPart").unwrap();
            assert!(
                merger.to_display().contains("$lookup"),
                "{}",
                reply.as_doc().to_display()
            );
            let told = reply.as_doc().get_doc("shards").unwrap();
            for name in ["explainVersion", "queryShapeHash", "serverInfo"] {
                assert!(reply.as_doc().get(name).is_some(), "{name}: {cmd}");
            }
            assert_eq!(told.iter().count(), shards, "{cmd}");
            assert!(told.iter().all(|e| ["s0", "s1"].contains(&e.name())));
        }
    }
    for (of, shards) in [("other", 1), ("c", 2)] {
        let into = "[{$project: {k: 1}}, {$merge: {into: 'c', on: ['_id', 'k']}}]";
        let cmd = format!("{{explain: {{aggregate: '{of}', pipeline: {into}, cursor: {{}}}}}}");
        let reply = run(&mut c, "many", &cmd);
        let told = reply.as_doc().get_doc("shards").unwrap();
        assert_eq!(told.iter().count(), shards, "{cmd}");
    }
    run(
        &mut c,
        "many",
        "{create: 'threes', viewOn: 'c', pipeline: [{$match: {x: 3}}]}",
    );
    for cmd in [
        "{explain: {find: 'threes', filter: {k: {$gt: 7}}, sort: {k: 1}, limit: 3}}",
        "{explain: {count: 'threes', query: {k: {$gt: 7}}}}",
        "{explain: {aggregate: 'threes', pipeline: [{$sort: {k: 1}}], cursor: {}}}",
        "{aggregate: 'threes', pipeline: [{$sort: {k: 1}}], explain: true}",
    ] {
        let reply = run(&mut c, "many", cmd);
        let told = reply.as_doc().get_doc("shards").unwrap();
        assert_eq!(told.iter().count(), 2, "{cmd}");
    }
    let told = "{aggregate: 'c', pipeline: [{$collStats: {count: {}}}, {$project: {shard: 1, count: 1}}, {$sort: {shard: 1}}], cursor: {}}";
    let told = all(&mut c, "many", told);
    let names: Vec<&str> = told
        .iter()
        .filter_map(|d| d.as_doc().get_str("shard"))
        .collect();
    assert_eq!(names, ["s0", "s1"]);
    assert_eq!(told.iter().map(|d| number(d, "count")).sum::<i64>(), 200);
    let stats = run(&mut c, "many", "{collStats: 'c'}");
    assert_eq!(
        (number(&stats, "count"), number(&stats, "nchunks")),
        (200, 2)
    );
    assert_eq!(
        number(&run(&mut c, "admin", "{dataSize: 'many.c'}"), "numObjects"),
        200
    );
    assert_eq!(
        number(&run(&mut c, "many", "{validate: 'c'}"), "nrecords"),
        200
    );
}

/// What only members of the cluster may say is not taken from clients.
#[test]
fn clients_cannot_speak_as_routers() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    twins(&mut c, "{k: 'hashed'}");
    for db in ["one", "many"] {
        for stages in [
            "[{$group: {_id: '$x', $willBeMerged: true}}]",
            "[{$group: {_id: 1, $doingMerge: true}}]",
        ] {
            let cmd = format!(
                "{{aggregate: 'c', pipeline: {stages}, cursor: {{}}, shardVersion: {{'$merges': true}}}}"
            );
            let e = c.command(db, &shell(&cmd)).expect_err(&cmd);
            assert!(e.code().0 != 13388, "{cmd}: {e}");
        }
        let found = c.command(
            db,
            &shell("{find: 'c', filter: {k: 14}, sort: {k: 1}, shardVersion: {'$merges': true}}"),
        );
        // A server that is no shard does not take a version, and a router is none.
        assert_eq!(found.expect_err("a version").code().0, 203);
    }
}

/// A statement of a transaction.
fn statement(
    c: &mut Connection,
    db: &str,
    cmd: &str,
    of: (u8, i64),
    starts: bool,
) -> muniment_value::Result<DocBuf> {
    let mut cmd = shell(cmd);
    let bytes = &[of.0; 16];
    cmd.append("lsid", doc! { "id": Value::Binary { subtype: 4, bytes } });
    cmd.append("txnNumber", of.1);
    cmd.append("autocommit", false);
    cmd.append_some("startTransaction", starts.then_some(true));
    c.command(db, &cmd)
}

/// A transaction over a divided collection sees its own writes, and takes effect on all shards or on none.
#[test]
fn transactions_over_a_divided_collection() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {k: 'hashed'}}",
    );
    let many = (0..40)
        .map(|i| format!("{{_id: {i}, k: {i}, n: 0}}"))
        .collect::<Vec<_>>()
        .join(", ");
    run(
        &mut c,
        "d",
        &format!("{{insert: 'c', documents: [{many}]}}"),
    );
    let count = "{aggregate: 'c', pipeline: [{$group: {_id: null, c: {$sum: 1}, n: {$sum: '$n'}, k: {$sum: '$k'}}}], cursor: {}}";
    let of = |reply: DocBuf| {
        let cursor = reply.as_doc().get_doc("cursor").unwrap();
        let batch = cursor.get_array("firstBatch").unwrap();
        batch
            .values()
            .next()
            .unwrap()
            .as_doc()
            .unwrap()
            .to_display()
    };
    for (number_of, commits) in [(1_i64, false), (2, true)] {
        let id = (9, number_of);
        let found = statement(&mut c, "d", "{find: 'c', batchSize: 100}", id, true).unwrap();
        let cursor = found.as_doc().get_doc("cursor").unwrap();
        assert_eq!(cursor.get_array("firstBatch").unwrap().values().count(), 40);
        for cmd in [
            "{update: 'c', updates: [{q: {}, u: {$inc: {n: 1}}, multi: true}]}",
            "{insert: 'c', documents: [{_id: 100, k: 100, n: 5}, {_id: 101, k: 101, n: 5}, {_id: 102, k: 102, n: 5}]}",
            "{delete: 'c', deletes: [{q: {_id: 7}, limit: 1}]}",
            "{update: 'c', updates: [{q: {_id: 1}, u: {$inc: {k: 1000}}}, {q: {_id: 2}, u: {$inc: {k: 1000}}}]}",
            "{update: 'c', updates: [{q: {_id: 3}, u: {$inc: {k: 1000}}}, {q: {_id: 4}, u: {$inc: {k: 1000}}}]}",
        ] {
            let reply =
                statement(&mut c, "d", cmd, id, false).unwrap_or_else(|e| panic!("{cmd}: {e}"));
            assert!(
                reply.as_doc().get("writeErrors").is_none(),
                "{cmd}: {reply:?}"
            );
        }
        let inside = of(statement(&mut c, "d", count, id, false).unwrap());
        assert_eq!(inside, "{ _id: null, c: 42, n: 54, k: 5076 }");
        // Nobody else sees anything of it.
        assert_eq!(
            of(run(&mut c, "d", count)),
            "{ _id: null, c: 40, n: 0, k: 780 }"
        );
        let end = if commits {
            "{commitTransaction: 1}"
        } else {
            "{abortTransaction: 1}"
        };
        statement(&mut c, "admin", end, id, false).unwrap();
        let after = if commits {
            inside
        } else {
            "{ _id: null, c: 40, n: 0, k: 780 }".to_string()
        };
        assert_eq!(of(run(&mut c, "d", count)), after);
    }
    // A statement that fails on one shard aborts the transaction on all.
    statement(
        &mut c,
        "d",
        "{update: 'c', updates: [{q: {}, u: {$set: {z: 1}}, multi: true}]}",
        (9, 3),
        true,
    )
    .unwrap();
    let twice = "{insert: 'c', documents: [{_id: 200, k: 1}, {_id: 10, k: 10}]}";
    let failed = statement(&mut c, "d", twice, (9, 3), false);
    assert!(failed.is_err() || failed.unwrap().as_doc().get("writeErrors").is_some());
    let e =
        statement(&mut c, "admin", "{commitTransaction: 1}", (9, 3), false).expect_err("a commit");
    assert_eq!(e.code().0, 251);
    assert!(all(&mut c, "d", "{find: 'c', filter: {z: 1}}").is_empty());
}

/// The commands of one description, each with what it has to come to: nothing, or an error's code.
fn come_to(c: &mut Connection, wanted: &[(&str, &str, i32)]) {
    for (db, cmd, code) in wanted {
        let begun = Instant::now();
        match *code {
            0 => drop(run(c, db, cmd)),
            code => drop(fails(c, db, cmd, code)),
        }
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{cmd} took {:?}",
            begun.elapsed()
        );
    }
}

/// What was once lost, applied twice, or repeated until the patience of the router was at its end.
#[test]
fn what_once_went_wrong() {
    let cluster = Cluster::start(2, 1, 2);
    let mut c = cluster.connect();
    twins(&mut c, "{k: 'hashed'}");
    run(&mut c, "many", "{create: 'w', viewOn: 'c', pipeline: []}");
    come_to(
        &mut c,
        &[
            ("admin", "{renameCollection: 'many.c', to: 'one.d'}", 125),
            (
                "admin",
                "{renameCollection: 'many.other', to: 'many.c'}",
                48,
            ),
            (
                "many",
                "{aggregate: 'other', pipeline: [{$out: 'c'}], cursor: {}}",
                28769,
            ),
            (
                "many",
                "{aggregate: 'other', pipeline: [{$merge: {into: 'c', on: '_id'}}], cursor: {}}",
                51183,
            ),
            (
                "many",
                "{aggregate: 'other', pipeline: [{$lookup: {from: 'w', localField: '_id', foreignField: 'x', as: 'w'}}], cursor: {}}",
                0,
            ),
            (
                "many",
                "{explain: {aggregate: 'other', pipeline: [{$lookup: {from: 'c', localField: '_id', foreignField: 'x', as: 'w'}}], cursor: {}}}",
                0,
            ),
            (
                "many",
                "{update: 'c', updates: [{q: {k: {$in: []}, a: 1}, u: {$set: {x: 1}}, upsert: true}]}",
                0,
            ),
            (
                "many",
                "{update: 'c', updates: [{q: {k: 9000}, u: {$set: {k: 9001}}, upsert: true}]}",
                0,
            ),
            (
                "many",
                "{findAndModify: 'c', query: {k: 9002}, update: {$set: {k: 9003}}, upsert: true}",
                0,
            ),
            ("many", "{find: 'c', limit: -3}", 2),
            ("many", "{find: 'c', skip: -3}", 2),
        ],
    );
    // Without an acknowledgement a statement for one document still changes one.
    let before = number(&run(&mut c, "many", "{count: 'c', query: {x: 3}}"), "n");
    for cmd in [
        "{update: 'c', updates: [{q: {x: 3}, u: {$inc: {y: 1}}}], writeConcern: {w: 0}}",
        "{delete: 'c', deletes: [{q: {x: 3, y: {$exists: false}}, limit: 1}], writeConcern: {w: 0}}",
    ] {
        c.send_only("many", &shell(cmd)).unwrap();
    }
    let changed = all(&mut c, "many", "{find: 'c', filter: {y: {$exists: true}}}");
    assert_eq!((changed.len(), number(&changed[0], "y")), (1, 1));
    assert_eq!(
        number(&run(&mut c, "many", "{count: 'c', query: {x: 3}}"), "n"),
        before - 1
    );
    // A cursor over cursors of shards is ended with them.
    let open = |cluster: &Cluster| -> i64 {
        let of = cluster.shards.iter().map(|shard| {
            let status = run(&mut shard.connect(0), "admin", "{serverStatus: 1}");
            let metrics = status.as_doc().get_doc("metrics").unwrap();
            let open = metrics.get_doc("cursor").unwrap().get_doc("open").unwrap();
            open.get("total").and_then(|v| v.as_i64_exact()).unwrap()
        });
        of.sum()
    };
    let reply = run(&mut c, "many", "{find: 'c', batchSize: 2}");
    let id = reply
        .as_doc()
        .get_doc("cursor")
        .unwrap()
        .get("id")
        .and_then(|v| v.as_i64_exact())
        .unwrap();
    assert_eq!(open(&cluster), 2);
    let killed = run(
        &mut c,
        "many",
        &format!("{{killCursors: 'c', cursors: [NumberLong('{id}')]}}"),
    );
    assert_eq!(
        killed
            .as_doc()
            .get_array("cursorsKilled")
            .unwrap()
            .values()
            .count(),
        1
    );
    assert_eq!(open(&cluster), 0);
    let reply = run(&mut c, "many", "{listIndexes: 'c', cursor: {batchSize: 1}}");
    let id = reply
        .as_doc()
        .get_doc("cursor")
        .unwrap()
        .get("id")
        .and_then(|v| v.as_i64_exact())
        .unwrap();
    run(
        &mut c,
        "many",
        &format!("{{getMore: NumberLong('{id}'), collection: 'c'}}"),
    );
    assert_eq!(open(&cluster), 0);
    // A key has no array in it.
    run(
        &mut c,
        "a",
        "{insert: 'c', documents: [{_id: 1, p: {q: [1]}}]}",
    );
    run(
        &mut c,
        "a",
        "{createIndexes: 'c', indexes: [{key: {'p.q': 1}, name: 'p'}]}",
    );
    fails(
        &mut c,
        "admin",
        "{shardCollection: 'a.c', key: {'p.q': 1}}",
        61,
    );
    run(
        &mut c,
        "a",
        "{update: 'c', updates: [{q: {_id: 1}, u: {$set: {p: {q: 1}}}}]}",
    );
    run(&mut c, "admin", "{shardCollection: 'a.c', key: {'p.q': 1}}");
}

/// A router that takes a collection to be whole learns of it in the middle of a command.
#[test]
fn a_command_goes_on_on_a_collection_that_is_divided_meanwhile() {
    let cluster = Cluster::start(2, 1, 2);
    let (mut a, mut b) = (cluster.connect(), cluster.routers[1].connect());
    for (i, cmd) in [
        "{insert: 'NAME', documents: [DOCS]}",
        "{insert: 'NAME', documents: [DOCS], ordered: false}",
        "{bulkWrite: 1, ops: [OPS], nsInfo: [{ns: 'd.NAME'}]}",
        "{update: 'NAME', updates: [{q: {_id: 0, k: 0}, u: {$set: {z: 1}}, upsert: true}, {q: {_id: 1, k: 1}, u: {$set: {z: 1}}, upsert: true}]}",
        "{delete: 'NAME', deletes: [{q: {}, limit: 0}]}",
    ]
    .iter()
    .enumerate()
    {
        let name = format!("c{i}");
        // The second router knows it as whole.
        assert_eq!(number(&run(&mut b, "d", &format!("{{count: '{name}'}}")), "n"), 0);
        run(&mut a, "admin", &format!("{{shardCollection: 'd.{name}', key: {{k: 'hashed'}}}}"));
        let docs: Vec<String> = (10..30).map(|i| format!("{{_id: {i}, k: {i}}}")).collect();
        let ops: Vec<String> = docs.iter().map(|d| format!("{{insert: 0, document: {d}}}")).collect();
        let cmd = cmd.replace("NAME", &name).replace("DOCS", &docs.join(", ")).replace("OPS", &ops.join(", "));
        let db = if i == 2 { "admin" } else { "d" };
        run(&mut b, db, &cmd);
        let wanted = [20, 20, 20, 2, 0][i];
        assert_eq!(all(&mut a, "d", &format!("{{find: '{name}'}}")).len(), wanted, "{cmd}");
    }
}

/// A snapshot read outside of a transaction sees all shards at one time.
#[test]
fn snapshots_have_one_time() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {k: 'hashed'}}",
    );
    let many = (0..200)
        .map(|i| format!("{{_id: {i}, k: {i}, n: 0}}"))
        .collect::<Vec<_>>()
        .join(", ");
    run(
        &mut c,
        "d",
        &format!("{{insert: 'c', documents: [{many}], writeConcern: {{w: 'majority'}}}}"),
    );
    let reply = run(
        &mut c,
        "d",
        "{find: 'c', batchSize: 10, readConcern: {level: 'snapshot'}}",
    );
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    let at = cursor.get("atClusterTime").expect("a time");
    let id = cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap();
    let mut seen = cursor.get_array("firstBatch").unwrap().values().count();
    let later = (200..400).map(|i| format!("{{_id: {i}, k: {i}, n: 0}}"));
    let later = later.collect::<Vec<_>>().join(", ");
    run(
        &mut c,
        "d",
        &format!("{{insert: 'c', documents: [{later}]}}"),
    );
    let more = run(
        &mut c,
        "d",
        &format!("{{getMore: NumberLong('{id}'), collection: 'c'}}"),
    );
    let cursor = more.as_doc().get_doc("cursor").unwrap();
    seen += cursor.get_array("nextBatch").unwrap().values().count();
    assert_eq!(seen, 200);
    let again = doc! { "find": "c", "batchSize": 1000, "readConcern": doc! { "level": "snapshot", "atClusterTime": at } };
    assert_eq!(c.find_all("d", &again).unwrap().len(), 200);
    let sum =
        "{aggregate: 'c', pipeline: [{$count: 'n'}], cursor: {}, readConcern: {level: 'snapshot'}}";
    run(&mut c, "d", sum);
}

/// Several clients divide a collection at once, at one router and at two.
#[test]
fn a_collection_is_divided_once() {
    let cluster = Cluster::start(2, 1, 2);
    let mut c = cluster.connect();
    for turn in 0..6 {
        let ns = format!("d.c{turn}");
        if turn % 2 == 0 {
            run(
                &mut c,
                "d",
                &format!("{{insert: 'c{turn}', documents: [{{_id: 1, k: 1}}]}}"),
            );
            run(
                &mut c,
                "d",
                &format!(
                    "{{createIndexes: 'c{turn}', indexes: [{{key: {{k: 'hashed'}}, name: 'k'}}]}}"
                ),
            );
        }
        thread::scope(|s| {
            for i in 0..4 {
                let (ns, router) = (&ns, &cluster.routers[i % 2]);
                s.spawn(move || {
                    let mut c = router.connect();
                    run(
                        &mut c,
                        "admin",
                        &format!("{{shardCollection: '{ns}', key: {{k: 'hashed'}}}}"),
                    );
                });
            }
        });
        for i in 10..20 {
            run(
                &mut c,
                "d",
                &format!("{{insert: 'c{turn}', documents: [{{_id: {i}, k: {i}}}]}}"),
            );
        }
        let found = all(
            &mut cluster.routers[1].connect(),
            "d",
            &format!("{{find: 'c{turn}'}}"),
        );
        assert_eq!(found.len(), if turn % 2 == 0 { 11 } else { 10 });
    }
}

/// What a shard owns is known to each of its members: also to one that was filled anew, and that leads then.
#[test]
fn placements_survive_elections_and_initial_sync() {
    let mut cluster = Cluster::start(2, 3, 1);
    let mut c = cluster.connect();
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {_id: 'hashed'}}",
    );
    let docs: Vec<String> = (0..100).map(|i| format!("{{_id: {i}}}")).collect();
    let insert = format!(
        "{{insert: 'c', documents: [{}], writeConcern: {{w: 3}}}}",
        docs.join(", ")
    );
    run(&mut c, "d", &insert);
    let shard = &mut cluster.shards[0];
    let first = shard.primary();
    let empty = (first + 1) % 3;
    shard.members[empty].kill9();
    shard.members[empty].empty();
    shard.members[empty].start_again();
    shard.settle();
    shard.until("the filled member has all", || {
        let status = shard.connect(empty).command(
            "d",
            &shell("{count: 'c', $readPreference: {mode: 'nearest'}}"),
        );
        status.ok().filter(|d| number(d, "n") > 20)
    });
    let step = shell("{replSetStepDown: 60, secondaryCatchUpPeriodSecs: 20}");
    let _ = shard.connect(first).command("admin", &step);
    let ask = shell("{replSetStepUp: 1}");
    shard.until("it leads", || {
        let _ = shard.connect(empty).command("admin", &ask);
        let hello = shard
            .connect(empty)
            .command("admin", &shell("{hello: 1}"))
            .ok()?;
        hello
            .as_doc()
            .get("isWritablePrimary")
            .filter(|v| v.truthy())
            .map(|_| ())
    });
    let mut direct = shard.connect(empty);
    let mut refused = 0;
    for i in 100..140 {
        let insert = shell(&format!("{{insert: 'c', documents: [{{_id: {i}}}]}}"));
        let reply = direct.command("d", &insert).unwrap();
        refused += usize::from(reply.as_doc().get("writeErrors").is_some());
    }
    assert!(refused > 5 && refused < 35, "{refused}");
    // The router finds the new primary; a write that cannot be retried may have to be sent again.
    cluster.routers[0].until("the router finds the primary", || {
        c.command("d", &shell("{insert: 'c', documents: [{_id: 200}]}"))
            .ok()?;
        c.command("d", &shell("{insert: 'c', documents: [{_id: 201}]}"))
            .ok()
    });
    for i in 202..240 {
        run(
            &mut c,
            "d",
            &format!("{{insert: 'c', documents: [{{_id: {i}}}]}}"),
        );
    }
    let n = all(&mut c, "d", "{find: 'c'}").len();
    assert_eq!(n, 100 + 40 + 40 - refused);
}

/// Without a majority of the configuration nothing of it changes; reads and writes go on, also those of a router that
/// uses a collection for the first time.
#[test]
fn a_lost_configuration_stops_changes_alone() {
    let mut cluster = Cluster::prepare_with(3, 2, 1, 2, &[]);
    let mut c = cluster.connect();
    cluster.add_shards(&mut c);
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {_id: 'hashed'}}",
    );
    run(
        &mut c,
        "d",
        "{insert: 'whole', documents: [{_id: 1}], writeConcern: {w: 'majority'}}",
    );
    let docs: Vec<String> = (0..50).map(|i| format!("{{_id: {i}}}")).collect();
    run(
        &mut c,
        "d",
        &format!("{{insert: 'c', documents: [{}]}}", docs.join(", ")),
    );
    // All members know of it before two end.
    cluster.config.settle();
    let primary = cluster.config.primary();
    let other = (primary + 1) % 3;
    cluster.config.members[primary].kill9();
    cluster.config.members[other].kill9();
    for router in &cluster.routers {
        let mut c = router.connect();
        let found = router.until("the router reads", || {
            c.find_all("d", &shell("{find: 'c'}")).ok()
        });
        assert_eq!(found.len() % 50, 0, "{}", found.len());
        run(
            &mut c,
            "d",
            "{update: 'c', updates: [{q: {}, u: {$inc: {n: 1}}, multi: true}]}",
        );
        assert_eq!(all(&mut c, "d", "{find: 'whole'}").len(), 1);
    }
    assert_eq!(all(&mut c, "d", "{find: 'c', filter: {n: 2}}").len(), 50);
    let e = c.command(
        "admin",
        &shell("{shardCollection: 'd.more', key: {_id: 1}, maxTimeMS: 3000}"),
    );
    assert!(e.is_err(), "{e:?}");
    cluster.config.members[primary].start_again();
    cluster.config.members[other].start_again();
    cluster.config.settle();
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.more', key: {_id: 1}}",
    );
}

/// What a router holds of the shards' batches is bounded: beyond that, cursors are refused.
#[test]
fn cursors_over_shards_are_bounded() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {_id: 'hashed'}}",
    );
    let text = "x".repeat(1 << 20);
    for i in 0..48 {
        let docs = array![doc! { "_id": i, "text": text.as_str() }];
        c.command("d", &doc! { "insert": "c", "documents": docs })
            .unwrap();
    }
    let limit = 96 << 20;
    run(
        &mut c,
        "admin",
        &format!("{{setParameter: 1, munimentMemoryLimitBytes: NumberLong('{limit}')}}"),
    );
    let mut open = Vec::new();
    let mut refused = 0;
    for _ in 0..60 {
        match c.command("d", &shell("{find: 'c', batchSize: 1, sort: {_id: 1}}")) {
            Ok(reply) => open.push(reply),
            Err(e) => {
                assert_eq!(e.code().0, 146, "{e}");
                refused += 1;
            }
        }
    }
    assert!(
        open.len() > 3 && refused > 3,
        "{} open, {refused} refused",
        open.len()
    );
    // When the others are ended there is room again.
    let ids = open.iter().map(|r| {
        let cursor = r.as_doc().get_doc("cursor").unwrap();
        cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap()
    });
    let ids: muniment_value::ArrayBuf = ids.collect();
    c.command("d", &doc! { "killCursors": "c", "cursors": ids })
        .unwrap();
    run(&mut c, "d", "{find: 'c', batchSize: 1, sort: {_id: 1}}");
}

/// The first command of a transaction may need several messages to one shard.
#[test]
fn the_first_command_of_a_transaction_has_several_messages() {
    let cluster = Cluster::start(2, 1, 2);
    let mut c = cluster.connect();
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {k: 'hashed'}}",
    );
    let many = (0..20)
        .map(|i| format!("{{_id: {i}, k: {i}}}"))
        .collect::<Vec<_>>()
        .join(", ");
    run(
        &mut c,
        "d",
        &format!("{{insert: 'c', documents: [{many}]}}"),
    );
    let more = (20..40)
        .map(|i| format!("{{_id: {i}, k: {i}}}"))
        .collect::<Vec<_>>()
        .join(", ");
    for (number_of, (db, cmd)) in [
        ("d", "{update: 'c', updates: [{q: {_id: 3}, u: {$set: {a: 1}}}]}".to_string()),
        ("d", "{findAndModify: 'c', query: {_id: 4}, update: {$set: {a: 1}}}".to_string()),
        ("d", format!("{{insert: 'c', documents: [{more}]}}")),
        ("d", "{update: 'c', updates: [{q: {none: 1}, u: {$set: {a: 1, k: 77}}, multi: true, upsert: true}]}".to_string()),
        ("admin", "{bulkWrite: 1, ops: [{update: 0, filter: {_id: 5}, updateMods: {$set: {a: 1}}}, {delete: 0, filter: {_id: 6}}], nsInfo: [{ns: 'd.c'}]}".to_string()),
        ("d", "{aggregate: 'c', pipeline: [{$lookup: {from: 'other', localField: 'k', foreignField: 'k', as: 'o'}}, {$count: 'n'}], cursor: {}}".to_string()),
    ]
    .iter()
    .enumerate()
    {
        let id = (11, number_of as i64 + 1);
        let reply = statement(&mut c, db, cmd, id, true).unwrap_or_else(|e| panic!("{cmd}: {e}"));
        let reply_d = reply.as_doc();
        assert!(reply_d.get("writeErrors").is_none(), "{reply:?}");
        // Another router learns from the token how the transaction has ended.
        let token = reply_d.get_doc("recoveryToken").unwrap_or_else(|| panic!("{cmd}: {reply:?}"));
        statement(&mut c, "admin", "{commitTransaction: 1}", id, false).unwrap();
        let token = token.to_display();
        let mut other = cluster.routers[1].connect();
        let again = format!("{{commitTransaction: 1, recoveryToken: {token}}}");
        if number_of < 5 {
            statement(&mut other, "admin", &again, id, false).unwrap_or_else(|e| panic!("{cmd}: {e}"));
        }
    }
    let changed = all(&mut c, "d", "{find: 'c', filter: {a: 1}}");
    assert_eq!(changed.len(), 4, "{changed:?}");
    assert_eq!(all(&mut c, "d", "{find: 'c'}").len(), 40);
}

/// A shard takes no placement that is older than its own, whatever the UUID.
#[test]
fn an_older_placement_changes_nothing() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {k: 'hashed'}}",
    );
    run(
        &mut c,
        "d",
        "{insert: 'c', documents: [{_id: 1, k: 1}, {_id: 2, k: 2}, {_id: 3, k: 3}, {_id: 4, k: 4}]}",
    );
    let bytes = &[5; 16];
    let uuid = Value::Binary { subtype: 4, bytes };
    let (t, i) = (1_000_000, 1);
    let placement = doc! {
        "timestamp": Value::Timestamp { t, i }, "version": Value::Timestamp { t: 1, i: 0 },
        "key": doc! { "k": "hashed" }, "owned": array![],
    };
    let old = doc! { "_shardPlace": "c", "uuid": uuid, "options": doc! {}, "placement": placement };
    for shard in &cluster.shards {
        let e = shard
            .connect(0)
            .command("d", &old)
            .expect_err("an older placement");
        assert_eq!(e.code().0, 13388);
    }
    assert_eq!(all(&mut c, "d", "{find: 'c'}").len(), 4);
}
