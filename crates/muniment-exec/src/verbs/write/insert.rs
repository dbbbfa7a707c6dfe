//! The `insert` command: inserts documents in slices. If their collection is dropped meanwhile, the
//! documents that it did not store go into a new one.

use super::slices::{SLICE_BYTES, Slices, Tally};
use crate::database::Database;
use crate::operation::{OpContext, Retry, Statements};
use crate::source::Source;
use crate::timeseries::TimeSeries;
use crate::timeseries::restore::insert_buckets;
use crate::verbs::write::document::check_depth;
use crate::verbs::write::document::prepare;
use crate::verbs::write::outcome::BulkOutcome;
use crate::verbs::write::perform::Checks;
use crate::verbs::write::perform::checks;
use crate::verbs::write::perform::collection_or_create;
use muniment_query::Interrupt;
use muniment_storage::Collection;
use muniment_value::{Code, Doc, Error, Result};
use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Options of an insert command.
#[derive(Clone, Copy, Debug)]
pub struct InsertOptions {
    /// Stop at the first error.
    pub ordered: bool,
    /// Skip the collection's validator.
    pub bypass_document_validation: bool,
    /// Keep `Timestamp(0, 0)` as it is (mongorestore).
    pub bypass_empty_ts_replacement: bool,
    /// Insert only into the collection with this UUID; error 175 if another collection, or none,
    /// has the name.
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

/// A source of documents that can be read again. If the collection is dropped during the insert,
/// the documents that it did not store are read a second time.
pub type Documents<'d> = dyn Fn() -> Box<dyn Iterator<Item = Doc<'d>> + 'd> + 'd;

/// The documents that a dropped collection did not store.
struct Dropped {
    /// Places of documents, ascending.
    lost: Vec<usize>,
    /// No document from this place on was tried.
    from: usize,
}

impl Dropped {
    fn includes(&self, place: usize) -> bool {
        place >= self.from || self.lost.binary_search(&place).is_ok()
    }

