//! The list of threads that one event wakes.

use parking_lot::Mutex;
use std::thread::Thread;

/// The waiting threads that have to be woken by one event which ends all of their waits: an operation is
/// killed, a client goes, a store closes.
///
/// Invariant: a thread that wakes them has set before what [`Interrupt::check`](crate::Interrupt::check)
/// reads.
#[derive(Debug, Default)]
pub struct Sleepers {
    threads: Mutex<Threads>,
}

/// The list. An operation usually waits in one thread, for which the list needs no allocation.
#[derive(Debug, Default)]
struct Threads {
    first: Option<Thread>,
    more: Vec<Thread>,
}

impl Sleepers {
    /// An empty list.
    pub const fn new() -> Sleepers {
        Sleepers {
            threads: Mutex::new(Threads {
                first: None,
                more: Vec::new(),
            }),
        }
    }

    /// Wakes all threads of the list. They stay in it until they leave it.
    pub fn wake_all(&self) {
        let threads = self.threads.lock();
        let all = threads.first.iter().chain(&threads.more);
        all.for_each(Thread::unpark);
    }

    /// How many threads wait, as of one moment.
    pub fn count(&self) -> usize {
        let threads = self.threads.lock();
        threads.first.iter().count() + threads.more.len()
    }

    pub(crate) fn enter(&self, thread: &Thread) {
        let mut threads = self.threads.lock();
        match threads.first {
            None => threads.first = Some(thread.clone()),
            Some(_) => threads.more.push(thread.clone()),
        }
    }

    /// Removes the thread once. A thread that sleeps for two interrupts at once may be in the list twice.
    pub(crate) fn leave(&self, thread: &Thread) {
        let is_it = |t: &Thread| t.id() == thread.id();
        let mut threads = self.threads.lock();
        if threads.first.as_ref().is_some_and(is_it) {
            threads.first = None;
        } else if let Some(at) = threads.more.iter().position(is_it) {
            threads.more.swap_remove(at);
        }
    }
}
