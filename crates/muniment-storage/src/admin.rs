//! fsyncLock and sizes.

use crate::collection::Collection;
use crate::engine::Space;
use crate::index::Index;
use crate::snapshot::{Direction, KeyRange};
use crate::store::Store;
use muniment_value::{Code, Error, Result};
use parking_lot::{ArcRwLockWriteGuard, RawRwLock};
use std::collections::HashSet;

/// How often writes are locked, and the lock itself.
#[derive(Default)]
pub(crate) struct FsyncLock {
    depth: u32,
    held: Option<ArcRwLockWriteGuard<RawRwLock, ()>>,
}

impl Store {
    /// fsyncLock: blocks writers after a sync; locks nest. Returns the depth.
    ///
    /// # Errors
    /// I/O errors of the sync.
    pub fn lock_writes(&self) -> Result<u32> {
        self.inner.check_open()?;
        let mut lock = self.inner.fsync_lock.lock();
        if lock.held.is_none() {
            let guard = self.inner.gate.write_arc();
            self.inner.journal.sync_now()?;
            lock.held = Some(guard);
        }
        lock.depth += 1;
        Ok(lock.depth)
    }

    /// fsyncUnlock: returns the depth that remains.
    ///
    /// # Errors
    /// 20 IllegalOperation when not locked.
    pub fn unlock_writes(&self) -> Result<u32> {
        let mut lock = self.inner.fsync_lock.lock();
        if lock.depth == 0 {
            return Err(Error::new(
                Code::IllegalOperation,
                "fsyncUnlock called when not locked",
            ));
        }
        lock.depth -= 1;
        if lock.depth == 0 {
            lock.held = None;
        }
        Ok(lock.depth)
    }

    /// How deep writes are locked: 0 when they are not.
    pub fn write_lock_depth(&self) -> u32 {
        self.inner.fsync_lock.lock().depth
    }

    fn table_bytes(&self, space: Space) -> u64 {
        self.inner
            .engine()
            .map_or(0, |engine| engine.table_bytes(space))
    }

    /// Approximate bytes that a collection's documents take on disk: its share of the documents'
    /// tables by uncompressed size.
    pub fn storage_bytes(&self, collection: &Collection) -> u64 {
        let all: u64 = self
            .inner
            .names
            .read()
            .values()
            .map(|c| c.data_bytes())
            .sum();
        let on_disk = self.table_bytes(Space::Docs);
        if on_disk == 0 {
            // All are in memory and in the journal, as they are.
            return collection.data_bytes();
        }
        share(collection.data_bytes(), all, on_disk)
    }

    /// Approximate bytes that an index takes: the index tables' share by the number of documents;
    /// before there are tables, the entries' own size, estimated from the first of them. The
    /// `_id` index takes none where documents are clustered by `_id`.
    pub fn index_bytes(&self, index: &Index) -> u64 {
        if index.is_id() {
            return 0;
        }
        let (mut all, mut own, mut of) = (0u64, 0u64, None);
        for c in self.inner.names.read().values() {
            for i in c.all_indexes().iter().filter(|i| !i.is_id()) {
                all += c.count();
                if i.id == index.id {
                    own = c.count();
                    of = Some(c.clone());
                }
            }
        }
        match (self.table_bytes(Space::Index), of) {
            (0, Some(collection)) => self.sampled_bytes(&collection, index).unwrap_or(0),
            (on_disk, _) => share(own, all, on_disk),
        }
    }

    /// The size of an index's entries: exact for a few, extrapolated from them for many.
    fn sampled_bytes(&self, collection: &Collection, index: &Index) -> Result<u64> {
        let snapshot = self.snapshot();
        let range = KeyRange::all();
        let mut entries = snapshot.entries(collection, index, &range, Direction::Forward);
        let (mut bytes, mut records) = (0u64, HashSet::new());
        for _ in 0..SAMPLE {
            let Some(e) = entries.next()? else {
                return Ok(bytes);
            };
            bytes += (e.key.len() + e.record_key.len() + e.type_bits.len()) as u64;
            records.insert(e.record_key);
        }
        Ok(share(collection.count(), records.len() as u64, bytes))
    }
}

/// Entries that are read to estimate the size of an index.
const SAMPLE: usize = 1000;

fn share(part: u64, whole: u64, of: u64) -> u64 {
    match whole {
        0 => 0,
        whole => (u128::from(part) * u128::from(of) / u128::from(whole)) as u64,
    }
}
