//! Online index builds.
//!
//! The index is registered first, alone with the collection, so that every write set after that
//! maintains it. Then the documents are scanned in slices. A slice is a snapshot; records that
//! are written while it is read are noted in the collection's `dirty` set, and the builder leaves
//! them to their writers, who put all keys into an index that is being built. The slice's entries
//! and the look at `dirty` happen under the commit mutex, so no write can come between. Writers
//! never wait longer than for one slice's commit.
//!
//! An index may be built to take another's place, of the same name: that one goes in the commit
//! that makes the new one ready, and stays if the build fails.
//!
//! A crash leaves an index marked as building. Writers had maintained what was there, so the
//! build simply runs again over it.

use crate::catalog::{IndexSpec, MAX_INDEXES};
use crate::collection::Collection;
use crate::engine::{EngineSnapshot, Space};
use crate::index::{Index, KeySet};
use crate::keys;
use crate::latch;
use crate::multikey::Arrays;
use crate::store::{Inner, Store, dropped};
use crate::writeset::{duplicate, entry_of, taken_by_other};
use bytes::Bytes;
use muniment_query::Interrupt;
use muniment_value::{Code, Doc, Error, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// A slice ends at so many documents or index entries, or bytes of documents.
const SLICE_DOCS: usize = 500;
const SLICE_BYTES: usize = 4 << 20;

/// One key of a slice.
struct Entry {
    record: usize,
    key: Vec<u8>,
    bits: Vec<u8>,
}

#[derive(Default)]
struct Slice {
    records: Vec<Bytes>,
    entries: Vec<Entry>,
    arrays: Arrays,
}

impl Store {
    /// Builds an index online: writers go on and are seen. An identical index is returned as it
    /// is. (The caller has dealt with equal names and patterns: 85, 86.)
    ///
    /// # Errors
    /// 11000 DuplicateKey, 171, 67 (more than 64 indexes), whatever `interrupt` says.
    pub fn create_index(
        &self,
        collection: &Arc<Collection>,
        spec: IndexSpec,
        interrupt: &dyn Interrupt,
    ) -> Result<Arc<Index>> {
        self.build_index(collection, spec, false, interrupt)
    }

    /// Builds an index that takes the place of the ready one of the same name, which is used until
    /// then.
    ///
    /// # Errors
    /// As [`Store::create_index`]; the old index stays.
    pub fn replace_index(
        &self,
        collection: &Arc<Collection>,
        spec: IndexSpec,
        interrupt: &dyn Interrupt,
    ) -> Result<Arc<Index>> {
        self.build_index(collection, spec, true, interrupt)
    }

    fn build_index(
        &self,
        collection: &Arc<Collection>,
        spec: IndexSpec,
        replace: bool,
        interrupt: &dyn Interrupt,
    ) -> Result<Arc<Index>> {
        let inner = &self.inner;
        let spec = spec.with_document();
        loop {
            match inner.register_index(collection, &spec, replace)? {
                Registered::Ready(index) => return Ok(index),
                Registered::New(index) => {
                    inner.finish_index(collection, &index, interrupt)?;
                    return Ok(index);
                }
                // Another client builds the same index: its end is ours.
                Registered::Building => {
                    interrupt.check()?;
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }
}

enum Registered {
    Ready(Arc<Index>),
    Building,
    New(Arc<Index>),
}

impl Inner {
    fn register_index(
        &self,
        collection: &Arc<Collection>,
        spec: &IndexSpec,
        replace: bool,
    ) -> Result<Registered> {
        let _ddl = self.ddl.lock();
        let all = collection.all_indexes();
        for index in all.iter() {
            let theirs = index.spec();
            if *theirs == *spec {
                return Ok(match index.is_ready() {
                    true => Registered::Ready(index.clone()),
                    false => Registered::Building,
                });
            }
            if theirs.name == spec.name && !(replace && index.is_ready()) {
                return Err(Error::new(
                    Code::IndexOptionsConflict,
                    format!(
                        "An existing index has the same name as the requested index. Requested \
                         index: {}, existing index: {}",
                        spec.document.as_doc().to_display(),
                        theirs.document.as_doc().to_display()
                    ),
                ));
            }
        }
        if all.len() >= MAX_INDEXES {
            return Err(Error::new(
                Code::CannotCreateIndex,
                format!(
                    "add index fails, too many indexes for {} key:{}",
                    collection.namespace(),
                    spec.key.as_doc().to_display()
                ),
            ));
        }
        let index = Arc::new(Index::new(
            self.fresh_id()?,
            spec.clone(),
            false,
            &Arrays::default(),
        )?);
        let _alone = collection.ddl.write();
        if collection.is_dropped() {
            return Err(dropped(collection));
        }
        // What is to be replaced goes when the build ends.
        let empty = collection.count() == 0 && !replace;
        if empty {
            index.set_ready();
        }
        let mut indexes = (*collection.all_indexes()).clone();
        indexes.push(index.clone());
        self.save_indexes(collection, &indexes)?;
        collection.set_indexes(indexes);
        Ok(if empty {
            Registered::Ready(index)
        } else {
            Registered::New(index)
        })
    }

    fn save_indexes(&self, collection: &Collection, indexes: &[Arc<Index>]) -> Result<()> {
        let entry = Inner::entry(collection, indexes);
        self.commit_ddl(|batch| {
            batch.put(Space::Meta, keys::next_id(), self.next_id_bytes());
            let key = keys::catalog(collection.id);
            batch.put(Space::Meta, key, entry.to_doc().into_bytes());
            Ok(())
        })
    }

    /// Scans, and makes the index ready or takes it away again.
    pub(crate) fn finish_index(
        &self,
        collection: &Arc<Collection>,
        index: &Arc<Index>,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let scanned = self.scan(collection, index, interrupt);
        collection.commit.lock().dirty.remove(&index.id);
        let _ddl = self.ddl.lock();
        let _alone = collection.ddl.write();
        if collection.is_dropped() {
            return Err(dropped(collection));
        }
        let result = match index.build_failure() {
            Some(e) => Err(e),
            None => scanned,
        };
        if !collection.all_indexes().iter().any(|i| i.id == index.id) {
            // drop_index was faster.
            return Err(index
                .build_failure()
                .unwrap_or_else(|| Error::new(Code::IndexBuildAborted, "the index was dropped")));
        }
        if let Err(e) = result {
            if !self.closed.load(SeqCst) && self.remove_index(collection, index).is_err() {
                // A full disk: later. The build's own error is what the client wants to know.
                let left = (collection.clone(), index.clone());
                self.failed_builds.lock().push(left);
            }
            return Err(e);
        }
        index.set_ready();
        let name = &index.spec().name;
        let (gone, rest): (Vec<_>, Vec<_>) = collection
            .all_indexes()
            .iter()
            .cloned()
            .partition(|i| i.id != index.id && i.spec().name == *name);
        self.swap_indexes(collection, rest, &gone)
    }

    fn scan(
        &self,
        collection: &Arc<Collection>,
        index: &Arc<Index>,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let mut low = keys::prefix(collection.id).to_vec();
        loop {
            interrupt.check()?;
            self.check_open()?;
            if let Some(e) = index.build_failure() {
                return Err(e);
            }
            let snapshot = {
                let mut state = collection.commit.lock();
                state.dirty.insert(index.id, Default::default());
                EngineSnapshot::new(self.engine()?)
            };
            let slice = read_slice(&snapshot, collection, index, low.clone())?;
            drop(snapshot);
            let Some(last) = slice.records.last() else {
                return Ok(());
            };
            low = keys::join(collection.id, last);
            low.push(0);
            self.write_slice(collection, index, &slice)?;
        }
    }

    fn write_slice(
        &self,
        collection: &Collection,
        index: &Arc<Index>,
        slice: &Slice,
    ) -> Result<()> {
        let engine = self.engine()?;
        self.admit(&engine, slice.entries.iter().map(|e| e.key.len() * 2).sum())?;
        let owner = self.next_owner();
        let mut latches = Vec::new();
        if index.unique() {
            latches.extend(
                slice
                    .entries
                    .iter()
                    .map(|e| latch::unique_hash(&keys::join(index.id, &e.key))),
            );
            latches.sort_unstable();
            latches.dedup();
            for hash in &latches {
                self.latches.lock(*hash, owner);
            }
        }
        let result = self.write_latched(&engine, collection, index, slice);
        for hash in latches {
            self.latches.unlock(hash);
        }
        result
    }

    fn write_latched(
        &self,
        engine: &Arc<crate::engine::Engine>,
        collection: &Collection,
        index: &Arc<Index>,
        slice: &Slice,
    ) -> Result<()> {
        let _gate = self.gate.read();
        let state = collection.commit.lock();
        let written = state.dirty.get(&index.id);
        let mut batch = engine.batch(slice.entries.len() + 1);
        let mut seen: HashMap<&[u8], usize> = HashMap::new();
        let mut staged = 0;
        for e in &slice.entries {
            let Some(record) = slice.records.get(e.record) else {
                continue;
            };
            if written.is_some_and(|w| w.contains(&**record)) {
                continue;
            }
            if index.unique() {
                let in_slice = seen.insert(&e.key, e.record).is_some_and(|r| r != e.record);
                if in_slice || taken_by_other(engine, index, &e.key, record)? {
                    return Err(duplicate(collection, index, &e.key, &e.bits));
                }
            }
            let (key, value) = entry_of(index, &e.key, &e.bits, record);
            batch.put(Space::Index, key, value);
            staged += 1;
        }
        let mut arrays = slice.arrays.clone();
        index.multikey().widen(&mut arrays);
        let widened = index.multikey().widens(&arrays.masks, &arrays.paths);
        for (key, value) in arrays.entries(index.id).filter(|_| widened) {
            batch.put(Space::Meta, key, value);
            staged += 1;
        }
        if staged > 0 {
            batch.commit().inspect_err(|_| self.write_failed())?;
            self.journal.committed();
        }
        index.multikey().saved(&arrays);
        Ok(())
    }

    /// Runs the builds that a crash interrupted.
    pub(crate) fn resume_builds(&self) {
        let all: Vec<Arc<Collection>> = self.names.read().values().cloned().collect();
        for collection in all {
            for index in collection.all_indexes().iter().filter(|i| !i.is_ready()) {
                // A build that fails takes the index away; there is no client to tell.
                let _ = self.finish_index(&collection, index, &UntilClosed(self));
            }
        }
    }
}

struct UntilClosed<'a>(&'a Inner);

impl Interrupt for UntilClosed<'_> {
    fn check(&self) -> Result<()> {
        self.0.check_open()
    }
}

fn read_slice(
    snapshot: &EngineSnapshot,
    collection: &Collection,
    index: &Index,
    low: Vec<u8>,
) -> Result<Slice> {
    let mut docs = snapshot.range(Space::Docs, low, keys::end_of(collection.id, &[]));
    let mut slice = Slice::default();
    let mut set = KeySet::default();
    let mut bytes = 0;
    while slice.records.len() < SLICE_DOCS
        && slice.entries.len() < SLICE_DOCS
        && bytes < SLICE_BYTES
    {
        let Some((key, doc)) = docs.next()? else {
            break;
        };
        bytes += doc.len();
        index.key_set(Doc::new(&doc), &mut set)?;
        let record = slice.records.len();
        let record_key = key.slice(4.min(key.len())..);
        for (key, bits) in set.iter() {
            keys::check_len(&keys::join(index.id, key), "an index key")?;
            slice.entries.push(Entry {
                record,
                key: key.to_vec(),
                bits: bits.to_vec(),
            });
        }
        if let Some(keys) = set.keys() {
            slice.arrays.add(keys);
        }
        slice.records.push(record_key);
    }
    Ok(slice)
}
