//! A router before shards of real servers: everything that concerns databases that are whole on one shard.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{ArrayBuf, Doc, DocBuf, Value, doc};
use muniment_wire::Connection;
use std::time::{Duration, Instant};
use testkit::ask::{fails, run};
use testkit::{Cluster, Server, ServerOptions, Set, shell};

fn text<'d>(d: Doc<'d>, name: &str) -> &'d str {
    d.get_str(name).unwrap_or_default()
}

/// The name of the shard that holds a database.
fn shard_of(c: &mut Connection, db: &str) -> String {
    let found = c
        .find_all(
            "config",
            &shell(&format!("{{find: 'databases', filter: {{_id: '{db}'}}}}")),
        )
        .unwrap();
    text(found[0].as_doc(), "primary").to_string()
}

fn names(reply: &DocBuf, list: &str, field: &str) -> Vec<String> {
    let list = reply.as_doc().get_array(list).unwrap();
    let all = list
        .values()
        .map(|v| text(v.as_doc().unwrap(), field).to_string());
    all.collect()
}

#[test]
fn a_cluster_says_what_it_is() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    let hello = run(&mut c, "admin", "{hello: 1}");
    let hello = hello.as_doc();
    assert_eq!(hello.get_str("msg"), Some("isdbgrid"));
    assert!(hello.get("setName").is_none() && hello.get("isWritablePrimary").unwrap().truthy());
    run(&mut c, "admin", "{isdbgrid: 1}");
    let shards = run(&mut c, "admin", "{listShards: 1}");
    assert_eq!(names(&shards, "shards", "_id"), ["s0", "s1"]);
    // To add one again changes nothing; to give it another name does not work.
    let again = format!("{{addShard: '{}'}}", cluster.shards[0].address());
    assert_eq!(
        run(&mut c, "admin", &again).as_doc().get_str("shardAdded"),
        Some("s0")
    );
    let renamed = format!(
        "{{addShard: '{}', name: 'other'}}",
        cluster.shards[0].address()
    );
    fails(&mut c, "admin", &renamed, 20);
    fails(&mut c, "admin", "{addShard: 'localhost:1'}", 96);
    let map = run(&mut c, "admin", "{getShardMap: 1}");
    let map = map.as_doc().get_doc("map").unwrap();
    assert_eq!(
        map.get_str("s1"),
        Some(cluster.shards[1].address().as_str())
    );
    // What a router does not have, and what only a router has.
    fails(&mut c, "admin", "{replSetGetStatus: 1}", 59);
    let mut shard = cluster.shards[0].connect(0);
    fails(&mut shard, "admin", "{listShards: 1}", 59);
    let known = run(&mut shard, "admin", "{listCommands: 1}");
    let known = known.as_doc().get_doc("commands").unwrap();
    assert!(known.get("listShards").is_none() && known.get("replSetGetStatus").is_some());
    fails(&mut c, "local", "{find: 'c'}", 73);
    fails(&mut c, "admin", "{enableSharding: 'config'}", 20);
    run(&mut c, "admin", "{enableSharding: 'd', primaryShard: 's1'}");
    assert_eq!(shard_of(&mut c, "d"), "s1");
    fails(
        &mut c,
        "admin",
        "{enableSharding: 'd', primaryShard: 's0'}",
        48,
    );
    fails(
        &mut c,
        "admin",
        "{enableSharding: 'e', primaryShard: 'nope'}",
        70,
    );
    // Tools look for the cluster's number, and for routers.
    cluster.routers[0].until("the router says that it is there", || {
        let found = c.find_all("config", &shell("{find: 'mongos'}")).ok()?;
        (found.len() == 1).then_some(())
    });
    let version = c.find_all("config", &shell("{find: 'version'}")).unwrap();
    assert!(matches!(
        version[0].as_doc().get("clusterId"),
        Some(Value::ObjectId(_))
    ));
    let status = run(&mut c, "admin", "{serverStatus: 1}");
    assert_eq!(status.as_doc().get_str("process"), Some("mongos"));
    let pools = run(&mut c, "admin", "{connPoolStats: 1}");
    assert!(
        pools
            .as_doc()
            .get_doc("replicaSets")
            .unwrap()
            .get("cfg")
            .is_some()
    );
}

