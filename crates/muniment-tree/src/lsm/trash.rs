//! Files that nobody needs any more, and fronts of files.
//!
//! The last to hold a table may be a reader, which must not wait for the file system: it only
//! leaves the path here, and a background thread removes the file. What is left over by a crash is
//! removed at the next open.
//!
//! Likewise with the fronts of tables that a compaction is through with: they are given back to the
//! disk when the last reader that could read there has ended.

use muniment_io::{Disk, File};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Paths of files to remove, and fronts to give back.
pub(crate) struct Trash {
    disk: Arc<dyn Disk>,
    paths: Mutex<Vec<PathBuf>>,
    fronts: Mutex<Vec<(Arc<dyn File>, u64)>>,
    /// The file system gives back nothing but whole files.
    whole: AtomicBool,
}

impl Trash {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Arc<Trash> {
        Arc::new(Trash {
            disk,
            paths: Mutex::default(),
            fronts: Mutex::default(),
            whole: AtomicBool::new(false),
        })
    }

    /// Marks a file for removal.
    pub(crate) fn throw(&self, path: PathBuf) {
        self.paths.lock().push(path);
    }

    /// Marks what a file has before `end`.
    pub(crate) fn free(&self, file: Arc<dyn File>, end: u64) {
        self.fronts.lock().push((file, end));
    }

    /// True if there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.lock().is_empty() && self.fronts.lock().is_empty()
    }

    /// False once the file system was found not to give back fronts of files.
    pub(crate) fn frees_fronts(&self) -> bool {
        !self.whole.load(SeqCst)
    }

    /// As if the file system did not.
    #[cfg(test)]
    pub(crate) fn never_frees(&self) {
        self.whole.store(true, SeqCst);
    }

    /// Removes what was thrown. A file that cannot be removed is tried again at the next open, and so
    /// is a front that cannot be given back.
    pub(crate) fn empty(&self) {
        let fronts = std::mem::take(&mut *self.fronts.lock());
        for (file, end) in fronts.into_iter().filter(|_| self.frees_fronts()) {
            if let Err(e) = file.free_front(end)
                && muniment_io::cannot_free(&e)
            {
                self.whole.store(true, SeqCst);
            }
        }
        let paths = std::mem::take(&mut *self.paths.lock());
        for path in paths {
            let _ = self.disk.remove(&path);
        }
    }
}
