//! The layout of keys in the trees.
//!
//! Every collection and every index has a tree of its own, whose number is its id. A collection's
//! tree: record key → document. An index's: encoded fields ‖ record key → varint length of the
//! fields ‖ type bits; of a unique index: encoded fields → varint length of the record key ‖
//! record key ‖ type bits. The tree [`META`] holds the catalog: a letter and a number, see the
//! functions.

use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_tree::Range;
use muniment_value::keyenc::prefix_end;

/// One end of a range of encoded keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// No bound.
    Unbounded,
    /// The key itself and everything that begins with it is inside.
    Included(Vec<u8>),
    /// The key and everything that begins with it is outside.
    Excluded(Vec<u8>),
}

/// A range of encoded field keys (index) or record keys (documents), always `low` ≤ `high` in
/// byte order, whatever the direction of the cursor. A bound is a *prefix*: a compound index may
/// be bounded by its first fields only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The lower end.
    pub low: Bound,
    /// The upper end.
    pub high: Bound,
}

impl KeyRange {
    /// Everything.
    pub fn all() -> KeyRange {
        KeyRange {
            low: Bound::Unbounded,
            high: Bound::Unbounded,
        }
    }

    /// Exactly the keys that begin with `prefix`.
    pub fn prefix(prefix: Vec<u8>) -> KeyRange {
        KeyRange {
            low: Bound::Included(prefix.clone()),
            high: Bound::Included(prefix),
        }
    }
}

/// The tree of the catalog.
pub(crate) const META: u32 = 0;

/// `meta`: the catalog entry of a collection.
pub(crate) fn catalog(collection: u32) -> Vec<u8> {
    tagged(b'c', collection)
}

/// `meta`: the running totals of a collection: documents, bytes and the last number that a
/// record was given, u64 LE each.
pub(crate) fn totals(collection: u32) -> Vec<u8> {
    tagged(b'n', collection)
}

/// `meta`: the multikey paths of an index: one u64 LE a field.
pub(crate) fn multikey(index: u32) -> Vec<u8> {
    tagged(b'm', index)
}

/// `meta`: a path at which a wildcard index found an array; no value.
pub(crate) fn array_path(index: u32, path: &str) -> Vec<u8> {
    let mut key = tagged(b'w', index);
    key.extend_from_slice(path.as_bytes());
    key
}

/// `meta`: a dropped collection's or index's tree that is still to be given up; no value.
pub(crate) fn drop_pending(id: u32) -> Vec<u8> {
    tagged(b'd', id)
}

/// `meta`: a name that a collection had until a commit; see `history`.
pub(crate) fn past_name(collection: u32, until: Timestamp) -> Vec<u8> {
    let mut key = tagged(b'h', collection);
    key.extend_from_slice(&until.0.to_be_bytes());
    key
}

/// The parts of [`past_name`].
pub(crate) fn past_name_of(key: &[u8]) -> Option<(u32, Timestamp)> {
    let (id, until) = key.get(1..)?.split_first_chunk()?;
    let until = u64::from_be_bytes(until.try_into().ok()?);
    Some((u32::from_be_bytes(*id), Timestamp(until)))
}

/// `meta`: a collection or an index that is closed, and why; see `damage`.
pub(crate) fn damaged(id: u32) -> Vec<u8> {
    tagged(b'x', id)
}

/// `meta`: the next free id.
pub(crate) fn next_id() -> Vec<u8> {
    b"s:next_id".to_vec()
}

fn tagged(tag: u8, id: u32) -> Vec<u8> {
    let mut key = vec![tag];
    key.extend_from_slice(&id.to_be_bytes());
    key
}

/// The keys of `range` as a tree's range.
pub(crate) fn bounds(range: &KeyRange) -> Range {
    let low = match &range.low {
        Bound::Unbounded => Bytes::new(),
        Bound::Included(k) => Bytes::copy_from_slice(k),
        Bound::Excluded(k) => match prefix_end(k) {
            Some(end) => Bytes::from(end),
            // Every key begins with the bound or lies before it.
            None => return nothing(),
        },
    };
    let high = match &range.high {
        Bound::Unbounded => None,
        Bound::Included(k) => prefix_end(k).map(Bytes::from),
        Bound::Excluded(k) => Some(Bytes::copy_from_slice(k)),
    };
    Range { low, high }
}

/// A range without keys.
fn nothing() -> Range {
    Range {
        low: Bytes::new(),
        high: Some(Bytes::new()),
    }
}

/// `n` as LEB128, in `buf`.
pub(crate) fn varint(n: usize, buf: &mut [u8; 10]) -> &[u8] {
    let (mut n, mut len) = (n, 0);
    for b in buf.iter_mut() {
        len += 1;
        if n < 0x80 {
            *b = n as u8;
            break;
        }
        *b = (n as u8 & 0x7F) | 0x80;
        n >>= 7;
    }
    buf.get(..len).unwrap_or_default()
}

/// Appends `n` as LEB128.
pub(crate) fn put_varint(mut n: usize, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push((n as u8 & 0x7F) | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Reads a LEB128 number; returns it and how many bytes it took.
pub(crate) fn get_varint(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut n = 0usize;
    for (i, b) in bytes.iter().enumerate().take(5) {
        n |= usize::from(b & 0x7F) << (7 * i);
        if b & 0x80 == 0 {
            return Some((n, i + 1));
        }
    }
    None
}
