//! The durable engine: a log-structured merge tree with its own format of tables.
//!
//! One set of tables holds all trees of a server; a key in it is the tree's number and the user's key. Writes
//! go into the active memtable. [`Trees::seal`] puts it aside with its cut; a flush writes everything that is
//! sealed as one sorted run (level 0) and the cut into the manifest, in one step, so the persisted cut is
//! exact. Compactions merge runs into levels, and drop versions that no view can read and deletions that hide
//! nothing. They are triggered by sizes and by the share of dead versions.
//!
//! | | |
//! |---|---|
//! | [`table`] | one file: blocks, index, filter, properties |
//! | [`state`] | the memtables, runs and levels of one moment |
//! | [`manifest`], [`shared`] | the list of tables on disk, and how it changes |
//! | [`merge`], [`output`] | merges versions in order, and writes those that are kept into new tables |
//! | [`flush`], [`pick`], [`compact`] | decide what is written when |
//! | [`pieces`] | compactions on a disk that is nearly full |
//! | [`load`] | fills an empty engine |
//! | [`failures`], [`still`] | tables put off after failures; keeping the files unchanged |
//! | [`cursor`], [`gaps`] | read a range, and skip deleted keys |
//!
//! Invariants: readers and writers never wait for a file operation of a flush or compaction, and no lock that
//! they take is held during one. While the files are held ([`still`]), none is changed. Generations are
//! ordered in time, so the first one that has a key decides its value. A file is removed only when no
//! manifest that may be on disk names it and no reader holds it. If a table or manifest is not what was
//! written, the error names it, and nothing is guessed.
//!
//! This module must not know documents, the log or commands.

mod cache;
mod compact;
mod cursor;
mod dropped;
mod error;
mod failures;
mod flush;
#[doc(hidden)]
pub mod fuzzing;
mod gaps;
mod idle;
mod load;
mod manifest;
mod merge;
mod options;
mod output;
mod pick;
mod pieces;
mod shared;
mod state;
mod still;
mod table;
#[cfg(test)]
mod tests;
mod trash;

pub use load::Row;
pub use options::LsmOptions;

use crate::memtable::FEW;
use crate::trees::{
    Batch, Cursor, Direction, Faults, FileSizes, Hold, Range, Sizes, TreeId, Trees,
};
use crate::views::Views;
use bytes::Bytes;
use cursor::LsmCursor;
use muniment_io::Timestamp;
use muniment_op::{Event, Interrupt, NeverInterrupted};
use muniment_value::{Error, Result};
use parking_lot::Mutex;
use shared::{Shared, Work};
use state::Sealed;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::Duration;
use still::Held;
use table::{filter, internal_key};

/// The durable engine.
pub struct LsmTrees {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl LsmTrees {
    /// Opens a directory, which is empty for a new engine. Its views begin at the persisted cut.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected with the file that is damaged or missing; 158 MustUpgrade for files of a
    /// newer version; 14031 OutOfDiskSpace and I/O errors.
    pub fn open(options: LsmOptions) -> Result<Arc<LsmTrees>> {
        let (background, compactors) = (options.background, options.compactors.max(1));
        let trees = LsmTrees {
            shared: Arc::new(Shared::open(options)?),
            threads: Mutex::default(),
        };
        if background {
            trees.spawn("flush", Work::Flush, Shared::flusher)?;
            for _ in 0..compactors {
                trees.spawn("compact", Work::Compaction, Shared::compactor)?;
            }
        }
        Ok(Arc::new(trees))
    }

    fn spawn(&self, name: &str, which: Work, work: fn(&Shared)) -> Result<()> {
        let shared = self.shared.clone();
        // A panic is a bug, but it must not silently end all flushes. It is reported, the interrupted work is
        // given up as after an error, and the thread continues.
        let work = move |shared: &Shared| {
            while catch_unwind(AssertUnwindSafe(|| work(shared))).is_err() {
                let fault = Error::internal("a background thread of the storage engine panicked");
                shared.report(which, &Err(fault));
                shared.wait_out(Duration::from_secs(1));
            }
        };
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || work(&shared))
            .map_err(|e| Error::internal(format!("starting a thread: {e}")))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Writes changes into the active memtable.
    fn put_all(&self, batch: Batch, at: Timestamp) {
        let shared = &self.shared;
        let puts = shared.gaps.applying(&batch, at);
        let due = match batch.len() <= FEW {
            true => shared.glance().active.put_all(batch, at, &shared.views),
            // Takes a reference instead of a lock, so that a thread that wants to change the state need not
            // wait until a large batch is in memory.
            false => shared.state().active.put_all(batch, at, &shared.views),
        };
        if let Some(due) = due {
            shared.state().active.sweep_some(&shared.views, due, false);
        }
        shared.gaps.applied(puts);
    }
}

impl Drop for LsmTrees {
    fn drop(&mut self) {
        self.close();
    }
}

impl Trees for LsmTrees {
    fn name(&self) -> &'static str {
        "lsm"
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn views(&self) -> &Arc<Views> {
        &self.shared.views
    }

