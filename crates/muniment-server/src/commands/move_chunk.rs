//! `moveChunk`: moves a chunk to another shard.

use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::Router;
use crate::router::sharded::chunks::known_now;
use crate::router::sharded::movement::{MoveRequest, move_range, refuse_shard};
use crate::router::sharded::split::{Named, bounds_of, range_of};
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, idle, opt, req};
use muniment_value::{Doc, Error, Result};

const FIELDS: &[Field] = &[
    opt("find", Types::OBJECT),
    opt("bounds", Types::ARRAY),
    req("to", Types::STRING),
    opt("_waitForDelete", Types::SAFE_BOOL),
    opt("waitForDelete", Types::SAFE_BOOL),
    idle(
        "_secondaryThrottle",
        Types::SAFE_BOOL,
        "rows wait for the majority of the other shard at the end of the move in any case",
    ),
    idle(
        "secondaryThrottle",
        Types::SAFE_BOOL,
        "rows wait for the majority of the other shard at the end of the move in any case",
    ),
    idle(
        "forceJumbo",
        Types::SAFE_BOOL,
        "a chunk that is asked for by name is moved whatever its size",
    ),
    idle(
        "maxChunkSizeBytes",
        Types::NUMBER,
        "a chunk that is asked for by name is moved whatever its size",
    ),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "moveChunk",
    aliases: &["movechunk"],
    doc: "Moves a chunk to another shard",
    fields: FIELDS,
    ..CommandSpec::of_collection(run, Action::MoveChunk)
};

fn run(cx: &mut CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    let given = |d: &Doc<'_>| !d.is_empty();
    let named = match (
        cx.args.doc("find").filter(given),
        cx.args.array("bounds").filter(given),
    ) {
        (Some(query), None) => Named::Find(query),
        (None, Some(list)) => {
            let (min, max) = bounds_of(list)?;
            Named::Bounds(min, max)
        }
        (Some(_), Some(_)) => {
            return Err(Error::bad_value(
                "cannot specify bounds and find at the same time",
            ));
        }
        (None, None) => return Err(Error::bad_value("need to specify find or bounds")),
    };
    let to = cx.args.str("to").unwrap_or_default();
    refuse_shard(cx, router, to)?;
    let known = known_now(cx, router, ns)?;
    let range = range_of(&known, &named)?;
    let request = MoveRequest {
        ns,
        key: &known.key,
        min: range.min,
        max: range.max,
        to,
        wait_for_delete: cx.args.bool("_waitForDelete", false)
            || cx.args.bool("waitForDelete", false),
    };
    let began = std::time::Instant::now();
    move_range(cx, router, &request)?;
    cx.reply.field("millis", began.elapsed().as_millis() as i64);
    Ok(())
}
