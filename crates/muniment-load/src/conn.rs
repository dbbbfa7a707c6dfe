//! The raw load client: one blocking connection that sends pre-encoded OP_MSG messages and reads replies into
//! a reused buffer. It has no pool, no session, no retry and no re-encoding, so measurements show the server
//! and the kernel, and not a driver.
//!
//! One request is in flight at a time, except for w:0 messages (moreToCome), which have no reply.

use crate::access::Peer;
use crate::fail::{Context, Failure, Result};
use muniment_tls::Refused;
use muniment_value::{Doc, DocBuf, Value};
use muniment_wire::{DocWriter, Stream};
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

const OP_MSG: i32 = 2013;
const HEADER: usize = 16;
/// The offset of the body, after the header, the flags, and the kind of the first section.
const BODY: usize = HEADER + 5;
/// The protocol's limit for a message, so no reply is longer.
const MAX_REPLY: usize = 48_000_000;

/// The longest time for a connection, and for the handshake of TLS.
const DIALLING: Duration = Duration::from_secs(5);

/// The longest time that a server may take for each step of a login.
const PATIENCE: Duration = Duration::from_secs(30);

/// A complete OP_MSG, ready to be sent many times.
#[derive(Debug, Clone)]
pub struct Message(pub Vec<u8>);

impl Message {
    /// A command with everything in its body.
    pub fn command(db: &str, body: &DocBuf) -> Message {
        Message::with_flags(0, db, body)
    }

    /// As [`Message::command`], for a write with w:0, which has no reply.
    pub fn unacknowledged(db: &str, body: &DocBuf) -> Message {
        Message::with_flags(2, db, body)
    }

    fn with_flags(flags: u32, db: &str, body: &DocBuf) -> Message {
        let mut body = body.clone();
        body.append("$db", db);
        let mut m = start(flags);
        m.push(0);
        m.extend_from_slice(body.as_bytes());
        finish(m)
    }

    /// The constant part of an insert whose documents are in a kind-1 section. A message with documents is
    /// begun with [`InsertTemplate::begin`].
    pub fn insert(db: &str, coll: &str, concern: Option<&DocBuf>) -> InsertTemplate {
        Message::insert_as(db, coll, concern, true)
    }

    /// As [`Message::insert`], unordered.
    pub fn insert_unordered(db: &str, coll: &str) -> InsertTemplate {
        Message::insert_as(db, coll, None, false)
    }

    fn insert_as(db: &str, coll: &str, concern: Option<&DocBuf>, ordered: bool) -> InsertTemplate {
        let mut body = DocBuf::new();
        body.append("insert", coll).append("ordered", ordered);
        let mut no_reply = false;
        if let Some(c) = concern {
            no_reply = is_unacknowledged(c.as_doc());
            body.append("writeConcern", c);
        }
        Message::insert_command(db, body, no_reply)
    }

    /// An insert with this body, and with its documents in a kind-1 section.
    pub fn insert_command(db: &str, mut body: DocBuf, no_reply: bool) -> InsertTemplate {
        body.append("$db", db);
        let mut m = start(if no_reply { 2 } else { 0 });
        m.push(0);
        m.extend_from_slice(body.as_bytes());
        m.push(1);
        let section = m.len();
        m.extend_from_slice(&[0; 4]);
        m.extend_from_slice(b"documents\0");
        InsertTemplate {
            head: m,
            section,
            no_reply,
        }
    }

