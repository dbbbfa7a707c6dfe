//! `shardDrainingStatus`: what a shard that drains still has.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use crate::router::{Router, draining};
use muniment_auth::action::Action;
use muniment_value::Result;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "shardDrainingStatus",
    doc: "What a shard that drains still has",
    kind: Kind::Admin,
    of_router: true,
    admin_only: true,
    ..CommandSpec::new(Routed::By(run), Needs::cluster(&[Action::RemoveShard]))
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let name = cx.text_target()?;
    draining::status(cx, router, name)
}
