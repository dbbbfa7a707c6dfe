//! `applyOps`: applies entries of an oplog, one after the other. mongorestore sends them, and makes
//! collections with a given UUID by them (`--preserveUUID`).
//!
//! Source: the MongoDB manual, "applyOps", and observed replies of MongoDB 8.0.

use crate::auth::{self, Asks, Needs};
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Kind, Names, Routed, Secret};
use crate::request::run_within;
use muniment_auth::action::{Action, Actions};
use muniment_auth::resource::Target as On;
use muniment_exec::{BUCKETS, DeleteStatement, InsertOptions, StatementOutcome, UpdateStatement};
use muniment_op::Interrupt;
use muniment_value::args::{Field, Types, check_type, idle, missing_field, opt, uuid};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, ValueBuf, doc, number};

const FIELDS: &[Field] = &[
    idle(
        "allowAtomic",
        Types::ANY,
        "MongoDB applies entry by entry since 6.2, whatever it says",
    ),
    idle("count", Types::NUMBER, "of transactions in oplogs"),
    opt("alwaysUpsert", Types::BOOL),
    opt("preCondition", Types::ANY),
    opt("prepare", Types::ANY),
    opt("partialTxn", Types::ANY),
    opt("bypassDocumentValidation", Types::SAFE_BOOL),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "applyOps",
    doc: "Applies entries of an oplog, as mongorestore sends them",
    kind: Kind::Ddl,
    write_concern: true,
    open_fields: true,
    fields: FIELDS,
    secret: Secret::Within,
    run,
    names: Names::Elsewhere,
    ..CommandSpec::new(Routed::Refused, Needs::Of(needs))
};

/// Each entry is judged as the command that does the same.
fn needs(asks: &Asks<'_>) -> bool {
    let Value::Array(entries) = asks.target() else {
        return true;
    };
    entries.values().filter_map(|v| v.as_doc()).all(|entry| {
        let ns = entry.get_str("ns").unwrap_or_default();
        let on = |actions: &[Action]| asks.may_on(ns, Actions::of(actions));
        let done = match entry.get_str("op") {
            // An entry replaces the document that is there already.
            Some("i") => on(&[Action::Insert, Action::Update]),
            Some("u") => on(&[Action::Update, Action::Insert]),
            Some("d") => on(&[Action::Remove]),
            Some("c") => {
                let db = ns.split_once('.').map_or(ns, |(db, _)| db);
                asks.may_run(db, entry.get_doc("o").unwrap_or(Doc::EMPTY))
            }
            Some("n") => asks.may_one(On::Cluster, Action::AppendOplogNote),
            // The command refuses the entry.
            _ => true,
        };
        done && (entry.get("ui").is_none() || asks.may_one(On::Cluster, Action::UseUUID))
    })
}

/// An entry may itself be an `applyOps`; this is how deeply they may nest.
const MAX_DEPTH: usize = 10;

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let Value::Array(entries) = cx.target() else {
        check_type("applyOps", "applyOps", Types::ARRAY, cx.target().ty())?;
        return Err(missing_field("applyOps", "applyOps"));
    };
    refuse_options(cx)?;
    for e in entries {
        check_entry(e.name(), e.value())?;
    }
    if depth(entries) > MAX_DEPTH {
        return Err(Error::failed_to_parse(format!(
            "applyOps within applyOps beyond the depth of {MAX_DEPTH}"
        )));
    }
    let (mut applied, mut results, mut failed) = (0, ArrayBuf::new(), false);
    for entry in entries.values().filter_map(|v| v.as_doc()) {
        if entry.get_str("op") == Some("n") {
            continue;
        }
        cx.op.check()?;
        applied += 1;
        let done = apply(cx, entry);
        // An entry that finds no document to update fails alone; other errors end the command.
        results.push(matches!(done, Ok(true)));
        match done {
            Ok(found) => failed |= !found,
            Err(e) => return Err(e.with_extra(doc! { "applied": applied, "results": results })),
        }
    }
    if failed {
        return Err(Error::new(
            Code::UnknownError,
            "applyOps had one or more errors applying ops",
        )
        .with_extra(doc! { "applied": applied, "results": results }));
    }
    cx.reply.field("applied", applied);
    cx.reply.field("results", results);
    Ok(())
}

