//! Gaps: key ranges in which everything is deleted, so that a reader need not walk them again.
//!
//! A queue takes from its begin and adds at its end. What was taken leaves deletions over dead
//! rows until a flush and a compaction have met them; without this, everyone who looks for the
//! first row would step over all of them, every time.
//!
//! A cursor that stepped over many keys walks on from there at [`Timestamp::MAX`] to the first
//! live row, and notes what lies between: *the newest version of every key in it is a deletion, or
//! there is none*, since a timestamp. A view at or above it jumps over. Older views do not.
//!
//! Why that is true for as long as it stands here: the gap is registered before the walk begins.
//! A writer writes into memory first and looks at the gaps then. So either the walk finds a put,
//! or the writer finds the gap and cuts it. And a view that sees a put was opened after its writer
//! had returned.
//!
//! Writers pay for this only once somebody met so many deletions ([`Gaps::arm`]): a writer that
//! began before that, and so did not keep its keys, clears all gaps if it finds them armed at its
//! end.

use crate::trees::{Batch, Direction, TreeId};
use bytes::Bytes;
use muniment_io::Timestamp;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Keys from which on a gap is worth noting. (In tests few, so that all of them come by gaps.)
pub(crate) const LEAST: usize = if cfg!(test) { 8 } else { 128 };

/// Gaps kept of a tree, and of all trees.
const PER_TREE: usize = 8;
const TREES: usize = 256;

/// Longer keys are not noted.
const LONG: usize = 1024;

/// Writers that did not know of gaps have mostly ended so long after the arming. (One that has
/// not clears them.)
const GRACE: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 5 });

struct Gap {
    id: u64,
    low: Bytes,
    /// `None`: to the end of the tree.
    high: Option<Bytes>,
    /// The direction of its walk: a put cuts off what follows it.
    dir: Direction,
    /// `None`: the walk is under way.
    since: Option<Timestamp>,
}

/// A walk that was registered.
pub(crate) struct Walk {
    pub(crate) tree: TreeId,
    id: u64,
}

/// All gaps.
#[derive(Default)]
pub(crate) struct Gaps {
    armed: OnceLock<Instant>,
    /// The highest timestamp of which the application has begun.
    applied: AtomicU64,
    next: AtomicU64,
    trees: RwLock<HashMap<TreeId, Vec<Gap>>>,
}

/// The first key after another.
pub(crate) fn behind(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

impl Gaps {
    /// True if writers keep their keys.
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.get().is_some()
    }

    /// Makes writers look at gaps from now on. True if one may be registered already.
    pub(crate) fn arm(&self) -> bool {
        self.armed.get_or_init(Instant::now).elapsed() >= GRACE
    }

    /// A commit begins to be applied. Gives what [`Gaps::applied`] needs.
    pub(crate) fn applying(&self, batch: &Batch, at: Timestamp) -> Option<Vec<(TreeId, Bytes)>> {
        self.applied.fetch_max(at.0, SeqCst);
        self.is_armed().then(|| {
            let puts = batch.iter().filter(|op| op.value.is_some());
            puts.map(|op| (op.tree, op.key.clone())).collect()
        })
    }

    /// It was applied.
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

    /// Registers a walk over the keys from `low` to `high`; `None` if it is not worth it.
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

    /// The walk met its end at `edge`: everything before it (forward: below, backward: at or
    /// above) is deleted. `persisted` is the cut now.
    pub(crate) fn finish(&self, walk: &Walk, edge: Option<Bytes>, persisted: Timestamp) {
        // Whatever the walk met was applied before now.
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
        // Those it goes on from, or lies over, become one with it.
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

    /// As if nothing had been walked yet.
    #[cfg(test)]
    pub(crate) fn forget_all(&self) {
        self.trees.write().clear();
    }

    /// The walk came to nothing.
    pub(crate) fn give_up(&self, walk: &Walk) {
        if let Some(gaps) = self.trees.write().get_mut(&walk.tree) {
            gaps.retain(|gap| gap.id != walk.id);
        }
    }

    /// For a forward cursor that comes to `low`: the end of the gap it is in. `Some(None)`: there
    /// is nothing after it.
    #[allow(clippy::option_option)]
    pub(crate) fn over(&self, tree: TreeId, low: &[u8], at: Timestamp) -> Option<Option<Bytes>> {
        let trees = self.trees.read();
        let mut gaps = trees.get(&tree)?.iter().filter(|gap| gap.is_for(at));
        gaps.find(|gap| gap.has(low)).map(|gap| gap.high.clone())
    }

    /// For a backward cursor that comes to the keys below `high`: the begin of the gap it is in.
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

    /// Cuts off a key that is in it, and what follows; false if nothing is left.
    fn cut(&mut self, key: &Bytes) -> bool {
        match self.dir {
            Direction::Forward => self.high = Some(key.clone()),
            Direction::Backward => self.low = behind(key),
        }
        self.high.as_ref().is_none_or(|high| *high > self.low)
    }
}
