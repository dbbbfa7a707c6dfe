//! One tree in memory: an index of leaves, which is changed only when a leaf is split, joined or removed.
//!
//! Invariants: a leaf's lock is taken only under the index's lock, and one at a time, unless the index is
//! locked for writing. A key is in the one leaf between whose fences it belongs; the fences of all leaves
//! together cover every key.

use super::leaf::{Entry, Floor, LEAF, Leaf, Put};
use super::node::{Node, separator};
use crate::trees::{Batch, Direction, Op, TreeId};
use crate::views::Needed;
use bytes::Bytes;
use muniment_io::{SpreadLock, Timestamp};
use parking_lot::RwLock;
use std::iter::Peekable;
use std::mem::size_of;
use std::sync::Arc;

/// The number of leaves in a full chunk of the index.
const CHUNK: usize = 128;

/// How many leaves a reader passes before it releases the index. A writer that splits a leaf waits for that
/// long.
const STRIDE: usize = 16;

/// How many writes are made before the index is released.
const BURST: usize = 256;

/// The number of queues in which leaves wait to be swept, each with a longer wait.
pub(super) const LEVELS: u8 = 4;

/// The bytes of a leaf, including its part of the index.
const LEAF_BYTES: i64 = (size_of::<RwLock<Leaf>>() + 160) as i64;

/// The bytes of an empty tree.
pub(super) const TREE_BYTES: i64 = size_of::<Tree>() as i64;

/// A leaf with its lock.
pub(super) type Shared = Arc<RwLock<Leaf>>;

/// The index: chunks of leaves.
struct Index {
    root: Node<Node<Shared>>,
    /// The separator of the last leaf, so that ascending keys need no search.
    tail: Bytes,
}

/// A tree.
pub(super) struct Tree {
    pub(super) id: TreeId,
    /// There is nothing beneath this memory.
    bottom: bool,
    index: SpreadLock<Index, 8>,
}

/// The beginning of the rest that is still to be read, in the direction of reading.
#[derive(Clone)]
pub(super) enum From {
    /// Everything is still to be read.
    Start,
    /// This key and those after it are still to be read.
    At(Bytes),
    /// The keys after this one are still to be read.
    Behind(Bytes),
}

impl Index {
    fn new() -> Index {
        let leaf = Arc::new(RwLock::new(Leaf::new(Bytes::new(), None)));
        Index {
            root: Node::new(Bytes::new(), Node::new(Bytes::new(), leaf)),
            tail: Bytes::new(),
        }
    }

    fn find(&self, key: &[u8]) -> (usize, usize) {
        if *key >= self.tail[..] {
            return self.last();
        }
        let chunk = self.root.find(key);
        (chunk, self.root.item(chunk).find(key))
    }

    fn last(&self) -> (usize, usize) {
        let chunk = self.root.len() - 1;
        (chunk, self.root.item(chunk).len() - 1)
    }

    fn leaf(&self, at: (usize, usize)) -> &Shared {
        self.root.item(at.0).item(at.1)
    }

    fn next(&self, (chunk, leaf): (usize, usize)) -> Option<(usize, usize)> {
        if leaf + 1 < self.root.item(chunk).len() {
            return Some((chunk, leaf + 1));
        }
        (chunk + 1 < self.root.len()).then_some((chunk + 1, 0))
    }

    fn previous(&self, (chunk, leaf): (usize, usize)) -> Option<(usize, usize)> {
        if leaf > 0 {
            return Some((chunk, leaf - 1));
        }
        let chunk = chunk.checked_sub(1)?;
        Some((chunk, self.root.item(chunk).len() - 1))
    }

    /// Inserts a leaf after the one at a position.
    fn insert(&mut self, (chunk, leaf): (usize, usize), separator: Bytes, new: Shared) {
        if (chunk, leaf) == self.last() {
            self.tail = separator.clone();
        }
        let node = self.root.item_mut(chunk);
        node.insert(leaf + 1, separator, new);
        if node.len() > CHUNK {
            // With ascending keys, the chunk that is left behind stays full.
            let at = match leaf + 2 == node.len() {
                true => CHUNK,
                false => CHUNK / 2,
            };
            let right = node.split(at);
            self.root
                .insert(chunk + 1, right.separator(0).clone(), right);
        }
    }

    /// Removes a leaf, which must not be the first.
    fn remove(&mut self, (chunk, leaf): (usize, usize)) {
        let node = self.root.item_mut(chunk);
        node.remove(leaf);
        if node.len() == 0 {
            self.root.remove(chunk);
        } else if leaf == 0 {
            let low = node.separator(0).clone();
            self.root.rename(chunk, low);
        }
        let last = self.root.item(self.root.len() - 1);
        self.tail = last.separator(last.len() - 1).clone();
    }
}

