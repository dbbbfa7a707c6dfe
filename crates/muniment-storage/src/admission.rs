//! Decides when commits may go to the log: back-pressure, and the re-opening of a log whose sync failed.
//!
//! Writers are slowed down in proportion before memory or unmerged runs pile up: commits are admitted at
//! the rate (bytes a second) that flushes and compactions are known to keep up with.
//!
//! The primary of a set nearly stops writes while its majority lags too far: what the majority does not
//! have can be lost, and has to stay in memory.
//!
//! A log whose sync failed is opened anew (`journal`) as soon as a probe can be written; until then
//! reads are served and writes are refused.

use crate::commit::door::{Door, not_primary};
use crate::inner::Inner;
use crate::watch::Watch;
use muniment_io::Spread;
use muniment_op::{Interrupt, Sleepers, sleep_until};
use muniment_tree::{Sizes, Trees};
use muniment_value::Result;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of commits after which the pressure is looked at again.
const LOOK_EVERY: u64 = 128 << 10;
/// Bytes of commits after which the log is synced early, so that no sync takes long.
const SYNC_EVERY: u64 = 4 << 20;
/// Bytes of small commits that a thread gathers before it adds them to the counters.
const TELL: u64 = 8 << 10;
/// The longest time that one commit is held back.
const MAX_DELAY: Duration = Duration::from_millis(120);

/// Commits wait for a flush when memory has grown to this many times the size of a memtable.
const MOST_MEMTABLES: u64 = 6;

/// The state of admission.
pub(crate) struct Admission {
    /// Bytes that were not added to the counters yet.
    untold: Spread<AtomicU64>,
    since_look: AtomicU64,
    since_sync: AtomicU64,
    /// Bytes a second that may be committed; 0: no limit.
    rate: AtomicU64,
    /// The moment by which flushes and compactions will have kept up with the bytes admitted so far, at
    /// `rate`.
    paid: Mutex<Instant>,
    delayed_micros: AtomicU64,
    /// How many seconds the majority may lag; 0: no limit.
    most_lag: AtomicU64,
    lag: Mutex<Lag>,
}

impl Admission {
    /// Holds no commit back.
    pub fn new() -> Admission {
        Admission {
            untold: Spread::default(),
            since_look: AtomicU64::new(0),
            since_sync: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            paid: Mutex::new(Instant::now()),
            delayed_micros: AtomicU64::new(0),
            most_lag: AtomicU64::new(0),
            lag: Mutex::default(),
        }
    }

    /// Microseconds that commits were held back, all together.
    pub fn delayed_micros(&self) -> u64 {
        self.delayed_micros.load(Relaxed)
    }

    /// See [`Store::set_flow_control`](crate::Store::set_flow_control).
    pub fn set_most_lag(&self, seconds: u64) {
        self.most_lag.store(seconds, Relaxed);
    }

    /// See [`Store::flow_control`](crate::Store::flow_control).
    pub fn lagged(&self) -> (u64, u64, bool) {
        let lag = self.lag.lock();
        let now = lag.since.map_or(Duration::ZERO, |since| since.elapsed());
        let all = (lag.ended + now).as_micros() as u64;
        (lag.count, all, lag.since.is_some())
    }

    /// Notes whether the majority lags too far.
    fn note_lag(&self, lags: bool) {
        let mut lag = self.lag.lock();
        match (lag.since, lags) {
            (None, true) => {
                lag.since = Some(Instant::now());
                lag.count += 1;
            }
            (Some(since), false) => {
                lag.ended += since.elapsed();
                lag.since = None;
            }
            _ => {}
        }
    }

    fn delay(&self, bytes: u64, rate: u64, interrupt: &dyn Interrupt) -> Result<()> {
        let cost = Duration::from_secs_f64(bytes as f64 / rate as f64);
        let now = Instant::now();
        let wait = {
            let mut paid = self.paid.lock();
            *paid = (*paid).max(now) + cost;
            // Caps the accumulated delay at 2 × MAX_DELAY, so that one burst does not slow writers long
            // afterwards.
            *paid = (*paid).min(now + MAX_DELAY * 2);
            paid.saturating_duration_since(now).min(MAX_DELAY)
        };
        // A shorter sleep costs more than it holds back. The debt is kept for the next commit.
        if wait >= Duration::from_millis(1) {
            sleep_until(now + wait, interrupt)?;
            let micros = wait.as_micros() as u64;
            self.delayed_micros.fetch_add(micros, Relaxed);
        }
        Ok(())
    }
}

