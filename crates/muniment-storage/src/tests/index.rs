//! Indexes: maintenance, uniqueness, online builds, and many threads at once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::tests::{Many, all, bytes, insert, key_of, open};
use crate::*;
use muniment_op::{Interrupt, NeverInterrupted, Sleepers};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, array, doc, keyenc};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

fn spec(d: DocBuf) -> IndexSpec {
    IndexSpec::parse(d.as_doc()).unwrap()
}

pub(crate) fn index(store: &Store, c: &Arc<Collection>, d: DocBuf) -> Arc<Index> {
    store.create_index(c, spec(d), &NeverInterrupted).unwrap()
}

fn entries(store: &Store, c: &Collection, i: &Index) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = store
        .snapshot()
        .entries(c, i, &KeyRange::all(), Direction::Forward);
    let mut found = Vec::new();
    while let Some(e) = cursor.next(&NeverInterrupted).unwrap() {
        found.push((e.key.to_vec(), e.record_key.to_vec()));
    }
    found
}

pub(crate) fn key(v: Value<'_>) -> Vec<u8> {
    let mut k = Vec::new();
    keyenc::encode(v, false, &mut k);
    k
}

pub(crate) fn update(store: &Store, c: &Arc<Collection>, id: i32, new: DocBuf) -> Result<()> {
    let new = bytes(new);
    let mut many = Many::new(store, c);
    many.run(|w| match w.lock_by_id(Value::Int32(id))? {
        Ok(found) => {
            let (key, old) = found.expect("there");
            w.update(&key, &old, &new, Changed::Shorter, &|_| true)
        }
        Err(busy) => Ok(Err(busy)),
    })?;
    many.commit()
}

pub(crate) fn delete(store: &Store, c: &Arc<Collection>, id: i32) -> Result<bool> {
    let mut w = store.write_unit(c, &NeverInterrupted)?;
    let Some((key, old)) = w.lock_by_id(Value::Int32(id))?.unwrap() else {
        return Ok(false);
    };
    w.delete(&key, &old)?.unwrap();
    w.commit()?;
    Ok(true)
}

pub(crate) fn valid(store: &Store, c: &Arc<Collection>) {
    let report = store.validate(c, true, &NeverInterrupted).unwrap();
    assert!(
        report.as_doc().get("valid").unwrap().truthy(),
        "{:?}",
        report
    );
    let differences = store.compare_with_log(&NeverInterrupted).unwrap();
    assert_eq!(differences.unwrap_or_default(), Vec::<String>::new());
}

pub(crate) fn create(store: &Store, ns: &str) -> Arc<Collection> {
    store
        .create_collection(ns, CollectionOptions::default(), &NeverInterrupted)
        .unwrap()
}

#[test]
fn an_index_in_memory_has_a_size() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "t.c");
    let i = index(&store, &c, doc! { "key": doc! { "a": 1 }, "name": "a" });
    assert_eq!(store.index_bytes(&c, &i, &NeverInterrupted).unwrap(), 0);
    for n in 0..3000 {
        insert(&store, &c, doc! { "_id": n, "a": array![n, n + 10_000] }).unwrap();
        if n == 99 {
            let exact: usize = entries(&store, &c, &i)
                .iter()
                .map(|(k, r)| k.len() + r.len())
                .sum();
            let bytes = store.index_bytes(&c, &i, &NeverInterrupted).unwrap() as usize;
            assert!((exact..exact + 400).contains(&bytes), "{bytes}, {exact}");
        }
    }
    let exact: usize = entries(&store, &c, &i)
        .iter()
        .map(|(k, r)| k.len() + r.len())
        .sum();
    let bytes = store.index_bytes(&c, &i, &NeverInterrupted).unwrap() as usize;
    assert!(bytes > exact / 3 && bytes < exact * 3, "{bytes}, {exact}");
    assert!(store.storage_bytes(&c) > 0);
}

