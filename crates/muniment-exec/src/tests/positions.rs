//! Cursors whose positions last from batch to batch, and single writes that lose their document to
//! another operation.

use super::*;
use muniment_storage::CollectionOptions;
use muniment_value::{Code, Value, doc};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use testkit::random::Rng;

/// 300 documents with a in 0..5 and b in 0..50.
fn bench(rng: &mut Rng) -> Bench {
    let b = Bench::new();
    let docs: Vec<DocBuf> = (0..300)
        .map(|i| doc! { "_id": i, "a": rng.below(5) as i32, "b": rng.below(50) as i32 })
        .collect();
    assert!(b.insert(&docs).errors.is_empty());
    for index in [
        r#"{"key": {"a": 1, "b": 1}, "name": "ab"}"#,
        r#"{"key": {"c": 1, "b": 1}, "name": "cb"}"#,
        r#"{"key": {"a": 1}, "name": "a"}"#,
    ] {
        b.index(index).unwrap();
    }
    b
}

fn int(d: Doc<'_>, name: &str) -> i32 {
    d.get(name)
        .and_then(muniment_value::number::to_i64_exact)
        .unwrap() as i32
}

/// Reads with updates between the documents. Every document comes at most once, matches as it is
/// returned, and is what is stored. Those that were not updated all come, in order.
fn interleaved(seed: u64, filter: &str, sort: &str, hint: Option<&str>, matches: fn(i32) -> bool) {
    let mut rng = Rng::new(seed);
    let b = bench(&mut rng);
    let (f, s) = (j(filter), j(sort));
    let request = FindRequest {
        filter: f.as_doc(),
        sort: s.as_doc(),
        hint: hint.map(Hint::Name),
        ..FindRequest::new(NS)
    };
    let mut touched = HashSet::new();
    let mut before: BTreeMap<i32, (i32, i32)> = BTreeMap::new();
    for d in b.run(&FindRequest::new(NS)).unwrap() {
        let d = d.as_doc();
        before.insert(int(d, "_id"), (int(d, "a"), int(d, "b")));
    }
    let mut cursor = b.engine.find(&b.op, &request).unwrap();
    let mut given: Vec<(i32, i32)> = Vec::new();
    let mut seen = HashSet::new();
    while let Some(d) = cursor.next_doc(&b.op).unwrap() {
        let (id, a, bb) = (
            int(Doc::new(&d), "_id"),
            int(Doc::new(&d), "a"),
            int(Doc::new(&d), "b"),
        );
        let what = format!("seed {seed} filter {filter} id {id} a {a} b {bb}");
        assert!(seen.insert(id), "twice: {what}");
        assert!(matches(a), "no match: {what}");
        let now = b.find(&format!(r#"{{"_id": {id}}}"#));
        assert_eq!(now, [text(&d)], "not as stored: {what}");
        if !touched.contains(&id) {
            given.push((bb, id));
        }
        if rng.below(3) == 0 {
            cursor.release();
            for _ in 0..4 {
                let id = rng.below(300) as i32;
                touched.insert(id);
                let set = match rng.below(3) {
                    0 => format!(r#"{{"$set": {{"a": {}}}}}"#, rng.below(5)),
                    1 => format!(r#"{{"$set": {{"b": {}}}}}"#, rng.below(50)),
                    _ => format!(
                        r#"{{"$set": {{"a": {}, "b": {}}}}}"#,
                        rng.below(5),
                        rng.below(50)
                    ),
                };
                b.update(&format!(r#"{{"_id": {id}}}"#), &set, false)
                    .unwrap();
            }
        }
    }
    if !s.as_doc().is_empty() {
        assert!(
            given.is_sorted_by_key(|(b, _)| *b),
            "seed {seed} {filter}: {given:?}"
        );
    }
    for (id, (a, _)) in before {
        if !touched.contains(&id) {
            assert_eq!(seen.contains(&id), matches(a), "seed {seed} {filter}: {id}");
        }
    }
}

#[test]
fn merged_scans_go_on_where_they_were() {
    for seed in 1..12 {
        let sort = r#"{"b": 1}"#;
        let some = |a| [1, 3, 4].contains(&a);
        interleaved(seed, r#"{"a": {"$in": [1, 3, 4]}}"#, sort, Some("ab"), some);
        // With two plans, rows of the trial are buffered.
        interleaved(seed, r#"{"a": {"$in": [1, 3, 4]}}"#, sort, None, some);
        let or = r#"{"$or": [{"a": 1}, {"a": 3, "b": {"$gte": 0}}, {"c": 7}]}"#;
        interleaved(seed, or, sort, None, |a| [1, 3].contains(&a));
        interleaved(seed, or, "{}", None, |a| [1, 3].contains(&a));
    }
}

#[test]
fn keys_are_skipped_without_documents() {
    let b = bench(&mut Rng::new(3));
    let sort = j(r#"{"a": 1, "b": 1}"#);
    for (filter, keys) in [
        ("{}", 120),
        (r#"{"a": {"$gte": 1}}"#, 120),
        (r#"{"a": {"$in": [0, 1, 2, 3]}}"#, 130),
    ] {
        let filter = j(filter);
        let all = FindRequest {
            filter: filter.as_doc(),
            sort: sort.as_doc(),
            hint: Some(Hint::Name("ab")),
            ..FindRequest::new(NS)
        };
        let part = FindRequest {
            skip: 100,
            limit: 20,
            ..all.clone()
        };
        let want = b.run(&all).unwrap()[100..120].to_vec();
        assert_eq!(b.run(&part).unwrap(), want);
        let explain = b.explain(&part);
        let stats = explain.as_doc().get("executionStats").unwrap();
        let stats = stats.as_doc().unwrap();
        assert_eq!(int(stats, "totalDocsExamined"), 20, "{}", text(&explain));
        assert!(
            int(stats, "totalKeysExamined") <= keys,
            "{}",
            text(&explain)
        );
    }
    // A document is read if a condition can be decided only on the document.
    let filter = j(r#"{"a": {"$gte": 0}, "d": null}"#);
    let part = FindRequest {
        filter: filter.as_doc(),
        skip: 290,
        hint: Some(Hint::Name("ab")),
        ..FindRequest::new(NS)
    };
    assert_eq!(b.run(&part).unwrap().len(), 10);
}

#[test]
fn many_documents_of_one_key_are_resumed_at_the_place() {
    let b = Bench::new();
    let docs: Vec<DocBuf> = (0..2000)
        .map(|i| doc! { "_id": i, "a": i / 1000 })
        .collect();
    assert!(b.insert(&docs).errors.is_empty());
    b.index(r#"{"key": {"a": 1}, "name": "a"}"#).unwrap();
    for order in [1, -1] {
        let (filter, sort) = (j(r#"{"a": {"$gte": 0}}"#), doc! { "a": order });
        let request = FindRequest {
            filter: filter.as_doc(),
            sort: sort.as_doc(),
            ..FindRequest::new(NS)
        };
        let op = OpContext::internal("find");
        let mut cursor = b.engine.find(&op, &request).unwrap();
        let mut n = 0;
        while cursor.next_doc(&op).unwrap().is_some() {
            n += 1;
            cursor.release();
        }
        let mut out = Vec::new();
        cursor.fill_batch(&op, &mut out, BatchLimits::NEXT).unwrap();
        assert_eq!(n, 2000);
        assert!(op.counters.keys_examined.load(Relaxed) <= 4010);
    }
}

#[test]
fn an_overrun_capped_cursor_says_so() {
    let b = Bench::new();
    let options = CollectionOptions {
        capped_size: Some(1 << 20),
        capped_max: Some(10),
        ..CollectionOptions::default()
    };
    b.engine.create_collection(NS, options, &b.op).unwrap();
    let fill = |from: i32, n: i32| {
        for i in from..from + n {
            b.insert(&[doc! { "_id": i }]);
        }
    };
    fill(0, 10);
    for (from, tailable, natural) in [(10, false, 1), (30, true, 1), (50, false, -1)] {
        let sort = doc! { "$natural": natural };
        let request = FindRequest {
            tailable,
            await_data: tailable,
            sort: sort.as_doc(),
            ..FindRequest::new(NS)
        };
        let mut cursor = b.engine.find(&b.op, &request).unwrap();
        for _ in 0..3 {
            assert!(cursor.next_doc(&b.op).unwrap().is_some());
        }
        cursor.release();
        // The document that the cursor saw last still exists.
        fill(from, 2);
        assert!(cursor.next_doc(&b.op).unwrap().is_some());
        cursor.release();
        fill(from + 2, 10);
        let e = cursor.next_doc(&b.op).unwrap_err();
        assert_eq!(e.code(), Code::CappedPositionLost);
    }
}

/// One of two documents matches at any moment; every update and findAndModify must find it.
#[test]
fn a_match_that_is_always_there_is_always_found() {
    for index in [false, true] {
        let b = Bench::new();
        b.insert_json(&[
            r#"{"_id": 1, "x": 1, "n": 0}"#,
            r#"{"_id": 2, "x": 0, "n": 0}"#,
        ]);
        if index {
            b.index(r#"{"key": {"x": 1}, "name": "x"}"#).unwrap();
        }
        let over = AtomicBool::new(false);
        let (q, u) = (j(r#"{"x": 1}"#), j(r#"{"$inc": {"n": 1}}"#));
        std::thread::scope(|s| {
            s.spawn(|| {
                while !over.load(Relaxed) {
                    for (id, x) in [(2, 1), (1, 0), (1, 1), (2, 0)] {
                        let filter = format!(r#"{{"_id": {id}}}"#);
                        b.update(&filter, &format!(r#"{{"$set": {{"x": {x}}}}}"#), false)
                            .unwrap();
                    }
                }
            });
            let began = std::time::Instant::now();
            let mut missed = 0;
            while began.elapsed() < Duration::from_millis(1500) {
                let n = b.update(r#"{"x": 1}"#, r#"{"$inc": {"n": 1}}"#, false);
                missed += u32::from(n.unwrap().matched == 0);
                let sort = doc! { "x": 1 };
                let request = FindAndModifyRequest {
                    namespace: NS,
                    filter: q.as_doc(),
                    sort: sort.as_doc(),
                    remove: false,
                    update: Some(Value::Document(u.as_doc())),
                    new: false,
                    fields: Doc::EMPTY,
                    upsert: false,
                    array_filters: Doc::EMPTY,
                    hint: None,
                    let_: Doc::EMPTY,
                    collation: None,
                    bypass_document_validation: false,
                    bypass_empty_ts_replacement: false,
                };
                let done = b.engine.find_and_modify(&b.op, &request);
                missed += u32::from(done.unwrap().value.is_none());
            }
            over.store(true, Relaxed);
            assert_eq!(missed, 0, "index {index}");
        });
    }
}
