//! `getShardVersion`: which version of a collection's chunks is known.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Routed};
use crate::router::Router;
use crate::router::sharded::chunks::not_sharded;
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, opt};
use muniment_value::{ArrayBuf, Result, Value, array, doc};

/// A reply with more chunks than this has none of them.
const MOST: usize = 100_000;

const FIELDS: &[Field] = &[opt("fullMetadata", Types::SAFE_BOOL)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "getShardVersion",
    doc: "The version of a collection's chunks that the server knows",
    admin_only: true,
    fields: FIELDS,
    run,
    ..CommandSpec::new(Routed::By(of_router), Needs::named(Action::GetShardVersion))
};

fn of_router(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let ns = cx.text_target()?;
    namespace::split(ns)?;
    let known = router.tables.of(&**cx.op, router, ns)?;
    let known = known.ok_or_else(|| not_sharded(ns))?;
    cx.reply.field("version", known.table.version().to_value());
    cx.reply
        .field("versionEpoch", Value::ObjectId(known.collection.epoch));
    cx.reply.field(
        "versionTimestamp",
        known.collection.generation.timestamp.to_value(),
    );
    if cx.args.bool("fullMetadata", false) && known.table.len() <= MOST {
        let mut chunks = ArrayBuf::new();
        for range in known.table.ranges() {
            let min = known.key.bound_doc(&range.min)?;
            let max = known.key.bound_doc(&range.max)?;
            chunks.push(array![min, max]);
        }
        cx.reply.field("chunks", chunks);
    }
    Ok(())
}

/// On a shard: what it owns.
fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let ns = cx.text_target()?;
    namespace::split(ns)?;
    let placement = cx.engine().store.collection(ns).and_then(|c| c.placement());
    cx.reply.field("configServer", "");
    match placement {
        None => cx.reply.field("global", "UNSHARDED"),
        Some(p) => {
            cx.reply.field("global", p.version.to_value());
            cx.reply.field(
                "metadata",
                doc! { "shardVersion": p.version.to_value(), "timestamp": p.timestamp.to_value() },
            )
        }
    };
    Ok(())
}
