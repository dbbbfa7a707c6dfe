//! Measurements by kind of operation: what the workers of one load record, and the board it flows
//! together on while the load runs.
//!
//! A worker records into histograms of its own and hands them over when the board asks (once a
//! status line) and at the end: no operation waits for another worker's measurement.

use crate::hist::Latency;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What was measured of one kind of operation.
#[derive(Clone, Default)]
pub struct Measured {
    /// From the sending to the answer.
    pub service: Latency,
    /// From when it should have been sent to the answer; empty without a schedule.
    pub intended: Latency,
    /// How many ended how.
    pub statuses: BTreeMap<&'static str, u64>,
}

impl Measured {
    fn merge(&mut self, other: &Measured) {
        self.service.merge(&other.service);
        self.intended.merge(&other.intended);
        for (status, n) in &other.statuses {
            *self.statuses.entry(status).or_default() += n;
        }
    }

    fn is_empty(&self) -> bool {
        self.service.count() == 0 && self.statuses.is_empty()
    }
}

/// Where the workers' measurements flow together. Kinds are kept in the order of their names.
#[derive(Default)]
pub struct Board {
    epoch: AtomicU64,
    sums: Mutex<Sums>,
}

#[derive(Default)]
struct Sums {
    total: BTreeMap<&'static str, Measured>,
    interval: BTreeMap<&'static str, Measured>,
}

impl Board {
    /// Asks the workers for what they have measured since they were asked last; it comes with
    /// their next operations.
    pub fn ask(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// What has come since this was called last.
    pub fn interval(&self) -> BTreeMap<&'static str, Measured> {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut sums.interval)
    }

    /// Everything that has come.
    pub fn total(&self) -> BTreeMap<&'static str, Measured> {
        let sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums.total.clone()
    }
}

/// A worker's own measurements.
pub struct Meter {
    board: Arc<Board>,
    seen: u64,
    /// When the operation that runs should have been sent, if there is a schedule.
    due: Option<Instant>,
    kinds: BTreeMap<&'static str, Measured>,
}

impl Meter {
    /// A meter that flows into `board`.
    pub fn new(board: Arc<Board>) -> Meter {
        Meter {
            seen: board.epoch.load(Ordering::Relaxed),
            board,
            due: None,
            kinds: BTreeMap::new(),
        }
    }

    /// The next operations should have been sent at `due`.
    pub fn set_due(&mut self, due: Option<Instant>) {
        self.due = due;
    }

    /// An operation of this kind began at `start` and has just been answered.
    #[inline]
    pub fn record(&mut self, kind: &'static str, start: Instant) {
        let now = Instant::now();
        let m = self.kinds.entry(kind).or_default();
        m.service.record((now - start).as_nanos() as u64);
        if let Some(due) = self.due {
            let ns = now.saturating_duration_since(due).as_nanos() as u64;
            m.intended.record(ns);
        }
    }

    /// An operation of this kind ended so.
    #[inline]
    pub fn status(&mut self, kind: &'static str, status: &'static str) {
        let m = self.kinds.entry(kind).or_default();
        *m.statuses.entry(status).or_default() += 1;
    }

    /// Hands everything over if the board has asked.
    #[inline]
    pub fn answer(&mut self) {
        let epoch = self.board.epoch.load(Ordering::Relaxed);
        if epoch != self.seen {
            self.seen = epoch;
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        if self.kinds.values().all(Measured::is_empty) {
            return;
        }
        let mut sums = self
            .board
            .sums
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (kind, m) in &mut self.kinds {
            sums.total.entry(kind).or_default().merge(m);
            sums.interval.entry(kind).or_default().merge(m);
            *m = Measured::default();
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.hand_over();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_workers_measure_flows_together() {
        let board = Arc::new(Board::default());
        let (mut a, mut b) = (Meter::new(board.clone()), Meter::new(board.clone()));
        let start = Instant::now();
        a.record("READ", start);
        a.status("READ", "OK");
        a.answer();
        assert!(board.total().is_empty(), "nobody has asked");
        board.ask();
        a.answer();
        assert_eq!(board.interval()["READ"].service.count(), 1);
        // Behind the schedule the wait counts.
        b.set_due(start.checked_sub(Duration::from_secs(1)));
        b.record("READ", start);
        b.status("READ", "NOT_FOUND");
        drop(b);
        drop(a);
        let total = board.total();
        let read = &total["READ"];
        assert_eq!((read.service.count(), read.intended.count()), (2, 1));
        assert!(read.intended.min_ms() >= 999.0);
        assert!(read.service.max_ms() < 999.0);
        assert_eq!(
            read.statuses.iter().collect::<Vec<_>>(),
            [(&"NOT_FOUND", &1), (&"OK", &1)]
        );
        assert_eq!(board.interval()["READ"].service.count(), 1);
        assert!(board.interval().is_empty());
    }
}
