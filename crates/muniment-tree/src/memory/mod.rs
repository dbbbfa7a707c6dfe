//! The in-memory engine: one memtable, and nothing beneath it.
//!
//! It serves `--storageEngine memory` and simulations, and is the simplest engine that passes
//! [`conformance`](crate::conformance). Its data ends with the process, so there is nothing that recovery
//! could start from, and no log needs to be kept for it. A cut that is committed therefore counts as
//! persisted as soon as it is sealed, and the log may be trimmed up to it.

mod cursor;

use crate::memtable::MemTable;
use crate::trees::{Batch, Cursor, Direction, Faults, Hold, Range, Sizes, TreeId, Trees};
use crate::views::Views;
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_op::Interrupt;
use muniment_value::Result;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Trees that exist only in memory.
pub struct MemoryTrees {
    table: Arc<MemTable>,
    views: Arc<Views>,
    cut: AtomicU64,
    waiting: Mutex<Waiting>,
}

/// The cuts above the commit point.
#[derive(Default)]
struct Waiting {
    /// The cuts, ascending.
    cuts: Vec<Timestamp>,
    /// The commit point; `None` if everything counts as committed.
    committed: Option<Timestamp>,
}

impl MemoryTrees {
    /// An engine without trees, in which nothing is visible.
    pub fn new() -> Arc<MemoryTrees> {
        Arc::new(MemoryTrees {
            table: Arc::new(MemTable::bottom()),
            views: Views::new(Timestamp::ZERO),
            cut: AtomicU64::new(0),
            waiting: Mutex::default(),
        })
    }

    /// Makes the committed cuts count as persisted.
    fn settle(&self, waiting: &mut Waiting) {
        let committed = waiting.committed.unwrap_or(Timestamp::MAX);
        let done = waiting.cuts.partition_point(|cut| *cut <= committed);
        for cut in waiting.cuts.drain(..done) {
            self.cut.fetch_max(cut.0, SeqCst);
        }
    }
}

impl Trees for MemoryTrees {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn is_durable(&self) -> bool {
        false
    }

    fn views(&self) -> &Arc<Views> {
        &self.views
    }

    fn get(&self, tree: TreeId, key: &[u8], at: Timestamp) -> Result<Option<Bytes>> {
        Ok(self.table.get(tree, key, at).flatten())
    }

    fn changed(&self, tree: TreeId, key: &[u8]) -> Result<Option<(Timestamp, bool)>> {
        Ok(self.table.changed(tree, key))
    }

    fn cursor(&self, tree: TreeId, range: Range, at: Timestamp, dir: Direction) -> Box<dyn Cursor> {
        Box::new(cursor::MemoryCursor::new(
            self.table.clone(),
            tree,
            range,
            at,
            dir,
        ))
    }

    fn apply(&self, batch: Batch, at: Timestamp) {
        self.table.apply(batch, at, &self.views);
    }

    fn apply_at_cut(&self, batch: Batch, cut: Timestamp) {
        self.apply(batch, cut);
    }

    /// The cut counts as persisted at once: see the module.
    fn seal(&self, cut: Timestamp) -> Result<()> {
        let mut waiting = self.waiting.lock();
        waiting.cuts.push(cut);
        self.settle(&mut waiting);
        Ok(())
    }

    fn set_committed(&self, at: Timestamp) {
        let mut waiting = self.waiting.lock();
        waiting.committed = waiting.committed.max(Some(at));
        self.settle(&mut waiting);
    }

    /// There are no files to write; the memtable drops the versions that no view needs any more.
    fn flush(&self) -> Result<()> {
        self.table.sweep(&self.views);
        Ok(())
    }

    fn persisted(&self) -> Timestamp {
        Timestamp(self.cut.load(SeqCst))
    }

    fn drop_tree(&self, tree: TreeId, _at: Timestamp) {
        self.table.remove_tree(tree);
    }

    fn compact(&self, _trees: Option<&[TreeId]>, interrupt: &dyn Interrupt) -> Result<()> {
        interrupt.check()?;
        self.table.sweep(&self.views);
        Ok(())
    }

    fn check(&self, _trees: Option<&[TreeId]>, _interrupt: &dyn Interrupt) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            memory: self.table.bytes(),
            ..Sizes::default()
        }
    }

    fn tree_bytes(&self, _tree: TreeId) -> u64 {
        0
    }

    fn hold(&self, _interrupt: &dyn Interrupt) -> Result<Hold> {
        Ok(Hold::nothing())
    }

    fn faults(&self) -> Faults {
        Faults::default()
    }

    fn close(&self) {}
}

#[cfg(test)]
mod tests;
