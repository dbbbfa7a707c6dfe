//! The documents of `$listCatalog`: collections, indexes and views as MongoDB's catalog keeps them.
//!
//! `ident` and `idxIdent` name the trees that hold collections and indexes.

use crate::state::ServerState;
use muniment_exec::{BUCKETS, Source, View, buckets_options, series_view};
use muniment_op::Interrupt;
use muniment_storage::{Collection, Index};
use muniment_value::{ArrayBuf, DocBuf, Result, Value, doc};

/// The collections and views of all databases.
///
/// # Errors
/// I/O errors; what stops `operation`.
pub fn all(server: &ServerState, operation: &dyn Interrupt) -> Result<Vec<DocBuf>> {
    let mut found = Vec::new();
    for db in server.engine.store.databases() {
        for c in server.engine.store.collections(&db) {
            found.extend(of_collection(&db, &c));
        }
        for (ns, view) in server.engine.views(&db, operation)? {
            found.push(of_view(&db, &ns, &view));
        }
    }
    Ok(found)
}

/// One collection or view; empty if there is neither with this name.
///
/// # Errors
/// I/O errors.
pub fn one(server: &ServerState, db: &str, name: &str) -> Result<Vec<DocBuf>> {
    let ns = format!("{db}.{name}");
    // A time series is stored under its own name, and is also listed under that of its buckets.
    let stored = name.strip_prefix(BUCKETS).unwrap_or(name);
    let collection = server.engine.store.collection(&format!("{db}.{stored}"));
    let of_it = collection.iter().flat_map(|c| of_collection(db, c));
    let found: Vec<_> = of_it
        .filter(|d| d.as_doc().get_str("ns") == Some(&ns))
        .collect();
    match server.engine.source(&ns)? {
        Source::View(view) => Ok(vec![of_view(db, &ns, &view)]),
        _ => Ok(found),
    }
}

fn of_collection(db: &str, c: &Collection) -> Vec<DocBuf> {
    let ns = c.namespace();
    let name = ns.split_once('.').map_or("", |(_, name)| name);
    let shown = c.options();
    if !c.is_time_series() {
        return vec![entry(db, name, c, shown.document.clone())];
    }
    let buckets = format!("{BUCKETS}{name}");
    let mut view = doc! { "db": db, "name": name, "type": "timeseries", "ns": ns.as_str() };
    view.append_all(series_view(c).as_doc());
    let options = buckets_options(shown.document.as_doc());
    vec![view, entry(db, &buckets, c, options)]
}

fn entry(db: &str, name: &str, c: &Collection, options: DocBuf) -> DocBuf {
    let ns = format!("{db}.{name}");
    let uuid = c.uuid();
    let mut kept = doc! { "uuid": Value::Binary { subtype: 4, bytes: &uuid } };
    kept.append_all(options.as_doc());
    let (mut indexes, mut trees) = (ArrayBuf::new(), DocBuf::new());
    for index in c.all_indexes().iter() {
        // The index on `_id` of a clustered collection is the collection itself.
        if index.is_id() && c.is_keyed_by_id() {
            continue;
        }
        indexes.push(of_index(index));
        trees.append(&index.spec().name, format!("index-{}", index.tree()));
    }
    let md = doc! { "ns": ns.as_str(), "options": kept, "indexes": indexes };
    doc! {
        "db": db,
        "name": name,
        "type": "collection",
        "md": md,
        "idxIdent": trees,
        "ns": ns.as_str(),
        "ident": format!("collection-{}", c.tree()),
    }
}

fn of_index(index: &Index) -> DocBuf {
    let spec = index.spec();
    let mut d = doc! {
        "spec": &spec.document,
        "ready": index.is_ready(),
        "multikey": index.is_multikey(),
    };
    // Only indexes of plain fields know which parts of a path went through an array. Each part takes one
    // byte.
    if index.kind().is_none() {
        let masks = index.multikey_paths();
        let mut paths = DocBuf::new();
        for (i, e) in spec.key.as_doc().iter().enumerate() {
            let mask = masks.get(i).copied().unwrap_or(0);
            let parts: Vec<u8> = (0..e.name().split('.').count())
                .map(|part| u8::from(mask.checked_shr(part as u32).unwrap_or(0) & 1 == 1))
                .collect();
            let bytes = parts.as_slice();
            paths.append(e.name(), Value::Binary { subtype: 0, bytes });
        }
        d.append("multikeyPaths", paths);
    }
    d.append("head", 0_i64);
    d.append("backgroundSecondary", false);
    d
}

fn of_view(db: &str, ns: &str, view: &View) -> DocBuf {
    let mut d = doc! {
        "db": db,
        "name": ns.split_once('.').map_or("", |(_, name)| name),
        "type": "view",
        "ns": ns,
        "_id": ns,
        "viewOn": view.on.as_str(),
        "pipeline": &view.pipeline,
    };
    d.append_some("collation", view.collation.spec());
    d
}
