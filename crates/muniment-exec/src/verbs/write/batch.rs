//! Documents of a pipeline that are collected and written together.

use bytes::Bytes;

/// The most documents in one batch.
const MOST_DOCS: usize = 10_000;

/// Documents that are waiting to be written.
pub struct Batch {
    docs: Vec<Bytes>,
    bytes: usize,
    most_bytes: usize,
}

impl Batch {
    /// An empty batch, which counts as full once it has `most_bytes` bytes.
    pub fn new(most_bytes: usize) -> Batch {
        Batch {
            docs: Vec::new(),
            bytes: 0,
            most_bytes,
        }
    }

    /// Adds a document; true when the batch is full.
    pub fn push(&mut self, doc: Bytes) -> bool {
        self.bytes += doc.len();
        self.docs.push(doc);
        self.bytes >= self.most_bytes || self.docs.len() >= MOST_DOCS
    }

    /// Takes all documents out.
    pub fn take(&mut self) -> Vec<Bytes> {
        self.bytes = 0;
        std::mem::take(&mut self.docs)
    }
}
