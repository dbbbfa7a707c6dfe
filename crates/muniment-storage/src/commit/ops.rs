//! Operations as they stand in the log: data, never commands.
//!
//! A record's payload is `version (1 byte) ‖ wall clock (i64 LE, ms since 1970) ‖ operations`. An
//! operation is a tag byte and its fields; numbers are LEB128, a byte string is its length and its
//! bytes, a document carries its own length. Whatever is random or local was decided by who made
//! the record and stands in it, so applying one is a function of the state and the record.

use super::stage::TOGETHER;
use crate::keys::{get_varint, put_varint};
use std::ops::Range;

/// The version of this format.
const VERSION: u8 = 1;
/// Bytes before the first operation.
pub(crate) const HEAD: usize = 1 + 8;
/// Most bytes of an operation beside its byte strings: tag, id, two lengths.
const FRAME: usize = 1 + 5 + 2 * 5;

const INSERT: u8 = 1;
const REPLACE: u8 = 2;
const PATCH: u8 = 3;
const DELETE: u8 = 4;
const COLLECTION: u8 = 5;
const DROP: u8 = 6;
const ENTRIES: u8 = 7;
const SESSION: u8 = 8;

/// One operation, read from a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// A document that was not there.
    Insert {
        tree: u32,
        key: Range<usize>,
        doc: Range<usize>,
    },
    /// A document in another's place.
    Replace {
        tree: u32,
        key: Range<usize>,
        doc: Range<usize>,
    },
    /// A document changed by a difference: see `patch`.
    Patch {
        tree: u32,
        key: Range<usize>,
        patch: Range<usize>,
    },
    /// A document that goes.
    Delete { tree: u32, key: Range<usize> },
    /// A collection as it is from now on: its catalog entry. `next_id` is the next free id.
    Collection {
        id: u32,
        next_id: u32,
        entry: Range<usize>,
    },
    /// A collection that goes, with its indexes.
    Drop { id: u32 },
    /// Entries that an index build found: pairs of key and value in one byte string, and the
    /// arrays of the documents as [`crate::multikey`] writes them.
    Entries {
        collection: u32,
        index: u32,
        entries: Range<usize>,
        arrays: Range<usize>,
    },
    /// What comes to a session's record; nothing: the record goes.
    Session {
        key: Range<usize>,
        added: Range<usize>,
    },
}

/// Writes a record's payload.
pub(crate) struct Encoder {
    buf: Vec<u8>,
}

impl Encoder {
    /// Nothing yet.
    pub fn new() -> Encoder {
        Encoder { buf: Vec::new() }
    }

