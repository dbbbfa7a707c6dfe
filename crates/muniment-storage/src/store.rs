//! The store: one data directory, opened once.

use crate::catalog::Kinds;
use crate::collection::{Collection, PLACES};
use crate::gate::{Gate, Shared};
use crate::index::Index;
use crate::inner::Inner;
use crate::lockfile::DirLock;
use crate::options::{Budget, EngineKind, StoreOptions};
use crate::space::{SpaceReport, disk_space, part_of};
use crate::unit::WriteUnit;
use crate::view::{Glance, Snapshot};
use muniment_io::{Disk, SimDisk, Space, Timestamp};
use muniment_log::{Position, Record};
use muniment_op::{Interrupt, Ledger};
use muniment_tree::Trees;
use muniment_tree::lsm::{LsmOptions, LsmTrees};
use muniment_tree::memory::MemoryTrees;
use muniment_value::{Code, Error, KeyLimits, Result};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Identifies a commit for [`Store::wait_journaled`]; later commits are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitId {
    /// The number of its record in the log.
    pub index: u64,
    /// Its timestamp.
    pub at: Timestamp,
}

/// Measured counters of the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct JournalStats {
    /// Records appended.
    pub commits: u64,
    /// fdatasync calls on the log.
    pub syncs: u64,
    /// Microseconds spent in them.
    pub sync_micros: u64,
    /// Waits for durability that were served.
    pub waits: u64,
    /// Bytes of payload appended.
    pub bytes: u64,
    /// Bytes of the log's files.
    pub file_bytes: u64,
}

/// Measured figures of the engine for serverStatus.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreStats {
    /// Block cache: used bytes.
    pub cache_used: u64,
    /// Block cache: capacity.
    pub cache_capacity: u64,
    /// Bytes in memtables.
    pub memtable_bytes: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Flushes and compactions that failed since the start.
    pub failures: u64,
    /// Microseconds for which commits were held back because flushes or compactions lagged.
    pub delayed_micros: u64,
    /// The log.
    pub journal: JournalStats,
}

/// An open data directory.
pub struct Store {
    pub(crate) inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The work of the background threads, for a machine that has no threads: `work` does it instead.
    jobs: Mutex<Vec<Job>>,
}

/// The work of one background thread.
type Job = Box<dyn FnOnce(&Inner) + Send>;

impl Store {
    /// Opens or creates the directory, locks it, applies the log after the persisted cut and
    /// restarts index builds that a crash interrupted.
    ///
    /// # Errors
    /// 98 DBPathInUse naming the other process; 301 DataCorruptionDetected naming file and
    /// offset; I/O errors; a message for people when another version made the directory.
    pub fn open(options: StoreOptions) -> Result<Arc<Store>> {
        let lock = DirLock::acquire(&options.path, options.engine, &[])?;
        Store::open_locked(options, Some(lock))
    }

