//! The block cache: blocks out of their frames, by table and offset.
//!
//! It is weighed by bytes, what keeps an entry included, so that its capacity is what it takes.
//! Blocks of tables that are gone are not looked for any more and fall out by themselves: table
//! numbers are never used again.

use super::table::block::Block;
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// What an entry takes beside the block's bytes: the cache's slot with key and value, its part of
/// the hash table, the allocation's header.
const OVERHEAD: u64 = 128;

/// A block as it is used.
#[derive(Clone)]
pub(crate) enum Cached {
    Block(Block),
    Filter(Bytes),
}

#[derive(Clone)]
struct Weight;

impl Weighter<(u64, u64), Cached> for Weight {
    fn weight(&self, _: &(u64, u64), value: &Cached) -> u64 {
        OVERHEAD
            + match value {
                Cached::Block(block) => block.len() as u64,
                Cached::Filter(bytes) => bytes.len() as u64,
            }
    }
}

/// The cache of an engine.
pub(crate) struct BlockCache(Cache<(u64, u64), Cached, Weight>);

impl BlockCache {
    /// For so many bytes, of blocks of about `block` bytes.
    pub(crate) fn new(bytes: u64, block: usize) -> BlockCache {
        let items = usize::try_from(bytes / (block as u64).max(1)).unwrap_or(usize::MAX);
        BlockCache(Cache::with_weighter(items.max(64), bytes, Weight))
    }

    pub(crate) fn get(&self, table: u64, offset: u64) -> Option<Cached> {
        self.0.get(&(table, offset))
    }

    pub(crate) fn insert(&self, table: u64, offset: u64, value: Cached) {
        self.0.insert((table, offset), value);
    }

    /// Bytes used.
    pub(crate) fn used(&self) -> u64 {
        self.0.weight()
    }

    /// Bytes it may use.
    pub(crate) fn capacity(&self) -> u64 {
        self.0.capacity()
    }
}
