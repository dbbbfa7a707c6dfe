//! Change streams at routers: what happens on all shards, merged.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{ArrayBuf, Doc, DocBuf, Value, array, doc};
use muniment_wire::Connection;
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};
use testkit::ask::{fails, run};
use testkit::{Cluster, Server, shell};

/// A change stream that a client has open.
struct Stream {
    c: Connection,
    db: String,
    collection: String,
    id: i64,
    events: Vec<DocBuf>,
    /// The `postBatchResumeToken` of the newest batch.
    token: DocBuf,
}

impl Stream {
    /// Watches a collection, or with `1` a database, or with `all` everything.
    fn open(server: &Server, db: &str, of: &str, options: &str, stages: &str) -> Stream {
        Stream::open_with(server, db, of, &shell(options), stages)
    }

    fn open_with(server: &Server, db: &str, of: &str, options: &DocBuf, stages: &str) -> Stream {
        Stream::open_at(server, (db, of), options, stages, "primary")
    }

    /// The same on members of this read preference.
    fn open_at(
        server: &Server,
        (db, of): (&str, &str),
        options: &DocBuf,
        stages: &str,
        mode: &str,
    ) -> Stream {
        let mut c = server.connect();
        let mut stage = options.clone();
        let target = match of {
            "all" => {
                stage.append("allChangesForCluster", true);
                Value::Int32(1)
            }
            "1" => Value::Int32(1),
            name => Value::String(name),
        };
        let mut pipeline = array![doc! { "$changeStream": stage }];
        let stages = shell(&format!("{{stages: [{stages}]}}"));
        let stages = stages.as_doc().get_array("stages").unwrap();
        stages.values().for_each(|stage| {
            pipeline.push(stage);
        });
        let mut command = doc! { "aggregate": target, "pipeline": pipeline, "cursor": doc! {} };
        command.append("$readPreference", doc! { "mode": mode });
        let reply = c.command(db, &command).unwrap_or_else(|e| panic!("{e}"));
        let mut stream = Stream {
            c,
            db: db.to_string(),
            collection: String::new(),
            id: 0,
            events: Vec::new(),
            token: DocBuf::new(),
        };
        stream.take(&reply, "firstBatch");
        stream
    }

    fn take(&mut self, reply: &DocBuf, batch: &str) {
        let cursor = reply.as_doc().get_doc("cursor").unwrap();
        self.id = cursor.get("id").unwrap().as_i64_exact().unwrap();
        let ns = cursor.get_str("ns").unwrap();
        self.collection = ns.split_once('.').unwrap().1.to_string();
        for event in cursor.get_array(batch).unwrap().values() {
            self.events.push(event.as_doc().unwrap().to_buf());
        }
        let token = cursor.get_doc("postBatchResumeToken").unwrap().to_buf();
        assert!(data(&token) >= data(&self.token), "tokens go back");
        self.token = token;
    }

    /// One getMore.
    fn more(&mut self, wait_ms: i64) {
        let command = doc! {
            "getMore": self.id, "collection": self.collection.as_str(), "maxTimeMS": wait_ms,
        };
        let reply = self.c.command(&self.db, &command);
        let reply = reply.unwrap_or_else(|e| panic!("{e}"));
        self.take(&reply, "nextBatch");
    }

    /// Waits until there are so many events, and no more.
    fn until(&mut self, count: usize) -> &[DocBuf] {
        let end = Instant::now() + Duration::from_secs(30);
        while self.events.len() < count && Instant::now() < end && self.id != 0 {
            self.more(1000);
        }
        let told: Vec<String> = self.events.iter().map(told).collect();
        assert_eq!(told.len(), count, "{told:#?}");
        &self.events
    }

    /// Waits for the end of the stream.
    fn end(&mut self) -> Vec<String> {
        let end = Instant::now() + Duration::from_secs(30);
        while self.id != 0 && Instant::now() < end {
            self.more(1000);
        }
        assert_eq!(self.id, 0, "the stream goes on");
        self.told()
    }

    fn told(&self) -> Vec<String> {
        self.events.iter().map(told).collect()
    }
}

fn data(token: &DocBuf) -> &str {
    token.as_doc().get_str("_data").unwrap_or_default()
}

fn token_of(event: &DocBuf) -> DocBuf {
    event.as_doc().get_doc("_id").unwrap().to_buf()
}

fn time_of(event: &DocBuf) -> u64 {
    match event.as_doc().get("clusterTime") {
        Some(Value::Timestamp { t, i }) => u64::from(t) << 32 | u64::from(i),
        other => panic!("{other:?}"),
    }
}

