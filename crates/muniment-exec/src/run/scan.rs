//! The stages that read the storage: COLLSCAN, IDHACK, IXSCAN.

use super::key_document;
use super::seen::Seen;
use super::sort::SortLimits;
use super::{Cx, Row, Stats, Step};
use crate::plan::access::IndexAccess;
use crate::plan::ranges::{Checked, ScanRanges};
use bytes::Bytes;
use muniment_query::running::Work;
use muniment_query::{Filter, MatchInfo};
use muniment_storage::{Bound, Direction, DocCursor, Index, IndexCursor, IndexEntry, KeyRange};
use muniment_value::{Code, Doc, DocBuf, Error, Result, ValueBuf, doc};
use std::sync::Arc;

/// Matches `doc`. The positional information is collected only if it is wanted.
#[inline]
pub(crate) fn matches(
    filter: &Filter,
    doc: &[u8],
    want_info: bool,
    work: Work<'_>,
) -> Result<Option<MatchInfo>> {
    if want_info {
        filter.matches_info(Doc::new(doc), work)
    } else {
        let matches = filter.matches(Doc::new(doc), work)?;
        Ok(matches.then(MatchInfo::default))
    }
}

/// Gives all documents in record order.
pub(crate) struct CollScan {
    filter: Option<Filter>,
    backward: bool,
    want_info: bool,
    tailable: bool,
    /// The cursor is boxed because it is moved in and out for every row.
    cursor: Option<Box<DocCursor>>,
    last: Option<Bytes>,
    done: bool,
    examined: u64,
    pub(super) stats: Stats,
}

impl CollScan {
    /// A scan from the beginning, or with `backward` from the end.
    pub(crate) fn new(
        filter: Option<Filter>,
        backward: bool,
        want_info: bool,
        tailable: bool,
    ) -> CollScan {
        CollScan {
            filter,
            backward,
            want_info,
            tailable,
            cursor: None,
            last: None,
            done: false,
            examined: 0,
            stats: Stats::default(),
        }
    }

    /// True if the scan never saw a document: a tailable cursor on an empty collection is dead.
    pub(crate) fn saw_nothing(&self) -> bool {
        self.last.is_none()
    }

    fn open(&mut self, cx: &mut Cx) -> Result<DocCursor> {
        let mut range = KeyRange::all();
        if let Some(last) = &self.last {
            let collection = cx.collection.clone();
            // If the last record is gone, records after it may be gone too. They would be missing
            // from the result without anyone noticing.
            if collection.is_capped() && cx.snapshot()?.get(&collection, last)?.is_none() {
                return Err(Error::new(
                    Code::CappedPositionLost,
                    "CollectionScan died due to position in capped collection being deleted.",
                ));
            }
            let end = Bound::Excluded(last.to_vec());
            if self.backward {
                range.high = end;
            } else {
                range.low = end;
            }
        }
        let dir = direction(self.backward);
        let collection = cx.collection.clone();
        Ok(cx.snapshot()?.docs(&collection, &range, dir))
    }

    pub(super) fn next(&mut self, cx: &mut Cx) -> Result<Step> {
        if self.done {
            return Ok(Step::Eof);
        }
        let mut cursor = match self.cursor.take() {
            Some(c) => c,
            None => Box::new(self.open(cx)?),
        };
        while cx.budget > 0 {
            cx.step();
            self.stats.works += 1;
            let Some((record_key, doc)) = cursor.next(cx.work().operation())? else {
                self.done = !self.tailable;
                self.stats.eof = self.done;
                return Ok(Step::Eof);
            };
            self.examined += 1;
            cx.docs += 1;
            let info = match &self.filter {
                None => Some(MatchInfo::default()),
                Some(f) => matches(f, &doc, self.want_info, cx.work())?,
            };
            let Some(info) = info else {
                self.last = Some(record_key);
                continue;
            };
            self.last = Some(record_key.clone());
            self.stats.advanced += 1;
            self.cursor = Some(cursor);
            return Ok(Step::Row(Row {
                record_key,
                doc,
                info,
                ..Row::default()
            }));
        }
        self.cursor = Some(cursor);
        Ok(Step::Pause)
    }

    pub(super) fn save(&mut self) {
        if self.cursor.take().is_some() {
            self.stats.saves += 1;
            self.last = self.last.as_ref().map(own);
        }
    }

