//! The driver's own thread, and what a thread or a simulation that takes a turn needs to know: whether
//! anything came, and when the next turn is due.

use super::{Driver, Event};
use muniment_logger::{Caught, guarded};
use muniment_value::{Code, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Driver {
    /// Runs in the driver's thread until the server ends or has to begin again.
    pub fn run(mut self) {
        let node = Arc::clone(&self.node);
        let began = guarded(|| self.begin(self.instant()));
        self.end_with(began);
        *node.driver.lock() = Some(self);
        loop {
            let (told, due) = match node.driver.lock().as_mut() {
                Some(driver) if !driver.has_ended() => driver.rest(),
                _ => break,
            };
            node.inbox.wait(told, due);
            match node.driver.lock().as_mut() {
                // It was woken only to rest for a shorter time: see `Inbox::sooner`.
                Some(driver) if driver.rests_on() => {}
                Some(driver) if !driver.has_ended() => {
                    driver.wake();
                    driver.turn_now();
                }
                _ => break,
            }
        }
        // Messages that were held back to go out together are sent before the driver ends.
        if let Some(driver) = node.driver.lock().as_mut() {
            driver.send_all();
            driver.note_frozen();
        }
        // The driver holds the node, so a node that held the driver would keep both alive for ever.
        let driver = node.driver.lock().take();
        drop(driver);
    }

    /// The driver's thread is about to rest. Returns how far the core knows the log, and until when to rest.
    pub fn rest(&mut self) -> (u64, Instant) {
        let due = self.due();
        self.rests_until = Some(due);
        self.node.inbox.rests();
        (self.told, due)
    }

    /// Nothing came, and nothing is due: the driver's thread can rest again.
    pub fn rests_on(&self) -> bool {
        !self.has_ended() && !self.has_news() && self.instant() < self.due()
    }

    /// The driver's thread no longer rests.
    pub fn wake(&mut self) {
        self.rests_until = None;
    }

    /// A turn with what came. An error ends the server.
    pub fn turn_now(&mut self) {
        let events = self.came();
        let turned = guarded(|| self.turn(events, self.instant()));
        self.end_with(turned);
    }

    /// [`Driver::short_turn`], now. An error ends the server.
    pub fn turn_for_log(&mut self) {
        let turned = guarded(|| self.short_turn(self.instant()));
        self.end_with(turned);
    }

    /// Ends the server if the turn failed: without a driver a primary's writes are never acknowledged.
    pub(super) fn end_with(&mut self, turned: std::result::Result<Result<()>, Caught>) {
        let turned = turned.unwrap_or_else(|caught| Err(caught.into_error("the driver")));
        let Err(e) = turned else { return };
        self.done = true;
        // A turn that waited for room on a full disk until the server was told to end has not failed.
        let waited = e.code() == Code::OutOfDiskSpace;
        if !(waited && self.set.home.lifecycle.wait_for_stop_for(Duration::ZERO)) {
            self.fail("replication cannot go on", &e);
        }
    }

    /// The server ends, or begins again: there is no further turn.
    pub fn has_ended(&self) -> bool {
        self.done || self.node.inbox.is_stopped()
    }

    /// Takes what came from the inbox.
    pub fn came(&self) -> Vec<Event> {
        self.node.inbox.take()
    }

    /// Something came that no turn has seen.
    pub fn has_news(&self) -> bool {
        let inbox = &self.node.inbox;
        inbox.has_news() || inbox.has_more(self.told)
    }

    /// Whether messages for a member are held back for more to join them, and whether a sync is: for
    /// simulations, which count how often that happens.
    pub fn gathers(&self) -> (bool, bool) {
        (self.gathered_until().is_some(), self.synced_by().is_some())
    }

    /// When something that was put off is to happen.
    pub fn gathers_until(&self) -> Option<Instant> {
        let all = [
            self.gathered_until(),
            self.synced_by(),
            self.calm_from(),
            self.goes_on_at(),
        ];
        all.into_iter().flatten().min()
    }

    /// When there has to be a turn although nothing came.
    pub(super) fn due(&self) -> Instant {
        let put_off = self.gathers_until();
        put_off.map_or(self.next, |at| at.min(self.next))
    }

    /// The driver's thread rests for longer than it may, and nobody has called it.
    pub fn oversleeps(&self) -> bool {
        let for_longer = self.rests_until.is_some_and(|until| self.due() < until);
        for_longer && !self.node.inbox.is_called_sooner()
    }
}
