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
use crate::commit::door::Opening;
use crate::commit::ops;
use crate::gate::{MOMENT, own_all};
use crate::keys;
use crate::oplog::UntilClosed;
use crate::store::{Inner, Store};
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_log::Keep;
use muniment_op::{Interrupt, NeverInterrupted, Sleepers};
use muniment_tree::{Batch, Op, TreeId};
use muniment_value::{Code, Error, Result};
use std::sync::atomic::Ordering::SeqCst;
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

/// The longest time for which the thread that clears away waits for one thing.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// For clearing away: it ends when its time is over, if there is a limit, and before writes are
/// locked, since nobody else is to wait for it then.
struct Patient<'i> {
    inner: &'i Inner,
    until: Option<Instant>,
}

impl<'i> Patient<'i> {
    fn new(inner: &'i Inner, patience: Option<Duration>) -> Patient<'i> {
        let until = patience.map(|p| Instant::now() + p);
        Patient { inner, until }
    }
}

impl Interrupt for Patient<'_> {
    fn check(&self) -> Result<()> {
        self.inner.check_open()?;
        let over = self.until.is_some_and(|until| Instant::now() >= until);
        if !over && !self.inner.is_still() {
            return Ok(());
        }
        Err(Error::new(Code::LockTimeout, "it is in use for now"))
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        show(&self.inner.watch.stops);
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.until
    }
}

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
        if !self.dropped.lock().given_up().is_empty() {
            self.trees.file_sizes();
        }
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
        let catalog = self.catalog.read();
        let unsaved = self.lists.take_unsaved();
        let unsaved = unsaved.into_iter().filter_map(|id| catalog.by_id(id));
        for c in unsaved.filter(|c| c.take_news(news::UNSAVED)) {
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
        drop(catalog);
        // A note is of no use once everything of its tree is gone from the files.
        let persisted = self.trees.persisted();
        let mut dropped = self.dropped.lock();
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
        let mut quiet = Quiet::new(self.written());
        while !self.pause(Duration::from_millis(100)) {
            self.space.refresh(|| self.owed());
            self.note_time();
            // The files are to stand still then.
            if self.is_still() {
                continue;
            }
            // What fails is tried again: it shows in the trees' health and in refused writes. The log
            // is trimmed first, so that its size tells of what is needed.
            let _ = self.reclaim();
            // What a start had to apply is not to be applied again by the next one: a server that
            // is killed again and again would take longer each time. Writes with many index entries take
            // long though their log is short.
            let asked = self.checkpoint_ms.load(SeqCst);
            let late = asked > 0 && last.elapsed() >= Duration::from_millis(asked);
            let late = late || !self.space.is_ample() && last.elapsed() >= SHORT_WAIT;
            let late = late || self.deletes_wait(&mut quiet, last.elapsed());
            let late = late && self.trees.is_durable() && self.trees.sizes().memory > 0;
            let late = late && self.is_seal_of_use();
            let drops = last.elapsed() >= DROPS_PAUSE && self.drops_wait();
            if std::mem::take(&mut applied) || self.memory_is_full() || drops || late {
                let _ = self.seal(&UntilClosed(self));
                last = Instant::now();
            }
        }
    }

    /// Clears away, in a thread of its own: for what is in use all the time it waits longer each time.
    pub fn clear_loop(&self) {
        let mut patience = MOMENT;
        while !self.pause(Duration::from_millis(100)) {
            if self.is_still() {
                continue;
            }
            patience = match self.clear_away(patience) {
                true => MOMENT,
                false => (patience * 2).min(LONGEST_WAIT),
            };
        }
    }

    /// Takes away what others left, waiting so long for each; false if something is left. Behind a
    /// closed door nothing is written.
    pub fn clear_away(&self, patience: Duration) -> bool {
        if let Ok(opening) = self.door.opening() {
            self.remove_failed_builds(opening, patience);
            self.drop_discarded(opening, patience);
            self.drop_aborted(opening, patience);
        }
        self.failed_builds.lock().is_empty()
            && self.discarded.lock().is_empty()
            && self.aborted.lock().is_empty()
    }

    /// True while writes are locked, or are about to be.
    fn is_still(&self) -> bool {
        let locking = self.fsync_lock.try_lock();
        locking.is_none_or(|lock| lock.depth() > 0)
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
        // On a small disk the memtable is small.
        let least = LOG_LEAST.min(self.budget.memtable * LOG_LEAST_TO_MEMTABLE);
        let log_limit = (self.budget.memtable * LOG_TO_MEMTABLE).max(least);
        (self.trees.is_durable() && active >= self.budget.memtable)
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
        let many = sizes.deletions >= DELETES && memory >= self.budget.memtable / DELETES_PART;
        many || elapsed >= FEW_DELETES_WAIT
    }

    /// True if files have something of dropped trees that only a later cut lets go, and have had
    /// it for a while. Where much is written a cut comes by itself.
    fn drops_wait(&self) -> bool {
        if self.trees.sizes().sealed_count > 0 {
            // One is on its way.
            return false;
        }
        let (persisted, now) = (self.trees.persisted(), self.clock.instant());
        let all = self.dropped.lock();
        let waiting = all.given_up().iter().filter(|(_, at)| *at > persisted);
        // Tests make and drop collections by the thousand, of which nothing is ever in a file.
        if waiting.clone().count() >= MANY_DROPS {
            return true;
        }
        waiting.clone().any(|(tree, at)| {
            let long = self.ages.age(*at, now) >= DROPS_WAIT;
            long && self.trees.tree_bytes(*tree) > 0
        })
    }

    /// Trims the log and gives up dropped trees.
    pub fn reclaim(&self) -> Result<()> {
        let trimmed = self.trim();
        *self.trim_failure.lock() = trimmed.as_ref().err().cloned();
        let oldest = self.trees.views().oldest();
        // Without the lock: freeing a large tree takes a while, and commits of drops need it.
        let unread = self.dropped.lock().take_unread(oldest);
        for (tree, at) in &unread {
            self.trees.drop_tree(*tree, *at);
        }
        self.dropped.lock().gave_up(unread);
        trimmed
    }

    /// What is kept of the log though the trees have it. Readers can do without, writers not: where
    /// there is little space, nothing.
    fn kept(&self) -> Keep {
        let window = *self.window.lock();
        if !self.space.is_ample() && self.trees.is_durable() {
            return Keep {
                short: true,
                ..Keep::default()
            };
        }
        Keep {
            short: false,
            bytes: window.bytes,
            // Where all is in memory only its size counts.
            later_than: match window.longest().is_zero() || !self.trees.is_durable() {
                true => Timestamp::MAX,
                false => self.older_than(window.longest()),
            },
        }
    }

    /// Everything in the log up to this came so long ago; nothing, if that is not known.
    fn older_than(&self, age: Duration) -> Timestamp {
        if self.ages.is_to_learn()
            && let Ok(log) = self.log()
        {
            // What cannot be read is as old as the start.
            let ends = log.segment_ends().into_iter();
            let past = ends.filter_map(|end| {
                let mut reader = log.read(end);
                let next = reader.next().ok()??;
                Some((end, ops::wall_of(&next)))
            });
            self.ages.learn(&past.collect::<Vec<_>>());
        }
        let older = self.ages.older_than(age, self.clock.instant());
        older.unwrap_or(Timestamp::ZERO)
    }

    /// Notes how far the commits have come by now.
    pub fn note_time(&self) {
        let visible = self.trees.views().visible();
        let (at, wall) = self.door.newest().unwrap_or((visible, 0));
        self.ages.note(at, self.clock.instant(), wall);
    }

    /// Trims the log; not while fsyncLock keeps files as they are.
    fn trim(&self) -> Result<()> {
        let Ok(_still) = self.still.lock_for(&Patient::new(self, None)) else {
            return Ok(());
        };
        self.log()?
            .trim_keeping(self.trees.persisted(), &self.kept())
    }

    /// Takes failed index builds away.
    fn remove_failed_builds(&self, opening: Opening, patience: Duration) {
        let left = std::mem::take(&mut *self.failed_builds.lock());
        // Those of another opening were taken up by the primary of that time.
        for (collection, index, begun) in left.into_iter().filter(|b| b.2 == opening) {
            let waits = own_all(&[&collection.ddl], &Patient::new(self, Some(patience)));
            let Ok(_alone) = waits else {
                self.failed_builds.lock().push((collection, index, begun));
                continue;
            };
            let all = collection.all_indexes();
            let rest: Vec<_> = all.iter().filter(|i| i.id != index.id).cloned().collect();
            if rest.len() < all.len()
                && !collection.is_dropped()
                && self
                    .commit_indexes(&collection, &rest, opening, &Patient::new(self, None))
                    .is_err()
            {
                let left = (collection.clone(), index, begun);
                self.failed_builds.lock().push(left);
            }
        }
    }

    /// Drops collections that aborted transactions have made and other operations had at that time.
    fn drop_aborted(&self, opening: Opening, patience: Duration) {
        let left = std::mem::take(&mut *self.aborted.lock());
        for (collection, _) in left.into_iter().filter(|l| l.1 == opening) {
            self.end_made(&collection, opening, &Patient::new(self, Some(patience)));
        }
    }

    /// Drops what commands left behind.
    fn drop_discarded(&self, opening: Opening, patience: Duration) {
        let left = std::mem::take(&mut *self.discarded.lock());
        for collection in left.into_iter().filter(|c| !c.is_dropped()) {
            let waits = own_all(&[&collection.ddl], &Patient::new(self, Some(patience)));
            let dropped = waits.is_ok_and(|_alone| {
                let names = self.naming.lock();
                let dropped = self.commit_drop(&collection, opening, &Patient::new(self, None));
                drop(names);
                dropped.and_then(|dropped| self.settle(dropped)).is_ok()
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
