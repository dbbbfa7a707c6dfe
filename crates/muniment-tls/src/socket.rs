//! A TCP connection that speaks TLS, or whose other side has yet to show whether it does.
//!
//! Invariants: nothing waits for the network while it holds the lock, so a connection can be ended, and
//! written to, while a thread waits to read; what a write reports as written was handed to the system whole;
//! the memory for bytes that are not decrypted yet is bounded by [`MOST_INCOMING`].
//!
//! Several threads may hold a socket, but at most one may read and one may write at a time. A write that
//! reports less than it was given has to be repeated with the rest, because a part of that may be encrypted
//! already.

use crate::endpoint::{self, Binding, Endpoint, Version};
use crate::names::Certificate;
use crate::settings::Mode;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};
use rustls::{CommonState, ProtocolVersion};
use std::fmt;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Room for received bytes at first: enough for the greeting of most clients.
const FIRST_INCOMING: usize = 4 << 10;
/// Received bytes that are not decrypted yet are at most so many. A message of the handshake may have as
/// many, with the certificates of a client.
const MOST_INCOMING: usize = 64 << 10;
/// So many bytes are encrypted at a time: four records.
const CHUNK: usize = 64 << 10;
/// How many bytes show whether a connection begins with TLS.
const TELLING: usize = 11;
/// More than the encryption adds to a record.
const RECORD_EXTRA: usize = 64;
/// The most plain bytes of a record.
const RECORD: usize = 16 << 10;

/// Why a connection cannot go on.
#[derive(Debug)]
pub enum Refused {
    /// The other side does not use TLS, and has to.
    Plain,
    /// The handshake failed, or what came later is not TLS.
    Tls(rustls::Error),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Plain => f.write_str("The server is configured to only allow SSL connections"),
            Refused::Tls(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Refused {}

impl From<Refused> for io::Error {
    fn from(why: Refused) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, why)
    }
}

impl Refused {
    /// The reason in an error of a socket, if it is one of these.
    pub fn of(e: &io::Error) -> Option<&Refused> {
        e.get_ref()?.downcast_ref()
    }
}

/// Whether the first bytes of a connection are those of a client that speaks TLS: the record of a handshake
/// with a ClientHello. In a message of MongoDB's they would be a length, the request's number, and the middle
/// of `responseTo`, which is 0 in a client's messages. `None` if there are too few bytes to tell.
pub fn greets(first: &[u8]) -> Option<bool> {
    match first {
        [22, 3, 0..=4, _, _, 1, _, _, _, 3, 0..=4, ..] => Some(true),
        [] | [22] => None,
        [22, 3, ..] if first.len() < TELLING => None,
        _ => Some(false),
    }
}

/// Bytes between two places of a buffer that is kept.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    fn len(&self) -> usize {
        self.end - self.start
    }

    fn held(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    fn held_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.start..self.end).unwrap_or_default()
    }

    fn discard(&mut self, n: usize) {
        self.start = (self.start + n).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Room for at least so many more bytes.
    fn room(&mut self, least: usize) -> &mut [u8] {
        if self.bytes.len() - self.end < least && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.bytes.len() - self.end < least {
            self.bytes.resize(self.end + least, 0);
        }
        self.bytes.get_mut(self.end..).unwrap_or_default()
    }

    fn free_if_empty(&mut self) {
        if self.len() == 0 {
            *self = Buffer::default();
        }
    }
}

/// The protocol of the connection.
enum Conn {
    /// Not known yet.
    Undecided,
    /// The other side does not use TLS.
    Plain,
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
    /// It has failed.
    Failed,
}

impl Conn {
    fn common(&self) -> Option<&CommonState> {
        match self {
            Conn::Server(c) => Some(c),
            Conn::Client(c) => Some(c),
            _ => None,
        }
    }
}

struct Inner {
    conn: Conn,
    incoming: Buffer,
    /// The digest of the certificate that was shown to a client.
    binding: Option<Binding>,
    /// Decrypted bytes that were not asked for yet.
    plain: Buffer,
    /// Encrypted bytes that the system has not taken yet.
    out: Buffer,
    /// How many plain bytes of the last write are in `out`.
    held: usize,
    /// The other side has sent its end.
    ended: bool,
    /// The last read from the socket filled all the room.
    filled: bool,
    /// The system has not taken all of the last chunk at once.
    slow: bool,
}

