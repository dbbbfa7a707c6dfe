//! The state that the engine's handle, its cursors and its threads share, and the only way to change the set
//! of tables.

use super::cache::BlockCache;
use super::dropped::DroppedList;
use super::error::{damaged, io};
use super::failures::Failures;
use super::gaps::Gaps;
use super::idle::For;
use super::manifest::{self, Manifest, Named, table_path};
use super::options::LsmOptions;
use super::pick::Span;
use super::state::{Freed, Levels, Run, Sealed, State};
use super::still::Still;
use super::table::Table;
use super::trash::Trash;
use crate::memtable::MemTable;
use crate::trees::Faults;
use crate::views::Views;
use muniment_io::{Open, SpreadLock, Timestamp};
use muniment_op::{Event, Lock, Sleepers};
use muniment_value::{Code, Error, Result};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// An open engine.
pub(crate) struct Shared {
    pub(crate) options: LsmOptions,
    pub(crate) views: Arc<Views>,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) trash: Arc<Trash>,
    /// Locked only to look into memtables, and to copy or swap the `Arc`.
    state: SpreadLock<Arc<State>>,
    /// Flushed memtables, which readers may still hold. Freeing one takes long, and a reader or writer must
    /// not have to do it: see [`Shared::purge`].
    retired: Mutex<Vec<Arc<MemTable>>>,
    persisted: AtomicU64,
    /// The commit point; `u64::MAX` before there is one.
    committed: AtomicU64,
    pub(crate) next_table: AtomicU64,
    /// Held while the manifest is written; no reader or writer of data takes it.
    commit: Mutex<Committed>,
    /// Counts failed syncs of the directory. Names that were made before one are not safe, and no later sync
    /// makes them so.
    lost_names: AtomicU64,
    pub(crate) dropped: DroppedList,
    pub(crate) gaps: Gaps,
    /// Held by the running flush.
    pub(crate) flush: Lock<()>,
    /// The running jobs. Held while one is picked.
    pub(crate) claims: Mutex<Vec<Claim>>,
    /// Counts the work that changes files, and lets callers hold the files.
    pub(crate) still: Still,
    pub(crate) failures: Failures,
    faults: Mutex<[Option<Error>; 2]>,
    pub(crate) closed: AtomicBool,
    /// The threads whose waits end with the engine.
    pub(crate) stops: Sleepers,
    /// How often something has changed that a thread may wait for.
    pub(crate) moves: AtomicU64,
    pub(crate) moved: Event,
    /// The waits of the threads that do the engine's work.
    pub(crate) idle: Arc<Event<For>>,
    pub(crate) flushed: AtomicU64,
    pub(crate) compacted: AtomicU64,
}

/// The things that a running job has for itself.
pub(crate) struct Claim {
    pub(crate) number: u64,
    /// The level that it writes to, and the spans there.
    pub(crate) output: usize,
    pub(crate) spans: Vec<Span>,
    /// The bytes that it may write.
    pub(crate) bytes: u64,
}

struct Committed {
    number: u64,
    /// Tables of a manifest that may or may not be the one on disk. Their files stay until another manifest
    /// surely is on disk.
    unsure: Vec<Arc<Table>>,
}

/// The kind of background work in [`Shared::report`].
#[derive(Clone, Copy)]
pub(crate) enum Work {
    Flush = 0,
    Compaction = 1,
}

/// A change of the set of tables.
#[derive(Default)]
pub(crate) struct Edit {
    pub(crate) remove: Vec<Arc<Table>>,
    pub(crate) add: Vec<Arc<Table>>,
    /// The level of the added tables; 0: a new fresh run.
    pub(crate) level: usize,
    /// The rests of tables, each of which replaces the table with the same number.
    pub(crate) narrow: Vec<Arc<Table>>,
    /// The sealed memtables up to this number are in tables now, with this cut.
    pub(crate) flushed: Option<(u64, Timestamp)>,
    /// The result of [`Shared::names`] before the first file of `add` was created; `None` if there is none.
    pub(crate) names: Option<u64>,
}

