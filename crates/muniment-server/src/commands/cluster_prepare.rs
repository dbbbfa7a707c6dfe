//! `_clusterPrepare`: a shard prepares its part of a transaction over several shards.

use crate::context::CommandContext;
use crate::distributed;
use crate::registry::CommandSpec;
use muniment_value::args::{Types, req};
use muniment_value::{Doc, Result};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_clusterPrepare",
    doc: "Internal: a shard prepares its part of a transaction over several shards",
    admin_only: true,
    fields: &[
        req("transaction", Types::OBJECT),
        req("coordinator", Types::STRING),
    ],
    run,
    ..CommandSpec::between_members()
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let id = distributed::id_of(cx.args.doc("transaction").unwrap_or(Doc::EMPTY))?;
    let coordinator = cx.args.str("coordinator").unwrap_or_default();
    let vote = distributed::prepare(cx.server, cx.op, id, coordinator)?;
    cx.reply.elements(vote.as_doc());
    Ok(())
}