#[test]
fn entries_follow_their_documents() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    for i in 0..20 {
        insert(&store, &c, doc! { "_id": i, "x": i % 5 }).unwrap();
    }
    let x = index(&store, &c, doc! { "key": doc! { "x": 1 }, "name": "x_1" });
    assert_eq!(entries(&store, &c, &x).len(), 20);
    valid(&store, &c);
    update(&store, &c, 3, doc! { "_id": 3, "x": 100 }).unwrap();
    update(&store, &c, 4, doc! { "_id": 4, "x": array![7, 8, 7] }).unwrap();
    assert!(x.is_multikey());
    assert_eq!(x.multikey_paths(), [1]);
    delete(&store, &c, 5).unwrap();
    valid(&store, &c);
    assert_eq!(entries(&store, &c, &x).len(), 20);
    let range = KeyRange::prefix(key(Value::Int32(7)));
    let mut cursor = store.snapshot().entries(&c, &x, &range, Direction::Forward);
    let e = cursor.next(&NeverInterrupted).unwrap().unwrap();
    assert_eq!(e.record_key, key_of(&store, &c, 4));
    assert!(cursor.next(&NeverInterrupted).unwrap().is_none());
    drop(cursor);
    // If 1 becomes 1.0 the key is the same and the type bits differ.
    update(&store, &c, 1, doc! { "_id": 1, "x": 1.0 }).unwrap();
    valid(&store, &c);
    // An untouched path leaves the index alone.
    let k = key_of(&store, &c, 1);
    let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
    let old = w.lock(&k).unwrap().unwrap().unwrap();
    let new = bytes(doc! { "_id": 1, "x": 1.0, "y": 5 });
    w.update(&k, &old, &new, Changed::Shorter, &|p| p == "y")
        .unwrap()
        .unwrap();
    w.commit().unwrap();
    valid(&store, &c);
    drop(store);

    let store = open(dir.path());
    let c = store.collection("db.c").unwrap();
    valid(&store, &c);
    let x = c.indexes()[1].clone();
    assert_eq!(x.multikey_paths(), [1]);
    store.drop_index(&c, "x_1", &NeverInterrupted).unwrap();
    assert_eq!(c.indexes().len(), 1);
    let e = store.drop_index(&c, "x_1", &NeverInterrupted).unwrap_err();
    assert_eq!(e.code(), Code::IndexNotFound);
    assert_eq!(e.message(), "index not found with name [x_1]");
    assert_eq!(
        store
            .drop_index(&c, "_id_", &NeverInterrupted)
            .unwrap_err()
            .code(),
        Code::InvalidOptions
    );
}

#[test]
fn seeks_go_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    for i in 0..200 {
        insert(&store, &c, doc! { "_id": i, "x": i }).unwrap();
    }
    let x = index(&store, &c, doc! { "key": doc! { "x": 1 }, "name": "x_1" });
    let id_at = |cursor: &mut IndexCursor| {
        cursor
            .next(&NeverInterrupted)
            .unwrap()
            .map(|e| keyenc::decode(&e.key, false, &mut &[][..]).unwrap().0)
            .map(|v| v.as_value().as_i64_exact().unwrap())
    };
    let mut f = store
        .snapshot()
        .entries(&c, &x, &KeyRange::all(), Direction::Forward);
    assert_eq!(id_at(&mut f), Some(0));
    f.seek(&key(Value::Int32(5)));
    assert_eq!(id_at(&mut f), Some(5));
    f.seek(&key(Value::Int32(150)));
    assert_eq!(id_at(&mut f), Some(150));
    f.seek(&key(Value::Int32(500)));
    assert_eq!(id_at(&mut f), None);
    let mut b = store
        .snapshot()
        .entries(&c, &x, &KeyRange::all(), Direction::Backward);
    assert_eq!(id_at(&mut b), Some(199));
    b.seek(&key(Value::Int32(197)));
    assert_eq!(id_at(&mut b), Some(197));
    b.seek(&key(Value::Int32(20)));
    assert_eq!(id_at(&mut b), Some(20));
    assert_eq!(id_at(&mut b), Some(19));
}

