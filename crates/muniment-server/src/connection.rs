//! One connection: has messages executed, and writes replies.
//!
//! Invariants: each reply is one `write`; buffers are reused while the connection is busy and given back when
//! it idles; whatever a client sends, the worst result is an error reply and a closed connection; the
//! thread's stack is small, so nothing here or in what it calls may recurse on the nesting of a client's
//! document beyond the depth that documents may have.

use crate::auth;
use crate::connections::ConnShared;
use crate::context::{ConnLocal, Request};
use crate::front_door;
use crate::metrics::Counter;
use crate::receive::{LARGE, Received, Socket};
use crate::request::{self, Caller, Done};
use crate::send;
use crate::state::ServerState;
use muniment_exec::{ReplyRoom, SMALL_REPLY};
use muniment_logger::Severity;
use muniment_member::OP_REPLICATION;
use muniment_op::ledger;
use muniment_tls::Refused;
use muniment_value::{Code, Doc, Error, Result, doc};
use muniment_wire::op_msg::{CHECKSUM_PRESENT, MORE_TO_COME};
use muniment_wire::{
    Compressor, Header, MessageReader, OP_COMPRESSED, OP_MSG, OP_QUERY, OpMsg, OpQuery, Stream,
    begin_reply, compress, write_op_reply,
};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The stack of a connection's thread, in bytes. Unoptimised code needs several times as much.
pub const STACK: usize = if cfg!(debug_assertions) {
    4 << 20
} else {
    1 << 20
};

/// The largest command, without the document sequences beside it: the largest document, and 16 KiB for the
/// fields around it, as in MongoDB.
const MAX_BODY: usize = (16 << 20) + (16 << 10);

/// 10334 BSONObjectTooLarge for a command of more than [`MAX_BODY`].
fn too_large(body: Doc<'_>) -> Error {
    let len = body.byte_len();
    let first = body.first().map_or("EOO", |e| e.name());
    Error::new(
        Code::BSONObjectTooLarge,
        format!(
            "BSONObj size: {len} (0x{len:X}) is invalid. Size must be between 0 and \
             {MAX_BODY}(16MB) First element: {first}"
        ),
    )
}

/// What happens to the connection after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Go,
    Close,
}

/// What a connection keeps from one message to the next.
pub struct Connection {
    server: Arc<ServerState>,
    shared: Arc<ConnShared>,
    local: ConnLocal,
    counter: Counter,
    reply: Vec<u8>,
    packed: Vec<u8>,
    /// The memory of `reply` and `packed`, as the ledger has it.
    room: Arc<ReplyRoom>,
    /// The most bytes that the two buffers have held since they were created.
    touched: usize,
}

/// Gives the memory of replies back, since the connection's cursors may live long and hold on to the account,
/// and notes that its user is gone.
impl Drop for Connection {
    fn drop(&mut self) {
        self.room.holds(0);
        let reason = "the client has disconnected";
        let _ = auth::audit_logout(&self.server, &self.shared, &self.local, reason);
    }
}

impl Connection {
    /// The state of a connection that was just accepted.
    pub fn new(server: &Arc<ServerState>, shared: Arc<ConnShared>) -> Connection {
        let room = ReplyRoom::new(&server.engine.memory, &server.connections.waiting_replies);
        let room = Arc::new(room);
        Connection {
            server: Arc::clone(server),
            counter: server.metrics.counter(shared.id),
            shared,
            local: ConnLocal {
                reply_room: Some(Arc::clone(&room)),
                ..ConnLocal::default()
            },
            reply: Vec::new(),
            packed: Vec::new(),
            room,
            touched: 0,
        }
    }
}

impl Connection {
    /// The connection as others see it.
    pub fn shared(&self) -> &ConnShared {
        &self.shared
    }

    /// The server.
    pub fn server(&self) -> &Arc<ServerState> {
        &self.server
    }

    /// Gives back the memory that a silent connection does not need.
    pub fn shrink_idle(&mut self) {
        self.reply = Vec::new();
        self.packed = Vec::new();
        self.let_go();
        *self.shared.command.lock() = Vec::new();
    }

    /// Gives the memory of replies back, after their buffers were replaced by new ones.
    fn let_go(&mut self) {
        self.room.holds(0);
        self.touched = 0;
    }

