//! Pipelines and mapReduce that write their results, at a router: what is divided, or away from its database's shard,
//! gets what one server would store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod moving;

use moving::*;
use muniment_value::{ArrayBuf, doc};
use muniment_wire::Connection;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use testkit::{Cluster, shell};

/// The documents of the source, in both databases.
fn fill(c: &mut Connection, db: &str, name: &str, ids: impl Iterator<Item = i32>) {
    let docs = ids.map(|i| {
        doc! {
            "_id": i, "k": i * 7 % 201, "u": i % 50, "x": i % 10, "s": format!("s{}", i % 13),
            "d": doc! { "e": i % 5 },
        }
    });
    let docs: ArrayBuf = docs.collect();
    let insert = doc! { "insert": name, "documents": docs };
    c.command(db, &insert).unwrap();
}

/// `one.c` is whole, and `many.c` is divided; both have the same documents. `far` is on another shard than both.
fn sources(c: &mut Connection) {
    for (db, shard) in [("one", "s0"), ("many", "s0"), ("far", "s1")] {
        let enable = format!("{{enableSharding: '{db}', primaryShard: '{shard}'}}");
        run(c, "admin", &enable);
    }
    run(
        c,
        "admin",
        "{shardCollection: 'many.c', key: {k: 'hashed'}}",
    );
    for db in ["one", "many"] {
        fill(c, db, "c", 0..200);
        run(
            c,
            db,
            "{create: 'v', viewOn: 'c', pipeline: [{$match: {x: {$lt: 5}}}]}",
        );
        run(
            c,
            db,
            "{insert: 'other', documents: [{_id: 1, n: 'one'}, {_id: 2, n: 'two'}, {_id: 1000, n: 'three'}]}",
        );
    }
}

/// A target with a part of the source's documents, which say so.
fn target(c: &mut Connection, db: &str) {
    run(c, db, "{delete: 't', deletes: [{q: {}, limit: 0}]}");
    fill(c, db, "t", 100..250);
    run(
        c,
        db,
        "{update: 't', updates: [{q: {}, u: {$set: {old: true, x: 77}}, multi: true}]}",
    );
}

/// Pipelines with the collection that they begin with; `$FAR` is a database on another shard.
const MERGES: [(&str, &str); 20] = [
    ("'c'", "{$merge: 't'}"),
    ("'c'", "{$merge: {into: 't', whenMatched: 'replace'}}"),
    ("'c'", "{$merge: {into: 't', whenMatched: 'keepExisting'}}"),
    ("'c'", "{$merge: {into: 't', whenMatched: 'fail'}}"),
    (
        "'c'",
        "{$match: {_id: {$lt: 50}}}, {$merge: {into: 't', whenMatched: 'fail'}}",
    ),
    (
        "'c'",
        "{$merge: {into: 't', whenMatched: 'merge', whenNotMatched: 'discard'}}",
    ),
    (
        "'c'",
        "{$match: {_id: {$gte: 100}}}, {$merge: {into: 't', whenMatched: 'replace', whenNotMatched: 'fail'}}",
    ),
    ("'c'", "{$merge: {into: 't', whenNotMatched: 'fail'}}"),
    (
        "'c'",
        "{$merge: {into: 't', let: {n: '$x', l: '$$w'}, whenMatched: [{$set: {sum: {$add: ['$x', '$$n', '$$l', '$$new.k']}}}]}}",
    ),
    (
        "'c'",
        "{$set: {y: 1}}, {$sort: {k: -1}}, {$limit: 30}, {$merge: {into: 't', whenMatched: [{$addFields: {y: '$$new.y'}}], whenNotMatched: 'discard'}}",
    ),
    (
        "'c'",
        "{$group: {_id: '$x', n: {$sum: 1}, k: {$max: '$k'}}}, {$merge: {into: 't', whenMatched: 'keepExisting'}}",
    ),
    (
        "'c'",
        "{$match: {x: 3}}, {$lookup: {from: 'other', localField: 'x', foreignField: '_id', as: 'o'}}, {$merge: 't'}",
    ),
    (
        "'c'",
        "{$match: {x: 3}}, {$unionWith: 'other'}, {$merge: {into: 't', whenMatched: 'replace'}}",
    ),
    ("'v'", "{$merge: {into: 't', whenMatched: 'replace'}}"),
    ("'other'", "{$set: {k: 5}}, {$merge: 't'}"),
    ("'c'", "{$project: {_id: 0, k: 1}}, {$merge: 't'}"),
    ("'none'", "{$merge: 't'}"),
    (
        "1",
        "{$documents: [{_id: 3, k: 21, z: 1}, {_id: 4000, k: 2}]}, {$merge: 't'}",
    ),
    ("'c'", "{$set: {k: ['$k']}}, {$merge: {into: 't', on: 'k'}}"),
    (
        "'c'",
        "{$match: {x: 1}}, {$merge: {into: {db: '$FAR', coll: 't'}}}",
    ),
];

