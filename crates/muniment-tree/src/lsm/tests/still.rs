//! Files that stand still, and work that waits for other work or is asked to end.

use super::super::shared::Claim;
use super::super::{LsmOptions, LsmTrees};
use super::world::{Model, World, bytes, delete, put, rows, small};
use crate::trees::{Batch, Direction, Range, TreeId, Trees};
use muniment_io::Timestamp;
use muniment_op::{Asked, Interrupt, NeverInterrupted, Operation, Sleepers};
use muniment_value::{Code, Error, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

fn fill(world: &mut World, tree: u32, from: u32, to: u32) {
    for chunk in (from..to).collect::<Vec<_>>().chunks(100) {
        let batch = chunk
            .iter()
            .map(|i| put(tree, format!("{i:08}"), format!("value {i}")));
        world.commit(batch.collect());
    }
}

fn sealed(world: &World) {
    world.trees.seal(world.now).unwrap();
    world.trees.flush().unwrap();
}

fn stopped() -> Error {
    Error::new(Code::Interrupted, "stop")
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut out = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        out.insert(name, std::fs::read(entry.path()).unwrap());
        std::thread::sleep(Duration::from_millis(2));
    }
    out
}

#[test]
fn files_stand_still_while_they_are_held() {
    let dir = tempfile::tempdir().unwrap();
    let options = |dir: &Path| LsmOptions {
        cache_bytes: 256 << 10,
        memtable_bytes: 32 << 10,
        block_bytes: 1 << 10,
        table_bytes: 32 << 10,
        ratio: 4,
        ..LsmOptions::new(dir)
    };
    let trees = LsmTrees::open(options(dir.path())).unwrap();
    let (model, stop) = (Mutex::new(Model::default()), AtomicBool::new(false));
    let slowest = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0u64;
            while !stop.load(SeqCst) {
                n += 1;
                let at = Timestamp(n);
                let key = |i: u64| format!("{:05}", (n * 7919 + i * 13) % 4000);
                let mut batch: Batch = (0..10)
                    .map(|i| put(1, key(i), vec![n as u8; 150]))
                    .collect();
                batch.extend((10..15).map(|i| delete(1, key(i))));
                let mut model = model.lock();
                model.apply(&batch, at);
                trees.apply(batch, at);
                trees.views().advance(at);
                let sizes = trees.sizes();
                if sizes.memory - sizes.sealed > 32 << 10 {
                    trees.seal(at).unwrap();
                }
                drop(model);
                while trees.sizes().sealed > 4 << 20 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                trees.compact(None, &NeverInterrupted).unwrap();
            }
        });
        let mut slowest = Duration::ZERO;
        for round in 0..10 {
            std::thread::sleep(Duration::from_millis(100 + 20 * round));
            let begun = Instant::now();
            let hold = trees.hold(&NeverInterrupted).unwrap();
            slowest = slowest.max(begun.elapsed());
            let first = files(dir.path());
            std::thread::sleep(Duration::from_millis(100));
            let second = files(dir.path());
            assert!(first == second, "{:?} {:?}", first.keys(), second.keys());
            drop(hold);
            let to = tempfile::tempdir().unwrap();
            for (name, content) in first {
                std::fs::write(to.path().join(name), content).unwrap();
            }
            let copy = LsmTrees::open(options(to.path())).unwrap();
            assert_eq!(
                copy.check(None, &NeverInterrupted).unwrap(),
                Vec::<String>::new()
            );
            let (at, all) = (copy.persisted(), Range::default());
            let found = rows(copy.cursor(TreeId(1), all.clone(), at, Direction::Forward));
            assert!(
                found == model.lock().scan(TreeId(1), &all, at),
                "round {round}"
            );
        }
        stop.store(true, SeqCst);
        slowest
    });
    let sizes = trees.sizes();
    assert!(
        sizes.flushed > 128 << 10 && sizes.compacted > 128 << 10,
        "{sizes:?}"
    );
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
}

