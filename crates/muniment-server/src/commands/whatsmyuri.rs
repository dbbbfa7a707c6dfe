//! `whatsmyuri`.

use crate::registry::{Access, CommandSpec};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "whatsmyuri",
    doc: "The client's address as the server sees it",
    open_fields: true,
    access: Access::Anyone,
    run: |cx| {
        cx.reply.field("you", &*cx.conn.peer);
        Ok(())
    },
    ..CommandSpec::DEFAULT
};