/// What a collection holds; ids that a server has given do not count.
fn held(c: &mut Connection, db: &str, name: &str) -> Vec<String> {
    let find = format!("{{find: '{name}', sort: {{_id: 1}}}}");
    let docs = all(c, db, &find).into_iter().map(|d| {
        let given = matches!(
            d.as_doc().get("_id"),
            Some(muniment_value::Value::ObjectId(_))
        );
        let mut fields: Vec<String> = d
            .as_doc()
            .iter()
            .filter(|e| !given || e.name() != "_id")
            .map(|e| format!("{}: {}", e.name(), e.value().to_display()))
            .collect();
        // An upsert sets fields that identify the document first.
        fields.sort();
        fields.join(", ")
    });
    let mut docs: Vec<String> = docs.collect();
    docs.sort();
    docs
}

/// What a command comes to: `ok`, or its error.
fn outcome(c: &mut Connection, db: &str, cmd: &str) -> String {
    match c.command(db, &shell(cmd)) {
        Ok(reply) => format!("ok {:?}", reply.as_doc().get_str("result")),
        Err(e) => format!(
            "{} {}",
            e.code().0,
            e.message().replace(&format!("{db}."), "")
        ),
    }
}

/// Each pipeline leaves in a divided target what it leaves in one on a single server.
fn merges_are_those_of_one_server(c: &mut Connection, key: &str) {
    for (from, stages) in MERGES {
        let mut came_to = Vec::new();
        for db in ["one", "many"] {
            target(c, db);
            run(c, "far", &format!("{{drop: '{db}'}}"));
            let stages = stages.replace(
                "{db: '$FAR', coll: 't'}",
                &format!("{{db: 'far', coll: '{db}'}}"),
            );
            let cmd =
                format!("{{aggregate: {from}, pipeline: [{stages}], let: {{w: 4}}, cursor: {{}}}}");
            let done = outcome(c, db, &cmd);
            // Which document fails first depends on the shards.
            let done = match done.starts_with("11000") {
                true => "11000".to_string(),
                false => done,
            };
            let failed = done == "11000";
            let held = match failed {
                true => Vec::new(),
                false => [held(c, db, "t"), held(c, "far", db)].concat(),
            };
            came_to.push((done, held));
        }
        assert_eq!(came_to[0], came_to[1], "{key}: {from} {stages}");
    }
}

#[test]
fn merges_into_divided_collections() {
    let cluster = Cluster::start(2, 1, 2);
    let mut c = cluster.connect();
    sources(&mut c);
    for key in ["{_id: 'hashed'}", "{k: 1}"] {
        run(&mut c, "many", "{drop: 't'}");
        run(
            &mut c,
            "admin",
            &format!("{{shardCollection: 'many.t', key: {key}}}"),
        );
        if key == "{k: 1}" {
            run(&mut c, "admin", "{split: 'many.t', middle: {k: 60}}");
            run(
                &mut c,
                "admin",
                "{moveChunk: 'many.t', find: {k: 60}, to: 's1'}",
            );
        }
        merges_are_those_of_one_server(&mut c, key);
    }
    // `on` has to be unique over all shards.
    let merge = |on: &str| {
        format!(
            "{{aggregate: 'c', pipeline: [{{$merge: {{into: 't', on: {on}, whenMatched: 'merge'}}}}], cursor: {{}}}}"
        )
    };
    fails(&mut c, "many", &merge("'_id'"), 51183);
    fails(&mut c, "many", &merge("['k', 'u']"), 51183);
    run(
        &mut c,
        "many",
        "{createIndexes: 't', indexes: [{key: {k: 1, u: 1}, name: 'ku', unique: true}]}",
    );
    target(&mut c, "many");
    run(&mut c, "many", &merge("['u', 'k']"));
    assert_eq!(number(&run(&mut c, "many", "{count: 't'}"), "n"), 250);
    // Texts that compare by a collation do not say which shard has them.
    run(
        &mut c,
        "many",
        "{insert: 'texts', documents: [{_id: 1, k: 'A'}]}",
    );
    let texts = "{aggregate: 'texts', pipeline: [{$merge: 't'}], cursor: {}, collation: {locale: 'en', strength: 1}}";
    fails(&mut c, "many", texts, 61);
    // `$out` replaces no divided collection, and leaves it as it is.
    let out = "{aggregate: 'c', pipeline: [{$out: 't'}], cursor: {}}";
    fails(&mut c, "many", out, 28769);
    assert_eq!(number(&run(&mut c, "many", "{count: 't'}"), "n"), 250);
    no_half_written(&cluster);
    each_document_once(&cluster);
}

