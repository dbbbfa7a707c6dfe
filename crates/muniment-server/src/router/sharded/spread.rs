//! What shards say of the statements of a writing command, put together.

use crate::context::CommandContext;
use crate::sets::Reply;
use muniment_value::{
    ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, ValueBuf, doc, new_object_id, number,
};
use muniment_wire::client;
use std::collections::BTreeMap;

/// What a command's statements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// Documents.
    Inserts,
    /// `{q, u, multi, upsert, …}`.
    Updates,
    /// `{q, limit, …}`.
    Deletes,
}

impl Writes {
    /// The field that holds the statements.
    pub fn field(self) -> &'static str {
        match self {
            Writes::Inserts => "documents",
            Writes::Updates => "updates",
            Writes::Deletes => "deletes",
        }
    }

    /// The command that has such statements.
    pub fn command(self) -> &'static str {
        match self {
            Writes::Inserts => "insert",
            Writes::Updates => "update",
            Writes::Deletes => "delete",
        }
    }
}

/// A document as the client sent it, or as the router has completed it.
pub enum Owned<'a> {
    /// As it came.
    Sent(Doc<'a>),
    /// With an `_id`.
    Made(DocBuf),
}

/// A statement and its number within a retryable command.
pub struct Statement<'a> {
    /// The document.
    pub doc: Owned<'a>,
    /// The number.
    pub id: i64,
}

/// The numbers of a command's statements.
pub struct StatementIds {
    first: i64,
    each: Vec<i64>,
}

impl StatementIds {
    /// Those that the client gives, or from 0 on.
    pub fn of(cx: &CommandContext<'_>) -> StatementIds {
        let first = cx.args.get("stmtId").and_then(number::to_i64_clamped);
        let each = cx.args.array("stmtIds").unwrap_or(Doc::EMPTY).values();
        StatementIds {
            first: first.unwrap_or(0),
            each: each.filter_map(number::to_i64_clamped).collect(),
        }
    }

    /// That of the statement at a place.
    pub fn at(&self, place: usize) -> i64 {
        let given = self.each.get(place).copied();
        given.unwrap_or_else(|| self.first.saturating_add(place as i64))
    }
}

impl<'a> Owned<'a> {
    /// A document that is to be inserted. The `_id` may be a part of the key, so the router gives it.
    pub fn with_id(doc: Doc<'a>) -> Owned<'a> {
        if doc.get("_id").is_some() {
            return Owned::Sent(doc);
        }
        let mut made = doc! { "_id": Value::ObjectId(new_object_id()) };
        made.append_all(doc);
        Owned::Made(made)
    }

    /// The document.
    pub fn as_doc(&self) -> Doc<'_> {
        match self {
            Owned::Sent(doc) => *doc,
            Owned::Made(made) => made.as_doc(),
        }
    }
}

/// What a shard has done of the statements that it was sent. Indexes are places among these.
#[derive(Default)]
pub struct Done {
    /// The reply's `n`.
    pub n: i64,
    /// The reply's `nModified`.
    pub modified: i64,
    /// The reply's `upserted`.
    pub upserted: Vec<(usize, ValueBuf)>,
    errors: Vec<(usize, DocBuf)>,
    concern: Option<DocBuf>,
    retried: Vec<ValueBuf>,
}

impl Done {
    /// Reads a reply.
    ///
    /// # Errors
    /// The error of the command as a whole.
    pub fn read(reply: &Reply) -> Result<Done> {
        let body = reply.body.as_doc();
        client::check_ok(body)?;
        let number = |name: &str| body.get(name).and_then(|v| v.as_i64_exact()).unwrap_or(0);
        let list = |name: &str| body.get_array(name).unwrap_or(Doc::EMPTY).values();
        let index =
            |d: Doc<'_>| d.get("index").and_then(|v| v.as_i64_exact()).unwrap_or(0) as usize;
        let upserted = list("upserted").filter_map(|v| v.as_doc());
        let errors = list("writeErrors").filter_map(|v| v.as_doc());
        Ok(Done {
            n: number("n"),
            modified: number("nModified"),
            upserted: upserted
                .filter_map(|d| Some((index(d), ValueBuf::new(d.get("_id")?))))
                .collect(),
            errors: errors.map(|d| (index(d), d.to_buf())).collect(),
            concern: body.get_doc("writeConcernError").map(|d| d.to_buf()),
            retried: list("retriedStmtIds").map(ValueBuf::new).collect(),
        })
    }

    /// What one update has done that has moved its document.
    pub fn moved() -> Done {
        Done {
            n: 1,
            modified: 1,
            ..Done::default()
        }
    }

    /// Whether the first error says that the document would belong to another shard.
    pub fn would_move(&self) -> bool {
        let first = self.errors.first();
        first
            .is_some_and(|(_, d)| client::code_of(d.as_doc()) == Some(Code::WouldChangeOwningShard))
    }

    /// The place of the first statement that failed.
    pub fn first_error(&self) -> Option<usize> {
        self.errors.first().map(|(i, _)| *i)
    }

    /// Takes out the statements that a shard refused since it knows another version of the collection.
    pub fn take_stale(&mut self) -> Option<(Vec<usize>, Error)> {
        let is = |d: &DocBuf| client::code_of(d.as_doc()) == Some(Code::StaleConfig);
        let (refused, errors) = std::mem::take(&mut self.errors)
            .into_iter()
            .partition(|(_, d)| is(d));
        self.errors = errors;
        let refused: Vec<(usize, DocBuf)> = refused;
        let (_, first) = refused.first()?;
        let mut e = Error::new(
            Code::StaleConfig,
            first.as_doc().get_str("errmsg").unwrap_or_default(),
        );
        e = e.with_extra(first.clone());
        Some((refused.into_iter().map(|(i, _)| i).collect(), e))
    }
}

