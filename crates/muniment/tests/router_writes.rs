//! Writes of one document of a divided collection are what they are on one server: the same statements, run on a
//! server and through a router, have the same replies and leave the same documents.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Value};
use muniment_wire::{Connection, client};
use testkit::ask::{all, number, run};
use testkit::{Cluster, Server, ServerOptions, shell};

/// A cluster whose `d.c` is divided by `k`, below 30, below 60 and from there on, and a server.
fn divided_and_alone() -> ((Cluster, Server), [Connection; 2]) {
    let cluster = Cluster::start(3, 1, 1);
    let server = Server::start(ServerOptions::new());
    let (mut c, alone) = (cluster.connect(), server.connect());
    let parts = [
        "{shardCollection: 'd.c', key: {k: 1}}",
        "{split: 'd.c', middle: {k: 30}}",
        "{split: 'd.c', middle: {k: 60}}",
    ];
    for command in parts {
        run(&mut c, "admin", command);
    }
    let shards = all(&mut c, "config", "{find: 'shards', sort: {_id: 1}}");
    for (shard, k) in shards.iter().zip([0, 30, 60]) {
        let to = shard.as_doc().get_str("_id").unwrap();
        let to_it = format!("{{moveChunk: 'd.c', find: {{k: {k}}}, to: '{to}'}}");
        run(&mut c, "admin", &to_it);
    }
    ((cluster, server), [c, alone])
}

/// A part of a reply without what differs from server to server.
fn seen(d: Doc<'_>) -> DocBuf {
    let own = ["$clusterTime", "operationTime", "raw"];
    let mut out = DocBuf::new();
    for e in d.iter().filter(|e| !own.contains(&e.name())) {
        match e.value() {
            Value::Document(d) => out.append(e.name(), seen(d)),
            Value::Array(list) => {
                let list = list.values().map(|v| match v.as_doc() {
                    Some(d) => seen(d),
                    None => muniment_value::doc! { "": v },
                });
                out.append(e.name(), list.collect::<ArrayBuf>())
            }
            _ => out.append_elem(e),
        };
    }
    out
}

/// What the commands answer, each followed by what `d.c` holds then.
fn answers(c: &mut Connection, commands: &[String]) -> Vec<String> {
    let mut told = Vec::new();
    for command in commands {
        let db = match command.starts_with("{bulkWrite") {
            true => "admin",
            false => "d",
        };
        let reply = c.command_raw(db, &shell(command)).unwrap();
        let rows = all(c, "d", "{find: 'c', sort: {_id: 1, k: 1}}");
        let rows: Vec<String> = rows.iter().map(|d| d.as_doc().to_display()).collect();
        let reply = seen(reply.as_doc());
        told.push(format!(
            "{command}\n{}\n{}",
            reply.as_doc().to_display(),
            rows.join("\n")
        ));
    }
    told
}

/// Runs the commands on both, after those that prepare them.
fn same(on: &mut [Connection; 2], prepare: &[&str], commands: &[String]) {
    let told = on.each_mut().map(|c| {
        for command in prepare {
            run(c, "d", command);
        }
        answers(c, commands)
    });
    let both = told[0].iter().zip(&told[1]);
    let differ = both.filter(|(routed, alone)| routed != alone);
    let differ: Vec<String> = differ
        .map(|(routed, alone)| format!("routed:\n{routed}\nalone:\n{alone}"))
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n\n"));
}

/// The same change as findAndModify, as a statement of update, and as one of bulkWrite.
fn each_way(filter: &str, change: &str, more: &str) -> Vec<String> {
    vec![
        format!("{{findAndModify: 'c', query: {filter}, update: {change}{more}}}"),
        format!("{{update: 'c', updates: [{{q: {filter}, u: {change}{more}}}]}}"),
        format!(
            "{{bulkWrite: 1, nsInfo: [{{ns: 'd.c'}}], ops: [{{update: 0, filter: {filter}, updateMods: {change}{more}}}]}}"
        ),
    ]
}

