//! Sharding a collection.
//!
//! 1. The shard that holds the database gets the collection and an index that begins with the shard key.
//! 2. It is told that it owns all of it, "undecided": from here on routers that think the collection is not sharded
//!    cannot use it.
//! 3. The chunks are chosen, and written into the configuration, where nothing refers to them yet. Each shard is told
//!    what it will own.
//! 4. The document in `config.collections` decides, in a transaction that gives the [lease](super::lease) back.
//! 5. The shards are told that it is decided.
//!
//! If the router ends before 4, [`settle`](super::settle) takes the placements away again; after 4 it does 5.

use super::dividing::{
    ShardRequest, check_collection, check_documents, check_series, has_index, index_of, is_key,
};
use super::lease::Lease;
use super::place::{
    Left, Stored, Told, end, ending_with, of_table, placed, retell, stored, tell, tell_streams,
};
use super::renamed::finish_rename;
use super::reshard::operation::settle_all;
use super::settle::without_what_is_left;
use super::{is_gone, is_stale};
use crate::context::CommandContext;
use crate::placement::FIELD;
use crate::router::configuration::read;
use crate::router::forward::run;
use crate::router::place::{home_of, set_of};
use crate::router::tables::SERIES_FIELDS;
use crate::router::{Router, SetPool};
use crate::uuid::uuid_value;
use muniment_shard::catalog::{Chunk, Collection, Shard, Tag};
use muniment_shard::{
    Candidate, Generation, RangeTable, Record, ShardKey, Timestamp, Version, Zones, initial_chunks,
};
use muniment_storage::stale;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, array, doc, new_object_id};
use std::sync::Arc;

/// So many chunks are written at once.
const PAGE: usize = 10_000;

/// Shards a collection; its UUID.
///
/// # Errors
/// 23 AlreadyInitialized if it is sharded by another key; 72 InvalidOptions if there is no fitting index; 46, 117 if
/// another router changes the collection; those of the sets.
pub fn shard(
    cx: &CommandContext<'_>,
    router: &Router,
    request: &ShardRequest<'_>,
) -> Result<[u8; 16]> {
    let ns = request.ns;
    if let Some(uuid) = already(cx, router, request)? {
        return Ok(uuid);
    }
    let primary = primary_of(cx, router, ns)?;
    // An index may take long to build, so that is done before.
    prepared(cx, router, &primary, request)?;
    let lease = Lease::take(cx, router, ns, "shardCollection")?;
    // Another router may have been at work meanwhile.
    let begun = already(cx, router, request).and_then(|uuid| match uuid {
        Some(uuid) => Ok((Some(uuid), None)),
        None => {
            lease.keep(cx, router, || {
                without_what_is_left(cx, router, &lease, &primary, ns)
            })?;
            let held = prepared(cx, router, &primary, request)?;
            check_name(cx, router, ns, &held)?;
            Ok((None, Some(held)))
        }
    });
    let held = match begun {
        Ok((None, Some(held))) => held,
        Ok((uuid, _)) => {
            lease.release(cx, router)?;
            return uuid
                .ok_or_else(|| Error::internal("a collection is neither sharded nor there"));
        }
        Err(e) => {
            lease.release(cx, router)?;
            return Err(e);
        }
    };
    match begin(cx, router, request, (&primary, &held), &lease) {
        Ok(chunks) if !request.unsplittable => {
            let (_, name) = ns.split_once('.').unwrap_or_default();
            let o = doc! {
                "shardCollection": name, "shardKey": request.key.pattern(), "unique": request.unique,
                "numInitialChunks": chunks as i64,
            };
            tell_streams(cx, router, (ns, &held.uuid), &o);
        }
        Ok(_) => {}
        Err(e) => {
            // If the lease is still there, nothing was decided and nobody else is at work.
            if lease.renew(cx, router).is_ok() {
                let undone = lease.keep(cx, router, || {
                    undo(cx, router, request, (&primary, &held), &lease)
                });
                lease.release(cx, router)?;
                undone?;
            }
            return Err(e);
        }
    }
    Ok(held.uuid)
}

/// The UUID of a collection that is sharded as the client asks already.
///
/// # Errors
/// 23 AlreadyInitialized if it is sharded otherwise.
fn already(
    cx: &CommandContext<'_>,
    router: &Router,
    request: &ShardRequest<'_>,
) -> Result<Option<[u8; 16]>> {
    let Some(known) = router.tables.refresh(&**cx.op, router, request.ns)? else {
        return Ok(None);
    };
    let same = is_key(&request.key, known.key.pattern())
        && known.collection.unique == request.unique
        && known.collection.unsplittable == request.unsplittable;
    match same {
        true => Ok(Some(known.collection.generation.uuid)),
        false => Err(Error::new(
            Code::AlreadyInitialized,
            format!(
                "sharding already enabled for collection {} with options {}",
                request.ns,
                known.collection.to_doc().as_doc().to_display()
            ),
        )),
    }
}

