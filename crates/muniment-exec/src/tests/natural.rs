//! The natural order is the order of inserts, wherever a client can see it.
use super::*;
use muniment_query::Interrupt;
use muniment_storage::CollectionOptions;
use muniment_value::{Code, Value, doc};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

fn aggregate(b: &Bench, pipeline: &str) -> Vec<String> {
    let wrapped = j(&format!(r#"{{"p": {pipeline}}}"#));
    let pipeline = wrapped.as_doc().get_array("p").unwrap();
    let mut cursor = b.engine.aggregate(&b.op, &aggregation(pipeline)).unwrap();
    let mut out = Vec::new();
    while let Some(d) = cursor.next_doc(&b.op).unwrap() {
        out.push(text(&d));
    }
    out
}

fn ids(docs: &[DocBuf]) -> Vec<i64> {
    let id = |d: &DocBuf| d.as_doc().get("_id").unwrap().as_i64_exact().unwrap();
    docs.iter().map(id).collect()
}

#[test]
fn documents_come_as_they_were_inserted() {
    let b = Bench::new();
    let order = [9, 3, 7, -1, 12, 5];
    let docs: Vec<DocBuf> = order
        .iter()
        .map(|id| doc! { "_id": *id, "k": 1, "even": id % 2 == 0 })
        .collect();
    assert!(b.insert(&docs).errors.is_empty());
    let all = FindRequest::new(NS);
    let wanted: Vec<i64> = order.iter().map(|id| i64::from(*id)).collect();
    assert_eq!(ids(&b.run(&all).unwrap()), wanted);
    let one = FindRequest {
        limit: 1,
        ..all.clone()
    };
    assert_eq!(ids(&b.run(&one).unwrap()), [9]);
    for (direction, backward) in [(r#"{"$natural": 1}"#, false), (r#"{"$natural": -1}"#, true)] {
        let d = j(direction);
        let mut wanted = wanted.clone();
        if backward {
            wanted.reverse();
        }
        let sorted = FindRequest {
            sort: d.as_doc(),
            ..all.clone()
        };
        assert_eq!(ids(&b.run(&sorted).unwrap()), wanted);
        let hinted = FindRequest {
            hint: Some(Hint::Pattern(d.as_doc())),
            ..all.clone()
        };
        assert_eq!(ids(&b.run(&hinted).unwrap()), wanted);
    }
    let shown = FindRequest {
        show_record_id: true,
        ..all.clone()
    };
    let shown = b.run(&shown).unwrap();
    let numbers: Vec<i64> = shown
        .iter()
        .map(|d| match d.as_doc().get("$recordId") {
            Some(Value::Int64(n)) => n,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(numbers.is_sorted() && numbers.len() == 6, "{numbers:?}");
    assert_eq!(
        aggregate(
            &b,
            r#"[{"$group": {"_id": "$even", "first": {"$first": "$_id"}, "last": {"$last": "$_id"}, "all": {"$push": "$_id"}}}, {"$sort": {"_id": 1}}]"#
        ),
        [
            r#"{"_id":false,"first":9,"last":5,"all":[9,3,7,-1,5]}"#,
            r#"{"_id":true,"first":12,"last":12,"all":[12]}"#
        ]
    );
    // Documents with equal index keys keep this order, and an update leaves a document in its
    // place.
    b.index(r#"{"key": {"k": 1}, "name": "k_1"}"#).unwrap();
    b.update(
        r#"{"_id": 3}"#,
        r#"{"$set": {"long": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}}"#,
        false,
    )
    .unwrap();
    let (k, only) = (j(r#"{"k": 1}"#), j(r#"{"_id": 1}"#));
    let tied = FindRequest {
        filter: k.as_doc(),
        projection: only.as_doc(),
        ..all.clone()
    };
    assert_eq!(ids(&b.run(&tied).unwrap()), wanted);
    // A document that is deleted and inserted again is the last.
    b.delete(r#"{"_id": 9}"#, false).unwrap();
    b.insert_json(&[r#"{"_id": 9}"#]);
    assert_eq!(ids(&b.run(&all).unwrap()), [3, 7, -1, 12, 5, 9]);
    // If a client asks for the order of `_id`, no document is read.
    let by_id = j(r#"{"_id": 1}"#);
    let sorted = FindRequest {
        sort: by_id.as_doc(),
        projection: only.as_doc(),
        ..all.clone()
    };
    assert_eq!(ids(&b.run(&sorted).unwrap()), [-1, 3, 5, 7, 9, 12]);
    let some = j(r#"{"_id": {"$gte": 5}}"#);
    let covered = FindRequest {
        filter: some.as_doc(),
        projection: only.as_doc(),
        ..all
    };
    assert_eq!(ids(&b.run(&covered).unwrap()), [5, 7, 9, 12]);
    let explained = text(&b.explain(&covered));
    assert!(explained.contains("PROJECTION_COVERED"), "{explained}");
    assert!(
        explained.contains(r#""totalDocsExamined":0"#),
        "{explained}"
    );
}

#[test]
fn a_collection_with_a_clustered_index_comes_by_id() {
    let b = Bench::new();
    let options = CollectionOptions {
        document: doc! { "clusteredIndex": doc! { "key": doc! { "_id": 1 }, "unique": true } },
        ..CollectionOptions::default()
    };
    b.engine.create_collection(NS, options, &b.op).unwrap();
    b.insert_json(&[r#"{"_id": 3}"#, r#"{"_id": 1}"#, r#"{"_id": 2}"#]);
    assert_eq!(
        b.find("{}"),
        [r#"{"_id":1}"#, r#"{"_id":2}"#, r#"{"_id":3}"#]
    );
    let range = j(r#"{"_id": {"$gt": 1}}"#);
    let request = FindRequest {
        filter: range.as_doc(),
        ..FindRequest::new(NS)
    };
    let explained = text(&b.explain(&request));
    assert!(explained.contains("CLUSTERED_IXSCAN"), "{explained}");
}

/// Several threads insert, upsert, replace, delete and findAndModify the same few `_id`s. Every
/// acknowledged `$inc` is in the document that it was applied to, and no document exists twice.
#[test]
fn threads_that_fight_for_the_same_ids() {
    let b = Bench::new();
    b.insert_json(&[r#"{"_id": -1}"#]);
    b.delete("{}", false).unwrap();
    // For each `_id`: inserts minus deletes, and how often a document was incremented in total.
    let alive: Mutex<HashMap<i64, i64>> = Mutex::default();
    let (counted, gone) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..4_u64)
            .map(|t| {
                let (b, alive, counted, gone) = (&b, &alive, &counted, &gone);
                s.spawn(move || {
                    let mut seed = t * 7919 + 11;
                    let mut random = |n: u64| {
                        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
                        (seed >> 33) % n
                    };
                    for round in 0..600_i64 {
                        let id = match random(3) {
                            0 => 1000 + round,
                            _ => random(6) as i64,
                        };
                        let note = |by: i64| {
                            *alive.lock().unwrap().entry(id).or_default() += by;
                        };
                        let q = doc! { "_id": id };
                        match random(4) {
                            0 => {
                                let out = b.insert(&[doc! { "_id": id, "n": 0 }]);
                                match out.errors.first() {
                                    None => note(1),
                                    Some(e) => assert_eq!(e.error.code(), Code::DuplicateKey),
                                }
                            }
                            1 | 2 => {
                                let u = doc! { "$inc": doc! { "n": 1 } };
                                let statement = UpdateStatement {
                                    upsert: random(2) == 0,
                                    ..UpdateStatement::new(q.as_doc(), Value::Document(u.as_doc()))
                                };
                                let out = b.engine.update(&b.op, NS, &statement).unwrap();
                                assert!(out.matched + u64::from(out.upserted.is_some()) <= 1);
                                if out.upserted.is_some() {
                                    note(1);
                                }
                                if out.upserted.is_some() || out.matched > 0 {
                                    counted.fetch_add(1, SeqCst);
                                }
                            }
                            _ => {
                                let request = FindAndModifyRequest {
                                    namespace: NS,
                                    filter: q.as_doc(),
                                    sort: Doc::EMPTY,
                                    remove: true,
                                    update: None,
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
                                let out = b.engine.find_and_modify(&b.op, &request).unwrap();
                                if let Some(d) = out.value {
                                    let n = Doc::new(&d).get("n").unwrap();
                                    gone.fetch_add(n.as_i64_exact().unwrap() as u64, SeqCst);
                                    note(-1);
                                }
                            }
                        }
                    }
                })
            })
            .collect();
        s.spawn(|| {
            while !stop.load(SeqCst) && b.op.check().is_ok() {
                b.engine.store.flush().unwrap();
                b.index(r#"{"key": {"n": 1}, "name": "n_1"}"#).unwrap();
                let c = b.engine.store.collection(NS).unwrap();
                b.engine
                    .store
                    .drop_index(&c, "n_1", &NeverInterrupted)
                    .unwrap();
            }
        });
        let done: Vec<_> = threads.into_iter().map(|t| t.join()).collect();
        stop.store(true, SeqCst);
        done.into_iter().for_each(|d| d.unwrap());
    });
    let docs = b.run(&FindRequest::new(NS)).unwrap();
    let mut here = ids(&docs);
    let n = |d: &DocBuf| d.as_doc().get("n").unwrap().as_i64_exact().unwrap() as u64;
    let left: u64 = docs.iter().map(n).sum();
    assert_eq!(left + gone.load(SeqCst), counted.load(SeqCst));
    here.sort_unstable();
    let mut wanted: Vec<i64> = Vec::new();
    for (id, n) in alive.into_inner().unwrap() {
        assert!(n == 0 || n == 1, "{id}: {n}");
        wanted.extend((n == 1).then_some(id));
    }
    wanted.sort_unstable();
    assert_eq!(here, wanted);
    let c = b.engine.store.collection(NS).unwrap();
    let report = b
        .engine
        .store
        .validate(&c, true, &NeverInterrupted)
        .unwrap();
    assert!(report.as_doc().get("valid").unwrap().truthy(), "{report:?}");
}
