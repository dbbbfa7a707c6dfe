//! Inserts.

use super::bulk::{BulkOutcome, WriteError};
use super::retry::{Retry, Statements};
use super::slices::{SLICE_BYTES, Slices, Tally};
use crate::database::Database;
use crate::operation::OpContext;
use crate::timeseries::TimeSeries;
use muniment_query::Interrupt;
use muniment_storage::Collection;
use muniment_value::{Code, Doc, Elem, Error, Result, Type, Value, new_object_id};
use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// The largest document a client may store.
const MAX_DOCUMENT: usize = 16 << 20;

/// Options of an insert command.
#[derive(Clone, Copy, Debug)]
pub struct InsertOptions {
    /// Stop at the first error.
    pub ordered: bool,
    /// Skip the collection's validator.
    pub bypass_document_validation: bool,
    /// Keep `Timestamp(0, 0)` as it is (mongorestore).
    pub bypass_empty_ts_replacement: bool,
    /// Into the collection of this UUID alone: 175 if another or none has the name.
    pub only: Option<[u8; 16]>,
}

impl Default for InsertOptions {
    fn default() -> InsertOptions {
        InsertOptions {
            ordered: true,
            bypass_document_validation: false,
            bypass_empty_ts_replacement: false,
            only: None,
        }
    }
}

/// Documents that can be read again: a part of them is, if their collection is dropped before it has
/// them.
pub type Documents<'d> = dyn Fn() -> Box<dyn Iterator<Item = Doc<'d>> + 'd> + 'd;

/// What a collection that was dropped did not take.
struct Dropped {
    /// Places of documents, ascending.
    lost: Vec<usize>,
    /// Nothing of what stands here and behind was tried.
    from: usize,
}

impl Dropped {
    fn includes(&self, place: usize) -> bool {
        place >= self.from || self.lost.binary_search(&place).is_ok()
    }

    /// What of this was to be tried: the rest of it lies in a collection that was dropped before.
    fn within(mut self, tried: &Dropped) -> Dropped {
        if self.from < tried.from {
            let behind = tried.lost.partition_point(|place| *place < self.from);
            self.lost
                .extend_from_slice(tried.lost.get(behind..).unwrap_or_default());
            self.from = tried.from;
        }
        self
    }
}

/// How a run over documents ended.
enum End {
    /// There are no more.
    All,
    /// An error ends the command.
    Error,
    /// Their collection was dropped.
    Dropped(Dropped),
}

/// True for the error of a write to a collection that was dropped.
fn is_gone(e: &Error) -> bool {
    e.code() == Code::NamespaceNotFound
}

impl Database {
    /// Inserts documents (validated BSON), creating the collection if it is not there. A missing
    /// `_id` is made, and `_id` is moved to the front. Documents become visible in slices of
    /// bounded size. What a collection that is dropped meanwhile has not taken goes into a new one.
    ///
    /// # Errors
    /// Only what concerns the whole command (73 InvalidNamespace, interrupts, a full disk before
    /// anything was written); a document's own error is in the outcome.
    pub fn insert_many(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        docs: &Documents<'_>,
        options: InsertOptions,
    ) -> Result<BulkOutcome> {
        if let Some(collection) = self.buckets_of(namespace) {
            if op.transaction().is_some() {
                return Err(Error::new(
                    Code::OperationNotSupportedInTransaction,
                    format!(
                        "Cannot insert into a time-series collection in a multi-document \
                         transaction: {namespace}"
                    ),
                ));
            }
            return self.insert_buckets(op, &collection, namespace, &mut *docs(), options.ordered);
        }
        let options = InsertOptions {
            ordered: op.ordered(options.ordered),
            ..options
        };
        let mut out = BulkOutcome::default();
        let mut list = docs().enumerate().peekable();
        let mut dropped = self.insert_list(op, namespace, &mut list, options, &mut out)?;
        while let Some(again) = dropped {
            op.check()?;
            let mut list = docs()
                .enumerate()
                .filter(|(place, _)| again.includes(*place))
                .peekable();
            let lost = self.insert_list(op, namespace, &mut list, options, &mut out)?;
            dropped = lost.map(|lost| lost.within(&again));
        }
        out.errors.sort_by_key(|e| e.index);
        if options.ordered {
            // What was tried again may have failed before what had failed already.
            out.errors.truncate(1);
        }
        if let Some(first) = out.errors.first() {
            op.note_failure(&first.error);
        }
        Ok(out)
    }

