//! Tests of one property each.

use super::world::{TestClock, World, bytes, delete, put, rows};
use crate::trees::{Direction, Range, TreeId, Trees};
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_op::{Asked, NeverInterrupted};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

fn fill(world: &mut World, tree: u32, from: u32, to: u32) {
    for i in from..to {
        world.commit(vec![put(tree, format!("{i:08}"), format!("value {i}"))]);
    }
}

#[test]
fn the_persisted_cut_is_the_last_sealed_one() {
    let mut world = World::new();
    assert_eq!(world.trees.persisted(), Timestamp::ZERO);
    fill(&mut world, 1, 0, 10);
    world.trees.seal(world.now).unwrap();
    fill(&mut world, 1, 10, 20);
    let cut = world.now;
    world.trees.seal(cut).unwrap();
    // An empty memtable is sealed as well; a lower cut is ignored.
    world.commit(Vec::new());
    world.trees.seal(world.now).unwrap();
    world.trees.seal(cut).unwrap();
    assert_eq!(world.trees.sizes().sealed_count, 2);
    world.trees.flush().unwrap();
    assert_eq!(world.trees.persisted(), world.now);
    assert_eq!(world.trees.sizes().fresh_runs, 1);
    assert_eq!(world.trees.sizes().sealed, 0);
    fill(&mut world, 1, 20, 30);
    world.disk = world.disk.power_cut(3);
    world.trees = super::super::LsmTrees::open(super::world::small(&world.disk)).unwrap();
    let at = world.trees.views().open().timestamp();
    assert_eq!(at, world.trees.persisted());
    world.verify(at);
}

#[test]
fn values_and_keys_of_any_size() {
    let mut world = World::new();
    let big = vec![7u8; 16 << 20];
    let long = vec![b'k'; 1 << 20];
    world.commit(vec![
        put(1, "a", "1"),
        put(1, "b", &big),
        put(1, "c", ""),
        put(1, &long, "long"),
        put(2, [], "empty key"),
    ]);
    let mut longer = long.clone();
    longer.push(0);
    world.commit(vec![put(1, &longer, &big), put(1, &long, "again")]);
    world.trees.seal(world.now).unwrap();
    world.trees.flush().unwrap();
    world.trees.compact(None, &NeverInterrupted).unwrap();
    world.verify(world.now);
    assert_eq!(
        world.trees.check(None, &NeverInterrupted).unwrap(),
        Vec::<String>::new()
    );
    world.power_cut(1);
    world.verify(world.now);
}

#[test]
fn an_emptied_collection_is_soon_gone() {
    let mut world = World::new();
    for chunk in 0..50u32 {
        let batch = (0..200).map(|i| put(1, format!("{:08}", chunk * 200 + i), "x".repeat(40)));
        world.commit(batch.collect());
    }
    fill(&mut world, 2, 0, 100);
    world.trees.seal(world.now).unwrap();
    world.settle();
    world.trees.compact(None, &NeverInterrupted).unwrap();
    let before = world.trees.tree_bytes(TreeId(1));
    assert!(before > 10_000, "{before}");
    for chunk in 0..50u32 {
        let batch = (0..200).map(|i| delete(1, format!("{:08}", chunk * 200 + i)));
        world.commit(batch.collect());
    }
    world.trees.seal(world.now).unwrap();
    // No caller asks for a compaction; the share of dead versions triggers it.
    world.settle();
    assert_eq!(world.trees.tree_bytes(TreeId(1)), 0);
    world.verify(world.now);
}

