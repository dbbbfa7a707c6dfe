//! A cluster of 1,000 shards, 10,000,000 chunks and 200 routers: what the tables take, how long a round of the balancer
//! computes, and what the configuration's primary has to answer when ranges move.
//! Run it with `cargo run --release -p muniment-shard --example scale`.
//!
//! The first two are measured with the code that servers run. The third one is a simulation: moves come at random, a
//! router learns of one when an operation of its clients meets a shard with another version, and then asks for the
//! collection and for the chunks that have changed. All routers stand in one line at the primary, which takes
//! [`QUERY`] for a question and [`DOCUMENT`] for each document of the answer.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use common::{bound, build};
use muniment_shard::balance::{CHUNK_BYTES, Load, plan};
use muniment_shard::catalog::{Chunk, Owner};
use muniment_shard::{RangeTable, Record, ShardKey, Timestamp, Version, Zones};
use muniment_value::doc;
use std::collections::{BTreeSet, VecDeque};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const RANGES: u64 = 10_000_000;
const SHARDS: u64 = 1_000;
const ROUTERS: usize = 200;
/// The operations a second at each router.
const OPERATIONS: f64 = 10_000.0;
/// Seconds of the primary's CPU time for a question and for a document of an answer. Measured with a server of its own,
/// on two cores, release build: finds of none, of two and of 10,000 documents like these by an index.
const QUERY: f64 = 30e-6;
const DOCUMENT: f64 = 1.2e-6;
/// The time from a router to the primary and back, s.
const ROUND_TRIP: f64 = 0.5e-3;
/// What is simulated of each rate of moves, s.
const SECONDS: f64 = 20.0;

fn main() {
    let key = Arc::new(ShardKey::parse(doc! { "_id": 1 }.as_doc()).unwrap());
    let begun = Instant::now();
    let table = build(&key, RANGES, SHARDS);
    println!("{RANGES} ranges on {SHARDS} shards");
    println!("  built in {:.1} s", begun.elapsed().as_secs_f64());
    println!(
        "  a router's table: {:.0} MB",
        table.heap_bytes() as f64 / 1e6
    );
    let document = chunk(&key).as_doc().byte_len();
    let all = document as u64 * RANGES;
    println!(
        "  a chunk's document: {document} bytes; all of them {:.1} GB",
        all as f64 / 1e9
    );
    change(&key, &table);
    balancer(&table);
    println!(
        "\n{ROUTERS} routers with {OPERATIONS} operations/s each, s of the primary's time a second"
    );
    for moves in [1.0, 10.0, 100.0, 1_000.0] {
        storm(moves, document);
    }
    at_once(document);
}

