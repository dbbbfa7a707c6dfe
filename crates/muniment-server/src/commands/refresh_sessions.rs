//! `refreshSessions`.

use super::sessions_of;
use crate::registry::{Access, CommandSpec, Kind};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "refreshSessions",
    doc: "Keeps logical sessions from timing out",
    kind: Kind::Admin,
    access: Access::Anyone,
    api_v1: true,
    run: |cx| {
        for id in sessions_of(cx)? {
            let most = cx.server.parameters.most_sessions();
            cx.server.sessions.touch(&id, most)?;
        }
        Ok(())
    },
    ..CommandSpec::DEFAULT
};
