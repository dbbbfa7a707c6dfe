//! A member whose disk is full: it tells the others, leads only if no other member can, and takes no records
//! that it could not store.
//!
//! To the consensus such records are lost, and it sends them again: the member votes, answers and follows
//! the leader, and goes on by itself when there is room. What frees space on the primary comes here, too.
//! For what the member has to remember of its votes some room is kept (`muniment_consensus::StateFile`).
//!
//! Invariants: a record that the core has taken is in the log, or the core begins anew over what is in it. A
//! disk that is full only for moments does not count as full: it must have been full for some time, and
//! then have had room for longer before it counts as having room, so that members do not hand the
//! leadership to and fro.

use super::{Driver, Record};
use muniment_consensus::Message;
use muniment_storage::{SpaceReport, only_frees};
use muniment_value::{Error, Result, doc};
use std::time::{Duration, Instant};

/// When writes have been refused for so long the disk counts as full.
const BEGINS: Duration = Duration::from_secs(2);
/// When there has been room for so long it no longer does.
const ENDS: Duration = Duration::from_secs(5);
/// There is room again once the free space exceeds what is kept by a quarter (one in so many) of that.
const MORE: u64 = 4;

/// Whether a disk is full.
#[derive(Default)]
pub struct Fullness {
    full: bool,
    /// Since when the disk has looked as if that were to change.
    since: Option<Instant>,
}

impl Fullness {
    /// Takes what the disk says at the time `now`. Returns whether it counts as full now, if that changes.
    fn look(&mut self, space: SpaceReport, now: Instant) -> Option<bool> {
        let room = space.free >= space.kept.saturating_add(space.kept / MORE);
        let (changes, after) = match self.full {
            false => (space.is_short(), BEGINS),
            true => (room, ENDS),
        };
        if !changes {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) < after {
            return None;
        }
        self.full = !self.full;
        self.since = None;
        Some(self.full)
    }
}

impl Driver {
    /// Sees whether this member's disk is full.
    pub(super) fn look_at_room(&mut self) {
        let Some(space) = self.store().space() else {
            return;
        };
        let Some(full) = self.fullness.look(space, self.now) else {
            return;
        };
        self.node.set_full(full);
        self.core.full(self.node.id, full);
        self.moved = true;
        self.tells_all = true;
        let what = match full {
            true => {
                "The disk of this member is full: it takes no writes, and another member is to lead that has room"
            }
            false => "The disk of this member has room again: it takes part as before",
        };
        let (free, kept) = (space.free as i64, space.kept as i64);
        self.info(21_407, what, &doc! { "freeBytes": free, "keptBytes": kept });
    }

    /// Returns a message with those of its records that can be stored, the first ones; `None` if none can. A
    /// message without records is returned as it is.
    pub(super) fn with_room(
        &self,
        mut message: Message,
        mut records: Vec<Record>,
    ) -> Option<(Message, Vec<Record>)> {
        let bytes = records.iter().map(|r| r.payload.len() as u64).sum();
        if records.is_empty() || self.votes_alone() || self.store().has_room(bytes) {
            return Some((message, records));
        }
        let freeing = records.iter().take_while(|r| only_frees(&r.payload));
        let n = freeing.count();
        if n == 0 {
            return None;
        }
        message.truncate(n);
        records.truncate(n);
        Some((message, records))
    }

    /// There was no room for records that the core has taken: a new core begins over what is in the log.
    pub(super) fn go_on_without(&mut self, e: &Error) -> Result<()> {
        self.warn("records of the primary could not be stored", e);
        self.refuse_all();
        // The new core takes all that the log has for durable.
        self.when_there_is_room("the log of the set", || self.store().sync())?;
        let aside = self.settle_aside()?;
        let Some(state) = self.file.read()? else {
            return Err(crate::ended());
        };
        let core = self.when_there_is_room("the log", || {
            super::core_of(&self.set, state.clone(), aside)
        })?;
        self.begin_anew(core);
        self.moved = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(free: u64) -> SpaceReport {
        SpaceReport {
            free,
            kept: 100,
            refused: 0,
        }
    }

    #[test]
    fn a_disk_is_full_when_it_stays_so_and_no_longer_when_that_lasts() {
        let (mut f, begun) = (Fullness::default(), Instant::now());
        let at = |ms: u64| begun + Duration::from_millis(ms);
        assert_eq!(f.look(space(99), at(0)), None);
        // There was room for a moment.
        assert_eq!(f.look(space(100), at(1500)), None);
        assert_eq!(f.look(space(0), at(2000)), None);
        assert_eq!(f.look(space(0), at(3999)), None);
        assert_eq!(f.look(space(0), at(4000)), Some(true));
        // As much as is kept is not enough, and neither is a moment.
        assert_eq!(f.look(space(124), at(5000)), None);
        assert_eq!(f.look(space(125), at(60_000)), None);
        assert_eq!(f.look(space(110), at(64_000)), None);
        assert_eq!(f.look(space(500), at(65_000)), None);
        assert_eq!(f.look(space(500), at(69_999)), None);
        assert_eq!(f.look(space(500), at(70_000)), Some(false));
        assert_eq!(f.look(space(500), at(90_000)), None);
    }
}
