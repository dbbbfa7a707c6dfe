//! The connections of a server: those that are open, as other threads see them, and their counters.

use muniment_op::Client;
use muniment_value::DocBuf;
use muniment_wire::Stream;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// A connection as others see it.
pub struct ConnShared {
    /// Its number.
    pub id: u64,
    /// The client's address; empty for a Unix socket.
    pub peer: Arc<str>,
    /// The socket.
    pub stream: Arc<Stream>,
    /// The client at the other end.
    pub remote: Arc<Client>,
    /// When it was opened.
    pub since: Instant,
    /// What the client said about itself.
    pub client: Mutex<ClientInfo>,
    /// The user who has logged in, `user@db`.
    pub user: Mutex<Option<Arc<str>>>,
    /// The document of the running command, for currentOp.
    pub command: Mutex<Vec<u8>>,
    /// True while a command runs, and until its reply is sent.
    pub busy: AtomicBool,
    /// The client has sent a whole message.
    pub spoke: AtomicBool,
    /// The client takes nothing of a reply that is being sent.
    pub stuck: AtomicBool,
    /// What connectionStatus calls the connection, made when it is first asked for.
    pub uuid: OnceLock<[u8; 16]>,
}

/// The IP address of a socket's end, `address:port`; `None` for a Unix socket.
pub fn address_of(end: &str) -> Option<IpAddr> {
    end.parse::<SocketAddr>().ok().map(|a| a.ip())
}

/// `hello.client`.
#[derive(Clone, Debug, Default)]
pub struct ClientInfo {
    /// The whole document.
    pub document: Option<DocBuf>,
    /// `application.name`.
    pub app_name: Option<Arc<str>>,
}

/// See the module's head.
pub struct Connections {
    /// How many are open from each address.
    by_address: Mutex<HashMap<IpAddr, usize>>,
    /// Those whose client has not sent a whole message yet.
    newcomers: Mutex<Vec<Weak<ConnShared>>>,
    /// Most connections at a time.
    pub most: usize,
    /// The open ones, by their numbers.
    all: Mutex<HashMap<u64, Arc<ConnShared>>>,
    /// How many are open: read for each new connection, which therefore needs no lock for it.
    pub open: AtomicU64,
    /// How many were ever opened.
    pub created: AtomicU64,
    /// How many were refused.
    pub rejected: AtomicU64,
    /// How many were closed because they took too long to send a message, or to take a reply.
    pub slow: AtomicU64,
    /// How many wait for memory to receive a message.
    pub waiting_messages: AtomicUsize,
    /// How many wait for memory for a reply.
    pub waiting_replies: Arc<AtomicUsize>,
}

impl Connections {
    /// No connections, and room for so many at a time.
    pub fn new(most: usize) -> Connections {
        Connections {
            by_address: Mutex::default(),
            newcomers: Mutex::default(),
            most,
            all: Mutex::default(),
            open: AtomicU64::new(0),
            created: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            slow: AtomicU64::new(0),
            waiting_messages: AtomicUsize::new(0),
            waiting_replies: Arc::default(),
        }
    }

    /// How many connections are open from the address of a socket's end.
    pub fn count_from(&self, end: &str) -> usize {
        let by_address = self.by_address.lock();
        let of = address_of(end).and_then(|address| by_address.get(&address));
        of.copied().unwrap_or(0)
    }

    /// Ends connections whose client has sent no whole message for `limit` after it has connected: drivers
    /// begin at once, and a handshake of TLS takes no longer. Returns how many.
    pub fn end_silent(&self, limit: Duration) -> usize {
        let mut ended = 0;
        self.newcomers.lock().retain(|newcomer| {
            let Some(connection) = newcomer.upgrade() else {
                return false;
            };
            let silent = !connection.spoke.load(Relaxed);
            let ends = silent && connection.since.elapsed() >= limit;
            if ends {
                let _ = connection.stream.shutdown();
                ended += 1;
            }
            silent && !ends
        });
        ended
    }

    /// A connection is open.
    pub fn insert(&self, connection: &Arc<ConnShared>) {
        if let Some(address) = address_of(&connection.peer) {
            *self.by_address.lock().entry(address).or_default() += 1;
        }
        self.newcomers.lock().push(Arc::downgrade(connection));
        let mut all = self.all.lock();
        all.insert(connection.id, Arc::clone(connection));
    }

    /// The connection with this number is closed.
    pub fn remove(&self, id: u64) {
        let removed = self.all.lock().remove(&id);
        let Some(address) = removed.and_then(|c| address_of(&c.peer)) else {
            return;
        };
        let mut by_address = self.by_address.lock();
        if let Some(count) = by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&address);
            }
        }
    }

    /// The open connections.
    pub fn list(&self) -> Vec<Arc<ConnShared>> {
        self.all.lock().values().cloned().collect()
    }

    /// The open connection with this number.
    pub fn get(&self, id: u64) -> Option<Arc<ConnShared>> {
        self.all.lock().get(&id).map(Arc::clone)
    }

    /// The client of the connection with this number has gone.
    pub fn hangs_up(&self, id: u64) {
        if let Some(connection) = self.get(id) {
            connection.remote.leave();
        }
    }
}
