//! Writes in several commits: a write unit never commits itself, so a command that changes many
//! documents does it here, in slices, and is told exactly what was stored.
//!
//! A slice is committed when it has grown to some size, and when it meets a record or key that
//! another operation is writing just now. What the caller counts of a change is booked with the
//! commit that stored it; a commit that fails loses its slice and ends the run.
//!
//! Work in the background only tries ([`Slices::only_try`]): it passes over what others hold.

use crate::operation::{OpContext, Retry, Statements};
use bytes::Bytes;
use muniment_query::Interrupt;
use muniment_storage::{Busy, Collection, CommitId, Staged, Store, WriteUnit};
use muniment_value::{Result, Value};
use std::sync::Arc;

/// A slice is committed when it holds this many bytes.
pub(super) const SLICE_BYTES: usize = 2 << 20;

/// What a caller counts of its changes.
pub(crate) trait Tally: Default {
    /// Adds what came later.
    fn add(&mut self, later: Self);

    /// The statements that it is about, as they are remembered.
    fn statements(&self, retry: &Retry) -> Vec<Statements>;
}

/// Several write units on one collection, one after another.
pub(crate) struct Slices<'e, T> {
    store: &'e Store,
    op: &'e OpContext,
    collection: Arc<Collection>,
    unit: Option<WriteUnit<'e>>,
    /// Staged and not committed.
    pending: T,
    stored: T,
    last: Option<CommitId>,
    failed: bool,
    /// It does not wait for what other operations hold.
    only_tries: bool,
}

impl<'e, T: Tally> Slices<'e, T> {
    /// Nothing staged.
    pub fn new(store: &'e Store, op: &'e OpContext, collection: &Arc<Collection>) -> Self {
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

    /// Makes it not wait for other operations: a change that needs what another one holds is left
    /// out.
    pub fn only_try(mut self) -> Self {
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
        }
        match &mut self.unit {
            Some(unit) => Ok(unit),
            None => Err(muniment_value::Error::internal("no write unit")),
        }
    }

    /// Stages one change. `change` may be called again, on another unit, after what came before it
    /// was committed: what it decides it has to decide anew.
    ///
    /// # Errors
    /// The change's own, with nothing of it staged; that of a commit before it:
    /// [`Slices::has_failed`] tells them apart.
    pub fn change(
        &mut self,
        mut change: impl FnMut(&mut WriteUnit<'e>) -> Staged<T>,
    ) -> Result<()> {
        loop {
            let staged = change(self.unit()?);
            if staged.is_err() && self.unit()?.is_empty() {
                // It may hold latches for what came to nothing.
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

    /// As [`Slices::change`], of one record as it is now (`None`: there is none).
    ///
    /// # Errors
    /// As [`Slices::change`].
    pub fn change_record(
        &mut self,
        key: &[u8],
        mut change: impl FnMut(&mut WriteUnit<'e>, Option<Bytes>) -> Staged<T>,
    ) -> Result<()> {
        self.change(|unit| match unit.lock(key)? {
            Ok(doc) => change(unit, doc),
            Err(Busy) => Ok(Err(Busy)),
        })
    }

    /// As [`Slices::change_record`], of the document with this `_id`, with its record key.
    ///
    /// # Errors
    /// As [`Slices::change`].
    pub fn change_by_id(
        &mut self,
        id: Value<'_>,
        mut change: impl FnMut(&mut WriteUnit<'e>, Option<(Bytes, Bytes)>) -> Staged<T>,
    ) -> Result<()> {
        self.change(|unit| match unit.lock_by_id(id)? {
            Ok(found) => change(unit, found),
            Err(Busy) => Ok(Err(Busy)),
        })
    }

    /// Commits what is staged.
    ///
    /// # Errors
    /// As a commit's: what was staged is lost.
    pub fn commit(&mut self) -> Result<()> {
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

    /// True once a commit failed: what was staged for it is [`Slices::lost`].
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// What a failed commit did not store.
    pub fn lost(&self) -> &T {
        &self.pending
    }

    /// What the commits so far have stored.
    pub fn stored(&self) -> &T {
        &self.stored
    }

    /// What is staged for the next commit.
    pub fn pending(&self) -> &T {
        &self.pending
    }

    /// What the commits so far have stored, and the last of them.
    pub fn into_stored(self) -> (T, Option<CommitId>) {
        (self.stored, self.last)
    }
}
