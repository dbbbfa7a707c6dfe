//! Results of writes, and the loop over the statements of one command.

use muniment_storage::CommitId;
use muniment_value::{Code, DocBuf, Error, ValueBuf, doc};

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
        let mut d = doc! {
            "index": i32::try_from(self.index).unwrap_or(i32::MAX),
            "code": self.error.code().0,
            "errmsg": self.error.message(),
        };
        d.append_all(self.error.extra().as_doc());
        d
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
        match result {
            Ok(s) => {
                self.n += s.matched + u64::from(s.upserted.is_some());
                self.modified += s.modified;
                if let Some(id) = s.upserted {
                    self.upserted.push((index, id));
                }
                self.commit = self.commit.max(s.commit);
                true
            }
            Err(error) => {
                // A full disk or an interrupt would fail every statement that follows.
                let hopeless = matches!(
                    error.code(),
                    Code::OutOfDiskSpace
                        | Code::Interrupted
                        | Code::InterruptedAtShutdown
                        | Code::ShutdownInProgress
                        | Code::MaxTimeMSExpired
                        | Code::ClientDisconnect
                );
                self.errors.push(WriteError { index, error });
                !ordered && !hopeless
            }
        }
    }
}
