//! Names of collections and databases, compared with a plain model. Changes of them do not wait for each
//! other's sync.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::tests::noise::Random;
use crate::tests::{insert, options};
use crate::*;
use muniment_io::sim::Op;
use muniment_io::{Machine, SimDisk};
use muniment_op::NeverInterrupted;
use muniment_value::{Code, doc};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Longer than any wait of these tests takes on a machine that works.
const LONG: Duration = Duration::from_secs(60);

/// The names that one thread has made, with UUIDs.
type Model = BTreeMap<String, [u8; 16]>;

fn options_of(kind: u64) -> CollectionOptions {
    let mut options = CollectionOptions::default();
    match kind {
        0 => options.capped_size = Some(4096),
        1 => options.time_field = Some("t".into()),
        2 => {
            let key = doc! { "key": doc! { "_id": 1 }, "unique": true };
            options.document.append("clusteredIndex", &key);
        }
        _ => {}
    }
    options
}

/// One change by a thread. It has collections of its own in databases that all threads share, and a
/// database of its own.
fn change(store: &Store, thread: u64, rng: &mut Random, model: &mut Model) {
    let never = &NeverInterrupted;
    let mut name = || match rng.below(4) {
        0 => format!("Own{thread}.c{}", rng.below(3)),
        _ => format!("db{}.t{thread}_{}", rng.below(3), rng.below(6)),
    };
    let (one, other) = (name(), name());
    match rng.below(8) {
        0..=3 => {
            let made = store.create_collection(&one, options_of(rng.below(5)), never);
            match model.contains_key(&one) {
                true => assert_eq!(made.map(drop).unwrap_err().code(), Code::NamespaceExists),
                false => {
                    model.insert(one, made.unwrap().uuid());
                }
            }
        }
        4 | 5 => {
            let dropped = store.drop_collection(&one, never).unwrap();
            assert_eq!(dropped, model.remove(&one).is_some(), "{one}");
        }
        6 => {
            let onto = rng.below(2) == 0;
            let renamed = store.rename_collection(&one, &other, onto, never);
            let code = match (model.contains_key(&one), model.contains_key(&other)) {
                (false, _) => Some(Code::NamespaceNotFound),
                (true, _) if one == other => Some(Code::IllegalOperation),
                (true, true) if !onto => Some(Code::NamespaceExists),
                _ => None,
            };
            assert_eq!(renamed.err().map(|e| e.code()), code, "{one} to {other}");
            if code.is_none() {
                let uuid = model.remove(&one).unwrap();
                model.insert(other, uuid);
            }
        }
        _ => {
            // A database in another case is possible only if the database does not exist.
            let odd = format!("oWN{thread}.x");
            let own = format!("Own{thread}.");
            let made = store.create_collection(&odd, CollectionOptions::default(), never);
            match model.keys().any(|name| name.starts_with(&own)) {
                true => assert_eq!(made.map(drop).unwrap_err().code().0, 13297),
                false => {
                    made.unwrap();
                    assert!(store.drop_collection(&odd, never).unwrap());
                }
            }
        }
    }
}

/// Checks that the store's names are those of the models.
fn compare(store: &Store, models: &[Model]) {
    let all: Model = models
        .iter()
        .flatten()
        .map(|(n, u)| (n.clone(), *u))
        .collect();
    let db_of = |name: &str| name.split_once('.').unwrap().0.to_string();
    let databases: BTreeSet<String> = all.keys().map(|name| db_of(name)).collect();
    assert_eq!(
        store.databases(),
        databases.iter().cloned().collect::<Vec<_>>()
    );
    for db in &databases {
        let here: Vec<&String> = all.keys().filter(|name| db_of(name) == *db).collect();
        let found = store.collections(db);
        let names: Vec<String> = found.iter().map(|c| c.namespace()).collect();
        assert_eq!(names.iter().collect::<Vec<_>>(), here);
        let count = |is: fn(&Collection) -> bool| found.iter().filter(|c| is(c)).count();
        let kinds = Kinds {
            all: found.len(),
            capped: count(Collection::is_capped),
            clustered: count(Collection::is_keyed_by_id),
            series: count(Collection::is_time_series),
        };
        assert_eq!(store.kinds(db), kinds);
    }
    for (name, uuid) in &all {
        let c = store.collection(name).unwrap();
        assert_eq!(c.uuid(), *uuid);
        let by_uuid = store.collection_by_uuid(*uuid).unwrap();
        assert!(Arc::ptr_eq(&c, &by_uuid));
        assert!(store.collection_by_uuid_in(&db_of(name), *uuid).is_some());
        assert!(store.collection_by_uuid_in("elsewhere", *uuid).is_none());
    }
    assert_eq!(store.kinds("elsewhere"), Kinds::default());
}

