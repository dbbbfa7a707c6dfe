//! The store's behaviour through its public interface.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod accounts;
mod damage;
mod fault;
mod faults_in_turn;
mod follow;
mod full;
mod index;
mod memory;
mod moves;
mod names;
pub(crate) mod natural;
mod noise;
mod oplog;
mod prepared;
mod repair;
mod still;
mod sync;
mod validate;
mod waits;

use crate::*;
use bytes::Bytes;
use muniment_op::{Interrupt, NeverInterrupted};
use muniment_value::{Code, DocBuf, Value, doc};
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn options(path: &std::path::Path) -> StoreOptions {
    StoreOptions {
        cache_bytes: 16 << 20,
        journal_commit_interval: Duration::from_millis(50),
        ..StoreOptions::new(path)
    }
}

pub(crate) fn open(path: &std::path::Path) -> Arc<Store> {
    Store::open(options(path)).unwrap()
}

pub(crate) fn bytes(d: DocBuf) -> Bytes {
    Bytes::from(d.into_bytes())
}

pub(crate) fn insert(store: &Store, c: &Arc<Collection>, d: DocBuf) -> muniment_value::Result<()> {
    let mut many = Many::new(store, c);
    many.run(|w| w.insert(&bytes(d.clone())))?;
    many.commit()
}

/// Writes in units that are committed and begun anew when a unit is busy.
pub(crate) struct Many<'s> {
    store: &'s Store,
    collection: Arc<Collection>,
    unit: Option<WriteUnit<'s>>,
    interrupt: &'s dyn Interrupt,
}

impl<'s> Many<'s> {
    pub fn new(store: &'s Store, c: &Arc<Collection>) -> Many<'s> {
        Many::until(store, c, &NeverInterrupted)
    }

    /// The same for writes that end when `interrupt` says so.
    pub fn until(store: &'s Store, c: &Arc<Collection>, interrupt: &'s dyn Interrupt) -> Many<'s> {
        Many {
            store,
            collection: c.clone(),
            unit: None,
            interrupt,
        }
    }

    pub fn run<T>(
        &mut self,
        mut f: impl FnMut(&mut WriteUnit<'s>) -> Staged<T>,
    ) -> muniment_value::Result<T> {
        loop {
            let begun = match self.unit.take() {
                Some(u) => u,
                None => self.store.write_unit(&self.collection, self.interrupt)?,
            };
            if let Ok(t) = f(self.unit.insert(begun))? {
                return Ok(t);
            }
            self.commit()?;
        }
    }

    pub fn commit(&mut self) -> muniment_value::Result<()> {
        match self.unit.take() {
            Some(u) => u.commit().map(|_| ()),
            None => Ok(()),
        }
    }
}

/// The record key of the document with this `_id`.
pub(crate) fn key_of(store: &Store, c: &Collection, id: i32) -> Bytes {
    let found = store.snapshot().find_by_id(c, Value::Int32(id)).unwrap();
    found.unwrap_or_else(|| panic!("no document {id}")).0
}

pub(crate) fn all(store: &Store, c: &Collection) -> Vec<DocBuf> {
    let mut cursor = store
        .snapshot()
        .docs(c, &KeyRange::all(), Direction::Forward);
    let mut found = Vec::new();
    while let Some((_, d)) = cursor.next(&NeverInterrupted).unwrap() {
        found.push(DocBuf::from_bytes_trusted(d.to_vec()));
    }
    found
}

#[test]
fn documents_survive_and_counts_are_exact() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = open(dir.path());
        let c = store
            .create_collection("db.c", CollectionOptions::default(), &NeverInterrupted)
            .unwrap();
        let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
        for i in 0..100 {
            w.insert(&bytes(doc! { "_id": i, "x": i * 2 }))
                .unwrap()
                .unwrap();
        }
        let commit = w.commit().unwrap().unwrap();
        store.wait_journaled(commit, &NeverInterrupted).unwrap();
        assert_eq!(c.count(), 100);

        // One unit updates, one deletes, and one is dropped without commit.
        let key = key_of(&store, &c, 7);
        let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
        let old = w.lock(&key).unwrap().unwrap().unwrap();
        w.update(
            &key,
            &old,
            &bytes(doc! { "_id": 7, "y": "longer" }),
            Changed::Shorter,
            &|_| true,
        )
        .unwrap()
        .unwrap();
        let key8 = key_of(&store, &c, 8);
        let old = w.lock(&key8).unwrap().unwrap().unwrap();
        w.delete(&key8, &old).unwrap().unwrap();
        w.commit().unwrap();
        let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
        w.insert(&bytes(doc! { "_id": 1000 })).unwrap().unwrap();
        drop(w);
        assert_eq!(c.count(), 99);
        store.close().unwrap();
        assert_eq!(
            store
                .write_unit(&c, &NeverInterrupted)
                .map(|_| ())
                .unwrap_err()
                .code(),
            Code::ShutdownInProgress
        );
    }
    let store = open(dir.path());
    let c = store.collection("db.c").unwrap();
    assert_eq!(c.count(), 99);
    let docs = all(&store, &c);
    assert_eq!(docs.len(), 99);
    let size: usize = docs.iter().map(|d| d.as_bytes().len()).sum();
    assert_eq!(c.data_bytes(), size as u64);
    let key = key_of(&store, &c, 7);
    let d = store.snapshot().get(&c, &key).unwrap().unwrap();
    assert_eq!(&*d, doc! { "_id": 7, "y": "longer" }.as_bytes());
    // The greatest key is read from the disk: 99 is not above it, 100 is.
    let e = insert(&store, &c, doc! { "_id": 99 }).unwrap_err();
    assert_eq!(e.code(), Code::DuplicateKey);
    assert_eq!(
        e.message(),
        "E11000 duplicate key error collection: db.c index: _id_ dup key: { _id: 99 }"
    );
    insert(&store, &c, doc! { "_id": 100 }).unwrap();
    insert(&store, &c, doc! { "_id": 8 }).unwrap();
    insert(&store, &c, doc! { "_id": -1 }).unwrap();
    assert_eq!(c.count(), 102);
}

