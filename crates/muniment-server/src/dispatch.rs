//! From a request to the bytes of its reply document: finds the command, checks its arguments,
//! runs it inside the unwind guard, waits for the journal, counts and logs.
//!
//! Invariants: exactly one reply document is appended for every request, whatever happens; the
//! journal is waited for once, after all statements.

use crate::args::{Args, Types, unknown_field};
use crate::concern::WriteConcern;
use crate::context::{CommandContext, ConnLocal, Request};
use crate::failpoint::Failure;
use crate::generic::Generic;
use crate::guard::guarded;
use crate::log::Severity;
use crate::metrics::{Counter, LatencyKind, OpKind, TopEntry};
use crate::namespace;
use crate::registry::{CommandSpec, Kind, Target};
use crate::replica_set::Proof;
use crate::settings;
use crate::state::{ConnShared, ServerState};
use crate::transactions::{self, Transactions};
use muniment_exec::{OpContext, OpStart, TicketPool};
use muniment_query::Interrupt;
use muniment_storage::SessionKey;
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, ValueBuf, array, doc};
use muniment_wire::DocWriter;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What becomes of the connection after a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Close it without a reply.
    pub close: bool,
    /// Close it behind the reply.
    pub last: bool,
    /// Another reply follows without a request.
    pub exhaust: bool,
    /// It was refused because this member is no primary, or no more.
    pub no_primary: bool,
}

/// Most bytes of a command that currentOp and the slow-operation log keep.
pub const KEEP_COMMAND: usize = 4096;
/// A session's use is noted at most this often per connection.
const SESSION_EVERY: Duration = Duration::from_secs(1);

/// Runs one request and appends its reply document to `out`.
pub fn execute(
    server: &Arc<ServerState>,
    conn: &Arc<ConnShared>,
    local: &mut ConnLocal,
    counter: &Counter,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) -> Done {
    let at = out.len();
    let mut done = Done::default();
    match try_execute(server, conn, local, counter, request, out, &mut done) {
        Ok(()) => {}
        Err((error, labels)) => {
            out.truncate(at);
            counter.error(error.code() == Code::InternalError);
            let mut reply = error.to_reply();
            if let Some(labels) = labels {
                reply.append("errorLabels", labels);
            }
            let topology = crate::replica_set::topology_of_error(server, error.code());
            done.no_primary = topology.is_some();
            reply.append_some("topologyVersion", topology.as_ref());
            out.extend_from_slice(reply.as_bytes());
        }
    }
    crate::replica_set::append_times(server, out, at);
    done.last = matches!(local.proof, Proof::Failed);
    done
}

/// A change of the catalog that failed because it, or the opposite, had been made before.
fn is_done_already(e: &Error) -> bool {
    matches!(
        e.code(),
        Code::NamespaceExists | Code::NamespaceNotFound | Code::IndexNotFound
    )
}

type Failed = (Error, Option<muniment_value::ArrayBuf>);

fn plain(e: Error) -> Failed {
    (e, None)
}

/// A plan that was made for what the view does not know yet, or no more.
fn unavailable(e: Error) -> Error {
    match e.code() {
        Code::QueryPlanKilled => Error::new(
            Code::SnapshotUnavailable,
            format!("Unable to read from a snapshot: {}", e.message()),
        ),
        _ => e,
    }
}

