//! Files, and fronts of files, that are no longer needed.
//!
//! The last holder of a table may be a reader, which must not wait for the file system. It only leaves the
//! path here, and a background thread removes the file. Files that a crash has left over are removed at the
//! next open.
//!
//! The same goes for the fronts of tables that a compaction has consumed: they are given back to the disk
//! when the last reader that could read there has ended.

use super::idle::For;
use muniment_io::{Disk, File};
use muniment_op::Event;
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
    /// The threads that are called when there is something to remove, and when something was removed.
    idle: Arc<Event<For>>,
}

impl Trash {
    pub(crate) fn new(disk: Arc<dyn Disk>, idle: Arc<Event<For>>) -> Arc<Trash> {
        Arc::new(Trash {
            disk,
            paths: Mutex::default(),
            fronts: Mutex::default(),
            whole: AtomicBool::new(false),
            idle,
        })
    }

    /// Marks a file for removal.
    pub(crate) fn throw(&self, path: PathBuf) {
        self.paths.lock().push(path);
        self.tell();
    }

    /// Marks the bytes of a file before `end` to be given back.
    pub(crate) fn free(&self, file: Arc<dyn File>, end: u64) {
        self.fronts.lock().push((file, end));
        self.tell();
    }

    fn tell(&self) {
        let removes = |what: &For| matches!(what, For::Flush | For::Room);
        self.idle.notify_those(removes);
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
        let paths = std::mem::take(&mut *self.paths.lock());
        if fronts.is_empty() && paths.is_empty() {
            return;
        }
        for (file, end) in fronts.into_iter().filter(|_| self.frees_fronts()) {
            if let Err(e) = file.free_front(end)
                && muniment_io::cannot_free(&e)
            {
                self.whole.store(true, SeqCst);
            }
        }
        for path in paths {
            let _ = self.disk.remove(&path);
        }
        // A thread that looked for room meanwhile found neither the room nor anything to remove.
        self.idle.notify_those(|what| *what == For::Room);
    }
}
