//! `ping`.

use crate::auth::Needs;
use crate::registry::{CommandSpec, Routed};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "ping",
    doc: "Answers ok",
    api_v1: true,
    run: |_| Ok(()),
    ..CommandSpec::new(Routed::Here, Needs::Nothing)
};
