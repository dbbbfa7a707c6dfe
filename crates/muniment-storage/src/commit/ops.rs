//! Operations as they stand in the log: data, never commands.
//!
//! A record's payload is `version (1 byte) ‖ kind (1 byte) ‖ wall clock (i64 LE, ms since 1970) ‖
//! operations`. An operation is a tag byte and its fields; numbers are LEB128, a byte string is its
//! length and its bytes, a document carries its own length. Random and local choices were made when the
//! record was made, and are written in it, so applying a record is a function of the state and the
//! record.
//!
//! The log is the oplog, too. What its readers need in addition stands with the operations (the `_id`s
//! of documents that were changed or deleted, documents as they were before, and notes on changes of the
//! catalog), and recovery passes over it. Operations that are reported to readers are *entries*. Each
//! has a timestamp of its own: those of a record are consecutive, and the last one's is the record's.
//! The entries of a transaction and of a batch are reported together: see [`entry_count`].

use crate::keys::{get_varint, put_varint};
use muniment_log::Record;
use muniment_value::Doc;
use std::ops::Range;

/// An arena of a stage that is at most this long shares its buffer with the record.
pub(super) const TOGETHER: usize = 64;

/// The version of this format.
const VERSION: u8 = 2;
/// The place of the wall clock in the head.
const CLOCK: Range<usize> = 2..HEAD;
/// Bytes before the first operation.
pub(crate) const HEAD: usize = 1 + 1 + 8;
/// The most bytes of an operation without its byte strings: tag, id, three lengths.
const FRAME: usize = 1 + 5 + 3 * 5;

/// The usual number of bytes that a session's entry takes for one command.
const SESSION_BYTES: usize = FRAME + 48 + 64;

/// What a record is: its second byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Operations that were committed together and are reported to readers one by one.
    Plain = 0,
    /// A transaction.
    Transaction = 1,
    /// Inserts into one collection, or deletions from one, that are reported together.
    Batch = 2,
    /// Operations of a move between shards, which are reported one by one as such.
    Moved = 3,
}

/// The most bytes and the most operations of a transaction or a batch that are reported in one entry.
/// The rest goes into further entries, because an entry is a document of 16 MB at most.
pub(crate) const AT_ONCE: (usize, usize) = (8 << 20, 40_000);

/// How many timestamps a record takes: one for each entry, and one if there is none. The operations of a
/// transaction or a batch are reported in as few entries as [`AT_ONCE`] allows, and the record takes a
/// timestamp for each entry that there may be.
pub(crate) fn entry_count(kind: Kind, entries: usize, bytes: usize) -> u32 {
    let count = match kind {
        Kind::Plain | Kind::Moved => entries.max(1),
        // Two consecutive parts together have more bytes than the limit, or the first alone reaches it.
        // So there are at most twice as many parts by bytes.
        Kind::Transaction | Kind::Batch => 1 + 2 * bytes / AT_ONCE.0 + entries / AT_ONCE.1,
    };
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Bytes of an ObjectId with its type and length, since most `_id`s are one.
const ID: usize = 14;

const INSERT: u8 = 1;
const REPLACE: u8 = 2;
const DIFF: u8 = 3;
const DELETE: u8 = 4;
const COLLECTION: u8 = 5;
const DROP: u8 = 6;
const ENTRIES: u8 = 7;
const SESSION: u8 = 8;
const IMAGE: u8 = 9;
const NOTE: u8 = 10;
const CONFIG: u8 = 11;
const PREPARE: u8 = 12;
const RESOLVE: u8 = 13;
const KEY: u8 = 14;

/// One operation, read from a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Inserts a document that was not there.
    Insert {
        tree: u32,
        key: Range<usize>,
        doc: Range<usize>,
    },
    /// Replaces a document.
    Replace {
        tree: u32,
        key: Range<usize>,
        doc: Range<usize>,
    },
    /// A document changed by a difference of fields: see [`muniment_query::diff`]. `id` is the type and
    /// the bytes of its `_id`; empty if it has none.
    Diff {
        tree: u32,
        key: Range<usize>,
        id: Range<usize>,
        diff: Range<usize>,
    },
    /// Deletes a document; `id` as above.
    Delete {
        tree: u32,
        key: Range<usize>,
        id: Range<usize>,
    },
    /// A collection as it is from now on: its catalog entry. `next_id` is the next free id.
    Collection {
        id: u32,
        next_id: u32,
        entry: Range<usize>,
    },
    /// Drops a collection, with its indexes.
    Drop { id: u32 },
    /// Entries that an index build found: pairs of key and value in one byte string, and the arrays of
    /// the documents as [`crate::multikey`] writes them.
    Entries {
        collection: u32,
        index: u32,
        entries: Range<usize>,
        arrays: Range<usize>,
    },
    /// What is added to a session's record. If it is empty, the record is deleted.
    Session {
        key: Range<usize>,
        added: Range<usize>,
    },
    /// For readers: the document before the next operation changes or deletes it.
    Image { doc: Range<usize> },
    /// For readers: what names the document of the next operation in a sharded collection, its shard key
    /// and its `_id`.
    Key { doc: Range<usize> },
    /// A configuration of the replica set, which only the consensus reads.
    Config { record: Range<usize> },
    /// For readers: a change of the catalog, or nothing at all, in the form of an entry of MongoDB's
    /// oplog (`{op, ns, ui?, o, o2?}`).
    Note { doc: Range<usize> },
    /// A transaction over several logs is prepared here: the key and the row of the tree of these
    /// (`transaction::prepared`).
    Prepare {
        key: Range<usize>,
        row: Range<usize>,
    },
    /// A prepared transaction ends: its row is removed. `outcome` is the commit time in eight bytes, and
    /// the transaction's operations come after this one; if it is empty the transaction was aborted.
    Resolve {
        key: Range<usize>,
        outcome: Range<usize>,
    },
}