    /// Makes this message a command whose body `fill` writes, and reuses the message's memory. With
    /// `unacknowledged` there will be no reply.
    pub fn write(&mut self, db: &str, unacknowledged: bool, fill: impl FnOnce(&mut DocWriter<'_>)) {
        self.0.clear();
        self.0.resize(HEADER, 0);
        self.patch(12, &OP_MSG.to_le_bytes());
        let flags = if unacknowledged { 2_u32 } else { 0 };
        self.0.extend_from_slice(&flags.to_le_bytes());
        self.0.push(0);
        let mut body = DocWriter::begin(&mut self.0);
        fill(&mut body);
        body.field("$db", db);
        body.finish();
        let n = self.0.len() as u32;
        self.patch(0, &n.to_le_bytes());
    }

    /// Appends fields to the body of a message that consists only of its body.
    pub fn append(&mut self, fields: &DocBuf) {
        let inner = fields.as_bytes();
        let inner = inner.get(4..inner.len() - 1).unwrap_or_default();
        self.0.pop();
        self.0.extend_from_slice(inner);
        self.0.push(0);
        let n = self.0.len();
        self.patch(BODY, &((n - BODY) as u32).to_le_bytes());
        self.patch(0, &(n as u32).to_le_bytes());
    }

    /// Empties the message and begins a command: the caller appends the body to `.0` and then calls
    /// [`Message::seal`]. With `more` there will be no reply.
    #[inline]
    pub fn begin(&mut self, more: bool) {
        self.0.clear();
        self.0.extend_from_slice(&[0; HEADER]);
        self.patch(12, &OP_MSG.to_le_bytes());
        self.0
            .extend_from_slice(&[if more { 2 } else { 0 }, 0, 0, 0, 0]);
    }

    /// Fills in the length.
    #[inline]
    pub fn seal(&mut self) {
        let n = self.0.len() as u32;
        self.patch(0, &n.to_le_bytes());
    }

    /// The offset of `needle` in the message, for patching in place.
    pub fn find(&self, needle: &[u8]) -> Option<usize> {
        self.0.windows(needle.len()).position(|w| w == needle)
    }

    /// Overwrites the bytes at `at`. An offset out of range is ignored.
    #[inline]
    pub fn patch(&mut self, at: usize, bytes: &[u8]) {
        if let Some(slot) = self.0.get_mut(at..at + bytes.len()) {
            slot.copy_from_slice(bytes);
        }
    }
}

/// Whether a write with this concern may go without a reply, which is so for w:0 without a demand for the
/// journal.
pub fn is_unacknowledged(c: Doc<'_>) -> bool {
    let zero = c.get("w").and_then(num).is_some_and(|w| w == 0.0);
    zero && c.get("j").and_then(|j| j.as_bool()) != Some(true)
}

fn start(flags: u32) -> Vec<u8> {
    let mut m = vec![0u8; HEADER];
    if let Some(op) = m.get_mut(12..16) {
        op.copy_from_slice(&OP_MSG.to_le_bytes());
    }
    m.extend_from_slice(&flags.to_le_bytes());
    m
}

fn finish(mut m: Vec<u8>) -> Message {
    let n = (m.len() as u32).to_le_bytes();
    if let Some(len) = m.get_mut(..4) {
        len.copy_from_slice(&n);
    }
    Message(m)
}

/// The constant part of an insert command.
#[derive(Debug, Clone)]
pub struct InsertTemplate {
    head: Vec<u8>,
    section: usize,
    /// True for w:0: there will be no reply.
    pub no_reply: bool,
}

impl InsertTemplate {
    /// Resets `m` to the constant part. The caller appends documents to `m.0` and then calls [`Self::seal`].
    #[inline]
    pub fn begin(&self, m: &mut Message) {
        m.0.clear();
        m.0.extend_from_slice(&self.head);
    }

    /// Fills in the lengths.
    #[inline]
    pub fn seal(&self, m: &mut Message) {
        let n = m.0.len();
        m.patch(self.section, &((n - self.section) as u32).to_le_bytes());
        m.patch(0, &(n as u32).to_le_bytes());
    }

    /// A message with these documents, back to back in `docs`.
    pub fn message(&self, docs: &[u8]) -> Message {
        let mut m = Message(Vec::with_capacity(self.head.len() + docs.len()));
        self.begin(&mut m);
        m.0.extend_from_slice(docs);
        self.seal(&mut m);
        m
    }
}

/// One connection.
pub struct Conn {
    stream: Stream,
    request: i32,
    reply: Vec<u8>,
    filled: usize,
}

impl Conn {
    /// Connects to a server, makes the handshake of TLS and logs in, if it takes that. Without them nothing is
    /// sent yet.
    ///
    /// # Errors
    /// Nothing listens there, the handshake fails, or the server refuses the login.
    pub fn connect(peer: &Peer) -> Result<Conn> {
        let mut conn = Conn::dial(peer)?;
        if let Some(login) = &peer.access().login {
            conn.set_timeout(Some(PATIENCE))?;
            login.run(peer.address(), &mut |db, command| {
                let reply = conn.call(&mut Message::command(db, command))?;
                check(reply)?;
                Ok(reply.to_buf())
            })?;
            conn.set_timeout(None)?;
        }
        Ok(conn)
    }