#[test]
fn unique_sparse_and_partial() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    let u = doc! { "key": doc! { "x": 1 }, "name": "x_1", "unique": true };
    index(&store, &c, u);
    let s = doc! { "key": doc! { "s": 1 }, "name": "s_1", "unique": true, "sparse": true };
    index(&store, &c, s);
    insert(&store, &c, doc! { "_id": 1, "x": 1 }).unwrap();
    let e = insert(&store, &c, doc! { "_id": 2, "x": 1.0 }).unwrap_err();
    assert_eq!(e.code(), Code::DuplicateKey);
    assert_eq!(
        e.message(),
        "E11000 duplicate key error collection: db.c index: x_1 dup key: { x: 1.0 }"
    );
    let extra = e.extra().as_doc();
    assert_eq!(
        extra.get_doc("keyPattern").unwrap().to_buf(),
        doc! { "x": 1 }
    );
    assert_eq!(
        extra.get_doc("keyValue").unwrap().to_buf(),
        doc! { "x": 1.0 }
    );
    assert_eq!(c.count(), 1);
    // The same key twice within one document is allowed.
    insert(&store, &c, doc! { "_id": 3, "x": array![5, 5] }).unwrap();
    insert(&store, &c, doc! { "_id": 4 }).unwrap();
    let e = insert(&store, &c, doc! { "_id": 5 }).unwrap_err();
    assert!(e.message().ends_with("dup key: { x: null }"), "{e}");
    insert(&store, &c, doc! { "_id": 6, "x": 6, "s": 1 }).unwrap();
    let e = insert(&store, &c, doc! { "_id": 7, "x": 7, "s": 1 }).unwrap_err();
    assert!(e.message().contains("index: s_1"), "{e}");
    let e = update(&store, &c, 6, doc! { "_id": 6, "x": 1 }).unwrap_err();
    assert_eq!(e.code(), Code::DuplicateKey);
    update(&store, &c, 6, doc! { "_id": 6, "x": 6, "s": 2 }).unwrap();
    insert(&store, &c, doc! { "_id": 7, "x": 7, "s": 1 }).unwrap();
    valid(&store, &c);

    // Within one unit, a delete makes room for an insert, and a duplicate of a staged key is found.
    let k = key_of(&store, &c, 7);
    let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
    let old = w.lock(&k).unwrap().unwrap().unwrap();
    w.delete(&k, &old).unwrap().unwrap();
    w.insert(&bytes(doc! { "_id": 8, "x": 7 }))
        .unwrap()
        .unwrap();
    let e = w.insert(&bytes(doc! { "_id": 9, "x": 7 })).unwrap_err();
    assert_eq!(e.code(), Code::DuplicateKey);
    w.insert(&bytes(doc! { "_id": 10, "x": 10 }))
        .unwrap()
        .unwrap();
    w.commit().unwrap();
    valid(&store, &c);

    // A unique index over duplicates is refused and leaves nothing.
    insert(&store, &c, doc! { "_id": 20, "x": 20, "d": 1 }).unwrap();
    insert(&store, &c, doc! { "_id": 21, "x": 21, "d": 1 }).unwrap();
    let d = spec(doc! { "key": doc! { "d": 1 }, "name": "d_1", "unique": true });
    let e = store
        .create_index(&c, d, &NeverInterrupted)
        .map(|_| ())
        .unwrap_err();
    assert_eq!(e.code(), Code::DuplicateKey);
    assert_eq!(c.all_indexes().len(), 3);

    let p = doc! {
        "key": doc! { "p": 1 },
        "name": "p_1",
        "partialFilterExpression": doc! { "x": doc! { "$gt": 20 } },
    };
    let p = index(&store, &c, p);
    assert_eq!(entries(&store, &c, &p).len(), 1);
    update(&store, &c, 20, doc! { "_id": 20, "x": 30 }).unwrap();
    assert_eq!(entries(&store, &c, &p).len(), 2);
    update(&store, &c, 21, doc! { "_id": 21, "x": 2 }).unwrap();
    assert_eq!(entries(&store, &c, &p).len(), 1);
    valid(&store, &c);
}

