//! Waiting until a condition holds.

use crate::event::Event;
use crate::interrupt::Interrupt;
use crate::simulated::now;
use crate::sleep::Sleep;
use muniment_value::Result;
use std::time::Instant;

impl<K: PartialEq> Event<K> {
    /// Waits until `ready` returns `Some`. `ready` is called at once and after each notification. Neither
    /// `ready` nor the checks of `on` may park the thread: that could consume the notification of this wait.
    ///
    /// # Errors
    /// The error of `on`.
    pub fn wait_for<T>(
        &self,
        key: K,
        on: &dyn Interrupt,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T> {
        let waiting = Waits::begin(self, key, on);
        loop {
            if let Some(found) = ready() {
                return Ok(found);
            }
            on.check()?;
            waiting.park(None);
        }
    }

    /// Does the same as [`Event::wait_for`], but returns `None` if `ready` has returned `None` until `until`.
    ///
    /// # Errors
    /// The error of `on`.
    pub fn wait_for_until<T>(
        &self,
        key: K,
        on: &dyn Interrupt,
        until: Instant,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>> {
        let waiting = Waits::begin(self, key, on);
        loop {
            if let Some(found) = ready() {
                return Ok(Some(found));
            }
            on.check()?;
            if now() >= until {
                return Ok(None);
            }
            waiting.park(Some(until));
        }
    }
}

impl Event {
    /// Waits until `ready` is true.
    ///
    /// # Errors
    /// The error of `on`.
    pub fn wait(&self, on: &dyn Interrupt, mut ready: impl FnMut() -> bool) -> Result<()> {
        self.wait_for((), on, || ready().then_some(()))
    }

    /// Waits until `ready` is true. Returns false if it is not by `until`.
    ///
    /// # Errors
    /// The error of `on`.
    pub fn wait_until(
        &self,
        on: &dyn Interrupt,
        until: Instant,
        mut ready: impl FnMut() -> bool,
    ) -> Result<bool> {
        let found = self.wait_for_until((), on, until, || ready().then_some(()))?;
        Ok(found.is_some())
    }
}

/// The wait of the calling thread, which is in the lists of everything that may wake it.
pub(crate) struct Waits<'w, K: PartialEq> {
    // The place is dropped first, so that a notification that comes just then is passed on.
    place: Place<'w, K>,
    sleep: Sleep<'w>,
}

impl<'w, K: PartialEq> Waits<'w, K> {
    pub(crate) fn begin(event: &'w Event<K>, key: K, on: &'w dyn Interrupt) -> Waits<'w, K> {
        let sleep = Sleep::begin(on);
        let number = event.enter(key, sleep.thread());
        Waits {
            place: Place { event, number },
            sleep,
        }
    }

    /// Sleeps until the thread is woken. Returns whether that was a call of the event.
    pub(crate) fn park(&self, until: Option<Instant>) -> bool {
        self.sleep.park(until);
        self.place.event.hear(self.place.number)
    }
}

/// A thread's place in the line of an event.
struct Place<'e, K: PartialEq> {
    event: &'e Event<K>,
    number: u64,
}

impl<K: PartialEq> Drop for Place<'_, K> {
    fn drop(&mut self) {
        self.event.leave(self.number);
    }
}
