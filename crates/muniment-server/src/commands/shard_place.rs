//! `_shardPlace`: a router tells a shard what it owns of a sharded collection.

use super::renaming::RESERVED;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::distributed::durable;
use crate::namespace;
use crate::registry::{CommandSpec, Kind, Routed, Target};
use muniment_shard::Timestamp;
use muniment_storage::stale;
use muniment_storage::{Collection, CollectionOptions, Placement};
use muniment_value::args::{Types, opt, req, uuid};
use muniment_value::{Code, Doc, Error, Result, Value};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// The command. Each of its forms may be repeated: it then finds done what it was to do.
///
/// - `{_shardPlace, uuid, options?, placement, move?, right?, home?}`: this is what the shard owns. If the collection has
///   another name, it takes the place of the one with this name. With `options`, it is made if it is not there. `home` says
///   that this shard holds the database. A range that moves goes on doing so, unless the version is newer or `move` names
///   the move; `right`, the time of the router's right to change the collection, must not be older than that of the move.
/// - `{_shardPlace, uuid, ends: <timestamp>, drops, certain, idle}`: the generation of that time has ended here. The
///   collection is dropped, or is not sharded any more. One that the shard was told to keep (`stays`) is dropped only if
///   that is `certain`. With `idle`, only if the shard owns nothing of it.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardPlace",
    doc: "Internal: a router tells a shard what it owns of a collection",
    kind: Kind::Ddl,
    target: Target::Collection,
    write_concern: true,
    makes_collections: true,
    fields: &[
        req("uuid", Types::BINARY),
        opt("options", Types::OBJECT),
        opt("placement", Types::OBJECT),
        opt("move", Types::BINARY),
        opt("right", Types::TIMESTAMP),
        opt("ends", Types::TIMESTAMP),
        opt("drops", Types::BOOL),
        opt("certain", Types::BOOL),
        opt("idle", Types::BOOL),
        opt("home", Types::BOOL),
    ],
    run,
    ..CommandSpec::new(Routed::Refused, Needs::Member)
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let wanted = uuid(
        "_shardPlace",
        "uuid",
        cx.args.get("uuid").unwrap_or(Value::Null),
    )?;
    let store = &cx.engine().store;
    let there = store.collection(cx.ns());
    let found = there.clone().filter(|c| c.uuid() == wanted);
    if let Some(Value::Timestamp { t, i }) = cx.args.get("ends") {
        if let Some(collection) = found {
            end(cx, &collection, Timestamp::new(t, i))?;
        }
        // What was found done may not be on the disk of the majority yet.
        cx.note_write();
        return Ok(());
    }
    let stored = cx.args.doc("placement").unwrap_or(Doc::EMPTY);
    let told = Placement::parse(stored)?;
    let ends = match cx.args.get("move") {
        Some(id) => Some((uuid("_shardPlace", "move", id)?, right_given(cx))),
        None => None,
    };
    let held = there
        .as_ref()
        .and_then(|c| Some((c.uuid(), c.placement()?)));
    if let Some((uuid, held)) = held {
        check_not_newer(cx.ns(), (uuid, &held), &told, ends)?;
    }
    if let Some(collection) = &found {
        check_not_ended(cx.ns(), collection, &told)?;
    }
    let found = match found {
        None => takes_place(cx, wanted)?,
        found => found,
    };
    let collection = made(cx, (there, found), wanted)?;
    if cx.args.bool("home", false) {
        tells_changes(cx, &collection)?;
    }
    put(cx, &collection, &told, ends)?;
    cx.server.moving.waste.store(true, SeqCst);
    cx.note_write();
    Ok(())
}

/// Stores what the shard owns of a collection.
fn put(
    cx: &CommandContext<'_>,
    collection: &Arc<Collection>,
    told: &Placement,
    ends: Option<([u8; 16], Timestamp)>,
) -> Result<()> {
    let placement = match is_held_back(told) {
        true => told.clone(),
        false => told.clone().said_by(Timestamp::default()),
    };
    let store = &cx.engine().store;
    let at = placement.changed();
    let at = muniment_storage::Timestamp::new(at.t, at.i);
    if at > store.clock() {
        // Views that are opened after this are not older than the change.
        store.advance_clock(at);
    }
    // A change of other shards' ranges is none here.
    let is_so = |held: &Placement| {
        held.is_settled_as(&placement)
            || held.followed_by(placement.clone()).to_doc() == held.to_doc()
    };
    if !collection.placement().is_some_and(|held| is_so(&held)) {
        store.place(collection, &**cx.op, |held| match held {
            Some(held) => {
                check_not_newer(cx.ns(), (collection.uuid(), held), told, ends)?;
                Ok(Some(held.followed_by(placement)))
            }
            None => {
                check_not_ended(cx.ns(), collection, told)?;
                Ok(Some(placement))
            }
        })?;
    }
    Ok(())
}

