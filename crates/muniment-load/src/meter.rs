//! Measurements by kind of operation: the recordings of the workers of a load, and the board that collects
//! them while the load runs.
//!
//! A worker records into its own histograms. It hands them over when the board asks (once per status line),
//! when a second of the load is over, and at the end. So no operation waits for the measurements of another
//! worker.

use crate::hist::Latency;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The measurements of one kind of operation.
#[derive(Clone, Default)]
pub struct Measured {
    /// Latencies from sending to the answer.
    pub service: Latency,
    /// Latencies from the time when the operation was due to the answer; empty without a schedule.
    pub intended: Latency,
    /// The number of operations that ended with each status.
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

/// Collects the workers' measurements. Kinds are kept in the order of their names.
#[derive(Default)]
pub struct Board {
    epoch: AtomicU64,
    sums: Mutex<Sums>,
}

#[derive(Default)]
struct Sums {
    total: BTreeMap<&'static str, Measured>,
    interval: BTreeMap<&'static str, Measured>,
    /// The latencies of all operations of the load, of every kind.
    whole: Latency,
    /// The same latencies by the second in which the operation ended, until they are taken.
    seconds: BTreeMap<u64, Latency>,
    /// The seconds before this one have been taken.
    taken: u64,
    payload: u64,
}

impl Board {
    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the workers for their measurements since the last request. They deliver them with their next
    /// operations.
    pub fn ask(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// The measurements that were delivered since the last call.
    pub fn interval(&self) -> BTreeMap<&'static str, Measured> {
        std::mem::take(&mut self.sums().interval)
    }

    /// All measurements that were delivered.
    pub fn total(&self) -> BTreeMap<&'static str, Measured> {
        self.sums().total.clone()
    }

    /// Latencies of all operations that have been handed over.
    pub fn whole(&self) -> Latency {
        self.sums().whole.clone()
    }

    /// The number of bytes of documents and changes that the workers have sent.
    pub fn payload(&self) -> u64 {
        self.sums().payload
    }

    /// Takes the seconds before `second` that have not been taken yet: their numbers, and the latencies of
    /// operations that ended in them. Measurements that a worker hands over later count for the first second
    /// that is still there.
    pub fn take_seconds(&self, second: u64) -> BTreeMap<u64, Latency> {
        let mut sums = self.sums();
        sums.taken = sums.taken.max(second);
        let rest = sums.seconds.split_off(&second);
        std::mem::replace(&mut sums.seconds, rest)
    }

    /// The measurements of the newest second that some worker has completed.
    pub fn newest(&self) -> Option<Latency> {
        self.sums().seconds.last_entry().map(|e| e.get().clone())
    }
}

/// The measurements of one worker.
pub struct Meter {
    board: Arc<Board>,
    seen: u64,
    /// The time when the current operation was due, if there is a schedule.
    due: Option<Instant>,
    kinds: BTreeMap<&'static str, Measured>,
    /// All operations since the measurements were last handed over.
    whole: Latency,
    begin: Instant,
    /// The current second, and the time when it ends.
    second: u64,
    second_ends: Instant,
    payload: u64,
}

impl Meter {
    /// A meter that delivers to `board`.
    pub fn new(board: Arc<Board>) -> Meter {
        let begin = Instant::now();
        Meter {
            seen: board.epoch.load(Ordering::Relaxed),
            board,
            due: None,
            kinds: BTreeMap::new(),
            whole: Latency::new(),
            begin,
            second: 0,
            second_ends: begin + Duration::from_secs(1),
            payload: 0,
        }
    }

    /// Sets the beginning of the load.
    pub fn begin(&mut self, now: Instant) {
        self.begin = now;
        self.second_ends = now + Duration::from_secs(1);
    }

    /// Adds the bytes of the documents or changes of a write that has been sent. Their sum is compared with
    /// the amount that the server writes to the disk.
    #[inline]
    pub fn payload(&mut self, bytes: usize) {
        self.payload += bytes as u64;
    }

    /// Records the duration of an operation that has just ended. Called by the load driver.
    #[inline]
    pub fn operation(&mut self, ns: u64, now: Instant) {
        if now >= self.second_ends {
            self.hand_over();
            self.second = (now - self.begin).as_secs();
            self.second_ends = self.begin + Duration::from_secs(self.second + 1);
        }
        self.whole.record(ns);
    }

    /// Sets the time at which the next operations are due.
    pub fn set_due(&mut self, due: Option<Instant>) {
        self.due = due;
    }

    /// Records an operation of this kind that began at `start` and has just been answered.
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

    /// Counts the status with which an operation of this kind ended.
    #[inline]
    pub fn status(&mut self, kind: &'static str, status: &'static str) {
        let m = self.kinds.entry(kind).or_default();
        *m.statuses.entry(status).or_default() += 1;
    }

    /// Hands over all measurements if the board has asked.
    #[inline]
    pub fn answer(&mut self) {
        let epoch = self.board.epoch.load(Ordering::Relaxed);
        if epoch != self.seen {
            self.seen = epoch;
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        if self.whole.count() == 0 && self.kinds.values().all(Measured::is_empty) {
            return;
        }
        let mut sums = self.board.sums();
        sums.payload += std::mem::take(&mut self.payload);
        sums.whole.merge(&self.whole);
        let second = self.second.max(sums.taken);
        sums.seconds.entry(second).or_default().merge(&self.whole);
        self.whole = Latency::new();
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
    fn measurements_of_workers_flow_together() {
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
        // If the worker is late, the waiting time counts.
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

    #[test]
    fn operations_count_for_the_second_in_which_they_end() {
        let board = Arc::new(Board::default());
        let (mut a, mut b) = (Meter::new(board.clone()), Meter::new(board.clone()));
        let start = Instant::now();
        a.begin(start);
        b.begin(start);
        let at = |ms| start + Duration::from_millis(ms);
        a.operation(1000, at(10));
        b.operation(3000, at(990));
        assert!(board.newest().is_none());
        a.operation(2000, at(1010));
        b.payload(100);
        b.operation(4000, at(3500));
        let taken = board.take_seconds(1);
        assert_eq!(taken.keys().collect::<Vec<_>>(), [&0]);
        assert_eq!(taken[&0].count(), 2);
        // This is too late for a second that has been taken, but the measurement is not lost.
        let mut late = Meter::new(board.clone());
        late.begin(start);
        late.operation(5000, at(500));
        drop((a, b, late));
        let rest = board.take_seconds(u64::MAX);
        let counts: Vec<_> = rest.iter().map(|(s, l)| (*s, l.count())).collect();
        assert_eq!(counts, [(1, 2), (3, 1)]);
        assert_eq!((board.whole().count(), board.payload()), (5, 100));
    }
}
