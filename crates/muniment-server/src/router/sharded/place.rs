//! Telling shards what they own.

use super::is_stale;
use crate::context::CommandContext;
use crate::read_preference::{Mode, ReadPreference};
use crate::router::forward::{Own, ask_own_of_all, run};
use crate::router::place::home_of;
use crate::router::tables::Known;
use crate::router::{Reach, Router, SetPool};
use crate::uuid::uuid_value;
use muniment_exec::BUCKETS;
use muniment_op::Interrupt;
use muniment_shard::catalog::Collection;
use muniment_shard::{RangeTable, ShardKey, Timestamp, Version};
use muniment_storage::{Owned, Placement};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, array, doc};
use muniment_wire::client::check_ok;
use std::sync::Arc;

/// So many milliseconds the end of transactions that use a collection is waited for.
const SOON: i32 = 1000;

/// A collection as the shard has it that holds its database.
pub struct Stored {
    /// The UUID.
    pub uuid: [u8; 16],
    /// The options.
    pub options: DocBuf,
    /// The indexes, without `_id_`.
    pub indexes: Vec<DocBuf>,
}

impl Stored {
    /// The options of a time series, if it is one.
    pub fn series(&self) -> Option<Doc<'_>> {
        self.options.as_doc().get_doc("timeseries")
    }
}