/// The times in which the majority lagged too far.
#[derive(Default)]
struct Lag {
    since: Option<Instant>,
    ended: Duration,
    count: u64,
}

/// Bytes a second that are admitted while the majority lags too far. Small writes still go through, so
/// that no client gives up waiting.
const WHILE_LAGGING: u64 = 64 << 10;

/// Bytes a second under this pressure; 0 means no limit.
fn rate(p: &Sizes) -> u64 {
    let sealed = match p.sealed_count {
        0 | 1 => u64::MAX,
        2 => 48 << 20,
        3 => 16 << 20,
        _ => 4 << 20,
    };
    let runs = match p.fresh_runs {
        0..=12 => u64::MAX,
        // The rate is 128 MiB/s at 13 runs, and is halved with every further run.
        n => (128u64 << 20) >> (n - 13).min(7),
    };
    match sealed.min(runs) {
        u64::MAX => 0,
        rate => rate,
    }
}

/// A writer that waits for memory.
struct Writer<'w> {
    watch: &'w Watch,
    door: &'w Door,
    trees: &'w dyn Trees,
    interrupt: &'w dyn Interrupt,
    /// The record comes from another member.
    follows: bool,
}

impl Interrupt for Writer<'_> {
    fn check(&self) -> Result<()> {
        if !self.follows && self.door.is_closed() {
            return Err(not_primary());
        }
        // When flushes fail, writers get the reason.
        if let Some(e) = self.trees.faults().flush {
            return Err(e);
        }
        self.interrupt.check()?;
        self.watch.check_open()
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        self.interrupt.sleepers(show);
        show(&self.watch.stops);
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.interrupt.wakes_at()
    }
}

/// The most bytes of a commit that does not wait for memory because it frees space.
const FREES: usize = 64 << 10;

impl Inner {
    /// Admits a commit of `bytes` to the log. A commit that only frees space is not refused for want of
    /// it, and does not wait for memory. Others wait when flushes or compactions lag.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace; 91 when the store is closed; what `interrupt` says.
    pub fn admit(&self, bytes: usize, frees: bool, interrupt: &dyn Interrupt) -> Result<()> {
        self.watch.check_open()?;
        let a = &self.admission;
        // An empty commit costs something, too: its record has a head.
        let cost = bytes as u64 + 128;
        // All threads share the counters, so many small commits are added to them as one, as long as
        // there is plenty of everything.
        let untold = a.untold.own();
        let all = untold.fetch_add(cost, Relaxed) + cost;
        if all < TELL && a.rate.load(Relaxed) == 0 && self.space.is_ample() {
            return Ok(());
        }
        let all = untold.swap(0, Relaxed).max(cost);
        if self.trees.is_durable() && !frees {
            // A record that fits into no segment gets one of its own, so that much space is needed.
            let alone = match cost > self.journal.segment_bytes() {
                true => cost,
                false => 0,
            };
            (self.space.admit(all + alone, || self.owed()))
                .inspect_err(|_| self.space.note_refused())?;
        }
        // A commit that frees space may come from the thread that seals, for which all others wait. It
        // does not wait for memory itself; it is small.
        if !frees || bytes > FREES {
            self.wait_for_memory(interrupt)?;
        }
        if a.since_sync.fetch_add(all, Relaxed) + all > SYNC_EVERY {
            a.since_sync.store(0, Relaxed);
            self.watch.call();
        }
        if a.since_look.fetch_add(all, Relaxed) + all > LOOK_EVERY {
            a.since_look.store(0, Relaxed);
            self.seal_if_full();
            a.rate.store(self.rate(), Relaxed);
        }
        match a.rate.load(Relaxed) {
            0 => {}
            rate => {
                a.delay(cost, rate, interrupt)?;
                // The rate is set anew here, which ends the pressure sooner than the next look would.
                a.rate.store(self.rate(), Relaxed);
            }
        }
        Ok(())
    }

