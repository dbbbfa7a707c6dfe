//! `mergeAllChunksOnShard`: makes as few chunks as possible of those that a shard has of a collection.

use crate::context::CommandContext;
use crate::registry::CommandSpec;
use crate::router::Router;
use crate::router::sharded::split::{merge_all, settled_before};
use muniment_auth::action::Action;
use muniment_value::Result;
use muniment_value::args::{Field, Types, idle, opt, req};

const FIELDS: &[Field] = &[
    req("shard", Types::STRING),
    opt("maxNumberOfChunksToMerge", Types::NUMBER),
    idle(
        "maxTimeProcessingChunksMS",
        Types::NUMBER,
        "looking for chunks takes no lock, so it need not be cut short",
    ),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "mergeAllChunksOnShard",
    doc: "Makes as few chunks as possible of those that a shard has of a collection",
    fields: FIELDS,
    ..CommandSpec::of_collection(run, Action::SplitChunk)
};

fn run(cx: &mut CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    let shard = cx.args.str("shard").unwrap_or_default();
    let most = cx
        .args
        .int("maxNumberOfChunksToMerge", 2, i64::from(i32::MAX))?;
    let most = most
        .and_then(|n| usize::try_from(n).ok())
        .unwrap_or(usize::MAX);
    router.catalog.shard(&**cx.op, router, shard)?;
    merge_all(cx, router, (ns, shard), (settled_before(cx.server), most)).map(drop)
}
