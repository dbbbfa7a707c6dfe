//! TEXT_MATCH: gives the documents that have one of the terms of a search, with their scores.
//!
//! The entries of each term come in the order of their records, so the terms are merged while they
//! are read. Only one entry per term is held, and each document is read at most once. In a unique
//! index the entries come in another order; there, a term's entries are held and sorted. A sort by
//! the score alone sorts entries, and [`Load`] above it reads the documents that are left.

use super::combine::fetch;
use super::recipe::Recipe;
use super::scan::matches;
use super::sort::SortLimits;
use super::{Cx, Row, Stage, Stats, Step};
use crate::plan::access::TextAccess;
use bytes::Bytes;
use muniment_query::SortSpec;
use muniment_query::meta::{Meta, attach};
use muniment_query::sort::SortKey;
use muniment_storage::kinds::TextIndex;
use muniment_storage::{Bound, Direction, IndexCursor, KeyRange};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// The memory that a held entry takes besides its record's key.
const HELD: usize = 64;
/// Entries read between two checks of the operation, in a loop that cannot pause.
const LOOK: u64 = 1024;

/// The entries of one term.
struct Posting {
    range: KeyRange,
    source: Option<Source>,
    done: bool,
    examined: u64,
}

enum Source {
    /// Entries that come in the order of their records.
    Cursor(Box<IndexCursor>),
    /// Entries that were read, held and sorted.
    Held(std::vec::IntoIter<(Bytes, f64)>),
}

/// The next entry of a term: its record, the term's place, and the bits of its score. Scores are
/// never negative, so their bits compare as the scores do.
type Head = Reverse<(Bytes, usize, u64)>;

/// What the rows of the stage have to contain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Give {
    /// The records. A document is read only if it is needed for matching.
    Records,
    /// The documents, with scores if they are asked for.
    Documents,
    /// The scores, without documents.
    Scores,
}

/// The stage that matches a `$text`.
pub(crate) struct TextMatch {
    access: Arc<TextAccess>,
    limits: SortLimits,
    want_info: bool,
    /// True if documents are read.
    fetches: bool,
    /// True if rows have their scores attached.
    scores: bool,
    postings: Vec<Posting>,
    /// The terms whose next entry has to be read.
    due: Vec<usize>,
    heads: BinaryHeap<Head>,
    /// The last record given or passed over; the stage continues after it.
    last: Option<Bytes>,
    docs: u64,
    rejected: u64,
    pub(super) stats: Stats,
}

impl TextMatch {
    /// The stage over `access`.
    pub(crate) fn new(access: Arc<TextAccess>, recipe: &Recipe, give: Give) -> TextMatch {
        let scores = recipe.metadata.has(Meta::TextScore);
        let fetches = match give {
            Give::Documents => true,
            Give::Records => scores || !access.is_exact(),
            Give::Scores => !access.is_exact(),
        };
        let index = access.index();
        let postings: Vec<Posting> = access
            .search
            .terms()
            .filter_map(|t| {
                Some(Posting {
                    range: index?.postings(&access.before, t),
                    source: None,
                    done: false,
                    examined: 0,
                })
            })
            .collect();
        TextMatch {
            fetches,
            scores,
            due: (0..postings.len()).rev().collect(),
            postings,
            access,
            limits: recipe.sort_limits.clone(),
            want_info: recipe.want_info,
            heads: BinaryHeap::new(),
            last: None,
            docs: 0,
            rejected: 0,
            stats: Stats::default(),
        }
    }

    /// Reads the next entry of every term that is due. Returns false if the budget ended first.
    fn refill(&mut self, cx: &mut Cx) -> Result<bool> {
        let access = self.access.clone();
        let Some(index) = access.index() else {
            return Ok(true);
        };
        while let Some(&at) = self.due.last() {
            if cx.budget <= 0 {
                return Ok(false);
            }
            let Some(p) = self.postings.get_mut(at) else {
                self.due.pop();
                continue;
            };
            if p.source.is_none() && !p.done {
                p.source = Some(open(
                    p,
                    &access,
                    index,
                    self.last.as_ref(),
                    &self.limits,
                    cx,
                )?);
            }
            cx.step();
            self.stats.works += 1;
            let next = match &mut p.source {
                None => None,
                Some(Source::Held(list)) => list.next(),
                Some(Source::Cursor(c)) => c.next(cx.work().operation())?.map(|e| {
                    cx.keys += 1;
                    p.examined += 1;
                    (e.record_key, index.score(&e.type_bits))
                }),
            };
            match next {
                Some((record, score)) => self.heads.push(Reverse((record, at, score.to_bits()))),
                None => {
                    p.done = true;
                    p.source = None;
                }
            }
            self.due.pop();
        }
        Ok(true)
    }