/// The document that is written to is the first of those of all shards: the nearest.
#[test]
fn the_nearest_document_of_all_shards_is_written_to() {
    let (_servers, mut on) = divided_and_alone();
    let near = "{p: {$near: {$geometry: {type: 'Point', coordinates: [0, 0]}}}}";
    let sphere = "{n: {$gt: 0}, p: {$nearSphere: [0, 0]}}";
    let mut commands = each_way(near, "{$inc: {z: 1}}", "");
    commands.extend(each_way(sphere, "{$inc: {z: 1}}", ", upsert: true"));
    commands.extend([
        format!("{{delete: 'c', deletes: [{{q: {near}, limit: 1}}]}}"),
        format!("{{bulkWrite: 1, nsInfo: [{{ns: 'd.c'}}], ops: [{{delete: 0, filter: {near}}}]}}"),
        format!("{{findAndModify: 'c', query: {near}, remove: true}}"),
        format!("{{findAndModify: 'c', query: {near}, sort: {{n: -1}}, remove: true}}"),
    ]);
    // The farther away, the lower the shard.
    let docs = (0..12).map(|i| {
        let (k, n, x) = (i * 8, i + 1, 40 - i * 3);
        format!("{{_id: {i}, k: {k}, n: {n}, p: {{type: 'Point', coordinates: [{x}, 0]}}}},")
    });
    let insert = format!("{{insert: 'c', documents: [{}]}}", docs.collect::<String>());
    let prepare = [
        "{createIndexes: 'c', indexes: [{key: {p: '2dsphere'}, name: 'p'}]}",
        &insert,
    ];
    same(&mut on, &prepare, &commands);
}

/// The document that is written to is the first of those of all shards: that which a text search finds best.
#[test]
fn the_best_document_of_all_shards_is_written_to() {
    let (_servers, mut on) = divided_and_alone();
    let text = "{$text: {$search: 'word'}}";
    let best = ", sort: {s: {$meta: 'textScore'}}";
    let mut commands = each_way(text, "{$inc: {z: 1}}", best);
    commands.push(format!(
        "{{findAndModify: 'c', query: {text}{best}, update: {{$inc: {{z: 1}}}}, new: true, fields: {{n: 1, s: {{$meta: 'textScore'}}}}}}"
    ));
    let docs = (0..12).map(|i| {
        let words = "word ".repeat(i % 5 + 1) + &"other ".repeat(7 - i % 5);
        format!("{{_id: {i}, k: {}, t: '{words}'}},", i * 8)
    });
    let insert = format!("{{insert: 'c', documents: [{}]}}", docs.collect::<String>());
    let prepare = [
        "{createIndexes: 'c', indexes: [{key: {t: 'text'}, name: 't'}]}",
        &insert,
    ];
    same(&mut on, &prepare, &commands);
}

/// The document that was found is the one that is written to, also where a collation takes its `_id` for that of
/// another.
#[test]
fn a_collation_brings_in_no_other_document() {
    let (_servers, mut on) = divided_and_alone();
    let alike = ", sort: {n: -1}, collation: {locale: 'en', strength: 1}";
    let mut commands = each_way("{g: 'x'}", "{$inc: {z: 1}}", alike);
    commands.push(format!(
        "{{findAndModify: 'c', query: {{g: 'X'}}, remove: true{alike}}}"
    ));
    // The document moves to another shard.
    commands.extend(each_way("{g: 'x'}", "{$inc: {k: 40}}", alike));
    let docs = ["b", "a", "A", "B", "c", "C"].into_iter().enumerate();
    let docs = docs.map(|(i, id)| {
        format!(
            "{{_id: '{id}', k: 5, n: {i}, g: '{}'}}, {{_id: {{s: ['{id}']}}, k: 40, n: {i}, g: 'y'}},",
            ["x", "X"][i % 2]
        )
    });
    let insert = format!("{{insert: 'c', documents: [{}]}}", docs.collect::<String>());
    let of_documents = each_way("{g: 'Y'}", "{$inc: {z: 1}}", alike);
    commands.extend(of_documents);
    same(&mut on, &[&insert], &commands);
}

