//! Taking a shard out of the cluster: it drains, that is the balancer moves its ranges to other shards, and once it has
//! nothing left, it is forgotten.

use super::Router;
use super::balancer::settings::wake;
use super::configuration::{aggregated, read};
use super::sharded::chunks::note;
use super::sharded::lease::{Lease, is_taken};
use super::sharded::place::end_idle;
use super::sharded::zones::{TOPOLOGY, check_leaves, not_found, update_shard};
use super::tables::LAST_REMOVAL;
use crate::context::CommandContext;
use crate::uuid::uuid_value;
use muniment_shard::catalog::{Collection, Shard};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, array, doc};
use std::collections::BTreeMap;

/// What a shard still has.
#[derive(Default)]
pub struct Left {
    /// Chunks of sharded collections.
    pub chunks: i64,
    /// Those of them that are flagged as too large to be moved.
    pub jumbo: i64,
    /// Databases whose primary shard it is, which the user has to move or drop.
    pub databases: Vec<String>,
    /// Collections that are not sharded, on this shard although their database is on another one.
    pub collections: Vec<String>,
}

impl Left {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.chunks == 0 && self.databases.is_empty()
    }
}

/// The shard with this name, as the configuration has it now.
///
/// # Errors
/// 70 ShardNotFound; those of the configuration's set.
pub fn shard(cx: &CommandContext<'_>, router: &Router, name: &str) -> Result<Shard> {
    let found = read(&**cx.op, router, "shards", doc! { "_id": name })?.pop();
    let found = found.ok_or_else(|| not_found(name))?;
    Shard::parse(found.as_doc())
}

/// What a shard still has.
///
/// # Errors
/// Those of the configuration's set.
pub fn left(cx: &CommandContext<'_>, router: &Router, shard: &str) -> Result<Left> {
    let databases = read(&**cx.op, router, "databases", doc! { "primary": shard })?;
    let databases = databases.iter().filter_map(|d| d.as_doc().get_str("_id"));
    let mut left = Left {
        databases: databases.map(str::to_string).collect(),
        ..Left::default()
    };
    let here = chunks_by_collection(cx, router, shard)?;
    let uuids: ArrayBuf = here.keys().map(uuid_value).collect();
    // A router that ended while it divided a collection may have left chunks of none: these keep no shard.
    let of = doc! { "uuid": doc! { "$in": uuids } };
    for d in read(&**cx.op, router, "collections", of)? {
        let c = Collection::parse(d.as_doc())?;
        let (chunks, jumbo) = here.get(&c.generation.uuid).copied().unwrap_or_default();
        left.chunks += chunks;
        left.jumbo += jumbo;
        if c.unsplittable {
            left.collections.push(c.ns);
        }
    }
    Ok(left)
}

/// How many chunks of each UUID a shard has, and how many of them are jumbo.
fn chunks_by_collection(
    cx: &CommandContext<'_>,
    router: &Router,
    shard: &str,
) -> Result<BTreeMap<[u8; 16], (i64, i64)>> {
    let jumbo = doc! { "$sum": doc! { "$cond": array!["$jumbo", 1, 0] } };
    let group = doc! { "_id": "$uuid", "n": doc! { "$sum": 1 }, "jumbo": jumbo };
    let pipeline = array![
        doc! { "$match": doc! { "shard": shard } },
        doc! { "$group": group }
    ];
    let groups = aggregated(&**cx.op, router, "chunks", pipeline)?;
    let group = |d: Doc<'_>| {
        let Some(Value::Binary { bytes, .. }) = d.get("_id") else {
            return None;
        };
        let number = |name: &str| d.get(name).and_then(|v| v.as_i64_exact());
        let uuid = <[u8; 16]>::try_from(bytes).ok()?;
        Some((uuid, (number("n")?, number("jumbo")?)))
    };
    Ok(groups.iter().filter_map(|d| group(d.as_doc())).collect())
}

