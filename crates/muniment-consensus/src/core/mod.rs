//! The core: raft over the shadow of the one log. It is told of events and answers with effects.
//!
//! It does nothing itself: no I/O, no thread, no clock, no randomness except from its seed. Its driver calls
//! its inputs one at a time, and after each one carries out the [`Effect`]s, **in order**: the effects after
//! an [`Effect::Save`] may happen only when the state is durable, and messages come after the records that
//! they carry.
//!
//! **The door.** A leader's records are made by the storage's commit door, which writes them to the log and
//! tells the core afterwards ([`Core::appended`]), so raft learns of an entry that the log already has. For
//! that, the door is open only while raft leads, with raft's term, and it is closed before anything of a
//! newer term is handled: messages that would end the leadership wait until [`Core::door_closed`]. The core
//! is told of all records of the door before that, so that raft takes them, and the log and raft's view of it
//! never differ.
//!
//! **Conflicts.** If a follower's log differs from the leader's, it is not mended in place: the core says
//! where to cut ([`Effect::Restart`]) and stops for good; then the storage starts again, cuts, and a new core
//! begins. A log that cannot be mended in this way ([`Fatal`]) needs an initial sync.
//!
//! Invariants: a member acknowledges only what is durable on its disk; every record of the log has a term
//! that the saved state knows; the commit point never goes back.

mod anew;
mod arbiter;
mod begin;
mod clock;
mod effect;
mod fatal;
mod lead;
mod settle;
mod stand;

use crate::config::{ConfigRecord, InForce, MemberId};
use crate::convert::{bytes_of, into_raft};
use crate::message::{Body, Kind, Message};
use crate::position::{Members, Report};
use crate::shadow::{Shadow, kind, to_raft};
use crate::state::LocalState;
use crate::timer::Draw;
use anew::Anew;
pub use begin::{LogEnds, Options};
use clock::Clock;
pub use effect::{Appended, Effect, Refusal, Role};
pub use fatal::Fatal;
use lead::{Pending, Transfer};
use raft::eraftpb::{Entry as RaftEntry, Message as RaftMessage, MessageType};
use raft::{ProgressState, RawNode, StateRole};
use settle::raft_change;
pub use stand::Occasion;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The most messages that wait for the door to close. Further ones are dropped, and raft asks again.
const MOST_DEFERRED: usize = 1024;
/// The most append messages that are on their way to one member.
const WINDOW: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Closed,
    Open,
    /// [`Effect::CloseDoor`] was given, and [`Core::door_closed`] has not answered it yet.
    Closing,
}

/// The core of one member. See the documentation of the module.
pub struct Core {
    node: RawNode<Shadow>,
    options: Options,
    draw: Draw,
    /// The ticks that have passed.
    now: u64,
    /// The intervals that are counted in ticks.
    clock: Clock,
    /// The ticks without a leader after which this member campaigns, as drawn for `drawn_for`.
    patience: u64,
    drawn_for: (u64, StateRole),
    /// How many candidacies in a row have failed.
    tries: u32,
    /// The leader that this member followed, if it seems to have ended.
    gone: Option<MemberId>,
    frozen_until: u64,
    /// The token of the request by which this member is frozen.
    frozen_by: Option<u64>,
    /// Why this member last asked for votes.
    occasion: Occasion,
    /// The members that said they do not campaign; this one may be one of them.
    abstaining: BTreeSet<MemberId>,
    /// The members whose disks are full; this one may be one of them.
    full: BTreeSet<MemberId>,
    /// Until this tick a leader whose disk is full offers the leadership to no member.
    room_after: u64,
    /// The members that are to get the log with a delay.
    late: BTreeSet<MemberId>,
    effects: VecDeque<Effect>,
    door: Door,
    /// The term with which the door is open, or was last open.
    door_term: u64,
    deferred: VecDeque<RaftMessage>,
    /// The place of the last record that the log has.
    in_log: u64,
    /// The place up to which the log is durable, according to the driver.
    synced: u64,
    /// The place up to which the log is durable and raft knows its records.
    durable: u64,
    /// Messages, each with the place up to which the log has to be durable before it may go.
    held: Vec<(u64, Message)>,
    /// Raft's batches that are not durable yet: the number and the last entry of each.
    batches: VecDeque<(u64, Option<u64>)>,
    /// The term and the vote that were saved last.
    saved: (u64, MemberId),
    told_commit: u64,
    told_role: (Role, u64, u64),
    in_force: Arc<InForce>,
    members: Members,
    rollback_id: u64,
    pending: Option<Pending>,
    /// The requests for a configuration that is committed, but after which votes still have to change.
    unanswered: Vec<u64>,
    transfer: Option<Transfer>,
    takeover_after: u64,
    /// Whether this member is an arbiter, or was one before it was removed.
    arbiter: bool,
    /// The wait of a member that begins anew, and what is held back for such a member.
    anew: Anew,
    /// The number with which a leader tells an arbiter without a state that it may begin; 0: none.
    nonce: u64,
    /// What each arbiter has, as far as it has told this leader.
    told: BTreeMap<MemberId, arbiter::Told>,
    /// Until this tick a member with a delay does not become a voter before other members.
    prompt_first: u64,
    /// How often the leadership was offered to a better member in this term.
    offers: u32,
    halted: bool,
    #[cfg(test)]
    pub(crate) bugs: crate::tests::Bugs,
}

