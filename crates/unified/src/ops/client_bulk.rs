//! `clientBulkWrite`: the writes of several collections in one `bulkWrite` command.

use super::bulk::{change, with_id};
use super::{Args, Got};
use crate::client::{Call, Client, Kind};
use crate::cursor::{Cursor, Opening};
use crate::failure::{Done, Failure, broken, whole};
use crate::session::SessionRef;
use bson::{Bson, Document, doc};
use std::rc::Rc;

/// The kind of a write's result.
enum Shape {
    Insert(Bson),
    Update,
    Delete,
}

/// The operations, their namespaces, the kinds of their results, and whether all may be sent again.
struct Models {
    ops: Vec<Document>,
    namespaces: Vec<Document>,
    shapes: Vec<Shape>,
    retryable: bool,
}

fn parse(models: Vec<Bson>) -> Done<Models> {
    let mut m = Models {
        ops: Vec::new(),
        namespaces: Vec::new(),
        shapes: Vec::new(),
        retryable: true,
    };
    for model in models {
        let Bson::Document(model) = model else {
            return broken(format!("a model is {model}"));
        };
        for (name, arguments) in model {
            let Bson::Document(arguments) = arguments else {
                return broken(format!("{name} has {arguments}"));
            };
            m.add(&name, Args::new(&name, arguments))?;
        }
    }
    Ok(m)
}

impl Models {
    fn add(&mut self, name: &str, mut args: Args) -> Done<()> {
        let ns = doc! { "ns": args.need_str("namespace")? };
        let known = self.namespaces.iter().position(|n| *n == ns);
        let at = known.unwrap_or_else(|| {
            self.namespaces.push(ns);
            self.namespaces.len() - 1
        }) as i32;
        let many = name.ends_with("Many");
        self.retryable &= !many;
        let op = match name {
            "insertOne" => {
                let d = with_id(args.need_doc("document")?);
                let id = d.get("_id").cloned().unwrap_or(Bson::Null);
                self.shapes.push(Shape::Insert(id));
                doc! { "insert": at, "document": d }
            }
            "updateOne" | "updateMany" | "replaceOne" => {
                let mut op = doc! { "update": at, "filter": args.need("filter")? };
                op.insert("updateMods", change(&mut args, name == "replaceOne")?);
                op.insert("multi", many);
                args.pass(
                    &mut op,
                    &["upsert", "arrayFilters", "collation", "hint", "sort"],
                );
                self.shapes.push(Shape::Update);
                op
            }
            "deleteOne" | "deleteMany" => {
                let mut op = doc! { "delete": at, "filter": args.need("filter")?, "multi": many };
                args.pass(&mut op, &["collation", "hint"]);
                self.shapes.push(Shape::Delete);
                op
            }
            other => return broken(format!("no such model: {other}")),
        };
        self.ops.push(op);
        args.finish()
    }
}

/// An error with the field names of drivers: `message` is the server's `errmsg`.
fn as_driver(error: &Document) -> Document {
    let mut e = error.clone();
    if let Some(message) = e.remove("errmsg") {
        e.insert("message", message);
    }
    if let Some(details) = e.remove("errInfo") {
        e.insert("details", details);
    }
    e
}

/// The numbers of writes in the reply.
fn totals(reply: &Document) -> Document {
    let count = |name: &str| reply.get(name).and_then(whole).unwrap_or(0);
    doc! {
        "insertedCount": count("nInserted"),
        "upsertedCount": count("nUpserted"),
        "matchedCount": count("nMatched"),
        "modifiedCount": count("nModified"),
        "deletedCount": count("nDeleted"),
    }
}

/// What the server tells of the writes: their results by their indexes, and all errors as one.
#[derive(Default)]
struct Outcome {
    inserts: Document,
    updates: Document,
    deletes: Document,
    failure: Option<Failure>,
}

impl Outcome {
    /// Reads the reply, and the results from its cursor. `shapes` has the kinds of the results.
    fn read(reply: &Document, mut cursor: Cursor, shapes: &[Shape]) -> Done<Outcome> {
        let mut outcome = Outcome::default();
        if let Ok(e) = reply.get_document("writeConcernError") {
            let mut f = Failure::from_document(e, reply);
            // The error belongs to the list, not to the operation itself.
            f.code = None;
            f.write_concern_errors.push(as_driver(e));
            outcome.failure = Some(f);
        }
        loop {
            let next = match cursor.next_document() {
                Ok(Some(d)) => d,
                Ok(None) => return Ok(outcome),
                Err(e) => {
                    let known = outcome.failure.unwrap_or_default();
                    outcome.failure = Some(Failure {
                        write_errors: known.write_errors,
                        write_concern_errors: known.write_concern_errors,
                        result: known.result,
                        ..e
                    });
                    return Ok(outcome);
                }
            };
            outcome.add(&next, reply, shapes)?;
        }
    }

