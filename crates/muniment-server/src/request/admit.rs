//! The second step: may the command run here and now? If so, it gets what it needs to run.

use super::labels::labelled;
use super::parse::{Parsed, namespace_of, uuid_of, write_concern_of};
use super::{Caller, Early};
use crate::audit;
use crate::auth::{self, Needs};
use crate::concern::WriteConcern;
use crate::connections::ConnShared;
use crate::context::{ConnLocal, Request};
use crate::failpoint::Failure;
use crate::generic::Generic;
use crate::placement;
use crate::registry::{CommandSpec, Kind, Routed, Target};
use crate::replica_set;
use crate::state::ServerState;
use crate::transactions::{self, CheckedOut};
use muniment_auth::action::Action;
use muniment_exec::{OpContext, OpGuard, OpStart, Ticket, TicketPool};
use muniment_storage::SessionKey;
use muniment_value::{Code, Doc, Error, Result, ValueBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The most bytes of a command that currentOp and the slow-operation log keep.
pub const KEEP_COMMAND: usize = 4096;
/// Each connection notes the use of a session at most this often.
const SESSION_EVERY: Duration = Duration::from_secs(1);

/// What a command is given to run with.
pub struct Admitted<'s> {
    /// The operation that the command runs as.
    pub op: OpGuard<'s>,
    /// Its session, if it belongs to a transaction or is retryable.
    pub transaction: Option<CheckedOut>,
    /// Its ticket, if its kind needs one.
    pub ticket: Option<Ticket<'s>>,
    /// The write concern that is in force.
    pub write_concern: WriteConcern,
    /// The part of a fail point that is added to the reply.
    pub failure: Option<Failure>,
}

/// Decides whether a command may run, and begins its operation.
///
/// # Errors
/// The reason why it may not run, with the labels of the error.
pub fn admit<'r>(
    caller: &Caller<'r>,
    local: &mut ConnLocal,
    parsed: &Parsed<'r>,
) -> std::result::Result<Admitted<'r>, Early> {
    let (server, spec) = (caller.server, parsed.spec);
    let generic = &parsed.generic;
    check_api(server, generic)?;
    replica_set::check_caller(server, caller.conn, local, spec)?;
    transactions::check_command(spec, generic)?;
    let namespace = namespace_of(server, spec, caller.request)?;
    auth::check(server, local, spec, caller.request, &namespace)?;
    let who = || auth::who(caller.conn, local);
    audit::allowed(server, who, spec, caller.request, &namespace)?;
    let write_concern = write_concern_of(server, spec, caller.request, generic)?;
    if let Some(id) = &generic.session {
        note_session(server, local, id, parsed.began)?;
    }
    let op = begin(caller, local, parsed, namespace);
    if let Some(versions) = generic.shard_version {
        if !auth::may_on_cluster(server, local, Action::Internal) {
            return Err(auth::refused(spec, caller.request).into());
        }
        let expected = placement::expectations(versions)?;
        if expected
            .all_shards
            .is_some_and(|at| at > server.engine.store.visible())
            && !server.is_writable()
        {
            let why = "this member may not know the newest change of ranges yet";
            return Err(muniment_storage::stale(op.namespace(), None, why).into());
        }
        op.expect(expected);
        let store = &server.engine.store;
        // A collection that is not here is looked for below. Change streams and questions of members go to all shards.
        let of_database = op
            .namespace()
            .split_once('.')
            .is_none_or(|(_, c)| c.starts_with("$cmd"));
        if of_database && !op.is_merged() && !matches!(spec.needs, Needs::Member) {
            muniment_exec::check_database(store, &op, op.namespace())?;
        }
        // What reads or writes documents checks that when it looks the collection up.
        let names = matches!(
            spec.target,
            Target::Collection | Target::CollectionUnchecked
        );
        if names && !matches!(spec.kind, Kind::Read | Kind::Write) {
            check_collection(server, &op)?;
        }
    }
    let failed = |e| labelled(caller, spec, &parsed.generic, &op, e);
    may_run(caller, local, parsed, &op).map_err(failed)?;
    match auth::hidden(parsed.spec, caller.request.body, op.namespace()) {
        Some(_) => remember_command(caller.conn, Doc::EMPTY),
        None => remember_command(caller.conn, caller.request.body),
    }
    let failure = match server.failpoints.any() {
        true => fail(caller, parsed, &op)?,
        false => None,
    };
    let (transaction, ticket) = enter(caller, parsed, &op).map_err(failed)?;
    Ok(Admitted {
        op,
        transaction,
        ticket,
        write_concern,
        failure,
    })
}

