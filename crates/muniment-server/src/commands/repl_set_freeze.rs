//! `replSetFreeze`.

use super::repl_set::{seconds, set_of};
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_value::{Error, Result};
use std::time::Duration;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetFreeze",
    doc: "A secondary does not become primary for the given seconds; 0 takes that back",
    kind: Kind::Admin,
    admin_only: true,
    run,
    ..CommandSpec::new(
        Routed::Refused,
        Needs::cluster(&[Action::ReplSetStateChange]),
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let set = set_of(cx)?;
    set.initialized()?;
    let secs = seconds(cx).min(i64::from(i32::MAX));
    let Ok(n) = u64::try_from(secs) else {
        return Err(Error::bad_value(
            "The freeze period must be a number of seconds that is not negative",
        ));
    };
    match n {
        0 => {
            cx.reply.field("info", "unfreezing");
        }
        1 => {
            let warning = "you really want to freeze for only 1 second?";
            cx.reply.field("warning", warning);
        }
        _ => {}
    }
    set.freeze(Duration::from_secs(n), &**cx.op)
}
