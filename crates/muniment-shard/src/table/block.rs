//! A block: some hundred neighbouring ranges of a table, which never changes once it is made.
//!
//! A range is stored as its lower end; it ends where the next one begins. The lower ends lie one after
//! another, without the bytes that all of them begin with.

use crate::stamp::Version;
use std::cmp::Ordering;

/// Blocks are made with at most this many ranges. A change copies a whole block, and each block costs an
/// entry of the table.
pub(super) const MOST: usize = 512;

/// A range while a table is built: its lower end, its shard, its version.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) low: Vec<u8>,
    pub(super) shard: u32,
    pub(super) version: Version,
}

/// What a block or a table has of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) shard: u32,
    pub(super) ranges: usize,
    /// The highest version among the ranges.
    pub(super) version: Version,
}

#[derive(Debug)]
pub(super) struct Block {
    /// The bytes that all lower ends begin with.
    prefix: Box<[u8]>,
    /// The rest of each lower end.
    bytes: Box<[u8]>,
    /// Where each rest ends in `bytes`.
    ends: Box<[u32]>,
    shards: Box<[u32]>,
    versions: Box<[Version]>,
    /// By shard, ascending.
    totals: Box<[Total]>,
}

impl Block {
    /// A block of ascending pieces, of which there is at least one.
    pub(super) fn new(pieces: &[Piece]) -> Block {
        let first = pieces.first().map_or(&[][..], |p| &p.low);
        let last = pieces.last().map_or(&[][..], |p| &p.low);
        // What the first and the last have in common, those between have too.
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let mut bytes = Vec::with_capacity(pieces.iter().map(|p| p.low.len() - common).sum());
        let mut ends = Vec::with_capacity(pieces.len());
        for p in pieces {
            bytes.extend_from_slice(p.low.get(common..).unwrap_or_default());
            ends.push(bytes.len() as u32);
        }
        Block {
            prefix: first.get(..common).unwrap_or_default().into(),
            bytes: bytes.into(),
            ends: ends.into(),
            shards: pieces.iter().map(|p| p.shard).collect(),
            versions: pieces.iter().map(|p| p.version).collect(),
            totals: totals(pieces).into(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn totals(&self) -> &[Total] {
        &self.totals
    }

    /// What the block has of a shard.
    pub(super) fn total(&self, shard: u32) -> Option<&Total> {
        let at = self.totals.binary_search_by_key(&shard, |t| t.shard).ok()?;
        self.totals.get(at)
    }

    pub(super) fn shard(&self, at: usize) -> u32 {
        self.shards.get(at).copied().unwrap_or_default()
    }

    pub(super) fn version(&self, at: usize) -> Version {
        self.versions.get(at).copied().unwrap_or_default()
    }

    /// The lower end of a range.
    pub(super) fn low(&self, at: usize) -> Vec<u8> {
        [&self.prefix, self.rest(at)].concat()
    }

    /// The pieces from one place to another.
    pub(super) fn pieces(&self, from: usize, to: usize) -> impl Iterator<Item = Piece> {
        (from..to.min(self.len())).map(|at| Piece {
            low: self.low(at),
            shard: self.shard(at),
            version: self.version(at),
        })
    }

    /// The number of ranges whose lower end is at most `key`.
    #[inline]
    pub(super) fn up_to(&self, key: &[u8]) -> usize {
        let (head, tail) = key
            .split_at_checked(self.prefix.len())
            .unwrap_or((key, &[]));
        match head.cmp(&self.prefix) {
            Ordering::Less => 0,
            Ordering::Greater => self.len(),
            Ordering::Equal => partition(self.len(), |at| self.rest(at) <= tail),
        }
    }

    /// Roughly the bytes of memory.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Block>()
            + self.prefix.len()
            + self.bytes.len()
            + self.len() * (size_of::<u32>() * 2 + size_of::<Version>())
            + size_of_val(&*self.totals)
    }

    #[inline]
    fn rest(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).and_then(|at| self.ends.get(at));
        let start = start.map_or(0, |n| *n as usize);
        let end = self.ends.get(at).map_or(0, |n| *n as usize);
        self.bytes.get(start..end).unwrap_or_default()
    }
}

/// The number of places from 0 on for which `holds`, which must hold up to some place and not from there on.
#[inline]
pub(super) fn partition(len: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low.midpoint(high);
        match holds(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

fn totals(pieces: &[Piece]) -> Vec<Total> {
    let mut of: Vec<(u32, Version)> = pieces.iter().map(|p| (p.shard, p.version)).collect();
    of.sort_unstable();
    let mut out: Vec<Total> = Vec::new();
    for (shard, version) in of {
        match out.last_mut().filter(|t| t.shard == shard) {
            Some(total) => {
                total.ranges += 1;
                total.version = version;
            }
            None => out.push(Total {
                shard,
                ranges: 1,
                version,
            }),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_finds_what_was_put_in() {
        let lows = ["abc", "abd", "abdx", "abz"];
        let pieces: Vec<Piece> = (0..4_u32)
            .zip(lows)
            .map(|(n, low)| Piece {
                low: low.into(),
                shard: n % 2,
                version: Version::new(1, n),
            })
            .collect();
        let block = Block::new(&pieces);
        assert_eq!(&*block.prefix, b"ab");
        for (key, want) in [
            ("", 0),
            ("a", 0),
            ("ab", 0),
            ("abb", 0),
            ("abc", 1),
            ("abd", 2),
            ("abdw", 2),
            ("abdy", 3),
            ("abzz", 4),
            ("ac", 4),
        ] {
            assert_eq!(block.up_to(key.as_bytes()), want, "{key}");
        }
        assert_eq!(block.low(2), b"abdx");
        let total = block.total(1).copied();
        let want = Total {
            shard: 1,
            ranges: 2,
            version: Version::new(1, 3),
        };
        assert_eq!(total, Some(want));
        assert_eq!(block.total(2), None);
    }
}
