//! The null responder: a server that reads, validates and parses each message with the same code as the real
//! one, and answers a constant. Its throughput is the ceiling that sockets, threads and the protocol set on
//! this machine, so the real server's is quoted as a share of it.
//!
//! It has several [`Form`]s, so that ways to serve many connections can be compared where nothing else costs
//! time. It stores nothing and must never be taken for a database.

mod pool;
mod replies;
mod threads;

use crate::frame::next_request_id;
use muniment_value::{Doc, Result};
use replies::Replies;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How the threads of a null responder serve its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Form {
    /// One thread for each connection, which blocks in `read`.
    #[default]
    Threads,
    /// A few threads, each of which waits for the connections that it has, and serves all that are ready
    /// before it waits again. On Linux only.
    Pool {
        /// The number of threads.
        workers: usize,
        /// How long a thread without work looks for more before it sleeps; zero sleeps at once.
        polls: Duration,
    },
}

/// Serves connections of one form.
trait Serve: Send + Sync {
    /// Takes a connection that was just accepted.
    fn take(&self, socket: TcpStream) -> std::io::Result<()>;

    /// Closes all connections and ends the threads of this form.
    fn end(&self);
}

/// A running null responder. Ends when dropped.
pub struct NullServer {
    addr: SocketAddr,
    stopping: Arc<AtomicBool>,
    form: Arc<dyn Serve>,
    acceptor: Option<JoinHandle<()>>,
}

impl NullServer {
    /// Starts one with a thread for each connection on `bind` (`127.0.0.1:0` takes a free port). The answer
    /// to `find` has `document`.
    ///
    /// # Errors
    /// The socket's.
    pub fn start(bind: &str, document: Doc<'_>) -> Result<NullServer> {
        NullServer::start_as(Form::default(), bind, document)
    }

    /// Starts one of this form; see [`NullServer::start`].
    ///
    /// # Errors
    /// The socket's; that this system has no such form.
    pub fn start_as(form: Form, bind: &str, document: Doc<'_>) -> Result<NullServer> {
        let listener = TcpListener::bind(bind)?;
        let addr = listener.local_addr()?;
        let replies = Replies::new(document);
        let form: Arc<dyn Serve> = match form {
            Form::Threads => Arc::new(threads::Threads::new(replies)),
            Form::Pool { workers, polls } => Arc::new(pool::Pool::start(workers, polls, replies)?),
        };
        let stopping = Arc::new(AtomicBool::new(false));
        let (stops, serves) = (Arc::clone(&stopping), Arc::clone(&form));
        let acceptor = thread::Builder::new()
            .name("null-accept".into())
            .spawn(move || accept(&listener, &stops, &*serves))?;
        Ok(NullServer {
            addr,
            stopping,
            form,
            acceptor: Some(acceptor),
        })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// The address, as [`Connection::connect`](crate::Connection::connect) takes it.
    pub fn address(&self) -> String {
        self.addr.to_string()
    }

    /// Closes all connections and ends the acceptor.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(acceptor) = self.acceptor.take() else {
            return;
        };
        self.stopping.store(true, Ordering::SeqCst);
        // Wakes the acceptor. If that fails, the acceptor has already ended.
        let _ = TcpStream::connect(self.addr);
        let _ = acceptor.join();
        self.form.end();
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.end();
    }
}

fn accept(listener: &TcpListener, stopping: &AtomicBool, form: &dyn Serve) {
    for socket in listener.incoming() {
        if stopping.load(Ordering::SeqCst) {
            return;
        }
        // A connection that cannot be served is closed.
        let _ = socket.and_then(|socket| form.take(socket));
    }
}

/// Encodes a request of the yardsticks once. They then replace its id and send it again.
pub fn encode_request(cmd: Doc<'_>, db: &str, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    crate::op_msg::begin_request(out, next_request_id(), 0)
        .body_with(|b| {
            b.elements(cmd).field("$db", db);
        })
        .finish()
}

#[cfg(test)]
mod tests;
