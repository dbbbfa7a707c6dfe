//! What commands and stages touch besides their own collection.

use super::*;

/// A user with the right to read a view need not be allowed to read what it shows, and may do nothing else
/// with that.
#[test]
fn the_name_of_a_view_counts() {
    let server = auth();
    let mut c = root(&server);
    run(
        &mut c,
        "own",
        "{insert: 'secret', documents: [{_id: 1, a: 1}]}",
    );
    run(
        &mut c,
        "own",
        "{create: 'v', viewOn: 'secret', pipeline: [{$project: {a: 1}}]}",
    );
    run(
        &mut c,
        "own",
        "{createRole: 'of-v', roles: [], privileges: [
            {resource: {db: 'own', collection: 'v'}, actions: ['find']}]}",
    );
    user(&mut c, "u", "['of-v']");
    let mut u = as_user(&server, "u");
    expect(
        &mut u,
        "own",
        0,
        &[
            "{find: 'v'}",
            "{count: 'v'}",
            "{distinct: 'v', key: 'a'}",
            "{aggregate: 'v', pipeline: [{$lookup: {from: 'v', pipeline: [], as: 'x'}}], cursor: {}}",
            "{explain: {find: 'v'}}",
        ],
    );
    expect(
        &mut u,
        "own",
        13,
        &[
            "{find: 'secret'}",
            "{aggregate: 'v', pipeline: [{$unionWith: 'secret'}], cursor: {}}",
            "{aggregate: 'v', pipeline: [{$lookup: {from: 'secret', pipeline: [], as: 'x'}}], cursor: {}}",
            "{listIndexes: 'v'}",
            "{collMod: 'v', viewOn: 'secret', pipeline: []}",
        ],
    );
}

