//! The documents that are lost when the end of the log is given up: those that its entries inserted
//! or changed, as they are now.

use super::render::{id_doc, id_of};
use bytes::Bytes;
use muniment_op::NeverInterrupted;
use muniment_storage::{Collection, Store, Timestamp, What};
use muniment_value::{Code, Doc, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Documents by the UUIDs of their collections.
pub type Undone = BTreeMap<[u8; 16], Vec<Bytes>>;

/// Implements [`crate::Database::undone_by_giving_up`].
pub(crate) fn undone_by_giving_up(store: &Store, after: Timestamp) -> Result<Undone> {
    let mut changed: BTreeMap<[u8; 16], BTreeSet<Vec<u8>>> = BTreeMap::new();
    let mut names = BTreeMap::new();
    let mut entries = store.log_entries(after)?;
    while let Some(entry) = entries.next()? {
        for op in &entry.ops {
            let key = match &op.what {
                What::Insert { doc } | What::Replace { doc } => id_of(Doc::new(doc)),
                What::Update { id, .. } => id_doc(id),
                What::Delete { .. } | What::Note { .. } => continue,
            };
            let Some(of) = &op.of else { continue };
            names.insert(of.uuid, of.namespace.clone());
            let keys = changed.entry(of.uuid).or_default();
            keys.insert(key.into_bytes());
        }
    }
    let mut undone = Undone::new();
    for (uuid, keys) in changed {
        let found = names.get(&uuid).and_then(|name| store.collection(name));
        let Some(collection) = found.filter(|c| c.uuid() == uuid) else {
            continue;
        };
        if collection.check_usable().is_err() {
            let kept = kept_of_closed(store, &collection, &keys)?;
            if !kept.is_empty() {
                undone.insert(uuid, kept);
            }
            continue;
        }
        let glance = store.glance()?;
        for key in keys {
            let Some(id) = Doc::new(&key).get("_id") else {
                continue;
            };
            if let Some((_, doc)) = glance.find_by_id(&collection, id)? {
                undone.entry(uuid).or_default().push(doc);
            }
        }
    }
    Ok(undone)
}

/// The documents of a closed collection that can be read. An error here would keep all other
/// collections waiting.
fn kept_of_closed(store: &Store, c: &Collection, keys: &BTreeSet<Vec<u8>>) -> Result<Vec<Bytes>> {
    let mut docs = store.snapshot().docs_of_closed(c);
    let mut kept = Vec::new();
    loop {
        match docs.next(&NeverInterrupted) {
            Ok(Some((_, doc))) if keys.contains(id_of(Doc::new(&doc)).as_bytes()) => {
                kept.push(doc);
            }
            Ok(Some(_)) => {}
            Ok(None) => return Ok(kept),
            Err(e) if e.code() == Code::DataCorruptionDetected => return Ok(kept),
            Err(e) => return Err(e),
        }
    }
}
