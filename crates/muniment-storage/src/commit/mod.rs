//! The commit door: the only place that appends to the log.
//!
//! A commit goes through it in five steps: it is admitted (disk space, back-pressure); it shares
//! the gate, which seals and fsyncLock take alone; in a short serial section it gets its
//! timestamp and one record is appended to the log; its puts go into the trees' memory, outside
//! that section; and the visible timestamp moves on, in order: whoever opens a view sees all of
//! every commit up to it and nothing behind.
//!
//! The few puts of a small write go into memory inside the serial section: they take less time than
//! to come back and move the visible timestamp on in order, and nobody waits for a thread that
//! lost its core in between.
//!
//! Invariants: a commit whose append failed has left nothing anywhere; one whose append succeeded
//! is applied and becomes visible (a panic in between ends the process: crash over corrupt). What
//! belongs together is one record. Must not know documents.

pub(crate) mod apply;
pub(crate) mod ops;
pub(crate) mod stage;

use crate::gate::LOOK;
use crate::store::{CommitId, Inner};
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_query::Interrupt;
use muniment_tree::{Batch, Views};
use muniment_value::{Code, Error, Result};
use ops::{Kind, entry_count};
use parking_lot::{Condvar, Mutex};
use stage::Stage;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{MutexGuard, PoisonError};

/// The longest record: the largest message with room for what is stored beside its documents.
const LONGEST: usize = 256 << 20;

/// So many puts, at most, are made inside the door.
const FEW: usize = 4;

/// How often who waits for another commit looks before it sleeps.
const SPINS: usize = 64;

/// The order of commits. What every commit changes is one cache line, the first.
#[repr(C, align(64))]
pub(crate) struct Door {
    /// The newest timestamp given out; held while a record is appended. The standard library's,
    /// because who waits for it looks a few times and then sleeps: parking_lot's gives up the core
    /// seven times first, and each time all other threads get their turn.
    serial: std::sync::Mutex<Timestamp>,
    /// Commits that are appended and not yet visible, in order; true: applied.
    flying: Mutex<VecDeque<(Timestamp, bool)>>,
    /// Bytes of payload appended.
    bytes: AtomicU64,
    landed: Condvar,
    waiting: AtomicUsize,
    /// What every commit from here on is later than, whatever the clock shows.
    ahead: AtomicU64,
}

impl Door {
    /// A door behind `last`.
    pub fn new(last: Timestamp) -> Door {
        Door {
            serial: std::sync::Mutex::new(last),
            flying: Mutex::default(),
            landed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
        }
    }

    /// What the next commit is later than at least.
    pub fn ahead(&self) -> Timestamp {
        Timestamp(self.ahead.load(SeqCst))
    }

    /// Every commit from here on is later than `to`.
    pub fn advance(&self, to: Timestamp) {
        // Who is inside has its timestamp, or has not looked yet.
        let _turn = self.enter();
        self.ahead.fetch_max(to.0, SeqCst);
    }

    /// Waits for its turn. Whoever is inside writes a record and a few keys, which takes a few
    /// microseconds: less than giving up the core and getting it back. Whoever panicked inside has
    /// left a timestamp that was given out, or the one before.
    fn enter(&self) -> MutexGuard<'_, Timestamp> {
        for _ in 0..SPINS {
            if let Ok(guard) = self.serial.try_lock() {
                return guard;
            }
            std::hint::spin_loop();
        }
        self.serial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of payload appended since the start.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// `at` is applied: moves the visible timestamp on as far as it goes, and returns when it has
    /// reached `at`.
    fn land(&self, at: Timestamp, views: &Views) {
        let mut flying = self.flying.lock();
        if let Some(mine) = flying.iter_mut().find(|(t, _)| *t == at) {
            mine.1 = true;
        }
        let mut reached = None;
        while let Some((t, true)) = flying.front() {
            reached = Some(*t);
            flying.pop_front();
        }
        if let Some(t) = reached {
            views.advance(t);
            if self.waiting.load(SeqCst) > 0 {
                self.landed.notify_all();
            }
        }
        if views.visible() >= at {
            return;
        }
        // Somebody before us is still applying: for microseconds, unless it was preempted.
        drop(flying);
        for _ in 0..SPINS {
            if views.visible() >= at {
                return;
            }
            std::hint::spin_loop();
        }
        self.waiting.fetch_add(1, SeqCst);
        let mut flying = self.flying.lock();
        while views.visible() < at {
            self.landed.wait(&mut flying);
        }
        drop(flying);
        self.waiting.fetch_sub(1, SeqCst);
    }
}

/// What is appended must be applied: without it the trees would not be what the log says.
struct MustLand;

impl Drop for MustLand {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("muniment: a commit that is in the log could not be applied: stopping");
            std::process::abort();
        }
    }
}

/// What is committed, ready to be written.
pub(crate) struct Made {
    /// Operations as they stand in a record, one part behind the other, without its head.
    pub parts: Vec<Bytes>,
    /// The puts.
    pub batch: Batch,
    /// How many entries the operations are.
    pub entries: usize,
    /// Bytes of it all.
    pub len: usize,
    /// See [`Stage::frees`].
    pub frees: bool,
}

impl Inner {
    /// Commits what is staged, as one record. `publish` runs when the puts are in the trees and
    /// before they are visible: it changes what readers look up in memory (totals, catalog). Where
    /// the puts are documents and entries alone it takes no lock: it may run inside the door.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, I/O errors, what `interrupt` says while it waits: then nothing of it
    /// is stored.
    pub fn commit(
        &self,
        stage: Stage,
        interrupt: &dyn Interrupt,
        publish: impl FnOnce(Timestamp),
    ) -> Result<CommitId> {
        let len = stage.len();
        self.admit(len, stage.frees(), interrupt)?;
        let _gate = self.gate.share(interrupt)?;
        let now = self.clock.now_ms();
        let few = stage.puts() <= FEW && !stage.changes_catalog();
        check_length(len)?;
        let stamps = stage.log.stamps();
        let (payload, batch) = stage.finish(now, &self.buffers);
        self.commit_inside(&[&payload], batch, few, (now, stamps), publish)
    }

