//! Cuts: sealing what is in memory, trimming the log up to what is on the disk, and giving up
//! what was dropped.
//!
//! A seal has the gate alone, so that every commit up to the cut is applied and none after it.
//! What is derived from the commits (totals, multikey paths, the next free id) is written into the
//! tree `META` at the cut: these puts are the only ones that are in no record, because applying
//! the log after the cut computes them again.
//!
//! A dropped collection or index leaves a note in `META` with its drop. Its tree is given up when
//! no view is left that began before the drop; the note goes with a later cut, when the files
//! are gone.

use crate::catalog::names::totals_bytes;
use crate::collection::news;
use crate::inner::Inner;
use crate::keys;
use crate::store::Store;
use crate::watch::UntilClosed;
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_log::Keep;
use muniment_op::{Interrupt, NeverInterrupted};
use muniment_tree::{Batch, Op, TreeId};
use muniment_value::Result;
use std::time::{Duration, Instant};

/// The log may grow to so many times the memtable's size before a cut lets it be trimmed: small
/// changes of large documents fill the log slower than memory, hot keys faster. A start has to
/// apply all of it again, which takes a few microseconds for each small write.
const LOG_TO_MEMTABLE: u64 = 2;
/// At least so much of it; with a small memtable, so many times its size.
const LOG_LEAST: u64 = 64 << 20;
const LOG_LEAST_TO_MEMTABLE: u64 = 8;

/// Bytes in memory after a start that are worth a cut.
const APPLIED: u64 = 4 << 20;
/// Bytes of the log after a start that are: what it changed again and again takes long to apply and
/// little memory.
const APPLIED_LOG: u64 = 32 << 20;

/// So many dropped trees are forgotten by a cut of their own.
const MANY_DROPS: usize = 1000;

/// So many dropped trees are forgotten by one cut, for which everybody waits.
const MOST_FORGOTTEN: usize = 20_000;

/// Cuts that only forget many dropped trees are so far apart: each writes a table of its own, and
/// many tables hold writers back.
const DROPS_PAUSE: Duration = Duration::from_millis(500);

/// Where space is short, what is in memory goes to tables after so long.
const SHORT_WAIT: Duration = Duration::from_secs(3);

/// What deletes frees space only in tables. A cut is made for that alone when next to nothing was written
/// for so long (while much is written a cut comes by itself), if there are so many deletions and the
/// memtable is not much smaller than it may be; after longer if not.
const DELETES_WAIT: Duration = Duration::from_secs(10);
const DELETES: u64 = 500;
const DELETES_PART: u64 = 64;
const FEW_DELETES_WAIT: Duration = Duration::from_secs(600);
/// Bytes of the log that are next to nothing.
const QUIET_BYTES: u64 = 64 << 10;

/// A cut is made for dropped trees alone after so long.
const DROPS_WAIT: Duration = Duration::from_secs(5);

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
        self.inner.watch.check_open()?;
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
        self.inner.watch.check_open()?;
        if self.inner.is_seal_of_use() {
            self.inner.seal(interrupt)?;
        }
        let trees: Option<Vec<TreeId>> = collection.map(|c| {
            let indexes = c.all_indexes();
            let ids = indexes.iter().map(|i| TreeId(i.id));
            [TreeId(c.id)].into_iter().chain(ids).collect()
        });
        // It flushes first.
        self.inner.trees.compact(trees.as_deref(), interrupt)?;
        self.inner.reclaim()
    }
}

/// Since when next to nothing was written.
struct Quiet {
    since: Instant,
    bytes: u64,
}

impl Quiet {
    fn new(bytes: u64) -> Quiet {
        Quiet {
            since: Instant::now(),
            bytes,
        }
    }

    /// Whether that is long ago, when `bytes` have been written altogether.
    fn is(&mut self, bytes: u64) -> bool {
        if bytes.saturating_sub(self.bytes) > QUIET_BYTES {
            *self = Quiet::new(bytes);
        }
        self.since.elapsed() >= DELETES_WAIT
    }
}

impl Inner {
    /// Ends the memtable at the newest commit.
    pub fn seal(&self, interrupt: &dyn Interrupt) -> Result<()> {
        // They are counted before everybody waits.
        if !self.cuts.dropped.lock().given_up().is_empty() {
            self.trees.file_sizes();
        }
        let _alone = self.cuts.gate.own(interrupt)?;
        let cut = self.newest_timestamp();
        self.save_derived(cut);
        self.cuts.buffers.seal(cut);
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
        let unsaved = self.catalog.those(self.catalog.lists.take_unsaved());
        for c in unsaved.iter().filter(|c| c.take_news(news::UNSAVED)) {
            let last = c.append().last;
            let totals = totals_bytes([c.count(), c.data_bytes(), last]);
            batch.push(meta(keys::totals(c.id), Some(totals)));
            batch.extend(c.marks().into_iter().map(|(k, v)| meta(k, v)));
            for index in c.all_indexes().iter() {
                if let Some(arrays) = index.multikey().unsaved() {
                    let entries = arrays.entries(index.id);
                    batch.extend(entries.map(|(k, v)| meta(k, Some(v))));
                }
            }
        }
        // A note is of no use once everything of its tree is gone from the files.
        let persisted = self.trees.persisted();
        let mut dropped = self.cuts.dropped.lock();
        if !dropped.given_up().is_empty() {
            let files = self.trees.file_sizes();
            dropped.forget(MOST_FORGOTTEN, |tree, at| {
                let gone = at < persisted && files.of(tree) == 0;
                if gone {
                    batch.push(meta(keys::drop_pending(tree.0), None));
                }
                gone
            });
        }
        drop(dropped);
        let begins = self
            .journal
            .log()
            .map_or(Timestamp::ZERO, |log| log.begins_after());
        let names = self.catalog.save_past(begins);
        batch.extend(names.into_iter().map(|(k, v)| meta(k, v)));
        let next_id = self.catalog.next_id().to_le_bytes();
        batch.push(meta(keys::next_id(), Some(next_id.to_vec())));
        self.trees.apply(batch, cut);
    }

