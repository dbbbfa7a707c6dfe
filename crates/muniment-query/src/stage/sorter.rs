//! The sort itself, over keys and payloads of bytes. `$sort` uses it for documents, and the executor for its
//! rows.
//!
//! With a limit, only the best entries are ever held (`top_k`). Without a limit, keys and payloads are copied
//! into large blocks, sorted in chunks that take some milliseconds each, spilled as merged runs above the
//! memory limit, and merged while they are read. No step is long, so the caller can stop between two steps.
//! The sort is stable.

use super::Ticker;
use super::external::{Merge, Runs};
use super::top_k::TopK;
use crate::context::Runtime;
use bytes::Bytes;
use muniment_op::{Account, Ledger, Share};
use muniment_value::{Error, Result};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// The number of entries that are sorted at once.
const CHUNK: usize = 1 << 16;

/// If the limit is higher than this, everything is sorted instead of keeping only the best.
const MAX_TOP: u64 = 1 << 16;

const FIRST_BLOCK: usize = 16 * 1024;
const BLOCK: usize = 1024 * 1024;

/// The place of one key and its payload in the blocks.
#[derive(Clone, Copy)]
struct Entry {
    /// The first bytes of the key, big-endian. They decide most comparisons.
    prefix: u64,
    block: u32,
    at: u32,
    key_len: u32,
    doc_len: u32,
}

/// Keys and payloads in memory, in the order in which they came.
#[derive(Default)]
struct Buffer {
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
    /// The bytes of the data and of the bookkeeping.
    fn memory(&self) -> usize {
        self.bytes + self.entries.capacity() * size_of::<Entry>()
    }

    fn push(&mut self, key: &[u8], payload: &[&[u8]]) -> Result<()> {
        let doc_len: usize = payload.iter().map(|p| p.len()).sum();
        let need = key.len() + doc_len;
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
            doc_len: fits(doc_len)?,
        };
        b.extend_from_slice(key);
        for part in payload {
            b.extend_from_slice(part);
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Sorts the entries of the buffer.
    fn seal(mut self) -> Chunk {
        let blocks = &self.blocks;
        let key = |e: &Entry| {
            let at = e.at as usize;
            blocks
                .get(e.block as usize)
                .and_then(|b| b.get(at..at + e.key_len as usize))
                .unwrap_or_default()
        };
        self.entries
            .sort_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| key(a).cmp(key(b))));
        Chunk {
            memory: self.memory(),
            blocks: self.blocks.into_iter().map(Bytes::from).collect(),
            entries: self.entries.into_iter(),
        }
    }
}

/// A sorted buffer.
struct Chunk {
    blocks: Vec<Bytes>,
    entries: std::vec::IntoIter<Entry>,
    memory: usize,
}

impl Chunk {
    fn next(&mut self) -> Option<(Bytes, Bytes)> {
        let e = self.entries.next()?;
        let block = self.blocks.get(e.block as usize)?;
        let (at, end) = (e.at as usize, (e.at + e.key_len) as usize);
        Some((
            block.slice(at..end),
            block.slice(end..end + e.doc_len as usize),
        ))
    }
}

/// Several chunks as one sorted sequence. Among equal keys, that of the oldest chunk comes first.
struct Chunks {
    chunks: Vec<Chunk>,
    heads: BinaryHeap<Reverse<(Bytes, usize)>>,
    payloads: Vec<Bytes>,
}

impl Chunks {
    fn of(mut chunks: Vec<Chunk>) -> Chunks {
        let mut heads = BinaryHeap::new();
        let mut payloads = vec![Bytes::new(); chunks.len()];
        // If there is only one chunk, no heap is needed.
        if chunks.len() > 1 {
            for (i, (chunk, payload)) in chunks.iter_mut().zip(&mut payloads).enumerate() {
                if let Some((key, doc)) = chunk.next() {
                    *payload = doc;
                    heads.push(Reverse((key, i)));
                }
            }
        }
        Chunks {
            chunks,
            heads,
            payloads,
        }
    }
}