impl Core {
    /// The next effect that the driver has to carry out.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Takes a message that has come.
    ///
    /// # Errors
    /// If this member's log contradicts the set's. The core does nothing any more then.
    pub fn receive(&mut self, mut message: Message) -> Result<(), Fatal> {
        if self.halted || message.to != self.id() || !message.is_sound() {
            return Ok(());
        }
        self.note_heard(&message);
        if self.arbiter {
            return self.receive_as_arbiter(message);
        }
        if let Body::Informed { .. } = message.body {
            self.informed(&message);
            self.inform_arbiters();
            self.settle();
            return Ok(());
        }
        if self.in_force.voters.is_empty() {
            // A new member cannot begin with the log, which lacks the configuration in force before it.
            if message.is_of_leader() {
                let (from, at_least) = (message.from, 0);
                self.effects
                    .push_back(Effect::InitialSync { from, at_least });
            }
            return Ok(());
        }
        if let Body::Trimmed { index, log_term } = message.body {
            let raft = &self.node.raft;
            let log = &raft.raft_log;
            if index < log.committed || log.match_term(index, log_term) {
                // Everything up to there is in this member's log, and committed, since the leader would not
                // have trimmed it otherwise. The records that follow may have been acknowledged, and must be
                // kept. This member's own log may begin even later.
                message.body = Body::Append {
                    index,
                    log_term,
                    commit: index,
                    entries: Vec::new(),
                };
            } else {
                let from_leader = message.term >= raft.term && raft.leader_id == message.from;
                if from_leader {
                    let (from, at_least) = (message.from, index);
                    self.effects
                        .push_back(Effect::InitialSync { from, at_least });
                }
                return Ok(());
            }
        }
        let Some(message) = into_raft(message) else {
            return Ok(());
        };
        match self.door {
            Door::Closed => {}
            Door::Open if !self.ends_leadership(&message) => {}
            Door::Closing if self.leads() && !self.ends_leadership(&message) => {}
            Door::Open | Door::Closing => {
                self.close_door();
                if self.deferred.len() < MOST_DEFERRED {
                    self.deferred.push_back(message);
                }
                return Ok(());
            }
        }
        let result = self.step(message);
        self.settle();
        result
    }

    /// Takes the records that the door has put into the log, in this order.
    pub fn appended(&mut self, records: Vec<Appended>) {
        if self.halted {
            return;
        }
        let mut run = Vec::new();
        for record in records {
            let (index, last) = (record.index, self.raft_last() + run.len() as u64);
            let in_order = index == self.in_log + 1 && record.term == self.door_term;
            // Raft itself has made the empty record with which a term begins.
            let own = index <= last && self.node.raft.raft_log.match_term(index, record.term);
            if !in_order || self.door == Door::Closed || !(own || index == last + 1) {
                self.propose(std::mem::take(&mut run));
                self.give_up(self.raft_last().min(self.in_log));
                return;
            }
            self.in_log = index;
            if own {
                continue;
            }
            let config = record.kind != Kind::Plain;
            if config {
                self.propose(std::mem::take(&mut run));
                self.note_config(index);
            }
            run.push(to_raft(crate::Entry {
                index,
                term: record.term,
                kind: record.kind,
            }));
            if config {
                self.propose(std::mem::take(&mut run));
            }
        }
        self.propose(run);
        if self.raft_last() < self.in_log {
            // Raft has refused a record that the log has.
            self.give_up(self.raft_last());
            return;
        }
        self.settle_raft();
        self.settle_durable();
        self.settle();
    }

