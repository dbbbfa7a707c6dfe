//! Files that do not change under fsyncLock, space and memory that are given back, and operations that
//! end in the middle of long work.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::tests::index::valid;
use crate::tests::natural::crash;
use crate::tests::{Many, bytes, open};
use crate::*;
use muniment_op::{Interrupt, NeverInterrupted, Sleepers};
use muniment_value::{Code, Error, Value, array, doc};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// A text of `n` bytes that compression does not make much shorter.
fn noise(n: usize, seed: u64) -> String {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (b'0' + (x % 75) as u8) as char
    };
    (0..n).map(|_| next()).collect()
}

fn create(store: &Store, name: &str) -> Arc<Collection> {
    store
        .create_collection(name, CollectionOptions::default(), &NeverInterrupted)
        .unwrap()
}

/// Reads every file, one after the other with a pause between.
fn files(dir: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    let mut entries: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(&path, found);
        } else if path.file_name().unwrap() != "muniment.lock" {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_copy_made_file_by_file_under_the_lock_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    let spec = doc! { "key": doc! { "n": 1 }, "name": "n", "unique": true };
    let spec = IndexSpec::parse(spec.as_doc()).unwrap();
    store.create_index(&c, spec, &NeverInterrupted).unwrap();
    struct Stopper<'a>(&'a AtomicBool);
    impl Drop for Stopper<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    let stop = AtomicBool::new(false);
    let acknowledged = [const { AtomicI64::new(-1) }; 3];
    std::thread::scope(|s| {
        for (t, acknowledged) in acknowledged.iter().enumerate() {
            let (store, c, stop) = (&store, &c, &stop);
            s.spawn(move || {
                let text = noise(16 << 10, t as u64);
                for n in (0i64..).take_while(|_| !stop.load(SeqCst)) {
                    let id = n * 3 + t as i64;
                    let d = bytes(doc! { "_id": id, "n": id, "t": text.as_str() });
                    let mut many = Many::new(store, c);
                    many.run(|w| w.insert(&d)).unwrap();
                    // Every second insert deletes the one before it.
                    if n % 2 == 1 {
                        many.run(|w| match w.lock_by_id(Value::Int64(id - 3))? {
                            Ok(Some((key, old))) => w.delete(&key, &old),
                            Ok(None) => panic!("{id} is not there"),
                            Err(busy) => Ok(Err(busy)),
                        })
                        .unwrap();
                    }
                    many.commit().unwrap();
                    acknowledged.store(n, SeqCst);
                }
            });
        }
        let (compacting, stop) = (&store, &stop);
        s.spawn(move || {
            while !stop.load(SeqCst) {
                compacting.compact(None, &NeverInterrupted).unwrap();
            }
        });
        let _at_the_end = Stopper(stop);
        for round in 0..4 {
            std::thread::sleep(Duration::from_millis(700 + 100 * round));
            store.lock_writes(&NeverInterrupted).unwrap();
            let before: Vec<i64> = acknowledged.iter().map(|a| a.load(SeqCst)).collect();
            let (mut first, mut second) = (BTreeMap::new(), BTreeMap::new());
            files(dir.path(), &mut first);
            std::thread::sleep(Duration::from_millis(400));
            files(dir.path(), &mut second);
            assert!(first == second, "{:?} {:?}", first.keys(), second.keys());
            store.unlock_writes(&NeverInterrupted).unwrap();
            let to = tempfile::tempdir().unwrap();
            for (path, content) in first {
                let target = to.path().join(path.strip_prefix(dir.path()).unwrap());
                std::fs::create_dir_all(target.parent().unwrap()).unwrap();
                std::fs::write(target, content).unwrap();
            }
            let copy = open(to.path());
            let c = copy.collection("db.c").unwrap();
            valid(&copy, &c);
            let view = copy.snapshot();
            let mut rows = 0;
            for (t, last) in before.iter().enumerate() {
                // One more may have been committed when the lock was taken, and not noted.
                for n in 0..=*last {
                    let id = Value::Int64(n * 3 + t as i64);
                    let there = view.find_by_id(&c, id).unwrap().is_some();
                    let known = n < *last || n % 2 == 1;
                    assert!(!known || there == (n % 2 == 1), "{n} of {t}, last {last}");
                    rows += u64::from(there);
                }
            }
            assert!(c.count().abs_diff(rows) <= 3, "{} {rows}", c.count());
        }
    });
    let sizes = store.inner.trees.sizes();
    assert!(sizes.flushed > 8 << 20, "{sizes:?}");
    assert!(store.troubles().is_empty(), "{:?}", store.troubles());
    valid(&store, &c);
}

