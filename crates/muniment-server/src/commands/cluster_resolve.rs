//! `_clusterResolve`: a shard ends its part of a transaction over several shards, as was decided.

use crate::context::CommandContext;
use crate::distributed;
use crate::registry::CommandSpec;
use muniment_value::args::{Types, req};
use muniment_value::{Doc, Error, Result};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_clusterResolve",
    doc: "Internal: a shard ends its part of a transaction over several shards, as was decided",
    admin_only: true,
    fields: &[
        req("transaction", Types::OBJECT),
        req("outcome", Types::OBJECT),
    ],
    run,
    ..CommandSpec::between_members()
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let id = distributed::id_of(cx.args.doc("transaction").unwrap_or(Doc::EMPTY))?;
    let outcome = cx.args.doc("outcome").unwrap_or(Doc::EMPTY);
    let outcome = distributed::decision_of(outcome);
    let outcome = outcome.ok_or_else(|| Error::bad_value("no outcome is named"))?;
    distributed::resolve(cx.server, cx.op, id, outcome)
}
