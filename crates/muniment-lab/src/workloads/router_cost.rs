//! What a router costs: finds by `_id` through it and straight to the only shard, in turns, and
//! insertMany through it. With one shard both ways lead to the same data on the same cores.

use crate::batches::{Batches, Documents};
use crate::docs;
use crate::lab::{DB, Lab, Target};
use crate::topology::sharded::Sharded;
use crate::workers::Finds;
use muniment_load::access::Peer;
use muniment_load::conn::{Conn, Message, check};
use muniment_load::fail::{Failure, Result};
use muniment_load::load::{self, Limit, Load};
use muniment_load::stats::{Side, abba};
use muniment_load::stop;
use std::sync::Arc;
use std::time::Duration;

/// The connections of the finds.
pub(crate) const CONNECTIONS: u64 = 16;
/// The documents of an insertMany.
pub(crate) const BATCH: u64 = 1000;
/// The collection of the finds.
const POINTS: &str = "points";

/// The results, one entry for each turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RouterCost {
    /// Finds a second through the router.
    pub through: Vec<f64>,
    /// Finds a second straight to the shard.
    pub straight: Vec<f64>,
    /// The router's CPU time, µs a find.
    pub find_us: Vec<f64>,
    /// The shard's CPU time when it is asked straight, µs a find.
    pub straight_us: Vec<f64>,
    /// The router's CPU time, µs a document of insertMany.
    pub document_us: Vec<f64>,
    /// Documents a second of insertMany through the router.
    pub documents: Vec<f64>,
}

/// Measures the router of a cluster with one shard.
pub(super) fn measure(lab: &mut Lab, target: &Target, cluster: &Sharded) -> Result<RouterCost> {
    let shard = cluster.shard(0).map(Peer::open);
    let shard = shard.ok_or_else(|| Failure::new("the cluster has no shard"))?;
    let shard_pid = cluster.shard_pids().first().copied();
    let router_pid = Some(cluster.router_pid());
    let points = lab.preset.pick(5_000, 20_000, 20_000);
    cluster.divide(DB, POINTS)?;
    fill(lab, target, points)?;
    let mut cost = RouterCost::default();
    let mut seed = 0;
    for (turn, pair) in abba(turns(lab) + 1).into_iter().enumerate() {
        let mut both = [None, None];
        for side in pair {
            let (peer, pid, who) = match side {
                Side::A => (&target.peer, router_pid, "through the router"),
                Side::B => (&shard, shard_pid, "straight"),
            };
            lab.progress.step(format!("W5 router: finds {who}"));
            let load = finds(lab, peer, pid, points, &mut seed)?;
            both[usize::from(side == Side::B)] = Some(load);
        }
        // The first turn warms up and is not counted.
        if let [Some(through), Some(straight)] = both
            && turn > 0
            && !stop::asked()
        {
            cost.through.push(through.rate());
            cost.straight.push(straight.rate());
            cost.find_us.extend(through.server_us());
            cost.straight_us.extend(straight.server_us());
        }
    }
    inserts(lab, target, cluster, &mut cost)?;
    Ok(cost)
}

fn turns(lab: &Lab) -> usize {
    lab.preset.pick(5, 7, 11)
}

/// Inserts the documents of the finds through the router.
fn fill(lab: &mut Lab, target: &Target, points: u64) -> Result<()> {
    lab.progress.step("W5 router: loading");
    let mut c = target.connect()?;
    let template = Message::insert(DB, POINTS, None);
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

/// Finds documents by random `_id`s for a moment.
fn finds(
    lab: &mut Lab,
    peer: &Peer,
    pid: Option<u32>,
    points: u64,
    seed: &mut u64,
) -> Result<Load> {
    let mut workers = Vec::new();
    for _ in 0..CONNECTIONS {
        *seed += 1;
        workers.push(Finds::new(
            Conn::connect(peer)?,
            POINTS,
            points,
            *seed,
            true,
        ));
    }
    let limit = Limit::time(Duration::from_millis(lab.preset.pick(300, 1000, 5000)));
    load::run("finds", workers, limit, pid, &mut lab.progress)
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
