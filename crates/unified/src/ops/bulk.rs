//! Writes to a collection as statements of insert, update and delete commands, and their results, both for
//! single writes and for `bulkWrite`.

use super::{Args, Place};
use crate::client::{Call, Kind, Settings};
use crate::failure::{Done, Failure, broken, whole};
use crate::session::SessionRef;
use bson::{Bson, Document, doc};

/// The command of a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// `insert`, documents.
    Insert,
    /// `update`, updates.
    Update,
    /// `delete`, deletes.
    Delete,
}

/// One write.
pub(crate) struct Statement {
    /// Its command.
    pub verb: Verb,
    /// The document, or the statement.
    pub document: Document,
    /// False for a write that changes many documents, which is never sent again.
    pub retryable: bool,
}

impl Statement {
    /// The write with the name `name` in a test (`updateOne` …), with its arguments.
    ///
    /// # Errors
    /// A malformed test, or arguments that a driver refuses.
    pub(crate) fn new(name: &str, args: &mut Args) -> Done<Statement> {
        let mut document = Document::new();
        let many = name.ends_with("Many");
        let verb = match name {
            "insertOne" => {
                document = with_id(args.need_doc("document")?);
                Verb::Insert
            }
            "updateOne" | "updateMany" | "replaceOne" => {
                document.insert("q", args.need("filter")?);
                document.insert("u", change(args, name == "replaceOne")?);
                if many {
                    document.insert("multi", true);
                }
                args.pass(
                    &mut document,
                    &["upsert", "collation", "hint", "arrayFilters", "sort"],
                );
                Verb::Update
            }
            "deleteOne" | "deleteMany" => {
                document.insert("q", args.need("filter")?);
                document.insert("limit", i32::from(!many));
                args.pass(&mut document, &["collation", "hint"]);
                Verb::Delete
            }
            other => return broken(format!("no such write: {other}")),
        };
        Ok(Statement {
            verb,
            document,
            retryable: !many,
        })
    }
}

/// A document with an `_id` as its first field.
pub(crate) fn with_id(d: Document) -> Document {
    if d.contains_key("_id") {
        return d;
    }
    let mut new = doc! { "_id": bson::oid::ObjectId::new() };
    new.extend(d);
    new
}

/// The update or replacement, which a driver checks before it sends it.
///
/// # Errors
/// The client's error if it is of the other kind.
pub(crate) fn change(args: &mut Args, replacement: bool) -> Done<Bson> {
    let change = args.need(if replacement { "replacement" } else { "update" })?;
    let dollar = |d: &Document| d.keys().next().is_some_and(|k| k.starts_with('$'));
    match &change {
        Bson::Document(d) if replacement && dollar(d) => {
            Err(Failure::of_client("a replacement must not hold update operators").into())
        }
        Bson::Document(d) if !replacement && !dollar(d) => {
            Err(Failure::of_client("an update needs update operators").into())
        }
        Bson::Document(_) | Bson::Array(_) => Ok(change),
        other => broken(format!("an update is {other}")),
    }
}

/// The results of the writes.
#[derive(Default)]
pub(crate) struct Tally {
    inserted: i64,
    matched: i64,
    modified: i64,
    deleted: i64,
    inserted_ids: Document,
    upserted_ids: Document,
    failure: Failure,
    failed: bool,
    acknowledged: bool,
}

impl Tally {
    /// The result of a bulk write.
    pub(crate) fn bulk_result(&self) -> Document {
        if !self.acknowledged {
            return doc! { "acknowledged": false };
        }
        doc! {
            "insertedCount": self.inserted,
            "matchedCount": self.matched,
            "modifiedCount": self.modified,
            "deletedCount": self.deleted,
            "upsertedCount": self.upserted_ids.len() as i64,
            "insertedIds": self.inserted_ids.clone(),
            "upsertedIds": self.upserted_ids.clone(),
        }
    }

    /// The result of a single write.
    pub(crate) fn single_result(&self, verb: Verb) -> Document {
        if !self.acknowledged {
            return doc! { "acknowledged": false };
        }
        match verb {
            Verb::Insert => match self.inserted_ids.get("0") {
                Some(id) => doc! { "insertedId": id.clone() },
                None => Document::new(),
            },
            Verb::Delete => doc! { "deletedCount": self.deleted },
            Verb::Update => {
                let mut d = doc! {
                    "matchedCount": self.matched,
                    "modifiedCount": self.modified,
                    "upsertedCount": self.upserted_ids.len() as i64,
                };
                if let Some(id) = self.upserted_ids.get("0") {
                    d.insert("upsertedId", id.clone());
                }
                d
            }
        }
    }

