//! The report of yardstick 7: its three lines, and the plot of both rates as the data grow.

use crate::report::Outcome;
use crate::report::plot::{Axis, Mark, Plot, Series};
use crate::report::table::{bytes, ms, rate};
use crate::yardsticks::Row;
use crate::yardsticks::index_cost::{Found, SLICES};
use muniment_load::stats::{Ratio, median};

/// Adds the results to the report, as far as the measurement went.
pub(crate) fn tell(found: &Found, rows: &mut Vec<Row>, out: &mut Outcome) {
    if let Some(ratio) = found.ratio() {
        rows.push(cost(found, ratio));
        rows.push(grown(found));
        out.plots.push(plot(found));
    }
    rows.push(stall(found));
}

/// The row about the cost of the index.
fn cost(found: &Found, ratio: Ratio) -> Row {
    let row = Row::at_least(
        "7a",
        "indexed / unindexed insert rate",
        ratio.median,
        "×",
        0.5,
    );
    let row = row.because(format!(
        "indexed {}/s, unindexed {}/s",
        rate(median(found.indexed.warm())),
        rate(median(found.plain.warm()))
    ));
    Row {
        ratio: Some(ratio),
        ..row
    }
}

/// The row about the rate with the index as the data grow.
fn grown(found: &Found) -> Row {
    let [(start, cpu_start), (end, cpu_end)] = found.growth();
    let promise = match found.data >= 5e9 {
        true => "",
        false => " (the promise is made for 5 GB: --preset paper)",
    };
    let what = format!("indexed rate after {} / at the start", bytes(found.data));
    Row::at_least("7b", &what, end / start, "×", 0.8).because(format!(
        "first quarter {}/s ({cpu_start:.1} µs server CPU), last quarter {}/s ({cpu_end:.1} µs){promise}",
        rate(start),
        rate(end),
    ))
}

fn stall(found: &Found) -> Row {
    let (indexed, plain) = (&found.indexed.latency, &found.plain.latency);
    let what = "longest stall of a single insert";
    Row::at_most("7c", what, found.stall(), "ms", 250.0).because(format!(
        "indexed max {} ms, p99.9 {} ms; unindexed max {} ms, p99.9 {} ms",
        ms(indexed.max_ms()),
        ms(indexed.quantile_ms(0.999)),
        ms(plain.max_ms()),
        ms(plain.quantile_ms(0.999))
    ))
}

fn plot(found: &Found) -> Plot {
    let line = |name: &str, color, rates: &[f64]| {
        let slice = found.data / SLICES as f64 / 1e6;
        let all = rates.iter().enumerate();
        let points = all.map(|(i, y)| ((i as f64 + 1.0) * slice, *y));
        Series::new(name, Mark::Line, color, points.collect())
    };
    Plot::new(
        "Inserts a second as the data grow",
        "Slices of the two collections alternate; the x axis is the data in each.",
        Axis::linear("MB in each collection"),
        Axis::linear("documents/s"),
    )
    .series([
        line("unindexed", 0, &found.plain.rates),
        line("indexed {name: 1}", 1, &found.indexed.rates),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::experiments::fixtures::{check, latency};
    use crate::report::experiments::yardsticks;

    #[test]
    fn whole_and_interrupted() {
        let rates = |first: f64, step: f64| -> Vec<f64> {
            (0..SLICES).map(|i| first - step * i as f64).collect()
        };
        let mut found = Found::of(1e9);
        found.indexed.rates = rates(50_000.0, 300.0);
        found.indexed.latency = latency(3.0);
        found.plain.rates = rates(80_000.0, 100.0);
        found.plain.latency = latency(2.0);
        found.cpu = rates(30.0, -0.1);
        let (mut rows, mut out) = (Vec::new(), Outcome::default());
        tell(&found, &mut rows, &mut out);
        yardsticks::tell(&rows, &mut out);
        check("index-cost", &out);
        found.indexed.rates.truncate(1);
        found.plain.rates.truncate(1);
        let (mut rows, mut out) = (Vec::new(), Outcome::default());
        tell(&found, &mut rows, &mut out);
        assert!(rows.len() == 1 && out.plots.is_empty());
    }
}
