//! The loop over the statements of one update or delete command.

use super::observed::Watch;
use super::slices::{Slices, Tally};
use super::version::VERSION_COLLECTION;
use crate::database::Database;
use crate::operation::{OpContext, Retry, StatementOutcome, Statements};
use crate::source::Source;
use crate::verbs::write::change::Done;
use crate::verbs::write::change::Write;
use crate::verbs::write::outcome::BulkOutcome;
use crate::verbs::write::perform::Checks;
use crate::verbs::write::perform::change;
use crate::verbs::write::perform::checks;
use crate::verbs::write::perform::killed_by_drop;
use crate::verbs::write::perform::note_found;
use crate::verbs::write::perform::perform;
use muniment_query::{Interrupt, MatchInfo, QueryContext};
use muniment_storage::Collection;
use muniment_value::{Code, Collation, Doc, Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A statement of an update or delete command.
pub(crate) trait Statement {
    /// Parses the statement and passes the result to `run`, which may borrow from it.
    fn with_write<R>(
        &self,
        op: &Arc<OpContext>,
        on: &Target<'_>,
        run: impl FnOnce(&Write<'_>) -> Result<R>,
    ) -> Result<R>;
}

/// The collection that a statement writes to, as resolved when the statement began.
pub(crate) struct Target<'t> {
    pub namespace: &'t str,
    pub source: Source,
}

impl<'t> Target<'t> {
    pub(crate) fn new(engine: &Database, namespace: &'t str) -> Result<Target<'t>> {
        let source = Source::now(&engine.store, namespace)?;
        Ok(Target { namespace, source })
    }

    /// The collection, if there is one.
    pub(crate) fn collection(&self) -> Option<&Arc<Collection>> {
        self.source.collection()
    }

    fn is(&self, collection: &Arc<Collection>) -> bool {
        self.collection()
            .is_some_and(|c| Arc::ptr_eq(c, collection))
    }

    /// As [`Source::context`].
    pub(crate) fn context(
        &self,
        op: &Arc<OpContext>,
        let_: Doc<'_>,
        given: Option<&Collation>,
    ) -> Result<QueryContext> {
        self.source.context(op, self.namespace, let_, given)
    }
}

/// Runs one statement. `outcome` is set even if the statement fails.
///
/// # Errors
/// The statement's error; what it changed before stays changed.
pub(crate) fn run_statement(
    engine: &Database,
    op: &Arc<OpContext>,
    namespace: &str,
    statement: &impl Statement,
    outcome: &mut StatementOutcome,
) -> Result<()> {
    if let Some(retry) = op.retry() {
        if let Some(done) = retry.executed(0) {
            *outcome = done;
            return Ok(());
        }
        retry.runs(0);
    }
    let on = Target::new(engine, namespace)?;
    statement.with_write(op, &on, |w| {
        let mut done = Done::default();
        let result = perform(engine, op, namespace, w, &mut done);
        *outcome = done.into();
        result
    })
}

/// Runs the statements of a command.
pub(crate) fn run_statements<S: Statement>(
    engine: &Database,
    op: &Arc<OpContext>,
    namespace: &str,
    statements: &mut dyn Iterator<Item = Result<S>>,
    ordered: bool,
) -> BulkOutcome {
    let ordered = op.ordered(ordered);
    let mut batch = Batch::new(engine, op, namespace, ordered);
    let mut statements = statements.enumerate();
    for (i, s) in statements.by_ref() {
        if let Some(retry) = op.retry() {
            if let Some(done) = retry.executed(i) {
                batch.out.note(i, Ok(done), ordered);
                continue;
            }
            retry.runs(i);
        }
        let watch = Watch::start(op, &batch.out);
        let run = |s: S| {
            let on = Target::new(engine, namespace)?;
            s.with_write(op, &on, |w| Ok(batch.run(i, w, &on)))
        };
        let go_on = match s.and_then(run) {
            Ok(go_on) => go_on,
            // The statement could not be parsed.
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
        // An unordered command reports an error for each statement that was not carried out, so the
        // rest fail with the error that ended the loop.
        let last = batch.out.errors.last().map(|e| e.error.clone());
        let failure = batch.failure.take().or(last);
        if let Some(error) = failure {
            for (index, _) in statements {
                batch.out.fail(index, &error);
            }
        }
    }
    batch.finish()
}

/// Statements that share write units: those that name one document by `_id` are staged together
/// and committed in slices, which costs a fraction of a commit each. Any other statement runs by
/// itself, after those that are staged.
struct Batch<'e> {
    engine: &'e Database,
    op: &'e Arc<OpContext>,
    namespace: &'e str,
    set: Option<Shared<'e>>,
    staged: usize,
    out: BulkOutcome,
    ordered: bool,
    failed: bool,
    /// The error of the commit that failed, if one did.
    failure: Option<Error>,
}

/// The write unit that the staged statements share, and what belongs to it.
struct Shared<'e> {
    slices: Slices<'e, Outcomes>,
    collection: Arc<Collection>,
    checks: Option<Checks<'e>>,
}

/// Places of statements in the command, each with what its statement did.
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

/// The most statements that are committed together.
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

    /// Runs one statement, or stages it, and then its result is booked with the commit. Returns
    /// true if the loop goes on.
    fn run(&mut self, index: usize, write: &Write<'_>, on: &Target<'_>) -> bool {
        let ordered = self.ordered;
        // The name stands for another collection by now. The staged statements belong to the old
        // one and are committed before this statement goes to the new one.
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
                    true => self.not_tried(index),
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
        let result = perform(engine, op, self.namespace, write, &mut done);
        self.out.note_partial(index, done.into(), result, ordered)
    }

    /// Books the error of a failed commit with the statement that ran into it, which is not stored;
    /// the loop then ends. If the commit held no statement at all, no other statement would report
    /// the error.
    fn not_tried(&mut self, index: usize) -> bool {
        if let Some(error) = self.failure.clone() {
            self.out.fail(index, &error);
        }
        false
    }

    /// Stages a statement on one `_id`. Returns false if the statement is of another kind or has to
    /// insert; the caller then runs it by itself.
    fn stage(&mut self, index: usize, write: &Write<'_>, on: &Target<'_>) -> Result<bool> {
        if write.hint.is_some()
            || write.filter.id_equality().is_none()
            || self.op.observed()
            || self.namespace == VERSION_COLLECTION
        {
            return Ok(false);
        }
        if self.set.is_none() {
            // If the collection was dropped meanwhile, writing to it reports that.
            let Some(collection) = on.collection().cloned() else {
                return Ok(false);
            };
            if !collection.finds_by_id() {
                return Ok(false);
            }
            self.set = Some(Shared {
                checks: checks(
                    self.engine,
                    self.op,
                    &collection,
                    write.bypasses_validation(),
                )?,
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
            // The collection was dropped meanwhile. The statement acts as if it had never been
            // there.
            Err(e) if e.code() == Code::NamespaceNotFound && !slices.has_failed() => Ok(false),
            other => other.map(|()| !inserts),
        }
    }

    /// Commits the staged statements and books their results.
    fn flush(&mut self) {
        self.flush_with(None);
    }

    /// The same, for the case that a commit has already failed with `failed`.
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
            for index in lost.iter().take(told) {
                self.out.fail(*index, &error);
            }
            self.failed = true;
            self.failure = Some(error);
        }
    }

    /// Commits what is still staged and returns the result.
    fn finish(mut self) -> BulkOutcome {
        self.flush();
        self.out.errors.sort_by_key(|e| e.index);
        if self.ordered {
            // The staged statements before a failed one may have failed too, with their commit. An
            // ordered command reports its first error only.
            self.out.errors.truncate(1);
        }
        if let Some(first) = self.out.errors.first() {
            self.op.note_failure(&first.error);
        }
        self.out.upserted.sort_by_key(|(i, _)| *i);
        self.out
    }
}
