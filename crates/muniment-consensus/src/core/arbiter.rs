//! Arbiters: members that vote and store nothing.
//!
//! To raft an arbiter is a voter whose log stays empty: the leader sends it heartbeats and no entries, so it
//! acknowledges nothing, and a committed record is at a majority of all voters, each of which has data. The
//! arbiter votes as raft lets a voter with an empty log vote: for any candidate, once in a term. A candidate
//! without a committed record cannot win by that: its majority and the one that has the record share a
//! member, which has data and refuses its vote.
//!
//! An arbiter does not get the log, so the leader tells it the configuration in force
//! ([`Body::Inform`]) until the arbiter says that it has it ([`Body::Informed`]). The arbiter needs it to
//! know which set it belongs to and where the others are; its votes do not depend on it.
//!
//! **An arbiter without a state**, which is new or has lost its directory, may have forgotten how it voted.
//! It takes part in nothing before the leader has had a record committed that was made after the arbiter said
//! that it has nothing. A candidate that got the forgotten vote had asked for it before, without that record,
//! and a majority that includes a member with the record never elects such a candidate. Each time the arbiter
//! begins without a state it draws another number, so that messages of an earlier time are recognized.

use super::{Core, Door, Effect, Fatal};
use crate::config::{InForce, MemberId};
use crate::convert::into_raft;
use crate::message::{Body, Message};

/// What the leader knows of one arbiter.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// The version of its configuration and the place up to which that was made; `None`: it has not told yet.
    has: Option<(u64, u64)>,
    /// `Some` if it has nothing: its number, and the end of the log when it said so.
    empty: Option<(u64, u64)>,
    /// When to tell it the configuration again, in ticks.
    next: u64,
}

/// The order in which configurations in force follow each other.
fn age(in_force: &InForce) -> (u64, u64) {
    (in_force.config.version, in_force.index)
}

/// Whether the message may be sent to an arbiter. Messages about the log may not.
pub(super) fn is_for_arbiters(message: &Message) -> bool {
    match message.body {
        Body::Append { .. } | Body::Trimmed { .. } | Body::TimeoutNow => false,
        Body::AppendReply { .. }
        | Body::Vote { .. }
        | Body::VoteReply { .. }
        | Body::Heartbeat { .. }
        | Body::HeartbeatReply { .. }
        | Body::Inform { .. }
        | Body::Informed { .. } => true,
    }
}

impl Core {
    /// Whether this member, or another one, is an arbiter.
    pub fn is_arbiter(&self, id: MemberId) -> bool {
        self.in_force.config.is_arbiter(id) || id == self.id() && self.arbiter
    }

    /// Whether this member is an arbiter that has no state yet, and so takes part in nothing.
    pub fn is_empty_arbiter(&self) -> bool {
        self.arbiter && self.in_force.voters.is_empty()
    }

    /// Whether an arbiter answers and has a configuration, so that it can vote.
    pub(super) fn has_begun(&self, id: MemberId) -> bool {
        let told = self.told.get(&id);
        let begun = told.is_some_and(|t| t.has.is_some() && t.empty.is_none());
        let progress = self.node.raft.prs().get(id);
        begun && progress.is_some_and(|p| p.recent_active)
    }

    /// Sends the arbiters what they do not have yet, as often as a leader sends heartbeats.
    pub(super) fn inform_arbiters(&mut self) {
        if self.halted || !self.leads() {
            return;
        }
        let members = self.in_force.config.members.iter();
        let arbiters: Vec<_> = members.filter(|m| m.arbiter).map(|m| m.id).collect();
        self.told.retain(|id, _| arbiters.contains(id));
        for id in arbiters {
            let mut told = self.told.get(&id).copied().unwrap_or_default();
            let nonce = match told.empty {
                None if told.has.is_some_and(|has| has >= age(&self.in_force)) => continue,
                None => 0,
                Some((nonce, mark)) if self.committed() > mark => nonce,
                Some((_, mark)) => {
                    // A record has to be committed, and perhaps no client is writing, so the leader makes
                    // one.
                    if self.raft_last() == mark && self.in_log == mark && self.may_configure() {
                        let config = self.in_force.config.clone();
                        self.write_config(None, None, config);
                    }
                    continue;
                }
            };
            if self.now >= told.next {
                told.next = self.now + self.times().heartbeat;
                self.told.insert(id, told);
                let in_force = self.in_force.to_bytes().into();
                self.say(id, self.term(), Body::Inform { nonce, in_force });
            }
        }
    }

