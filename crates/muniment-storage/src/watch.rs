//! Wakes the threads of a store: at its end, when background threads are called, and with every commit
//! that becomes visible.
//!
//! Invariant: every waiting thread is in one of the lists here, if it waits for a newer commit or has to
//! give way to the end of the store or to a lock of all writes. The thread that causes such an event
//! wakes the list afterwards.

use muniment_op::{Event, Interrupt, Sleepers};
use muniment_value::{Code, Error, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

/// The lists of waiting threads.
#[derive(Default)]
pub(crate) struct Watch {
    closed: AtomicBool,
    /// True when the background threads are to end.
    stop: Mutex<bool>,
    /// Wakes the background threads.
    wake: Condvar,
    /// The threads whose waits end with the store, or that make way when writes are to be locked.
    pub stops: Sleepers,
    /// The threads that wait until the newest visible commit, or the commit point, changes. It is
    /// shared, because a waiting thread must not keep the store alive.
    pub moved: Arc<Event>,
}

impl Watch {
    /// Tells that the newest visible commit or the commit point has changed. Both are changed by a
    /// sequentially consistent operation or under a lock, so a thread that is not counted here yet sees
    /// the change when it looks.
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
