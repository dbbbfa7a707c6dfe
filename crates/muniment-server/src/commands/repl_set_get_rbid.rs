//! `replSetGetRBID`.

use super::repl_set::set_of;
use crate::registry::{CommandSpec, Kind};
use crate::replica_set::ROLLBACK_ID;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetGetRBID",
    doc: "The number of rollbacks, which the only member of a set has never",
    kind: Kind::Admin,
    admin_only: true,
    run: |cx| {
        set_of(cx)?.initialized()?;
        cx.reply.field("rbid", ROLLBACK_ID);
        Ok(())
    },
    ..CommandSpec::DEFAULT
};
