//! Runs a workload on one target.

use super::plan::Plan;
use super::run::{measure, prepare};
use crate::lab::{Lab, Target};
use crate::report::{Outcome, experiments};
use muniment_load::fail::Result;

/// Runs the whole workload on the lab's target.
///
/// # Errors
/// There is no server, or the workload fails on it.
pub(crate) fn experiment(
    lab: &mut Lab,
    plan: &Plan,
    cache_gb: Option<f64>,
    out: &mut Outcome,
) -> Result<()> {
    out.about.clone_from(&plan.about);
    let mut target = lab.target(cache_gb)?;
    target.database.clone_from(&plan.database);
    let done = all(lab, &target, plan, out);
    if done.is_err() {
        target.check_alive()?;
    }
    lab.done(target);
    done
}

fn all(lab: &mut Lab, target: &Target, plan: &Plan, out: &mut Outcome) -> Result<()> {
    let mut ready = prepare(lab, target, plan)?;
    let mut loads = std::mem::take(&mut ready.loads);
    let measured = measure(lab, target, plan, "", &mut ready, &mut loads);
    experiments::workload::tell(plan, &loads, out);
    out.warnings.append(&mut ready.warnings);
    for (name, load) in &loads {
        let threads = plan.phase_of(name).map_or(1, |p| p.threads);
        lab.doubt(name, load, threads as usize);
    }
    measured
}