#[test]
fn names_are_what_a_plain_model_says_under_random_changes_and_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let mut models = vec![Model::new(); 3];
    for life in 0..4 {
        let store = Store::open(options(dir.path())).unwrap();
        compare(&store, &models);
        std::thread::scope(|s| {
            for (thread, model) in models.iter_mut().enumerate() {
                let (store, thread) = (&store, thread as u64);
                s.spawn(move || {
                    let mut rng = Random(life * 100 + thread);
                    for _ in 0..120 {
                        change(store, thread, &mut rng, model);
                    }
                });
            }
        });
        compare(&store, &models);
        if life % 2 == 0 {
            store.flush().unwrap();
        }
    }
}

/// A disk on which syncs do not end while it is held.
struct HeldSyncs {
    disk: SimDisk,
    held: Arc<(Mutex<bool>, Condvar)>,
}

impl HeldSyncs {
    fn new() -> HeldSyncs {
        let disk = SimDisk::new();
        let held: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let hold = held.clone();
        disk.set_hook(move |op, _| {
            if op == Op::Sync {
                let (held, freed) = &*hold;
                let mut held = held.lock();
                freed.wait_while_for(&mut held, |held| *held, LONG);
            }
        });
        HeldSyncs { disk, held }
    }

    fn open(&self) -> Arc<Store> {
        let options = StoreOptions {
            machine: Machine {
                disk: Arc::new(self.disk.clone()),
                threads: false,
                ..Machine::default()
            },
            ..options(Path::new("/held"))
        };
        Store::open_locked(options, None).unwrap()
    }

    fn hold(&self) {
        *self.held.0.lock() = true;
    }

    fn free(&self) {
        *self.held.0.lock() = false;
        self.held.1.notify_all();
    }
}

impl Drop for HeldSyncs {
    fn drop(&mut self) {
        self.free();
    }
}

/// Waits until `is` returns true.
fn until(what: &str, is: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn changes_of_names_go_on_while_the_disk_syncs_and_are_told_of_after_it() {
    const MANY: usize = 16;
    let disk = HeldSyncs::new();
    let store = disk.open();
    let never = &NeverInterrupted;
    let create = |name: &str| store.create_collection(name, CollectionOptions::default(), never);
    for name in ["db.old", "db.from", "db.target", "db.gone0", "db.gone1"] {
        create(name).unwrap();
    }
    let done = AtomicUsize::new(0);
    disk.hold();
    let before = disk.disk.count(Op::Sync);
    let run = |change: &(dyn Fn() + Sync)| {
        change();
        done.fetch_add(1, SeqCst);
    };
    let (run, found) = (&run, std::sync::OnceLock::new());
    std::thread::scope(|s| {
        // The syncs are freed even if an assertion fails.
        let _free = scopeguard(&disk);
        for n in 0..MANY {
            let create = &create;
            s.spawn(move || {
                run(&|| drop(create(&format!("db{}.c{n}", n % 5)).unwrap()));
            });
        }
        s.spawn(|| run(&|| assert!(store.drop_collection("db.old", never).unwrap())));
        s.spawn(|| {
            let rename = || store.rename_collection("db.from", "db.target", true, never);
            run(&|| rename().unwrap());
        });
        s.spawn(|| {
            let names = ["db.gone0", "db.gone1", "db.never"].map(String::from);
            run(&|| {
                let mut gone = Vec::new();
                let mut told = |name: &str| gone.push(name.to_string());
                store
                    .drop_collections(names.clone().into_iter(), &mut told, never)
                    .unwrap();
                assert_eq!(gone, ["db.gone0", "db.gone1"]);
            });
        });
        // All of them are made, and no client is told of one.
        for n in 0..MANY {
            let name = format!("db{}.c{n}", n % 5);
            until(&name, || store.collection(&name).is_some());
        }
        for name in ["db.old", "db.from", "db.gone0", "db.gone1"] {
            until(name, || store.collection(name).is_none());
        }
        // An operation that finds a collection which another one is making waits for the disk, too.
        let taken = create("db0.c0").map(drop).unwrap_err();
        assert_eq!(taken.code(), Code::NamespaceExists);
        let there = found.get_or_init(|| store.collection("db0.c0").unwrap());
        s.spawn(|| run(&|| store.wait_settled(there, never).unwrap()));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(done.load(SeqCst), 0);
        disk.free();
    });
    assert_eq!(done.load(SeqCst), MANY + 4);
    // One sync was under way, and a few others served all that had come meanwhile.
    let syncs = disk.disk.count(Op::Sync) - before;
    assert!(syncs <= 6, "{syncs} syncs");
    // What clients were told of survives a power cut.
    let cut = HeldSyncs {
        disk: disk.disk.power_cut(7),
        held: Arc::default(),
    };
    drop(store);
    let store = cut.open();
    for n in 0..MANY {
        assert!(store.collection(&format!("db{}.c{n}", n % 5)).is_some());
    }
    assert!(store.collection("db.old").is_none() && store.collection("db.gone1").is_none());
    assert!(store.collection("db.target").is_some());
}

fn scopeguard(disk: &HeldSyncs) -> impl Drop + '_ {
    struct Free<'d>(&'d HeldSyncs);
    impl Drop for Free<'_> {
        fn drop(&mut self) {
            self.0.free();
        }
    }
    Free(disk)
}

