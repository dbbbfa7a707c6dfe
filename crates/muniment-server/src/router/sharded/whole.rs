//! Collections that live on one shard, and are not divided: moving one, and making one of a divided collection.
//!
//! A collection that is not on the shard of its database is tracked: the configuration has it with one chunk, and
//! `unsplittable`. One that comes back to that shard is tracked no more.

use super::chunks::{known_now, with_lease};
use super::dividing::ShardRequest;
use super::lease::Lease;
use super::movement::{MoveRequest, move_range};
use super::place::{Left, end, ending_with, placed, retell};
use super::shard::shard;
use crate::context::CommandContext;
use crate::router::SetPool;
use crate::router::place::home_of;
use crate::router::{Known, Router};
use crate::uuid::uuid_value;
use muniment_shard::ShardKey;
use muniment_value::{Code, Error, Result, array, doc};
use std::sync::Arc;

/// Moves a collection that is not divided to a shard.
///
/// # Errors
/// 20 IllegalOperation if it is divided; 26 NamespaceNotFound; 72 InvalidOptions for a capped one; those of
/// [`move_range`].
pub fn move_collection(cx: &CommandContext<'_>, router: &Router, ns: &str, to: &str) -> Result<()> {
    let (db, _) = ns.split_once('.').unwrap_or_default();
    let target = router.catalog.shard(&**cx.op, router, to)?;
    let known = router.tables.refresh(&**cx.op, router, ns)?;
    if known.is_some_and(|known| !known.collection.unsplittable) {
        return Err(Error::new(
            Code::IllegalOperation,
            format!("{ns} is divided over shards: moveCollection moves collections that are not"),
        ));
    }
    let home = home_of(cx, router, db)?;
    if router.tables.of(&**cx.op, router, ns)?.is_none() {
        if home.name == target.name {
            return super::place::stored(cx, router, &home, ns)?
                .map(drop)
                .ok_or_else(|| not_found(ns));
        }
        if super::place::stored(cx, router, &home, ns)?.is_none() {
            return Err(not_found(ns));
        }
        track(cx, router, ns)?;
    }
    move_whole(cx, router, ns, to)?;
    match home.name == target.name {
        true => untrack(cx, router, ns),
        false => Ok(()),
    }
}

/// Moves a collection that is not divided, and leaves it tracked.
///
/// # Errors
/// As [`move_collection`].
pub fn track_and_move(cx: &CommandContext<'_>, router: &Router, ns: &str, to: &str) -> Result<()> {
    if router.tables.of(&**cx.op, router, ns)?.is_none() {
        track(cx, router, ns)?;
    }
    move_whole(cx, router, ns, to)
}

/// Has the configuration know of a collection that is whole on the shard of its database.
///
/// # Errors
/// Those of [`shard`].
pub fn track(cx: &CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    let request = ShardRequest {
        ns,
        key: Arc::new(ShardKey::parse(doc! { "_id": 1 }.as_doc())?),
        unique: false,
        chunks: None,
        simple: true,
        unsplittable: true,
        series: None,
    };
    shard(cx, router, &request).map(drop)
}

fn move_whole(cx: &CommandContext<'_>, router: &Router, ns: &str, to: &str) -> Result<()> {
    let known = known_now(cx, router, ns)?;
    let request = MoveRequest {
        ns,
        key: &known.key,
        min: known.key.lowest(),
        max: known.key.highest(),
        to,
        wait_for_delete: false,
    };
    move_range(cx, router, &request)
}

/// Has a collection that is tracked on another shard come back, so that it can be divided like any other.
///
/// # Errors
/// Those of [`move_collection`].
pub fn bring_home(cx: &CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    let known = router.tables.refresh(&**cx.op, router, ns)?;
    if !known.is_some_and(|known| known.collection.unsplittable) {
        return Ok(());
    }
    let (db, _) = ns.split_once('.').unwrap_or_default();
    let home = home_of(cx, router, db)?;
    let shards = router.catalog.shards(&**cx.op, router)?;
    let to = shards.iter().find(|(_, set)| set.name == home.name);
    let to = to.map_or("", |(name, _)| name.as_str());
    move_collection(cx, router, ns, to)
}

/// Makes a divided collection one that lives on a shard: on that of its database if none is named.
///
/// # Errors
/// 118 NamespaceNotSharded; those of [`move_range`].
pub fn unshard(cx: &CommandContext<'_>, router: &Router, ns: &str, to: Option<&str>) -> Result<()> {
    let (db, _) = ns.split_once('.').unwrap_or_default();
    let known = known_now(cx, router, ns)?;
    if known.collection.unsplittable {
        return Err(super::chunks::not_sharded(ns));
    }
    let home = home_of(cx, router, db)?;
    let shards = router.catalog.shards(&**cx.op, router)?;
    let of_home = shards.iter().find(|(_, set)| set.name == home.name);
    let of_home = of_home.map_or("", |(name, _)| name.as_str());
    let to = to.unwrap_or(of_home);
    gather(cx, router, ns, to)?;
    match to == of_home {
        true => untrack(cx, router, ns),
        false => one_chunk(cx, router, ns),
    }
}

