//! The part of a transaction over several shards that this server has, from its preparation on.
//!
//! What is prepared is the store's: the session's state in memory only says so, and is read anew once the
//! transaction has ended. Invariant: a command with a later number waits until it has, so that the record of the
//! session is written in the order of its numbers.

use super::known::load;
use super::{CheckedOut, Latest, State, Transactions};
use crate::state::ServerState;
use muniment_exec::OpContext;
use muniment_shard::commit::Vote;
use muniment_storage::{Announce, Outcome, SessionKey, Timestamp, Transaction, TransactionId};
use muniment_value::{Code, Error, Result, Value};
use muniment_wire::DocWriter;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Transactions {
    /// Prepares the transaction of a session that is under way. After that it is not the session's any more.
    ///
    /// # Errors
    /// 10107 NotWritablePrimary; what the operation says while it waits for the session.
    pub fn prepare(
        &self,
        server: &ServerState,
        op: &Arc<OpContext>,
        id: &TransactionId,
        coordinator: &str,
    ) -> Result<Vote<Timestamp>> {
        let mut out = self.check_out(server, op, id.session, id.number)?;
        let Some(latest) = out.latest.as_mut().filter(|l| l.number == id.number) else {
            return Ok(Vote::Refused);
        };
        let running = match &latest.state {
            State::InProgress(running) if !running.transaction.has_ended() => running.clone(),
            State::Committed(_) => return Ok(Vote::Nothing),
            State::Prepared => {
                let prepared = server.engine.store.prepared_of(&id.session);
                let at = prepared.filter(|p| p.id == *id).map(|p| p.at);
                return Ok(at.map_or(Vote::Refused, Vote::Prepared));
            }
            _ => return Ok(Vote::Refused),
        };
        let transaction = &running.transaction;
        let prepared = transaction.prepare(*id, coordinator, Announce::Door, &**op);
        *out.participant.running.lock() = None;
        let cursors = &server.engine.cursors;
        cursors.kill_transaction(&id.session, id.number);
        let (state, vote) = match prepared {
            Ok(Some(commit)) => {
                self.figures.prepared.fetch_add(1, Relaxed);
                (State::Prepared, Ok(Vote::Prepared(commit.at)))
            }
            Ok(None) => {
                self.figures.committed.fetch_add(1, Relaxed);
                (State::Committed(None), Ok(Vote::Nothing))
            }
            Err(e) => {
                self.figures.aborted.fetch_add(1, Relaxed);
                let vote = match e.code() {
                    Code::NotWritablePrimary => Err(e),
                    _ => Ok(Vote::Refused),
                };
                (State::Aborted, vote)
            }
        };
        latest.state = state;
        vote
    }

    /// Aborts the part of a transaction that is under way here and was never prepared.
    ///
    /// # Errors
    /// What the operation says while it waits for the session.
    pub fn abort_part(
        &self,
        server: &ServerState,
        op: &Arc<OpContext>,
        id: &TransactionId,
    ) -> Result<()> {
        if self.sessions.get(&id.session).is_none() {
            return Ok(());
        }
        let mut out = self.check_out(server, op, id.session, id.number)?;
        if out.latest.as_ref().is_some_and(|l| l.number == id.number) {
            self.abort_running(server, &mut out);
        }
        Ok(())
    }

    /// Counts a transaction that was prepared and has ended.
    pub fn count_resolved(&self, outcome: Outcome) {
        let f = &self.figures;
        match outcome {
            Outcome::Commit(_) => {
                f.prepared_committed.fetch_add(1, Relaxed);
                f.committed.fetch_add(1, Relaxed);
            }
            Outcome::Abort => {
                f.prepared_aborted.fetch_add(1, Relaxed);
                f.aborted.fetch_add(1, Relaxed);
            }
        }
    }
}

/// Reads what a command with this number needs to know of its session, unless memory has it. If an earlier
/// transaction of the session is prepared, it waits until that has ended.
///
/// # Errors
/// What the operation says while it waits; 301.
pub(super) fn load_after_prepared(
    server: &ServerState,
    op: &OpContext,
    session: &SessionKey,
    number: i64,
    latest: &mut Option<Latest>,
) -> Result<()> {
    let store = &server.engine.store;
    let was = latest
        .as_ref()
        .filter(|l| matches!(l.state, State::Prepared));
    let was = was.map(|l| l.number);
    match store.prepared_of(session) {
        Some(prepared) if prepared.id.number >= number => {
            *latest = Some(Latest {
                number: prepared.id.number,
                state: State::Prepared,
            });
            return Ok(());
        }
        Some(_) => {
            store.wait_resolved(session, op)?;
            *latest = None;
        }
        None if was.is_some() => *latest = None,
        None => {}
    }
    load(server, session, number, latest)?;
    // The store has nothing of one that was aborted.
    if let Some(number) = was
        && latest.as_ref().is_none_or(|l| l.number < number)
    {
        *latest = Some(Latest {
            number,
            state: State::Aborted,
        });
    }
    Ok(())
}

/// 267 PreparedTransactionInProgress.
pub(super) fn in_progress(number: i64) -> Error {
    Error::new(
        Code::PreparedTransactionInProgress,
        format!(
            "The transaction {number} of this session is prepared: it ends when the shard that coordinates it \
             has decided"
        ),
    )
}

impl CheckedOut {
    /// Adds to the reply of a statement what the router has to know of this shard's part: whether it has
    /// written, and the time at which it reads, if that was chosen.
    pub(super) fn tell_router(
        &self,
        server: &ServerState,
        transaction: &Transaction,
        reply: &mut DocWriter<'_>,
    ) {
        if !server.options.role.may_be_shard() {
            return;
        }
        reply.field("readOnly", !transaction.has_written());
        if let Some(State::InProgress(running)) = self.latest.as_ref().map(|l| &l.state)
            && let Some(at) = running.at
        {
            let (t, i) = (at.seconds(), at.increment());
            reply.field("atClusterTime", Value::Timestamp { t, i });
        }
    }
}
