//! A workload at rising rates: where its knee is when every worker sends as fast as it is answered
//! (closed loop), then what the latencies are at shares of that rate when operations are due at
//! random moments whatever the server does (open loop).

use crate::custom::{self, Plan, Ready};
use crate::lab::{Lab, Target};
use crate::report::{Outcome, experiments};
use muniment_load::fail::{Failure, Result};
use muniment_load::hist::Latency;
use muniment_load::load::Load;
use muniment_load::stop;
use muniment_load::usl::Fit;
use std::time::Duration;

/// Worker counts of the closed loop.
const WORKERS: [u64; 7] = [1, 2, 4, 8, 16, 32, 48];
/// How long the server may take to finish the work that a load leaves to it.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// Parses `A..B` (in steps of ten) or a list of percentages.
///
/// # Errors
/// What is no percentage between 1 and 200.
pub(crate) fn parse(text: &str) -> Result<Vec<u64>> {
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
pub(crate) fn run(
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
        // This phase alone, after the loads.
        let mut one = plan.clone();
        one.phases = plan.loads().to_vec();
        one.phases.push(phase.clone());
        if stop::asked() {
            break;
        }
        let mut found = Found::of(&phase.name);
        let result = sweep(lab, target, &one, percents, &mut ready, &mut found);
        // Of what was interrupted or failed there is what there is.
        experiments::rates::tell(&found, out);
        result?;
    }
    out.warnings.append(&mut ready.warnings);
    Ok(())
}

/// What was measured of a phase.
pub(crate) struct Found {
    /// The phase.
    pub phase: String,
    /// The closed loop: workers, and what they did.
    pub closed: Vec<(u64, Load)>,
    /// The same of one worker in a placement that is not the curve's.
    pub beside: Vec<(u64, Load)>,
    /// Workers and rate of the knee, where one was found.
    pub knee: Option<(u64, f64)>,
    /// Workers of the open loop.
    pub open: u64,
    /// The open loop, in the order of its rates.
    pub steps: Vec<Step>,
}

impl Found {
    fn of(phase: &str) -> Found {
        Found {
            phase: phase.to_string(),
            closed: Vec::new(),
            beside: Vec::new(),
            knee: None,
            open: 0,
            steps: Vec::new(),
        }
    }

    /// The closed loop's workers and operations a second.
    pub(crate) fn curve(&self) -> Vec<(f64, f64)> {
        let all = self.closed.iter();
        all.map(|(workers, load)| (*workers as f64, operations(load)))
            .collect()
    }
}

/// Operations a second.
pub(crate) fn operations(load: &Load) -> f64 {
    load.samples.operations as f64 / load.samples.seconds
}

/// What one rate showed.
pub(crate) struct Step {
    /// Its share of the knee's rate, percent.
    pub percent: u64,
    /// Operations a second that were due.
    pub offered: f64,
    /// What came of it.
    pub load: Load,
    /// Latencies from when operations were due.
    pub intended: Latency,
}

fn sweep(
    lab: &mut Lab,
    target: &Target,
    plan: &Plan,
    percents: &[u64],
    ready: &mut Ready,
    found: &mut Found,
) -> Result<()> {
    closed(lab, target, plan, ready, found)?;
    found.knee = knee(&found.curve()).filter(|_| !stop::asked());
    match found.knee {
        Some(knee) => open(lab, target, plan, percents, knee, ready, found),
        None => Ok(()),
    }
}

/// More and more workers that send as fast as they are answered.
fn closed(
    lab: &mut Lab,
    target: &Target,
    plan: &Plan,
    ready: &mut Ready,
    found: &mut Found,
) -> Result<()> {
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
        loads.retain(|(_, load)| !load.stopped);
        for (which, load) in loads {
            // In the curve one worker has one rate.
            match which == found.phase {
                true => found.closed.push((workers, load)),
                false => found.beside.push((workers, load)),
            }
        }
    }
    Ok(())
}

/// Operations at shares of the knee's rate, due at random moments.
fn open(
    lab: &mut Lab,
    target: &Target,
    plan: &Plan,
    percents: &[u64],
    (workers, capacity): (u64, f64),
    ready: &mut Ready,
    found: &mut Found,
) -> Result<()> {
    // Waiting operations must not wait for a worker: twice the knee's.
    found.open = (workers * 2).clamp(16, 128);
    for percent in percents {
        if stop::asked() {
            break;
        }
        let offered = capacity * *percent as f64 / 100.0;
        let mut p = plan.clone();
        p.set("threads", &found.open.to_string())?;
        p.set("rate", &format!("{offered:.3}"))?;
        p.set("pace", "poisson")?;
        lab.settle(target, LONGEST_PAUSE);
        let label = format!("{percent} %");
        let mut loads = Vec::new();
        custom::measure(lab, target, &p, &label, ready, &mut loads)?;
        loads.retain(|(_, load)| !load.stopped);
        for (_, load) in loads {
            let mut intended = Latency::new();
            load.kinds
                .values()
                .for_each(|m| intended.merge(&m.intended));
            found.steps.push(Step {
                percent: *percent,
                offered,
                load,
                intended,
            });
        }
    }
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
