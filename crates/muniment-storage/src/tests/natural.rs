//! Records in the order of their inserts: their numbers, `_id_`, and both under everything at once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::collection::number_of;
use crate::tests::index::valid;
use crate::tests::{all, bytes, insert, key_of, open};
use crate::*;
use muniment_op::NeverInterrupted;
use muniment_value::{Code, Doc, DocBuf, Value, doc};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

fn create(store: &Store, options: CollectionOptions) -> Arc<Collection> {
    let created = store.create_collection("db.c", options, &NeverInterrupted);
    created.unwrap()
}

fn id_of(d: &[u8]) -> i64 {
    let id = Doc::new(d).get("_id").unwrap();
    id.as_i64_exact().unwrap()
}

fn ids(store: &Store, c: &Collection, dir: Direction) -> Vec<i64> {
    let mut cursor = store.snapshot().docs(c, &KeyRange::all(), dir);
    let mut found = Vec::new();
    while let Some((_, d)) = cursor.next(&NeverInterrupted).unwrap() {
        found.push(id_of(&d));
    }
    found
}

fn numbers(store: &Store, c: &Collection) -> Vec<u64> {
    let all = KeyRange::all();
    let mut cursor = store.snapshot().docs(c, &all, Direction::Forward);
    let mut found = Vec::new();
    while let Some((key, _)) = cursor.next(&NeverInterrupted).unwrap() {
        found.push(number_of(&key).unwrap());
    }
    found
}

fn remove(store: &Store, c: &Arc<Collection>, id: i64) {
    let mut w = store.write_unit(c, &NeverInterrupted).unwrap();
    let found = w.lock_by_id(Value::Int64(id)).unwrap().unwrap();
    let (key, old) = found.unwrap();
    w.delete(&key, &old).unwrap().unwrap();
    w.commit().unwrap();
}

fn as_the_log_says(store: &Store) {
    let differences = store.compare_with_log(&NeverInterrupted).unwrap();
    let differences = differences.unwrap_or_default();
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Copies the directory as it is, which is what a crash leaves.
pub(crate) fn crash(store: &Store, from: &Path) -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for e in std::fs::read_dir(from).unwrap() {
            let e = e.unwrap();
            let to = to.join(e.file_name());
            match e.file_type().unwrap().is_dir() {
                true => copy(&e.path(), &to),
                false => drop(std::fs::copy(e.path(), to).unwrap()),
            }
        }
    }
    let to = tempfile::tempdir().unwrap();
    store.lock_writes(&NeverInterrupted).unwrap();
    copy(from, to.path());
    store.unlock_writes(&NeverInterrupted).unwrap();
    to
}

