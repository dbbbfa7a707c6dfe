//! explain on sharded collections: each shard explains its part, and the router says how they are put together.

use super::into::Into;
use super::place::View;
use super::read_by::read_by;
use super::reads::at_least_one;
use super::{Repeats, collation_in, gather, is_stale, reached, view};
use crate::commands::explain_reply::write_server;
use crate::commands::query_shape;
use crate::context::CommandContext;
use crate::placement::merging;
use crate::router::place::{OF_CONFIG, first_stage, set_of, shard_of};
use crate::router::relay::database;
use crate::router::tables::Known;
use crate::router::{Router, SetPool};
use crate::sets::Reply;
use muniment_query::split::{Division, Split, split};
use muniment_query::stage::change_stream;
use muniment_value::{ArrayBuf, Collation, Doc, DocBuf, Result, Value, doc, number};
use std::sync::Arc;

/// The figures of an execution that are added up.
const SUMS: [&str; 3] = ["nReturned", "totalKeysExamined", "totalDocsExamined"];

/// The commands whose shape is told.
const READS: [&str; 4] = ["aggregate", "count", "distinct", "find"];

/// Runs explain.
///
/// # Errors
/// Those of the explained command.
pub fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let begun = cx.reply.buffer().len();
    let mut repeats = Repeats::new();
    loop {
        let done = attempt(cx, router);
        match done {
            Err(e) if is_stale(&e) => {
                cx.reply.buffer().truncate(begun);
                repeats.next(cx, router, cx.ns(), e)?;
            }
            other => return other,
        }
    }
}

/// The command that is explained.
fn explained<'c>(cx: &CommandContext<'c>) -> Doc<'c> {
    let body = cx.request.body;
    body.get_doc(cx.request.name).unwrap_or(Doc::EMPTY)
}

fn attempt(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let command = explained(cx);
    if first_stage(command) == change_stream::NAME {
        return Err(change_stream::not_explained());
    }
    // What a command on a view over a sharded collection comes to.
    let below = match view::of_explained(cx, router, command)? {
        Some(view) => Some(view::aggregate_below(cx, router, (command, view))?),
        None => None,
    };
    let inner = below.as_ref().map_or(command, |d| d.as_doc());
    let name = inner.first().and_then(|e| e.value().as_str());
    let known = match name.filter(|_| !OF_CONFIG.contains(&cx.db())) {
        Some(name) => {
            let ns = format!("{}.{name}", cx.db());
            router.tables.of(&**cx.op, router, &ns)?
        }
        None => None,
    };
    match known.is_some() || uses_sharded(cx, router, inner)? {
        true => of_shards(cx, router, known.as_deref(), inner),
        false => database(cx, router),
    }
}

/// The other collections that a pipeline reads, and the one that it writes to.
fn others_of(cx: &CommandContext<'_>, inner: Doc<'_>) -> (Vec<String>, Option<Into>) {
    let pipeline = inner.get_array("pipeline").unwrap_or(Doc::EMPTY);
    let mut names = Vec::new();
    read_by(pipeline, &mut names);
    let last = pipeline.values().last().and_then(|v| v.as_doc());
    (names, last.and_then(|stage| Into::of(stage, cx.db())))
}

/// Whether one of them is sharded.
fn uses_sharded(cx: &CommandContext<'_>, router: &Router, inner: Doc<'_>) -> Result<bool> {
    let (names, into) = others_of(cx, inner);
    let into = match into {
        Some(into) => router.tables.of(&**cx.op, router, &into.ns)?,
        None => None,
    };
    let below = router.views.below(&**cx.op, router, cx.db(), &names)?;
    Ok(into.is_some() || below.sharded)
}

/// Runs aggregate with `explain: true` on a collection that is sharded, or whose pipeline reads one that is.
///
/// # Errors
/// Those of the pipeline.
pub fn pipeline(cx: &mut CommandContext<'_>, router: &Router, known: Option<&Known>) -> Result<()> {
    of_shards(cx, router, known, aggregate(cx).as_doc())
}

/// As [`pipeline`], on a view over a collection that is sharded.
///
/// # Errors
/// Those of the pipeline.
pub fn pipeline_of_view(cx: &mut CommandContext<'_>, router: &Router, view: View) -> Result<()> {
    let below = view::aggregate_below(cx, router, (aggregate(cx).as_doc(), view))?;
    let name = below.as_doc().get_str("aggregate").unwrap_or_default();
    let ns = format!("{}.{name}", cx.db());
    let known = router.tables.of(&**cx.op, router, &ns)?;
    of_shards(cx, router, known.as_deref(), below.as_doc())
}

