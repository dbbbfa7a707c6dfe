//! The state that all change streams of a server share.

use super::feed::Feed;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

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
}

impl Changes {
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