    /// Holds a writer back while too much memory waits to be flushed. When flushes fail, the writer gets
    /// the reason.
    fn wait_for_memory(&self, interrupt: &dyn Interrupt) -> Result<()> {
        // Looking at the figures is expensive, so it is done only when the pressure is known to be high.
        if self.admission.rate.load(Relaxed) == 0 || !self.trees.is_durable() {
            return Ok(());
        }
        let follows = self.door.is_closed();
        let writer = Writer {
            watch: &self.watch,
            door: &self.door,
            trees: &*self.trees,
            interrupt,
            follows,
        };
        let began = Instant::now();
        let had_room = || {
            let sizes = self.trees.sizes();
            let (_, kept) = self.cuts.buffers.live(self.trees.persisted());
            let memory = sizes.memory.max(kept);
            // A follower must not wait for the commit point, which may come with the very record that it
            // is to apply. The primary makes its writers wait.
            let uncommitted =
                sizes.sealed_count > 0 && sizes.sealed_count == sizes.uncommitted_count;
            memory < self.home.budget.memtable * MOST_MEMTABLES || follows && uncommitted
        };
        if had_room() {
            return Ok(());
        }
        let waited = self.trees.moved().wait(&writer, had_room);
        let micros = began.elapsed().as_micros() as u64;
        self.admission.delayed_micros.fetch_add(micros, Relaxed);
        waited
    }

    /// Bytes of the active memtable, or, if that is more, the bytes that its commits keep alive.
    pub fn active_bytes(&self, sizes: &Sizes) -> u64 {
        let (kept, _) = self.cuts.buffers.live(self.trees.persisted());
        sizes.memory.saturating_sub(sizes.sealed).max(kept)
    }

    /// Bytes a second that may be committed; 0 means no limit. A memtable that has grown far beyond its
    /// size waits to be sealed, which counts as pressure, too.
    fn rate(&self) -> u64 {
        let lags = match self.majority_lags() {
            true => WHILE_LAGGING,
            false => 0,
        };
        let limits = [self.flush_rate(), self.space.freeing_rate(), lags];
        let least = limits.into_iter().filter(|rate| *rate > 0).min();
        least.unwrap_or(0)
    }

    /// About how many bytes have still to be written to tables.
    pub fn owed(&self) -> u64 {
        match self.trees.is_durable() {
            true => self.trees.sizes().memory,
            false => 0,
        }
    }

    /// Whether the majority lacks records that are older than flow control allows.
    pub fn majority_lags(&self) -> bool {
        let most = self.admission.most_lag.load(Relaxed);
        let majority = self.door.majority().filter(|_| most > 0);
        let Some(majority) = majority.filter(|_| !self.door.is_closed()) else {
            self.admission.note_lag(false);
            return false;
        };
        // The lag is measured from the oldest record that the majority lacks; before that there may have
        // been no writes.
        let (lacks, last) = match self.door.places() {
            Some(places) => (places.at(majority.index + 1), places.last()),
            None => (None, majority),
        };
        // The time that passed between the two, which their timestamps do not tell.
        let now = self.home.clock.instant();
        let behind = lacks.map_or(Duration::ZERO, |p| {
            let since = self.retention.ages.age(p.at, now);
            since.saturating_sub(self.retention.ages.age(last.at, now))
        });
        let lags = behind > Duration::from_secs(most);
        self.admission.note_lag(lags);
        lags
    }

    /// Bytes a second that flushes and compactions keep up with; 0 means no limit.
    fn flush_rate(&self) -> u64 {
        if !self.trees.is_durable() {
            // There are no flushes that could lag.
            return 0;
        }
        let mut sizes = self.trees.sizes();
        let active = self.active_bytes(&sizes);
        if self.door.is_closed() {
            // Memory that waits for the commit point is not counted: slowing a follower down does not
            // bring that any sooner.
            sizes.sealed_count -= sizes.uncommitted_count.min(sizes.sealed_count);
        }
        sizes.sealed_count += (active / self.home.budget.memtable.max(1)) as usize;
        rate(&sizes)
    }

    /// Called every commit interval. Opens a log anew whose sync has failed.
    pub fn mind_the_log(&self) {
        let works = self.journal.works();
        // fsyncLock keeps files as they are.
        let Some(_still) = self.cuts.still.try_lock() else {
            return;
        };
        if works
            || self.space.admit(0, || self.owed()).is_err()
            || crate::space::probe(&*self.home.disk, &self.home.path).is_err()
        {
            return;
        }
        // With the gate alone, no commit is under way and none can begin.
        let Some(_gate) = self.cuts.gate.own_for(Duration::from_millis(500)) else {
            return;
        };
        // After a failure the next interval tries again.
        let _ = self.journal.reopen();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn more_pressure_less_rate() {
        let p = |sealed_count, fresh_runs| {
            rate(&Sizes {
                sealed_count,
                fresh_runs,
                ..Sizes::default()
            })
        };
        assert_eq!(p(1, 5), 0);
        assert!(p(2, 5) > p(3, 5) && p(3, 5) > p(9, 5));
        assert!(p(0, 14) > p(0, 16) && p(0, 40) == p(0, 400));
    }
}
