//! Metamorphic tests of `$lookup` and `$graphLookup`: a table scan, a hash table, an index and a
//! model agree; `$merge` and `$out` leave what they should.

use super::*;
use muniment_query::running::Work;
use muniment_query::{Filter, QueryContext};
use muniment_value::{Value, doc};
use std::collections::BTreeSet;
use testkit::random::Rng;

fn fill(b: &Bench, collection: &str, docs: &[DocBuf]) {
    let out = b
        .engine
        .insert_many(&b.op, collection, &each(docs), InsertOptions::default())
        .unwrap();
    assert!(out.errors.is_empty(), "{:?}", out.errors);
}

fn run(b: &Bench, pipeline: &str) -> Vec<DocBuf> {
    let p = j(&format!(r#"{{"p": {pipeline}}}"#));
    let request = aggregation(p.as_doc().get_array("p").unwrap());
    let mut cursor = b.engine.aggregate(&b.op, &request).unwrap();
    let mut out = Vec::new();
    while let Some(d) = cursor.next_doc(&b.op).unwrap() {
        out.push(DocBuf::from_doc(Doc::new(&d)));
    }
    out
}

/// The `_id`s of the joined documents by the `_id` of the local one.
fn joined(docs: &[DocBuf]) -> Vec<(i32, BTreeSet<i32>)> {
    let id = |d: Doc<'_>| match d.get("_id") {
        Some(Value::Int32(n)) => n,
        other => panic!("{other:?}"),
    };
    docs.iter()
        .map(|d| {
            let list = d.as_doc().get_array("j").unwrap();
            let ids: Vec<i32> = list.values().map(|v| id(v.as_doc().unwrap())).collect();
            let set: BTreeSet<i32> = ids.iter().copied().collect();
            assert_eq!(ids.len(), set.len(), "a document comes once");
            (id(d.as_doc()), set)
        })
        .collect()
}

/// Equality as the documentation defines it, decided by the filter's own matcher.
fn model(local: &[DocBuf], foreign: &[DocBuf]) -> Vec<(i32, BTreeSet<i32>)> {
    let matching = |v: Value<'_>| -> Vec<i32> {
        let filter = doc! { "x": doc! { "$eq": v } };
        let filter = Filter::parse(filter.as_doc(), &QueryContext::new()).unwrap();
        foreign
            .iter()
            .enumerate()
            .filter(|(_, d)| filter.matches(d.as_doc(), Work::unasked()).unwrap())
            .map(|(i, _)| i as i32)
            .collect()
    };
    local
        .iter()
        .enumerate()
        .map(|(i, d)| {
            let ids = match d.as_doc().get("a") {
                None => matching(Value::Null),
                Some(Value::Array(a)) if a.is_empty() => matching(Value::Null),
                Some(Value::Array(a)) => a.values().flat_map(matching).collect(),
                Some(v) => matching(v),
            };
            (i as i32, ids.into_iter().collect())
        })
        .collect()
}

fn documents(rng: &mut Rng, n: i32, field: &str) -> Vec<DocBuf> {
    (0..n)
        .map(|i| match rng.below(8) {
            0 => doc! { "_id": i },
            _ => j(&format!(
                r#"{{"_id": {i}, "{field}": {}}}"#,
                rng.value(true)
            )),
        })
        .collect()
}

const JOIN: &str =
    r#"[{"$lookup": {"from": "f", "localField": "a", "foreignField": "x", "as": "j"}}]"#;

#[test]
fn a_lookup_is_the_same_by_scan_by_hash_by_index_and_by_the_model() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let local = documents(&mut rng, 40, "a");
        let foreign = documents(&mut rng, 60, "x");
        let b = Bench::new();
        fill(&b, NS, &local);
        fill(&b, "test.f", &foreign);
        let want = model(&local, &foreign);
        // The first look-up scans the collection, the others use the hash table.
        assert_eq!(joined(&run(&b, JOIN)), want, "hash, seed {seed}");
        for (i, (_, ids)) in want.iter().enumerate() {
            let one = format!(r#"[{{"$match": {{"_id": {i}}}}}, {}"#, &JOIN[1..]);
            assert_eq!(joined(&run(&b, &one))[0].1, *ids, "scan, seed {seed}");
        }
        let f = b.engine.store.collection("test.f").unwrap();
        for (key, name) in [(1, "up"), (-1, "down")] {
            let spec = doc! { "key": doc! { "x": key, "y": 1 }, "name": name };
            let spec = IndexSpec::parse(spec.as_doc()).unwrap();
            b.engine
                .store
                .create_index(&f, spec, &NeverInterrupted)
                .unwrap();
            assert_eq!(joined(&run(&b, JOIN)), want, "index {name}, seed {seed}");
            b.engine
                .store
                .drop_index(&f, name, &NeverInterrupted)
                .unwrap();
        }
    }
}