#[test]
fn long_works_give_way_and_are_done_later() {
    let mut world = World::new();
    for _ in 0..3 {
        fill(&mut world, 1, 0, 20_000);
        sealed(&world);
    }
    let trees = &world.trees;
    let asked = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let slow = Asked(|| {
                asked.fetch_add(1, SeqCst);
                // Slow enough to be at work when it is asked to stop.
                std::thread::sleep(Duration::from_millis(5));
                Ok(())
            });
            trees.compact(None, &slow)
        });
        while asked.load(SeqCst) < 8 {
            std::thread::yield_now();
        }
        let begun = Instant::now();
        let one = trees.hold(&NeverInterrupted).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(2));
        assert_eq!(trees.sizes().fresh_runs, 3);
        let two = trees.hold(&NeverInterrupted).unwrap();
        drop(one);
        assert!(!trees.work().unwrap());
        let paths = world.disk.paths();
        std::thread::sleep(Duration::from_millis(50));
        assert!(!work.is_finished());
        assert_eq!(world.disk.paths(), paths);
        // A flush also waits until the last hold ends.
        trees.seal(world.now).unwrap();
        drop(two);
        work.join().unwrap().unwrap();
    });
    assert_eq!(world.trees.sizes().fresh_runs, 0);
    world.verify(world.now);
    assert!(world.trees.faults().compaction.is_none());
}

#[test]
fn a_hold_that_is_given_up_holds_nothing() {
    let mut world = World::new();
    fill(&mut world, 1, 0, 3000);
    world.trees.seal(world.now).unwrap();
    let hold = world.trees.hold(&NeverInterrupted).unwrap();
    let trees = &world.trees;
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| trees.flush());
        std::thread::sleep(Duration::from_millis(30));
        assert!(!flush.is_finished());
        drop(hold);
        flush.join().unwrap().unwrap();
    });
    let working = world.trees.shared.still.try_work();
    let e = world.trees.hold(&Asked(|| Err(stopped()))).err().unwrap();
    assert_eq!(e.message(), "stop");
    drop(working);
    assert!(world.trees.shared.still.try_work().is_some());
    fill(&mut world, 1, 0, 3000);
    sealed(&world);
    world.verify(world.now);
}

/// Every wait for files ends when its operation is killed, without any other event.
#[test]
fn a_kill_ends_each_wait_for_files() {
    let mut world = World::new();
    for _ in 0..3 {
        fill(&mut world, 1, 0, 2000);
        sealed(&world);
    }
    let trees = &world.trees;
    let ends = |what: &str, wait: &(dyn Fn(&Operation) -> Result<()> + Sync)| {
        let op = Operation::new(Instant::now(), None);
        std::thread::scope(|s| {
            let waits = s.spawn(|| wait(&op));
            while !op.is_waiting() {
                assert!(!waits.is_finished(), "{what} did not wait");
                std::thread::yield_now();
            }
            let killed = Instant::now();
            op.kill(Code::Interrupted);
            let e = waits.join().unwrap().unwrap_err();
            println!("{what}: {:?}", killed.elapsed());
            assert_eq!(e.code(), Code::Interrupted, "{what}");
        });
    };
    let working = trees.shared.still.try_work();
    ends("files, to hold them", &|op| trees.hold(op).map(drop));
    drop(working);
    let hold = trees.hold(&NeverInterrupted).unwrap();
    ends("files that are held, to compact", &|op| {
        trees.compact(None, op)
    });
    drop(hold);
    let tables: Vec<_> = trees.shared.state().levels.tables().cloned().collect();
    let busy = |is: bool| tables.iter().for_each(|t| t.busy.store(is, SeqCst));
    busy(true);
    ends("tables of another job, to compact", &|op| {
        trees.compact(None, op)
    });
    busy(false);
    trees.compact(None, &NeverInterrupted).unwrap();
    world.verify(world.now);
}

