//! Standing for election: when a member does so, which members do not, and why a member did.

use super::{Core, Door};
use crate::config::MemberId;
use crate::timer::{Times, again, patience, spread};
use raft::{INVALID_ID, StateRole};

/// A member that must not lead for long waits this many election timeouts longer than others.
const LAST_RESORT: u64 = 3;

/// Why a member asked for votes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Occasion {
    /// It heard of no leader for too long.
    #[default]
    Silence,
    /// It was asked to campaign ([`Core::campaign`]).
    Asked,
    /// The leader handed over to it.
    Handed,
    /// The leader handed over by itself, because this member's priority is higher.
    Better,
}

impl Core {
    /// Why this member last asked for votes.
    pub fn occasion(&self) -> Occasion {
        self.occasion
    }

    /// Notes that the leader hands over to this member, and why, which the message does not say.
    pub(super) fn note_handed(&mut self, leader: MemberId) {
        let now = &self.in_force;
        self.occasion = match now.rank(self.id()) > now.rank(leader) {
            true => Occasion::Better,
            false => Occasion::Handed,
        };
    }

    /// Asks for votes now (`replSetStepUp`). False if this member may not, or leads already.
    pub fn campaign(&mut self) -> bool {
        if self.halted || self.leads() || self.door != Door::Closed || !self.may_campaign() {
            return false;
        }
        self.campaign_now(Occasion::Asked);
        self.settle();
        true
    }

    /// Keeps this member from campaigning for this many ticks from now on; 0 ends that.
    pub fn freeze(&mut self, ticks: u64) {
        self.frozen_until = self.now.saturating_add(ticks);
        self.frozen_by = None;
    }

    /// For how many ticks this member still does not campaign ([`Core::freeze`]), so that another core of the
    /// same member can be frozen for as long.
    pub fn frozen_for(&self) -> Option<u64> {
        let left = self.frozen_until.saturating_sub(self.now);
        (left > 0).then_some(left)
    }

    /// Notes that a member does not campaign until further notice, or does so again. The member is this one
    /// or one that has said so. It still votes.
    pub fn abstain(&mut self, member: MemberId, abstains: bool) {
        match abstains {
            true => self.abstaining.insert(member),
            false => self.abstaining.remove(&member),
        };
    }

    /// Notes that the disk of a member is full until further notice, so that the member takes no writes, or
    /// that it has room again. The member is this one or one that has said so. A leader with a full disk
    /// hands over to a member that has room, and a member without room stands for election after those that
    /// have some.
    pub fn full(&mut self, member: MemberId, full: bool) {
        let changed = match full {
            true => self.full.insert(member),
            false => self.full.remove(&member),
        };
        if changed && !self.leads() {
            self.draw_patience();
        }
    }

    /// Whether this member's disk is full, while another member that may lead seems to have room.
    fn is_to_stand_back(&self) -> bool {
        let mut others = self.in_force.voters.iter().filter(|id| **id != self.id());
        self.full.contains(&self.id())
            && others.any(|id| !self.full.contains(id) && self.in_force.rank(*id) > 0)
    }

    /// Gives up a candidacy: answers that still come to it are ignored.
    pub fn withdraw(&mut self) {
        let raft = &mut self.node.raft;
        if !self.halted && matches!(raft.state, StateRole::PreCandidate | StateRole::Candidate) {
            raft.become_follower(raft.term, INVALID_ID);
            self.settle();
        }
    }

    /// Whether this member has been told not to campaign, for a time ([`Core::freeze`]) or until further
    /// notice, or waits for what it may have acknowledged before it lost its disk. The other members have to
    /// know, so that none of them hands over the leadership to it.
    pub fn abstains(&self) -> bool {
        self.now < self.frozen_until || self.abstaining.contains(&self.id()) || self.waits()
    }

    /// Whether this member may ask for votes when no other does: it is a voter that has not been told to
    /// wait, and all of its log is durable, which raft assumes of a candidate.
    pub(super) fn may_stand(&self) -> bool {
        let raft = &self.node.raft;
        let stores_nothing = self.arbiter;
        #[cfg(test)]
        let stores_nothing = stores_nothing && !self.bugs.arbiters_stand;
        raft.promotable()
            && !stores_nothing
            && !self.abstains()
            && raft.raft_log.persisted == raft.raft_log.last_index()
    }

    /// Whether this member may campaign on request, for which it must also be allowed to lead for long.
    pub(super) fn may_campaign(&self) -> bool {
        self.may_stand() && self.in_force.rank(self.id()) > 0
    }

    pub(super) fn campaign_now(&mut self, occasion: Occasion) {
        self.occasion = occasion;
        self.restart_silence();
        self.tries = self.tries.saturating_add(1);
        self.draw_patience();
        // The only error would be an unknown message, which raft's own is not.
        let _ = self.node.campaign();
    }

    /// Draws how long this member waits from now on before it campaigns. A candidacy may fail because votes
    /// were split or because others did not agree yet that the leader is gone. It is then repeated sooner
    /// than after a whole election timeout, and later each time.
    pub(super) fn draw_patience(&mut self) {
        let Times { election, soon, .. } = self.times();
        let better = self.better_voters();
        let state = self.node.raft.state;
        let stood = matches!(state, StateRole::PreCandidate | StateRole::Candidate);
        let lasts = self.in_force.rank(self.id()) == 0 || self.is_to_stand_back();
        #[cfg(test)]
        let lasts = lasts && !(self.arbiter && self.bugs.arbiters_stand);
        self.patience = match (self.is_leader_gone(), stood) {
            (true, _) if !lasts => again(&mut self.draw, soon, election, self.tries, better),
            (false, true) if !lasts => {
                let spread = spread(election);
                again(&mut self.draw, spread, election, self.tries, better)
            }
            _ => patience(&mut self.draw, election, better),
        };
        if lasts {
            // This member comes only after all others have had several turns: see `Core::keep_house`.
            self.patience = self.patience.saturating_add(LAST_RESORT * election);
        }
    }

    /// How many different priorities above this member's the voters have.
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
