//! Commands that change or show a sharded collection as a whole: they go to all shards that have it.

use super::place::{homes, stored};
use super::{Repeats, ask_parts, is_gone, is_stale, shard, to_one};
use crate::context::CommandContext;
use crate::router::configuration::read;
use crate::router::forward::{Beside, Part, reach, run};
use crate::router::relay::database;
use crate::router::tables::{Known, SERIES_FIELDS};
use crate::router::{Router, SetPool};
use crate::sets::Reply;
use crate::uuid::uuid_value;
use muniment_exec::Expected;
use muniment_shard::Version;
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, array, doc, values_equal};
use muniment_wire::client;
use std::sync::Arc;

/// What a server says of itself in a reply, and what is told once.
const OWN: [&str; 5] = [
    "$clusterTime",
    "$configTime",
    "ok",
    "operationTime",
    "topologyVersion",
];

/// Runs a command on all shards that have the collection. The reply is the first one's, with all of them under `raw`.
///
/// # Errors
/// The first shard's that fails: the others may have done it.
pub fn everywhere(cx: &mut CommandContext<'_>, router: &Router, known: &Arc<Known>) -> Result<()> {
    let replies = on_homes(cx, router, known, cx.request.body)?;
    shows(cx, &replies);
    Ok(())
}

/// A shard's set with what it has replied.
pub type OfShard = (Arc<SetPool>, Reply);

/// Puts the replies of shards into that of the command: the first one's fields, and all of them under `raw`, by the
/// shards' members.
fn shows(cx: &mut CommandContext<'_>, replies: &[OfShard]) {
    let mut raw = DocBuf::new();
    for (set, reply) in replies {
        raw.append(&set.text(), &reply.body);
    }
    if let Some((_, first)) = replies.first() {
        for e in first
            .body
            .as_doc()
            .iter()
            .filter(|e| !OWN.contains(&e.name()))
        {
            cx.reply.field(e.name(), e.value());
        }
    }
    cx.reply.field("raw", raw);
}

/// As [`everywhere`], for `dropIndexes`: an index that some shards do not have is dropped on the others.
///
/// # Errors
/// 27 IndexNotFound if no shard has it; the first shard's that fails otherwise.
pub fn drop_indexes(
    cx: &mut CommandContext<'_>,
    router: &Router,
    known: &Arc<Known>,
) -> Result<()> {
    let body = cx.request.body;
    let (replies, lacking) = on_homes_that_have(cx, router, known, body)?;
    if lacking && let Some(Value::Array(list)) = body.get("index") {
        // A shard that lacks one index of several has dropped none.
        for index in list.values() {
            let mut one = DocBuf::new();
            for e in body.iter() {
                match e.name() {
                    "index" => one.append("index", index),
                    _ => one.append_elem(e),
                };
            }
            match on_homes_that_have(cx, router, known, one.as_doc()) {
                Err(e) if e.code() == Code::IndexNotFound => {}
                other => {
                    other?;
                }
            }
        }
    }
    shows(cx, &replies);
    Ok(())
}

/// As [`everywhere`], for indexes: what is unique has to be unique on one shard.
///
/// # Errors
/// 67 CannotCreateIndex for a unique index that does not begin with the shard key.
pub fn create_indexes(
    cx: &mut CommandContext<'_>,
    router: &Router,
    known: &Arc<Known>,
) -> Result<()> {
    let indexes = cx.args.array("indexes").unwrap_or(Doc::EMPTY);
    for index in indexes.values().filter_map(|v| v.as_doc()) {
        let unique = index.get("unique").is_some_and(|v| v.truthy());
        let key = index.get_doc("key").unwrap_or(Doc::EMPTY);
        if unique {
            may_be_unique(known, key)?;
        }
    }
    everywhere(cx, router, known)
}