#[test]
fn documents_stand_in_the_order_of_their_inserts() {
    let dir = tempfile::tempdir().unwrap();
    let mut wanted: Vec<i64> = (0..50).rev().collect();
    wanted.extend((0..200).map(|i| 1000 + (i * 7919) % 997));
    wanted.extend([-5, 5000, 51]);
    {
        let store = open(dir.path());
        let c = create(&store, CollectionOptions::default());
        assert!(c.is_numbered() && !c.is_keyed_by_id() && c.finds_by_id());
        for (n, part) in wanted.chunks(60).enumerate() {
            let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
            for id in part {
                w.insert(&bytes(doc! { "_id": *id })).unwrap().unwrap();
            }
            w.commit().unwrap();
            if n == 2 {
                store.flush().unwrap();
            }
        }
        assert_eq!(ids(&store, &c, Direction::Forward), wanted);
        // An update leaves a document in its place; a document that is deleted and inserted again is at
        // the end.
        let (key, old) = {
            let found = store.snapshot().find_by_id(&c, Value::Int64(7)).unwrap();
            found.unwrap()
        };
        let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
        assert_eq!(w.lock(&key).unwrap().unwrap(), Some(old.clone()));
        let new = bytes(doc! { "_id": 7_i64, "long": "x".repeat(500) });
        w.update(&key, &old, &new, Changed::Shorter, &|_| true)
            .unwrap()
            .unwrap();
        w.commit().unwrap();
        assert_eq!(ids(&store, &c, Direction::Forward), wanted);
        remove(&store, &c, 3);
        insert(&store, &c, doc! { "_id": 3_i64 }).unwrap();
        wanted.retain(|id| *id != 3);
        wanted.push(3);
        assert_eq!(ids(&store, &c, Direction::Forward), wanted);
        as_the_log_says(&store);
        valid(&store, &c);
    }
    let store = open(dir.path());
    let c = store.collection("db.c").unwrap();
    assert_eq!(ids(&store, &c, Direction::Forward), wanted);
    wanted.reverse();
    assert_eq!(ids(&store, &c, Direction::Backward), wanted);
    // The index on `_id` finds them as well.
    let index = c.indexes()[0].clone();
    let by_id: Vec<i64> = {
        let view = store.snapshot();
        let mut entries = view.entries(&c, &index, &KeyRange::all(), Direction::Forward);
        let mut found = Vec::new();
        while let Some(e) = entries.next(&NeverInterrupted).unwrap() {
            found.push(id_of(&view.get(&c, &e.record_key).unwrap().unwrap()));
        }
        found
    };
    wanted.sort_unstable();
    assert_eq!(by_id, wanted);
    assert!(store.index_bytes(&c, &index, &NeverInterrupted).unwrap() > 0);
    valid(&store, &c);
}

#[test]
fn a_clustered_collection_stands_by_id() {
    let dir = tempfile::tempdir().unwrap();
    let options = CollectionOptions {
        document: doc! { "clusteredIndex": doc! { "key": doc! { "_id": 1 }, "unique": true } },
        ..CollectionOptions::default()
    };
    {
        let store = open(dir.path());
        let c = create(&store, options);
        for id in [5_i64, 1, 9, 3] {
            insert(&store, &c, doc! { "_id": id }).unwrap();
        }
        let e = insert(&store, &c, doc! { "_id": 9 }).unwrap_err();
        assert_eq!(e.code(), Code::DuplicateKey);
    }
    let store = open(dir.path());
    let c = store.collection("db.c").unwrap();
    assert!(c.is_keyed_by_id() && !c.is_numbered());
    assert_eq!(ids(&store, &c, Direction::Forward), [1, 3, 5, 9]);
    assert_eq!(*key_of(&store, &c, 5), c.id_key(Value::Int32(5)));
    assert_eq!(
        store
            .index_bytes(&c, &c.indexes()[0], &NeverInterrupted)
            .unwrap(),
        0
    );
    remove(&store, &c, 3);
    assert_eq!(ids(&store, &c, Direction::Forward), [1, 5, 9]);
    as_the_log_says(&store);
    valid(&store, &c);
}

/// The numbers of the newest documents are not given again, however the documents were deleted and
/// whether or not the process ended.
#[test]
fn numbers_are_not_given_again() {
    let capped = CollectionOptions {
        capped_size: Some(1 << 20),
        ..CollectionOptions::default()
    };
    for options in [CollectionOptions::default(), capped] {
        let dir = tempfile::tempdir().unwrap();
        let mut highest = 0;
        let mut next = 0_i64;
        let mut path = dir.path().to_path_buf();
        let mut held = Vec::new();
        for round in 0..6 {
            let store = open(&path);
            let c = match store.collection("db.c") {
                Some(c) => c,
                None => create(&store, options.clone()),
            };
            for _ in 0..3 {
                // Some `_id`s ascend, others do not.
                let id = if next % 2 == 0 { next } else { -next };
                insert(&store, &c, doc! { "_id": id }).unwrap();
                let number = *numbers(&store, &c).last().unwrap();
                assert!(number > highest, "round {round}: {number} after {highest}");
                highest = number;
                next += 1;
            }
            if round % 2 == 1 {
                store.flush().unwrap();
            }
            // The newest documents are deleted, and once all of them.
            let there = ids(&store, &c, Direction::Backward);
            let gone = if round == 3 { there.len() } else { 2 };
            there
                .iter()
                .take(gone)
                .for_each(|id| remove(&store, &c, *id));
            if round % 3 == 2 {
                store.flush().unwrap();
                store.compact(None, &NeverInterrupted).unwrap();
            }
            as_the_log_says(&store);
            valid(&store, &c);
            if round % 2 == 0 {
                let copy = crash(&store, &path);
                path = copy.path().to_path_buf();
                held.push(copy);
            }
        }
    }
}

