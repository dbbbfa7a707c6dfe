//! The part that updates, deletes and findAndModify share: find on a snapshot, lock, read again,
//! match again, change, stage, commit.

use super::document::prepare;
use super::slices::{Slices, Tally};
use super::validator::{Log, Validator, Validators};
use super::version::VERSION_COLLECTION;
use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::hint::{Hint, natural_hint};
use crate::plan::query::LookUp;
use crate::plan::query::Query;
use crate::plan::query::Told;
use crate::plan::shape::shape;
use crate::plan::text::{bind_text, refuse_text};
use crate::run::Row;
use crate::run::choose::{Asked, Choice};
use crate::run::recipe::Recipe;
use crate::run::scan::matches;
use crate::source::Source;
use crate::verbs::create::create_collection;
use crate::verbs::explain::ran::looked_up;
use crate::verbs::explain::ran::nothing_wrote;
use crate::verbs::explain::ran::wrote;
use crate::verbs::planning::{plan, query};
use crate::verbs::write::change::Change;
use crate::verbs::write::change::Done;
use crate::verbs::write::change::Write;
use crate::verbs::write::version::check_version;
use bytes::Bytes;
use muniment_query::filter::{Node, Pred};
use muniment_query::{Filter, Interrupt, MatchInfo, Update};
use muniment_storage::{Busy, Changed, Collection, CollectionOptions, Staged, WriteUnit};
use muniment_value::{Code, Doc, DocBuf, Error, Result, ValueBuf, cmp_values};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The most rows that a statement over many documents collects before it changes them, and their
/// bytes. The row that exceeds the bytes is still taken.
const ROWS_AT_ONCE: usize = 128;
const BYTES_AT_ONCE: usize = 1 << 20;

/// How often an upsert that lost a race against another insert is tried again.
const UPSERT_ATTEMPTS: usize = 10;

/// How often an upsert is tried again whose filter asks for exactly the key that the duplicate has.
/// It can fail again only if a document or the collection is created and deleted at each attempt.
/// There is a limit all the same, because the filter may compare strings in another way than the
/// index does.
const RIVAL_ATTEMPTS: usize = 100;

/// Counts the key and the document that a look-up by `_id` reads.
pub(super) fn note_found(op: &OpContext, keyed_by_id: bool) {
    let keys = u64::from(!keyed_by_id);
    op.counters.keys_examined.fetch_add(keys, Relaxed);
    op.counters.docs_examined.fetch_add(1, Relaxed);
}

/// A collection's validator together with the registry that applies it.
pub(super) struct Checks<'e>(pub &'e Validators, pub Arc<Validator>);

/// Implements [`Database::on_validation_failure`].
pub(crate) fn on_validation_failure(engine: &Database, log: Log) {
    engine.validators.on_failure(log);
}

/// The validator that a write has to satisfy, if any.
pub(super) fn checks<'e>(
    engine: &'e Database,
    op: &Arc<OpContext>,
    collection: &Collection,
    bypass: bool,
) -> Result<Option<Checks<'e>>> {
    let validator = engine.validators.of(op, collection, bypass)?;
    Ok(validator.map(|v| Checks(&engine.validators, v)))
}

/// The collection, created if it does not exist. If several writers come at the same time, one of
/// them creates it and all use it.
pub(crate) fn collection_or_create(
    engine: &Database,
    op: &OpContext,
    namespace: &str,
) -> Result<Arc<Collection>> {
    loop {
        let source = match Source::resolve(&engine.store, op, namespace)? {
            Source::Collection(collection) => return Ok(collection),
            other => other,
        };
        check_new_namespace(namespace)?;
        source.refuse_write(namespace)?;
        match create_collection(engine, namespace, CollectionOptions::default(), op) {
            // Another writer created it first, and a third one may have dropped it again.
            Err(e) if e.code() == Code::NamespaceExists => op.check()?,
            other => return other,
        }
    }
}

