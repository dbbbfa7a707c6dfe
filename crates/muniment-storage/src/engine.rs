//! The engine: everything that is known about fjall lives here (and, for the format of its
//! journal files, in `journal_check`).
//!
//! Invariants: a consistent read goes through an [`EngineSnapshot`]; [`Engine::newest`] reads one
//! key at the newest sequence number and is for the holder of that key's latch only; a panic
//! inside fjall becomes an error; a key is never longer than [`MAX_KEY`] (fjall would panic).

use bytes::Bytes;
use fjall::compaction::Leveled;
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    PinningPolicy, RestartIntervalPolicy,
};
use fjall::{
    AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch,
    PersistMode, Readable,
};
use muniment_value::{Code, Error, Result};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The longest key fjall takes, in bytes.
pub(crate) const MAX_KEY: usize = 65_535;

/// One of the three key spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Documents.
    Docs,
    /// Index entries.
    Index,
    /// Catalog entries and counters.
    Meta,
}

impl Space {
    /// The name of fjall's keyspace.
    pub fn name(self) -> &'static str {
        match self {
            Space::Docs => "docs",
            Space::Index => "index",
            Space::Meta => "meta",
        }
    }
}

/// How the configured cache is shared between the block cache and the memtables.
///
/// Large memtables are what makes writes cheap: fewer tables are written and merged, and of a
/// document that is rewritten often only the newest version reaches a table. A quarter of the
/// cache, at most [`Budget::MOST_SHARED`], is therefore theirs, beside what they always have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Block cache in bytes.
    pub block_cache: u64,
    docs: u64,
    index: u64,
}

impl Budget {
    /// Memtables of each keyspace in memory at most: one active, up to two sealed before our own
    /// back-pressure holds writers, one being freed.
    const ALIVE: u64 = 4;
    /// What the memtables have without any cache: (12 + 8 + 2) × 4 = 88 MB of payload, about
    /// 120 MB with the skip list's nodes.
    const DOCS: u64 = 12 << 20;
    const INDEX: u64 = 8 << 20;
    const META: u64 = 2 << 20;
    /// The most that is taken from the cache: after a crash the journal of all memtables is
    /// replayed.
    const MOST_SHARED: u64 = 512 << 20;

    /// The shares of a cache of `cache_bytes`.
    pub fn of(cache_bytes: u64) -> Budget {
        let shared = (cache_bytes / 4).min(Budget::MOST_SHARED);
        let each = shared / Budget::ALIVE;
        Budget {
            block_cache: cache_bytes - shared,
            docs: Budget::DOCS + each / 5 * 3,
            index: Budget::INDEX + each / 5 * 2,
        }
    }

    /// The size in bytes at which a memtable is sealed.
    pub fn memtable(&self, space: Space) -> u64 {
        match space {
            Space::Docs => self.docs,
            Space::Index => self.index,
            Space::Meta => Budget::META,
        }
    }

    /// Bytes of journal files at which the oldest memtables are written to tables.
    fn journal(&self) -> u64 {
        (256 << 20) + Budget::ALIVE * (self.docs + self.index - Budget::DOCS - Budget::INDEX)
    }
}

/// How the database is opened: the raw-engine yardstick uses the same.
pub fn database_options(path: &Path, budget: Budget) -> fjall::DatabaseBuilder<Database> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    Database::builder(path)
        .cache_size(budget.block_cache)
        // One worker of the pool only flushes, so that a long compaction never keeps a sealed
        // memtable waiting.
        .worker_threads(cores.clamp(3, 6))
        .journal_compression(CompressionType::None)
        .max_journaling_size(budget.journal())
        .max_cached_files(Some(512))
}

/// Seals the keyspace's memtable if it has reached its size. fjall keeps the size that a keyspace
/// was created with, ours follows the cache; so this is called where writes are admitted.
///
/// # Errors
/// As a commit's.
pub fn seal_if_full(keyspace: &Keyspace, space: Space, budget: Budget) -> fjall::Result<()> {
    if keyspace.tree.active_memtable().size() >= budget.memtable(space) {
        keyspace.rotate_memtable()?;
    }
    Ok(())
}