/// Whatever moves meanwhile, each document takes effect once.
fn each_document_once(cluster: &Cluster) {
    let (mut c, mut mover) = (cluster.connect(), cluster.routers[1].connect());
    target(&mut c, "many");
    let ends = AtomicBool::new(false);
    let runs = thread::scope(|s| {
        let moving = s.spawn(|| {
            let mut moved = 0;
            while !ends.load(SeqCst) || moved < 4 {
                let to = ["s0", "s1"][moved % 2];
                let chunk = format!("{{moveChunk: 'many.t', find: {{k: 60}}, to: '{to}'}}");
                run(&mut mover, "admin", &chunk);
                moved += 1;
            }
        });
        let mut runs = 0;
        while runs < 10 || !moving.is_finished() {
            let pipeline = "[{$merge: {into: 't', whenMatched: [{$set: {runs: {$add: [{$ifNull: ['$runs', 0]}, 1]}}}], whenNotMatched: 'fail'}}]";
            let cmd = format!("{{aggregate: 'part', pipeline: {pipeline}, cursor: {{}}}}");
            if runs == 0 {
                let part = "{aggregate: 't', pipeline: [{$out: 'part'}], cursor: {}}";
                run(&mut c, "many", part);
            }
            run(&mut c, "many", &cmd);
            runs += 1;
            if runs >= 10 {
                ends.store(true, SeqCst);
            }
        }
        moving.join().unwrap();
        runs
    });
    let differ = format!("{{find: 't', filter: {{runs: {{$ne: {runs}}}}}}}");
    assert_eq!(all(&mut c, "many", &differ), []);
}

/// No shard has collections of an `$out` that has ended.
fn no_half_written(cluster: &Cluster) {
    for shard in &cluster.shards {
        let mut c = shard.connect(0);
        for db in ["one", "many", "far"] {
            let left = all(
                &mut c,
                db,
                "{listCollections: 1, filter: {name: {$regex: '^tmp'}}}",
            );
            assert_eq!(left, []);
        }
    }
}

/// The shards of a tracked collection's chunks.
fn on_shards(c: &mut Connection, ns: &str) -> Vec<String> {
    chunks(c, ns).into_iter().map(|c| c.shard).collect()
}

#[test]
fn outputs_go_where_their_targets_are() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    sources(&mut c);
    for db in ["one", "many"] {
        run(
            &mut c,
            db,
            "{createIndexes: 'o', indexes: [{key: {x: 1}, name: 'x_1'}]}",
        );
        run(&mut c, db, "{insert: 'o', documents: [{_id: 'old'}]}");
        // It replaces what was there, and keeps the indexes.
        let out = "{aggregate: 'c', pipeline: [{$match: {x: {$gt: 3}}}, {$project: {x: 1, k: 1}}, {$out: 'o'}], cursor: {}}";
        run(&mut c, db, out);
        let fresh = "{aggregate: 'c', pipeline: [{$group: {_id: '$x', n: {$sum: '$k'}}}, {$out: 'fresh'}], cursor: {}}";
        run(&mut c, db, fresh);
        let series = format!(
            "{{aggregate: 'c', pipeline: [{{$project: {{at: {{$toDate: {{$toLong: {{$multiply: ['$_id', 1000]}}}}}}, m: '$x'}}}}, {{$out: {{db: 'far', coll: 'series_{db}', timeseries: {{timeField: 'at', metaField: 'm'}}}}}}], cursor: {{}}}}"
        );
        run(&mut c, db, &series);
        let far = format!(
            "{{aggregate: 'v', pipeline: [{{$out: {{db: 'far', coll: 'out_{db}'}}}}], cursor: {{}}}}"
        );
        run(&mut c, db, &far);
        // If the pipeline fails, the target stays, and nothing else does.
        let fails_late = "{aggregate: 'c', pipeline: [{$sort: {_id: 1}}, {$group: {_id: '$_id', z: {$first: {$divide: [1, {$subtract: ['$_id', 150]}]}}}}, {$out: 'o'}], cursor: {}}";
        assert!(c.command(db, &shell(fails_late)).is_err());
        assert_eq!(all(&mut c, db, "{listIndexes: 'o'}").len(), 2);
    }
    for name in ["o", "fresh"] {
        let (one, many) = (held(&mut c, "one", name), held(&mut c, "many", name));
        assert_eq!(one, many, "{name}");
        assert!(one.len() >= 10);
    }
    for name in ["series", "out"] {
        let one = held(&mut c, "far", &format!("{name}_one"));
        assert_eq!(one, held(&mut c, "far", &format!("{name}_many")), "{name}");
        assert!(one.len() >= 100, "{name}: {one:?}");
    }
    no_half_written(&cluster);
    // The configuration's set writes nothing of a shard's.
    let of_config =
        "{aggregate: 'shards', pipeline: [{$merge: {into: {db: 'one', coll: 'o'}}}], cursor: {}}";
    fails(&mut c, "config", of_config, 20);
    // Collections that are away from the shard of their database.
    run(
        &mut c,
        "many",
        "{insert: 't', documents: [{_id: 5, old: true}, {_id: 900, old: true}]}",
    );
    for name in ["t", "o"] {
        let moved = format!("{{moveCollection: 'many.{name}', toShard: 's1'}}");
        run(&mut c, "admin", &moved);
    }
    run(
        &mut c,
        "many",
        "{aggregate: 'o', pipeline: [{$merge: 't'}], cursor: {}}",
    );
    assert_eq!(held(&mut c, "many", "t").len(), 121);
    run(
        &mut c,
        "many",
        "{aggregate: 't', pipeline: [{$match: {old: true}}, {$out: 'o'}], cursor: {}}",
    );
    assert_eq!(
        held(&mut c, "many", "o"),
        ["_id: 5, k: 35, old: true, x: 5", "_id: 900, old: true"]
    );
    assert_eq!(on_shards(&mut c, "many.o"), ["s1"]);
    assert_eq!(all(&mut c, "many", "{listIndexes: 'o'}").len(), 2);
    assert!(
        c.command(
            "many",
            &shell("{aggregate: 'c', pipeline: [{$set: {_id: 1}}, {$out: 'o'}], cursor: {}}")
        )
        .is_err()
    );
    assert_eq!(held(&mut c, "many", "o").len(), 2);
    assert_eq!(on_shards(&mut c, "many.o"), ["s1"]);
    no_half_written(&cluster);
}