impl Tree {
    pub(super) fn new(id: TreeId, bottom: bool) -> Tree {
        Tree {
            id,
            bottom,
            index: SpreadLock::new(Index::new()),
        }
    }

    /// True if there are no keys here.
    pub(super) fn is_empty(&self) -> bool {
        let index = self.index.read();
        let mut leaves = index.root.items().iter().flat_map(|chunk| chunk.items());
        leaves.all(|leaf| leaf.read().len() == 0)
    }

    pub(super) fn get(&self, key: &[u8], at: Timestamp) -> Option<Option<Bytes>> {
        let index = self.index.read();
        let leaf = index.leaf(index.find(key)).read();
        let place = leaf.find(key).ok()?;
        leaf.entry(place).get(at).cloned()
    }

    pub(super) fn changed(&self, key: &[u8]) -> Option<(Timestamp, bool)> {
        let index = self.index.read();
        let leaf = index.leaf(index.find(key)).read();
        let entry = leaf.entry(leaf.find(key).ok()?);
        Some((entry.at, entry.value.is_some()))
    }

    /// Writes the operations up to the first one of another tree. `bytes` takes the growth of memory, and
    /// `dirty` the leaves that have versions to drop and are in no queue yet.
    pub(super) fn apply(
        &self,
        ops: &mut Peekable<std::vec::IntoIter<Op>>,
        at: Timestamp,
        floor: &mut impl Floor,
        bytes: &mut i64,
        dirty: &mut Vec<Shared>,
    ) {
        let mut again: Option<Op> = None;
        let mine = |op: &Op| op.tree == self.id;
        loop {
            let index = self.index.read();
            let mut made = 0;
            while made < BURST {
                let Some(op) = again.take().or_else(|| ops.next_if(mine)) else {
                    return;
                };
                let shared = index.leaf(index.find(&op.key));
                let mut leaf = shared.write();
                let mut next = Some(op);
                while let Some(op) = next.take() {
                    let (fresh, bottom) = (op.fresh, self.bottom);
                    match leaf.put(op.key, op.value, at, fresh, bottom, floor, bytes) {
                        Put::Done => made += 1,
                        Put::Full(key, value) => {
                            let tree = self.id;
                            again = Some(Op {
                                tree,
                                key,
                                value,
                                fresh,
                            });
                            made = BURST;
                            break;
                        }
                    }
                    next = ops.next_if(|op| mine(op) && leaf.covers(&op.key));
                }
                // This includes a leaf that waits for a later sweep: its new versions may soon be dropped.
                if leaf.is_dirty() && leaf.queued != Some(0) {
                    leaf.queued = Some(0);
                    dirty.push(shared.clone());
                }
            }
            drop(index);
            if let Some(op) = &again {
                self.split(&op.key, bytes, dirty);
            }
        }
    }

    /// Splits a leaf to make room for a key.
    fn split(&self, key: &[u8], bytes: &mut i64, dirty: &mut Vec<Shared>) {
        let mut index = self.index.write();
        let at = index.find(key);
        let shared = index.leaf(at).clone();
        let mut leaf = shared.write();
        if leaf.len() < LEAF {
            return;
        }
        // With ascending keys, the leaf that is left behind stays full.
        let place = match leaf.place(key, false) == LEAF {
            true => LEAF,
            false => LEAF / 2,
        };
        let first = match place == LEAF {
            true => key,
            false => &leaf.entry(place).key[..],
        };
        let between = separator(&leaf.entry(place - 1).key, first);
        let mut right = leaf.split(place, between.clone(), bytes);
        *bytes += LEAF_BYTES;
        let soon = right.is_dirty();
        right.queued = soon.then_some(0);
        let right = Arc::new(RwLock::new(right));
        if soon {
            dirty.push(right.clone());
        }
        index.insert(at, between, right);
    }

