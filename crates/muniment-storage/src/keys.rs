//! The layout of keys in the three keyspaces.
//!
//! `docs`: collection id (u32 BE) ‖ record key. `index`: index id (u32 BE) ‖ encoded fields ‖
//! record key (a unique index: without the record key). `meta`: a letter and a number, see the
//! functions.

use crate::engine::MAX_KEY;
use crate::snapshot::{Bound, KeyRange};
use muniment_value::keyenc::prefix_end;
use muniment_value::{Error, Result};

/// The id's bytes, which begin every key of it.
pub(crate) fn prefix(id: u32) -> [u8; 4] {
    id.to_be_bytes()
}

/// id ‖ rest.
pub(crate) fn join(id: u32, rest: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(4 + rest.len());
    key.extend_from_slice(&prefix(id));
    key.extend_from_slice(rest);
    key
}

/// `meta`: the catalog entry of a collection.
pub(crate) fn catalog(collection: u32) -> Vec<u8> {
    tagged(b'c', collection)
}

/// `meta`: the running totals of a collection: documents and bytes, u64 LE each.
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

/// `meta`: documents (`D`) or index entries (`I`) of a dropped collection or index that are still
/// to be deleted.
pub(crate) fn drop_pending(kind: u8, id: u32) -> Vec<u8> {
    let mut key = vec![b'd', kind];
    key.extend_from_slice(&prefix(id));
    key
}

/// `meta`: the next free id.
pub(crate) fn next_id() -> Vec<u8> {
    b"s:next_id".to_vec()
}

/// `meta`: the version of the layout.
pub(crate) fn layout() -> Vec<u8> {
    b"s:layout".to_vec()
}

fn tagged(tag: u8, id: u32) -> Vec<u8> {
    let mut key = vec![tag];
    key.extend_from_slice(&prefix(id));
    key
}

/// The first and the end key (exclusive) of `range` under `id`.
pub(crate) fn bounds(id: u32, range: &KeyRange) -> (Vec<u8>, Vec<u8>) {
    let low = match &range.low {
        Bound::Unbounded => prefix(id).to_vec(),
        Bound::Included(k) => join(id, k),
        Bound::Excluded(k) => end_of(id, k),
    };
    let high = match &range.high {
        Bound::Unbounded => end_of(id, &[]),
        Bound::Included(k) => end_of(id, k),
        Bound::Excluded(k) => join(id, k),
    };
    (low, high)
}

/// The end (exclusive) of everything under `id` that begins with `key`.
pub(crate) fn end_of(id: u32, key: &[u8]) -> Vec<u8> {
    // An id of 0xFFFFFFFF is never given out, so there always is an end.
    prefix_end(&join(id, key)).unwrap_or_else(|| vec![0xFF; 5])
}

/// Refuses a key that the engine cannot hold.
pub(crate) fn check_len(full_key: &[u8], what: &str) -> Result<()> {
    if full_key.len() <= MAX_KEY {
        return Ok(());
    }
    // MongoDB lifted its limit in 4.2; 17280 was its KeyTooLong.
    Err(Error::location(
        17280,
        format!(
            "{what} is too long: {} bytes encoded, at most {MAX_KEY} are supported",
            full_key.len()
        ),
    ))
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