/// If the document that an upsert has found is deleted before it is written to, another document is inserted, and not
/// one with the `_id` of the deleted one.
#[test]
fn an_upsert_revives_no_document() {
    let ((cluster, _server), [mut c, _]) = divided_and_alone();
    for round in 0..150 {
        let k = round % 90;
        run(
            &mut c,
            "d",
            &format!("{{insert: 'c', documents: [{{_id: 'r{round}', k: {k}, g: 1}}]}}"),
        );
        let mut other = cluster.connect();
        let deletes = std::thread::spawn(move || {
            let delete =
                format!("{{delete: 'c', deletes: [{{q: {{_id: 'r{round}', k: {k}}}, limit: 1}}]}}");
            run(&mut other, "d", &delete)
        });
        std::thread::sleep(std::time::Duration::from_micros(round * 5));
        let upsert = format!(
            "{{update: 'c', updates: [{{q: {{g: 1}}, u: {{$inc: {{n: 1}}, $setOnInsert: {{k: {k}}}}}, upsert: true}}]}}"
        );
        run(&mut c, "d", &upsert);
        assert_eq!(number(&deletes.join().unwrap(), "n"), 1);
        let revived = format!("{{find: 'c', filter: {{_id: 'r{round}'}}}}");
        assert!(all(&mut c, "d", &revived).is_empty(), "in round {round}");
        run(&mut c, "d", "{delete: 'c', deletes: [{q: {}, limit: 0}]}");
    }
}

/// findAndModify that moves its document shows it as one that stays, and what is wrong is told if nothing matches.
#[test]
fn find_and_modify_that_changes_the_key() {
    let (_servers, mut on) = divided_and_alone();
    let moves = |more: &str| format!("{{findAndModify: 'c', {more}}}");
    let commands = [
        "query: {n: 1, items: 3}, update: {$inc: {k: 40}}, fields: {'items.$': 1}",
        "query: {n: 2, items: {$gt: 2}}, update: {$inc: {k: 40}}, fields: {'items.$': 1}, new: true",
        "query: {n: 3, 'subs.a': 2}, update: {$inc: {k: 40}, $set: {'subs.$.a': 9}}, fields: {'subs.$': 1}, new: true",
        "query: {$expr: {$eq: ['$n', '$$v']}}, update: {$inc: {k: 40}}, fields: {x: '$$v', k: 1}, let: {v: 4}",
        "query: {n: 5}, update: {$inc: {k: 40}}, fields: {x: '$$v'}",
        "query: {n: 5}, update: {$inc: {k: 40}}, fields: {'items.$': 1}",
        "query: {n: 5}, update: {$inc: {k: 40}}, fields: {a: 1, b: 0}",
        "query: {n: 5}, update: {$inc: {k: 40}}, fields: {same: {$eq: ['$g', 'X']}}, collation: {locale: 'en', strength: 1}",
        "query: {n: 55}, update: {$inc: {k: 40}}, fields: {a: 1, b: 0}",
        "query: {n: 55}, update: {$inc: {k: 40}}, fields: {'items.$': 1}",
        "query: {n: 55}, update: {$bad: {k: 40}}",
        "query: {n: 55}, update: {$bad: {k: 40}}, upsert: true",
        "query: {n: 55}, update: {$inc: {k: 40}, $set: {'q.$[x]': 1}}, arrayFilters: [{y: 1}]",
        "query: {n: 55}, update: {$set: {'n.b': 1, k: 1}}, upsert: true",
        "query: {n: 5}, update: {$inc: {k: 40, g: 1}}",
        "query: {n: 55}, update: {$inc: {k: 40}}, hint: 'none'",
        "query: {n: 55}, update: {$inc: {k: 40}}, hint: {none: 1}, upsert: true",
        "query: {n: 55}, update: [{$set: {k: '$$v'}}]",
        "query: {n: 55}, update: {$inc: {k: 40}}, sort: {n: 7}",
        "query: {n: 6}, update: {$inc: {k: 40}}, remove: true",
        "query: {n: 55}, update: {$inc: {k: 40}}, remove: true",
        "query: {n: 55}, remove: true, upsert: true",
        "query: {n: 55}, remove: true, new: true",
        "query: {n: 55}, upsert: true",
        "query: {n: 55}, update: {$inc: {k: 40}}",
    ];
    let commands = commands.map(moves);
    let docs: String = (0..12)
        .map(|i| {
            format!("{{_id: {i}, k: {}, n: {i}, g: 'x', items: [1, 2, 3, 4], subs: [{{a: 1}}, {{a: 2}}]}},", i * 5)
        })
        .collect();
    let insert = format!("{{insert: 'c', documents: [{docs}]}}");
    same(&mut on, &[&insert], &commands);
}

