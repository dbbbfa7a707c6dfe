//! What one statement of a command did: what its reply tells, and what the profiler does.

use super::figures::PlanFigures;
use muniment_storage::{CommitId, KeyCounts};
use muniment_value::{Error, ValueBuf};
use std::time::Duration;

/// What one update or delete statement did.
#[derive(Clone, Debug, Default)]
pub struct StatementOutcome {
    /// Documents matched (or deleted); an upsert matches none.
    pub matched: u64,
    /// Documents that changed.
    pub modified: u64,
    /// The `_id` of the document that was upserted.
    pub upserted: Option<ValueBuf>,
    /// The last commit, for `j: true`.
    pub commit: Option<CommitId>,
}

/// What one statement did.
#[derive(Clone, Debug)]
pub struct StatementFigures {
    /// Its place in the command.
    pub index: usize,
    /// How long it took.
    pub took: Duration,
    /// Index keys examined.
    pub keys_examined: u64,
    /// Documents examined.
    pub docs_examined: u64,
    /// Index keys put and taken away.
    pub keys: KeyCounts,
    /// Documents matched; of a delete: deleted.
    pub matched: u64,
    /// Documents that changed.
    pub modified: u64,
    /// A document was inserted since none matched.
    pub upserted: bool,
    /// How the documents were found.
    pub plan: PlanFigures,
    /// The thread's time on a processor, where the system tells it.
    pub cpu: Option<Duration>,
    /// Why it failed, if it did.
    pub error: Option<Error>,
}