    /// Notes that the log is durable up to this place, perhaps after records that the core is not told of.
    pub fn persisted(&mut self, index: u64) {
        if self.halted {
            return;
        }
        self.synced = self.synced.max(index);
        self.settle_durable();
        self.settle();
    }

    /// Tells raft which of its records are durable.
    fn settle_durable(&mut self) {
        let shadow = self.node.store();
        let index = self.synced.min(shadow.last()).min(self.in_log);
        let Some(term) = shadow.term_of(index).filter(|_| index > self.durable) else {
            return;
        };
        self.durable = index;
        self.node.raft.on_persist_entries(index, term);
        self.finish_batches();
        // The changes that this commits are put in force and saved before an acknowledgement is sent.
        self.settle_raft();
        if !self.halted {
            self.release_held();
        }
    }

    /// Continues after the driver has closed the door and has told the core of everything that the door made.
    ///
    /// # Errors
    /// Those of [`Core::receive`].
    pub fn door_closed(&mut self) -> Result<(), Fatal> {
        if self.halted || self.door != Door::Closing {
            return Ok(());
        }
        self.door = Door::Closed;
        while let Some(message) = self.deferred.pop_front() {
            if self.door != Door::Closed {
                // An earlier message made this member lead.
                self.deferred.push_front(message);
                break;
            }
            self.step(message)?;
            self.settle_raft();
            if self.halted {
                return Ok(());
            }
        }
        self.settle();
        Ok(())
    }

    /// Notes how far a member is, this one or another.
    pub fn report(&mut self, member: MemberId, report: Report) {
        if self.halted {
            return;
        }
        let position = report.position;
        // Records of the same place and term are the same, and so are all records before them. A member in
        // this term no longer gives up a record that it has in common with its leader.
        let same = report.term == self.term()
            && self
                .node
                .raft
                .raft_log
                .match_term(position.written, report.log_term);
        if same || member == self.id() {
            self.members.report(member, position);
        }
        if !self.is_arbiter(member) {
            self.resume(member, position.durable);
        }
        self.settle();
    }

    /// Notes that the connection to a member, or the one back, is open now. Messages that were sent on it
    /// before are lost, so a leader sends again what the member has not acknowledged. Otherwise that would
    /// happen only with the next heartbeats.
    pub fn reached(&mut self, member: MemberId) {
        if self.halted || !self.leads() || member == self.id() {
            return;
        }
        if self.is_arbiter(member) {
            self.told.remove(&member);
            self.inform_arbiters();
            self.settle();
            return;
        }
        let Some(progress) = self.node.raft.mut_prs().get_mut(member) else {
            return;
        };
        if progress.state != ProgressState::Snapshot {
            progress.become_probe();
            self.node.raft.send_append(member);
            self.settle();
        }
    }

    /// Notes that a member is being synced anew, so that its records do not count, or no longer is. What it
    /// acknowledged before is gone with its data, so a leader forgets that, too.
    pub fn syncing(&mut self, member: MemberId, syncing: bool) {
        match syncing {
            true if self.members.is_syncing(member) => {}
            true => self.forget(member),
            false => self.members.syncing(member, false),
        }
    }

    /// Notes that a member has lost what it had acknowledged, and is about to be synced anew.
    pub fn forget(&mut self, member: MemberId) {
        self.members.syncing(member, true);
        if self.leads()
            && let Some(progress) = self.node.raft.mut_prs().get_mut(member)
        {
            progress.matched = 0;
            progress.become_probe();
        }
    }

    /// Notes whether a member is to get the log with a delay, and with `now` whether it already does. A
    /// message to it that is not due yet is lost on the way and asked for again, so one message on its way is
    /// enough.
    pub fn delayed(&mut self, member: MemberId, delayed: bool, now: bool) {
        match delayed {
            true => self.late.insert(member),
            false => self.late.remove(&member),
        };
        let window = if now { 1 } else { WINDOW };
        self.node.raft.adjust_max_inflight_msgs(member, window);
    }