#[test]
fn parallel_arrays_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    index(
        &store,
        &c,
        doc! { "key": doc! { "a": 1, "b": 1 }, "name": "ab" },
    );
    let e = insert(
        &store,
        &c,
        doc! { "_id": 1, "a": array![1], "b": array![2] },
    )
    .unwrap_err();
    assert_eq!(e.code(), Code::CannotIndexParallelArrays);
    assert_eq!(c.count(), 0);
    insert(&store, &c, doc! { "_id": 1, "a": array![1, 2], "b": 2 }).unwrap();
    valid(&store, &c);
}

/// Threads that insert, update and delete at random, with a unique and a multikey index. The collection
/// must be valid afterwards, and a unique key has one holder.
#[test]
fn many_threads_leave_a_valid_collection() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    index(
        &store,
        &c,
        doc! { "key": doc! { "u": 1 }, "name": "u_1", "unique": true },
    );
    index(
        &store,
        &c,
        doc! { "key": doc! { "m": 1, "x": -1 }, "name": "m_1_x_-1" },
    );
    let done = AtomicU64::new(0);
    std::thread::scope(|s| {
        for t in 0..6u64 {
            let (store, c, done) = (&store, &c, &done);
            s.spawn(move || {
                let mut seed = t * 7919 + 1;
                let mut random = |n: u64| {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
                    (seed >> 33) % n
                };
                for _ in 0..300 {
                    let mut many = Many::new(store, c);
                    for _ in 0..random(8) + 1 {
                        let id = random(60) as i32;
                        let new = doc! {
                            "_id": id,
                            "u": random(80) as i32,
                            "m": array![random(5) as i32, random(5) as i32],
                            "x": random(10) as i32,
                        };
                        let (kind, new) = (random(3), bytes(new));
                        let result = many.run(|w| {
                            if kind == 0 {
                                return w.insert(&new);
                            }
                            let found = match w.lock_by_id(Value::Int32(id))? {
                                Ok(found) => found,
                                Err(busy) => return Ok(Err(busy)),
                            };
                            match found {
                                Some((k, old)) if kind == 1 => {
                                    w.update(&k, &old, &new, Changed::Shorter, &|_| true)
                                }
                                Some((k, old)) => w.delete(&k, &old),
                                None if kind == 1 => w.insert(&new),
                                None => Ok(Ok(())),
                            }
                        });
                        match result {
                            Ok(()) => done.fetch_add(1, SeqCst),
                            Err(e) => {
                                assert_eq!(e.code(), Code::DuplicateKey, "{e}");
                                0
                            }
                        };
                    }
                    if random(10) > 0 {
                        many.commit().unwrap();
                    }
                }
            });
        }
    });
    assert!(done.load(SeqCst) > 1000);
    valid(&store, &c);
    let mut seen = std::collections::HashSet::new();
    for d in all(&store, &c) {
        let u = d.as_doc().get("u").unwrap().as_i64_exact().unwrap();
        assert!(seen.insert(u), "two documents with u: {u}");
    }
}

#[test]
fn ascending_inserts_of_many_threads() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    let next = AtomicU64::new(0);
    // Every id is tried by two threads: exactly one of them must win.
    let won = AtomicU64::new(0);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..50 {
                    let from = next.fetch_add(10, SeqCst) / 2;
                    let mut w = Many::new(&store, &c);
                    for id in from..from + 10 {
                        let d = bytes(doc! { "_id": id as i64 });
                        match w.run(|w| w.insert(&d)) {
                            Ok(()) => won.fetch_add(1, SeqCst),
                            Err(e) => {
                                assert_eq!(e.code(), Code::DuplicateKey);
                                0
                            }
                        };
                    }
                    w.commit().unwrap();
                }
            });
        }
    });
    assert_eq!(c.count(), won.load(SeqCst));
    assert_eq!(c.count(), 4 * 50 * 5 + 5);
    valid(&store, &c);
}

