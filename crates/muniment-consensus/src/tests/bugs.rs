//! Bugs that are put in on purpose, to show that the simulator finds them.
//!
//! Raft's own code is not changed. Instead, its messages are falsified before it gets them, or its commit
//! point afterwards.

use crate::config::{InForce, MemberId};
use crate::shadow::Shadow;
use raft::eraftpb::{Message, MessageType};
use raft::{RawNode, StateRole};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bugs {
    /// Records are acknowledged before they are durable.
    pub acknowledge_early: bool,
    /// A record that a member has is taken for the leader's, whatever its term.
    pub ignore_terms: bool,
    /// A vote is forgotten while there is no leader.
    pub forget_votes: bool,
    /// Records that a majority has are committed, even those of an older term.
    pub commit_old_terms: bool,
    /// Any answer of an arbiter counts as an acknowledgement.
    pub arbiters_acknowledge: bool,
    /// An arbiter does not remember which member it voted for.
    pub arbiters_forget_votes: bool,
    /// An arbiter without a state votes.
    pub empty_arbiters_vote: bool,
    /// An arbiter may stand for election.
    pub arbiters_stand: bool,
    /// A member that has lost its disk votes and stands as soon as it is filled.
    pub waits_for_nothing: bool,
}

impl Bugs {
    pub(crate) fn before_step(
        self,
        node: &RawNode<Shadow>,
        in_force: &InForce,
        mut m: Message,
    ) -> Message {
        let answers = m.get_msg_type() == MessageType::MsgHeartbeatResponse;
        if self.arbiters_acknowledge && answers && in_force.config.is_arbiter(m.from) {
            m.set_msg_type(MessageType::MsgAppendResponse);
            m.index = node.raft.raft_log.last_index();
        }
        if self.ignore_terms && m.get_msg_type() == MessageType::MsgAppend {
            let log = &node.raft.raft_log;
            if m.index <= log.last_index() {
                m.log_term = log.term(m.index).unwrap_or(m.log_term);
            }
            for e in m.mut_entries().iter_mut() {
                if e.index <= log.last_index() {
                    e.term = log.term(e.index).unwrap_or(e.term);
                }
            }
        }
        m
    }

    pub(crate) fn vote_to_save(self, vote: MemberId, arbiter: bool) -> MemberId {
        match arbiter && self.arbiters_forget_votes {
            true => 0,
            false => vote,
        }
    }

    pub(crate) fn after_step(self, node: &mut RawNode<Shadow>) {
        if self.forget_votes && node.raft.state == StateRole::Follower && node.raft.leader_id == 0 {
            node.raft.vote = 0;
        }
        if self.commit_old_terms && node.raft.state == StateRole::Leader {
            let (counted, _) = node.raft.mut_prs().maximal_committed_index();
            let log = &mut node.raft.raft_log;
            if counted > log.committed && counted <= log.last_index() {
                log.commit_to(counted);
            }
        }
    }
}
