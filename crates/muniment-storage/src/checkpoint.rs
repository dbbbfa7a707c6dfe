//! Cuts: sealing what is in memory, trimming the log up to what is on the disk, and giving up dropped
//! trees.
//!
//! A seal has the gate alone, so that every commit up to the cut is applied and none after it. Totals,
//! multikey paths and the next free id are derived from the commits. At the cut they are written into
//! the tree `META`: these puts are the only ones that are in no record, because applying the log after
//! the cut computes them again.
//!
//! There may be something to write although no commit has come since the last cut: a start finds damage, and
//! a transaction shows its arrays before it commits. So these puts go into the trees even where everything up
//! to the cut is on the disk already.
//!
//! Dropping a collection or index leaves a note in `META`. Its tree is given up when no view is left
//! that began before the drop; the note goes with a later cut, when the files are gone.

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

/// The log may grow to this multiple of the memtable's size before a cut lets it be trimmed. Small
/// changes of large documents fill the log slower than memory, changes of hot keys faster. A start has
/// to apply all of it again, which takes a few microseconds for each small write.
const LOG_TO_MEMTABLE: u64 = 2;
/// The log may always grow to this size; with a small memtable, to this multiple of the memtable's size.
const LOG_LEAST: u64 = 64 << 20;
const LOG_LEAST_TO_MEMTABLE: u64 = 8;

/// After a start, a cut is worth its cost if this many bytes were applied to memory.
const APPLIED: u64 = 4 << 20;
/// After a start, a cut is also worth its cost if this many bytes of log were applied: a record that
/// changes the same keys again and again takes long to apply and little memory.
const APPLIED_LOG: u64 = 32 << 20;

/// When this many dropped trees wait, a cut is made to forget them.
const MANY_DROPS: usize = 1000;

/// One cut forgets at most this many dropped trees, because all commits wait for it.
const MOST_FORGOTTEN: usize = 20_000;

/// Cuts that only forget dropped trees are at least this far apart: each writes a table of its own, and
/// many tables hold writers back.
const DROPS_PAUSE: Duration = Duration::from_millis(500);

/// How long data stays in memory when space is short: only tables can be compacted, so only they free
/// space.
const SHORT_WAIT: Duration = Duration::from_secs(3);

/// Deletions free space only when they reach tables. A cut is made for that alone after next to nothing
/// was written for this long (while much is written, a cut comes by itself), provided there are this
/// many deletions and the memtable is not much smaller than it may be. Otherwise it is made later.
const DELETES_WAIT: Duration = Duration::from_secs(10);
const DELETES: u64 = 500;
const DELETES_PART: u64 = 64;
const FEW_DELETES_WAIT: Duration = Duration::from_secs(600);
/// An amount of log, in bytes, that counts as next to nothing.
const QUIET_BYTES: u64 = 64 << 10;

/// A cut is made for dropped trees alone after this long.
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
    /// Seals memory and writes it to tables; returns when it is on the disk and the log is trimmed. A
    /// member of a replica set keeps in memory what is not committed.
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
        // `compact` flushes memory first, so that everything is in tables.
        self.inner.trees.compact(trees.as_deref(), interrupt)?;
        self.inner.reclaim()
    }
}