#[test]
fn databases_are_spread_and_commands_find_them() {
    let cluster = Cluster::start(2, 1, 2);
    let mut c = cluster.connect();
    for db in ["d0", "d1", "d2", "d3"] {
        run(
            &mut c,
            db,
            "{insert: 'c', documents: [{_id: 1, x: 1}, {_id: 2, x: 2}, {_id: 3, x: 2}]}",
        );
        run(
            &mut c,
            db,
            "{createIndexes: 'c', indexes: [{key: {x: 1}, name: 'x'}]}",
        );
    }
    let on: Vec<_> = ["d0", "d1", "d2", "d3"]
        .map(|db| shard_of(&mut c, db))
        .into();
    assert_eq!(on.iter().filter(|s| *s == "s0").count(), 2, "{on:?}");
    for (db, shard) in ["d0", "d1"].iter().zip(&on) {
        let i = usize::from(shard == "s1");
        let mut there = cluster.shards[i].connect(0);
        assert_eq!(there.find_all(db, &shell("{find: 'c'}")).unwrap().len(), 3);
        let mut other = cluster.shards[1 - i].connect(0);
        assert!(
            other
                .find_all(db, &shell("{find: 'c'}"))
                .unwrap()
                .is_empty()
        );
    }
    let listed = run(&mut c, "admin", "{listDatabases: 1, nameOnly: true}");
    assert_eq!(
        names(&listed, "databases", "name"),
        ["admin", "config", "d0", "d1", "d2", "d3"]
    );
    // Another router finds the same.
    let mut other = cluster.routers[1].connect();
    for db in ["d0", "d1", "d2", "d3"] {
        assert_eq!(
            other
                .find_all(db, &shell("{find: 'c', batchSize: 1}"))
                .unwrap()
                .len(),
            3
        );
    }
    let counted = run(&mut other, "d1", "{count: 'c', query: {x: 2}}");
    assert_eq!(counted.as_doc().get("n").unwrap().as_i64_exact(), Some(2));
    let sum = "{aggregate: 'c', pipeline: [{$group: {_id: null, n: {$sum: '$x'}}}], cursor: {}}";
    let sum = other.find_all("d1", &shell(sum)).unwrap();
    assert_eq!(sum[0].as_doc().get("n").unwrap().as_i64_exact(), Some(5));
    // Errors of the shard are the client's, with all that belongs to them.
    let twice = c
        .command("d0", &shell("{insert: 'c', documents: [{_id: 1}]}"))
        .unwrap();
    let errors = twice.as_doc().get_array("writeErrors").unwrap();
    let first = errors.first().unwrap().value();
    assert!(first.as_doc().unwrap().get("keyValue").is_some());
    fails(&mut c, "d0", "{find: 'c', filter: {$nope: 1}}", 2);
    // Databases that nobody has written to have nothing, and are not made by looking.
    assert!(
        c.find_all("none", &shell("{find: 'c'}"))
            .unwrap()
            .is_empty()
    );
    run(&mut c, "d0", "{dropDatabase: 1}");
    let listed = run(&mut other, "admin", "{listDatabases: 1, nameOnly: true}");
    assert_eq!(
        names(&listed, "databases", "name"),
        ["admin", "config", "d1", "d2", "d3"]
    );
    let on_other = on.iter().position(|s| *s != on[1]).unwrap();
    let rename = format!("{{renameCollection: 'd1.c', to: 'd{on_other}.e'}}");
    fails(&mut c, "admin", &rename, 20);
    run(&mut c, "admin", "{renameCollection: 'd1.c', to: 'd1.e'}");
    assert_eq!(
        other.find_all("d1", &shell("{find: 'e'}")).unwrap().len(),
        3
    );
    let bulk = "{bulkWrite: 1, ops: [{insert: 0, document: {_id: 9}}, {delete: 0, filter: {_id: 1}}], nsInfo: [{ns: 'd1.e'}]}";
    let bulk = run(&mut c, "admin", bulk);
    assert_eq!(
        bulk.as_doc().get("nErrors").unwrap().as_i64_exact(),
        Some(0),
        "{bulk:?}"
    );
}

