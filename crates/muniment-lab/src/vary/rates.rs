//! A workload at rising rates. First every worker sends as soon as it is answered (closed loop),
//! which shows the knee of the throughput. Then operations are due at random moments whatever the
//! server does (open loop), which shows the latencies at shares of the knee's rate.

use crate::custom::{self, Plan, Ready};
use crate::lab::{Lab, Target};
use crate::report::{Outcome, experiments};
use muniment_load::fail::{Failure, Result};
use muniment_load::hist::Latency;
use muniment_load::load::Load;
use muniment_load::stop;
use muniment_load::usl::Fit;
use std::time::Duration;

/// The numbers of workers in the closed loop.
const WORKERS: [u64; 7] = [1, 2, 4, 8, 16, 32, 48];
/// The longest time that the server may take to finish the work that a load leaves to it.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// Parses `A..B` (in steps of ten) or a list of percentages.
///
/// # Errors
/// A value is no percentage between 1 and 200.
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

/// Measures every run phase of `plan` at rising rates.
///
/// # Errors
/// The workload has no run phase, there is no server, or an operation failed.
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
        // The plan has the loads and this phase alone.
        let mut one = plan.clone();
        one.phases = plan.loads().to_vec();
        one.phases.push(phase.clone());
        if stop::asked() {
            break;
        }
        let mut found = Found::of(&phase.name);
        let result = sweep(lab, target, &one, percents, &mut ready, &mut found);
        // Results from before an interruption or a failure are reported too.
        experiments::rates::tell(&found, out);
        result?;
    }
    out.warnings.append(&mut ready.warnings);
    Ok(())
}

/// The results of one phase.
pub(crate) struct Found {
    /// The phase's name.
    pub phase: String,
    /// The closed loop: the numbers of workers and their loads.
    pub closed: Vec<(u64, Load)>,
    /// Loads of one worker in the placement that is not part of the curve.
    pub beside: Vec<(u64, Load)>,
    /// The workers and the rate of the knee, if one was found.
    pub knee: Option<(u64, f64)>,
    /// The number of workers of the open loop.
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

    /// The curve of the closed loop: workers and operations a second.
    pub(crate) fn curve(&self) -> Vec<(f64, f64)> {
        let all = self.closed.iter();
        all.map(|(workers, load)| (*workers as f64, operations(load)))
            .collect()
    }
}

/// The operations a second of a load.
pub(crate) fn operations(load: &Load) -> f64 {
    load.samples.operations as f64 / load.samples.seconds
}

/// The results at one rate.
pub(crate) struct Step {
    /// The rate as a percentage of the knee's rate.
    pub percent: u64,
    /// The operations a second that were due.
    pub offered: f64,
    /// The load that was measured.
    pub load: Load,
    /// Latencies counted from the times at which operations were due.
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

/// Measures more and more workers, each of which sends as soon as it is answered.
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
            // The curve has one point for one worker, so a second placement is kept outside it.
            match which == found.phase {
                true => found.closed.push((workers, load)),
                false => found.beside.push((workers, load)),
            }
        }
    }
    Ok(())
}

/// Measures operations that are due at random moments, at shares of the knee's rate.
fn open(
    lab: &mut Lab,
    target: &Target,
    plan: &Plan,
    percents: &[u64],
    (workers, capacity): (u64, f64),
    ready: &mut Ready,
    found: &mut Found,
) -> Result<()> {
    // There are twice as many workers as at the knee, so that operations that are due do not have
    // to wait for a free worker.
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

/// The workers and the rate of the knee: those of the fitted law if its knee is within the measured
/// range, and those of the best point otherwise.
fn knee(points: &[(f64, f64)]) -> Option<(u64, f64)> {
    let best = points.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let fitted = Fit::new(points).and_then(|f| {
        let n = f.knee.filter(|_| !f.extrapolated)?.max(1.0);
        Some((n, f.at(n)))
    });
    // If the law promised more than was ever reached, every share of its rate would be too large,
    // so the best point is used.
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
        // This law has its knee at √(0.98/0.02) = 7 workers.
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
        // A linear law has no knee.
        let linear: Vec<(f64, f64)> = (1..8).map(|n| (f64::from(n), f64::from(n))).collect();
        assert_eq!(knee(&linear), Some((7, 7.0)));
        assert_eq!(knee(&[]), None);
    }
}