fn try_execute(
    server: &Arc<ServerState>,
    conn: &Arc<ConnShared>,
    local: &mut ConnLocal,
    counter: &Counter,
    request: &Request<'_>,
    out: &mut Vec<u8>,
    done: &mut Done,
) -> Result<(), Failed> {
    let Some(spec) = crate::registry::find(request.name) else {
        counter.op(OpKind::Command, 1);
        transactions::check_unknown(request).map_err(plain)?;
        if server.failpoints.any() {
            let app_name = conn.client.lock().app_name.clone();
            let ns = format!("{}.$cmd", request.db);
            let failure = server
                .failpoints
                .fail_unknown(request.name, &ns, app_name.as_deref());
            match failure {
                Some(f) if f.close => {
                    done.close = true;
                    return Ok(());
                }
                Some(Failure {
                    error: Some(e),
                    labels,
                    ..
                }) => return Err((e, labels)),
                _ => {}
            }
        }
        return Err(plain(Error::new(
            Code::CommandNotFound,
            format!("no such command: '{}'", request.name),
        )));
    };
    let began = Instant::now();
    let (args, generic) = match parse(server, spec, request) {
        Ok((_, generic)) if generic.help => {
            help(counter, spec, out);
            return Ok(());
        }
        // What is asked for help may lack what it needs to run.
        Err(_) if request.body.get("help").is_some_and(|v| v.truthy()) => {
            help(counter, spec, out);
            return Ok(());
        }
        parsed => parsed.map_err(plain)?,
    };
    if !generic.api_version
        && server
            .parameters
            .require_api_version
            .load(Ordering::Relaxed)
    {
        return Err(plain(Error::new(
            Code::APIVersionError,
            "The apiVersion parameter is required, please configure your MongoClient's API version",
        )));
    }
    crate::replica_set::check_caller(server, conn, local, spec).map_err(plain)?;
    transactions::check_command(spec, &generic).map_err(plain)?;
    let ns = namespace_of(server, spec, request).map_err(plain)?;
    let write_concern = write_concern_of(server, spec, request, &generic).map_err(plain)?;
    if let Some(id) = &generic.session {
        note_session(server, local, id, began).map_err(plain)?;
    }
    let at = out.len();
    let never = server.failpoints.fires("maxTimeNeverTimeOut");
    let op = server.engine.operations.begin(OpStart {
        began: Some(began),
        command: spec.name,
        namespace: ns,
        // getMore's own maxTimeMS is how long to wait for data.
        max_time: time_limit(server, spec, request, &generic)
            .filter(|_| !never && spec.name != "getMore"),
        connection_id: conn.id,
        client: Some(Arc::clone(&conn.peer)),
        comment: generic.comment.map(ValueBuf::new),
        session: generic.session,
        // Commands that never run long need not know that their client has gone.
        disconnected: matches!(spec.kind, Kind::Read | Kind::Write | Kind::Ddl)
            .then(|| Arc::clone(&conn.is_gone)),
        ..OpStart::default()
    });
    if server.is_stopping() && spec.name != "hello" && spec.name != "isMaster" {
        let stopping = Error::new(Code::InterruptedAtShutdown, "interrupted at shutdown");
        let labels = transactions::labels(spec, &generic, stopping.code());
        return Err((stopping, labels));
    }
    if spec.target == Target::CollectionOrUuid
        && let Some(uuid) = uuid_of(request)
    {
        op.bind(Some(uuid));
    }
    crate::replica_set::admit(server, spec, &op, request, &generic).map_err(plain)?;
    if server.profiling.load(Ordering::Relaxed) && crate::profiler::of(server, request.db).wants() {
        op.observe();
    }
    remember_command(conn, request.body);
    let mut failure = None;
    if server.failpoints.any() {
        failure = fail(server, conn, spec, &op, request, &generic, done)?;
        if done.close {
            return Ok(());
        }
    }
    let labelled = |e: Error| {
        let labels = match e.code() {
            _ if !op.is_of_change_stream() => transactions::labels(spec, &generic, e.code()),
            Code::ChangeStreamFatalError | Code::ChangeStreamHistoryLost => {
                Some(array!["NonResumableChangeStreamError"])
            }
            code => transactions::is_resumable(code).then(|| array!["ResumableChangeStreamError"]),
        };
        (e, labels)
    };
    let checked_out = server
        .transactions
        .enter(server, &op, spec, &generic, &args, request)
        .map_err(labelled)?;
    server
        .snapshots
        .pin(server, &op, spec, &generic)
        .map_err(plain)?;
    // Others may wait for what a transaction holds, with all the tickets: it needs none to go on.
    let goes_on = generic.in_transaction() && generic.start_transaction.is_none();
    let pool = ticket_pool(server, spec, op.namespace()).filter(|_| !goes_on);
    let ticket = match pool.map(|p| op.take_ticket(p)).transpose() {
        Ok(ticket) => ticket,
        Err(e) => {
            if let Some(out) = checked_out {
                server
                    .transactions
                    .leave(server, out, generic.in_transaction());
            }
            return Err(labelled(e));
        }
    };
    let mut cx = CommandContext {
        server,
        conn,
        local,
        op: &op,
        spec,
        request,
        args,
        generic,
        write_concern,
        reply: DocWriter::begin(out),
        commit: None,
        exhaust: false,
        op_count: None,
        uuid: None,
        transaction: checked_out,
        said_ok: false,
        elsewhere: false,
    };
    let keeper = crate::replica_set::keeper(&cx);
    let kept_back = keeper.as_ref().and_then(|node| node.keep_back());
    let running = muniment_query::running::enter(op.clone());
    let (lost, refused) = match op.retry() {
        // It is about what is written, and nothing is by who is answered by what was done before.
        Some(retry) if server.failpoints.any() && !retry.is_again() => server
            .failpoints
            .loses_write(transactions::statements(request, spec)),
        _ => (false, None),
    };
    let result =
        guarded(|| refused.map_or_else(|| (spec.run)(&mut cx), Err)).unwrap_or_else(|caught| {
            server.log.log(
                Severity::Error,
                "ASSERT",
                23081,
                &format!("conn{}", conn.id),
                "A command panicked; this is a bug",
                Some(&doc! {
                    "command": spec.name,
                    "what": caught.message.as_str(),
                    "backtrace": caught.report.as_str(),
                }),
            );
            Err(Error::internal(format!(
                "{} failed because of a bug: {}",
                spec.name, caught.message
            )))
        });
    // Whatever was cut short on the way, nothing of it goes out.
    let result = result.and_then(|()| muniment_query::running::give_up());
    drop(running);
    let result = Transactions::end_command(&mut cx, result);
    // Others are waited for without a ticket.
    drop(ticket);
    // Of what fails a part may be told as done, or it fails because it is done already: who is told that
    // relies on it.
    let relied_on = match &result {
        Ok(()) => true,
        Err(e) => cx.commit.is_some() || spec.kind == Kind::Ddl && is_done_already(e),
    };
    let (result, concern) = match relied_on.then(|| crate::replica_set::acknowledge(&cx)) {
        Some(Ok(concern)) => (result, concern),
        Some(Err(e)) => (Err(e), None),
        None => (result, None),
    };
    drop(kept_back);
    take_settings(server, spec, request);
    let (op_count, exhaust) = (cx.op_count, cx.exhaust);
    // A write concern that cannot be satisfied is told beside an error, too, since what failed may
    // have written.
    let beside = result.is_err().then(|| {
        let known = concern.clone();
        known.or_else(|| crate::replica_set::write_concern_error(&cx))
    });
    let result = result.map_err(|e| match beside.flatten() {
        Some(concern) => e.with_extra(doc! { "writeConcernError": concern }),
        None => e,
    });
    let failed = result.as_ref().err().cloned();
    let ended = match result {
        Ok(()) => {
            // An unacknowledged write says no more than that it was taken.
            let statements = matches!(spec.op, OpKind::Insert | OpKind::Update | OpKind::Delete)
                || spec.name == "bulkWrite";
            let bare = statements && cx.write_concern.unacknowledged();
            finish_reply(cx, failure.as_ref(), concern);
            if bare {
                out.truncate(at);
                out.extend_from_slice(doc! { "ok": 1.0 }.as_bytes());
            }
            Ok(())
        }
        Err(e) if op.reads_newest() => Err(labelled(e)),
        Err(e) => Err(labelled(unavailable(e))),
    };
    done.exhaust = exhaust && ended.is_ok();
    if lost {
        done.close = true;
    }
    account(
        &Finished {
            server,
            conn,
            counter,
            spec,
            op: &op,
            request,
            took: began.elapsed(),
            op_count,
            error: failed.as_ref(),
            reply_bytes: out.len(),
        },
        top_line(server, local, spec, &op),
    );
    ended
}

