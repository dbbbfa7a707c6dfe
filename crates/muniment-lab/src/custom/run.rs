//! Runs a workload: makes collections and indexes, then runs the load phases and the run phases.

use super::draw::Shared;
use super::operation::Kind;
use super::plan::{Collection, Existing, Phase, Plan};
use super::worker::Worker;
use crate::distributions::counter::Counter;
use crate::lab::{Lab, Target};
use muniment_load::conn::{Conn, number_at};
use muniment_load::fail::{Failure, Result};
use muniment_load::load::{self, Limit, Load, Pace};
use muniment_load::placement::{Placement, representative};
use muniment_value::{ArrayBuf, doc};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The longest time that a server may take to finish the work of the loads before it is measured.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The state of a workload's data on one target.
pub(crate) struct Ready {
    /// The loads of the load phases, with the phases' names.
    pub loads: Vec<(String, Load)>,
    /// Warnings so far: counts that do not match, and errors that were counted.
    pub warnings: Vec<String>,
    /// The sequences, with their names.
    pub(super) sequences: Vec<(String, Arc<Counter>)>,
    pub(super) shared: Shared,
    /// The number of phases so far, so that each one gets random numbers of its own.
    rounds: u64,
}

/// Makes the collections and indexes and runs the load phases that stand before the first run
/// phase. The returned state belongs to this target's data; plans that differ only in settings of
/// the run phases may be measured on it too.
///
/// # Errors
/// A collection has documents and may not be dropped, or an insert failed.
pub(crate) fn prepare(lab: &mut Lab, target: &Target, plan: &Plan) -> Result<Ready> {
    let mut ready = Ready {
        loads: Vec::new(),
        warnings: Vec::new(),
        sequences: Vec::new(),
        shared: Shared::default(),
        rounds: 0,
    };
    let mut conn = target.connect()?;
    ready.begin(plan);
    for c in &plan.collections {
        create(&mut conn, plan, c, c.existing)?;
    }
    for phase in plan.loads() {
        if muniment_load::stop::asked() {
            break;
        }
        let placement = representative(&placements(lab, target, phase)?);
        let load = one(
            lab,
            target,
            plan,
            phase,
            (&phase.name, placement),
            &mut ready,
        )?;
        ready.loads.push((phase.name.clone(), load));
    }
    if !ready.loads.is_empty() {
        // Waits, since the run phases should not pay for background work that the loads left.
        lab.settle(target, LONGEST_PAUSE);
    }
    Ok(ready)
}

/// Runs the other phases once. `into` gets each phase's name and its load, and keeps those of the
/// phases that were complete before an error. In the load itself the phase is called `LABEL PHASE`
/// (without a label, `PHASE`).
///
/// A phase of one thread that lasts for a time runs in both placements, on one core and on two. The
/// second keeps the phase's name, and the name of the first tells its placement. A phase with a
/// number of operations or documents runs once, on two cores: running it twice would do twice the
/// number that the file says.
///
/// # Errors
/// An operation failed whose errors are not counted.
pub(crate) fn measure(
    lab: &mut Lab,
    target: &Target,
    plan: &Plan,
    label: &str,
    ready: &mut Ready,
    into: &mut Vec<(String, Load)>,
) -> Result<()> {
    for phase in plan.runs() {
        if muniment_load::stop::asked() {
            break;
        }
        let name = match label {
            "" => phase.name.clone(),
            _ => format!("{label} {}", phase.name),
        };
        let all = placements(lab, target, phase)?;
        let stands = representative(&all);
        let counted = phase.operations.is_some() || phase.records.is_some();
        for placement in all {
            if muniment_load::stop::asked() || (counted && placement != stands) {
                continue;
            }
            let load = one(lab, target, plan, phase, (&name, placement), ready)?;
            into.push((
                match placement == stands {
                    true => phase.name.clone(),
                    false => placement.called(&phase.name),
                },
                load,
            ));
        }
    }
    Ok(())
}

/// The placements in which a phase can run.
fn placements(lab: &mut Lab, target: &Target, phase: &Phase) -> Result<Vec<Placement>> {
    match phase.threads {
        1 => lab.placements(&target.server()),
        _ => Ok(vec![Placement::Anywhere]),
    }
}

impl Ready {
    /// Sets all sequences to their starts.
    fn begin(&mut self, plan: &Plan) {
        self.sequences = plan
            .sequences
            .iter()
            .map(|(name, start)| (name.clone(), Arc::new(Counter::new(*start))))
            .collect();
        self.shared = Shared::default();
    }
}

/// Makes a collection and its indexes.
fn create(conn: &mut Conn, plan: &Plan, c: &Collection, existing: Existing) -> Result<()> {
    let db = plan.database.as_str();
    let what = format!("collection {db}.{}", c.name);
    let run = |conn: &mut Conn, body| conn.command(db, &body).map_err(|e| e.while_doing(&what));
    if existing == Existing::Fail {
        let n = count(conn, db, &c.name)?;
        if n > 0 {
            return Err(Failure(format!(
                "{what} has {n} documents: drop it, or say existing = \"drop\" or \"keep\" in its [[collection]]"
            )));
        }
    }
    let listed = run(
        conn,
        doc! { "listCollections": 1, "filter": doc! { "name": c.name.as_str() }, "nameOnly": true },
    )?;
    let first = listed
        .as_doc()
        .get_doc("cursor")
        .and_then(|c| c.get_array("firstBatch"));
    let mut there = first.is_some_and(|b| !b.is_empty());
    if there && existing != Existing::Keep {
        run(conn, doc! { "drop": c.name.as_str() })?;
        there = false;
    }
    if !there {
        let mut body = doc! { "create": c.name.as_str() };
        body.append_all(c.options.as_doc());
        run(conn, body)?;
    }
    if !c.indexes.is_empty() {
        let mut indexes = ArrayBuf::new();
        for i in &c.indexes {
            indexes.push(i);
        }
        run(
            conn,
            doc! { "createIndexes": c.name.as_str(), "indexes": indexes },
        )?;
    }
    Ok(())
}