#[test]
fn type_bits_of_an_id_follow_its_document() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, CollectionOptions::default());
    insert(&store, &c, doc! { "_id": 1, "x": 1 }).unwrap();
    let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
    let (key, old) = w.lock_by_id(Value::Int32(1)).unwrap().unwrap().unwrap();
    let new = bytes(doc! { "_id": 1.0, "x": 2 });
    w.update(&key, &old, &new, Changed::Shorter, &|_| true)
        .unwrap()
        .unwrap();
    w.commit().unwrap();
    valid(&store, &c);
    // A document is inserted and changed in one unit, deleted and inserted again in the next.
    let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
    w.insert(&bytes(doc! { "_id": 2.0 })).unwrap().unwrap();
    let (key, old) = w.lock_by_id(Value::Int32(2)).unwrap().unwrap().unwrap();
    let new = bytes(doc! { "_id": 2_i64 });
    w.update(&key, &old, &new, Changed::Shorter, &|_| true)
        .unwrap()
        .unwrap();
    w.commit().unwrap();
    valid(&store, &c);
    let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
    let (key, old) = w.lock_by_id(Value::Int32(2)).unwrap().unwrap().unwrap();
    w.delete(&key, &old).unwrap().unwrap();
    assert_eq!(w.lock_by_id(Value::Int32(2)).unwrap().unwrap(), None);
    w.insert(&bytes(doc! { "_id": 2, "again": true }))
        .unwrap()
        .unwrap();
    let e = w.insert(&bytes(doc! { "_id": 2.0 })).unwrap_err();
    assert_eq!(e.code(), Code::DuplicateKey);
    let (again, old) = w.lock_by_id(Value::Int32(2)).unwrap().unwrap().unwrap();
    assert!(again > key);
    w.delete(&again, &old).unwrap().unwrap();
    w.insert(&bytes(doc! { "_id": 2, "third": true }))
        .unwrap()
        .unwrap();
    w.commit().unwrap();
    valid(&store, &c);
    assert_eq!(c.count(), 2);
    as_the_log_says(&store);
}

/// The effect of what a thread has staged and not committed.
enum Effect {
    Born(i64),
    Changed(u64),
    Died(i64, u64, i64),
}

/// What must be there. An incarnation of a document is known by its `born`.
#[derive(Default)]
struct Oracle {
    /// By `_id`: inserts minus deletions.
    alive: HashMap<i64, i64>,
    /// Changes that were acknowledged.
    changes: HashMap<u64, i64>,
    /// The number of changes that the deleting thread saw.
    died: HashMap<u64, i64>,
}

struct Writer<'s> {
    store: &'s Store,
    c: Arc<Collection>,
    oracle: &'s Mutex<Oracle>,
    unit: Option<WriteUnit<'s>>,
    pending: Vec<Effect>,
}

