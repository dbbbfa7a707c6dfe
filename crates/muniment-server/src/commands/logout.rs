//! `logout`.

use crate::auth::{self, Needs};
use crate::registry::{CommandSpec, Routed};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "logout",
    doc: "Ends the login of the connection",
    run: |cx| {
        let reason = "the client has asked for it";
        let told = auth::audit_logout(cx.server, cx.conn, cx.local, reason);
        auth::log_out(cx.conn, cx.local);
        told
    },
    ..CommandSpec::new(Routed::Here, Needs::Nothing)
};
