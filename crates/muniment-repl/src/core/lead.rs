//! What a leader does beside leading: opens and closes the door, hands the leadership on, and
//! brings the set from the voters that it has to those that are wanted.

use super::{Core, Door, Effect, Refusal};
use crate::config::{Change, Config, ConfigRecord, MemberId};
use raft::{INVALID_ID, ProgressState};
use std::sync::Arc;

/// Election timeouts for which late members let others become voters first.
const PROMPT_FIRST: u64 = 6;
/// The time between two offers of the leadership doubles so many times: each that is not taken costs
/// an election timeout in which nobody can write.
const MOST_OFFERS: u32 = 3;

/// A change of the configuration on its way.
pub(super) struct Pending {
    /// Who asked.
    token: Option<u64>,
    change: Option<Change>,
    /// Its place, once it is in the log.
    at: Option<u64>,
}

/// The leadership on its way to another member.
pub(super) struct Transfer {
    token: Option<u64>,
    /// The one that is wanted; otherwise whoever is best.
    to: Option<MemberId>,
    /// Who has the log up to here has caught up.
    mark: u64,
    until: u64,
    /// When the time is up, step down all the same.
    force: bool,
    /// Ticks for which this member will not campaign afterwards.
    freeze: u64,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nobody has caught up; writes go on.
    Waiting,
    /// The door is closing or closed, and this one is to take over.
    Closing(MemberId),
    /// It was asked to, or is as soon as it has everything.
    Asked,
    /// The door is closing, and nobody takes over.
    Forced,
}

impl Core {
    /// Hands the leadership on and does not campaign for `freeze` ticks. Until another member has
    /// caught up, for `patience` ticks at most, writes go on; after that it is refused, or, with
    /// `force`, this member steps down without a successor.
    ///
    /// The answer is an [`Effect::Outcome`].
    pub fn step_down(&mut self, token: u64, patience: u64, freeze: u64, force: bool) {
        self.begin_transfer(Some(token), None, patience, freeze, force);
        self.settle();
    }

    /// Hands the leadership on to this member, as [`Core::step_down`].
    pub fn hand_over(&mut self, token: u64, to: MemberId, patience: u64) {
        self.begin_transfer(Some(token), Some(to), patience, 0, false);
        self.settle();
    }

    /// Puts a configuration in place of the one in force. At most one voter may come or go; new
    /// members become voters when they have caught up. Members' numbers as [`Config::number`]
    /// gives them.
    ///
    /// The answer is an [`Effect::Outcome`], when it is committed.
    pub fn reconfigure(&mut self, token: u64, config: Config) {
        let result = self.check_config(&config);
        if let Err(refusal) = result {
            self.outcome(Some(token), Err(refusal));
            return;
        }
        self.write_config(Some(token), None, config);
        self.settle();
    }

    fn check_config(&self, config: &Config) -> Result<(), Refusal> {
        if self.halted || !self.leads() || self.door != Door::Open {
            return Err(Refusal::NotLeader);
        }
        if !self.may_configure() {
            return Err(Refusal::Busy);
        }
        let now = &self.in_force.config;
        let known = |id| now.member(id).is_some();
        let mut ids: Vec<_> = config.members.iter().map(|m| m.id).collect();
        ids.sort_unstable();
        ids.dedup();
        let numbered = ids.len() == config.members.len()
            && config.next_id >= now.next_id
            && ids.iter().all(|id| {
                *id < config.next_id && *id != INVALID_ID && (known(*id) || *id >= now.next_id)
            });
        if !numbered {
            return Err(Refusal::BadNumbers);
        }
        let me = config.member(self.id());
        if !me.is_some_and(|m| m.votes && m.priority > 0) {
            return Err(Refusal::NotElectable);
        }
        let (old, new) = (now.wanted_voters(), config.wanted_voters());
        match old.symmetric_difference(&new).count() {
            0 | 1 => Ok(()),
            _ => Err(Refusal::ManyVoters),
        }
    }

    /// Whether a change of the configuration may begin: none is under way, and this leader has
    /// committed something of its own, without which two configurations that do not overlap could
    /// both be taken for the last one.
    fn may_configure(&self) -> bool {
        let raft = &self.node.raft;
        self.pending.is_none()
            && self.door == Door::Open
            && !raft.has_pending_conf()
            && raft.apply_to_current_term()
    }

