//! Files, and fronts of files, that are no longer needed.
//!
//! The last holder of a table may be a reader, which must not wait for the file system. It only leaves the
//! path here, and a background thread removes the file. Files that a crash has left over are removed at the
//! next open.
//!
//! The same goes for the fronts of tables that a compaction has consumed: they are given back to the disk
//! when the last reader that could read there has ended.

use muniment_io::{Disk, File};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The paths of files to remove, and the fronts to give back.
pub(crate) struct Trash {
    disk: Arc<dyn Disk>,
    paths: Mutex<Vec<PathBuf>>,
    fronts: Mutex<Vec<(Arc<dyn File>, u64)>>,
    /// The file system can only give back whole files.
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

    /// Marks the bytes of a file before `end` to be given back.
    pub(crate) fn free(&self, file: Arc<dyn File>, end: u64) {
        self.fronts.lock().push((file, end));
    }

    /// True if there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.lock().is_empty() && self.fronts.lock().is_empty()
    }

    /// Whether fronts of files can be given back, as far as is known.
    pub(crate) fn frees_fronts(&self) -> bool {
        !self.whole.load(SeqCst)
    }

    /// Makes it behave as on a file system that cannot give back fronts of files.
    #[cfg(test)]
    pub(crate) fn never_frees(&self) {
        self.whole.store(true, SeqCst);
    }

    /// Removes the marked files and fronts. If one cannot be removed, the next open tries again.
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
