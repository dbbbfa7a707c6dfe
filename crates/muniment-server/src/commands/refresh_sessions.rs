//! `refreshSessions`.

use super::sessions_of;
use crate::auth::Needs;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "refreshSessions",
    doc: "Keeps logical sessions from timing out",
    kind: Kind::Admin,
    api_v1: true,
    run: |cx| {
        for id in sessions_of(cx, Action::Impersonate)? {
            let most = cx.server.parameters.most_sessions();
            cx.server.sessions.touch(&id, most)?;
        }
        Ok(())
    },
    ..CommandSpec::new(Routed::By(crate::router::relay::everywhere), Needs::Login)
};
