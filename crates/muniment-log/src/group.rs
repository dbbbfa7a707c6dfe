//! Group commit: one fdatasync for all threads that wait.
//!
//! A waiting thread that finds no sync under way leads the next one. The others sleep, each on its own,
//! and are woken when their record is durable, when the sync failed, or when one of them must lead: a
//! shared condition would wake all of them at once, to queue up for its lock.
//!
//! `durable` only ever rises to an index that was read before the syncs began, and only once every
//! segment that holds records up to it was synced, oldest first.

use crate::Position;
use crate::format::mark;
use crate::log::{LogStats, Shared};
use crate::segment::{io_error, path};
use muniment_io::Timestamp;
use muniment_op::{Interrupt, Sleep};
use muniment_value::{Error, Result};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The longest time that a leader waits for other threads to join its sync.
const MAX_GATHER: Duration = Duration::from_millis(4);
/// A leader stops waiting when no other thread has come for this long.
const QUIET: Duration = Duration::from_micros(150);

#[derive(Default)]
pub(crate) struct Group {
    state: Mutex<State>,
    /// Wakes threads that wait for a sync which is not about a record of their own.
    synced: Condvar,
    /// Wakes a leader that gathers others.
    gather: Condvar,
    syncs: AtomicU64,
    sync_micros: AtomicU64,
    waits: AtomicU64,
}

#[derive(Default)]
struct State {
    leading: bool,
    /// The threads that wait for a record, without the leader.
    waiting: Vec<Arc<Waiter>>,
    /// How many threads a gathering leader waits for.
    expected: usize,
    /// How many threads the last sync served.
    last_group: usize,
    last_sync: Duration,
    /// When the running sync began.
    began: Option<Instant>,
    /// The longest sync since this figure was last asked for.
    slowest: Duration,
    /// How long a leader has waited when all the threads came that it waited for; a moving average.
    return_time: Duration,
    failed: Option<Error>,
}

impl State {
    /// Removes from the list the threads whose record is durable, or all of them after a failure, and one
    /// more thread, which leads the next sync.
    fn served(&mut self, durable: u64) -> Vec<Arc<Waiter>> {
        let failed = self.failed.is_some();
        let mut served: Vec<_> = self
            .waiting
            .extract_if(.., |w| failed || w.index <= durable)
            .collect();
        served.extend(self.waiting.pop());
        served
    }
}

/// A thread that sleeps until its record is durable.
struct Waiter {
    index: u64,
    thread: Thread,
    /// It was woken, and is no longer in the list.
    woken: AtomicBool,
}

impl Waiter {
    fn wake(&self) {
        self.woken.store(true, Release);
        self.thread.unpark();
    }
}

impl Shared {
    pub(crate) fn wait_durable(&self, index: u64, interrupt: &dyn Interrupt) -> Result<()> {
        let group = &self.group;
        group.waits.fetch_add(1, Relaxed);
        if index > self.appended.load(Acquire) {
            return Err(Error::internal(format!(
                "log: record {index} has not been appended"
            )));
        }
        loop {
            if self.durable.load(SeqCst) >= index {
                return Ok(());
            }
            if let Err(e) = interrupt.check() {
                self.pass_on();
                return Err(e);
            }
            let mut state = group.state.lock();
            if self.durable.load(SeqCst) >= index {
                return Ok(());
            }
            if let Some(e) = &state.failed {
                return Err(e.clone());
            }
            if !state.leading {
                self.gather_and_lead(state);
                continue;
            }
            let sleep = Sleep::begin(interrupt);
            let waiter = Arc::new(Waiter {
                index,
                thread: sleep.thread().clone(),
                woken: AtomicBool::new(false),
            });
            state.waiting.push(Arc::clone(&waiter));
            if state.waiting.len() >= state.expected {
                group.gather.notify_one();
            }
            drop(state);
            while !waiter.woken.load(Acquire) {
                if let Err(e) = interrupt.check() {
                    let mut state = group.state.lock();
                    state.waiting.retain(|w| !Arc::ptr_eq(w, &waiter));
                    drop(state);
                    self.pass_on();
                    return Err(e);
                }
                sleep.park(None);
            }
        }
    }

    /// Wakes another thread to lead, in case the one that gives up waiting was chosen to.
    fn pass_on(&self) {
        let mut state = self.group.state.lock();
        let next = match state.leading {
            true => None,
            false => state.waiting.pop(),
        };
        drop(state);
        if let Some(next) = next {
            next.wake();
        }
    }

