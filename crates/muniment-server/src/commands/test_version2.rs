//! `testVersion2`: does nothing, and is in no version of the Stable API. The own tests of drivers use it to
//! try `apiStrict`. It exists only with the parameter enableTestCommands.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_value::{Code, Error, Result};
use std::sync::atomic::Ordering;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "testVersion2",
    doc: "Does nothing, outside the Stable API, for tests",
    kind: Kind::Diagnostic,
    run,
    ..CommandSpec::new(Routed::Here, Needs::Login)
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    if cx.server.parameters.test_commands.load(Ordering::Relaxed) {
        return Ok(());
    }
    Err(Error::new(
        Code::CommandNotFound,
        "no such command: 'testVersion2'",
    ))
}
