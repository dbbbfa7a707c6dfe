//! The load driver: one thread and one connection a worker, latencies by the monotonic clock, and
//! what is needed to tell a slow server from a slow client. Without a pace it is a closed loop;
//! with one, operations have a time at which they are due, and a worker that is late sends
//! back to back: the latency from the due time on has no coordinated omission.

use crate::fail::{Failure, Result};
use crate::meter::{Board, Measured, Meter};
use crate::placement;
use crate::procs::{self, thread_cpu_seconds};
use crate::rng::Rng;
use crate::samples::{Interval, SampleSet};
use crate::stop;
use crate::usage::{self, ServerUsage, Usage};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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

/// Why the client may have been the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// A worker used so much of a core.
    Core(f64),
    /// Workers spent so much of the time between operations.
    Between(f64),
}

/// How a load stands.
#[derive(Debug, Clone, Copy, Default)]
pub struct Live {
    /// Operations so far.
    pub operations: u64,
    /// Operations to do, if they have a number.
    pub all: Option<u64>,
    /// Documents that were written or read so far.
    pub documents: u64,
    /// Seconds since it began.
    pub seconds: f64,
    /// Seconds after which it ends, if there is such a limit.
    pub limit: Option<f64>,
    /// Documents a second, over the last second.
    pub rate: f64,
    /// p50 and p99 of the last second, ms.
    pub latency: Option<(f64, f64)>,
    /// What the server used in the last second.
    pub server: Option<ServerUsage>,
}

impl Live {
    /// How much is done, 0 to 1: by operations or by time, whichever is further.
    pub fn share(&self) -> Option<f64> {
        let by_operations = self
            .all
            .filter(|n| *n > 0)
            .map(|n| self.operations as f64 / n as f64);
        let by_time = self.limit.map(|l| self.seconds / l);
        let share = match (by_operations, by_time) {
            (Some(a), Some(b)) => a.max(b),
            (a, b) => a.or(b)?,
        };
        Some(share.clamp(0.0, 1.0))
    }

    /// Seconds that are left if it goes on as so far.
    pub fn left(&self) -> Option<f64> {
        let share = self.share().filter(|s| *s > 0.0)?;
        Some(self.seconds / share - self.seconds)
    }
}

/// Sees how a load stands, some ten times a second.
pub trait Onlooker {
    /// It stands so.
    fn live(&mut self, live: &Live);
}

/// Nobody looks.
impl Onlooker for () {
    fn live(&mut self, _: &Live) {}
}

/// What a load did.
#[derive(Clone, Default)]
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
    /// True if it was Ctrl-C: what there is of it is no measurement of the whole.
    pub stopped: bool,
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

/// What is told how a load stands, and how often.
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

    /// Server CPU in µs a document; `None` where its process cannot be read, or its clock ticked too
    /// seldom.
    pub fn server_us(&self) -> Option<f64> {
        let cpu = self.server?.cpu_believed()?;
        Some(cpu * 1e6 / self.documents as f64)
    }

    /// What an operation cost both sides, in words.
    pub fn cost_in_words(&self) -> String {
        let n = self.samples.operations;
        let client = self.client_cpu * 1e6 / n.max(1) as f64;
        let server = match self.server_us_text(n) {
            _ if self.server.is_none() => {
                return format!("{client:.1} µs of the client's CPU an operation");
            }
            short if short == usage::TOO_SHORT => format!("the server's CPU {short}"),
            us => format!("{us} µs of the server's CPU an operation"),
        };
        format!("{server}, {client:.1} µs of the client's")
    }

    /// The server's CPU in µs by `units`, as a table shows it: a dash where its process cannot be read,
    /// and words where the clock ticked too seldom.
    pub fn server_us_text(&self, units: u64) -> String {
        match self.server {
            None => "–".into(),
            Some(s) => match s.cpu_believed() {
                None => usage::TOO_SHORT.into(),
                Some(cpu) => format!("{:.1}", cpu * 1e6 / units.max(1) as f64),
            },
        }
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

/// What one worker did.
#[derive(Default)]
struct Part {
    each: Vec<f64>,
    documents: u64,
    sent: Duration,
    done: Duration,
    cpu: f64,
    cut_short: bool,
    stopped: bool,
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
    progress: &mut dyn Onlooker,
) -> Result<Load> {
    run_watched(name, workers, limit, server, progress, None)
}

/// What a [`Watch`] has seen.
struct Watcher<'w, 'a> {
    watch: Option<&'w mut Watch<'a>>,
    shared: &'w Shared,
    shown: Duration,
    operations: u64,
    asked: bool,
}

impl<'w, 'a> Watcher<'w, 'a> {
    fn new(watch: Option<&'w mut Watch<'a>>, shared: &'w Shared) -> Watcher<'w, 'a> {
        Watcher {
            watch,
            shared,
            shown: Duration::ZERO,
            operations: 0,
            asked: false,
        }
    }

    fn look(&mut self, elapsed: Duration, operations: u64, end: bool) {
        let Some(watch) = &mut self.watch else { return };
        let due = self.shown + watch.every;
        // The workers answer with their next operations.
        if !self.asked && elapsed + Duration::from_millis(50) >= due {
            self.shared.board.ask();
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
            left: self.shared.all().map(|a| a.saturating_sub(operations)),
            kinds: self.shared.board.interval(),
        });
        self.shown = elapsed;
        self.operations = operations;
        self.asked = false;
    }
}

