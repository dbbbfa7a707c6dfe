//! Consistent reads: a view of everything at one timestamp.

use crate::collection::{Collection, number_of};
use crate::index::Index;
use crate::keys::{self, KeyRange};
use crate::owned_rows::{OwnedRows, Rows};
use crate::placement::Owned;
use crate::transaction::{Merged, Overlay};
use crate::unit::record_of;
use crate::watch::closed;
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_op::Interrupt;
pub use muniment_tree::Direction;
use muniment_tree::{Cursor, Range, TreeId, Trees, View};
use muniment_value::{Code, Error, Result, Value};
use std::sync::Arc;

/// All of the store as of one timestamp. Cheap to make and to clone. While one is held the versions that
/// it sees are kept, in memory or on the disk.
#[derive(Clone)]
pub struct Snapshot {
    /// `None` after the store was closed.
    inner: Option<Arc<(View, Arc<dyn Trees>)>>,
    /// The time that is read at, for a read at a time: it may be later than the view, if nothing was committed
    /// in between.
    read_at: Option<Timestamp>,
    /// The writes of transactions over several logs that it sees, although their records are later.
    settled: Option<Arc<Overlay>>,
    /// The writes of a transaction itself, up to some statement.
    own: Option<(Arc<Overlay>, u32)>,
    /// Which rows of sharded collections it shows.
    rows: Rows,
    /// The ranges of one sharded collection that are asked for; all if `None`.
    within: Option<Arc<[Owned]>>,
}

/// A snapshot for the look-up of one document. It costs less than a [`Snapshot`].
pub struct Glance<'s> {
    pub(crate) view: muniment_tree::Glance<'s>,
    pub(crate) trees: &'s dyn Trees,
}

/// Reads at one timestamp, while a view of it is held elsewhere.
struct Seen<'s> {
    trees: &'s dyn Trees,
    at: Timestamp,
    settled: Option<&'s Arc<Overlay>>,
    own: Option<&'s (Arc<Overlay>, u32)>,
}

/// One entry of an index.
#[derive(Clone, Debug)]
pub struct IndexEntry {
    /// The encoded fields, without index id and record key.
    pub key: Bytes,
    /// The record key of the document.
    pub record_key: Bytes,
    /// The part of the values that the encoding dropped: for [`muniment_value::keyenc::decode`].
    pub type_bits: Bytes,
}

/// A cursor over documents in record-key order.
pub struct DocCursor {
    /// The view is kept beside the cursor, because the versions that it is about to read must stay. An
    /// error is returned again by each call.
    inner: Result<(Box<dyn Cursor>, Snapshot)>,
    /// Which rows are shown, if there are others.
    owned: Option<OwnedRows>,
}

/// A cursor over index entries in key order.
pub struct IndexCursor {
    /// An error is returned again by each call.
    inner: Result<(Box<dyn Cursor>, Snapshot)>,
    direction: Direction,
    index: u32,
    unique: bool,
    /// Set by a backward seek: the end of the keys that begin with the sought one. An entry with exactly
    /// this key is passed over, because it lies beyond the target.
    end: Option<Vec<u8>>,
    /// Which rows are shown, if there are others, and the collection.
    owned: Option<(OwnedRows, u32)>,
}

impl Glance<'_> {
    /// The timestamp up to which it sees everything.
    pub fn timestamp(&self) -> Timestamp {
        self.view.timestamp()
    }

    /// As [`Snapshot::find_by_id`].
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn find_by_id(
        &self,
        collection: &Collection,
        id: Value<'_>,
    ) -> Result<Option<(Bytes, Bytes)>> {
        let seen = Seen {
            trees: self.trees,
            at: self.timestamp(),
            settled: None,
            own: None,
        };
        let found = seen.find_by_id_key(collection, &collection.id_key(id))?;
        let placement = match collection.may_have_foreign_rows() {
            true => collection.placement(),
            false => None,
        };
        let owned = placement.and_then(|p| OwnedRows::of(p, Rows::Owned, self.timestamp(), None));
        match owned {
            Some(mut owned) => Ok(found.filter(|(_, doc)| owned.shows(doc))),
            None => Ok(found),
        }
    }
}

