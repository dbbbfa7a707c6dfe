//! `startTransitionToDedicatedConfigServer`: the configuration's set begins to drain as a shard.

use super::add_shard::CONFIG;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::{Router, draining};
use muniment_auth::action::Action;
use muniment_value::Result;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "startTransitionToDedicatedConfigServer",
    doc: "Has the balancer move the ranges of the configuration's set to other shards",
    ..CommandSpec::of_cluster(
        run,
        Needs::cluster(&[Action::TransitionToDedicatedConfigServer]),
    )
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    draining::start(cx, router, CONFIG).map(drop)
}
