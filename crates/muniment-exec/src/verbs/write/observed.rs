//! Records what each statement of an update or delete command did, for the profiler, which lists
//! them one by one.
//!
//! Invariant: only an operation that is observed pays for it. Its statements are not committed
//! together, so that the work of one is never booked with another.

use crate::operation::{Counters, OpContext, StatementFigures};
use crate::verbs::write::outcome::BulkOutcome;
use muniment_storage::{KeyCounts, thread_time};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A running statement, with the values that the counters had when it began.
pub(super) struct Watch {
    began: Instant,
    cpu: Option<Duration>,
    before: Read,
    outcome: (u64, u64, usize, usize),
}

/// The values of the counters at one moment.
struct Read {
    keys_examined: u64,
    docs_examined: u64,
    keys: KeyCounts,
}

impl Read {
    fn of(c: &Counters) -> Read {
        Read {
            keys_examined: c.keys_examined.load(Relaxed),
            docs_examined: c.docs_examined.load(Relaxed),
            keys: c.keys(),
        }
    }
}

fn outcome(out: &BulkOutcome) -> (u64, u64, usize, usize) {
    (out.n, out.modified, out.upserted.len(), out.errors.len())
}

impl Watch {
    /// To be called before a statement. `None` if the operation is not observed.
    pub(super) fn start(op: &OpContext, out: &BulkOutcome) -> Option<Watch> {
        op.observed().then(|| {
            op.forget_plan();
            Watch {
                began: Instant::now(),
                cpu: thread_time(),
                before: Read::of(&op.counters),
                outcome: outcome(out),
            }
        })
    }

    /// To be called after the statement; records what it did.
    pub(super) fn end(self, op: &OpContext, index: usize, out: &BulkOutcome) {
        let after = Read::of(&op.counters);
        let (n, modified, upserted, errors) = self.outcome;
        let upserts = out.upserted.len() - upserted;
        op.note_statement(StatementFigures {
            index,
            took: self.began.elapsed(),
            keys_examined: after.keys_examined - self.before.keys_examined,
            docs_examined: after.docs_examined - self.before.docs_examined,
            keys: KeyCounts {
                inserted: after.keys.inserted - self.before.keys.inserted,
                deleted: after.keys.deleted - self.before.keys.deleted,
            },
            matched: out.n - n - upserts as u64,
            modified: out.modified - modified,
            upserted: upserts > 0,
            plan: op.plan_figures(),
            cpu: thread_time()
                .zip(self.cpu)
                .map(|(now, then)| now.saturating_sub(then)),
            error: out.errors.get(errors).map(|e| e.error.clone()),
        });
    }
}
