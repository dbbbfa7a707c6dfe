//! The memtable: keys with their versions, for all trees between two cuts.
//!
//! A key has its newest version, and of the older ones only those that a view still needs, or that the next
//! view could read. A key that began with a put marked [`Op::fresh`](crate::Op) and was deleted again
//! vanishes as a whole, so that queues and short-lived documents never reach a table, and no scan steps over
//! them.
//!
//! Dropping versions needs no thread. A leaf in which something can still be dropped is in a queue, and every
//! few writes take as many leaves from its front as they can have added. If views keep the rest of a leaf, it
//! is swept again after 64 writes, then 2048, then every 65536, so that a view that is held for long costs
//! next to nothing. A write to such a leaf brings it to the front again.
//!
//! Each tree is a B+-tree of leaves, which have their own locks, and an index that is locked for writing only
//! to split or join leaves ([`tree`]). Locks are taken in this order: list of trees, index, leaf. The list of
//! leaves to sweep is never locked together with them.
//!
//! Must not know files or what is beneath.

mod leaf;
mod node;
mod tree;

use crate::trees::{Batch, Direction, Range, TreeId};
use crate::views::{Needed, Views};
use bytes::Bytes;
use leaf::Floor;
use muniment_io::{SpreadLock, Timestamp};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use tree::{From, LEVELS, Shared, TREE_BYTES, Tree};

/// The number of writes that are made while no other thread can make trees.
pub(crate) const FEW: usize = 64;

/// How many writes are made between two sweeps.
const LOOK: u64 = 32;

/// After how many writes a leaf that views kept is swept again, by how often they have kept it.
const AGAIN: [u64; LEVELS as usize] = [0, 64, 2048, 65536];

/// A version of a key, for a flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The key.
    pub key: Bytes,
    /// The time of the write.
    pub at: Timestamp,
    /// The value; `None`: a deletion.
    pub value: Option<Bytes>,
}

/// All trees of one generation.
pub(crate) struct MemTable {
    trees: SpreadLock<HashMap<TreeId, Arc<Tree>, BuildHasherDefault<Mixed>>>,
    /// There is nothing beneath, so deletions need not be kept.
    bottom: bool,
    bytes: AtomicI64,
    /// How many deletions were put, even if nothing is left of them.
    deletions: AtomicU64,
    /// The writes made while leaves were waiting, which is the clock of `AGAIN`.
    writes: AtomicU64,
    /// The number of leaves in `dirty`.
    waiting: AtomicUsize,
    dirty: Mutex<[VecDeque<Dirty>; AGAIN.len()]>,
    /// The last answer of [`Views::oldest`]: no view reads below it. It only rises.
    floor: AtomicU64,
}

/// Mixes a tree's number, so that neighbours do not get the same place.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u32(&mut self, n: u32) {
        let mixed = u64::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // A map takes the place from the low bits and compares the high ones.
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// A leaf with versions to drop.
struct Dirty {
    tree: Arc<Tree>,
    leaf: Shared,
    /// The timestamp that has to become visible before a sweep has any use (in the first queue).
    visible: Timestamp,
    /// The count of writes at which its turn comes (in the other queues).
    due: u64,
    /// The queue that it was in.
    level: u8,
}

/// What `apply` knows about the views. It is read once, and only if a chain of versions needs it.
struct Known<'a> {
    views: &'a Views,
    table: &'a AtomicU64,
    floor: Timestamp,
    fresh: bool,
    needed: Option<Needed>,
}

impl Floor for Known<'_> {
    fn floor(&mut self, enough: Timestamp) -> Timestamp {
        if self.floor < enough && !self.fresh {
            self.fresh = true;
            self.floor = self.views.oldest();
            self.table.fetch_max(self.floor.0, Relaxed);
        }
        self.floor
    }

    fn needed(&mut self) -> &Needed {
        self.needed.get_or_insert_with(|| self.views.needed())
    }
}

impl MemTable {
    /// An empty memtable over older generations.
    pub(crate) fn new() -> MemTable {
        MemTable::with(false)
    }

    /// An empty memtable with nothing beneath it, ever: every deletion vanishes.
    pub(crate) fn bottom() -> MemTable {
        MemTable::with(true)
    }

    fn with(bottom: bool) -> MemTable {
        MemTable {
            trees: SpreadLock::default(),
            bottom,
            bytes: AtomicI64::new(0),
            deletions: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            dirty: Mutex::default(),
            floor: AtomicU64::new(0),
        }
    }

    /// The value of a key at `at`: `None` if the memtable has no version, `Some(None)` if the key is deleted.
    pub(crate) fn get(&self, tree: TreeId, key: &[u8], at: Timestamp) -> Option<Option<Bytes>> {
        let trees = self.trees.read();
        trees.get(&tree)?.get(key, at)
    }