impl Shared {
    /// Opens a directory.
    ///
    /// # Errors
    /// See [`LsmTrees::open`](super::LsmTrees::open).
    pub(crate) fn open(options: LsmOptions) -> Result<Shared> {
        let (dir, disk, idle) = (options.dir.clone(), options.disk.clone(), Arc::default());
        disk.create_dir(&dir).map_err(|e| io("making", &dir, &e))?;
        let names = disk.list(&dir).map_err(|e| io("listing", &dir, &e))?;
        let found = Manifest::read(&*disk, &dir, &names)?;
        let manifest = found.clone().unwrap_or_default();
        let cache = Arc::new(BlockCache::new(options.cache_bytes, options.block_bytes));
        let trash = Trash::new(disk.clone(), Arc::clone(&idle));
        let named: HashSet<u64> = manifest.tables.iter().map(|t| t.id).collect();
        // Numbers of files that a crash has left behind are not reused either.
        let mut next_table = manifest.next_table;
        for name in &names {
            let id = manifest::table_id(name);
            next_table = next_table.max(id.map_or(0, |id| id.saturating_add(1)));
            if name == manifest::NEW || id.is_some_and(|id| !named.contains(&id)) {
                trash.throw(dir.join(name));
            }
        }
        let shared = Shared {
            views: Views::new(manifest.cut),
            cache,
            trash,
            state: SpreadLock::new(Arc::new(State {
                number: 0,
                active: Arc::new(MemTable::new()),
                sealed: Vec::new(),
                levels: Arc::new(Levels::empty()),
                _freed: Freed(idle.clone()),
            })),
            retired: Mutex::default(),
            persisted: AtomicU64::new(manifest.cut.0),
            committed: AtomicU64::new(u64::MAX),
            next_table: AtomicU64::new(next_table),
            commit: Mutex::new(Committed {
                number: manifest.number,
                unsure: Vec::new(),
            }),
            lost_names: AtomicU64::new(0),
            dropped: DroppedList::default(),
            gaps: Gaps::default(),
            flush: Lock::default(),
            claims: Mutex::default(),
            still: Still::default(),
            failures: Failures::default(),
            faults: Mutex::default(),
            closed: AtomicBool::new(false),
            stops: Sleepers::new(),
            moves: AtomicU64::new(0),
            moved: Event::new(),
            idle,
            flushed: AtomicU64::new(0),
            compacted: AtomicU64::new(0),
            options,
        };
        let levels = shared.load(&manifest)?;
        if found.is_none() {
            shared.commit(Edit::default())?;
        }
        shared.publish(|state| State {
            levels: Arc::new(levels),
            ..copy(state)
        });
        // The manifest was found under its name, but the name may not be durable. Files that an older
        // manifest may need stay until it is.
        if !shared.trash.is_empty() {
            shared.sync_dir()?;
        }
        shared.trash.empty();
        Ok(shared)
    }

    fn load(&self, manifest: &Manifest) -> Result<Levels> {
        let mut levels = Levels::empty();
        let mut runs = vec![Vec::new(); manifest.fresh + levels.deep.len()];
        for t in &manifest.tables {
            let path = table_path(&self.options.dir, t.id);
            let mut table = self.open_table(path, t.id, (t.size, t.crc))?;
            if !t.low.is_empty() {
                if table.last() < &t.low[..] {
                    let what = "the manifest cuts the table at a key that is greater than its last";
                    return Err(damaged(table.path(), t.size, what));
                }
                // A power cut may have brought back the keys before it.
                table = table.starting_at(&t.low)?;
            }
            if let Some(run) = runs.get_mut(t.run) {
                run.push(Arc::new(table));
            }
        }
        let mut runs = runs.into_iter().map(Run::of);
        levels.fresh = runs.by_ref().take(manifest.fresh).collect();
        levels.deep = runs.collect();
        for run in levels.runs() {
            if !run.is_sound() {
                let path = self.options.dir.join(manifest::NAME);
                return Err(damaged(&path, 0, "tables of one run overlap"));
            }
        }
        Ok(levels)
    }

