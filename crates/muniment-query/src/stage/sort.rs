//! `$sort`, and find's sort without an index.
//!
//! With a limit only the best documents are ever held (`top_k`). Without one, keys and documents
//! are copied into large blocks until the memory limit, sorted, and spilled as runs that are
//! merged at the end. The sort is stable.

use super::external::{Merge, Runs};
use super::registry::{Place, Spec};
use super::top_k::TopK;
use super::{DocStream, Stage, Ticker};
use crate::context::{QueryContext, Runtime};
use crate::sort::SortSpec;
use bytes::Bytes;
use muniment_value::{Doc, Elem, Error, Result, Value};

pub(crate) const SPEC: Spec = Spec {
    name: "$sort",
    doc: "Sorts the documents.",
    place: Place::ANYWHERE,
    parse,
};

fn parse(e: Elem<'_>, _: &QueryContext, stages: &mut Vec<Stage>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::location(
            15973,
            "the $sort key specification must be an object",
        ));
    };
    if d.is_empty() {
        return Err(Error::location(
            15976,
            "$sort stage must have at least one sort key",
        ));
    }
    stages.push(Stage::Sort(SortSpec::parse(d)?));
    Ok(())
}

/// Where one document lies in the blocks.
#[derive(Clone, Copy)]
struct Entry {
    /// The first bytes of the key, big-endian: most comparisons end here.
    prefix: u64,
    block: u32,
    at: u32,
    key_len: u32,
    doc_len: u32,
}

const FIRST_BLOCK: usize = 16 * 1024;
const BLOCK: usize = 1024 * 1024;

/// Keys and documents in memory.
#[derive(Default)]
pub(crate) struct Buffer {
    blocks: Vec<Vec<u8>>,
    entries: Vec<Entry>,
    bytes: usize,
}

fn prefix(key: &[u8]) -> u64 {
    let mut p = [0u8; 8];
    for (to, from) in p.iter_mut().zip(key) {
        *to = *from;
    }
    u64::from_be_bytes(p)
}

impl Buffer {
    /// Bytes held, with what the bookkeeping needs.
    pub fn memory(&self) -> usize {
        self.bytes + self.entries.capacity() * size_of::<Entry>()
    }

    pub fn push(&mut self, key: &[u8], doc: &[u8]) -> Result<()> {
        let need = key.len() + doc.len();
        let full = self
            .blocks
            .last()
            .is_none_or(|b| b.capacity() - b.len() < need);
        if full {
            let size = self
                .blocks
                .last()
                .map_or(FIRST_BLOCK, |b| (b.capacity() * 2).min(BLOCK))
                .max(need);
            self.blocks.push(Vec::with_capacity(size));
            self.bytes += size;
        }
        let block = self.blocks.len() - 1;
        let Some(b) = self.blocks.last_mut() else {
            return Err(Error::internal("a sort has no block to write to"));
        };
        let fits = |n: usize| {
            u32::try_from(n).map_err(|_| Error::internal("a sort's buffer is out of range"))
        };
        let entry = Entry {
            prefix: prefix(key),
            block: fits(block)?,
            at: fits(b.len())?,
            key_len: fits(key.len())?,
            doc_len: fits(doc.len())?,
        };
        b.extend_from_slice(key);
        b.extend_from_slice(doc);
        self.entries.push(entry);
        Ok(())
    }

    fn key(blocks: &[Vec<u8>], e: Entry) -> &[u8] {
        let at = e.at as usize;
        blocks
            .get(e.block as usize)
            .and_then(|b| b.get(at..at + e.key_len as usize))
            .unwrap_or_default()
    }

    fn doc(blocks: &[Vec<u8>], e: Entry) -> &[u8] {
        let at = e.at as usize + e.key_len as usize;
        blocks
            .get(e.block as usize)
            .and_then(|b| b.get(at..at + e.doc_len as usize))
            .unwrap_or_default()
    }

    pub fn sort(&mut self) {
        let Buffer {
            blocks, entries, ..
        } = self;
        entries.sort_by(|a, b| {
            a.prefix
                .cmp(&b.prefix)
                .then_with(|| Buffer::key(blocks, *a).cmp(Buffer::key(blocks, *b)))
        });
    }

