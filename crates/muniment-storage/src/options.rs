//! How a store is opened, and how its cache is shared.

use crate::space::memtable_on;
use muniment_io::{Machine, Space};
use muniment_op::Ledger;
use muniment_value::KeyLimits;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// In what the data is kept: `--storageEngine`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// Log-structured merge trees in files.
    #[default]
    Lsm,
    /// Memory alone: everything is gone when the process ends.
    Memory,
}

impl EngineKind {
    /// All of them by their names.
    pub const ALL: [(&'static str, EngineKind); 2] =
        [("lsm", EngineKind::Lsm), ("memory", EngineKind::Memory)];

    /// The engine of MongoDB's whose place it takes: what clients are told, which ask for no more than
    /// whether data survives.
    pub fn mongodb_name(self) -> &'static str {
        match self {
            EngineKind::Lsm => "wiredTiger",
            EngineKind::Memory => "inMemory",
        }
    }
}

/// How to open a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The data directory; created if it is not there.
    pub path: PathBuf,
    /// Memory for blocks that were read and for what is not yet on the disk, in bytes.
    pub cache_bytes: u64,
    /// How often the log is flushed to the disk (1–500 ms, default 100).
    pub journal_commit_interval: Duration,
    /// Cut a log that is damaged in its middle there, losing the writes after the damage,
    /// instead of refusing to open.
    pub accept_data_loss: bool,
    /// In what the data is kept.
    pub engine: EngineKind,
    /// A member of a replica set: the door is closed until [`Store::open_door`](crate::Store::open_door), and nothing reaches
    /// a file that is not committed ([`Store::set_committed`](crate::Store::set_committed)).
    pub member: bool,
    /// Gives up every record of the log after this index, and all that came of them: what a member
    /// has that the others have not. The trees' files must have nothing of them, as is so of a
    /// member. Opening again with the same is harmless until something was appended.
    pub cut_behind: Option<u64>,
    /// See [`Store::set_key_limits`](crate::Store::set_key_limits): from the start on, when interrupted builds go on.
    pub key_limits: KeyLimits,
    /// What it runs on. Without threads, [`Store::sync`](crate::Store::sync), [`Store::flush`](crate::Store::flush) and [`Store::work`](crate::Store::work) are to be
    /// called.
    pub machine: Machine,
    /// Where it books the memory that writes and transactions take.
    pub ledger: Arc<Ledger>,
}

impl StoreOptions {
    /// The defaults: 256 MiB of cache, 100 ms.
    pub fn new(path: impl Into<PathBuf>) -> StoreOptions {
        StoreOptions {
            path: path.into(),
            cache_bytes: 256 << 20,
            journal_commit_interval: Duration::from_millis(100),
            accept_data_loss: false,
            engine: EngineKind::default(),
            member: false,
            cut_behind: None,
            key_limits: KeyLimits::default(),
            machine: Machine::default(),
            ledger: Arc::default(),
        }
    }
}

/// How the configured cache is shared between the block cache and the memtables, in bytes.
///
/// Large memtables are what makes writes cheap: fewer tables are written and merged, and of a
/// document that is rewritten often only the newest version reaches a table. A quarter of the
/// cache, at most 512 MB, is theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The block cache.
    pub block_cache: u64,
    /// The size at which the memtable is sealed. Up to two sealed ones wait beside it before
    /// writers are held back.
    pub memtable: u64,
}

impl Budget {
    const LEAST: u64 = 8 << 20;
    const MOST_SHARED: u64 = 512 << 20;
    /// Memtables in memory at most: one active, two sealed.
    const ALIVE: u64 = 3;

    /// The shares of a cache of `cache_bytes` where tables are on a disk of this size.
    pub(crate) fn on(disk: Space, cache_bytes: u64) -> Budget {
        let budget = Budget::of(cache_bytes);
        Budget {
            memtable: memtable_on(disk, budget.memtable),
            ..budget
        }
    }

    /// The shares of a cache of `cache_bytes`.
    pub fn of(cache_bytes: u64) -> Budget {
        let shared = (cache_bytes / 4).min(Budget::MOST_SHARED);
        Budget {
            block_cache: cache_bytes - shared,
            memtable: (shared / Budget::ALIVE).max(Budget::LEAST),
        }
    }
}
