//! `ping`.

use crate::registry::{Access, CommandSpec};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "ping",
    doc: "Answers ok",
    access: Access::Anyone,
    api_v1: true,
    run: |_| Ok(()),
    ..CommandSpec::DEFAULT
};
