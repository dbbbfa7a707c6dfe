//! `_replSetHandOver`: a member asks the primary of its replica set to hand the lead over to it.

use super::repl_set::set_of;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_value::args::{Types, req};
use muniment_value::{Error, Result, number};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_replSetHandOver",
    doc: "Internal: another member of the replica set asks for the lead",
    kind: Kind::Admin,
    admin_only: true,
    fields: &[req("to", Types::NUMBER)],
    run,
    ..CommandSpec::new(Routed::Refused, Needs::Member)
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let set = set_of(cx)?;
    let to = cx.args.get("to").and_then(number::to_i64_exact);
    let to = to.and_then(|n| u64::try_from(n).ok());
    let to = to.ok_or_else(|| Error::bad_value("'to' is the number of a member"))?;
    set.hand_over_to(to, &**cx.op)
}
