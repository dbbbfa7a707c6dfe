//! `transitionFromDedicatedConfigServer`: the configuration's set becomes a shard, too.

use super::add_shard::{CONFIG, add};
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::options::SetAddress;
use crate::registry::CommandSpec;
use crate::router::Router;
use muniment_auth::action::Action;
use muniment_value::Result;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "transitionFromDedicatedConfigServer",
    doc: "Makes the configuration's set a shard of the cluster, too",
    ..CommandSpec::of_cluster(
        run,
        Needs::cluster(&[Action::TransitionFromDedicatedConfigServer]),
    )
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let address = SetAddress::parse(&router.config.text(), 27019)?;
    add(cx, router, Some(CONFIG), &address).map(drop)
}
