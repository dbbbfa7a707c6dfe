//! Preparing a transaction: the first of the two steps by which a transaction over several logs ends.
//!
//! One record puts the row of the transaction into the tree of these. After that the transaction is not the
//! session's any more: it outlives the time limit of transactions, the end of its session and the leadership
//! of this member, until its coordinator's decision comes (`resolve`).

use super::prepared::{Held, PREPARED, Row, TransactionId};
use super::{State, Transaction, ended, write_conflict};
use crate::commit::announce::Announce;
use crate::commit::stage::Stage;
use crate::store::CommitId;
use muniment_op::Interrupt;
use muniment_value::{Code, Error, Result};

impl Transaction {
    /// Prepares the transaction, which ends it for its session. The timestamp of the commit is the time at
    /// which it is prepared. `None`: it has written nothing, and nothing is left of it. `coordinator` is the
    /// set that will decide, as `name/host,host`.
    ///
    /// # Errors
    /// 251 if it had ended; 263 if it has made a collection; 112 WriteConflict if too many are prepared, or
    /// one of its collections belongs to a transaction that is not committed; as a commit's. The
    /// transaction is aborted then.
    pub fn prepare(
        &self,
        id: TransactionId,
        coordinator: &str,
        announce: Announce,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<CommitId>> {
        let mut state = self.state.lock();
        if state.view.is_none() {
            return Err(ended());
        }
        let prepared = match state.parts.is_empty() && state.made.is_empty() {
            true => Ok(None),
            false => self
                .prepare_parts(&mut state, id, coordinator, announce, interrupt)
                .map(Some),
        };
        self.end(state);
        prepared
    }

    fn prepare_parts(
        &self,
        state: &mut State,
        id: TransactionId,
        coordinator: &str,
        announce: Announce,
        interrupt: &dyn Interrupt,
    ) -> Result<CommitId> {
        if !state.made.is_empty() {
            return Err(Error::new(
                Code::OperationNotSupportedInTransaction,
                "Cannot create new collections inside distributed transactions",
            ));
        }
        if state.totals.values().any(|t| t.collection.is_pending()) {
            return Err(write_conflict());
        }
        let inner = &self.inner;
        inner.prepared.admit(state.held.len())?;
        let stored = Row::encode(coordinator, &state.held, &state.parts);
        let mut stage = Stage::new(self.opening);
        let (key, row) = stage.log.prepare(&id.to_bytes(), &stored);
        stage.put(
            PREPARED,
            Stage::logged(key),
            Some(Stage::logged(row)),
            false,
        );
        let read = Row::decode(&stored);
        let read = read.ok_or_else(|| Error::internal("a transaction that cannot be prepared"))?;
        inner.commit(stage, announce, interrupt, |at| {
            let held = Held {
                owner: self.owner,
                latches: std::mem::take(&mut state.held),
                ddl: std::mem::take(&mut state.ddl).into_values().collect(),
            };
            inner.prepared.enter(id, at, read, Some(held));
        })
    }
}
