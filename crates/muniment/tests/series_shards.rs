//! Time series that are divided over shards by their meta field and time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod moving;

use moving::*;
use muniment_value::{ArrayBuf, DocBuf, Value, doc};
use muniment_wire::Connection;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Cluster, shell};

/// The time of the first measurement, and the time between two of them, in milliseconds.
const BEGIN: i64 = 1_600_000_000_000;
const STEP: i64 = 30_000;
/// What a series is made with.
const OPTIONS: &str = "{timeField: 'at', metaField: 'm', granularity: 'minutes'}";

/// A measurement. One of thirteen has no label, and two in succession have the same time; their `_id`s are not unique.
fn measurement(i: i64) -> DocBuf {
    let mut d =
        doc! { "_id": i % 50, "at": Value::DateTime(BEGIN + i / 2 * STEP), "v": i, "w": i % 3 };
    if i % 13 != 0 {
        d.append(
            "m",
            doc! { "dev": i % 8, "area": if i % 3 == 0 { "a" } else { "b" } },
        );
    }
    d
}

fn date(i: i64) -> String {
    format!("{{$date: {}}}", BEGIN + i / 2 * STEP)
        .replace("{$date: ", "Date(")
        .replace('}', ")")
}

/// A series that is divided, `d.t`, and one that is not, `d.w`, with the same measurements.
fn twins(c: &mut Connection, key: &str, at: &[String], n: i64) {
    run(c, "admin", "{enableSharding: 'd', primaryShard: 's0'}");
    run(c, "d", &format!("{{create: 'w', timeseries: {OPTIONS}}}"));
    run(
        c,
        "admin",
        &format!("{{shardCollection: 'd.t', key: {key}, timeseries: {OPTIONS}}}"),
    );
    for middle in at {
        run(c, "admin", &format!("{{split: 'd.t', middle: {middle}}}"));
    }
    for name in ["t", "w"] {
        insert(c, "d", name, (0..n).map(measurement));
        run(
            c,
            "d",
            &format!("{{createIndexes: '{name}', indexes: [{{key: {{v: 1}}, name: 'v_1'}}]}}"),
        );
    }
}

/// Commands whose results are compared; `true` for those that have an order.
fn questions() -> Vec<(bool, String)> {
    let (a, b) = (date(100), date(260));
    let find = |rest: &str| format!("{{find: 'NAME', {rest}}}");
    let pipeline =
        |stages: &str| format!("{{aggregate: 'NAME', pipeline: [{stages}], cursor: {{}}}}");
    let buckets = "{$project: {meta: 1, n: {$size: {$objectToArray: '$data.at'}}}}";
    let mut all = Vec::new();
    for (ordered, rest) in [
        (false, "filter: {}".to_string()),
        (false, "filter: {'m.dev': 3}, batchSize: 7".to_string()),
        (false, "filter: {'m.dev': {$gte: 2, $lt: 5}}".to_string()),
        (false, "filter: {'m.dev': null}".to_string()),
        (false, "filter: {m: {$exists: false}}".to_string()),
        (false, "filter: {m: {dev: 4, area: 'b'}}".to_string()),
        (false, format!("filter: {{at: {{$gte: {a}, $lt: {b}}}}}")),
        (
            false,
            format!("filter: {{'m.dev': {{$in: [1, 6]}}, at: {{$gt: {a}}}}}"),
        ),
        (
            false,
            format!("filter: {{at: {a}}}, projection: {{_id: 0, v: 1}}"),
        ),
        (true, "sort: {at: 1, v: 1}".to_string()),
        (true, "sort: {at: -1, v: 1}, skip: 5, limit: 40".to_string()),
        (
            true,
            format!("filter: {{'m.dev': 2, at: {{$lt: {b}}}}}, sort: {{at: 1}}"),
        ),
        (
            true,
            "filter: {v: {$lt: 90}}, sort: {v: 1}, hint: 'v_1'".to_string(),
        ),
        (true, "filter: {_id: 7}, sort: {v: -1}".to_string()),
    ] {
        all.push((ordered, find(&rest)));
    }
    for (ordered, stages) in [
        (
            true,
            "{$group: {_id: '$m.dev', n: {$sum: 1}, v: {$sum: '$v'}, last: {$max: '$at'}}}, {$sort: {_id: 1}}",
        ),
        (
            true,
            "{$match: {'m.dev': 5}}, {$group: {_id: {$dateTrunc: {date: '$at', unit: 'hour'}}, v: {$avg: '$v'}}}, {$sort: {_id: 1}}",
        ),
        (
            true,
            "{$setWindowFields: {partitionBy: '$m.dev', sortBy: {v: 1}, output: {sum: {$sum: '$v', window: {documents: [-2, 0]}}}}}, {$sort: {v: 1}}",
        ),
        (true, "{$sort: {at: 1, v: 1}}, {$limit: 30}"),
        (true, "{$count: 'n'}"),
        (
            true,
            "{$match: {v: {$lt: 20}}}, {$lookup: {from: 'NAME', localField: 'v', foreignField: 'v', as: 'same'}}, {$sort: {v: 1}}",
        ),
        (
            true,
            "{$unionWith: 'NAME'}, {$group: {_id: null, n: {$sum: 1}, v: {$sum: '$v'}}}",
        ),
        (
            true,
            "{$facet: {one: [{$match: {'m.dev': 1}}, {$count: 'n'}], all: [{$group: {_id: null, v: {$sum: '$v'}}}]}}",
        ),
    ] {
        all.push((ordered, pipeline(stages)));
    }
    let of_buckets = format!("{buckets}, {{$group: {{_id: '$meta', n: {{$sum: '$n'}}}}}}");
    all.push((
        false,
        pipeline(&of_buckets).replace("NAME", "system.buckets.NAME"),
    ));
    all
}

