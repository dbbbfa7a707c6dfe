//! Creating, changing and dropping views.
//!
//! Invariants: a view and a collection never have the same name (both are created under one lock);
//! no chain of views is longer than [`MAX_DEPTH`] or leads back to itself.

use crate::database::Database;
use crate::moved_databases::check_database;
use crate::operation::{CatalogChange, OpContext};
use crate::source::Source;
use crate::verbs::create::{is_first, lock_names};
use crate::verbs::write::change::Done;
use crate::verbs::write::document::check_depth;
use crate::verbs::write::slices::Slices;
use crate::view::{
    MAX_DEPTH, MAX_PIPELINE, View, all, catalog_of, pipeline_bytes, stored, too_deep, too_large,
};
use bytes::Bytes;
use muniment_op::{Lock, Locked};
use muniment_storage::{Changed, Collection, CollectionOptions, Created, Store};
use muniment_value::{ArrayBuf, Code, Doc, Error, Result, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// All views of a database by their full names.
type Graph = HashMap<String, View>;

/// Appends the names (without the database) of the collections that a pipeline reads beside the
/// view's own.
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

/// What the walk over the graph knows of a view.
enum Mark {
    /// The view is on the path that is being walked, so meeting it again means a cycle.
    Open,
    /// The number of views on the longest chain down from this one (inclusive), and the bytes of
    /// its pipeline and of those of the views below it.
    Done(usize, usize),
}

/// Walks down from a view, over everything that it reads. Returns the two numbers of
/// [`Mark::Done`].
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
    // No stored chain is that deep, so a longer path cannot be valid. This bounds the recursion.
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

/// Implements [`Database::create_view`].
pub(crate) fn create_view(
    engine: &Database,
    op: &OpContext,
    namespace: &str,
    view: &View,
) -> Result<()> {
    let names = lock_names(engine, op)?;
    check_database(&engine.store, op, namespace)?;
    match Source::now(&engine.store, namespace)? {
        Source::Collection(_) | Source::Generated(_) => Err(Error::new(
            Code::NamespaceExists,
            format!("Collection {namespace} already exists."),
        )),
        Source::View(old) if stored(namespace, &old) == stored(namespace, view) => Ok(()),
        Source::View(_) => Err(Error::new(
            Code::NamespaceExists,
            format!("A view already exists. NS: {namespace}"),
        )),
        Source::Buckets(_) | Source::Absent => {
            let mut first = is_first(engine, op, namespace);
            put_view(engine, op, names, namespace, view)?;
            first.note(op);
            op.note_change(|| CatalogChange::CreatedView {
                namespace: namespace.to_string(),
                on: view.on.clone(),
                pipeline: view.pipeline.clone(),
            });
            Ok(())
        }
    }
}

/// Implements [`Database::modify_view`].
pub(crate) fn modify_view(
    engine: &Database,
    op: &OpContext,
    namespace: &str,
    on: Option<&str>,
    pipeline: Option<ArrayBuf>,
) -> Result<()> {
    let names = lock_names(engine, op)?;
    check_database(&engine.store, op, namespace)?;
    let Source::View(mut view) = Source::now(&engine.store, namespace)? else {
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
    put_view(engine, op, names, namespace, &view)
}

fn put_view(
    engine: &Database,
    op: &OpContext,
    names: Locked<&Lock<()>, ()>,
    namespace: &str,
    view: &View,
) -> Result<()> {
    let (db, catalog) = catalog_of(namespace);
    let mut graph: Graph = all(&engine.store, db, op)?.into_iter().collect();
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
    let (collection, created) = views_collection(&engine.store, op, &catalog)?;
    let new = stored(namespace, view);
    check_depth(new.as_doc())?;
    let new = Bytes::copy_from_slice(new.as_bytes());
    let mut slices = Slices::<Done>::new(&engine.store, op, &collection);
    slices.change_by_id(Value::String(namespace), |unit, found| {
        let staged = match found {
            Some((key, old)) => unit.update(&key, &old, &new, Changed::Whole, &|_| true)?,
            None => unit.insert(&new)?,
        };
        Ok(staged.map(|()| Done::default()))
    })?;
    slices.commit()?;
    drop(names);
    created.map_or(Ok(()), |created| engine.store.settle(created).map(drop))
}

/// The collection that stores a database's views, created if it is missing. A new one has to be
/// settled after the names are unlocked and before the client is answered.
///
/// # Errors
/// The errors of the storage.
pub(crate) fn views_collection(
    store: &Store,
    op: &OpContext,
    catalog: &str,
) -> Result<(Arc<Collection>, Option<Created>)> {
    if let Some(there) = store.collection(catalog) {
        return Ok((there, None));
    }
    let options = CollectionOptions::default();
    let created = store.begin_collection(catalog, options, None, op)?;
    Ok((created.collection().clone(), Some(created)))
}

/// Implements [`Database::drop_view`].
pub(crate) fn drop_view(engine: &Database, op: &OpContext, namespace: &str) -> Result<bool> {
    let _names = lock_names(engine, op)?;
    if !matches!(Source::now(&engine.store, namespace)?, Source::View(_)) {
        return Ok(false);
    }
    let (_, catalog) = catalog_of(namespace);
    let Some(collection) = engine.store.collection(&catalog) else {
        return Ok(false);
    };
    let mut slices = Slices::<Done>::new(&engine.store, op, &collection);
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
        engine.store.note_lost(namespace);
    }
    Ok(dropped)
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
        // Creating the same view again is no error; creating a different one is.
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
        let view = e.source("d.a").unwrap();
        let refused = code(view.refuse_view("d.a"));
        assert_eq!(refused, Code::CommandNotSupportedOnView);
        for i in 1..=MAX_DEPTH {
            e.create_view(&op, &format!("d.v{i}"), &on(&format!("v{}", i - 1)))
                .unwrap();
        }
        let last = e.create_view(&op, "d.v21", &on("v20"));
        assert_eq!(code(last), Code::ViewDepthLimitExceeded);
        // A view can also become too deep when one below it is changed.
        e.create_view(&op, "d.w", &on("nothing")).unwrap();
        let deeper = e.modify_view(&op, "d.v1", Some("w"), None);
        assert_eq!(code(deeper), Code::ViewDepthLimitExceeded);
        let below = e.source("d.v20").unwrap().as_view(&e.store, "d.v20");
        assert_eq!(below.unwrap().unwrap().namespace, "d.v0");
        assert!(e.drop_view(&op, "d.a").unwrap());
        assert!(!e.drop_view(&op, "d.a").unwrap());
        assert!(matches!(e.source("d.a").unwrap(), Source::Absent));
        assert_eq!(
            e.views("d", &muniment_op::NeverInterrupted).unwrap().len(),
            21
        );
    }
}
