//! Passing a command on.

use super::{Reach, Router, SetPool};
use crate::context::CommandContext;
use crate::placement::{self, FIELD};
use crate::registry::Kind;
use crate::sets::{Outgoing, Reply, Sent};
use muniment_op::Interrupt;
use muniment_storage::{NOBODY, SessionKey, Timestamp};
use muniment_value::{Doc, DocBuf, Result, Value, doc};
use muniment_wire::{DocWriter, begin_request};
use std::sync::Arc;

/// In shorter messages there is room for what a router adds.
const ROOMY: usize = 47_990_000;

/// The documents beside a command.
#[derive(Clone, Copy)]
pub enum Beside<'p> {
    /// None.
    Nothing,
    /// Those that the client sent.
    AsSent,
    /// These, which belong into the array of this name.
    These(&'p str, &'p [Doc<'p>]),
}

/// A command for one set, made of what the client sent.
#[derive(Clone, Copy)]
pub struct Part<'p> {
    /// The set.
    pub set: &'p Arc<SetPool>,
    /// The database.
    pub db: &'p str,
    /// The command without what the router adds.
    pub body: Doc<'p>,
    /// The documents beside it.
    pub beside: Beside<'p>,
    /// The field `shardVersion`, for a shard (see [`crate::placement`]). Empty: no collection is sharded.
    pub versions: Option<Doc<'p>>,
    /// The member of the set.
    pub reach: Reach<'p>,
}

/// Sends a set the command with this body, and its sequences as they came; the reply, be it an error.
///
/// # Errors
/// Those of the way there.
pub fn ask(
    cx: &CommandContext<'_>,
    router: &Router,
    set: &Arc<SetPool>,
    body: Doc<'_>,
    reach: Reach<'_>,
) -> Result<Reply> {
    let part = Part {
        set,
        db: cx.db(),
        body,
        beside: Beside::AsSent,
        versions: None,
        reach,
    };
    ask_part(cx, router, &part)
}

/// Sends a part, and waits for its reply, be it an error.
///
/// # Errors
/// Those of the way there.
pub fn ask_part(cx: &CommandContext<'_>, router: &Router, part: &Part<'_>) -> Result<Reply> {
    let mut message = Vec::with_capacity(part.body.byte_len() + 256);
    let out = outgoing(cx, router, part, &mut message)?;
    // The shard has tickets of its own.
    let reply = part.set.ask(&out, &**cx.op)?;
    router.times.heard(reply.body.as_doc());
    Ok(reply)
}

/// Sends all parts at once, and waits for their replies, which are in the parts' order.
pub fn ask_all(cx: &CommandContext<'_>, router: &Router, parts: &[Part<'_>]) -> Vec<Result<Reply>> {
    if let [one] = parts {
        return vec![ask_part(cx, router, one)];
    }
    let mut messages: Vec<Vec<u8>> = parts.iter().map(|_| Vec::new()).collect();
    let written = parts.iter().zip(&mut messages);
    let written: Vec<_> = written
        .map(|(part, message)| outgoing(cx, router, part, message))
        .collect();
    let sent: Vec<_> = (written.into_iter().zip(parts))
        .map(|(out, part)| out.map(|out| (part.set.send(&out), out)))
        .collect();
    let replies = sent.into_iter().zip(parts).map(|(sent, part)| {
        let (sent, out) = sent?;
        let reply = part.set.finish(sent, &out, &**cx.op)?;
        router.times.heard(reply.body.as_doc());
        Ok(reply)
    });
    replies.collect()
}

/// Writes a part's message.
fn outgoing<'m>(
    cx: &CommandContext<'_>,
    router: &Router,
    part: &Part<'m>,
    message: &'m mut Vec<u8>,
) -> Result<Outgoing<'m>> {
    let mut writer = begin_request(message, 1, 0).body_with(|w| write(cx, router, part, w));
    match part.beside {
        Beside::Nothing => {}
        Beside::These(name, docs) => writer = writer.sequence(name, docs.iter().copied()),
        Beside::AsSent => {
            for sequence in cx.request.sequences {
                writer = writer.sequence(sequence.name, sequence.docs);
            }
        }
    }
    writer.finish()?;
    let retried = cx.spec.retryable_write && cx.generic.txn_number.is_some();
    // A cursor that has answered has gone on.
    let writes = (cx.spec.writes_output)(cx.request.body);
    let reads = cx.spec.kind == Kind::Read && !cx.spec.continues_cursor() && !writes;
    let in_transaction = cx.generic.in_transaction() && cx.spec.ends_transaction.is_none();
    Ok(Outgoing {
        message,
        reach: part.reach,
        repeatable: (reads || retried || cx.spec.ends_transaction.is_some()) && !in_transaction,
    })
}

/// A command of the router's own, for one set.
#[derive(Clone, Copy)]
pub struct Own<'o> {
    /// The set.
    pub set: &'o SetPool,
    /// The database.
    pub db: &'o str,
    /// The command.
    pub command: &'o DocBuf,
    /// As [`Part::versions`].
    pub versions: Option<Doc<'o>>,
    /// The member of the set.
    pub reach: Reach<'o>,
}

