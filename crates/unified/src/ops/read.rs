//! Operations that read documents, and those whose commands are given in the test.

use super::{Args, Got, Place, run};
use crate::client::{Kind, Settings, check_write};
use crate::cursor::{Cursor, Opening};
use crate::failure::{Done, broken, whole};
use crate::session::SessionRef;
use bson::{Bson, Document, doc};

/// The fields for the getMores of a cursor that a command opens.
fn more(body: &Document, size: Option<&Bson>) -> Document {
    let mut more = Document::new();
    if let Some(n) = size.filter(|n| whole(n).is_some_and(|n| n > 0)) {
        more.insert("batchSize", n.clone());
    }
    if let Some(c) = body.get("comment") {
        more.insert("comment", c.clone());
    }
    more
}

fn open(
    place: &Place,
    body: Document,
    session: SessionRef,
    kind: Kind,
    settings: Settings,
    more: Document,
    limit: Option<i64>,
) -> Done<Cursor> {
    Ok(Cursor::open(Opening {
        client: place.client.clone(),
        db: place.db.clone(),
        body,
        session,
        kind,
        settings,
        more,
        limit,
    })?)
}

/// Opens a find's cursor.
pub(crate) fn find_cursor(place: &Place, mut args: Args, session: SessionRef) -> Done<Cursor> {
    let filter = args.need("filter")?;
    let mut body = doc! { "find": &place.collection, "filter": filter };
    args.pass(
        &mut body,
        &[
            "sort",
            "projection",
            "hint",
            "skip",
            "limit",
            "batchSize",
            "comment",
            "max",
            "min",
            "maxTimeMS",
            "returnKey",
            "showRecordId",
            "noCursorTimeout",
            "allowDiskUse",
            "allowPartialResults",
            "collation",
            "let",
            "rawData",
        ],
    );
    match args.take("cursorType").as_ref().and_then(Bson::as_str) {
        None | Some("nonTailable") => {}
        Some("tailable") => {
            body.insert("tailable", true);
        }
        Some("tailableAwait") => {
            body.insert("tailable", true);
            body.insert("awaitData", true);
        }
        Some(other) => return broken(format!("cursorType {other}")),
    }
    let settings = args.settings(&place.settings);
    args.finish()?;
    let limit = body.get("limit").and_then(whole);
    if let Some(n) = limit.filter(|n| *n < 0) {
        body.insert("limit", -n);
        body.insert("singleBatch", true);
    }
    let more = more(&body, body.get("batchSize"));
    // The limit is one higher, so that the server closes the cursor with the first batch.
    if let (Some(size), Some(n)) = (body.get("batchSize").and_then(whole), limit)
        && size == n
    {
        body.insert("batchSize", n + 1);
    }
    open(
        place,
        body,
        session,
        Kind::RetryableRead,
        settings,
        more,
        limit,
    )
}

/// `findOne`.
pub(crate) fn find_one(place: &Place, mut args: Args, session: SessionRef) -> Done<Got> {
    let mut body = doc! { "find": &place.collection, "filter": args.need("filter")? };
    args.pass(
        &mut body,
        &[
            "sort",
            "projection",
            "hint",
            "skip",
            "comment",
            "max",
            "min",
            "maxTimeMS",
            "collation",
            "let",
            "rawData",
        ],
    );
    let settings = args.settings(&place.settings);
    args.finish()?;
    body.insert("limit", 1);
    body.insert("singleBatch", true);
    let mut cursor = open(
        place,
        body,
        session,
        Kind::RetryableRead,
        settings,
        Document::new(),
        None,
    )?;
    let found = cursor.next()?;
    Ok(Got::Value(Some(found.map_or(Bson::Null, Bson::Document))))
}

/// Opens an aggregation's cursor.
pub(crate) fn aggregate_cursor(place: &Place, mut args: Args, session: SessionRef) -> Done<Cursor> {
    let pipeline = args.need_array("pipeline")?;
    let last = pipeline.last().and_then(Bson::as_document);
    let writes = last.is_some_and(|s| s.contains_key("$out") || s.contains_key("$merge"));
    let target = match place.collection.as_str() {
        "" => Bson::Int32(1),
        name => name.into(),
    };
    let size = args.take("batchSize");
    let mut cursor = Document::new();
    if let (Some(n), false) = (&size, writes) {
        cursor.insert("batchSize", n.clone());
    }
    let mut body = doc! { "aggregate": target, "pipeline": pipeline, "cursor": cursor };
    args.pass(
        &mut body,
        &[
            "allowDiskUse",
            "bypassDocumentValidation",
            "collation",
            "comment",
            "hint",
            "let",
            "maxTimeMS",
            "rawData",
        ],
    );
    let await_ms = args.take("maxAwaitTimeMS");
    let settings = args.settings(&place.settings);
    args.finish()?;
    let mut more = more(&body, size.as_ref());
    if let Some(ms) = await_ms {
        more.insert("maxTimeMS", ms);
    }
    let kind = if writes {
        Kind::ReadAndWrite
    } else {
        Kind::RetryableRead
    };
    open(place, body, session, kind, settings, more, None)
}

