//! Opens a pipeline over the source that its collection's name stands for.
//!
//! Invariant: everything that a stage opens asks the operation that uses the cursor *now* whether
//! it may go on, and releases its snapshot when the cursor idles.

use super::link::Link;
use super::near::{NearRows, Planning, plan_geo_near};
use super::rows::{Given, Opened, Rows};
use super::split::{Split, SplitPlan, count_split, plan_split};
use crate::oplog::open::open_generated;
use crate::plan::hint::Hint;
use crate::plan::text::refuse_text;
use crate::source::Source;
use crate::timeseries::read::Points;
use crate::timeseries::render::Buckets;
use crate::view;
use bytes::Bytes;
use muniment_query::stage::Stage;
use muniment_query::stage::geo_near::{at_front, behind_near};
use muniment_query::{Pipeline, QueryContext};
use muniment_storage::Collection;
use muniment_value::{Doc, Error, Result, Value};
use std::collections::VecDeque;
use std::sync::Arc;

/// Opens a pipeline over the context's collection.
pub(crate) fn open(
    link: &Link,
    stages: Doc<'_>,
    ctx: &QueryContext,
    hint: Option<Hint<'_>>,
) -> Result<Opened> {
    if let Some(operand) = at_front(stages) {
        return open_near(link, stages, operand, ctx, hint);
    }
    let pipeline = Pipeline::parse(stages, ctx)?;
    if let Some(refusal) = pipeline.refuses_time_series()
        && link.source(ctx)?.is_series()
    {
        return Err(refusal);
    }
    let given = |docs: VecDeque<Bytes>| Box::new(Given(docs));
    if ctx.collection.is_empty() || pipeline.has_source() {
        let stream = pipeline.open(given(VecDeque::new()), &link.runtime()?)?;
        return Ok(Opened::Stream(stream, link.collection(ctx)?));
    }
    match link.source(ctx)? {
        Source::Collection(collection) => open_collection(link, collection, pipeline, hint),
        Source::Generated(generated) => {
            let stream = open_generated(link, generated, pipeline, stages, ctx, hint)?;
            Ok(Opened::Stream(stream, None))
        }
        Source::Buckets(series) => {
            let buckets = open_buckets(link, &series, &pipeline, stages, ctx, hint)?;
            let stream = pipeline.open(Box::new(buckets), &link.runtime()?)?;
            Ok(Opened::Stream(stream, Some(series)))
        }
        Source::View(view) => {
            let namespace = format!("{}.{}", ctx.db, ctx.collection);
            let view = view::resolve(&link.engine.store, &namespace, &view)?;
            view.check_collation(&namespace, &ctx.collation)?;
            let below = QueryContext {
                collection: view.parts().1.to_string(),
                ..ctx.clone()
            };
            open(link, view.with(stages).as_doc(), &below, hint)
        }
        Source::Absent => {
            if let Some(Stage::Match(f)) = pipeline.stages().next() {
                refuse_text(&format!("{}.{}", ctx.db, ctx.collection), f)?;
            }
            let stream = pipeline.open(given(VecDeque::new()), &link.runtime()?)?;
            Ok(Opened::Stream(stream, None))
        }
    }
}

/// Opens a pipeline over a stored collection.
fn open_collection(
    link: &Link,
    collection: Arc<Collection>,
    pipeline: Pipeline,
    hint: Option<Hint<'_>>,
) -> Result<Opened> {
    let split = Split::of(pipeline);
    let op = link.op.get();
    if let Some(counts) = &split.counts {
        let counted = count_split(&link.engine, &op, &collection, hint, &split);
        let n = counted.map_err(Error::while_executing)?;
        let doc = counts.result(n).map(|d| Bytes::from(d.into_bytes()));
        let stream = Box::new(Given(doc.into_iter().collect()));
        return Ok(Opened::Stream(stream, Some(collection)));
    }
    let mut exec = plan_split(
        &link.engine,
        &op,
        &collection,
        &split,
        SplitPlan {
            shared: Some(&link.op),
            hint,
            allow_disk_use: link.allow_disk_use,
            explain: false,
        },
    )?
    .exec;
    exec.announce(&op);
    if split.rest.stages().any(|s| matches!(s, Stage::Sort(_))) {
        op.set_sorts();
    }
    if split.rest.is_empty() {
        return Ok(Opened::Plan(Box::new(exec), collection));
    }
    let rows = Box::new(Rows::new(exec, &link.op));
    let stream = split.rest.open(rows, &link.runtime()?)?;
    Ok(Opened::Stream(stream, Some(collection)))
}

/// Opens a pipeline that begins with `$geoNear`.
fn open_near(
    link: &Link,
    stages: Doc<'_>,
    (at, operand): (usize, Value<'_>),
    ctx: &QueryContext,
    hint: Option<Hint<'_>>,
) -> Result<Opened> {
    let collection = link.collection(ctx)?;
    let op = link.op.get();
    let rest = behind_near(stages, at, ctx)?;
    let (stage, key, mut choice) = plan_geo_near(
        &link.engine,
        &op,
        collection.as_ref(),
        ctx,
        operand,
        &Planning {
            hint,
            allow_disk_use: link.allow_disk_use,
            explain: false,
        },
    )?;
    choice.exec.announce(&op);
    let rows = Box::new(NearRows::new(choice.exec, stage, key, &link.op));
    let stream = rest.open(rows, &link.runtime()?)?;
    Ok(Opened::Stream(stream, collection))
}

/// Opens the buckets of a time-series collection, which are made from its measurements.
fn open_buckets(
    link: &Link,
    collection: &Collection,
    pipeline: &Pipeline,
    stages: Doc<'_>,
    ctx: &QueryContext,
    hint: Option<Hint<'_>>,
) -> Result<Buckets> {
    let points = Points::of(collection, stages, hint)?;
    let namespace = collection.namespace();
    let (_, name) = namespace.split_once('.').unwrap_or_default();
    let below = QueryContext {
        collection: name.to_string(),
        ..ctx.clone()
    };
    let opened = open(link, points.stages.as_doc(), &below, points.hint())?;
    let heads = pipeline.needs().is_some_and(|all| {
        let is_head = |path: &String| path == "_id" || path == "meta" || path.starts_with("meta.");
        all.iter().all(is_head)
    });
    let rows = opened.into_stream(&link.op);
    Ok(Buckets::new(rows, points.series, link.runtime()?, heads))
}
