//! Turns a query on a stored collection into the plan that runs.

use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::candidate::candidates;
use crate::plan::query::{Query, Told};
use crate::run::choose::{Asked, Choice, choose};
use crate::run::recipe::Recipe;
use muniment_query::{Filter, Meta, MetaSet, SortSpec};
use muniment_storage::Collection;
use muniment_value::{Doc, Result};
use std::sync::Arc;

/// A query on a stored collection, without a sort or a hint. It may use only the indexes that
/// planCacheSetFilter left for its shape.
pub(crate) fn query<'q>(
    engine: &Database,
    collection: &Collection,
    filter: &'q Filter,
    told: Told<'q>,
) -> Query<'q> {
    let sort = told.sort.unwrap_or(Doc::EMPTY);
    let projection = told.projection.unwrap_or(Doc::EMPTY);
    Query {
        allowed: engine
            .index_filters
            .of(collection, filter, sort, projection),
        told,
        ..Query::of(filter)
    }
}

/// Whether a document with nothing but these paths has what the query asks for: fields at these paths, and
/// these metadata. A key for merging may come from the sort's fields; other metadata may be computed from
/// fields that nothing names.
pub(crate) fn suffice(paths: &[String], sort: Option<&SortSpec>, metadata: MetaSet) -> bool {
    let merged = MetaSet::NONE.with(Meta::MergeKey);
    metadata.is_empty() || (metadata == merged && sort.is_some_and(|s| s.reads_only(paths)))
}

/// True if planCacheSetFilter restricts the indexes of this shape.
pub(crate) fn is_filtered(
    engine: &Database,
    collection: &Collection,
    filter: &Filter,
    sort: Doc<'_>,
    projection: Doc<'_>,
) -> bool {
    let filters = &engine.index_filters;
    filters.of(collection, filter, sort, projection).is_some()
}

/// Chooses among all plans that could answer a query on the recipe's collection. `asked` describes
/// the query for the plan cache. With `explain`, all plans are compared even if the cache has one.
///
/// # Errors
/// 2 BadValue for a hint that fits no index; 51173 and similar codes for min and max; the errors
/// that plans raise in their trial.
pub(crate) fn plan<'q>(
    engine: &Database,
    op: &Arc<OpContext>,
    query: &Query<'_>,
    recipe: &Recipe,
    asked: impl FnOnce() -> Asked<'q>,
    explain: bool,
) -> Result<Choice> {
    let candidates = candidates(&recipe.collection, query, op.work())?;
    choose(&engine.plans, op, recipe, candidates, asked, explain)
}
