//! What a member has for itself alone: the collections of `local` that show it.

use super::ReplicaSet;
use super::config::COLLECTION;
use muniment_value::{DocBuf, doc};

const ELECTION: &str = "local.replset.election";

/// The documents of one of the member's own collections.
pub fn documents(set: &ReplicaSet, namespace: &str) -> Vec<DocBuf> {
    match namespace {
        COLLECTION => set
            .member()
            .config
            .map(|c| c.to_doc())
            .into_iter()
            .collect(),
        ELECTION => vote(set).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn vote(set: &ReplicaSet) -> Option<DocBuf> {
    let member = set.member();
    member.config.as_ref()?;
    let node = set.node()?;
    let members = node.members();
    let index = |id| {
        let all = &members.in_force().config.members;
        all.iter().position(|m| m.id == id)
    };
    let leader = member.leader.and_then(index).map_or(-1, |n| n as i64);
    Some(doc! { "_id": "lastVote", "term": member.term, "candidateIndex": leader })
}
