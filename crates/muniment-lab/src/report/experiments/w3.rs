//! The report of W3: documents a second by batch size and write concern.

use crate::report::plot::{Axis, Mark, Plot, Series};
use crate::report::table::{Table, rate};
use crate::report::{Outcome, Statistic};
use crate::workloads::w3::Row;
use muniment_load::placement::{self, Placement};
use muniment_load::stats::median;

/// The post's rate at a batch of 1000 on both of its versions; it calls larger batches equally
/// fast.
const PUBLISHED: f64 = 102_000.0;

/// Adds the results to the report.
pub(crate) fn tell(rows: &[Row], out: &mut Outcome) {
    let measured = |r: &&Row| !r.default.is_empty() || !r.applied.is_empty();
    let rows: Vec<&Row> = rows.iter().filter(measured).collect();
    for row in &rows {
        figures(row, out);
    }
    let lines = Line::of(&rows);
    for line in &lines {
        line.beyond_one(out);
    }
    out.tables.push(table(&rows));
    out.plots.push(plot(&lines));
}

/// The post's rate at this batch size.
fn published(row: &Row) -> Option<f64> {
    (row.batch == 1000).then_some(PUBLISHED)
}

fn figures(row: &Row, out: &mut Outcome) {
    let called = |what: &str| row.placement.called(&format!("{what} batch {}", row.batch));
    if !row.default.is_empty() {
        let rate = median(&row.default);
        out.figure(called("default"), rate, "docs/s", published(row))
            .of(row.called(false), Statistic::Rate);
    }
    if !row.applied.is_empty() {
        out.figure(called("w:0 applied"), median(&row.applied), "docs/s", None)
            .of(row.called(true), Statistic::Rate);
        out.figure(called("w:0 sent"), median(&row.sent), "docs/s", None);
    }
}

fn table(rows: &[&Row]) -> Table {
    let mut t = Table::new(
        "Documents a second",
        &[
            "<batch size",
            "<cores",
            ">default concern",
            ">w:0 sent",
            ">w:0 applied",
            ">w:0 / default",
            ">server CPU µs/doc",
            "*docs/s",
        ],
    );
    let digits = |x: f64, digits: usize| match x.is_finite() {
        true => format!("{x:.digits$}"),
        false => "–".to_string(),
    };
    for r in rows {
        let (default, applied) = (median(&r.default), median(&r.applied));
        t.row([
            rate(r.batch as f64),
            r.placement.name().to_string(),
            rate(default),
            rate(median(&r.sent)),
            rate(applied),
            digits(applied / default, 2),
            digits(median(&r.server_us), 1),
            published(r).map_or_else(String::new, rate),
        ]);
    }
    t.note(format!(
        "The post: 102k/s at batch 1000 on both of its versions (16 vCPU, NVMe), flat beyond; w:0 \"marginal\". {}",
        placement::NOTE
    ));
    t
}

/// The rates in one placement by batch size.
struct Line {
    placement: Placement,
    default: Vec<(f64, f64)>,
    applied: Vec<(f64, f64)>,
}

impl Line {
    /// A line for each placement, in order, without batch sizes that were not measured.
    fn of(rows: &[&Row]) -> Vec<Line> {
        let mut placements: Vec<Placement> = Vec::new();
        for row in rows {
            if !placements.contains(&row.placement) {
                placements.push(row.placement);
            }
        }
        let points = |placement: Placement, rates: fn(&Row) -> &[f64]| {
            let mine = rows.iter().filter(|r| r.placement == placement);
            mine.map(|r| (r.batch as f64, median(rates(r))))
                .filter(|p| p.1.is_finite())
                .collect()
        };
        let line = |placement| Line {
            placement,
            default: points(placement, |r| &r.default),
            applied: points(placement, |r| &r.applied),
        };
        placements.into_iter().map(line).collect()
    }

    /// Adds sentences that compare batches of 1000 with single inserts and with larger batches.
    fn beyond_one(&self, out: &mut Outcome) {
        let at = |x: f64| self.default.iter().find(|p| p.0 == x).map(|p| p.1);
        let Some(thousand) = at(1000.0) else { return };
        let whose = match self.placement.name() {
            "" => String::new(),
            name => format!(" on {name}"),
        };
        if let Some(one) = at(1.0) {
            out.findings.push(format!(
                "Batches of 1000 insert {:.1} × as fast as single inserts{whose}.",
                thousand / one
            ));
        }
        let beyond = self.default.iter().filter(|p| p.0 > 1000.0);
        let beyond = beyond.map(|p| p.1 / thousand);
        if let Some((lo, hi)) = beyond
            .map(|x| (x, x))
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        {
            out.findings.push(format!(
                "Beyond 1000 the rate is {lo:.2} to {hi:.2} × that of 1000{whose} (the post: flat)."
            ));
        }
    }
}

fn plot(lines: &[Line]) -> Plot {
    let post = vec![(1000.0, PUBLISHED), (400_000.0, PUBLISHED)];
    let post = Series::new("post, default concern", Mark::Line, 0, post).published();
    let both = lines.iter().enumerate().flat_map(|(i, line)| {
        let series = |what: &str, color, points: &[(f64, f64)]| {
            Series::new(
                line.placement.called(what),
                Mark::Line,
                color,
                points.to_vec(),
            )
        };
        [
            series("default concern", 2 * i, &line.default),
            series("w:0 applied", 2 * i + 1, &line.applied),
        ]
    });
    Plot::new(
        "Documents a second against batch size",
        "Dashed: the post's 102k/s, which it calls flat from 1000 on.",
        Axis::log("batch size"),
        Axis::linear("documents/s"),
    )
    .series(both.filter(|s| !s.points.is_empty()).chain([post]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::experiments::fixtures::check;

    #[test]
    fn measured_and_not() {
        let mut rows = Vec::new();
        for (i, batch) in [1, 100, 1000, 10_000, 400_000].into_iter().enumerate() {
            for placement in [Placement::OneCore, Placement::TwoCores] {
                let r = 10_000.5 * (i + 1) as f64;
                let measured = batch != 100;
                rows.push(Row {
                    batch,
                    placement,
                    default: vec![r, r * 1.5],
                    applied: if measured { vec![r * 2.0] } else { Vec::new() },
                    sent: if measured { vec![r * 3.0] } else { Vec::new() },
                    server_us: if batch == 1 {
                        Vec::new()
                    } else {
                        vec![1.25, 2.0]
                    },
                });
            }
        }
        rows.push(Row {
            batch: 7,
            ..Row::default()
        });
        let mut out = Outcome::default();
        tell(&rows, &mut out);
        check("w3", &out);
    }
}
