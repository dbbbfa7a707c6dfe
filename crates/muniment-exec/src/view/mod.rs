//! Views: a pipeline over a collection or another view under a name of its own.
//!
//! A view is a document `{_id: "db.view", viewOn, pipeline, collation?}` in the collection
//! `db.system.views`, as in MongoDB, so it is created, changed and dropped by writes that are as
//! atomic as any. Only a name that no collection has is looked up there. Invariants: names of
//! views and collections are disjoint (both are created under one lock); no chain of views is
//! longer than [`MAX_DEPTH`] or closes a circle.

pub(crate) mod read;

use crate::database::Database;
use crate::operation::OpContext;
use crate::oplog;
use crate::write::core::Done;
use crate::write::slices::Slices;
use bytes::Bytes;
use muniment_query::Interrupt;
use muniment_query::stage::geo_near::{at_front, not_first};
use muniment_query::{Clocks, Pipeline, QueryContext};
use muniment_storage::{Changed, Collection, CollectionOptions, Direction, KeyRange};
use muniment_value::{ArrayBuf, Code, Collation, Doc, DocBuf, Error, Result, Value, array, doc};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Views that stand on each other at most: MongoDB's limit.
pub const MAX_DEPTH: usize = 20;

/// Bytes that the stages of a view's pipeline, with those of the views below it, may take.
pub const MAX_PIPELINE: usize = 16_000_000;

/// A view's definition.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The collection or view that it reads, without the database.
    pub on: String,
    /// Its stages.
    pub pipeline: ArrayBuf,
    /// Its collation as it was given; `None` is the comparison of bytes.
    pub collation: Collation,
}

/// True for the document of a time-series collection, which stands among the views and is none.
pub(crate) fn is_of_series(d: Doc<'_>) -> bool {
    let mut stages = d.get_array("pipeline").unwrap_or(Doc::EMPTY).values();
    let first = stages.next().and_then(|v| v.as_doc());
    first.is_some_and(|s| s.get("$_internalUnpackBucket").is_some())
}

/// What a view comes down to.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The collection below all views, `db.collection`; it need not exist.
    pub namespace: String,
    /// The stages of all views on the way, the lowest first.
    pub pipeline: ArrayBuf,
    /// The view's collation.
    pub collation: Collation,
}

/// 167 unless `wanted` is the collation of the view `namespace`.
fn check_collation(of: &Collation, namespace: &str, wanted: &Collation) -> Result<()> {
    if of == wanted {
        return Ok(());
    }
    Err(Error::new(
        Code::OptionNotSupportedOnView,
        format!("Cannot override default collation of view {namespace}"),
    ))
}

impl View {
    /// # Errors
    /// 167 OptionNotSupportedOnView for another collation than the view's.
    pub(crate) fn check_collation(&self, namespace: &str, wanted: &Collation) -> Result<()> {
        check_collation(&self.collation, namespace, wanted)
    }
}

impl Resolved {
    /// # Errors
    /// 167 OptionNotSupportedOnView for another collation than the view's.
    pub(crate) fn check_collation(&self, namespace: &str, wanted: &Collation) -> Result<()> {
        check_collation(&self.collation, namespace, wanted)
    }

    /// The view's stages with more on top.
    pub(crate) fn with(&self, stages: Doc<'_>) -> ArrayBuf {
        let mut all = self.pipeline.clone();
        for v in stages.values() {
            all.push(v);
        }
        all
    }

    /// The database and the collection.
    pub(crate) fn parts(&self) -> (&str, &str) {
        self.namespace.split_once('.').unwrap_or(("", ""))
    }
}

fn catalog_of(namespace: &str) -> (&str, String) {
    let db = namespace.split_once('.').map_or(namespace, |(db, _)| db);
    (db, format!("{db}.system.views"))
}

