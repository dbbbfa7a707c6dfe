//! The best documents of a stream, in a heap of at most k with the worst one on top.

use bytes::Bytes;
use std::collections::BinaryHeap;

/// The bytes that a kept document needs in addition to its own.
const OVERHEAD: usize = 96;

pub(crate) struct TopK {
    k: usize,
    seq: u64,
    heap: BinaryHeap<Kept>,
    bytes: usize,
}

/// Ordered by key, then by arrival. The derived comparison uses the fields in this order, and no two sequence
/// numbers are equal.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    key: Box<[u8]>,
    seq: u64,
    doc: Bytes,
}

impl TopK {
    pub(crate) fn new(k: usize) -> TopK {
        TopK {
            k,
            seq: 0,
            heap: BinaryHeap::new(),
            bytes: 0,
        }
    }

    /// The number of bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.bytes + self.heap.len() * OVERHEAD
    }

    /// True if the key is among the best so far. A later document does not replace an earlier one with an
    /// equal key, because the sort is stable.
    pub(crate) fn wants(&self, key: &[u8]) -> bool {
        self.heap.len() < self.k
            || self
                .heap
                .peek()
                .is_some_and(|worst| key < worst.key.as_ref())
    }

    /// Takes the document, given in parts, if it is among the best so far.
    pub(crate) fn push(&mut self, key: &[u8], doc: &[&[u8]]) {
        self.seq += 1;
        if !self.wants(key) {
            return;
        }
        if self.heap.len() >= self.k
            && let Some(worst) = self.heap.pop()
        {
            self.bytes -= worst.key.len() + worst.doc.len();
        }
        // The document is copied, so that one kept document does not keep a whole block of the scan in
        // memory.
        let doc = Bytes::from(doc.concat());
        self.bytes += key.len() + doc.len();
        self.heap.push(Kept {
            key: key.into(),
            seq: self.seq,
            doc,
        });
    }

    /// The documents, best first.
    pub(crate) fn into_sorted(self) -> Vec<Bytes> {
        self.heap
            .into_sorted_vec()
            .into_iter()
            .map(|k| k.doc)
            .collect()
    }

    /// Removes all keys and documents, and returns them in the order of arrival.
    pub(crate) fn take(&mut self) -> Vec<(Box<[u8]>, Bytes)> {
        let mut all = std::mem::take(&mut self.heap).into_vec();
        all.sort_by_key(|k| k.seq);
        self.bytes = 0;
        all.into_iter().map(|k| (k.key, k.doc)).collect()
    }
}
