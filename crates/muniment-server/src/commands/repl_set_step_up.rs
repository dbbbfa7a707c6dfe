//! `replSetStepUp`.

use super::repl_set::set_of;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_value::Result;
use muniment_value::args::{Types, idle};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetStepUp",
    doc: "Has this member take over from the primary, or ask for the votes where there is none",
    kind: Kind::Admin,
    admin_only: true,
    fields: &[idle(
        "skipDryRun",
        Types::SAFE_BOOL,
        "a primary that hands over needs no trial, and without one there always is one",
    )],
    run,
    ..CommandSpec::new(
        Routed::Refused,
        Needs::cluster(&[Action::ReplSetStateChange]),
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let set = set_of(cx)?;
    set.initialized()?;
    set.step_up(cx.op)
}
