//! `isMaster`: the handshake under its old name.

use super::hello;
use crate::auth::Needs;
use crate::registry::{CommandSpec, Routed};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "isMaster",
    aliases: &["ismaster"],
    doc: "Handshake under its old name",
    open_fields: true,
    fields: hello::FIELDS,
    run: |cx| hello::run(cx, "ismaster"),
    while_stopping: true,
    logged_when_slow: false,
    ..CommandSpec::new(Routed::Here, Needs::Nothing)
};
