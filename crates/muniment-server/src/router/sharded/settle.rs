//! What is done when a shard and the configuration go on to differ.
//!
//! A router may have ended between the steps of a change. The configuration says how the change came out, and any
//! router can bring the shards to agree with it: this is done once no router is at work on the collection.

use super::lease::Lease;
use super::place::{Left, agree, end, homes, stored};
use super::renamed::finish_rename;
use super::reshard::operation::{all, settle_all};
use super::{is_gone, is_stale};
use crate::context::CommandContext;
use crate::namespace::RESHARDING;
use crate::placement::FIELD;
use crate::router::configuration::read;
use crate::router::forward::run;
use crate::router::{Router, SetPool};
use crate::uuid::uuid_value;
use muniment_shard::Timestamp;
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc};

/// Brings the shards to agree with the configuration on a collection, unless a router is at work on it. `why` is what
/// the shard said of its own state.
///
/// # Errors
/// Those of the sets.
pub fn settle(cx: &CommandContext<'_>, router: &Router, ns: &str, why: Doc<'_>) -> Result<()> {
    // What is still to take the place of another collection belongs to the router that is at work on that one.
    let (_, name) = ns.split_once('.').unwrap_or_default();
    let resharded = match name.starts_with(RESHARDING) {
        true => all(cx, router, None)?,
        false => Vec::new(),
    };
    let resharded = resharded.iter().find(|o| o.temporary() == ns);
    let (ns, why) = match resharded {
        Some(operation) => (operation.ns.as_str(), Doc::EMPTY),
        None => (ns, why),
    };
    // The right keeps others from beginning something meanwhile, which would be taken for left over.
    let work = |lease: &Lease| settled(cx, router, lease, ns, why);
    Lease::if_free(cx, router, (ns, "settle"), work).map(drop)
}

fn settled(
    cx: &CommandContext<'_>,
    router: &Router,
    lease: &Lease,
    ns: &str,
    why: Doc<'_>,
) -> Result<()> {
    let (db, _) = ns.split_once('.').unwrap_or_default();
    settle_all(cx, router, ns, lease.at)?;
    if let Some(known) = router.tables.refresh(&**cx.op, router, ns)? {
        finish_rename(cx, router, &known)?;
        let homes = homes(cx, router, &known)?;
        let mut held = None;
        for (set, _) in &homes {
            let there = stored(cx, router, set, ns)?;
            held = held.or(there.filter(|h| h.uuid == known.collection.generation.uuid));
        }
        let Some(held) = held else {
            return Ok(());
        };
        let mut told_all: Vec<String> = Vec::new();
        for (set, shard) in homes {
            told_all.push(set.name.clone());
            // A shard that has a newer one knows more than this router.
            let made_as = (Some(&held), lease.at);
            match agree(cx, router, &known, (&set, shard), made_as) {
                Err(e) if is_stale(&e) || has_another_index(&e) => {}
                other => other?,
            }
        }
        // A shard without a chunk may have given its last one away, or was to get its first one.
        for (_, set) in router.catalog.shards(&**cx.op, router)? {
            if told_all.contains(&set.name) {
                continue;
            }
            match agree(cx, router, &known, (&set, None), (None, lease.at)) {
                Err(e) if is_stale(&e) || e.code() == Code::NamespaceNotFound => {}
                other => other?,
            }
        }
        return Ok(());
    }
    given_up(cx, router, lease, (ns, db), why)
}

/// Whether a shard has told what it owns, and lacks an index that another one has. The documents that it has do not allow
/// the index, or it has another one in its place: the `createIndexes` that failed on it has left that, or an index was
/// made on one shard alone. What is read and written does not depend on it.
fn has_another_index(e: &Error) -> bool {
    const GEO_KEYS: i32 = 16_755;
    const AMBIGUOUS_FIELD: i32 = 16_746;
    let code = e.code();
    matches!(
        code,
        Code::DuplicateKey
            | Code::CannotIndexParallelArrays
            | Code::CannotBuildIndexKeys
            | Code::IndexOptionsConflict
            | Code::IndexKeySpecsConflict
    ) || [GEO_KEYS, AMBIGUOUS_FIELD].contains(&code.0)
}

/// As [`settle`] for a collection of which the configuration does not know, by a router that has the right to change it:
/// ends what a shard says that is left of an earlier generation.
///
/// # Errors
/// Those of the sets.
pub fn without_what_is_left(
    cx: &CommandContext<'_>,
    router: &Router,
    lease: &Lease,
    set: &SetPool,
    ns: &str,
) -> Result<()> {
    let (db, name) = ns.split_once('.').unwrap_or_default();
    let mut find = doc! {
        "find": name, "limit": 1, "projection": doc! { "_id": 1 }, "singleBatch": true,
    };
    find.append(FIELD, DocBuf::new());
    match run(&**cx.op, router, set, db, &find, true) {
        Err(e) if is_stale(&e) && !is_gone(&e) => {
            let why = e.extra().as_doc().to_buf();
            given_up(cx, router, lease, (ns, db), why.as_doc())
        }
        _ => Ok(()),
    }
}

/// Brings the shards to agree on a collection of which the configuration does not know, or under another name.
fn given_up(
    cx: &CommandContext<'_>,
    router: &Router,
    lease: &Lease,
    (ns, db): (&str, &str),
    why: Doc<'_>,
) -> Result<()> {
    // The generation that the shard still has was given up, or never came to be.
    let (Some(Value::Binary { bytes, .. }), Some(Value::Timestamp { t, i })) =
        (why.get("uuid"), why.get("timestamp"))
    else {
        return Ok(());
    };
    let Ok(uuid) = <[u8; 16]>::try_from(bytes) else {
        return Ok(());
    };
    let named = read(
        &**cx.op,
        router,
        "collections",
        doc! { "uuid": uuid_value(&uuid) },
    )?;
    if let Some(named) = named.first().and_then(|d| d.as_doc().get_str("_id")) {
        // It has another name by now, which this shard was not told.
        return settle(cx, router, named, Doc::EMPTY);
    }
    let of = (&uuid, Timestamp::new(t, i));
    let undecided = why.get("undecided").is_some_and(|v| v.truthy());
    // The shard of the database as the configuration has it now: this router may remember another one.
    let database = read(&**cx.op, router, "databases", doc! { "_id": db })?.pop();
    let primary = database
        .as_ref()
        .and_then(|d| d.as_doc().get_str("primary"));
    // A collection that was to be sharded stays where it was. That one comes last, since it is what makes routers settle.
    let stays = |name: &str| undecided && Some(name) == primary;
    let mut shards = router.catalog.shards(&**cx.op, router)?;
    shards.sort_by_key(|(name, _)| stays(name));
    for (name, set) in shards {
        end(cx, router, &set, ns, of, Left::staying(stays(&name)))?;
    }
    lease.delete_chunks(cx, router, &uuid)
}
