//! Gaps: key ranges in which every key is deleted, which readers skip instead of walking them again.
//!
//! A queue takes rows from its beginning and adds rows at its end. The removed rows leave deletions over dead
//! versions until a flush and a compaction have brought them together. Without gaps, every reader that looks
//! for the first row would step over all of these deletions every time.
//!
//! A cursor that has stepped over many deleted keys walks on from there at [`Timestamp::MAX`] to the next
//! live row, and notes the range in between: *every key in it has a deletion as its newest version, or has no
//! version at all*, since a timestamp. A view at or above that timestamp skips the gap. Older views do not.
//!
//! This holds for as long as the gap is listed, for the following reason. The gap is registered before the
//! walk begins, and a writer first writes into memory and then looks at the gaps. So either the walk finds a
//! put, or the writer finds the gap and cuts it. And a view that sees a put was opened after the put's writer
//! had returned.
//!
//! Writers pay for this only after some cursor has met that many deletions ([`Gaps::arm`]). A writer that
//! began before the arming has not kept its keys; if it finds the gaps armed when it ends, it clears all of
//! them.

use crate::trees::{Batch, Direction, TreeId};
use bytes::Bytes;
use muniment_io::Timestamp;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// A gap is worth noting from this many keys on. (Few in tests, so that all of them use gaps.)
pub(crate) const LEAST: usize = if cfg!(test) { 8 } else { 128 };

/// The most gaps of one tree, and the most trees with gaps.
const PER_TREE: usize = 8;
const TREES: usize = 256;

/// Gaps with longer keys are not noted.
const LONG: usize = 1024;

/// How long after the arming most writers that did not know of gaps have ended. (A writer that still runs
/// then clears the gaps.)
const GRACE: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 5 });

struct Gap {
    id: u64,
    low: Bytes,
    /// `None`: the gap extends to the end of the tree.
    high: Option<Bytes>,
    /// The direction of the walk: a put cuts off the part of the gap that follows it in this direction.
    dir: Direction,
    /// The timestamp from which on the gap is valid; `None`: the walk is under way.
    since: Option<Timestamp>,
}

/// A registered walk.
pub(crate) struct Walk {
    pub(crate) tree: TreeId,
    id: u64,
}

/// All gaps.
#[derive(Default)]
pub(crate) struct Gaps {
    armed: OnceLock<Instant>,
    /// The highest timestamp whose application has begun.
    applied: AtomicU64,
    next: AtomicU64,
    trees: RwLock<HashMap<TreeId, Vec<Gap>>>,
}

