//! The clock of the commits, as the members of a replica set and their clients see it.

use crate::commit::stage::Stage;
use crate::store::{CommitId, Store};
use muniment_io::Timestamp;
use muniment_query::Interrupt;
use muniment_value::Result;

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

    /// Every commit from here on is later than `to`. The caller answers for how far ahead of the
    /// wall clock that is.
    pub fn advance_clock(&self, to: Timestamp) {
        self.inner.door.advance(to);
    }

    /// Commits a record that changes nothing, so that the newest visible timestamp is later than
    /// [`Store::clock`] was.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, I/O errors, what `interrupt` says while it waits.
    pub fn commit_nothing(&self, interrupt: &dyn Interrupt) -> Result<CommitId> {
        self.inner.commit(Stage::of_nothing(), interrupt, |_| {})
    }
}
