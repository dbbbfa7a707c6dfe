//! Inserts into a capped collection: documents are keyed by their order, and the oldest are deleted.
//!
//! An insert and the deletions that it causes are one commit. After the limit was lowered, the deletions
//! may be as much as was ever stored: more than a record can hold if the log keeps documents as they
//! were. These go in commits of their own, before the next insert.

use super::{Busy, Staged, WriteUnit};
use crate::latch::{self, Tried};
use muniment_io::Timestamp;
use muniment_tree::{Direction, Range, TreeId};
use muniment_value::Result;

/// Bytes of deletions that are staged in a commit of their own.
const AT_ONCE: usize = 2 << 20;

impl WriteUnit<'_> {
    pub(super) fn insert_capped(&mut self, doc: &[u8]) -> Staged<()> {
        if self.capped_order.is_none() {
            let order = &self.collection.capped_order;
            self.capped_order = match self.holds_nothing() {
                true => Some(order.lock_arc_for(self.interrupt)?),
                false => order.try_lock_arc(),
            };
            if self.capped_order.is_none() {
                return Ok(Err(Busy));
            }
        }
        // A unit stays within the limits itself; only what it found may be beyond them.
        if self.stage.is_empty() {
            self.evict(AT_ONCE)?;
            if !self.stage.is_empty() {
                return Ok(Err(Busy));
            }
        }
        let inserted = match self.collection.finds_by_id() {
            true => self.insert_by_id(doc)?,
            false => self.insert_without_id(doc)?,
        };
        if inserted.is_err() {
            return Ok(Err(Busy));
        }
        self.evict(usize::MAX)?;
        Ok(Ok(()))
    }

    /// Deletes the oldest documents until the collection is within its limits, or `at_once` bytes are
    /// staged. A document that a client holds just now is left for the next unit, and so are all after
    /// it, because documents leave in the order in which they came.
    fn evict(&mut self, at_once: usize) -> Result<()> {
        if self.eviction_waits {
            return Ok(());
        }
        let options = self.collection.options();
        let size = options.capped_size.unwrap_or(u64::MAX >> 1) as i64;
        let max = options.capped_max.unwrap_or(u64::MAX >> 1) as i64;
        let tree = self.collection.id;
        loop {
            let docs = self.collection.count() as i64 + self.stage.docs;
            let bytes = self.collection.data_bytes() as i64 + self.stage.bytes;
            // The newest document stays, even if it is larger than the limit.
            let within = docs <= 1 || (docs <= max && bytes <= size);
            if within || self.stage.len() >= at_once {
                return Ok(());
            }
            let cursor = self.eviction.get_or_insert_with(|| {
                let all = Range::default();
                let (newest, dir) = (Timestamp::MAX, Direction::Forward);
                self.store.trees.cursor(TreeId(tree), all, newest, dir)
            });
            let Some((record_key, _)) = cursor.next(self.interrupt)? else {
                // All stored documents are being deleted already, so the oldest of the staged ones
                // follow.
                return self.evict_staged(size, max);
            };
            let hash = latch::record_hash(tree, &record_key);
            match self.store.units.latches.try_lock(hash, self.owner) {
                Tried::Taken => self.held.push(hash),
                Tried::Mine => {}
                Tried::Busy => {
                    self.eviction_waits = true;
                    return Ok(());
                }
            }
            if let Some(newest) = self.newest(&record_key)? {
                // The unit holds something already, so it cannot wait for the latch of an index entry
                // that another unit has. It goes on, and this document stays for now.
                if self.stage_delete(&record_key, &newest)?.is_err() {
                    continue;
                }
            }
        }
    }

    /// Deletes the oldest documents among those that this unit has staged.
    fn evict_staged(&mut self, size: i64, max: i64) -> Result<()> {
        let tree = self.collection.id;
        let mut staged: Vec<(Vec<u8>, Vec<u8>)> = self
            .stage
            .staged_with(tree, &[])
            .filter_map(|(key, doc)| Some((key.to_vec(), doc?.to_vec())))
            .collect();
        staged.sort_unstable();
        for (key, doc) in staged {
            let docs = self.collection.count() as i64 + self.stage.docs;
            let bytes = self.collection.data_bytes() as i64 + self.stage.bytes;
            if docs <= 1 || (docs <= max && bytes <= size) {
                break;
            }
            self.stage.replaces();
            if self.stage_delete(&key, &doc)?.is_err() {
                break;
            }
        }
        Ok(())
    }
}
