//! `replSetStepDown`.

use super::repl_set::{seconds, set_of};
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_value::args::{Types, opt};
use muniment_value::{Error, Result, number};
use std::time::Duration;

/// For how long the member is no primary if the command does not say.
const DEFAULT_SECS: i64 = 60;
/// The default of `secondaryCatchUpPeriodSecs`; with `force` it is 0.
const DEFAULT_CATCH_UP_SECS: i64 = 10;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetStepDown",
    doc: "Lets another member be primary, and is none itself for the given seconds",
    kind: Kind::Admin,
    admin_only: true,
    fields: &[
        opt("force", Types::ANY),
        opt("secondaryCatchUpPeriodSecs", Types::NUMBER),
    ],
    run,
    ..CommandSpec::new(
        Routed::Refused,
        Needs::cluster(&[Action::ReplSetStateChange]),
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let set = set_of(cx)?;
    set.initialized()?;
    let force = cx.args.get("force").is_some_and(|v| v.truthy());
    let secs = match seconds(cx) {
        0 => DEFAULT_SECS,
        n if n < 0 => {
            return Err(Error::bad_value(
                "stepdown period must be a positive integer",
            ));
        }
        n => n,
    };
    let catch_up = match cx.args.get("secondaryCatchUpPeriodSecs") {
        Some(v) => number::to_i64_clamped(v).unwrap_or(0),
        None if force => 0,
        None => DEFAULT_CATCH_UP_SECS,
    };
    if catch_up < 0 {
        return Err(Error::bad_value(
            "secondaryCatchUpPeriodSecs period must be a positive or absent",
        ));
    }
    if secs < catch_up {
        return Err(Error::bad_value(
            "stepdown period must be longer than secondaryCatchUpPeriodSecs",
        ));
    }
    let time = Duration::from_secs(secs as u64);
    let catch_up = Duration::from_secs(catch_up as u64);
    set.step_down(&**cx.op, time, catch_up, force)
}
