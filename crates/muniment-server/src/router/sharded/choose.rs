//! Looking for the one document that a statement writes to, where its filter does not say on which shard that is.

use super::{PRIMARY, ask_parts, with_terms};
use crate::context::CommandContext;
use crate::router::Router;
use crate::router::forward::{Beside, Part};
use crate::router::tables::Known;
use crate::sets::Reply;
use muniment_query::{QueryContext, SortSpec};
use muniment_value::{Code, Collation, Doc, DocBuf, Error, Result, Value, array, doc};
use muniment_wire::client;

/// How often a document is looked for.
pub const ATTEMPTS: usize = 100;

/// A document, and the shard that has it.
pub struct Chosen {
    /// The shard's place in the table.
    pub shard: usize,
    /// `{_id, …}` with the fields of the shard key: what names it.
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
    /// The command's `let`.
    pub variables: Option<Doc<'w>>,
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
    find.append_some("hint", wanted.hint);
    find.append_some("collation", wanted.collation);
    find.append_some("let", wanted.variables);
    // A sort need not keep more than one document.
    let most = wanted.sort.map_or("batchSize", |_| "limit");
    find.append(most, 1);
    find.append("singleBatch", true);
    let find = with_terms(cx, find);
    let replies = ask_each(cx, router, known, shards, find.as_doc())?;
    let mut found: Vec<(Vec<u8>, Chosen)> = Vec::new();
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
        let (shard, doc) = (*shard, d.to_buf());
        found.push((key, Chosen { shard, names, doc }));
    }
    found.sort_by(|a, b| (&a.0, a.1.shard).cmp(&(&b.0, b.1.shard)));
    Ok(found.into_iter().next().map(|(_, chosen)| chosen))
}

fn order(cx: &CommandContext<'_>, known: &Known, wanted: &Wanted<'_>) -> Result<Option<SortSpec>> {
    // The natural order of a collection is that of its shards.
    let orders = |sort: &Doc<'_>| !sort.is_empty() && sort.get("$natural").is_none();
    let Some(sort) = wanted.sort.filter(orders) else {
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