    pub(super) fn explain(&self, exec: bool) -> DocBuf {
        let mut d = doc! { "stage": "COLLSCAN" };
        if let Some(f) = &self.filter {
            d.append("filter", f.to_doc());
        }
        if exec {
            self.stats.append(&mut d);
        }
        d.append("direction", direction_name(self.backward));
        if exec {
            d.append("docsExamined", self.examined as i64);
        }
        d
    }
}

/// A copy of the key. The key itself is part of a block or a commit, perhaps of megabytes, which
/// would stay in memory as long as a cursor idles.
fn own(key: &Bytes) -> Bytes {
    Bytes::copy_from_slice(key)
}

fn direction_name(backward: bool) -> &'static str {
    if backward { "backward" } else { "forward" }
}

fn direction(backward: bool) -> Direction {
    if backward {
        Direction::Backward
    } else {
        Direction::Forward
    }
}

/// Gives one document by its `_id`.
pub(crate) struct IdHack {
    id: ValueBuf,
    done: bool,
    pub(super) stats: Stats,
}

impl IdHack {
    /// A look-up of `id`.
    pub(crate) fn new(id: ValueBuf) -> IdHack {
        IdHack {
            id,
            done: false,
            stats: Stats::default(),
        }
    }

    pub(super) fn next(&mut self, cx: &mut Cx) -> Result<Step> {
        if self.done {
            return Ok(Step::Eof);
        }
        self.done = true;
        self.stats.works += 1;
        self.stats.eof = true;
        cx.step();
        let collection = cx.collection.clone();
        let found = cx.snapshot()?.find_by_id(&collection, self.id.as_value())?;
        let Some((record_key, doc)) = found else {
            return Ok(Step::Eof);
        };
        // In a collection that is keyed by `_id` there is no index key to examine.
        cx.keys += u64::from(!collection.is_keyed_by_id());
        cx.docs += 1;
        self.stats.advanced += 1;
        Ok(Step::Row(Row {
            record_key,
            doc,
            ..Row::default()
        }))
    }

    pub(super) fn explain(&self, exec: bool) -> DocBuf {
        let mut d = doc! { "stage": "IDHACK" };
        if exec {
            self.stats.append(&mut d);
            d.append("keysExamined", self.stats.advanced as i64);
            d.append("docsExamined", self.stats.advanced as i64);
        }
        d
    }
}

/// How many documents a seek steps over before it opens a new cursor.
const SEEK_STEPS: usize = 8;

/// A position in an index scan: how many ranges are done, and the entry after which the scan
/// continues.
type Place = (usize, Option<(Bytes, Bytes)>);

enum Source {
    Entries(Box<IndexCursor>),
    Docs(Box<DocCursor>),
}

impl Source {
    #[inline]
    fn next(&mut self, cx: &mut Cx) -> Result<Option<Row>> {
        let operation = cx.work().operation();
        Ok(match self {
            Source::Entries(c) => c.next(operation)?.map(of_entry),
            Source::Docs(c) => c.next(operation)?.map(|(record_key, doc)| Row {
                record_key,
                doc,
                ..Row::default()
            }),
        })
    }
}

#[inline]
fn of_entry(entry: IndexEntry) -> Row {
    Row {
        record_key: entry.record_key,
        key: entry.key,
        bits: entry.type_bits,
        ..Row::default()
    }
}

/// Gives the entries of an index within its bounds. `_id_` of a clustered collection consists of
/// the documents themselves, so its rows come with their documents.
pub(crate) struct IxScan {
    access: Arc<IndexAccess>,
    index: Arc<Index>,
    ranges: ScanRanges,
    /// The number of ranges that are done.
    at: usize,
    /// The range that is open; seeks narrow it.
    open: Option<KeyRange>,
    /// Documents stepped over since the last one that passed.
    stepped: usize,
    cursor: Option<Source>,
    /// The last entry given; the scan continues after it.
    last: Option<(Bytes, Bytes)>,
    /// The position that was marked last.
    mark: Place,
    /// True after reopening, while entries up to `last` come once more.
    resuming: bool,
    /// Set if a document may have several keys.
    seen: Option<Seen>,
    /// The buffer in which a key is made into a document, for the predicates on keys.
    key_doc: Vec<u8>,
    /// True if rows have their key as a document in place of its type bits, for returnKey.
    gives_keys: bool,
    /// True if the keys of one range are counted and nothing else is done.
    counts: bool,
    examined: u64,
    seeks: u64,
    pub(super) stats: Stats,
}