    /// Seals when memory or the log has grown enough, trims and reclaims. `applied`: what the start
    /// had to apply is worth a cut.
    pub fn checkpoint_loop(&self, mut applied: bool) {
        let mut last = Instant::now();
        let mut quiet = Quiet::new(self.written());
        while !self.watch.pause(Duration::from_millis(100)) {
            self.space.refresh(|| self.owed());
            self.note_time();
            // The files are to stand still then.
            if self.cuts.is_still() {
                continue;
            }
            // What fails is tried again: it shows in the trees' health and in refused writes. The log
            // is trimmed first, so that its size tells of what is needed.
            let _ = self.reclaim();
            // What a start had to apply is not to be applied again by the next one: a server that
            // is killed again and again would take longer each time. Writes with many index entries take
            // long though their log is short.
            let late = self.cuts.is_due(last.elapsed());
            let late = late || !self.space.is_ample() && last.elapsed() >= SHORT_WAIT;
            let late = late || self.deletes_wait(&mut quiet, last.elapsed());
            let late = late && self.trees.is_durable() && self.trees.sizes().memory > 0;
            let late = late && self.is_seal_of_use();
            let drops = last.elapsed() >= DROPS_PAUSE && self.drops_wait();
            if std::mem::take(&mut applied) || self.memory_is_full() || drops || late {
                let _ = self.seal(&UntilClosed(&self.watch));
                last = Instant::now();
            }
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
        self.journal
            .log()
            .map_or(0, |log| log.bytes_behind(persisted))
    }

    fn memory_is_full(&self) -> bool {
        let sizes = self.trees.sizes();
        let active = self.active_bytes(&sizes);
        // On a small disk the memtable is small.
        let least = LOG_LEAST.min(self.home.budget.memtable * LOG_LEAST_TO_MEMTABLE);
        let log_limit = (self.home.budget.memtable * LOG_TO_MEMTABLE).max(least);
        (self.trees.is_durable() && active >= self.home.budget.memtable)
            || (sizes.sealed_count == 0 && active > 0 && self.log_behind_cut() > log_limit)
    }

    /// Bytes that were appended to the log since the start, here or by another member.
    fn written(&self) -> u64 {
        self.door.bytes() + self.followed.bytes()
    }

    /// True if so much was deleted that files are to have less of it, and nothing else is written.
    /// `elapsed`: since the last cut.
    fn deletes_wait(&self, quiet: &mut Quiet, elapsed: Duration) -> bool {
        let sizes = self.trees.sizes();
        if !quiet.is(self.written()) || sizes.deletions == 0 {
            return false;
        }
        let memory = self.active_bytes(&sizes);
        let many = sizes.deletions >= DELETES && memory >= self.home.budget.memtable / DELETES_PART;
        many || elapsed >= FEW_DELETES_WAIT
    }

    /// True if files have something of dropped trees that only a later cut lets go, and have had
    /// it for a while. Where much is written a cut comes by itself.
    fn drops_wait(&self) -> bool {
        if self.trees.sizes().sealed_count > 0 {
            // One is on its way.
            return false;
        }
        let (persisted, now) = (self.trees.persisted(), self.home.clock.instant());
        let all = self.cuts.dropped.lock();
        let waiting = all.given_up().iter().filter(|(_, at)| *at > persisted);
        // Tests make and drop collections by the thousand, of which nothing is ever in a file.
        if waiting.clone().count() >= MANY_DROPS {
            return true;
        }
        waiting.clone().any(|(tree, at)| {
            let long = self.retention.ages.age(*at, now) >= DROPS_WAIT;
            long && self.trees.tree_bytes(*tree) > 0
        })
    }

    /// Trims the log and gives up dropped trees.
    pub fn reclaim(&self) -> Result<()> {
        let trimmed = self.trim();
        self.journal.note_trimmed(&trimmed);
        let oldest = self.trees.views().oldest();
        // Without the lock: freeing a large tree takes a while, and commits of drops need it.
        let unread = self.cuts.dropped.lock().take_unread(oldest);
        for (tree, at) in &unread {
            self.trees.drop_tree(*tree, *at);
        }
        self.cuts.dropped.lock().gave_up(unread);
        trimmed
    }

    /// Notes how far the commits have come by now.
    pub fn note_time(&self) {
        let visible = self.trees.views().visible();
        let (at, wall) = self.door.newest().unwrap_or((visible, 0));
        self.retention
            .ages
            .note(at, self.home.clock.instant(), wall);
    }

    /// What is kept of the log though the trees have it. Readers can do without, writers not: where
    /// there is little space, nothing.
    fn kept(&self) -> Keep {
        if !self.space.is_ample() && self.trees.is_durable() {
            return Keep {
                short: true,
                ..Keep::default()
            };
        }
        let (now, in_memory) = (self.home.clock.instant(), !self.trees.is_durable());
        self.retention.of_log(&self.journal, now, in_memory)
    }

    /// Trims the log; not while fsyncLock keeps files as they are.
    fn trim(&self) -> Result<()> {
        let Ok(_still) = self.cuts.still.lock_for(&self.patient(None)) else {
            return Ok(());
        };
        self.journal
            .log()?
            .trim_keeping(self.trees.persisted(), &self.kept())
    }

    /// Wakes the thread that seals if there is enough to seal.
    pub fn seal_if_full(&self) {
        if self.memory_is_full() {
            self.watch.call();
        }
    }
}