impl<'s> Writer<'s> {
    fn run(
        &mut self,
        mut f: impl FnMut(&mut WriteUnit<'s>) -> Staged<Option<Effect>>,
    ) -> muniment_value::Result<()> {
        loop {
            if self.unit.is_none() {
                let unit = self.store.write_unit(&self.c, &NeverInterrupted)?;
                self.unit = Some(unit);
            }
            match f(self.unit.as_mut().unwrap())? {
                Ok(effect) => {
                    self.pending.extend(effect);
                    return Ok(());
                }
                Err(_) => self.commit(),
            }
        }
    }

    fn commit(&mut self) {
        let Some(unit) = self.unit.take() else { return };
        unit.commit().unwrap();
        let mut oracle = self.oracle.lock();
        for effect in self.pending.drain(..) {
            match effect {
                Effect::Born(id) => *oracle.alive.entry(id).or_default() += 1,
                Effect::Changed(born) => *oracle.changes.entry(born).or_default() += 1,
                Effect::Died(id, born, n) => {
                    *oracle.alive.entry(id).or_default() -= 1;
                    assert!(oracle.died.insert(born, n).is_none(), "{born} died twice");
                }
            }
        }
    }

    fn abort(&mut self) {
        self.unit = None;
        self.pending.clear();
    }
}

fn field(d: &[u8], name: &str) -> i64 {
    Doc::new(d).get(name).unwrap().as_i64_exact().unwrap()
}

fn person(id: i64, born: u64, n: i64) -> DocBuf {
    doc! { "_id": id, "born": born as i64, "n": n, "m": n % 7 }
}

/// Several threads insert the same `_id`s, change, upsert and delete them, in units of one and of many,
/// some of which are given up; an index is built and dropped, memory is flushed, and readers compare
/// `_id_` with the documents. Every incarnation of every document has had each change that was
/// acknowledged.
#[test]
fn everything_at_once_on_the_same_ids() {
    let rounds = if std::env::var_os("MUNIMENT_LONG").is_some() {
        20_000
    } else {
        700
    };
    let dir = tempfile::tempdir().unwrap();
    let (expected, last) = {
        let store = open(dir.path());
        let c = create(&store, CollectionOptions::default());
        let oracle = Mutex::new(Oracle::default());
        let (tokens, refused) = (AtomicU64::new(1), AtomicU64::new(0));
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            let writers: Vec<_> = (0..4_u64)
                .map(|t| {
                    let (store, c) = (&store, c.clone());
                    let (oracle, tokens, refused) = (&oracle, &tokens, &refused);
                    s.spawn(move || writer(store, &c, oracle, tokens, refused, t, rounds))
                })
                .collect();
            s.spawn(|| {
                while !stop.load(SeqCst) {
                    store.flush().unwrap();
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            s.spawn(|| {
                while !stop.load(SeqCst) {
                    for (key, name, unique) in [("m", "m_1", false), ("born", "born_1", true)] {
                        let mut pattern = DocBuf::new();
                        pattern.append(key, 1);
                        let spec = doc! { "key": pattern, "name": name, "unique": unique };
                        let spec = IndexSpec::parse(spec.as_doc()).unwrap();
                        store.create_index(&c, spec, &NeverInterrupted).unwrap();
                        valid(&store, &c);
                        store.drop_index(&c, name, &NeverInterrupted).unwrap();
                    }
                }
            });
            s.spawn(|| {
                while !stop.load(SeqCst) {
                    one_view(&store, &c);
                }
            });
            let done: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
            stop.store(true, SeqCst);
            done.into_iter().for_each(|d| d.unwrap());
        });
        assert!(refused.load(SeqCst) > 50);
        let oracle = oracle.into_inner();
        let mut living = HashSet::new();
        for d in all(&store, &c) {
            let d = d.as_bytes();
            let (id, born, n) = (field(d, "_id"), field(d, "born") as u64, field(d, "n"));
            assert!(living.insert(id), "two documents with _id {id}");
            assert_eq!(oracle.changes.get(&born).copied().unwrap_or(0), n, "{id}");
            assert!(!oracle.died.contains_key(&born), "{id} is dead");
        }
        for (id, n) in &oracle.alive {
            assert_eq!(*n, i64::from(living.contains(id)), "{id}");
        }
        for (born, n) in &oracle.died {
            assert_eq!(oracle.changes.get(born).copied().unwrap_or(0), *n, "{born}");
        }
        valid(&store, &c);
        as_the_log_says(&store);
        let crashed = crash(&store, dir.path());
        let again = open(crashed.path());
        let found = again.collection("db.c").unwrap();
        assert_eq!(all(&again, &found), all(&store, &c));
        valid(&again, &found);
        (all(&store, &c), c.append().last)
    };
    let store = open(dir.path());
    let c = store.collection("db.c").unwrap();
    assert_eq!(all(&store, &c), expected);
    let there = numbers(&store, &c);
    assert!(there.is_sorted() && there.iter().all(|n| *n <= last));
    valid(&store, &c);
}

/// In one view `_id_` and the documents agree.
fn one_view(store: &Store, c: &Arc<Collection>) {
    let view = store.snapshot();
    let index = c.indexes()[0].clone();
    let mut entries = view.entries(c, &index, &KeyRange::all(), Direction::Forward);
    let mut by_id = HashMap::new();
    while let Some(e) = entries.next(&NeverInterrupted).unwrap() {
        let d = view
            .get(c, &e.record_key)
            .unwrap()
            .expect("an entry of nothing");
        assert_eq!(c.id_key(Doc::new(&d).get("_id").unwrap()), *e.key);
        by_id.insert(e.record_key.to_vec(), d);
    }
    let mut docs = view.docs(c, &KeyRange::all(), Direction::Forward);
    let mut n = 0;
    while let Some((key, d)) = docs.next(&NeverInterrupted).unwrap() {
        assert_eq!(by_id.get(&key[..]), Some(&d));
        n += 1;
    }
    assert_eq!(n, by_id.len());
}

fn writer(
    store: &Store,
    c: &Arc<Collection>,
    oracle: &Mutex<Oracle>,
    tokens: &AtomicU64,
    refused: &AtomicU64,
    t: u64,
    rounds: u64,
) {
    let mut seed = t * 7919 + 1;
    let mut random = |n: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
        (seed >> 33) % n
    };
    let mut w = Writer {
        store,
        c: c.clone(),
        oracle,
        unit: None,
        pending: Vec::new(),
    };
    for round in 0..rounds {
        for _ in 0..random(6) + 1 {
            // Some `_id`s are wanted by many threads. New ones rise, not quite in order, so that the
            // runs of units overlap.
            let id = match random(3) {
                0 => (1000 + 4 * round + random(16)) as i64,
                _ => random(12) as i64,
            };
            let kind = random(5);
            let token = tokens.fetch_add(1, SeqCst);
            let new = bytes(person(id, token, 0));
            let result = w.run(|unit| {
                if kind == 0 {
                    let inserted = unit.insert(&new)?;
                    return Ok(inserted.map(|()| Some(Effect::Born(id))));
                }
                let found = match unit.lock_by_id(Value::Int64(id))? {
                    Ok(found) => found,
                    Err(busy) => return Ok(Err(busy)),
                };
                let Some((key, old)) = found else {
                    if kind < 3 {
                        return Ok(Ok(None));
                    }
                    let inserted = unit.insert(&new)?;
                    return Ok(inserted.map(|()| Some(Effect::Born(id))));
                };
                let (born, n) = (field(&old, "born") as u64, field(&old, "n"));
                if kind == 1 {
                    let deleted = unit.delete(&key, &old)?;
                    return Ok(deleted.map(|()| Some(Effect::Died(id, born, n))));
                }
                let new = bytes(person(id, born, n + 1));
                let changed = unit.update(&key, &old, &new, Changed::Shorter, &|p| {
                    p == "n" || p == "m"
                })?;
                Ok(changed.map(|()| Some(Effect::Changed(born))))
            });
            if let Err(e) = result {
                assert_eq!(e.code(), Code::DuplicateKey, "{e}");
                refused.fetch_add(1, SeqCst);
            }
        }
        match random(8) {
            0 => w.abort(),
            _ => w.commit(),
        }
    }
}

/// A run of appended `_id`s is an interval. An `_id` inside it may still belong to another unit.
#[test]
fn an_id_within_a_run_is_not_taken_for_ones_own() {
    for clustered in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let mut options = CollectionOptions::default();
        if clustered {
            let index =
                doc! { "clusteredIndex": doc! { "key": doc! { "_id": 1 }, "unique": true } };
            options.document = index;
        }
        let c = create(&store, options);
        assert_eq!(c.is_numbered(), !clustered);
        let one = |id: i32| bytes(doc! { "_id": id });
        // Another unit appends the `_id` in between.
        let mut a = store.write_unit(&c, &NeverInterrupted).unwrap();
        let mut b = store.write_unit(&c, &NeverInterrupted).unwrap();
        a.insert(&one(10)).unwrap().unwrap();
        b.insert(&one(20)).unwrap().unwrap();
        a.insert(&one(30)).unwrap().unwrap();
        assert_eq!(a.insert(&one(20)).unwrap(), Err(Busy));
        // An `_id` of the unit itself is known as such.
        let e = a.insert(&one(10)).unwrap_err();
        assert_eq!(e.code(), Code::DuplicateKey);
        a.commit().unwrap();
        b.commit().unwrap();
        // Another unit latches the `_id` in between.
        let mut a = store.write_unit(&c, &NeverInterrupted).unwrap();
        let mut b = store.write_unit(&c, &NeverInterrupted).unwrap();
        let mut z = store.write_unit(&c, &NeverInterrupted).unwrap();
        a.insert(&one(40)).unwrap().unwrap();
        z.insert(&one(50)).unwrap().unwrap();
        b.insert(&one(45)).unwrap().unwrap();
        a.insert(&one(60)).unwrap().unwrap();
        assert_eq!(a.insert(&one(45)).unwrap(), Err(Busy));
        for unit in [a, b, z] {
            unit.commit().unwrap();
        }
        assert_eq!(c.count(), 7);
        valid(&store, &c);
        as_the_log_says(&store);
    }
}

