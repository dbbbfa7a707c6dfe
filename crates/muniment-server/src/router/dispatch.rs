//! The way of a command at a router.

use super::Router;
use super::place::{OF_CONFIG, is_of_router};
use super::relay::{ask_database, back, database, to};
use super::sharded::{Repeats, fails, is_stale, view, writes};
use crate::context::CommandContext;
use crate::registry::{self, OnShards, Routed};
use muniment_value::{Code, Error, Result};
use std::sync::Arc;

/// Does with a command what its declaration says.
///
/// # Errors
/// 59 for a command that a router does not have; the errors of the way there and of the shard.
pub fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let done = by_declaration(cx, router);
    if done.is_err() && cx.spec.ends_transaction.is_none() {
        fails(cx, router);
    }
    done
}

fn by_declaration(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    match cx.spec.routed {
        Routed::Refused => Err(registry::unknown(cx.request.name)),
        Routed::NotYet => Err(Error::new(
            Code::IllegalOperation,
            format!(
                "{} is not there yet at a router: run it on the configuration's set and on each shard",
                cx.spec.name
            ),
        )),
        Routed::Here => (cx.spec.run)(cx),
        Routed::Config => to(cx, router, &Arc::clone(&router.config)),
        Routed::Database | Routed::Shards(_) if is_of_router(cx.request.body) => (cx.spec.run)(cx),
        Routed::Database => database(cx, router),
        Routed::Shards(run) => sharded(cx, router, run),
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
        let done = match &known {
            None => whole(cx, router),
            Some(known) => run(cx, router, known),
        };
        match done {
            Err(e) if view::is_below(cx, router, &e)? => {
                cx.reply.buffer().truncate(begun);
                return view::run(cx, router);
            }
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
