//! Write sets: the one path of all writes.
//!
//! A write set holds the collection's shared DDL lock and the latches of the records (and unique
//! keys) it touches, from the moment a record is locked until the commit is visible. It never
//! waits for a latch while it holds staged changes: where it would have to, what is staged is
//! committed first, so a batch is split there (MongoDB's batches are not atomic either; each
//! document is). The same happens when a record or a unique key that is staged already comes up
//! again, so no decision is ever made on data that is not committed.

mod capped;
mod commit;
mod entries;
mod timed;

pub(crate) use entries::{duplicate, entry_of, taken_by_other};

use crate::collection::Collection;
use crate::engine::{Batch, Engine, Space};
use crate::index::{Index, KeySet};
use crate::keys;
use crate::latch::{self, Tried};
use crate::multikey::Arrays;
use crate::snapshot::DocCursor;
use crate::store::{CommitId, Inner};
use bytes::Bytes;
use muniment_value::{Code, Collation, Doc, DocBuf, Error, Result, Value, doc};
use parking_lot::{ArcMutexGuard, ArcRwLockReadGuard, RawMutex, RawRwLock};
use std::sync::Arc;

/// Staged changes of one collection.
pub struct WriteSet<'s> {
    store: &'s Inner,
    collection: Arc<Collection>,
    engine: Arc<Engine>,
    indexes: Arc<Vec<Arc<Index>>>,
    /// There are index entries to maintain.
    indexed: bool,
    /// An index is being built: the builder wants to know which records change.
    building: bool,
    owner: u64,
    totals_key: Vec<u8>,
    batch: Option<Batch>,
    staged_bytes: usize,
    docs: i64,
    bytes: i64,
    inserted: u64,
    /// Entries of unique indexes were removed: a duplicate may be one that goes with this set.
    removed_unique: bool,
    appending: bool,
    held: Vec<u64>,
    dirty: Vec<Vec<u8>>,
    widened: Vec<(Arc<Index>, Arrays)>,
    last: Option<CommitId>,
    eviction: Option<DocCursor>,
    capped_order: Option<ArcMutexGuard<RawMutex, ()>>,
    key: Vec<u8>,
    sets: Vec<KeySet>,
    old_set: KeySet,
    _ddl: ArcRwLockReadGuard<RawRwLock, ()>,
}

/// A unique index said no.
#[derive(Clone, Debug)]
pub struct DuplicateKey {
    /// The namespace.
    pub namespace: String,
    /// The index's name.
    pub index: String,
    /// Its key pattern.
    pub key_pattern: DocBuf,
    /// The values, under the pattern's field names.
    pub key_value: DocBuf,
    /// By which texts are equal.
    pub collation: Collation,
}

impl DuplicateKey {
    /// The error: 11000 "E11000 duplicate key error collection: db.c index: x_1 dup key: { x: 1 }"
    /// with keyPattern and keyValue.
    pub fn to_error(&self) -> Error {
        let mut extra = doc! { "keyPattern": &self.key_pattern, "keyValue": &self.key_value };
        let mut by = String::new();
        if let Some(c) = self.collation.spec() {
            by = format!(" collation: {}", c.as_doc().to_display());
            extra.append("collation", c);
        }
        Error::new(
            Code::DuplicateKey,
            format!(
                "E11000 duplicate key error collection: {} index: {}{by} dup key: {}",
                self.namespace,
                self.index,
                self.key_value.as_doc().to_display(),
            ),
        )
        .with_extra(extra)
    }
}

/// What became of an attempt to latch and check.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Done,
    /// Commit what is staged and try again, waiting.
    Again,
}

/// How a record key was claimed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// It is above every key there ever was.
    Fresh,
    /// Its latch is held.
    Latched,
    Again,
}