    /// Notes what an arbiter has said that it has.
    pub(super) fn informed(&mut self, message: &Message) {
        let Body::Informed {
            nonce,
            version,
            index,
        } = message.body
        else {
            return;
        };
        if !self.leads() || message.term != self.term() || !self.is_arbiter(message.from) {
            return;
        }
        let mark = self.raft_last().max(self.in_log);
        let told = self.told.entry(message.from).or_default();
        match nonce {
            0 => {
                told.empty = None;
                told.has = Some((version, index));
            }
            _ if told.empty.is_some_and(|(known, _)| known == nonce) => {}
            _ => {
                *told = Told {
                    empty: Some((nonce, mark)),
                    ..Told::default()
                };
            }
        }
    }

    fn say(&mut self, to: MemberId, term: u64, body: Body) {
        let from = self.id();
        let message = Message {
            from,
            to,
            term,
            body,
        };
        self.effects.push_back(Effect::Send(message));
    }

    /// Takes a message that has come to an arbiter, as [`Core::receive`] does for other members.
    pub(super) fn receive_as_arbiter(&mut self, message: Message) -> Result<(), Fatal> {
        let (from, term) = (message.from, message.term);
        let waits = self.is_empty_arbiter();
        #[cfg(test)]
        let waits = waits && !(self.bugs.empty_arbiters_vote && message.asks_for_vote());
        if waits {
            self.receive_without_state(message);
            return Ok(());
        }
        let (message, news) = match message.body {
            // An arbiter takes no part in the log, nor does it lead.
            Body::Append { .. } | Body::Trimmed { .. } | Body::TimeoutNow => return Ok(()),
            Body::Informed { .. } => return Ok(()),
            Body::Inform { in_force, .. } => {
                // For raft the message counts as a heartbeat, since only a leader sends it.
                let (commit, token) = (0, None);
                let body = Body::Heartbeat { commit, token };
                (Message { body, ..message }, Some(in_force))
            }
            _ => (message, None),
        };
        let Some(message) = into_raft(message) else {
            return Ok(());
        };
        debug_assert!(self.door == Door::Closed, "an arbiter never leads");
        self.step(message)?;
        self.settle();
        if let Some(bytes) = news
            && self.term() == term
            && self.leader() == Some(from)
        {
            self.take_told(&bytes);
            self.say_what_it_has(from, term);
        }
        Ok(())
    }

    /// Answers the leader with the configuration that this arbiter has.
    fn say_what_it_has(&mut self, leader: MemberId, term: u64) {
        let (version, index) = age(&self.in_force);
        let nonce = 0;
        let body = Body::Informed {
            nonce,
            version,
            index,
        };
        self.say(leader, term, body);
    }

    /// Takes over a configuration that is newer than this arbiter's.
    fn take_told(&mut self, bytes: &[u8]) {
        let told = InForce::of_bytes(bytes).filter(|told| !told.voters.is_empty());
        let Some(told) = told.filter(|told| age(told) > age(&self.in_force)) else {
            return;
        };
        let effect = self.set_in_force(told);
        self.save(None);
        self.effects.push_back(effect);
    }

    /// Tells a leader that this arbiter has no state, and begins when the leader says that it may.
    fn receive_without_state(&mut self, message: Message) {
        if !message.is_of_leader() {
            return;
        }
        while self.nonce == 0 {
            self.nonce = self.draw.below(u64::MAX);
        }
        let (from, term, mine) = (message.from, message.term, self.nonce);
        if let Body::Inform { nonce, in_force } = message.body {
            let told = InForce::of_bytes(&in_force).filter(|told| !told.voters.is_empty());
            if let Some(told) = told.filter(|_| nonce == mine) {
                // If the arbiter has forgotten a vote of this term, that vote was for the leader of the term.
                let raft = &mut self.node.raft;
                raft.become_follower(term, from);
                raft.vote = from;
                let effect = self.set_in_force(told);
                self.save(None);
                self.effects.push_back(effect);
                self.settle();
                self.say_what_it_has(from, term);
                return;
            }
        }
        let (nonce, version, index) = (mine, 0, 0);
        let body = Body::Informed {
            nonce,
            version,
            index,
        };
        self.say(from, term, body);
    }
}
