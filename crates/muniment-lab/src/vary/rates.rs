//! A workload at rising rates: where its knee is when every worker sends as fast as it is answered
//! (closed loop), then what the latencies are at shares of that rate when operations are due at
//! random moments whatever the server does (open loop).

use crate::custom::{self, Plan, Ready};
use crate::fail::{Failure, Result};
use crate::hist::Latency;
use crate::lab::{Lab, Target};
use crate::load::Load;
use crate::report::scaling::scaling;
use crate::report::svg::{Axis, Mark, Plot, Scale, Series};
use crate::report::table::{Table, ms, rate};
use crate::report::{Outcome, SampleSet, Statistic};
use crate::stop;
use crate::usl::Fit;
use std::time::Duration;

/// Worker counts of the closed loop.
const WORKERS: [u64; 7] = [1, 2, 4, 8, 16, 32, 48];
/// How long the server may take to finish what is behind a load.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// Parses `A..B` (in steps of ten) or a list of percentages.
///
/// # Errors
/// What is no percentage between 1 and 200.
pub fn parse(text: &str) -> Result<Vec<u64>> {
    let fail = || {
        Failure(format!(
            "--rates {text}: it must be FROM..TO, in steps of 10, or a list of percentages of the knee's rate, from 1 to 200"
        ))
    };
    let number = |s: &str| {
        s.trim()
            .parse::<u64>()
            .ok()
            .filter(|n| (1..=200).contains(n))
    };
    if let Some((a, b)) = text.split_once("..") {
        let (a, b) = number(a).zip(number(b)).ok_or_else(fail)?;
        let all: Vec<u64> = (a..=b).step_by(10).collect();
        return (!all.is_empty()).then_some(all).ok_or_else(fail);
    }
    text.split(',')
        .map(|s| number(s).ok_or_else(fail))
        .collect()
}

/// Measures every run phase of `plan` so.
///
/// # Errors
/// A workload without a run phase; no server; an operation that failed.
pub fn run(
    lab: &mut Lab,
    plan: &Plan,
    percents: &[u64],
    cache_gb: Option<f64>,
    out: &mut Outcome,
) -> Result<()> {
    out.about.clone_from(&plan.about);
    if plan.runs().is_empty() {
        return Err(Failure(format!(
            "--rates: the workload {} has no run phase",
            plan.name
        )));
    }
    let mut target = lab.target(cache_gb)?;
    target.database.clone_from(&plan.database);
    let result = phases(lab, &target, plan, percents, out);
    if result.is_err() {
        target.check_alive()?;
    }
    lab.done(target);
    result
}

fn phases(
    lab: &mut Lab,
    target: &Target,
    plan: &Plan,
    percents: &[u64],
    out: &mut Outcome,
) -> Result<()> {
    let mut ready = custom::prepare(lab, target, plan)?;
    for phase in plan.runs() {
        // This phase alone, behind the loads.
        let mut one = plan.clone();
        one.phases = plan.loads().to_vec();
        one.phases.push(phase.clone());
        if stop::asked() {
            break;
        }
        sweep(lab, target, &one, &phase.name, percents, &mut ready, out)?;
    }
    out.warnings.append(&mut ready.warnings);
    Ok(())
}

/// What one rate showed.
struct Step {
    percent: u64,
    offered: f64,
    load: Load,
    intended: Latency,
}

fn sweep(
    lab: &mut Lab,
    target: &Target,
    plan: &Plan,
    phase: &str,
    percents: &[u64],
    ready: &mut Ready,
    out: &mut Outcome,
) -> Result<()> {
    let mut points = Vec::new();
    for workers in WORKERS {
        if stop::asked() {
            return Ok(());
        }
        let mut p = plan.clone();
        p.set("threads", &workers.to_string())?;
        p.set("rate", "none")?;
        lab.settle(target, LONGEST_PAUSE);
        let label = format!("{workers} workers");
        let mut loads = Vec::new();
        custom::measure(lab, target, &p, &label, ready, &mut loads)?;
        for (which, load) in loads {
            let x = load.samples.operations as f64 / load.samples.seconds;
            let mut name = format!("{phase}, {workers} workers");
            // In the curve one worker has one rate.
            if which == phase {
                points.push((workers as f64, x));
            } else {
                name = format!("{name}, {}", load.samples.placement);
                out.figure(&name, x, "operations/s", None)
                    .of(&name, Statistic::Rate);
            }
            out.samples.push(SampleSet {
                name,
                ..load.samples
            });
        }
    }
    scaling(phase, &points, out);
    let Some((workers, capacity)) = knee(&points) else {
        return Ok(());
    };
    // Waiting operations must not wait for a worker: twice the knee's.
    let open = (workers * 2).clamp(16, 128);
    let mut steps = Vec::new();
    for percent in percents {
        if stop::asked() {
            break;
        }
        let offered = capacity * *percent as f64 / 100.0;
        let mut p = plan.clone();
        p.set("threads", &open.to_string())?;
        p.set("rate", &format!("{offered:.3}"))?;
        p.set("pace", "poisson")?;
        lab.settle(target, LONGEST_PAUSE);
        let label = format!("{percent} %");
        let mut loads = Vec::new();
        custom::measure(lab, target, &p, &label, ready, &mut loads)?;
        for (_, load) in loads {
            let mut intended = Latency::new();
            load.kinds
                .values()
                .for_each(|m| intended.merge(&m.intended));
            out.samples.push(SampleSet {
                name: format!("{phase}, {percent} % of the knee"),
                ..load.samples.clone()
            });
            out.samples.push(SampleSet {
                name: format!("{phase}, {percent} % of the knee, intended"),
                latency: intended.clone(),
                operations: intended.count(),
                seconds: load.samples.seconds,
                ..SampleSet::default()
            });
            steps.push(Step {
                percent: *percent,
                offered,
                load,
                intended,
            });
        }
    }
    write_down(phase, workers, capacity, open, &steps, out);
    Ok(())
}

