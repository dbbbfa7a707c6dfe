//! The duties of a leader apart from the log: it opens and closes the commit door, hands over the leadership,
//! and leads the set step by step from its present voters to those that are wanted.

use super::{Core, Door, Effect, Refusal};
use crate::config::{Change, Config, ConfigRecord, MemberId};
use crate::timer::Times;
use raft::{INVALID_ID, ProgressState};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Members with a delay let others become voters first for this many times the time of an answer.
const PROMPT_FIRST: u64 = 6;
/// How often the time between two offers of the leadership doubles at most. It grows because no client can
/// write during an offer that is not taken, which lasts as long as an answer may take.
const MOST_OFFERS: u32 = 3;

/// A change of the configuration that is under way.
pub(super) struct Pending {
    /// The request for the change, if there was one.
    token: Option<u64>,
    change: Option<Change>,
    /// The place of its record, once that is in the log.
    at: Option<u64>,
}

/// A handover of the leadership that is under way.
pub(super) struct Transfer {
    token: Option<u64>,
    /// The member that is to lead; `None`: the best that can take over.
    to: Option<MemberId>,
    /// A member has caught up when its log reaches this place.
    mark: u64,
    until: u64,
    /// Whether to step down even without a successor when the time is up.
    force: bool,
    /// For this many ticks this member does not campaign afterwards.
    freeze: u64,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No member has caught up yet, and writes continue.
    Waiting,
    /// The door is closing or closed, and this member is to take over.
    Closing(MemberId),
    /// Raft was told to hand over, and asks the successor to campaign as soon as that has everything.
    Asked,
    /// The door is closing, and no member takes over.
    Forced,
}

impl Core {
    /// Hands over the leadership, and does not campaign for `freeze` ticks. Writes continue until another
    /// member has caught up, for `patience` ticks at most. If none has by then, the request is refused or,
    /// with `force`, this member steps down without a successor.
    ///
    /// The answer is an [`Effect::Outcome`].
    pub fn step_down(&mut self, token: u64, patience: u64, freeze: u64, force: bool) {
        self.begin_transfer(Some(token), None, patience, freeze, force);
        self.settle();
    }

    /// Hands over the leadership to this member, as [`Core::step_down`] does.
    pub fn hand_over(&mut self, token: u64, to: MemberId, patience: u64) {
        self.begin_transfer(Some(token), Some(to), patience, 0, false);
        self.settle();
    }

    /// Notes that the client which asked for a step down or a handover no longer waits for it. The request is
    /// dropped if the handover has not begun. Otherwise the handover continues, but this member may campaign
    /// afterwards, even if the handover has already ended.
    pub fn take_back(&mut self, token: u64) {
        if self.frozen_by == Some(token) {
            self.freeze(0);
        }
        if let Some(begun) = self.transfer.take_if(|t| t.token == Some(token))
            && begun.phase != Phase::Waiting
        {
            self.transfer = Some(Transfer {
                freeze: 0,
                force: false,
                ..begun
            });
        }
        self.settle();
    }