/// An event in short: `insert c 7`.
fn told(event: &DocBuf) -> String {
    let d = event.as_doc();
    let id = d.get_doc("documentKey").and_then(|k| k.get("_id"));
    let ns = d.get_doc("ns").unwrap_or(Doc::EMPTY);
    [
        d.get_str("operationType").unwrap_or("?").to_string(),
        ns.get_str("coll").unwrap_or("-").to_string(),
        id.map(|v| v.to_display()).unwrap_or_default(),
    ]
    .join(" ")
    .trim_end()
    .to_string()
}

/// Checks that events are in order.
fn check_order(events: &[DocBuf]) {
    for pair in events.windows(2) {
        assert!(time_of(&pair[0]) <= time_of(&pair[1]), "{pair:?}");
        let tokens = [token_of(&pair[0]), token_of(&pair[1])];
        assert!(data(&tokens[0]) < data(&tokens[1]), "{pair:?}");
    }
}

/// The documents of an insert.
fn documents(ids: impl Iterator<Item = i32>) -> ArrayBuf {
    ids.map(|i| doc! { "_id": i, "k": i }).collect()
}

fn insert(c: &mut Connection, db: &str, name: &str, ids: impl Iterator<Item = i32>) {
    let insert = doc! { "insert": name, "documents": documents(ids), "ordered": false };
    let reply = c.command(db, &insert).unwrap();
    assert!(reply.as_doc().get("writeErrors").is_none(), "{reply:?}");
}

/// Cursors that are open on shards and on the configuration.
fn open_cursors(cluster: &Cluster) -> i64 {
    let sets = cluster.shards.iter().chain([&cluster.config]);
    let open = sets.map(|set| {
        let status = run(&mut set.connect(0), "admin", "{serverStatus: 1}");
        let metrics = status.as_doc().get_doc("metrics").unwrap();
        let open = metrics.get_doc("cursor").unwrap().get_doc("open").unwrap();
        open.get("total").unwrap().as_i64_exact().unwrap()
    });
    open.sum()
}

#[test]
fn events_of_all_shards_come_once_and_in_order() {
    let cluster = Cluster::start(3, 1, 2);
    let mut c = cluster.connect();
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {k: 'hashed'}}",
    );
    run(&mut c, "admin", "{enableSharding: 'e', primaryShard: 's2'}");
    insert(&mut c, "d", "c", 10_000..10_010);
    let mut streams = [
        Stream::open(&cluster.routers[0], "d", "c", "{}", ""),
        Stream::open(&cluster.routers[1], "d", "1", "{}", ""),
        Stream::open(&cluster.routers[1], "admin", "all", "{}", ""),
    ];
    thread::scope(|scope| {
        for writer in 0..4 {
            let router = &cluster.routers[writer % 2];
            scope.spawn(move || {
                let mut c = router.connect();
                for n in 0..50 {
                    let id = writer as i32 * 1000 + n;
                    insert(&mut c, "d", "c", id..id + 1);
                    let set = format!(
                        "{{update: 'c', updates: [{{q: {{k: {id}}}, u: {{$set: {{x: 1}}}}}}]}}"
                    );
                    run(&mut c, "d", &set);
                    if n % 5 == 0 {
                        insert(&mut c, "d", "whole", id..id + 1);
                        insert(&mut c, "e", "c", id..id + 1);
                        run(
                            &mut c,
                            "d",
                            &format!("{{delete: 'c', deletes: [{{q: {{k: {id}}}, limit: 1}}]}}"),
                        );
                    }
                }
            });
        }
    });
    let counts = [440, 480, 520];
    for (stream, count) in streams.iter_mut().zip(counts) {
        check_order(stream.until(count));
        // Each document was inserted, then changed, and then perhaps deleted.
        let mut of: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for event in &stream.events {
            let told = told(event);
            let (what, which) = told.split_once(' ').unwrap();
            let db = event.as_doc().get_doc("ns").unwrap().get_str("db").unwrap();
            of.entry(format!("{db} {which}"))
                .or_default()
                .push(what.to_string());
        }
        for (which, what) in of {
            match what.len() {
                1 => assert_eq!(what, ["insert"], "{which}"),
                2 => assert_eq!(what, ["insert", "update"], "{which}"),
                _ => assert_eq!(what, ["insert", "update", "delete"], "{which}"),
            }
        }
    }
    let all: Vec<DocBuf> = streams[2].events.clone();
    let of_d = |e: &&DocBuf| e.as_doc().get_doc("ns").unwrap().get_str("db") == Some("d");
    let of_d: Vec<String> = all.iter().filter(of_d).map(told).collect();
    assert_eq!(of_d, streams[1].told());
}

