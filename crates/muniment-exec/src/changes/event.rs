//! Makes change events from the log's operations.
//!
//! The forms follow the MongoDB manual, "Change Events", and the order of fields of MongoDB 8.0.

use super::moved::steps;
use super::scope::{Scope, VIEWS};
use super::token::{Place, Token};
use crate::operation::session_doc;
use crate::oplog::render::{id_doc, id_text, stamp};
use crate::view::is_of_series;
use bytes::Bytes;
use muniment_query::diff;
use muniment_storage::{LogEntry, Named, Operation, What, Whole};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, array, doc};

/// Whether an earlier or later version of the document is part of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Image {
    #[default]
    Off,
    WhenAvailable,
    Required,
}

/// The document that an update's event has as `fullDocument`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// No document, or the one as it is right after the update.
    After(Image),
    /// The document as it is when the event is read.
    Lookup,
}

/// The options of a stream that decide how events are shown.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub full: Full,
    pub before: Image,
    /// `showExpandedEvents`.
    pub expanded: bool,
    /// The shard's number in the tokens of events: see [`Place::shard`].
    pub shard: u64,
    /// Only events of entries that are not older than this show documents as they were before the
    /// change; in milliseconds since 1970.
    pub images_since_ms: i64,
}

/// Looks up a document as it is now, by its collection and its `_id`.
pub(crate) type Lookup<'l> = dyn Fn(&Named, Value<'_>) -> Result<Looked> + 'l;

/// A document as it is now.
pub(crate) enum Looked {
    /// The document, or `None` if there is none.
    Here(Option<Bytes>),
    /// The collection is divided or gone from here, so another shard may have the document. The router
    /// that merges the stream looks for it: the event has the collection's UUID in its place.
    Elsewhere,
}

/// An event.
pub(crate) struct Event {
    pub place: Place,
    pub doc: DocBuf,
    /// True if the stream ends after this event.
    pub ends: bool,
}

/// The kind of event that an operation is, and what it concerns.
struct Kind<'o> {
    name: &'static str,
    namespace: &'o str,
    /// The command, if the operation changes the catalog.
    o: Doc<'o>,
    o2: Doc<'o>,
    uuid: Option<[u8; 16]>,
}

/// The event that an operation is for a stream that watches `scope`; `None` if it is no event for
/// that stream.
fn kind<'o>(op: &'o Operation, scope: &Scope, expanded: bool) -> Option<Kind<'o>> {
    if let Some(named) = &op.of {
        if let Some(db) = named.namespace.strip_suffix(VIEWS) {
            return view_kind(op, db, scope).filter(|_| expanded);
        }
        if named.time_series || !scope.has(&named.namespace) {
            return None;
        }
        let name = match op.what {
            What::Insert { .. } => "insert",
            What::Update { .. } => "update",
            What::Replace { .. } => "replace",
            What::Delete { .. } => "delete",
            What::Note { .. } => return None,
        };
        return Some(Kind {
            name,
            namespace: &named.namespace,
            o: Doc::EMPTY,
            o2: Doc::EMPTY,
            uuid: Some(named.uuid),
        });
    }
    let What::Note { doc } = &op.what else {
        return None;
    };
    let note = Doc::new(doc);
    let (ns, o) = (note.get_str("ns")?, note.get_doc("o")?);
    let db = ns.strip_suffix(".$cmd")?;
    let command = o.first()?;
    if note.get("unseen").is_some() {
        return None;
    }
    let uuid = match note.get("ui") {
        Some(Value::Binary { bytes, .. }) => <[u8; 16]>::try_from(bytes).ok(),
        _ => None,
    };
    let (name, is_expanded) = event_of(command.name())?;
    if is_expanded && !expanded {
        return None;
    }
    let watched = |namespace: &str| scope.has(namespace);
    // A rename names whole namespaces. Any other command names a collection of the note's database,
    // so this is the note's namespace (`db.$cmd`), of which `note` makes the event's.
    let namespace = match (name, command.value()) {
        ("dropDatabase", _) => scope.has_database(db).then_some(db)?,
        ("rename", Value::String(from)) => {
            let to = o.get_str("to").unwrap_or_default();
            (watched(from) || watched(to)).then_some(from)?
        }
        (_, Value::String(collection)) => watched(&format!("{db}.{collection}")).then_some(ns)?,
        _ => return None,
    };
    Some(Kind {
        name,
        namespace,
        o,
        o2: note.get_doc("o2").unwrap_or(Doc::EMPTY),
        uuid,
    })
}