#[test]
fn cursors_are_continued_and_ended_where_they_are() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    for i in 0..50 {
        run(
            &mut c,
            "d",
            &format!("{{insert: 'c', documents: [{{_id: {i}}}]}}"),
        );
    }
    let opened = run(&mut c, "d", "{find: 'c', batchSize: 5}");
    let cursor = opened.as_doc().get_doc("cursor").unwrap();
    let id = cursor.get("id").unwrap().as_i64_exact().unwrap();
    assert_eq!(cursor.get_str("ns"), Some("d.c"));
    let more = format!("{{getMore: NumberLong('{id}'), collection: 'c', batchSize: 5}}");
    let next = run(&mut c, "d", &more);
    let next = next.as_doc().get_doc("cursor").unwrap();
    assert_eq!(next.get_array("nextBatch").unwrap().iter().count(), 5);
    let kill = format!("{{killCursors: 'c', cursors: [NumberLong('{id}'), NumberLong('17')]}}");
    let killed = run(&mut c, "d", &kill);
    let count = |name| killed.as_doc().get_array(name).unwrap().iter().count();
    assert_eq!((count("cursorsKilled"), count("cursorsNotFound")), (1, 1));
    fails(&mut c, "d", &more, 43);
    let shard = usize::from(shard_of(&mut c, "d") == "s1");
    let status = run(
        &mut cluster.shards[shard].connect(0),
        "admin",
        "{serverStatus: 1}",
    );
    let open = status
        .as_doc()
        .get_doc("metrics")
        .unwrap()
        .get_doc("cursor")
        .unwrap();
    let open = open.get_doc("open").unwrap().get("total").unwrap();
    assert_eq!(open.as_i64_exact(), Some(0));
    // A change stream waits on the shards.
    let stream = run(
        &mut c,
        "d",
        "{aggregate: 'c', pipeline: [{$changeStream: {}}], cursor: {}}",
    );
    let id = stream
        .as_doc()
        .get_doc("cursor")
        .unwrap()
        .get("id")
        .unwrap();
    let id = id.as_i64_exact().unwrap();
    let more = format!("{{getMore: NumberLong('{id}'), collection: 'c', maxTimeMS: 20000}}");
    let mut writer = cluster.connect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            run(&mut writer, "d", "{insert: 'c', documents: [{_id: 'new'}]}");
        });
        let began = Instant::now();
        let next = run(&mut c, "d", &more);
        let batch = next.as_doc().get_doc("cursor").unwrap();
        assert_eq!(batch.get_array("nextBatch").unwrap().iter().count(), 1);
        assert!(began.elapsed() < Duration::from_secs(15));
    });
}

const S: &str = "lsid: {id: UUID('00000000-0000-4000-8000-000000000001')}";

#[test]
fn a_transaction_is_on_one_shard() {
    let cluster = Cluster::start(2, 1, 2);
    let mut c = cluster.connect();
    run(&mut c, "admin", "{enableSharding: 'a', primaryShard: 's0'}");
    run(&mut c, "admin", "{enableSharding: 'b', primaryShard: 's1'}");
    for db in ["a", "b"] {
        run(&mut c, db, "{insert: 'c', documents: [{_id: 0}]}");
    }
    let within =
        |n: i32, start: &str| format!("{S}, txnNumber: NumberLong({n}), autocommit: false{start}");
    let first = within(1, ", startTransaction: true");
    let reply = run(
        &mut c,
        "a",
        &format!("{{insert: 'c', documents: [{{_id: 1}}], {first}}}"),
    );
    let token = reply.as_doc().get_doc("recoveryToken").unwrap();
    assert_eq!(token.get_str("recoveryShardId"), Some("s0"));
    let rest = within(1, "");
    run(
        &mut c,
        "a",
        &format!("{{insert: 'e', documents: [{{_id: 1}}], {rest}}}"),
    );
    let mut reader = cluster.connect();
    assert_eq!(
        reader.find_all("a", &shell("{find: 'c'}")).unwrap().len(),
        1
    );
    run(
        &mut c,
        "admin",
        &format!("{{commitTransaction: 1, {rest}}}"),
    );
    assert_eq!(
        reader.find_all("a", &shell("{find: 'c'}")).unwrap().len(),
        2
    );
    // Another router learns from the token how it ended.
    let mut other = cluster.routers[1].connect();
    fails(
        &mut other,
        "admin",
        &format!("{{commitTransaction: 1, {rest}}}"),
        251,
    );
    let token = "recoveryToken: {recoveryShardId: 's0'}";
    run(
        &mut other,
        "admin",
        &format!("{{commitTransaction: 1, {rest}, {token}}}"),
    );
    // Databases that are not there yet are made on the shard that the transaction is on.
    let first = within(5, ", startTransaction: true");
    run(&mut c, "fresh0", &format!("{{find: 'c', {first}}}"));
    let rest = within(5, "");
    for db in ["fresh1", "fresh2", "fresh3"] {
        run(
            &mut c,
            db,
            &format!("{{insert: 'c', documents: [{{_id: 1}}], {rest}}}"),
        );
    }
    run(
        &mut c,
        "admin",
        &format!("{{commitTransaction: 1, {rest}}}"),
    );
    for db in ["fresh1", "fresh2", "fresh3"] {
        assert_eq!(shard_of(&mut c, db), "s0");
        assert_eq!(reader.find_all(db, &shell("{find: 'c'}")).unwrap().len(), 1);
    }
    // What only removes makes no database.
    run(&mut c, "nowhere", "{dropDatabase: 1}");
    let none = "{find: 'databases', filter: {_id: 'nowhere'}}";
    assert!(c.find_all("config", &shell(none)).unwrap().is_empty());
    // One that is aborted leaves nothing.
    let first = within(6, ", startTransaction: true");
    run(
        &mut c,
        "b",
        &format!("{{insert: 'c', documents: [{{_id: 7}}], {first}}}"),
    );
    let rest = within(6, "");
    run(&mut c, "admin", &format!("{{abortTransaction: 1, {rest}}}"));
    assert_eq!(
        reader.find_all("b", &shell("{find: 'c'}")).unwrap().len(),
        1
    );
}