/// Refuses options of earlier versions of MongoDB, and fields that only an oplog's own entries have.
fn refuse_options(cx: &CommandContext<'_>) -> Result<()> {
    if cx.args.get("preCondition").is_some() {
        return Err(Error::location(
            6_711_600,
            "applyOps no longer supports the 'preCondition' option",
        ));
    }
    if cx.args.bool("alwaysUpsert", false) {
        return Err(Error::location(
            6_711_601,
            "applyOps no longer supports the 'alwaysUpsert' option",
        ));
    }
    if cx.args.get("partialTxn").is_some() {
        return Err(Error::location(
            31_056,
            "applyOps with 'partialTxn' is only of oplogs",
        ));
    }
    if cx.args.get("prepare").is_some() {
        return Err(Error::bad_value(
            "applyOps with 'prepare' is only of oplogs",
        ));
    }
    Ok(())
}

/// Checks the form of one entry. All entries are checked before the first is applied.
fn check_entry(at: &str, entry: Value<'_>) -> Result<()> {
    let Value::Document(entry) = entry else {
        return Err(Error::type_mismatch(format!(
            "BSON field 'applyOps.{at}' is the wrong type '{}', expected type 'object'",
            entry.type_name()
        )));
    };
    let show = || Value::Document(entry).to_display();
    let illegal = |what: &str| {
        Err(Error::new(
            Code::IllegalOperation,
            format!("{what}: {}", show()),
        ))
    };
    let op = match entry.get("op") {
        None => {
            return Err(Error::new(
                Code::NoSuchKey,
                format!("Missing expected field \"op\" in {}", show()),
            ));
        }
        Some(Value::String(op)) => op,
        Some(v) => {
            return Err(Error::type_mismatch(format!(
                "Expected field \"op\" to have type string, but found {}",
                v.type_name()
            )));
        }
    };
    if op.is_empty() {
        return illegal("\"op\" field value cannot be empty");
    }
    match entry.get("ns") {
        None => illegal("op does not contain required \"ns\" field"),
        Some(Value::String("")) if op != "n" => {
            illegal("\"ns\" field value cannot be empty when op type is not 'n'")
        }
        Some(Value::String(ns)) if ns.contains('\0') => {
            illegal("namespaces cannot have embedded null characters")
        }
        Some(Value::String(_)) => Ok(()),
        Some(_) => illegal("\"ns\" field is not a string"),
    }
}

/// How deeply `applyOps` commands are nested in these entries.
fn depth(entries: Doc<'_>) -> usize {
    let below = |entry: Doc<'_>| Some(1 + depth(entry.get_doc("o")?.get_array("applyOps")?));
    let all = entries.values().filter_map(|v| v.as_doc());
    all.filter_map(below).max().unwrap_or(0)
}

/// Applies one entry. Returns false if there is no document to update.
fn apply(cx: &mut CommandContext<'_>, entry: Doc<'_>) -> Result<bool> {
    let op = entry.get_str("op").unwrap_or_default();
    if !matches!(op, "i" | "u" | "d" | "c") {
        return Err(Error::bad_value(format!(
            "Enumeration value '{op}' for field 'OplogEntryBase.op' is not a valid value."
        )));
    }
    let o = match entry.get("o") {
        None | Some(Value::Null | Value::Undefined) => {
            return Err(missing_field("OplogEntryBase", "o"));
        }
        Some(v) => {
            check_type("OplogEntryBase", "o", Types::OBJECT, v.ty())?;
            v.as_doc().unwrap_or(Doc::EMPTY)
        }
    };
    let uuid = uuid_of(entry)?;
    let ns = entry.get_str("ns").unwrap_or_default();
    if op == "c" {
        return command(cx, ns, o, uuid).map(|()| true);
    }
    let (db, _) = namespace::split(ns)?;
    if cx.engine().source(ns)?.buckets().is_some() {
        return apply_to_bucket(cx, ns, op, o).map(|()| true);
    }
    loop {
        let found = match uuid {
            Some(uuid) => cx.engine().store.collection_by_uuid_in(db, uuid),
            None => cx.engine().store.collection(ns),
        };
        let Some(collection) = found else {
            return Err(Error::new(
                Code::NamespaceNotFound,
                format!(
                    "Failed to apply operation due to missing collection {ns}: {}",
                    Value::Document(entry).to_display()
                ),
            ));
        };
        // The UUID may be that of a collection for which nobody was asked.
        if auth::user_of(cx.server, cx.local).is_some() && collection.namespace() != ns {
            return Err(auth::refused(cx.spec, cx.request));
        }
        cx.op.bind(uuid);
        let done = apply_to(cx, &collection.namespace(), entry, o);
        cx.op.bind(None);
        match done {
            // The collection was renamed meanwhile; the next turn finds it by its UUID.
            Err(e) if e.code() == Code::QueryPlanKilled && uuid.is_some() => cx.op.check()?,
            done => return done,
        }
    }
}

