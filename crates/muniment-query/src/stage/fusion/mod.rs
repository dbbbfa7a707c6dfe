//! `$rankFusion`, and the code that it would share with other fusions: several pipelines over one collection.
//! Each document comes out once, with a score that is computed from its place in each of the pipelines.
//!
//! It is an execution stage of its own, and is not rewritten into other stages. The documents of all inputs
//! go through a sort by `_id`, which brings the entries of one document together, and then through a second
//! sort by score. Both can spill, so no input needs to fit into memory.

mod rank;
mod spec;

pub(crate) use rank::SPEC as RANK;

use super::facet::Kept;
use super::pipeline::Pipeline;
use super::sorter::Sorter;
use super::spool::Spool;
use super::{DocStream, StageOp, Ticker};
use crate::context::{QueryContext, Runtime};
use crate::meta::{Meta, MetaSet, Metadata, attach, without};
use crate::sort::SortSpec;
use bytes::Bytes;
use muniment_value::{ArrayBuf, Doc, DocBuf, Error, Result, Value, keyenc};
use std::fmt::Debug;
use std::sync::Arc;

/// One input.
#[derive(Debug)]
pub(super) struct Input {
    name: String,
    weight: f64,
    stages: ArrayBuf,
    /// The parsed stages, for a pipeline over the documents of a `$facet`.
    parsed: Pipeline,
    order: Order,
}

/// The order by which an input's documents are ranked.
#[derive(Debug)]
pub(super) enum Order {
    /// The order of the input's last `$sort`.
    Sort(SortSpec),
    /// The distance that the input's `$geoNear` measured.
    Distance,
}

impl Order {
    /// Appends the key that is the same for all documents of one rank.
    fn key(&self, doc: Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Order::Sort(spec) => spec.key(doc, out),
            Order::Distance => {
                let distance = Meta::GeoNearDistance.of(doc).unwrap_or(Value::Null);
                keyenc::encode(distance, false, out);
                Ok(())
            }
        }
    }
}

/// A parsed fusion by rank.
#[derive(Debug)]
pub(super) struct Fusion {
    inputs: Vec<Input>,
    /// Whether documents get `scoreDetails`.
    details: bool,
    /// The context of the inputs.
    ctx: QueryContext,
}

impl StageOp for Fusion {
    fn metadata(&self, _: MetaSet) -> MetaSet {
        let given = MetaSet::NONE.with(Meta::Score);
        if self.details {
            given.with(Meta::ScoreDetails)
        } else {
            given
        }
    }

    fn open(
        self: Arc<Self>,
        source: Box<dyn DocStream>,
        rt: &Runtime,
    ) -> Result<Box<dyn DocStream>> {
        // Each of the two sorts gets half of the memory, because both hold data at the same time.
        let sorter = || Sorter::new(None, rt.memory_limit / 2, &rt.ledger);
        Ok(Box::new(FusionStream {
            source: Some(source),
            metadata: self.ctx.metadata.clone(),
            spec: self,
            by_id: sorter(),
            by_score: sorter(),
            rt: rt.clone(),
            ticker: Ticker::new(rt),
        }))
    }

    fn is_source(&self) -> bool {
        true
    }

    fn refuses_time_series(&self) -> Option<Error> {
        Some(Error::location(
            10_557_301,
            format!("{} is unsupported on timeseries collections", rank::NAME),
        ))
    }
}

struct FusionStream {
    spec: Arc<Fusion>,
    /// The documents of a `$facet`. Elsewhere the inputs read the collection themselves.
    source: Option<Box<dyn DocStream>>,
    metadata: Metadata,
    by_id: Sorter,
    by_score: Sorter,
    rt: Runtime,
    ticker: Ticker,
}

/// The bytes before an entry's `_id` key: the length of that key, the input, and the rank.
const HEAD: usize = 16;

/// The entry of a document in one input.
struct Entry {
    id: Bytes,
    input: usize,
    rank: u64,
    doc: Bytes,
}

impl Entry {
    fn unpack(payload: &Bytes) -> Option<Entry> {
        let number = |at: usize| {
            let b = payload.get(at..at + 4)?;
            b.try_into().ok().map(u32::from_le_bytes)
        };
        let rank = payload
            .get(8..HEAD)?
            .try_into()
            .ok()
            .map(u64::from_le_bytes)?;
        let end = HEAD + number(0)? as usize;
        (end <= payload.len()).then(|| Entry {
            id: payload.slice(HEAD..end),
            input: number(4).map_or(0, |n| n as usize),
            rank,
            doc: payload.slice(end..),
        })
    }
}

