//! Dropped trees, which are remembered until no version of them is left.

use super::state::State;
use crate::TreeId;
use muniment_io::Timestamp;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Dropped trees as of one moment, each with the commit that dropped it and the time at which the engine was
/// told, in milliseconds.
#[derive(Clone, Default)]
pub(crate) struct Dropped(Arc<BTreeMap<TreeId, (Timestamp, i64)>>);

/// The list of dropped trees.
#[derive(Default)]
pub(crate) struct DroppedList(Mutex<Dropped>);

impl Dropped {
    /// True if the tree is dropped in the state at `cut`.
    pub(crate) fn is_gone(&self, tree: TreeId, cut: Timestamp) -> bool {
        self.0.get(&tree).is_some_and(|(at, _)| *at <= cut)
    }

    /// True if that is so and the engine was told at or before `time`, in milliseconds.
    pub(crate) fn is_gone_since(&self, tree: TreeId, cut: Timestamp, time: i64) -> bool {
        let old = |(at, told): &(Timestamp, i64)| *at <= cut && *told <= time;
        self.0.get(&tree).is_some_and(old)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl DroppedList {
    /// Adds a tree; `now` is in milliseconds.
    pub(crate) fn add(&self, tree: TreeId, at: Timestamp, now: i64) {
        let mut list = self.0.lock();
        Arc::make_mut(&mut list.0)
            .entry(tree)
            .and_modify(|known| known.0 = at.min(known.0))
            .or_insert((at, now));
    }

    /// The list as it is now.
    pub(crate) fn now(&self) -> Dropped {
        self.0.lock().clone()
    }

    /// Forgets trees of which no table or sealed memtable has anything, once `persisted` has passed their
    /// drop. `state` must have been published after `persisted` was.
    pub(crate) fn forget(&self, state: &State, persisted: Timestamp) {
        let now = self.now();
        if now.is_empty() {
            return;
        }
        let mut used: BTreeSet<TreeId> = BTreeSet::new();
        for table in state.levels.tables() {
            used.extend(table.properties().trees.iter().map(|t| t.0));
        }
        for mem in state.memtables() {
            used.extend(mem.trees());
        }
        let gone: Vec<TreeId> = now
            .0
            .iter()
            .filter(|(tree, (at, _))| *at <= persisted && !used.contains(tree))
            .map(|(tree, _)| *tree)
            .collect();
        if !gone.is_empty() {
            let mut list = self.0.lock();
            let map = Arc::make_mut(&mut list.0);
            for tree in gone {
                map.remove(&tree);
            }
        }
    }
}
