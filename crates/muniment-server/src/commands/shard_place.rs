//! `_shardPlace`: a router tells a shard what it owns of a sharded collection.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, Target};
use muniment_shard::Timestamp;
use muniment_storage::{Collection, CollectionOptions, Placement};
use muniment_value::args::{Types, opt, req, uuid};
use muniment_value::{Code, Doc, Error, Result, Value};
use std::sync::Arc;

/// The command. Each of its forms may be repeated: it then finds done what it was to do.
///
/// - `{_shardPlace, uuid, options?, placement}`: this is what the shard owns. With `options`, the collection is made
///   if it is not there.
/// - `{_shardPlace, uuid, ends: <timestamp>, drops}`: the generation of that time has ended here. The collection is
///   dropped, or is not sharded any more.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardPlace",
    doc: "Internal: a router tells a shard what it owns of a collection",
    kind: Kind::Ddl,
    target: Target::Collection,
    write_concern: true,
    makes_collections: true,
    fields: &[
        req("uuid", Types::BINARY),
        opt("options", Types::OBJECT),
        opt("placement", Types::OBJECT),
        opt("ends", Types::TIMESTAMP),
        opt("drops", Types::BOOL),
    ],
    run,
    ..CommandSpec::new(Routed::Refused, Needs::Member)
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let wanted = uuid(
        "_shardPlace",
        "uuid",
        cx.args.get("uuid").unwrap_or(Value::Null),
    )?;
    let store = &cx.engine().store;
    let there = store.collection(cx.ns());
    let found = there.clone().filter(|c| c.uuid() == wanted);
    if let Some(Value::Timestamp { t, i }) = cx.args.get("ends") {
        let at = Timestamp::new(t, i);
        let ends = |c: &Arc<Collection>| c.placement().is_some_and(|p| p.timestamp == at);
        if let Some(collection) = found.filter(ends) {
            match cx.args.bool("drops", false) {
                true => {
                    store.drop_collection(cx.ns(), &**cx.op)?;
                    cx.engine()
                        .cursors
                        .invalidate(cx.ns(), "collection dropped");
                    cx.server.metrics.top_forget(cx.ns());
                }
                false => store.place(&collection, None, &**cx.op)?,
            }
        }
        // What was found done may not be on the disk of the majority yet.
        cx.note_write();
        return Ok(());
    }
    let stored = cx.args.doc("placement").unwrap_or(Doc::EMPTY);
    let placement = Placement::parse(stored)?;
    let held = there
        .as_ref()
        .and_then(|c| Some((c.uuid(), c.placement()?)));
    // What is undecided may be changed by the router that is at work on it.
    let newer = held.filter(|(_, h)| {
        h.timestamp > placement.timestamp
            || (h.timestamp == placement.timestamp && h.version > placement.version && !h.undecided)
    });
    if let Some((uuid, newer)) = newer {
        let why = format!("the shard has the version {} already", newer.version);
        return Err(muniment_storage::stale(cx.ns(), Some((uuid, &newer)), &why));
    }
    let collection = match (found, cx.args.doc("options")) {
        (Some(collection), _) => collection,
        (None, Some(options)) => {
            // An older generation may have been left here.
            if there.is_some_and(|c| c.placement().is_some()) {
                store.drop_collection(cx.ns(), &**cx.op)?;
            }
            let options = CollectionOptions {
                document: options.to_buf(),
                ..CollectionOptions::default()
            };
            store.create_collection_as(cx.ns(), options, Some(wanted), &**cx.op)?
        }
        (None, None) => {
            return Err(Error::new(
                Code::NamespaceNotFound,
                format!("the collection {} of this UUID is not here", cx.ns()),
            ));
        }
    };
    store.place(&collection, Some(placement), &**cx.op)?;
    cx.note_write();
    Ok(())
}
