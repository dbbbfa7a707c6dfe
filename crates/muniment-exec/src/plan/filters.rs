//! Index filters: which indexes the planner may use for a query shape (`planCacheSetFilter`).
//!
//! They live as long as the process, as MongoDB's do. Invariant: while a filter stands for a shape,
//! hints of that shape are ignored, and a collection scan is the plan when no allowed index fits.

use super::shape::shape;
use muniment_query::Filter;
use muniment_storage::{Collection, IndexSpec};
use muniment_value::{Doc, DocBuf, Value, ValueBuf, cmp_values};
use parking_lot::Mutex;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The filter of one query shape.
#[derive(Debug)]
pub(crate) struct IndexFilter {
    pub query: DocBuf,
    pub sort: DocBuf,
    pub projection: DocBuf,
    pub collation: DocBuf,
    /// The allowed indexes, each a name or a key pattern.
    pub indexes: Vec<ValueBuf>,
}

impl IndexFilter {
    /// True if the index may be used.
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

/// A collection's UUID, and a query shape.
type Key = ([u8; 16], String);

/// The filters of all collections, by the collection's UUID and the shape.
#[derive(Default)]
pub(crate) struct IndexFilters {
    /// False until the first filter is set, so that queries need not take the lock.
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

    /// Sets the filter of a shape.
    pub(crate) fn put(&self, collection: &Collection, shape: String, filter: IndexFilter) {
        let mut filters = self.filters.lock();
        filters.insert((collection.uuid(), shape), Arc::new(filter));
        self.any.store(true, Relaxed);
    }

    /// Removes the filter of one shape, or all filters of a collection.
    pub(crate) fn remove(&self, collection: &Collection, shape: Option<String>) {
        let uuid = collection.uuid();
        let mut filters = self.filters.lock();
        match shape {
            None => filters.retain(|(u, _), _| *u != uuid),
            Some(shape) => drop(filters.remove(&(uuid, shape))),
        }
    }

    /// The documents of planCacheListFilters for a collection.
    pub(crate) fn list(&self, collection: &Collection) -> Vec<DocBuf> {
        let uuid = collection.uuid();
        let filters = self.filters.lock();
        let own = filters.iter().filter(|((u, _), _)| *u == uuid);
        own.map(|(_, f)| f.to_doc()).collect()
    }

    /// True if there is a filter for a shape.
    pub(crate) fn stands(&self, collection: &Collection, shape: &str) -> bool {
        self.any.load(Relaxed)
            && self
                .filters
                .lock()
                .contains_key(&(collection.uuid(), shape.to_string()))
    }
}