/// Refuses a collection that has another name by now, which this shard was not told.
fn check_name(cx: &CommandContext<'_>, router: &Router, ns: &str, held: &Stored) -> Result<()> {
    let named = read(
        &**cx.op,
        router,
        "collections",
        doc! { "uuid": uuid_value(&held.uuid), "_id": doc! { "$ne": ns } },
    )?;
    match named.first().and_then(|d| d.as_doc().get_str("_id")) {
        None => Ok(()),
        Some(now) => Err(Error::new(
            Code::ConflictingOperationInProgress,
            format!("{ns} is being renamed to {now}"),
        )),
    }
}

/// Takes the placements away again, unless it was decided after all.
fn undo(
    cx: &CommandContext<'_>,
    router: &Router,
    request: &ShardRequest<'_>,
    (primary, held): (&SetPool, &Stored),
    lease: &Lease,
) -> Result<()> {
    if router
        .tables
        .refresh(&**cx.op, router, request.ns)?
        .is_some()
    {
        return Ok(());
    }
    for (set, stays) in ending_with(cx, router, primary)? {
        end(
            cx,
            router,
            &set,
            request.ns,
            (&held.uuid, lease.at),
            Left::staying(stays),
        )?;
    }
    lease.delete_chunks(cx, router, &held.uuid)
}

/// The set that holds the collection's database now.
fn primary_of(cx: &CommandContext<'_>, router: &Router, ns: &str) -> Result<Arc<SetPool>> {
    let (db, _) = ns.split_once('.').unwrap_or_default();
    // Another router may have moved it, and the collection with it.
    router.catalog.forget_database(db);
    let made = router.catalog.database(&**cx.op, router, db, Some(None))?;
    made.map_or_else(|| set_of(cx, router, db), Ok)
}

/// The collection with an index that begins with the shard key.
fn prepared(
    cx: &CommandContext<'_>,
    router: &Router,
    primary: &SetPool,
    request: &ShardRequest<'_>,
) -> Result<Stored> {
    let (db, name) = request.ns.split_once('.').unwrap_or_default();
    let majority = doc! { "w": "majority" };
    let on = &**cx.op;
    let found = stored(cx, router, primary, request.ns)?;
    let had = found.is_some();
    if !had {
        // A shard that the database has left in between refuses what names versions.
        if let Some(series) = &request.series {
            check_series(series.as_doc(), request)?;
        }
        let mut create = doc! { "create": name, "writeConcern": majority.clone() };
        create.append_some("timeseries", request.series.as_ref());
        create.append(FIELD, DocBuf::new());
        match run(on, router, primary, db, &create, true) {
            Err(e) if e.code() == Code::NamespaceExists => {}
            Err(e) if is_stale(&e) && !is_gone(&e) => {}
            other => drop(other?),
        }
    }
    let mut held = match found {
        Some(held) => held,
        None => stored(cx, router, primary, request.ns)?.ok_or_else(|| {
            Error::new(
                Code::NamespaceNotFound,
                format!("{} was dropped meanwhile", request.ns),
            )
        })?,
    };
    check_collection(&held, request)?;
    if has_index(&held, &request.key, request.unique) {
        return Ok(held);
    }
    let count = doc! { "count": name };
    let n = run(on, router, primary, db, &count, true)?;
    if n.as_doc().get("n").and_then(|v| v.as_i64_exact()) != Some(0) {
        return Err(Error::new(
            Code::InvalidOptions,
            "Please create an index that starts with the proposed shard key before sharding the collection",
        ));
    }
    let mut index = index_of(&held, &request.key);
    index.append_some("unique", request.unique.then_some(true));
    let create =
        doc! { "createIndexes": name, "indexes": array![&index], "writeConcern": majority };
    run(on, router, primary, db, &create, true)?;
    held.indexes.push(index);
    Ok(held)
}

