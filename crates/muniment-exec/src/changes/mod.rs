//! Change streams: pipelines over the log.
//!
//! `feed` reads the end of the log once for all streams and wakes those that an entry may concern;
//! `scope` says what a stream watches; `event` makes events from operations; `token` describes a
//! stream's position; `stream` is the source on which a pipeline's other stages run; `split`
//! divides large events.
//!
//! Invariants: a stream gives every event after its place once, in the log's order, and only events
//! that are kept (see `feed`). A stream that begins after a token gives what follows the token's
//! event, also after a restart of the server. If the log does not reach back so far, the stream
//! fails (286); it never leaves anything out.

mod event;
pub(crate) mod feed;
mod merging;
mod moved;
pub(crate) mod scope;
mod shared;
mod split;
mod stream;
mod token;

use crate::context::query_context;
use crate::cursor::Cursor;
use crate::database::Database;
use crate::operation::OpContext;
use crate::run::current::CurrentOp;
use crate::source::Source;
use crate::verbs::aggregate::AggregateRequest;
use crate::verbs::aggregate::link::Link;
pub use merging::{EventTokens, mark_before, read_token};
use muniment_query::stage::change_stream::{ChangeStreamSpec, SHARD, SPLIT, check_behind};
use muniment_query::{Clocks, Pipeline, QueryContext};
use muniment_value::{ArrayBuf, Code, Doc, Elem, Error, Result};
use scope::Scope;
pub(crate) use shared::Changes;
use split::Splitter;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use stream::{ChangeStream, Start, Wanted};

/// Implements [`Database::image_seconds`].
pub(crate) fn image_seconds(engine: &Database) -> Arc<AtomicI64> {
    engine.changes.image_seconds.clone()
}

/// Opens a pipeline that begins with `$changeStream`.
///
/// # Errors
/// The errors of the stage; 20 IllegalOperation for a stage that may not follow it; 73
/// InvalidNamespace and 72 InvalidOptions for something that cannot be watched; 166 for a view; 286
/// ChangeStreamHistoryLost if the log does not reach back to the stream's beginning.
pub(crate) fn open_changes(
    engine: &Database,
    op: &Arc<OpContext>,
    request: &AggregateRequest<'_>,
    stage: Elem<'_>,
) -> Result<Cursor> {
    let spec = ChangeStreamSpec::parse(stage)?;
    check_behind(request.pipeline)?;
    if spec.shard.is_some() && !request.member {
        return Err(Error::new(
            Code::InvalidOptions,
            format!("{SHARD} is for a cluster's own members"),
        ));
    }
    let scope = watched(engine, request, &spec)?;
    let collation = request.collation.clone().unwrap_or_default();
    let current = CurrentOp::new(op);
    let ctx = QueryContext {
        db: request.db.to_string(),
        collection: request.collection.unwrap_or_default().to_string(),
        clocks: Clocks::NowAndCluster,
        ..query_context(op, request.let_, collation)?.with_operation(current.clone())
    };
    let (stages, splits) = stages_of(request.pipeline)?;
    let pipeline = Pipeline::parse(stages.as_doc(), &ctx)?;
    let link = Link::new(engine, &current, request)?;
    let newest = match engine.store.majority() {
        // After `Store::keep` the majority no longer advances, and the wait below would never end.
        Some(majority) if engine.store.is_kept() => majority.at,
        _ => engine.store.visible(),
    };
    let start = Start::of(&spec, newest)?;
    if spec.resume_after.or(spec.start_after).is_none() && spec.start_at.is_none() {
        // The stream's first token names this place. If a power cut or an election took back
        // entries before it, later writes would get places before it too, and a client that resumes
        // from the token would never be told of them.
        match engine.store.majority() {
            None => engine.store.sync()?,
            Some(_) => engine.store.wait_for_majority(start.position(), &**op)?,
        }
    }
    // If a router has the other stages, it checks that itself.
    let elsewhere = spec.shard.is_some() && spec.full_document == Some("updateLookup");
    if !elsewhere {
        check_parts(start.fragments, splits)?;
    }
    // With a collation, `$match` may hold different strings equal, so no kind of event is left out.
    let wanted = match &request.collation {
        None => Wanted::of(stages.as_doc()),
        Some(_) => Wanted::default(),
    };
    let source = ChangeStream::new(&link.engine, &current, scope, &spec, &start, wanted)?;
    let state = source.tail();
    let stream = pipeline.open(Box::new(source), &link.runtime()?)?;
    let stream = match splits {
        true => {
            let told = state.clone();
            Box::new(Splitter::new(
                stream,
                move |t: Doc<'_>| told.gives(t),
                start.fragments,
            ))
        }
        false => stream,
    };
    op.watches_changes();
    Ok(Cursor::of_stream(&request.namespace(), None, stream, current).with_tail(state))
}