impl Op {
    /// True if it is an entry, which is reported to readers.
    fn is_told(&self) -> bool {
        match self {
            Op::Insert { .. }
            | Op::Replace { .. }
            | Op::Diff { .. }
            | Op::Delete { .. }
            | Op::Note { .. } => true,
            Op::Collection { .. }
            | Op::Drop { .. }
            | Op::Entries { .. }
            | Op::Session { .. }
            | Op::Image { .. }
            | Op::Key { .. }
            | Op::Config { .. }
            | Op::Prepare { .. }
            | Op::Resolve { .. } => false,
        }
    }
}

/// Writes a record's payload.
pub(crate) struct Encoder {
    buf: Vec<u8>,
    told: usize,
    /// How many of the entries are inserts, and how many deletions.
    inserts: usize,
    deletions: usize,
    /// More has to be reported than the operations themselves: documents before a change, or the
    /// statements of a session. Deletions are not a batch then.
    annotated: bool,
    moves: bool,
    /// Bytes to reserve in addition to those of documents.
    beside: usize,
}

impl Encoder {
    /// An empty record.
    pub fn new() -> Encoder {
        Encoder {
            buf: Vec::new(),
            told: 0,
            inserts: 0,
            deletions: 0,
            annotated: false,
            moves: false,
            beside: 0,
        }
    }

    /// How many operations are entries.
    pub fn told(&self) -> usize {
        self.told
    }

    /// The kind of the record. Inserts that were made together are reported together, and so are
    /// deletions of which nothing else has to be reported, as MongoDB does since 8.0.
    fn kind(&self) -> Kind {
        if self.moves {
            return Kind::Moved;
        }
        let deletions = self.deletions == self.told && !self.annotated;
        match self.told > 1 && (deletions || self.inserts == self.told) {
            true => Kind::Batch,
            false => Kind::Plain,
        }
    }

    /// Makes it a record of a move between shards.
    pub fn moves(&mut self) {
        self.moves = true;
    }

    /// How many timestamps the record takes.
    pub fn stamps(&self) -> u32 {
        let bytes = self.buf.len().saturating_sub(HEAD);
        entry_count(self.kind(), self.told, bytes)
    }

    /// True if there is no operation.
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Makes room for this many more operations with this many bytes of keys and documents.
    pub fn reserve(&mut self, ops: usize, bytes: usize) {
        self.buf
            .reserve_exact(HEAD + ops * FRAME + bytes + TOGETHER + self.beside);
    }

    /// Makes room for a session's entry after the other operations.
    pub fn expect_session(&mut self) {
        self.beside = SESSION_BYTES;
    }

    /// The number of bytes so far.
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// The bytes of a range.
    pub fn get(&self, range: Range<usize>) -> &[u8] {
        self.buf.get(range).unwrap_or_default()
    }

    /// Begins the record, whose first operation has this many bytes of keys and documents.
    pub fn begin_record(&mut self, bytes: usize) {
        if self.buf.is_empty() {
            // Most records have only one operation.
            self.reserve(1, bytes);
            self.buf.extend_from_slice(&head(Kind::Plain, 0));
        }
    }

    /// Begins an operation with this many bytes of keys and documents.
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

    fn begin_entry(&mut self, tag: u8, id: u32, bytes: usize) {
        self.told += 1;
        self.begin(tag, id, bytes);
    }

