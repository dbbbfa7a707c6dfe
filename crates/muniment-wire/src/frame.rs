//! Message framing: the header, and cutting a byte stream into whole messages.
//!
//! Invariants: memory grows with the bytes that arrived, never with what a header claims; a
//! small message costs one `read`; messages that arrive together are handed out one by one
//! without another `read`; an interrupted or timed-out read loses nothing.
//! Source of the format: the MongoDB manual, "Wire Protocol".

use muniment_value::{Code, Error};
use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};

/// Op code of a legacy reply.
pub const OP_REPLY: i32 = 1;
/// Op code of a legacy query; only handshakes may use it.
pub const OP_QUERY: i32 = 2004;
/// Op code of a compressed message.
pub const OP_COMPRESSED: i32 = 2012;
/// Op code of every other message.
pub const OP_MSG: i32 = 2013;

/// Largest message, header included, in bytes.
pub const MAX_MESSAGE_SIZE: usize = 48_000_000;

/// Buffer of a connection in use. It grows to the largest message until [`MessageReader::shrink_idle`].
const BUSY: usize = 16 * 1024;
/// Buffer of an idle connection.
const IDLE: usize = 512;

/// The header every message starts with: four little-endian int32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Header {
    /// Size of the whole message in bytes, this header included.
    pub message_length: i32,
    /// The sender's number of this message.
    pub request_id: i32,
    /// The `request_id` of the message that this one answers, or 0.
    pub response_to: i32,
    /// The kind of what follows the header.
    pub op_code: i32,
}

impl Header {
    /// Size of a header in bytes.
    pub const LEN: usize = 16;

    /// The header at the start of `bytes`, if they suffice. Checks nothing else.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        Some(Header {
            message_length: i32_at(bytes, 0)?,
            request_id: i32_at(bytes, 4)?,
            response_to: i32_at(bytes, 8)?,
            op_code: i32_at(bytes, 12)?,
        })
    }

    /// Appends the header.
    pub fn put(&self, out: &mut Vec<u8>) {
        for n in [
            self.message_length,
            self.request_id,
            self.response_to,
            self.op_code,
        ] {
            out.extend_from_slice(&n.to_le_bytes());
        }
    }

    /// The message's size in bytes.
    ///
    /// # Errors
    /// 17 ProtocolError below 16 and above [`MAX_MESSAGE_SIZE`].
    pub fn checked_len(&self) -> Result<usize, Error> {
        match usize::try_from(self.message_length) {
            Ok(n) if (Header::LEN..=MAX_MESSAGE_SIZE).contains(&n) => Ok(n),
            _ => Err(Error::new(
                Code::ProtocolError,
                format!(
                    "recv(): message msgLen {} is invalid. Min {} Max: {MAX_MESSAGE_SIZE}",
                    self.message_length,
                    Header::LEN
                ),
            )),
        }
    }
}

/// The little-endian int32 at `at`.
pub(crate) fn i32_at(b: &[u8], at: usize) -> Option<i32> {
    let four: [u8; 4] = b.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(i32::from_le_bytes(four))
}

/// Overwrites the four bytes at `at` with `n`.
pub(crate) fn set_i32(b: &mut [u8], at: usize, n: i32) {
    if let Some(four) = b.get_mut(at..at.saturating_add(4)) {
        four.copy_from_slice(&n.to_le_bytes());
    }
}

/// A new request id: positive, ascending within a thread. Clients match on `response_to` only,
/// so threads may share numbers and need not share a counter.
pub fn next_request_id() -> i32 {
    thread_local!(static NEXT: Cell<i32> = const { Cell::new(1) });
    NEXT.with(|c| {
        let n = c.get();
        c.set(n.checked_add(1).unwrap_or(1));
        n
    })
}

/// Why a message could not be read.
#[derive(Debug)]
pub enum FrameError {
    /// The socket's error. Of kind `WouldBlock` or `TimedOut` when a read timeout passed: then
    /// nothing is lost and the read can be repeated.
    Io(io::Error),
    /// The stream is not MongoDB's protocol. The caller should answer if it can, and close the connection.
    Protocol(Error),
}

