//! Passing commands on and their replies back: whole, as most go, and those of cursors and transactions.

use super::cursors::Entry;
use super::forward::{ask, reach};
use super::{Reach, Router, SetPool};
use crate::context::CommandContext;
use crate::registry::{self, Routed};
use crate::router::place::set_of;
use crate::router::sets::Reply;
use muniment_value::args::Types;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc};
use muniment_wire::client;
use std::sync::Arc;
use std::time::Instant;

/// What a server says of itself in a reply, which the router says of itself.
const OWN: [&str; 4] = ["$clusterTime", "$configTime", "ok", "topologyVersion"];

/// Does with a command what its declaration says.
///
/// # Errors
/// 59 for a command that a router does not have; the errors of the way there and of the shard.
pub fn run(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    match cx.spec.routed {
        Routed::Refused => Err(registry::unknown(cx.request.name)),
        Routed::Here => (cx.spec.run)(cx),
        Routed::Config => to(cx, router, &Arc::clone(&router.config)),
        Routed::Database => {
            let set = set_of(cx, router, cx.db())?;
            to(cx, router, &set)
        }
        Routed::By(run) => run(cx, router),
    }
}

/// Passes the command on to a set as it came, and its reply back.
///
/// # Errors
/// Those of the way there, and the set's.
pub fn to(cx: &mut CommandContext<'_>, router: &Router, set: &Arc<SetPool>) -> Result<()> {
    if let (true, Some(session), Some(number)) = (
        cx.generic.in_transaction(),
        cx.generic.session,
        cx.generic.txn_number,
    ) {
        let starts = cx.generic.start_transaction.is_some();
        router.transactions.goes_to(session, number, starts, set)?;
    }
    let reply = ask(cx, router, set, cx.request.body, reach(cx))?;
    back(cx, router, set, &reply)
}

/// Passes a reply back. A cursor in it is continued by the router.
///
/// # Errors
/// The set's.
pub fn back(
    cx: &mut CommandContext<'_>,
    router: &Router,
    set: &Arc<SetPool>,
    reply: &Reply,
) -> Result<()> {
    let body = reply.body.as_doc();
    client::check_ok(body)?;
    if let Some(cursor) = body.get_doc("cursor") {
        opened(cx, router, set, &reply.host, cursor)?;
    }
    for e in body {
        if !OWN.contains(&e.name()) {
            cx.reply.field(e.name(), e.value());
        }
    }
    tell(cx, set);
    Ok(())
}

/// Remembers the cursor of a reply.
///
/// # Errors
/// 1 if its number is that of another one.
fn opened(
    cx: &CommandContext<'_>,
    router: &Router,
    set: &Arc<SetPool>,
    host: &str,
    cursor: Doc<'_>,
) -> Result<()> {
    let id = cursor.get("id").and_then(|v| v.as_i64_exact());
    let Some(id) = id.filter(|id| *id != 0) else {
        return Ok(());
    };
    let entry = Entry {
        set: Arc::clone(set),
        host: host.to_string(),
        user: cx.cursor_owner().user,
        used: Instant::now(),
    };
    match router.cursors.insert(id, entry) || cx.spec.continues_cursor() {
        true => Ok(()),
        false => Err(Error::internal(format!(
            "two cursors have the number {id}: run the command again"
        ))),
    }
}

/// Passes getMore on to the member that has the cursor.
///
/// # Errors
/// 43 for a cursor that is not known; 13 for another user's; the member's.
pub fn get_more(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let Value::Int64(id) = cx.typed_target(Types::LONG)? else {
        return Err(Error::internal("a cursor id that is no long"));
    };
    let user = cx.cursor_owner().user;
    let entry = router.cursors.get(id, user.as_ref())?;
    let reach = Reach::Host(&entry.host);
    let reply = ask(cx, router, &entry.set, cx.request.body, reach)?;
    let cursor = reply.body.as_doc().get_doc("cursor");
    let next = cursor.and_then(|c| c.get("id")?.as_i64_exact());
    let code = reply
        .body
        .as_doc()
        .get("code")
        .and_then(|v| v.as_i64_exact());
    if next == Some(0) || code == Some(i64::from(Code::CursorNotFound.0)) {
        router.cursors.remove(id);
    }
    back(cx, router, &entry.set, &reply)
}

/// Ends cursors on the members that have them.
///
/// # Errors
/// The members'.
pub fn kill_cursors(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let ids = cx.args.array("cursors").unwrap_or(Doc::EMPTY);
    let ids: Vec<i64> = ids.values().filter_map(|v| v.as_i64_exact()).collect();
    let user = cx.cursor_owner().user;
    let mut told = [
        "cursorsKilled",
        "cursorsNotFound",
        "cursorsAlive",
        "cursorsUnknown",
    ]
    .map(|name| (name, ArrayBuf::new()));
    for id in ids {
        let Ok(entry) = router.cursors.get(id, user.as_ref()) else {
            if let Some((_, list)) = told.get_mut(1) {
                list.push(id);
            }
            continue;
        };
        let mut one = ArrayBuf::new();
        one.push(id);
        let mut body = DocBuf::new();
        for e in cx.request.body {
            match e.name() {
                "cursors" => body.append("cursors", one.clone()),
                _ => body.append_elem(e),
            };
        }
        let reach = Reach::Host(&entry.host);
        let reply = ask(cx, router, &entry.set, body.as_doc(), reach)?;
        client::check_ok(reply.body.as_doc())?;
        for (name, list) in &mut told {
            let of = reply.body.as_doc().get_array(name).unwrap_or(Doc::EMPTY);
            of.values().for_each(|v| {
                list.push(v);
            });
        }
        router.cursors.remove(id);
    }
    for (name, list) in told {
        cx.reply.field(name, list);
    }
    Ok(())
}

/// Passes commitTransaction and abortTransaction on to the shard that has the transaction.
///
/// # Errors
/// 251 if no shard has it; the shard's.
pub fn end_transaction(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let (session, number) = (cx.generic.session, cx.generic.txn_number);
    let known = session
        .zip(number)
        .and_then(|(session, number)| router.transactions.of(&session, number));
    let token = cx.request.body.get_doc("recoveryToken");
    let named = token.and_then(|t| t.get_str("recoveryShardId"));
    let set = match (known, named) {
        (Some(set), _) => set,
        (None, Some(name)) => router.catalog.shard(&**cx.op, router, name)?,
        (None, None) => {
            return Err(Error::new(
                Code::NoSuchTransaction,
                "no statement of the transaction was sent to a shard by this router",
            ));
        }
    };
    let reply = ask(cx, router, &set, cx.request.body, Reach::Primary)?;
    back(cx, router, &set, &reply)
}

/// Tells the client which shard knows of its transaction.
fn tell(cx: &mut CommandContext<'_>, set: &SetPool) {
    if cx.generic.in_transaction() {
        let token = doc! { "recoveryShardId": set.name.as_str() };
        cx.reply.field("recoveryToken", token);
    }
}