fn view_of(d: Doc<'_>) -> View {
    let mut pipeline = ArrayBuf::new();
    for v in d.get_array("pipeline").unwrap_or(Doc::EMPTY).values() {
        pipeline.push(v);
    }
    View {
        on: d.get_str("viewOn").unwrap_or_default().to_string(),
        pipeline,
        // It was checked when it was stored.
        collation: Collation::parse_some(d.get_doc("collation")).unwrap_or_default(),
    }
}

fn stored(namespace: &str, view: &View) -> DocBuf {
    let mut d = doc! {
        "_id": namespace,
        "viewOn": view.on.as_str(),
        "pipeline": &view.pipeline,
    };
    d.append_some("collation", view.collation.spec());
    d
}

fn too_deep(namespace: &str) -> Error {
    Error::new(
        Code::ViewDepthLimitExceeded,
        format!("View depth limit exceeded; maximum depth is {MAX_DEPTH}; view: {namespace}"),
    )
}

fn too_large() -> Error {
    Error::new(
        Code::ViewPipelineMaxSizeExceeded,
        format!("View pipeline exceeds maximum size; maximum size is {MAX_PIPELINE}"),
    )
}

/// 166 for a command that needs a collection.
pub(crate) fn not_a_collection(namespace: &str) -> Error {
    Error::new(
        Code::CommandNotSupportedOnView,
        format!("Namespace {namespace} is a view, not a collection"),
    )
}

/// Checks the pipeline of a view of the database `db` and leaves out its nulls.
///
/// # Errors
/// 14 for an element that is no document, 40323, 40324 and the stages' own; 167
/// OptionNotSupportedOnView for a stage that writes; 73 for a stage that reads no collection.
pub fn check_pipeline(db: &str, pipeline: Doc<'_>) -> Result<ArrayBuf> {
    // What the pipeline may not know is an error of the queries on the view.
    let ctx = QueryContext {
        db: db.to_string(),
        ..QueryContext::new().with_clocks(Clocks::NowAndCluster)
    };
    let mut out = ArrayBuf::new();
    for v in pipeline.values().filter(|v| !v.is_nullish()) {
        out.push(v);
        match v.as_doc().and_then(|d| d.first()).map(|e| e.name()) {
            Some(name @ ("$out" | "$merge")) => {
                return Err(Error::new(
                    Code::OptionNotSupportedOnView,
                    format!("The aggregation stage {name} cannot be used in a view definition"),
                ));
            }
            Some(name @ ("$currentOp" | "$documents" | "$listSessions" | "$listLocalSessions")) => {
                return Err(Error::new(
                    Code::InvalidNamespace,
                    format!("{name} cannot be used in a view definition: it reads no collection"),
                ));
            }
            Some("$changeStream") => {
                return Err(Error::location(
                    40573,
                    "The $changeStream stage is only supported on replica sets",
                ));
            }
            _ => {}
        }
    }
    if pipeline_bytes(out.as_doc()) > MAX_PIPELINE {
        return Err(too_large());
    }
    if out.len() <= 1000 {
        // One by one: a stage that this server has not does not hide what is wrong with another.
        for (i, v) in out.as_doc().values().enumerate() {
            let near = v.as_doc().and_then(|d| d.first()).map(|e| e.name()) == Some("$geoNear");
            if near && at_front(out.as_doc()).is_none_or(|(front, _)| front != i) {
                return Err(not_first());
            }
            match Pipeline::parse(array![v].as_doc(), &ctx) {
                // Constants are evaluated when the view is read.
                Err(e) if e.code() != Code::CommandNotSupported && !e.is_optimizing() => {
                    return Err(e);
                }
                _ => {}
            }
        }
    } else if let Err(e) = Pipeline::parse(out.as_doc(), &ctx)
        && !e.is_optimizing()
    {
        return Err(e);
    }
    match Pipeline::check(out.as_doc(), &ctx) {
        // Places: 40601 and 40602; everything else was seen above.
        Err(e) if matches!(e.code().0, 40601 | 40602) => Err(e),
        _ => Ok(out),
    }
}