    /// Notes that the log now begins at `first`.
    pub fn trimmed(&mut self, first: u64) {
        if !self.halted {
            self.node.mut_store().trim(first);
        }
    }

    /// Asks for the place that a linearizable read has to see, which comes as an [`Effect::Readable`]. False
    /// if this member does not lead, or has committed nothing in its term yet.
    pub fn read(&mut self, token: u64) -> bool {
        if self.halted || !self.leads() || !self.node.raft.commit_to_current_term() {
            return false;
        }
        self.node.read_index(bytes_of(token));
        self.settle();
        true
    }

    /// The number of this member.
    pub fn id(&self) -> MemberId {
        self.node.raft.id
    }

    /// The newest term that this member knows.
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// The role of this member.
    pub fn role(&self) -> Role {
        match self.node.raft.state {
            StateRole::Follower => Role::Follower,
            StateRole::PreCandidate => Role::PreCandidate,
            StateRole::Candidate => Role::Candidate,
            StateRole::Leader => Role::Leader,
        }
    }

    /// The leader that this member knows.
    pub fn leader(&self) -> Option<MemberId> {
        let id = self.node.raft.leader_id;
        (id != 0).then_some(id)
    }

    /// The commit point.
    pub fn committed(&self) -> u64 {
        self.node.raft.raft_log.committed
    }

    /// The place up to which all changes of the configuration are in force.
    pub fn applied(&self) -> u64 {
        self.node.raft.raft_log.applied
    }

    /// The place of the last record of the log.
    pub fn last(&self) -> u64 {
        self.raft_last()
    }

    /// The term of the record at a place of the log.
    pub fn term_of(&self, index: u64) -> Option<u64> {
        self.node.store().term_of(index)
    }

    /// Whether the record at a place of the log changes the configuration.
    pub fn is_config(&self, index: u64) -> bool {
        self.node.store().configs().contains_key(&index)
    }

    /// Whether the records of this message follow on the log or are in it, so that it gives up none for them.
    pub fn keeps_all(&self, message: &Message) -> bool {
        let Body::Append { entries, .. } = &message.body else {
            return true;
        };
        let there = self.node.store().base() + 1..=self.raft_last();
        let mut known = entries.iter().filter(|e| there.contains(&e.index));
        known.all(|e| self.node.raft.raft_log.match_term(e.index, e.term))
    }

    /// The configuration in force.
    pub fn in_force(&self) -> &Arc<InForce> {
        &self.in_force
    }

    /// How far the members are, as far as this member knows.
    pub fn members(&self) -> &Members {
        &self.members
    }