fn check_api(server: &ServerState, generic: &Generic<'_>) -> Result<()> {
    let required = &server.parameters.require_api_version;
    if generic.api_version || !required.load(Ordering::Relaxed) {
        return Ok(());
    }
    Err(Error::new(
        Code::APIVersionError,
        "The apiVersion parameter is required, please configure your MongoClient's API version",
    ))
}

/// Begins the operation. From here on currentOp shows it and killOp can end it.
fn begin<'r>(
    caller: &Caller<'r>,
    local: &ConnLocal,
    parsed: &Parsed<'_>,
    namespace: String,
) -> OpGuard<'r> {
    let (server, conn) = (caller.server, caller.conn);
    let (spec, generic) = (parsed.spec, &parsed.generic);
    let never = server.failpoints.fires("maxTimeNeverTimeOut");
    // In getMore, maxTimeMS is the time to wait for data, and no limit of the operation.
    let limited = !never && !spec.continues_cursor();
    server.engine.operations.begin(OpStart {
        began: Some(parsed.began),
        command: spec.name,
        namespace,
        max_time: time_limit(caller, spec, generic).filter(|_| limited),
        connection_id: conn.id,
        on_documents: matches!(spec.kind, Kind::Read | Kind::Write),
        client: Some(Arc::clone(&conn.peer)),
        user: local.user.as_ref().map(|u| Arc::clone(&u.key)),
        comment: generic.comment.map(ValueBuf::new),
        session: generic.session,
        of_client: notices_hangups(caller.request, spec).then(|| Arc::clone(&conn.remote)),
        reply_room: local.reply_room.clone(),
        audited: server.audit.is_some(),
        // What a cursor opens was named by the command that opened it.
        opens: auth::opens(server, local).filter(|_| !spec.continues_cursor()),
        ..OpStart::default()
    })
}

/// Whether a command ends when its client has gone. One that never runs long need not; a login may wait for its turn.
/// What members ask of each other goes on, so that they can take it up again. A write that needs no reply goes on,
/// too: its client may close the connection as soon as the write is sent, and still relies on it.
fn notices_hangups(request: &Request<'_>, spec: &CommandSpec) -> bool {
    match spec.kind {
        _ if request.unacknowledged => false,
        Kind::Read | Kind::Write | Kind::Ddl => true,
        Kind::Admin => matches!(spec.needs, auth::Needs::Nothing),
        Kind::Diagnostic => false,
    }
}

/// Refuses a command that the server or the replica set does not let run now.
fn may_run(
    caller: &Caller<'_>,
    local: &ConnLocal,
    parsed: &Parsed<'_>,
    op: &Arc<OpContext>,
) -> Result<()> {
    let (server, request, spec) = (caller.server, caller.request, parsed.spec);
    if server.lifecycle.is_stopping() && !spec.while_stopping {
        return Err(Error::new(
            Code::InterruptedAtShutdown,
            "interrupted at shutdown",
        ));
    }
    if spec.target == Target::CollectionOrUuid
        && let Some(uuid) = uuid_of(request)
    {
        op.bind(Some(uuid));
    }
    replica_set::admit(server, local, spec, op, request, &parsed.generic)?;
    if server.profiling.acts() && server.profiling.of(request.db).wants() {
        op.observe();
    }
    if spec.kind == Kind::Read {
        op.make_room_for_command(&server.engine.memory, request.body.byte_len())?;
    }
    Ok(())
}

