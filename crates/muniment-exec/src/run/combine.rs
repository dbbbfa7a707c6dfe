//! The stages FETCH, SKIP and OR, and Cover, which takes FETCH's place in a covered plan.

use super::scan::matches;
use super::seen::Seen;
use super::sort::SortLimits;
use super::wrap;
use super::{Cx, Row, Stage, Stats, Step};
use crate::plan::key_doc::KeyDoc;
use muniment_query::{Filter, MatchInfo};
use muniment_value::{ArrayBuf, DocBuf, Result, doc};
use std::sync::Arc;

/// Reads the documents of index keys and matches the part of the filter that the index left open.
pub(crate) struct Fetch {
    pub(super) input: Stage,
    filter: Option<Filter>,
    want_info: bool,
    examined: u64,
    pub(super) stats: Stats,
}

impl Fetch {
    /// A fetch above `input`.
    pub(crate) fn new(input: Stage, filter: Option<Filter>, want_info: bool) -> Fetch {
        Fetch {
            input,
            filter,
            want_info,
            examined: 0,
            stats: Stats::default(),
        }
    }

    pub(super) fn next(&mut self, cx: &mut Cx) -> Result<Step> {
        loop {
            self.stats.works += 1;
            let mut row = match self.input.next(cx)? {
                Step::Row(row) => row,
                Step::Pause => {
                    self.stats.works -= 1;
                    return Ok(Step::Pause);
                }
                Step::Eof => {
                    self.stats.works -= 1;
                    self.stats.eof = true;
                    return Ok(Step::Eof);
                }
            };
            if !fetch(&mut row, cx)? {
                continue;
            }
            self.examined += 1;
            if let Some(f) = &self.filter {
                match matches(f, &row.doc, self.want_info, cx.work())? {
                    Some(info) => row.info = info,
                    None => continue,
                }
            }
            self.stats.advanced += 1;
            return Ok(Step::Row(row));
        }
    }

    pub(super) fn explain(&self, exec: bool) -> DocBuf {
        if let Stage::IxScan(scan) = &self.input
            && scan.is_clustered()
        {
            // The rows of a clustered scan are documents already, so there is no FETCH to show.
            let mut stats = scan.stats;
            stats.advanced = self.stats.advanced;
            return scan.explain_clustered(exec, self.filter.as_ref(), &stats);
        }
        let mut d = doc! { "stage": "FETCH" };
        if let Some(f) = &self.filter {
            d.append("filter", f.to_doc());
        }
        if exec {
            self.stats.append(&mut d);
            d.append("docsExamined", self.examined as i64);
            d.append("alreadyHasObj", 0_i64);
        }
        d.append("inputStage", self.input.explain(exec));
        d
    }
}

/// Reads the row's document. Returns false if the document has been deleted.
pub(crate) fn fetch(row: &mut Row, cx: &mut Cx) -> Result<bool> {
    cx.docs += 1;
    if !row.doc.is_empty() {
        return Ok(true);
    }
    let collection = cx.collection.clone();
    match cx.snapshot()?.get(&collection, &row.record_key)? {
        Some(doc) => {
            row.doc = doc;
            Ok(true)
        }
        None => Ok(false),
    }
}

/// Leaves out the first rows. It is placed below a FETCH that has no filter, so that the skipped
/// documents are never read.
pub(crate) struct Skip {
    pub(super) input: Stage,
    amount: u64,
    left: u64,
    pub(super) stats: Stats,
}

impl Skip {
    /// Skips the first `amount` rows of `input`.
    pub(crate) fn new(input: Stage, amount: u64) -> Skip {
        Skip {
            input,
            amount,
            left: amount,
            stats: Stats::default(),
        }
    }

    pub(super) fn next(&mut self, cx: &mut Cx) -> Result<Step> {
        loop {
            let row = match self.input.next(cx)? {
                Step::Row(row) => row,
                Step::Pause => return Ok(Step::Pause),
                Step::Eof => {
                    self.stats.eof = true;
                    return Ok(Step::Eof);
                }
            };
            self.stats.works += 1;
            if self.left > 0 {
                self.left -= 1;
                continue;
            }
            self.stats.advanced += 1;
            return Ok(Step::Row(row));
        }
    }

