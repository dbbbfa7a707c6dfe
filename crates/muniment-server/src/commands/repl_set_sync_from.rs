//! `replSetSyncFrom`.

use super::repl_set::set_of;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_member::HostPort;
use muniment_value::{Code, Error, Result};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetSyncFrom",
    doc: "Takes the primary as the member to sync from: all sync from it",
    kind: Kind::Admin,
    admin_only: true,
    run,
    ..CommandSpec::new(
        Routed::Refused,
        Needs::cluster(&[Action::ReplSetStateChange]),
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let set = set_of(cx)?;
    let (member, config) = set.initialized()?;
    let from = HostPort::parse(cx.target().as_str().unwrap_or_default())?.to_string();
    if set.is_primary() {
        return Err(Error::new(Code::NotSecondary, "primaries don't sync"));
    }
    if member.own().is_some_and(|m| m.host == from) {
        return Err(Error::new(
            Code::InvalidOptions,
            "I cannot sync from myself",
        ));
    }
    if !config.members.iter().any(|m| m.host == from) {
        return Err(Error::new(
            Code::NodeNotFound,
            format!("Could not find member \"{from}\" in replica set"),
        ));
    }
    // No source can be chosen: only the one that the member already has is accepted.
    let source = set.sync_source(&member).map(|m| m.host.as_str());
    if source != Some(from.as_str()) {
        return Err(Error::new(
            Code::IllegalOperation,
            format!(
                "Cannot sync from {from}: there is no chaining, every member gets the log from the \
                 primary"
            ),
        ));
    }
    cx.reply.field("syncFromRequested", from.as_str());
    cx.reply.field("prevSyncTarget", from.as_str());
    Ok(())
}
