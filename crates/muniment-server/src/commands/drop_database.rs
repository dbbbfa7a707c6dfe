//! `dropDatabase`.

use crate::audit::{self, Audits};
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::placement::FIELD;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_exec::CatalogChange;
use muniment_storage::{Collection, stale};
use muniment_value::args::Types;
use muniment_value::{Code, Error, Result, doc, number};
use std::sync::Arc;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "dropDatabase",
    doc: "Drops a database with all its collections",
    kind: Kind::Ddl,
    write_concern: true,
    api_v1: true,
    audits: Some(Audits::changes("dropDatabase", audit::database)),
    run,
    ..CommandSpec::new(
        Routed::By(crate::router::sharded::ddl::drop_database),
        Needs::database(&[Action::DropDatabase]),
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let one = cx.typed_target(Types::NUMBER)?;
    if number::to_i64_clamped(one) != Some(1) {
        return Err(Error::location(
            5_255_100,
            "have to pass 1 as 'dropDatabase' parameter",
        ));
    }
    let db = cx.db();
    if db == "admin" {
        return Err(Error::new(
            Code::IllegalOperation,
            format!("Dropping the '{db}' database is prohibited."),
        ));
    }
    if db == "local" && cx.server.replica_set.is_some() {
        return Err(Error::new(
            Code::IllegalOperation,
            "Cannot drop 'local' database while replication is active",
        ));
    }
    let store = &cx.engine().store;
    let collections = store.collections(db);
    check_whole(cx, &collections)?;
    let names = collections.iter().map(|c| c.namespace());
    let mut dropped = |ns: &str| {
        cx.server.metrics.top_forget(ns);
        cx.op
            .note_change(|| CatalogChange::DroppedCollection(ns.to_string()));
    };
    store.drop_collections(names, &mut dropped, &**cx.op)?;
    cx.engine()
        .cursors
        .invalidate(&format!("{db}."), "database dropped");
    cx.server.profiling.forget(db);
    if !collections.is_empty() {
        cx.op
            .note_change(|| CatalogChange::DroppedDatabase(db.to_string()));
        let ns = format!("{db}.$cmd");
        let note = doc! { "op": "c", "ns": ns, "o": doc! { "dropDatabase": 1 } };
        store.note(note.as_doc(), &**cx.op)?;
        cx.note_write();
    }
    Ok(())
}

/// Refuses to drop a part of a collection over shards for a router: the others would keep theirs. A client that is
/// connected to a shard does as it likes.
///
/// # Errors
/// 13388 StaleConfig.
fn check_whole(cx: &CommandContext<'_>, collections: &[Arc<Collection>]) -> Result<()> {
    if cx.request.body.get(FIELD).is_none() {
        return Ok(());
    }
    let parts = collections.iter().filter_map(|c| Some((c, c.placement()?)));
    match parts.into_iter().next() {
        None => Ok(()),
        Some((c, placement)) => Err(stale(
            &c.namespace(),
            Some((c.uuid(), &placement)),
            "the collection is sharded",
        )),
    }
}