#[test]
fn a_view_keeps_its_versions_and_no_others() {
    let mut world = World::new();
    fill(&mut world, 1, 0, 100);
    let old = world.trees.views().open();
    for round in 0..20 {
        let batch = (0..100).map(|i| put(1, format!("{i:08}"), format!("round {round}")));
        world.commit(batch.collect());
        world.trees.seal(world.now).unwrap();
        world.settle();
    }
    world.trees.compact(None, &NeverInterrupted).unwrap();
    world.verify(old.timestamp());
    world.verify(world.now);
    let entries = |world: &World| {
        let state = world.trees.shared.state();
        let tables = state.levels.tables();
        tables.map(|t| t.properties().total.entries).sum::<u64>()
    };
    assert_eq!(entries(&world), 200);
    drop(old);
    world.trees.compact(None, &NeverInterrupted).unwrap();
    assert_eq!(entries(&world), 100);
    world.verify(world.now);
}

#[test]
fn an_idle_cursor_pins_nothing() {
    let mut world = World::new();
    fill(&mut world, 1, 0, 3000);
    let view = world.trees.views().open();
    let all = Range::default();
    let mut cursor =
        world
            .trees
            .cursor(TreeId(1), all.clone(), view.timestamp(), Direction::Forward);
    let mut found: Vec<(Bytes, Bytes)> = Vec::new();
    for _ in 0..10 {
        found.extend(cursor.next(&NeverInterrupted).unwrap());
    }
    let mem = std::sync::Arc::downgrade(&world.trees.shared.state().active);
    world.trees.seal(world.now).unwrap();
    world.trees.flush().unwrap();
    assert!(mem.upgrade().is_none());
    for _ in 0..10 {
        found.extend(cursor.next(&NeverInterrupted).unwrap());
    }
    let files = world.disk.paths();
    world.commit((0..3000).map(|i| delete(1, format!("{i:08}"))).collect());
    world.trees.seal(world.now).unwrap();
    world.settle();
    world.trees.compact(None, &NeverInterrupted).unwrap();
    world.trees.work().unwrap();
    let tables = |p: &&std::path::PathBuf| p.extension().is_some_and(|e| e == "table");
    let left = world.disk.paths();
    assert!(files.iter().filter(tables).all(|f| !left.contains(f)));
    found.extend(rows(cursor));
    assert_eq!(found, world.model.scan(TreeId(1), &all, view.timestamp()));
}

#[test]
fn dropped_trees_leave_nothing_but_only_when_it_is_safe() {
    let mut world = World::new();
    fill(&mut world, 1, 0, 500);
    fill(&mut world, 2, 0, 500);
    world.trees.seal(world.now).unwrap();
    world.settle();
    fill(&mut world, 1, 500, 1000);
    world.trees.seal(world.now).unwrap();
    fill(&mut world, 1, 1000, 1500);
    world.commit(Vec::new());
    world.dropped.insert(TreeId(1), world.now);
    let before = world.trees.sizes();
    world.trees.drop_tree(TreeId(1), world.now);
    let after = world.trees.sizes();
    // The active memtable's rows go at once; the sealed one's stay, since its cut is below the drop.
    assert_eq!(after.sealed, before.sealed);
    assert!(after.memory - after.sealed < (before.memory - before.sealed) / 4);
    world.trees.flush().unwrap();
    assert!(world.trees.tree_bytes(TreeId(1)) > 0);
    world.trees.seal(world.now).unwrap();
    world.settle();
    world
        .trees
        .compact(Some(&[TreeId(1)]), &NeverInterrupted)
        .unwrap();
    assert_eq!(world.trees.tree_bytes(TreeId(1)), 0);
    assert!(world.trees.shared.dropped.now().is_empty());
    world.verify(world.now);
}

#[test]
fn ascending_inserts_are_moved_not_rewritten() {
    let mut world = World::new();
    for round in 0..40u32 {
        let batch = (0..200).map(|i| put(1, format!("{:08}", round * 200 + i), [i as u8; 90]));
        world.commit(batch.collect());
        world.trees.seal(world.now).unwrap();
        world.settle();
    }
    let sizes = world.trees.sizes();
    assert!(sizes.compacted < sizes.flushed / 2, "{sizes:?}");
    assert!(sizes.fresh_runs < 4);
    world.verify(world.now);
}

