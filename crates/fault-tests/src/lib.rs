//! The common part of the fault tests: a load of mixed writes that remembers the acknowledged ones, and the
//! check of the data after a crash.
//!
//! Each writer owns its documents, so its memory of them is exact. Every write stores its number in the
//! documents that it touches (`v`), so that the data shows which writes survived. The check, for each writer:
//!
//! - the state of a document is one that it once had, with all its fields (no partial write);
//! - every write that had to survive (see [`Promise`]) has;
//! - no write is lost if a later one of the same writer has survived (the journal has one order);
//! - there is nothing that was never written.
//!
//! `MUNIMENT_LONG=1` runs more and longer rounds; `MUNIMENT_SEED=n` repeats a run's choices.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod appends;
pub mod both;
mod check;
pub mod clients;
pub mod follower;
pub mod isolation;
pub mod linear;
pub mod registers;
mod rng;
pub mod session;
pub mod wire;
mod writer;

pub use check::{Promise, consistent, create_indexes, valid};
pub use rng::{Rng, long, seed};
pub use writer::{COLLECTIONS, Crash, DB, Load};