    /// True if there is no operation.
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Makes room for so many more operations with so many bytes of keys and documents.
    pub fn reserve(&mut self, ops: usize, bytes: usize) {
        self.buf
            .reserve_exact(HEAD + ops * FRAME + bytes + TOGETHER);
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// What stands there.
    pub fn get(&self, range: Range<usize>) -> &[u8] {
        self.buf.get(range).unwrap_or_default()
    }

    /// Begins the record, whose first operation has so many bytes of keys and documents.
    pub fn begin_record(&mut self, bytes: usize) {
        if self.buf.is_empty() {
            // Most records have no other.
            self.reserve(1, bytes);
            self.buf.push(VERSION);
            self.buf.extend_from_slice(&[0; 8]);
        }
    }

    /// Begins an operation with so many bytes of keys and documents.
    fn begin(&mut self, tag: u8, id: u32, bytes: usize) {
        self.begin_record(bytes);
        self.buf.push(tag);
        put_varint(id as usize, &mut self.buf);
    }

    fn bytes(&mut self, b: &[u8]) -> Range<usize> {
        put_varint(b.len(), &mut self.buf);
        let start = self.buf.len();
        self.buf.extend_from_slice(b);
        start..self.buf.len()
    }

    /// Returns where key and document stand.
    pub fn insert(&mut self, tree: u32, key: &[u8], doc: &[u8]) -> (Range<usize>, Range<usize>) {
        self.begin(INSERT, tree, key.len() + doc.len());
        (self.bytes(key), self.bytes(doc))
    }

    /// Returns where key and document stand.
    pub fn replace(&mut self, tree: u32, key: &[u8], doc: &[u8]) -> (Range<usize>, Range<usize>) {
        self.begin(REPLACE, tree, key.len() + doc.len());
        (self.bytes(key), self.bytes(doc))
    }

    /// Returns where the key stands.
    pub fn patch(&mut self, tree: u32, key: &[u8], patch: &[u8]) -> Range<usize> {
        self.begin(PATCH, tree, key.len() + patch.len());
        let key = self.bytes(key);
        self.bytes(patch);
        key
    }

    /// Returns where the key stands.
    pub fn delete(&mut self, tree: u32, key: &[u8]) -> Range<usize> {
        self.begin(DELETE, tree, key.len());
        self.bytes(key)
    }

    /// Returns where the entry stands.
    pub fn collection(&mut self, id: u32, next_id: u32, entry: &[u8]) -> Range<usize> {
        self.begin(COLLECTION, id, entry.len());
        put_varint(next_id as usize, &mut self.buf);
        self.bytes(entry)
    }

    pub fn drop(&mut self, id: u32) {
        self.begin(DROP, id, 0);
    }

    /// Index entries: see [`Op::Entries`]. Returns where each key and value stands.
    pub fn entries(
        &mut self,
        collection: u32,
        index: u32,
        entries: &[(Vec<u8>, Vec<u8>)],
        arrays: &[u8],
    ) -> Vec<(Range<usize>, Range<usize>)> {
        self.begin(ENTRIES, collection, 0);
        put_varint(index as usize, &mut self.buf);
        let mut all = Vec::new();
        for (key, value) in entries {
            put_varint(key.len(), &mut all);
            all.extend_from_slice(key);
            put_varint(value.len(), &mut all);
            all.extend_from_slice(value);
        }
        let range = self.bytes(&all);
        self.bytes(arrays);
        pairs(&self.buf, range).unwrap_or_default()
    }

    /// Returns where the key stands.
    pub fn session(&mut self, key: &[u8], added: &[u8]) -> Range<usize> {
        self.begin(SESSION, 0, key.len() + added.len());
        let key = self.bytes(key);
        self.bytes(added);
        key
    }

    /// One that holds a record's payload already.
    pub fn of(payload: &[u8]) -> Encoder {
        Encoder {
            buf: payload.to_vec(),
        }
    }

    /// Notes the time of the wall clock, in milliseconds since 1970.
    pub fn set_wall_clock(&mut self, now_ms: i64) {
        if let Some(head) = self.buf.get_mut(1..HEAD) {
            head.copy_from_slice(&now_ms.to_le_bytes());
        }
    }

    /// The payload.
    pub fn into_payload(self) -> Vec<u8> {
        self.buf
    }
}

/// What stands before the operations of a record.
pub(crate) fn head(now_ms: i64) -> [u8; HEAD] {
    let mut head = [VERSION; HEAD];
    if let Some(clock) = head.get_mut(1..) {
        clock.copy_from_slice(&now_ms.to_le_bytes());
    }
    head
}

/// The pairs of [`Op::Entries`]; `None` if they are malformed.
pub(crate) fn pairs(
    payload: &[u8],
    entries: Range<usize>,
) -> Option<Vec<(Range<usize>, Range<usize>)>> {
    let mut reader = Reader {
        payload: payload.get(..entries.end)?,
        at: entries.start,
    };
    let mut all = Vec::new();
    while reader.at < entries.end {
        all.push((reader.bytes()?, reader.bytes()?));
    }
    Some(all)
}

/// Reads a record's payload.
pub(crate) struct Reader<'a> {
    payload: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Of a payload; `None` if its version is not known.
    pub fn new(payload: &'a [u8]) -> Option<Reader<'a>> {
        (payload.first() == Some(&VERSION) && payload.len() >= HEAD)
            .then_some(Reader { payload, at: HEAD })
    }

    fn number(&mut self) -> Option<usize> {
        let (n, took) = get_varint(self.payload.get(self.at..)?)?;
        self.at += took;
        Some(n)
    }

    fn id(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn bytes(&mut self) -> Option<Range<usize>> {
        let len = self.number()?;
        let start = self.at;
        let end = start.checked_add(len)?;
        self.payload.get(start..end)?;
        self.at = end;
        Some(start..end)
    }

    /// The next operation; `Ok(None)` at the end.
    ///
    /// # Errors
    /// The offset in the payload at which something is malformed.
    pub fn next(&mut self) -> Result<Option<Op>, usize> {
        if self.at >= self.payload.len() {
            return Ok(None);
        }
        let at = self.at;
        self.op().map(Some).ok_or(at)
    }

    fn op(&mut self) -> Option<Op> {
        let tag = *self.payload.get(self.at)?;
        self.at += 1;
        let id = self.id()?;
        Some(match tag {
            INSERT => Op::Insert {
                tree: id,
                key: self.bytes()?,
                doc: self.bytes()?,
            },
            REPLACE => Op::Replace {
                tree: id,
                key: self.bytes()?,
                doc: self.bytes()?,
            },
            PATCH => Op::Patch {
                tree: id,
                key: self.bytes()?,
                patch: self.bytes()?,
            },
            DELETE => Op::Delete {
                tree: id,
                key: self.bytes()?,
            },
            COLLECTION => Op::Collection {
                id,
                next_id: self.id()?,
                entry: self.bytes()?,
            },
            DROP => Op::Drop { id },
            ENTRIES => Op::Entries {
                collection: id,
                index: self.id()?,
                entries: self.bytes()?,
                arrays: self.bytes()?,
            },
            SESSION => Op::Session {
                key: self.bytes()?,
                added: self.bytes()?,
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut e = Encoder::new();
        assert!(e.is_empty());
        let (k, d) = e.insert(7, b"key", b"document");
        e.patch(300, b"k2", b"patch");
        e.delete(7, b"k3");
        e.collection(1, 9, b"entry");
        e.drop(1 << 20);
        let found = e.entries(7, 8, &[(b"a".to_vec(), b"".to_vec())], b"arrays");
        assert_eq!(found.len(), 1);
        e.set_wall_clock(77);
        let payload = e.into_payload();
        assert_eq!(
            (&payload[k.clone()], &payload[d.clone()]),
            (&b"key"[..], &b"document"[..])
        );
        let mut r = Reader::new(&payload).unwrap();
        let mut all = Vec::new();
        while let Some(op) = r.next().unwrap() {
            all.push(op);
        }
        assert_eq!(all.len(), 6);
        assert_eq!(
            all[0],
            Op::Insert {
                tree: 7,
                key: k,
                doc: d
            }
        );
        let Op::Entries {
            index: 8, entries, ..
        } = &all[5]
        else {
            panic!("{all:?}");
        };
        let pairs = pairs(&payload, entries.clone()).unwrap();
        assert_eq!(&payload[pairs[0].0.clone()], b"a");
        // Every cut is either noticed or ends between two operations.
        for cut in 0..payload.len() {
            if let Some(mut r) = Reader::new(&payload[..cut]) {
                while let Ok(Some(_)) = r.next() {}
            }
        }
    }
}