#[test]
fn compaction_can_be_interrupted() {
    let mut world = World::new();
    for _ in 0..3 {
        fill(&mut world, 1, 0, 3000);
        world.trees.seal(world.now).unwrap();
        world.trees.flush().unwrap();
    }
    let asked = AtomicU64::new(0);
    let stop = Asked(|| match asked.fetch_add(1, SeqCst) {
        3 => Err(muniment_value::Error::internal("stop")),
        _ => Ok(()),
    });
    assert_eq!(
        world.trees.compact(None, &stop).unwrap_err().message(),
        "stop"
    );
    world.verify(world.now);
    world.trees.compact(None, &NeverInterrupted).unwrap();
    world.trees.work().unwrap();
    let tables = world.trees.shared.state().levels.tables().count();
    assert_eq!(world.disk.paths().len(), 1 + tables);
    world.verify(world.now);
}

#[test]
fn jumps_go_where_they_should() {
    let mut world = World::new();
    fill(&mut world, 1, 0, 5000);
    world.trees.seal(world.now).unwrap();
    world.settle();
    fill(&mut world, 1, 2000, 2100);
    for dir in [Direction::Forward, Direction::Backward] {
        let mut cursor = world
            .trees
            .cursor(TreeId(1), Range::default(), world.now, dir);
        for i in (0..5000).step_by(37) {
            let n = match dir {
                Direction::Forward => i,
                Direction::Backward => 4999 - i,
            };
            let key = bytes(format!("{n:08}"));
            cursor.seek(&key);
            // A jump back has no effect.
            cursor.seek(match dir {
                Direction::Forward => b"",
                Direction::Backward => b"z",
            });
            assert_eq!(cursor.next(&NeverInterrupted).unwrap().unwrap().0, key);
        }
    }
}

/// A short jump first takes steps and then uses the index, which may lead to the current position.
#[test]
fn short_jumps_lose_nothing() {
    let mut world = World::new();
    for i in 0..400u32 {
        world.commit(vec![put(1, format!("{i:08}"), [])]);
    }
    world.trees.seal(world.now).unwrap();
    world.trees.flush().unwrap();
    for dir in [Direction::Forward, Direction::Backward] {
        let nth = |i: u32| match dir {
            Direction::Forward => bytes(format!("{i:08}")),
            Direction::Backward => bytes(format!("{:08}", 399 - i)),
        };
        for start in 0..40 {
            for far in 1..60 {
                let all = Range::default();
                let mut cursor = world.trees.cursor(TreeId(1), all, world.now, dir);
                cursor.seek(&nth(start));
                // The first batch is used up, so that the jump has to move the sources.
                for i in start..start + 4 {
                    assert_eq!(cursor.next(&NeverInterrupted).unwrap().unwrap().0, nth(i));
                }
                cursor.seek(&nth(start + 4 + far));
                assert_eq!(
                    cursor.next(&NeverInterrupted).unwrap().unwrap().0,
                    nth(start + 4 + far)
                );
            }
        }
    }
}

#[test]
fn deleted_keys_are_walked_once() {
    let mut world = World::new();
    fill(&mut world, 1, 0, 1000);
    world.trees.seal(world.now).unwrap();
    world.trees.flush().unwrap();
    let old = world.trees.views().open();
    world.commit((100..700).map(|i| delete(1, format!("{i:08}"))).collect());
    let all = Range::default();
    let id = TreeId(1);
    let gaps = &world.trees.shared.gaps;
    let over = |from: &str, at| gaps.over(id, from.as_bytes(), at);
    world.verify(world.now);
    assert_eq!(over("00000100", world.now), Some(Some(bytes("00000700"))));
    assert_eq!(over("00000699x", world.now), Some(Some(bytes("00000700"))));
    assert_eq!(over("00000700", world.now), None);
    assert_eq!(over("00000099", world.now), None);
    // An older view still sees the rows.
    assert_eq!(over("00000100", old.timestamp()), None);
    world.verify(old.timestamp());
    // A put cuts the gap, a later deletion does not; the next walk extends it again.
    world.commit(vec![put(1, "00000400", "new"), delete(1, "00000500")]);
    world.verify(world.now);
    world.commit(vec![delete(1, "00000400")]);
    world.commit((700..1000).map(|i| delete(1, format!("{i:08}"))).collect());
    world.verify(world.now);
    let gaps = &world.trees.shared.gaps;
    assert_eq!(gaps.over(id, b"00000100", world.now), Some(None));
    assert_eq!(gaps.under(id, None, world.now), Some(bytes("00000100")));
    let last = rows(
        world
            .trees
            .cursor(id, all.clone(), world.now, Direction::Backward),
    );
    assert_eq!(last.len(), 100);
    world.commit(vec![put(1, "00000900", "new"), put(1, "z", "new")]);
    world.verify(world.now);
    world.verify(old.timestamp());
}

