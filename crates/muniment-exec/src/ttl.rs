//! The TTL monitor's work: deleting what expired.

use crate::engine::Engine;
use crate::operation::OpContext;
use muniment_value::Result;
use std::sync::Arc;

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TtlOutcome {
    /// Documents deleted.
    pub deleted: u64,
    /// TTL indexes looked at.
    pub indexes: u64,
}

impl Engine {
    /// One pass over every TTL index of every collection: deletes what expired by now.
    ///
    /// # Errors
    /// What `op` says, I/O errors.
    pub fn ttl_pass(&self, op: &Arc<OpContext>) -> Result<TtlOutcome> {
        let _ = op;
        todo!()
    }
}
