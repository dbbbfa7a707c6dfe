//! Documents of a pipeline that are written together.

use bytes::Bytes;

/// Documents in a batch at most.
const MOST_DOCS: usize = 10_000;

/// Documents that wait to be written.
pub(super) struct Batch {
    docs: Vec<Bytes>,
    bytes: usize,
    most_bytes: usize,
}

impl Batch {
    /// None yet; it is full with so many bytes.
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
