//! The clock of the commits, as the members of a replica set and their clients see it.

use crate::commit::announce::Announce;
use crate::commit::ops;
use crate::commit::stage::Stage;
use crate::store::{CommitId, Store};
use muniment_io::Timestamp;
use muniment_log::Record;
use muniment_op::Interrupt;
use muniment_value::Result;
use std::time::Duration;

impl Store {
    /// The timestamp of the newest commit that every new view sees. Costs one load.
    pub fn visible(&self) -> Timestamp {
        self.inner.trees.views().visible()
    }

    /// The newest timestamp that is known: of the newest visible commit, or what
    /// [`Store::advance_clock`] was told last.
    pub fn clock(&self) -> Timestamp {
        self.visible().max(self.inner.door.ahead())
    }

    /// Makes every later commit later than `to`. The caller answers for how far ahead of the wall clock
    /// that is.
    pub fn advance_clock(&self, to: Timestamp) {
        self.inner.door.advance(to);
    }

    /// The least time since a record of the log was committed, or came. Its timestamp cannot tell that:
    /// see the module `ages`.
    pub fn age(&self, record: &Record<'_>) -> Duration {
        self.age_of(record.at, ops::wall_of(record))
    }

    /// The same for a commit, with the wall clock that its record carries.
    pub fn age_of(&self, at: Timestamp, wall_ms: i64) -> Duration {
        let now = self.inner.home.clock.instant();
        self.inner.retention.ages.age_of(at, wall_ms, now)
    }

    /// The wall clock, in milliseconds since 1970, of the record at a timestamp, on a member of a
    /// replica set. It is exact for the newest record, and about right for older ones. A timestamp
    /// without a record counts as the newest.
    pub fn wall_of(&self, at: Timestamp) -> i64 {
        let newest = self.inner.door.newest();
        let (newest, wall) = newest.unwrap_or((Timestamp::ZERO, 0));
        match self.inner.retention.ages.wall(at) {
            Some(wall) if at < newest => wall,
            _ => wall,
        }
    }

    /// Commits a record that changes nothing, so that the newest visible timestamp is later than
    /// [`Store::clock`] was.
    ///
    /// # Errors
    /// 10107 NotWritablePrimary, 14031 OutOfDiskSpace, I/O errors, what `interrupt` says while it waits.
    pub fn commit_nothing(&self, interrupt: &dyn Interrupt) -> Result<CommitId> {
        let opening = self.inner.door.opening()?;
        self.inner.commit(
            Stage::of_nothing(opening),
            Announce::Door,
            interrupt,
            |_| {},
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use crate::tests::natural::crash;
    use crate::tests::open;
    use crate::*;
    use muniment_op::NeverInterrupted;

    #[test]
    fn commits_are_behind_the_clock_and_so_is_what_recovery_finds() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let options = CollectionOptions::default();
        store
            .create_collection("db.c", options, &NeverInterrupted)
            .unwrap();
        let begun = store.visible();
        let ahead = Timestamp(begun.0 + (100_u64 << 32));
        store.advance_clock(ahead);
        store.advance_clock(begun);
        assert_eq!((store.visible(), store.clock()), (begun, ahead));
        // The wait is for all that is committed, and does not include the transaction that is not.
        assert_eq!(store.snapshot().timestamp(), begun);
        store.commit_nothing(&NeverInterrupted).unwrap();
        assert_eq!(store.visible(), Timestamp(ahead.0 + 1));
        assert_eq!(store.clock(), store.visible());
        store.commit_nothing(&NeverInterrupted).unwrap();
        let last = store.visible();
        assert!(last > Timestamp(ahead.0 + 1));
        let crashed = crash(&store, dir.path());
        let store = open(crashed.path());
        assert_eq!(store.visible(), last);
        assert!(store.collection("db.c").is_some());
    }
}
