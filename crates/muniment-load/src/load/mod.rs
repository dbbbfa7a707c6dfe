//! The load driver. It has one connection per worker, and a thread for each unless there are too many
//! ([`crowd`]); it measures latencies with the monotonic clock, and records the figures that distinguish a slow server from a slow client. Without a pace it is a
//! closed loop. With a pace, operations have a time at which they are due, and a worker that is late sends
//! them back to back; so the latency from the due time has no coordinated omission.

mod crowd;
mod recorder;

use crate::fail::{Failure, Result};
use crate::meter::{Board, Measured, Meter};
use crate::placement;
use crate::procs::{self, thread_cpu_seconds};
use crate::rng::Rng;
use crate::samples::SampleSet;
use crate::stop;
use crate::usage::{self, ServerUsage, Usage};
use recorder::Recorder;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The work of one worker.
pub trait Worker: Send {
    /// Prepares the next request, outside the measured time of the operation. False means that there is none.
    fn prepare(&mut self) -> bool {
        true
    }

    /// Runs one operation, and returns the number of documents that it wrote or read. If a load has several
    /// kinds of operations, this records each of them in `meter`; the driver records the whole.
    fn operate(&mut self, meter: &mut Meter) -> Result<u64>;

    /// Runs after the last operation, inside the measured time. For w:0 it sends an acknowledged command on
    /// the same connection, so that everything that was sent has been applied.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    /// The worker as one of many in a thread, if its operations can be divided.
    fn divided(&mut self) -> Option<&mut dyn Divided> {
        None
    }
}

/// A worker whose operation is one message and one answer. A thread can have many of them.
pub trait Divided {
    /// The socket on which the answer arrives.
    fn socket(&self) -> BorrowedFd<'_>;

    /// Sends the message that was prepared.
    fn send(&mut self, meter: &mut Meter) -> Result<()>;

    /// Reads the answer, as soon as it begins to arrive, and records the operation. Returns what
    /// [`Worker::operate`] does.
    fn receive(&mut self, meter: &mut Meter) -> Result<u64>;
}

/// The times at which a worker sends.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Pace {
    /// The next operation is sent when the last one has been answered.
    #[default]
    Closed,
    /// This number of operations per second and worker, evenly, as YCSB's `-target` does. For rates up to one
    /// per millisecond, workers begin at a random time within the first interval.
    Steady(f64),
    /// This number per second and worker, at random (exponential) intervals.
    Poisson(f64),
}

/// The limits of a load.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// The number of operations per worker.
    pub operations: u64,
    /// This number of the first workers do one more operation.
    pub extra: u64,
    /// The times at which each worker sends.
    pub pace: Pace,
    /// The time for the whole load.
    pub time: Duration,
    /// Whether to keep every latency, for a plot over the operation's number.
    pub keep_each: bool,
}

impl Limit {
    /// A limit by time only, for any number of operations.
    pub fn time(time: Duration) -> Limit {
        Limit {
            operations: u64::MAX,
            extra: 0,
            pace: Pace::Closed,
            time,
            keep_each: false,
        }
    }

    /// A number of operations per worker, for at most `time`.
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

/// The reasons why the client may have been the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// A worker used this share of a core.
    Core(f64),
    /// Workers spent this share of the time between operations.
    Between(f64),
}

/// The state of a running load.
#[derive(Debug, Clone, Copy, Default)]
pub struct Live {
    /// Operations so far.
    pub operations: u64,
    /// The number of operations to do, if there is one.
    pub all: Option<u64>,
    /// Documents that were written or read so far.
    pub documents: u64,
    /// Seconds since the load began.
    pub seconds: f64,
    /// Seconds after which the load ends, if there is such a limit.
    pub limit: Option<f64>,
    /// Documents per second, over the last second.
    pub rate: f64,
    /// The p50 and p99 of the last second, in ms.
    pub latency: Option<(f64, f64)>,
    /// The resources that the server used in the last second.
    pub server: Option<ServerUsage>,
}

impl Live {
    /// The share of the work that is done, 0 to 1: by operations or by time, whichever is greater.
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

    /// The seconds that are left if the load goes on at the same rate.
    pub fn left(&self) -> Option<f64> {
        let share = self.share().filter(|s| *s > 0.0)?;
        Some(self.seconds / share - self.seconds)
    }
}

/// Is shown the state of a load, about ten times a second.
pub trait Onlooker {
    /// Shows the current state.
    fn live(&mut self, live: &Live);
}

/// An onlooker that ignores everything.
impl Onlooker for () {
    fn live(&mut self, _: &Live) {}
}

