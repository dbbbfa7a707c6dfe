//! The memory of replies: each connection books the batches that its client has not taken yet.
//!
//! A batch asks before it grows. If there is no room it ends early, which a client notices only
//! because it has to ask again. A first document is different, since there is no batch without it:
//! it waits for room, and fails after some time. Invariant: a document that waits is booked too, so
//! that many waiting replies take no more memory than there is.

use super::OpContext;
use muniment_op::{Account, Ledger, Share};
use muniment_value::Result;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// A reply up to this size is not booked, because every connection takes about as much anyway.
pub const SMALL: usize = 16 << 10;
/// The number of further bytes for which a growing batch asks at a time.
const AHEAD: usize = 256 << 10;
/// A first document up to this size does not wait for room.
const AT_ONCE: usize = 64 << 10;
/// How long a larger first document waits. A client that does not take a reply that is in the way
/// is disconnected earlier than that.
const PATIENCE: Duration = Duration::from_secs(15);

/// The memory that the replies of one connection have booked.
pub struct ReplyRoom {
    share: Mutex<Share>,
    waiting: Arc<AtomicUsize>,
}

impl ReplyRoom {
    /// An account with nothing booked. `waiting` counts the replies that wait for room on all
    /// connections.
    pub fn new(ledger: &Arc<Ledger>, waiting: &Arc<AtomicUsize>) -> ReplyRoom {
        ReplyRoom {
            share: Mutex::new(Share::new(ledger, Account::Replies)),
            waiting: waiting.clone(),
        }
    }

    /// Books the memory that is in use, whatever the limits.
    pub fn holds(&self, bytes: usize) {
        self.share.lock().holds(bytes);
    }

    /// True if the connection holds memory that others need.
    pub fn is_in_the_way(&self) -> bool {
        let share = self.share.lock();
        share.is_pressed() || share.booked() > AT_ONCE && self.waiting.load(Relaxed) > 0
    }

    /// An account for documents that are made and not yet given.
    pub(crate) fn documents(&self) -> Share {
        Share::new(self.share.lock().ledger(), Account::Cursors)
    }

    /// The bytes that the reply may have without asking.
    pub(crate) fn granted(&self) -> usize {
        self.share.lock().booked().max(SMALL)
    }

    /// Asks for room for a reply that has reached so many bytes. Returns how large it may get until
    /// it has to ask again; `None` means that it ends before its last document. A `first` document
    /// is never answered with `None`.
    ///
    /// # Errors
    /// 146 ExceededMemoryLimit if there is no room for a first document for long; the interruption
    /// of the operation meanwhile.
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
        // The document that waits exists already, so it is booked meanwhile.
        let mut made = self.documents();
        made.try_hold(bytes)?;
        op.without_ticket(|| self.wait(op, bytes))??;
        Ok(Some(bytes))
    }

    fn wait(&self, op: &OpContext, bytes: usize) -> Result<()> {
        let _waiting = Waiting::begin(&self.waiting);
        let until = muniment_op::now() + PATIENCE;
        let ledger = self.share.lock().ledger().clone();
        ledger.wait_for_room(op, until, || self.share.lock().try_hold(bytes))
    }
}

/// Counts as one until it is dropped.
pub struct Waiting<'c>(&'c AtomicUsize);

impl Waiting<'_> {
    /// Adds one to the count.
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
        // A single small document is always accepted.
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
