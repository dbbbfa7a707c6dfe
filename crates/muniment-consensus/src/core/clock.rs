//! The passing of time: a leader's heartbeats and its checks for a majority, and how long a member has heard
//! of no leader.
//!
//! All of it is counted here, in ticks whose length is up to the driver, so that the times can change while
//! the core runs. Raft's own clock stands still and has two uses. It shows raft whether the time is over in
//! which a member that has heard of a leader votes for no other ([`EXPIRED`]), and raft sets it to 0 when the
//! silence begins anew.

use super::{Core, Door, MessageType, Occasion, RaftMessage, StateRole};
use crate::config::MemberId;
use crate::message::Message;
use crate::timer::Times;
use raft::INVALID_ID;
use std::collections::BTreeMap;

/// Raft's election timeout: its clock shows this value when the core's own timeout is over, and less before.
pub(super) const EXPIRED: usize = 3;
/// The value of raft's clock while the timeout runs; it shows 0 when raft has set it back.
const RUNS: usize = 1;

/// The counters of ticks.
#[derive(Default)]
pub(super) struct Clock {
    /// Ticks since this member heard of a leader, voted, or a term began.
    silent: u64,
    /// Ticks since a leader last sent heartbeats.
    unbeaten: u64,
    /// Ticks since a leader last checked whether it still has a majority.
    unlooked: u64,
    /// Ticks since another member was asked to lead.
    asked: u64,
    /// When each member was last heard.
    heard: BTreeMap<MemberId, u64>,
}

impl Core {
    /// Lets time pass.
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

    /// The ticks until the core does something by itself, as things are now; at least 1.
    pub fn due_in(&self) -> u64 {
        let due = match self.leads() {
            true => self.times().heartbeat.saturating_sub(self.clock.unbeaten),
            false if self.may_stand() => self.patience.saturating_sub(self.silence()),
            // This member never campaigns, however long it hears of no leader.
            false => self.times().election,
        };
        due.max(1)
    }

    /// Sets how long members wait for each other from now on.
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

    /// Notes that the leader has ended: this member has seen that the leader closed its connections, and that
    /// nothing listens at its address. This member votes for others from now on, and campaigns soon. A
    /// majority has to agree, each member of which must have seen the same.
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

    /// Notes that a member was heard or can be reached, and so has not ended after all.
    pub fn found(&mut self, member: MemberId) {
        if self.gone == Some(member) {
            self.gone = None;
            self.clock.silent = 0;
            self.draw_patience();
            self.show_raft_the_time();
        }
    }

    /// Whether the last leader has ended, and no other member is known to lead.
    pub fn is_leader_gone(&self) -> bool {
        self.gone.is_some()
    }

    /// How long members wait for each other.
    pub fn times(&self) -> Times {
        self.options.times
    }

    /// Notes that the sender of a message is alive.
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

    /// Lets this member wait anew before it campaigns.
    pub(super) fn restart_silence(&mut self) {
        self.node.raft.election_elapsed = 0;
        self.clock.silent = 0;
    }

    /// Notes that a term or a role begins.
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

    /// Does what a leader has to do as time passes.
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
            // This message has no answer.
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