fn pipeline_bytes(pipeline: Doc<'_>) -> usize {
    pipeline
        .values()
        .filter_map(|v| v.as_doc())
        .map(|d| d.byte_len())
        .sum()
}

/// All views of a database by their full names.
type Graph = HashMap<String, View>;

/// The collections that a pipeline reads beside its own, without the database.
fn involved(pipeline: Doc<'_>, depth: usize, out: &mut Vec<String>) {
    if depth > MAX_DEPTH {
        return;
    }
    for stage in pipeline.values().filter_map(|v| v.as_doc()) {
        let Some(e) = stage.first() else { continue };
        match (e.name(), e.value()) {
            ("$unionWith", Value::String(name)) => out.push(name.to_string()),
            ("$lookup" | "$graphLookup" | "$unionWith", Value::Document(d)) => {
                let from = d.get_str("from").or_else(|| d.get_str("coll"));
                out.extend(from.map(str::to_string));
                if let Some(p) = d.get_array("pipeline") {
                    involved(p, depth + 1, out);
                }
            }
            ("$facet", Value::Document(d)) => {
                for p in d.values().filter_map(|v| v.as_array()) {
                    involved(p, depth + 1, out);
                }
            }
            _ => {}
        }
    }
}

/// What is known of a view while the graph is walked.
enum Mark {
    /// It is on the way that is being walked.
    Open,
    /// Views on the longest way down, itself with them, and the bytes of the pipelines of the
    /// views that it stands on.
    Done(usize, usize),
}

/// Walks down from a view, over everything that it reads.
///
/// # Errors
/// 5 GraphContainsCycle, 165 ViewDepthLimitExceeded, 195 ViewPipelineMaxSizeExceeded.
fn walk(
    graph: &Graph,
    db: &str,
    name: &str,
    way: usize,
    marks: &mut HashMap<String, Mark>,
) -> Result<(usize, usize)> {
    let Some(view) = graph.get(name) else {
        return Ok((0, 0));
    };
    match marks.get(name) {
        Some(Mark::Done(depth, bytes)) => return Ok((*depth, *bytes)),
        Some(Mark::Open) => {
            return Err(Error::new(
                Code::GraphContainsCycle,
                format!("View cycle detected: {name} reads itself"),
            ));
        }
        None => {}
    }
    // Nothing that is stored is deeper, so this bounds the recursion.
    if way > 2 * MAX_DEPTH + 2 {
        return Err(too_deep(name));
    }
    marks.insert(name.to_string(), Mark::Open);
    let (mut depth, bytes) = walk(graph, db, &format!("{db}.{}", view.on), way + 1, marks)?;
    let mut beside = Vec::new();
    involved(view.pipeline.as_doc(), 0, &mut beside);
    for other in beside {
        let (d, _) = walk(graph, db, &format!("{db}.{other}"), way + 1, marks)?;
        depth = depth.max(d);
    }
    let found = (depth + 1, bytes + pipeline_bytes(view.pipeline.as_doc()));
    if found.0 > MAX_DEPTH {
        return Err(too_deep(name));
    }
    if found.1 > MAX_PIPELINE {
        return Err(too_large());
    }
    marks.insert(name.to_string(), Mark::Done(found.0, found.1));
    Ok(found)
}

impl Database {
    /// The view with this name, unless a collection has it.
    ///
    /// # Errors
    /// I/O errors.
    pub fn view(&self, namespace: &str) -> Result<Option<View>> {
        if self.store.collection(namespace).is_some() {
            return Ok(None);
        }
        let (_, catalog) = catalog_of(namespace);
        let Some(c) = self.store.collection(&catalog) else {
            return Ok(None);
        };
        let snapshot = self.store.snapshot();
        let found = snapshot.find_by_id(&c, Value::String(namespace))?;
        let found = found.as_ref().map(|(_, b)| Doc::new(b));
        Ok(found.filter(|d| !is_of_series(*d)).map(view_of))
    }