    /// Restricts this to the documents in `tried`, the ones that this attempt was to insert. The
    /// others were stored in a collection that was dropped earlier.
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
    /// All documents were handled.
    All,
    /// An error ended the command.
    Error,
    /// The collection was dropped meanwhile.
    Dropped(Dropped),
}

/// The error that ends a command, and the place of the document that ran into it, if one did.
type Failure = (Option<usize>, Error);

/// True for the error of a write to a collection that was dropped.
fn is_gone(e: &Error) -> bool {
    e.code() == Code::NamespaceNotFound
}

/// Implements [`Database::insert_many`].
pub(crate) fn insert_many(
    engine: &Database,
    op: &Arc<OpContext>,
    namespace: &str,
    docs: &Documents<'_>,
    options: InsertOptions,
) -> Result<BulkOutcome> {
    let source = Source::resolve(&engine.store, op, namespace)?;
    if let Source::Buckets(collection) = &source {
        if op.transaction().is_some() {
            return Err(Error::new(
                Code::OperationNotSupportedInTransaction,
                format!(
                    "Cannot insert into a time-series collection in a multi-document \
                     transaction: {namespace}"
                ),
            ));
        }
        return insert_buckets(
            engine,
            op,
            collection,
            namespace,
            &mut *docs(),
            options.ordered,
        );
    }
    let options = InsertOptions {
        ordered: op.ordered(options.ordered),
        ..options
    };
    let mut out = BulkOutcome::default();
    let mut list = docs().enumerate().peekable();
    let mut dropped = insert_list(engine, op, namespace, source, &mut list, options, &mut out)?;
    while let Some(again) = dropped {
        op.check()?;
        let mut list = docs()
            .enumerate()
            .filter(|(place, _)| again.includes(*place))
            .peekable();
        let source = Source::resolve(&engine.store, op, namespace)?;
        let lost = insert_list(engine, op, namespace, source, &mut list, options, &mut out)?;
        dropped = lost.map(|lost| lost.within(&again));
    }
    out.errors.sort_by_key(|e| e.index);
    if options.ordered {
        // The documents that were tried a second time may stand before one that had failed already.
        // An ordered command reports only the first error.
        out.errors.truncate(1);
    }
    if let Some(first) = out.errors.first() {
        op.note_failure(&first.error);
    }
    Ok(out)
}

/// Implements [`Database::append`].
pub(crate) fn append(
    engine: &Database,
    op: &Arc<OpContext>,
    namespace: &str,
    doc: Doc<'_>,
) -> Result<()> {
    let Some(collection) = engine.store.collection(namespace) else {
        return Ok(());
    };
    let doc = match collection.finds_by_id() {
        true => prepare(doc, false)?,
        false => {
            check_depth(doc)?;
            Cow::Borrowed(doc.as_bytes())
        }
    };
    let mut slices = Slices::<Inserted>::new(&engine.store, op, &collection);
    slices.change(|unit| Ok(unit.insert(&doc)?.map(|()| Inserted::one(0))))?;
    slices.commit()
}

/// Inserts documents into the collection of this name, or into a new one.
fn insert_list<'d>(
    engine: &Database,
    op: &Arc<OpContext>,
    namespace: &str,
    source: Source,
    docs: &mut std::iter::Peekable<impl Iterator<Item = (usize, Doc<'d>)>>,
    options: InsertOptions,
    out: &mut BulkOutcome,
) -> Result<Option<Dropped>> {
    if docs.peek().is_none() {
        return Ok(None);
    }
    let collection = match (source, options.only) {
        (Source::Collection(c), only) if only.is_none_or(|uuid| c.uuid() == uuid) => c,
        (_, Some(_)) => {
            return Err(Error::new(
                Code::QueryPlanKilled,
                format!("collection dropped: {namespace}"),
            ));
        }
        _ if !next_is_fine(docs, options, out) => return Ok(None),
        _ => collection_or_create(engine, op, namespace)?,
    };
    let end = insert_slices(engine, op, &collection, docs, options, out)?;
    Ok(match end {
        End::All | End::Error => None,
        End::Dropped(again) => Some(again),
    })
}

/// Inserts documents until there are no more or an error ends the command.
fn insert_slices<'d>(
    engine: &Database,
    op: &Arc<OpContext>,
    collection: &Arc<Collection>,
    docs: &mut std::iter::Peekable<impl Iterator<Item = (usize, Doc<'d>)>>,
    options: InsertOptions,
    out: &mut BulkOutcome,
) -> Result<End> {
    let validator = checks(engine, op, collection, options.bypass_document_validation)?;
    let mut slices = Slices::<Inserted>::new(&engine.store, op, collection);
    let (end, mut failed) = put_all(op, collection, validator, &mut slices, docs, options, out);
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
    report(&error, lost, docs, options.ordered, out);
    Ok(End::Error)
}

/// Puts documents into slices until there are no more or an error ends the command; the last slice
/// is not committed. Returns how it ended, and the error that ended the command, if one did.
fn put_all<'d>(
    op: &OpContext,
    collection: &Collection,
    validator: Option<Checks<'_>>,
    slices: &mut Slices<'_, Inserted>,
    docs: &mut std::iter::Peekable<impl Iterator<Item = (usize, Doc<'d>)>>,
    options: InsertOptions,
    out: &mut BulkOutcome,
) -> (End, Option<Failure>) {
    let series = TimeSeries::of(collection);
    let mut since_check = 0;
    let mut first = true;
    while let Some((index, doc)) = docs.next() {
        if op.retry().is_some_and(|r| r.executed(index).is_some()) {
            out.n += 1;
            continue;
        }
        let left = docs.size_hint().0;
        let prepared = prepare(doc, !options.bypass_empty_ts_replacement);
        let result = prepared.and_then(|d| {
            check(&d, series.as_ref(), validator.as_ref(), op)?;
            since_check += d.len() + 128;
            let one = || Inserted::one(index);
            slices.change(|unit| {
                // Only the first unit: beside other inserts, later ones may hold one document each.
                if std::mem::take(&mut first) {
                    let most = SLICE_BYTES / (d.len() + 16);
                    unit.reserve(left.min(most) + 1, d.len());
                }
                Ok(unit.insert(&d)?.map(|()| one()))
            })
        });
        if let Err(error) = result {
            if slices.has_failed() || error.fails_command() || is_gone(&error) {
                return (End::All, Some((Some(index), error)));
            }
            out.fail(index, &error);
            if options.ordered {
                return (End::Error, None);
            }
        }
        if since_check > CHECK_BYTES {
            since_check = 0;
            if let Err(error) = op.check() {
                return (End::All, Some((None, error)));
            }
        }
    }
    (End::All, None)
}

/// Checks a document against what its collection demands.
#[inline]
fn check(
    doc: &[u8],
    series: Option<&TimeSeries>,
    validator: Option<&Checks<'_>>,
    op: &OpContext,
) -> Result<()> {
    if let Some(s) = series {
        s.check_measurement(Doc::new(doc))?;
    }
    if let Some(v) = validator {
        v.0.check(&v.1, None, doc, op.work())?;
    }
    Ok(())
}

/// Reports the error that ended the command for the documents that it kept from being stored:
/// those that are `lost`, and the ones in `docs`, which were not tried.
fn report<'d>(
    error: &Error,
    mut lost: Vec<usize>,
    docs: &mut std::iter::Peekable<impl Iterator<Item = (usize, Doc<'d>)>>,
    ordered: bool,
    out: &mut BulkOutcome,
) {
    if ordered {
        // The documents after the first that is not stored were not tried.
        let next = || docs.peek().map(|(place, _)| *place);
        if let Some(index) = lost.first().copied().or_else(next) {
            out.fail(index, error);
        }
        return;
    }
    // An unordered command reports an error for each document that is not stored.
    lost.extend(docs.by_ref().map(|(i, _)| i));
    let said: HashSet<usize> = out.errors.iter().map(|e| e.index).collect();
    lost.retain(|i| !said.contains(i));
    for index in lost {
        out.fail(index, error);
    }
}

/// Skips documents that no collection could store, so that the collection is not created for them.
/// Returns false if there is nothing left to insert.
fn next_is_fine<'d>(
    docs: &mut std::iter::Peekable<impl Iterator<Item = (usize, Doc<'d>)>>,
    options: InsertOptions,
    out: &mut BulkOutcome,
) -> bool {
    while let Some((index, doc)) = docs.peek() {
        let Err(error) = prepare(*doc, !options.bypass_empty_ts_replacement) else {
            return true;
        };
        out.fail(*index, &error);
        docs.next();
        if options.ordered {
            return false;
        }
    }
    false
}

/// After so many bytes the insert asks its operation whether it may go on.
const CHECK_BYTES: usize = 1 << 20;

/// The places of inserted documents as ranges; nearly always there is one range.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        // The second attempt ran into the drop at the second of them. The documents in between were
        // stored by the first attempt and stay out.
        assert_eq!(within(&[3], 5, &tried), [3, 5, 9, 10, 11]);
        assert_eq!(within(&[2], 3, &tried), [2, 3, 5, 9, 10, 11]);
        assert_eq!(within(&[2, 3, 5], 9, &tried), [2, 3, 5, 9, 10, 11]);
        assert_eq!(within(&[3, 10], 11, &tried), [3, 10, 11]);
        assert_eq!(within(&[5], usize::MAX, &tried), [5]);
    }
}
