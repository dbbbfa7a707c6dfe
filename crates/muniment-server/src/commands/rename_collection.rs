//! `renameCollection`.

use crate::audit::{self, Audits};
use crate::auth::{Asks, Needs};
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Kind, Names, Routed};
use muniment_auth::action::{Action, Actions};
use muniment_auth::resource::Target as On;
use muniment_exec::{CatalogChange, is_generated};
use muniment_storage::Store;
use muniment_value::args::{Types, opt, req, uuid};
use muniment_value::{Code, Error, Result, Value, doc};

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

fn illegal(message: impl Into<String>) -> Error {
    Error::new(Code::IllegalOperation, message)
}

/// System collections that no client may rename or replace.
fn check_system(ns: &str) -> Result<()> {
    let (db, collection) = namespace::split(ns)?;
    let is_system = collection.starts_with("system.") || is_generated(ns);
    if is_system || (db == "local" && collection.starts_with("oplog.")) {
        return Err(illegal(format!(
            "renaming system collections or renaming to system collections is not allowed: {ns}"
        )));
    }
    Ok(())
}

/// Names that MongoDB refuses with 20 IllegalOperation instead of 73 InvalidNamespace.
fn check_name(ns: &str) -> Result<()> {
    if ns.len() > namespace::MAX_NAMESPACE
        && ns
            .split_once('.')
            .is_some_and(|(db, _)| db.len() < namespace::MAX_DB)
    {
        return Err(illegal(format!(
            "Invalid namespace: longer than the limit of {} bytes: {ns}",
            namespace::MAX_NAMESPACE
        )));
    }
    if ns.contains('$') && ns.contains('.') {
        return Err(illegal(format!("Invalid namespace with a '$': {ns}")));
    }
    Ok(())
}

fn uuid_of(v: Value<'_>) -> Option<[u8; 16]> {
    match v {
        Value::Binary { subtype: 4, bytes } => bytes.try_into().ok(),
        _ => None,
    }
}

fn no_uuid() -> Error {
    Error::new(
        Code::InvalidUUID,
        "uuid must be a 16-byte binary field with UUID (4) subtype",
    )
}

/// 361 CollectionUUIDMismatch unless the collection has this UUID.
fn check_uuid(cx: &CommandContext<'_>, ns: &str, wanted: [u8; 16]) -> Result<()> {
    let store = &cx.engine().store;
    if store.collection(ns).is_some_and(|c| c.uuid() == wanted) {
        return Ok(());
    }
    let (db, name) = namespace::split(ns)?;
    let actual = store
        .collection_by_uuid_in(db, wanted)
        .map(|c| c.namespace());
    let actual = actual
        .as_deref()
        .and_then(|n| n.split_once('.'))
        .map(|(_, n)| n);
    let mut extra = doc! {
        "db": db,
        "collectionUUID": Value::Binary { subtype: 4, bytes: &wanted },
        "expectedCollection": name,
    };
    match actual {
        Some(n) => extra.append("actualCollection", n),
        None => extra.append("actualCollection", Value::Null),
    };
    Err(Error::new(
        Code::CollectionUUIDMismatch,
        "Collection UUID does not match that specified",
    )
    .with_extra(extra))
}

/// The store, if both collections are what a router takes them to be, which is whole.
///
/// # Errors
/// 13388 StaleConfig if one is not.
fn check_placement<'a>(cx: &CommandContext<'a>, names: [&str; 2]) -> Result<&'a Store> {
    let store = &cx.engine().store;
    for ns in names {
        cx.op.check_placement(ns, store.collection(ns).as_deref())?;
    }
    Ok(store)
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let Value::String(from) = cx.typed_target(Types::STRING)? else {
        return Err(Error::internal("a namespace that is no string"));
    };
    let to = cx.args.str("to").unwrap_or_default();
    let (drop_target, target_uuid) = match cx.args.get("dropTarget") {
        None => (false, None),
        Some(Value::Bool(b)) => (b, None),
        Some(v @ Value::Binary { .. }) => (true, Some(uuid_of(v).ok_or_else(no_uuid)?)),
        Some(v) => {
            return Err(Error::type_mismatch(format!(
                "BSON field 'renameCollection.dropTarget' is the wrong type '{}', expected types \
                 '[bool, binData]'",
                v.type_name()
            )));
        }
    };
    let source_uuid = cx.args.get("collectionUUID");
    let source_uuid = source_uuid
        .map(|v| uuid("renameCollection", "collectionUUID", v))
        .transpose()?;
    for ns in [from, to] {
        check_name(ns)?;
        namespace::split(ns)?;
        check_system(ns)?;
    }
    let (db, collection) = namespace::split(to)?;
    namespace::check_create(db, collection)?;
    if from == to {
        return Err(illegal("Can't rename a collection to itself"));
    }
    let same_db = namespace::split(from)?.0 == db;
    if target_uuid.is_some() && !same_db {
        return Err(Error::new(
            Code::InvalidOptions,
            "dropTarget cannot be a UUID when renaming across databases",
        ));
    }
    cx.engine().source(from)?.refuse_view_like(from)?;
    if let Some(wanted) = source_uuid {
        check_uuid(cx, from, wanted)?;
    }
    if let Some(wanted) = target_uuid {
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
    let stay_temp = cx.args.bool("stayTemp", false);
    store.rename_as(from, to, drop_target, stay_temp, &**cx.op)?;
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
