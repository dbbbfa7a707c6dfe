//! Which shard owns which range of a collection's keys.
//!
//! A table is a list of blocks of some hundred ranges each. A changed table shares all blocks that did not
//! change with the one before, so a change of a few ranges costs the same whether the collection has
//! a thousand of them or a million.
//!
//! Invariants: the first range begins at the lowest bound, each range ends where the next one begins, and
//! the last one has no end; so each key is in exactly one range. A table never changes.

mod apply;
mod block;
mod build;
mod lows;
mod scan;
#[cfg(test)]
mod tests;

pub use build::Builder;

use crate::key::ShardKey;
use crate::stamp::{Timestamp, Version};
use block::{Block, Total};
use lows::Lows;
use std::sync::Arc;

/// What tells a sharded collection from another of the same name: from an earlier one that was dropped, and
/// from itself before it was sharded by another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation {
    /// The UUID of the collection.
    pub uuid: [u8; 16],
    /// The time at which it was sharded.
    pub timestamp: Timestamp,
}

/// A chunk, as a table is built from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The lower bound, which is inside.
    pub min: Vec<u8>,
    /// The upper bound, which is outside.
    pub max: Vec<u8>,
    /// The name of the shard that owns it.
    pub shard: Arc<str>,
    /// The version of the change that made it what it is.
    pub version: Version,
}

/// A range of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The lower bound, which is inside.
    pub min: Vec<u8>,
    /// The upper bound, which is outside, except that MaxKey itself is in the last range.
    pub max: Vec<u8>,
    /// The place of the shard in [`RangeTable::shards`].
    pub shard: usize,
    /// The version of the change that made it what it is.
    pub version: Version,
}

/// The ranges of one collection.
#[derive(Clone, Debug)]
pub struct RangeTable {
    key: Arc<ShardKey>,
    generation: Generation,
    shards: Vec<Arc<str>>,
    blocks: Vec<Arc<Block>>,
    /// The lower ends of the blocks.
    firsts: Lows,
    /// In step with `shards`.
    totals: Vec<Total>,
    len: usize,
}

/// A place in a table: the block, and the range within.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    block: usize,
    at: usize,
}

impl RangeTable {
    /// The shard key, whose bytes the bounds are.
    pub fn key(&self) -> &Arc<ShardKey> {
        &self.key
    }

    /// The generation of the collection.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The number of ranges.
    #[allow(clippy::len_without_is_empty)] // a table is never empty
    pub fn len(&self) -> usize {
        self.len
    }

    /// The names of all shards that have, or had, ranges. A changed table keeps their places.
    pub fn shards(&self) -> &[Arc<str>] {
        &self.shards
    }

    /// The name of the shard at a place.
    pub fn shard_name(&self, shard: usize) -> &str {
        self.shards.get(shard).map_or("", |name| name)
    }

    /// The place of the shard with this name.
    pub fn shard_named(&self, name: &str) -> Option<usize> {
        self.shards.iter().position(|s| **s == *name)
    }

    /// The version of the collection: the highest of its ranges.
    pub fn version(&self) -> Version {
        let versions = self.totals.iter().map(|t| t.version);
        versions.max().unwrap_or_default()
    }

    /// The version of a shard: the highest of its ranges, or 0|0 if it has none.
    pub fn version_of(&self, shard: usize) -> Version {
        self.totals
            .get(shard)
            .map_or_else(Version::default, |t| t.version)
    }

    /// The number of ranges that a shard has.
    pub fn ranges_on(&self, shard: usize) -> usize {
        self.totals.get(shard).map_or(0, |t| t.ranges)
    }

    /// The shard that owns a key.
    #[inline]
    pub fn owner(&self, key: &[u8]) -> usize {
        let place = self.place(key);
        let block = self.blocks.get(place.block);
        block.map_or(0, |b| b.shard(place.at) as usize)
    }

    /// The range that has a key.
    pub fn find(&self, key: &[u8]) -> Range {
        self.range(self.place(key))
    }

    /// Roughly the bytes of memory that the table takes. Tables share blocks, so those of several tables
    /// do not add up.
    pub fn heap_bytes(&self) -> usize {
        let blocks = self
            .blocks
            .iter()
            .map(|b| b.heap_bytes() + size_of::<Arc<Block>>());
        blocks.sum::<usize>() + self.firsts.heap_bytes()
    }

    /// The place of the range that has a key: the last that does not begin above it.
    #[inline]
    fn place(&self, key: &[u8]) -> Place {
        let block = self.firsts.up_to(key).saturating_sub(1);
        let up_to = self.blocks.get(block).map_or(0, |b| b.up_to(key));
        Place {
            block,
            at: up_to.saturating_sub(1),
        }
    }

    /// The place of the first range that begins at `key` or above, which may be the end of the table.
    fn place_from(&self, key: &[u8]) -> Place {
        let place = self.place(key);
        match self.blocks.get(place.block) {
            Some(b) if *b.low(place.at) < *key => self.after(place),
            _ => place,
        }
    }

    fn after(&self, place: Place) -> Place {
        let len = self.blocks.get(place.block).map_or(0, |b| b.len());
        match place.at + 1 < len {
            true => Place {
                at: place.at + 1,
                ..place
            },
            false => Place {
                block: place.block + 1,
                at: 0,
            },
        }
    }

    /// The place after all ranges.
    fn end(&self) -> Place {
        Place {
            block: self.blocks.len(),
            at: 0,
        }
    }

    /// The lower end of the range at a place; for the end of the table, the highest bound.
    fn low(&self, place: Place) -> Vec<u8> {
        match self.blocks.get(place.block) {
            Some(block) => block.low(place.at),
            None => self.key.highest(),
        }
    }

    fn range(&self, place: Place) -> Range {
        let block = self.blocks.get(place.block);
        Range {
            min: self.low(place),
            max: self.low(self.after(place)),
            shard: block.map_or(0, |b| b.shard(place.at) as usize),
            version: block.map_or_else(Version::default, |b| b.version(place.at)),
        }
    }
}
