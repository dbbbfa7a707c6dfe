//! The load driver: one thread and one connection a worker, latencies by the monotonic clock, and
//! what is needed to tell a slow server from a slow client. Without a pace it is a closed loop;
//! with one, operations have a time at which they are due, and a worker that falls behind sends
//! back to back: the latency from the due time on has no coordinated omission.

use crate::doubts::Bound;
use crate::fail::{Failure, Result};
use crate::meter::{Board, Measured, Meter};
use crate::placement;
use crate::procs::{self, thread_cpu_seconds};
use crate::progress::{Live, Progress};
use crate::report::{Interval, SampleSet};
use crate::rng::Rng;
use crate::usage::{ServerUsage, Usage};
use crate::{environment, stop};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// One worker's work.
pub trait Worker: Send {
    /// Makes the next request ready, outside the clock of the operation; false: there is none.
    fn prepare(&mut self) -> bool {
        true
    }

    /// One operation; returns how many documents it wrote or read. A load of several kinds of
    /// operations records each in `meter`; the driver records the whole.
    fn operate(&mut self, meter: &mut Meter) -> Result<u64>;

    /// After the last one, inside the clock: for w:0, an acknowledged command on the same
    /// connection, so that everything sent has been applied.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// When a worker sends.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Pace {
    /// The next operation when the last one is answered.
    #[default]
    Closed,
    /// So many operations a second and worker, evenly, as YCSB's `-target` does: up to one a
    /// millisecond, workers begin at random within the first tick.
    Steady(f64),
    /// So many a second and worker, at random (exponential) distances.
    Poisson(f64),
}

/// When to end.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// Operations a worker.
    pub operations: u64,
    /// So many of the first workers do one more.
    pub extra: u64,
    /// When each sends.
    pub pace: Pace,
    /// Time for all.
    pub time: Duration,
    /// Keep every latency, for a plot against the operation's number.
    pub keep_each: bool,
}

impl Limit {
    /// For a time, however many operations that are.
    pub fn time(time: Duration) -> Limit {
        Limit {
            operations: u64::MAX,
            extra: 0,
            pace: Pace::Closed,
            time,
            keep_each: false,
        }
    }

    /// A number of operations a worker, but not longer than `time`.
    pub fn operations(operations: u64, time: Duration) -> Limit {
        Limit {
            operations,
            extra: 0,
            pace: Pace::Closed,
            time,
            keep_each: false,
        }
    }
}

/// What a load did.
#[derive(Clone)]
pub struct Load {
    /// Latencies, time line, count; `seconds` includes the closing of w:0.
    pub samples: SampleSet,
    /// Documents in all.
    pub documents: u64,
    /// Seconds until the last operation had been sent (w:0) or answered.
    pub sent_seconds: f64,
    /// The busiest worker's share of a core.
    pub busiest_worker: f64,
    /// CPU seconds of all workers.
    pub client_cpu: f64,
    /// Time inside operations over workers × time: below 0.95 the client is what is slow.
    pub occupancy: f64,
    /// What the server used, if its process can be read.
    pub server: Option<ServerUsage>,
    /// True if the time limit or Ctrl-C came before the operations were done.
    pub cut_short: bool,
    /// Whether the workers had to wait for the time at which an operation was due.
    pub paced: bool,
    /// What the workers recorded by kind of operation.
    pub kinds: BTreeMap<&'static str, Measured>,
}

/// How a load stands, at one of its status lines.
pub struct Status {
    /// Since it began.
    pub elapsed: Duration,
    /// Since the last status.
    pub interval: Duration,
    /// Operations so far.
    pub operations: u64,
    /// Operations since the last status.
    pub new: u64,
    /// Operations still to do; `None` without a number.
    pub left: Option<u64>,
    /// What was measured since the last status.
    pub kinds: BTreeMap<&'static str, Measured>,
}

