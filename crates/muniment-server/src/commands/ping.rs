//! `ping`.

use crate::auth::Needs;
use crate::registry::CommandSpec;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "ping",
    doc: "Answers ok",
    api_v1: true,
    run: |_| Ok(()),
    ..CommandSpec::needing(Needs::Nothing)
};