/// Notes how long next to nothing was written.
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

    /// Whether it has been quiet for long, when `bytes` have been written in total.
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
        // The sizes of files are read before the gate is taken, because all commits wait after that.
        if !self.cuts.dropped.lock().given_up().is_empty() {
            self.trees.file_sizes();
        }
        let _alone = self.cuts.gate.own(interrupt)?;
        let cut = self.newest_timestamp();
        self.save_derived(cut);
        self.cuts.buffers.seal(cut);
        self.trees.seal(cut)
    }

    /// False while something sealed is not committed. Another seal could not be written to files either,
    /// and each makes reads slower. (When memory is full, it is sealed all the same.)
    fn is_seal_of_use(&self) -> bool {
        self.trees.sizes().uncommitted_count == 0
    }

    /// Puts what is derived from the commits up to `cut`. The gate keeps commits out meanwhile.
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
        // A note is of no use after the files hold nothing of its tree any more.
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
        // The disk or a memtable that was sealed has it already if no commit has come since. Another one would be written
        // for it alone.
        if self.cuts.saves_id(cut, persisted) {
            let next_id = self.catalog.next_id().to_le_bytes();
            batch.push(meta(keys::next_id(), Some(next_id.to_vec())));
        }
        self.trees.apply_at_cut(batch, cut);
    }

    /// Seals when memory or the log has grown enough, trims and reclaims. `applied`: the start had to
    /// apply so much that a cut is worth its cost.
    pub fn checkpoint_loop(&self, mut applied: bool) {
        let mut last = Instant::now();
        let mut quiet = Quiet::new(self.written());
        while !self.watch.pause(Duration::from_millis(100)) {
            self.space.refresh(|| self.owed());
            self.note_time();
            // fsyncLock keeps the files as they are.
            if self.cuts.is_still() {
                continue;
            }
            // A failure shows in the trees' health and in refused writes, and the next round tries
            // again. The log is trimmed first, so that the sizes below are those that remain.
            let _ = self.reclaim();
            // The next start must not apply again what this one had to apply: a server that is killed
            // again and again would take longer each time. Writes with many index entries take long
            // though their log is short.
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

    /// Whether the start had to apply so much that a cut is worth its cost.
    pub fn much_was_applied(&self) -> bool {
        let active = self.active_bytes(&self.trees.sizes());
        let log = || self.log_behind_cut();
        let much = active > APPLIED || (active > 0 && log() > APPLIED_LOG);
        much && self.trees.is_durable()
    }

    /// About how many bytes of the log a start would have to apply.
    fn log_behind_cut(&self) -> u64 {
        let persisted = self.trees.persisted();
        self.journal
            .log()
            .map_or(0, |log| log.bytes_behind(persisted))
    }

    fn memory_is_full(&self) -> bool {
        let sizes = self.trees.sizes();
        let active = self.active_bytes(&sizes);
        // A small disk has a small memtable, and the log is limited with it.
        let least = LOG_LEAST.min(self.home.budget.memtable * LOG_LEAST_TO_MEMTABLE);
        let log_limit = (self.home.budget.memtable * LOG_TO_MEMTABLE).max(least);
        (self.trees.is_durable() && active >= self.home.budget.memtable)
            || (sizes.sealed_count == 0 && active > 0 && self.log_behind_cut() > log_limit)
    }

    /// Bytes that were appended to the log since the start, here or by another member.
    fn written(&self) -> u64 {
        self.door.bytes() + self.followed.bytes()
    }

    /// True if so many deletions wait in memory that the files should learn of them, and nothing else is
    /// written. `elapsed`: the time since the last cut.
    fn deletes_wait(&self, quiet: &mut Quiet, elapsed: Duration) -> bool {
        let sizes = self.trees.sizes();
        if !quiet.is(self.written()) || sizes.deletions == 0 {
            return false;
        }
        let memory = self.active_bytes(&sizes);
        let many = sizes.deletions >= DELETES && memory >= self.home.budget.memtable / DELETES_PART;
        many || elapsed >= FEW_DELETES_WAIT
    }

    /// True if many dropped trees can be forgotten, or files have held data of some for a while that only a later cut
    /// lets go. Where much is written, such a cut comes by itself.
    fn drops_wait(&self) -> bool {
        if self.trees.sizes().sealed_count > 0 {
            // A cut is on its way.
            return false;
        }
        let (persisted, now) = (self.trees.persisted(), self.home.clock.instant());
        // The sizes of files are counted before the list is locked, because commits of drops wait for it.
        if self.cuts.dropped.lock().given_up().len() >= MANY_DROPS {
            self.trees.file_sizes();
        }
        let all = self.cuts.dropped.lock();
        let waiting = all.given_up().iter().filter(|(_, at)| *at > persisted);
        // Test suites make and drop collections by the thousand, none of which ever reaches a file.
        if waiting.clone().count() >= MANY_DROPS || self.many_are_gone(all.given_up()) {
            return true;
        }
        waiting.clone().any(|(tree, at)| {
            let long = self.retention.ages.age(*at, now) >= DROPS_WAIT;
            long && self.trees.tree_bytes(*tree) > 0
        })
    }

    /// True if the next cut can forget many dropped trees.
    fn many_are_gone(&self, given_up: &[(TreeId, Timestamp)]) -> bool {
        if given_up.len() < MANY_DROPS {
            return false;
        }
        let (persisted, files) = (self.trees.persisted(), self.trees.file_sizes());
        let gone = given_up.iter();
        let gone = gone.filter(|(tree, at)| *at < persisted && files.of(*tree) == 0);
        gone.take(MANY_DROPS).count() == MANY_DROPS
    }

    /// Trims the log and gives up dropped trees.
    pub fn reclaim(&self) -> Result<()> {
        let trimmed = self.trim();
        self.journal.note_trimmed(&trimmed);
        let oldest = self.trees.views().oldest();
        // The lock is not held here, because freeing a large tree takes a while and commits of drops
        // need it.
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

    /// The part of the log that is kept although the trees' files have it. Only readers of the log need
    /// it, so nothing is kept where space is short.
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

    /// Trims the log, unless fsyncLock keeps the files as they are.
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
