//! W2: LinkBench's rate by the number of clients.
//!
//! Source: a post of 2015 that ran LinkBench with 1 to 48 clients on several engines. It printed
//! curves without figures, so only the shape can be compared.

use super::Spec;
use super::only::{CORES, Dimension, texts};
use crate::lab::{DB, Lab, Preset, Target};
use crate::linkbench::Profile;
use crate::linkbench::client::Requester;
use crate::linkbench::graph::Graph;
use crate::linkbench::load::{self as loading, loaders};
use crate::linkbench::transaction::unsupported;
use crate::report::table::rate;
use crate::report::{Outcome, experiments};
use muniment_load::fail::Result;
use muniment_load::load::{self, Limit, Load};
use muniment_load::placement::Placement;
use muniment_load::stop;
use muniment_options::Opt;
use muniment_value::doc;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const SPEC: Spec = Spec {
    name: "w2",
    title: "LinkBench against concurrency",
    about: "A social graph's nodes, links and counts of links. For every number of clients the graph is loaded anew by as many loaders, then requests run twice and the second run is reported. Profile 2015 is the store that was measured then (ObjectId keys, unique indexes, half of all requests are lists of links); v2 is the later one (keys in _id, mostly single nodes). One client is measured with client and server on one core and on two. The Universal Scalability Law is fitted to the rates.",
    disk_gb: [0.4, 1.0, 100.0],
    options: &[
        Opt::flag(
            "count-index",
            "make v2's index on a field that counts do not have, as the original does",
        ),
        Opt::flag(
            "no-transactions",
            "v2 in single commands, even if the target has transactions",
        ),
    ],
    dimensions: &[
        Dimension {
            name: "profile",
            about: "the store",
            values: |_| texts(PROFILES.map(short)),
        },
        Dimension {
            name: "clients",
            about: "connections",
            values: |preset| texts(clients_of(preset)),
        },
        CORES,
    ],
    run,
};

const PROFILES: [Profile; 2] = [Profile::Y2015, Profile::V2];

/// The profile's name for `--only`.
fn short(p: Profile) -> &'static str {
    match p {
        Profile::Y2015 => "2015",
        Profile::V2 => "v2",
    }
}

/// The numbers of clients in the post.
const CLIENTS: [u64; 13] = [1, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48];

/// The numbers of clients for a preset.
fn clients_of(preset: Preset) -> &'static [u64] {
    match preset {
        Preset::Smoke => &[1, 4, 16, 48],
        _ => &CLIENTS,
    }
}

/// The results with one profile.
pub(crate) struct Found {
    /// The profile's name, and whether it ran in transactions.
    pub name: String,
    /// The results, by the number of clients.
    pub points: Vec<Point>,
}

/// The result for one number of clients.
pub(crate) struct Point {
    /// The number of connections.
    pub clients: u64,
    /// The placement of client and server.
    pub placement: Placement,
    /// The load that inserted the graph.
    pub load: Load,
    /// The second run of requests.
    pub requests: Load,
    /// The bytes of all files after it.
    pub size: f64,
}

impl Point {
    /// The requests a second.
    pub(crate) fn rate(&self) -> f64 {
        self.requests.samples.operations as f64 / self.requests.samples.seconds
    }
}

fn run(lab: &mut Lab, out: &mut Outcome) -> Result<()> {
    let ids = lab.preset.pick(4000, 50_000, 10_000_000);
    let all = clients_of(lab.preset).to_vec();
    let clients = lab.only.keep("clients", all, ToString::to_string)?;
    let profiles = lab
        .only
        .keep("profile", PROFILES.to_vec(), |p| short(*p).to_string())?;
    let seconds = lab.preset.pick(0.7, 3.0, 1800.0);
    if lab.preset != Preset::Paper {
        out.deviations.push(format!(
            "{} nodes instead of 10 M, {seconds} s a run instead of 30 minutes; the node with most links counts as half a rank, so that it has not more links than a small graph has nodes.",
            rate(ids as f64)
        ));
    }
    if !lab.options.has("count-index") {
        out.deviations.push("v2: the original's index on a field that counts do not have (id1) is not made; --count-index makes it.".into());
    }
    let mut failed = Ok(());
    for profile in profiles {
        let mut target = lab.target(Some(lab.preset.pick(1.0, 1.0, 12.0)))?;
        let transactions = transactions(lab, &target, profile, out)?;
        let mut points = Vec::new();
        let mut steps = Vec::new();
        for n in &clients {
            let placements = match n {
                1 => lab.placements(&target.server())?,
                _ => vec![Placement::Anywhere],
            };
            steps.extend(placements.into_iter().map(|p| (*n, p)));
        }
        for (n, placement) in steps {
            if stop::asked() {
                break;
            }
            let who = (n, placement);
            match point(lab, &target, (profile, transactions), ids, who, seconds) {
                Ok(p) => points.push(p),
                Err(e) => {
                    target.check_alive()?;
                    let doing = format!("LinkBench {}, {n} clients", profile.name());
                    failed = Err(e.while_doing(&doing));
                    break;
                }
            }
        }
        for p in &points {
            lab.doubt(&p.requests.samples.name, &p.requests, p.clients as usize);
        }
        let name = named(profile, transactions);
        experiments::w2::tell(&Found { name, points }, out);
        lab.done(target);
    }
    failed
}

