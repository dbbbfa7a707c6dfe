//! Initial sync: a member that has nothing, or not enough to go on from, copies another member's data
//! as of a committed place of the log, and begins anew with it.
//!
//! The source sends what one view of its storage sees ([`export`]); the copy is made beside the data
//! ([`local`](super::local)) and takes its place when the member begins anew. Until then the member
//! takes no part in anything: what it acknowledged meanwhile would not be in the copy.

use super::frame::{Assembler, Frame, OP_REPLICATION, put_export, put_report, taken_export};
use super::local;
use super::node::Node;
use super::prove::Caller;
use super::{ReplicaSet, Role};
use crate::context::CommandContext;
use crate::guard::guarded;
use crate::options::ServerOptions;
use crate::state::{Restart, ServerState};
use bytes::Bytes;
use muniment_query::Interrupt;
use muniment_repl::{InForce, MemberId, StateFile};
use muniment_storage::{Chunk, Position, Store, StoreOptions, Timestamp};
use muniment_value::{Code, Doc, Error, Result, Value, doc, number};
use muniment_wire::{Connection, Header, OP_MSG, OpMsg};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long it may take until what is committed is in force.
const SETTLES: Duration = Duration::from_secs(1);
/// How often who waits for that looks.
const LOOK: Duration = Duration::from_millis(2);
/// A source that says nothing for so long has gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// One that cannot be reached in this time cannot be reached.
const REACHED: Duration = Duration::from_secs(10);

/// A copy that is whole but for the member's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The last record of the log that it holds.
    pub position: Position,
    /// The configuration in force there.
    pub in_force: InForce,
}

/// Answers `_replSetExport`: sends everything that is committed, then where that is.
///
/// # Errors
/// 93 for another set; the storage's and the socket's.
pub fn export(cx: &mut CommandContext<'_>, set: &ReplicaSet) -> Result<()> {
    let (member, config) = set.initialized()?;
    let asked = match cx.request.body.get("setId") {
        Some(Value::ObjectId(id)) => Some(id),
        _ => None,
    };
    if config.id != asked {
        return Err(super::config::invalid(
            "the copy is asked for by another set",
        ));
    }
    if !matches!(member.role, Role::Primary | Role::Secondary) {
        return Err(Error::new(
            Code::NotPrimaryOrSecondary,
            "node is not in primary or recovering state",
        ));
    }
    let node = set.node().ok_or_else(super::ended)?;
    let (export, in_force) = loop {
        let export = cx.engine().store.export(&**cx.op)?;
        let place = export.position().index;
        // What is committed is in force a moment later; if it is a later one by then, once more.
        let end = Instant::now() + SETTLES;
        let found = loop {
            cx.op.check()?;
            match node.in_force_at(place) {
                None if Instant::now() < end => std::thread::sleep(LOOK),
                found => break found,
            }
        };
        if let Some(in_force) = found {
            break (export, in_force);
        }
    };
    let position = export.position();
    let head = doc! {
        "index": position.index as i64,
        "term": position.term as i64,
        "at": super::timestamp(position.at),
        "inForce": Value::Binary { subtype: 0, bytes: &in_force.to_bytes() },
    };
    let mut stream = cx.conn.stream.try_clone()?;
    let mut out = Vec::new();
    put_report(&mut out, head.as_doc());
    for chunk in export {
        cx.op.check()?;
        put_export(&mut out, &chunk?.to_bytes());
        stream.write_all(&out)?;
        out.clear();
    }
    Ok(())
}

/// Copies the data of the member `from` as of a place of the log that is not before `at_least`, in a
/// thread of its own, and has the server begin anew with it. What fails is told, and tried again when the leader says again that it is needed.
///
/// # Errors
/// The system has no thread.
pub fn begin(
    server: &Arc<ServerState>,
    node: &Arc<Node>,
    from: MemberId,
    at_least: u64,
) -> Result<()> {
    let Some(set) = &server.replica_set else {
        return Ok(());
    };
    if !node.begin_sync() {
        return Ok(());
    }
    set.change(server, |m| m.role = Role::Startup2);
    let (state, syncing) = (Arc::clone(server), Arc::clone(node));
    let run = move || {
        // Whatever becomes of it, it can be tried again.
        let copied = guarded(|| copy(&state, &syncing, from, at_least));
        match copied.unwrap_or_else(|caught| Err(caught.into_error("the initial sync"))) {
            Ok(copied) => state.request_restart(Restart::Synced(Box::new(copied))),
            Err(e) => {
                let attr = doc! { "from": from as i64, "error": e.to_string() };
                let failed = "Initial sync failed; it will be tried again";
                state
                    .log
                    .info("INITSYNC", 21_200, "initialsync", failed, &attr);
                std::thread::sleep(Duration::from_millis(500));
                syncing.end_sync();
            }
        };
    };
    server.spawn_member("initial sync", run)
}

