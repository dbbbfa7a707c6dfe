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
        // Not `then_some`: what that takes is made in any case, and would end the other thread's right when it is dropped.
        began.then(|| Running(self, id))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use muniment_member::{Routes, Trust};

    /// Asking in vain takes nothing away from the thread that has the right.
    #[test]
    fn one_thread_at_a_time_coordinates_a_transaction() {
        let sets = Sets::new(1, &Trust::default(), &Routes::default());
        let distributed = Distributed::new(sets);
        let id = TransactionId {
            session: muniment_storage::SessionKey::from_bytes(&[7; 48]).unwrap(),
            number: 1,
        };
        let first = distributed.try_begin(id);
        assert!(first.is_some());
        for _ in 0..3 {
            assert!(distributed.try_begin(id).is_none());
        }
        drop(first);
        assert!(distributed.try_begin(id).is_some());
    }
}