/// The event of a command that changes the catalog, and whether it is one of `showExpandedEvents`.
fn event_of(command: &str) -> Option<(&'static str, bool)> {
    Some(match command {
        "drop" => ("drop", false),
        "renameCollection" => ("rename", false),
        "dropDatabase" => ("dropDatabase", false),
        "create" => ("create", true),
        "createIndexes" => ("createIndexes", true),
        "dropIndexes" => ("dropIndexes", true),
        "collMod" => ("modify", true),
        "shardCollection" => ("shardCollection", true),
        "refineCollectionShardKey" => ("refineCollectionShardKey", true),
        "reshardCollection" => ("reshardCollection", true),
        _ => return None,
    })
}

/// The event of a change of a view or a time-series collection, whose definition is a document. A
/// stream that watches a single collection gets no events about views.
fn view_kind<'o>(op: &'o Operation, db: &str, scope: &Scope) -> Option<Kind<'o>> {
    if matches!(scope, Scope::Collection { .. }) {
        return None;
    }
    let (name, o) = match &op.what {
        What::Insert { doc } => ("create", Doc::new(doc)),
        What::Replace { doc } => ("modify", Doc::new(doc)),
        What::Delete { .. } => ("drop", Doc::EMPTY),
        _ => return None,
    };
    let namespace = match &op.what {
        What::Delete { id } => id_text(id)?,
        _ => o.get_str("_id")?,
    };
    let own = namespace.split_once('.').is_some_and(|(of, _)| of == db);
    (own && scope.has(namespace)).then_some(Kind {
        name,
        namespace,
        o,
        o2: Doc::EMPTY,
        uuid: None,
    })
}

/// The parts of a namespace as `{db, coll}`.
fn ns_doc(namespace: &str) -> [(&str, Value<'_>); 2] {
    let dot = namespace.bytes().position(|b| b == b'.');
    let db = namespace.get(..dot.unwrap_or(namespace.len()));
    let coll = dot.and_then(|dot| namespace.get(dot + 1..));
    [
        ("db", Value::String(db.unwrap_or_default())),
        ("coll", Value::String(coll.unwrap_or_default())),
    ]
}

/// Appends `documentKey`: the `_id` of the document, in a sharded collection after the shard key.
fn append_key(event: &mut DocBuf, op: &Operation, doc: Doc<'_>) {
    match (&op.key, doc.get("_id")) {
        (Some(key), _) => event.append("documentKey", Doc::new(key)),
        (None, Some(id)) => event.append("documentKey", [("_id", id)]),
        (None, None) => event.append("documentKey", Doc::EMPTY),
    };
}

/// Applies a difference to the document before it, and returns the result.
fn after(before: &[u8], difference: &[u8]) -> Result<Bytes> {
    let mut new = Vec::with_capacity(before.len() + difference.len());
    diff::apply(Doc::new(before), Doc::new(difference), &mut new)?;
    Ok(Bytes::from(new))
}

fn missing(what: &str, of: &str, event: &DocBuf) -> Error {
    Error::new(
        Code::NoMatchingDocument,
        format!(
            "Change stream was configured to require a {what} for all {of} events, but the {what} \
             was not found for event: {}",
            event.as_doc().to_display()
        ),
    )
}

/// True if the entry has an event at this place that a stream that watches `scope` would give.
pub(crate) fn has(entry: &LogEntry, scope: &Scope, expanded: bool, place: Place) -> bool {
    let first = entry.before();
    let n = (place.index as usize).checked_sub(first);
    let ops = steps(entry);
    let op = n.and_then(|n| ops.get(n));
    entry.at == place.at && op.is_some_and(|op| kind(op, scope, expanded).is_some())
}

/// The criteria by which the operations of an entry are searched for events.
pub(crate) struct Look<'l> {
    pub scope: &'l Scope,
    pub shown: &'l Shown,
    /// Events up to here are left out.
    pub behind: Place,
    /// Returns true for the kinds of events that are wanted.
    pub wanted: &'l dyn Fn(&str) -> bool,
    pub lookup: &'l Lookup<'l>,
}

