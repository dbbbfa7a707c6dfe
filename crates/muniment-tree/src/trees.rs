//! The trait that every engine implements.

use crate::views::Views;
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_op::{Event, Interrupt};
use muniment_value::{Error, Result};
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

/// A tree's number. Numbers are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u32);

/// The bytes of trees in files.
#[derive(Clone, Debug, Default)]
pub struct FileSizes {
    /// A number that is different for each set of files.
    pub version: u64,
    pub(crate) bytes: HashMap<TreeId, u64>,
}

impl FileSizes {
    /// The bytes of one tree: see [`Trees::tree_bytes`].
    pub fn of(&self, tree: TreeId) -> u64 {
        self.bytes.get(&tree).copied().unwrap_or(0)
    }
}

/// The direction of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// The keys from `low` (inclusive) to `high` (exclusive; `None`: to the end of the tree). The range is empty
/// if `low >= high`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Range {
    /// The first key that may be in the range.
    pub low: Bytes,
    /// The first key after the range.
    pub high: Option<Bytes>,
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// The tree.
    pub tree: TreeId,
    /// The key: any bytes, of any length.
    pub key: Bytes,
    /// The new value; `None` deletes.
    pub value: Option<Bytes>,
    /// The writer knows that the key has no value now: it never existed, or its newest version is a deletion.
    /// If such a key is put and deleted again in memory, and no view saw it in between, it leaves nothing
    /// behind. Only a put may promise this.
    pub fresh: bool,
}

/// The changes of one commit: each key at most once.
pub type Batch = Vec<Op>;

/// While this guard exists, the engine's files do not change: see [`Trees::hold`].
#[must_use]
pub struct Hold(#[allow(dead_code)] Option<Box<dyn Any + Send + Sync>>);

impl Hold {
    /// A hold with a guard that has to be dropped at its end.
    pub(crate) fn new(guard: impl Any + Send + Sync) -> Hold {
        Hold(Some(Box::new(guard)))
    }

    /// The hold of an engine that has no files.
    pub(crate) fn nothing() -> Hold {
        Hold(None)
    }
}

/// The present failures of background work.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The error of the last flush, if it failed. Memory is not freed then.
    pub flush: Option<Error>,
    /// The error of a compaction that is still to be done, or the damage of a table.
    pub compaction: Option<Error>,
    /// How many compactions have failed since the start.
    pub failures: u64,
}

/// A cursor over one range of one tree at one timestamp. It may be kept across flushes and compactions, and
/// an idle cursor pins no memtable for long: the engine reopens it at its position when the data that it
/// reads from was replaced.
pub trait Cursor: Send {
    /// The next key and value in the cursor's direction; `None` at the end, and again after it. A call that
    /// takes long, as over millions of deleted keys, asks `operation` now and then.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected naming file and offset; I/O errors. After such an error the cursor returns
    /// the same error again, so it never skips anything. Also the error of
    /// `operation`; the cursor then stays at its position, and another operation can go on with it.
    fn next(&mut self, operation: &dyn Interrupt) -> Result<Option<(Bytes, Bytes)>>;

    /// Jumps forward, in the cursor's direction, so that the next key is the first at or past `key`
    /// (ascending: `>= key`; descending: `<= key`). It never goes back. This is much cheaper than a new
    /// cursor if the target is near.
    fn seek(&mut self, key: &[u8]);
}

/// Measured figures of an engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    /// Bytes in memtables, including all overhead.
    pub memory: u64,
    /// Bytes in sealed memtables that are not yet on the disk. They are part of `memory`.
    pub sealed: u64,
    /// Bytes in memtables whose cut is not committed (see [`Trees::set_committed`]). They are part of
    /// `sealed`.
    pub uncommitted: u64,
    /// The number of sealed memtables that wait for their flush.
    pub sealed_count: usize,
    /// The number of those whose cut is not committed.
    pub uncommitted_count: usize,
    /// Approximately how many deletions are in memory and not sealed. The deleted data stays in files until
    /// then.
    pub deletions: u64,
    /// Sorted runs that no compaction has merged yet.
    pub fresh_runs: usize,
    /// Bytes of files.
    pub disk: u64,
    /// The bytes that are used in the block cache.
    pub cache_used: u64,
    /// The capacity of the block cache.
    pub cache_capacity: u64,
    /// The bytes that flushes have written to files since the start.
    pub flushed: u64,
    /// The bytes that compactions have written to files since the start.
    pub compacted: u64,
}

/// An engine: all trees of a server.
///
/// Rules for writing: several threads may call [`Trees::apply`] at once for different keys; for one key the
/// calls come one after another, in rising order of timestamps. [`Trees::seal`] is called while no `apply`
/// runs, with a cut that is at or above every timestamp applied so far and below every later one. A timestamp
/// becomes visible to new views ([`Views::advance`]) after everything up to it was applied.
pub trait Trees: Send + Sync {
    /// The engine's name in `--storageEngine` and serverStatus.
    fn name(&self) -> &'static str;

    /// True if flushed data survives the process.
    fn is_durable(&self) -> bool;

    /// The views, which tell at which timestamps there are readers. Versions that no view can read are
    /// dropped.
    fn views(&self) -> &Arc<Views>;

    /// The value of a key at a timestamp, which is that of the newest version at or below `at`.
    /// [`Timestamp::MAX`] reads the newest version of all, visible or not, and is for the holder of the key's
    /// latch. Every other `at` must be that of a [`View`](crate::View) that is alive.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected naming file and offset; I/O errors.
    fn get(&self, tree: TreeId, key: &[u8], at: Timestamp) -> Result<Option<Bytes>>;