/// Everything that clients find in a series.
fn seen(c: &mut Connection, name: &str) -> Vec<String> {
    let mut out = Vec::new();
    for (ordered, question) in questions() {
        let found = all(c, "d", &question.replace("NAME", name));
        let mut shown: Vec<String> = found.iter().map(|d| d.as_doc().to_display()).collect();
        if !ordered {
            shown.sort();
        }
        out.push(format!("{question}: {} {shown:?}", shown.len()));
    }
    for filter in ["{}", "{'m.dev': 3}", "{'m.dev': {$ne: 3}, v: {$gt: 50}}"] {
        let n = run(c, "d", &format!("{{count: '{name}', query: {filter}}}"));
        out.push(format!("{filter}: {}", number(&n, "n")));
    }
    for key in ["m.dev", "m", "w"] {
        let found = run(c, "d", &format!("{{distinct: '{name}', key: '{key}'}}"));
        let found = found.as_doc().get_array("values").unwrap();
        let mut found: Vec<_> = found.values().map(|v| v.to_display()).collect();
        found.sort();
        out.push(format!("{key}: {found:?}"));
    }
    out
}

fn compare(c: &mut Connection, when: &str) {
    let (divided, whole) = (seen(c, "t"), seen(c, "w"));
    for (divided, whole) in divided.iter().zip(&whole) {
        assert_eq!(divided, whole, "{when}");
    }
}

/// Each shard's own measurements.
fn on_shards(cluster: &Cluster) -> Vec<i64> {
    let count = |shard: &testkit::Set| {
        let c = &mut shard.connect(shard.primary());
        let counted = all(
            c,
            "d",
            "{aggregate: 't', pipeline: [{$count: 'n'}], cursor: {}}",
        );
        counted.first().map_or(0, |d| number(d, "n"))
    };
    cluster.shards.iter().map(count).collect()
}

/// The number of measurements and the sum of their values at a time, or now, and that time.
fn sum_at(c: &mut Connection, at: Option<&DocBuf>) -> (DocBuf, String) {
    let at = at.cloned().unwrap_or_else(|| {
        let find = "{find: 't', limit: 1, readConcern: {level: 'snapshot'}}";
        let now = run(c, "d", find);
        let cursor = now.as_doc().get_doc("cursor").unwrap();
        doc! { "atClusterTime": cursor.get("atClusterTime").unwrap() }
    });
    let mut concern = doc! { "level": "snapshot" };
    concern.append_all(at.as_doc());
    let group = "{$group: {_id: null, n: {$sum: 1}, v: {$sum: '$v'}, seen: {$sum: '$m.seen'}}}";
    let mut sum = shell(&format!(
        "{{aggregate: 't', pipeline: [{group}], cursor: {{}}}}"
    ));
    sum.append("readConcern", concern);
    let reply = c.command("d", &sum).unwrap();
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    let batch = cursor.get_array("firstBatch").unwrap();
    (at, batch.to_display())
}

