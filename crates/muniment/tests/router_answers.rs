//! What a router answers is what a server answers: the same commands, run on a server and through a router.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{DocBuf, Value, doc};
use muniment_wire::Connection;
use testkit::ask::{all, fails, number, run};
use testkit::{Cluster, Server, ServerOptions, divided_and_alone, shell};

/// Runs the commands, each with its database; the code that each fails with, or 0.
fn codes(c: &mut Connection, commands: &[(&str, String)]) -> Vec<String> {
    let told = commands.iter().map(|(db, command)| {
        let code = c
            .command(db, &shell(command))
            .map_or_else(|e| e.code().0, |_| 0);
        format!("{db}: {command}: {code}")
    });
    told.collect()
}

/// Names and arguments are checked before the router looks for the databases, and a database that is not there yet is
/// made on the shard of the collection.
#[test]
fn a_collection_is_renamed_as_on_one_server() {
    let cluster = Cluster::start(3, 1, 1);
    let alone = Server::start(ServerOptions::new());
    let mut commands = Vec::new();
    let mut add = |from: &str, rest: &str| {
        commands.push(("admin", format!("{{renameCollection: {from}, {rest}}}")));
    };
    let long = "d".repeat(64);
    for name in [
        "",
        "d",
        "d.",
        ".c",
        "d..c",
        "d.$c",
        "d e.c",
        "d/e.c",
        &format!("{long}.c"),
    ] {
        add(&format!("'{name}'"), "to: 'd.new'");
        add("'d.c'", &format!("to: '{name}'"));
    }
    for other in ["1", "true", "{}", "null"] {
        add(other, "to: 'd.new'");
        add("'d.c'", &format!("to: {other}"));
    }
    add("'d.c'", "to: 'd.new', dropTarget: 1");
    add("'d.none'", "to: 'd.new'");
    add("'d.c'", "to: 'd.c'");
    add("'d.c'", "to: 'local.oplog.rs'");
    add("'d.c'", "to: 'D.c'");
    add("'d.c'", "to: 'away.c'");
    add("'away.c'", "to: 'further.c', dropTarget: true");
    add("'further.c'", "to: 'd.c'");
    let all = [&mut cluster.connect(), &mut alone.connect()].map(|c| {
        for db in ["d", "e", "f", "g"] {
            run(c, db, "{insert: 'c', documents: [{_id: 1}]}");
        }
        codes(c, &commands)
    });
    let [routed, alone] = all;
    assert_eq!(routed, alone);
    assert!(
        routed
            .iter()
            .rev()
            .take(3)
            .all(|told| told.ends_with(": 0")),
        "{routed:#?}"
    );
}

/// Databases whose names differ in case alone would be on different shards, which know nothing of each other.
#[test]
fn a_database_differs_from_others_by_more_than_case() {
    let cluster = Cluster::start(3, 1, 1);
    let mut c = cluster.connect();
    for db in ["a", "b", "c", "d"] {
        run(&mut c, db, "{insert: 'c', documents: [{_id: 1}]}");
        let other = db.to_uppercase();
        fails(&mut c, &other, "{create: 'c'}", 13297);
        let insert = "{insert: 'c', documents: [{_id: 1}]}";
        let code = c.command(&other, &shell(insert)).map_or_else(
            |e| e.code().0 as i64,
            |reply| {
                let errors = reply.as_doc().get_array("writeErrors").unwrap();
                let first = errors.values().next().unwrap().as_doc().unwrap();
                first.get("code").unwrap().as_i64_exact().unwrap()
            },
        );
        assert_eq!(code, 13297);
    }
}

