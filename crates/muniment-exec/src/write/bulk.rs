//! Results of writes, and the loop over the statements of one command.

use muniment_storage::CommitId;
use muniment_value::{DocBuf, Error, ValueBuf};

/// One statement's failure.
#[derive(Clone, Debug)]
pub struct WriteError {
    /// The statement's place in the command.
    pub index: usize,
    /// What went wrong.
    pub error: Error,
}

impl WriteError {
    /// As `writeErrors` lists it: `{index, code, errmsg, keyPattern, keyValue, errInfo…}`.
    pub fn to_doc(&self) -> DocBuf {
        todo!()
    }
}

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

/// What all statements of a command did.
#[derive(Clone, Debug, Default)]
pub struct BulkOutcome {
    /// The reply's `n`: inserted; matched and upserted; deleted.
    pub n: u64,
    /// The reply's `nModified`.
    pub modified: u64,
    /// The reply's `upserted`: statement index and `_id`.
    pub upserted: Vec<(usize, ValueBuf)>,
    /// The reply's `writeErrors`, by ascending index.
    pub errors: Vec<WriteError>,
    /// The last commit, for `j: true`.
    pub commit: Option<CommitId>,
}

impl BulkOutcome {
    /// Books one statement's result; true when the loop goes on (a failed statement ends an
    /// ordered loop).
    pub fn note(
        &mut self,
        index: usize,
        result: muniment_value::Result<StatementOutcome>,
        ordered: bool,
    ) -> bool {
        let _ = (index, result, ordered);
        todo!()
    }
}
