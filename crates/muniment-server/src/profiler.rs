//! Logs a finished operation if it was slow, and records it in `<db>.system.profile` if its database is
//! profiled.
//!
//! Invariant: an operation that is not slow costs two atomic reads here while no database has a
//! profiling level or a filter of its own.
//!
//! Source of the rules: the MongoDB manual, "Database Profiler" and `profile`.

use crate::auth;
use crate::metrics::OpKind;
use crate::profiling::Profile;
use crate::registry::{Kind, Statements};
use crate::request::KEEP_COMMAND;
use crate::request::account::Finished;
use crate::state::ServerState;
use muniment_exec::{OpContext, PlanFigures, StatementFigures};
use muniment_logger::Severity;
use muniment_op::Interrupt;
use muniment_query::QueryContext;
use muniment_query::filter::Filter;
use muniment_query::running::Work;
use muniment_storage::{CollectionOptions, KeyCounts};
use muniment_value::number::narrow;
use muniment_value::{ArrayBuf, Doc, DocBuf, MAX_DEPTH, Result, Value, doc, nests_deeper};
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The size of `system.profile`, as in MongoDB.
const CAPPED_BYTES: u64 = 1 << 20;

/// The most bytes of a command that a record keeps whole, as in MongoDB.
const RECORDED_COMMAND: usize = 50 << 10;

/// The most bytes of a plan's stages that a record keeps: plan and command together have to fit into the
/// collection.
const RECORDED_PLAN: usize = 256 << 10;

/// The longest time that the reply of an operation waits for the operation's record.
const RECORD_WAIT: Duration = Duration::from_millis(100);

/// True if a statement with this record is kept.
fn keeps(p: &Profile, record: Doc<'_>, slow: bool, server: &ServerState) -> bool {
    let chosen = || match &p.filter {
        Some(filter) => filter.matches(record, Work::unasked()).unwrap_or(false),
        None => slow && sample(server),
    };
    p.level == 2 || chosen()
}

/// Reads the option `operationProfiling.filter`, a query in JSON.
///
/// # Errors
/// A message for people, if the text is no query.
pub fn check_filter(text: &str) -> std::result::Result<DocBuf, String> {
    let none = |e: &dyn std::fmt::Display| format!("'{text}' is not a query: {e}");
    let filter = DocBuf::from_json(text).map_err(|e| none(&e))?;
    Filter::parse(filter.as_doc(), &QueryContext::new()).map_err(|e| none(&e.message()))?;
    Ok(filter)
}

/// Sets a database's profile, and creates `system.profile` if the database is to record.
///
/// # Errors
/// Those of creating a collection; the interrupt that ends the wait for it.
pub fn set(
    server: &ServerState,
    db: &str,
    profile: Profile,
    interrupt: &dyn Interrupt,
) -> Result<()> {
    if profile.level > 0 {
        make_collection(server, db, interrupt)?;
    }
    server.profiling.set(db, profile);
    Ok(())
}

/// Logs and records a finished operation, as its database's profile asks.
pub fn finished(f: &Finished<'_>) {
    let slow_ms = f.caller.server.parameters.slow_ms.load(Relaxed);
    let is_slow = |took: Duration| took.as_micros() as i64 >= slow_ms.saturating_mul(1000);
    let slow = is_slow(f.took);
    let profiling = f.caller.server.profiling.acts();
    if !slow && !profiling {
        return;
    }
    if slow && f.spec.logged_when_slow {
        f.caller.counter.slow();
    }
    let sampled = slow && sample(f.caller.server);
    let ns = f.op.namespace();
    let database = ns.split_once('.').filter(|_| profiling);
    let Some((db, collection)) = database else {
        if sampled && f.spec.logged_when_slow {
            log(f);
        }
        return;
    };
    let p = f.caller.server.profiling.of(db);
    // An operation that writes to the records themselves is not recorded, nor is one without a collection.
    let own = collection == "system.profile" && f.spec.kind != Kind::Read;
    let of_none = collection.starts_with("$cmd");
    let recordable = p.wants() && !own && !of_none && f.spec.profiled;
    let statements = f.op.statements();
    if recordable && !statements.is_empty() {
        // The figures and the documents of the statements are in the same order.
        let (mut documents, mut at) = (statement_documents(f), 0);
        for s in &statements {
            let slow = is_slow(s.took);
            if p.level < 2 && p.filter.is_none() && !slow {
                continue;
            }
            let own = documents.nth(s.index.saturating_sub(at));
            at = s.index + 1;
            let entry = record(f, Some((s, own)));
            if keeps(&p, entry.as_doc(), slow, f.caller.server) {
                write(f.caller.server, db, entry);
            }
        }
    }
    let mut entry = None;
    let kept = match &p.filter {
        // An operation that the filter cannot evaluate is not kept.
        Some(filter) => filter
            .matches(entry.insert(record(f, None)).as_doc(), Work::unasked())
            .unwrap_or(false),
        None => sampled,
    };
    if kept && f.spec.logged_when_slow {
        log(f);
    }
    if recordable && statements.is_empty() && (p.level == 2 || kept) {
        write(
            f.caller.server,
            db,
            entry.unwrap_or_else(|| record(f, None)),
        );
    }
}