    /// Whether anything listens at the server's address, whatever it would say to a login.
    pub fn listens(peer: &Peer) -> bool {
        Conn::dial(peer).is_ok()
    }

    fn dial(peer: &Peer) -> Result<Conn> {
        let address = peer.address();
        let what = format!("cannot connect to {address}");
        let stream = Stream::connect(address, Some(DIALLING)).context(&what)?;
        let stream = match &peer.access().tls {
            Some(tls) => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                let secured = stream.secured(tls, host, DIALLING);
                secured.map_err(|e| match Refused::of(&e) {
                    Some(why) => Failure(format!("{what} with TLS: {why}")),
                    None => Failure(format!("{what} with TLS: {e} (does the server speak TLS?)")),
                })?
            }
            None => stream,
        };
        Ok(Conn {
            stream,
            request: 0,
            reply: vec![0; 16 * 1024],
            filled: 0,
        })
    }

    /// True if the peer is this machine.
    pub fn is_loopback(&self) -> bool {
        let peer = self.stream.peer().parse::<SocketAddr>();
        peer.is_ok_and(|a| a.ip().to_canonical().is_loopback())
    }

    /// Sets a limit after which a request without a reply fails; with `None`, it waits for ever.
    pub fn set_timeout(&self, limit: Option<Duration>) -> Result<()> {
        self.stream.set_read_timeout(limit)?;
        self.stream.set_write_timeout(limit)?;
        Ok(())
    }

    /// The socket, to wait for an answer.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Sends a message, with a fresh request id.
    #[inline]
    pub fn send(&mut self, m: &mut Message) -> Result<()> {
        self.request = self.request.wrapping_add(1);
        m.patch(4, &self.request.to_le_bytes());
        self.stream.write_all(&m.0).context("sending")
    }

    /// Reads the reply to the last message. The view lives until the next call.
    #[inline]
    pub fn receive(&mut self) -> Result<Doc<'_>> {
        self.filled = 0;
        loop {
            let have = self.reply.get(..self.filled).unwrap_or_default();
            let need = match have.first_chunk::<4>() {
                Some(n) => u32::from_le_bytes(*n) as usize,
                None => HEADER,
            };
            if !(HEADER..=MAX_REPLY).contains(&need) {
                return Err(Failure(format!(
                    "the reply says it has {need} bytes: is this a MongoDB server?"
                )));
            }
            if self.filled >= need && self.filled >= HEADER {
                break;
            }
            if self.reply.len() < need {
                self.reply.resize(need, 0);
            }
            let room = self.reply.get_mut(self.filled..).unwrap_or_default();
            match self.stream.receive(room) {
                Ok(0) => return Err(Failure::new("the server closed the connection")),
                Ok(n) => self.filled += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Failure(format!("waiting for the reply: {e}"))),
            }
        }
        let word = |at: usize| {
            self.reply
                .get(at..at + 4)
                .and_then(|b| b.try_into().ok())
                .map_or(0, i32::from_le_bytes)
        };
        if word(12) != OP_MSG || word(8) != self.request {
            return Err(Failure(format!(
                "expected an OP_MSG reply to request {}, got opCode {} for request {}",
                self.request,
                word(12),
                word(8)
            )));
        }
        // After the flags comes a kind-0 section; servers never reply with another kind.
        let body = self.reply.get(BODY..self.filled).unwrap_or_default();
        Ok(Doc::new(body))
    }

    /// Sends a message and waits for the reply, whatever it says.
    #[inline]
    pub fn call(&mut self, m: &mut Message) -> Result<Doc<'_>> {
        self.send(m)?;
        self.receive()
    }

    /// Sends a command and returns the reply if it is `ok: 1` without write errors.
    pub fn command(&mut self, db: &str, body: &DocBuf) -> Result<DocBuf> {
        let name = body
            .as_doc()
            .first()
            .map_or_else(String::new, |e| e.name().to_string());
        let reply = self
            .call(&mut Message::command(db, body))
            .map_err(|e| e.while_doing(&name))?;
        check(reply).map_err(|e| e.while_doing(&name))?;
        Ok(reply.to_buf())
    }
}

