//! The store: one data directory, opened once.

use crate::admission::Admission;
use crate::collection::Collection;
use crate::engine::{self, Engine, EngineSnapshot, Space};
use crate::index::Index;
use crate::journal::Journal;
use crate::keys;
use crate::latch::Latches;
use crate::lockfile::DirLock;
use crate::snapshot::Snapshot;
use crate::writeset::WriteSet;
use muniment_value::{Code, Error, Result};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

/// How to open a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The data directory; created if it is not there.
    pub path: PathBuf,
    /// Block cache in bytes.
    pub cache_bytes: u64,
    /// How often the journal is flushed to the disk (1–500 ms, default 100).
    pub journal_commit_interval: Duration,
    /// Cut a journal that is damaged in its middle there, losing the writes behind the damage,
    /// instead of refusing to open.
    pub accept_data_loss: bool,
}

impl StoreOptions {
    /// The defaults: 256 MiB of cache, 100 ms.
    pub fn new(path: impl Into<PathBuf>) -> StoreOptions {
        StoreOptions {
            path: path.into(),
            cache_bytes: 256 << 20,
            journal_commit_interval: Duration::from_millis(100),
            accept_data_loss: false,
        }
    }
}

/// Identifies a commit for [`Store::wait_journaled`]; later commits are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitId(pub u64);

/// Measured counters of the journal.
#[derive(Clone, Copy, Debug, Default)]
pub struct JournalStats {
    /// Write sets committed.
    pub commits: u64,
    /// fdatasync calls on the journal.
    pub syncs: u64,
    /// Microseconds spent in them.
    pub sync_micros: u64,
    /// Waits for durability that were served.
    pub waits: u64,
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
    /// Microseconds that commits were held back since flushes or compactions were behind.
    pub delayed_micros: u64,
    /// The journal.
    pub journal: JournalStats,
}

/// An open data directory.
pub struct Store {
    pub(crate) inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the background threads share with the store.
pub(crate) struct Inner {
    pub path: PathBuf,
    pub cache_bytes: u64,
    /// `None` only while it is being opened anew, under the lock.
    pub engine: RwLock<Option<Arc<Engine>>>,
    pub space: crate::space::SpaceGuard,
    pub latches: Latches,
    pub journal: Journal,
    /// Shared by every commit; fsyncLock has it alone.
    pub gate: Arc<RwLock<()>>,
    pub fsync_lock: Mutex<crate::admin::FsyncLock>,
    owners: AtomicU64,
    /// One DDL operation at a time.
    pub ddl: Mutex<()>,
    pub names: RwLock<HashMap<String, Arc<Collection>>>,
    pub next_id: AtomicU32,
    pub interval_ms: AtomicU64,
    pub closed: AtomicBool,
    pub stop: Mutex<bool>,
    /// Wakes the background threads.
    pub wake: Condvar,
    pub reclaim: AtomicBool,
    pub admission: Admission,
    /// Index builds that failed and could not be taken away yet.
    pub failed_builds: Mutex<Vec<(Arc<Collection>, Arc<Index>)>>,
    _lock: DirLock,
}

impl Store {
    /// Opens or creates the directory, locks it, cuts a torn journal tail, finishes drops and
    /// restarts index builds that a crash interrupted.
    ///
    /// # Errors
    /// 98 DBPathInUse naming the other process; 301 DataCorruptionDetected naming file and
    /// offset; I/O errors.
    pub fn open(options: StoreOptions) -> Result<Arc<Store>> {
        let lock = DirLock::acquire(&options.path)?;
        let directory = options.path.join("engine");
        crate::journal_check::check(&directory, options.accept_data_loss)?;
        let engine = Arc::new(Engine::open(&directory, options.cache_bytes)?);
        let inner = Arc::new(Inner {
            journal: Journal::new(&directory),
            space: crate::space::SpaceGuard::new(&options.path),
            path: options.path,
            cache_bytes: options.cache_bytes,
            engine: RwLock::new(Some(engine.clone())),
            admission: Admission::new(),
            failed_builds: Mutex::default(),
            latches: Latches::new(),
            gate: Arc::default(),
            fsync_lock: Mutex::default(),
            owners: AtomicU64::new(1),
            ddl: Mutex::new(()),
            names: RwLock::default(),
            next_id: AtomicU32::new(1),
            interval_ms: AtomicU64::new(100),
            closed: AtomicBool::new(false),
            stop: Mutex::new(false),
            wake: Condvar::new(),
            reclaim: AtomicBool::new(true),
            _lock: lock,
        });
        inner.create_layout(&engine)?;
        inner.load_catalog(&EngineSnapshot::new(engine))?;
        let store = Arc::new(Store {
            inner: inner.clone(),
            threads: Mutex::default(),
        });
        store.set_journal_commit_interval(options.journal_commit_interval);
        store.start_threads()?;
        Ok(store)
    }