/// Runs one write statement. An upsert that loses a race is matched again. `done` receives what was
/// stored, even if the statement fails.
///
/// # Errors
/// The statement's own errors; what it changed before the error stays changed.
pub(crate) fn perform(
    engine: &Database,
    op: &Arc<OpContext>,
    namespace: &str,
    write: &Write<'_>,
    done: &mut Done,
) -> Result<()> {
    if namespace == VERSION_COLLECTION {
        check_version(&engine.store, op, write)?;
    }
    let filter = write.source.map_or(0, |source| source.byte_len());
    op.make_room_for_command(&engine.memory, filter)?;
    let mut attempt = 1;
    loop {
        match Source::resolve(&engine.store, op, namespace)? {
            Source::Collection(c) => match write_bound(engine, op, &c, write, done) {
                // The collection was dropped meanwhile. The statement acts as if it had not been
                // there, unless another took its place or a part of the statement is done.
                Err(e) if e.code() == Code::NamespaceNotFound && done.matched == 0 => {
                    if engine.store.collection(namespace).is_some() {
                        op.check()?;
                        continue;
                    }
                }
                // Nothing was changed yet, so the statement is run again with a new plan.
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
            other => {
                op.set_point_plan("EOF");
                op.set_exec_stats(|| nothing_wrote(&write.change));
                other.refuse_write(namespace)?;
                refuse_text(namespace, &write.filter)?;
            }
        }
        let Some(update) = to_upsert(write, done) else {
            return Ok(());
        };
        let collection = collection_or_create(engine, op, namespace)?;
        let upserted = upsert(engine, op, &collection, write, update, done);
        match upserted.map_err(Error::while_executing) {
            Ok(()) => return Ok(()),
            Err(e) if may_try_again(engine, op, &collection, write, &e, attempt) => {
                op.check()?;
                attempt += 1;
            }
            // The collection may have been dropped at each of these attempts.
            Err(e) => return Err(killed_by_drop(namespace, e)),
        }
    }
}

/// The update of a statement that has to insert a document, since it is an upsert and has matched
/// nothing.
fn to_upsert<'w>(write: &'w Write<'_>, done: &Done) -> Option<&'w Update> {
    match &write.change {
        Change::Update {
            update,
            upsert: true,
            ..
        } if done.matched == 0 => Some(update),
        _ => None,
    }
}

/// True if an upsert that failed at this attempt is tried again. A filter that asks for the rival
/// document finds it in the next attempt, unless that is gone again. Any other is tried again only
/// if it matches something.
fn may_try_again(
    engine: &Database,
    op: &Arc<OpContext>,
    collection: &Arc<Collection>,
    write: &Write<'_>,
    error: &Error,
    attempt: usize,
) -> bool {
    match error.code() {
        Code::DuplicateKey if asks_for_rival(&write.filter, error) => attempt < RIVAL_ATTEMPTS,
        Code::DuplicateKey => {
            attempt < UPSERT_ATTEMPTS && anything_matches(engine, op, collection, write)
        }
        Code::NamespaceNotFound => attempt < RIVAL_ATTEMPTS,
        _ => false,
    }
}

/// True if an upsert that met a duplicate would find something now. Also true if the collection or
/// the plan's index has gone meanwhile: the next attempt reports that.
fn anything_matches(
    engine: &Database,
    op: &Arc<OpContext>,
    collection: &Arc<Collection>,
    write: &Write<'_>,
) -> bool {
    let plan = plan_write(engine, op, collection, write, false);
    match plan.and_then(|mut choice| choice.exec.next_row(op)) {
        Ok(row) => row.is_some(),
        Err(e) => matches!(e.code(), Code::QueryPlanKilled | Code::NamespaceNotFound),
    }
}

fn upsert(
    engine: &Database,
    op: &Arc<OpContext>,
    collection: &Arc<Collection>,
    write: &Write<'_>,
    update: &Update,
    done: &mut Done,
) -> Result<()> {
    let mut out = Vec::new();
    update.upsert(&write.filter, &mut out, op.work())?;
    // Empty timestamps are not filled in here: for a replacement that has been done already, and no
    // other update does it.
    let new = Bytes::from(prepare(Doc::new(&out), false)?.into_owned());
    if let Some(v) = engine
        .validators
        .of(op, collection, write.bypasses_validation())?
    {
        engine.validators.check(&v, None, &new, op.work())?;
    }
    let id = Doc::new(&new)
        .get("_id")
        .map(ValueBuf::new)
        .ok_or_else(|| Error::internal("an upserted document has no _id"))?;
    let mut slices = Slices::<Done>::new(&engine.store, op, collection);
    slices.change(|unit| {
        Ok(unit.insert(&new)?.map(|()| Done {
            upserted: Some(id.clone()),
            new: Some(new.clone()),
            ..Done::default()
        }))
    })?;
    slices.commit()?;
    op.counters.written.fetch_add(1, Relaxed);
    op.counters.upserted.fetch_add(1, Relaxed);
    done.upserted = Some(id);
    done.new = Some(new);
    done.commit = slices.into_stored().1;
    Ok(())
}

/// The plan that finds the documents of a write.
pub(crate) fn plan_write(
    engine: &Database,
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
    let told = Told::sorted(source.as_doc());
    let query = Query {
        sort: write.sort.as_ref().map(|(s, _)| s),
        hint,
        look_up: LookUp {
            express: write.is_express(),
            ..LookUp::default()
        },
        ..query(engine, collection, &filter, told)
    };
    let recipe = Recipe {
        sort,
        want_info: write.needs_info(),
        metadata: write.metadata,
        ..engine.recipe(collection, &filter)
    };
    plan(
        engine,
        op,
        &query,
        &recipe,
        || Asked {
            shape: shape(&write.filter, source.as_doc(), Doc::EMPTY),
            filter: write.source,
        },
        explain,
    )
}

/// Runs the statement on one collection and commits. A `$text` in the filter is bound to the
/// collection's index first, because documents that changed since the snapshot are matched again.
fn write_bound(
    engine: &Database,
    op: &Arc<OpContext>,
    collection: &Arc<Collection>,
    write: &Write<'_>,
    done: &mut Done,
) -> Result<()> {
    let mut slices = Slices::new(&engine.store, op, collection);
    // Ranges that went after a part of it is done would be done twice, or not at all.
    let _still = match write.multi && op.is_of_router() && op.transaction().is_none() {
        true => Some(engine.store.keep_still(collection, &**op)?),
        false => None,
    };
    if write.turn.is_some() {
        slices = slices.only_try();
    }
    let result = if write.filter.has_text() {
        let bound = Write {
            filter: bind_text(collection, &write.filter)?,
            ..write.clone()
        };
        write_matching(engine, op, collection, &bound, &mut slices)
    } else {
        write_matching(engine, op, collection, write, &mut slices)
    };
    // Changes made before an error stay, as in MongoDB, so they are committed.
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
    engine: &'e Database,
    op: &'e Arc<OpContext>,
    collection: &Arc<Collection>,
    write: &Write<'_>,
    slices: &mut Slices<'e, Done>,
) -> Result<()> {
    let validator = checks(engine, op, collection, write.bypasses_validation())?;
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
                // The look-up is counted once, however often the change has to be tried again.
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
            looked_up(
                write.look_up_summary(collection),
                collection.is_keyed_by_id(),
                stored.matched + staged.matched,
                Some((&write.change, modified)),
            )
        });
        return changed.map_err(Error::while_executing);
    }
    // If the only match changed before it was locked, another document may match by now, so the
    // search begins again: when some document matches at every moment, one must be found.
    loop {
        let (matched, lost) = write_found(engine, op, collection, write, validator, slices)?;
        if write.multi || matched || !lost {
            return Ok(());
        }
        op.check()?;
        std::thread::yield_now();
    }
}

