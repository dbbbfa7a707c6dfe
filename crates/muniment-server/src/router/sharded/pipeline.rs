//! Pipelines over shards: each shard runs a part, and the router the rest over the merged streams of their cursors.
//!
//! How a pipeline is divided is in `muniment_query::split`. Stages that read other collections find them through
//! [`Around`].

use super::host::{Around, Empty};
use super::output::variables;
use super::place::collation_of;
use super::reads::at_least_one;
use super::remote::{Output, Terms, streams};
use super::{OnSet, collation_in, gather, reached, told, unlimited, with_terms};
use crate::context::CommandContext;
use crate::placement::merging;
use crate::router::Router;
use crate::router::place::set_of;
use crate::router::tables::Known;
use muniment_exec::{BatchLimits, Cursor};
use muniment_query::Pipeline;
use muniment_query::split::{Division, split};
use muniment_value::args::{Types, check_type};
use muniment_value::{ArrayBuf, Code, Collation, Doc, DocBuf, Error, Result, Value, doc};
use std::sync::Arc;

/// The fields of a command that its pipeline on a shard has, too.
const PASSED: [&str; 10] = [
    "allowDiskUse",
    "autocommit",
    "comment",
    "hint",
    "maxTimeMS",
    "readConcern",
    "$readPreference",
    "startTransaction",
    "txnNumber",
    "bypassDocumentValidation",
];

/// A pipeline that runs on shards and on the router.
pub struct Whole<'w> {
    /// The collection, without its database.
    pub collection: &'w str,
    /// The stages.
    pub pipeline: Doc<'w>,
    /// The collation, if it is not the collection's.
    pub collation: Option<Doc<'w>>,
    /// The size of the first batch.
    pub limits: BatchLimits,
    /// The cursor ends after its first batch.
    pub single: bool,
}

/// Runs a pipeline over a collection, which is sharded or on the shard of its database. The reply gets the cursor.
///
/// # Errors
/// Those of the pipeline.
pub fn over(
    cx: &mut CommandContext<'_>,
    router: &Router,
    known: Option<&Known>,
    whole: &Whole<'_>,
) -> Result<()> {
    let own = known.and_then(|k| k.collection.default_collation.as_ref());
    let collation = whole.collation.or(own.map(|d| d.as_doc()));
    let let_ = cx.args.doc("let").unwrap_or(Doc::EMPTY);
    let mut ctx = cx
        .engine()
        .context(cx.op, let_, Collation::parse_some(collation)?)?;
    ctx.db = cx.db().to_string();
    ctx.collection = whole.collection.to_string();
    let split = match split(whole.pipeline, &ctx)? {
        Division::Split(split) => split,
        Division::Router(pipeline) => return on_router(cx, pipeline, whole),
        Division::Alone(stage) => {
            return Err(Error::new(
                Code::IllegalOperation,
                format!(
                    "{stage} does not run on {} yet, since it is sharded",
                    cx.ns()
                ),
            ));
        }
    };
    let mut sets: Vec<OnSet> = Vec::new();
    match known {
        Some(known) => {
            for shard in shards_of(cx, known, (whole.pipeline, whole.collation)) {
                sets.push((
                    Arc::clone(known.set(shard)?),
                    merging(known.versions(shard)),
                ));
            }
        }
        None => sets.push((set_of(cx, router, cx.db())?, merging(DocBuf::new()))),
    }
    let mut body = doc! {
        "aggregate": whole.collection, "pipeline": split.shards.clone(), "cursor": doc! {},
    };
    body.append_some("collation", whole.collation);
    // One value for all shards: an expression may have others each time.
    body.append_some("let", (!let_.is_empty()).then(|| variables(&ctx)));
    for e in cx.request.body.iter().skip(1) {
        if PASSED.contains(&e.name()) && !matches!(e.value(), Value::Null) {
            body.append_elem(e);
        }
    }
    body.append_some("maxTimeMS", unlimited(cx));
    let replies = gather(cx, router, &sets, body.as_doc())?;
    let allow_disk_use = cx.request.body.get("allowDiskUse").map(|v| v.truthy());
    let output = Arc::new(Output::of(cx));
    let cursor = Cursor::over(cx.ns(), cx.op, whole.single, |on| {
        let terms = Terms::new(cx, &on).with_output(&output);
        let streams = streams(&terms, &sets, &replies)?;
        split.open(streams, &Around::runtime(&terms, allow_disk_use))
    })?;
    output.guard(cx.first_batch(cursor, whole.limits))?;
    told(cx, router);
    Ok(())
}

/// Runs a pipeline whose stages find their documents by themselves. The reply gets the cursor.
fn on_router(cx: &mut CommandContext<'_>, pipeline: Pipeline, whole: &Whole<'_>) -> Result<()> {
    if cx.generic.in_transaction() {
        return Err(Error::new(
            Code::IllegalOperation,
            "a pipeline that begins with $rankFusion does not run on a sharded collection in a transaction",
        ));
    }
    let allow_disk_use = cx.request.body.get("allowDiskUse").map(|v| v.truthy());
    let output = Arc::new(Output::of(cx));
    let cursor = Cursor::over(cx.ns(), cx.op, whole.single, |on| {
        let terms = Terms::new(cx, &on).with_output(&output);
        pipeline.open(Box::new(Empty), &Around::runtime(&terms, allow_disk_use))
    })?;
    output.guard(cx.first_batch(cursor, whole.limits))
}

