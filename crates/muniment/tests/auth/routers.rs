//! Logins at routers: users and roles are those of the configuration.

use super::*;
use testkit::Cluster;

/// A cluster with a key file.
struct Keyed {
    cluster: Cluster,
    root: Connection,
    _dir: tempfile::TempDir,
}

impl Keyed {
    fn new(routers: usize) -> Keyed {
        Keyed::with(routers, &[])
    }

    /// With these further arguments.
    fn with(routers: usize, args: &[&str]) -> Keyed {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("key");
        std::fs::write(&key, "abcdefghijklmnopqrstuvwx").unwrap();
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
        let args = [&["--keyFile", key.to_str().unwrap()], args].concat();
        let cluster = Cluster::prepare(2, 1, routers, &args);
        // The localhost exception holds at a router as soon as it knows that there is no user.
        let create =
            "{createUser: 'root', pwd: 'rootpw', roles: ['root'], mechanisms: ['SCRAM-SHA-1']}";
        let mut root = cluster.connect();
        cluster.routers[0].until("the first user is created", || {
            root.command("admin", &shell(create)).ok()
        });
        cluster.routers[0].until("root logs in", || {
            login(&mut root, "admin", "root", "rootpw", SHA1).ok()
        });
        cluster.add_shards(&mut root);
        Keyed {
            cluster,
            root,
            _dir: dir,
        }
    }
}

/// A user who names no sessions ends those of nobody else.
#[test]
fn a_user_kills_only_its_own_sessions() {
    let mut keyed = Keyed::new(1);
    for name in ["a", "b"] {
        user(&mut keyed.root, name, "[{role: 'readWrite', db: 'own'}]");
    }
    let router = &keyed.cluster.routers[0];
    let [mut a, mut b] = ["a", "b"].map(|name| {
        let mut c = router.connect();
        router.until("the user logs in", || {
            login(&mut c, "own", name, "pw", SHA1).ok()
        });
        c
    });
    run(&mut a, "own", "{insert: 'c', documents: [{_id: 1}]}");
    let begin = |c: &mut Connection, n: u32| {
        let terms = format!(
            "lsid: {{id: UUID('00000000-0000-4000-8000-00000000000{n}')}}, txnNumber: NumberLong(1), autocommit: false"
        );
        run(
            c,
            "own",
            &format!("{{find: 'c', startTransaction: true, {terms}}}"),
        );
        terms
    };
    let of_a = begin(&mut a, 1);
    let of_b = begin(&mut b, 2);
    run(&mut b, "admin", "{killSessions: []}");
    run(
        &mut a,
        "admin",
        &format!("{{commitTransaction: 1, {of_a}}}"),
    );
    expect(
        &mut b,
        "admin",
        251,
        &[&format!("{{commitTransaction: 1, {of_b}}}")],
    );
}

