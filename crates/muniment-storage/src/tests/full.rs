//! A disk that fills. Writes stop while operations that free space still have room; what is deleted or
//! dropped gives its space back without a restart; and after a crash at any step every row is found.
//!
//! The disk is one in memory that has a size. `MUNIMENT_LONG` runs the same on the real file systems
//! that `MUNIMENT_DISKS` names, in directories each of which must be all that its file system has.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::tests::{bytes, options};
use crate::*;
use muniment_io::{Disk, Machine, OsDisk, SimDisk};
use muniment_op::NeverInterrupted;
use muniment_value::{Code, Result, Value, array, doc};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Small random numbers, the same for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51afd7ed558ccd) >> 1
    }

    fn bytes(&mut self, n: usize) -> String {
        // There are sixty-four letters, so that compression does not gain much.
        let letter = |r: u64| char::from(b'0' + (r % 64) as u8);
        let mut text = String::with_capacity(n);
        while text.len() < n {
            let r = self.next();
            (0..8).for_each(|i| text.push(letter(r >> (i * 7))));
        }
        text
    }
}

/// The rows that are there: `n` by `_id`.
type Rows = BTreeMap<i64, i64>;

/// A store with a disk of its own.
struct World {
    store: Arc<Store>,
    disk: Arc<dyn Disk>,
    /// The disk, if it is in memory.
    sim: Option<SimDisk>,
    dir: PathBuf,
    rows: Rows,
    random: Random,
    /// About how many bytes a row has.
    row: usize,
}

fn opened(disk: Arc<dyn Disk>, dir: &Path, threads: bool) -> Arc<Store> {
    let machine = Machine {
        disk,
        threads,
        ..Machine::default()
    };
    let options = StoreOptions {
        machine,
        cache_bytes: 8 << 20,
        ..options(dir)
    };
    Store::open_locked(options, None).unwrap()
}

impl World {
    fn in_memory(bytes: u64, seed: u64) -> World {
        let sim = SimDisk::new();
        sim.set_size(bytes);
        let dir = PathBuf::from("/db");
        World::on(Arc::new(sim.clone()), Some(sim), dir, seed, 4000)
    }

    fn on(disk: Arc<dyn Disk>, sim: Option<SimDisk>, dir: PathBuf, seed: u64, row: usize) -> World {
        let store = opened(disk.clone(), &dir, true);
        World {
            store,
            disk,
            sim,
            dir,
            rows: Rows::new(),
            random: Random(seed),
            row,
        }
    }

    fn collection(&self, name: &str) -> Arc<Collection> {
        self.store.collection(name).unwrap()
    }

    /// Makes a collection with four indexes in addition to `_id_`.
    fn create(&mut self, name: &str) {
        let none = CollectionOptions::default();
        let c = self.store.create_collection(name, none, &NeverInterrupted);
        let c = c.unwrap();
        for (key, unique) in [
            (doc! { "a": 1 }, false),
            (doc! { "b": 1 }, true),
            (doc! { "a": -1, "b": 1 }, false),
            (doc! { "tags": 1 }, false),
        ] {
            let name = key.as_doc().first().unwrap().name().to_string() + "_";
            let name = format!("{name}{}", key.as_doc().as_bytes().len());
            let spec = doc! { "v": 2, "key": key, "name": name, "unique": unique };
            let spec = IndexSpec::parse(spec.as_doc()).unwrap();
            self.store
                .create_index(&c, spec, &NeverInterrupted)
                .unwrap();
        }
        self.rows.clear();
    }

    fn insert(&mut self, name: &str, count: usize) -> Result<()> {
        let c = self.collection(name);
        let mut new = Rows::new();
        let mut unit = self.store.write_unit(&c, &NeverInterrupted)?;
        for _ in 0..count {
            let (id, n) = (self.random.next() as i64, self.random.next() as i64);
            let text = self.random.bytes(16);
            let d = doc! {
                "_id": id, "n": n, "a": n ^ 5, "b": format!("{text}{id}"),
                "tags": array![n % 100, (id % 1000) as i32], "p": self.random.bytes(self.row)
            };
            unit.insert(&bytes(d))?.unwrap();
            new.insert(id, n);
        }
        unit.commit()?;
        self.rows.extend(new);
        Ok(())
    }

