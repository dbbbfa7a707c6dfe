//! A small blocking client: one socket, one request at a time. For the load generator, the
//! tools and the tests.
//!
//! It does not pool connections, retry, or keep sessions: it sends exactly the commands that it is given.

use crate::compress::{Compressor, compress, decompress, is_compressible};
use crate::frame::{FrameError, Header, MessageReader, OP_COMPRESSED};
use crate::op_msg::{EXHAUST_ALLOWED, MORE_TO_COME, OpMsg, begin_request};
use crate::stream::{Stream, socket_error};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc};
use std::io::Write;
use std::time::Duration;

/// A connection to a server.
pub struct Connection {
    reader: MessageReader<Stream>,
    out: Vec<u8>,
    packed: Vec<u8>,
    plain: Vec<u8>,
    compressor: Option<Compressor>,
    next_id: i32,
    /// The request whose replies are being read.
    awaited: i32,
}

/// The `host:port` or socket path in `addr`, which may be a `mongodb://` URI with one host and without user
/// and password.
///
/// # Errors
/// 9 FailedToParse naming what is not supported.
pub fn parse_address(addr: &str) -> Result<String> {
    let Some(rest) = addr.strip_prefix("mongodb://") else {
        return Ok(with_port(addr));
    };
    let hosts = rest.split(['/', '?']).next().unwrap_or_default();
    let unsupported = |what: &str| Err(Error::failed_to_parse(format!("{what} in {addr:?}")));
    if hosts.contains('@') {
        return unsupported("user and password are not supported");
    }
    if hosts.contains(',') {
        return unsupported("more than one host is not supported");
    }
    if hosts.is_empty() {
        return unsupported("no host");
    }
    Ok(with_port(&hosts.replace("%2F", "/").replace("%2f", "/")))
}

fn with_port(host: &str) -> String {
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(h, p)| p.parse::<u16>().is_ok() && (!h.contains(':') || h.ends_with(']')));
    if has_port || host.contains('/') {
        host.to_owned()
    } else {
        format!("{host}:27017")
    }
}

impl Connection {
    /// Connects to `host:port` (27017 if there is none), a Unix socket's path, or a simple
    /// `mongodb://` URI. Sends nothing.
    ///
    /// # Errors
    /// 6 HostUnreachable; 9 FailedToParse for a URI that is not supported.
    pub fn connect(addr: &str) -> Result<Connection> {
        Connection::connect_timeout(addr, Duration::from_secs(10))
    }

    /// As [`Connection::connect`], waiting at most `timeout` for each address of the host.
    ///
    /// # Errors
    /// As [`Connection::connect`].
    pub fn connect_timeout(addr: &str, timeout: Duration) -> Result<Connection> {
        let to = parse_address(addr)?;
        let stream = Stream::connect(&to, Some(timeout))
            .map_err(|e| Error::new(Code::HostUnreachable, format!("{to}: {e}")))?;
        Ok(Connection::over(stream))
    }

    /// A connection over a socket that is connected already.
    pub fn over(stream: Stream) -> Connection {
        Connection {
            reader: MessageReader::new(stream),
            out: Vec::new(),
            packed: Vec::new(),
            plain: Vec::new(),
            compressor: None,
            next_id: 1,
            awaited: 0,
        }
    }

    /// The socket.
    pub fn stream(&self) -> &Stream {
        self.reader.get_ref()
    }

    /// Longest wait for a reply and for a write; `None` (the default) waits for ever. After a
    /// timeout the connection must not be used again.
    ///
    /// # Errors
    /// 9001 SocketException.
    pub fn set_timeout(&mut self, t: Option<Duration>) -> Result<()> {
        let s = self.reader.get_ref();
        s.set_read_timeout(t)
            .and_then(|()| s.set_write_timeout(t))
            .map_err(|e| socket_error(&e))
    }

    /// Compresses requests from now on, except handshakes and secrets. The server must have accepted the
    /// compressor in its reply to `hello`.
    pub fn set_compressor(&mut self, with: Option<Compressor>) {
        self.compressor = with;
    }

    /// Runs the handshake that a driver begins with: `hello` on `admin`, with the client's name.
    ///
    /// # Errors
    /// As [`Connection::command`].
    pub fn hello(&mut self) -> Result<DocBuf> {
        let client = doc! {
            "driver": doc! { "name": "muniment-wire", "version": env!("CARGO_PKG_VERSION") },
            "os": doc! { "type": std::env::consts::OS },
        };
        self.command("admin", &doc! { "hello": 1, "client": client })
    }

    /// Runs a command and returns its reply.
    ///
    /// # Errors
    /// The server's error if the reply says `ok: 0`; else 9001 SocketException, 89
    /// NetworkTimeout or 17 ProtocolError. `writeErrors` and `writeConcernError` are in the
    /// reply and not errors here.
    pub fn command(&mut self, db: &str, cmd: &DocBuf) -> Result<DocBuf> {
        let reply = self.command_raw(db, cmd)?;
        check_ok(reply.as_doc())?;
        Ok(reply)
    }

