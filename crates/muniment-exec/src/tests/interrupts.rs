//! maxTimeMS, killOp and a client that disconnects end any stage soon, whatever it is doing.

use super::*;
use muniment_op::Client;
use muniment_query::running::Work;
use muniment_value::{Code, Value, array, doc};
use std::time::Instant;

/// How long a stage may continue after it was told to stop. Tests are built without optimization
/// and share the machine with others.
const SOON: Duration = if cfg!(debug_assertions) {
    Duration::from_millis(400)
} else {
    Duration::from_millis(100)
};

fn bench() -> Bench {
    let b = Bench::with_cache(64 << 20);
    for batch in 0..30 {
        let docs: Vec<DocBuf> = (0..1000)
            .map(|i| {
                let n = batch * 1000 + i;
                doc! {
                    "_id": n,
                    "a": (n * 7919) % 30_011,
                    "t": array![n, n + 1, n + 2],
                    "s": format!("{}", n).repeat(20),
                }
            })
            .collect();
        b.insert(&docs);
    }
    b.index(r#"{"key": {"t": 1}, "name": "t"}"#).unwrap();
    b
}

/// Pipelines that run for a long time, each in a different stage.
fn slow() -> Vec<(&'static str, String)> {
    // This makes so many copies of each document that no stage after it ends soon.
    const MANY: &str = concat!(
        r#"{"$addFields": {"m": {"$range": [0, 2000]}}}, {"$unwind": "$m"}, "#,
        r#"{"$addFields": {"k": {"$add": ["$a", {"$multiply": ["$m", 31]}]}}}, "#
    );
    vec![
        ("scan", concat!(
            r#"{"$match": {"$expr": {"$eq": [1, {"$size": {"$filter": {"input": {"$range": [0, 300]}, "#,
            r#""cond": {"$eq": ["$$this", -1]}}}}]}}}"#
        )),
        ("unwind", r#"MANY {"$match": {"k": -1}}"#),
        ("sort", r#"MANY {"$sort": {"k": 1}}"#),
        ("top", r#"MANY {"$sort": {"k": 1}}, {"$limit": 1000}"#),
        ("group", r#"MANY {"$group": {"_id": {"k": "$k", "m": "$m"}, "n": {"$sum": 1}}}"#),
        ("count", r#"MANY {"$count": "n"}"#),
        ("facet", r#"MANY {"$facet": {"a": [{"$count": "n"}], "b": [{"$match": {"k": -1}}]}}"#),
        ("bucketAuto", r#"MANY {"$bucketAuto": {"groupBy": "$k", "buckets": 5}}"#),
        ("redact", r#"MANY {"$redact": {"$cond": [{"$eq": ["$k", -1]}, "$$KEEP", "$$PRUNE"]}}"#),
        ("sample", r#"MANY {"$sample": {"size": 10}}"#),
        ("window", concat!(
            r#"MANY {"$setWindowFields": {"partitionBy": "$m", "sortBy": {"k": 1}, "#,
            r#""output": {"s": {"$sum": "$k", "window": {"documents": [-50, 50]}}}}}"#
        )),
        ("densify", concat!(
            r#"MANY {"$densify": {"field": "k", "partitionByFields": ["_id"], "#,
            r#""range": {"step": 1, "bounds": "partition"}}}"#
        )),
        ("skip", r#"MANY {"$skip": 1000000000}"#),
        ("addToSet", r#"MANY {"$group": {"_id": null, "s": {"$addToSet": "$k"}}}"#),
        ("median", concat!(
            r#"MANY {"$group": {"_id": "$m", "#,
            r#""p": {"$median": {"input": "$k", "method": "approximate"}}}}"#
        )),
        ("fill", concat!(
            r#"MANY {"$fill": {"partitionByFields": ["m"], "sortBy": {"k": 1}, "#,
            r#""output": {"x": {"method": "linear"}}}}"#
        )),
        ("union", concat!(
            r#"MANY {"$unionWith": {"coll": "c", "pipeline": [{"$match": {"a": -1}}]}}, "#,
            r#"{"$match": {"k": -1}}"#
        )),
        ("lookup", concat!(
            r#"{"$lookup": {"from": "c", "let": {"a": "$a"}, "as": "j", "#,
            r#""pipeline": [{"$match": {"$expr": {"$gt": ["$$a", {"$add": ["$a", 1]}]}}}, "#,
            r#"{"$count": "n"}]}}"#
        )),
        ("join", r#"MANY {"$lookup": {"from": "c", "localField": "k", "foreignField": "a", "as": "j"}}, {"$match": {"k": -1}}"#),
        ("function", r#"{"$project": {"r": {"$function": {"lang": "js", "args": [], "body": "function() { for (;;) {} }"}}}}"#),
        ("schema", r#"MANY {"$match": {"$jsonSchema": {"properties": {"t": {"uniqueItems": true, "minItems": 9}}}}}"#),
        ("graphLookup", concat!(
            r#"{"$graphLookup": {"from": "c", "startWith": "$_id", "connectFromField": "t", "#,
            r#""connectToField": "t", "as": "g", "maxDepth": 50}}, {"$match": {"g": -1}}"#
        )),
    ]
    .into_iter()
    .map(|(name, p)| (name, p.replace("MANY", MANY)))
    .collect()
}

fn run(b: &Bench, op: &Arc<OpContext>, stages: &str) -> Result<()> {
    let list = j(&format!(r#"{{"p": [{stages}]}}"#));
    let request = aggregation(list.as_doc().get_array("p").unwrap());
    let mut cursor = b.engine.aggregate(op, &request)?;
    while cursor.next_doc(op)?.is_some() {}
    Ok(())
}

#[test]
fn every_stage_stops_when_its_operation_must() {
    let b = bench();
    b.engine.set_memory_limit(4 << 20);
    for (name, stages) in slow() {
        let limit = Duration::from_millis(150);
        // The first way to end is maxTimeMS.
        let op = b.engine.operations.begin(OpStart {
            command: "aggregate",
            max_time: Some(limit),
            ..OpStart::default()
        });
        let began = Instant::now();
        let e = run(&b, &op, &stages).expect_err(name);
        let late = began.elapsed().saturating_sub(limit);
        assert_eq!(e.code(), Code::MaxTimeMSExpired, "{name}: {e}");
        println!("{name}: {late:?} late");
        assert!(late < SOON, "{name}: {late:?} late");
        // The second way is killOp.
        let op = b.engine.operations.begin(OpStart::default());
        let late = std::thread::scope(|s| {
            let killer = s.spawn(|| {
                std::thread::sleep(limit);
                b.engine.operations.kill(op.id());
                Instant::now()
            });
            let e = run(&b, &op, &stages).expect_err(name);
            assert_eq!(e.code(), Code::Interrupted, "{name}: {e}");
            let ended = Instant::now();
            ended.duration_since(killer.join().unwrap())
        });
        assert!(late < SOON, "{name}: {late:?} after killOp");
        // The third way is a client that disconnects.
        let client = Arc::new(Client::new());
        let op = b.engine.operations.begin(OpStart {
            of_client: Some(client.clone()),
            ..OpStart::default()
        });
        let late = std::thread::scope(|s| {
            let goes = s.spawn(|| {
                std::thread::sleep(limit);
                client.leave();
                Instant::now()
            });
            let e = run(&b, &op, &stages).expect_err(name);
            assert_eq!(e.code(), Code::ClientDisconnect, "{name}: {e}");
            let ended = Instant::now();
            ended.saturating_duration_since(goes.join().unwrap())
        });
        assert!(late < SOON, "{name}: {late:?} after the client went");
    }
}

/// Pipelines that take long for a single document, each in a different operator.
fn slow_expressions() -> Vec<(&'static str, String)> {
    // Many numbers, neither ascending nor descending.
    const BIG: &str = concat!(
        r#"{"$map": {"input": {"$range": [0, 200000]}, "#,
        r#""in": {"$mod": [{"$multiply": ["$$this", 7919]}, 200003]}}}"#
    );
    // Eight million characters.
    const TEXT: &str = concat!(
        r#"{"$reduce": {"input": {"$range": [0, 23]}, "initialValue": "a", "#,
        r#""in": {"$concat": ["$$value", "$$value"]}}}"#
    );
    let big: Vec<(&str, &str)> = vec![
        (
            "range",
            r#"{"$map": {"input": {"$range": [0, 4000]}, "in": {"$size": {"$range": ["$$this", 1000000]}}}}"#,
        ),
        (
            "map",
            r#"{"$map": {"input": "$$big", "in": {"$size": "$$big"}}}"#,
        ),
        (
            "filter",
            r#"{"$filter": {"input": "$$big", "cond": {"$in": ["x", "$$big"]}}}"#,
        ),
        (
            "reduce",
            concat!(
                r#"{"$reduce": {"input": "$$big", "initialValue": [], "#,
                r#""in": {"$concatArrays": [{"$slice": ["$$value", 1000]}, ["$$this"]]}}}"#
            ),
        ),
        (
            "sortArray",
            r#"{"$map": {"input": {"$range": [0, 100]}, "in": {"$first": {"$sortArray": {"input": "$$big", "sortBy": 1}}}}}"#,
        ),
        (
            "setUnion",
            r#"{"$map": {"input": {"$range": [0, 100]}, "in": {"$size": {"$setUnion": ["$$big", ["$$this"]]}}}}"#,
        ),
        (
            "setDifference",
            r#"{"$map": {"input": {"$range": [0, 100]}, "in": {"$size": {"$setDifference": ["$$big", ["$$this"]]}}}}"#,
        ),
        (
            "setIntersection",
            r#"{"$map": {"input": {"$range": [0, 100]}, "in": {"$size": {"$setIntersection": ["$$big", "$$big"]}}}}"#,
        ),
        (
            "setIsSubset",
            r#"{"$map": {"input": {"$range": [0, 100]}, "in": {"$setIsSubset": ["$$big", "$$big"]}}}"#,
        ),
        (
            "indexOfArray",
            r#"{"$map": {"input": "$$big", "in": {"$indexOfArray": ["$$big", -1]}}}"#,
        ),
        (
            "maxN",
            r#"{"$map": {"input": {"$range": [0, 100]}, "in": {"$maxN": {"n": 3, "input": "$$big"}}}}"#,
        ),
        (
            "median",
            r#"{"$map": {"input": {"$range": [0, 100]}, "in": {"$median": {"input": "$$big", "method": "approximate"}}}}"#,
        ),
        (
            "arrayToObject",
            concat!(
                r#"{"$map": {"input": {"$range": [0, 100]}, "in": {"$arrayToObject": {"$map": "#,
                r#"{"input": {"$range": [0, 100000]}, "as": "x", "in": {"k": {"$toString": "$$x"}, "v": 1}}}}}}"#
            ),
        ),
        (
            "zip",
            r#"{"$map": {"input": {"$range": [0, 100]}, "in": {"$size": {"$zip": {"inputs": ["$$big", "$$big"]}}}}}"#,
        ),
        (
            "sum",
            r#"{"$map": {"input": "$$big", "in": {"$sum": "$$big"}}}"#,
        ),
        (
            "regexFindAll",
            r#"{"$map": {"input": "$$big", "in": {"$regexFind": {"input": "$$text", "regex": "a{50}b"}}}}"#,
        ),
        (
            "indexOfBytes",
            r#"{"$map": {"input": "$$big", "in": {"$indexOfBytes": ["$$text", {"$concat": [{"$substrBytes": ["$$text", 0, 100000]}, "b"]}]}}}"#,
        ),
        (
            "indexOfCP",
            r#"{"$map": {"input": "$$big", "in": {"$indexOfCP": ["$$text", {"$concat": [{"$substrBytes": ["$$text", 0, 100000]}, "b"]}]}}}"#,
        ),
        (
            "replaceAll",
            r#"{"$map": {"input": "$$big", "in": {"$strLenCP": {"$replaceAll": {"input": "$$text", "find": "aaab", "replacement": "b"}}}}}"#,
        ),
        (
            "split",
            r#"{"$map": {"input": "$$big", "in": {"$size": {"$split": ["$$text", "ab"]}}}}"#,
        ),
        (
            "trim",
            r#"{"$map": {"input": "$$big", "in": {"$strLenBytes": {"$trim": {"input": "$$text", "chars": {"$concat": ["bcdefghijklmnop", "a"]}}}}}}"#,
        ),
        (
            "substr",
            r#"{"$map": {"input": "$$big", "in": {"$strLenCP": {"$substrCP": ["$$text", 5, 4000000]}}}}"#,
        ),
    ];
    big.into_iter()
        .map(|(name, e)| {
            let stage = format!(
                r#"{{"$limit": 1}}, {{"$project": {{"r": {{"$let": {{"vars": {{"big": {BIG}, "text": {TEXT}}}, "in": {e}}}}}}}}}"#
            );
            (name, stage)
        })
        .collect()
}

/// How long this thread has been ready to run without getting a core, since it began. On a machine
/// that is busy with builds, that time says nothing about how often an expression checks whether it
/// may go on. Zero if the kernel does not tell.
fn waited_for_a_core() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = told.split_whitespace().nth(1).and_then(|n| n.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

#[test]
fn every_expression_stops_when_its_operation_must() {
    let b = bench();
    let limit = Duration::from_millis(1000);
    let mut wrong = Vec::new();
    for (name, stages) in slow_expressions() {
        let op = b.engine.operations.begin(OpStart {
            command: "aggregate",
            max_time: Some(limit),
            ..OpStart::default()
        });
        let (began, waited) = (Instant::now(), waited_for_a_core());
        let ended = run(&b, &op, &stages).err().map(|e| e.code());
        let late = began.elapsed().saturating_sub(limit);
        let late = late.saturating_sub(waited_for_a_core().saturating_sub(waited));
        println!("{name}: {ended:?}, {late:?} late");
        // A fast build reaches the limit of a document's memory before its time is over.
        let stopped = [Code::MaxTimeMSExpired, Code::ExceededMemoryLimit];
        if !ended.is_some_and(|e| stopped.contains(&e)) || late >= SOON {
            wrong.push((name, ended, late));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// A ring of `n` corners around a point, alternating between two distances. No two such rings
/// contain each other.
fn star(n: i32, turn: f64) -> muniment_value::ArrayBuf {
    let corner = |i: i32| {
        let angle = (f64::from(i % n) + turn) / f64::from(n) * std::f64::consts::TAU;
        let radius = if i % 2 == 0 { 10.0 } else { 10.5 };
        array![radius * angle.cos(), radius * angle.sin()]
    };
    (0..=n).map(corner).collect()
}

#[test]
fn geometry_and_updates_stop_too() {
    let b = Bench::with_cache(64 << 20);
    let polygon = |n, turn| {
        let rings = array![star(n, turn)];
        doc! { "type": "Polygon", "coordinates": rings }
    };
    b.insert(&[doc! { "_id": 1, "g": polygon(10_000, 0.0), "n": array![1, 2] }]);
    let filters = [
        (
            "within",
            doc! { "$geoWithin": doc! { "$geometry": polygon(10_000, 0.4) } },
        ),
        (
            "intersects",
            doc! { "$geoIntersects": doc! { "$geometry": polygon(10_000, 0.4) } },
        ),
    ];
    for (name, operator) in filters {
        let f = doc! { "g": operator };
        let request = FindRequest {
            filter: f.as_doc(),
            ..FindRequest::new(NS)
        };
        let limit = Duration::from_millis(50);
        let op = b.engine.operations.begin(OpStart {
            max_time: Some(limit),
            ..OpStart::default()
        });
        let began = Instant::now();
        let run = || -> Result<()> {
            let mut cursor = b.engine.find(&op, &request)?;
            while cursor.next_doc(&op)?.is_some() {}
            Ok(())
        };
        let e = run().expect_err(name);
        let late = began.elapsed().saturating_sub(limit);
        println!("{name}: {late:?} late");
        assert_eq!(e.code(), Code::MaxTimeMSExpired, "{name}: {e}");
        assert!(late < SOON, "{name}: {late:?} late");
    }
    // Many values that are not in the array yet: this used to take quadratic time.
    let each: muniment_value::ArrayBuf = (0..100_000).collect();
    let update = doc! { "$addToSet": doc! { "n": doc! { "$each": each } } };
    let began = Instant::now();
    let ctx = muniment_query::QueryContext::new();
    let parsed = muniment_query::Update::parse(
        Value::Document(update.as_doc()),
        muniment_value::Doc::EMPTY,
        &ctx,
    );
    let mut out = Vec::new();
    let old = doc! { "_id": 1, "n": array![1, 2] };
    let info = muniment_query::MatchInfo::default();
    parsed
        .unwrap()
        .apply(old.as_doc(), info, &mut out, Work::unasked())
        .unwrap();
    let n = Doc::new(&out).get_array("n").unwrap().count();
    assert_eq!(n, 100_000);
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn plans_stop_too() {
    let b = bench();
    let filter = j(r#"{"t": {"$gte": 0}, "s": "nobody"}"#);
    let sort = j(r#"{"s": 1, "a": 1}"#);
    let nothing = DocBuf::new();
    for (filter, sort) in [(&filter, &nothing), (&nothing, &sort), (&filter, &sort)] {
        let op = b.engine.operations.begin(OpStart {
            max_time: Some(Duration::from_millis(1)),
            ..OpStart::default()
        });
        let began = Instant::now();
        let request = FindRequest {
            filter: filter.as_doc(),
            sort: sort.as_doc(),
            ..FindRequest::new(NS)
        };
        let run = || -> Result<()> {
            let mut cursor = b.engine.find(&op, &request)?;
            while cursor.next_doc(&op)?.is_some() {}
            Ok(())
        };
        assert_eq!(run().unwrap_err().code(), Code::MaxTimeMSExpired);
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    }
    let distinct = DistinctRequest {
        namespace: NS,
        key: "s",
        filter: Doc::EMPTY,
        hint: None,
        collation: None,
        let_: Doc::EMPTY,
    };
    let op = b.engine.operations.begin(OpStart {
        max_time: Some(Duration::from_millis(1)),
        ..OpStart::default()
    });
    let began = Instant::now();
    let e = b.engine.distinct(&op, &distinct).unwrap_err();
    assert_eq!(e.code(), Code::MaxTimeMSExpired);
    assert!(began.elapsed() < SOON);
}

/// An upsert first looks for its document, and a write unit that has found nothing waits for the
/// commits that are on their way. An error that ends this wait must not get lost.
#[test]
fn an_upsert_that_is_cut_short_says_so() {
    let b = Bench::new();
    b.index(r#"{"key": {"a": 1, "s": 1}, "name": "a_1_s_1"}"#)
        .unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (mut cut, mut done) = (0, Vec::new());
    std::thread::scope(|s| {
        // These commits take long to apply.
        s.spawn(|| {
            let text = "x".repeat(100);
            for batch in 1.. {
                let doc = |i: i32| doc! { "_id": format!("{batch}-{i}"), "a": i, "s": &*text };
                b.insert(&(0..4000).map(doc).collect::<Vec<_>>());
                if stop.load(std::sync::atomic::Ordering::SeqCst) {
                    return;
                }
            }
        });
        let until = Instant::now() + Duration::from_secs(20);
        for id in 0.. {
            if cut >= 5 || Instant::now() > until {
                break;
            }
            let op = b.engine.operations.begin(OpStart {
                max_time: Some(Duration::from_millis(1)),
                ..OpStart::default()
            });
            let (q, u) = (doc! { "_id": id }, doc! { "$set": doc! { "a": id } });
            let statement = UpdateStatement {
                upsert: true,
                ..UpdateStatement::new(q.as_doc(), Value::Document(u.as_doc()))
            };
            let ordered = id % 2 == 0;
            let all = &mut std::iter::once(Ok(statement));
            let out = b.engine.update_many(&op, NS, all, ordered);
            match out.errors.as_slice() {
                [] => done.push((id, out.n)),
                [e] => {
                    assert_eq!(e.error.code(), Code::MaxTimeMSExpired, "{}", e.error);
                    cut += 1;
                }
                more => panic!("{more:?}"),
            }
        }
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    let missing =
        |(id, n): &&(i32, u64)| *n != 1 || b.find(&format!(r#"{{"_id": {id}}}"#)).len() != 1;
    let missing: Vec<_> = done.iter().filter(missing).collect();
    assert!(missing.is_empty(), "acknowledged, not there: {missing:?}");
    assert!(cut > 0, "no upsert was cut short");
}