#[test]
fn what_is_nested_needs_its_own_right() {
    let server = auth();
    let mut c = root(&server);
    run(&mut c, "own", "{insert: 'c', documents: [{_id: 1, a: 1}]}");
    run(
        &mut c,
        "own",
        "{insert: 'secret', documents: [{_id: 1, a: 1}]}",
    );
    run(
        &mut c,
        "other",
        "{insert: 'x', documents: [{_id: 1, a: 1}]}",
    );
    run(
        &mut c,
        "own",
        "{create: 'v', viewOn: 'secret', pipeline: []}",
    );
    run(
        &mut c,
        "own",
        "{create: 'ts', timeseries: {timeField: 't'}}",
    );
    run(
        &mut c,
        "own",
        "{insert: 'ts', documents: [{t: ISODate('2020-01-01')}]}",
    );
    run(
        &mut c,
        "own",
        "{createRole: 'one', roles: [], privileges: [
        {resource: {db: 'own', collection: 'c'}, actions: ['find']},
        {resource: {db: 'own', collection: 'ts'}, actions: ['find']}]}",
    );
    user(&mut c, "u", "['one']");
    let mut u = as_user(&server, "u");
    let agg = |stages: &str| format!("{{aggregate: 'c', pipeline: [{stages}], cursor: {{}}}}");
    let allowed = [
        "{find: 'c'}".to_string(),
        "{count: 'c'}".to_string(),
        "{distinct: 'c', key: 'a'}".to_string(),
        "{find: 'ts'}".to_string(),
        "{explain: {find: 'c'}}".to_string(),
        "{mapReduce: 'c', map: 'function() { emit(1, 1) }', reduce: 'function() { return 1 }', out: {inline: 1}}".to_string(),
        agg(""),
        agg("{$match: {a: 1}}, {$lookup: {from: 'c', pipeline: [{$match: {}}], as: 'x'}}"),
        agg("{$lookup: {pipeline: [{$documents: [{a: 1}]}], as: 'x'}}"),
        agg("{$unionWith: 'c'}, {$facet: {x: [{$lookup: {from: 'c', pipeline: [], as: 'y'}}]}}"),
        agg("{$unionWith: {pipeline: [{$documents: [{a: 1}]}]}}"),
        agg("{$graphLookup: {from: 'c', startWith: '$a', connectFromField: 'a', connectToField: 'a', as: 'x'}}"),
    ];
    let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
    expect(&mut u, "own", 0, &allowed);
    let stages = [
        "{$lookup: {from: 'secret', localField: 'a', foreignField: 'a', as: 'x'}}",
        "{$lookup: {from: 'secret', pipeline: [], as: 'x'}}",
        "{$lookup: {as: 'x', pipeline: [{$match: {}}], from: 'secret'}}",
        "{$lookup: {from: {db: 'own', coll: 'secret'}, pipeline: [], as: 'x'}}",
        "{$lookup: {from: {db: 'other', coll: 'x'}, pipeline: [], as: 'x'}}",
        "{$lookup: {from: 'v', pipeline: [], as: 'x'}}",
        "{$lookup: {from: 'c', pipeline: [{$lookup: {from: 'secret', pipeline: [], as: 'y'}}], as: 'x'}}",
        "{$lookup: {from: 'c', pipeline: [{$unionWith: 'secret'}], as: 'x'}}",
        "{$lookup: {from: 'c', pipeline: [{$facet: {z: [{$unionWith: 'secret'}]}}], as: 'x'}}",
        "{$lookup: {pipeline: [{$documents: [{a: 1}]}, {$unionWith: 'secret'}], as: 'x'}}",
        "{$graphLookup: {from: 'secret', startWith: '$a', connectFromField: 'a', connectToField: 'a', as: 'x'}}",
        "{$graphLookup: {from: 'v', startWith: '$a', connectFromField: 'a', connectToField: 'a', as: 'x'}}",
        "{$unionWith: 'secret'}",
        "{$unionWith: {coll: 'secret'}}",
        "{$unionWith: {coll: 'secret', pipeline: []}}",
        "{$unionWith: {coll: 'c', pipeline: [{$unionWith: 'secret'}]}}",
        "{$unionWith: {pipeline: [{$documents: [{a: 1}]}, {$lookup: {from: 'secret', pipeline: [], as: 'x'}}]}}",
        "{$unionWith: 'v'}",
        "{$facet: {x: [{$lookup: {from: 'secret', pipeline: [], as: 'y'}}]}}",
        "{$facet: {ok: [{$match: {}}], x: [{$graphLookup: {from: 'secret', startWith: '$a', connectFromField: 'a', connectToField: 'a', as: 'x'}}]}}",
        "{$merge: 'secret'}",
        "{$merge: {into: 'secret'}}",
        "{$merge: {into: {db: 'other', coll: 'x'}}}",
        "{$merge: 'c'}",
        "{$merge: 'new'}",
        "{$out: 'secret'}",
        "{$out: 'c'}",
        "{$out: 'new'}",
        "{$out: {db: 'other', coll: 'x'}}",
        "{$changeStream: {}}",
        "{$indexStats: {}}",
        "{$collStats: {count: {}}}",
        "{$planCacheStats: {}}",
        "{$listSearchIndexes: {}}",
        "{$rankFusion: {input: {pipelines: {x: [{$sort: {a: 1}}, {$unionWith: 'secret'}]}}}}",
    ];
    let mut refused: Vec<String> = Vec::new();
    for s in stages {
        refused.push(agg(s));
        refused.push(format!("{{explain: {}}}", agg(s)));
    }
    let secret = uuid_of(&mut c, "own", "secret");
    let mr = |out: &str| {
        format!(
            "{{mapReduce: 'c', map: 'function() {{ emit(1, 1) }}', reduce: 'function() {{ return 1 }}', out: {out}}}"
        )
    };
    for cmd in [
        "{find: 'secret'}",
        "{find: 'v'}",
        "{find: 'system.buckets.ts'}",
        "{find: 'system.views'}",
        "{find: '$cmd'}",
        "{aggregate: 'v', pipeline: [], cursor: {}}",
        "{aggregate: 'secret', pipeline: [], cursor: {}}",
        "{aggregate: 'secret', pipeline: [{$lookup: {from: 'c', pipeline: [], as: 'x'}}], cursor: {}}",
        "{aggregate: 1, pipeline: [{$changeStream: {}}], cursor: {}}",
        "{aggregate: 1, pipeline: [{$documents: [{a: 1}]}, {$lookup: {from: 'secret', pipeline: [], as: 'x'}}], cursor: {}}",
        "{aggregate: 1, pipeline: [{$documents: [{a: 1}]}, {$out: 'c'}], cursor: {}}",
        "{count: 'secret'}",
        "{count: 'v'}",
        "{distinct: 'secret', key: 'a'}",
        "{distinct: 'v', key: 'a'}",
        "{collStats: 'c'}",
        "{validate: 'c'}",
        "{listIndexes: 'c'}",
        "{dataSize: 'own.secret'}",
        "{filemd5: 1, root: 'secret'}",
        "{dbHash: 1}",
        "{dbStats: 1}",
        "{listCollections: 1}",
        "{listCollections: 1, nameOnly: true}",
        "{insert: 'c', documents: [{}]}",
        "{update: 'c', updates: [{q: {}, u: {$set: {a: 1}}}]}",
        "{update: 'c', updates: [{q: {}, u: {$set: {a: 1}}, upsert: true}]}",
        "{delete: 'c', deletes: [{q: {}, limit: 1}]}",
        "{findAndModify: 'c', query: {}, update: {$set: {a: 1}}}",
        "{findAndModify: 'c', query: {}, remove: true}",
        "{create: 'w', viewOn: 'c', pipeline: []}",
        "{create: 'w'}",
        "{collMod: 'c', validator: {}}",
        "{drop: 'c'}",
        "{dropIndexes: 'c', index: '*'}",
        "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a'}]}",
        "{cloneCollectionAsCapped: 'secret', toCollection: 'c', size: 4096}",
        "{convertToCapped: 'c', size: 4096}",
        "{explain: {find: 'secret'}}",
        "{explain: {count: 'secret'}}",
        "{explain: {distinct: 'secret', key: 'a'}}",
        "{explain: {update: 'c', updates: [{q: {}, u: {a: 1}}]}}",
        "{explain: {delete: 'c', deletes: [{q: {}, limit: 1}]}}",
        "{explain: {findAndModify: 'c', query: {}, remove: true}}",
        "{explain: {find: 'v'}}",
        &format!("{{find: {secret}}}"),
        &format!("{{count: {secret}}}"),
        &format!("{{distinct: {secret}, key: 'a'}}"),
        &format!("{{listIndexes: {secret}}}"),
        &format!("{{explain: {{find: {secret}}}}}"),
        &mr("'secret'"),
        &mr("'new'"),
        &mr("'c'"),
        &mr("{replace: 'secret'}"),
        &mr("{merge: 'secret'}"),
        &mr("{reduce: 'secret'}"),
        &mr("{replace: 'x', db: 'other'}"),
        &mr("{merge: 'c', db: 'other'}"),
        "{mapReduce: 'secret', map: 'function() { emit(1, 1) }', reduce: 'function() { return 1 }', out: {inline: 1}}",
        "{explain: {mapReduce: 'secret', map: 'function() { emit(1, 1) }', reduce: 'function() { return 1 }', out: {inline: 1}}}",
    ] {
        refused.push(cmd.to_string());
    }
    let refused: Vec<&str> = refused.iter().map(String::as_str).collect();
    expect(&mut u, "own", 13, &refused);
    expect(
        &mut u,
        "admin",
        13,
        &[
            "{renameCollection: 'own.secret', to: 'own.c', dropTarget: true}",
            "{renameCollection: 'own.secret', to: 'own.c'}",
            "{renameCollection: 'own.c', to: 'own.d'}",
            "{renameCollection: 'own.secret', to: 'other.c'}",
            "{renameCollection: 'other.x', to: 'own.c', dropTarget: true}",
            "{bulkWrite: 1, ops: [{insert: 0, document: {}}], nsInfo: [{ns: 'own.c'}]}",
            "{bulkWrite: 1, ops: [{insert: 0, document: {}}, {insert: 1, document: {}}], nsInfo: [{ns: 'own.c'}, {ns: 'own.secret'}]}",
            "{aggregate: 1, pipeline: [{$changeStream: {allChangesForCluster: true}}], cursor: {}}",
            "{aggregate: 1, pipeline: [{$currentOp: {allUsers: true}}], cursor: {}}",
            "{aggregate: 1, pipeline: [{$listCatalog: {}}], cursor: {}}",
            "{applyOps: [{op: 'i', ns: 'own.c', o: {_id: 9}}]}",
            "{applyOps: [{op: 'u', ns: 'own.c', o2: {_id: 1}, o: {$v: 2, diff: {u: {a: 2}}}}]}",
            "{applyOps: [{op: 'd', ns: 'own.secret', o: {_id: 1}}]}",
            "{applyOps: [{op: 'c', ns: 'own.$cmd', o: {drop: 'secret'}}]}",
            "{applyOps: [{op: 'c', ns: 'own.$cmd', o: {create: 'new'}}]}",
            "{applyOps: [{op: 'c', ns: 'own.$cmd', o: {dropDatabase: 1}}]}",
            "{applyOps: [{op: 'c', ns: 'own.$cmd', o: {renameCollection: 'own.secret', to: 'own.c'}}]}",
            "{applyOps: [{op: 'c', ns: 'own.$cmd', o: {collMod: 'c', validator: {}}}]}",
            "{applyOps: [{op: 'c', ns: 'own.$cmd', o: {createIndexes: 'c', v: 2, key: {a: 1}, name: 'a'}}]}",
            "{applyOps: [{op: 'c', ns: 'admin.$cmd', o: {applyOps: [{op: 'i', ns: 'own.c', o: {_id: 9}}]}}]}",
            "{applyOps: [{op: 'n', ns: '', o: {}}]}",
            "{explain: {bulkWrite: 1, ops: [{insert: 0, document: {}}], nsInfo: [{ns: 'own.c'}]}}",
        ],
    );
    // Two namespaces, of which one is allowed.
    run(&mut c, "own", "{createRole: 'writer', roles: [], privileges: [
        {resource: {db: 'own', collection: 'c'}, actions: ['find', 'insert', 'update', 'remove']},
        {resource: {db: 'own', collection: 'w'}, actions: ['createCollection', 'collMod', 'find', 'dropCollection', 'insert']}]}");
    user(&mut c, "w", "['writer']");
    let mut w = as_user(&server, "w");
    expect(
        &mut w,
        "admin",
        0,
        &["{bulkWrite: 1, ops: [{insert: 0, document: {}}], nsInfo: [{ns: 'own.c'}]}"],
    );
    expect(
        &mut w,
        "admin",
        13,
        &[
            "{bulkWrite: 1, ops: [{insert: 0, document: {}}, {insert: 1, document: {}}], nsInfo: [{ns: 'own.c'}, {ns: 'own.secret'}]}",
            "{bulkWrite: 1, ops: [{insert: 0, document: {}}, {delete: 1, filter: {}}], nsInfo: [{ns: 'own.c'}, {ns: 'other.x'}], ordered: false}",
            "{bulkWrite: 1, ops: [{insert: 0, document: {}}], nsInfo: [{ns: 'own.c'}], bypassDocumentValidation: true}",
        ],
    );
    // A view shows what its maker may read.
    expect(
        &mut w,
        "own",
        13,
        &[
            "{create: 'w', viewOn: 'secret', pipeline: []}",
            "{create: 'w', viewOn: 'v', pipeline: []}",
            "{create: 'w', viewOn: 'c', pipeline: [{$unionWith: 'secret'}]}",
            "{create: 'w', viewOn: 'c', pipeline: [{$lookup: {from: 'secret', pipeline: [], as: 'x'}}]}",
            "{insert: 'c', documents: [{}], bypassDocumentValidation: true}",
            "{delete: 'secret', deletes: [{q: {}, limit: 1}]}",
        ],
    );
    expect(
        &mut w,
        "own",
        0,
        &["{create: 'w', viewOn: 'c', pipeline: []}", "{find: 'w'}"],
    );
    expect(
        &mut w,
        "own",
        13,
        &[
            "{collMod: 'w', viewOn: 'secret', pipeline: []}",
            "{collMod: 'w', viewOn: 'c', pipeline: [{$unionWith: 'secret'}]}",
        ],
    );
    expect(
        &mut w,
        "own",
        0,
        &["{collMod: 'w', viewOn: 'c', pipeline: [{$match: {}}]}"],
    );
    // Nothing of all that has been done.
    for (db, name, n) in [("own", "secret", 1), ("other", "x", 1)] {
        let reply = run(&mut c, db, &format!("{{count: '{name}'}}"));
        assert_eq!(reply.as_doc().get("n").unwrap().as_i64_exact(), Some(n));
    }
    // listCollections and listDatabases show what a user may read.
    let shown = run(
        &mut u,
        "own",
        "{listCollections: 1, nameOnly: true, authorizedCollections: true}",
    );
    let shown = shown.as_doc().to_display();
    assert!(
        shown.contains("\"c\"") && !shown.contains("secret"),
        "{shown}"
    );
    let shown = run(&mut u, "admin", "{listDatabases: 1}")
        .as_doc()
        .to_display();
    assert!(
        shown.contains("\"own\"") && !shown.contains("\"other\""),
        "{shown}"
    );
    expect(
        &mut u,
        "admin",
        13,
        &["{listDatabases: 1, authorizedDatabases: false}"],
    );
}

