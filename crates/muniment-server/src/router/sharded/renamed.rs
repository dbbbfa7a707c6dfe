//! The end of a rename that was decided: see [`rename`](super::rename).

use super::lease::delete;
use crate::context::CommandContext;
use crate::router::forward::run;
use crate::router::{Known, Router};
use crate::uuid::uuid_value;
use muniment_value::{Result, array, doc};

/// Has the shards rename their parts of a collection, if that was decided and not all of them were told. Routers wait
/// until they are told what they own. False if there was nothing to do.
///
/// # Errors
/// Those of the sets.
pub fn finish_rename(cx: &CommandContext<'_>, router: &Router, known: &Known) -> Result<bool> {
    let collection = &known.collection;
    let Some(renamed) = collection.rest.as_doc().get_doc("renamed") else {
        return Ok(false);
    };
    let from = renamed.get_str("from").unwrap_or_default();
    let (db, from) = from.split_once('.').unwrap_or_default();
    let generation = collection.generation;
    let mut command = doc! {
        "_shardRename": from, "to": known.name(), "uuid": uuid_value(&generation.uuid),
        "at": generation.timestamp.to_value(),
    };
    command.append_some("replaces", renamed.get("replaces"));
    command.append("writeConcern", doc! { "w": "majority" });
    for (_, set) in router.catalog.shards(&**cx.op, router)? {
        run(&**cx.op, router, &set, db, &command, true)?;
    }
    if let Some(replaces) = renamed.get("replaces") {
        delete(&**cx.op, router, "chunks", doc! { "uuid": replaces })?;
    }
    let this = doc! {
        "_id": known.ns(), "uuid": uuid_value(&generation.uuid), "timestamp": generation.timestamp.to_value(),
    };
    let update = doc! {
        "update": "collections",
        "updates": array![doc! { "q": this, "u": doc! { "$unset": doc! { "renamed": 1 } } }],
        "writeConcern": doc! { "w": "majority" },
    };
    run(&**cx.op, router, &router.config, "config", &update, true)?;
    Ok(true)
}
