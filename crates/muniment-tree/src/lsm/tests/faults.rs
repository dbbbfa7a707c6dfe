//! Disks that fail, run full and lose power.

use super::super::LsmTrees;
use super::world::{Random, World, small};
use crate::trees::Trees;
use muniment_io::sim::{EIO, ENOSPC, Fault, Op as SimOp};
use muniment_io::{SimDisk, Timestamp};
use muniment_value::Code;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Work in which everything that writes files happens; `each` is called after every step. Work
/// that fails is tried again by the next step.
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
            let _ = world.trees.compact(None, &|| Ok(()));
        }
        each(world);
    }
}

#[test]
fn power_may_fail_at_every_operation() {
    type Cut = (u64, u64, SimDisk);
    let mut world = World::new();
    let (disk, cuts) = (world.disk.clone(), Arc::new(Mutex::new(Vec::<Cut>::new())));
    // What was told to be persisted before the operation.
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
        // Reopened once as it is, once after another cut before anything else.
        let disk = if n % 3 == 0 { disk.power_cut(n) } else { disk };
        let trees = LsmTrees::open(small(&disk)).unwrap_or_else(|e| panic!("cut {n}: {e}"));
        let persisted = trees.persisted();
        assert!(persisted.0 >= least, "cut {n}");
        assert_eq!(trees.check().unwrap(), Vec::<String>::new());
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
            // A cut in the midst of it: what was told to be persisted is.
            let least = world.trees.persisted();
            let cut = disk.power_cut(n);
            let after = LsmTrees::open(small(&cut)).unwrap();
            assert!(after.persisted() >= least);
            disk.heal();
            world.settle();
            world.trees.health().unwrap();
            assert_eq!(world.trees.persisted(), world.now);
            world.verify(Timestamp::MAX);
            assert_eq!(world.trees.check().unwrap(), Vec::<String>::new());
            world.power_cut(n + 1);
            world.verify(world.now);
            // Nothing is left behind.
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
