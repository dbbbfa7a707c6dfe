//! The commit door: the only place that appends to the log.
//!
//! A commit goes through it in seven steps:
//!
//! - it is admitted (disk space, back-pressure);
//! - it shares the gate, which seals and fsyncLock take alone;
//! - its record is read as recovery and other members will read it, and refused if they could not apply
//!   it (`check`);
//! - in a short serial section it gets its timestamp, and one record is appended to the log;
//! - its puts go into the trees' memory, outside that section;
//! - the visible timestamp moves on, in order: a new view sees all of every commit up to it and nothing
//!   later;
//! - if the record touches users or roles, their generation is raised (`catalog::accounts`).
//!
//! The few puts of a small write go into memory inside the serial section. That takes less time than
//! coming back to move the visible timestamp on in order, and no thread has to wait for one that lost
//! its core in between.
//!
//! On a member of a replica set the door is open in its terms as primary and closed otherwise. A commit
//! was prepared under the opening that it is committed in ([`Opening`]).
//!
//! Invariants: a commit whose append failed has left nothing anywhere. One whose append succeeded is
//! applied and becomes visible; a panic in between ends the process, since a crash can be recovered
//! from, and trees that differ from the log cannot. Changes that belong together are one record. Code
//! here must not know documents.

pub(crate) mod announce;
pub(crate) mod apply;
pub(crate) mod buffers;
mod check;
pub(crate) mod door;
pub(crate) mod ops;
pub(crate) mod stage;

use crate::inner::Inner;
use crate::store::CommitId;
use crate::watch::Awaited;
use announce::Announce;
use bytes::Bytes;
use check::{check_operations, check_record};
use door::{Opening, SPINS};
use muniment_io::Timestamp;
use muniment_log::Position;
use muniment_op::Interrupt;
use muniment_tree::Batch;
use muniment_value::{Error, Result};
use ops::{Kind, Reader, entry_count};
use stage::Stage;

/// The longest record: the largest message with room for what is stored beside its documents.
const LONGEST: usize = 256 << 20;

/// At most this many puts are made inside the door.
const FEW: usize = 4;

/// Ends the process if a panic comes between append and apply: the trees would not be what the log
/// says.
pub(crate) struct MustLand;

impl Drop for MustLand {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("muniment: a commit that is in the log could not be applied: stopping");
            std::process::abort();
        }
    }
}

/// A record that is ready to be written.
pub(crate) struct Made {
    /// The operations of the record, one part after the other, without its head.
    pub parts: Vec<Bytes>,
    /// The puts.
    pub batch: Batch,
    /// The number of entries among the operations.
    pub entries: usize,
    /// The number of bytes of all of it.
    pub len: usize,
    /// See [`Stage::frees`].
    pub frees: bool,
    /// The opening of the door under which it was made.
    pub opening: Opening,
}

/// The record that ends a prepared transaction.
pub(crate) struct Resolution<'p> {
    /// The record.
    pub payload: &'p [u8],
    /// See [`Stage::frees`].
    pub frees: bool,
    /// The opening of the door under which it was made.
    pub opening: Opening,
    /// What announces it.
    pub announce: Announce,
}

/// How a record goes through the door.
struct Passage {
    /// It has so few puts that they may be made inside.
    few: bool,
    /// The opening in which the commit was begun.
    opening: Opening,
    /// The wall clock.
    now: i64,
    /// How many timestamps it takes.
    stamps: u32,
    announce: Announce,
}

/// How a record that was appended gets into the trees.
struct Landing<F> {
    /// It may change users or roles.
    of_accounts: bool,
    land: F,
}

impl Landing<()> {
    /// Makes these puts, and publishes them.
    fn of<'i>(
        inner: &'i Inner,
        batch: Batch,
        publish: impl FnOnce(Timestamp) + 'i,
    ) -> Landing<impl FnOnce(Timestamp) + 'i> {
        // If one of the two collections is made only now, their numbers change, which is noticed.
        let accounts = inner.catalog.accounts.now();
        Landing {
            of_accounts: accounts.have(batch.iter().map(|put| put.tree.0)),
            land: |at| {
                inner.trees.apply(batch, at);
                publish(at);
            },
        }
    }
}