impl<'s> WriteSet<'s> {
    pub(crate) fn new(
        store: &'s Inner,
        collection: &Arc<Collection>,
        engine: Arc<Engine>,
        ddl: ArcRwLockReadGuard<RawRwLock, ()>,
    ) -> WriteSet<'s> {
        let indexes = collection.all_indexes();
        let by_id = collection.is_keyed_by_id();
        WriteSet {
            store,
            engine,
            indexed: indexes.iter().any(|i| !by_id || !i.is_id()),
            building: indexes.iter().any(|i| !i.is_ready()),
            indexes,
            collection: collection.clone(),
            owner: store.next_owner(),
            totals_key: keys::totals(collection.id),
            batch: None,
            staged_bytes: 0,
            docs: 0,
            bytes: 0,
            inserted: 0,
            removed_unique: false,
            appending: false,
            held: Vec::new(),
            dirty: Vec::new(),
            widened: Vec::new(),
            last: None,
            eviction: None,
            capped_order: None,
            key: Vec::new(),
            sets: Vec::new(),
            old_set: KeySet::default(),
            _ddl: ddl,
        }
    }

    /// Latches one record and returns its newest document (`None`: there is none). All reads
    /// that decide about a write of this record come after this call. The write of this record
    /// must be staged before another record is locked: that may commit and release.
    ///
    /// # Errors
    /// As a commit's, when staged changes had to be committed first.
    pub fn lock(&mut self, record_key: &[u8]) -> Result<Option<Bytes>> {
        let full = keys::join(self.collection.id, record_key);
        let hash = latch::record_hash(&full);
        let staged = self.appending && self.collection.append.lock().mine(record_key, self.owner);
        let tried = if staged {
            Tried::Busy
        } else {
            self.store.latches.try_lock(hash, self.owner)
        };
        if tried != Tried::Taken {
            self.commit_staged(None)?;
            self.store.latches.lock(hash, self.owner);
        }
        self.held.push(hash);
        self.engine.newest(Space::Docs, &full)
    }

    /// Stages the insert of a complete document (with `_id`, validated). Latches what it needs.
    /// When a key exists already nothing is staged for this document. The engine's memtable keeps
    /// `doc` itself: a slice of a message keeps that whole message in memory until the flush.
    ///
    /// # Errors
    /// 11000 DuplicateKey (made by [`DuplicateKey::to_error`]), 171, 10003-like for capped.
    pub fn insert(&mut self, doc: Bytes) -> Result<()> {
        let capped = self.collection.is_capped();
        let mut wait = false;
        loop {
            let attempt = if capped {
                self.try_insert_capped(&doc, wait)?
            } else if self.collection.is_time_series() {
                self.try_insert_timed(&doc, wait)?
            } else {
                self.try_insert(&doc, wait)?
            };
            if attempt == Attempt::Done {
                return Ok(());
            }
            self.commit_staged(None)?;
            wait = true;
        }
    }

    fn try_insert(&mut self, doc: &Bytes, wait: bool) -> Result<Attempt> {
        let view = Doc::new(doc);
        let Some(id) = view.get("_id") else {
            return Err(Error::internal(
                "a document without _id reached the storage",
            ));
        };
        self.key.clear();
        self.key
            .extend_from_slice(&keys::prefix(self.collection.id));
        self.collection.collation().encode(id, false, &mut self.key);
        if let Err(e) = keys::check_len(&self.key, "the _id") {
            return Err(match self.collection.is_clustered() {
                true => Error::location(5_894_900, e.message().to_string()),
                false => e,
            });
        }
        match self.claim(wait)? {
            Claim::Fresh => {}
            Claim::Again => return Ok(Attempt::Again),
            Claim::Latched => {
                if self.engine.newest(Space::Docs, &self.key)?.is_some() {
                    return Err(self.duplicate_id(id));
                }
            }
        }
        if self.indexed {
            let record_key = self.key.get(4..).unwrap_or_default().to_vec();
            if self.stage_entries(view, &record_key, None, None, wait)? == Attempt::Again {
                return Ok(Attempt::Again);
            }
        }
        let key = Bytes::copy_from_slice(&self.key);
        self.stage_doc(key, doc.clone(), 1, doc.len() as i64);
        self.inserted += 1;
        Ok(Attempt::Done)
    }

    /// Claims the record key in `self.key` for an insert.
    fn claim(&mut self, wait: bool) -> Result<Claim> {
        let record_key = self.key.get(4..).unwrap_or_default();
        {
            let mut append = self.collection.append.lock();
            if append.max.is_none() {
                append.max = Some(
                    self.store
                        .greatest_record_key(&self.engine, &self.collection)?,
                );
            }
            if append.max.as_deref().is_some_and(|max| record_key > max) {
                append.append(record_key, self.owner);
                self.appending = true;
                return Ok(Claim::Fresh);
            }
            if self.appending && append.mine(record_key, self.owner) {
                return Ok(Claim::Again);
            }
        }
        let hash = latch::record_hash(&self.key);
        let tried = if wait {
            self.store.latches.lock(hash, self.owner)
        } else {
            self.store.latches.try_lock(hash, self.owner)
        };
        match tried {
            Tried::Taken => self.held.push(hash),
            // Locked by [`WriteSet::lock`] (an upsert) and not staged: in wait mode nothing is
            // ever staged.
            Tried::Mine if wait || self.batch.is_none() => {}
            Tried::Mine | Tried::Busy => return Ok(Claim::Again),
        }
        let mut append = self.collection.append.lock();
        while append.in_flight(record_key, self.owner) {
            if !wait {
                return Ok(Claim::Again);
            }
            self.collection.append_done.wait(&mut append);
        }
        Ok(Claim::Latched)
    }

    /// 11000; MongoDB has codes of its own for numbers that its record ids cannot hold.
    fn duplicate_id(&self, id: Value<'_>) -> Error {
        let n = muniment_value::number::to_f64(id).filter(|n| !n.is_finite());
        if let Some(n) = n.filter(|_| self.collection.is_clustered()) {
            let code = if n.is_nan() { 50_819 } else { 50_826 };
            return Error::location(
                code,
                format!("a document with _id {} exists already", id.to_display()),
            );
        }
        DuplicateKey {
            namespace: self.collection.namespace(),
            index: "_id_".to_string(),
            key_pattern: doc! { "_id": 1 },
            key_value: doc! { "_id": id },
            collation: self.collection.collation().clone(),
        }
        .to_error()
    }

    /// Stages the replacement of `old`, which [`WriteSet::lock`] returned for this key, by `new`
    /// with the same `_id`. `touched(path)` false promises that the values at the path are the
    /// same, so that its indexes are left alone.
    ///
    /// # Errors
    /// As [`WriteSet::insert`].
    pub fn update(
        &mut self,
        record_key: &[u8],
        old: &Bytes,
        new: Bytes,
        touched: &dyn Fn(&str) -> bool,
    ) -> Result<()> {
        let full = keys::join(self.collection.id, record_key);
        if self.indexed {
            let mut wait = false;
            while self.stage_entries(
                Doc::new(&new),
                record_key,
                Some(Doc::new(old)),
                Some(touched),
                wait,
            )? == Attempt::Again
            {
                self.commit_staged(Some(latch::record_hash(&full)))?;
                wait = true;
            }
        }
        let grown = new.len() as i64 - old.len() as i64;
        self.stage_doc(Bytes::from(full), new, 0, grown);
        Ok(())
    }

    /// Stages the deletion of `old`, which [`WriteSet::lock`] returned for this key.
    ///
    /// # Errors
    /// 171 cannot happen for a stored document; I/O errors.
    pub fn delete(&mut self, record_key: &[u8], old: &Bytes) -> Result<()> {
        if self.indexed {
            let indexes = self.indexes.clone();
            let mut set = std::mem::take(&mut self.old_set);
            for index in indexes.iter() {
                if !self.maintained(index) {
                    continue;
                }
                index.key_set(Doc::new(old), &mut set)?;
                for (key, _) in set.iter() {
                    self.remove_entry(index, key, record_key);
                }
            }
            self.old_set = set;
        }
        let full = Bytes::from(keys::join(self.collection.id, record_key));
        self.note_dirty(record_key);
        self.staged_bytes += full.len();
        self.batch().delete(Space::Docs, full);
        self.docs -= 1;
        self.bytes -= old.len() as i64;
        Ok(())
    }

    /// Bytes staged: callers commit before this grows past a few MiB.
    pub fn staged_bytes(&self) -> usize {
        self.staged_bytes
    }

    /// Commits atomically: on return the changes are visible and written to the journal file
    /// (not synced). The latches are released. `None` when nothing was ever staged.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace or I/O errors: nothing of what was staged is visible.
    pub fn commit(mut self) -> Result<Option<CommitId>> {
        self.commit_staged(None)?;
        Ok(self.last)
    }

    /// The newest commit that this write set has made so far, were it split.
    pub fn last_commit(&self) -> Option<CommitId> {
        self.last
    }

    fn batch(&mut self) -> &mut Batch {
        let engine = &self.engine;
        self.batch.get_or_insert_with(|| engine.batch(8))
    }

    fn stage_doc(&mut self, full_key: Bytes, doc: Bytes, docs: i64, bytes: i64) {
        if self.building {
            let record_key = full_key.slice(4.min(full_key.len())..);
            self.note_dirty(&record_key);
        }
        self.staged_bytes += full_key.len() + doc.len();
        self.docs += docs;
        self.bytes += bytes;
        self.batch().put(Space::Docs, full_key, doc);
    }

    fn note_dirty(&mut self, record_key: &[u8]) {
        if self.building {
            self.dirty.push(record_key.to_vec());
        }
    }

    /// True for an index that has entries of its own.
    fn maintained(&self, index: &Index) -> bool {
        !index.is_id() || self.collection.is_capped()
    }
}
