//! One connection: reads messages, has them executed, writes replies.
//!
//! Invariants: one `write` a reply; buffers are reused while the connection is busy and given
//! back when it idles; whatever a client sends, the worst is an error reply and a closed
//! connection; the thread's stack is small, so nothing here or below may recurse on a client's
//! nesting beyond the depth that documents are allowed.

use crate::context::{ConnLocal, Request};
use crate::dispatch;
use crate::log::Severity;
use crate::metrics::Counter;
use crate::replica_set::OP_REPLICATION;
use crate::state::{ConnShared, ServerState};
use muniment_query::Share;
use muniment_query::budget::FLOOR;
use muniment_value::{Code, Doc, Error, doc};
use muniment_wire::op_msg::{CHECKSUM_PRESENT, MORE_TO_COME};
use muniment_wire::{
    Compressor, FrameError, Header, MessageReader, OP_COMPRESSED, OP_MSG, OP_QUERY, OpMsg, OpQuery,
    Stream, begin_reply, compress, write_op_reply,
};
use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A connection that is silent for this long gives its buffers back.
const IDLE_AFTER: Duration = Duration::from_secs(1);
/// What a reply buffer may keep while the connection idles.
const IDLE_REPLY: usize = 512;
/// Stack of a connection's thread. Unoptimised code needs several times as much.
pub const STACK: usize = if cfg!(debug_assertions) {
    4 << 20
} else {
    1 << 20
};

/// A client that has sent the beginning of a message larger than [`FLOOR`] must go on within this.
/// Smaller ones may take as long as they like: their memory is that of any connection.
const STALLED_AFTER: Duration = Duration::from_secs(30);

/// What a connection's messages take of the memory for messages.
struct Received {
    /// Bytes since the last whole message.
    bytes: Cell<usize>,
    share: RefCell<Share>,
}

impl Received {
    /// Counts bytes; an error when the memory is used up.
    fn add(&self, n: usize) -> io::Result<()> {
        let bytes = self.bytes.get() + n;
        self.bytes.set(bytes);
        // Up to the floor nobody is refused, so that need not be counted.
        if bytes > FLOOR && self.share.borrow_mut().holds(bytes) {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                "the memory for messages that are being received is used up",
            ));
        }
        Ok(())
    }

    /// The message was handled; `capacity` bytes are kept for the next one. True when they should
    /// be given back.
    fn done(&self, capacity: usize) -> bool {
        self.bytes.set(0);
        let mut share = self.share.borrow_mut();
        capacity > FLOOR && share.holds(capacity) || share.is_pressed()
    }

    /// All was given back.
    fn forget(&self) {
        self.bytes.set(0);
        self.share.borrow_mut().holds(0);
    }
}

/// A shared socket that can be read and written through several handles.
struct Socket(Arc<Stream>, Rc<Received>);

impl Read for Socket {
    #[inline]
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = match &*self.0 {
            Stream::Tcp(s) => (&mut &*s).read(buf),
            Stream::Unix(s) => (&mut &*s).read(buf),
        }?;
        let before = self.1.bytes.get();
        self.1.add(n)?;
        if before <= FLOOR && self.1.bytes.get() > FLOOR {
            // It may have waited for its first byte without end; from here on it may not.
            self.0.set_read_timeout(Some(IDLE_AFTER))?;
        }
        Ok(n)
    }
}

fn write_all(stream: &Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Tcp(s) => (&mut &*s).write_all(bytes),
        Stream::Unix(s) => (&mut &*s).write_all(bytes),
    }
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Go,
    Close,
}

struct Connection<'s> {
    server: &'s Arc<ServerState>,
    shared: Arc<ConnShared>,
    local: ConnLocal,
    counter: Counter,
    reply: Vec<u8>,
    packed: Vec<u8>,
}