/// An index on `_id` of a time series is like any other.
#[test]
fn an_index_on_the_ids_of_a_series_is_maintained() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let options = CollectionOptions {
        time_field: Some("t".to_string()),
        ..CollectionOptions::default()
    };
    let c = create(&store, options);
    let spec = doc! { "key": doc! { "_id": 1 }, "name": "_id_1" };
    let spec = IndexSpec::parse(spec.as_doc()).unwrap();
    store.create_index(&c, spec, &NeverInterrupted).unwrap();
    for i in 0..5 {
        insert(
            &store,
            &c,
            doc! { "_id": 7 - i, "t": Value::DateTime(i.into()) },
        )
        .unwrap();
    }
    valid(&store, &c);
    as_the_log_says(&store);
    let index = c.indexes().iter().find(|i| i.is_id()).cloned().unwrap();
    let view = store.snapshot();
    let mut entries = view.entries(&c, &index, &KeyRange::all(), Direction::Forward);
    let mut n = 0;
    while entries.next(&NeverInterrupted).unwrap().is_some() {
        n += 1;
    }
    assert_eq!(n, 5);
}

/// If the `_id` is the record's key it may have 8 MB, as in MongoDB; otherwise as much as a document may
/// have.
#[test]
fn ids_of_clustered_collections_have_a_longest() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let index = doc! { "clusteredIndex": doc! { "key": doc! { "_id": 1 }, "unique": true } };
    let options = CollectionOptions {
        document: index,
        ..CollectionOptions::default()
    };
    let c = create(&store, options);
    let long = |n: usize| doc! { "_id": "x".repeat(n) };
    insert(&store, &c, long((8 << 20) - 2)).unwrap();
    let e = insert(&store, &c, long((8 << 20) - 1)).unwrap_err();
    assert_eq!(e.code(), Code(5_894_900));
    assert_eq!(c.count(), 1);
}