/// What the handshake came to.
struct Established {
    version: Version,
    certificate: Option<Certificate>,
    binding: Option<Binding>,
}

/// See the module's head.
pub struct Socket {
    tcp: TcpStream,
    /// For accepted connections.
    endpoint: Option<Arc<Endpoint>>,
    inner: Mutex<Inner>,
    /// The other side uses no TLS, and all that was received to find that out was read.
    is_plain: AtomicBool,
    established: OnceLock<Established>,
    /// In nanoseconds; 0 for no limit.
    read_limit: AtomicU64,
    write_limit: AtomicU64,
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Socket").field(&self.tcp).finish()
    }
}

/// What there is to do when the connection is ready for it.
#[derive(Clone, Copy)]
enum Give<'d> {
    Nothing,
    Data(&'d [u8]),
    Close,
}

/// What a look at the received bytes came to.
enum Step {
    /// Some of it was decrypted, or something is to be sent.
    Again,
    /// What there was to do is done.
    Done,
    /// More bytes are needed.
    Blocked,
    /// The other side has ended the connection.
    Ended,
    Failed(rustls::Error),
}

/// Goes on with the protocol by one step. Returns how many of the received bytes are used up.
fn step<D>(
    status: UnbufferedStatus<'_, '_, D>,
    out: &mut Buffer,
    take: &mut dyn FnMut(&[u8]),
    give: Give<'_>,
) -> (usize, Step) {
    let discard = status.discard;
    let state = match status.state {
        Ok(state) => state,
        Err(e) => return (discard, Step::Failed(e)),
    };
    let step = match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            let mut step = Step::Again;
            while let Some(record) = traffic.next_record() {
                match record {
                    Ok(record) => take(record.payload),
                    Err(e) => step = Step::Failed(e),
                }
            }
            step
        }
        ConnectionState::EncodeTlsData(mut data) => {
            let mut least = 512;
            loop {
                match data.encode(out.room(least)) {
                    Ok(n) => {
                        out.end += n;
                        break Step::Again;
                    }
                    Err(EncodeError::InsufficientSize(e)) => least = e.required_size,
                    Err(EncodeError::AlreadyEncoded) => break Step::Again,
                }
            }
        }
        ConnectionState::TransmitTlsData(data) => {
            // The caller sends what is in `out` before it waits for anything.
            data.done();
            Step::Again
        }
        ConnectionState::WriteTraffic(mut traffic) => {
            let least = |n: usize| n + (n / RECORD + 1) * RECORD_EXTRA;
            match give {
                Give::Nothing => Step::Done,
                Give::Data(bytes) => put(out, least(bytes.len()), |to| traffic.encrypt(bytes, to)),
                Give::Close => put(out, least(0), |to| traffic.queue_close_notify(to)),
            }
        }
        ConnectionState::BlockedHandshake => Step::Blocked,
        ConnectionState::PeerClosed | ConnectionState::Closed => Step::Ended,
        // No early data is accepted.
        _ => Step::Failed(rustls::Error::General("an unexpected state".into())),
    };
    (discard, step)
}

