//! aggregate over sharded collections.

use super::host::{Around, no_output};
use super::pipeline::{Whole, over, read_by, shards_of};
use super::remote::{Remote, Terms};
use super::{OnSet, Repeats, all_of, broadcast, gather, is_stale, to_one, view, with_terms};
use crate::commands::cursor_reply::limits;
use crate::context::CommandContext;
use crate::router::Router;
use crate::router::place::{OF_CONFIG, is_of_router, set_of};
use crate::router::relay::database;
use crate::router::tables::Known;
use bytes::Bytes;
use muniment_exec::{BatchLimits, Cursor};
use muniment_query::{DocStream, Pipeline};
use muniment_value::{ArrayBuf, Collation, Doc, DocBuf, Error, Result, Value, doc};
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
    let begun = cx.reply.buffer().len();
    let mut repeats = Repeats::new();
    // A view that the pipeline reads is over a sharded collection, which its shard has found out.
    let mut below = false;
    loop {
        match attempt(cx, router, below) {
            Err(e) if view::is_below(cx, router, &e)? => {
                cx.reply.buffer().truncate(begun);
                return view::run(cx, router);
            }
            Err(e) if is_stale(&e) => {
                below |= e
                    .extra()
                    .as_doc()
                    .get_str("ns")
                    .is_some_and(|ns| ns != cx.ns());
                repeats.next(cx, router, cx.ns(), e)?;
                cx.reply.buffer().truncate(begun);
            }
            other => return other,
        }
    }
}

fn attempt(cx: &mut CommandContext<'_>, router: &Router, below: bool) -> Result<()> {
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
    if let Some(ns) = target(cx)
        && router.tables.of(&**cx.op, router, &ns)?.is_some()
    {
        return Err(no_output());
    }
    if known.is_none() && !any && (others.is_empty() || !below) {
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
        && reports_shards(pipeline)
    {
        return of_each_shard(cx, router, known);
    }
    if let Some(known) = &known
        && others.is_empty()
        && let [one] = shards_of(cx, known, pipeline).as_slice()
    {
        return to_one(cx, router, known, *one);
    }
    if cx.generic.in_transaction() && !others.is_empty() {
        take_part(cx, router, &others)?;
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
        Collation::parse_some(cx.args.doc("collation"))?,
    )?;
    ctx.db = cx.db().to_string();
    ctx.collection = cx.collection_name().to_string();
    let rest = Pipeline::parse(rest.as_doc(), &ctx)?;
    let shards = all_of(known);
    let body = doc! { "aggregate": cx.collection_name(), "pipeline": first, "cursor": doc! {} };
    let replies = broadcast(cx, router, known, &shards, with_terms(cx, body).as_doc())?;
    let limits = limits(cx.args.doc("cursor"), BatchLimits::FIRST)?;
    let allow_disk_use = cx.args.get("allowDiskUse").map(|v| v.truthy());
    let cursor = Cursor::over(cx.ns(), cx.op, false, |on| {
        let terms = Terms::new(cx, &on);
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
    cx.first_batch(cursor, limits)
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
fn target(cx: &CommandContext<'_>) -> Option<String> {
    let stages = cx.request.body.get_array("pipeline")?;
    let last = stages.values().last()?.as_doc()?.first()?;
    let (operand, name) = (last.value().as_doc(), last.value().as_str());
    let (db, name) = match last.name() {
        "$out" => match operand {
            Some(d) => (d.get_str("db"), d.get_str("coll")),
            None => (None, name),
        },
        "$merge" => match operand.and_then(|d| d.get("into")) {
            Some(Value::Document(d)) => (d.get_str("db"), d.get_str("coll")),
            Some(v) => (None, v.as_str()),
            None => (None, name),
        },
        _ => return None,
    };
    Some(format!("{}.{}", db.unwrap_or(cx.db()), name?))
}

/// Has the shards of other collections take part in the client's transaction, before stages read there.
fn take_part(cx: &CommandContext<'_>, router: &Router, names: &[String]) -> Result<()> {
    for name in names {
        let ns = format!("{}.{name}", cx.db());
        let sets: Vec<OnSet> = match router.tables.of(&**cx.op, router, &ns)? {
            Some(known) => {
                let shards = all_of(&known).into_iter();
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