impl Iterator for Chunks {
    type Item = (Bytes, Bytes);

    fn next(&mut self) -> Option<(Bytes, Bytes)> {
        if let [one] = self.chunks.as_mut_slice() {
            return one.next();
        }
        let Reverse((key, i)) = self.heads.pop()?;
        let payload = self.payloads.get_mut(i).map(std::mem::take)?;
        if let (Some(chunk), Some(slot)) = (self.chunks.get_mut(i), self.payloads.get_mut(i))
            && let Some((key, next)) = chunk.next()
        {
            *slot = next;
            self.heads.push(Reverse((key, i)));
        }
        Some((key, payload))
    }
}

/// The sorted output.
enum Output {
    Filling,
    Few(std::vec::IntoIter<Bytes>),
    Memory(Chunks),
    Disk(Merge),
}

/// A stable sort of payloads by keys that compare as bytes.
pub struct Sorter {
    left: u64,
    memory_limit: usize,
    share: Share,
    top: Option<TopK>,
    open: Buffer,
    sealed: Vec<Chunk>,
    sealed_memory: usize,
    runs: Option<Runs>,
    total: u64,
    spills: u64,
    spilled_bytes: u64,
    output: Output,
}

impl Sorter {
    /// A sort that returns everything, or the first `limit` payloads. It holds at most `memory_limit` bytes,
    /// or fewer if the ledger demands it.
    pub fn new(limit: Option<u64>, memory_limit: usize, ledger: &Arc<Ledger>) -> Sorter {
        Sorter {
            share: Share::new(ledger, Account::Stages),
            left: limit.unwrap_or(u64::MAX),
            memory_limit,
            top: limit
                .filter(|n| *n <= MAX_TOP)
                .map(|n| TopK::new(n as usize)),
            open: Buffer::default(),
            sealed: Vec::new(),
            sealed_memory: 0,
            runs: None,
            total: 0,
            spills: 0,
            spilled_bytes: 0,
            output: Output::Filling,
        }
    }

    /// False if a payload with this key cannot be among the first ones and so need not be pushed.
    pub fn wants(&self, key: &[u8]) -> bool {
        self.top.as_ref().is_none_or(|t| t.wants(key))
    }

    /// Adds a payload, given in parts. True means that the memory is used up; the caller must call
    /// [`Sorter::spill`].
    ///
    /// # Errors
    /// A payload that is larger than 4 GiB.
    pub fn push(&mut self, key: &[u8], payload: &[&[u8]]) -> Result<bool> {
        self.total += (key.len() + payload.iter().map(|p| p.len()).sum::<usize>()) as u64;
        if let Some(top) = &mut self.top {
            top.push(key, payload);
            let memory = top.memory();
            if !self.share.holds(memory) && memory <= self.memory_limit {
                return Ok(false);
            }
            // Even the best ones do not fit, so everything is sorted, and cut at the end.
            for (key, doc) in top.take() {
                self.open.push(&key, &[&doc])?;
            }
            self.top = None;
        } else {
            self.open.push(key, payload)?;
        }
        if self.open.entries.len() >= CHUNK {
            self.seal();
        }
        let memory = self.sealed_memory + self.open.memory();
        Ok(self.share.holds(memory) || memory > self.memory_limit)
    }

    fn seal(&mut self) {
        if !self.open.entries.is_empty() {
            let chunk = std::mem::take(&mut self.open).seal();
            self.sealed_memory += chunk.memory;
            self.sealed.push(chunk);
        }
    }

    /// Writes the entries in memory to the disk.
    ///
    /// # Errors
    /// 292 QueryExceededMemoryLimitNoDiskUseAllowed if there is no spill directory; those of the disk and of
    /// the interrupt.
    pub fn spill(&mut self, rt: &Runtime) -> Result<()> {
        self.seal();
        if self.sealed.is_empty() {
            return Ok(());
        }
        let runs = match &mut self.runs {
            Some(r) => r,
            None => self.runs.insert(Runs::new(rt, "Sort")?),
        };
        let chunks = Chunks::of(std::mem::take(&mut self.sealed));
        self.sealed_memory = 0;
        runs.write(chunks, &Ticker::new(rt))?;
        self.share.holds(0);
        self.spills += 1;
        self.spilled_bytes = runs.bytes();
        Ok(())
    }

