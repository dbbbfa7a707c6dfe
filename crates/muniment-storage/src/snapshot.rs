//! Consistent reads.

use crate::collection::{Collection, Index};
use bytes::Bytes;
use muniment_value::Result;

/// Which way a cursor goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// One end of a range of encoded keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// No bound.
    Unbounded,
    /// The key itself and everything that begins with it is inside.
    Included(Vec<u8>),
    /// The key and everything that begins with it is outside.
    Excluded(Vec<u8>),
}

/// A range of encoded field keys (index) or record keys (documents), always `low` ≤ `high` in
/// byte order, whatever the direction of the cursor. A bound is a *prefix*: a compound index may
/// be bounded by its first fields only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The lower end.
    pub low: Bound,
    /// The upper end.
    pub high: Bound,
}

impl KeyRange {
    /// Everything.
    pub fn all() -> KeyRange {
        KeyRange {
            low: Bound::Unbounded,
            high: Bound::Unbounded,
        }
    }

    /// Exactly the keys that begin with `prefix`.
    pub fn prefix(prefix: Vec<u8>) -> KeyRange {
        KeyRange {
            low: Bound::Included(prefix.clone()),
            high: Bound::Included(prefix),
        }
    }
}

/// All of the store as of one moment. Cheap to make and to clone; holding one keeps old versions
/// from being reclaimed, so no cursor may hold one while it idles for long.
#[derive(Clone)]
pub struct Snapshot {
    _private: (),
}

/// One entry of an index.
#[derive(Clone, Debug)]
pub struct IndexEntry {
    /// The encoded fields, without index id and record key.
    pub key: Bytes,
    /// The key of the document.
    pub record_key: Bytes,
    /// What the encoding dropped: for [`muniment_value::keyenc::decode`].
    pub type_bits: Bytes,
}

/// A cursor over documents in record-key order.
pub struct DocCursor {
    _private: (),
}

/// A cursor over index entries in key order.
pub struct IndexCursor {
    _private: (),
}

impl Snapshot {
    /// The document with this record key. The bytes are a slice of the block, not a copy.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected naming file and offset.
    pub fn get(&self, collection: &Collection, record_key: &[u8]) -> Result<Option<Bytes>> {
        let _ = (collection, record_key);
        todo!()
    }

    /// The documents in a range of record keys.
    pub fn docs(&self, collection: &Collection, range: &KeyRange, dir: Direction) -> DocCursor {
        let _ = (collection, range, dir);
        todo!()
    }

    /// The entries in a range of encoded fields. Not for `_id_` of a collection that is not
    /// capped: use [`Snapshot::docs`].
    pub fn entries(
        &self,
        collection: &Collection,
        index: &Index,
        range: &KeyRange,
        dir: Direction,
    ) -> IndexCursor {
        let _ = (collection, index, range, dir);
        todo!()
    }
}

impl DocCursor {
    /// The next (record key, document).
    ///
    /// # Errors
    /// 301 DataCorruptionDetected.
    #[allow(clippy::should_implement_trait)] // fallible: not an Iterator
    pub fn next(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        todo!()
    }
}

impl IndexCursor {
    /// The next entry.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected.
    #[allow(clippy::should_implement_trait)] // fallible: not an Iterator
    pub fn next(&mut self) -> Result<Option<IndexEntry>> {
        todo!()
    }

    /// Jumps to the first entry (in the cursor's direction) whose key is at or past `key`: what a
    /// scan with several intervals uses. Cheaper than a new cursor when the target is near.
    pub fn seek(&mut self, key: &[u8]) {
        let _ = key;
        todo!()
    }
}
