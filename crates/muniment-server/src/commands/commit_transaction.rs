//! `commitTransaction`.

use super::abort_transaction::FIELDS;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Ends, Kind, Routed};
use crate::transactions::not_in_transaction;
use muniment_value::Result;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "commitTransaction",
    doc: "Commits a multi-document transaction",
    kind: Kind::Write,
    admin_only: true,
    write_concern: true,
    in_transactions: true,
    api_v1: true,
    fields: FIELDS,
    run,
    ends_transaction: Some(Ends::Commit),
    ..CommandSpec::new(Routed::By(crate::router::over_shards::end), Needs::Login)
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let server = cx.server;
    let Some(part) = cx.transaction.as_mut() else {
        return Err(not_in_transaction(cx.spec.name));
    };
    let commit = server.transactions.commit(server, part, cx.op)?;
    cx.note_commit(commit);
    Ok(())
}
