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

/// What trees take in files.
#[derive(Clone, Debug, Default)]
pub struct FileSizes {
    /// Another number for every other set of files.
    pub version: u64,
    pub(crate) bytes: HashMap<TreeId, u64>,
}

impl FileSizes {
    /// As [`Trees::tree_bytes`].
    pub fn of(&self, tree: TreeId) -> u64 {
        self.bytes.get(&tree).copied().unwrap_or(0)
    }
}

/// Which way a cursor goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// The keys from `low` (inside) to `high` (outside; `None`: to the end of the tree). An empty
/// range has `low >= high`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Range {
    /// The first key that may be in it.
    pub low: Bytes,
    /// The first key after it.
    pub high: Option<Bytes>,
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// Where.
    pub tree: TreeId,
    /// The key: any bytes, of any length.
    pub key: Bytes,
    /// The new value; `None` deletes.
    pub value: Option<Bytes>,
    /// The writer knows that the key has no value now: it was never there, or its newest version
    /// is a deletion. What is born and deleted again in memory, with no view that saw it, then
    /// leaves nothing behind. Only ever a promise about a put.
    pub fresh: bool,
}

/// The changes of one commit: each key at most once.
pub type Batch = Vec<Op>;

/// Asked by what may take long; an error ends it. It goes on saying so for the same operation.
pub type Check = fn() -> Result<()>;

/// An engine's files stand still while it lives: see [`Trees::hold`].
#[must_use]
pub struct Hold(#[allow(dead_code)] Option<Box<dyn Any + Send + Sync>>);

impl Hold {
    /// One that does something when it is dropped.
    pub(crate) fn new(guard: impl Any + Send + Sync) -> Hold {
        Hold(Some(Box::new(guard)))
    }

    /// For an engine that has no files.
    pub(crate) fn nothing() -> Hold {
        Hold(None)
    }
}

/// What fails in the background.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Why the last flush failed, if it did: memory is not freed.
    pub flush: Option<Error>,
    /// Why a compaction could not be done that still is to be done, or that a table is damaged.
    pub compaction: Option<Error>,
    /// Compactions that failed since the start.
    pub failures: u64,
}

/// A cursor over one range of one tree at one timestamp. It may be kept across flushes and
/// compactions and pins no memtable while it stands between two calls for long: engines reopen
/// it at its place when what it reads from was replaced.
pub trait Cursor: Send {
    /// The next key and value in the cursor's direction; `None` at the end, and again after it.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected naming file and offset; I/O errors. After an error the cursor
    /// gives the same error again: it never skips. What [`Cursor::ask`] was given says: then the
    /// cursor stands where it was.
    fn next(&mut self) -> Result<Option<(Bytes, Bytes)>>;

    /// Jumps forward, in the cursor's direction, so that the next key is the first at or past
    /// `key` (ascending: `>= key`; descending: `<= key`). Never goes back. Much cheaper than a new
    /// cursor when the target is near.
    fn seek(&mut self, key: &[u8]);

    /// Lets it ask `check` now and then while a call takes long, as over millions of deleted keys.
    fn ask(&mut self, check: Check);
}

/// Measured figures of an engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    /// Bytes in memtables, all overhead counted.
    pub memory: u64,
    /// Of these, in memtables that are sealed and not yet on the disk.
    pub sealed: u64,
    /// Of these, in memtables whose cut is not committed: see [`Trees::set_committed`].
    pub uncommitted: u64,
    /// How many sealed memtables wait for their flush.
    pub sealed_count: usize,
    /// Of these, those whose cut is not committed.
    pub uncommitted_count: usize,
    /// Deletions that are in memory and not sealed, about: what they delete stays in files until then.
    pub deletions: u64,
    /// Sorted runs that no compaction has merged yet.
    pub fresh_runs: usize,
    /// Bytes of files.
    pub disk: u64,
    /// Block cache: used bytes, and its capacity.
    pub cache_used: u64,
    /// See `cache_used`.
    pub cache_capacity: u64,
    /// Bytes written to files since the start: flushes, and compactions.
    pub flushed: u64,
    /// See `flushed`.
    pub compacted: u64,
}

/// An engine: all trees of a server.
///
/// Rules for writing: [`Trees::apply`] may be called by several threads at once for different keys;
/// for one key the calls come one after another in rising order of timestamps. [`Trees::seal`]
/// is called while no `apply` runs, with a cut at or above every timestamp applied so far and
/// below every one that comes. A timestamp becomes visible to new views ([`Views::advance`])
/// after everything up to it was applied.
pub trait Trees: Send + Sync {
    /// The name `--storageEngine` and serverStatus know it by.
    fn name(&self) -> &'static str;

    /// True if a flush puts data where it survives the process.
    fn is_durable(&self) -> bool;

    /// The views: which timestamps are being read at. Versions that no view can read are given up.
    fn views(&self) -> &Arc<Views>;

    /// The value of a key at a timestamp: of the newest version at or below `at`.
    /// [`Timestamp::MAX`] reads the newest of all, visible or not: for the holder of the key's
    /// latch. Every other `at` must be that of a [`View`](crate::View) that is alive.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected naming file and offset; I/O errors.
    fn get(&self, tree: TreeId, key: &[u8], at: Timestamp) -> Result<Option<Bytes>>;

