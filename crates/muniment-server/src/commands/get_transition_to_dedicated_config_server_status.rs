//! `getTransitionToDedicatedConfigServerStatus`: what the configuration's set still has as a shard that drains.

use super::add_shard::CONFIG;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use crate::router::{Router, draining};
use muniment_auth::action::Action;
use muniment_value::Result;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "getTransitionToDedicatedConfigServerStatus",
    doc: "What the configuration's set still has as a shard that drains",
    kind: Kind::Admin,
    of_router: true,
    admin_only: true,
    ..CommandSpec::new(
        Routed::By(run),
        Needs::cluster(&[Action::TransitionToDedicatedConfigServer]),
    )
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    draining::status(cx, router, CONFIG)
}
