//! OP_MSG: parsing a message from outside, and building one in place.
//!
//! Invariants: a parsed message is wholly validated (flags, checksum, section sizes, every
//! document), so that readers need not check again; parsing allocates nothing for a message
//! with at most two document sequences; building appends to the caller's buffer and copies no
//! document twice.
//! Source of the format: the OP_MSG specification (mongodb/specifications, message/OP_MSG).

use crate::docwriter::DocWriter;
use crate::frame::{Header, MAX_MESSAGE_SIZE, OP_MSG, i32_at, next_request_id, set_i32};
use muniment_value::{
    Code, Doc, Error, MAX_MESSAGE_DEPTH, MAX_REPLY_DEPTH, Result, validate_depth,
};
use std::ops::Deref;

/// Flag bit 0: the last four bytes are the CRC-32C of all before them.
pub const CHECKSUM_PRESENT: u32 = 1;
/// Flag bit 1. In a reply: another reply follows without a request; in a request: the client wants no reply.
pub const MORE_TO_COME: u32 = 1 << 1;
/// Flag bit 16: the client accepts several replies to this request.
pub const EXHAUST_ALLOWED: u32 = 1 << 16;

/// The flag bits that a receiver must refuse if it does not know them.
const REQUIRED_BITS: u32 = 0xFFFF;
/// MongoDB's limit of kind-1 sections in one message (bulkWrite uses two).
const MAX_SEQUENCES: usize = 2;
const CHECKSUM_LEN: usize = 4;
/// Where the sections begin: after the header and the flags.
const SECTIONS_AT: usize = Header::LEN + 4;

/// A parsed and validated OP_MSG.
#[derive(Clone, Debug)]
pub struct OpMsg<'a> {
    /// The header.
    pub header: Header,
    /// The flag bits.
    pub flags: u32,
    /// The kind-0 section: the command, or the reply.
    pub body: Doc<'a>,
    /// The kind-1 sections.
    pub sequences: Sequences<'a>,
}

/// A kind-1 section: documents that belong into the body's array `name`.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// The command's field that the documents belong to, such as `documents`.
    pub name: &'a str,
    /// The documents.
    pub docs: DocSeq<'a>,
}

/// A message's kind-1 sections; a slice of at most two.
#[derive(Clone, Copy, Debug)]
pub struct Sequences<'a> {
    items: [Sequence<'a>; MAX_SEQUENCES],
    len: usize,
}

impl<'a> Sequences<'a> {
    const NONE: Sequences<'static> = Sequences {
        items: [Sequence {
            name: "",
            docs: DocSeq {
                bytes: &[],
                left: 0,
            },
        }; MAX_SEQUENCES],
        len: 0,
    };

    /// The documents of the section `name`.
    pub fn named(&self, name: &str) -> Option<DocSeq<'a>> {
        self.iter().find(|s| s.name == name).map(|s| s.docs)
    }

    fn push(&mut self, name: &'a str, docs: DocSeq<'a>) -> Result<()> {
        if self.named(name).is_some() {
            return Err(Error::location(
                40431,
                format!("Duplicate document sequence: {name}"),
            ));
        }
        let Some(slot) = self.items.get_mut(self.len) else {
            return Err(Error::new(
                Code::TooManyDocumentSequences,
                "Too many document sequences in OP_MSG",
            ));
        };
        *slot = Sequence { name, docs };
        self.len += 1;
        Ok(())
    }
}