    fn leads(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    fn raft_last(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }

    /// Whether this message would make raft give up the leadership, or might.
    fn ends_leadership(&self, m: &RaftMessage) -> bool {
        m.term > self.node.raft.term
            && match m.get_msg_type() {
                MessageType::MsgRequestPreVote => false,
                MessageType::MsgRequestPreVoteResponse => m.reject,
                _ => true,
            }
    }

    fn step(&mut self, message: RaftMessage) -> Result<(), Fatal> {
        if let Err(fatal) = self.check(&message) {
            self.halted = true;
            return Err(fatal);
        }
        #[cfg(test)]
        let message = self.bugs.before_step(&self.node, &self.in_force, message);
        let raft = &self.node.raft;
        let ignored = match message.get_msg_type() {
            MessageType::MsgTimeoutNow => !self.may_campaign(),
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => !self.votes(),
            // A leader never sends a place that its log does not have, nor any place to an arbiter. So an
            // acknowledgement of such a place is ignored.
            MessageType::MsgAppendResponse => {
                let beyond = message.index.max(message.reject_hint) > self.raft_last();
                let never_sent = beyond && !message.reject || self.is_arbiter(message.from);
                #[cfg(test)]
                let never_sent = never_sent && !self.bugs.arbiters_acknowledge;
                never_sent && message.term == raft.term && self.leads()
            }
            _ => false,
        };
        if !ignored {
            if message.get_msg_type() == MessageType::MsgTimeoutNow {
                self.note_handed(message.from);
            }
            // If raft refuses the message, nothing changes.
            let _ = self.node.step(message);
        }
        #[cfg(test)]
        self.bugs.after_step(&mut self.node);
        Ok(())
    }

    /// Detects a leader's message that contradicts what is committed here, at which raft would panic. A
    /// member gets such messages when its data was lost or swapped.
    fn check(&self, m: &RaftMessage) -> Result<(), Fatal> {
        let (raft, log) = (&self.node.raft, &self.node.raft.raft_log);
        if m.term < raft.term {
            return Ok(());
        }
        match m.get_msg_type() {
            MessageType::MsgHeartbeat if m.commit > log.last_index() => Err(Fatal::Lost {
                committed: m.commit,
                last: log.last_index(),
            }),
            // Raft looks for the place where the logs part, and cannot find it before the commit point of
            // this member.
            MessageType::MsgAppend if m.index >= log.committed => {
                match log.term(log.committed).is_ok_and(|t| m.log_term < t) {
                    true => Err(Fatal::Diverged { index: m.index }),
                    false => Ok(()),
                }
            }
            MessageType::MsgAppend => {
                // Raft answers without looking at the entries, so this loop only detects a difference.
                let here = m.entries.iter().filter(|e| e.index <= log.committed);
                let base = self.node.store().base();
                match here
                    .filter(|e| e.index > base)
                    .find(|e| !log.match_term(e.index, e.term))
                {
                    Some(e) => Err(Fatal::Diverged { index: e.index }),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Gives raft entries that the log already has. An entry that changes the configuration comes alone. If
    /// raft refuses an entry, its log lacks it, which [`Core::appended`] detects.
    fn propose(&mut self, entries: Vec<RaftEntry>) {
        let Some(first) = entries.first() else {
            return;
        };
        if !self.leads() {
            // This member lost the leadership while the door was closing, and raft's log has got nothing
            // since. The entries are taken as if they had been proposed just before.
            self.node.raft.raft_log.append(&entries);
            return;
        }
        let change = match kind(first) {
            Kind::Config(record) => ConfigRecord::decode(&record).and_then(|r| r.change),
            Kind::Plain => None,
        };
        let _ = match change {
            Some(change) => {
                let context = first.context.to_vec();
                self.node.propose_conf_change(context, raft_change(change))
            }
            None => {
                let mut m = RaftMessage::default();
                m.set_msg_type(MessageType::MsgPropose);
                m.from = self.id();
                m.entries = entries.into();
                self.node.step(m)
            }
        };
    }

    /// The state to remember, as of now.
    fn local_state(&self, cut: Option<u64>) -> LocalState {
        let (raft, shadow) = (&self.node.raft, self.node.store());
        let vote = raft.vote;
        #[cfg(test)]
        let vote = self.bugs.vote_to_save(vote, self.arbiter);
        LocalState {
            id: raft.id,
            term: raft.term,
            vote,
            // Whatever is applied is committed and durable here, and the changes in it are in force.
            commit: raft.raft_log.applied,
            known: raft.raft_log.committed.max(self.in_force.index),
            terms: shadow.terms().to_vec(),
            configs: shadow.configs().clone(),
            in_force: (*self.in_force).clone(),
            rollback_id: self.rollback_id,
            cut,
            waits: self.anew.waits,
        }
    }

    fn save(&mut self, cut: Option<u64>) {
        let state = self.local_state(cut);
        self.saved = (state.term, state.vote);
        self.effects.push_back(Effect::Save(Box::new(state)));
    }

    /// Stops this core for good: the log has to be cut after `index`.
    fn give_up(&mut self, index: u64) {
        self.halted = true;
        self.node.mut_store().cut(index);
        self.rollback_id += 1;
        self.save(Some(index));
        let cut_behind = index;
        self.effects.push_back(Effect::Restart { cut_behind });
    }

    fn set_in_force(&mut self, in_force: InForce) -> Effect {
        self.in_force = Arc::new(in_force);
        // Other members may be better now.
        self.offers = 0;
        self.let_prompt_first();
        let soon = self.now.saturating_add(self.times().election);
        self.takeover_after = self.takeover_after.min(soon);
        let last = self.raft_last().max(self.in_log);
        self.members.configure(self.in_force.clone(), last);
        Effect::Config(self.in_force.clone())
    }
}
