//! Plans as explain shows them: which index, which bounds, how much was examined.

use super::*;
use muniment_query::running::Work;
use muniment_value::{Value, doc};

/// The chain of stages from the top, with the index and its bounds.
fn chain(d: Doc<'_>, out: &mut String) {
    if !out.is_empty() {
        out.push_str(" < ");
    }
    out.push_str(d.get_str("stage").unwrap_or("?"));
    if let Some(name) = d.get_str("indexName") {
        out.push_str(&format!(" {name}"));
        if d.get_str("direction") == Some("backward") {
            out.push_str(" backward");
        }
        let bounds: Vec<String> = d
            .get_doc("indexBounds")
            .map(|b| {
                b.iter()
                    .map(|e| {
                        let list: Vec<&str> = e
                            .value()
                            .as_array()
                            .map(|a| a.values().filter_map(|v| v.as_str()).collect())
                            .unwrap_or_default();
                        format!("{}: {}", e.name(), list.join(" "))
                    })
                    .collect()
            })
            .unwrap_or_default();
        out.push_str(&format!(" {{{}}}", bounds.join("; ")));
    }
    if d.get("filter").is_some() {
        out.push_str(" +filter");
    }
    if let Some(i) = d.get_doc("inputStage") {
        chain(i, out);
    }
    if let Some(list) = d.get_array("inputStages") {
        for i in list.values() {
            let mut one = String::new();
            chain(i.as_doc().unwrap(), &mut one);
            out.push_str(&format!(" [{one}]"));
        }
    }
}

pub(super) fn winner(d: &DocBuf) -> String {
    let mut out = String::new();
    let plan = d.as_doc().get_doc("queryPlanner").unwrap();
    chain(plan.get_doc("winningPlan").unwrap(), &mut out);
    out
}

fn bench() -> Bench {
    let b = Bench::new();
    let docs: Vec<DocBuf> = (0..300)
        .map(|i| {
            doc! {
                "_id": i,
                "a": i % 30,
                "b": i % 7,
                "s": format!("k{}", i % 50),
                "u": i * 2,
                "t": muniment_value::array![i, i + 1],
                "d": doc! { "y": i % 4, "x": i % 9 },
            }
        })
        .collect();
    b.insert(&docs);
    for index in [
        r#"{"key": {"a": 1, "b": -1}, "name": "ab"}"#,
        r#"{"key": {"s": 1}, "name": "s"}"#,
        r#"{"key": {"d.x": 1, "d.y": 1}, "name": "d"}"#,
        r#"{"key": {"d.x": -1, "d.y": 1, "b": -1}, "name": "xyb"}"#,
        r#"{"key": {"u": 1}, "name": "u", "unique": true}"#,
        r#"{"key": {"t": 1}, "name": "t"}"#,
        r#"{"key": {"p": 1}, "name": "p", "sparse": true}"#,
        r#"{"key": {"h": 1}, "name": "h", "hidden": true}"#,
        r#"{"key": {"q": 1}, "name": "q", "partialFilterExpression": {"q": {"$gt": 5}}}"#,
    ] {
        b.index(index).unwrap();
    }
    b
}