/// What the workers of a load share.
struct Shared {
    limit: Limit,
    /// Where a worker has to be, if it has to be somewhere.
    place: Option<placement::Worker>,
    board: Arc<Board>,
    /// One each.
    counters: Vec<Counter>,
    /// All begin at once, with the thread that looks on.
    barrier: Barrier,
    failed: AtomicBool,
}

impl Shared {
    fn new(workers: usize, limit: Limit) -> Shared {
        Shared {
            limit,
            place: placement::for_worker(),
            board: Arc::new(Board::default()),
            counters: (0..workers).map(|_| Counter::default()).collect(),
            barrier: Barrier::new(workers + 1),
            failed: AtomicBool::new(false),
        }
    }

    /// Operations of all workers, if they have a number.
    fn all(&self) -> Option<u64> {
        let Limit {
            operations, extra, ..
        } = self.limit;
        let count = self.counters.len().max(1) as u64;
        (operations != u64::MAX).then(|| operations * count + extra)
    }

    /// Operations so far.
    fn operations(&self) -> u64 {
        let all = self.counters.iter();
        all.map(|c| c.0.load(Ordering::Relaxed)).sum()
    }

    /// Documents so far.
    fn documents(&self) -> u64 {
        let all = self.counters.iter();
        all.map(|c| c.1.load(Ordering::Relaxed)).sum()
    }

    /// What worker `i` does in its thread.
    fn work<W: Worker>(&self, i: usize, counter: &Counter, w: W) -> Part {
        let meter = Meter::new(self.board.clone());
        let one_more = u64::from((i as u64) < self.limit.extra);
        let limit = Limit {
            operations: self.limit.operations.saturating_add(one_more),
            ..self.limit
        };
        if let Some(p) = self.place {
            p.take();
        }
        self.barrier.wait();
        let clock = Clock::new(limit.pace, i as u64);
        let part = worker(w, limit, clock, meter, counter, &self.failed);
        Part {
            misplaced: self.place.and_then(placement::Worker::check),
            ..part
        }
    }
}

/// The course of a load, as the thread sees it that waits for the workers.
struct Course<'a> {
    shared: &'a Shared,
    recorder: Recorder<'a>,
    /// Seconds and operations.
    timeline: Vec<(f64, f64)>,
    /// Documents at the same moments.
    documents: Vec<u64>,
}

