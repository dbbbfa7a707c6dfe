//! Aggregations that end in a stage that writes, on a member that is no primary: the primary runs
//! them, as only it writes.
//!
//! The reply is passed on once what the primary wrote is here, too: a client that goes on reading from this
//! member finds it.

use crate::context::CommandContext;
use crate::generic::is_forwarded;
use muniment_member::{Asking, ask_primary, times_of as of};
use muniment_value::{DocBuf, Result};
use muniment_wire::client;

/// What the primary says of itself in a reply, which this member says of itself.
const OWN: [&str; 4] = [
    "$clusterTime",
    "$configTime",
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
    let leader = set.member().leader;
    let mut command = DocBuf::new();
    for e in cx.request.body {
        if is_forwarded(e.name()) {
            command.append_elem(e);
        }
    }
    // However the command ends, its write concern is waited for by the primary, and not again here.
    cx.elsewhere = true;
    let op = &**cx.op;
    let reply = ask_primary(set, op, cx.db(), command, None)?;
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
        let leads = Asking {
            set,
            op,
            leader,
            until: None,
        };
        op.without_ticket(|| store.wait_for_visible(time, &leads))??;
    }
    for e in told.as_doc().iter().filter(|e| e.name() != "ok") {
        cx.reply.field(e.name(), e.value());
    }
    Ok(true)
}