    /// Waits for the threads that are likely to come, and then syncs once for all of them.
    fn gather_and_lead(&self, mut state: MutexGuard<'_, State>) {
        state.leading = true;
        // The threads that the last sync served are likely to come again, and the threads that wait now came
        // while it ran. As long as some of them come, the cores are busy with work that will have to be
        // synced. A sync for the few that are already there would only take time from the others.
        state.expected = state.waiting.len() + state.last_group.saturating_sub(1);
        let began = Instant::now();
        let deadline = began + MAX_GATHER;
        let waits = state.waiting.len() < state.expected;
        // If the cores are busy, other threads run in between, so the pause grows with the usual time.
        let quiet = (state.last_sync / 2).max(state.return_time / 4);
        let quiet = quiet.clamp(QUIET, MAX_GATHER);
        let mut all = true;
        while state.waiting.len() < state.expected {
            let before = state.waiting.len();
            let until = (Instant::now() + quiet).min(deadline);
            let late = self.group.gather.wait_until(&mut state, until).timed_out();
            if late && (state.waiting.len() == before || Instant::now() >= deadline) {
                all = false;
                break;
            }
        }
        if waits && all {
            state.return_time = (state.return_time * 3 + began.elapsed()) / 4;
        }
        let served = state.waiting.len() + 1;
        drop(self.lead(state, served));
    }

    /// Syncs everything appended so far. If a sync is running, waits for it first.
    pub(crate) fn sync(&self) -> Result<()> {
        let target = self.appended.load(Acquire);
        self.sync_until(|| self.durable.load(SeqCst) >= target)
    }

    /// Syncs until `done` returns true.
    pub(crate) fn sync_until(&self, done: impl Fn() -> bool) -> Result<()> {
        let mut state = self.group.state.lock();
        loop {
            if let Some(e) = &state.failed {
                return Err(e.clone());
            }
            if done() {
                return Ok(());
            }
            if state.leading {
                self.group.synced.wait(&mut state);
                continue;
            }
            state.leading = true;
            let served = state.waiting.len();
            state = self.lead(state, served);
        }
    }

    /// Syncs once as the leader. The lock is released meanwhile.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        served: usize,
    ) -> MutexGuard<'a, State> {
        let start = Instant::now();
        state.began = Some(start);
        drop(state);
        // A panic in the sync must not leave the other threads asleep.
        let result = catch_unwind(AssertUnwindSafe(|| self.sync_files()))
            .unwrap_or_else(|_| Err(Error::internal("log: a sync panicked")));
        let took = start.elapsed();
        let group = &self.group;
        group.syncs.fetch_add(1, Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        group.sync_micros.fetch_add(micros, Relaxed);
        let mut state = group.state.lock();
        state.leading = false;
        state.began = None;
        state.slowest = state.slowest.max(took);
        match result {
            Ok(target) => {
                self.durable.fetch_max(target, SeqCst);
                if served > 0 {
                    state.last_group = served;
                }
                state.last_sync = took;
            }
            // After a failed fsync the kernel may have dropped the dirty pages. Whether earlier writes are
            // durable stays unknown until the log is opened again.
            Err(e) => {
                self.failed.store(true, SeqCst);
                state.failed.get_or_insert(e);
            }
        }
        group.synced.notify_all();
        let served = state.served(self.durable.load(SeqCst));
        MutexGuard::unlocked(&mut state, || served.iter().for_each(|w| w.wake()));
        state
    }

    /// Syncs every segment that may need it. Returns the index up to which everything is now durable.
    fn sync_files(&self) -> Result<u64> {
        // The index is read before the list: a segment is in the list before its first record counts.
        let target = self.appended.load(Acquire);
        let list = self.unsynced.lock().clone();
        for (segment, file) in &list {
            let path = path(&self.dir, segment.number, "log");
            file.sync().map_err(|e| io_error(&path, "sync", e))?;
        }
        let Some(((newest, _), older)) = list.split_last() else {
            return Ok(target);
        };
        for (segment, file) in older {
            let last = Position {
                index: segment.last.load(Acquire),
                at: Timestamp(segment.last_at.load(Acquire)),
                ..Position::default()
            };
            if target > last.index {
                // The mark shows a missing successor. Nothing is lost if it cannot be written: it is no
                // record, and everything before it was synced.
                let bytes = mark(last, target, segment.seed);
                let _ = file.write_at(&bytes, segment.mark_at());
            }
        }
        // From here on the older segments may be trimmed.
        let mut unsynced = self.unsynced.lock();
        unsynced.retain(|(s, _)| s.ordinal >= newest.ordinal);
        drop(unsynced);
        self.want_mark();
        Ok(target)
    }

    /// The error of a failed sync.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.group.state.lock().failed.clone()
    }

    /// The longest sync since the last call, or the running one if that takes longer.
    pub(crate) fn slowest_sync(&self) -> Duration {
        let mut state = self.group.state.lock();
        let running = state.began.map_or(Duration::ZERO, |began| began.elapsed());
        std::mem::take(&mut state.slowest).max(running)
    }

    pub(crate) fn stats(&self) -> LogStats {
        LogStats {
            commits: self.appended.load(Relaxed) - self.found,
            syncs: self.group.syncs.load(Relaxed),
            sync_micros: self.group.sync_micros.load(Relaxed),
            waits: self.group.waits.load(Relaxed),
        }
    }
}