/// findAndModify that moves its document shows what the search has found out of it.
#[test]
fn a_moved_document_shows_its_score() {
    let (_servers, mut on) = divided_and_alone();
    let text = "query: {$text: {$search: 'word'}, t: 'word'}, update: {$inc: {k: 40}}";
    let near = "query: {p: {$near: {$geometry: {type: 'Point', coordinates: [0, 0]}}}}, update: {$inc: {k: 40}}";
    let commands = [
        format!("{text}, fields: {{s: {{$meta: 'textScore'}}}}"),
        format!("{text}, fields: {{k: 1, 's.t': {{$meta: 'textScore'}}}}, new: true"),
        format!("{near}, fields: {{d: {{$meta: 'geoNearDistance'}}, document: 1, metadata: 1}}"),
        format!(
            "{near}, fields: {{at: {{$meta: 'geoNearPoint'}}, d: {{$meta: 'geoNearDistance'}}}}, new: true"
        ),
        "query: {n: 1}, update: {$inc: {k: 40}}, fields: {s: {$meta: 'textScore'}}".into(),
        "query: {n: 1}, update: {$inc: {k: 40}}, fields: {s: {$meta: 'recordId'}, n: 1}".into(),
    ];
    let commands = commands.map(|more| format!("{{findAndModify: 'c', {more}}}"));
    let prepare = [
        "{createIndexes: 'c', indexes: [{key: {p: '2dsphere'}, name: 'p'}, {key: {t: 'text'}, name: 't'}]}",
        "{insert: 'c', documents: [{_id: 1, k: 1, n: 1, t: 'word'}, {_id: 2, k: 2, t: 'other', document: 3, p: {type: 'Point', coordinates: [3, 4]}}, {_id: 3, k: 3, p: {type: 'Point', coordinates: [50, 4]}}]}",
    ];
    same(&mut on, &prepare, &commands);
}

/// An error that comes out while a document is looked for is told as by the server that would have looked for it.
#[test]
fn errors_of_looking_for_a_document() {
    let (_servers, mut on) = divided_and_alone();
    let mut commands = Vec::new();
    for (filter, more) in [
        ("{$expr: {$gt: [{$size: '$none'}, 3]}}", ""),
        ("{x: {$nope: 1}}", ""),
        ("{$expr: '$$nope'}", ""),
        ("{$expr: {$divide: [1, 0]}}", ""),
        ("{$where: 'throw 5'}", ""),
        ("{$where: 'return nope()'}", ", upsert: true"),
        ("{$text: {$search: 'word'}}", ""),
        ("{p: {$near: [0, 0]}}", ""),
        ("{p: {$near: [0, 0]}, $or: [{p: {$near: [0, 0]}}]}", ""),
        ("{n: 1}", ", hint: 'none'"),
        ("{n: 1}", ", sort: {n: 7}"),
        ("{n: 1}", ", sort: {n: {$meta: 'textScore'}}"),
        ("{n: 1}", ", collation: {locale: 'none'}"),
    ] {
        commands.extend(each_way(filter, "{$inc: {z: 1}}", more));
        commands.extend(each_way(filter, "{$inc: {k: 40}}", more));
        if more.is_empty() {
            commands.push(format!(
                "{{delete: 'c', deletes: [{{q: {filter}, limit: 1}}]}}"
            ));
            commands.push(format!(
                "{{findAndModify: 'c', query: {filter}, remove: true}}"
            ));
        }
    }
    let docs: String = (0..12)
        .map(|i| format!("{{_id: {i}, k: {}, n: {i}}},", i * 8))
        .collect();
    let insert = format!("{{insert: 'c', documents: [{docs}]}}");
    same(&mut on, &[&insert], &commands);
}

