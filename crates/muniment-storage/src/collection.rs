//! A collection and its indexes as every operation sees them.

use crate::catalog::{CollectionOptions, IndexSpec};
use muniment_query::Filter;
use muniment_value::path::Path;
use muniment_value::{Doc, Result, Value};
use std::sync::Arc;

/// One collection. Handles are shared; a dropped collection's handle stays valid for reading the
/// snapshots that were open, and refuses writes.
pub struct Collection {
    _private: (),
}

/// One index of a collection.
pub struct Index {
    _private: (),
}

impl Collection {
    /// The full name, `db.collection`.
    pub fn namespace(&self) -> String {
        todo!()
    }

    /// The collection's UUID, as `listCollections` shows it.
    pub fn uuid(&self) -> [u8; 16] {
        todo!()
    }

    /// The options.
    pub fn options(&self) -> Arc<CollectionOptions> {
        todo!()
    }

    /// All indexes that are ready, `_id_` first (capped collections too).
    pub fn indexes(&self) -> Arc<Vec<Arc<Index>>> {
        todo!()
    }

    /// How many documents there are: exact, without a scan, also after a crash.
    pub fn count(&self) -> u64 {
        todo!()
    }

    /// The documents' uncompressed size in bytes: exact, as [`Collection::count`].
    pub fn data_bytes(&self) -> u64 {
        todo!()
    }

    /// True once the collection was dropped.
    pub fn is_dropped(&self) -> bool {
        todo!()
    }

    /// A number that changes whenever the indexes or options change: plans made for another
    /// generation are stale.
    pub fn generation(&self) -> u64 {
        todo!()
    }

    /// Waits until the number of inserts ever made is above `seen` or the timeout passes;
    /// returns the number: what awaitData cursors wait on.
    pub fn wait_insert(&self, seen: u64, timeout: std::time::Duration) -> u64 {
        let _ = (seen, timeout);
        todo!()
    }

    /// The record key of a document with this `_id`: the encoding of `_id`, which also clusters
    /// the documents. Capped collections are keyed by insertion order and look it up in `_id_`.
    pub fn record_key_of_id(id: Value<'_>) -> Vec<u8> {
        let _ = id;
        todo!()
    }

    /// True for a capped collection.
    pub fn is_capped(&self) -> bool {
        todo!()
    }
}

impl Index {
    /// The specification.
    pub fn spec(&self) -> Arc<IndexSpec> {
        todo!()
    }

    /// The fields in order, with true for descending.
    pub fn fields(&self) -> &[(Path, bool)] {
        todo!()
    }

    /// The partial filter, parsed.
    pub fn partial_filter(&self) -> Option<&Filter> {
        todo!()
    }

    /// True for the `_id_` index. On a collection that is not capped it has no entries of its
    /// own: the documents are clustered by `_id`.
    pub fn is_id(&self) -> bool {
        todo!()
    }

    /// Per field, which path components went through an array in some document (bit i = part
    /// i): empty for an index that is not multikey.
    pub fn multikey_paths(&self) -> Vec<u64> {
        todo!()
    }

    /// True when some document has more than one key in this index.
    pub fn is_multikey(&self) -> bool {
        todo!()
    }

    /// How often the planner used it, and since when (ms since 1970): `$indexStats`.
    pub fn usage(&self) -> (u64, i64) {
        todo!()
    }

    /// Counts one use.
    pub fn note_use(&self) {
        todo!()
    }

    /// The encoded keys that `doc` has in this index (none if sparse or partial leave it out).
    ///
    /// # Errors
    /// 171 CannotIndexParallelArrays.
    pub fn keys_of(&self, doc: Doc<'_>, keys: &mut Vec<Vec<u8>>) -> Result<()> {
        let _ = (doc, keys);
        todo!()
    }
}
