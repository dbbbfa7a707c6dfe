//! What the log tells, as MongoDB's collections of it have it: pure functions of an entry.
//!
//! Source: entries of MongoDB 8.0's `local.oplog.rs`, the MongoDB manual, "Replica Set Oplog", and
//! what mongodump, mongorestore and tools that follow the oplog read of it.

use bytes::Bytes;
use muniment_storage::{
    LogEntry, Named, Operation, Part, SessionKey, SessionRecord, SessionState, Timestamp, What,
};
use muniment_value::{ArrayBuf, Doc, DocBuf, Type, Value, doc};

/// The term of all entries: a server that is its set's only member never has to tell the entries of
/// one primary from those of another.
const TERM: i64 = 1;
/// The version of the oplog's format.
const VERSION: i64 = 2;

/// A timestamp as BSON has it.
pub(crate) fn stamp(at: Timestamp) -> Value<'static> {
    Value::Timestamp {
        t: at.seconds(),
        i: at.increment(),
    }
}

fn uuid(bytes: &[u8; 16]) -> Value<'_> {
    Value::Binary { subtype: 4, bytes }
}

fn op_time(at: Timestamp, term: i64) -> DocBuf {
    doc! { "ts": stamp(at), "t": term }
}

/// A session as events and the oplog show it.
pub(crate) fn lsid(key: &SessionKey) -> DocBuf {
    let uid = Value::Binary {
        subtype: 0,
        bytes: &key.user,
    };
    doc! { "id": uuid(&key.id), "uid": uid }
}

/// `{_id}` of the type and the bytes of one; empty for a document without.
pub(crate) fn id_doc(id: &[u8]) -> DocBuf {
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

/// The text that an `_id` is, as [`id_doc`] has it.
pub(crate) fn id_text(id: &[u8]) -> Option<&str> {
    let (ty, value) = id.split_first()?;
    // A length, the text, and a NUL.
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

/// MongoDB has these in no oplog: each server has its own.
fn is_own(db: &str, collection: &str) -> bool {
    db == "local" || collection == "system.profile"
}

/// True for what MongoDB's oplog does not tell of.
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

/// Appends `op`, `ns`, `ui`, `o` and `o2`.
fn append_operation(d: &mut DocBuf, op: &Operation) {
    let mut put = |kind: &str, named: &Named| {
        d.append("op", kind);
        d.append("ns", named.namespace.as_str());
        d.append("ui", uuid(&named.uuid));
    };
    match (&op.what, op.of.as_deref()) {
        (What::Note { doc }, _) => {
            // What streams do not tell of is marked for them alone.
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
}

/// The operations of a transaction, or a part of them, as one.
fn append_transaction(d: &mut DocBuf, part: Part, ops: &[&Operation]) {
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
    match (part.more, part.previous) {
        (true, _) => {
            o.append("partialTxn", true);
        }
        (false, Some(_)) => {
            o.append("count", part.all as i64);
        }
        (false, None) => {}
    }
    d.append("o", o);
}

/// An entry as `local.oplog.rs` has it. `None` for what MongoDB's has not: the collections of
/// `local` and the profiler's.
pub(crate) fn entry(entry: &LogEntry) -> Option<DocBuf> {
    let ops: Vec<&Operation> = entry.ops.iter().filter(|op| !is_hidden(op)).collect();
    if ops.is_empty() && !entry.ops.is_empty() {
        return None;
    }
    let mut d = DocBuf::new();
    if let Some((key, number)) = &entry.session {
        d.append("lsid", lsid(key));
        d.append("txnNumber", *number);
    }
    match (entry.transaction, ops.first()) {
        (Some(part), Some(_)) => append_transaction(&mut d, part, &ops),
        (None, Some(op)) => {
            append_operation(&mut d, op);
            d.append_some("stmtId", op.statement);
        }
        (_, None) => {
            d.append("op", "n");
            d.append("ns", "");
            d.append("o", doc! { "msg": "periodic noop" });
        }
    }
    d.append("ts", stamp(entry.at));
    d.append("t", TERM);
    d.append("v", VERSION);
    d.append("wall", Value::DateTime(entry.wall_ms));
    if let Some(part) = entry.transaction {
        let previous = match part.previous {
            Some(at) => op_time(at, TERM),
            None => op_time(Timestamp::ZERO, -1),
        };
        d.append("prevOpTime", previous);
    }
    Some(d)
}

/// The documents before the operations of an entry, as `config.system.preimages` has them.
pub(crate) fn images(entry: &LogEntry) -> Vec<DocBuf> {
    let before = entry.transaction.map_or(0, |part| part.before);
    let all = entry.ops.iter().zip(before..);
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

/// What a session has done last, as `config.transactions` has it.
pub(crate) fn transaction(key: &SessionKey, record: &SessionRecord) -> Bytes {
    let mut d = doc! {
        "_id": lsid(key),
        "txnNumber": record.number,
        "lastWriteDate": Value::DateTime(record.at_ms),
    };
    if record.state == SessionState::Committed {
        d.append("state", "committed");
    }
    Bytes::from(d.into_bytes())
}
