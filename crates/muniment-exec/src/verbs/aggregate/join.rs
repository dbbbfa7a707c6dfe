//! Equality look-ups on one field of a collection, which `$lookup` and `$graphLookup` do for every
//! document.
//!
//! A look-up by `_id` is one read, and one by an index a short scan. Without an index the first
//! look-up scans the collection; the second makes a hash table of it, within the memory limit of a
//! blocking stage. For some values a key does not decide what matches (arrays, and null by an
//! index): these go through the planner.

use super::join_cache::JoinCache;
use crate::operation::OpContext;
use crate::plan::query::Query;
use crate::plan::shape::shape;
use crate::run::current::CurrentOp;
use crate::run::recipe::Recipe;
use crate::run::still_there;
use crate::verbs::aggregate::link::Link;
use crate::verbs::planning::plan;
use bytes::Bytes;
use muniment_query::filter::{Node, Pred};
use muniment_query::running::Work;
use muniment_query::stage::host::Join;
use muniment_query::{Account, Filter, Interrupt, Share};
use muniment_storage::{Collection, Direction, Index, KeyRange};
use muniment_value::path::{Path, array_index};
use muniment_value::{Collation, Doc, Result, Value, ValueBuf};
use muniment_value::{IndexKeys, index_keys};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Look-ups between two checks whether the operation may go on.
const CHECK_EVERY: u32 = 32;

/// Prepares look-ups on `field` of a collection, which may not exist.
pub(crate) fn open(
    link: &Link,
    collection: Option<Arc<Collection>>,
    field: &Path,
    collation: &Collation,
) -> Box<dyn Join> {
    let Some(collection) = collection else {
        return Box::new(Nothing);
    };
    let method = if field.parts().iter().any(|p| array_index(p).is_some()) {
        // A number in the path may mean an array element or a field, and an index key does not say
        // which it was.
        Method::Plan
    } else if field.as_str() == "_id"
        && collection.finds_by_id()
        && collection.collation() == collation
    {
        Method::Id
    } else {
        match usable_index(&collection, field, collation) {
            Some((index, descending)) => Method::Index { index, descending },
            None => Method::Scan { looked: false },
        }
    };
    if let Method::Index { index, .. } = &method {
        index.note_use();
    }
    Box::new(Lookups {
        op: link.op.clone(),
        link: link.clone(),
        // The cache may use a quarter of what a blocking stage may hold.
        cache: JoinCache::new(
            link.engine.sort_limits(None).memory / 4,
            collection.count(),
            &link.engine.memory,
        ),
        collection,
        field: field.clone(),
        collation: collation.clone(),
        method,
        calls: 0,
        key: Vec::new(),
    })
}

/// A plain index whose first field is `field`, and whether that field descends.
fn usable_index(
    collection: &Collection,
    field: &Path,
    collation: &Collation,
) -> Option<(Arc<Index>, bool)> {
    let indexes = collection.indexes();
    let fitting = indexes.iter().filter_map(|i| {
        let (path, descending) = i.fields().first()?;
        let spec = i.spec();
        let plain = !spec.hidden
            && i.kind().is_none()
            && i.partial_filter().is_none()
            && i.collation() == collation
            && spec.key.as_doc().iter().all(|e| e.value().is_number());
        (plain && path == field && !i.is_id()).then(|| (i.clone(), *descending))
    });
    // Among those, a unique index is preferred, then the one with the fewest fields, whose keys are
    // the shortest.
    fitting.min_by_key(|(i, _)| (!i.unique(), i.fields().len()))
}

struct Nothing;