/// Each insertion that was acknowledged is there once, whichever member led when it was sent.
#[test]
fn an_election_on_a_shard_loses_no_retryable_write() {
    let mut cluster = Cluster::start(1, 3, 1);
    let mut c = cluster.connect();
    run(
        &mut c,
        "d",
        "{insert: 'c', documents: [{_id: -1}], writeConcern: {w: 'majority'}}",
    );
    let stopped = cluster.shards[0].primary();
    for n in 0..60 {
        if n == 20 {
            cluster.shards[0].members[stopped].kill9();
        }
        let insert = format!(
            "{{insert: 'c', documents: [{{_id: {n}}}], {S}, txnNumber: NumberLong({n}), writeConcern: {{w: 'majority'}}}}"
        );
        run(&mut c, "d", &insert);
    }
    let all = c.find_all("d", &shell("{find: 'c'}")).unwrap();
    assert_eq!(all.len(), 61);
    // Reads of a secondary go to one.
    let read =
        "{find: 'c', $readPreference: {mode: 'secondary'}, readConcern: {level: 'majority'}}";
    cluster.routers[0].until("a secondary answers", || {
        (c.find_all("d", &shell(read)).ok()?.len() == 61).then_some(())
    });
}

/// Settings of the cluster are in force on every shard, also on one that is added later.
#[test]
fn what_is_set_holds_on_all_shards() {
    let cluster = Cluster::prepare(2, 1, 1, &[]);
    let mut c = cluster.connect();
    let add = |c: &mut Connection, shard: usize| {
        let add = doc! { "addShard": cluster.shards[shard].address() };
        c.command("admin", &add).unwrap();
    };
    add(&mut c, 0);
    // What the set had before it became a shard goes.
    let mut late = cluster.shards[1].connect(0);
    run(
        &mut late,
        "admin",
        "{setDefaultRWConcern: 1, defaultReadConcern: {level: 'majority'}}",
    );
    fails(
        &mut c,
        "admin",
        "{setDefaultRWConcern: 1, defaultWriteConcern: {w: 0}}",
        2,
    );
    let set = "{setDefaultRWConcern: 1, defaultWriteConcern: {w: 1, wtimeout: 4321}}";
    let reply = run(&mut c, "admin", set);
    assert_eq!(text(reply.as_doc(), "defaultWriteConcernSource"), "global");
    let images = "{setClusterParameter: {changeStreamOptions: {preAndPostImages: {expireAfterSeconds: 77}}}}";
    run(&mut c, "admin", images);
    add(&mut c, 1);
    let mut all = vec![cluster.config.connect(0), c];
    all.extend(cluster.shards.iter().map(|shard| shard.connect(0)));
    for c in &mut all {
        let concerns = run(c, "admin", "{getDefaultRWConcern: 1}");
        let concerns = concerns.as_doc();
        let write = concerns.get_doc("defaultWriteConcern").unwrap();
        assert_eq!(
            write.get("wtimeout").and_then(|v| v.as_i64_exact()),
            Some(4321)
        );
        assert_eq!(text(concerns, "defaultReadConcernSource"), "implicit");
        let images = run(c, "admin", "{getClusterParameter: 'changeStreamOptions'}");
        let shown = images.as_doc().to_display();
        assert!(shown.contains("expireAfterSeconds: 77"), "{shown}");
    }
}

