//! `moveRange`: moves a part of a chunk, or all of it, to another shard.

use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::Router;
use crate::router::sharded::chunks::known_now;
use crate::router::sharded::movement::{MoveRequest, move_range, refuse_shard};
use crate::router::sharded::split::bound;
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, idle, opt, req};
use muniment_value::{Error, Result};

const FIELDS: &[Field] = &[
    req("toShard", Types::STRING),
    opt("min", Types::OBJECT),
    opt("max", Types::OBJECT),
    opt("waitForDelete", Types::SAFE_BOOL),
    idle(
        "secondaryThrottle",
        Types::SAFE_BOOL,
        "rows wait for the majority of the other shard at the end of the move in any case",
    ),
    idle(
        "forceJumbo",
        Types::SAFE_BOOL,
        "a range that is asked for by its bounds is moved whatever its size",
    ),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "moveRange",
    doc: "Moves a part of a chunk, or all of it, to another shard",
    fields: FIELDS,
    ..CommandSpec::of_collection(run, Action::MoveChunk)
};

/// With one bound only, the range goes to the other bound of the chunk.
fn run(cx: &mut CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    let to = cx.args.str("toShard").unwrap_or_default();
    refuse_shard(cx, router, to)?;
    let known = known_now(cx, router, ns)?;
    let bytes = |name: &str| {
        let given = cx.args.doc(name);
        given.map(|d| bound(&known.key, d, name)).transpose()
    };
    let (min, max) = match (bytes("min")?, bytes("max")?) {
        (Some(min), Some(max)) => (min, max),
        (Some(min), None) => {
            let max = known.table.find(&min).max;
            (min, max)
        }
        (None, Some(max)) => {
            // The chunk that ends here, or within which the bound lies.
            let within = known.table.find(&max);
            let before = known.table.ranges().take_while(|r| r.min < max).last();
            let min = before.map_or(within.min, |r| r.min);
            (min, max)
        }
        (None, None) => return Err(Error::bad_value("need to specify min or max")),
    };
    let request = MoveRequest {
        ns,
        key: &known.key,
        min,
        max,
        to,
        wait_for_delete: cx.args.bool("waitForDelete", false),
    };
    move_range(cx, router, &request)
}