/// Applies an entry of MongoDB's oplog about a bucket. It is no error if the bucket is stored already: a dump
/// that was made while the bucket was written holds it among its documents and as an entry.
///
/// # Errors
/// 115 CommandNotSupported for an entry that changes a bucket. A bucket is taken apart into
/// measurements when it arrives, so the document that the entry would change does not exist here.
fn apply_to_bucket(cx: &mut CommandContext<'_>, ns: &str, op: &str, o: Doc<'_>) -> Result<()> {
    if op != "i" {
        return Err(Error::new(
            Code::CommandNotSupported,
            format!(
                "Cannot apply an operation '{op}' to a bucket of {ns}: the measurements are stored, and \
                 not their buckets. Dump a time series whose buckets change without its oplog"
            ),
        ));
    }
    let engine = cx.engine();
    let one = || Box::new(std::iter::once(o)) as Box<dyn Iterator<Item = Doc<'_>>>;
    let mut out = engine.insert_many(cx.op, ns, &one, InsertOptions::default())?;
    cx.note_commit(out.commit);
    match out.errors.pop().map(|e| e.error) {
        Some(e) if !is_of_id(&e) => Err(e),
        _ => Ok(()),
    }
}

/// Applies an entry to the collection of this name.
fn apply_to(cx: &mut CommandContext<'_>, ns: &str, entry: Doc<'_>, o: Doc<'_>) -> Result<bool> {
    let (db, name) = namespace::split(ns)?;
    namespace::check_write(db, name)?;
    let outcome = match entry.get_str("op") {
        Some("i") => insert(cx, ns, o)?,
        Some("d") => delete(cx, ns, o)?,
        _ => {
            let outcome = update(cx, ns, entry, o)?;
            let found = outcome.matched > 0 || outcome.upserted.is_some();
            cx.note_commit(outcome.commit);
            return Ok(found || is_replayed(entry));
        }
    };
    cx.note_commit(outcome.commit);
    Ok(true)
}

/// True for an entry that has a time (`ts`). Such entries come from an oplog, and mongorestore replays them
/// over documents that may be newer, because writes continued during the dump: a document that an entry
/// updates may already be gone, deleted by an entry that comes later.
fn is_replayed(entry: Doc<'_>) -> bool {
    entry.get("ts").is_some()
}

/// The UUID of the collection that the entry is about (`ui`).
fn uuid_of(entry: Doc<'_>) -> Result<Option<[u8; 16]>> {
    match entry.get("ui") {
        None | Some(Value::Null | Value::Undefined) => Ok(None),
        Some(v) => uuid("OplogEntryBase", "ui", v).map(Some),
    }
}

/// The filter `{_id}` for a document.
fn id_of(d: Doc<'_>, what: &str) -> Result<DocBuf> {
    match d.get("_id") {
        Some(id) => Ok(doc! { "_id": id }),
        None => Err(Error::new(
            Code::NoSuchKey,
            format!(
                "Failed to apply {what} due to missing _id: {}",
                Value::Document(d).to_display()
            ),
        )),
    }
}

/// Inserts the document, or replaces the one that has its `_id`: an entry may be applied twice.
fn insert(cx: &CommandContext<'_>, ns: &str, o: Doc<'_>) -> Result<StatementOutcome> {
    let id = id_of(o, "insert")?;
    let bypass_document_validation = cx.args.bool("bypassDocumentValidation", false);
    let options = InsertOptions {
        bypass_document_validation,
        bypass_empty_ts_replacement: true,
        ..InsertOptions::default()
    };
    let engine = cx.engine();
    let mut out = engine.insert_many(cx.op, ns, &|| Box::new(std::iter::once(o)), options)?;
    match out.errors.pop().map(|e| e.error) {
        None => Ok(StatementOutcome {
            matched: out.n,
            commit: out.commit,
            ..StatementOutcome::default()
        }),
        Some(e) if is_of_id(&e) => {
            let statement = UpdateStatement {
                upsert: true,
                bypass_document_validation,
                bypass_empty_ts_replacement: true,
                ..UpdateStatement::new(id.as_doc(), Value::Document(o))
            };
            engine.update(cx.op, ns, &statement)
        }
        Some(e) => Err(e),
    }
}

