//! Disks that fail, become full and lose power.

use super::super::LsmTrees;
use super::world::{Random, TestClock, World, delete, put, small};
use crate::trees::{TreeId, Trees};
use muniment_io::sim::{EIO, ENOSPC, Fault, Op as SimOp};
use muniment_io::{SimDisk, Timestamp};
use muniment_op::NeverInterrupted;
use muniment_value::Code;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Does work that includes every kind of file change, and calls `each` after every step. Work that fails is
/// tried again by the next step.
fn work(world: &mut World, seed: u64, each: &mut dyn FnMut(&World)) {
    let random = &mut Random(seed);
    for step in 0..60 {
        for _ in 0..6 {
            let batch = world.batch(random);
            world.commit(batch);
        }
        world.trees.seal(world.now).unwrap();
        let _ = world.trees.work();
        let _ = world.trees.work();
        if step == 30 {
            let _ = world.trees.compact(None, &NeverInterrupted);
        }
        each(world);
    }
}

#[test]
fn power_may_fail_at_every_operation() {
    type Cut = (u64, u64, SimDisk);
    let mut world = World::new();
    let (disk, cuts) = (world.disk.clone(), Arc::new(Mutex::new(Vec::<Cut>::new())));
    // The cut that was reported as persisted before the operation.
    let told = Arc::new(AtomicU64::new(0));
    let (from, into, least) = (disk.clone(), cuts.clone(), told.clone());
    disk.set_hook(move |op, _| {
        if op != SimOp::Read && op != SimOp::Open {
            let n = into.lock().len() as u64;
            let cut = from.power_cut(n * 7 + 1);
            into.lock().push((least.load(SeqCst), n, cut));
        }
    });
    work(&mut world, 5, &mut |w| {
        told.store(w.trees.persisted().0, SeqCst)
    });
    disk.clear_hook();
    let cuts = std::mem::take(&mut *cuts.lock());
    assert!(cuts.len() > 1000, "{}", cuts.len());
    for (least, n, disk) in cuts {
        // A third of the images has another power cut before the first opening.
        let disk = if n % 3 == 0 { disk.power_cut(n) } else { disk };
        let trees = LsmTrees::open(small(&disk)).unwrap_or_else(|e| panic!("cut {n}: {e}"));
        let persisted = trees.persisted();
        assert!(persisted.0 >= least, "cut {n}");
        assert_eq!(
            trees.check(None, &NeverInterrupted).unwrap(),
            Vec::<String>::new()
        );
        let mut after = World {
            trees,
            disk,
            model: world.model.clone(),
            log: world.log.clone(),
            now: world.now,
            views: Vec::new(),
            dropped: Default::default(),
        };
        if n % 4 == 0 {
            after.verify(persisted);
        }
        if n % 20 == 0 {
            after.recover();
            after.verify(after.now);
            after.trees.seal(after.now).unwrap();
            after.settle();
            after.verify(after.now);
        }
    }
}

#[test]
fn every_operation_may_fail_once_or_for_long() {
    let operations = {
        let mut world = World::new();
        work(&mut world, 9, &mut |_| {});
        world.disk.count(SimOp::Any)
    };
    assert!(operations > 1000);
    let mut failed = 0;
    for n in (0..operations).step_by(operations as usize / 80) {
        for (errno, times) in [(EIO, 1), (ENOSPC, 25)] {
            let disk = SimDisk::new();
            let mut world = World::on(disk.clone());
            disk.inject(Fault::new(SimOp::Any, errno).after(n).times(times));
            work(&mut world, 9, &mut |w| {
                if let Err(e) = w.trees.health() {
                    failed += 1;
                    if errno == ENOSPC {
                        assert!(
                            [Code::OutOfDiskSpace, Code::InternalError].contains(&e.code()),
                            "{e}"
                        );
                    }
                }
            });
            // A power cut in the middle of it: everything reported as persisted is there.
            let least = world.trees.persisted();
            let cut = disk.power_cut(n);
            let after = LsmTrees::open(small(&cut)).unwrap();
            assert!(after.persisted() >= least);
            disk.heal();
            world.settle();
            world.trees.health().unwrap();
            assert_eq!(world.trees.persisted(), world.now);
            world.verify(Timestamp::MAX);
            assert_eq!(
                world.trees.check(None, &NeverInterrupted).unwrap(),
                Vec::<String>::new()
            );
            world.power_cut(n + 1);
            world.verify(world.now);
            // No file is left over.
            let tables = world.trees.shared.state().levels.tables().count();
            assert_eq!(world.disk.paths().len(), 1 + tables);
        }
    }
    assert!(failed > 20, "{failed}");
}

