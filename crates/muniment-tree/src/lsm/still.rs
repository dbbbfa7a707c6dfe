//! Keeps files unchanged while a caller asks for it: see [`Trees::hold`](crate::Trees::hold).
//!
//! Work that creates, changes or removes a file of the engine has a [`Working`] for as long as it does so.
//! None is given out while the files are held, and a hold waits until all are given back. Long work checks
//! now and then whether a hold is wanted, and gives way to it ([`Pulse`]). A thread that has a `Working` must
//! not ask for another one, as it could wait for itself.

use super::idle::For;
use super::shared::Shared;
use muniment_op::{Event, Interrupt};
use muniment_value::Result;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// After this many versions, or this many bytes, long work checks whether it may go on.
const VERSIONS: usize = 1024;
const BYTES: usize = 1 << 20;

/// How much work is changing files, and how many callers want the files to stand still.
#[derive(Default)]
pub(crate) struct Still {
    state: Mutex<State>,
    changed: Event,
    wanted: AtomicBool,
}

#[derive(Default)]
struct State {
    holds: usize,
    working: usize,
}

/// Permission to change files, for as long as it lives.
pub(crate) struct Working<'a>(&'a Still);

/// A hold: the files stand still for as long as it lives.
pub(crate) struct Held(Arc<Shared>);

impl Still {
    /// True if the files are held or a hold is waited for, so that long work has to give way.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(SeqCst)
    }

    /// Gives permission to change files, unless they are held.
    pub(crate) fn try_work(&self) -> Option<Working<'_>> {
        let mut state = self.state.lock();
        (state.holds == 0).then(|| {
            state.working += 1;
            Working(self)
        })
    }

    /// As [`Still::try_work`], but waits while the files are held.
    ///
    /// # Errors
    /// Those of `interrupt`, while it waits.
    pub(crate) fn work(&self, interrupt: &dyn Interrupt) -> Result<Working<'_>> {
        match self.try_work() {
            Some(working) => Ok(working),
            None => self.changed.wait_for((), interrupt, || self.try_work()),
        }
    }

    fn release(&self) {
        let mut state = self.state.lock();
        state.holds -= 1;
        self.wanted.store(state.holds > 0, SeqCst);
        drop(state);
        self.changed.notify_all();
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.state.lock().working -= 1;
        self.0.changed.notify_all();
    }
}

impl Held {
    /// Holds the files of an engine.
    ///
    /// # Errors
    /// Those of `interrupt`, while it waits for work that changes files.
    pub(crate) fn new(shared: &Arc<Shared>, interrupt: &dyn Interrupt) -> Result<Held> {
        let still = &shared.still;
        {
            let mut state = still.state.lock();
            state.holds += 1;
            still.wanted.store(true, SeqCst);
        }
        // From here on, dropping `held` gives the hold back, whatever happens.
        let held = Held(shared.clone());
        // A job that waits for room gives way.
        shared.idle.notify_those(|what| *what == For::Room);
        let nobody = || still.state.lock().working == 0;
        still.changed.wait(interrupt, nobody)?;
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.still.release();
        self.0.notify();
    }
}

/// Tells long work when to check whether it may go on.
#[derive(Default)]
pub(crate) struct Pulse {
    versions: usize,
    bytes: usize,
}

impl Pulse {
    /// Counts a version of `bytes`. Returns true when it is time to check.
    pub(crate) fn beat(&mut self, bytes: usize) -> bool {
        self.versions += 1;
        self.bytes += bytes;
        let now = self.versions >= VERSIONS || self.bytes >= BYTES;
        if now {
            *self = Pulse::default();
        }
        now
    }
}