    /// When the newest value of a key was written, visible or not; `None` if the key has no value.
    ///
    /// # Errors
    /// Those of [`Trees::get`].
    fn written(&self, tree: TreeId, key: &[u8]) -> Result<Option<Timestamp>> {
        let changed = self.changed(tree, key)?;
        Ok(changed.and_then(|(at, has_value)| has_value.then_some(at)))
    }

    /// When a key was last written or deleted, visible or not, and whether it has a value. `None` if it was
    /// never written, or was deleted and neither an older view nor a [`Writing`](crate::Writing) needs to
    /// know.
    ///
    /// # Errors
    /// Those of [`Trees::get`].
    fn changed(&self, tree: TreeId, key: &[u8]) -> Result<Option<(Timestamp, bool)>>;

    /// Opens a cursor, with the same rules for `at`. (A cursor at `MAX` may or may not see later writes.)
    fn cursor(&self, tree: TreeId, range: Range, at: Timestamp, dir: Direction) -> Box<dyn Cursor>;

    /// Writes the changes of a commit to memory, all with the timestamp `at`. An engine with files passes over a
    /// commit at or below the persisted cut: recovery applies it again, and the files have it.
    fn apply(&self, batch: Batch, at: Timestamp);

    /// Writes to memory what the caller adds to the commits up to `cut`, right before it seals there. Such changes are
    /// in no commit that recovery could apply again, so they are written even if `cut` is the persisted cut.
    fn apply_at_cut(&self, batch: Batch, cut: Timestamp);

    /// Ends the active memtable at `cut` and begins a new one. An empty memtable is not replaced, but the cut
    /// still counts: it becomes the persisted cut once everything that was sealed before is flushed.
    ///
    /// # Errors
    /// Those of the engine; the in-memory engine has none.
    fn seal(&self, cut: Timestamp) -> Result<()>;

    /// Writes everything that is sealed at committed cuts to the disk. Returns when it is durable and the
    /// persisted cut has moved. Background threads do this by themselves; this call waits for them, or does
    /// it. Data that is not committed ([`Trees::set_committed`]) stays in memory.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace; I/O errors. The sealed data stays in memory, and the flush is tried again.
    fn flush(&self) -> Result<()>;

    /// Sets the commit point. Data that is sealed at a cut above it is not written, and no such cut becomes
    /// the persisted one until this is called with a higher timestamp. It never sinks. Before the first call
    /// there is no commit point, and everything counts as committed.
    fn set_committed(&self, at: Timestamp);

    /// The cut at which the state is on the disk, exactly. Recovery applies the log after it. It is
    /// [`Timestamp::ZERO`] for an empty directory.
    fn persisted(&self) -> Timestamp;

    /// Removes everything of a tree that the commit at `at` has dropped. The caller knows that no view reads
    /// it any more and that it will never be written again. Memory is freed now, and files when the persisted
    /// cut has reached `at` (recovery needs them until then). This is not durable: the caller has to repeat
    /// it after a restart, which is harmless.
    fn drop_tree(&self, tree: TreeId, at: Timestamp);

    /// Rewrites files of these trees (`None`: of all) until there is nothing worth rewriting: no dead
    /// versions, no tombstones that hide nothing.
    ///
    /// # Errors
    /// Those of [`Trees::flush`]; the error of `interrupt`.
    fn compact(&self, trees: Option<&[TreeId]>, interrupt: &dyn Interrupt) -> Result<()>;

    /// Reads everything that these trees (`None`: all) have in files, and the structures that lead there.
    /// Returns every damaged place: file, offset, what is wrong.
    ///
    /// # Errors
    /// An error that keeps the check from running; the error of `interrupt`.
    fn check(&self, trees: Option<&[TreeId]>, interrupt: &dyn Interrupt) -> Result<Vec<String>>;

    /// Returns when no file of the engine is being made, changed or removed, and none will be while the guard
    /// exists. Running jobs are finished or given up. Commits stay in memory meanwhile, so the caller has to
    /// stop commits. [`Trees::flush`] and [`Trees::compact`] wait until the guard is dropped.
    ///
    /// # Errors
    /// The error of `interrupt` during the wait.
    fn hold(&self, interrupt: &dyn Interrupt) -> Result<Hold>;

    /// Measured figures.
    fn sizes(&self) -> Sizes;

    /// The event that is notified when the memory that waits for a flush may have shrunk, or a flush has
    /// failed. An engine that flushes nothing never notifies it.
    fn moved(&self) -> &Event {
        static NEVER: Event = Event::new();
        &NEVER
    }

    /// Makes the block cache use this many bytes less than its capacity, until the next call.
    fn spare_cache(&self, _bytes: u64) {}

    /// The approximate bytes of a tree in files.
    fn tree_bytes(&self, tree: TreeId) -> u64;

    /// The same for all trees, for a caller that asks about many. It is counted once for each set of files.
    fn file_sizes(&self) -> Arc<FileSizes> {
        Arc::default()
    }

    /// The present failures of background work, for example 14031 for a full disk. They are cleared when it
    /// succeeds again.
    fn faults(&self) -> Faults;

    /// Returns [`Trees::faults`] as one error.
    ///
    /// # Errors
    /// The error of a failure.
    fn health(&self) -> Result<()> {
        let faults = self.faults();
        match faults.flush.or(faults.compaction) {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// Does one step of the background work, for an engine without threads. Returns false if there was
    /// nothing to do.
    ///
    /// # Errors
    /// Those of [`Trees::flush`].
    fn work(&self) -> Result<bool> {
        Ok(false)
    }

    /// Stops background threads. The data in memory stays readable. Idempotent.
    fn close(&self);
}
