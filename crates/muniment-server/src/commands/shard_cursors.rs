//! `_shardCursors`: a router asks which cursors are still open, and has them stay open.

use crate::context::CommandContext;
use crate::registry::{CommandSpec, RunsOn};
use muniment_value::args::{Types, req};
use muniment_value::{ArrayBuf, Doc, Result};

/// The command: `{_shardCursors: 1, cursors: [<id>, …], keep: <bool>}`. The reply's `gone` has the cursors that are not
/// open here. With `keep`, the others count as used now, and so do their sessions.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardCursors",
    doc: "Internal: a router asks which cursors are still open, and has them stay open",
    fields: &[req("cursors", Types::ARRAY), req("keep", Types::BOOL)],
    run,
    // Secondaries have cursors, too.
    runs_on: Some(RunsOn::Any),
    ..CommandSpec::between_members()
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let asked = cx.args.array("cursors").unwrap_or(Doc::EMPTY);
    let ids: Vec<i64> = asked.values().filter_map(|v| v.as_i64_exact()).collect();
    let (open, sessions) = cx.engine().cursors.look(&ids, cx.args.bool("keep", false));
    let most = cx.server.parameters.most_sessions();
    for session in &sessions {
        cx.server.sessions.touch(session, most)?;
    }
    let gone = ids.iter().filter(|id| !open.contains(id));
    cx.reply.field("gone", gone.collect::<ArrayBuf>());
    Ok(())
}