/// A document of a shard's reply nests deeper than what a server takes from clients.
#[test]
fn a_router_passes_deep_results_on() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    let path = vec!["a"; 199].join(".");
    run(
        &mut c,
        "d",
        "{createIndexes: 'c', indexes: [{key: {p: '2dsphere'}, name: 'p'}]}",
    );
    run(
        &mut c,
        "d",
        "{insert: 'c', documents: [{_id: 1, p: {type: 'Point', coordinates: [0, 0]}}]}",
    );
    let near = format!(
        "{{aggregate: 'c', cursor: {{}}, pipeline: [{{$geoNear: {{near: {{type: 'Point', coordinates: [0, 0]}}, distanceField: '{path}'}}}}]}}"
    );
    assert_eq!(all(&mut c, "d", &near).len(), 1);
}

/// Figures of a database have the types of those of one server, and the average does not depend on the scale.
#[test]
fn figures_of_a_database_are_those_of_one_server() {
    let cluster = Cluster::start(2, 1, 1);
    let alone = Server::start(ServerOptions::new());
    for (db, scale) in [("d", 1), ("d", 1000), ("none", 1)] {
        let [routed, alone] = [&mut cluster.connect(), &mut alone.connect()].map(|c| {
            let texts = "{insert: 'c', documents: [{_id: 1, t: 'texts'}, {_id: 2, t: 'texts'}]}";
            let _ = c.command("d", &shell(texts)).unwrap();
            let stats = run(c, db, &format!("{{dbStats: 1, scale: {scale}}}"));
            ["objects", "indexes", "collections", "views", "avgObjSize"]
                .map(|name| format!("{name}: {:?}", stats.as_doc().get(name)))
        });
        assert_eq!(routed, alone, "{db} {scale}");
    }
    let stats = run(&mut cluster.connect(), "admin", "{connPoolStats: 1}");
    assert!(number(&stats, "totalCreated") >= number(&stats, "totalAvailable"));
    assert!(number(&stats, "totalAvailable") > 0);
    // One that waits for a shard is in use.
    let mut c = cluster.connect();
    run(&mut c, "d", "{create: 'capped', capped: true, size: 4096}");
    run(&mut c, "d", "{insert: 'capped', documents: [{_id: 1}]}");
    let first = run(
        &mut c,
        "d",
        "{find: 'capped', tailable: true, awaitData: true}",
    );
    let id = first.as_doc().get_doc("cursor").and_then(|d| d.get("id"));
    let id = id.and_then(|v| v.as_i64_exact()).unwrap();
    let next = format!("{{getMore: NumberLong('{id}'), collection: 'capped', maxTimeMS: 3000}}");
    let waits = std::thread::spawn(move || run(&mut c, "d", &next));
    let mut other = cluster.connect();
    while number(
        &run(&mut other, "admin", "{connPoolStats: 1}"),
        "totalInUse",
    ) == 0
    {
        assert!(!waits.is_finished());
    }
    waits.join().unwrap();
}

/// A pipeline about the server that runs it is the router's only if it is run. A view may not have it.
#[test]
fn definitions_of_views_are_judged_by_their_shard() {
    let cluster = Cluster::start(2, 1, 1);
    let alone = Server::start(ServerOptions::new());
    let commands = ["$currentOp", "$listLocalSessions"].map(|stage| {
        let create = format!("{{create: 'w', viewOn: 'c', pipeline: [{{{stage}: {{}}}}]}}");
        let modify = format!("{{collMod: 'v', viewOn: 'c', pipeline: [{{{stage}: {{}}}}]}}");
        [("d", create), ("d", modify)]
    });
    let commands = commands.concat();
    let [routed, alone] = [&mut cluster.connect(), &mut alone.connect()].map(|c| {
        run(
            c,
            "d",
            "{createIndexes: 'c', indexes: [{key: {o: 1}, name: 'o', sparse: true}]}",
        );
        run(c, "d", "{create: 'v', viewOn: 'c', pipeline: []}");
        codes(c, &commands)
    });
    assert_eq!(routed, alone);
}

