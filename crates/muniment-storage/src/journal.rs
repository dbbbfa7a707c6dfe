//! Group commit: one fdatasync for all who wait, and the flush every commit interval.
//!
//! fjall's own `persist` holds its journal mutex while the disk works, so every writer would
//! stand still during every sync. We fdatasync the same file through a descriptor of our own.
//! That is enough because of three facts of fjall's writer: a commit has been written to the file
//! before it returns; a journal is synced whole before the next one (number + 1) is created; and
//! the directory is synced before the first write goes to the new file. So when every commit up
//! to `n` has returned, syncing the newest file makes all of them durable: any of them that is in
//! an older file was synced by the rotation.

use muniment_value::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Longest time a leader waits for others to join its sync.
const MAX_GATHER: Duration = Duration::from_millis(4);

/// The journal as the store sees it.
pub(crate) struct Journal {
    /// The number of the newest commit that has returned from the engine.
    last: AtomicU64,
    state: Mutex<State>,
    /// Waiters for a sync.
    synced: Condvar,
    /// A gathering leader.
    gather: Condvar,
    files: Mutex<Files>,
    syncs: AtomicU64,
    sync_micros: AtomicU64,
    waits: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Every commit up to here is on the disk.
    durable: u64,
    leading: bool,
    /// Threads waiting now, the leader with them.
    waiting: usize,
    /// How many a gathering leader waits for.
    expected: usize,
    /// How many the last sync served.
    last_group: usize,
    last_sync: Duration,
    failed: Option<Error>,
}

impl Journal {
    /// The journal in `dir`.
    pub fn new(dir: &Path) -> Journal {
        Journal {
            last: AtomicU64::new(0),
            state: Mutex::default(),
            synced: Condvar::new(),
            gather: Condvar::new(),
            files: Mutex::new(Files {
                dir: dir.to_path_buf(),
                active: None,
            }),
            syncs: AtomicU64::new(0),
            sync_micros: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        }
    }

    /// Counts a commit that the engine has returned from.
    pub fn committed(&self) -> u64 {
        self.last.fetch_add(1, SeqCst) + 1
    }

    /// The newest commit.
    pub fn last(&self) -> u64 {
        self.last.load(SeqCst)
    }

    /// True if something was committed since the last sync.
    pub fn dirty(&self) -> bool {
        self.state.lock().durable < self.last()
    }

    /// (commits, syncs, microseconds in syncs, waits).
    pub fn stats(&self) -> (u64, u64, u64, u64) {
        (
            self.last(),
            self.syncs.load(SeqCst),
            self.sync_micros.load(SeqCst),
            self.waits.load(SeqCst),
        )
    }

    /// Returns once `commit` is on the disk.
    pub fn wait(&self, commit: u64) -> Result<()> {
        self.waits.fetch_add(1, SeqCst);
        let mut state = self.state.lock();
        if state.durable >= commit {
            return Ok(());
        }
        state.waiting += 1;
        if state.leading && state.waiting >= state.expected {
            self.gather.notify_one();
        }
        let result = loop {
            if state.durable >= commit {
                break Ok(());
            }
            if let Some(e) = &state.failed {
                break Err(e.clone());
            }
            if state.leading {
                self.synced.wait(&mut state);
                continue;
            }
            state.leading = true;
            // Who was served by the last sync is likely to come again, and who waits now came
            // while it ran: all of them are worth a short wait, bounded by what a sync costs.
            state.expected = state.waiting + state.last_group.saturating_sub(1);
            let patience = state
                .last_sync
                .clamp(Duration::from_micros(200), MAX_GATHER);
            let deadline = Instant::now() + patience;
            while state.waiting < state.expected
                && !self.gather.wait_until(&mut state, deadline).timed_out()
            {}
            let group = state.waiting;
            state = self.lead(state, group);
        };
        state.waiting = state.waiting.saturating_sub(1);
        result
    }

    /// Syncs everything committed so far, waiting for a sync that is under way.
    pub fn sync_now(&self) -> Result<()> {
        let target = self.last();
        let mut state = self.state.lock();
        loop {
            if let Some(e) = &state.failed {
                return Err(e.clone());
            }
            if state.durable >= target {
                return Ok(());
            }
            if state.leading {
                self.synced.wait(&mut state);
                continue;
            }
            state.leading = true;
            let group = state.waiting;
            state = self.lead(state, group);
        }
    }

    /// Syncs once as the leader, without the lock.
    fn lead<'a>(
        &'a self,
        state: parking_lot::MutexGuard<'a, State>,
        group: usize,
    ) -> parking_lot::MutexGuard<'a, State> {
        drop(state);
        // Read before the sync: every commit up to here has been written to its file.
        let target = self.last();
        let start = Instant::now();
        let result = self.files.lock().sync();
        let took = start.elapsed();
        self.syncs.fetch_add(1, SeqCst);
        self.sync_micros.fetch_add(took.as_micros() as u64, SeqCst);
        let mut state = self.state.lock();
        state.leading = false;
        match result {
            Ok(()) => {
                state.durable = state.durable.max(target);
                if group > 0 {
                    state.last_group = group;
                }
                state.last_sync = took;
            }
            // After a failed fsync the kernel may have dropped the dirty pages: what was written
            // before is of unknown durability for good, until the engine is opened anew.
            Err(e) => {
                state.failed = Some(Error::from(e).context("journal sync failed: "));
            }
        }
        self.synced.notify_all();
        state
    }

    /// The error of a failed sync, if there was one.
    pub fn failure(&self) -> Option<Error> {
        self.state.lock().failed.clone()
    }

    /// The engine was opened anew, which synced and replayed the journal: all is durable.
    pub fn reopened(&self) {
        let mut files = self.files.lock();
        files.active = None;
        let mut state = self.state.lock();
        state.failed = None;
        state.durable = self.last();
        self.synced.notify_all();
    }
}

/// Our descriptor of the newest journal file.
struct Files {
    dir: PathBuf,
    active: Option<(u64, File)>,
}

impl Files {
    fn sync(&mut self) -> std::io::Result<()> {
        if self.active.is_none() {
            self.active = newest(&self.dir)?;
        }
        while let Some((n, _)) = &self.active {
            match open(&self.dir, n + 1) {
                Ok(file) => self.active = Some((n + 1, file)),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => break,
                Err(e) => return Err(e),
            }
        }
        match &self.active {
            Some((_, file)) => file.sync_data(),
            None => Err(std::io::Error::new(
                std::io::ErrorKind::NotFound,
                "no journal file",
            )),
        }
    }
}

fn open(dir: &Path, n: u64) -> std::io::Result<File> {
    // Write access is not needed for fdatasync.
    File::open(dir.join(format!("{n}.jnl")))
}

/// The numbers of the journal files in `dir`, ascending.
pub(crate) fn numbers(dir: &Path) -> std::io::Result<Vec<u64>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        if let Some(n) = name
            .to_str()
            .and_then(|s| s.strip_suffix(".jnl"))
            .and_then(|s| s.parse().ok())
        {
            all.push(n);
        }
    }
    all.sort_unstable();
    Ok(all)
}

fn newest(dir: &Path) -> std::io::Result<Option<(u64, File)>> {
    match numbers(dir)?.last() {
        Some(&n) => Ok(Some((n, open(dir, n)?))),
        None => Ok(None),
    }
}