/// Refuses a time series, for a command that treats it as a view.
///
/// # Errors
/// 166 CommandNotSupportedOnView.
pub fn no_series(ns: &str) -> Error {
    let why = format!("Namespace {ns} is a timeseries, not a collection");
    Error::new(Code::CommandNotSupportedOnView, why)
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
    // The UUID of a time series is that of its buckets.
    let buckets = format!("{BUCKETS}{name}");
    let names = array![name, buckets.as_str()];
    let list = doc! { "listCollections": 1, "filter": doc! { "name": doc! { "$in": names } } };
    let reply = run(&**cx.op, router, set, db, &list, true)?;
    let named = |name: &str| {
        let mut all = first_batch(reply.as_doc());
        all.find(|d| d.get_str("name") == Some(name))
    };
    let Some(found) = named(name) else {
        return Ok(None);
    };
    let of_uuid = match found.get_str("type").unwrap_or_default() {
        "collection" => Some(found),
        "timeseries" => named(&buckets),
        what => {
            let why = format!("Namespace {ns} is a {what}, not a collection");
            return Err(Error::new(Code::CommandNotSupportedOnView, why));
        }
    };
    let info = of_uuid.and_then(|d| d.get_doc("info"));
    let Some(Value::Binary { bytes, .. }) = info.and_then(|info| info.get("uuid")) else {
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

/// The names of the collections and time series that a shard has in a database, without views and the server's own.
///
/// # Errors
/// The shard's; 1 if there are so many that it gives them in several batches.
pub fn names(
    cx: &CommandContext<'_>,
    router: &Router,
    set: &SetPool,
    db: &str,
) -> Result<Vec<String>> {
    let list = doc! {
        "listCollections": 1, "nameOnly": true, "cursor": doc! { "batchSize": 1_000_000 },
    };
    let reply = run(&**cx.op, router, set, db, &list, true)?;
    let cursor = reply.as_doc().get_doc("cursor").unwrap_or(Doc::EMPTY);
    if cursor.get("id").and_then(|v| v.as_i64_exact()) != Some(0) {
        return Err(Error::internal(
            "there are too many collections for one batch",
        ));
    }
    let stored = [Some("collection"), Some("timeseries")];
    let plain = first_batch(reply.as_doc()).filter(|d| stored.contains(&d.get_str("type")));
    let names = plain.filter_map(|d| d.get_str("name"));
    let names = names.filter(|name| !name.starts_with("system."));
    Ok(names.map(str::to_string).collect())
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
    let list = doc! {
        "listCollections": 1, "filter": doc! { "name": name, "type": "view" },
        "$readPreference": doc! { "mode": "primaryPreferred" },
    };
    let asked = Own {
        set,
        db,
        command: &list,
        // A shard that the database has left refuses it.
        versions: Some(Doc::EMPTY),
        // Reads go on while the shard has no primary.
        reach: Reach::By(ReadPreference::of(Mode::PrimaryPreferred)),
    };
    let reply = ask_own_of_all(on, router, &[asked]).pop();
    let reply = reply
        .ok_or_else(|| Error::internal("a reply is lost"))??
        .body;
    check_ok(reply.as_doc())?;
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

/// The collation of the collection or view of this name on a set; `None` for the simple one.
///
/// # Errors
/// The set's.
pub fn collation_of(
    on: &dyn Interrupt,
    router: &Router,
    set: &SetPool,
    db: &str,
    name: &str,
) -> Result<Option<DocBuf>> {
    let options = options_of(on, router, set, db, name)?;
    Ok(options.as_doc().get_doc("collation").map(|d| d.to_buf()))
}

/// The options of the collection or view of this name on a set; none if it is not there.
///
/// # Errors
/// The set's.
pub fn options_of(
    on: &dyn Interrupt,
    router: &Router,
    set: &SetPool,
    db: &str,
    name: &str,
) -> Result<DocBuf> {
    let list = doc! { "listCollections": 1, "filter": doc! { "name": name } };
    let reply = run(on, router, set, db, &list, true)?;
    let found = first_batch(reply.as_doc()).next();
    let options = found.and_then(|d| d.get_doc("options"));
    Ok(options.unwrap_or(Doc::EMPTY).to_buf())
}

/// What a shard owns of a collection, and the collection as it is to be there.
pub struct Told<'t> {
    /// The collection's name.
    pub ns: &'t str,
    /// The collection elsewhere, to be made if it is not there.
    pub stored: &'t Stored,
    /// What the shard owns.
    pub placement: Placement,
    /// The move that ends with this, although the version is not newer.
    pub ends: Option<Ends<'t>>,
}

/// A move that is to end on a shard.
#[derive(Clone, Copy)]
pub struct Ends<'t> {
    /// Its id.
    pub id: Value<'t>,
    /// The time from which on this router has had the right to change the collection. The move goes on if its router got
    /// the right later: this one has lost it then, or its message comes late. `None` for the router's own move, of which
    /// nobody else knows the id.
    pub right: Option<Timestamp>,
}

/// Puts it into a message.
fn put_ends(place: &mut DocBuf, ends: Option<Ends<'_>>) {
    place.append_some("move", ends.map(|ends| ends.id));
    let right = ends.and_then(|ends| ends.right);
    place.append_some("right", right.map(|right| right.to_value()));
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
    let mut place = doc! {
        "_shardPlace": name, "uuid": uuid_value(&told.stored.uuid), "options": &told.stored.options,
        "placement": told.placement.to_doc(), "writeConcern": doc! { "w": "majority" },
    };
    put_ends(&mut place, told.ends);
    run(&**cx.op, router, set, db, &place, true)?;
    if told.stored.indexes.is_empty() {
        return Ok(());
    }
    // An index without a collation is told as one of none, and would get that of the collection.
    let has_own = told.stored.options.as_doc().get("collation").is_some();
    let indexes = told.stored.indexes.iter().map(|index| {
        let mut index = index.clone();
        if has_own && index.as_doc().get("collation").is_none() {
            index.append("collation", doc! { "locale": "simple" });
        }
        index
    });
    let indexes: ArrayBuf = indexes.collect();
    let create = doc! {
        "createIndexes": name, "indexes": indexes, "writeConcern": doc! { "w": "majority" },
    };
    run(&**cx.op, router, set, db, &create, true).map(drop)
}

/// Tells a shard that has the collection what it owns from now on, and which move ends with that, as [`Told::ends`].
///
/// # Errors
/// 26 NamespaceNotFound if the collection is not there; 13388 StaleConfig if the shard has a newer placement; the
/// shard's.
pub fn retell(
    cx: &CommandContext<'_>,
    router: &Router,
    set: &SetPool,
    (ns, uuid): (&str, &[u8; 16]),
    (placement, ends): (Placement, Option<Ends<'_>>),
) -> Result<()> {
    let (db, name) = ns.split_once('.').unwrap_or_default();
    let mut place = doc! {
        "_shardPlace": name, "uuid": uuid_value(uuid), "placement": placement.to_doc(),
        "writeConcern": doc! { "w": "majority" },
    };
    put_ends(&mut place, ends);
    run(&**cx.op, router, set, db, &place, true).map(drop)
}

/// Tells a shard that has the collection what it owns, if transactions that use the collection end soon: others are
/// held back meanwhile.
///
/// # Errors
/// 24 LockTimeout; those of [`retell`].
pub fn retell_soon(
    cx: &CommandContext<'_>,
    router: &Router,
    set: &SetPool,
    (ns, uuid): (&str, &[u8; 16]),
    placement: Placement,
) -> Result<()> {
    let (db, name) = ns.split_once('.').unwrap_or_default();
    let place = doc! {
        "_shardPlace": name, "uuid": uuid_value(uuid), "placement": placement.to_doc(),
        "writeConcern": doc! { "w": "majority" }, "maxTimeMS": SOON,
    };
    match run(&**cx.op, router, set, db, &place, true) {
        Err(e) if e.code() == Code::MaxTimeMSExpired => Err(Error::new(
            Code::LockTimeout,
            format!("transactions or writes of many documents use {ns}"),
        )),
        other => other.map(drop),
    }
}

/// Tells a shard what the configuration says, and ends what moves there by an older right than this router's. The set's
/// place in the table is given with it. If the collection is not there, it is made as it is elsewhere.
///
/// # Errors
/// Those of [`tell`] and [`retell`].
pub fn agree(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    (set, shard): (&SetPool, Option<usize>),
    (made_as, right): (Option<&Stored>, Timestamp),
) -> Result<()> {
    let told = |ends| -> Result<()> {
        let placement = placed(known, shard)?.said_by(right);
        let Some(stored) = made_as else {
            let of = (known.ns(), &known.collection.generation.uuid);
            return retell(cx, router, set, of, (placement, ends));
        };
        let told = Told {
            ns: known.ns(),
            stored,
            placement,
            ends,
        };
        tell(cx, router, set, &told)
    };
    match told(None) {
        Err(e) if is_stale(&e) => match e.extra().as_doc().get("moving") {
            Some(id) => told(Some(Ends {
                id,
                right: Some(right),
            })),
            None => Err(e),
        },
        other => other,
    }
}

/// Does that for all shards that have the collection, but for some.
///
/// # Errors
/// Those of [`agree`].
pub fn all_agree(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    (but_for, right): (&[&SetPool], Timestamp),
) -> Result<()> {
    for (name, set) in router.catalog.shards(&**cx.op, router)? {
        if but_for.iter().any(|other| other.name == set.name) {
            continue;
        }
        let place = known.table.shard_named(&name);
        match agree(cx, router, known, (&set, place), (None, right)) {
            Err(e) if e.code() == Code::NamespaceNotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// Has change streams with `showExpandedEvents` be told what was done to a collection: `o` begins with the name of the
/// command. The shard of the database tells it. If that fails, or this router ends before, nobody is told.
pub fn tell_streams(
    cx: &CommandContext<'_>,
    router: &Router,
    (ns, uuid): (&str, &[u8; 16]),
    o: &DocBuf,
) {
    let (db, name) = ns.split_once('.').unwrap_or_default();
    let note = doc! {
        "_shardNote": name, "uuid": uuid_value(uuid), "o": o, "writeConcern": doc! { "w": "majority" },
    };
    let told = home_of(cx, router, db)
        .and_then(|home| run(&**cx.op, router, &home, db, &note, true).map(drop));
    drop(told);
}

/// What becomes of a collection on a shard when its generation has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It stays.
    Stays,
    /// It is dropped, unless the shard was told that it is to stay: this router did not see how the generation ended.
    Goes,
    /// It is dropped: the configuration has decided that.
    Dropped,
}

impl Left {
    /// Where it is not to stay, it goes.
    pub fn staying(stays: bool) -> Left {
        match stays {
            true => Left::Stays,
            false => Left::Goes,
        }
    }
}

/// Tells a shard that a generation of a collection has ended, and what becomes of the collection.
///
/// # Errors
/// The shard's.
pub fn end(
    cx: &CommandContext<'_>,
    router: &Router,
    set: &SetPool,
    ns: &str,
    of: (&[u8; 16], Timestamp),
    left: Left,
) -> Result<()> {
    let (db, name) = ns.split_once('.').unwrap_or_default();
    let place = doc! {
        "_shardPlace": name, "uuid": uuid_value(of.0), "ends": of.1.to_value(), "drops": left != Left::Stays,
        "certain": left == Left::Dropped,
        "writeConcern": doc! { "w": "majority" },
    };
    run(&**cx.op, router, set, db, &place, true).map(drop)
}

/// All shards, and whether each is the one on which a collection stays whose generation ends. That one is told last: it
/// is undecided until then, so that a router which meets it does what one that has ended has left.
///
/// # Errors
/// Those of reading.
pub fn ending_with(
    cx: &CommandContext<'_>,
    router: &Router,
    home: &SetPool,
) -> Result<Vec<(Arc<SetPool>, bool)>> {
    let shards = router.catalog.shards(&**cx.op, router)?.into_iter();
    let mut all: Vec<_> = shards
        .map(|(_, set)| {
            let stays = set.name == home.name;
            (set, stays)
        })
        .collect();
    all.sort_by_key(|(_, stays)| *stays);
    Ok(all)
}

/// Has a shard that owns nothing of a collection drop what it still has of it. One that owns something keeps it.
///
/// # Errors
/// The shard's.
pub fn end_idle(
    cx: &CommandContext<'_>,
    router: &Router,
    set: &SetPool,
    collection: &Collection,
) -> Result<()> {
    let (db, name) = collection.ns.split_once('.').unwrap_or_default();
    let generation = &collection.generation;
    let place = doc! {
        "_shardPlace": name, "uuid": uuid_value(&generation.uuid), "ends": generation.timestamp.to_value(), "drops": true,
        "idle": true, "writeConcern": doc! { "w": "majority" },
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

/// What a shard owns as the configuration has it: `shard` is its place in the table, if it has one.
///
/// # Errors
/// Those of [`Placement::new`].
pub fn placed(known: &Known, shard: Option<usize>) -> Result<Placement> {
    Ok(of_table(&known.table, shard, false)?.as_of(known.changed))
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
    let mut homes: Vec<_> = known
        .all()
        .into_iter()
        .map(|shard| Ok((Arc::clone(known.set(shard)?), Some(shard))))
        .collect::<Result<_>>()?;
    let (db, _) = known.ns().split_once('.').unwrap_or_default();
    let primary = crate::router::place::home_of(cx, router, db)?;
    if !homes.iter().any(|(set, _)| set.name == primary.name) {
        homes.push((primary, None));
    }
    Ok(homes)
}
