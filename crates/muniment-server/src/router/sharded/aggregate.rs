//! aggregate over sharded collections: each shard runs a part of the pipeline, and the router the rest.
//!
//! How a pipeline is divided is in `muniment_query::split`. The router has a cursor over the merged streams of the
//! shards' cursors; stages that read other collections find them through [`Around`].

use super::host::{Around, no_output};
use super::reads::at_least_one;
use super::remote::{Terms, streams};
use super::{OnSet, Repeats, all_of, gather, is_stale, reached, to_one};
use crate::context::CommandContext;
use crate::placement::merging;
use crate::router::Router;
use crate::router::place::{OF_CONFIG, is_of_router, set_of};
use crate::router::relay::database;
use crate::router::tables::Known;
use muniment_exec::{BatchLimits, Cursor};
use muniment_query::split::{Division, Split, split};
use muniment_value::{Code, Collation, Doc, DocBuf, Error, Result, doc};
use std::sync::Arc;

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
    let own = known
        .as_ref()
        .and_then(|k| k.collection.default_collation.as_ref());
    let collation = cx.args.doc("collation").or(own.map(|d| d.as_doc()));
    let let_ = cx.args.doc("let").unwrap_or(Doc::EMPTY);
    let mut ctx = cx
        .engine()
        .context(cx.op, let_, Collation::parse_some(collation)?)?;
    ctx.db = cx.db().to_string();
    ctx.collection = cx.collection_name().to_string();
    match split(pipeline, &ctx)? {
        Division::Split(split) => parts(cx, router, known.as_deref(), *split),
        Division::Alone(stage) => Err(Error::new(
            Code::IllegalOperation,
            format!(
                "{stage} does not run on {} yet, since it is sharded",
                cx.ns()
            ),
        )),
    }
}

/// The shards that the pipeline's first stage can reach.
fn shards_of(cx: &CommandContext<'_>, known: &Known, pipeline: Doc<'_>) -> Vec<usize> {
    let first = pipeline.values().next().and_then(|v| v.as_doc()?.first());
    let filter = first.filter(|e| e.name() == "$match");
    match filter.and_then(|e| e.value().as_doc()) {
        Some(filter) => at_least_one(reached(cx, known, filter, cx.args.doc("collation"))),
        None => all_of(known),
    }
}

fn parts(
    cx: &mut CommandContext<'_>,
    router: &Router,
    known: Option<&Known>,
    split: Split,
) -> Result<()> {
    let pipeline = cx.request.body.get_array("pipeline").unwrap_or(Doc::EMPTY);
    let mut sets: Vec<OnSet> = Vec::new();
    match known {
        Some(known) => {
            for shard in shards_of(cx, known, pipeline) {
                sets.push((
                    Arc::clone(known.set(shard)?),
                    merging(known.versions(shard)),
                ));
            }
        }
        None => sets.push((set_of(cx, router, cx.db())?, merging(DocBuf::new()))),
    }
    let mut body = DocBuf::new();
    for e in cx.request.body {
        match e.name() {
            "pipeline" => body.append("pipeline", split.shards.clone()),
            "cursor" => body.append("cursor", doc! {}),
            _ => body.append_elem(e),
        };
    }
    let replies = gather(cx, router, &sets, body.as_doc())?;
    let limits = crate::commands::cursor_reply::limits(cx.args.doc("cursor"), BatchLimits::FIRST)?;
    let allow_disk_use = cx.args.get("allowDiskUse").map(|v| v.truthy());
    let cursor = Cursor::over(cx.ns(), cx.op, false, |on| {
        let terms = Terms::new(cx, &on);
        let streams = streams(&terms, &sets, &replies)?;
        split.open(streams, &Around::runtime(&terms, allow_disk_use))
    })?;
    cx.first_batch(cursor, limits)
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
