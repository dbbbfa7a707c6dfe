//! Known bugs, put in on purpose, to see that the simulator finds them.
//!
//! What is raft's own is bent from outside: its messages before it sees them, its commit point
//! after.

use crate::shadow::Shadow;
use raft::eraftpb::{Message, MessageType};
use raft::{RawNode, StateRole};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bugs {
    /// Records are acknowledged before they are durable.
    pub acknowledge_early: bool,
    /// A record that is there is taken for the leader's, whatever its term.
    pub ignore_terms: bool,
    /// What a majority has is committed, also where it is of an older term.
    pub commit_old_terms: bool,
}

impl Bugs {
    pub fn before_step(self, node: &RawNode<Shadow>, mut m: Message) -> Message {
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

    pub fn after_step(self, node: &mut RawNode<Shadow>) {
        if self.commit_old_terms && node.raft.state == StateRole::Leader {
            let (counted, _) = node.raft.mut_prs().maximal_committed_index();
            let log = &mut node.raft.raft_log;
            if counted > log.committed && counted <= log.last_index() {
                log.commit_to(counted);
            }
        }
    }
}