    /// Appends a document as it is to a capped collection; an `_id` is made only where the collection
    /// has an index on it. Does nothing if there is none of this name.
    ///
    /// # Errors
    /// As a commit's.
    pub fn append(&self, op: &Arc<OpContext>, namespace: &str, doc: Doc<'_>) -> Result<()> {
        let Some(collection) = self.store.collection(namespace) else {
            return Ok(());
        };
        let doc = match collection.finds_by_id() {
            true => prepare(doc, false)?,
            false => Cow::Borrowed(doc.as_bytes()),
        };
        let mut slices = Slices::<Inserted>::new(&self.store, op, &collection);
        slices.change(|unit| Ok(unit.insert(&doc)?.map(|()| Inserted::one(0))))?;
        slices.commit()
    }

    /// Inserts documents into the collection of this name.
    fn insert_list<'d>(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        docs: &mut std::iter::Peekable<impl Iterator<Item = (usize, Doc<'d>)>>,
        options: InsertOptions,
        out: &mut BulkOutcome,
    ) -> Result<Option<Dropped>> {
        if docs.peek().is_none()
            || (options.only.is_none()
                && self.store.collection(namespace).is_none()
                && !next_is_fine(docs, options, out))
        {
            return Ok(None);
        }
        let collection = match options.only {
            None => self.collection_or_create(op, namespace)?,
            Some(uuid) => {
                let there = self.store.collection(namespace);
                let own = there.filter(|c| c.uuid() == uuid);
                own.ok_or_else(|| {
                    Error::new(
                        Code::QueryPlanKilled,
                        format!("collection dropped: {namespace}"),
                    )
                })?
            }
        };
        let end = self.insert_slices(op, &collection, docs, options, out)?;
        Ok(match end {
            End::All | End::Error => None,
            End::Dropped(again) => Some(again),
        })
    }

    /// Inserts documents until there are none or one ends the command.
    fn insert_slices<'d>(
        &self,
        op: &Arc<OpContext>,
        collection: &Arc<Collection>,
        docs: &mut std::iter::Peekable<impl Iterator<Item = (usize, Doc<'d>)>>,
        options: InsertOptions,
        out: &mut BulkOutcome,
    ) -> Result<End> {
        let validator = self.checks(collection, options.bypass_document_validation)?;
        let series = TimeSeries::of(collection);
        let mut slices = Slices::<Inserted>::new(&self.store, op, collection);
        let mut end = End::All;
        let mut since_check = 0;
        let mut first = true;
        // The document that met what ends the command, and that.
        let mut failed: Option<(Option<usize>, Error)> = None;
        while let Some((index, doc)) = docs.next() {
            if op.retry().is_some_and(|r| r.executed(index).is_some()) {
                out.n += 1;
                continue;
            }
            let left = docs.size_hint().0;
            let result = prepare(doc, !options.bypass_empty_ts_replacement).and_then(|d| {
                if let Some(s) = &series {
                    s.check_measurement(Doc::new(&d))?;
                }
                if let Some(v) = &validator {
                    v.0.check(&v.1, None, &d)?;
                }
                since_check += d.len() + 128;
                let one = || Inserted::one(index);
                slices.change(|unit| {
                    // Once: where others are met each unit may hold one document.
                    if std::mem::take(&mut first) {
                        let most = SLICE_BYTES / (d.len() + 16);
                        unit.reserve(left.min(most) + 1, d.len());
                    }
                    Ok(unit.insert(&d)?.map(|()| one()))
                })
            });
            if let Err(error) = result {
                if slices.has_failed() || error.is_interruption() || is_gone(&error) {
                    failed = Some((Some(index), error));
                    break;
                }
                out.errors.push(WriteError { index, error });
                if options.ordered {
                    end = End::Error;
                    break;
                }
            }
            if since_check > CHECK_BYTES {
                since_check = 0;
                if let Err(error) = op.check() {
                    failed = Some((None, error));
                    break;
                }
            }
        }
        let met = failed.as_ref().and_then(|f| f.0);
        let knows = failed.as_ref().is_some_and(|f| is_gone(&f.1));
        if !slices.has_failed()
            && !knows
            && let Err(error) = slices.commit()
        {
            failed = Some((met, error));
        }
        let gone = failed.as_ref().is_some_and(|f| is_gone(&f.1));
        let mut lost: Vec<usize> = match slices.has_failed() || gone {
            true => slices.lost().places().collect(),
            false => Vec::new(),
        };
        let (stored, commit) = slices.into_stored();
        let n = stored.places().count() as u64;
        out.n += n;
        out.commit = out.commit.max(commit);
        op.counters.written.fetch_add(n, Relaxed);
        let Some((_, error)) = failed else {
            return Ok(end);
        };
        lost.extend(met.filter(|i| lost.last() != Some(i)));
        if gone {
            let from = match end {
                End::Error => None,
                _ => docs.peek().map(|(place, _)| *place),
            };
            return Ok(End::Dropped(Dropped {
                lost,
                from: from.unwrap_or(usize::MAX),
            }));
        }
        if out.n == 0 && out.errors.is_empty() {
            return Err(error);
        }
        if options.ordered {
            // What follows the first was not tried.
            let next = || docs.peek().map(|(place, _)| *place);
            if let Some(index) = lost.first().copied().or_else(next) {
                out.errors.push(WriteError { index, error });
            }
        } else {
            // Of an unordered command everything that is not stored is told.
            lost.extend(docs.by_ref().map(|(i, _)| i));
            let said: HashSet<usize> = out.errors.iter().map(|e| e.index).collect();
            lost.retain(|i| !said.contains(i));
            let each = |index| WriteError {
                index,
                error: error.clone(),
            };
            out.errors.extend(lost.into_iter().map(each));
        }
        Ok(End::Error)
    }
}