    pub(super) fn explain(&self, exec: bool) -> DocBuf {
        let amount = self.amount as i64;
        let more = |d: &mut DocBuf| {
            d.append("skipAmount", amount);
        };
        wrap("SKIP", exec, self.stats, more, self.input.explain(exec))
    }
}

/// Makes the documents of a covered plan from index keys. The few documents that the keys leave in
/// doubt are read. A row whose key is empty afterwards has the stored document.
pub(crate) struct Cover {
    pub(super) input: Stage,
    keys: Arc<KeyDoc>,
}

impl Cover {
    /// Makes documents from the keys of `input`.
    pub(crate) fn new(input: Stage, keys: Arc<KeyDoc>) -> Cover {
        Cover { input, keys }
    }

    pub(super) fn next(&mut self, cx: &mut Cx) -> Result<Step> {
        loop {
            let mut row = match self.input.next(cx)? {
                Step::Row(row) => row,
                end => return Ok(end),
            };
            let mut doc = Vec::with_capacity(row.key.len() + 64);
            if self.keys.append(&row.key, &row.bits, &mut doc)? {
                row.doc = doc.into();
            } else if fetch(&mut row, cx)? {
                row.key.clear();
            } else {
                continue;
            }
            return Ok(Step::Row(row));
        }
    }
}

/// Runs several scans one after the other, and gives a document that two of them find only once. A
/// scan is made when its turn comes, because there may be very many.
pub(crate) struct Or {
    inputs: Inputs,
    /// The inputs that have ended, for explain. Only the first ones are kept.
    done: Vec<Stage>,
    running: Option<Stage>,
    at: usize,
    seen: Seen,
    pub(super) stats: Stats,
}

/// The inputs of an OR, made one by one.
pub(crate) struct Inputs {
    /// The number of inputs.
    pub len: usize,
    /// Makes the n-th input.
    pub make: Box<dyn Fn(usize) -> Stage + Send>,
}

/// The most branches of an `$or` that explain shows.
pub(crate) const SHOWN: usize = 1000;

impl Or {
    /// An OR over `inputs`.
    pub(crate) fn new(inputs: Inputs, limits: SortLimits) -> Or {
        Or {
            inputs,
            done: Vec::new(),
            running: None,
            at: 0,
            seen: Seen::new(limits),
            stats: Stats::default(),
        }
    }

    pub(super) fn next(&mut self, cx: &mut Cx) -> Result<Step> {
        while self.at < self.inputs.len {
            let input = match &mut self.running {
                Some(s) => s,
                None => self.running.insert((self.inputs.make)(self.at)),
            };
            let mut row = match input.next(cx)? {
                Step::Row(row) => row,
                Step::Pause => return Ok(Step::Pause),
                Step::Eof => {
                    self.at += 1;
                    let over = self.running.take();
                    self.done.extend(over.filter(|_| self.at <= SHOWN));
                    continue;
                }
            };
            self.stats.works += 1;
            if !self.seen.insert(&row.record_key, cx)? {
                continue;
            }
            row.info = MatchInfo::default();
            self.stats.advanced += 1;
            return Ok(Step::Row(row));
        }
        self.stats.eof = true;
        Ok(Step::Eof)
    }

    pub(super) fn save(&mut self) {
        if let Some(s) = &mut self.running {
            s.save();
        }
    }

    pub(super) fn explain(&self, exec: bool) -> DocBuf {
        let mut d = doc! { "stage": "OR" };
        if exec {
            self.stats.append(&mut d);
            d.append("dupsTested", self.seen.tested as i64);
            d.append("dupsDropped", self.seen.dropped as i64);
        }
        let mut inputs = ArrayBuf::new();
        for i in 0..self.inputs.len.min(SHOWN) {
            let running = self.running.as_ref().filter(|_| i == self.at);
            inputs.push(match self.done.get(i).or(running) {
                Some(stage) => stage.explain(exec),
                None => (self.inputs.make)(i).explain(exec),
            });
        }
        d.append("inputStages", inputs);
        if self.inputs.len > SHOWN {
            d.append("warning", TOO_LARGE);
        }
        d
    }
}

/// The warning in place of stages that explain leaves out.
const TOO_LARGE: &str = "stats tree exceeded BSON size limit for explain";
