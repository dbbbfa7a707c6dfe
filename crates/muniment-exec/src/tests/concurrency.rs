//! Many writers at the same time.

use super::*;
use muniment_value::{Value, doc};

#[test]
fn increments_are_never_lost() {
    let b = Bench::new();
    b.insert_json(&[r#"{"_id": 1, "n": 0, "k": "x"}"#]);
    b.index(r#"{"key": {"k": 1}, "name": "k_1"}"#).unwrap();
    b.index(r#"{"key": {"n": 1}, "name": "n_1"}"#).unwrap();
    const THREADS: i64 = 8;
    const EACH: i64 = 100;
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let b = &b;
            s.spawn(move || {
                for _ in 0..EACH {
                    // The threads find the document by `_id`, by another index, and by a scan.
                    let filter = match t % 3 {
                        0 => r#"{"_id": 1}"#,
                        1 => r#"{"k": "x"}"#,
                        _ => r#"{"n": {"$gte": 0}}"#,
                    };
                    let done = b.update(filter, r#"{"$inc": {"n": 1}}"#, false).unwrap();
                    assert_eq!(done.modified, 1);
                }
            });
        }
    });
    assert_eq!(
        b.find("{}"),
        [format!(r#"{{"_id":1,"n":{},"k":"x"}}"#, THREADS * EACH)]
    );
    assert_eq!(b.find(&format!(r#"{{"n": {}}}"#, THREADS * EACH)).len(), 1);
}

#[test]
fn upserts_of_one_key_make_one_document() {
    let b = Bench::new();
    b.index(r#"{"key": {"k": 1}, "name": "k_1", "unique": true}"#)
        .unwrap();
    std::thread::scope(|s| {
        for _ in 0..8 {
            let b = &b;
            s.spawn(move || {
                for k in 0..20 {
                    let (q, u) = (doc! { "k": k }, doc! { "$inc": doc! { "n": 1 } });
                    let statement = UpdateStatement {
                        upsert: true,
                        ..UpdateStatement::new(q.as_doc(), Value::Document(u.as_doc()))
                    };
                    b.engine.update(&b.op, NS, &statement).unwrap();
                }
            });
        }
    });
    let all = b.find("{}");
    assert_eq!(all.len(), 20);
    assert!(all.iter().all(|d| d.contains(r#""n":8"#)), "{all:?}");
}

#[test]
fn a_queue_gives_each_job_once() {
    let b = Bench::new();
    let docs: Vec<DocBuf> = (0..200)
        .map(|i| doc! { "_id": i, "state": "new" })
        .collect();
    b.insert(&docs);
    b.index(r#"{"key": {"state": 1}, "name": "state_1"}"#)
        .unwrap();
    let taken = parking_lot::Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for _ in 0..4 {
            let (b, taken) = (&b, &taken);
            s.spawn(move || {
                let (q, u) = (
                    doc! { "state": "new" },
                    doc! { "$set": doc! { "state": "run" } },
                );
                loop {
                    let out = b
                        .engine
                        .find_and_modify(
                            &b.op,
                            &FindAndModifyRequest {
                                namespace: NS,
                                filter: q.as_doc(),
                                sort: Doc::EMPTY,
                                remove: false,
                                update: Some(Value::Document(u.as_doc())),
                                new: true,
                                fields: Doc::EMPTY,
                                upsert: false,
                                array_filters: Doc::EMPTY,
                                hint: None,
                                collation: None,
                                let_: Doc::EMPTY,
                                bypass_document_validation: false,
                                bypass_empty_ts_replacement: false,
                            },
                        )
                        .unwrap();
                    let Some(d) = out.value else {
                        break;
                    };
                    taken
                        .lock()
                        .push(Doc::new(&d).get("_id").unwrap().as_i64_exact().unwrap());
                }
            });
        }
    });
    let mut taken = taken.into_inner();
    taken.sort_unstable();
    assert_eq!(taken, (0..200).collect::<Vec<i64>>());
}

#[test]
fn collections_are_created_once() {
    let b = Bench::new();
    std::thread::scope(|s| {
        for t in 0..8 {
            let b = &b;
            s.spawn(move || {
                for i in 0..25 {
                    let d = doc! { "_id": t * 100 + i };
                    let out = b.insert(&[d]);
                    assert_eq!(out.n, 1, "{:?}", out.errors);
                }
            });
        }
    });
    assert_eq!(b.engine.store.collection(NS).unwrap().count(), 200);
    assert_eq!(b.find("{}").len(), 200);
}
