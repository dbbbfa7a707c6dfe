//! The storage: engine, catalog, collections, indexes, write sets and group commit.
//!
//! Keyspaces: `docs` (collection id ‖ record key → raw BSON), `index` (index id ‖ encoded fields
//! ‖ record key → type bits; unique: index id ‖ encoded fields → record key and bits), `meta`
//! (catalog entries, counters). Every change of the catalog or of a counter commits in the same
//! atomic batch as the data it belongs to, so a crash between any two lines leaves either the
//! whole write or nothing of it.
//!
//! Invariants: reads go through a [`Snapshot`] only (who holds a record's latch may read its
//! newest version); a write set never waits for a latch while it holds staged changes; an
//! invariant violation stops the process (crash over corrupt). Must not know commands or the
//! wire.

mod admin;
mod admission;
mod build;
mod catalog;
mod collection;
mod damage;
mod ddl;
pub mod engine;
mod index;
mod journal;
mod journal_check;
mod keys;
pub mod kinds;
mod latch;
mod lockfile;
mod multikey;
mod new_index;
mod precheck;
mod reclaim;
mod snapshot;
mod space;
mod store;
mod validate;
mod writeset;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_fault;
#[cfg(test)]
mod tests_index;

pub use catalog::{CollectionOptions, IndexSpec, MAX_INDEXES};
pub use collection::Collection;
pub use index::Index;
pub use snapshot::{Bound, Direction, DocCursor, IndexCursor, IndexEntry, KeyRange, Snapshot};
pub use store::{CommitId, JournalStats, Store, StoreOptions, StoreStats};
pub use writeset::{DuplicateKey, WriteSet};
