//! `aggregate`: a pipeline is split between the planner and the stages above it.
//!
//! The beginning of a pipeline (`$match`, `$sort`, `$skip`, `$limit`, `$project`) is planned like a
//! find ([`mod@split`]); the rest runs on the plan's rows. Stages that read other collections reach
//! the database through [`host`], and their pipelines are opened the same way ([`mod@open`]).

mod host;
mod join;
mod join_cache;
pub(crate) mod link;
pub(crate) mod near;
pub(crate) mod open;
mod request;
pub(crate) mod rows;
pub(crate) mod split;

pub use request::AggregateRequest;

use crate::changes::open_changes;
use crate::context::query_context;
use crate::cursor::{Cursor, CursorFlags, Opener};
use crate::database::Database;
use crate::operation::OpContext;
use crate::run::current::CurrentOp;
use crate::source::Source;
use crate::view::Resolved;
use link::Link;
use muniment_query::stage::{change_stream, check_target};
use muniment_query::{Pipeline, QueryContext};
use muniment_value::Result;
use open::open;
use rows::Opened;
use std::sync::Arc;

/// Implements [`Database::aggregate`].
pub(crate) fn aggregate(
    engine: &Database,
    op: &Arc<OpContext>,
    request: &AggregateRequest<'_>,
) -> Result<Cursor> {
    if let Some(stage) = change_stream::at_front(request.pipeline) {
        return open_changes(engine, op, request, stage);
    }
    let current = CurrentOp::new(op);
    let ctx = aggregate_context(engine, op, request)?.with_operation(current.clone());
    let link = Link::new(engine, &current, request)?;
    let namespace = request.namespace();
    let opened = open(&link, request.pipeline, &ctx, request.hint)
        .map_err(|e| e.executing_context(&Opener::Aggregate.context(&namespace)))?;
    Ok(match opened {
        Opened::Plan(exec, collection) => {
            Cursor::of_exec(&namespace, collection, *exec, CursorFlags::default())
                .opened_by(Opener::Aggregate)
        }
        Opened::Stream(stream, collection) => {
            Cursor::of_stream(&namespace, collection, stream, current)
        }
    })
}

/// Makes the context of a command's pipeline, and does the checks that come before any parsing.
pub(crate) fn aggregate_context(
    engine: &Database,
    op: &Arc<OpContext>,
    request: &AggregateRequest<'_>,
) -> Result<QueryContext> {
    let given = request.collation.as_ref();
    let mut ctx = match request.collection {
        Some(c) => {
            let namespace = format!("{}.{c}", request.db);
            let source = Source::now(&engine.store, &namespace)?;
            source.context(op, &namespace, request.let_, given)?
        }
        None => query_context(op, request.let_, given.cloned().unwrap_or_default())?,
    };
    ctx.db = request.db.to_string();
    ctx.member = request.member;
    ctx.collection = request.collection.unwrap_or_default().to_string();
    let target = check_target(request.pipeline, request.db, request.collection.is_some());
    if let Err(e) = target {
        // MongoDB reports stages that a $facet must not contain before this error, so the pipeline
        // is parsed first.
        let first = request.pipeline.values().next().and_then(|v| v.as_doc());
        if first.is_some_and(|d| d.get("$facet").is_some()) {
            Pipeline::parse(request.pipeline, &ctx)?;
        }
        return Err(e);
    }
    Pipeline::check(request.pipeline, &ctx)?;
    Ok(ctx)
}

/// Runs stages on top of a view; the cursor carries the view's name.
pub(crate) fn aggregate_view(
    engine: &Database,
    op: &Arc<OpContext>,
    view: &Resolved,
    request: &AggregateRequest<'_>,
    name: &str,
) -> Result<Cursor> {
    let pipeline = view.with(request.pipeline);
    let (db, collection) = view.parts();
    let given = request.collation.as_ref();
    let below = AggregateRequest {
        db,
        collection: Some(collection),
        pipeline: pipeline.as_doc(),
        // `check_collation` has made sure that a given collation is the view's own. Buckets have
        // none, so any may be given.
        collation: Some(given.unwrap_or(&view.collation).clone()),
        ..request.clone()
    };
    Ok(aggregate(engine, op, &below)?.named(name))
}
