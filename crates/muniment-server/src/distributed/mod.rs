//! Transactions over several shards.
//!
//! The router sends the commit to the shard that was written to first. That one is the coordinator: it has each
//! shard that has written prepare its part, stores its decision in [`DECISIONS`](decisions::DECISIONS), and has
//! each resolve its part (`coordinate`; the rules are those of `muniment_shard::commit`). The storage holds what
//! is prepared ([`Store::prepared`](muniment_storage::Store::prepared)). A thread goes on with decisions that a
//! former primary has stored, and asks for those that a participant hears nothing of (`doubts`).
//!
//! Invariants: one thread at most coordinates a transaction here; a vote and an answer are sent when the majority
//! of this set has what they rest on.

mod coordinate;
mod decisions;
mod doubts;
mod messages;
mod own;
mod participant;
pub mod running;

pub use coordinate::commit;
#[cfg(test)]
pub(crate) use doubts::Doubts;
pub use doubts::keep as keep_going;
pub use messages::{decision_of, id_of};

pub use own::{durable, own_set};
pub use participant::{decision, prepare, resolve};
