//! Seals memtables and flushes them into a fresh run.

use super::idle::For;
use super::merge::{Keep, Merge, Source};
use super::output::Output;
use super::shared::{Edit, Shared, Work, copy};
use super::state::{Run, Sealed, State};
use super::still::Pulse;
use crate::memtable::MemTable;
use muniment_io::Timestamp;
use muniment_op::{Interrupt, NeverInterrupted, Sleepers};
use muniment_value::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// The first and the longest pause after a failure.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// An interrupt that also ends the work when the engine is closed.
pub(crate) struct Open<'o> {
    pub(crate) shared: &'o Shared,
    pub(crate) interrupt: &'o dyn Interrupt,
}

impl Interrupt for Open<'_> {
    fn check(&self) -> Result<()> {
        self.shared.unless_closed()?;
        self.interrupt.check()
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        self.interrupt.sleepers(show);
        show(&self.shared.stops);
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.interrupt.wakes_at()
    }
}

/// The pause that follows this one.
fn longer(pause: Duration) -> Duration {
    match pause.is_zero() {
        true => FIRST_PAUSE,
        false => (pause * 2).min(LONGEST_PAUSE),
    }
}

impl Shared {
    /// Puts the active memtable aside, to be flushed.
    pub(crate) fn seal(&self, cut: Timestamp) {
        self.publish(|state| {
            let mut new = copy(state);
            // A cut is never lower than the one before.
            let last = new.sealed.last().map_or(self.persisted(), |s| s.cut);
            let mut mem = None;
            if !state.active.is_empty() {
                mem = Some(std::mem::replace(
                    &mut new.active,
                    Arc::new(MemTable::new()),
                ));
            } else if cut <= last {
                return new;
            }
            new.sealed.push(Sealed {
                mem,
                cut: cut.max(last),
                number: state.number + 1,
            });
            new
        });
        self.notify();
    }

    /// Writes everything that is sealed and committed now. Returns when it is durable.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace; I/O errors. Nothing has changed then.
    pub(crate) fn flush(&self) -> Result<()> {
        self.flush_unless(&NeverInterrupted)
    }

    /// As [`Shared::flush`], but `interrupt` can end the wait for files that are held.
    pub(crate) fn flush_unless(&self, interrupt: &dyn Interrupt) -> Result<()> {
        let Some(last) = self.flushable(&self.state()).last().map(|s| s.number) else {
            return Ok(());
        };
        // Waits for a flush in another thread, which holds the lock.
        let open = Open {
            shared: self,
            interrupt,
        };
        let _flush = self.flush.lock_for(&open)?;
        loop {
            let working = self.still.work(&open)?;
            let state = self.state();
            if state.sealed.first().is_none_or(|s| s.number > last) {
                return Ok(());
            }
            let result = self.write_sealed(&state);
            drop((state, working));
            self.purge();
            match result {
                // The flush gave way to a hold of the files, so it begins again.
                Ok(false) => continue,
                Ok(true) => {
                    self.report(Work::Flush, &Ok(()));
                    self.dropped.forget(&self.state(), self.persisted());
                    return Ok(());
                }
                Err(e) => {
                    self.report(Work::Flush, &Err(e.clone()));
                    return Err(e);
                }
            }
        }
    }

