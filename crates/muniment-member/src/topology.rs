//! `topologyVersion`, by which drivers tell an old answer from a new one, and the clients that wait in a
//! `hello` for it to change.

use crate::lifecycle::Lifecycle;
use muniment_value::{DocBuf, Value, doc};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// See the module's head.
pub struct Topology {
    /// `processId`: another one with every start.
    pub process: [u8; 12],
    /// Connections that wait in an awaitable hello.
    pub waiting: AtomicU64,
    counter: Mutex<i64>,
    changed: Condvar,
}

impl Default for Topology {
    fn default() -> Topology {
        Topology {
            process: muniment_value::new_object_id(),
            waiting: AtomicU64::new(0),
            counter: Mutex::new(0),
            changed: Condvar::new(),
        }
    }
}

impl Topology {
    /// The counter.
    pub fn counter(&self) -> i64 {
        *self.counter.lock()
    }

    /// The document with this counter.
    pub fn version(&self, counter: i64) -> DocBuf {
        doc! { "processId": Value::ObjectId(self.process), "counter": counter }
    }

    /// The topology has changed: awaitable hellos that wait for that are answered.
    pub fn change(&self) {
        *self.counter.lock() += 1;
        self.changed.notify_all();
    }

    /// Has the threads that wait here look whether the server ends.
    pub fn wake_all(&self) {
        let _counter = self.counter.lock();
        self.changed.notify_all();
    }

    /// Waits until the counter differs from `seen`, the server ends, or `time` has passed.
    pub fn wait(&self, seen: i64, time: Duration, life: &Lifecycle) {
        let end = Instant::now() + time;
        let mut counter = self.counter.lock();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        while *counter == seen && !life.is_stopping() {
            if self.changed.wait_until(&mut counter, end).timed_out() {
                break;
            }
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_a_change_and_with_the_server() {
        let (topology, life) = (Topology::default(), Lifecycle::default());
        let long = Duration::from_secs(600);
        std::thread::scope(|scope| {
            scope.spawn(|| topology.wait(0, long, &life));
            topology.change();
        });
        assert_eq!(topology.counter(), 1);
        topology.wait(0, long, &life);
        topology.wait(1, Duration::ZERO, &life);
        std::thread::scope(|scope| {
            scope.spawn(|| topology.wait(1, long, &life));
            life.begin_stopping();
            topology.wake_all();
        });
        assert_eq!(topology.waiting.load(Ordering::Relaxed), 0);
    }
}
