//! The block cache: blocks without their frames, by table and offset.
//!
//! Entries are weighed by their bytes and those of their bookkeeping, so that the cache takes the memory of
//! its capacity. Blocks of removed tables are not looked for any more and fall out by themselves, because
//! table numbers are never reused.

use super::table::block::Block;
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// The bytes of an entry beside the block's: the cache's slot with key and value, its part of the hash table,
/// the allocation's header.
const OVERHEAD: u64 = 128;

/// A block in the form in which readers use it.
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
pub(crate) struct BlockCache {
    blocks: Cache<(u64, u64), Cached, Weight>,
    capacity: u64,
}

impl BlockCache {
    /// A cache of this many bytes, for blocks of about `block` bytes.
    pub(crate) fn new(bytes: u64, block: usize) -> BlockCache {
        let items = usize::try_from(bytes / (block as u64).max(1)).unwrap_or(usize::MAX);
        BlockCache {
            blocks: Cache::with_weighter(items.max(64), bytes, Weight),
            capacity: bytes,
        }
    }

    pub(crate) fn get(&self, table: u64, offset: u64) -> Option<Cached> {
        self.blocks.get(&(table, offset))
    }

    pub(crate) fn insert(&self, table: u64, offset: u64, value: Cached) {
        self.blocks.insert((table, offset), value);
    }

    /// The bytes that are in use.
    pub(crate) fn used(&self) -> u64 {
        self.blocks.weight()
    }

    /// The capacity that the cache was created with, in bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Lowers the capacity by this many bytes until the next call.
    pub(crate) fn spare(&self, bytes: u64) {
        let left = self.capacity.saturating_sub(bytes);
        if left != self.blocks.capacity() {
            self.blocks.set_capacity(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spared_memory_is_freed_and_comes_back() {
        let cache = BlockCache::new(8 << 20, 4 << 10);
        let fill = || {
            for n in 0..4096 {
                cache.insert(1, n, Cached::Filter(Bytes::from(vec![0; 4 << 10])));
            }
            cache.used()
        };
        assert!(fill() > 7 << 20);
        cache.spare(6 << 20);
        assert!(cache.used() <= 2 << 20, "{}", cache.used());
        assert!(fill() <= 2 << 20);
        assert_eq!(cache.capacity(), 8 << 20);
        cache.spare(u64::MAX);
        assert_eq!(fill(), 0);
        cache.spare(0);
        assert!(fill() > 7 << 20);
    }
}
