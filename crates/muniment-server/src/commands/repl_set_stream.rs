//! `_replSetStream`: a member opens the connection on which it sends log records to this one.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use crate::replica_set::{host_of, named_set};
use muniment_member::{GREETING, answer_greeting, greet};
use muniment_value::Result;
use muniment_value::args::{Types, opt};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_replSetStream",
    doc: "Internal: another member of the replica set begins to send",
    kind: Kind::Admin,
    admin_only: true,
    fields: &[opt(GREETING, Types::OBJECT), opt("onlyChecks", Types::BOOL)],
    run,
    ..CommandSpec::new(Routed::Refused, Needs::Member)
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let only_checks = cx.args.bool("onlyChecks", false);
    let set = named_set(cx.server, cx.target().as_str().unwrap_or_default())?;
    cx.local.member = greet(set, &host_of(cx.server), cx.request.body, only_checks)?;
    cx.reply.field(GREETING, answer_greeting());
    Ok(())
}
