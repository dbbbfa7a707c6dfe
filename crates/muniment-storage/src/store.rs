//! The store: one data directory, opened once.

use crate::admission::Admission;
use crate::build::Begun;
use crate::catalog::names::{Catalog, DroppedTree};
use crate::collection::Collection;
use crate::commit::door::Door;
use crate::commit::stage::Buffers;
use crate::follow::Followed;
use crate::gate::Gate;
use crate::hints::Hints;
use crate::history::History;
use crate::index::Index;
use crate::latch::Latches;
use crate::lockfile::DirLock;
use crate::oplog::{Watch, Window};
use crate::places::Places;
use crate::unit::WriteUnit;
use crate::view::{Glance, Snapshot};
use muniment_io::spread::{self, Spread, SpreadLock};
use muniment_io::{Clock, Disk, Machine, SimDisk, Timestamp};
use muniment_log::{Log, LogOptions, Position, Record};
use muniment_query::{Interrupt, running};
use muniment_tree::lsm::{LsmOptions, LsmTrees};
use muniment_tree::memory::MemoryTrees;
use muniment_tree::{Direction, Range, TreeId, Trees};
use muniment_value::{Code, Error, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
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
    /// Cut a log that is damaged in its middle there, losing the writes behind the damage,
    /// instead of refusing to open.
    pub accept_data_loss: bool,
    /// In what the data is kept.
    pub engine: EngineKind,
    /// A member of a replica set: the door is closed until [`Store::open_door`], and nothing reaches
    /// a file that is not committed ([`Store::set_committed`]).
    pub member: bool,
    /// Gives up every record of the log behind this index, and all that came of them: what a member
    /// has that the others have not. The trees' files must have nothing of them, as is so of a
    /// member. Opening again with the same is harmless until something was appended.
    pub cut_behind: Option<u64>,
    /// What it runs on. Without threads, [`Store::sync`], [`Store::flush`] and [`Store::work`] are to be
    /// called.
    pub machine: Machine,
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
            machine: Machine::default(),
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
    /// Microseconds that commits were held back since flushes or compactions were behind.
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
    pub trees: Arc<dyn Trees>,
    /// Replaced when it is opened anew after a fault.
    pub log: SpreadLock<Option<Arc<Log>>>,
    pub log_options: LogOptions,
    pub disk: Arc<dyn Disk>,
    /// See [`Machine::threads`].
    pub has_threads: bool,
    pub budget: Budget,
    pub door: Door,
    /// Who wait for the newest visible commit to be another one.
    pub watch: Watch,
    /// Names that collections had.
    pub history: Mutex<History>,
    /// What is kept of the log for its readers.
    pub window: Mutex<Window>,
    /// See [`Store::keep_history`].
    pub history_secs: AtomicU32,
    pub space: crate::space::SpaceGuard,
    pub latches: Latches,
    pub hints: Arc<Hints>,
    /// Shared by every commit; seals and fsyncLock have it alone.
    pub gate: Gate,
    pub fsync_lock: Mutex<crate::admin::FsyncLock>,
    /// How deep it is locked.
    pub fsync_depth: AtomicU32,
    /// Held by who trims the log or opens it anew, and by fsyncLock.
    pub still: Arc<Mutex<()>>,
    /// What commits keep alive in memory.
    pub buffers: Buffers,
    /// Write units so far, by places.
    owners: Spread<AtomicU64, OWNERS>,
    /// Held while names of collections change.
    pub naming: Mutex<()>,
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
    /// Trees that were dropped, and when: see `checkpoint`.
    pub dropped: Mutex<Vec<DroppedTree>>,
    /// Why the log could not be trimmed, while that is so.
    pub trim_failure: Mutex<Option<Error>>,
    /// Index builds that failed and could not be taken away yet.
    pub failed_builds: Mutex<Vec<Begun>>,
    /// Collections that are in use and may bear the mark of a transaction that made them, by the
    /// records of another primary.
    pub marked: Mutex<HashSet<u32>>,
    /// Held by who appends another member's records, and by who opens the door.
    pub following: Mutex<()>,
    /// What they came to.
    pub followed: Followed,
    /// Collections that a command made for itself and that could not be dropped yet.
    pub discarded: Mutex<Vec<Arc<Collection>>>,
    _lock: Option<DirLock>,
}