impl IxScan {
    /// A scan of the index and bounds of `access`. With `limits`, the scan itself gives a document
    /// with several keys only once. Without, the stage above has to do that.
    pub(crate) fn new(access: Arc<IndexAccess>, limits: Option<SortLimits>) -> IxScan {
        IxScan {
            index: access.bound.info.index.clone(),
            seen: limits
                .filter(|_| access.bound.info.repeats())
                .map(Seen::new),
            key_doc: Vec::new(),
            gives_keys: false,
            counts: false,
            ranges: access.ranges(),
            access,
            at: 0,
            open: None,
            stepped: 0,
            cursor: None,
            last: None,
            mark: (0, None),
            resuming: false,
            examined: 0,
            seeks: 0,
            stats: Stats::default(),
        }
    }

    /// Makes rows have their key as a document in `Row::bits`, if `gives` is true.
    pub(crate) fn giving_keys(mut self, gives: bool) -> IxScan {
        self.gives_keys = gives;
        self
    }

    /// Says that only keys are wanted. If nothing else is to be done, the scan is a COUNT_SCAN.
    pub(crate) fn count_keys(&mut self) {
        self.counts = self.ranges.len() == 1
            && self.ranges.check.is_none()
            && self.access.key_filter.is_none()
            && !self.access.bound.info.clustered;
    }

    /// True if the scan counts the keys of one range: MongoDB's COUNT_SCAN. It examines one more
    /// key, by which it sees that the range has ended.
    pub(crate) fn counts_keys(&self) -> bool {
        self.counts
    }

    /// Makes a row that passed into the form in which it is given.
    fn given(&mut self, mut row: Row) -> Result<Row> {
        self.stats.advanced += 1;
        if self.gives_keys && !self.access.bound.info.clustered {
            let key = key_document(self.access.bound.info.fields(), &row)?;
            row.bits = Bytes::from(key.into_bytes());
        }
        Ok(row)
    }

    /// The next range of the scan.
    fn range(&self) -> Option<KeyRange> {
        let at = match self.access.backward {
            true => self.ranges.len().checked_sub(self.at + 1)?,
            false => self.at,
        };
        self.ranges.get(at)
    }

    /// Opens a range, or the part of it after the last entry given.
    fn open(&mut self, cx: &mut Cx, mut range: KeyRange) -> Result<Source> {
        if let Some((key, record_key)) = &self.last {
            let end = match (self.access.bound.info.clustered, self.index.unique()) {
                (true, _) => Bound::Excluded(record_key.to_vec()),
                (_, true) => Bound::Included(key.to_vec()),
                // Many records may have the same fields, so the record's key, which follows them,
                // is part of the bound.
                _ => Bound::Included([&key[..], &record_key[..]].concat()),
            };
            if self.access.backward {
                range.high = end;
            } else {
                range.low = end;
            }
        }
        self.open_at(cx, range)
    }

    fn open_at(&mut self, cx: &mut Cx, range: KeyRange) -> Result<Source> {
        self.seeks += 1;
        self.stepped = 0;
        let dir = direction(self.access.backward);
        let collection = cx.collection.clone();
        let source = if self.access.bound.info.clustered {
            Source::Docs(Box::new(cx.snapshot()?.docs(&collection, &range, dir)))
        } else {
            Source::Entries(Box::new(cx.snapshot()?.entries(
                &collection,
                &self.index,
                &range,
                dir,
            )))
        };
        self.open = Some(range);
        Ok(source)
    }

    /// Continues at a prefix. In a clustered collection, the scan first steps over some documents
    /// because the prefix may be near, and only then opens a new cursor.
    fn seek(&mut self, cx: &mut Cx, source: Source, target: Vec<u8>) -> Result<Source> {
        Ok(match source {
            Source::Entries(mut c) => {
                c.seek(&target);
                self.seeks += 1;
                Source::Entries(c)
            }
            Source::Docs(c) => {
                self.stepped += 1;
                let Some(mut range) = self.open.take_if(|_| self.stepped > SEEK_STEPS) else {
                    return Ok(Source::Docs(c));
                };
                if self.access.backward {
                    range.high = Bound::Included(target);
                } else {
                    range.low = Bound::Included(target);
                }
                self.open_at(cx, range)?
            }
        })
    }

