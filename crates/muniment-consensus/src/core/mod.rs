//! The core: raft over the shadow of the one log, fed with what happened, and answering with what
//! is to be done.
//!
//! It does nothing itself: no I/O, no thread, no clock, no randomness but its seed. Its driver calls
//! its inputs one at a time, and after each one carries out the [`Effect`]s, **in order**: what comes
//! after an [`Effect::Save`] may happen only when the state is durable, and messages come after the
//! records they speak of.
//!
//! **The door.** A leader's records are made by the storage's commit door, which writes them to the
//! log and tells the core afterwards ([`Core::appended`]); so raft learns of an entry that the log
//! has already. For that the door is open only while raft leads, with raft's term, and it is closed
//! before anything of a newer term is handled: messages that would end the leadership wait until
//! [`Core::door_closed`]. The core is told of all records of the door before that, so that raft takes
//! them, and the log and raft's view of it never differ.
//!
//! **Conflicts.** A follower whose log differs from the leader's is not mended in place: the core
//! says where to cut ([`Effect::Restart`]) and stops for good; the storage starts again, cuts, and
//! a new core begins. A log that cannot be mended in this way ([`Fatal`]) needs an initial sync.
//!
//! Invariants: a member acknowledges only what is durable here; the log holds no record
//! whose term the saved state does not know; the commit point never goes back.

mod anew;
mod arbiter;
mod clock;
mod fatal;
mod lead;
mod settle;
mod stand;

use crate::config::{ConfigRecord, InForce, MemberId};
use crate::convert::{bytes_of, into_raft};
use crate::message::{Body, Kind, Message};
use crate::position::{Members, Position, Report};
use crate::shadow::{Shadow, kind, to_raft};
use crate::state::LocalState;
use crate::timer::Draw;
use anew::Anew;
use clock::Clock;
pub use clock::Times;
pub use fatal::Fatal;
use lead::{Pending, Transfer};
use raft::eraftpb::{
    ConfState, Entry as RaftEntry, HardState, Message as RaftMessage, MessageType,
};
use raft::{ProgressState, RawNode, StateRole};
use settle::raft_change;
pub use stand::Occasion;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// When raft campaigns by itself: never. It wants a range, from which it draws.
const NEVER: usize = usize::MAX / 4;
/// Messages that wait for the door to close, at most; raft asks again for what is lost.
const MOST_DEFERRED: usize = 1024;
/// Append messages on their way to one member, at most.
const WINDOW: usize = 256;

/// How a core runs.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long members wait for each other, until [`Core::set_times`].
    pub times: Times,
    /// The seed of everything that is drawn at random.
    pub seed: u64,
}

/// The log as the storage found it, all of it durable.
#[derive(Clone, Copy, Debug)]
pub struct LogEnds {
    /// The place of its first record, or of the one that comes next.
    pub first: u64,
    /// The place of its last record; `first - 1` if it has none.
    pub last: u64,
    /// The last record's term, if there is one.
    pub last_term: Option<u64>,
    /// A place up to which everything is known to be committed: the persisted cut.
    pub committed: u64,
}

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Role {
    /// It follows, or waits for a leader.
    #[default]
    Follower,
    /// It asks whether it would be elected.
    PreCandidate,
    /// It asks for votes.
    Candidate,
    /// It leads.
    Leader,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This member does not lead, or ceased to while the request waited.
    NotLeader,
    /// Another configuration is on its way.
    Busy,
    /// This member would not be electable in the new configuration.
    NotElectable,
    /// More than one voter would be added or removed.
    ManyVoters,
    /// A member's number does not follow from the configuration in force.
    BadNumbers,
    /// Nobody who could take over has caught up in time.
    NobodyCaughtUp,
}

/// A record that the door put into the log.
#[derive(Clone, Debug)]
pub struct Appended {
    /// Its place.
    pub index: u64,
    /// The door's term.
    pub term: u64,
    /// What it is.
    pub kind: Kind,
}

impl Appended {
    /// A record of data.
    pub fn plain(index: u64, term: u64) -> Appended {
        let kind = Kind::Plain;
        Appended { index, term, kind }
    }
}