#[test]
fn any_router_resumes_at_any_token() {
    let mut cluster = Cluster::start(3, 1, 2);
    let mut c = cluster.connect();
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {k: 'hashed'}}",
    );
    let mut stream = Stream::open(&cluster.routers[0], "d", "c", "{}", "");
    let begin = stream.token.clone();
    // A transaction over all shards, whose events have one time on each.
    let within = "lsid: {id: UUID('00000000-0000-4000-8000-000000000007')}, txnNumber: NumberLong(1), autocommit: false";
    let docs: Vec<String> = (0..12).map(|i| format!("{{_id: {i}, k: {i}}}")).collect();
    let docs = docs.join(", ");
    run(
        &mut c,
        "d",
        &format!("{{insert: 'c', documents: [{docs}], {within}, startTransaction: true}}"),
    );
    run(
        &mut c,
        "admin",
        &format!("{{commitTransaction: 1, {within}}}"),
    );
    insert(&mut c, "d", "c", 20..40);
    stream.until(32);
    let mark = stream.token.clone();
    for id in 20..26 {
        run(
            &mut c,
            "d",
            &format!("{{update: 'c', updates: [{{q: {{k: {id}}}, u: {{$set: {{x: 1}}}}}}]}}"),
        );
    }
    let all = stream.until(38).to_vec();
    check_order(&all);
    let parts = all.iter().filter(|e| e.as_doc().get("txnNumber").is_some());
    let parts: Vec<u64> = parts.map(time_of).collect();
    assert_eq!(parts.len(), 12);
    let mut times = parts.clone();
    times.dedup();
    assert!(
        (1..=3).contains(&times.len()),
        "one time for each shard: {parts:?}"
    );
    // The router that has opened the stream goes.
    cluster.routers[0].kill9();
    let rest = |options: DocBuf, count: usize| {
        let mut again = Stream::open_with(&cluster.routers[1], "d", "c", &options, "");
        assert_eq!(again.until(count), &all[38 - count..], "{options:?}");
    };
    for (n, event) in all.iter().enumerate() {
        let option = if n % 2 == 0 {
            "resumeAfter"
        } else {
            "startAfter"
        };
        let mut options = DocBuf::new();
        options.append(option, token_of(event));
        rest(options, 37 - n);
    }
    rest(doc! { "resumeAfter": begin }, 38);
    rest(doc! { "resumeAfter": mark }, 6);
    // A time is a place, too: what has happened at it is given.
    let time = time_of(&all[20]);
    let first = all.iter().position(|e| time_of(e) == time).unwrap();
    let (t, i) = ((time >> 32) as u32, time as u32);
    rest(
        doc! { "startAtOperationTime": Value::Timestamp { t, i } },
        38 - first,
    );
    // A token of an event that is not the stream's.
    let mut c = cluster.routers[1].connect();
    let foreign = token_of(&all[20]);
    let stage = doc! { "$changeStream": doc! { "resumeAfter": &foreign } };
    let open = doc! { "aggregate": "other", "pipeline": array![stage], "cursor": doc! {} };
    let opened = c.command("d", &open).map(|reply| {
        let cursor = reply.as_doc().get_doc("cursor").unwrap();
        let id = cursor.get("id").unwrap().as_i64_exact().unwrap();
        let more = doc! { "getMore": id, "collection": "other", "maxTimeMS": 5000 };
        insert(&mut c, "d", "other", 0..1);
        c.command("d", &more).expect_err("there is no such event")
    });
    let e = opened.unwrap_or_else(|e| e);
    assert_eq!(e.code().0, 280, "{e}");
}

#[test]
fn a_silent_shard_holds_nothing_up() {
    let cluster = Cluster::start(3, 1, 1);
    let mut c = cluster.connect();
    run(&mut c, "admin", "{enableSharding: 'd', primaryShard: 's0'}");
    insert(&mut c, "d", "c", 0..1);
    let mut stream = Stream::open(&cluster.routers[0], "admin", "all", "{}", "");
    let mut waits = Vec::new();
    for n in 1..=20 {
        insert(&mut c, "d", "c", n..n + 1);
        let began = Instant::now();
        stream.until(n as usize);
        waits.push(began.elapsed());
    }
    // Nothing happens on the other shards, whose getMore takes a second then. So the shards were asked.
    waits.sort();
    assert!(waits[10] < Duration::from_millis(500), "{waits:?}");
    // Without events the token moves on, so that it stays within the logs.
    let before = stream.token.clone();
    insert(&mut c, "d", "c", 100..101);
    stream.until(21);
    assert!(data(&stream.token) > data(&before));
    assert!(data(&stream.token) >= data(&token_of(&stream.events[20])));
}

