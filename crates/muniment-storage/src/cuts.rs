//! What cuts and locks of all writes need: the gate that every commit shares, what commits keep in memory
//! between two cuts, the trees that are to go, and fsyncLock.
//!
//! Invariants: a seal and fsyncLock have the gate alone, so that every commit up to a cut is applied and
//! none after it; whatever trims the log or opens it anew holds `still`, so that fsyncLock, which holds
//! it too, finds files that stay as they are.

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

/// See the module's head.
pub(crate) struct Cuts {
    /// Shared by every commit; seals and fsyncLock have it alone.
    pub gate: Gate,
    /// What commits keep alive in memory.
    pub buffers: Buffers,
    /// See `checkpoint`.
    pub dropped: Mutex<DroppedTrees>,
    pub fsync_lock: Lock<FsyncLock>,
    /// How deep it is locked. Not read from the lock, which a thread may hold for long.
    fsync_depth: AtomicU32,
    /// Held while the log is trimmed or opened anew, and by fsyncLock.
    pub still: Arc<Lock<()>>,
    /// See `Store::set_checkpoint_interval`.
    interval_ms: AtomicU64,
}

/// How often writes are locked, and the lock itself.
#[derive(Default)]
pub(crate) struct FsyncLock {
    pub depth: u32,
    pub held: Option<Held>,
}

/// What it keeps: no commit, no change of the log's files, none of the trees'.
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
        }
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

    /// Writes are locked so deep now.
    pub fn set_fsync_depth(&self, depth: u32) {
        self.fsync_depth.store(depth, SeqCst);
    }

    /// A tree whose drop was committed at `at`: it goes when nobody reads it any more.
    pub fn note_drop(&self, tree: u32, at: Timestamp) {
        self.dropped.lock().add(TreeId(tree), at);
    }

    /// Whether the last cut, `elapsed` ago, was so long ago that a cut was asked for.
    pub fn is_due(&self, elapsed: Duration) -> bool {
        let asked = self.interval_ms.load(SeqCst);
        asked > 0 && elapsed >= Duration::from_millis(asked)
    }

    /// A cut is made after so many milliseconds at the latest; 0: when memory or log are full.
    pub fn set_interval(&self, ms: u64) {
        self.interval_ms.store(ms, SeqCst);
    }
}

/// For background work that somebody else may be kept waiting by: it ends when its time is over, if there
/// is a limit, and before writes are locked.
pub(crate) struct Patient<'i> {
    watch: &'i Watch,
    cuts: &'i Cuts,
    until: Option<Instant>,
}

impl<'i> Patient<'i> {
    /// With so much patience; `None`: without a limit.
    pub fn new(watch: &'i Watch, cuts: &'i Cuts, patience: Option<Duration>) -> Patient<'i> {
        let until = patience.map(|p| Instant::now() + p);
        Patient { watch, cuts, until }
    }
}

impl Interrupt for Patient<'_> {
    fn check(&self) -> Result<()> {
        self.watch.check_open()?;
        let over = self.until.is_some_and(|until| Instant::now() >= until);
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
