//! The client at the other end of an operation's connection.

use crate::sleepers::Sleepers;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The client of one connection, as its operations see it. A connection runs one operation at a time,
/// with its parts; whatever of them waits is woken when the client goes.
#[derive(Debug, Default)]
pub struct Client {
    gone: AtomicBool,
    pub(crate) sleepers: Sleepers,
}

impl Client {
    /// A client that is there.
    pub fn new() -> Client {
        Client::default()
    }

    /// The client has closed its end, for good: said by the thread that watches the sockets.
    pub fn leave(&self) {
        self.gone.store(true, SeqCst);
        self.sleepers.wake_all();
    }

    /// True once it has gone.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.gone.load(SeqCst)
    }

    /// The threads that wait for the connection's operation.
    pub fn sleepers(&self) -> &Sleepers {
        &self.sleepers
    }
}
