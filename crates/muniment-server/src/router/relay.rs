//! Passing commands on and their replies back: whole, as most go, and those of cursors and transactions.

use super::cursors::Entry;
use super::forward::{Beside, Part, ask, ask_part, bring_to_time, reach};
use super::statements::statement;
use super::{Reach, Router, SetPool};
use crate::auth;
use crate::context::CommandContext;
use crate::router::place::{self, OF_CONFIG, set_of};
use crate::sets::Reply;
use muniment_storage::SessionKey;
use muniment_value::args::Types;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, array, doc};
use muniment_wire::client;
use std::sync::Arc;

/// Longer commands are not kept with the cursors that they open.
const LONGEST_KEPT: usize = 64 << 10;
/// What a server says of itself in a reply, which the router says of itself.
const OWN: [&str; 4] = ["$clusterTime", "$configTime", "ok", "topologyVersion"];
/// What a shard says to the router of its part of a transaction.
const OF_PART: [&str; 2] = ["atClusterTime", "readOnly"];

/// Passes the command on to the set that has its database.
///
/// # Errors
/// Those of [`set_of`], of [`place::check`] and of [`to`].
pub fn database(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let (set, reply) = ask_database(cx, router)?;
    back(cx, router, &set, &reply)
}

/// Passes the command on to the set that has its database: the set, and its reply.
///
/// # Errors
/// As [`database`], but for the set's.
pub fn ask_database(cx: &CommandContext<'_>, router: &Router) -> Result<(Arc<SetPool>, Reply)> {
    let set = set_of(cx, router, cx.db())?;
    place::check(cx)?;
    let reply = ask_set(cx, router, &set, cx.request.body)?;
    Ok((set, reply))
}

/// Passes the command on to a set as it came, and its reply back.
///
/// # Errors
/// Those of the way there, and the set's.
pub fn to(cx: &mut CommandContext<'_>, router: &Router, set: &Arc<SetPool>) -> Result<()> {
    let reply = ask_set(cx, router, set, cx.request.body)?;
    back(cx, router, set, &reply)
}

/// Passes an aggregation of `config.system.sessions` on. Without the names of users, `$listSessions` is about the user
/// of the connection, whom the configuration's set would take to be the router.
///
/// # Errors
/// As [`database`].
pub fn stored_sessions(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let user = auth::user_of(cx.server, cx.local);
    let stages = cx.request.body.get_array("pipeline").unwrap_or(Doc::EMPTY);
    let operand = stages.values().next().and_then(|v| v.as_doc()?.first());
    let operand = operand.and_then(|e| e.value().as_doc());
    let names_nobody = |d: &Doc<'_>| {
        d.iter().all(|e| match (e.name(), e.value()) {
            ("allUsers", Value::Bool(all)) => !all,
            ("users", Value::Array(users)) => users.is_empty(),
            ("allUsers" | "users", v) => matches!(v, Value::Null),
            _ => false,
        })
    };
    let (Some(user), Some(_)) = (user, operand.filter(names_nobody)) else {
        return database(cx, router);
    };
    let own = doc! { "user": user.name.user.as_str(), "db": user.name.db.as_str() };
    let own = doc! { "$listSessions": doc! { "users": array![own] } };
    let mut pipeline = array![own];
    stages.values().skip(1).for_each(|stage| {
        pipeline.push(stage);
    });
    let mut body = DocBuf::new();
    for e in cx.request.body {
        match e.name() {
            "pipeline" => body.append("pipeline", pipeline.clone()),
            _ => body.append_elem(e),
        };
    }
    let set = set_of(cx, router, cx.db())?;
    let reply = ask_set(cx, router, &set, body.as_doc())?;
    back(cx, router, &set, &reply)
}

