//! What wakes the threads of a store: its end, a call to the background threads, and a commit that becomes
//! visible, or that the majority has.
//!
//! Invariant: a thread that waits for a commit, or in whose way the end of the store or a lock of all writes
//! stands, is in one of the lists here with what it waits for. The thread that brings that about calls those
//! that wait for it afterwards, and no others: a thousand clients may wait for times that are far away.

use muniment_io::Timestamp;
use muniment_log::Position;
use muniment_op::{Event, Interrupt, Sleepers};
use muniment_value::{Code, Error, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Everything up to this time is visible.
    Visible(Timestamp),
    /// The majority has everything up to this time, or this server is alone.
    Majority(Timestamp),
    /// Everything up to the first time is visible, or this server is not alone and the majority has
    /// everything up to the second.
    Either(Timestamp, Timestamp),
    /// Writes are not locked.
    Unlocked,
}

impl Awaited {
    /// The first time after this one.
    pub fn past(time: Timestamp) -> Timestamp {
        Timestamp(time.0.saturating_add(1))
    }

    /// Whether a thread that waits for this has to be called when the store is so far.
    fn is_there(self, visible: Timestamp, majority: Option<Position>) -> bool {
        let has = |time| majority.map(|majority| majority.at >= time);
        match self {
            Awaited::Visible(time) => visible >= time,
            Awaited::Majority(time) => has(time).unwrap_or(true),
            Awaited::Either(first, second) => visible >= first || has(second).unwrap_or(false),
            Awaited::Unlocked => false,
        }
    }
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Watch {
    closed: AtomicBool,
    /// True when the background threads are to end.
    stop: Mutex<bool>,
    /// Wakes the background threads.
    wake: Condvar,
    /// The threads whose waits end with the store, or that make way when writes are to be locked.
    pub stops: Sleepers,
    /// The threads that wait for a commit. Shared, for those that keep nothing of the store alive.
    pub moved: Arc<Event<Awaited>>,
}

impl Watch {
    /// Calls the threads whose wait is over now that the store is `so_far`: the newest visible time, and what
    /// the majority has. It is asked after a change that was made by a sequentially consistent operation or
    /// under a lock, so a thread that is not counted here yet sees the change itself. Both only rise, so of two
    /// threads that change something at once the later one asks for what both have made.
    #[inline]
    pub fn advanced(&self, so_far: impl FnOnce() -> (Timestamp, Option<Position>)) {
        if self.moved.waiting() > 0 {
            let (visible, majority) = so_far();
            let is_there = |awaited: &Awaited| awaited.is_there(visible, majority);
            self.moved.notify_those(is_there);
        }
    }

    /// Writes are not locked any more.
    pub fn unlocked(&self) {
        let waits = |awaited: &Awaited| *awaited == Awaited::Unlocked;
        self.moved.notify_those(waits);
    }

    /// Whether the store may still be used.
    ///
    /// # Errors
    /// 91 ShutdownInProgress.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        match self.is_closed() {
            true => Err(closed()),
            false => Ok(()),
        }
    }

    /// True once the store is closed.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Closes the store for its users and calls its threads to their end; false if it was closed before.
    pub fn close(&self) -> bool {
        if self.closed.swap(true, SeqCst) {
            return false;
        }
        *self.stop.lock() = true;
        self.call();
        self.stops.wake_all();
        self.moved.notify_all();
        true
    }

    /// Tells the background threads that there is something to do.
    pub fn call(&self) {
        self.wake.notify_all();
    }

    /// The pause between two rounds of a background thread: it waits until it is called, for at most
    /// `timeout`. True when the store closes.
    pub fn pause(&self, timeout: Duration) -> bool {
        let mut stop = self.stop.lock();
        if !*stop {
            self.wake.wait_for(&mut stop, timeout);
        }
        *stop
    }
}

/// The error 91 ShutdownInProgress.
pub(crate) fn closed() -> Error {
    Error::new(
        Code::ShutdownInProgress,
        "the server is shutting down: the storage is closed",
    )
}

/// The interrupt of background threads, which may go on until the store closes.
pub(crate) struct UntilClosed<'a>(pub &'a Watch);

impl Interrupt for UntilClosed<'_> {
    fn check(&self) -> Result<()> {
        self.0.check_open()
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        show(&self.0.stops);
    }
}
