//! `commitShardRemoval`: forgets a shard that has drained.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::{Router, draining};
use muniment_auth::action::Action;
use muniment_value::Result;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "commitShardRemoval",
    doc: "Forgets a shard that has drained",
    ..CommandSpec::of_cluster(run, Needs::cluster(&[Action::RemoveShard]))
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    draining::commit(cx, router, cx.text_target()?)
}