/// Sends commands of the router's own that only read, all at once; their replies are in the same order.
pub fn ask_own_of_all(
    on: &dyn Interrupt,
    router: &Router,
    asked: &[Own<'_>],
) -> Vec<Result<Reply>> {
    let alone: Vec<_> = asked.iter().map(|one| (*one, &[][..])).collect();
    own_at_once(on, router, &alone, true)
}

/// Sends commands of the router's own that write, all at once, each with `documents` beside it; their replies are in
/// the same order.
pub fn write_own_to_all(
    on: &dyn Interrupt,
    router: &Router,
    asked: &[(Own<'_>, &[Doc<'_>])],
) -> Vec<Result<Reply>> {
    own_at_once(on, router, asked, false)
}

fn own_at_once(
    on: &dyn Interrupt,
    router: &Router,
    asked: &[(Own<'_>, &[Doc<'_>])],
    repeatable: bool,
) -> Vec<Result<Reply>> {
    let mut messages: Vec<Vec<u8>> = asked.iter().map(|_| Vec::new()).collect();
    let written = asked.iter().zip(&mut messages);
    let written = written.map(|((one, docs), message)| {
        let mut command = one.command.clone();
        command.append_some(FIELD, one.versions);
        own_beside(router, (one.db, &command), docs, message)
    });
    let written: Vec<_> = written.collect();
    let sent = written.into_iter().zip(asked).zip(&messages);
    let sent: Vec<_> = sent
        .map(|((written, (one, _)), message)| {
            let out = Outgoing {
                message,
                reach: one.reach,
                repeatable,
            };
            written.map(|()| (one.set.send(&out), out))
        })
        .collect();
    let replies = sent.into_iter().zip(asked).map(|(sent, (one, _))| {
        let (sent, out) = sent?;
        let reply = one.set.finish(sent, &out, on)?;
        router.times.heard(reply.body.as_doc());
        Ok(reply)
    });
    replies.collect()
}

/// Sends a command of the router's own, for whose reply it waits later.
///
/// # Errors
/// Those of the way there.
pub fn begin_own(on: &dyn Interrupt, router: &Router, asked: &Own<'_>) -> Result<Sent> {
    let mut message = Vec::new();
    own(router, asked.db, asked.command, &mut message)?;
    let out = Outgoing {
        message: &message,
        reach: asked.reach,
        repeatable: false,
    };
    asked.set.begin(&out, on)
}

/// Runs a command of the router's own on one member: its reply, be it an error.
///
/// # Errors
/// Those of the way there.
pub fn run_on(
    on: &dyn Interrupt,
    router: &Router,
    set: &SetPool,
    host: &str,
    db: &str,
    command: &DocBuf,
) -> Result<DocBuf> {
    let mut message = Vec::new();
    own(router, db, command, &mut message)?;
    let out = Outgoing {
        message: &message,
        reach: Reach::Host(host),
        repeatable: false,
    };
    let reply = set.ask(&out, on)?.body;
    router.times.heard(reply.as_doc());
    Ok(reply)
}

/// Writes a command of the router's own.
fn own(router: &Router, db: &str, command: &DocBuf, message: &mut Vec<u8>) -> Result<()> {
    own_beside(router, (db, command), &[], message)
}

