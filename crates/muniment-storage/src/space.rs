//! A full disk: writes are refused before the log and the trees meet it.
//!
//! Writes are refused while little space is left. What is left then serves flushes and compactions,
//! because only these free space again. Kept back are
//!
//! - what is in memory and has to be flushed yet;
//! - a *base*: room for the next segments of the log, for the pieces in which tables are compacted
//!   (`muniment_tree::lsm`), and for deletions, whose tombstones need some until they have met what they
//!   delete. All of these are sized by the disk, so that the base of a small disk is enough, too.
//!
//! Operations that only free space (deletions, drops) are not refused but slowed down, the more of the
//! base is used, so that compactions keep up with them. If the disk fills faster than that (another
//! program may fill it), a write that cannot be appended is refused, and flushes are tried again.

use muniment_io::{Disk, Open, Space};
use muniment_value::{Code, Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The base in bytes, and the part of a small disk that it takes at most.
const BASE: u64 = 256 << 20;
const BASE_PART: u64 = 10;
/// The free space above what is kept back at which space is ample, in bytes, and the part of a small
/// disk that it is at most.
const AMPLE: u64 = 256 << 20;
const AMPLE_PART: u64 = 8;
/// How long a look at the disk stays valid.
const LOOK: Duration = Duration::from_millis(10);
/// How many bytes of writes a look at the disk is valid for.
const LOOK_BYTES: u64 = 4 << 20;

/// Bytes a second that operations may write which only free space, when half of the base is used. With
/// each further half of the rest the rate falls to an eighth.
const FREEING: u64 = 4 << 20;

/// The part of a small disk that a segment or table takes at most, the same for a memtable, and the
/// least size of each.
const PART: u64 = 64;
const MEMTABLE_PART: u64 = 32;
const LEAST: u64 = 1 << 20;

/// Caps the size of a segment of the log, or of a table, by the size of the disk.
pub(crate) fn part_of(disk: Space, bytes: u64) -> u64 {
    bytes.min((disk.total / PART).max(LEAST))
}

/// Caps the size of a memtable: several of them may have to be flushed onto a disk that is full.
pub(crate) fn memtable_on(disk: Space, bytes: u64) -> u64 {
    bytes.min((disk.total / MEMTABLE_PART).max(2 * LEAST))
}

/// The space that a disk reports. A disk that reports no size is taken to have space.
pub fn disk_space(disk: &dyn Disk, dir: &Path) -> Space {
    match disk.space(dir) {
        Ok(space) if space.total != u64::MAX => space,
        _ => Space::UNKNOWN,
    }
}

/// Figures about the disk's space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceReport {
    /// Bytes that are free.
    pub free: u64,
    /// Bytes that are kept for the engine.
    pub kept: u64,
    /// Writes that were refused for want of space since the start.
    pub refused: u64,
}

impl SpaceReport {
    /// Whether writes are refused now.
    pub fn is_short(&self) -> bool {
        self.free < self.kept
    }
}

/// Watches the free space of the data directory's disk.
pub(crate) struct SpaceGuard {
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    start: Instant,
    /// When the disk was looked at last, in microseconds after `start`.
    looked: AtomicU64,
    since: AtomicU64,
    free: AtomicU64,
    base: AtomicU64,
    /// The base and what was owed at the last look.
    reserve: AtomicU64,
    /// The sum above which space is ample: `reserve` and the ample part.
    ample: AtomicU64,
    refused: AtomicU64,
}

impl SpaceGuard {
    /// A guard of the disk that holds `dir`.
    pub fn new(disk: Arc<dyn Disk>, dir: &Path) -> SpaceGuard {
        let guard = SpaceGuard {
            dir: dir.to_path_buf(),
            disk,
            start: Instant::now(),
            looked: AtomicU64::new(0),
            since: AtomicU64::new(0),
            free: AtomicU64::new(u64::MAX),
            base: AtomicU64::new(0),
            reserve: AtomicU64::new(0),
            ample: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        };
        guard.look(0);
        guard
    }

    /// Looks at the disk if the last look is too old. The background threads call it regularly. `owed`
    /// counts the bytes in memory that are to be flushed.
    pub fn refresh(&self, owed: impl FnOnce() -> u64) {
        if self.age() > LOOK {
            self.look(owed());
        }
    }

    /// Notes that a write of a client was refused.
    pub fn note_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// The figures of the last look.
    pub fn report(&self) -> SpaceReport {
        SpaceReport {
            free: self.free.load(Relaxed),
            kept: self.reserve.load(Relaxed),
            refused: self.refused.load(Relaxed),
        }
    }

    fn age(&self) -> Duration {
        let looked = Duration::from_micros(self.looked.load(Relaxed));
        self.start.elapsed().saturating_sub(looked)
    }

