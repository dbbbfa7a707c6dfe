//! Where a store is and what it runs on: its directory, the machine below it, and the memory that it may
//! take.
//!
//! Invariant: nothing of it changes while the store is open. The directory's lock is held as long as
//! anything of the store lives.

use crate::lockfile::DirLock;
use crate::options::{Budget, StoreOptions};
use muniment_io::{Clock, Disk};
use muniment_op::Ledger;
use std::path::PathBuf;
use std::sync::Arc;

/// See the module's head.
pub(crate) struct Home {
    /// The data directory.
    pub path: PathBuf,
    /// The disk that has it, or one in memory.
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    /// See [`Machine::threads`](muniment_io::Machine::threads).
    pub has_threads: bool,
    /// How the cache is shared.
    pub budget: Budget,
    /// See [`StoreOptions::ledger`].
    pub ledger: Arc<Ledger>,
    _lock: Option<DirLock>,
}

impl Home {
    /// The home that these options name, on this disk.
    pub fn new(
        options: &StoreOptions,
        disk: Arc<dyn Disk>,
        budget: Budget,
        lock: Option<DirLock>,
    ) -> Home {
        Home {
            path: options.path.clone(),
            disk,
            clock: options.machine.clock.clone(),
            has_threads: options.machine.threads,
            budget,
            ledger: options.ledger.clone(),
            _lock: lock,
        }
    }
}