impl FrameError {
    /// True when a read timeout passed.
    pub fn is_timeout(&self) -> bool {
        matches!(self, FrameError::Io(e)
            if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
    }

    fn cut() -> FrameError {
        FrameError::Io(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "connection closed in the middle of a message",
        ))
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Io(e) => e.fmt(f),
            FrameError::Protocol(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for FrameError {}

/// Timeouts become 89 NetworkTimeout, other socket errors 9001 SocketException.
impl From<FrameError> for Error {
    fn from(e: FrameError) -> Error {
        match e {
            FrameError::Protocol(e) => e,
            FrameError::Io(io) => crate::stream::socket_error(&io),
        }
    }
}

/// Reads one whole message, header included, into the reused `buf`; `Ok(None)` at a clean end. Never reads
/// past the message, and so suits streams that other code continues to read. Connections use
/// [`MessageReader`], which needs fewer system calls.
///
/// # Errors
/// [`FrameError::Protocol`] for an impossible length, [`FrameError::Io`] otherwise.
pub fn read_message(r: &mut impl Read, buf: &mut Vec<u8>) -> Result<Option<Header>, FrameError> {
    buf.clear();
    fill(r, buf, Header::LEN)?;
    if buf.is_empty() {
        return Ok(None);
    }
    let header = Header::parse(buf).ok_or_else(FrameError::cut)?;
    let len = header.checked_len().map_err(FrameError::Protocol)?;
    fill(r, buf, len)?;
    if buf.len() < len {
        return Err(FrameError::cut());
    }
    Ok(Some(header))
}

/// Reads until `buf` holds `upto` bytes or the stream ends; `read_to_end` grows the buffer in
/// steps as bytes arrive.
fn fill(r: &mut impl Read, buf: &mut Vec<u8>, upto: usize) -> Result<(), FrameError> {
    let missing = upto.saturating_sub(buf.len()) as u64;
    r.by_ref()
        .take(missing)
        .read_to_end(buf)
        .map_err(FrameError::Io)?;
    Ok(())
}

/// Cuts a stream into messages, reading ahead into one reused buffer.
pub struct MessageReader<R> {
    inner: R,
    /// All initialised. Bytes that were read and not handed out yet are `buf[start..end]`.
    buf: Vec<u8>,
    start: usize,
    end: usize,
    /// The size of the message that was handed out last, which the next call drops.
    taken: usize,
    /// How many bytes are still to come of a message that is skipped.
    skip: usize,
}

impl<R: Read> MessageReader<R> {
    /// A reader over `inner`, without a buffer until the first call of [`MessageReader::read`].
    pub fn new(inner: R) -> MessageReader<R> {
        MessageReader {
            inner,
            buf: Vec::new(),
            start: 0,
            end: 0,
            taken: 0,
            skip: 0,
        }
    }

    /// The stream.
    pub fn get_ref(&self) -> &R {
        &self.inner
    }

    /// The stream, to write to. Reading from it loses messages.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.inner
    }

    /// How many bytes were read beyond the message handed out last.
    pub fn pending(&self) -> usize {
        self.end - self.start - self.taken
    }

    /// The message handed out last, until the next call of [`MessageReader::read`].
    pub fn message(&self) -> &[u8] {
        let message = self.buf.get(self.start..self.start + self.taken);
        message.unwrap_or_default()
    }

    /// Bytes of memory that the buffer holds.
    pub fn capacity(&self) -> usize {
        self.buf.capacity()
    }

    /// The header and the beginning of the message that is being received, as far as they have arrived.
    pub fn begun(&self) -> Option<(Header, &[u8])> {
        let have = self.buf.get(self.start + self.taken..self.end)?;
        Some((Header::parse(have)?, have))
    }

    /// Gives up the message that is being received, and frees the buffer. The rest of the message is skipped
    /// when it arrives. Returns how many bytes that is.
    pub fn skip(&mut self) -> usize {
        self.drop_taken();
        let have = self.end - self.start;
        let len = self
            .begun()
            .and_then(|(header, _)| header.checked_len().ok());
        self.skip = len.unwrap_or(have).saturating_sub(have);
        (self.start, self.end) = (0, 0);
        self.buf = Vec::new();
        self.skip
    }

    /// Reads and drops the rest of a message that was given up. Returns false at the end of the stream.
    fn skip_on(&mut self) -> Result<bool, FrameError> {
        while self.skip > 0 {
            if self.buf.len() < BUSY {
                self.buf.resize(BUSY, 0);
            }
            let most = self.skip.min(self.buf.len());
            match self
                .inner
                .read(self.buf.get_mut(..most).unwrap_or_default())
            {
                Ok(0) => return Ok(false),
                Ok(n) => self.skip -= n.min(self.skip),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(FrameError::Io(e)),
            }
        }
        Ok(true)
    }

    /// Frees the buffer, unless a part of a message is in it. It is to be called when nothing has arrived for
    /// a while. The message handed out last is dropped.
    pub fn shrink_idle(&mut self) {
        self.drop_taken();
        if self.start == self.end {
            self.buf = Vec::new();
            (self.start, self.end) = (0, 0);
        }
    }

    /// The next whole message, header included; `Ok(None)` when the peer closed between
    /// messages. Blocks as the stream does.
    ///
    /// # Errors
    /// [`FrameError::Protocol`] for an impossible length, after which the stream cannot be read any more.
    /// [`FrameError::Io`] otherwise; after a timeout the call can be repeated.
    pub fn read(&mut self) -> Result<Option<(Header, &[u8])>, FrameError> {
        self.drop_taken();
        if self.skip > 0 && !self.skip_on()? {
            return Err(FrameError::cut());
        }
        let (header, len) = loop {
            let have = self.buf.get(self.start..self.end).unwrap_or_default();
            let needed = match Header::parse(have) {
                None => Header::LEN,
                Some(header) => {
                    let len = header.checked_len().map_err(FrameError::Protocol)?;
                    if have.len() >= len {
                        break (header, len);
                    }
                    len
                }
            };
            if !self.read_more(needed)? {
                return if self.start == self.end {
                    Ok(None)
                } else {
                    Err(FrameError::cut())
                };
            }
        };
        self.taken = len;
        let message = self.buf.get(self.start..self.start + len);
        Ok(Some((header, message.unwrap_or_default())))
    }

    fn drop_taken(&mut self) {
        self.start += std::mem::take(&mut self.taken);
        if self.start >= self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Makes one `read` towards a message of `needed` bytes. Returns false at the end of the stream.
    fn read_more(&mut self, needed: usize) -> Result<bool, FrameError> {
        if self.start + needed > self.buf.len() && self.start > 0 {
            self.buf.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buf.is_empty() {
            // The read may wait for long.
            self.buf = vec![0; IDLE];
        } else if self.end == self.buf.len() {
            // The buffer is full, so at least half of its new size has arrived.
            let size = (self.buf.len() * 2).min(needed.max(BUSY)).max(BUSY);
            self.buf.resize(size.max(self.end + 1), 0);
        }
        let free = self.buf.get_mut(self.end..).unwrap_or_default();
        loop {
            match self.inner.read(free) {
                Ok(0) => return Ok(false),
                Ok(n) => {
                    self.end += n;
                    return Ok(true);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(FrameError::Io(e)),
            }
        }
    }
}