impl<'a> Course<'a> {
    fn new(shared: &'a Shared, server: Option<u32>) -> Course<'a> {
        let before = server.and_then(procs::sample);
        Course {
            shared,
            recorder: Recorder::new(&shared.board, server, before),
            timeline: vec![(0.0, 0.0)],
            documents: vec![0],
        }
    }

    /// The load has run for `t` seconds.
    fn look(&mut self, t: f64, operations: u64, onlooker: &mut dyn Onlooker) {
        self.recorder.look(t);
        if self.timeline.last().is_some_and(|l| t - l.0 < 0.1) {
            return;
        }
        let documents = self.shared.documents();
        self.timeline.push((t, operations as f64));
        self.documents.push(documents);
        self.recorder.sample();
        let points = self.timeline.iter().zip(&self.documents).rev();
        let mut second_ago = points.filter(|(p, _)| t - p.0 >= 1.0);
        let (t0, before) = second_ago.next().map_or((0.0, 0), |(p, d)| (p.0, *d));
        let time = self.shared.limit.time;
        onlooker.live(&Live {
            operations,
            all: self.shared.all(),
            documents,
            seconds: t,
            limit: (time < FOREVER).then_some(time.as_secs_f64()),
            rate: (documents - before) as f64 / (t - t0).max(1e-9),
            latency: self.recorder.newest.map(|l| (l[0], l[1])),
            server: self.recorder.server_now,
        });
    }
}

/// What all workers did together.
#[derive(Default)]
struct Sum {
    each: Vec<f64>,
    documents: u64,
    /// Until the last operation had been sent, s, and until everything was done.
    sent: f64,
    total: f64,
    cpu: f64,
    busiest: f64,
    cut_short: bool,
    stopped: bool,
}

impl Sum {
    /// Adds a worker's part.
    ///
    /// # Errors
    /// The worker's own.
    fn add(&mut self, p: Part) -> Result<()> {
        if let Some(e) = p.error {
            return Err(e);
        }
        if let Some(why) = p.misplaced {
            placement::lost(why);
        }
        let done = p.done.as_secs_f64();
        self.each.extend(p.each);
        self.documents += p.documents;
        self.sent = self.sent.max(p.sent.as_secs_f64());
        self.total = self.total.max(done);
        self.cpu += p.cpu;
        self.busiest = self.busiest.max(p.cpu / done.max(1e-9));
        self.cut_short |= p.cut_short;
        self.stopped |= p.stopped;
        Ok(())
    }
}

/// As [`run`], and tells `watch` how it goes.
pub fn run_watched<W: Worker>(
    name: &str,
    workers: Vec<W>,
    limit: Limit,
    server: Option<u32>,
    progress: &mut dyn Onlooker,
    mut watch: Option<Watch<'_>>,
) -> Result<Load> {
    let shared = Shared::new(workers.len(), limit);
    let mut watcher = Watcher::new(watch.as_mut(), &shared);
    watcher.look(Duration::ZERO, 0, true);
    let mut course = Course::new(&shared, server);
    let (began, parts) = std::thread::scope(|scope| {
        let each = workers.into_iter().zip(&shared.counters).enumerate();
        let handles: Vec<_> = each
            .map(|(i, (w, counter))| {
                let shared = &shared;
                scope.spawn(move || shared.work(i, counter, w))
            })
            .collect();
        shared.barrier.wait();
        let begin = Instant::now();
        let began = unix_now();
        let mut tick = 0u32;
        while handles.iter().any(|h| !h.is_finished()) {
            // Short runs end promptly, long ones are not disturbed.
            std::thread::sleep(Duration::from_millis(if tick < 50 { 2 } else { 20 }));
            tick += 1;
            let (elapsed, operations) = (begin.elapsed(), shared.operations());
            watcher.look(elapsed, operations, false);
            course.look(elapsed.as_secs_f64(), operations, progress);
        }
        let parts: Vec<_> = handles.into_iter().map(|h| h.join()).collect();
        (began, parts)
    });
    course.recorder.sample();
    let mut ended = watcher.shown;
    let mut sum = Sum::default();
    let mut failure = None;
    for part in parts {
        let added = part
            .map_err(|_| Failure::new("a load worker panicked"))
            .and_then(|part| {
                ended = ended.max(part.done);
                sum.add(part).map_err(|e| e.while_doing(name))
            });
        failure = failure.or(added.err());
    }
    watcher.look(ended, shared.operations(), true);
    match failure {
        Some(e) => Err(e),
        None => Ok(whole(name, &shared, course, sum, began)),
    }
}

/// The load whose workers have all ended well.
fn whole(name: &str, shared: &Shared, course: Course<'_>, sum: Sum, began: f64) -> Load {
    let count = shared.counters.len();
    let latency = shared.board.whole();
    let Course {
        recorder,
        mut timeline,
        ..
    } = course;
    timeline.push((sum.total, latency.count() as f64));
    let server = recorder.whole();
    Load {
        documents: sum.documents,
        sent_seconds: sum.sent,
        busiest_worker: sum.busiest,
        client_cpu: sum.cpu,
        occupancy: latency.sum_ns() / 1e9 / (count.max(1) as f64 * sum.sent.max(1e-9)),
        server,
        cut_short: sum.cut_short,
        stopped: sum.stopped,
        paced: shared.limit.pace != Pace::Closed,
        kinds: shared.board.total(),
        samples: SampleSet {
            name: name.to_string(),
            operations: latency.count(),
            latency,
            timeline,
            each_ms: sum.each,
            seconds: sum.total,
            began,
            workers: count.max(1) as u64,
            placement: shared
                .place
                .map_or("", |p| p.placement().name())
                .to_string(),
            intervals: recorder.finish(sum.total),
            usage: Some(Usage {
                units: sum.documents,
                client_cpu: sum.cpu,
                server,
                payload: shared.board.payload(),
            }),
        },
    }
}

/// Now, s since 1970.
pub fn unix_now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |d| d.as_secs_f64())
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

/// A worker's counters, operations and documents, alone in their cache line.
#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicU64, AtomicU64);

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
    let mut part = Part::default();
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
        counter.1.store(part.documents, Ordering::Relaxed);
        meter.answer();
        if n < limit.operations
            && (now - begin >= limit.time || stop::asked() || failed.load(Ordering::Relaxed))
        {
            part.cut_short = true;
            part.stopped = now - begin < limit.time && stop::asked();
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
mod tests;
