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

use super::lease::{Lease, binary, delete};
use super::place::{Stored, Told, end, of_table, stored, tell};
use crate::context::CommandContext;
use crate::router::forward::run;
use crate::router::place::set_of;
use crate::router::{Router, SetPool};
use muniment_shard::catalog::{Chunk, Collection, Tag};
use muniment_shard::{
    Candidate, Generation, RangeTable, Record, ShardKey, Timestamp, Version, Zones, initial_chunks,
};
use muniment_value::{
    ArrayBuf, Code, Doc, DocBuf, Elem, Error, Result, Value, array, doc, new_object_id, number,
};
use std::sync::Arc;

/// So many chunks are written at once.
const PAGE: usize = 10_000;

/// What the client asks for.
pub struct ShardRequest<'r> {
    /// The collection's full name.
    pub ns: &'r str,
    /// The shard key.
    pub key: Arc<ShardKey>,
    /// Values of the shard key are to be unique.
    pub unique: bool,
    /// How many chunks an empty collection begins with, if its key begins hashed.
    pub chunks: Option<usize>,
    /// The collation that the client gives, which has to be the simple one.
    pub simple: bool,
}

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
        None => prepared(cx, router, &primary, request).map(|held| (None, Some(held))),
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
    let done = begin(cx, router, request, (&primary, &held), &lease);
    if let Err(e) = done {
        // If the lease can be given back, nothing was decided and nobody else is at work.
        if matches!(lease.release(cx, router), Ok(true)) {
            undo(cx, router, request, (&primary, &held), lease.at)?;
        }
        return Err(e);
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
    let same =
        is_key(&request.key, known.key.pattern()) && known.collection.unique == request.unique;
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

/// Takes the placements away again, unless it was decided after all.
fn undo(
    cx: &CommandContext<'_>,
    router: &Router,
    request: &ShardRequest<'_>,
    (primary, held): (&SetPool, &Stored),
    at: Timestamp,
) -> Result<()> {
    if router
        .tables
        .refresh(&**cx.op, router, request.ns)?
        .is_some()
    {
        return Ok(());
    }
    for (_, set) in router.catalog.shards(&**cx.op, router)? {
        end(
            cx,
            router,
            &set,
            request.ns,
            (&held.uuid, at),
            set.name != primary.name,
        )?;
    }
    delete(cx, router, "chunks", doc! { "uuid": binary(&held.uuid) }).map(drop)
}

fn primary_of(cx: &CommandContext<'_>, router: &Router, ns: &str) -> Result<Arc<SetPool>> {
    let (db, _) = ns.split_once('.').unwrap_or_default();
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
        let create = doc! { "create": name, "writeConcern": majority.clone() };
        match run(on, router, primary, db, &create, true) {
            Err(e) if e.code() == Code::NamespaceExists => {}
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
    if has_index(&held, request) {
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
    let mut index = doc! { "key": request.key.pattern(), "name": index_name(&request.key) };
    index.append_some("unique", request.unique.then_some(true));
    if held.options.as_doc().get("collation").is_some() {
        index.append("collation", doc! { "locale": "simple" });
    }
    let create =
        doc! { "createIndexes": name, "indexes": array![&index], "writeConcern": majority };
    run(on, router, primary, db, &create, true)?;
    held.indexes.push(index);
    Ok(held)
}

fn check_collection(held: &Stored, request: &ShardRequest<'_>) -> Result<()> {
    let options = held.options.as_doc();
    let refused = |why: &str| Err(Error::new(Code::InvalidOptions, why));
    if options.get("capped").is_some_and(|v| v.truthy()) {
        return refused("can't shard a capped collection");
    }
    if options.get("collation").is_some() && !request.simple {
        return Err(Error::bad_value(
            "Collection has default collation, so the collation option must be set to {locale: 'simple'}",
        ));
    }
    for index in &held.indexes {
        let index = index.as_doc();
        let unique = index.get("unique").is_some_and(|v| v.truthy());
        let key = index.get_doc("key").unwrap_or(Doc::EMPTY);
        if unique && !request.key.begins_index(key) {
            return refused(&format!(
                "can't shard collection '{}' with unique index on {} and proposed shard key {}: uniqueness can't \
                 be maintained unless shard key is a prefix",
                request.ns,
                key.to_display(),
                request.key.pattern().to_display(),
            ));
        }
    }
    Ok(())
}

/// Whether an index can find the documents of a range, and keeps keys unique if that is asked for.
fn has_index(held: &Stored, request: &ShardRequest<'_>) -> bool {
    let fits = |index: &DocBuf| {
        let index = index.as_doc();
        let key = index.get_doc("key").unwrap_or(Doc::EMPTY);
        let simple = index.get_doc("collation").is_none();
        let whole = ["sparse", "hidden"]
            .iter()
            .all(|f| !index.get(f).is_some_and(|v| v.truthy()))
            && index.get("partialFilterExpression").is_none();
        let unique = index.get("unique").is_some_and(|v| v.truthy()) && is_key(&request.key, key);
        begins(&request.key, key) && simple && whole && (!request.unique || unique)
    };
    is_key(&request.key, doc! { "_id": 1 }.as_doc()) || held.indexes.iter().any(fits)
}

/// Whether a pattern is that of the shard key.
fn is_key(key: &ShardKey, pattern: Doc<'_>) -> bool {
    begins(key, pattern) && pattern.iter().count() == key.fields().len()
}

/// Whether a pattern has the fields of the shard key first.
fn begins(key: &ShardKey, pattern: Doc<'_>) -> bool {
    let mut names = pattern.iter();
    key.fields().iter().all(|f| {
        let fits = |e: Elem<'_>| match f.hashed {
            true => e.value().as_str() == Some("hashed"),
            false => number::to_f64(e.value()) == Some(1.0),
        };
        names
            .next()
            .is_some_and(|e| e.is_named(f.path.as_str()) && fits(e))
    })
}

/// The name that drivers give an index: `a_1_b_hashed`.
fn index_name(key: &ShardKey) -> String {
    let parts = key.pattern();
    let parts = parts.iter().map(|e| match e.value().as_str() {
        Some(kind) => format!("{}_{kind}", e.name()),
        None => format!("{}_1", e.name()),
    });
    parts.collect::<Vec<_>>().join("_")
}

fn begin(
    cx: &CommandContext<'_>,
    router: &Router,
    request: &ShardRequest<'_>,
    (primary, held): (&Arc<SetPool>, &Stored),
    lease: &Lease,
) -> Result<()> {
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
    let placement = of_table(&whole, Some(0), true)?;
    tell_alone(cx, router, primary, request.ns, held, placement)?;
    // Nobody writes to it from here on, and no index is made.
    if let Some(again) = stored(cx, router, primary, request.ns)? {
        check_collection(&again, request)?;
    }
    check_keys(cx, router, primary, request)?;
    let records = match is_empty(cx, router, primary, request.ns)? {
        true => first_chunks(cx, router, request, &of_primary)?,
        false => alone,
    };
    let table = RangeTable::build(Arc::clone(&request.key), generation, records.clone())?;
    delete(cx, router, "chunks", doc! { "uuid": binary(&held.uuid) })?;
    write_chunks(cx, router, request, &records, generation)?;
    let place = |undecided: bool| -> Result<()> {
        for (name, set) in &shards {
            let shard = table.shard_named(name);
            if shard.is_some() || set.name == primary.name {
                let placement = of_table(&table, shard, undecided)?;
                let told = Told {
                    ns: request.ns,
                    stored: held,
                    placement,
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
    let collection = document(request, held, generation);
    let insert = doc! { "insert": "collections", "documents": array![collection.to_doc()] };
    lease.commit(cx, router, vec![insert])?;
    router.tables.refresh(&**cx.op, router, request.ns)?;
    // If this fails, `settle` does it when somebody meets it.
    let _ = place(false);
    Ok(())
}

/// The document in `config.collections`.
fn document(request: &ShardRequest<'_>, held: &Stored, generation: Generation) -> Collection {
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
        unsplittable: false,
        rest: DocBuf::new(),
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
    };
    tell(cx, router, primary, &told)
}

/// Refuses documents that can have no key.
fn check_keys(
    cx: &CommandContext<'_>,
    router: &Router,
    primary: &SetPool,
    request: &ShardRequest<'_>,
) -> Result<()> {
    let (db, name) = request.ns.split_once('.').unwrap_or_default();
    for field in request.key.fields() {
        let path = field.path.as_str();
        let ends = path.match_indices('.').map(|(i, _)| i).chain([path.len()]);
        for end in ends {
            let part = path.get(..end).unwrap_or(path);
            let mut filter = DocBuf::new();
            filter.append(part, doc! { "$type": "array" });
            let find = doc! {
                "find": name, "filter": filter, "limit": 1, "projection": doc! { "_id": 1 },
                "singleBatch": true,
            };
            let reply = run(&**cx.op, router, primary, db, &find, true)?;
            let cursor = reply.as_doc().get_doc("cursor").unwrap_or(Doc::EMPTY);
            let batch = cursor.get_array("firstBatch").unwrap_or(Doc::EMPTY);
            if let Some(d) = batch.values().next().and_then(|v| v.as_doc()) {
                return Err(Error::new(
                    Code::ShardKeyNotFound,
                    format!(
                        "the document {} has an array at {part}, where the shard key cannot have one",
                        d.to_display()
                    ),
                ));
            }
        }
    }
    Ok(())
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
    let read =
        |from: &str, filter: DocBuf| crate::router::catalog::read(&**cx.op, router, from, filter);
    let shards = read("shards", DocBuf::new())?;
    let shards = shards
        .iter()
        .map(|d| muniment_shard::catalog::Shard::parse(d.as_doc()));
    let shards = shards.collect::<Result<Vec<_>>>()?;
    let candidates: Vec<Candidate> = shards
        .iter()
        .filter(|s| !s.draining)
        .map(|s| Candidate {
            name: s.name.as_str().into(),
            zones: s.zones.iter().map(|z| z.as_str().into()).collect(),
        })
        .collect();
    let tags = read("tags", doc! { "ns": request.ns })?;
    let zones = tags
        .iter()
        .map(|d| Tag::parse(d.as_doc())?.range(&request.key));
    let zones = Zones::new(&request.key, zones.collect::<Result<_>>()?)?;
    initial_chunks(&request.key, &zones, &candidates, primary, request.chunks)
}

fn write_chunks(
    cx: &CommandContext<'_>,
    router: &Router,
    request: &ShardRequest<'_>,
    records: &[Record],
    generation: Generation,
) -> Result<()> {
    // Routers read them by version.
    let index = doc! { "key": doc! { "uuid": 1, "lastmod": 1 }, "name": "uuid_1_lastmod_1", "unique": true };
    let create = doc! {
        "createIndexes": "chunks", "indexes": array![index], "writeConcern": doc! { "w": "majority" },
    };
    run(&**cx.op, router, &router.config, "config", &create, true)?;
    for page in records.chunks(PAGE) {
        let mut docs = ArrayBuf::new();
        for record in page {
            let (id, uuid, since) = (new_object_id(), generation.uuid, generation.timestamp);
            docs.push(Chunk::of_record(record, &request.key, id, uuid, since)?.to_doc());
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

/// Drops a sharded collection. The configuration forgets it first, which decides; then the shards drop it.
///
/// # Errors
/// Those of the sets.
pub fn drop_sharded(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &crate::router::Known,
) -> Result<()> {
    let (ns, generation) = (known.ns(), known.collection.generation);
    let lease = Lease::take(cx, router, ns, "drop")?;
    let uuid = generation.uuid;
    let one = |filter: DocBuf, limit: i32| array![doc! { "q": filter, "limit": limit }];
    let forgotten = lease.commit(
        cx,
        router,
        vec![
            doc! { "delete": "collections", "deletes": one(doc! { "_id": ns, "uuid": binary(&uuid) }, 1) },
            doc! { "delete": "tags", "deletes": one(doc! { "ns": ns }, 0) },
        ],
    );
    if let Err(e) = forgotten {
        let _ = lease.release(cx, router);
        return Err(e);
    }
    router.tables.refresh(&**cx.op, router, ns)?;
    for (_, set) in router.catalog.shards(&**cx.op, router)? {
        end(cx, router, &set, ns, (&uuid, generation.timestamp), true)?;
    }
    delete(cx, router, "chunks", doc! { "uuid": binary(&uuid) }).map(drop)
}

/// The value of an UUID in a reply.
pub fn uuid_value(uuid: &[u8; 16]) -> Value<'_> {
    binary(uuid)
}
