//! The store: one data directory, opened once.

use crate::admission::Admission;
use crate::ages::Ages;
use crate::build::Begun;
use crate::catalog::{Catalog, Kinds};
use crate::collection::{Collection, PLACES};
use crate::commit::door::Door;
use crate::commit::ops;
use crate::commit::stage::Buffers;
use crate::follow::Followed;
use crate::gate::{Gate, Shared};
use crate::hints::Hints;
use crate::history::History;
use crate::index::Index;
use crate::latch::Latches;
use crate::lockfile::DirLock;
use crate::oplog::{Watch, Window};
use crate::places::Places;
use crate::space::{SpaceGuard, SpaceReport, disk_space, memtable_on, part_of};
use crate::unit::WriteUnit;
use crate::view::{Glance, Snapshot};
use crate::worklists::{DroppedTrees, Worklists};
use muniment_io::spread::{self, Spread, SpreadLock};
use muniment_io::{Clock, Disk, Machine, SimDisk, Space, Timestamp};
use muniment_log::{Log, LogOptions, Position, Record};
use muniment_op::{Interrupt, Ledger, Lock};
use muniment_query::running;
use muniment_tree::lsm::{LsmOptions, LsmTrees};
use muniment_tree::memory::MemoryTrees;
use muniment_tree::{Direction, Range, TreeId, Trees};
use muniment_value::{Code, Error, KeyLimits, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst,
};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
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
    /// A member of a replica set: the door is closed until [`Store::open_door`], and nothing reaches
    /// a file that is not committed ([`Store::set_committed`]).
    pub member: bool,
    /// Gives up every record of the log after this index, and all that came of them: what a member
    /// has that the others have not. The trees' files must have nothing of them, as is so of a
    /// member. Opening again with the same is harmless until something was appended.
    pub cut_behind: Option<u64>,
    /// See [`Store::set_key_limits`]: from the start on, when interrupted builds go on.
    pub key_limits: KeyLimits,
    /// What it runs on. Without threads, [`Store::sync`], [`Store::flush`] and [`Store::work`] are to be
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
    /// Microseconds that commits were held back since flushes or compactions lagged.
    pub delayed_micros: u64,
    /// The log.
    pub journal: JournalStats,
}

/// An open data directory.
pub struct Store {
    pub(crate) inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// What threads would do, where there are none.
    jobs: Mutex<Vec<Job>>,
}

/// What a thread of the store does.
type Job = Box<dyn FnOnce(&Inner) + Send>;

/// Among how many places the numbers of write units are spread.
const OWNERS: usize = 16;