#[test]
fn changes_of_the_catalog_are_told_once() {
    let cluster = Cluster::start(3, 1, 1);
    let mut c = cluster.connect();
    run(&mut c, "admin", "{enableSharding: 'd', primaryShard: 's1'}");
    let expanded = "{showExpandedEvents: true}";
    let mut of_db = Stream::open(&cluster.routers[0], "d", "1", expanded, "");
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {k: 'hashed'}}",
    );
    run(
        &mut c,
        "d",
        "{createIndexes: 'c', indexes: [{key: {x: 1}, name: 'x'}]}",
    );
    let mut of_collection = Stream::open(&cluster.routers[0], "d", "c", "{}", "");
    insert(&mut c, "d", "c", 0..6);
    run(&mut c, "d", "{collMod: 'c', validationLevel: 'moderate'}");
    run(&mut c, "d", "{dropIndexes: 'c', index: 'x'}");
    run(&mut c, "d", "{drop: 'c'}");
    let seen = of_collection.end();
    assert_eq!(seen.len(), 8, "{seen:?}");
    assert_eq!(seen[6..], ["drop c", "invalidate -"]);
    // It goes on after the invalidation, with the next collection of the name.
    let end = token_of(of_collection.events.last().unwrap());
    let mut options = DocBuf::new();
    options.append("startAfter", &end);
    let mut next = Stream::open_with(&cluster.routers[0], "d", "c", &options, "");
    let after = doc! { "$changeStream": doc! { "resumeAfter": end } };
    let after = doc! { "aggregate": "c", "pipeline": array![after], "cursor": doc! {} };
    assert_eq!(c.command("d", &after).expect_err("invalid").code().0, 260);
    run(&mut c, "admin", "{shardCollection: 'd.c', key: {k: 1}}");
    insert(&mut c, "d", "c", 7..8);
    next.until(1);
    let index = "{createIndexes: 'c', indexes: [{key: {k: 1, _id: 1}, name: 'longer'}]}";
    run(&mut c, "d", index);
    run(
        &mut c,
        "admin",
        "{refineCollectionShardKey: 'd.c', key: {k: 1, _id: 1}}",
    );
    run(&mut c, "admin", "{reshardCollection: 'd.c', key: {_id: 1}}");
    insert(&mut c, "d", "other", 8..9);
    run(&mut c, "d", "{dropDatabase: 1}");
    assert_eq!(next.end(), ["insert c 7", "drop c", "invalidate -"]);
    let all = of_db.end();
    let catalog: Vec<&String> = all.iter().filter(|t| !t.starts_with("insert")).collect();
    let expected = [
        "create c",
        "createIndexes c",
        "shardCollection c",
        "createIndexes c",
        "modify c",
        "dropIndexes c",
        "drop c",
        "create c",
        "createIndexes c",
        "shardCollection c",
        "createIndexes c",
        "refineCollectionShardKey c",
        "reshardCollection c",
        "create other",
        "drop c",
        "drop other",
        "dropDatabase -",
        "invalidate -",
    ];
    assert_eq!(catalog, expected);
    assert_eq!(all.len(), expected.len() + 8);
    let described = |name: &str| {
        let mut all = of_db.events.iter();
        let event = all.find(|d| told(d) == format!("{name} c")).unwrap();
        let what = event.as_doc().get_doc("operationDescription").unwrap();
        let keys = ["oldShardKey", "shardKey"].map(|key| what.get_doc(key).map(|d| d.to_display()));
        keys.into_iter().flatten().collect::<Vec<_>>()
    };
    assert_eq!(described("shardCollection"), ["{ k: \"hashed\" }"]);
    let refined = ["{ k: 1 }", "{ k: 1, _id: 1 }"];
    assert_eq!(described("refineCollectionShardKey"), refined);
    assert_eq!(
        described("reshardCollection"),
        ["{ k: 1, _id: 1 }", "{ _id: 1 }"]
    );
}

#[test]
fn a_shard_that_is_added_is_watched() {
    let cluster = Cluster::prepare(3, 1, 2, &[]);
    let mut c = cluster.connect();
    for shard in &cluster.shards[..2] {
        c.command("admin", &doc! { "addShard": shard.address() })
            .unwrap();
    }
    // What the set had before is not told.
    let mut direct = cluster.shards[2].connect(0);
    insert(&mut direct, "old", "c", 0..3);
    insert(&mut c, "d", "c", 0..1);
    let mut streams = [0, 1].map(|i| Stream::open(&cluster.routers[i], "admin", "all", "{}", ""));
    insert(&mut c, "d", "c", 1..2);
    for stream in &mut streams {
        stream.until(1);
    }
    let early = token_of(&streams[0].events[0]);
    c.command("admin", &doc! { "addShard": cluster.shards[2].address() })
        .unwrap();
    run(&mut c, "admin", "{enableSharding: 'e', primaryShard: 's2'}");
    insert(&mut c, "e", "c", 2..3);
    insert(&mut c, "d", "c", 3..4);
    insert(&mut c, "old", "c", 4..5);
    let expected = ["insert c 1", "insert c 2", "insert c 3", "insert c 4"];
    for stream in &mut streams {
        stream.until(4);
        assert_eq!(stream.told(), expected);
        check_order(&stream.events);
    }
    let mut options = DocBuf::new();
    options.append("resumeAfter", &early);
    let mut again = Stream::open_with(&cluster.routers[1], "admin", "all", &options, "");
    again.until(3);
    assert_eq!(again.told(), expected[1..]);
}

