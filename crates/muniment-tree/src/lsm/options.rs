//! The options that an engine is opened with.

use muniment_io::{Clock, Disk, OsDisk, Space, SystemClock, Timestamp};
use muniment_value::Result;
use std::path::PathBuf;
use std::sync::Arc;

/// A piece of a compaction takes at most this part of the disk.
const PIECES: u64 = 64;

/// Settings of [`LsmTrees`](super::LsmTrees). [`LsmOptions::new`] has good ones for a server.
#[derive(Clone)]
pub struct LsmOptions {
    /// The directory of the files, which belongs to the engine alone and is created if it is missing.
    pub dir: PathBuf,
    /// The disk under it.
    pub disk: Arc<dyn Disk>,
    /// The clock that decides when a put-off job is due.
    pub clock: Arc<dyn Clock>,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// To which size the caller lets memtables grow, approximately; the sizes of levels follow from it. (The
    /// engine does not seal memtables by itself.)
    pub memtable_bytes: u64,
    /// Bytes of a data block before compression.
    pub block_bytes: usize,
    /// Bytes of a table in the upper levels; deeper ones have larger tables.
    pub table_bytes: u64,
    /// After this many bytes a table that is being written is synced, so that no sync takes long.
    pub sync_bytes: u64,
    /// How many fresh runs may accumulate before they are merged.
    pub fresh_runs: usize,
    /// How many times larger a level is than the one above it.
    pub ratio: u64,
    /// How many threads compact. Flushes have another thread.
    pub compactors: usize,
    /// Called before a cut becomes the persisted one: the caller's log, from which recovery continues after
    /// the cut, must be durable up to it. An error postpones the flush.
    pub before_persist: Arc<dyn Fn(Timestamp) -> Result<()> + Send + Sync>,
    /// Whether the engine has threads. Without them its owner calls [`Trees::work`](crate::Trees::work), as a
    /// simulator with one thread does.
    pub background: bool,
}

impl LsmOptions {
    /// Options for a server, on the machine's own disk.
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

    /// The target size of a table in a level (0: the tables that flushes write).
    pub(crate) fn target(&self, level: usize) -> u64 {
        self.table_bytes << level.saturating_sub(2).min(3)
    }

    /// The size from which on a table is worth a file of its own. A smaller table is merged with its
    /// neighbours when possible, and not moved as it is from the flush that wrote it.
    pub(crate) fn worth(&self, level: usize) -> u64 {
        self.target(level) / 8
    }

    /// The size from which on a table ends where its tree ends. For flushes it is small: a table with only
    /// one growing tree can be moved as it is, but not one that reaches into the next tree.
    pub(crate) fn parts(&self, level: usize) -> u64 {
        match level {
            0 => self.target(level) / 64,
            _ => self.worth(level),
        }
    }

    /// The size of a piece of a compaction on a disk with this much space: a part of the disk, but small
    /// enough to leave room for others.
    pub(crate) fn piece(&self, space: Space) -> u64 {
        let least = self.least_piece();
        let part = space.total / PIECES;
        let size = part.clamp(least, self.table_bytes.max(least));
        size.min(space.free / 4).max(least)
    }

    /// The size of the smallest piece.
    pub(crate) fn least_piece(&self) -> u64 {
        4 * self.block_bytes as u64
    }

    /// How many bytes a level may have before its tables are moved on.
    pub(crate) fn capacity(&self, level: usize) -> u64 {
        let first = (4 * self.memtable_bytes).max(4 * self.table_bytes);
        let factor = self.ratio.saturating_pow(level.saturating_sub(1) as u32);
        first.saturating_mul(factor)
    }
}