/// A divided series gives the same answers as a whole one, before and after its ranges move and measurements change.
fn answers_stay_the_same(key: &str, at: &[String]) {
    let cluster = cluster(2, 1, 2);
    let mut c = cluster.connect();
    let mut late = cluster.routers[1].connect();
    twins(&mut c, key, at, 400);
    compare(&mut c, "before");
    let (mut dice, mut spread) = (Dice(11), false);
    for turn in 0..6 {
        let all = chunks(&mut c, "d.t");
        let chunk = &all[dice.below(all.len())];
        let to = other(&chunk.shard);
        let when = format!("{key}, turn {turn}: {chunk:?} to {to}");
        let before = sum_at(&mut c, None);
        move_to(&mut c, "d.t", chunk, to, turn % 2 == 0).unwrap_or_else(|e| panic!("{when}: {e}"));
        let c = if turn % 3 == 1 { &mut late } else { &mut c };
        for name in ["t", "w"] {
            for change in [
                "{delete: 'NAME', deletes: [{q: {'m.dev': TURN, 'm.area': 'a'}, limit: 0}]}",
                "{update: 'NAME', updates: [{q: {'m.area': 'b', v: {$lt: 300}}, u: {$set: {'m.seen': TURN}}, multi: true}]}",
            ] {
                // By the whole of the meta field it would change the shard key.
                if key.contains("{m:") && change.contains("update") {
                    continue;
                }
                run(
                    c,
                    "d",
                    &change
                        .replace("NAME", name)
                        .replace("TURN", &turn.to_string()),
                );
            }
            insert(
                c,
                "d",
                name,
                (400 + turn * 20..420 + turn * 20).map(measurement),
            );
        }
        compare(c, &when);
        // What was there before the move is found by its time.
        assert_eq!(sum_at(c, Some(&before.0)).1, before.1, "{when}");
        spread |= on_shards(&cluster).iter().all(|n| *n > 0);
    }
    assert!(spread, "{key}");
    for shard in &cluster.shards {
        let valid = run(&mut shard.connect(0), "d", "{validate: 't', full: true}");
        assert!(valid.as_doc().get("valid").unwrap().truthy(), "{valid:?}");
    }
    // All of it comes together again on one shard.
    run(&mut c, "admin", "{unshardCollection: 'd.t'}");
    compare(&mut late, "undivided");
    assert_eq!(chunks(&mut c, "d.t").len(), 0);
}

#[test]
fn answers_stay_the_same_by_a_field_of_meta_and_time() {
    let at = ["2", "5"].map(|dev| format!("{{'m.dev': {dev}, at: {}}}", date(150)));
    answers_stay_the_same("{'m.dev': 1, at: 1}", &at);
}

#[test]
fn answers_stay_the_same_by_the_hash_of_meta() {
    answers_stay_the_same("{m: 'hashed', at: 1}", &[]);
}

#[test]
fn answers_stay_the_same_by_meta() {
    answers_stay_the_same("{m: 1}", &["{m: {dev: 3, area: 'b'}}".to_string()]);
}

#[test]
fn answers_stay_the_same_by_time() {
    answers_stay_the_same(
        "{at: 1}",
        &[60, 200, 330].map(|i| format!("{{at: {}}}", date(i))),
    );
}

fn collection(c: &mut Connection, ns: &str) -> DocBuf {
    let find = format!("{{find: 'collections', filter: {{_id: '{ns}'}}}}");
    all(c, "config", &find).pop().unwrap_or_default()
}