/// What is to be done, in the order given.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Make the state durable before going on.
    Save(Box<LocalState>),
    /// Close the door; then tell the core of everything that it made ([`Core::appended`]), and then
    /// [`Core::door_closed`]. The core may defer messages that come in between until then, and their
    /// records have to be kept for as long.
    CloseDoor,
    /// Open the door with this term. If a place is given, the first record is an empty one at this
    /// place: append it before going on, and tell the core of it as of any other.
    OpenDoor {
        /// The term of all records from here on.
        term: u64,
        /// The place of the empty record; `None` if the door was open in this term before.
        no_op: Option<u64>,
    },
    /// Append these records to the log, as they came with the message just received. If that
    /// fails, this core is of no use any more: start again over what the log has.
    Append {
        /// The first.
        first: u64,
        /// The last.
        last: u64,
    },
    /// Put this record of a configuration through the door, and tell the core of it as of any other.
    Write(Arc<[u8]>),
    /// Send a message, with [`Message::records`].
    Send(Message),
    /// Everything up to here is committed.
    Committed(u64),
    /// What this member is, and whom it follows.
    Role {
        /// Its role.
        role: Role,
        /// In this term.
        term: u64,
        /// The leader, as far as it is known.
        leader: Option<MemberId>,
    },
    /// This configuration is in force.
    Config(Arc<InForce>),
    /// The read with this token sees everything that was acknowledged before it began if it sees
    /// this place.
    Readable {
        /// From [`Core::read`].
        token: u64,
        /// The place.
        index: u64,
    },
    /// The result of the request with this token.
    Outcome {
        /// The request's.
        token: u64,
        /// Done, or why not.
        result: Result<(), Refusal>,
    },
    /// A member needs records that this member's log no longer has.
    FarBehind(MemberId),
    /// This member needs records that the leader's log no longer has, or is new. It may be told
    /// again and again until this core is replaced by one over a copy of the set's data
    /// ([`LocalState::synced`]), which must be stopped before the copy takes the log's place.
    InitialSync {
        /// The leader.
        from: MemberId,
        /// The copy has to be as of this place or a later one: what this member acknowledged may
        /// reach so far.
        at_least: u64,
    },
    /// This core is done. Start the storage again, cut the log after this place, and begin with a
    /// new core.
    Restart {
        /// The last record to keep.
        cut_behind: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Closed,
    Open,
    /// [`Effect::CloseDoor`] was given, and [`Core::door_closed`] has not answered it yet.
    Closing,
}

/// The core of one member. See the module's head.
pub struct Core {
    node: RawNode<Shadow>,
    options: Options,
    draw: Draw,
    /// Ticks that were counted.
    now: u64,
    /// What the ticks are counted for.
    clock: Clock,
    /// Ticks without a leader until this member campaigns, drawn for this term and role.
    patience: u64,
    drawn_for: (u64, StateRole),
    /// Candidacies in a row that came to nothing.
    tries: u32,
    /// The leader that was followed has ended, as far as this member can see.
    gone: Option<MemberId>,
    frozen_until: u64,
    /// The request by which it is frozen.
    frozen_by: Option<u64>,
    /// What made this member ask for votes the last time.
    occasion: Occasion,
    /// Members that said they do not campaign; this one may be one of them.
    abstaining: BTreeSet<MemberId>,
    /// Members whose disks are full; this one may be one of them.
    full: BTreeSet<MemberId>,
    /// Until then a leader whose disk is full offers the leadership to nobody.
    room_after: u64,
    /// Members that are to get the log with a delay.
    late: BTreeSet<MemberId>,
    effects: VecDeque<Effect>,
    door: Door,
    /// The term with which the door is or was open.
    door_term: u64,
    deferred: VecDeque<RaftMessage>,
    /// The last record that the log has.
    in_log: u64,
    /// The last record that is durable in the log, as the driver says.
    synced: u64,
    /// The last record that is durable and that raft knows.
    durable: u64,
    /// Messages, each with the place up to which the log has to be durable before it may go.
    held: Vec<(u64, Message)>,
    /// Raft's batches that are not durable yet: number, last entry.
    batches: VecDeque<(u64, Option<u64>)>,
    /// Term and vote as they were saved.
    saved: (u64, MemberId),
    told_commit: u64,
    told_role: (Role, u64, u64),
    in_force: Arc<InForce>,
    members: Members,
    rollback_id: u64,
    pending: Option<Pending>,
    /// The request for a configuration that is committed, and after which votes still have to change.
    unanswered: Vec<u64>,
    transfer: Option<Transfer>,
    takeover_after: u64,
    /// This member is an arbiter, or was one before it was removed.
    arbiter: bool,
    /// What a member that begins anew waits for, and what is held back for such a member.
    anew: Anew,
    /// The number by which an arbiter without a state is told that it may begin; 0: none.
    nonce: u64,
    /// What arbiters have, as this member knows since it leads.
    told: BTreeMap<MemberId, arbiter::Told>,
    /// Until then late members do not become voters before others that are to.
    prompt_first: u64,
    /// How often the leadership was offered to a better member in this term.
    offers: u32,
    halted: bool,
    #[cfg(test)]
    pub(crate) bugs: crate::tests::Bugs,
}