/// Reads that a router does itself on a divided collection give what one server gives.
#[test]
fn a_divided_collection_answers_as_one_server() {
    let (_servers, mut c, mut alone) = divided_and_alone();
    let fused = "{$rankFusion: {input: {pipelines: {a: [{$sort: {x: 1}}], b: [{$match: {_id: {$lt: 9}}}, {$sort: {y: -1}}]}}}}";
    let near = "{$rankFusion: {input: {pipelines: {a: [{$geoNear: {near: {type: 'Point', coordinates: [0, 0]}, key: 'p'}}]}}}}";
    let commands = [
        "{distinct: 'v', key: 'x'}".to_string(),
        "{distinct: 'v', key: 'a', query: {x: {$gt: 3}}}".to_string(),
        "{distinct: 'w', key: 'a.b'}".to_string(),
        "{distinct: 'c', key: 'x', collation: {}}".to_string(),
        "{count: 'c', query: {x: 3}, collation: {}}".to_string(),
        "{find: 'c', filter: {x: 3}, sort: {_id: 1}, collation: {}}".to_string(),
        "{aggregate: 'c', pipeline: [{$sort: {_id: 1}}], cursor: {}, collation: {}}".to_string(),
        "{findAndModify: 'c', query: {_id: 3}, update: {$set: {z: 1}}, collation: {}}".to_string(),
        "{findAndModify: 'c', query: {t: 'a', y: 10}, sort: {$natural: -1}, update: {$set: {z: 2}}}".to_string(),
        // The hinted index has one document.
        "{update: 'c', updates: [{q: {}, u: {$set: {w: 1}}, hint: 'o'}]}".to_string(),
        "{findAndModify: 'c', query: {}, hint: 'o', update: {$set: {w: 2}}, new: true}".to_string(),
        "{find: 'c', filter: {w: 2}}".to_string(),
        "{aggregate: 'c', pipeline: [{$sort: {_id: 1}}, {$limit: 2}, {$lookup: {from: '$$NOW', localField: 'x', foreignField: 'x', as: 'n'}}], cursor: {}}".to_string(),
        "{aggregate: 'c', pipeline: 5, cursor: {}}".to_string(),
        "{aggregate: 'c', pipeline: []}".to_string(),
        format!("{{aggregate: 'c', pipeline: [{fused}], cursor: {{}}}}"),
        format!("{{aggregate: 'c', pipeline: [{fused}, {{$limit: 3}}, {{$project: {{s: {{$meta: 'score'}}}}}}], cursor: {{}}}}"),
        format!("{{aggregate: 'c', pipeline: [{near}], cursor: {{batchSize: 20}}}}"),
    ];
    let told = [&mut c, &mut alone].map(|c| {
        run(c, "d", "{createIndexes: 'c', indexes: [{key: {p: '2dsphere'}, name: 'p'}]}");
        for i in 0..20 {
            let (x, y) = (i % 5, (i * 7) % 11);
            let only = if i == 9 { "o: 1, " } else { "" };
            let doc = format!("{{_id: {i}, {only}x: {x}, y: {y}, t: '{}', a: [{{b: {x}}}, {{b: [{y}]}}], p: {{type: 'Point', coordinates: [{i}, {y}]}}}}", ["a", "A"][i % 2]);
            run(c, "d", &format!("{{insert: 'c', documents: [{doc}]}}"));
        }
        run(c, "d", "{create: 'v', viewOn: 'c', pipeline: [{$match: {_id: {$gte: 5}}}]}");
        run(c, "d", "{create: 'w', viewOn: 'v', pipeline: [{$set: {x: 1}}]}");
        commands.each_ref().map(|command| {
            let reply = match c.command("d", &shell(command)) {
                Ok(reply) => reply,
                Err(e) => return format!("{command}: {}", e.code().0),
            };
            let reply = reply.as_doc();
            let name = ["values", "n", "value"].into_iter().find_map(|name| reply.get(name));
            let batch = reply.get_doc("cursor").and_then(|cursor| cursor.get("firstBatch"));
            format!("{command}: {:?}", name.or(batch))
        })
    });
    for command in [
        "{convertToCapped: 'c', size: 10000}",
        "{cloneCollectionAsCapped: 'c', toCollection: 'k', size: 10000}",
    ] {
        fails(&mut c, "d", command, 20);
    }
    let [routed, alone] = told;
    for (routed, alone) in routed.iter().zip(&alone) {
        assert_eq!(routed, alone);
    }
}

