//! Serves a connection: reads its messages and has them handled, one at a time.
//!
//! A connection is served by a thread of its own, whose reads wait, or by the workers of a pool, one after
//! another, whose reads do not.

use crate::connection::{Connection, Next};
use crate::connections::ConnShared;
use crate::receive::{Received, Socket};
use crate::send;
use crate::state::ServerState;
use muniment_logger::{Caught, Logger, Severity};
use muniment_op::blocking;
use muniment_tls::Refused;
use muniment_value::doc;
use muniment_wire::{FrameError, Header, MessageReader};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A connection that is silent for this long gives its buffers back.
pub const IDLE_AFTER: Duration = Duration::from_secs(1);

/// What a connection's turn has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A message, or a part of one, was handled. There may be more.
    Goes,
    /// Nothing more has arrived.
    Waits,
    /// The connection ends.
    Ends,
}

/// A connection with all that is needed to serve it.
pub struct Served {
    reader: MessageReader<Socket>,
    connection: Connection,
    /// What a compressed message unpacks to.
    plain: Vec<u8>,
    /// The connection has given its buffers back, because it was silent.
    idle: bool,
}

/// Serves a connection in the calling thread until it ends.
pub fn serve(server: &Arc<ServerState>, shared: Arc<ConnShared>) {
    let Ok(mut served) = Served::new(server, shared, true) else {
        return;
    };
    loop {
        let turn = match served.turn() {
            Turn::Waits => served.falls_silent(),
            turn => turn,
        };
        if turn == Turn::Ends {
            return;
        }
    }
}

impl Served {
    /// A connection that was just accepted. If it `waits`, its reads wait up to [`IDLE_AFTER`], or without a
    /// limit after it has been silent for so long.
    ///
    /// # Errors
    /// The socket's.
    pub fn new(
        server: &Arc<ServerState>,
        shared: Arc<ConnShared>,
        waits: bool,
    ) -> io::Result<Served> {
        shared.stream.set_read_timeout(Some(IDLE_AFTER))?;
        shared.stream.set_write_timeout(Some(send::TICK))?;
        let socket = Socket::new(Arc::clone(&shared.stream), Received::new(server), waits);
        Ok(Served {
            reader: MessageReader::new(socket),
            connection: Connection::new(server, shared),
            plain: Vec::new(),
            idle: false,
        })
    }

    /// The connection as others see it.
    pub fn shared(&self) -> &ConnShared {
        self.connection.shared()
    }

    /// The server.
    pub fn server(&self) -> &Arc<ServerState> {
        self.connection.server()
    }

    /// The system has told that something arrived, and whether the client has closed its end or sent urgent
    /// data.
    pub fn is_ready(&mut self, odd: bool) {
        let socket = self.reader.get_mut();
        (socket.drained, socket.odd) = (false, odd);
    }

    /// Whether reads wait from now on, and for how long.
    pub fn waits(&mut self, waits: Option<Duration>) {
        if waits.is_some() {
            let _ = self.shared().stream.set_read_timeout(waits);
        }
        let socket = self.reader.get_mut();
        (socket.waits, socket.drained) = (waits.is_some(), false);
    }

    /// Whether the connection has given its buffers back.
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    fn received(&self) -> &Received {
        &self.reader.get_ref().received
    }

    /// Reads a message and handles it.
    pub fn turn(&mut self) -> Turn {
        let next = match self.reader.read() {
            Ok(Some((header, _))) => self.handle(header),
            Ok(None) => Next::Close,
            Err(FrameError::Io(e)) if e.kind() == io::ErrorKind::OutOfMemory => {
                // The wait for the message's first byte has no limit; from here on, the wait for its rest has.
                self.awakes();
                self.connection.make_room(&mut self.reader)
            }
            Err(e) if e.is_timeout() => match self.is_too_slow() {
                true => Next::Close,
                false => return self.unless_stopping(Turn::Waits),
            },
            Err(FrameError::Protocol(e)) => {
                self.connection.complain(&e);
                Next::Close
            }
            Err(FrameError::Io(e)) => {
                if let Some(refused) = Refused::of(&e) {
                    self.connection.refuses(refused);
                }
                if let Some(stranger) = self.received().stranger() {
                    self.connection.complain(&stranger.error());
                    blocking(|| stranger.turn_back(&self.shared().stream));
                }
                Next::Close
            }
        };
        match next {
            Next::Go => self.unless_stopping(Turn::Goes),
            Next::Close => Turn::Ends,
        }
    }