/// Passes over documents that no collection takes, so that none is made for them. False if there is
/// nothing more to insert.
fn next_is_fine<'d>(
    docs: &mut std::iter::Peekable<impl Iterator<Item = (usize, Doc<'d>)>>,
    options: InsertOptions,
    out: &mut BulkOutcome,
) -> bool {
    while let Some((index, doc)) = docs.peek() {
        let Err(error) = prepare(*doc, !options.bypass_empty_ts_replacement) else {
            return true;
        };
        out.errors.push(WriteError {
            index: *index,
            error,
        });
        docs.next();
        if options.ordered {
            return false;
        }
    }
    false
}

/// The operation is asked whether it may go on after so many bytes.
const CHECK_BYTES: usize = 1 << 20;

/// The places of inserted documents, as ranges: nearly always one.
#[derive(Default)]
struct Inserted {
    first: Range<usize>,
    more: Vec<Range<usize>>,
}

impl Inserted {
    fn one(index: usize) -> Inserted {
        Inserted {
            first: index..index + 1,
            more: Vec::new(),
        }
    }

    fn places(&self) -> impl Iterator<Item = usize> {
        let more = self.more.iter().cloned();
        self.first.clone().chain(more.flatten())
    }

    fn push(&mut self, range: Range<usize>) {
        let last = self.more.last_mut().unwrap_or(&mut self.first);
        if last.start >= last.end {
            *last = range;
        } else if last.end == range.start {
            last.end = range.end;
        } else if range.start < range.end {
            self.more.push(range);
        }
    }
}

impl Tally for Inserted {
    fn add(&mut self, later: Inserted) {
        self.push(later.first);
        for range in later.more {
            self.push(range);
        }
    }

    fn statements(&self, _: &Retry) -> Vec<Statements> {
        let ranges = std::iter::once(&self.first).chain(&self.more);
        let some = ranges.filter(|r| !r.is_empty()).cloned();
        some.map(Statements::inserted).collect()
    }
}