/// The generation of this time has ended here. The collection is dropped, unless it is to stay. So is what is left of a
/// generation before, whose end this shard was not told.
fn end(cx: &CommandContext<'_>, collection: &Arc<Collection>, at: Timestamp) -> Result<()> {
    let drops = cx.args.bool("drops", false);
    let is_meant = |p: &Arc<Placement>| p.timestamp == at || (drops && p.timestamp < at);
    let Some(placement) = collection.placement().filter(is_meant) else {
        return Ok(());
    };
    let store = &cx.engine().store;
    // An empty collection has kept others from taking this name, while another one was to get it.
    let reserved = collection
        .options()
        .document
        .as_doc()
        .get(RESERVED)
        .is_some();
    if cx.args.bool("idle", false)
        && (!placement.owned().is_empty() || placement.moving().is_some() || placement.stays)
    {
        return Ok(());
    }
    // A router that was about to have the collection stay may have ended before it came to that.
    let stays = placement.stays && placement.timestamp == at && !cx.args.bool("certain", false);
    if reserved || (drops && !stays) {
        store.drop_collection(cx.ns(), &**cx.op)?;
        let cursors = &cx.engine().cursors;
        cursors.invalidate(cx.ns(), "collection dropped");
        cx.server.metrics.top_forget(cx.ns());
        if collection.is_time_series() {
            cx.engine().settle_series(cx.op, cx.db())?;
        }
        return Ok(());
    }
    store.end_placement(collection, &**cx.op, |p| p.timestamp == placement.timestamp)?;
    // This shard has the collection for itself now.
    tells_changes(cx, collection)
}

/// Has this shard tell change streams what happens to the collection as a whole.
fn tells_changes(cx: &CommandContext<'_>, collection: &Arc<Collection>) -> Result<()> {
    let options = collection.options();
    match options.guest {
        true => {
            let options = CollectionOptions {
                guest: false,
                ..(*options).clone()
            };
            let store = &cx.engine().store;
            store.modify_options(collection, options, &**cx.op)
        }
        false => Ok(()),
    }
}

/// Refuses a placement of a generation that has ended here, with which the collection would be dropped as one that had gone
/// elsewhere. Its router has lost the right to say so, and its message comes late.
///
/// # Errors
/// 13388 StaleConfig.
fn check_not_ended(ns: &str, collection: &Collection, told: &Placement) -> Result<()> {
    let ended = collection.options().ended;
    match collection.placement().is_none() && told.timestamp <= ended {
        true => Err(stale(ns, None, "that generation has ended here")),
        false => Ok(()),
    }
}

/// Whether this is the name of a collection that is to take the place of another one.
fn is_resharding(ns: &str) -> bool {
    let name = ns.split_once('.').map_or("", |(_, name)| name);
    name.starts_with(namespace::RESHARDING)
}

/// The collection of this UUID, if it has another name: it was filled under that, and takes the place of the one that
/// has the command's name. Change streams are not told, since the documents are the same.
fn takes_place(cx: &CommandContext<'_>, wanted: [u8; 16]) -> Result<Option<Arc<Collection>>> {
    let store = &cx.engine().store;
    let Some(found) = store.collection_by_uuid_in(cx.db(), wanted) else {
        return Ok(None);
    };
    // Another one was renamed, by a router that this one has not heard of.
    if !is_resharding(&found.namespace()) {
        return Err(stale(cx.ns(), None, "the collection has another name here"));
    }
    let renamed = store.rename_collection(&found.namespace(), cx.ns(), true, &**cx.op);
    if let Err(e) = renamed {
        // Another router may have said the same at once.
        return match found.namespace() == cx.ns() {
            true => Ok(Some(found)),
            false => Err(e),
        };
    }
    let cursors = &cx.engine().cursors;
    cursors.invalidate(cx.ns(), "collection dropped");
    cx.server.metrics.top_forget(cx.ns());
    // Once routers may use it, no view is older than its name.
    durable(cx.server, cx.op)?;
    Ok(Some(found))
}

