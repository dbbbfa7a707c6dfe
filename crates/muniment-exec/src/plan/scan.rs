//! Makes the plan that scans one index within its bounds.

use super::access::{Access, Candidate, IndexAccess};
use super::index_plan::BoundIndex;
use super::key_filter::{cover, residual};
use super::leaf::Leaves;
use super::order::{explode, gives_sort};
use super::query::Query;
use muniment_storage::KeyRange;
use std::sync::Arc;

pub(super) fn finish(
    query: &Query<'_>,
    leaves: &Leaves<'_>,
    bound: BoundIndex,
    range: Option<KeyRange>,
) -> Candidate {
    let given = query.sort.map(|s| gives_sort(&bound, s));
    let backward = given.flatten().unwrap_or(false);
    let needs_sort = matches!(given, Some(None));
    let (key_filter, filter) = residual(leaves, &bound);
    let signature = format!(
        "IXSCAN {}{}",
        bound.info.name(),
        if backward { " backward" } else { "" }
    );
    let rank = bound.rank();
    if needs_sort
        && range.is_none()
        && let Some(sort) = query.sort
        && let Some(scans) = explode(&bound, sort, key_filter.as_ref())
    {
        let (covered, needed_exactly) = match &filter {
            None => cover(&bound, query, false),
            Some(_) => (None, false),
        };
        return Candidate {
            access: Access::SortMerge(scans),
            filter,
            needs_sort: false,
            covered,
            needed_exactly,
            signature: format!("SORT_MERGE {}", bound.info.name()),
            rank,
            express: None,
        };
    }
    let (covered, needed_exactly) = match &filter {
        None => cover(&bound, query, needs_sort),
        Some(_) => (None, false),
    };
    Candidate {
        access: Access::Index(Arc::new(IndexAccess {
            bound,
            backward,
            range,
            key_filter,
        })),
        filter,
        needs_sort,
        covered,
        needed_exactly,
        signature,
        rank,
        express: None,
    }
}
