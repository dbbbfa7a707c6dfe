//! What members send each other: frames on a connection that one of them has opened for it.
//!
//! A frame is a message of the wire protocol with an operation code of its own. Its body begins with
//! a byte that says what it is: a message of the consensus with the records of the log that go with
//! it, more bytes of these records, or a report. Records stand one after the other as `timestamp
//! (u64) ‖ length (u32) ‖ payload`, little-endian; index and term are the message's.
//!
//! Must not trust bytes: what does not fit together ends the connection.

use bytes::Bytes;
use muniment_consensus::{Body, Message};
use muniment_storage::Timestamp;
use muniment_value::{Code, Doc, DocBuf, Error, Result};
use muniment_wire::Header;

/// The operation code of frames.
pub const OP_REPLICATION: i32 = 2099;

/// Most bytes of records in a frame: what is more goes into further ones.
pub const PIECE: usize = 8 << 20;
/// No message has more bytes of records than a sender gathers and the longest record.
const MOST: u64 = 512 << 20;

const MESSAGE: u8 = 1;
const MORE: u8 = 2;
const REPORT: u8 = 3;
const EXPORT: u8 = 4;

/// A record of the log on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// Its timestamp.
    pub at: Timestamp,
    /// What it says.
    pub payload: Bytes,
}

impl Record {
    /// As the storage takes it.
    pub fn as_logged(&self) -> muniment_storage::Record<'_> {
        muniment_storage::Record {
            index: self.index,
            term: self.term,
            at: self.at,
            payload: &self.payload,
        }
    }
}

/// A frame, or several that belong together.
#[derive(Debug)]
pub enum Frame {
    /// A message and the records that belong to it.
    Message(Message, Vec<Record>),
    /// How far the sender is.
    Report(DocBuf),
}

fn begin(out: &mut Vec<u8>, kind: u8) -> usize {
    let at = out.len();
    out.extend_from_slice(&[0; Header::LEN]);
    out.push(kind);
    at
}

fn end(out: &mut [u8], at: usize) {
    let header = Header {
        message_length: i32::try_from(out.len() - at).unwrap_or(i32::MAX),
        request_id: 0,
        response_to: 0,
        op_code: OP_REPLICATION,
    };
    let mut bytes = Vec::with_capacity(Header::LEN);
    header.put(&mut bytes);
    if let Some(head) = out.get_mut(at..at + Header::LEN) {
        head.copy_from_slice(&bytes);
    }
}

/// Appends a record to those that a message will carry.
pub fn put_record(records: &mut Vec<u8>, at: Timestamp, payload: &[u8]) {
    records.extend_from_slice(&at.0.to_le_bytes());
    // The log takes none that is longer.
    records.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    records.extend_from_slice(payload);
}

/// Appends a message with its records, as [`put_record`] wrote them.
pub fn put_message(out: &mut Vec<u8>, message: &Message, records: &[u8]) {
    let at = begin(out, MESSAGE);
    let encoded = message.encode();
    out.extend_from_slice(&(encoded.len() as u32).to_le_bytes());
    out.extend_from_slice(&encoded);
    out.extend_from_slice(&(records.len() as u64).to_le_bytes());
    let mut pieces = records.chunks(PIECE);
    out.extend_from_slice(pieces.next().unwrap_or_default());
    end(out, at);
    for piece in pieces {
        let at = begin(out, MORE);
        out.extend_from_slice(piece);
        end(out, at);
    }
}

/// Appends a report.
pub fn put_report(out: &mut Vec<u8>, report: Doc<'_>) {
    let at = begin(out, REPORT);
    out.extend_from_slice(report.as_bytes());
    end(out, at);
}

/// Appends a piece of a copy of a member's data, with its CRC-32C: nothing else would find damage on the way.
pub fn put_export(out: &mut Vec<u8>, piece: &[u8]) {
    let at = begin(out, EXPORT);
    out.extend_from_slice(&crc32c::crc32c(piece).to_le_bytes());
    out.extend_from_slice(piece);
    end(out, at);
}

/// What [`put_export`] wrote.
///
/// # Errors
/// 17 ProtocolError for another frame, and for one that is not as it was sent.
pub fn taken_export(message: &[u8]) -> Result<&[u8]> {
    let body = message.get(Header::LEN..).and_then(|b| b.split_first());
    let piece = body.filter(|(kind, _)| **kind == EXPORT);
    match piece.and_then(|(_, rest)| u32_of(rest)) {
        Some((sum, piece)) if crc32c::crc32c(piece) == sum => Ok(piece),
        Some(_) => Err(malformed("a piece of a copy is damaged")),
        None => Err(malformed("no piece of a copy")),
    }
}

/// Puts frames together again.
#[derive(Default)]
pub struct Assembler {
    waiting: Option<Waiting>,
}

struct Waiting {
    message: Message,
    records: Vec<u8>,
    total: usize,
}

fn malformed(what: &str) -> Error {
    Error::new(Code::ProtocolError, format!("replication: {what}"))
}

fn u32_of(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (head, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*head), rest))
}

fn u64_of(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (head, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*head), rest))
}

impl Assembler {
    /// Takes a whole wire message; gives what it completes.
    ///
    /// # Errors
    /// 17 ProtocolError for what does not fit together.
    pub fn take(&mut self, message: &[u8]) -> Result<Option<Frame>> {
        let body = message.get(Header::LEN..).unwrap_or_default();
        let Some((kind, body)) = body.split_first() else {
            return Err(malformed("an empty frame"));
        };
        match (*kind, self.waiting.take()) {
            (MESSAGE, None) => {
                let parsed = parse_message(body).ok_or_else(|| malformed("a malformed message"))?;
                self.complete(parsed)
            }
            (MORE, Some(mut waiting)) => {
                waiting.records.extend_from_slice(body);
                self.complete(waiting)
            }
            (REPORT, None) => {
                muniment_value::validate(body).map_err(|_| malformed("a malformed report"))?;
                Ok(Some(Frame::Report(Doc::new(body).to_buf())))
            }
            _ => Err(malformed("frames that do not follow on each other")),
        }
    }

