//! `logout`.

use crate::auth::{self, Needs};
use crate::registry::CommandSpec;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "logout",
    doc: "Ends the login of the connection",
    run: |cx| {
        auth::log_out(cx.conn, cx.local);
        Ok(())
    },
    ..CommandSpec::needing(Needs::Nothing)
};