impl<'a> Deref for Sequences<'a> {
    type Target = [Sequence<'a>];
    fn deref(&self) -> &[Sequence<'a>] {
        self.items.get(..self.len).unwrap_or_default()
    }
}

/// Validated documents one after the other: a copyable iterator that reads four bytes per step.
#[derive(Clone, Copy, Debug)]
pub struct DocSeq<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl<'a> DocSeq<'a> {
    /// Validates `bytes`, which must be whole documents and nothing else.
    ///
    /// # Errors
    /// As [`validate_depth`] with [`MAX_MESSAGE_DEPTH`]; 22 InvalidBSON for a length that does not fit.
    pub fn parse(bytes: &'a [u8]) -> Result<DocSeq<'a>> {
        let (mut at, mut left) = (0, 0);
        while at < bytes.len() {
            let doc = cut_document(bytes, at)?;
            at += doc.byte_len();
            left += 1;
        }
        Ok(DocSeq { bytes, left })
    }

    /// The bytes of the documents that are left.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> Iterator for DocSeq<'a> {
    type Item = Doc<'a>;

    #[inline]
    fn next(&mut self) -> Option<Doc<'a>> {
        let len = usize::try_from(i32_at(self.bytes, 0)?).ok()?;
        let (doc, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        self.left = self.left.saturating_sub(1);
        Some(Doc::new(doc))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for DocSeq<'_> {}

/// The document that starts at `at`, validated.
pub(crate) fn cut_document(bytes: &[u8], at: usize) -> Result<Doc<'_>> {
    cut_within(bytes, at, MAX_MESSAGE_DEPTH)
}

/// As [`cut_document`], for a document that nests at most so deep.
fn cut_within(bytes: &[u8], at: usize, max_depth: usize) -> Result<Doc<'_>> {
    let len = i32_at(bytes, at).and_then(|n| usize::try_from(n).ok());
    match len.and_then(|n| bytes.get(at..at.checked_add(n)?)) {
        Some(doc) => validate_depth(doc, max_depth),
        None => Err(Error::new(
            Code::InvalidBSON,
            format!("document at offset {at} of the message is longer than what is left"),
        )),
    }
}

fn malformed(what: impl Into<String>) -> Error {
    Error::new(Code::ProtocolError, what)
}

/// The flags of a message whose beginning has arrived; 0 if they have not.
pub fn flags(message: &[u8]) -> u32 {
    i32_at(message, Header::LEN).unwrap_or_default() as u32
}

impl<'a> OpMsg<'a> {
    /// Parses a whole message, header included.
    ///
    /// # Errors
    /// 17 ProtocolError for a message that is cut or has a section of an impossible size, 223
    /// IllegalOpMsgFlag, 288 ChecksumMismatch, 233 TooManyDocumentSequences, 40430 (two bodies),
    /// 40431 (a sequence twice), 40432 (unknown kind), 40433 (a field both in the body and a
    /// sequence), 40587 (no body), 22 InvalidBSON.
    pub fn parse(message: &'a [u8]) -> Result<OpMsg<'a>> {
        OpMsg::parse_within(message, MAX_MESSAGE_DEPTH)
    }

    /// As [`OpMsg::parse`], for a server's reply, which may nest deeper than what servers take.
    ///
    /// # Errors
    /// As [`OpMsg::parse`].
    pub fn parse_reply(message: &'a [u8]) -> Result<OpMsg<'a>> {
        OpMsg::parse_within(message, MAX_REPLY_DEPTH)
    }

    fn parse_within(message: &'a [u8], max_depth: usize) -> Result<OpMsg<'a>> {
        let header = Header::parse(message).ok_or_else(|| malformed("message without a header"))?;
        if header.op_code != OP_MSG {
            return Err(malformed(format!(
                "op code {} is not OP_MSG",
                header.op_code
            )));
        }
        if header.checked_len()? != message.len() {
            return Err(malformed(format!(
                "message of {} bytes claims {}",
                message.len(),
                header.message_length
            )));
        }
        let flags =
            i32_at(message, Header::LEN).ok_or_else(|| malformed("OP_MSG without flags"))? as u32;
        let unknown = flags & REQUIRED_BITS & !(CHECKSUM_PRESENT | MORE_TO_COME);
        if unknown != 0 {
            return Err(Error::new(
                Code::IllegalOpMsgFlag,
                format!("Message contains illegal flags value: Ob{flags:b}"),
            ));
        }
        let end = if flags & CHECKSUM_PRESENT != 0 {
            verify_checksum(message)?
        } else {
            message.len()
        };
        let sections = message.get(SECTIONS_AT..end).unwrap_or_default();
        let (body, sequences) = parse_sections(sections, max_depth)?;
        Ok(OpMsg {
            header,
            flags,
            body,
            sequences,
        })
    }

    /// True if the sender wants no reply (in a request), or sends another one (in a reply).
    pub fn more_to_come(&self) -> bool {
        self.flags & MORE_TO_COME != 0
    }

    /// True if several replies may be sent to this request.
    pub fn exhaust_allowed(&self) -> bool {
        self.flags & EXHAUST_ALLOWED != 0
    }

    /// The name of the command: the body's first field.
    pub fn command_name(&self) -> &'a str {
        self.body.first().map_or("", |e| e.name())
    }
}

/// Checks the CRC-32C at the end of `message` and returns where it begins.
fn verify_checksum(message: &[u8]) -> Result<usize> {
    let at = message.len().saturating_sub(CHECKSUM_LEN);
    let sum = i32_at(message, at)
        .filter(|_| at >= SECTIONS_AT)
        .ok_or_else(|| malformed("OP_MSG too short for its checksum"))?;
    if crc32c::crc32c(message.get(..at).unwrap_or_default()) != sum as u32 {
        return Err(Error::new(
            Code::ChecksumMismatch,
            "OP_MSG checksum does not match contents",
        ));
    }
    Ok(at)
}

fn parse_sections(sections: &[u8], max_depth: usize) -> Result<(Doc<'_>, Sequences<'_>)> {
    let mut body = None;
    let mut sequences = Sequences::NONE;
    let mut at = 0;
    while let Some(&kind) = sections.get(at) {
        at += 1;
        match kind {
            0 => {
                if body.is_some() {
                    return Err(Error::location(40430, "Multiple body sections in message"));
                }
                let doc = cut_within(sections, at, max_depth)?;
                at += doc.byte_len();
                body = Some(doc);
            }
            1 => {
                let len = i32_at(sections, at).and_then(|n| usize::try_from(n).ok());
                let section = len
                    .and_then(|n| sections.get(at..at.checked_add(n)?))
                    .and_then(|s| s.get(4..))
                    .ok_or_else(|| malformed("document sequence of an impossible size"))?;
                let name_len = section
                    .iter()
                    .position(|&b| b == 0)
                    .ok_or_else(|| malformed("document sequence whose name does not end"))?;
                let (name, docs) = section.split_at(name_len);
                let name = std::str::from_utf8(name)
                    .map_err(|_| malformed("document sequence whose name is not UTF-8"))?;
                let docs = DocSeq::parse(docs.get(1..).unwrap_or_default())?;
                sequences.push(name, docs)?;
                at += section.len() + 4;
            }
            other => {
                return Err(Error::location(
                    40432,
                    format!("Unknown section kind {other}"),
                ));
            }
        }
    }
    let body = body.ok_or_else(|| Error::location(40587, "OP_MSG messages must have a body"))?;
    for s in sequences.iter() {
        if body.get_elem(s.name).is_some() {
            return Err(Error::location(
                40433,
                format!(
                    "Duplicate field between body and document sequence {}",
                    s.name
                ),
            ));
        }
    }
    Ok((body, sequences))
}

/// An OP_MSG under construction at the end of a buffer. [`OpMsgWriter::finish`] writes the length. A writer
/// that is dropped without it leaves an incomplete message, which [`OpMsgWriter::abandon`] removes.
#[must_use]
pub struct OpMsgWriter<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    flags: u32,
}

/// Begins a reply to the message `response_to` at the end of `out`, a buffer that a server reuses and clears
/// between replies. `flags` may have [`MORE_TO_COME`], inside an exhaust stream, and [`CHECKSUM_PRESENT`],
/// for which `finish` appends a checksum.
pub fn begin_reply(out: &mut Vec<u8>, response_to: i32, flags: u32) -> OpMsgWriter<'_> {
    begin(out, next_request_id(), response_to, flags)
}

/// Begins a request with this id at the end of `out`.
pub fn begin_request(out: &mut Vec<u8>, request_id: i32, flags: u32) -> OpMsgWriter<'_> {
    begin(out, request_id, 0, flags)
}

fn begin(out: &mut Vec<u8>, request_id: i32, response_to: i32, flags: u32) -> OpMsgWriter<'_> {
    let start = out.len();
    Header {
        message_length: 0,
        request_id,
        response_to,
        op_code: OP_MSG,
    }
    .put(out);
    out.extend_from_slice(&flags.to_le_bytes());
    OpMsgWriter { out, start, flags }
}

