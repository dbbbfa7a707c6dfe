//! Waiting until something is so.

use crate::event::Event;
use crate::interrupt::Interrupt;
use crate::sleep::Sleep;
use muniment_value::Result;
use std::time::Instant;

impl<K: PartialEq> Event<K> {
    /// Waits until `ready` gives something, which is asked at once and after each call. Neither `ready` nor
    /// what `on` asks may park the thread: that would take away the call of this wait.
    ///
    /// # Errors
    /// What `on` says.
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

    /// As [`Event::wait_for`]; `None` if `ready` has given nothing by `until`.
    ///
    /// # Errors
    /// What `on` says.
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
            if Instant::now() >= until {
                return Ok(None);
            }
            waiting.park(Some(until));
        }
    }
}

impl Event {
    /// Waits until `ready`.
    ///
    /// # Errors
    /// What `on` says.
    pub fn wait(&self, on: &dyn Interrupt, mut ready: impl FnMut() -> bool) -> Result<()> {
        self.wait_for((), on, || ready().then_some(()))
    }

    /// Waits until `ready`; false if it is not by `until`.
    ///
    /// # Errors
    /// What `on` says.
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

/// The calling thread waits, and stands in the lists of all that may wake it.
struct Waits<'w, K: PartialEq> {
    // Left first: a call that comes to it then is passed on.
    place: Place<'w, K>,
    sleep: Sleep<'w>,
}

impl<'w, K: PartialEq> Waits<'w, K> {
    fn begin(event: &'w Event<K>, key: K, on: &'w dyn Interrupt) -> Waits<'w, K> {
        let sleep = Sleep::begin(on);
        let number = event.enter(key, sleep.thread());
        Waits {
            place: Place { event, number },
            sleep,
        }
    }

    fn park(&self, until: Option<Instant>) {
        self.sleep.park(until);
        self.place.event.hear(self.place.number);
    }
}

/// A thread's place in the line.
struct Place<'e, K: PartialEq> {
    event: &'e Event<K>,
    number: u64,
}

impl<K: PartialEq> Drop for Place<'_, K> {
    fn drop(&mut self) {
        self.event.leave(self.number);
    }
}