/// True for a duplicate key (11000) in the index on `_id`.
fn is_of_id(e: &Error) -> bool {
    let pattern = e.extra().as_doc().get_doc("keyPattern");
    e.code() == Code::DuplicateKey
        && pattern.is_some_and(|p| p.count() == 1 && p.get("_id").is_some())
}

fn delete(cx: &CommandContext<'_>, ns: &str, o: Doc<'_>) -> Result<StatementOutcome> {
    let id = id_of(o, "delete")?;
    let statement = DeleteStatement {
        filter: id.as_doc(),
        multi: false,
        hint: None,
        let_: Doc::EMPTY,
        collation: None,
    };
    cx.engine().delete(cx.op, ns, &statement)
}

/// Applies an update, whose `o` is either a whole document with its `_id` or a difference to the stored one.
fn update(
    cx: &CommandContext<'_>,
    ns: &str,
    entry: Doc<'_>,
    o: Doc<'_>,
) -> Result<StatementOutcome> {
    let Some(o2) = entry.get_doc("o2") else {
        return Err(missing_field("OplogEntryBase", "o2"));
    };
    let filter = id_of(o2, "update")?;
    let diff = match o.get("$v").and_then(number::to_i64_exact) {
        _ if o.get("_id").is_some() => None,
        Some(2) => Some(o.get_doc("diff").ok_or_else(|| {
            Error::location(
                4_772_601,
                format!(
                    "Expected 'diff' to be an object in {}",
                    Value::Document(o).to_display()
                ),
            )
        })?),
        _ => {
            return Err(Error::location(
                4_772_600,
                format!(
                    "Expected _id field or $v:2, but got: {}",
                    Value::Document(o).to_display()
                ),
            ));
        }
    };
    let statement = UpdateStatement {
        is_diff: diff.is_some(),
        is_entry: true,
        // A difference alone cannot make a document, so it is no upsert unless the entry asks for one.
        upsert: entry.get("b").is_some_and(|v| v.truthy())
            || (diff.is_none() && is_replayed(entry)),
        bypass_document_validation: cx.args.bool("bypassDocumentValidation", false),
        bypass_empty_ts_replacement: true,
        ..UpdateStatement::new(filter.as_doc(), Value::Document(diff.unwrap_or(o)))
    };
    cx.engine().update(cx.op, ns, &statement)
}

/// Applies an entry that is a command (`op: "c"`) on the database of its namespace.
fn command(
    cx: &mut CommandContext<'_>,
    ns: &str,
    o: Doc<'_>,
    uuid: Option<[u8; 16]>,
) -> Result<()> {
    let Some(db) = ns.strip_suffix(".$cmd") else {
        return Err(Error::new(
            Code::InvalidNamespace,
            format!("invalid ns: {ns}"),
        ));
    };
    namespace::check_db(db)?;
    let name = o.first().map_or("", |e| e.name());
    match name {
        "create" => {
            let uuid = uuid.filter(|_| o.get("viewOn").is_none());
            let Some(uuid) = uuid else {
                return run_within(cx, db, o, None);
            };
            let aside = match make_room(cx, db, o, uuid)? {
                Room::Taken => return Ok(()),
                Room::Free => None,
                Room::Made { ns, aside } => Some((ns, aside)),
            };
            let made = run_within(cx, db, o, Some(uuid));
            if let (Err(_), Some((ns, aside))) = (&made, aside) {
                // Gives the other collection its name back; the reply is the error of `create`.
                let _ = rename(cx, &aside, &ns);
            }
            made
        }
        "drop" | "dropDatabase" | "collMod" | "dropIndexes" | "deleteIndexes"
        | "convertToCapped" => run_within(cx, db, o, None),
        "applyOps" => run_within(cx, db, without_parts(o).as_doc(), None),
        "dropIndex" | "deleteIndex" => run_within(cx, db, renamed(o, "dropIndexes").as_doc(), None),
        "renameCollection" => run_within(cx, "admin", o, None),
        "createIndexes" if o.get("indexes").is_none() => {
            run_within(cx, db, with_one_index(o).as_doc(), None)
        }
        "createIndexes" => run_within(cx, db, o, None),
        "startIndexBuild" | "commitIndexBuild" | "abortIndexBuild" => Err(Error::new(
            Code::CommandNotSupported,
            format!("The {name} operation is not supported in applyOps mode"),
        )),
        other => Err(unknown(other, o)),
    }
}

