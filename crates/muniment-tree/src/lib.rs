//! Versioned ordered trees: what collections and indexes are kept in.
//!
//! A tree is a sorted map from byte strings to byte strings, and every value in it has the
//! [`Timestamp`](muniment_io::Timestamp) of the commit that wrote it. A read names the timestamp
//! it wants to see. One [`Trees`] holds all trees of a server: they are sealed together at one
//! timestamp (a *cut*), so that what reaches the disk is the state at exactly that cut.
//!
//! Engines: [`memory`] and [`lsm`]. Nothing outside knows which one it uses; [`conformance`] is
//! what each of them must pass.
//!
//! Invariants: writes come from the log's commit door in rising order of timestamps per key; a
//! version is kept as long as a [`View`] can read it; the persisted cut only rises.
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
    Batch, Check, Cursor, Direction, Faults, FileSizes, Hold, Op, Range, Sizes, TreeId, Trees,
};
pub use views::{Glance, Needed, View, Views, Writing};