/// Changes the documents of a new snapshot that match: all of them, or the first. Returns whether
/// any was changed, and whether any no longer matched when it was locked.
fn write_found<'e>(
    engine: &'e Database,
    op: &'e Arc<OpContext>,
    collection: &Arc<Collection>,
    write: &Write<'_>,
    validator: Option<&Checks<'_>>,
    slices: &mut Slices<'e, Done>,
) -> Result<(bool, bool)> {
    let mut exec = plan_write(engine, op, collection, write, false)?.exec;
    exec.announce_below(op);
    // Rows are collected in batches before any is locked, so that no latch is held while the plan
    // looks for more.
    let batch = if write.multi { ROWS_AT_ONCE } else { 1 };
    let mut rows = Vec::with_capacity(batch);
    let (mut more, mut found, mut lost) = (true, false, false);
    while more && (write.multi || !found) {
        let mut bytes = 0;
        while rows.len() < batch && bytes < BYTES_AT_ONCE && more {
            match exec.next_row(op).map_err(Error::while_executing)? {
                Some(row) => {
                    bytes += row.doc.len();
                    rows.push(row);
                }
                None => more = false,
            }
        }
        for row in rows.drain(..) {
            let written = write_row(write, validator, row, slices);
            match written.map_err(Error::while_executing)? {
                true => found = true,
                false => lost = true,
            }
        }
        slices.commit().map_err(Error::while_executing)?;
        let done = slices.stored().matched;
        if write.turn.is_some_and(|turn| turn.is_over(done)) {
            break;
        }
    }
    op.set_exec_stats(|| {
        let done = slices.stored();
        wrote(&exec, &write.change, done.matched, done.modified)
    });
    Ok((found, lost))
}

/// Locks one row, reads it again, matches it again and changes it. Returns false if it no longer
/// matches.
fn write_row(
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
            // The document changed since the snapshot and may no longer match.
            matches(&write.filter, &old, want_info, unit.work())?
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
            // Memory for the old document, the new one, and the new one in the log's record.
            if unit.make_room(3 * old.len())?.is_err() {
                return Ok(Err(Busy));
            }
            let mut out = Vec::with_capacity(old.len() + 64);
            if update.apply(Doc::new(&old), info, &mut out, unit.work())? {
                if let Some(v) = validator {
                    v.0.check(&v.1, Some(&old), &out, unit.work())?;
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

/// The error of a write whose collection was dropped meanwhile: 175 instead of 26, because the
/// collection was there when the write began.
pub(super) fn killed_by_drop(namespace: &str, e: Error) -> Error {
    if e.code() != Code::NamespaceNotFound {
        return e;
    }
    Error::new(
        Code::QueryPlanKilled,
        format!("collection dropped: {namespace}"),
    )
}

/// True if the filter asks by equality for exactly the values that the duplicate key error names.
/// The rival document was then inserted after the filter had looked, and may be deleted again
/// already. MongoDB retries an upsert in this case only.
fn asks_for_rival(filter: &Filter, duplicate: &Error) -> bool {
    let extra = duplicate.extra().as_doc();
    let Some(key) = extra.get_doc("keyValue") else {
        return false;
    };
    // Values that are equal by the index's collation may differ by the query's.
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

/// Checks the name of a collection that a write would create.
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