    /// Takes the entries of the first record, and returns its key and score.
    fn first(&mut self) -> Option<(Bytes, f64)> {
        let Reverse((record, at, bits)) = self.heads.pop()?;
        self.due.push(at);
        let mut score = f64::from_bits(bits);
        while let Some(Reverse((other, _, _))) = self.heads.peek()
            && *other == record
            && let Some(Reverse((_, at, bits))) = self.heads.pop()
        {
            self.due.push(at);
            score += f64::from_bits(bits);
        }
        Some((record, score))
    }

    /// Reads and matches the row's document. Returns false if the row is not to be given.
    fn take(&mut self, row: &mut Row, cx: &mut Cx) -> Result<bool> {
        if !self.fetches {
            return Ok(true);
        }
        if !fetch(row, cx)? {
            return Ok(false);
        }
        self.docs += 1;
        if let Some(f) = &self.access.filter {
            match matches(f, &row.doc, self.want_info, cx.work())? {
                Some(info) => row.info = info,
                None => return Ok(false),
            }
        }
        let accepted = self.access.search.accepts(Doc::new(&row.doc))?;
        self.rejected += u64::from(!accepted);
        Ok(accepted)
    }

    pub(super) fn next(&mut self, cx: &mut Cx) -> Result<Step> {
        loop {
            if !self.refill(cx)? {
                return Ok(Step::Pause);
            }
            let Some((record_key, score)) = self.first() else {
                self.stats.eof = true;
                return Ok(Step::Eof);
            };
            self.last = Some(record_key.clone());
            let mut row = Row {
                record_key,
                ..Row::default()
            };
            if self.take(&mut row, cx)? {
                if self.scores {
                    let score = (Meta::TextScore, Value::Double(score));
                    let doc = match row.doc.is_empty() {
                        true => Doc::EMPTY,
                        false => Doc::new(&row.doc),
                    };
                    row.doc = attach(doc, &[score]);
                }
                self.stats.advanced += 1;
                return Ok(Step::Row(row));
            }
        }
    }

    pub(super) fn save(&mut self) {
        // The entries after the last record are read again for every term.
        self.heads.clear();
        self.due.clear();
        for (at, p) in self.postings.iter_mut().enumerate().rev() {
            p.source = None;
            if !p.done {
                self.due.push(at);
            }
        }
        self.stats.saves += 1;
    }

    pub(super) fn explain(&self, exec: bool) -> DocBuf {
        let spec = self.access.info.index.spec();
        let mut d = doc! { "stage": "TEXT_MATCH" };
        if exec {
            self.stats.append(&mut d);
        }
        let mut prefix = DocBuf::new();
        let fields = self.access.index().map_or(&[][..], |i| i.before());
        for ((path, _), v) in fields.iter().zip(&self.access.before) {
            prefix.append(path.as_str(), v);
        }
        d.append("indexPrefix", prefix);
        d.append("indexName", spec.name.as_str());
        d.append("parsedTextQuery", self.access.search.to_doc());
        d.append("textIndexVersion", 3);
        if exec {
            d.append("docsRejected", self.rejected as i64);
        }
        d.append("inputStage", self.below(exec));
        d
    }

    /// The stages below TEXT_MATCH, under MongoDB's names.
    fn below(&self, exec: bool) -> DocBuf {
        let mut scans: Vec<DocBuf> = self.postings.iter().map(|p| self.scan(p, exec)).collect();
        if self.scores {
            let mut d = doc! { "stage": "TEXT_OR" };
            if let Some(f) = &self.access.filter {
                d.append("filter", f.to_doc());
            }
            if exec {
                self.stats.append(&mut d);
                d.append("docsExamined", self.docs as i64);
            }
            d.append("inputStages", scans.into_iter().collect::<ArrayBuf>());
            return d;
        }
        let input = match scans.len() {
            1 => scans.pop().unwrap_or_default(),
            _ => {
                let mut d = doc! { "stage": "OR" };
                if exec {
                    self.stats.append(&mut d);
                }
                let inputs: ArrayBuf = scans.into_iter().collect();
                d.append("inputStages", inputs);
                d
            }
        };
        if !self.fetches {
            return input;
        }
        let mut d = doc! { "stage": "FETCH" };
        if let Some(f) = &self.access.filter {
            d.append("filter", f.to_doc());
        }
        if exec {
            self.stats.append(&mut d);
            d.append("docsExamined", self.docs as i64);
        }
        d.append("inputStage", input);
        d
    }

