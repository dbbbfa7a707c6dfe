//! What an engine is opened with.

use muniment_io::{Clock, Disk, OsDisk, Space, SystemClock, Timestamp};
use muniment_value::Result;
use std::path::PathBuf;
use std::sync::Arc;

/// A piece of a compaction is one of so many parts of the disk, at most.
const PIECES: u64 = 64;

/// Settings of [`LsmTrees`](super::LsmTrees). [`LsmOptions::new`] has good ones for a server.
#[derive(Clone)]
pub struct LsmOptions {
    /// Where the files are: a directory of the engine's own, made if it is not there.
    pub dir: PathBuf,
    /// The disk under it.
    pub disk: Arc<dyn Disk>,
    /// Says when what was put off is due.
    pub clock: Arc<dyn Clock>,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// How large the caller lets a memtable grow, about: the sizes of levels follow from it. (The
    /// engine seals nothing by itself.)
    pub memtable_bytes: u64,
    /// Bytes of a data block before compression.
    pub block_bytes: usize,
    /// Bytes of a table in the upper levels; deeper ones have larger tables.
    pub table_bytes: u64,
    /// A table that is being written is synced after so many bytes, so that no sync is long.
    pub sync_bytes: u64,
    /// How many runs of flushes gather before they are merged.
    pub fresh_runs: usize,
    /// How many times larger a level is than the one above it.
    pub ratio: u64,
    /// Threads that compact. A flush has a thread of its own.
    pub compactors: usize,
    /// Called before a cut is made the persisted one: whatever holds what follows the cut has to
    /// be durable up to it. An error puts the flush off.
    pub before_persist: Arc<dyn Fn(Timestamp) -> Result<()> + Send + Sync>,
    /// False: no threads. The owner of the engine calls [`Trees::work`](crate::Trees::work), as a
    /// simulator with one thread does.
    pub background: bool,
}

impl LsmOptions {
    /// For a server, on the machine's own disk.
    pub fn new(dir: impl Into<PathBuf>) -> LsmOptions {
        LsmOptions {
            dir: dir.into(),
            disk: Arc::new(OsDisk),
            clock: Arc::new(SystemClock),
            cache_bytes: 256 << 20,
            memtable_bytes: 64 << 20,
            block_bytes: 8 << 10,
            table_bytes: 32 << 20,
            sync_bytes: 4 << 20,
            fresh_runs: 4,
            ratio: 10,
            compactors: 2,
            before_persist: Arc::new(|_| Ok(())),
            background: true,
        }
    }

    /// Bytes of a table of a level (0: what flushes write).
    pub(crate) fn target(&self, level: usize) -> u64 {
        self.table_bytes << level.saturating_sub(2).min(3)
    }

    /// Bytes from which a table of a level is worth a file of its own: a smaller one is merged with
    /// its neighbours when there is an occasion, and not moved from the flush that wrote it.
    pub(crate) fn worth(&self, level: usize) -> u64 {
        self.target(level) / 8
    }

    /// Bytes from which a table ends with its tree. In a flush few suffice: of a tree that grows at
    /// its end a table of its own can be moved as it is, but not one that reaches into the next.
    pub(crate) fn parts(&self, level: usize) -> u64 {
        match level {
            0 => self.target(level) / 64,
            _ => self.worth(level),
        }
    }

    /// Bytes of a piece of a compaction, where a disk of so many bytes has so many free: a part of the
    /// disk, and no more than leaves room for others.
    pub(crate) fn piece(&self, space: Space) -> u64 {
        let least = self.least_piece();
        let part = space.total / PIECES;
        let size = part.clamp(least, self.table_bytes.max(least));
        size.min(space.free / 4).max(least)
    }

    /// Bytes of the smallest piece.
    pub(crate) fn least_piece(&self) -> u64 {
        4 * self.block_bytes as u64
    }

    /// Bytes that a level may have before its tables move on.
    pub(crate) fn capacity(&self, level: usize) -> u64 {
        let first = (4 * self.memtable_bytes).max(4 * self.table_bytes);
        let factor = self.ratio.saturating_pow(level.saturating_sub(1) as u32);
        first.saturating_mul(factor)
    }
}