impl Seen<'_> {
    fn get(&self, tree: u32, key: &[u8]) -> Result<Option<Bytes>> {
        let own = self
            .own
            .and_then(|(overlay, statement)| overlay.get(tree, key, *statement));
        let seen = own.or_else(|| self.settled.and_then(|of| of.get(tree, key, u32::MAX)));
        match seen {
            Some(seen) => Ok(seen),
            None => self.trees.get(TreeId(tree), key, self.at),
        }
    }

    fn find_by_id_key(
        &self,
        collection: &Collection,
        key: &[u8],
    ) -> Result<Option<(Bytes, Bytes)>> {
        collection.check_usable()?;
        let Some(tree) = collection.id_tree else {
            return Ok(None);
        };
        if tree == collection.id {
            let doc = self.get(collection.id, key)?;
            return Ok(doc.map(|doc| (Bytes::copy_from_slice(key), doc)));
        }
        let hints = &collection.hints;
        if let Some(number) = hints.get(tree, key) {
            let record_key = number.to_be_bytes();
            match self.get(collection.id, &record_key)? {
                Some(doc) if collection.has_id_key(&doc, key) => {
                    return Ok(Some((Bytes::copy_from_slice(&record_key), doc)));
                }
                _ => hints.forget(tree, key),
            }
        }
        let Some(entry) = self.get(tree, key)? else {
            return Ok(None);
        };
        let record_key = record_of(&entry)?;
        let doc = self.get(collection.id, &record_key)?;
        if let (Some(_), Some(number)) = (&doc, number_of(&record_key)) {
            hints.note(tree, key, number);
        }
        Ok(doc.map(|doc| (record_key, doc)))
    }
}

impl Snapshot {
    pub(crate) fn new(inner: Option<(View, Arc<dyn Trees>)>) -> Snapshot {
        Snapshot {
            inner: inner.map(Arc::new),
            read_at: None,
            settled: None,
            own: None,
            rows: Rows::Owned,
            within: None,
        }
    }

    /// The same snapshot for a reader of one sharded collection, which wants only rows of these ranges.
    pub fn within(self, ranges: Arc<[Owned]>) -> Snapshot {
        Snapshot {
            within: Some(ranges),
            ..self
        }
    }

    /// The same snapshot, which shows the rows of sharded collections that this shard owned at a time.
    pub fn of_owner_at(self, at: Timestamp) -> Snapshot {
        Snapshot {
            rows: Rows::OwnedAt(at),
            ..self
        }
    }

    /// The same snapshot, which shows all rows of sharded collections, also those that this shard does not own.
    pub fn with_foreign_rows(self) -> Snapshot {
        Snapshot {
            rows: Rows::All,
            ..self
        }
    }

    /// Which rows of a collection are shown; `None`: all that there are.
    #[inline]
    fn owned(&self, collection: &Collection) -> Option<OwnedRows> {
        match collection.may_have_foreign_rows() || self.within.is_some() {
            true => {
                let (placement, time) = (collection.placement()?, self.read_time());
                OwnedRows::of(placement, self.rows, time, self.within.as_ref())
            }
            false => None,
        }
    }

    /// The same snapshot with the writes of transactions over several logs.
    pub(crate) fn with_settled(self, settled: Option<Arc<Overlay>>) -> Snapshot {
        Snapshot { settled, ..self }
    }

    /// The same snapshot for a read at this time: see [`Store::as_decided`](crate::Store::as_decided).
    pub fn read_at(self, at: Timestamp) -> Snapshot {
        Snapshot {
            read_at: Some(at),
            ..self
        }
    }

    /// The time that is read at.
    pub(crate) fn time(&self) -> Option<Timestamp> {
        self.read_at
    }

    /// The time that is read at, or else the one up to which it sees everything.
    pub fn read_time(&self) -> Timestamp {
        self.read_at.unwrap_or_else(|| self.timestamp())
    }

    /// The same snapshot with the writes of a transaction up to a statement.
    pub(crate) fn with(self, overlay: Arc<Overlay>, statement: u32) -> Snapshot {
        Snapshot {
            own: Some((overlay, statement)),
            ..self
        }
    }

    /// The timestamp up to which it sees everything.
    pub fn timestamp(&self) -> Timestamp {
        self.inner
            .as_ref()
            .map_or(Timestamp::ZERO, |inner| inner.0.timestamp())
    }

