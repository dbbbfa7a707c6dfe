//! The report of the queries: documents a second of CPU, compared with the promise.

use crate::report::plot::{Axis, Plot};
use crate::report::table::{Table, bytes, ms, rate};
use crate::report::{Outcome, Statistic};
use crate::workloads::query::{Found, Measured};
use muniment_load::placement;
use muniment_load::stats::{interval, mean, median};

/// Adds the results to the report.
pub(crate) fn tell(found: &Found, out: &mut Outcome) {
    for m in &found.measured {
        figures(m, out);
        out.samples.push(m.samples());
    }
    out.tables.push(table(found));
    for (query, error) in &found.skipped {
        out.warnings
            .push(format!("query {} was skipped: {error}", query.name));
    }
    let stands = once_each(&found.measured);
    out.findings.push(kept(&stands, found.skipped.len()));
    if !stands.is_empty() {
        out.plots.push(plot(&stands));
    }
}

/// Adds the figures of one query, with their range over the runs.
fn figures(m: &Measured, out: &mut Outcome) {
    let called = |what: &str| m.placement.called(&format!("{}{what}", m.query.name));
    let documents = m.documents as f64;
    let judged = match m.cpu {
        Some(_) => interval(&m.cpus, |seconds| documents / mean(seconds)),
        None => interval(&m.walls, |seconds| documents / median(seconds)),
    };
    let f = out.figure(called(""), m.rate(), "documents/s a core", None);
    if let Some((low, high)) = judged {
        f.between(low, high);
    }
    let f = out.figure(called(" wall"), m.wall() * 1e3, "ms", None);
    f.of(called(""), Statistic::P50);
    if let Some((low, high)) = interval(&m.walls, median) {
        f.between(low * 1e3, high * 1e3);
    }
    if let Some(memory) = m.memory {
        out.figure(called(" memory"), memory, "bytes", None);
    }
}

/// Whether the query keeps its promise; `None` if it has none.
fn keeps(m: &Measured) -> Option<bool> {
    m.query.target.map(|t| m.rate() >= t)
}

fn table(found: &Found) -> Table {
    let mut t = Table::new(
        "Queries",
        &[
            "<query",
            "<what",
            "<cores",
            ">documents",
            ">documents/s a core",
            ">target",
            "<verdict",
            ">ms by the clock",
            ">CPU ms",
            ">runs",
            ">memory it took",
            "<plan",
        ],
    );
    let dash = || "–".to_string();
    for m in &found.measured {
        let verdict = match keeps(m) {
            None => "",
            Some(true) => "PASS",
            Some(false) => "FALLS SHORT",
        };
        let target = m.query.target.map(|t| format!("≥ {}", rate(t)));
        t.row([
            m.query.name.to_string(),
            m.query.title.to_string(),
            m.placement.name().to_string(),
            rate(m.documents as f64),
            rate(m.rate()),
            target.unwrap_or_default(),
            verdict.to_string(),
            ms(m.wall() * 1e3),
            m.cpu.map_or_else(dash, |c| ms(c * 1e3)),
            m.walls.len().to_string(),
            m.memory.map_or_else(dash, bytes),
            m.plan.clone(),
        ]);
    }
    t.note(format!(
        "{} orders of {:.0} bytes on average, {} customers. A document counts once for every run that works on it. {}",
        rate(found.size.orders as f64),
        found.average,
        rate(found.size.customers as f64),
        placement::NOTE
    ));
    t
}

/// Each query once: on two cores if it was measured in both placements.
fn once_each(measured: &[Measured]) -> Vec<&Measured> {
    let all = measured.iter().enumerate();
    let last = all.filter(|(i, m)| {
        let later = measured.iter().skip(i + 1);
        later.into_iter().all(|o| o.query.name != m.query.name)
    });
    last.map(|(_, m)| m).collect()
}

/// A sentence that tells how many queries ran, and how many keep their promise.
fn kept(stands: &[&Measured], skipped: usize) -> String {
    let judged: Vec<bool> = stands.iter().filter_map(|m| keeps(m)).collect();
    let promised = match judged.len() {
        0 => String::new(),
        n => {
            let kept = judged.iter().filter(|kept| **kept).count();
            format!("{kept} of {n} targets are kept; ")
        }
    };
    format!(
        "{promised}{} of {} queries ran.",
        stands.len(),
        stands.len() + skipped
    )
}

fn plot(stands: &[&Measured]) -> Plot {
    let rows: Vec<_> = stands
        .iter()
        .map(|m| (m.query.name, m.rate(), m.query.target))
        .collect();
    Plot::beside(
        "Documents a second of CPU",
        "Filled: measured, on two cores where there are two. Outlined: promised, where something is.",
        "query",
        Axis::log("documents/s a core"),
        &rows,
        "target",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::experiments::fixtures::check;
    use crate::workloads::query::{QUERIES, Size};
    use muniment_load::placement::Placement;

    #[test]
    fn measured_and_skipped() {
        let mut measured = Vec::new();
        for (i, query) in QUERIES[..4].iter().enumerate() {
            for placement in [Placement::OneCore, Placement::TwoCores] {
                let n = i as f64 + 1.0;
                measured.push(Measured {
                    query,
                    placement,
                    documents: 20_000 * (i as u64 + 1),
                    walls: vec![0.01 * n, 0.012 * n, 0.011 * n, 0.0105 * n],
                    began: 0.0,
                    cpu: (i != 1).then_some(0.009 * n),
                    cpus: match i {
                        0 => vec![0.009, 0.0095, 0.0085],
                        _ => Vec::new(),
                    },
                    memory: (i == 0).then_some(1e6),
                    plan: "FETCH < IXSCAN a_1".into(),
                });
            }
        }
        let mut found = Found {
            size: Size {
                orders: 20_000,
                customers: 2000,
            },
            average: 350.0,
            measured,
            skipped: vec![(QUERIES[5], "no such index".to_string())],
        };
        let mut out = Outcome::default();
        tell(&found, &mut out);
        check("query", &out);
        let mut out = Outcome::default();
        found.measured.clear();
        tell(&found, &mut out);
        check("query-part", &out);
    }
}
