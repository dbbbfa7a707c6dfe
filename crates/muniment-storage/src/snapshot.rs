//! Consistent reads.

use crate::collection::Collection;
use crate::engine::{EngineIter, EngineSnapshot, Space};
use crate::index::Index;
use crate::keys;
use bytes::Bytes;
use muniment_value::{Code, Error, Result};
use std::path::Path;
use std::sync::Arc;

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
    /// `None` once the store is closed.
    inner: Option<Arc<EngineSnapshot>>,
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
    iter: Option<EngineIter>,
    direction: Direction,
}

/// A cursor over index entries in key order.
pub struct IndexCursor {
    snapshot: Snapshot,
    iter: Option<EngineIter>,
    direction: Direction,
    /// The range of full keys, for a seek.
    low: Vec<u8>,
    high: Vec<u8>,
    index: u32,
    unique: bool,
    /// An entry that a seek has read already.
    peeked: Option<IndexEntry>,
}

/// How many entries a seek steps over before it makes a new cursor: stepping costs a fraction of
/// a microsecond, a new cursor several.
const SEEK_STEPS: usize = 8;

pub(crate) fn closed() -> Error {
    Error::new(
        Code::ShutdownInProgress,
        "the server is shutting down: the storage is closed",
    )
}

impl Snapshot {
    pub(crate) fn new(inner: Option<EngineSnapshot>) -> Snapshot {
        Snapshot {
            inner: inner.map(Arc::new),
        }
    }

    fn engine(&self) -> Result<&EngineSnapshot> {
        self.inner.as_deref().ok_or_else(closed)
    }

    /// The document with this record key. The bytes are a slice of the block, not a copy.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected naming file and offset.
    pub fn get(&self, collection: &Collection, record_key: &[u8]) -> Result<Option<Bytes>> {
        let mut small = [0u8; 64];
        match small.get_mut(..4 + record_key.len()) {
            Some(key) => {
                key[..4].copy_from_slice(&keys::prefix(collection.id));
                key[4..].copy_from_slice(record_key);
                self.engine()?.get(Space::Docs, key)
            }
            None => self
                .engine()?
                .get(Space::Docs, &keys::join(collection.id, record_key)),
        }
    }

    /// One raw key.
    pub(crate) fn raw_get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        self.engine()?.get(space, key)
    }

    /// The raw keys in `low..high`.
    pub(crate) fn raw_range(
        &self,
        space: Space,
        low: Vec<u8>,
        high: Vec<u8>,
    ) -> Option<EngineIter> {
        Some(self.inner.as_deref()?.range(space, low, high))
    }

    /// The documents in a range of record keys.
    pub fn docs(&self, collection: &Collection, range: &KeyRange, dir: Direction) -> DocCursor {
        let (low, high) = keys::bounds(collection.id, range);
        DocCursor {
            iter: self.raw_range(Space::Docs, low, high),
            direction: dir,
        }
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
        let _ = collection;
        let (low, high) = keys::bounds(index.id, range);
        IndexCursor {
            snapshot: self.clone(),
            iter: self.raw_range(Space::Index, low.clone(), high.clone()),
            direction: dir,
            low,
            high,
            index: index.id,
            unique: index.unique(),
            peeked: None,
        }
    }
}

impl DocCursor {
    /// The next (record key, document).
    ///
    /// # Errors
    /// 301 DataCorruptionDetected.
    #[allow(clippy::should_implement_trait)] // fallible: not an Iterator
    pub fn next(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        let Some(iter) = self.iter.as_mut() else {
            return Err(closed());
        };
        let pair = match self.direction {
            Direction::Forward => iter.next(),
            Direction::Backward => iter.next_back(),
        }?;
        Ok(pair.map(|(mut k, v)| {
            let id = 4.min(k.len());
            bytes::Buf::advance(&mut k, id);
            (k, v)
        }))
    }
}

impl IndexCursor {
    /// The next entry.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected.
    #[allow(clippy::should_implement_trait)] // fallible: not an Iterator
    pub fn next(&mut self) -> Result<Option<IndexEntry>> {
        if let Some(entry) = self.peeked.take() {
            return Ok(Some(entry));
        }
        let Some(iter) = self.iter.as_mut() else {
            return Err(closed());
        };
        let pair = match self.direction {
            Direction::Forward => iter.next(),
            Direction::Backward => iter.next_back(),
        }?;
        let Some((key, value)) = pair else {
            return Ok(None);
        };
        match split_entry(&key, &value, self.unique) {
            Some(entry) => Ok(Some(entry)),
            None => Err(crate::engine::corrupt(
                Path::new("index"),
                &format!("an entry of index {} is malformed: {key:02x?}", self.index),
            )),
        }
    }

    /// Jumps to the first entry (in the cursor's direction) whose key is at or past `key`: what a
    /// scan with several intervals uses. `key` is a prefix as in [`KeyRange`]: backward, entries
    /// that begin with it are at it. Never moves against the direction. Cheaper than a new cursor
    /// when the target is near. An error shows at the following [`IndexCursor::next`].
    pub fn seek(&mut self, key: &[u8]) {
        let reached = |entry: &IndexEntry, direction| match direction {
            Direction::Forward => *entry.key >= *key,
            Direction::Backward => *entry.key <= *key || entry.key.starts_with(key),
        };
        for _ in 0..SEEK_STEPS {
            match self.next() {
                Ok(Some(entry)) => {
                    if reached(&entry, self.direction) {
                        self.peeked = Some(entry);
                        return;
                    }
                }
                Ok(None) => return,
                Err(_) => {
                    // The same damage is met again by a fresh cursor, which reports it.
                    break;
                }
            }
        }
        match self.direction {
            Direction::Forward => self.low = self.low.clone().max(keys::join(self.index, key)),
            Direction::Backward => {
                self.high = self.high.clone().min(keys::end_of(self.index, key));
            }
        }
        self.iter = self
            .snapshot
            .raw_range(Space::Index, self.low.clone(), self.high.clone());
    }
}

/// Splits a stored entry; `None` if it is malformed.
pub(crate) fn split_entry(key: &Bytes, value: &Bytes, unique: bool) -> Option<IndexEntry> {
    let (len, at) = keys::get_varint(value)?;
    if unique {
        if key.len() < 4 || value.len() < at + len {
            return None;
        }
        Some(IndexEntry {
            key: key.slice(4..),
            record_key: value.slice(at..at + len),
            type_bits: value.slice(at + len..),
        })
    } else {
        if key.len() < 4 + len {
            return None;
        }
        Some(IndexEntry {
            key: key.slice(4..4 + len),
            record_key: key.slice(4 + len..),
            type_bits: value.slice(at..),
        })
    }
}
