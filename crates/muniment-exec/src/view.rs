//! Views: a pipeline over a collection or another view, under a name of its own.
//!
//! A view is a document `{_id: "db.view", viewOn, pipeline, collation?}` in the collection
//! `db.system.views`, as in MongoDB. So it is created, changed and dropped by writes, which are as
//! atomic as any. A name is looked up there only if no collection has it. Invariants: a view and a
//! collection never have the same name (both are created under one lock); no chain of views is
//! longer than [`MAX_DEPTH`] or leads back to itself.

use crate::operation::OpContext;
use muniment_op::{Interrupt, NeverInterrupted};
use muniment_query::stage::geo_near::{at_front, not_first};
use muniment_query::{Clocks, Pipeline, QueryContext};
use muniment_storage::{Direction, KeyRange, Store};
use muniment_value::{ArrayBuf, Code, Collation, Doc, DocBuf, Error, Result, Value, array, doc};
use std::sync::Arc;

/// The longest chain of views on each other, as in MongoDB.
pub const MAX_DEPTH: usize = 20;

/// The most bytes that a view's pipeline may have, together with those of the views below it.
pub(crate) const MAX_PIPELINE: usize = 16_000_000;

/// A view's definition.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The collection or view that it reads, without the database.
    pub on: String,
    /// The view's stages.
    pub pipeline: ArrayBuf,
    /// The view's collation. Without one, bytes are compared.
    pub collation: Collation,
}

/// True for the document of a time-series collection. It is stored among the views and is none.
pub(crate) fn is_of_series(d: Doc<'_>) -> bool {
    let mut stages = d.get_array("pipeline").unwrap_or(Doc::EMPTY).values();
    let first = stages.next().and_then(|v| v.as_doc());
    first.is_some_and(|s| s.get("$_internalUnpackBucket").is_some())
}

/// A view in resolved form: a collection and all stages above it.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The collection below all views, `db.collection`; it need not exist.
    pub namespace: String,
    /// The stages of all views on the way, the lowest first.
    pub pipeline: ArrayBuf,
    /// The view's collation.
    pub collation: Collation,
}

/// Error 167, unless `wanted` is the collation of the view `namespace`.
pub(crate) fn check_collation(of: &Collation, namespace: &str, wanted: &Collation) -> Result<()> {
    if of == wanted {
        return Ok(());
    }
    Err(Error::new(
        Code::OptionNotSupportedOnView,
        format!("Cannot override default collation of view {namespace}"),
    ))
}

impl Resolved {
    /// # Errors
    /// 167 OptionNotSupportedOnView if it is another collation than the view's.
    pub(crate) fn check_collation(&self, namespace: &str, wanted: &Collation) -> Result<()> {
        check_collation(&self.collation, namespace, wanted)
    }

    /// The view's stages followed by `stages`.
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

pub(crate) fn catalog_of(namespace: &str) -> (&str, String) {
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
        // The collation was checked when the view was stored.
        collation: Collation::parse_some(d.get_doc("collation")).unwrap_or_default(),
    }
}

pub(crate) fn stored(namespace: &str, view: &View) -> DocBuf {
    let mut d = doc! {
        "_id": namespace,
        "viewOn": view.on.as_str(),
        "pipeline": &view.pipeline,
    };
    d.append_some("collation", view.collation.spec());
    d
}

pub(crate) fn too_deep(namespace: &str) -> Error {
    Error::new(
        Code::ViewDepthLimitExceeded,
        format!("View depth limit exceeded; maximum depth is {MAX_DEPTH}; view: {namespace}"),
    )
}

pub(crate) fn too_large() -> Error {
    Error::new(
        Code::ViewPipelineMaxSizeExceeded,
        format!("View pipeline exceeds maximum size; maximum size is {MAX_PIPELINE}"),
    )
}

/// Error 166, for a command that needs a collection.
pub(crate) fn not_a_collection(namespace: &str) -> Error {
    Error::new(
        Code::CommandNotSupportedOnView,
        format!("Namespace {namespace} is a view, not a collection"),
    )
}

