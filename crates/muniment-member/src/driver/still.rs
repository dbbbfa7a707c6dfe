//! A member whose files are kept as they are (fsyncLock): it answers, votes, and takes and acknowledges
//! the primary's records, but is not elected.
//!
//! What it takes it sets aside, in a file beside the log ([`aside`]), so that the log's own files can be
//! copied meanwhile. To the consensus that is the log: it is synced before anything is acknowledged, and
//! counts for the majority. It is not applied, so that reads do not show it, nor does it count for a write
//! concern that says how many members have it. After the lock it is put into the log in pieces, so that
//! the member answers meanwhile, and what comes until that is done is set aside as well.
//!
//! Invariants: while the file is there nothing else is appended to the log, and nothing of the log is given
//! up. The state beside the log does not say of a record that only the file has that it is committed: a
//! copy of the directory may have the state as of a later time than the file.
//!
//! [`aside`]: crate::aside

use super::Driver;
use crate::Role;
use crate::aside::{self, Aside};
use crate::frame::Record;
use crate::node::Node;
use crate::world::Mistake;
use muniment_consensus::{InForce, LocalState, Message};
use muniment_logger::guarded;
use muniment_op::Interrupt;
use muniment_storage::{Position, Record as LogRecord, can_be_read};
use muniment_value::{Code, Error, Result, doc};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// No more bytes than this are set aside: what comes then has to come again after the lock.
const MOST: u64 = 64 << 30;
/// So many bytes at least are put into the log in one turn.
const PIECE: u64 = 1 << 20;
/// When the disk was full the next piece is tried after so long.
const PAUSE: Duration = Duration::from_millis(200);

impl Node {
    /// Calls `lock`, which locks what the driver writes to. The driver is told before, so that it does not
    /// wait for the end of the lock.
    ///
    /// # Errors
    /// 96 OperationFailed while the member copies another one's data, since its directory is about to be
    /// replaced; of `lock`; what `interrupt` says while the driver writes.
    pub fn while_still<T>(
        &self,
        interrupt: &dyn Interrupt,
        lock: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut driver = self.driver.lock_for(interrupt)?;
        if self.is_syncing() {
            return Err(Error::new(
                Code::OperationFailed,
                "the member copies another one's data: it can be locked after that",
            ));
        }
        let _locking = Locking::begin(&self.locking);
        driver.iter_mut().for_each(Driver::begin_still);
        drop(driver);
        lock()
    }
}

/// Counts a thread that is about to lock, until this is dropped. It is dropped also if locking panics:
/// otherwise the driver would never write anything again.
struct Locking<'n>(&'n AtomicU32);

impl Locking<'_> {
    fn begin(count: &AtomicU32) -> Locking<'_> {
        count.fetch_add(1, SeqCst);
        Locking(count)
    }
}

impl Drop for Locking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// What a driver does while files are kept as they are, and until what came meanwhile is in the log.
#[derive(Default)]
pub struct Still {
    aside: Option<Aside>,
    /// A write to the file failed: nothing can be appended to it any more.
    closed: bool,
    /// The file has records that were not synced yet.
    unsynced: bool,
    /// Bytes that came since a piece was put into the log.
    came: u64,
    /// When the next piece is due.
    next: Option<Instant>,
    /// It was logged that no more is set aside.
    said: bool,
    /// A configuration that was forced elsewhere.
    forced: Option<InForce>,
}

impl Still {
    /// Begins with what was set aside before the start.
    pub fn new(aside: Option<Aside>) -> Still {
        Still {
            aside,
            ..Still::default()
        }
    }
}

impl Driver {
    /// Whether nothing may be written, because the member is locked or about to be.
    fn stands_still(&self) -> bool {
        self.node.locking.load(SeqCst) > 0 || self.store().write_lock_depth() > 0
    }

    /// Whether what comes is set aside: nothing may be written, or what came meanwhile is not in the log yet.
    pub(super) fn sets_aside(&self) -> bool {
        self.still.aside.is_some() || self.stands_still()
    }

    /// Nothing may be written from here on. A candidacy is given up: an elected member would have to write.
    pub fn begin_still(&mut self) {
        let told = guarded(|| {
            self.abstain();
            self.core.withdraw();
            self.moved = true;
            self.effects()?;
            self.tell_others()
        });
        self.end_with(told);
    }

