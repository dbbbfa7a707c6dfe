//! The table that the examples measure: ranges of ObjectIds, which the shards own in turn.

use muniment_shard::{Builder, Generation, RangeTable, ShardKey, Timestamp, Version};
use muniment_value::{Value, doc};
use std::sync::Arc;

/// So many keys lie between two bounds.
pub const WIDTH: u64 = 1 << 20;

/// A table of so many ranges on so many shards.
pub fn build(key: &Arc<ShardKey>, ranges: u64, shards: u64) -> RangeTable {
    let generation = Generation {
        uuid: [1; 16],
        timestamp: Timestamp::new(1, 1),
    };
    let names: Vec<String> = (0..shards).map(|n| format!("shard{n}")).collect();
    let mut builder = Builder::new(key.clone(), generation);
    let mut min = key.lowest();
    for n in 0..ranges {
        let max = match n + 1 < ranges {
            true => bound(key, n + 1),
            false => key.highest(),
        };
        let shard = &names[(n % shards) as usize];
        builder
            .push(&min, &max, shard, Version::new(1, n as u32))
            .unwrap();
        min = max;
    }
    builder.finish().unwrap()
}

/// The n-th bound: an ObjectId, as most collections have.
pub fn bound(key: &ShardKey, n: u64) -> Vec<u8> {
    object_id(key, n * WIDTH)
}

/// The n-th key.
pub fn object_id(key: &ShardKey, n: u64) -> Vec<u8> {
    let mut id = [0; 12];
    id[..8].copy_from_slice(&(0x65_00_00_00_00_00_00_00 + n).to_be_bytes());
    let doc = doc! { "_id": Value::ObjectId(id) };
    key.bound(doc.as_doc()).unwrap()
}