/// Runs a pipeline over a collection that is not sharded, or over none, and writes its results to another shard: the
/// shard of the database runs all stages but the last. The reply gets the cursor.
///
/// # Errors
/// Those of the pipeline.
pub fn over_whole(
    cx: &mut CommandContext<'_>,
    router: &Router,
    pipeline: Doc<'_>,
    limits: BatchLimits,
) -> Result<()> {
    let set = set_of(cx, router, cx.db())?;
    let own = match (collation_in(cx.request.body), cx.collection_name()) {
        (Some(_), _) | (None, "") => None,
        (None, name) => collation_of(&**cx.op, router, &set, cx.db(), name)?,
    };
    let collation = collation_in(cx.request.body).or(own.as_ref().map(|d| d.as_doc()));
    let let_ = cx.args.doc("let").unwrap_or(Doc::EMPTY);
    let collation = Collation::parse_some(collation)?;
    let mut ctx = cx.engine().context(cx.op, let_, collation)?;
    ctx.db = cx.db().to_string();
    ctx.collection = cx.collection_name().to_string();
    Pipeline::check(pipeline, &ctx)?;
    Pipeline::parse(pipeline, &ctx)?;
    let mut stages: Vec<Value<'_>> = pipeline.values().collect();
    let last: ArrayBuf = stages.pop().into_iter().collect();
    let last = Pipeline::parse(last.as_doc(), &ctx)?;
    let stages: ArrayBuf = stages.into_iter().collect();
    let mut body = DocBuf::new();
    body.append_some("aggregate", cx.request.body.first().map(|e| e.value()));
    body.append("pipeline", stages);
    body.append("cursor", doc! {});
    body.append_some("collation", collation_in(cx.request.body));
    body.append_some("let", (!let_.is_empty()).then(|| variables(&ctx)));
    for e in cx.request.body.iter().skip(1) {
        if PASSED.contains(&e.name()) && !matches!(e.value(), Value::Null) {
            body.append_elem(e);
        }
    }
    body.append_some("maxTimeMS", unlimited(cx));
    let sets: Vec<OnSet> = vec![(set, DocBuf::new())];
    let replies = gather(cx, router, &sets, body.as_doc())?;
    let allow_disk_use = cx.request.body.get("allowDiskUse").map(|v| v.truthy());
    let output = Arc::new(Output::of(cx));
    let cursor = Cursor::over(cx.ns(), cx.op, false, |on| {
        let terms = Terms::new(cx, &on).with_output(&output);
        let stream = streams(&terms, &sets, &replies)?.pop();
        let stream = stream.ok_or_else(|| Error::internal("a reply is lost"))?;
        last.open(stream, &Around::runtime(&terms, allow_disk_use))
    })?;
    output.guard(cx.first_batch(cursor, limits))
}

/// The shards that the first stage can reach of a pipeline with this collation, if it is not the collection's.
pub fn shards_of(
    cx: &CommandContext<'_>,
    known: &Known,
    (pipeline, collation): (Doc<'_>, Option<Doc<'_>>),
) -> Vec<usize> {
    let first = pipeline.values().next().and_then(|v| v.as_doc()?.first());
    let filter = first.filter(|e| e.name() == "$match");
    match filter.and_then(|e| e.value().as_doc()) {
        Some(filter) => at_least_one(reached(cx, known, filter, collation)),
        None => known.all(),
    }
}

/// Refuses an aggregate whose pipeline is none, or that says nothing of its cursor.
///
/// # Errors
/// 14 TypeMismatch; 9 FailedToParse.
pub fn check(cx: &CommandContext<'_>) -> Result<()> {
    if let Some(v) = cx.args.get("pipeline") {
        check_type("aggregate", "pipeline", Types::ARRAY, v.ty())?;
    }
    match cx.args.doc("cursor") {
        Some(_) => Ok(()),
        None => Err(Error::failed_to_parse(
            "The 'cursor' option is required, except for aggregate with the explain argument",
        )),
    }
}

/// Has the shards of collections that stages read take part in the client's transaction, if there is one, before that.
///
/// # Errors
/// Those of the shards.
pub fn take_part(cx: &CommandContext<'_>, router: &Router, names: &[String]) -> Result<()> {
    if !cx.generic.in_transaction() || names.is_empty() {
        return Ok(());
    }
    let below = router.views.below(&**cx.op, router, cx.db(), names)?;
    for name in below.collections {
        let ns = format!("{}.{name}", cx.db());
        let sets: Vec<OnSet> = match router.tables.of(&**cx.op, router, &ns)? {
            Some(known) => {
                let shards = known.all().into_iter();
                let sets = shards.map(|s| Ok((Arc::clone(known.set(s)?), known.versions(s))));
                sets.collect::<Result<_>>()?
            }
            None => vec![(set_of(cx, router, cx.db())?, DocBuf::new())],
        };
        let find = doc! { "find": name.as_str(), "limit": 1, "singleBatch": true };
        gather(cx, router, &sets, with_terms(cx, find).as_doc())?;
    }
    Ok(())
}