impl Inner {
    /// Commits what is staged, as one record. `publish` runs when the puts are in the trees and before
    /// they are visible: it changes what readers look up in memory (totals, catalog). If the puts are
    /// only documents and entries it takes no lock, because it may run inside the door. `announce` says
    /// what announces the record.
    ///
    /// # Errors
    /// 10107 NotWritablePrimary if the door is closed, or was since the commit was begun; 14031
    /// OutOfDiskSpace, I/O errors, what `interrupt` says while it waits; what is wrong with a record
    /// that could not be applied. Nothing of the record is stored then.
    pub fn commit(
        &self,
        stage: Stage,
        announce: Announce,
        interrupt: &dyn Interrupt,
        publish: impl FnOnce(Timestamp),
    ) -> Result<CommitId> {
        let (len, opening) = (stage.len(), stage.opening);
        self.door.check(opening)?;
        self.admit(len, stage.frees(), interrupt)?;
        let _gate = self.cuts.gate.share(interrupt)?;
        let now = self.home.clock.now_ms();
        let few = stage.puts() <= FEW && !stage.changes_catalog();
        check_length(len)?;
        let stamps = stage.log.stamps();
        let (payload, batch) = stage.finish(now, &self.cuts.buffers);
        check_record(&self.catalog, &payload, interrupt)?;
        let passage = Passage {
            few,
            opening,
            now,
            stamps,
            announce,
        };
        self.commit_inside(&[&payload], passage, Landing::of(self, batch, publish))
    }

    /// As [`Inner::commit`], for the record that ends a prepared transaction. Recovery's function applies it.
    ///
    /// # Errors
    /// As [`Inner::commit`].
    pub fn commit_resolution(
        &self,
        made: Resolution<'_>,
        interrupt: &dyn Interrupt,
    ) -> Result<CommitId> {
        self.door.check(made.opening)?;
        self.admit(made.payload.len(), made.frees, interrupt)?;
        let _gate = self.cuts.gate.share(interrupt)?;
        check_length(made.payload.len())?;
        check_record(&self.catalog, made.payload, interrupt)?;
        let unreadable = || Error::internal("a resolution that cannot be read");
        let ops = Reader::new(made.payload).ok_or_else(unreadable)?;
        let passage = Passage {
            few: false,
            opening: made.opening,
            now: ops.wall_clock(),
            stamps: ops.stamps().map_err(|_| unreadable())?,
            announce: made.announce,
        };
        let mut applied = None;
        let landing = Landing {
            // Which collections it changes is not looked up for this.
            of_accounts: true,
            land: |at| match self.apply(at, made.payload) {
                Ok(done) => applied = Some(done),
                Err(e) => {
                    eprintln!("muniment: the record of {at} cannot be applied: stopping: {e}");
                    std::process::abort();
                }
            },
        };
        let id = self.commit_inside(&[made.payload], passage, landing)?;
        if let Some(mut applied) = applied {
            self.release(&mut applied);
            for (collection, inserted) in applied.collections.iter().filter(|(_, n)| *n > 0) {
                collection.notify_inserts(*inserted);
            }
        }
        Ok(id)
    }

    /// As [`Inner::commit`], for a record that was made before.
    ///
    /// # Errors
    /// As [`Inner::commit`].
    pub fn commit_made(
        &self,
        made: Made,
        announce: Announce,
        interrupt: &dyn Interrupt,
        publish: impl FnOnce(),
    ) -> Result<CommitId> {
        self.door.check(made.opening)?;
        self.admit(made.len, made.frees, interrupt)?;
        let _gate = self.cuts.gate.share(interrupt)?;
        check_length(made.len)?;
        let now = self.home.clock.now_ms();
        let head = ops::head(Kind::Transaction, now);
        made.parts.iter().try_for_each(|part| {
            check_operations(&self.catalog, Reader::at(part, 0), part, interrupt)
        })?;
        let bytes = made.parts.iter().map(|p| p.len()).sum();
        let stamps = entry_count(Kind::Transaction, made.entries, bytes);
        let parts: Vec<&[u8]> = std::iter::once(&head[..])
            .chain(made.parts.iter().map(|p| &**p))
            .collect();
        let passage = Passage {
            few: false,
            opening: made.opening,
            now,
            stamps,
            announce,
        };
        let landing = Landing::of(self, made.batch, |_| publish());
        self.commit_inside(&parts, passage, landing)
    }