/// Fails unless the reply says `ok: 1`, without writeErrors and writeConcernError.
#[inline]
pub fn check(reply: Doc<'_>) -> Result<()> {
    let mut ok = false;
    for e in reply {
        match e.name_bytes() {
            b"ok" => ok = num(e.value()) == Some(1.0),
            b"writeErrors" | b"writeConcernError" => {
                return Err(Failure(format!("{}: {:?}", e.name(), e.value())));
            }
            _ => {}
        }
    }
    if ok {
        return Ok(());
    }
    let code = reply.get("code").and_then(num).unwrap_or(0.0);
    Err(Failure(format!(
        "{} ({} {})",
        reply.get_str("errmsg").unwrap_or("the reply has no ok: 1"),
        code,
        reply.get_str("codeName").unwrap_or("")
    )))
}

/// The number a reply's double, int32 or int64 holds.
#[inline]
fn num(v: Value<'_>) -> Option<f64> {
    match v {
        Value::Double(n) => Some(n),
        Value::Int32(n) => Some(f64::from(n)),
        Value::Int64(n) => Some(n as f64),
        _ => None,
    }
}

/// The number in field `path` (dotted) of `doc`.
pub fn number_at(doc: Doc<'_>, path: &str) -> Option<f64> {
    let mut at = doc;
    let mut parts = path.split('.').peekable();
    while let Some(p) = parts.next() {
        let v = at.get(p)?;
        if parts.peek().is_none() {
            return num(v);
        }
        at = v.as_doc()?;
    }
    None
}

/// The string in field `path` (dotted) of `doc`.
pub fn string_at(doc: Doc<'_>, path: &str) -> Option<String> {
    let mut at = doc;
    let mut parts = path.split('.').peekable();
    while let Some(p) = parts.next() {
        let v = at.get(p)?;
        if parts.peek().is_none() {
            return match v {
                Value::String(s) => Some(s.to_string()),
                _ => None,
            };
        }
        at = v.as_doc()?;
    }
    None
}

/// A find by `_id` with an int64 that is to be patched: the message, and the offset of the number.
pub fn find_by_id(db: &str, coll: &str) -> (Message, usize) {
    let mark = i64::from_le_bytes(*b"\x01patchme");
    let mut body = DocBuf::new();
    body.append("find", coll)
        .append("filter", muniment_value::doc! { "_id": mark })
        .append("limit", 1)
        .append("singleBatch", true);
    let m = Message::command(db, &body);
    let at = m.find(&mark.to_le_bytes()).unwrap_or(0);
    (m, at)
}

