//! An engine, and a model that remembers every version.

use super::super::{LsmOptions, LsmTrees};
use crate::trees::{Batch, Cursor, Direction, Op, Range, TreeId, Trees};
use crate::views::View;
use bytes::Bytes;
use muniment_io::{Clock, Disk, SimDisk, Timestamp};
use muniment_op::NeverInterrupted;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Small random numbers, which are the same for the same seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let x = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51afd7ed558ccd);
        (x >> 33) % n
    }
}

/// The versions of a key, oldest first; `None` is a deletion.
type Versions = Vec<(Timestamp, Option<Bytes>)>;

/// Every version of every key.
#[derive(Clone, Default)]
pub(super) struct Model {
    pub(super) keys: BTreeMap<(TreeId, Bytes), Versions>,
}

impl Model {
    pub(super) fn apply(&mut self, batch: &Batch, at: Timestamp) {
        for op in batch {
            let versions = self.keys.entry((op.tree, op.key.clone())).or_default();
            versions.push((at, op.value.clone()));
        }
    }

    pub(super) fn get(&self, tree: TreeId, key: &Bytes, at: Timestamp) -> Option<Bytes> {
        let versions = self.keys.get(&(tree, key.clone()))?;
        versions.iter().rev().find(|v| v.0 <= at)?.1.clone()
    }

    pub(super) fn scan(&self, tree: TreeId, range: &Range, at: Timestamp) -> Vec<(Bytes, Bytes)> {
        let rows = self.keys.range((tree, range.low.clone())..);
        rows.take_while(|((t, k), _)| *t == tree && range.high.as_ref().is_none_or(|h| k < h))
            .filter_map(|((_, k), versions)| {
                let value = versions.iter().rev().find(|v| v.0 <= at)?.1.clone()?;
                Some((k.clone(), value))
            })
            .collect()
    }
}

/// An engine without threads on a disk in memory.
pub(super) struct World {
    pub(super) disk: SimDisk,
    pub(super) trees: Arc<LsmTrees>,
    pub(super) model: Model,
    pub(super) log: Vec<(Timestamp, Batch)>,
    pub(super) now: Timestamp,
    pub(super) views: Vec<View>,
    pub(super) dropped: BTreeMap<TreeId, Timestamp>,
}

thread_local! {
    static NOW: Cell<i64> = const { Cell::new(1_700_000_000_000) };
}

/// A clock that only the test's thread advances.
pub(super) struct TestClock;

impl TestClock {
    pub(super) fn advance(ms: i64) {
        NOW.set(NOW.get() + ms);
    }
}

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        NOW.get()
    }

    fn random(&self, bytes: &mut [u8]) -> std::io::Result<()> {
        bytes.fill(7);
        Ok(())
    }
}

/// Options with which a few rows make many blocks, tables and levels.
pub(super) fn small(disk: &SimDisk) -> LsmOptions {
    LsmOptions {
        disk: Arc::new(disk.clone()) as Arc<dyn Disk>,
        clock: Arc::new(TestClock),
        cache_bytes: 64 << 10,
        memtable_bytes: 4 << 10,
        block_bytes: 256,
        table_bytes: 4 << 10,
        sync_bytes: 2 << 10,
        ratio: 3,
        background: false,
        ..LsmOptions::new(Path::new("/db"))
    }
}

pub(super) fn bytes(s: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(s.as_ref())
}

