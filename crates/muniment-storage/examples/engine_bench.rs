//! What the store costs over the raw engine, in interleaved rounds and in ratios.
//!
//! `cargo run --release -p muniment-storage --example engine_bench [--quick]`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::Bytes;
use fjall::{Keyspace, OwnedWriteBatch, PersistMode};
use muniment_query::NeverInterrupted;
use muniment_storage::engine::{Budget, Space, database_options, options, seal_if_full};
use muniment_storage::{
    Collection, CollectionOptions, Direction, IndexSpec, KeyRange, Store, StoreOptions,
};
use muniment_value::{DocBuf, Value, doc};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A document of 113 bytes with an ascending ObjectId.
fn small(n: u64) -> Bytes {
    let mut id = [0u8; 12];
    id[4..].copy_from_slice(&n.to_be_bytes());
    let d = doc! {
        "_id": Value::ObjectId(id),
        "field": (n % 1000) as i32,
        "name": "a name that has some length, as names have",
        "value": n as i64,
        "x": 1.5,
    };
    Bytes::from(d.into_bytes())
}

fn large(n: u64, random: i64) -> Bytes {
    let mut id = [0u8; 12];
    id[4..].copy_from_slice(&n.to_be_bytes());
    let mut text = String::with_capacity(2300);
    let mut x = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    while text.len() < 2300 {
        x = x
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        text.push_str(&format!("{:x} ", x >> 40));
    }
    let d = doc! { "_id": Value::ObjectId(id), "r": random, "text": text.as_str() };
    Bytes::from(d.into_bytes())
}

struct Raw {
    db: fjall::Database,
    docs: Keyspace,
    budget: Budget,
}

impl Raw {
    fn open(dir: &std::path::Path, cache: u64) -> Raw {
        let budget = Budget::of(cache);
        let db = database_options(dir, budget).open().unwrap();
        let docs = db.keyspace("docs", || options(Space::Docs)).unwrap();
        Raw { db, docs, budget }
    }

    fn put(&self, docs: &[Bytes]) {
        let mut b = OwnedWriteBatch::with_capacity(self.db.clone(), docs.len())
            .durability(Some(PersistMode::Buffer));
        for d in docs {
            let mut key = vec![0, 0, 0, 1];
            key.extend_from_slice(&d[9..21]);
            b.insert(&self.docs, key, d.clone());
        }
        b.commit().unwrap();
        seal_if_full(&self.docs, Space::Docs, self.budget).unwrap();
    }
}

fn put(store: &Store, c: &Arc<Collection>, docs: &[Bytes]) {
    let mut w = store.write_set(c).unwrap();
    for d in docs {
        w.insert(d.clone()).unwrap();
    }
    w.commit().unwrap();
}

fn rss() -> u64 {
    let s = std::fs::read_to_string("/proc/self/statm").unwrap();
    (s.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096) >> 20
}

/// Seconds of CPU this thread has used: the machine may be busy with other things.
fn cpu() -> f64 {
    // SAFETY: clock_gettime writes the struct it is given.
    unsafe {
        let mut t: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t);
        t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
    }
}

fn median(v: &mut [f64]) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

/// Time for `rounds` batches of `n` documents, raw and through the store, interleaved.
fn inserts(n: usize, rounds: u64, what: &str) {
    let dirs = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let raw = Raw::open(dirs.0.path(), 64 << 20);
    let store = Store::open(StoreOptions {
        cache_bytes: 64 << 20,
        ..StoreOptions::new(dirs.1.path())
    })
    .unwrap();
    let c = store
        .create_collection("db.c", CollectionOptions::default())
        .unwrap();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let docs: Vec<Bytes> = (0..n as u64).map(|i| small(round * n as u64 + i)).collect();
        let start = Instant::now();
        raw.put(&docs);
        a.push(start.elapsed().as_secs_f64() * 1e6);
        let start = Instant::now();
        put(&store, &c, &docs);
        b.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let (a, b) = (median(&mut a), median(&mut b));
    println!(
        "{what}: raw {a:.2} µs, store {b:.2} µs a batch; rate {:.2} × raw",
        a / b
    );
}

fn scans(docs: u64) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions {
        cache_bytes: 512 << 20,
        ..StoreOptions::new(dir.path())
    })
    .unwrap();
    let c = store
        .create_collection("db.c", CollectionOptions::default())
        .unwrap();
    for batch in 0..docs / 1000 {
        let batch: Vec<Bytes> = (0..1000).map(|i| small(batch * 1000 + i)).collect();
        put(&store, &c, &batch);
    }
    std::thread::sleep(Duration::from_secs(2));
    for round in 0..3 {
        let start = cpu();
        let mut cursor = store
            .snapshot()
            .docs(&c, &KeyRange::all(), Direction::Forward);
        let (mut n, mut bytes) = (0u64, 0);
        while let Some((_, d)) = cursor.next().unwrap() {
            n += 1;
            bytes += d.len();
        }
        let took = cpu() - start;
        println!(
            "scan {round}: {n} documents of {} bytes, {:.2} M/s of CPU",
            bytes as u64 / n,
            n as f64 / took / 1e6
        );
    }
    let start = cpu();
    let reads = 200_000;
    let mut x = 1u64;
    for _ in 0..reads {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1);
        let mut id = [0u8; 12];
        id[4..].copy_from_slice(&((x >> 33) % docs).to_be_bytes());
        let key = c.record_key_of_id(Value::ObjectId(id));
        assert!(store.snapshot().get(&c, &key).unwrap().is_some());
    }
    println!(
        "point reads: {:.2} µs of CPU each",
        (cpu() - start) * 1e6 / reads as f64
    );
    let start = cpu();
    let updates = 50_000;
    for _ in 0..updates {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1);
        let n = (x >> 33) % docs;
        let new = small(n);
        let key = c.record_key_of_id(muniment_value::Doc::new(&new).get("_id").unwrap());
        let mut w = store.write_set(&c).unwrap();
        let old = w.lock(&key).unwrap().unwrap();
        w.update(&key, &old, new, &|_| true).unwrap();
        w.commit().unwrap();
    }
    println!(
        "updates: {:.2} µs of CPU each",
        (cpu() - start) * 1e6 / updates as f64
    );
}