    /// True for an entry at or before the last one given, which was seen before the cursor was
    /// reopened.
    fn is_behind(&self, row: &Row) -> bool {
        let Some((key, record_key)) = &self.last else {
            return false;
        };
        // A unique index has one entry with this key, even if another record has it by now.
        let order = match (self.access.bound.info.clustered, self.index.unique()) {
            (true, _) => row.record_key.cmp(record_key),
            (_, true) => row.key.cmp(key),
            _ => (&row.key, &row.record_key).cmp(&(key, record_key)),
        };
        if self.access.backward {
            order != std::cmp::Ordering::Less
        } else {
            order != std::cmp::Ordering::Greater
        }
    }

    fn point(range: &KeyRange) -> Option<&[u8]> {
        match (&range.low, &range.high) {
            (Bound::Included(a), Bound::Included(b)) if a == b => Some(a),
            _ => None,
        }
    }

    /// The key of a range that is one read, because it is a point in `_id_`; a cursor would search
    /// every level for it.
    #[inline]
    fn one_read<'r>(&self, range: &'r KeyRange) -> Option<&'r [u8]> {
        if self.access.bound.info.clustered || self.index.is_id() {
            IxScan::point(range)
        } else {
            None
        }
    }

    /// Reads the range that consists of `key`.
    #[inline]
    fn read(&mut self, cx: &mut Cx, key: &[u8]) -> Result<Option<Row>> {
        self.at += 1;
        self.seeks += 1;
        self.count(cx);
        if self.access.bound.info.clustered {
            let collection = cx.collection.clone();
            let Some(doc) = cx.snapshot()?.get(&collection, key)? else {
                return Ok(None);
            };
            self.stats.advanced += 1;
            return Ok(Some(Row {
                record_key: Bytes::copy_from_slice(key),
                doc,
                ..Row::default()
            }));
        }
        let collection = cx.collection.clone();
        let Some(entry) = cx.snapshot()?.entry(&collection, &self.index, key)? else {
            return Ok(None);
        };
        let row = of_entry(entry);
        match self.passes(&row, cx.work())? {
            true => self.given(row).map(Some),
            false => Ok(None),
        }
    }

    pub(super) fn next(&mut self, cx: &mut Cx) -> Result<Step> {
        while cx.budget > 0 {
            let mut source = match self.cursor.take() {
                Some(c) => c,
                None => {
                    let Some(range) = self.range() else {
                        if self.counts && !self.stats.eof {
                            self.examined += 1;
                            cx.keys += 1;
                        }
                        self.stats.eof = true;
                        return Ok(Step::Eof);
                    };
                    if let Some(key) = self.one_read(&range) {
                        match self.read(cx, key)? {
                            Some(row) => return Ok(Step::Row(row)),
                            None => continue,
                        }
                    }
                    self.resuming = self.last.is_some();
                    self.open(cx, range)?
                }
            };
            let row = source.next(cx)?;
            let Some(row) = row else {
                self.end_range();
                continue;
            };
            self.count(cx);
            if self.resuming {
                if self.is_behind(&row) {
                    self.cursor = Some(source);
                    continue;
                }
                self.resuming = false;
            }
            if let Some(check) = &self.ranges.check {
                let key = if row.key.is_empty() {
                    &row.record_key
                } else {
                    &row.key
                };
                match check.check(key)? {
                    Checked::Yes => self.stepped = 0,
                    Checked::SeekTo(target) => {
                        self.cursor = Some(self.seek(cx, source, target)?);
                        continue;
                    }
                    Checked::End => {
                        self.end_range();
                        continue;
                    }
                }
            }
            self.last = Some((row.key.clone(), row.record_key.clone()));
            self.cursor = Some(source);
            if !self.passes(&row, cx.work())? {
                continue;
            }
            if let Some(seen) = &mut self.seen
                && !seen.insert(&row.record_key, cx)?
            {
                continue;
            }
            return self.given(row).map(Step::Row);
        }
        Ok(Step::Pause)
    }

    /// True if the row passes the predicates that are tested on its key.
    fn passes(&mut self, row: &Row, work: Work<'_>) -> Result<bool> {
        let Some(test) = &self.access.key_filter else {
            return Ok(true);
        };
        self.key_doc.clear();
        test.keys.append(&row.key, &row.bits, &mut self.key_doc)?;
        test.filter.matches(Doc::new(&self.key_doc), work)
    }

    fn end_range(&mut self) {
        self.at += 1;
        self.last = None;
        self.open = None;
    }

    /// Marks the position for [`IxScan::rewind`].
    pub(super) fn mark(&mut self) {
        self.mark = (self.at, self.last.clone());
    }

    /// Goes back to the position marked last. The rows after it come again, as a newer snapshot has
    /// them.
    pub(super) fn rewind(&mut self) {
        (self.at, self.last) = self.mark.clone();
        self.cursor = None;
        self.stats.eof = false;
    }

    fn count(&mut self, cx: &mut Cx) {
        cx.step();
        cx.keys += 1;
        self.examined += 1;
        self.stats.works += 1;
    }

    pub(super) fn save(&mut self) {
        if self.cursor.take().is_some() {
            self.stats.saves += 1;
            let own = |place: &Option<(Bytes, Bytes)>| {
                let (key, record_key) = place.as_ref()?;
                Some((own(key), own(record_key)))
            };
            self.last = own(&self.last);
            self.mark.1 = own(&self.mark.1);
        }
    }

    /// True for the `_id` of a collection that was created with `clusteredIndex`.
    pub(super) fn is_clustered(&self) -> bool {
        self.access.bound.info.clustered
    }

    /// Explains the scan of a clustered collection, with the filter that is matched on its
    /// documents.
    pub(super) fn explain_clustered(
        &self,
        exec: bool,
        filter: Option<&Filter>,
        stats: &Stats,
    ) -> DocBuf {
        let mut d = doc! { "stage": "CLUSTERED_IXSCAN" };
        if let Some(f) = filter {
            d.append("filter", f.to_doc());
        }
        if exec {
            stats.append(&mut d);
        }
        d.append("direction", direction_name(self.access.backward));
        let ids = self.access.bound.fields.first();
        if let Some((low, high)) = ids.and_then(|f| f.first().zip(f.last())) {
            d.append("minRecord", low.low.as_value());
            d.append("maxRecord", high.high.as_value());
        }
        if exec {
            d.append("docsExamined", self.examined as i64);
        }
        d
    }

    pub(super) fn explain(&self, exec: bool) -> DocBuf {
        if self.is_clustered() {
            return self.explain_clustered(exec, None, &self.stats);
        }
        let info = &self.access.bound.info;
        let spec = self.index.spec();
        let mut d = doc! { "stage": "IXSCAN" };
        if let Some(test) = &self.access.key_filter {
            d.append("filter", test.filter.to_doc());
        }
        if exec {
            self.stats.append(&mut d);
        }
        describe_index(&mut d, &self.access, &spec, info.is_multikey);
        if exec {
            d.append("keysExamined", self.examined as i64);
            d.append("seeks", self.seeks as i64);
            let dups = self.seen.as_ref().map_or((0, 0), |s| (s.tested, s.dropped));
            d.append("dupsTested", dups.0 as i64);
            d.append("dupsDropped", dups.1 as i64);
        }
        d
    }
}