/// A document as it is stored: `_id` first, made if missing; `Timestamp(0, 0)` on the top level
/// becomes the time if `replace_timestamps`. Copied only if it has to change.
///
/// # Errors
/// 10334 BSONObjectTooLarge; 53 InvalidIdField; 52 DollarPrefixedFieldName in `_id`;
/// 2 BadValue for two `_id`s.
pub(crate) fn prepare(doc: Doc<'_>, replace_timestamps: bool) -> Result<Cow<'_, [u8]>> {
    let bytes = doc.as_bytes();
    if bytes.len() > MAX_DOCUMENT {
        return Err(Error::new(
            Code::BSONObjectTooLarge,
            format!(
                "object to insert too large. size in bytes: {}, max size: {MAX_DOCUMENT}",
                bytes.len()
            ),
        ));
    }
    let mut id: Option<(usize, Elem<'_>)> = None;
    let mut zero_timestamp = false;
    for (i, e) in doc.iter().enumerate() {
        if e.name_bytes() == b"_id" {
            if id.is_some() {
                return Err(Error::bad_value(
                    "can't have multiple _id fields in one document",
                ));
            }
            check_id(e.value())?;
            id = Some((i, e));
        } else if e.ty() == Type::Timestamp {
            zero_timestamp |= e.raw_value() == [0; 8];
        }
    }
    zero_timestamp &= replace_timestamps;
    if let (Some((0, _)), false) = (&id, zero_timestamp) {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut out = Vec::with_capacity(bytes.len() + 17);
    out.extend_from_slice(&[0; 4]);
    match &id {
        Some((_, e)) => out.extend_from_slice(e.as_bytes()),
        None => {
            out.push(Type::ObjectId as u8);
            out.extend_from_slice(b"_id\0");
            out.extend_from_slice(&new_object_id());
        }
    }
    for e in doc.iter() {
        if e.name_bytes() == b"_id" {
            continue;
        }
        if zero_timestamp && e.ty() == Type::Timestamp && e.raw_value() == [0; 8] {
            let head = e.as_bytes().len() - 8;
            out.extend_from_slice(e.as_bytes().get(..head).unwrap_or_default());
            out.extend_from_slice(&new_timestamp().to_le_bytes());
        } else {
            out.extend_from_slice(e.as_bytes());
        }
    }
    out.push(0);
    let n = (out.len() as u32).to_le_bytes();
    if let Some(head) = out.get_mut(..4) {
        head.copy_from_slice(&n);
    }
    Ok(Cow::Owned(out))
}

/// A BSON timestamp of now, unlike any other of this process.
fn new_timestamp() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let now = (seconds << 32) | 1;
    let before = LAST
        .fetch_update(Relaxed, Relaxed, |last| Some(now.max(last + 1)))
        .unwrap_or(0);
    now.max(before + 1)
}

fn check_id(id: Value<'_>) -> Result<()> {
    match id {
        Value::Array(_) | Value::Regex { .. } | Value::Undefined => Err(Error::new(
            Code::InvalidIdField,
            format!("The '_id' value cannot be of type {}", id.type_name()),
        )),
        Value::Document(d) => match d.iter().find(|e| e.name_bytes().first() == Some(&b'$')) {
            // DBRef's own names may stand there.
            Some(e) if !matches!(e.name(), "$ref" | "$id" | "$db") => Err(Error::new(
                Code::DollarPrefixedFieldName,
                format!(
                    "_id fields may not contain '$'-prefixed fields: {} is not valid for storage.",
                    e.name()
                ),
            )),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{array, doc};

    #[test]
    fn documents_are_stored_with_id_first() {
        let d = doc! { "_id": 1, "a": 2 };
        assert_eq!(prepare(d.as_doc(), true).unwrap(), d.as_bytes());
        let d2 = doc! { "a": 2, "_id": 1 };
        let moved = prepare(d2.as_doc(), true).unwrap();
        assert_eq!(moved, d.as_bytes());
        let d3 = doc! { "a": 2 };
        let made = prepare(d3.as_doc(), true).unwrap();
        let first = Doc::new(&made).first().unwrap();
        assert_eq!((first.name(), first.ty()), ("_id", Type::ObjectId));
        assert_eq!(made.len(), doc! { "a": 2 }.len() + 17);
    }

    #[test]
    fn what_a_second_drop_took_is_within_what_the_first_one_took() {
        let list = |lost: &[usize], from| Dropped {
            lost: lost.to_vec(),
            from,
        };
        let within = |lost: &[usize], from, tried: &Dropped| {
            let all = list(lost, from).within(tried);
            (0..12)
                .filter(|place| all.includes(*place))
                .collect::<Vec<_>>()
        };
        let tried = list(&[2, 3, 5], 9);
        // It was met at the second of them: those between that were stored stay so.
        assert_eq!(within(&[3], 5, &tried), [3, 5, 9, 10, 11]);
        assert_eq!(within(&[2], 3, &tried), [2, 3, 5, 9, 10, 11]);
        assert_eq!(within(&[2, 3, 5], 9, &tried), [2, 3, 5, 9, 10, 11]);
        assert_eq!(within(&[3, 10], 11, &tried), [3, 10, 11]);
        assert_eq!(within(&[5], usize::MAX, &tried), [5]);
    }

    #[test]
    fn ids_that_cannot_be() {
        let code = |d: muniment_value::DocBuf| prepare(d.as_doc(), true).unwrap_err().code();
        assert_eq!(code(doc! { "_id": array![1] }), Code::InvalidIdField);
        assert_eq!(code(doc! { "_id": Value::Undefined }), Code::InvalidIdField);
        assert_eq!(
            code(doc! { "_id": doc! { "$x": 1 } }),
            Code::DollarPrefixedFieldName
        );
        assert_eq!(code(doc! { "_id": 1, "a": 1, "_id": 2 }), Code::BadValue);
    }

    #[test]
    fn empty_timestamps_become_the_time() {
        let d = doc! { "_id": 1, "t": Value::Timestamp { t: 0, i: 0 } };
        let got = prepare(d.as_doc(), true).unwrap();
        assert!(matches!(Doc::new(&got).get("t"), Some(Value::Timestamp { t, .. }) if t > 0));
        assert_eq!(prepare(d.as_doc(), false).unwrap(), d.as_bytes());
    }
}