/// What the background threads share with the store.
pub(crate) struct Inner {
    pub path: PathBuf,
    pub clock: Arc<dyn Clock>,
    /// How long ago commits came.
    pub ages: Ages,
    /// The same of the commit point.
    pub committed_ages: Ages,
    pub trees: Arc<dyn Trees>,
    /// Replaced when it is opened anew after a fault.
    pub log: SpreadLock<Option<Arc<Log>>>,
    pub log_options: LogOptions,
    pub disk: Arc<dyn Disk>,
    /// See [`Machine::threads`].
    pub has_threads: bool,
    pub budget: Budget,
    /// See [`StoreOptions::ledger`].
    pub ledger: Arc<Ledger>,
    /// See [`Store::set_key_limits`].
    pub most_keys: AtomicUsize,
    /// The same, bytes of them.
    pub most_key_bytes: AtomicUsize,
    pub door: Door,
    /// The threads that wait for the newest visible commit to be another one.
    pub watch: Watch,
    /// Names that collections had.
    pub history: Mutex<History>,
    /// What is kept of the log for its readers.
    pub window: Mutex<Window>,
    /// See [`Store::keep_history`].
    pub history_secs: AtomicU32,
    pub space: SpaceGuard,
    pub latches: Latches,
    pub hints: Arc<Hints>,
    pub lists: Arc<Worklists>,
    /// Shared by every commit; seals and fsyncLock have it alone.
    pub gate: Gate,
    pub fsync_lock: Lock<crate::admin::FsyncLock>,
    /// How deep it is locked.
    pub fsync_depth: AtomicU32,
    /// Held while the log is trimmed or opened anew, and by fsyncLock.
    pub still: Arc<Lock<()>>,
    /// What commits keep alive in memory.
    pub buffers: Buffers,
    /// Write units so far, by places.
    owners: Spread<AtomicU64, OWNERS>,
    /// Held while names of collections change.
    pub naming: Lock<()>,
    pub catalog: SpreadLock<Catalog>,
    pub next_id: AtomicU32,
    pub interval_ms: AtomicU64,
    /// See `Store::set_checkpoint_interval`.
    pub checkpoint_ms: AtomicU64,
    pub closed: AtomicBool,
    pub stop: Mutex<bool>,
    /// Wakes the background threads.
    pub wake: Condvar,
    pub admission: Admission,
    /// See `checkpoint`.
    pub dropped: Mutex<DroppedTrees>,
    /// Why the log could not be trimmed, while that is so.
    pub trim_failure: Mutex<Option<Error>>,
    /// Index builds that failed and could not be taken away yet.
    pub failed_builds: Mutex<Vec<Begun>>,
    /// Collections that are in use and may bear the mark of a transaction that made them, by the
    /// records of another primary.
    pub marked: Mutex<HashSet<u32>>,
    /// Held while another member's records are appended, and while the door is opened.
    pub following: Mutex<()>,
    /// What they came to.
    pub followed: Followed,
    /// Collections that a command made for itself and that could not be dropped yet.
    pub discarded: Mutex<Vec<Arc<Collection>>>,
    /// Collections of aborted transactions that other operations had when those were aborted, and under
    /// which opening of the door the transactions were begun.
    pub aborted: Mutex<Vec<(Arc<Collection>, crate::commit::door::Opening)>>,
    _lock: Option<DirLock>,
}

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

    /// As [`Store::open_locked`]. Where `builds` is false, interrupted index builds do not go on by themselves.
    ///
    /// # Errors
    /// As [`Store::open`].
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
                        Some(inner) => inner.log()?.sync(),
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
        // Asked before anything new is written, so that only what recovery had to apply counts.
        let applied = self.inner.much_was_applied();
        if self.inner.has_threads {
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
        if !self.inner.has_threads {
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

    /// A round of what the store's threads do beside syncing and sealing, for a store that has no
    /// threads: builds of indexes, opening a log anew that has failed, one compaction, clearing away.
    pub fn work(&self) {
        let inner = &*self.inner;
        for job in std::mem::take(&mut *self.jobs.lock()) {
            job(inner);
        }
        inner.mind_the_log();
        if let Ok(log) = inner.log() {
            log.work();
        }
        // Its figures tell of what fails.
        let _ = inner.trees.work();
        inner.clear_away(crate::gate::MOMENT);
    }

    /// Sets how much the keys may be that a document has in one index. What is stored already, or
    /// comes from another member or the log, has as many as it has.
    pub fn set_key_limits(&self, limits: KeyLimits) {
        self.inner.most_keys.store(limits.keys, Relaxed);
        self.inner.most_key_bytes.store(limits.bytes, Relaxed);
    }

    /// How much they may be.
    pub fn key_limits(&self) -> KeyLimits {
        self.inner.key_limits()
    }

    /// Where memory is booked.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.inner.ledger
    }

    /// The engine's name.
    pub fn engine_name(&self) -> &'static str {
        self.inner.trees.name()
    }

    /// False if everything is gone when the process ends.
    pub fn is_durable(&self) -> bool {
        self.inner.trees.is_durable()
    }

    /// True once it is closed.
    pub fn is_closed(&self) -> bool {
        self.inner.closed.load(Relaxed)
    }

    /// A view of now.
    pub fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }

    /// A snapshot for a moment.
    ///
    /// # Errors
    /// 91 ShutdownInProgress when the store is closed.
    pub fn glance(&self) -> Result<Glance<'_>> {
        self.inner.check_open()?;
        Ok(Glance {
            view: self.inner.trees.views().glance(),
            trees: &*self.inner.trees,
        })
    }

    /// The timestamp of the newest commit, which may be about to become visible: what was told of a
    /// collection by now is in a view that sees all up to it.
    pub fn newest_timestamp(&self) -> Timestamp {
        self.inner.newest_timestamp()
    }

    /// The collection `db.name`, if it exists.
    pub fn collection(&self, namespace: &str) -> Option<Arc<Collection>> {
        let collection = self.inner.catalog.read().by_name(namespace)?;
        // It has the name since a commit that is about to become visible: a view of who asked is to
        // know it by that name.
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

    /// The databases that have a collection, sorted.
    pub fn databases(&self) -> Vec<String> {
        let catalog = self.inner.catalog.read();
        catalog.databases().map(str::to_string).collect()
    }

    /// How many collections of each kind a database has.
    pub fn kinds(&self, db: &str) -> Kinds {
        self.inner.catalog.read().kinds(db)
    }

    /// The collections that may have something that expires: those with a TTL index or with
    /// `expireAfterSeconds` of their own.
    pub fn expiring(&self) -> Vec<Arc<Collection>> {
        let all = self.inner.lists.all_expiring();
        let catalog = self.inner.catalog.read();
        all.into_iter().filter_map(|id| catalog.by_id(id)).collect()
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

    /// As [`Store::write_unit`], for work in the background, which waits for nobody.
    ///
    /// # Errors
    /// 24 LockTimeout while somebody has the collection alone; as [`Store::write_unit`].
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
        self.inner.check_open()?;
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
        let log = self.inner.log()?;
        log.wait_durable(commit.index, interrupt)
    }

    /// The newest commit.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace while the log cannot be opened anew after a failure: the newest commit is not
    /// known then, and a caller that is to wait for it must not take it that there is none.
    pub fn last_commit(&self) -> Result<CommitId> {
        let Position { index, at, .. } = self.inner.log()?.last();
        Ok(CommitId { index, at })
    }

    /// Flushes the log to the disk now.
    ///
    /// # Errors
    /// I/O errors.
    pub fn sync(&self) -> Result<()> {
        self.inner.check_open()?;
        self.inner.log()?.sync()
    }

    /// Flushes the log to the disk up to this commit: does nothing where that is there.
    ///
    /// # Errors
    /// I/O errors.
    pub fn sync_up_to(&self, commit: CommitId) -> Result<()> {
        self.inner.check_open()?;
        self.inner.log()?.sync_up_to(commit.index)
    }

    /// Changes the log's flush interval at run time.
    pub fn set_journal_commit_interval(&self, interval: Duration) {
        let ms = (interval.as_millis() as u64).clamp(1, 500);
        self.inner.interval_ms.store(ms, SeqCst);
        self.inner.wake.notify_all();
    }

    /// What is in memory goes to tables after so long at the latest; zero: when memory or log are
    /// full.
    pub fn set_checkpoint_interval(&self, interval: Duration) {
        let ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        self.inner.checkpoint_ms.store(ms, SeqCst);
    }

    /// Measured figures.
    pub fn stats(&self) -> StoreStats {
        let inner = &self.inner;
        let sizes = inner.trees.sizes();
        let log = inner.log().ok();
        let figures = log.as_ref().map(|log| log.stats()).unwrap_or_default();
        let file_bytes = log.map_or(0, |log| log.bytes());
        StoreStats {
            cache_used: sizes.cache_used,
            cache_capacity: sizes.cache_capacity,
            memtable_bytes: sizes
                .memory
                .max(inner.buffers.live(inner.trees.persisted()).1),
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

    /// Lets the block cache use so many bytes fewer than its capacity, until the next call: others need
    /// the memory.
    pub fn spare_cache(&self, bytes: u64) {
        self.inner.trees.spare_cache(bytes);
    }

    /// May so many bytes be written to a file beside the database, such as a run of a sort? What the
    /// database itself needs to go on is not given out.
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

    /// Whether records of so many bytes could be stored now, or everything they bring is kept in memory.
    pub fn has_room(&self, bytes: u64) -> bool {
        let space = &self.inner.space;
        if !self.inner.trees.is_durable() || space.is_ample() {
            return true;
        }
        space.refresh(|| self.inner.owed());
        let now = space.report();
        now.free >= now.kept.saturating_add(bytes)
    }

    /// The space on the disk of the data directory; `None` where nothing is kept on one.
    pub fn space(&self) -> Option<SpaceReport> {
        let durable = self.inner.trees.is_durable();
        durable.then(|| self.inner.space.report())
    }

    /// The longest sync of the log since the last call of this, or the one that is under way if that is
    /// longer.
    pub fn slowest_sync(&self) -> Duration {
        let log = self.inner.log();
        log.map_or(Duration::ZERO, |log| log.slowest_sync())
    }

    /// What cannot be done in the background just now, a line each: a flush or compaction that
    /// fails (and is tried again), a damaged table, a log that takes nothing more. Empty if all is
    /// well.
    pub fn troubles(&self) -> Vec<String> {
        let inner = &self.inner;
        let faults = inner.trees.faults();
        let log = match inner.log() {
            Ok(log) => log.failure(),
            Err(e) => Some(e),
        };
        let trim = inner.trim_failure.lock().clone();
        [
            ("flush", faults.flush),
            ("compaction", faults.compaction),
            ("log", log.or(trim)),
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
        if self.inner.closed.swap(true, SeqCst) {
            return Ok(());
        }
        *self.inner.stop.lock() = true;
        self.inner.wake.notify_all();
        self.inner.watch.stops.wake_all();
        self.inner.watch.advanced();
        for thread in self.threads.lock().drain(..) {
            // A thread that panicked has nothing left to say.
            let _ = thread.join();
        }
        self.inner.trees.close();
        self.inner.log()?.sync()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The data is in the log either way, and no caller is left that could be told of an error.
        let _ = self.close();
    }
}

impl Inner {
    /// See [`Store::set_key_limits`].
    pub(crate) fn key_limits(&self) -> KeyLimits {
        KeyLimits {
            keys: self.most_keys.load(Relaxed),
            bytes: self.most_key_bytes.load(Relaxed),
        }
    }

    /// Opens catalog and log over the trees.
    pub(crate) fn recover(
        options: &StoreOptions,
        disk: Arc<dyn Disk>,
        trees: Arc<dyn Trees>,
        budget: Budget,
        lock: Option<DirLock>,
    ) -> Result<Arc<Inner>> {
        let space = match trees.is_durable() {
            true => disk_space(&*disk, &options.path),
            false => Space::UNKNOWN,
        };
        let log_options = LogOptions {
            accept_data_loss: options.accept_data_loss,
            background: options.machine.threads,
            // A record that does not fit is synced while it is written: the largest document and
            // what is staged beside it fit. Memory has no such syncs. A start reads a segment at once,
            // so it is not larger than what goes with the cache.
            segment_bytes: match trees.is_durable() {
                // Several of them are there, whatever is in them.
                true => part_of(space, options.cache_bytes.saturating_mul(2).min(32 << 20)),
                false => options.cache_bytes.min(4 << 20),
            },
            disk: disk.clone(),
            ..LogOptions::new(&options.path.join("log"))
        };
        let cut = trees.persisted();
        if options.member {
            // What follows the cut may be given up again, and views at the commit point read what
            // was there before it.
            trees.set_committed(cut);
            trees.views().keep_from(cut);
        }
        let mut inner = Inner {
            log: SpreadLock::default(),
            log_options: log_options.clone(),
            clock: options.machine.clock.clone(),
            ages: Ages::new(&*options.machine.clock, cut, 0),
            committed_ages: Ages::new(&*options.machine.clock, cut, 0),
            space: SpaceGuard::new(disk.clone(), &options.path),
            disk,
            has_threads: options.machine.threads,
            path: options.path.clone(),
            trees: trees.clone(),
            budget,
            ledger: options.ledger.clone(),
            most_keys: AtomicUsize::new(options.key_limits.keys),
            most_key_bytes: AtomicUsize::new(options.key_limits.bytes),
            door: Door::new(Position::default(), None, 0),
            watch: Watch::default(),
            history: Mutex::default(),
            history_secs: AtomicU32::new(0),
            window: Mutex::new(Window::of(trees.is_durable(), space)),
            admission: Admission::new(),
            dropped: Mutex::default(),
            trim_failure: Mutex::default(),
            failed_builds: Mutex::default(),
            discarded: Mutex::default(),
            aborted: Mutex::default(),
            marked: Mutex::default(),
            following: Mutex::default(),
            followed: Followed::default(),
            latches: Latches::new(),
            hints: Arc::default(),
            lists: Arc::default(),
            gate: Gate::default(),
            fsync_lock: Lock::default(),
            fsync_depth: AtomicU32::new(0),
            still: Arc::default(),
            buffers: Buffers::new(!trees.is_durable()),
            owners: Spread::default(),
            naming: Lock::new(()),
            catalog: SpreadLock::default(),
            next_id: AtomicU32::new(1),
            interval_ms: AtomicU64::new(100),
            checkpoint_ms: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            stop: Mutex::new(false),
            wake: Condvar::new(),
            _lock: lock,
        };
        inner.load_catalog()?;
        let mut newer = Vec::new();
        let log_options = LogOptions {
            cut_behind: options.cut_behind,
            ..log_options
        };
        let log = Log::open(log_options, cut, &mut |record| {
            inner.apply(record.at, record.payload)?;
            inner.trees.views().advance(record.at);
            if options.member {
                newer.push(position(&record));
            }
            Ok(())
        })?;
        let end = log.last();
        let last = end.at;
        if last < cut && inner.trees.is_durable() && !options.accept_data_loss {
            return Err(damaged(
                &inner.path,
                &format!(
                    "the log ends at {last}, but the trees were written up to {cut}, which the \
                     log was durable for: its end is missing. Restore a backup, or start with \
                     --acceptDataLoss"
                ),
            ));
        }
        let last = Position {
            at: last.max(cut),
            ..end
        };
        inner.trees.views().advance(last.at);
        let places = match options.member {
            true => Some(places_of(&log, &newer)?),
            false => None,
        };
        let wall = match options.member {
            true => wall_of_last(&log, last),
            false => 0,
        };
        let committed = places.as_ref().map_or(last.at, |p| p.committed().at);
        inner.ages = Ages::new(&*inner.clock, last.at, wall);
        inner.committed_ages = Ages::new(&*inner.clock, committed, wall);
        inner.door = Door::new(last, places, wall);
        if options.member {
            inner.note_marked();
        }
        *inner.log.get_mut() = Some(Arc::new(log));
        Ok(Arc::new(inner))
    }

    /// The log.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace while it cannot be opened anew after a failure.
    pub fn log(&self) -> Result<Arc<Log>> {
        self.log.read().clone().ok_or_else(|| self.no_log())
    }

    /// The error while there is no log.
    pub fn no_log(&self) -> Error {
        Error::new(
            Code::OutOfDiskSpace,
            format!(
                "writes in {} are refused: the log could not be opened anew since a write to the \
                 disk failed",
                self.path.display()
            ),
        )
    }

    pub fn snapshot(&self) -> Snapshot {
        if self.closed.load(SeqCst) {
            return Snapshot::new(None);
        }
        Snapshot::new(Some((self.trees.views().open(), self.trees.clone())))
    }

    pub fn check_open(&self) -> Result<()> {
        if self.closed.load(Relaxed) {
            return Err(crate::view::closed());
        }
        Ok(())
    }

    /// A number that no other write unit has.
    pub fn next_owner(&self) -> u64 {
        let place = spread::place(OWNERS);
        let own = self.owners.at(place).fetch_add(1, Relaxed);
        own * OWNERS as u64 + place as u64
    }

    /// The greatest key of a tree that is there or that an open view may still see; empty if there
    /// is none.
    pub fn greatest_key(&self, tree: u32) -> Result<Vec<u8>> {
        let mut greatest = Vec::new();
        for at in [self.trees.views().oldest(), Timestamp::MAX] {
            let all = Range::default();
            let mut keys = self
                .trees
                .cursor(TreeId(tree), all, at, Direction::Backward);
            keys.ask(running::check);
            if let Some((key, _)) = keys.next()?.filter(|(k, _)| **k > *greatest) {
                greatest = key.to_vec();
            }
        }
        Ok(greatest)
    }

    /// Waits on `wake` for at most `timeout`; true when the store closes.
    pub fn pause(&self, timeout: Duration) -> bool {
        let mut stop = self.stop.lock();
        if !*stop {
            self.wake.wait_for(&mut stop, timeout);
        }
        *stop
    }

    fn sync_loop(&self) {
        while !self.pause(Duration::from_millis(self.interval_ms.load(SeqCst))) {
            if let Ok(log) = self.log()
                && log.is_dirty()
            {
                // The log keeps an error and gives it to the threads that wait for durability.
                let _ = log.sync();
            }
            self.mind_the_log();
        }
    }
}

/// Where a record stands.
pub(crate) fn position(record: &Record<'_>) -> Position {
    Position {
        index: record.index,
        term: record.term,
        at: record.at,
    }
}

/// The places of a member that has applied `newer` to its trees, whose files have what is before.
fn places_of(log: &Log, newer: &[Position]) -> Result<Places> {
    let base = match newer.first() {
        None => log.last(),
        Some(first) if first.index == log.first_index() => log.begins_behind(),
        Some(first) => {
            let mut reader = log.reader_at(first.index.saturating_sub(2))?;
            let before = reader.next()?;
            before.as_ref().map(position).unwrap_or_default()
        }
    };
    let mut places = Places::new(base, base);
    newer.iter().for_each(|p| places.push(*p));
    Ok(places)
}

/// The wall clock that the last record of the log carries. Where it is not there any more its
/// timestamp has to do.
fn wall_of_last(log: &Log, last: Position) -> i64 {
    let mut reader = log.reader_at(last.index.saturating_sub(1)).ok();
    let record = reader.as_mut().and_then(|r| r.next().ok().flatten());
    match record.filter(|record| record.at == last.at) {
        Some(record) => ops::wall_of(&record),
        None => i64::from(last.at.seconds()) * 1000,
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

/// 301 for a damaged catalog.
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
