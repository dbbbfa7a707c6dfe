//! How a thread sleeps so that whoever stops its operation can wake it.

use crate::interrupt::Interrupt;
use muniment_value::Result;
use std::thread::{Thread, current, park, park_timeout};
use std::time::Instant;

/// The calling thread waits for something on behalf of an operation, and whoever stops the operation
/// wakes it. What it waits for has to know the thread as well: [`Event`](crate::Event) does.
#[must_use]
pub struct Sleep<'i> {
    on: &'i dyn Interrupt,
    thread: Thread,
}

impl<'i> Sleep<'i> {
    /// The calling thread stands in the operation's lists from here on until this is dropped.
    pub fn begin(on: &'i dyn Interrupt) -> Sleep<'i> {
        let thread = current();
        on.sleepers(&mut |list| list.enter(&thread));
        Sleep { on, thread }
    }

    /// The calling thread, for the one that wakes it.
    pub fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Sleeps until the thread is woken, until `until`, or until the operation's deadline. It may return
    /// for no reason at all: the caller asks again for what it waits for, and the operation.
    pub fn park(&self, until: Option<Instant>) {
        let until = match (until, self.on.wakes_at()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        // The one place where an operation's thread blocks: a pool of workers hears of it here.
        match until {
            None => park(),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                if !left.is_zero() {
                    park_timeout(left);
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

/// Sleeps until `until`, or until the operation must stop.
///
/// # Errors
/// What `on` says.
pub fn sleep_until(until: Instant, on: &dyn Interrupt) -> Result<()> {
    let sleep = Sleep::begin(on);
    loop {
        on.check()?;
        if Instant::now() >= until {
            return Ok(());
        }
        sleep.park(Some(until));
    }
}