#[test]
fn documents_are_looked_up_where_they_are() {
    let cluster = Cluster::start(3, 1, 1);
    let mut c = cluster.connect();
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {k: 'hashed'}}",
    );
    run(
        &mut c,
        "d",
        "{collMod: 'c', changeStreamPreAndPostImages: {enabled: true}}",
    );
    insert(&mut c, "d", "c", 0..30);
    insert(&mut c, "d", "whole", 0..1);
    let options = "{fullDocument: 'updateLookup', fullDocumentBeforeChange: 'required'}";
    let stages = "{$match: {operationType: 'update'}}, {$match: {'fullDocument.n': {$ne: 4}}}, {$set: {more: '$fullDocument.n'}}";
    let mut stream = Stream::open(&cluster.routers[0], "d", "c", options, stages);
    let lookup = "{fullDocument: 'updateLookup'}";
    let mut of_db = Stream::open(
        &cluster.routers[0],
        "d",
        "1",
        lookup,
        "{$match: {operationType: 'update'}}",
    );
    for id in 0..8 {
        let set =
            format!("{{update: 'c', updates: [{{q: {{k: {id}}}, u: {{$set: {{n: {id}}}}}}}]}}");
        run(&mut c, "d", &set);
    }
    run(
        &mut c,
        "d",
        "{delete: 'c', deletes: [{q: {k: 7}, limit: 1}]}",
    );
    run(
        &mut c,
        "d",
        "{update: 'whole', updates: [{q: {_id: 0}, u: {$set: {n: 9}}}]}",
    );
    let events = stream.until(7).to_vec();
    for event in &events {
        let d = event.as_doc();
        let key = d.get_doc("documentKey").unwrap();
        let names: Vec<&str> = key.iter().map(|e| e.name()).collect();
        assert_eq!(names, ["k", "_id"]);
        let id = d
            .get_doc("documentKey")
            .unwrap()
            .get("_id")
            .unwrap()
            .as_i64_exact()
            .unwrap();
        assert_ne!(id, 4);
        let before = d.get_doc("fullDocumentBeforeChange").unwrap();
        assert_eq!(before.to_display(), format!("{{ _id: {id}, k: {id} }}"));
        match d.get("fullDocument").unwrap() {
            Value::Null => assert_eq!(id, 7),
            full => {
                let full = full.as_doc().unwrap();
                assert_eq!(
                    full.to_display(),
                    format!("{{ _id: {id}, k: {id}, n: {id} }}")
                );
                assert_eq!(d.get("more").unwrap().as_i64_exact(), Some(id));
            }
        }
    }
    let whole = of_db.until(9)[8].clone();
    let full = whole.as_doc().get_doc("fullDocument").unwrap();
    assert_eq!(full.to_display(), "{ _id: 0, k: 0, n: 9 }");
    // It goes on in the middle, and a stage must not take the token away.
    let mut options = shell(lookup);
    options.append("resumeAfter", token_of(&events[2]));
    let mut again = Stream::open_with(
        &cluster.routers[0],
        "d",
        "c",
        &options,
        "{$match: {operationType: 'update'}}",
    );
    again.until(5);
    let mut broken = Stream::open(&cluster.routers[0], "d", "c", lookup, "{$unset: '_id'}");
    run(
        &mut c,
        "d",
        "{update: 'c', updates: [{q: {k: 1}, u: {$set: {n: 50}}}]}",
    );
    let more = doc! { "getMore": broken.id, "collection": "c", "maxTimeMS": 20_000 };
    let e = broken.c.command("d", &more).expect_err("the token is gone");
    assert_eq!(e.code().0, 280, "{e}");
}

#[test]
fn large_events_are_split() {
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
        "{collMod: 'c', changeStreamPreAndPostImages: {enabled: true}}",
    );
    let text = "x".repeat(9 << 20);
    let big = doc! { "_id": 1, "k": 1, "text": text.as_str() };
    c.command("d", &doc! { "insert": "c", "documents": array![big] })
        .unwrap();
    for full in ["updateLookup", "whenAvailable"] {
        let options = doc! { "fullDocument": full, "fullDocumentBeforeChange": "required" };
        let split = "{$changeStreamSplitLargeEvent: {}}";
        let mut stream = Stream::open_with(&cluster.routers[0], "d", "c", &options, split);
        run(
            &mut c,
            "d",
            "{update: 'c', updates: [{q: {k: 1}, u: {$inc: {n: 1}}}]}",
        );
        let parts = stream.until(2).to_vec();
        let mut options = options.clone();
        options.append("resumeAfter", token_of(&parts[0]));
        let mut again = Stream::open_with(&cluster.routers[0], "d", "c", &options, split);
        assert_eq!(again.until(1), &parts[1..], "{full}");
        let stage = doc! { "$changeStream": options };
        let without = doc! { "aggregate": "c", "pipeline": array![stage], "cursor": doc! {} };
        assert_eq!(c.command("d", &without).expect_err(full).code().0, 280);
    }
}