/// Refuses a unique index in which equal documents may be on different shards.
///
/// # Errors
/// 67 CannotCreateIndex.
fn may_be_unique(known: &Known, key: Doc<'_>) -> Result<()> {
    let of_ids = key.iter().count() == 1 && key.get("_id").is_some();
    if of_ids || known.collection.unsplittable || known.key.begins_index(key) {
        return Ok(());
    }
    Err(Error::new(
        Code::CannotCreateIndex,
        format!(
            "cannot create unique index over {} with shard key pattern {}",
            key.to_display(),
            known.key.pattern().to_display()
        ),
    ))
}

/// As [`everywhere`], for `collMod`: what becomes unique has to be unique on one shard, and the configuration has the
/// options of a time series, too.
///
/// # Errors
/// 67 CannotCreateIndex; the first shard's that fails; those of the configuration's set.
pub fn coll_mod(cx: &mut CommandContext<'_>, router: &Router, known: &Arc<Known>) -> Result<()> {
    let one = known.all().first().copied().unwrap_or(0);
    let change = cx.args.doc("index");
    let asks = |name: &str| change.and_then(|i| i.get(name)).is_some_and(|v| v.truthy());
    if (asks("unique") || asks("prepareUnique"))
        && let Some(held) = stored(cx, router, known.set(one)?, known.ns())?
    {
        let [name, pattern] = ["name", "keyPattern"].map(|n| change.and_then(|i| i.get(n)));
        let is_it = |index: &&DocBuf| {
            let index = index.as_doc();
            name.is_some_and(|n| index.get("name").is_some_and(|own| values_equal(own, n)))
                || pattern.is_some_and(|p| index.get("key").is_some_and(|own| values_equal(own, p)))
        };
        for index in held.indexes.iter().filter(is_it) {
            may_be_unique(known, index.as_doc().get_doc("key").unwrap_or(Doc::EMPTY))?;
        }
    }
    everywhere(cx, router, known)?;
    if cx.args.doc("timeseries").is_none() {
        return Ok(());
    }
    let held = stored(cx, router, known.set(one)?, known.ns())?;
    let Some(series) = held.as_ref().and_then(|held| held.series()) else {
        return Ok(());
    };
    let mut set = DocBuf::new();
    set.append(SERIES_FIELDS, series);
    let of = doc! { "_id": known.ns(), "uuid": uuid_value(&known.collection.generation.uuid) };
    let update = doc! { "q": of, "u": doc! { "$set": set } };
    let command = doc! {
        "update": "collections", "updates": array![update],
        "writeConcern": doc! { "w": "majority" },
    };
    run(&**cx.op, router, &router.config, "config", &command, true)?;
    router
        .tables
        .refresh(&**cx.op, router, known.ns())
        .map(std::mem::drop)
}

/// Runs a command on one shard that has chunks, and passes its reply back.
///
/// # Errors
/// The shard's.
pub fn anywhere(cx: &mut CommandContext<'_>, router: &Router, known: &Arc<Known>) -> Result<()> {
    let one = known.all().first().copied().unwrap_or(0);
    to_one(cx, router, known, one)
}

/// Drops the collection.
///
/// # Errors
/// Those of the sets.
pub fn drop(cx: &mut CommandContext<'_>, router: &Router, known: &Arc<Known>) -> Result<()> {
    let one = known.all().first().copied().unwrap_or(0);
    // If it cannot be told, the collection is dropped all the same.
    let held = stored(cx, router, known.set(one)?, known.ns());
    let held = held.ok().flatten();
    let own = held.map_or(1, |held| {
        held.indexes.len() + usize::from(held.series().is_none())
    });
    shard::drop_sharded(cx, router, known)?;
    cx.reply.field("nIndexesWas", own as i32);
    cx.reply.field("ns", known.ns());
    Ok(())
}

/// Drops a database: its sharded collections first. The database's shard refuses to drop what is a part of a collection
/// over shards, such as one that another router has not dropped everywhere before it ended, or what a rename or resharding
/// has left: that is settled first, for which all shards have to be there.
///
/// # Errors
/// Those of the sets.
pub fn drop_database(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let mut repeats = Repeats::new();
    loop {
        drop_collections(cx, router)?;
        match database(cx, router) {
            Err(e) if is_stale(&e) && !is_gone(&e) => repeats.next(cx, router, cx.ns(), e)?,
            done => return done,
        }
    }
}

