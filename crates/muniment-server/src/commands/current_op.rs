//! `currentOp`.

use super::cursor_reply::filter;
use crate::auth::{self, Asks, Needs};
use crate::connections::ConnShared;
use crate::context::CommandContext;
use crate::generic::Generic;
use crate::registry::{CommandSpec, Kind, Routed};
use crate::router::operations::of_shards;
use crate::state::ServerState;
use muniment_auth::action::Action;
use muniment_auth::resource::Target as On;
use muniment_exec::{CursorInfo, OpContext};
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, Value, doc};
use std::sync::atomic::Ordering;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "currentOp",
    aliases: &["currentop"],
    doc: "What runs now; further fields filter",
    admin_only: true,
    open_fields: true,
    run,
    ..CommandSpec::new(Routed::Here, Needs::Of(needs))
};

/// A user may see the own operations without more.
fn needs(asks: &Asks<'_>) -> bool {
    asks.has("$ownOps") || asks.may_one(On::Cluster, Action::Inprog)
}

/// The longest command that is shown whole when commands are cut off, in bytes.
const LONGEST: usize = 1000;

/// All running operations as `currentOp` lists them, with `idle` also idle connections. With `truncate`, long
/// commands are cut off. With `own`, only those of this user.
pub(super) fn operations(
    server: &ServerState,
    idle: bool,
    truncate: bool,
    own: Option<&str>,
) -> Vec<DocBuf> {
    let host = server.address.host.as_str();
    let mut all = Vec::new();
    let mut busy = Vec::new();
    let cursors = server.engine.cursors.list();
    for op in server.engine.operations.list() {
        if own.is_some() && op.user() != own {
            continue;
        }
        let mut d = doc! { "host": host };
        let described = op.describe();
        let connection = described
            .as_doc()
            .get("connectionId")
            .and_then(|v| v.as_i64_exact());
        let conn = connection.and_then(|id| {
            let id = id as u64;
            busy.push(id);
            server.connections.get(id)
        });
        for e in described.as_doc() {
            match (e.name(), &conn) {
                ("command", Some(c)) => {
                    let command = c.command.lock();
                    if command.len() > 4 {
                        let longest = if truncate { LONGEST } else { usize::MAX };
                        d.append("command", Doc::new(&command).abridged(longest));
                    } else {
                        d.append_elem(e);
                    }
                }
                _ => {
                    d.append_elem(e);
                }
            }
        }
        if let Some(c) = &conn {
            client(c, &mut d);
        }
        d.append_some("transaction", server.transactions.of_operation(server, &op));
        let used = |c: &&CursorInfo| c.used_by == Some(op.id());
        d.append_some("cursor", cursors.iter().find(used).map(|c| &c.description));
        d.append("locks", locks(op.command()));
        d.append("numYields", 0_i64);
        all.push(d);
    }
    if let Some(router) = server.router.as_ref().filter(|_| own.is_none()) {
        all.extend(router.resharding.to_docs());
    }
    if idle {
        all.extend(idle_connections(server, &busy, own));
    }
    all
}

/// The connections on which no command runs, as `currentOp` lists them.
fn idle_connections(server: &ServerState, busy: &[u64], own: Option<&str>) -> Vec<DocBuf> {
    let mut all = Vec::new();
    for c in server.connections.list() {
        if busy.contains(&c.id) || c.busy.load(Ordering::Relaxed) {
            continue;
        }
        if own.is_some() && c.user.lock().as_deref() != own {
            continue;
        }
        let mut d = doc! {
            "type": "op",
            "host": server.address.host.as_str(),
            "desc": format!("conn{}", c.id),
            "connectionId": c.id as i64,
            "client": &*c.peer,
            "active": false,
        };
        client(&c, &mut d);
        all.push(d);
    }
    all
}