/// Each of the runs has too few deletions to be merged for its own.
#[test]
fn deletions_of_several_runs_count_together() {
    let mut world = World::new();
    fill(&mut world, 1, 0, 1000);
    world.trees.seal(world.now).unwrap();
    world.trees.compact(None, &NeverInterrupted).unwrap();
    for n in 0..3 {
        let some = (0..150).map(|i| delete(1, format!("{:08}", i * 6 + n)));
        world.commit(some.collect());
        world.trees.seal(world.now).unwrap();
        world.trees.flush().unwrap();
        if n == 0 {
            world.settle();
        }
        assert_eq!(world.trees.sizes().fresh_runs, n + 1);
    }
    world.commit(Vec::new());
    world.settle();
    assert_eq!(world.trees.sizes().fresh_runs, 0);
    world.verify(world.now);
}

/// A small tree beside a large one in a deep table, which nothing else would rewrite.
#[test]
fn small_dropped_trees_go_within_a_minute() {
    let mut world = World::new();
    let value = |i: u32| {
        (0..60)
            .map(|j| (i * 31 + j * j * 7) as u8)
            .collect::<Vec<u8>>()
    };
    world.commit(
        (0..3)
            .map(|i| put(10, format!("{i:08}"), value(i)))
            .collect(),
    );
    world.commit(
        (0..60)
            .map(|i| put(11, format!("{i:08}"), value(i)))
            .collect(),
    );
    world.trees.seal(world.now).unwrap();
    world.trees.compact(None, &NeverInterrupted).unwrap();
    world.settle();
    let (small, all) = (world.trees.tree_bytes(TreeId(10)), world.trees.sizes().disk);
    assert!(small > 0 && small * 8 < all, "{small} {all}");
    world.commit(Vec::new());
    world.dropped.insert(TreeId(10), world.now);
    world.trees.drop_tree(TreeId(10), world.now);
    // Only from now on may it be removed.
    TestClock::advance(60_000);
    while world.trees.work().unwrap() {}
    assert_eq!(world.trees.tree_bytes(TreeId(10)), small);
    world.trees.seal(world.now).unwrap();
    while world.trees.work().unwrap() {}
    assert_eq!(world.trees.tree_bytes(TreeId(10)), 0);
    assert!(world.trees.sizes().disk < all);
    assert!(world.trees.shared.dropped.now().is_empty());
    world.verify(world.now);
}

