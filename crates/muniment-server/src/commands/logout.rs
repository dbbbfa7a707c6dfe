//! `logout`.

use crate::registry::{Access, CommandSpec};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "logout",
    doc: "Ends the authentication of the connection; there is none",
    access: Access::Anyone,
    run: |_| Ok(()),
    ..CommandSpec::DEFAULT
};
