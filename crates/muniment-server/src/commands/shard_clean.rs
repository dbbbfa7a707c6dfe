//! `_shardClean`: a router has a shard delete the rows that it does not own.

use crate::context::CommandContext;
use crate::moving;
use crate::registry::{CommandSpec, Target};
use muniment_value::Result;
use muniment_value::args::{Types, req};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardClean",
    doc: "Internal: a router has a shard delete rows that it does not own",
    target: Target::Collection,
    fields: &[req("uuid", Types::BINARY)],
    run,
    ..CommandSpec::between_members()
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let (collection, _) = moving::moved(cx)?;
    moving::clean_now(cx.server, cx.op, &collection)
}