/// The results of a load.
#[derive(Clone, Default)]
pub struct Load {
    /// Latencies, time line and count. `seconds` includes the final command for w:0.
    pub samples: SampleSet,
    /// The number of documents in all.
    pub documents: u64,
    /// Seconds until the last operation had been sent (w:0) or answered.
    pub sent_seconds: f64,
    /// The busiest worker's share of a core.
    pub busiest_worker: f64,
    /// The CPU seconds of all workers.
    pub client_cpu: f64,
    /// The threads that ran the workers, if these were too many for a thread each.
    pub carriers: Option<usize>,
    /// The time inside operations, divided by workers × time. Below 0.95, the client is the slow side.
    pub occupancy: f64,
    /// The resources that the server used, if its process can be read.
    pub server: Option<ServerUsage>,
    /// True if the time limit or Ctrl-C ended the load before the operations were done.
    pub cut_short: bool,
    /// True if Ctrl-C ended it. The results are then no measurement of the whole load.
    pub stopped: bool,
    /// Whether the workers had to wait for the time at which an operation was due.
    pub paced: bool,
    /// The measurements of the workers by kind of operation.
    pub kinds: BTreeMap<&'static str, Measured>,
}

/// The state of a load at one of its status lines.
pub struct Status {
    /// The time since the load began.
    pub elapsed: Duration,
    /// The time since the last status.
    pub interval: Duration,
    /// Operations so far.
    pub operations: u64,
    /// Operations since the last status.
    pub new: u64,
    /// Operations still to do; `None` if there is no number of operations.
    pub left: Option<u64>,
    /// The measurements since the last status.
    pub kinds: BTreeMap<&'static str, Measured>,
}

/// The receiver of status reports, and their interval.
pub struct Watch<'a> {
    /// The interval.
    pub every: Duration,
    /// Called at the start, at every interval, and at the end.
    pub show: &'a mut dyn FnMut(&Status),
}

impl Load {
    /// Documents per second, until all are applied.
    pub fn rate(&self) -> f64 {
        self.documents as f64 / self.samples.seconds
    }

    /// Documents per second, until all are sent.
    pub fn sent_rate(&self) -> f64 {
        self.documents as f64 / self.sent_seconds
    }

    /// The server's CPU time in µs per document; `None` if its process cannot be read, or if too few steps of
    /// its clock were counted.
    pub fn server_us(&self) -> Option<f64> {
        let cpu = self.server?.cpu_believed()?;
        Some(cpu * 1e6 / self.documents as f64)
    }

    /// The cost of an operation on both sides, in words.
    pub fn cost_in_words(&self) -> String {
        let n = self.samples.operations;
        let server = match self.server_us_text(n) {
            _ if self.server.is_none() => String::new(),
            short if short == usage::TOO_SHORT => format!("the server's CPU {short}, "),
            us => format!("{us} µs of the server's CPU an operation, "),
        };
        let client = self.client_cpu * 1e6 / n.max(1) as f64;
        let an_operation = if server.is_empty() {
            " CPU an operation"
        } else {
            ""
        };
        let threads = match self.carriers {
            Some(n) => format!(
                ", whose {} connections share {n} threads",
                self.samples.workers
            ),
            None => String::new(),
        };
        format!("{server}{client:.1} µs of the client's{an_operation}{threads}")
    }

    /// The server's CPU time in µs per unit, in the form for a table: a dash if its process cannot be read,
    /// and words if too few steps of its clock were counted.
    pub fn server_us_text(&self, units: u64) -> String {
        match self.server {
            None => "–".into(),
            Some(s) => match s.cpu_believed() {
                None => usage::TOO_SHORT.into(),
                Some(cpu) => format!("{:.1}", cpu * 1e6 / units.max(1) as f64),
            },
        }
    }

    /// The CPU time of client and server in µs per document.
    pub fn both_us(&self) -> Option<f64> {
        self.server
            .map(|s| (s.cpu + self.client_cpu) * 1e6 / self.documents as f64)
    }

    /// The reason why the client may have been the bottleneck, if there is one.
    pub fn client_bound(&self) -> Option<Bound> {
        if self.busiest_worker > 0.8 {
            return Some(Bound::Core(self.busiest_worker));
        }
        let between = !self.paced && self.occupancy < 0.95 && self.samples.operations > 100;
        between.then_some(Bound::Between(1.0 - self.occupancy))
    }
}

/// The results of one worker.
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
    /// The reason, if it did not run on the core where it should have run.
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

/// The progress of a [`Watch`]: what it has been shown.
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
        // The workers hand over their measurements with their next operations.
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

