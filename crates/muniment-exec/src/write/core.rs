//! What updates, deletes and findAndModify share: find on a snapshot, lock, read again, match
//! again, change, stage, commit.

use super::bulk::StatementOutcome;
use super::retry::{Retry, Statements};
use super::slices::{Slices, Tally};
use super::validator::{Log, Validator, Validators};
use super::version::VERSION_COLLECTION;
use crate::database::Database;
use crate::explain::{nothing_wrote, wrote};
use crate::find::{Hint, natural_hint};
use crate::operation::OpContext;
use crate::plan::candidate::{Query, candidates, natural};
use crate::plan::choose::{Asked, Choice, choose};
use crate::plan::express::{self, LookUp, Verb};
use crate::plan::shape::shape;
use crate::plan::text::{bind_text, refuse_text};
use crate::run::Row;
use crate::run::exec::Recipe;
use crate::run::scan::matches;
use bytes::Bytes;
use muniment_query::filter::{Node, Pred};
use muniment_query::{Filter, Interrupt, MatchInfo, MetaSet, QueryContext, SortSpec, Update};
use muniment_storage::{Changed, Collection, CollectionOptions, CommitId, Staged, WriteUnit};
use muniment_value::{Code, Doc, DocBuf, Error, Result, ValueBuf, cmp_values};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Rows that a statement over many documents locks together at most.
const ROWS_AT_ONCE: usize = 128;

/// How often an upsert that lost a race against another insert is tried again.
const UPSERT_ATTEMPTS: usize = 10;

/// The same, where only a document that comes and goes at each attempt, or a collection that does, can
/// make it fail again. (Or a filter that compares texts in another way than the index, hence a limit.)
const RIVAL_ATTEMPTS: usize = 100;

/// What is done to a matching document.
#[derive(Clone, Copy)]
pub(crate) enum Change<'u> {
    /// Updated.
    Update {
        /// How.
        update: &'u Update,
        /// Inserted when nothing matches.
        upsert: bool,
        /// The collection's validator is not asked.
        bypass_validation: bool,
    },
    /// Deleted.
    Delete,
}

/// One write statement, parsed.
#[derive(Clone)]
pub(crate) struct Write<'w> {
    pub filter: Filter,
    /// The filter as it was written, if somebody wrote it.
    pub source: Option<Doc<'w>>,
    pub sort: Option<(SortSpec, DocBuf)>,
    pub natural: Option<bool>,
    pub hint: Option<Hint<'w>>,
    pub multi: bool,
    pub change: Change<'w>,
    /// What the sort and the projection ask for.
    pub metadata: MetaSet,
    /// The document is returned by a projection.
    pub returns_fields: bool,
}

/// What a write statement did.
#[derive(Default)]
pub(crate) struct Done {
    pub matched: u64,
    pub modified: u64,
    /// The last matched document as it was.
    pub old: Option<Bytes>,
    /// And as it is now; of an upsert the new document.
    pub new: Option<Bytes>,
    pub info: MatchInfo,
    /// The metadata of that document, as they stand behind it.
    pub metadata: Vec<u8>,
    pub upserted: Option<ValueBuf>,
    pub commit: Option<CommitId>,
}

impl Tally for Done {
    fn add(&mut self, later: Done) {
        let (matched, modified) = (self.matched, self.modified);
        if later.matched > 0 || later.upserted.is_some() {
            let metadata = std::mem::take(&mut self.metadata);
            *self = later;
            if self.metadata.is_empty() {
                self.metadata = metadata;
            }
            self.matched += matched;
            self.modified += modified;
        }
    }

    fn statements(&self, retry: &Retry) -> Vec<Statements> {
        retry.of_done(self)
    }
}

impl From<Done> for StatementOutcome {
    fn from(done: Done) -> StatementOutcome {
        StatementOutcome {
            matched: done.matched,
            modified: done.modified,
            upserted: done.upserted,
            commit: done.commit,
        }
    }
}

