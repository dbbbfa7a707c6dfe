//! Operations on databases, collections and indexes, and their listings.

use super::{Args, Got, Place, run};
use crate::client::{Kind, Settings, check_write};
use crate::cursor::{Cursor, Opening};
use crate::failure::{Done, Failure, broken, whole};
use crate::session::SessionRef;
use bson::{Bson, Document, doc};
use std::rc::Rc;

/// NamespaceNotFound. Dropping something that does not exist succeeds, and listing its indexes returns none.
const NAMESPACE_NOT_FOUND: i64 = 26;

/// Runs a command that changes the catalog.
fn change(
    place: &Place,
    body: Document,
    session: &SessionRef,
    settings: &Settings,
) -> Result<Document, Failure> {
    let reply = run(place, body, session, Kind::Write, settings)?;
    check_write(&reply)?;
    Ok(reply)
}

/// `createCollection` and `modifyCollection`: all options belong to the command.
pub(crate) fn create_or_modify(
    place: &Place,
    command: &str,
    mut args: Args,
    session: &SessionRef,
) -> Done<Got> {
    let name = args.need_str("collection")?;
    let mut body = doc! { command: &name };
    let settings = args.settings(&place.settings);
    if args.rest.contains_key("timeoutMS") {
        args.finish()?;
    }
    body.extend(args.into_rest());
    change(place, body, session, &settings)?;
    Ok(Got::Place(Rc::new(Place {
        collection: name,
        ..place.clone()
    })))
}

/// `dropCollection` of a database, `drop` of a collection.
pub(crate) fn drop_collection(place: &Place, mut args: Args, session: &SessionRef) -> Done<Got> {
    let name = match place.collection.as_str() {
        "" => args.need_str("collection")?,
        name => name.to_owned(),
    };
    let settings = args.settings(&place.settings);
    args.finish()?;
    match change(place, doc! { "drop": name }, session, &settings) {
        Err(e) if e.code != Some(NAMESPACE_NOT_FOUND) => Err(e.into()),
        _ => Ok(Got::NOTHING),
    }
}

/// `rename` of a collection.
pub(crate) fn rename(place: &Place, mut args: Args, session: &SessionRef) -> Done<Got> {
    let from = format!("{}.{}", place.db, place.collection);
    let to = format!("{}.{}", place.db, args.need_str("to")?);
    let mut body = doc! { "renameCollection": from, "to": to };
    args.pass(&mut body, &["dropTarget", "comment"]);
    let settings = args.settings(&place.settings);
    args.finish()?;
    let admin = Place {
        db: "admin".into(),
        ..place.clone()
    };
    change(&admin, body, session, &settings)?;
    Ok(Got::NOTHING)
}

/// `dropDatabase` of a client.
pub(crate) fn drop_database(place: &Place, args: Args, session: &SessionRef) -> Done<Got> {
    args.finish()?;
    change(place, doc! { "dropDatabase": 1 }, session, &place.settings)?;
    Ok(Got::NOTHING)
}

/// The name that drivers give an index: `a_1_b_-1`.
fn index_name(keys: &Document) -> String {
    let parts = keys.iter().map(|(field, kind)| match kind {
        Bson::String(s) => format!("{field}_{s}"),
        other => format!(
            "{field}_{}",
            whole(other).map_or(other.to_string(), |n| n.to_string())
        ),
    });
    parts.collect::<Vec<_>>().join("_")
}

/// `createIndex`.
pub(crate) fn create_index(place: &Place, mut args: Args, session: &SessionRef) -> Done<Got> {
    let keys = args.need_doc("keys")?;
    let mut body = doc! { "createIndexes": &place.collection };
    let mut outside = Document::new();
    args.pass(
        &mut outside,
        &["commitQuorum", "comment", "maxTimeMS", "rawData"],
    );
    let settings = args.settings(&place.settings);
    if args.rest.contains_key("timeoutMS") {
        args.finish()?;
    }
    let mut index = args.into_rest();
    if !index.contains_key("name") {
        index.insert("name", index_name(&keys));
    }
    let name = index.get("name").cloned();
    index.insert("key", keys);
    body.insert("indexes", vec![index]);
    body.extend(outside);
    change(place, body, session, &settings)?;
    Ok(Got::Value(name))
}

/// `dropIndex` and `dropIndexes`.
pub(crate) fn drop_index(
    place: &Place,
    mut args: Args,
    session: &SessionRef,
    all: bool,
) -> Done<Got> {
    let index = match all {
        true => Bson::String("*".into()),
        false => args.need("name")?,
    };
    let mut body = doc! { "dropIndexes": &place.collection, "index": index };
    args.pass(&mut body, &["comment", "maxTimeMS", "rawData"]);
    let settings = args.settings(&place.settings);
    args.finish()?;
    match change(place, body, session, &settings) {
        Err(e) if e.code != Some(NAMESPACE_NOT_FOUND) => Err(e.into()),
        _ => Ok(Got::NOTHING),
    }
}

