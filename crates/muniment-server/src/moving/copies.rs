//! The collection that is to take the place of another one, divided by another key: what a router copies into it.
//!
//! Its placement is undecided until the configuration has decided, so nobody else uses it. The messages of a router have
//! numbers: one that comes late, after a later one, changes nothing.

use super::recipient::{put, remember, take};
use super::stage::stage;
use super::{id_doc, moved};
use crate::context::CommandContext;
use crate::distributed::durable;
use muniment_storage::{Collection, Moves, Placement, WriteUnit};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, number};
use std::sync::Arc;

/// `_shardCopy`: deletes the documents with the `_id`s in `gone`, writes `docs` in the place of what has their `_id`s or
/// unique keys, and takes over what `sessions` remember. The reply's `again` has the `_id`s of documents that had to give
/// way to others, and, if the documents come for the `first` time, of those that were there already.
///
/// # Errors
/// 117 ConflictingOperationInProgress if the collection is in use already, or a later message has come; those of writing.
pub fn copy(cx: &mut CommandContext<'_>) -> Result<()> {
    let (collection, _) = moved(cx)?;
    let of = |name: &str| cx.args.get(name).and_then(number::to_i64_exact);
    let (lane, sent) = (of("lane").unwrap_or(0), of("number").unwrap_or(0));
    let newest = cx.server.moving.copies.newest((collection.uuid(), lane));
    let mut newest = newest.lock_for(&**cx.op)?;
    if newest.0 > sent {
        return Err(over());
    }
    *newest = (sent, muniment_op::now());
    let again = write(cx, &collection)?;
    for told in cx.args.array("sessions").unwrap_or(Doc::EMPTY).values() {
        remember(cx, told)?;
    }
    durable(cx.server, cx.op)?;
    cx.reply
        .field("again", again.into_iter().collect::<ArrayBuf>());
    Ok(())
}

/// Writes the documents; the `_id`s of those that the router has to look at again.
fn write(cx: &CommandContext<'_>, collection: &Arc<Collection>) -> Result<Vec<DocBuf>> {
    let first = cx.args.bool("first", false);
    let mut again = Vec::new();
    let open = || unit(cx, collection);
    let mut unit = open()?;
    for v in cx.args.array("gone").unwrap_or(Doc::EMPTY).values() {
        let id = v.as_doc().and_then(|d| d.get("_id")).unwrap_or(Value::Null);
        (unit, ()) = stage(unit, open, cx.op, |unit| take(unit, id))?;
    }
    for v in cx.args.array("docs").unwrap_or(Doc::EMPTY).values() {
        let Some(doc) = v.as_doc() else { continue };
        let replaced;
        let mut gives_way = |old: Doc<'_>| again.push(id_doc(old));
        (unit, replaced) = stage(unit, open, cx.op, |unit| put(unit, doc, &mut gives_way))?;
        if replaced && first {
            again.push(id_doc(doc));
        }
        cx.server.moving.figures.written.add(doc.byte_len());
    }
    unit.commit()?;
    Ok(again)
}

/// A unit for documents of a collection that nobody uses yet.
fn unit<'c>(cx: &CommandContext<'c>, collection: &Arc<Collection>) -> Result<WriteUnit<'c>> {
    let (server, op) = (cx.server, cx.op);
    let mut unit = server.engine.store.write_unit(collection, &**op)?;
    // The unit shares the collection, so this holds until its commit.
    let is_new = |p: &Placement| p.undecided && p.moving().is_none();
    match collection.placement().is_some_and(|p| is_new(&p)) {
        true => unit.moves(Moves::Copy),
        false => return Err(over()),
    }
    Ok(unit)
}

fn over() -> Error {
    Error::new(
        Code::ConflictingOperationInProgress,
        "the collection is not being copied any more",
    )
}