/// True for `sampleRate` of the operations.
fn sample(server: &ServerState) -> bool {
    let rate = f64::from_bits(server.parameters.sample_rate.load(Relaxed));
    if rate >= 1.0 {
        return true;
    }
    // The state of each hash map of the standard library has a new random seed.
    let bits = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish();
    ((bits >> 11) as f64 / (1_u64 << 53) as f64) < rate
}

/// The record of an operation, or of one statement of an update or delete. A filter is applied to the same
/// fields.
fn record(f: &Finished<'_>, statement: Option<(&StatementFigures, Option<Doc<'_>>)>) -> DocBuf {
    let own = statement.and_then(|(_, own)| own);
    let statement = statement.map(|(s, _)| s);
    let mut d = doc! {
        "op": match f.spec.op {
            OpKind::Query => "query",
            OpKind::GetMore => "getmore",
            OpKind::Insert => "insert",
            OpKind::Update => "update",
            OpKind::Delete => "remove",
            OpKind::Command => "command",
        },
        "ns": f.op.namespace(),
        "command": command(f, own, RECORDED_COMMAND),
    };
    if let Some(origin) = f.op.origin() {
        d.append("originatingCommand", origin.command());
    }
    let plan = statement.map_or_else(|| f.op.plan_figures(), |s| s.plan.clone());
    match statement {
        Some(s) => statement_figures(f, s, &plan, &mut d),
        None => operation_figures(f, &plan, &mut d),
    }
    d.append("numYield", 0);
    shape_figures(&plan, &mut d);
    d.append("locks", locks(f.spec.kind));
    let error = statement.map_or(f.error, |s| s.error.as_ref());
    if let Some(e) = error {
        d.append("ok", 0.0);
        d.append("errMsg", e.message());
        d.append("errName", &*e.code().name());
        d.append("errCode", e.code().0);
    }
    if statement.is_none() {
        d.append("responseLength", narrow(f.reply_bytes as i64));
        d.append("protocol", "op_msg");
    }
    let cpu = statement.map_or_else(|| f.op.cpu_time(), |s| s.cpu);
    d.append_some("cpuNanos", cpu.map(|t| narrow(t.as_nanos() as i64)));
    let took = statement.map_or(f.took, |s| s.took);
    d.append("millis", narrow(took.as_millis() as i64));
    d.append_some("planSummary", plan.summary);
    // A filter of what is stored of users may hold what is not to be shown.
    if auth::hidden(f.spec, f.caller.request.body, f.op.namespace()).is_none() {
        d.append_some("execStats", plan.exec_stats.map(fitting));
    }
    d.append("ts", Value::DateTime(muniment_logger::now_ms()));
    d.append("client", &*f.caller.conn.peer);
    let app_name = f.caller.conn.client.lock().app_name.clone();
    d.append("appName", app_name.as_deref().unwrap_or_default());
    let user = f.op.user();
    let names = user.and_then(|user| user.rsplit_once('@'));
    let all = names.map(|(user, db)| doc! { "user": user, "db": db });
    d.append("allUsers", all.iter().collect::<ArrayBuf>());
    d.append("user", user.unwrap_or_default());
    d
}

/// A plan's stages, or only the name of the first one if they are too large for a record: a filter may
/// contain a million values.
fn fitting(stages: DocBuf) -> DocBuf {
    let shown = stages.as_doc();
    if shown.byte_len() <= RECORDED_PLAN && !nests_deeper(shown, MAX_DEPTH - 1) {
        return stages;
    }
    let mut d = DocBuf::new();
    d.append_some("stage", stages.as_doc().get("stage"));
    d.append(
        "warning",
        "stats tree exceeded the size of a profiler's record",
    );
    d
}

/// The statements of an update or delete, as the client sent them.
fn statement_documents<'f>(f: &Finished<'f>) -> Box<dyn Iterator<Item = Doc<'f>> + 'f> {
    let list = match f.spec.op {
        OpKind::Update => "updates",
        _ => "deletes",
    };
    match f.caller.request.sequence(list) {
        Some(sequence) => Box::new(sequence),
        None => {
            let all = f.caller.request.body.get_array(list).unwrap_or(Doc::EMPTY);
            Box::new(all.values().filter_map(|v| v.as_doc()))
        }
    }
}