impl<'w> Write<'w> {
    /// Parses the parts that all writes have.
    pub(crate) fn new(
        ctx: &QueryContext,
        source: Doc<'w>,
        sort: Doc<'_>,
        hint: Option<Hint<'w>>,
        multi: bool,
        change: Change<'w>,
    ) -> Result<Write<'w>> {
        let natural = natural(sort);
        let filter = Filter::parse_query(source, ctx)?;
        let behind;
        let ctx = if filter.metadata().is_empty() {
            ctx
        } else {
            behind = ctx.clone().with_metadata(filter.metadata());
            &behind
        };
        // One document at most: MongoDB does not even look at the order then.
        let one = filter.id_equality().is_some();
        let sort = if sort.is_empty() || natural.is_some() || one {
            None
        } else {
            Some((SortSpec::parse(sort, ctx)?, sort.to_buf()))
        };
        Ok(Write {
            filter,
            source: Some(source),
            sort,
            natural,
            hint,
            multi,
            change,
            metadata: ctx.metadata.asked(),
            returns_fields: false,
        })
    }

    /// True when the collection's validator is not to be asked.
    pub(super) fn bypasses_validation(&self) -> bool {
        match &self.change {
            Change::Update {
                bypass_validation, ..
            } => *bypass_validation,
            Change::Delete => true,
        }
    }

    /// True when nothing that matches means an insert.
    pub(super) fn upserts(&self) -> bool {
        matches!(&self.change, Change::Update { upsert: true, .. })
    }

    /// How the document is looked up by its `_id`, without a plan.
    fn look_up_summary(&self, collection: &Collection) -> &'static str {
        let write = match &self.change {
            Change::Update { .. } => Verb::Update,
            Change::Delete => Verb::Delete,
        };
        express::summary(collection, self.is_express(), Some(write))
    }

    /// True when a look-up by `_id` is all that the write needs.
    fn is_express(&self) -> bool {
        !self.upserts() && !self.needs_info() && !self.returns_fields && self.metadata.is_empty()
    }

    fn needs_info(&self) -> bool {
        matches!(&self.change, Change::Update { update, .. } if update.needs_match_info())
    }
}

/// Books what finding one document by its `_id` looks at.
pub(super) fn note_found(op: &OpContext, keyed_by_id: bool) {
    let keys = u64::from(!keyed_by_id);
    op.counters.keys_examined.fetch_add(keys, Relaxed);
    op.counters.docs_examined.fetch_add(1, Relaxed);
}

/// The `let` variables with a pipeline update's constants.
pub(crate) fn with_constants(let_: Doc<'_>, constants: Doc<'_>) -> DocBuf {
    // The first of a name counts: a constant hides a variable.
    let mut all = constants.to_buf();
    all.append_all(let_);
    all
}

/// A collection's validator with what checks it.
pub(super) struct Checks<'e>(pub &'e Validators, pub Arc<Validator>);

impl Database {
    /// Who is told of documents that are not valid where `validationAction` says so: the
    /// namespace and `{failingDocumentId, details}`.
    pub fn on_validation_failure(&self, log: Log) {
        self.validators.on_failure(log);
    }

