//! `drop`.

use crate::args::{Types, refused};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Target};
use muniment_value::Result;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "drop",
    doc: "Drops a collection",
    kind: Kind::Ddl,
    target: Target::Collection,
    write_concern: true,
    api_v1: true,
    fields: &[refused("collectionUUID", Types::BINARY)],
    run,
    ..CommandSpec::DEFAULT
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let store = &cx.engine().store;
    // Buckets go with the measurements that they are made of.
    let buckets = cx.engine().buckets_of(cx.ns());
    let ns = buckets.map_or_else(|| cx.ns().to_string(), |c| c.namespace());
    let indexes = store.collection(&ns).map(|c| c.indexes().len());
    // A collection that does not exist is no error since MongoDB 7.0.
    if store.drop_collection(&ns, &**cx.op)? {
        cx.engine().cursors.invalidate(&ns, "collection dropped");
        cx.server.metrics.top_forget(&ns);
        cx.note_write();
        cx.reply.field("nIndexesWas", indexes.unwrap_or(1) as i32);
        cx.reply.field("ns", cx.ns());
    } else if cx.engine().drop_view(cx.op, cx.ns())? {
        cx.note_write();
        cx.reply.field("ns", cx.ns());
    }
    Ok(())
}