    /// Makes room for the large message that has begun. If there is none, answers with an error.
    pub fn make_room(&mut self, reader: &mut MessageReader<Socket>) -> Next {
        let begun = reader.begun();
        let packed = begun.is_some_and(|(header, _)| header.op_code == OP_COMPRESSED);
        let len = begun.and_then(|(header, bytes)| {
            // Room for the unpacked message is asked for at the same time. Otherwise two connections that
            // each have room for their packed message would wait for each other.
            let unpacked = if packed { compress::claimed(bytes) } else { 0 };
            Some(header.checked_len().ok()? + unpacked)
        });
        // A smaller message would have been received whole by now.
        let received = &reader.get_ref().received;
        let len = len.unwrap_or_default().max(received.bytes() + LARGE);
        if self.is_unknown() {
            self.complain(&Error::new(
                Code::Unauthorized,
                format!("a message of {len} bytes from a client that has not logged in"),
            ));
            return Next::Close;
        }
        // While the connection waits it must not keep memory that other connections wait for.
        if self.touched > SMALL_REPLY {
            self.shrink_idle();
        }
        let member = self.local.member.is_some();
        match received.make_room(&self.shared, len, packed, member) {
            Ok(true) => Next::Go,
            Ok(false) => Next::Close,
            Err(refused) => self.refuse_large(reader, refused),
        }
    }

    /// Whether the client has to log in and has not done so yet. It can send no large messages until then.
    fn is_unknown(&self) -> bool {
        auth::is_unknown(&self.server, &self.local)
    }

    /// Answers a message for which there is no room, and skips the rest of it.
    fn refuse_large(
        &mut self,
        reader: &mut MessageReader<Socket>,
        refused: ledger::Refused,
    ) -> Next {
        let e = Error::from(refused);
        self.complain(&e);
        let Some((header, begun)) = reader.begun() else {
            return Next::Close;
        };
        // For other kinds of message it is not known whether the client waits for a reply.
        if header.op_code != OP_MSG {
            return Next::Close;
        }
        let silent = muniment_wire::op_msg::flags(begun) & MORE_TO_COME != 0;
        let skip = reader.skip();
        reader.get_ref().received.skips(skip);
        self.counter.error(false);
        if silent {
            return Next::Go;
        }
        self.reply.clear();
        let body = e.to_reply();
        let w = begin_reply(&mut self.reply, header.request_id, 0).body(body.as_doc());
        match w.finish().is_ok() && self.send(None).is_ok() {
            true => Next::Go,
            false => Next::Close,
        }
    }

    /// Logs and counts a message whose bytes stopped coming.
    pub fn too_slow(&self, received: &Received) {
        self.server.connections.slow.fetch_add(1, Ordering::Relaxed);
        self.complain(&Error::new(
            Code::NetworkTimeout,
            format!(
                "a message stopped, or nearly so, after {} bytes",
                received.bytes()
            ),
        ));
    }

    /// Logs that the client does not use TLS as it has to, and waits a moment until it has read why.
    pub fn refuses(&self, why: &Refused) {
        let code = match why {
            // What breaks after the handshake is no fault of certificates.
            Refused::Tls(_) if self.version().is_some() => Code::ProtocolError,
            _ => Code::SSLHandshakeFailed,
        };
        self.complain(&Error::new(code, why.to_string()));
        muniment_op::blocking(|| front_door::farewell(&self.shared.stream));
    }

    fn version(&self) -> Option<muniment_tls::Version> {
        self.shared.stream.tls().and_then(|s| s.version())
    }

    /// Logs a violation of the protocol.
    pub fn complain(&self, e: &Error) {
        self.server.log.log(
            Severity::Info,
            "NETWORK",
            22988,
            &format!("conn{}", self.shared.id),
            "Error receiving request from client. Ending connection from remote",
            Some(&doc! {
                "error": doc! {
                    "code": e.code().0, "codeName": e.code().name().as_ref(), "errmsg": self.server.log.text(e.message()),
                },
                "remote": &*self.shared.peer,
                "connectionId": self.shared.id as i64,
            }),
        );
    }

