//! What a copy of another member's data is of.

use muniment_consensus::{InForce, LocalState, MemberId};
use muniment_storage::Position;

/// A copy that is whole but for the member's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The last record of the log that it holds.
    pub position: Position,
    /// The configuration in force there.
    pub in_force: InForce,
    /// Its source, and the term in which that led; 0: it did not.
    pub led: (MemberId, u64),
    /// The place that the member has to wait for before it votes or stands; 0: none.
    pub waits: u64,
}

/// The state of a member after its data were replaced by this copy; `before`: its state before that.
pub fn state_of(before: &LocalState, copied: Copied) -> LocalState {
    let Copied {
        position,
        in_force,
        led,
        waits,
    } = copied;
    before.synced(position.index, position.term, in_force, led, waits)
}