#[test]
fn users_of_the_configuration_log_in_at_every_router() {
    let mut keyed = Keyed::new(2);
    let root = &mut keyed.root;
    let routers = &keyed.cluster.routers;
    // The exception has ended, here and at the other router.
    for router in routers {
        let mut c = router.connect();
        router.until("the exception ends", || {
            let create = "{createUser: 'x', pwd: 'x', roles: []}";
            (code(&mut c, "admin", create) == 13).then_some(())
        });
        expect(&mut c, "own", 13, &["{find: 'c'}", "{listDatabases: 1}"]);
        expect(
            &mut c,
            "admin",
            13,
            &["{listShards: 1}", "{addShard: 'a/b:1'}"],
        );
        run(&mut c, "admin", "{ping: 1}");
    }
    user(root, "u", "[{role: 'readWrite', db: 'own'}]");
    let mut all: Vec<Connection> = Vec::new();
    for router in routers {
        let mut c = router.connect();
        router.until("the user logs in", || {
            login(&mut c, "own", "u", "pw", SHA1).ok()
        });
        all.push(c);
    }
    for (i, c) in all.iter_mut().enumerate() {
        run(
            c,
            "own",
            &format!("{{insert: 'c', documents: [{{_id: {i}}}]}}"),
        );
        expect(c, "other", 13, &["{find: 'c'}"]);
        expect(c, "admin", 13, &["{listShards: 1}", "{shutdown: 1}"]);
    }
    // A cursor is its user's.
    let opened = run(&mut all[0], "own", "{find: 'c', batchSize: 1}");
    let cursor = opened.as_doc().get_doc("cursor").unwrap();
    let id = cursor.get("id").unwrap().as_i64_exact().unwrap();
    let more = format!("{{getMore: NumberLong('{id}'), collection: 'c'}}");
    expect(root, "own", 13, &[&more]);
    run(&mut all[0], "own", &more);
    // A user sees the databases and collections that it may do anything with.
    let listed = run(&mut all[0], "admin", "{listDatabases: 1, nameOnly: true}");
    let listed = listed.as_doc().to_display();
    assert!(
        listed.contains("own") && !listed.contains("config"),
        "{listed}"
    );
    run(root, "other", "{insert: 'hidden', documents: [{}]}");
    let names = "{listCollections: 1, nameOnly: true, authorizedCollections: true}";
    let listed = run(&mut all[0], "other", names).as_doc().to_display();
    assert!(!listed.contains("hidden"), "{listed}");
    let listed = run(&mut all[0], "own", names).as_doc().to_display();
    assert!(
        listed.contains("'c'") || listed.contains("\"c\""),
        "{listed}"
    );
    // A user's word does not move the clock of the cluster.
    let far = doc! { "clusterTime": Value::Timestamp { t: u32::MAX / 2, i: 1 } };
    all[0]
        .command("own", &doc! { "find": "c", "$clusterTime": far })
        .unwrap();
    let reply = all[0].command(
        "own",
        &doc! { "insert": "c", "documents": muniment_value::array![doc! { "_id": "t" }] },
    );
    let time = reply
        .unwrap()
        .as_doc()
        .get("operationTime")
        .unwrap()
        .to_display();
    assert!(!time.contains(&(u32::MAX / 2).to_string()), "{time}");
    // A cursor that is open ends with the right to open it.
    let opened = run(&mut all[1], "own", "{find: 'c', batchSize: 1}");
    let cursor = opened.as_doc().get_doc("cursor").unwrap();
    let id = cursor.get("id").unwrap().as_i64_exact().unwrap();
    let kept = format!("{{getMore: NumberLong('{id}'), collection: 'c', batchSize: 1}}");
    // A session is its user's, too, on the shard.
    let session = "lsid: {id: UUID('00000000-0000-4000-8000-000000000001')}";
    let begin = format!(
        "{{insert: 'c', documents: [{{_id: 9}}], {session}, txnNumber: NumberLong(1), startTransaction: true, autocommit: false}}"
    );
    run(&mut all[0], "own", &begin);
    let commit =
        format!("{{commitTransaction: 1, {session}, txnNumber: NumberLong(1), autocommit: false}}");
    assert_ne!(code(root, "admin", &commit), 0);
    run(&mut all[0], "admin", &commit);
    // What changes is in force at both routers, on connections that are open.
    run(
        root,
        "own",
        "{revokeRolesFromUser: 'u', roles: ['readWrite']}",
    );
    for (router, c) in routers.iter().zip(&mut all) {
        router.until("the right is gone", || {
            (code(c, "own", "{find: 'c'}") == 13).then_some(())
        });
    }
    expect(&mut all[1], "own", 13, &[&kept]);
    run(root, "own", "{dropUser: 'u'}");
    for (router, c) in routers.iter().zip(&mut all) {
        router.until("the user is gone", || is_logged_out(c).then_some(()));
    }
    // A shard's own users are others.
    let mut shard = keyed.cluster.shards[0].connect(0);
    assert!(login(&mut shard, "admin", "root", "rootpw", SHA1).is_err());
}

/// A router that cannot reach the configuration lets nobody in, and lets nobody create a first user.
#[test]
fn without_a_configuration_nobody_comes_in() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, "abcdefghijklmnopqrstuvwx").unwrap();
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    let options = ServerOptions::new().router();
    let options = options.arg("--configdb").arg("cfg/127.0.0.1:1");
    let lost = Server::start(options.arg("--keyFile").arg(key.to_str().unwrap()));
    let mut c = lost.connect();
    expect(
        &mut c,
        "admin",
        13,
        &["{createUser: 'x', pwd: 'x', roles: ['root']}"],
    );
    let e = login(&mut c, "admin", "root", "rootpw", SHA1).unwrap_err();
    assert_eq!(e.code().0, 6, "{e}");
    expect(&mut c, "own", 13, &["{find: 'c'}"]);
}