/// The next event of an entry, from its operation `from` on. Afterwards, `from` is the operation to
/// continue with.
///
/// # Errors
/// 47 NoMatchingDocument if a required document does not exist; the errors of looking documents up.
pub(crate) fn next_event(
    entry: &LogEntry,
    from: &mut usize,
    look: &Look<'_>,
) -> Result<Option<Event>> {
    let (scope, shown) = (look.scope, look.shown);
    let first = entry.before();
    let ops = steps(entry);
    while let Some(op) = ops.get(*from) {
        let place = Place {
            at: entry.at,
            is_event: true,
            shard: shown.shard,
            index: u32::try_from(first + *from).unwrap_or(u32::MAX),
            invalidates: false,
        };
        let Some(kind) = kind(op, scope, shown.expanded) else {
            *from += 1;
            continue;
        };
        let ends = match scope {
            Scope::Collection { .. } => matches!(kind.name, "drop" | "rename" | "dropDatabase"),
            Scope::Database(_) => kind.name == "dropDatabase",
            Scope::Cluster => false,
        };
        if place > look.behind && (look.wanted)(kind.name) {
            // If an invalidation follows, `from` stays: the next call finds that this event was
            // given and makes the invalidation.
            *from += usize::from(!ends);
            let doc = render(entry, op, &kind, place, shown, look.lookup)?;
            return Ok(Some(Event {
                place,
                doc,
                ends: false,
            }));
        }
        let place = Place {
            invalidates: true,
            ..place
        };
        if ends && place > look.behind {
            *from = ops.len();
            let mut doc = DocBuf::new();
            head(&mut doc, entry, "invalidate", place, kind.uuid);
            doc.append("wallTime", Value::DateTime(entry.wall_ms));
            return Ok(Some(Event {
                place,
                doc,
                ends: true,
            }));
        }
        *from += 1;
    }
    Ok(None)
}

fn head(event: &mut DocBuf, entry: &LogEntry, name: &str, place: Place, uuid: Option<[u8; 16]>) {
    let token = Token {
        place,
        uuid,
        fragment: None,
    };
    event
        .append("_id", token)
        .append("operationType", name)
        .append("clusterTime", stamp(entry.at));
}

/// The bytes of a typical event beside its documents.
const FRAME: usize = 400;

/// The approximate bytes of an event.
fn size(op: &Operation) -> usize {
    let what = match &op.what {
        What::Insert { doc } | What::Replace { doc } => doc.len(),
        What::Update { id, diff } => id.len() + 2 * diff.len(),
        What::Delete { id } => id.len(),
        What::Note { .. } => 0,
    };
    FRAME + what
}

fn render(
    entry: &LogEntry,
    op: &Operation,
    kind: &Kind<'_>,
    place: Place,
    shown: &Shown,
    lookup: &Lookup<'_>,
) -> Result<DocBuf> {
    let mut event = DocBuf::with_capacity(size(op));
    head(&mut event, entry, kind.name, place, kind.uuid);
    if let Some(uuid) = kind.uuid.as_ref().filter(|_| shown.expanded) {
        event.append(
            "collectionUUID",
            Value::Binary {
                subtype: 4,
                bytes: uuid,
            },
        );
    }
    event.append("wallTime", Value::DateTime(entry.wall_ms));
    if let (Whole::Transaction(_), Some((key, number))) = (entry.whole, &entry.session) {
        event.append("txnNumber", *number);
        event.append("lsid", session_doc(key));
    }
    let before = op
        .before
        .as_ref()
        .filter(|_| entry.wall_ms >= shown.images_since_ms);
    let show_before = |event: &mut DocBuf| -> Result<()> {
        if shown.before == Image::Off {
            return Ok(());
        }
        match before {
            Some(b) => event.append("fullDocumentBeforeChange", Doc::new(b)),
            None if shown.before == Image::Required => {
                return Err(missing("pre-image", "update, delete and replace", event));
            }
            None => event.append("fullDocumentBeforeChange", Value::Null),
        };
        Ok(())
    };
    if op.of.is_some() && kind.uuid.is_none() {
        view(&mut event, kind);
        return Ok(event);
    }
    match &op.what {
        What::Insert { doc } => {
            event.append("fullDocument", Doc::new(doc));
            event.append("ns", ns_doc(kind.namespace));
            append_key(&mut event, op, Doc::new(doc));
        }
        What::Replace { doc } => {
            event.append("fullDocument", Doc::new(doc));
            show_before(&mut event)?;
            event.append("ns", ns_doc(kind.namespace));
            append_key(&mut event, op, Doc::new(doc));
        }
        What::Delete { id } => {
            show_before(&mut event)?;
            event.append("ns", ns_doc(kind.namespace));
            append_key(&mut event, op, id_doc(id).as_doc());
        }
        What::Update { id, diff: d } => {
            let key = id_doc(id);
            let full = full_of((op, before), d, shown, lookup, &event)?;
            append_full(&mut event, full, kind.uuid.unwrap_or_default());
            show_before(&mut event)?;
            event.append("ns", ns_doc(kind.namespace));
            append_key(&mut event, op, key.as_doc());
            let description = diff::describe(Doc::new(d))?;
            event.append("updateDescription", description.to_doc(shown.expanded));
        }
        What::Note { .. } => note(&mut event, kind, shown.expanded),
    }
    Ok(event)
}

