//! `_shardRename`: a router has a shard rename a sharded collection.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, Target};
use muniment_exec::CatalogChange;
use muniment_op::Interrupt;
use muniment_shard::Timestamp;
use muniment_storage::Collection;
use muniment_value::args::{Types, opt, req, uuid};
use muniment_value::{Code, Error, Result, Value};
use std::sync::Arc;

/// The command: `{_shardRename: <name>, to, uuid, at: <timestamp>, replaces?}`. The collection of this UUID gets the
/// other name, and the generation of that time; the collection `replaces` is dropped. It may be repeated, and changes
/// nothing after a later change. Routers wait until the shard is told what it owns.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardRename",
    doc: "Internal: a router has a shard rename a sharded collection",
    kind: Kind::Ddl,
    target: Target::Collection,
    write_concern: true,
    fields: &[
        req("to", Types::STRING),
        req("uuid", Types::BINARY),
        req("at", Types::TIMESTAMP),
        opt("replaces", Types::BINARY),
    ],
    run,
    ..CommandSpec::new(Routed::Refused, Needs::Member)
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let id = |name: &str| {
        uuid(
            "_shardRename",
            name,
            cx.args.get(name).unwrap_or(Value::Null),
        )
    };
    let wanted = id("uuid")?;
    let replaces = match cx.args.get("replaces") {
        Some(_) => Some(id("replaces")?),
        None => None,
    };
    let Some(Value::Timestamp { t, i }) = cx.args.get("at") else {
        return Err(Error::bad_value("a rename has a time"));
    };
    let at = Timestamp::new(t, i);
    let to = format!("{}.{}", cx.db(), cx.args.str("to").unwrap_or_default());
    let store = &cx.engine().store;
    match store.collection_by_uuid_in(cx.db(), wanted) {
        Some(collection) => rename(cx, &collection, (&to, replaces), at)?,
        None => {
            let older = |c: &Arc<Collection>| c.placement().is_some_and(|p| p.timestamp < at);
            let there = store.collection(&to).filter(older);
            if there.is_some_and(|c| Some(c.uuid()) == replaces) {
                store.drop_collection(&to, &**cx.op)?;
                cx.engine().cursors.invalidate(&to, "collection dropped");
            }
        }
    }
    cx.note_write();
    Ok(())
}

/// Renames the collection, unless a later change has come first. Another router may do the same at this time.
fn rename(
    cx: &CommandContext<'_>,
    collection: &Arc<Collection>,
    (to, replaces): (&str, Option<[u8; 16]>),
    at: Timestamp,
) -> Result<()> {
    let store = &cx.engine().store;
    let Some(held) = collection.placement().filter(|p| p.timestamp <= at) else {
        return Ok(());
    };
    if held.timestamp < at {
        store.place(collection, &**cx.op, |held| {
            Ok(held.map(|held| match held.timestamp < at {
                true => held.renamed(at),
                false => held.clone(),
            }))
        })?;
    }
    loop {
        cx.op.check()?;
        let generation = collection.generation();
        let there = store.collection(cx.ns());
        let is_there = there.is_some_and(|c| c.uuid() == collection.uuid());
        let later = collection.placement().is_none_or(|p| p.timestamp > at);
        if !is_there || later {
            return Ok(());
        }
        let target = store.collection(to);
        // What an older generation has left gives way, too.
        let stays = |c: &Arc<Collection>| {
            Some(c.uuid()) != replaces && c.placement().is_none_or(|p| p.stays)
        };
        if target.as_ref().is_some_and(stays) {
            let why = format!("{to} was made on this shard while a collection is given this name");
            return Err(Error::new(Code::NamespaceExists, why));
        }
        let which = (collection, generation);
        if !store.rename_this(which, target.as_ref(), (cx.ns(), to), &**cx.op)? {
            continue;
        }
        cx.op.note_change(|| CatalogChange::Renamed {
            from: cx.ns().to_string(),
            to: to.to_string(),
        });
        for ns in [cx.ns(), to] {
            cx.engine().cursors.invalidate(ns, "collection renamed");
            cx.server.metrics.top_forget(ns);
        }
        return Ok(());
    }
}