#[test]
fn reads_go_to_the_member_with_the_tags() {
    let cluster = Cluster::start(1, 3, 1);
    let set = &cluster.shards[0];
    let mut c = cluster.connect();
    let insert = "{insert: 'c', documents: [{_id: 1}], writeConcern: {w: 3}}";
    run(&mut c, "d", insert);
    let primary = set.primary();
    let tagged = (primary + 1) % 3;
    let mut direct = set.connect(primary);
    let config = run(&mut direct, "admin", "{replSetGetConfig: 1}");
    let config = config.as_doc().get_doc("config").unwrap();
    let mut changed = DocBuf::new();
    for e in config {
        match e.name() {
            "version" => changed.append("version", e.value().as_i64_exact().unwrap() + 1),
            "members" => {
                let members = e.value().as_array().unwrap().values();
                let members = members.enumerate().map(|(i, m)| {
                    let mut member = DocBuf::new();
                    let fields = m.as_doc().unwrap().iter();
                    for field in fields.filter(|f| f.name() != "tags") {
                        member.append_elem(field);
                    }
                    let usage = if i == tagged { "reports" } else { "all" };
                    member.append("tags", doc! { "use": usage });
                    member
                });
                changed.append("members", members.collect::<ArrayBuf>())
            }
            _ => changed.append_elem(e),
        };
    }
    direct
        .command("admin", &doc! { "replSetReconfig": changed })
        .unwrap();
    let mut member_for = |preference: &str| {
        let explain = format!("{{explain: {{find: 'c'}}, $readPreference: {preference}}}");
        let reply = run(&mut c, "d", &explain);
        let info = reply.as_doc().get_doc("serverInfo").unwrap();
        let port = info.get("port").and_then(|v| v.as_i64_exact()).unwrap();
        let ends = format!(":{port}");
        (0..3).position(|i| set.host(i).ends_with(&ends)).unwrap()
    };
    let reports = "tags: [{use: 'reports'}]";
    // The router asks the members what they are every ten seconds.
    let hears = || (member_for(&format!("{{mode: 'nearest', {reports}}}")) == tagged).then_some(());
    set.until("the router has heard of the tags", hears);
    for mode in ["secondary", "secondaryPreferred", "nearest"] {
        let preference = format!("{{mode: '{mode}', {reports}}}");
        let chosen = [(); 6].map(|()| member_for(&preference));
        assert_eq!(chosen, [tagged; 6], "{mode}");
    }
    assert_eq!(
        member_for(&format!("{{mode: 'primaryPreferred', {reports}}}")),
        primary
    );
    let other = (primary + 2) % 3;
    let first_that_is = "{mode: 'secondary', tags: [{use: 'nothing'}, {use: 'all'}]}";
    assert_eq!([(); 4].map(|()| member_for(first_that_is)), [other; 4]);
    // All are near, unless this machine is busy.
    set.until("all members are asked", || {
        let mut seen: Vec<usize> = (0..9).map(|_| member_for("{mode: 'nearest'}")).collect();
        seen.sort_unstable();
        seen.dedup();
        (seen == [0, 1, 2]).then_some(())
    });
}

#[test]
fn a_set_that_is_none_of_ours_is_told_so() {
    let cluster = Cluster::start(1, 1, 1);
    let mut c = cluster.connect();
    let config = format!("{{addShard: '{}', name: 'x'}}", cluster.config.address());
    // The set of the configuration becomes a shard in another way.
    fails(&mut c, "admin", &config, 96);
    // A database that is on two shards could not be told apart.
    let other = Set::named("s9", 1, &ServerOptions::new().arg("--shardsvr"));
    other.begin();
    for c in [&mut other.connect(0), &mut c] {
        run(c, "both", "{insert: 'c', documents: [{}]}");
    }
    let why = fails(
        &mut c,
        "admin",
        &format!("{{addShard: '{}'}}", other.address()),
        96,
    );
    assert!(why.message().contains("'both'"), "{why}");
    run(&mut other.connect(0), "both", "{dropDatabase: 1}");
    run(
        &mut other.connect(0),
        "own",
        "{insert: 'c', documents: [{}]}",
    );
    run(
        &mut c,
        "admin",
        &format!("{{addShard: '{}'}}", other.address()),
    );
    assert_eq!(shard_of(&mut c, "own"), "s9");
    assert_eq!(c.find_all("own", &shell("{find: 'c'}")).unwrap().len(), 1);
    // A router that cannot find its configuration says so, and is not killed by it.
    let lost = ServerOptions::new()
        .router()
        .arg("--configdb")
        .arg("cfg/127.0.0.1:1");
    let lost = Server::start(lost);
    let e = lost
        .connect()
        .command("d", &shell("{find: 'c', maxTimeMS: 500}"))
        .unwrap_err();
    assert!([50, 133].contains(&e.code().0), "{e}");
    run(&mut lost.connect(), "admin", "{ping: 1}");
}

