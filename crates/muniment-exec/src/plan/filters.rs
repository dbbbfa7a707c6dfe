//! Index filters: which indexes the planner may use for a query shape (`planCacheSetFilter`).
//!
//! They live as long as the process, as MongoDB's do. Invariant: while a filter stands for a shape,
//! hints of that shape are ignored, and a collection scan is the plan when no allowed index fits.

use super::shape::shape;
use crate::database::Database;
use muniment_query::Filter;
use muniment_storage::{Collection, IndexSpec};
use muniment_value::{Collation, Doc, DocBuf, Error, Result, Value, ValueBuf, cmp_values};
use parking_lot::Mutex;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A query shape as the planCache commands name it; empty documents for what was not given.
#[derive(Clone, Debug)]
pub struct ShapeSpec<'a> {
    /// The query's filter.
    pub query: Doc<'a>,
    /// Its sort.
    pub sort: Doc<'a>,
    /// Its projection.
    pub projection: Doc<'a>,
    /// Its collation.
    pub collation: Doc<'a>,
}

/// One filter.
#[derive(Debug)]
pub(crate) struct IndexFilter {
    query: DocBuf,
    sort: DocBuf,
    projection: DocBuf,
    collation: DocBuf,
    /// Index names and key patterns.
    indexes: Vec<ValueBuf>,
}

impl IndexFilter {
    /// Whether an index may be used.
    pub(crate) fn allows(&self, spec: &IndexSpec) -> bool {
        self.indexes.iter().any(|i| match i.as_value() {
            Value::String(name) => name == spec.name,
            v => cmp_values(v, Value::Document(spec.key.as_doc())) == Ordering::Equal,
        })
    }

    fn to_doc(&self) -> DocBuf {
        let mut d = muniment_value::doc! {
            "query": &self.query,
            "sort": &self.sort,
            "projection": &self.projection,
        };
        if !self.collation.as_doc().is_empty() {
            d.append("collation", &self.collation);
        }
        let indexes: muniment_value::ArrayBuf = self.indexes.iter().map(|i| i.as_value()).collect();
        d.append("indexes", indexes);
        d
    }
}

/// A collection's UUID and a shape.
type Key = ([u8; 16], String);

/// The filters of all collections, by the collection's UUID and the shape.
#[derive(Default)]
pub(crate) struct IndexFilters {
    /// False as long as there was never one: queries then look no further.
    any: AtomicBool,
    filters: Mutex<BTreeMap<Key, Arc<IndexFilter>>>,
}

impl IndexFilters {
    /// The filter of a query, if there is one.
    pub(crate) fn of(
        &self,
        collection: &Collection,
        filter: &Filter,
        sort: Doc<'_>,
        projection: Doc<'_>,
    ) -> Option<Arc<IndexFilter>> {
        if !self.any.load(Relaxed) {
            return None;
        }
        let key = shape(filter, sort, projection);
        self.filters.lock().get(&(collection.uuid(), key)).cloned()
    }
}

impl IndexFilters {
    /// True if there is a filter for a shape.
    pub(crate) fn stands(&self, collection: &Collection, shape: &str) -> bool {
        self.any.load(Relaxed)
            && self
                .filters
                .lock()
                .contains_key(&(collection.uuid(), shape.to_string()))
    }
}

impl Database {
    fn shape_key(&self, collection: &Collection, spec: &ShapeSpec<'_>) -> Result<String> {
        let collation = match spec.collation.is_empty() {
            true => collection.collation().clone(),
            false => Collation::parse(spec.collation)?,
        };
        let ctx = muniment_query::QueryContext::new().with_collation(collation);
        let filter = Filter::parse(spec.query, &ctx)?;
        Ok(shape(&filter, spec.sort, spec.projection))
    }

    /// `planCacheSetFilter`: from now on queries of this shape use no other index than
    /// `indexes` (names or key patterns). Cached plans of the collection are forgotten.
    ///
    /// # Errors
    /// 2 BadValue if there is no such collection; what parsing the query raises.
    pub fn set_index_filter(
        &self,
        namespace: &str,
        spec: &ShapeSpec<'_>,
        indexes: Vec<ValueBuf>,
    ) -> Result<()> {
        let Some(collection) = self.store.collection(namespace) else {
            return Err(Error::bad_value("no such collection"));
        };
        let key = self.shape_key(&collection, spec)?;
        let filter = IndexFilter {
            query: spec.query.to_buf(),
            sort: spec.sort.to_buf(),
            projection: spec.projection.to_buf(),
            collation: spec.collation.to_buf(),
            indexes,
        };
        let filters = &self.index_filters;
        filters
            .filters
            .lock()
            .insert((collection.uuid(), key), Arc::new(filter));
        filters.any.store(true, Relaxed);
        self.plans.clear(Some(&collection));
        Ok(())
    }

    /// `planCacheClearFilters`: removes one filter, or all of a collection.
    ///
    /// # Errors
    /// What parsing the query raises.
    pub fn clear_index_filters(&self, namespace: &str, spec: Option<&ShapeSpec<'_>>) -> Result<()> {
        let Some(collection) = self.store.collection(namespace) else {
            return Ok(());
        };
        let uuid = collection.uuid();
        match spec {
            None => self
                .index_filters
                .filters
                .lock()
                .retain(|(u, _), _| *u != uuid),
            Some(spec) => {
                let key = self.shape_key(&collection, spec)?;
                self.index_filters.filters.lock().remove(&(uuid, key));
            }
        }
        self.plans.clear(Some(&collection));
        Ok(())
    }

    /// `planCacheListFilters`: the filters of a collection, `{query, sort, projection,
    /// collation?, indexes}` each.
    pub fn list_index_filters(&self, namespace: &str) -> Vec<DocBuf> {
        let Some(collection) = self.store.collection(namespace) else {
            return Vec::new();
        };
        let uuid = collection.uuid();
        self.index_filters
            .filters
            .lock()
            .iter()
            .filter(|((u, _), _)| *u == uuid)
            .map(|(_, f)| f.to_doc())
            .collect()
    }

    /// `planCacheClear` of one shape.
    ///
    /// # Errors
    /// What parsing the query raises.
    pub fn clear_cached_plan(&self, namespace: &str, spec: &ShapeSpec<'_>) -> Result<()> {
        if let Some(collection) = self.store.collection(namespace) {
            self.plans
                .evict_shape(&collection, &self.shape_key(&collection, spec)?);
        }
        Ok(())
    }
}

/// What the planCache commands say of a sort, projection or collation without a query.
pub fn shape_without_query() -> Error {
    Error::bad_value("sort, projection, or collation provided without query")
}