/// What a reader who looked for ways around the checks has found.
#[test]
fn ways_around_the_checks_are_closed() {
    let server = auth();
    let mut r = root(&server);
    for (db, cmd) in [
        ("own", "{insert: 'c', documents: [{_id: 1, k: 1}]}"),
        (
            "own",
            "{insert: 'secret', documents: [{_id: 1, k: 1, s: 'SECRET'}]}",
        ),
        (
            "own",
            "{createRole: 'one', roles: [], privileges: [{resource: {db: 'own', collection: 'c'}, actions: ['find', 'insert']}]}",
        ),
        (
            "own",
            "{createRole: 'checks', roles: [], privileges: [{resource: {db: 'own', collection: ''}, actions: ['validate', 'collMod']}]}",
        ),
        (
            "own",
            "{createUser: 'lk', pwd: 'p', roles: ['one', 'checks']}",
        ),
        ("own", "{create: 'view', viewOn: 'c', pipeline: []}"),
    ] {
        assert_eq!(told(&mut r, db, cmd).0, 0, "{cmd}");
    }
    let mut c = server.connect();
    login(&mut c, "own", "lk", "p", SHA1).unwrap();
    for (db, cmd) in [
        (
            "own",
            "{aggregate: 'c', cursor: {}, pipeline: [{$graphLookup: {from: 'c', from: 'secret', startWith: 1, connectFromField: 'k', connectToField: 'k', as: 'x'}}]}",
        ),
        // An entry replaces what is there.
        (
            "own",
            "{applyOps: [{op: 'i', ns: 'own.c', o: {_id: 1, v: 'FORGED'}}]}",
        ),
        (
            "own",
            "{validateDBMetadata: 1, db: 'admin', apiParameters: {version: '1', strict: true}}",
        ),
        (
            "own",
            "{validateDBMetadata: 1, apiParameters: {version: '1', strict: true}}",
        ),
        // A view shows what its name's right does not: a user that changes it has to be allowed to read that.
        (
            "own",
            "{collMod: 'view', pipeline: [{$lookup: {from: 'secret', pipeline: [], as: 'x'}}]}",
        ),
        // An index that is no whole number names no namespace.
        (
            "admin",
            "{bulkWrite: 1, ops: [{insert: 0.5, document: {}}], nsInfo: [{ns: 'own.secret'}]}",
        ),
    ] {
        assert_eq!(told(&mut c, db, cmd).0, 13, "{cmd}");
    }
    // The first of two counts.
    let reply = run(
        &mut c,
        "admin",
        "{currentOp: 1, $ownOps: true, $ownOps: false, $all: true}",
    );
    assert!(!reply.as_doc().to_display().contains("root"), "{reply:?}");
    // A cursor of before does not outlive the right.
    run(&mut r, "own", "{insert: 'c', documents: [{}, {}, {}, {}]}");
    let reply = run(&mut c, "own", "{find: 'c', batchSize: 2}");
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    let id = cursor.get("id").unwrap().as_i64_exact().unwrap();
    run(
        &mut r,
        "own",
        "{revokePrivilegesFromRole: 'one', privileges: [{resource: {db: 'own', collection: 'c'}, actions: ['find']}]}",
    );
    let more = format!("{{getMore: NumberLong('{id}'), collection: 'c'}}");
    assert_eq!(told(&mut c, "own", &more).0, 13);
    // Deep nesting costs no more than its length.
    let mut nested = "{ping: 1}".to_string();
    for _ in 0..60 {
        nested = format!("{{explain: {nested}}}");
    }
    let began = std::time::Instant::now();
    told(&mut c, "own", &nested);
    assert!(began.elapsed() < Duration::from_secs(2));
    // Nothing is kept for strangers.
    let known = |r: &mut Connection| {
        let reply = run(r, "admin", "{serverStatus: 1}");
        let sessions = reply.as_doc().get_doc("logicalSessionRecordCache").unwrap();
        sessions
            .get("activeSessionsCount")
            .unwrap()
            .as_i64_exact()
            .unwrap()
    };
    let before = known(&mut r);
    let mut stranger = server.connect();
    for n in 10..30 {
        let lsid = format!("aaaaaaaa-0000-4000-8000-0000000000{n}");
        run(
            &mut stranger,
            "admin",
            &format!("{{ping: 1, lsid: {{id: UUID('{lsid}')}}}}"),
        );
    }
    assert_eq!(known(&mut r), before);
}

