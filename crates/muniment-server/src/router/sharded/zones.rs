//! Zones: which shards may have which ranges. A shard names its zones in `config.shards`, and `config.tags` has the
//! ranges of each.

use super::lease::Lease;
use crate::context::CommandContext;
use crate::router::balancer::settings::wake;
use crate::router::configuration::read;
use crate::router::forward::run;
use crate::router::{Known, Router};
use muniment_op::Interrupt;
use muniment_shard::catalog::Tag;
use muniment_shard::{ShardKey, Zones};
use muniment_value::{
    ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, array, doc, new_object_id,
};

/// The right under which zones and shards are changed. No collection has this name.
pub const TOPOLOGY: &str = "config.shards";

/// The zones of a sharded collection.
///
/// # Errors
/// Those of the configuration's set.
pub fn of(on: &dyn Interrupt, router: &Router, known: &Known) -> Result<Zones> {
    let tags = read(on, router, "tags", doc! { "ns": known.ns() })?;
    of_tags(&tags, &known.key)
}

/// The zones that documents of `config.tags` say, for a collection with this shard key.
///
/// # Errors
/// 4, 14 for a document that is none; those of [`Zones::new`].
pub fn of_tags(tags: &[DocBuf], key: &ShardKey) -> Result<Zones> {
    let zones = tags.iter().map(|d| Tag::parse(d.as_doc())?.range(key));
    Zones::new(key, zones.collect::<Result<_>>()?)
}

/// Updates the document of a shard.
///
/// # Errors
/// 70 ShardNotFound; those of the configuration's set.
pub fn update_shard(
    cx: &CommandContext<'_>,
    router: &Router,
    shard: &str,
    change: DocBuf,
) -> Result<()> {
    let command = doc! {
        "update": "shards",
        "updates": array![doc! { "q": doc! { "_id": shard }, "u": change }],
        "writeConcern": doc! { "w": "majority" },
    };
    let reply = run(&**cx.op, router, &router.config, "config", &command, true)?;
    match reply.as_doc().get("n").and_then(|v| v.as_i64_exact()) {
        Some(1) => Ok(()),
        _ => Err(not_found(shard)),
    }
}

/// 70 ShardNotFound.
pub fn not_found(shard: &str) -> Error {
    Error::new(Code::ShardNotFound, format!("Shard {shard} does not exist"))
}

/// Takes a shard out of a zone.
///
/// # Errors
/// 70 ShardNotFound; 163 ZoneStillInUse for the only shard of a zone that has ranges; those of the configuration's set.
pub fn leave(cx: &CommandContext<'_>, router: &Router, shard: &str, zone: &str) -> Result<()> {
    let lease = Lease::take(cx, router, TOPOLOGY, "removeShardFromZone")?;
    let done = check_leaves(cx, router, shard, zone)
        .and_then(|()| update_shard(cx, router, shard, doc! { "$pull": doc! { "tags": zone } }));
    lease.give_back(cx, router, done)
}

/// Refuses that a shard leaves a zone that has ranges and no other shard.
///
/// # Errors
/// 70 ShardNotFound; 163 ZoneStillInUse.
pub fn check_leaves(
    cx: &CommandContext<'_>,
    router: &Router,
    shard: &str,
    zone: &str,
) -> Result<()> {
    let shards = read(&**cx.op, router, "shards", DocBuf::new())?;
    let is_in = |d: &DocBuf| {
        let tags = d.as_doc().get_array("tags").unwrap_or(Doc::EMPTY);
        tags.values().any(|v| v.as_str() == Some(zone))
    };
    let own = shards
        .iter()
        .find(|d| d.as_doc().get_str("_id") == Some(shard));
    let own = own.ok_or_else(|| not_found(shard))?;
    let others = shards
        .iter()
        .any(|d| d.as_doc().get_str("_id") != Some(shard) && is_in(d));
    if !is_in(own) || others || read(&**cx.op, router, "tags", doc! { "tag": zone })?.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        Code::ZoneStillInUse,
        format!("Shard {shard} is the only shard in the zone {zone}, which has ranges"),
    ))
}