/// Has a shard begin to drain. False if it does already.
///
/// # Errors
/// 70 ShardNotFound; 20 IllegalOperation for the last shard that stays; 163 ZoneStillInUse for the only shard of a zone
/// with ranges; those of the configuration's set.
pub fn start(cx: &CommandContext<'_>, router: &Router, name: &str) -> Result<bool> {
    let lease = Lease::take(cx, router, TOPOLOGY, "removeShard")?;
    let done = start_within(cx, router, name);
    lease.give_back(cx, router, done)
}

fn start_within(cx: &CommandContext<'_>, router: &Router, name: &str) -> Result<bool> {
    let found = shard(cx, router, name)?;
    if found.draining {
        return Ok(false);
    }
    let stays = doc! { "_id": doc! { "$ne": name }, "draining": doc! { "$ne": true } };
    if read(&**cx.op, router, "shards", stays)?.is_empty() {
        return Err(Error::new(
            Code::IllegalOperation,
            "Operation not allowed because it would remove the last shard",
        ));
    }
    for zone in &found.zones {
        check_leaves(cx, router, name, zone)?;
    }
    update_shard(cx, router, name, doc! { "$set": doc! { "draining": true } })?;
    wake(&**cx.op, router);
    note(
        cx,
        router,
        ("removeShard.start", ""),
        &doc! { "shard": name },
    );
    Ok(true)
}

/// Has a shard stay.
///
/// # Errors
/// 70 ShardNotFound; those of the configuration's set.
pub fn stop(cx: &CommandContext<'_>, router: &Router, name: &str) -> Result<()> {
    let lease = Lease::take(cx, router, TOPOLOGY, "stopShardDraining")?;
    let done = update_shard(cx, router, name, doc! { "$unset": doc! { "draining": "" } });
    lease.give_back(cx, router, done)
}

/// Forgets a shard that has drained. What it still has, if that is not nothing: then it stays.
///
/// # Errors
/// 70 ShardNotFound; 20 IllegalOperation if it does not drain; those of the configuration's set.
pub fn finish(cx: &CommandContext<'_>, router: &Router, name: &str) -> Result<Option<Left>> {
    let before = left(cx, router, name)?;
    if !before.is_empty() || !before.collections.is_empty() {
        return Ok(Some(before));
    }
    let lease = Lease::take(cx, router, TOPOLOGY, "removeShard")?;
    // Another router may have been at work meanwhile.
    let now = shard(cx, router, name).and_then(|found| match found.draining {
        // First, since what a change has made that has ended shows in what is left. One that begins later finds that the
        // shard drains.
        true => {
            let moves = anything_moves(cx, router)?;
            let left = left(cx, router, name)?;
            Ok((left.is_empty() && !moves, left))
        }
        false => Err(not_draining(name)),
    });
    let (gone, now) = match now {
        Ok(now) => now,
        Err(e) => {
            lease.release(cx, router)?;
            return Err(e);
        }
    };
    if !gone {
        lease.release(cx, router)?;
        return Ok(Some(now));
    }
    let gone = array![doc! { "q": doc! { "_id": name, "draining": true }, "limit": 1 }];
    let forget = doc! { "delete": "shards", "deletes": gone };
    // Nobody can show what it owned at earlier times.
    let mut when = DocBuf::new();
    let at = router.times.at();
    let (t, i) = (at.seconds(), at.increment());
    when.append(LAST_REMOVAL, Value::Timestamp { t, i });
    let note_time = doc! {
        "update": "version",
        "updates": array![doc! { "q": doc! { "_id": 1 }, "u": doc! { "$set": when } }],
    };
    // A shard that does not answer can be taken out all the same.
    let _ = clear(cx, router, name);
    if let Err(e) = lease.commit(cx, router, vec![forget, note_time]) {
        let _ = lease.release(cx, router);
        return Err(e);
    }
    router.catalog.forget();
    router.tables.forget();
    note(cx, router, ("removeShard", ""), &doc! { "shard": name });
    Ok(None)
}

/// Drops what a shard without ranges still has of sharded collections: no documents, but their names and indexes, and
/// rows that are waste. With these it could not become a shard again.
fn clear(cx: &CommandContext<'_>, router: &Router, name: &str) -> Result<()> {
    let set = router.catalog.shard(&**cx.op, router, name)?;
    for d in read(&**cx.op, router, "collections", DocBuf::new())? {
        let c = Collection::parse(d.as_doc())?;
        end_idle(cx, router, &set, &c)?;
    }
    Ok(())
}

