//! `compact`.
//!
//! All collections share the engine's tables, whose space the engine itself frees by its running
//! compaction: one collection has nothing that could be freed on demand, which is what the reply
//! says.

use crate::args::{Field, Types, idle, opt};
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Kind};
use muniment_value::{Code, Error, Result};

const FIELDS: &[Field] = &[
    opt("dryRun", Types::BOOL),
    idle("force", Types::BOOL, "nobody is ever blocked"),
    opt("freeSpaceTargetMB", Types::NUMBER),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "compact",
    doc: "Says how much space a compaction would free: the engine compacts by itself",
    kind: Kind::Admin,
    fields: FIELDS,
    run,
    ..CommandSpec::DEFAULT
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    cx.args.int("freeSpaceTargetMB", 1, i64::MAX)?;
    let name = namespace::lenient(cx.target())?;
    let ns = format!("{}.{name}", cx.db());
    cx.engine().refuse_view(&ns)?;
    if cx.engine().buckets_of(&ns).is_none() && cx.engine().store.collection(&ns).is_none() {
        return Err(Error::new(
            Code::NamespaceNotFound,
            format!("collection {ns} does not exist"),
        ));
    }
    let name = if cx.args.bool("dryRun", false) {
        "estimatedBytesFreed"
    } else {
        "bytesFreed"
    };
    cx.reply.field(name, 0);
    Ok(())
}