/// A cut, a look for damage and a look for expiry concern only the collections that have something.
#[test]
fn work_in_the_background_looks_at_the_collections_that_have_some() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(options(dir.path())).unwrap();
    let never = &NeverInterrupted;
    let all: Vec<Arc<Collection>> = (0..50)
        .map(|n| {
            let name = format!("db.c{n}");
            let made = store.create_collection(&name, CollectionOptions::default(), never);
            made.unwrap()
        })
        .collect();
    store.flush().unwrap();
    let lists = &store.inner.catalog.lists;
    assert!(lists.take_unsaved().is_empty());
    for (id, n) in [3, 7, 3].into_iter().enumerate() {
        insert(&store, &all[n], doc! { "_id": id as i32 }).unwrap();
    }
    let unsaved = lists.take_unsaved();
    assert_eq!(unsaved, [all[3].tree(), all[7].tree()]);
    unsaved.iter().for_each(|id| lists.unsaved(*id));
    let ids = |all: Vec<Arc<Collection>>| all.iter().map(|c| c.tree()).collect::<Vec<_>>();
    assert!(store.expiring().is_empty() && store.damages().is_empty());
    let ttl = |seconds: i64| {
        let d = doc! { "key": doc! { "t": 1 }, "name": "t", "expireAfterSeconds": seconds };
        IndexSpec::parse(d.as_doc()).unwrap()
    };
    store.create_index(&all[9], ttl(5), never).unwrap();
    store.create_index(&all[4], ttl(5), never).unwrap();
    assert_eq!(ids(store.expiring()), [all[4].tree(), all[9].tree()]);
    store.drop_index(&all[9], "t", never).unwrap();
    all[7].close("for the test");
    assert_eq!(store.damages().len(), 1);
    store.close().unwrap();
    drop(store);
    // A start finds the same collections as the lists.
    let store = Store::open(options(dir.path())).unwrap();
    assert_eq!(ids(store.expiring()), [all[4].tree()]);
    let counts = [3, 7].map(|n| store.collection(&format!("db.c{n}")).unwrap().count());
    assert_eq!(counts, [2, 1]);
    store.drop_collection("db.c4", never).unwrap();
    assert!(store.expiring().is_empty());
}

/// The size of a database is measured anew where something has changed, and is the sum of its
/// collections' sizes.
#[test]
fn the_size_of_a_database_follows_its_collections() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(options(dir.path())).unwrap();
    let never = &NeverInterrupted;
    let said = || {
        let all = store.collections("db");
        let of = |c: &Arc<Collection>| {
            let indexes = c.indexes();
            let indexes = indexes
                .iter()
                .map(|i| store.index_bytes(c, i, &NeverInterrupted).unwrap());
            store.storage_bytes(c) + indexes.sum::<u64>()
        };
        all.iter().map(of).sum::<u64>()
    };
    for round in 0..4 {
        for n in 0..3 {
            let name = format!("db.c{n}");
            let c = store.collection(&name).unwrap_or_else(|| {
                let options = CollectionOptions::default();
                store.create_collection(&name, options, never).unwrap()
            });
            insert(&store, &c, doc! { "_id": round, "text": "x".repeat(300) }).unwrap();
            assert_eq!(
                store.database_bytes("db", &NeverInterrupted).unwrap(),
                said()
            );
        }
        if round % 2 == 1 {
            store.flush().unwrap();
        }
        assert_eq!(
            store.database_bytes("db", &NeverInterrupted).unwrap(),
            said()
        );
    }
    let all = store.collections("db");
    assert!(
        all.iter()
            .all(|c| !c.take_news(crate::collection::news::SIZE))
    );
    store.drop_collection("db.c1", never).unwrap();
    assert_eq!(
        store.database_bytes("db", &NeverInterrupted).unwrap(),
        said()
    );
    assert_eq!(
        store
            .database_bytes("elsewhere", &NeverInterrupted)
            .unwrap(),
        0
    );
}
