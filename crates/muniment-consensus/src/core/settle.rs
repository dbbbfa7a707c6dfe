//! Turns raft's output into effects, in the right order.
//!
//! For each of raft's batches, the door is closed if the leadership has ended. Then the state is saved if
//! there is something new to remember; the role is told and the door opened; records are appended (a leader's
//! log already has them); the commit point moves; and the messages are sent, except that a message which
//! claims that something is durable waits until it is.

use super::{Core, Door, Effect, arbiter};
use crate::config::{Change, ConfigRecord};
use crate::convert::{from_raft, token_of};
use crate::message::{Body, Kind, Message};
use crate::shadow::kind;
use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2, Entry as RaftEntry};

impl Core {
    /// Repeats until neither raft nor the code that is built on it has anything more to do.
    pub(super) fn settle(&mut self) {
        loop {
            self.settle_raft();
            if self.halted || !self.arrange() {
                return;
            }
        }
    }

    pub(super) fn settle_raft(&mut self) {
        while !self.halted && self.node.has_ready() {
            self.batch();
        }
        let raft = &self.node.raft;
        let now = (raft.term, raft.state);
        if self.drawn_for != now {
            self.begin_role(now);
        }
        // An arbiter is never sent the records that it lacks, nor is a member that has just been removed.
        let behind = self.node.store().take_behind();
        for member in behind {
            if self.is_arbiter(member) || self.node.raft.prs().get(member).is_none() {
                continue;
            }
            let index = self.node.store().base();
            let log_term = self.node.store().term_of(index).unwrap_or_default();
            let message = Message {
                from: self.id(),
                to: member,
                term: self.term(),
                body: Body::Trimmed { index, log_term },
            };
            self.effects.push_back(Effect::FarBehind(member));
            self.effects.push_back(Effect::Send(message));
        }
    }

    fn batch(&mut self) {
        let mut ready = self.node.ready();
        let entries = ready.take_entries();
        let mut messages = ready.take_messages();
        messages.extend(ready.take_persisted_messages());
        let committed = ready.take_committed_entries();
        let reads = ready.take_read_states();

        let leads = self.leads();
        if !leads && self.door == Door::Open {
            self.close_door();
        }
        if let Some(first) = entries.first().map(|e| e.index)
            && first <= self.node.store().last()
        {
            self.give_up(first - 1);
            return;
        }
        let last = entries.last().map(|e| e.index);
        let mut news = self.node.mut_store().append(&entries);
        let number = ready.number();
        self.node.advance_append_async(ready);
        self.batches.push_back((number, last));
        self.finish_batches();

        let announced = self.apply(committed);
        news |= !announced.is_empty();
        news |= self.note_committed();
        news |= self.saved != (self.node.raft.term, self.node.raft.vote);
        if news {
            self.save(None);
        }
        self.effects.extend(announced);
        self.tell_role();
        if leads && self.door == Door::Closed && self.door_term != self.term() {
            self.open_door(last);
        }
        if let Some(last) = last
            && !leads
            && last > self.in_log
        {
            let first = self.in_log + 1;
            self.effects.push_back(Effect::Append { first, last });
            self.in_log = last;
        }
        let commit = self.committed();
        if commit > self.told_commit {
            self.told_commit = commit;
            self.effects.push_back(Effect::Committed(commit));
        }
        for read in reads {
            if let Some(token) = token_of(&read.request_ctx) {
                let index = read.index;
                self.effects.push_back(Effect::Readable { token, index });
            }
        }
        for message in messages.into_iter().filter_map(from_raft) {
            self.send(message);
        }
    }

    /// Puts the changes of the configuration in these committed entries in force, and returns the effects
    /// that announce them.
    fn apply(&mut self, committed: Vec<RaftEntry>) -> Vec<Effect> {
        let mut told = Vec::new();
        let Some(last) = committed.last().map(|e| e.index) else {
            return told;
        };
        for entry in committed {
            let Kind::Config(bytes) = kind(&entry) else {
                continue;
            };
            // The member that put the record into the log had it checked. If it cannot be read all the same,
            // it changes nothing, on any member.
            let Some(record) = ConfigRecord::decode(&bytes) else {
                continue;
            };
            // Raft refuses a change that would leave no voter; then nothing changes here, either.
            let mut steps = self.in_force.steps(&record).into_iter();
            if steps.any(|step| self.node.apply_conf_change(&raft_change(step)).is_err()) {
                continue;
            }
            let mut in_force = (*self.in_force).clone();
            in_force.apply(entry.index, record);
            told.push(self.set_in_force(in_force));
            told.extend(self.config_done(entry.index));
        }
        self.node.advance_apply_to(last);
        told
    }

    fn tell_role(&mut self) {
        let (role, term) = (self.role(), self.term());
        let now = (role, term, self.node.raft.leader_id);
        if self.told_role != now {
            self.told_role = now;
            let leader = self.leader();
            self.effects.push_back(Effect::Role { role, term, leader });
        }
    }

    /// Sends a message as soon as the records that it vouches for are durable.
    fn send(&mut self, message: Message) {
        if self.is_arbiter(message.to) && !arbiter::is_for_arbiters(&message) {
            return;
        }
        let needs = match &message.body {
            Body::AppendReply {
                index,
                reject: None,
                ..
            } => *index,
            // A candidate that is elected leads with its whole log, and raft relies on that being durable.
            Body::Vote { .. } => self.raft_last(),
            _ => 0,
        };
        #[cfg(test)]
        let needs = if self.bugs.acknowledge_early {
            0
        } else {
            needs
        };
        match needs > self.durable {
            true => self.held.push((needs, message)),
            false => self.effects.push_back(Effect::Send(message)),
        }
    }

    pub(super) fn release_held(&mut self) {
        let (term, durable) = (self.term(), self.durable);
        // Messages of an older term are dropped, since no member can use them any more.
        let held = std::mem::take(&mut self.held);
        for (needs, message) in held.into_iter().filter(|(_, m)| m.term >= term) {
            match needs > durable {
                true => self.held.push((needs, message)),
                false => self.effects.push_back(Effect::Send(message)),
            }
        }
    }

    /// Tells raft which of its batches are durable, in order.
    pub(super) fn finish_batches(&mut self) {
        while let Some((number, last)) = self.batches.front().copied()
            && last.is_none_or(|last| last <= self.durable)
        {
            self.batches.pop_front();
            self.node.on_persist_ready(number);
        }
    }
}

/// A change in raft's form.
pub(super) fn raft_change(change: Change) -> ConfChangeV2 {
    let (kind, node_id) = match change {
        Change::Voter(id) => (ConfChangeType::AddNode, id),
        Change::Learner(id) => (ConfChangeType::AddLearnerNode, id),
        Change::Remove(id) => (ConfChangeType::RemoveNode, id),
    };
    let mut single = ConfChangeSingle {
        node_id,
        ..ConfChangeSingle::default()
    };
    single.set_change_type(kind);
    ConfChangeV2 {
        changes: vec![single].into(),
        ..ConfChangeV2::default()
    }
}
