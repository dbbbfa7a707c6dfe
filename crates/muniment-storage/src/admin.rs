//! fsyncLock and sizes.

use crate::collection::{Collection, news};
use crate::cuts::Held;
use crate::index::Index;
use crate::keys::KeyRange;
use crate::store::Store;
use crate::view::{Direction, Snapshot};
use crate::watch::Awaited;
use muniment_op::Interrupt;
use muniment_tree::{FileSizes, TreeId};
use muniment_value::{Code, Error, Result};
use std::cell::OnceCell;
use std::collections::HashSet;

impl Store {
    /// fsyncLock: blocks writers after a sync, and keeps every file as it is, so that a copy of the
    /// directory that is made file by file is consistent; locks nest. Returns the depth.
    ///
    /// # Errors
    /// I/O errors of the sync; what `interrupt` says while it waits.
    pub fn lock_writes(&self, interrupt: &dyn Interrupt) -> Result<u32> {
        self.inner.watch.check_open()?;
        let inner = &self.inner;
        let mut lock = inner.cuts.fsync_lock.lock_for(interrupt)?;
        // Background work that clears away makes way for the lock.
        inner.watch.stops.wake_all();
        if lock.held.is_none() {
            let still = inner.cuts.still.lock_arc_for(interrupt)?;
            let gate = inner.cuts.gate.own(interrupt)?;
            let trees = inner.trees.hold(interrupt)?;
            inner.journal.log()?.settle()?;
            lock.held = Some(Held {
                _gate: gate,
                _still: still,
                _trees: trees,
            });
        }
        lock.depth += 1;
        inner.cuts.set_fsync_depth(lock.depth);
        Ok(lock.depth)
    }

    /// fsyncUnlock: returns the depth that remains. Waits while an fsyncLock waits for writers.
    ///
    /// # Errors
    /// 20 IllegalOperation when not locked; what `interrupt` says while it waits.
    pub fn unlock_writes(&self, interrupt: &dyn Interrupt) -> Result<u32> {
        let mut lock = self.inner.cuts.fsync_lock.lock_for(interrupt)?;
        if lock.depth == 0 {
            return Err(Error::new(
                Code::IllegalOperation,
                "fsyncUnlock called when not locked",
            ));
        }
        lock.depth -= 1;
        self.inner.cuts.set_fsync_depth(lock.depth);
        if lock.depth == 0 {
            lock.held = None;
        }
        self.inner.watch.unlocked();
        Ok(lock.depth)
    }

    /// Waits until writes are not locked.
    ///
    /// # Errors
    /// 91 when the store is closed; what `interrupt` says.
    pub fn wait_for_unlock(&self, interrupt: &dyn Interrupt) -> Result<()> {
        let unlocked = || self.write_lock_depth() == 0;
        self.wait_for(Awaited::Unlocked, interrupt, unlocked)
    }

    /// How deep writes are locked: 0 when they are not.
    pub fn write_lock_depth(&self) -> u32 {
        self.inner.cuts.fsync_depth()
    }

    /// Bytes that a collection and its indexes take in files of the trees. What is only in memory and in
    /// the log does not count.
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
            // All documents are in memory and in the log, uncompressed.
            0 => collection.data_bytes(),
            bytes => bytes,
        }
    }

    /// Approximate bytes that an index takes; before there are tables, the entries' own size, estimated
    /// from the first of them. `_id_` takes none if documents are clustered by `_id`.
    ///
    /// # Errors
    /// What stops `operation`.
    pub fn index_bytes(
        &self,
        collection: &Collection,
        index: &Index,
        operation: &dyn Interrupt,
    ) -> Result<u64> {
        if !collection.maintains(index) {
            return Ok(0);
        }
        match self.inner.trees.tree_bytes(TreeId(index.id)) {
            0 => sampled_bytes(&self.snapshot(), collection, index, operation),
            bytes => Ok(bytes),
        }
    }

    /// About how many bytes the collections of a database take with their indexes, by
    /// [`Store::storage_bytes`] and [`Store::index_bytes`]. Only collections that were written since the
    /// last call are measured anew; if files have come or gone, all are.
    ///
    /// # Errors
    /// What stops `operation`.
    pub fn database_bytes(&self, db: &str, operation: &dyn Interrupt) -> Result<u64> {
        let files = self.inner.trees.file_sizes();
        let all = self.collections(db);
        let snapshot = OnceCell::new();
        let snapshot = || snapshot.get_or_init(|| self.snapshot());
        let mut sum = 0;
        for c in &all {
            let news = c.take_news(news::SIZE);
            let known = c.size_with(files.version).filter(|_| !news);
            sum += match known {
                Some(size) => size,
                None => {
                    let size = measure(c, &files, &snapshot, operation)
                        .inspect_err(|_| c.give_back_news(news::SIZE))?;
                    c.set_size(files.version, size);
                    size
                }
            };
        }
        Ok(sum)
    }
}

/// About how many bytes a collection takes with its indexes. A snapshot is made only if one is needed.
fn measure<'s>(
    collection: &Collection,
    files: &FileSizes,
    snapshot: &dyn Fn() -> &'s Snapshot,
    operation: &dyn Interrupt,
) -> Result<u64> {
    let documents = match files.of(TreeId(collection.id)) {
        0 => collection.data_bytes(),
        bytes => bytes,
    };
    let all = collection.indexes();
    let maintained = all.iter().filter(|i| collection.maintains(i));
    let indexes = maintained.map(|index| match files.of(TreeId(index.id)) {
        0 if collection.count() == 0 => Ok(0),
        0 => sampled_bytes(snapshot(), collection, index, operation),
        bytes => Ok(bytes),
    });
    indexes.sum::<Result<u64>>().map(|bytes| documents + bytes)
}

/// The size of an index's entries: exact for a few, extrapolated from them for many; 0 for a
/// damaged index.
///
/// # Errors
/// What stops `operation`.
fn sampled_bytes(
    snapshot: &Snapshot,
    collection: &Collection,
    index: &Index,
    operation: &dyn Interrupt,
) -> Result<u64> {
    let range = KeyRange::all();
    let mut entries = snapshot.entries(collection, index, &range, Direction::Forward);
    let (mut bytes, mut records) = (0u64, HashSet::new());
    for _ in 0..SAMPLE {
        let next = match entries.next(operation) {
            Ok(next) => next,
            // A damaged index has no known size.
            Err(_) => return operation.check().map(|()| 0),
        };
        let Some(e) = next else {
            return Ok(bytes);
        };
        bytes += (e.key.len() + e.record_key.len() + e.type_bits.len()) as u64;
        records.insert(e.record_key);
    }
    Ok(share(collection.count(), records.len() as u64, bytes))
}

/// Entries that are read to estimate the size of an index.
const SAMPLE: usize = 1000;

fn share(part: u64, whole: u64, of: u64) -> u64 {
    match whole {
        0 => 0,
        whole => (u128::from(part) * u128::from(of) / u128::from(whole)) as u64,
    }
}
