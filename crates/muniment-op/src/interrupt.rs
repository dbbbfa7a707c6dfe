//! The question whether an operation may continue.

use crate::kept::Kept;
use crate::ledger::Ledger;
use crate::sleepers::Sleepers;
use muniment_value::{Code, Error, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Says whether an operation may continue. Everything that can run long asks it, and a thread that stops the
/// operation finds the waiting threads through it.
pub trait Interrupt: Send + Sync {
    /// Fails if the operation must stop, for example with 50 MaxTimeMSExpired, 11601 Interrupted, 279
    /// ClientDisconnect or 11600 InterruptedAtShutdown.
    ///
    /// # Errors
    /// The reason to stop.
    fn check(&self) -> Result<()>;

    /// Does the same as [`Interrupt::check`], but ignores this reason to stop, which does not hide any other.
    ///
    /// # Errors
    /// The reason to stop.
    fn check_but_for(&self, code: Code) -> Result<()> {
        match self.check() {
            Err(e) if e.code() == code => Ok(()),
            other => other,
        }
    }

    /// Shows every list that a waiting thread has to be in, so that whatever makes [`Interrupt::check`] fail
    /// also wakes it. A failure that only the passing of time causes needs no list, but
    /// [`Interrupt::wakes_at`]. It has to show the same lists every time.
    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers));

    /// When a waiting thread has to ask [`Interrupt::check`] again although no thread has woken it: a
    /// deadline. This is called before each sleep.
    fn wakes_at(&self) -> Option<Instant> {
        None
    }

    /// Notes that the operation begins or ends a wait for a lock, which people see in the list of operations.
    fn waits_for_lock(&self, _: bool) {}

    /// The ledger for the operation's memory; `None` if its memory is not counted.
    fn ledger(&self) -> Option<Arc<Ledger>> {
        None
    }

    /// The operation for a thread that works for it beside the calling one; `None` if it cannot be
    /// shared.
    fn shared(&self) -> Option<Arc<dyn Interrupt>> {
        None
    }

    /// Shows what the operation keeps while it runs, if it can keep anything.
    fn keeps(&self, show: &mut dyn FnMut(&Kept)) {
        let _ = show;
    }
}

/// The error of an operation that is stopped for this reason.
pub(crate) fn stopped(code: Code) -> Error {
    let message = match code {
        Code::InterruptedAtShutdown => "interrupted at shutdown",
        Code::CursorKilled => "operation was interrupted because its cursor was killed",
        Code::QueryPlanKilled => "operation was interrupted because its collection was dropped",
        Code::ClientDisconnect => "operation was interrupted because the client disconnected",
        _ => "operation was interrupted",
    };
    Error::new(code, message)
}

/// An operation that never has to stop, for tests and for internal work without a client.
pub struct NeverInterrupted;

impl Interrupt for NeverInterrupted {
    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}
}

/// An operation that has to stop as soon as one of two others has to.
pub struct Both<'b>(pub &'b dyn Interrupt, pub &'b dyn Interrupt);

impl Interrupt for Both<'_> {
    fn check(&self) -> Result<()> {
        self.0.check().and_then(|()| self.1.check())
    }

    fn check_but_for(&self, code: Code) -> Result<()> {
        self.0
            .check_but_for(code)
            .and_then(|()| self.1.check_but_for(code))
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        self.0.sleepers(show);
        self.1.sleepers(show);
    }

    fn wakes_at(&self) -> Option<Instant> {
        let both = [self.0.wakes_at(), self.1.wakes_at()];
        both.into_iter().flatten().min()
    }

    fn waits_for_lock(&self, waits: bool) {
        self.0.waits_for_lock(waits);
        self.1.waits_for_lock(waits);
    }
}

/// An interrupt that calls a function, for tests. No thread is woken when the function's answer changes, so
/// waits under it poll every millisecond, which no wait of a server does.
pub struct Asked<F>(pub F);

impl<F: Fn() -> Result<()> + Send + Sync> Interrupt for Asked<F> {
    fn check(&self) -> Result<()> {
        (self.0)()
    }

    fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}

    fn wakes_at(&self) -> Option<Instant> {
        Some(Instant::now() + Duration::from_millis(1))
    }
}