/// A statement whose filter is wrong fails by itself, also where the router looks for its document first.
#[test]
fn a_wrong_statement_fails_alone() {
    let (_servers, mut c, mut alone) = divided_and_alone();
    let wrong = "{x: {$nope: 1}}";
    let set = "u: {$set: {z: 1}}";
    let commands = [
        format!(
            "{{update: 'c', ordered: false, updates: [{{q: {wrong}, {set}}}, {{q: {{x: 1}}, {set}}}, {{q: {{$expr: '$$nope'}}, {set}}}]}}"
        ),
        format!(
            "{{update: 'c', updates: [{{q: {{x: 1}}, {set}}}, {{q: {wrong}, {set}, upsert: true}}, {{q: {{x: 2}}, {set}}}]}}"
        ),
        format!(
            "{{delete: 'c', ordered: false, deletes: [{{q: {wrong}, limit: 1}}, {{q: {{x: 1}}, limit: 1}}, {{q: {wrong}, limit: 0}}]}}"
        ),
        // What comes out while documents are looked at, or made.
        format!(
            "{{update: 'c', ordered: false, updates: [{{q: {{_id: 8}}, {set}}}, {{q: {{$expr: {{$gt: [{{$size: '$none'}}, 3]}}}}, {set}}}, {{q: {{_id: 9}}, {set}}}]}}"
        ),
        "{update: 'c', ordered: false, updates: [{q: {n: 5}, u: {$set: {'n.b': 1}}, upsert: true}, {q: {n: 5}, u: {$set: {'n.b': 1}}, upsert: true, multi: true}, {q: {_id: 7}, u: {$set: {z: 2}}}]}".into(),
    ];
    let told = [&mut c, &mut alone].map(|c| {
        let docs: String = (0..20)
            .map(|i| format!("{{_id: {i}, x: {}}},", i % 5))
            .collect();
        run(c, "d", &format!("{{insert: 'c', documents: [{docs}]}}"));
        commands.each_ref().map(|command| {
            let reply = c.command_raw("d", &shell(command)).unwrap();
            let reply = reply.as_doc();
            let errors = reply.get_array("writeErrors").unwrap();
            let errors = errors.values().map(|v| {
                let e = v.as_doc().unwrap();
                format!(
                    "{}: {}",
                    number(&e.to_buf(), "index"),
                    number(&e.to_buf(), "code")
                )
            });
            let errors: Vec<String> = errors.collect();
            (number(&reply.to_buf(), "n"), errors)
        })
    });
    assert_eq!(told[0], told[1]);
}

