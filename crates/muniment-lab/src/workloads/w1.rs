//! W1: the latency of a single insert by write concern.

use super::Spec;
use super::apart::{self, Together};
use super::concerns::{Concern, Set};
use super::only::{CORES, Dimension};
use crate::disk;
use crate::lab::{Lab, Preset, Target};
use crate::report::{Outcome, experiments};
use crate::topology::cluster::Cluster;
use crate::topology::floors::Layout;
use crate::workers::Inserts;
use muniment_load::conn::Conn;
use muniment_load::fail::Result;
use muniment_load::load::{self, Limit, Load};
use muniment_load::placement::{self, Placement};
use muniment_load::stats::{Side, abba};
use muniment_load::stop;
use muniment_value::DocBuf;
use std::time::Duration;

pub(crate) const SPEC: Spec = Spec {
    name: "w1",
    title: "Write-concern latency",
    about: "One connection inserts {a: 1, b: \"hat\"} 200 times, one after the other. The whole run is done twice and the second is kept; the first pays for creating the collection. Each is measured with client and server on one core and on two. The latency of each operation is plotted against its number, so that ramp-up and spikes show. On a replica set each write concern stands beside what the members' distances allow; --topology two-dcs starts such a set.",
    disk_gb: [0.2, 0.2, 0.3],
    options: apart::OPTIONS,
    dimensions: &[
        Dimension {
            name: "concern",
            about: "its name in the table; which there are depends on the server",
            values: |_| Vec::new(),
        },
        CORES,
    ],
    run,
};

const COLLECTION: &str = "insertTest";
const INSERTS: u64 = 200;

/// The results of the experiment.
#[derive(Default)]
pub(crate) struct Found {
    /// The write concerns that were measured.
    pub concerns: Vec<Concern>,
    /// Rows that only the post has: a name, and its average, minimum and maximum in ms.
    pub post_only: Vec<(String, [f64; 3])>,
    /// The placements of client and server.
    pub placements: Vec<Placement>,
    /// Every concern in every placement.
    pub all: Vec<One>,
    /// The distances between the members of a set.
    pub layout: Option<Layout>,
    /// The time of the disk's own sync, ms; 0 if it is not known.
    pub sync: f64,
    /// The result of many clients at once, if the members are far apart.
    pub together: Option<Together>,
    /// The same as `all` over 10,000 inserts; the smoke preset leaves this out.
    pub tails: Option<Vec<One>>,
}

/// One concern in one placement.
pub(crate) struct One {
    pub concern: Concern,
    /// The placement of client and server.
    pub placement: Placement,
    /// The second run of inserts.
    pub load: Load,
    /// Medians in ms of journaled inserts and of the disk's own syncs, measured in turns. `None` if
    /// they should not be compared; empty if the disk is not known.
    pub disk: Option<Vec<[f64; 2]>>,
}

fn run(lab: &mut Lab, out: &mut Outcome) -> Result<()> {
    out.deviations = vec![
        "The namespace is muniment_bench.insertTest, not tests.insertTest, so that no one's data is touched.".into(),
        "The post's j:true figures look like a timer of its time (a third of a commit interval of 100 ms or 30 ms), not like its disks; this is inferred.".into(),
        "The post does not print p50 and p99; they are added.".into(),
    ];
    let before = lab.endpoint.clone();
    let Some(mut cluster) = apart::start(lab)? else {
        return on_target(lab, None, out);
    };
    let result = on_target(lab, Some(&cluster), out);
    lab.endpoint = before;
    cluster.check_alive()?;
    result
}

fn on_target(lab: &mut Lab, cluster: Option<&Cluster>, out: &mut Outcome) -> Result<()> {
    let mut target = lab.target(None)?;
    let mut found = Found::default();
    let result = measure(lab, &target, cluster, &mut found, out);
    for one in &found.all {
        // The few operations of w:0 only write into a socket buffer, so the client's ceiling says
        // nothing about them.
        let name = &one.load.samples.name;
        if !name.starts_with("w:0") {
            lab.doubt(name, &one.load, 1);
        }
    }
    experiments::w1::tell(&found, out);
    target.check_alive()?;
    lab.done(target);
    result
}

fn measure(
    lab: &mut Lab,
    target: &Target,
    cluster: Option<&Cluster>,
    found: &mut Found,
    out: &mut Outcome,
) -> Result<()> {
    let mut admin = target.connect()?;
    let set = Set::ask(&mut admin);
    found.concerns = lab
        .only
        .keep("concern", set.concerns(), |c| c.name.clone())?;
    found.post_only = set.post_only();
    found.layout = apart::layout(&mut admin, target, cluster)?;
    found.sync = apart::sync(lab);
    out.deviations.push(set.deviation());
    let layout = found.layout.iter();
    out.deviations
        .extend(layout.map(|l| apart::deviation(l, cluster)));
    found.placements = lab.placements(&target.server())?;
    let given_up = latencies(lab, target, &mut admin, found, out)?;
    if let Some(layout) = &found.layout {
        found.together = apart::together(lab, target, layout)?;
    }
    if lab.preset != Preset::Smoke {
        let measured = found.concerns.iter();
        let measured = measured.filter(|c| !given_up.contains(&c.name));
        let measured: Vec<&Concern> = measured.collect();
        let mut tails = Vec::new();
        let result = percentiles(lab, target, &measured, &found.placements, &mut tails, out);
        found.tails = Some(tails);
        result?;
    }
    Ok(())
}