impl Core {
    /// Begins with what was remembered and what the log has.
    ///
    /// # Errors
    /// If the two do not fit together.
    pub fn start(options: Options, state: LocalState, log: LogEnds) -> Result<Core, Fatal> {
        let (last, base) = (log.last, log.first.saturating_sub(1));
        let inconsistent = |what| Err(Fatal::Inconsistent(what));
        if state.cut.is_some_and(|behind| last > behind) {
            return inconsistent("the log is not cut as it has to be");
        }
        let committed = state.commit.max(log.committed);
        if committed > last {
            return Err(Fatal::Lost { committed, last });
        }
        // What was committed and is older than the log is in the persisted cut.
        let committed = committed.max(base);
        let mut in_force = state.in_force.clone();
        // The configuration in force may be ahead of the log: its changes are skipped when they come again.
        let (missed, to) = (in_force.index + 1.., committed.max(state.known));
        for (index, record) in state.configs.range(missed).take_while(|c| *c.0 <= to) {
            match ConfigRecord::decode(record) {
                Some(record) => in_force.apply(*index, record),
                None => return inconsistent("a record of a configuration is damaged"),
            }
        }
        let hard = HardState {
            term: state.term,
            vote: state.vote,
            commit: committed,
            ..HardState::default()
        };
        let conf = ConfState {
            voters: in_force.voters.iter().copied().collect(),
            learners: in_force.learners.iter().copied().collect(),
            ..ConfState::default()
        };
        let shadow = Shadow::new((base, last), state.terms, state.configs, hard, conf);
        let Some(shadow) = shadow else {
            return inconsistent("the terms of the log are not known");
        };
        if log
            .last_term
            .is_some_and(|t| shadow.term_of(last) != Some(t))
        {
            return inconsistent("the log ends with a record of another term than is known");
        }
        let config = raft::Config {
            id: state.id,
            election_tick: clock::EXPIRED,
            heartbeat_tick: 1,
            applied: committed,
            // Zero would mean one entry; the shadow limits their number.
            max_size_per_msg: raft::NO_LIMIT,
            max_committed_size_per_ready: 0,
            max_inflight_msgs: WINDOW,
            check_quorum: true,
            pre_vote: true,
            min_election_tick: NEVER,
            max_election_tick: NEVER + 1,
            batch_append: true,
            ..raft::Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let Ok(node) = RawNode::new(&config, shadow, &logger) else {
            return inconsistent("the state is none that raft can begin with");
        };
        let in_force = Arc::new(in_force);
        let mut core = Core {
            anew: Anew::new(state.waits, committed, node.store().term_of(committed)),
            node,
            options,
            draw: Draw::new(options.seed),
            now: 0,
            clock: Clock::default(),
            patience: 0,
            drawn_for: (0, StateRole::Leader),
            tries: 0,
            gone: None,
            frozen_until: 0,
            frozen_by: None,
            occasion: Occasion::default(),
            abstaining: BTreeSet::new(),
            full: BTreeSet::new(),
            room_after: 0,
            late: BTreeSet::new(),
            effects: VecDeque::new(),
            door: Door::Closed,
            door_term: 0,
            deferred: VecDeque::new(),
            in_log: last,
            synced: last,
            durable: last,
            held: Vec::new(),
            batches: VecDeque::new(),
            saved: (state.term, state.vote),
            told_commit: committed,
            told_role: (Role::Follower, 0, 0),
            members: Members::new(state.id, Position::all(last), in_force.clone()),
            in_force: in_force.clone(),
            rollback_id: state.rollback_id,
            pending: None,
            unanswered: Vec::new(),
            transfer: None,
            takeover_after: 0,
            arbiter: in_force.config.is_arbiter(state.id),
            nonce: 0,
            told: BTreeMap::new(),
            prompt_first: 0,
            offers: 0,
            halted: false,
            #[cfg(test)]
            bugs: crate::tests::Bugs::default(),
        };
        if state.cut.is_some() {
            // The cut is made, so the note of it is removed.
            core.save(None);
        }
        core.effects
            .extend([Effect::Config(in_force), Effect::Committed(committed)]);
        core.settle();
        Ok(core)
    }

    /// The next thing to do.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// A message came.
    ///
    /// # Errors
    /// This member's log cannot go on with the set's; the core does nothing any more.
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
                // All up to there is here, and committed, as the leader would not have trimmed it
                // otherwise. What follows may have been acknowledged, and must be kept. This member's
                // own log may begin later still.
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

    /// The door put these records into the log, in this order.
    pub fn appended(&mut self, records: Vec<Appended>) {
        if self.halted {
            return;
        }
        let mut run = Vec::new();
        for record in records {
            let (index, last) = (record.index, self.raft_last() + run.len() as u64);
            let in_order = index == self.in_log + 1 && record.term == self.door_term;
            // The empty record with which a term begins is one that raft has made itself.
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
            // Raft refused a record that the log has.
            self.give_up(self.raft_last());
            return;
        }
        self.settle_raft();
        self.settle_durable();
        self.settle();
    }

    /// The log is durable up to this place; also of records that the door made and did not tell yet.
    pub fn persisted(&mut self, index: u64) {
        if self.halted {
            return;
        }
        self.synced = self.synced.max(index);
        self.settle_durable();
        self.settle();
    }

    /// Tells raft of what is durable, as far as it has heard of it.
    fn settle_durable(&mut self) {
        let shadow = self.node.store();
        let index = self.synced.min(shadow.last()).min(self.in_log);
        let Some(term) = shadow.term_of(index).filter(|_| index > self.durable) else {
            return;
        };
        self.durable = index;
        self.node.raft.on_persist_entries(index, term);
        self.finish_batches();
        // What is committed by that is in force, and saved, before an acknowledgement leaves this member.
        self.settle_raft();
        if !self.halted {
            self.release_held();
        }
    }

    /// The door is closed, and the core was told of everything that it made.
    ///
    /// # Errors
    /// As [`Core::receive`].
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

    /// A member, or this one, tells how far it is.
    pub fn report(&mut self, member: MemberId, report: Report) {
        if self.halted {
            return;
        }
        let position = report.position;
        // Records of the same place and term are the same, and so are all before them. A member in this
        // term no longer gives up anything that it has in common with its leader.
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

    /// The way to a member, or the one back, is open now: what was sent on it before is lost, and a leader
    /// sends again what the member has not acknowledged, instead of with the next heartbeats.
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

    /// A member is being synced anew, so that what it has does not count; or is no longer being synced. What
    /// it acknowledged before is gone with its data, so a leader forgets that, too.
    pub fn syncing(&mut self, member: MemberId, syncing: bool) {
        match syncing {
            true if self.members.is_syncing(member) => {}
            true => self.forget(member),
            false => self.members.syncing(member, false),
        }
    }

    /// What a member had acknowledged is gone, and it is about to be synced anew.
    pub fn forget(&mut self, member: MemberId) {
        self.members.syncing(member, true);
        if self.leads()
            && let Some(progress) = self.node.raft.mut_prs().get_mut(member)
        {
            progress.matched = 0;
            progress.become_probe();
        }
    }

    /// A member is to get the log with a delay, and if `now` it does: what is sent to it before it is due is
    /// lost on the way and asked for again, so that one message on its way is enough.
    pub fn delayed(&mut self, member: MemberId, delayed: bool, now: bool) {
        match delayed {
            true => self.late.insert(member),
            false => self.late.remove(&member),
        };
        let window = if now { 1 } else { WINDOW };
        self.node.raft.adjust_max_inflight_msgs(member, window);
    }

    /// The log begins here now.
    pub fn trimmed(&mut self, first: u64) {
        if !self.halted {
            self.node.mut_store().trim(first);
        }
    }

    /// Asks for the place that a linearizable read has to see; the answer is an
    /// [`Effect::Readable`]. False if this member does not lead, or has committed nothing in its
    /// term yet.
    pub fn read(&mut self, token: u64) -> bool {
        if self.halted || !self.leads() || !self.node.raft.commit_to_current_term() {
            return false;
        }
        self.node.read_index(bytes_of(token));
        self.settle();
        true
    }

    /// Which member this is.
    pub fn id(&self) -> MemberId {
        self.node.raft.id
    }

    /// The newest term it knows.
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// What it is.
    pub fn role(&self) -> Role {
        match self.node.raft.state {
            StateRole::Follower => Role::Follower,
            StateRole::PreCandidate => Role::PreCandidate,
            StateRole::Candidate => Role::Candidate,
            StateRole::Leader => Role::Leader,
        }
    }

    /// Whom it follows.
    pub fn leader(&self) -> Option<MemberId> {
        let id = self.node.raft.leader_id;
        (id != 0).then_some(id)
    }

    /// Everything up to here is committed.
    pub fn committed(&self) -> u64 {
        self.node.raft.raft_log.committed
    }

    /// The configuration changes of all records up to here are in force.
    pub fn applied(&self) -> u64 {
        self.node.raft.raft_log.applied
    }

    /// The end of the log.
    pub fn last(&self) -> u64 {
        self.raft_last()
    }

    /// The term of the record at a place of the log.
    pub fn term_of(&self, index: u64) -> Option<u64> {
        self.node.store().term_of(index)
    }

    /// The record at a place of the log changes the configuration.
    pub fn is_config(&self, index: u64) -> bool {
        self.node.store().configs().contains_key(&index)
    }

    /// Whether the records of this message follow on the log or are in it already, so that nothing of the
    /// log has to be given up for them.
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

    /// How far the members are, as far as it was told.
    pub fn members(&self) -> &Members {
        &self.members
    }

    fn leads(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    fn raft_last(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }

    /// Whether raft, given this message, would cease to lead, or might.
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
            // A leader never sent a place that its log does not have, nor any place to an arbiter. So what
            // acknowledges one is ignored.
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
            // A message that raft refuses changes nothing.
            let _ = self.node.step(message);
        }
        #[cfg(test)]
        self.bugs.after_step(&mut self.node);
        Ok(())
    }

    /// Finds a leader's message that contradicts what is committed here, before raft panics at it. A member
    /// sees such messages when its data was lost or swapped.
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
            // Raft looks for the place where the logs part, and cannot find it if that comes before what is
            // committed here.
            MessageType::MsgAppend if m.index >= log.committed => {
                match log.term(log.committed).is_ok_and(|t| m.log_term < t) {
                    true => Err(Fatal::Diverged { index: m.index }),
                    false => Ok(()),
                }
            }
            MessageType::MsgAppend => {
                // Raft answers without looking at the entries, so this check only detects a difference.
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

    /// Gives raft entries that the log has already; one that changes the configuration comes alone.
    /// What raft refuses is missing from its log, which [`Core::appended`] finds.
    fn propose(&mut self, entries: Vec<RaftEntry>) {
        let Some(first) = entries.first() else {
            return;
        };
        if !self.leads() {
            // This member ceased to lead while the door was closing, and raft's log got nothing since: the
            // entries are taken as if they had been proposed just before.
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

    /// What to remember, as of now.
    fn local_state(&self, cut: Option<u64>) -> LocalState {
        let (raft, shadow) = (&self.node.raft, self.node.store());
        let vote = raft.vote;
        #[cfg(test)]
        let vote = self.bugs.vote_to_save(vote, self.arbiter);
        LocalState {
            id: raft.id,
            term: raft.term,
            vote,
            // Applied is committed and durable here, and what it changed is in force.
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

    /// The log has to be cut after `index`, and this core is done.
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
        // Others may be better now.
        self.offers = 0;
        self.let_prompt_first();
        let soon = self.now.saturating_add(self.times().election);
        self.takeover_after = self.takeover_after.min(soon);
        let last = self.raft_last().max(self.in_log);
        self.members.configure(self.in_force.clone(), last);
        Effect::Config(self.in_force.clone())
    }
}
