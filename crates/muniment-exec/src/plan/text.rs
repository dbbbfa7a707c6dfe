//! Plans for `$text`, which can only use the collection's text index.

use super::access::{Access, Candidate};
use super::index_plan::IndexInfo;
use super::leaf::Leaves;
use super::min_max::min_max_error;
use super::or_plan::text_candidate as or_candidate;
use super::query::Query;
use super::text_access::text_access;
use muniment_query::Filter;
use muniment_storage::Collection;
use muniment_value::{Code, Error, Result};
use std::sync::Arc;

/// Binds a filter's `$text`, if it has one, to the collection's text index.
///
/// # Errors
/// 27 IndexNotFound if there is no such index.
pub(crate) fn bind_text(collection: &Collection, filter: &Filter) -> Result<Filter> {
    if !filter.has_text() {
        return Ok(filter.clone());
    }
    let indexes = collection.indexes();
    let spec = indexes
        .iter()
        .find_map(|i| Some(i.kind()?.text()?.spec().clone()))
        .ok_or_else(|| Error::new(Code::IndexNotFound, "text index required for $text query"))?;
    Ok(filter.bind_text(&spec))
}

/// Refuses a filter with a `$text` if there is no collection.
///
/// # Errors
/// 27 IndexNotFound.
pub(crate) fn refuse_text(namespace: &str, filter: &Filter) -> Result<()> {
    if !filter.has_text() {
        return Ok(());
    }
    Err(Error::new(
        Code::IndexNotFound,
        format!("text index required for $text query (no such collection '{namespace}')"),
    ))
}

/// The plan for a query with a `$text`, over one of `infos`.
///
/// # Errors
/// 2 BadValue for a hint; 291 NoQueryExecutionPlans if the index cannot be used.
pub(crate) fn text_candidate(
    namespace: &str,
    query: &Query<'_>,
    infos: &[Arc<IndexInfo>],
) -> Result<Candidate> {
    if query.hint.is_some() {
        return Err(Error::bad_value("text and hint not allowed in same query"));
    }
    if !query.min.is_empty() || !query.max.is_empty() {
        return Err(min_max_error());
    }
    let root = query.filter.root();
    let plan = match text_access(infos, root, query.filter.collation()) {
        Some(access) => Some(Candidate {
            signature: format!("TEXT {}", access.info.name()),
            access: Access::Text(Arc::new(access)),
            filter: None,
            needs_sort: query.sort.is_some(),
            covered: None,
            needed_exactly: false,
            rank: 0,
            express: None,
        }),
        None => or_candidate(query, &Leaves::of(query.filter), infos),
    };
    plan.ok_or_else(|| {
        let reason = "failed to use text index to satisfy $text query (if text index is compound, \
                      are equality predicates given for all prefix fields?)";
        query.refused(namespace, Code::NoQueryExecutionPlans, reason)
    })
}