/// Runs the inserts of every concern in every placement; returns the names of the concerns that
/// could not be measured.
fn latencies(
    lab: &mut Lab,
    target: &Target,
    admin: &mut Conn,
    found: &mut Found,
    out: &mut Outcome,
) -> Result<Vec<String>> {
    let (concerns, placements) = (&found.concerns, &found.placements);
    let all = concerns
        .iter()
        .flat_map(|c| placements.iter().map(move |p| (c, *p)));
    let mut given_up = Vec::new();
    for (concern, placement) in all {
        if stop::asked() {
            break;
        }
        if given_up.contains(&concern.name) {
            continue;
        }
        let name = placement.called(&concern.name);
        lab.progress.step(format!("W1 {name}"));
        target.drop_collection(admin, COLLECTION)?;
        let c = &concern.doc;
        let keep = Limit {
            keep_each: true,
            ..Limit::operations(INSERTS, Duration::from_secs(300))
        };
        let both = lab.placed(&target.server(), placement, &name, |lab| {
            one(lab, target, &name, c, keep)?;
            one(lab, target, &name, c, keep)
        });
        let load = match both {
            // Another member is down, or no member can satisfy the mode; the other concerns are
            // still measured.
            Err(e) if concern.replicated => {
                out.warnings.push(format!("Not measured: {e}"));
                given_up.push(concern.name.clone());
                continue;
            }
            both => both?,
        };
        let stored = target.count(admin, COLLECTION)?;
        if stored != 2 * INSERTS && !load.cut_short {
            out.warnings.push(format!(
                "{name}: {stored} documents are stored of {} sent",
                2 * INSERTS
            ));
        }
        let mut measured = One {
            concern: concern.clone(),
            placement,
            load,
            disk: None,
        };
        let result = match concern.journaled && placement == placement::representative(placements) {
            true => lab
                .placed(&target.server(), placement, &name, |lab| {
                    against_the_disk(lab, target, &name, c)
                })
                .map(|pairs| measured.disk = Some(pairs)),
            false => Ok(()),
        };
        found.all.push(measured);
        result?;
    }
    Ok(given_up)
}

/// Runs the 200 inserts once.
fn one(lab: &mut Lab, target: &Target, name: &str, concern: &DocBuf, limit: Limit) -> Result<Load> {
    let w = Inserts::w1_document(target.connect()?, COLLECTION, Some(concern));
    load::run(name, vec![w], limit, target.pid, &mut lab.progress)
}

/// Medians in ms of a few journaled inserts and of a few writes with fdatasync on the same disk.
/// They are measured in turns, because a disk's own time changes from second to second. Empty if
/// the target's disk is not known to be on this host.
fn against_the_disk(
    lab: &mut Lab,
    target: &Target,
    name: &str,
    concern: &DocBuf,
) -> Result<Vec<[f64; 2]>> {
    let own = target.data.clone();
    let Some(dir) = own.or_else(|| target.same_host.then(|| lab.data_parent.clone())) else {
        return Ok(Vec::new());
    };
    lab.progress.step(format!("W1 {name} against the disk"));
    let mut pairs = Vec::new();
    for pair in abba(11) {
        let mut medians = [f64::NAN; 2];
        for side in pair {
            if stop::asked() {
                return Ok(pairs);
            }
            let limit = Duration::from_secs(1);
            match side {
                Side::A => {
                    let load = one(lab, target, name, concern, Limit::operations(20, limit))?;
                    medians[0] = load.samples.latency.quantile_ms(0.5);
                }
                Side::B => medians[1] = disk::write_and_sync(&dir, 20, limit)?.quantile_ms(0.5),
            }
        }
        pairs.push(medians);
    }
    Ok(pairs)
}

/// Runs 10,000 operations for each concern, which show the tail that 200 cannot.
fn percentiles(
    lab: &mut Lab,
    target: &Target,
    concerns: &[&Concern],
    placements: &[Placement],
    tails: &mut Vec<One>,
    out: &mut Outcome,
) -> Result<()> {
    let limit = Duration::from_secs(if lab.preset == Preset::Quick {
        60
    } else {
        3600
    });
    let all = concerns
        .iter()
        .flat_map(|c| placements.iter().map(move |p| (*c, *p)));
    for (concern, placement) in all {
        if stop::asked() {
            break;
        }
        let name = placement.called(&format!("{} ×10,000", concern.name));
        lab.progress.step(format!("W1 {name}"));
        let limit = Limit::operations(10_000, limit);
        let load = lab.placed(&target.server(), placement, &name, |lab| {
            one(lab, target, &name, &concern.doc, limit)
        })?;
        if load.cut_short {
            let n = load.samples.latency.count();
            out.warnings
                .push(format!("{name}: cut short after {n} operations"));
        }
        tails.push(One {
            concern: concern.clone(),
            placement,
            load,
            disk: None,
        });
    }
    Ok(())
}
