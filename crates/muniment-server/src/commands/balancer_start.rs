//! `balancerStart`.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::Router;
use crate::router::balancer::settings::{enable, wake};
use muniment_auth::action::{Action, Actions};
use muniment_value::Result;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "balancerStart",
    doc: "Starts the balancer",
    ..CommandSpec::of_cluster(
        run,
        Needs::Of(|asks| asks.may_on("config.settings", Actions::of(&[Action::Update]))),
    )
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    enable(&**cx.op, router, true)?;
    wake(&**cx.op, router);
    Ok(())
}