/// Who wants to know how a load stands, and how often.
pub struct Watch<'a> {
    /// How often.
    pub every: Duration,
    /// Called at the start, then so often, and at the end.
    pub show: &'a mut dyn FnMut(&Status),
}

impl Load {
    /// Documents a second, applied.
    pub fn rate(&self) -> f64 {
        self.documents as f64 / self.samples.seconds
    }

    /// Documents a second, sent.
    pub fn sent_rate(&self) -> f64 {
        self.documents as f64 / self.sent_seconds
    }

    /// Server CPU in µs a document.
    pub fn server_us(&self) -> Option<f64> {
        self.server.map(|s| s.cpu * 1e6 / self.documents as f64)
    }

    /// Client and server CPU in µs a document.
    pub fn both_us(&self) -> Option<f64> {
        self.server
            .map(|s| (s.cpu + self.client_cpu) * 1e6 / self.documents as f64)
    }

    /// Why the client may have been the bottleneck, if it may.
    pub fn client_bound(&self) -> Option<Bound> {
        if self.busiest_worker > 0.8 {
            return Some(Bound::Core(self.busiest_worker));
        }
        let between = !self.paced && self.occupancy < 0.95 && self.samples.operations > 100;
        between.then_some(Bound::Between(1.0 - self.occupancy))
    }
}

struct Part {
    each: Vec<f64>,
    documents: u64,
    sent: Duration,
    done: Duration,
    cpu: f64,
    cut_short: bool,
    error: Option<Failure>,
    /// Why it was not where it should have been.
    misplaced: Option<String>,
}

/// Runs the workers to their limit. Fails with the first worker's error.
pub fn run<W: Worker>(
    name: &str,
    workers: Vec<W>,
    limit: Limit,
    server: Option<u32>,
    progress: &mut Progress,
) -> Result<Load> {
    run_watched(name, workers, limit, server, progress, None)
}

/// What a [`Watch`] has seen.
struct Watcher<'w, 'a> {
    watch: Option<&'w mut Watch<'a>>,
    board: &'w Board,
    /// Operations of all workers, if they have a number.
    all: Option<u64>,
    shown: Duration,
    operations: u64,
    asked: bool,
}

impl Watcher<'_, '_> {
    fn look(&mut self, elapsed: Duration, operations: u64, end: bool) {
        let Some(watch) = &mut self.watch else { return };
        let due = self.shown + watch.every;
        // The workers answer with their next operations.
        if !self.asked && elapsed + Duration::from_millis(50) >= due {
            self.board.ask();
            self.asked = true;
        }
        if !end && elapsed < due {
            return;
        }
        (watch.show)(&Status {
            elapsed,
            interval: elapsed - self.shown,
            operations,
            new: operations - self.operations,
            left: self.all.map(|a| a.saturating_sub(operations)),
            kinds: self.board.interval(),
        });
        self.shown = elapsed;
        self.operations = operations;
        self.asked = false;
    }
}

