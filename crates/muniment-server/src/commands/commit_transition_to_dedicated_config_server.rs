//! `commitTransitionToDedicatedConfigServer`: the configuration's set is no shard any more.

use super::add_shard::CONFIG;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::{Router, draining};
use muniment_auth::action::Action;
use muniment_value::Result;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "commitTransitionToDedicatedConfigServer",
    doc: "Has the configuration's set, which has drained, be no shard any more",
    ..CommandSpec::of_cluster(
        run,
        Needs::cluster(&[Action::TransitionToDedicatedConfigServer]),
    )
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    draining::commit(cx, router, CONFIG)
}