    fn start_threads(&self) -> Result<()> {
        type Job = (&'static str, fn(&Inner));
        let mut jobs: Vec<Job> = vec![
            ("muniment-flush", Inner::flush_loop),
            ("muniment-drop", Inner::reclaim_loop),
        ];
        let unfinished = |c: &Arc<Collection>| c.all_indexes().iter().any(|i| !i.is_ready());
        if self.inner.names.read().values().any(unfinished) {
            jobs.push(("muniment-index", Inner::resume_builds));
        }
        let mut threads = self.threads.lock();
        for (name, job) in jobs {
            let inner = self.inner.clone();
            let handle = std::thread::Builder::new()
                .name(name.to_string())
                .stack_size(2 << 20)
                .spawn(move || job(&inner))?;
            threads.push(handle);
        }
        Ok(())
    }

    /// A snapshot of now.
    pub fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }

    /// The collection `db.name`, if it exists.
    pub fn collection(&self, namespace: &str) -> Option<Arc<Collection>> {
        self.inner.names.read().get(namespace).cloned()
    }

    /// The collections of a database, sorted by name.
    pub fn collections(&self, db: &str) -> Vec<Arc<Collection>> {
        let mut found: Vec<(String, Arc<Collection>)> = self
            .inner
            .names
            .read()
            .iter()
            .filter(|(name, _)| db_of(name) == db)
            .map(|(name, c)| (name.clone(), c.clone()))
            .collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found.into_iter().map(|(_, c)| c).collect()
    }

    /// The databases that have a collection, sorted.
    pub fn databases(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .inner
            .names
            .read()
            .keys()
            .map(|n| db_of(n).to_string())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Begins a write set on a collection (shared against DDL).
    ///
    /// # Errors
    /// 26 NamespaceNotFound if it was dropped; 14031 OutOfDiskSpace while the disk is full;
    /// waits while fsyncLock is held.
    pub fn write_set<'s>(&'s self, collection: &Arc<Collection>) -> Result<WriteSet<'s>> {
        self.inner.check_open()?;
        drop(self.inner.gate.read());
        let ddl = collection.ddl.read_arc();
        if collection.is_dropped() {
            return Err(dropped(collection));
        }
        let engine = self.inner.engine()?;
        Ok(WriteSet::new(&self.inner, collection, engine, ddl))
    }

    /// Returns once the commit is on the disk: one fdatasync serves all who wait.
    ///
    /// # Errors
    /// I/O errors: the write is visible but its durability unknown.
    pub fn wait_journaled(&self, commit: CommitId) -> Result<()> {
        self.inner.journal.wait(commit.0)
    }

    /// The newest commit.
    pub fn last_commit(&self) -> CommitId {
        CommitId(self.inner.journal.last())
    }

    /// Flushes the journal to the disk now.
    ///
    /// # Errors
    /// I/O errors.
    pub fn sync(&self) -> Result<()> {
        self.inner.check_open()?;
        self.inner.journal.sync_now()
    }