impl<'o> OpMsgWriter<'o> {
    /// Appends the body.
    pub fn body(self, doc: Doc<'_>) -> OpMsgWriter<'o> {
        self.out.push(0);
        self.out.extend_from_slice(doc.as_bytes());
        self
    }

    /// Appends the body that `fill` writes field by field.
    pub fn body_with(self, fill: impl FnOnce(&mut DocWriter<'_>)) -> OpMsgWriter<'o> {
        self.out.push(0);
        let mut w = DocWriter::begin(self.out);
        fill(&mut w);
        w.finish();
        self
    }

    /// Begins the body and returns the buffer, to which the caller appends exactly one document.
    pub fn body_bytes(&mut self) -> &mut Vec<u8> {
        self.out.push(0);
        self.out
    }

    /// Appends a kind-1 section.
    pub fn sequence<'d>(
        self,
        name: &str,
        docs: impl IntoIterator<Item = Doc<'d>>,
    ) -> OpMsgWriter<'o> {
        self.out.push(1);
        let at = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(0);
        for d in docs {
            self.out.extend_from_slice(d.as_bytes());
        }
        // A section whose size exceeds an i32 exceeds a message, too, which `finish` refuses.
        let len = (self.out.len() - at) as i32;
        set_i32(self.out, at, len);
        self
    }

    /// Replaces the flags that the message was begun with, since some depend on the body, such as
    /// [`MORE_TO_COME`] inside an exhaust stream.
    pub fn set_flags(&mut self, flags: u32) {
        self.flags = flags;
        set_i32(self.out, self.start + Header::LEN, flags as i32);
    }

    /// Size of the message so far, in bytes.
    pub fn byte_len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Removes the message from the buffer.
    pub fn abandon(self) {
        self.out.truncate(self.start);
    }

    /// Writes the length, and appends a checksum if the flags ask for it.
    ///
    /// # Errors
    /// 10334 BSONObjectTooLarge if the message exceeds [`MAX_MESSAGE_SIZE`]; it is then removed from the
    /// buffer.
    pub fn finish(self) -> Result<()> {
        let sum = self.flags & CHECKSUM_PRESENT != 0;
        let len = self.byte_len() + if sum { CHECKSUM_LEN } else { 0 };
        if len > MAX_MESSAGE_SIZE {
            self.out.truncate(self.start);
            return Err(Error::new(
                Code::BSONObjectTooLarge,
                format!("message of {len} bytes exceeds the limit of {MAX_MESSAGE_SIZE}"),
            ));
        }
        set_i32(self.out, self.start, len as i32);
        if sum {
            let crc = crc32c::crc32c(self.out.get(self.start..).unwrap_or_default());
            self.out.extend_from_slice(&crc.to_le_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "op_msg_tests.rs"]
mod tests;
