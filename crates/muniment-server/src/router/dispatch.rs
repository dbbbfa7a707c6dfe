//! The way of a command at a router.

use super::Router;
use super::place::{OF_CONFIG, is_of_router};
use super::relay::{ask_database, back, database, to};
use super::settings;
use super::sharded::{Repeats, fails, is_gone, is_stale, time_of_read, view, writes};
use super::statements::abort_earlier;
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{self, OnShards, Routed};
use muniment_value::Result;
use std::sync::Arc;

/// Does with a command what its declaration says.
///
/// # Errors
/// 59 for a command that a router does not have; the errors of the way there and of the shard.
pub fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    abort_earlier(cx, router);
    let begun = cx.reply.buffer().len();
    let mut repeats = Repeats::new();
    let done = loop {
        match by_declaration(cx, router) {
            // The database has gone to another shard.
            Err(e) if is_gone(&e) && !cx.generic.in_transaction() => {
                repeats.next(cx, router, cx.ns(), e)?;
                cx.reply.buffer().truncate(begun);
            }
            done => break done,
        }
    };
    if done.is_err() && cx.spec.ends_transaction.is_none() {
        fails(cx, router);
    }
    done
}

fn by_declaration(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    match cx.spec.routed {
        Routed::Refused => Err(registry::unknown(cx.request.name)),
        Routed::Here => (cx.spec.run)(cx),
        Routed::Config => to(cx, router, &Arc::clone(&router.config)),
        Routed::Everywhere => settings::set(cx, router),
        Routed::Database | Routed::Shards(_) if is_of_router(cx.request.body) => (cx.spec.run)(cx),
        Routed::Database => database(cx, router),
        Routed::Shards(run) => sharded(cx, router, run),
        Routed::Named(run) => {
            let ns = cx.text_target()?;
            namespace::split(ns)?;
            run(cx, router, ns)
        }
        Routed::By(run) => run(cx, router),
    }
}

/// Runs a command as its collection is: sharded or not.
///
/// # Errors
/// Those of the command.
fn sharded(cx: &mut CommandContext<'_>, router: &Router, run: OnShards) -> Result<()> {
    let begun = cx.reply.buffer().len();
    let mut repeats = Repeats::new();
    loop {
        let known = match OF_CONFIG.contains(&cx.db()) || cx.collection_name().is_empty() {
            true => None,
            false => router.tables.of(&**cx.op, router, cx.ns())?,
        };
        let known = match (known, time_of_read(cx)) {
            (Some(known), Some(time)) => Some(known.at(&**cx.op, router, time)?),
            (known, _) => known,
        };
        let done = match &known {
            Some(known) => run(cx, router, known),
            None => match view::of_command(cx, router) {
                Ok(Some(view)) => view::run(cx, router, view),
                Ok(None) => whole(cx, router),
                Err(e) => Err(e),
            },
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

/// Runs a command on a collection that is not sharded, as far as the router knows. If it comes out that it is sharded
/// while statements are executed, the others go on from there.
fn whole(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let (set, reply) = ask_database(cx, router)?;
    let writes = writes::of(cx.spec.name).filter(|_| writes::has_stale(&reply));
    match writes {
        None => back(cx, router, &set, &reply),
        Some(writes) => writes::resume(cx, router, &reply, writes),
    }
}
