//! `abortTransaction`.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Ends, Kind, Routed};
use crate::transactions::not_in_transaction;
use muniment_value::Result;
use muniment_value::args::{Field, Types, idle};

pub(super) const FIELDS: &[Field] = &[idle(
    "recoveryToken",
    Types::OBJECT,
    "of transactions over shards",
)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "abortTransaction",
    doc: "Aborts a multi-document transaction",
    kind: Kind::Write,
    admin_only: true,
    write_concern: true,
    in_transactions: true,
    api_v1: true,
    fields: FIELDS,
    run,
    ends_transaction: Some(Ends::Abort),
    ..CommandSpec::new(Routed::By(crate::router::over_shards::end), Needs::Login)
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let server = cx.server;
    let Some(part) = cx.transaction.as_mut() else {
        return Err(not_in_transaction(cx.spec.name));
    };
    server.transactions.abort(server, part);
    Ok(())
}
