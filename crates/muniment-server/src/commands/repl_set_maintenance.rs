//! `replSetMaintenance`.

use super::repl_set::set_of;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_value::Result;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetMaintenance",
    doc: "Nobody reads from this secondary, and it is not elected, until that is taken back",
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
    set.initialized()?;
    set.maintain(cx.target().truthy(), &**cx.op)
}