#[test]
fn streams_end_on_the_shards_as_well() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {k: 'hashed'}}",
    );
    let stream = Stream::open(&cluster.routers[0], "d", "c", "{}", "");
    assert_eq!(open_cursors(&cluster), 3);
    run(
        &mut c,
        "d",
        &format!(
            "{{killCursors: 'c', cursors: [NumberLong('{}')]}}",
            stream.id
        ),
    );
    assert_eq!(open_cursors(&cluster), 0);
    // While the client waits: it is told, or it has gone.
    let mut stream = Stream::open(&cluster.routers[0], "d", "c", "{}", "");
    let id = stream.id;
    thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let more = doc! { "getMore": stream.id, "collection": "c", "maxTimeMS": 60_000 };
            stream
                .c
                .command("d", &more)
                .expect_err("it was killed")
                .code()
                .0
        });
        cluster.routers[0].until("the getMore waits", || {
            let ops = run(
                &mut c,
                "admin",
                "{currentOp: 1, 'command.getMore': {$exists: true}}",
            );
            let ops = ops.as_doc().get_array("inprog").unwrap();
            (!ops.is_empty()).then_some(())
        });
        run(
            &mut c,
            "d",
            &format!("{{killCursors: 'c', cursors: [NumberLong('{id}')]}}"),
        );
        assert_eq!(waiting.join().unwrap(), 237);
    });
    cluster.routers[0].until("the cursors are gone", || {
        (open_cursors(&cluster) == 0).then_some(())
    });
    let mut gone = Stream::open(&cluster.routers[0], "d", "c", "{}", "");
    let more = doc! { "getMore": gone.id, "collection": "c", "maxTimeMS": 60_000 };
    gone.c.send_command("d", &more, 0, &[]).unwrap();
    drop(gone);
    cluster.routers[0].until("the cursors are gone", || {
        (open_cursors(&cluster) == 0).then_some(())
    });
}

#[test]
fn what_is_refused() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    run(&mut c, "d", "{create: 'v', viewOn: 'c', pipeline: []}");
    let open = |options: &str, more: &str| {
        format!("{{aggregate: 'c', pipeline: [{{$changeStream: {options}}}{more}], cursor: {{}}}}")
    };
    for (db, command, code) in [
        ("d", open("{$shard: 's0'}", ""), 72),
        ("d", open("{allChangesForCluster: true}", ""), 72),
        ("d", open("{}", ", {$group: {_id: 1}}"), 20),
        ("d", open("{resumeAfter: {_data: '00'}}", ""), 50_811),
        ("config", open("{}", ""), 73),
        ("admin", open("{}", ""), 73),
        ("d", open("{}", "").replace("'c'", "'v'"), 166),
        ("d", format!("{{explain: {}}}", open("{}", "")), 20),
        (
            "d",
            open("{}", "").replace("cursor: {}", "explain: true"),
            20,
        ),
    ] {
        fails(&mut c, db, &command, code);
    }
    // A client of the shard is no member, and asks for its part in vain.
    let mut direct = cluster.shards[0].connect(0);
    fails(&mut direct, "d", &open("{$shard: 's0'}", ""), 72);
}

#[test]
fn keys_of_documents_have_the_shard_key() {
    let cluster = Cluster::start(2, 1, 1);
    let mut c = cluster.connect();
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {'a.b': 1, k: 1}}",
    );
    let mut stream = Stream::open(&cluster.routers[0], "d", "c", "{}", "");
    run(
        &mut c,
        "d",
        "{insert: 'c', documents: [{_id: 1, a: {b: 2}, k: 3}, {_id: 2, k: 4}]}",
    );
    for command in [
        "{update: 'c', updates: [{q: {_id: 1}, u: {$set: {x: 1}}}]}",
        "{update: 'c', updates: [{q: {_id: 1}, u: {_id: 1, a: {b: 5}, k: 3}}]}",
        "{delete: 'c', deletes: [{q: {k: {$gt: 0}}, limit: 0}]}",
    ] {
        run(&mut c, "d", command);
    }
    let keys = stream.until(6).iter().map(|e| {
        let key = e.as_doc().get_doc("documentKey").unwrap();
        key.to_display()
    });
    let keys: Vec<String> = keys.collect();
    let (whole, part) = ("{ a.b: 2, k: 3, _id: 1 }", "{ k: 4, _id: 2 }");
    assert_eq!(keys[..4], [whole, part, whole, whole]);
    let mut deleted = keys[4..].to_vec();
    deleted.sort();
    assert_eq!(deleted, ["{ a.b: 5, k: 3, _id: 1 }", part]);
    // In a transaction.
    let within = "lsid: {id: UUID('00000000-0000-4000-8000-000000000008')}, txnNumber: NumberLong(1), autocommit: false";
    run(
        &mut c,
        "d",
        &format!(
            "{{insert: 'c', documents: [{{_id: 9, k: 9}}], {within}, startTransaction: true}}"
        ),
    );
    run(
        &mut c,
        "admin",
        &format!("{{commitTransaction: 1, {within}}}"),
    );
    let key = stream.until(7)[6].as_doc().get_doc("documentKey").unwrap();
    assert_eq!(key.to_display(), "{ k: 9, _id: 9 }");
}