/// Answers what a command does, in place of running it.
fn help(counter: &Counter, spec: &CommandSpec, out: &mut Vec<u8>) {
    counter.op(OpKind::Command, 1);
    let text = format!("help for: {} {}", spec.name, spec.doc);
    out.extend_from_slice(doc! { "help": text, "ok": 1.0 }.as_bytes());
}

/// Runs a command as a part of another one, whose connection, write concern and fate it shares, and
/// without counting it. `uuid` is what a collection that it creates shall have.
///
/// # Errors
/// 59 CommandNotFound; the command's own; why the whole has to stop.
pub fn run_within(
    cx: &mut CommandContext<'_>,
    db: &str,
    body: Doc<'_>,
    uuid: Option<[u8; 16]>,
) -> Result<()> {
    let name = body.first().map_or("", |e| e.name());
    let spec = crate::registry::find(name)
        .ok_or_else(|| Error::new(Code::CommandNotFound, format!("no such command: '{name}'")))?;
    let request = Request {
        db,
        name,
        body,
        sequences: &[],
        exhaust_allowed: false,
        // The database stands beside the command, as in OP_QUERY.
        legacy: true,
    };
    let (args, generic) = parse(cx.server, spec, &request)?;
    let whole = Arc::clone(cx.op);
    let op = cx.server.engine.operations.begin(OpStart {
        command: spec.name,
        namespace: namespace_of(cx.server, spec, &request)?,
        connection_id: cx.conn.id,
        client: Some(Arc::clone(&cx.conn.peer)),
        disconnected: Some(Arc::new(move || whole.check().is_err())),
        ..OpStart::default()
    });
    let mut reply = Vec::new();
    let mut part = CommandContext {
        server: cx.server,
        conn: cx.conn,
        local: &mut *cx.local,
        op: &op,
        spec,
        request: &request,
        args,
        generic,
        write_concern: cx.write_concern.clone(),
        reply: DocWriter::begin(&mut reply),
        commit: None,
        exhaust: false,
        op_count: None,
        uuid,
        transaction: None,
        said_ok: false,
        elsewhere: false,
    };
    let result = (spec.run)(&mut part);
    let commit = part.commit;
    drop(part);
    cx.note_commit(commit);
    cx.op.check()?;
    result
}

