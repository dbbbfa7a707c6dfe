//! Counters: operations, network, latencies, per-namespace times.
//!
//! Invariants: counting on the hot path is a few relaxed adds on a cache line that few threads
//! share, and takes no lock. Every figure is a measurement.

use muniment_storage::spread::Spread;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// The kind of an operation in `opcounters`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum OpKind {
    /// Documents inserted.
    Insert = 0,
    /// find.
    Query = 1,
    /// Update statements.
    Update = 2,
    /// Delete statements.
    Delete = 3,
    /// getMore.
    GetMore = 4,
    /// Everything else.
    Command = 5,
}

/// Names of [`OpKind`] in `opcounters`, in order.
pub const OP_NAMES: [&str; 6] = ["insert", "query", "update", "delete", "getmore", "command"];

/// The kind of an operation in `opLatencies`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum LatencyKind {
    /// Reads.
    Reads = 0,
    /// Writes.
    Writes = 1,
    /// Other commands.
    Commands = 2,
}

/// Names of [`LatencyKind`] in `opLatencies`, in order.
pub const LATENCY_NAMES: [&str; 3] = ["reads", "writes", "commands"];

const SHARDS: usize = 16;

/// Buckets of a [`Histogram`].
const BUCKETS: usize = 51;

/// How many operations took how long, in MongoDB's buckets: powers of two of microseconds, and between 2048
/// and 2²¹ also their middles.
pub struct Histogram([AtomicU64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Histogram {
    /// The fewest microseconds of a bucket.
    fn least(bucket: usize) -> u64 {
        match bucket {
            0 => 0,
            1..=10 => 1 << bucket,
            11..=31 => {
                let whole = 1 << (11 + (bucket - 11) / 2);
                whole
                    + if bucket.is_multiple_of(2) {
                        whole / 2
                    } else {
                        0
                    }
            }
            _ => 1 << (bucket - 10),
        }
    }

    fn bucket_of(micros: u64) -> usize {
        let power = micros.checked_ilog2().unwrap_or(0) as usize;
        let bucket = match power {
            0..=10 => power,
            11..=20 => 11 + 2 * (power - 11) + (micros >> (power - 1) & 1) as usize,
            _ => power + 10,
        };
        bucket.min(BUCKETS - 1)
    }

    /// Counts one operation.
    pub fn add(&self, micros: u64) {
        if let Some(n) = self.0.get(Self::bucket_of(micros)) {
            n.fetch_add(1, Relaxed);
        }
    }

    /// Adds the counts to `sum`.
    fn add_to(&self, sum: &mut Counted) {
        for (sum, n) in sum.0.iter_mut().zip(&self.0) {
            *sum += n.load(Relaxed);
        }
    }
}

/// The sums of several histograms.
#[derive(Clone, Debug)]
pub struct Counted([u64; BUCKETS]);

impl Default for Counted {
    fn default() -> Counted {
        Counted([0; BUCKETS])
    }
}

impl Counted {
    /// The buckets that are not empty: (least microseconds, operations).
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.0.iter().enumerate();
        all.filter(|(_, n)| **n > 0)
            .map(|(i, n)| (Histogram::least(i), *n))
    }
}

#[repr(align(128))]
#[derive(Default)]
struct Shard {
    ops: [AtomicU64; 6],
    latency_count: [AtomicU64; 3],
    latency_micros: [AtomicU64; 3],
    histograms: [Histogram; 3],
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    requests: AtomicU64,
    slow: AtomicU64,
    errors: AtomicU64,
    docs_returned: AtomicU64,
    docs_inserted: AtomicU64,
    docs_updated: AtomicU64,
    docs_deleted: AtomicU64,
}

/// The server's counters.
pub struct Metrics {
    shards: [Shard; SHARDS],
    top: RwLock<HashMap<String, Arc<TopEntry>>>,
    /// User-caused errors (asserts.user).
    pub asserts_user: AtomicU64,
    /// Internal errors (asserts.msg).
    pub asserts_msg: AtomicU64,
    /// TTL: documents deleted.
    pub ttl_deleted: AtomicU64,
    /// TTL: passes.
    pub ttl_passes: AtomicU64,
}

/// After this many operations a namespace is counted at several places, so that threads share no cache line.
const OFTEN: u32 = 64;

/// The counts at one place.
#[derive(Default)]
struct TopFigures {
    /// (time, count) in the order of [`TOP_NAMES`], and at the end those of operations that neither read nor
    /// write.
    figures: [(AtomicU64, AtomicU64); TOP_NAMES.len() + 1],
    /// By [`LatencyKind`]; made when the first operation is counted.
    histograms: [OnceLock<Box<Histogram>>; 3],
}

/// One line of `top`: microseconds and counts, written by relaxed adds.
#[derive(Default)]
pub struct TopEntry {
    /// The counts of the first operations. With very many namespaces, most never have more than these.
    first: TopFigures,
    adds: AtomicU32,
    /// The counts of further operations, spread over cache lines.
    places: OnceLock<Box<Spread<TopFigures, 4>>>,
    /// The namespace was dropped: a thread that keeps this entry has to look it up again.
    pub forgotten: AtomicBool,
}

/// The columns of `top`.
pub const TOP_NAMES: [&str; 9] = [
    "total",
    "readLock",
    "writeLock",
    "queries",
    "getmore",
    "insert",
    "update",
    "remove",
    "commands",
];

/// Sums over all shards.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// By [`OpKind`].
    pub ops: [u64; 6],
    /// By [`LatencyKind`].
    pub latency_count: [u64; 3],
    /// By [`LatencyKind`], microseconds.
    pub latency_micros: [u64; 3],
    /// By [`LatencyKind`].
    pub histograms: [Counted; 3],
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Messages received.
    pub requests: u64,
    /// Operations above `slowms`.
    pub slow: u64,
    /// Commands that answered an error.
    pub errors: u64,
    /// Documents returned by cursors.
    pub docs_returned: u64,
    /// Documents inserted.
    pub docs_inserted: u64,
    /// Documents updated.
    pub docs_updated: u64,
    /// Documents deleted.
    pub docs_deleted: u64,
}

