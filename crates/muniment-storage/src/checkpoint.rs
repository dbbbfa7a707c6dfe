//! Cuts: sealing what is in memory, trimming the log behind what is on the disk, and giving up
//! what was dropped.
//!
//! A seal has the gate alone, so that every commit up to the cut is applied and none behind it.
//! What is derived from the commits (totals, multikey paths, the next free id) is written into the
//! tree `META` at the cut: these puts are the only ones that are in no record, because applying
//! the log behind the cut computes them again.
//!
//! A dropped collection or index leaves a note in `META` with its drop. Its tree is given up when
//! no view is left that began before the drop; the note goes with a later cut, when the files
//! are gone.

use crate::catalog::names::{DroppedTree, totals_bytes};
use crate::commit::door::Opening;
use crate::gate::LOOK;
use crate::keys;
use crate::store::{Inner, Store, UntilClosed};
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_log::Keep;
use muniment_query::{Interrupt, NeverInterrupted};
use muniment_tree::{Batch, Op, TreeId};
use muniment_value::Result;
use std::collections::HashSet;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// The log may grow to so many times the memtable's size before a cut lets it be trimmed: small
/// changes of large documents fill the log slower than memory, hot keys faster. A start has to
/// apply all of it again, which takes a few microseconds for each small write.
const LOG_TO_MEMTABLE: u64 = 2;
/// At least so much of it.
const LOG_LEAST: u64 = 64 << 20;

/// Bytes in memory after a start that are worth a cut.
const APPLIED: u64 = 4 << 20;
/// Bytes of the log after a start that are: what it changed again and again takes long to apply and
/// little memory.
const APPLIED_LOG: u64 = 32 << 20;

/// So many dropped trees are forgotten by a cut of their own.
const MANY_DROPS: usize = 1000;

/// A cut is made for dropped trees alone after so many seconds.
const DROPS_WAIT: i64 = 5;

fn meta(key: Vec<u8>, value: Option<Vec<u8>>) -> Op {
    Op {
        tree: TreeId(keys::META),
        key: Bytes::from(key),
        value: value.map(Bytes::from),
        fresh: false,
    }
}

impl Store {
    /// Seals memory and writes it to tables; returns when it is on the disk and the log is
    /// trimmed. Of a member of a replica set what is not committed stays in memory.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, I/O errors.
    pub fn flush(&self) -> Result<()> {
        self.inner.check_open()?;
        if self.inner.is_seal_of_use() {
            self.inner.seal(&NeverInterrupted)?;
        }
        self.inner.trees.flush()?;
        self.inner.reclaim()
    }

    /// `compact`: rewrites the files of a collection and its indexes (`None`: of all) until they
    /// hold nothing dead.
    ///
    /// # Errors
    /// As [`Store::flush`]; what `interrupt` says.
    pub fn compact(
        &self,
        collection: Option<&crate::Collection>,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        self.inner.check_open()?;
        if self.inner.is_seal_of_use() {
            self.inner.seal(interrupt)?;
        }
        let trees: Option<Vec<TreeId>> = collection.map(|c| {
            let indexes = c.all_indexes();
            let ids = indexes.iter().map(|i| TreeId(i.id));
            [TreeId(c.id)].into_iter().chain(ids).collect()
        });
        // It flushes first.
        self.inner
            .trees
            .compact(trees.as_deref(), &|| interrupt.check())?;
        self.inner.reclaim()
    }
}

impl Inner {
    /// Ends the memtable at the newest commit.
    pub fn seal(&self, interrupt: &dyn Interrupt) -> Result<()> {
        let _alone = self.gate.own(interrupt)?;
        let cut = self.newest_timestamp();
        self.save_derived(cut);
        self.buffers.seal(cut);
        self.trees.seal(cut)
    }

    /// False while something is sealed that is not committed: another seal could not be written
    /// either, and readers have to look into each. (Where memory is full it is made all the same.)
    fn is_seal_of_use(&self) -> bool {
        self.trees.sizes().uncommitted_count == 0
    }