    /// The validator that a write has to satisfy.
    pub(super) fn checks(
        &self,
        collection: &Collection,
        bypass: bool,
    ) -> Result<Option<Checks<'_>>> {
        let validator = self.validators.of(collection, bypass)?;
        Ok(validator.map(|v| Checks(&self.validators, v)))
    }

    /// The collection, created when it is not there: once, whoever comes first.
    pub(crate) fn collection_or_create(
        &self,
        op: &OpContext,
        namespace: &str,
    ) -> Result<Arc<Collection>> {
        loop {
            if let Some(c) = op.collection(&self.store, namespace)? {
                return Ok(c);
            }
            check_new_namespace(namespace)?;
            self.refuse_rendered(namespace)?;
            match self.create_collection(namespace, CollectionOptions::default(), op) {
                // Another was first, and a third may have dropped it again.
                Err(e) if e.code() == Code::NamespaceExists => op.check()?,
                other => return other,
            }
        }
    }

    /// Runs one write statement. Upserts that lose a race are matched again. `done` is told what
    /// was stored, also when it fails.
    ///
    /// # Errors
    /// The statement's own; what it changed before stays changed.
    pub(crate) fn write(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        write: &Write<'_>,
        done: &mut Done,
    ) -> Result<()> {
        if namespace == VERSION_COLLECTION {
            self.check_version(write)?;
        }
        let mut attempt = 1;
        loop {
            match op.collection(&self.store, namespace)? {
                Some(c) => match self.write_bound(op, &c, write, done) {
                    // Dropped under our hands: as if it had not been there, unless another took
                    // its place or a part is done.
                    Err(e) if e.code() == Code::NamespaceNotFound && done.matched == 0 => {
                        if self.store.collection(namespace).is_some() {
                            op.check()?;
                            continue;
                        }
                    }
                    // Nothing is changed: with a new plan.
                    Err(e)
                        if e.code() == Code::QueryPlanKilled
                            && done.matched == 0
                            && attempt < UPSERT_ATTEMPTS =>
                    {
                        op.check()?;
                        attempt += 1;
                        continue;
                    }
                    other => other.map_err(|e| killed_by_drop(namespace, e))?,
                },
                None => {
                    op.set_point_plan("EOF");
                    op.set_exec_stats(|| nothing_wrote(&write.change));
                    self.refuse_rendered(namespace)?;
                    refuse_text(namespace, &write.filter)?;
                }
            }
            let Change::Update {
                update,
                upsert: true,
                bypass_validation,
            } = &write.change
            else {
                return Ok(());
            };
            if done.matched > 0 {
                return Ok(());
            }
            let collection = self.collection_or_create(op, namespace)?;
            let upserted = self.upsert(op, &collection, write, update, *bypass_validation);
            match upserted.map_err(Error::while_executing) {
                Ok((id, doc, commit)) => {
                    op.counters.written.fetch_add(1, Relaxed);
                    op.counters.upserted.fetch_add(1, Relaxed);
                    done.upserted = Some(id);
                    done.new = Some(doc);
                    done.commit = commit;
                    return Ok(());
                }
                Err(e) if e.code() == Code::DuplicateKey => {
                    let most = match asks_for_rival(&write.filter, &e) {
                        true => RIVAL_ATTEMPTS,
                        false => UPSERT_ATTEMPTS,
                    };
                    // One that asks for the rival finds it next time, unless that has gone again.
                    let again =
                        most == RIVAL_ATTEMPTS || self.anything_matches(op, &collection, write);
                    if attempt >= most || !again {
                        return Err(e);
                    }
                    op.check()?;
                    attempt += 1;
                }
                Err(e) if e.code() == Code::NamespaceNotFound && attempt < RIVAL_ATTEMPTS => {
                    op.check()?;
                    attempt += 1;
                }
                // Tried often enough: it was dropped each time.
                Err(e) => return Err(killed_by_drop(namespace, e)),
            }
        }
    }

    /// Whether an upsert that met a duplicate finds something now; true as well if the collection or
    /// the plan's index has gone meanwhile, which the next attempt will see.
    fn anything_matches(
        &self,
        op: &Arc<OpContext>,
        collection: &Arc<Collection>,
        write: &Write<'_>,
    ) -> bool {
        let plan = self.plan_write(op, collection, write, false);
        match plan.and_then(|mut choice| choice.exec.next_row(op)) {
            Ok(row) => row.is_some(),
            Err(e) => matches!(e.code(), Code::QueryPlanKilled | Code::NamespaceNotFound),
        }
    }

    fn upsert(
        &self,
        op: &OpContext,
        collection: &Arc<Collection>,
        write: &Write<'_>,
        update: &Update,
        bypass: bool,
    ) -> Result<(ValueBuf, Bytes, Option<CommitId>)> {
        let mut out = Vec::new();
        update.upsert(&write.filter, &mut out)?;
        let new = Bytes::from(super::insert::prepare(Doc::new(&out), true)?.into_owned());
        if let Some(v) = self.validators.of(collection, bypass)? {
            self.validators.check(&v, None, &new)?;
        }
        let id = Doc::new(&new)
            .get("_id")
            .map(ValueBuf::new)
            .ok_or_else(|| Error::internal("an upserted document has no _id"))?;
        let mut slices = Slices::<Done>::new(&self.store, op, collection);
        slices.change(|unit| {
            Ok(unit.insert(&new)?.map(|()| Done {
                upserted: Some(id.clone()),
                new: Some(new.clone()),
                ..Done::default()
            }))
        })?;
        slices.commit()?;
        Ok((id, new, slices.into_stored().1))
    }

    /// The plan that finds a write's documents.
    pub(crate) fn plan_write(
        &self,
        op: &Arc<OpContext>,
        collection: &Arc<Collection>,
        write: &Write<'_>,
        explain: bool,
    ) -> Result<Choice> {
        let filter = bind_text(collection, &write.filter)?;
        let natural = write.natural.map(natural_hint);
        let hint = match &natural {
            Some(n) => Some(Hint::Pattern(n.as_doc())),
            None => write.hint,
        };
        let sort = write.sort.clone();
        let source = sort.as_ref().map_or_else(DocBuf::new, |(_, d)| d.clone());
        let query = Query {
            sort: write.sort.as_ref().map(|(s, _)| s),
            hint,
            allowed: self
                .index_filters
                .of(collection, &filter, source.as_doc(), Doc::EMPTY),
            look_up: LookUp {
                express: write.is_express(),
                ..LookUp::default()
            },
            ..Query::of(&filter)
        };
        let candidates = candidates(collection, &query)?;
        let recipe = Recipe {
            sort,
            want_info: write.needs_info(),
            metadata: write.metadata,
            ..self.recipe(collection, &filter)
        };
        choose(
            &self.plans,
            op,
            &recipe,
            candidates,
            || Asked {
                shape: shape(&write.filter, source.as_doc(), Doc::EMPTY),
                filter: write.source,
            },
            explain,
        )
    }

    /// With a `$text` in the terms of the collection's index: documents that changed are matched
    /// again.
    fn write_bound(
        &self,
        op: &Arc<OpContext>,
        collection: &Arc<Collection>,
        write: &Write<'_>,
        done: &mut Done,
    ) -> Result<()> {
        let mut slices = Slices::new(&self.store, op, collection);
        let result = if write.filter.has_text() {
            let bound = Write {
                filter: bind_text(collection, &write.filter)?,
                ..write.clone()
            };
            self.write_matching(op, collection, &bound, &mut slices)
        } else {
            self.write_matching(op, collection, write, &mut slices)
        };
        // What came before an error stays, as in MongoDB.
        let rest = match slices.has_failed() {
            true => Ok(()),
            false => slices.commit().map_err(Error::while_executing),
        };
        let (stored, commit) = slices.into_stored();
        op.counters.matched.fetch_add(stored.matched, Relaxed);
        op.counters.written.fetch_add(stored.modified, Relaxed);
        done.add(stored);
        done.commit = commit.or(done.commit);
        result.and(rest)
    }

    fn write_matching<'e>(
        &'e self,
        op: &'e Arc<OpContext>,
        collection: &Arc<Collection>,
        write: &Write<'_>,
        slices: &mut Slices<'e, Done>,
    ) -> Result<()> {
        let validator = self.checks(collection, write.bypasses_validation())?;
        let validator = validator.as_ref();
        if let Some(id) = write.filter.id_equality_by(collection.collation())
            && write.hint.is_none()
            && collection.finds_by_id()
        {
            op.set_point_plan(write.look_up_summary(collection));
            let changed = slices.change_by_id(id.as_value(), |unit, found| match found {
                Some((key, old)) => {
                    let info = MatchInfo::default();
                    let staged = change(unit, write, validator, &key, old, info);
                    // Once, however often it has to be tried.
                    if !matches!(staged, Ok(Err(_))) {
                        note_found(op, collection.is_keyed_by_id());
                    }
                    staged
                }
                None => Ok(Ok(Done::default())),
            });
            op.set_exec_stats(|| {
                let (stored, staged) = (slices.stored(), slices.pending());
                let modified = stored.modified + staged.modified;
                express::ran(
                    write.look_up_summary(collection),
                    collection.is_keyed_by_id(),
                    stored.matched + staged.matched,
                    Some((&write.change, modified)),
                )
            });
            return changed.map_err(Error::while_executing);
        }
        // A match that changed before it was locked says nothing of others, which may have come to
        // match since: one that is there all the time must be found.
        loop {
            let (matched, lost) = self.write_found(op, collection, write, validator, slices)?;
            if write.multi || matched || !lost {
                return Ok(());
            }
            op.check()?;
            std::thread::yield_now();
        }
    }

    /// Changes what a new snapshot holds that matches, of which all or the first. Returns whether
    /// any did, and whether some of it did not match any more once it was locked.
    fn write_found<'e>(
        &'e self,
        op: &'e Arc<OpContext>,
        collection: &Arc<Collection>,
        write: &Write<'_>,
        validator: Option<&Checks<'_>>,
        slices: &mut Slices<'e, Done>,
    ) -> Result<(bool, bool)> {
        let mut exec = self.plan_write(op, collection, write, false)?.exec;
        exec.announce_below(op);
        // No latch is held while the plan looks for more: rows are taken in batches first.
        let batch = if write.multi { ROWS_AT_ONCE } else { 1 };
        let mut rows = Vec::with_capacity(batch);
        let (mut more, mut found, mut lost) = (true, false, false);
        while more && (write.multi || !found) {
            while rows.len() < batch && more {
                match exec.next_row(op).map_err(Error::while_executing)? {
                    Some(row) => rows.push(row),
                    None => more = false,
                }
            }
            for row in rows.drain(..) {
                let written = self.write_row(write, validator, row, slices);
                match written.map_err(Error::while_executing)? {
                    true => found = true,
                    false => lost = true,
                }
            }
            slices.commit().map_err(Error::while_executing)?;
        }
        op.set_exec_stats(|| {
            let done = slices.stored();
            wrote(&exec, &write.change, done.matched, done.modified)
        });
        Ok((found, lost))
    }

    /// Locks, reads again, matches again and changes one row; false if it does not match any
    /// more.
    fn write_row(
        &self,
        write: &Write<'_>,
        validator: Option<&Checks<'_>>,
        row: Row,
        slices: &mut Slices<'_, Done>,
    ) -> Result<bool> {
        let want_info = write.needs_info();
        let found = Doc::new(&row.doc);
        let mut matched = false;
        let key = &row.record_key;
        slices.change_record(key, |unit, old| {
            matched = false;
            let Some(old) = old else {
                return Ok(Ok(Done::default()));
            };
            let info = if *old == *found.as_bytes() {
                Some(row.info)
            } else {
                // It changed since the snapshot: does it still match?
                matches(&write.filter, &old, want_info)?
            };
            let Some(info) = info else {
                return Ok(Ok(Done::default()));
            };
            matched = true;
            let staged = change(unit, write, validator, key, old, info)?;
            Ok(staged.map(|mut done| {
                done.metadata = found.behind().to_vec();
                done
            }))
        })?;
        Ok(matched)
    }
}