#[test]
fn an_index_is_built_while_writers_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
    for i in 0..5000 {
        w.insert(&bytes(doc! { "_id": i, "x": i, "y": i % 10 }))
            .unwrap()
            .unwrap();
    }
    w.commit().unwrap();
    let stop = AtomicBool::new(false);
    let writes = AtomicU64::new(0);
    std::thread::scope(|s| {
        for t in 0..3 {
            let (store, c, stop, writes) = (&store, &c, &stop, &writes);
            s.spawn(move || {
                let mut n = t;
                while !stop.load(SeqCst) {
                    n = (n * 31 + 17) % 6000;
                    let x = n + 100_000;
                    match n % 3 {
                        0 => {
                            let _ = insert(store, c, doc! { "_id": n, "x": x, "y": 1 });
                        }
                        1 => {
                            let _ = delete(store, c, n).unwrap();
                        }
                        _ => {
                            let mut w = store.write_unit(c, &NeverInterrupted).unwrap();
                            let found = w.lock_by_id(Value::Int32(n)).unwrap().unwrap();
                            if let Some((k, old)) = found {
                                let x = Doc::new(&old).get("x").unwrap();
                                let new = doc! { "_id": n, "x": x, "y": 77 };
                                w.update(&k, &old, &bytes(new), Changed::Shorter, &|p| p == "y")
                                    .unwrap()
                                    .unwrap();
                                w.commit().unwrap();
                            }
                        }
                    }
                    writes.fetch_add(1, SeqCst);
                }
            });
        }
        for round in 0..3 {
            let x = doc! { "key": doc! { "x": 1 }, "name": "x_1", "unique": round == 1 };
            index(&store, &c, x);
            let y = doc! { "key": doc! { "y": 1, "x": -1 }, "name": "y_1" };
            index(&store, &c, y);
            valid(&store, &c);
            store.drop_index(&c, "x_1", &NeverInterrupted).unwrap();
            store.drop_index(&c, "y_1", &NeverInterrupted).unwrap();
        }
        stop.store(true, SeqCst);
    });
    assert!(writes.load(SeqCst) > 0);
}

struct After(AtomicU64);

impl Interrupt for After {
    fn check(&self) -> Result<()> {
        match self.0.fetch_add(1, SeqCst) {
            0 | 1 => Ok(()),
            _ => Err(Error::new(Code::Interrupted, "killed")),
        }
    }

    fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}

    /// No event wakes the waiting thread, so it asks for a time.
    fn wakes_at(&self) -> Option<Instant> {
        Some(Instant::now() + Duration::from_millis(1))
    }
}

#[test]
fn a_build_can_be_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
    for i in 0..3000 {
        w.insert(&bytes(doc! { "_id": i })).unwrap().unwrap();
    }
    w.commit().unwrap();
    let x = spec(doc! { "key": doc! { "x": 1 }, "name": "x_1" });
    let e = store
        .create_index(&c, x.clone(), &After(AtomicU64::new(0)))
        .map(|_| ())
        .unwrap_err();
    assert_eq!(e.code(), Code::Interrupted);
    assert_eq!(c.all_indexes().len(), 1);
    store.create_index(&c, x, &NeverInterrupted).unwrap();
    valid(&store, &c);
}

