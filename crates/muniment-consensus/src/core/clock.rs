//! What passing time does: a leader's heartbeats and its looks at whether a majority is there, and how
//! long a member has heard of nobody.
//!
//! All of it is counted here, in ticks whose length is the driver's, so that the times can change while
//! the core runs. Raft's own clock stands still: of it only whether the time is over in which a member
//! that has heard of a leader votes for nobody else ([`EXPIRED`]), and that it begins anew (0).

use super::{Core, Door, MessageType, Occasion, RaftMessage, StateRole};
use crate::config::MemberId;
use crate::message::Message;
use raft::INVALID_ID;
use std::collections::BTreeMap;

/// Raft's election timeout: its clock shows so much when ours is over, and less before.
pub(super) const EXPIRED: usize = 3;
/// What raft's clock shows before; it shows 0 when raft has set it back.
const RUNS: usize = 1;

/// How long the members of a set wait for each other, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Without a leader for so long, elections begin. A leader that hears of no majority ceases to lead
    /// after one to two times as long.
    pub election: u64,
    /// Between two heartbeats.
    pub heartbeat: u64,
    /// A member answers within this time, or it is not there: to be offered the leadership, for instance.
    pub answer: u64,
    /// When the leader is known to be gone ([`Core::gone`]), the first campaign after one to three times
    /// as long.
    pub soon: u64,
}

impl Times {
    /// Those that follow from the election timeout alone.
    pub fn of(election: u64) -> Times {
        Times {
            election,
            heartbeat: (election / 5).max(1),
            answer: election,
            soon: (election / 20).max(1),
        }
    }
}

/// What is counted.
#[derive(Default)]
pub(super) struct Clock {
    /// Ticks since this member heard of a leader, voted, or a term began.
    silent: u64,
    /// Ticks since a leader's last heartbeats.
    unbeaten: u64,
    /// Ticks since a leader last looked whether a majority is there.
    unlooked: u64,
    /// Ticks since another member was asked to lead.
    asked: u64,
    /// When a member was heard last.
    heard: BTreeMap<MemberId, u64>,
}

impl Core {
    /// So many ticks pass.
    pub fn pass(&mut self, ticks: u64) {
        if self.halted {
            return;
        }
        self.now = self.now.saturating_add(ticks);
        if self.leads() {
            self.lead_on(ticks);
        } else if self.door == Door::Closed {
            self.note_silence();
            self.clock.silent = self.clock.silent.saturating_add(ticks);
            if self.clock.silent >= self.patience && self.may_stand() {
                self.campaign_now(Occasion::Silence);
            } else {
                self.show_raft_the_time();
            }
        }
        self.inform_arbiters();
        self.settle();
    }

    /// Ticks until it does something by itself, as things are now; at least 1.
    pub fn due_in(&self) -> u64 {
        let due = match self.leads() {
            true => self.times().heartbeat.saturating_sub(self.clock.unbeaten),
            false if self.may_stand() => self.patience.saturating_sub(self.silence()),
            // This member never campaigns, however long it hears of no leader.
            false => self.times().election,
        };
        due.max(1)
    }

    /// How long members wait for each other from here on.
    pub fn set_times(&mut self, times: Times) {
        if self.options.times == times {
            return;
        }
        self.options.times = times;
        let soon = self.now.saturating_add(times.election);
        self.takeover_after = self.takeover_after.min(soon);
        self.draw_patience();
        self.show_raft_the_time();
    }

    /// The leader has ended: this member has seen that it closed its connections, and that nobody listens
    /// where it was. It votes for others from here on, and campaigns soon: whether it really does is up to
    /// a majority, each of which has to have seen the same.
    pub fn gone(&mut self, leader: MemberId) {
        if self.halted || self.leads() || self.leader() != Some(leader) || self.is_leader_gone() {
            return;
        }
        self.gone = Some(leader);
        self.tries = 0;
        self.clock.silent = 0;
        self.draw_patience();
        self.show_raft_the_time();
    }