    /// When a key was last written or deleted, and whether it has a value.
    pub(crate) fn changed(&self, tree: TreeId, key: &[u8]) -> Option<(Timestamp, bool)> {
        let trees = self.trees.read();
        trees.get(&tree)?.changed(key)
    }

    /// Writes the changes of one commit. Calls for different keys may run at once; for one key they must come
    /// in rising order of timestamps (a repeated call is harmless).
    pub(crate) fn apply(&self, batch: Batch, at: Timestamp, views: &Views) {
        if let Some(due) = self.put_all(batch, at, views) {
            self.sweep_some(views, due, false);
        }
    }

    /// Does the same without dropping anything. `Some(n)`: it is the turn of `n` leaves, which the caller has
    /// to sweep ([`MemTable::sweep_some`]) after it has released its locks.
    #[must_use]
    pub(crate) fn put_all(&self, batch: Batch, at: Timestamp, views: &Views) -> Option<usize> {
        let writes = batch.len();
        let mut known = Known {
            views,
            table: &self.floor,
            floor: Timestamp(self.floor.load(Relaxed)),
            fresh: false,
            needed: None,
        };
        let deletions = batch.iter().filter(|op| op.value.is_none()).count();
        if deletions > 0 {
            self.deletions.fetch_add(deletions as u64, Relaxed);
        }
        let mut bytes = 0;
        let mut ops = tree::ops(batch);
        let mut dirty = Vec::new();
        while let Some(id) = ops.peek().map(|op| op.tree) {
            let trees = self.trees.read();
            let Some(found) = trees.get(&id) else {
                drop(trees);
                self.create(id);
                continue;
            };
            let mut apply = |tree: &Tree| {
                tree.apply(&mut ops, at, &mut known, &mut bytes, &mut dirty);
            };
            let mut tree = None;
            if writes <= FEW {
                apply(found);
                if !dirty.is_empty() {
                    tree = Some(found.clone());
                }
                drop(trees);
            } else {
                // A long batch must not keep other threads from making trees.
                let kept = found.clone();
                drop(trees);
                apply(&kept);
                tree = Some(kept);
            }
            if let Some(tree) = tree {
                self.wait(dirty.drain(..).map(|leaf| Dirty {
                    tree: tree.clone(),
                    leaf,
                    visible: at,
                    due: 0,
                    level: 0,
                }));
            }
        }
        self.account(bytes);
        if self.waiting.load(Relaxed) == 0 {
            return None;
        }
        let writes = writes as u64;
        let before = self.writes.fetch_add(writes, Relaxed);
        let is_due = before / LOOK != (before + writes) / LOOK;
        is_due.then_some(2 * writes.max(LOOK) as usize)
    }

    fn create(&self, id: TreeId) {
        let mut trees = self.trees.write();
        trees.entry(id).or_insert_with(|| {
            self.account(TREE_BYTES);
            Arc::new(Tree::new(id, self.bottom))
        });
    }

    fn tree(&self, id: TreeId) -> Option<Arc<Tree>> {
        let trees = self.trees.read();
        trees.get(&id).cloned()
    }

