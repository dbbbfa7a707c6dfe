//! Commands on views over sharded collections.
//!
//! The router has found out that a name is that of such a view ([`crate::router::views`]). It runs the command as a
//! pipeline over the collection below.

use super::pipeline::{Whole, check, over, take_part};
use super::place::{View, view};
use super::read_by::read_by;
use super::reads::distinct_of;
use super::{collation_in, time_of_read};
use crate::commands::cursor_reply::limits;
use crate::context::CommandContext;
use crate::generic::Generic;
use crate::namespace;
use crate::registry::{self, CommandSpec};
use crate::router::Router;
use crate::router::place::{OF_CONFIG, first_stage, set_of};
use muniment_exec::BatchLimits;
use muniment_value::args::Args;
use muniment_value::{ArrayBuf, Code, Collation, Doc, DocBuf, Error, Result, doc, number};

/// The longest chain of views, as on one server.
const MAX_DEPTH: usize = 20;

/// The first stages of pipelines that are about a view itself, or that no view has: its shard knows.
const OF_ITSELF: [&str; 6] = [
    "$changeStream",
    "$collStats",
    "$indexStats",
    "$listCatalog",
    "$listSearchIndexes",
    "$planCacheStats",
];

/// The view over a sharded collection that a command reads, if it reads one.
///
/// # Errors
/// Those of reading the configuration, and of the shard.
pub fn of_command(cx: &CommandContext<'_>, router: &Router) -> Result<Option<View>> {
    named(cx, router, (cx.spec, cx.collection_name()), cx.request.body)
}

/// The same of a command that explain names.
///
/// # Errors
/// As [`of_command`].
pub fn of_explained(
    cx: &CommandContext<'_>,
    router: &Router,
    command: Doc<'_>,
) -> Result<Option<View>> {
    let first = command.first();
    let spec = first.and_then(|e| registry::find(e.name()));
    let name = first.and_then(|e| e.value().as_str());
    match spec.zip(name) {
        Some(of) => named(cx, router, of, command),
        None => Ok(None),
    }
}

fn named(
    cx: &CommandContext<'_>,
    router: &Router,
    (spec, name): (&CommandSpec, &str),
    body: Doc<'_>,
) -> Result<Option<View>> {
    let is_of_view = OF_ITSELF.contains(&first_stage(body));
    if spec.on_view.is_none() || is_of_view || name.is_empty() || OF_CONFIG.contains(&cx.db()) {
        return Ok(None);
    }
    let found = router
        .views
        .over_sharded(&**cx.op, router, (cx.db(), name))?;
    Ok(found.map(|found| found.view))
}

fn definition(cx: &CommandContext<'_>, router: &Router, name: &str) -> Result<Option<View>> {
    let set = set_of(cx, router, cx.db())?;
    view(&**cx.op, router, &set, cx.db(), name)
}

/// A view, taken apart.
struct Resolved {
    /// The collection below it.
    on: String,
    /// All stages.
    pipeline: ArrayBuf,
    /// The view's, whatever that of the collection is.
    collation: DocBuf,
}

/// Takes a view of this name apart, and the views below it.
///
/// # Errors
/// 165 ViewDepthLimitExceeded; those of the view's shard.
fn resolve(cx: &CommandContext<'_>, router: &Router, name: &str, view: View) -> Result<Resolved> {
    let (mut on, collation) = (view.on, view.collation);
    let mut levels = vec![view.pipeline];
    loop {
        let known = router
            .tables
            .of(&**cx.op, router, &format!("{}.{on}", cx.db()))?;
        let next = match known {
            Some(_) => None,
            None => definition(cx, router, &on)?,
        };
        let Some(next) = next else { break };
        if levels.len() >= MAX_DEPTH {
            return Err(Error::new(
                Code::ViewDepthLimitExceeded,
                format!(
                    "View depth limit exceeded; maximum depth is {MAX_DEPTH}; view: {}.{name}",
                    cx.db()
                ),
            ));
        }
        levels.push(next.pipeline);
        on = next.on;
    }
    let mut pipeline = ArrayBuf::new();
    for stages in levels.iter().rev() {
        add(&mut pipeline, stages);
    }
    Ok(Resolved {
        on,
        pipeline,
        collation: collation.unwrap_or_else(|| doc! { "locale": "simple" }),
    })
}

/// Refuses another collation than the view's.
///
/// # Errors
/// 167 OptionNotSupportedOnView.
fn check_collation(cx: &CommandContext<'_>, view: &Resolved, given: Option<Doc<'_>>) -> Result<()> {
    let of_view = Collation::parse_some(Some(view.collation.as_doc()))?;
    if given.is_none() || Collation::parse_some(given)? == of_view {
        return Ok(());
    }
    Err(Error::new(
        Code::OptionNotSupportedOnView,
        format!("Cannot override default collation of view {}", cx.ns()),
    ))
}

