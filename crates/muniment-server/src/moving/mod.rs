//! Moves of ranges between shards: what the shard that gives a range does, and the one that gets it.
//!
//! The router that moves a range has the right to change the collection (`router::sharded::movement` lists the steps).
//! The recipient asks the donor for the rows ([`donor`]) and writes them ([`recipient`]); they are foreign until the
//! configuration has decided. Rows that were given away are cleaned later ([`clean`]).
//!
//! Invariants: a step that is repeated, or comes late, changes nothing that a later step rests on, because each names
//! its move; everything that the donor tells is on the majority of its set; a row that arrives is never cleaned.

pub mod arrivals;
mod clean;
pub mod copies;
pub mod donor;
pub mod figures;
mod lanes;
mod measurements;
pub mod recipient;
pub mod sizes;
mod stage;

#[cfg(test)]
pub(crate) use clean::Cleaner;
pub use clean::{clean_now, keep};

use crate::context::CommandContext;
use crate::sets::Until;
use muniment_exec::OpContext;
use muniment_storage::{Collection, Owned, Placement, Store};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, args};
use std::sync::Arc;
use std::time::Duration;

/// So long the end of transactions that use a collection is waited for before a range comes or goes.
const PATIENCE: Duration = Duration::from_millis(500);

/// The field of a donor's reply with the record keys of its documents.
const RECORD_KEYS: &str = "recordKeys";

/// A range as the steps of a move name it.
///
/// # Errors
/// 2 BadValue.
pub fn range_of(named: Option<Doc<'_>>) -> Result<Owned> {
    let mut bounds = named.unwrap_or(Doc::EMPTY).values();
    match (bounds.next(), bounds.next(), bounds.next()) {
        (Some(Value::Binary { bytes: min, .. }), Some(Value::Binary { bytes: max, .. }), None) => {
            Ok((min.to_vec(), (!max.is_empty()).then(|| max.to_vec())))
        }
        _ => Err(Error::bad_value(
            "a range is [min, max], each the bytes of a shard key",
        )),
    }
}

/// The form that [`range_of`] reads.
pub fn range_to(range: &Owned) -> ArrayBuf {
    let max = range.1.as_deref().unwrap_or_default();
    let bounds = [range.0.as_slice(), max];
    bounds
        .into_iter()
        .map(|bytes| Value::Binary { subtype: 0, bytes })
        .collect()
}

/// Changes what the shard has noted of a collection, for which it has the collection alone. Transactions and writes of
/// many documents that use it are waited for, for so long at most: others are held back meanwhile.
///
/// # Errors
/// 24 LockTimeout; those of `change`; as a commit's.
fn place(
    (store, op): (&Store, &OpContext),
    collection: &Arc<Collection>,
    patience: Duration,
    change: impl FnOnce(Option<&Placement>) -> Result<Option<Placement>>,
) -> Result<()> {
    let until = muniment_op::now() + patience;
    let placed = store.place(collection, &Until { on: op, until }, change);
    placed.map_err(|e| match e.code() {
        Code::ExceededTimeLimit if muniment_op::now() >= until => Error::new(
            Code::LockTimeout,
            format!(
                "transactions or writes of many documents use {}, so that no range can come or go",
                collection.name()
            ),
        ),
        _ => e,
    })
}

/// The collection that a step of a move names, and what this shard owns of it.
///
/// # Errors
/// 26 NamespaceNotFound; 118 NamespaceNotSharded.
pub fn moved(cx: &CommandContext<'_>) -> Result<(Arc<Collection>, Arc<Placement>)> {
    let wanted = args::uuid(
        cx.spec.name,
        "uuid",
        cx.args.get("uuid").unwrap_or(Value::Null),
    )?;
    let found = cx.engine().store.collection(cx.ns());
    let collection = found.filter(|c| c.uuid() == wanted).ok_or_else(|| {
        Error::new(
            Code::NamespaceNotFound,
            format!("the collection {} of this UUID is not here", cx.ns()),
        )
    })?;
    let placement = collection.placement().ok_or_else(|| {
        Error::new(
            Code::NamespaceNotSharded,
            format!("{} is not sharded here", cx.ns()),
        )
    })?;
    Ok((collection, placement))
}

/// A document with the `_id` of another one alone.
pub fn id_doc(doc: Doc<'_>) -> DocBuf {
    let mut id = DocBuf::new();
    if let Some(e) = doc.get_elem("_id") {
        id.append_elem(e);
    }
    id
}

/// Bytes as a value.
pub fn plain_binary(bytes: &[u8]) -> Value<'_> {
    Value::Binary { subtype: 0, bytes }
}

/// Where the next part of what a shard tells begins; `None` after the last one.
pub fn next_of(reply: Doc<'_>) -> Option<Vec<u8>> {
    match reply.get("next")? {
        Value::Binary { bytes, .. } => Some(bytes.to_vec()),
        _ => None,
    }
}

/// The time from which on the router that sends a step has had the right to change the collection.
pub fn right_of(cx: &CommandContext<'_>) -> muniment_shard::Timestamp {
    match cx.args.get("right") {
        Some(Value::Timestamp { t, i }) => muniment_shard::Timestamp::new(t, i),
        _ => muniment_shard::Timestamp::default(),
    }
}

/// The id of the move that a step names.
///
/// # Errors
/// Those of [`args::uuid`].
pub fn id_of(cx: &CommandContext<'_>) -> Result<[u8; 16]> {
    args::uuid(cx.spec.name, "id", cx.args.get("id").unwrap_or(Value::Null))
}