/// A router shows what runs on the shards, and ends it there.
#[test]
fn operations_of_shards_are_shown_and_ended() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    run(&mut c, "admin", "{enableSharding: 'd', primaryShard: 's1'}");
    let docs: ArrayBuf = (0..200).map(|i| doc! { "_id": i }).collect();
    let insert = doc! { "insert": "c", "documents": docs };
    c.command("d", &insert).unwrap();
    let slow = "{find: 'c', filter: {$where: 'for (let i = 0; i < 1e8; i++) {} return true'}, comment: 'slow'}";
    for command in [
        "{currentOp: 1, 'command.comment': 'slow'}",
        "{aggregate: 1, pipeline: [{$currentOp: {}}, {$match: {'command.comment': 'slow'}}], cursor: {}}",
    ] {
        std::thread::scope(|s| {
            let mut other = cluster.connect();
            let killed = s.spawn(move || other.command("d", &shell(slow)));
            let op = cluster.routers[0].until("the find runs", || {
                let reply = run(&mut c, "admin", command);
                let reply = reply.as_doc();
                let batch = || reply.get_doc("cursor")?.get_array("firstBatch");
                let all = reply.get_array("inprog").or_else(batch).unwrap();
                let op = all.values().next()?.as_doc()?.to_buf();
                Some(op)
            });
            let op = op.as_doc();
            assert_eq!(text(op, "shard"), "s1");
            assert!(text(op, "opid").starts_with("s1:"), "{op:?}");
            assert!(op.get("client_s").is_some() && op.get("client").is_none());
            let kill = doc! { "killOp": 1, "op": text(op, "opid") };
            let told = c.command("admin", &kill).unwrap();
            assert_eq!(text(told.as_doc(), "shard"), "s1");
            assert_eq!(killed.join().unwrap().unwrap_err().code().0, 11601);
        });
    }
    for (op, code) in [
        ("s1", 28_625),
        (":1", 28_625),
        ("s9:1", 70),
        ("s1:x", 9),
        ("s1:99999999999", 26_823),
    ] {
        fails(&mut c, "admin", &format!("{{killOp: 1, op: '{op}'}}"), code);
    }
    // A cursor and a transaction that wait for their client.
    run(&mut c, "d", "{find: 'c', batchSize: 1}");
    let mut begin =
        shell("{insert: 'c', documents: [{_id: 999}], startTransaction: true, autocommit: false}");
    let id = muniment_value::Value::Binary {
        subtype: 4,
        bytes: &[9; 16],
    };
    begin.append("lsid", doc! { "id": id });
    begin.append("txnNumber", 1_i64);
    c.command("d", &begin).unwrap();
    let idle = "{aggregate: 1, pipeline: [{$currentOp: {idleCursors: true}}, {$match: {type: {$in: ['idleCursor', 'idleSession']}, shard: 's1'}}, {$sort: {type: 1}}], cursor: {}}";
    let idle = c.find_all("admin", &shell(idle)).unwrap();
    let kinds: Vec<&str> = idle.iter().map(|d| text(d.as_doc(), "type")).collect();
    assert_eq!(kinds, ["idleCursor", "idleSession"], "{idle:?}");
}

