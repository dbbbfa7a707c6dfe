//! `isdbgrid`, by which older tools know a router.

use crate::auth::Needs;
use crate::registry::{CommandSpec, Routed};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "isdbgrid",
    doc: "Says that the server is a router",
    of_router: true,
    ..CommandSpec::new(
        Routed::By(|cx, _| {
            cx.reply.field("isdbgrid", 1);
            cx.reply.field("hostname", muniment_logger::hostname());
            Ok(())
        }),
        Needs::Nothing,
    )
};