/// A statement that is wrong in its form ends the command before anything is done.
#[test]
fn statements_are_read_before_any_is_done() {
    let (_servers, mut c, mut alone) = divided_and_alone();
    let commands = [
        "{delete: 'c', deletes: [{limit: 1}]}",
        "{delete: 'c', deletes: [{q: {_id: 1}, limit: 1}, {q: {_id: 2}, limit: 2}]}",
        "{update: 'c', updates: [{u: {$set: {z: 1}}}]}",
        "{update: 'c', updates: [{q: {_id: 5}, u: {$set: {z: 1}}}, {q: {_id: 6}, u: {$set: {z: 1}}, foo: 1}]}",
        "{update: 'c', updates: [{q: {_id: 5}, u: {$set: {z: 1}}}, {q: {_id: 6}, u: [{$match: {}}]}]}",
        "{bulkWrite: 1, ops: [{insert: 0, document: {_id: 1}}], nsInfo: [{ns: 'coll'}]}",
        "{bulkWrite: 1, ops: [{insert: 0, document: {_id: 1}}], nsInfo: [{ns: 'a b.c'}]}",
    ];
    let commands: Vec<_> = commands
        .iter()
        .map(|text| match text.contains("bulkWrite") {
            true => ("admin", (*text).to_owned()),
            false => ("d", (*text).to_owned()),
        })
        .collect();
    let [routed, alone] = [&mut c, &mut alone].map(|c| {
        run(
            c,
            "d",
            "{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 5}, {_id: 6}]}",
        );
        let codes = codes(c, &commands);
        assert!(codes.iter().all(|told| !told.ends_with(": 0")), "{codes:?}");
        let docs = all(c, "d", "{find: 'c', sort: {_id: 1}}");
        (
            codes,
            docs.iter()
                .map(|d| d.as_doc().to_display())
                .collect::<Vec<_>>(),
        )
    });
    assert_eq!(routed, alone);
    assert_eq!(routed.1.len(), 4);
    let known = all(&mut c, "config", "{find: 'databases'}");
    let names: Vec<_> = known
        .iter()
        .filter_map(|d| d.as_doc().get_str("_id"))
        .collect();
    assert_eq!(names, ["d"]);
}

/// In a transaction the error is the statement's, and not that of the shards that came after it.
#[test]
fn a_transaction_fails_by_its_own_error() {
    let cluster = Cluster::start(3, 1, 1);
    let mut c = cluster.connect();
    let parts = [
        "{shardCollection: 'd.c', key: {_id: 'hashed'}}",
        "{shardCollection: 'd.k', key: {_id: 'hashed'}}",
    ];
    for command in parts {
        run(&mut c, "admin", command);
    }
    let docs: String = (0..30)
        .map(|i| format!("{{_id: {i}, n: 'text'}},"))
        .collect();
    run(
        &mut c,
        "d",
        &format!("{{insert: 'c', documents: [{docs}]}}"),
    );
    let id = "lsid: {id: UUID('00000000-0000-4000-8000-000000000001')}";
    let terms = |number: i32| {
        format!("{id}, txnNumber: NumberLong({number}), startTransaction: true, autocommit: false")
    };
    let update = "update: 'c', updates: [{q: {}, u: {$inc: {n: 1}}, multi: true}]";
    let insert = format!("insert: 'c', ordered: false, documents: [{docs}]");
    for (i, (statement, code)) in [(update, 14), (&*insert, 11000)].into_iter().enumerate() {
        let command = format!("{{{statement}, {}}}", terms(i as i32 + 1));
        let reply = c.command_raw("d", &shell(&command)).unwrap();
        let errors = reply
            .as_doc()
            .get_array("writeErrors")
            .unwrap_or_else(|| panic!("{reply:?}"));
        let codes: Vec<i64> = errors
            .values()
            .map(|v| number(&v.as_doc().unwrap().to_buf(), "code"))
            .collect();
        assert_eq!(codes, [code], "{reply:?}");
    }
}

/// A wrong getMore is not the end of its cursor.
#[test]
fn a_cursor_outlives_a_wrong_request() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    run(
        &mut c,
        "d",
        "{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}]}",
    );
    let open = run(&mut c, "d", "{find: 'c', batchSize: 1}");
    let id = number(&open.as_doc().get_doc("cursor").unwrap().to_buf(), "id");
    fails(
        &mut c,
        "d",
        &format!("{{getMore: NumberLong('{id}'), collection: 'c', maxTimeMS: 100}}"),
        2,
    );
    fails(
        &mut c,
        "d",
        &format!("{{getMore: NumberLong('{id}'), collection: 'other'}}"),
        13,
    );
    let rest = run(
        &mut c,
        "d",
        &format!("{{getMore: NumberLong('{id}'), collection: 'c'}}"),
    );
    let rest = rest.as_doc().get_doc("cursor").unwrap();
    assert_eq!(rest.get_array("nextBatch").unwrap().values().count(), 2);
}

