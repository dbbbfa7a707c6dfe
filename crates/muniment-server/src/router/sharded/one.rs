//! Writes of one document, of which the filter does not say on which shard it is.
//!
//! The router looks for a document on all shards that may have one, and then writes to exactly that one: the statement
//! is sent to its shard, with a filter that also names its `_id` and its shard key. If the document does not match any
//! more by then, another one is looked for. A statement of a retryable command is first looked for in what the shards
//! remember: the document may match no more because the statement was executed.

use super::spread::{Done, Statement, Writes, command};
use super::upsert::{self, Upsert};
use super::{PRIMARY, ask_parts, is_stale, with_terms};
use crate::context::CommandContext;
use crate::router::Router;
use crate::router::forward::{Beside, Part};
use crate::router::tables::Known;
use crate::sets::Reply;
use muniment_op::Interrupt;
use muniment_query::{QueryContext, SortSpec};
use muniment_value::{Code, Collation, Doc, DocBuf, Error, Result, Value, array, doc};
use muniment_wire::client;

/// How often a document is looked for.
const ATTEMPTS: usize = 100;

/// A document, and the shard that has it.
pub struct Chosen {
    /// The shard's place in the table.
    pub shard: usize,
    /// `{_id, …}` with the fields of the shard key: what names it.
    pub names: DocBuf,
}

