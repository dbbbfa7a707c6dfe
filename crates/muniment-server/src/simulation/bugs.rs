//! Known bugs, put in on purpose, to see that the simulator finds them.

use crate::replica_set::simulation::Bugs;
use muniment_op::Mistake;

/// A bug that all servers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Code of the servers makes it.
    Made(Mistake),
    /// All members make it.
    OfMembers(Bugs),
    /// A range is frozen no more after another member has come to lead.
    FreezeForgotten,
}
