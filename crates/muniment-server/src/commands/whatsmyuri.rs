//! `whatsmyuri`.

use crate::auth::Needs;
use crate::registry::{CommandSpec, Routed};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "whatsmyuri",
    doc: "The client's address as the server sees it",
    open_fields: true,
    run: |cx| {
        cx.reply.field("you", &*cx.conn.peer);
        Ok(())
    },
    ..CommandSpec::new(Routed::Here, Needs::Nothing)
};
