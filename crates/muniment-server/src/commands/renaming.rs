//! The arguments of renameCollection, with the checks that need no collections.

use crate::context::CommandContext;
use crate::namespace;
use muniment_exec::is_generated;
use muniment_value::args::{Types, uuid};
use muniment_value::{Code, Error, Result, Value, doc};

/// The option of an empty collection that keeps others from taking a name, while a sharded collection is to get it.
pub const RESERVED: &str = "reserved";

/// What is asked for.
pub struct Renaming<'a> {
    /// The collection's full name.
    pub from: &'a str,
    /// Its new one.
    pub to: &'a str,
    /// Both are in one database.
    pub same_db: bool,
    /// A collection that has the new name is dropped.
    pub drop_target: bool,
    /// The UUID that this one has to have.
    pub target_uuid: Option<[u8; 16]>,
    /// The UUID that the collection has to have.
    pub source_uuid: Option<[u8; 16]>,
    /// A temporary collection stays temporary.
    pub stay_temp: bool,
}

impl Renaming<'_> {
    /// The database of the collection.
    pub fn source_db(&self) -> &str {
        self.from.split_once('.').map_or("", |(db, _)| db)
    }

    /// The database of the new name.
    pub fn db(&self) -> &str {
        self.to.split_once('.').map_or("", |(db, _)| db)
    }
}

/// The arguments of the command.
///
/// # Errors
/// 14 TypeMismatch, 20 IllegalOperation and 73 InvalidNamespace for names that no collection may have or get; 207
/// InvalidUUID; 72 InvalidOptions.
pub fn renaming<'a>(cx: &CommandContext<'a>) -> Result<Renaming<'a>> {
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
    Ok(Renaming {
        from,
        to,
        same_db,
        drop_target,
        target_uuid,
        source_uuid,
        stay_temp: cx.args.bool("stayTemp", false),
    })
}

/// The error for a collection that does not have the UUID which a command names; `actual` is the name of the one that
/// has it, within the database.
pub fn mismatch(ns: &str, wanted: [u8; 16], actual: Option<&str>) -> Error {
    let (db, name) = ns.split_once('.').unwrap_or((ns, ""));
    let mut extra = doc! {
        "db": db,
        "collectionUUID": Value::Binary { subtype: 4, bytes: &wanted },
        "expectedCollection": name,
    };
    match actual {
        Some(n) => extra.append("actualCollection", n),
        None => extra.append("actualCollection", Value::Null),
    };
    Error::new(
        Code::CollectionUUIDMismatch,
        "Collection UUID does not match that specified",
    )
    .with_extra(extra)
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
