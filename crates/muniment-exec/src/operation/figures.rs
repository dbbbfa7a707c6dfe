//! The figures that an operation collects about itself.

use muniment_storage::KeyCounts;
use muniment_value::DocBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The amount of work that an operation has done so far. The counters are relaxed, because they are
/// shown to people and decide nothing.
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
    /// Documents inserted by updates that matched none. They are among `written` too.
    pub upserted: AtomicU64,
    /// Index keys inserted.
    keys_inserted: AtomicU64,
    /// Index keys deleted.
    keys_deleted: AtomicU64,
    /// Microseconds spent waiting for something to happen, see [`Counters::idle`].
    idle_micros: AtomicU64,
}

impl Counters {
    /// Counts the index keys that a commit inserted and deleted.
    pub(crate) fn add_keys(&self, keys: KeyCounts) {
        self.keys_inserted.fetch_add(keys.inserted, Relaxed);
        self.keys_deleted.fetch_add(keys.deleted, Relaxed);
    }

    /// Runs a wait for something that a client asked to be told of: an insert, an event, a change
    /// of the topology. The time is counted apart, because it says nothing about how fast the
    /// server is.
    pub fn idle<T>(&self, wait: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = wait();
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.idle_micros.fetch_add(micros, Relaxed);
        result
    }

    /// The time spent in [`Counters::idle`].
    pub fn idle_time(&self) -> Duration {
        Duration::from_micros(self.idle_micros.load(Relaxed))
    }

    /// Index keys inserted and deleted.
    pub fn keys(&self) -> KeyCounts {
        KeyCounts {
            inserted: self.keys_inserted.load(Relaxed),
            deleted: self.keys_deleted.load(Relaxed),
        }
    }
}

/// The facts about a plan that the profiler and the slow-operation log show.
#[derive(Clone, Debug, Default)]
pub struct PlanFigures {
    /// The plan's summary, such as `IXSCAN { a: 1 }`, if there is a plan.
    pub summary: Option<String>,
    /// True if the plan or a stage above it sorts.
    pub sorts: bool,
    /// True if the plan won a trial against others.
    pub from_multi_planner: bool,
    /// True if the plan came from the plan cache.
    pub from_plan_cache: bool,
    /// The reason why the plan from the cache was given up, if it was.
    pub replan_reason: Option<String>,
    /// The hash of the query's shape.
    pub shape_hash: Option<String>,
    /// The plan's stages with their figures. Only observed operations have them.
    pub exec_stats: Option<DocBuf>,
}