    /// Puts what is derived from the commits up to `cut`. Nobody commits meanwhile.
    pub fn save_derived(&self, cut: Timestamp) {
        let mut batch = Batch::new();
        for c in self.catalog.read().all().filter(|c| c.take_dirty()) {
            let last = c.append().last;
            let totals = totals_bytes([c.count(), c.data_bytes(), last]);
            batch.push(meta(keys::totals(c.id), Some(totals)));
            for index in c.all_indexes().iter() {
                if let Some(arrays) = index.multikey().unsaved() {
                    let entries = arrays.entries(index.id);
                    batch.extend(entries.map(|(k, v)| meta(k, Some(v))));
                }
            }
        }
        // A note is of no use once everything of its tree is gone from the files.
        let persisted = self.trees.persisted();
        self.dropped.lock().retain(|d| {
            let gone = d.given_up && d.at < persisted && self.trees.tree_bytes(d.tree) == 0;
            if gone {
                batch.push(meta(keys::drop_pending(d.tree.0), None));
            }
            !gone
        });
        let begins = self.log().map_or(Timestamp::ZERO, |log| log.begins_after());
        let names = self.history.lock().save(begins);
        batch.extend(names.into_iter().map(|(k, v)| meta(k, v)));
        let next_id = self.next_id.load(SeqCst).to_le_bytes();
        batch.push(meta(keys::next_id(), Some(next_id.to_vec())));
        self.trees.apply(batch, cut);
    }

    /// Seals when memory or the log has grown enough, trims and reclaims. `applied`: what the start
    /// had to apply is worth a cut.
    pub fn checkpoint_loop(&self, mut applied: bool) {
        let mut last = Instant::now();
        while !self.pause(Duration::from_millis(100)) {
            self.space.refresh();
            // While it is locked, or about to be, the files are to stand still.
            let locking = self.fsync_lock.try_lock();
            if locking.is_none_or(|lock| lock.depth() > 0) {
                continue;
            }
            // What fails is tried again: it shows in the trees' health and in refused writes. The log
            // is trimmed first, so that its size tells of what is needed.
            let _ = self.reclaim();
            // What a start had to apply is not to be applied again by the next one: who is killed
            // again and again would take longer each time. Writes with many index entries take
            // long though their log is short.
            let asked = self.checkpoint_ms.load(SeqCst);
            let late = asked > 0 && last.elapsed() >= Duration::from_millis(asked);
            let late = late && self.trees.is_durable() && self.trees.sizes().memory > 0;
            let late = late && self.is_seal_of_use();
            if std::mem::take(&mut applied) || self.memory_is_full() || self.drops_wait() || late {
                let _ = self.seal(&UntilClosed(self));
                last = Instant::now();
            }
            self.clear_away();
        }
    }

    /// Takes away what others left. Behind a closed door nothing is written.
    pub fn clear_away(&self) {
        if let Ok(opening) = self.door.opening() {
            self.remove_failed_builds(opening);
            self.drop_discarded(opening);
        }
    }

    /// At a start: whether what it had to apply is worth a cut.
    pub fn much_was_applied(&self) -> bool {
        let active = self.active_bytes(&self.trees.sizes());
        let log = || self.log_behind_cut();
        let much = active > APPLIED || (active > 0 && log() > APPLIED_LOG);
        much && self.trees.is_durable()
    }

    /// Bytes of the log that a start would have to apply, about.
    fn log_behind_cut(&self) -> u64 {
        let persisted = self.trees.persisted();
        self.log().map_or(0, |log| log.bytes_behind(persisted))
    }

    fn memory_is_full(&self) -> bool {
        let sizes = self.trees.sizes();
        let active = self.active_bytes(&sizes);
        let log_limit = (self.budget.memtable * LOG_TO_MEMTABLE).max(LOG_LEAST);
        (self.trees.is_durable() && active >= self.budget.memtable)
            || (sizes.sealed_count == 0 && active > 0 && self.log_behind_cut() > log_limit)
    }