/// Moves all ranges to one shard.
fn gather(cx: &CommandContext<'_>, router: &Router, ns: &str, to: &str) -> Result<()> {
    loop {
        let known = known_now(cx, router, ns)?;
        let elsewhere = known
            .table
            .ranges()
            .find(|r| known.table.shard_name(r.shard) != to);
        let Some(range) = elsewhere else {
            return Ok(());
        };
        let request = MoveRequest {
            ns,
            key: &known.key,
            min: range.min,
            max: range.max,
            to,
            wait_for_delete: false,
        };
        move_range(cx, router, &request)?;
    }
}

/// Makes one chunk of those of a collection that are all on one shard, and says that it stays one.
fn one_chunk(cx: &CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    let known = known_now(cx, router, ns)?;
    if known.table.len() > 1 {
        let key = &known.key;
        let bounds = (
            key.bound_doc(&key.lowest())?,
            key.bound_doc(&key.highest())?,
        );
        super::split::merge(cx, router, ns, (bounds.0.as_doc(), bounds.1.as_doc()))?;
    }
    with_lease(cx, router, (ns, "unshardCollection"), |lease, known| {
        let update = doc! {
            "q": doc! { "_id": ns, "uuid": uuid_value(&known.collection.generation.uuid) },
            "u": doc! { "$set": doc! { "unsplittable": true } },
        };
        let tags = doc! { "q": doc! { "ns": ns }, "limit": 0 };
        let statements = vec![
            doc! { "update": "collections", "updates": array![update] },
            doc! { "delete": "tags", "deletes": array![tags] },
        ];
        lease.commit(cx, router, statements)?;
        router.tables.refresh(&**cx.op, router, ns).map(drop)
    })
}

/// Has the configuration forget a collection that is whole on the shard of its database.
///
/// # Errors
/// 117 if a part of it is elsewhere; those of the sets.
///
/// That shard is told first that the collection stays there when its generation ends, and routers wait. So a
/// router that settles what this one has left does not drop it.
pub fn untrack(cx: &CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    let (db, _) = ns.split_once('.').unwrap_or_default();
    let home = home_of(cx, router, db)?;
    let done = with_lease(cx, router, (ns, "unshardCollection"), |lease, known| {
        let whole = known
            .table
            .ranges()
            .all(|r| known.set(r.shard).is_ok_and(|set| set.name == home.name));
        if !whole {
            return Err(Error::new(
                Code::ConflictingOperationInProgress,
                format!("a range of {ns} was moved away meanwhile"),
            ));
        }
        let uuid = known.collection.generation.uuid;
        let place = known.sets.iter().position(|set| set.name == home.name);
        let staying = placed(known, place)?.staying().said_by(lease.at);
        retell(cx, router, &home, (ns, &uuid), (staying, None))?;
        cx.at_step("duringUntrack")?;
        let forgotten = lease.commit(
            cx,
            router,
            vec![
                doc! { "delete": "collections", "deletes": array![doc! { "q": doc! { "_id": ns, "uuid": uuid_value(&uuid) }, "limit": 1 }] },
                doc! { "delete": "tags", "deletes": array![doc! { "q": doc! { "ns": ns }, "limit": 0 }] },
            ],
        );
        // Otherwise it may have been forgotten all the same, and the collection would be dropped as one that had gone
        // elsewhere. Then the next router that meets the shard does this.
        if forgotten.is_err() && lease.renew(cx, router).is_ok() {
            let decided = placed(known, place)?.said_by(lease.at);
            drop(retell(cx, router, &home, (ns, &uuid), (decided, None)));
        }
        forgotten?;
        Ok(Arc::clone(known))
    })?;
    router.tables.refresh(&**cx.op, router, ns)?;
    cx.at_step("afterUntrack")?;
    ended(cx, router, &home, &done)
}

/// Tells all shards that the generation has ended.
fn ended(cx: &CommandContext<'_>, router: &Router, home: &SetPool, known: &Known) -> Result<()> {
    let generation = known.collection.generation;
    let of = (&generation.uuid, generation.timestamp);
    for (set, stays) in ending_with(cx, router, home)? {
        // It is not dropped where it stays, whatever the placement says there: a router that settles may have told the
        // shard meanwhile what the configuration had said before.
        end(cx, router, &set, known.ns(), of, Left::staying(stays))?;
    }
    Lease::forget_chunks(cx, router, known.ns(), &generation.uuid)
}

fn not_found(ns: &str) -> Error {
    Error::new(Code::NamespaceNotFound, format!("ns not found: {ns}"))
}
