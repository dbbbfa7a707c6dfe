//! Writes in several commits. A write unit never commits itself, so a command that changes many
//! documents commits them here, in slices, and learns exactly what was stored.
//!
//! A slice is committed when it has reached a certain size, and when it meets a record or key that
//! another operation is writing. The counts of a change are booked with the commit that stored it.
//! A commit that fails loses its slice and ends the run.
//!
//! Background work does not wait ([`Slices::only_try`]): it skips records that other operations
//! hold.

use crate::operation::{OpContext, Retry, Statements};
use bytes::Bytes;
use muniment_query::Interrupt;
use muniment_storage::{Busy, Collection, CommitId, Staged, Store, Timestamp, WriteUnit};
use muniment_value::{Result, Value};
use std::sync::Arc;

/// A slice is committed when it holds this many bytes.
pub(super) const SLICE_BYTES: usize = 2 << 20;

/// The counts that a caller keeps of its changes.
pub(crate) trait Tally: Default {
    /// Adds the counts of later changes.
    fn add(&mut self, later: Self);

    /// The statements that these counts belong to, in the form in which retryable writes are
    /// remembered.
    fn statements(&self, retry: &Retry) -> Vec<Statements>;
}

/// Several write units on one collection, one after another.
pub(crate) struct Slices<'e, T> {
    store: &'e Store,
    op: &'e OpContext,
    collection: Arc<Collection>,
    unit: Option<WriteUnit<'e>>,
    /// The counts of what is staged and not yet committed.
    pending: T,
    stored: T,
    last: Option<CommitId>,
    failed: bool,
    /// True for background work, which does not wait for what other operations hold.
    only_tries: bool,
}

impl<'e, T: Tally> Slices<'e, T> {
    /// Slices with nothing staged.
    pub(crate) fn new(store: &'e Store, op: &'e OpContext, collection: &Arc<Collection>) -> Self {
        Slices {
            store,
            op,
            collection: collection.clone(),
            unit: None,
            pending: T::default(),
            stored: T::default(),
            last: None,
            failed: false,
            only_tries: false,
        }
    }

    /// Turns waiting off: a change that needs something that another operation holds is skipped.
    pub(crate) fn only_try(mut self) -> Self {
        self.only_tries = true;
        self
    }

    fn unit(&mut self) -> Result<&mut WriteUnit<'e>> {
        if self.unit.is_none() {
            self.unit = Some(match self.op.transaction() {
                Some(transaction) => {
                    self.store
                        .write_unit_in(transaction, &self.collection, self.op)?
                }
                None if self.only_tries => self.store.try_write_unit(&self.collection, self.op)?,
                None => {
                    let mut unit = self.store.write_unit(&self.collection, self.op)?;
                    if self.op.retry().is_some() {
                        unit.expect_session();
                    }
                    unit
                }
            });
            // From here on the collection's ranges stay.
            self.op.check_seen(&self.collection, Timestamp::MAX)?;
            if let (Some(ranges), Some(unit)) =
                (self.op.ranges_of(&self.collection), &mut self.unit)
            {
                unit.within(ranges);
            }
        }
        match &mut self.unit {
            Some(unit) => Ok(unit),
            None => Err(muniment_value::Error::internal("no write unit")),
        }
    }

    /// Stages one change. `change` may be called again on another unit, after the changes before it
    /// were committed. It must then decide everything anew.
    ///
    /// # Errors
    /// The error of the change itself, and then nothing of it is staged; or the error of a commit
    /// before it. [`Slices::has_failed`] tells the two apart.
    pub(crate) fn change(
        &mut self,
        mut change: impl FnMut(&mut WriteUnit<'e>) -> Staged<T>,
    ) -> Result<()> {
        loop {
            let staged = change(self.unit()?);
            if staged.is_err() && self.unit()?.is_empty() {
                // The unit may hold latches for the change that failed, and dropping it releases
                // them.
                self.unit = None;
            }
            if let Ok(tally) = staged? {
                self.pending.add(tally);
                let unit = self.unit()?;
                let full = unit.is_pressed() || unit.staged_bytes() >= SLICE_BYTES;
                return if full { self.commit() } else { Ok(()) };
            }
            let held_nothing = self.unit()?.is_empty();
            self.commit()?;
            if self.only_tries && held_nothing {
                return Ok(());
            }
            self.op.check()?;
        }
    }

    /// As [`Slices::change`], for one record, which is passed as it is now; `None` if there is no
    /// such record.
    ///
    /// # Errors
    /// Those of [`Slices::change`].
    pub(crate) fn change_record(
        &mut self,
        key: &[u8],
        mut change: impl FnMut(&mut WriteUnit<'e>, Option<Bytes>) -> Staged<T>,
    ) -> Result<()> {
        self.change(|unit| match unit.lock(key)? {
            Ok(doc) => change(unit, doc),
            Err(Busy) => Ok(Err(Busy)),
        })
    }

    /// As [`Slices::change_record`], for the document with this `_id`; it is passed together with
    /// its record key.
    ///
    /// # Errors
    /// Those of [`Slices::change`].
    pub(crate) fn change_by_id(
        &mut self,
        id: Value<'_>,
        mut change: impl FnMut(&mut WriteUnit<'e>, Option<(Bytes, Bytes)>) -> Staged<T>,
    ) -> Result<()> {
        self.change(|unit| match unit.lock_by_id(id)? {
            Ok(found) => change(unit, found),
            Err(Busy) => Ok(Err(Busy)),
        })
    }

    /// Commits the staged changes.
    ///
    /// # Errors
    /// The errors of a commit; the staged changes are lost.
    pub(crate) fn commit(&mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let Some(mut unit) = self.unit.take() else {
            self.stored.add(pending);
            return Ok(());
        };
        let keys = unit.keys();
        let retry = self.op.retry().filter(|_| !unit.is_empty());
        let remembered = retry.and_then(|retry| {
            let done = pending.statements(retry);
            (!done.is_empty()).then(|| (retry, retry.stage(&mut unit, done)))
        });
        let announcer = &self.op.announcer;
        match announcer.commit(|announce| unit.commit_announced_by(announce)) {
            Ok(commit) => {
                self.op.counters.add_keys(keys);
                if let Some(((retry, change), commit)) = remembered.zip(commit) {
                    retry.stored(change, commit);
                }
                self.last = self.last.max(commit);
                self.stored.add(pending);
                Ok(())
            }
            Err(e) => {
                self.pending = pending;
                self.failed = true;
                Err(e)
            }
        }
    }

    /// True after a commit failed. [`Slices::lost`] has the counts of what it did not store.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// The counts of what a failed commit did not store.
    pub(crate) fn lost(&self) -> &T {
        &self.pending
    }

    /// The counts of what the commits so far have stored.
    pub(crate) fn stored(&self) -> &T {
        &self.stored
    }

    /// The counts of what is staged for the next commit.
    pub(crate) fn pending(&self) -> &T {
        &self.pending
    }

    /// The counts of what was stored, and the last commit.
    pub(crate) fn into_stored(self) -> (T, Option<CommitId>) {
        (self.stored, self.last)
    }
}