    /// Inserts until the disk is full, and stays so for a while.
    fn fill(&mut self, name: &str) -> usize {
        let (mut refused, mut stored) = (0, 0);
        while refused < 20 {
            match self.insert(name, 16) {
                Ok(()) => stored += 16,
                Err(e) => {
                    assert_eq!(e.code(), Code::OutOfDiskSpace, "{e}");
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
        stored
    }

    /// Deletes about this percentage of the rows.
    fn delete(&mut self, name: &str, percent: u64) {
        let c = self.collection(name);
        let mut ids: Vec<i64> = self.rows.keys().copied().collect();
        ids.retain(|_| self.random.next() % 100 < percent);
        for some in ids.chunks(32) {
            let start = Instant::now();
            loop {
                let mut unit = self.store.write_unit(&c, &NeverInterrupted).unwrap();
                for id in some {
                    let found = unit.lock_by_id(Value::Int64(*id)).unwrap().unwrap();
                    let (key, old) = found.unwrap_or_else(|| panic!("row {id} is not there"));
                    unit.delete(&key, &old).unwrap().unwrap();
                }
                match unit.commit() {
                    Ok(_) => break,
                    // The log's next segment could not be made for a moment.
                    Err(e) if start.elapsed() > Duration::from_secs(20) => panic!("{e}"),
                    Err(e) => assert_eq!(e.code(), Code::OutOfDiskSpace, "{e}"),
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            some.iter().for_each(|id| {
                self.rows.remove(id);
            });
        }
    }

    fn used(&self) -> u64 {
        let space = self.disk.space(&self.dir).unwrap();
        space.total - space.free
    }

    fn total(&self) -> u64 {
        self.disk.space(&self.dir).unwrap().total
    }

    /// Waits until at most this percentage of the bytes is used.
    fn gets_down_to(&self, percent: u64, what: &str) {
        let start = Instant::now();
        while self.used() * 100 > self.total() * percent {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{what}: {} of {} KB are used: {:?}, {:?}, {:?}",
                self.used() >> 10,
                self.total() >> 10,
                self.store.troubles(),
                self.store.stats(),
                self.store.inner.trees.sizes()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Checks that every row is there and no other, in the collection and in its indexes.
    fn verify(&self, store: &Store, name: &str, what: &str) {
        let c = store.collection(name).unwrap();
        let mut found = Rows::new();
        let all = KeyRange::all();
        let mut cursor = store.snapshot().docs(&c, &all, Direction::Forward);
        while let Some((_, d)) = cursor.next(&NeverInterrupted).unwrap() {
            let d = muniment_value::Doc::new(&d);
            let int = |name| d.get(name).and_then(|v| v.as_i64_exact()).unwrap();
            found.insert(int("_id"), int("n"));
        }
        let same = found == self.rows;
        assert!(same, "{what}: {} of {} rows", found.len(), self.rows.len());
        let report = store.validate(&c, true, &NeverInterrupted).unwrap();
        let valid = report.as_doc().get("valid").is_some_and(|v| v.truthy());
        assert!(valid, "{what}: {report:?}");
    }

    /// A power cut now leaves all rows, and a store opens on the disk as it is.
    fn survives(&mut self, name: &str, what: &str) {
        self.store.sync().unwrap();
        let Some(sim) = &self.sim else {
            // Ends the store and opens it again.
            self.store.close().unwrap();
            self.store = opened(self.disk.clone(), &self.dir, true);
            return self.verify(&self.store, name, what);
        };
        let cut = sim.power_cut(self.random.next());
        cut.set_size(self.total());
        let store = opened(Arc::new(cut), &self.dir, false);
        self.verify(&store, name, what);
    }
}

/// The whole course; `loose`: the percentage of bytes that may be used when no row is left.
fn course(world: &mut World, loose: u64) {
    world.create("db.c");
    let first = world.fill("db.c");
    let full = world.used() * 100 / world.total();
    assert!(full > 60, "refused at {full} %");
    world.survives("db.c", "full");
    // Half of the rows go at a time, without a wait in between.
    world.delete("db.c", 50);
    // When space is not short any more, a quarter of what tables hold may be dead.
    world.gets_down_to(full * 7 / 8, "half deleted");
    world.verify(&world.store, "db.c", "half deleted");
    world.survives("db.c", "half deleted");
    let again = world.fill("db.c");
    assert!(again * 4 > first, "{again} rows after half of {first}");
    world.delete("db.c", 100);
    world.gets_down_to(loose, "all deleted");
    world.survives("db.c", "all deleted");
    let again = world.fill("db.c");
    assert!(again * 4 > first * 3, "{again} rows after all of {first}");
    world.verify(&world.store, "db.c", "filled again");
    // The command compacts what is full.
    let c = world.collection("db.c");
    world.store.compact(Some(&c), &NeverInterrupted).unwrap();
    world.survives("db.c", "compacted");
    world.create("db.other");
    world
        .store
        .drop_collection("db.c", &NeverInterrupted)
        .unwrap();
    world.gets_down_to(loose, "dropped");
    world.insert("db.other", 10).unwrap();
    world.survives("db.other", "dropped");
    let again = world.fill("db.other");
    assert!(again * 4 > first * 3, "{again} rows after a drop");
    world.verify(&world.store, "db.other", "the end");
}

#[test]
fn space_returns_when_rows_are_deleted_or_dropped() {
    course(&mut World::in_memory(24 << 20, 1), 30);
}

#[test]
fn space_returns_while_others_read() {
    let mut world = World::in_memory(24 << 20, 2);
    let (store, end) = (world.store.clone(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for pause in [5, 50] {
            let (store, end) = (&store, &end);
            scope.spawn(move || {
                while !end.load(SeqCst) {
                    let snapshot = store.snapshot();
                    let names = ["db.c", "db.other"].into_iter();
                    for c in names.filter_map(|name| store.collection(name)) {
                        let count = || {
                            let all = KeyRange::all();
                            let mut cursor = snapshot.docs(&c, &all, Direction::Backward);
                            let mut rows = 0;
                            while let Some(row) = cursor.next(&NeverInterrupted)? {
                                rows += 1;
                                assert!(row.1.len() > 1000);
                            }
                            Ok::<_, muniment_value::Error>(rows)
                        };
                        // A view sees the same for as long as it is there.
                        let first = count().unwrap();
                        std::thread::sleep(Duration::from_millis(pause));
                        assert_eq!(count().unwrap(), first);
                    }
                    std::thread::sleep(Duration::from_millis(pause));
                }
            });
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            course(&mut world, 35);
        }));
        end.store(true, SeqCst);
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn what_an_old_view_needs_stays_until_it_ends() {
    let mut world = World::in_memory(24 << 20, 3);
    world.create("db.c");
    world.fill("db.c");
    let (rows, full) = (world.rows.clone(), world.used());
    let view = world.store.snapshot();
    world.delete("db.c", 60);
    std::thread::sleep(Duration::from_millis(500));
    let c = world.collection("db.c");
    let mut cursor = view.docs(&c, &KeyRange::all(), Direction::Forward);
    let mut seen = 0;
    while let Some((_, d)) = cursor.next(&NeverInterrupted).unwrap() {
        let id = muniment_value::Doc::new(&d)
            .get("_id")
            .and_then(|v| v.as_i64_exact());
        assert!(rows.contains_key(&id.unwrap()));
        seen += 1;
    }
    assert_eq!(seen, rows.len());
    world.survives("db.c", "with an old view");
    drop((cursor, view));
    let percent = full * 100 / world.total() * 3 / 4;
    world.gets_down_to(percent, "the view has ended");
    world.insert("db.c", 10).unwrap();
    world.survives("db.c", "without it");
}

/// Deleted data leaves the disk even if no write needs the space yet.
#[test]
fn what_was_deleted_leaves_the_disk_without_further_writes() {
    let mut world = World::in_memory(256 << 20, 5);
    world.create("db.c");
    for _ in 0..60 {
        world.insert("db.c", 32).unwrap();
    }
    let c = world.collection("db.c");
    world.store.compact(Some(&c), &NeverInterrupted).unwrap();
    let full = world.store.stats().disk_bytes - world.store.stats().journal.file_bytes;
    world.delete("db.c", 100);
    let begun = Instant::now();
    let files = || world.store.stats().disk_bytes - world.store.stats().journal.file_bytes;
    while files() * 10 > full {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{:?}",
            world.store.stats()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    world.survives("db.c", "all deleted");
}

#[test]
fn a_disk_that_others_fill_is_told_and_got_over() {
    let mut world = World::in_memory(24 << 20, 4);
    world.create("db.c");
    world.fill("db.c");
    // Another program takes the space that was kept back.
    let sim = world.sim.clone().unwrap();
    let alien = sim.open(Path::new("/alien"), muniment_io::Open::Create);
    let alien = alien.unwrap();
    let free = sim.free();
    alien.set_len(free - 4096).unwrap();
    let refused = world.insert("db.c", 4).unwrap_err();
    assert_eq!(refused.code(), Code::OutOfDiskSpace);
    assert!(refused.message().contains("/db"), "{refused}");
    let c = world.collection("db.c");
    let told = world.store.compact(Some(&c), &NeverInterrupted);
    if let Err(e) = told {
        assert_eq!(e.code(), Code::OutOfDiskSpace, "{e}");
    }
    world.survives("db.c", "no room at all");
    // A little of it is enough to begin with.
    alien.set_len(free.saturating_sub(3 << 20)).unwrap();
    world.delete("db.c", 100);
    world.gets_down_to(35, "all deleted");
    world.insert("db.c", 10).unwrap();
    world.survives("db.c", "got over");
}

/// Run with `MUNIMENT_LONG=1 MUNIMENT_DISKS=/mnt/a:/mnt/b`.
#[test]
fn space_returns_on_real_disks() {
    let (Some(_), Some(disks)) = (
        std::env::var_os("MUNIMENT_LONG"),
        std::env::var_os("MUNIMENT_DISKS"),
    ) else {
        return;
    };
    for dir in std::env::split_paths(&disks) {
        let dir = dir.join("db");
        OsDisk.create_dir(&dir).unwrap();
        let start = Instant::now();
        let mut world = World::on(Arc::new(OsDisk), None, dir.clone(), 7, 500);
        course(&mut world, 30);
        println!("{}: {:?}", dir.display(), start.elapsed());
    }
}
