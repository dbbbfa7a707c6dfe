//! Files that are not what was written.

use super::super::LsmTrees;
use super::super::error::io;
use super::super::manifest::{NAME, table_path};
use super::world::{World, delete, put, small};
use crate::trees::{Direction, Range, TreeId, Trees};
use muniment_io::{Disk, SimDisk, Timestamp};
use muniment_op::NeverInterrupted;
use muniment_value::{Code, Result};
use std::path::{Path, PathBuf};

/// A world with a few blocks in a few tables, all persisted.
fn some() -> World {
    let mut world = World::new();
    for round in 0..3u32 {
        for i in 0..40u32 {
            let mut batch = vec![put(1, format!("key{:03}", i * 3 + round), [i as u8; 24])];
            if i % 9 == 0 {
                batch.push(delete(1, format!("key{:03}", i * 3)));
            }
            if batch.get(1).is_some_and(|d| d.key == batch[0].key) {
                batch.pop();
            }
            world.commit(batch);
        }
        world.trees.seal(world.now).unwrap();
        world.trees.flush().unwrap();
    }
    world
}

/// Reads all rows until an error; every row that is returned must be right.
fn read(trees: &LsmTrees, world: &World, at: Timestamp) -> Result<()> {
    for dir in [Direction::Forward, Direction::Backward] {
        let mut expected = world.model.scan(TreeId(1), &Range::default(), at);
        if dir == Direction::Backward {
            expected.reverse();
        }
        let mut cursor = trees.cursor(TreeId(1), Range::default(), at, dir);
        let mut expected = expected.into_iter();
        loop {
            match cursor.next(&NeverInterrupted) {
                Ok(row) => {
                    let end = row.is_none();
                    assert_eq!(row, expected.next());
                    if end {
                        break;
                    }
                }
                Err(e) => {
                    assert_eq!(
                        cursor.next(&NeverInterrupted).unwrap_err().message(),
                        e.message()
                    );
                    return Err(e);
                }
            }
        }
    }
    for (tree, key) in world.model.keys.keys() {
        assert_eq!(trees.get(*tree, key, at)?, world.model.get(*tree, key, at));
    }
    Ok(())
}

fn files(disk: &SimDisk) -> Vec<PathBuf> {
    let files = disk.paths();
    assert_eq!(files.len(), 4, "{files:?}");
    files
}

#[test]
fn every_byte_may_be_wrong() {
    let world = some();
    let (mut refused, mut caught) = (0, 0);
    for path in files(&world.disk) {
        let len = world.disk.bytes(&path).unwrap().len() as u64;
        for byte in 0..len {
            let disk = world.disk.fork();
            assert!(disk.flip_bit(&path, byte, (byte % 8) as u8));
            let what = format!("{} at {byte}", path.display());
            let trees = match LsmTrees::open(small(&disk)) {
                Ok(trees) => trees,
                Err(e) => {
                    assert_eq!(e.code(), Code::DataCorruptionDetected, "{what}: {e}");
                    assert!(e.message().contains(path.to_str().unwrap()), "{what}: {e}");
                    refused += 1;
                    continue;
                }
            };
            if let Err(e) = read(&trees, &world, world.now) {
                assert_eq!(e.code(), Code::DataCorruptionDetected, "{what}: {e}");
                assert!(e.message().contains(path.to_str().unwrap()), "{what}: {e}");
                caught += 1;
            }
            // Every byte has a meaning: a check finds each changed one.
            let found = trees.check(None, &NeverInterrupted).unwrap();
            assert!(!found.is_empty(), "{what} is not found");
            assert!(
                found.iter().all(|f| f.contains(path.to_str().unwrap())),
                "{found:?}"
            );
            // A compaction does not copy the damage into new tables.
            let before = disk.paths();
            if let Err(e) = trees.compact(None, &NeverInterrupted) {
                assert_eq!(e.code(), Code::DataCorruptionDetected, "{what}: {e}");
                assert_eq!(disk.paths(), before, "{what}");
            } else {
                read(&trees, &world, world.now).unwrap();
            }
        }
    }
    assert!(refused > 300 && caught > 1000, "{refused} {caught}");
}

/// A check of one tree reports what this tree needs, and nothing that only its neighbours need.
#[test]
fn a_check_of_one_tree_leaves_the_others_alone() {
    let mut world = World::new();
    for tree in 1..=3 {
        for i in 0..60u32 {
            world.commit(vec![put(tree, format!("key{i:03}"), [i as u8; 24])]);
        }
    }
    world.trees.seal(world.now).unwrap();
    world.trees.flush().unwrap();
    let check = |trees: &LsmTrees, tree| {
        let found = trees
            .check(Some(&[TreeId(tree)]), &NeverInterrupted)
            .unwrap();
        !found.is_empty()
    };
    assert!((1..=4).all(|tree| !check(&world.trees, tree)));
    let is_table = |p: &PathBuf| p.extension().is_some_and(|e| e == "table");
    let mut one = [0; 4];
    let bytes = world
        .disk
        .paths()
        .into_iter()
        .filter(is_table)
        .flat_map(|path| {
            let len = world.disk.bytes(&path).unwrap().len() as u64;
            (0..len).step_by(3).map(move |byte| (path.clone(), byte))
        });
    for (path, byte) in bytes {
        let disk = world.disk.fork();
        assert!(disk.flip_bit(&path, byte, (byte % 8) as u8));
        let Ok(trees) = LsmTrees::open(small(&disk)) else {
            continue;
        };
        let told: Vec<u32> = (1..=4).filter(|tree| check(&trees, *tree)).collect();
        assert!(
            !told.is_empty() && !told.contains(&4),
            "{path:?} {byte}: {told:?}"
        );
        if let [tree] = told[..] {
            one[tree as usize] += 1;
        }
        // A tree without reported damage has lost nothing.
        for tree in (1..=3).filter(|tree| !told.contains(tree)) {
            let mut cursor = trees.cursor(
                TreeId(tree),
                Range::default(),
                world.now,
                Direction::Forward,
            );
            for _ in 0..60 {
                assert!(cursor.next(&NeverInterrupted).unwrap().is_some());
            }
            for i in 0..60 {
                let key = format!("key{i:03}");
                let found = trees.get(TreeId(tree), key.as_bytes(), world.now);
                assert!(found.unwrap().is_some());
            }
        }
    }
    assert!(one.iter().skip(1).all(|n| *n > 60), "{one:?}");
}