#[test]
fn moves_of_ranges_and_collections_change_nothing() {
    let cluster = Cluster::start(3, 1, 1);
    let mut c = cluster.connect();
    run(&mut c, "admin", "{enableSharding: 'd', primaryShard: 's0'}");
    run(&mut c, "admin", "{shardCollection: 'd.c', key: {k: 1}}");
    run(&mut c, "admin", "{split: 'd.c', middle: {k: 100}}");
    insert(&mut c, "d", "c", 0..50);
    insert(&mut c, "d", "whole", 0..1);
    let options = "{showExpandedEvents: true, fullDocument: 'updateLookup'}";
    let mut stream = Stream::open(&cluster.routers[0], "d", "1", options, "");
    let set = |c: &mut Connection, name: &str, id: i32, n: i32| {
        let command = doc! { "update": name, "updates": array![
            doc! { "q": doc! { "_id": id, "k": id }, "u": doc! { "$set": doc! { "n": n } } },
        ] };
        let reply = c.command("d", &command).unwrap();
        assert_eq!(
            reply.as_doc().get("nModified").unwrap().as_i64_exact(),
            Some(1)
        );
    };
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut c = cluster.connect();
            for n in 1..=20 {
                for id in 0..10 {
                    set(&mut c, "c", id, n);
                }
            }
        });
        for to in ["s1", "s2", "s0", "s1"] {
            run(
                &mut c,
                "admin",
                &format!("{{moveChunk: 'd.c', find: {{k: 1}}, to: '{to}'}}"),
            );
        }
        writer.join().unwrap();
    });
    set(&mut c, "whole", 0, 1);
    run(
        &mut c,
        "admin",
        "{moveCollection: 'd.whole', toShard: 's2'}",
    );
    set(&mut c, "whole", 0, 2);
    run(
        &mut c,
        "admin",
        "{moveCollection: 'd.whole', toShard: 's0'}",
    );
    set(&mut c, "whole", 0, 3);
    run(&mut c, "d", "{drop: 'whole'}");
    let events = stream.until(204).to_vec();
    check_order(&events);
    let mut newest = BTreeMap::new();
    for event in &events[..200] {
        let d = event.as_doc();
        let fields = d
            .get_doc("updateDescription")
            .unwrap()
            .get_doc("updatedFields")
            .unwrap();
        let n = fields.get("n").unwrap().as_i64_exact().unwrap();
        let before = newest.insert(told(event), n).unwrap_or(0);
        assert_eq!(n, before + 1, "{}", told(event));
        // The document is as it is now, wherever.
        let full = d
            .get_doc("fullDocument")
            .unwrap_or_else(|| panic!("{event:?}"));
        assert!(full.get("n").unwrap().as_i64_exact() >= Some(n));
    }
    let rest: Vec<String> = events[200..].iter().map(told).collect();
    assert_eq!(
        rest,
        [
            "update whole 0",
            "update whole 0",
            "update whole 0",
            "drop whole"
        ]
    );
}

#[test]
fn a_database_that_moves_is_told_of_by_its_new_shard() {
    let cluster = Cluster::start(3, 1, 1);
    let mut c = cluster.connect();
    run(&mut c, "admin", "{enableSharding: 'd', primaryShard: 's0'}");
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {k: 'hashed'}}",
    );
    insert(&mut c, "d", "whole", 0..1);
    let mut stream = Stream::open(
        &cluster.routers[0],
        "d",
        "1",
        "{showExpandedEvents: true}",
        "",
    );
    run(&mut c, "admin", "{movePrimary: 'd', to: 's1'}");
    // One that is opened now, on a shard that the database has left, too.
    let mut later = Stream::open(&cluster.routers[0], "d", "c", "{}", "");
    insert(&mut c, "d", "c", 0..12);
    later.until(12);
    insert(&mut c, "d", "whole", 1..2);
    run(
        &mut c,
        "d",
        "{createIndexes: 'whole', indexes: [{key: {x: 1}, name: 'x'}]}",
    );
    run(&mut c, "d", "{drop: 'whole'}");
    run(&mut c, "admin", "{movePrimary: 'd', to: 's2'}");
    run(&mut c, "d", "{collMod: 'c', validationLevel: 'moderate'}");
    run(&mut c, "d", "{drop: 'c'}");
    run(&mut c, "d", "{create: 'new'}");
    stream.until(18);
    let expected = [
        "insert whole 1",
        "createIndexes whole",
        "drop whole",
        "modify c",
        "drop c",
        "create new",
    ];
    let told = stream.told();
    let told: Vec<&String> = told
        .iter()
        .filter(|t| !t.starts_with("insert c "))
        .collect();
    assert_eq!(told, expected);
}

