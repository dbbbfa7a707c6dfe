//! A block: some hundred neighbouring ranges of a table, which never changes once it is made.
//!
//! A range is stored as its lower end; it ends where the next one begins.

use super::lows::Lows;
use crate::stamp::Version;

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
    lows: Lows,
    shards: Box<[u32]>,
    versions: Box<[Version]>,
    /// By shard, ascending.
    totals: Box<[Total]>,
}

impl Block {
    /// A block of ascending pieces, of which there is at least one.
    pub(super) fn new(pieces: &[Piece]) -> Block {
        Block {
            lows: Lows::of(pieces.iter().map(|p| &*p.low)),
            shards: pieces.iter().map(|p| p.shard).collect(),
            versions: pieces.iter().map(|p| p.version).collect(),
            totals: totals(pieces).into(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.len()
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
        self.lows.get(at)
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
        self.lows.up_to(key)
    }

    /// Roughly the bytes of memory.
    pub(super) fn heap_bytes(&self) -> usize {
        let each = size_of::<u32>() + size_of::<Version>();
        size_of::<Block>() + self.lows.heap_bytes() + self.len() * each + size_of_val(&*self.totals)
    }
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
    fn totals_count_ranges_and_keep_the_highest_version() {
        let piece = |n: u32| Piece {
            low: vec![n as u8],
            shard: n % 2,
            version: Version::new(1, n),
        };
        let block = Block::new(&[0, 1, 2, 3].map(piece));
        let want = Total {
            shard: 1,
            ranges: 2,
            version: Version::new(1, 3),
        };
        assert_eq!(block.total(1), Some(&want));
        assert_eq!(block.total(2), None);
    }
}