    /// 166 when there is a view with this name.
    ///
    /// # Errors
    /// 166 CommandNotSupportedOnView.
    pub fn refuse_view(&self, namespace: &str) -> Result<()> {
        match self.view(namespace)? {
            Some(_) => Err(not_a_collection(namespace)),
            None => Ok(()),
        }
    }

    /// What a view comes down to; `None` for a name that is no view's. What reads a namespace
    /// from another collection's pipeline (`$lookup` and its like) asks this too.
    ///
    /// # Errors
    /// 165 ViewDepthLimitExceeded, 195 ViewPipelineMaxSizeExceeded.
    ///
    /// Buckets of a time-series collection are read as views are, and so is what is made when it is
    /// read: theirs is one of themselves.
    pub fn resolve_view(&self, namespace: &str) -> Result<Option<Resolved>> {
        if let Some(c) = self.buckets_of(namespace) {
            return Ok(Some(Resolved {
                namespace: namespace.to_string(),
                pipeline: ArrayBuf::new(),
                collation: c.collation().clone(),
            }));
        }
        if oplog::is_generated(namespace) {
            return Ok(Some(Resolved {
                namespace: namespace.to_string(),
                pipeline: ArrayBuf::new(),
                collation: Collation::default(),
            }));
        }
        let Some(top) = self.view(namespace)? else {
            return Ok(None);
        };
        let (db, _) = catalog_of(namespace);
        let collation = top.collation.clone();
        let mut below = format!("{db}.{}", top.on);
        let mut chain = vec![top];
        while let Some(v) = self.view(&below)? {
            if chain.len() >= MAX_DEPTH {
                return Err(too_deep(namespace));
            }
            below = format!("{db}.{}", v.on);
            chain.push(v);
        }
        let mut pipeline = ArrayBuf::new();
        for v in chain.iter().rev() {
            for stage in v.pipeline.as_doc().values() {
                pipeline.push(stage);
            }
        }
        if pipeline_bytes(pipeline.as_doc()) > MAX_PIPELINE {
            return Err(too_large());
        }
        Ok(Some(Resolved {
            namespace: below,
            pipeline,
            collation,
        }))
    }

    /// The views of a database with their full names, sorted.
    ///
    /// # Errors
    /// I/O errors.
    pub fn views(&self, db: &str) -> Result<Vec<(String, View)>> {
        let Some(c) = self.store.collection(&format!("{db}.system.views")) else {
            return Ok(Vec::new());
        };
        let snapshot = self.store.snapshot();
        let mut cursor = snapshot.docs(&c, &KeyRange::all(), Direction::Forward);
        let mut all = Vec::new();
        while let Some((_, bytes)) = cursor.next()? {
            let d = Doc::new(&bytes);
            if let Some(name) = d.get_str("_id").filter(|_| !is_of_series(d)) {
                all.push((name.to_string(), view_of(d)));
            }
        }
        // They stand in the order in which they were created.
        all.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }

    /// Creates a view; its pipeline was checked with [`check_pipeline`].
    ///
    /// # Errors
    /// 48 NamespaceExists; 5, 165, 195 as for [`Database::resolve_view`]; 167
    /// OptionNotSupportedOnView for another collation than the view's below.
    pub fn create_view(&self, op: &OpContext, namespace: &str, view: &View) -> Result<()> {
        let _names = self.lock_names(op)?;
        if self.store.collection(namespace).is_some() || oplog::is_generated(namespace) {
            return Err(Error::new(
                Code::NamespaceExists,
                format!("Collection {namespace} already exists."),
            ));
        }
        if let Some(old) = self.view(namespace)? {
            if stored(namespace, &old) == stored(namespace, view) {
                return Ok(());
            }
            return Err(Error::new(
                Code::NamespaceExists,
                format!("A view already exists. NS: {namespace}"),
            ));
        }
        self.put_view(op, namespace, view)
    }

