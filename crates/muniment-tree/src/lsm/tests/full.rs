//! A disk that is nearly full gets room again by compactions in pieces, while files are read or held, and
//! whenever the power fails.

use super::super::LsmTrees;
use super::world::{Random, World, delete, put, small};
use crate::trees::{Direction, Range, TreeId, Trees};
use muniment_io::sim::{EIO, Fault, Op as SimOp};
use muniment_io::{Disk, SimDisk, Timestamp};
use muniment_op::NeverInterrupted;
use muniment_value::Code;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

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
    let last = cursor.next().unwrap().unwrap();
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
    while let Some(row) = cursor.next().unwrap() {
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