/// The counters as a connection uses them: one of the shards.
#[derive(Clone)]
pub struct Counter {
    metrics: Arc<Metrics>,
    shard: usize,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            shards: std::array::from_fn(|_| Shard::default()),
            top: RwLock::new(HashMap::new()),
            asserts_user: AtomicU64::new(0),
            asserts_msg: AtomicU64::new(0),
            ttl_deleted: AtomicU64::new(0),
            ttl_passes: AtomicU64::new(0),
        }
    }
}

impl Metrics {
    /// The counter of connection `n`.
    pub fn counter(self: &Arc<Metrics>, n: u64) -> Counter {
        Counter {
            metrics: Arc::clone(self),
            shard: n as usize % SHARDS,
        }
    }

    /// The sums.
    pub fn totals(&self) -> Totals {
        let mut t = Totals::default();
        let add = |sum: &mut u64, n: &AtomicU64| *sum += n.load(Relaxed);
        for s in &self.shards {
            t.ops.iter_mut().zip(&s.ops).for_each(|(a, b)| add(a, b));
            for (a, b) in t.latency_count.iter_mut().zip(&s.latency_count) {
                add(a, b);
            }
            for (a, b) in t.latency_micros.iter_mut().zip(&s.latency_micros) {
                add(a, b);
            }
            for (sum, h) in t.histograms.iter_mut().zip(&s.histograms) {
                h.add_to(sum);
            }
            add(&mut t.bytes_in, &s.bytes_in);
            add(&mut t.bytes_out, &s.bytes_out);
            add(&mut t.requests, &s.requests);
            add(&mut t.slow, &s.slow);
            add(&mut t.errors, &s.errors);
            add(&mut t.docs_returned, &s.docs_returned);
            add(&mut t.docs_inserted, &s.docs_inserted);
            add(&mut t.docs_updated, &s.docs_updated);
            add(&mut t.docs_deleted, &s.docs_deleted);
        }
        t
    }

    /// The entry of a namespace. A connection keeps the one that it used last.
    pub fn top_entry(&self, ns: &str) -> Arc<TopEntry> {
        if let Some(e) = self.top.read().get(ns) {
            return Arc::clone(e);
        }
        Arc::clone(self.top.write().entry(ns.to_string()).or_default())
    }