/// The shards of a cluster with a key know each other by it, and a client cannot ask for what they ask.
#[test]
fn shards_that_know_each_other_commit_together() {
    let mut keyed = Keyed::new(1);
    let root = &mut keyed.root;
    for (db, shard) in [("a", "s0"), ("b", "s1")] {
        let place = format!("{{enableSharding: '{db}', primaryShard: '{shard}'}}");
        run(root, "admin", &place);
        run(root, db, "{insert: 'c', documents: [{_id: 0, n: 1}]}");
    }
    let rest = "lsid: {id: UUID('00000000-0000-4000-8000-000000000001')}, txnNumber: NumberLong(1), \
                autocommit: false";
    for (db, start) in [("a", ", startTransaction: true"), ("b", "")] {
        let update = "update: 'c', updates: [{q: {_id: 0}, u: {$inc: {n: 1}}}]";
        run(root, db, &format!("{{{update}, {rest}{start}}}"));
    }
    run(root, "admin", &format!("{{commitTransaction: 1, {rest}}}"));
    for db in ["a", "b"] {
        let found = root.find_all(db, &shell("{find: 'c'}")).unwrap();
        assert_eq!(found[0].as_doc().get("n").unwrap().as_i64_exact(), Some(2));
    }
    let mut direct = keyed.cluster.shards[0].connect(0);
    for command in [
        "{_changesUpTo: 1, time: Timestamp(1, 1)}",
        "{_clusterCommit: 1, transaction: {}, participants: []}",
        "{_clusterDecision: 1, transaction: {}}",
        "{_clusterPrepare: 1, transaction: {}, coordinator: 's0/a:1'}",
        "{_clusterResolve: 1, transaction: {}, outcome: {decision: 'abort'}}",
    ] {
        assert_eq!(code(&mut direct, "admin", command), 13, "{command}");
    }
}

#[test]
fn the_balancer_proves_itself_and_its_commands_need_rights() {
    let mut keyed = Keyed::new(1);
    let router = &keyed.cluster.routers[0];
    let root = &mut keyed.root;
    user(root, "u", "[{role: 'readWriteAnyDatabase', db: 'admin'}]");
    user(root, "m", "[{role: 'clusterManager', db: 'admin'}]");
    let mut users: Vec<Connection> = Vec::new();
    for name in ["u", "m"] {
        let mut c = router.connect();
        router.until("the user logs in", || {
            login(&mut c, "own", name, "pw", SHA1).ok()
        });
        users.push(c);
    }
    let (m, mut u) = (users.pop(), users.pop().unwrap());
    run(root, "admin", "{enableSharding: 't', primaryShard: 's0'}");
    run(root, "admin", "{shardCollection: 't.c', key: {k: 1}}");
    run(root, "t", "{insert: 'c', documents: [{k: 1}, {k: 15}]}");
    let commands = [
        "{split: 't.c', middle: {k: 10}}",
        "{mergeAllChunksOnShard: 't.c', shard: 's0'}",
        "{balancerStop: 1}",
        "{balancerStart: 1}",
        "{balancerStatus: 1}",
        "{addShardToZone: 's1', zone: 'z'}",
        "{updateZoneKeyRange: 't.c', min: {k: 10}, max: {k: 20}, zone: 'z'}",
        "{configureCollectionBalancing: 't.c', chunkSize: 2}",
    ];
    expect(&mut u, "admin", 13, &commands);
    expect(
        &mut u,
        "admin",
        13,
        &["{removeShard: 's1'}", "{getShardVersion: 't.c'}"],
    );
    run(root, "admin", "{removeShardFromZone: 's1', zone: 'none'}");
    run(root, "admin", "{getShardVersion: 't.c'}");
    let mut m = m.unwrap();
    for command in commands {
        run(&mut m, "admin", command);
    }
    let mine = "{find: 'chunks', filter: {shard: 's1'}}";
    router.until("the balancer moves the range", || {
        let found = root.find_all("config", &shell(mine)).unwrap();
        (found.len() == 1).then_some(())
    });
}

