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
    let count = |name: &str| reply.get(name).and_then(whole).unwrap_or(0);
    let mut result = doc! {
        "insertedCount": count("nInserted"),
        "upsertedCount": count("nUpserted"),
        "matchedCount": count("nMatched"),
        "modifiedCount": count("nModified"),
        "deletedCount": count("nDeleted"),
    };
    let mut failure: Option<Failure> = None;
    if let Ok(e) = reply.get_document("writeConcernError") {
        let mut f = Failure::from_document(e, &reply);
        // The error belongs to the list, not to the operation itself.
        f.code = None;
        f.write_concern_errors.push(as_driver(e));
        failure = Some(f);
    }
    let mut details = [Document::new(), Document::new(), Document::new()];
    let mut cursor = Cursor::open_from(
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
    loop {
        let next = match cursor.next_document() {
            Ok(Some(d)) => d,
            Ok(None) => break,
            Err(e) => {
                let mut all = failure.unwrap_or_default();
                all.message = e.message;
                all.code = e.code;
                all.code_name = e.code_name;
                all.labels = e.labels;
                all.client = e.client;
                all.network = e.network;
                all.response = e.response;
                failure = Some(all);
                break;
            }
        };
        let index = next.get("idx").and_then(whole).unwrap_or(0);
        if next.get("ok").and_then(whole) != Some(1) {
            let f = failure.get_or_insert_with(|| Failure {
                response: Some(reply.clone()),
                ..Failure::default()
            });
            f.write_errors.push((index, as_driver(&next)));
            continue;
        }
        let n = next.get("n").and_then(whole).unwrap_or(0);
        let shape = usize::try_from(index)
            .ok()
            .and_then(|i| models.shapes.get(i));
        let [inserts, updates, deletes] = &mut details;
        match shape {
            Some(Shape::Insert(id)) => {
                inserts.insert(index.to_string(), doc! { "insertedId": id.clone() });
            }
            Some(Shape::Update) => {
                let mut d = doc! {
                    "matchedCount": n,
                    "modifiedCount": next.get("nModified").and_then(whole).unwrap_or(0),
                };
                if let Ok(u) = next.get_document("upserted") {
                    d.insert("upsertedId", u.get("_id").cloned().unwrap_or(Bson::Null));
                }
                updates.insert(index.to_string(), d);
            }
            Some(Shape::Delete) => {
                deletes.insert(index.to_string(), doc! { "deletedCount": n });
            }
            None => return broken(format!("the server tells of a write {index}")),
        }
    }
    if verbose {
        let [inserts, updates, deletes] = details;
        result.insert("insertResults", inserts);
        result.insert("updateResults", updates);
        result.insert("deleteResults", deletes);
    }
    match failure {
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