    /// Whether the records of a message can be set aside. A member that leads, or has nothing yet, takes none.
    pub(super) fn can_set_aside(&mut self, message: &Message, records: &[Record]) -> bool {
        let role = self.set.member().role;
        let follows = matches!(role, Role::Secondary | Role::Recovering | Role::Removed);
        if !follows
            || self.still.closed
            || self.store().is_door_open()
            || self.core.in_force().voters.is_empty()
            || !self.core.keeps_all(message)
            || !records.iter().all(|r| can_be_read(&r.payload))
        {
            return false;
        }
        let bytes: u64 = records.iter().map(|r| r.payload.len() as u64).sum();
        let there = self.still.aside.as_ref().map_or(0, Aside::bytes);
        // The records have to find room in the log, too.
        let wanted = there.saturating_add(2 * bytes);
        if there + bytes <= MOST && self.store().has_room(wanted) {
            return true;
        }
        if !std::mem::replace(&mut self.still.said, true) {
            let what = "No more of the primary's records are taken while this member is locked: there is no \
                        room for them";
            self.info(21_414, what, &doc! { "bytesSetAside": there as i64 });
        }
        false
    }

    /// Sets aside records of the message that is being handled.
    pub(super) fn set_aside(&mut self, first: u64, last: u64) -> Result<()> {
        let put = self.put_aside(first, last);
        // After a failure the file may end with a part of a record: nothing may be appended to that.
        self.still.closed |= put.is_err();
        match put {
            Err(e) if e.code() == Code::OutOfDiskSpace => return self.go_on_without(&e),
            other => other?,
        }
        self.told = last;
        self.moved = true;
        Ok(())
    }

    fn put_aside(&mut self, first: u64, last: u64) -> Result<()> {
        let wanted = first..=last;
        if self.still.aside.is_none() {
            let base = self.store().appended()?;
            let machine = &self.set.home.machine;
            let mut salt = [0; 4];
            machine.clock.random(&mut salt)?;
            let dir = &self.set.home.dbpath;
            let made = Aside::create(&machine.disk, dir, base, u32::from_le_bytes(salt))?;
            self.still.aside = Some(made);
        }
        let Some(aside) = &mut self.still.aside else {
            return Ok(());
        };
        for record in self.records.iter().filter(|r| wanted.contains(&r.index)) {
            aside.append(record, self.core.is_config(record.index))?;
            self.still.came += record.payload.len() as u64;
            self.still.unsynced = true;
        }
        Ok(())
    }

    /// Makes durable what was set aside, and the log before it. Returns the last of it.
    pub(super) fn settle_aside(&mut self) -> Result<Option<Position>> {
        let base = match &self.still.aside {
            None => return Ok(None),
            Some(aside) => aside.base().index,
        };
        // The first records are set aside shortly before the lock itself comes. Until then the log may not be
        // durable up to them, and can still be synced.
        let durable = self.positions()?.unwrap_or_default().durable.index;
        if durable < base {
            self.when_there_is_room("the log of the set", || self.store().sync())?;
        }
        let skips = self.makes(Mistake::AsideUnsynced);
        let Some(aside) = &mut self.still.aside else {
            return Ok(None);
        };
        if std::mem::take(&mut self.still.unsynced) && !skips {
            aside.sync()?;
        }
        Ok(Some(aside.last()))
    }

    /// Tells the core that what was set aside is durable, and puts a piece of it into the log if the lock
    /// has ended.
    pub(super) fn settle_still(&mut self) -> Result<()> {
        if self.still.unsynced
            && let Some(last) = self.settle_aside()?
            && last.index > self.durable
        {
            self.durable = last.index;
            self.moved = true;
            self.core.persisted(last.index);
            self.effects()?;
        }
        self.still.next = None;
        if self.stands_still() || self.done {
            self.still.came = 0;
            return Ok(());
        }
        if self.still.aside.is_none() {
            let ended = self.still.closed || self.still.said || self.still.forced.is_some();
            return if ended { self.end_still() } else { Ok(()) };
        }
        if self.makes(Mistake::AsideDropped) {
            return self.end_still();
        }
        // A piece is larger than what came since the last one, so that the file is empty in the end.
        let piece = PIECE.max(2 * std::mem::take(&mut self.still.came));
        let log = self.store().appended()?.index;
        let aside = self.still.aside.as_mut();
        let records = aside.map_or(Ok(Vec::new()), |aside| aside.next(log, piece))?;
        let all: Vec<LogRecord<'_>> = records.iter().map(Record::as_logged).collect();
        let now = self.instant();
        match self.put_into_log(&all) {
            Err(e) if e.code() == Code::OutOfDiskSpace => {
                self.still.next = Some(now + PAUSE);
                return Ok(());
            }
            other => other?,
        }
        self.moved = true;
        let last = self.still.aside.as_ref().map_or(0, |a| a.last().index);
        match self.store().appended()?.index < last {
            true => {
                self.still.next = Some(now);
                Ok(())
            }
            false => self.end_still(),
        }
    }