/// Changes one locked document that matches.
pub(super) fn change(
    unit: &mut WriteUnit<'_>,
    write: &Write<'_>,
    validator: Option<&Checks<'_>>,
    key: &[u8],
    old: Bytes,
    info: MatchInfo,
) -> Staged<Done> {
    let mut done = Done {
        matched: 1,
        info,
        ..Done::default()
    };
    match &write.change {
        Change::Delete => {
            if let Err(busy) = unit.delete(key, &old)? {
                return Ok(Err(busy));
            }
            done.modified = 1;
        }
        Change::Update { update, .. } => {
            let mut out = Vec::with_capacity(old.len() + 64);
            if update.apply(Doc::new(&old), info, &mut out)? {
                if let Some(v) = validator {
                    v.0.check(&v.1, Some(&old), &out)?;
                }
                let touched = |path: &str| update.may_touch(path);
                let new = Bytes::from(out);
                let below = |field: &[&[u8]]| update.changes_below(field);
                let how = match (update.is_replacement(), update.is_pipeline()) {
                    (true, _) => Changed::Whole,
                    (_, true) => Changed::Shorter,
                    _ => Changed::Fields(&below),
                };
                if let Err(busy) = unit.update(key, &old, &new, how, &touched)? {
                    return Ok(Err(busy));
                }
                done.modified = 1;
                done.new = Some(new);
            } else {
                done.new = Some(old.clone());
            }
        }
    }
    done.old = Some(old);
    Ok(Ok(done))
}

