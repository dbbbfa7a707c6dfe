//! How long what is past is kept: versions for views that are opened late, and records of the log for its
//! readers.
//!
//! How long ago something came is asked of the ages here, and never of timestamps (`ages`).
//!
//! Invariants: what the trees' files do not hold yet is kept whatever is said here; where the disk is
//! nearly full, readers do without.

use crate::ages::Ages;
use crate::commit::ops;
use crate::journal::Journal;
use muniment_io::{Clock, Timestamp};
use muniment_log::Keep;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// See the module's head.
pub(crate) struct Retention {
    /// How long ago commits came.
    pub ages: Ages,
    /// The same of the commit point.
    committed: Ages,
    /// See [`Store::keep_history`](crate::Store::keep_history).
    history_secs: AtomicU32,
    /// What is kept of the log for its readers.
    window: Mutex<Window>,
}

/// See [`Store::keep_log`](crate::Store::keep_log).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub bytes: u64,
    pub time: Duration,
    /// See [`Store::keep_log_for_others`](crate::Store::keep_log_for_others).
    pub for_others: Duration,
}

impl Window {
    /// The window of a server that was told nothing: for who develops with change streams, and small
    /// beside the disk (or, where all is in memory, beside that).
    pub fn of(durable: bool, space: muniment_io::Space) -> Window {
        let most = if durable { 256 } else { 32 } << 20;
        Window {
            bytes: most.min(space.free / 20),
            time: Duration::ZERO,
            for_others: Duration::ZERO,
        }
    }

    /// What is not older than so long is kept.
    fn longest(&self) -> Duration {
        self.time.max(self.for_others)
    }
}

impl Retention {
    /// Of a store whose trees hold everything up to `cut`.
    pub fn new(clock: &dyn Clock, cut: Timestamp, window: Window) -> Retention {
        Retention {
            ages: Ages::new(clock, cut, 0),
            committed: Ages::new(clock, cut, 0),
            history_secs: AtomicU32::new(0),
            window: Mutex::new(window),
        }
    }

    /// The log was applied up to `last`, whose record has this wall clock, and is committed up to
    /// `committed`: from here on ages are counted.
    pub fn begin(&mut self, clock: &dyn Clock, last: Timestamp, committed: Timestamp, wall: i64) {
        self.ages = Ages::new(clock, last, wall);
        self.committed = Ages::new(clock, committed, wall);
    }

    /// What is kept of the log for its readers.
    pub fn window(&self) -> Window {
        *self.window.lock()
    }

    /// Changes that.
    pub fn change_window(&self, change: impl FnOnce(&mut Window)) {
        change(&mut self.window.lock());
    }

    /// See [`Store::keep_history`](crate::Store::keep_history).
    pub fn keep_history(&self, secs: u32) {
        self.history_secs.store(secs, Relaxed);
    }

    /// Where views can be opened from, when everything up to `committed` is committed. `alone` says
    /// whether there is no other member.
    pub fn history_from(
        &self,
        committed: Timestamp,
        now: Instant,
        alone: impl FnOnce() -> bool,
    ) -> Timestamp {
        self.committed.note(committed, now, 0);
        let secs = self.history_secs.load(Relaxed);
        if secs == 0 || alone() {
            return committed;
        }
        let secs = Duration::from_secs(u64::from(secs));
        // Until the start is so long ago, all that was kept since.
        let from = self.committed.older_than(secs, now);
        from.unwrap_or_else(|| self.committed.first())
    }

    /// What is kept of the log though the trees have it. Where all is in memory only its size counts.
    pub fn of_log(&self, journal: &Journal, now: Instant, in_memory: bool) -> Keep {
        let window = self.window();
        Keep {
            short: false,
            bytes: window.bytes,
            later_than: match window.longest().is_zero() || in_memory {
                true => Timestamp::MAX,
                false => self.older_than(journal, window.longest(), now),
            },
        }
    }

    /// Everything in the log up to this came so long ago; nothing, if that is not known.
    fn older_than(&self, journal: &Journal, age: Duration, now: Instant) -> Timestamp {
        if self.ages.is_to_learn()
            && let Ok(log) = journal.log()
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
        self.ages.older_than(age, now).unwrap_or(Timestamp::ZERO)
    }
}
