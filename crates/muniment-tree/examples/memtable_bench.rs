//! Compares the memtable with a skip list, an adaptive radix tree and the standard library's B-tree:
//! ascending, random and hot keys, one thread and four.
//!
//! `cargo run --release -p muniment-tree --example memtable_bench [keys] [rounds] [which]`
//!
//! The figures are microseconds of processor time per operation, the median of the rounds, which are
//! interleaved. Versions are stored as in the memtable of an LSM tree: in the skip list and the B-tree under
//! (key, timestamp descending). The radix tree has only the newest version (it has no room for more). It is
//! guarded by one lock, like the B-tree.

use bytes::Bytes;
use crossbeam_skiplist::SkipMap;
use muniment_io::Timestamp;
use muniment_tree::memory::MemoryTrees;
use muniment_tree::{Direction, Op, Range, TreeId, Trees};
use parking_lot::RwLock;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const TREE: TreeId = TreeId(1);
const KEY: usize = 16;
const VALUE: usize = 120;
/// How many documents share one buffer, as those of one command do.
const UNIT: usize = 1000;

type Row = (Bytes, Bytes);

/// One of the compared structures.
trait Table: Sync {
    fn put(&self, rows: &[Row], at: u64);
    fn get(&self, key: &Bytes) -> bool;
    /// The number of rows in a scan of everything.
    fn scan(&self) -> usize;
}

struct Ours(Arc<MemoryTrees>);

impl Table for Ours {
    fn put(&self, rows: &[Row], at: u64) {
        let op = |(key, value): &Row| Op {
            tree: TREE,
            key: key.clone(),
            value: Some(value.clone()),
            fresh: false,
        };
        self.0.apply(rows.iter().map(op).collect(), Timestamp(at));
        self.0.views().advance(Timestamp(at));
    }

    fn get(&self, key: &Bytes) -> bool {
        matches!(self.0.get(TREE, key, Timestamp::MAX), Ok(Some(_)))
    }

    fn scan(&self) -> usize {
        let view = self.0.views().open();
        let (at, all) = (view.timestamp(), Range::default());
        let mut cursor = self.0.cursor(TREE, all, at, Direction::Forward);
        let mut n = 0;
        while let Ok(Some(row)) = cursor.next(&muniment_op::NeverInterrupted) {
            black_box(row);
            n += 1;
        }
        n
    }
}

#[derive(Default)]
struct Skip(SkipMap<(Bytes, Reverse<u64>), Bytes>);

impl Table for Skip {
    fn put(&self, rows: &[Row], at: u64) {
        for (key, value) in rows {
            self.0.insert((key.clone(), Reverse(at)), value.clone());
        }
    }

    fn get(&self, key: &Bytes) -> bool {
        let from = (key.clone(), Reverse(u64::MAX));
        let found = self.0.range(from..).next();
        found.is_some_and(|e| e.key().0 == *key && !e.value().clone().is_empty())
    }

    fn scan(&self) -> usize {
        let (mut n, mut last) = (0, Bytes::new());
        for entry in self.0.iter() {
            if entry.key().0 != last {
                last = entry.key().0.clone();
                black_box(entry.value().clone());
                n += 1;
            }
        }
        n
    }
}

#[derive(Default)]
struct Radix(RwLock<blart::TreeMap<[u8; KEY], Bytes>>);

fn fixed(key: &Bytes) -> [u8; KEY] {
    key.first_chunk().copied().unwrap_or_default()
}

impl Table for Radix {
    fn put(&self, rows: &[Row], _: u64) {
        for (key, value) in rows {
            self.0.write().insert(fixed(key), value.clone());
        }
    }

    fn get(&self, key: &Bytes) -> bool {
        self.0.read().get(&fixed(key)).cloned().is_some()
    }

    fn scan(&self) -> usize {
        let mut n = 0;
        for (key, value) in self.0.read().iter() {
            black_box((key, value.clone()));
            n += 1;
        }
        n
    }
}

#[derive(Default)]
struct Standard(RwLock<BTreeMap<(Bytes, Reverse<u64>), Bytes>>);

impl Table for Standard {
    fn put(&self, rows: &[Row], at: u64) {
        for (key, value) in rows {
            let key = (key.clone(), Reverse(at));
            self.0.write().insert(key, value.clone());
        }
    }

    fn get(&self, key: &Bytes) -> bool {
        let from = (key.clone(), Reverse(u64::MAX));
        let map = self.0.read();
        let found = map.range(from..).next();
        found.is_some_and(|(k, v)| k.0 == *key && !v.clone().is_empty())
    }

    fn scan(&self) -> usize {
        let (mut n, mut last) = (0, Bytes::new());
        for ((key, _), value) in self.0.read().iter() {
            if *key != last {
                last = key.clone();
                black_box(value.clone());
                n += 1;
            }
        }
        n
    }
}