/// A worker with its number and its counter.
type Numbered<'s, W> = (usize, &'s Counter, W);

/// The data that the workers of a load share.
struct Shared {
    limit: Limit,
    /// The core to which a worker must pin itself, if there is one.
    place: Option<placement::Worker>,
    board: Arc<Board>,
    /// One counter for each worker.
    counters: Vec<Counter>,
    /// Makes all workers begin at the same time, together with the thread that watches them.
    barrier: Barrier,
    /// That time. With more workers than cores, some come to run much later; for them, too, the load began
    /// then, and ends when it ends for all. Otherwise the last to begin would still add operations to a rate
    /// over a time that is shorter than the load was.
    begin: OnceLock<Instant>,
    failed: AtomicBool,
}

impl Shared {
    fn new(workers: usize, threads: usize, limit: Limit) -> Shared {
        Shared {
            limit,
            place: placement::for_worker(),
            board: Arc::new(Board::default()),
            counters: (0..workers).map(|_| Counter::default()).collect(),
            barrier: Barrier::new(threads + 1),
            begin: OnceLock::new(),
            failed: AtomicBool::new(false),
        }
    }

    /// The number of operations of all workers, if there is one.
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

    /// Waits for all workers, and returns the time at which the load begins.
    fn begin(&self) -> Instant {
        self.barrier.wait();
        *self.begin.get_or_init(Instant::now)
    }

    /// What a thread measures.
    fn meter(&self, begin: Instant) -> Meter {
        let mut meter = Meter::new(self.board.clone());
        meter.begin(begin);
        meter
    }

    /// Runs worker `i` in a thread of its own.
    fn work<W: Worker>(&self, i: usize, counter: &Counter, mut w: W) -> Part {
        if let Some(p) = self.place {
            p.take();
        }
        let begin = self.begin();
        let cpu = thread_cpu_seconds();
        let mut clock = Clock::new(self.limit.pace, i as u64);
        let mut run = Run::new(self, counter, i, begin);
        let mut meter = self.meter(begin);
        while run.more() && w.prepare() && run.wait(&mut clock, &mut meter) {
            let start = Instant::now();
            let result = w.operate(&mut meter);
            if !run.ended(start, result, &mut meter) {
                break;
            }
        }
        let part = run.finish(&mut w);
        Part {
            cpu: thread_cpu_seconds() - cpu,
            misplaced: self.place.and_then(placement::Worker::check),
            ..part
        }
    }

    /// Runs the workers of one thread.
    fn work_all<'s, W: Worker>(&'s self, mut all: Vec<Numbered<'s, W>>) -> Vec<Part> {
        match (all.len(), all.pop()) {
            (1, Some((i, counter, w))) => vec![self.work(i, counter, w)],
            (_, last) => {
                all.extend(last);
                crowd::carry(self, all)
            }
        }
    }
}

/// The course of a load, as seen by the thread that waits for the workers.
struct Course<'a> {
    shared: &'a Shared,
    recorder: Recorder<'a>,
    /// Seconds and numbers of operations.
    timeline: Vec<(f64, f64)>,
    /// Numbers of documents at the same times.
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

    /// Takes a look at the load after `t` seconds.
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

