//! The report of a workload at rising rates: the curve of the closed loop with its knee, and the
//! latencies of the open loop at shares of the knee's rate.

use super::super::scaling::scaling;
use crate::report::plot::{Axis, Mark, Plot, Series};
use crate::report::table::{Table, ms, rate};
use crate::report::{Outcome, Statistic};
use crate::vary::rates::{Found, Step, operations};
use muniment_load::load::Load;
use muniment_load::samples::SampleSet;

/// Adds the results to the report, as far as the measurement went.
pub(crate) fn tell(found: &Found, out: &mut Outcome) {
    let phase = &found.phase;
    let called = |workers: u64| format!("{phase}, {workers} workers");
    for (workers, load) in &found.beside {
        let name = format!("{}, {}", called(*workers), load.samples.placement);
        out.figure(&name, operations(load), "operations/s", None)
            .of(&name, Statistic::Rate);
        out.samples.push(samples(name, load));
    }
    let closed = found.closed.iter();
    out.samples
        .extend(closed.map(|(workers, load)| samples(called(*workers), load)));
    if !found.closed.is_empty() {
        scaling(phase, &found.curve(), out);
    }
    if let Some((workers, capacity)) = found.knee {
        found.steps.iter().for_each(|s| of_step(phase, s, out));
        out.tables.push(open_loop(found, workers, capacity));
        out.findings.extend(answered(phase, &found.steps));
        out.plots.push(plot(phase, capacity, &found.steps));
    }
}

fn samples(name: String, load: &Load) -> SampleSet {
    SampleSet {
        name,
        ..load.samples.clone()
    }
}

/// Adds the samples and figures of one rate.
fn of_step(phase: &str, s: &Step, out: &mut Outcome) {
    let service = format!("{phase}, {} % of the knee", s.percent);
    let intended = format!("{service}, intended");
    out.samples.push(samples(service.clone(), &s.load));
    out.samples.push(SampleSet {
        name: intended.clone(),
        latency: s.intended.clone(),
        operations: s.intended.count(),
        seconds: s.load.samples.seconds,
        ..SampleSet::default()
    });
    let name = format!("{phase}, {} %", s.percent);
    for (what, latency, samples) in [
        ("intended", &s.intended, intended),
        ("service", &s.load.samples.latency, service),
    ] {
        let p99 = latency.quantile_ms(0.99);
        out.figure(format!("{name} {what} p99"), p99, "ms", None)
            .of(samples, Statistic::P99);
    }
}

/// The number of operations that were due and not sent. A number within the scatter of random
/// arrivals counts as 0.
fn unsent(s: &Step) -> f64 {
    let due = s.offered * s.load.samples.seconds;
    let unsent = (due - s.load.samples.operations as f64).max(0.0);
    match unsent > 3.0 * due.sqrt() {
        true => unsent,
        false => 0.0,
    }
}

fn open_loop(found: &Found, workers: u64, capacity: f64) -> Table {
    let mut t = Table::new(
        &format!(
            "{}: open loop at shares of {} operations/s",
            found.phase,
            rate(capacity)
        ),
        &[
            ">% of the knee",
            ">offered/s",
            ">done/s",
            ">due, not sent",
            ">service p50 ms",
            ">p99",
            ">p99.9",
            ">intended p50 ms",
            ">p99",
            ">p99.9",
            ">max",
        ],
    );
    for s in &found.steps {
        let service = &s.load.samples.latency;
        let mut row = vec![
            s.percent.to_string(),
            rate(s.offered),
            rate(operations(&s.load)),
            rate(unsent(s).round()),
        ];
        row.extend([0.5, 0.99, 0.999].map(|q| ms(service.quantile_ms(q))));
        row.extend([0.5, 0.99, 0.999, 1.0].map(|q| ms(s.intended.quantile_ms(q))));
        t.row(row);
    }
    t.note(format!(
        "The knee was found at {workers} workers. Operations are due at random (exponential) distances, by {} workers; one that is due while its worker still waits is sent late. Service: from the sending. Intended: from when it was due, so that waiting counts.",
        found.open
    ));
    t
}

/// A sentence about the time within which operations are answered.
fn answered(phase: &str, steps: &[Step]) -> Option<String> {
    let words: Vec<String> = [50, 80, 100]
        .into_iter()
        .filter_map(|percent| {
            let s = steps.iter().find(|s| s.percent == percent)?;
            let p99 = s.intended.quantile_ms(0.99);
            Some(format!("{} ms at {percent} %", ms(p99)))
        })
        .collect();
    (!words.is_empty()).then(|| {
        format!(
            "{phase}: 99 of 100 operations are answered within {} of the knee's rate, counted from when they were due.",
            words.join(", ")
        )
    })
}

fn plot(phase: &str, capacity: f64, steps: &[Step]) -> Plot {
    let line = |name: &str, color, y: fn(&Step) -> f64| {
        let points = steps.iter().map(|s| (s.percent as f64, y(s)));
        Series::new(name, Mark::Line, color, points.collect())
    };
    Plot::new(
        &format!("{phase}: latency against the offered rate"),
        &format!(
            "Logarithmic. 100 % is the knee's rate, {} operations/s.",
            rate(capacity)
        ),
        Axis::linear("% of the knee's rate"),
        Axis::log("ms"),
    )
    .series([
        line("intended p99", 0, |s| s.intended.quantile_ms(0.99)),
        line("service p99", 1, |s| {
            s.load.samples.latency.quantile_ms(0.99)
        }),
        line("intended p50", 2, |s| s.intended.quantile_ms(0.5)),
        line("service p50", 3, |s| {
            s.load.samples.latency.quantile_ms(0.5)
        }),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::experiments::fixtures::{check, latency, load};

    #[test]
    fn whole_and_interrupted() {
        let closed = [1, 2, 4, 8, 16, 32, 48].map(|n: u64| {
            let x = n as f64;
            let done = 8000.0 * x / (1.0 + 0.05 * (x - 1.0) + 0.005 * x * (x - 1.0));
            (n, load("x", done as u64, 2.0, 0.2 * x))
        });
        let mut one = load("x", 9000, 2.0, 0.1);
        one.samples.placement = "one core".into();
        let steps = [10, 50, 100, 110].map(|percent| Step {
            percent,
            offered: 400.0 * percent as f64,
            load: load("x", (700 * percent).min(72_000), 2.0, 0.3),
            intended: latency(percent as f64 / 20.0),
        });
        let mut found = Found {
            phase: "mixed".into(),
            closed: closed.to_vec(),
            beside: vec![(1, one)],
            knee: Some((8, 40_000.0)),
            open: 16,
            steps: steps.into_iter().collect(),
        };
        let mut out = Outcome::default();
        tell(&found, &mut out);
        check("rates", &out);
        // Ctrl-C came before a knee was found.
        found.closed.truncate(2);
        found.knee = None;
        found.steps.clear();
        let mut out = Outcome::default();
        tell(&found, &mut out);
        assert_eq!(out.tables[0].rows.len(), 2, "what there was is shown");
        assert_eq!(out.samples.len(), 3);
    }
}
