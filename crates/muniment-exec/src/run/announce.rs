//! Tells an operation which plan finds its documents, for currentOp, the profiler and the slow log.

use crate::operation::{ChosenPlan, OpContext, PlanFigures};
use crate::plan::access::{Access, Candidate};
use crate::plan::cache::shape_hash;
use std::sync::Arc;

/// The way in which a plan was chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct How {
    /// True if the plan won a trial against others.
    pub tried: bool,
    /// True if the plan came from the plan cache.
    pub cached: bool,
    /// The reason why the plan from the cache was given up, if it was.
    pub replanned: Option<String>,
    /// The query's shape as the plan cache names it, if it was computed.
    pub shape: Option<String>,
}

struct Announced {
    plan: Arc<Candidate>,
    /// The name of the plan's index scan, if it is not IXSCAN.
    named: Option<&'static str>,
    how: How,
}

impl ChosenPlan for Announced {
    fn summary(&self) -> String {
        match self.named {
            Some(name) => self.plan.summary().replacen("IXSCAN", name, 1),
            None => self.plan.summary(),
        }
    }

    fn figures(&self) -> PlanFigures {
        PlanFigures {
            sorts: self.plan.needs_sort,
            from_multi_planner: self.how.tried,
            from_plan_cache: self.how.cached,
            replan_reason: self.how.replanned.clone(),
            shape_hash: self.how.shape.as_deref().map(shape_hash),
            ..PlanFigures::default()
        }
    }
}

/// Tells the operation that this plan finds its documents.
pub(crate) fn announce(
    op: &OpContext,
    plan: &Arc<Candidate>,
    named: Option<&'static str>,
    how: &How,
) {
    // A look-up of one key is over before currentOp could show its plan, so it is noted only if the
    // operation is observed.
    if op.observed() || !matches!(plan.access, Access::IdHack(_) | Access::Eof) {
        op.set_plan(Box::new(Announced {
            plan: plan.clone(),
            named,
            how: how.clone(),
        }));
    }
}

/// Notes which indexes or collection a plan reads, if the operation has to report its reads.
pub(super) fn note_reads(op: &OpContext, access: &Access) {
    if !op.tells_reads() {
        return;
    }
    match access {
        Access::CollScan { .. } => op.note_scan(),
        Access::IdHack(_) => op.note_index(|| "_id_".into()),
        _ => {}
    }
    for (index, _) in access.indexes() {
        op.note_index(|| index.spec().name.clone());
    }
}
