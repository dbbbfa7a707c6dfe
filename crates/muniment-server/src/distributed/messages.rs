//! What the members of different sets say to each other about a transaction.

use crate::generic::session_key;
use crate::options::SetAddress;
use crate::sets::Until;
use crate::state::ServerState;
use muniment_exec::{OpContext, session_doc};
use muniment_member::times_of;
use muniment_shard::commit::{Decision, Vote};
use muniment_storage::{Timestamp, TransactionId};
use muniment_value::{Doc, DocBuf, Error, Result, Value, doc};
use std::time::Instant;

/// The fields that name a transaction.
pub fn fields_of(id: &TransactionId) -> DocBuf {
    doc! { "lsid": session_doc(&id.session), "txnNumber": id.number }
}

/// Reads [`fields_of`] from a command, which has them as `transaction`.
///
/// # Errors
/// 2 BadValue.
pub fn id_of(named: Doc<'_>) -> Result<TransactionId> {
    let session = named.get_doc("lsid").map(session_key).transpose()?;
    let number = named.get("txnNumber").and_then(|n| n.as_i64_exact());
    match session.zip(number) {
        Some((session, number)) => Ok(TransactionId { session, number }),
        None => Err(Error::bad_value("no transaction is named")),
    }
}

fn time(at: Timestamp) -> Value<'static> {
    Value::Timestamp {
        t: at.seconds(),
        i: at.increment(),
    }
}

/// A decision as fields: `decision`, and `commitTimestamp`.
pub fn fields_of_decision(decision: Decision<Timestamp>) -> DocBuf {
    match decision {
        Decision::Commit(at) => doc! { "decision": "commit", "commitTimestamp": time(at) },
        Decision::Abort => doc! { "decision": "abort" },
    }
}

/// Reads [`fields_of_decision`]; `None` for anything else.
pub fn decision_of(d: Doc<'_>) -> Option<Decision<Timestamp>> {
    match d.get_str("decision")? {
        "commit" => match d.get("commitTimestamp")? {
            at @ Value::Timestamp { .. } => Some(Decision::Commit(times_of(at))),
            _ => None,
        },
        "abort" => Some(Decision::Abort),
        _ => None,
    }
}

/// A vote as fields.
pub fn fields_of_vote(vote: Vote<Timestamp>) -> DocBuf {
    match vote {
        Vote::Prepared(at) => doc! { "vote": "prepared", "prepareTimestamp": time(at) },
        Vote::Nothing => doc! { "vote": "readOnly" },
        Vote::Committed => doc! { "vote": "committed" },
        Vote::Refused => doc! { "vote": "aborted" },
    }
}

/// Reads [`fields_of_vote`].
///
/// # Errors
/// 1 for anything else.
fn vote_of(d: Doc<'_>) -> Result<Vote<Timestamp>> {
    match (d.get_str("vote"), d.get("prepareTimestamp")) {
        (Some("prepared"), Some(at @ Value::Timestamp { .. })) => Ok(Vote::Prepared(times_of(at))),
        (Some("readOnly"), _) => Ok(Vote::Nothing),
        (Some("committed"), _) => Ok(Vote::Committed),
        (Some("aborted"), _) => Ok(Vote::Refused),
        _ => Err(Error::internal("a participant has not voted")),
    }
}

/// What another set is asked, on behalf of an operation and until some time at most.
pub struct Asking<'a> {
    /// This server.
    pub server: &'a ServerState,
    /// The operation.
    pub op: &'a OpContext,
    /// The latest time.
    pub until: Instant,
    /// The transaction.
    pub id: TransactionId,
}

impl Asking<'_> {
    fn ask(&self, set: &SetAddress, command: &DocBuf) -> Result<DocBuf> {
        let set = self.server.distributed.sets.of(set);
        let on = Until {
            on: self.op,
            until: self.until,
        };
        set.run("admin", command, None, true, &on)
    }

    /// Has a set prepare its part.
    ///
    /// # Errors
    /// Those of the way there; it may have prepared.
    pub fn prepare(&self, set: &SetAddress, coordinator: &SetAddress) -> Result<Vote<Timestamp>> {
        let command = doc! {
            "_clusterPrepare": 1,
            "transaction": fields_of(&self.id),
            "coordinator": coordinator.text(),
        };
        vote_of(self.ask(set, &command)?.as_doc())
    }

    /// Has a set resolve its part.
    ///
    /// # Errors
    /// Those of the way there; it may have resolved.
    pub fn resolve(&self, set: &SetAddress, decision: Decision<Timestamp>) -> Result<()> {
        let command = doc! {
            "_clusterResolve": 1,
            "transaction": fields_of(&self.id),
            "outcome": fields_of_decision(decision),
        };
        self.ask(set, &command).map(|_| ())
    }

    /// Asks the coordinator's set for the decision; `None` if it is open.
    ///
    /// # Errors
    /// Those of the way there.
    pub fn decision(&self, coordinator: &SetAddress) -> Result<Option<Decision<Timestamp>>> {
        let command = doc! { "_clusterDecision": 1, "transaction": fields_of(&self.id) };
        Ok(decision_of(self.ask(coordinator, &command)?.as_doc()))
    }
}