/// The first key after this one.
pub(crate) fn behind(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

impl Gaps {
    /// True if writers keep their keys.
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.get().is_some()
    }

    /// Makes writers look at gaps from now on. Returns true if a gap may already be registered.
    pub(crate) fn arm(&self) -> bool {
        self.armed.get_or_init(Instant::now).elapsed() >= GRACE
    }

    /// Notes that a commit is about to be applied. Returns what [`Gaps::applied`] needs.
    pub(crate) fn applying(&self, batch: &Batch, at: Timestamp) -> Option<Vec<(TreeId, Bytes)>> {
        self.applied.fetch_max(at.0, SeqCst);
        self.is_armed().then(|| {
            let puts = batch.iter().filter(|op| op.value.is_some());
            puts.map(|op| (op.tree, op.key.clone())).collect()
        })
    }

    /// Notes that the commit was applied, and cuts the gaps that its puts fall into.
    pub(crate) fn applied(&self, puts: Option<Vec<(TreeId, Bytes)>>) {
        let Some(puts) = puts else {
            if self.is_armed() {
                self.trees.write().clear();
            }
            return;
        };
        let hit = |trees: &HashMap<TreeId, Vec<Gap>>| {
            puts.iter().any(|(tree, key)| {
                let gaps = trees.get(tree).map_or(&[][..], Vec::as_slice);
                gaps.iter().any(|gap| gap.has(key))
            })
        };
        if !hit(&self.trees.read()) {
            return;
        }
        let mut trees = self.trees.write();
        for (tree, key) in puts {
            if let Some(gaps) = trees.get_mut(&tree) {
                gaps.retain_mut(|gap| !gap.has(&key) || gap.cut(&key));
            }
        }
    }

    /// Registers a walk over the keys from `low` to `high`. Returns `None` if its keys are too long.
    pub(crate) fn register(
        &self,
        tree: TreeId,
        low: Bytes,
        high: Option<Bytes>,
        dir: Direction,
    ) -> Option<Walk> {
        if low.len() > LONG || high.as_ref().is_some_and(|h| h.len() > LONG) {
            return None;
        }
        let id = self.next.fetch_add(1, SeqCst);
        let mut trees = self.trees.write();
        if trees.len() >= TREES && !trees.contains_key(&tree) {
            trees.clear();
        }
        let gaps = trees.entry(tree).or_default();
        if gaps.len() >= PER_TREE {
            gaps.remove(0);
        }
        gaps.push(Gap {
            id,
            low,
            high,
            dir,
            since: None,
        });
        Some(Walk { tree, id })
    }

    /// Notes that a walk has ended at `edge`: everything before it (forward: below it, backward: at or above
    /// it) is deleted. `persisted` is the current cut.
    pub(crate) fn finish(&self, walk: &Walk, edge: Option<Bytes>, persisted: Timestamp) {
        // All that the walk met was applied before now.
        let since = Timestamp(self.applied.load(SeqCst)).max(persisted);
        let mut trees = self.trees.write();
        let Some(gaps) = trees.get_mut(&walk.tree) else {
            return;
        };
        let Some(i) = gaps.iter().position(|gap| gap.id == walk.id) else {
            return;
        };
        let mut gap = gaps.remove(i);
        if let Some(edge) = edge.filter(|edge| gap.has(edge)) {
            match gap.dir {
                Direction::Forward => gap.high = Some(edge),
                Direction::Backward => gap.low = edge,
            }
        }
        if gap.high.as_ref().is_some_and(|h| h.len() > LONG) || gap.low.len() > LONG {
            return;
        }
        gap.since = Some(since);
        // Gaps that adjoin or overlap the new one are merged into it.
        gaps.retain(|old| {
            let Some(since) = old.since else {
                return true;
            };
            let below = |low: &Bytes, high: &Option<Bytes>| high.as_ref().is_none_or(|h| low <= h);
            let touch = below(&gap.low, &old.high) && below(&old.low, &gap.high);
            if touch {
                gap.low = std::cmp::min(&gap.low, &old.low).clone();
                gap.high = match (&gap.high, &old.high) {
                    (Some(a), Some(b)) => Some(a.max(b).clone()),
                    _ => None,
                };
                gap.since = gap.since.max(Some(since));
            }
            !touch
        });
        gaps.push(gap);
    }

    /// Forgets all gaps, as if nothing had been walked yet.
    #[cfg(test)]
    pub(crate) fn forget_all(&self) {
        self.trees.write().clear();
    }

    /// Removes the gap of a walk that found nothing.
    pub(crate) fn give_up(&self, walk: &Walk) {
        if let Some(gaps) = self.trees.write().get_mut(&walk.tree) {
            gaps.retain(|gap| gap.id != walk.id);
        }
    }

    /// The end of the gap that contains `low`, for a forward cursor; `Some(None)` if no key follows the gap.
    #[allow(clippy::option_option)]
    pub(crate) fn over(&self, tree: TreeId, low: &[u8], at: Timestamp) -> Option<Option<Bytes>> {
        let trees = self.trees.read();
        let mut gaps = trees.get(&tree)?.iter().filter(|gap| gap.is_for(at));
        gaps.find(|gap| gap.has(low)).map(|gap| gap.high.clone())
    }

    /// The beginning of the gap just below `high`, for a backward cursor.
    pub(crate) fn under(&self, tree: TreeId, high: Option<&[u8]>, at: Timestamp) -> Option<Bytes> {
        let trees = self.trees.read();
        let mut gaps = trees.get(&tree)?.iter().filter(|gap| gap.is_for(at));
        let inside = |gap: &&Gap| match (high, gap.high.as_deref()) {
            (_, None) => high.is_none_or(|high| high > &gap.low[..]),
            (None, Some(_)) => false,
            (Some(high), Some(end)) => high > &gap.low[..] && high <= end,
        };
        gaps.find(inside).map(|gap| gap.low.clone())
    }
}

impl Gap {
    fn has(&self, key: &[u8]) -> bool {
        key >= &self.low[..] && self.high.as_ref().is_none_or(|high| key < &high[..])
    }

    fn is_for(&self, at: Timestamp) -> bool {
        self.since.is_some_and(|since| since <= at)
    }

    /// Cuts the gap at a key in it, so that neither the key nor the keys that follow it in the walk's
    /// direction belong to it. Returns false if nothing of the gap is left.
    fn cut(&mut self, key: &Bytes) -> bool {
        match self.dir {
            Direction::Forward => self.high = Some(key.clone()),
            Direction::Backward => self.low = behind(key),
        }
        self.high.as_ref().is_none_or(|high| *high > self.low)
    }
}
