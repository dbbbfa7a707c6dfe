//! aggregate over sharded collections.

use super::host::no_output;
use super::pipeline::{Whole, over, shards_of};
use super::{Repeats, is_stale, to_one, view};
use crate::commands::cursor_reply::limits;
use crate::context::CommandContext;
use crate::router::Router;
use crate::router::place::{OF_CONFIG, is_of_router};
use crate::router::relay::database;
use muniment_exec::BatchLimits;
use muniment_value::{Doc, Error, Result};

/// Runs aggregate.
///
/// # Errors
/// Those of the command.
pub fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    if is_of_router(cx.request.body) {
        return (cx.spec.run)(cx);
    }
    let begun = cx.reply.buffer().len();
    let mut repeats = Repeats::new();
    loop {
        match attempt(cx, router) {
            Err(e) if view::is_below(cx, router, &e)? => {
                cx.reply.buffer().truncate(begun);
                return view::run(cx, router);
            }
            Err(e) if is_stale(&e) => {
                repeats.next(cx, router, cx.ns(), e)?;
                cx.reply.buffer().truncate(begun);
            }
            other => return other,
        }
    }
}

fn attempt(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let pipeline = cx.request.body.get_array("pipeline").unwrap_or(Doc::EMPTY);
    let mut others = Vec::new();
    read_by(pipeline, &mut others);
    let mut known = None;
    let mut any = false;
    if !OF_CONFIG.contains(&cx.db()) {
        if !cx.collection_name().is_empty() {
            known = router.tables.of(&**cx.op, router, cx.ns())?;
        }
        for name in &others {
            let ns = format!("{}.{name}", cx.db());
            any |= router.tables.of(&**cx.op, router, &ns)?.is_some();
        }
    }
    if known.is_none() && !any {
        return database(cx, router);
    }
    if cx.args.bool("explain", false) {
        return super::explain::pipeline(cx, router, known.as_ref());
    }
    if cx.args.doc("cursor").is_none() {
        return Err(Error::failed_to_parse(
            "The 'cursor' option is required, except for aggregate with the explain argument",
        ));
    }
    if (cx.spec.writes_output)(cx.request.body) {
        return Err(no_output());
    }
    if let Some(known) = &known
        && others.is_empty()
        && let [one] = shards_of(cx, known, pipeline).as_slice()
    {
        return to_one(cx, router, known, *one);
    }
    let whole = Whole {
        collection: cx.collection_name(),
        pipeline,
        collation: cx.args.doc("collation"),
        limits: limits(cx.args.doc("cursor"), BatchLimits::FIRST)?,
        single: false,
    };
    over(cx, router, known.as_deref(), &whole)
}

/// The names of the other collections that stages read.
fn read_by(pipeline: Doc<'_>, names: &mut Vec<String>) {
    for stage in pipeline.values().filter_map(|v| v.as_doc()?.first()) {
        let operand = stage.value().as_doc().unwrap_or(Doc::EMPTY);
        let inner = operand.get_array("pipeline").unwrap_or(Doc::EMPTY);
        let from = match stage.name() {
            "$lookup" | "$graphLookup" => operand.get_str("from"),
            "$unionWith" => stage.value().as_str().or(operand.get_str("coll")),
            "$facet" => {
                for part in operand.iter().filter_map(|e| e.value().as_array()) {
                    read_by(part, names);
                }
                continue;
            }
            _ => continue,
        };
        names.extend(from.map(str::to_string));
        read_by(inner, names);
    }
}
