//! `_clusterDecision`: a shard asks how a transaction over several shards has ended.

use crate::context::CommandContext;
use crate::distributed;
use crate::registry::CommandSpec;
use muniment_value::args::{Types, req};
use muniment_value::{Doc, Result};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_clusterDecision",
    doc: "Internal: a shard asks how a transaction over several shards has ended",
    admin_only: true,
    fields: &[req("transaction", Types::OBJECT)],
    run,
    ..CommandSpec::between_members()
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let id = distributed::id_of(cx.args.doc("transaction").unwrap_or(Doc::EMPTY))?;
    let told = distributed::decision(cx.server, cx.op, id)?;
    cx.reply.elements(told.as_doc());
    Ok(())
}
