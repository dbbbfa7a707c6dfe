//! `startShardDraining`: the balancer moves the ranges of a shard to others.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::{Router, draining};
use muniment_auth::action::Action;
use muniment_value::Result;
use muniment_value::args::Types;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "startShardDraining",
    doc: "Has the balancer move the ranges of a shard to others",
    ..CommandSpec::of_cluster(run, Needs::cluster(&[Action::RemoveShard]))
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let name = cx.typed_target(Types::STRING)?;
    draining::start(cx, router, name.as_str().unwrap_or_default()).map(drop)
}
