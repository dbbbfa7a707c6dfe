//! explain on sharded collections: each shard explains its part, and the router says how they are put together.

use super::pipeline::read_by;
use super::reads::at_least_one;
use super::{Repeats, collation_in, gather, is_stale, reached};
use crate::context::CommandContext;
use crate::placement::merging;
use crate::router::Router;
use crate::router::place::{OF_CONFIG, first_stage};
use crate::router::relay::database;
use crate::router::tables::Known;
use crate::sets::Reply;
use muniment_query::split::{Division, Split, split};
use muniment_query::stage::change_stream;
use muniment_value::{ArrayBuf, Code, Collation, Doc, DocBuf, Error, Result, Value, doc, number};
use std::sync::Arc;

/// The figures of an execution that are added up.
const SUMS: [&str; 3] = ["nReturned", "totalKeysExamined", "totalDocsExamined"];

/// Runs explain.
///
/// # Errors
/// Those of the explained command.
pub fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
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
    let inner = cx
        .request
        .body
        .get_doc(cx.request.name)
        .unwrap_or(Doc::EMPTY);
    if first_stage(inner) == change_stream::NAME {
        return Err(change_stream::not_explained());
    }
    let name = inner.first().and_then(|e| e.value().as_str());
    let known = match name.filter(|_| !OF_CONFIG.contains(&cx.db())) {
        Some(name) => {
            let ns = format!("{}.{name}", cx.db());
            router.tables.of(&**cx.op, router, &ns)?
        }
        None => None,
    };
    let mut others = Vec::new();
    read_by(
        inner.get_array("pipeline").unwrap_or(Doc::EMPTY),
        &mut others,
    );
    for name in others {
        let ns = format!("{}.{name}", cx.db());
        if router.tables.of(&**cx.op, router, &ns)?.is_some() {
            return Err(Error::new(
                Code::IllegalOperation,
                format!("a pipeline that reads {ns}, which is sharded, cannot be explained yet"),
            ));
        }
    }
    match known {
        Some(known) => of_shards(cx, router, &known, inner),
        None => database(cx, router),
    }
}

/// Runs aggregate with `explain: true`.
///
/// # Errors
/// Those of the pipeline.
pub fn pipeline(
    cx: &mut CommandContext<'_>,
    router: &Router,
    known: Option<&Arc<Known>>,
) -> Result<()> {
    let mut inner = DocBuf::new();
    for e in cx.request.body {
        if !["explain", "lsid", "$db", "$clusterTime", "$readPreference"].contains(&e.name()) {
            inner.append_elem(e);
        }
    }
    match known {
        Some(known) => of_shards(cx, router, known, inner.as_doc()),
        None => database(cx, router),
    }
}

