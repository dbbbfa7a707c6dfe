//! Operations that write documents of a collection.

use super::bulk::{Statement, change, execute, with_id};
use super::{Args, Got, Place, run};
use crate::client::{Kind, check_write};
use crate::failure::{Done, Failure, broken};
use crate::session::SessionRef;
use bson::{Bson, Document, doc};

/// Options of a write command.
const EXTRAS: &[&str] = &["bypassDocumentValidation", "comment", "let", "rawData"];

/// `insertOne`, `updateOne`, `updateMany`, `replaceOne`, `deleteOne`, `deleteMany`.
pub(crate) fn single(place: &Place, name: &str, mut args: Args, session: &SessionRef) -> Done<Got> {
    let statement = Statement::new(name, &mut args)?;
    let verb = statement.verb;
    let mut extras = Document::new();
    args.pass(&mut extras, EXTRAS);
    let settings = args.settings(&place.settings);
    args.finish()?;
    let tally = execute(place, vec![statement], true, &extras, session, &settings)?;
    Ok(Got::document(tally.single_result(verb)))
}

fn ordered(args: &mut Args) -> bool {
    args.take("ordered")
        .and_then(|v| v.as_bool())
        .unwrap_or(true)
}

/// `insertMany`.
pub(crate) fn insert_many(place: &Place, mut args: Args, session: &SessionRef) -> Done<Got> {
    let mut statements = Vec::new();
    for d in args.need_array("documents")? {
        let Bson::Document(d) = d else {
            return broken(format!("insertMany of {d}"));
        };
        statements.push(Statement {
            verb: super::bulk::Verb::Insert,
            document: with_id(d),
            retryable: true,
        });
    }
    bulk(place, statements, args, session)
}

/// `bulkWrite`.
pub(crate) fn bulk_write(place: &Place, mut args: Args, session: &SessionRef) -> Done<Got> {
    let mut statements = Vec::new();
    for request in args.need_array("requests")? {
        let Bson::Document(request) = request else {
            return broken(format!("a bulkWrite's request is {request}"));
        };
        for (name, arguments) in request {
            let Bson::Document(arguments) = arguments else {
                return broken(format!("{name} has {arguments}"));
            };
            let mut of = Args::new(&name, arguments);
            statements.push(Statement::new(&name, &mut of)?);
            of.finish()?;
        }
    }
    bulk(place, statements, args, session)
}

fn bulk(
    place: &Place,
    statements: Vec<Statement>,
    mut args: Args,
    session: &SessionRef,
) -> Done<Got> {
    let ordered = ordered(&mut args);
    let mut extras = Document::new();
    args.pass(&mut extras, EXTRAS);
    let settings = args.settings(&place.settings);
    args.finish()?;
    if statements.is_empty() {
        return Err(Failure::of_client("no writes are given").into());
    }
    let tally = execute(place, statements, ordered, &extras, session, &settings)?;
    Ok(Got::document(tally.bulk_result()))
}

/// `findOneAndDelete`, `findOneAndReplace`, `findOneAndUpdate`.
pub(crate) fn find_and_modify(
    place: &Place,
    name: &str,
    mut args: Args,
    session: &SessionRef,
) -> Done<Got> {
    let mut body = doc! { "findAndModify": &place.collection, "query": args.need("filter")? };
    match name {
        "findOneAndDelete" => {
            body.insert("remove", true);
        }
        _ => {
            body.insert("update", change(&mut args, name == "findOneAndReplace")?);
            if let Some(when) = args.take("returnDocument") {
                let after = match when.as_str() {
                    Some(s) if s.eq_ignore_ascii_case("after") => true,
                    Some(s) if s.eq_ignore_ascii_case("before") => false,
                    _ => return broken(format!("returnDocument is {when}")),
                };
                body.insert("new", after);
            }
        }
    }
    if let Some(p) = args.take("projection") {
        body.insert("fields", p);
    }
    args.pass(
        &mut body,
        &[
            "sort",
            "upsert",
            "arrayFilters",
            "collation",
            "hint",
            "maxTimeMS",
            "bypassDocumentValidation",
            "comment",
            "let",
            "rawData",
        ],
    );
    let settings = args.settings(&place.settings);
    args.finish()?;
    let reply = run(place, body, session, Kind::RetryableWrite, &settings)?;
    if settings.unacknowledged() {
        return Ok(Got::Value(Some(Bson::Null)));
    }
    check_write(&reply)?;
    Ok(Got::Value(Some(
        reply.get("value").cloned().unwrap_or(Bson::Null),
    )))
}
