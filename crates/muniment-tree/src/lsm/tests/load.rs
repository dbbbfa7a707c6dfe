//! Fills an empty engine.

use super::super::{LsmTrees, Row};
use super::world::small;
use crate::trees::{Direction, Op, Range, TreeId, Trees};
use bytes::Bytes;
use muniment_io::{SimDisk, Timestamp};
use muniment_op::NeverInterrupted;
use muniment_value::{Error, Result};
use std::sync::Arc;

fn rows(n: u32) -> Vec<Row> {
    let row = |i: u32| {
        let value = vec![i as u8; i as usize % 300];
        (
            TreeId(1 + i / 700),
            i.to_be_bytes().to_vec().into(),
            value.into(),
        )
    };
    (0..n).map(row).collect()
}

fn load(trees: &LsmTrees, at: u64, rows: &[Row]) -> Result<()> {
    let mut rows = rows.iter().cloned();
    trees.load(Timestamp(at), &mut || Ok(rows.next()))
}

fn all(trees: &LsmTrees, at: Timestamp) -> Vec<Row> {
    let mut found = Vec::new();
    for tree in (0..20).map(TreeId) {
        let mut cursor = trees.cursor(tree, Range::default(), at, Direction::Forward);
        while let Some((key, value)) = cursor.next(&NeverInterrupted).unwrap() {
            found.push((tree, key, value));
        }
    }
    found
}

fn finish(trees: &Arc<LsmTrees>, at: u64) {
    let last = Op {
        tree: TreeId(19),
        key: "last".into(),
        value: Some(Bytes::new()),
        fresh: false,
    };
    trees.apply(vec![last], Timestamp(at));
    trees.views().advance(Timestamp(at));
    trees.seal(Timestamp(at)).unwrap();
    trees.flush().unwrap();
}

#[test]
fn loaded_rows_are_there_and_stay() {
    for n in [0, 1, 5000] {
        let disk = SimDisk::new();
        let trees = LsmTrees::open(small(&disk)).unwrap();
        let mut wanted = rows(n);
        load(&trees, 50, &wanted).unwrap();
        assert_eq!(trees.persisted(), Timestamp::ZERO);
        finish(&trees, 50);
        wanted.push((TreeId(19), "last".into(), Bytes::new()));
        let view = trees.views().open();
        assert_eq!(all(&trees, view.timestamp()), wanted);
        assert!(load(&trees, 60, &rows(3)).is_err());
        drop((view, trees));
        let trees = LsmTrees::open(small(&disk.power_cut(u64::from(n)))).unwrap();
        assert_eq!(trees.persisted(), Timestamp(50));
        assert_eq!(all(&trees, Timestamp::MAX), wanted);
        // Afterwards the engine works like any other.
        for i in 0..n.min(1000) {
            let op = Op {
                tree: TreeId(1 + i / 700),
                key: i.to_be_bytes().to_vec().into(),
                value: None,
                fresh: false,
            };
            trees.apply(vec![op], Timestamp(51 + u64::from(i)));
            trees.views().advance(Timestamp(51 + u64::from(i)));
        }
        trees.compact(None, &NeverInterrupted).unwrap();
        let wanted = wanted.split_off(n.min(1000) as usize);
        assert_eq!(all(&trees, Timestamp::MAX), wanted);
        assert_eq!(
            trees.check(None, &NeverInterrupted).unwrap(),
            Vec::<String>::new()
        );
    }
}

#[test]
fn a_failed_load_leaves_nothing() {
    let disk = SimDisk::new();
    let trees = LsmTrees::open(small(&disk)).unwrap();
    let mut wrong = rows(3000);
    wrong.swap(2000, 2001);
    assert!(load(&trees, 5, &wrong).is_err());
    let twice = [rows(1), rows(1)].concat();
    assert!(load(&trees, 5, &twice).is_err());
    let mut left = rows(2500).into_iter();
    let mut next = || match left.next() {
        Some(row) => Ok(Some(row)),
        None => Err(Error::internal("the source has gone")),
    };
    let e = trees.load(Timestamp(5), &mut next).unwrap_err();
    assert!(e.message().contains("source"), "{e}");
    assert!(all(&trees, Timestamp::MAX).is_empty());
    assert_eq!(trees.sizes().disk, 0);
    load(&trees, 5, &rows(3000)).unwrap();
    assert_eq!(all(&trees, Timestamp::MAX), rows(3000));
    assert_ne!(trees.sizes().disk, 0);
}