/// Opens a change stream on a collection, a database or (`whole_deployment`) everything.
pub(crate) fn change_stream(
    place: &Place,
    mut args: Args,
    session: SessionRef,
    whole_deployment: bool,
) -> Done<Cursor> {
    let mut stage = Document::new();
    args.pass(
        &mut stage,
        &[
            "fullDocument",
            "fullDocumentBeforeChange",
            "resumeAfter",
            "startAfter",
            "startAtOperationTime",
            "showExpandedEvents",
        ],
    );
    if whole_deployment {
        stage.insert("allChangesForCluster", true);
    }
    let mut pipeline = vec![Bson::Document(doc! { "$changeStream": stage })];
    pipeline.extend(args.need_array("pipeline")?);
    args.rest.insert("pipeline", pipeline);
    aggregate_cursor(place, args, session)
}

/// `countDocuments`: an aggregation.
pub(crate) fn count_documents(place: &Place, mut args: Args, session: SessionRef) -> Done<Got> {
    let mut pipeline = vec![Bson::Document(doc! { "$match": args.need("filter")? })];
    for (name, stage) in [("skip", "$skip"), ("limit", "$limit")] {
        if let Some(n) = args.take(name) {
            pipeline.push(Bson::Document(doc! { stage: n }));
        }
    }
    pipeline.push(Bson::Document(
        doc! { "$group": { "_id": 1, "n": { "$sum": 1 } } },
    ));
    args.rest.insert("pipeline", pipeline);
    let first = aggregate_cursor(place, args, session)?.next_document()?;
    let n = first.and_then(|d| d.get("n").and_then(whole));
    Ok(Got::Value(Some(Bson::Int64(n.unwrap_or(0)))))
}

/// `estimatedDocumentCount` and the former `count`.
pub(crate) fn count(place: &Place, mut args: Args, session: SessionRef) -> Done<Got> {
    let mut body = doc! { "count": &place.collection };
    if let Some(filter) = args.take("filter") {
        body.insert("query", filter);
    }
    args.pass(
        &mut body,
        &[
            "skip",
            "limit",
            "maxTimeMS",
            "comment",
            "collation",
            "hint",
            "rawData",
        ],
    );
    let settings = args.settings(&place.settings);
    args.finish()?;
    let reply = run(place, body, &session, Kind::RetryableRead, &settings)?;
    Ok(Got::Value(reply.get("n").cloned()))
}

/// `distinct`.
pub(crate) fn distinct(place: &Place, mut args: Args, session: SessionRef) -> Done<Got> {
    let mut body = doc! {
        "distinct": &place.collection,
        "key": args.need("fieldName")?,
        "query": args.need("filter")?,
    };
    args.pass(
        &mut body,
        &["maxTimeMS", "comment", "collation", "hint", "rawData"],
    );
    let settings = args.settings(&place.settings);
    args.finish()?;
    let reply = run(place, body, &session, Kind::RetryableRead, &settings)?;
    Ok(Got::Value(reply.get("values").cloned()))
}

/// `mapReduce`. It has results if `out` is inline.
pub(crate) fn map_reduce(place: &Place, mut args: Args, session: SessionRef) -> Done<Got> {
    let mut body = doc! { "mapReduce": &place.collection };
    for name in ["map", "reduce", "out"] {
        body.insert(name, args.need(name)?);
    }
    args.pass(
        &mut body,
        &[
            "query",
            "sort",
            "limit",
            "finalize",
            "scope",
            "jsMode",
            "verbose",
            "collation",
        ],
    );
    let settings = args.settings(&place.settings);
    args.finish()?;
    let out = body.get_document("out").ok();
    let inline = out.is_some_and(|o| o.contains_key("inline"));
    let kind = if inline {
        Kind::Read
    } else {
        Kind::ReadAndWrite
    };
    let reply = run(place, body, &session, kind, &settings)?;
    check_write(&reply)?;
    let results = reply.get_array("results").ok().into_iter().flatten();
    Ok(Got::Documents(
        results.filter_map(Bson::as_document).cloned().collect(),
    ))
}

/// The command of `runCommand` and similar operations, with its name as the first field.
fn given(args: &mut Args) -> Done<Document> {
    let name = args.need_str("commandName")?;
    let mut command = args.need_doc("command")?;
    let Some(value) = command.remove(&name) else {
        return broken(format!("the command has no {name}"));
    };
    let mut body = doc! { name: value };
    body.extend(command);
    Ok(body)
}

/// `runCommand`.
pub(crate) fn run_command(place: &Place, mut args: Args, session: SessionRef) -> Done<Got> {
    let body = given(&mut args)?;
    // These commands do not inherit concerns.
    let settings = args.settings(&Settings::default());
    args.finish()?;
    Ok(Got::document(run(
        place,
        body,
        &session,
        Kind::Bare,
        &settings,
    )?))
}

/// `runCursorCommand` and `createCommandCursor`.
pub(crate) fn command_cursor(place: &Place, mut args: Args, session: SessionRef) -> Done<Cursor> {
    let body = given(&mut args)?;
    let mut more = Document::new();
    args.pass(&mut more, &["batchSize", "maxTimeMS", "comment"]);
    args.take("cursorType");
    let settings = args.settings(&Settings::default());
    args.finish()?;
    open(place, body, session, Kind::Bare, settings, more, None)
}