/// The filter of a command that is explained.
fn filter_of(inner: Doc<'_>) -> Doc<'_> {
    let first = |list: &str| inner.get_array(list)?.values().next()?.as_doc();
    let statement = first("updates").or_else(|| first("deletes"));
    let stage = first("pipeline").and_then(|d| d.get_doc("$match"));
    let own = inner.get_doc("filter").or_else(|| inner.get_doc("query"));
    own.or(stage)
        .or_else(|| statement.and_then(|s| s.get_doc("q")))
        .unwrap_or(Doc::EMPTY)
}

fn of_shards(
    cx: &mut CommandContext<'_>,
    router: &Router,
    known: &Arc<Known>,
    inner: Doc<'_>,
) -> Result<()> {
    let shards = at_least_one(reached(cx, known, filter_of(inner), collation_in(inner)));
    let pipeline = inner.get_array("pipeline").filter(|_| shards.len() > 1);
    let divided = match pipeline {
        Some(pipeline) => divided(cx, known, inner, pipeline)?,
        None => None,
    };
    let mut explained = DocBuf::new();
    for e in inner {
        match (&divided, e.name()) {
            (Some(split), "pipeline") => explained.append("pipeline", split.shards.clone()),
            _ => explained.append_elem(e),
        };
    }
    let mut body = doc! { "explain": explained };
    if cx.spec.explain.is_some() {
        // It is aggregate with `explain: true`.
        body.append("verbosity", "queryPlanner");
    } else {
        for e in cx.request.body.iter().skip(1) {
            body.append_elem(e);
        }
    }
    let mut sets = Vec::new();
    for shard in &shards {
        let versions = match &divided {
            Some(_) => merging(known.versions(*shard)),
            None => known.versions(*shard),
        };
        sets.push((Arc::clone(known.set(*shard)?), versions));
    }
    let replies = gather(cx, router, &sets, body.as_doc())?;
    match inner.get_array("pipeline") {
        Some(_) => write_pipeline(cx, known, &shards, divided.as_ref(), &replies),
        None => {
            let sorted = inner.get_doc("sort").is_some_and(|sort| !sort.is_empty());
            write_plan(cx, known, &shards, sorted, &replies);
        }
    }
    let mut command = inner.to_buf();
    command.append("$db", cx.db());
    cx.reply.field("command", command);
    Ok(())
}

fn divided(
    cx: &CommandContext<'_>,
    known: &Known,
    inner: Doc<'_>,
    pipeline: Doc<'_>,
) -> Result<Option<Split>> {
    let own = known.collection.default_collation.as_ref();
    let collation = collation_in(inner).or(own.map(|d| d.as_doc()));
    let let_ = inner.get_doc("let").unwrap_or(Doc::EMPTY);
    let mut ctx = cx
        .engine()
        .context(cx.op, let_, Collation::parse_some(collation)?)?;
    let (db, name) = known.ns().split_once('.').unwrap_or_default();
    (ctx.db, ctx.collection) = (db.to_string(), name.to_string());
    Ok(match split(pipeline, &ctx)? {
        Division::Split(split) => Some(*split),
        Division::Alone(_) | Division::Router(_) => None,
    })
}

fn write_pipeline(
    cx: &mut CommandContext<'_>,
    known: &Known,
    shards: &[usize],
    split: Option<&Split>,
    replies: &[Reply],
) {
    match split {
        Some(split) => {
            cx.reply.field("mergeType", "router");
            let parts =
                doc! { "shardsPart": split.shards.clone(), "mergerPart": split.router.clone() };
            cx.reply.field("splitPipeline", parts);
        }
        None => {
            cx.reply.field("splitPipeline", Value::Null);
        }
    }
    let mut of = DocBuf::new();
    for (shard, reply) in shards.iter().zip(replies) {
        let mut one = doc! { "host": reply.host.as_str() };
        for e in reply.body.as_doc() {
            if ["explainVersion", "stages", "queryPlanner", "executionStats"].contains(&e.name()) {
                one.append_elem(e);
            }
        }
        of.append(known.table.shard_name(*shard), one);
    }
    cx.reply.field("shards", of);
}

fn write_plan(
    cx: &mut CommandContext<'_>,
    known: &Known,
    shards: &[usize],
    sorted: bool,
    replies: &[Reply],
) {
    let stage = match (shards.len(), sorted) {
        (1, _) => "SINGLE_SHARD",
        (_, true) => "SHARD_MERGE_SORT",
        (_, false) => "SHARD_MERGE",
    };
    let each = |part: &str| -> ArrayBuf {
        let named = shards.iter().zip(replies).map(|(shard, reply)| {
            let mut one = doc! { "shardName": known.table.shard_name(*shard) };
            if part == "queryPlanner" {
                let set = known
                    .sets
                    .get(*shard)
                    .map(|set| set.text())
                    .unwrap_or_default();
                one.append("connectionString", set.as_str());
            }
            one.append_all(reply.body.as_doc().get_doc(part).unwrap_or(Doc::EMPTY));
            one
        });
        named.collect()
    };
    let plan = doc! { "stage": stage, "shards": each("queryPlanner") };
    cx.reply.field("explainVersion", "1");
    cx.reply.field(
        "queryPlanner",
        doc! { "winningPlan": plan, "rejectedPlans": ArrayBuf::new() },
    );
    let stats: Vec<Doc<'_>> = replies
        .iter()
        .filter_map(|r| r.body.as_doc().get_doc("executionStats"))
        .collect();
    if stats.is_empty() {
        return;
    }
    let mut all = DocBuf::new();
    for name in SUMS {
        let of = |d: &Doc<'_>| d.get(name).and_then(|v| v.as_i64_exact());
        all.append(name, number::narrow(stats.iter().filter_map(of).sum()));
    }
    let of = |d: &Doc<'_>| d.get("executionTimeMillis").and_then(|v| v.as_i64_exact());
    all.append(
        "executionTimeMillis",
        number::narrow(stats.iter().filter_map(of).max().unwrap_or(0)),
    );
    let mut stages = doc! { "stage": stage };
    stages.append_all(all.as_doc());
    stages.append("shards", each("executionStats"));
    let mut executed = doc! { "executionSuccess": true };
    executed.append_all(all.as_doc());
    executed.append("executionStages", stages);
    cx.reply.field("executionStats", executed);
}
