//! `balancerStatus`.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Routed};
use crate::router::Router;
use crate::router::balancer::Settings;
use crate::router::forward::run as ask;
use muniment_auth::action::{Action, Actions};
use muniment_value::{Result, doc};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "balancerStatus",
    doc: "Whether the balancer is started, and whether it is at work",
    of_router: true,
    admin_only: true,
    ..CommandSpec::new(
        Routed::By(run),
        Needs::Of(|asks| asks.may_on("config.settings", Actions::of(&[Action::Find]))),
    )
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let settings = Settings::read(&**cx.op, router)?;
    let state = doc! { "_balancerState": 1 };
    let state = ask(&**cx.op, router, &router.config, "admin", &state, true)?;
    let mode = if settings.enabled { "full" } else { "off" };
    cx.reply.field("mode", mode);
    for name in ["inBalancerRound", "numBalancerRounds", "term"] {
        if let Some(v) = state.as_doc().get(name) {
            cx.reply.field(name, v);
        }
    }
    Ok(())
}
