//! Yardstick 20: the cost of three members compared with three times the work of one server.

use super::{CACHE_GB, Row, Spec};
use crate::batches::{Batches, Documents};
use crate::docs;
use crate::lab::{DB, Lab, Target};
use crate::process;
use crate::report::Outcome;
use crate::report::table::rate;
use crate::topology::cluster::{Cluster, PATIENCE};
use crate::topology::shape::Shape;
use crate::workers::Inserts;
use muniment_load::access::Peer;
use muniment_load::conn::Conn;
use muniment_load::fail::Result;
use muniment_load::load::{self, Limit, Load};
use muniment_load::procs;
use muniment_load::rng::Rng;
use muniment_load::stats::{Ratio, Side, abba, median};
use muniment_load::stop;
use muniment_value::doc;
use std::sync::Arc;
use std::time::Duration;

pub(super) const SPEC: Spec = Spec {
    number: 20,
    title: "CPU time of three members, w:1, against three times that of one server: \
            insertMany(1000), one connection; single inserts, 16 connections",
    target_text: "≤ 1.2 ×; ≤ 3 ×",
    run,
};

const MEMBERS: usize = 3;
const BATCH: u64 = 1000;
const CONNECTIONS: u64 = 16;

/// The kind of load, which determines by how much the set may cost more than three servers.
#[derive(Clone, Copy)]
enum What {
    Many,
    Single,
}

impl What {
    fn text(self) -> (&'static str, &'static str, f64) {
        match self {
            What::Many => (
                "20a",
                "insertMany(1000) w:1: CPU of 3 members / 3 servers",
                1.2,
            ),
            What::Single => ("20b", "insert w:1: CPU of 3 members / 3 servers", 3.0),
        }
    }
}

/// One side of a pair.
struct Slice {
    /// The CPU time of all servers, µs a document.
    us: f64,
    rate: f64,
}

fn run(lab: &mut Lab, _: &mut Outcome, rows: &mut Vec<Row>) -> Result<()> {
    let program = process::own()?;
    lab.progress.step("Yardstick 20: starting three members");
    let shape = Shape::side_by_side(MEMBERS);
    let cluster = Cluster::start(shape, &program, &lab.data_parent, CACHE_GB)?;
    let mut target = lab.target(Some(CACHE_GB))?;
    let documents = Arc::new(Documents::make(
        lab.preset.pick(100_000, 300_000, 1_000_000),
    ));
    let mut run = 0;
    for what in [What::Many, What::Single] {
        let (id, text, most) = what.text();
        let (mut set, mut one) = (Vec::new(), Vec::new());
        for (i, pair) in abba(lab.preset.pick(5, 7, 11) + 1).into_iter().enumerate() {
            for side in pair {
                if stop::asked() {
                    return Ok(());
                }
                run += 1;
                let (slices, slice) = match side {
                    Side::A => (&mut set, of_set(lab, &cluster, what, &documents, run)?),
                    Side::B => (&mut one, of_one(lab, &target, what, &documents, run)?),
                };
                // The first pair warms up and is not counted.
                if i > 0 {
                    slices.push(slice);
                }
            }
        }
        let us = |slices: &[Slice]| slices.iter().map(|s| s.us).collect::<Vec<_>>();
        let rates = |slices: &[Slice]| slices.iter().map(|s| s.rate).collect::<Vec<_>>();
        let three: Vec<f64> = us(&one).iter().map(|us| us * MEMBERS as f64).collect();
        if let Some(ratio) = Ratio::of_pairs(&us(&set), &three) {
            let detail = format!(
                "three members {:.2} µs a document, {}/s; one server {:.2} µs, {}/s",
                median(&us(&set)),
                rate(median(&rates(&set))),
                median(&us(&one)),
                rate(median(&rates(&one))),
            );
            let row = Row::at_most(id, text, ratio.median, "×", most).because(detail);
            rows.push(Row {
                ratio: Some(ratio),
                ..row
            });
        }
    }
    target.check_alive()?;
    lab.done(target);
    Ok(())
}

fn of_one(
    lab: &mut Lab,
    target: &Target,
    what: What,
    documents: &Arc<Documents>,
    run: u32,
) -> Result<Slice> {
    let pids: Vec<u32> = target.pid.into_iter().collect();
    let before = cpu(&pids);
    let load = load(lab, &target.peer, target.pid, what, documents, run)?;
    Ok(slice(&load, cpu(&pids) - before))
}

/// Measures the set. The followers' work counts until they have everything that the primary has.
fn of_set(
    lab: &mut Lab,
    cluster: &Cluster,
    what: What,
    documents: &Arc<Documents>,
    run: u32,
) -> Result<Slice> {
    let primary = cluster.wait_until_well(PATIENCE)?;
    let pids = cluster.pids();
    let before = cpu(&pids);
    let pid = pids.get(primary).copied();
    let load = load(
        lab,
        &Peer::open(cluster.address(primary)?),
        pid,
        what,
        documents,
        run,
    )?;
    cluster.wait_until_well(PATIENCE)?;
    Ok(slice(&load, cpu(&pids) - before))
}

fn slice(load: &Load, seconds: f64) -> Slice {
    Slice {
        us: seconds * 1e6 / load.documents.max(1) as f64,
        rate: load.rate(),
    }
}

/// The CPU seconds that these processes have used so far.
fn cpu(pids: &[u32]) -> f64 {
    let seconds = |pid: &u32| procs::sample(*pid).map_or(0.0, |s| s.cpu_seconds);
    pids.iter().map(seconds).sum()
}

/// Inserts into a collection that is new each time.
fn load(
    lab: &mut Lab,
    server: &Peer,
    pid: Option<u32>,
    what: What,
    documents: &Arc<Documents>,
    run: u32,
) -> Result<Load> {
    let coll = format!("cost{run}");
    let w1 = doc! { "w": 1 };
    let mut admin = Conn::connect(server)?;
    admin.command(DB, &doc! { "create": coll.as_str() })?;
    let (_, name, _) = what.text();
    lab.progress.step(format!("Yardstick 20: {name}"));
    match what {
        What::Many => {
            let n = documents.len();
            let limit = Limit::operations(n.div_ceil(BATCH), Duration::from_secs(600));
            let c = Conn::connect(server)?;
            let w = Batches::new(c, &coll, Some(&w1), documents.clone(), n, BATCH, BATCH);
            load::run(name, vec![w], limit, pid, &mut lab.progress)
        }
        What::Single => {
            let (mut workers, now) = (Vec::new(), docs::now_ms());
            for i in 0..CONNECTIONS {
                let mut rng = Rng::new(u64::from(run) * CONNECTIONS + i);
                let make =
                    Box::new(move |o: &mut Vec<u8>| docs::w3(&mut rng, now, docs::object_id(), o));
                workers.push(Inserts::new(Conn::connect(server)?, &coll, Some(&w1), make));
            }
            let time = Duration::from_millis(lab.preset.pick(600, 2000, 10_000));
            load::run(name, workers, Limit::time(time), pid, &mut lab.progress)
        }
    }
}
