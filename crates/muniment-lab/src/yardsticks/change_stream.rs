//! Yardstick 17: change streams: the lateness of events, whether a stream keeps up with writes, and
//! the cost of an idle stream.

use super::{CACHE_GB, Row, Spec};
use crate::docs;
use crate::lab::{DB, Lab, Target};
use crate::report::Outcome;
use crate::report::table::{ms, rate};
use crate::workers::Inserts;
use muniment_load::conn::{Conn, InsertTemplate, Message, check};
use muniment_load::fail::{Failure, Result};
use muniment_load::hist::Latency;
use muniment_load::load::{self, Limit, Load, Pace, Worker};
use muniment_load::meter::Meter;
use muniment_load::procs;
use muniment_load::rng::Rng;
use muniment_load::stop;
use muniment_value::{Doc, array, doc};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) const SPEC: Spec = Spec {
    number: 17,
    title: "a change stream: from a write's acknowledgement to its event at 5,000 inserts/s; against insertMany(1000) of one connection; 100 idle ones",
    target_text: "p99 ≤ 5 ms; 1.0 ×; < 1 % of a core",
    run,
};

/// The inserts a second of all writers together.
const RATE: u64 = 5000;
/// The number of the writers' connections.
const WRITERS: u64 = 4;
/// The time that a stream has after the last insert to deliver all events.
const GRACE: Duration = Duration::from_secs(1);
/// The longest time to wait for a stream that does not keep up.
const PATIENCE: Duration = Duration::from_secs(120);
/// The number of streams that deliver no events.
const IDLE: usize = 100;

fn run(lab: &mut Lab, out: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    let mut target = lab.target(Some(CACHE_GB))?;
    delay(lab, out, &target, rows)?;
    if !stop::asked() {
        keeping_up(lab, out, &target, rows)?;
    }
    target.check_alive()?;
    lab.done(target);
    if stop::asked() {
        return Ok(());
    }
    // This uses a fresh server, which has no background work left from the measurements before.
    let mut target = lab.target(Some(CACHE_GB))?;
    idle(lab, out, &target, rows)?;
    target.check_alive()?;
    lab.done(target);
    Ok(())
}

/// A change stream on a collection, read as drivers do: the next getMore is sent when the last one
/// is answered. The server holds an answer back until there is an event, for at most a second.
struct Stream {
    conn: Conn,
    more: Message,
}

impl Stream {
    /// Opens a stream; it delivers the changes that are made from now on.
    fn open(mut conn: Conn, coll: &str) -> Result<Stream> {
        let stage = doc! { "$changeStream": doc! {} };
        let reply = conn.command(
            DB,
            &doc! { "aggregate": coll, "pipeline": array![stage], "cursor": doc! {} },
        )?;
        let cursor = reply.as_doc().get_doc("cursor");
        let id = cursor.and_then(|c| c.get("id")?.as_i64_exact());
        let id = id.filter(|id| *id != 0);
        let id = id.ok_or_else(|| Failure::new("$changeStream: the reply has no open cursor"))?;
        Ok(Stream {
            conn,
            more: Message::command(DB, &doc! { "getMore": id, "collection": coll }),
        })
    }

