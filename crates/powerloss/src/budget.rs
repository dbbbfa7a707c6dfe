//! A disk that is full after so many bytes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static SPENT: AtomicU64 = AtomicU64::new(0);

/// Bytes that may still be written; `None` when there is no budget.
pub(crate) fn left() -> Option<u64> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let file = FILE.get_or_init(|| File::open(std::env::var_os("POWERLOSS_BUDGET")?).ok());
    let mut text = [0; 32];
    let n = file.as_ref()?.read_at(&mut text, 0).unwrap_or(0);
    let text = std::str::from_utf8(text.get(..n).unwrap_or_default()).unwrap_or_default();
    let limit: u64 = text.trim().parse().unwrap_or(0);
    Some(limit.saturating_sub(SPENT.load(Ordering::SeqCst)))
}

/// How many of `wanted` bytes may be written; 0 means the disk is full.
pub(crate) fn take(wanted: u64) -> u64 {
    let Some(left) = left() else {
        return wanted;
    };
    // Two threads at the very edge may both get the last bytes: a disk is as vague.
    let granted = wanted.min(left);
    SPENT.fetch_add(granted, Ordering::SeqCst);
    granted
}

/// Gives back what was granted and not written.
pub(crate) fn give_back(n: u64) {
    if n > 0 && left().is_some() {
        SPENT.fetch_sub(n, Ordering::SeqCst);
    }
}