/// Refuses stage `i` of a view if it may not stand there in any view.
fn check_stage(namespace: &str, i: usize, name: &str, member: bool) -> Result<()> {
    match name {
        "$out" | "$merge" => Err(Error::new(
            Code::OptionNotSupportedOnView,
            format!(
                "The aggregation stage {name} in location {i} of the pipeline cannot be used in the \
                 view definition of {namespace} because it writes to disk"
            ),
        )),
        "$currentOp" | "$documents" | "$listSessions" | "$listLocalSessions" => Err(Error::new(
            Code::InvalidNamespace,
            format!("'{name}' cannot be used in a view definition"),
        )),
        // This is MongoDB's message; it supports change streams on replica sets only.
        "$changeStream" if !member => Err(Error::location(
            40573,
            "The $changeStream stage is only supported on replica sets",
        )),
        "$changeStream" if i == 0 => Err(Error::new(
            Code::OptionNotSupportedOnView,
            "$changeStream cannot be used in a view definition",
        )),
        _ => Ok(()),
    }
}

/// Checks the pipeline of the view `namespace`, and leaves out null elements. `member` is true if
/// the server is a member of a set.
///
/// # Errors
/// 14 for an element that is not a document; 40323, 40324 and the errors of the stages; 167
/// OptionNotSupportedOnView for a stage that writes and for a change stream, or 40573 for a change
/// stream on a plain server; 73 for a stage that reads no collection.
pub fn check_pipeline(
    namespace: &str,
    pipeline: Doc<'_>,
    member: bool,
    op: &Arc<OpContext>,
) -> Result<ArrayBuf> {
    let db = namespace.split_once('.').map_or(namespace, |(db, _)| db);
    // Both clocks are available here: where a query may not use one, that is an error of the query
    // and not of the view's definition.
    let ctx = QueryContext {
        db: db.to_string(),
        ..QueryContext::new()
            .with_clocks(Clocks::NowAndCluster)
            .with_operation(op.clone())
    };
    let mut out = ArrayBuf::new();
    for (i, v) in pipeline.values().filter(|v| !v.is_nullish()).enumerate() {
        out.push(v);
        if let Some(first) = v.as_doc().and_then(|d| d.first()) {
            check_stage(namespace, i, first.name(), member)?;
        }
    }
    if pipeline_bytes(out.as_doc()) > MAX_PIPELINE {
        return Err(too_large());
    }
    if out.len() <= 1000 {
        // Stages are parsed one by one, so that a stage that this server does not have cannot hide
        // an error in another.
        for (i, v) in out.as_doc().values().enumerate() {
            let near = v.as_doc().and_then(|d| d.first()).map(|e| e.name()) == Some("$geoNear");
            if near && at_front(out.as_doc()).is_none_or(|(front, _)| front != i) {
                return Err(not_first());
            }
            match Pipeline::parse(array![v].as_doc(), &ctx) {
                // Constants are evaluated when the view is read, so their errors are reported then.
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
        // 40601 and 40602 concern the places of stages. Everything else was checked above.
        Err(e) if matches!(e.code().0, 40601 | 40602) => Err(e),
        _ => Ok(out),
    }
}

pub(crate) fn pipeline_bytes(pipeline: Doc<'_>) -> usize {
    pipeline
        .values()
        .filter_map(|v| v.as_doc())
        .map(|d| d.byte_len())
        .sum()
}

/// The view with this name. The caller knows that no collection has it.
///
/// # Errors
/// 301 DataCorruptionDetected for a view while the collection of views is closed; I/O errors.
pub(crate) fn find(store: &Store, namespace: &str) -> Result<Option<View>> {
    let (_, catalog) = catalog_of(namespace);
    let Some(c) = store.collection(&catalog) else {
        return Ok(None);
    };
    let snapshot = store.snapshot();
    if let Err(closed) = c.check_usable() {
        let mut docs = snapshot.docs_of_closed(&c);
        // If the view's document can still be read, the damage is reported. Otherwise nothing shows
        // that the name is a view's.
        while let Ok(Some((_, d))) = docs.next(&NeverInterrupted) {
            let d = Doc::new(&d);
            if d.get_str("_id") == Some(namespace) && !is_of_series(d) {
                return Err(closed);
            }
        }
        return Ok(None);
    }
    let found = snapshot.find_by_id(&c, Value::String(namespace))?;
    let found = found.as_ref().map(|(_, b)| Doc::new(b));
    Ok(found.filter(|d| !is_of_series(*d)).map(view_of))
}

/// Resolves the view `top`, whose name is `namespace`.
///
/// # Errors
/// 165 ViewDepthLimitExceeded, 195 ViewPipelineMaxSizeExceeded.
pub(crate) fn resolve(store: &Store, namespace: &str, top: &View) -> Result<Resolved> {
    let (db, _) = catalog_of(namespace);
    let mut below = format!("{db}.{}", top.on);
    let mut chain = vec![top.clone()];
    while store.collection(&below).is_none()
        && let Some(v) = find(store, &below)?
    {
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
    Ok(Resolved {
        namespace: below,
        pipeline,
        collation: top.collation.clone(),
    })
}

/// The views of a database with their full names, sorted. While the collection that stores them is
/// closed, the list is empty.
///
/// # Errors
/// I/O errors.
pub(crate) fn all(
    store: &Store,
    db: &str,
    operation: &dyn Interrupt,
) -> Result<Vec<(String, View)>> {
    let found = store.collection(&format!("{db}.system.views"));
    let Some(c) = found.filter(|c| c.check_usable().is_ok()) else {
        return Ok(Vec::new());
    };
    let snapshot = store.snapshot();
    let mut cursor = snapshot.docs(&c, &KeyRange::all(), Direction::Forward);
    let mut all = Vec::new();
    while let Some((_, bytes)) = cursor.next(operation)? {
        let d = Doc::new(&bytes);
        if let Some(name) = d.get_str("_id").filter(|_| !is_of_series(d)) {
            all.push((name.to_string(), view_of(d)));
        }
    }
    // They are stored in the order in which they were created.
    all.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn pipelines_that_cannot_be() {
        let op = OpContext::internal("create");
        let code = |p: ArrayBuf| {
            check_pipeline("d.v", p.as_doc(), true, &op)
                .unwrap_err()
                .code()
                .0
        };
        assert_eq!(code(array![doc! { "$out": "x" }]), 167);
        assert_eq!(code(array![doc! { "$currentOp": doc! {} }]), 73);
        let inside =
            doc! { "$unionWith": doc! { "coll": "c", "pipeline": array![doc! { "$out": "x" }] } };
        assert_eq!(code(array![inside]), 31441);
        assert_eq!(code(array![doc! { "$foo": 1 }]), 40324);
        assert_eq!(code(array![doc! {}]), 40323);
        assert_eq!(code(array![1]), 14);
        assert_eq!(code(array![doc! { "$changeStream": doc! {} }]), 167);
        let later = array![
            doc! { "$match": doc! {} },
            doc! { "$changeStream": doc! {} }
        ];
        assert_eq!(code(later), 40602);
        let alone = array![doc! { "$changeStream": doc! {} }];
        let alone = check_pipeline("d.v", alone.as_doc(), false, &op);
        assert_eq!(alone.unwrap_err().code().0, 40573);
        let last = array![doc! { "$match": doc! {} }, doc! { "$merge": "x" }];
        assert_eq!(
            check_pipeline("d.v", last.as_doc(), true, &op)
                .unwrap_err()
                .message(),
            "The aggregation stage $merge in location 1 of the pipeline cannot be used in the view \
             definition of d.v because it writes to disk"
        );
        let limit = array![Value::Null, doc! { "$limit": 1 }];
        let kept = check_pipeline("d.v", limit.as_doc(), true, &op).unwrap();
        assert_eq!(kept.len(), 1);
    }
}
