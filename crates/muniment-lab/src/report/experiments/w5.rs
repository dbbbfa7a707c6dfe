//! The report of W5: YCSB's rates by scenario, compared with the post's, and the curve of the
//! sweep.

use super::super::scaling::scaling;
use crate::report::plot::{Axis, Plot};
use crate::report::table::{Table, bytes, rate};
use crate::report::{Outcome, Statistic};
use crate::workloads::w5::{Found, Row, SWEEP};
use muniment_load::hist::Latency;
use muniment_load::load::Load;

/// The post's rates of S5 and S2.
const POST: [f64; 2] = [49_020.0, 12_102.0];

/// Adds the results to the report.
pub(crate) fn tell(found: &Found, out: &mut Outcome) {
    for row in &found.rows {
        let name = row.scenario.name;
        out.figure(name, row.rate(), "operations/s", row.scenario.published)
            .of(name, Statistic::Rate);
        let mut samples = row.phase.load.samples.clone();
        samples.name = name.to_string();
        out.samples.push(samples);
    }
    out.tables.push(scenarios(&found.rows));
    let rate_of = |name: &str| {
        let row = found.rows.iter().find(|r| r.scenario.name == name);
        row.map(Row::rate)
    };
    if let (Some(s2), Some(s5)) = (rate_of("S2"), rate_of("S5")) {
        out.findings.push(format!(
            "Reading only (S5) is {:.1} × as fast as nine updates in ten (S2); in the post it was {:.1} ×.",
            s5 / s2,
            POST[0] / POST[1]
        ));
    }
    if found.rows.len() > 1 {
        out.plots.push(plot(&found.rows));
    }
    if !found.sweep.is_empty() {
        scaling(SWEEP, &found.sweep, out);
    }
}

fn scenarios(rows: &[Row]) -> Table {
    let mut t = Table::new(
        "Scenarios",
        &[
            "<scenario",
            "<operations",
            ">done",
            ">operations/s",
            ">published",
            ">read p50 µs",
            ">read p99 µs",
            ">write p50 µs",
            ">write p99 µs",
            ">server µs each",
            ">written each",
            "<failed",
        ],
    );
    let dash = || "–".to_string();
    for row in rows {
        let load = &row.phase.load;
        let each = load.samples.operations.max(1) as f64;
        let (reads, writes) = (["READ", "SCAN"], ["UPDATE", "INSERT"]);
        t.row([
            row.scenario.name.to_string(),
            row.scenario.what.to_string(),
            rate(load.samples.operations as f64),
            rate(row.rate()),
            row.scenario.published.map_or_else(dash, rate),
            micros(load, &reads, 0.5),
            micros(load, &reads, 0.99),
            micros(load, &writes, 0.5),
            micros(load, &writes, 0.99),
            load.server_us_text(each as u64),
            load.server.map_or_else(dash, |s| bytes(s.written / each)),
            failed(load),
        ]);
    }
    t.note("Published: YCSB's Java client on an 8-core machine with 30 GB, 2015. Compare the order of the scenarios, not the figures.");
    t
}

/// A quantile over these kinds of operations, µs.
fn micros(load: &Load, kinds: &[&str], q: f64) -> String {
    let mut all = Latency::new();
    let some = kinds.iter().filter_map(|k| load.kinds.get(k));
    some.for_each(|m| all.merge(&m.service));
    match all.count() {
        0 => "–".to_string(),
        _ => format!("{:.0}", all.quantile_ms(q) * 1e3),
    }
}

/// The statuses of operations that failed, with their counts.
pub(super) fn failed(load: &Load) -> String {
    let all = load.kinds.iter().flat_map(|(kind, m)| {
        let bad = m.statuses.iter().filter(|(s, _)| **s != "OK");
        bad.map(move |(s, n)| format!("{kind} {s} {n}"))
    });
    all.collect::<Vec<_>>().join(", ")
}

fn plot(rows: &[Row]) -> Plot {
    let bars: Vec<_> = rows
        .iter()
        .map(|r| (r.scenario.name, r.rate(), r.scenario.published))
        .collect();
    Plot::beside(
        "Operations a second",
        "Filled: measured. Outlined: published.",
        "scenario",
        Axis::linear("operations/s"),
        &bars,
        "published",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::experiments::fixtures::{check, load, measured};
    use crate::workloads::scenarios::{LOAD, SCENARIOS, STOCK};
    use crate::ycsb::Phase;

    #[test]
    fn whole_and_part() {
        let all = [&LOAD].into_iter().chain(&SCENARIOS).chain(&STOCK[..1]);
        let rows: Vec<Row> = all
            .enumerate()
            .map(|(i, scenario)| {
                let mut l = load("x", 10_000 * (i as u64 + 1), 1.5, 0.2);
                l.kinds.insert("READ", measured(0.2, "NOT_FOUND", 2));
                if i > 1 {
                    l.kinds.insert("UPDATE", measured(0.4, "OK", 2));
                }
                Row {
                    scenario,
                    phase: Phase {
                        name: "run",
                        load: l,
                        error: None,
                    },
                }
            })
            .collect();
        let sweep: Vec<(f64, f64)> = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 48.0]
            .map(|n: f64| {
                (
                    n,
                    1000.0 * n / (1.0 + 0.05 * (n - 1.0) + 0.001 * n * (n - 1.0)),
                )
            })
            .to_vec();
        let mut found = Found { rows, sweep };
        let mut out = Outcome::default();
        tell(&found, &mut out);
        check("w5", &out);
        let mut out = Outcome::default();
        found.rows.truncate(1);
        found.sweep.clear();
        tell(&found, &mut out);
        check("w5-part", &out);
    }
}
