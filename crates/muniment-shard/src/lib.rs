//! Sharding as pure functions: which part of a collection a document belongs to, which shard owns that part,
//! and which parts a query can reach.
//!
//! A [`ShardKey`] turns a document into bytes whose order is the order of keys. A [`RangeTable`] divides these
//! bytes into ranges and names the shard of each. [`targets()`] turns a filter into [`Interval`]s of them. A
//! [`Coordinator`](commit::Coordinator) decides how a transaction over several shards ends.
//!
//! Invariants: nothing here does I/O or reads a clock; nothing panics on any input; every key belongs to
//! exactly one range of a table; no document that a filter matches lies outside the filter's intervals.

#![warn(unreachable_pub)]

pub mod balance;
pub mod catalog;
pub mod commit;
mod interval;
mod key;
mod presplit;
mod stamp;
mod table;
mod targets;
mod zones;

pub use interval::Interval;
pub use key::{KeyField, ShardKey};
pub use presplit::{Candidate, chunks_between, initial_chunks};
pub use stamp::{Timestamp, Version};
pub use table::{Builder, Generation, Range, RangeTable, Record};
pub use targets::{Targets, targets};
pub use zones::{ZoneOf, ZoneRange, Zones};
