//! The registry of all running operations, by their numbers.

use super::{OpContext, OpStart};
use foldhash::HashMap;
use muniment_storage::SessionKey;
use muniment_storage::spread::{self, Spread};
use muniment_value::Code;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;

/// Threads are spread over so many places. Each place numbers its operations by itself, so that the
/// cores share nothing.
const PLACES: u32 = 16;

/// The operations of one place's threads.
#[derive(Default)]
struct Running {
    /// The last number that was given, without the place.
    last: u32,
    all: HashMap<u32, Arc<OpContext>>,
}

/// All running operations.
#[derive(Default)]
pub struct Operations {
    places: Spread<Mutex<Running>, { PLACES as usize }>,
}

/// A registered operation. Dropping it removes it from the registry.
pub struct OpGuard<'r> {
    registry: &'r Operations,
    op: Arc<OpContext>,
}

impl std::ops::Deref for OpGuard<'_> {
    type Target = Arc<OpContext>;
    fn deref(&self) -> &Arc<OpContext> {
        &self.op
    }
}

impl Drop for OpGuard<'_> {
    fn drop(&mut self) {
        self.op.end_kept();
        let removed = self
            .registry
            .running(self.op.id)
            .lock()
            .all
            .remove(&self.op.id);
        // The memory is freed after the lock has been released.
        drop(removed);
    }
}

impl Operations {
    /// An empty registry.
    pub fn new() -> Operations {
        Operations::default()
    }

    fn running(&self, id: u32) -> &Mutex<Running> {
        self.places.at((id % PLACES) as usize)
    }

    /// Registers an operation.
    pub fn begin(&self, start: OpStart) -> OpGuard<'_> {
        let place = spread::place(PLACES as usize) as u32;
        let mut running = self.running(place).lock();
        let id = loop {
            // The opid is an int32 that clients send back with killOp, so it is positive.
            running.last = running.last % (i32::MAX as u32 / PLACES) + 1;
            let id = running.last * PLACES + place;
            // Numbers wrap around, and an operation that has run ever since may still have this
            // one.
            if !running.all.contains_key(&id) {
                break id;
            }
        };
        let op = OpContext::new(id, start);
        running.all.insert(id, op.clone());
        OpGuard { registry: self, op }
    }

    /// All running operations, oldest first.
    pub fn list(&self) -> Vec<Arc<OpContext>> {
        let mut all: Vec<_> = self
            .places
            .iter()
            .flat_map(|r| r.lock().all.values().cloned().collect::<Vec<_>>())
            .collect();
        all.sort_by_key(|o| o.started());
        all
    }

    /// Whether an operation that reads this namespace began before a moment. Those of change streams do not, and those
    /// that read one view see what is deleted later.
    pub fn any_older(&self, namespace: &str, than: Instant) -> bool {
        let older = |op: &Arc<OpContext>| {
            let reads = op.start.on_documents && !op.is_of_change_stream() && op.reads_newest();
            reads && op.started() < than && op.namespace() == namespace
        };
        self.places
            .iter()
            .any(|running| running.lock().all.values().any(older))
    }

    /// Kills one operation. Returns false if there is none with this number (killOp answers ok all
    /// the same).
    pub fn kill(&self, id: u32) -> bool {
        match self.running(id).lock().all.get(&id) {
            Some(op) => {
                op.kill(Code::Interrupted);
                true
            }
            None => false,
        }
    }

    /// The running operation with this number.
    pub fn get(&self, id: u32) -> Option<Arc<OpContext>> {
        self.running(id).lock().all.get(&id).cloned()
    }

    /// Kills all running operations with `code`: 11600 InterruptedAtShutdown, before the store
    /// closes.
    pub fn kill_all(&self, code: Code) {
        for op in self.list() {
            op.kill(code);
        }
    }

    /// Kills the operations of a session (killSessions, endSessions).
    pub fn kill_session(&self, session: &SessionKey) {
        for op in self.list() {
            if op.session() == Some(session) {
                op.kill(Code::Interrupted);
            }
        }
    }

    /// The number of running operations.
    pub fn len(&self) -> usize {
        self.places.iter().map(|r| r.lock().all.len()).sum()
    }

    /// True if no operation is running.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_number_that_is_taken_is_not_given_again() {
        let ops = Operations::new();
        let op = ops.begin(OpStart::default());
        // The numbers wrap around.
        let again = |last: u32| {
            ops.places.own().lock().last = last;
            ops.begin(OpStart::default())
        };
        let other = again(op.id() / PLACES - 1);
        assert_ne!(other.id(), op.id());
        assert_eq!(ops.len(), 2);
        let last = i32::MAX as u32 / PLACES;
        let (before, behind) = (again(last - 2), again(last));
        assert!(before.id() > behind.id() && i32::try_from(before.id()).is_ok());
        drop((other, before, behind));
        assert!(ops.kill(op.id()));
        assert_eq!(ops.len(), 1);
    }
}
