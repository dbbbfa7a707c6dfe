//! What wakes the threads of a store: its end, a call to the background threads, and every commit that
//! becomes visible.
//!
//! Invariant: a thread that waits for a newer commit, or in whose way the end of the store or a lock of
//! all writes stands, stands in one of the lists here, and whoever brings that about wakes the list
//! afterwards.

use muniment_op::{Event, Interrupt, Sleepers};
use muniment_value::{Code, Error, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

/// See the module's head.
#[derive(Default)]
pub(crate) struct Watch {
    closed: AtomicBool,
    /// The background threads are to end.
    stop: Mutex<bool>,
    /// Calls them.
    wake: Condvar,
    /// The threads whose waits end with the store, or that make way when writes are to be locked.
    pub stops: Sleepers,
    /// The threads that wait for the newest visible commit, or the commit point, to be another one.
    /// Shared, for those that keep nothing of the store alive.
    pub moved: Arc<Event>,
}

impl Watch {
    /// The newest visible commit is another one now, or the commit point is. Either was moved on by a
    /// sequentially consistent operation or under a lock, so a thread that is not counted here yet sees
    /// it.
    #[inline]
    pub fn advanced(&self) {
        self.moved.notify_all();
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
        self.advanced();
        true
    }

    /// There is something for the background threads to do.
    pub fn call(&self) {
        self.wake.notify_all();
    }

    /// What a background thread does in between: it waits until it is called, for at most `timeout`. True
    /// when the store closes.
    pub fn pause(&self, timeout: Duration) -> bool {
        let mut stop = self.stop.lock();
        if !*stop {
            self.wake.wait_for(&mut stop, timeout);
        }
        *stop
    }
}

/// 91 ShutdownInProgress.
pub(crate) fn closed() -> Error {
    Error::new(
        Code::ShutdownInProgress,
        "the server is shutting down: the storage is closed",
    )
}

/// For background threads: they may go on until the store closes.
pub(crate) struct UntilClosed<'a>(pub &'a Watch);

impl Interrupt for UntilClosed<'_> {
    fn check(&self) -> Result<()> {
        self.0.check_open()
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        show(&self.0.stops);
    }
}