/// Appends the fields that explain shows of an index scan.
fn describe_index(
    d: &mut DocBuf,
    access: &IndexAccess,
    spec: &muniment_storage::IndexSpec,
    multikey: bool,
) {
    d.append("keyPattern", access.bound.info.pattern());
    d.append("indexName", spec.name.as_str());
    d.append_some("collation", spec.collation.spec());
    d.append("isMultiKey", multikey);
    let mut paths = DocBuf::new();
    for ((path, _), mask) in access
        .bound
        .info
        .fields()
        .iter()
        .zip(&access.bound.info.multikey)
    {
        let mut arrays = muniment_value::ArrayBuf::new();
        let mut prefix = String::new();
        for (i, part) in path.parts().iter().enumerate() {
            if i > 0 {
                prefix.push('.');
            }
            prefix.push_str(part);
            if i < 64 && mask & (1 << i) != 0 {
                arrays.push(prefix.as_str());
            }
        }
        paths.append(path.as_str(), arrays);
    }
    d.append("multiKeyPaths", paths);
    d.append("isUnique", spec.unique || access.bound.info.unique);
    d.append("isSparse", access.bound.info.sparse);
    d.append("isPartial", spec.partial_filter.is_some());
    d.append("indexVersion", 2);
    d.append("direction", direction_name(access.backward));
    match access.bounds_doc() {
        Some(bounds) => d.append("indexBounds", bounds),
        None => d.append(
            "warning",
            "index bounds omitted due to BSON size limit for explain",
        ),
    };
}