    /// Waits for the next batch; passes each event to `event` and returns their number.
    fn next(&mut self, mut event: impl FnMut(Doc<'_>)) -> Result<u64> {
        let reply = self.conn.call(&mut self.more)?;
        check(reply)?;
        let batch = reply
            .get_doc("cursor")
            .and_then(|c| c.get_array("nextBatch"))
            .ok_or_else(|| Failure::new("getMore of a change stream: the reply has no batch"))?;
        let mut n = 0;
        for d in batch.values().filter_map(|v| v.as_doc()) {
            event(d);
            n += 1;
        }
        Ok(n)
    }
}

/// Runs a load while another thread reads `stream`. `seen` gets each event with the time at which
/// its batch arrived. After the load the stream is read until a batch is empty or all events have
/// arrived.
fn beside(
    mut stream: Stream,
    mut seen: impl FnMut(Doc<'_>, Instant) + Send,
    load: impl FnOnce() -> Result<Load>,
) -> Result<(Load, Instant)> {
    let over = AtomicBool::new(false);
    let written = AtomicU64::new(u64::MAX);
    std::thread::scope(|scope| {
        let (over, written) = (&over, &written);
        let reader = scope.spawn(move || -> Result<()> {
            let (mut n, mut ended) = (0, None);
            loop {
                let was_over = over.load(Ordering::Acquire);
                let mut came = None;
                let new = stream.next(|e| seen(e, *came.get_or_insert_with(Instant::now)))?;
                n += new;
                let since = was_over.then(|| *ended.get_or_insert_with(Instant::now));
                let late = since.is_some_and(|s: Instant| s.elapsed() > PATIENCE);
                if was_over && (new == 0 || late || n >= written.load(Ordering::Acquire)) {
                    return Ok(());
                }
            }
        });
        let load = load();
        let end = Instant::now();
        if let Ok(l) = &load {
            written.store(l.documents, Ordering::Release);
        }
        over.store(true, Ordering::Release);
        let read = reader
            .join()
            .unwrap_or_else(|_| Err(Failure::new("the reader of a change stream panicked")));
        let load = load?;
        read?;
        Ok((load, end))
    })
}

/// Inserts documents with rising `_id`s, and notes the time of each acknowledgement.
struct Stamped {
    conn: Conn,
    template: InsertTemplate,
    message: Message,
    id: u64,
    acknowledged: Arc<Vec<AtomicU64>>,
    base: Instant,
}

impl Worker for Stamped {
    fn prepare(&mut self) -> bool {
        self.template.begin(&mut self.message);
        docs::small(self.id as i64, &mut self.message.0);
        self.template.seal(&mut self.message);
        (self.id as usize) < self.acknowledged.len()
    }

    fn operate(&mut self, meter: &mut Meter) -> Result<u64> {
        meter.payload(self.message.0.len());
        check(self.conn.call(&mut self.message)?)?;
        if let Some(slot) = self.acknowledged.get(self.id as usize) {
            slot.store(nanos(self.base), Ordering::Relaxed);
        }
        self.id += WRITERS;
        Ok(1)
    }
}

/// The nanoseconds since `base`; at least 1, since 0 stands for no time.
fn nanos(base: Instant) -> u64 {
    (base.elapsed().as_nanos() as u64).max(1)
}

/// The lateness of events: the time from the acknowledgement to the arrival, 0 if the event came
/// first. Each event must have come exactly once.
///
/// # Errors
/// An event did not come, or came twice.
fn lateness(acknowledged: &[AtomicU64], events: &[(u64, u64)]) -> Result<Latency> {
    let mut latency = Latency::new();
    let mut came = vec![false; acknowledged.len()];
    for (id, at) in events {
        let slot = usize::try_from(*id).ok().and_then(|i| {
            let known = acknowledged.get(i)?.load(Ordering::Relaxed);
            Some((known, came.get_mut(i)?))
        });
        match slot {
            Some((known, came)) if known > 0 && !*came => {
                *came = true;
                latency.record(at.saturating_sub(known).max(1));
            }
            _ => return Err(Failure(format!("an event of _id {id} came once too often"))),
        }
    }
    let written = acknowledged.iter().map(|a| a.load(Ordering::Relaxed));
    let lost = written.zip(&came).filter(|(a, c)| *a > 0 && !**c).count();
    if lost > 0 {
        return Err(Failure(format!(
            "{lost} events of acknowledged inserts did not come"
        )));
    }
    Ok(latency)
}

fn delay(lab: &mut Lab, out: &mut Outcome, target: &Target, rows: &mut Vec<Row>) -> Result<()> {
    const COLLECTION: &str = "watched";
    let seconds: u64 = lab.preset.pick(3, 10, 30);
    let mut c = target.connect()?;
    c.command(DB, &doc! { "create": COLLECTION })?;
    let stream = Stream::open(c, COLLECTION)?;
    let acknowledged: Arc<Vec<AtomicU64>> = Arc::new(
        (0..RATE * (seconds + 1))
            .map(|_| AtomicU64::new(0))
            .collect(),
    );
    let base = Instant::now();
    let workers = target
        .connections(WRITERS as usize)?
        .into_iter()
        .zip(0..)
        .map(|(conn, id)| Stamped {
            conn,
            template: Message::insert(DB, COLLECTION, Some(&doc! { "w": 1 })),
            message: Message(Vec::new()),
            id,
            acknowledged: acknowledged.clone(),
            base,
        })
        .collect();
    lab.progress
        .step(format!("Yardstick 17: a stream at {RATE} inserts/s"));
    let limit = Limit {
        pace: Pace::Steady(RATE as f64 / WRITERS as f64),
        ..Limit::time(Duration::from_secs(seconds))
    };
    let mut events = Vec::with_capacity(acknowledged.len());
    let seen = |e: Doc<'_>, at: Instant| {
        let key = e.get_doc("documentKey").and_then(|k| k.get("_id"));
        let id = key.and_then(|id| id.as_i64_exact()).unwrap_or(-1);
        events.push((id as u64, (at - base).as_nanos() as u64));
    };
    let name = "Yardstick 17, paced inserts beside a change stream";
    let (load, _) = beside(stream, seen, || {
        load::run(name, workers, limit, target.pid, &mut lab.progress)
    })?;
    let latency = lateness(&acknowledged, &events)?;
    // All events of a batch have the same time of arrival.
    let mut batches: Vec<u64> = events.iter().map(|e| e.1).collect();
    batches.dedup();
    if load.rate() < 0.97 * RATE as f64 {
        out.warnings.push(format!(
            "17a: only {} inserts/s were written instead of {RATE}",
            rate(load.rate())
        ));
    }
    let p99 = latency.quantile_ms(0.99);
    rows.push(
        Row::at_most("17a", "change stream, acknowledged write to event, p99", p99, "ms", 5.0)
            .because(format!(
                "p50 {} ms, p99.9 {} ms, longest {} ms; {} inserts/s of {WRITERS} connections, paced, {} events in {} batches, each once",
                ms(latency.quantile_ms(0.5)),
                ms(latency.quantile_ms(0.999)),
                ms(latency.max_ms()),
                rate(load.rate()),
                rate(latency.count() as f64),
                rate(batches.len() as f64),
            )),
    );
    out.samples.push(load.samples);
    Ok(())
}

fn keeping_up(
    lab: &mut Lab,
    out: &mut Outcome,
    target: &Target,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let limit = Limit::time(Duration::from_secs(lab.preset.pick(3, 10, 30)));
    let now = docs::now_ms();
    let w1 = doc! { "w": 1 };
    let batches = |coll: &str, seed: u64| -> Result<Inserts> {
        let mut rng = Rng::new(seed);
        let make = Box::new(move |o: &mut Vec<u8>| docs::w3(&mut rng, now, docs::object_id(), o));
        let c = target.connect()?;
        Ok(Inserts::new(c, coll, Some(&w1), make).batched(1000))
    };
    let mut c = target.connect()?;
    for coll in ["unwatched", "filled"] {
        c.command(DB, &doc! { "create": coll })?;
    }
    lab.progress
        .step("Yardstick 17: insertMany without a stream");
    let name = "Yardstick 17, insertMany(1000) without a stream";
    let alone = vec![batches("unwatched", 1)?];
    let alone = load::run(name, alone, limit, target.pid, &mut lab.progress)?;
    lab.settle(target, Duration::from_secs(20));
    let stream = Stream::open(c, "filled")?;
    let workers = vec![batches("filled", 2)?];
    lab.progress
        .step("Yardstick 17: insertMany beside a stream");
    let mut events = Came::default();
    let seen = |_: Doc<'_>, at: Instant| events.one(at);
    let name = "Yardstick 17, insertMany(1000) beside a change stream";
    let (load, end) = beside(stream, seen, || {
        load::run(name, workers, limit, target.pid, &mut lab.progress)
    })?;
    rows.push(kept_up(&alone, &load, &events, end)?);
    out.samples.extend([alone.samples, load.samples]);
    Ok(())
}

/// The number of events that had arrived at each moment, one entry for each batch.
#[derive(Default)]
struct Came(Vec<(Instant, u64)>);

impl Came {
    /// Notes an event that arrived at this moment; events of one batch have the same moment.
    fn one(&mut self, at: Instant) {
        match self.0.last_mut() {
            Some((last, n)) if *last == at => *n += 1,
            last => {
                let n = last.map_or(0, |l| l.1);
                self.0.push((at, n + 1));
            }
        }
    }