/// As [`run`], and tells `watch` how it goes.
pub fn run_watched<W: Worker>(
    name: &str,
    workers: Vec<W>,
    limit: Limit,
    server: Option<u32>,
    progress: &mut Progress,
    mut watch: Option<Watch<'_>>,
) -> Result<Load> {
    let count = workers.len().max(1);
    let board = Arc::new(Board::default());
    let all = (limit.operations != u64::MAX).then(|| limit.operations * count as u64 + limit.extra);
    if let Some(w) = &mut watch {
        (w.show)(&Status {
            elapsed: Duration::ZERO,
            interval: Duration::ZERO,
            operations: 0,
            new: 0,
            left: all,
            kinds: BTreeMap::new(),
        });
    }
    let mut watcher = Watcher {
        watch: watch.as_mut(),
        board: &board,
        all,
        shown: Duration::ZERO,
        operations: 0,
        asked: false,
    };
    let done: Vec<Counter> = (0..count).map(|_| Counter::default()).collect();
    let barrier = Barrier::new(count + 1);
    let failed = AtomicBool::new(false);
    let before = server.and_then(procs::sample);
    let place = placement::for_worker();
    let mut began = 0.0;
    let mut timeline = vec![(0.0, 0.0)];
    let mut recorder = Recorder::new(&board, server, before);
    let parts: Vec<Result<Part>> = std::thread::scope(|scope| {
        let handles: Vec<_> = workers
            .into_iter()
            .zip(&done)
            .enumerate()
            .map(|(i, (w, counter))| {
                let (barrier, failed) = (&barrier, &failed);
                let meter = Meter::new(board.clone());
                let limit = Limit {
                    operations: limit
                        .operations
                        .saturating_add(u64::from((i as u64) < limit.extra)),
                    ..limit
                };
                scope.spawn(move || {
                    if let Some(p) = place {
                        p.take();
                    }
                    barrier.wait();
                    let clock = Clock::new(limit.pace, i as u64);
                    let part = worker(w, limit, clock, meter, counter, failed);
                    Part {
                        misplaced: place.and_then(placement::Worker::check),
                        ..part
                    }
                })
            })
            .collect();
        barrier.wait();
        let begin = Instant::now();
        began = environment::unix_now();
        let mut tick = 0u32;
        while handles.iter().any(|h| !h.is_finished()) {
            // Short runs end promptly, long ones are not disturbed.
            std::thread::sleep(Duration::from_millis(if tick < 50 { 2 } else { 20 }));
            tick += 1;
            let t = begin.elapsed().as_secs_f64();
            let n: u64 = done.iter().map(|c| c.0.load(Ordering::Relaxed)).sum();
            watcher.look(begin.elapsed(), n, false);
            recorder.look(t);
            if timeline.last().is_none_or(|l| t - l.0 >= 0.1) {
                timeline.push((t, n as f64));
                recorder.sample();
                let second_ago = timeline.iter().rev().find(|p| t - p.0 >= 1.0);
                let (t0, n0) = second_ago.copied().unwrap_or_default();
                progress.live(&Live {
                    operations: n,
                    all,
                    seconds: t,
                    limit: (limit.time < FOREVER).then_some(limit.time.as_secs_f64()),
                    rate: (n as f64 - n0) / (t - t0).max(1e-9),
                    latency: recorder.newest.map(|l| (l[0], l[1])),
                    server: recorder.server_now,
                });
            }
        }
        handles
            .into_iter()
            .map(|h| h.join().map_err(|_| Failure::new("a load worker panicked")))
            .collect()
    });
    recorder.sample();
    let ended = parts
        .iter()
        .flatten()
        .map(|p| p.done)
        .max()
        .unwrap_or_default();
    let operations = done.iter().map(|c| c.0.load(Ordering::Relaxed)).sum();
    watcher.look(ended.max(watcher.shown), operations, true);
    let latency = board.whole();
    let mut each_ms = Vec::new();
    let (mut documents, mut sent, mut total, mut busiest) = (0, 0.0f64, 0.0f64, 0.0f64);
    let mut client_cpu = 0.0;
    let mut cut_short = false;
    for p in parts {
        let p = p?;
        if let Some(e) = p.error {
            return Err(e.while_doing(name));
        }
        if let Some(why) = p.misplaced {
            placement::lost(why);
        }
        each_ms.extend(p.each);
        documents += p.documents;
        sent = sent.max(p.sent.as_secs_f64());
        total = total.max(p.done.as_secs_f64());
        client_cpu += p.cpu;
        busiest = busiest.max(p.cpu / p.done.as_secs_f64().max(1e-9));
        cut_short |= p.cut_short;
    }
    timeline.push((total, latency.count() as f64));
    let server = recorder.whole();
    let intervals = recorder.finish(total);
    Ok(Load {
        documents,
        sent_seconds: sent,
        busiest_worker: busiest,
        client_cpu,
        occupancy: latency.sum_ns() / 1e9 / (count as f64 * sent.max(1e-9)),
        server,
        cut_short,
        paced: limit.pace != Pace::Closed,
        kinds: board.total(),
        samples: SampleSet {
            name: name.to_string(),
            operations: latency.count(),
            latency,
            timeline,
            each_ms,
            seconds: total,
            began,
            workers: count as u64,
            placement: place.map_or("", |p| p.placement().name()).to_string(),
            intervals,
            usage: Some(Usage {
                units: documents,
                client_cpu,
                server,
                payload: board.payload(),
            }),
        },
    })
}

