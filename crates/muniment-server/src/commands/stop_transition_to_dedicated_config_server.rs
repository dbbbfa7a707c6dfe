//! `stopTransitionToDedicatedConfigServer`: the configuration's set stays a shard after all.

use super::add_shard::CONFIG;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::{Router, draining};
use muniment_auth::action::Action;
use muniment_value::Result;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "stopTransitionToDedicatedConfigServer",
    doc: "Has the configuration's set stay a shard after all",
    ..CommandSpec::of_cluster(
        run,
        Needs::cluster(&[Action::TransitionToDedicatedConfigServer]),
    )
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    draining::stop(cx, router, CONFIG)
}