    /// Removes the entry of a namespace (drop, rename).
    pub fn top_forget(&self, ns: &str) {
        if let Some(entry) = self.top.write().remove(ns) {
            entry.forgotten.store(true, Relaxed);
        }
    }

    /// The entries of all namespaces, sorted.
    pub fn top_all(&self) -> Vec<(String, Arc<TopEntry>)> {
        let mut all: Vec<_> = self
            .top
            .read()
            .iter()
            .map(|(k, v)| (k.clone(), Arc::clone(v)))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}

impl Counter {
    fn shard(&self) -> Option<&Shard> {
        self.metrics.shards.get(self.shard)
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Counts `n` operations.
    pub fn op(&self, kind: OpKind, n: u64) {
        if let Some(c) = self.shard().and_then(|s| s.ops.get(kind as usize)) {
            c.fetch_add(n, Relaxed);
        }
    }

    /// Counts one operation's latency.
    pub fn latency(&self, kind: LatencyKind, micros: u64) {
        let Some(s) = self.shard() else { return };
        let k = kind as usize;
        if let (Some(n), Some(sum)) = (s.latency_count.get(k), s.latency_micros.get(k)) {
            n.fetch_add(1, Relaxed);
            sum.fetch_add(micros, Relaxed);
        }
        if let Some(h) = s.histograms.get(k) {
            h.add(micros);
        }
    }

    /// Counts a message and its reply.
    pub fn network(&self, bytes_in: u64, bytes_out: u64) {
        if let Some(s) = self.shard() {
            s.bytes_in.fetch_add(bytes_in, Relaxed);
            s.bytes_out.fetch_add(bytes_out, Relaxed);
            s.requests.fetch_add(1, Relaxed);
        }
    }

    /// Counts a slow operation.
    pub fn slow(&self) {
        if let Some(s) = self.shard() {
            s.slow.fetch_add(1, Relaxed);
        }
    }

    /// Counts a failed command; `internal` for an error that is a bug of the server.
    pub fn error(&self, internal: bool) {
        if let Some(s) = self.shard() {
            s.errors.fetch_add(1, Relaxed);
        }
        if internal {
            self.metrics.asserts_msg.fetch_add(1, Relaxed);
        } else {
            self.metrics.asserts_user.fetch_add(1, Relaxed);
        }
    }

    /// Counts documents: returned, inserted, updated, deleted.
    pub fn documents(&self, returned: u64, inserted: u64, updated: u64, deleted: u64) {
        if let Some(s) = self.shard() {
            for (c, n) in [
                (&s.docs_returned, returned),
                (&s.docs_inserted, inserted),
                (&s.docs_updated, updated),
                (&s.docs_deleted, deleted),
            ] {
                if n != 0 {
                    c.fetch_add(n, Relaxed);
                }
            }
        }
    }
}

impl TopEntry {
    /// (time, count) in the order of [`TOP_NAMES`].
    pub fn figures(&self) -> [(u64, u64); TOP_NAMES.len()] {
        let all = self.all();
        std::array::from_fn(|i| all.get(i).copied().unwrap_or_default())
    }

    /// (time, count) of reads, writes and other commands; each operation is one of them.
    pub fn latencies(&self) -> [(u64, u64); 3] {
        let [_, reads, (time, count), .., others] = self.all();
        let writes = (time - others.0.min(time), count - others.1.min(count));
        [reads, writes, others]
    }

    /// How long operations took, by [`LatencyKind`].
    pub fn histograms(&self) -> [Counted; 3] {
        let mut sums: [Counted; 3] = Default::default();
        for place in self.counted() {
            for (sum, h) in sums.iter_mut().zip(&place.histograms) {
                if let Some(h) = h.get() {
                    h.add_to(sum);
                }
            }
        }
        sums
    }

    fn counted(&self) -> impl Iterator<Item = &TopFigures> {
        let places = self.places.get().into_iter().flat_map(|all| all.iter());
        std::iter::once(&self.first).chain(places)
    }

    fn all(&self) -> [(u64, u64); TOP_NAMES.len() + 1] {
        let mut sums = [(0, 0); TOP_NAMES.len() + 1];
        for place in self.counted() {
            for (sum, (time, count)) in sums.iter_mut().zip(&place.figures) {
                sum.0 += time.load(Relaxed);
                sum.1 += count.load(Relaxed);
            }
        }
        sums
    }