    /// Something was heard of a member, or it can be reached: if it was said to be gone, it is not.
    pub fn found(&mut self, member: MemberId) {
        if self.gone == Some(member) {
            self.gone = None;
            self.clock.silent = 0;
            self.draw_patience();
            self.show_raft_the_time();
        }
    }

    /// Whether the last leader is gone, and no other member is known to lead.
    pub fn is_leader_gone(&self) -> bool {
        self.gone.is_some()
    }

    /// How long it waits for what.
    pub fn times(&self) -> Times {
        self.options.times
    }

    /// A message has come, so its sender is there, too.
    pub(super) fn note_heard(&mut self, message: &Message) {
        self.clock.heard.insert(message.from, self.now);
        if message.is_of_leader() {
            self.found(message.from);
        }
    }

    /// Whether the member was heard lately.
    pub(super) fn answers(&self, member: MemberId) -> bool {
        let heard = self.clock.heard.get(&member);
        heard.is_some_and(|at| self.now.saturating_sub(*at) <= self.times().answer)
    }

    /// This member waits anew before it campaigns.
    pub(super) fn restart_silence(&mut self) {
        self.node.raft.election_elapsed = 0;
        self.clock.silent = 0;
    }

    /// A term or a role begins.
    pub(super) fn begin_role(&mut self, now: (u64, StateRole)) {
        let (term, role) = now;
        let new_term = self.drawn_for.0 != term;
        self.drawn_for = now;
        match role {
            StateRole::Leader => {
                (self.clock.unbeaten, self.clock.unlooked) = (0, 0);
                (self.tries, self.gone) = (0, None);
            }
            // In a new term the member that this one votes for may be about to lead.
            StateRole::Follower
                if new_term || self.leader().is_some_and(|l| self.gone != Some(l)) =>
            {
                (self.tries, self.gone) = (0, None);
            }
            _ => {}
        }
        self.draw_patience();
        let in_force = self.in_force.clone();
        let known = |id: &MemberId| in_force.config.member(*id).is_some();
        self.clock.heard.retain(|id, _| known(id));
    }

    fn silence(&self) -> u64 {
        match self.node.raft.election_elapsed {
            0 => 0,
            _ => self.clock.silent,
        }
    }

    /// If raft has set its clock back to 0, this clock begins anew, too.
    fn note_silence(&mut self) {
        self.clock.silent = self.silence();
        let shown = &mut self.node.raft.election_elapsed;
        *shown = (*shown).max(RUNS);
    }

    fn show_raft_the_time(&mut self) {
        if self.leads() {
            return;
        }
        self.note_silence();
        let over = self.clock.silent >= self.times().election || self.is_leader_gone();
        self.node.raft.election_elapsed = if over { EXPIRED } else { RUNS };
    }

    /// What a leader does with time.
    fn lead_on(&mut self, ticks: u64) {
        let times = self.times();
        let clock = &mut self.clock;
        let raft = &mut self.node.raft;
        clock.unlooked = clock.unlooked.saturating_add(ticks);
        if clock.unlooked >= times.election {
            clock.unlooked = 0;
            let mut m = RaftMessage::default();
            m.set_msg_type(MessageType::MsgCheckQuorum);
            m.from = raft.id;
            // It has no answer.
            let _ = raft.step(m);
        }
        clock.asked = match raft.lead_transferee {
            Some(_) => clock.asked.saturating_add(ticks),
            None => 0,
        };
        if clock.asked >= times.answer {
            clock.asked = 0;
            raft.abort_leader_transfer();
        }
        clock.unbeaten = clock.unbeaten.saturating_add(ticks);
        if raft.leader_id != INVALID_ID && clock.unbeaten >= times.heartbeat {
            clock.unbeaten = 0;
            raft.ping();
        }
    }
}