/// A retryable insert that is as long as a message may be has room for what the router adds.
#[test]
fn the_longest_retryable_insert() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    run(&mut c, "admin", "{shardCollection: 'd.c', key: {k: 1}}");
    let pad = "x".repeat(1963);
    let docs: Vec<DocBuf> = (0..24_000)
        .map(|i| doc! { "_id": i, "k": i, "pad": &*pad })
        .collect();
    let bytes: usize = docs.iter().map(|d| d.as_doc().byte_len()).sum();
    assert!((47_800_000..47_990_000).contains(&bytes), "{bytes}");
    let insert = "{insert: 'c', lsid: {id: UUID('00000000-0000-4000-8000-000000000001')}, txnNumber: NumberLong(1)}";
    for n in [24_000, 24_000] {
        let reply = c
            .command_with("d", &shell(insert), &[("documents", docs.as_slice())])
            .unwrap();
        assert_eq!(number(&reply, "n"), n);
    }
    assert_eq!(number(&run(&mut c, "d", "{count: 'c'}"), "n"), 24_000);
}

/// An update that would bring its document to another shard, and is not possible, fails as on one server: by itself.
#[test]
fn an_update_of_the_key_fails_alone() {
    let cluster = Cluster::start(3, 1, 1);
    let server = Server::start(ServerOptions::new());
    let (mut c, mut alone) = (cluster.connect(), server.connect());
    let parts = [
        "{shardCollection: 'd.c', key: {k: 1}}",
        "{split: 'd.c', middle: {k: 3}}",
        "{split: 'd.c', middle: {k: 70}}",
    ];
    for command in parts {
        run(&mut c, "admin", command);
    }
    let shards = all(&mut c, "config", "{find: 'shards', sort: {_id: 1}}");
    for (shard, k) in shards.iter().zip([0, 5, 75]) {
        let to = shard.as_doc().get_str("_id").unwrap();
        let to_it = format!("{{moveChunk: 'd.c', find: {{k: {k}}}, to: '{to}'}}");
        run(&mut c, "admin", &to_it);
    }
    let updates = [
        // There is nothing below a number.
        ("{_id: 1}", "{$set: {'k.x': 5}}"),
        // Another document has this key and this `u`.
        ("{_id: 2}", "{$set: {k: 3, u: 3}}"),
        ("{_id: 2}", "{$set: {k: 7, u: 3}}"),
        // A number cannot be added to a text.
        ("{_id: 4}", "{$set: {k: 77}, $inc: {t: 1}}"),
        // The validator refuses it.
        ("{_id: 5}", "{$set: {k: 78, v: 'no'}}"),
        ("{_id: 6}", "{$set: {k: 79}}"),
    ];
    let told = [&mut c, &mut alone].map(|c| {
        run(
            c,
            "d",
            "{createIndexes: 'c', indexes: [{key: {k: 1, u: 1}, name: 'ku', unique: true}]}",
        );
        run(c, "d", "{collMod: 'c', validator: {v: {$ne: 'no'}}}");
        let docs: String = (0..20)
            .map(|i| format!("{{_id: {i}, k: {i}, u: {i}, t: 'x'}},"))
            .collect();
        run(c, "d", &format!("{{insert: 'c', documents: [{docs}]}}"));
        let list: Vec<String> = updates
            .iter()
            .map(|(q, u)| format!("{{q: {q}, u: {u}}}"))
            .collect();
        let update = format!(
            "{{update: 'c', ordered: false, updates: [{}]}}",
            list.join(",")
        );
        let reply = c.command("d", &shell(&update)).unwrap();
        let errors = reply.as_doc().get_array("writeErrors").unwrap();
        let mut told: Vec<String> = errors
            .values()
            .map(|e| {
                let e = e.as_doc().unwrap().to_buf();
                format!("{}: {}", number(&e, "index"), number(&e, "code"))
            })
            .collect();
        told.push(number(&reply, "n").to_string());
        let ops: Vec<String> = updates
            .iter()
            .map(|(q, u)| format!("{{update: 0, filter: {q}, updateMods: {u}}}"))
            .collect();
        let bulk = format!(
            "{{bulkWrite: 1, ordered: false, nsInfo: [{{ns: 'd.c'}}], ops: [{}]}}",
            ops.join(",")
        );
        for one in all(c, "admin", &bulk) {
            let code = one.as_doc().get("code").and_then(|v| v.as_i64_exact());
            told.push(format!("{}: {code:?}", number(&one, "idx")));
        }
        let rows = all(c, "d", "{find: 'c', sort: {_id: 1}}");
        told.extend(rows.iter().map(|d| d.as_doc().to_display()));
        told
    });
    assert_eq!(told[0], told[1]);
    assert!(told[0].iter().any(|t| t == "0: 28"), "{told:?}");
    assert!(told[0].iter().any(|t| t == "1: 11000"), "{told:?}");
    assert!(told[0].iter().any(|t| t == "4: 121"), "{told:?}");
}