impl Join for Nothing {
    fn find(&mut self, _: &[Value<'_>], _: &mut dyn FnMut(Bytes) -> Result<()>) -> Result<()> {
        Ok(())
    }
}

enum Method {
    /// Look up by `_id`.
    Id,
    /// Look up by the first field of an index.
    Index { index: Arc<Index>, descending: bool },
    /// Scan the collection. `looked` is true after the first look-up.
    Scan { looked: bool },
    /// Look up in a hash table of all documents.
    Hash(Table),
    /// Make and run a plan for each look-up.
    Plan,
}

/// All documents of the collection, indexed by the encoded values of the field.
struct Table {
    docs: Vec<Bytes>,
    by_key: HashMap<Box<[u8]>, Vec<u32>>,
    share: Share,
}

struct Lookups {
    link: Link,
    op: Arc<CurrentOp>,
    collection: Arc<Collection>,
    field: Path,
    collation: Collation,
    method: Method,
    calls: u32,
    key: Vec<u8>,
    cache: JoinCache,
}

/// True for a value that equals exactly the stored values that have its key.
fn has_exact_key(v: &Value<'_>) -> bool {
    !matches!(v, Value::Null | Value::Undefined | Value::Array(_))
}

impl Join for Lookups {
    fn find(
        &mut self,
        values: &[Value<'_>],
        found: &mut dyn FnMut(Bytes) -> Result<()>,
    ) -> Result<()> {
        self.calls = self.calls.wrapping_add(1);
        let op = self.op.get();
        if self.calls.is_multiple_of(CHECK_EVERY) {
            op.check()?;
        }
        let view = self
            .link
            .op
            .view(&self.link.engine.store, &self.collection)?;
        still_there(view.timestamp(), &self.collection, [])?;
        if values.is_empty() {
            return Ok(());
        }
        if let Method::Scan { looked } = &mut self.method {
            if std::mem::replace(looked, true) {
                self.method = match self.table(&op)? {
                    Some(table) => Method::Hash(table),
                    None => Method::Plan,
                };
            } else {
                return self.plan(&op, values, found);
            }
        }
        if !values.iter().all(has_exact_key) {
            return match &self.method {
                Method::Hash(table) => hash_inexact(
                    table,
                    &self.field,
                    &self.collation,
                    values,
                    found,
                    op.work(),
                ),
                _ => self.plan(&op, values, found),
            };
        }
        match &self.method {
            Method::Id | Method::Index { .. } => self.by_key(&op, values, found),
            Method::Hash(table) => {
                let mut hits = Vec::new();
                for v in values {
                    self.key.clear();
                    self.collation.encode(*v, false, &mut self.key);
                    hits.extend(table.by_key.get(self.key.as_slice()).into_iter().flatten());
                }
                if values.len() > 1 {
                    hits.sort_unstable();
                    hits.dedup();
                }
                hits.into_iter()
                    .filter_map(|&i| table.docs.get(i as usize))
                    .try_for_each(|d| found(d.clone()))
            }
            Method::Scan { .. } | Method::Plan => self.plan(&op, values, found),
        }
    }
}

impl Lookups {
    /// Looks up by `_id` or by an index, or takes the result of an earlier look-up from the cache.
    fn by_key(
        &mut self,
        op: &Arc<OpContext>,
        values: &[Value<'_>],
        found: &mut dyn FnMut(Bytes) -> Result<()>,
    ) -> Result<()> {
        let by_id = matches!(self.method, Method::Id);
        let single = match values {
            [value] if self.cache.begin(op) => Some(value),
            _ => None,
        };
        let Some(value) = single else {
            return match by_id {
                true => self.by_id(op, values, found),
                false => self.by_index(op, values, found),
            };
        };
        self.key.clear();
        self.collation.encode(*value, false, &mut self.key);
        if let Some(docs) = self.cache.get(&self.key) {
            return docs.iter().try_for_each(|d| found(d.clone()));
        }
        let mut docs = Vec::new();
        let mut note = |d: Bytes| {
            docs.push(Bytes::copy_from_slice(&d));
            found(d)
        };
        match by_id {
            true => self.by_id(op, values, &mut note)?,
            false => self.by_index(op, values, &mut note)?,
        }
        self.cache.put(&self.key, docs);
        Ok(())
    }

    fn by_id(
        &mut self,
        op: &OpContext,
        values: &[Value<'_>],
        found: &mut dyn FnMut(Bytes) -> Result<()>,
    ) -> Result<()> {
        let snapshot = self
            .link
            .op
            .view(&self.link.engine.store, &self.collection)?;
        still_there(snapshot.timestamp(), &self.collection, [])?;
        op.note_index(|| "_id_".into());
        for key in self.keys(values, false) {
            op.counters.keys_examined.fetch_add(1, Relaxed);
            if let Some((_, doc)) = snapshot.find_by_id_key(&self.collection, &key)? {
                op.counters.docs_examined.fetch_add(1, Relaxed);
                found(doc)?;
            }
        }
        Ok(())
    }

    fn by_index(
        &mut self,
        op: &OpContext,
        values: &[Value<'_>],
        found: &mut dyn FnMut(Bytes) -> Result<()>,
    ) -> Result<()> {
        let Method::Index { index, descending } = &self.method else {
            return Ok(());
        };
        let (index, descending) = (index.clone(), *descending);
        let snapshot = self
            .link
            .op
            .view(&self.link.engine.store, &self.collection)?;
        still_there(snapshot.timestamp(), &self.collection, [&index])?;
        op.note_index(|| index.spec().name.clone());
        // A document with an array in another field of the index has several entries for one value.
        let several = index.fields().len() > 1 && index.is_multikey();
        let mut seen = (values.len() > 1 || several).then(HashSet::new);
        let mut examined = 0_u64;
        for key in self.keys(values, descending) {
            let mut entries = snapshot.entries(
                &self.collection,
                &index,
                &KeyRange::prefix(key),
                Direction::Forward,
            );
            while let Some(e) = entries.next(op)? {
                examined += 1;
                if examined.is_multiple_of(512) {
                    op.check()?;
                }
                if let Some(seen) = &mut seen
                    && !seen.insert(e.record_key.clone())
                {
                    continue;
                }
                if let Some(doc) = snapshot.get(&self.collection, &e.record_key)? {
                    found(doc)?;
                }
            }
        }
        op.counters.keys_examined.fetch_add(examined, Relaxed);
        op.counters.docs_examined.fetch_add(examined, Relaxed);
        Ok(())
    }

    /// The encoded values in key order, without duplicates.
    fn keys(&self, values: &[Value<'_>], descending: bool) -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = values
            .iter()
            .map(|v| {
                let mut key = Vec::with_capacity(24);
                self.collation.encode(*v, descending, &mut key);
                key
            })
            .collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Runs the look-up as a query with a plan.
    fn plan(
        &self,
        op: &Arc<OpContext>,
        values: &[Value<'_>],
        found: &mut dyn FnMut(Bytes) -> Result<()>,
    ) -> Result<()> {
        let engine = &self.link.engine;
        let filter = Arc::new(equals_any(&self.field, values, &self.collation));
        let query = Query::of(&filter);
        let recipe = Recipe {
            shared: Some(self.link.op.clone()),
            ..engine.recipe(&self.collection, &filter)
        };
        let mut exec = plan(
            engine,
            op,
            &query,
            &recipe,
            || shape(&filter, Doc::EMPTY, Doc::EMPTY).into(),
            false,
        )?
        .exec;
        while let Some(row) = exec.next_row(op)? {
            found(row.doc)?;
        }
        Ok(())
    }

    /// Makes the hash table. Returns `None` if it does not fit into memory.
    fn table(&self, op: &Arc<OpContext>) -> Result<Option<Table>> {
        let limit = self.link.engine.sort_limits(None).memory;
        let mut table = Table {
            docs: Vec::new(),
            by_key: HashMap::new(),
            share: Share::new(&self.link.engine.memory, Account::Stages),
        };
        let fields = [(self.field.clone(), false)];
        let mut keys = IndexKeys::new();
        keys.collate(&self.collation);
        let snapshot = self
            .link
            .op
            .view(&self.link.engine.store, &self.collection)?;
        still_there(snapshot.timestamp(), &self.collection, [])?;
        op.note_scan();
        let mut docs = snapshot.docs(&self.collection, &KeyRange::all(), Direction::Forward);
        let mut bytes = 0_usize;
        while let Some((_, doc)) = docs.next(&**op)? {
            let n = table.docs.len();
            if n.is_multiple_of(512) {
                op.check()?;
            }
            if index_keys(Doc::new(&doc), &fields, false, &mut keys).is_err() {
                // This document could not be indexed by the field either. A plan with a filter can
                // read it.
                return Ok(None);
            }
            for (key, _) in keys.iter() {
                bytes += key.len() + 128;
                match table.by_key.get_mut(key) {
                    Some(list) => list.push(n as u32),
                    None => {
                        table.by_key.insert(key.into(), vec![n as u32]);
                    }
                }
            }
            bytes += doc.len() + 64;
            if bytes > limit || table.share.holds(bytes) || n >= u32::MAX as usize {
                return Ok(None);
            }
            table.docs.push(doc);
        }
        op.counters
            .docs_examined
            .fetch_add(table.docs.len() as u64, Relaxed);
        Ok(Some(table))
    }
}

/// Looks up values whose keys match too much. The filter decides among the documents with such
/// keys.
fn hash_inexact(
    table: &Table,
    field: &Path,
    collation: &Collation,
    values: &[Value<'_>],
    found: &mut dyn FnMut(Bytes) -> Result<()>,
    work: Work<'_>,
) -> Result<()> {
    let mut hits: Vec<u32> = Vec::new();
    let mut add = |v: Value<'_>| {
        let key = collation.encoded(v);
        hits.extend(table.by_key.get(key.as_slice()).into_iter().flatten());
    };
    for v in values {
        match v {
            Value::Null | Value::Undefined => {
                add(Value::Null);
                add(Value::Undefined);
            }
            // A stored array has the keys of its elements, but inside another array it has its own
            // key.
            Value::Array(items) => {
                add(items.values().next().unwrap_or(Value::Undefined));
                add(*v);
            }
            v => add(*v),
        }
    }
    hits.sort_unstable();
    hits.dedup();
    let filter = equals_any(field, values, collation);
    for doc in hits.iter().filter_map(|&i| table.docs.get(i as usize)) {
        if filter.matches(Doc::new(doc), work)? {
            found(doc.clone())?;
        }
    }
    Ok(())
}

/// A filter like `{field: {$in: values}}`, except that a regular expression matches only an equal
/// regular expression.
fn equals_any(field: &Path, values: &[Value<'_>], collation: &Collation) -> Filter {
    let mut buffers: Vec<ValueBuf> = values.iter().map(|v| ValueBuf::new(*v)).collect();
    buffers.sort_by(|a, b| collation.cmp(a.as_value(), b.as_value()));
    buffers.dedup_by(|a, b| collation.equal(a.as_value(), b.as_value()));
    let pred = if buffers.len() == 1 {
        Pred::Eq(buffers.swap_remove(0))
    } else {
        Pred::In {
            values: buffers,
            regexes: Vec::new(),
        }
    };
    let root = Node::Field {
        path: field.clone(),
        pred,
    };
    Filter::from_root(root, collation)
}