fn listing(
    place: &Place,
    body: Document,
    session: SessionRef,
    size: Option<Bson>,
) -> Result<Cursor, Failure> {
    let mut more = Document::new();
    if let Some(n) = size {
        more.insert("batchSize", n);
    }
    Cursor::open(Opening {
        client: place.client.clone(),
        db: place.db.clone(),
        body,
        session,
        kind: Kind::RetryableBare,
        settings: place.settings.clone(),
        more,
        limit: None,
    })
}

fn names(documents: Vec<Document>) -> Got {
    let names = documents.iter().filter_map(|d| d.get("name").cloned());
    Got::Value(Some(Bson::Array(names.collect())))
}

/// `listCollections` and its variants.
pub(crate) fn list_collections(
    place: &Place,
    mut args: Args,
    session: SessionRef,
    names_only: bool,
) -> Done<Got> {
    let size = args.take("batchSize");
    let cursor: Document = size
        .iter()
        .map(|n| ("batchSize".to_owned(), n.clone()))
        .collect();
    let mut body = doc! { "listCollections": 1, "cursor": cursor };
    args.pass(
        &mut body,
        &[
            "filter",
            "comment",
            "authorizedCollections",
            "maxTimeMS",
            "rawData",
        ],
    );
    args.finish()?;
    // If the filter is not only on the name, the server needs the options.
    let by_name = body
        .get_document("filter")
        .map_or(true, |f| f.keys().all(|k| k == "name"));
    if names_only && by_name {
        body.insert("nameOnly", true);
    }
    let all = listing(place, body, session, size)?.all()?;
    Ok(if names_only {
        names(all)
    } else {
        Got::Documents(all)
    })
}

/// `listIndexes` and its variants.
pub(crate) fn list_indexes(
    place: &Place,
    mut args: Args,
    session: SessionRef,
    names_only: bool,
) -> Done<Got> {
    let size = args.take("batchSize");
    let cursor: Document = size
        .iter()
        .map(|n| ("batchSize".to_owned(), n.clone()))
        .collect();
    let mut body = doc! { "listIndexes": &place.collection, "cursor": cursor };
    args.pass(&mut body, &["comment", "maxTimeMS", "rawData"]);
    args.finish()?;
    let all = match listing(place, body, session, size) {
        Ok(mut cursor) => cursor.all()?,
        Err(e) if e.code == Some(NAMESPACE_NOT_FOUND) => Vec::new(),
        Err(e) => return Err(e.into()),
    };
    Ok(if names_only {
        names(all)
    } else {
        Got::Documents(all)
    })
}

/// `listDatabases` and its variants.
pub(crate) fn list_databases(
    place: &Place,
    mut args: Args,
    session: &SessionRef,
    names_only: bool,
) -> Done<Got> {
    let mut body = doc! { "listDatabases": 1 };
    args.pass(
        &mut body,
        &["filter", "comment", "authorizedDatabases", "maxTimeMS"],
    );
    args.finish()?;
    if names_only {
        body.insert("nameOnly", true);
    }
    let reply = run(place, body, session, Kind::RetryableBare, &place.settings)?;
    let all = reply.get_array("databases").ok().into_iter().flatten();
    let all: Vec<Document> = all.filter_map(Bson::as_document).cloned().collect();
    Ok(if names_only {
        names(all)
    } else {
        Got::Documents(all)
    })
}

/// The operations on the indexes of a search service.
pub(crate) fn search_index(
    place: &Place,
    name: &str,
    mut args: Args,
    session: SessionRef,
) -> Done<Got> {
    let collection = &place.collection;
    let body = match name {
        "createSearchIndex" | "createSearchIndexes" => {
            let models = match name {
                "createSearchIndex" => vec![args.need("model")?],
                _ => args.need_array("models")?,
            };
            doc! { "createSearchIndexes": collection, "indexes": models }
        }
        "updateSearchIndex" => doc! {
            "updateSearchIndex": collection,
            "name": args.need("name")?,
            "definition": args.need("definition")?,
        },
        "dropSearchIndex" => doc! { "dropSearchIndex": collection, "name": args.need("name")? },
        "listSearchIndexes" => {
            let mut stage = Document::new();
            args.pass(&mut stage, &["name"]);
            if let Some(Bson::Document(options)) = args.take("aggregationOptions") {
                args.rest.extend(options);
            }
            args.rest
                .insert("pipeline", vec![doc! { "$listSearchIndexes": stage }]);
            // These commands do not take concerns.
            let bare = Place {
                settings: Settings::default(),
                ..place.clone()
            };
            let mut cursor = super::read::aggregate_cursor(&bare, args, session)?;
            return Ok(Got::Documents(cursor.all()?));
        }
        other => return broken(format!("no such operation: {other}")),
    };
    args.finish()?;
    // These commands do not take a write concern.
    let reply = run(place, body, &session, Kind::Bare, &Settings::default());
    match reply {
        Err(e) if name == "dropSearchIndex" && e.code == Some(NAMESPACE_NOT_FOUND) => {}
        other => {
            other?;
        }
    }
    Ok(Got::NOTHING)
}
