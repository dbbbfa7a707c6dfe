//! Files that are read for as long as the process runs, of which there may be more than a process can have
//! open.
//!
//! Invariants: at most [`set_most_open`] of them are open at once, apart from those that are being read at
//! the moment. A file that was closed is opened again by its name, so code that removes or renames a file has
//! to make sure that no reader has it any more.

use crate::disk::File;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// How many files are kept open until [`set_most_open`] is called.
const MOST: usize = 4096;

/// The files that are open. The limit belongs to the process, and so does this list.
static OPEN: Pool = Pool {
    most: AtomicUsize::new(MOST),
    open: Mutex::new(VecDeque::new()),
};

/// Sets how many files the process keeps open for reading.
pub fn set_most_open(most: usize) {
    OPEN.most.store(most.max(1), Relaxed);
}

struct Pool {
    most: AtomicUsize,
    /// The open files, in the order in which they were opened or last found to be in use.
    open: Mutex<VecDeque<Weak<Kept>>>,
}

impl Pool {
    /// Closes files until at most `most` are open, beginning with those that were not used lately.
    fn shrink(&self, most: usize) {
        let mut open = self.open.lock();
        // Each file that was used lately gets one more chance.
        let mut chances = open.len();
        while open.len() > most {
            let Some(first) = open.pop_front() else { break };
            let Some(file) = first.upgrade() else {
                continue;
            };
            if file.used.swap(false, Relaxed) && chances > 0 {
                chances -= 1;
                open.push_back(first);
                continue;
            }
            *file.open.lock() = None;
        }
    }

    fn add(&self, file: Weak<Kept>) {
        self.open.lock().push_back(file);
        self.shrink(self.most.load(Relaxed));
    }
}

/// A file that is open or can be opened again.
struct Kept {
    path: PathBuf,
    open: Mutex<Option<Arc<fs::File>>>,
    used: AtomicBool,
    me: Weak<Kept>,
}

/// Opens a file that keeps its name while any reader has it.
///
/// # Errors
/// Those of the machine.
pub(crate) fn open(path: &Path) -> io::Result<Arc<dyn File>> {
    let file = open_now(path)?;
    let kept = Arc::new_cyclic(|me: &Weak<Kept>| Kept {
        path: path.to_path_buf(),
        open: Mutex::new(Some(Arc::new(file))),
        used: AtomicBool::new(true),
        me: me.clone(),
    });
    OPEN.add(kept.me.clone());
    Ok(kept)
}

/// Opens a file. If the process has too many open files, others are closed first.
fn open_now(path: &Path) -> io::Result<fs::File> {
    let mut most = OPEN.open.lock().len();
    loop {
        match fs::File::open(path) {
            Err(e) if most > 0 && matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                most /= 2;
                OPEN.shrink(most);
            }
            other => return other,
        }
    }
}

/// True if an error of [`File::free_front`] says that the file system never supports it.
pub fn cannot(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::Unsupported
        || matches!(
            e.raw_os_error(),
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV | libc::EINVAL)
        )
}

impl Kept {
    fn file(&self) -> io::Result<Arc<fs::File>> {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
        if let Some(file) = &*self.open.lock() {
            return Ok(Arc::clone(file));
        }
        // This is done without the lock, because other files are closed meanwhile, and this one may be among
        // them.
        let file = Arc::new(open_now(&self.path)?);
        let first = self.open.lock().replace(Arc::clone(&file)).is_none();
        if first {
            OPEN.add(self.me.clone());
        }
        Ok(file)
    }
}

impl File for Kept {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        File::read_at(&*self.file()?, buf, offset)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn sync(&self) -> io::Result<()> {
        self.file()?.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file()?.metadata()?.len())
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn free_front(&self, end: u64) -> io::Result<()> {
        let file = fs::OpenOptions::new().write(true).open(&self.path)?;
        crate::os::punch(&file, end)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    /// How many files in this directory the process has open.
    fn open_in(dir: &Path) -> usize {
        let all = fs::read_dir("/proc/self/fd").unwrap();
        let targets = all.filter_map(|e| fs::read_link(e.ok()?.path()).ok());
        targets.filter(|t| t.starts_with(dir)).count()
    }

    #[test]
    fn more_files_are_read_than_are_open() {
        let dir = tempfile::tempdir().unwrap();
        set_most_open(8);
        let names: Vec<PathBuf> = (0..50).map(|i| dir.path().join(i.to_string())).collect();
        for (i, name) in names.iter().enumerate() {
            fs::write(name, [i as u8; 10]).unwrap();
        }
        let files: Vec<_> = names.iter().map(|n| open(n).unwrap()).collect();
        std::thread::scope(|scope| {
            for t in 0..4 {
                let (files, dir) = (&files, dir.path());
                scope.spawn(move || {
                    for round in 0..200 {
                        let i = (round * 7 + t * 13) % files.len();
                        let mut byte = [0];
                        files[i].read_exact_at(&mut byte, 9).unwrap();
                        assert_eq!(usize::from(byte[0]), i);
                        // Each thread may be reading one more file, or opening it.
                        assert!(open_in(dir) <= 8 + 2 * 4);
                    }
                });
            }
        });
        assert!(open_in(dir.path()) <= 8);
        assert!(files[3].write_at(b"x", 0).is_err() && files[3].set_len(1).is_err());
        assert_eq!(files[3].len().unwrap(), 10);
        drop(files);
        assert_eq!(open_in(dir.path()), 0);
        set_most_open(MOST);
    }
}
