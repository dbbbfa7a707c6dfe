//! What is done when a shard and the configuration go on to differ.
//!
//! A router may have ended between the steps of a change. The configuration says how the change came out, and any
//! router can bring the shards to agree with it: this is done once no router is at work on the collection.

use super::lease::{binary, delete, is_taken};
use super::place::{Told, end, homes, of_table, stored, tell};
use crate::context::CommandContext;
use crate::router::Router;
use crate::router::place::set_of;
use muniment_shard::Timestamp;
use muniment_value::{Doc, Result, Value, doc};

/// Brings the shards to agree with the configuration on a collection, unless a router is at work on it. `why` is what
/// the shard said of its own state.
///
/// # Errors
/// Those of the sets.
pub fn settle(cx: &CommandContext<'_>, router: &Router, ns: &str, why: Doc<'_>) -> Result<()> {
    if is_taken(cx, router, ns)? {
        return Ok(());
    }
    let (db, _) = ns.split_once('.').unwrap_or_default();
    let primary = set_of(cx, router, db)?;
    if let Some(known) = router.tables.refresh(&**cx.op, router, ns)? {
        let homes = homes(cx, router, &known)?;
        let mut held = None;
        for (set, _) in &homes {
            let there = stored(cx, router, set, ns)?;
            held = held.or(there.filter(|h| h.uuid == known.collection.generation.uuid));
        }
        let Some(held) = held else {
            return Ok(());
        };
        for (set, shard) in homes {
            let placement = of_table(&known.table, shard, false)?;
            let told = Told {
                ns,
                stored: &held,
                placement,
            };
            // A shard that has a newer one knows more than this router.
            match tell(cx, router, &set, &told) {
                Err(e) if super::is_stale(&e) => {}
                other => other?,
            }
        }
        return Ok(());
    }
    // The generation that the shard still has was given up, or never came to be.
    let (Some(Value::Binary { bytes, .. }), Some(Value::Timestamp { t, i })) =
        (why.get("uuid"), why.get("timestamp"))
    else {
        return Ok(());
    };
    let Ok(uuid) = <[u8; 16]>::try_from(bytes) else {
        return Ok(());
    };
    let of = (&uuid, Timestamp::new(t, i));
    let undecided = why.get("undecided").is_some_and(|v| v.truthy());
    for (_, set) in router.catalog.shards(&**cx.op, router)? {
        // A collection that was to be sharded stays where it was.
        let stays = undecided && set.name == primary.name;
        end(cx, router, &set, ns, of, !stays)?;
    }
    delete(cx, router, "chunks", doc! { "uuid": binary(&uuid) }).map(drop)
}
