//! Aggregations that end in a stage that writes, on a member that is no primary: the primary runs
//! them, as only it writes.
//!
//! The reply is passed on when what it tells of is here, too: whoever goes on reading here finds it.

use super::prove::Caller;
use super::times::of;
use crate::context::CommandContext;
use muniment_query::Interrupt;
use muniment_value::{Code, DocBuf, Error, Result};
use muniment_wire::{Connection, Stream, client};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// How long the primary may take for each step of letting us connect.
const CONNECTING: Duration = Duration::from_secs(5);
/// How often it is asked whether the operation may go on.
const LOOK: Duration = Duration::from_millis(20);
/// What is this member's to say in a reply, or was for it in the command.
const OWN: [&str; 6] = [
    "$clusterTime",
    "$configTime",
    "$db",
    "$readPreference",
    "operationTime",
    "topologyVersion",
];

/// Has the primary run the command, if there is another one than this member, and takes its reply.
/// False: this member has to run it.
///
/// # Errors
/// 10107 if nobody knows of a primary; 6 HostUnreachable and 9001 if it cannot be reached; 18 if one of the
/// two does not know the set's key; the primary's; what the operation says while it waits.
pub fn forward(cx: &mut CommandContext<'_>) -> Result<bool> {
    let Some(set) = cx.server.replica_set.as_ref().filter(|s| !s.is_primary()) else {
        return Ok(false);
    };
    let member = set.member();
    let leader = member.leader;
    let other = leader.filter(|leader| *leader != member.id);
    let Some(host) = set.host_of(&member, other) else {
        return Err(Error::new(Code::NotWritablePrimary, "not primary"));
    };
    let dialled = cx.server.parameters.routes.read().to(host).to_string();
    let mut command = DocBuf::new();
    for e in cx.request.body {
        if !OWN.contains(&e.name()) {
            command.append_elem(e);
        }
    }
    // Whatever comes of it, its write concern was the primary's to wait for.
    cx.elsewhere = true;
    let leads = || set.member().leader == leader;
    let op = &**cx.op;
    // Others read meanwhile.
    let reply = op.without_ticket(|| {
        let c = Caller::of(cx.server).call(host, &dialled, CONNECTING)?;
        ask(c, cx.db(), command, op, &leads)
    })??;
    let time = reply.as_doc().get("operationTime").map(of);
    let mut told = DocBuf::new();
    for e in reply.as_doc() {
        if !OWN.contains(&e.name()) {
            told.append_elem(e);
        }
    }
    client::check_ok(told.as_doc())?;
    if let Some(time) = time {
        let store = &cx.server.engine.store;
        op.without_ticket(|| {
            while !store.wait_until(LOOK, || store.visible() >= time) {
                op.check()?;
                if !leads() {
                    return Err(changed());
                }
            }
            Ok(())
        })??;
    }
    for e in told.as_doc().iter().filter(|e| e.name() != "ok") {
        cx.reply.field(e.name(), e.value());
    }
    Ok(true)
}

/// 11602.
fn changed() -> Error {
    Error::new(
        Code::InterruptedDueToReplStateChange,
        "the primary that was asked is none any more",
    )
}

/// Sends the command from a thread of its own, so that who waits for the answer can be interrupted.
fn ask(
    mut c: Connection,
    db: &str,
    command: DocBuf,
    interrupt: &dyn Interrupt,
    leads: &dyn Fn() -> bool,
) -> Result<DocBuf> {
    c.set_timeout(None)?;
    let socket: Stream = c.stream().try_clone()?;
    let (answer, answers) = sync_channel(1);
    let db = db.to_string();
    std::thread::Builder::new()
        .name("forward".to_string())
        .stack_size(1 << 20)
        .spawn(move || {
            // Nobody waits any more if this fails.
            let _ = answer.send(c.command_raw(&db, &command));
        })?;
    loop {
        match answers.recv_timeout(LOOK) {
            Ok(reply) => return reply,
            Err(RecvTimeoutError::Timeout) => {
                let goes_on = interrupt.check().and_then(|()| match leads() {
                    true => Ok(()),
                    false => Err(changed()),
                });
                if let Err(e) = goes_on {
                    // The primary ends what nobody waits for.
                    let _ = socket.shutdown();
                    return Err(e);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::internal(
                    "the thread that asks the primary has ended",
                ));
            }
        }
    }
}
