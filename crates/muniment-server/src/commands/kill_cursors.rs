//! `killCursors`.

use crate::auth::{self, Needs};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, Target};
use muniment_value::args::{Types, req};
use muniment_value::{ArrayBuf, Result, array};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "killCursors",
    doc: "Closes cursors",
    kind: Kind::Admin,
    target: Target::Collection,
    in_transactions: true,
    api_v1: true,
    fields: &[req("cursors", Types::ARRAY)],
    run,
    ..CommandSpec::new(Routed::By(crate::router::relay::kill_cursors), Needs::Login)
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let ids = cx.cursors_named()?;
    let owner = cx.cursor_owner();
    // Without the right to end those of others, a user ends the own cursors.
    let user = auth::user_of(cx.server, cx.local);
    // The right counts for the collection that a cursor reads, whatever the command names.
    let any = |ns: &str| user.as_ref().is_some_and(|user| user.may_end_cursors(ns));
    let done = cx.engine().cursors.kill(&ids, &owner, any);
    let list = |ids: &[i64]| ids.iter().collect::<ArrayBuf>();
    cx.reply.field("cursorsKilled", list(&done.killed));
    cx.reply.field("cursorsNotFound", list(&done.not_found));
    cx.reply.field("cursorsAlive", list(&done.alive));
    cx.reply.field("cursorsUnknown", array![]);
    Ok(())
}
