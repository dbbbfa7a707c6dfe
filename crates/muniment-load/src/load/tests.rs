//! Tests of pacing: whether the requested rate is reached, the distribution of the gaps, and the figures if a
//! server stops for a while. Bounds are relative to the durations in the server's script, because a busy
//! machine may stop every thread.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::*;
use crate::access::Peer;
use crate::conn::{Conn, Message};
use crate::fake;
use crate::hist::Latency;
use muniment_value::doc;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;

/// A worker that sends one request after the other.
struct Asks(Conn);

impl Worker for Asks {
    fn operate(&mut self, meter: &mut Meter) -> Result<u64> {
        let start = Instant::now();
        self.0
            .call(&mut Message::command("admin", &doc! { "ping": 1 }))?;
        meter.record("ASK", start);
        Ok(1)
    }
}

/// A worker that can be one of many in a thread.
struct Crowded {
    conn: Conn,
    number: i32,
    left: u64,
    finished: Arc<AtomicU64>,
    start: Instant,
}

impl Worker for Crowded {
    fn prepare(&mut self) -> bool {
        let left = self.left;
        self.left = left.saturating_sub(1);
        left > 0
    }

    fn operate(&mut self, meter: &mut Meter) -> Result<u64> {
        self.send(meter)?;
        self.receive(meter)
    }

    fn finish(&mut self) -> Result<()> {
        self.finished.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn divided(&mut self) -> Option<&mut dyn Divided> {
        Some(self)
    }
}

impl Divided for Crowded {
    fn socket(&self) -> BorrowedFd<'_> {
        self.conn.socket()
    }

    fn send(&mut self, _: &mut Meter) -> Result<()> {
        self.start = Instant::now();
        let ask = doc! { "ping": self.number, "left": self.left as i64 };
        self.conn.send(&mut Message::command("admin", &ask))
    }

    fn receive(&mut self, meter: &mut Meter) -> Result<u64> {
        let reply = self.conn.receive()?;
        assert_eq!(
            crate::conn::number_at(reply, "you"),
            Some(f64::from(self.number))
        );
        meter.record("ASK", self.start);
        Ok(2)
    }
}

/// So many workers, of which number `k` has `each(k)` operations of its own.
fn crowd(address: &str, workers: i32, each: impl Fn(i32) -> u64) -> (Vec<Crowded>, Arc<AtomicU64>) {
    let finished = Arc::new(AtomicU64::new(0));
    let one = |number| Crowded {
        conn: Conn::connect(&Peer::open(address)).unwrap(),
        number,
        left: each(number),
        finished: Arc::clone(&finished),
        start: Instant::now(),
    };
    ((0..workers).map(one).collect(), finished)
}

#[test]
fn many_workers_share_threads_and_each_gets_its_own_answers() {
    let (address, heard) = fake::server(|_, ask| {
        let you = ask.get("ping").and_then(|v| v.as_i64_exact()).unwrap();
        doc! { "ok": 1.0, "you": you }
    });
    // Some end before their limit, one without having begun.
    let each = |k: i32| if k % 7 == 0 { k as u64 % 5 } else { u64::MAX };
    let (all, finished) = crowd(&address, 150, each);
    let limit = Limit {
        extra: 3,
        keep_each: true,
        ..Limit::operations(8, Duration::from_secs(600))
    };
    let load = run("crowd", all, limit, None, &mut ()).unwrap();
    let own = |k: i32| each(k).min(8 + u64::from(k < 3));
    let wanted: u64 = (0..150).map(own).sum();
    assert_eq!(
        load.carriers,
        Some(std::thread::available_parallelism().unwrap().get())
    );
    assert_eq!(load.samples.operations, wanted);
    assert_eq!(load.documents, 2 * wanted);
    assert_eq!(load.kinds["ASK"].service.count(), wanted);
    assert_eq!(load.samples.each_ms.len() as u64, wanted);
    assert_eq!(
        (load.samples.workers, finished.load(Ordering::Relaxed)),
        (150, 150)
    );
    assert!(!load.cut_short && load.client_cpu > 0.0);
    let said = load.cost_in_words();
    assert!(said.contains("whose 150 connections share"), "{said}");
    let mut of = vec![0; 150];
    for ask in heard.all() {
        of[ask
            .as_doc()
            .get("ping")
            .and_then(|v| v.as_i64_exact())
            .unwrap() as usize] += 1;
    }
    assert_eq!(of, (0..150).map(own).collect::<Vec<_>>());
}

