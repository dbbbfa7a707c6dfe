//! `moveCollection`: moves a collection that is not divided to another shard.

use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::Router;
use crate::router::sharded::movement::refuse_shard;
use crate::router::sharded::whole;
use muniment_auth::action::Action;
use muniment_value::Result;
use muniment_value::args::{Field, Types, req};

const FIELDS: &[Field] = &[req("toShard", Types::STRING)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "moveCollection",
    doc: "Moves a collection that is not divided to another shard",
    fields: FIELDS,
    ..CommandSpec::of_collection(run, Action::MoveCollection)
};

fn run(cx: &mut CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    let to = cx.args.str("toShard").unwrap_or_default();
    refuse_shard(cx, router, to)?;
    whole::move_collection(cx, router, ns, to)
}
