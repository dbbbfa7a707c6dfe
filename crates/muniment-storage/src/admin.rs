//! fsyncLock and sizes.

use crate::collection::Collection;
use crate::engine::Space;
use crate::index::Index;
use crate::store::Store;
use muniment_value::{Code, Error, Result};
use parking_lot::{ArcRwLockWriteGuard, RawRwLock};

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
        share(collection.data_bytes(), all, on_disk)
    }

    /// Approximate bytes that an index takes on disk: the index tables' share by the number of
    /// documents.
    pub fn index_bytes(&self, index: &Index) -> u64 {
        if index.is_id() {
            return 0;
        }
        let (mut all, mut own) = (0u64, 0u64);
        for c in self.inner.names.read().values() {
            for i in c.all_indexes().iter().filter(|i| !i.is_id()) {
                all += c.count();
                if i.id == index.id {
                    own = c.count();
                }
            }
        }
        share(own, all, self.table_bytes(Space::Index))
    }
}

fn share(part: u64, whole: u64, of: u64) -> u64 {
    match whole {
        0 => 0,
        whole => (u128::from(part) * u128::from(of) / u128::from(whole)) as u64,
    }
}
