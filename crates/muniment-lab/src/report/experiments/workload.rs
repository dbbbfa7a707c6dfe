//! The report of a workload from a file on one target: its phases and their kinds of operations.

use crate::custom::Plan;
use crate::report::table::{Table, ms, rate};
use crate::report::{Outcome, Statistic};
use muniment_load::hist::Latency;
use muniment_load::load::Load;
use muniment_load::placement::Placement;
use muniment_load::samples::SampleSet;

/// Adds the results of the phases to the report; each load has its name.
pub(crate) fn tell(plan: &Plan, loads: &[(String, Load)], out: &mut Outcome) {
    // The placement is a part of the name if the load was pinned.
    let called = |(name, load): &(String, Load)| match load.samples.placement.as_str() {
        "" => name.clone(),
        placement => format!("{}, {placement}", Placement::without(name)),
    };
    let loads: Vec<(String, &Load)> = loads.iter().map(|l| (called(l), &l.1)).collect();
    for (name, load) in &loads {
        samples(name, load, out);
        figures(plan, name, load, out);
        doubts(plan, name, load, out);
    }
    out.tables.push(operations(&loads));
}

fn samples(name: &str, load: &Load, out: &mut Outcome) {
    let kinds = load.kinds.iter();
    out.samples.extend(kinds.map(|(kind, m)| SampleSet {
        name: format!("{name} {kind}"),
        operations: m.service.count(),
        latency: m.service.clone(),
        seconds: load.samples.seconds,
        ..SampleSet::default()
    }));
    out.samples.push(SampleSet {
        name: name.to_string(),
        ..load.samples.clone()
    });
}

/// The operations a second.
fn throughput(load: &Load) -> f64 {
    load.samples.operations as f64 / load.samples.seconds
}

/// Adds the figures of one load, and a sentence.
fn figures(plan: &Plan, name: &str, load: &Load, out: &mut Outcome) {
    out.figure(name, throughput(load), "operations/s", None)
        .of(name, Statistic::Rate);
    let mut words = format!("{name}: {} operations/s", rate(throughput(load)));
    let phase = plan.phase_of(name);
    if phase.is_some_and(|p| p.work.iter().all(|o| o.document.is_some()))
        && load.documents != load.samples.operations
    {
        let documents = format!("{name} documents");
        out.figure(documents, load.rate(), "documents/s", None)
            .of(name, Statistic::Rate);
        words += &format!(", {} documents/s", rate(load.rate()));
    }
    words += &format!(", {}.", load.cost_in_words());
    out.findings.push(words);
    for (kind, m) in &load.kinds {
        for (what, q, statistic) in [("p50", 0.5, Statistic::P50), ("p99", 0.99, Statistic::P99)] {
            let figure = format!("{name} {kind} {what}");
            out.figure(figure, m.service.quantile_ms(q), "ms", None)
                .of(format!("{name} {kind}"), statistic);
        }
    }
}

/// Adds warnings about what one load was asked for and did not do.
fn doubts(plan: &Plan, name: &str, load: &Load, out: &mut Outcome) {
    let phase = plan.phase_of(name);
    if let Some(wanted) = phase.and_then(|p| p.rate)
        && throughput(load) < 0.95 * wanted
    {
        out.warnings.push(format!(
            "{name}: {} operations/s were reached of the {} asked for",
            rate(throughput(load)),
            rate(wanted)
        ));
    }
    let limited = phase.is_some_and(|p| p.operations.is_none() && p.records.is_none());
    if load.cut_short && !limited {
        out.warnings
            .push(format!("{name}: ended before all operations were done."));
    }
}

fn operations(loads: &[(String, &Load)]) -> Table {
    let mut t = Table::new(
        "Operations, latencies in ms",
        &[
            "<phase",
            "<operation",
            ">n",
            ">a second",
            ">mean",
            ">p50",
            ">p95",
            ">p99",
            ">p99.9",
            ">max",
            "<ended",
        ],
    );
    let mut paced = false;
    for (name, load) in loads {
        let row = |kind: &str, l: &Latency, ended: String| {
            let count = l.count() as f64;
            let mut row = vec![name.clone(), kind.to_string()];
            row.extend([rate(count), rate(count / load.samples.seconds)]);
            let quantiles = [0.5, 0.95, 0.99, 0.999].map(|q| l.quantile_ms(q));
            let all = [l.mean_ms()].into_iter().chain(quantiles);
            row.extend(all.chain([l.max_ms()]).map(ms));
            row.push(ended);
            row
        };
        if load.kinds.len() > 1 {
            t.row(row("all", &load.samples.latency, String::new()));
        }
        for (kind, m) in &load.kinds {
            let ended = m.statuses.iter();
            let ended = ended.map(|(k, n)| format!("{k} {}", rate(*n as f64)));
            t.row(row(kind, &m.service, ended.collect::<Vec<_>>().join(", ")));
            if m.intended.count() > 0 {
                paced = true;
                let kind = format!("{kind}, intended");
                t.row(row(&kind, &m.intended, String::new()));
            }
        }
    }
    if paced {
        t.note("Intended: from the moment an operation was due, so that waiting for a slow one counts.");
    }
    t
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::lab::Preset;
    use crate::report::experiments::fixtures::{check, load, measured};

    #[test]
    fn phases_in_both_placements() {
        let plan = Plan::read("mixed", Preset::Smoke).unwrap();
        let mut loads = Vec::new();
        for phase in &plan.phases {
            let mut l = load(&phase.name, 2000, 2.0, 0.2);
            l.cut_short = true;
            l.documents = 4000;
            let mut m = measured(0.1, "NOT_FOUND", 3);
            m.intended = m.service.clone();
            l.kinds.insert("read", m);
            l.kinds.insert("update", measured(0.3, "11000", 2));
            loads.push((phase.name.clone(), l.clone()));
            l.samples.placement = "one core".into();
            l.kinds.remove("read");
            l.server = None;
            loads.push((Placement::OneCore.called(&phase.name), l));
        }
        let mut out = Outcome::default();
        tell(&plan, &loads, &mut out);
        check("workload", &out);
    }
}