/// A document that was invalid before may stay so at the level `moderate`, also where it moves to another shard.
#[test]
fn an_invalid_document_moves_at_the_level_moderate() {
    let (_servers, mut on) = divided_and_alone();
    let mut commands = each_way("{n: 1}", "{$inc: {k: 20}}", "");
    commands.extend(each_way("{n: 2}", "{$inc: {k: 20}}", ""));
    commands.extend(each_way("{n: 3}", "{$inc: {k: 20}, $set: {v: 'no'}}", ""));
    commands.push("{collMod: 'c', validationLevel: 'strict'}".into());
    commands.extend(each_way("{n: 1}", "{$inc: {k: -40}}", ""));
    let prepare = [
        "{insert: 'c', documents: [{_id: 1, k: 20, n: 1, v: 'no'}, {_id: 2, k: 20, n: 2, v: 'yes'}, {_id: 3, k: 20, n: 3, v: 'yes'}, {_id: 4, k: 80}]}",
        "{collMod: 'c', validator: {v: {$ne: 'no'}}, validationLevel: 'moderate'}",
    ];
    same(&mut on, &prepare, &commands);
}

/// What only a plan can answer may stand in the filter of an upsert, and of a change of the key. The constants of a
/// pipeline stand beside the variables of the command.
#[test]
fn filters_that_are_planned_and_constants() {
    let (_servers, mut on) = divided_and_alone();
    let mut commands = Vec::new();
    for filter in [
        "{$where: 'this.n == 4'}",
        "{$text: {$search: 'word'}}",
        "{p: {$near: {$geometry: {type: 'Point', coordinates: [9, 9]}, $maxDistance: 5}}}",
    ] {
        commands.extend(each_way(filter, "{$inc: {k: 40}}", ""));
        commands.extend(each_way(filter, "{$inc: {k: -80}}", ", upsert: true"));
    }
    let both = "{$where: 'this.n == 4', items: 2}";
    commands.extend(each_way(both, "{$inc: {k: 40, 'items.$': 10}}", ""));
    commands.push("{update: 'c', updates: [{q: {$text: {$search: 'word'}, items: 3}, u: {$inc: {k: 40, 'items.$': 10}}}]}".into());
    for (i, filter) in [
        "{$where: 'this.n == 99'}",
        "{$text: {$search: 'nothing'}}",
        "{p: {$near: {$geometry: {type: 'Point', coordinates: [50, 50]}, $maxDistance: 5}}}",
    ]
    .iter()
    .enumerate()
    {
        for (j, command) in each_way(filter, "CHANGE", ", upsert: true")
            .iter()
            .enumerate()
        {
            let id = 100 + i * 10 + j;
            let change = format!("{{$set: {{_id: {id}, k: {}}}}}", i * 30);
            commands.push(command.replace("CHANGE", &change));
        }
        commands.push(format!(
            "{{update: 'c', updates: [{{q: {filter}, u: {{$set: {{_id: {}, k: {}}}}}, upsert: true, multi: true}}]}}",
            200 + i,
            i * 30
        ));
    }
    for (i, upsert) in ["false", "true"].iter().enumerate() {
        let set = format!(
            "[{{$set: {{_id: {{$ifNull: ['$_id', {}]}}, k: {{$add: ['$$c', '$$v']}}, v: '$$v', both: '$$both'}}}}]",
            300 + i
        );
        let n = 5 + i * 90;
        let constants = "{c: 20, both: 'constant'}";
        let variables = format!("let: {{v: {}, both: 'variable'}}", 40 + i);
        commands.push(format!(
            "{{update: 'c', updates: [{{q: {{n: {n}}}, u: {set}, c: {constants}, upsert: {upsert}}}], {variables}}}"
        ));
        let set = set.replace("30", "31");
        commands.push(format!(
            "{{bulkWrite: 1, nsInfo: [{{ns: 'd.c'}}], ops: [{{update: 0, filter: {{n: {}}}, updateMods: {set}, constants: {constants}, upsert: {upsert}}}], {variables}}}", n + 1
        ));
    }
    // Constants are values, and stand in filters too.
    for (change, id) in [
        ("{$set: {w: '$$c'}}", 0),
        ("{$set: {k: {$add: ['$k', 40]}, w: '$$c'}}", 1),
    ] {
        commands.push(format!(
            "{{update: 'c', updates: [{{q: {{$expr: {{$eq: ['$_id', '$$id']}}}}, u: [{change}], c: {{c: '$n', id: {id}}}}}]}}"
        ));
        commands.push(format!(
            "{{bulkWrite: 1, nsInfo: [{{ns: 'd.c'}}], ops: [{{update: 0, filter: {{$expr: {{$eq: ['$_id', '$$id']}}}}, updateMods: [{change}], constants: {{c: '$n', id: {}}}}}]}}",
            id + 2
        ));
    }
    let docs: String = (0..8)
        .map(|i| {
            format!("{{_id: {i}, k: {}, n: {i}, t: '{}', items: [1, 2, 3], p: {{type: 'Point', coordinates: [{i}, {i}]}}}},", i * 5, if i == 4 { "word" } else { "other" })
        })
        .collect();
    let insert = format!(
        "{{insert: 'c', documents: [{docs} {{_id: 9, k: 1, p: {{type: 'Point', coordinates: [9, 9]}}}}]}}"
    );
    let prepare = [
        "{createIndexes: 'c', indexes: [{key: {p: '2dsphere'}, name: 'p'}, {key: {t: 'text'}, name: 't'}]}",
        &insert,
    ];
    same(&mut on, &prepare, &commands);
}