fn put(
    out: &mut Buffer,
    mut least: usize,
    mut encrypt: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Step {
    loop {
        match encrypt(out.room(least)) {
            Ok(n) => {
                out.end += n;
                return Step::Done;
            }
            Err(EncryptError::InsufficientSize(InsufficientSizeError { required_size })) => {
                least = required_size;
            }
            Err(EncryptError::EncryptExhausted) => {
                return Step::Failed(rustls::Error::EncryptError);
            }
        }
    }
}

impl Inner {
    fn new(conn: Conn) -> Inner {
        Inner {
            conn,
            incoming: Buffer::default(),
            binding: None,
            plain: Buffer::default(),
            out: Buffer::default(),
            held: 0,
            ended: false,
            filled: false,
            slow: false,
        }
    }

    /// One step, whose decrypted bytes go to `buf`, as far as it has room, and then to `plain`. Returns how
    /// many have gone to `buf`.
    fn step(&mut self, buf: &mut [u8], give: Give<'_>) -> (usize, Step) {
        let Inner {
            conn,
            incoming,
            plain,
            out,
            ..
        } = self;
        let mut n = 0;
        let mut take = |bytes: &[u8]| {
            let room = buf.get_mut(n..).unwrap_or_default();
            // The order has to stay, so nothing goes to `buf` after something went to `plain`.
            let direct = match plain.len() {
                0 => room.len().min(bytes.len()),
                _ => 0,
            };
            let (now, later) = bytes.split_at(direct);
            if let Some(room) = room.get_mut(..direct) {
                room.copy_from_slice(now);
            }
            n += direct;
            if !later.is_empty() {
                plain.room(later.len())[..later.len()].copy_from_slice(later);
                plain.end += later.len();
            }
        };
        let (discard, step) = match conn {
            Conn::Server(c) => step(
                c.process_tls_records(incoming.held_mut()),
                out,
                &mut take,
                give,
            ),
            Conn::Client(c) => step(
                c.process_tls_records(incoming.held_mut()),
                out,
                &mut take,
                give,
            ),
            _ => (0, Step::Failed(rustls::Error::HandshakeNotComplete)),
        };
        incoming.discard(discard);
        (n, step)
    }

    /// Decrypts what there is. Returns how many bytes have gone to `buf`; `None` if more have to be received
    /// first.
    fn decrypt(&mut self, buf: &mut [u8]) -> Result<Option<usize>, rustls::Error> {
        loop {
            match self.step(buf, Give::Nothing) {
                (n @ 1.., _) => return Ok(Some(n)),
                (_, Step::Again) => {}
                (_, Step::Done | Step::Blocked) => return Ok(None),
                (_, Step::Ended) => {
                    self.ended = true;
                    return Ok(Some(0));
                }
                (_, Step::Failed(e)) => return Err(e),
            }
        }
    }

    /// Encrypts bytes, or the end.
    fn encrypt(&mut self, give: Give<'_>) -> Result<(), rustls::Error> {
        loop {
            // What is received meanwhile is kept for the next read.
            match self.step(&mut [], give).1 {
                Step::Again => {}
                Step::Done => return Ok(()),
                Step::Ended if !self.ended => self.ended = true,
                Step::Blocked | Step::Ended => return Err(rustls::Error::HandshakeNotComplete),
                Step::Failed(e) => return Err(e),
            }
        }
    }

    /// Takes the alert that tells the other side of a failure, and gives the connection up.
    fn fail(&mut self) {
        // The alert is the one thing that is left to be sent. Another step would look at what has failed again.
        let _ = self.step(&mut [], Give::Nothing);
        self.conn = Conn::Failed;
    }
}

fn would_block() -> io::Error {
    io::ErrorKind::WouldBlock.into()
}

fn nanos(limit: Option<Duration>) -> u64 {
    // A limit of zero would be none, so it is made the shortest one.
    limit.map_or(0, |t| {
        u64::try_from(t.as_nanos()).unwrap_or(u64::MAX).max(1)
    })
}

impl Socket {
    /// A socket for a connection that was accepted. Nothing is sent or received yet: the handshake is made
    /// by the first reads.
    pub fn accepted(tcp: TcpStream, endpoint: Arc<Endpoint>) -> Socket {
        Socket::new(tcp, Some(endpoint), Conn::Undecided)
    }

    fn new(tcp: TcpStream, endpoint: Option<Arc<Endpoint>>, conn: Conn) -> Socket {
        Socket {
            tcp,
            endpoint,
            inner: Mutex::new(Inner::new(conn)),
            is_plain: AtomicBool::new(false),
            established: OnceLock::new(),
            read_limit: AtomicU64::new(0),
            write_limit: AtomicU64::new(0),
        }
    }

    /// Makes the handshake with the server of this name over a connection to it, within `limit`.
    ///
    /// # Errors
    /// The socket's; one of the kind `InvalidData` if the handshake fails, and `TimedOut`.
    pub fn connect(
        tcp: TcpStream,
        endpoint: &Endpoint,
        name: &str,
        limit: Duration,
    ) -> io::Result<Socket> {
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(name.to_string()).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{name:?} is no name that a certificate could be for"),
            )
        })?;
        let config = endpoint.client_config();
        let conn = UnbufferedClientConnection::new(config, name).map_err(Refused::Tls)?;
        let socket = Socket::new(tcp, None, Conn::Client(Box::new(conn)));
        let until = Instant::now() + limit;
        loop {
            match socket.greet() {
                Ok(true) => return Ok(socket),
                Ok(false) => {}
                Err(e) => return Err(e),
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !socket.wait(socket.awaited(), nanos(Some(left)))? {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the handshake of TLS was not answered in time",
                ));
            }
        }
    }

    /// Goes on with the handshake. True if it is done and all of it was sent.
    fn greet(&self) -> io::Result<bool> {
        let mut s = self.inner.lock();
        match self.advance(&mut s, &mut []) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(self.established.get().is_some() && s.out.len() == 0),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                Ok(self.established.get().is_some() && s.out.len() == 0)
            }
            Err(e) => Err(e),
        }
    }

    /// The TCP connection.
    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// The version, after the handshake; `None` also for a connection without TLS.
    pub fn version(&self) -> Option<Version> {
        self.established.get().map(|e| e.version)
    }

    /// The certificate that the other side has shown.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.established.get()?.certificate.as_ref()
    }

    /// What both ends know the connection by: the digest of the server's certificate. A third one that stands
    /// between them, with a certificate of its own, cannot have the same on both sides.
    pub fn binding(&self) -> Option<&Binding> {
        self.established.get()?.binding.as_ref()
    }

    /// The longest wait of a read; `None` waits for ever.
    pub fn set_read_timeout(&self, limit: Option<Duration>) {
        self.read_limit.store(nanos(limit), Relaxed);
    }

    /// The longest wait of a write; `None` waits for ever.
    pub fn set_write_timeout(&self, limit: Option<Duration>) {
        self.write_limit.store(nanos(limit), Relaxed);
    }

    /// Waits until the socket is ready; false after `limit` nanoseconds.
    fn wait(&self, flags: PollFlags, limit: u64) -> io::Result<bool> {
        let limit = (limit > 0).then(|| Timespec {
            tv_sec: i64::try_from(limit / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(limit % 1_000_000_000).unwrap_or(0),
        });
        match poll(&mut [PollFd::new(&self.tcp, flags)], limit.as_ref()) {
            Ok(n) => Ok(n > 0),
            Err(rustix::io::Errno::INTR) => Err(io::ErrorKind::Interrupted.into()),
            Err(e) => Err(e.into()),
        }
    }

    /// Reads, and waits for that no longer than the limit.
    ///
    /// # Errors
    /// The socket's; one of the kind `WouldBlock` after the limit; [`Refused`] as one of the kind
    /// `InvalidData`.
    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let limit = self.read_limit.load(Relaxed);
        if self.has_nothing() && !self.wait(PollFlags::IN, limit)? {
            return Err(would_block());
        }
        loop {
            match self.read_at_once(buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            // A part of a record has come, or of a handshake, of which something may be left to be sent.
            if !self.wait(self.awaited(), limit)? {
                return Err(would_block());
            }
        }
    }

    /// What has to happen before a read can go on.
    fn awaited(&self) -> PollFlags {
        match !self.is_plain.load(Relaxed) && self.inner.lock().out.len() > 0 {
            true => PollFlags::IN | PollFlags::OUT,
            false => PollFlags::IN,
        }
    }

    /// Whether a read would have to receive something first.
    fn has_nothing(&self) -> bool {
        if self.is_plain.load(Relaxed) {
            return true;
        }
        let s = self.inner.lock();
        s.plain.len() == 0 && s.incoming.len() == 0 && !s.ended
    }

    /// Reads what there is without waiting.
    ///
    /// # Errors
    /// As [`Socket::read`]; `WouldBlock` if there is nothing.
    pub fn read_at_once(&self, buf: &mut [u8]) -> io::Result<usize> {
        if self.is_plain.load(Relaxed) {
            return Ok(recv(&self.tcp, buf, RecvFlags::DONTWAIT)?.0);
        }
        let mut s = self.inner.lock();
        let s = &mut *s;
        if s.plain.len() > 0 {
            let n = s.plain.len().min(buf.len());
            if let (Some(to), Some(from)) = (buf.get_mut(..n), s.plain.held().get(..n)) {
                to.copy_from_slice(from);
            }
            s.plain.discard(n);
            return Ok(n);
        }
        self.advance(s, buf)
    }

    /// Decrypts, receives and sends until something was read or there is nothing to go on with.
    fn advance(&self, s: &mut Inner, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if s.ended {
                return Ok(0);
            }
            match &s.conn {
                Conn::Failed => return Ok(0),
                Conn::Plain => return self.read_plain(s, buf),
                Conn::Undecided => self.decide(s)?,
                _ => {}
            }
            let is_tls = s.conn.common().is_some();
            // A client speaks first.
            let goes_on = s.incoming.len() > 0 || self.established.get().is_none();
            if is_tls && goes_on {
                let read = s.decrypt(buf);
                let read = read.map_err(|e| self.fails(s, e))?;
                self.note_established(s);
                self.push(s)?;
                if let Some(n) = read {
                    return Ok(n);
                }
                if buf.is_empty() && s.plain.len() > 0 {
                    return Err(would_block());
                }
            }
            if matches!(s.conn, Conn::Plain) {
                continue;
            }
            if !self.receive(s)? {
                s.ended = true;
                return Ok(0);
            }
        }
    }

    /// Receives what there is. False at the end of the connection.
    fn receive(&self, s: &mut Inner) -> io::Result<bool> {
        let mut least = match s.incoming.bytes.len() {
            0 => FIRST_INCOMING,
            _ => 1,
        };
        if s.filled || s.incoming.len() == s.incoming.bytes.len() {
            // Twice the room, up to the most.
            least = least.max(s.incoming.bytes.len() * 2 - s.incoming.len());
        }
        let most = MOST_INCOMING.saturating_sub(s.incoming.len());
        let least = least.min(most);
        if least == 0 {
            let e = rustls::Error::General("a message of the handshake is too large".into());
            return Err(self.fails(s, e));
        }
        let room = s.incoming.room(least);
        let n = recv(&self.tcp, &mut *room, RecvFlags::DONTWAIT)?.0;
        s.filled = n == room.len();
        s.incoming.end += n;
        Ok(n > 0)
    }

    /// Finds out whether the other side speaks TLS.
    fn decide(&self, s: &mut Inner) -> io::Result<()> {
        let Some(endpoint) = &self.endpoint else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        match greets(s.incoming.held()) {
            None => Ok(()),
            Some(true) => {
                let offer = endpoint.offer().ok_or(io::ErrorKind::NotConnected)?;
                let conn = UnbufferedServerConnection::new(offer.config).map_err(Refused::Tls)?;
                s.binding = Some(offer.binding);
                s.conn = Conn::Server(Box::new(conn));
                Ok(())
            }
            Some(false) if endpoint.mode() == Mode::Require => {
                endpoint.note_failed();
                s.conn = Conn::Failed;
                Err(Refused::Plain.into())
            }
            Some(false) => {
                s.conn = Conn::Plain;
                Ok(())
            }
        }
    }

    fn read_plain(&self, s: &mut Inner, buf: &mut [u8]) -> io::Result<usize> {
        if s.incoming.len() == 0 {
            s.incoming = Buffer::default();
            self.is_plain.store(true, Relaxed);
            return Ok(recv(&self.tcp, buf, RecvFlags::DONTWAIT)?.0);
        }
        let n = s.incoming.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..n), s.incoming.held().get(..n)) {
            to.copy_from_slice(from);
        }
        s.incoming.discard(n);
        Ok(n)
    }

    /// Ends a connection that has failed, after the other side was told.
    fn fails(&self, s: &mut Inner, e: rustls::Error) -> io::Error {
        s.fail();
        let _ = self.push(s);
        if let Some(endpoint) = &self.endpoint
            && self.established.get().is_none()
        {
            endpoint.note_failed();
        }
        Refused::Tls(e).into()
    }

    fn note_established(&self, s: &Inner) {
        let Some(common) = s.conn.common() else {
            return;
        };
        if self.established.get().is_some() || common.is_handshaking() {
            return;
        }
        let version = match common.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => Version::Tls13,
            _ => Version::Tls12,
        };
        let first = common.peer_certificates().and_then(<[_]>::first);
        let certificate = first.and_then(|der| Certificate::parse(der).ok());
        let binding = match &s.conn {
            Conn::Server(_) => s.binding,
            _ => first.map(|der| endpoint::binding(der)),
        };
        if let Some(endpoint) = &self.endpoint {
            endpoint.note_accepted(version);
        }
        let _ = self.established.set(Established {
            version,
            certificate,
            binding,
        });
    }

    /// Sends encrypted bytes without waiting. True if none are left.
    fn push(&self, s: &mut Inner) -> io::Result<bool> {
        while s.out.len() > 0 {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.tcp, s.out.held(), flags) {
                Ok(n) => s.out.discard(n),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    s.slow = true;
                    return Ok(false);
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(true)
    }

    /// Writes as much as the system takes without waiting; 0 if it takes nothing. What is left has to be
    /// written next.
    ///
    /// # Errors
    /// The socket's; `NotConnected` before the handshake is done.
    pub fn write_at_once(&self, buf: &[u8]) -> io::Result<usize> {
        if self.is_plain.load(Relaxed) {
            return self.send_plain(buf);
        }
        let mut s = self.inner.lock();
        let s = &mut *s;
        match &s.conn {
            Conn::Plain => return self.send_plain(buf),
            Conn::Server(_) | Conn::Client(_) if self.established.get().is_some() => {}
            Conn::Failed => return Err(io::ErrorKind::BrokenPipe.into()),
            _ => return Err(io::ErrorKind::NotConnected.into()),
        }
        let mut done = 0;
        loop {
            if !self.push(s)? {
                return Ok(done);
            }
            done += std::mem::take(&mut s.held);
            let rest = buf.get(done..).unwrap_or_default();
            if rest.is_empty() {
                s.slow = false;
                return Ok(done.min(buf.len()));
            }
            // What a slow receiver takes shows in smaller steps.
            let most = if s.slow { RECORD } else { CHUNK };
            let chunk = rest.get(..most).unwrap_or(rest);
            s.encrypt(Give::Data(chunk)).map_err(|e| self.fails(s, e))?;
            s.held = chunk.len();
        }
    }

    fn send_plain(&self, buf: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(&self.tcp, buf, flags) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
            sent => Ok(sent?),
        }
    }

    /// Writes some, and waits for that no longer than the limit.
    ///
    /// # Errors
    /// As [`Socket::write_at_once`]; `WouldBlock` after the limit.
    pub fn write(&self, buf: &[u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let limit = self.write_limit.load(Relaxed);
        loop {
            match self.write_at_once(buf)? {
                0 if self.wait(PollFlags::OUT, limit)? => {}
                0 => return Err(would_block()),
                n => return Ok(n),
            }
        }
    }

    /// True if the other side has closed the connection, or it has failed, and nothing is left to be read
    /// before that. False also while another thread reads or writes.
    pub fn has_ended(&self) -> bool {
        let Some(mut s) = self.inner.try_lock() else {
            return false;
        };
        let s = &mut *s;
        let is_tls = match s.conn {
            Conn::Failed => return true,
            // What does not show whether it begins with TLS can never be read.
            Conn::Undecided if s.ended => return true,
            _ => s.conn.common().is_some(),
        };
        if s.plain.len() > 0 || !is_tls && s.incoming.len() > 0 {
            return false;
        }
        if !is_tls {
            let mut byte = [0_u8];
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            return match recv(&self.tcp, &mut byte, flags) {
                Ok((n, _)) => n == 0,
                Err(e) => !matches!(e, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
            };
        }
        // Decrypted bytes are kept for the next read.
        match self.advance(s, &mut []) {
            Ok(_) => s.plain.len() == 0 && s.ended,
            Err(e) => !matches!(
                e.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ),
        }
    }

    /// Ends both directions, which also ends a read that waits in another thread. The other side is told, if
    /// nothing else is being sent.
    ///
    /// # Errors
    /// The socket's.
    pub fn shutdown(&self) -> io::Result<()> {
        self.tell_end();
        self.tcp.shutdown(Shutdown::Both)
    }

    /// Ends the sending direction.
    ///
    /// # Errors
    /// The socket's.
    pub fn shutdown_write(&self) -> io::Result<()> {
        self.tell_end();
        self.tcp.shutdown(Shutdown::Write)
    }

    fn tell_end(&self) {
        if self.established.get().is_some()
            && let Some(mut s) = self.inner.try_lock()
            && s.encrypt(Give::Close).is_ok()
        {
            let _ = self.push(&mut s);
        }
    }

    /// Frees the memory that a silent connection does not need.
    pub fn shrink_idle(&self) {
        if self.is_plain.load(Relaxed) {
            return;
        }
        let mut s = self.inner.lock();
        s.incoming.free_if_empty();
        s.plain.free_if_empty();
        s.out.free_if_empty();
        s.filled = false;
    }
}