/// Serves a connection until it ends.
pub fn serve(server: &Arc<ServerState>, shared: Arc<ConnShared>) {
    let received = Rc::new(Received {
        bytes: Cell::new(0),
        share: RefCell::new(Share::new(&server.message_memory)),
    });
    let socket = Socket(Arc::clone(&shared.stream), Rc::clone(&received));
    let mut reader = MessageReader::new(socket);
    let mut c = Connection {
        server,
        counter: server.metrics.counter(shared.id),
        shared,
        local: ConnLocal::default(),
        reply: Vec::new(),
        packed: Vec::new(),
    };
    let mut plain = Vec::new();
    let mut idle = false;
    // Since when nothing came of a large message that has begun, and how much there was.
    let mut stalled: Option<(Instant, usize)> = None;
    if c.shared.stream.set_read_timeout(Some(IDLE_AFTER)).is_err() {
        return;
    }
    loop {
        let next = match reader.read() {
            Ok(Some((header, message))) => {
                if idle {
                    idle = false;
                    let _ = c.shared.stream.set_read_timeout(Some(IDLE_AFTER));
                }
                let next = c.message(header, message, &mut plain);
                // Until its reply is sent: who ends the server waits for it.
                c.shared.busy.store(false, Ordering::Relaxed);
                if received.done(reader.capacity() + plain.capacity()) {
                    reader.shrink_idle();
                    plain = Vec::new();
                    received.forget();
                }
                next
            }
            Ok(None) => Next::Close,
            Err(e) if e.is_timeout() && received.bytes.get() > FLOOR => {
                let bytes = received.bytes.get();
                match stalled {
                    Some((since, before)) if before == bytes => {
                        if since.elapsed() < STALLED_AFTER {
                            Next::Go
                        } else {
                            c.complain(&Error::new(
                                Code::NetworkTimeout,
                                format!("a message stopped after {bytes} bytes"),
                            ));
                            Next::Close
                        }
                    }
                    _ => {
                        stalled = Some((Instant::now(), bytes));
                        Next::Go
                    }
                }
            }
            Err(e) if e.is_timeout() => {
                if !idle {
                    idle = true;
                    reader.shrink_idle();
                    c.shrink_idle();
                    plain = Vec::new();
                    if received.bytes.get() == 0 {
                        received.forget();
                    }
                    crate::heap::flush_thread();
                    crate::stack::release_unused();
                    let _ = c.shared.stream.set_read_timeout(None);
                }
                Next::Go
            }
            Err(FrameError::Protocol(e)) => {
                c.complain(&e);
                Next::Close
            }
            Err(FrameError::Io(e)) if e.kind() == io::ErrorKind::OutOfMemory => {
                c.complain(&Error::new(Code::ExceededMemoryLimit, e.to_string()));
                Next::Close
            }
            Err(FrameError::Io(_)) => Next::Close,
        };
        if next == Next::Close || server.is_stopping() {
            return;
        }
    }
}