    fn note(&mut self, error: &Document, reply: &Document) {
        let new = Failure::from_document(error, reply);
        let old = &mut self.failure;
        match self.failed {
            false => *old = new,
            true => {
                old.message.push_str("; ");
                old.message.push_str(&new.message);
                old.code_name = old.code_name.take().or(new.code_name);
            }
        }
        self.failed = true;
    }

    /// Adds a reply. `sent` has the statements with their indexes in the request.
    fn add(&mut self, verb: Verb, reply: &Document, sent: &[(usize, Document)]) {
        let place = |index: i64| {
            let at = usize::try_from(index).ok().and_then(|i| sent.get(i));
            at.map_or(index, |(place, _)| *place as i64)
        };
        let n = reply.get("n").and_then(whole).unwrap_or(0);
        let list = |name: &str| -> Vec<Document> {
            let all = reply.get_array(name).ok().into_iter().flatten();
            all.filter_map(Bson::as_document).cloned().collect()
        };
        let index = |d: &Document| d.get("index").and_then(whole).unwrap_or(0);
        let errors = list("writeErrors");
        match verb {
            Verb::Insert => {
                self.inserted += n;
                for (i, (place, d)) in sent.iter().enumerate() {
                    let failed = errors.iter().any(|e| index(e) == i as i64);
                    if !failed {
                        let id = d.get("_id").cloned().unwrap_or(Bson::Null);
                        self.inserted_ids.insert(place.to_string(), id);
                    }
                }
            }
            Verb::Delete => self.deleted += n,
            Verb::Update => {
                let upserted = list("upserted");
                self.matched += n - upserted.len() as i64;
                self.modified += reply.get("nModified").and_then(whole).unwrap_or(0);
                for u in upserted {
                    let id = u.get("_id").cloned().unwrap_or(Bson::Null);
                    self.upserted_ids.insert(place(index(&u)).to_string(), id);
                }
            }
        }
        for e in errors {
            self.note(&e, reply);
            let at = place(index(&e));
            self.failure.write_errors.push((at, e));
        }
        if let Ok(e) = reply.get_document("writeConcernError") {
            self.note(e, reply);
            self.failure.write_concern_errors.push(e.clone());
        }
    }
}

/// The writes of one command, with their indexes in the request.
struct Group {
    verb: Verb,
    retryable: bool,
    sent: Vec<(usize, Document)>,
}

/// Ordered writes are split where the command changes; unordered ones are grouped by command.
fn groups(statements: Vec<Statement>, ordered: bool) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (i, s) in statements.into_iter().enumerate() {
        let fits = match ordered {
            true => groups.last_mut().filter(|g| g.verb == s.verb),
            false => groups.iter_mut().find(|g| g.verb == s.verb),
        };
        match fits {
            Some(g) => {
                g.retryable &= s.retryable;
                g.sent.push((i, s.document));
            }
            None => groups.push(Group {
                verb: s.verb,
                retryable: s.retryable,
                sent: vec![(i, s.document)],
            }),
        }
    }
    groups
}

/// Runs the statements.
///
/// # Errors
/// All write errors and write concern errors as one, or the error of a command.
pub(crate) fn execute(
    place: &Place,
    statements: Vec<Statement>,
    ordered: bool,
    extras: &Document,
    session: &SessionRef,
    settings: &Settings,
) -> Result<Tally, Failure> {
    let mut tally = Tally {
        acknowledged: !settings.unacknowledged(),
        ..Tally::default()
    };
    for Group {
        verb,
        retryable,
        sent,
    } in groups(statements, ordered)
    {
        let (command, field) = match verb {
            Verb::Insert => ("insert", "documents"),
            Verb::Update => ("update", "updates"),
            Verb::Delete => ("delete", "deletes"),
        };
        let mut body = doc! { command: &place.collection, "ordered": ordered };
        body.extend(extras.clone());
        if verb == Verb::Insert {
            body.remove("let");
        }
        if verb == Verb::Delete {
            body.remove("bypassDocumentValidation");
        }
        let documents = sent.iter().map(|(_, d)| d.clone()).collect();
        let reply = place.client.run(Call {
            db: &place.db,
            body,
            sequences: vec![(field, documents)],
            session: Some(session),
            kind: if retryable {
                Kind::RetryableWrite
            } else {
                Kind::Write
            },
            settings,
        });
        match reply {
            Ok(reply) => tally.add(verb, &reply, &sent),
            Err(mut e) => {
                e.result = Some(tally.bulk_result());
                return Err(e);
            }
        }
        if ordered && !tally.failure.write_errors.is_empty() {
            break;
        }
    }
    if tally.failed {
        let mut e = std::mem::take(&mut tally.failure);
        e.result = Some(tally.bulk_result());
        return Err(e);
    }
    Ok(tally)
}
