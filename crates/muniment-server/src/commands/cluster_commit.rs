//! `_clusterCommit`: a router has a shard commit a transaction over several shards.

use crate::context::CommandContext;
use crate::distributed;
use crate::options::SetAddress;
use crate::registry::CommandSpec;
use muniment_shard::commit::Told;
use muniment_value::args::{Types, req};
use muniment_value::{Doc, Result};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_clusterCommit",
    doc: "Internal: a router has a shard commit a transaction over several shards",
    admin_only: true,
    fields: &[
        req("transaction", Types::OBJECT),
        req("participants", Types::ARRAY),
    ],
    run,
    ..CommandSpec::between_members()
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let id = distributed::id_of(cx.args.doc("transaction").unwrap_or(Doc::EMPTY))?;
    let named = cx.args.array("participants").unwrap_or(Doc::EMPTY);
    let sets = named.values().map(|v| {
        let text = v.as_str().unwrap_or_default();
        SetAddress::parse(text, 27018)
    });
    let sets = sets.collect::<Result<Vec<_>>>()?;
    let told = distributed::commit(cx.server, cx.op, id, sets)?;
    let told = match told {
        Told::Committed => "committed",
        Told::Aborted => "aborted",
    };
    cx.reply.field("outcome", told);
    Ok(())
}