    /// Reads from `from` in a direction as long as `take` returns true. `take` is called with each entry.
    pub(super) fn walk(
        &self,
        mut from: From,
        dir: Direction,
        mut take: impl FnMut(&Entry) -> bool,
    ) {
        loop {
            let index = self.index.read();
            let mut at = match (&from, dir) {
                (From::At(key) | From::Behind(key), _) => index.find(key),
                (From::Start, Direction::Forward) => (0, 0),
                (From::Start, Direction::Backward) => index.last(),
            };
            for _ in 0..STRIDE {
                let leaf = index.leaf(at).read();
                let n = leaf.len();
                let next = match dir {
                    Direction::Forward => {
                        let first = match &from {
                            From::Start => 0,
                            From::At(key) => leaf.place(key, false),
                            From::Behind(key) => leaf.place(key, true),
                        };
                        for place in first..n {
                            if !take(leaf.entry(place)) {
                                return;
                            }
                        }
                        index.next(at)
                    }
                    Direction::Backward => {
                        let end = match &from {
                            From::Start => n,
                            From::At(key) => leaf.place(key, true),
                            From::Behind(key) => leaf.place(key, false),
                        };
                        for place in (0..end).rev() {
                            if !take(leaf.entry(place)) {
                                return;
                            }
                        }
                        index.previous(at)
                    }
                };
                let Some(next) = next else { return };
                from = match dir {
                    Direction::Forward => match &leaf.high {
                        Some(high) => From::At(high.clone()),
                        None => return,
                    },
                    Direction::Backward => From::Behind(leaf.low.clone()),
                };
                at = next;
            }
        }
    }

    /// Drops everything that no view can read in a leaf that waited in the queue `level`. `Some`: there is
    /// more, which can be dropped when this timestamp is visible or, if it is `MAX`, when views have ended.
    /// The leaf then counts as queued again, in the first queue or in the next one.
    pub(super) fn sweep(
        &self,
        shared: &Shared,
        level: u8,
        needed: &Needed,
        bytes: &mut i64,
        dirty: &mut Vec<Shared>,
    ) -> Option<(Timestamp, u8)> {
        let index = self.index.read();
        let (waits, small) = {
            let mut leaf = shared.write();
            if leaf.dead || leaf.queued != Some(level) {
                return None;
            }
            let visible = leaf.sweep(needed, bytes);
            let level = match visible == Timestamp::MAX {
                true => (level + 1).min(LEVELS - 1),
                false => 0,
            };
            leaf.queued = leaf.is_dirty().then_some(level);
            let small = (leaf.len() <= LEAF / 4).then(|| (leaf.low.clone(), leaf.len()));
            (leaf.queued.map(|level| (visible, level)), small)
        };
        if let Some((low, len)) = small {
            let left = index.previous(index.find(&low));
            let joins = left.is_some_and(|left| joins(index.leaf(left).read().len(), len));
            drop(index);
            if joins {
                self.join(&low, bytes, dirty);
            }
        }
        waits
    }

    /// Joins the leaf that begins at `low` with the one before it, if both have few entries.
    fn join(&self, low: &Bytes, bytes: &mut i64, dirty: &mut Vec<Shared>) {
        let mut index = self.index.write();
        let at = index.find(low);
        let Some(left) = index.previous(at) else {
            return;
        };
        let (left, right) = (index.leaf(left).clone(), index.leaf(at).clone());
        let (mut into, mut from) = (left.write(), right.write());
        if !joins(into.len(), from.len()) {
            return;
        }
        into.absorb(&mut from, bytes);
        *bytes -= LEAF_BYTES;
        from.dead = true;
        if into.is_dirty() && into.queued != Some(0) {
            into.queued = Some(0);
            dirty.push(left.clone());
        }
        index.remove(at);
    }

    /// Counts bytes and entries anew.
    #[cfg(test)]
    pub(super) fn recount(&self) -> (i64, i64) {
        let index = self.index.read();
        let leaves = index.root.items().iter().flat_map(|chunk| chunk.items());
        // The first leaf is not counted, since every tree has it.
        leaves.fold((TREE_BYTES - LEAF_BYTES, 0), |(bytes, entries), leaf| {
            let leaf = leaf.read();
            (
                bytes + LEAF_BYTES + leaf.bytes(),
                entries + leaf.len() as i64,
            )
        })
    }

    /// Removes everything, and returns how many bytes that has freed.
    pub(super) fn clear(&self) -> i64 {
        let mut index = self.index.write();
        let old = std::mem::replace(&mut *index, Index::new());
        let mut bytes = -LEAF_BYTES;
        for leaf in old.root.items().iter().flat_map(|chunk| chunk.items()) {
            // A thread that still waits to sweep the leaf finds it dead. Its memory is freed now.
            let mut dead = Leaf::new(Bytes::new(), None);
            dead.dead = true;
            let leaf = std::mem::replace(&mut *leaf.write(), dead);
            bytes += LEAF_BYTES + leaf.bytes();
        }
        bytes
    }
}

/// True if two neighbours with this many entries are to be joined.
fn joins(left: usize, right: usize) -> bool {
    right == 0 || left + right <= LEAF / 2
}

/// The operations of a batch, to be taken tree by tree.
pub(super) fn ops(batch: Batch) -> Peekable<std::vec::IntoIter<Op>> {
    batch.into_iter().peekable()
}