/// The collection of this UUID, made if it is not `found`; `there` is what has its name.
fn made(
    cx: &CommandContext<'_>,
    (there, found): (Option<Arc<Collection>>, Option<Arc<Collection>>),
    wanted: [u8; 16],
) -> Result<Arc<Collection>> {
    let store = &cx.engine().store;
    Ok(match (found, cx.args.doc("options")) {
        (Some(collection), Some(options)) => {
            // A shard without a chunk was not told of changes.
            let idle = collection.placement().is_some_and(|p| p.owned().is_empty());
            if idle && *collection.options().document.as_bytes() != *options.as_bytes() {
                let options = CollectionOptions {
                    document: options.to_buf(),
                    ..(*collection.options()).clone()
                };
                store.modify_options(&collection, options, &**cx.op)?;
                if collection.is_time_series() {
                    cx.engine().settle_series(cx.op, cx.db())?;
                }
            }
            collection
        }
        (Some(collection), None) => collection,
        (None, Some(options)) => {
            // An older generation may have been left here.
            let held = there.as_ref().and_then(|c| c.placement());
            if held.as_ref().is_some_and(|p| p.stays) {
                let why = format!("{} is to stay on this shard, or gets another name", cx.ns());
                return Err(Error::new(Code::NamespaceExists, why));
            }
            // So may a collection that was to take the place of another one.
            if held.is_some() || (there.is_some() && is_resharding(cx.ns())) {
                store.drop_collection(cx.ns(), &**cx.op)?;
            }
            let series = options.get_doc("timeseries");
            let options = CollectionOptions {
                // The shard that holds the database has the collection before.
                guest: true,
                time_field: series
                    .and_then(|d| d.get_str("timeField"))
                    .map(str::to_string),
                document: options.to_buf(),
                ..CollectionOptions::default()
            };
            let made = store.create_collection_as(cx.ns(), options, Some(wanted), &**cx.op)?;
            if made.is_time_series() {
                cx.engine().settle_series(cx.op, cx.db())?;
            }
            made
        }
        (None, None) => {
            return Err(Error::new(
                Code::NamespaceNotFound,
                format!("the collection {} of this UUID is not here", cx.ns()),
            ));
        }
    })
}

/// Whether the configuration is about to forget the generation, or to give it a longer key. Only a right that is not older
/// than the one by which that was said takes it back.
fn is_held_back(p: &Placement) -> bool {
    p.stays || p.next_key().is_some()
}

/// The time of the right of the router that ends a move. One that names its own move needs none.
fn right_given(cx: &CommandContext<'_>) -> Timestamp {
    match cx.args.get("right") {
        None => Timestamp::new(u32::MAX, u32::MAX),
        _ => crate::moving::right_of(cx),
    }
}

/// Refuses a placement that is older than what the shard has, and one that would end a move of which the router does not
/// know. What is undecided may be changed by the router that is at work on it.
///
/// # Errors
/// 13388 StaleConfig.
fn check_not_newer(
    ns: &str,
    (uuid, held): ([u8; 16], &Placement),
    told: &Placement,
    ends: Option<([u8; 16], Timestamp)>,
) -> Result<()> {
    // A shard that gives its last range away goes back to the version 0, so the time of the change counts first.
    let age = |p: &Placement| (p.timestamp, p.changed(), p.version);
    let same = held.timestamp == told.timestamp;
    let moves = held.moving().filter(|_| age(told) == age(held));
    let why = match moves {
        Some(m) if ends.is_none_or(|(id, right)| id != m.id || right < m.right) => {
            "a range moves".to_string()
        }
        _ if held.timestamp > told.timestamp || (age(held) > age(told) && !held.begins()) => {
            format!("the shard has the version {} already", held.version)
        }
        _ if is_held_back(held) && same && told.said_by < held.said_by => {
            "another router is about to change the collection".to_string()
        }
        _ => return Ok(()),
    };
    Err(muniment_storage::stale(ns, Some((uuid, held)), &why))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use muniment_shard::{ShardKey, Version};
    use muniment_value::doc;

    fn placement(version: u32, undecided: bool) -> Placement {
        let key = ShardKey::parse(doc! { "k": 1 }.as_doc()).unwrap();
        let ranges = vec![(key.lowest(), None)];
        let (at, version) = (Timestamp::new(7, 1), Version::new(version, 0));
        Placement::new(at, version, Arc::new(key), ranges, undecided).unwrap()
    }

    fn takes(held: &Placement, told: &Placement) -> bool {
        check_not_newer("d.c", ([1; 16], held), told, None).is_ok()
    }

    #[test]
    fn what_is_held_back_is_let_go_by_a_right_that_is_not_older() {
        let key = ShardKey::parse(doc! { "k": 1, "n": 1 }.as_doc()).unwrap();
        let by = |p: Placement, t: u32| p.said_by(Timestamp::new(t, 1));
        let stays = by(placement(3, false).staying(), 5);
        let refines = by(placement(3, false).refining(Arc::new(key), false), 5);
        for held in [stays, refines] {
            assert!(!takes(&held, &placement(3, false)));
            assert!(!takes(&held, &by(placement(3, false), 4)));
            assert!(takes(&held, &by(placement(3, false), 5)));
            assert!(takes(&held, &by(placement(4, false), 6)));
            // Not even a newer right takes it back to an older version.
            assert!(!takes(&held, &by(placement(2, false), 6)));
            let mut renewed = placement(0, false);
            renewed.timestamp = Timestamp::new(8, 1);
            assert!(takes(&held, &renewed), "another generation");
        }
        let begins = placement(3, true);
        assert!(takes(&begins, &placement(2, false)));
    }
}