/// The error for an entry with a command that is not applied. It shows no password.
fn unknown(name: &str, o: Doc<'_>) -> Error {
    let shown = match auth::is_secret(Value::Document(o)) {
        true => "{ ... }".to_string(),
        false => Value::Document(o).to_display(),
    };
    Error::bad_value(format!(
        "Unknown oplog entry command type: {name} Object field: {shown}"
    ))
}

/// A transaction's `applyOps` without the fields that say which part of the transaction it is: each part is
/// applied by itself.
fn without_parts(o: Doc<'_>) -> DocBuf {
    let mut d = DocBuf::new();
    for e in o
        .iter()
        .filter(|e| !matches!(e.name(), "partialTxn" | "count"))
    {
        d.append_elem(e);
    }
    d
}

/// The same command under another name.
fn renamed(o: Doc<'_>, name: &str) -> DocBuf {
    let mut d = DocBuf::new();
    for (i, e) in o.iter().enumerate() {
        match i {
            0 => d.append(name, e.value()),
            _ => d.append_elem(e),
        };
    }
    d
}

/// Turns an oplog's `createIndexes`, which has the fields of its one index in the command itself, into the
/// command that clients send, which has a list of indexes.
fn with_one_index(o: Doc<'_>) -> DocBuf {
    let mut spec = DocBuf::new();
    for e in o.iter().skip(1) {
        spec.append_elem(e);
    }
    let collection = o
        .first()
        .map_or(ValueBuf::new(""), |e| ValueBuf::new(e.value()));
    let mut indexes = ArrayBuf::new();
    indexes.push(spec);
    doc! { "createIndexes": collection, "indexes": indexes }
}

/// The outcome of [`make_room`].
enum Room {
    /// The collection with this UUID exists and has the name.
    Taken,
    /// No collection has the name.
    Free,
    /// Another collection had the name `ns`; it is now called `aside`.
    Made { ns: String, aside: String },
}

/// Makes the name free before a collection with a given UUID is created. If the collection already exists
/// under another name, it is renamed. A collection with another UUID that has the name gets a temporary one.
///
/// # Errors
/// 40655 for a UUID of another database; what renaming raises.
fn make_room(cx: &mut CommandContext<'_>, db: &str, o: Doc<'_>, uuid: [u8; 16]) -> Result<Room> {
    let name = match o.first().map(|e| e.value()) {
        Some(Value::String(name)) => name,
        // The command `create` reports what is wrong.
        _ => return Ok(Room::Free),
    };
    namespace::check_create(db, name)?;
    // A bucket collection is created by creating its time series.
    let name = name.strip_prefix(BUCKETS).unwrap_or(name);
    let ns = format!("{db}.{name}");
    let store = &cx.engine().store;
    let same = store.collection_by_uuid(uuid);
    if same.as_ref().is_some_and(|c| c.namespace() == ns) {
        return Ok(Room::Taken);
    }
    if let Some(c) = &same
        && !c.namespace().starts_with(&format!("{db}."))
    {
        return Err(Error::location(
            40655,
            format!(
                "Invalid name {ns} for a UUID that the collection {} has",
                c.namespace()
            ),
        ));
    }
    let mut aside = None;
    if store.collection(&ns).is_some() {
        let hex: String = super::random_uuid()
            .iter()
            .take(4)
            .map(|b| format!("{b:02x}"))
            .collect();
        let to = aside.insert(format!("{db}.tmp{hex}.create"));
        rename(cx, &ns, to)?;
    }
    match (same, aside) {
        (Some(c), _) => rename(cx, &c.namespace(), &ns).map(|()| Room::Taken),
        (None, Some(aside)) => Ok(Room::Made { ns, aside }),
        (None, None) => Ok(Room::Free),
    }
}

fn rename(cx: &mut CommandContext<'_>, from: &str, to: &str) -> Result<()> {
    let rename = doc! { "renameCollection": from, "to": to };
    run_within(cx, "admin", rename.as_doc(), None)
}
