//! Online index builds.
//!
//! The index is registered first, alone with the collection, so that every write unit after that
//! maintains it. Then the documents are read in slices: a view tells which records there are; the
//! builder latches them, reads each one's newest version and commits the entries that they have.
//! A record that is written before its slice is read as it then is; one that is written later
//! has its entries put by its writer. Writers wait for the latches of one slice at most.
//!
//! An index may be built to take another's place, of the same name: that one goes in the commit
//! that makes the new one ready, and stays if the build fails.
//!
//! A crash leaves an index marked as building. Writers had maintained what was there, so the
//! build simply runs again over it.

use crate::catalog::{Entry, IndexEntry, IndexSpec, MAX_INDEXES};
use crate::collection::Collection;
use crate::commit::door::Opening;
use crate::commit::stage::Stage;
use crate::entries::entry_of;
use crate::index::{Index, KeySet};
use crate::latch;
use crate::multikey::Arrays;
use crate::store::{Inner, Store, UntilClosed};
use crate::transaction::Transaction;
use crate::unit::{duplicate, taken_by_other};
use bytes::Bytes;
use muniment_query::Interrupt;
use muniment_tree::{Direction, Range};
use muniment_value::{Code, Doc, Error, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// A slice ends at so many documents, or bytes of documents or of entries.
const SLICE_DOCS: usize = 500;
const SLICE_BYTES: usize = 4 << 20;

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
        collection.claim();
        self.build_index(collection, spec, false, interrupt)
    }

    /// As [`Store::create_index`], of a collection that the transaction has just made.
    ///
    /// # Errors
    /// As [`Store::create_index`]; 263 unless the transaction made the collection itself and has
    /// written nothing to it.
    pub fn create_index_in(
        &self,
        transaction: &Transaction,
        collection: &Arc<Collection>,
        spec: IndexSpec,
        interrupt: &dyn Interrupt,
    ) -> Result<Arc<Index>> {
        transaction.leave_to_index(collection)?;
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
        collection.claim();
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
        let opening = inner.door.opening()?;
        loop {
            match inner.register_index(collection, &spec, replace, opening, interrupt)? {
                Registered::Ready(index) => return Ok(index),
                Registered::New(index) => {
                    inner.finish_index(collection, &index, opening, interrupt)?;
                    return Ok(index);
                }
                // Another client builds the same index: its end is ours.
                Registered::Building => {
                    interrupt.check()?;
                    inner.door.check(opening)?;
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }
}

/// A build, and under which opening of the door it was begun.
pub(crate) type Begun = (Arc<Collection>, Arc<Index>, Opening);

pub(crate) enum Registered {
    Ready(Arc<Index>),
    Building,
    New(Arc<Index>),
}

/// For what has to be done whatever became of the operation.
struct Anyway;

impl Interrupt for Anyway {
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

impl Inner {
    pub(crate) fn register_index(
        &self,
        collection: &Arc<Collection>,
        spec: &IndexSpec,
        replace: bool,
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<Registered> {
        let _alone = self.exclusive(collection, opening, interrupt)?;
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
        // What is to be replaced goes when the build ends.
        let ready = collection.count() == 0 && !replace;
        let id = self.fresh_id()?;
        let mut entry = Inner::entry(collection, &all);
        entry.indexes.push(IndexEntry {
            id,
            ready,
            spec: spec.clone(),
        });
        let committed = self.commit_entry(collection.id, entry, None, opening, interrupt);
        let index = collection
            .all_indexes()
            .iter()
            .find(|i| i.id == id)
            .cloned();
        if let Err(e) = committed {
            if let Some(index) = index {
                // It is there, though not for certain: nobody will build it.
                let left = (collection.clone(), index, opening);
                self.failed_builds.lock().push(left);
            }
            return Err(e);
        }
        let index = index.ok_or_else(|| Error::internal("a new index is not there"))?;
        Ok(match ready {
            true => Registered::Ready(index),
            false => Registered::New(index),
        })
    }

    /// Scans, and makes the index ready or takes it away again. Where the door is closed meanwhile
    /// the index is left as it is: whoever is primary next builds it.
    pub(crate) fn finish_index(
        &self,
        collection: &Arc<Collection>,
        index: &Arc<Index>,
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let scanned = self.scan(collection, index, opening, interrupt);
        // Not by the operation: its end must not leave the index half-built.
        let _alone = self.exclusive(collection, opening, &Anyway)?;
        self.door.check(opening)?;
        let result = match index.build_failure() {
            Some(e) => Err(e),
            None => scanned,
        };
        let all = collection.all_indexes();
        if !all.iter().any(|i| i.id == index.id) {
            // drop_index was faster.
            return Err(index
                .build_failure()
                .unwrap_or_else(|| Error::new(Code::IndexBuildAborted, "the index was dropped")));
        }
        let name = &index.spec().name;
        if let Err(e) = result {
            let rest: Vec<_> = all.iter().filter(|i| i.id != index.id).cloned().collect();
            if self.closed.load(SeqCst) {
                return Err(e);
            }
            match self.commit_indexes(collection, &rest, opening, &Anyway) {
                Err(e) if e.code() == Code::NotWritablePrimary => return Err(e),
                Err(_) => {
                    // A full disk: later. The build's own error is what the client wants to know.
                    let left = (collection.clone(), index.clone(), opening);
                    self.failed_builds.lock().push(left);
                }
                Ok(()) => {}
            }
            return Err(e);
        }
        let replaced = |i: &Arc<Index>| i.id != index.id && i.spec().name == *name;
        let rest: Vec<_> = all.iter().filter(|i| !replaced(i)).cloned().collect();
        let mut entry: Entry = Inner::entry(collection, &rest);
        for i in &mut entry.indexes {
            i.ready |= i.id == index.id;
        }
        self.commit_entry(collection.id, entry, None, opening, &Anyway)?;
        Ok(())
    }

    fn scan(
        &self,
        collection: &Arc<Collection>,
        index: &Arc<Index>,
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let mut after: Option<Bytes> = None;
        loop {
            interrupt.check()?;
            self.check_open()?;
            self.door.check(opening)?;
            if let Some(e) = index.build_failure() {
                return Err(e);
            }
            let records = self.read_slice(collection, after.as_deref())?;
            if records.is_empty() {
                return Ok(());
            }
            let done = self.write_slice(collection, index, &records, opening, interrupt)?;
            after = records.get(done.saturating_sub(1)).cloned();
        }
    }

    /// The record keys of the next slice.
    fn read_slice(&self, collection: &Collection, after: Option<&[u8]>) -> Result<Vec<Bytes>> {
        let range = Range {
            low: after.map_or_else(Bytes::new, |key| Bytes::from([key, &[0]].concat())),
            high: None,
        };
        let view = self.snapshot();
        let docs = view.raw_range(collection.id, range, Direction::Forward);
        let mut docs = docs.ok_or_else(crate::view::closed)?;
        let (mut records, mut bytes) = (Vec::new(), 0);
        while records.len() < SLICE_DOCS && bytes < SLICE_BYTES {
            let Some((key, doc)) = docs.next()? else {
                break;
            };
            bytes += doc.len();
            records.push(key);
        }
        Ok(records)
    }

    /// Commits the entries of the first records of a slice, as many as fit; how many.
    pub(crate) fn write_slice(
        &self,
        collection: &Arc<Collection>,
        index: &Arc<Index>,
        records: &[Bytes],
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<usize> {
        // No drop comes in between: behind it there is nothing to commit into.
        let _shared = collection.ddl.share(interrupt)?;
        if collection.is_dropped() || index.is_dropped() {
            return Err(index
                .build_failure()
                .unwrap_or_else(|| Error::new(Code::IndexBuildAborted, "the index was dropped")));
        }
        let mut latches = Latched {
            store: self,
            owner: self.next_owner(),
            held: Vec::new(),
        };
        let hashes = records.iter().map(|r| latch::record_hash(collection.id, r));
        latches.take(hashes.collect(), interrupt)?;
        let mut arrays = Arrays::default();
        let mut set = KeySet::default();
        // (record, key, bits) of every entry.
        let mut found: Vec<(usize, Vec<u8>, Vec<u8>)> = Vec::new();
        let (mut done, mut bytes) = (0, 0);
        for (i, record) in records.iter().enumerate() {
            if bytes > SLICE_BYTES {
                break;
            }
            done = i + 1;
            let Some(doc) = self.newest(collection.id, record)? else {
                continue; // deleted since
            };
            index.key_set(Doc::new(&doc), &mut set)?;
            bytes += set
                .iter()
                .map(|(k, b)| k.len() + b.len() + 64)
                .sum::<usize>();
            found.extend(set.iter().map(|(k, b)| (i, k.to_vec(), b.to_vec())));
            if let Some(keys) = set.keys() {
                arrays.add(keys);
            }
        }
        let mut stage = Stage::new(opening);
        if index.unique() {
            let hashes = found
                .iter()
                .map(|(_, k, _)| latch::unique_hash(index.id, k));
            latches.take(hashes.collect(), interrupt)?;
            let mut seen: HashMap<&[u8], usize> = HashMap::new();
            for (i, key, bits) in &found {
                let record = records.get(*i).map(|r| &**r).unwrap_or_default();
                let in_slice = seen.insert(key, *i).is_some_and(|other| other != *i);
                if in_slice || taken_by_other(self, &mut stage, index, key, record)? {
                    return Err(duplicate(collection, index, key, bits));
                }
            }
        }
        if found.is_empty() {
            return Ok(done);
        }
        let entries: Vec<(Vec<u8>, Vec<u8>)> = found
            .iter()
            .filter_map(|(i, key, bits)| Some(entry_of(index, key, bits, records.get(*i)?)))
            .collect();
        index.multikey().widen(&arrays);
        let placed = stage
            .log
            .entries(collection.id, index.id, &entries, &arrays.to_bytes());
        for (key, value) in placed {
            let (key, value) = (Stage::logged(key), Stage::logged(value));
            stage.put(index.id, key, Some(value), false);
        }
        self.commit(stage, interrupt, |_| collection.touch())?;
        Ok(done)
    }

    /// Runs the builds that a crash interrupted, or the end of another primary.
    pub(crate) fn resume_builds(
        &self,
        builds: Vec<(Arc<Collection>, Arc<Index>)>,
        opening: Opening,
    ) {
        for (collection, index) in builds {
            // A build that fails takes the index away; there is no client to tell.
            let _ = self.finish_index(&collection, &index, opening, &UntilClosed(self));
        }
    }
}

/// The latches of a slice.
struct Latched<'s> {
    store: &'s Inner,
    owner: u64,
    held: Vec<u64>,
}

impl Latched<'_> {
    /// Takes all of them in the order of their hashes.
    fn take(&mut self, mut hashes: Vec<u64>, interrupt: &dyn Interrupt) -> Result<()> {
        hashes.sort_unstable();
        hashes.dedup();
        for hash in hashes {
            let latches = &self.store.latches;
            if latches.lock(hash, self.owner, interrupt)? == latch::Tried::Taken {
                self.held.push(hash);
            }
        }
        Ok(())
    }
}

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        for hash in self.held.drain(..) {
            self.store.latches.unlock(hash);
        }
    }
}