/// One move, as a router applies it.
fn change(key: &ShardKey, table: &RangeTable) {
    let record = |n: u64| Record {
        min: bound(key, n),
        max: bound(key, n + 1),
        shard: format!("shard{}", (n + 1) % SHARDS).into(),
        version: Version::new(2, 0),
    };
    let mut times: Vec<f64> = (0..9)
        .map(|n| {
            let changes = vec![record(RANGES / 10 * (n + 1))];
            let begun = Instant::now();
            black_box(table.apply(changes).unwrap());
            begun.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("  one move in a table: {:.2} ms", times[4] * 1e3);
}

/// A round, as the primary of the configuration computes it: half of the shards have twice the data of the others.
fn balancer(table: &RangeTable) {
    let zones = Zones::default();
    let loads: Vec<Load> = (0..SHARDS)
        .map(|n| Load {
            name: format!("shard{n}").into(),
            bytes: (1 + n % 2) * 10_000 * CHUNK_BYTES,
            draining: false,
            zones: Vec::new(),
        })
        .collect();
    let begun = Instant::now();
    let round = plan(table, &zones, &loads, &BTreeSet::new(), CHUNK_BYTES);
    println!(
        "  a round of the balancer: {:.2} s, {} moves at the same time",
        begun.elapsed().as_secs_f64(),
        round.migrations.len()
    );
}

/// A router in the simulation.
#[derive(Clone, Copy)]
struct Router {
    /// How many moves it knows of.
    knows: usize,
    /// When an operation next meets a shard that knows better, or when the router's read is answered.
    next: f64,
    reads: bool,
}

/// Moves at this rate, each of which gives two shards a new version.
fn storm(rate: f64, document: usize) {
    let mut random = Random(7);
    let mut moves = VecDeque::new();
    let mut at = 0.0;
    while at < SECONDS {
        at += random.exponential(rate);
        moves.push_back(at);
    }
    let idle = Router {
        knows: 0,
        next: f64::INFINITY,
        reads: false,
    };
    let mut routers = vec![idle; ROUTERS];
    let (mut made, mut free, mut busy) = (0, 0.0_f64, 0.0);
    let (mut reads, mut documents) = (0_u64, 0_u64);
    let mut waits = Vec::new();
    loop {
        let first = (0..ROUTERS).min_by(|a, b| routers[*a].next.total_cmp(&routers[*b].next));
        let first = first.unwrap();
        let moved = moves.front().copied().unwrap_or(f64::INFINITY);
        let now = moved.min(routers[first].next);
        if now > SECONDS {
            break;
        }
        if moved <= routers[first].next {
            moves.pop_front();
            made += 1;
            for router in routers.iter_mut().filter(|r| !r.reads) {
                router.next = now + meets(&mut random, made - router.knows);
            }
            continue;
        }
        let router = &mut routers[first];
        if router.reads {
            router.reads = false;
            router.next = match made - router.knows {
                0 => f64::INFINITY,
                behind => now + meets(&mut random, behind),
            };
            continue;
        }
        // It asks for the collection, and then for its chunks: two each.
        let told = 2 * (made - router.knows) as u64;
        let takes = 2.0 * QUERY + DOCUMENT * (1 + told) as f64;
        let begins = free.max(now + ROUND_TRIP / 2.0);
        free = begins + takes;
        busy += takes;
        reads += 1;
        documents += told;
        router.knows = made;
        router.reads = true;
        router.next = free + ROUND_TRIP;
        waits.push(router.next - now);
    }
    waits.sort_by(f64::total_cmp);
    let p99 = waits.get(waits.len() * 99 / 100).copied().unwrap_or(0.0);
    println!(
        "  {rate} moves/s: {:.0} reads/s, {:.2} MB/s, the primary busy {:.2}, a read's p99 {:.1} ms",
        reads as f64 / SECONDS,
        documents as f64 * document as f64 / SECONDS / 1e6,
        busy / SECONDS,
        p99 * 1e3
    );
}

/// How long it takes until an operation meets one of the shards that so many moves have touched.
fn meets(random: &mut Random, moves: usize) -> f64 {
    let touched = (2 * moves).min(SHARDS as usize) as f64;
    random.exponential(OPERATIONS * touched / SHARDS as f64)
}

/// All routers begin to use the collection after a night of moves.
fn at_once(document: usize) {
    for changed in [1_000_u64, 100_000, RANGES] {
        let each = 2.0 * QUERY + DOCUMENT * changed as f64;
        println!(
            "  all routers at once after {changed} changed chunks: {:.1} GB, {:.1} s of the primary's time",
            (changed * document as u64 * ROUTERS as u64) as f64 / 1e9,
            each * ROUTERS as f64
        );
    }
}

/// A chunk's document as the configuration has it.
fn chunk(key: &ShardKey) -> muniment_value::DocBuf {
    let bounds = |n| key.bound_doc(&bound(key, n)).unwrap();
    let since = Timestamp::new(1_700_000_000, 1);
    let chunk = Chunk {
        id: [1; 12],
        uuid: [1; 16],
        min: bounds(1),
        max: bounds(2),
        shard: "shard500".into(),
        version: Version::new(1, 1),
        on_current_shard_since: Some(since),
        history: vec![Owner {
            valid_after: since,
            shard: "shard500".into(),
        }],
        jumbo: false,
    };
    chunk.to_doc()
}

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let n = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let n = (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        n ^ n >> 31
    }

    /// A time until the next of events that come at this rate.
    fn exponential(&mut self, rate: f64) -> f64 {
        let unit = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        -(1.0 - unit).ln() / rate
    }
}
