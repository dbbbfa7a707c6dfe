//! The null responder: a server that reads, validates and parses each message with the same code as the real
//! one, and answers a constant. Its throughput is the ceiling that sockets, threads and the protocol set on
//! this machine, so the real server's is quoted as a share of it.
//!
//! It stores nothing and must never be taken for a database.

use crate::compress::decompress;
use crate::frame::{Header, MessageReader, OP_COMPRESSED, OP_MSG, OP_QUERY, next_request_id};
use crate::op_msg::{OpMsg, begin_reply};
use crate::op_query::{OpQuery, write_op_reply};
use crate::stream::Stream;
use muniment_value::{Code, Doc, DocBuf, Error, Result, array, doc};
use std::collections::HashMap;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// A running null responder. Ends when dropped.
pub struct NullServer {
    addr: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    stopping: AtomicBool,
    /// A handle on each open connection, to end it when the responder stops.
    open: Mutex<HashMap<u64, Stream>>,
    replies: Replies,
}

/// The constant replies.
struct Replies {
    written: DocBuf,
    found: DocBuf,
    ok: DocBuf,
    hello: DocBuf,
    build_info: DocBuf,
    hello_legacy: DocBuf,
}

impl NullServer {
    /// Starts on `bind` (`127.0.0.1:0` takes a free port). The answer to `find` has `document`.
    ///
    /// # Errors
    /// The socket's.
    pub fn start(bind: &str, document: Doc<'_>) -> Result<NullServer> {
        let listener = TcpListener::bind(bind)?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            stopping: AtomicBool::new(false),
            open: Mutex::new(HashMap::new()),
            replies: Replies::new(document),
        });
        let for_thread = shared.clone();
        let acceptor = thread::Builder::new()
            .name("null-accept".into())
            .spawn(move || accept(&listener, &for_thread))?;
        Ok(NullServer {
            addr,
            shared,
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
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the acceptor. If that fails, the acceptor has already ended.
        let _ = std::net::TcpStream::connect(self.addr);
        let _ = acceptor.join();
        for s in self.shared.connections().values() {
            let _ = s.shutdown();
        }
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn connections(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Stream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for (id, socket) in (0..).zip(listener.incoming()) {
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = socket.and_then(Stream::from_tcp) else {
            continue;
        };
        if let Ok(handle) = stream.try_clone() {
            shared.connections().insert(id, handle);
        }
        let for_thread = shared.clone();
        let spawned = thread::Builder::new()
            .name("null-conn".into())
            .stack_size(256 * 1024)
            .spawn(move || {
                // A connection ends when the client closes it, or with a message that the responder does not
                // understand.
                let _ = serve(stream, &for_thread.replies);
                for_thread.connections().remove(&id);
            });
        if spawned.is_err() {
            shared.connections().remove(&id);
        }
    }
}

fn serve(stream: Stream, replies: &Replies) -> Result<()> {
    let mut reader = MessageReader::new(stream);
    let (mut out, mut plain) = (Vec::new(), Vec::new());
    loop {
        out.clear();
        let Some((header, message)) = reader.read()? else {
            return Ok(());
        };
        if header.op_code == OP_COMPRESSED {
            decompress(message, &mut plain)?;
            let inner = Header::parse(&plain).unwrap_or_default();
            replies.answer(inner, &plain, &mut out)?;
        } else {
            replies.answer(header, message, &mut out)?;
        }
        if !out.is_empty() {
            reader.get_mut().write_all(&out)?;
        }
    }
}

impl Replies {
    fn new(document: Doc<'_>) -> Replies {
        let cursor = doc! { "firstBatch": array![document], "id": 0_i64, "ns": "db.c" };
        let mut hello = doc! {
            "isWritablePrimary": true,
            "helloOk": true,
            "maxBsonObjectSize": 16 * 1024 * 1024,
            "maxMessageSizeBytes": 48_000_000,
            "maxWriteBatchSize": 100_000,
            "logicalSessionTimeoutMinutes": 30,
            "connectionId": 1,
            "minWireVersion": 0,
            "maxWireVersion": 25,
            "readOnly": false,
        };
        let mut hello_legacy = doc! { "ismaster": true };
        hello_legacy.append_all(hello.as_doc());
        hello.append("ok", 1.0);
        hello_legacy.append("ok", 1.0);
        Replies {
            written: doc! { "n": 1, "ok": 1.0 },
            found: doc! { "cursor": cursor, "ok": 1.0 },
            ok: doc! { "ok": 1.0 },
            hello,
            hello_legacy,
            build_info: doc! {
                "version": "8.0.0",
                "versionArray": array![8, 0, 0, 0],
                "maxBsonObjectSize": 16 * 1024 * 1024,
                "ok": 1.0,
            },
        }
    }

    fn answer(&self, header: Header, message: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match header.op_code {
            OP_MSG => {
                let msg = OpMsg::parse(message)?;
                if msg.more_to_come() {
                    return Ok(());
                }
                let writer = begin_reply(out, header.request_id, 0);
                match msg.sequences.first() {
                    Some(s) if s.docs.len() != 1 => writer
                        .body_with(|b| {
                            b.field("n", s.docs.len() as i32).field("ok", 1.0);
                        })
                        .finish(),
                    _ => writer
                        .body(self.constant(msg.command_name()).as_doc())
                        .finish(),
                }
            }
            OP_QUERY => {
                let query = OpQuery::parse(message)?;
                let reply = self.constant(query.command_name());
                write_op_reply(out, header.request_id, reply.as_doc())
            }
            other => Err(Error::new(
                Code::ProtocolError,
                format!("op code {other} is not supported"),
            )),
        }
    }

    fn constant(&self, command: &str) -> &DocBuf {
        match command {
            "insert" | "update" | "delete" => &self.written,
            "find" => &self.found,
            "hello" => &self.hello,
            "isMaster" | "ismaster" => &self.hello_legacy,
            "buildInfo" | "buildinfo" => &self.build_info,
            _ => &self.ok,
        }
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
