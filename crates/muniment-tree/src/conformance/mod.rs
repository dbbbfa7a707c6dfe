//! The tests that every engine must pass: the contract of each function, a model test against a plain map,
//! and a test in which everything happens at once.
//!
//! An engine's tests call [`run`] with a [`Harness`] of their own, once for each setting worth testing: tiny
//! memtables and blocks find most bugs. `MUNIMENT_LONG=1` makes the tests long; `MUNIMENT_SEED=n` repeats one
//! run of the model test, which prints its seed when it fails.
//!
//! This is test code: it panics to say what is wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod concurrent;
mod contract;
mod model;

use crate::trees::{Batch, Direction, Op, Range, TreeId, Trees};
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_op::NeverInterrupted;
use std::sync::Arc;

/// An engine to be tested.
pub trait Harness {
    /// The engine as it is now.
    fn trees(&self) -> Arc<dyn Trees>;

    /// Ends the engine as a crash does (data that is not persisted is lost) and opens it again over the same
    /// files. An engine that is not durable does nothing and returns false. No view or cursor may be alive.
    fn reopen(&mut self) -> bool;
}

/// Makes an empty engine.
pub type Make<'a> = &'a dyn Fn() -> Box<dyn Harness>;

/// Runs all tests of an engine.
pub fn run(make: Make<'_>) {
    contract::run(make);
    model::run(make);
    concurrent::run(make);
}

/// True if the tests should take long.
fn long() -> bool {
    std::env::var_os("MUNIMENT_LONG").is_some_and(|v| v == "1")
}

/// A key and its value.
type Row = (Bytes, Bytes);

/// Random numbers from a seed: SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn percent(&mut self, p: usize) -> bool {
        self.below(100) < p
    }
}

/// An engine and the log that a server would have for it.
struct World {
    harness: Box<dyn Harness>,
    trees: Arc<dyn Trees>,
    now: Timestamp,
    log: Vec<(Timestamp, Batch)>,
    dropped: Vec<(TreeId, Timestamp)>,
    /// The commit point and the floor of views, once they exist.
    committed: Option<Timestamp>,
    floor: Option<Timestamp>,
}

impl World {
    fn new(make: Make<'_>) -> World {
        let harness = make();
        let trees = harness.trees();
        World {
            harness,
            trees,
            now: Timestamp::ZERO,
            log: Vec::new(),
            dropped: Vec::new(),
            committed: None,
            floor: None,
        }
    }

    fn set_committed(&mut self, at: Timestamp) {
        self.committed = self.committed.max(Some(at));
        self.trees.set_committed(at);
    }

    fn keep_from(&mut self, at: Timestamp) {
        self.floor = self.floor.max(Some(at));
        self.trees.views().keep_from(at);
    }

    /// Applies a commit, which is not visible yet.
    fn apply(&mut self, batch: Batch) -> Timestamp {
        self.now = Timestamp(self.now.0 + 1);
        self.log.push((self.now, batch.clone()));
        self.trees.apply(batch, self.now);
        self.now
    }

    /// Makes everything that is applied visible.
    fn show(&self) {
        self.trees.views().advance(self.now);
    }

    fn commit(&mut self, batch: Batch) -> Timestamp {
        let at = self.apply(batch);
        self.show();
        at
    }

    fn put(&mut self, tree: u32, key: &[u8], value: &[u8]) -> Timestamp {
        self.commit(vec![op(tree, key, Some(value), false)])
    }

    fn delete(&mut self, tree: u32, key: &[u8]) -> Timestamp {
        self.commit(vec![op(tree, key, None, false)])
    }

    fn seal(&self) {
        self.trees.seal(self.now).expect("seal");
    }

    fn flush(&self) {
        self.trees.flush().expect("flush");
        let persisted = self.trees.persisted();
        let committed = self.committed.unwrap_or(Timestamp::MAX);
        assert!(persisted <= committed, "{persisted:?} is not committed");
    }