/// Rows with the keys `key(i)`, in buffers of `UNIT` rows.
fn rows(n: usize, key: impl Fn(u64) -> u64) -> Vec<Row> {
    let mut all = Vec::with_capacity(n);
    for first in (0..n).step_by(UNIT) {
        let mut unit = Vec::with_capacity(UNIT * (KEY + VALUE));
        let end = (first + UNIT).min(n);
        for i in first..end {
            // The key is like that of an ObjectId: a common prefix, then the distinct part.
            unit.extend_from_slice(b"\x07\x66\xa0\x00\x01abc");
            unit.extend_from_slice(&key(i as u64).to_be_bytes());
            unit.extend_from_slice(&[b'v'; VALUE]);
        }
        let unit = Bytes::from(unit);
        for i in 0..end - first {
            let at = i * (KEY + VALUE);
            let value = unit.slice(at + KEY..at + KEY + VALUE);
            all.push((unit.slice(at..at + KEY), value));
        }
    }
    all
}

/// Nanoseconds that this thread has run on a processor (on Linux).
fn cpu() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = stat.split(' ').next();
    first.and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Microseconds of processor time per operation, when `threads` threads share `n` operations.
fn timed(n: usize, threads: usize, work: impl Fn(usize) + Sync) -> f64 {
    let spent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (work, spent) = (&work, &spent);
            scope.spawn(move || {
                let before = cpu();
                work(thread);
                spent.fetch_add(cpu() - before, SeqCst);
            });
        }
    });
    spent.load(SeqCst) as f64 / 1e3 / n as f64
}

/// Writes the rows, `unit` per commit. Each thread has units of its own.
fn put(table: &dyn Table, rows: &[Row], unit: usize, threads: usize) -> f64 {
    let clock = AtomicU64::new(1);
    timed(rows.len(), threads, |thread| {
        for rows in rows.chunks(unit).skip(thread).step_by(threads) {
            table.put(rows, clock.fetch_add(1, SeqCst));
        }
    })
}

fn get(table: &dyn Table, rows: &[Row], threads: usize) -> f64 {
    timed(rows.len(), threads, |thread| {
        for (key, _) in rows.iter().skip(thread).step_by(threads) {
            assert!(table.get(key));
        }
    })
}

fn scan(table: &dyn Table, n: usize) -> f64 {
    timed(n, 1, |_| assert_eq!(table.scan(), n))
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<usize>());
    let mut argument = |or| arguments.next().and_then(Result::ok).unwrap_or(or);
    let (n, rounds) = (argument(1_000_000), argument(3));
    let only = argument(usize::MAX);
    let mix = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let ascending = rows(n, |i| i);
    let random = rows(n, mix);
    // These are the same keys in another order.
    let looked = rows(n, |i| mix(mix(i) % n as u64));
    let hot = rows(n, |_| 1);
    type Make = fn() -> Box<dyn Table>;
    let tables: [(&str, Make); 4] = [
        ("leaves", || Box::new(Ours(MemoryTrees::new()))),
        ("skip list", || Box::<Skip>::default()),
        ("radix", || Box::<Radix>::default()),
        ("BTreeMap", || Box::<Standard>::default()),
    ];
    let mut figures: BTreeMap<(usize, &str), Vec<Vec<f64>>> = BTreeMap::new();
    for _ in 0..rounds {
        for (i, (_, make)) in tables.iter().enumerate() {
            if only != usize::MAX && only != i {
                continue;
            }
            let mut note = |line: (usize, &'static str), figure: f64| {
                let line = figures.entry(line).or_default();
                line.resize(tables.len(), Vec::new());
                line[i].push(figure);
            };
            for threads in [1, 4] {
                let of = |one, four| if threads == 1 { one } else { four };
                let table = make();
                let took = put(&*table, &ascending, 1, threads);
                note(
                    of((0, "ascending put"), (10, "ascending put, 4 threads")),
                    took,
                );
                let took = scan(&*table, n);
                note(
                    of((6, "scan, a row"), (16, "scan, filled by 4 threads")),
                    took,
                );
                let table = make();
                let took = put(&*table, &ascending, UNIT, threads);
                note(
                    of(
                        (1, "ascending, 1000 a commit"),
                        (11, "ascending, 1000 a commit, 4"),
                    ),
                    took,
                );
                let table = make();
                let took = put(&*table, &random, 1, threads);
                note(of((2, "random put"), (12, "random put, 4 threads")), took);
                let took = get(&*table, &looked, threads);
                note(of((4, "get"), (14, "get, 4 threads")), took);
                let took = scan(&*table, n);
                note(
                    of(
                        (7, "scan of random, a row"),
                        (17, "scan of random, filled by 4"),
                    ),
                    took,
                );
                let took = put(&*table, &random, 1, threads);
                note(
                    of((5, "random overwrite"), (15, "random overwrite, 4 threads")),
                    took,
                );
                let table = make();
                if threads == 1 {
                    note((3, "hot overwrite"), put(&*table, &hot, 1, 1));
                }
            }
        }
    }
    print!("{:30}", format!("µs, {n} keys"));
    for (name, _) in &tables {
        print!("{name:>18}");
    }
    println!();
    for ((_, line), of) in &mut figures {
        print!("{line:30}");
        let mut base = f64::NAN;
        for figures in of {
            figures.sort_by(f64::total_cmp);
            let Some(median) = figures.get(figures.len() / 2).copied() else {
                continue;
            };
            if base.is_nan() {
                base = median;
                print!("{median:>18.3}");
            } else {
                print!("{:>18}", format!("{median:.3} ({:.1}x)", median / base));
            }
        }
        println!();
    }
}
