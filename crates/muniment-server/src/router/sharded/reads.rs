//! count and distinct on sharded collections.

use super::host::Around;
use super::remote::Terms;
use super::{broadcast, collation_in, reached, told};
use crate::context::CommandContext;
use crate::router::Router;
use crate::router::tables::Known;
use muniment_exec::DistinctValues;
use muniment_op::Interrupt;
use muniment_value::path::Path;
use muniment_value::{ArrayBuf, Collation, Doc, DocBuf, Error, Result, ValueBuf, number};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most bytes of the values of a distinct.
const MAX_REPLY: usize = 16 << 20;

/// Runs `count`: the sum of what the shards count. Of `skip` and `limit` a shard learns only how many documents can
/// matter.
///
/// # Errors
/// The shards'.
pub fn count(cx: &mut CommandContext<'_>, router: &Router, known: &Arc<Known>) -> Result<()> {
    let filter = cx.args.doc("query").unwrap_or(Doc::EMPTY);
    let shards = reached(cx, known, filter, collation_in(cx.request.body));
    let of = |name: &str| {
        cx.args
            .get(name)
            .and_then(number::to_i64_clamped)
            .unwrap_or(0)
    };
    // A negative limit counts as its absolute value.
    let (skip, limit) = (of("skip"), of("limit").saturating_abs());
    let mut body = DocBuf::new();
    for e in cx.request.body {
        match e.name() {
            // A wrong one is the shard's to refuse.
            "skip" if skip >= 0 => {}
            "limit" if limit > 0 => {
                body.append("limit", limit.saturating_add(skip.max(0)));
            }
            _ => {
                body.append_elem(e);
            }
        }
    }
    let replies = broadcast(cx, router, known, &at_least_one(shards), body.as_doc())?;
    let counted = replies
        .iter()
        .map(|r| r.body.as_doc().get("n").and_then(|v| v.as_i64_exact()));
    let sum: i64 = counted.map(Option::unwrap_or_default).sum();
    let most = if limit > 0 {
        limit.saturating_add(skip)
    } else {
        i64::MAX
    };
    let n = (sum.min(most) - skip.max(0)).max(0);
    match i32::try_from(n) {
        Ok(n) => cx.reply.field("n", n),
        Err(_) => cx.reply.field("n", n),
    };
    told(cx, router);
    Ok(())
}

/// Runs `distinct`: the values that the shards have, each once.
///
/// # Errors
/// The shards'; 2 BadValue if they are too many for a reply.
pub fn distinct(cx: &mut CommandContext<'_>, router: &Router, known: &Arc<Known>) -> Result<()> {
    let filter = cx.args.doc("query").unwrap_or(Doc::EMPTY);
    let given = collation_in(cx.request.body);
    let shards = reached(cx, known, filter, given);
    let replies = broadcast(cx, router, known, &at_least_one(shards), cx.request.body)?;
    let own = known.collection.default_collation.as_ref();
    let collation = Collation::parse_some(given.or(own.map(|d| d.as_doc())))?;
    let mut seen: BTreeMap<Vec<u8>, ValueBuf> = BTreeMap::new();
    for reply in &replies {
        let values = reply
            .body
            .as_doc()
            .get_array("values")
            .unwrap_or(Doc::EMPTY);
        for v in values.values() {
            seen.entry(collation.encoded(v))
                .or_insert_with(|| ValueBuf::new(v));
        }
    }
    let mut values = ArrayBuf::new();
    for v in seen.values() {
        values.push(v.as_value());
        if values.as_doc().byte_len() > MAX_REPLY {
            return Err(Error::location(17217, "distinct too big, 16mb cap"));
        }
    }
    cx.reply.field("values", values);
    told(cx, router);
    Ok(())
}

/// Runs distinct over the documents that a pipeline gives on a collection: those of a view.
///
/// # Errors
/// Those of the pipeline; 17217 if the values are too many for a reply.
pub fn distinct_of(
    cx: &mut CommandContext<'_>,
    router: &Router,
    (collection, pipeline): (&str, Doc<'_>),
    collation: Option<Doc<'_>>,
) -> Result<()> {
    let collation = Collation::parse_some(collation_in(cx.request.body).or(collation))?;
    let on: Arc<dyn Interrupt> = Arc::clone(cx.op) as Arc<dyn Interrupt>;
    let terms = Terms::new(cx, &on);
    let let_ = cx.args.doc("let").unwrap_or(Doc::EMPTY);
    let mut ctx = cx.engine().context(cx.op, let_, collation.clone())?;
    ctx.db = cx.db().to_string();
    ctx.collection = collection.to_string();
    let mut found = Around::runtime(&terms, None)
        .host
        .pipeline(pipeline, &ctx)?;
    let path = Path::new(cx.args.str("key").unwrap_or_default());
    let mut values = DistinctValues::new(&collation);
    while let Some(doc) = found.next()? {
        on.check()?;
        values.add_path(Doc::new(&doc), &path)?;
    }
    drop(found);
    cx.reply.field("values", values.sorted());
    // As on one server.
    cx.reply.field("ok", 1);
    cx.said_ok = true;
    told(cx, router);
    Ok(())
}

/// A command that can reach no document goes to one shard, which says what it comes to.
pub fn at_least_one(shards: Vec<usize>) -> Vec<usize> {
    match shards.is_empty() {
        true => vec![0],
        false => shards,
    }
}