    /// As [`Inner::commit`], for a record that the door would refuse. Tests use it for records as
    /// another version might have made them.
    ///
    /// # Errors
    /// As [`Inner::commit`].
    #[cfg(test)]
    pub fn commit_unchecked(&self, stage: Stage) -> Result<CommitId> {
        let _gate = self.cuts.gate.share(&muniment_op::NeverInterrupted)?;
        let passage = Passage {
            few: false,
            opening: stage.opening,
            now: self.home.clock.now_ms(),
            stamps: stage.log.stamps(),
            announce: Announce::Door,
        };
        let (payload, batch) = stage.finish(passage.now, &self.cuts.buffers);
        self.commit_inside(&[&payload], passage, Landing::of(self, batch, |_| {}))
    }

    /// The part of [`Inner::commit`] after the gate was passed.
    fn commit_inside(
        &self,
        payload: &[&[u8]],
        passage: Passage,
        landing: Landing<impl FnOnce(Timestamp)>,
    ) -> Result<CommitId> {
        // The log is not replaced meanwhile, because that needs the gate alone.
        let log = self.journal.hold()?;
        let door = &self.door;
        // All work that needs no timestamp is done before the turn, so that the serial section is short.
        let ready = log.prepare(payload).map_err(|e| self.journal.refused(e))?;
        let mut turn = door.enter();
        // Closing the door takes a turn, so it stays open while this thread is inside.
        door.check(passage.opening)?;
        let term = door.term();
        let first = turn.max(door.ahead()).next(passage.now);
        let at = first.plus(passage.stamps - 1);
        let index = log
            .append_ready(term, at, ready)
            .map_err(|e| self.journal.refused(e))?;
        *turn = at;
        let position = Position { index, term, at };
        door.appended(position, passage.now, passage.announce);
        let accounts = self.catalog.accounts.now();
        let guard = MustLand;
        let inside = door.take_off(at, passage.few).then_some(turn);
        door.count(payload.iter().map(|part| part.len()).sum());
        (landing.land)(at);
        // The record has landed. If this thread is unwinding from a panic, that is not about this
        // record.
        std::mem::forget(guard);
        match inside {
            Some(_turn) => self.trees.views().advance(at),
            None => door.land(at, self.trees.views()),
        }
        self.advanced();
        if landing.of_accounts || self.catalog.accounts.now() != accounts {
            self.catalog.accounts.changed();
        }
        Ok(CommitId { index, at })
    }

    /// Waits until everything that is in the log by now is visible. Latches may be held here: a thread
    /// whose record is in the log waits for none.
    ///
    /// # Errors
    /// What `interrupt` says.
    pub fn wait_visible(&self, interrupt: &dyn Interrupt) -> Result<()> {
        let newest = self.newest_timestamp();
        let views = self.trees.views();
        for _ in 0..SPINS {
            if views.visible() >= newest {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let visible = || (views.visible() >= newest).then_some(());
        let awaited = Awaited::Visible(newest);
        self.watch.moved.wait_for(awaited, interrupt, visible)
    }

    /// To be called after the newest visible time, or what the majority has, was moved on.
    #[inline]
    pub fn advanced(&self) {
        let so_far = || (self.trees.views().visible(), self.door.majority());
        self.watch.advanced(so_far);
    }

    /// The newest timestamp given out.
    pub fn newest_timestamp(&self) -> Timestamp {
        *self.door.enter()
    }
}

/// The error for a record that is too long.
fn check_length(len: usize) -> Result<()> {
    if len <= LONGEST {
        return Ok(());
    }
    Err(Error::internal(format!(
        "a write of {len} bytes is too large for one commit, at most {LONGEST}"
    )))
}