#[test]
fn a_full_disk_is_told_and_got_over() {
    let mut world = World::new();
    let random = &mut Random(1);
    world.disk.set_capacity(6 << 10);
    for _ in 0..300 {
        let batch = world.batch(random);
        world.commit(batch);
    }
    world.trees.seal(world.now).unwrap();
    assert_eq!(
        world.trees.flush().unwrap_err().code(),
        Code::OutOfDiskSpace
    );
    assert_eq!(
        world.trees.health().unwrap_err().code(),
        Code::OutOfDiskSpace
    );
    assert_eq!(world.trees.sizes().sealed_count, 1);
    world.verify(world.now);
    assert_eq!(world.trees.persisted(), Timestamp::ZERO);
    assert_eq!(world.disk.paths().len(), 1, "{:?}", world.disk.paths());
    world.disk.heal();
    world.trees.flush().unwrap();
    world.trees.health().unwrap();
    world.power_cut(3);
    world.verify(world.now);
}

#[test]
fn names_lost_by_a_failed_sync_of_the_directory_are_made_again() {
    for seed in 0..40 {
        let mut world = World::new();
        let random = &mut Random(seed);
        for round in 0..6 {
            let batch = world.batch(random);
            world.commit(batch);
            world.trees.seal(world.now).unwrap();
            if round == 3 {
                let fault = Fault::new(SimOp::SyncDir, EIO);
                world.disk.inject(fault.after(seed % 2).times(1));
                let _ = world.trees.flush();
                world.disk.heal();
            }
            world.trees.flush().unwrap();
            assert_eq!(world.trees.persisted(), world.now);
        }
        world.power_cut(seed);
        world.verify(world.now);
    }
}

/// A world with four overlapping runs, and another tree in a table of its own.
fn piled_up() -> World {
    let mut world = World::new();
    let random = &mut Random(1);
    for round in 0..4u8 {
        let mut row = |i: u32| {
            let value: Vec<u8> = (0..60).map(|_| random.below(256) as u8).collect();
            put(1, format!("{i:06}"), value)
        };
        world.commit((0..400).map(&mut row).collect());
        if round == 3 {
            world.commit(
                (0..400)
                    .map(|i| put(9, format!("{i:06}"), [i as u8; 60]))
                    .collect(),
            );
        }
        world.trees.seal(world.now).unwrap();
        world.trees.flush().unwrap();
    }
    world
}

#[test]
fn a_compaction_without_room_is_not_begun_and_others_go_on() {
    let mut world = piled_up();
    let disk = world.disk.clone();
    disk.set_capacity(disk.used() + (8 << 10));
    // The file system can only give back whole files.
    world.trees.shared.trash.never_frees();
    // Tables that are only moved need no room.
    let e = loop {
        match world.trees.work() {
            Ok(more) => assert!(more),
            Err(e) => break e,
        }
    };
    let (before, paths) = (disk.count(SimOp::Write), disk.paths());
    assert_eq!(e.code(), Code::OutOfDiskSpace);
    // The job was not even begun, and is not tried again and again.
    for _ in 0..20 {
        while world.trees.work().unwrap_or(false) {}
    }
    assert_eq!((disk.count(SimOp::Write), disk.paths()), (before, paths));
    let faults = world.trees.faults();
    for _ in 0..20 {
        assert!(!world.trees.work().unwrap());
    }
    assert_eq!(world.trees.faults().failures, faults.failures);
    let e = faults.compaction.unwrap();
    assert_eq!(e.code(), Code::OutOfDiskSpace);
    assert!(e.message().contains("/db"), "{e}");
    assert!(faults.flush.is_none());
    world.verify(world.now);
    // Work that needs no room is done, and so is work that fits: a dropped tree goes, small runs are flushed.
    world.commit(vec![put(2, "x", "y"), delete(1, "000001")]);
    world.dropped.insert(TreeId(9), world.now);
    world.trees.drop_tree(TreeId(9), world.now);
    world.trees.seal(world.now).unwrap();
    world.trees.flush().unwrap();
    while world.trees.work().unwrap_or(false) {}
    assert_eq!(world.trees.tree_bytes(TreeId(9)), 0);
    world.verify(world.now);
    // With room, compaction continues by itself.
    disk.heal();
    TestClock::advance(2_000);
    while world.trees.work().unwrap() {}
    assert!(world.trees.sizes().fresh_runs < 4);
    world.trees.health().unwrap();
    world.verify(world.now);
}

#[test]
fn a_compaction_that_fails_is_tried_seldom() {
    for (op, errno, on) in [
        (SimOp::Create, EIO, "table"),
        (SimOp::Write, ENOSPC, "table"),
    ] {
        let world = piled_up();
        world.disk.inject(Fault::new(op, errno).on(on));
        let mut failed = Vec::new();
        for ms in 0..100_000 / 10 {
            if world.trees.work().is_err() {
                failed.push(ms * 10);
            }
            TestClock::advance(10);
        }
        // The pauses are 100 ms, 200 ms and so on; for a full disk at most two seconds.
        let most = if errno == ENOSPC { 60 } else { 14 };
        assert!((5..=most).contains(&failed.len()), "{failed:?}");
        assert_eq!(world.trees.faults().failures, failed.len() as u64);
        assert!(world.trees.faults().compaction.is_some());
        world.verify(world.now);
        world.disk.heal();
        world.settle();
        assert!(world.trees.sizes().fresh_runs < 4);
        world.trees.health().unwrap();
        world.verify(world.now);
    }
}
