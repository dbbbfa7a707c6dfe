//! The one way in which the chunks of a collection change.
//!
//! 1. The right to change the collection is taken ([`Lease`]), and the table is read again: nobody else changes it now.
//! 2. The new chunks get versions above all that there were, so routers that read what is newer find all of them.
//! 3. One transaction deletes the chunks that the new ones cover, inserts these, and gives the right back.
//! 4. The shards whose version has changed are told it. If that fails, [`settle`](super::settle) does it when somebody
//!    meets such a shard.
//!
//! Invariant: a change of who owns what gives a new version to each shard concerned, also to one that loses a range
//! and keeps others. Otherwise a router that knows the older state would ask it, and find too little.

use super::lease::Lease;
use super::place::{placed, retell};
use super::renamed::finish_rename;
use crate::context::CommandContext;
use crate::router::configuration::{read, read_after};
use crate::router::forward::run;
use crate::router::{Known, Reach, Router};
use crate::uuid::uuid_value;
use muniment_logger::{hostname, iso8601, now_ms};
use muniment_op::{Interrupt, Mistake, makes};
use muniment_shard::catalog::{Chunk, Owner};
use muniment_shard::{Interval, ShardKey, Timestamp, Version};
use muniment_value::{ArrayBuf, Code, DocBuf, Error, Result, Value, array, doc, new_object_id};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// So many chunks are read at once.
const PAGE: usize = 1000;
/// The collection with the log of changes, and its size, as MongoDB has it.
const CHANGELOG: (&str, i64) = ("changelog", 200 << 20);
/// The collection with what the balancer has done.
const ACTIONLOG: (&str, i64) = ("actionlog", 20 << 20);

/// What happens to the chunks.
#[derive(Clone, Copy)]
pub enum Why<'c> {
    /// One is split.
    Split,
    /// Some are merged.
    Merge,
    /// The other changes, which give the new chunks a new major version. What `config.changelog` says of it: the kind
    /// of change, and its details.
    Move(&'static str, &'c DocBuf),
}

/// A change of chunks.
pub struct Change<'c> {
    /// The reason.
    pub why: Why<'c>,
    /// The new chunks, ascending. They replace those that they cover, and cover these wholly. Their versions are not
    /// read.
    pub chunks: Vec<Chunk>,
}

/// Takes the right to change a collection, reads its table again, and does something with both. If that fails, or
/// changes nothing, the right is given back.
///
/// # Errors
/// 118 NamespaceNotSharded if the collection is not sharded; those of [`Lease::take`]; those of `with`.
pub fn with_lease<T>(
    cx: &CommandContext<'_>,
    router: &Router,
    (ns, what): (&str, &str),
    with: impl FnOnce(&Lease, &Arc<Known>) -> Result<T>,
) -> Result<T> {
    let lease = Lease::take(cx, router, ns, what)?;
    let known = router.tables.refresh(&**cx.op, router, ns);
    let done = known.and_then(|known| match known {
        Some(known) => finished(cx, router, known).and_then(|known| with(&lease, &known)),
        None => Err(not_sharded(ns)),
    });
    // After a change this finds it given back.
    lease.give_back(cx, router, done)
}

/// The collection after what a rename has left to be done.
fn finished(cx: &CommandContext<'_>, router: &Router, known: Arc<Known>) -> Result<Arc<Known>> {
    match finish_rename(cx, router, &known)? {
        false => Ok(known),
        true => known_now(cx, router, known.ns()),
    }
}

/// The collection as the configuration has it now.
///
/// # Errors
/// 118 NamespaceNotSharded.
pub fn known_now(cx: &CommandContext<'_>, router: &Router, ns: &str) -> Result<Arc<Known>> {
    let known = router.tables.refresh(&**cx.op, router, ns)?;
    known.ok_or_else(|| not_sharded(ns))
}

/// The error of a command that needs a sharded collection.
pub fn not_sharded(ns: &str) -> Error {
    Error::new(
        Code::NamespaceNotSharded,
        format!("Expected collection {ns} to be sharded"),
    )
}