/// Trees that are loaded and dropped again and again do not pile up, whatever is stored beside them.
#[test]
fn loading_and_dropping_leaves_little() {
    let mut world = World::new();
    let value = |i: u32| {
        (0..90)
            .map(|j| (i * 131 + j * j * 7) as u8)
            .collect::<Vec<u8>>()
    };
    // These trees stay, between all that are dropped.
    for tree in (0..40).step_by(4) {
        world.commit(
            (0..20)
                .map(|i| put(100 + tree, format!("{i:08}"), value(i)))
                .collect(),
        );
    }
    world.trees.seal(world.now).unwrap();
    world.settle();
    let stays = world.trees.sizes().disk;
    let mut most = 0;
    for tree in (0..40u32).filter(|t| t % 4 > 0) {
        let tree = 100 + tree;
        for chunk in 0..6u32 {
            let row = |i: u32| put(tree, format!("{:08}", chunk * 50 + i), value(i));
            world.commit((0..50).map(row).collect());
            world.trees.seal(world.now).unwrap();
            while world.trees.work().unwrap() {}
        }
        most = most.max(world.trees.sizes().disk);
        world.commit(Vec::new());
        world.dropped.insert(TreeId(tree), world.now);
        world.trees.drop_tree(TreeId(tree), world.now);
        world.trees.seal(world.now).unwrap();
        while world.trees.work().unwrap() {}
        TestClock::advance(60_000);
        while world.trees.work().unwrap() {}
        assert_eq!(world.trees.tree_bytes(TreeId(tree)), 0);
        let left = world.disk.used();
        assert!(left < stays + stays / 4 + 2000, "{left}, {stays} stay");
    }
    assert!(most > 2 * stays, "{most} {stays}");
    world.verify(world.now);
}

/// Rows with ascending keys (numbers of records as well as ObjectIds) are written to tables once and then
/// only moved; a small tree beside a large one, which is merged now and then, does not cause the large one to
/// be rewritten.
#[test]
fn ascending_keys_are_written_once() {
    let disk = muniment_io::SimDisk::new();
    let options = super::super::LsmOptions {
        memtable_bytes: 2600 << 10,
        table_bytes: 1 << 20,
        block_bytes: 8 << 10,
        sync_bytes: 1 << 20,
        ratio: 10,
        ..super::world::small(&disk)
    };
    let trees = super::super::LsmTrees::open(options).unwrap();
    let mut random = super::world::Random(1);
    let (mut n, mut now) = (0_u64, Timestamp(1));
    let sizes = trees.sizes();
    assert_eq!((sizes.flushed, sizes.compacted), (0, 0));
    for _ in 0..400 {
        now = now.next(0);
        let mut batch = Vec::new();
        for _ in 0..500 {
            n += 1;
            // A field of hexadecimal digits, which compress to half.
            let hash = format!(
                "{:016x}{:016x}",
                random.below(1 << 31),
                random.below(1 << 31)
            );
            let number = n.to_be_bytes();
            batch.push(put(
                10,
                number,
                format!("{{_id: {n:024}, rand_hash: {hash}}}"),
            ));
            batch.push(put(11, format!("{n:024}"), number));
        }
        trees.apply(batch, now);
        trees.views().advance(now);
        if trees.sizes().memory >= 2600 << 10 {
            trees.seal(now).unwrap();
            while trees.work().unwrap() {}
        }
    }
    let sizes = trees.sizes();
    assert!(sizes.compacted * 2 < sizes.flushed, "{sizes:?}");
}

/// Where rows are only added at the end no tables overlap, but the number of files must stay small.
#[test]
fn growing_data_has_few_files() {
    let mut world = World::new();
    let noise = |n: u32| {
        let mut random = super::world::Random(u64::from(n));
        (0..40)
            .map(|_| random.below(256) as u8)
            .collect::<Vec<u8>>()
    };
    let mut n = 0_u32;
    for _ in 0..300 {
        let batch = (0..20).map(|_| {
            n += 1;
            put(1, n.to_be_bytes(), noise(n))
        });
        world.commit(batch.collect());
        world.trees.seal(world.now).unwrap();
        while world.trees.work().unwrap() {}
    }
    let sizes = world.trees.sizes();
    let files = world.disk.paths().len() as u64;
    // The tables of a level have at least an eighth of its target size, except for the last ones.
    let target = 4 << 10;
    assert!(
        files <= sizes.disk / (target / 8) + 40,
        "{files} files, {sizes:?}"
    );
    assert!(files * 10 < 300 * 9, "{files} files of 300 flushes");
    assert!(sizes.compacted < 8 * sizes.flushed, "{sizes:?}");
    world.verify(world.now);
}
