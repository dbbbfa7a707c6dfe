//! What a router costs: finds by `_id` through it, straight to the only shard, and through a router
//! that only passes messages on, in turns; insertMany through it; and updates and scans of a divided and
//! of a whole collection. With one shard all ways lead to the same data on the same cores.

use crate::batches::{Batches, Documents};
use crate::docs;
use crate::lab::{DB, Lab, Target};
use crate::process;
use crate::topology::sharded::Sharded;
use crate::workers::{Finds, Scans, Updates};
use muniment_load::access::Peer;
use muniment_load::conn::{Conn, Message, check};
use muniment_load::fail::{Failure, Result};
use muniment_load::load::{self, Limit, Load, Worker};
use muniment_load::stats::{Side, abba};
use muniment_load::stop;
use muniment_value::doc;
use std::sync::Arc;
use std::time::Duration;

/// The connections of the finds and updates.
pub(crate) const CONNECTIONS: u64 = 16;
/// The documents of an insertMany.
pub(crate) const BATCH: u64 = 1000;
/// The divided collection of the finds and updates.
const POINTS: &str = "points";
/// A collection with the same documents that is not divided.
const WHOLE: &str = "whole";

/// The results, one entry for each turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RouterCost {
    /// Finds a second through the router.
    pub through: Vec<f64>,
    /// Finds a second straight to the shard.
    pub straight: Vec<f64>,
    /// Finds a second through the null router.
    pub passed: Vec<f64>,
    /// The router's CPU time, µs a find.
    pub find_us: Vec<f64>,
    /// The shard's CPU time when it is asked straight, µs a find.
    pub straight_us: Vec<f64>,
    /// The null router's CPU time, µs a find.
    pub pass_us: Vec<f64>,
    /// The router's CPU time, µs a document of insertMany.
    pub document_us: Vec<f64>,
    /// Documents a second of insertMany through the router.
    pub documents: Vec<f64>,
    /// The shard's CPU time, µs an update of the divided collection.
    pub gated_us: Vec<f64>,
    /// The same for the collection that is not divided.
    pub free_us: Vec<f64>,
    /// The shard's CPU time, µs a document of a scan of the divided collection.
    pub filtered_us: Vec<f64>,
    /// The same for the collection that is not divided.
    pub unfiltered_us: Vec<f64>,
}

/// A way to the shard: a peer, and the process whose CPU time counts.
struct Way<'w> {
    peer: &'w Peer,
    pid: Option<u32>,
    who: &'static str,
}

/// Measures the router of a cluster with one shard.
pub(super) fn measure(lab: &mut Lab, target: &Target, cluster: &Sharded) -> Result<RouterCost> {
    let points = lab.preset.pick(5_000, 20_000, 20_000);
    cluster.divide(DB, POINTS)?;
    fill(lab, target, POINTS, points)?;
    fill(lab, target, WHOLE, points)?;
    let mut cost = RouterCost::default();
    finds(lab, target, cluster, points, &mut cost)?;
    inserts(lab, target, cluster, &mut cost)?;
    updates(lab, target, cluster, points, &mut cost)?;
    scans(lab, target, cluster, points, &mut cost)?;
    Ok(cost)
}

fn turns(lab: &Lab) -> usize {
    lab.preset.pick(5, 7, 11)
}

/// Inserts so many documents through the router.
pub(super) fn fill(lab: &mut Lab, target: &Target, coll: &str, points: u64) -> Result<()> {
    lab.progress.step(format!("W5: loading {coll}"));
    let mut c = target.connect()?;
    let template = Message::insert(DB, coll, None);
    let mut m = Message(Vec::new());
    for from in (0..points).step_by(BATCH as usize) {
        template.begin(&mut m);
        for i in from..(from + BATCH).min(points) {
            docs::point(i as i64, &mut m.0);
        }
        template.seal(&mut m);
        check(c.call(&mut m)?)?;
    }
    Ok(())
}

/// Measures the finds on all three ways.
fn finds(
    lab: &mut Lab,
    target: &Target,
    cluster: &Sharded,
    points: u64,
    cost: &mut RouterCost,
) -> Result<()> {
    let address = cluster.shard(0);
    let address = address.ok_or_else(|| Failure::new("the cluster has no shard"))?;
    let near = cluster.near_shard(0).unwrap_or(address);
    let (null, null_address) = process::null_router(&lab.data_parent, near)?;
    let (shard, passing) = (Peer::open(address), Peer::open(null_address));
    let through = Way {
        peer: &target.peer,
        pid: Some(cluster.router_pid()),
        who: "finds through the router",
    };
    let straight = Way {
        peer: &shard,
        pid: cluster.shard_pids().first().copied(),
        who: "finds straight",
    };
    let passed = Way {
        peer: &passing,
        pid: Some(null.pid()),
        who: "finds through the null router",
    };
    let mut seed = 0;
    let make = |conn, seed| Finds::new(conn, POINTS, points, seed, true);
    for (turn, [first, last]) in abba(turns(lab) + 1).into_iter().enumerate() {
        let way = |side| match side {
            Side::A => &through,
            Side::B => &straight,
        };
        // The null router has the middle of each turn.
        let before = some(lab, way(first), &mut seed, make)?;
        let between = some(lab, &passed, &mut seed, make)?;
        let after = some(lab, way(last), &mut seed, make)?;
        // The first turn warms up and is not counted.
        if turn == 0 || stop::asked() {
            continue;
        }
        let (a, b) = match first {
            Side::A => (before, after),
            Side::B => (after, before),
        };
        cost.through.push(a.rate());
        cost.straight.push(b.rate());
        cost.passed.push(between.rate());
        cost.find_us.extend(a.server_us());
        cost.straight_us.extend(b.server_us());
        cost.pass_us.extend(between.server_us());
    }
    Ok(())
}