/// What is looked for.
pub struct Wanted<'w> {
    /// The filter.
    pub filter: Doc<'w>,
    /// The document that comes first in this order.
    pub sort: Option<Doc<'w>>,
    /// The statement's collation.
    pub collation: Option<Doc<'w>>,
    /// The command's `let`.
    pub variables: Option<Doc<'w>>,
}

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
    let wanted = Wanted {
        filter: d.get_doc("q").unwrap_or(Doc::EMPTY),
        sort: d.get_doc("sort"),
        collation: d.get_doc("collation"),
        variables: cx.request.body.get_doc("let"),
    };
    for _ in 0..ATTEMPTS {
        cx.op.check()?;
        let Some(chosen) = choose(cx, router, known, &wanted, shards)? else {
            if d.get("upsert").is_some_and(|v| v.truthy()) {
                return upsert(cx, router, known, writes, d, &body);
            }
            return Ok(Done::default());
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

/// Runs a statement of update that has found no document and inserts one. `body` is the command without it.
///
/// # Errors
/// As [`write`]; those of [`upsert::place`].
pub fn upsert(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    writes: Writes,
    statement: Doc<'_>,
    body: &DocBuf,
) -> Result<Done> {
    let variables = cx.request.body.get_doc("let").or(statement.get_doc("c"));
    let upsert = Upsert {
        filter: statement.get_doc("q").unwrap_or(Doc::EMPTY),
        update: statement.get("u").unwrap_or(Value::Null),
        array_filters: statement.get_array("arrayFilters").unwrap_or(Doc::EMPTY),
        variables: variables.unwrap_or(Doc::EMPTY),
        collation: statement.get_doc("collation"),
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

/// 112: the documents that were found were changed each time before they were written to.
pub fn too_often() -> Error {
    Error::new(
        Code::WriteConflict,
        "each document that matched was changed before it could be written to: try again",
    )
}

/// The statement with a filter that matches the chosen document alone; `field` holds the filter.
pub fn narrowed(statement: Doc<'_>, field: &str, chosen: &Chosen) -> DocBuf {
    let mut out = DocBuf::new();
    let mut had = false;
    for e in statement {
        // The order has been decided.
        if e.name() == "sort" {
            continue;
        }
        match e.value().as_doc().filter(|_| e.name() == field) {
            Some(filter) => {
                out.append(field, both(filter, chosen));
                had = true;
            }
            None => {
                out.append_elem(e);
            }
        }
    }
    if !had {
        out.append(field, both(Doc::EMPTY, chosen));
    }
    out
}

fn both(filter: Doc<'_>, chosen: &Chosen) -> DocBuf {
    doc! { "$and": array![filter, &chosen.names] }
}

/// The shard that remembers a statement of the command, if the command is retryable.
///
/// # Errors
/// Those of the way there.
pub fn executed(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    shards: &[usize],
    id: i64,
) -> Result<Option<usize>> {
    let Some(number) = cx
        .generic
        .txn_number
        .filter(|_| !cx.generic.in_transaction())
    else {
        return Ok(None);
    };
    let ask = doc! { "_shardStatement": 1, "number": number, "statement": id };
    let replies = ask_each(cx, router, known, shards, ask.as_doc())?;
    let has = |reply: &Reply| {
        reply
            .body
            .as_doc()
            .get("executed")
            .is_some_and(|v| v.truthy())
    };
    Ok(replies
        .iter()
        .position(has)
        .and_then(|i| shards.get(i).copied()))
}

/// Looks for a document on these shards.
///
/// # Errors
/// The shards'.
pub fn choose(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    wanted: &Wanted<'_>,
    shards: &[usize],
) -> Result<Option<Chosen>> {
    let mut find = doc! { "find": known.name(), "filter": wanted.filter };
    find.append_some("sort", wanted.sort);
    find.append_some("collation", wanted.collation);
    find.append_some("let", wanted.variables);
    find.append("limit", 1);
    find.append("singleBatch", true);
    let find = with_terms(cx, find);
    let replies = ask_each(cx, router, known, shards, find.as_doc())?;
    let mut found: Vec<(Vec<u8>, usize, DocBuf)> = Vec::new();
    let order = order(cx, known, wanted)?;
    for (reply, shard) in replies.iter().zip(shards) {
        let cursor = reply.body.as_doc().get_doc("cursor").unwrap_or(Doc::EMPTY);
        let batch = cursor.get_array("firstBatch").unwrap_or(Doc::EMPTY);
        let first = batch.values().next().and_then(|v| v.as_doc());
        let Some(d) = first else { continue };
        let mut key = Vec::new();
        if let Some(order) = &order {
            order.key(d, &mut key)?;
        }
        let mut names = known.key.values_of(d)?;
        if let Some(id) = d.get("_id").filter(|_| names.as_doc().get("_id").is_none()) {
            names.append("_id", id);
        }
        found.push((key, *shard, names));
    }
    found.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    let first = found.into_iter().next();
    Ok(first.map(|(_, shard, names)| Chosen { shard, names }))
}

fn order(cx: &CommandContext<'_>, known: &Known, wanted: &Wanted<'_>) -> Result<Option<SortSpec>> {
    let Some(sort) = wanted.sort.filter(|sort| !sort.is_empty()) else {
        return Ok(None);
    };
    let own = known.collection.default_collation.as_ref();
    let collation = wanted.collation.or(own.map(|d| d.as_doc()));
    let collation = Collation::parse_some(collation)?;
    let query = QueryContext::new()
        .with_collation(collation)
        .on_behalf_of(&**cx.op);
    SortSpec::parse(sort, &query).map(Some)
}

/// Sends a command of the router's own to these shards' primaries.
fn ask_each(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    shards: &[usize],
    body: Doc<'_>,
) -> Result<Vec<Reply>> {
    let versions: Vec<DocBuf> = shards.iter().map(|shard| known.versions(*shard)).collect();
    let mut parts = Vec::new();
    for (shard, versions) in shards.iter().zip(&versions) {
        parts.push(Part {
            set: known.set(*shard)?,
            db: known.db(),
            body,
            beside: Beside::Nothing,
            versions: Some(versions.as_doc()),
            reach: PRIMARY,
        });
    }
    let mut good = Vec::new();
    for reply in ask_parts(cx, router, &parts) {
        let reply = reply?;
        client::check_ok(reply.body.as_doc())?;
        good.push(reply);
    }
    Ok(good)
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
    let versions = known.versions(shard);
    let docs = [statement];
    let part = Part {
        set: known.set(shard)?,
        db: known.db(),
        body,
        beside: Beside::These(writes.field(), &docs),
        versions: Some(versions.as_doc()),
        reach: PRIMARY,
    };
    let mut replies = ask_parts(cx, router, &[part]);
    let reply = replies
        .pop()
        .ok_or_else(|| Error::internal("a reply is lost"))??;
    let mut done = Done::read(&reply)?;
    match done.take_stale() {
        Some((_, e)) => {
            debug_assert!(is_stale(&e));
            Err(e)
        }
        None => Ok(done),
    }
}
