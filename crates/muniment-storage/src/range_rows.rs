//! The rows of a range of shard keys, for moves between shards.
//!
//! They are read by an index that begins with the shard key, if there is one that has each document exactly once under
//! the bytes of its shard key. Otherwise all documents are looked through.

use crate::collection::Collection;
use crate::index::Index;
use crate::keys::{Bound, KeyRange};
use crate::placement::Owned;
use crate::view::{Direction, DocCursor, IndexCursor, Snapshot};
use bytes::Bytes;
use muniment_op::Interrupt;
use muniment_shard::ShardKey;
use muniment_value::{Doc, Result};
use std::sync::Arc;

/// A row of a range.
#[derive(Clone, Debug)]
pub struct RangeRow {
    /// Its place: reading goes on after it.
    pub place: Vec<u8>,
    /// The record's key.
    pub record_key: Bytes,
    /// The document.
    pub doc: Bytes,
}

enum By {
    Index(Box<IndexCursor>, bool),
    Docs(Box<DocCursor>),
}

/// Reads the rows of a range: see [`Snapshot::rows_of_range`].
pub struct RangeRows<'s> {
    snapshot: &'s Snapshot,
    collection: &'s Collection,
    key: &'s ShardKey,
    range: &'s Owned,
    by: By,
    buf: Vec<u8>,
}

impl Snapshot {
    /// The rows of a range of shard keys, after a place if one is given. Their order is that of the keys if an index
    /// has them so.
    pub fn rows_of_range<'s>(
        &'s self,
        collection: &'s Collection,
        key: &'s ShardKey,
        range: &'s Owned,
        after: Option<&[u8]>,
    ) -> RangeRows<'s> {
        let low = |else_: Bound| after.map_or(else_, |after| Bound::Excluded(after.to_vec()));
        let by = match index_of(collection, key) {
            Some(index) => {
                let high = range.1.clone().map_or(Bound::Unbounded, Bound::Excluded);
                let range = KeyRange {
                    low: low(Bound::Included(range.0.clone())),
                    high,
                };
                let entries = self.entries(collection, &index, &range, Direction::Forward);
                By::Index(Box::new(entries), index.unique())
            }
            None => {
                let range = KeyRange {
                    low: low(Bound::Unbounded),
                    high: Bound::Unbounded,
                };
                By::Docs(Box::new(self.docs(collection, &range, Direction::Forward)))
            }
        };
        RangeRows {
            snapshot: self,
            collection,
            key,
            range,
            by,
            buf: Vec::new(),
        }
    }
}

impl RangeRows<'_> {
    /// The next row.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected; what stops `operation`.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self, operation: &dyn Interrupt) -> Result<Option<RangeRow>> {
        loop {
            let row = match &mut self.by {
                By::Index(entries, unique) => {
                    let Some(entry) = entries.next(operation)? else {
                        return Ok(None);
                    };
                    let Some(doc) = self.snapshot.get(self.collection, &entry.record_key)? else {
                        continue;
                    };
                    let place = match unique {
                        true => entry.key.to_vec(),
                        false => [&entry.key[..], &entry.record_key[..]].concat(),
                    };
                    RangeRow {
                        place,
                        record_key: entry.record_key,
                        doc,
                    }
                }
                By::Docs(docs) => {
                    let Some((record_key, doc)) = docs.next(operation)? else {
                        return Ok(None);
                    };
                    operation.check()?;
                    RangeRow {
                        place: record_key.to_vec(),
                        record_key,
                        doc,
                    }
                }
            };
            if is_in(self.key, self.range, &row.doc, &mut self.buf) {
                return Ok(Some(row));
            }
        }
    }
}

/// Whether a document lies in a range of shard keys; `buf` is a buffer. One that cannot have a key does not.
pub fn is_in(key: &ShardKey, range: &Owned, doc: &[u8], buf: &mut Vec<u8>) -> bool {
    buf.clear();
    key.write_key(Doc::new(doc), buf).is_ok()
        && *buf >= range.0
        && range.1.as_ref().is_none_or(|end| *buf < *end)
}

/// An index that has each document under the bytes of its shard key.
fn index_of(collection: &Collection, key: &ShardKey) -> Option<Arc<Index>> {
    let fits = |index: &&Arc<Index>| {
        let spec = index.spec();
        let mut fields = spec.key.as_doc().iter();
        let begins = key.fields().iter().all(|f| {
            fields.next().is_some_and(|e| {
                e.is_named(f.path.as_str())
                    && match f.hashed {
                        true => e.value().as_str() == Some("hashed"),
                        false => muniment_value::number::to_f64(e.value()).is_some_and(|n| n > 0.0),
                    }
            })
        });
        let hashed = spec
            .key
            .as_doc()
            .iter()
            .any(|e| e.value().as_str() == Some("hashed"));
        begins
            && collection.has_entries(index)
            && index.collation().spec().is_none()
            && !spec.sparse
            && index.partial_filter().is_none()
            && (hashed || index.kind().is_none())
    };
    let ready = collection.indexes();
    ready.iter().find(fits).map(Arc::clone)
}