fn drop_collections(cx: &CommandContext<'_>, router: &Router) -> Result<()> {
    let begins = format!("{}.", cx.db());
    // The next character after a point.
    let after = format!("{}/", cx.db());
    let within = doc! { "_id": doc! { "$gte": begins, "$lt": after } };
    for d in read(&**cx.op, router, "collections", within)? {
        let ns = d.as_doc().get_str("_id").unwrap_or_default();
        while let Some(known) = router.tables.refresh(&**cx.op, router, ns)? {
            match shard::drop_sharded(cx, router, &known) {
                // Another router has dropped it, and perhaps made it again.
                Err(e) if is_stale(&e) => {}
                other => {
                    other?;
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Refuses a command on a sharded collection.
///
/// # Errors
/// 20 IllegalOperation.
pub fn refused(cx: &mut CommandContext<'_>, _: &Router, known: &Arc<Known>) -> Result<()> {
    Err(Error::new(
        Code::IllegalOperation,
        format!(
            "{} does not run on {}, which is sharded",
            cx.spec.name,
            known.ns()
        ),
    ))
}

/// Runs a command on all shards that have the collection, each of which has to succeed.
///
/// # Errors
/// The first shard's that fails.
pub fn on_homes(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    body: Doc<'_>,
) -> Result<Vec<OfShard>> {
    settled(replies_of_homes(cx, router, known, body)?, None).map(|(good, _)| good)
}

/// As [`on_homes`], if at least one shard has an index that the command names. Returns also whether another one lacks it.
fn on_homes_that_have(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    body: Doc<'_>,
) -> Result<(Vec<OfShard>, bool)> {
    let replies = replies_of_homes(cx, router, known, body)?;
    settled(replies, Some(Code::IndexNotFound))
}

/// The replies of the shards that have succeeded, unless one has failed. Failures with the code `but_for` do not count if
/// another shard has succeeded; returns also whether there were any.
///
/// # Errors
/// The first failure; before that, one by which the command begins anew.
fn settled(replies: Replies, but_for: Option<Code>) -> Result<(Vec<OfShard>, bool)> {
    let (mut good, mut first, mut passed) = (Vec::new(), None, None);
    for (set, reply) in replies {
        match reply.and_then(|reply| client::check_ok(reply.body.as_doc()).map(|()| reply)) {
            Ok(reply) => good.push((set, reply)),
            Err(e) if is_stale(&e) => return Err(e),
            Err(e) if Some(e.code()) == but_for => passed = passed.or(Some(e)),
            Err(e) => first = first.or(Some(e)),
        }
    }
    match (first, passed) {
        (Some(e), _) => Err(e),
        (None, Some(e)) if good.is_empty() => Err(e),
        (None, passed) => Ok((good, passed.is_some())),
    }
}

/// The sets that have a collection, and what came of asking them.
type Replies = Vec<(Arc<SetPool>, Result<Reply>)>;

fn replies_of_homes(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    body: Doc<'_>,
) -> Result<Replies> {
    let homes = homes(cx, router, known)?;
    let versions: Vec<DocBuf> = homes
        .iter()
        .map(|(_, shard)| match shard {
            Some(shard) => known.versions(*shard),
            None => {
                let expected = Expected {
                    generation: known.collection.generation,
                    version: Version::default(),
                };
                let mut versions = DocBuf::new();
                versions.append(known.ns(), crate::placement::version_of(&expected));
                versions
            }
        })
        .collect();
    let parts = homes
        .iter()
        .zip(&versions)
        .map(|((set, _), versions)| Part {
            set,
            db: cx.db(),
            body,
            beside: Beside::Nothing,
            versions: Some(versions.as_doc()),
            reach: reach(cx),
        });
    let parts: Vec<_> = parts.collect();
    let replies = ask_parts(cx, router, &parts);
    std::mem::drop(parts);
    let sets = homes.into_iter().map(|(set, _)| set);
    Ok(sets.zip(replies).collect())
}
