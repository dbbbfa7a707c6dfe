//! `_balancerState`: a router asks the configuration's primary what its balancer does.

use crate::context::CommandContext;
use crate::registry::CommandSpec;
use muniment_value::Result;
use muniment_value::args::{Types, opt};

/// The command: `{_balancerState: 1, wakes?}`. With `wakes`, its next round begins within a second.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_balancerState",
    doc: "Internal: a router asks the configuration's primary what its balancer does",
    fields: &[opt("wakes", Types::BOOL)],
    run,
    ..CommandSpec::between_members()
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    if cx.args.bool("wakes", false) {
        cx.server.balancer.wake();
    }
    let (rounds, runs) = cx.server.balancer.status();
    cx.reply.field("inBalancerRound", runs);
    cx.reply.field(
        "numBalancerRounds",
        i64::try_from(rounds).unwrap_or(i64::MAX),
    );
    Ok(())
}
