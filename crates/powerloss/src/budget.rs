//! A disk that is full after a number of bytes or of writes, and one on which a sync fails.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// The bytes written since the process began.
static SPENT: AtomicU64 = AtomicU64::new(0);

/// The content of the file: up to four decimal numbers. Missing ones set no limit.
#[derive(Clone, Copy, Default)]
struct Limits {
    /// How many bytes may be written since the process began.
    bytes: u64,
    /// How many writes may be made since the file first had this `round`.
    writes: Option<u64>,
    /// How many syncs succeed in this round before one fails. Later ones succeed again.
    syncs: Option<u64>,
    /// Changes whenever the two counts begin anew.
    round: u64,
}

/// The writes and syncs of a round so far.
struct Used {
    round: u64,
    writes: u64,
    syncs: u64,
}

static USED: Mutex<Used> = Mutex::new(Used {
    round: 0,
    writes: 0,
    syncs: 0,
});

/// The limits; `None` if there is no budget.
fn limits() -> Option<Limits> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let file = FILE.get_or_init(|| File::open(std::env::var_os("POWERLOSS_BUDGET")?).ok());
    let mut text = [0; 128];
    let n = file.as_ref()?.read_at(&mut text, 0).unwrap_or(0);
    let text = std::str::from_utf8(text.get(..n).unwrap_or_default()).unwrap_or_default();
    let mut numbers = text.split_whitespace().map(|n| n.parse().ok());
    Some(Limits {
        bytes: numbers.next().flatten().unwrap_or(0),
        writes: numbers.next().flatten(),
        syncs: numbers.next().flatten(),
        round: numbers.next().flatten().unwrap_or(0),
    })
}

/// Runs `f` with the counts of this round.
fn used<T>(limits: &Limits, f: impl FnOnce(&mut Used) -> T) -> T {
    let mut used = crate::object::lock(&USED);
    if used.round != limits.round {
        *used = Used {
            round: limits.round,
            writes: 0,
            syncs: 0,
        };
    }
    f(&mut used)
}

/// How many bytes may still be written; `None` if there is no budget.
pub(crate) fn left() -> Option<u64> {
    let limits = limits()?;
    if let Some(writes) = limits.writes
        && used(&limits, |u| u.writes >= writes)
    {
        return Some(0);
    }
    Some(limits.bytes.saturating_sub(SPENT.load(Ordering::SeqCst)))
}

/// How many of `wanted` bytes may be written; 0 means the disk is full.
pub(crate) fn take(wanted: u64) -> u64 {
    let Some(limits) = limits() else {
        return wanted;
    };
    if let Some(writes) = limits.writes
        && !used(&limits, |u| {
            let more = u.writes < writes;
            u.writes += u64::from(more);
            more
        })
    {
        return 0;
    }
    // At the very limit, two threads may both get the last bytes. A real disk is as inexact.
    let left = limits.bytes.saturating_sub(SPENT.load(Ordering::SeqCst));
    let granted = wanted.min(left);
    SPENT.fetch_add(granted, Ordering::SeqCst);
    granted
}

/// Gives back bytes that were granted but not written.
pub(crate) fn give_back(n: u64) {
    if n > 0 && limits().is_some() {
        SPENT.fetch_sub(n, Ordering::SeqCst);
    }
}

/// Counts a sync; true if it is the one that fails.
pub(crate) fn sync_fails() -> bool {
    let Some(limits) = limits() else {
        return false;
    };
    let Some(syncs) = limits.syncs else {
        return false;
    };
    used(&limits, |u| {
        u.syncs = u.syncs.saturating_add(1);
        u.syncs == syncs.saturating_add(1)
    })
}
