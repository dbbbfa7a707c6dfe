//! What cuts and locks of all writes need: the gate that every commit shares, what commits keep in
//! memory between two cuts, the trees that are to go, and fsyncLock.
//!
//! Invariants: a seal and fsyncLock have the gate alone, so that every commit up to a cut is applied and
//! none after it. The code that trims the log or opens it anew holds `still`, as fsyncLock does, so that
//! fsyncLock finds files that stay as they are.

use crate::commit::buffers::Buffers;
use crate::gate::{Alone, Gate};
use crate::watch::Watch;
use crate::worklists::DroppedTrees;
use muniment_io::Timestamp;
use muniment_op::{Interrupt, Lock, Locked, Sleepers};
use muniment_tree::{Hold, TreeId};
use muniment_value::{Code, Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The parts that cuts and fsyncLock need.
pub(crate) struct Cuts {
    /// Shared by every commit; seals and fsyncLock have it alone.
    pub gate: Gate,
    /// The buffers that commits keep alive in memory.
    pub buffers: Buffers,
    /// The trees that were dropped and still have files; see `checkpoint`.
    pub dropped: Mutex<DroppedTrees>,
    pub fsync_lock: Lock<FsyncLock>,
    /// How often writes are locked. It is a copy, because a thread may hold the lock itself for long.
    fsync_depth: AtomicU32,
    /// Held while the log is trimmed or opened anew, and by fsyncLock.
    pub still: Arc<Lock<()>>,
    /// See `Store::set_checkpoint_interval`.
    interval_ms: AtomicU64,
    /// The newest cut at which the next free id was written to the trees. Changed by those that have the gate alone.
    id_saved: AtomicU64,
}

/// How often writes are locked, and the lock itself.
#[derive(Default)]
pub(crate) struct FsyncLock {
    pub depth: u32,
    pub held: Option<Held>,
}

/// The guards that keep commits out and the files of log and trees unchanged.
pub(crate) struct Held {
    pub _gate: Alone,
    pub _still: Locked<Arc<Lock<()>>, ()>,
    pub _trees: Hold,
}

impl Cuts {
    /// `copies`: see [`Buffers::new`].
    pub fn new(copies: bool) -> Cuts {
        Cuts {
            gate: Gate::default(),
            buffers: Buffers::new(copies),
            dropped: Mutex::default(),
            fsync_lock: Lock::default(),
            fsync_depth: AtomicU32::new(0),
            still: Arc::default(),
            interval_ms: AtomicU64::new(0),
            id_saved: AtomicU64::new(0),
        }
    }

    /// Whether the next free id is to be written at a cut, for the first time there. `persisted` is the cut that the disk
    /// has.
    pub fn saves_id(&self, cut: Timestamp, persisted: Timestamp) -> bool {
        let before = self.id_saved.fetch_max(cut.0, SeqCst);
        cut > persisted && cut.0 > before
    }

    /// True while writes are locked, or are about to be.
    pub fn is_still(&self) -> bool {
        let locking = self.fsync_lock.try_lock();
        locking.is_none_or(|lock| lock.depth > 0)
    }

    /// How deep writes are locked.
    pub fn fsync_depth(&self) -> u32 {
        self.fsync_depth.load(SeqCst)
    }

    /// Notes how often writes are locked now.
    pub fn set_fsync_depth(&self, depth: u32) {
        self.fsync_depth.store(depth, SeqCst);
    }

    /// Notes a tree whose drop was committed at `at`. It is given up when no view reads it any more.
    pub fn note_drop(&self, tree: u32, at: Timestamp) {
        self.dropped.lock().add(TreeId(tree), at);
    }

    /// Whether a cut is due, when the last one was `elapsed` ago.
    pub fn is_due(&self, elapsed: Duration) -> bool {
        let asked = self.interval_ms.load(SeqCst);
        asked > 0 && elapsed >= Duration::from_millis(asked)
    }

    /// Has a cut made after this many milliseconds at the latest; 0: only when memory or log are full.
    pub fn set_interval(&self, ms: u64) {
        self.interval_ms.store(ms, SeqCst);
    }
}

/// The interrupt of background work that other threads may have to wait for. It ends the work when its
/// time is over, if there is a limit, and before writes are locked.
pub(crate) struct Patient<'i> {
    watch: &'i Watch,
    cuts: &'i Cuts,
    until: Option<Instant>,
}

impl<'i> Patient<'i> {
    /// Allows this much time; `None`: no limit.
    pub fn new(watch: &'i Watch, cuts: &'i Cuts, patience: Option<Duration>) -> Patient<'i> {
        let until = patience.map(|p| muniment_op::now() + p);
        Patient { watch, cuts, until }
    }
}

impl Interrupt for Patient<'_> {
    fn check(&self) -> Result<()> {
        self.watch.check_open()?;
        let over = self.until.is_some_and(|until| muniment_op::now() >= until);
        if !over && !self.cuts.is_still() {
            return Ok(());
        }
        Err(Error::new(Code::LockTimeout, "it is in use for now"))
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        show(&self.watch.stops);
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.until
    }
}