/// Sends a set the command with this body.
fn ask_set(
    cx: &CommandContext<'_>,
    router: &Router,
    set: &Arc<SetPool>,
    body: Doc<'_>,
) -> Result<Reply> {
    // What the configuration's set has for itself is nothing of a shard. (Some commands of the database admin name a
    // collection of another one.)
    let named = cx.target().as_str().filter(|_| cx.spec.admin_only);
    let db = named
        .and_then(|ns| ns.split_once('.'))
        .map_or(cx.db(), |(db, _)| db);
    let is_of_shard = !OF_CONFIG.contains(&db);
    bring_to_time(cx, router, &[set]);
    let part = Part {
        set,
        db: cx.db(),
        body,
        beside: Beside::AsSent,
        versions: is_of_shard.then_some(Doc::EMPTY),
        reach: reach(cx),
    };
    ask_one(cx, router, &part)
}

/// Sends a part to a set, as a statement of the client's transaction if there is one.
///
/// # Errors
/// Those of the way there, after which the transaction is aborted; 251 if it was before.
pub fn ask_one(cx: &CommandContext<'_>, router: &Router, part: &Part<'_>) -> Result<Reply> {
    match transaction_of(cx) {
        Some(id) => statement(cx, router, &id, part),
        None => ask_part(cx, router, part),
    }
}