fn journaled(threads: usize, seconds: f64) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions::new(dir.path())).unwrap();
    let c = store
        .create_collection("db.c", CollectionOptions::default())
        .unwrap();
    let next = AtomicU64::new(0);
    let before = store.stats().journal;
    let start = Instant::now();
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                while start.elapsed().as_secs_f64() < seconds {
                    let mut w = store.write_set(&c).unwrap();
                    w.insert(small(next.fetch_add(1, Relaxed))).unwrap();
                    let commit = w.commit().unwrap().unwrap();
                    store.wait_journaled(commit).unwrap();
                }
            });
        }
    });
    let j = store.stats().journal;
    let (commits, syncs) = (j.commits - before.commits, j.syncs - before.syncs);
    let rate = commits as f64 / start.elapsed().as_secs_f64();
    println!(
        "j:true, {threads} threads: {rate:.0}/s, {:.1} commits a sync, {:.0} µs a sync",
        commits as f64 / syncs as f64,
        (j.sync_micros - before.sync_micros) as f64 / syncs as f64
    );
    rate
}

/// Sustained load of 2.4 KB documents, with or without an index on a random field.
fn sustained(megabytes: u64, indexed: bool, threads: u64) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let cache = 128 << 20;
    let store = Store::open(StoreOptions {
        cache_bytes: cache,
        ..StoreOptions::new(dir.path())
    })
    .unwrap();
    let c = store
        .create_collection("db.c", CollectionOptions::default())
        .unwrap();
    if indexed {
        let spec = doc! { "key": doc! { "r": 1 }, "name": "r_1" };
        let spec = IndexSpec::parse(DocBuf::as_doc(&spec)).unwrap();
        store.create_index(&c, spec, &NeverInterrupted).unwrap();
    }
    let total = megabytes * 1_000_000 / 2400;
    let next = AtomicU64::new(0);
    let longest = AtomicU64::new(0);
    let over = AtomicU64::new(0);
    let peak = AtomicU64::new(0);
    let tenths: Vec<AtomicU64> = (0..10).map(|_| AtomicU64::new(0)).collect();
    let start = Instant::now();
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Relaxed);
                    if n >= total {
                        return;
                    }
                    let random = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1;
                    let d = large(n, random as i64);
                    let one = Instant::now();
                    let mut w = store.write_set(&c).unwrap();
                    w.insert(d).unwrap();
                    w.commit().unwrap();
                    let took = one.elapsed().as_micros() as u64;
                    longest.fetch_max(took, Relaxed);
                    over.fetch_add(u64::from(took > 250_000), Relaxed);
                    if n.is_multiple_of(1000) {
                        peak.fetch_max(rss(), Relaxed);
                    }
                    tenths[(n * 10 / total) as usize]
                        .fetch_max(start.elapsed().as_micros() as u64, Relaxed);
                }
            });
        }
    });
    let took = start.elapsed().as_secs_f64();
    let rate = total as f64 / took;
    let first = tenths[0].load(Relaxed) as f64;
    let last = (tenths[9].load(Relaxed) - tenths[8].load(Relaxed)) as f64;
    println!(
        "{megabytes} MB, {threads} threads, {}: {rate:.0} inserts/s, last tenth {:.2} × first, \
         longest stall {:.0} ms ({} over 250 ms), held back {:.1} s in all, peak RSS {} MB (cache {} MB, before \
         {} MB), disk {} MB",
        if indexed { "random index" } else { "no index" },
        first / last,
        longest.load(Relaxed) as f64 / 1e3,
        over.load(Relaxed),
        store.stats().delayed_micros as f64 / 1e6,
        peak.load(Relaxed),
        cache >> 20,
        store.stats().cache_used >> 20,
        store.stats().disk_bytes >> 20,
    );
    rate
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let quick = args.iter().any(|a| a == "--quick");
    let only = args.iter().skip(1).find(|a| !a.starts_with('-')).cloned();
    let run = |name: &str| only.as_deref().is_none_or(|o| o == name);
    if run("insert") {
        inserts(1000, if quick { 200 } else { 1000 }, "1000 small documents");
        inserts(1, 100_000, "one small document");
    }
    if run("scan") {
        scans(1_000_000);
    }
    if run("journal") {
        let one = journaled(1, 2.0);
        let many = journaled(64, 2.0);
        println!("64 threads are {:.1} × one", many / one);
    }
    if run("sustained") {
        let mb = if quick { 1000 } else { 5000 };
        let plain = sustained(mb, false, 8);
        let indexed = sustained(mb, true, 8);
        println!("the index leaves {:.2} of the rate", indexed / plain);
    }
}