    /// Adds one operation.
    pub fn add(&self, kind: OpKind, latency: LatencyKind, micros: u64) {
        let column = match kind {
            OpKind::Insert => 5,
            OpKind::Query => 3,
            OpKind::Update => 6,
            OpKind::Delete => 7,
            OpKind::GetMore => 4,
            OpKind::Command => 8,
        };
        let lock = match latency {
            LatencyKind::Reads => 1,
            LatencyKind::Writes | LatencyKind::Commands => 2,
        };
        let other = matches!(latency, LatencyKind::Commands).then_some(TOP_NAMES.len());
        let place = match self.places.get() {
            Some(places) => places.own(),
            None if self.adds.fetch_add(1, Relaxed) < OFTEN => &self.first,
            None => self.places.get_or_init(Box::default).own(),
        };
        for i in [0, lock, column].into_iter().chain(other) {
            if let Some((time, count)) = place.figures.get(i) {
                time.fetch_add(micros, Relaxed);
                count.fetch_add(1, Relaxed);
            }
        }
        if let Some(h) = place.histograms.get(latency as usize) {
            h.get_or_init(Box::default).add(micros);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn shards_add_up() {
        let m = Arc::new(Metrics::default());
        for n in 0..40 {
            let c = m.counter(n);
            c.op(OpKind::Insert, 2);
            c.latency(LatencyKind::Writes, 9);
            c.network(10, 20);
        }
        let t = m.totals();
        assert_eq!(t.ops, [80, 0, 0, 0, 0, 0]);
        assert_eq!((t.latency_count[1], t.latency_micros[1]), (40, 360));
        let times: Vec<_> = t.histograms[1].iter().collect();
        assert_eq!(times, [(8, 40)], "9 µs lies in [8, 16)");
        assert_eq!((t.bytes_in, t.bytes_out, t.requests), (400, 800, 40));
    }

    #[test]
    fn a_bucket_begins_where_the_one_before_ends() {
        let expected = [
            0, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3072, 4096, 6144,
        ];
        let least: Vec<_> = (0..expected.len()).map(Histogram::least).collect();
        assert_eq!(least, expected);
        assert_eq!(Histogram::least(31), 1 << 21);
        assert_eq!(Histogram::least(BUCKETS - 1), 1 << 40);
        assert_eq!(Histogram::bucket_of(u64::MAX), BUCKETS - 1);
        for bucket in 1..BUCKETS {
            let least = Histogram::least(bucket);
            assert_eq!(Histogram::bucket_of(least), bucket, "{least}");
            assert_eq!(Histogram::bucket_of(least - 1), bucket - 1, "{least}");
        }
    }

    #[test]
    fn top_keeps_a_line_per_namespace() {
        let m = Metrics::default();
        let entry = m.top_entry("d.c");
        entry.add(OpKind::Query, LatencyKind::Reads, 5);
        entry.add(OpKind::Insert, LatencyKind::Writes, 7);
        let all = m.top_all();
        assert_eq!(all.len(), 1);
        let f = |i: usize| all[0].1.figures()[i].0;
        assert_eq!((f(0), f(1), f(2), f(3), f(5)), (12, 5, 7, 5, 7));
        for _ in 0..3 * OFTEN {
            entry.add(OpKind::GetMore, LatencyKind::Reads, 1);
        }
        assert_eq!(
            entry.figures()[4],
            (u64::from(3 * OFTEN), u64::from(3 * OFTEN))
        );
        let entry = m.top_entry("d.other");
        entry.add(OpKind::Query, LatencyKind::Reads, 5);
        entry.add(OpKind::Insert, LatencyKind::Writes, 7);
        // An aggregate is a read; createIndexes is neither a read nor a write.
        entry.add(OpKind::Command, LatencyKind::Reads, 10);
        entry.add(OpKind::Command, LatencyKind::Commands, 100);
        assert_eq!(entry.latencies(), [(15, 2), (7, 1), (100, 1)]);
        assert_eq!(entry.figures()[8], (110, 2));
        let [reads, writes, commands] = entry.histograms();
        assert!(reads.iter().eq([(4, 1), (8, 1)]));
        assert!(writes.iter().eq([(4, 1)]) && commands.iter().eq([(64, 1)]));
    }
}
