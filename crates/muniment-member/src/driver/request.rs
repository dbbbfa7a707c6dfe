//! What commands ask the driver for.

use muniment_consensus::{Config, MemberId, Refusal};
use muniment_op::Teller;
use muniment_value::Result;

/// Where the answer to a request goes.
pub type Outcome = Teller<Result<(), Refusal>>;

/// What commands ask for, and where the answer goes.
pub enum Request {
    /// `replSetStepDown`: its number, [`ticks`](super::ticks) to wait for a successor, ticks not to campaign,
    /// without one too.
    StepDown(u64, u64, u64, bool, Outcome),
    /// Another member is to lead: the request's number, ticks to wait for it.
    HandOver(u64, MemberId, u64, Outcome),
    /// The client no longer waits for the request with this number.
    TakeBack(u64),
    /// `replSetStepUp`, if there is no leader.
    StepUp(Outcome),
    /// `replSetReconfig`.
    Reconfigure(Box<Config>, Outcome),
    /// `replSetFreeze`: so many [`ticks`](super::ticks).
    Freeze(u64, Outcome),
    /// `replSetMaintenance`: whether it begins, and why it does not.
    Maintain(bool, Teller<Result<()>>),
    /// Whether it leads: this member, which has lost what it had, does not count. The record that was made
    /// for this is in the log as far as the core knows, too.
    Confirm(MemberId, Known, Outcome),
    /// Whether it leads, and can commit nothing without this member.
    Needs(MemberId, Outcome),
    /// Becomes another member: its number, and what it takes part in nothing by before it has a copy, if it
    /// must have one.
    Become(MemberId, Option<Box<Config>>),
    /// `replSetReconfig` with `force`: no other member is asked about it.
    Force(Box<Config>, Outcome),
}

/// What a leader has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// All that is committed: it has committed something in its term.
    All,
    /// That it leads is enough.
    Perhaps,
}
