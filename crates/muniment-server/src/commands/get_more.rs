//! `getMore`.

use crate::auth::{self, Needs};
use crate::context::CommandContext;
use crate::metrics::OpKind;
use crate::namespace;
use crate::registry::{CommandSpec, Kind, Routed, RunsOn, Target};
use crate::state::ServerState;
use muniment_exec::GetMoreRequest;
use muniment_value::args::{Field, Types, idle, opt, req};
use muniment_value::{Doc, Error, Result, Value};

const FIELDS: &[Field] = &[
    req("collection", Types::STRING),
    opt("batchSize", Types::NUMBER),
    idle("term", Types::LONG, "internal clients only"),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "getMore",
    doc: "The next batch of a cursor",
    kind: Kind::Read,
    op: OpKind::GetMore,
    target: Target::Cursor,
    // Drivers add the session's read concern to every command that they send in it. It is accepted, but
    // a cursor keeps the read concern that it was opened with.
    read_concern: true,
    in_transactions: true,
    api_v1: true,
    fields: FIELDS,
    run,
    runs_on: Some(RunsOn::Data),
    snapshot_reads: true,
    is_change_stream,
    ..CommandSpec::new(Routed::By(crate::router::relay::get_more), Needs::Login)
};

/// Whether the cursor is that of a change stream.
fn is_change_stream(server: &ServerState, body: Doc<'_>) -> bool {
    match body.first().map(|e| e.value()) {
        Some(Value::Int64(id)) => server.engine.cursors.is_of_change_stream(id),
        _ => false,
    }
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let Value::Int64(id) = cx.typed_target(Types::LONG)? else {
        return Err(Error::internal("a cursor id that is no long"));
    };
    // If rights have changed since the cursor was opened, its user has to be allowed to open it still.
    if let Some(user) = auth::user_of(cx.server, cx.local)
        && let Some(origin) = cx.engine().cursors.opened_before(id, user.generation)
        && !auth::may_still(cx.request, &user, origin.command())
    {
        return Err(auth::refused(cx.spec, cx.request));
    }
    let collection = cx.args.str("collection").unwrap_or_default();
    namespace::check_collection(cx.db(), collection)?;
    let request = GetMoreRequest {
        id,
        namespace: cx.ns(),
        batch_size: cx.args.int("batchSize", 0, i64::MAX)?.map(|n| n as usize),
        owner: cx.cursor_owner(),
        await_time: cx.generic.max_time,
        await_time_given: cx.generic.max_time_given,
        is_late: &|| cx.server.failpoints.fires("maxTimeAlwaysTimeOut"),
        fails: &|| cx.server.failpoints.fails_get_more(),
    };
    let next = cx.engine().get_more(cx.op, &request, cx.reply.buffer())?;
    cx.exhaust = next != 0 && cx.request.exhaust_allowed;
    Ok(())
}
