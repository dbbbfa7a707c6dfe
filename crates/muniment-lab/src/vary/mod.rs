//! One workload in several variants, which differ in settings (`--vary`), targets (`--target`) or
//! both and are measured in turns; and one workload at rising rates (`--rates`).

pub(crate) mod found;
pub(crate) mod rates;
pub(crate) mod settings;

use crate::custom::{self, Plan, Ready};
use crate::lab::{Lab, Target};
use crate::report::{Outcome, experiments};
use crate::targets::Named;
use crate::versus::order;
use found::Found;
use muniment_load::fail::{Failure, Result};
use muniment_load::stop;
use settings::{Dimension, Setting};
use std::time::Duration;

/// The variants to measure.
pub(crate) struct Request {
    /// The workload before any setting is applied.
    pub plan: Plan,
    /// The settings to try.
    pub dimensions: Vec<Dimension>,
    /// The targets; empty for the embedded server.
    pub targets: Vec<Named>,
    /// The number of turns.
    pub turns: usize,
    /// The embedded servers' cache, GiB.
    pub cache_gb: Option<f64>,
}

/// A target whose variants are measured in turns.
struct Side {
    name: String,
    target: Target,
    ready: Ready,
}

/// Measures every variant in turns and reports the results.
///
/// # Errors
/// The workload does not have a setting, there is no server, or the workload fails on it.
pub(crate) fn run(lab: &mut Lab, r: &Request, out: &mut Outcome) -> Result<()> {
    out.about.clone_from(&r.plan.about);
    let mut found = Found::new(r)?;
    let plans: Vec<Plan> = found
        .variants
        .iter()
        .map(|v| plan(r, &v.setting))
        .collect::<Result<_>>()?;
    let mut sides = Vec::new();
    let result = begin(lab, r, &mut sides, out)
        .and_then(|()| turns(lab, r, &plans, &mut sides, &mut found, out));
    for side in sides {
        lab.done(side.target);
    }
    experiments::vary::tell(&found, out);
    result
}

/// Applies a setting to the workload.
fn plan(r: &Request, setting: &Setting) -> Result<Plan> {
    let mut plan = r.plan.clone();
    for (key, value) in setting {
        plan.set(key, value).map_err(|e| e.while_doing("--vary"))?;
    }
    Ok(plan)
}

/// Starts the targets and loads their data.
fn begin(lab: &mut Lab, r: &Request, sides: &mut Vec<Side>, out: &mut Outcome) -> Result<()> {
    let several = r.targets.len() > 1;
    let mut start = |lab: &mut Lab, name: &str| -> Result<()> {
        let mut target = lab.target(r.cache_gb)?;
        target.database.clone_from(&r.plan.database);
        let ready = custom::prepare(lab, &target, &r.plan);
        let mut ready = match ready {
            Ok(ready) => ready,
            Err(e) => {
                lab.done(target);
                return Err(e);
            }
        };
        out.warnings.append(&mut ready.warnings);
        sides.push(Side {
            name: name.to_string(),
            target,
            ready,
        });
        Ok(())
    };
    if r.targets.is_empty() {
        return start(lab, "embedded");
    }
    for t in &r.targets {
        lab.endpoint = t.endpoint.clone();
        lab.target_name = several.then(|| t.name.clone());
        start(lab, &t.name).map_err(|e| e.while_doing(&t.name))?;
    }
    Ok(())
}

fn turns(
    lab: &mut Lab,
    r: &Request,
    plans: &[Plan],
    sides: &mut [Side],
    found: &mut Found,
    out: &mut Outcome,
) -> Result<()> {
    // If there is no run phase, the load is what is measured; it then begins with empty collections
    // each time.
    let anew = r.plan.runs().is_empty() || r.dimensions.iter().any(|d| d.key == "records");
    for turn in 0..r.turns {
        for v in order(plans.len(), turn) {
            let (Some(plan), Some(variant)) = (plans.get(v), found.variants.get(v)) else {
                continue;
            };
            let Some(side) = sides.get_mut(variant.side).filter(|_| !stop::asked()) else {
                continue;
            };
            let name = variant.name.clone();
            let mut loads = Vec::new();
            if anew {
                side.ready = custom::prepare(lab, &side.target, plan)?;
                loads.append(&mut side.ready.loads);
            }
            lab.settle(&side.target, LONGEST_PAUSE);
            let label = format!("{name} (turn {})", turn + 1);
            let measured = custom::measure(
                lab,
                &side.target,
                plan,
                label.trim(),
                &mut side.ready,
                &mut loads,
            );
            if let Err(e) = measured {
                side.target.check_alive()?;
                return Err(e.while_doing(&format!("{}, {name}", side.name)));
            }
            out.warnings.append(&mut side.ready.warnings);
            for (phase, load) in found.add(v, loads) {
                let threads = plan.threads() as usize;
                lab.doubt(&format!("{name} {phase}"), &load, threads);
            }
        }
    }
    let mut seen = std::collections::HashSet::new();
    out.warnings.retain(|w| seen.insert(w.clone()));
    Ok(())
}

/// The longest time that a server may take to finish the work that a load leaves to it.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// Checks that the workload has the settings as asked, so that a mistake is refused before anything
/// is started.
///
/// # Errors
/// The first setting that is wrong, and why.
pub(crate) fn check(r: &Request) -> Result<()> {
    for setting in settings::combinations(&r.dimensions)? {
        plan(r, &setting)?;
    }
    if r.turns == 0 {
        return Err(Failure::new("--turns 0: at least one is needed"));
    }
    Ok(())
}
