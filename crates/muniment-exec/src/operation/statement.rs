//! The result of one statement of a command, for its reply and for the profiler.

use super::figures::PlanFigures;
use muniment_storage::{CommitId, KeyCounts};
use muniment_value::{Error, ValueBuf};
use std::time::Duration;

/// The result of an update or delete statement.
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

/// The figures of one statement, for the profiler.
#[derive(Clone, Debug)]
pub struct StatementFigures {
    /// The statement's place in the command.
    pub index: usize,
    /// How long it took.
    pub took: Duration,
    /// Index keys examined.
    pub keys_examined: u64,
    /// Documents examined.
    pub docs_examined: u64,
    /// Index keys inserted and deleted.
    pub keys: KeyCounts,
    /// Documents matched; for a delete, documents deleted.
    pub matched: u64,
    /// Documents that changed.
    pub modified: u64,
    /// True if a document was inserted because none matched.
    pub upserted: bool,
    /// The plan that found the documents.
    pub plan: PlanFigures,
    /// The thread's CPU time, if the system tells it.
    pub cpu: Option<Duration>,
    /// The error, if the statement failed.
    pub error: Option<Error>,
}