/// Gets the command's session, view and ticket. If the view or the ticket cannot be had, the session is given
/// back, so that the next command of the session does not wait for it.
fn enter<'r>(
    caller: &Caller<'r>,
    parsed: &Parsed<'_>,
    op: &Arc<OpContext>,
) -> Result<(Option<CheckedOut>, Option<Ticket<'r>>)> {
    let (server, request) = (caller.server, caller.request);
    let (spec, generic) = (parsed.spec, &parsed.generic);
    if let Some(router) = &server.router
        && !matches!(spec.routed, Routed::Here)
    {
        op.knows_cluster_time(router.times.at());
        // The shard has sessions, views and tickets.
        let namespace = op.namespace();
        transactions::check_routed(router, spec, generic, namespace, &parsed.args, request)?;
        return Ok((None, None));
    }
    if server.replica_set.is_some() {
        op.knows_cluster_time(server.engine.store.clock());
    }
    let transactions = &server.transactions;
    let checked_out = transactions.enter(server, op, spec, generic, &parsed.args, request)?;
    // A command that continues a transaction needs no ticket. All tickets may be held by operations that wait
    // for this transaction, and a wait for one of them would then never end.
    let goes_on = generic.in_transaction() && generic.start_transaction.is_none();
    let pool = ticket_pool(server, spec, op.namespace()).filter(|_| !goes_on);
    let ticket = server
        .snapshots
        .pin(server, op, spec, generic)
        .and_then(|()| pool.map(|p| op.take_ticket(p)).transpose());
    match ticket {
        Ok(ticket) => Ok((checked_out, ticket)),
        Err(e) => {
            if let Some(out) = checked_out {
                transactions.leave(server, out, generic.in_transaction());
            }
            Err(e)
        }
    }
}

/// The time limit of a command: its `maxTimeMS`, even a 0. A read without one has the limit of the cluster
/// parameter defaultMaxTimeMS.
fn time_limit(caller: &Caller<'_>, spec: &CommandSpec, generic: &Generic<'_>) -> Option<Duration> {
    if generic.max_time_given {
        return generic.max_time;
    }
    let default = caller.server.settings.cluster.read_limit();
    default.filter(|_| (spec.is_read_operation)(caller.request.body))
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
    server
        .sessions
        .touch(id, server.parameters.most_sessions())?;
    local.session = Some((*id, now));
    Ok(())
}

/// The pool of a command's ticket. `None` for commands that operators need when all tickets are taken.
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

/// Applies the fail points that act before a command runs.
fn fail(
    caller: &Caller<'_>,
    parsed: &Parsed<'_>,
    op: &Arc<OpContext>,
) -> std::result::Result<Option<Failure>, Early> {
    let (server, spec, generic) = (caller.server, parsed.spec, &parsed.generic);
    if generic.max_time.is_some() && server.failpoints.fires("maxTimeAlwaysTimeOut") {
        let e = Error::new(Code::MaxTimeMSExpired, "operation exceeded time limit");
        return Err(e.into());
    }
    let app_name = caller.conn.client.lock().app_name.clone();
    let app_name = app_name.or_else(|| {
        // The first hello names the application itself; its connection has no name yet.
        let client = caller.request.body.get_doc("client")?;
        Some(Arc::from(client.get_doc("application")?.get_str("name")?))
    });
    let points = &server.failpoints;
    let Some(f) = points.fail_command(spec, op.namespace(), app_name.as_deref()) else {
        return Ok(None);
    };
    let labels = |e: &Error| transactions::labels(spec, generic, e.code());
    if let Some(time) = f.block {
        sleep(op, time).map_err(|e| {
            let labels = labels(&e);
            Early::Failed(e, labels)
        })?;
    }
    if f.close {
        return Err(Early::Closes);
    }
    match f.error {
        Some(e) => {
            let labels = f.labels.or_else(|| labels(&e));
            Err(Early::Failed(e, labels))
        }
        None => Ok(Some(f)),
    }
}

/// Compares what a router knows of the command's collection with what is so here.
///
/// # Errors
/// 13388 StaleConfig if they differ.
fn check_collection(server: &ServerState, op: &OpContext) -> Result<()> {
    let store = &server.engine.store;
    let found = store.collection(op.namespace());
    // The buckets of a time series are where its measurements are.
    let series = || muniment_exec::series_of(store, op.namespace());
    match found.map_or_else(series, Some) {
        Some(series) if series.is_time_series() => {
            op.check_placement(&series.name(), Some(&series))
        }
        Some(found) => op.check_placement(op.namespace(), Some(&found)),
        None => {
            op.check_placement(op.namespace(), None)?;
            muniment_exec::check_database(store, op, op.namespace())
        }
    }
}

/// Sleeps for `time` or until the operation has to stop.
///
/// # Errors
/// The reason to stop.
fn sleep(op: &Arc<OpContext>, time: Duration) -> Result<()> {
    muniment_op::sleep_until(muniment_op::now() + time, &**op)
}