    /// Writes the `_id` of a document in the form of [`Op::Diff`].
    fn id_of(&mut self, doc: &[u8]) {
        match Doc::new(doc).get_elem("_id") {
            None => self.buf.push(0),
            Some(id) => {
                let value = id.raw_value();
                put_varint(1 + value.len(), &mut self.buf);
                self.buf.push(id.ty() as u8);
                self.buf.extend_from_slice(value);
            }
        }
    }

    /// Adds an insert. Returns the ranges of key and document.
    pub fn insert(&mut self, tree: u32, key: &[u8], doc: &[u8]) -> (Range<usize>, Range<usize>) {
        self.inserts += 1;
        self.begin_entry(INSERT, tree, key.len() + doc.len());
        (self.bytes(key), self.bytes(doc))
    }

    /// Adds a replacement. Returns the ranges of key and document.
    pub fn replace(&mut self, tree: u32, key: &[u8], doc: &[u8]) -> (Range<usize>, Range<usize>) {
        self.begin_entry(REPLACE, tree, key.len() + doc.len());
        (self.bytes(key), self.bytes(doc))
    }

    /// Adds a difference to the document `old`, which needs an `_id` for its readers. Returns the range
    /// of the key.
    pub fn diff(&mut self, tree: u32, key: &[u8], old: &[u8], diff: &[u8]) -> Range<usize> {
        self.begin_entry(DIFF, tree, key.len() + ID + diff.len());
        let key = self.bytes(key);
        self.id_of(old);
        self.bytes(diff);
        key
    }

    /// Adds the deletion of the document `old`. Returns the range of the key.
    pub fn delete(&mut self, tree: u32, key: &[u8], old: &[u8]) -> Range<usize> {
        self.deletions += 1;
        self.begin_entry(DELETE, tree, key.len() + ID);
        let key = self.bytes(key);
        self.id_of(old);
        key
    }

    /// See [`Op::Image`].
    pub fn image(&mut self, doc: &[u8]) {
        self.annotated = true;
        self.begin(IMAGE, 0, doc.len());
        self.bytes(doc);
    }

    /// See [`Op::Key`].
    pub fn key(&mut self, doc: &[u8]) {
        self.begin(KEY, 0, doc.len());
        self.bytes(doc);
    }

    /// See [`Op::Config`].
    pub fn config(&mut self, record: &[u8]) {
        self.begin(CONFIG, 0, record.len());
        self.bytes(record);
    }

    /// See [`Op::Note`].
    pub fn note(&mut self, doc: Doc<'_>) {
        let doc = doc.as_bytes();
        self.begin_entry(NOTE, 0, doc.len());
        self.bytes(doc);
    }

    /// Adds a catalog entry. Returns its range.
    pub fn collection(&mut self, id: u32, next_id: u32, entry: &[u8]) -> Range<usize> {
        self.begin(COLLECTION, id, entry.len());
        put_varint(next_id as usize, &mut self.buf);
        self.bytes(entry)
    }

    pub fn drop(&mut self, id: u32) {
        self.begin(DROP, id, 0);
    }

    /// Adds index entries: see [`Op::Entries`]. Returns the ranges of each key and value.
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

    /// Adds a session's entry. Returns the ranges of key and record.
    pub fn session(&mut self, key: &[u8], added: &[u8]) -> (Range<usize>, Range<usize>) {
        self.annotated = true;
        self.begin(SESSION, 0, key.len() + added.len());
        (self.bytes(key), self.bytes(added))
    }

    /// Adds the row of a prepared transaction. Returns the ranges of key and row.
    pub fn prepare(&mut self, key: &[u8], row: &[u8]) -> (Range<usize>, Range<usize>) {
        self.begin(PREPARE, 0, key.len() + row.len());
        (self.bytes(key), self.bytes(row))
    }

    /// Adds the end of a prepared transaction: see [`Op::Resolve`].
    pub fn resolve(&mut self, key: &[u8], outcome: &[u8]) {
        self.begin(RESOLVE, 0, key.len() + outcome.len());
        self.bytes(key);
        self.bytes(outcome);
    }

    /// Adds operations that are encoded already.
    pub fn operations(&mut self, encoded: &[u8]) {
        self.begin_record(encoded.len());
        self.buf.extend_from_slice(encoded);
    }

    /// An encoder that holds a record's payload already.
    pub fn of(payload: &[u8]) -> Encoder {
        Encoder {
            buf: payload.to_vec(),
            ..Encoder::new()
        }
    }

