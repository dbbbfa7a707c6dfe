//! How streams show a collection that is renamed to another database.
//!
//! Here that is one operation. The oplog shows it as one, which `applyOps` can carry out. MongoDB
//! instead fills a temporary collection in the other database, renames that, and drops the source,
//! so its clients know only renames within a database. Streams therefore show the last two of these
//! steps, in MongoDB's order.

use bytes::Bytes;
use muniment_storage::{LogEntry, Operation, Timestamp, What, Whole};
use muniment_value::{Doc, doc};
use std::borrow::Cow;

/// The operations of an entry as streams show them. A move between shards changes no document: what was written on one
/// shard is written on another one, or deleted where it was.
pub(super) fn steps(entry: &LogEntry) -> Cow<'_, [Operation]> {
    if entry.whole == Whole::Moved {
        return Cow::Borrowed(&[]);
    }
    let told = match &entry.ops[..] {
        [op] if op.of.is_none() => moved(op, entry.at),
        _ => None,
    };
    told.map_or(Cow::Borrowed(&entry.ops), Cow::Owned)
}

/// The two steps of a rename to another database; `None` for any other operation.
fn moved(op: &Operation, at: Timestamp) -> Option<Vec<Operation>> {
    let What::Note { doc: note } = &op.what else {
        return None;
    };
    let note = Doc::new(note);
    let o = note.get_doc("o")?;
    let (from, to) = (o.get_str("renameCollection")?, o.get_str("to")?);
    let ((from_db, source), (to_db, _)) = (from.split_once('.')?, to.split_once('.')?);
    if from_db == to_db || note.get("unseen").is_some() {
        return None;
    }
    // The name is made from the entry's time, so that every stream shows the same one whenever it
    // is read.
    let number = at.seconds().wrapping_mul(0x9E37_79B1) ^ at.increment();
    let temporary = format!("{to_db}.tmp{:05x}.rename", number & 0xF_FFFF);
    let mut rename = doc! { "renameCollection": temporary.as_str(), "to": to };
    for e in o.iter().skip(2) {
        rename.append_elem(e);
    }
    let step = |db: &str, o: &muniment_value::DocBuf| {
        let mut d = doc! { "op": "c", "ns": format!("{db}.$cmd") };
        d.append_some("ui", note.get("ui"));
        d.append("o", o);
        d.append_some("o2", note.get("o2"));
        Operation {
            what: What::Note {
                doc: Bytes::from(d.into_bytes()),
            },
            ..op.clone()
        }
    };
    Some(vec![
        step(to_db, &rename),
        step(from_db, &doc! { "drop": source }),
    ])
}