#[test]
fn a_series_is_divided_as_it_is_asked_for() {
    let cluster = cluster(2, 1, 1);
    let mut c = cluster.connect();
    run(&mut c, "admin", "{enableSharding: 'd', primaryShard: 's0'}");
    let shard = |key: &str, more: &str| format!("{{shardCollection: 'd.t', key: {key}{more}}}");
    let options = format!(", timeseries: {OPTIONS}");
    // Whether it is there or would be made.
    for made in [false, true] {
        if made {
            run(
                &mut c,
                "d",
                &format!("{{create: 't', timeseries: {OPTIONS}}}"),
            );
        }
        for (key, code) in [
            ("{at: 1, m: 1}", 5_914_000),
            ("{m: 1, v: 1}", 5_914_001),
            ("{_id: 1}", 5_914_001),
            ("{mm: 1}", 5_914_001),
            ("{at: 'hashed'}", 2),
            ("{m: -1}", 2),
        ] {
            let e = fails(&mut c, "admin", &shard(key, &options), code);
            if code == 5_914_000 {
                assert!(e.message().contains("'at'"), "{e}");
            }
        }
        fails(
            &mut c,
            "admin",
            &shard("{m: 1}", &format!("{options}, unique: true")),
            72,
        );
        assert_eq!(names(&cluster, 0).is_empty(), !made);
    }
    let others = ", timeseries: {timeField: 'at', metaField: 'n'}";
    let shard_other = shard("{m: 1}", &options).replace("d.t", "d.o");
    fails(&mut c, "admin", &shard("{m: 1}", others), 5_731_500);
    run(&mut c, "d", "{create: 'plain'}");
    let plain = format!("{{shardCollection: 'd.plain', key: {{m: 1}}{options}}}");
    fails(&mut c, "admin", &plain, 5_731_500);
    // Measurements are there before; an index is needed then.
    insert(&mut c, "d", "t", (0..100).map(measurement));
    fails(&mut c, "admin", &shard("{'m.dev': 1}", ""), 72);
    run(&mut c, "admin", &shard("{m: 1, at: 1}", ""));
    let told = run(&mut c, "admin", &shard("{m: 1, at: 1}", &options));
    assert_eq!(told.as_doc().get_str("collectionsharded"), Some("d.t"));
    let of = collection(&mut c, "d.t");
    let fields = of.as_doc().get_doc("timeseriesFields").unwrap();
    assert_eq!(
        (fields.get_str("timeField"), fields.get_str("granularity")),
        (Some("at"), Some("minutes"))
    );
    // The key gets more fields, of which the time is the last.
    let more = |key: &str| format!("{{refineCollectionShardKey: 'd.t', key: {key}}}");
    run(&mut c, "admin", &shard_other);
    fails(
        &mut c,
        "admin",
        &more("{m: 1, v: 1}").replace("d.t", "d.o"),
        5_914_001,
    );
    run(
        &mut c,
        "admin",
        &more("{m: 1, at: 1}").replace("d.t", "d.o"),
    );
    fails(
        &mut c,
        "admin",
        "{reshardCollection: 'd.t', key: {at: 1}}",
        115,
    );
    fails(&mut c, "admin", "{renameCollection: 'd.t', to: 'd.u'}", 166);
    run(
        &mut c,
        "d",
        "{collMod: 't', timeseries: {granularity: 'hours'}}",
    );
    let of = collection(&mut c, "d.t");
    let fields = of.as_doc().get_doc("timeseriesFields").unwrap();
    assert_eq!(fields.get_str("granularity"), Some("hours"));
    // A shard that gets its first range later has the same options and indexes.
    run(
        &mut c,
        "admin",
        "{split: 'd.t', middle: {m: {dev: 4, area: 'a'}, at: MinKey}}",
    );
    let all_chunks = chunks(&mut c, "d.t");
    move_to(&mut c, "d.t", &all_chunks[1], "s1", true).unwrap();
    let listed = |shard: usize| {
        let c = &mut cluster.shards[shard].connect(0);
        let mut all_of = all(c, "d", "{listCollections: 1, filter: {name: /t$/}}");
        all_of.extend(all(c, "d", "{listIndexes: 't'}"));
        as_set(&all_of)
    };
    assert_eq!(listed(0), listed(1));
    assert!(on_shards(&cluster).iter().all(|n| *n > 0));
    let stats = run(&mut c, "d", "{collStats: 't'}");
    let series = stats.as_doc().get_doc("timeseries").unwrap();
    assert_eq!(series.get_str("bucketsNs"), Some("d.system.buckets.t"));
    // The plan of a filter that one shard can answer names that one.
    let plan = run(
        &mut c,
        "d",
        "{explain: {find: 't', filter: {m: {dev: 6, area: 'b'}}}}",
    );
    let plan = plan.as_doc().get_doc("queryPlanner").unwrap();
    let shards = plan
        .get_doc("winningPlan")
        .unwrap()
        .get_array("shards")
        .unwrap();
    let named: Vec<_> = shards
        .values()
        .map(|v| {
            v.as_doc()
                .unwrap()
                .get_str("shardName")
                .unwrap()
                .to_string()
        })
        .collect();
    assert_eq!(named, ["s1"]);
}

/// The code with which a command or its first statement fails; 0 if it does not.
fn code(reply: muniment_value::Result<DocBuf>) -> i64 {
    let reply = match reply {
        Ok(reply) => reply,
        Err(e) => return i64::from(e.code().0),
    };
    let errors = reply.as_doc().get_array("writeErrors");
    let first = errors.and_then(|e| e.values().next()?.as_doc()?.get("code")?.as_i64_exact());
    first.unwrap_or(0)
}

