//! Shows entries of the log in the form of MongoDB's collections: pure functions of an entry.
//!
//! The forms follow entries of MongoDB 8.0's `local.oplog.rs`, the MongoDB manual, "Replica Set
//! Oplog", and what mongodump, mongorestore and tools that follow the oplog read.

use crate::operation::session_doc;
use bytes::Bytes;
use muniment_storage::{
    Image, LogEntry, Named, Operation, Part, SessionKey, SessionRecord, SessionState, StatementRun,
    Timestamp, What, Whole,
};
use muniment_value::{ArrayBuf, Doc, DocBuf, Type, Value, doc};

/// The term of entries from before there was a set. Every entry shows at least this one.
const TERM: i64 = 1;
/// The `multiOpType` of an applyOps of a session that is no transaction.
const APPLIED_SEPARATELY: i32 = 1;
/// The version of the oplog's format.
const VERSION: i64 = 2;

/// A timestamp as a BSON value.
pub(crate) fn stamp(at: Timestamp) -> Value<'static> {
    Value::Timestamp {
        t: at.seconds(),
        i: at.increment(),
    }
}

fn uuid(bytes: &[u8; 16]) -> Value<'_> {
    Value::Binary { subtype: 4, bytes }
}

/// The term in the form that is shown: see [`TERM`].
fn shown(term: u64) -> i64 {
    TERM.max(i64::try_from(term).unwrap_or(i64::MAX))
}

fn op_time(at: Timestamp, term: i64) -> DocBuf {
    doc! { "ts": stamp(at), "t": term }
}

/// `{_id}`, from the type byte and the bytes of an `_id`. Empty for a document without one.
pub fn id_doc(id: &[u8]) -> DocBuf {
    let Some((ty, value)) = id.split_first() else {
        return DocBuf::new();
    };
    let mut bytes = vec![0; 4];
    bytes.push(*ty);
    bytes.extend_from_slice(b"_id\0");
    bytes.extend_from_slice(value);
    bytes.push(0);
    let len = (bytes.len() as u32).to_le_bytes();
    bytes.splice(..4, len);
    DocBuf::from_bytes_trusted(bytes)
}

/// The string in an `_id` that is given as in [`id_doc`].
pub(crate) fn id_text(id: &[u8]) -> Option<&str> {
    let (ty, value) = id.split_first()?;
    // The bytes are a length, the text, and a NUL.
    let text = value.get(4..value.len().checked_sub(1)?)?;
    let text = std::str::from_utf8(text).ok();
    text.filter(|_| *ty == Type::String as u8)
}

/// `{_id}` of a document.
pub(crate) fn id_of(doc: Doc<'_>) -> DocBuf {
    let mut d = DocBuf::new();
    if let Some(id) = doc.get_elem("_id") {
        d.append_elem(id);
    }
    d
}

/// True for collections that each server has for itself; MongoDB has them in no oplog.
fn is_own(db: &str, collection: &str) -> bool {
    db == "local" || collection == "system.profile"
}

/// True for operations that MongoDB's oplog does not show.
fn is_hidden(op: &Operation) -> bool {
    match (&op.of, &op.what) {
        (Some(named), _) => {
            let (db, collection) = named.namespace.split_once('.').unwrap_or_default();
            is_own(db, collection)
        }
        (None, What::Note { doc }) => {
            let doc = Doc::new(doc);
            let (db, _) = doc
                .get_str("ns")
                .unwrap_or_default()
                .split_once('.')
                .unwrap_or_default();
            let of = doc.get_doc("o").filter(|_| doc.get_str("op") == Some("c"));
            let of = of.and_then(|o| o.first());
            is_own(db, of.and_then(|e| e.value().as_str()).unwrap_or_default())
        }
        (None, _) => true,
    }
}

/// Appends `op`, `ns`, `ui`, `o` and `o2`, and the fields of a retryable write.
fn append_operation(d: &mut DocBuf, op: &Operation) {
    let mut put = |kind: &str, named: &Named| {
        d.append("op", kind);
        d.append("ns", named.namespace.as_str());
        d.append("ui", uuid(&named.uuid));
    };
    match (&op.what, op.of.as_deref()) {
        (What::Note { doc }, _) => {
            // `unseen` marks what change streams do not show, and is not part of the oplog.
            for e in Doc::new(doc).iter().filter(|e| e.name() != "unseen") {
                d.append_elem(e);
            }
        }
        (What::Insert { doc }, Some(named)) => {
            put("i", named);
            let doc = Doc::new(doc);
            d.append("o", doc);
            d.append("o2", id_of(doc));
        }
        (What::Update { id, diff }, Some(named)) => {
            put("u", named);
            d.append("o", doc! { "$v": 2, "diff": Doc::new(diff) });
            d.append("o2", id_doc(id));
        }
        (What::Replace { doc }, Some(named)) => {
            put("u", named);
            let doc = Doc::new(doc);
            d.append("o", doc);
            d.append("o2", id_of(doc));
        }
        (What::Delete { id }, Some(named)) => {
            put("d", named);
            d.append("o", id_doc(id));
        }
        (_, None) => {}
    }
    d.append_some("needsRetryImage", op.returned.map(image_kind));
    d.append_some("stmtId", op.statement);
}