/// An entry that names a collection by its UUID is judged by that collection.
#[test]
fn a_uuid_is_no_way_around_a_name() {
    let server = auth();
    let mut r = root(&server);
    run(&mut r, "admin", "{insert: 'foo', documents: [{_id: 1}]}");
    run(
        &mut r,
        "own",
        "{createUser: 'u', pwd: 'p', roles: [{role: 'readWrite', db: 'admin'}, {role: 'clusterMonitor', db: 'admin'}]}",
    );
    let (users, foo) = (
        uuid_of(&mut r, "admin", "system.users"),
        uuid_of(&mut r, "admin", "foo"),
    );
    let mut c = server.connect();
    login(&mut c, "own", "u", "p", SHA1).unwrap();
    let entry = |uuid: &str| {
        format!(
            "{{applyOps: [{{op: 'i', ns: 'admin.foo', ui: {uuid}, o: {{_id: 'admin.evil', user: 'evil', db: 'admin', roles: [{{role: 'root', db: 'admin'}}]}}}}]}}"
        )
    };
    assert_eq!(told(&mut c, "admin", &entry(&users)).0, 13);
    // What the user may write into can be named so.
    assert_eq!(told(&mut c, "admin", &entry(&foo)).0, 0);
    let found = run(&mut r, "admin", "{usersInfo: 'evil'}");
    assert!(found.as_doc().get_array("users").unwrap().is_empty());
}