/// The documents of the aggregation stage `$currentOp`. The operand is already checked.
/// Without `allUsers`, a user sees only the own operations. A router shows those of the shards, unless `localOps` or a
/// user asks for the router's own.
///
/// # Errors
/// Those of the shards.
pub(crate) fn stage(server: &ServerState, op: &OpContext, operand: Doc<'_>) -> Result<Vec<DocBuf>> {
    let asked = |name: &str| matches!(operand.get(name), Some(Value::Bool(true)));
    let own = op
        .user()
        .filter(|_| server.auth.required && !asked("allUsers"));
    if let Some(router) = server.router.as_ref().filter(|_| own.is_none())
        && !asked("localOps")
    {
        return of_shards(op, router, operand);
    }
    let mut all = operations(server, asked("idleConnections"), asked("truncateOps"), own);
    if own.is_none() && !matches!(operand.get("idleSessions"), Some(Value::Bool(false))) {
        all.extend(server.transactions.idle(server));
    }
    if asked("idleCursors") {
        let idle = server.engine.cursors.list().into_iter();
        let shown = |c: &CursorInfo| {
            c.used_by.is_none() && (own.is_none() || c.owner.user.as_deref() == own)
        };
        all.extend(idle.filter(shown).map(|c| {
            doc! {
                "type": "idleCursor",
                "host": server.address.host.as_str(),
                "ns": c.namespace.as_str(),
                "cursor": c.description,
            }
        }));
    }
    Ok(all)
}

/// The locks that a command would take in MongoDB, under MongoDB's names. Reads and writes share them with
/// others; only fsyncLock keeps all writers out.
fn locks(command: &str) -> DocBuf {
    let kind = crate::registry::find(command).map(|spec| spec.kind);
    let mode = match kind {
        Some(Kind::Read) => "r",
        Some(Kind::Write | Kind::Ddl) => "w",
        _ => return DocBuf::new(),
    };
    doc! { "Global": mode, "Database": mode, "Collection": mode }
}

fn client(c: &ConnShared, d: &mut DocBuf) {
    let info = c.client.lock();
    d.append_some("appName", info.app_name.as_deref());
    d.append_some("clientMetadata", info.document.as_ref());
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let mut wanted = DocBuf::new();
    let (mut all, mut own, mut truncate) = (false, false, true);
    for e in cx.request.body.iter().skip(1) {
        match e.name() {
            "$all" => all = e.value().truthy(),
            // The first one counts, as for the right to see those of others.
            "$ownOps" => own = own || cx.request.body.get("$ownOps").is_some_and(|v| v.truthy()),
            "$truncateOps" => truncate = e.value().truthy(),
            _ if Generic::default().take("currentOp", e)? => {}
            _ => {
                wanted.append_elem(e);
            }
        }
    }
    let wanted = filter(Some(wanted.as_doc()), cx.op)?;
    let mut list = ArrayBuf::new();
    let user = auth::user_of(cx.server, cx.local).filter(|_| own);
    let user = user.as_ref().map(|u| &*u.key);
    let running = match cx.server.router.as_ref().filter(|_| user.is_none()) {
        Some(router) => {
            let asked = doc! {
                "allUsers": true, "idleConnections": all, "idleSessions": true, "truncateOps": truncate,
            };
            of_shards(&**cx.op, router, asked.as_doc())?
        }
        None => {
            let mut running = operations(cx.server, all, truncate, user);
            if user.is_none() {
                running.extend(cx.server.transactions.idle(cx.server));
            }
            running
        }
    };
    for d in running {
        if let Some(f) = &wanted
            && !f.matches(d.as_doc(), cx.op.work())?
        {
            continue;
        }
        list.push(d);
    }
    cx.reply.field("inprog", list);
    if cx.engine().store.write_lock_depth() > 0 {
        cx.reply.field("fsyncLock", true);
        cx.reply.field(
            "info",
            "use db.fsyncUnlock() to terminate the fsync write/snapshot lock",
        );
    }
    Ok(())
}
