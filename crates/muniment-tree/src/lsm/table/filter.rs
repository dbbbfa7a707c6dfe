//! Bloom filters, which show of most keys that are not in a partition that they are not.
//!
//! The layout is that of the split block Bloom filter in the Parquet format's specification
//! (BloomFilter.md there): blocks of eight 32-bit words, one bit a word. The hash is XXH3-64 over
//! the internal key. It is written here, not taken from a crate, because the layout is part of
//! the file format: a crate that arranged its bits differently in a later version would make
//! stored keys disappear.

/// Bytes of a block: one cache line holds two.
const BLOCK: usize = 32;

/// One odd multiplier for each word of a block (Parquet's specification).
const SALT: [u32; 8] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// The hash of a key.
pub(crate) fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// A filter over the keys with these hashes, of about 10.5 bits per key: one of a hundred other keys passes.
pub(crate) fn build(hashes: &[u64]) -> Vec<u8> {
    let blocks = (hashes.len() * 21 / 2).div_ceil(BLOCK * 8).max(1);
    let mut words = vec![0u32; blocks * 8];
    for hash in hashes {
        let first = block_of(*hash, blocks) * 8;
        if let Some(block) = words.get_mut(first..first + 8) {
            for (word, salt) in block.iter_mut().zip(SALT) {
                *word |= bit(*hash, salt);
            }
        }
    }
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// False if no key with this hash is in the filter. Bytes that cannot be a filter let every key pass.
pub(crate) fn may_contain(filter: &[u8], hash: u64) -> bool {
    let first = block_of(hash, filter.len() / BLOCK) * BLOCK;
    let Some(block) = filter.get(first..first + BLOCK) else {
        return true;
    };
    block
        .as_chunks::<4>()
        .0
        .iter()
        .zip(SALT)
        .all(|(word, salt)| {
            let bit = bit(hash, salt);
            u32::from_le_bytes(*word) & bit == bit
        })
}

fn block_of(hash: u64, blocks: usize) -> usize {
    (((hash >> 32) * blocks as u64) >> 32) as usize
}

fn bit(hash: u64, salt: u32) -> u32 {
    1 << ((hash as u32).wrapping_mul(salt) >> 27)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_pass_and_few_others() {
        for n in [0u32, 1, 10, 5_000] {
            let hashes: Vec<u64> = (0..n).map(|i| hash(&i.to_le_bytes())).collect();
            let filter = build(&hashes);
            assert!(hashes.iter().all(|h| may_contain(&filter, *h)));
            let passed = (0..10_000u32)
                .filter(|i| may_contain(&filter, hash(&(i + 1_000_000).to_le_bytes())))
                .count();
            assert!(passed < 200, "{passed} of 10,000 with {n}");
        }
        assert!(may_contain(&[], 5) && may_contain(&[0; 31], 5));
    }
}