#[test]
fn what_is_loaded_and_dropped_gives_its_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.stays");
    let load = |c: &Arc<Collection>, docs: i64| {
        for n in 0..docs / 50 {
            let mut w = store.write_unit(c, &NeverInterrupted).unwrap();
            for i in 0..50 {
                let id = n * 50 + i;
                let d = doc! { "_id": id, "t": noise(9 << 10, id as u64) };
                w.insert(&bytes(d)).unwrap().unwrap();
            }
            w.commit().unwrap();
        }
    };
    load(&c, 100);
    let data = 1000 * (9 << 10);
    for round in 0..4 {
        let c = create(&store, "db.goes");
        load(&c, 1000);
        store.drop_collection("db.goes", &NeverInterrupted).unwrap();
        let disk = store.inner.trees.sizes().disk;
        assert!(disk < 4 * data, "round {round}: {disk}");
    }
    // Nothing more is written, so the space has to come back by itself.
    let begun = Instant::now();
    loop {
        let (disk, live) = (store.inner.trees.sizes().disk, c.data_bytes());
        if disk < 2 * live {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{disk}, {live} are live"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    valid(&store, &c);
}

/// A server that is killed soon after each start must not apply more of the log each time, whether the
/// log takes much memory or changes the same keys again and again.
#[test]
fn what_a_start_had_to_apply_is_soon_on_the_disk() {
    for (rounds, stay) in [(90, true), (700, false)] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let c = create(&store, "db.c");
        let text = noise(64 << 10, 1);
        for i in 0..rounds {
            let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
            if !stay && i > 0 {
                let (key, old) = w.lock_by_id(Value::Int32(i - 1)).unwrap().unwrap().unwrap();
                w.delete(&key, &old).unwrap().unwrap();
            }
            let d = doc! { "_id": i, "t": text.as_str() };
            w.insert(&bytes(d)).unwrap().unwrap();
            w.commit().unwrap();
        }
        let copy = crash(&store, dir.path());
        let store = open(copy.path());
        let cut = || store.inner.trees.persisted();
        let (begun, first) = (Instant::now(), store.inner.newest_timestamp());
        while cut() < first {
            let waited = begun.elapsed();
            assert!(waited < Duration::from_secs(20), "{:?} {first:?}", cut());
            std::thread::sleep(Duration::from_millis(20));
        }
        let again = crash(&store, copy.path());
        let store = open(again.path());
        let c = store.collection("db.c").unwrap();
        assert_eq!(c.count(), if stay { 90 } else { 1 });
        valid(&store, &c);
    }
}

/// One document of each batch stays, and keeps the whole batch in memory until a flush.
#[test]
fn what_a_small_document_keeps_alive_counts() {
    for engine in [EngineKind::Lsm, EngineKind::Memory] {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions {
            engine,
            ..crate::tests::options(dir.path())
        };
        let one = Budget::of(options.cache_bytes).memtable;
        let store = Store::open(options).unwrap();
        let c = create(&store, "db.c");
        let text = "t".repeat(8 << 10);
        let mut most = 0;
        for round in 0..20i64 {
            let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
            for i in 0..400 {
                let t = if i == 7 { "small" } else { text.as_str() };
                let d = bytes(doc! { "_id": round * 1000 + i, "t": t });
                w.insert(&d).unwrap().unwrap();
            }
            w.commit().unwrap();
            let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
            for i in (0..400).filter(|i| *i != 7) {
                let id = Value::Int64(round * 1000 + i);
                let (key, old) = w.lock_by_id(id).unwrap().unwrap().unwrap();
                w.delete(&key, &old).unwrap().unwrap();
            }
            w.commit().unwrap();
            let inner = &store.inner;
            most = most.max(inner.cuts.buffers.live(inner.trees.persisted()).1);
        }
        assert_eq!(c.count(), 20);
        assert!(most < 4 * one, "{engine:?}: {most}, a memtable has {one}");
        valid(&store, &c);
    }
}

/// An interrupt that stops everything.
struct Expired;

impl Interrupt for Expired {
    fn check(&self) -> muniment_value::Result<()> {
        Err(Error::new(
            Code::MaxTimeMSExpired,
            "operation exceeded time limit",
        ))
    }

    fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}
}

#[test]
fn a_way_over_deleted_documents_ends_with_its_operation() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
    for i in 0..20_000 {
        w.insert(&bytes(doc! { "_id": i })).unwrap().unwrap();
    }
    w.commit().unwrap();
    store.flush().unwrap();
    // The view keeps deleted documents from being cleared away.
    let held = store.snapshot();
    let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
    for i in 0..20_000 {
        let found = w.lock_by_id(Value::Int32(i)).unwrap().unwrap();
        let (key, old) = found.unwrap();
        w.delete(&key, &old).unwrap().unwrap();
    }
    w.commit().unwrap();
    store.flush().unwrap();
    let mut cursor = store
        .snapshot()
        .docs(&c, &KeyRange::all(), Direction::Forward);
    let e = cursor.next(&Expired).unwrap_err();
    assert_eq!(e.code(), Code::MaxTimeMSExpired);
    assert!(cursor.next(&NeverInterrupted).unwrap().is_none());
    drop(held);
}

/// An operation that stops after it was asked this many times.
struct Patience(AtomicI64);

impl Interrupt for Patience {
    fn check(&self) -> muniment_value::Result<()> {
        match self.0.fetch_sub(1, SeqCst) > 0 {
            true => Ok(()),
            false => Expired.check(),
        }
    }

    fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}

    fn shared(&self) -> Option<Arc<dyn Interrupt>> {
        // The remaining patience is halved between this operation and the shared one, so that both end.
        let half = self.0.load(SeqCst).max(0) / 2;
        self.0.fetch_sub(half, SeqCst);
        Some(Arc::new(Patience(AtomicI64::new(half))))
    }
}

/// A filter that takes long to parse, so that parsing it asks the operation.
fn slow_filter() -> muniment_value::DocBuf {
    let corner = |i: i32| {
        let angle = f64::from(i % 9000) / 9000.0 * std::f64::consts::TAU;
        array![angle.cos(), angle.sin()]
    };
    let ring: muniment_value::ArrayBuf = (0..=9000).map(corner).collect();
    let polygon = doc! { "type": "Polygon", "coordinates": array![ring] };
    doc! { "g": doc! { "$geoWithin": doc! { "$geometry": polygon } } }
}

/// An operation may end whenever it is asked. A definition is then either refused before it is in the
/// log, or it stays. It is never taken for damaged.
#[test]
fn no_definition_is_damaged_by_the_end_of_an_operation() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let slow = slow_filter();
    let options = CollectionOptions {
        document: doc! { "validator": slow.clone() },
        ..CollectionOptions::default()
    };
    let spec = doc! { "key": doc! { "n": 1 }, "name": "n", "partialFilterExpression": slow };
    let spec = IndexSpec::parse(spec.as_doc()).unwrap();
    let ended = |e: Error| assert_eq!(e.code(), Code::MaxTimeMSExpired, "{e}");
    let plain = create(&store, "db.plain");
    let (mut refused, mut patience) = (0, 0);
    loop {
        let operation = || Patience(AtomicI64::new(patience));
        let made = store.create_collection("db.c", options.clone(), &operation());
        let made = made.map_err(ended);
        if let Ok(c) = &made {
            c.check_validator().unwrap();
            store.drop_collection("db.c", &NeverInterrupted).unwrap();
        }
        let built = store.create_index(&plain, spec.clone(), &operation());
        let built = built.map_err(ended);
        for index in plain.all_indexes().iter() {
            assert!(!index.is_damaged(), "{patience}");
        }
        if built.is_ok() {
            store.drop_index(&plain, "n", &NeverInterrupted).unwrap();
        }
        if made.is_ok() && built.is_ok() {
            break;
        }
        refused += 1;
        patience += 1 + patience / 8;
    }
    assert!(refused > 3, "{refused}");
}

/// The end of an operation, whenever it comes, is no damage of the collection that it validates.
#[test]
fn a_validation_that_ends_early_says_nothing_of_the_collection() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let c = create(&store, "db.c");
    let spec = IndexSpec::parse(doc! { "key": doc! { "n": 1 }, "name": "n" }.as_doc()).unwrap();
    store.create_index(&c, spec, &NeverInterrupted).unwrap();
    let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
    for i in 0..20_000 {
        w.insert(&bytes(doc! { "_id": i, "n": i }))
            .unwrap()
            .unwrap();
    }
    w.commit().unwrap();
    store.flush().unwrap();
    // Keeps what is deleted from being cleared away.
    let held = store.snapshot();
    let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
    for i in 1..20_000 {
        let found = w.lock_by_id(Value::Int32(i)).unwrap().unwrap();
        let (key, old) = found.unwrap();
        w.delete(&key, &old).unwrap().unwrap();
    }
    w.commit().unwrap();
    store.flush().unwrap();
    let (mut ended, mut patience) = (0, 0);
    loop {
        let operation = Patience(AtomicI64::new(patience));
        match store.validate(&c, false, &operation) {
            Err(e) => assert_eq!(e.code(), Code::MaxTimeMSExpired, "{e}"),
            Ok(report) => {
                let valid = report.as_doc().get("valid");
                assert!(valid.is_some_and(|v| v.truthy()), "{report:?}");
                break;
            }
        }
        ended += 1;
        patience += 1;
    }
    assert!(ended > 10, "{ended}");
    drop(held);
}

/// Test suites make and drop collections by the thousand, of which nothing may stay.
#[test]
fn dropped_collections_are_soon_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut most = 0;
    for i in 0..6000 {
        let name = format!("db.c{i}");
        let c = create(&store, &name);
        if i % 100 == 0 {
            let d = bytes(doc! { "_id": i });
            let mut w = store.write_unit(&c, &NeverInterrupted).unwrap();
            w.insert(&d).unwrap().unwrap();
            w.commit().unwrap();
        }
        store.drop_collection(&name, &NeverInterrupted).unwrap();
        most = most.max(store.inner.cuts.dropped.lock().len());
    }
    let end = Instant::now() + Duration::from_secs(60);
    while store.inner.cuts.dropped.lock().len() > 2 * 1000 + 100 {
        assert!(
            Instant::now() < end,
            "{}",
            store.inner.cuts.dropped.lock().len()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(most < 12_000, "{most}");
}
