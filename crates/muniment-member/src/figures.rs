//! What a member counts, and how serverStatus shows that in `metrics.repl`.
//!
//! Invariant: what is not measured here is left out, so that a zero means that nothing has happened.

use muniment_consensus::MemberId;
use muniment_value::{DocBuf, doc};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// What has happened since the member began.
#[derive(Default)]
pub struct Figures {
    /// `stepUp` or `stepDown`; empty before either.
    last: Mutex<&'static str>,
    killed: AtomicU64,
    running: AtomicU64,
    source: Mutex<Option<MemberId>>,
    selections: AtomicU64,
    same: AtomicU64,
    different: AtomicU64,
    none: AtomicU64,
    unacknowledged: AtomicU64,
    waits: AtomicI64,
}

/// Counts an operation that waits for a time of the cluster, for as long as this lives.
pub struct Waits<'f>(&'f Figures);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waits.fetch_sub(1, Relaxed);
    }
}

impl Figures {
    /// The member is primary from here on.
    pub fn stepped_up(&self) {
        *self.last.lock() = "stepUp";
    }

    /// The member is no longer primary: so many operations were ended by that, and so many went on.
    pub fn stepped_down(&self, killed: u64, running: u64) {
        *self.last.lock() = "stepDown";
        self.killed.fetch_add(killed, Relaxed);
        self.running.fetch_add(running, Relaxed);
    }

    /// The log comes from this member from here on; `None`: from nobody.
    pub fn follows(&self, member: Option<MemberId>) {
        let mut source = self.source.lock();
        let counted = match (member, *source) {
            (None, _) => &self.none,
            (Some(now), before) => {
                self.selections.fetch_add(1, Relaxed);
                *source = Some(now);
                match before == Some(now) {
                    true => &self.same,
                    false => &self.different,
                }
            }
        };
        counted.fetch_add(1, Relaxed);
    }

    /// A write that asked for no answer was refused, and its connection closed.
    pub fn refused_unacknowledged(&self) {
        self.unacknowledged.fetch_add(1, Relaxed);
    }

    /// An operation waits for a time of the cluster.
    pub fn waits(&self) -> Waits<'_> {
        self.waits.fetch_add(1, Relaxed);
        Waits(self)
    }

    /// How many operations wait for a time of the cluster.
    pub fn waiting(&self) -> i64 {
        self.waits.load(Relaxed)
    }

    /// How many writes that asked for no answer were refused.
    pub fn unacknowledged(&self) -> i64 {
        self.unacknowledged.load(Relaxed) as i64
    }

    /// `metrics.repl.stateTransition`.
    pub fn state_transition(&self) -> DocBuf {
        doc! {
            "lastStateTransition": *self.last.lock(),
            "totalOperationsKilled": self.killed.load(Relaxed) as i64,
            "totalOperationsRunning": self.running.load(Relaxed) as i64,
        }
    }

    /// `metrics.repl.syncSource`.
    pub fn sync_source(&self) -> DocBuf {
        let of = |n: &AtomicU64| n.load(Relaxed) as i64;
        doc! {
            "numSelections": of(&self.selections),
            // A nearer member is never chosen instead: the log comes from the primary.
            "numSyncSourceChangesDueToSignificantlyCloserNode": 0_i64,
            "numTimesChoseDifferent": of(&self.different),
            "numTimesChoseSame": of(&self.same),
            "numTimesCouldNotFind": of(&self.none),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_counted_by_whether_they_are_others() {
        let f = Figures::default();
        for source in [Some(1), Some(1), None, Some(1), Some(2), Some(1)] {
            f.follows(source);
        }
        let all = [&f.selections, &f.same, &f.different, &f.none];
        assert_eq!(all.map(|n| n.load(Relaxed)), [5, 2, 3, 1]);
    }

    #[test]
    fn who_waits_is_counted_for_as_long_as_it_waits() {
        let f = Figures::default();
        let (a, b) = (f.waits(), f.waits());
        assert_eq!(f.waits.load(Relaxed), 2);
        drop((a, b));
        assert_eq!(f.waits.load(Relaxed), 0);
    }
}