/// A document whose entries are being read.
struct Candidate {
    id: Bytes,
    doc: Bytes,
    ranks: Vec<Option<u64>>,
}

impl FusionStream {
    /// Reads all inputs.
    fn gather(&mut self, mut source: Box<dyn DocStream>) -> Result<()> {
        let spec = Arc::clone(&self.spec);
        let mut spool = None;
        if spec.ctx.in_facet {
            let mut docs = Spool::new(rank::NAME);
            while let Some(doc) = source.next()? {
                self.ticker.tick()?;
                docs.push(without(doc), &self.rt, &self.ticker)?;
            }
            docs.finish()?;
            spool = Some(Arc::new(docs));
        }
        drop(source);
        for (i, input) in spec.inputs.iter().enumerate() {
            let stream = match &spool {
                Some(docs) => {
                    let kept = Box::new(Kept::new(Arc::clone(docs)));
                    input.parsed.clone().open(kept, &self.rt)?
                }
                None => self.rt.host.pipeline(input.stages.as_doc(), &spec.ctx)?,
            };
            self.rank(i, &input.order, stream)?;
        }
        self.by_id.finish(&self.rt)
    }

    /// Adds the documents of an input with their ranks. Documents that sort alike share a rank, and the next
    /// rank counts all of them.
    fn rank(&mut self, input: usize, order: &Order, mut stream: Box<dyn DocStream>) -> Result<()> {
        let mut seen = 0_u64;
        let mut rank = 0_u64;
        let (mut key, mut last, mut id) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(row) = stream.next()? {
            self.ticker.tick()?;
            let doc = Doc::new(&row);
            seen += 1;
            key.clear();
            order.key(doc, &mut key)?;
            if seen == 1 || key != last {
                rank = seen;
            }
            std::mem::swap(&mut key, &mut last);
            id.clear();
            keyenc::encode(doc.get("_id").unwrap_or(Value::Null), false, &mut id);
            let mut head = [0_u8; HEAD];
            let (numbers, place) = head.split_at_mut(8);
            let (len, number) = numbers.split_at_mut(4);
            len.copy_from_slice(&(id.len() as u32).to_le_bytes());
            number.copy_from_slice(&(input as u32).to_le_bytes());
            place.copy_from_slice(&rank.to_le_bytes());
            // The sort is stable, so the entries of a document stay in the order of the inputs.
            if self.by_id.push(&id, &[&head, &id, doc.as_bytes()])? {
                self.by_id.spill(&self.rt)?;
            }
        }
        Ok(())
    }

    /// Computes the score of every document.
    fn combine(&mut self) -> Result<()> {
        let mut current: Option<Candidate> = None;
        while let Some(payload) = self.by_id.next()? {
            self.ticker.tick()?;
            let entry = Entry::unpack(&payload)
                .ok_or_else(|| Error::internal("an entry of a fusion is cut short"))?;
            let mut candidate = match current.take() {
                Some(c) if c.id == entry.id => c,
                other => {
                    if let Some(done) = other {
                        self.score(&done)?;
                    }
                    Candidate {
                        id: entry.id,
                        doc: entry.doc,
                        ranks: vec![None; self.spec.inputs.len()],
                    }
                }
            };
            if let Some(r) = candidate.ranks.get_mut(entry.input) {
                r.get_or_insert(entry.rank);
            }
            current = Some(candidate);
        }
        if let Some(done) = current {
            self.score(&done)?;
        }
        self.by_score.finish(&self.rt)
    }

    fn score(&mut self, c: &Candidate) -> Result<()> {
        let score = rank::score(&self.spec.inputs, &c.ranks);
        let asked = self.metadata.asked();
        let details: DocBuf;
        let mut kinds = Vec::new();
        if asked.has(Meta::Score) {
            kinds.push((Meta::Score, Value::Double(score)));
        }
        if self.spec.details && asked.has(Meta::ScoreDetails) {
            details = rank::details(&self.spec.inputs, &c.ranks, score);
            kinds.push((Meta::ScoreDetails, Value::Document(details.as_doc())));
        }
        let doc = match kinds.as_slice() {
            [] => c.doc.clone(),
            kinds => attach(Doc::new(&c.doc), kinds),
        };
        let mut key = Vec::new();
        keyenc::encode(Value::Double(score), true, &mut key);
        key.extend_from_slice(&c.id);
        if self.by_score.push(&key, &[&doc])? {
            self.by_score.spill(&self.rt)?;
        }
        Ok(())
    }
}

impl DocStream for FusionStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        if let Some(source) = self.source.take() {
            self.gather(source)?;
            self.combine()?;
        }
        self.ticker.tick()?;
        self.by_score.next()
    }
}
