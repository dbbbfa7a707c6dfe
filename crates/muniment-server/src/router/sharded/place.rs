//! Telling shards what they own.

use super::lease::binary;
use crate::context::CommandContext;
use crate::router::forward::run;
use crate::router::tables::Known;
use crate::router::{Router, SetPool};
use muniment_op::Interrupt;
use muniment_shard::{RangeTable, ShardKey, Timestamp, Version};
use muniment_storage::{Owned, Placement};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc};
use std::sync::Arc;

/// A collection as the shard has it that holds its database.
pub struct Stored {
    /// The UUID.
    pub uuid: [u8; 16],
    /// The options.
    pub options: DocBuf,
    /// The indexes, without `_id_`.
    pub indexes: Vec<DocBuf>,
}

/// A collection on a shard; `None` if it is not there.
///
/// # Errors
/// 166 CommandNotSupportedOnView; the shard's.
pub fn stored(
    cx: &CommandContext<'_>,
    router: &Router,
    set: &SetPool,
    ns: &str,
) -> Result<Option<Stored>> {
    let (db, name) = ns.split_once('.').unwrap_or_default();
    let list = doc! { "listCollections": 1, "filter": doc! { "name": name } };
    let reply = run(&**cx.op, router, set, db, &list, true)?;
    let Some(found) = first_batch(reply.as_doc()).next() else {
        return Ok(None);
    };
    if found.get_str("type") != Some("collection") {
        let what = found.get_str("type").unwrap_or_default();
        let why = format!("Namespace {ns} is a {what}, not a collection");
        return Err(Error::new(Code::CommandNotSupportedOnView, why));
    }
    let info = found.get_doc("info").unwrap_or(Doc::EMPTY);
    let Some(Value::Binary { bytes, .. }) = info.get("uuid") else {
        return Err(no_uuid());
    };
    let list = doc! { "listIndexes": name, "cursor": doc! { "batchSize": 1000 } };
    let indexes = run(&**cx.op, router, set, db, &list, true)?;
    Ok(Some(Stored {
        uuid: <[u8; 16]>::try_from(bytes).map_err(|_| no_uuid())?,
        options: found.get_doc("options").unwrap_or(Doc::EMPTY).to_buf(),
        indexes: first_batch(indexes.as_doc())
            .filter(|i| i.get_str("name") != Some("_id_"))
            .map(|i| i.to_buf())
            .collect(),
    }))
}

#[cold]
fn no_uuid() -> Error {
    Error::internal("a shard tells no UUID of a collection")
}

fn first_batch(reply: Doc<'_>) -> impl Iterator<Item = Doc<'_>> {
    let cursor = reply.get_doc("cursor").unwrap_or(Doc::EMPTY);
    let batch = cursor.get_array("firstBatch").unwrap_or(Doc::EMPTY);
    batch.values().filter_map(|v| v.as_doc())
}

/// A view as it is stored.
pub struct View {
    /// The collection or view that it reads, without the database.
    pub on: String,
    /// Its stages.
    pub pipeline: ArrayBuf,
    /// Its collation, if it is not the simple one.
    pub collation: Option<DocBuf>,
}

/// The view of this name on a set; `None` if there is none.
///
/// # Errors
/// The set's.
pub fn view(
    on: &dyn Interrupt,
    router: &Router,
    set: &SetPool,
    db: &str,
    name: &str,
) -> Result<Option<View>> {
    let list = doc! { "listCollections": 1, "filter": doc! { "name": name, "type": "view" } };
    let reply = run(on, router, set, db, &list, true)?;
    let options = first_batch(reply.as_doc())
        .next()
        .and_then(|d| d.get_doc("options"));
    Ok(options.map(|o| View {
        on: o.get_str("viewOn").unwrap_or_default().to_string(),
        pipeline: o
            .get_array("pipeline")
            .unwrap_or(Doc::EMPTY)
            .values()
            .collect(),
        collation: o.get_doc("collation").map(|d| d.to_buf()),
    }))
}

/// What a shard owns of a collection, and the collection as it is to be there.
pub struct Told<'t> {
    /// The collection's name.
    pub ns: &'t str,
    /// The collection elsewhere, to be made if it is not there.
    pub stored: &'t Stored,
    /// What the shard owns.
    pub placement: Placement,
}

/// Tells a shard what it owns, and makes the collection and its indexes there.
///
/// # Errors
/// 13388 StaleConfig if the shard has a newer placement; the shard's.
pub fn tell(
    cx: &CommandContext<'_>,
    router: &Router,
    set: &SetPool,
    told: &Told<'_>,
) -> Result<()> {
    let (db, name) = told.ns.split_once('.').unwrap_or_default();
    let place = doc! {
        "_shardPlace": name, "uuid": binary(&told.stored.uuid), "options": &told.stored.options,
        "placement": told.placement.to_doc(), "writeConcern": doc! { "w": "majority" },
    };
    run(&**cx.op, router, set, db, &place, true)?;
    if told.stored.indexes.is_empty() {
        return Ok(());
    }
    let indexes: ArrayBuf = told.stored.indexes.iter().cloned().collect();
    let create = doc! {
        "createIndexes": name, "indexes": indexes, "writeConcern": doc! { "w": "majority" },
    };
    run(&**cx.op, router, set, db, &create, true).map(drop)
}

/// Tells a shard that a generation of a collection has ended. With `drops`, the collection goes with it.
///
/// # Errors
/// The shard's.
pub fn end(
    cx: &CommandContext<'_>,
    router: &Router,
    set: &SetPool,
    ns: &str,
    of: (&[u8; 16], Timestamp),
    drops: bool,
) -> Result<()> {
    let (db, name) = ns.split_once('.').unwrap_or_default();
    let place = doc! {
        "_shardPlace": name, "uuid": binary(of.0), "ends": of.1.to_value(), "drops": drops,
        "writeConcern": doc! { "w": "majority" },
    };
    run(&**cx.op, router, set, db, &place, true).map(drop)
}

/// What a shard owns by a table: `shard` is its place there, if it has one.
///
/// # Errors
/// Those of [`Placement::new`].
pub fn of_table(table: &RangeTable, shard: Option<usize>, undecided: bool) -> Result<Placement> {
    let highest = table.key().highest();
    let ranges = table.ranges().filter(|r| Some(r.shard) == shard);
    let owned: Vec<Owned> = ranges
        .map(|r| (r.min, (r.max != highest).then_some(r.max)))
        .collect();
    let version = shard.map_or(Version::default(), |shard| table.version_of(shard));
    let key: Arc<ShardKey> = Arc::clone(table.key());
    Placement::new(table.generation().timestamp, version, key, owned, undecided)
}

/// The sets that have a collection: those with chunks, and the one that holds its database. With each, its place in the
/// table, if it has one.
///
/// # Errors
/// Those of finding the database.
pub fn homes(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
) -> Result<Vec<(Arc<SetPool>, Option<usize>)>> {
    let mut homes: Vec<_> = super::all_of(known)
        .into_iter()
        .map(|shard| Ok((Arc::clone(known.set(shard)?), Some(shard))))
        .collect::<Result<_>>()?;
    let (db, _) = known.ns().split_once('.').unwrap_or_default();
    let primary = crate::router::place::set_of(cx, router, db)?;
    if !homes.iter().any(|(set, _)| set.name == primary.name) {
        homes.push((primary, None));
    }
    Ok(homes)
}
