//! A disk that is nearly full gets room again by compactions in pieces, while files are read or held, and
//! whenever the power fails.

use super::super::state::State;
use super::super::{LsmOptions, LsmTrees};
use super::world::{Random, World, delete, put, small};
use crate::trees::{Direction, Hold, Range, TreeId, Trees};
use muniment_io::sim::{EIO, Fault, Op as SimOp};
use muniment_io::{Disk, SimDisk, Timestamp};
use muniment_op::{Event, NeverInterrupted, Operation};
use muniment_value::{Code, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// Rows of four trees with random keys, in several runs and levels.
fn rows_of(world: &mut World, random: &mut Random, count: u64) -> Vec<(u32, String)> {
    let mut keys = Vec::new();
    for n in 0..count {
        let mut batch = Vec::new();
        for tree in [1, 2, 3, 255] {
            let key = format!("{:08x}", random.below(1 << 32));
            batch.push(put(
                tree,
                &key,
                vec![n as u8; 20 + random.below(60) as usize],
            ));
            keys.push((tree, key));
        }
        world.commit(batch);
        if n % 40 == 39 {
            world.trees.seal(world.now).unwrap();
            world.trees.flush().unwrap();
            let _ = world.trees.work();
        }
    }
    world.trees.seal(world.now).unwrap();
    world.trees.flush().unwrap();
    keys
}

fn remove(world: &mut World, keys: &[(u32, String)]) {
    for some in keys.chunks(200) {
        let batch = some.iter().map(|(tree, key)| delete(*tree, key)).collect();
        world.commit(batch);
        world.trees.seal(world.now).unwrap();
        // Compactions run meanwhile.
        while world.trees.work().unwrap_or(false) {}
        world.trees.flush().unwrap();
    }
}

/// Leaves the disk only `more` bytes of room beside what is on it.
fn fill_up(world: &World, more: u64) {
    world.disk.set_size(world.disk.used() + more);
}

#[test]
fn a_full_disk_gets_room_by_deletions_alone() {
    for seed in 0..4 {
        let (mut world, random) = (World::new(), &mut Random(seed));
        let keys = rows_of(&mut world, random, 700);
        world.settle();
        let full = world.disk.used();
        // Enough room for the deletions, and far too little for a compaction of everything.
        fill_up(&world, 24 << 10);
        remove(&mut world, &keys[..keys.len() / 2]);
        world.settle();
        world.verify(world.now);
        let half = world.disk.used();
        assert!(half < full * 7 / 8, "{half} of {full}");
        assert!(world.disk.count(SimOp::Free) > 0);
        world.power_cut(seed);
        fill_up(&world, 24 << 10);
        world.verify(world.now);
        remove(&mut world, &keys[keys.len() / 2..]);
        world.settle();
        world.verify(world.now);
        let rest = world.disk.used();
        assert!(rest < full / 10, "{rest} of {full}");
        // The freed room can be written to again.
        rows_of(&mut world, random, 200);
        world.settle();
        world.verify(world.now);
        world.trees.health().unwrap();
    }
}

#[test]
fn a_command_compacts_a_full_disk() {
    let (mut world, random) = (World::new(), &mut Random(3));
    rows_of(&mut world, random, 300);
    let again = rows_of(&mut world, random, 300);
    for tree in [1, 2] {
        let all = again.iter().filter(|(t, _)| *t == tree);
        let batch = all.map(|(t, key)| put(*t, key, "new")).collect();
        world.commit(batch);
    }
    world.trees.seal(world.now).unwrap();
    world.trees.flush().unwrap();
    fill_up(&world, 6 << 10);
    let before = world.disk.used();
    world.trees.compact(None, &NeverInterrupted).unwrap();
    assert!(world.disk.count(SimOp::Free) > 0);
    assert!(world.disk.used() < before);
    let state = world.trees.shared.state();
    for table in state.levels.tables() {
        assert_eq!(table.properties().total.superseded, 0);
    }
    world.verify(world.now);
    // With no room at all, a compaction reports that.
    world.commit(vec![put(1, "a", "b"), put(1, "c", "d")]);
    world.trees.seal(world.now).unwrap();
    world.trees.flush().unwrap();
    fill_up(&world, 100);
    let e = world.trees.compact(None, &NeverInterrupted).unwrap_err();
    assert_eq!(e.code(), Code::OutOfDiskSpace);
    world.verify(world.now);
}

/// A world whose next compaction is a long one, in pieces.
fn about_to(seed: u64) -> World {
    let (mut world, random) = (World::new(), &mut Random(seed));
    let keys = rows_of(&mut world, random, 250);
    world.trees.compact(None, &NeverInterrupted).unwrap();
    rows_of(&mut world, random, 60);
    let some = keys.iter().step_by(3).cloned().collect::<Vec<_>>();
    let batch = some.iter().map(|(tree, key)| delete(*tree, key)).collect();
    world.commit(batch);
    world.trees.seal(world.now).unwrap();
    world.trees.flush().unwrap();
    fill_up(&world, 6 << 10);
    world
}

#[test]
fn power_may_fail_at_every_operation_of_a_compaction_in_pieces() {
    type Cut = (u64, u64, SimDisk);
    let world = about_to(5);
    let (disk, cuts) = (world.disk.clone(), Arc::new(Mutex::new(Vec::<Cut>::new())));
    let told = Arc::new(AtomicU64::new(world.trees.persisted().0));
    let (from, into, least) = (disk.clone(), cuts.clone(), told.clone());
    disk.set_hook(move |op, _| {
        if op != SimOp::Read && op != SimOp::Open {
            let n = into.lock().len() as u64;
            let cut = from.power_cut(n * 7 + 1);
            into.lock().push((least.load(SeqCst), n, cut));
        }
    });
    world.trees.compact(None, &NeverInterrupted).unwrap();
    disk.clear_hook();
    assert!(disk.count(SimOp::Free) > 5, "{}", disk.count(SimOp::Free));
    let cuts = std::mem::take(&mut *cuts.lock());
    for (least, n, disk) in cuts {
        let trees = LsmTrees::open(small(&disk)).unwrap_or_else(|e| panic!("cut {n}: {e}"));
        assert!(trees.persisted().0 >= least, "cut {n}");
        assert_eq!(
            trees.check(None, &NeverInterrupted).unwrap(),
            Vec::<String>::new()
        );
        let after = World {
            trees,
            disk: disk.clone(),
            model: world.model.clone(),
            log: Vec::new(),
            now: world.now,
            views: Vec::new(),
            dropped: Default::default(),
        };
        if n % 3 == 0 {
            after.verify(after.now);
        }
        if n % 15 == 0 {
            // The compaction continues from the rest, and the power fails once more.
            disk.set_size(disk.used() + (8 << 10));
            after.trees.compact(None, &NeverInterrupted).unwrap();
            after.verify(after.now);
            let again = LsmTrees::open(small(&disk.power_cut(n))).unwrap();
            assert_eq!(
                again.check(None, &NeverInterrupted).unwrap(),
                Vec::<String>::new()
            );
        }
    }
}

#[test]
fn every_operation_of_a_compaction_in_pieces_may_fail() {
    let operations = {
        let world = about_to(6);
        let before = world.disk.count(SimOp::Any);
        world.trees.compact(None, &NeverInterrupted).unwrap();
        world.disk.count(SimOp::Any) - before
    };
    assert!(operations > 200, "{operations}");
    for n in (0..operations).step_by(operations as usize / 60) {
        let world = about_to(6);
        world
            .disk
            .inject(Fault::new(SimOp::Any, EIO).after(n).times(1));
        let _ = world.trees.compact(None, &NeverInterrupted);
        if n % 3 == 0 {
            world.verify(world.now);
        }
        let cut = LsmTrees::open(small(&world.disk.power_cut(n))).unwrap();
        assert_eq!(
            cut.check(None, &NeverInterrupted).unwrap(),
            Vec::<String>::new()
        );
        world.disk.heal();
        world.trees.compact(None, &NeverInterrupted).unwrap();
        world.verify(world.now);
        world.settle();
        world.verify(world.now);
        // No file is left over, except for those that only the next start could remove.
        drop(LsmTrees::open(small(&world.disk)).unwrap());
        let tables = world.trees.shared.state().levels.tables().count();
        assert_eq!(world.disk.paths().len(), 1 + tables);
    }
}

#[test]
fn readers_of_an_old_state_keep_its_files() {
    let mut world = about_to(7);
    world.views.push(world.trees.views().open());
    let old = world.trees.shared.state();
    let expected = world.model.scan(TreeId(1), &Range::default(), world.now);
    // The cursor is at a row in the middle of what the compaction removes.
    let all = Range::default();
    let mut cursor = world
        .trees
        .cursor(TreeId(1), all, world.now, Direction::Backward);
    let last = cursor.next(&NeverInterrupted).unwrap().unwrap();
    // There is no room for a second piece while the old state holds the files of the first.
    let e = world.trees.compact(None, &NeverInterrupted).unwrap_err();
    assert_eq!(e.code(), Code::OutOfDiskSpace);
    assert_eq!(world.disk.count(SimOp::Free), 0);
    let mut found = Vec::new();
    for table in old.levels.tables() {
        table.check(None, &NeverInterrupted, &mut found).unwrap();
    }
    assert_eq!(found, Vec::<String>::new());
    world.verify(world.now);
    // Completed pieces stay completed, and the compaction continues from there.
    let parts = |world: &World| {
        let state = world.trees.shared.state();
        state.levels.tables().filter(|t| t.low().is_some()).count()
    };
    assert!(parts(&world) > 0);
    drop(old);
    world.trees.compact(None, &NeverInterrupted).unwrap();
    assert!(world.disk.count(SimOp::Free) > 0);
    let mut rows = vec![last];
    while let Some(row) = cursor.next(&NeverInterrupted).unwrap() {
        rows.push(row);
    }
    rows.reverse();
    assert!(rows == expected);
    world.verify(world.now);
    assert_eq!(parts(&world), 0);
}

#[test]
fn nothing_is_given_back_while_files_are_held() {
    let world = about_to(8);
    fill_up(&world, 16 << 10);
    let old = world.trees.shared.state();
    assert!(world.trees.compact(None, &NeverInterrupted).is_err());
    let hold = world.trees.hold(&NeverInterrupted).unwrap();
    let copy = world.disk.fork();
    drop(old);
    for _ in 0..10 {
        assert!(!world.trees.work().unwrap());
    }
    for path in copy.paths() {
        assert_eq!(world.disk.bytes(&path), copy.bytes(&path));
    }
    // The copy of the files is a valid one.
    let trees = LsmTrees::open(small(&copy)).unwrap();
    assert_eq!(
        trees.check(None, &NeverInterrupted).unwrap(),
        Vec::<String>::new()
    );
    drop(hold);
    world.trees.work().unwrap();
    assert!(world.disk.count(SimOp::Free) > 0);
    world.verify(world.now);
}

#[test]
fn rests_of_tables_read_as_the_whole_tables() {
    let mut world = about_to(9);
    fill_up(&world, 16 << 10);
    let old = world.trees.shared.state();
    assert!(world.trees.compact(None, &NeverInterrupted).is_err());
    drop(old);
    // The engine is opened again, so the manifest must know the rests.
    for seed in 0..4 {
        let left: Vec<u64> = {
            let state = world.trees.shared.state();
            let parts = state.levels.tables().filter(|t| t.low().is_some());
            parts.map(|t| t.id()).collect()
        };
        assert!(!left.is_empty());
        for id in &left {
            let path = world
                .disk
                .paths()
                .into_iter()
                .find(|p| p.to_string_lossy().contains(&format!("{id:012}")));
            assert!(world.disk.bytes(&path.unwrap()).is_some());
        }
        world.verify(world.now);
        world.disk = world.disk.power_cut(seed);
        world.trees = LsmTrees::open(small(&world.disk)).unwrap();
        world.trees.views().advance(world.now);
        assert!(world.disk.count(SimOp::Free) > 0);
        let found = world.trees.check(Some(&[TreeId(1)]), &NeverInterrupted);
        assert_eq!(found.unwrap(), Vec::<String>::new());
    }
    let gone = world.disk.space(std::path::Path::new("/db")).unwrap();
    assert_eq!(gone.total, u64::MAX);
    world.settle();
    world.verify(Timestamp::MAX);
}

/// A wait for something that comes ends within this time, however busy the machine is.
const FAR: Duration = Duration::from_secs(60);

/// Has a job wait for the room of its next piece, lets `cause` happen when it sleeps, and returns what it got.
/// Only a thread that is called finds out before `FAR` has passed.
fn waits_for_room(world: &World, on: &Operation, cause: impl FnOnce()) -> Result<u64> {
    let shared = &world.trees.shared;
    let until = Instant::now() + FAR;
    std::thread::scope(|s| {
        let waits = s.spawn(|| shared.room_for_piece(u64::MAX, until, on));
        while !on.is_waiting() || shared.idle.waiting() == 0 {
            assert!(!waits.is_finished(), "there was room");
            std::thread::yield_now();
        }
        // By now the thread usually sleeps. If not, `cause` happens at a rarer moment.
        std::thread::sleep(Duration::from_millis(5));
        cause();
        let got = waits.join().unwrap();
        assert!(Instant::now() < until, "the thread was not called");
        got
    })
}

/// A world that has no room for another piece as long as the old state is held, which is returned too.
fn without_room(seed: u64) -> (World, Arc<State>) {
    let world = about_to(seed);
    let old = world.trees.shared.state();
    let e = world.trees.compact(None, &NeverInterrupted).unwrap_err();
    assert_eq!(e.code(), Code::OutOfDiskSpace);
    (world, old)
}

#[test]
fn a_job_that_waits_for_room_is_called_by_all_that_ends_its_wait() {
    let never = || Operation::new(Instant::now(), None);
    // The last reader lets go of the files.
    let (world, old) = without_room(7);
    waits_for_room(&world, &never(), || drop(old)).unwrap();
    world.verify(world.now);
    // The files are to stand still, so the job gives way.
    let (world, old) = without_room(7);
    let hold = |held: &mut Option<Hold>| *held = world.trees.hold(&NeverInterrupted).ok();
    let mut held = None;
    let e = waits_for_room(&world, &never(), || hold(&mut held)).unwrap_err();
    assert_eq!(e.code(), Code::OutOfDiskSpace);
    assert!(held.is_some());
    drop(held);
    // Its operation ends.
    let op = never();
    let e = waits_for_room(&world, &op, || assert!(op.kill(Code::Interrupted))).unwrap_err();
    assert_eq!(e.code(), Code::Interrupted);
    let limit = Duration::from_millis(200);
    let op = Operation::new(Instant::now(), Some(limit));
    let e = waits_for_room(&world, &op, || ()).unwrap_err();
    assert_eq!(e.code(), Code::MaxTimeMSExpired);
    // The engine is closed.
    let e = waits_for_room(&world, &never(), || world.trees.close()).unwrap_err();
    assert_eq!(e.code(), Code::InterruptedAtShutdown);
    drop(old);
}

/// Stops a thread in the middle of an operation of the disk, until it is let go.
#[derive(Default)]
struct Stop {
    thread: Mutex<Option<ThreadId>>,
    came: AtomicBool,
    go: AtomicBool,
    event: Event,
}

impl Stop {
    /// The calling thread is the one to stop.
    fn me(&self) {
        *self.thread.lock() = Some(std::thread::current().id());
    }

    fn stop(&self) {
        if *self.thread.lock() == Some(std::thread::current().id()) {
            self.came.store(true, SeqCst);
            let go = || self.go.load(SeqCst);
            self.event.wait(&NeverInterrupted, go).unwrap();
        }
    }

    fn wait_for_thread(&self) {
        while !self.came.load(SeqCst) {
            std::thread::yield_now();
        }
    }

    fn let_go(&self) {
        self.go.store(true, SeqCst);
        self.event.notify_all();
    }
}

#[test]
fn a_job_that_waits_for_room_is_called_when_another_job_ends() {
    let world = about_to(7);
    // The room is enough for one job, and is claimed by it.
    fill_up(&world, 3000);
    let (stop, shared) = (Arc::new(Stop::default()), world.trees.shared.clone());
    let (stops, claims) = (stop.clone(), shared.clone());
    world.disk.set_hook(move |op, _| {
        let claims = (op == SimOp::Write).then(|| claims.claims.try_lock());
        if let Some(Some(claims)) = claims
            && claims.iter().any(|c| c.bytes > 0)
        {
            drop(claims);
            stops.stop();
        }
    });
    std::thread::scope(|s| {
        let other = s.spawn(|| {
            stop.me();
            world.trees.compact(None, &NeverInterrupted)
        });
        stop.wait_for_thread();
        let op = Operation::new(Instant::now(), None);
        let ends = || {
            // It gives back nothing but what it has claimed.
            world.disk.inject(Fault::new(SimOp::Write, EIO).times(1));
            stop.let_go();
        };
        waits_for_room(&world, &op, ends).unwrap();
        other.join().unwrap().unwrap_err();
    });
    world.disk.clear_hook();
}

#[test]
fn a_job_that_waits_for_room_is_called_when_another_thread_has_removed_files() {
    let (world, old) = without_room(7);
    let stop = Arc::new(Stop::default());
    let stops = stop.clone();
    world.disk.set_hook(move |op, _| {
        if matches!(op, SimOp::Free | SimOp::Remove) {
            stops.stop();
        }
    });
    std::thread::scope(|s| {
        s.spawn(|| {
            stop.me();
            drop(old);
            world.trees.shared.trash.empty();
        });
        stop.wait_for_thread();
        // From here on the job finds nothing to remove, and no room.
        let op = Operation::new(Instant::now(), None);
        waits_for_room(&world, &op, || stop.let_go()).unwrap();
    });
    world.disk.clear_hook();
    world.verify(world.now);
}

/// The engine's thread sleeps until the last reader has let go of a flushed memtable, and of a file.
#[test]
fn what_readers_let_go_of_is_freed_by_the_threads() {
    let disk = World::new().disk;
    let options = LsmOptions {
        background: true,
        ..small(&disk)
    };
    let trees = LsmTrees::open(options).unwrap();
    let commit = |n: u64| {
        let at = Timestamp(n);
        let key = |i: u64| format!("{:04}", i * 7);
        let batch = (0..50).map(|i| put(1, key(i), vec![n as u8; 100]));
        trees.apply(batch.collect(), at);
        trees.set_committed(at);
        trees.views().advance(at);
    };
    for n in 1..=20 {
        commit(n);
        let old = trees.shared.state();
        let mem = Arc::downgrade(&old.active);
        let table = old.levels.tables().next().map(Arc::downgrade);
        trees.seal(Timestamp(n)).unwrap();
        trees.flush().unwrap();
        trees.compact(None, &NeverInterrupted).unwrap();
        assert!(mem.strong_count() > 0);
        let until = Instant::now() + FAR;
        // All threads of the engine sleep, so that the reader is the one that has to call.
        while trees.shared.idle.waiting() < 3 {
            assert!(Instant::now() < until, "the threads find no rest");
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(5));
        drop(old);
        while mem.strong_count() > 0 || table.as_ref().is_some_and(|t| t.strong_count() > 0) {
            assert!(Instant::now() < until, "memtable {n} is not freed");
            std::thread::yield_now();
        }
        // The manifest and the tables are all that is left.
        while disk.paths().len() > 1 + trees.shared.state().levels.tables().count() {
            assert!(Instant::now() < until, "files of {n} are not removed");
            std::thread::yield_now();
        }
    }
    trees.health().unwrap();
}
