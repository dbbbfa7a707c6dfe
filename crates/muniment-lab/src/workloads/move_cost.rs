//! What a move of a range costs: how fast its documents get to the other shard, and how long writers
//! of that range wait at its end.

use super::router_cost::fill;
use crate::docs;
use crate::lab::{DB, Lab, Target};
use crate::topology::sharded::{self, Sharded};
use muniment_load::access::Peer;
use muniment_load::conn::{self, Conn, check, number_at};
use muniment_load::fail::{Failure, Result};
use muniment_load::rng::Rng;
use muniment_load::stats::quantile;
use muniment_load::stop;
use muniment_value::doc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// The connections that write meanwhile.
pub(crate) const WRITERS: u64 = 8;
/// The collection whose documents move.
const MOVING: &str = "moving";
/// How long writers write before a move, to compare with.
const CALM: Duration = Duration::from_secs(2);
/// The last part of a move: within it the range is frozen, and its writers wait.
const END: Duration = Duration::from_secs(1);
/// How long writers go on after a move. What it has held up is answered by then.
const AFTER: Duration = Duration::from_millis(500);

/// The results, one entry for each move.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct MoveCost {
    /// The bytes of the documents that move.
    pub bytes: f64,
    /// Seconds of a move while nobody writes.
    pub quiet: Vec<f64>,
    /// Seconds of a move beside the writers.
    pub beside: Vec<f64>,
    /// The writers' p99 before a move, ms.
    pub calm_ms: Vec<f64>,
    /// Their p99 at its end, ms.
    pub end_ms: Vec<f64>,
    /// The longest that one of them waited from its begin on, ms.
    pub longest_ms: Vec<f64>,
}

/// Measures a cluster with two shards or more.
pub(super) fn measure(lab: &mut Lab, target: &Target, cluster: &Sharded) -> Result<MoveCost> {
    let points: u64 = lab.preset.pick(20_000, 100_000, 500_000);
    cluster.divide_by(DB, MOVING, doc! { "_id": 1 })?;
    fill(lab, target, MOVING, points)?;
    let mut one = Vec::new();
    docs::point(0, &mut one);
    let mut cost = MoveCost {
        bytes: (one.len() as u64 * points) as f64,
        ..MoveCost::default()
    };
    let mover = Mover { cluster, points };
    // The first move goes to where the next one begins, and warms up.
    mover.go(0)?;
    for _ in 0..lab.preset.pick(2, 3, 5) {
        if stop::asked() {
            break;
        }
        lab.progress.step("W5 move: nobody writes");
        cost.quiet.push(mover.go(1)?.as_secs_f64());
        lab.progress.step("W5 move: beside writers");
        beside(&target.peer, &mover, &mut cost)?;
    }
    Ok(cost)
}

/// Moves the documents to and fro.
struct Mover<'m> {
    cluster: &'m Sharded,
    points: u64,
}

impl Mover<'_> {
    /// Moves all documents to a shard; how long that took. What an earlier move has left is cleaned
    /// before.
    fn go(&self, shard: usize) -> Result<Duration> {
        let ns = format!("{DB}.{MOVING}");
        let clean = doc! { "cleanupOrphaned": ns.as_str() };
        self.cluster.at_shard(shard, &clean)?;
        let command = doc! {
            "moveRange": ns, "min": doc! { "_id": 0_i64 }, "max": doc! { "_id": self.points as i64 },
            "toShard": sharded::name(shard), "forceJumbo": true,
        };
        let begun = Instant::now();
        self.cluster.at_router(&command)?;
        Ok(begun.elapsed())
    }
}

/// When a write began, and how long it took.
type Write = (Instant, Duration);

/// Moves the documents back while workers write to them.
fn beside(router: &Peer, mover: &Mover<'_>, cost: &mut MoveCost) -> Result<()> {
    let (ended, points) = (&AtomicBool::new(false), mover.points);
    let (moved, writes) = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|seed| scope.spawn(move || write(router, points, seed, ended)))
            .collect();
        thread::sleep(CALM);
        let begun = Instant::now();
        let moved = mover.go(0).map(|took| (begun, begun.elapsed(), took));
        thread::sleep(AFTER);
        ended.store(true, Relaxed);
        let joined = writers.into_iter().map(|w| w.join().ok());
        (moved, joined.collect::<Option<Vec<_>>>())
    });
    let (begun, all, took) = moved?;
    let writes = writes.ok_or_else(|| Failure::new("a writer ended by a bug"))?;
    let writes: Vec<Write> = writes.into_iter().collect::<Result<Vec<_>>>()?.concat();
    let until = begun + all;
    let p99 = |from: Instant, to: Instant| {
        let within = |(at, took): &&Write| *at + *took >= from && *at < to;
        let ms = writes.iter().filter(within);
        let ms: Vec<f64> = ms.map(|(_, took)| took.as_secs_f64() * 1e3).collect();
        quantile(&ms, 0.99)
    };
    cost.calm_ms.push(p99(begun - CALM / 2, begun));
    cost.end_ms.push(p99(until - END, until));
    let of_move = writes.iter().filter(|(at, took)| *at + *took >= begun);
    let longest = of_move.map(|(_, took)| took.as_secs_f64() * 1e3);
    cost.longest_ms.push(longest.fold(0.0, f64::max));
    cost.beside.push(took.as_secs_f64());
    Ok(())
}

/// Updates documents at random until the end.
fn write(router: &Peer, points: u64, seed: u64, ended: &AtomicBool) -> Result<Vec<Write>> {
    let mut c = Conn::connect(router)?;
    let (mut message, at, value_at) = conn::update_by_id(DB, MOVING);
    let mut rng = Rng::new(seed);
    let mut writes = Vec::new();
    while !ended.load(Relaxed) && !stop::asked() {
        let id = rng.below(points) as i64;
        message.patch(at, &id.to_le_bytes());
        message.patch(value_at, &(rng.next_u64() as i32).to_le_bytes());
        let begun = Instant::now();
        let reply = c.call(&mut message)?;
        check(reply)?;
        if number_at(reply, "n") != Some(1.0) {
            return Err(Failure(format!("update by _id {id} matched nothing")));
        }
        writes.push((begun, begun.elapsed()));
    }
    Ok(writes)
}