    /// True if the last look found so much space that small writes need not ask.
    pub fn is_ample(&self) -> bool {
        self.free.load(Relaxed) >= self.ample.load(Relaxed)
    }

    /// Bytes a second at which space may be freed; 0 means no limit.
    pub fn freeing_rate(&self) -> u64 {
        let (free, base) = (self.free.load(Relaxed), self.base.load(Relaxed));
        if free >= base / 2 {
            return 0;
        }
        let halves = (base / 4)
            .checked_div(free)
            .map_or(3, |n| n.clamp(1, 8).ilog2());
        FREEING >> (3 * halves)
    }

    /// Whether `bytes` may be written.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace with the free space.
    pub fn admit(&self, bytes: u64, owed: impl FnOnce() -> u64) -> Result<()> {
        let since = self.since.fetch_add(bytes, Relaxed) + bytes;
        if self.age() > LOOK || since > LOOK_BYTES {
            self.look(owed());
        }
        let (free, reserve) = (self.free.load(Relaxed), self.reserve.load(Relaxed));
        // What was written since the look is in memory and will be on the disk twice. The copy in the
        // log has its segment already; the copy in a table needs new space.
        let since = self.since.load(Relaxed);
        if free >= reserve.saturating_add(since) {
            return Ok(());
        }
        Err(Error::new(
            Code::OutOfDiskSpace,
            format!(
                "out of disk space in {}: {} MB are free and {} MB are kept for the engine; \
                 writes are refused until there is more, but for those that delete",
                self.dir.display(),
                free >> 20,
                reserve >> 20
            ),
        ))
    }

    fn look(&self, owed: u64) {
        let now = self.start.elapsed().as_micros() as u64;
        let Space { total, free } = disk_space(&*self.disk, &self.dir);
        let base = BASE.min(total / BASE_PART);
        let reserve = base.saturating_add(owed);
        let ample = reserve.saturating_add(AMPLE.min(total / AMPLE_PART));
        self.base.store(base, Relaxed);
        self.reserve.store(reserve, Relaxed);
        self.ample.store(ample, Relaxed);
        self.free.store(free, Relaxed);
        self.since.store(0, Relaxed);
        self.looked.store(now, Relaxed);
    }
}

/// Writes and removes a file, because the free space that the disk reports may be out of reach for this
/// process (a quota).
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
    // If the file cannot be removed, it does no harm: the next probe overwrites it.
    let _ = disk.remove(&path);
    written.map_err(|e| Error::from(e).context("the disk is still full: "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_io::SimDisk;

    #[test]
    fn refuses_below_what_is_kept_and_looks_again() {
        let (disk, dir) = (SimDisk::new(), Path::new("/db"));
        disk.set_size(100 << 20);
        disk.create_dir(dir).unwrap();
        let file = disk.open(&dir.join("a"), Open::Create).unwrap();
        let guard = SpaceGuard::new(Arc::new(disk.clone()), dir);
        assert!(guard.is_ample() && guard.freeing_rate() == 0);
        // Nothing is refused while there is more than the base and what is owed.
        file.set_len(80 << 20).unwrap();
        let later = || std::thread::sleep(LOOK * 2);
        later();
        guard.admit(1 << 20, || 8 << 20).unwrap();
        assert!(!guard.is_ample() && guard.freeing_rate() == 0);
        // It is refused whether or not the guard looks again.
        let e = guard.admit(3 << 20, || 8 << 20).unwrap_err();
        assert_eq!(e.code(), Code::OutOfDiskSpace);
        later();
        guard.admit(0, || 11 << 20).unwrap_err();
        // Operations that free space may use the base, ever more slowly as it shrinks.
        let mut rates = Vec::new();
        for mb in [91, 94, 96, 99, 100] {
            file.set_len(mb << 20).unwrap();
            later();
            guard.admit(0, || 0).unwrap_err();
            rates.push(guard.freeing_rate());
        }
        assert!(rates[0] == 0 && rates[2] > rates[3] && rates[3] > rates[4]);
        assert!(rates[2..].iter().all(|rate| *rate > 0), "{rates:?}");
        file.set_len(0).unwrap();
        later();
        guard.admit(0, || 11 << 20).unwrap();
        assert!(guard.is_ample() && guard.freeing_rate() == 0);
    }

    #[test]
    fn a_disk_that_tells_no_size_is_taken_to_have_space() {
        let disk = SimDisk::new();
        disk.set_capacity(10);
        let guard = SpaceGuard::new(Arc::new(disk), Path::new("/db"));
        guard.admit(1 << 30, || 1 << 30).unwrap();
        assert!(guard.is_ample() && guard.freeing_rate() == 0);
    }
}
