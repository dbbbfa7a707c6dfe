//! Maintenance (`replSetMaintenance`): the member goes on following and acknowledging, but clients do not
//! read from it, and it is not elected.

use super::{Driver, ticks};
use muniment_consensus::Role as CoreRole;
use muniment_value::{Code, Error, Result};
use std::time::Duration;

impl Driver {
    /// Begins maintenance, or ends it. Each beginning needs an end of its own.
    ///
    /// # Errors
    /// 95 for a primary and for a candidate; 96 if the member is not in maintenance.
    pub(super) fn maintain(&mut self, begins: bool) -> Result<()> {
        let not_now = |why: &str| Err(Error::new(Code::NotSecondary, why));
        match self.core.role() {
            CoreRole::Follower if !self.store().is_door_open() => {}
            CoreRole::Follower | CoreRole::Leader => {
                return not_now("primaries can't modify maintenance mode");
            }
            CoreRole::PreCandidate | CoreRole::Candidate => {
                return not_now("currently running for election");
            }
        }
        let calls = self.set.member().told.maintenance;
        let next = match begins {
            true => calls.checked_add(1),
            false => calls.checked_sub(1),
        };
        let next = next
            .ok_or_else(|| Error::new(Code::OperationFailed, "already out of maintenance mode"))?;
        self.set.change(|m| m.told.maintenance = next);
        self.abstain();
        self.moved = true;
        Ok(())
    }

    /// Tells the core whether this member campaigns.
    pub(super) fn abstain(&mut self) {
        let calls = self.set.member().told.maintenance;
        let abstains = calls > 0 || self.sets_aside();
        self.core.abstain(self.node.id, abstains);
    }

    /// Notes until when this member is not to campaign, for the driver that goes on from the same disk in the
    /// same process. A member that its configuration does not name is frozen because of that, which is not
    /// noted: the next driver finds it out anew.
    pub fn note_frozen(&self) {
        let left = self.core.frozen_for().filter(|_| self.named);
        let until = left.and_then(|ms| self.now.checked_add(Duration::from_millis(ms)));
        self.set.change(|m| m.told.frozen_until = until);
    }

    /// Does not campaign for as long as the driver before this one was told.
    pub(super) fn freeze_again(&mut self) {
        let until = self.set.member().told.frozen_until;
        let left = until.map(|until| until.saturating_duration_since(self.now));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            self.core.freeze(ticks(left));
        }
    }
}
