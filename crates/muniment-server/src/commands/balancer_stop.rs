//! `balancerStop`: stops the balancer, and waits until its round has ended.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::Router;
use crate::router::balancer::settings::enable;
use crate::router::forward::run as ask;
use muniment_auth::action::{Action, Actions};
use muniment_op::sleep_until;
use muniment_value::{Result, doc};
use std::time::{Duration, Instant};

/// How often it is asked whether the round has ended.
const PAUSE: Duration = Duration::from_millis(100);

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "balancerStop",
    doc: "Stops the balancer, and waits until its round has ended",
    ..CommandSpec::of_cluster(
        run,
        Needs::Of(|asks| asks.may_on("config.settings", Actions::of(&[Action::Update]))),
    )
};

fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    enable(&**cx.op, router, false)?;
    // A round that begins from now on finds the balancer stopped.
    let status = doc! { "_balancerState": 1 };
    loop {
        let reply = ask(&**cx.op, router, &router.config, "admin", &status, true)?;
        if !reply
            .as_doc()
            .get("inBalancerRound")
            .is_some_and(|v| v.truthy())
        {
            return Ok(());
        }
        sleep_until(Instant::now() + PAUSE, &**cx.op)?;
    }
}