/// Replaces chunks; the table afterwards. `known` was read under the lease, which is given back.
///
/// # Errors
/// 117 ConflictingOperationInProgress if the lease was lost, or the new chunks do not cover whole chunks; 20
/// IllegalOperation if a shard would get a range that is being removed; those of the configuration's set, after which
/// the change may have been made.
pub fn replace(
    cx: &CommandContext<'_>,
    router: &Router,
    (lease, known): (&Lease, &Arc<Known>),
    change: Change<'_>,
) -> Result<Arc<Known>> {
    let on = &**cx.op;
    let before = covered_by(on, router, known, &change.chunks)?;
    let mut after = change.chunks;
    let mut gone = before.clone();
    if matches!(change.why, Why::Move(..)) {
        check_stays(on, router, (&before, &after))?;
        // A shard that keeps other chunks needs a new version, too.
        for chunk in keepers(on, router, known, (&before, &after))? {
            gone.push(chunk.clone());
            after.push(chunk);
        }
    }
    number(&mut after, known.table.version(), change.why);
    check_cover(known, &after)?;
    let deletes: ArrayBuf = gone
        .iter()
        .map(|c| {
            // It is as it was read: whatever the reader knew, nothing newer is replaced.
            let q = doc! {
                "_id": Value::ObjectId(c.id), "lastmod": c.version.to_value(), "shard": &c.shard,
            };
            doc! { "q": q, "limit": 1 }
        })
        .collect();
    let inserts: ArrayBuf = after.iter().map(Chunk::to_doc).collect();
    if makes(Mistake::ResolveFirst) {
        let records = after.iter().map(|c| c.record(&known.key));
        let since = after.iter().filter_map(|c| c.on_current_shard_since);
        let table = known.table.apply(records.collect::<Result<_>>()?)?;
        let changed = since.max().unwrap_or_default().max(known.changed);
        let early = known.with(table, changed, known.sets.clone());
        tell_changed(cx, router, known, &early);
    }
    lease.commit_whole(
        cx,
        router,
        vec![
            doc! { "delete": "chunks", "deletes": deletes },
            doc! { "insert": "chunks", "documents": inserts },
        ],
    )?;
    if matches!(change.why, Why::Move(..)) {
        cx.at_step("afterCommit")?;
    }
    log(cx, router, known.ns(), (change.why, &before, &after));
    let now = router.tables.refresh(on, router, known.ns())?;
    // It was dropped since.
    let now = now.ok_or_else(|| not_sharded(known.ns()))?;
    tell_changed(cx, router, known, &now);
    Ok(now)
}

/// The chunks that have a key of the range from `min` to `max`, ascending.
///
/// # Errors
/// Those of the configuration's set; 117 if they have changed since the table was read.
pub fn between(
    on: &dyn Interrupt,
    router: &Router,
    known: &Known,
    (min, max): (&[u8], &[u8]),
) -> Result<Vec<Chunk>> {
    let interval = Interval {
        low: min.to_vec(),
        high: (*max != *known.key.highest()).then(|| max.to_vec()),
    };
    let intervals = [interval];
    let ranges = known.table.ranges_in(&intervals);
    let versions: Vec<Version> = ranges.map(|r| r.version).collect();
    let mut chunks = Vec::with_capacity(versions.len());
    for page in versions.chunks(PAGE) {
        let list: ArrayBuf = page.iter().map(|v| v.to_value()).collect();
        let filter = doc! {
            "uuid": uuid_value(&known.collection.generation.uuid),
            "lastmod": doc! { "$in": list },
        };
        let found = read_after(
            on,
            router,
            "chunks",
            filter,
            ("lastmod", PAGE),
            Reach::Primary,
        )?;
        if found.len() != page.len() {
            return Err(changed(known.ns()));
        }
        for d in &found {
            let chunk = Chunk::parse(d.as_doc())?;
            chunks.push((known.key.bound(chunk.min.as_doc())?, chunk));
        }
    }
    chunks.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(chunks.into_iter().map(|(_, chunk)| chunk).collect())
}

/// The parts of a chunk that is split at these keys, which lie within it, ascending. Its owners stay what they were.
///
/// # Errors
/// Those of [`ShardKey::bound_doc`].
pub fn split_of(chunk: &Chunk, key: &ShardKey, at: &[Vec<u8>]) -> Result<Vec<Chunk>> {
    let mut bounds = vec![chunk.min.clone()];
    for bytes in at {
        bounds.push(key.bound_doc(bytes)?);
    }
    bounds.push(chunk.max.clone());
    let parts = bounds.windows(2).enumerate().filter_map(|(i, ends)| {
        let [min, max] = ends else { return None };
        Some(Chunk {
            id: if i == 0 { chunk.id } else { new_object_id() },
            min: min.clone(),
            max: max.clone(),
            jumbo: false,
            ..chunk.clone()
        })
    });
    Ok(parts.collect())
}