    /// As [`Connection::command`], but an `ok: 0` reply is returned as it is.
    ///
    /// # Errors
    /// Socket and protocol errors only.
    pub fn command_raw(&mut self, db: &str, cmd: &DocBuf) -> Result<DocBuf> {
        self.send_command(db, cmd, 0, &[])?;
        Ok(self.recv()?.body.to_buf())
    }

    /// As [`Connection::command`], with kind-1 sections.
    ///
    /// # Errors
    /// As [`Connection::command`].
    pub fn command_with(
        &mut self,
        db: &str,
        cmd: &DocBuf,
        sequences: &[(&str, &[DocBuf])],
    ) -> Result<DocBuf> {
        self.send_command(db, cmd, 0, sequences)?;
        let reply = self.recv()?.body.to_buf();
        check_ok(reply.as_doc())?;
        Ok(reply)
    }

    /// Sends a command that gets no reply (`moreToCome`; its write concern should be `w: 0`).
    ///
    /// # Errors
    /// Socket errors.
    pub fn send_only(&mut self, db: &str, cmd: &DocBuf) -> Result<()> {
        self.send_command(db, cmd, MORE_TO_COME, &[])
    }

    /// Sends a command that may get several replies; read them with
    /// [`Connection::recv_exhaust`].
    ///
    /// # Errors
    /// Socket errors.
    pub fn send_exhaust(&mut self, db: &str, cmd: &DocBuf) -> Result<()> {
        self.send_command(db, cmd, EXHAUST_ALLOWED, &[])
    }

    /// Sends a command without waiting for its reply.
    ///
    /// # Errors
    /// Socket errors.
    pub fn send_command(
        &mut self,
        db: &str,
        cmd: &DocBuf,
        flags: u32,
        sequences: &[(&str, &[DocBuf])],
    ) -> Result<()> {
        self.awaited = self.next_id;
        self.next_id = self.next_id.checked_add(1).unwrap_or(1);
        self.out.clear();
        let mut w = begin_request(&mut self.out, self.awaited, flags).body_with(|b| {
            b.elements(cmd.as_doc());
            if cmd.as_doc().get_elem("$db").is_none() {
                b.field("$db", db);
            }
        });
        for (name, docs) in sequences {
            w = w.sequence(name, docs.iter().map(DocBuf::as_doc));
        }
        w.finish()?;
        let name = cmd.as_doc().first().map_or("", |e| e.name());
        let bytes = match self.compressor {
            Some(with) if is_compressible(name) => {
                compress(&self.out, with, &mut self.packed)?;
                &self.packed
            }
            _ => &self.out,
        };
        self.reader
            .get_mut()
            .write_all(bytes)
            .map_err(|e| socket_error(&e))
    }

    /// Sends bytes that the caller has encoded: one or several whole messages. After this,
    /// [`Connection::recv`] accepts replies to any message.
    ///
    /// # Errors
    /// Socket errors.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.awaited = 0;
        self.reader
            .get_mut()
            .write_all(bytes)
            .map_err(|e| socket_error(&e))
    }

    /// Receives one message as it is, without parsing or copying it: for the load generator.
    ///
    /// # Errors
    /// Socket errors; 9001 SocketException when the server closed the connection.
    pub fn recv_bytes(&mut self) -> Result<&[u8]> {
        match self.reader.read() {
            Ok(Some((_, message))) => Ok(message),
            Ok(None) => Err(closed()),
            Err(e) => Err(e.into()),
        }
    }

    /// Receives one message as it is into the reused `buf`.
    ///
    /// # Errors
    /// As [`Connection::recv_bytes`].
    pub fn recv_into(&mut self, buf: &mut Vec<u8>) -> Result<()> {
        let message = self.recv_bytes()?;
        buf.clear();
        buf.extend_from_slice(message);
        Ok(())
    }

    /// Receives and validates one reply.
    ///
    /// # Errors
    /// As [`Connection::recv_bytes`]; 17 ProtocolError for a reply to another request.
    pub fn recv(&mut self) -> Result<OpMsg<'_>> {
        match self.reader.read() {
            Ok(Some((header, message))) => reply_of(header, message, self.awaited, &mut self.plain),
            Ok(None) => Err(closed()),
            Err(e) => Err(e.into()),
        }
    }

    /// As [`Connection::recv`]; `None` after the read timeout of the socket, and then nothing is lost and the call can be
    /// repeated.
    ///
    /// # Errors
    /// As [`Connection::recv`].
    pub fn recv_soon(&mut self) -> Result<Option<OpMsg<'_>>> {
        match self.reader.read() {
            Ok(Some((header, message))) => {
                reply_of(header, message, self.awaited, &mut self.plain).map(Some)
            }
            Ok(None) => Err(closed()),
            Err(e) if e.is_timeout() => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// How many bytes have arrived of the message that is received next.
    pub fn begun(&self) -> usize {
        self.reader.pending()
    }

    /// Receives one reply of an exhaust stream. The flag is false with the last one.
    ///
    /// # Errors
    /// As [`Connection::recv`]; the server's error if the reply says `ok: 0`.
    pub fn recv_exhaust(&mut self) -> Result<(DocBuf, bool)> {
        let m = self.recv()?;
        let (header, more, reply) = (m.header, m.more_to_come(), m.body.to_buf());
        check_ok(reply.as_doc())?;
        // The next reply of the stream names this reply as the message that it answers.
        self.awaited = header.request_id;
        Ok((reply, more))
    }

    /// Runs a command that returns a cursor (find, aggregate, listIndexes …) and follows it to
    /// its end.
    ///
    /// # Errors
    /// As [`Connection::command`]; 17 ProtocolError for a reply without a cursor.
    pub fn find_all(&mut self, db: &str, cmd: &DocBuf) -> Result<Vec<DocBuf>> {
        let mut docs = Vec::new();
        let mut reply = self.command(db, cmd)?;
        loop {
            let (id, ns) = take_batch(reply.as_doc(), &mut docs)?;
            if id == 0 {
                return Ok(docs);
            }
            let (db, coll) = ns.split_once('.').unwrap_or((db, &ns));
            reply = self.command(db, &doc! { "getMore": id, "collection": coll })?;
        }
    }
}

