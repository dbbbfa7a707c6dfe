//! The file of an open descriptor, and the part of its content that is not on the disk yet.

use crate::{Config, config, enter};
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// A file or directory inside the watched one.
pub(crate) struct Object {
    pub(crate) id: String,
    pub(crate) is_dir: bool,
    pub(crate) unsynced: Mutex<Unsynced>,
    /// Held during a sync, since a second one must not return before the first has written.
    pub(crate) syncing: Mutex<()>,
}

/// The part of a file's content that the image does not have.
pub(crate) struct Unsynced {
    /// Everything: the layer knows nothing of the file, or it is new.
    pub(crate) whole: bool,
    /// Sorted, disjoint ranges of bytes.
    pub(crate) ranges: Vec<(u64, u64)>,
    /// The smallest size since the last sync, if it was truncated.
    pub(crate) least_size: Option<u64>,
}

impl Unsynced {
    pub(crate) fn write(&mut self, from: u64, to: u64) {
        if self.whole || from >= to {
            return;
        }
        let first = self.ranges.partition_point(|r| r.1 < from);
        let last = self.ranges.partition_point(|r| r.0 <= to);
        let (mut from, mut to) = (from, to);
        if first < last {
            from = from.min(self.ranges.get(first).map_or(from, |r| r.0));
            to = to.max(self.ranges.get(last - 1).map_or(to, |r| r.1));
        }
        self.ranges.splice(first..last, [(from, to)]);
    }

    pub(crate) fn truncate(&mut self, size: u64) {
        self.least_size = Some(self.least_size.map_or(size, |s| s.min(size)));
        self.ranges.retain_mut(|r| {
            r.1 = r.1.min(size);
            r.0 < r.1
        });
    }
}

pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

const UNKNOWN: u32 = 0;
const NOT_WATCHED: u32 = 1;
const FIRST: u32 = 2;
const MAX_FDS: usize = 1 << 17;

/// For each descriptor: unknown, not watched, or the object's number + `FIRST`.
static FDS: [AtomicU32; MAX_FDS] = [const { AtomicU32::new(UNKNOWN) }; MAX_FDS];
static OBJECTS: RwLock<Vec<Arc<Object>>> = RwLock::new(Vec::new());
static BY_ID: Mutex<Option<HashMap<String, u32>>> = Mutex::new(None);

fn slot(fd: i32) -> Option<&'static AtomicU32> {
    FDS.get(usize::try_from(fd).ok()?)
}

/// Notes that the descriptor may stand for another file from now on.
pub(crate) fn forget(fd: i32) {
    if let Some(s) = slot(fd) {
        s.store(UNKNOWN, Ordering::Release);
    }
}

/// The watched object of `fd`.
pub(crate) fn of(fd: i32) -> Option<Arc<Object>> {
    let slot = slot(fd)?;
    let mut n = slot.load(Ordering::Acquire);
    if n == UNKNOWN {
        n = enter(|| resolve(fd))?;
        slot.store(n, Ordering::Release);
    }
    let index = n.checked_sub(FIRST)?;
    let objects = OBJECTS.read().unwrap_or_else(PoisonError::into_inner);
    objects.get(index as usize).cloned()
}

fn resolve(fd: i32) -> u32 {
    let found = config().and_then(|c| {
        watched_path(c, fd)?;
        let (id, is_dir) = identity(format!("/proc/self/fd/{fd}"), true)?;
        Some(intern(id, is_dir))
    });
    found.unwrap_or(NOT_WATCHED)
}

/// The path of `fd` if it is inside the watched directory.
pub(crate) fn watched_path(config: &Config, fd: i32) -> Option<PathBuf> {
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    let bytes = path.into_os_string().into_vec();
    let bytes = bytes.strip_suffix(b" (deleted)").unwrap_or(&bytes).to_vec();
    let path = PathBuf::from(OsString::from_vec(bytes));
    path.starts_with(&config.dir).then_some(path)
}

fn intern(id: String, is_dir: bool) -> u32 {
    let mut by_id = lock(&BY_ID);
    let by_id = by_id.get_or_insert_with(HashMap::new);
    *by_id.entry(id.clone()).or_insert_with(|| {
        let mut objects = OBJECTS.write().unwrap_or_else(PoisonError::into_inner);
        objects.push(Arc::new(Object {
            id,
            is_dir,
            unsynced: Mutex::new(Unsynced {
                whole: true,
                ranges: Vec::new(),
                least_size: None,
            }),
            syncing: Mutex::new(()),
        }));
        objects.len() as u32 - 1 + FIRST
    })
}

/// The id of a path's file or directory and whether it is a directory; `None` for other kinds. Inode numbers
/// are reused, so the birth time is part of the id.
pub(crate) fn identity(path: impl AsRef<Path>, follow: bool) -> Option<(String, bool)> {
    let mut c_path = path.as_ref().as_os_str().as_bytes().to_vec();
    c_path.push(0);
    let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    // SAFETY: statx is plain data for which zeros are valid.
    let mut st: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero and `st` is writable.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_statx,
            libc::AT_FDCWD,
            c_path.as_ptr(),
            flags,
            libc::STATX_BASIC_STATS | libc::STATX_BTIME,
            &mut st,
        )
    };
    if failed != 0 {
        return None;
    }
    let is_dir = match u32::from(st.stx_mode) & libc::S_IFMT {
        libc::S_IFREG => false,
        libc::S_IFDIR => true,
        _ => return None,
    };
    let b = st.stx_btime;
    Some((format!("{}-{}-{}", st.stx_ino, b.tv_sec, b.tv_nsec), is_dir))
}