/// Ends the reply: how it was not acknowledged (`concern`), what failpoints add, and `ok`.
fn finish_reply(mut cx: CommandContext<'_>, failure: Option<&Failure>, concern: Option<DocBuf>) {
    if let Some((f, wce)) = failure.and_then(|f| Some((f, f.write_concern_error.as_ref()?))) {
        cx.reply.field("writeConcernError", wce.as_doc());
        let code = wce.as_doc().get("code").and_then(|c| c.as_i64_exact());
        let code = Code(code.and_then(|c| i32::try_from(c).ok()).unwrap_or_default());
        let labels = || transactions::labels_of_concern(cx.spec, &cx.generic, code);
        if let Some(labels) = f.labels.clone().or_else(labels) {
            cx.reply.field("errorLabels", labels);
        }
        if let Some(topology) = crate::replica_set::topology_of_error(cx.server, code) {
            cx.reply.field("topologyVersion", topology);
        }
    } else if let Some(e) = concern {
        let code = e.as_doc().get("code").and_then(|c| c.as_i64_exact());
        let code = Code(code.and_then(|c| i32::try_from(c).ok()).unwrap_or_default());
        cx.reply.field("writeConcernError", e);
        if let Some(labels) = transactions::labels_of_concern(cx.spec, &cx.generic, code) {
            cx.reply.field("errorLabels", labels);
        }
        if let Some(topology) = crate::replica_set::topology_of_error(cx.server, code) {
            cx.reply.field("topologyVersion", topology);
        }
    } else if let Some(e) = crate::replica_set::write_concern_error(&cx) {
        cx.reply.field("writeConcernError", e);
    }
    if !cx.said_ok {
        cx.reply.field("ok", 1.0);
    }
    cx.reply.finish();
}

fn parse<'a>(
    server: &ServerState,
    spec: &'static CommandSpec,
    request: &Request<'a>,
) -> Result<(Args<'a>, Generic<'a>)> {
    let mut generic = Generic::default();
    let mut fields = request.body.iter();
    // The command's name.
    fields.next();
    let args = Args::parse_with(spec.name, spec.fields, fields, |e| {
        Ok(generic.take(spec.name, e)? || spec.open_fields)
    })?;
    if generic.db.is_none() && !request.legacy {
        return Err(Error::location(
            40571,
            "OP_MSG requests require a $db argument",
        ));
    }
    for s in request.sequences {
        let known = spec
            .fields
            .iter()
            .any(|f| f.name == s.name && f.types == Types::ARRAY);
        if !known {
            return Err(unknown_field(spec.name, s.name));
        }
    }
    generic.check(spec, request.body, server.replica_set.is_some())?;
    Ok((args, generic))
}

