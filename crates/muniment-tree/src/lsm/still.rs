//! Files that stand still: see [`Trees::hold`](crate::Trees::hold).
//!
//! Work that makes, changes or removes a file of the engine has a [`Working`] for as long as it does.
//! None is given out while the files are held, and a hold waits until all are given back; long work
//! looks now and then whether a hold is wanted, and gives up for it ([`Pulse`]). A thread that has a
//! `Working` must not ask for another.

use super::shared::Shared;
use muniment_op::{Event, Interrupt};
use muniment_value::Result;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A long work looks whether it may go on after so many versions, and so many bytes.
const VERSIONS: usize = 1024;
const BYTES: usize = 1 << 20;

/// How much work changes files at the moment, and how many callers want them to stand still.
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

/// Files may be changed while it lives.
pub(crate) struct Working<'a>(&'a Still);

/// The files stand still while it lives.
pub(crate) struct Held(Arc<Shared>);

impl Still {
    /// True if the files are held or a hold is waited for: long work has to give up.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(SeqCst)
    }

    /// Permission to change files, if they are not held.
    pub(crate) fn try_work(&self) -> Option<Working<'_>> {
        let mut state = self.state.lock();
        (state.holds == 0).then(|| {
            state.working += 1;
            Working(self)
        })
    }

    /// As [`Still::try_work`]; waits while they are held.
    ///
    /// # Errors
    /// What `interrupt` says while it waits.
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
    /// What `interrupt` says while it waits for what changes them.
    pub(crate) fn new(shared: &Arc<Shared>, interrupt: &dyn Interrupt) -> Result<Held> {
        let still = &shared.still;
        {
            let mut state = still.state.lock();
            state.holds += 1;
            still.wanted.store(true, SeqCst);
        }
        // From here on it is given back whatever happens.
        let held = Held(shared.clone());
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

/// Tells a long work when to look whether it may go on.
#[derive(Default)]
pub(crate) struct Pulse {
    versions: usize,
    bytes: usize,
}

impl Pulse {
    /// Counts a version of `bytes`; true when it is time to look.
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
