//! Room for a reply: what a connection books for the batches that its client has not taken yet.
//!
//! A batch asks before it grows. Where there is no room it ends early, which a client does not notice
//! but by asking again; only a first document, without which there is no batch, waits, and is refused
//! after some time. Invariant: a document that waits is booked as well, so that many waiting replies
//! take no more memory than there is.

use super::OpContext;
use muniment_op::{Account, Ledger, Share};
use muniment_value::Result;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A reply up to this size is not booked: it is of the size of what any connection takes.
pub const SMALL: usize = 16 << 10;
/// Bytes for which a batch that grows asks at once.
const AHEAD: usize = 256 << 10;
/// A first document up to this size does not wait for room.
const AT_ONCE: usize = 64 << 10;
/// How long a larger one waits. A client that takes nothing of a reply that is in the way is cut off
/// before that.
const PATIENCE: Duration = Duration::from_secs(15);

/// What one connection's replies have booked.
pub struct ReplyRoom {
    share: Mutex<Share>,
    waiting: Arc<AtomicUsize>,
}

impl ReplyRoom {
    /// Nothing booked yet. `waiting` counts the replies that wait for room, on all connections.
    pub fn new(ledger: &Arc<Ledger>, waiting: &Arc<AtomicUsize>) -> ReplyRoom {
        ReplyRoom {
            share: Mutex::new(Share::new(ledger, Account::Replies)),
            waiting: waiting.clone(),
        }
    }

    /// Books what is there, whatever the limits.
    pub fn holds(&self, bytes: usize) {
        self.share.lock().holds(bytes);
    }

    /// True if it holds what others need.
    pub fn is_in_the_way(&self) -> bool {
        let share = self.share.lock();
        share.is_pressed() || share.booked() > AT_ONCE && self.waiting.load(Relaxed) > 0
    }

    /// Where documents are booked that are made and not given.
    pub(crate) fn documents(&self) -> Share {
        Share::new(self.share.lock().ledger(), Account::Cursors)
    }

    /// Bytes that the reply may have without asking.
    pub(crate) fn granted(&self) -> usize {
        self.share.lock().booked().max(SMALL)
    }

    /// Room for a reply that has come to so many bytes: how large it may get until it asks again.
    /// `None`: it ends before the last document. The `first` is not refused like that.
    ///
    /// # Errors
    /// 146 ExceededMemoryLimit for a first document for which there is no room for long; what the
    /// operation says meanwhile.
    pub(crate) fn grow(&self, op: &OpContext, bytes: usize, first: bool) -> Result<Option<usize>> {
        let ahead = bytes.saturating_add(AHEAD);
        for wanted in [ahead, bytes] {
            if self.share.lock().try_hold(wanted).is_ok() {
                return Ok(Some(wanted));
            }
        }
        if !first {
            return Ok(None);
        }
        if bytes <= AT_ONCE {
            self.holds(bytes);
            return Ok(Some(bytes));
        }
        // It is there already.
        let mut made = self.documents();
        made.try_hold(bytes)?;
        op.without_ticket(|| self.wait(op, bytes))??;
        Ok(Some(bytes))
    }

    fn wait(&self, op: &OpContext, bytes: usize) -> Result<()> {
        let _waiting = Waiting::begin(&self.waiting);
        let until = Instant::now() + PATIENCE;
        let ledger = self.share.lock().ledger().clone();
        ledger.wait_for_room(op, until, || self.share.lock().try_hold(bytes))
    }
}

/// Counted until it is dropped.
pub struct Waiting<'c>(&'c AtomicUsize);

impl Waiting<'_> {
    /// One more.
    pub fn begin(count: &AtomicUsize) -> Waiting<'_> {
        count.fetch_add(1, Relaxed);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::Code;

    const MB: usize = 1 << 20;

    fn rooms() -> (Arc<Ledger>, ReplyRoom, ReplyRoom) {
        let ledger = Arc::new(Ledger::default());
        ledger.set_limit(Account::Replies, 8 * MB);
        let waiting = Arc::default();
        let room = || ReplyRoom::new(&ledger, &waiting);
        (ledger.clone(), room(), room())
    }

    #[test]
    fn a_batch_ends_where_there_is_no_room() {
        let (_, full, room) = rooms();
        let op = OpContext::internal("find");
        full.holds(9 * MB);
        assert_eq!(room.granted(), SMALL);
        assert_eq!(room.grow(&op, 100 << 10, false).unwrap(), None);
        // One small document is always taken.
        assert_eq!(room.grow(&op, 20 << 10, true).unwrap(), Some(20 << 10));
        full.holds(0);
        let more = room.grow(&op, MB, false).unwrap().unwrap();
        assert!(more > MB && room.granted() >= more);
    }

    #[test]
    fn a_large_document_waits_until_others_are_gone() {
        let (ledger, full, room) = rooms();
        let op = OpContext::internal("find");
        full.holds(9 * MB);
        assert!(!room.is_in_the_way());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| room.grow(&op, 2 * MB, true));
            while ledger.figures(Account::Cursors).used == 0 || !full.is_in_the_way() {
                std::thread::yield_now();
            }
            full.holds(MB);
            assert_eq!(waits.join().unwrap().unwrap(), Some(2 * MB));
        });
        assert_eq!(ledger.figures(Account::Cursors).used, 0);
        assert_eq!(room.waiting.load(Relaxed), 0);
    }

    #[test]
    fn who_waits_takes_no_more_than_there_is_and_can_be_stopped() {
        let (ledger, full, room) = rooms();
        ledger.set_limit(Account::Cursors, MB);
        full.holds(9 * MB);
        let op = OpContext::internal("find");
        let e = room.grow(&op, 4 * MB, true).unwrap_err();
        assert_eq!(e.code(), Code::ExceededMemoryLimit);
        op.kill(Code::Interrupted);
        let e = room.grow(&op, MB / 2, true).unwrap_err();
        assert_eq!(e.code(), Code::Interrupted);
        assert_eq!(room.waiting.load(Relaxed), 0);
    }
}