/// `db.collection` of a command on a collection, else `db.$cmd`.
fn namespace_of(server: &ServerState, spec: &CommandSpec, request: &Request<'_>) -> Result<String> {
    namespace::check_db(request.db)?;
    let target = request.body.first().map_or(Value::Null, |e| e.value());
    let collection = match (spec.target, target) {
        (Target::CollectionOrUuid, Value::Binary { subtype: 4, .. }) => {
            let uuid = uuid_of(request);
            let mut all = server.engine.store.collections(request.db).into_iter();
            return match all.find(|c| Some(c.uuid()) == uuid) {
                Some(c) => Ok(c.namespace()),
                None => Err(Error::new(
                    Code::NamespaceNotFound,
                    format!(
                        "Unable to resolve {} in database {}",
                        target.to_display(),
                        request.db
                    ),
                )),
            };
        }
        (Target::Collection | Target::CollectionOrUuid, v) => {
            namespace::collection_of(request.db, v)?
        }
        (Target::CollectionOrDatabase, v) if v.is_number() => "$cmd.aggregate",
        (Target::CollectionOrDatabase, v) => namespace::collection_of(request.db, v)?,
        (Target::Cursor, _) => request.body.get_str("collection").unwrap_or("$cmd"),
        (Target::Anything, _) => "$cmd",
    };
    if spec.admin_only && request.db != "admin" {
        return Err(Error::new(
            Code::Unauthorized,
            format!("{} may only be run against the admin database.", spec.name),
        ));
    }
    let mut ns = String::with_capacity(request.db.len() + 1 + collection.len());
    ns.push_str(request.db);
    ns.push('.');
    ns.push_str(collection);
    Ok(ns)
}

/// The UUID by which a command names its collection.
fn uuid_of(request: &Request<'_>) -> Option<[u8; 16]> {
    match request.body.first()?.value() {
        Value::Binary { subtype: 4, bytes } => bytes.try_into().ok(),
        _ => None,
    }
}

/// `maxTimeMS`, were it 0; without one, what the cluster parameter defaultMaxTimeMS says of reads.
fn time_limit(
    server: &ServerState,
    spec: &CommandSpec,
    request: &Request<'_>,
    generic: &Generic<'_>,
) -> Option<Duration> {
    if generic.max_time_given {
        return generic.max_time;
    }
    let default = server.cluster_parameters.read_limit();
    default.filter(|_| (spec.is_read_operation)(request.body))
}

/// What clients write into the collections of settings holds at once, as in MongoDB.
fn take_settings(server: &ServerState, spec: &CommandSpec, request: &Request<'_>) {
    let of = |ns: &str| ns.split_once('.').is_some_and(|(db, _)| db == settings::DB);
    let named = |d: Doc<'_>| d.get_str("ns").is_some_and(of);
    let writes = match (spec.kind, spec.name) {
        // These name their collections elsewhere.
        (_, "renameCollection" | "applyOps") => true,
        (_, "bulkWrite") => request.documents("nsInfo").any(named),
        (Kind::Write | Kind::Ddl, _) => request.db == settings::DB,
        _ => false,
    };
    if writes {
        settings::take_for_client(server);
    }
}

fn write_concern_of(
    server: &ServerState,
    spec: &CommandSpec,
    request: &Request<'_>,
    generic: &Generic<'_>,
) -> Result<WriteConcern> {
    if !spec.write_concern {
        return Ok(WriteConcern::IMPLICIT);
    }
    let wc = match generic.write_concern {
        Some(d) => WriteConcern::parse(
            d,
            server.default_write_concern(),
            server.replica_set.is_some(),
        )?,
        None => server.default_write_concern(),
    };
    // The database "local" ignores write concerns.
    Ok(if request.db == "local" {
        WriteConcern::IMPLICIT
    } else {
        wc
    })
}

fn note_session(
    server: &ServerState,
    local: &mut ConnLocal,
    id: &SessionKey,
    now: Instant,
) -> Result<()> {
    if let Some((last, at)) = &local.session
        && last == id
        && now.saturating_duration_since(*at) < SESSION_EVERY
    {
        return Ok(());
    }
    server.sessions.touch(id)?;
    local.session = Some((*id, now));
    Ok(())
}

/// Where a command's ticket is from. What people need when all tickets are out needs none.
fn ticket_pool<'s>(
    server: &'s ServerState,
    spec: &CommandSpec,
    namespace: &str,
) -> Option<&'s Arc<TicketPool>> {
    match spec.kind {
        Kind::Read if namespace.ends_with(".$cmd.aggregate") => None,
        Kind::Read => Some(&server.engine.tickets.reads),
        Kind::Write => Some(&server.engine.tickets.writes),
        Kind::Ddl | Kind::Admin | Kind::Diagnostic => None,
    }
}

fn remember_command(conn: &ConnShared, body: Doc<'_>) {
    conn.busy.store(true, Ordering::Relaxed);
    let mut command = conn.command.lock();
    command.clear();
    if body.byte_len() <= KEEP_COMMAND {
        command.extend_from_slice(body.as_bytes());
    }
}