#[test]
fn an_index_that_prepares_to_be_unique_lets_no_duplicate_more_in() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = store
        .create_collection("t.c", CollectionOptions::default(), &NeverInterrupted)
        .unwrap();
    let i = index(&store, &c, doc! { "key": doc! { "a": 1 }, "name": "a_1" });
    for (id, a) in [(1, 1), (2, 1), (3, 2)] {
        insert(&store, &c, doc! { "_id": id, "a": a }).unwrap();
    }
    let prepared = IndexSpec {
        prepare_unique: true,
        ..(*i.spec()).clone()
    };
    store.modify_index(&c, prepared, &NeverInterrupted).unwrap();
    let taken = |r: Result<()>| r.unwrap_err().code() == Code::DuplicateKey;
    assert!(taken(
        insert(&store, &c, doc! { "_id": 4, "a": 2 }).map(|_| ())
    ));
    assert!(taken(update(&store, &c, 3, doc! { "_id": 3, "a": 1 })));
    // Documents that were duplicates before may change in other fields, and may be deleted.
    update(&store, &c, 1, doc! { "_id": 1, "a": 1, "b": 1 }).unwrap();
    update(&store, &c, 2, doc! { "_id": 2, "a": 3 }).unwrap();
    assert!(taken(update(&store, &c, 2, doc! { "_id": 2, "a": 1 })));
    insert(&store, &c, doc! { "_id": 4, "a": 4 }).unwrap();
    valid(&store, &c);
    // A unit sees what it has staged itself.
    let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
    w.insert(&bytes(doc! { "_id": 5, "a": 5 }))
        .unwrap()
        .unwrap();
    assert!(taken(w.insert(&bytes(doc! { "_id": 6, "a": 5 })).map(drop)));
    w.commit().unwrap();
    valid(&store, &c);
}

#[test]
fn an_index_takes_anothers_place_or_leaves_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "t.c");
    let old = doc! { "key": doc! { "a": 1 }, "name": "a", "prepareUnique": true };
    let new = doc! { "key": doc! { "a": 1 }, "name": "a", "unique": true };
    // These duplicates are from before the preparation.
    for i in 0..1500 {
        insert(&store, &c, doc! { "_id": i, "a": i / 2 }).unwrap();
    }
    let first = index(&store, &c, old);
    let e = store
        .replace_index(&c, spec(new.clone()), &NeverInterrupted)
        .err()
        .unwrap();
    assert_eq!(e.code(), Code::DuplicateKey);
    let there = c.indexes();
    let there: Vec<_> = there.iter().filter(|i| !i.is_id()).collect();
    assert!(there.len() == 1 && there[0].id == first.id && !there[0].unique());
    assert_eq!(entries(&store, &c, there[0]).len(), 1500);
    valid(&store, &c);
    for i in 0..1500 {
        update(&store, &c, i, doc! { "_id": i, "a": -i - 1 }).unwrap();
    }
    store
        .replace_index(&c, spec(new), &NeverInterrupted)
        .unwrap();
    let check = |store: &Store, c: &Arc<Collection>| {
        let there = c.indexes();
        let there: Vec<_> = there.iter().filter(|i| !i.is_id()).collect();
        assert!(there.len() == 1 && there[0].id != first.id && there[0].unique());
        assert_eq!(entries(store, c, there[0]).len(), 1500);
        valid(store, c);
    };
    check(&store, &c);
    drop(c);
    drop(store);
    let store = open(dir.path());
    let c = store.collection("t.c").unwrap();
    check(&store, &c);
    store.drop_index(&c, "a", &NeverInterrupted).unwrap();
    assert!(c.indexes().iter().all(|i| i.is_id()));
}

/// A drop while an index is built: all that the builder commits is before the drop, so that the log can
/// be applied.
#[test]
fn a_collection_dropped_during_a_build_can_be_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..6 {
        let store = open(dir.path());
        let c = create(&store, "db.c");
        let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
        for i in 0..4000 {
            w.insert(&bytes(doc! { "_id": i, "x": i }))
                .unwrap()
                .unwrap();
        }
        w.commit().unwrap();
        std::thread::scope(|s| {
            let building = s.spawn(|| {
                let spec = doc! { "key": doc! { "x": 1 }, "name": "x_1" };
                let spec = IndexSpec::parse(spec.as_doc()).unwrap();
                store.create_index(&c, spec, &NeverInterrupted).map(drop)
            });
            std::thread::sleep(Duration::from_millis(round * 3));
            assert!(store.drop_collection("db.c", &NeverInterrupted).unwrap());
            let _ = building.join().unwrap();
        });
        let differences = store.compare_with_log(&NeverInterrupted).unwrap();
        assert_eq!(differences.unwrap_or_default(), Vec::<String>::new());
    }
}

