//! The report of W2: LinkBench's rates by clients, with the tails of single operations.

use super::super::scaling::scaling;
use crate::linkbench::client::RETRIED;
use crate::report::table::{Table, bytes, ms, rate};
use crate::report::{Outcome, Statistic};
use crate::workloads::w2::{Found, Point};
use muniment_load::meter::Measured;
use muniment_load::placement;

/// The operations whose tails are reported.
const TAILS: [&str; 4] = ["UPDATE_NODE", "GET_NODE", "UPDATE_LINK", "GET_LINKS_LIST"];

/// Adds the results to the report.
pub(crate) fn tell(found: &Found, out: &mut Outcome) {
    let (name, points) = (&found.name, &found.points);
    let best = points.iter().max_by(|a, b| a.rate().total_cmp(&b.rate()));
    let Some(best) = best else { return };
    // The curve has one point for one client, even if it was measured in both placements.
    let alone = points.iter().filter(|p| p.clients == 1);
    let alone: Vec<_> = alone.map(|p| p.placement).collect();
    let in_curve = placement::representative(&alone);
    let stands = |p: &&Point| p.clients > 1 || p.placement == in_curve;
    for p in points {
        figures(name, p, stands(&p), out);
    }
    out.tables.push(by_clients(name, points));
    out.tables.push(operations(name, best));
    let curve = points.iter().filter(stands);
    let curve: Vec<_> = curve.map(|p| (p.clients as f64, p.rate())).collect();
    scaling(&format!("LinkBench {name}, requests"), &curve, out);
}

/// Adds the figures for one number of clients. A rate in the curve is reported with the curve.
fn figures(name: &str, p: &Point, in_curve: bool, out: &mut Outcome) {
    let mut samples = p.requests.samples.clone();
    samples.name = format!("LinkBench {name}, requests, {} workers", p.clients);
    if in_curve {
        let figure = format!("{name} load, {} clients", p.clients);
        out.figure(figure, p.load.rate(), "links/s", None);
    } else {
        samples.name = p.placement.called(&samples.name);
        out.figure(&samples.name, p.rate(), "operations/s", None)
            .of(&samples.name, Statistic::Rate);
    }
    out.samples.push(samples);
}

fn by_clients(name: &str, points: &[Point]) -> Table {
    let mut t = Table::new(
        &format!("LinkBench {name} by clients"),
        &[
            ">clients",
            "<cores",
            ">links loaded/s",
            ">requests/s",
            ">p99 ms update-node",
            ">p99 ms get-node",
            ">p99 ms update-link",
            ">p99 ms get-link-list",
            ">server µs each",
            ">written each",
            ">resident",
            ">on disk",
            ">retries",
        ],
    );
    let dash = || "–".to_string();
    for p in points {
        let r = &p.requests;
        let each = r.samples.operations.max(1) as f64;
        let [a, b, c, d] = TAILS.map(|kind| match r.kinds.get(kind) {
            Some(m) if m.service.count() > 0 => ms(m.service.quantile_ms(0.99)),
            _ => dash(),
        });
        t.row([
            rate(p.clients as f64),
            p.placement.name().to_string(),
            rate(p.load.rate()),
            rate(p.rate()),
            a,
            b,
            c,
            d,
            r.server_us_text(each as u64),
            r.server.map_or_else(dash, |s| bytes(s.written / each)),
            r.server.map_or_else(dash, |s| bytes(s.rss)),
            bytes(p.size),
            rate(r.kinds.values().map(retries).sum::<u64>() as f64),
        ]);
    }
    t.note(placement::NOTE);
    t
}

fn operations(name: &str, p: &Point) -> Table {
    let mut t = Table::new(
        &format!("LinkBench {name}, operations with {} clients", p.clients),
        &[
            "<operation",
            ">count",
            ">mean ms",
            ">p25",
            ">p50",
            ">p75",
            ">p95",
            ">p99",
            ">max",
            ">retries",
        ],
    );
    for (kind, m) in &p.requests.kinds {
        let l = &m.service;
        let mut row = vec![(*kind).to_string(), rate(l.count() as f64), ms(l.mean_ms())];
        row.extend([0.25, 0.5, 0.75, 0.95, 0.99].map(|q| ms(l.quantile_ms(q))));
        row.extend([ms(l.max_ms()), rate(retries(m) as f64)]);
        t.row(row);
    }
    t
}

/// The number of tries that failed and were repeated.
fn retries(m: &Measured) -> u64 {
    m.statuses.get(RETRIED).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::experiments::fixtures::{check, load, measured};
    use muniment_load::placement::Placement;

    #[test]
    fn by_clients() {
        let mut points = Vec::new();
        for (clients, placement) in [
            (1, Placement::OneCore),
            (1, Placement::TwoCores),
            (4, Placement::Anywhere),
            (8, Placement::Anywhere),
            (16, Placement::Anywhere),
            (32, Placement::Anywhere),
            (48, Placement::Anywhere),
        ] {
            let n = clients as f64;
            let mut requests = load(
                "requests",
                (10_000.0 * n / (1.0 + 0.1 * n)) as u64,
                2.0,
                0.3 * n,
            );
            requests
                .kinds
                .insert("GET_NODE", measured(0.1 * n, RETRIED, 3));
            requests
                .kinds
                .insert("UPDATE_LINK", measured(0.2 * n, "X", 3));
            if clients == 4 {
                requests.server = None;
            }
            points.push(Point {
                clients,
                placement,
                load: load("load", 50_000, 1.0 + 1.0 / n, 0.1),
                requests,
                size: 1e7 * n,
            });
        }
        let mut found = Found {
            name: "2015".into(),
            points,
        };
        let mut out = Outcome::default();
        tell(&found, &mut out);
        check("w2", &out);
        let mut out = Outcome::default();
        found.points.clear();
        tell(&found, &mut out);
        assert!(out.tables.is_empty());
    }
}
