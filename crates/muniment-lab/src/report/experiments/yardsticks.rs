//! The report of the yardsticks: the measured value compared with the promise, line by line.

use crate::report::plot::{Axis, Mark, Plot, Series};
use crate::report::table::{Table, rate};
use crate::report::{Better, Outcome};
use crate::yardsticks::Row;

/// Adds the results to the report.
pub(crate) fn tell(rows: &[Row], out: &mut Outcome) {
    for row in rows {
        figures(row, out);
    }
    out.tables.push(table(rows));
    let misses: Vec<&Row> = rows.iter().filter(|r| !r.passes()).collect();
    out.findings.push(format!(
        "{} of {} lines pass.",
        rows.len() - misses.len(),
        rows.len()
    ));
    out.findings.extend(misses.into_iter().map(|r| {
        format!(
            "{} {} falls short: {} instead of {}.",
            r.id,
            r.what,
            show(r.value, r.unit),
            promised(r)
        )
    }));
    out.plots.extend(plot(rows));
}

/// Formats a figure with its unit.
fn show(value: f64, unit: &str) -> String {
    match unit {
        "×" if value < 10.0 => format!("{value:.2} ×"),
        "×" => format!("{value:.1} ×"),
        "ms" if value < 10.0 => format!("{value:.2} ms"),
        // Large values are rounded to whole numbers only: with three digits, a value that just
        // misses its target would look as if it met it.
        u if value.abs() >= 1000.0 => format!("{} {u}", rate(value.round())),
        u => format!("{} {u}", rate(value)),
    }
}

/// The target, and whether it is an upper or a lower limit.
fn promised(r: &Row) -> String {
    let sign = if r.at_most { "≤" } else { "≥" };
    format!("{sign} {}", show(r.target, r.unit))
}

fn figures(r: &Row, out: &mut Outcome) {
    let figure = out.figure(format!("{} {}", r.id, r.what), r.value, r.unit, None);
    figure.better(match r.at_most {
        true => Better::Lower,
        false => Better::Higher,
    });
    if let Some(x) = r.ratio {
        figure.between(x.low, x.high);
    }
    out.figure(format!("{} target", r.id), r.target, r.unit, None)
        .better(Better::Neither);
}

fn table(rows: &[Row]) -> Table {
    let mut t = Table::new(
        "Yardsticks",
        &[
            "<measured",
            ">figure",
            ">95 % interval",
            ">target",
            "<verdict",
            "<in detail",
        ],
    );
    for r in rows {
        let interval = r.ratio.map(|x| format!("{:.2} … {:.2}", x.low, x.high));
        t.row([
            format!("{} {}", r.id, r.what),
            show(r.value, r.unit),
            interval.unwrap_or_default(),
            promised(r),
            if r.passes() { "PASS" } else { "FALLS SHORT" }.to_string(),
            match &r.otherwise {
                Some(o) => format!("{o}; {}", r.detail),
                None => r.detail.clone(),
            },
        ]);
    }
    t
}

/// The plot of those ratios whose bars can be compared.
fn plot(rows: &[Row]) -> Option<Plot> {
    let ratios = rows.iter().filter(|r| r.unit == "×" && r.target < 10.0);
    let ratios: Vec<&Row> = ratios.collect();
    if ratios.is_empty() {
        return None;
    }
    let bars = |value: fn(&Row) -> f64| {
        let all = ratios.iter().enumerate();
        all.map(|(i, r)| (i as f64, value(r))).collect()
    };
    let plot = Plot::new(
        "Ratios and targets",
        "Filled: measured. Outlined: promised.",
        Axis::linear("yardstick"),
        Axis::linear("ratio"),
    );
    Some(
        plot.categories(ratios.iter().map(|r| r.id.as_str()))
            .series([
                Series::new("measured", Mark::Bar, 0, bars(|r| r.value)),
                Series::new("target", Mark::Bar, 1, bars(|r| r.target)).published(),
            ]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::experiments::fixtures::check;
    use muniment_load::stats::Ratio;

    #[test]
    fn promises_kept_and_not() {
        let row = |id: &str, value, unit, target, at_most| Row {
            id: id.into(),
            what: "what it is".into(),
            value,
            unit,
            ratio: None,
            target,
            at_most,
            otherwise: None,
            detail: "detail".into(),
        };
        let rows = [
            row("1", 0.456, "×", 0.5, false),
            Row {
                ratio: Ratio::of_pairs(&[1.0, 1.1, 1.2, 1.0, 1.3], &[1.0; 5]),
                ..row("2", 1.1, "×", 1.0, false)
            },
            Row {
                otherwise: Some("62 commits a sync".into()),
                ..row("3", 12.0, "×", 20.0, false)
            },
            row("4", 300.0, "ms", 250.0, true),
            row("5", 123_456.7, "docs/s", 100_000.0, false),
        ];
        let mut out = Outcome::default();
        tell(&rows, &mut out);
        check("yardsticks", &out);
        let mut out = Outcome::default();
        tell(&rows[3..], &mut out);
        assert!(out.plots.is_empty(), "a plot of no ratios says nothing");
    }
}
