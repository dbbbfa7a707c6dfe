//! Which commits may go to the log, and when: back-pressure, and the re-opening of a log whose
//! sync failed.
//!
//! Writers are slowed down in proportion before memory or unmerged runs pile up, by handing out
//! the bytes a second that flushes and compactions are known to keep up with.
//!
//! The primary of a set nearly stops taking writes while its majority is too far behind: what the
//! majority does not have can be lost, and has to stay in memory.
//!
//! After a failed sync the log takes nothing more: what it had written is of unknown durability.
//! It is opened anew in place, which reads what is there, writes it again and syncs it, as soon as
//! a probe can be written; until then reads are served and writes are refused.

use crate::commit::door::not_primary;
use crate::store::Inner;
use muniment_io::Spread;
use muniment_log::{Log, LogOptions, Position};
use muniment_query::Interrupt;
use muniment_tree::Sizes;
use muniment_value::{Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The pressure is looked at again after so many bytes.
const LOOK_EVERY: u64 = 128 << 10;
/// The log is synced early after so many bytes, so that no sync has much to do.
const SYNC_EVERY: u64 = 4 << 20;
/// Small commits are told to the counters after so many bytes.
const TELL: u64 = 8 << 10;
/// The longest time one commit is held back.
const MAX_DELAY: Duration = Duration::from_millis(120);

/// Memory stops growing at so many times the size of a memtable.
const MOST_MEMTABLES: u64 = 6;

/// The state of admission.
pub(crate) struct Admission {
    /// Bytes that the counters do not know yet.
    untold: Spread<AtomicU64>,
    since_look: AtomicU64,
    since_sync: AtomicU64,
    /// Bytes a second that may be committed; 0: as many as come.
    rate: AtomicU64,
    /// When the bytes admitted so far are paid for.
    paid: Mutex<Instant>,
    delayed_micros: AtomicU64,
    /// The majority may be so many seconds behind; 0: as far as it likes.
    most_lag: AtomicU64,
    lag: Mutex<Lag>,
    /// The last record of a log that is being opened anew.
    acknowledged: Mutex<Position>,
}

impl Admission {
    /// Nothing is held back.
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
            acknowledged: Mutex::default(),
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

    /// Notes whether the majority is too far behind.
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
            // What nobody could have waited for is forgiven.
            *paid = (*paid).min(now + MAX_DELAY * 2);
            paid.saturating_duration_since(now).min(MAX_DELAY)
        };
        // Shorter sleeps cost more than they hold back; the debt is kept.
        if wait >= Duration::from_millis(1) {
            let until = now + wait;
            while let Some(left) = until.checked_duration_since(Instant::now()) {
                std::thread::sleep(left.min(crate::gate::LOOK));
                interrupt.check()?;
            }
            let micros = wait.as_micros() as u64;
            self.delayed_micros.fetch_add(micros, Relaxed);
        }
        Ok(())
    }
}

/// Times in which the majority was too far behind.
#[derive(Default)]
struct Lag {
    since: Option<Instant>,
    ended: Duration,
    count: u64,
}

/// Bytes a second that are taken while the majority is too far behind: so many small writes that
/// nobody's client gives up.
const WHILE_LAGGING: u64 = 64 << 10;

/// Bytes a second under this pressure; 0 is no limit.
fn rate(p: &Sizes) -> u64 {
    let sealed = match p.sealed_count {
        0 | 1 => u64::MAX,
        2 => 48 << 20,
        3 => 16 << 20,
        _ => 4 << 20,
    };
    let runs = match p.fresh_runs {
        0..=12 => u64::MAX,
        // 128 MiB/s at 13, halved with every run.
        n => (128u64 << 20) >> (n - 13).min(7),
    };
    match sealed.min(runs) {
        u64::MAX => 0,
        rate => rate,
    }
}

/// A commit that frees space and is no longer does not wait for memory.
const FREES: usize = 64 << 10;

