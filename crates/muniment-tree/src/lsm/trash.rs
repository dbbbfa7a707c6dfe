//! Files that nobody needs any more.
//!
//! The last to hold a table may be a reader, which must not wait for the file system: it only
//! leaves the path here, and a background thread removes the file. What is left over by a crash is
//! removed at the next open.

use muniment_io::Disk;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;

/// Paths of files to remove.
pub(crate) struct Trash {
    disk: Arc<dyn Disk>,
    paths: Mutex<Vec<PathBuf>>,
}

impl Trash {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Arc<Trash> {
        Arc::new(Trash {
            disk,
            paths: Mutex::default(),
        })
    }

    /// Marks a file for removal.
    pub(crate) fn throw(&self, path: PathBuf) {
        self.paths.lock().push(path);
    }

    /// Removes what was thrown. A file that cannot be removed is tried again at the next open.
    pub(crate) fn empty(&self) {
        let paths = std::mem::take(&mut *self.paths.lock());
        for path in paths {
            let _ = self.disk.remove(&path);
        }
    }
}
