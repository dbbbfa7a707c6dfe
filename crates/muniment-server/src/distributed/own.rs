//! This server's own set, and what its majority has.

use crate::options::SetAddress;
use crate::replica_set;
use crate::state::ServerState;
use muniment_exec::OpContext;
use muniment_value::{Code, Error, Result};

/// The address of this server's own set.
///
/// # Errors
/// 94 if it is of none yet.
pub fn own_set(server: &ServerState) -> Result<SetAddress> {
    let config = server.replica_set.as_ref().and_then(|s| s.member().config);
    let config = config.ok_or_else(|| {
        Error::new(
            Code::NotYetInitialized,
            "transactions over shards need a replica set that is initiated",
        )
    })?;
    Ok(SetAddress {
        name: config.name.clone(),
        hosts: config.members.iter().map(|m| m.host.clone()).collect(),
    })
}

/// Waits until the majority of this set has all that is committed here by now.
///
/// # Errors
/// 189 if this member leads no more; the journal's; what the operation says.
pub fn durable(server: &ServerState, op: &OpContext) -> Result<()> {
    let store = &server.engine.store;
    let commit = store.last_commit()?;
    store.wait_journaled(commit, op)?;
    replica_set::of_majority(server, commit, op)
}
