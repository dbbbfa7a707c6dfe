//! The question whether an operation may go on.

use crate::ledger::Ledger;
use crate::sleepers::Sleepers;
use muniment_value::{Code, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Whether an operation may go on: asked by everything that can run long, and found by any thread
/// that wakes those which wait for it.
pub trait Interrupt: Send + Sync {
    /// An error when the operation must stop: 50 MaxTimeMSExpired, 11601 Interrupted,
    /// 279 ClientDisconnect, 11600 InterruptedAtShutdown.
    ///
    /// # Errors
    /// The reason to stop.
    fn check(&self) -> Result<()>;

    /// As [`Interrupt::check`], but this reason to stop is none, and hides no other.
    ///
    /// # Errors
    /// The reason to stop.
    fn check_but_for(&self, code: Code) -> Result<()> {
        match self.check() {
            Err(e) if e.code() == code => Ok(()),
            other => other,
        }
    }

    /// Shows every list in which a thread that waits has to stand, so that whatever makes
    /// [`Interrupt::check`] fail also wakes it. What only passing time makes fail needs no list, but
    /// [`Interrupt::wakes_at`]. It has to show the same lists every time.
    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers));

    /// When [`Interrupt::check`] is to be asked again although nobody has woken the waiting thread: a
    /// deadline. It is asked before each sleep.
    fn wakes_at(&self) -> Option<Instant> {
        None
    }

    /// The operation begins or ends to wait for a lock: for people who look at what runs.
    fn waits_for_lock(&self, _: bool) {}

    /// Where it books memory; `None` if nobody counts it.
    fn ledger(&self) -> Option<Arc<Ledger>> {
        None
    }
}

/// For tests and internal work without a client.
pub struct NeverInterrupted;

impl Interrupt for NeverInterrupted {
    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}
}

/// What ends as soon as one of two has to.
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

/// For tests: what a function says. Nobody tells of it when it says something else, so that waits under
/// it look every millisecond, which none in a server does.
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