#[test]
fn what_a_series_refuses_is_refused_by_the_router() {
    let cluster = cluster(2, 1, 1);
    let mut c = cluster.connect();
    twins(&mut c, "{'m.dev': 1}", &["{'m.dev': 4}".to_string()], 60);
    let right = chunks(&mut c, "d.t").pop().unwrap();
    move_to(&mut c, "d.t", &right, "s1", false).unwrap();
    for statement in [
        "{q: {'m.dev': 99}, u: {$set: {'m.x': 1}}}",
        "{q: {'m.dev': 2}, u: {$set: {v: 1}}, multi: true}",
        "{q: {'m.dev': 99}, u: {$set: {'m.x': 1}}, multi: true, upsert: true}",
        "{q: {'m.dev': 99}, u: {v: 1}, multi: true}",
    ] {
        let both = ["t", "w"].map(|name| {
            let update = shell(&format!("{{update: '{name}', updates: [{statement}]}}"));
            let reply = c.command("d", &update).unwrap();
            let errors = reply.as_doc().get_array("writeErrors").unwrap();
            let first = errors.values().next().unwrap().as_doc().unwrap();
            (
                first.get("code").unwrap().to_display(),
                first.get_str("errmsg").unwrap().to_string(),
            )
        });
        assert_eq!(both[0], both[1], "{statement}");
        assert_eq!(both[0].0, "72");
    }
    // The shard key stays.
    let update = "{update: 't', updates: [{q: {}, u: {$set: {'m.dev': 1}}, multi: true}]}";
    let reply = c.command("d", &shell(update)).unwrap();
    assert!(
        reply
            .as_doc()
            .get_array("writeErrors")
            .unwrap()
            .values()
            .next()
            .is_some()
    );
    for (command, code) in [
        (
            "{findAndModify: 't', query: {'m.dev': 99}, update: {$set: {'m.x': 1}}}",
            72,
        ),
        (
            "{aggregate: 'w', pipeline: [{$out: 't'}], cursor: {}}",
            28769,
        ),
    ] {
        fails(&mut c, "d", command, code);
    }
    // Measurements without a time, and buckets.
    for (name, document, code) in [
        ("t", "{m: {dev: 1}, v: 1}", "2"),
        ("t", "{m: {dev: 6}, at: 5}", "2"),
        (
            "system.buckets.t",
            "{_id: ObjectId('5f5e1000aaaaaaaaaaaaaaaa')}",
            "115",
        ),
    ] {
        let insert = shell(&format!("{{insert: '{name}', documents: [{document}]}}"));
        let reply = c.command("d", &insert).unwrap();
        let errors = reply.as_doc().get_array("writeErrors").unwrap();
        let first = errors.values().next().unwrap().as_doc().unwrap();
        assert_eq!(first.get("code").unwrap().to_display(), code, "{document}");
    }
    for command in [
        "{aggregate: 'w', pipeline: [{$merge: 'NAME'}], cursor: {}}",
        "{mapReduce: 'NAME', map: 'function() { emit(1, 1) }', reduce: 'function(k, v) { return 1 }', out: {inline: 1}}",
        "{findAndModify: 'NAME', query: {v: 5}, update: {v: 5}, upsert: true}",
        "{delete: 'system.buckets.NAME', deletes: [{q: {}, limit: 0}]}",
        "{update: 'system.buckets.NAME', updates: [{q: {}, u: {$set: {x: 1}}, multi: true}]}",
    ] {
        let both = ["t", "w"].map(|name| {
            let command = shell(&command.replace("NAME", name));
            code(c.command("d", &command))
        });
        assert_eq!(both[0], both[1], "{command}");
    }
    let both = [(1, "t"), (2, "w")].map(|(number, name)| {
        let insert = format!(
            "{{insert: '{name}', documents: [{{at: {}, v: 70}}]}}",
            date(1)
        );
        let id = session(3, number as u64);
        code(statement(&mut c, "d", &insert, (&id, number), true))
    });
    assert!(both[0] == both[1] && both[0] != 0, "{both:?}");
    compare(&mut c, "after refusals");
    // One measurement is deleted at a time, wherever it is.
    for name in ["t", "w"] {
        let gone = run(
            &mut c,
            "d",
            &format!("{{delete: '{name}', deletes: [{{q: {{v: 17}}, limit: 1}}]}}"),
        );
        assert_eq!(number(&gone, "n"), 1);
    }
    compare(&mut c, "after a deletion");
}

#[test]
fn measurements_expire_on_every_shard() {
    let cluster = Cluster::prepare(2, 1, 1, &["--setParameter", "ttlMonitorSleepSecs=1"]);
    let mut c = cluster.connect();
    cluster.add_shards(&mut c);
    let (key, at) = ("{'m.dev': 1, at: 1}", "{'m.dev': 4, at: MinKey}");
    let shard = format!("{{shardCollection: 'd.t', key: {key}, timeseries: {OPTIONS}}}");
    run(&mut c, "admin", "{enableSharding: 'd', primaryShard: 's0'}");
    run(&mut c, "admin", &shard);
    run(&mut c, "admin", &format!("{{split: 'd.t', middle: {at}}}"));
    let right = chunks(&mut c, "d.t").pop().unwrap();
    move_to(&mut c, "d.t", &right, "s1", false).unwrap();
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let now = now.as_millis() as i64;
    let at = |i: i64| if i % 2 == 0 { now - 7_200_000 } else { now };
    let docs = (0..80)
        .map(|i| doc! { "at": Value::DateTime(at(i)), "m": doc! { "dev": i / 2 % 8 }, "v": i });
    insert(&mut c, "d", "t", docs);
    run(&mut c, "d", "{collMod: 't', expireAfterSeconds: 3600}");
    let end = Instant::now() + Duration::from_secs(60);
    while on_shards(&cluster) != [20, 20] {
        assert!(Instant::now() < end, "{:?}", on_shards(&cluster));
        thread::sleep(Duration::from_millis(100));
    }
}