#[test]
fn streams_go_on_after_an_election() {
    let mut cluster = Cluster::start(2, 3, 1);
    let mut c = cluster.connect();
    run(
        &mut c,
        "admin",
        "{shardCollection: 'd.c', key: {k: 'hashed'}}",
    );
    let open = |cluster: &Cluster, options: &DocBuf| {
        Stream::open_with(&cluster.routers[0], "d", "c", options, "")
    };
    let mut stream = open(&cluster, &doc! {});
    let router = &cluster.routers[0];
    let mut of_secondaries = Stream::open_at(router, ("d", "c"), &doc! {}, "", "secondary");
    insert(&mut c, "d", "c", 0..20);
    stream.until(20);
    of_secondaries.until(20);
    check_order(&of_secondaries.events);
    assert_eq!(stream.events, of_secondaries.events);
    let primary = cluster.shards[0].primary();
    cluster.shards[0].members[primary].kill9();
    for id in 20..40 {
        let insert = doc! { "insert": "c", "documents": documents(id..id + 1) };
        cluster.routers[0].until("the new primary takes it", || {
            let reply = c.command("d", &insert).ok()?;
            // The first attempt may have been executed.
            let errors = reply.as_doc().get_array("writeErrors");
            let error =
                errors.and_then(|all| all.values().next()?.as_doc()?.get("code")?.as_i64_exact());
            (error.is_none() || error == Some(11_000)).then_some(())
        });
    }
    let mut resumed = 0;
    while stream.events.len() < 40 {
        let more = doc! { "getMore": stream.id, "collection": "c", "maxTimeMS": 1000 };
        let reply = stream.c.command_raw("d", &more).unwrap();
        if reply.as_doc().get("ok").is_some_and(|ok| ok.truthy()) {
            stream.take(&reply, "nextBatch");
            continue;
        }
        let labels = reply.as_doc().get_array("errorLabels");
        let labels: Vec<&str> = labels
            .iter()
            .flat_map(|l| l.values())
            .filter_map(|l| l.as_str())
            .collect();
        assert_eq!(labels, ["ResumableChangeStreamError"], "{reply:?}");
        resumed += 1;
        let events = std::mem::take(&mut stream.events);
        let options = doc! { "resumeAfter": &stream.token };
        stream = open(&cluster, &options);
        let new = std::mem::replace(&mut stream.events, events);
        stream.events.extend(new);
    }
    assert!(resumed > 0, "the primary had the cursor");
    check_order(&stream.events);
    let ids: BTreeMap<String, usize> = stream.told().into_iter().map(|t| (t, 1)).collect();
    assert_eq!((ids.len(), stream.events.len()), (40, 40));
}

#[test]
fn a_shard_that_is_removed_is_watched_no_more() {
    let mut cluster = Cluster::start(3, 1, 1);
    let mut c = cluster.connect();
    run(&mut c, "admin", "{enableSharding: 'd', primaryShard: 's0'}");
    run(&mut c, "admin", "{enableSharding: 'e', primaryShard: 's2'}");
    insert(&mut c, "e", "c", 0..1);
    let mut stream = Stream::open(&cluster.routers[0], "admin", "all", "{}", "");
    insert(&mut c, "e", "c", 1..2);
    run(&mut c, "e", "{drop: 'c'}");
    run(&mut c, "admin", "{removeShard: 's2'}");
    run(&mut c, "admin", "{movePrimary: 'e', to: 's1'}");
    cluster.routers[0].until("the shard is removed", || {
        let reply = c.command("admin", &shell("{removeShard: 's2'}")).ok()?;
        (reply.as_doc().get_str("state") == Some("completed")).then_some(())
    });
    stream.until(2);
    insert(&mut c, "d", "c", 2..3);
    stream.until(3);
    cluster.shards[2].members[0].kill9();
    insert(&mut c, "e", "c", 3..4);
    stream.until(4);
    assert_eq!(
        stream.told(),
        ["insert c 1", "drop c", "insert c 2", "insert c 3"]
    );
}
