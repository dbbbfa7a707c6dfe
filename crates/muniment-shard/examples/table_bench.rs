//! Measures a table of a million ranges: its memory, how long a look-up takes, and a change.
//! Run it with `cargo run --release -p muniment-shard --example table_bench`.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::{WIDTH, bound, build, object_id};
use muniment_shard::{Interval, RangeTable, Record, ShardKey, Version};
use muniment_value::doc;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const RANGES: u64 = 1_000_000;
const SHARDS: u64 = 100;
const ROUNDS: u64 = 50;
const LOOKUPS: u64 = 20_000;

fn main() {
    let key = Arc::new(ShardKey::parse(doc! { "_id": 1 }.as_doc()).unwrap());
    let start = Instant::now();
    let table = build(&key, RANGES, SHARDS);
    println!("built {} ranges in {:?}", table.len(), start.elapsed());
    println!("memory: {:.1} MB", table.heap_bytes() as f64 / 1e6);

    look_up(&key, &table);

    let start = Instant::now();
    black_box(table.shards_in(&[Interval::all()]));
    println!("shards of everything: {:?}", start.elapsed());
    let half = Interval::between(bound(&key, RANGES / 4), Some(bound(&key, RANGES / 2)));
    let start = Instant::now();
    black_box(table.shards_in(&[half]));
    println!("shards of a quarter: {:?}", start.elapsed());

    for count in [1, 4, 16] {
        change(&key, &table, count);
    }
}

/// Looks up random keys. Other work on the machine only makes rounds slower, so the fastest one counts too.
fn look_up(key: &ShardKey, table: &RangeTable) {
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let keys: Vec<Vec<u8>> = (0..LOOKUPS)
            .map(|n| between(key, mixed(round * LOOKUPS + n)))
            .collect();
        let start = Instant::now();
        let sum: usize = keys.iter().map(|k| table.owner(black_box(k))).sum();
        black_box(sum);
        times.push(start.elapsed().as_nanos() / u128::from(LOOKUPS));
    }
    times.sort_unstable();
    println!(
        "look-up: {} ns (at best {} ns)",
        times[times.len() / 2],
        times[0]
    );
}

/// Moves ranges in `count` places of the table.
fn change(key: &ShardKey, table: &RangeTable, count: u64) {
    let mut times = Vec::new();
    for round in 0..50 {
        let changes = (0..count)
            .map(|n| {
                let at = mixed(round * count + n) % (RANGES - 2) + 1;
                Record {
                    min: bound(key, at),
                    max: bound(key, at + 1),
                    shard: format!("shard{}", at % SHARDS).into(),
                    version: Version::new(2, n as u32),
                }
            })
            .collect();
        let start = Instant::now();
        black_box(table.apply(changes).unwrap());
        times.push(start.elapsed());
    }
    times.sort();
    let median: Duration = times[times.len() / 2];
    println!(
        "{count} moves: {median:?} (at most {:?})",
        times[times.len() - 1]
    );
}

/// A key somewhere in the table.
fn between(key: &ShardKey, random: u64) -> Vec<u8> {
    object_id(key, random % (RANGES * WIDTH))
}

fn mixed(n: u64) -> u64 {
    let n = (n ^ n >> 31).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    n ^ n >> 29
}