    fn unless_stopping(&self, turn: Turn) -> Turn {
        match self.connection.server().lifecycle.is_stopping() {
            true => Turn::Ends,
            false => turn,
        }
    }

    fn handle(&mut self, header: Header) -> Next {
        self.shared().spoke.store(true, Ordering::Relaxed);
        self.awakes();
        let (message, received) = (self.reader.message(), &self.reader.get_ref().received);
        let plain = &mut self.plain;
        let next = self.connection.message(header, message, received, plain);
        // It counts as busy until its reply is sent: shutdown lets busy connections finish first.
        self.shared().busy.store(false, Ordering::Relaxed);
        let kept = self.reader.capacity() + self.plain.capacity();
        if self.received().done(kept) {
            self.reader.shrink_idle();
            self.plain = Vec::new();
            self.received().forget();
        }
        next
    }

    /// Ends the state of a silent connection.
    fn awakes(&mut self) {
        if std::mem::take(&mut self.idle) && self.reader.get_ref().waits {
            let _ = self.shared().stream.set_read_timeout(Some(IDLE_AFTER));
        }
    }

    /// Whether the rest of a large message takes too long to arrive; if so, it is logged.
    fn is_too_slow(&self) -> bool {
        let slow = self.received().is_large() && self.received().is_too_slow();
        if slow {
            self.connection.too_slow(self.received());
        }
        slow
    }

    /// To be called when nothing has arrived for [`IDLE_AFTER`]: gives back what a silent connection does not
    /// need.
    pub fn falls_silent(&mut self) -> Turn {
        if self.received().is_large() {
            return match self.is_too_slow() {
                true => Turn::Ends,
                false => Turn::Goes,
            };
        }
        if !std::mem::replace(&mut self.idle, true) {
            self.plain = Vec::new();
            self.reader.shrink_idle();
            self.connection.shrink_idle();
            self.shared().stream.shrink_idle();
            if self.received().bytes() == 0 {
                self.received().forget();
            }
            if self.reader.get_ref().waits {
                release_thread();
                // From now on the thread waits without a limit.
                let _ = self.shared().stream.set_read_timeout(None);
            }
        }
        Turn::Goes
    }
}

/// Gives back the memory that the calling thread keeps, before it waits for long.
pub fn release_thread() {
    crate::heap::flush_thread();
    crate::stack::release_unused();
}

/// Logs a panic in the code of a connection.
pub fn log_panic(server: &ServerState, connection: u64, caught: &Caught) {
    log_panic_of(&server.log, &format!("conn{connection}"), caught);
}

/// Logs a panic in a thread that serves connections.
pub fn log_panic_of(log: &Logger, context: &str, caught: &Caught) {
    log.log(
        Severity::Error,
        "ASSERT",
        23081,
        context,
        "A connection panicked; this is a bug",
        Some(&doc! { "what": log.text(&caught.message), "backtrace": &*caught.report }),
    );
}

/// Closes a connection that is no longer served.
pub fn closed(server: &ServerState, shared: &ConnShared) {
    let _ = shared.stream.shutdown();
    server.connections.remove(shared.id);
    let left = server.connections.open.fetch_sub(1, Ordering::Relaxed) - 1;
    log_connection(server, shared, 22944, "Connection ended", left);
}

/// Logs that a connection begins or ends; `count` are open.
pub fn log_connection(server: &ServerState, c: &ConnShared, id: u32, msg: &str, count: u64) {
    if server.log.quiet() {
        return;
    }
    server.log.info(
        "NETWORK",
        id,
        "listener",
        msg,
        &doc! {
            "remote": &*c.peer,
            "connectionId": c.id as i64,
            "connectionCount": count as i64,
        },
    );
}