/// Whether any collection is being changed. A range may then be on its way to a shard that has begun to drain since;
/// one that sets out later finds that it drains ([`replace`](super::sharded::chunks::replace)).
fn anything_moves(cx: &CommandContext<'_>, router: &Router) -> Result<bool> {
    for d in read(&**cx.op, router, "ddl", DocBuf::new())? {
        let ns = d.as_doc().get_str("_id").unwrap_or_default();
        if ns != TOPOLOGY && is_taken(cx, router, ns)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Runs `removeShard`: one step further each time that it is called.
///
/// # Errors
/// Those of [`start`] and [`finish`].
pub fn step(cx: &mut CommandContext<'_>, router: &Router, name: &str) -> Result<()> {
    if start(cx, router, name)? {
        let left = left(cx, router, name)?;
        cx.reply.field("msg", "draining started successfully");
        cx.reply.field("state", "started");
        cx.reply.field("shard", name);
        advise(cx, &left);
        return Ok(());
    }
    match finish(cx, router, name)? {
        Some(left) => ongoing(cx, &left),
        None => completed(cx, name),
    }
    Ok(())
}

/// Fails if a shard does not drain.
fn check_drains(cx: &CommandContext<'_>, router: &Router, name: &str) -> Result<()> {
    match shard(cx, router, name)?.draining {
        true => Ok(()),
        false => Err(not_draining(name)),
    }
}

fn not_draining(name: &str) -> Error {
    let why = format!("Shard {name} is not draining");
    Error::new(Code::IllegalOperation, why)
}

/// Runs `commitShardRemoval`: forgets a shard that has drained.
///
/// # Errors
/// 20 IllegalOperation if it does not drain or has something left; those of [`finish`].
pub fn commit(cx: &CommandContext<'_>, router: &Router, name: &str) -> Result<()> {
    check_drains(cx, router, name)?;
    match finish(cx, router, name)? {
        None => Ok(()),
        Some(left) => Err(Error::new(
            Code::IllegalOperation,
            format!(
                "Shard {name} still has {} chunks, {} databases and {} collections",
                left.chunks,
                left.databases.len(),
                left.collections.len()
            ),
        )),
    }
}

/// Runs `shardDrainingStatus`: what a shard that drains still has.
///
/// # Errors
/// 20 IllegalOperation if it does not drain; those of [`left`].
pub fn status(cx: &mut CommandContext<'_>, router: &Router, name: &str) -> Result<()> {
    check_drains(cx, router, name)?;
    let left = left(cx, router, name)?;
    if left.is_empty() && left.collections.is_empty() {
        cx.reply.field("state", "drainingComplete");
        cx.reply.field("shard", name);
        return Ok(());
    }
    ongoing(cx, &left);
    Ok(())
}

/// What is said of a shard that drains.
fn ongoing(cx: &mut CommandContext<'_>, left: &Left) {
    cx.reply.field("msg", "draining ongoing");
    cx.reply.field("state", "ongoing");
    let remaining = doc! {
        "chunks": left.chunks,
        "dbs": left.databases.len() as i64,
        "collectionsToMove": left.collections.len() as i64,
        "jumboChunks": left.jumbo,
    };
    cx.reply.field("remaining", remaining);
    advise(cx, left);
}

fn completed(cx: &mut CommandContext<'_>, name: &str) {
    cx.reply.field("msg", "removeshard completed successfully");
    cx.reply.field("state", "completed");
    cx.reply.field("shard", name);
}

fn advise(cx: &mut CommandContext<'_>, left: &Left) {
    let list = |names: &[String]| names.iter().map(String::as_str).collect::<ArrayBuf>();
    cx.reply.field(
        "note",
        "you need to call moveCollection for collectionsToMove and afterwards movePrimary for the dbsToMove",
    );
    cx.reply.field("dbsToMove", list(&left.databases));
    cx.reply.field("collectionsToMove", list(&left.collections));
}
