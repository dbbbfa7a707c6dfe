//! The client at the other end of an operation's connection.

use crate::interrupt::{Interrupt, stopped};
use crate::sleepers::Sleepers;
use muniment_value::{Code, Result};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The client of one connection, as its operations see it. A connection runs one operation at a time, with
/// its parts; all their waiting threads are woken when the client closes the connection.
#[derive(Debug, Default)]
pub struct Client {
    gone: AtomicBool,
    pub(crate) sleepers: Sleepers,
}

impl Client {
    /// A client that is connected.
    pub fn new() -> Client {
        Client::default()
    }

    /// Notes that the client has closed its end for good. The thread that watches the sockets calls this.
    pub fn leave(&self) {
        self.gone.store(true, SeqCst);
        self.sleepers.wake_all();
    }

    /// True if the client has closed its end.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.gone.load(SeqCst)
    }

    /// The threads that wait for the connection's operation.
    pub fn sleepers(&self) -> &Sleepers {
        &self.sleepers
    }
}

/// What has to stop as soon as the client has gone: 279 ClientDisconnect.
impl Interrupt for Client {
    fn check(&self) -> Result<()> {
        match self.is_gone() {
            true => Err(stopped(Code::ClientDisconnect)),
            false => Ok(()),
        }
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        show(&self.sleepers);
    }
}
