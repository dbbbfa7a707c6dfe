//! `_changesUpTo`: a router has a shard come to a time, and learns that nothing more can happen there before it.

use crate::context::CommandContext;
use crate::registry::{CommandSpec, RunsOn};
use crate::replica_set;
use muniment_storage::Timestamp;
use muniment_value::args::{Types, req};
use muniment_value::{Result, Value};

/// The command. Change streams that a router merges tell it afterwards that they have come up to the time. The
/// primary commits an empty record if it has nothing as late as that; a secondary waits for the primary's.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_changesUpTo",
    doc: "Internal: a router waits for the events of a shard up to a time",
    admin_only: true,
    fields: &[req("time", Types::TIMESTAMP)],
    run,
    runs_on: Some(RunsOn::Any),
    ..CommandSpec::between_members()
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let Some(Value::Timestamp { t, i }) = cx.args.get("time") else {
        return Ok(());
    };
    let time = Timestamp::new(t, i);
    replica_set::reach(cx.server, cx.op, time)?;
    cx.engine().ask_changes(time);
    Ok(())
}