/// A compaction of one tree waits for jobs that use its tables, and for no others.
#[test]
fn compact_waits_for_its_own_tree_alone() {
    let mut world = World::new();
    for tree in [1, 9] {
        for _ in 0..3 {
            fill(&mut world, tree, 0, 2000);
            sealed(&world);
        }
    }
    let tables = |tree: u32| {
        let state = world.trees.shared.state();
        let of = move |t: &std::sync::Arc<super::super::table::Table>| {
            t.properties().trees.iter().any(|(id, _)| id.0 == tree)
        };
        state
            .levels
            .tables()
            .filter(|t| of(t))
            .cloned()
            .collect::<Vec<_>>()
    };
    // As if a long job of the other tree were running.
    let claims = &world.trees.shared.claims;
    claims.lock().push(Claim {
        number: 77,
        output: 1,
        spans: Vec::new(),
        bytes: 0,
    });
    for table in tables(9) {
        table.busy.store(true, SeqCst);
    }
    let asked = AtomicU64::new(0);
    let patience = |n: u64| {
        asked.store(0, SeqCst);
        let asked = &asked;
        Asked(move || match asked.fetch_add(1, SeqCst) >= n {
            true => Err(stopped()),
            false => Ok(()),
        })
    };
    world
        .trees
        .compact(Some(&[TreeId(1)]), &patience(1000))
        .unwrap();
    assert!(
        tables(1)
            .iter()
            .all(|t| t.properties().total.superseded == 0)
    );
    let e = world
        .trees
        .compact(Some(&[TreeId(9)]), &patience(20))
        .unwrap_err();
    assert_eq!(e.message(), "stop");
    for table in tables(9) {
        table.busy.store(false, SeqCst);
    }
    // A compaction whose tables are free is done at once, whatever other jobs run.
    world
        .trees
        .compact(Some(&[TreeId(9)]), &patience(1000))
        .unwrap();
    assert!(
        tables(9)
            .iter()
            .all(|t| t.properties().total.superseded == 0)
    );
    claims.lock().clear();
    world.verify(world.now);
}

/// An operation that counts how often it is asked, and stops after so many times.
struct Patience {
    left: AtomicU64,
    asked: AtomicU64,
}

impl Patience {
    fn of(times: u64) -> Patience {
        Patience {
            left: AtomicU64::new(times),
            asked: AtomicU64::new(0),
        }
    }
}

impl Interrupt for Patience {
    fn check(&self) -> Result<()> {
        self.asked.fetch_add(1, Relaxed);
        let less = |n: u64| n.checked_sub(1);
        match self.left.fetch_update(Relaxed, Relaxed, less) {
            Ok(_) => Ok(()),
            Err(_) => Err(stopped()),
        }
    }

    fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}
}

/// A cursor over very many deleted keys checks for interrupts on its way, also in the walk that finds a gap,
/// and can continue where it was stopped.
#[test]
fn a_long_way_can_be_interrupted() {
    const MANY: u32 = 20_000;
    for dir in [Direction::Forward, Direction::Backward] {
        let mut world = World::new();
        fill(&mut world, 1, 0, MANY);
        world.commit(vec![put(1, "a", "first"), put(1, "00000000", "last")]);
        sealed(&world);
        for chunk in (1..MANY).collect::<Vec<_>>().chunks(1000) {
            world.commit(chunk.iter().map(|i| delete(1, format!("{i:08}"))).collect());
        }
        sealed(&world);
        let cursor = || {
            world
                .trees
                .cursor(TreeId(1), Range::default(), world.now, dir)
        };
        let mut uninterrupted = cursor();
        let patient = Patience::of(u64::MAX);
        let mut rows = 0;
        while uninterrupted.next(&patient).unwrap().is_some() {
            rows += 1;
        }
        assert_eq!(rows, 2);
        // At least once for some hundred blocks of tombstones.
        let asked = patient.asked.load(Relaxed);
        assert!(asked > 60, "{asked}");
        // Interrupted at the first check, and at each of many later ones.
        for patience in (0..12).chain([20, 50, 60]) {
            world.trees.shared.gaps.forget_all();
            let mut cursor = cursor();
            let operation = Patience::of(patience);
            let mut found = Vec::new();
            let e = loop {
                match cursor.next(&operation) {
                    Ok(Some(row)) => found.push(row.0),
                    Ok(None) => panic!("it came to the end with {patience} questions"),
                    Err(e) => break e,
                }
            };
            assert_eq!(e.message(), "stop");
            assert!(cursor.next(&operation).is_err());
            // Another operation goes on with it.
            while let Some(row) = cursor.next(&NeverInterrupted).unwrap() {
                found.push(row.0);
            }
            found.sort();
            assert_eq!(found, [bytes("00000000"), bytes("a")], "{patience}");
        }
    }
}