/// The router gives the `_id` of a document that an upsert inserts if that is a part of the key.
#[test]
fn the_id_of_an_upsert_beside_what_is_planned() {
    let (_servers, [mut c, _]) = divided_and_alone();
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.h', key: {_id: 'hashed'}}",
    );
    run(
        &mut c,
        "d",
        "{createIndexes: 'h', indexes: [{key: {p: '2dsphere'}, name: 'p'}, {key: {t: 'text'}, name: 't'}]}",
    );
    let filters = [
        "{$where: 'this.n == 99'}",
        "{$text: {$search: 'nothing'}}",
        "{p: {$near: {$geometry: {type: 'Point', coordinates: [50, 50]}}}}",
    ];
    for filter in filters {
        for command in each_way(filter, "{$set: {z: 1}}", ", upsert: true") {
            let (db, command) = match command.starts_with("{bulkWrite") {
                true => ("admin", command.replace("d.c", "d.h")),
                false => ("d", command.replace("'c'", "'h'")),
            };
            let before = all(&mut c, "d", "{find: 'h'}").len();
            run(&mut c, db, &command);
            let after = all(&mut c, "d", "{find: 'h'}").len();
            assert_eq!(after, before + 1, "{command}");
        }
    }
}

/// What a pipeline comes to may differ between router and shard. The document is moved then, or stays.
#[test]
fn a_key_that_comes_out_otherwise_on_the_shard() {
    let (_servers, [mut c, _]) = divided_and_alone();
    let docs: String = (0..40)
        .map(|i| format!("{{_id: {i}, k: {}, n: 1}},", i * 2))
        .collect();
    run(
        &mut c,
        "d",
        &format!("{{insert: 'c', documents: [{docs}]}}"),
    );
    let any = "[{$set: {k: {$multiply: [{$rand: {}}, 90]}, moved: true}}]";
    for i in 0..40 {
        let filter = format!("{{_id: {i}}}");
        let bulk = format!(
            "{{bulkWrite: 1, nsInfo: [{{ns: 'd.c'}}], ops: [{{update: 0, filter: {filter}, updateMods: {any}}}]}}"
        );
        let reply = run(&mut c, "admin", &bulk);
        assert_eq!(number(&reply, "nErrors"), 0, "{reply:?}");
        assert_eq!(number(&reply, "nModified"), 1, "{reply:?}");
    }
    assert_eq!(
        all(&mut c, "d", "{find: 'c', filter: {moved: true}}").len(),
        40
    );
    // Only an update of one document moves it.
    let all_of_them = "{bulkWrite: 1, nsInfo: [{ns: 'd.c'}], ops: [{update: 0, filter: {}, updateMods: {$inc: {k: 1000}}, multi: true}]}";
    let reply = run(&mut c, "admin", all_of_them);
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    let first = cursor
        .get_array("firstBatch")
        .unwrap()
        .values()
        .next()
        .unwrap();
    assert_eq!(
        number(&first.as_doc().unwrap().to_buf(), "code"),
        72,
        "{reply:?}"
    );
}

