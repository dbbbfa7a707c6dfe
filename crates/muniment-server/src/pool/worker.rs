//! A thread of a pool.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Release};
use std::thread::Thread;

/// A thread of the pool.
#[derive(Default)]
pub(super) struct Worker {
    /// The thread and the system's number of it, as soon as it runs.
    pub(super) thread: OnceLock<(Thread, i32)>,
    /// It was called from the spare ones.
    pub(super) called: AtomicBool,
    /// It counts among the active ones. Changed only under the lock of the post's state.
    pub(super) counts: AtomicBool,
    /// How often it has begun to serve or to wait for sockets.
    pub(super) turns: AtomicU64,
    /// It serves a connection.
    pub(super) serves: AtomicBool,
    /// It waits for the sockets.
    pub(super) polls: AtomicBool,
}

impl Worker {
    pub(super) fn call(&self) {
        self.called.store(true, Release);
        // A worker that sleeps has entered its thread.
        if let Some((thread, _)) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// The system's number of the calling thread.
pub(super) fn thread_id() -> i32 {
    // SAFETY: the call takes nothing.
    unsafe { libc::gettid() }
}
