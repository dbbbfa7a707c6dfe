//! Group commit: one fdatasync for all who wait.
//!
//! `durable` only ever rises to an index that was read before the syncs began, and only once every
//! segment that holds records up to it was synced, oldest first.

use crate::Position;
use crate::format::mark;
use crate::log::{LogStats, Shared};
use crate::segment::{io_error, path};
use muniment_io::Timestamp;
use muniment_value::{Error, Result};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

/// Longest time a leader waits for others to join its sync.
const MAX_GATHER: Duration = Duration::from_millis(4);
/// How often who waits looks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(crate) struct Group {
    state: Mutex<State>,
    /// Waiters for a sync.
    synced: Condvar,
    /// A gathering leader.
    gather: Condvar,
    syncs: AtomicU64,
    sync_micros: AtomicU64,
    waits: AtomicU64,
}

#[derive(Default)]
struct State {
    leading: bool,
    /// Threads waiting now, the leader with them.
    waiting: usize,
    /// How many a gathering leader waits for.
    expected: usize,
    /// How many the last sync served.
    last_group: usize,
    last_sync: Duration,
    failed: Option<Error>,
}

impl Shared {
    pub fn wait_durable(&self, index: u64, interrupt: &dyn Fn() -> Result<()>) -> Result<()> {
        let group = &self.group;
        group.waits.fetch_add(1, Relaxed);
        if self.durable.load(SeqCst) >= index {
            return Ok(());
        }
        if index > self.appended.load(Acquire) {
            return Err(Error::internal(format!(
                "log: record {index} has not been appended"
            )));
        }
        let mut state = group.state.lock();
        state.waiting += 1;
        if state.leading && state.waiting >= state.expected {
            group.gather.notify_one();
        }
        let result = loop {
            if self.durable.load(SeqCst) >= index {
                break Ok(());
            }
            if let Some(e) = &state.failed {
                break Err(e.clone());
            }
            if let Err(e) = MutexGuard::unlocked(&mut state, interrupt) {
                break Err(e);
            }
            if self.durable.load(SeqCst) >= index || state.failed.is_some() {
                continue;
            }
            if state.leading {
                group.synced.wait_for(&mut state, LOOK);
                continue;
            }
            state.leading = true;
            // Who was served by the last sync is likely to come again, and who waits now came
            // while it ran: all of them are worth a short wait, bounded by what a sync costs.
            state.expected = state.waiting + state.last_group.saturating_sub(1);
            let patience = state
                .last_sync
                .clamp(Duration::from_micros(200), MAX_GATHER);
            let deadline = Instant::now() + patience;
            while state.waiting < state.expected
                && !group.gather.wait_until(&mut state, deadline).timed_out()
            {}
            let served = state.waiting;
            state = self.lead(state, served);
        };
        state.waiting = state.waiting.saturating_sub(1);
        result
    }

    /// Syncs everything appended so far, waiting for a sync that is under way.
    pub fn sync(&self) -> Result<()> {
        let target = self.appended.load(Acquire);
        self.sync_until(|| self.durable.load(SeqCst) >= target)
    }

    /// Syncs until `done`.
    pub fn sync_until(&self, done: impl Fn() -> bool) -> Result<()> {
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
            let served = state.waiting;
            state = self.lead(state, served);
        }
    }

    /// Syncs once as the leader, without the lock.
    fn lead<'a>(&'a self, state: MutexGuard<'a, State>, served: usize) -> MutexGuard<'a, State> {
        drop(state);
        let start = Instant::now();
        let result = self.sync_files();
        let took = start.elapsed();
        let group = &self.group;
        group.syncs.fetch_add(1, Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        group.sync_micros.fetch_add(micros, Relaxed);
        let mut state = group.state.lock();
        state.leading = false;
        match result {
            Ok(target) => {
                self.durable.fetch_max(target, SeqCst);
                if served > 0 {
                    state.last_group = served;
                }
                state.last_sync = took;
            }
            // After a failed fsync the kernel may have dropped the dirty pages: what was written
            // before is of unknown durability for good, until the log is opened anew.
            Err(e) => {
                self.failed.store(true, SeqCst);
                state.failed.get_or_insert(e);
            }
        }
        group.synced.notify_all();
        state
    }

    /// Syncs every segment that may need it; returns the index up to which all is durable now.
    fn sync_files(&self) -> Result<u64> {
        // First the index, then the segments: one is in the list before its first record counts.
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
                // Tells of a missing successor. Nothing is lost if it fails: it is no record, and
                // what is before it was synced.
                let bytes = mark(last, target, segment.seed);
                let _ = file.write_at(&bytes, segment.mark_at());
            }
        }
        // From here on the older ones may be trimmed.
        let mut unsynced = self.unsynced.lock();
        unsynced.retain(|(s, _)| s.ordinal >= newest.ordinal);
        drop(unsynced);
        self.want_mark();
        Ok(target)
    }

    /// The error of a failed sync.
    pub fn failure(&self) -> Option<Error> {
        self.group.state.lock().failed.clone()
    }

    pub fn stats(&self) -> LogStats {
        LogStats {
            commits: self.commits.load(Relaxed),
            syncs: self.group.syncs.load(Relaxed),
            sync_micros: self.group.sync_micros.load(Relaxed),
            waits: self.group.waits.load(Relaxed),
        }
    }
}
