//! The storage: one log, the trees that are a function of it, the catalog, write units and views.
//!
//! `commit` is the only door to the log; `unit` is how a write is made up; `view` is how
//! everything is read; `catalog` knows what collections and indexes there are; `checkpoint` cuts,
//! trims and gives up what was dropped. The trees themselves are in `muniment-tree`, the log's
//! files in `muniment-log`.
//!
//! Invariants: reads go through a [`Snapshot`] only (who holds a record's latch may read its
//! newest version); a write unit is one record of the log, whole or not at all, and never waits
//! while it holds anything; an invariant violation stops the process (crash over corrupt). Must
//! not know commands or the wire.

mod admin;
mod admission;
mod build;
mod catalog;
mod checkpoint;
mod clock;
mod collection;
mod commit;
mod entries;
mod export;
mod follow;
mod gate;
mod hints;
mod history;
mod import;
mod index;
mod keys;
pub mod kinds;
mod latch;
mod lockfile;
mod multikey;
mod oplog;
mod places;
mod replay;
mod sessions;
mod space;
mod store;
mod terms;
mod transaction;
mod unit;
mod validate;
mod view;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_fault;
#[cfg(test)]
mod tests_follow;
#[cfg(test)]
mod tests_index;
#[cfg(test)]
mod tests_natural;
#[cfg(test)]
mod tests_noise;
#[cfg(test)]
mod tests_oplog;
#[cfg(test)]
mod tests_still;
#[cfg(test)]
mod tests_sync;
#[cfg(test)]
mod tests_validate;

pub use catalog::ddl::Exclusive;
pub use catalog::{CollectionOptions, IndexSpec, MAX_INDEXES};
pub use collection::Collection;
pub use commit::stage::KeyCounts;
pub use export::{Chunk, Export, Exported};
pub use follow::{FollowStats, Positions, Records};
pub use history::Named;
pub use index::Index;
pub use lockfile::DirLock;
pub use muniment_io::{Timestamp, replace, space as disk_space, spread, thread_time, whole};
pub use muniment_log::{Position, Record};
pub use oplog::{Image, LogEntries, LogEntry, Operation, Part, What, Whole};
pub use sessions::{
    NOBODY, Returned, Run as StatementRun, Session, SessionChange, SessionHead, SessionKey,
    SessionRecord, SessionState,
};
pub use store::{Budget, CommitId, EngineKind, JournalStats, Store, StoreOptions, StoreStats};
pub use terms::Terms;
pub use transaction::{Transaction, snapshot_unavailable, write_conflict};
pub use unit::{Busy, Changed, DuplicateKey, NewBucket, Staged, WriteUnit, fingerprint};
pub use view::{Bound, Direction, DocCursor, Glance, IndexCursor, IndexEntry, KeyRange, Snapshot};
