//! The storage: one log, the trees that are a function of it, the catalog, write units and views.
//!
//! `commit` is the only door to the log; `unit` makes up writes; all reads go through `view`; `catalog`
//! knows the collections and indexes; `checkpoint` makes cuts, trims the log and gives up dropped trees.
//! The trees themselves are in `muniment-tree`, the log's files in `muniment-log`.
//!
//! Invariants: reads go through a [`Snapshot`] only (the holder of a record's latch may read its newest
//! version); a write unit is one record of the log, whole or not at all, and never waits while it holds
//! anything; an invariant violation stops the process (crash over corrupt). Must not know commands or
//! the wire.

mod admin;
mod admission;
mod ages;
mod build;
mod by_hash;
mod catalog;
mod checkpoint;
mod clock;
mod collection;
mod commit;
mod cuts;
mod damage;
mod definition;
mod entries;
mod export;
mod follow;
mod foreign;
mod gate;
mod hints;
mod history;
mod home;
mod import;
mod index;
mod index_list;
mod inner;
mod journal;
mod keys;
pub mod kinds;
mod latch;
mod leftovers;
mod lockfile;
mod multikey;
mod oplog;
mod options;
mod owned_rows;
mod placement;
mod places;
mod range_rows;
mod repair;
mod replay;
mod retention;
mod session_key;
mod sessions;
mod space;
mod store;
mod terms;
mod transaction;
mod unit;
mod validate;
mod view;
mod watch;
mod worklists;

#[cfg(test)]
mod tests;

pub use catalog::accounts::{ROLES, USERS};
pub use catalog::ddl::{Created, Exclusive};
pub use catalog::{CollectionOptions, IndexSpec, Kinds, MAX_INDEXES};
pub use collection::Collection;
pub use commit::announce::{Announce, Announcer};
pub use commit::stage::KeyCounts;
pub use damage::{Damage, Damaged};
pub use export::{Chunk, Export, Exported};
pub use follow::{FollowStats, Positions, Records, can_be_read, only_frees};
pub use foreign::{examine as examine_directory, is_of_data};
pub use history::Named;
pub use index::Index;
pub use index_list::IndexList;
pub use keys::{Bound, KeyRange};
pub use lockfile::DirLock;
pub use muniment_io::{Timestamp, replace, spread, thread_time, whole};
pub use muniment_log::{Position, Record};
pub use oplog::{Image, LogEntries, LogEntry, Operation, Part, What, Whole};
pub use options::{Budget, EngineKind, StoreOptions};
pub use placement::{
    Moving, Owned, Placement, join_ranges, ranges_of_array, ranges_overlap, ranges_to_array,
    ranges_without, stale,
};
pub use range_rows::{RangeRow, RangeRows, is_in};
pub use repair::Repaired;
pub use session_key::{NOBODY, SessionKey};
pub use sessions::{
    Returned, Run as StatementRun, Session, SessionChange, SessionHead, SessionRecord, SessionState,
};
pub use space::{SpaceReport, disk_space};
pub use store::{CommitId, JournalStats, Store, StoreStats};
pub use terms::Terms;
pub use transaction::{
    Outcome, PreparedTransaction, Transaction, TransactionId, snapshot_unavailable, write_conflict,
};
pub use unit::{Busy, Changed, DuplicateKey, Moves, NewBucket, Staged, WriteUnit, fingerprint};
pub use view::{Direction, DocCursor, Glance, IndexCursor, IndexEntry, Snapshot};
pub use watch::Awaited;