/// How a keyspace is created: the raw-engine yardstick uses the same. fjall keeps the options it
/// was created with.
pub fn options(space: Space) -> KeyspaceCreateOptions {
    let lz4 = CompressionPolicy::new([
        CompressionType::None,
        CompressionType::Lz4,
        CompressionType::Lz4,
    ]);
    let filters = FilterPolicy::new([
        FilterPolicyEntry::Bloom(BloomConstructionPolicy::FalsePositiveRate(0.001)),
        FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0)),
    ]);
    // A compaction syncs each table when it is full, and every journal sync waits behind it on
    // the disk: smaller tables, shorter waits. The second level is kept as large as it would be.
    let compaction = Leveled::default()
        .with_table_target_size(16 << 20)
        .with_level_ratio_policy(vec![16.0, 10.0]);
    let base = KeyspaceCreateOptions::default()
        // Never reached: see [`seal_if_full`].
        .max_memtable_size(1 << 30)
        .compaction_strategy(Arc::new(compaction))
        .data_block_compression_policy(lz4)
        .filter_policy(filters)
        .index_block_pinning_policy(PinningPolicy::new([true, true, false]))
        .filter_block_pinning_policy(PinningPolicy::new([true, false]));
    match space {
        // Keys stay truncated, although whole ones scan faster: a whole key is a slice of its
        // block, and the index that a compaction builds would keep every block of the table in
        // memory (yardstick 8 over all others: 324 MB above the cache instead of 82).
        Space::Docs => base.data_block_size_policy(BlockSizePolicy::all(8 << 10)),
        Space::Index => base
            .data_block_size_policy(BlockSizePolicy::all(8 << 10))
            .data_block_restart_interval_policy(RestartIntervalPolicy::all(16)),
        Space::Meta => base,
    }
}

/// An open fjall database.
pub(crate) struct Engine {
    db: Database,
    docs: Keyspace,
    index: Keyspace,
    meta: Keyspace,
    path: PathBuf,
    budget: Budget,
}

/// What the writers' back-pressure looks at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pressure {
    /// Sealed memtables of the keyspace that has most of them.
    pub sealed: usize,
    /// Sorted runs in level 0 of the keyspace that has most of them.
    pub l0_runs: usize,
}

impl Engine {
    /// Opens or creates the database in `path`.
    pub fn open(path: &Path, cache_bytes: u64) -> Result<Engine> {
        crate::precheck::prepare(path)?;
        let budget = Budget::of(cache_bytes);
        let opened = catch_unwind(AssertUnwindSafe(|| -> fjall::Result<Engine> {
            let db = database_options(path, budget).open()?;
            let open = |space: Space| db.keyspace(space.name(), || options(space));
            Ok(Engine {
                docs: open(Space::Docs)?,
                index: open(Space::Index)?,
                meta: open(Space::Meta)?,
                path: path.to_path_buf(),
                budget,
                db,
            })
        }));
        match opened {
            Ok(Ok(engine)) => {
                sync_names(path)?;
                Ok(engine)
            }
            Ok(Err(e)) => Err(map_error(&e, path)),
            Err(panic) => Err(corrupt(
                path,
                &format!("recovery stopped: {}", panic_text(&*panic)),
            )),
        }
    }

    /// Writes all memtables to tables.
    #[cfg(test)]
    pub fn flush_for_tests(&self) {
        for k in [&self.docs, &self.index, &self.meta] {
            let _ = k.rotate_memtable_and_wait();
        }
    }

    fn space(&self, space: Space) -> &Keyspace {
        match space {
            Space::Docs => &self.docs,
            Space::Index => &self.index,
            Space::Meta => &self.meta,
        }
    }

    /// The newest value of one key. Only for who holds the key's latch: beside it, half of a
    /// batch may be seen.
    pub fn newest(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        if key.len() > MAX_KEY {
            return Ok(None);
        }
        guarded(&self.path, || self.space(space).get(key)).map(|v| v.map(Bytes::from))
    }

    /// A batch with room for `capacity` operations.
    pub fn batch(self: &Arc<Engine>, capacity: usize) -> Batch {
        Batch {
            inner: OwnedWriteBatch::with_capacity(self.db.clone(), capacity)
                .durability(Some(PersistMode::Buffer)),
            engine: self.clone(),
        }
    }

