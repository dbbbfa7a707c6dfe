//! Results of writes, and the loop over the statements of one command.

use super::core::{Checks, Done, SLICE_BYTES, Write, change};
use crate::engine::Engine;
use crate::operation::OpContext;
use muniment_query::{Interrupt, MatchInfo};
use muniment_storage::{Collection, CommitId, WriteSet};
use muniment_value::{Code, DocBuf, Error, Result, ValueBuf, doc};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

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
    pub fn note(&mut self, index: usize, result: Result<StatementOutcome>, ordered: bool) -> bool {
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

/// A statement of an update or delete command.
pub(crate) trait Statement {
    /// Parses all and hands it to `run`.
    fn with_write<R>(
        &self,
        engine: &Engine,
        op: &OpContext,
        namespace: &str,
        run: impl FnOnce(&Write<'_>) -> Result<R>,
    ) -> Result<R>;
}

impl Engine {
    /// Runs one statement.
    ///
    /// # Errors
    /// The statement's error; what it changed before stays changed.
    pub(super) fn run_statement(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        statement: &impl Statement,
    ) -> Result<StatementOutcome> {
        statement.with_write(self, op, namespace, |w| {
            self.write(op, namespace, w).map(Into::into)
        })
    }

    /// Runs the statements of a command.
    pub(super) fn run_statements<S: Statement>(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        statements: &mut dyn Iterator<Item = Result<S>>,
        ordered: bool,
    ) -> BulkOutcome {
        let mut batch = Batch::new(self, op, namespace);
        for (i, s) in statements.enumerate() {
            let r = s.and_then(|s| s.with_write(self, op, namespace, |w| batch.run(i, w)));
            if !batch.note(i, r, ordered) {
                break;
            }
        }
        batch.finish()
    }
}

/// Statements that share write sets: those that name one document by `_id` are staged together
/// and committed in slices, which costs a fraction of a commit each. Whatever else comes runs by
/// itself, after what is staged.
struct Batch<'e> {
    engine: &'e Engine,
    op: &'e Arc<OpContext>,
    namespace: &'e str,
    set: Option<(WriteSet<'e>, Arc<Collection>, Option<Checks<'e>>)>,
    /// Staged and not yet committed.
    pending: Vec<(usize, StatementOutcome)>,
    out: BulkOutcome,
    failed: bool,
}

/// Statements that are committed together at most.
const STATEMENTS_AT_ONCE: usize = 1000;

impl<'e> Batch<'e> {
    fn new(engine: &'e Engine, op: &'e Arc<OpContext>, namespace: &'e str) -> Batch<'e> {
        Batch {
            engine,
            op,
            namespace,
            set: None,
            pending: Vec::new(),
            out: BulkOutcome::default(),
            failed: false,
        }
    }

    /// Runs one statement; `None` when it is staged and will be booked with its commit.
    fn run(&mut self, index: usize, write: &Write<'_>) -> Result<Option<StatementOutcome>> {
        if let Some(outcome) = self.stage(write)? {
            self.pending.push((index, outcome));
            let full = self
                .set
                .as_ref()
                .is_some_and(|(s, _, _)| s.staged_bytes() >= SLICE_BYTES);
            if full || self.pending.len() >= STATEMENTS_AT_ONCE {
                self.flush();
                self.op.check()?;
            }
            return Ok(None);
        }
        self.flush();
        if self.failed {
            return Ok(None);
        }
        let done = self.engine.write(self.op, self.namespace, write)?;
        Ok(Some(done.into()))
    }

    /// Stages a statement on one `_id`; `None` when it is none or has to insert.
    fn stage(&mut self, write: &Write<'_>) -> Result<Option<StatementOutcome>> {
        if write.hint.is_some() || write.filter.id_equality().is_none() {
            return Ok(None);
        }
        if self.set.is_none() {
            let Some(collection) = self.engine.store.collection(self.namespace) else {
                return Ok(None);
            };
            if !collection.is_keyed_by_id() {
                return Ok(None);
            }
            let validator = self
                .engine
                .checks(&collection, write.bypasses_validation())?;
            let set = match self.engine.store.write_set(&collection) {
                Ok(s) => s,
                Err(e) if e.code() == Code::NamespaceNotFound => return Ok(None),
                Err(e) => return Err(e),
            };
            self.set = Some((set, collection, validator));
        }
        let Some((set, collection, validator)) = &mut self.set else {
            return Ok(None);
        };
        let Some(id) = write.filter.id_equality_by(collection.collation()) else {
            return Ok(None);
        };
        let key = collection.record_key_of_id(id.as_value());
        let mut done = Done::default();
        match set.lock(&key)? {
            Some(old) => {
                let info = MatchInfo::default();
                change(set, write, validator.as_ref(), &key, old, info, &mut done)?;
            }
            None if write.upserts() => return Ok(None),
            None => {}
        }
        self.op.counters.written.fetch_add(done.modified, Relaxed);
        Ok(Some(done.into()))
    }

    /// Commits what is staged and books it.
    fn flush(&mut self) {
        let Some((set, _, _)) = self.set.take() else {
            return;
        };
        let pending = std::mem::take(&mut self.pending);
        match set.commit() {
            Ok(commit) => {
                for (i, outcome) in pending {
                    self.out.note(i, Ok(outcome), true);
                }
                self.out.commit = self.out.commit.max(commit);
            }
            Err(error) => {
                let index = pending.first().map_or(0, |(i, _)| *i);
                self.out.errors.push(WriteError { index, error });
                self.failed = true;
            }
        }
    }

    /// Books a statement; true when the loop goes on.
    fn note(
        &mut self,
        index: usize,
        result: Result<Option<StatementOutcome>>,
        ordered: bool,
    ) -> bool {
        let go_on = match result {
            Ok(None) => true,
            Ok(Some(outcome)) => self.out.note(index, Ok(outcome), ordered),
            Err(e) => self.out.note(index, Err(e), ordered),
        };
        go_on && !self.failed
    }

    /// Commits the rest and gives the result.
    fn finish(mut self) -> BulkOutcome {
        self.flush();
        self.out.errors.sort_by_key(|e| e.index);
        self.out.upserted.sort_by_key(|(i, _)| *i);
        self.out
    }
}