    /// Writes all as one run and starts over.
    fn spill(&mut self, runs: &mut Runs, ticker: &mut Ticker) -> Result<()> {
        self.sort();
        let blocks = &self.blocks;
        let records = self
            .entries
            .iter()
            .map(|e| (Buffer::key(blocks, *e), Buffer::doc(blocks, *e)));
        runs.write(records, ticker)?;
        *self = Buffer::default();
        Ok(())
    }
}

/// A sorted stream.
pub struct SortStream {
    state: State,
    spec: SortSpec,
    rt: Runtime,
    ticker: Ticker,
    limit: Option<u64>,
    spilled_bytes: u64,
}

enum State {
    Fresh(Box<dyn DocStream>),
    Memory {
        blocks: Vec<Bytes>,
        entries: std::vec::IntoIter<Entry>,
    },
    Few(std::vec::IntoIter<Bytes>),
    Merging(Merge),
    Done,
}

impl SortStream {
    /// `source` in the order of `spec`, or the first `limit` documents of it. Nothing is read
    /// before the first call of `next`.
    pub fn new(
        source: Box<dyn DocStream>,
        spec: SortSpec,
        limit: Option<u64>,
        rt: &Runtime,
    ) -> SortStream {
        SortStream {
            state: State::Fresh(source),
            spec,
            rt: rt.clone(),
            ticker: Ticker::new(rt),
            limit,
            spilled_bytes: 0,
        }
    }

    /// Bytes that were written to the disk, for `explain`'s usedDisk and spilledBytes.
    pub fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes
    }

    fn consume(&mut self, mut source: Box<dyn DocStream>) -> Result<State> {
        let mut buffer = Buffer::default();
        let mut runs: Option<Runs> = None;
        let mut top = self
            .limit
            .and_then(|n| usize::try_from(n).ok())
            .map(TopK::new);
        let mut key = Vec::new();
        while let Some(doc) = source.next()? {
            self.ticker.tick()?;
            key.clear();
            self.spec.key(Doc::new(&doc), &mut key)?;
            match &mut top {
                Some(t) => {
                    t.push(&key, &doc);
                    if t.memory() > self.rt.memory_limit {
                        // The best alone do not fit: sort everything, and cut at the end.
                        for (key, doc) in t.take() {
                            buffer.push(&key, &doc)?;
                        }
                        top = None;
                    }
                }
                None => buffer.push(&key, &doc)?,
            }
            if buffer.memory() > self.rt.memory_limit {
                let runs = match &mut runs {
                    Some(r) => r,
                    None => runs.insert(Runs::new(&self.rt, "Sort")?),
                };
                buffer.spill(runs, &mut self.ticker)?;
            }
        }
        drop(source);
        if let Some(t) = top {
            return Ok(State::Few(t.into_sorted().into_iter()));
        }
        if let Some(mut runs) = runs {
            if !buffer.entries.is_empty() {
                buffer.spill(&mut runs, &mut self.ticker)?;
            }
            self.spilled_bytes = runs.bytes();
            return Ok(State::Merging(runs.merge()?));
        }
        buffer.sort();
        Ok(State::Memory {
            blocks: buffer.blocks.into_iter().map(Bytes::from).collect(),
            entries: buffer.entries.into_iter(),
        })
    }
}