/// Appends the documents of a cursor's reply to `docs`; returns the cursor's id and namespace.
fn take_batch(reply: Doc<'_>, docs: &mut Vec<DocBuf>) -> Result<(i64, String)> {
    let bad = || {
        Error::new(
            Code::ProtocolError,
            format!("reply without a cursor: {reply:?}"),
        )
    };
    let cursor = reply.get_doc("cursor").ok_or_else(bad)?;
    let batch = cursor
        .get_array("firstBatch")
        .or_else(|| cursor.get_array("nextBatch"))
        .ok_or_else(bad)?;
    for v in batch.values() {
        docs.push(v.as_doc().ok_or_else(bad)?.to_buf());
    }
    match cursor.get("id") {
        Some(Value::Int64(id)) => Ok((id, cursor.get_str("ns").unwrap_or_default().to_owned())),
        _ => Err(bad()),
    }
}

/// A message as the reply to the request that is awaited; to any if that is 0.
fn reply_of<'m>(
    header: Header,
    message: &'m [u8],
    awaited: i32,
    plain: &'m mut Vec<u8>,
) -> Result<OpMsg<'m>> {
    if awaited != 0 && header.response_to != awaited {
        return Err(Error::new(
            Code::ProtocolError,
            format!(
                "reply to request {} where {awaited} was awaited",
                header.response_to
            ),
        ));
    }
    if header.op_code == OP_COMPRESSED {
        decompress(message, plain)?;
        return OpMsg::parse_reply(plain);
    }
    OpMsg::parse_reply(message)
}

fn closed() -> Error {
    FrameError::Io(std::io::Error::new(
        std::io::ErrorKind::UnexpectedEof,
        "connection closed by the server",
    ))
    .into()
}

/// The labels that servers send. An error's labels are static strings, so others are left out.
const LABELS: [&str; 8] = [
    "NoWritesPerformed",
    "ResumableChangeStreamError",
    "RetryableError",
    "RetryableWriteError",
    "StreamProcessorRetryableError",
    "SystemOverloadedError",
    "TransientTransactionError",
    "UnknownTransactionCommitResult",
];

/// The `code` of an error in a reply: of the reply itself, or of a write's or write concern's error.
pub fn code_of(error: Doc<'_>) -> Option<Code> {
    let code = error.get("code").and_then(|v| v.as_i64_exact())?;
    i32::try_from(code).ok().map(Code)
}

/// The error of an `ok: 0` reply: code, message, known labels, and all further fields as extra.
///
/// # Errors
/// The error of the reply.
pub fn check_ok(reply: Doc<'_>) -> Result<()> {
    if reply.get("ok").is_some_and(|v| v.truthy()) {
        return Ok(());
    }
    let mut error = Error::new(
        code_of(reply).unwrap_or(Code::UnknownError),
        reply.get_str("errmsg").unwrap_or("reply without errmsg"),
    );
    let mut extra = DocBuf::new();
    for e in reply {
        match e.name() {
            "ok" | "errmsg" | "code" | "codeName" => {}
            "errorLabels" => {
                let given = e.value().as_array().unwrap_or(Doc::EMPTY);
                for l in given.values().filter_map(|v| v.as_str()) {
                    if let Some(known) = LABELS.iter().find(|k| **k == l) {
                        error = error.with_label(known);
                    }
                }
            }
            _ => {
                extra.append_elem(e);
            }
        }
    }
    Err(error.with_extra(extra))
}

/// The header of a message that [`Connection::recv_bytes`] has returned, for callers that pipeline.
pub fn header_of(message: &[u8]) -> Option<Header> {
    Header::parse(message)
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
