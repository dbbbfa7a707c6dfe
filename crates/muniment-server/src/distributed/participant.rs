//! This set as a participant: it prepares, resolves, and says how its part has ended. And what the coordinator's
//! set answers a participant that is in doubt.

use super::decisions;
use super::messages::{fields_of_decision, fields_of_vote};
use super::own::durable;
use crate::state::ServerState;
use muniment_exec::OpContext;
use muniment_shard::commit::{Answer, Decision, Known, Vote, answer};
use muniment_storage::{Announce, Outcome, SessionState, Timestamp, TransactionId};
use muniment_value::{DocBuf, Result, doc};
use std::sync::Arc;

/// Prepares this set's part of a transaction. The answer has the vote.
///
/// # Errors
/// 10107, 189 if this member leads no more; what the operation says. Whether the part is prepared is not known
/// then.
pub fn prepare(
    server: &ServerState,
    op: &Arc<OpContext>,
    id: TransactionId,
    coordinator: &str,
) -> Result<DocBuf> {
    let vote = match server.engine.store.prepared_of(&id.session) {
        Some(prepared) if prepared.id == id => Vote::Prepared(prepared.at),
        _ => server.transactions.prepare(server, op, &id, coordinator)?,
    };
    let vote = match vote {
        Vote::Nothing if is_stored(server, &id)? => Vote::Committed,
        vote => vote,
    };
    durable(server, op)?;
    Ok(fields_of_vote(vote))
}

/// Resolves this set's part of a transaction. A part that is not prepared is aborted.
///
/// # Errors
/// As [`prepare`].
pub fn resolve(
    server: &ServerState,
    op: &Arc<OpContext>,
    id: TransactionId,
    decision: Decision<Timestamp>,
) -> Result<()> {
    let outcome = match decision {
        Decision::Commit(at) => Outcome::Commit(at),
        Decision::Abort => Outcome::Abort,
    };
    let store = &server.engine.store;
    let resolve = || store.resolve(id, outcome, Announce::Door, &**op);
    let mut ended = resolve()?;
    if ended.is_none() && outcome != Outcome::Abort {
        // A member that leads no more, and does not know it, may not have what was prepared. It cannot commit this.
        store.commit_nothing(&**op)?;
        durable(server, op)?;
        ended = resolve()?;
    }
    match ended {
        Some(_) => server.transactions.count_resolved(outcome),
        None if outcome == Outcome::Abort => server.transactions.abort_part(server, op, &id)?,
        None => {}
    }
    durable(server, op)
}

/// Whether the session's record says that a transaction was committed.
pub(super) fn is_stored(server: &ServerState, id: &TransactionId) -> Result<bool> {
    let head = server.engine.store.session_head(&id.session)?;
    Ok(head.is_some_and(|head| {
        let record = head.record();
        record.number == id.number && record.state == SessionState::Committed
    }))
}

/// Whether this set's own part is committed, as its majority has it.
///
/// # Errors
/// As [`prepare`].
pub fn has_committed(
    server: &ServerState,
    op: &Arc<OpContext>,
    id: &TransactionId,
) -> Result<bool> {
    if is_stored(server, id)? {
        return durable(server, op).map(|()| true);
    }
    // Only a member that still leads can say that there is nothing.
    server.engine.store.commit_nothing(&**op)?;
    durable(server, op)?;
    is_stored(server, id)
}

/// What a participant is answered that asks how a transaction has ended which this set coordinates.
///
/// # Errors
/// As [`prepare`].
pub fn decision(server: &ServerState, op: &Arc<OpContext>, id: TransactionId) -> Result<DocBuf> {
    let open = || doc! { "decision": "open" };
    // The right to coordinate is kept from others until an abort is stored.
    let Some(_running) = server.distributed.try_begin(id) else {
        return Ok(open());
    };
    let known = match decisions::read(server, &id)? {
        Some(stored) => Known::Decided(stored.decision),
        None if is_stored(server, &id)? => Known::Forgotten,
        None => Known::Nothing,
    };
    durable(server, op)?;
    Ok(match answer(known) {
        Answer::Decided(decision) => fields_of_decision(decision),
        Answer::Open | Answer::Old => open(),
        Answer::StoreAbort => {
            let stored = decisions::store(server, op, &id, &[], Decision::Abort)?;
            fields_of_decision(stored.decision)
        }
    })
}