/// A router knows collections by their names, as MongoDB's does: another router, or a shard, may give the name to another
/// collection.
#[test]
fn a_router_takes_no_uuid_for_a_name() {
    let (_servers, mut c, _) = divided_and_alone();
    run(&mut c, "d", "{insert: 'whole', documents: [{_id: 1}]}");
    for name in ["c", "whole"] {
        let list = format!("{{listCollections: 1, filter: {{name: '{name}'}}}}");
        let listed = all(&mut c, "d", &list);
        let info = listed[0].as_doc().get_doc("info").unwrap().to_buf();
        let uuid = info.as_doc().get("uuid").unwrap();
        for command in ["find", "count", "listIndexes"] {
            let mut by_uuid = DocBuf::new();
            by_uuid.append(command, uuid);
            let e = c.command("d", &by_uuid).unwrap_err();
            assert_eq!(e.code().0, 73, "{command}: {e}");
            assert_eq!(e.message(), "collection name has invalid type binData");
        }
        let by_uuid = doc! { "distinct": uuid, "key": "_id" };
        assert_eq!(c.command("d", &by_uuid).unwrap_err().code().0, 73);
    }
}

/// What each shard replies stands under the shard's connection string.
#[test]
fn replies_of_shards_are_named_by_their_members() {
    let cluster = Cluster::start(2, 2, 1);
    let mut c = cluster.connect();
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {_id: 'hashed'}}",
    );
    run(
        &mut c,
        "d",
        "{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}]}",
    );
    let shards = all(&mut c, "config", "{find: 'shards', sort: {_id: 1}}");
    let hosts: Vec<&str> = shards
        .iter()
        .map(|d| d.as_doc().get_str("host").unwrap())
        .collect();
    assert!(
        hosts
            .iter()
            .all(|host| host.contains('/') && host.contains(',')),
        "{hosts:?}"
    );
    for command in [
        "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a'}]}",
        "{collMod: 'c', index: {name: 'a', hidden: true}}",
        "{validate: 'c'}",
        "{dropIndexes: 'c', index: 'a'}",
        "{dbStats: 1}",
    ] {
        let reply = run(&mut c, "d", command);
        let raw = reply.as_doc().get_doc("raw").unwrap();
        let mut names: Vec<&str> = raw.iter().map(|e| e.name()).collect();
        names.sort_unstable();
        assert_eq!(names, hosts, "{command}");
    }
}

