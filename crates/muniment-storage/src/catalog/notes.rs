//! Notes in the log that describe changes of the catalog to readers of the oplog. They are made
//! from the entries before and after a change.
//!
//! Source: the entries of MongoDB 8.0's oplog for create, createIndexes, dropIndexes, collMod,
//! renameCollection and drop, as mongodump, mongorestore and change streams read them.

use super::{Entry, IndexEntry};
use crate::collection::Collection;
use crate::commit::door::Opening;
use crate::commit::stage::Stage;
use muniment_value::{Doc, DocBuf, Elem, Value, doc};
use std::collections::BTreeMap;
use std::sync::Arc;

/// This field marks a note that change streams pass over. Such a note is about a collection that a
/// transaction has made and has not committed yet, or gives up; about a time-series collection,
/// which change streams learn of from its row among the views; or about a part of a collection whose
/// database is on another shard ([`CollectionOptions::guest`](crate::CollectionOptions)).
const UNSEEN: &str = "unseen";

/// The namespace of the database's commands, and the collection's own name.
fn split(namespace: &str) -> (String, &str) {
    let (db, name) = namespace.split_once('.').unwrap_or((namespace, ""));
    (format!("{db}.$cmd"), name)
}

fn command(namespace: &str, uuid: &[u8; 16], o: DocBuf, o2: Option<DocBuf>) -> DocBuf {
    let (ns, _) = split(namespace);
    let ui = Value::Binary {
        subtype: 4,
        bytes: uuid,
    };
    let mut d = doc! { "op": "c", "ns": ns, "ui": ui, "o": o };
    d.append_some("o2", o2);
    d
}

/// The note on a collection that is dropped.
pub(in crate::catalog) fn drop_note(gone: &Collection) -> DocBuf {
    let namespace = gone.namespace();
    let (_, name) = split(&namespace);
    let o2 = doc! { "numRecords": gone.count() as i64 };
    let mut note = command(&namespace, &gone.uuid(), doc! { "drop": name }, Some(o2));
    if gone.is_time_series() || gone.is_pending() || gone.options().guest {
        note.append(UNSEEN, true);
    }
    note
}

/// The notes that a transaction's commit adds for the collections that bear a transaction's mark.
/// Before the commit no other operation could see them, so change streams and other readers of the
/// log have not been told of them. `None` if no collection bears the mark.
pub(crate) fn made_notes<'c>(all: impl Iterator<Item = &'c Arc<Collection>>) -> Option<Stage> {
    let marked = all.filter(|c| c.is_pending()).map(|c| (c.id, c));
    let marked: BTreeMap<u32, &Arc<Collection>> = marked.collect();
    let mut stage = Stage::new(Opening::NONE);
    for collection in marked.values() {
        let all = Entry {
            pending: false,
            ..Entry::of(collection, &collection.all_indexes())
        };
        let mut bare = all.clone();
        bare.indexes.retain(|i| i.spec.name == "_id_");
        let mut notes = entry_notes(None, &bare, None);
        notes.extend(entry_notes(Some(&bare), &all, None));
        for note in notes {
            stage.log.note(note.as_doc());
        }
    }
    (!marked.is_empty()).then_some(stage)
}

