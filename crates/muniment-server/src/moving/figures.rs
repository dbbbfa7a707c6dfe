//! What has happened to ranges on this shard since its start, as `serverStatus().shardingStatistics` shows it.

use muniment_value::{DocBuf, doc};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number of documents, and their bytes.
#[derive(Default)]
pub struct Count {
    docs: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    /// Adds a document of so many bytes.
    pub fn add(&self, bytes: usize) {
        self.docs.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

/// Counts since the server's start.
#[derive(Default)]
pub struct Figures {
    /// Moves for which a range was frozen here.
    pub given: AtomicU64,
    /// Moves that have begun to bring a range here.
    pub received: AtomicU64,
    /// What was read for other shards.
    pub read: Count,
    /// What was written here for moves.
    pub written: Count,
    /// What was deleted here after moves.
    pub deleted: Count,
}

impl Figures {
    /// The section, by MongoDB's names. `waste`: the ranges whose rows are to be deleted.
    pub fn to_doc(&self, waste: usize) -> DocBuf {
        let long = |n: &AtomicU64| i64::try_from(n.load(Relaxed)).unwrap_or(i64::MAX);
        doc! {
            "countDonorMoveChunkStarted": long(&self.given),
            "countRecipientMoveChunkStarted": long(&self.received),
            "countDocsClonedOnDonor": long(&self.read.docs),
            "countBytesClonedOnDonor": long(&self.read.bytes),
            "countDocsClonedOnRecipient": long(&self.written.docs),
            "countBytesClonedOnRecipient": long(&self.written.bytes),
            "countDocsDeletedByRangeDeleter": long(&self.deleted.docs),
            "countBytesDeletedByRangeDeleter": long(&self.deleted.bytes),
            "rangeDeleterTasks": i64::try_from(waste).unwrap_or(i64::MAX),
        }
    }
}