/// One chunk of several that lie side by side on one shard, ascending. Its history is that of the part which came last
/// to the shard. `None` for no chunks.
pub fn merge_of(chunks: &[Chunk]) -> Option<Chunk> {
    let (first, last) = (chunks.first()?, chunks.last()?);
    let newest = chunks.iter().max_by_key(|c| c.on_current_shard_since)?;
    Some(Chunk {
        id: first.id,
        min: first.min.clone(),
        max: last.max.clone(),
        jumbo: false,
        on_current_shard_since: newest.on_current_shard_since,
        history: newest.history.clone(),
        ..first.clone()
    })
}

/// A chunk that another shard has from a time on.
pub fn move_of(chunk: &Chunk, to: &str, since: Timestamp) -> Chunk {
    let mut moved = Chunk {
        shard: to.to_string(),
        on_current_shard_since: Some(since),
        jumbo: false,
        ..chunk.clone()
    };
    let owner = Owner {
        valid_after: since,
        shard: to.to_string(),
    };
    moved.history.insert(0, owner);
    moved
}

/// The chunks that others cover.
fn covered_by(
    on: &dyn Interrupt,
    router: &Router,
    known: &Known,
    chunks: &[Chunk],
) -> Result<Vec<Chunk>> {
    let mut before: Vec<Chunk> = Vec::new();
    for c in chunks {
        let (min, max) = (
            known.key.bound(c.min.as_doc())?,
            known.key.bound(c.max.as_doc())?,
        );
        let last = before.last().map(|b| known.key.bound(b.max.as_doc()));
        // The part of a chunk whose first part came before.
        if last.transpose()?.is_some_and(|end| max <= end) {
            continue;
        }
        before.extend(between(on, router, known, (&min, &max))?);
    }
    Ok(before)
}

/// For each shard that loses a range and gets none of the new chunks: one of its other chunks.
fn keepers(
    on: &dyn Interrupt,
    router: &Router,
    known: &Known,
    (before, after): (&[Chunk], &[Chunk]),
) -> Result<Vec<Chunk>> {
    let gets: BTreeSet<&str> = after.iter().map(|c| c.shard.as_str()).collect();
    let loses: BTreeSet<&str> = before.iter().map(|c| c.shard.as_str()).collect();
    let mut keepers = Vec::new();
    for shard in loses.difference(&gets) {
        let gone = before.iter().filter(|c| c.shard == **shard);
        let gone: ArrayBuf = gone.map(|c| Value::ObjectId(c.id)).collect();
        let filter = doc! {
            "uuid": uuid_value(&known.collection.generation.uuid),
            "shard": *shard,
            "_id": doc! { "$nin": gone },
        };
        let found = read_after(on, router, "chunks", filter, ("lastmod", 1), Reach::Primary)?;
        for d in &found {
            keepers.push(Chunk::parse(d.as_doc())?);
        }
    }
    Ok(keepers)
}

/// Refuses to give a range to a shard that is being removed, or is gone. Removing it waits for changes under way, so
/// none that is checked here, under its lease, can be overlooked.
fn check_stays(
    on: &dyn Interrupt,
    router: &Router,
    (before, after): (&[Chunk], &[Chunk]),
) -> Result<()> {
    let had: BTreeSet<&str> = before.iter().map(|c| c.shard.as_str()).collect();
    let gets: BTreeSet<&str> = after.iter().map(|c| c.shard.as_str()).collect();
    for shard in gets.difference(&had) {
        let stays = doc! { "_id": *shard, "draining": doc! { "$ne": true } };
        if read(on, router, "shards", stays)?.is_empty() {
            return Err(Error::new(
                Code::IllegalOperation,
                format!("the shard {shard} is being removed, and gets nothing new"),
            ));
        }
    }
    Ok(())
}

/// Gives the new chunks versions above `newest`.
fn number(chunks: &mut [Chunk], newest: Version, why: Why<'_>) {
    let mut next = match why {
        Why::Split | Why::Merge => Version::new(newest.major, newest.minor + 1),
        Why::Move(..) => Version::new(newest.major + 1, 0),
    };
    for c in chunks {
        c.version = next;
        next.minor += 1;
    }
}

/// Checks that the new chunks cover whole chunks: a table can be made of them.
fn check_cover(known: &Known, after: &[Chunk]) -> Result<()> {
    let records = after.iter().map(|c| c.record(&known.key));
    known.table.apply(records.collect::<Result<_>>()?).map(drop)
}

