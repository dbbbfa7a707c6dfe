//! `drop`.

use crate::args::{Types, refused};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Target};
use muniment_exec::{OPLOG, is_generated};
use muniment_value::{Code, Error, Result};

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

/// The server's own collections stay.
///
/// # Errors
/// 20 IllegalOperation.
fn check_system(cx: &CommandContext<'_>) -> Result<()> {
    let name = cx.collection_name();
    if cx.ns() == OPLOG {
        return Err(match cx.server.replica_set {
            Some(_) => Error::location(5_255_000, "can't drop live oplog while replicating"),
            None => Error::location(
                5_255_001,
                "can't drop oplog on storage engines that support replSetResizeOplog command",
            ),
        });
    }
    if is_generated(cx.ns()) {
        return Err(Error::new(
            Code::IllegalOperation,
            format!("can't drop system collection {}", cx.ns()),
        ));
    }
    let droppable = matches!(name, "system.js" | "system.profile" | "system.views")
        || name.starts_with("system.buckets.")
        || cx.ns() == crate::own_collections::SESSIONS;
    if !name.starts_with("system.") || droppable {
        return Ok(());
    }
    Err(Error::new(
        Code::IllegalOperation,
        format!("can't drop system collection {}", cx.ns()),
    ))
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    check_system(cx)?;
    cx.engine().refuse_to_drop_views(cx.ns())?;
    let store = &cx.engine().store;
    // Buckets go with the measurements that they are made of.
    let buckets = cx.engine().buckets_of(cx.ns());
    let ns = buckets.map_or_else(|| cx.ns().to_string(), |c| c.namespace());
    let dropped = store.collection(&ns);
    let indexes = dropped.as_ref().map(|c| c.indexes().len());
    // A collection that does not exist is no error since MongoDB 7.0.
    if store.drop_collection(&ns, &**cx.op)? {
        cx.engine().cursors.invalidate(&ns, "collection dropped");
        cx.server.metrics.top_forget(&ns);
        cx.note_write();
        if dropped.is_some_and(|c| c.is_time_series()) {
            cx.engine().settle_series(cx.op, cx.db())?;
        }
        cx.reply.field("nIndexesWas", indexes.unwrap_or(1) as i32);
        cx.reply.field("ns", cx.ns());
    } else if cx.engine().drop_view(cx.op, cx.ns())? {
        cx.note_write();
        cx.reply.field("ns", cx.ns());
    }
    Ok(())
}