/// The field `command` of a record. For a statement it is the statement's document with the command's
/// comment.
fn command(f: &Finished<'_>, own: Option<Doc<'_>>, longest: usize) -> DocBuf {
    if let Some(hidden) = auth::hidden(f.spec, f.caller.request.body, f.op.namespace()) {
        return hidden;
    }
    let told = own.map(|own| as_parsed(f.spec.op, own));
    let shown = told.as_ref().map_or(f.caller.request.body, |d| d.as_doc());
    let mut command = shown.abridged(longest);
    if shown.get("comment").is_none() {
        // A statement has the comment of its command, and a getMore that of the command which opened its
        // cursor.
        command.append_some("comment", f.op.comment());
    }
    command
}

/// A statement of an update or delete as MongoDB shows it after parsing: with its fields in a fixed order,
/// with defaults for those that were left out, and with an index's name as an object.
fn as_parsed(op: OpKind, statement: Doc<'_>) -> DocBuf {
    let fields: &[&str] = match op {
        OpKind::Update => &[
            "q",
            "u",
            "c",
            "arrayFilters",
            "hint",
            "multi",
            "upsert",
            "upsertSupplied",
            "collation",
        ],
        _ => &["q", "limit", "hint", "collation"],
    };
    let mut d = DocBuf::new();
    for name in fields {
        match (*name, statement.get(name)) {
            ("hint", Some(Value::String(index))) => d.append(name, doc! { "$hint": index }),
            ("hint", Some(Value::Document(pattern))) if pattern.is_empty() => continue,
            ("multi" | "upsert", None) => d.append(name, false),
            (_, Some(v)) => d.append(name, v),
            (_, None) => continue,
        };
    }
    d
}

/// Appends a number with MongoDB's type: an int if it fits.
fn count(d: &mut DocBuf, name: &str, n: u64) {
    d.append(name, narrow(n as i64));
}

/// Appends the figures of one statement.
fn statement_figures(f: &Finished<'_>, s: &StatementFigures, plan: &PlanFigures, d: &mut DocBuf) {
    count(d, "keysExamined", s.keys_examined);
    count(d, "docsExamined", s.docs_examined);
    plan_figures(plan, d);
    if f.spec.op == OpKind::Update {
        count(d, "nMatched", s.matched);
        count(d, "nModified", s.modified);
        count(d, "nUpserted", u64::from(s.upserted));
        d.append_some("upsert", s.upserted.then_some(true));
    } else {
        count(d, "ndeleted", s.matched);
    }
    key_figures(s.keys, d);
}

/// Appends the figures of an operation.
fn operation_figures(f: &Finished<'_>, plan: &PlanFigures, d: &mut DocBuf) {
    let id = f.op.cursor();
    let more = match f.spec.op {
        OpKind::GetMore => f.caller.request.body.first().map(|e| e.value()),
        _ => id.filter(|id| *id != 0).map(Value::Int64),
    };
    d.append_some("cursorid", more);
    let counters = &f.op.counters;
    count(d, "keysExamined", counters.keys_examined.load(Relaxed));
    count(d, "docsExamined", counters.docs_examined.load(Relaxed));
    plan_figures(plan, d);
    let written = counters.written.load(Relaxed);
    let writes = writes(f);
    match writes {
        Some(OpKind::Insert) => count(d, "ninserted", written),
        Some(OpKind::Delete) => count(d, "ndeleted", written),
        Some(_) => {
            let upserted = counters.upserted.load(Relaxed);
            count(d, "nMatched", counters.matched.load(Relaxed));
            count(d, "nModified", written.saturating_sub(upserted));
            count(d, "nUpserted", upserted);
            d.append_some("upsert", (upserted > 0).then_some(true));
        }
        None => {}
    }
    d.append_some("cursorExhausted", id.filter(|id| *id == 0).map(|_| true));
    key_figures(counters.keys(), d);
    if writes.is_none() {
        count(d, "nreturned", counters.returned.load(Relaxed));
    }
}

/// Appends how the plan was found, and its properties.
fn plan_figures(plan: &PlanFigures, d: &mut DocBuf) {
    let told = |is: bool| is.then_some(true);
    d.append_some("hasSortStage", told(plan.sorts));
    d.append_some("fromMultiPlanner", told(plan.from_multi_planner));
    d.append_some("fromPlanCache", told(plan.from_plan_cache));
    d.append_some("replanned", told(plan.replan_reason.is_some()));
    d.append_some("replanReason", plan.replan_reason.as_deref());
}

