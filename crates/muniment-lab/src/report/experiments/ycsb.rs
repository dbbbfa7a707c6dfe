//! The report of a run of YCSB: its phases and their kinds of operations.

use crate::report::table::{Table, rate};
use crate::report::{Outcome, Statistic};
use crate::ycsb::Phase;
use crate::ycsb::settings::Interval;
use muniment_load::hist::Latency;
use muniment_load::samples::SampleSet;

/// Adds the results to the report; `interval` tells which latencies were asked for.
pub(crate) fn tell(phases: &[Phase], interval: Interval, out: &mut Outcome) {
    for phase in phases {
        of_phase(phase, out);
    }
    out.tables.push(operations(phases, interval));
}

/// Adds the figures, samples and sentences of one phase.
fn of_phase(p: &Phase, out: &mut Outcome) {
    let name = p.name;
    let seconds = p.load.samples.seconds;
    let throughput = p.load.samples.operations as f64 / seconds;
    out.figure(name, throughput, "operations/s", None)
        .of(name, Statistic::Rate);
    out.findings.push(format!(
        "{name}: {} operations/s, {}.",
        rate(throughput),
        p.load.cost_in_words()
    ));
    if let Some(e) = &p.error {
        out.warnings
            .push(format!("{name}: the server's first error: {e}"));
    }
    if p.load.cut_short {
        out.warnings
            .push(format!("{name}: ended before all operations were done."));
    }
    out.samples.push(p.load.samples.clone());
    let kinds = p.load.kinds.iter();
    out.samples.extend(kinds.map(|(kind, m)| SampleSet {
        name: format!("{name} {kind}"),
        operations: m.service.count(),
        latency: m.service.clone(),
        seconds,
        ..SampleSet::default()
    }));
}

fn operations(phases: &[Phase], interval: Interval) -> Table {
    let mut t = Table::new(
        "Operations",
        &[
            "<phase",
            "<operation",
            ">operations",
            ">a second",
            ">average µs",
            ">min µs",
            ">p50 µs",
            ">p95 µs",
            ">p99 µs",
            ">p99.9 µs",
            ">max µs",
            "<ended",
        ],
    );
    for p in phases {
        let seconds = p.load.samples.seconds;
        let row = |kind: &str, l: &Latency, ended: String| {
            let count = l.count() as f64;
            let mut row = vec![p.name.to_string(), kind.to_string()];
            row.extend([rate(count), rate(count / seconds)]);
            let quantiles = [0.5, 0.95, 0.99, 0.999].map(|q| l.quantile_ms(q));
            let shortest = [l.mean_ms(), l.min_ms()].into_iter();
            let all = shortest.chain(quantiles).chain([l.max_ms()]);
            row.extend(all.map(|ms| format!("{:.0}", ms * 1e3)));
            row.push(ended);
            row
        };
        t.row(row("all", &p.load.samples.latency, String::new()));
        for (kind, m) in &p.load.kinds {
            let ended: Vec<String> = m.statuses.iter().map(|(k, n)| format!("{k} {n}")).collect();
            if m.service.count() > 0 && interval != Interval::Intended {
                t.row(row(kind, &m.service, ended.join(", ")));
            }
            if m.intended.count() > 0 && interval != Interval::Op {
                let kind = format!("{kind}, intended");
                t.row(row(&kind, &m.intended, String::new()));
            }
        }
    }
    t
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::experiments::fixtures::{check, load, measured};

    #[test]
    fn both_intervals_and_one() {
        let mut phases: Vec<Phase> = ["load", "run"]
            .into_iter()
            .enumerate()
            .map(|(i, name)| {
                let mut l = load(name, 1000 * (i as u64 + 1), 2.0, 0.2);
                l.cut_short = i == 1;
                let mut m = measured(0.1, "NOT_FOUND", 3);
                m.intended = m.service.clone();
                l.kinds.insert("READ", m);
                l.kinds.insert("UPDATE", measured(0.3, "ERROR", 2));
                Phase {
                    name,
                    load: l,
                    error: (i == 1).then(|| "bad".to_string()),
                }
            })
            .collect();
        let mut out = Outcome::default();
        tell(&phases, Interval::Both, &mut out);
        check("ycsb", &out);
        phases.truncate(1);
        let mut out = Outcome::default();
        tell(&phases, Interval::Op, &mut out);
        check("ycsb-part", &out);
    }
}