/// While a unique index is built two documents may have one key. A deletion must take only its own
/// document's entry along.
#[test]
fn a_unique_index_that_is_built_keeps_the_entries_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    for id in [1, 2] {
        insert(&store, &c, doc! { "_id": id, "u": 7 }).unwrap();
    }
    let spec = doc! { "key": doc! { "u": 1 }, "name": "u_1", "unique": true };
    let spec = IndexSpec::parse(spec.as_doc()).unwrap().with_document();
    let inner = &store.inner;
    let opening = inner.door.opening().unwrap();
    let registered =
        inner.register_indexes(&c, &[Arc::new(spec)], false, opening, &NeverInterrupted);
    let mut new = registered.unwrap().unwrap().new;
    let index = new.pop().expect("there are documents");
    // The builder has come to the first document only.
    let slice = [key_of(&store, &c, 1)];
    let first = slice[0].to_vec();
    inner
        .write_slice(&c, &index, &slice, opening, &NeverInterrupted)
        .unwrap();
    assert!(delete(&store, &c, 2).unwrap());
    assert_eq!(entries(&store, &c, &index), [(key(Value::Int32(7)), first)]);
    inner
        .finish_indexes(&c, std::slice::from_ref(&index), opening, &NeverInterrupted)
        .unwrap();
    let e = insert(&store, &c, doc! { "_id": 3, "u": 7 }).unwrap_err();
    assert_eq!(e.code(), Code::DuplicateKey);
    valid(&store, &c);
}

/// A transaction may never commit what it writes, so a duplicate in it does not end an index build.
#[test]
fn a_duplicate_in_a_transaction_does_not_fail_the_build_of_a_unique_index() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    for id in [1, 2] {
        insert(&store, &c, doc! { "_id": id, "u": id }).unwrap();
    }
    let spec = doc! { "key": doc! { "u": 1 }, "name": "u_1", "unique": true };
    let spec = IndexSpec::parse(spec.as_doc()).unwrap().with_document();
    let inner = &store.inner;
    let opening = inner.door.opening().unwrap();
    let registered =
        inner.register_indexes(&c, &[Arc::new(spec)], false, opening, &NeverInterrupted);
    let mut new = registered.unwrap().unwrap().new;
    let index = new.pop().expect("there are documents");
    let staged = |t: &Arc<Transaction>, id: i32, u: i32| {
        let mut unit = store.write_unit_in(t, &c, &NeverInterrupted).unwrap();
        let staged = unit.insert(&bytes(doc! { "_id": id, "u": u }));
        staged.and_then(|s| {
            assert!(s.is_ok());
            unit.commit()
        })
    };
    let begin = || store.begin_transaction(Duration::from_millis(5), None);
    // One transaction began before the builder came to the first document, the second one after that.
    let before = begin();
    let slice = [key_of(&store, &c, 1)];
    inner
        .write_slice(&c, &index, &slice, opening, &NeverInterrupted)
        .unwrap();
    let after = begin();
    for transaction in [before, after] {
        let e = staged(&transaction, 10, 1).unwrap_err();
        assert_eq!(e.code(), Code::WriteConflict);
        transaction.abort();
    }
    // The transaction has a duplicate of its own.
    let own = begin();
    staged(&own, 20, 20).unwrap();
    let e = staged(&own, 21, 20).unwrap_err();
    assert_eq!(e.code(), Code::WriteConflict);
    own.abort();
    inner
        .finish_indexes(&c, std::slice::from_ref(&index), opening, &NeverInterrupted)
        .unwrap();
    let e = staged(&begin(), 10, 1).unwrap_err();
    assert_eq!(e.code(), Code::DuplicateKey);
    valid(&store, &c);
}

