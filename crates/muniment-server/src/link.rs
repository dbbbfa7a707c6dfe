//! A connection from this server to a member of another set.
//!
//! It is a socket, except in the simulator of a cluster, whose servers have none.

#[cfg(test)]
use crate::simulation::Wire;
use muniment_member::Caller;
use muniment_value::{DocBuf, Result};
use muniment_wire::{Connection, Stream, socket_error};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// How often a thread that waits for a reply looks whether its operation has to end.
const LOOK: Duration = Duration::from_millis(50);

/// See the module's head.
pub(crate) struct Link {
    over: Over,
    /// It is counted as long as it is open.
    counted: Option<Counted>,
}

/// One of the connections that a number counts.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

enum Over {
    Socket(Connection),
    #[cfg(test)]
    Simulated(Wire),
}

impl Link {
    /// Connects to the member at `host`, and proves both to be of the cluster. `step`: longest wait for each step, and,
    /// until it is set anew, for each answer.
    ///
    /// # Errors
    /// 6 if the member cannot be reached; 18 if one side does not prove itself.
    pub fn open(caller: &Caller, host: &str, step: Duration) -> Result<Link> {
        #[cfg(test)]
        if let Some(wire) = Wire::open(host) {
            return wire.map(|wire| Link::new(Over::Simulated(wire)));
        }
        let connection = caller.call(host, step)?;
        Ok(Link::new(Over::Socket(connection)))
    }

    fn new(over: Over) -> Link {
        Link {
            over,
            counted: None,
        }
    }

    /// Counts it in this number as long as it is open.
    pub fn count_in(&mut self, open: &Arc<AtomicUsize>) {
        open.fetch_add(1, Relaxed);
        self.counted = Some(Counted(Arc::clone(open)));
    }

    /// Longest wait for a reply, once it has begun, and for a write.
    ///
    /// # Errors
    /// 9001 SocketException.
    pub fn set_timeout(&mut self, limit: Duration) -> Result<()> {
        match &mut self.over {
            Over::Socket(c) => c.set_timeout(Some(limit)),
            #[cfg(test)]
            Over::Simulated(_) => Ok(()),
        }
    }

    /// Asks the member what it is.
    ///
    /// # Errors
    /// 6, 9001 if it does not answer.
    pub fn hello(&mut self) -> Result<DocBuf> {
        match &mut self.over {
            Over::Socket(c) => c.hello(),
            #[cfg(test)]
            Over::Simulated(wire) => wire.hello(),
        }
    }

    /// Sends a whole message.
    ///
    /// # Errors
    /// 9001 SocketException.
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        match &mut self.over {
            Over::Socket(c) => c.send_bytes(message),
            #[cfg(test)]
            Over::Simulated(wire) => wire.send(message),
        }
    }

    /// Has [`Link::reply_soon`] come back after [`LOOK`] without a reply, and a write end after `limit`.
    ///
    /// # Errors
    /// 9001 SocketException.
    pub fn looks(&mut self, limit: Duration) -> Result<()> {
        match &mut self.over {
            Over::Socket(c) => {
                let s = c.stream();
                let set = s.set_read_timeout(Some(LOOK));
                set.and_then(|()| s.set_write_timeout(Some(limit)))
                    .map_err(|e| socket_error(&e))
            }
            #[cfg(test)]
            Over::Simulated(_) => Ok(()),
        }
    }

    /// Waits for a reply: its document. `None` if there is none after a moment, and then the call can be repeated. To be
    /// used after [`Link::looks`].
    ///
    /// # Errors
    /// 9001 SocketException; 17 ProtocolError.
    pub fn reply_soon(&mut self) -> Result<Option<DocBuf>> {
        match &mut self.over {
            Over::Socket(c) => Ok(c.recv_soon()?.map(|reply| reply.body.to_buf())),
            #[cfg(test)]
            Over::Simulated(wire) => match wire.wait_for_reply(LOOK) {
                true => wire.receive().map(Some),
                false => Ok(None),
            },
        }
    }

    /// How many bytes have arrived of the next reply.
    pub fn begun(&self) -> usize {
        match &self.over {
            Over::Socket(c) => c.begun(),
            #[cfg(test)]
            Over::Simulated(_) => 0,
        }
    }

    /// Waits until there is a reply, or the connection has ended; false after `limit`.
    pub fn wait_for_reply(&self, limit: Duration) -> bool {
        match &self.over {
            Over::Socket(c) => c.stream().wait_for_bytes(limit),
            #[cfg(test)]
            Over::Simulated(wire) => wire.wait_for_reply(limit),
        }
    }

    /// Waits until one of these has a reply, or its connection has ended; false after `limit`.
    pub fn wait_for_any<'l>(all: impl Iterator<Item = &'l Link>, limit: Duration) -> bool {
        Stream::wait_for_any(all.filter_map(Link::socket), limit)
    }

    fn socket(&self) -> Option<&Stream> {
        match &self.over {
            Over::Socket(c) => Some(c.stream()),
            #[cfg(test)]
            Over::Simulated(_) => None,
        }
    }

    /// Whether the member has closed it, seen while nothing is awaited.
    pub fn has_ended(&self) -> bool {
        match &self.over {
            Over::Socket(c) => c.stream().has_ended(),
            #[cfg(test)]
            Over::Simulated(wire) => wire.has_ended(),
        }
    }
}
