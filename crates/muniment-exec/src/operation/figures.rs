//! What an operation counts and tells of itself.

use muniment_storage::KeyCounts;
use muniment_value::DocBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What an operation has done so far. Relaxed counters: for people, not for decisions.
#[derive(Debug, Default)]
pub struct Counters {
    /// Index keys examined.
    pub keys_examined: AtomicU64,
    /// Documents examined.
    pub docs_examined: AtomicU64,
    /// Documents returned.
    pub returned: AtomicU64,
    /// Documents that an update or a delete matched.
    pub matched: AtomicU64,
    /// Documents written (inserted, modified or deleted).
    pub written: AtomicU64,
    /// Those of them that were inserted since an update matched none.
    pub upserted: AtomicU64,
    /// Index keys put.
    keys_inserted: AtomicU64,
    /// Index keys taken away.
    keys_deleted: AtomicU64,
    /// Microseconds for which it waited for news.
    idle_micros: AtomicU64,
}

impl Counters {
    /// Counts what a commit did to indexes.
    pub(crate) fn add_keys(&self, keys: KeyCounts) {
        self.keys_inserted.fetch_add(keys.inserted, Relaxed);
        self.keys_deleted.fetch_add(keys.deleted, Relaxed);
    }

    /// Runs what waits for something that a client asked to be told of: an insert, an event, a change of
    /// the topology. That time says nothing of how fast the server is.
    pub fn idle<T>(&self, wait: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = wait();
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.idle_micros.fetch_add(micros, Relaxed);
        result
    }

    /// How long it waited for news.
    pub fn idle_time(&self) -> Duration {
        Duration::from_micros(self.idle_micros.load(Relaxed))
    }

    /// Index keys put and taken away.
    pub fn keys(&self) -> KeyCounts {
        KeyCounts {
            inserted: self.keys_inserted.load(Relaxed),
            deleted: self.keys_deleted.load(Relaxed),
        }
    }
}

/// What the profiler and the slow-operation log tell of a plan.
#[derive(Clone, Debug, Default)]
pub struct PlanFigures {
    /// E.g. `IXSCAN { a: 1 }`, once there is a plan.
    pub summary: Option<String>,
    /// It sorts what it has read.
    pub sorts: bool,
    /// It won a trial of several.
    pub from_multi_planner: bool,
    /// The plan cache knew it.
    pub from_plan_cache: bool,
    /// Why the one that the plan cache knew was given up.
    pub replan_reason: Option<String>,
    /// The hash of the query's shape.
    pub shape_hash: Option<String>,
    /// Its stages with what they did; of an observed operation alone.
    pub exec_stats: Option<DocBuf>,
}
