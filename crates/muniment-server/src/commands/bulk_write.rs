//! `bulkWrite`: statements on several collections in one command.

use super::cursor_reply::limits;
use super::hint;
use super::write_reply::check_batch;
use crate::auth::{self, Asks, Needs};
use crate::context::CommandContext;
use crate::metrics::OpKind;
use crate::namespace;
use crate::registry::{CommandSpec, Kind, Names, Routed, Secret, Statements};
use crate::router::Router;
use crate::router::sharded::{bulk, told};
use bytes::Bytes;
use muniment_auth::action::{Action, Actions};
use muniment_exec::{
    BatchLimits, Cursor, DeleteStatement, InsertOptions, StatementOutcome, UpdateStatement,
};
use muniment_op::{Account, Interrupt, Share};
use muniment_value::args::{Args, Field, Types, opt, refused, req, uuid};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc, number};

const FIELDS: &[Field] = &[
    opt("ops", Types::ARRAY),
    opt("nsInfo", Types::ARRAY),
    opt("ordered", Types::BOOL),
    opt("bypassDocumentValidation", Types::SAFE_BOOL),
    opt("bypassEmptyTsReplacement", Types::SAFE_BOOL),
    opt("errorsOnly", Types::BOOL),
    opt("let", Types::OBJECT),
    opt("cursor", Types::OBJECT),
    // The numbers of a retryable write's statements, which needs a replica set.
    opt("stmtId", Types::NUMBER),
    opt("stmtIds", Types::ARRAY),
];

const NS_INFO: &[Field] = &[
    req("ns", Types::STRING),
    opt("collectionUUID", Types::BINARY),
    refused("encryptionInformation", Types::OBJECT),
];

const INSERT: &[Field] = &[req("insert", Types::NUMBER), req("document", Types::OBJECT)];

const UPDATE: &[Field] = &[
    req("update", Types::NUMBER),
    req("filter", Types::OBJECT),
    // Of any type: the parser of updates reports a wrong one itself (9 FailedToParse).
    req("updateMods", Types::ANY),
    opt("multi", Types::BOOL),
    opt("upsert", Types::BOOL),
    opt("arrayFilters", Types::ARRAY),
    opt("hint", Types::ANY),
    opt("sort", Types::OBJECT),
    opt("constants", Types::OBJECT),
    opt("collation", Types::OBJECT),
    refused("upsertSupplied", Types::SAFE_BOOL),
];

const DELETE: &[Field] = &[
    req("delete", Types::NUMBER),
    req("filter", Types::OBJECT),
    opt("multi", Types::BOOL),
    opt("hint", Types::ANY),
    opt("collation", Types::OBJECT),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "bulkWrite",
    doc: "Writes to several collections",
    kind: Kind::Write,
    admin_only: true,
    write_concern: true,
    retryable_write: true,
    in_transactions: true,
    api_v1: true,
    fields: FIELDS,
    run,
    statements: Statements::List {
        field: "ops",
        many: |s| s.get("multi").is_some_and(|v| v.truthy()),
        many_text: "multi=true",
    },
    names: Names::NsInfo,
    secret: Secret::If(auth::writes_users_in_bulk),
    ..CommandSpec::new(Routed::By(routed), Needs::Of(needs))
};

fn needs(asks: &Asks<'_>) -> bool {
    let names: Vec<&str> = asks
        .request
        .documents("nsInfo")
        .map(|d| d.get_str("ns").unwrap_or_default())
        .collect();
    asks.request.documents("ops").all(|op| {
        let actions = match op.first().map_or("", |e| e.name()) {
            "insert" => &[Action::Insert][..],
            "update" if op.get("upsert").is_some_and(|v| v.truthy()) => {
                &[Action::Update, Action::Insert]
            }
            "update" => &[Action::Update],
            _ => &[Action::Remove],
        };
        let at = op.first().and_then(|e| number::to_i64_exact(e.value()));
        let at = at.and_then(|n| usize::try_from(n).ok());
        at.and_then(|at| names.get(at))
            .is_some_and(|ns| asks.may_on(ns, asks.with_bypass(Actions::of(actions))))
    })
}

