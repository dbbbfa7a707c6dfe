//! `endSessions`.

use super::sessions_of;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_storage::SessionKey;
use muniment_value::Result;
use std::collections::HashSet;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "endSessions",
    doc: "Ends logical sessions with their cursors",
    kind: Kind::Admin,
    api_v1: true,
    run: end,
    ..CommandSpec::new(Routed::By(crate::router::relay::everywhere), Needs::Login)
};

fn end(cx: &mut CommandContext<'_>) -> Result<()> {
    let ended: HashSet<SessionKey> = sessions_of(cx, Action::Impersonate)?.into_iter().collect();
    for id in &ended {
        cx.server.sessions.end(id);
        cx.server.transactions.forget(cx.server, id);
    }
    cx.engine().cursors.kill_sessions(|s| ended.contains(s));
    Ok(())
}
