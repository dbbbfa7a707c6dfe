//! Tickets: they limit how many operations execute at the same time.
//!
//! Thousands of operations that run together only take processor, caches and memory from each
//! other. A read or a write needs a ticket of its kind; if there is none, the operation waits in
//! turn, and can be interrupted. Invariants: an operation holds at most one ticket and takes it
//! before anything else, so that none waits for a ticket while it holds a latch; an operation that
//! waits for data or for the journal gives its ticket back meanwhile. Diagnostics and DDL need no
//! ticket.

use muniment_op::{Event, Interrupt, Ledger};
use muniment_storage::spread::Spread;
use muniment_value::Result;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

/// The number of tickets of each kind, as in MongoDB.
pub const TICKETS: i64 = 128;

/// The number of places over which the free tickets are spread.
const PLACES: usize = 16;

/// Figures of one kind of tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TicketFigures {
    /// Tickets in use.
    pub out: i64,
    /// All tickets.
    pub total: i64,
    /// Operations that are waiting for a ticket now.
    pub queued: i64,
    /// Operations that had to wait since the start.
    pub waited: u64,
    /// The microseconds that they waited in total.
    pub waited_micros: u64,
    /// Operations that stopped waiting because they were interrupted.
    pub given_up: u64,
}

/// The tickets of one kind.
#[derive(Debug)]
pub struct TicketPool {
    /// The free tickets by places. A thread takes from its own place first.
    free: Spread<AtomicI64, PLACES>,
    total: AtomicI64,
    /// The number of tickets that are in excess: when so many are given back, they do not become
    /// free.
    excess: AtomicI64,
    queued: AtomicI64,
    waited: AtomicU64,
    waited_micros: AtomicU64,
    given_up: AtomicU64,
    /// Held while the number of tickets is changed.
    changing: Mutex<()>,
    freed: Event,
    /// The ledger with which operations that hold these tickets book memory.
    pub(crate) ledger: Arc<Ledger>,
}

impl Default for TicketPool {
    fn default() -> TicketPool {
        TicketPool {
            free: Spread::of(|_| AtomicI64::new(TICKETS / PLACES as i64)),
            total: AtomicI64::new(TICKETS),
            excess: AtomicI64::new(0),
            queued: AtomicI64::new(0),
            waited: AtomicU64::new(0),
            waited_micros: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            changing: Mutex::new(()),
            freed: Event::new(),
            ledger: Arc::default(),
        }
    }
}

/// A ticket. Dropping it gives it back.
#[must_use]
#[derive(Debug)]
pub struct Ticket<'p>(&'p TicketPool);

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.0.give();
        self.0.freed.notify_one(|()| true);
    }
}

/// Takes one if any is left. Returns false if none is.
fn one_less(n: &AtomicI64) -> bool {
    let less = |n: i64| (n > 0).then(|| n - 1);
    n.load(SeqCst) > 0 && n.fetch_update(SeqCst, SeqCst, less).is_ok()
}

impl TicketPool {
    fn take(&self) -> Option<Ticket<'_>> {
        let mut places = std::iter::once(self.free.own()).chain(self.free.iter());
        places.any(one_less).then(|| Ticket(self))
    }

    fn give(&self) {
        if self.excess.load(SeqCst) == 0 || !one_less(&self.excess) {
            self.free.own().fetch_add(1, SeqCst);
        }
    }

    /// Takes a ticket, or waits for one after the operations that already wait.
    ///
    /// # Errors
    /// The error that ends the operation while it waits.
    #[inline]
    pub fn acquire(&self, op: &dyn Interrupt) -> Result<Ticket<'_>> {
        if self.queued.load(SeqCst) == 0
            && let Some(t) = self.take()
        {
            return Ok(t);
        }
        self.wait(op)
    }

    #[cold]
    fn wait(&self, op: &dyn Interrupt) -> Result<Ticket<'_>> {
        let began = Instant::now();
        self.queued.fetch_add(1, SeqCst);
        self.waited.fetch_add(1, SeqCst);
        // An operation that is about to end must not take a ticket from those that continue.
        let result = op
            .check()
            .and_then(|()| self.freed.wait_for((), op, || self.take()));
        if result.is_err() {
            self.given_up.fetch_add(1, SeqCst);
        }
        self.queued.fetch_sub(1, SeqCst);
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.waited_micros.fetch_add(micros, SeqCst);
        result
    }

    /// Runs `wait` without the ticket that the operation holds, and takes one again afterwards. If
    /// the operation has to end instead, it still counts as holding a ticket, because it is about
    /// to end.
    ///
    /// # Errors
    /// The error that ends the operation while it waits for the ticket.
    pub(crate) fn lend<T>(&self, op: &dyn Interrupt, wait: impl FnOnce() -> T) -> Result<T> {
        drop(Ticket(self));
        let result = wait();
        match self.acquire(op) {
            Ok(ticket) => std::mem::forget(ticket),
            Err(e) => {
                // The operation's `Ticket` will be dropped although it stands for none. That drop
                // must not make a ticket free.
                self.excess.fetch_add(1, SeqCst);
                return Err(e);
            }
        }
        Ok(result)
    }

    /// Sets the number of tickets; at least one.
    pub fn set_total(&self, total: i64) {
        let _changing = self.changing.lock();
        let total = total.max(1);
        let before = self.total.swap(total, SeqCst);
        for _ in before..total {
            self.give();
        }
        for _ in total..before {
            if !self.free.iter().any(one_less) {
                self.excess.fetch_add(1, SeqCst);
            }
        }
        self.freed.notify_all();
    }

    /// The figures for serverStatus.
    pub fn figures(&self) -> TicketFigures {
        let free: i64 = self.free.iter().map(|n| n.load(SeqCst)).sum();
        let total = self.total.load(SeqCst);
        TicketFigures {
            out: (total + self.excess.load(SeqCst) - free).max(0),
            total,
            queued: self.queued.load(SeqCst),
            waited: self.waited.load(SeqCst),
            waited_micros: self.waited_micros.load(SeqCst),
            given_up: self.given_up.load(SeqCst),
        }
    }
}