/// One parsed operation with the index of its namespace.
enum Op<'a> {
    Insert(Doc<'a>),
    Update(UpdateStatement<'a>),
    Delete(DeleteStatement<'a>),
}

impl Op<'_> {
    fn kind(&self) -> OpKind {
        match self {
            Op::Insert(_) => OpKind::Insert,
            Op::Update(_) => OpKind::Update,
            Op::Delete(_) => OpKind::Delete,
        }
    }
}

/// A namespace, and the UUID that its collection must have if the client gave one.
type Target<'a> = (&'a str, Option<Value<'a>>);

/// The options of the command that hold for each of its operations.
#[derive(Clone, Copy)]
struct Common<'a> {
    let_: Doc<'a>,
    bypass_document_validation: bool,
    bypass_empty_ts_replacement: bool,
}

impl<'a> Common<'a> {
    fn of(a: &Args<'a>) -> Common<'a> {
        Common {
            let_: a.doc("let").unwrap_or(Doc::EMPTY),
            bypass_document_validation: a.bool("bypassDocumentValidation", false),
            bypass_empty_ts_replacement: a.bool("bypassEmptyTsReplacement", false),
        }
    }

    fn of_inserts(self) -> InsertOptions {
        InsertOptions {
            ordered: true,
            bypass_document_validation: self.bypass_document_validation,
            bypass_empty_ts_replacement: self.bypass_empty_ts_replacement,
            only: None,
        }
    }
}

#[derive(Default)]
struct Totals {
    errors: i32,
    inserted: i32,
    matched: i32,
    modified: i32,
    upserted: i32,
    deleted: i32,
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let ops = cx.documents("ops")?;
    let infos = cx.documents("nsInfo")?;
    check_batch(ops.len())?;
    if infos.is_empty() {
        return Err(no_namespaces());
    }
    let infos = infos.iter().map(|d| target(cx, d));
    let targets = infos.collect::<Result<Vec<Target<'_>>>>()?;
    let common = Common::of(&cx.args);
    // A malformed operation fails the command before anything is written.
    for d in ops.iter() {
        parse(d, targets.len(), common)?;
    }
    let ordered = cx.args.bool("ordered", true);
    let errors_only = cx.args.bool("errorsOnly", false);
    // The command counts as the operations that it consists of.
    cx.op_count = Some(0);
    let mut totals = Totals::default();
    let mut results = Vec::new();
    // The error with which all later operations fail as well.
    let mut hopeless = None;
    for (idx, d) in ops.iter().enumerate() {
        cx.op.check()?;
        let (at, op) = parse(d, targets.len(), common)?;
        cx.count(op.kind());
        let mut outcome = StatementOutcome::default();
        let done = match &hopeless {
            Some(e) => Err(Error::clone(e)),
            None => {
                let target = targets.get(at).copied().unwrap_or_default();
                if let Some(retry) = cx.op.retry() {
                    retry.start_at(idx);
                }
                run_bound(cx, target, &op, common, &mut outcome)
            }
        };
        // A failed operation may have stored a part.
        cx.note_commit(outcome.commit);
        totals.book(&op, &outcome);
        match done {
            Ok(()) if errors_only => {}
            Ok(()) => results.push(described(idx, &op, &outcome, None)),
            // The command fails as a whole, although a part of it may be stored.
            Err(e) if e.fails_command() => return Err(e),
            Err(e) => {
                if hopeless.is_none() {
                    cx.op.note_failure(&e);
                }
                totals.errors += 1;
                results.push(described(idx, &op, &outcome, Some(&e)));
                if ordered || cx.op.transaction().is_some() {
                    break;
                }
                if e.code() == Code::OutOfDiskSpace {
                    hopeless = Some(e);
                }
            }
        }
    }
    reply(cx, &totals, results)
}

/// 2: a command without `nsInfo`.
fn no_namespaces() -> Error {
    Error::bad_value("bulkWrite requires at least one entry in nsInfo")
}

/// Runs the command at a router.
fn routed(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let ops = cx.documents("ops")?;
    let infos = cx.documents("nsInfo")?;
    check_batch(ops.len())?;
    let common = Common::of(&cx.args);
    for d in ops.iter() {
        parse(d, infos.len(), common)?;
    }
    for ns in infos.iter().filter_map(|d| d.get_str("ns")) {
        namespace::split(ns)?;
    }
    let Some(done) = bulk::run(cx, router)? else {
        return Err(no_namespaces());
    };
    let [errors, inserted, matched, modified, upserted, deleted] = done.totals.map(|n| n as i32);
    let totals = Totals {
        errors,
        inserted,
        matched,
        modified,
        upserted,
        deleted,
    };
    let errors_only = cx.args.bool("errorsOnly", false);
    let shown = |d: &DocBuf| !errors_only || !d.as_doc().get("ok").is_some_and(|v| v.truthy());
    reply(
        cx,
        &totals,
        done.results.into_values().filter(shown).collect(),
    )?;
    told(cx, router);
    if let Some(concern) = done.concern {
        cx.reply.field("writeConcernError", concern);
    }
    Ok(())
}

/// The target that an entry of `nsInfo` describes.
///
/// # Errors
/// Those of a malformed entry, and of a namespace that cannot be written to.
fn target<'a>(cx: &CommandContext<'_>, info: Doc<'a>) -> Result<Target<'a>> {
    let a = Args::parse("bulkWrite.nsInfo", NS_INFO, info)?;
    let ns = a.str("ns").unwrap_or_default();
    let (db, c) = namespace::split(ns)?;
    crate::transactions::check_write(cx, ns)?;
    namespace::check_create(db, c)?;
    Ok((ns, a.get("collectionUUID")))
}

/// The number of documents that an operation matched, inserted or deleted.
fn counted(o: &StatementOutcome) -> i32 {
    o.matched as i32 + i32::from(o.upserted.is_some())
}

/// The reply's document about one operation.
fn described(idx: usize, op: &Op<'_>, o: &StatementOutcome, error: Option<&Error>) -> DocBuf {
    let mut d = doc! { "ok": f64::from(u8::from(error.is_none())), "idx": idx as i32 };
    if let Some(e) = error {
        d.append("code", e.code().0);
        d.append("errmsg", e.message());
        d.append_all(e.extra().as_doc());
    }
    d.append("n", counted(o));
    if matches!(op, Op::Update(_)) {
        d.append("nModified", o.modified as i32);
        if let Some(id) = &o.upserted {
            d.append("upserted", doc! { "_id": id });
        }
    }
    d
}

impl Totals {
    /// Counts what an operation did.
    fn book(&mut self, op: &Op<'_>, o: &StatementOutcome) {
        match op {
            Op::Insert(_) => self.inserted += counted(o),
            Op::Update(_) => {
                self.matched += o.matched as i32;
                self.modified += o.modified as i32;
                self.upserted += i32::from(o.upserted.is_some());
            }
            Op::Delete(_) => self.deleted += counted(o),
        }
    }
}

/// Runs an operation on the collection with this name until it is done. If a UUID is given, the collection
/// has to have it. The outcome is also set if the operation fails.
///
/// # Errors
/// 361 CollectionUUIDMismatch if the collection has another UUID; the operation's own.
fn run_bound(
    cx: &CommandContext<'_>,
    (ns, uuid): Target<'_>,
    op: &Op<'_>,
    common: Common<'_>,
    outcome: &mut StatementOutcome,
) -> Result<()> {
    let Some(wanted) = uuid else {
        return run_one(cx, ns, op, common, outcome);
    };
    check_uuid(cx, ns, wanted)?;
    let bytes = match wanted {
        Value::Binary { bytes, .. } => bytes.try_into().ok(),
        _ => None,
    };
    cx.op.bind(bytes);
    let done = run_one(cx, ns, op, common, outcome);
    cx.op.bind(None);
    match done {
        Err(e) if e.code() == Code::QueryPlanKilled => {
            // Checks again, because the collection may have been renamed or dropped in between.
            check_uuid(cx, ns, wanted)?;
            Err(e)
        }
        done => done,
    }
}

/// 361 CollectionUUIDMismatch unless the collection with this name has this UUID.
fn check_uuid(cx: &CommandContext<'_>, ns: &str, wanted: Value<'_>) -> Result<()> {
    let uuid = uuid("bulkWrite.nsInfo", "collectionUUID", wanted)?;
    let has = |c: &muniment_storage::Collection| c.uuid() == uuid;
    let store = &cx.engine().store;
    if store.collection(ns).is_some_and(|c| has(&c)) {
        return Ok(());
    }
    let (db, expected) = ns.split_once('.').unwrap_or_default();
    let actual = store.collection_by_uuid_in(db, uuid);
    let actual = actual.map(|c| {
        let ns = c.namespace();
        ns.split_once('.')
            .map_or_else(String::new, |(_, c)| c.to_string())
    });
    Err(Error::new(
        Code::CollectionUUIDMismatch,
        "Collection UUID does not match that specified",
    )
    .with_extra(doc! {
        "db": db,
        "collectionUUID": wanted,
        "expectedCollection": expected,
        "actualCollection": actual.as_deref(),
    }))
}

fn run_one(
    cx: &CommandContext<'_>,
    ns: &str,
    op: &Op<'_>,
    common: Common<'_>,
    outcome: &mut StatementOutcome,
) -> Result<()> {
    match op {
        Op::Insert(d) => {
            let document = || Box::new(std::iter::once(*d)) as _;
            let options = common.of_inserts();
            let mut out = cx.engine().insert_many(cx.op, ns, &document, options)?;
            *outcome = StatementOutcome {
                matched: out.n,
                commit: out.commit,
                ..StatementOutcome::default()
            };
            out.errors.pop().map_or(Ok(()), |e| Err(e.error))
        }
        Op::Update(s) => cx.engine().update_noting(cx.op, ns, s, outcome),
        Op::Delete(s) => cx.engine().delete_noting(cx.op, ns, s, outcome),
    }
}

/// Parses an operation, and which of the targets it writes to.
fn parse<'a>(d: Doc<'a>, targets: usize, common: Common<'a>) -> Result<(usize, Op<'a>)> {
    let kind = d.first().map_or("", |e| e.name());
    let op = match kind {
        "insert" => {
            let a = Args::parse("bulkWrite.ops", INSERT, d)?;
            Op::Insert(a.doc("document").unwrap_or(Doc::EMPTY))
        }
        "update" => {
            let a = Args::parse("bulkWrite.ops", UPDATE, d)?;
            let update = a.get("updateMods").unwrap_or(Value::Null);
            if update.as_doc().is_none() && update.as_array().is_none() {
                return Err(Error::failed_to_parse(
                    "Update argument must be either an object or an array",
                ));
            }
            Op::Update(UpdateStatement {
                multi: a.bool("multi", false),
                upsert: a.bool("upsert", false),
                hint: hint(&a)?,
                array_filters: a.array("arrayFilters").unwrap_or(Doc::EMPTY),
                sort: a.doc("sort").unwrap_or(Doc::EMPTY),
                constants: a.doc("constants").unwrap_or(Doc::EMPTY),
                let_: common.let_,
                collation: a.collation()?,
                bypass_document_validation: common.bypass_document_validation,
                bypass_empty_ts_replacement: common.bypass_empty_ts_replacement,
                ..UpdateStatement::new(a.doc("filter").unwrap_or(Doc::EMPTY), update)
            })
        }
        "delete" => {
            let a = Args::parse("bulkWrite.ops", DELETE, d)?;
            Op::Delete(DeleteStatement {
                filter: a.doc("filter").unwrap_or(Doc::EMPTY),
                multi: a.bool("multi", false),
                hint: hint(&a)?,
                let_: common.let_,
                collation: a.collation()?,
            })
        }
        other => {
            return Err(muniment_value::args::unknown_field("bulkWrite.ops", other));
        }
    };
    let at = d.get(kind).and_then(number::to_i64_exact);
    match at.and_then(|n| usize::try_from(n).ok()) {
        Some(at) if at < targets => Ok((at, op)),
        _ => Err(Error::bad_value(format!(
            "BulkWrite ops entry {} has an invalid nsInfo index.",
            Value::Document(d).to_display()
        ))),
    }
}

fn reply(cx: &mut CommandContext<'_>, t: &Totals, results: Vec<DocBuf>) -> Result<()> {
    let limits = limits(cx.args.doc("cursor"), BatchLimits::NEXT)?;
    // The writes are done, so the results are reported even if they exceed the memory limit.
    let mut share = Share::new(&cx.engine().memory, Account::Cursors);
    share.holds(results.iter().map(|d| d.len()).sum());
    let documents = results
        .into_iter()
        .map(|d| Bytes::from(d.into_bytes()))
        .collect();
    let cursor = Cursor::of_documents(namespace::OF_BULK_WRITE, documents, share);
    cx.first_batch(cursor, limits)?;
    let w = &mut cx.reply;
    w.field("nErrors", t.errors);
    w.field("nInserted", t.inserted);
    w.field("nMatched", t.matched);
    w.field("nModified", t.modified);
    w.field("nUpserted", t.upserted);
    w.field("nDeleted", t.deleted);
    Ok(())
}