    /// Puts a configuration in the place of the one in force. At most one voter may be added or removed; new
    /// members become voters when they have caught up. The members must have the numbers that
    /// [`Config::number`] gives.
    ///
    /// The answer is an [`Effect::Outcome`]. It comes when the configuration is committed and the members
    /// that lose their votes by it have lost them, since the client may then end those members. It does not
    /// wait for members that are to get a vote.
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
        let mut ids: Vec<_> = config.members.iter().map(|m| m.id).collect();
        ids.sort_unstable();
        ids.dedup();
        let numbered = ids.len() == config.members.len()
            && config.next_id >= now.next_id
            && ids.iter().all(|id| {
                let same = now
                    .member(*id)
                    .map_or(*id >= now.next_id, |m| m.arbiter == config.is_arbiter(*id));
                *id < config.next_id && *id != INVALID_ID && same
            });
        if !numbered {
            return Err(Refusal::BadNumbers);
        }
        let me = config.member(self.id());
        if !me.is_some_and(|m| m.votes && m.priority > 0) {
            return Err(Refusal::NotElectable);
        }
        // A removed member may still have its vote: see `InForce::next_change`.
        if !self
            .in_force
            .voters
            .iter()
            .all(|id| now.member(*id).is_some())
        {
            return Err(Refusal::Busy);
        }
        let voting = |config: &Config| -> BTreeSet<MemberId> {
            let voting = config.members.iter().filter(|m| m.votes);
            voting.map(|m| m.id).collect()
        };
        let (old, new) = (voting(now), voting(config));
        match old.symmetric_difference(&new).count() {
            0 | 1 => Ok(()),
            _ => Err(Refusal::ManyVoters),
        }
    }

    /// Whether a change of the configuration may begin. None may be under way, and this leader must have
    /// committed something of its own, since otherwise two configurations that do not overlap could both be
    /// taken for the last one. A leader that must not write ([`Core::abstain`]) begins no change. Nor does
    /// one begin while a member is being filled without which nothing can be committed ([`Core::confirm`]):
    /// the change could make that member's vote necessary before the member may give it.
    pub(super) fn may_configure(&self) -> bool {
        let raft = &self.node.raft;
        let (term, place) = self.anew.filling;
        if term == raft.term && self.committed() < place {
            return false;
        }
        self.pending.is_none()
            && !self.abstaining.contains(&self.id())
            && self.door == Door::Open
            && !raft.has_pending_conf()
            && raft.apply_to_current_term()
    }

    pub(super) fn write_config(
        &mut self,
        token: Option<u64>,
        change: Option<Change>,
        config: Config,
    ) {
        let mut config = config;
        if let Some(Change::Remove(id)) = change {
            config.is_gone(id);
        }
        let record: Arc<[u8]> = ConfigRecord { change, config }.encode();
        self.pending = Some(Pending {
            token,
            change,
            at: None,
        });
        self.effects.push_back(Effect::Write(record));
    }

    /// Notes that the record of a configuration is in the log.
    pub(super) fn note_config(&mut self, index: u64) -> Option<Change> {
        let pending = self.pending.as_mut()?;
        pending.at = Some(index);
        pending.change
    }

    /// Notes that the record of a configuration at this place is committed. Returns the answers to the
    /// requests for it, unless a vote is still to be taken away: a client that had its answer could then end
    /// a member without which nothing can be committed.
    pub(super) fn config_done(&mut self, index: u64) -> Vec<Effect> {
        let Some(done) = self.pending.take_if(|p| p.at == Some(index)) else {
            return Vec::new();
        };
        self.unanswered.extend(done.token);
        if self.in_force.loses_a_voter() {
            return Vec::new();
        }
        let answered = std::mem::take(&mut self.unanswered).into_iter();
        let done = |token| Effect::Outcome {
            token,
            result: Ok(()),
        };
        answered.map(done).collect()
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
            self.told.clear();
            // A better member takes over only after the new leader has had some time to lead.
            self.takeover_after = self.now.saturating_add(self.times().election);
            self.offers = 0;
            // A leader with a full disk hands over only after it has heard which other disks are full: two
            // such members would hand the leadership to and fro.
            self.room_after = self.now + (self.times().answer / 5).max(1);
            self.let_prompt_first();
        }
    }

    /// Takes the next step that the leadership, or its loss, calls for. True if raft was asked for something.
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
            if self.in_force.config.is_forced() {
                // A record in the log brings the forced configuration to all members, and preserves it when
                // the members that were told of it are gone.
                let record = ConfigRecord::settling(&self.in_force);
                self.write_config(None, record.change, record.config);
                return false;
            }
            let waits = self.now < self.prompt_first;
            let late = |id| waits && self.late.contains(&id);
            let ready = |id| match self.is_arbiter(id) {
                true => self.has_begun(id),
                false => self.has_caught_up(id),
            };
            let next = self.in_force.next_change(ready, late);
            if let Some(change) = next {
                let config = self.in_force.config.clone();
                self.write_config(None, Some(change), config);
            } else {
                self.yield_to_better();
            }
        }
        false
    }

    /// Leads only until another member can. This holds for a leader with priority 0, or one that is to go or
    /// to lose its vote. With the door closed it brings another member up to its own log, and hands over.
    /// Without this, a set would stand still when no member that may lead has the newest record, since the
    /// others elect no member without it. True if raft was asked for something.
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
        for token in std::mem::take(&mut self.unanswered) {
            self.outcome(Some(token), Err(Refusal::NotLeader));
        }
        if let Some(transfer) = self.transfer.take() {
            self.freeze(transfer.freeze);
            self.frozen_by = transfer.token;
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
            // A takeover, which no client asked for, gives way to a request.
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

    /// Advances the handover. True if raft was asked for something.
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
            // Raft drops the handover when there was no answer: see `Core::lead_on`.
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

    /// The best member that can lead and has the log up to `mark`: first those with room on their disks, then
    /// by priority, then by how much of the log they have.
    fn successor(&self, to: Option<MemberId>, mark: u64) -> Option<MemberId> {
        let others = self.in_force.voters.iter().filter(|id| **id != self.id());
        let candidates = others.filter(|id| to.is_none_or(|to| to == **id));
        let able = candidates.filter_map(|id| {
            let rank = self.in_force.rank(*id);
            let progress = self.node.raft.prs().get(*id)?;
            let stands = rank > 0 && !self.abstaining.contains(id);
            let able = stands && progress.matched >= mark && self.answers(*id);
            able.then_some((!self.full.contains(id), rank, progress.matched, *id))
        });
        Some(able.max()?.3)
    }

    /// Lets members with a delay become voters only after the others, for some time from now on. The time is
    /// limited because these members get the log without their delay until they vote, which must not last.
    pub(super) fn let_prompt_first(&mut self) {
        self.prompt_first = self.now + PROMPT_FIRST * self.times().answer;
    }

    /// Whether a learner has everything that is committed, and still answers.
    fn has_caught_up(&self, id: MemberId) -> bool {
        let progress = self.node.raft.prs().get(id);
        let synced = !self.members.is_syncing(id);
        synced && self.answers(id) && progress.is_some_and(|p| p.matched >= self.committed())
    }

    /// Lets a member with a higher priority take over as soon as it has caught up. If this member's disk is
    /// full, any member with room on its disk may take over.
    fn yield_to_better(&mut self) {
        let full = self.full.contains(&self.id());
        let waits = match full {
            true => self.room_after,
            false => self.takeover_after,
        };
        if self.now < waits || self.door != Door::Open {
            return;
        }
        let mine = self.in_force.rank(self.id());
        let committed = self.committed();
        let best = self.successor(None, committed);
        let best = best.filter(|id| !self.full.contains(id));
        if let Some(id) = best.filter(|id| full || self.in_force.rank(*id) > mine) {
            let Times {
                election, answer, ..
            } = self.times();
            // The offer may not be taken: the member may have been told not to campaign without this one
            // knowing of it yet, or its disk may stand still. During an offer no client can write, so the
            // pause before the next one grows.
            let pause = 3 * (election << self.offers.min(MOST_OFFERS));
            self.takeover_after = self.now.saturating_add(pause);
            self.room_after = self.now + 3 * (answer << self.offers.min(MOST_OFFERS));
            self.offers += 1;
            self.begin_transfer(None, Some(id), answer, 0, false);
            if let Some(transfer) = &mut self.transfer {
                transfer.mark = committed;
            }
            self.advance_transfer();
        }
    }

    /// Lets raft continue after `durable` with a member that was filled. The member had needed records which
    /// this log no longer has.
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
