//! The replication core: which member leads, what is committed, and what a member has to do next.
//!
//! The consensus algorithm is that of the `raft` crate; this crate connects it to the one log. Raft's entries
//! are shadows of the log's records ([`Entry`]: place, term, kind), so raft costs neither I/O nor copies. The
//! [`Core`] is told of events and returns effects that its driver carries out. The driver owns the threads,
//! connections, clock, log and commit door, and so one test thread can run many members in virtual time.
//!
//! The crate also has the state that a member remembers outside the log ([`LocalState`], [`StateFile`]), the
//! rules of acknowledgements ([`Concern`], [`Waiters`]), and the messages between members ([`Message`]).
//!
//! Must not: do I/O except for the state file through [`muniment_io::Disk`], start threads, read clocks, or
//! know the content of a record.

#![warn(unreachable_pub)]

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

pub use crate::core::{Appended, Core, Effect, Fatal, LogEnds, Occasion, Options, Refusal, Role};
pub use concern::{Concern, Progress, W};
pub use config::{Change, Config, ConfigRecord, Counts, InForce, Member, MemberId, majority};
pub use message::{Body, Entry, Kind, Message};
pub use position::{Members, Position, Report};
pub use state::{FILE, LocalState, StateFile, Wait};
pub use timer::Times;
pub use waiters::{WaiterId, Waiters};

#[cfg(test)]
mod tests;