/// The measurements that there are, by their numbers, and how often.
fn numbers(c: &mut Connection) -> BTreeMap<i64, usize> {
    let mut found = BTreeMap::new();
    for d in all(
        c,
        "d",
        "{find: 't', projection: {_id: 0, v: 1}, batchSize: 500}",
    ) {
        *found.entry(number(&d, "v")).or_default() += 1;
    }
    found
}

/// Checks that exactly these measurements are there, each once.
fn check(c: &mut Connection, wanted: &BTreeMap<i64, usize>, when: &str) {
    let found = numbers(c);
    let lost: Vec<_> = wanted.keys().filter(|v| !found.contains_key(v)).collect();
    let other: Vec<_> = found
        .iter()
        .filter(|(v, n)| wanted.get(v) != Some(n))
        .collect();
    assert!(
        lost.is_empty() && other.is_empty(),
        "{when}: lost {lost:?}, too much {other:?}"
    );
    let sum = "{aggregate: 't', pipeline: [{$group: {_id: null, n: {$sum: 1}, v: {$sum: '$v'}}}], cursor: {}}";
    let sum = all(c, "d", sum).pop().unwrap();
    let of_all = (number(&sum, "n"), number(&sum, "v"));
    assert_eq!(of_all, (wanted.len() as i64, wanted.keys().sum()), "{when}");
}

fn once(range: impl Iterator<Item = i64>) -> BTreeMap<i64, usize> {
    range.map(|v| (v, 1)).collect()
}

/// Writers insert one by one and many at once, repeat what they sent, change labels and delete, while ranges move.
#[test]
fn writers_insert_while_ranges_move() {
    let cluster = cluster(2, 1, 2);
    let mut c = cluster.connect();
    let at = ["2", "4", "6"].map(|dev| format!("{{'m.dev': {dev}, at: {}}}", date(300)));
    twins(&mut c, "{'m.dev': 1, at: 1}", &at, 500);
    let (ends, next) = (AtomicBool::new(false), AtomicI64::new(500));
    let wanted = Mutex::new(once(0..500));
    let count = 4;
    thread::scope(|s| {
        for writer in 0..count {
            let (cluster, ends, next, wanted) = (&cluster, &ends, &next, &wanted);
            s.spawn(move || {
                let mut c = cluster.routers[writer % 2].connect();
                let id = session(9, writer as u64);
                let mut sent = 0;
                while !ends.load(SeqCst) {
                    let n = if writer == 0 { 1 } else { 20 };
                    let first = next.fetch_add(n, SeqCst);
                    let docs: ArrayBuf = (first..first + n).map(measurement).collect();
                    let insert = doc! { "insert": "t", "documents": docs, "ordered": writer == 1 };
                    sent += 1;
                    let insert = numbered(insert, &id, sent);
                    // What is sent again takes effect once.
                    for _ in 0..1 + sent % 2 {
                        let reply = c.command("d", &insert).unwrap();
                        assert!(reply.as_doc().get("writeErrors").is_none(), "{reply:?}");
                        assert_eq!(number(&reply, "n"), n);
                    }
                    wanted
                        .lock()
                        .unwrap()
                        .extend((first..first + n).map(|v| (v, 1)));
                }
            });
        }
        s.spawn(|| {
            let mut c = cluster.routers[1].connect();
            let mut v = 0;
            while !ends.load(SeqCst) && v < 480 {
                let delete = format!("{{delete: 't', deletes: [{{q: {{v: {v}}}, limit: 0}}]}}");
                assert_eq!(number(&run(&mut c, "d", &delete), "n"), 1);
                wanted.lock().unwrap().remove(&v);
                let update = format!("{{update: 't', updates: [{{q: {{'m.dev': {}}}, u: {{$inc: {{'m.seen': 1}}}}, multi: true}}]}}", v % 8);
                run(&mut c, "d", &update);
                v += 3;
            }
        });
        let mut dice = Dice(3);
        for turn in 0..14 {
            let all = chunks(&mut c, "d.t");
            let chunk = &all[dice.below(all.len())];
            let end = Instant::now() + Duration::from_secs(60);
            while let Err(e) = move_to(&mut c, "d.t", chunk, other(&chunk.shard), turn % 2 == 0) {
                assert!(e.code().0 == 24 && Instant::now() < end, "turn {turn}: {e}");
            }
        }
        ends.store(true, SeqCst);
    });
    let wanted = wanted.into_inner().unwrap();
    assert!(wanted.len() > 700, "{}", wanted.len());
    check(&mut c, &wanted, "in the end");
    check(
        &mut cluster.routers[1].connect(),
        &wanted,
        "at the other router",
    );
}

