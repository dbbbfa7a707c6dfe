//! The state that all change streams of a server share.

use super::feed::Feed;
use muniment_storage::{LogEntries, Store, Timestamp};
use muniment_value::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// So many streams keep their own reader of the log from one batch to the next. Each has up to 1 MiB in
/// memory: a buffer of the log, or the record in whose middle it is.
const KEPT_READERS: usize = 64;

/// The state that all change streams of a server share.
#[derive(Default)]
pub(crate) struct Changes {
    pub feed: Arc<Feed>,
    /// How long documents are shown as they were before a change, in seconds; 0 means for as long
    /// as the log has them.
    pub image_seconds: Arc<AtomicI64>,
    /// The number of entries that streams have read from the log for themselves, because they were
    /// further back than the shared entries.
    pub read_by_itself: AtomicU64,
    /// The number of readers that streams have of their own.
    own_readers: Arc<AtomicUsize>,
}

/// A stream's own reader of the log, which it has while its place is older than the shared entries.
pub(super) struct OwnReader {
    pub entries: LogEntries,
    all: Arc<AtomicUsize>,
}

impl Drop for OwnReader {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Relaxed);
    }
}

impl Changes {
    /// A reader of the entries after a place, for one stream.
    pub(super) fn own_reader(&self, store: &Store, after: Timestamp) -> Result<OwnReader> {
        let entries = store.log_entries(after)?;
        self.own_readers.fetch_add(1, Relaxed);
        Ok(OwnReader {
            entries,
            all: self.own_readers.clone(),
        })
    }

    /// True if so many streams have a reader of their own that one whose batch has ended gives its own up.
    pub(super) fn has_many_readers(&self) -> bool {
        self.own_readers.load(Relaxed) > KEPT_READERS
    }

    /// The number of readers that streams have of their own, and how many they may keep between batches.
    #[cfg(test)]
    pub(crate) fn own_readers(&self) -> (usize, usize) {
        (self.own_readers.load(Relaxed), KEPT_READERS)
    }

    /// The numbers of entries that were read from the log: once for all streams, and by streams for
    /// themselves.
    #[cfg(test)]
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.feed.entries_read(), self.read_by_itself.load(Relaxed))
    }

    /// The oldest entries of which documents are shown as they were before the change, in
    /// milliseconds since 1970.
    pub(crate) fn images_since(&self, now_ms: i64) -> i64 {
        match self.image_seconds.load(Relaxed) {
            0 => 0,
            seconds => now_ms.saturating_sub(seconds.saturating_mul(1000)),
        }
    }
}