/// The session and the number of the transaction that the command is a statement of.
fn transaction_of(cx: &CommandContext<'_>) -> Option<(SessionKey, i64)> {
    let session = cx.generic.session.filter(|_| cx.generic.in_transaction());
    session.zip(cx.generic.txn_number)
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
    let within = cx.generic.in_transaction();
    for e in body {
        let of_part = within && OF_PART.contains(&e.name());
        if !OWN.contains(&e.name()) && !of_part {
            cx.reply.field(e.name(), e.value());
        }
    }
    tell(cx, router, set);
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
    if cx.spec.continues_cursor() {
        return Ok(());
    }
    let owner = cx.cursor_owner();
    let body = cx.request.body;
    // As a member does, a router keeps no very long one; its cursor ends when rights change.
    let command = match body.byte_len() <= LONGEST_KEPT {
        true => body.to_buf(),
        false => DocBuf::new(),
    };
    let entry = Entry {
        set: Arc::clone(set),
        host: host.to_string(),
        namespace: cursor.get_str("ns").unwrap_or(cx.ns()).into(),
        user: owner.user,
        as_of: owner.as_of,
        command: Arc::new(command),
        used: muniment_op::now(),
        unanswered: 0,
    };
    match router.cursors.insert(id, entry) {
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
    let entry = match router.cursors.get(id, user.as_ref()) {
        // It may be one of the router's own operations or sessions.
        Err(e) if e.code() == Code::CursorNotFound => {
            return (cx.spec.run)(cx).map_err(|e| killed(cx, router, e));
        }
        entry => entry?,
    };
    // If rights have changed since the cursor was opened, its user has to be allowed to open it still.
    if let Some(user) = auth::user_of(cx.server, cx.local)
        && user.generation != entry.as_of
        && !auth::may_still(cx.request, &user, entry.command.as_doc())
    {
        return Err(auth::refused(cx.spec, cx.request));
    }
    let reach = Reach::Host(&entry.host);
    let reply = ask(cx, router, &entry.set, cx.request.body, reach)?;
    let cursor = reply.body.as_doc().get_doc("cursor");
    let next = cursor.and_then(|c| c.get("id")?.as_i64_exact());
    // After an error of the request, such as its time limit, the member has the cursor still.
    let ended = client::code_of(reply.body.as_doc()) == Some(Code::CursorNotFound);
    if next == Some(0) || ended {
        router.cursors.remove(id);
    }
    back(cx, router, &entry.set, &reply).map_err(|e| killed(cx, router, e))?;
    cx.exhaust = cx.request.exhaust_allowed && next.is_some_and(|id| id != 0);
    Ok(())
}

/// The error of a cursor whose collection was divided, or made anew, since it was opened.
fn killed(cx: &CommandContext<'_>, router: &Router, e: Error) -> Error {
    if e.code() != Code::StaleConfig {
        return e;
    }
    router.views.forget();
    if cx.generic.in_transaction() {
        return e;
    }
    if let Some(ns) = e.extra().as_doc().get_str("ns") {
        // If it fails, the next command reads the configuration.
        let _ = router.tables.refresh(&**cx.op, router, ns);
    }
    Error::new(Code::QueryPlanKilled, e.message())
}

/// Ends cursors on the members that have them.
///
/// # Errors
/// The members'.
pub fn kill_cursors(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let ids = cx.cursors_named()?;
    let owner = cx.cursor_owner();
    // Without the right to end those of others, a user ends the own cursors.
    let user = auth::user_of(cx.server, cx.local);
    let any = |ns: &str| user.as_ref().is_some_and(|user| user.may_end_cursors(ns));
    let mut told = [
        "cursorsKilled",
        "cursorsNotFound",
        "cursorsAlive",
        "cursorsUnknown",
    ]
    .map(|name| (name, ArrayBuf::new()));
    for id in ids {
        let entry = router.cursors.of_anyone(id);
        let Some(entry) = entry.filter(|entry| entry.user == owner.user || any(&entry.namespace))
        else {
            // It may be one of the router's own, over cursors of several shards.
            let mut done = cx.engine().cursors.kill(&[id], &owner, any);
            if router.cursors.of_anyone(id).is_some() {
                done.alive.append(&mut done.not_found);
            }
            let lists = [&done.killed, &done.not_found, &done.alive];
            for ((_, list), ids) in told.iter_mut().zip(lists) {
                ids.iter().for_each(|id| {
                    list.push(*id);
                });
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

/// Tells the client which shard knows how its transaction ends.
pub fn tell(cx: &mut CommandContext<'_>, router: &Router, set: &SetPool) {
    if !cx.generic.in_transaction() {
        return;
    }
    let known = transaction_of(cx).and_then(|id| router.transactions.of(&id));
    let name = known.as_ref().and_then(|known| known.coordinator());
    let name = name.map_or(set.name.as_str(), |set| set.name.as_str());
    cx.reply
        .field("recoveryToken", doc! { "recoveryShardId": name });
}

/// Runs a command on sessions here and on all shards, where the sessions are the same.
///
/// # Errors
/// Those of the command, here or there.
pub fn everywhere(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    (cx.spec.run)(cx)?;
    let body = with_user(cx);
    let mut sets = vec![Arc::clone(&router.config)];
    sets.extend(
        router
            .catalog
            .shards(&**cx.op, router)?
            .into_iter()
            .map(|(_, set)| set),
    );
    for set in sets {
        let reply = ask(cx, router, &set, body.as_doc(), Reach::Primary)?;
        client::check_ok(reply.body.as_doc())?;
    }
    Ok(())
}

/// The command, whose sessions are those of the connection's user also for a server that does not know that user.
fn with_user(cx: &CommandContext<'_>) -> DocBuf {
    let user = auth::user_of(cx.server, cx.local);
    let mut body = DocBuf::new();
    // All sessions of the user; to a shard that would be all there are.
    let names_none = cx.target().as_array().is_some_and(|list| list.is_empty());
    let own = user
        .as_ref()
        .filter(|_| names_none && cx.spec.name == "killSessions");
    if let Some(user) = own {
        let uid = Value::Binary {
            subtype: 0,
            bytes: &user.digest,
        };
        body.append("killAllSessionsByPattern", array![doc! { "uid": uid }]);
    }
    for (i, e) in cx.request.body.iter().enumerate() {
        if i == 0 && own.is_some() {
            continue;
        }
        let (Some(user), Some(list), 0) = (&user, e.value().as_array(), i) else {
            body.append_elem(e);
            continue;
        };
        let mut all = ArrayBuf::new();
        for v in list.values() {
            match v.as_doc() {
                Some(d) if d.get("id").is_some() && d.get("uid").is_none() => {
                    let mut d = d.to_buf();
                    d.append(
                        "uid",
                        Value::Binary {
                            subtype: 0,
                            bytes: &user.digest,
                        },
                    );
                    all.push(d);
                }
                _ => {
                    all.push(v);
                }
            }
        }
        body.append(e.name(), all);
    }
    body
}