/// `{update: coll, updates: [{q: {_id: I}, u: {$set: {n: N}}}]}`, in which both numbers are to be patched:
/// the message, the offset of the int64 I, and that of the int32 N.
pub fn update_by_id(db: &str, coll: &str) -> (Message, usize, usize) {
    let id = i64::from_le_bytes(*b"\x01patchme");
    let n = i32::from_le_bytes(*b"\x02me2");
    let mut body = DocBuf::new();
    body.append("update", coll).append(
        "updates",
        muniment_value::array![muniment_value::doc! {
            "q": muniment_value::doc! { "_id": id },
            "u": muniment_value::doc! { "$set": muniment_value::doc! { "n": n } },
        }],
    );
    let m = Message::command(db, &body);
    let at = m.find(&id.to_le_bytes()).unwrap_or(0);
    let n_at = m.find(&n.to_le_bytes()).unwrap_or(0);
    (m, at, n_at)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use muniment_value::doc;
    use std::io::Read;
    use std::net::TcpListener;

    #[test]
    fn an_insert_message_has_the_protocols_layout() {
        let t = Message::insert("d", "c", Some(&doc! { "w": 0 }));
        assert!(t.no_reply);
        let docs = doc! { "a": 1, "b": "hat" }.as_bytes().to_vec();
        let m = t.message(&docs).0;
        assert_eq!(
            u32::from_le_bytes(m[..4].try_into().unwrap()) as usize,
            m.len()
        );
        assert_eq!(m[16], 2, "moreToCome");
        assert_eq!(m[20], 0, "kind 0 first");
        let body = Doc::new(&m[21..]);
        let len = u32::from_le_bytes(m[21..25].try_into().unwrap()) as usize;
        assert_eq!(body.get_str("insert"), Some("c"));
        assert_eq!(m[21 + len], 1, "then kind 1");
        let at = 22 + len;
        let size = u32::from_le_bytes(m[at..at + 4].try_into().unwrap()) as usize;
        assert_eq!(at + size, m.len());
        assert_eq!(&m[at + 4..at + 14], b"documents\0");
        assert_eq!(&m[at + 14..], &docs[..]);
    }

    #[test]
    fn a_message_written_in_place_is_the_same() {
        let filter = doc! { "_id": "k" };
        let body = doc! { "find": "c", "filter": &filter, "limit": 1 };
        let mut m = Message(vec![7; 5000]);
        for unacknowledged in [false, true] {
            m.write("d", unacknowledged, |b| {
                b.field("find", "c").open_document("filter");
                b.field("_id", "k").close().field("limit", 1);
            });
            let want = match unacknowledged {
                false => Message::command("d", &body),
                true => Message::unacknowledged("d", &body),
            };
            assert_eq!(m.0, want.0);
        }
    }

    #[test]
    fn j_true_is_acknowledged_even_with_w_0() {
        assert!(!Message::insert("d", "c", Some(&doc! { "w": 0, "j": true })).no_reply);
        assert!(!Message::insert("d", "c", Some(&doc! { "w": 1 })).no_reply);
        assert!(!Message::insert("d", "c", None).no_reply);
    }

    #[test]
    fn templates_are_patched_where_they_should_be() {
        let (mut m, at) = find_by_id("d", "c");
        m.patch(at, &77i64.to_le_bytes());
        let body = Doc::new(&m.0[21..]);
        assert_eq!(number_at(body, "filter._id"), Some(77.0));
        let (mut m, at, n) = update_by_id("d", "c");
        m.patch(at, &5i64.to_le_bytes());
        m.patch(n, &6i32.to_le_bytes());
        let body = Doc::new(&m.0[21..]);
        let one = body.get_array("updates").unwrap().get_doc("0").unwrap();
        assert_eq!(number_at(one, "q._id"), Some(5.0));
        assert_eq!(number_at(one, "u.$set.n"), Some(6.0));
    }

    /// Answers one request with `reply`, then ends.
    fn one_answer(reply: DocBuf) -> Peer {
        let l = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = l.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut s, _) = l.accept().unwrap();
            let mut b = vec![0; 65536];
            let n = s.read(&mut b).unwrap();
            assert!(n > 16);
            let mut m = start(0);
            m[8..12].copy_from_slice(&b[4..8]);
            m.push(0);
            m.extend_from_slice(reply.as_bytes());
            let m = finish(m).0;
            // The reply is sent in two pieces, as a network may deliver it.
            s.write_all(&m[..10]).unwrap();
            s.flush().unwrap();
            std::thread::sleep(Duration::from_millis(20));
            s.write_all(&m[10..]).unwrap();
        });
        Peer::open(address)
    }

    #[test]
    fn replies_are_read_whole_and_errors_said() {
        let mut c = Conn::connect(&one_answer(doc! { "ok": 1.0, "n": 3 })).unwrap();
        let r = c.command("admin", &doc! { "ping": 1 }).unwrap();
        assert_eq!(number_at(r.as_doc(), "n"), Some(3.0));
        let bad = doc! { "ok": 0.0, "errmsg": "no such thing", "code": 59, "codeName": "CommandNotFound" };
        let mut c = Conn::connect(&one_answer(bad)).unwrap();
        let e = c.command("admin", &doc! { "nope": 1 }).unwrap_err();
        assert_eq!(e.0, "nope: no such thing (59 CommandNotFound)");
        let bad = doc! { "ok": 1.0, "writeErrors": muniment_value::array![doc! { "code": 11000 }] };
        let mut c = Conn::connect(&one_answer(bad)).unwrap();
        assert!(c.command("d", &doc! { "insert": "c" }).is_err());
    }

    #[test]
    fn nothing_listening_is_said_plainly() {
        let l = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = l.local_addr().unwrap().to_string();
        drop(l);
        let e = Conn::connect(&Peer::open(&a)).err().unwrap();
        assert!(e.0.starts_with(&format!("cannot connect to {a}: ")), "{e}");
    }
}