/// A moved document keeps its empty timestamps, which an insert would fill in.
#[test]
fn empty_timestamps_move() {
    let (_servers, mut on) = divided_and_alone();
    let mut commands = each_way("{n: 1}", "{$inc: {k: 20}, $set: {b: Timestamp(0, 0)}}", "");
    commands.push("{update: 'c', updates: [{q: {n: 1}, u: {k: 1, n: 1, b: Timestamp(0, 0)}}], bypassEmptyTsReplacement: true}".into());
    let prepare = [
        "{insert: 'c', documents: [{_id: 1, k: 20, n: 1, a: Timestamp(0, 0)}], bypassEmptyTsReplacement: true}",
    ];
    same(&mut on, &prepare, &commands);
}

/// In a transaction the error is the operation's, and not that of the shards that came after it. The transaction is
/// over then, also if the operation failed at the router.
#[test]
fn a_transaction_fails_by_the_error_of_an_operation() {
    let (_servers, [mut c, _]) = divided_and_alone();
    let docs: String = (0..30)
        .map(|i| format!("{{_id: {i}, k: {}, n: 'text'}},", i * 3))
        .collect();
    run(
        &mut c,
        "d",
        &format!("{{insert: 'c', documents: [{docs}]}}"),
    );
    let id = "lsid: {id: UUID('00000000-0000-4000-8000-000000000001')}";
    let ops = [
        (
            "update: 0, filter: {}, updateMods: {$inc: {n: 1}}, multi: true",
            14,
        ),
        (
            "update: 0, filter: {n: 'text'}, updateMods: {$inc: {n: 1}}",
            14,
        ),
        (
            "update: 0, filter: {x: {$nope: 1}}, updateMods: {$set: {k: 1}}",
            2,
        ),
        (
            "update: 0, filter: {n: 1}, updateMods: {$inc: {'n.x': 1}}, upsert: true",
            28,
        ),
        ("insert: 0, document: {_id: 99, k: [1]}", 61),
    ];
    let mut n = 0;
    for (op, code) in ops {
        for ordered in [false, true] {
            let (reply, terms) = loop {
                n += 1;
                let terms = format!("{id}, txnNumber: NumberLong({n}), autocommit: false");
                let bulk = format!(
                    "{{bulkWrite: 1, nsInfo: [{{ns: 'd.c'}}], ordered: {ordered}, ops: [{{insert: 0, document: {{_id: 1000, k: 3}}}}, {{{op}}}, {{insert: 0, document: {{_id: 1001, k: 4}}}}], startTransaction: true, {terms}}}"
                );
                let reply = c.command_raw("admin", &shell(&bulk)).unwrap();
                // The ranges that were moved are being deleted on their old shards.
                if client::code_of(reply.as_doc()) != Some(Code::LockTimeout) {
                    break (reply, terms);
                }
            };
            let cursor = reply
                .as_doc()
                .get_doc("cursor")
                .unwrap_or_else(|| panic!("{op}: {reply:?}"));
            let batch = cursor.get_array("firstBatch").unwrap();
            let codes: Vec<_> = batch
                .values()
                .map(|v| {
                    v.as_doc()
                        .unwrap()
                        .get("code")
                        .and_then(|v| v.as_i64_exact())
                })
                .collect();
            assert_eq!(codes, [None, Some(code)], "{op}: {reply:?}");
            let commit = format!("{{commitTransaction: 1, {terms}}}");
            let e = c.command("admin", &shell(&commit)).expect_err(op);
            assert_eq!(e.code().0, 251, "{op}: {e}");
        }
    }
    assert_eq!(all(&mut c, "d", "{find: 'c'}").len(), 30);
}