/// Runs find, aggregate, count or distinct on a view.
///
/// # Errors
/// 165 ViewDepthLimitExceeded; 20 for other commands; those of the pipeline.
pub fn run(cx: &mut CommandContext<'_>, router: &Router, view: View) -> Result<()> {
    let body = cx.request.body;
    let stages = own_stages(cx.spec, &cx.args, (cx.ns(), cx.db(), cx.collection_name()))?;
    let mut view = resolve(cx, router, cx.collection_name(), view)?;
    check_collation(cx, &view, collation_in(body))?;
    add(&mut view.pipeline, &stages);
    let collation = Some(view.collation.as_doc());
    let mut read = Vec::new();
    read_by(view.pipeline.as_doc(), &mut read);
    if cx.spec.name == "distinct" {
        read.push(view.on.clone());
    }
    take_part(cx, router, &read)?;
    if cx.spec.name == "distinct" {
        return distinct_of(cx, router, (&view.on, view.pipeline.as_doc()), collation);
    }
    let (limits, single) = match cx.spec.name {
        "aggregate" => {
            check(cx)?;
            (limits(cx.args.doc("cursor"), BatchLimits::FIRST)?, false)
        }
        "find" => {
            let size = cx.args.int("batchSize", 0, i64::MAX)?;
            let of = |n| BatchLimits::of(n as usize);
            let single = cx.args.bool("singleBatch", false);
            (size.map_or(BatchLimits::FIRST, of), single)
        }
        _ => (BatchLimits::FIRST, true),
    };
    let ns = format!("{}.{}", cx.db(), view.on);
    let known = router.tables.of(&**cx.op, router, &ns)?;
    let known = match (known, time_of_read(cx)) {
        (Some(known), Some(time)) => Some(known.at(&**cx.op, router, time)?),
        (known, _) => known,
    };
    let whole = Whole {
        collection: &view.on,
        pipeline: view.pipeline.as_doc(),
        collation,
        limits,
        single,
    };
    if cx.spec.name == "count" {
        return count(cx, |cx| over(cx, router, known.as_deref(), &whole));
    }
    over(cx, router, known.as_deref(), &whole)
}

/// The aggregate over the collection below a view that a command on the view comes to.
///
/// # Errors
/// As [`run`].
pub fn aggregate_below(
    cx: &CommandContext<'_>,
    router: &Router,
    (command, view): (Doc<'_>, View),
) -> Result<DocBuf> {
    let first = command.first();
    let name = first.and_then(|e| e.value().as_str());
    let stages = stages_of_explained(command, cx.db())?;
    let mut view = resolve(cx, router, name.unwrap_or_default(), view)?;
    check_collation(cx, &view, collation_in(command))?;
    add(&mut view.pipeline, &stages);
    let mut below = doc! { "aggregate": view.on, "pipeline": view.pipeline, "cursor": doc! {} };
    below.append("collation", &view.collation);
    for name in ["let", "hint"] {
        below.append_some(name, command.get(name));
    }
    Ok(below)
}

/// The stages that do on a view what a command with these arguments does.
///
/// # Errors
/// Those of the arguments; 168 InvalidPipelineOperator for an option that no stage can express; 20 IllegalOperation for
/// other commands than those that read views.
fn own_stages(spec: &CommandSpec, args: &Args<'_>, view: (&str, &str, &str)) -> Result<ArrayBuf> {
    match spec.on_view {
        Some(stages) => stages(args, view),
        None => Err(Error::new(
            Code::IllegalOperation,
            format!(
                "{} does not run on {} yet, a view over a sharded collection",
                spec.name, view.0
            ),
        )),
    }
}

/// As [`own_stages`], of a command that explain names.
fn stages_of_explained(command: Doc<'_>, db: &str) -> Result<ArrayBuf> {
    let first = command.first();
    let spec = first.and_then(|e| registry::find(e.name()));
    let (Some(first), Some(spec)) = (first, spec) else {
        return Ok(ArrayBuf::new());
    };
    let mut generic = Generic::default();
    let args = Args::parse_with(spec.name, spec.fields, command.iter().skip(1), |e| {
        generic.take(spec.name, e)
    })?;
    let name = namespace::collection_of(db, first.value())?;
    own_stages(spec, &args, (&format!("{db}.{name}"), db, name))
}

/// Puts stages after others.
fn add(pipeline: &mut ArrayBuf, stages: &ArrayBuf) {
    for stage in stages.as_doc().values() {
        pipeline.push(stage);
    }
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
    let n = first
        .and_then(|d| d.get("count")?.as_i64_exact())
        .unwrap_or(0);
    cx.reply.field("n", number::narrow(n));
    Ok(())
}
