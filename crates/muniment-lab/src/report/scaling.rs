//! The report of a sweep over workers: its rates, the Universal Scalability Law fitted to them, and
//! the knee.

use super::plot::{Axis, Mark, Plot, Series};
use super::table::{Table, rate};
use super::{Outcome, Statistic};
use muniment_load::usl::{self, Fit};

/// Adds the table, the finding and the plot of a sweep over workers.
pub(crate) fn scaling(what: &str, points: &[(f64, f64)], out: &mut Outcome) {
    let fit = Fit::new(points);
    for (n, x) in points {
        // An experiment that keeps the samples of a point keeps them under this name.
        let name = format!("{what}, {n:.0} workers");
        out.figure(&name, *x, "operations/s", None)
            .of(&name, Statistic::Rate);
    }
    out.findings.extend(fit.as_ref().map(|f| knee(what, f)));
    out.warnings.extend(few(what, fit.as_ref()));
    out.tables.push(table(what, points, fit.as_ref()));
    out.plots.push(plot(what, points, fit.as_ref()));
}

/// A sentence about the number of workers from which more do not help.
fn knee(what: &str, f: &Fit) -> String {
    match f.knee {
        Some(knee) => format!(
            "{what}: the knee is at {knee:.0} workers{}, {} operations/s.",
            match f.extrapolated {
                true => " (extrapolated: beyond what was measured)",
                false => "",
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
    }
}

/// A warning if there are few points for the law, or too few.
fn few(what: &str, fit: Option<&Fit>) -> Option<String> {
    match fit {
        None => Some(format!(
            "{what}: too few points to fit the Universal Scalability Law."
        )),
        Some(f) if f.points < usl::ENOUGH => Some(format!(
            "{what}: {} points are few for the Universal Scalability Law.",
            f.points
        )),
        Some(_) => None,
    }
}

fn table(what: &str, points: &[(f64, f64)], fit: Option<&Fit>) -> Table {
    let mut t = Table::new(
        &format!("{what} by workers"),
        &[">workers", ">operations/s", ">fitted"],
    );
    for (n, x) in points {
        let fitted = fit.map_or_else(|| "–".into(), |f| rate(f.at(*n)));
        t.row([rate(*n), rate(*x), fitted]);
    }
    if let Some(f) = fit {
        let estimate = |e: &usl::Estimate| {
            let (low, high) = e.interval;
            format!("{:.3e} (95 %: {low:.1e} … {high:.1e})", e.value)
        };
        t.note(format!(
            "Universal Scalability Law: λ {}/s a worker (± {}), σ {}, κ {}.",
            rate(f.lambda.value),
            rate(f.lambda.error),
            estimate(&f.sigma),
            estimate(&f.kappa)
        ));
    }
    t
}

fn plot(what: &str, points: &[(f64, f64)], fit: Option<&Fit>) -> Plot {
    let measured = Series::new("measured", Mark::Line, 0, points.to_vec());
    let law = fit.map(|f| {
        let last = points.iter().map(|p| p.0).fold(1.0, f64::max);
        let curve = (0..=60).map(|i| {
            let n = 1.0 + (last - 1.0) * f64::from(i) / 60.0;
            (n, f.at(n))
        });
        Series::new("Universal Scalability Law", Mark::Line, 1, curve.collect()).published()
    });
    Plot::new(
        &format!("{what}: throughput by workers"),
        "Line: measured. Dashed: the fitted law.",
        Axis::linear("workers"),
        Axis::linear("operations/s"),
    )
    .series([measured].into_iter().chain(law))
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
        // Points as few and uneven as these give a fit without contention, in which nothing limits
        // the rate.
        let uneven = [(1.0, 486.0), (4.0, 7996.0), (8.0, 6607.0)];
        let mut out = Outcome::default();
        scaling("a mix", &uneven, &mut out);
        assert_eq!(
            out.findings,
            ["a mix: no knee and no limit of contention shown."]
        );
    }
}