    /// The same for a caller that holds the directory's lock already, because it had to change something
    /// there before, or whose disk is shared with no other process and has no locks.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_locked(options: StoreOptions, lock: Option<DirLock>) -> Result<Arc<Store>> {
        Store::open_as(options, lock, true)
    }

    /// As [`Store::open_locked`]. If `builds` is false, interrupted index builds do not go on by
    /// themselves.
    pub(crate) fn open_as(
        options: StoreOptions,
        lock: Option<DirLock>,
        builds: bool,
    ) -> Result<Arc<Store>> {
        let space = match options.engine {
            EngineKind::Lsm => disk_space(&*options.machine.disk, &options.path),
            EngineKind::Memory => Space::UNKNOWN,
        };
        let budget = Budget::on(space, options.cache_bytes);
        let synced: Arc<OnceLock<Weak<Inner>>> = Arc::default();
        let (disk, trees): (Arc<dyn Disk>, Arc<dyn Trees>) = match options.engine {
            EngineKind::Lsm => {
                let disk = options.machine.disk.clone();
                let owner = synced.clone();
                let defaults = LsmOptions::new(options.path.join("trees"));
                let lsm = LsmOptions {
                    // Recovery reads the log after the cut, so the log must reach it.
                    before_persist: Arc::new(move |_| match owner.get().and_then(Weak::upgrade) {
                        Some(inner) => inner.journal.log()?.sync(),
                        None => Err(Error::internal("the log is not open yet")),
                    }),
                    cache_bytes: budget.block_cache,
                    memtable_bytes: budget.memtable,
                    disk: disk.clone(),
                    clock: options.machine.clock.clone(),
                    background: options.machine.threads,
                    table_bytes: part_of(space, defaults.table_bytes),
                    ..defaults
                };
                (disk, LsmTrees::open(lsm)?)
            }
            EngineKind::Memory => (Arc::new(SimDisk::memory()), MemoryTrees::new()),
        };
        let inner = Inner::recover(&options, disk, trees, budget, lock)?;
        let _ = synced.set(Arc::downgrade(&inner));
        let store = Arc::new(Store {
            inner,
            threads: Mutex::default(),
            jobs: Mutex::default(),
        });
        store.set_journal_commit_interval(options.journal_commit_interval);
        store.start_threads(builds)?;
        if let Ok(opening) = store.inner.door.opening() {
            store.inner.end_pending(store.inner.take_pending(), opening);
        }
        Ok(store)
    }

    fn start_threads(&self, builds: bool) -> Result<()> {
        // This is asked before anything new is written, so that only what recovery had to apply counts.
        let applied = self.inner.much_was_applied();
        if self.inner.home.has_threads {
            self.start("muniment-sync", Inner::sync_loop)?;
            self.start("muniment-seal", move |inner| inner.checkpoint_loop(applied))?;
            self.start("muniment-clear", Inner::clear_loop)?;
        }
        let unfinished = self.inner.unfinished_builds();
        if let Ok(opening) = self.inner.door.opening()
            && builds
            && !unfinished.is_empty()
        {
            self.start("muniment-index", move |inner: &Inner| {
                inner.resume_builds(unfinished, opening);
            })?;
        }
        Ok(())
    }

    /// Starts a thread that ends when the store closes, or before.
    pub(crate) fn start(
        &self,
        name: &str,
        job: impl FnOnce(&Inner) + Send + 'static,
    ) -> Result<()> {
        if !self.inner.home.has_threads {
            self.jobs.lock().push(Box::new(job));
            return Ok(());
        }
        let inner = self.inner.clone();
        let handle = std::thread::Builder::new()
            .name(name.to_string())
            .stack_size(2 << 20)
            .spawn(move || job(&inner))?;
        let mut threads = self.threads.lock();
        threads.retain(|t| !t.is_finished());
        threads.push(handle);
        Ok(())
    }

    /// Does one round of what the store's threads do apart from syncing and sealing: it builds indexes,
    /// opens a log anew that has failed, compacts once and clears away. A store without threads needs it
    /// called.
    pub fn work(&self) {
        let inner = &*self.inner;
        for job in std::mem::take(&mut *self.jobs.lock()) {
            job(inner);
        }
        inner.mind_the_log();
        if let Ok(log) = inner.journal.log() {
            log.work();
        }
        // A compaction that fails shows in the trees' figures, and is tried again in the next round.
        let _ = inner.trees.work();
        inner.clear_away(crate::gate::MOMENT);
    }

    /// Limits the keys that one document may have in one index. The limit does not apply to documents
    /// that are stored already, or that come from the log or from another member: these were accepted
    /// elsewhere, and must not be refused here.
    pub fn set_key_limits(&self, limits: KeyLimits) {
        self.inner.units.set_key_limits(limits);
    }

    /// The limits that [`Store::set_key_limits`] has set.
    pub fn key_limits(&self) -> KeyLimits {
        self.inner.units.key_limits()
    }

    /// The ledger in which memory is booked.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.inner.home.ledger
    }

    /// The engine's name.
    pub fn engine_name(&self) -> &'static str {
        self.inner.trees.name()
    }

    /// False if all data is gone when the process ends.
    pub fn is_durable(&self) -> bool {
        self.inner.trees.is_durable()
    }

    /// True after it was closed.
    pub fn is_closed(&self) -> bool {
        self.inner.watch.is_closed()
    }

    /// A view of everything that is visible now.
    pub fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }

    /// A cheap snapshot, for reads that end at once.
    ///
    /// # Errors
    /// 91 ShutdownInProgress when the store is closed.
    pub fn glance(&self) -> Result<Glance<'_>> {
        self.inner.watch.check_open()?;
        Ok(Glance {
            view: self.inner.trees.views().glance(),
            trees: &*self.inner.trees,
        })
    }

    /// The timestamp of the newest commit, which may not be visible yet. A view that sees everything up
    /// to it agrees with all that a caller has been told of a collection by now.
    pub fn newest_timestamp(&self) -> Timestamp {
        self.inner.newest_timestamp()
    }

    /// The collection `db.name`, if it exists.
    pub fn collection(&self, namespace: &str) -> Option<Arc<Collection>> {
        let collection = self.inner.catalog.read().by_name(namespace)?;
        // The commit that gave the collection this name may not be visible yet. The caller opens its
        // view next, and that view has to know the collection by the same name.
        while collection.named_since() > self.inner.trees.views().visible() {
            std::thread::yield_now();
        }
        Some(collection)
    }

    /// The collections of a database, sorted by name.
    pub fn collections(&self, db: &str) -> Vec<Arc<Collection>> {
        let catalog = self.inner.catalog.read();
        catalog.collections(db).cloned().collect()
    }

    /// The sharded collections whose ranges have come or gone, or do so now.
    pub fn with_foreign_rows(&self) -> Vec<Arc<Collection>> {
        let catalog = self.inner.catalog.read();
        let all = catalog.databases().flat_map(|db| catalog.collections(db));
        all.filter(|c| c.may_have_foreign_rows()).cloned().collect()
    }

    /// The databases that have a collection, sorted.
    pub fn databases(&self) -> Vec<String> {
        let catalog = self.inner.catalog.read();
        catalog.databases().map(str::to_string).collect()
    }

    /// How many collections of each kind a database has.
    pub fn kinds(&self, db: &str) -> Kinds {
        self.inner.catalog.read().kinds(db)
    }

    /// The collections whose documents may expire: those with a TTL index or with `expireAfterSeconds`
    /// of their own.
    pub fn expiring(&self) -> Vec<Arc<Collection>> {
        let catalog = &self.inner.catalog;
        catalog.those(catalog.lists.all_expiring())
    }

    /// Begins a write unit on a collection (shared against DDL).
    ///
    /// # Errors
    /// 26 NamespaceNotFound if it was dropped; 10107 NotWritablePrimary; 301 DataCorruptionDetected if
    /// it is closed; what `interrupt` says while it waits for DDL.
    pub fn write_unit<'s>(
        &'s self,
        collection: &Arc<Collection>,
        interrupt: &'s dyn Interrupt,
    ) -> Result<WriteUnit<'s>> {
        self.write_unit_by(collection, interrupt, |gate| gate.share(interrupt))
    }

    /// Keeps a collection as it is until what this returns is dropped: no DDL, and no change of what this shard owns of
    /// it.
    ///
    /// # Errors
    /// What `interrupt` says while it waits for DDL.
    pub fn keep_still(
        &self,
        collection: &Collection,
        interrupt: &dyn Interrupt,
    ) -> Result<impl Drop + use<>> {
        collection.ddl.share(interrupt)
    }

    /// As [`Store::write_unit`], for work in the background, which does not wait.
    ///
    /// # Errors
    /// 24 LockTimeout while another thread has the collection alone; as [`Store::write_unit`].
    pub fn try_write_unit<'s>(
        &'s self,
        collection: &Arc<Collection>,
        interrupt: &'s dyn Interrupt,
    ) -> Result<WriteUnit<'s>> {
        let mut unit = self.write_unit_by(collection, interrupt, |gate| {
            let locked = || format!("{} is locked", collection.namespace());
            gate.try_share()
                .ok_or_else(|| Error::new(Code::LockTimeout, locked()))
        })?;
        unit.only_try();
        Ok(unit)
    }

    fn write_unit_by<'s>(
        &'s self,
        collection: &Arc<Collection>,
        interrupt: &'s dyn Interrupt,
        share: impl FnOnce(&Gate<PLACES>) -> Result<Shared>,
    ) -> Result<WriteUnit<'s>> {
        self.inner.watch.check_open()?;
        let opening = self.inner.door.opening()?;
        let ddl = share(&collection.ddl)?;
        if collection.is_dropped() {
            return Err(dropped(collection));
        }
        collection.check_usable()?;
        collection.claim();
        Ok(WriteUnit::new(
            &self.inner,
            collection,
            opening,
            interrupt,
            Some(ddl),
        ))
    }

    /// Returns once the commit is on the disk: one fdatasync serves all threads that wait.
    ///
    /// # Errors
    /// I/O errors: the write is visible but its durability unknown. What `interrupt` says.
    pub fn wait_journaled(&self, commit: CommitId, interrupt: &dyn Interrupt) -> Result<()> {
        let log = self.inner.journal.log()?;
        log.wait_durable(commit.index, interrupt)
    }

    /// A number that rises whenever what is stored of users or roles may have changed, by any commit here
    /// or any record of another member, after the change is visible.
    #[inline]
    pub fn accounts_generation(&self) -> u64 {
        self.inner.catalog.accounts.generation()
    }

    /// Has the generation of users and roles rise without a change.
    pub fn raise_accounts_generation(&self) {
        self.inner.catalog.accounts.changed();
    }

    /// The newest commit.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace while the log cannot be opened anew after a failure. The newest commit is
    /// not known then; a caller that wants to wait for it must not conclude that there is none.
    pub fn last_commit(&self) -> Result<CommitId> {
        let Position { index, at, .. } = self.inner.journal.log()?.last();
        Ok(CommitId { index, at })
    }

    /// Flushes the log to the disk now.
    ///
    /// # Errors
    /// I/O errors.
    pub fn sync(&self) -> Result<()> {
        self.inner.watch.check_open()?;
        self.inner.journal.log()?.sync()
    }

    /// Flushes the log to the disk up to this commit. Does nothing if the disk has it already.
    ///
    /// # Errors
    /// I/O errors.
    pub fn sync_up_to(&self, commit: CommitId) -> Result<()> {
        self.inner.watch.check_open()?;
        self.inner.journal.log()?.sync_up_to(commit.index)
    }

    /// Changes the log's flush interval at run time.
    pub fn set_journal_commit_interval(&self, interval: Duration) {
        self.inner.journal.set_interval(interval);
        self.inner.watch.call();
    }

    /// Writes what is in memory to tables after this interval at the latest. Zero: only when memory or
    /// log are full.
    pub fn set_checkpoint_interval(&self, interval: Duration) {
        let ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        self.inner.cuts.set_interval(ms);
    }

    /// Measured figures.
    pub fn stats(&self) -> StoreStats {
        let inner = &self.inner;
        let sizes = inner.trees.sizes();
        let log = inner.journal.log().ok();
        let figures = log.as_ref().map(|log| log.stats()).unwrap_or_default();
        let file_bytes = log.map_or(0, |log| log.bytes());
        StoreStats {
            cache_used: sizes.cache_used,
            cache_capacity: sizes.cache_capacity,
            memtable_bytes: sizes
                .memory
                .max(inner.cuts.buffers.live(inner.trees.persisted()).1),
            disk_bytes: sizes.disk + file_bytes,
            failures: inner.trees.faults().failures,
            delayed_micros: inner.admission.delayed_micros(),
            journal: JournalStats {
                commits: figures.commits,
                syncs: figures.syncs,
                sync_micros: figures.sync_micros,
                waits: figures.waits,
                bytes: inner.door.bytes(),
                file_bytes,
            },
        }
    }

    /// Lets the block cache use this many bytes fewer than its capacity until the next call, because
    /// other parts of the process need the memory.
    pub fn spare_cache(&self, bytes: u64) {
        self.inner.trees.spare_cache(bytes);
    }

    /// Whether this many bytes may be written to a file beside the database, such as a run of a sort.
    /// The space that the database itself needs to go on is not given out.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace.
    pub fn admit_file(&self, bytes: u64) -> Result<()> {
        if !self.inner.trees.is_durable() {
            return Ok(());
        }
        let space = &self.inner.space;
        (space.admit(bytes, || self.inner.owed())).inspect_err(|_| space.note_refused())
    }

    /// Whether records of this many bytes could be stored now. Always true if the data is kept in
    /// memory.
    pub fn has_room(&self, bytes: u64) -> bool {
        let space = &self.inner.space;
        if !self.inner.trees.is_durable() || space.is_ample() {
            return true;
        }
        space.refresh(|| self.inner.owed());
        let now = space.report();
        now.free >= now.kept.saturating_add(bytes)
    }

    /// The space on the disk of the data directory; `None` if the data is kept in memory.
    pub fn space(&self) -> Option<SpaceReport> {
        let durable = self.inner.trees.is_durable();
        durable.then(|| self.inner.space.report())
    }

    /// The longest sync of the log since the last call of this function. A sync that is under way counts
    /// with the time that it has taken so far.
    pub fn slowest_sync(&self) -> Duration {
        let log = self.inner.journal.log();
        log.map_or(Duration::ZERO, |log| log.slowest_sync())
    }

    /// The background work that fails at the moment, a line each: a flush or compaction (which is tried
    /// again), a damaged table, a log that takes no more records. Empty if all is well.
    pub fn troubles(&self) -> Vec<String> {
        let inner = &self.inner;
        let faults = inner.trees.faults();
        [
            ("flush", faults.flush),
            ("compaction", faults.compaction),
            ("log", inner.journal.trouble()),
        ]
        .into_iter()
        .filter_map(|(what, e)| Some(format!("{what}: {}", e?)))
        .collect()
    }

    /// Syncs and stops the background threads. Later calls fail with 91 ShutdownInProgress.
    ///
    /// # Errors
    /// I/O errors of the last sync.
    pub fn close(&self) -> Result<()> {
        if !self.inner.watch.close() {
            return Ok(());
        }
        for thread in self.threads.lock().drain(..) {
            // A panic was reported when it happened, so the result of the thread is not looked at.
            let _ = thread.join();
        }
        self.inner.trees.close();
        self.inner.journal.log()?.sync()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The data is in the log either way, and no caller is left that could get an error.
        let _ = self.close();
    }
}

/// The index, timestamp and term of a record.
pub(crate) fn position(record: &Record<'_>) -> Position {
    Position {
        index: record.index,
        term: record.term,
        at: record.at,
    }
}

/// The database of `db.collection`.
pub(crate) fn db_of(namespace: &str) -> &str {
    namespace.split_once('.').map_or(namespace, |(db, _)| db)
}

pub(crate) fn dropped(collection: &Collection) -> Error {
    Error::new(
        Code::NamespaceNotFound,
        format!("ns does not exist: {}", collection.namespace()),
    )
}

/// The error 301 for a damaged catalog.
pub(crate) fn damaged(path: &Path, what: &str) -> Error {
    Error::new(
        Code::DataCorruptionDetected,
        format!("data corruption detected in {}: {what}", path.display()),
    )
}

/// An index handle for tests and statistics.
pub(crate) fn index_by_name(collection: &Collection, name: &str) -> Option<Arc<Index>> {
    collection
        .all_indexes()
        .iter()
        .find(|i| i.spec().name == name)
        .cloned()
}
