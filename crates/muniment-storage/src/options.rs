//! How a store is opened, and how its cache is shared.

use crate::space::memtable_on;
use muniment_io::{Machine, Space};
use muniment_op::Ledger;
use muniment_value::KeyLimits;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The engine that keeps the data: `--storageEngine`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// Log-structured merge trees in files.
    #[default]
    Lsm,
    /// Memory alone: everything is gone when the process ends.
    Memory,
}

impl EngineKind {
    /// All engines with their names.
    pub const ALL: [(&'static str, EngineKind); 2] =
        [("lsm", EngineKind::Lsm), ("memory", EngineKind::Memory)];

    /// The name of the MongoDB engine whose place this one takes. Clients are told that name, because
    /// they use it only to learn whether data survives.
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
    /// Bytes of memory for blocks that were read and for data that is not yet on the disk.
    pub cache_bytes: u64,
    /// How often the log is flushed to the disk (1–500 ms, default 100).
    pub journal_commit_interval: Duration,
    /// Cuts a log that is damaged in its middle at the damage, which loses the writes after it, instead
    /// of refusing to open.
    pub accept_data_loss: bool,
    /// The engine that keeps the data.
    pub engine: EngineKind,
    /// A member of a replica set: the door is closed until
    /// [`Store::open_door`](crate::Store::open_door), and nothing that is not committed reaches a file
    /// ([`Store::set_committed`](crate::Store::set_committed)).
    pub member: bool,
    /// Gives up every record of the log after this index, with all its effects: a member has records
    /// that the other members do not have, and has to lose them. The trees' files must hold nothing of
    /// these records, which is true of a member. Opening again with the same value is harmless until
    /// something was appended.
    pub cut_behind: Option<u64>,
    /// See [`Store::set_key_limits`](crate::Store::set_key_limits). The limits are needed from the start
    /// on, because interrupted builds go on then.
    pub key_limits: KeyLimits,
    /// The machine it runs on. If that has no threads, the caller has to call
    /// [`Store::sync`](crate::Store::sync), [`Store::flush`](crate::Store::flush) and
    /// [`Store::work`](crate::Store::work).
    pub machine: Machine,
    /// Books the memory that writes and transactions take.
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
/// Large memtables make writes cheap: fewer tables are written and merged, and of a document that is
/// rewritten often only the newest version reaches a table. The memtables get a quarter of the cache, at
/// most 512 MB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The block cache.
    pub block_cache: u64,
    /// The size at which the memtable is sealed. Up to two sealed ones wait to be flushed before writers
    /// are held back.
    pub memtable: u64,
}

impl Budget {
    const LEAST: u64 = 8 << 20;
    const MOST_SHARED: u64 = 512 << 20;
    /// The number of memtables in memory at most: one active, two sealed.
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
