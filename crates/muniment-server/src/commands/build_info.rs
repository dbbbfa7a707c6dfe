//! `buildInfo`.

use crate::registry::{Access, CommandSpec};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "buildInfo",
    aliases: &["buildinfo"],
    doc: "Versions, limits and how the server was built",
    access: Access::Anyone,
    run: |cx| {
        cx.reply.elements(crate::server::build_info().as_doc());
        Ok(())
    },
    ..CommandSpec::DEFAULT
};