impl Store {
    /// Opens or creates the directory, locks it, applies the log behind the persisted cut and
    /// restarts index builds that a crash interrupted.
    ///
    /// # Errors
    /// 98 DBPathInUse naming the other process; 301 DataCorruptionDetected naming file and
    /// offset; I/O errors; a message for people when another version made the directory.
    pub fn open(options: StoreOptions) -> Result<Arc<Store>> {
        let lock = DirLock::acquire(&options.path, options.engine)?;
        Store::open_locked(options, Some(lock))
    }

    /// The same for who holds the directory's lock already, because it had to change something there
    /// before, or whose disk is nobody else's and has no locks.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_locked(options: StoreOptions, lock: Option<DirLock>) -> Result<Arc<Store>> {
        let budget = Budget::of(options.cache_bytes);
        let synced: Arc<OnceLock<Weak<Inner>>> = Arc::default();
        let (disk, trees): (Arc<dyn Disk>, Arc<dyn Trees>) = match options.engine {
            EngineKind::Lsm => {
                let disk = options.machine.disk.clone();
                let owner = synced.clone();
                let lsm = LsmOptions {
                    // Recovery reads the log behind the cut, so the log must reach it.
                    before_persist: Arc::new(move |_| match owner.get().and_then(Weak::upgrade) {
                        Some(inner) => inner.log()?.sync(),
                        None => Err(Error::internal("the log is not open yet")),
                    }),
                    cache_bytes: budget.block_cache,
                    memtable_bytes: budget.memtable,
                    disk: disk.clone(),
                    clock: options.machine.clock.clone(),
                    background: options.machine.threads,
                    ..LsmOptions::new(options.path.join("trees"))
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
        store.start_threads()?;
        if let Ok(opening) = store.inner.door.opening() {
            store.inner.end_pending(store.inner.take_pending(), opening);
        }
        Ok(store)
    }

    fn start_threads(&self) -> Result<()> {
        // Asked before anything is written that nobody had to apply.
        let applied = self.inner.much_was_applied();
        if self.inner.has_threads {
            self.start("muniment-sync", Inner::sync_loop)?;
            self.start("muniment-seal", move |inner| inner.checkpoint_loop(applied))?;
        }
        let builds = self.inner.unfinished_builds();
        if let Ok(opening) = self.inner.door.opening()
            && !builds.is_empty()
        {
            self.start("muniment-index", move |inner: &Inner| {
                inner.resume_builds(builds, opening);
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

    /// A round of what the store's threads do beside syncing and sealing, for who has it without
    /// them: builds of indexes, opening a log anew that has failed, one compaction, clearing away.
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
        inner.clear_away();
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
        let mut found: Vec<(String, Arc<Collection>)> = self
            .inner
            .catalog
            .read()
            .all()
            .map(|c| (c.namespace(), c.clone()))
            .filter(|(name, _)| db_of(name) == db)
            .collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found.into_iter().map(|(_, c)| c).collect()
    }

    /// The databases that have a collection, sorted.
    pub fn databases(&self) -> Vec<String> {
        let catalog = self.inner.catalog.read();
        let mut names: Vec<String> = catalog.names().map(|n| db_of(n).to_string()).collect();
        drop(catalog);
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Begins a write unit on a collection (shared against DDL).
    ///
    /// # Errors
    /// 26 NamespaceNotFound if it was dropped; 10107 NotWritablePrimary; what `interrupt` says while
    /// it waits for DDL.
    pub fn write_unit<'s>(
        &'s self,
        collection: &Arc<Collection>,
        interrupt: &'s dyn Interrupt,
    ) -> Result<WriteUnit<'s>> {
        self.inner.check_open()?;
        let opening = self.inner.door.opening()?;
        let ddl = collection.ddl.share(interrupt)?;
        if collection.is_dropped() {
            return Err(dropped(collection));
        }
        collection.claim();
        Ok(WriteUnit::new(
            &self.inner,
            collection,
            opening,
            interrupt,
            Some(ddl),
        ))
    }

    /// Returns once the commit is on the disk: one fdatasync serves all who wait.
    ///
    /// # Errors
    /// I/O errors: the write is visible but its durability unknown. What `interrupt` says.
    pub fn wait_journaled(&self, commit: CommitId, interrupt: &dyn Interrupt) -> Result<()> {
        let log = self.inner.log()?;
        log.wait_durable(commit.index, &|| interrupt.check())
    }

    /// The newest commit.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace while the log cannot be opened anew after a failure: nobody knows it then,
    /// and who is to wait for it must not take nothing for it.
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
        self.inner.watch.wake();
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
        // The data is in the log either way; an error here has nobody to go to.
        let _ = self.close();
    }
}

impl Inner {
    /// Opens catalog and log over the trees.
    pub(crate) fn recover(
        options: &StoreOptions,
        disk: Arc<dyn Disk>,
        trees: Arc<dyn Trees>,
        budget: Budget,
        lock: Option<DirLock>,
    ) -> Result<Arc<Inner>> {
        let log_options = LogOptions {
            accept_data_loss: options.accept_data_loss,
            background: options.machine.threads,
            // A record that does not fit is synced while it is written: the largest document and
            // what is staged beside it fit. Memory has no such syncs. A start reads a segment at once,
            // so it is not larger than what goes with the cache.
            segment_bytes: match trees.is_durable() {
                true => options.cache_bytes.saturating_mul(2).min(32 << 20),
                false => options.cache_bytes.min(4 << 20),
            },
            disk: disk.clone(),
            ..LogOptions::new(&options.path.join("log"))
        };
        let cut = trees.persisted();
        if options.member {
            // What is behind the cut may be given up again, and views at the commit point read what
            // was there before it.
            trees.set_committed(cut);
            trees.views().keep_from(cut);
        }
        let mut inner = Inner {
            log: SpreadLock::default(),
            log_options: log_options.clone(),
            clock: options.machine.clock.clone(),
            disk,
            has_threads: options.machine.threads,
            space: crate::space::SpaceGuard::new(&options.path),
            path: options.path.clone(),
            trees: trees.clone(),
            budget,
            door: Door::new(Position::default(), None),
            watch: Watch::default(),
            history: Mutex::default(),
            history_secs: AtomicU32::new(0),
            window: Mutex::new(Window::of(trees.is_durable(), &options.path)),
            admission: Admission::new(),
            dropped: Mutex::default(),
            trim_failure: Mutex::default(),
            failed_builds: Mutex::default(),
            discarded: Mutex::default(),
            marked: Mutex::default(),
            following: Mutex::default(),
            followed: Followed::default(),
            latches: Latches::new(),
            hints: Arc::default(),
            gate: Gate::default(),
            fsync_lock: Mutex::default(),
            fsync_depth: AtomicU32::new(0),
            still: Arc::default(),
            buffers: Buffers::new(!trees.is_durable()),
            owners: Spread::default(),
            naming: Mutex::new(()),
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
        inner.door = Door::new(last, places);
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
                // Those who wait for durability get the error; the log keeps it.
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

/// For background threads: they may go on until the store closes.
pub(crate) struct UntilClosed<'a>(pub &'a Inner);

impl Interrupt for UntilClosed<'_> {
    fn check(&self) -> Result<()> {
        self.0.check_open()
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
