//! Tables: immutable sorted files of versions.
//!
//! A table holds versions ordered by key ascending, then timestamp descending. The key is the
//! tree's number (four bytes, big-endian) before the user's key. The file, from its start:
//!
//! | | |
//! |---|---|
//! | partitions | each: data blocks, then a filter block, then an index block over these data blocks |
//! | top index | one block; an entry a partition |
//! | properties | one block |
//! | footer | [`footer::LEN`] bytes: where the last two are, format version, checksum, magic |
//!
//! Every block has a header ([`frame`]) with its kind, its lengths and a CRC-32C, which also covers the
//! table's number and the block's offset, so that a block which was read from the wrong place is detected.
//! All numbers are little-endian.
//!
//! Invariants: all versions of one key are in one table of a run; a table is never changed; everything read
//! from a file is checked before it is used, and no memory is allocated for a length that was not checked
//! against the file's; if only the keys from some key on remain of a table, nothing before the block of that
//! key is read.
//!
//! This module must not know when trees are dropped, nor levels or views.

pub(crate) mod block;
mod check;
pub(crate) mod filter;
pub(crate) mod footer;
pub(crate) mod frame;
pub(crate) mod iter;
pub(crate) mod reader;
pub(crate) mod scan;
pub(crate) mod writer;

pub(crate) use iter::TableIter;
pub(crate) use reader::Table;
pub(crate) use scan::Scan;
pub(crate) use writer::TableWriter;

use crate::TreeId;

/// How many bytes a tree's number takes in front of a key.
pub(crate) const TREE: usize = 4;

/// The internal key of a tree's key.
pub(crate) fn internal_key(tree: TreeId, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(TREE + key.len());
    out.extend_from_slice(&tree.0.to_be_bytes());
    out.extend_from_slice(key);
    out
}

/// The first internal key after a whole tree; `None` after the last tree.
pub(crate) fn tree_end(tree: TreeId) -> Option<Vec<u8>> {
    Some(tree.0.checked_add(1)?.to_be_bytes().to_vec())
}

/// The tree of an internal key; the first tree for a key that is too short to name one.
pub(crate) fn tree_of(key: &[u8]) -> TreeId {
    TreeId(
        key.first_chunk::<TREE>()
            .map_or(0, |b| u32::from_be_bytes(*b)),
    )
}

/// The user's part of an internal key.
pub(crate) fn user_key(key: &[u8]) -> &[u8] {
    key.get(TREE..).unwrap_or_default()
}

/// Appends a number with seven bits per byte, the lowest bits first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Reads a number that [`put_varint`] has written, and moves `at` past it. `None` if the number does not end
/// in time.
#[inline(always)]
pub(crate) fn varint(data: &[u8], at: &mut usize) -> Option<u64> {
    let first = *data.get(*at)?;
    *at += 1;
    match first < 0x80 {
        true => Some(u64::from(first)),
        false => long_varint(data, at, first),
    }
}

fn long_varint(data: &[u8], at: &mut usize, first: u8) -> Option<u64> {
    let mut n = u64::from(first & 0x7f);
    let mut shift = 7;
    loop {
        let byte = *data.get(*at)?;
        *at += 1;
        n |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(n);
        }
        shift += 7;
        if shift > 63 {
            return None;
        }
    }
}

/// Reads a length, which must fit a `usize`.
#[inline(always)]
pub(crate) fn varint_len(data: &[u8], at: &mut usize) -> Option<usize> {
    usize::try_from(varint(data, at)?).ok()
}
