//! The results of the statements of one command.

use crate::operation::StatementOutcome;
use muniment_storage::CommitId;
use muniment_value::{Code, DocBuf, Error, Result, ValueBuf, doc};

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

/// The result of all statements of a command together.
#[derive(Clone, Debug, Default)]
pub struct BulkOutcome {
    /// The reply's `n`: the documents that were inserted, matched or upserted, or deleted.
    pub n: u64,
    /// The reply's `nModified`.
    pub modified: u64,
    /// The reply's `upserted`: statement index and `_id`.
    pub upserted: Vec<(usize, ValueBuf)>,
    /// The reply's `writeErrors`, by ascending index.
    pub errors: Vec<WriteError>,
    /// The last commit, for `j: true`.
    pub commit: Option<CommitId>,
    /// Bytes of messages and details of the errors so far.
    told: usize,
}

/// After this many bytes of messages, errors are reported without one, as in MongoDB. Its drivers
/// know them by their codes.
const MESSAGES: usize = 1 << 20;

/// After this many bytes errors have no details either, so that the reply fits into a message.
const DETAILS: usize = 8 << 20;

impl BulkOutcome {
    /// Books a statement's failure. If a command has many failures, only the first ones keep
    /// message and details.
    pub fn fail(&mut self, index: usize, error: &Error) {
        let details = error.extra();
        let all = error.message().len() + details.len();
        let error = match self.told {
            // The first two keep everything, however long it is.
            told if self.errors.len() < 2 || told + all <= MESSAGES => error.clone(),
            told if told + details.len() <= DETAILS => {
                Error::new(error.code(), "").with_extra(details.clone())
            }
            _ => Error::new(error.code(), ""),
        };
        self.told += error.message().len() + error.extra().len();
        self.errors.push(WriteError { index, error });
    }

    /// Books one statement's result. Returns true if the loop goes on; a failure ends an ordered
    /// loop.
    pub fn note(&mut self, index: usize, result: Result<StatementOutcome>, ordered: bool) -> bool {
        let (outcome, result) = match result {
            Ok(s) => (s, Ok(())),
            Err(e) => (StatementOutcome::default(), Err(e)),
        };
        self.note_partial(index, outcome, result, ordered)
    }

    /// As [`BulkOutcome::note`], for a statement that may have stored something before it failed.
    pub fn note_partial(
        &mut self,
        index: usize,
        s: StatementOutcome,
        result: Result<()>,
        ordered: bool,
    ) -> bool {
        self.n += s.matched + u64::from(s.upserted.is_some());
        self.modified += s.modified;
        if let Some(id) = s.upserted {
            self.upserted.push((index, id));
        }
        self.commit = self.commit.max(s.commit);
        match result {
            Ok(()) => true,
            Err(error) => {
                // A full disk or an interrupt would make every later statement fail too, so the
                // loop ends even if it is unordered.
                let hopeless = error.code() == Code::OutOfDiskSpace || error.fails_command();
                self.fail(index, &error);
                !ordered && !hopeless
            }
        }
    }
}
