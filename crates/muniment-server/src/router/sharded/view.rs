//! Views over sharded collections.
//!
//! A view is on the shard of its database, which finds out that a collection below it is sharded, and refuses the
//! command. The router then reads the definition of the view, and runs the command as a pipeline over the collection.

use super::is_stale;
use super::pipeline::{Whole, over};
use super::place::{View, view};
use super::reads::distinct_of;
use crate::commands::cursor_reply::limits;
use crate::context::CommandContext;
use crate::router::Router;
use crate::router::place::set_of;
use muniment_exec::BatchLimits;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, doc, number};

/// The longest chain of views, as on one server.
const MAX_DEPTH: usize = 20;

/// Whether an error says that the command's collection is a view over a sharded one.
///
/// # Errors
/// Those of reading the configuration.
pub fn is_below(cx: &CommandContext<'_>, router: &Router, e: &Error) -> Result<bool> {
    let extra = e.extra().as_doc();
    let below = extra
        .get_str("ns")
        .filter(|ns| is_stale(e) && *ns != cx.ns());
    let (Some(below), false) = (below, cx.collection_name().is_empty()) else {
        return Ok(false);
    };
    if router.tables.of(&**cx.op, router, cx.ns())?.is_some() {
        return Ok(false);
    }
    router.tables.refresh(&**cx.op, router, below)?;
    Ok(definition(cx, router, cx.collection_name())?.is_some())
}

fn definition(cx: &CommandContext<'_>, router: &Router, name: &str) -> Result<Option<View>> {
    let set = set_of(cx, router, cx.db())?;
    view(&**cx.op, router, &set, cx.db(), name)
}

/// Runs find, aggregate, count or distinct on a view.
///
/// # Errors
/// 165 ViewDepthLimitExceeded; 20 for other commands; those of the pipeline.
pub fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let mut name = cx.collection_name().to_string();
    let mut levels: Vec<ArrayBuf> = Vec::new();
    let mut collation = None;
    while let Some(view) = definition(cx, router, &name)? {
        if levels.is_empty() {
            collation = view.collation;
        }
        if levels.len() >= MAX_DEPTH {
            return Err(Error::new(
                Code::ViewDepthLimitExceeded,
                format!(
                    "View depth limit exceeded; maximum depth is {MAX_DEPTH}; view: {}",
                    cx.ns()
                ),
            ));
        }
        levels.push(view.pipeline);
        name = view.on;
    }
    let mut pipeline = ArrayBuf::new();
    for stages in levels.iter().rev() {
        for stage in stages.as_doc().values() {
            pipeline.push(stage);
        }
    }
    let (limits, single) = own_stages(cx, &mut pipeline)?;
    if cx.spec.name == "distinct" {
        let collation = collation.as_ref().map(|d| d.as_doc());
        return distinct_of(cx, router, (&name, pipeline.as_doc()), collation);
    }
    let ns = format!("{}.{name}", cx.db());
    let known = router.tables.of(&**cx.op, router, &ns)?;
    let whole = Whole {
        collection: &name,
        pipeline: pipeline.as_doc(),
        collation: collation.as_ref().map(|d| d.as_doc()),
        limits,
        single,
    };
    if cx.spec.name == "count" {
        return count(cx, |cx| over(cx, router, known.as_deref(), &whole));
    }
    over(cx, router, known.as_deref(), &whole)
}

/// Adds the command's own part to the view's pipeline.
fn own_stages(cx: &CommandContext<'_>, pipeline: &mut ArrayBuf) -> Result<(BatchLimits, bool)> {
    let of = |name: &str| {
        cx.args
            .get(name)
            .and_then(number::to_i64_clamped)
            .unwrap_or(0)
    };
    let mut add = |stage: &str, operand: Option<Doc<'_>>| {
        if let Some(operand) = operand.filter(|d| !d.is_empty()) {
            let mut d = DocBuf::new();
            d.append(stage, operand);
            pipeline.push(d);
        }
    };
    match cx.spec.name {
        "aggregate" => {
            for stage in cx
                .request
                .body
                .get_array("pipeline")
                .unwrap_or(Doc::EMPTY)
                .values()
            {
                pipeline.push(stage);
            }
            return Ok((limits(cx.args.doc("cursor"), BatchLimits::FIRST)?, false));
        }
        "find" => {
            add("$match", cx.args.doc("filter"));
            add("$sort", cx.args.doc("sort"));
        }
        "count" => add("$match", cx.args.doc("query")),
        "distinct" => {
            add("$match", cx.args.doc("query"));
            return Ok((BatchLimits::FIRST, false));
        }
        name => {
            return Err(Error::new(
                Code::IllegalOperation,
                format!(
                    "{name} does not run on {} yet, a view over a sharded collection",
                    cx.ns()
                ),
            ));
        }
    }
    if of("skip") > 0 {
        pipeline.push(doc! { "$skip": of("skip") });
    }
    if of("limit") != 0 {
        pipeline.push(doc! { "$limit": of("limit").saturating_abs() });
    }
    if cx.spec.name == "count" {
        pipeline.push(doc! { "$count": "n" });
        return Ok((BatchLimits::FIRST, true));
    }
    if let Some(projection) = cx.args.doc("projection").filter(|d| !d.is_empty()) {
        pipeline.push(doc! { "$project": projection });
    }
    let limits = match cx.args.int("batchSize", 0, i64::MAX)? {
        Some(n) => BatchLimits::of(n as usize),
        None => BatchLimits::FIRST,
    };
    Ok((limits, cx.args.bool("singleBatch", false)))
}

/// Makes a count of the cursor that `run` writes.
fn count(
    cx: &mut CommandContext<'_>,
    run: impl FnOnce(&mut CommandContext<'_>) -> Result<()>,
) -> Result<()> {
    let begun = cx.reply.buffer().len();
    run(cx)?;
    // What was written is a part of a document: a head and an end make it one.
    let written = cx.reply.buffer().split_off(begun);
    let mut whole = vec![0; 4];
    whole.extend_from_slice(&written);
    whole.push(0);
    let length = (whole.len() as u32).to_le_bytes();
    if let Some(head) = whole.get_mut(..4) {
        head.copy_from_slice(&length);
    }
    let cursor = Doc::new(&whole).get_doc("cursor");
    let batch = cursor
        .and_then(|c| c.get_array("firstBatch"))
        .unwrap_or(Doc::EMPTY);
    let first = batch.values().next().and_then(|v| v.as_doc());
    let n = first.and_then(|d| d.get("n")?.as_i64_exact()).unwrap_or(0);
    cx.reply.field("n", n as i32);
    Ok(())
}