    fn write_config(&mut self, token: Option<u64>, change: Option<Change>, config: Config) {
        let record: Arc<[u8]> = ConfigRecord { change, config }.encode();
        self.pending = Some(Pending {
            token,
            change,
            at: None,
        });
        self.effects.push_back(Effect::Write(record));
    }

    /// The record of a configuration is in the log.
    pub(super) fn note_config(&mut self, index: u64) -> Option<Change> {
        let pending = self.pending.as_mut()?;
        pending.at = Some(index);
        pending.change
    }

    /// The record of a configuration at this place is committed.
    pub(super) fn config_done(&mut self, index: u64) -> Option<Effect> {
        let done = self.pending.take_if(|p| p.at == Some(index))?;
        let result = Ok(());
        done.token.map(|token| Effect::Outcome { token, result })
    }

    pub(super) fn close_door(&mut self) {
        if self.door == Door::Open {
            self.door = Door::Closing;
            self.effects.push_back(Effect::CloseDoor);
        }
    }

    pub(super) fn open_door(&mut self, no_op: Option<u64>) {
        self.door = Door::Open;
        self.door_term = self.term();
        let term = self.door_term;
        self.effects.push_back(Effect::OpenDoor { term, no_op });
        if no_op.is_some() {
            self.members.forget_others();
            // Whoever is better waits a little until the new leader leads in fact.
            self.takeover_after = self.now + self.options.election_ticks;
            self.offers = 0;
            self.let_prompt_first();
        }
    }

    /// Does what the leadership, or its loss, asks for next. True if raft was asked for something.
    pub(super) fn arrange(&mut self) -> bool {
        if !self.leads() {
            self.lost_leadership();
            return false;
        }
        if self.advance_transfer() {
            return true;
        }
        if self.in_force.rank(self.id()) == 0 {
            return self.keep_house();
        }
        let wanted = self
            .transfer
            .as_ref()
            .is_none_or(|t| t.phase == Phase::Waiting);
        if wanted && self.door == Door::Closed {
            self.open_door(None);
        }
        if self.transfer.is_none() && self.may_configure() {
            let waits = self.now < self.prompt_first;
            let late = |id| waits && self.late.contains(&id);
            let next = self.in_force.next_change(|id| self.has_caught_up(id), late);
            if let Some(change) = next {
                let config = self.in_force.config.clone();
                self.write_config(None, Some(change), config);
            } else {
                self.yield_to_better();
            }
        }
        false
    }

    /// A leader with priority 0, or that is to go or to have no vote, leads only until somebody else
    /// can: behind a closed door it brings another member up to what it has itself, and hands over.
    /// Without that a set would stand still when nobody that may lead has the newest record, which
    /// the others do not elect anybody without. True if raft was asked for something.
    fn keep_house(&mut self) -> bool {
        self.close_door();
        if self.transfer.is_some() {
            return false;
        }
        self.transfer = Some(Transfer {
            token: None,
            to: None,
            mark: self.raft_last(),
            until: u64::MAX,
            force: false,
            freeze: 0,
            phase: Phase::Waiting,
        });
        self.advance_transfer()
    }

    fn lost_leadership(&mut self) {
        if self.door == Door::Open {
            self.close_door();
        }
        if let Some(lost) = self.pending.take() {
            self.outcome(lost.token, Err(Refusal::NotLeader));
        }
        if let Some(transfer) = self.transfer.take() {
            self.freeze(transfer.freeze);
            self.outcome(transfer.token, Ok(()));
        }
    }

    fn outcome(&mut self, token: Option<u64>, result: Result<(), Refusal>) {
        if let Some(token) = token {
            self.effects.push_back(Effect::Outcome { token, result });
        }
    }

    fn begin_transfer(
        &mut self,
        token: Option<u64>,
        to: Option<MemberId>,
        patience: u64,
        freeze: u64,
        force: bool,
    ) {
        if self.halted || !self.leads() || self.door != Door::Open {
            self.outcome(token, Err(Refusal::NotLeader));
            return;
        }
        if let Some(other) = &self.transfer {
            if other.token.is_some() {
                self.outcome(token, Err(Refusal::Busy));
                return;
            }
            // A takeover gives way to what somebody asked for.
            self.transfer = None;
        }
        self.transfer = Some(Transfer {
            token,
            to,
            mark: self.raft_last(),
            until: self.now.saturating_add(patience),
            force,
            freeze,
            phase: Phase::Waiting,
        });
    }