    fn scan(&self, p: &Posting, exec: bool) -> DocBuf {
        let info = &self.access.info;
        let spec = info.index.spec();
        let mut d = doc! { "stage": "IXSCAN" };
        if exec {
            let stats = Stats {
                works: p.examined,
                advanced: p.examined,
                eof: p.done,
                saves: self.stats.saves,
                ..Stats::default()
            };
            stats.append(&mut d);
        }
        d.append("keyPattern", &spec.key);
        d.append("indexName", spec.name.as_str());
        d.append("isMultiKey", info.is_multikey);
        d.append("isUnique", spec.unique);
        d.append("isSparse", spec.sparse);
        d.append("isPartial", spec.partial_filter.is_some());
        d.append("indexVersion", 2);
        d.append("direction", "forward");
        d.append("indexBounds", DocBuf::new());
        if exec {
            d.append("keysExamined", p.examined as i64);
        }
        d
    }
}

/// Reads the documents of sorted scores.
pub(crate) struct Load {
    pub(super) input: Stage,
    access: Arc<TextAccess>,
    /// True after the snapshot was released: documents may have changed since the search.
    check: bool,
    pub(super) stats: Stats,
}

impl Load {
    /// True if the sort needs only scores, and the index alone decides what matches.
    pub(crate) fn can(access: &TextAccess, sort: &SortSpec) -> bool {
        let by_score = |k: &SortKey| k.meta == Some(Meta::TextScore);
        access.is_exact() && sort.keys().iter().all(by_score)
    }

    /// Reads the documents of the rows of `input`.
    pub(crate) fn new(input: Stage, access: Arc<TextAccess>) -> Load {
        Load {
            input,
            access,
            check: false,
            stats: Stats::default(),
        }
    }

    pub(super) fn next(&mut self, cx: &mut Cx) -> Result<Step> {
        loop {
            let mut row = match self.input.next(cx)? {
                Step::Row(row) => row,
                Step::Pause => return Ok(Step::Pause),
                Step::Eof => {
                    self.stats.eof = true;
                    return Ok(Step::Eof);
                }
            };
            self.stats.works += 1;
            let found = std::mem::take(&mut row.doc);
            if !fetch(&mut row, cx)?
                || self.check && !self.access.search.matches(Doc::new(&row.doc))?
            {
                continue;
            }
            row.doc = [&row.doc, Doc::new(&found).behind()].concat().into();
            self.stats.advanced += 1;
            return Ok(Step::Row(row));
        }
    }

    pub(super) fn save(&mut self) {
        self.check = true;
        self.input.save();
    }

    pub(super) fn explain(&self, exec: bool) -> DocBuf {
        let mut d = doc! { "stage": "FETCH" };
        if exec {
            self.stats.append(&mut d);
            d.append("docsExamined", self.stats.works as i64);
        }
        d.append("inputStage", self.input.explain(exec));
        d
    }
}

/// Opens the entries of a term after the record `last`.
fn open(
    p: &mut Posting,
    access: &TextAccess,
    index: &dyn TextIndex,
    last: Option<&Bytes>,
    limits: &SortLimits,
    cx: &mut Cx,
) -> Result<Source> {
    let collection = cx.collection.clone();
    let mut range = p.range.clone();
    if index.by_record() {
        if let (Some(last), Bound::Included(term)) = (last, &p.range.low) {
            range.low = Bound::Excluded([term.as_slice(), last].concat());
        }
        let entries =
            cx.snapshot()?
                .entries(&collection, &access.info.index, &range, Direction::Forward);
        return Ok(Source::Cursor(Box::new(entries)));
    }
    let mut entries =
        cx.snapshot()?
            .entries(&collection, &access.info.index, &range, Direction::Forward);
    let (mut held, mut bytes) = (Vec::new(), 0);
    while let Some(e) = entries.next(cx.work().operation())? {
        cx.keys += 1;
        p.examined += 1;
        if p.examined.is_multiple_of(LOOK) {
            cx.interrupt().check()?;
        }
        if last.is_some_and(|l| e.record_key <= *l) {
            continue;
        }
        bytes += e.record_key.len() + HELD;
        if bytes > limits.memory {
            return Err(Error::new(
                Code::ExceededMemoryLimit,
                format!(
                    "sorting the entries of one term of a unique text index exceeded the memory \
                     limit of {} bytes",
                    limits.memory
                ),
            ));
        }
        held.push((
            Bytes::copy_from_slice(&e.record_key),
            index.score(&e.type_bits),
        ));
    }
    held.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Source::Held(held.into_iter()))
}