/// What the shards have done together. Indexes are places among the client's statements.
#[derive(Default)]
pub struct Outcome {
    n: i64,
    modified: i64,
    upserted: Vec<(usize, ValueBuf)>,
    /// By the places of the statements.
    errors: BTreeMap<usize, DocBuf>,
    concern: Option<DocBuf>,
    retried: Vec<ValueBuf>,
}

impl Outcome {
    /// Adds what a shard has done of the statements at these places.
    pub fn add(&mut self, done: Done, places: &[usize]) {
        let place = |i: usize| places.get(i).copied().unwrap_or_default();
        self.n += done.n;
        self.modified += done.modified;
        let upserted = done.upserted.into_iter();
        self.upserted.extend(upserted.map(|(i, id)| (place(i), id)));
        for (i, error) in done.errors {
            self.error(place(i), error.as_doc());
        }
        self.concern = self.concern.take().or(done.concern);
        self.retried.extend(done.retried);
    }

    /// Notes that a statement has failed at the router.
    pub fn fails(&mut self, place: usize, e: &Error) {
        self.error(place, told(e).as_doc());
    }

    /// Whether a statement has failed.
    pub fn failed(&self, place: usize) -> bool {
        self.errors.contains_key(&place)
    }

    fn error(&mut self, place: usize, error: Doc<'_>) {
        // A statement for all shards may fail on several of them, and has one error.
        if self.failed(place) {
            return;
        }
        let mut d = doc! { "index": i32::try_from(place).unwrap_or(i32::MAX) };
        if client::code_of(error) == Some(Code::WouldChangeOwningShard) {
            // An update of one document is moved by the router.
            d.append_all(told(&no_multi()).as_doc());
            self.errors.insert(place, d);
            return;
        }
        for e in error.iter().filter(|e| e.name() != "index") {
            d.append_elem(e);
        }
        self.errors.insert(place, d);
    }

    /// Whether nothing has been done.
    pub fn is_empty(&self) -> bool {
        self.n == 0 && self.errors.is_empty() && self.concern.is_none()
    }

    /// Whether a statement has failed.
    pub fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Writes the reply, as one server would.
    pub fn write(mut self, cx: &mut CommandContext<'_>, updates: bool) {
        let w = &mut cx.reply;
        w.field("n", self.n as i32);
        if updates {
            self.upserted.sort_by_key(|(i, _)| *i);
            if !self.upserted.is_empty() {
                let item = |(i, id): &(usize, ValueBuf)| doc! { "index": *i as i32, "_id": id };
                w.field(
                    "upserted",
                    self.upserted.iter().map(item).collect::<ArrayBuf>(),
                );
            }
            w.field("nModified", self.modified as i32);
        }
        if !self.errors.is_empty() {
            let errors: ArrayBuf = self.errors.into_values().collect();
            w.field("writeErrors", errors);
        }
        if let Some(concern) = self.concern {
            w.field("writeConcernError", concern);
        }
        if !self.retried.is_empty() {
            let mut retried = ArrayBuf::new();
            for id in &self.retried {
                retried.push(id.as_value());
            }
            w.field("retriedStmtIds", retried);
        }
    }
}

/// `{code, errmsg, …}`: an error as that of a statement.
pub fn told(e: &Error) -> DocBuf {
    let mut d = doc! { "code": e.code().0, "errmsg": e.message() };
    // The times of a shard's reply are no part of the error.
    let of_reply = ["$clusterTime", "operationTime"];
    for field in e.extra().as_doc() {
        if !of_reply.contains(&field.name()) {
            d.append_elem(field);
        }
    }
    d
}

/// 72: an update of many documents would bring some of them to other shards.
pub fn no_multi() -> Error {
    Error::new(
        Code::InvalidOptions,
        "Multi-update operations are not allowed when updating the shard key field.",
    )
}

/// The command without its statements: what the client sent, with the numbers of these statements.
pub fn command(cx: &CommandContext<'_>, writes: Writes, ordered: bool, ids: &[i64]) -> DocBuf {
    let mut body = DocBuf::new();
    body.append(writes.command(), cx.collection_name());
    for e in cx.request.body.iter().skip(1) {
        if ![
            "documents",
            "updates",
            "deletes",
            "ordered",
            "stmtId",
            "stmtIds",
        ]
        .contains(&e.name())
        {
            body.append_elem(e);
        }
    }
    body.append("ordered", ordered);
    if cx.generic.txn_number.is_some() && !cx.generic.in_transaction() {
        number_statements(&mut body, ids);
    }
    body
}

/// Appends the numbers of a command's statements. If they follow on each other, the first says all: a command may be as
/// long as messages can be.
pub fn number_statements(body: &mut DocBuf, ids: &[i64]) {
    let follow = ids.windows(2).all(|two| two[1] == two[0] + 1);
    match ids.first().filter(|_| follow) {
        Some(first) => {
            body.append("stmtId", *first as i32);
        }
        None => {
            let ids: ArrayBuf = ids.iter().map(|id| *id as i32).collect();
            body.append("stmtIds", ids);
        }
    }
}