/// Tells the shards whose version has changed.
fn tell_changed(cx: &CommandContext<'_>, router: &Router, before: &Known, now: &Known) {
    let version = |known: &Known, name: &str| {
        let shard = known.table.shard_named(name);
        shard.map_or(Version::default(), |shard| known.table.version_of(shard))
    };
    for (shard, name) in now.table.shards().iter().enumerate() {
        if version(before, name) == version(now, name) {
            continue;
        }
        let placement = placed(now, Some(shard));
        let told = placement.and_then(|placement| {
            let uuid = &now.collection.generation.uuid;
            retell(
                cx,
                router,
                now.set(shard)?,
                (now.ns(), uuid),
                (placement, None),
            )
        });
        // It learns of it when a router asks it with the new version.
        drop(told);
    }
}

fn changed(ns: &str) -> Error {
    Error::new(
        Code::ConflictingOperationInProgress,
        format!("the chunks of {ns} have changed meanwhile"),
    )
}

/// Writes what has happened into `config.changelog`. Nothing depends on it, so it may fail.
fn log(
    cx: &CommandContext<'_>,
    router: &Router,
    ns: &str,
    (why, before, after): (Why<'_>, &[Chunk], &[Chunk]),
) {
    let bounds = |c: &Chunk| doc! { "min": &c.min, "max": &c.max };
    let with_version =
        |c: &Chunk| doc! { "min": &c.min, "max": &c.max, "lastmod": c.version.to_value() };
    match (why, before.first(), after) {
        (Why::Split, Some(b), [left, right]) => {
            let details = doc! {
                "before": with_version(b), "left": with_version(left), "right": with_version(right),
                "owningShard": &b.shard,
            };
            note(cx, router, ("split", ns), &details);
        }
        (Why::Split, Some(b), parts) => {
            // Splits into very many parts would fill the log.
            for (i, part) in parts.iter().enumerate().take(PAGE) {
                let details = doc! {
                    "before": with_version(b), "number": i as i32 + 1, "of": parts.len() as i32,
                    "chunk": with_version(part), "owningShard": &b.shard,
                };
                note(cx, router, ("multi-split", ns), &details);
            }
        }
        (Why::Merge, _, [merged, ..]) => {
            let newest = before.iter().map(|c| c.version).max().unwrap_or_default();
            let parts: ArrayBuf = before.iter().take(PAGE).map(bounds).collect();
            let details = doc! {
                "merged": parts, "prevShardVersion": newest.to_value(),
                "mergedVersion": merged.version.to_value(), "owningShard": &merged.shard,
            };
            note(cx, router, ("merge", ns), &details);
        }
        (Why::Move(what, details), ..) => note(cx, router, (what, ns), details),
        _ => {}
    }
}

/// Adds a document to `config.changelog`: something has happened to a collection, or to a shard if `ns` is empty.
pub fn note(cx: &CommandContext<'_>, router: &Router, what: (&str, &str), details: &DocBuf) {
    write_log(
        cx,
        router,
        (CHANGELOG, &router.has_changelog),
        what,
        details,
    );
}

/// Adds a document to `config.actionlog`: the balancer has done something.
pub fn note_action(cx: &CommandContext<'_>, router: &Router, what: &str, details: &DocBuf) {
    write_log(
        cx,
        router,
        (ACTIONLOG, &router.has_actionlog),
        (what, ""),
        details,
    );
}

fn write_log(
    cx: &CommandContext<'_>,
    router: &Router,
    ((log, bytes), has): ((&str, i64), &AtomicBool),
    (what, ns): (&str, &str),
    details: &DocBuf,
) {
    let on = &**cx.op;
    let server = format!("{}:{}", hostname(), cx.server.address.port);
    let id: String = new_object_id().iter().map(|b| format!("{b:02x}")).collect();
    if !has.swap(true, Relaxed) {
        // It is capped, so a plain insert must not make it.
        let create = doc! { "create": log, "capped": true, "size": bytes };
        let _ = run(on, router, &router.config, "config", &create, true);
    }
    let entry = doc! {
        "_id": format!("{server}-{}-{id}", iso8601(now_ms())),
        "server": &server,
        "shard": "config",
        "clientAddr": &*cx.conn.peer,
        "time": Value::DateTime(now_ms()),
        "what": what,
        "ns": ns,
        "details": details,
    };
    let insert = doc! { "insert": log, "documents": array![entry] };
    let _ = run(on, router, &router.config, "config", &insert, false);
}