/// Workers and rate of the knee: the law's, if it has one within what was measured, else the best
/// point.
fn knee(points: &[(f64, f64)]) -> Option<(u64, f64)> {
    let best = points.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let fitted = Fit::new(points).and_then(|f| {
        let n = f.knee.filter(|_| !f.extrapolated)?.max(1.0);
        Some((n, f.at(n)))
    });
    // A law that promises more than was ever reached would make every share of it too large.
    let (n, x) = fitted.filter(|f| f.1 <= best.1).unwrap_or(best);
    Some((n.round() as u64, x))
}

fn write_down(
    phase: &str,
    workers: u64,
    capacity: f64,
    open: u64,
    steps: &[Step],
    out: &mut Outcome,
) {
    let mut t = Table::new(
        &format!(
            "{phase}: open loop at shares of {} operations/s",
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
    for s in steps {
        let l = &s.load.samples;
        let done = l.operations as f64 / l.seconds;
        let unsent = (s.offered * l.seconds - l.operations as f64).max(0.0);
        // Fewer than a random arrival's own scatter is none.
        let unsent = match unsent > 3.0 * (s.offered * l.seconds).sqrt() {
            true => unsent,
            false => 0.0,
        };
        let mut row = vec![
            s.percent.to_string(),
            rate(s.offered),
            rate(done),
            rate(unsent.round()),
        ];
        row.extend([0.5, 0.99, 0.999].map(|q| ms(l.latency.quantile_ms(q))));
        row.extend([0.5, 0.99, 0.999, 1.0].map(|q| ms(s.intended.quantile_ms(q))));
        t.row(row);
        let name = format!("{phase}, {} %", s.percent);
        out.figure(
            format!("{name} intended p99"),
            s.intended.quantile_ms(0.99),
            "ms",
            None,
        );
        out.figure(
            format!("{name} service p99"),
            l.latency.quantile_ms(0.99),
            "ms",
            None,
        );
    }
    t.note(format!(
        "The knee was found at {workers} workers. Operations are due at random (exponential) distances, by {open} workers; one that is due while its worker still waits is sent late. Service: from the sending. Intended: from when it was due, so that waiting counts."
    ));
    out.tables.push(t);
    let at = |p: u64| {
        steps
            .iter()
            .find(|s| s.percent == p)
            .map(|s| s.intended.quantile_ms(0.99))
    };
    let words: Vec<String> = [50, 80, 100]
        .into_iter()
        .filter_map(|p| at(p).map(|x| format!("{} ms at {p} %", ms(x))))
        .collect();
    if !words.is_empty() {
        out.findings.push(format!(
            "{phase}: 99 of 100 operations are answered within {} of the knee's rate, counted from when they were due.",
            words.join(", ")
        ));
    }
    let line = |name: &str, color, f: &dyn Fn(&Step) -> f64| Series {
        name: name.into(),
        mark: Mark::Line,
        published: false,
        color,
        points: steps.iter().map(|s| (s.percent as f64, f(s))).collect(),
    };
    out.plots.push(Plot {
        title: format!("{phase}: latency against the offered rate"),
        caption: format!(
            "Logarithmic. 100 % is the knee's rate, {} operations/s.",
            rate(capacity)
        ),
        x: Axis {
            label: "% of the knee's rate".into(),
            scale: Scale::Linear,
        },
        y: Axis {
            label: "ms".into(),
            scale: Scale::Log,
        },
        categories: Vec::new(),
        series: vec![
            line("intended p99", 0, &|s| s.intended.quantile_ms(0.99)),
            line("service p99", 1, &|s| {
                s.load.samples.latency.quantile_ms(0.99)
            }),
            line("intended p50", 2, &|s| s.intended.quantile_ms(0.5)),
            line("service p50", 3, &|s| {
                s.load.samples.latency.quantile_ms(0.5)
            }),
        ],
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn rates_are_ranges_or_lists() {
        assert_eq!(
            parse("10..110").unwrap(),
            [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110]
        );
        assert_eq!(parse("25,50, 99").unwrap(), [25, 50, 99]);
        for bad in ["", "0..10", "110..10", "10..300", "a", "10,,20"] {
            let e = parse(bad).unwrap_err().0;
            assert!(e.contains("percentages of the knee's rate"), "{bad}: {e}");
        }
    }

    #[test]
    fn the_knee_is_the_laws_or_the_best_point() {
        // A law with a knee at √(0.98/0.02) = 7 workers.
        let x = |n: f64| 1000.0 * n / (1.0 + 0.02 * (n - 1.0) + 0.02 * n * (n - 1.0));
        let points: Vec<(f64, f64)> = [1.0, 2.0, 4.0, 7.0, 8.0, 16.0, 32.0]
            .iter()
            .map(|n| (*n, x(*n)))
            .collect();
        let (n, rate) = knee(&points).unwrap();
        assert!(
            n == 7 && (rate - x(7.0)).abs() < x(7.0) * 0.01,
            "{n} {rate}"
        );
        // Without one.
        let linear: Vec<(f64, f64)> = (1..8).map(|n| (f64::from(n), f64::from(n))).collect();
        assert_eq!(knee(&linear), Some((7, 7.0)));
        assert_eq!(knee(&[]), None);
    }
}