/// The stages of a stream's pipeline between the first one and the one that splits large events, and
/// whether there is such a one.
///
/// # Errors
/// 7182800 if that has options.
pub fn stages_of(pipeline: Doc<'_>) -> Result<(ArrayBuf, bool)> {
    let (mut stages, mut splits) = (ArrayBuf::new(), false);
    for v in pipeline.values().skip(1) {
        let first = v.as_doc().and_then(|d| d.first());
        match first.filter(|e| e.name() == SPLIT) {
            Some(e) if e.value().as_doc().is_some_and(|d| d.is_empty()) => splits = true,
            Some(_) => {
                return Err(Error::location(
                    7_182_800,
                    format!("{SPLIT} spec should be an empty object"),
                ));
            }
            None => drop(stages.push(v)),
        }
    }
    Ok((stages, splits))
}

/// Checks whether a stream of an event's part can be resumed.
///
/// # Errors
/// 280 ChangeStreamFatalError.
pub fn check_parts(had: u32, splits: bool) -> Result<()> {
    if had == 0 || splits {
        return Ok(());
    }
    Err(Error::new(
        Code::ChangeStreamFatalError,
        format!(
            "cannot resume stream; the resume token is of a part of an event, which only a stream \
             with {SPLIT} has"
        ),
    ))
}

/// Checks whether anybody may watch this. `namespace` is what the command names.
///
/// # Errors
/// 72 InvalidOptions, 73 InvalidNamespace.
pub fn check_watched(db: &str, collection: Option<&str>, all: bool, namespace: &str) -> Result<()> {
    let refused = |what: &str| {
        Err(Error::new(
            Code::InvalidNamespace,
            format!("$changeStream may not be opened on the internal {what}"),
        ))
    };
    if all && (db != "admin" || collection.is_some()) {
        return Err(Error::new(
            Code::InvalidOptions,
            format!(
                "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' \
                 database, and with no collection name; found {namespace}"
            ),
        ));
    }
    match collection {
        _ if all => Ok(()),
        _ if matches!(db, "admin" | "config" | "local") => refused(&format!("{db} database")),
        Some(c) if c.starts_with("system.") => refused(&format!("{db}.{c} collection")),
        _ => Ok(()),
    }
}

/// The part of the data that a stream watches.
fn watched(
    engine: &Database,
    request: &AggregateRequest<'_>,
    spec: &ChangeStreamSpec<'_>,
) -> Result<Scope> {
    let (db, collection) = (request.db, request.collection);
    // Routers watch which shards there are.
    if !(request.member && db == "config") {
        check_watched(db, collection, spec.all, &request.namespace())?;
    }
    if let Some(c) = collection {
        let namespace = format!("{db}.{c}");
        let source = Source::now(&engine.store, &namespace)?;
        if source.is_view_like() {
            let kind = match source {
                Source::View(_) => "views",
                _ => "time-series collections",
            };
            return Err(Error::new(
                Code::CommandNotSupportedOnView,
                format!("$changeStream is not supported on {kind}: {namespace}"),
            ));
        }
    }
    Ok(Scope::of(db, collection, spec.all))
}