/// Divides the collection; the number of its chunks.
fn begin(
    cx: &CommandContext<'_>,
    router: &Router,
    request: &ShardRequest<'_>,
    (primary, held): (&Arc<SetPool>, &Stored),
    lease: &Lease,
) -> Result<usize> {
    let generation = Generation {
        uuid: held.uuid,
        timestamp: lease.at,
    };
    let shards = router.catalog.shards(&**cx.op, router)?;
    let of_primary = shards.iter().find(|(_, set)| set.name == primary.name);
    let of_primary: Arc<str> = of_primary.map_or("", |(name, _)| name.as_str()).into();
    let alone = vec![Record {
        min: request.key.lowest(),
        max: request.key.highest(),
        shard: Arc::clone(&of_primary),
        version: Version::new(1, 0),
    }];
    let whole = RangeTable::build(Arc::clone(&request.key), generation, alone.clone())?;
    let placement = of_table(&whole, Some(0), true)?.as_of(lease.at);
    tell_alone(cx, router, primary, request.ns, held, placement)?;
    // Nobody writes to it from here on, and no index is made.
    if let Some(again) = stored(cx, router, primary, request.ns)? {
        check_collection(&again, request)?;
    }
    check_documents(cx, router, (primary, held), request)?;
    let divides = !request.unsplittable && is_empty(cx, router, primary, request.ns)?;
    let records = match divides {
        true => first_chunks(cx, router, request, &of_primary)?,
        false => alone,
    };
    let table = RangeTable::build(Arc::clone(&request.key), generation, records.clone())?;
    lease.delete_chunks(cx, router, &held.uuid)?;
    write_chunks(cx, router, &request.key, &records, generation)?;
    let place = |undecided: bool| -> Result<()> {
        for (name, set) in &shards {
            let shard = table.shard_named(name);
            if shard.is_some() || set.name == primary.name {
                let placement = of_table(&table, shard, undecided)?.as_of(lease.at);
                let told = Told {
                    ns: request.ns,
                    stored: held,
                    placement,
                    ends: None,
                };
                if undecided {
                    lease.renew(cx, router)?;
                }
                tell(cx, router, set, &told)?;
            }
        }
        Ok(())
    };
    place(true)?;
    cx.at_step("shardPlaced")?;
    let collection = document(request, held, generation);
    let insert = doc! { "insert": "collections", "documents": array![collection.to_doc()] };
    lease.commit(cx, router, vec![insert])?;
    router.tables.refresh(&**cx.op, router, request.ns)?;
    // If this fails, `settle` does it when somebody meets it.
    let _ = place(false);
    Ok(table.len())
}

/// The document in `config.collections`.
fn document(request: &ShardRequest<'_>, held: &Stored, generation: Generation) -> Collection {
    let mut rest = DocBuf::new();
    rest.append_some(SERIES_FIELDS, held.series());
    Collection {
        ns: request.ns.to_string(),
        epoch: new_object_id(),
        last_changed: muniment_query::context::now_ms(),
        generation,
        key: request.key.pattern().to_buf(),
        unique: request.unique,
        no_balance: false,
        default_collation: held
            .options
            .as_doc()
            .get_doc("collation")
            .map(|d| d.to_buf()),
        max_chunk_size: None,
        permit_migrations: true,
        unsplittable: request.unsplittable,
        rest,
    }
}

/// Tells the shard that holds the database, whose indexes are there.
fn tell_alone(
    cx: &CommandContext<'_>,
    router: &Router,
    primary: &SetPool,
    ns: &str,
    held: &Stored,
    placement: muniment_storage::Placement,
) -> Result<()> {
    let without = Stored {
        uuid: held.uuid,
        options: held.options.clone(),
        indexes: Vec::new(),
    };
    let told = Told {
        ns,
        stored: &without,
        placement,
        ends: None,
    };
    tell(cx, router, primary, &told)
}

fn is_empty(cx: &CommandContext<'_>, router: &Router, primary: &SetPool, ns: &str) -> Result<bool> {
    let (db, name) = ns.split_once('.').unwrap_or_default();
    let find =
        doc! { "find": name, "limit": 1, "projection": doc! { "_id": 1 }, "singleBatch": true };
    let reply = run(&**cx.op, router, primary, db, &find, true)?;
    let cursor = reply.as_doc().get_doc("cursor").unwrap_or(Doc::EMPTY);
    Ok(cursor
        .get_array("firstBatch")
        .is_none_or(|batch| batch.is_empty()))
}

fn first_chunks(
    cx: &CommandContext<'_>,
    router: &Router,
    request: &ShardRequest<'_>,
    primary: &str,
) -> Result<Vec<Record>> {
    let candidates = candidates(cx, router)?;
    let tags = read(&**cx.op, router, "tags", doc! { "ns": request.ns })?;
    let zones = tags
        .iter()
        .map(|d| Tag::parse(d.as_doc())?.range(&request.key));
    let zones = Zones::new(&request.key, zones.collect::<Result<_>>()?)?;
    initial_chunks(&request.key, &zones, &candidates, primary, request.chunks)
}

/// The shards that may get chunks of a collection.
///
/// # Errors
/// Those of the configuration's set.
pub fn candidates(cx: &CommandContext<'_>, router: &Router) -> Result<Vec<Candidate>> {
    let shards = read(&**cx.op, router, "shards", DocBuf::new())?;
    let shards = shards.iter().map(|d| Shard::parse(d.as_doc()));
    let shards = shards.collect::<Result<Vec<_>>>()?;
    let stay = shards.iter().filter(|s| !s.draining);
    Ok(stay
        .map(|s| Candidate {
            name: s.name.as_str().into(),
            zones: s.zones.iter().map(|z| z.as_str().into()).collect(),
        })
        .collect())
}

