//! The generation of users and roles: what raises it, and that no reader keeps old users under a new one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::tests::follow::{member, ship};
use crate::tests::noise::Random;
use crate::tests::{bytes, insert, key_of};
use crate::*;
use muniment_op::NeverInterrupted;
use muniment_value::{Value, doc};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// A member that writes, and one that follows.
struct Two {
    a: Arc<Store>,
    b: Arc<Store>,
    rng: Random,
    _dirs: [tempfile::TempDir; 2],
}

impl Two {
    fn new() -> Two {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let a = Store::open(member(dirs[0].path())).unwrap();
        let b = Store::open(member(dirs[1].path())).unwrap();
        a.open_door(1).unwrap();
        Two {
            a,
            b,
            rng: Random(1),
            _dirs: dirs,
        }
    }

    /// Runs a change, and says whether it raised the generation on both.
    fn expect<T>(&mut self, raises: bool, what: &str, change: impl FnOnce(&Store) -> T) -> T {
        let before = (self.a.accounts_generation(), self.b.accounts_generation());
        let made = change(&self.a);
        ship(&self.a, &self.b, &mut self.rng);
        let after = (self.a.accounts_generation(), self.b.accounts_generation());
        let rose = (after.0 > before.0, after.1 > before.1);
        assert_eq!(rose, (raises, raises), "{what}");
        made
    }
}

fn create(store: &Store, name: &str) -> Arc<Collection> {
    let options = CollectionOptions::default();
    store
        .create_collection(name, options, &NeverInterrupted)
        .unwrap()
}

#[test]
fn every_change_of_users_and_roles_raises_the_generation() {
    let never = &NeverInterrupted;
    let mut two = Two::new();
    let other = two.expect(false, "another collection", |s| create(s, "admin.c"));
    for name in [USERS, ROLES] {
        let c = two.expect(true, "creation", |s| create(s, name));
        two.expect(true, "an insert", |s| {
            insert(s, &c, doc! { "_id": 1, "a": 1 }).unwrap();
        });
        two.expect(true, "an update", |s| {
            let mut unit = s.write_unit(&c, never).unwrap();
            let new = bytes(doc! { "_id": 1, "a": 2 });
            let old = bytes(doc! { "_id": 1, "a": 1 });
            let key = key_of(s, &c, 1);
            unit.update(&key, &old, &new, Changed::Whole, &|_| true)
                .unwrap()
                .unwrap();
            unit.commit().unwrap();
        });
        two.expect(true, "a transaction", |s| {
            let t = s.begin_transaction(Duration::from_secs(1), None);
            for (c, id) in [(&other, 10), (&c, 2)] {
                let mut part = s.write_unit_in(&t, c, never).unwrap();
                let id = id + i32::from(name == USERS);
                part.insert(&bytes(doc! { "_id": id })).unwrap().unwrap();
                part.commit().unwrap();
            }
            t.commit(None, Announce::Door, never).unwrap();
        });
        two.expect(true, "a deletion", |s| {
            let mut unit = s.write_unit(&c, never).unwrap();
            let old = bytes(doc! { "_id": 1, "a": 2 });
            unit.delete(&key_of(s, &c, 1), &old).unwrap().unwrap();
            unit.commit().unwrap();
        });
        let spec = IndexSpec::parse(doc! { "key": doc! { "a": 1 }, "name": "a" }.as_doc()).unwrap();
        two.expect(false, "an index", |s| {
            s.create_index(&c, spec, never).unwrap();
        });
        two.expect(true, "a rename away", |s| {
            s.rename_collection(name, "admin.away", false, never)
                .unwrap();
        });
        two.expect(false, "an insert into what was renamed", |s| {
            insert(s, &c, doc! { "_id": 5 }).unwrap();
        });
        two.expect(true, "a new one", |s| create(s, name));
        two.expect(true, "a rename over it", |s| {
            s.rename_collection("admin.away", name, true, never)
                .unwrap();
        });
        two.expect(true, "an insert into what was renamed back", |s| {
            insert(s, &c, doc! { "_id": 6 }).unwrap();
        });
        two.expect(true, "a drop", |s| {
            assert!(s.drop_collection(name, never).unwrap());
        });
        two.expect(false, "an insert into another collection", |s| {
            let id = 100 + i32::from(name == USERS);
            insert(s, &other, doc! { "_id": id }).unwrap();
        });
    }
}

/// While other commits are landing, a change is visible when the generation has risen.
/// Inserts documents by one commit. Another thread may hold the latch of one of them, whose hash is the same.
fn insert_all(store: &Store, collection: &Arc<Collection>, ids: impl Iterator<Item = i32> + Clone) {
    loop {
        let mut unit = store.write_unit(collection, &NeverInterrupted).unwrap();
        let mut all = ids.clone();
        let busy = all.find(|id| unit.insert(&bytes(doc! { "_id": *id })).unwrap().is_err());
        if busy.is_none() {
            unit.commit().unwrap();
            return;
        }
    }
}

#[test]
fn the_generation_rises_after_the_change_is_visible() {
    let dir = tempfile::tempdir().unwrap();
    let store = crate::tests::open(dir.path());
    let (users, other) = (create(&store, USERS), create(&store, "db.c"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Commits with many puts land outside the door.
        for writer in 0..2 {
            let (store, other, done) = (&store, &other, &done);
            scope.spawn(move || {
                let mut id = writer;
                while !done.load(SeqCst) {
                    insert_all(store, other, (0..50).map(|i| id + 2 * i));
                    id += 100;
                }
            });
        }
        let reader = scope.spawn(|| {
            // What a connection holds of users: the generation, and the newest document under it.
            let mut missed = Vec::new();
            let (mut held, mut newest) = (0, 0);
            while !done.load(SeqCst) {
                let generation = store.accounts_generation();
                if generation == held {
                    continue;
                }
                held = generation;
                let there = |id: i32| {
                    let found = store.snapshot().find_by_id(&users, Value::Int32(id));
                    found.unwrap().is_some()
                };
                // The generation began at 1 and rose with the creation of users, so that number n
                // was stored by generation n + 2.
                let expected = i32::try_from(generation).unwrap() - 3;
                if expected >= 0 && !there(expected) {
                    missed.push(expected);
                }
                newest = newest.max(expected);
            }
            (missed, newest)
        });
        for n in 0..300 {
            // So many puts that they are made outside.
            let more = (0..8).map(|more| 1_000_000 + n * 8 + more);
            insert_all(&store, &users, std::iter::once(n).chain(more));
        }
        done.store(true, SeqCst);
        let (missed, newest) = reader.join().unwrap();
        assert!(missed.is_empty(), "{missed:?}");
        assert!(newest > 0);
    });
}