    /// Changes the journal's flush interval at run time.
    pub fn set_journal_commit_interval(&self, interval: Duration) {
        let ms = (interval.as_millis() as u64).clamp(1, 500);
        self.inner.interval_ms.store(ms, SeqCst);
        self.inner.wake.notify_all();
    }

    /// Measured figures.
    pub fn stats(&self) -> StoreStats {
        let engine = self.inner.engine().ok();
        let (cache_used, cache_capacity) = engine.as_ref().map_or((0, 0), |e| e.cache());
        let (commits, syncs, sync_micros, waits) = self.inner.journal.stats();
        StoreStats {
            cache_used,
            cache_capacity,
            memtable_bytes: engine.as_ref().map_or(0, |e| e.memtable_bytes()),
            disk_bytes: engine.as_ref().map_or(0, |e| e.disk_bytes()),
            delayed_micros: self.inner.admission.delayed_micros(),
            journal: JournalStats {
                commits,
                syncs,
                sync_micros,
                waits,
            },
        }
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
        for thread in self.threads.lock().drain(..) {
            // A thread that panicked has nothing left to say.
            let _ = thread.join();
        }
        self.inner.journal.sync_now()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The data is in the journal file either way; an error here has nobody to go to.
        let _ = self.close();
    }
}

impl Inner {
    /// The engine that is open now.
    ///
    /// # Errors
    /// 91: the store was closed while its engine was out of order.
    pub fn engine(&self) -> Result<Arc<Engine>> {
        match &*self.engine.read() {
            Some(engine) => Ok(engine.clone()),
            None => Err(crate::snapshot::closed()),
        }
    }

    pub fn snapshot(&self) -> Snapshot {
        if self.closed.load(SeqCst) {
            return Snapshot::new(None);
        }
        Snapshot::new(self.engine().ok().map(EngineSnapshot::new))
    }

    pub fn check_open(&self) -> Result<()> {
        if self.closed.load(Relaxed) {
            return Err(crate::snapshot::closed());
        }
        Ok(())
    }

    /// The engine's directory.
    pub fn engine_path(&self) -> PathBuf {
        self.path.join("engine")
    }

    /// A number that no other write set has.
    pub fn next_owner(&self) -> u64 {
        self.owners.fetch_add(1, Relaxed)
    }

    /// The greatest record key that exists; empty if there is none.
    pub fn greatest_record_key(
        &self,
        engine: &Arc<Engine>,
        collection: &Collection,
    ) -> Result<Vec<u8>> {
        let snapshot = EngineSnapshot::new(engine.clone());
        let last = snapshot
            .range(
                Space::Docs,
                keys::prefix(collection.id).to_vec(),
                keys::end_of(collection.id, &[]),
            )
            .next_back()?;
        Ok(last
            .and_then(|(k, _)| k.get(4..).map(<[u8]>::to_vec))
            .unwrap_or_default())
    }

    /// Waits on `wake` for at most `timeout`; true when the store closes.
    pub fn pause(&self, timeout: Duration) -> bool {
        let mut stop = self.stop.lock();
        if !*stop {
            self.wake.wait_for(&mut stop, timeout);
        }
        *stop
    }

    fn flush_loop(&self) {
        while !self.pause(Duration::from_millis(self.interval_ms.load(SeqCst))) {
            if self.journal.dirty() {
                // Those who wait for durability get the error; the journal keeps it.
                let _ = self.journal.sync_now();
            }
            self.mind_the_engine();
        }
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
    engine::corrupt(path, what)
}

/// An index handle for tests and statistics.
pub(crate) fn index_by_name(collection: &Collection, name: &str) -> Option<Arc<Index>> {
    collection
        .all_indexes()
        .iter()
        .find(|i| i.spec().name == name)
        .cloned()
}