/// A size that is more than what was asked for says so, also if no shard alone has so much.
#[test]
fn a_size_over_shards_says_whether_it_has_come_to_its_limit() {
    let (_servers, mut c, mut alone) = divided_and_alone();
    let docs: Vec<String> = (0..100)
        .map(|i| format!("{{_id: {i}, t: 'texts'}}"))
        .collect();
    let insert = format!("{{insert: 'c', documents: [{}]}}", docs.join(", "));
    for c in [&mut c, &mut alone] {
        run(c, "d", &insert);
        run(
            c,
            "d",
            "{createIndexes: 'c', indexes: [{key: {t: 1}, name: 't'}]}",
        );
    }
    let within = "keyPattern: {_id: 1}, min: {_id: 0}, max: {_id: 90}";
    let of_texts = "keyPattern: {t: 1}, min: {t: 'a'}, max: {t: 'z'}";
    for (terms, reached) in [
        ("", false),
        (within, false),
        (of_texts, false),
        ("maxObjects: 1000, maxSize: 1000000", false),
        ("maxObjects: 99", true),
        ("maxObjects: 100", false),
        ("maxSize: 1", true),
        ("maxSize: 2699", true),
        (&format!("{within}, maxObjects: 89"), true),
        (&format!("{within}, maxObjects: 90"), false),
        (&format!("{of_texts}, maxSize: 100"), true),
        ("estimate: true", false),
    ] {
        let command = format!("{{dataSize: 'd.c', {terms}}}");
        let [routed, alone] = [&mut c, &mut alone].map(|c| run(c, "d", &command));
        for reply in [&routed, &alone] {
            let told = reply.as_doc().get("maxReached").is_some_and(|v| v.truthy());
            assert_eq!(told, reached, "{command}: {reply:?}");
        }
        assert_eq!(
            routed.as_doc().get("estimate").map(|v| v.truthy()),
            alone.as_doc().get("estimate").map(|v| v.truthy()),
            "{command}"
        );
        if !reached {
            for name in ["size", "numObjects"] {
                assert_eq!(number(&routed, name), number(&alone, name), "{command}");
            }
        }
    }
}

/// All shards have the time of the cluster that the router has, for each document.
#[test]
fn expressions_know_the_time_of_the_cluster() {
    let (_servers, mut c, mut alone) = divided_and_alone();
    let docs: Vec<String> = (0..30).map(|i| format!("{{_id: {i}}}")).collect();
    run(
        &mut c,
        "d",
        &format!("{{insert: 'c', documents: [{}]}}", docs.join(", ")),
    );
    for pipeline in [
        "[{$project: {at: '$$CLUSTER_TIME'}}]",
        "[{$lookup: {from: 'c', pipeline: [{$limit: 1}, {$project: {at: '$$CLUSTER_TIME'}}], as: 'l'}}, {$project: {at: {$first: '$l.at'}}}]",
    ] {
        let read = format!("{{aggregate: 'c', pipeline: {pipeline}, cursor: {{batchSize: 100}}}}");
        let reply = run(&mut c, "d", &read);
        let batch = reply
            .as_doc()
            .get_doc("cursor")
            .unwrap()
            .get_array("firstBatch")
            .unwrap();
        let times = batch.values().map(|v| v.as_doc().unwrap().get("at"));
        let times: Vec<Option<Value<'_>>> = times.collect();
        assert_eq!(times.len(), 30);
        assert!(
            matches!(times[0], Some(Value::Timestamp { t, .. }) if t > 0),
            "{reply:?}"
        );
        let text = |at: &Option<Value<'_>>| format!("{at:?}");
        assert!(
            times.iter().all(|at| text(at) == text(&times[0])),
            "{reply:?}"
        );
    }
    // A server that is part of nothing has no such time.
    run(&mut alone, "d", "{insert: 'c', documents: [{_id: 1}]}");
    let read = "{aggregate: 'c', pipeline: [{$project: {at: '$$CLUSTER_TIME'}}], cursor: {}}";
    fails(&mut alone, "d", read, 10071200);
}