impl DocStream for SortStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        if self.limit == Some(0) {
            self.state = State::Done;
        }
        if let State::Fresh(_) = self.state
            && let State::Fresh(source) = std::mem::replace(&mut self.state, State::Done)
        {
            self.state = self.consume(source)?;
        }
        self.ticker.tick()?;
        let next = match &mut self.state {
            State::Memory { blocks, entries } => match entries.next() {
                Some(e) => {
                    let at = e.at as usize + e.key_len as usize;
                    blocks
                        .get(e.block as usize)
                        .map(|b| b.slice(at..at + e.doc_len as usize))
                }
                None => None,
            },
            State::Few(docs) => docs.next(),
            State::Merging(merge) => merge.next()?.map(|r| r.doc.into()),
            State::Fresh(_) | State::Done => None,
        };
        if next.is_none() {
            self.state = State::Done;
        } else if let Some(limit) = &mut self.limit {
            *limit = limit.saturating_sub(1);
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::stage::testing::{Docs, drain, run, show, table};
    use muniment_value::{DocBuf, doc};

    #[test]
    fn table_of_sort() {
        table(&[
            ("[{a:2},{a:1},{}]", "[{$sort:{a:1}}]", "[{},{a:1},{a:2}]"),
            ("[{a:2},{a:1},{}]", "[{$sort:{a:-1}}]", "[{a:2},{a:1},{}]"),
            (
                "[{a:1,b:1},{a:0,b:2},{a:1,b:3},{a:0,b:4}]",
                "[{$sort:{a:1}}]",
                "[{a:0,b:2},{a:0,b:4},{a:1,b:1},{a:1,b:3}]",
            ),
            (
                "[{a:3},{a:1},{a:2}]",
                "[{$sort:{a:1}},{$limit:2}]",
                "[{a:1},{a:2}]",
            ),
            (
                "[{a:3},{a:1},{a:2}]",
                "[{$sort:{a:1}},{$skip:1},{$limit:1}]",
                "[{a:2}]",
            ),
            (
                "[{a:3},{a:1},{a:2}]",
                "[{$sort:{a:1}},{$limit:2},{$skip:1}]",
                "[{a:2}]",
            ),
            (
                "[]",
                "[{$sort:{}}]",
                "15976: $sort stage must have at least one sort key",
            ),
            (
                "[]",
                "[{$sort:1}]",
                "15973: the $sort key specification must be an object",
            ),
        ]);
    }

    /// Pseudo-random documents with many equal keys; `i` tells the input order.
    fn input(n: i32) -> Vec<DocBuf> {
        let mut x = 12345u32;
        (0..n)
            .map(|i| {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                doc! { "k": ((x >> 16) % 50) as i32, "i": i, "pad": "x".repeat((x >> 24) as usize) }
            })
            .collect()
    }

    fn expected(n: i32) -> Vec<DocBuf> {
        let mut all = input(n);
        all.sort_by_key(|d| d.as_doc().get("k").unwrap().as_i64_exact());
        all
    }

    fn small(dir: Option<&std::path::Path>, limit: usize) -> Runtime {
        Runtime {
            memory_limit: limit,
            spill_dir: dir.map(std::path::Path::to_path_buf),
            ..Runtime::for_tests()
        }
    }

    #[test]
    fn spilled_and_kept_in_memory_agree_and_are_stable() {
        let dir = tempfile::tempdir().unwrap();
        // The smaller limit makes more runs than are merged at once.
        for limit in [20_000, 200_000] {
            let rt = small(Some(&dir.path().join("spill")), limit);
            let got = run(input(5000), "[{$sort:{k:1}}]", &rt).unwrap();
            assert!(got == expected(5000), "limit {limit}");
        }
        let left = std::fs::read_dir(dir.path().join("spill")).unwrap().count();
        assert_eq!(left, 0, "spill files outlive their sort");
        let got = run(input(5000), "[{$sort:{k:1}}]", &Runtime::for_tests()).unwrap();
        assert!(got == expected(5000));
    }

    #[test]
    fn spilling_must_be_allowed() {
        let e = run(input(5000), "[{$sort:{k:1}}]", &small(None, 20_000)).unwrap_err();
        assert_eq!(e.code().0, 292);
        assert!(
            e.message()
                .starts_with("Sort exceeded memory limit of 20000 bytes")
        );
    }

    #[test]
    fn top_k_agrees_and_needs_no_memory_for_the_rest() {
        let rt = small(None, 20_000);
        let got = run(input(5000), "[{$sort:{k:1}},{$limit:10}]", &rt).unwrap();
        assert_eq!(show(&got), show(&expected(5000)[..10]));
        // More than fits: falls back to the external sort.
        let dir = tempfile::tempdir().unwrap();
        let rt = small(Some(dir.path()), 20_000);
        let got = run(input(5000), "[{$sort:{k:1}},{$limit:3000}]", &rt).unwrap();
        assert!(got == expected(5000)[..3000]);
    }

    #[test]
    fn a_limit_of_nothing_reads_nothing() {
        let source = Box::new(Docs(input(10).into_iter()));
        let spec = SortSpec::parse(doc! { "k": 1 }.as_doc()).unwrap();
        let s = SortStream::new(source, spec, Some(0), &Runtime::for_tests());
        assert!(drain(Box::new(s)).unwrap().is_empty());
    }
}
