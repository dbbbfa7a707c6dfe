//! mapReduce at a router: the shards find the documents, and the router calls the functions.
//!
//! What is not divided stays with the shard of its database, unless the results go elsewhere.

use super::aggregate::at_home;
use super::host::Around;
use super::into::Into;
use super::place::collation_of;
use super::remote::{Output, Terms};
use super::{Repeats, is_stale, time_of_read};
use crate::commands::reduction::{Out, out, results, writing};
use crate::context::CommandContext;
use crate::router::Router;
use crate::router::place::{OF_CONFIG, set_of};
use crate::router::relay::database;
use crate::router::tables::Known;
use muniment_op::Interrupt;
use muniment_value::{ArrayBuf, Collation, Doc, DocBuf, Error, Result, Value, doc, number};
use std::sync::Arc;

/// Runs mapReduce.
///
/// # Errors
/// 31313 for results that go into a collection that is divided otherwise than by `_id`; those of the command.
pub fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let into = match out(&cx.args, cx.db())? {
        Out::Stage(stage, _) => Into::of(stage.as_doc(), cx.db()),
        Out::Inline => None,
    };
    at_home(cx, router, into.as_ref(), |cx| {
        repeated(cx, router, into.as_ref())
    })
}

/// Runs the command, again if shards and router differ.
fn repeated(cx: &mut CommandContext<'_>, router: &Router, into: Option<&Into>) -> Result<()> {
    let begun = cx.reply.buffer().len();
    let mut repeats = Repeats::new();
    loop {
        match attempt(cx, router, into) {
            Err(e) if is_stale(&e) => {
                repeats.next(cx, router, cx.ns(), e)?;
                cx.reply.buffer().truncate(begun);
            }
            other => return other,
        }
    }
}

fn attempt(cx: &mut CommandContext<'_>, router: &Router, into: Option<&Into>) -> Result<()> {
    let known = match OF_CONFIG.contains(&cx.db()) {
        true => None,
        false => router.tables.of(&**cx.op, router, cx.ns())?,
    };
    let known = match (known, time_of_read(cx)) {
        (Some(known), Some(time)) => Some(known.at(&**cx.op, router, time)?),
        (known, _) => known,
    };
    let elsewhere = match into {
        Some(into) => {
            check_target(cx, router, into)?;
            into.is_elsewhere(cx, router)?
        }
        None => false,
    };
    if known.is_none() && !elsewhere {
        return database(cx, router);
    }
    let output = Arc::new(Output::of(cx));
    let done = here(cx, router, known.as_deref(), &output);
    output.guard(done)
}

/// 31313 for a collection in which a key's result could not be found by its `_id`.
fn check_target(cx: &CommandContext<'_>, router: &Router, into: &Into) -> Result<()> {
    let known = router.tables.of(&**cx.op, router, &into.ns)?;
    let other = known.filter(|known| {
        let fields = known.key.fields();
        let by_id = fields.len() == 1 && fields.iter().all(|f| f.path.as_str() == "_id");
        !known.collection.unsplittable && !by_id
    });
    match other {
        None => Ok(()),
        Some(_) => Err(Error::location(
            31313,
            "The mapReduce target collection must either be unsharded or sharded by {_id: 1} or {_id: 'hashed'}.",
        )),
    }
}

/// Maps and reduces at the router.
fn here(
    cx: &mut CommandContext<'_>,
    router: &Router,
    known: Option<&Known>,
    output: &Arc<Output>,
) -> Result<()> {
    let own = match known {
        Some(known) => known.collection.default_collation.clone(),
        None => {
            let set = set_of(cx, router, cx.db())?;
            collation_of(&**cx.op, router, &set, cx.db(), cx.collection_name())?
        }
    };
    let collation = super::collation_in(cx.request.body).or(own.as_ref().map(|d| d.as_doc()));
    let collation = Collation::parse_some(collation)?;
    let on: Arc<dyn Interrupt> = Arc::clone(cx.op) as Arc<dyn Interrupt>;
    let terms = Terms::new(cx, &on).with_output(output);
    let host = Around::runtime(&terms, None).host;
    let mut ctx = cx.engine().context(cx.op, Doc::EMPTY, collation.clone())?;
    ctx.db = cx.db().to_string();
    ctx.collection = cx.collection_name().to_string();
    let stages = stages(cx);
    let mut found = host.pipeline(stages.as_doc(), &ctx)?;
    let (results, _) = results(cx, &cx.args, &collation, &mut || found.next())?;
    drop(found);
    let results: ArrayBuf = results.into_iter().collect();
    match out(&cx.args, cx.db())? {
        Out::Inline => {
            cx.reply.field("results", Value::Array(results.as_doc()));
        }
        Out::Stage(stage, name) => {
            let mut ctx = cx
                .engine()
                .context(cx.op, Doc::EMPTY, Collation::default())?;
            ctx.db = cx.db().to_string();
            let pipeline = writing(&results, stage);
            let mut written = host.pipeline(pipeline.as_doc(), &ctx)?;
            while written.next()?.is_some() {}
            cx.reply.field("result", name);
        }
    }
    Ok(())
}

/// The stages that find the documents.
fn stages(cx: &CommandContext<'_>) -> ArrayBuf {
    let mut stages = ArrayBuf::new();
    for (field, stage) in [("query", "$match"), ("sort", "$sort")] {
        if let Some(operand) = cx.args.doc(field).filter(|d| !d.is_empty()) {
            let mut d = DocBuf::new();
            d.append(stage, operand);
            stages.push(d);
        }
    }
    let limit = cx.args.get("limit").and_then(number::to_i64_clamped);
    if let Some(limit) = limit.filter(|n| *n > 0) {
        stages.push(doc! { "$limit": limit });
    }
    stages
}
