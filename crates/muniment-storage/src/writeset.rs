//! Write sets: the one path of all writes.
//!
//! A write set holds the collection's shared DDL lock and the latches of the records (and unique
//! keys) it touches, from the moment a record is locked until the commit is visible. It never
//! waits for a latch while it holds staged changes: where it would have to, what is staged is
//! committed first, so a batch is split there (MongoDB's batches are not atomic either; each
//! document is). The same happens when a record or a unique key that is staged already comes up
//! again, so no decision is ever made on data that is not committed.

use crate::collection::Collection;
use crate::engine::{Batch, Engine, EngineSnapshot, Space};
use crate::index::{Index, KeySet};
use crate::keys;
use crate::latch::{self, Tried};
use crate::snapshot::{Direction, DocCursor, KeyRange};
use crate::store::{CommitId, Inner};
use bytes::Bytes;
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc, keyenc};
use parking_lot::{ArcMutexGuard, ArcRwLockReadGuard, Mutex, MutexGuard, RawMutex, RawRwLock};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

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
    widened: Vec<(Arc<Index>, Vec<u64>)>,
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
}

impl DuplicateKey {
    /// The error: 11000 "E11000 duplicate key error collection: db.c index: x_1 dup key: { x: 1 }"
    /// with keyPattern and keyValue.
    pub fn to_error(&self) -> Error {
        Error::new(
            Code::DuplicateKey,
            format!(
                "E11000 duplicate key error collection: {} index: {} dup key: {}",
                self.namespace,
                self.index,
                self.key_value.as_doc().to_display(),
            ),
        )
        .with_extra(doc! { "keyPattern": &self.key_pattern, "keyValue": &self.key_value })
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
        let capped = collection.is_capped();
        WriteSet {
            store,
            engine,
            indexed: indexes.iter().any(|i| capped || !i.is_id()),
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
        keyenc::encode(id, false, &mut self.key);
        keys::check_len(&self.key, "the _id")?;
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

    fn duplicate_id(&self, id: Value<'_>) -> Error {
        DuplicateKey {
            namespace: self.collection.namespace(),
            index: "_id_".to_string(),
            key_pattern: doc! { "_id": 1 },
            key_value: doc! { "_id": id },
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

    /// Latches, checks and stages the index entries of `new`, and the removal of those of `old`
    /// that it has no more. Nothing is staged unless all of them are in order.
    fn stage_entries(
        &mut self,
        new: Doc<'_>,
        record_key: &[u8],
        old: Option<Doc<'_>>,
        touched: Option<&dyn Fn(&str) -> bool>,
        wait: bool,
    ) -> Result<Attempt> {
        let indexes = self.indexes.clone();
        let mut new_sets = std::mem::take(&mut self.sets);
        let mut old_set = std::mem::take(&mut self.old_set);
        let result = self.check_and_stage(
            &indexes,
            new,
            record_key,
            old,
            touched,
            wait,
            &mut new_sets,
            &mut old_set,
        );
        self.sets = new_sets;
        self.old_set = old_set;
        result
    }

    #[allow(clippy::too_many_arguments)] // the buffers come from self, whose methods it calls
    fn check_and_stage(
        &mut self,
        indexes: &[Arc<Index>],
        new: Doc<'_>,
        record_key: &[u8],
        old: Option<Doc<'_>>,
        touched: Option<&dyn Fn(&str) -> bool>,
        wait: bool,
        new_sets: &mut Vec<KeySet>,
        old_set: &mut KeySet,
    ) -> Result<Attempt> {
        // A builder skips the records that were written meanwhile, so on an index that is being
        // built every write puts all its keys.
        let skipped = |index: &Index| {
            index.is_ready()
                && index.partial_filter().is_none()
                && touched.is_some_and(|t| !index.fields().iter().any(|(p, _)| t(p.as_str())))
        };
        if new_sets.len() < indexes.len() {
            new_sets.resize_with(indexes.len(), KeySet::default);
        }
        let mut unique = Vec::new();
        for (index, set) in indexes.iter().zip(new_sets.iter_mut()) {
            set.clear();
            if !self.maintained(index) || skipped(index) {
                continue;
            }
            index.key_set(new, set)?;
            for (key, bits) in set.iter() {
                if 4 + key.len() + record_key.len() + bits.len() > crate::engine::MAX_KEY {
                    return Err(Error::location(
                        17280,
                        format!(
                            "an index key of index {} is too long: {} bytes encoded",
                            index.spec().name,
                            key.len()
                        ),
                    ));
                }
            }
            if index.guards() {
                for (key, _) in set.iter() {
                    unique.push(latch::unique_hash(&keys::join(index.id, key)));
                }
            }
        }
        if !unique.is_empty() {
            unique.sort_unstable();
            unique.dedup();
            for hash in unique {
                let tried = if wait {
                    self.store.latches.lock(hash, self.owner)
                } else {
                    self.store.latches.try_lock(hash, self.owner)
                };
                match tried {
                    Tried::Taken => self.held.push(hash),
                    Tried::Mine if wait || self.batch.is_none() => {}
                    Tried::Mine | Tried::Busy => return Ok(Attempt::Again),
                }
            }
            let mut conflicts = Vec::new();
            for (index, set) in indexes.iter().zip(new_sets.iter()) {
                if !index.guards() {
                    continue;
                }
                // A duplicate that was there before may stay.
                old_set.clear();
                if let Some(old) = old.filter(|_| !index.unique()) {
                    index.key_set(old, old_set)?;
                }
                for (key, bits) in set.iter() {
                    if old_set.iter().any(|(k, _)| k == key) {
                        continue;
                    }
                    if taken_by_other(&self.engine, index, key, record_key)? {
                        conflicts.push((index.clone(), key.to_vec(), bits.to_vec()));
                    }
                }
            }
            for (index, key, bits) in conflicts {
                if self.removed_unique {
                    return Ok(Attempt::Again);
                }
                let error = duplicate(&self.collection, &index, &key, &bits);
                if index.is_ready() {
                    return Err(error);
                }
                index.fail_build(error);
            }
        }
        for (index, set) in indexes.iter().zip(new_sets.iter()) {
            if !self.maintained(index) || skipped(index) {
                continue;
            }
            match old {
                Some(old) => index.key_set(old, old_set)?,
                None => old_set.clear(),
            }
            self.stage_difference(index, old_set, set, record_key);
            if index.widens(set.multikey()) {
                self.widened.push((index.clone(), set.multikey().to_vec()));
            }
        }
        Ok(Attempt::Done)
    }

    /// Stages what leads from the entries of `old` to those of `new`: a merge of the two.
    fn stage_difference(&mut self, index: &Index, old: &KeySet, new: &KeySet, record_key: &[u8]) {
        let mut old = old.iter().peekable();
        for (key, bits) in new.iter() {
            while let Some((gone, _)) = old.next_if(|(k, _)| *k < key) {
                self.remove_entry(index, gone, record_key);
            }
            // Same key, other type bits: 1 became 1.0, the entry is written anew.
            let same = old
                .next_if(|(k, _)| *k == key)
                .is_some_and(|(_, old_bits)| old_bits == bits);
            if !same || !index.is_ready() {
                let (key, value) = entry_of(index, key, bits, record_key);
                self.staged_bytes += key.len() + value.len();
                self.batch().put(Space::Index, key, value);
            }
        }
        for (gone, _) in old {
            self.remove_entry(index, gone, record_key);
        }
    }

    fn remove_entry(&mut self, index: &Index, key: &[u8], record_key: &[u8]) {
        let mut full = keys::join(index.id, key);
        self.removed_unique |= index.guards();
        if !index.unique() {
            full.extend_from_slice(record_key);
        }
        self.staged_bytes += full.len();
        self.batch().delete(Space::Index, full);
    }

    fn try_insert_capped(&mut self, doc: &Bytes, wait: bool) -> Result<Attempt> {
        if self.capped_order.is_none() {
            let order = &self.collection.capped_order;
            self.capped_order = if wait {
                Some(order.lock_arc())
            } else {
                order.try_lock_arc()
            };
            if self.capped_order.is_none() {
                return Ok(Attempt::Again);
            }
        }
        let options = self.collection.options();
        let size = options.capped_size.unwrap_or(u64::MAX) as i64;
        let max = options.capped_max.unwrap_or(i64::MAX as u64) as i64;
        if doc.len() as i64 > size {
            return Err(Error::bad_value(format!(
                "object to insert exceeds cappedMaxSize: {} > {size}",
                doc.len()
            )));
        }
        // What must go is looked for among what is committed, so a set that would push its own
        // inserts out is split.
        let docs = self.collection.docs.load(SeqCst) as i64 + self.docs + 1;
        let bytes = self.collection.bytes.load(SeqCst) as i64 + self.bytes + doc.len() as i64;
        if self.batch.is_some() && (docs > max || bytes > size) {
            return Ok(Attempt::Again);
        }
        let sequence = {
            let mut append = self.collection.append.lock();
            if append.max.is_none() {
                append.max = Some(
                    self.store
                        .greatest_record_key(&self.engine, &self.collection)?,
                );
            }
            let last = append
                .max
                .as_deref()
                .and_then(|m| <[u8; 8]>::try_from(m).ok())
                .map_or(0, u64::from_be_bytes);
            last + 1
        };
        let record_key = sequence.to_be_bytes();
        if self.stage_entries(Doc::new(doc), &record_key, None, None, wait)? == Attempt::Again {
            return Ok(Attempt::Again);
        }
        self.collection.append.lock().max = Some(record_key.to_vec());
        let full = Bytes::from(keys::join(self.collection.id, &record_key));
        self.stage_doc(full, doc.clone(), 1, doc.len() as i64);
        self.inserted += 1;
        self.evict(size, max)?;
        Ok(Attempt::Done)
    }

    /// Deletes the oldest documents until the collection is within its limits. A document that a
    /// client holds just now is left for the next insert.
    fn evict(&mut self, size: i64, max: i64) -> Result<()> {
        loop {
            let docs = self.collection.docs.load(SeqCst) as i64 + self.docs;
            let bytes = self.collection.bytes.load(SeqCst) as i64 + self.bytes;
            if docs <= max && bytes <= size {
                return Ok(());
            }
            if self.eviction.is_none() {
                let snapshot = crate::Snapshot::new(Some(crate::engine::EngineSnapshot::new(
                    self.engine.clone(),
                )));
                self.eviction =
                    Some(snapshot.docs(&self.collection, &KeyRange::all(), Direction::Forward));
            }
            let Some((record_key, _)) = self.eviction.as_mut().map_or(Ok(None), DocCursor::next)?
            else {
                if self.batch.is_none() {
                    return Ok(());
                }
                // The oldest are among what is staged here: they can go once they are visible.
                self.commit_staged(None)?;
                self.eviction = None;
                continue;
            };
            let full = keys::join(self.collection.id, &record_key);
            let hash = latch::record_hash(&full);
            if self.store.latches.try_lock(hash, self.owner) != Tried::Taken {
                continue;
            }
            self.held.push(hash);
            if let Some(newest) = self.engine.newest(Space::Docs, &full)? {
                self.delete(&record_key, &newest)?;
            }
        }
    }

    /// Commits what is staged and releases every latch but `keep`.
    fn commit_staged(&mut self, keep: Option<u64>) -> Result<()> {
        let result = match self.batch.take() {
            None => Ok(()),
            Some(batch) => self.write(batch),
        };
        self.release(keep);
        let inserted = std::mem::take(&mut self.inserted);
        if result.is_ok() && inserted > 0 {
            self.collection.notify_inserts(inserted);
        }
        result
    }

    fn write(&mut self, mut batch: Batch) -> Result<()> {
        self.store.admit(&self.engine, self.staged_bytes)?;
        let _gate = self.store.gate.read();
        let collection = &self.collection;
        let mut state = lock_soon(&collection.commit);
        // Nobody else changes the totals while we hold the mutex.
        let docs = collection
            .docs
            .load(SeqCst)
            .saturating_add_signed(self.docs);
        let bytes = collection
            .bytes
            .load(SeqCst)
            .saturating_add_signed(self.bytes);
        if self.docs != 0 || self.bytes != 0 {
            let mut totals = [0u8; 16];
            totals[..8].copy_from_slice(&docs.to_le_bytes());
            totals[8..].copy_from_slice(&bytes.to_le_bytes());
            batch.put(
                Space::Meta,
                Bytes::copy_from_slice(&self.totals_key),
                Bytes::copy_from_slice(&totals),
            );
        }
        for (index, paths) in &mut self.widened {
            // Readers see it before the data: a plan made in between is only more careful.
            *paths = index.widen(paths);
            collection.bump();
            let mask: Vec<u8> = paths.iter().flat_map(|m| m.to_le_bytes()).collect();
            batch.put(Space::Meta, keys::multikey(index.id), mask);
        }
        batch.commit().inspect_err(|_| self.store.write_failed())?;
        collection.docs.store(docs, SeqCst);
        collection.bytes.store(bytes, SeqCst);
        for (index, paths) in &self.widened {
            index.saved(paths);
        }
        for written in state.dirty.values_mut() {
            written.extend(self.dirty.iter().cloned());
        }
        self.last = Some(CommitId(self.store.journal.committed()));
        Ok(())
    }

    /// Forgets what was staged and gives back every latch but `keep`.
    fn release(&mut self, keep: Option<u64>) {
        self.batch = None;
        self.staged_bytes = 0;
        self.docs = 0;
        self.bytes = 0;
        self.removed_unique = false;
        self.dirty.clear();
        self.widened.clear();
        self.eviction = None;
        self.capped_order = None;
        if self.appending {
            self.appending = false;
            let mut append = self.collection.append.lock();
            append.runs.retain(|r| r.owner != self.owner);
            drop(append);
            self.collection.append_done.notify_all();
        }
        let mut kept = None;
        for hash in self.held.drain(..) {
            if Some(hash) == keep {
                kept = keep;
            } else {
                self.store.latches.unlock(hash);
            }
        }
        self.held.extend(kept);
    }
}

impl Drop for WriteSet<'_> {
    fn drop(&mut self) {
        self.release(None);
    }
}

/// Locks a mutex that is held for microseconds: tries for about as long as a commit takes before
/// it sleeps, because going to sleep and being woken costs more than the commit.
fn lock_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    const ROUNDS: u32 = 40;
    for _ in 0..ROUNDS {
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
        for _ in 0..8 {
            std::hint::spin_loop();
        }
    }
    mutex.lock()
}

/// True if the key of a unique index (or of one that is to become unique) belongs to another
/// record. The caller holds its latch.
pub(crate) fn taken_by_other(
    engine: &Arc<Engine>,
    index: &Index,
    key: &[u8],
    record_key: &[u8],
) -> Result<bool> {
    if !index.unique() {
        return another_entry(engine, index, key, record_key);
    }
    let Some(value) = engine.newest(Space::Index, &keys::join(index.id, key))? else {
        return Ok(false);
    };
    Ok(keys::get_varint(&value)
        .and_then(|(len, at)| value.get(at..at + len))
        .is_none_or(|holder| holder != record_key))
}

/// The same for entries that carry their record's key.
fn another_entry(
    engine: &Arc<Engine>,
    index: &Index,
    key: &[u8],
    record_key: &[u8],
) -> Result<bool> {
    let low = keys::join(index.id, key);
    let Some(high) = muniment_value::keyenc::prefix_end(&low) else {
        return Ok(false);
    };
    let snapshot = EngineSnapshot::new(engine.clone());
    let mut entries = snapshot.range(Space::Index, low, high);
    while let Some((full, value)) = entries.next()? {
        if let Some(e) = crate::snapshot::split_entry(&full, &value, false)
            && e.key == key
            && e.record_key != record_key
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// 11000 for an encoded key.
pub(crate) fn duplicate(collection: &Collection, index: &Index, key: &[u8], bits: &[u8]) -> Error {
    let spec = index.spec();
    DuplicateKey {
        namespace: collection.namespace(),
        index: spec.name.clone(),
        key_pattern: spec.key.clone(),
        key_value: index.key_value(key, bits),
    }
    .to_error()
}

/// The stored key and value of an index entry.
pub(crate) fn entry_of(
    index: &Index,
    key: &[u8],
    bits: &[u8],
    record_key: &[u8],
) -> (Vec<u8>, Vec<u8>) {
    if index.unique() {
        let full = keys::join(index.id, key);
        let mut value = Vec::with_capacity(2 + record_key.len() + bits.len());
        keys::put_varint(record_key.len(), &mut value);
        value.extend_from_slice(record_key);
        value.extend_from_slice(bits);
        (full, value)
    } else {
        let mut full = Vec::with_capacity(4 + key.len() + record_key.len());
        full.extend_from_slice(&keys::prefix(index.id));
        full.extend_from_slice(key);
        full.extend_from_slice(record_key);
        let mut value = Vec::with_capacity(2 + bits.len());
        keys::put_varint(key.len(), &mut value);
        value.extend_from_slice(bits);
        (full, value)
    }
}