    /// True if raft was asked for something.
    fn advance_transfer(&mut self) -> bool {
        let Some(mut transfer) = self.transfer.take() else {
            return false;
        };
        let late = self.now >= transfer.until;
        let (next, asked) = match transfer.phase {
            Phase::Waiting => match self.successor(transfer.to, transfer.mark) {
                Some(id) => {
                    self.close_door();
                    (Some(Phase::Closing(id)), false)
                }
                None if !late => (Some(Phase::Waiting), false),
                None if transfer.force => {
                    self.close_door();
                    (Some(Phase::Forced), false)
                }
                None => (None, false),
            },
            Phase::Closing(id) if self.door == Door::Closed => {
                self.node.transfer_leader(id);
                (Some(Phase::Asked), true)
            }
            Phase::Forced if self.door == Door::Closed => {
                let term = self.term();
                self.node.raft.become_follower(term, INVALID_ID);
                (Some(Phase::Forced), true)
            }
            // Raft gives up after an election timeout.
            Phase::Asked if self.node.raft.lead_transferee.is_none() => match late {
                false => (Some(Phase::Waiting), false),
                true if transfer.force => (Some(Phase::Forced), true),
                true => (None, false),
            },
            same => (Some(same), false),
        };
        match next {
            Some(phase) => {
                transfer.phase = phase;
                self.transfer = Some(transfer);
            }
            None => self.outcome(transfer.token, Err(Refusal::NobodyCaughtUp)),
        }
        asked
    }

    /// Who could lead and has the log up to `mark`: of those with the highest priority the one
    /// that has most.
    fn successor(&self, to: Option<MemberId>, mark: u64) -> Option<MemberId> {
        let others = self.in_force.voters.iter().filter(|id| **id != self.id());
        let candidates = others.filter(|id| to.is_none_or(|to| to == **id));
        let able = candidates.filter_map(|id| {
            let rank = self.in_force.rank(*id);
            let progress = self.node.raft.prs().get(*id)?;
            let stands = rank > 0 && !self.abstaining.contains(id);
            let able = stands && progress.matched >= mark && progress.recent_active;
            able.then_some((rank, progress.matched, *id))
        });
        Some(able.max()?.2)
    }

    /// From now on members that are late become voters behind others, for some time: until they vote they
    /// get the log without a delay, which must not last.
    pub(super) fn let_prompt_first(&mut self) {
        self.prompt_first = self.now + PROMPT_FIRST * self.options.election_ticks;
    }

    /// A learner has everything that is committed, and still answers.
    fn has_caught_up(&self, id: MemberId) -> bool {
        let progress = self.node.raft.prs().get(id);
        let synced = !self.members.is_syncing(id);
        synced && progress.is_some_and(|p| p.recent_active && p.matched >= self.committed())
    }

    /// A member with a higher priority takes over as soon as it has caught up.
    fn yield_to_better(&mut self) {
        if self.now < self.takeover_after || self.door != Door::Open {
            return;
        }
        let mine = self.in_force.rank(self.id());
        let committed = self.committed();
        let best = self.successor(None, committed);
        if let Some(id) = best.filter(|id| self.in_force.rank(*id) > mine) {
            let election = self.options.election_ticks;
            // It may not take it, and while it is offered nobody can write: that it has been told not to
            // campaign may not have come here yet, or its disk stands still.
            self.takeover_after = self.now + 3 * (election << self.offers.min(MOST_OFFERS));
            self.offers += 1;
            self.begin_transfer(None, Some(id), election, 0, false);
            if let Some(transfer) = &mut self.transfer {
                transfer.mark = committed;
            }
            self.advance_transfer();
        }
    }

    /// A member that needed records which are gone has others now: raft looks for its place from
    /// there on.
    pub(super) fn resume(&mut self, member: MemberId, durable: u64) {
        let base = self.node.store().base();
        if !self.leads() || durable < base || durable > self.raft_last() || member == self.id() {
            return;
        }
        let Some(progress) = self.node.raft.mut_prs().get_mut(member) else {
            return;
        };
        if progress.next_idx > base || progress.state == ProgressState::Snapshot {
            return;
        }
        progress.become_probe();
        progress.next_idx = durable + 1;
        self.node.raft.send_append(member);
    }
}