    /// As [`Inner::commit`], of what was staged before.
    ///
    /// # Errors
    /// As [`Inner::commit`].
    pub fn commit_made(
        &self,
        made: Made,
        interrupt: &dyn Interrupt,
        publish: impl FnOnce(),
    ) -> Result<CommitId> {
        self.admit(made.len, made.frees, interrupt)?;
        let _gate = self.gate.share(interrupt)?;
        check_length(made.len)?;
        let now = self.clock.now_ms();
        let head = ops::head(Kind::Transaction, now);
        let bytes = made.parts.iter().map(|p| p.len()).sum();
        let stamps = entry_count(Kind::Transaction, made.entries, bytes);
        let parts: Vec<&[u8]> = std::iter::once(&head[..])
            .chain(made.parts.iter().map(|p| &**p))
            .collect();
        self.commit_inside(&parts, made.batch, false, (now, stamps), |_| publish())
    }

    /// As [`Inner::commit`], for who has passed the gate at a time of the wall clock. The record takes
    /// so many timestamps.
    fn commit_inside(
        &self,
        payload: &[&[u8]],
        batch: Batch,
        few: bool,
        (now, stamps): (i64, u32),
        publish: impl FnOnce(Timestamp),
    ) -> Result<CommitId> {
        // Not replaced meanwhile: that is done by who has the gate alone.
        let log = self.log.read();
        let log = log.as_ref().ok_or_else(|| self.no_log())?;
        let door = &self.door;
        // All that needs no timestamp, before it is our turn.
        let ready = log.prepare(payload).map_err(|e| self.refused(e))?;
        let mut turn = door.enter();
        let first = turn.max(door.ahead()).next(now);
        let at = first.plus(stamps - 1);
        let index = log
            .append_ready(0, at, ready)
            .map_err(|e| self.refused(e))?;
        *turn = at;
        let guard = MustLand;
        let inside = {
            let mut flying = door.flying.lock();
            let inside = few && flying.is_empty();
            if !inside {
                flying.push_back((at, false));
            }
            inside.then_some(turn)
        };
        let bytes: usize = payload.iter().map(|part| part.len()).sum();
        door.bytes.fetch_add(bytes as u64, Relaxed);
        self.trees.apply(batch, at);
        publish(at);
        // It has landed; a panic that this thread is unwinding from is not about it.
        std::mem::forget(guard);
        match inside {
            Some(_turn) => self.trees.views().advance(at),
            None => door.land(at, self.trees.views()),
        }
        self.watch.advanced();
        Ok(CommitId { index, at })
    }

    /// Waits until everything that is in the log by now is visible. Whoever puts it there waits for
    /// nobody any more, so latches may be held here.
    ///
    /// # Errors
    /// What `interrupt` says.
    pub fn wait_visible(&self, interrupt: &dyn Interrupt) -> Result<()> {
        let newest = self.newest_timestamp();
        let views = self.trees.views();
        let mut looks = 0_u32;
        while views.visible() < newest {
            looks += 1;
            if looks < 64 {
                std::hint::spin_loop();
                continue;
            }
            std::thread::sleep(std::time::Duration::from_micros(50));
            if looks.is_multiple_of(64) {
                interrupt.check()?;
            }
        }
        Ok(())
    }

    /// What a client is told of a record that could not be appended.
    fn refused(&self, e: Error) -> Error {
        match e.code() {
            Code::OutOfDiskSpace => e.context(&format!(
                "out of disk space in {}: the write was refused: ",
                self.path.display()
            )),
            _ => e,
        }
    }

    /// The newest timestamp given out.
    pub fn newest_timestamp(&self) -> Timestamp {
        *self.door.enter()
    }
}

/// What is longer than a record can be.
fn check_length(len: usize) -> Result<()> {
    if len <= LONGEST {
        return Ok(());
    }
    Err(Error::internal(format!(
        "a write of {len} bytes is too large for one commit, at most {LONGEST}"
    )))
}

/// Locks a mutex, asking the operation while it waits.
///
/// # Errors
/// What `interrupt` says.
pub(crate) fn locked<'l, T>(
    lock: &'l Mutex<T>,
    interrupt: &dyn Interrupt,
) -> Result<parking_lot::MutexGuard<'l, T>> {
    loop {
        if let Some(guard) = lock.try_lock_for(LOOK) {
            return Ok(guard);
        }
        interrupt.check()?;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn visible_moves_in_order_whoever_is_faster() {
        let views = Views::new(Timestamp(0));
        let door = Arc::new(Door::new(Timestamp(0)));
        for t in 1..=3 {
            door.flying.lock().push_back((Timestamp(t), false));
        }
        let landed = std::thread::scope(|s| {
            let late = s.spawn(|| {
                door.land(Timestamp(3), &views);
                views.visible()
            });
            let later = s.spawn(|| {
                door.land(Timestamp(2), &views);
                views.visible()
            });
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(views.visible(), Timestamp(0));
            door.land(Timestamp(1), &views);
            (late.join().unwrap(), later.join().unwrap())
        });
        assert_eq!(landed.0, Timestamp(3));
        assert!(landed.1 >= Timestamp(2));
        assert!(door.flying.lock().is_empty());
    }
}
