//! Looking for the one document that a statement writes to, where its filter does not say on which shard that is.

use super::{PRIMARY, ask_parts, with_terms};
use crate::context::CommandContext;
use crate::placement::merging;
use crate::router::Router;
use crate::router::forward::{Beside, Part};
use crate::router::tables::Known;
use crate::sets::Reply;
use bytes::Bytes;
use muniment_exec::find_context;
use muniment_query::split::{FindParts, split_find};
use muniment_query::{Clocks, QueryContext};
use muniment_value::collation::has_text;
use muniment_value::{Code, Collation, Doc, DocBuf, Error, Result, Value, array, doc, hashed};
use muniment_wire::client;

/// How often a document is looked for.
pub const ATTEMPTS: usize = 100;

/// A document, and the shard that has it.
pub struct Chosen {
    /// The shard's place in the table.
    pub shard: usize,
    /// A filter that matches this document of the shard and no other: its `_id` and the fields of its shard key.
    pub names: DocBuf,
    /// The document.
    pub doc: DocBuf,
}

/// What is looked for.
#[derive(Clone, Copy)]
pub struct Wanted<'w> {
    /// The filter.
    pub filter: Doc<'w>,
    /// The document that comes first in this order.
    pub sort: Option<Doc<'w>>,
    /// The index that is to be used.
    pub hint: Option<Value<'w>>,
    /// The statement's collation.
    pub collation: Option<Doc<'w>>,
    /// The command's `let`, with the constants of a pipeline; empty for none.
    pub variables: Doc<'w>,
}

impl<'w> Wanted<'w> {
    /// The field `let` of a command that looks for it.
    pub fn let_(&self) -> Option<Doc<'w>> {
        Some(self.variables).filter(|d| !d.is_empty())
    }
}

/// 112: the documents that were found were changed each time before they were written to.
pub fn too_often() -> Error {
    Error::new(
        Code::WriteConflict,
        "each document that matched was changed before it could be written to: try again",
    )
}

/// The statement with a filter that matches the chosen document alone; `field` holds the filter. It inserts nothing: if
/// the document has changed meanwhile, another one may match.
pub fn narrowed(statement: Doc<'_>, field: &str, chosen: &Chosen) -> DocBuf {
    let mut out = DocBuf::new();
    let mut had = false;
    for e in statement {
        // The order has been decided.
        if matches!(e.name(), "sort" | "upsert") {
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
    let replies = ask_each(cx, router, known, shards, ask.as_doc(), false)?;
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

/// What a statement's filter and update are parsed in at the router, as the shards do it.
///
/// # Errors
/// Those of the collation and of the variables.
pub fn context(
    cx: &CommandContext<'_>,
    known: &Known,
    collation: Option<Doc<'_>>,
    variables: Doc<'_>,
) -> Result<QueryContext> {
    let own = known.collection.default_collation.as_ref();
    let collation = Collation::parse_some(collation.or(own.map(|d| d.as_doc())))?;
    let ctx = cx.engine().context(cx.op, variables, collation)?;
    Ok(ctx.with_clocks(Clocks::NowAndCluster))
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
    find.append_some("hint", wanted.hint);
    find.append_some("collation", wanted.collation);
    find.append_some("let", wanted.let_());
    // A sort need not keep more than one document.
    let most = wanted.sort.map_or("batchSize", |_| "limit");
    find.append(most, 1);
    find.append("singleBatch", true);
    let find = with_terms(cx, find);
    let ctx = context(cx, known, wanted.collation, wanted.variables)?;
    let parts = FindParts {
        filter: wanted.filter,
        sort: wanted.sort.unwrap_or(Doc::EMPTY),
        skip: 0,
        limit: 0,
    };
    let split = split_find(&parts, &ctx)?;
    let replies = ask_each(cx, router, known, shards, find.as_doc(), split.sort_key);
    // The client knows of no find.
    let replies = replies.map_err(|e| e.before_executing_context(&find_context(known.ns())))?;
    let mut first: Option<(Bytes, Chosen)> = None;
    for (reply, shard) in replies.iter().zip(shards) {
        let cursor = reply.body.as_doc().get_doc("cursor").unwrap_or(Doc::EMPTY);
        let batch = cursor.get_array("firstBatch").unwrap_or(Doc::EMPTY);
        let Some(d) = batch.values().next().and_then(|v| v.as_doc()) else {
            continue;
        };
        let (d, key) = split.take(Bytes::copy_from_slice(d.as_bytes()))?;
        // Of equal documents, that of the first shard is taken.
        if first.as_ref().is_some_and(|(least, _)| *least <= key) {
            continue;
        }
        let doc = Doc::new(&d).to_buf();
        let chosen = Chosen {
            shard: *shard,
            names: names(known, doc.as_doc(), &ctx.collation)?,
            doc,
        };
        first = Some((key, chosen));
    }
    Ok(first.map(|(_, chosen)| chosen))
}

/// See [`Chosen::names`].
fn names(known: &Known, d: Doc<'_>, collation: &Collation) -> Result<DocBuf> {
    let mut names = known.key.values_of(d)?;
    let Some(id) = d.get("_id") else {
        return Ok(names);
    };
    if names.as_doc().get("_id").is_none() {
        names.append("_id", id);
    }
    // By a collation the `_id`s of several documents may be equal. Their hashes are not: these go by the bytes.
    if !collation.is_simple() && has_text(id) {
        let hash = array![doc! { "$toHashedIndexKey": "$_id" }, hashed::hash64(id)];
        names.append("$expr", doc! { "$eq": hash });
    }
    Ok(names)
}

/// Sends a command of the router's own to these shards' primaries. `merges`: their documents come with sort keys.
fn ask_each(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    shards: &[usize],
    body: Doc<'_>,
    merges: bool,
) -> Result<Vec<Reply>> {
    let versions = shards.iter().map(|shard| match merges {
        true => merging(known.versions(*shard)),
        false => known.versions(*shard),
    });
    let versions: Vec<DocBuf> = versions.collect();
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
