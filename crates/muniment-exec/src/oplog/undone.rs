//! What giving up the end of the log takes away: the documents, as they stand, that its entries made
//! or changed.

use super::render::{id_doc, id_of};
use crate::database::Database;
use bytes::Bytes;
use muniment_storage::{Timestamp, What};
use muniment_value::{Doc, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Documents by the UUIDs of their collections.
pub type Undone = BTreeMap<[u8; 16], Vec<Bytes>>;

impl Database {
    /// The documents that entries later than `after` have made or changed, each once and as it stands
    /// now. What was deleted again is no document, and collections that are gone have none.
    ///
    /// # Errors
    /// 286 if the log no longer reaches back so far; 301; the disk's.
    pub fn undone_by_giving_up(&self, after: Timestamp) -> Result<Undone> {
        let mut changed: BTreeMap<[u8; 16], BTreeSet<Vec<u8>>> = BTreeMap::new();
        let mut names = BTreeMap::new();
        let mut entries = self.store.log_entries(after)?;
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
            let found = names
                .get(&uuid)
                .and_then(|name| self.store.collection(name));
            let Some(collection) = found.filter(|c| c.uuid() == uuid) else {
                continue;
            };
            let glance = self.store.glance()?;
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
}
