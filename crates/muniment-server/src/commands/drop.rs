//! `drop`.

use crate::audit::{self, Audits};
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, Target};
use muniment_auth::action::Action;
use muniment_exec::{BUCKETS, CatalogChange, OPLOG, Source};
use muniment_value::args::{Types, refused};
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
    audits: Some(Audits::changes("dropCollection", audit::collection)),
    run,
    drops_collection: true,
    ..CommandSpec::new(
        Routed::Shards(crate::router::sharded::ddl::drop),
        Needs::collection(&[Action::DropCollection]),
    )
};

/// Refuses to drop the server's own collections.
///
/// # Errors
/// 20 IllegalOperation.
fn check_system(cx: &CommandContext<'_>, source: &Source) -> Result<()> {
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
    if let Source::Generated(_) = source {
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

/// The name of the collection to drop. It is the name that the client sent, never the current name of the
/// collection that was found by it: that one may have been renamed since, and a drop by its new name would
/// take what the client did not name. A bucket collection is dropped with its measurements.
fn dropped_name(said: &str, buckets: bool) -> String {
    let name = said.split_once('.').filter(|_| buckets);
    match name.and_then(|(db, name)| Some((db, name.strip_prefix(BUCKETS)?))) {
        Some((db, measurements)) => format!("{db}.{measurements}"),
        None => said.to_string(),
    }
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let source = cx.source()?;
    check_system(cx, &source)?;
    cx.engine().refuse_to_drop_views(cx.ns())?;
    let store = &cx.engine().store;
    let dropped = source.stored();
    let ns = dropped_name(cx.ns(), matches!(source, Source::Buckets(_)));
    let indexes = dropped.map(|c| c.indexes().len());
    // Dropping a collection that does not exist is no error since MongoDB 7.0.
    let noted = |ns: &str| CatalogChange::DroppedCollection(ns.to_string());
    if store.drop_collection(&ns, &**cx.op)? {
        cx.op.note_change(|| noted(&ns));
        cx.engine().cursors.invalidate(&ns, "collection dropped");
        cx.server.metrics.top_forget(&ns);
        cx.note_write();
        let views = cx.collection_name() == "system.views";
        if views || dropped.is_some_and(|c| c.is_time_series()) {
            cx.engine().settle_series(cx.op, cx.db())?;
        }
        cx.reply.field("nIndexesWas", indexes.unwrap_or(1) as i32);
        cx.reply.field("ns", cx.ns());
    } else if cx.engine().drop_view(cx.op, cx.ns())? {
        cx.op.note_change(|| noted(cx.ns()));
        cx.note_write();
        cx.reply.field("ns", cx.ns());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_the_client_sent_is_dropped() {
        assert_eq!(dropped_name("d.a", false), "d.a");
        assert_eq!(dropped_name("d.system.buckets.a.b", true), "d.a.b");
        // A stored collection, which is no bucket collection, may have such a name, too.
        assert_eq!(
            dropped_name("d.system.buckets.a", false),
            "d.system.buckets.a"
        );
    }
}