    /// The number of events that had arrived by `at`.
    fn by(&self, at: Instant) -> f64 {
        self.0.iter().rev().find(|c| c.0 <= at).map_or(0, |c| c.1) as f64
    }

    /// The number of all events.
    fn all(&self) -> u64 {
        self.0.last().map_or(0, |c| c.1)
    }

    /// The time from `end` to the last event.
    fn late(&self, end: Instant) -> Duration {
        let last = self.0.last();
        last.map_or(Duration::ZERO, |c| c.0.saturating_duration_since(end))
    }
}

/// Line 17b: compares inserts without a stream to inserts with one, which ended at `end`.
///
/// # Errors
/// There were more events than inserts.
fn kept_up(alone: &Load, load: &Load, events: &Came, end: Instant) -> Result<Row> {
    let all = events.all();
    if all > load.documents {
        return Err(Failure(format!(
            "{all} events of {} inserts came",
            load.documents
        )));
    }
    let written = load.documents as f64;
    let row = Row::at_least(
        "17b",
        "change stream, events that have come 1 s after the last insertMany(1000) / inserts",
        events.by(end + GRACE) / written,
        "×",
        1.0,
    );
    Ok(row.because(format!(
        "{} inserts/s ({} without a stream), {} events/s until the last insert, {:.1} % of all; {} events in all, the last one {} ms after it",
        rate(load.rate()),
        rate(alone.rate()),
        rate(events.by(end) / load.samples.seconds),
        100.0 * events.by(end) / written,
        rate(all as f64),
        ms(events.late(end).as_secs_f64() * 1e3),
    )))
}

fn idle(lab: &mut Lab, out: &mut Outcome, target: &Target, rows: &mut Vec<Row>) -> Result<()> {
    let time = Duration::from_secs(lab.preset.pick(5, 20, 60));
    let Some(pid) = target.pid else {
        out.warnings
            .push("17c: the server's process cannot be read".into());
        return Ok(());
    };
    let mut c = target.connect()?;
    c.command(DB, &doc! { "create": "quiet" })?;
    lab.progress.step("Yardstick 17: no stream");
    lab.settle(target, Duration::from_secs(20));
    let without = share(pid, time)?;
    let streams: Vec<Stream> = target
        .connections(IDLE)?
        .into_iter()
        .map(|c| Stream::open(c, "quiet"))
        .collect::<Result<_>>()?;
    lab.progress
        .step(format!("Yardstick 17: {IDLE} idle streams"));
    let over = AtomicBool::new(false);
    let (with, asked) = std::thread::scope(|scope| {
        let over = &over;
        let readers: Vec<_> = streams
            .into_iter()
            .map(|mut s| {
                scope.spawn(move || -> Result<u64> {
                    let mut asked = 0;
                    while !over.load(Ordering::Acquire) {
                        if s.next(|_| ())? > 0 {
                            return Err(Failure::new("an event came through an idle stream"));
                        }
                        asked += 1;
                    }
                    Ok(asked)
                })
            })
            .collect();
        std::thread::sleep(GRACE);
        let with = share(pid, time);
        over.store(true, Ordering::Release);
        let asked = readers
            .into_iter()
            .map(|r| {
                r.join()
                    .unwrap_or_else(|_| Err(Failure::new("a reader panicked")))
            })
            .sum::<Result<u64>>();
        (with, asked)
    });
    let (with, asked) = (with?, asked?);
    rows.push(
        Row::at_most("17c", "the server's CPU with 100 idle change streams", with, "%", 1.0)
            .because(format!(
                "of a core, {} s; {without:.2} % without them; {asked} getMores were answered with nothing",
                time.as_secs()
            )),
    );
    Ok(())
}

/// The share of a core that the process used during `time`, per cent.
fn share(pid: u32, time: Duration) -> Result<f64> {
    let gone = || Failure::new("the server's process cannot be read any more");
    let began = Instant::now();
    let before = procs::sample(pid).ok_or_else(gone)?;
    while began.elapsed() < time && !stop::asked() {
        std::thread::sleep(Duration::from_millis(50));
    }
    let after = procs::sample(pid).ok_or_else(gone)?;
    Ok(100.0 * (after.cpu_seconds - before.cpu_seconds) / began.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use muniment_load::fake;

    fn slots(at: &[u64]) -> Vec<AtomicU64> {
        at.iter().map(|a| AtomicU64::new(*a)).collect()
    }

    #[test]
    fn events_are_as_late_as_they_come_behind_their_acknowledgement() {
        let acknowledged = slots(&[1_000_000, 2_000_000, 0]);
        // The second event arrived before its writer had read the acknowledgement.
        let l = lateness(&acknowledged, &[(0, 4_000_000), (1, 1_900_000)]).unwrap();
        assert_eq!(l.count(), 2);
        assert!((l.max_ms() - 3.0).abs() < 0.01 && l.min_ms() < 0.001);
    }

    #[test]
    fn an_event_too_many_or_too_few_is_a_failure() {
        let acknowledged = slots(&[5, 6, 0]);
        for (events, why) in [
            (&[(0, 9)][..], "1 events of acknowledged inserts"),
            (&[(0, 9), (1, 9), (0, 9)], "_id 0 came once too often"),
            (&[(0, 9), (1, 9), (2, 9)], "_id 2 came once too often"),
            (&[(0, 9), (1, 9), (u64::MAX, 9)], "once too often"),
        ] {
            let e = lateness(&acknowledged, events).err().unwrap().0;
            assert!(e.contains(why), "{e}");
        }
    }

    #[test]
    fn a_stream_is_read_by_its_cursor() {
        let (address, heard) = fake::server(|n, _| match n {
            0 => {
                doc! { "cursor": doc! { "id": 7_i64, "firstBatch": array![] }, "ok": 1.0 }
            }
            1 => {
                let events = array![doc! { "n": 1 }, doc! { "n": 2 }];
                doc! { "cursor": doc! { "id": 7_i64, "nextBatch": events }, "ok": 1.0 }
            }
            _ => doc! { "ok": 0.0, "errmsg": "gone", "code": 43, "codeName": "CursorNotFound" },
        });
        let mut s = Stream::open(
            Conn::connect(&muniment_load::access::Peer::open(&address)).unwrap(),
            "c",
        )
        .unwrap();
        let mut seen = Vec::new();
        assert_eq!(s.next(|e| seen.push(e.to_buf())), Ok(2));
        assert_eq!(seen, [doc! { "n": 1 }, doc! { "n": 2 }]);
        assert!(s.next(|_| ()).unwrap_err().0.contains("CursorNotFound"));
        let more = heard.all().pop().unwrap();
        assert_eq!(
            more,
            doc! { "getMore": 7_i64, "collection": "c", "$db": DB }
        );
    }
}