/// Has workers operate for a moment.
fn some<W: Worker>(
    lab: &mut Lab,
    way: &Way<'_>,
    seed: &mut u64,
    make: impl Fn(Conn, u64) -> W,
) -> Result<Load> {
    lab.progress.step(format!("W5 router: {}", way.who));
    let mut workers = Vec::new();
    for _ in 0..CONNECTIONS {
        *seed += 1;
        workers.push(make(Conn::connect(way.peer)?, *seed));
    }
    let limit = Limit::time(Duration::from_millis(lab.preset.pick(300, 1000, 5000)));
    load::run(way.who, workers, limit, way.pid, &mut lab.progress)
}

/// Inserts batches on one connection through the router, each turn into a collection of its own.
fn inserts(lab: &mut Lab, target: &Target, cluster: &Sharded, cost: &mut RouterCost) -> Result<()> {
    let n: u64 = lab.preset.pick(20_000, 100_000, 500_000);
    let documents = Arc::new(Documents::make(n));
    for turn in 0..=turns(lab) {
        if stop::asked() {
            return Ok(());
        }
        lab.progress.step("W5 router: insertMany");
        let coll = format!("many{turn}");
        cluster.divide(DB, &coll)?;
        let conn = target.connect()?;
        let worker = Batches::new(conn, &coll, None, documents.clone(), n, BATCH, BATCH);
        let limit = Limit::operations(n.div_ceil(BATCH), Duration::from_secs(600));
        let pid = Some(cluster.router_pid());
        let load = load::run("insertMany", vec![worker], limit, pid, &mut lab.progress)?;
        if turn > 0 {
            cost.documents.push(load.rate());
            cost.document_us.extend(load.server_us());
        }
    }
    Ok(())
}

/// Updates documents of the divided and of the whole collection through the router. What a shard does
/// more for the first is to look whether it owns them, and to hold the collection as it is.
fn updates(
    lab: &mut Lab,
    target: &Target,
    cluster: &Sharded,
    points: u64,
    cost: &mut RouterCost,
) -> Result<()> {
    // The journal's part in an update is many times larger, and differs from one to the next.
    let concern = doc! { "w": 1 };
    cluster.at_router(&doc! { "setDefaultRWConcern": 1, "defaultWriteConcern": concern })?;
    let who = ["updates, divided", "updates, whole"];
    let us = [&mut cost.gated_us, &mut cost.free_us];
    both(lab, target, cluster, (who, us), |conn, coll, seed| {
        Updates::new(conn, coll, points, seed, true)
    })
}

/// Counts the documents of the divided and of the whole collection through the router, looking at each. What a
/// shard does more for the first is to ask whether it has documents that it does not own.
fn scans(
    lab: &mut Lab,
    target: &Target,
    cluster: &Sharded,
    points: u64,
    cost: &mut RouterCost,
) -> Result<()> {
    let who = ["scans, divided", "scans, whole"];
    let us = [&mut cost.filtered_us, &mut cost.unfiltered_us];
    both(lab, target, cluster, (who, us), |conn, coll, _| {
        Scans::new(conn, coll, points)
    })
}

/// Has workers operate on the divided and on the whole collection, in turns, and notes the shard's CPU time for an
/// operation on each.
fn both<W: Worker>(
    lab: &mut Lab,
    target: &Target,
    cluster: &Sharded,
    (who, us): ([&'static str; 2], [&mut Vec<f64>; 2]),
    make: impl Fn(Conn, &str, u64) -> W,
) -> Result<()> {
    let [divided, whole] = us;
    let mut seed = 0;
    for (turn, pair) in abba(turns(lab) + 1).into_iter().enumerate() {
        for side in pair {
            let (coll, who, us) = match side {
                Side::A => (POINTS, who[0], &mut *divided),
                Side::B => (WHOLE, who[1], &mut *whole),
            };
            let way = Way {
                peer: &target.peer,
                pid: cluster.shard_pids().first().copied(),
                who,
            };
            let load = some(lab, &way, &mut seed, |conn, seed| make(conn, coll, seed))?;
            if turn > 0 && !stop::asked() {
                us.extend(load.server_us());
            }
        }
    }
    Ok(())
}
