//! Measures the durable engine: `cargo run --release --example lsm_bench -- [DIR] [SCALE]`.
//!
//! Everything goes through the trait, as with the commit door: batches with rising timestamps, a seal when
//! the memtable is full, a pause of the writer while two memtables wait for their flush. The figures are
//! those of this machine at this moment; "CPU" is the calling thread's, on which other load has no effect.

use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_op::NeverInterrupted;
use muniment_tree::lsm::{LsmOptions, LsmTrees};
use muniment_tree::{Batch, Direction, Op, Range, TreeId, Trees};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MEMTABLE: u64 = 64 << 20;
const DOCUMENTS: TreeId = TreeId(1);
const RANDOM: TreeId = TreeId(2);
const QUEUE: TreeId = TreeId(3);

/// Scatters numbers, so that they have no visible order.
fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
    let n = (n ^ (n >> 27)).wrapping_mul(0x81da_def4_bc2d_d44d);
    n ^ (n >> 33)
}

/// 120 bytes, about half of which can be compressed.
fn document(n: u64) -> Bytes {
    let mut out = Vec::with_capacity(120);
    for i in 0..8 {
        out.extend_from_slice(&mix(n * 8 + i).to_le_bytes());
    }
    out.extend_from_slice(
        b"\x02name\0\x10\0\0\0the same in all\0\x10count\0\x01\0\0\0\x08active\0\x01\0\0\0\0",
    );
    out.resize(120, 0);
    Bytes::from(out)
}

fn op(tree: TreeId, key: u64, value: Option<Bytes>, fresh: bool) -> Op {
    Op {
        tree,
        key: Bytes::copy_from_slice(&key.to_be_bytes()),
        value,
        fresh,
    }
}

struct Bench {
    trees: Arc<LsmTrees>,
    now: u64,
    longest: Duration,
    waited: Duration,
}

impl Bench {
    fn commit(&mut self, batch: Batch) {
        let begin = Instant::now();
        self.now += 1;
        let at = Timestamp(self.now);
        self.trees.apply(batch, at);
        self.trees.views().advance(at);
        self.longest = self.longest.max(begin.elapsed());
        if self.now.is_multiple_of(16) {
            let sizes = self.trees.sizes();
            if sizes.memory - sizes.sealed >= MEMTABLE {
                let begin = Instant::now();
                while self.trees.sizes().sealed_count >= 2 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                self.waited += begin.elapsed();
                let begin = Instant::now();
                let sealed = self.trees.seal(at);
                self.longest = self.longest.max(begin.elapsed());
                assert!(sealed.is_ok());
            }
        }
    }

    fn settle(&self) -> Result<(), muniment_value::Error> {
        self.trees.seal(Timestamp(self.now))?;
        self.trees.flush()?;
        let mut last = (0, Instant::now());
        while last.1.elapsed() < Duration::from_millis(1500) {
            std::thread::sleep(Duration::from_millis(50));
            let written = self.trees.sizes().compacted;
            if written != last.0 {
                last = (written, Instant::now());
            }
        }
        Ok(())
    }

    fn told(&mut self) -> String {
        let text = format!(
            "longest put {:.1?}, waited {:.1?}",
            self.longest, self.waited
        );
        (self.longest, self.waited) = (Duration::ZERO, Duration::ZERO);
        text
    }
}

/// The wall clock and the CPU time of the thread at the start.
struct Clock(Instant, u64);

