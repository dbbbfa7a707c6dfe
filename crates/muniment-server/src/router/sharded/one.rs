//! Writes of one document, of which the filter does not say on which shard it is.
//!
//! The router looks for a document on all shards that may have one, and then writes to exactly that one: the statement
//! is sent to its shard, with a filter that also names its `_id` and its shard key. If the document does not match any
//! more by then, another one is looked for. A statement of a retryable command is first looked for in what the shards
//! remember: the document may match no more because the statement was executed.

use super::choose::{ATTEMPTS, Wanted, choose, executed, narrowed, too_often};
use super::relocate::{self, Change, Outcome};
use super::spread::{Done, Statement, Writes, command};
use super::upsert::{self, Upsert};
use super::{ask_shard, collation_in};
use crate::context::CommandContext;
use crate::router::Router;
use crate::router::forward::Beside;
use crate::router::tables::Known;
use muniment_exec::with_constants;
use muniment_op::Interrupt;
use muniment_query::MetaSet;
use muniment_value::{Doc, DocBuf, Result, Value};

/// Runs a statement of update or delete on one of these shards.
///
/// # Errors
/// 13388 StaleConfig; those that end the command.
pub fn write(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    writes: Writes,
    statement: &Statement<'_>,
    shards: &[usize],
) -> Result<Done> {
    let d = statement.doc.as_doc();
    let body = command(cx, writes, true, &[statement.id]);
    if let Some(shard) = executed(cx, router, known, shards, statement.id)? {
        return send(cx, router, known, shard, body.as_doc(), d, writes);
    }
    let variables = variables(cx, d);
    let wanted = Wanted {
        filter: d.get_doc("q").unwrap_or(Doc::EMPTY),
        sort: d.get_doc("sort"),
        hint: d.get("hint"),
        collation: collation_in(d),
        variables: variables.as_doc(),
    };
    let update = d.get("u").unwrap_or(Value::Null);
    if writes == Writes::Updates && relocate::changes_key(known, update, d.get_doc("c")) {
        let change = Change {
            wanted,
            update,
            array_filters: d.get_array("arrayFilters").unwrap_or(Doc::EMPTY),
            metadata: MetaSet::NONE,
            id: statement.id,
        };
        return changed(cx, router, known, &change, (&body, d), shards);
    }
    for _ in 0..ATTEMPTS {
        cx.op.check()?;
        let Some(chosen) = choose(cx, router, known, &wanted, shards)? else {
            if d.get("upsert").is_some_and(|v| v.truthy()) {
                return upsert(cx, router, known, writes, d, &body);
            }
            // A shard says what it comes to: it may have an error, or a document by now.
            let shard = shards.first().copied().unwrap_or(0);
            return send(cx, router, known, shard, body.as_doc(), d, writes);
        };
        let narrowed = narrowed(d, "q", &chosen);
        let done = send(
            cx,
            router,
            known,
            chosen.shard,
            body.as_doc(),
            narrowed.as_doc(),
            writes,
        )?;
        if done.n > 0 || done.first_error().is_some() {
            return Ok(done);
        }
    }
    Err(too_often())
}

/// Runs a statement of update that may change its document's shard key.
fn changed(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    change: &Change<'_>,
    (body, statement): (&DocBuf, Doc<'_>),
    shards: &[usize],
) -> Result<Done> {
    for _ in 0..ATTEMPTS {
        cx.op.check()?;
        match relocate::run(cx, router, known, change, shards)? {
            Outcome::Moved(..) | Outcome::Before => return Ok(Done::moved()),
            Outcome::None if statement.get("upsert").is_some_and(|v| v.truthy()) => {
                return upsert(cx, router, known, Writes::Updates, statement, body);
            }
            Outcome::None => {
                let shard = shards.first().copied().unwrap_or(0);
                let (body, writes) = (body.as_doc(), Writes::Updates);
                let done = send(cx, router, known, shard, body, statement, writes)?;
                if !done.would_move() {
                    return Ok(done);
                }
            }
            Outcome::Stays(chosen) => {
                let narrowed = narrowed(statement, "q", &chosen);
                let (body, writes) = (body.as_doc(), Writes::Updates);
                let done = send(
                    cx,
                    router,
                    known,
                    chosen.shard,
                    body,
                    narrowed.as_doc(),
                    writes,
                )?;
                if done.n > 0 || (done.first_error().is_some() && !done.would_move()) {
                    return Ok(done);
                }
                if done.would_move() {
                    let wanted = (&change.wanted, change.update);
                    relocate::check_possible(cx, known, wanted, change.array_filters)?;
                }
            }
        }
    }
    Err(too_often())
}

/// Runs a statement of update that has found no document and inserts one. `body` is the command without it.
///
/// # Errors
/// As [`write()`]; those of [`upsert::place`].
pub fn upsert(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    writes: Writes,
    statement: Doc<'_>,
    body: &DocBuf,
) -> Result<Done> {
    let variables = variables(cx, statement);
    let upsert = Upsert {
        filter: statement.get_doc("q").unwrap_or(Doc::EMPTY),
        update: statement.get("u").unwrap_or(Value::Null),
        array_filters: statement.get_array("arrayFilters").unwrap_or(Doc::EMPTY),
        variables: variables.as_doc(),
        collation: collation_in(statement),
    };
    let (shard, filter) = upsert::place(cx, known, &upsert)?;
    let statement = upsert::with_filter(statement, "q", filter);
    send(
        cx,
        router,
        known,
        shard,
        body.as_doc(),
        statement.as_doc(),
        writes,
    )
}

/// The variables of a statement.
fn variables(cx: &CommandContext<'_>, statement: Doc<'_>) -> DocBuf {
    let constants = statement.get_doc("c").unwrap_or(Doc::EMPTY);
    with_constants(cx.args.doc("let").unwrap_or(Doc::EMPTY), constants)
}

fn send(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    shard: usize,
    body: Doc<'_>,
    statement: Doc<'_>,
    writes: Writes,
) -> Result<Done> {
    let docs = [statement];
    let beside = Beside::These(writes.field(), &docs);
    let reply = ask_shard(cx, router, (known, shard), body, beside)?;
    let mut done = Done::read(&reply)?;
    match done.take_stale() {
        Some((_, e)) => Err(e),
        None => Ok(done),
    }
}