#[test]
fn an_error_or_the_time_ends_all_workers_that_share_a_thread() {
    let (address, heard) = fake::server(|_, ask| {
        let you = ask.get("ping").and_then(|v| v.as_i64_exact()).unwrap();
        doc! { "ok": 1.0, "you": you }
    });
    let (all, finished) = crowd(&address, 100, |_| u64::MAX);
    let limit = Limit::time(Duration::from_millis(50));
    let load = run("time", all, limit, None, &mut ()).unwrap();
    assert_eq!(finished.load(Ordering::Relaxed), 100);
    assert_eq!(load.samples.operations, heard.all().len() as u64);
    assert!(load.samples.seconds >= 0.05);

    let (mut all, _) = crowd(&address, 100, |_| u64::MAX);
    let (stops, _) = fake::server(|_, _| panic!("this server ends its connections"));
    all[50].conn = Conn::connect(&Peer::open(&stops)).unwrap();
    let failed = run(
        "fails",
        all,
        Limit::operations(u64::MAX, Duration::from_secs(600)),
        None,
        &mut (),
    );
    let said = failed.err().unwrap().to_string();
    assert!(said.contains("fails"), "{said}");
}

fn paced(address: &str, workers: usize, operations: u64, pace: Pace) -> Load {
    let all = (0..workers)
        .map(|_| Asks(Conn::connect(&Peer::open(address)).unwrap()))
        .collect();
    let limit = Limit {
        pace,
        ..Limit::operations(operations, Duration::from_secs(600))
    };
    run("paced", all, limit, None, &mut ()).unwrap()
}

/// The times at which a clock's operations are due, for a worker that is never late.
fn due(pace: Pace, worker: u64, n: u64) -> Vec<f64> {
    let begin = Instant::now();
    let mut clock = Clock::new(pace, worker);
    (0..n)
        .map(|k| (clock.due(begin, k).unwrap() - begin).as_secs_f64())
        .collect()
}

#[test]
fn steady_operations_are_due_evenly() {
    let at = due(Pace::Steady(250.0), 3, 1000);
    assert!((0.0..0.004).contains(&at[0]), "{}", at[0]);
    for (k, t) in at.iter().enumerate() {
        assert!((t - at[0] - k as f64 / 250.0).abs() < 1e-6);
    }
    // The workers do not all begin at the same time.
    assert!((due(Pace::Steady(250.0), 4, 1)[0] - at[0]).abs() > 1e-6);
}

/// The greatest distance between the distribution of the gaps and that of rate `rate`, times √n.
fn kolmogorov(at: &[f64], rate: f64) -> f64 {
    let mut gaps: Vec<f64> = at.windows(2).map(|w| w[1] - w[0]).collect();
    gaps.sort_by(f64::total_cmp);
    let n = gaps.len() as f64;
    let far = |(i, g): (usize, &f64)| {
        let want = 1.0 - (-rate * g).exp();
        (want - i as f64 / n).max((i as f64 + 1.0) / n - want)
    };
    gaps.iter().enumerate().map(far).fold(0.0, f64::max) * n.sqrt()
}

#[test]
fn poisson_gaps_are_exponential() {
    for worker in 0..4 {
        let at = due(Pace::Poisson(500.0), worker, 20_000);
        // Only one in a thousand samples exceeds 1.95 (Kolmogorov's distribution).
        assert!(kolmogorov(&at, 500.0) < 1.95, "{}", kolmogorov(&at, 500.0));
        let rate = (at.len() - 1) as f64 / (at[at.len() - 1] - at[0]);
        assert!((rate / 500.0 - 1.0).abs() < 0.03, "{rate}");
        // The test must detect a rate that is 5 % off.
        assert!(kolmogorov(&at, 525.0) > 1.95);
    }
    // Even gaps do not have a Poisson distribution.
    assert!(kolmogorov(&due(Pace::Steady(500.0), 1, 2000), 500.0) > 10.0);
}