/// What would be right on a part of the cluster alone, or on the wrong shard, is refused.
#[test]
fn what_a_router_answers_itself_or_refuses() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    run(&mut c, "admin", "{enableSharding: 'a', primaryShard: 's0'}");
    run(&mut c, "admin", "{enableSharding: 'b', primaryShard: 's1'}");
    for db in ["a", "b"] {
        run(&mut c, db, "{insert: 'c', documents: [{_id: 1, n: 1}]}");
    }
    // The router's own operations, which killOp ends, too, and its sessions.
    let own = "{aggregate: 1, pipeline: [{$currentOp: {localOps: true}}], cursor: {batchSize: 1}}";
    let own = c.find_all("admin", &shell(own)).unwrap();
    let address = cluster.routers[0].address();
    let port = address.rsplit_once(':').unwrap().1;
    assert!(text(own[0].as_doc(), "host").ends_with(port), "{own:?}");
    let sessions = "{aggregate: 1, pipeline: [{$listLocalSessions: {}}], cursor: {}}";
    run(&mut c, "admin", sessions);
    // Errors of the router's own tell a time, too.
    let e = c.command_raw("local", &shell("{find: 'c'}")).unwrap();
    assert!(e.as_doc().get("operationTime").is_some(), "{e:?}");
    // A set of one has no secondary, whatever its tags.
    let tags = "$readPreference: {mode: 'secondary', tags: [{dc: 'east'}]}, maxTimeMS: 200";
    fails(&mut c, "a", &format!("{{find: 'c', {tags}}}"), 50);
    let stale = "{find: 'c', $readPreference: {mode: 'nearest', maxStalenessSeconds: 5}}";
    fails(&mut c, "a", stale, 160);
    for preference in [
        "{mode: 'primaryPreferred', tags: [{dc: 'east'}]}",
        "{mode: 'secondaryPreferred', tags: [{dc: 'east'}], maxStalenessSeconds: 90}",
    ] {
        run(
            &mut c,
            "a",
            &format!("{{find: 'c', $readPreference: {preference}}}"),
        );
    }
    // A mongos or mongod of MongoDB says so in its greeting, and is sent away.
    let greeting = "{hello: 1, internalClient: {minWireVersion: 0, maxWireVersion: 25}}";
    for c in [
        &mut c,
        &mut cluster.config.connect(0),
        &mut cluster.shards[0].connect(0),
    ] {
        fails(c, "admin", greeting, 188);
    }
    // A cursor's batches come one after the other, if the client wants that.
    let docs: ArrayBuf = (0..50).map(|i| doc! { "_id": i }).collect();
    c.command("a", &doc! { "insert": "many", "documents": docs })
        .unwrap();
    let first = run(&mut c, "a", "{find: 'many', batchSize: 10}");
    let id = first.as_doc().get_doc("cursor").and_then(|d| d.get("id"));
    let id = id.and_then(|v| v.as_i64_exact()).unwrap();
    let next = doc! { "getMore": id, "collection": "many", "batchSize": 10 };
    c.send_exhaust("a", &next).unwrap();
    let mut more = Vec::new();
    while more.last() != Some(&false) {
        more.push(c.recv_exhaust().unwrap().1);
    }
    assert!(more.len() >= 4, "{more:?}");
    // Where nobody has to log in, a client may.
    let user = "{createUser: 'u', pwd: 'secret', roles: []}";
    run(&mut c, "admin", user);
    let first = Value::Binary {
        subtype: 0,
        bytes: b"n,,n=u,r=abcdefghijklmnopqrstuvwx",
    };
    let login = doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": first };
    cluster.connect().command("admin", &login).unwrap();
    // What is wrong in a command is told by the router as by a server.
    fails(&mut c, "a", "{killCursors: 'c', cursors: ['x']}", 14);
    fails(&mut c, "a", "{profile: 1}", 2);
    run(&mut c, "a", "{profile: 0, slowms: 5000}");
    let slow = run(&mut c, "a", "{profile: -1}");
    assert_eq!(
        slow.as_doc().get("slowms").and_then(|v| v.as_i64_exact()),
        Some(5000)
    );
    run(
        &mut c,
        "a",
        "{createIndexes: 'c', indexes: [{key: {z: 1}, name: 'z', sparse: true}, {key: {b: 1}, name: 'b', sparse: true}]}",
    );
    let old = "{validateDBMetadata: 1, apiParameters: {version: '1', strict: true}, db: 'a'}";
    let old = run(&mut c, "admin", old);
    let errors = old.as_doc().get_array("apiVersionErrors").unwrap();
    let names: Vec<_> = errors
        .values()
        .map(|v| text(v.as_doc().unwrap(), "errmsg").to_string())
        .collect();
    assert!(names.len() == 2 && names[0].contains("name z"), "{names:?}");
    // What the cluster knows of itself stays.
    fails(&mut c, "config", "{dropDatabase: 1}", 20);
    fails(&mut c, "config", "{drop: 'databases'}", 20);
    fails(
        &mut c,
        "admin",
        "{renameCollection: 'config.shards', to: 'config.x'}",
        20,
    );
    assert_eq!(shard_of(&mut c, "b"), "s1");
}

#[test]
fn sessions_are_ended_on_the_shards() {
    let cluster = Cluster::start(1, 1, 1);
    let mut c = cluster.connect();
    run(&mut c, "d", "{insert: 'c', documents: [{_id: 1, n: 0}]}");
    for (n, end) in [
        "{killAllSessions: []}",
        "{killSessions: [{id: UUID('00000000-0000-4000-8000-000000000001')}]}",
        "{killAllSessionsByPattern: []}",
        "{endSessions: [{id: UUID('00000000-0000-4000-8000-000000000001')}]}",
    ]
    .iter()
    .enumerate()
    {
        let begin = format!(
            "{{update: 'c', updates: [{{q: {{_id: 1}}, u: {{$inc: {{n: 1}}}}}}], {S}, txnNumber: NumberLong({n}), startTransaction: true, autocommit: false}}"
        );
        run(&mut c, "d", &begin);
        run(&mut c, "admin", end);
        // The document is free again.
        run(
            &mut c,
            "d",
            "{update: 'c', updates: [{q: {_id: 1}, u: {$inc: {free: 1}}}], maxTimeMS: 20000}",
        );
        let commit =
            format!("{{commitTransaction: 1, {S}, txnNumber: NumberLong({n}), autocommit: false}}");
        assert!(c.command("admin", &shell(&commit)).is_err(), "{end}");
    }
    let found = c.find_all("d", &shell("{find: 'c'}")).unwrap();
    assert_eq!(found[0].as_doc().get("n").unwrap().as_i64_exact(), Some(0));
}