/// mapReduce commands; results go to `r`, and `$FAR` is a database on another shard, where names end in the source's.
const REDUCTIONS: [&str; 8] = [
    "out: {inline: 1}",
    "out: {inline: 1}, query: {x: {$gt: 4}}, sort: {_id: -1}, limit: 40, finalize: 'function(k, v) { return v + 1; }'",
    "out: {merge: 'r'}",
    "out: {reduce: 'r'}",
    "out: {reduce: 'r'}, finalize: 'function(k, v) { return -v; }', scope: {plus: 3}",
    "out: {merge: 'r', db: '$FAR'}",
    "out: 'whole'",
    "out: {replace: 'whole', db: '$FAR'}",
];

#[test]
fn map_reduce_is_that_of_one_server() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    sources(&mut c);
    run(
        &mut c,
        "admin",
        "{shardCollection: 'many.r', key: {_id: 'hashed'}}",
    );
    for db in ["one", "many"] {
        run(
            &mut c,
            db,
            "{insert: 'r', documents: [{_id: 's1', value: 1000}, {_id: 'other', value: 1}]}",
        );
    }
    let functions = "map: 'function() { emit(this.s, this.k + (typeof plus == \"undefined\" ? 0 : plus)); }', \
         reduce: 'function(k, v) { return Array.sum(v); }'";
    for options in REDUCTIONS {
        let mut came_to = Vec::new();
        for db in ["one", "many"] {
            let options = options.replace("', db: '$FAR'", &format!("_{db}', db: 'far'"));
            let cmd = format!("{{mapReduce: 'c', {functions}, {options}}}");
            let reply = run(&mut c, db, &cmd);
            let results = reply.as_doc().get("results").map(|v| v.to_display());
            let held = ["r", "whole"].map(|name| held(&mut c, db, name));
            let far = ["r", "whole"].map(|n| self::held(&mut c, "far", &format!("{n}_{db}")));
            came_to.push((results, held, far));
        }
        assert_eq!(came_to[0], came_to[1], "{options}");
    }
    for (db, name) in [("many", "whole"), ("far", "r_many"), ("far", "whole_many")] {
        assert_eq!(held(&mut c, db, name).len(), 13, "{db}.{name}");
    }
    // Results go to documents by their `_id`.
    run(
        &mut c,
        "admin",
        "{shardCollection: 'many.byk', key: {k: 1}}",
    );
    let cmd = |out: &str| format!("{{mapReduce: 'c', {functions}, out: {out}}}");
    fails(&mut c, "many", &cmd("{merge: 'byk'}"), 31313);
    fails(&mut c, "many", &cmd("{replace: 'r'}"), 28769);
    no_half_written(&cluster);
}