impl Clock {
    fn start() -> Clock {
        Clock(Instant::now(), cpu())
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// Microseconds for each of `n` operations.
    fn each(&self, n: u64) -> String {
        let wall = self.elapsed().as_secs_f64() * 1e6 / n as f64;
        let busy = (cpu() - self.1) as f64 / 1e3 / n as f64;
        format!("{wall:.2} µs (CPU {busy:.2})")
    }

    /// Millions of operations per second.
    fn rate(&self, n: u64) -> String {
        let wall = n as f64 / self.elapsed().as_secs_f64() / 1e6;
        let busy = n as f64 * 1e3 / (cpu() - self.1).max(1) as f64;
        format!("{wall:.1} M/s (of CPU time {busy:.1})")
    }
}

/// Nanoseconds of CPU time that this thread has used (on Linux; zero elsewhere).
fn cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn scan(
    bench: &Bench,
    tree: TreeId,
    dir: Direction,
) -> Result<(u64, String), muniment_value::Error> {
    let view = bench.trees.views().open();
    let begin = Clock::start();
    let mut cursor = bench
        .trees
        .cursor(tree, Range::default(), view.timestamp(), dir);
    let mut rows = 0;
    while cursor.next(&NeverInterrupted)?.is_some() {
        rows += 1;
    }
    Ok((rows, begin.rate(rows)))
}

fn main() -> Result<(), muniment_value::Error> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| "lsm-bench".into());
    let scale: u64 = args.next().and_then(|s| s.parse().ok()).unwrap_or(4);
    let _ = std::fs::remove_dir_all(&dir);
    let mut options = LsmOptions::new(&dir);
    options.memtable_bytes = MEMTABLE;
    options.cache_bytes = 512 << 20;
    let mut bench = Bench {
        trees: LsmTrees::open(options)?,
        now: 0,
        longest: Duration::ZERO,
        waited: Duration::ZERO,
    };

    let n = scale * 1_000_000;
    let begin = Clock::start();
    for first in (0..n).step_by(1000) {
        let batch = (first..first + 1000).map(|i| op(DOCUMENTS, i, Some(document(i)), true));
        bench.commit(batch.collect());
    }
    bench.trees.seal(Timestamp(bench.now))?;
    bench.trees.flush()?;
    println!(
        "ascending, 1000 a batch: {} a document; {}",
        begin.each(n),
        bench.told()
    );
    bench.settle()?;
    let sizes = bench.trees.sizes();
    println!(
        "  {} MB on disk, flushed {} MB, compacted {} MB",
        sizes.disk >> 20,
        sizes.flushed >> 20,
        sizes.compacted >> 20
    );

    for dir in [Direction::Forward, Direction::Backward] {
        let (rows, cold) = scan(&bench, DOCUMENTS, dir)?;
        let (_, warm) = scan(&bench, DOCUMENTS, dir)?;
        println!("scan {dir:?}: {rows} rows, {cold}, again {warm}");
    }
    let view = bench.trees.views().open();
    for round in ["first", "again"] {
        let gets = 500_000u64;
        let begin = Clock::start();
        for i in 0..gets {
            let key = (mix(i) % n).to_be_bytes();
            let found = bench.trees.get(DOCUMENTS, &key, view.timestamp())?;
            assert!(found.is_some());
        }
        println!("get, {round}: {}", begin.each(gets));
    }
    drop(view);

    let before = bench.trees.sizes();
    let begin = Clock::start();
    let n = 2 * n;
    for first in (0..n).step_by(10) {
        let batch = (first..first + 10).map(|i| op(RANDOM, mix(i), Some(document(i)), false));
        bench.commit(batch.collect());
    }
    println!(
        "random keys, 10 a batch: {} a document; {}",
        begin.each(n),
        bench.told()
    );
    bench.settle()?;
    let sizes = bench.trees.sizes();
    let flushed = sizes.flushed - before.flushed;
    let compacted = sizes.compacted - before.compacted;
    println!(
        "  flushed {} MB, compacted {} MB: write amplification {:.1}; {:.1} s in all",
        flushed >> 20,
        compacted >> 20,
        (flushed + compacted) as f64 / flushed as f64,
        begin.elapsed().as_secs_f64()
    );
    let (rows, rate) = scan(&bench, RANDOM, Direction::Forward)?;
    println!("scan: {rows} rows, {rate}");

    let view = bench.trees.views().open();
    for (what, offset, there) in [("get", 0, true), ("get of what is not there", n, false)] {
        let gets = 300_000u64.min(n);
        let begin = Clock::start();
        for i in 0..gets {
            let key = mix(offset + mix(i) % n).to_be_bytes();
            let found = bench.trees.get(RANDOM, &key, view.timestamp())?;
            assert_eq!(found.is_some(), there);
        }
        println!("{what}, random keys: {}", begin.each(gets));
    }
    drop(view);

    // A queue: new entries are added at the end and the oldest taken from the beginning, with 20,000 in
    // between.
    let n = scale * 250_000;
    let begin = Clock::start();
    let mut found = Duration::ZERO;
    let mut slowest = Duration::ZERO;
    for i in 0..n {
        let mut batch = vec![op(QUEUE, i, Some(document(i)), true)];
        if i >= 20_000 {
            let begin = Instant::now();
            let at = Timestamp(bench.now);
            let all = Range::default();
            let first = bench
                .trees
                .cursor(QUEUE, all, at, Direction::Forward)
                .next(&NeverInterrupted)?;
            found += begin.elapsed();
            slowest = slowest.max(begin.elapsed());
            if let Some((key, _)) = first {
                batch.push(Op {
                    tree: QUEUE,
                    key,
                    value: None,
                    fresh: false,
                });
            }
        }
        batch.sort_by(|a, b| a.key.cmp(&b.key));
        bench.commit(batch);
        // The periodic checkpoint does the same.
        if i % 250_000 == 249_999 {
            bench.trees.seal(Timestamp(bench.now))?;
        }
    }
    println!(
        "queue: {} an insert and a take, of it {:.2} µs to find the first (slowest {slowest:.1?}); {}",
        begin.each(n),
        found.as_secs_f64() * 1e6 / n as f64,
        bench.told()
    );

    // All documents of a collection are deleted, then it is scanned.
    let batches = (0..50u64).map(|b| b * 1000..(b + 1) * 1000);
    for keys in batches.clone() {
        bench.commit(
            keys.map(|i| op(TreeId(4), i, Some(document(i)), true))
                .collect(),
        );
    }
    bench.settle()?;
    for keys in batches {
        bench.commit(keys.map(|i| op(TreeId(4), i, None, false)).collect());
    }
    let time = |bench: &Bench| -> Result<Duration, muniment_value::Error> {
        let begin = Clock::start();
        scan(bench, TreeId(4), Direction::Forward)?;
        Ok(begin.elapsed())
    };
    let hot = time(&bench)?;
    bench.settle()?;
    println!(
        "an emptied collection of 50,000: scan {hot:.1?}, after a flush {:.1?}",
        time(&bench)?
    );

    let begin = Clock::start();
    bench.trees.drop_tree(RANDOM, Timestamp(bench.now));
    bench.trees.seal(Timestamp(bench.now))?;
    bench.settle()?;
    println!(
        "dropped: {} bytes left after {:.1} s; cache {} of {} MB",
        bench.trees.tree_bytes(RANDOM),
        begin.elapsed().as_secs_f64(),
        bench.trees.sizes().cache_used >> 20,
        bench.trees.sizes().cache_capacity >> 20
    );
    bench.trees.close();
    let begin = Clock::start();
    drop(bench);
    let trees = LsmTrees::open(LsmOptions::new(&dir))?;
    println!("opened in {:.1?}", begin.elapsed());
    drop(trees);
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}