/// The tickets of a server.
#[derive(Debug)]
pub struct Tickets {
    /// For operations that only read.
    pub reads: Arc<TicketPool>,
    /// For operations that write.
    pub writes: Arc<TicketPool>,
}

impl Tickets {
    /// The default number of tickets, for operations that book memory in `ledger`.
    pub fn new(ledger: &Arc<Ledger>) -> Tickets {
        let pool = || {
            Arc::new(TicketPool {
                ledger: ledger.clone(),
                ..TicketPool::default()
            })
        };
        Tickets {
            reads: pool(),
            writes: pool(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::operation::{OpStart, Operations};
    use muniment_op::{NeverInterrupted, Sleepers};
    use muniment_value::Code;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    #[test]
    fn never_more_than_there_are_and_all_get_one() {
        let pool = TicketPool::default();
        pool.set_total(3);
        let (inside, most, done) = (AtomicI64::new(0), AtomicI64::new(0), AtomicUsize::new(0));
        std::thread::scope(|s| {
            for _ in 0..24 {
                s.spawn(|| {
                    for _ in 0..50 {
                        let _t = pool.acquire(&NeverInterrupted).unwrap();
                        most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, SeqCst);
                        done.fetch_add(1, SeqCst);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 3);
        assert_eq!(done.into_inner(), 24 * 50);
        let f = pool.figures();
        assert_eq!((f.out, f.queued, f.given_up), (0, 0, 0));
    }

    struct Over;
    impl Interrupt for Over {
        fn check(&self) -> Result<()> {
            Err(muniment_value::Error::new(Code::Interrupted, "over"))
        }
        fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}
    }

    #[test]
    fn their_number_changes_while_they_are_out() {
        let pool = TicketPool::default();
        let take = |n: usize| -> Vec<_> { (0..n).map_while(|_| pool.take()).collect() };
        let out = take(1000);
        assert_eq!(out.len() as i64, TICKETS);
        pool.set_total(3);
        pool.set_total(5);
        let f = pool.figures();
        assert_eq!((f.out, f.total), (TICKETS, 5));
        drop(out);
        assert_eq!(pool.figures().out, 0);
        assert_eq!(take(1000).len(), 5);
        // A ticket that could not be taken again still counts as held, and dropping it does not
        // free two.
        let held = take(5);
        assert!(pool.lend(&Over, || pool.set_total(2)).is_err());
        assert_eq!(pool.figures().out, 5);
        drop(held);
        assert_eq!((pool.figures().out, take(1000).len()), (0, 2));
    }

    #[test]
    fn who_waits_can_be_interrupted() {
        let pool = TicketPool::default();
        pool.set_total(1);
        let held = pool.acquire(&NeverInterrupted).unwrap();
        let ops = Operations::new();
        let limited = ops.begin(OpStart {
            max_time: Some(Duration::from_millis(30)),
            ..OpStart::default()
        });
        let began = Instant::now();
        let e = pool.acquire(&**limited).unwrap_err();
        assert_eq!(e.code(), Code::MaxTimeMSExpired);
        assert!(began.elapsed() < Duration::from_millis(500));
        let op = ops.begin(OpStart::default());
        std::thread::scope(|s| {
            let waiting = s.spawn(|| pool.acquire(&**op).unwrap_err().code());
            while pool.figures().queued == 0 {
                std::thread::yield_now();
            }
            ops.kill(op.id());
            assert_eq!(waiting.join().unwrap(), Code::Interrupted);
        });
        assert_eq!(pool.figures().given_up, 2);
        drop(held);
        assert!(pool.acquire(&NeverInterrupted).is_ok());
        // While a ticket is lent, others can take it.
        let held = pool.acquire(&NeverInterrupted).unwrap();
        let lent = pool.lend(&NeverInterrupted, || {
            pool.acquire(&NeverInterrupted).is_ok()
        });
        assert!(lent.unwrap() && pool.figures().out == 1);
        drop(held);
        // Raising the number of tickets wakes a waiting thread.
        let held = pool.acquire(&NeverInterrupted).unwrap();
        std::thread::scope(|s| {
            let waiting = s.spawn(|| pool.acquire(&NeverInterrupted).is_ok());
            while pool.figures().queued == 0 {
                std::thread::yield_now();
            }
            pool.set_total(2);
            assert!(waiting.join().unwrap());
        });
        drop(held);
    }
}
