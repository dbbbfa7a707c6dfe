//! `checkMetadataConsistency`: whether the shards have what the configuration says.
//!
//! The types of what is found are MongoDB's.

use super::Router;
use super::configuration::read;
use super::place::{OF_CONFIG, set_of};
use super::sharded::place::{Stored, names, stored};
use crate::context::CommandContext;
use crate::uuid::uuid_value;
use muniment_op::Interrupt;
use muniment_value::{DocBuf, Error, Result, Value, array, doc};
use std::collections::BTreeMap;

/// What is looked at.
pub struct Scope<'s> {
    /// The database; `None` for all.
    pub db: Option<&'s str>,
    /// The collection; `None` for all of the database.
    pub collection: Option<&'s str>,
    /// Whether the shards' indexes are compared.
    pub indexes: bool,
}

/// What does not agree.
///
/// # Errors
/// Those of the sets.
pub fn check(cx: &CommandContext<'_>, router: &Router, scope: &Scope<'_>) -> Result<Vec<DocBuf>> {
    let mut found = Vec::new();
    let filter = match scope.db {
        Some(db) => doc! { "_id": db },
        None => DocBuf::new(),
    };
    for d in read(&**cx.op, router, "databases", filter)? {
        let db = d.as_doc().get_str("_id").unwrap_or_default();
        if !OF_CONFIG.contains(&db) {
            database(cx, router, (db, scope), &mut found)?;
        }
    }
    Ok(found)
}

/// What a shard has of each collection.
type OnShards = BTreeMap<String, Vec<(String, Stored)>>;

fn database(
    cx: &CommandContext<'_>,
    router: &Router,
    (db, scope): (&str, &Scope<'_>),
    found: &mut Vec<DocBuf>,
) -> Result<()> {
    let home = set_of(cx, router, db)?;
    let mut home_name = String::new();
    let mut all = OnShards::new();
    for (shard, set) in router.catalog.shards(&**cx.op, router)? {
        cx.op.check()?;
        if set.name == home.name {
            home_name.clone_from(&shard);
        }
        for name in names(cx, router, &set, db)? {
            if scope.collection.is_some_and(|only| only != name) {
                continue;
            }
            let ns = format!("{db}.{name}");
            if let Some(held) = stored(cx, router, &set, &ns)? {
                all.entry(ns).or_default().push((shard.clone(), held));
            }
        }
    }
    let within = match scope.collection {
        Some(name) => doc! { "_id": format!("{db}.{name}") },
        None => doc! { "_id": doc! { "$gte": format!("{db}."), "$lt": format!("{db}/") } },
    };
    for d in read(&**cx.op, router, "collections", within)? {
        let ns = d.as_doc().get_str("_id").unwrap_or_default();
        let held = all.remove(ns).unwrap_or_default();
        divided(cx, router, (ns, scope.indexes), &held, found)?;
    }
    for (ns, held) in all {
        for (shard, held) in held.iter().filter(|(shard, _)| *shard != home_name) {
            let why =
                "A collection that is not tracked was found on another shard than its database's";
            let details =
                doc! { "namespace": &ns, "shard": shard, "localUUID": uuid_value(&held.uuid) };
            found.push(inconsistency("MisplacedCollection", why, details));
        }
    }
    Ok(())
}

/// Looks at a collection that the configuration has.
fn divided(
    cx: &CommandContext<'_>,
    router: &Router,
    (ns, indexes): (&str, bool),
    held: &[(String, Stored)],
    found: &mut Vec<DocBuf>,
) -> Result<()> {
    let known = match router.tables.refresh(&**cx.op, router, ns) {
        Ok(Some(known)) => known,
        // It was dropped meanwhile.
        Ok(None) => return Ok(()),
        Err(e) => {
            let details = doc! { "namespace": ns, "error": e.message() };
            found.push(inconsistency(
                "RoutingTableRangeGap",
                "The chunks do not make a table",
                details,
            ));
            return Ok(());
        }
    };
    let generation = known.collection.generation;
    for shard in known.all() {
        let name = known.table.shard_name(shard);
        if !held.iter().any(|(of, _)| of == name) {
            let why = "A shard that has chunks does not have the collection";
            let details = doc! {
                "namespace": ns, "shard": name, "collectionUUID": uuid_value(&generation.uuid),
            };
            found.push(inconsistency("MissingLocalCollection", why, details));
        }
    }
    for (shard, held) in held.iter().filter(|(_, held)| held.uuid != generation.uuid) {
        let why = "The collection's UUID on a shard is not that of the configuration";
        let details = doc! {
            "namespace": ns, "shard": shard, "localUUID": uuid_value(&held.uuid),
            "UUID": uuid_value(&generation.uuid),
        };
        found.push(inconsistency("CollectionUUIDMismatch", why, details));
    }
    let owns = |name: &str| {
        known
            .table
            .shard_named(name)
            .is_some_and(|s| known.table.ranges_on(s) > 0)
    };
    let mut owners = held.iter().filter(|(shard, _)| owns(shard));
    let Some((first, of_first)) = owners.next() else {
        return Ok(());
    };
    for (shard, other) in owners {
        if other.options != of_first.options {
            let details = doc! {
                "namespace": ns,
                "options": array![
                    doc! { "shard": first, "options": &of_first.options },
                    doc! { "shard": shard, "options": &other.options },
                ],
            };
            let why = "The collection's options differ between shards";
            found.push(inconsistency("CollectionOptionsMismatch", why, details));
        }
        if indexes {
            compare_indexes(ns, (first, of_first), (shard, other), found);
        }
    }
    Ok(())
}

fn compare_indexes(
    ns: &str,
    (first, a): (&str, &Stored),
    (shard, b): (&str, &Stored),
    found: &mut Vec<DocBuf>,
) {
    let lacks = [(a, b, shard), (b, a, first)];
    for (has, lacks, on) in lacks {
        for index in has.indexes.iter().filter(|i| !lacks.indexes.contains(i)) {
            let details = doc! { "namespace": ns, "index": index, "missingFromShards": array![on] };
            let why = "An index of the collection is not the same on all shards";
            found.push(inconsistency("InconsistentIndex", why, details));
        }
    }
}

fn inconsistency(kind: &str, why: &str, details: DocBuf) -> DocBuf {
    doc! { "type": kind, "description": why, "details": details }
}

/// The scope that a command names by its first element.
///
/// # Errors
/// 2 BadValue if it is neither 1 nor the name of a collection; 73 for all databases elsewhere than in `admin`.
pub fn scope_of<'s>(db: &'s str, target: Value<'s>, indexes: bool) -> Result<Scope<'s>> {
    let (db, collection) = match target {
        Value::String(name) if !name.is_empty() => (Some(db), Some(name)),
        v if v.is_number() && db == "admin" => (None, None),
        v if v.is_number() => (Some(db), None),
        other => {
            return Err(Error::bad_value(format!(
                "checkMetadataConsistency takes 1 or the name of a collection, and not {}",
                other.to_display()
            )));
        }
    };
    Ok(Scope {
        db,
        collection,
        indexes,
    })
}