/// A limit of time beyond this is none.
const FOREVER: Duration = Duration::from_secs(30 * 86_400);

/// Makes the intervals of a load while it runs.
struct Recorder<'a> {
    board: &'a Board,
    pid: Option<u32>,
    before: Option<procs::Sample>,
    last: Option<procs::Sample>,
    top_rss: f64,
    /// Seconds that are over: what the server used in each.
    used: Vec<Option<ServerUsage>>,
    at_second: Option<procs::Sample>,
    intervals: Vec<Interval>,
    /// p50 and p99 of the newest second, ms.
    newest: Option<[f64; 2]>,
    /// What the server used in the newest second.
    server_now: Option<ServerUsage>,
}

impl<'a> Recorder<'a> {
    /// How many seconds a worker's figures may come late.
    const PATIENCE: u64 = 30;

    fn new(board: &'a Board, pid: Option<u32>, before: Option<procs::Sample>) -> Recorder<'a> {
        Recorder {
            board,
            pid,
            before,
            last: before,
            top_rss: before.map_or(0.0, |b| b.rss),
            used: Vec::new(),
            at_second: before,
            intervals: Vec::new(),
            newest: None,
            server_now: None,
        }
    }

    /// Reads the server's figures.
    fn sample(&mut self) {
        if let Some(s) = self.pid.and_then(procs::sample) {
            self.top_rss = self.top_rss.max(s.rss);
            self.last = Some(s);
        }
    }

    /// The load has run for `t` seconds.
    fn look(&mut self, t: f64) {
        let over = t as u64;
        if over <= self.used.len() as u64 {
            return;
        }
        self.sample();
        let used = self
            .at_second
            .zip(self.last)
            .map(|(a, b)| ServerUsage::between(&a, &b));
        self.at_second = self.last;
        self.server_now = used;
        // A late look covers several seconds: the first of them gets it all.
        self.used.push(used);
        self.used.resize(over as usize, None);
        self.newest = self
            .board
            .newest()
            .map(|l| [l.quantile_ms(0.5), l.quantile_ms(0.99)]);
        self.take(over.saturating_sub(Self::PATIENCE), f64::INFINITY);
    }

    fn take(&mut self, before: u64, end: f64) {
        for (second, l) in self.board.take_seconds(before) {
            let start = second as f64;
            self.intervals.push(Interval {
                start,
                length: (end - start).clamp(1e-3, 1.0),
                operations: l.count(),
                p50_ms: l.quantile_ms(0.5),
                p99_ms: l.quantile_ms(0.99),
                max_ms: l.max_ms(),
                hdr: l.hdr(),
                server: self.used.get(second as usize).copied().flatten(),
            });
        }
    }

    /// From the beginning to the newest sample.
    fn whole(&self) -> Option<ServerUsage> {
        let mut u = ServerUsage::between(&self.before?, &self.last?);
        u.rss = self.top_rss;
        Some(u)
    }

    /// The intervals of a load that took `total` seconds.
    fn finish(mut self, total: f64) -> Vec<Interval> {
        self.take(u64::MAX, total);
        // A second in which nothing ended is the most telling of all.
        for second in 0..total.ceil() as u64 {
            let start = second as f64;
            if self.intervals.iter().all(|i| i.start != start) {
                self.intervals.push(Interval {
                    start,
                    length: (total - start).clamp(1e-3, 1.0),
                    server: self.used.get(second as usize).copied().flatten(),
                    ..Interval::default()
                });
            }
        }
        self.intervals.sort_by(|a, b| a.start.total_cmp(&b.start));
        self.intervals
    }
}

/// A worker's counter, alone in its cache line.
#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// When a worker's operations are due.
struct Clock {
    pace: Pace,
    rng: Rng,
    due: Option<Instant>,
}

impl Clock {
    fn new(pace: Pace, worker: u64) -> Clock {
        Clock {
            pace,
            rng: Rng::new(0x70ac_e000 + worker),
            due: None,
        }
    }

