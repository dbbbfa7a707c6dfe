//! The surroundings of a store: its directory, the machine below it, and the memory that it may take.
//!
//! Invariant: nothing of it changes while the store is open. The directory's lock is held as long as any
//! part of the store exists.

use crate::lockfile::DirLock;
use crate::options::{Budget, StoreOptions};
use muniment_io::{Clock, Disk};
use muniment_op::Ledger;
use std::path::PathBuf;
use std::sync::Arc;

/// The surroundings of an open store.
pub(crate) struct Home {
    /// The data directory.
    pub path: PathBuf,
    /// The disk of the directory, which may be one in memory.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::tests::{insert, options};
    use crate::{CollectionOptions, Store};
    use muniment_io::{File, Machine, Open, OsDisk, Space};
    use muniment_op::NeverInterrupted;
    use muniment_value::doc;
    use std::io::Result;
    use std::path::Path;
    use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

    const HELD: u8 = 1;
    const LET_GO: u8 = 2;

    /// A disk that notes, when its last user lets go of it, whether the directory's lock is still held.
    struct Last {
        lock: DirLock,
        noted: Arc<AtomicU8>,
    }

    impl Drop for Last {
        fn drop(&mut self) {
            let noted = if self.lock.is_only() { LET_GO } else { HELD };
            self.noted.store(noted, SeqCst);
        }
    }

    impl Disk for Last {
        fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn File>> {
            OsDisk.open(path, how)
        }
        fn open_kept(&self, path: &Path) -> Result<Arc<dyn File>> {
            OsDisk.open_kept(path)
        }
        fn rename(&self, from: &Path, to: &Path) -> Result<()> {
            OsDisk.rename(from, to)
        }
        fn remove(&self, path: &Path) -> Result<()> {
            OsDisk.remove(path)
        }
        fn list(&self, dir: &Path) -> Result<Vec<String>> {
            OsDisk.list(dir)
        }
        fn create_dir(&self, dir: &Path) -> Result<()> {
            OsDisk.create_dir(dir)
        }
        fn sync_dir(&self, dir: &Path) -> Result<()> {
            OsDisk.sync_dir(dir)
        }
        fn space(&self, dir: &Path) -> Result<Space> {
            OsDisk.space(dir)
        }
    }

    /// The log still writes when it is dropped. If the lock were gone by then, a member that begins anew
    /// in the same process could open the directory meanwhile.
    #[test]
    fn the_lock_outlives_everything_that_writes() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path());
        let lock = DirLock::acquire(&options.path, options.engine, &[]).unwrap();
        let noted = Arc::new(AtomicU8::new(0));
        let disk = Arc::new(Last {
            lock: lock.share(),
            noted: noted.clone(),
        });
        let options = StoreOptions {
            machine: Machine {
                disk,
                ..options.machine.clone()
            },
            ..options
        };
        let store = Store::open_locked(options, Some(lock)).unwrap();
        let c = store.create_collection("t.c", CollectionOptions::default(), &NeverInterrupted);
        insert(&store, &c.unwrap(), doc! { "_id": 1 }).unwrap();
        drop(store);
        assert_eq!(noted.load(SeqCst), HELD);
    }
}