/// MongoDB's name for the document that a retryable findAndModify returned.
fn image_kind(image: Image) -> &'static str {
    match image {
        Image::Before => "preImage",
        Image::After => "postImage",
    }
}

/// Appends all operations of a transaction or a batch, or a part of them, as one entry.
fn append_together(d: &mut DocBuf, ops: &[&Operation], part: Option<(Part, bool)>) {
    d.append("op", "c");
    d.append("ns", "admin.$cmd");
    let all: ArrayBuf = ops
        .iter()
        .map(|op| {
            let mut d = DocBuf::new();
            append_operation(&mut d, op);
            d
        })
        .collect();
    let mut o = doc! { "applyOps": all };
    match part {
        Some((part, _)) if part.more => {
            o.append("partialTxn", true);
        }
        Some((part, true)) => {
            o.append("count", part.all as i64);
        }
        _ => {}
    }
    d.append("o", o);
}

/// An entry as `local.oplog.rs` shows it. `None` for entries that MongoDB's does not have: those of
/// collections in `local` and of the profiler's.
pub(crate) fn entry(entry: &LogEntry) -> Option<DocBuf> {
    let ops: Vec<&Operation> = entry.ops.iter().filter(|op| !is_hidden(op)).collect();
    if ops.is_empty() && !entry.ops.is_empty() {
        return None;
    }
    let mut d = DocBuf::new();
    if let Some((key, number)) = &entry.session {
        d.append("lsid", session_doc(key));
        d.append("txnNumber", *number);
    }
    match (entry.whole, ops.first()) {
        (Whole::Transaction(part), Some(_)) => {
            append_together(&mut d, &ops, Some((part, entry.previous.is_some())));
        }
        (Whole::Batch, Some(_)) => append_together(&mut d, &ops, None),
        (Whole::Single, Some(op)) => append_operation(&mut d, op),
        (Whole::Moved, Some(op)) => {
            append_operation(&mut d, op);
            d.append("fromMigrate", true);
        }
        (_, None) => {
            d.append("op", "n");
            d.append("ns", "");
            d.append("o", doc! { "msg": "periodic noop" });
        }
    }
    d.append("ts", stamp(entry.at));
    let term = shown(entry.term);
    d.append("t", term);
    d.append("v", VERSION);
    d.append("wall", Value::DateTime(entry.wall_ms));
    let in_transaction = matches!(entry.whole, Whole::Transaction(_));
    if entry.session.is_some() || in_transaction {
        let previous = match entry.previous {
            Some(at) => op_time(at, term),
            None => op_time(Timestamp::ZERO, -1),
        };
        d.append("prevOpTime", previous);
    }
    if entry.session.is_some() && entry.whole == Whole::Batch {
        d.append("multiOpType", APPLIED_SEPARATELY);
    }
    Some(d)
}

/// The documents as they were before the operations of an entry, as `config.system.preimages` shows
/// them.
pub(crate) fn images(entry: &LogEntry) -> Vec<DocBuf> {
    let all = entry.ops.iter().zip(entry.before()..);
    all.filter_map(|(op, n)| {
        let (image, named) = op.before.as_ref().zip(op.of.as_ref())?;
        let id = doc! {
            "nsUUID": uuid(&named.uuid),
            "ts": stamp(entry.at),
            "applyOpsIndex": n as i64,
        };
        Some(doc! {
            "_id": id,
            "operationTime": Value::DateTime(entry.wall_ms),
            "preImage": Doc::new(image),
        })
    })
    .collect()
}

/// The last action of a session, as `config.transactions` shows it. `at` and `term` are the time
/// and the term of its write.
pub(crate) fn transaction(
    key: &SessionKey,
    record: &SessionRecord,
    at: Timestamp,
    term: u64,
) -> Bytes {
    let mut d = doc! {
        "_id": session_doc(key),
        "txnNum": record.number,
        "lastWriteOpTime": op_time(at, shown(term)),
        "lastWriteDate": Value::DateTime(record.at_ms),
    };
    if record.state == SessionState::Committed {
        d.append("state", "committed");
    }
    Bytes::from(d.into_bytes())
}

/// The document that a session's newest findAndModify returned, as `config.image_collection` shows
/// it.
pub(crate) fn image(
    key: &SessionKey,
    number: i64,
    newest: &StatementRun,
    at: Timestamp,
) -> Option<Bytes> {
    let returned = newest.returned()?;
    let kind = match returned.after {
        true => Image::After,
        false => Image::Before,
    };
    let d = doc! {
        "_id": session_doc(key),
        "txnNum": number,
        "ts": stamp(at),
        "imageKind": image_kind(kind),
        "image": returned.doc,
        "invalidated": false,
    };
    Some(Bytes::from(d.into_bytes()))
}