/// The results of all workers together.
#[derive(Default)]
struct Sum {
    each: Vec<f64>,
    documents: u64,
    /// The seconds until the last operation had been sent, and until everything was done.
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
    /// The error of the worker.
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

/// As [`run`], with status reports to `watch`.
pub fn run_watched<W: Worker>(
    name: &str,
    workers: Vec<W>,
    limit: Limit,
    server: Option<u32>,
    progress: &mut dyn Onlooker,
    mut watch: Option<Watch<'_>>,
) -> Result<Load> {
    let mut workers = workers;
    let threads = crowd::threads(&mut workers, &limit);
    let shared = Shared::new(workers.len(), threads, limit);
    let mut watcher = Watcher::new(watch.as_mut(), &shared);
    watcher.look(Duration::ZERO, 0, true);
    let mut course = Course::new(&shared, server);
    let (began, parts) = std::thread::scope(|scope| {
        let mut shares: Vec<Vec<_>> = (0..threads).map(|_| Vec::new()).collect();
        let numbered = workers.into_iter().zip(&shared.counters).enumerate();
        for (i, (w, counter)) in numbered {
            if let Some(share) = shares.get_mut(i % threads) {
                share.push((i, counter, w));
            }
        }
        let handles: Vec<_> = shares
            .into_iter()
            .map(|share| scope.spawn(|| shared.work_all(share)))
            .collect();
        let begin = shared.begin();
        let began = unix_now();
        let mut tick = 0u32;
        while handles.iter().any(|h| !h.is_finished()) {
            // The short interval lets short runs end promptly; the longer one does not disturb long runs.
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
            .and_then(|parts| {
                parts.into_iter().try_for_each(|part| {
                    ended = ended.max(part.done);
                    sum.add(part).map_err(|e| e.while_doing(name))
                })
            });
        failure = failure.or(added.err());
    }
    watcher.look(ended, shared.operations(), true);
    match failure {
        Some(e) => Err(e),
        None => Ok(whole(name, &shared, threads, course, (sum, began))),
    }
}

/// Builds the results of a load whose workers have all ended without error.
fn whole(
    name: &str,
    shared: &Shared,
    threads: usize,
    course: Course<'_>,
    (sum, began): (Sum, f64),
) -> Load {
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
        carriers: (threads < count).then_some(threads),
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

/// The current time, in s since 1970.
pub fn unix_now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |d| d.as_secs_f64())
}

/// A time limit beyond this counts as no limit.
const FOREVER: Duration = Duration::from_secs(30 * 86_400);

/// A worker's counters for operations and documents, in a cache line of their own.
#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicU64, AtomicU64);

/// The times at which a worker's operations are due.
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

    /// The time at which the next operation is due, when `done` operations have been sent since `begin`. It
    /// is `None` for a closed loop.
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

/// The seconds as a duration. A value that cannot be one (from a rate of zero) becomes a day.
fn seconds(s: f64) -> Duration {
    Duration::try_from_secs_f64(s).unwrap_or(Duration::from_secs(86_400))
}

/// The course of one worker, whose operations a thread runs.
struct Run<'s> {
    shared: &'s Shared,
    counter: &'s Counter,
    limit: Limit,
    begin: Instant,
    part: Part,
    /// Operations so far.
    n: u64,
    last: Instant,
}

impl<'s> Run<'s> {
    /// The beginning of worker `i`.
    fn new(shared: &'s Shared, counter: &'s Counter, i: usize, begin: Instant) -> Run<'s> {
        let one_more = u64::from((i as u64) < shared.limit.extra);
        Run {
            shared,
            counter,
            limit: Limit {
                operations: shared.limit.operations.saturating_add(one_more),
                ..shared.limit
            },
            begin,
            part: Part::default(),
            n: 0,
            last: begin,
        }
    }

    /// Waits until the next operation is due. False if that is only after the end of the load.
    fn wait(&mut self, clock: &mut Clock, meter: &mut Meter) -> bool {
        let due = clock.due(self.begin, self.n);
        if let Some(d) = due {
            if d.saturating_duration_since(self.begin) >= self.limit.time {
                self.part.cut_short = self.limit.operations != u64::MAX;
                return false;
            }
            sleep_until(d);
        }
        meter.set_due(due);
        true
    }

    /// Records an operation that has ended. False if it was the last one.
    #[inline]
    fn ended(&mut self, start: Instant, result: Result<u64>, meter: &mut Meter) -> bool {
        match result {
            Ok(d) => self.part.documents += d,
            Err(e) => {
                self.fail(e);
                return false;
            }
        }
        let now = Instant::now();
        let ns = (now - start).as_nanos() as u64;
        self.last = now;
        meter.operation(ns, now);
        if self.limit.keep_each {
            self.part.each.push(ns as f64 / 1e6);
        }
        self.n += 1;
        self.counter.0.store(self.n, Ordering::Relaxed);
        self.counter.1.store(self.part.documents, Ordering::Relaxed);
        meter.answer();
        let (over, stop) = (now - self.begin >= self.limit.time, stop::asked());
        if self.more() && (over || stop || self.shared.failed.load(Ordering::Relaxed)) {
            self.part.cut_short = true;
            self.part.stopped = !over && stop;
            return false;
        }
        self.more()
    }

    /// Whether there are operations left.
    fn more(&self) -> bool {
        self.n < self.limit.operations
    }

    fn fail(&mut self, e: Failure) {
        self.part.error = Some(e);
        self.shared.failed.store(true, Ordering::Relaxed);
    }

    /// The results of the worker, after its last operation.
    fn finish<W: Worker>(mut self, w: &mut W) -> Part {
        self.part.sent = self.last - self.begin;
        if self.part.error.is_none()
            && let Err(e) = w.finish()
        {
            self.part.error = Some(e);
        }
        self.part.done = self.begin.elapsed();
        self.part
    }
}

#[cfg(test)]
mod tests;