/// Gives a range of a collection to a zone, or takes it from its zone if there is none.
///
/// # Errors
/// 177 ZoneNotFound; 178 RangeOverlapConflict; 61 ShardKeyNotFound for bounds that do not begin with the shard key; 2
/// BadValue for other bounds that are none; those of the configuration's set.
pub fn assign(
    cx: &CommandContext<'_>,
    router: &Router,
    ns: &str,
    (min, max): (Doc<'_>, Doc<'_>),
    zone: Option<&str>,
) -> Result<()> {
    let lease = Lease::take(cx, router, TOPOLOGY, "updateZoneKeyRange")?;
    let done = assign_within(cx, router, ns, (min, max), zone);
    lease.give_back(cx, router, done)?;
    wake(&**cx.op, router);
    Ok(())
}

fn assign_within(
    cx: &CommandContext<'_>,
    router: &Router,
    ns: &str,
    (min, max): (Doc<'_>, Doc<'_>),
    zone: Option<&str>,
) -> Result<()> {
    let on = &**cx.op;
    let key = key_for(cx, router, ns, (min, max))?;
    let prefix = |d: Doc<'_>| {
        key.extended_bound(d).map_err(|_| {
            Error::new(
                Code::ShardKeyNotFound,
                format!(
                    "{} does not begin with the fields of the shard key {}",
                    d.to_display(),
                    key.pattern().to_display()
                ),
            )
        })
    };
    let (low, high) = (prefix(min)?, prefix(max)?);
    let (min, max) = (key.bound_doc(&low)?, key.bound_doc(&high)?);
    if low >= high {
        return Err(Error::bad_value(format!(
            "min: {} should be less than max: {}",
            min.as_doc().to_display(),
            max.as_doc().to_display()
        )));
    }
    let tags = read(on, router, "tags", doc! { "ns": ns })?;
    let Some(zone) = zone else {
        return remove(cx, router, (&tags, &key), (&low, &high));
    };
    if read(on, router, "shards", doc! { "tags": zone })?.is_empty() {
        let why = format!("zone {zone} does not exist");
        return Err(Error::new(Code::ZoneNotFound, why));
    }
    for d in &tags {
        let range = Tag::parse(d.as_doc())?.range(&key)?;
        if range.min == low && range.max == high && &*range.zone == zone {
            return Ok(());
        }
        if range.min < high && low < range.max {
            return Err(Error::new(
                Code::RangeOverlapConflict,
                format!(
                    "Zone range: {} -->> {} on {zone} is overlapping with existing: {} -->> {} on {}",
                    key.show(&low),
                    key.show(&high),
                    key.show(&range.min),
                    key.show(&range.max),
                    range.zone
                ),
            ));
        }
    }
    let tag = doc! {
        "_id": Value::ObjectId(new_object_id()), "ns": ns, "min": min, "max": max, "tag": zone,
    };
    let insert = doc! {
        "insert": "tags", "documents": array![tag], "writeConcern": doc! { "w": "majority" },
    };
    run(on, router, &router.config, "config", &insert, false).map(drop)
}

/// Removes a range, which is one of these.
fn remove(
    cx: &CommandContext<'_>,
    router: &Router,
    (tags, key): (&[DocBuf], &ShardKey),
    (low, high): (&[u8], &[u8]),
) -> Result<()> {
    let mut ids = ArrayBuf::new();
    for d in tags {
        let range = Tag::parse(d.as_doc())?.range(key)?;
        if range.min == low && range.max == high {
            ids.push(d.as_doc().get("_id").unwrap_or(Value::Null));
        }
    }
    super::lease::delete(
        &**cx.op,
        router,
        "tags",
        doc! { "_id": doc! { "$in": ids } },
    )
    .map(drop)
}

/// The shard key of a collection. One that is not sharded yet may be sharded by the fields of the bounds.
fn key_for(
    cx: &CommandContext<'_>,
    router: &Router,
    ns: &str,
    (min, max): (Doc<'_>, Doc<'_>),
) -> Result<std::sync::Arc<ShardKey>> {
    if let Some(known) = router.tables.refresh(&**cx.op, router, ns)? {
        return Ok(std::sync::Arc::clone(&known.key));
    }
    let same = min
        .iter()
        .map(|e| e.name())
        .eq(max.iter().map(|e| e.name()));
    if !same || min.is_empty() {
        return Err(Error::bad_value(format!(
            "the bounds {} and {} have to have the same fields",
            min.to_display(),
            max.to_display()
        )));
    }
    let mut pattern = DocBuf::new();
    for e in min {
        pattern.append(e.name(), 1);
    }
    ShardKey::parse(pattern.as_doc()).map(std::sync::Arc::new)
}