pub(super) fn put(tree: u32, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Op {
    Op {
        tree: TreeId(tree),
        key: bytes(key),
        value: Some(bytes(value)),
        fresh: false,
    }
}

pub(super) fn delete(tree: u32, key: impl AsRef<[u8]>) -> Op {
    Op {
        tree: TreeId(tree),
        key: bytes(key),
        value: None,
        fresh: false,
    }
}

pub(super) fn rows(mut cursor: Box<dyn Cursor>) -> Vec<(Bytes, Bytes)> {
    let mut out = Vec::new();
    while let Some(row) = cursor.next(&NeverInterrupted).unwrap() {
        out.push(row);
    }
    assert!(cursor.next(&NeverInterrupted).unwrap().is_none());
    out
}

impl World {
    pub(super) fn new() -> World {
        World::on(SimDisk::new())
    }

    pub(super) fn on(disk: SimDisk) -> World {
        World {
            trees: LsmTrees::open(small(&disk)).unwrap(),
            disk,
            model: Model::default(),
            log: Vec::new(),
            now: Timestamp(10),
            views: Vec::new(),
            dropped: BTreeMap::new(),
        }
    }

    /// Commits a batch at the next timestamp.
    pub(super) fn commit(&mut self, batch: Batch) {
        self.now = Timestamp(self.now.0 + 1);
        self.model.apply(&batch, self.now);
        self.log.push((self.now, batch.clone()));
        self.trees.apply(batch, self.now);
        self.trees.views().advance(self.now);
    }

    /// A batch like that of an application: keys of a few trees, each at most once.
    pub(super) fn batch(&self, random: &mut Random) -> Batch {
        let mut seen = BTreeSet::new();
        let mut batch = Batch::new();
        for _ in 0..1 + random.below(8) {
            let tree = [1, 2, 3, 255, 256, u32::MAX][random.below(6) as usize];
            let n = random.below(400);
            let mut key = format!("key{n:04}").into_bytes();
            match n % 100 {
                0 => key.clear(),
                1 => key.resize(3000, b'k'),
                2 => key = vec![0xff; n as usize % 7],
                _ => {}
            }
            if self.dropped.contains_key(&TreeId(tree)) || !seen.insert((tree, key.clone())) {
                continue;
            }
            let fill = |random: &mut Random| (random.below(250) as u8) ^ 7;
            let size = match random.below(40) {
                0 => 3000,
                1 => 0,
                _ => random.below(100),
            };
            let mut op = put(tree, &key, vec![fill(random); size as usize]);
            if random.below(3) == 0 {
                op.value = None;
            } else {
                op.fresh = self.model.get(op.tree, &op.key, Timestamp::MAX).is_none();
            }
            batch.push(op);
        }
        batch
    }

    /// Checks everything that can be read at this timestamp.
    pub(super) fn verify(&self, at: Timestamp) {
        for tree in [1, 2, 3, 255, 256, u32::MAX].map(TreeId) {
            if self.dropped.contains_key(&tree) {
                continue;
            }
            let range = Range::default();
            let expected = self.model.scan(tree, &range, at);
            let found = rows(
                self.trees
                    .cursor(tree, range.clone(), at, Direction::Forward),
            );
            assert_eq!(keys(&found), keys(&expected), "{tree:?} at {at:?}");
            assert!(found == expected, "values of {tree:?} at {at:?}");
            let mut found = rows(self.trees.cursor(tree, range, at, Direction::Backward));
            found.reverse();
            assert_eq!(
                keys(&found),
                keys(&expected),
                "{tree:?} at {at:?}, backward"
            );
            assert!(found == expected, "values of {tree:?} at {at:?}, backward");
        }
        for (tree, key) in self.model.keys.keys() {
            if !self.dropped.contains_key(tree) {
                let expected = self.model.get(*tree, key, at);
                assert_eq!(self.trees.get(*tree, key, at).unwrap(), expected);
            }
        }
    }

    /// Cuts the power, and recovers from the log.
    pub(super) fn power_cut(&mut self, seed: u64) {
        let least = self.trees.persisted();
        self.views.clear();
        self.disk = self.disk.power_cut(seed);
        self.trees = LsmTrees::open(small(&self.disk)).unwrap();
        assert!(self.trees.persisted() >= least);
        self.recover();
    }

    /// Applies the log from the persisted cut on; also a few earlier commits, which is harmless.
    pub(super) fn recover(&mut self) {
        let persisted = self.trees.persisted();
        assert!(persisted <= self.now);
        for (at, batch) in &self.log {
            if at.0 + 3 > persisted.0 {
                self.trees.apply(batch.clone(), *at);
                self.trees.views().advance(*at);
            }
        }
        self.trees.views().advance(self.now);
        for (tree, at) in &self.dropped {
            self.trees.drop_tree(*tree, *at);
        }
    }

    /// Works until there is nothing to do, after all put-off jobs have become due.
    pub(super) fn settle(&self) {
        TestClock::advance(1_000_000);
        while self.trees.work().unwrap() {}
    }
}

fn keys(rows: &[(Bytes, Bytes)]) -> Vec<String> {
    let text = |k: &Bytes| String::from_utf8_lossy(&k[..k.len().min(12)]).into_owned();
    rows.iter()
        .map(|(k, v)| format!("{}={}", text(k), v.len()))
        .collect()
}
