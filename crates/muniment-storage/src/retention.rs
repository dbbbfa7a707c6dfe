//! How long the past is kept: versions for views that are opened late, and records of the log for its
//! readers.
//!
//! The time since a commit is asked of the ages here, and never of timestamps (`ages`).
//!
//! Invariants: what the trees' files do not hold yet is kept regardless of the settings here; when the
//! disk is nearly full, nothing is kept for readers alone.

use crate::ages::Ages;
use crate::commit::ops;
use crate::journal::Journal;
use muniment_io::{Clock, Timestamp};
use muniment_log::Keep;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The settings of how long the past is kept, and the ages that they are compared with.
pub(crate) struct Retention {
    /// When commits came to this server.
    pub ages: Ages,
    /// When the commit point passed them.
    committed: Ages,
    /// See [`Store::keep_history`](crate::Store::keep_history).
    history_secs: AtomicU32,
    /// They are kept by a server that is alone, too.
    even_alone: AtomicBool,
    /// The part of the log that is kept for its readers.
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
    /// The window of a server that has no setting. It is meant for developers that use change streams,
    /// and is small beside the disk (or, in memory, beside that).
    pub fn of(durable: bool, space: muniment_io::Space) -> Window {
        let most = if durable { 256 } else { 32 } << 20;
        Window {
            bytes: most.min(space.free / 20),
            time: Duration::ZERO,
            for_others: Duration::ZERO,
        }
    }

    /// Records that came within this time are kept.
    fn longest(&self) -> Duration {
        self.time.max(self.for_others)
    }
}

impl Retention {
    /// The retention of a store whose trees hold everything up to `cut`.
    pub fn new(clock: &dyn Clock, cut: Timestamp, window: Window) -> Retention {
        Retention {
            ages: Ages::new(clock, cut, 0),
            committed: Ages::new(clock, cut, 0),
            history_secs: AtomicU32::new(0),
            even_alone: AtomicBool::new(false),
            window: Mutex::new(window),
        }
    }

    /// Begins to count ages: the log was applied up to `last`, whose record has this wall clock, and is
    /// committed up to `committed`.
    pub fn begin(&mut self, clock: &dyn Clock, last: Timestamp, committed: Timestamp, wall: i64) {
        self.ages = Ages::new(clock, last, wall);
        self.committed = Ages::new(clock, committed, wall);
    }

    /// The part of the log that is kept for its readers.
    pub fn window(&self) -> Window {
        *self.window.lock()
    }

    /// Changes the window.
    pub fn change_window(&self, change: impl FnOnce(&mut Window)) {
        change(&mut self.window.lock());
    }

    /// See [`Store::keep_history`](crate::Store::keep_history).
    pub fn keep_history(&self, secs: u32, even_alone: bool) {
        self.history_secs.store(secs, Relaxed);
        self.even_alone.store(even_alone, Relaxed);
    }

    /// The timestamp from which views can be opened, when everything up to `committed` is committed.
    /// `alone` says that there is no other member.
    pub fn history_from(
        &self,
        committed: Timestamp,
        now: Instant,
        alone: impl FnOnce() -> bool,
    ) -> Timestamp {
        self.committed.note(committed, now, 0);
        let secs = self.history_secs.load(Relaxed);
        if secs == 0 || !self.even_alone.load(Relaxed) && alone() {
            return committed;
        }
        let secs = Duration::from_secs(u64::from(secs));
        // If the start is less than `secs` ago, everything since the start is kept.
        let from = self.committed.older_than(secs, now);
        from.unwrap_or_else(|| self.committed.first())
    }

    /// The part of the log that is kept although the trees have it. Where all is in memory, only its
    /// size counts.
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

    /// A timestamp up to which every record of the log came at least `age` ago; zero if that is not
    /// known.
    fn older_than(&self, journal: &Journal, age: Duration, now: Instant) -> Timestamp {
        if self.ages.is_to_learn()
            && let Ok(log) = journal.log()
        {
            // A segment that cannot be read counts as being as old as the start.
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
