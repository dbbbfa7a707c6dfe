//! What a member counts, and what serverStatus shows of that: `metrics.repl` and the section `oplog`.
//!
//! Invariant: what is not measured here is left out, so that a zero means that nothing has happened.

use super::inbox::ROOM;
use super::{ReplicaSet, timestamp};
use muniment_consensus::MemberId;
use muniment_storage::Store;
use muniment_value::{DocBuf, Result, doc};
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
}

/// The section `oplog`: the timestamps of the newest entry and of the oldest that can be read.
///
/// # Errors
/// The log's, for instance 14031 while there is none.
pub fn oplog(store: &Store) -> Result<DocBuf> {
    let oldest = store.log_entries(store.log_begins_after()?)?.next()?;
    let latest = store.position()?.applied.at;
    Ok(doc! {
        "latestOptime": timestamp(latest),
        "earliestOptime": timestamp(oldest.map_or(latest, |e| e.at)),
    })
}

/// `metrics.repl`. On a standalone it is what came from others, which is nothing.
pub fn metrics(store: &Store, set: Option<&ReplicaSet>) -> DocBuf {
    let f = store.follow_stats();
    let ops = f.ops.iter().sum::<u64>() as i64;
    let apply = doc! {
        "batchSize": ops,
        "batches": doc! { "num": f.batches as i64, "totalMillis": (f.micros / 1000) as i64 },
        "ops": ops,
    };
    let mut network = doc! { "bytes": f.bytes as i64, "ops": ops };
    let Some(set) = set else {
        return doc! { "apply": apply, "network": network };
    };
    let of = |n: &AtomicU64| n.load(Relaxed) as i64;
    let m = &set.figures;
    network.append("notPrimaryUnacknowledgedWrites", of(&m.unacknowledged));
    let node = set.node();
    let (waiting, bytes) = node.as_ref().map_or((0, 0), |node| node.inbox.held());
    doc! {
        "apply": apply,
        "buffer": doc! {
            "write": doc! {
                "count": waiting as i64,
                "maxSizeBytes": ROOM as i64,
                "sizeBytes": bytes as i64,
            },
        },
        "network": network,
        "stateTransition": doc! {
            "lastStateTransition": *m.last.lock(),
            "totalOperationsKilled": of(&m.killed),
            "totalOperationsRunning": of(&m.running),
        },
        "syncSource": doc! {
            "numSelections": of(&m.selections),
            // A nearer member is never chosen instead: the log comes from the primary.
            "numSyncSourceChangesDueToSignificantlyCloserNode": 0_i64,
            "numTimesChoseDifferent": of(&m.different),
            "numTimesChoseSame": of(&m.same),
            "numTimesCouldNotFind": of(&m.none),
        },
        "waiters": doc! {
            "opTime": m.waits.load(Relaxed),
            "replication": node.map_or(0, |node| node.waiting()) as i64,
        },
    }
}

impl ReplicaSet {
    /// What this member counts.
    pub fn figures(&self) -> &Figures {
        &self.figures
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
