//! What a read at a time sees of transactions over several logs.
//!
//! A transaction with the commit time c is seen by every view from c on, on each of its logs. Its record here
//! is later, at t. So a view at T has to know:
//!
//! - of a transaction that was prepared at T or before it whether it is committed, and when: a read of a
//!   collection that it has changed waits for the decision;
//! - of one with c ≤ T < t what it wrote: the view reads through its writes. What the trees have of its keys
//!   is the same at every time from its preparation to t, because it holds their latches.
//!
//! A read of the present takes a transaction as not committed until its record is visible.
//!
//! Invariant: a row that is visible at T has its entry (`prepared`) before T is visible; an entry gives way to
//! the transaction's writes in one step.

use super::prepared::Past;
use super::{Overlay, Transaction, Writes, snapshot_unavailable};
use crate::collection::Collection;
use crate::inner::Inner;
use crate::store::Store;
use crate::view::Snapshot;
use muniment_io::Timestamp;
use muniment_op::Interrupt;
use muniment_value::Result;
use std::sync::Arc;

impl Store {
    /// The view for a read of a collection, which sees transactions over several shards by their commit times if
    /// it is a read at a time. It waits for those that have changed the collection and are not decided yet. Other
    /// views are returned as they are.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable if the writes of one that it has to see are not kept any more; what
    /// `interrupt` says while it waits.
    pub fn as_decided(
        &self,
        view: Snapshot,
        collection: &Collection,
        interrupt: &dyn Interrupt,
    ) -> Result<Snapshot> {
        match view.time().filter(|_| !self.inner.prepared.is_empty()) {
            Some(at) => {
                let settled = self.inner.settled(at, collection, interrupt)?;
                Ok(view.with_settled(settled))
            }
            None => Ok(view),
        }
    }

    /// Whether a read of a collection has to wait in [`Store::as_decided`].
    pub fn is_undecided(&self, view: &Snapshot, collection: &Collection) -> bool {
        let prepared = &self.inner.prepared;
        let at = view.time().filter(|_| !prepared.is_empty());
        at.is_some_and(|at| !prepared.is_decided(at, Some(collection.id)))
    }

    /// Waits until the transactions are decided that were prepared at this time or before it, and what has
    /// become of them is visible: for a read of the present that must not miss anything up to this time. True
    /// if there was any of late.
    ///
    /// # Errors
    /// What `interrupt` says.
    pub fn wait_until_decided(&self, at: Timestamp, interrupt: &dyn Interrupt) -> Result<bool> {
        let inner = &self.inner;
        if inner.prepared.is_empty() {
            return Ok(false);
        }
        inner.wait_decided(at, None, interrupt)?;
        inner.wait_visible(interrupt)?;
        Ok(true)
    }
}

impl Transaction {
    /// Whether it has to wait before it reads a collection: see [`Store::as_decided`].
    pub fn is_undecided(&self, collection: &Collection) -> bool {
        let prepared = &self.inner.prepared;
        let at = self.read_at.filter(|_| !prepared.is_empty());
        at.is_some_and(|at| !prepared.is_decided(at, Some(collection.id)))
    }

    /// Has the transaction see transactions over several shards by their commit times, if it reads at a time: in
    /// a collection that it is about to use, and which it has joined.
    ///
    /// # Errors
    /// Those of [`Store::as_decided`].
    pub(super) fn settle(&self, collection: &Collection, interrupt: &dyn Interrupt) -> Result<()> {
        let Some(at) = self.read_at.filter(|_| !self.inner.prepared.is_empty()) else {
            return Ok(());
        };
        let settled = self.inner.settled(at, collection, interrupt)?;
        *self.settled.lock() = settled;
        Ok(())
    }
}

impl Inner {
    /// What a read of a collection at this time sees of transactions whose records are later.
    fn settled(
        &self,
        at: Timestamp,
        collection: &Collection,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<Arc<Overlay>>> {
        self.wait_decided(at, Some(collection.id), interrupt)?;
        self.prepared.past(at, |past| writes(&past))
    }

    fn wait_decided(
        &self,
        at: Timestamp,
        collection: Option<u32>,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let decided = || self.prepared.is_decided(at, collection);
        if decided() {
            return Ok(());
        }
        self.prepared.moved.wait(interrupt, decided)
    }
}

/// The writes of all of these.
fn writes(past: &[&Past<Writes>]) -> Result<Option<Arc<Overlay>>> {
    let all: Option<Vec<&Writes>> = past.iter().map(|p| p.writes.as_ref()).collect();
    let all = all.ok_or_else(snapshot_unavailable)?;
    Ok(Writes::together(&all))
}
