//! Known bugs, put in on purpose, to see that the simulator finds them.

use muniment_op::Mistake;

/// A bug that all servers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Code of the servers makes it.
    Made(Mistake),
    /// A range is frozen no more after another member has come to lead.
    FreezeForgotten,
}