    /// Writes the sealed memtables to tables in this thread. For an engine whose workers died of a
    /// full disk: a commit that meets four sealed memtables waits in fjall until they are written,
    /// whoever does it.
    pub fn rescue(&self) {
        for k in [&self.docs, &self.index, &self.meta] {
            // What fails is tried again by the caller; nothing is collected below the watermark 0.
            let _ = guarded(&self.path, || {
                let lock = k.tree.get_flush_lock();
                Ok(k.tree.flush(&lock, 0)?)
            });
        }
    }

    /// Seals all memtables, so that they are written to tables soon.
    pub fn flush_all(&self) -> Result<()> {
        for k in [&self.docs, &self.index, &self.meta] {
            guarded(&self.path, || k.rotate_memtable())?;
        }
        Ok(())
    }

    /// An error if an earlier failure made the engine refuse writes.
    pub fn healthy(&self) -> Result<()> {
        self.db
            .persist(PersistMode::Buffer)
            .map_err(|e| map_error(&e, &self.path))
    }

    /// Seals the memtables that have reached their size.
    pub fn seal_full(&self) -> Result<()> {
        for (k, space) in [
            (&self.docs, Space::Docs),
            (&self.index, Space::Index),
            (&self.meta, Space::Meta),
        ] {
            guarded(&self.path, || seal_if_full(k, space, self.budget))?;
        }
        Ok(())
    }

    /// How far flushes and compactions are behind.
    pub fn pressure(&self) -> Pressure {
        let mut p = Pressure::default();
        for k in [&self.docs, &self.index, &self.meta] {
            p.sealed = p.sealed.max(k.sealed_memtable_count());
            p.l0_runs = p.l0_runs.max(k.tree.l0_run_count());
        }
        p
    }

    /// Bytes in memtables, as fjall counts them.
    pub fn memtable_bytes(&self) -> u64 {
        self.db.write_buffer_size()
    }

    /// (used, capacity) of the block cache in bytes.
    pub fn cache(&self) -> (u64, u64) {
        (self.db.cache_size(), self.db.cache_capacity())
    }

    /// Bytes on disk, journal and all.
    pub fn disk_bytes(&self) -> u64 {
        self.db.disk_space().unwrap_or(0)
    }

    /// Bytes of one keyspace's tables.
    pub fn table_bytes(&self, space: Space) -> u64 {
        self.space(space).disk_space()
    }
}

/// Staged operations on one engine.
pub(crate) struct Batch {
    inner: OwnedWriteBatch,
    engine: Arc<Engine>,
}

impl Batch {
    /// Stages a put.
    pub fn put(&mut self, space: Space, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.inner
            .insert(self.engine.space(space), key.into(), value.into());
    }

    /// Stages a delete.
    pub fn delete(&mut self, space: Space, key: impl Into<Bytes>) {
        self.inner.remove(self.engine.space(space), key.into());
    }

    /// Commits: on return the batch is in the journal file (not synced) and visible.
    pub fn commit(self) -> Result<()> {
        let path = &self.engine.path;
        let inner = self.inner;
        guarded(path, || inner.commit())
    }
}

/// A consistent view.
pub(crate) struct EngineSnapshot {
    snapshot: fjall::Snapshot,
    engine: Arc<Engine>,
}

impl EngineSnapshot {
    /// A view of now.
    pub fn new(engine: Arc<Engine>) -> EngineSnapshot {
        EngineSnapshot {
            snapshot: engine.db.snapshot(),
            engine,
        }
    }

    /// One key.
    pub fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        if key.len() > MAX_KEY {
            return Ok(None);
        }
        guarded(&self.engine.path, || {
            self.snapshot.get(self.engine.space(space), key)
        })
        .map(|v| v.map(Bytes::from))
    }

    /// The keys in `low..high`.
    pub fn range(&self, space: Space, mut low: Vec<u8>, mut high: Vec<u8>) -> EngineIter {
        // fjall panics on a bound that is longer than a key may be; no key lies between the
        // truncated and the full bound that could not be at most MAX_KEY long, so the range can
        // only grow by keys that equal the truncated bound, which nobody writes.
        low.truncate(MAX_KEY);
        high.truncate(MAX_KEY);
        let inner = (low < high)
            .then(|| {
                catch_unwind(AssertUnwindSafe(|| {
                    self.snapshot
                        .range::<Vec<u8>, _>(self.engine.space(space), low..high)
                }))
                .ok()
            })
            .flatten();
        EngineIter {
            inner,
            engine: self.engine.clone(),
        }
    }
}

