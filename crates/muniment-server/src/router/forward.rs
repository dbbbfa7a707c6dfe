//! Passing a command on.

use super::{Reach, Router, SetPool};
use crate::context::CommandContext;
use crate::registry::Kind;
use crate::sets::{Outgoing, Reply};
use muniment_op::Interrupt;
use muniment_storage::NOBODY;
use muniment_value::{Doc, DocBuf, Result, Value, doc};
use muniment_wire::{DocWriter, begin_request};

/// In shorter messages there is room for what a router adds.
const ROOMY: usize = 47_990_000;

/// Sends a set the command with this body, and its sequences as they came; the reply, be it an error.
///
/// # Errors
/// Those of the way there.
pub fn ask(
    cx: &CommandContext<'_>,
    router: &Router,
    set: &SetPool,
    body: Doc<'_>,
    reach: Reach<'_>,
) -> Result<Reply> {
    let mut message = Vec::with_capacity(body.byte_len() + 256);
    let mut writer = begin_request(&mut message, 1, 0).body_with(|w| write(cx, router, body, w));
    for sequence in cx.request.sequences {
        writer = writer.sequence(sequence.name, sequence.docs);
    }
    writer.finish()?;
    let retried = cx.spec.retryable_write && cx.generic.txn_number.is_some();
    // A cursor that has answered has gone on.
    let writes = (cx.spec.writes_output)(cx.request.body);
    let reads = cx.spec.kind == Kind::Read && !cx.spec.continues_cursor() && !writes;
    let in_transaction = cx.generic.in_transaction() && cx.spec.ends_transaction.is_none();
    let out = Outgoing {
        message: &message,
        reach,
        repeatable: (reads || retried || cx.spec.ends_transaction.is_some()) && !in_transaction,
    };
    // The shard has tickets of its own.
    let reply = set.ask(&out, &**cx.op)?;
    router.times.heard(reply.body.as_doc());
    Ok(reply)
}

/// Sends a primary a command of the router's own in the client's session; the reply, be it an error. It may be
/// executed twice.
///
/// # Errors
/// Those of the way there; what `on` says.
pub fn ask_own(
    cx: &CommandContext<'_>,
    router: &Router,
    set: &SetPool,
    body: Doc<'_>,
    on: &dyn Interrupt,
) -> Result<Reply> {
    let mut message = Vec::with_capacity(body.byte_len() + 256);
    begin_request(&mut message, 1, 0)
        .body_with(|w| write(cx, router, body, w))
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

/// The member that a command goes to: as its read preference says, if it only reads.
pub fn reach(cx: &CommandContext<'_>) -> Reach<'static> {
    let reads = cx.spec.kind == Kind::Read && !(cx.spec.writes_output)(cx.request.body);
    if !reads || cx.generic.in_transaction() {
        return Reach::Primary;
    }
    match cx.generic.read_preference {
        Some("primaryPreferred") => Reach::PrimaryPreferred,
        Some("secondary") => Reach::Secondary,
        Some("secondaryPreferred" | "nearest") => Reach::SecondaryPreferred,
        _ => Reach::Primary,
    }
}

/// Writes the command for a shard: what the client sent, with the session's user and the newest time.
fn write(cx: &CommandContext<'_>, router: &Router, body: Doc<'_>, w: &mut DocWriter<'_>) {
    for e in body {
        match e.name() {
            "lsid" | "$clusterTime" | "$db" => {}
            _ => {
                w.field(e.name(), e.value());
            }
        }
    }
    w.field("$db", cx.request.db);
    if let Some(session) = &cx.generic.session {
        let (id, user) = (binary(4, &session.id), binary(0, &session.user));
        match session.user == NOBODY {
            true => w.field("lsid", doc! { "id": id }),
            false => w.field("lsid", doc! { "id": id, "uid": user }),
        };
    }
    // The client may have heard of a later time than the router. Its word counts only where nobody is asked for
    // credentials: the shard would take the time for the router's.
    let of_client = body.get_doc("$clusterTime");
    let of_client = of_client.filter(|_| !cx.server.auth.required);
    // A message of the greatest length has no room for it.
    let beside = cx.request.sequences.iter();
    let beside: usize = beside.map(|s| s.docs.as_bytes().len()).sum();
    let has_room = body.byte_len() + beside < ROOMY;
    if let Some(time) = router.times.newest_of(of_client).filter(|_| has_room) {
        w.field("$clusterTime", time);
    }
}

fn binary(subtype: u8, bytes: &[u8]) -> Value<'_> {
    Value::Binary { subtype, bytes }
}