/// The latches of a refused document are given back, so that two units that go on after a refusal cannot
/// wait for each other.
#[test]
fn a_refused_document_holds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    let spec = doc! { "key": doc! { "u": 1 }, "name": "u_1", "unique": true };
    index(&store, &c, spec);
    for id in [1, 2] {
        insert(&store, &c, doc! { "_id": id, "u": id }).unwrap();
    }
    let unit = || store.write_unit(&c, &NeverInterrupted).unwrap();
    let (mut x, mut y) = (unit(), unit());
    let refused = |w: &mut WriteUnit<'_>, id: i32, u: i32| {
        let e = w.insert(&bytes(doc! { "_id": id, "u": u })).unwrap_err();
        assert_eq!(e.code(), Code::DuplicateKey);
    };
    refused(&mut x, 10, 1);
    refused(&mut y, 20, 2);
    // Each unit would wait for ever for a latch of the other's refused document.
    refused(&mut x, 11, 2);
    refused(&mut y, 21, 1);
    refused(&mut x, 20, 1);
    x.insert(&bytes(doc! { "_id": 21, "u": 9 }))
        .unwrap()
        .unwrap();
    x.commit().unwrap();
    y.insert(&bytes(doc! { "_id": 22, "u": 8 }))
        .unwrap()
        .unwrap();
    y.commit().unwrap();
    valid(&store, &c);
}

/// Opening a directory of an earlier version says how its data can be carried over.
#[test]
fn a_directory_of_the_version_before_is_refused() {
    for format in ["format 1", "format 2", "format 3"] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("FORMAT"),
            format!("muniment data directory, {format}\n"),
        )
        .unwrap();
        let options = crate::tests::options(dir.path());
        let e = Store::open(options.clone()).map(drop).unwrap_err();
        assert_eq!(e.code(), Code::MustUpgrade);
        for word in ["mongodump", "mongorestore", format] {
            assert!(e.message().contains(word), "{e}");
        }
        let memory = StoreOptions {
            engine: EngineKind::Memory,
            ..options
        };
        assert!(Store::open(memory).is_err());
    }
}

/// The engine in memory is a store like any other, until it is closed.
#[test]
fn the_memory_engine_forgets_and_frees() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        engine: EngineKind::Memory,
        ..crate::tests::options(dir.path())
    };
    let store = Store::open(options.clone()).unwrap();
    assert!(!store.is_durable() && store.engine_name() == "memory");
    let c = create(&store, "db.c");
    index(&store, &c, doc! { "key": doc! { "x": 1 }, "name": "x_1" });
    for i in 0..2000 {
        let d = doc! { "_id": i, "x": i % 10, "t": "t".repeat(500) };
        insert(&store, &c, d).unwrap();
    }
    store.flush().unwrap();
    valid(&store, &c);
    let full = store.stats().memtable_bytes;
    let held = store.snapshot();
    store.drop_collection("db.c", &NeverInterrupted).unwrap();
    store.flush().unwrap();
    assert_eq!(all_in(&held, &c), 2000);
    drop(held);
    let deadline = Instant::now() + Duration::from_secs(10);
    while store.stats().memtable_bytes > full / 10 {
        assert!(Instant::now() < deadline, "a dropped collection stays");
        std::thread::sleep(Duration::from_millis(20));
    }
    store.close().unwrap();
    drop(store);
    let again = Store::open(options).unwrap();
    assert!(again.databases().is_empty());
}

fn all_in(view: &Snapshot, c: &Collection) -> usize {
    let mut docs = view.docs(c, &KeyRange::all(), Direction::Forward);
    let mut n = 0;
    while docs.next(&NeverInterrupted).unwrap().is_some() {
        n += 1;
    }
    n
}
