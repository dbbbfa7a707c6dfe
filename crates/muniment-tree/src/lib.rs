//! Versioned ordered trees, which store collections and indexes.
//!
//! A tree is a sorted map from byte strings to byte strings. Every value has the
//! [`Timestamp`](muniment_io::Timestamp) of the commit that wrote it, and a read names the timestamp that it
//! wants to see. One [`Trees`] has all trees of a server: they are sealed together at one timestamp (a
//! *cut*), so that the state on the disk is the state at exactly that cut.
//!
//! The engines are [`memory`] and [`lsm`]. Code outside this crate does not know which one it uses. Each of
//! them must pass the tests in [`conformance`].
//!
//! Invariants: writes come from the log's commit door, for each key in rising order of timestamps; a version
//! is kept as long as a [`View`] can read it; the persisted cut only rises.
//!
//! Must not know documents, the log or commands.

#![warn(unreachable_pub)]

pub mod conformance;
pub mod lsm;
pub mod memory;
mod memtable;
mod trees;
mod views;

pub use trees::{
    Batch, Cursor, Direction, Faults, FileSizes, Hold, Op, Range, Sizes, TreeId, Trees,
};
pub use views::{Glance, Needed, View, Views, Writing};
