//! aggregate over sharded collections.

use super::host::Around;
use super::into::Into;
use super::pipeline::{Whole, check, over, over_whole, shards_of, take_part};
use super::read_by::read_by;
use super::remote::{Output, Remote, Terms};
use super::whole::{bring_home, track_and_move};
use super::{Repeats, broadcast, collation_in, is_stale, time_of_read, to_one, view, with_terms};
use crate::commands::cursor_reply::limits;
use crate::context::CommandContext;
use crate::router::Router;
use crate::router::place::{OF_CONFIG, first_stage, is_of_router};
use crate::router::relay::{database, stored_sessions};
use crate::router::streams;
use crate::router::tables::Known;
use bytes::Bytes;
use muniment_exec::{BatchLimits, Cursor};
use muniment_query::stage::change_stream;
use muniment_query::{DocStream, Pipeline};
use muniment_value::{ArrayBuf, Collation, Doc, Result, doc};
use std::collections::VecDeque;
use std::sync::Arc;

/// Runs aggregate.
///
/// # Errors
/// Those of the command.
pub fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    if is_of_router(cx.request.body) {
        return (cx.spec.run)(cx);
    }
    if first_stage(cx.request.body) == change_stream::NAME {
        return streams::open(cx, router);
    }
    if first_stage(cx.request.body) == "$listSessions" {
        if let Some(into) = target(cx) {
            into.is_elsewhere(cx, router)?;
        }
        return stored_sessions(cx, router);
    }
    let into = target(cx);
    at_home(cx, router, into.as_ref(), |cx| repeated(cx, router))
}

/// Runs a command. If it replaces a collection that is not on the shard of its database, that is brought there before,
/// and goes back to its own shard with the results, if it can.
///
/// # Errors
/// Those of the command.
pub fn at_home<'c>(
    cx: &mut CommandContext<'c>,
    router: &Router,
    into: Option<&Into>,
    run: impl FnOnce(&mut CommandContext<'c>) -> Result<()>,
) -> Result<()> {
    let explained = cx.request.body.get("explain").is_some_and(|v| v.truthy());
    let replaced = into.filter(|into| into.replaces && !explained);
    let Some(into) = replaced else {
        return run(cx);
    };
    let known = router.tables.of(&**cx.op, router, &into.ns)?;
    let Some(known) = known.filter(|known| known.collection.unsplittable) else {
        return run(cx);
    };
    let shard = known.all().first().copied().unwrap_or(0);
    bring_home(cx, router, &into.ns)?;
    let done = run(cx);
    // The results are there anyway.
    let _ = track_and_move(cx, router, &into.ns, known.table.shard_name(shard));
    done
}

/// Runs aggregate, again if shards and router differ.
fn repeated(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let begun = cx.reply.buffer().len();
    let mut repeats = Repeats::new();
    loop {
        let done = match view::of_command(cx, router) {
            Ok(Some(view)) if cx.args.bool("explain", false) => {
                super::explain::pipeline_of_view(cx, router, view)
            }
            Ok(Some(view)) => view::run(cx, router, view),
            Ok(None) => attempt(cx, router),
            Err(e) => Err(e),
        };
        match done {
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
            if let Some(time) = time_of_read(cx) {
                known = known.map(|k| k.at(&**cx.op, router, time)).transpose()?;
            }
        }
        any = !others.is_empty()
            && router
                .views
                .below(&**cx.op, router, cx.db(), &others)?
                .sharded;
    }
    let elsewhere = match target(cx) {
        Some(into) => into.is_elsewhere(cx, router)?,
        None => false,
    };
    let on_shards = known.is_some() || any;
    if !on_shards && !elsewhere {
        return database(cx, router);
    }
    if cx.args.bool("explain", false) {
        return super::explain::pipeline(cx, router, known.as_deref());
    }
    check(cx)?;
    let writes = (cx.spec.writes_output)(cx.request.body);
    let first = limits(cx.args.doc("cursor"), BatchLimits::FIRST)?;
    if !on_shards {
        return over_whole(cx, router, pipeline, first);
    }
    if let Some(known) = &known
        && reports_shards(pipeline)
    {
        return of_each_shard(cx, router, known);
    }
    if let Some(known) = &known
        && others.is_empty()
        && !writes
        && let [one] = shards_of(cx, known, (pipeline, collation_in(cx.request.body))).as_slice()
    {
        return to_one(cx, router, known, *one);
    }
    take_part(cx, router, &others)?;
    let whole = Whole {
        collection: cx.collection_name(),
        pipeline,
        collation: collation_in(cx.request.body),
        limits: first,
        single: false,
    };
    over(cx, router, known.as_deref(), &whole)
}

/// Whether a pipeline begins with what each shard tells of itself.
fn reports_shards(pipeline: Doc<'_>) -> bool {
    let first = pipeline.values().next().and_then(|v| v.as_doc()?.first());
    first.is_some_and(|e| ["$collStats", "$indexStats"].contains(&e.name()))
}

/// Runs a pipeline whose first stage reports on the collection: each shard runs that stage alone, and the router adds
/// the shard's name to what it says before the other stages.
fn of_each_shard(cx: &mut CommandContext<'_>, router: &Router, known: &Known) -> Result<()> {
    let pipeline = cx.request.body.get_array("pipeline").unwrap_or(Doc::EMPTY);
    let mut stages = pipeline.values();
    let first: ArrayBuf = stages.next().into_iter().collect();
    let rest: ArrayBuf = stages.collect();
    let mut ctx = cx.engine().context(
        cx.op,
        cx.args.doc("let").unwrap_or(Doc::EMPTY),
        Collation::parse_some(collation_in(cx.request.body))?,
    )?;
    ctx.db = cx.db().to_string();
    ctx.collection = cx.collection_name().to_string();
    let rest = Pipeline::parse(rest.as_doc(), &ctx)?;
    let shards = known.all();
    let body = doc! { "aggregate": cx.collection_name(), "pipeline": first, "cursor": doc! {} };
    let replies = broadcast(cx, router, known, &shards, with_terms(cx, body).as_doc())?;
    let limits = limits(cx.args.doc("cursor"), BatchLimits::FIRST)?;
    let allow_disk_use = cx.args.get("allowDiskUse").map(|v| v.truthy());
    let output = Arc::new(Output::of(cx));
    let cursor = Cursor::over(cx.ns(), cx.op, false, |on| {
        let terms = Terms::new(cx, &on).with_output(&output);
        let mut parts = VecDeque::new();
        for (shard, reply) in shards.iter().zip(&replies) {
            let name = known.table.shard_name(*shard).to_string();
            parts.push_back((name, Remote::new(&terms, known.set(*shard)?, reply)?));
        }
        rest.open(
            Box::new(Named(parts)),
            &Around::runtime(&terms, allow_disk_use),
        )
    })?;
    output.guard(cx.first_batch(cursor, limits))
}

/// Documents of shards, with the shards' names.
struct Named(VecDeque<(String, Remote)>);

impl DocStream for Named {
    fn next(&mut self) -> Result<Option<Bytes>> {
        while let Some((name, stream)) = self.0.front_mut() {
            if let Some(d) = stream.next()? {
                let mut named = Doc::new(&d).to_buf();
                named.append("shard", name.as_str());
                return Ok(Some(named.into_bytes().into()));
            }
            self.0.pop_front();
        }
        Ok(None)
    }
}

/// The collection that the last stage writes to.
fn target(cx: &CommandContext<'_>) -> Option<Into> {
    let stages = cx.request.body.get_array("pipeline")?;
    Into::of(stages.values().last()?.as_doc()?, cx.db())
}