    /// Adds the result of one write.
    fn add(&mut self, next: &Document, reply: &Document, shapes: &[Shape]) -> Done<()> {
        let number = |name: &str| next.get(name).and_then(whole).unwrap_or(0);
        let index = number("idx");
        if next.get("ok").and_then(whole) != Some(1) {
            let f = self.failure.get_or_insert_with(|| Failure {
                response: Some(reply.clone()),
                ..Failure::default()
            });
            f.write_errors.push((index, as_driver(next)));
            return Ok(());
        }
        match usize::try_from(index).ok().and_then(|i| shapes.get(i)) {
            Some(Shape::Insert(id)) => {
                let result = doc! { "insertedId": id.clone() };
                self.inserts.insert(index.to_string(), result);
            }
            Some(Shape::Update) => {
                let mut result = doc! {
                    "matchedCount": number("n"),
                    "modifiedCount": number("nModified"),
                };
                if let Ok(u) = next.get_document("upserted") {
                    result.insert("upsertedId", u.get("_id").cloned().unwrap_or(Bson::Null));
                }
                self.updates.insert(index.to_string(), result);
            }
            Some(Shape::Delete) => {
                let result = doc! { "deletedCount": number("n") };
                self.deletes.insert(index.to_string(), result);
            }
            None => return broken(format!("the server tells of a write {index}")),
        }
        Ok(())
    }
}

/// Runs the operation.
pub(crate) fn run(client: &Rc<Client>, mut args: Args, session: SessionRef) -> Done<Got> {
    let models = parse(args.need_array("models")?)?;
    let flag = |args: &mut Args, name: &str| args.take(name).and_then(|v| v.as_bool());
    let verbose = flag(&mut args, "verboseResults").unwrap_or(false);
    let ordered = flag(&mut args, "ordered").unwrap_or(true);
    let mut body = doc! { "bulkWrite": 1, "errorsOnly": !verbose, "ordered": ordered };
    args.pass(
        &mut body,
        &["bypassDocumentValidation", "comment", "let", "rawData"],
    );
    let settings = args.settings(&client.settings);
    args.finish()?;
    let refused = match settings.unacknowledged() {
        _ if models.ops.is_empty() => Some("no models are given"),
        true if verbose => Some("cannot request unacknowledged write concern and verbose results"),
        true if ordered => Some("cannot request unacknowledged write concern and ordered writes"),
        _ => None,
    };
    if let Some(why) = refused {
        return Err(Failure::of_client(why).into());
    }
    let mut more = Document::new();
    if let Some(c) = body.get("comment") {
        more.insert("comment", c.clone());
    }
    let reply = client.run(Call {
        db: "admin",
        body,
        sequences: vec![("ops", models.ops), ("nsInfo", models.namespaces)],
        session: Some(&session),
        kind: if models.retryable {
            Kind::RetryableWrite
        } else {
            Kind::Write
        },
        settings: &settings,
    })?;
    if settings.unacknowledged() {
        return Ok(Got::document(doc! { "acknowledged": false }));
    }
    let cursor = Cursor::open_from(
        Opening {
            client: client.clone(),
            db: "admin".into(),
            body: Document::new(),
            session,
            kind: Kind::Bare,
            settings,
            more,
            limit: None,
        },
        &reply,
    )?;
    let outcome = Outcome::read(&reply, cursor, &models.shapes)?;
    let mut result = totals(&reply);
    if verbose {
        result.insert("insertResults", outcome.inserts);
        result.insert("updateResults", outcome.updates);
        result.insert("deleteResults", outcome.deletes);
    }
    match outcome.failure {
        None => Ok(Got::document(result)),
        Some(mut f) => {
            // There is a result only if a write is known to have been done.
            let all_failed = ordered && f.write_errors.first().is_some_and(|(i, _)| *i == 0)
                || !ordered && f.write_errors.len() == models.shapes.len();
            f.result = (!all_failed).then_some(result);
            Err(f.into())
        }
    }
}