    fn compact(&self, trees: Option<&[TreeId]>) {
        self.trees
            .compact(trees, &NeverInterrupted)
            .expect("compact");
    }

    /// Drops a tree with a commit. No view may be alive.
    fn drop_tree(&mut self, tree: u32) {
        let at = self.commit(Vec::new());
        if self.floor.is_some() {
            self.keep_from(at);
        }
        self.trees.drop_tree(TreeId(tree), at);
        self.dropped.push((TreeId(tree), at));
    }

    /// Crashes, and recovers from the log. False for an engine that is not durable.
    fn reopen(&mut self) -> bool {
        assert_eq!(self.trees.views().count(), 0, "the test holds a view");
        let before = self.trees.persisted();
        if !self.harness.reopen() {
            return false;
        }
        self.trees = self.harness.trees();
        let persisted = self.trees.persisted();
        assert!(persisted >= before, "the persisted cut went back");
        assert!(persisted <= self.now, "a cut that nobody made");
        let committed = self.committed.unwrap_or(Timestamp::MAX);
        assert!(persisted <= committed, "{persisted:?} was not committed");
        self.trees.views().advance(persisted);
        if let Some(at) = self.committed {
            self.trees.set_committed(at);
        }
        if let Some(at) = self.floor {
            self.trees.views().keep_from(at);
        }
        for (at, batch) in &self.log {
            if *at > persisted {
                self.trees.apply(batch.clone(), *at);
                self.trees.views().advance(*at);
            }
        }
        self.show();
        for (tree, at) in &self.dropped {
            self.trees.drop_tree(*tree, *at);
        }
        true
    }

    /// Calls `check` while everything is in memory, sealed, on the disk, compacted, and recovered.
    fn stages(&mut self, check: &dyn Fn(&World, &str)) {
        check(self, "in memory");
        self.seal();
        check(self, "sealed");
        self.flush();
        assert_eq!(self.trees.persisted(), self.now);
        check(self, "flushed");
        self.compact(None);
        check(self, "compacted");
        if self.reopen() {
            check(self, "reopened");
        }
        assert_eq!(
            self.trees.check(None, &NeverInterrupted).expect("check"),
            Vec::<String>::new()
        );
        self.trees.health().expect("health");
    }

    fn get(&self, tree: u32, key: &[u8], at: Timestamp) -> Option<Bytes> {
        self.trees.get(TreeId(tree), key, at).expect("get")
    }

    fn written(&self, tree: u32, key: &[u8]) -> Option<Timestamp> {
        self.trees.written(TreeId(tree), key).expect("written")
    }

    fn scan(&self, tree: u32, range: Range, at: Timestamp, dir: Direction) -> Vec<Row> {
        scan(&*self.trees, TreeId(tree), range, at, dir)
    }
}

/// Makes a change of one key.
fn op(tree: u32, key: &[u8], value: Option<&[u8]>, fresh: bool) -> Op {
    Op {
        tree: TreeId(tree),
        key: Bytes::copy_from_slice(key),
        value: value.map(Bytes::copy_from_slice),
        fresh,
    }
}

fn range(low: &[u8], high: Option<&[u8]>) -> Range {
    Range {
        low: Bytes::copy_from_slice(low),
        high: high.map(Bytes::copy_from_slice),
    }
}

/// All rows of a range. The cursor must stay at its end.
fn scan(trees: &dyn Trees, tree: TreeId, range: Range, at: Timestamp, dir: Direction) -> Vec<Row> {
    let mut cursor = trees.cursor(tree, range, at, dir);
    let mut rows = Vec::new();
    while let Some(row) = cursor.next(&NeverInterrupted).expect("cursor") {
        rows.push(row);
    }
    assert_eq!(
        cursor.next(&NeverInterrupted).expect("cursor"),
        None,
        "a cursor left its end"
    );
    rows
}