/// Writes the chunks of a generation, to which nothing refers yet.
///
/// # Errors
/// Those of the configuration's set.
pub fn write_chunks(
    cx: &CommandContext<'_>,
    router: &Router,
    key: &ShardKey,
    records: &[Record],
    generation: Generation,
) -> Result<()> {
    // Routers read them by version, and clients by their bounds.
    let index = |field: &str| {
        let mut key = doc! { "uuid": 1 };
        key.append(field, 1);
        doc! { "key": key, "name": format!("uuid_1_{field}_1"), "unique": true }
    };
    let create = doc! {
        "createIndexes": "chunks", "indexes": array![index("lastmod"), index("min")],
        "writeConcern": doc! { "w": "majority" },
    };
    run(&**cx.op, router, &router.config, "config", &create, true)?;
    for page in records.chunks(PAGE) {
        let mut docs = ArrayBuf::new();
        for record in page {
            let (id, uuid, since) = (new_object_id(), generation.uuid, generation.timestamp);
            docs.push(Chunk::of_record(record, key, id, uuid, since)?.to_doc());
        }
        let insert = doc! {
            "insert": "chunks", "documents": docs, "writeConcern": doc! { "w": "majority" },
        };
        let reply = run(&**cx.op, router, &router.config, "config", &insert, false)?;
        let errors = reply
            .as_doc()
            .get_array("writeErrors")
            .unwrap_or(Doc::EMPTY);
        if let Some(e) = errors.values().next().and_then(|v| v.as_doc()) {
            return Err(Error::internal(e.get_str("errmsg").unwrap_or_default()));
        }
    }
    Ok(())
}

/// Tells all shards what they own of a collection once more. A router that was about to untrack or to rename it may have told
/// one that it stays there, and have ended.
///
/// # Errors
/// Those of the sets.
fn stays_nowhere(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &crate::router::Known,
    right: Timestamp,
) -> Result<()> {
    let of = (known.ns(), &known.collection.generation.uuid);
    for (name, set) in router.catalog.shards(&**cx.op, router)? {
        let placement = placed(known, known.table.shard_named(&name))?.said_by(right);
        match retell(cx, router, &set, of, (placement, None)) {
            // It has nothing of the collection, or a range moves there, and then it was not told that.
            Err(e) if is_stale(&e) || e.code() == Code::NamespaceNotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// Drops a sharded collection. The configuration forgets it first, which decides; then the shards drop it.
///
/// # Errors
/// 13388 StaleConfig if it was dropped since the table was read: another one may have its name. Those of the sets.
pub fn drop_sharded(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &crate::router::Known,
) -> Result<()> {
    let (ns, generation) = (known.ns(), known.collection.generation);
    let lease = Lease::take(cx, router, ns, "drop")?;
    if let Err(e) = settle_all(cx, router, ns, lease.at) {
        drop(lease.release(cx, router));
        return Err(e);
    }
    let now = router.tables.refresh(&**cx.op, router, ns);
    let is_same = |now: &crate::router::Known| now.collection.generation == generation;
    let whole = match now {
        Ok(Some(now)) if is_same(&now) => {
            finish_rename(cx, router, &now).and_then(|_| stays_nowhere(cx, router, &now, lease.at))
        }
        other => other.and_then(|_| Err(stale(ns, None, "the collection was dropped meanwhile"))),
    };
    if let Err(e) = whole {
        let _ = lease.release(cx, router);
        return Err(e);
    }
    let uuid = generation.uuid;
    let one = |filter: DocBuf, limit: i32| array![doc! { "q": filter, "limit": limit }];
    let forgotten = lease.commit(
        cx,
        router,
        vec![
            doc! { "delete": "collections", "deletes": one(doc! { "_id": ns, "uuid": uuid_value(&uuid) }, 1) },
            doc! { "delete": "tags", "deletes": one(doc! { "ns": ns }, 0) },
        ],
    );
    if let Err(e) = forgotten {
        let _ = lease.release(cx, router);
        return Err(e);
    }
    router.tables.refresh(&**cx.op, router, ns)?;
    // The shard of the database comes last: as long as it has the collection, a router that drops it again finds out that
    // others may have it, too.
    let (db, _) = ns.split_once('.').unwrap_or_default();
    let home = home_of(cx, router, db)?;
    let of = (&uuid, generation.timestamp);
    for (set, _) in ending_with(cx, router, &home)? {
        end(cx, router, &set, ns, of, Left::Dropped)?;
        cx.at_step("duringDrop")?;
    }
    Lease::forget_chunks(cx, router, ns, &uuid)
}