    /// When the newest value of a key was written, visible or not; `None` if it has none.
    ///
    /// # Errors
    /// As [`Trees::get`].
    fn written(&self, tree: TreeId, key: &[u8]) -> Result<Option<Timestamp>> {
        let changed = self.changed(tree, key)?;
        Ok(changed.and_then(|(at, has_value)| has_value.then_some(at)))
    }

    /// When a key was written or deleted the last time, visible or not, and whether it has a value
    /// since. `None`: never, or a deletion that nobody misses: neither a view that is older nor a
    /// [`Writing`](crate::Writing).
    ///
    /// # Errors
    /// As [`Trees::get`].
    fn changed(&self, tree: TreeId, key: &[u8]) -> Result<Option<(Timestamp, bool)>>;

    /// A cursor. The same rules for `at`. (A cursor at `MAX` may or may not see what is written
    /// after it was opened.)
    fn cursor(&self, tree: TreeId, range: Range, at: Timestamp, dir: Direction) -> Box<dyn Cursor>;

    /// Writes a commit's changes into memory, all with the timestamp `at`.
    fn apply(&self, batch: Batch, at: Timestamp);

    /// Ends the active memtable at `cut` and begins a new one. Does nothing to an empty one, but
    /// the cut counts all the same: once what was sealed before is flushed, it is the persisted
    /// cut.
    ///
    /// # Errors
    /// None by memory; an engine's own.
    fn seal(&self, cut: Timestamp) -> Result<()>;

    /// Writes what is sealed at committed cuts to the disk; returns when it is durable and the
    /// persisted cut has moved. Background threads do this by themselves: this waits for them, or
    /// does it. What is not committed ([`Trees::set_committed`]) stays in memory.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, I/O errors: what is sealed stays in memory and is tried again.
    fn flush(&self) -> Result<()>;

    /// The commit point: what is sealed at a cut above it is not written, and no cut above it becomes
    /// the persisted one, until this is called with a higher one. It never sinks, and there is none
    /// before it is called.
    fn set_committed(&self, at: Timestamp);

    /// The state up to here is on the disk, at exactly this cut: recovery applies the log after
    /// it. [`Timestamp::ZERO`] for an empty directory.
    fn persisted(&self) -> Timestamp;

    /// Gives up everything of a tree that was dropped by the commit at `at`: the caller knows
    /// that no view reads it any more and that it will never be written again. Memory is freed
    /// now, files when the persisted cut has reached `at` (before, recovery needs them).
    /// Durable only as far as the caller repeats it after a restart, which is harmless.
    fn drop_tree(&self, tree: TreeId, at: Timestamp);

    /// Rewrites files until there is nothing worth rewriting in these trees (`None`: in all): no
    /// dead versions, no tombstones that hide nothing.
    ///
    /// # Errors
    /// As [`Trees::flush`]; whatever `interrupt` says.
    fn compact(&self, trees: Option<&[TreeId]>, interrupt: &dyn Interrupt) -> Result<()>;

    /// Reads what these trees (`None`: all) have in files, and what leads there, and tells every
    /// damaged place: file, offset, what is wrong.
    ///
    /// # Errors
    /// What keeps the check from running; what `interrupt` says.
    fn check(&self, trees: Option<&[TreeId]>, interrupt: &dyn Interrupt) -> Result<Vec<String>>;

    /// Returns when no file of the engine is being made, changed or removed; none is while the
    /// guard lives. Works that run are ended or given up. What is committed meanwhile stays in
    /// memory: the caller stops commits. [`Trees::flush`] and [`Trees::compact`] wait until it is
    /// dropped.
    ///
    /// # Errors
    /// What `interrupt` says while it waits.
    fn hold(&self, interrupt: &dyn Interrupt) -> Result<Hold>;

    /// Measured figures.
    fn sizes(&self) -> Sizes;

    /// What is notified when the memory that waits to be flushed may be less, or a flush has failed. An
    /// engine that flushes nothing never does.
    fn moved(&self) -> &Event {
        static NEVER: Event = Event::new();
        &NEVER
    }

    /// Lets the block cache use so many bytes fewer than its capacity, until the next call.
    fn spare_cache(&self, _bytes: u64) {}

    /// Approximate bytes that a tree takes in files.
    fn tree_bytes(&self, tree: TreeId) -> u64;

    /// The same of all trees, for a caller that asks about many: counted once for each set of files.
    fn file_sizes(&self) -> Arc<FileSizes> {
        Arc::default()
    }

    /// What fails in the background just now: 14031 for a full disk. Cleared when it succeeds
    /// again.
    fn faults(&self) -> Faults;

    /// [`Trees::faults`] as one error.
    ///
    /// # Errors
    /// What fails.
    fn health(&self) -> Result<()> {
        let faults = self.faults();
        match faults.flush.or(faults.compaction) {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// One step of what background threads would do, for an engine without them; false if
    /// there was nothing to do.
    ///
    /// # Errors
    /// As [`Trees::flush`].
    fn work(&self) -> Result<bool> {
        Ok(false)
    }

    /// Stops background threads; what is in memory stays readable. Idempotent.
    fn close(&self);
}
