//! What a server has for transactions over several shards: the other sets, and what is coordinated here now.

use crate::sets::Sets;
use muniment_op::{Event, Interrupt};
use muniment_storage::TransactionId;
use muniment_value::Result;
use parking_lot::Mutex;
use std::collections::HashSet;

/// What a server has for transactions over several shards.
pub struct Distributed {
    /// The sets of other participants.
    pub sets: Sets,
    /// The transactions that a thread coordinates.
    running: Mutex<HashSet<TransactionId>>,
    /// Notified when one of these ends.
    ended: Event,
}

impl Distributed {
    /// Nothing is coordinated yet.
    pub fn new(sets: Sets) -> Distributed {
        Distributed {
            sets,
            running: Mutex::default(),
            ended: Event::new(),
        }
    }

    /// Takes the right to coordinate a transaction, if no other thread has it.
    pub(super) fn try_begin(&self, id: TransactionId) -> Option<Running<'_>> {
        let began = self.running.lock().insert(id);
        began.then_some(Running(self, id))
    }

    /// The same, after another thread has ended.
    ///
    /// # Errors
    /// What `on` says.
    pub(super) fn begin(&self, id: TransactionId, on: &dyn Interrupt) -> Result<Running<'_>> {
        self.ended.wait_for((), on, || self.try_begin(id))
    }
}

/// The right to coordinate a transaction.
pub(super) struct Running<'d>(&'d Distributed, TransactionId);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.lock().remove(&self.1);
        self.0.ended.notify_all();
    }
}