    /// Changes a view.
    ///
    /// # Errors
    /// 26 NamespaceNotFound; as [`Database::create_view`].
    pub fn modify_view(
        &self,
        op: &OpContext,
        namespace: &str,
        on: Option<&str>,
        pipeline: Option<ArrayBuf>,
    ) -> Result<()> {
        let _names = self.lock_names(op)?;
        let Some(mut view) = self.view(namespace)? else {
            return Err(Error::new(
                Code::NamespaceNotFound,
                format!("cannot modify missing view {namespace}"),
            ));
        };
        if let Some(on) = on {
            view.on = on.to_string();
        }
        if let Some(p) = pipeline {
            view.pipeline = p;
        }
        self.put_view(op, namespace, &view)
    }

    fn put_view(&self, op: &OpContext, namespace: &str, view: &View) -> Result<()> {
        let (db, catalog) = catalog_of(namespace);
        let mut graph: Graph = self.views(db)?.into_iter().collect();
        if let Some(below) = graph.get(&format!("{db}.{}", view.on))
            && below.collation != view.collation
        {
            return Err(Error::new(
                Code::OptionNotSupportedOnView,
                format!(
                    "View {namespace} has conflicting collation with view {db}.{}",
                    view.on
                ),
            ));
        }
        graph.insert(namespace.to_string(), view.clone());
        let mut marks = HashMap::new();
        walk(&graph, db, namespace, 0, &mut marks)?;
        for name in graph.keys() {
            walk(&graph, db, name, 0, &mut marks)?;
        }
        let collection = match self.store.collection(&catalog) {
            Some(c) => c,
            None => self
                .store
                .create_collection(&catalog, CollectionOptions::default(), op)?,
        };
        let new = stored(namespace, view);
        let new = Bytes::copy_from_slice(new.as_bytes());
        let mut slices = Slices::<Done>::new(&self.store, op, &collection);
        slices.change_by_id(Value::String(namespace), |unit, found| {
            let staged = match found {
                Some((key, old)) => unit.update(&key, &old, &new, Changed::Whole, &|_| true)?,
                None => unit.insert(&new)?,
            };
            Ok(staged.map(|()| Done::default()))
        })?;
        slices.commit()
    }

    /// Drops a view. False if there is none.
    ///
    /// # Errors
    /// I/O errors.
    pub fn drop_view(&self, op: &OpContext, namespace: &str) -> Result<bool> {
        let _names = self.lock_names(op)?;
        if self.view(namespace)?.is_none() {
            return Ok(false);
        }
        let (_, catalog) = catalog_of(namespace);
        let Some(collection) = self.store.collection(&catalog) else {
            return Ok(false);
        };
        let mut slices = Slices::<Done>::new(&self.store, op, &collection);
        slices.change_by_id(Value::String(namespace), |unit, found| {
            let mut done = Done::default();
            if let Some((key, old)) = found {
                if let Err(busy) = unit.delete(&key, &old)? {
                    return Ok(Err(busy));
                }
                done.matched = 1;
            }
            Ok(Ok(done))
        })?;
        slices.commit()?;
        let dropped = slices.into_stored().0.matched > 0;
        if dropped {
            self.store.note_lost(namespace);
        }
        Ok(dropped)
    }

    /// Creates a collection, unless a view has the name.
    ///
    /// # Errors
    /// 48 NamespaceExists and the storage's.
    pub fn create_collection(
        &self,
        namespace: &str,
        options: CollectionOptions,
        op: &OpContext,
    ) -> Result<Arc<Collection>> {
        self.create_collection_as(namespace, options, None, op)
    }

