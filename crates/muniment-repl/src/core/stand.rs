//! Standing for election: when, who does not, and what made a member do it.

use super::{Core, Door};
use crate::config::MemberId;
use crate::timer::patience;

/// Election timeouts that a member waits longer which must not lead for good.
const LAST_RESORT: u64 = 3;

/// What made a member ask for votes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Occasion {
    /// It heard of no leader for too long.
    #[default]
    Silence,
    /// It was asked to ([`Core::campaign`]).
    Asked,
    /// The leader handed over to it.
    Handed,
    /// The leader handed over to it, whose priority is higher: it does so by itself.
    Better,
}

impl Core {
    /// What made this member ask for votes the last time.
    pub fn occasion(&self) -> Occasion {
        self.occasion
    }

    /// The leader hands over to this member, and says no more than that.
    pub(super) fn note_handed(&mut self, leader: MemberId) {
        let now = &self.in_force;
        self.occasion = match now.rank(self.id()) > now.rank(leader) {
            true => Occasion::Better,
            false => Occasion::Handed,
        };
    }

    /// Asks for the votes now (`replSetStepUp`). False if this member may not, or leads.
    pub fn campaign(&mut self) -> bool {
        if self.halted || self.leads() || self.door != Door::Closed || !self.may_campaign() {
            return false;
        }
        self.campaign_now(Occasion::Asked);
        self.settle();
        true
    }

    /// Does not campaign for so many ticks from now on; 0 takes that back.
    pub fn freeze(&mut self, ticks: u64) {
        self.frozen_until = self.now.saturating_add(ticks);
    }

    /// A member, this one or one that has said so, does not campaign until further notice; or does
    /// again. It votes all the same.
    pub fn abstain(&mut self, member: MemberId, abstains: bool) {
        match abstains {
            true => self.abstaining.insert(member),
            false => self.abstaining.remove(&member),
        };
    }

    /// This member has been told not to campaign: for a time ([`Core::freeze`]), or until further notice.
    /// The others are to know, so that none of them hands the leadership to it.
    pub fn abstains(&self) -> bool {
        self.now < self.frozen_until || self.abstaining.contains(&self.id())
    }

    /// Whether this member may ask for votes when nobody else does: it is a voter that is not told
    /// to wait, and all its log is durable, which raft takes for granted of a candidate.
    pub(super) fn may_stand(&self) -> bool {
        let raft = &self.node.raft;
        raft.promotable()
            && !self.abstains()
            && raft.raft_log.persisted == raft.raft_log.last_index()
    }

    /// Whether it may do so on request: it is one that may lead for good, too.
    pub(super) fn may_campaign(&self) -> bool {
        self.may_stand() && self.in_force.rank(self.id()) > 0
    }

    pub(super) fn campaign_now(&mut self, occasion: Occasion) {
        self.occasion = occasion;
        self.node.raft.election_elapsed = 0;
        self.draw_patience();
        // An error would be a message of raft's own that it does not know.
        let _ = self.node.campaign();
    }

    pub(super) fn draw_patience(&mut self) {
        let election = self.options.election_ticks;
        let better = self.better_voters();
        self.patience = patience(&mut self.draw, election, better);
        if self.in_force.rank(self.id()) == 0 {
            // Only when all others had their turn several times: see `Core::keep_house`.
            self.patience += LAST_RESORT * election;
        }
    }

    /// How many different priorities of voters are above this member's.
    fn better_voters(&self) -> usize {
        let mine = self.in_force.rank(self.id());
        let ranks = self
            .in_force
            .voters
            .iter()
            .map(|id| self.in_force.rank(*id));
        let mut above: Vec<u32> = ranks.filter(|rank| *rank > mine).collect();
        above.sort_unstable();
        above.dedup();
        above.len()
    }
}
