//! `buildInfo`.

use crate::auth::Needs;
use crate::registry::{CommandSpec, Routed};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "buildInfo",
    aliases: &["buildinfo"],
    doc: "Versions, limits and how the server was built",
    run: |cx| {
        cx.reply.elements(crate::server::build_info().as_doc());
        Ok(())
    },
    ..CommandSpec::new(Routed::Here, Needs::Nothing)
};