/// A transaction's token is understood by a router that knows the shard by another name than its set's.
#[test]
fn a_shard_may_have_a_name_of_its_own() {
    let cluster = Cluster::prepare(1, 1, 2, &[]);
    let mut c = cluster.connect();
    let add = format!(
        "{{addShard: '{}', name: 'mine'}}",
        cluster.shards[0].address()
    );
    run(&mut c, "admin", "{ping: 1}");
    run(&mut c, "admin", &add);
    run(&mut c, "d", "{insert: 'c', documents: [{_id: 0}]}");
    assert_eq!(shard_of(&mut c, "d"), "mine");
    let rest = format!("{S}, txnNumber: NumberLong(1), autocommit: false");
    let reply = run(
        &mut c,
        "d",
        &format!("{{insert: 'c', documents: [{{_id: 1}}], startTransaction: true, {rest}}}"),
    );
    let token = reply.as_doc().get_doc("recoveryToken").unwrap();
    let token = token.get_str("recoveryShardId").unwrap();
    let mut other = cluster.routers[1].connect();
    let commit =
        format!("{{commitTransaction: 1, {rest}, recoveryToken: {{recoveryShardId: '{token}'}}}}");
    // One that was not committed is aborted, since its own router may know of a statement that has failed.
    fails(&mut other, "admin", &commit, 251);
    let rest = format!("{S}, txnNumber: NumberLong(2), autocommit: false");
    let insert =
        format!("{{insert: 'c', documents: [{{_id: 2}}], startTransaction: true, {rest}}}");
    run(&mut c, "d", &insert);
    run(
        &mut c,
        "admin",
        &format!("{{commitTransaction: 1, {rest}}}"),
    );
    let commit =
        format!("{{commitTransaction: 1, {rest}, recoveryToken: {{recoveryShardId: '{token}'}}}}");
    run(&mut other, "admin", &commit);
    assert_eq!(c.find_all("d", &shell("{find: 'c'}")).unwrap().len(), 2);
    // A set at the wrong address can be added at the right one afterwards.
    let set = Set::named("late", 1, &ServerOptions::new().arg("--shardsvr"));
    set.begin();
    let e = c
        .command("admin", &shell("{addShard: 'late/127.0.0.1:1'}"))
        .unwrap_err();
    assert_eq!(e.code().0, 133, "{e}");
    run(
        &mut c,
        "admin",
        &format!("{{addShard: '{}'}}", set.address()),
    );
}

/// A shard that answers nothing any more does not hold a client for ever.
#[test]
fn a_member_that_is_frozen_is_given_up() {
    let cluster = Cluster::start(1, 3, 1);
    let mut c = cluster.connect();
    run(
        &mut c,
        "d",
        "{insert: 'c', documents: [{_id: -1}], writeConcern: {w: 'majority'}}",
    );
    let frozen = cluster.shards[0].primary();
    let pid = cluster.shards[0].members[frozen].pid().unwrap();
    testkit::freeze(pid);
    let began = Instant::now();
    let insert = format!(
        "{{insert: 'c', documents: [{{_id: 1}}], {S}, txnNumber: NumberLong(1), writeConcern: {{w: 'majority'}}}}"
    );
    run(&mut c, "d", &insert);
    assert!(
        began.elapsed() < Duration::from_secs(40),
        "{:?}",
        began.elapsed()
    );
    testkit::thaw(pid);
    assert_eq!(c.find_all("d", &shell("{find: 'c'}")).unwrap().len(), 2);
}

/// Waits until no thread of a process runs that was frozen.
fn stands_still(pid: u32) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let all_stopped = threads.filter_map(Result::ok).all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat"));
            stat.is_ok_and(|stat| {
                stat.rsplit_once(") ")
                    .is_some_and(|(_, s)| s.starts_with('T'))
            })
        });
        if all_stopped {
            return;
        }
        assert!(Instant::now() < end, "a thread of the frozen process runs");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A statement that fails on its way, and may have been executed, does not become a part of what is committed.
#[test]
fn a_transaction_of_which_a_statement_failed_here_is_not_committed() {
    let cluster = Cluster::start(1, 1, 1);
    let mut c = cluster.connect();
    run(&mut c, "d", "{insert: 'c', documents: [{_id: 0}]}");
    let pid = cluster.shards[0].members[0].pid().unwrap();
    let rest = format!("{S}, txnNumber: NumberLong(1), autocommit: false");
    run(
        &mut c,
        "d",
        &format!("{{insert: 'c', documents: [{{_id: 1}}], startTransaction: true, {rest}}}"),
    );
    // The shard stands still, and the client gives up.
    testkit::freeze(pid);
    stands_still(pid);
    let e = c.command(
        "d",
        &shell(&format!(
            "{{insert: 'c', documents: [{{_id: 2}}], maxTimeMS: 300, {rest}}}"
        )),
    );
    assert_eq!(e.unwrap_err().code().0, 50);
    testkit::thaw(pid);
    fails(
        &mut c,
        "admin",
        &format!("{{commitTransaction: 1, {rest}}}"),
        251,
    );
    fails(
        &mut c,
        "d",
        &format!("{{insert: 'c', documents: [{{_id: 3}}], {rest}}}"),
        251,
    );
    assert_eq!(c.find_all("d", &shell("{find: 'c'}")).unwrap().len(), 1);
}
