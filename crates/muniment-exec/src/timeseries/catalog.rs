//! The documents of `db.system.views` for time-series collections.
//!
//! In MongoDB such a collection is a view of its buckets, so its database has a collection of views
//! with a document for it. Here nothing reads that document. It is brought up to date after each
//! change of the collections and when the server starts, which repairs what the end of a process
//! left undone. Until then, a document without its collection does not count as a view.

use super::{BUCKETS, TimeSeries};
use crate::database::Database;
use crate::operation::OpContext;
use crate::verbs::create::lock_names;
use crate::verbs::views::views_collection;
use crate::verbs::write::change::Done;
use crate::verbs::write::slices::Slices;
use crate::view::is_of_series;
use bytes::Bytes;
use muniment_storage::{Changed, Collection, Direction, KeyRange, Store};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, array, doc};
use std::collections::BTreeMap;

/// The view as which MongoDB shows a time-series collection: `{_id, viewOn, pipeline, collation?}`.
pub fn series_view(collection: &Collection) -> DocBuf {
    let ns = collection.namespace();
    let (_, name) = ns.split_once('.').unwrap_or_default();
    let options = collection.options();
    let mut unpack = DocBuf::new();
    let series = options.document.as_doc().get_doc("timeseries");
    for e in series.into_iter().flatten() {
        if matches!(e.name(), "timeField" | "metaField" | "bucketMaxSpanSeconds") {
            unpack.append_elem(e);
        }
    }
    let mut d = doc! {
        "_id": ns.as_str(),
        "viewOn": format!("{BUCKETS}{name}"),
        "pipeline": array![doc! { "$_internalUnpackBucket": unpack }],
    };
    d.append_some("collation", collection.collation().spec());
    d
}

/// Implements [`Database::settle_series`].
pub(crate) fn settle_series(engine: &Database, op: &OpContext, db: &str) -> Result<()> {
    let catalog = format!("{db}.system.views");
    let names = lock_names(engine, op)?;
    let there = engine.store.collection(&catalog);
    if engine.store.kinds(db).series == 0 && there.is_none() {
        return Ok(());
    }
    let mut wanted: BTreeMap<String, Option<DocBuf>> = BTreeMap::new();
    for c in engine.store.collections(db) {
        if TimeSeries::of(&c).is_some() && !is_temporary(&c) {
            wanted.insert(c.namespace(), Some(series_view(&c)));
        }
    }
    if there.as_ref().is_some_and(|c| c.check_usable().is_err()) {
        return Ok(());
    }
    if let Some(c) = &there {
        let snapshot = engine.store.snapshot();
        let mut cursor = snapshot.docs(c, &KeyRange::all(), Direction::Forward);
        while let Some((_, bytes)) = cursor.next(op)? {
            let d = Doc::new(&bytes);
            let Some(name) = d.get_str("_id").filter(|_| is_of_series(d)) else {
                continue;
            };
            match wanted.get(name) {
                Some(Some(same)) if same.as_doc().as_bytes() == d.as_bytes() => {
                    wanted.remove(name);
                }
                Some(_) => {}
                None => {
                    wanted.insert(name.to_string(), None);
                }
            }
        }
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let (collection, created) = views_collection(&engine.store, op, &catalog)?;
    let mut slices = Slices::<Done>::new(&engine.store, op, &collection);
    for (name, view) in &wanted {
        let new = view.as_ref().map(|d| Bytes::copy_from_slice(d.as_bytes()));
        slices.change_by_id(Value::String(name), |unit, found| {
            let staged = match (found, &new) {
                (Some((key, old)), Some(new)) => {
                    unit.update(&key, &old, new, Changed::Whole, &|_| true)?
                }
                (Some((key, old)), None) => unit.delete(&key, &old)?,
                (None, Some(new)) => unit.insert(new)?,
                (None, None) => Ok(()),
            };
            Ok(staged.map(|()| Done::default()))
        })?;
    }
    slices.commit()?;
    drop(names);
    created.map_or(Ok(()), |created| engine.store.settle(created).map(drop))
}

/// Implements [`Database::refuse_to_drop_views`].
pub(crate) fn refuse_to_drop_views(store: &Store, namespace: &str) -> Result<()> {
    let db = namespace.strip_suffix(".system.views");
    let series = db.is_some_and(|db| store.kinds(db).series > 0);
    let there = store.collection(namespace);
    let closed = there.is_some_and(|c| c.check_usable().is_err());
    match series && !closed {
        false => Ok(()),
        true => Err(Error::new(
            Code::CommandFailed,
            format!("cannot drop collection {namespace} when time-series collections are present."),
        )),
    }
}

/// True for the collection of an unfinished `$out`.
fn is_temporary(c: &Collection) -> bool {
    let ns = c.namespace();
    let (_, name) = ns.split_once('.').unwrap_or_default();
    name.starts_with(crate::verbs::write::temporary::TEMPORARY)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::tests::Bench;
    use muniment_query::NeverInterrupted;
    use muniment_storage::CollectionOptions;

    #[test]
    fn what_an_end_of_the_process_left_is_put_right() {
        let b = Bench::new();
        let op = OpContext::internal("create");
        let store = &b.engine.store;
        let listed = || {
            let views = store.collection("d.system.views").unwrap();
            let snapshot = store.snapshot();
            let mut docs = snapshot.docs(&views, &KeyRange::all(), Direction::Forward);
            let mut names = Vec::new();
            while let Some((_, d)) = docs.next(&NeverInterrupted).unwrap() {
                names.push(Doc::new(&d).get_str("_id").unwrap().to_string());
            }
            names
        };
        let create = |name: &str| {
            let options = CollectionOptions {
                time_field: Some("t".into()),
                document: doc! { "timeseries": doc! { "timeField": "t" } },
                ..CollectionOptions::default()
            };
            store.create_collection(name, options, &NeverInterrupted)
        };
        create("d.a").unwrap();
        create("d.b").unwrap();
        create("d.tmp.agg_out.0123").unwrap();
        b.engine.settle_series(&op, "d").unwrap();
        assert_eq!(listed(), ["d.a", "d.b"]);
        // The collection is dropped, and then the process ends. What is left is no view and does
        // not occupy the name.
        store.drop_collection("d.a", &NeverInterrupted).unwrap();
        let found = b.engine.source("d.a").unwrap();
        assert!(matches!(found, crate::Source::Absent));
        assert!(b.engine.views("d", &NeverInterrupted).unwrap().is_empty());
        b.engine.settle_series(&op, "d").unwrap();
        assert_eq!(listed(), ["d.b"]);
        let refused = b.engine.refuse_to_drop_views("d.system.views");
        assert_eq!(refused.unwrap_err().code(), Code::CommandFailed);
        assert!(b.engine.refuse_to_drop_views("e.system.views").is_ok());
    }
}
