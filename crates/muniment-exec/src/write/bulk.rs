//! Results of writes, and the loop over the statements of one command.

use super::core::{Checks, Done, Write, change, killed_by_drop, note_found};
use super::observed::Watch;
use super::retry::{Retry, Statements};
use super::slices::{Slices, Tally};
use super::version::VERSION_COLLECTION;
use crate::database::Database;
use crate::operation::OpContext;
use muniment_query::{Interrupt, MatchInfo};
use muniment_storage::{Collection, CommitId};
use muniment_value::{Code, Collation, DocBuf, Error, Result, ValueBuf, doc};
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
        let (outcome, result) = match result {
            Ok(s) => (s, Ok(())),
            Err(e) => (StatementOutcome::default(), Err(e)),
        };
        self.note_partial(index, outcome, result, ordered)
    }

    /// As [`BulkOutcome::note`], of a statement that may have stored something and failed then.
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
                // A full disk or an interrupt would fail every statement that follows.
                let hopeless = error.code() == Code::OutOfDiskSpace || error.is_interruption();
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
        engine: &Database,
        op: &OpContext,
        on: &Target<'_>,
        run: impl FnOnce(&Write<'_>) -> Result<R>,
    ) -> Result<R>;
}

/// What a statement writes to, as it was when the statement began.
pub(crate) struct Target<'t> {
    pub namespace: &'t str,
    pub collection: Option<Arc<Collection>>,
}

impl<'t> Target<'t> {
    pub(super) fn new(engine: &Database, namespace: &'t str) -> Target<'t> {
        Target {
            namespace,
            collection: engine.store.collection(namespace),
        }
    }

    fn is(&self, collection: &Arc<Collection>) -> bool {
        let same = |c: &Arc<Collection>| Arc::ptr_eq(c, collection);
        self.collection.as_ref().is_some_and(same)
    }

    /// As [`Database::collation_for`].
    pub fn collation(&self, engine: &Database, given: Option<&Collation>) -> Result<Collation> {
        engine.collation_on(self.namespace, self.collection.as_deref(), given)
    }
}

impl Database {
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
        if let Some(retry) = op.retry() {
            if let Some(done) = retry.executed(0) {
                return Ok(done);
            }
            retry.runs(0);
        }
        let on = Target::new(self, namespace);
        statement.with_write(self, op, &on, |w| {
            let mut done = Done::default();
            self.write(op, namespace, w, &mut done)?;
            Ok(done.into())
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
        let ordered = op.ordered(ordered);
        let mut batch = Batch::new(self, op, namespace, ordered);
        let mut statements = statements.enumerate();
        for (i, s) in statements.by_ref() {
            if let Some(retry) = op.retry() {
                if let Some(done) = retry.executed(i) {
                    batch.out.note(i, Ok(done), ordered);
                    continue;
                }
                retry.runs(i);
            }
            let on = Target::new(self, namespace);
            let watch = Watch::start(op, &batch.out);
            let run = |s: S| s.with_write(self, op, &on, |w| Ok(batch.run(i, w, &on)));
            let go_on = match s.and_then(run) {
                Ok(go_on) => go_on,
                // It could not even be parsed.
                Err(e) => batch.out.note(i, Err(e), ordered),
            };
            if let Some(watch) = watch {
                watch.end(op, i, &batch.out);
            }
            if !go_on || batch.failed {
                break;
            }
        }
        if !ordered {
            batch.flush();
            // Of an unordered command everything that is not stored is told.
            let last = batch.out.errors.last().map(|e| e.error.clone());
            let failure = batch.failure.take().or(last);
            if let Some(error) = failure {
                let each = |(index, _)| WriteError {
                    index,
                    error: error.clone(),
                };
                batch.out.errors.extend(statements.map(each));
            }
        }
        batch.finish()
    }
}

/// Statements that share write units: those that name one document by `_id` are staged together
/// and committed in slices, which costs a fraction of a commit each. Whatever else comes runs by
/// itself, after what is staged.
struct Batch<'e> {
    engine: &'e Database,
    op: &'e Arc<OpContext>,
    namespace: &'e str,
    set: Option<Shared<'e>>,
    staged: usize,
    out: BulkOutcome,
    ordered: bool,
    failed: bool,
    /// What the commit said that failed.
    failure: Option<Error>,
}

/// What the staged statements share.
struct Shared<'e> {
    slices: Slices<'e, Outcomes>,
    collection: Arc<Collection>,
    checks: Option<Checks<'e>>,
}

/// Statements by their places, with what they did.
#[derive(Default)]
struct Outcomes(Vec<(usize, StatementOutcome)>);

impl Tally for Outcomes {
    fn add(&mut self, mut later: Outcomes) {
        self.0.append(&mut later.0);
    }

    fn statements(&self, _: &Retry) -> Vec<Statements> {
        let changed = self.0.iter().filter(|(_, o)| o.matched > 0);
        changed
            .map(|(place, o)| Statements::of(*place, o))
            .collect()
    }
}

/// Statements that are committed together at most.
const STATEMENTS_AT_ONCE: usize = 1000;

