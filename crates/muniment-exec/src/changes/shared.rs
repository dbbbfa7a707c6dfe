//! What all change streams of a server share.

use super::feed::Feed;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// What all change streams of a server share.
#[derive(Default)]
pub(crate) struct Changes {
    pub feed: Arc<Feed>,
    /// For how long documents as they were before are shown, in seconds; 0: as long as the log has
    /// them.
    pub image_seconds: Arc<AtomicI64>,
    /// Entries that streams have read from the log each for itself, being further back than what all
    /// share.
    pub read_by_itself: AtomicU64,
}

impl Changes {
    /// Entries that were read from the log: once for all streams, and by streams for themselves.
    #[cfg(test)]
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.feed.entries_read(), self.read_by_itself.load(Relaxed))
    }

    /// Documents as they were before are shown of entries that are not older than this, in
    /// milliseconds since 1970.
    pub(crate) fn images_since(&self, now_ms: i64) -> i64 {
        match self.image_seconds.load(Relaxed) {
            0 => 0,
            seconds => now_ms.saturating_sub(seconds.saturating_mul(1000)),
        }
    }
}