/// What runs on shards is the router's there, so who sees and ends it needs the right for all operations.
#[test]
fn operations_of_shards_need_rights() {
    let mut keyed = Keyed::new(1);
    let root = &mut keyed.root;
    user(root, "u", "[{role: 'readWriteAnyDatabase', db: 'admin'}]");
    let router = &keyed.cluster.routers[0];
    let mut u = router.connect();
    router.until("the user logs in", || {
        login(&mut u, "own", "u", "pw", SHA1).ok()
    });
    let all = "{aggregate: 1, pipeline: [{$currentOp: {allUsers: true}}], cursor: {}}";
    let refused = ["{killOp: 1, op: 's0:1'}", "{currentOp: 1}", all];
    expect(&mut u, "admin", 13, &refused);
    let own = "{aggregate: 1, pipeline: [{$currentOp: {}}], cursor: {}}";
    let own = u.find_all("admin", &shell(own)).unwrap();
    assert!(!own.is_empty() && own.iter().all(|d| d.as_doc().get("shard").is_none()));
    run(&mut u, "admin", "{currentOp: 1, $ownOps: true}");
    let root = &mut keyed.root;
    let shown = root.find_all("admin", &shell(all)).unwrap();
    let shards = shown.iter().map(|d| d.as_doc().get_str("shard").unwrap());
    let shards: std::collections::BTreeSet<&str> = shards.collect();
    assert_eq!(shards.into_iter().collect::<Vec<_>>(), ["s0", "s1"]);
    run(root, "admin", "{killOp: 1, op: 's0:1'}");
}

#[test]
fn change_streams_at_routers_need_rights() {
    let mut keyed = Keyed::new(1);
    let root = &mut keyed.root;
    user(root, "reader", "[{role: 'read', db: 'own'}]");
    user(root, "writer", "[{role: 'readWrite', db: 'own'}]");
    run(
        root,
        "admin",
        "{shardCollection: 'own.c', key: {k: 'hashed'}}",
    );
    let router = &keyed.cluster.routers[0];
    let mut c = router.connect();
    let open = |of: &str, options: &str| {
        format!("{{aggregate: {of}, pipeline: [{{$changeStream: {options}}}], cursor: {{}}}}")
    };
    expect(&mut c, "own", 13, &[&open("'c'", "{}")]);
    router.until("the user logs in", || {
        login(&mut c, "own", "reader", "pw", SHA1).ok()
    });
    expect(&mut c, "other", 13, &[&open("'c'", "{}"), &open("1", "{}")]);
    let all = open("1", "{allChangesForCluster: true}");
    expect(&mut c, "admin", 13, &[&all]);
    run(root, "admin", &all);
    let options = "{fullDocument: 'updateLookup'}";
    let opened = run(&mut c, "own", &open("'c'", options));
    let cursor = opened.as_doc().get_doc("cursor").unwrap();
    let id = cursor.get("id").unwrap().as_i64_exact().unwrap();
    // The times that the router asks shards for are signed.
    let mut writer = router.connect();
    router.until("the user logs in", || {
        login(&mut writer, "own", "writer", "pw", SHA1).ok()
    });
    for n in 0..6 {
        let insert = format!("{{insert: 'c', documents: [{{k: {n}}}]}}");
        run(&mut writer, "own", &insert);
        let set = format!("{{update: 'c', updates: [{{q: {{k: {n}}}, u: {{$set: {{x: 1}}}}}}]}}");
        run(&mut writer, "own", &set);
    }
    let mut events = 0;
    while events < 12 {
        let more = format!("{{getMore: NumberLong('{id}'), collection: 'c', maxTimeMS: 20000}}");
        let next = run(&mut c, "own", &more);
        let cursor = next.as_doc().get_doc("cursor").unwrap();
        let batch = cursor.get_array("nextBatch").unwrap().iter().count();
        assert!(batch > 0, "the events do not come");
        events += batch;
    }
    assert_eq!(events, 12);
    // Nobody else continues the stream.
    let more = format!("{{getMore: NumberLong('{id}'), collection: 'c'}}");
    expect(&mut writer, "own", 13, &[&more]);
}