impl<'e> Batch<'e> {
    fn new(
        engine: &'e Database,
        op: &'e Arc<OpContext>,
        namespace: &'e str,
        ordered: bool,
    ) -> Batch<'e> {
        Batch {
            engine,
            op,
            namespace,
            set: None,
            staged: 0,
            out: BulkOutcome::default(),
            ordered,
            failed: false,
            failure: None,
        }
    }

    /// Runs one statement, or stages it to be booked with its commit; true when the loop goes on.
    fn run(&mut self, index: usize, write: &Write<'_>, on: &Target<'_>) -> bool {
        let ordered = self.ordered;
        // Renamed or replaced since: what is staged goes to the old one, and this not.
        if self.set.as_ref().is_some_and(|s| !on.is(&s.collection)) {
            self.flush();
            if self.failed {
                return self.not_tried(index);
            }
        }
        match self.stage(index, write, on) {
            Ok(true) => {
                self.staged += 1;
                if self.staged >= STATEMENTS_AT_ONCE {
                    self.flush();
                    if let Err(e) = self.op.check() {
                        return self.out.note(index, Err(e), ordered);
                    }
                }
                return true;
            }
            Ok(false) => {}
            Err(e) => {
                let failed = self.set.as_ref().is_some_and(|s| s.slices.has_failed());
                self.flush_with(failed.then(|| e.clone()));
                return match failed {
                    // The statement that met it is not stored either.
                    true => {
                        if !self.ordered {
                            self.out.errors.push(WriteError { index, error: e });
                        }
                        false
                    }
                    false => self.out.note(index, Err(e), ordered),
                };
            }
        }
        self.flush();
        if self.failed {
            return self.not_tried(index);
        }
        let mut done = Done::default();
        let (engine, op) = (self.engine, self.op);
        let result = engine.write(op, self.namespace, write, &mut done);
        self.out.note_partial(index, done.into(), result, ordered)
    }

    /// Books a statement behind a commit that failed: the loop ends.
    fn not_tried(&mut self, index: usize) -> bool {
        if let Some(error) = self.failure.clone().filter(|_| !self.ordered) {
            self.out.errors.push(WriteError { index, error });
        }
        false
    }

    /// Stages a statement on one `_id`; false when it is none or has to insert.
    fn stage(&mut self, index: usize, write: &Write<'_>, on: &Target<'_>) -> Result<bool> {
        if write.hint.is_some()
            || write.filter.id_equality().is_none()
            || self.op.observed()
            || self.namespace == VERSION_COLLECTION
        {
            return Ok(false);
        }
        if self.set.is_none() {
            // Dropped meanwhile, it says so when it is written to.
            let Some(collection) = on.collection.clone() else {
                return Ok(false);
            };
            if !collection.finds_by_id() {
                return Ok(false);
            }
            self.set = Some(Shared {
                checks: self
                    .engine
                    .checks(&collection, write.bypasses_validation())?,
                slices: Slices::new(&self.engine.store, self.op, &collection),
                collection,
            });
        }
        let Some(Shared {
            slices,
            collection,
            checks,
        }) = &mut self.set
        else {
            return Ok(false);
        };
        let Some(id) = write.filter.id_equality_by(collection.collation()) else {
            return Ok(false);
        };
        let mut inserts = false;
        let staged = slices.change_by_id(id.as_value(), |unit, found| {
            let done = match found {
                Some((key, old)) => {
                    let info = MatchInfo::default();
                    let staged = change(unit, write, checks.as_ref(), &key, old, info);
                    if let Ok(Err(busy)) = staged {
                        return Ok(Err(busy));
                    }
                    note_found(self.op, collection.is_keyed_by_id());
                    match staged? {
                        Ok(done) => done,
                        Err(busy) => return Ok(Err(busy)),
                    }
                }
                None => {
                    inserts = write.upserts();
                    Done::default()
                }
            };
            let booked = (!inserts).then(|| (index, done.into()));
            Ok(Ok(Outcomes(booked.into_iter().collect())))
        });
        match staged {
            // Dropped under our hands: as if it had not been there.
            Err(e) if e.code() == Code::NamespaceNotFound && !slices.has_failed() => Ok(false),
            other => other.map(|()| !inserts),
        }
    }

    /// Commits what is staged and books it.
    fn flush(&mut self) {
        self.flush_with(None);
    }

    /// The same, when a commit has failed with this error already.
    fn flush_with(&mut self, failed: Option<Error>) {
        self.staged = 0;
        let Some(mut set) = self.set.take() else {
            return;
        };
        let error = match failed {
            Some(e) => Some(e),
            None => set.slices.commit().err(),
        };
        let error = error.map(|e| killed_by_drop(self.namespace, e));
        let lost: Vec<usize> = match error.is_some() {
            true => set.slices.lost().0.iter().map(|(i, _)| *i).collect(),
            false => Vec::new(),
        };
        let (stored, commit) = set.slices.into_stored();
        for (i, outcome) in stored.0 {
            let counters = &self.op.counters;
            counters.matched.fetch_add(outcome.matched, Relaxed);
            counters.written.fetch_add(outcome.modified, Relaxed);
            self.out.note(i, Ok(outcome), true);
        }
        self.out.commit = self.out.commit.max(commit);
        if let Some(error) = error {
            let told = if self.ordered { 1 } else { lost.len() };
            let each = |index: &usize| WriteError {
                index: *index,
                error: error.clone(),
            };
            self.out.errors.extend(lost.iter().take(told).map(each));
            self.failed = true;
            self.failure = Some(error);
        }
    }

    /// Commits the rest and gives the result.
    fn finish(mut self) -> BulkOutcome {
        self.flush();
        self.out.errors.sort_by_key(|e| e.index);
        if self.ordered {
            // The commit of what a failed statement stands behind may have failed too.
            self.out.errors.truncate(1);
        }
        if let Some(first) = self.out.errors.first() {
            self.op.note_failure(&first.error);
        }
        self.out.upserted.sort_by_key(|(i, _)| *i);
        self.out
    }
}