    fn get(&self, tree: TreeId, key: &[u8], at: Timestamp) -> Result<Option<Bytes>> {
        let state = {
            let state = self.shared.glance();
            for mem in state.memtables() {
                if let Some(value) = mem.get(tree, key, at) {
                    return Ok(value);
                }
            }
            state.clone()
        };
        let mut sought = None;
        for run in state.levels.runs().filter(|run| !run.0.is_empty()) {
            let (key, hash) = sought.get_or_insert_with(|| {
                let key = internal_key(tree, key);
                let hash = filter::hash(&key);
                (key, hash)
            });
            if let Some(table) = run.find(key)
                && table.properties().oldest <= at
                && let Some(value) = table.get(key, *hash, at)?
            {
                return Ok(value);
            }
        }
        Ok(None)
    }

    fn changed(&self, tree: TreeId, key: &[u8]) -> Result<Option<(Timestamp, bool)>> {
        let state = self.shared.glance().clone();
        for mem in state.memtables() {
            if let Some(found) = mem.changed(tree, key) {
                return Ok(Some(found));
            }
        }
        let key = internal_key(tree, key);
        let hash = filter::hash(&key);
        for run in state.levels.runs() {
            if let Some(table) = run.find(&key)
                && let Some(found) = table.changed(&key, hash)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn cursor(&self, tree: TreeId, range: Range, at: Timestamp, dir: Direction) -> Box<dyn Cursor> {
        let shared = self.shared.clone();
        Box::new(LsmCursor::new(shared, tree, range, at, dir))
    }

    fn apply(&self, batch: Batch, at: Timestamp) {
        // A recovery that begins below the persisted cut applies again what the tables already have.
        if at > self.shared.persisted() {
            self.put_all(batch, at);
        }
    }

    fn apply_at_cut(&self, batch: Batch, cut: Timestamp) {
        self.put_all(batch, cut);
    }

    fn seal(&self, cut: Timestamp) -> Result<()> {
        self.shared.seal(cut);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.shared.flush()
    }

    fn set_committed(&self, at: Timestamp) {
        self.shared.set_committed(at);
    }

    fn persisted(&self) -> Timestamp {
        self.shared.persisted()
    }

    fn work(&self) -> Result<bool> {
        // Does a flush or a compaction, and nothing while the files are held.
        self.shared.purge();
        if !self.shared.empty_trash() {
            return Ok(false);
        }
        if !self.shared.flushable(&self.shared.state()).is_empty() {
            self.shared.flush()?;
            return Ok(true);
        }
        self.shared.compact_once(&NeverInterrupted)
    }

    fn drop_tree(&self, tree: TreeId, at: Timestamp) {
        self.shared.dropped.add(tree, at, self.shared.now());
        let state = self.shared.state();
        // The commit at `at` was applied, so the active memtable's cut will not be below it. A sealed
        // memtable with an earlier cut keeps the tree for its flush: after a power failure, recovery applies
        // the records between that cut and the drop to the tree.
        state.active.remove_tree(tree);
        for sealed in &state.sealed {
            if let Some(mem) = sealed.mem.as_ref().filter(|_| sealed.cut >= at) {
                mem.remove_tree(tree);
            }
        }
        self.shared.notify();
    }

    fn compact(&self, trees: Option<&[TreeId]>, interrupt: &dyn Interrupt) -> Result<()> {
        self.shared.compact_all(trees, interrupt)
    }

    fn check(&self, trees: Option<&[TreeId]>, interrupt: &dyn Interrupt) -> Result<Vec<String>> {
        let state = self.shared.state();
        let mut found = Vec::new();
        for table in state.levels.tables() {
            table.check(trees, interrupt, &mut found)?;
        }
        Ok(found)
    }

    fn sizes(&self) -> Sizes {
        let shared = &self.shared;
        let state = shared.state();
        let bytes = |s: &Sealed| s.mem.as_ref().map_or(0, |m| m.bytes());
        let sealed: u64 = state.sealed.iter().map(bytes).sum();
        let flushable = shared.flushable(&state);
        let committed: u64 = flushable.iter().map(bytes).sum();
        let ready = flushable.iter().filter(|s| s.mem.is_some()).count();
        Sizes {
            memory: sealed + state.active.bytes(),
            sealed,
            uncommitted: sealed.saturating_sub(committed),
            sealed_count: state.waiting().count(),
            uncommitted_count: state.waiting().count().saturating_sub(ready),
            deletions: state.active.deletions(),
            fresh_runs: state.levels.fresh.len(),
            disk: state.levels.tables().map(|t| t.len()).sum(),
            cache_used: shared.cache.used(),
            cache_capacity: shared.cache.capacity(),
            flushed: shared.flushed.load(SeqCst),
            compacted: shared.compacted.load(SeqCst),
        }
    }

    fn moved(&self) -> &Event {
        &self.shared.moved
    }

    fn spare_cache(&self, bytes: u64) {
        self.shared.cache.spare(bytes);
    }

    fn tree_bytes(&self, tree: TreeId) -> u64 {
        let state = self.shared.state();
        let counts = state
            .levels
            .tables()
            .filter_map(|t| t.properties().tree(tree));
        counts.map(|c| c.bytes).sum()
    }

    fn file_sizes(&self) -> Arc<FileSizes> {
        let levels = self.shared.state().levels.clone();
        levels.sizes().clone()
    }

    fn hold(&self, interrupt: &dyn Interrupt) -> Result<Hold> {
        Held::new(&self.shared, interrupt).map(Hold::new)
    }

    fn faults(&self) -> Faults {
        self.shared.faults()
    }

    fn close(&self) {
        self.shared.closed.store(true, SeqCst);
        self.shared.stops.wake_all();
        self.shared.notify();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            let _ = thread.join();
        }
    }
}