    /// Ends the input. From now on [`Sorter::next`] returns the result.
    ///
    /// # Errors
    /// As [`Sorter::spill`].
    pub fn finish(&mut self, rt: &Runtime) -> Result<()> {
        if let Some(top) = self.top.take() {
            self.output = Output::Few(top.into_sorted().into_iter());
            return Ok(());
        }
        if self.runs.is_some() {
            self.spill(rt)?;
        }
        self.seal();
        self.output = match self.runs.take() {
            Some(runs) => {
                let merge = runs.merge()?;
                self.share.holds(merge.memory());
                Output::Disk(merge)
            }
            None => Output::Memory(Chunks::of(std::mem::take(&mut self.sealed))),
        };
        Ok(())
    }

    /// The next payload.
    ///
    /// # Errors
    /// Those of the disk.
    #[allow(clippy::should_implement_trait)] // it is fallible, and a method of several
    pub fn next(&mut self) -> Result<Option<Bytes>> {
        if self.left == 0 {
            self.output = Output::Filling;
            self.share.holds(0);
        }
        self.left = self.left.saturating_sub(1);
        Ok(match &mut self.output {
            Output::Filling => None,
            Output::Few(list) => list.next(),
            Output::Memory(chunks) => chunks.next().map(|(_, p)| p),
            Output::Disk(merge) => merge.next()?.map(|r| r.doc.into()),
        })
    }

    /// The number of bytes of keys and payloads that were pushed.
    pub fn total_bytes(&self) -> u64 {
        self.total
    }

    /// The number of bytes that were written to the disk.
    pub fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes
    }

    /// How often entries in memory were written to the disk.
    pub fn spills(&self) -> u64 {
        self.spills
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn many_chunks_come_out_as_one() {
        for memory in [usize::MAX, 3 << 20] {
            let dir = tempfile::tempdir().unwrap();
            let rt = Runtime {
                memory_limit: memory,
                scratch: Some(crate::Scratch::unlimited(dir.path())),
                ..Runtime::for_tests()
            };
            let n = 3 * CHUNK as u32 + 17;
            let mut sorter = Sorter::new(None, memory, &rt.ledger);
            let mut x = 1u32;
            for i in 0..n {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let key = ((x >> 8) % 5000).to_be_bytes();
                if sorter.push(&key, &[&key, &i.to_be_bytes()]).unwrap() {
                    sorter.spill(&rt).unwrap();
                }
            }
            sorter.finish(&rt).unwrap();
            assert_eq!(sorter.spills() > 0, memory != usize::MAX);
            // Each payload has the key and the number of arrival, so a stable sort makes them strictly
            // ascending.
            let (mut last, mut count) = (None, 0);
            while let Some(p) = sorter.next().unwrap() {
                assert!(last < Some(p.clone()), "{p:?} after {last:?}");
                last = Some(p);
                count += 1;
            }
            assert_eq!(count, n);
        }
    }

    #[test]
    fn a_limit_too_large_for_a_heap_cuts_the_output() {
        let rt = Runtime::for_tests();
        let mut sorter = Sorter::new(Some(MAX_TOP + 1), usize::MAX, &Arc::default());
        for i in (0..2 * MAX_TOP).rev() {
            assert!(sorter.wants(&i.to_be_bytes()));
            sorter.push(&i.to_be_bytes(), &[&i.to_be_bytes()]).unwrap();
        }
        sorter.finish(&rt).unwrap();
        let mut n = 0_u64;
        while let Some(p) = sorter.next().unwrap() {
            assert_eq!(*p, n.to_be_bytes());
            n += 1;
        }
        assert_eq!(n, MAX_TOP + 1);
    }
}
