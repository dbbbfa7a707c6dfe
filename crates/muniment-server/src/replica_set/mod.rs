//! The replica set as commands see it: whether they may run on this member, what has to be acknowledged, and
//! what is passed on to the primary. The member itself is in `muniment-member`.
//!
//! Must not know single commands, except those that need a primary although they write no documents.

mod acknowledge;
mod admit;
mod callers;
mod forward;
mod host;
#[cfg(test)]
pub(crate) mod simulation;
mod start;

pub use acknowledge::{acknowledge, keeper, of_majority, write_concern_error};
pub use admit::{admit, reach};
pub use callers::{answer as answer_proof, check as check_caller};
pub use forward::forward;
pub use host::host_of;
pub use start::start;

use crate::state::ServerState;
use muniment_member::ReplicaSet;
use muniment_value::{Code, Error, Result};
use std::sync::Arc;

/// The set that another member names.
///
/// # Errors
/// 76 without `--replSet`; 93 for another one.
pub fn named_set<'s>(server: &'s ServerState, name: &str) -> Result<&'s Arc<ReplicaSet>> {
    let set = server.replica_set.as_ref().ok_or_else(|| {
        Error::new(
            Code::NoReplicationEnabled,
            "This node was not started with replication enabled.",
        )
    })?;
    muniment_member::check_name(set, name)?;
    Ok(set)
}
