//! Maintenance (`replSetMaintenance`): the member goes on following and acknowledging, but nobody reads
//! from it, and it is not elected.

use super::Driver;
use muniment_repl::Role as CoreRole;
use muniment_value::{Code, Error, Result};

impl Driver {
    /// Begins it once more, or ends it once: it ends with the last one.
    ///
    /// # Errors
    /// 95 for a primary and who campaigns; 96 for who is not in it.
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
        let Some(set) = &self.server.replica_set else {
            return Ok(());
        };
        let calls = set.member().maintenance;
        let next = match begins {
            true => calls.checked_add(1),
            false => calls.checked_sub(1),
        };
        let next = next
            .ok_or_else(|| Error::new(Code::OperationFailed, "already out of maintenance mode"))?;
        set.change(&self.server, |m| m.maintenance = next);
        self.abstain();
        self.moved = true;
        Ok(())
    }

    /// Tells the core whether this member campaigns.
    pub(super) fn abstain(&mut self) {
        let calls = self.server.replica_set.as_ref();
        let calls = calls.map_or(0, |set| set.member().maintenance);
        self.core.abstain(self.node.id, calls > 0);
    }
}