#[test]
fn arrays_in_other_fields_of_an_index_join_once() {
    let b = Bench::new();
    b.index(r#"{"key": {"a": 1, "b": 1}, "name": "a_b"}"#)
        .unwrap();
    b.insert_json(&[r#"{"_id": 1, "a": 5, "b": [7, 8]}"#]);
    let p = j(
        r#"{"p": [{"$lookup": {"from": "c", "localField": "a", "foreignField": "a", "as": "j"}}]}"#,
    );
    let request = aggregation(p.as_doc().get_array("p").unwrap());
    let mut cursor = b.engine.aggregate(&b.op, &request).unwrap();
    let d = cursor.next_doc(&b.op).unwrap().unwrap();
    assert_eq!(Doc::new(&d).get_array("j").unwrap().count(), 1);
}

#[test]
fn an_unwound_lookup_is_a_lookup_and_an_unwind() {
    let mut rng = Rng::new(7);
    let b = Bench::new();
    fill(&b, NS, &documents(&mut rng, 40, "a"));
    fill(&b, "test.f", &documents(&mut rng, 60, "x"));
    for unwind in [
        r#"{"$unwind": "$j"}"#,
        r#"{"$unwind": {"path": "$j", "preserveNullAndEmptyArrays": true, "includeArrayIndex": "i"}}"#,
    ] {
        let join = &JOIN[1..JOIN.len() - 1];
        let absorbed = run(&b, &format!("[{join}, {unwind}]"));
        // A stage between the two keeps them apart.
        let apart = run(&b, &format!(r#"[{join}, {{"$skip": 0}}, {unwind}]"#));
        assert_eq!(absorbed.len(), apart.len());
        assert!(absorbed == apart, "{unwind}");
    }
}

#[test]
fn graphs_are_searched_breadth_first_and_once() {
    let b = Bench::new();
    b.insert_json(&[r#"{"_id": 1, "start": "a"}"#]);
    let edges: Vec<DocBuf> = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("x", "y")]
        .iter()
        .enumerate()
        .map(|(i, (from, to))| doc! { "_id": i as i32, "from": *from, "to": *to })
        .collect();
    fill(&b, "test.f", &edges);
    let search = |more: &str| {
        let out = run(
            &b,
            &format!(
                r#"[{{"$graphLookup": {{"from": "f", "startWith": "$start", "connectFromField": "to",
                    "connectToField": "from", "as": "j", "depthField": "d"{more}}}}}]"#
            ),
        );
        let list = out[0].as_doc().get_array("j").unwrap();
        list.values()
            .map(|v| {
                let d = v.as_doc().unwrap();
                (
                    d.get("_id").and_then(|v| v.as_i64_exact()).unwrap(),
                    d.get("d").and_then(|v| v.as_i64_exact()).unwrap(),
                )
            })
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(search(""), BTreeSet::from([(0, 0), (1, 1), (2, 2), (3, 2)]));
    assert_eq!(
        search(r#", "maxDepth": 1"#),
        BTreeSet::from([(0, 0), (1, 1)])
    );
    assert_eq!(
        search(r#", "restrictSearchWithMatch": {"to": {"$ne": "c"}}"#),
        BTreeSet::from([(0, 0)])
    );
}

#[test]
fn merging_and_replacing() {
    let b = Bench::new();
    b.insert_json(&[r#"{"_id": 1, "v": 1}"#, r#"{"_id": 2, "v": 2}"#]);
    fill(&b, "test.t", &[doc! { "_id": 1, "old": true }]);
    let read = |name: &str| -> Vec<String> {
        let request = FindRequest::new(name);
        b.run(&request).unwrap().iter().map(|d| text(d)).collect()
    };
    assert!(run(&b, r#"[{"$merge": "t"}]"#).is_empty());
    assert_eq!(
        read("test.t"),
        [r#"{"_id":1,"old":true,"v":1}"#, r#"{"_id":2,"v":2}"#]
    );
    let stages = r#"[{"$merge": {"into": "t", "let": {"n": "$v"},
        "whenMatched": [{"$set": {"sum": {"$add": ["$v", "$$n", "$$new.v"]}}}]}}]"#;
    run(&b, stages);
    assert_eq!(
        read("test.t"),
        [
            r#"{"_id":1,"old":true,"v":1,"sum":3}"#,
            r#"{"_id":2,"v":2,"sum":6}"#
        ]
    );
    let t = b.engine.store.collection("test.t").unwrap();
    let spec = IndexSpec::parse(j(r#"{"key": {"v": 1}, "name": "v_1", "unique": true}"#).as_doc());
    b.engine
        .store
        .create_index(&t, spec.unwrap(), &NeverInterrupted)
        .unwrap();
    run(&b, r#"[{"$match": {"_id": 2}}, {"$out": "t"}]"#);
    assert_eq!(read("test.t"), [r#"{"_id":2,"v":2}"#]);
    let t = b.engine.store.collection("test.t").unwrap();
    assert_eq!(t.indexes().len(), 2, "indexes stay");
    // After a failure the target is unchanged, and no half-written collection is left.
    let p = j(r#"{"p": [{"$set": {"v": 1}}, {"$out": "t"}]}"#);
    let request = aggregation(p.as_doc().get_array("p").unwrap());
    let mut cursor = b.engine.aggregate(&b.op, &request).unwrap();
    let e = cursor.next_doc(&b.op).err().unwrap();
    assert_eq!(e.code(), muniment_value::Code::DuplicateKey);
    drop(cursor);
    assert_eq!(read("test.t"), [r#"{"_id":2,"v":2}"#]);
    assert_eq!(b.engine.store.collections("test").len(), 2);
}
