//! W1: the latency of a single insert by write concern.

use super::Spec;
use super::apart;
use super::concerns::{Concern, Set};
use super::only::{CORES, Dimension};
use crate::disk;
use crate::fail::Result;
use crate::lab::{Lab, Preset, Target};
use crate::load::{self, Limit, Load};
use crate::placement::{self, Placement};
use crate::report::svg::{Axis, Mark, Plot, Scale, Series};
use crate::report::table::{Table, ms, rate};
use crate::report::{Outcome, Statistic};
use crate::stats::{Ratio, Side, Verdict, abba, median};
use crate::stop;
use crate::topology::cluster::Cluster;
use crate::workers::Inserts;
use muniment_value::DocBuf;
use std::time::Duration;

/// The experiment.
pub const SPEC: Spec = Spec {
    name: "w1",
    title: "Write-concern latency",
    about: "One connection inserts {a: 1, b: \"hat\"} 200 times, one after the other. The whole run is done twice and the second is kept; the first pays for creating the collection. Each is measured with client and server on one core and on two. The latency of each operation is plotted against its number, so that ramp-up and spikes show. On a replica set each write concern stands beside what the members' distances allow; --topology two-dcs starts such a set.",
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
    let result = measure(lab, &target, cluster, out);
    target.check_alive()?;
    lab.done(target);
    result
}

fn measure(
    lab: &mut Lab,
    target: &Target,
    cluster: Option<&Cluster>,
    out: &mut Outcome,
) -> Result<()> {
    let mut table = Table::new(
        "Latency of one insert, ms",
        &[
            "<write concern",
            ">n",
            ">avg",
            ">min",
            ">p50",
            ">p99",
            ">max",
            "*avg",
            "*min",
            "*max",
        ],
    );
    let mut plot = Plot {
        title: "Latency against query number".into(),
        caption: "Solid: the second run of 200 inserts. Dashed: the post's average (j:true on its SSD). Logarithmic.".into(),
        x: Axis { label: "query number".into(), scale: Scale::Linear },
        y: Axis { label: "ms".into(), scale: Scale::Log },
        categories: Vec::new(),
        series: Vec::new(),
    };
    let mut admin = target.connect()?;
    let set = Set::ask(&mut admin);
    let concerns = lab
        .only
        .keep("concern", set.concerns(), |c| c.name.clone())?;
    let layout = apart::layout(&mut admin, target, cluster)?;
    out.deviations.push(set.deviation());
    out.deviations
        .extend(layout.iter().map(|l| apart::deviation(l, cluster)));
    let placements = lab.placements(&target.server())?;
    let mut worst = Vec::new();
    let mut given_up = Vec::new();
    let all = concerns
        .iter()
        .flat_map(|c| placements.iter().map(move |p| (c, *p)));
    for (i, (concern, placement)) in all.enumerate() {
        if stop::asked() {
            break;
        }
        if given_up.contains(&concern.name) {
            continue;
        }
        let name = placement.called(&concern.name);
        lab.progress.step(format!("W1 {name}"));
        target.drop_collection(&mut admin, COLLECTION)?;
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
            // A member that is down, or a mode that no member can satisfy.
            Err(e) if concern.replicated => {
                out.warnings.push(format!("Not measured: {e}"));
                given_up.push(concern.name.clone());
                continue;
            }
            both => both?,
        };
        let stored = target.count(&mut admin, COLLECTION)?;
        if stored != 2 * INSERTS && !load.cut_short {
            out.warnings.push(format!(
                "{name}: {stored} documents are stored of {} sent",
                2 * INSERTS
            ));
        }
        let l = &load.samples.latency;
        let p = concern.published;
        let post = |k: usize| {
            p.and_then(|p| p.get(k).copied())
                .map_or_else(String::new, ms)
        };
        table.row([
            name.clone(),
            rate(l.count() as f64),
            ms(l.mean_ms()),
            ms(l.min_ms()),
            ms(l.quantile_ms(0.5)),
            ms(l.quantile_ms(0.99)),
            ms(l.max_ms()),
            post(0),
            post(1),
            post(2),
        ]);
        out.figure(format!("{name} avg"), l.mean_ms(), "ms", p.map(|p| p[0]))
            .of(&name, Statistic::Mean);
        out.figure(format!("{name} p50"), l.quantile_ms(0.5), "ms", None)
            .of(&name, Statistic::P50);
        out.figure(format!("{name} p99"), l.quantile_ms(0.99), "ms", None)
            .of(&name, Statistic::P99);
        plot.series.push(Series {
            name: name.clone(),
            mark: Mark::Line,
            published: false,
            color: i % 8,
            points: load
                .samples
                .each_ms
                .iter()
                .enumerate()
                .map(|(n, y)| (n as f64 + 1.0, *y))
                .collect(),
        });
        // The post has one line for both placements.
        if let Some(p) = p.filter(|_| placements.first() == Some(&placement)) {
            plot.series.push(Series {
                name: format!("{} (post, average)", concern.name),
                mark: Mark::Level,
                published: true,
                color: i % 8,
                points: vec![(1.0, p[0])],
            });
        }
        if concern.journaled && placement == placement::representative(&placements) {
            let pairs = lab.placed(&target.server(), placement, &name, |lab| {
                against_the_disk(lab, target, &name, c)
            })?;
            out.findings.push(durable(&name, &pairs));
        }
        worst.push(load.clone());
        out.samples.push(load.samples);
    }
    for (name, [avg, min, max]) in set.post_only() {
        let mut row = vec![name];
        row.extend(std::iter::repeat_n(String::new(), 6));
        row.extend([ms(avg), ms(min), ms(max)]);
        table.row(row);
    }
    table.note(format!(
        "w:0 is the time to hand the message to the kernel: nothing is waited for. {}",
        placement::NOTE
    ));
    out.findings.extend(by_cores("w:1", &worst));
    out.tables.push(table);
    out.plots.push(plot);
    if let Some(layout) = &layout {
        let placement = placement::representative(&placements);
        let sync = apart::sync(lab);
        out.tables
            .push(apart::floors(layout, &concerns, &worst, placement, sync));
        apart::together(lab, target, layout, out)?;
    }
    if lab.preset != Preset::Smoke {
        let measured = concerns.iter().filter(|c| !given_up.contains(&c.name));
        percentiles(lab, target, measured, &placements, out)?;
    }
    for load in &worst {
        // The few operations of w:0 are sends into a socket buffer: a ceiling says nothing there.
        if !load.samples.name.starts_with("w:0") {
            lab.doubt(&load.samples.name, load, 1);
        }
    }
    Ok(())
}