fn count(conn: &mut Conn, db: &str, coll: &str) -> Result<u64> {
    let r = conn.command(db, &doc! { "count": coll })?;
    Ok(number_at(r.as_doc(), "n").unwrap_or(0.0) as u64)
}

/// Runs one phase: its warm-up, then the measured part.
fn one(
    lab: &mut Lab,
    target: &Target,
    plan: &Plan,
    phase: &Phase,
    (name, placement): (&str, Placement),
    ready: &mut Ready,
) -> Result<Load> {
    let name = &placement.called(name);
    let mut conn = target.connect()?;
    if phase.fresh {
        ready.begin(plan);
        for c in &plan.collections {
            create(&mut conn, plan, c, Existing::Drop)?;
        }
    }
    batches_fit(name, phase, target)?;
    let first_error = Arc::new(OnceLock::new());
    if phase.warmup > 0.0 {
        lab.progress.step(format!("{} {name}: warm-up", plan.name));
        let workers = workers(target, plan, phase, ready, None, &first_error)?;
        let limit = Limit {
            pace: pace(phase),
            ..Limit::time(seconds(phase.warmup))
        };
        lab.placed(&target.server(), placement, name, |lab| {
            load::run(name, workers, limit, target.pid, &mut lab.progress)
        })?;
    }
    lab.progress.step(format!("{} {name}", plan.name));
    let only = only_inserts(phase).and_then(|c| plan.collection(c));
    let only = only.filter(|c| c.keeps_documents());
    let before = only
        .map(|c| count(&mut conn, &plan.database, &c.name))
        .transpose()?;
    let left = phase.records.map(|n| Arc::new(AtomicU64::new(n)));
    let workers = workers(target, plan, phase, ready, left, &first_error)?;
    let load = lab.placed(&target.server(), placement, name, |lab| {
        load::run(name, workers, limit(phase), target.pid, &mut lab.progress)
    })?;
    if let (Some(c), Some(before)) = (only, before) {
        let now = count(&mut conn, &plan.database, &c.name)?;
        if now != before + load.documents {
            ready.warnings.push(format!(
                "{name}: {} documents were sent to {}, which has {} more than before",
                load.documents,
                c.name,
                now.saturating_sub(before)
            ));
        }
    }
    if let Some(e) = first_error.get() {
        ready
            .warnings
            .push(format!("{name}: the server's first error: {e}"));
    }
    Ok(load)
}

/// Refuses batches that are larger than the server accepts.
fn batches_fit(name: &str, phase: &Phase, target: &Target) -> Result<()> {
    let most = target.max_batch as u64;
    match phase.work.iter().find(|o| o.batch > most) {
        None => Ok(()),
        Some(o) => Err(Failure(format!(
            "{name}: batch = {} is more than the server takes ({most})",
            o.batch
        ))),
    }
}

/// The times at which a worker of a phase sends.
fn pace(phase: &Phase) -> Pace {
    match phase.rate {
        None => Pace::Closed,
        Some(r) if phase.poisson => Pace::Poisson(r / phase.threads as f64),
        Some(r) => Pace::Steady(r / phase.threads as f64),
    }
}

/// The end of a phase, and its pace.
fn limit(phase: &Phase) -> Limit {
    let time = phase.seconds.map_or(Duration::MAX, seconds);
    let limit = match phase.operations {
        None => Limit::time(time),
        Some(n) => Limit {
            extra: n % phase.threads,
            ..Limit::operations(n / phase.threads, time)
        },
    };
    let pace = pace(phase);
    Limit { pace, ..limit }
}

/// The collection whose document count can be predicted after the phase: the phase only inserts
/// there, and no insert fails silently.
fn only_inserts(phase: &Phase) -> Option<&str> {
    let first = phase.work.first()?;
    let all = phase.work.iter().all(|o| {
        matches!(o.kind, Kind::Insert | Kind::InsertMany)
            && o.collection == first.collection
            && !o.errors_count
    });
    all.then_some(first.collection.as_str())
}

fn workers(
    target: &Target,
    plan: &Plan,
    phase: &Phase,
    ready: &mut Ready,
    left: Option<Arc<AtomicU64>>,
    first_error: &Arc<OnceLock<String>>,
) -> Result<Vec<Worker>> {
    ready.rounds += 1;
    let seed = 0x6375_0000_0000 + (ready.rounds << 16);
    target
        .connections(phase.threads as usize)?
        .into_iter()
        .enumerate()
        .map(|(i, conn)| {
            let seed = seed + i as u64;
            Worker::new(conn, plan, phase, ready, seed, left.clone(), first_error)
        })
        .collect()
}

/// Converts seconds to a duration; a number that is not a duration gives one that is longer than
/// any run.
fn seconds(s: f64) -> Duration {
    Duration::try_from_secs_f64(s).unwrap_or(Duration::MAX)
}