    /// Appends up to `limit` keys (at least one) of a range with their values as of `at`, in the order of
    /// `dir`, after `after` if given. Keys without a version at or below `at` are left out. True if there may
    /// be more keys after the last one; false at the end.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn read(
        &self,
        tree: TreeId,
        range: &Range,
        after: Option<&[u8]>,
        at: Timestamp,
        dir: Direction,
        limit: usize,
        out: &mut Vec<(Bytes, Option<Bytes>)>,
    ) -> bool {
        if range.high.as_ref().is_some_and(|high| *high <= range.low) {
            return false;
        }
        let Some(tree) = self.tree(tree) else {
            return false;
        };
        let after = after.map(Bytes::copy_from_slice);
        let from = match dir {
            Direction::Forward => match after {
                Some(after) if after >= range.low => From::Behind(after),
                _ => From::At(range.low.clone()),
            },
            Direction::Backward => match (after, &range.high) {
                (Some(after), Some(high)) if after >= *high => From::Behind(high.clone()),
                (Some(after), _) => From::Behind(after),
                (None, Some(high)) => From::Behind(high.clone()),
                (None, None) => From::Start,
            },
        };
        let end = out.len() + limit.max(1);
        let mut more = false;
        tree.walk(from, dir, |entry| {
            let inside = match dir {
                Direction::Forward => range.high.as_ref().is_none_or(|high| entry.key < *high),
                Direction::Backward => entry.key >= range.low,
            };
            if !inside {
                return false;
            }
            if let Some(value) = entry.get(at) {
                out.push((entry.key.clone(), value.clone()));
                more = out.len() >= end;
            }
            !more
        });
        more
    }

    /// The trees that have keys here, ascending.
    pub(crate) fn trees(&self) -> Vec<TreeId> {
        let trees = self.trees.read();
        let used = trees.iter().filter(|(_, tree)| !tree.is_empty());
        let mut used: Vec<TreeId> = used.map(|(id, _)| *id).collect();
        drop(trees);
        used.sort_unstable();
        used
    }

    /// Appends versions for a flush: keys ascending, after `after` if given, each with all its versions,
    /// newest first. It stops after the key with which there are `limit` versions. True if there may be more
    /// after it. If [`MemTable::sweep`] was called before, few of the versions are superfluous.
    pub(crate) fn dump(
        &self,
        tree: TreeId,
        after: Option<&[u8]>,
        limit: usize,
        out: &mut Vec<Version>,
    ) -> bool {
        let Some(tree) = self.tree(tree) else {
            return false;
        };
        let from = match after {
            Some(after) => From::Behind(Bytes::copy_from_slice(after)),
            None => From::Start,
        };
        let end = out.len() + limit.max(1);
        let mut more = false;
        tree.walk(from, Direction::Forward, |entry| {
            let version = |at: Timestamp, value: &Option<Bytes>| Version {
                key: entry.key.clone(),
                at,
                value: value.clone(),
            };
            out.push(version(entry.at, &entry.value));
            out.extend(entry.older.iter().rev().map(|(at, v)| version(*at, v)));
            more = out.len() >= end;
            !more
        });
        more
    }

    /// Removes everything of a tree, and frees its memory now. The tree must not be written again.
    pub(crate) fn remove_tree(&self, tree: TreeId) {
        let removed = {
            // Most dropped trees have nothing here, and no other thread has to wait until that is found out.
            if !self.trees.read().contains_key(&tree) {
                return;
            }
            match self.trees.write().remove(&tree) {
                Some(removed) => removed,
                None => return,
            }
        };
        self.account(-removed.clear() - TREE_BYTES);
        let mut queues = self.dirty.lock();
        for queue in queues.iter_mut() {
            queue.retain(|dirty| dirty.tree.id != tree);
        }
        self.waiting
            .store(queues.iter().map(VecDeque::len).sum(), Relaxed);
    }

    /// Approximately the bytes of everything, including all overhead. Keys and values count by their length;
    /// the rest of a buffer that a slice keeps alive is not counted.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed).max(0) as u64
    }

    /// How many deletions were put, including those of which nothing is left.
    pub(crate) fn deletions(&self) -> u64 {
        self.deletions.load(Relaxed)
    }

    /// True if there are no keys here.
    pub(crate) fn is_empty(&self) -> bool {
        self.trees.read().iter().all(|(_, tree)| tree.is_empty())
    }

    /// Drops everything that is not needed now, in all leaves.
    pub(crate) fn sweep(&self, views: &Views) {
        if self.waiting.load(Relaxed) > 0 {
            self.sweep_some(views, usize::MAX, true);
        }
    }

    fn account(&self, bytes: i64) {
        if bytes != 0 {
            self.bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// Puts leaves into the queues in which they wait for their turn.
    fn wait(&self, leaves: impl Iterator<Item = Dirty>) {
        let mut queues = self.dirty.lock();
        for dirty in leaves {
            queues[usize::from(dirty.level)].push_back(dirty);
        }
        self.waiting
            .store(queues.iter().map(VecDeque::len).sum(), Relaxed);
    }

    /// Sweeps up to `budget` leaves whose turn it is, or all leaves if `all`.
    pub(crate) fn sweep_some(&self, views: &Views, budget: usize, all: bool) {
        let now = self.writes.load(Relaxed);
        let visible = views.horizon();
        let mut work = Vec::new();
        {
            let mut queues = self.dirty.lock();
            for queue in queues.iter_mut() {
                while work.len() < budget
                    && let Some(first) = queue.front()
                    && (all || (first.visible <= visible && first.due <= now))
                {
                    work.extend(queue.pop_front());
                }
            }
        }
        if work.is_empty() {
            return;
        }
        let needed = views.needed();
        let mut bytes = 0;
        let mut again = Vec::new();
        for dirty in work {
            let mut more = Vec::new();
            let waits = dirty
                .tree
                .sweep(&dirty.leaf, dirty.level, &needed, &mut bytes, &mut more);
            again.extend(more.into_iter().map(|leaf| Dirty {
                tree: dirty.tree.clone(),
                leaf,
                visible,
                due: 0,
                level: 0,
            }));
            if let Some((visible, level)) = waits {
                let visible = match level {
                    0 => visible,
                    _ => Timestamp::ZERO,
                };
                again.push(Dirty {
                    visible,
                    due: now + AGAIN[usize::from(level)],
                    level,
                    ..dirty
                });
            }
        }
        self.account(bytes);
        self.wait(again.into_iter());
    }
}

#[cfg(test)]
mod stacked;
#[cfg(test)]
mod tests;