    fn seen(&self) -> Result<Seen<'_>> {
        let (view, trees) = self.inner.as_deref().ok_or_else(closed)?;
        Ok(Seen {
            trees: &**trees,
            at: view.timestamp(),
            settled: self.settled.as_ref(),
            own: self.own.as_ref(),
        })
    }

    /// The document with this record key. The bytes are a slice of the block, not a copy.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected naming file and offset.
    pub fn get(&self, collection: &Collection, record_key: &[u8]) -> Result<Option<Bytes>> {
        collection.check_usable()?;
        let found = self.raw_get(collection.id, record_key)?;
        match self.owned(collection) {
            Some(mut owned) => Ok(found.filter(|doc| owned.shows(doc))),
            None => Ok(found),
        }
    }

    /// The document with this `_id`, with its record key. Always `None` in a time series, which has no
    /// index on `_id`.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn find_by_id(
        &self,
        collection: &Collection,
        id: Value<'_>,
    ) -> Result<Option<(Bytes, Bytes)>> {
        self.find_by_id_key(collection, &collection.id_key(id))
    }

    /// The same, for the key that [`Collection::id_key`] gives.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn find_by_id_key(
        &self,
        collection: &Collection,
        key: &[u8],
    ) -> Result<Option<(Bytes, Bytes)>> {
        let found = self.seen()?.find_by_id_key(collection, key)?;
        match self.owned(collection) {
            Some(mut owned) => Ok(found.filter(|(_, doc)| owned.shows(doc))),
            None => Ok(found),
        }
    }

    /// The entry of a unique index of the collection that has this key.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn entry(
        &self,
        collection: &Collection,
        index: &Index,
        key: &[u8],
    ) -> Result<Option<IndexEntry>> {
        let Some(value) = self.raw_get(index.id, key)? else {
            return Ok(None);
        };
        let key = Bytes::copy_from_slice(key);
        let Some(entry) = split_entry(&key, &value, true) else {
            return Err(malformed(index.id, &key));
        };
        if let Some(mut owned) = self.owned(collection) {
            let doc = self.raw_get(collection.id, &entry.record_key)?;
            return Ok(doc.is_none_or(|doc| owned.shows(&doc)).then_some(entry));
        }
        Ok(Some(entry))
    }

    /// One raw key of a tree.
    pub(crate) fn raw_get(&self, tree: u32, key: &[u8]) -> Result<Option<Bytes>> {
        self.seen()?.get(tree, key)
    }

    /// A cursor over the raw keys of a tree.
    pub(crate) fn raw_range(
        &self,
        tree: u32,
        range: Range,
        dir: Direction,
    ) -> Option<Box<dyn Cursor>> {
        let (view, trees) = self.inner.as_deref()?;
        let mut cursor = trees.cursor(TreeId(tree), range.clone(), view.timestamp(), dir);
        if let Some(settled) = &self.settled {
            let all = (settled.clone(), u32::MAX);
            cursor = Merged::over(cursor, &all, tree, range.clone(), dir);
        }
        if let Some(own) = &self.own {
            cursor = Merged::over(cursor, own, tree, range, dir);
        }
        Some(cursor)
    }

    /// A cursor over the documents in a range of record keys.
    pub fn docs(&self, collection: &Collection, range: &KeyRange, dir: Direction) -> DocCursor {
        DocCursor {
            inner: self.usable_range(collection, collection.id, range, dir),
            owned: self.owned(collection),
        }
    }

    /// The documents of a collection that may be closed, as far as they can be read. A rollback saves
    /// them, and a repair looks whether there are any.
    pub fn docs_of_closed(&self, collection: &Collection) -> DocCursor {
        let all = self.raw_range(collection.id, Range::default(), Direction::Forward);
        DocCursor {
            inner: all.ok_or_else(closed).map(|all| (all, self.clone())),
            owned: None,
        }
    }

    /// A cursor over a collection's tree, unless the collection is closed.
    fn usable_range(
        &self,
        collection: &Collection,
        tree: u32,
        range: &KeyRange,
        dir: Direction,
    ) -> Result<(Box<dyn Cursor>, Snapshot)> {
        collection.check_usable()?;
        let cursor = self.raw_range(tree, keys::bounds(range), dir);
        Ok((cursor.ok_or_else(closed)?, self.clone()))
    }

    /// The entries in a range of encoded fields. `_id_` of a clustered collection has none: use
    /// [`Snapshot::docs`].
    pub fn entries(
        &self,
        collection: &Collection,
        index: &Index,
        range: &KeyRange,
        dir: Direction,
    ) -> IndexCursor {
        let usable = index.check_usable(collection);
        IndexCursor {
            inner: usable.and_then(|()| self.usable_range(collection, index.id, range, dir)),
            direction: dir,
            index: index.id,
            unique: index.unique(),
            end: None,
            owned: self.owned(collection).map(|owned| (owned, collection.id)),
        }
    }
}

