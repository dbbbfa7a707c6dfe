//! The shared parts of the commands on a replica set.

use crate::context::CommandContext;
use muniment_member::ReplicaSet;
use muniment_value::{Code, Error, Result, number};
use std::sync::Arc;

/// The set that the server is a member of.
///
/// # Errors
/// 76 NoReplicationEnabled on a standalone.
pub(super) fn set_of<'a>(cx: &CommandContext<'a>) -> Result<&'a Arc<ReplicaSet>> {
    let server: &'a crate::state::ServerState = cx.server;
    server
        .replica_set
        .as_ref()
        .ok_or_else(|| Error::new(Code::NoReplicationEnabled, "not running with --replSet"))
}

/// The number that is the value of a command's first element; 0 if it is no number.
pub(super) fn seconds(cx: &CommandContext<'_>) -> i64 {
    number::to_i64_clamped(cx.target()).unwrap_or(0)
}
