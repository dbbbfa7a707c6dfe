//! The commands by which clients see and change cached plans and index filters: the planCache
//! commands and `$planCacheStats`.

use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::filters::IndexFilter;
use crate::plan::shape::shape;
use crate::source::Source;
use muniment_query::{Filter, QueryContext};
use muniment_storage::Collection;
use muniment_value::{Collation, Doc, DocBuf, Error, Result, ValueBuf};
use std::sync::Arc;

/// A query shape as the planCache commands describe it; what the client left out is an empty
/// document.
#[derive(Clone)]
pub struct ShapeSpec<'a> {
    /// The query's filter.
    pub query: Doc<'a>,
    /// Its sort.
    pub sort: Doc<'a>,
    /// Its projection.
    pub projection: Doc<'a>,
    /// Its collation.
    pub collation: Doc<'a>,
    /// The operation that runs the planCache command.
    pub op: Arc<OpContext>,
}

/// Implements [`Database::plan_cache_stats`].
pub(crate) fn plan_cache_stats(
    engine: &Database,
    namespace: &str,
    host: Option<&str>,
) -> Result<Vec<DocBuf>> {
    let source = Source::now(&engine.store, namespace)?;
    if matches!(source, Source::Absent) {
        return Err(Error::location(
            50933,
            format!("collection '{namespace}' does not exist"),
        ));
    }
    let Source::Collection(collection) = source.below_views(&engine.store, namespace)? else {
        return Ok(Vec::new());
    };
    if collection.is_time_series() {
        return Err(Error::location(
            40602,
            "$planCacheStats is only valid as the first stage in a pipeline",
        ));
    }
    let filtered = |shape: &str| engine.index_filters.stands(&collection, shape);
    Ok(engine.plans.stats(&collection, filtered, host))
}

fn shape_key(collection: &Collection, spec: &ShapeSpec<'_>) -> Result<String> {
    let collation = match spec.collation.is_empty() {
        true => collection.collation().clone(),
        false => Collation::parse(spec.collation)?,
    };
    let ctx = QueryContext::new()
        .with_collation(collation)
        .with_operation(spec.op.clone());
    let filter = Filter::parse(spec.query, &ctx)?;
    Ok(shape(&filter, spec.sort, spec.projection))
}

/// Implements [`Database::set_index_filter`].
pub(crate) fn set_index_filter(
    engine: &Database,
    namespace: &str,
    spec: &ShapeSpec<'_>,
    indexes: Vec<ValueBuf>,
) -> Result<()> {
    let Some(collection) = engine.store.collection(namespace) else {
        return Err(Error::bad_value("no such collection"));
    };
    let key = shape_key(&collection, spec)?;
    let filter = IndexFilter {
        query: spec.query.to_buf(),
        sort: spec.sort.to_buf(),
        projection: spec.projection.to_buf(),
        collation: spec.collation.to_buf(),
        indexes,
    };
    engine.index_filters.put(&collection, key, filter);
    engine.plans.clear(Some(&collection));
    Ok(())
}

/// Implements [`Database::clear_index_filters`].
pub(crate) fn clear_index_filters(
    engine: &Database,
    namespace: &str,
    spec: Option<&ShapeSpec<'_>>,
) -> Result<()> {
    let Some(collection) = engine.store.collection(namespace) else {
        return Ok(());
    };
    let key = spec.map(|spec| shape_key(&collection, spec)).transpose()?;
    engine.index_filters.remove(&collection, key);
    engine.plans.clear(Some(&collection));
    Ok(())
}

/// Implements [`Database::list_index_filters`].
pub(crate) fn list_index_filters(engine: &Database, namespace: &str) -> Vec<DocBuf> {
    let Some(collection) = engine.store.collection(namespace) else {
        return Vec::new();
    };
    engine.index_filters.list(&collection)
}

/// Implements [`Database::clear_cached_plan`].
pub(crate) fn clear_cached_plan(
    engine: &Database,
    namespace: &str,
    spec: &ShapeSpec<'_>,
) -> Result<()> {
    if let Some(collection) = engine.store.collection(namespace) {
        engine
            .plans
            .evict_shape(&collection, &shape_key(&collection, spec)?);
    }
    Ok(())
}

/// MongoDB's error for a sort, projection or collation without a query.
pub fn shape_without_query() -> Error {
    Error::bad_value("sort, projection, or collation provided without query")
}
