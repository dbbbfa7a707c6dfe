//! What a read at a time sees of transactions over several logs.
//!
//! A transaction with the commit time c is seen by every view from c on, on each of its logs. Its record here
//! is later, at t. So a view at T has to know:
//!
//! - of a transaction that was prepared at T or before it whether it is committed, and when: the view waits
//!   for the decision;
//! - of one with c ≤ T < t what it wrote: the view reads through its writes. What the trees have of its keys
//!   is the same at every time from its preparation to t, because it holds their latches.
//!
//! A read of the present takes a transaction as not committed until its record is visible.
//!
//! Invariant: a row that is visible at T has its entry (`prepared`) before T is visible; an entry gives way to
//! the transaction's writes in one step.

use super::prepared::Past;
use super::{Overlay, Writes, snapshot_unavailable};
use crate::inner::Inner;
use crate::store::Store;
use crate::view::Snapshot;
use muniment_io::Timestamp;
use muniment_op::Interrupt;
use muniment_value::Result;
use std::sync::Arc;

impl Store {
    /// The view for a read at this time, which sees transactions over several logs by their commit times. It
    /// waits for those that are not decided yet. The view may be of an earlier time if nothing was committed
    /// here in between; what other logs have decided in between counts.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable if the writes of one that it has to see are not kept any more; what
    /// `interrupt` says while it waits.
    pub fn as_decided(
        &self,
        view: Snapshot,
        at: Timestamp,
        interrupt: &dyn Interrupt,
    ) -> Result<Snapshot> {
        let inner = &self.inner;
        if inner.prepared.is_empty() {
            return Ok(view);
        }
        inner.wait_decided(at, interrupt)?;
        let settled = inner.prepared.past(at, |past| writes(&past))?;
        Ok(view.with_settled(settled))
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
        inner.wait_decided(at, interrupt)?;
        inner.wait_visible(interrupt)?;
        Ok(true)
    }
}

impl Inner {
    fn wait_decided(&self, at: Timestamp, interrupt: &dyn Interrupt) -> Result<()> {
        let decided = || self.prepared.is_decided(at);
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
