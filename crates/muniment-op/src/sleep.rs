//! How a thread sleeps so that any thread that stops its operation can wake it.

use crate::blocking::blocking;
use crate::interrupt::Interrupt;
use crate::simulated::{now, world};
use muniment_value::Result;
use std::thread::{Thread, current, park, park_timeout};
use std::time::Instant;

/// The calling thread waits for something on behalf of an operation, and a thread that stops the operation
/// wakes it. Whatever it waits for has to know the thread as well, as an [`Event`](crate::Event) does.
#[must_use]
pub struct Sleep<'i> {
    on: &'i dyn Interrupt,
    thread: Thread,
}

impl<'i> Sleep<'i> {
    /// Enters the calling thread in the operation's lists, until this is dropped.
    pub fn begin(on: &'i dyn Interrupt) -> Sleep<'i> {
        let thread = current();
        on.sleepers(&mut |list| list.enter(&thread));
        Sleep { on, thread }
    }

    /// The calling thread, so that another thread can wake it.
    pub fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Sleeps until the thread is woken, until `until`, or until the operation's deadline. It may return for
    /// no reason at all, so the caller has to check again both its condition and the operation.
    pub fn park(&self, until: Option<Instant>) {
        let until = match (until, self.on.wakes_at()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if let Some(world) = world() {
            return world.park(until);
        }
        match until {
            None => blocking(park),
            Some(until) => {
                let left = until.saturating_duration_since(now());
                if !left.is_zero() {
                    blocking(|| park_timeout(left));
                }
            }
        }
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        let thread = &self.thread;
        self.on.sleepers(&mut |list| list.leave(thread));
    }
}

/// Sleeps until `until`.
///
/// # Errors
/// The error of `on` if the operation must stop before.
pub fn sleep_until(until: Instant, on: &dyn Interrupt) -> Result<()> {
    let sleep = Sleep::begin(on);
    loop {
        on.check()?;
        if now() >= until {
            return Ok(());
        }
        sleep.park(Some(until));
    }
}
