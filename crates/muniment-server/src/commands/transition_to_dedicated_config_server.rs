//! `transitionToDedicatedConfigServer`: the configuration's set stops being a shard.

use super::add_shard::CONFIG;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::{Router, draining};
use muniment_auth::action::Action;
use muniment_value::Result;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "transitionToDedicatedConfigServer",
    doc: "Has the configuration's set drain as a shard, and be none once it has nothing left",
    ..CommandSpec::of_cluster(
        run,
        Needs::cluster(&[Action::TransitionToDedicatedConfigServer]),
    )
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    draining::step(cx, router, CONFIG)
}