/// What a shard refuses is not moved by the router; what the router cannot move is refused with a reason; and a search
/// for text says nothing of elements of arrays.
#[test]
fn constants_and_texts_beside_changes_of_the_key() {
    let (_servers, mut on) = divided_and_alone();
    let prepare = [
        "{createIndexes: 'c', indexes: [{key: {t: 'text'}, name: 't'}, {key: {n: 1}, name: 'n'}]}",
        "{insert: 'c', documents: [{_id: 1, k: 1, n: 1, t: 'word', items: [1, 2]}, {_id: 2, k: 40, n: 2, t: 'word', items: [3, 4]}]}",
    ];
    let commands = [
        "{bulkWrite: 1, nsInfo: [{ns: 'd.c'}], ops: [{update: 0, filter: {n: 1}, updateMods: {$inc: {k: 40}}, constants: {x: 1}}]}",
        "{findAndModify: 'c', query: {$text: {$search: 'word'}, items: 4}, update: {$inc: {z: 1}}, fields: {'items.$': 1}}",
        "{findAndModify: 'c', query: {$text: {$search: 'word'}, items: 2}, update: {$inc: {k: 40}}, fields: {'items.$': 1}}",
    ];
    same(&mut on, &prepare, &commands.map(str::to_string));
    let [mut c, _] = on;
    let either = "{$or: [{$text: {$search: 'word'}}, {n: 1}], _id: 2, items: 4}";
    let update = format!(
        "{{update: 'c', updates: [{{q: {either}, u: {{$inc: {{k: 40}}, $set: {{'items.$': 9}}}}}}]}}"
    );
    let reply = c.command("d", &shell(&update)).unwrap();
    let errors = reply.as_doc().get_array("writeErrors").unwrap();
    let error = errors.values().next().unwrap().as_doc().unwrap().to_buf();
    assert_eq!(number(&error, "code"), 2, "{reply:?}");
}

/// What a pipeline finds in the configuration's set is not written into a user's database there.
#[test]
fn sessions_are_not_written_to_a_users_collection() {
    let (_servers, [mut c, _]) = divided_and_alone();
    let merge = "{aggregate: 'system.sessions', pipeline: [{$listSessions: {}}, {$merge: {into: {db: 'd', coll: 'c'}}}], cursor: {}}";
    let e = c.command("config", &shell(merge)).unwrap_err();
    assert_eq!(e.code().0, 20, "{e:?}");
}