/// The document that an update's event has as `fullDocument`, if it has any. `before` is the document
/// before the update, if it is known.
fn full_of(
    (op, before): (&Operation, Option<&Bytes>),
    difference: &[u8],
    shown: &Shown,
    lookup: &Lookup<'_>,
    event: &DocBuf,
) -> Result<Option<Looked>> {
    Ok(match (shown.full, before) {
        (Full::After(Image::Off), _) => None,
        (Full::After(_), Some(b)) => Some(Looked::Here(Some(after(b, difference)?))),
        (Full::After(Image::Required), None) => {
            return Err(missing("post-image", "update", event));
        }
        (Full::After(_), None) => Some(Looked::Here(None)),
        (Full::Lookup, _) => {
            let What::Update { id, .. } = &op.what else {
                return Ok(None);
            };
            let key = id_doc(id);
            let id = key.as_doc().get("_id");
            let found = op.of.as_ref().zip(id).map(|(of, id)| lookup(of, id));
            Some(found.unwrap_or(Ok(Looked::Here(None)))?)
        }
    })
}

fn append_full(event: &mut DocBuf, full: Option<Looked>, uuid: [u8; 16]) {
    let (subtype, bytes) = (4, &uuid);
    match full {
        None => return,
        Some(Looked::Here(Some(doc))) => event.append("fullDocument", Doc::new(&doc)),
        Some(Looked::Here(None)) => event.append("fullDocument", Value::Null),
        Some(Looked::Elsewhere) => event.append("fullDocument", Value::Binary { subtype, bytes }),
    };
}

/// Appends the fields of a change of a view.
fn view(event: &mut DocBuf, kind: &Kind<'_>) {
    event.append("ns", ns_doc(kind.namespace));
    if kind.name == "drop" {
        return;
    }
    if kind.name == "create" {
        let series = is_of_series(kind.o);
        event.append("nsType", if series { "timeseries" } else { "view" });
    }
    let mut definition = DocBuf::new();
    for e in kind.o.iter().filter(|e| e.name() != "_id") {
        definition.append_elem(e);
    }
    event.append("operationDescription", definition);
}

/// Appends the fields of a change of the catalog.
fn note(event: &mut DocBuf, kind: &Kind<'_>, expanded: bool) {
    let o = kind.o;
    // All fields of the command except its name.
    let rest = || {
        let mut d = DocBuf::new();
        for e in o.iter().skip(1) {
            d.append_elem(e);
        }
        d
    };
    let name = o.first().and_then(|e| e.value().as_str());
    let namespace = || {
        let db = kind.namespace.strip_suffix(".$cmd").unwrap_or_default();
        doc! { "db": db, "coll": name.unwrap_or_default() }
    };
    match kind.name {
        "dropDatabase" => {
            event.append("ns", doc! { "db": kind.namespace });
        }
        "rename" => {
            let to = ns_doc(o.get_str("to").unwrap_or_default());
            event.append("ns", ns_doc(kind.namespace));
            event.append("to", to);
            if expanded {
                let mut d = doc! { "to": to };
                d.append_some("dropTarget", o.get("dropTarget"));
                event.append("operationDescription", d);
            }
        }
        "drop" => {
            event.append("ns", namespace());
        }
        "create" => {
            event.append("ns", namespace());
            event.append("nsType", "collection");
            event.append("operationDescription", rest());
        }
        "shardCollection" | "refineCollectionShardKey" | "reshardCollection" => {
            event.append("ns", namespace());
            event.append("operationDescription", rest());
        }
        "createIndexes" => {
            event.append("ns", namespace());
            let indexes = array![rest()];
            event.append("operationDescription", doc! { "indexes": indexes });
        }
        "dropIndexes" => {
            event.append("ns", namespace());
            let indexes = array![kind.o2];
            event.append("operationDescription", doc! { "indexes": indexes });
        }
        _ => {
            event.append("ns", namespace());
            event.append("operationDescription", rest());
            let mut before = DocBuf::new();
            for (from, to) in [
                ("collectionOptions_old", "collectionOptions"),
                ("indexOptions_old", "indexOptions"),
            ] {
                before.append_some(to, kind.o2.get(from));
            }
            event.append("stateBeforeChange", before);
        }
    }
}