/// What failpoints do before a command runs.
fn fail(
    server: &ServerState,
    conn: &ConnShared,
    spec: &'static CommandSpec,
    op: &Arc<OpContext>,
    request: &Request<'_>,
    generic: &Generic<'_>,
    done: &mut Done,
) -> Result<Option<Failure>, Failed> {
    if generic.max_time.is_some() && server.failpoints.fires("maxTimeAlwaysTimeOut") {
        return Err(plain(Error::new(
            Code::MaxTimeMSExpired,
            "operation exceeded time limit",
        )));
    }
    let app_name = conn.client.lock().app_name.clone();
    let app_name = app_name.or_else(|| {
        // A hello carries the name that its connection does not have yet.
        let client = request.body.get_doc("client")?;
        Some(Arc::from(client.get_doc("application")?.get_str("name")?))
    });
    let Some(f) = server
        .failpoints
        .fail_command(spec, op.namespace(), app_name.as_deref())
    else {
        return Ok(None);
    };
    if let Some(time) = f.block {
        sleep(op, time).map_err(plain)?;
    }
    if f.close {
        done.close = true;
        return Ok(None);
    }
    match f.error {
        Some(e) => {
            let labels = transactions::labels(spec, generic, e.code());
            Err((e, f.labels.or(labels)))
        }
        None => Ok(Some(f)),
    }
}

/// Sleeps for `time` or until the operation has to stop.
///
/// # Errors
/// The reason to stop.
pub fn sleep(op: &Arc<OpContext>, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        op.check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(10)));
    }
}

/// An operation that has just ended.
pub struct Finished<'f> {
    /// All that is shared.
    pub server: &'f Arc<ServerState>,
    /// The connection.
    pub conn: &'f ConnShared,
    /// The connection's counters.
    pub counter: &'f Counter,
    /// The command.
    pub spec: &'static CommandSpec,
    /// What the operation counted.
    pub op: &'f Arc<OpContext>,
    /// The command.
    pub request: &'f Request<'f>,
    /// How long it took.
    pub took: Duration,
    /// How many operations it counts as, if not one.
    pub op_count: Option<u64>,
    /// Why it failed, if it did.
    pub error: Option<&'f Error>,
    /// Bytes of the reply.
    pub reply_bytes: usize,
}

/// The line of `top` for commands on collections; the connection keeps the one it used last.
fn top_line<'l>(
    server: &ServerState,
    local: &'l mut ConnLocal,
    spec: &CommandSpec,
    op: &OpContext,
) -> Option<&'l TopEntry> {
    let counted = match spec.kind {
        Kind::Read | Kind::Write => true,
        // What drops or renames a collection forgets its line.
        Kind::Ddl => spec.target == Target::Collection && spec.name != "drop",
        _ => false,
    };
    if !counted {
        return None;
    }
    let ns = op.namespace();
    let is_it = |(kept, entry): &(String, Arc<TopEntry>)| {
        kept == ns && !entry.forgotten.load(Ordering::Relaxed)
    };
    if !local.top.as_ref().is_some_and(is_it) {
        local.top = Some((ns.to_string(), server.metrics.top_entry(ns)));
    }
    local.top.as_ref().map(|(_, entry)| &**entry)
}

/// Counts a finished operation and logs it if it was slow.
fn account(f: &Finished<'_>, top: Option<&TopEntry>) {
    let micros = f.took.as_micros() as u64;
    f.counter.op(f.spec.op, f.op_count.unwrap_or(1));
    let kind = match f.spec.kind {
        Kind::Read => LatencyKind::Reads,
        Kind::Write => LatencyKind::Writes,
        _ => LatencyKind::Commands,
    };
    f.counter.latency(kind, micros);
    let done = &f.op.counters;
    let (returned, written) = (
        done.returned.load(Ordering::Relaxed),
        done.written.load(Ordering::Relaxed),
    );
    match f.spec.op {
        OpKind::Insert => f.counter.documents(returned, written, 0, 0),
        OpKind::Update => f.counter.documents(returned, 0, written, 0),
        OpKind::Delete => f.counter.documents(returned, 0, 0, written),
        _ => f.counter.documents(returned, 0, 0, 0),
    }
    if let Some(top) = top {
        top.add(f.spec.op, kind, micros);
    }
    crate::profiler::finished(f);
}