/// The 200 inserts, once.
fn one(lab: &mut Lab, target: &Target, name: &str, concern: &DocBuf, limit: Limit) -> Result<Load> {
    let w = Inserts::w1_document(target.connect()?, COLLECTION, Some(concern));
    load::run(name, vec![w], limit, target.pid, &mut lab.progress)
}

/// What the cores make of a concern's median.
fn by_cores(concern: &str, loads: &[Load]) -> Option<String> {
    let median = |p: Placement| {
        let name = p.called(concern);
        let load = loads.iter().find(|l| l.samples.name == name)?;
        Some(load.samples.latency.quantile_ms(0.5))
    };
    let (one, two) = median(Placement::OneCore).zip(median(Placement::TwoCores))?;
    Some(format!(
        "{concern}: a median of {} ms with client and server on one core, {} ms on two: {:.2} ×.",
        ms(one),
        ms(two),
        two / one
    ))
}

/// Medians in ms of a few journaled inserts and of a few writes with fdatasync on the same disk,
/// taken in turns, since a disk's own time changes from second to second. Empty when the target's
/// disk is not known to be this host's.
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

/// The verdict on a journaled concern.
fn durable(name: &str, pairs: &[[f64; 2]]) -> String {
    let inserts: Vec<f64> = pairs.iter().map(|p| p[0]).collect();
    let disk: Vec<f64> = pairs.iter().map(|p| p[1]).collect();
    let Some(ratio) = Ratio::of_pairs(&inserts, &disk) else {
        return format!("{name}: not measured on the target's disk, so durability is not judged.");
    };
    let verdict = match ratio.verdict() {
        Verdict::Lower => "NOT DURABLE: acknowledged faster than the disk syncs",
        Verdict::Higher => "above the disk's own price, as a synced write must be",
        Verdict::NoDifference => {
            "no difference from the disk's own price shown, as a synced write may be"
        }
        Verdict::TooFew => "too few turns to judge",
    };
    format!(
        "{name}: p50 {} ms against {} ms for a 4 KiB write + fdatasync on the same disk, taken in turns; ratio {}: {verdict}.",
        ms(median(&inserts)),
        ms(median(&disk)),
        ratio.text()
    )
}

/// 10,000 operations a concern: the tail that 200 cannot show.
fn percentiles<'a>(
    lab: &mut Lab,
    target: &Target,
    concerns: impl Iterator<Item = &'a Concern>,
    placements: &[Placement],
    out: &mut Outcome,
) -> Result<()> {
    let limit = Duration::from_secs(if lab.preset == Preset::Quick {
        60
    } else {
        3600
    });
    let mut t = Table::new(
        "Latency over 10,000 inserts, ms",
        &[
            "<write concern",
            ">n",
            ">avg",
            ">p50",
            ">p90",
            ">p99",
            ">p99.9",
            ">p99.99",
            ">max",
        ],
    );
    let all = concerns.flat_map(|c| placements.iter().map(move |p| (c, *p)));
    for (concern, placement) in all {
        if stop::asked() {
            break;
        }
        let called = placement.called(&concern.name);
        let name = placement.called(&format!("{} ×10,000", concern.name));
        lab.progress.step(format!("W1 {name}"));
        let limit = Limit::operations(10_000, limit);
        let load = lab.placed(&target.server(), placement, &name, |lab| {
            one(lab, target, &name, &concern.doc, limit)
        })?;
        let l = &load.samples.latency;
        let mut row = vec![called, rate(l.count() as f64), ms(l.mean_ms())];
        row.extend([0.5, 0.9, 0.99, 0.999, 0.9999, 1.0].map(|q| ms(l.quantile_ms(q))));
        t.row(row);
        if load.cut_short {
            out.warnings
                .push(format!("{name}: cut short after {} operations", l.count()));
        }
        out.samples.push(load.samples);
    }
    out.tables.push(t);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faster_than_the_disk_is_not_durable() {
        let all = |a: f64, b: f64| vec![[a, b]; 7];
        assert!(durable("j:true", &all(0.1, 0.5)).contains("NOT DURABLE"));
        assert!(!durable("j:true", &all(0.55, 0.5)).contains("NOT DURABLE"));
        assert!(durable("j:true", &[]).contains("not measured on the target's disk"));
        // A disk that changes its pace meanwhile misleads no one.
        let slower = [
            [0.2, 0.19],
            [0.2, 0.21],
            [4.0, 4.1],
            [4.1, 4.0],
            [4.0, 3.9],
            [4.0, 4.2],
        ];
        assert!(!durable("j:true", &slower).contains("NOT DURABLE"));
    }
}