/// Appends the hashes by which the plan cache identifies the query.
fn shape_figures(plan: &PlanFigures, d: &mut DocBuf) {
    let hash = plan.shape_hash.as_deref();
    d.append_some("planCacheShapeHash", hash);
    d.append_some("queryHash", hash);
    d.append_some("planCacheKey", hash);
}

/// The locks that MongoDB would take for such a command: each once and shared.
fn locks(kind: Kind) -> DocBuf {
    let mode = match kind {
        Kind::Read => "r",
        Kind::Write | Kind::Ddl => "w",
        _ => return DocBuf::new(),
    };
    let mut once = DocBuf::new();
    once.append(mode, 1_i64);
    let taken = doc! { "acquireCount": once };
    doc! { "Global": &taken, "Database": &taken, "Collection": &taken }
}

/// The kind of write that an operation is, which decides the figures of its record. A findAndModify is an
/// update or a delete.
fn writes(f: &Finished<'_>) -> Option<OpKind> {
    match f.spec.op {
        OpKind::Insert | OpKind::Update | OpKind::Delete => Some(f.spec.op),
        _ if !matches!(f.spec.statements, Statements::One) => None,
        _ => match f.caller.request.body.get("remove") {
            Some(v) if v.truthy() => Some(OpKind::Delete),
            _ => Some(OpKind::Update),
        },
    }
}

/// Appends how many index keys were inserted and removed, if any were.
fn key_figures(keys: KeyCounts, d: &mut DocBuf) {
    for (name, n) in [
        ("keysInserted", keys.inserted),
        ("keysDeleted", keys.deleted),
    ] {
        if n > 0 {
            count(d, name, n);
        }
    }
}

fn make_collection(server: &ServerState, db: &str, interrupt: &dyn Interrupt) -> Result<()> {
    let ns = format!("{db}.system.profile");
    let store = &server.engine.store;
    if store.collection(&ns).is_some() {
        return Ok(());
    }
    let options = CollectionOptions {
        capped_size: Some(CAPPED_BYTES),
        without_ids: true,
        document: doc! { "capped": true, "size": CAPPED_BYTES as i64 },
        ..CollectionOptions::default()
    };
    match store.create_collection(&ns, options, interrupt) {
        // Another thread may have created it in between.
        Err(_) if store.collection(&ns).is_some() => Ok(()),
        made => made.map(drop),
    }
}

/// Writes a record. Profiling must neither fail nor delay the operation that it records: an error is ignored,
/// and while writes are locked, or the collection is in use for long, no record is written.
fn write(server: &ServerState, db: &str, record: DocBuf) {
    if server.engine.store.write_lock_depth() > 0 {
        return;
    }
    let store = &server.engine.store;
    let ns = format!("{db}.system.profile");
    // A record must not bring a dropped database back.
    if store.collection(&ns).is_none() && !store.databases().iter().any(|d| d == db) {
        return;
    }
    let op = OpContext::internal("profile");
    op.limit(RECORD_WAIT);
    if make_collection(server, db, &*op).is_err() {
        return;
    }
    let _ = server.engine.append(&op, &ns, record.as_doc());
}

/// Writes the line of the log.
fn log(f: &Finished<'_>) {
    let app_name = f.caller.conn.client.lock().app_name.clone();
    let mut attr = doc! { "type": "command", "ns": f.op.namespace() };
    attr.append_some("appName", app_name.as_deref());
    let log = &f.caller.server.log;
    attr.append("command", log.document(command(f, None, KEEP_COMMAND)));
    if let Some(origin) = f.op.origin() {
        let command = origin.command().abridged(KEEP_COMMAND);
        attr.append("originatingCommand", log.document(command));
    }
    let plan = f.op.plan_figures();
    attr.append_some("planSummary", plan.summary.as_deref());
    operation_figures(f, &plan, &mut attr);
    attr.append("numYields", 0);
    shape_figures(&plan, &mut attr);
    if let Some(e) = f.error {
        attr.append("ok", 0);
        attr.append("errCode", e.code().0);
        attr.append("errMsg", log.text(e.message()));
    }
    attr.append("reslen", f.reply_bytes as i64);
    attr.append("locks", locks(f.spec.kind));
    attr.append("remote", &*f.caller.conn.peer);
    attr.append("protocol", "op_msg");
    attr.append("durationMillis", f.took.as_millis() as i64);
    log.log(
        Severity::Info,
        "COMMAND",
        51803,
        &format!("conn{}", f.caller.conn.id),
        "Slow query",
        Some(&attr),
    );
}