    /// True if files have something of dropped trees that only a later cut lets go, and have had
    /// it for a while. Where much is written a cut comes by itself.
    fn drops_wait(&self) -> bool {
        if self.trees.sizes().sealed_count > 0 {
            // One is on its way.
            return false;
        }
        let (persisted, now) = (self.trees.persisted(), self.clock.now_ms());
        let seconds = |at: Timestamp| i64::from(at.seconds());
        let all = self.dropped.lock();
        let waiting = all.iter().filter(|d| d.given_up && d.at > persisted);
        // Tests make and drop collections by the thousand, of which nothing is ever in a file.
        if waiting.clone().count() >= MANY_DROPS {
            return true;
        }
        waiting.clone().any(|d| {
            let long = (now / 1000).saturating_sub(seconds(d.at)) >= DROPS_WAIT;
            long && self.trees.tree_bytes(d.tree) > 0
        })
    }

    /// Trims the log and gives up dropped trees.
    pub fn reclaim(&self) -> Result<()> {
        let trimmed = self.trim();
        *self.trim_failure.lock() = trimmed.as_ref().err().cloned();
        let oldest = self.trees.views().oldest();
        // Without the lock: freeing a large tree takes a while, and commits of drops need it.
        let all: Vec<DroppedTree> = self.dropped.lock().clone();
        for d in all.iter().filter(|d| d.at <= oldest && !d.given_up) {
            self.trees.drop_tree(d.tree, d.at);
        }
        let told: HashSet<TreeId> = all.iter().map(|d| d.tree).collect();
        for d in self.dropped.lock().iter_mut() {
            d.given_up |= d.at <= oldest && told.contains(&d.tree);
        }
        trimmed
    }

    /// What is kept of the log though the trees have it. Readers can do without, writers not: where
    /// there is little space, nothing.
    fn kept(&self) -> Keep {
        let window = *self.window.lock();
        if !self.space.is_ample() && self.trees.is_durable() {
            return Keep::default();
        }
        let now = self.clock.now_ms() / 1000;
        let since = u64::try_from(now).unwrap_or(0);
        let since = since.saturating_sub(window.longest().as_secs());
        Keep {
            bytes: window.bytes,
            // Where all is in memory only its size counts.
            later_than: match window.longest().is_zero() || !self.trees.is_durable() {
                true => Timestamp::MAX,
                false => Timestamp::new(u32::try_from(since).unwrap_or(0), 0),
            },
        }
    }

    /// Trims the log; not while fsyncLock keeps files as they are.
    fn trim(&self) -> Result<()> {
        loop {
            if let Some(_still) = self.still.try_lock_for(LOOK) {
                return self
                    .log()?
                    .trim_keeping(self.trees.persisted(), &self.kept());
            }
            let locking = self.fsync_lock.try_lock();
            if locking.is_none_or(|lock| lock.depth() > 0) {
                return Ok(());
            }
        }
    }

    /// Takes failed index builds away, where nobody has the collection just now.
    fn remove_failed_builds(&self, opening: Opening) {
        let left = std::mem::take(&mut *self.failed_builds.lock());
        // Those of another opening were taken up by who was primary then.
        for (collection, index, begun) in left.into_iter().filter(|b| b.2 == opening) {
            let Some(_alone) = collection.ddl.own_for(LOOK) else {
                self.failed_builds.lock().push((collection, index, begun));
                continue;
            };
            let all = collection.all_indexes();
            let rest: Vec<_> = all.iter().filter(|i| i.id != index.id).cloned().collect();
            if rest.len() < all.len()
                && !collection.is_dropped()
                && self
                    .commit_indexes(&collection, &rest, opening, &UntilClosed(self))
                    .is_err()
            {
                let left = (collection.clone(), index, begun);
                self.failed_builds.lock().push(left);
            }
        }
    }

    /// Drops what commands left behind, where nobody has it just now.
    fn drop_discarded(&self, opening: Opening) {
        let left = std::mem::take(&mut *self.discarded.lock());
        for collection in left.into_iter().filter(|c| !c.is_dropped()) {
            let dropped = collection.ddl.own_for(LOOK).is_some_and(|_alone| {
                let _names = self.naming.lock();
                self.commit_drop(&collection, opening, &UntilClosed(self))
                    .is_ok()
            });
            if !dropped {
                self.discarded.lock().push(collection);
            }
        }
    }

    /// Wakes the thread that seals if there is enough to seal.
    pub fn seal_if_full(&self) {
        if self.memory_is_full() {
            self.wake.notify_all();
        }
    }
}
