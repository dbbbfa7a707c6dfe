//! maxTimeMS, killOp and a client that went away stop whatever stage is running, soon.

use super::*;
use muniment_value::{Code, array, doc};
use std::time::Instant;

/// How long a stage may go on after it was told to stop. Tests are built without optimization and
/// share the machine with others.
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

/// Pipelines that run for a long time, each in another stage.
fn slow() -> Vec<(&'static str, String)> {
    // So many copies of each document that nothing behind it ends soon.
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
        // maxTimeMS.
        let op = b.engine.operations.begin(OpStart {
            command: "aggregate",
            max_time: Some(limit),
            ..OpStart::default()
        });
        let began = Instant::now();
        let e = run(&b, &op, &stages).expect_err(name);
        let late = began.elapsed().saturating_sub(limit);
        assert_eq!(e.code(), Code::MaxTimeMSExpired, "{name}: {e}");
        assert!(late < SOON, "{name}: {late:?} late");
        // killOp.
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
        // The client is gone.
        let gone_at = Instant::now() + limit;
        let op = b.engine.operations.begin(OpStart {
            disconnected: Some(Box::new(move || Instant::now() >= gone_at)),
            ..OpStart::default()
        });
        let e = run(&b, &op, &stages).expect_err(name);
        assert_eq!(e.code(), Code::ClientDisconnect, "{name}: {e}");
        let late = gone_at.elapsed();
        assert!(late < SOON, "{name}: {late:?} after the client went");
    }
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