/// The notes on what a collection's new entry changes; `gone` is the collection whose name it
/// takes.
pub(in crate::catalog) fn entry_notes(
    before: Option<&Entry>,
    after: &Entry,
    gone: Option<&Collection>,
) -> Vec<DocBuf> {
    let mut notes = Vec::new();
    let is_series = after.options.document.as_doc().get("timeseries").is_some();
    let unseen = is_series || after.pending || after.options.guest;
    let mut note = |o: DocBuf, o2: Option<DocBuf>| {
        let mut note = command(&after.namespace, &after.uuid, o, o2);
        note.append_some(UNSEEN, unseen.then_some(true));
        notes.push(note);
    };
    let (_, name) = split(&after.namespace);
    let Some(before) = before else {
        let mut o = doc! { "create": name };
        o.append_all(after.options.document.as_doc());
        // A clustered collection has no separate `_id_` index. In MongoDB the buckets of a time
        // series, which this entry stands for, are clustered too.
        let clustered = ["clusteredIndex", "timeseries"]
            .iter()
            .any(|n| o.as_doc().get(n).is_some());
        let id = after.indexes.iter().find(|i| i.spec.name == "_id_");
        if let Some(id) = id.filter(|_| !clustered) {
            o.append("idIndex", &id.spec.document);
        }
        note(o, None);
        return notes;
    };
    if before.namespace != after.namespace {
        let mut o = doc! {
            "renameCollection": before.namespace.as_str(),
            "to": after.namespace.as_str(),
            "stayTemp": after.options.document.as_doc().get("temp").is_some(),
        };
        let mut o2 = None;
        if let Some(gone) = gone {
            let uuid = gone.uuid();
            o.append(
                "dropTarget",
                Value::Binary {
                    subtype: 4,
                    bytes: &uuid,
                },
            );
            o2 = Some(doc! { "numRecords": gone.count() as i64 });
        }
        // MongoDB has the entry in the command namespace of the old name's database.
        let mut all = command(&before.namespace, &after.uuid, o, o2);
        // `$out` renames a time series like this. A guest takes the place of a collection with the same documents.
        all.append_some(UNSEEN, (is_series || after.options.guest).then_some(true));
        return vec![all];
    }
    for index in before.indexes.iter().filter(|i| i.ready) {
        match after.indexes.iter().find(|i| i.id == index.id) {
            None => {
                let o = doc! { "dropIndexes": name, "index": index.spec.name.as_str() };
                note(o, Some(index.spec.document.clone()));
            }
            Some(now) if now.spec != index.spec => {
                let (new, old) = changed_index(index, now);
                let mut o = doc! { "collMod": name };
                o.append("index", &new);
                let o2 = doc! {
                    "collectionOptions_old": &before.options.document,
                    "indexOptions_old": old,
                };
                note(o, Some(o2));
            }
            Some(_) => {}
        }
    }
    let was_ready = |id: u32| before.indexes.iter().any(|i| i.id == id && i.ready);
    for index in &after.indexes {
        if index.ready && !was_ready(index.id) {
            let mut o = doc! { "createIndexes": name };
            o.append_all(index.spec.document.as_doc());
            note(o, None);
        }
    }
    let (old, new) = (&before.options.document, &after.options.document);
    if old != new {
        let mut o = doc! { "collMod": name };
        o.append_all(changed_options(old.as_doc(), new.as_doc()).as_doc());
        note(o, Some(doc! { "collectionOptions_old": old }));
    }
    notes
}

/// The fields of an index that collMod has changed: their new values, then their old ones.
fn changed_index(before: &IndexEntry, after: &IndexEntry) -> (DocBuf, DocBuf) {
    let (old, new) = (before.spec.document.as_doc(), after.spec.document.as_doc());
    let mut now = doc! { "name": after.spec.name.as_str() };
    let mut then = DocBuf::new();
    for field in ["expireAfterSeconds", "hidden", "prepareUnique", "unique"] {
        let (a, b) = (old.get_elem(field), new.get_elem(field));
        if same(a, b) {
            continue;
        }
        match b {
            Some(e) => now.append_elem(e),
            None => now.append(field, false),
        };
        match a {
            Some(e) => then.append_elem(e),
            None if field == "expireAfterSeconds" => continue,
            None => then.append(field, false),
        };
    }
    (now, then)
}

/// True if both are the same field with the same value, or both are absent.
fn same(a: Option<Elem<'_>>, b: Option<Elem<'_>>) -> bool {
    a.map(|e| e.as_bytes()) == b.map(|e| e.as_bytes())
}

/// The options that differ, as a collMod command would set them.
fn changed_options(old: Doc<'_>, new: Doc<'_>) -> DocBuf {
    let mut d = DocBuf::new();
    for e in new {
        if !same(old.get_elem(e.name()), Some(e)) {
            d.append_elem(e);
        }
    }
    for e in old.iter().filter(|e| new.get(e.name()).is_none()) {
        match e.name() {
            "changeStreamPreAndPostImages" => d.append(e.name(), doc! { "enabled": false }),
            "expireAfterSeconds" => d.append(e.name(), "off"),
            "validator" => d.append(e.name(), DocBuf::new()),
            _ => continue,
        };
    }
    d
}
