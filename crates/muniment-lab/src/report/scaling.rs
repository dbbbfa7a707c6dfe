//! What a sweep over workers shows: its rates, the Universal Scalability Law, the knee.

use super::svg::{Axis, Mark, Plot, Scale, Series};
use super::table::{Table, rate};
use super::{Outcome, Statistic};
use crate::usl::{self, Fit};

/// The table, the finding and the plot of a sweep over workers.
pub fn scaling(what: &str, points: &[(f64, f64)], out: &mut Outcome) {
    let fit = Fit::new(points);
    let mut t = Table::new(
        &format!("{what} by workers"),
        &[">workers", ">operations/s", ">fitted"],
    );
    for (n, x) in points {
        t.row([
            rate(*n),
            rate(*x),
            fit.as_ref().map_or_else(|| "–".into(), |f| rate(f.at(*n))),
        ]);
        // A sample set of this name belongs to it, where the experiment keeps one.
        let name = format!("{what}, {n:.0} workers");
        out.figure(&name, *x, "operations/s", None)
            .of(&name, Statistic::Rate);
    }
    let mut series = vec![Series {
        name: "measured".into(),
        mark: Mark::Line,
        published: false,
        color: 0,
        points: points.to_vec(),
    }];
    match &fit {
        None => out.warnings.push(format!(
            "{what}: too few points to fit the Universal Scalability Law."
        )),
        Some(f) => {
            let e = |e: &usl::Estimate| {
                format!(
                    "{:.3e} (95 %: {:.1e} … {:.1e})",
                    e.value, e.interval.0, e.interval.1
                )
            };
            t.note(format!(
                "Universal Scalability Law: λ {}/s a worker (± {}), σ {}, κ {}.",
                rate(f.lambda.value),
                rate(f.lambda.error),
                e(&f.sigma),
                e(&f.kappa)
            ));
            out.findings.push(match f.knee {
                Some(knee) => format!(
                    "{what}: the knee is at {knee:.0} workers{}, {} operations/s.",
                    if f.extrapolated {
                        " (extrapolated: beyond what was measured)"
                    } else {
                        ""
                    },
                    rate(f.at(knee))
                ),
                None if !f.limit().is_finite() => {
                    format!("{what}: no knee and no limit of contention shown.")
                }
                None => format!(
                    "{what}: no knee shown; the limit of contention is {} operations/s.",
                    rate(f.limit())
                ),
            });
            if f.points < usl::ENOUGH {
                out.warnings.push(format!(
                    "{what}: {} points are few for the Universal Scalability Law.",
                    f.points
                ));
            }
            let last = points.iter().map(|p| p.0).fold(1.0, f64::max);
            let curve = (0..=60).map(|i| {
                let n = 1.0 + (last - 1.0) * f64::from(i) / 60.0;
                (n, f.at(n))
            });
            series.push(Series {
                name: "Universal Scalability Law".into(),
                mark: Mark::Line,
                published: true,
                color: 1,
                points: curve.collect(),
            });
        }
    }
    out.tables.push(t);
    out.plots.push(Plot {
        title: format!("{what}: throughput by workers"),
        caption: "Line: measured. Dashed: the fitted law.".into(),
        x: Axis {
            label: "workers".into(),
            scale: Scale::Linear,
        },
        y: Axis {
            label: "operations/s".into(),
            scale: Scale::Linear,
        },
        categories: Vec::new(),
        series,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_tells_its_knee() {
        let points: Vec<(f64, f64)> = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 48.0]
            .iter()
            .map(|n| (*n, usl::throughput([1000.0, 0.05, 0.002], *n)))
            .collect();
        let mut out = Outcome::default();
        scaling("a mix", &points, &mut out);
        assert!(
            out.findings
                .iter()
                .any(|f| f.contains("the knee is at 22 workers, "))
        );
        assert_eq!((out.tables.len(), out.plots.len()), (1, 1));
        // So few and so uneven that contention is fitted as none: nothing limits then.
        let uneven = [(1.0, 486.0), (4.0, 7996.0), (8.0, 6607.0)];
        let mut out = Outcome::default();
        scaling("a mix", &uneven, &mut out);
        assert_eq!(
            out.findings,
            ["a mix: no knee and no limit of contention shown."]
        );
    }
}
