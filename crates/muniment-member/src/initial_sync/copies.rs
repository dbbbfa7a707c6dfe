//! The copies that other members make of this one's data.
//!
//! Invariant: at most one is kept for each member.

use super::barriers::Barriers;
use crate::key::random;
use crate::lifecycle::ended;
use muniment_consensus::{InForce, MemberId};
use muniment_op::{Event, Interrupt};
use muniment_storage::Export;
use muniment_value::{Code, Error, Result};
use muniment_wire::Stream;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// A view that nobody reads is kept for so long, and not longer, since what is overwritten meanwhile takes
/// room.
pub const KEPT: Duration = Duration::from_secs(300);
/// So long the thread of a broken connection may take to notice.
const NOTICED: Duration = Duration::from_secs(5);
/// Even on a full disk a view is kept for so long: its member may be about to open the next connection.
const GRACE: Duration = Duration::from_secs(5);

/// A copy that a member makes of this one's data.
struct Copying {
    /// Drawn at random, so that after a restart a member cannot go on with another copy than its own.
    id: i64,
    /// The member that makes it.
    member: MemberId,
    /// The connection that it goes by.
    stream: Option<Stream>,
    /// What is sent, while no connection sends it.
    kept: Option<Box<Sent>>,
    since: Instant,
}

/// What is sent.
pub struct Sent {
    /// What the view sees.
    pub export: Export,
    /// The configuration in force there.
    pub in_force: InForce,
    /// The term in which this member led then; 0: it did not.
    pub led: u64,
    /// See [`Passed::waits`](super::barrier::Passed::waits).
    pub waits: u64,
}

/// The copies that members make of this one's data.
#[derive(Default)]
pub struct Copies {
    all: Mutex<All>,
    /// For members that have nothing.
    pub(super) barriers: Barriers,
    /// A connection has left what it sent.
    left: Event,
}

#[derive(Default)]
struct All {
    ended: bool,
    copies: Vec<Copying>,
}

impl Copies {
    /// Begins a copy, in the place of the one that the member has made so far.
    pub fn begin<'c>(&'c self, member: MemberId, stream: Stream, sent: Sent) -> Result<Lent<'c>> {
        let id = i64::from_le_bytes(random()?);
        let mut all = self.all.lock();
        if all.ended {
            return Err(ended());
        }
        all.copies
            .iter()
            .filter(|c| c.member == member)
            .for_each(Copying::interrupt);
        all.copies.retain(|c| c.member != member);
        self.left.notify_all();
        all.copies.push(Copying {
            id,
            member,
            stream: Some(stream),
            kept: None,
            since: Instant::now(),
        });
        Ok(Lent {
            copies: self,
            id,
            sent: Some(Box::new(sent)),
        })
    }

    /// Goes on with a copy by another connection.
    pub fn go_on<'c>(&'c self, id: i64, stream: Stream, op: &dyn Interrupt) -> Result<Lent<'c>> {
        let end = Instant::now() + NOTICED;
        let mut stream = Some(stream);
        let lent = || {
            let mut all = self.all.lock();
            let Some(copying) = all.copies.iter_mut().find(|c| c.id == id) else {
                return Some(Err(Error::new(
                    Code::CursorNotFound,
                    format!("the copy {id} is not kept any more"),
                )));
            };
            let Some(sent) = copying.kept.take() else {
                // The former connection has not noticed yet.
                copying.interrupt();
                return None;
            };
            copying.stream = stream.take();
            Some(Ok(Lent {
                copies: self,
                id,
                sent: Some(sent),
            }))
        };
        let lent = self.left.wait_for_until((), op, end, lent)?;
        lent.unwrap_or_else(|| {
            let what = format!("the copy {id} still goes by another connection");
            Err(Error::new(Code::LockBusy, what))
        })
    }

    /// It is whole, or of no use.
    pub fn end(&self, id: i64) {
        self.all.lock().copies.retain(|c| c.id != id);
        self.left.notify_all();
    }

    /// Drops what has been kept for longer than `most` without being sent.
    fn drop_kept(&self, most: Duration) {
        let old = |c: &Copying| c.kept.is_some() && c.since.elapsed() >= most;
        let mut all = self.all.lock();
        if all.copies.iter().any(old) {
            all.copies.retain(|c| !old(c));
            self.left.notify_all();
        }
    }

    /// Drops what has been kept for too long.
    pub fn expire(&self) {
        self.drop_kept(KEPT);
    }

    /// The disk is full: what is kept keeps the room of what was dropped meanwhile.
    pub fn give_room(&self) {
        self.drop_kept(GRACE);
    }

    /// The server ends: nothing is kept or sent any more.
    pub fn close(&self) {
        let mut all = self.all.lock();
        all.ended = true;
        all.copies.iter().for_each(Copying::interrupt);
        all.copies.clear();
        self.left.notify_all();
    }
}

impl Copying {
    /// Ends the connection that it goes by, if it still does.
    fn interrupt(&self) {
        if let Some(stream) = &self.stream {
            // It may have ended by itself.
            let _ = stream.shutdown();
        }
    }
}

/// What a connection sends; kept when that ends, however it does.
pub struct Lent<'c> {
    copies: &'c Copies,
    /// The number of the copy.
    pub id: i64,
    sent: Option<Box<Sent>>,
}

impl Lent<'_> {
    /// What is sent.
    ///
    /// # Errors
    /// 91 after [`Lent::drop_it`].
    pub fn sent(&mut self) -> Result<&mut Sent> {
        self.sent.as_deref_mut().ok_or_else(ended)
    }

    /// Nobody is to go on with it.
    pub fn drop_it(&mut self) {
        self.sent = None;
        self.copies.end(self.id);
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let Some(sent) = self.sent.take() else {
            return;
        };
        let mut all = self.copies.all.lock();
        // If the copy was ended meanwhile its view is dropped here.
        if let Some(copying) = all.copies.iter_mut().find(|c| c.id == self.id) {
            copying.kept = Some(sent);
            copying.stream = None;
            copying.since = Instant::now();
            self.copies.left.notify_all();
        }
    }
}
