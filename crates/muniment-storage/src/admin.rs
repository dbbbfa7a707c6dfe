//! fsyncLock and sizes.

use crate::collection::Collection;
use crate::commit::locked;
use crate::gate::{Alone, LOOK};
use crate::index::Index;
use crate::store::Store;
use crate::view::{Direction, KeyRange};
use muniment_query::Interrupt;
use muniment_tree::{Hold, TreeId};
use muniment_value::{Code, Error, Result};
use parking_lot::{ArcMutexGuard, RawMutex};
use std::collections::HashSet;
use std::sync::atomic::Ordering::SeqCst;

/// How often writes are locked, and the lock itself.
#[derive(Default)]
pub(crate) struct FsyncLock {
    depth: u32,
    held: Option<Held>,
}

/// What it keeps: no commit, no change of the log's files, none of the trees'.
struct Held {
    _gate: Alone,
    _still: ArcMutexGuard<RawMutex, ()>,
    _trees: Hold,
}

impl FsyncLock {
    /// How deep it is locked.
    pub fn depth(&self) -> u32 {
        self.depth
    }
}

impl Store {
    /// fsyncLock: blocks writers after a sync, and keeps every file as it is, so that a copy of
    /// the directory made file by file is a right one; locks nest. Returns the depth.
    ///
    /// # Errors
    /// I/O errors of the sync; what `interrupt` says while it waits.
    pub fn lock_writes(&self, interrupt: &dyn Interrupt) -> Result<u32> {
        self.inner.check_open()?;
        let inner = &self.inner;
        let mut lock = locked(&inner.fsync_lock, interrupt)?;
        if lock.held.is_none() {
            let still = loop {
                match inner.still.try_lock_arc_for(LOOK) {
                    Some(still) => break still,
                    None => interrupt.check()?,
                }
            };
            let gate = inner.gate.own(interrupt)?;
            let trees = inner.trees.hold(&|| interrupt.check())?;
            inner.log()?.settle()?;
            lock.held = Some(Held {
                _gate: gate,
                _still: still,
                _trees: trees,
            });
        }
        lock.depth += 1;
        inner.fsync_depth.store(lock.depth, SeqCst);
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
        self.inner.fsync_depth.store(lock.depth, SeqCst);
        if lock.depth == 0 {
            lock.held = None;
        }
        Ok(lock.depth)
    }

    /// How deep writes are locked: 0 when they are not.
    pub fn write_lock_depth(&self) -> u32 {
        // Not the lock's own: who is about to lock may hold it for long.
        self.inner.fsync_depth.load(SeqCst)
    }

    /// Bytes that a collection and its indexes take in files of the trees: what is in memory and in
    /// the log alone is not in it.
    pub fn file_bytes(&self, collection: &Collection) -> u64 {
        let indexes = collection.indexes();
        let ids = indexes
            .iter()
            .map(|i| i.id)
            .filter(|id| *id != collection.id);
        let trees = [collection.id].into_iter().chain(ids);
        trees
            .map(|id| self.inner.trees.tree_bytes(TreeId(id)))
            .sum()
    }

    /// Approximate bytes that a collection's documents take on disk.
    pub fn storage_bytes(&self, collection: &Collection) -> u64 {
        match self.inner.trees.tree_bytes(TreeId(collection.id)) {
            // All are in memory and in the log, as they are.
            0 => collection.data_bytes(),
            bytes => bytes,
        }
    }

    /// Approximate bytes that an index takes; before there are tables, the entries' own size,
    /// estimated from the first of them. The `_id` index takes none where documents are clustered
    /// by `_id`.
    pub fn index_bytes(&self, collection: &Collection, index: &Index) -> u64 {
        if !collection.maintains(index) {
            return 0;
        }
        match self.inner.trees.tree_bytes(TreeId(index.id)) {
            0 => self.sampled_bytes(collection, index).unwrap_or(0),
            bytes => bytes,
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