    /// Opens a table.
    pub(crate) fn open_table(&self, path: PathBuf, id: u64, file: (u64, u32)) -> Result<Table> {
        let (cache, trash) = (self.cache.clone(), self.trash.clone());
        Table::open(&*self.options.disk, path, id, file, cache, trash)
    }

    /// The current state.
    #[inline]
    pub(crate) fn state(&self) -> Arc<State> {
        self.state.read().clone()
    }

    /// The current state for a short look into memory. The state cannot change meanwhile, so the look must
    /// not take long.
    #[inline]
    pub(crate) fn glance(&self) -> impl Deref<Target = Arc<State>> + '_ {
        self.state.read()
    }

    /// The persisted cut.
    pub(crate) fn persisted(&self) -> Timestamp {
        Timestamp(self.persisted.load(SeqCst))
    }

    /// See [`Trees::set_committed`](crate::Trees::set_committed).
    pub(crate) fn set_committed(&self, at: Timestamp) {
        let higher = |old| (old == u64::MAX || old < at.0).then_some(at.0);
        let is_higher = self.committed.fetch_update(SeqCst, SeqCst, higher).is_ok();
        // Nothing else depends on the commit point. A memtable that is sealed from now on wakes the threads
        // itself.
        if is_higher && !self.glance().sealed.is_empty() {
            self.notify();
        }
    }

    /// The sealed memtables of a state that may be flushed, oldest first.
    pub(crate) fn flushable<'s>(&self, state: &'s State) -> &'s [Sealed] {
        let committed = Timestamp(self.committed.load(SeqCst));
        let n = state.sealed.partition_point(|s| s.cut <= committed);
        state.sealed.get(..n).unwrap_or_default()
    }

    /// Replaces the state by a changed one.
    pub(crate) fn publish(&self, change: impl FnOnce(&State) -> State) {
        let mut state = self.state.write();
        let mut new = change(&state);
        new.number = state.number + 1;
        let new = Arc::new(new);
        let old = std::mem::replace(&mut *state, new.clone());
        drop(state);
        let stays = |mem: &Arc<MemTable>| new.memtables().any(|m| Arc::ptr_eq(m, mem));
        let flushed = old.memtables().filter(|mem| !stays(mem)).cloned();
        // The old state may be freed by its last reader as soon as it is dropped here.
        self.retired.lock().extend(flushed);
    }

    /// Frees flushed memtables that no reader holds any more.
    pub(crate) fn purge(&self) {
        let mut retired = self.retired.lock();
        let unused = |mem: &mut Arc<MemTable>| Arc::strong_count(mem) == 1;
        let free: Vec<_> = retired.extract_if(.., unused).collect();
        drop(retired);
        drop(free);
    }

    /// How often names were lost until now: see [`Edit::names`].
    pub(crate) fn names(&self) -> u64 {
        self.lost_names.load(SeqCst)
    }

    /// Changes the set of tables, first on disk and then for readers. If it fails, nothing has changed for
    /// readers, and the caller removes the added tables (`Table::condemn`).
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace; I/O errors.
    pub(crate) fn commit(&self, edit: Edit) -> Result<()> {
        let mut committed = self.commit.lock();
        if let Some(names) = edit.names {
            self.sync_dir()?;
            if names != self.names() {
                return Err(Error::internal(
                    "a sync of the directory failed while tables were written: they are written \
                     again",
                ));
            }
        }
        let remove: HashSet<u64> = edit.remove.iter().map(|t| t.id()).collect();
        let current = self.state();
        let held = |id: &u64| {
            current
                .levels
                .runs()
                .any(|r| r.0.iter().any(|t| t.id() == *id))
        };
        let narrow: Vec<u64> = edit.narrow.iter().map(|t| t.id()).collect();
        if !remove.iter().chain(&narrow).all(held) {
            return Err(Error::internal(
                "a compaction wants to replace a table that is not there any more",
            ));
        }
        let levels = current.levels.narrowed(&edit.narrow);
        let levels = levels.replace(&remove, edit.level, &edit.add);
        let cut = edit.flushed.map_or(self.persisted(), |f| f.1);
        let manifest = self.manifest(committed.number + 1, cut, &levels);
        committed.number += 1;
        self.write_manifest(&manifest.encode(), &mut committed, &edit)?;
        let levels = Arc::new(levels);
        self.publish(|state| {
            let mut new = State {
                levels,
                ..copy(state)
            };
            if let Some((number, _)) = edit.flushed {
                new.sealed.retain(|s| s.number > number);
            }
            new
        });
        self.persisted.fetch_max(cut.0, SeqCst);
        for table in &edit.remove {
            // A table that was only moved is also among the added ones.
            if !edit.add.iter().any(|t| t.id() == table.id()) {
                table.condemn();
            }
        }
        committed.unsure.clear();
        drop(committed);
        self.notify();
        Ok(())
    }

    fn manifest(&self, number: u64, cut: Timestamp, levels: &Levels) -> Manifest {
        let tables = levels.runs().enumerate().flat_map(|(run, tables)| {
            tables.0.iter().map(move |t| Named {
                run,
                id: t.id(),
                size: t.size(),
                crc: t.crc(),
                low: t.low().unwrap_or_default().to_vec(),
            })
        });
        Manifest {
            number,
            cut,
            next_table: self.next_table.load(SeqCst),
            fresh: levels.fresh.len(),
            tables: tables.collect(),
        }
    }

    fn write_manifest(&self, bytes: &[u8], committed: &mut Committed, edit: &Edit) -> Result<()> {
        let disk = &self.options.disk;
        let new = self.options.dir.join(manifest::NEW);
        let path = self.options.dir.join(manifest::NAME);
        let write = || {
            let file = disk.open(&new, Open::Create)?;
            file.write_at(bytes, 0)?;
            file.sync()
        };
        write().map_err(|e| {
            // Best effort, since the next attempt truncates the file.
            let _ = disk.remove(&new);
            io("writing", &new, &e)
        })?;
        let named = disk
            .rename(&new, &path)
            .map_err(|e| io("renaming to", &path, &e))
            .and_then(|()| self.sync_dir());
        if named.is_err() {
            committed.unsure.extend(edit.add.iter().cloned());
        }
        named
    }

    fn sync_dir(&self) -> Result<()> {
        let dir = &self.options.dir;
        self.options.disk.sync_dir(dir).map_err(|e| {
            self.lost_names.fetch_add(1, SeqCst);
            io("syncing", dir, &e)
        })
    }

    /// Records the result of a kind of background work.
    pub(crate) fn report(&self, work: Work, result: &Result<()>) {
        if let Some(fault) = self.faults.lock().get_mut(work as usize) {
            *fault = result.as_ref().err().cloned();
        }
        if result.is_err() {
            self.moved.notify_all();
        }
    }

    /// The current faults. A damaged table counts until it is gone.
    pub(crate) fn faults(&self) -> Faults {
        let [flush, compaction] = self.faults.lock().clone();
        let damaged = || self.state().levels.tables().find_map(suspicion);
        Faults {
            flush,
            compaction: compaction.or_else(|| self.failures.last()).or_else(damaged),
            failures: self.failures.count(),
        }
    }

    /// The time in milliseconds, by the engine's clock.
    pub(crate) fn now(&self) -> i64 {
        self.options.clock.now_ms()
    }

    /// Wakes the background threads, and the threads that wait for their work.
    pub(crate) fn notify(&self) {
        self.moves.fetch_add(1, SeqCst);
        self.idle.notify_all();
        self.moved.notify_all();
    }
}

/// The error of a table that is not used because it is damaged.
pub(crate) fn suspicion(table: &Arc<Table>) -> Option<Error> {
    table.suspect.load(SeqCst).then(|| {
        Error::new(
            Code::DataCorruptionDetected,
            format!("{} is damaged and is not compacted", table.path().display()),
        )
    })
}

/// A copy of a state's fields, to be changed.
pub(crate) fn copy(state: &State) -> State {
    State {
        number: state.number,
        active: state.active.clone(),
        sealed: state.sealed.clone(),
        levels: state.levels.clone(),
        _freed: state.freed(),
    }
}

impl State {
    /// The sealed memtables that have rows.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Sealed> {
        self.sealed.iter().filter(|s| s.mem.is_some())
    }
}