impl Connection<'_> {
    fn shrink_idle(&mut self) {
        if self.reply.capacity() > IDLE_REPLY {
            self.reply = Vec::new();
        }
        self.packed = Vec::new();
        let mut command = self.shared.command.lock();
        if command.capacity() > IDLE_REPLY {
            *command = Vec::new();
        }
    }

    /// Logs what the client did to the protocol.
    fn complain(&self, e: &Error) {
        self.server.log.log(
            Severity::Info,
            "NETWORK",
            22988,
            &format!("conn{}", self.shared.id),
            "Error receiving request from client. Ending connection from remote",
            Some(&doc! {
                "error": doc! {
                    "code": e.code().0, "codeName": e.code().name().as_ref(), "errmsg": e.message(),
                },
                "remote": &*self.shared.peer,
                "connectionId": self.shared.id as i64,
            }),
        );
    }

    /// Handles one message. Not inlined: its frame must not be there while the connection waits.
    #[inline(never)]
    fn message(&mut self, header: Header, message: &[u8], plain: &mut Vec<u8>) -> Next {
        match header.op_code {
            OP_MSG => self.op_msg(message, None),
            OP_COMPRESSED => match compress::decompress(message, plain) {
                Ok(with) => match Header::parse(plain).map(|h| h.op_code) {
                    Some(OP_MSG) => self.op_msg(plain, Some(with)),
                    Some(OP_QUERY) => self.op_query(plain),
                    _ => Next::Close,
                },
                Err(e) => {
                    self.complain(&e);
                    Next::Close
                }
            },
            OP_QUERY => self.op_query(message),
            OP_REPLICATION => match &mut self.local.member {
                Some(member) => match member.take(self.server, message) {
                    Ok(()) => Next::Go,
                    Err(e) => {
                        self.complain(&e);
                        Next::Close
                    }
                },
                None => {
                    self.complain(&Error::new(
                        Code::ProtocolError,
                        "a frame of replication from who is no member",
                    ));
                    Next::Close
                }
            },
            other => {
                self.complain(&Error::new(
                    Code::ProtocolError,
                    format!("op code {other} is not supported"),
                ));
                Next::Close
            }
        }
    }

    fn op_msg(&mut self, message: &[u8], coat: Option<Compressor>) -> Next {
        let msg = match OpMsg::parse(message) {
            Ok(m) => m,
            Err(e) => return self.refuse(message, &e),
        };
        let request = Request {
            db: msg.body.get_str("$db").unwrap_or_default(),
            name: msg.command_name(),
            body: msg.body,
            sequences: &msg.sequences,
            exhaust_allowed: msg.exhaust_allowed(),
            legacy: false,
        };
        if request.db.is_empty() && msg.body.get("$db").is_none() {
            let e = Error::location(40571, "OP_MSG requests require a $db argument");
            return self.refuse_open(&msg, &e);
        }
        let sum = msg.flags & CHECKSUM_PRESENT;
        self.local.streamed = None;
        let mut answers = msg.header.request_id;
        let mut bytes_in = message.len() as u64;
        loop {
            self.reply.clear();
            let mut w = begin_reply(&mut self.reply, answers, sum);
            let done = dispatch::execute(
                self.server,
                &self.shared,
                &mut self.local,
                &self.counter,
                &request,
                w.body_bytes(),
            );
            if done.close {
                return Next::Close;
            }
            if msg.more_to_come() {
                self.counter.network(bytes_in, 0);
                // A client that asks for no answer learns of an election by this.
                return match done.no_primary || done.last {
                    true => Next::Close,
                    false => Next::Go,
                };
            }
            if done.exhaust {
                w.set_flags(sum | MORE_TO_COME);
            }
            if let Err(e) = w.finish() {
                // The reply is too large for a message.
                self.reply.clear();
                let body = e.to_reply();
                let w = begin_reply(&mut self.reply, answers, sum).body(body.as_doc());
                if w.finish().is_err() {
                    return Next::Close;
                }
            }
            answers = Header::parse(&self.reply).map_or(0, |h| h.request_id);
            let sent =
                self.send(coat.filter(|_| muniment_wire::compress::is_compressible(request.name)));
            let Ok(bytes_out) = sent else {
                return Next::Close;
            };
            self.counter
                .network(std::mem::take(&mut bytes_in), bytes_out);
            if done.last {
                return Next::Close;
            }
            if !done.exhaust || self.server.is_stopping() {
                return Next::Go;
            }
        }
    }

    /// Writes the reply, in the coat that the request came in.
    fn send(&mut self, coat: Option<Compressor>) -> io::Result<u64> {
        let bytes = match coat {
            Some(with) if compress::compress(&self.reply, with, &mut self.packed).is_ok() => {
                &self.packed
            }
            _ => &self.reply,
        };
        write_all(&self.shared.stream, bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Answers a message that could not be parsed. What leaves the framing in doubt ends the
    /// connection.
    fn refuse(&mut self, message: &[u8], e: &Error) -> Next {
        let Some(header) = Header::parse(message) else {
            return Next::Close;
        };
        self.reply.clear();
        let body = e.to_reply();
        let w = begin_reply(&mut self.reply, header.request_id, 0).body(body.as_doc());
        self.counter.error(false);
        if w.finish().is_err() || self.send(None).is_err() {
            return Next::Close;
        }
        match e.code() {
            Code::ProtocolError | Code::ChecksumMismatch | Code::IllegalOpMsgFlag => {
                self.complain(e);
                Next::Close
            }
            _ => Next::Go,
        }
    }

    /// Answers a well-formed message with an error.
    fn refuse_open(&mut self, msg: &OpMsg<'_>, e: &Error) -> Next {
        self.counter.error(false);
        if msg.more_to_come() {
            return Next::Go;
        }
        self.reply.clear();
        let body = e.to_reply();
        let w = begin_reply(&mut self.reply, msg.header.request_id, 0).body(body.as_doc());
        if w.finish().is_err() || self.send(None).is_err() {
            return Next::Close;
        }
        Next::Go
    }

    /// OP_QUERY: for the handshake of old drivers only.
    fn op_query(&mut self, message: &[u8]) -> Next {
        let query = match OpQuery::parse(message) {
            Ok(q) => q,
            Err(e) => {
                self.complain(&e);
                return Next::Close;
            }
        };
        let mut body = Vec::new();
        let name = query.command_name();
        let allowed = matches!(
            name,
            "hello" | "isMaster" | "ismaster" | "buildInfo" | "buildinfo"
        );
        let mut close = false;
        match query.command_db() {
            Some(db) if allowed => {
                let request = Request {
                    db,
                    name,
                    body: query.command(),
                    sequences: &[],
                    exhaust_allowed: false,
                    legacy: true,
                };
                close = dispatch::execute(
                    self.server,
                    &self.shared,
                    &mut self.local,
                    &self.counter,
                    &request,
                    &mut body,
                )
                .close;
            }
            db => {
                let what = if db.is_some() { name } else { "find" };
                let e = Error::new(
                    Code::UnsupportedOpQueryCommand,
                    format!(
                        "Unsupported OP_QUERY command: {what}. The client driver may require an \
                         upgrade. For more details see \
                         https://dochub.mongodb.org/core/legacy-opcode-removal"
                    ),
                );
                let mut reply = e.to_reply();
                if db.is_none() {
                    reply.append("$err", e.message());
                }
                body.extend_from_slice(reply.as_bytes());
            }
        }
        if close {
            return Next::Close;
        }
        self.reply.clear();
        let written = write_op_reply(&mut self.reply, query.header.request_id, Doc::new(&body));
        if written.is_err() {
            return Next::Close;
        }
        match self.send(None) {
            Ok(n) => {
                self.counter.network(message.len() as u64, n);
                Next::Go
            }
            Err(_) => Next::Close,
        }
    }
}

/// Refuses a connection beyond `--maxConns`: answers its first message with an error, waiting
/// for it a second at most, and closes.
pub fn turn_away(server: &ServerState, stream: &Stream) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    let _ = stream.set_write_timeout(Some(Duration::from_secs(1)));
    let e = Error::new(
        Code::ResourceExhausted,
        format!(
            "connection refused because there are already {} connections (--maxConns)",
            server.max_conns
        ),
    );
    let mut buf = Vec::new();
    let mut r = match stream.try_clone() {
        Ok(s) => s,
        Err(_) => return,
    };
    let Ok(Some(header)) = muniment_wire::read_message(&mut r, &mut buf) else {
        return;
    };
    let mut reply = Vec::new();
    let body = e.to_reply();
    let ok = if header.op_code == OP_QUERY {
        write_op_reply(&mut reply, header.request_id, body.as_doc()).is_ok()
    } else {
        begin_reply(&mut reply, header.request_id, 0)
            .body(body.as_doc())
            .finish()
            .is_ok()
    };
    if ok {
        let _ = write_all(stream, &reply);
    }
}
