//! Ending a prepared transaction, by the decision of its coordinator: the second of the two steps.
//!
//! One record removes the row and applies the operations that were in it. Its timestamp t is later than the
//! commit time c that was decided, since the log's timestamps only rise; what views between the two see is
//! the business of `settle`. The record is applied by recovery's function, on the primary as well: the
//! transaction may have been prepared in another process.
//!
//! Invariants: the latches are given back after the record is visible; a transaction is ended once, whoever
//! asks for it and how often.

use super::prepared::{Outcome, PreparedTransaction, Row, TransactionId};
use crate::commit::Resolution;
use crate::commit::announce::Announce;
use crate::commit::apply::Applied;
use crate::commit::ops::{self, Encoder, Kind};
use crate::inner::Inner;
use crate::session_key::SessionKey;
use crate::sessions::{SessionRecord, SessionState};
use crate::store::{CommitId, Store};
use muniment_op::Interrupt;
use muniment_value::Result;

/// The right to end a transaction, until this is dropped.
struct Ending<'i>(&'i Inner, TransactionId);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        // If its record was written it is not there any more.
        self.0.prepared.fail_end(&self.1);
    }
}

impl Store {
    /// Ends a prepared transaction. `None` if there is none of this name: it has ended before.
    ///
    /// # Errors
    /// 10107 NotWritablePrimary; 14031 OutOfDiskSpace; 301 if its row cannot be read; what `interrupt` says.
    /// It stays prepared then.
    pub fn resolve(
        &self,
        id: TransactionId,
        outcome: Outcome,
        announce: Announce,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<CommitId>> {
        let inner = &*self.inner;
        inner.watch.check_open()?;
        let opening = inner.door.opening()?;
        let moved = &inner.prepared.moved;
        let begin = || inner.prepared.begin_end(&id);
        if !moved.wait_for((), interrupt, begin)? {
            return Ok(None);
        }
        let _ending = Ending(inner, id);
        let payload = inner.resolution(&id, outcome)?;
        if let Outcome::Commit(at) = outcome {
            inner.door.advance(at);
        }
        let resolution = Resolution {
            payload: &payload,
            frees: outcome == Outcome::Abort,
            opening,
            announce,
        };
        inner.commit_resolution(resolution, interrupt).map(Some)
    }

    /// The transactions that are prepared.
    pub fn prepared(&self) -> Vec<PreparedTransaction> {
        self.inner
            .prepared
            .forget(self.inner.trees.views().oldest());
        self.inner.prepared.all()
    }

    /// The transaction of a session that is prepared.
    pub fn prepared_of(&self, session: &SessionKey) -> Option<PreparedTransaction> {
        self.inner.prepared.of_session(session)
    }

    /// Waits until no transaction of a session is prepared, and how it has ended is visible.
    ///
    /// # Errors
    /// What `interrupt` says.
    pub fn wait_resolved(&self, session: &SessionKey, interrupt: &dyn Interrupt) -> Result<()> {
        let prepared = &self.inner.prepared;
        let none = || prepared.of_session(session).is_none();
        prepared.moved.wait(interrupt, none)?;
        self.inner.wait_visible(interrupt)
    }
}

impl Inner {
    /// The payload of the record that ends a transaction.
    ///
    /// # Errors
    /// 301.
    fn resolution(&self, id: &TransactionId, outcome: Outcome) -> Result<Vec<u8>> {
        let mut log = Encoder::new();
        log.resolve(&id.to_bytes(), &outcome.to_bytes());
        let now = self.home.clock.now_ms();
        let mut kind = Kind::Plain;
        if let Outcome::Commit(_) = outcome {
            let stored = self.prepared_row(id)?;
            let row = Row::decode(&stored).ok_or_else(|| self.bad_row(&id.to_bytes()))?;
            log.operations(row.operations);
            let record = SessionRecord::new(id.number, SessionState::Committed, now);
            log.session(&id.session.to_bytes(), &record.encode());
            kind = Kind::Transaction;
        }
        let mut payload = log.into_payload();
        if let Some(head) = payload.get_mut(..ops::HEAD) {
            head.copy_from_slice(&ops::head(kind, now));
        }
        Ok(payload)
    }

    /// Gives back what the transactions held that a record has ended. The record is visible.
    pub(crate) fn release(&self, applied: &mut Applied) {
        if applied.ended.is_empty() {
            return;
        }
        for ended in applied.ended.drain(..) {
            let Some(held) = ended.held else { continue };
            drop(held.ddl);
            for hash in held.latches {
                self.units.latches.unlock(hash, held.owner);
            }
        }
        self.prepared.moved.notify_all();
    }
}