    fn complete(&mut self, waiting: Waiting) -> Result<Option<Frame>> {
        if waiting.records.len() < waiting.total {
            self.waiting = Some(waiting);
            return Ok(None);
        }
        let Waiting {
            message, records, ..
        } = waiting;
        let records = records_of(&message, records.into())
            .ok_or_else(|| malformed("the records are not those of the message"))?;
        Ok(Some(Frame::Message(message, records)))
    }
}

fn parse_message(body: &[u8]) -> Option<Waiting> {
    let (len, rest) = u32_of(body)?;
    let (encoded, rest) = rest.split_at_checked(len as usize)?;
    let (message, used) = Message::decode(encoded)?;
    let (total, records) = u64_of(rest)?;
    (used == encoded.len() && total <= MOST).then(|| Waiting {
        message,
        records: records.to_vec(),
        total: total as usize,
    })
}

fn records_of(message: &Message, all: Bytes) -> Option<Vec<Record>> {
    let entries = match &message.body {
        Body::Append { entries, .. } => entries.as_slice(),
        _ => &[],
    };
    let mut rest: &[u8] = &all;
    let mut records = Vec::with_capacity(entries.len());
    for entry in entries {
        let (at, behind) = u64_of(rest)?;
        let (len, behind) = u32_of(behind)?;
        let (payload, behind) = behind.split_at_checked(len as usize)?;
        records.push(Record {
            index: entry.index,
            term: entry.term,
            at: Timestamp(at),
            payload: all.slice_ref(payload),
        });
        rest = behind;
    }
    rest.is_empty().then_some(records)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_consensus::{Entry, Kind};
    use muniment_value::doc;

    fn append(n: u64) -> Message {
        let entries = (1..=n).map(|i| Entry {
            index: 4 + i,
            term: 2,
            kind: Kind::Plain,
        });
        Message {
            from: 1,
            to: 2,
            term: 3,
            body: Body::Append {
                index: 4,
                log_term: 2,
                commit: 4,
                entries: entries.collect(),
            },
        }
    }

    /// The wire messages in a buffer.
    fn split(mut bytes: &[u8]) -> Vec<&[u8]> {
        let mut all = Vec::new();
        while let Some(header) = Header::parse(bytes) {
            assert_eq!(header.op_code, OP_REPLICATION);
            let (one, rest) = bytes.split_at(header.message_length as usize);
            all.push(one);
            bytes = rest;
        }
        all
    }

    #[test]
    fn what_was_sent_comes_together_again() {
        let payloads = [vec![7; 3 * PIECE], vec![], vec![9; 10]];
        let (message, mut records, mut out) = (append(3), Vec::new(), Vec::new());
        for (i, p) in payloads.iter().enumerate() {
            put_record(&mut records, Timestamp(50 + i as u64), p);
        }
        put_message(&mut out, &message, &records);
        put_report(&mut out, doc! { "applied": 7_i64 }.as_doc());
        let frames = split(&out);
        assert!(frames.len() >= 5);
        let mut assembler = Assembler::default();
        let mut came: Vec<_> = frames
            .iter()
            .filter_map(|f| assembler.take(f).unwrap())
            .collect();
        let Some(Frame::Report(report)) = came.pop() else {
            panic!("no report");
        };
        assert_eq!(
            report.as_doc().get("applied").unwrap().as_i64_exact(),
            Some(7)
        );
        let Some(Frame::Message(got, records)) = came.pop() else {
            panic!("no message");
        };
        assert_eq!(got, message);
        for (i, r) in records.iter().enumerate() {
            assert_eq!(
                (r.index, r.term, r.at),
                (5 + i as u64, 2, Timestamp(50 + i as u64))
            );
            assert_eq!(r.payload, payloads[i]);
        }
        assert!(came.is_empty());
    }

    #[test]
    fn a_piece_of_a_copy_is_as_it_was_sent_or_an_error() {
        let mut out = Vec::new();
        put_export(&mut out, b"rows");
        assert_eq!(taken_export(&out).unwrap(), b"rows");
        for at in Header::LEN..out.len() {
            out[at] ^= 4;
            assert!(taken_export(&out).is_err(), "{at}");
            out[at] ^= 4;
            assert!(taken_export(&out[..at]).is_err(), "{at}");
        }
    }

    #[test]
    fn what_does_not_fit_together_is_an_error() {
        let (mut records, mut out) = (Vec::new(), Vec::new());
        put_record(&mut records, Timestamp(5), b"one");
        // Two entries, one record.
        put_message(&mut out, &append(2), &records);
        assert!(Assembler::default().take(&out).is_err());
        // A record too many.
        out.clear();
        put_message(&mut out, &append(0), &records);
        assert!(Assembler::default().take(&out).is_err());
        out.clear();
        put_message(&mut out, &append(1), &records);
        assert!(Assembler::default().take(&out).unwrap().is_some());
        for len in Header::LEN..out.len() {
            let mut assembler = Assembler::default();
            if let Ok(found) = assembler.take(&out[..len]) {
                assert!(found.is_none());
                // The rest never comes as such.
                assert!(assembler.take(&out).is_err());
            }
        }
    }
}