/// A member that steps down stops operations, and spares some of them if it becomes primary again at once. A
/// cursor may have heard of the stop meanwhile. It is not worse off for that.
#[test]
fn a_cursor_goes_on_for_an_operation_that_was_spared() {
    struct Spared(AtomicU64);
    impl Interrupt for Spared {
        fn check(&self) -> Result<()> {
            match self.0.fetch_sub(1, Relaxed) {
                0 => Err(stopped()),
                _ => Ok(()),
            }
        }

        fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}
    }

    let mut world = World::new();
    fill(&mut world, 1, 0, 20_000);
    world.commit(vec![put(1, "a", "first"), put(1, "00000000", "last")]);
    sealed(&world);
    for chunk in (1..20_000).collect::<Vec<_>>().chunks(1000) {
        world.commit(chunk.iter().map(|i| delete(1, format!("{i:08}"))).collect());
    }
    sealed(&world);
    let mut stops = 0;
    for patience in 0..60 {
        world.trees.shared.gaps.forget_all();
        let all = Range::default();
        let trees = &world.trees;
        let mut cursor = trees.cursor(TreeId(1), all, world.now, Direction::Forward);
        let operation = Spared(AtomicU64::new(patience));
        let mut found = Vec::new();
        loop {
            match cursor.next(&operation) {
                Ok(Some(row)) => found.push(row.0),
                Ok(None) => break,
                Err(e) => {
                    assert_eq!(e.message(), "stop");
                    stops += 1;
                }
            }
        }
        assert_eq!(found, [bytes("00000000"), bytes("a")], "{patience}");
    }
    assert!(stops > 40, "{stops}");
}

/// The same goes for a cursor whose view is older than most of the versions.
#[test]
fn a_way_over_what_is_too_new_can_be_interrupted() {
    let mut world = World::new();
    // All rows are in one table, so that the view has something in it.
    world.trees = LsmTrees::open(LsmOptions {
        table_bytes: 8 << 20,
        ..small(&world.disk)
    })
    .unwrap();
    world.commit(vec![put(1, "00000000", "first"), put(1, "a", "last")]);
    let old = world.trees.views().open();
    fill(&mut world, 1, 1, 40_000);
    sealed(&world);
    world.trees.compact(None, &NeverInterrupted).unwrap();
    let at = old.timestamp();
    let mut cursor = world
        .trees
        .cursor(TreeId(1), Range::default(), at, Direction::Forward);
    let operation = Patience::of(10);
    let mut found = Vec::new();
    let e = loop {
        match cursor.next(&operation) {
            Ok(row) => found.push(row.unwrap().0),
            Err(e) => break e,
        }
    };
    assert_eq!(e.message(), "stop");
    while let Some(row) = cursor.next(&NeverInterrupted).unwrap() {
        found.push(row.0);
    }
    assert_eq!(found, [bytes("00000000"), bytes("a")]);
}