/// The aggregate that is to be explained.
fn aggregate(cx: &CommandContext<'_>) -> DocBuf {
    let mut inner = DocBuf::new();
    for e in cx.request.body {
        if !["explain", "lsid", "$db", "$clusterTime", "$readPreference"].contains(&e.name()) {
            inner.append_elem(e);
        }
    }
    inner
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

/// A shard that explains its part.
struct Explaining {
    name: String,
    set: Arc<SetPool>,
    versions: DocBuf,
}

fn of_shards(
    cx: &mut CommandContext<'_>,
    router: &Router,
    known: Option<&Known>,
    inner: Doc<'_>,
) -> Result<()> {
    let asked = asked(cx, router, known, inner)?;
    let pipeline = inner.get_array("pipeline");
    // One shard runs all stages, unless these read or write what is on others.
    let (names, into) = others_of(cx, inner);
    let is_split = asked.len() > 1 || !names.is_empty() || into.is_some();
    let pipeline = pipeline.filter(|_| is_split);
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
    let sets = asked.iter().map(|one| {
        let versions = one.versions.clone();
        let versions = match &divided {
            Some(_) => merging(versions),
            None => versions,
        };
        (Arc::clone(&one.set), versions)
    });
    let sets: Vec<_> = sets.collect();
    let replies = gather(cx, router, &sets, body.as_doc())?;
    match inner.get_array("pipeline") {
        Some(_) => write_pipeline(cx, &asked, divided.as_ref(), &replies),
        None => {
            let sorted = inner.get_doc("sort").is_some_and(|sort| !sort.is_empty());
            write_plan(cx, &asked, sorted, &replies);
        }
    }
    if READS.contains(&inner.first().map_or("", |e| e.name())) {
        let hash = query_shape::hash(inner);
        cx.reply.field("queryShapeHash", hash.as_str());
    }
    let mut command = inner.to_buf();
    command.append("$db", cx.db());
    cx.reply.field("command", command);
    write_server(cx);
    Ok(())
}

/// The shards that explain: those that the command reaches, or that of the database.
fn asked(
    cx: &CommandContext<'_>,
    router: &Router,
    known: Option<&Known>,
    inner: Doc<'_>,
) -> Result<Vec<Explaining>> {
    let Some(known) = known else {
        let set = set_of(cx, router, cx.db())?;
        let shard = shard_of(cx, router, &set)?;
        return Ok(vec![Explaining {
            name: shard.map_or(set.name.clone(), |(name, _)| name),
            set,
            versions: DocBuf::new(),
        }]);
    };
    let shards = at_least_one(reached(cx, known, filter_of(inner), collation_in(inner)));
    let of = |shard: usize| {
        Ok(Explaining {
            name: known.table.shard_name(shard).to_string(),
            set: Arc::clone(known.set(shard)?),
            versions: known.versions(shard),
        })
    };
    shards.into_iter().map(of).collect()
}

fn divided(
    cx: &CommandContext<'_>,
    known: Option<&Known>,
    inner: Doc<'_>,
    pipeline: Doc<'_>,
) -> Result<Option<Split>> {
    let own = known.and_then(|known| known.collection.default_collation.as_ref());
    let collation = collation_in(inner).or(own.map(|d| d.as_doc()));
    let let_ = inner.get_doc("let").unwrap_or(Doc::EMPTY);
    let mut ctx = cx
        .engine()
        .context(cx.op, let_, Collation::parse_some(collation)?)?;
    let name = inner.first().and_then(|e| e.value().as_str());
    ctx.db = cx.db().to_string();
    ctx.collection = name.unwrap_or_default().to_string();
    Ok(match split(pipeline, &ctx)? {
        Division::Split(split) => Some(*split),
        Division::Alone(_) | Division::Router(_) => None,
    })
}

fn write_pipeline(
    cx: &mut CommandContext<'_>,
    asked: &[Explaining],
    split: Option<&Split>,
    replies: &[Reply],
) {
    cx.reply.field("explainVersion", "1");
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
    for (shard, reply) in asked.iter().zip(replies) {
        let mut one = doc! { "host": reply.host.as_str() };
        for e in reply.body.as_doc() {
            if ["explainVersion", "stages", "queryPlanner", "executionStats"].contains(&e.name()) {
                one.append_elem(e);
            }
        }
        of.append(&shard.name, one);
    }
    cx.reply.field("shards", of);
}

fn write_plan(cx: &mut CommandContext<'_>, asked: &[Explaining], sorted: bool, replies: &[Reply]) {
    let stage = match (asked.len(), sorted) {
        (1, _) => "SINGLE_SHARD",
        (_, true) => "SHARD_MERGE_SORT",
        (_, false) => "SHARD_MERGE",
    };
    let each = |part: &str| -> ArrayBuf {
        let named = asked.iter().zip(replies).map(|(shard, reply)| {
            let mut one = doc! { "shardName": shard.name.as_str() };
            if part == "queryPlanner" {
                one.append("connectionString", shard.set.text());
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
