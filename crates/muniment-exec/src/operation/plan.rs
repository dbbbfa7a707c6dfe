//! The plan of an operation, as far as it is shown.

use super::figures::PlanFigures;

/// A plan that was chosen.
pub(crate) trait ChosenPlan: Send + Sync {
    /// The plan's summary, such as `IXSCAN { a: 1 }`.
    fn summary(&self) -> String;

    /// The other facts about the plan, without its figures.
    fn figures(&self) -> PlanFigures;
}

/// The way in which an operation finds its documents.
pub(super) enum Plan {
    /// A plan that the planner chose.
    Chosen(Box<dyn ChosenPlan>),
    /// A summary for a look-up without the planner: by `_id`, or a count that reads nothing.
    Point(&'static str),
}