/// Whether v2 runs in transactions: it does if the target has them and the command line does not
/// forbid it. Adds a sentence about it to the outcome.
fn transactions(lab: &Lab, target: &Target, profile: Profile, out: &mut Outcome) -> Result<bool> {
    if profile == Profile::Y2015 {
        return Ok(false);
    }
    if lab.options.has("no-transactions") {
        out.deviations.push("v2 without transactions (--no-transactions): what the original puts into one is its single commands, each tried again as the original does.".into());
        return Ok(false);
    }
    let why = unsupported(&mut target.connect()?)?;
    out.deviations.push(match &why {
        None => "v2: the requests that the original puts into transactions are in transactions; the bulks of the load, which the original puts into some too, are not.".into(),
        Some(why) => format!("v2 without transactions, since the target has none (it answers: {why}): what the original puts into one is its single commands, each tried again as the original does."),
    });
    Ok(why.is_none())
}

/// The profile's name, and whether it ran in transactions.
fn named(profile: Profile, transactions: bool) -> String {
    let name = profile.name();
    match (profile, transactions) {
        (Profile::Y2015, _) => name.into(),
        (Profile::V2, true) => format!("{name} in transactions"),
        (Profile::V2, false) => format!("{name} without transactions"),
    }
}

fn point(
    lab: &mut Lab,
    target: &Target,
    (profile, transactions): (Profile, bool),
    ids: u64,
    (clients, placement): (u64, Placement),
    seconds: f64,
) -> Result<Point> {
    let graph = Graph::new(profile, ids);
    let name = placement.called(&format!("LinkBench {}, {clients} clients", profile.name()));
    lab.progress.step(format!("{name}: load"));
    let mut conn = target.connect()?;
    let count_index = lab.options.has("count-index");
    loading::prepare(&mut conn, &graph, count_index)?;
    let conns = target.connections(clients as usize + 1)?;
    let limit = Limit::time(Duration::MAX);
    let load = load::run(
        &format!("{name}, load"),
        loaders(&graph, conns),
        limit,
        target.pid,
        &mut lab.progress,
    )?;
    lab.settle(target, Duration::from_secs(60));
    let time = Duration::from_secs_f64(seconds);
    let mut requests = None;
    for round in ["first", "second"] {
        lab.progress.step(format!("{name}: {round} run"));
        requests = Some(lab.placed(&target.server(), placement, &name, |lab| {
            let graph = (&graph, transactions);
            requesting(lab, target, graph, clients, time, &name)
        })?);
        if stop::asked() {
            break;
        }
    }
    let stats = conn.command(DB, &doc! { "dbStats": 1 })?;
    let size = muniment_load::conn::number_at(stats.as_doc(), "storageSize").unwrap_or(f64::NAN);
    match requests {
        Some(requests) => Ok(Point {
            clients,
            placement,
            load,
            requests,
            size,
        }),
        None => Err(muniment_load::fail::Failure::new("no run was made")),
    }
}

fn requesting(
    lab: &mut Lab,
    target: &Target,
    (graph, transactions): (&Arc<Graph>, bool),
    clients: u64,
    time: Duration,
    name: &str,
) -> Result<Load> {
    let workers = target
        .connections(clients as usize)?
        .into_iter()
        .enumerate()
        .map(|(i, conn)| Requester::new(conn, graph, i as u64, transactions))
        .collect();
    load::run(
        name,
        workers,
        Limit::time(time),
        target.pid,
        &mut lab.progress,
    )
}
