//! How an operation finds its documents, as it is told of.

use super::figures::PlanFigures;

/// A plan that was chosen.
pub(crate) trait ChosenPlan: Send + Sync {
    /// As `planSummary` has it, e.g. `IXSCAN { a: 1 }`.
    fn summary(&self) -> String;

    /// What is told of it beside that and beside what it did.
    fn figures(&self) -> PlanFigures;
}

/// How an operation finds its documents.
pub(super) enum Plan {
    /// By a plan.
    Chosen(Box<dyn ChosenPlan>),
    /// Without a planner: by `_id`, or not at all.
    Point(&'static str),
}
