//! `_shardStatement`: a router asks a shard whether it remembers a statement of a retryable command.

use crate::context::CommandContext;
use crate::registry::CommandSpec;
use muniment_storage::SessionState;
use muniment_value::args::{Types, req};
use muniment_value::{Result, number};

/// The command: `{_shardStatement: 1, number, statement, lsid}`. The reply's `executed` says whether the shard has
/// executed the statement of this number, of the command that the session has given this number; `committed`, whether
/// the last thing that the session has done is a transaction that was committed.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardStatement",
    doc: "Internal: a router asks whether a shard has executed a statement of a retryable command",
    fields: &[req("number", Types::LONG), req("statement", Types::NUMBER)],
    run,
    ..CommandSpec::between_members()
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let of = |name: &str| {
        cx.args
            .get(name)
            .and_then(number::to_i64_clamped)
            .unwrap_or(-1)
    };
    let (number, statement) = (of("number"), i32::try_from(of("statement")).unwrap_or(-1));
    let record = match cx.generic.session {
        Some(session) => cx.engine().store.session(&session)?,
        None => None,
    };
    let executed = record
        .as_ref()
        .is_some_and(|r| r.number() == number && r.result(statement).is_some());
    let committed = record.is_some_and(|r| r.head().record().state == SessionState::Committed);
    cx.reply.field("executed", executed);
    cx.reply.field("committed", committed);
    Ok(())
}