#[test]
fn plans() {
    let b = bench();
    // Each row has filter, sort, projection and plan.
    let table = [
        (r#"{"_id": 5}"#, "{}", "{}", "EXPRESS_IXSCAN _id_ {}"),
        ("{}", "{}", "{}", "COLLSCAN"),
        (r#"{"z": 1}"#, "{}", "{}", "COLLSCAN +filter"),
        (
            r#"{"s": "k1"}"#,
            "{}",
            "{}",
            r#"FETCH < IXSCAN s {s: ["k1", "k1"]}"#,
        ),
        (
            r#"{"a": 3, "b": {"$gt": 2}}"#,
            "{}",
            "{}",
            "FETCH < IXSCAN ab {a: [3, 3]; b: [inf, 2)}",
        ),
        (
            r#"{"a": 3, "z": 1}"#,
            "{}",
            "{}",
            "FETCH +filter < IXSCAN ab {a: [3, 3]; b: [MaxKey, MinKey]}",
        ),
        (
            r#"{"a": 3}"#,
            r#"{"b": 1}"#,
            "{}",
            "FETCH < IXSCAN ab backward {a: [3, 3]; b: [MinKey, MaxKey]}",
        ),
        (
            r#"{"a": {"$gt": 27}}"#,
            r#"{"b": 1}"#,
            "{}",
            "SORT < FETCH < IXSCAN ab {a: (27, inf]; b: [MaxKey, MinKey]}",
        ),
        (
            "{}",
            r#"{"a": -1, "b": 1}"#,
            "{}",
            "FETCH < IXSCAN ab backward {a: [MaxKey, MinKey]; b: [MinKey, MaxKey]}",
        ),
        (
            r#"{"a": 3}"#,
            "{}",
            r#"{"b": 1, "_id": 0}"#,
            "PROJECTION_COVERED < IXSCAN ab {a: [3, 3]; b: [MaxKey, MinKey]}",
        ),
        (
            r#"{"a": 3}"#,
            "{}",
            r#"{"b": 1}"#,
            "PROJECTION_SIMPLE < FETCH < IXSCAN ab {a: [3, 3]; b: [MaxKey, MinKey]}",
        ),
        (
            r#"{"t": {"$gt": 5, "$lt": 9}}"#,
            "{}",
            "{}",
            "FETCH +filter < IXSCAN t {t: (5, inf]}",
        ),
        (
            r#"{"t": {"$elemMatch": {"$gt": 5, "$lt": 9}}}"#,
            "{}",
            "{}",
            "FETCH +filter < IXSCAN t {t: (5, 9)}",
        ),
        (
            r#"{"$or": [{"s": "k1"}, {"a": 3, "z": 1}]}"#,
            "{}",
            "{}",
            concat!(
                r#"SUBPLAN < FETCH < OR [IXSCAN s {s: ["k1", "k1"]}] "#,
                "[FETCH +filter < IXSCAN ab {a: [3, 3]; b: [MaxKey, MinKey]}]"
            ),
        ),
        (
            r#"{"u": 4, "s": "k2"}"#,
            "{}",
            "{}",
            "FETCH +filter < IXSCAN u {u: [4, 4]}",
        ),
        (
            r#"{"_id": {"$gte": 290}}"#,
            r#"{"_id": -1}"#,
            "{}",
            "FETCH < IXSCAN _id_ backward {_id: [inf, 290]}",
        ),
        (
            r#"{"_id": {"$in": [7, 3]}}"#,
            "{}",
            "{}",
            "FETCH < IXSCAN _id_ {_id: [3, 3] [7, 7]}",
        ),
        (
            r#"{"p": {"$exists": true}}"#,
            "{}",
            "{}",
            "FETCH < IXSCAN p {p: [MinKey, MaxKey]}",
        ),
        (r#"{"p": null}"#, "{}", "{}", "COLLSCAN +filter"),
        (r#"{"h": 1}"#, "{}", "{}", "COLLSCAN +filter"),
        (r#"{"q": 3}"#, "{}", "{}", "COLLSCAN +filter"),
        (
            r#"{"q": {"$gte": 6}}"#,
            "{}",
            "{}",
            "FETCH < IXSCAN q {q: [6, inf]}",
        ),
        (
            r#"{"s": {"$regex": "^k1"}}"#,
            "{}",
            "{}",
            r#"FETCH < IXSCAN s {s: ["k1", "k2") [/^k1/, /^k1/]}"#,
        ),
        // An `$or` under an `$and`, an `$or` in a branch, and branches that give the sort.
        (
            r#"{"z": 1, "$or": [{"s": "k1"}, {"u": 4}]}"#,
            "{}",
            "{}",
            concat!(
                r#"FETCH < OR [FETCH +filter < IXSCAN s {s: ["k1", "k1"]}] "#,
                "[FETCH +filter < IXSCAN u {u: [4, 4]}]"
            ),
        ),
        (
            r#"{"$or": [{"s": "k1"}, {"z": 1, "$or": [{"u": 4}, {"u": 6, "b": 2}]}]}"#,
            "{}",
            "{}",
            concat!(
                r#"SUBPLAN < FETCH < OR [IXSCAN s {s: ["k1", "k1"]}] "#,
                "[OR [FETCH +filter < IXSCAN u {u: [4, 4]}] ",
                "[FETCH +filter < IXSCAN u {u: [6, 6]}]]"
            ),
        ),
        (
            r#"{"$or": [{"a": 3, "z": {"$exists": false}}, {"d.x": 2, "d.y": 1}]}"#,
            r#"{"b": 1}"#,
            "{}",
            concat!(
                "FETCH < SORT_MERGE [FETCH +filter < ",
                "IXSCAN ab backward {a: [3, 3]; b: [MinKey, MaxKey]}] ",
                "[IXSCAN xyb backward {d.x: [2, 2]; d.y: [1, 1]; b: [MinKey, MaxKey]}]"
            ),
        ),
        // Conditions that keys can decide are tested on the keys. Keys cannot tell null from a
        // missing field.
        (
            r#"{"a": {"$gt": 20}, "$or": [{"b": 1}, {"b": {"$mod": [5, 0]}}]}"#,
            "{}",
            "{}",
            "FETCH < IXSCAN ab {a: (20, inf]; b: [MaxKey, MinKey]} +filter",
        ),
        (
            r#"{"a": {"$gt": 20}, "b": {"$exists": true}}"#,
            "{}",
            "{}",
            "FETCH +filter < IXSCAN ab {a: (20, inf]; b: [MaxKey, MinKey]}",
        ),
        // Covered plans: with a sort, with a dotted path, with a computed field.
        (
            r#"{"a": {"$gt": 27}}"#,
            r#"{"b": 1}"#,
            r#"{"a": 1, "_id": 0}"#,
            "PROJECTION_COVERED < SORT < IXSCAN ab {a: (27, inf]; b: [MaxKey, MinKey]}",
        ),
        (
            r#"{"d.x": 3}"#,
            "{}",
            r#"{"d.y": 1, "_id": 0}"#,
            "PROJECTION_DEFAULT < IXSCAN d {d.x: [3, 3]; d.y: [MinKey, MaxKey]}",
        ),
        (
            r#"{"a": 3}"#,
            "{}",
            r#"{"n": {"$add": ["$b", 1]}, "_id": 0}"#,
            "PROJECTION_DEFAULT < IXSCAN ab {a: [3, 3]; b: [MaxKey, MinKey]}",
        ),
        (
            r#"{"a": {"$in": [3, 4]}}"#,
            r#"{"b": 1}"#,
            r#"{"b": 1, "_id": 0}"#,
            concat!(
                "PROJECTION_COVERED < SORT_MERGE ",
                "[IXSCAN ab backward {a: [3, 3]; b: [MinKey, MaxKey]}] ",
                "[IXSCAN ab backward {a: [4, 4]; b: [MinKey, MaxKey]}]"
            ),
        ),
    ];
    for (filter, sort, projection, want) in table {
        let (f, s, p) = (j(filter), j(sort), j(projection));
        let request = FindRequest {
            filter: f.as_doc(),
            sort: s.as_doc(),
            projection: p.as_doc(),
            ..FindRequest::new(NS)
        };
        assert_eq!(
            winner(&b.explain(&request)),
            want,
            "{filter} {sort} {projection}"
        );
    }
}

#[test]
fn figures_are_counted() {
    let b = bench();
    let stats = |filter: &str, limit| {
        let f = j(filter);
        let d = b.explain(&FindRequest {
            filter: f.as_doc(),
            limit,
            ..FindRequest::new(NS)
        });
        let s = d.as_doc().get_doc("executionStats").unwrap();
        ["nReturned", "totalKeysExamined", "totalDocsExamined"]
            .map(|n| s.get(n).unwrap().as_i64_exact().unwrap())
    };
    assert_eq!(stats(r#"{"_id": 3}"#, 0), [1, 1, 1]);
    assert_eq!(stats(r#"{"s": "k1"}"#, 0), [6, 6, 6]);
    assert_eq!(stats(r#"{"z": 1}"#, 0), [0, 0, 300]);
    assert_eq!(
        stats(r#"{"a": {"$lt": 10}, "b": 3}"#, 0)[2],
        stats(r#"{"a": {"$lt": 10}, "b": 3}"#, 0)[0]
    );
    assert_eq!(stats("{}", 5), [5, 0, 5]);
}

#[test]
fn other_commands_explain() {
    let b = bench();
    let q = j(r#"{"a": 3}"#);
    let explain = |e: &Explainable<'_>| {
        b.engine
            .explain(&b.op, e, Verbosity::ExecutionStats)
            .unwrap()
    };
    let count = CountRequest {
        filter: q.as_doc(),
        ..CountRequest::new(NS)
    };
    let d = explain(&Explainable::Count(&count));
    assert_eq!(
        winner(&d),
        "COUNT < COUNT_SCAN ab {a: [3, 3]; b: [MaxKey, MinKey]}"
    );
    let all = explain(&Explainable::Count(&CountRequest::new(NS)));
    assert_eq!(winner(&all), "RECORD_STORE_FAST_COUNT");
    let distinct = DistinctRequest {
        namespace: NS,
        key: "s",
        filter: Doc::EMPTY,
        hint: None,
        collation: None,
        let_: Doc::EMPTY,
    };
    assert_eq!(
        winner(&explain(&Explainable::Distinct(&distinct))),
        "PROJECTION_COVERED < DISTINCT_SCAN s {s: [MinKey, MaxKey]}"
    );
    let distinct_b = DistinctRequest {
        key: "b",
        filter: q.as_doc(),
        ..distinct.clone()
    };
    let d = explain(&Explainable::Distinct(&distinct_b));
    assert_eq!(
        winner(&d),
        "PROJECTION_COVERED < DISTINCT_SCAN ab {a: [3, 3]; b: [MaxKey, MinKey]}"
    );
    let keys = d.as_doc().get_doc("executionStats").unwrap();
    assert_eq!(
        keys.get("totalDocsExamined").unwrap().as_i64_exact(),
        Some(0)
    );
    // The values come in canonical order, and the scan reads no more than one key for each.
    assert_eq!(
        text(
            b.engine
                .distinct(&b.op, &distinct_b)
                .unwrap()
                .as_doc()
                .as_bytes()
        ),
        r#"{"0":0,"1":1,"2":2,"3":3,"4":4,"5":5,"6":6}"#
    );
    let group = muniment_value::array![
        doc! { "$match": doc! { "a": doc! { "$gt": 20 } } },
        doc! { "$group": doc! { "_id": "$b", "n": doc! { "$sum": "$a" } } },
    ];
    let d = explain(&Explainable::Aggregate(&AggregateRequest {
        db: "test",
        collection: Some("c"),
        pipeline: group.as_doc(),
        hint: None,
        allow_disk_use: None,
        collation: None,
        let_: Doc::EMPTY,
        bypass_document_validation: false,
        member: false,
    }));
    let cursor = d.as_doc().get_array("stages").unwrap();
    let cursor = cursor.first().unwrap().value().as_doc().unwrap();
    let cursor = cursor.get_doc("$cursor").unwrap().to_buf();
    assert_eq!(
        winner(&cursor),
        "PROJECTION_COVERED < IXSCAN ab {a: (20, inf]; b: [MaxKey, MinKey]}"
    );
    let delete = DeleteStatement {
        filter: q.as_doc(),
        multi: true,
        hint: None,
        collation: None,
        let_: Doc::EMPTY,
    };
    let d = explain(&Explainable::Delete {
        namespace: NS,
        statement: &delete,
    });
    assert!(
        winner(&d).starts_with("DELETE < FETCH < IXSCAN ab"),
        "{}",
        winner(&d)
    );
    let stage = d
        .as_doc()
        .get_doc("executionStats")
        .unwrap()
        .get_doc("executionStages")
        .unwrap();
    assert_eq!(stage.get("nWouldDelete").unwrap().as_i64_exact(), Some(10));
    let u = doc! { "$set": doc! { "b": 3 } };
    let update = UpdateStatement {
        multi: true,
        ..UpdateStatement::new(q.as_doc(), Value::Document(u.as_doc()))
    };
    let d = explain(&Explainable::Update {
        namespace: NS,
        statement: &update,
    });
    assert!(winner(&d).starts_with("UPDATE < FETCH"), "{}", winner(&d));
    assert_eq!(
        b.find(r#"{"a": 3, "b": 3}"#).len(),
        2,
        "explain wrote nothing"
    );
}

#[test]
fn the_trial_of_every_plan_is_told() {
    let b = bench();
    let filter = j(r#"{"a": {"$gt": 20}, "s": {"$gte": "k1"}}"#);
    let request = FindRequest {
        filter: filter.as_doc(),
        ..FindRequest::new(NS)
    };
    let what = Explainable::Find(&request);
    let d = b
        .engine
        .explain(&b.op, &what, Verbosity::AllPlansExecution)
        .unwrap();
    let stats = d.as_doc().get_doc("executionStats").unwrap();
    let all: Vec<Doc<'_>> = stats
        .get_array("allPlansExecution")
        .unwrap()
        .values()
        .filter_map(|v| v.as_doc())
        .collect();
    let plan = d.as_doc().get_doc("queryPlanner").unwrap();
    let rejected = plan.get_array("rejectedPlans").unwrap().count();
    assert_eq!((all.len(), rejected), (2, 1));
    let score = |d: &Doc<'_>| match d.get("score") {
        Some(Value::Double(n)) => n,
        other => panic!("{other:?}"),
    };
    assert!(
        all.iter()
            .all(|d| score(d) <= score(&all[0]) && score(d) > 1.0)
    );
    for d in &all {
        let stages = d.get_doc("executionStages").unwrap();
        assert_eq!(stages.get_str("stage"), Some("FETCH"));
        assert!(stages.get("works").is_some() && d.get("totalKeysExamined").is_some());
    }
}

#[test]
fn the_cache_forgets_a_plan_that_went_bad() {
    let b = Bench::new();
    let docs: Vec<DocBuf> = (0..3000)
        .map(|i| doc! { "_id": i, "x": if i < 5 { 1 } else { 0 }, "y": if i % 2 == 0 { 1 } else { -i } })
        .collect();
    b.insert(&docs);
    b.index(r#"{"key": {"x": 1}, "name": "x"}"#).unwrap();
    b.index(r#"{"key": {"y": 1}, "name": "y"}"#).unwrap();
    let run = |x: i32, y: i32| {
        let f = doc! { "x": x, "y": y };
        let op = OpContext::internal("find");
        let request = FindRequest {
            filter: f.as_doc(),
            ..FindRequest::new(NS)
        };
        let mut cursor = b.engine.find(&op, &request).unwrap();
        let mut n = 0;
        while cursor.next_doc(&op).unwrap().is_some() {
            n += 1;
        }
        let plan = op.plan_summary().unwrap();
        (n, plan)
    };
    assert_eq!(run(1, 1), (3, "IXSCAN { x: 1 }".into()));
    assert_eq!(run(1, 1), (3, "IXSCAN { x: 1 }".into()));
    let cached = || {
        let stats = b.engine.plan_cache_stats(NS, Some("h:1")).unwrap();
        assert_eq!(stats.len(), 1, "{stats:?}");
        let d = stats[0].as_doc();
        let mut plan = String::new();
        chain(d.get_doc("cachedPlan").unwrap(), &mut plan);
        let scores = d.get_array("candidatePlanScores").unwrap();
        let scores: Vec<f64> = scores
            .values()
            .filter_map(muniment_value::number::to_f64)
            .collect();
        assert!(scores.len() == 2 && scores[0] > scores[1], "{scores:?}");
        assert_eq!(d.get_array("creationExecStats").unwrap().count(), 2);
        assert_eq!(d.get_str("host"), Some("h:1"));
        let query = text(&d.get_doc("createdFromQuery").unwrap().to_buf());
        (
            plan,
            query,
            d.get_str("planCacheShapeHash").unwrap().to_string(),
        )
    };
    let (plan, query, hash) = cached();
    assert_eq!(plan, "FETCH +filter < IXSCAN x {x: [1, 1]}");
    assert!(query.contains(r#"{"x":1,"y":1}"#), "{query}");
    // For other values the cached plan would read 3000 documents to find one, so there is a new
    // trial.
    assert_eq!(run(0, -7), (1, "IXSCAN { y: 1 }".into()));
    let (plan, _, same) = cached();
    assert_eq!(plan, "FETCH +filter < IXSCAN y {y: [-7, -7]}");
    assert_eq!(same, hash);
    // Explaining changes nothing; a new index does.
    let f = doc! { "x": 0, "y": doc! { "$lt": 0 } };
    let request = FindRequest {
        filter: f.as_doc(),
        ..FindRequest::new(NS)
    };
    let what = Explainable::Find(&request);
    let op = OpContext::internal("explain");
    b.engine
        .explain(&op, &what, Verbosity::ExecutionStats)
        .unwrap();
    assert_eq!(cached().2, hash);
    b.index(r#"{"key": {"z": 1}, "name": "z"}"#).unwrap();
    assert!(b.engine.plan_cache_stats(NS, None).unwrap().is_empty());
}

#[test]
fn expressions_use_indexes_and_find_the_same() {
    let values = [
        "1",
        "1.0",
        "2",
        "null",
        "'x'",
        "[1]",
        "[1, 2]",
        "[[1]]",
        "{'b': 1}",
        "[{'b': 1}]",
        "{'b': [1]}",
        "[]",
        "{'$numberLong': '1'}",
    ];
    let mut docs: Vec<DocBuf> = values
        .iter()
        .enumerate()
        .map(|(i, v)| j(&format!(r#"{{"_id": {i}, "a": {v}}}"#).replace('\'', "\"")))
        .collect();
    docs.push(j(r#"{"_id": 100}"#));
    let (plain, indexed) = (Bench::new(), Bench::new());
    for b in [&plain, &indexed] {
        b.insert(&docs);
    }
    indexed.index(r#"{"key": {"a": 1}, "name": "a"}"#).unwrap();
    indexed
        .index(r#"{"key": {"a.b": 1}, "name": "ab"}"#)
        .unwrap();
    let run = |b: &Bench, f: &DocBuf| {
        let op = OpContext::internal("find");
        let request = FindRequest {
            filter: f.as_doc(),
            ..FindRequest::new(NS)
        };
        let mut cursor = b.engine.find(&op, &request).unwrap();
        let mut ids = Vec::new();
        while let Some(d) = cursor.next_doc(&op).unwrap() {
            ids.push(Doc::new(&d).get("_id").unwrap().as_i64_exact().unwrap());
        }
        ids.sort_unstable();
        (ids, op.plan_summary().unwrap_or_default())
    };
    for (expr, index) in [
        (r#"{"$eq": ["$a", 1]}"#, "a"),
        (r#"{"$eq": ["x", "$a"]}"#, "a"),
        (r#"{"$eq": ["$a", null]}"#, ""),
        (r#"{"$eq": ["$a", [1]]}"#, ""),
        (r#"{"$eq": ["$a", {"b": 1}]}"#, "a"),
        (r#"{"$eq": ["$a.b", 1]}"#, "a.b"),
        (r#"{"$in": ["$a", [1, "x", 7]]}"#, "a"),
        (
            r#"{"$and": [{"$eq": ["$a", 1]}, {"$gt": ["$_id", 0]}]}"#,
            "a",
        ),
        (r#"{"$ne": ["$a", 1]}"#, ""),
    ] {
        let f = j(&format!(r#"{{"$expr": {expr}}}"#));
        let (ids, plan) = run(&indexed, &f);
        assert_eq!(ids, run(&plain, &f).0, "{expr}");
        match index {
            "" => assert_eq!(plan, "COLLSCAN", "{expr}"),
            path => assert_eq!(plan, format!("IXSCAN {{ {path}: 1 }}"), "{expr}"),
        }
    }
}

#[test]
fn a_cached_plan_reads_no_more_than_the_limit() {
    let b = Bench::new();
    let docs: Vec<DocBuf> = (0..2000)
        .map(|i| doc! { "_id": i, "x": i % 2, "y": i % 3 })
        .collect();
    b.insert(&docs);
    b.index(r#"{"key": {"x": 1}, "name": "x"}"#).unwrap();
    b.index(r#"{"key": {"y": 1}, "name": "y"}"#).unwrap();
    let f = doc! { "x": 1, "y": 1 };
    let request = FindRequest {
        filter: f.as_doc(),
        limit: 1,
        ..FindRequest::new(NS)
    };
    for cached in [false, true] {
        let op = OpContext::internal("find");
        let mut cursor = b.engine.find(&op, &request).unwrap();
        while cursor.next_doc(&op).unwrap().is_some() {}
        let read = op
            .counters
            .docs_examined
            .load(std::sync::atomic::Ordering::Relaxed);
        assert!(!cached || read < 10, "{read}");
    }
}

#[test]
fn sorts_spill() {
    let b = bench();
    let sort = j(r#"{"z": 1, "u": -1}"#);
    let ctx = muniment_query::QueryContext::new();
    let filter = Arc::new(muniment_query::Filter::parse(Doc::EMPTY, &ctx).unwrap());
    let collection = b.engine.store.collection(NS).unwrap();
    let spec = muniment_query::SortSpec::parse(sort.as_doc(), &muniment_query::QueryContext::new())
        .unwrap();
    for (memory, spill) in [(1 << 20, true), (2000, true), (2000, false)] {
        let mut recipe = b.engine.recipe(&collection, &filter);
        recipe.sort = Some((spec.clone(), sort.clone()));
        recipe.sort_limits.memory = memory;
        if !spill {
            recipe.sort_limits.scratch = None;
        }
        let query = crate::plan::query::Query {
            sort: Some(&spec),
            ..crate::plan::query::Query::of(&filter)
        };
        let candidates =
            crate::plan::candidate::candidates(&collection, &query, Work::unasked()).unwrap();
        let mut exec =
            crate::run::exec::Exec::build(&recipe, Arc::new(candidates[0].clone()), None);
        let mut got = Vec::new();
        let result = loop {
            match exec.next_row(&b.op) {
                Ok(Some(row)) => {
                    got.push(
                        Doc::new(&row.doc)
                            .get("_id")
                            .unwrap()
                            .as_i64_exact()
                            .unwrap(),
                    );
                }
                Ok(None) => break Ok(()),
                Err(e) => break Err(e.code().0),
            }
        };
        if spill {
            assert_eq!(result, Ok(()));
            assert_eq!(got, (0..300).rev().collect::<Vec<i64>>());
        } else {
            assert_eq!(result, Err(292));
        }
    }
}

#[test]
fn a_clustered_collection_says_so() {
    let b = Bench::new();
    let options = muniment_storage::CollectionOptions {
        document: j(r#"{"clusteredIndex": {"key": {"_id": 1}, "name": "c", "unique": true}}"#),
        ..Default::default()
    };
    b.engine
        .create_collection(NS, options, &OpContext::internal("create"))
        .unwrap();
    b.insert(
        &(0..20)
            .map(|i| doc! { "_id": i, "a": i })
            .collect::<Vec<_>>(),
    );
    let filter = j(r#"{"_id": {"$gte": 5, "$lt": 15}, "a": {"$gt": 9}}"#);
    let d = b.explain(&FindRequest {
        filter: filter.as_doc(),
        ..FindRequest::new(NS)
    });
    assert_eq!(winner(&d), "CLUSTERED_IXSCAN +filter");
    let shown = text(&d);
    for part in [
        r#""direction":"forward","minRecord":5,"maxRecord":15"#,
        r#""nReturned":5,"#,
        r#""totalDocsExamined":10,"#,
        r#""docsExamined":10"#,
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}