/// As [`own`], with `documents` beside it.
fn own_beside(
    router: &Router,
    (db, command): (&str, &DocBuf),
    docs: &[Doc<'_>],
    message: &mut Vec<u8>,
) -> Result<()> {
    let mut writer = begin_request(message, 1, 0).body_with(|w| {
        w.elements(command.as_doc());
        w.field("$db", db);
        if let Some(time) = router.times.newest() {
            w.field("$clusterTime", time);
        }
    });
    if !docs.is_empty() {
        writer = writer.sequence("documents", docs.iter().copied());
    }
    writer.finish()?;
    Ok(())
}

/// Sends a primary a command of the router's own in the client's session; the reply, be it an error. It may be
/// executed twice.
///
/// # Errors
/// Those of the way there; what `on` says.
pub fn ask_own(
    cx: &CommandContext<'_>,
    router: &Router,
    set: &Arc<SetPool>,
    (db, body): (&str, Doc<'_>),
    on: &dyn Interrupt,
) -> Result<Reply> {
    let mut message = Vec::with_capacity(body.byte_len() + 256);
    let part = Part {
        set,
        db,
        body,
        beside: Beside::Nothing,
        versions: None,
        reach: Reach::Primary,
    };
    begin_request(&mut message, 1, 0)
        .body_with(|w| write(cx, router, &part, w))
        .finish()?;
    let out = Outgoing {
        message: &message,
        reach: Reach::Primary,
        repeatable: true,
    };
    let reply = set.ask(&out, on)?;
    router.times.heard(reply.body.as_doc());
    Ok(reply)
}

/// Runs a command of the router's own on a primary.
///
/// # Errors
/// Those of the way there, and the set's.
pub fn run(
    on: &dyn Interrupt,
    router: &Router,
    set: &SetPool,
    db: &str,
    command: &DocBuf,
    repeatable: bool,
) -> Result<DocBuf> {
    let time = router.times.newest();
    let reply = set.run(db, command, time, repeatable, on)?;
    router.times.heard(reply.as_doc());
    Ok(reply)
}

/// Has the primaries of these sets come to a time; their replies.
pub fn come_to<'s>(
    on: &dyn Interrupt,
    router: &Router,
    sets: impl Iterator<Item = &'s Arc<SetPool>>,
    time: Value<'_>,
) -> Vec<Result<Reply>> {
    let command = doc! { "_changesUpTo": 1, "time": time };
    let asked = sets.map(|set| Own {
        set,
        db: "admin",
        command: &command,
        versions: None,
        reach: Reach::Primary,
    });
    ask_own_of_all(on, router, &asked.collect::<Vec<_>>())
}

/// Before secondaries of these sets are read after a time that only another shard may have come to, has the primaries
/// come to it: they commit an empty record, without which a secondary would wait for the next write. What fails is left
/// to the read.
pub fn bring_to_time(cx: &CommandContext<'_>, router: &Router, sets: &[&Arc<SetPool>]) {
    let after = cx
        .generic
        .read_concern
        .and_then(|d| d.get("afterClusterTime"));
    let (Some(time @ Value::Timestamp { t, i }), Reach::By(_)) = (after, reach(cx)) else {
        return;
    };
    let lacks = |set: &&&Arc<SetPool>| set.knows_primary() && !set.has_told(Timestamp::new(t, i));
    let mut lack = sets.iter().filter(lacks).copied().peekable();
    if lack.peek().is_some() {
        drop(come_to(&**cx.op, router, lack, time));
    }
}

/// The member that a command goes to: as its read preference says, if it only reads.
pub fn reach<'a>(cx: &CommandContext<'a>) -> Reach<'a> {
    let reads = cx.spec.kind == Kind::Read && !(cx.spec.writes_output)(cx.request.body);
    if !reads || cx.generic.in_transaction() {
        return Reach::Primary;
    }
    Reach::of(cx.generic.read_preference)
}

/// Writes the command for a shard: what the client sent, with the session's user and the newest time.
fn write(cx: &CommandContext<'_>, router: &Router, part: &Part<'_>, w: &mut DocWriter<'_>) {
    for e in part.body {
        match e.name() {
            "lsid" | "$clusterTime" | "$db" | FIELD => {}
            // The router reads what its own parts of a command come to, also if the client does not.
            "writeConcern"
                if is_unacknowledged(e.value()) && !matches!(part.beside, Beside::AsSent) => {}
            _ => {
                w.field(e.name(), e.value());
            }
        }
    }
    w.field("$db", part.db);
    if let Some(versions) = part.versions {
        w.open_document(FIELD);
        placement::write_at(w, versions, (cx.op.now_ms(), cx.op.cluster_time()));
        w.close();
    }
    if let Some(session) = cx.generic.session {
        w.open_document("lsid").field("id", binary(4, &session.id));
        if session.user != NOBODY {
            w.field("uid", binary(0, &session.user));
        }
        w.close();
    }
    // A message of the greatest length has no room for it.
    let beside = cx.request.sequences.iter();
    let beside: usize = beside.map(|s| s.docs.as_bytes().len()).sum();
    let has_room = part.body.byte_len() + beside < ROOMY;
    if has_room {
        router.times.write_newest(time_of_client(cx), w);
    }
}

/// The newest time that router and client have heard of, as `$clusterTime`. The client's word counts only where nobody
/// is asked for credentials: a shard would take the time for the router's.
pub fn newest(cx: &CommandContext<'_>, router: &Router) -> Option<DocBuf> {
    router.times.newest_of(time_of_client(cx))
}

fn time_of_client<'a>(cx: &CommandContext<'a>) -> Option<Doc<'a>> {
    let of_client = cx.request.body.get_doc("$clusterTime");
    of_client.filter(|_| !cx.server.auth.required)
}

/// Whether a write concern asks for no reply.
fn is_unacknowledged(concern: Value<'_>) -> bool {
    let w = concern.as_doc().and_then(|d| d.get("w"));
    w.and_then(|w| w.as_i64_exact()) == Some(0)
}

/// The session as a shard is told of it, with its user.
pub fn lsid(session: &SessionKey) -> DocBuf {
    let (id, user) = (binary(4, &session.id), binary(0, &session.user));
    match session.user == NOBODY {
        true => doc! { "id": id },
        false => doc! { "id": id, "uid": user },
    }
}

fn binary(subtype: u8, bytes: &[u8]) -> Value<'_> {
    Value::Binary { subtype, bytes }
}