    /// All that was set aside is in the log.
    fn end_still(&mut self) -> Result<()> {
        self.when_there_is_room("the log of the set", || self.store().sync())?;
        let Still { forced, .. } = std::mem::take(&mut self.still);
        aside::discard(&self.set.home.machine.disk, &self.set.home.dbpath)?;
        self.abstain();
        self.tells_all = true;
        match forced {
            Some(newer) if newer.config.version > self.core.in_force().config.version => {
                self.take_forced(&newer)
            }
            _ => Ok(()),
        }
    }

    /// When the next piece of what was set aside is to go into the log.
    pub(super) fn goes_on_at(&self) -> Option<Instant> {
        self.still.next
    }

    /// A configuration that was forced elsewhere waits until the log has everything.
    pub(super) fn takes_forced_later(&mut self, newer: &InForce) -> bool {
        let later = self.sets_aside();
        if later {
            self.still.forced = Some(newer.clone());
        }
        later
    }

    /// The state as it may stand beside the log: a copy of the directory may have less of what was set aside,
    /// so that the commit point must not go beyond the log.
    ///
    /// # Errors
    /// If the log is to be cut while records that follow on it are set aside.
    pub(super) fn as_of_log(&self, state: &LocalState) -> Result<LocalState> {
        if state.cut.is_some() {
            self.has_nothing_aside()?;
        }
        let mut state = state.clone();
        if self.makes(Mistake::StateAhead) {
            return Ok(state);
        }
        if self.still.aside.is_some() {
            state.commit = state.commit.min(self.store().appended()?.index);
        }
        Ok(state)
    }

    /// # Errors
    /// If something is set aside.
    pub(super) fn has_nothing_aside(&self) -> Result<()> {
        match self.still.aside.is_none() {
            true => Ok(()),
            false => Err(Error::internal(
                "the log was to be changed before it has what was set aside",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Ending, Lifecycle};
    use muniment_op::{NeverInterrupted, Operation};

    /// Has a thread wait for the driver in order to lock. Calls `then` with what keeps the driver, once the
    /// thread waits. Returns how the thread's call ended.
    fn locks_while_busy(
        node: &Node,
        on: &dyn Interrupt,
        then: impl FnOnce(&mut dyn FnMut()),
    ) -> Result<&'static str> {
        std::thread::scope(|s| {
            let mut busy = Some(node.driver.lock());
            let waits = s.spawn(|| node.while_still(on, || Ok("locked")));
            while node.driver.waiting() == 0 {
                assert!(!waits.is_finished(), "the thread did not wait");
                std::thread::yield_now();
            }
            then(&mut || busy = None);
            waits.join().unwrap()
        })
    }

    #[test]
    fn a_lock_waits_until_the_driver_is_free() {
        let node = Node::alone();
        let locked = locks_while_busy(&node, &NeverInterrupted, |free| free());
        assert_eq!(locked.unwrap(), "locked");
        assert_eq!(node.locking.load(SeqCst), 0);
    }

    #[test]
    fn a_kill_and_the_end_of_the_server_end_the_wait_for_the_driver() {
        let node = Node::alone();
        let op = Operation::new(Instant::now(), None);
        let killed = locks_while_busy(&node, &op, |_| assert!(op.kill(Code::Interrupted)));
        assert_eq!(killed.unwrap_err().code(), Code::Interrupted);
        let life = Lifecycle::default();
        let ended = locks_while_busy(&node, &Ending(&life), |_| life.request_stop("a test"));
        assert_eq!(ended.unwrap_err().code(), Code::InterruptedAtShutdown);
        // Nothing was locked, so the driver goes on writing.
        assert_eq!(node.locking.load(SeqCst), 0);
        assert_eq!(node.driver.waiting(), 0);
    }
}