#[test]
fn the_rate_that_was_asked_for_is_reached() {
    let (address, heard) = fake::server(|_, _| doc! { "ok": 1.0 });
    let (workers, each) = (4, 200);
    for pace in [Pace::Steady(100.0), Pace::Poisson(100.0)] {
        let before = heard.all().len();
        let load = paced(&address, workers, each, pace);
        assert_eq!(heard.all().len() - before, workers * each as usize);
        assert!(load.paced);
        // The sum of random gaps varies, so it is taken from the schedule.
        let last = (0..workers as u64)
            .map(|w| due(pace, w, each)[each as usize - 1])
            .fold(0.0, f64::max);
        // The load must never be before its schedule, and never later than its last operation was late.
        let late = load.kinds["ASK"].intended.max_ms() / 1e3;
        let took = load.samples.seconds;
        assert!(took >= last * 0.999, "{took} {last}");
        // A busy machine may delay a worker before it can report its end.
        let sent = load.sent_seconds;
        assert!(sent <= last * 1.03 + late, "{sent} {last} {late}");
        let rate = load.samples.operations as f64 / (sent - late).max(last);
        let wanted = (workers as u64 * each) as f64 / last;
        assert!((rate / wanted - 1.0).abs() < 0.03, "{rate} {wanted}");
        if let Pace::Steady(_) = pace {
            assert!((wanted / 400.0 - 1.0).abs() < 0.03, "{wanted}");
        }
    }
}

#[test]
fn a_stall_is_in_the_intended_latencies_of_all_that_were_due() {
    const STALL: Duration = Duration::from_millis(300);
    // The durations that the server took, by its own clock.
    let took = Arc::new(Mutex::new(Vec::new()));
    let noted = took.clone();
    let (address, _) = fake::server(move |n, _| {
        let begin = Instant::now();
        if n == 200 {
            std::thread::sleep(STALL);
        }
        noted.lock().unwrap().push(begin.elapsed());
        doc! { "ok": 1.0 }
    });
    let (rate, n) = (500.0, 600);
    let load = paced(&address, 1, n, Pace::Steady(rate));
    let stalls = took.lock().unwrap().iter().filter(|t| **t >= STALL).count();
    assert_eq!(stalls, 1);
    let ask = &load.kinds["ASK"];
    let (service, intended) = (&ask.service, &ask.intended);
    assert!(service.max_ms() >= 300.0 && intended.max_ms() >= 300.0);
    // Operations that were due in the first half of the stall were late by at least its second half.
    let half = STALL.as_secs_f64() / 2.0;
    let due_then = (half * rate) as u64;
    let late = |l: &Latency| {
        let all = l.cumulative_ms();
        let in_time = all.iter().rfind(|(v, _)| *v < half * 1e3);
        n - in_time.map_or(0, |c| c.1)
    };
    assert!(
        late(intended) >= due_then,
        "{} of {due_then}",
        late(intended)
    );
    // The latency without the schedule shows the stall in one operation only (and in those that the machine
    // itself delayed).
    assert!(
        late(service) >= 1 && late(service) * 5 < due_then,
        "{}",
        late(service)
    );
}

/// A worker that requests a stop in its fifth operation.
struct Stops(u64);

impl Worker for Stops {
    fn operate(&mut self, _: &mut Meter) -> Result<u64> {
        self.0 += 1;
        if self.0 == 5 {
            // SAFETY: the handler that was installed only touches an atomic.
            unsafe { libc::raise(libc::SIGINT) };
        }
        Ok(1)
    }
}

#[test]
fn a_load_that_a_signal_ends_says_so() {
    // A signal would stop the other tests too, so it is sent in a separate process.
    const OWN: &str = "MUNIMENT_LAB_TEST_STOPS";
    if std::env::var_os(OWN).is_none() {
        let test = "load::tests::a_load_that_a_signal_ends_says_so";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test])
            .env(OWN, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(said.contains("1 passed"), "{said}");
        return;
    }
    stop::install();
    let go = |operations: u64, stops: u64| {
        let limit = Limit::operations(operations, Duration::from_secs(600));
        let load = run("stops", vec![Stops(stops)], limit, None, &mut ()).unwrap();
        (load.samples.operations, load.cut_short, load.stopped)
    };
    assert_eq!(go(4, 0), (4, false, false));
    // The last operation had been done when the signal came.
    assert_eq!(go(1, 4), (1, false, false));
    assert_eq!(go(10, 5), (1, true, true));
}
