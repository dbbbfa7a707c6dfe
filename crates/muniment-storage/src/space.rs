//! A full disk: refusing writes before the log and the trees meet it.
//!
//! Writes are refused while little space is left, which leaves flushes and compactions what they
//! need: they are what frees space again. If the disk fills faster than that (another program may
//! fill it), a write that cannot be appended is refused, and flushes are tried again.

use muniment_io::{Disk, Open, space as free_and_total};
use muniment_value::{Code, Error, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Space that is kept for flushes and compactions, in bytes; on a small disk a twentieth of it.
const RESERVE: u64 = 256 << 20;
/// Free space above the reserve that is plenty, in bytes.
const AMPLE: u64 = 256 << 20;
/// How long a look at the disk is good for.
const LOOK: Duration = Duration::from_millis(10);
/// And for how many bytes of writes.
const LOOK_BYTES: u64 = 4 << 20;

/// Watches the free space of the data directory's disk.
pub(crate) struct SpaceGuard {
    dir: PathBuf,
    start: Instant,
    /// Microseconds after `start`.
    looked: AtomicU64,
    since: AtomicU64,
    free: AtomicU64,
    reserve: AtomicU64,
}

impl SpaceGuard {
    /// A guard of the disk that holds `dir`.
    pub fn new(dir: &Path) -> SpaceGuard {
        let guard = SpaceGuard {
            dir: dir.to_path_buf(),
            start: Instant::now(),
            looked: AtomicU64::new(0),
            since: AtomicU64::new(0),
            free: AtomicU64::new(u64::MAX),
            reserve: AtomicU64::new(0),
        };
        guard.look();
        guard
    }

    /// Looks at the disk if nobody did lately: for who calls it every now and then.
    pub fn refresh(&self) {
        if self.age() > LOOK {
            self.look();
        }
    }

    fn age(&self) -> Duration {
        let looked = Duration::from_micros(self.looked.load(Relaxed));
        self.start.elapsed().saturating_sub(looked)
    }

    /// True if there was so much space at the last look that small writes need not ask.
    pub fn is_ample(&self) -> bool {
        let (free, reserve) = (self.free.load(Relaxed), self.reserve.load(Relaxed));
        free >= reserve.saturating_add(AMPLE)
    }

    /// May `bytes` be written?
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace with the free space.
    pub fn admit(&self, bytes: u64) -> Result<()> {
        let since = self.since.fetch_add(bytes, Relaxed) + bytes;
        if self.age() > LOOK || since > LOOK_BYTES {
            self.look();
        }
        let (free, reserve) = (self.free.load(Relaxed), self.reserve.load(Relaxed));
        if free >= reserve.saturating_add(bytes) {
            return Ok(());
        }
        Err(Error::new(
            Code::OutOfDiskSpace,
            format!(
                "out of disk space in {}: {} MB are free and {} MB are kept for the engine; \
                 writes are refused until there is more",
                self.dir.display(),
                free >> 20,
                reserve >> 20
            ),
        ))
    }

    fn look(&self) {
        let now = self.start.elapsed().as_micros() as u64;
        // A file system that does not say (some network ones) is taken to have space.
        let (free, total) = free_and_total(&self.dir).unwrap_or((u64::MAX, u64::MAX));
        self.reserve.store(RESERVE.min(total / 20), Relaxed);
        self.free.store(free, Relaxed);
        self.since.store(0, Relaxed);
        self.looked.store(now, Relaxed);
    }
}

/// Writes and removes a file: the free space that is reported may not be ours to have.
///
/// # Errors
/// 14031 when the disk is still full; other I/O errors.
pub(crate) fn probe(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let path = dir.join("space.probe");
    let written = disk.open(&path, Open::Create).and_then(|f| {
        let block = vec![1; 1 << 20];
        (0..8).try_for_each(|n| f.write_at(&block, n << 20))?;
        f.sync()
    });
    // It is ours and of no use; the next probe overwrites it if it stays.
    let _ = disk.remove(&path);
    written.map_err(|e| Error::from(e).context("the disk is still full: "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn refuses_below_the_reserve_and_looks_again() {
        let dir = tempfile::tempdir().unwrap();
        let guard = SpaceGuard::new(dir.path());
        let (free, total) = free_and_total(dir.path()).unwrap();
        assert!(free > 0 && total >= free);
        guard.free.store(1000, Relaxed);
        guard.reserve.store(900, Relaxed);
        assert!(guard.admit(100).is_ok());
        let e = guard.admit(101).unwrap_err();
        assert_eq!(e.code(), Code::OutOfDiskSpace);
        std::thread::sleep(LOOK * 2);
        assert_eq!(guard.admit(0).is_ok(), free >= RESERVE.min(total / 20));
    }
}