/// Waits until a move stops at a step, and ends the router there.
fn killed_at(cluster: &mut Cluster, step: &str, chunk: &Chunk, to: &str) {
    let (chunk, to) = (chunk.clone(), to.to_string());
    let moved = stopped(cluster, step, move |c| {
        move_to(c, "d.t", &chunk, &to, false)
    });
    cluster.routers[0].kill9();
    drop(moved.join().unwrap());
}

/// A shard ends while a range comes or goes. The move fails, and made again it leaves each measurement once.
#[test]
fn a_shard_ends_while_a_range_moves() {
    let mut cluster = hasty_cluster(2, 1, 1);
    let mut c = cluster.connect();
    let at = format!("{{'m.dev': 4, at: {}}}", date(100));
    twins(&mut c, "{'m.dev': 1, at: 1}", &[at], 400);
    let mut n = 400;
    for (step, ends) in [("afterCopy", 1), ("afterBegin", 0), ("afterGive", 0)] {
        let chunk = chunks(&mut c, "d.t").pop().unwrap();
        let to = other(&chunk.shard);
        let moving = chunk.clone();
        let moved = stopped(&cluster, step, move |c| {
            move_to(c, "d.t", &moving, to, false)
        });
        cluster.shards[ends].members[0].kill9();
        cluster.shards[ends].members[0].restart();
        cluster.shards[ends].primary();
        go_on(&mut c);
        // It may have come to its end all the same.
        drop(moved.join().unwrap());
        let end = Instant::now() + Duration::from_secs(60);
        let mut until = |command: &DocBuf, db: &str| {
            while let Err(e) = c.command(db, command) {
                assert!(Instant::now() < end, "{step}: {e}");
                thread::sleep(Duration::from_millis(100));
            }
        };
        for i in n..n + 30 {
            let docs: ArrayBuf = [measurement(i)].into_iter().collect();
            let insert = doc! { "insert": "t", "documents": docs };
            until(&numbered(insert, &session(5, i as u64), 1), "d");
        }
        n += 30;
        let bounds = muniment_value::array![&chunk.min, &chunk.max];
        until(
            &doc! { "moveChunk": "d.t", "bounds": bounds, "to": to, "_waitForDelete": true },
            "admin",
        );
        check(&mut c, &once(0..n), step);
        assert_eq!(on_shards(&cluster).iter().sum::<i64>(), n, "{step}");
    }
}

/// Chunks are split and merged, zones say where measurements go, and the balancer moves them there.
#[test]
fn the_balancer_moves_measurements_into_their_zones() {
    let cluster = cluster(2, 1, 1);
    let mut c = cluster.connect();
    twins(&mut c, "{'m.dev': 1, at: 1}", &[], 400);
    run(
        &mut c,
        "admin",
        "{split: 'd.t', find: {'m.dev': 1, at: Date(0)}}",
    );
    assert_eq!(chunks(&mut c, "d.t").len(), 2);
    let merge = "{mergeChunks: 'd.t', bounds: [{'m.dev': MinKey, at: MinKey}, {'m.dev': MaxKey, at: MaxKey}]}";
    run(&mut c, "admin", merge);
    assert_eq!(chunks(&mut c, "d.t").len(), 1);
    for (shard, zone) in [("s0", "old"), ("s1", "new")] {
        run(
            &mut c,
            "admin",
            &format!("{{addShardToZone: '{shard}', zone: '{zone}'}}"),
        );
    }
    let (low, high) = ("{'m.dev': 5, at: MinKey}", "{'m.dev': MaxKey, at: MaxKey}");
    let zone = format!("{{updateZoneKeyRange: 'd.t', min: {low}, max: {high}, zone: 'new'}}");
    run(&mut c, "admin", &zone);
    run(&mut c, "admin", "{balancerStart: 1}");
    let wanted = (0..400).filter(|i| i % 13 != 0 && i % 8 >= 5).count() as i64;
    let end = Instant::now() + Duration::from_secs(90);
    while on_shards(&cluster) != [400 - wanted, wanted] {
        assert!(Instant::now() < end, "{:?}", on_shards(&cluster));
        thread::sleep(Duration::from_millis(200));
    }
    compare(&mut c, "balanced");
}

