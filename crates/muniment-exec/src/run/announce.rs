//! What an operation tells of the plan that finds its documents.

use crate::operation::{ChosenPlan, OpContext, PlanFigures};
use crate::plan::access::{Access, Candidate};
use crate::plan::cache::shape_hash;
use std::sync::Arc;

/// How a plan was chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct How {
    /// A trial of several was won.
    pub tried: bool,
    /// The plan cache knew it.
    pub cached: bool,
    /// Why the one that the plan cache knew was given up.
    pub replanned: Option<String>,
    /// The query's shape as the plan cache names it, where it was needed.
    pub shape: Option<String>,
}

struct Announced {
    plan: Arc<Candidate>,
    /// What its index scan is called instead.
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

/// Says that this is how the operation finds its documents.
pub(crate) fn announce(
    op: &OpContext,
    plan: &Arc<Candidate>,
    named: Option<&'static str>,
    how: &How,
) {
    // A point look-up is over before currentOp could show its plan, so only an observed operation
    // notes it.
    if op.observed() || !matches!(plan.access, Access::IdHack(_) | Access::Eof) {
        op.set_plan(Box::new(Announced {
            plan: plan.clone(),
            named,
            how: how.clone(),
        }));
    }
}

/// Notes what a plan reads, if the operation is to tell its reads.
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