#[test]
fn duplicates_within_a_batch_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = store
        .create_collection("db.c", CollectionOptions::default(), &NeverInterrupted)
        .unwrap();
    let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
    for id in [5, 6, 3] {
        w.insert(&bytes(doc! { "_id": id })).unwrap().unwrap();
    }
    for id in [5, 6, 3] {
        let e = w.insert(&bytes(doc! { "_id": id })).unwrap_err();
        assert_eq!(e.code(), Code::DuplicateKey, "{id}");
    }
    w.insert(&bytes(doc! { "_id": 4 })).unwrap().unwrap();
    // A record that is staged already is read as it will be.
    let (key, staged) = w.lock_by_id(Value::Int32(4)).unwrap().unwrap().unwrap();
    assert_eq!(w.lock(&key).unwrap().unwrap(), Some(staged));
    w.commit().unwrap();
    assert_eq!(c.count(), 4);
    assert_eq!(all(&store, &c).len(), 4);
}

#[test]
fn the_directory_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    let _store = open(dir.path());
    let e = Store::open(options(dir.path())).map(|_| ()).unwrap_err();
    assert_eq!(e.code(), Code::DBPathInUse);
    assert!(
        e.message().contains(&std::process::id().to_string()),
        "{}",
        e.message()
    );
}

#[test]
fn names_databases_drops_and_renames() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = open(dir.path());
        for ns in ["b.two", "a.one", "b.one"] {
            store
                .create_collection(ns, CollectionOptions::default(), &NeverInterrupted)
                .unwrap();
        }
        assert_eq!(store.databases(), ["a", "b"]);
        let e = store
            .create_collection("b.one", CollectionOptions::default(), &NeverInterrupted)
            .map(|_| ())
            .unwrap_err();
        assert_eq!(e.code(), Code::NamespaceExists);
        let e = store
            .create_collection("B.x", CollectionOptions::default(), &NeverInterrupted)
            .map(|_| ())
            .unwrap_err();
        assert_eq!(e.code().0, 13297);
        let one = store.collection("b.one").unwrap();
        insert(&store, &one, doc! { "_id": 1, "in": "one" }).unwrap();
        let two = store.collection("b.two").unwrap();
        insert(&store, &two, doc! { "_id": 2 }).unwrap();
        let e = store
            .rename_collection("b.one", "b.two", false, &NeverInterrupted)
            .unwrap_err();
        assert_eq!(e.code(), Code::NamespaceExists);
        store
            .rename_collection("b.one", "b.two", true, &NeverInterrupted)
            .unwrap();
        assert!(two.is_dropped());
        assert!(store.write_unit(&two, &NeverInterrupted).is_err());
        assert!(store.drop_collection("a.one", &NeverInterrupted).unwrap());
        assert!(!store.drop_collection("a.one", &NeverInterrupted).unwrap());
        store.close().unwrap();
    }
    let store = open(dir.path());
    assert_eq!(store.databases(), ["b"]);
    let names: Vec<String> = store
        .collections("b")
        .iter()
        .map(|c| c.namespace())
        .collect();
    assert_eq!(names, ["b.two"]);
    let two = store.collection("b.two").unwrap();
    assert_eq!(all(&store, &two), [doc! { "_id": 1, "in": "one" }]);
    assert_eq!(two.count(), 1);
}

#[test]
fn fsync_lock_blocks_and_nests() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = store
        .create_collection("db.c", CollectionOptions::default(), &NeverInterrupted)
        .unwrap();
    assert_eq!(
        store.unlock_writes(&NeverInterrupted).unwrap_err().code(),
        Code::IllegalOperation
    );
    assert_eq!(store.lock_writes(&NeverInterrupted).unwrap(), 1);
    assert_eq!(store.lock_writes(&NeverInterrupted).unwrap(), 2);
    std::thread::scope(|s| {
        let writer = s.spawn(|| insert(&store, &c, doc! { "_id": 1 }));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!writer.is_finished());
        assert_eq!(store.unlock_writes(&NeverInterrupted).unwrap(), 1);
        std::thread::sleep(Duration::from_millis(20));
        assert!(!writer.is_finished());
        assert_eq!(store.unlock_writes(&NeverInterrupted).unwrap(), 0);
        writer.join().unwrap().unwrap();
    });
    assert_eq!(c.count(), 1);
}

#[test]
fn memtables_are_sealed_at_the_size_their_budget_gives_them() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    let one = Budget::of(options.cache_bytes).memtable;
    let store = Store::open(options).unwrap();
    let c = store
        .create_collection("db.c", CollectionOptions::default(), &NeverInterrupted)
        .unwrap();
    let filler = "x".repeat(64 << 10);
    let mut most = 0;
    for i in 0..600 {
        let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
        w.insert(&bytes(doc! { "_id": i, "f": filler.as_str() }))
            .unwrap()
            .unwrap();
        w.commit().unwrap();
        most = most.max(store.stats().memtable_bytes);
    }
    assert!(most >= one && most < 4 * one, "{most}, one {one}");
}
