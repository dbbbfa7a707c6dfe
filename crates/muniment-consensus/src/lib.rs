//! The replication core: who leads, what is committed, what a member has to do next.
//!
//! Consensus is the `raft` crate's; here is what ties it to the one log. Raft's entries are shadows
//! of the log's records ([`Entry`]: place, term, kind), so raft costs neither I/O nor copies. The
//! [`Core`] takes what happened and gives what is to be done; threads, connections, clock, the log
//! and the door are others', and so one thread can run many members in virtual time.
//!
//! Beside it: what a member remembers besides the log ([`LocalState`], [`StateFile`]), what
//! acknowledgements take ([`Concern`], [`Waiters`]), and what members tell each other
//! ([`Message`]).
//!
//! Must not: do I/O but for the state file through [`muniment_io::Disk`], start threads, read
//! clocks, know what a record holds.

mod bytes;
mod concern;
mod config;
mod convert;
mod core;
mod message;
mod position;
mod shadow;
mod state;
mod timer;
mod waiters;

pub use crate::core::{
    Appended, Core, Effect, Fatal, LogEnds, Occasion, Options, Refusal, Role, Times,
};
pub use concern::{Concern, Progress, W, majority};
pub use config::{Change, Config, ConfigRecord, Counts, InForce, Member, MemberId};
pub use message::{Body, Entry, Kind, Message};
pub use position::{Members, Position, Report};
pub use state::{FILE, LocalState, StateFile, Wait};
pub use waiters::{WaiterId, Waiters};

#[cfg(test)]
mod tests;