#[test]
fn cut_swapped_and_missing_files_are_told() {
    let world = some();
    let code = |disk: &SimDisk| {
        LsmTrees::open(small(disk))
            .err()
            .map(|e| (e.code(), e.message().to_owned()))
    };
    for path in files(&world.disk) {
        let content = world.disk.bytes(&path).unwrap();
        for keep in [0, 1, content.len() / 2, content.len() - 1] {
            let disk = world.disk.fork();
            let file = disk.open(&path, muniment_io::Open::Write).unwrap();
            file.set_len(keep as u64).unwrap();
            let (code, message) = code(&disk).unwrap();
            assert_eq!(code, Code::DataCorruptionDetected);
            assert!(message.contains(path.to_str().unwrap()), "{message}");
        }
        let disk = world.disk.fork();
        disk.remove(&path).unwrap();
        let (code, message) = code(&disk).unwrap();
        assert_eq!(code, Code::DataCorruptionDetected);
        assert!(message.contains(path.to_str().unwrap()), "{message}");
    }
    // One table takes the place of another of the same length.
    let disk = world.disk.fork();
    let tables: Vec<PathBuf> = files(&disk)
        .into_iter()
        .filter(|p| !p.ends_with(NAME))
        .collect();
    disk.rename(&tables[0], &tables[1]).unwrap();
    assert_eq!(code(&disk).unwrap().0, Code::DataCorruptionDetected);
}

#[test]
fn strangers_and_leftovers() {
    let mut world = some();
    let dir = Path::new("/db");
    let create = |name: &Path| {
        let file = world.disk.open(name, muniment_io::Open::Create).unwrap();
        file.write_at(b"left over", 0).unwrap();
    };
    create(&table_path(dir, 999));
    create(&dir.join("MANIFEST.new"));
    create(&dir.join("a file of another's"));
    world.trees = LsmTrees::open(small(&world.disk)).unwrap();
    let paths = world.disk.paths();
    assert_eq!(paths.len(), 5);
    assert!(paths.contains(&dir.join("a file of another's")));
    // A leftover file's number is not reused.
    world.commit(vec![put(1, "x", "y")]);
    world.trees.seal(world.now).unwrap();
    world.trees.flush().unwrap();
    assert!(world.disk.paths().contains(&table_path(dir, 1000)));
}

#[test]
fn a_cursor_that_failed_does_not_end() {
    let world = some();
    let trees = &world.trees;
    let fault = muniment_io::sim::Fault::new(muniment_io::sim::Op::Read, muniment_io::sim::EIO);
    let mut cursor = trees.cursor(TreeId(1), Range::default(), world.now, Direction::Forward);
    world.disk.inject(fault.on("table").after(3));
    let mut rows = 0;
    let error = loop {
        match cursor.next(&NeverInterrupted) {
            Ok(Some(_)) => rows += 1,
            Ok(None) => panic!("ended after {rows} rows"),
            Err(e) => break e,
        }
    };
    world.disk.heal();
    for _ in 0..3 {
        assert_eq!(
            cursor.next(&NeverInterrupted).unwrap_err().message(),
            error.message()
        );
    }
    let eof = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    assert_eq!(
        io("reading", dir(), &eof).code(),
        Code::DataCorruptionDetected
    );
    world.verify(world.now);
}

fn dir() -> &'static Path {
    Path::new("/db")
}

/// A damaged table is reported, and does not keep others from being compacted.
#[test]
fn a_damaged_table_does_not_stop_the_others() {
    let mut world = some();
    world.commit((0..200).map(|i| put(9, format!("{i:04}"), "v")).collect());
    world.trees.seal(world.now).unwrap();
    world.trees.flush().unwrap();
    let first = files_of(&world).remove(0);
    assert!(world.disk.flip_bit(&first, 40, 3));
    let e = world.trees.compact(None, &NeverInterrupted).unwrap_err();
    assert_eq!(e.code(), Code::DataCorruptionDetected);
    let e = world.trees.health().unwrap_err();
    assert!(e.message().contains(first.to_str().unwrap()));
    for round in 0..8 {
        world.commit(
            (0..200)
                .map(|i| put(9, format!("{i:04}"), [round]))
                .collect(),
        );
        world.trees.seal(world.now).unwrap();
        world.trees.flush().unwrap();
        while world.trees.work().unwrap() {}
    }
    assert!(
        world.trees.sizes().fresh_runs < 8,
        "{:?}",
        world.trees.sizes()
    );
    assert_eq!(world.trees.check(None, &NeverInterrupted).unwrap().len(), 1);
}

fn files_of(world: &World) -> Vec<PathBuf> {
    let mut files = world.disk.paths();
    files.retain(|p| !p.ends_with(NAME));
    files
}