    /// As [`Database::create_collection`], with a UUID that is given.
    ///
    /// # Errors
    /// 48 NamespaceExists, also for a UUID that another collection has, and the storage's.
    pub fn create_collection_as(
        &self,
        namespace: &str,
        options: CollectionOptions,
        uuid: Option<[u8; 16]>,
        op: &OpContext,
    ) -> Result<Arc<Collection>> {
        let _names = self.lock_names(op)?;
        if oplog::is_generated(namespace) {
            return Err(Error::new(
                Code::NamespaceExists,
                format!("Collection {namespace} already exists."),
            ));
        }
        if self.view(namespace)?.is_some() {
            return Err(Error::new(
                Code::NamespaceExists,
                format!("A view already exists. NS: {namespace}"),
            ));
        }
        let store = &self.store;
        match op.transaction() {
            Some(t) => store.create_collection_in(t, namespace, options, uuid, op),
            None => store.create_collection_as(namespace, options, uuid, op),
        }
    }

    /// Nobody else creates a collection or a view while this is held.
    ///
    /// # Errors
    /// What the operation's interrupt says while it waits.
    pub(crate) fn lock_names(&self, op: &OpContext) -> Result<parking_lot::MutexGuard<'_, ()>> {
        loop {
            if let Some(guard) = self.names.try_lock_for(Duration::from_millis(10)) {
                return Ok(guard);
            }
            op.check()?;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::tests::Bench;

    fn on(name: &str) -> View {
        View {
            on: name.to_string(),
            ..View::default()
        }
    }

    #[test]
    fn names_cycles_and_depth() {
        let f = Bench::new();
        let (e, op) = (&f.engine, OpContext::internal("create"));
        e.create_view(&op, "d.a", &on("b")).unwrap();
        // The same again is no error, another one is.
        e.create_view(&op, "d.a", &on("b")).unwrap();
        let code = |r: Result<()>| r.unwrap_err().code();
        assert_eq!(
            code(e.create_view(&op, "d.a", &on("c"))),
            Code::NamespaceExists
        );
        assert_eq!(
            code(e.create_view(&op, "d.b", &on("a"))),
            Code::GraphContainsCycle
        );
        assert_eq!(
            code(e.create_view(&op, "d.x", &on("x"))),
            Code::GraphContainsCycle
        );
        let clash = e.create_collection("d.a", CollectionOptions::default(), &op);
        assert_eq!(clash.err().unwrap().code(), Code::NamespaceExists);
        assert_eq!(code(e.refuse_view("d.a")), Code::CommandNotSupportedOnView);
        for i in 1..=MAX_DEPTH {
            e.create_view(&op, &format!("d.v{i}"), &on(&format!("v{}", i - 1)))
                .unwrap();
        }
        let last = e.create_view(&op, "d.v21", &on("v20"));
        assert_eq!(code(last), Code::ViewDepthLimitExceeded);
        // Also from below: what stands on it becomes too deep.
        e.create_view(&op, "d.w", &on("nothing")).unwrap();
        let deeper = e.modify_view(&op, "d.v1", Some("w"), None);
        assert_eq!(code(deeper), Code::ViewDepthLimitExceeded);
        assert_eq!(e.resolve_view("d.v20").unwrap().unwrap().namespace, "d.v0");
        assert!(e.drop_view(&op, "d.a").unwrap());
        assert!(!e.drop_view(&op, "d.a").unwrap());
        assert!(e.view("d.a").unwrap().is_none());
        assert_eq!(e.views("d").unwrap().len(), 21);
    }

    #[test]
    fn pipelines_that_cannot_be() {
        let code = |p: ArrayBuf| check_pipeline("d", p.as_doc()).unwrap_err().code().0;
        assert_eq!(code(array![doc! { "$out": "x" }]), 167);
        assert_eq!(code(array![doc! { "$currentOp": doc! {} }]), 73);
        let inside =
            doc! { "$unionWith": doc! { "coll": "c", "pipeline": array![doc! { "$out": "x" }] } };
        assert_eq!(code(array![inside]), 31441);
        assert_eq!(code(array![doc! { "$foo": 1 }]), 40324);
        assert_eq!(code(array![doc! {}]), 40323);
        assert_eq!(code(array![1]), 14);
        let kept = check_pipeline("d", array![Value::Null, doc! { "$limit": 1 }].as_doc()).unwrap();
        assert_eq!(kept.len(), 1);
    }
}