    /// Writes all sealed memtables that are committed as one run. Returns false if it gave way to a hold. The
    /// caller holds the flush lock.
    fn write_sealed(&self, state: &State) -> Result<bool> {
        let sealed = self.flushable(state);
        let Some(last) = sealed.last() else {
            return Ok(true);
        };
        // This comes before any write: if it fails, the tables would be useless.
        (self.options.before_persist)(last.cut)?;
        let names = self.names();
        let mems: Vec<&Arc<MemTable>> =
            sealed.iter().rev().filter_map(|s| s.mem.as_ref()).collect();
        let beneath: Vec<Run> = state.levels.runs().cloned().collect();
        // Recovery needs a dropped tree's rows only up to the drop, and this flush is at or above it, so the
        // rows in memory need not be written.
        let dropped = self.dropped.now();
        for mem in &mems {
            mem.sweep(&self.views);
        }
        let mut keep = Keep::new(self.views.needed(), dropped, last.cut, beneath);
        let sources = mems.iter().map(|m| Source::memory((*m).clone())).collect();
        let mut merge = Merge::new(sources);
        // A table ends where many tables of the largest level are between two keys. Otherwise a later merge
        // of this table would have to read all of them.
        let largest = state.levels.deep.iter().max_by_key(|run| run.bytes());
        let largest = largest.cloned().unwrap_or_default();
        let mut output = Output::new(self, 0, largest, Vec::new(), &self.flushed);
        let mut pulse = Pulse::default();
        while merge.step()? {
            if let Some((key, at, value)) = merge.version() {
                if pulse.beat(value.map_or(0, <[u8]>::len)) && self.still.is_wanted() {
                    return Ok(false);
                }
                if keep.keeps(key, at, value.is_none()) {
                    output.add(key, at, value)?;
                }
            }
        }
        let add = output.finish()?;
        let edit = Edit {
            names: (!add.is_empty()).then_some(names),
            flushed: Some((last.number, last.cut)),
            add: add.clone(),
            ..Edit::default()
        };
        self.commit(edit).inspect_err(|_| {
            for table in &add {
                table.condemn();
            }
        })?;
        Ok(true)
    }

    /// Removes files that are no longer needed. Returns false if the files are held.
    pub(crate) fn empty_trash(&self) -> bool {
        let working = self.still.try_work();
        if working.is_some() {
            self.trash.empty();
        }
        working.is_some()
    }

    /// The loop of the thread that flushes. It also removes files that are no longer needed.
    pub(crate) fn flusher(&self) {
        let mut pause = Duration::ZERO;
        let open = Open {
            shared: self,
            interrupt: &NeverInterrupted,
        };
        while open.check().is_ok() {
            let held = !self.empty_trash();
            if held || self.flushable(&self.state()).is_empty() {
                pause = Duration::ZERO;
                // Fails only if the engine is closed, which ends the loop.
                let _ = self.idle.wait_for(For::Flush, &open, || self.can_flush());
                continue;
            }
            match self.flush() {
                Ok(()) => pause = Duration::ZERO,
                Err(_) => {
                    pause = longer(pause);
                    self.wait_out(pause);
                }
            }
        }
        self.purge();
        self.empty_trash();
    }

    /// Frees flushed memtables. Returns `Some` if there is also something to flush or to remove, and the files
    /// are not held.
    fn can_flush(&self) -> Option<()> {
        self.purge();
        let something = !self.trash.is_empty() || !self.flushable(&self.state()).is_empty();
        (something && !self.still.is_wanted()).then_some(())
    }

    /// Waits until `ready`, for `pause` at most, and not longer than until the engine is closed.
    pub(crate) fn wait(&self, what: For, pause: Duration, mut ready: impl FnMut() -> bool) {
        let open = Open {
            shared: self,
            interrupt: &NeverInterrupted,
        };
        let until = Instant::now() + pause;
        let ready = || ready().then_some(());
        // Its end is all that the caller needs to know.
        let _ = self.idle.wait_for_until(what, &open, until, ready);
    }

    /// Waits for the whole of a pause, but not longer than until the engine is closed.
    pub(crate) fn wait_out(&self, pause: Duration) {
        self.wait(For::Time, pause, || false);
    }

    /// An error once the engine is closed, for work that waits or takes long.
    pub(crate) fn unless_closed(&self) -> Result<()> {
        match self.closed.load(SeqCst) {
            false => Ok(()),
            true => Err(Error::new(
                muniment_value::Code::InterruptedAtShutdown,
                "the storage engine is closed",
            )),
        }
    }
}
