//! The log's own thread, which makes the next segment ahead of need and marks an idle log.

use crate::format::mark;
use crate::log::Shared;
use crate::segment::{Prepared, Source, io_error, path, prepare};
use muniment_value::{Error, Result};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// A log without a commit for this long is marked.
const IDLE: Duration = Duration::from_millis(200);
/// How many free files are kept.
pub(crate) const KEEP: usize = 2;

/// The requests to the thread, and what it has made.
#[derive(Default)]
pub(crate) struct Spare {
    ready: Option<Prepared>,
    wanted: bool,
    error: Option<Error>,
    /// The thread is writing a mark.
    marking: bool,
    stop: bool,
}

impl Shared {
    /// Requests a segment without waiting for it.
    pub(crate) fn want_spare(&self) {
        let mut spare = self.spare.lock();
        if spare.ready.is_none() && self.background {
            spare.wanted = true;
            self.spare_changed.notify_all();
        }
    }

    /// The prepared segment. Waits until it is made.
    pub(crate) fn take_spare(&self) -> Result<Prepared> {
        if !self.background {
            return self.prepare_segment();
        }
        let mut spare = self.spare.lock();
        // An old failure does not matter: the disk may have room again.
        spare.error = None;
        loop {
            if let Some(ready) = spare.ready.take() {
                return Ok(ready);
            }
            if let Some(e) = spare.error.take() {
                return Err(e);
            }
            if spare.stop {
                return Err(Error::internal("log: it is being closed"));
            }
            spare.wanted = true;
            self.spare_changed.notify_all();
            self.spare_changed.wait(&mut spare);
        }
    }

    /// Makes the next segment's file, from a free file if there is one.
    pub(crate) fn prepare_segment(&self) -> Result<Prepared> {
        let number = self.next_number.fetch_add(1, SeqCst);
        let free = self.free.lock().pop();
        // Only files of the full size are kept free.
        let bytes = match free {
            Some(_) => self.segment_bytes,
            None => self.next_bytes(),
        };
        let source = match &free {
            Some(name) => Source::Free(name, bytes),
            None => Source::New(bytes),
        };
        let made = prepare(&*self.disk, &self.dir, number, source)?;
        self.note_made(bytes);
        Ok(made)
    }

    /// The loop of the thread.
    pub(crate) fn help(&self) {
        let mut spare = self.spare.lock();
        while !spare.stop {
            if spare.wanted && spare.ready.is_none() {
                let made = parking_lot::MutexGuard::unlocked(&mut spare, || self.prepare_segment());
                spare.wanted = false;
                match made {
                    Ok(made) => spare.ready = Some(made),
                    Err(e) => spare.error = Some(e),
                }
                self.spare_changed.notify_all();
            } else if self.mark_wanted.load(SeqCst) {
                if self.spare_changed.wait_for(&mut spare, IDLE).timed_out()
                    && self.mark_wanted.load(SeqCst)
                {
                    // A sync that ends from here on requests a mark again.
                    self.mark_wanted.store(false, SeqCst);
                    spare.marking = true;
                    parking_lot::MutexGuard::unlocked(&mut spare, || self.mark_tail());
                    spare.marking = false;
                    self.spare_changed.notify_all();
                }
            } else {
                spare.wanted = false;
                self.spare_changed.wait(&mut spare);
            }
        }
    }

    /// Writes the mark that is due, and returns when the thread has nothing to do. The caller ensures that no
    /// record is appended meanwhile.
    pub(crate) fn rest(&self) {
        let mut spare = self.spare.lock();
        while spare.marking || (spare.wanted && spare.ready.is_none() && !spare.stop) {
            self.spare_changed.wait(&mut spare);
        }
        // This happens under the lock, under which the thread also looks before it marks.
        if self.mark_wanted.swap(false, SeqCst) {
            drop(spare);
            if self.mark_tail() {
                let file = self.tail.lock().file.clone();
                // Best effort: the mark only helps to tell damage from a torn tail.
                let _ = file.sync();
            }
            self.spare_changed.notify_all();
        }
    }

    /// Ends the thread.
    pub(crate) fn stop_helper(&self) {
        self.spare.lock().stop = true;
        self.spare_changed.notify_all();
    }

    /// Requests a mark, which is written when the log has been idle for a while.
    pub(crate) fn want_mark(&self) {
        if !self.mark_wanted.swap(true, SeqCst) {
            // The lock is taken so that the thread cannot be just between its look and its wait.
            let _spare = self.spare.lock();
            self.spare_changed.notify_all();
        }
    }

    /// Marks the last segment if everything is durable and nothing says so yet. Returns true if it wrote the
    /// mark. A failure changes nothing, as no record is there.
    pub(crate) fn mark_tail(&self) -> bool {
        // The thread that holds the tail may be waiting for this thread; and while the tail is held, the log
        // is not idle.
        let Some(mut tail) = self.tail.try_lock() else {
            return false;
        };
        let durable = self.durable.load(SeqCst);
        let needless = tail.marked || tail.last.index == 0 || durable != tail.last.index;
        if needless || tail.bad || self.failed.load(SeqCst) {
            return false;
        }
        tail.marked = true;
        let bytes = mark(tail.last, durable, tail.segment.seed);
        tail.file.write_at(&bytes, tail.segment.mark_at()).is_ok()
    }

    /// Removes the file of a segment that is no longer needed from the log, durably, and keeps it for reuse
    /// if it is suitable.
    pub(crate) fn retire(&self, number: u64, size: u64, reuse: bool) -> Result<()> {
        let from = path(&self.dir, number, "log");
        let keep = reuse && size == self.segment_bytes && self.free.lock().len() < KEEP;
        let to = path(&self.dir, number, "free");
        match keep {
            true => self.disk.rename(&from, &to),
            false => self.disk.remove(&from),
        }
        .and_then(|()| self.disk.sync_dir(&self.dir))
        .map_err(|e| io_error(&from, "retire", e))?;
        if keep && let Some(name) = to.file_name() {
            self.free.lock().push(name.to_string_lossy().into_owned());
        }
        Ok(())
    }

    /// Removes the files that wait to be reused.
    pub(crate) fn remove_free(&self) -> Result<()> {
        loop {
            // The name is taken from the list before the file is removed, so that a thread which makes a
            // segment meanwhile takes another file or makes a new one.
            let Some(name) = self.free.lock().pop() else {
                return Ok(());
            };
            let at = self.dir.join(&name);
            if let Err(e) = self.disk.remove(&at) {
                self.free.lock().push(name);
                return Err(io_error(&at, "remove", e));
            }
        }
    }

    /// Removes a file for which [`Shared::retire`] has failed. It may have either name or none; after this it
    /// has none, durably.
    pub(crate) fn remove_stuck(&self, number: u64) -> Result<()> {
        for extension in ["log", "free"] {
            let path = path(&self.dir, number, extension);
            match self.disk.remove(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io_error(&path, "remove", e));
                }
                _ => {}
            }
        }
        let synced = self.disk.sync_dir(&self.dir);
        synced.map_err(|e| io_error(&self.dir, "sync", e))
    }
}