/// A router ends at each step of a move. Nothing is lost and nothing is there twice, and the move can be made again.
#[test]
fn a_move_that_is_left_is_made_again() {
    let mut cluster = hasty_cluster(2, 1, 2);
    let mut late = cluster.routers[1].connect();
    let at = format!("{{'m.dev': 4, at: {}}}", date(100));
    twins(&mut late, "{'m.dev': 1, at: 1}", &[at], 400);
    let mut n = 400;
    for step in ["afterBegin", "afterCopy", "afterGive", "afterFinish"] {
        let chunk = chunks(&mut late, "d.t").pop().unwrap();
        let to = other(&chunk.shard);
        killed_at(&mut cluster, step, &chunk, to);
        // Some are changed, some go and some come before the move is made again.
        insert(&mut late, "d", "t", (n..n + 50).map(measurement));
        n += 50;
        let update = "{update: 't', updates: [{q: {'m.dev': {$gt: 4}}, u: {$inc: {'m.seen': 1}}, multi: true}]}";
        run(&mut late, "d", update);
        check(&mut late, &once(0..n), step);
        let end = Instant::now() + Duration::from_secs(40);
        while let Err(e) = move_to(&mut late, "d.t", &chunk, to, true) {
            assert!(Instant::now() < end, "{step}: {e}");
            thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(chunks(&mut late, "d.t").pop().unwrap().shard, to);
        check(&mut late, &once(0..n), step);
        cluster.routers[0].restart();
    }
    // By the shards themselves: each measurement is owned by one.
    assert_eq!(on_shards(&cluster).iter().sum::<i64>(), n);
}

#[test]
fn a_series_is_dropped_and_made_again() {
    let cluster = cluster(2, 1, 2);
    let mut c = cluster.connect();
    let mut late = cluster.routers[1].connect();
    for turn in 0..3 {
        twins(&mut c, "{m: 'hashed'}", &[], 100);
        compare(&mut late, "made");
        let both = on_shards(&cluster);
        assert!(both.iter().all(|n| *n > 0), "{both:?}");
        match turn {
            0 => {
                run(&mut late, "d", "{drop: 't'}");
                run(&mut late, "d", "{drop: 'w'}");
            }
            _ => drop(run(&mut late, "d", "{dropDatabase: 1}")),
        }
        assert_eq!(names(&cluster, 0).len() + names(&cluster, 1).len(), 0);
        let views = all(
            &mut cluster.shards[1].connect(0),
            "d",
            "{find: 'system.views'}",
        );
        assert!(views.is_empty(), "{views:?}");
        assert_eq!(chunks(&mut c, "d.t").len(), 0);
        insert(&mut c, "d", "t", (0..3).map(measurement));
        assert_eq!(numbers(&mut late).len(), 3);
        run(&mut c, "d", "{drop: 't'}");
    }
}

/// The shard of the database has a divided series although its measurements are elsewhere.
#[test]
fn a_database_moves_and_its_divided_series_stays() {
    let cluster = cluster(2, 1, 2);
    let mut c = cluster.connect();
    let at = format!("{{at: {}}}", date(100));
    twins(&mut c, "{at: 1}", &[at], 200);
    let late = &mut cluster.routers[1].connect();
    compare(late, "before");
    for chunk in chunks(&mut c, "d.t") {
        move_to(&mut c, "d.t", &chunk, "s1", false).unwrap();
    }
    // The other one is whole, and may be on any shard.
    run(&mut c, "admin", "{moveCollection: 'd.w', toShard: 's1'}");
    compare(late, "moved");
    insert(late, "d", "w", (200..210).map(measurement));
    run(
        late,
        "d",
        "{delete: 'w', deletes: [{q: {v: {$gte: 200}}, limit: 0}]}",
    );
    for to in ["s1", "s0"] {
        run(
            &mut c,
            "admin",
            &format!("{{movePrimary: 'd', to: '{to}'}}"),
        );
        compare(late, to);
        compare(&mut c, to);
        assert_eq!(on_shards(&cluster), [0, 200]);
    }
    run(&mut c, "admin", "{moveCollection: 'd.w', toShard: 's1'}");
    compare(late, "again");
    let kinds = all(
        &mut c,
        "d",
        "{listCollections: 1, filter: {type: 'timeseries'}}",
    );
    assert_eq!(kinds.len(), 2);
}
