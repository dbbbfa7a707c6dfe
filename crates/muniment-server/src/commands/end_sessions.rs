//! `endSessions`.

use super::sessions_of;
use crate::context::CommandContext;
use crate::registry::{Access, CommandSpec, Kind};
use muniment_value::Result;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "endSessions",
    doc: "Ends logical sessions with their cursors",
    kind: Kind::Admin,
    access: Access::Anyone,
    api_v1: true,
    run: end,
    ..CommandSpec::DEFAULT
};

fn end(cx: &mut CommandContext<'_>) -> Result<()> {
    for id in sessions_of(cx)? {
        cx.server.sessions.end(&id);
        cx.server.transactions.forget(cx.server, &id);
        cx.engine().cursors.kill_session(&id);
    }
    Ok(())
}