/// The error of a write whose collection was dropped meanwhile: 175 instead of 26, since it was
/// there when the write began.
pub(super) fn killed_by_drop(namespace: &str, e: Error) -> Error {
    if e.code() != Code::NamespaceNotFound {
        return e;
    }
    Error::new(
        Code::QueryPlanKilled,
        format!("collection dropped: {namespace}"),
    )
}

/// True if a filter asks by equality for exactly what a duplicate key error names: the document came
/// when the filter had looked, and it may be deleted again already. MongoDB tries an upsert again in
/// this case alone.
fn asks_for_rival(filter: &Filter, duplicate: &Error) -> bool {
    let extra = duplicate.extra().as_doc();
    let Some(key) = extra.get_doc("keyValue") else {
        return false;
    };
    // What is equal by the index need not be by the query.
    let by_query = filter.collation().spec();
    let by_index = extra.get_doc("collation");
    if by_query.map(|c| c.as_bytes()) != by_index.map(|c| c.as_bytes()) {
        return false;
    }
    let conditions = match filter.root() {
        Node::And(conditions) => conditions.as_slice(),
        one => std::slice::from_ref(one),
    };
    let named = |condition: &Node| match condition {
        Node::Field {
            path,
            pred: Pred::Eq(wanted),
        } => key
            .iter()
            .any(|e| e.name() == path.as_str() && cmp_values(e.value(), wanted.as_value()).is_eq()),
        _ => false,
    };
    conditions.len() == key.iter().count() && conditions.iter().all(named)
}

/// The rules for the name of a collection that a write creates.
pub(crate) fn check_new_namespace(namespace: &str) -> Result<()> {
    let invalid = || {
        Error::new(
            Code::InvalidNamespace,
            format!("Invalid namespace specified '{namespace}'"),
        )
    };
    let (db, name) = namespace.split_once('.').ok_or_else(invalid)?;
    let bad_db = db.is_empty() || db.len() >= 64 || db.contains(['/', '\\', ' ', '"', '$', '\0']);
    let bad_name = name.is_empty()
        || name.starts_with('.')
        || name.ends_with('.')
        || name.contains(['$', '\0'])
        || namespace.len() > 255;
    if bad_db || bad_name {
        return Err(invalid());
    }
    if name.starts_with("system.")
        && !matches!(
            name,
            "system.js" | "system.users" | "system.roles" | "system.version"
        )
    {
        return Err(Error::new(
            Code::InvalidNamespace,
            format!("cannot write to '{namespace}'"),
        ));
    }
    Ok(())
}

/// True for a filter that matches everything.
pub(crate) fn is_everything(filter: &Filter) -> bool {
    matches!(filter.root(), Node::True)
}