fn copy(server: &Arc<ServerState>, node: &Node, from: MemberId, at_least: u64) -> Result<Copied> {
    let set = server.replica_set.as_ref().ok_or_else(super::ended)?;
    let (member, config) = set.initialized()?;
    let host = set
        .host_of(&member, Some(from))
        .ok_or_else(|| Error::new(Code::NodeNotFound, "the source is no member"))?;
    server.log.info(
        "INITSYNC",
        21_164,
        "initialsync",
        "Starting initial sync",
        &doc! { "from": host },
    );
    let dir = local::begin_copy(&server.options.dbpath)?;
    let dialled = server.parameters.routes.read().to(host).to_string();
    let mut c = Caller::of(server).call(host, &dialled, REACHED)?;
    c.set_timeout(Some(PATIENCE))?;
    node.syncs_from(c.stream().try_clone()?);
    let mut command = doc! { "_replSetExport": set.name() };
    command.append_some("setId", config.id.map(Value::ObjectId));
    c.send_command("admin", &command, 0, &[])?;
    let malformed = || Error::new(Code::ProtocolError, "the copy is malformed");
    let head = c.recv_bytes()?;
    if Header::parse(head).map(|h| h.op_code) == Some(OP_MSG) {
        // It was refused.
        muniment_wire::check_ok(OpMsg::parse(head)?.body)?;
    }
    let copied = match Assembler::default().take(head)? {
        Some(Frame::Report(d)) => parse(d.as_doc()).ok_or_else(malformed)?,
        _ => return Err(malformed()),
    };
    if copied.position.index < at_least {
        return Err(Error::new(
            Code::InvalidSyncSource,
            format!(
                "the source has committed up to {}, and {at_least} is wanted",
                copied.position.index
            ),
        ));
    }
    let options = StoreOptions {
        engine: server.options.engine,
        machine: server.options.machine.clone(),
        ..StoreOptions::new(&dir)
    };
    let mut ended = false;
    let chunks = std::iter::from_fn(|| {
        if ended {
            return None;
        }
        if server.is_stopping() || node.inbox.is_stopped() {
            return Some(Err(super::ended()));
        }
        let chunk = next_chunk(&mut c).transpose();
        ended = !matches!(chunk, Some(Ok(_)));
        chunk
    });
    Store::import(&options, copied.position, chunks)?;
    Ok(copied)
}

/// The next chunk; `None` behind the last one, which an answer without an error tells.
fn next_chunk(c: &mut Connection) -> Result<Option<Chunk>> {
    let message = c.recv_bytes()?;
    match Header::parse(message).map(|h| h.op_code) {
        Some(OP_REPLICATION) => {
            let bytes = Bytes::copy_from_slice(taken_export(message)?);
            let chunk = Chunk::from_bytes(&bytes);
            let malformed = || Error::new(Code::ProtocolError, "a chunk of the copy is malformed");
            chunk.ok_or_else(malformed).map(Some)
        }
        _ => muniment_wire::check_ok(OpMsg::parse(message)?.body).map(|()| None),
    }
}

fn parse(d: Doc<'_>) -> Option<Copied> {
    let place = |name: &str| u64::try_from(number::to_i64_exact(d.get(name)?)?).ok();
    let Some(Value::Binary { bytes, .. }) = d.get("inForce") else {
        return None;
    };
    let at = d.get("at").map_or(Timestamp::ZERO, super::times_of);
    let copied = Copied {
        position: Position {
            index: place("index")?,
            term: place("term")?,
            at,
        },
        in_force: InForce::of_bytes(bytes)?,
    };
    // No start would take a state with a configuration that is ahead of its data.
    (copied.in_force.index <= copied.position.index).then_some(copied)
}

/// The state of a member whose copy is whole; nothing votes for it any more.
///
/// # Errors
/// The disk's.
pub fn finish(options: &ServerOptions, copied: Copied) -> Result<()> {
    let (dbpath, disk) = (&options.dbpath, options.machine.disk.clone());
    let Some(state) = StateFile::new(disk.clone(), dbpath).read()? else {
        return Err(super::ended());
    };
    let Copied { position, in_force } = copied;
    let copy = dbpath.join(local::COPY);
    StateFile::new(disk, &copy).write(&state.synced(position.index, position.term, in_force))?;
    local::end_copy(&copy)
}
