//! What the fault tests share: a load of mixed writes that remembers what was acknowledged, and
//! the judgement of what is found after a crash.
//!
//! Each writer owns its documents, so its memory of them is exact. Every write numbers itself
//! into the documents it touches (`v`), so that what is found tells which writes survived. The
//! judgement, for each writer:
//!
//! - what is found for a document is a state it once had, with all its fields (no half write);
//! - a write that had to survive (see [`Promise`]) did;
//! - no write is lost if a later one of the same writer survived (the journal has one order);
//! - nothing is there that was never written.
//!
//! `MUNIMENT_LONG=1` runs more and longer rounds; `MUNIMENT_SEED=n` repeats a run's choices.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod appends;
mod check;
pub mod clients;
pub mod follower;
pub mod isolation;
pub mod linear;
mod rng;
pub mod session;
pub mod wire;
mod writer;

pub use check::{Promise, consistent, create_indexes, valid};
pub use rng::{Rng, long, seed};
pub use writer::{COLLECTIONS, Crash, DB, Load};