    /// Handles one message. It is not inlined, so that its stack frame is gone while the connection waits.
    #[inline(never)]
    pub fn message(
        &mut self,
        header: Header,
        message: &[u8],
        received: &Received,
        plain: &mut Vec<u8>,
    ) -> Next {
        match header.op_code {
            OP_MSG => self.op_msg(message, None),
            OP_COMPRESSED if !self.may_unpack(message, received) => Next::Close,
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
                Some(member) => match member.take(&self.server.lifecycle, message) {
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

    /// Makes room for what a compressed message unpacks to. Returns false if there is none.
    fn may_unpack(&self, message: &[u8], received: &Received) -> bool {
        let bytes = compress::claimed(message);
        if bytes <= LARGE {
            return true;
        }
        if self.is_unknown() {
            return false;
        }
        let (both, member) = (message.len() + bytes, self.local.member.is_some());
        match received.make_room(&self.shared, both, true, member) {
            Ok(room) => room,
            Err(refused) => {
                self.complain(&refused.into());
                false
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
            unacknowledged: msg.more_to_come(),
            legacy: false,
        };
        if request.db.is_empty() && msg.body.get("$db").is_none() {
            let e = Error::location(40571, "OP_MSG requests require a $db argument");
            return self.refuse_open(&msg, &e);
        }
        if msg.body.byte_len() > MAX_BODY {
            return self.refuse_open(&msg, &too_large(msg.body));
        }
        let sum = msg.flags & CHECKSUM_PRESENT;
        self.local.streamed = None;
        let mut answers = msg.header.request_id;
        let mut bytes_in = message.len() as u64;
        loop {
            self.reply.clear();
            let mut w = begin_reply(&mut self.reply, answers, sum);
            let caller = Caller {
                server: &self.server,
                conn: &self.shared,
                counter: &self.counter,
                request: &request,
            };
            let done = request::execute(caller, &mut self.local, w.body_bytes());
            if done.close {
                return Next::Close;
            }
            if msg.more_to_come() {
                self.counter.network(bytes_in, 0);
                return self.after_unacknowledged(&done);
            }
            if done.exhaust {
                w.set_flags(sum | MORE_TO_COME);
            }
            if let Err(e) = w.finish()
                && self.reply_with(&e, answers, sum).is_err()
            {
                return Next::Close;
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
            if !done.exhaust || self.server.lifecycle.is_stopping() {
                return Next::Go;
            }
        }
    }

    /// Whether the connection goes on after a message whose client wants no reply.
    #[inline]
    fn after_unacknowledged(&self, done: &Done) -> Next {
        if let Some(set) = self.server.replica_set.as_ref().filter(|_| done.no_primary) {
            set.figures().refused_unacknowledged();
        }
        // Only a closed connection tells a client that wants no replies that this is no primary.
        match done.no_primary || done.last {
            true => Next::Close,
            false => Next::Go,
        }
    }

    /// Puts an error in the place of a reply that is too large for a message, and whose buffer is too large to
    /// keep.
    #[cold]
    fn reply_with(&mut self, e: &Error, answers: i32, sum: u32) -> Result<()> {
        self.reply = Vec::new();
        let body = e.to_reply();
        let w = begin_reply(&mut self.reply, answers, sum).body(body.as_doc());
        w.finish()
    }

    /// Writes the reply, compressed as the request was.
    fn send(&mut self, coat: Option<Compressor>) -> io::Result<u64> {
        let packed = match coat {
            Some(with) => compress::compress(&self.reply, with, &mut self.packed).is_ok(),
            None => false,
        };
        let held = match packed {
            true => self.reply.len() + self.packed.len(),
            false => self.reply.len(),
        };
        self.touched = self.touched.max(held);
        if held > SMALL_REPLY {
            self.room.holds(self.touched);
        }
        let bytes = match packed {
            true => &self.packed,
            false => &self.reply,
        };
        send::send(&self.server, &self.shared, &self.room, bytes)?;
        let sent = bytes.len() as u64;
        // These buffers are only kept for the next reply, and another connection may need their memory.
        if self.touched > SMALL_REPLY && self.room.is_in_the_way() {
            // The header stays, because the caller still reads it.
            self.reply.truncate(Header::LEN);
            self.reply.shrink_to_fit();
            self.packed = Vec::new();
            self.let_go();
        }
        Ok(sent)
    }

    /// Answers a message that could not be parsed. The connection ends if the begin of the next message is
    /// not certain.
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

    /// Answers an OP_QUERY, which only the handshake of old drivers uses.
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
                    unacknowledged: false,
                    legacy: true,
                };
                let caller = Caller {
                    server: &self.server,
                    conn: &self.shared,
                    counter: &self.counter,
                    request: &request,
                };
                close = request::execute(caller, &mut self.local, &mut body).close;
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

/// Refuses a connection beyond a limit: waits a second at most for its first message, answers with an error
/// that says `why`, and closes.
pub fn turn_away(stream: &Stream, why: &str) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    let _ = stream.set_write_timeout(Some(Duration::from_secs(1)));
    let e = Error::new(
        Code::ResourceExhausted,
        format!("connection refused because {why}"),
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
        let _ = io::Write::write_all(&mut r, &reply);
    }
}