/// A cursor that was passed on ends by its user, or by one with the right to end those of others.
#[test]
fn cursors_of_others_end_by_the_right_to_it() {
    let mut keyed = Keyed::new(1);
    let root = &mut keyed.root;
    // The right to end those of another collection is none to end these.
    let other = "{createRole: 'ends', roles: [], privileges: [{resource: {db: 'own', collection: 'other'}, actions: ['killAnyCursor']}]}";
    run(&mut *root, "own", other);
    user(root, "a", "[{role: 'readWrite', db: 'own'}]");
    user(
        root,
        "b",
        "[{role: 'readWrite', db: 'own'}, {role: 'ends', db: 'own'}]",
    );
    let router = &keyed.cluster.routers[0];
    let [mut a, mut b] = ["a", "b"].map(|name| {
        let mut c = router.connect();
        router.until("the user logs in", || {
            login(&mut c, "own", name, "pw", SHA1).ok()
        });
        c
    });
    run(
        &mut a,
        "own",
        "{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}, {_id: 4}]}",
    );
    run(
        &mut *root,
        "admin",
        "{shardCollection: 'own.divided', key: {_id: 'hashed'}}",
    );
    let many: Vec<String> = (0..50).map(|i| format!("{{_id: {i}}}")).collect();
    let insert = format!("{{insert: 'divided', documents: [{}]}}", many.join(", "));
    run(&mut a, "own", &insert);
    // The second one is the router's own, over both shards.
    for collection in ["c", "divided"] {
        let find = format!("{{find: '{collection}', batchSize: 1}}");
        let opened = run(&mut a, "own", &find);
        let cursor = opened.as_doc().get_doc("cursor").unwrap();
        let id = cursor.get("id").unwrap().as_i64_exact().unwrap();
        let kill = format!("{{killCursors: '{collection}', cursors: [NumberLong('{id}')]}}");
        let more =
            format!("{{getMore: NumberLong('{id}'), collection: '{collection}', batchSize: 1}}");
        let counts = |reply: DocBuf| {
            ["cursorsKilled", "cursorsNotFound", "cursorsAlive"]
                .map(|name| reply.as_doc().get_array(name).unwrap().values().count())
        };
        let as_other = format!("{{killCursors: 'other', cursors: [NumberLong('{id}')]}}");
        for kill in [&kill, &as_other] {
            let told = counts(run(&mut b, "own", kill));
            assert_eq!(told, [0, 0, 1], "{collection}: {kill}");
        }
        run(&mut a, "own", &more);
        assert_eq!(counts(run(root, "own", &kill)), [1, 0, 0], "{collection}");
        expect(&mut a, "own", 43, &[&more]);
        assert_eq!(counts(run(root, "own", &kill)), [0, 1, 0], "{collection}");
    }
}

/// Without the names of users, stored sessions are listed that are those of the connection's user.
#[test]
fn a_user_lists_the_own_sessions_at_a_router() {
    let mut keyed = Keyed::with(1, &["--setParameter", "enableTestCommands=1"]);
    let root = &mut keyed.root;
    user(root, "a", "[{role: 'readWrite', db: 'own'}]");
    let router = &keyed.cluster.routers[0];
    let mut a = router.connect();
    router.until("the user logs in", || {
        login(&mut a, "own", "a", "pw", SHA1).ok()
    });
    let ids = ["1", "2"].map(|n| format!("00000000-0000-4000-8000-00000000000{n}"));
    let [of_a, of_root] = ids
        .each_ref()
        .map(|id| format!("lsid: {{id: UUID('{id}')}}"));
    run(
        &mut a,
        "own",
        &format!("{{insert: 'c', documents: [{{}}], {of_a}}}"),
    );
    run(
        root,
        "own",
        &format!("{{insert: 'c', documents: [{{}}], {of_root}}}"),
    );
    let mut config = keyed.cluster.config.connect(0);
    login(&mut config, "admin", "root", "rootpw", SHA1).unwrap();
    for c in [&mut *root, &mut config] {
        run(c, "admin", "{refreshLogicalSessionCacheNow: 1}");
    }
    let list = |c: &mut Connection, operand: &str| {
        let stages = format!("{{$listSessions: {operand}}}, {{$sort: {{lastUse: 1}}}}");
        let command =
            format!("{{aggregate: 'system.sessions', pipeline: [{stages}], cursor: {{}}}}");
        let found = c.find_all("config", &shell(&command)).unwrap();
        let shown: Vec<String> = found.iter().map(|d| d.as_doc().to_display()).collect();
        ids.each_ref().map(|id| {
            let digits = id.replace('-', "");
            shown.iter().any(|d| d.contains(id) || d.contains(&digits))
        })
    };
    assert_eq!(list(root, "{users: []}"), [false, true]);
    for none in ["{}", "{allUsers: false}", "{users: null}"] {
        assert_eq!(list(&mut a, none), [true, false], "{none}");
        assert_eq!(list(root, none), [false, true], "{none}");
    }
    assert_eq!(list(root, "{allUsers: true}"), [true, true]);
    assert_eq!(
        list(root, "{users: [{user: 'a', db: 'own'}]}"),
        [true, false]
    );
    let wrong =
        "{aggregate: 'system.sessions', pipeline: [{$listSessions: {users: 5}}], cursor: {}}";
    expect(root, "config", 14, &[wrong]);
}
