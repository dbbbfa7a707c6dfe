//! `topologyVersion`, by which drivers tell an old answer from a new one, and the clients that wait in a
//! `hello` for it to change.

use crate::lifecycle::Lifecycle;
use muniment_op::{Event, Interrupt};
use muniment_value::{DocBuf, Result, Value, doc};
use std::sync::atomic::{
    AtomicI64, AtomicU64,
    Ordering::{Relaxed, SeqCst},
    fence,
};
use std::time::{Duration, Instant};

/// See the module's head.
pub struct Topology {
    /// `processId`: another one with every start.
    pub process: [u8; 12],
    /// Connections that wait in an awaitable hello.
    pub waiting: AtomicU64,
    counter: AtomicI64,
    changed: Event,
}

impl Default for Topology {
    fn default() -> Topology {
        Topology {
            process: muniment_value::new_object_id(),
            waiting: AtomicU64::new(0),
            counter: AtomicI64::new(0),
            changed: Event::new(),
        }
    }
}

impl Topology {
    /// The counter.
    pub fn counter(&self) -> i64 {
        self.counter.load(SeqCst)
    }

    /// The document with this counter.
    pub fn version(&self, counter: i64) -> DocBuf {
        doc! { "processId": Value::ObjectId(self.process), "counter": counter }
    }

    /// The topology has changed: awaitable hellos that wait for that are answered.
    pub fn change(&self) {
        self.counter.fetch_add(1, SeqCst);
        self.changed.notify_all();
    }

    /// Has the threads that wait here look whether the server ends.
    pub fn wake_all(&self) {
        fence(SeqCst);
        self.changed.notify_all();
    }

    /// Waits until the counter differs from `seen`, the server ends, or `time` has passed.
    ///
    /// # Errors
    /// What `on` says, unless the server ends: then the client is told of that by the answer.
    pub fn wait(
        &self,
        seen: i64,
        time: Duration,
        life: &Lifecycle,
        on: &dyn Interrupt,
    ) -> Result<()> {
        let end = Instant::now() + time;
        self.waiting.fetch_add(1, Relaxed);
        let ready = || self.counter() != seen || life.is_stopping();
        let waited = self.changed.wait_until(on, end, ready);
        self.waiting.fetch_sub(1, Relaxed);
        match waited {
            Err(e) if !life.is_stopping() => Err(e),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use muniment_op::{Client, NeverInterrupted};
    use muniment_value::Code;

    #[test]
    fn a_wait_ends_with_a_change_with_its_operation_and_with_the_server() {
        let (topology, life) = (Topology::default(), Lifecycle::default());
        let long = Duration::from_secs(600);
        let wait = |seen, time| topology.wait(seen, time, &life, &NeverInterrupted);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| wait(0, long));
            topology.change();
            waits.join().unwrap().unwrap();
        });
        assert_eq!(topology.counter(), 1);
        wait(0, long).unwrap();
        wait(1, Duration::ZERO).unwrap();
        let client = Client::default();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| topology.wait(1, long, &life, &client));
            client.leave();
            let gone = waits.join().unwrap().unwrap_err();
            assert_eq!(gone.code(), Code::ClientDisconnect);
        });
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| wait(1, long));
            life.begin_stopping();
            topology.wake_all();
            waits.join().unwrap().unwrap();
        });
        assert_eq!(topology.waiting.load(Relaxed), 0);
    }
}
