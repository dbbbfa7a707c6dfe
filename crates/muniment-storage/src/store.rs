//! The store: one data directory, opened once.

use crate::catalog::{CollectionOptions, IndexSpec};
use crate::collection::{Collection, Index};
use crate::snapshot::Snapshot;
use crate::writeset::WriteSet;
use muniment_query::Interrupt;
use muniment_value::Result;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How to open a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The data directory; created if it is not there.
    pub path: PathBuf,
    /// Block cache in bytes.
    pub cache_bytes: u64,
    /// How often the journal is flushed to the disk (1–500 ms, default 100).
    pub journal_commit_interval: Duration,
}

/// Identifies a commit for [`Store::wait_journaled`]; later commits are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitId(pub u64);

/// Measured counters of the journal.
#[derive(Clone, Copy, Debug, Default)]
pub struct JournalStats {
    /// Write sets committed.
    pub commits: u64,
    /// fdatasync calls on the journal.
    pub syncs: u64,
    /// Microseconds spent in them.
    pub sync_micros: u64,
    /// Waits for durability that were served.
    pub waits: u64,
}

/// Measured figures of the engine for serverStatus.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreStats {
    /// Block cache: used bytes.
    pub cache_used: u64,
    /// Block cache: capacity.
    pub cache_capacity: u64,
    /// Bytes in memtables.
    pub memtable_bytes: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// The journal.
    pub journal: JournalStats,
}

/// An open data directory.
pub struct Store {
    _private: (),
}

impl Store {
    /// Opens or creates the directory, locks it, cuts a torn journal tail, finishes drops and
    /// restarts index builds that a crash interrupted.
    ///
    /// # Errors
    /// 98 DBPathInUse naming the other process; 301 DataCorruptionDetected naming file and
    /// offset; I/O errors.
    pub fn open(options: StoreOptions) -> Result<Arc<Store>> {
        let _ = options;
        todo!()
    }

    /// A snapshot of now.
    pub fn snapshot(&self) -> Snapshot {
        todo!()
    }

    /// The collection `db.name`, if it exists.
    pub fn collection(&self, namespace: &str) -> Option<Arc<Collection>> {
        let _ = namespace;
        todo!()
    }

    /// The collections of a database, sorted by name.
    pub fn collections(&self, db: &str) -> Vec<Arc<Collection>> {
        let _ = db;
        todo!()
    }

    /// The databases that have a collection, sorted.
    pub fn databases(&self) -> Vec<String> {
        todo!()
    }

    /// Creates a collection with its `_id_` index. Namespace rules are the caller's.
    ///
    /// # Errors
    /// 48 NamespaceExists; 13297 DatabaseDifferCase.
    pub fn create_collection(
        &self,
        namespace: &str,
        options: CollectionOptions,
    ) -> Result<Arc<Collection>> {
        let _ = (namespace, options);
        todo!()
    }

    /// Drops a collection at once; its space is reclaimed behind the client's back. False if
    /// there is none.
    ///
    /// # Errors
    /// I/O errors.
    pub fn drop_collection(&self, namespace: &str) -> Result<bool> {
        let _ = namespace;
        todo!()
    }

    /// Renames, dropping the target in the same atomic step if `drop_target`.
    ///
    /// # Errors
    /// 26 NamespaceNotFound, 48 NamespaceExists.
    pub fn rename_collection(&self, from: &str, to: &str, drop_target: bool) -> Result<()> {
        let _ = (from, to, drop_target);
        todo!()
    }

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
        let _ = (collection, spec, interrupt);
        todo!()
    }

    /// Drops an index by name.
    ///
    /// # Errors
    /// 27 IndexNotFound; 72 InvalidOptions for `_id_`.
    pub fn drop_index(&self, collection: &Arc<Collection>, name: &str) -> Result<()> {
        let _ = (collection, name);
        todo!()
    }

    /// collMod: replaces the specification of one index (TTL, hidden).
    ///
    /// # Errors
    /// 27 IndexNotFound.
    pub fn modify_index(&self, collection: &Arc<Collection>, spec: IndexSpec) -> Result<()> {
        let _ = (collection, spec);
        todo!()
    }

    /// collMod: replaces the collection's options.
    ///
    /// # Errors
    /// 26 NamespaceNotFound if it was dropped meanwhile.
    pub fn modify_options(
        &self,
        collection: &Arc<Collection>,
        options: CollectionOptions,
    ) -> Result<()> {
        let _ = (collection, options);
        todo!()
    }

    /// Begins a write set on a collection (shared against DDL).
    ///
    /// # Errors
    /// 26 NamespaceNotFound if it was dropped; 14031 OutOfDiskSpace while the disk is full;
    /// waits while fsyncLock is held.
    pub fn write_set<'s>(&'s self, collection: &Arc<Collection>) -> Result<WriteSet<'s>> {
        let _ = collection;
        todo!()
    }

    /// Returns once the commit is on the disk: one fdatasync serves all who wait.
    ///
    /// # Errors
    /// I/O errors: the write is visible but its durability unknown.
    pub fn wait_journaled(&self, commit: CommitId) -> Result<()> {
        let _ = commit;
        todo!()
    }

    /// The newest commit.
    pub fn last_commit(&self) -> CommitId {
        todo!()
    }

    /// Flushes the journal to the disk now.
    ///
    /// # Errors
    /// I/O errors.
    pub fn sync(&self) -> Result<()> {
        todo!()
    }

    /// Changes the journal's flush interval at run time.
    pub fn set_journal_commit_interval(&self, interval: Duration) {
        let _ = interval;
        todo!()
    }

    /// fsyncLock: blocks writers after a sync; locks nest.
    ///
    /// # Errors
    /// I/O errors of the sync.
    pub fn lock_writes(&self) -> Result<u32> {
        todo!()
    }

    /// fsyncUnlock: returns the depth that remains.
    ///
    /// # Errors
    /// 20 IllegalOperation when not locked.
    pub fn unlock_writes(&self) -> Result<u32> {
        todo!()
    }

    /// Full check of a collection: every document parses, every index entry points to a document
    /// that has that key, every key of every document is in the index, counts agree. Returns
    /// what `validate` replies: `{nrecords, nIndexes, keysPerIndex, valid, errors, warnings,
    /// indexDetails, …}`.
    ///
    /// # Errors
    /// Only what keeps the check from running.
    pub fn validate(
        &self,
        collection: &Arc<Collection>,
        full: bool,
        interrupt: &dyn Interrupt,
    ) -> Result<muniment_value::DocBuf> {
        let _ = (collection, full, interrupt);
        todo!()
    }

    /// Approximate bytes that a collection's documents take on disk.
    pub fn storage_bytes(&self, collection: &Collection) -> u64 {
        let _ = collection;
        todo!()
    }

    /// Approximate bytes that an index takes on disk.
    pub fn index_bytes(&self, index: &Index) -> u64 {
        let _ = index;
        todo!()
    }

    /// Measured figures.
    pub fn stats(&self) -> StoreStats {
        todo!()
    }

    /// Syncs and stops the background threads. Later calls fail with 91 ShutdownInProgress.
    ///
    /// # Errors
    /// I/O errors of the last sync.
    pub fn close(&self) -> Result<()> {
        todo!()
    }
}
