//! The decisions that this set has stored as a coordinator, in a collection of its database `config`.

use super::messages::{decision_of, fields_of, fields_of_decision, id_of};
use super::own::durable;
use crate::options::SetAddress;
use crate::state::ServerState;
use muniment_exec::{DeleteStatement, InsertOptions, OpContext};
use muniment_logger::now_ms;
use muniment_shard::commit::Decision;
use muniment_storage::{CollectionOptions, Direction, KeyRange, Timestamp, TransactionId};
use muniment_value::{ArrayBuf, Code, Doc, Error, Result, Value, doc};
use std::sync::Arc;

/// The collection. It has the name of MongoDB's.
pub const DECISIONS: &str = "config.transaction_coordinators";

/// A stored decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The transaction.
    pub id: TransactionId,
    /// The sets that take part; empty for an abort that a participant has asked for.
    pub participants: Vec<SetAddress>,
    /// The decision.
    pub decision: Decision<Timestamp>,
    /// When it was stored, in milliseconds since 1970.
    pub at_ms: i64,
}

impl Stored {
    fn read(d: Doc<'_>) -> Option<Stored> {
        let all = d.get_array("participants")?.values();
        let participants = all.map(|v| SetAddress::parse(v.as_str()?, 27018).ok());
        Some(Stored {
            id: id_of(d.get_doc("_id")?).ok()?,
            participants: participants.collect::<Option<_>>()?,
            decision: decision_of(d.get_doc("decision")?)?,
            at_ms: match d.get("storedAt") {
                Some(Value::DateTime(ms)) => ms,
                _ => 0,
            },
        })
    }
}

fn malformed() -> Error {
    Error::new(
        Code::DataCorruptionDetected,
        format!("a document of {DECISIONS} is none that this server has written"),
    )
}

/// The decision of a transaction, if one is stored.
///
/// # Errors
/// 301.
pub fn read(server: &ServerState, id: &TransactionId) -> Result<Option<Stored>> {
    let store = &server.engine.store;
    let Some(c) = store.collection(DECISIONS) else {
        return Ok(None);
    };
    let key = fields_of(id);
    let found = store
        .snapshot()
        .find_by_id(&c, Value::Document(key.as_doc()))?;
    let read = |(_, d): (_, bytes::Bytes)| Stored::read(Doc::new(&d)).ok_or_else(malformed);
    found.map(read).transpose()
}

/// All that are stored.
///
/// # Errors
/// 301; what the operation says.
pub fn all(server: &ServerState, op: &OpContext) -> Result<Vec<Stored>> {
    let store = &server.engine.store;
    let Some(c) = store.collection(DECISIONS) else {
        return Ok(Vec::new());
    };
    let mut docs = store
        .snapshot()
        .docs(&c, &KeyRange::all(), Direction::Forward);
    let mut found = Vec::new();
    while let Some((_, d)) = docs.next(op)? {
        found.push(Stored::read(Doc::new(&d)).ok_or_else(malformed)?);
    }
    Ok(found)
}

/// Stores a decision unless there is one, and waits until the majority has it. Returns the one that counts.
///
/// # Errors
/// A write's. Whether it is stored is not known then.
pub fn store(
    server: &ServerState,
    op: &Arc<OpContext>,
    id: &TransactionId,
    participants: &[SetAddress],
    decision: Decision<Timestamp>,
) -> Result<Stored> {
    if server.engine.store.collection(DECISIONS).is_none() {
        let options = CollectionOptions::default();
        match server.engine.create_collection(DECISIONS, options, op) {
            Err(e) if e.code() != Code::NamespaceExists => return Err(e),
            _ => {}
        }
    }
    let sets: ArrayBuf = participants.iter().map(SetAddress::text).collect();
    let d = doc! {
        "_id": fields_of(id),
        "participants": sets,
        "decision": fields_of_decision(decision),
        "storedAt": Value::DateTime(now_ms()),
    };
    let one = || Box::new(std::iter::once(d.as_doc())) as Box<dyn Iterator<Item = Doc<'_>>>;
    let options = InsertOptions::default();
    let mut out = server.engine.insert_many(op, DECISIONS, &one, options)?;
    match out.errors.pop() {
        Some(e) if e.error.code() != Code::DuplicateKey => return Err(e.error),
        _ => {}
    }
    let stored = read(server, id)?.ok_or_else(|| Error::internal("a decision is gone"))?;
    durable(server, op)?;
    Ok(stored)
}

/// Removes a decision, which all have resolved.
///
/// # Errors
/// A write's.
pub fn forget(server: &ServerState, op: &Arc<OpContext>, id: &TransactionId) -> Result<()> {
    let filter = doc! { "_id": fields_of(id) };
    let mut deletes = std::iter::once(Ok(DeleteStatement {
        filter: filter.as_doc(),
        multi: false,
        hint: None,
        let_: Doc::EMPTY,
        collation: None,
    }));
    let engine = &server.engine;
    let mut out = engine.delete_many(op, DECISIONS, &mut deletes, false);
    out.errors.pop().map_or(Ok(()), |e| Err(e.error))
}