    /// Completes the head: the kind of the record, and the time of the wall clock in milliseconds since
    /// 1970.
    pub fn complete(&mut self, now_ms: i64) {
        let complete = head(self.kind(), now_ms);
        if let Some(head) = self.buf.get_mut(..HEAD) {
            head.copy_from_slice(&complete);
        }
    }

    /// The payload.
    pub fn into_payload(self) -> Vec<u8> {
        self.buf
    }
}

/// The head of a record.
pub(crate) fn head(kind: Kind, now_ms: i64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[0] = VERSION;
    head[1] = kind as u8;
    if let Some(clock) = head.get_mut(CLOCK) {
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

/// When a record was committed, by the wall clock of the server that committed it; 0 if the record does
/// not tell.
pub(crate) fn wall_of(record: &Record<'_>) -> i64 {
    Reader::new(record.payload).map_or(0, |reader| reader.wall_clock())
}

/// Reads a record's payload.
pub(crate) struct Reader<'a> {
    payload: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader of a payload; `None` if the version of the payload is not known.
    pub fn new(payload: &'a [u8]) -> Option<Reader<'a>> {
        (payload.first() == Some(&VERSION) && payload.len() >= HEAD)
            .then_some(Reader { payload, at: HEAD })
    }

    /// A reader of the rest of a payload that was read up to [`Reader::place`].
    pub fn at(payload: &'a [u8], at: usize) -> Reader<'a> {
        Reader { payload, at }
    }

    /// The offset of the next operation.
    pub fn place(&self) -> usize {
        self.at
    }

    /// The kind of the record.
    pub fn kind(&self) -> Kind {
        match self.payload.get(1) {
            Some(1) => Kind::Transaction,
            Some(2) => Kind::Batch,
            Some(3) => Kind::Moved,
            _ => Kind::Plain,
        }
    }

    /// When the record was committed, in milliseconds since 1970.
    pub fn wall_clock(&self) -> i64 {
        let bytes = self.payload.get(CLOCK).and_then(|b| b.try_into().ok());
        bytes.map_or(0, i64::from_le_bytes)
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

    /// How many timestamps the record takes.
    ///
    /// # Errors
    /// As [`Reader::next`].
    pub fn stamps(mut self) -> Result<u32, usize> {
        let mut entries = 0;
        while let Some(op) = self.next()? {
            entries += usize::from(op.is_told());
        }
        Ok(entry_count(self.kind(), entries, self.payload.len() - HEAD))
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
            DIFF => Op::Diff {
                tree: id,
                key: self.bytes()?,
                id: self.bytes()?,
                diff: self.bytes()?,
            },
            DELETE => Op::Delete {
                tree: id,
                key: self.bytes()?,
                id: self.bytes()?,
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
            IMAGE => Op::Image { doc: self.bytes()? },
            KEY => Op::Key { doc: self.bytes()? },
            NOTE => Op::Note { doc: self.bytes()? },
            CONFIG => Op::Config {
                record: self.bytes()?,
            },
            PREPARE => Op::Prepare {
                key: self.bytes()?,
                row: self.bytes()?,
            },
            RESOLVE => Op::Resolve {
                key: self.bytes()?,
                outcome: self.bytes()?,
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::doc;

    #[test]
    fn what_is_written_is_read() {
        let mut e = Encoder::new();
        assert!(e.is_empty());
        let (k, d) = e.insert(7, b"key", b"document");
        let old = doc! { "a": 1, "_id": 5 };
        e.image(old.as_bytes());
        e.key(old.as_bytes());
        e.diff(300, b"k2", old.as_bytes(), b"diff");
        e.delete(7, b"k3", doc! {}.as_bytes());
        e.note(doc! { "op": "n" }.as_doc());
        e.collection(1, 9, b"entry");
        e.drop(1 << 20);
        let found = e.entries(7, 8, &[(b"a".to_vec(), b"".to_vec())], b"arrays");
        assert_eq!(found.len(), 1);
        e.complete(77);
        let told = e.told();
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
        assert_eq!((all.len(), told), (9, 4));
        let Op::Diff { id, .. } = &all[3] else {
            panic!("{all:?}");
        };
        assert_eq!(payload[id.clone()], [16, 5, 0, 0, 0]);
        assert_eq!(Reader::new(&payload).unwrap().wall_clock(), 77);
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
        } = &all[8]
        else {
            panic!("{all:?}");
        };
        let pairs = pairs(&payload, entries.clone()).unwrap();
        assert_eq!(&payload[pairs[0].0.clone()], b"a");
        // A payload that is cut is either found malformed or ends between two operations.
        for cut in 0..payload.len() {
            if let Some(mut r) = Reader::new(&payload[..cut]) {
                while let Ok(Some(_)) = r.next() {}
            }
        }
    }
}
