//! `renameCollection`.

use super::renaming::{mismatch, renaming};
use crate::audit::{self, Audits};
use crate::auth::{Asks, Needs};
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Kind, Names, Routed};
use muniment_auth::action::{Action, Actions};
use muniment_auth::resource::Target as On;
use muniment_exec::{CatalogChange, check_database};
use muniment_storage::Store;
use muniment_value::args::{Types, opt, req};
use muniment_value::{Code, Error, Result};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "renameCollection",
    doc: "Renames a collection",
    kind: Kind::Ddl,
    admin_only: true,
    write_concern: true,
    fields: &[
        req("to", Types::STRING),
        // Of any type: a null is refused as no boolean, and does not count as missing.
        opt("dropTarget", Types::ANY),
        opt("collectionUUID", Types::BINARY),
        opt("stayTemp", Types::BOOL),
    ],
    audits: Some(Audits::changes("renameCollection", audit::renamed)),
    run,
    names: Names::Elsewhere,
    ..CommandSpec::new(
        Routed::By(crate::router::databases::rename),
        Needs::Of(needs),
    )
};

/// Within a database there is a right of its own for it, with which nobody gets to read a collection that
/// could not be read before. Otherwise it takes what copying and dropping takes.
fn needs(asks: &Asks<'_>) -> bool {
    let from = asks.target().as_str().unwrap_or_default();
    let to = asks.request.body.get_str("to").unwrap_or_default();
    let db = |ns: &str| {
        ns.split_once('.')
            .map_or(String::new(), |(db, _)| db.to_string())
    };
    let reads = |ns| asks.may_on(ns, Actions::of(&[Action::Find]));
    let drops = asks.has("dropTarget");
    let may_drop = || asks.may_on(to, Actions::of(&[Action::DropCollection]));
    let is_system = |ns: &str| {
        ns.split_once('.')
            .is_some_and(|(_, c)| c.starts_with("system."))
    };
    if db(from) == db(to)
        && !is_system(from)
        && !is_system(to)
        && (!drops || may_drop())
        && asks.may_one(On::Database(&db(from)), Action::RenameCollectionSameDB)
    {
        return reads(from) || !reads(to);
    }
    let mut writes = Actions::of(&[Action::Insert, Action::CreateIndex]);
    if drops {
        writes.insert(Action::DropCollection);
    }
    reads(from)
        && asks.may_on(from, Actions::of(&[Action::DropCollection]))
        && asks.may_on(to, writes)
}

/// 361 CollectionUUIDMismatch unless the collection has this UUID.
fn check_uuid(cx: &CommandContext<'_>, ns: &str, wanted: [u8; 16]) -> Result<()> {
    let store = &cx.engine().store;
    if store.collection(ns).is_some_and(|c| c.uuid() == wanted) {
        return Ok(());
    }
    let (db, _) = namespace::split(ns)?;
    let actual = store
        .collection_by_uuid_in(db, wanted)
        .map(|c| c.namespace());
    let actual = actual
        .as_deref()
        .and_then(|n| n.split_once('.'))
        .map(|(_, n)| n);
    Err(mismatch(ns, wanted, actual))
}

/// The store, if both collections are what a router takes them to be, which is whole.
///
/// # Errors
/// 13388 StaleConfig if one is not, or has gone with its database.
fn check_placement<'a>(cx: &CommandContext<'a>, names: [&str; 2]) -> Result<&'a Store> {
    let store = &cx.engine().store;
    for ns in names {
        let found = store.collection(ns);
        cx.op.check_placement(ns, found.as_deref())?;
        if found.is_none() {
            check_database(store, cx.op, ns)?;
        }
    }
    Ok(store)
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let request = renaming(cx)?;
    let (from, to, drop_target) = (request.from, request.to, request.drop_target);
    cx.engine().source(from)?.refuse_view_like(from)?;
    if let Some(wanted) = request.source_uuid {
        check_uuid(cx, from, wanted)?;
    }
    if let Some(wanted) = request.target_uuid {
        check_uuid(cx, to, wanted)?;
    }
    if cx.engine().source(to)?.is_view_like() {
        return Err(Error::new(
            Code::NamespaceExists,
            format!("a view already exists with that name: {to}"),
        ));
    }
    let store = check_placement(cx, [from, to])?;
    let replaced = drop_target && store.collection(to).is_some();
    store.rename_as(from, to, drop_target, request.stay_temp, &**cx.op)?;
    if replaced {
        cx.op
            .note_change(|| CatalogChange::DroppedCollection(to.to_string()));
    }
    cx.op.note_change(|| CatalogChange::Renamed {
        from: from.to_string(),
        to: to.to_string(),
    });
    for ns in [from, to] {
        cx.engine().cursors.invalidate(ns, "collection renamed");
        cx.server.metrics.top_forget(ns);
    }
    cx.note_write();
    Ok(())
}