    /// When the next operation is due. `done` operations have been sent
    /// since `begin`. YCSB's first operation has no due time but that of its sending.
    fn due(&mut self, begin: Instant, done: u64) -> Option<Instant> {
        let due = match self.pace {
            Pace::Closed => return None,
            Pace::Steady(rate) => {
                let first = match self.due {
                    Some(first) => first,
                    None => {
                        let share = if rate <= 1000.0 { self.rng.unit() } else { 0.0 };
                        *self.due.insert(begin + seconds(share / rate))
                    }
                };
                first + seconds(done as f64 / rate)
            }
            Pace::Poisson(rate) => {
                let last = self.due.unwrap_or(begin);
                *self
                    .due
                    .insert(last + seconds(-(1.0 - self.rng.unit()).ln() / rate))
            }
        };
        Some(due)
    }
}

/// Sleeps until `due`, in pieces, so that Ctrl-C does not wait for a slow pace.
fn sleep_until(due: Instant) {
    while let Some(left) = due.checked_duration_since(Instant::now()) {
        if left.is_zero() || stop::asked() {
            break;
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}

/// As a duration; what is none (a rate of zero) is a day.
fn seconds(s: f64) -> Duration {
    Duration::try_from_secs_f64(s).unwrap_or(Duration::from_secs(86_400))
}

fn worker<W: Worker>(
    mut w: W,
    limit: Limit,
    mut clock: Clock,
    mut meter: Meter,
    counter: &Counter,
    failed: &AtomicBool,
) -> Part {
    let cpu = thread_cpu_seconds();
    let begin = Instant::now();
    meter.begin(begin);
    let mut part = Part {
        each: Vec::new(),
        documents: 0,
        sent: Duration::ZERO,
        done: Duration::ZERO,
        cpu: 0.0,
        cut_short: false,
        error: None,
        misplaced: None,
    };
    let mut last = begin;
    let mut n = 0;
    while n < limit.operations {
        if !w.prepare() {
            break;
        }
        let due = clock.due(begin, n);
        if let Some(d) = due {
            if d.saturating_duration_since(begin) >= limit.time {
                // It is due when the load is over.
                part.cut_short = limit.operations != u64::MAX;
                break;
            }
            sleep_until(d);
        }
        meter.set_due(due);
        let start = Instant::now();
        match w.operate(&mut meter) {
            Ok(d) => part.documents += d,
            Err(e) => {
                part.error = Some(e);
                failed.store(true, Ordering::Relaxed);
                break;
            }
        }
        let now = Instant::now();
        let ns = (now - start).as_nanos() as u64;
        last = now;
        meter.operation(ns, now);
        if limit.keep_each {
            part.each.push(ns as f64 / 1e6);
        }
        n += 1;
        counter.0.store(n, Ordering::Relaxed);
        meter.answer();
        if n < limit.operations
            && (now - begin >= limit.time || stop::asked() || failed.load(Ordering::Relaxed))
        {
            part.cut_short = true;
            break;
        }
    }
    part.sent = last - begin;
    if part.error.is_none()
        && let Err(e) = w.finish()
    {
        part.error = Some(e);
    }
    part.done = begin.elapsed();
    part.cpu = thread_cpu_seconds() - cpu;
    part
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