impl DocCursor {
    /// The next (record key, document). `operation` is asked during a long way over deleted documents.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected; what stops `operation`, after which the cursor can be used again.
    pub fn next(&mut self, operation: &dyn Interrupt) -> Result<Option<(Bytes, Bytes)>> {
        let (cursor, _) = match &mut self.inner {
            Ok(inner) => inner,
            Err(e) => return Err(e.clone()),
        };
        loop {
            let next = cursor.next(operation)?;
            let (Some((_, doc)), Some(owned)) = (&next, &mut self.owned) else {
                return Ok(next);
            };
            if owned.shows(doc) {
                return Ok(next);
            }
            owned.passes(operation)?;
        }
    }
}

impl IndexCursor {
    /// The next entry. `operation` is asked during a long way over deleted entries.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected; what stops `operation`, after which the cursor can be used again.
    pub fn next(&mut self, operation: &dyn Interrupt) -> Result<Option<IndexEntry>> {
        loop {
            let next = self.next_of_all(operation)?;
            let (Some(entry), Some((owned, collection)), Ok((_, snapshot))) =
                (&next, &mut self.owned, &self.inner)
            else {
                return Ok(next);
            };
            let doc = snapshot.raw_get(*collection, &entry.record_key)?;
            if doc.is_none_or(|doc| owned.shows(&doc)) {
                return Ok(next);
            }
            owned.passes(operation)?;
        }
    }

    /// The next entry, which may be one of a row that is not shown.
    fn next_of_all(&mut self, operation: &dyn Interrupt) -> Result<Option<IndexEntry>> {
        let (cursor, _) = match &mut self.inner {
            Ok(inner) => inner,
            Err(e) => return Err(e.clone()),
        };
        let mut next = cursor.next(operation)?;
        if let Some(end) = self.end.take()
            && next.as_ref().is_some_and(|(key, _)| **key == *end)
        {
            next = cursor.next(operation)?;
        }
        let Some((key, value)) = next else {
            return Ok(None);
        };
        match split_entry(&key, &value, self.unique) {
            Some(entry) => Ok(Some(entry)),
            None => Err(malformed(self.index, &key)),
        }
    }

    /// Jumps to the first entry (in the cursor's direction) whose key is at or past `key`, for a scan
    /// with several intervals. `key` is a prefix as in [`KeyRange`]: backward, entries that begin with
    /// it are at it. Never moves against the direction. Cheaper than a new cursor when the target is
    /// near. An error shows at the following [`IndexCursor::next`].
    pub fn seek(&mut self, key: &[u8]) {
        let Ok((cursor, _)) = &mut self.inner else {
            return;
        };
        match self.direction {
            Direction::Forward => cursor.seek(key),
            // The greatest key that begins with `key` is wanted, so the seek goes to the end of these
            // keys.
            Direction::Backward => {
                if let Some(end) = muniment_value::keyenc::prefix_end(key) {
                    cursor.seek(&end);
                    self.end = Some(end);
                }
            }
        }
    }
}

fn malformed(index: u32, key: &[u8]) -> Error {
    Error::new(
        Code::DataCorruptionDetected,
        format!("data corruption detected: an entry of index {index} is malformed: {key:02x?}"),
    )
}

/// Splits a stored entry; `None` if it is malformed.
pub(crate) fn split_entry(key: &Bytes, value: &Bytes, unique: bool) -> Option<IndexEntry> {
    let (len, at) = keys::get_varint(value)?;
    if unique {
        if value.len() < at + len {
            return None;
        }
        Some(IndexEntry {
            key: key.clone(),
            record_key: value.slice(at..at + len),
            type_bits: value.slice(at + len..),
        })
    } else {
        if key.len() < len {
            return None;
        }
        Some(IndexEntry {
            key: key.slice(..len),
            record_key: key.slice(len..),
            type_bits: value.slice(at..),
        })
    }
}
