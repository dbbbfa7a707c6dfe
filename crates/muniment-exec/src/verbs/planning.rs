//! From a query on a stored collection to the plan that runs.

use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::candidate::candidates;
use crate::plan::query::Query;
use crate::run::choose::{Asked, Choice, choose};
use crate::run::recipe::Recipe;
use muniment_value::Result;
use std::sync::Arc;

/// Chooses among all plans that could answer a query on the recipe's collection. `asked` tells the
/// query for the plan cache; `explain` looks at all plans even when the cache knows better.
///
/// # Errors
/// 2 BadValue for a hint that fits nothing; 51173 and its like for min/max; what running the plans in
/// a trial raises.
pub(crate) fn plan<'q>(
    engine: &Database,
    op: &Arc<OpContext>,
    query: &Query<'_>,
    recipe: &Recipe,
    asked: impl FnOnce() -> Asked<'q>,
    explain: bool,
) -> Result<Choice> {
    let candidates = candidates(&recipe.collection, query)?;
    choose(&engine.plans, op, recipe, candidates, asked, explain)
}