/// A cursor over keys and values, from both ends.
pub(crate) struct EngineIter {
    inner: Option<fjall::Iter>,
    /// Its files may go when it is closed.
    engine: Arc<Engine>,
}

impl EngineIter {
    /// The next pair in ascending order.
    pub fn next(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        self.step(Iterator::next)
    }

    /// The next pair from the end.
    pub fn next_back(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        self.step(DoubleEndedIterator::next_back)
    }

    fn step(
        &mut self,
        f: impl Fn(&mut fjall::Iter) -> Option<fjall::Guard>,
    ) -> Result<Option<(Bytes, Bytes)>> {
        let Some(iter) = self.inner.as_mut() else {
            return Ok(None);
        };
        let stepped = catch_unwind(AssertUnwindSafe(|| {
            f(iter).map(fjall::Guard::into_inner).transpose()
        }));
        match stepped {
            Ok(Ok(pair)) => Ok(pair.map(|(k, v)| (Bytes::from(k), Bytes::from(v)))),
            Ok(Err(e)) => {
                self.inner = None;
                Err(map_error(&e, &self.engine.path))
            }
            Err(panic) => {
                self.inner = None;
                Err(corrupt(&self.engine.path, &panic_text(&*panic)))
            }
        }
    }
}

/// Makes the names of the database's directories durable: fjall syncs what is in a keyspace's
/// directory, but not the names of those directories. Without this a power cut could take whole
/// keyspaces on a file system that does no more than POSIX demands.
fn sync_names(path: &Path) -> Result<()> {
    let keyspaces = path.join("keyspaces");
    for dir in [Some(keyspaces.as_path()), Some(path), path.parent()] {
        if let Some(dir) = dir.filter(|d| !d.as_os_str().is_empty()) {
            std::fs::File::open(dir)
                .and_then(|d| d.sync_all())
                .map_err(|e| Error::from(e).context(&format!("cannot sync {}: ", dir.display())))?;
        }
    }
    Ok(())
}

/// Runs `f`, turning its errors and panics into ours.
fn guarded<T>(path: &Path, f: impl FnOnce() -> fjall::Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(v)) => Ok(v),
        Ok(Err(e)) => Err(map_error(&e, path)),
        Err(panic) => Err(corrupt(path, &panic_text(&*panic))),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_string()))
        .unwrap_or_else(|| "a panic in the engine".to_string())
}

/// 301 DataCorruptionDetected for something under `path`, naming file and offset if a table is
/// damaged.
pub(crate) fn corrupt(path: &Path, what: &str) -> Error {
    let place = match crate::damage::located(path) {
        Some(damage) => format!("; {damage}"),
        None => String::new(),
    };
    Error::new(
        Code::DataCorruptionDetected,
        format!(
            "data corruption detected in {}: {what}{place}",
            path.display()
        ),
    )
}

fn map_error(e: &fjall::Error, path: &Path) -> Error {
    use fjall::{Error as E, LsmError as L};
    match e {
        E::Io(e) | E::Storage(L::Io(e)) => match e.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => out_of_disk(path),
            // A file that is cut or gone.
            _ if matches!(
                e.kind(),
                ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::NotFound
            ) =>
            {
                corrupt(path, &e.to_string())
            }
            _ => Error::internal(format!("I/O error in {}: {e}", path.display())),
        },
        E::Poisoned => Error::new(
            Code::OutOfDiskSpace,
            format!(
                "writes in {} are refused since an earlier write to the disk failed",
                path.display()
            ),
        ),
        E::Locked => Error::new(
            Code::DBPathInUse,
            format!("the data directory {} is in use", path.display()),
        ),
        other => corrupt(path, &other.to_string()),
    }
}

/// 14031 OutOfDiskSpace.
pub(crate) fn out_of_disk(path: &Path) -> Error {
    Error::new(
        Code::OutOfDiskSpace,
        format!(
            "out of disk space in {}: the write was refused",
            path.display()
        ),
    )
}