impl Inner {
    /// May a commit of `bytes` go to the log? What only frees space is not refused for want of
    /// it, and does not wait for memory. Others wait when flushes or compactions are behind.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace; 91 when the store is closed; what `interrupt` says.
    pub fn admit(&self, bytes: usize, frees: bool, interrupt: &dyn Interrupt) -> Result<()> {
        self.check_open()?;
        let a = &self.admission;
        // An empty commit costs, too: its record has a head.
        let cost = bytes as u64 + 128;
        // The counters are everybody's: as long as there is plenty of everything, many small commits
        // are told as one.
        let untold = a.untold.own();
        let all = untold.fetch_add(cost, Relaxed) + cost;
        if all < TELL && a.rate.load(Relaxed) == 0 && self.space.is_ample() {
            return Ok(());
        }
        let all = untold.swap(0, Relaxed).max(cost);
        if self.trees.is_durable() && !frees {
            self.space.admit(all)?;
        }
        // What frees space may be the thread's that seals, for which all others wait; it is small.
        if !frees || bytes > FREES {
            self.wait_for_memory(interrupt)?;
        }
        if a.since_sync.fetch_add(all, Relaxed) + all > SYNC_EVERY {
            a.since_sync.store(0, Relaxed);
            self.wake.notify_all();
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
                // Ended sooner than the next look would see.
                a.rate.store(self.rate(), Relaxed);
            }
        }
        Ok(())
    }

    /// While so much memory waits to be flushed that more would be too much, nobody writes; when
    /// the flushes fail, writers are told why.
    fn wait_for_memory(&self, interrupt: &dyn Interrupt) -> Result<()> {
        // A look at the figures costs: only when the pressure is known to be high.
        if self.admission.rate.load(Relaxed) == 0 || !self.trees.is_durable() {
            return Ok(());
        }
        let follows = self.door.is_closed();
        loop {
            let sizes = self.trees.sizes();
            let (_, kept) = self.buffers.live(self.trees.persisted());
            let memory = sizes.memory.max(kept);
            if memory < self.budget.memtable * MOST_MEMTABLES {
                return Ok(());
            }
            // Who follows must not wait for the commit point, which may come by what it is to apply;
            // the primary has its writers wait.
            if follows && sizes.sealed_count > 0 && sizes.sealed_count == sizes.uncommitted_count {
                return Ok(());
            }
            if !follows && self.door.is_closed() {
                return Err(not_primary());
            }
            if let Some(e) = self.trees.faults().flush {
                return Err(e);
            }
            std::thread::sleep(crate::gate::LOOK);
            interrupt.check()?;
            self.check_open()?;
        }
    }

    /// Bytes of the active memtable. What its commits keep alive counts if it is more.
    pub fn active_bytes(&self, sizes: &Sizes) -> u64 {
        let (kept, _) = self.buffers.live(self.trees.persisted());
        sizes.memory.saturating_sub(sizes.sealed).max(kept)
    }

    /// Bytes a second that may be committed; 0 is no limit. A memtable that has grown far beyond
    /// its size waits to be sealed: that is pressure, too.
    fn rate(&self) -> u64 {
        match (self.flush_rate(), self.majority_lags()) {
            (rate, false) => rate,
            (0, true) => WHILE_LAGGING,
            (rate, true) => rate.min(WHILE_LAGGING),
        }
    }

    /// Whether the majority lacks what was written so long ago that no more is to come.
    pub fn majority_lags(&self) -> bool {
        let most = self.admission.most_lag.load(Relaxed);
        let majority = self.door.majority().filter(|_| most > 0);
        let Some(majority) = majority.filter(|_| !self.door.is_closed()) else {
            self.admission.note_lag(false);
            return false;
        };
        // From the oldest record that the majority lacks: before that there may have been nothing.
        let (lacks, last) = match self.door.places() {
            Some(places) => (places.at(majority.index + 1), places.last()),
            None => (None, majority),
        };
        let behind = lacks.map_or(0, |p| last.at.seconds().saturating_sub(p.at.seconds()));
        let lags = u64::from(behind) > most;
        self.admission.note_lag(lags);
        lags
    }

    /// Bytes a second that flushes and compactions keep up with; 0 is no limit.
    fn flush_rate(&self) -> u64 {
        if !self.trees.is_durable() {
            // There is no flush that could be behind.
            return 0;
        }
        let mut sizes = self.trees.sizes();
        let active = self.active_bytes(&sizes);
        if self.door.is_closed() {
            // Who follows hears of the commit point no sooner for being slow.
            sizes.sealed_count -= sizes.uncommitted_count.min(sizes.sealed_count);
        }
        sizes.sealed_count += (active / self.budget.memtable.max(1)) as usize;
        rate(&sizes)
    }

    /// Called every commit interval: opens a log anew whose sync has failed.
    pub fn mind_the_log(&self) {
        let works = self.log().is_ok_and(|log| log.failure().is_none());
        // fsyncLock keeps files as they are.
        let Some(_still) = self.still.try_lock() else {
            return;
        };
        if works
            || self.space.admit(0).is_err()
            || crate::space::probe(&*self.disk, &self.path).is_err()
        {
            return;
        }
        // No commit is under way, nor will one be.
        let Some(_gate) = self.gate.own_for(Duration::from_millis(500)) else {
            return;
        };
        // A failure is tried again at the next interval.
        let _ = self.reopen_log();
    }

    /// Opens the log anew. Nobody commits meanwhile, and while there is none.
    fn reopen_log(&self) -> Result<()> {
        let mut slot = self.log.write();
        if let Some(old) = slot.take() {
            let last = old.last();
            match Arc::try_unwrap(old) {
                // The file's state is the disk's: nothing more is to be written through it.
                Ok(old) => old.abandon(),
                // Somebody is still being told of the failure.
                Err(old) => {
                    *slot = Some(old);
                    return Ok(());
                }
            }
            *self.admission.acknowledged.lock() = last;
        }
        let Position { index, at, .. } = *self.admission.acknowledged.lock();
        // Not what was refused when the disk failed in the middle of it, even if it turns out to be
        // there: there are write units that have read what they change, without it.
        let options = LogOptions {
            until: Some(index),
            ..self.log_options.clone()
        };
        let log = Log::open(options, at, &mut |record| {
            Err(Error::internal(format!(
                "record {} of the log was never acknowledged",
                record.index
            )))
        })?;
        if log.last().index < index {
            return Err(Error::internal(format!(
                "the log ends at record {}, but {index} were written",
                log.last().index
            )));
        }
        *slot = Some(Arc::new(log));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::tests::{all, insert, open};
    use crate::{CollectionOptions, Timestamp, WriteUnit};
    use muniment_query::NeverInterrupted;
    use muniment_value::{Value, doc};

    /// A disk may have written what it said that it had not.
    #[test]
    fn what_was_refused_is_not_there_when_the_log_is_opened_anew() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let inner = &store.inner;
        let options = CollectionOptions::default();
        let c = store.create_collection("db.c", options, &NeverInterrupted);
        let c = c.unwrap();
        insert(&store, &c, doc! { "_id": 1 }).unwrap();
        let log = inner.log().unwrap();
        let payload = {
            let mut reader = log.read(Timestamp::ZERO);
            let mut last = Vec::new();
            while let Some(record) = reader.next().unwrap() {
                last = record.payload.to_vec();
            }
            last
        };
        drop(log);
        let remove = |unit: &mut WriteUnit<'_>| {
            let (key, old) = unit.lock_by_id(Value::Int32(1)).unwrap().unwrap().unwrap();
            unit.delete(&key, &old).unwrap().unwrap();
        };
        let mut unit = store.write_unit(&c, &NeverInterrupted).unwrap();
        remove(&mut unit);
        unit.commit().unwrap();
        // This one has seen that there is no document, and will be committed later.
        let mut staged = store.write_unit(&c, &NeverInterrupted).unwrap();
        let d = doc! { "_id": 1, "second": true }.into_bytes();
        staged.insert(&d).unwrap().unwrap();
        {
            let mut slot = inner.log.write();
            let mut old = slot.take().unwrap();
            let last = old.last();
            *inner.admission.acknowledged.lock() = last;
            old.append(0, Timestamp(last.at.0 + 1), &[&payload])
                .unwrap();
            while let Err(held) = Arc::try_unwrap(old).map(Log::abandon) {
                std::thread::sleep(Duration::from_millis(1));
                old = held;
            }
        }
        // The thread that syncs may do it first.
        let opened = (0..500).any(|_| {
            let _ = inner.reopen_log();
            std::thread::sleep(Duration::from_millis(2));
            inner.log().is_ok()
        });
        assert!(opened);
        assert_eq!(c.count(), 0);
        staged.commit().unwrap();
        assert_eq!((all(&store, &c).len(), c.count()), (1, 1));
        store.close().unwrap();
        drop((c, store));
        let store = open(dir.path());
        let c = store.collection("db.c").unwrap();
        assert_eq!((all(&store, &c).len(), c.count()), (1, 1));
    }

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

    #[test]
    fn who_reads_goes_on_in_a_log_that_was_opened_anew() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let inner = &store.inner;
        let options = CollectionOptions::default();
        let c = store
            .create_collection("db.c", options, &NeverInterrupted)
            .unwrap();
        let mut entries = store.log_entries(store.visible()).unwrap();
        insert(&store, &c, doc! { "_id": 1 }).unwrap();
        assert!(entries.next().unwrap().is_some());
        store.sync().unwrap();
        let opened = (0..500).any(|_| {
            let _ = inner.reopen_log();
            std::thread::sleep(Duration::from_millis(2));
            inner.log().is_ok()
        });
        assert!(opened);
        for i in 2..5 {
            insert(&store, &c, doc! { "_id": i }).unwrap();
            assert!(entries.next().unwrap().is_some(), "{i}");
            assert!(entries.next().unwrap().is_none());
        }
    }
}
