//! `refreshLogicalSessionCacheNow`: only with the parameter enableTestCommands, as in MongoDB.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::own_collections;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_value::{Code, Error, Result};
use std::sync::atomic::Ordering;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "refreshLogicalSessionCacheNow",
    doc: "Writes the sessions that were used into config.system.sessions, for tests",
    kind: Kind::Admin,
    run,
    ..CommandSpec::new(Routed::Here, Needs::Login)
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    if !cx.server.parameters.test_commands.load(Ordering::Relaxed) {
        return Err(Error::new(
            Code::CommandNotFound,
            "no such command: 'refreshLogicalSessionCacheNow'",
        ));
    }
    own_collections::refresh_sessions(cx.server, cx.op)
}
