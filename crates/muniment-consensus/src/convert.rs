//! Conversions between [`Message`] and raft's own messages.

use crate::message::{Body, Entry, Message};
use crate::shadow::{kind, to_raft};
use raft::eraftpb::{self, MessageType};

/// The context that raft writes into a request for a vote when the leader asked for the campaign.
const TRANSFER: &[u8] = b"CampaignTransfer";

/// Converts to raft's message; `None` for a kind that raft does not know.
pub(crate) fn into_raft(message: Message) -> Option<eraftpb::Message> {
    let mut m = eraftpb::Message {
        from: message.from,
        to: message.to,
        term: message.term,
        ..eraftpb::Message::default()
    };
    let kind = take_body(&mut m, message.body)?;
    m.set_msg_type(kind);
    Some(m)
}

/// Puts what a message says into raft's message. Returns raft's name for the kind of the message; `None` if raft
/// does not know it.
fn take_body(m: &mut eraftpb::Message, body: Body) -> Option<MessageType> {
    Some(match body {
        Body::Append {
            index,
            log_term,
            commit,
            entries,
        } => {
            (m.index, m.log_term, m.commit) = (index, log_term, commit);
            m.entries = entries.into_iter().map(to_raft).collect();
            MessageType::MsgAppend
        }
        Body::AppendReply {
            index,
            commit,
            reject,
        } => {
            (m.index, m.commit) = (index, commit);
            m.reject = reject.is_some();
            (m.reject_hint, m.log_term) = reject.unwrap_or_default();
            MessageType::MsgAppendResponse
        }
        Body::Vote {
            preliminary,
            index,
            log_term,
            commit,
            commit_term,
            transfer,
        } => {
            (m.index, m.log_term) = (index, log_term);
            (m.commit, m.commit_term) = (commit, commit_term);
            if transfer {
                m.context = TRANSFER.to_vec().into();
            }
            match preliminary {
                true => MessageType::MsgRequestPreVote,
                false => MessageType::MsgRequestVote,
            }
        }
        Body::VoteReply {
            preliminary,
            reject,
            commit,
            commit_term,
        } => {
            (m.reject, m.commit, m.commit_term) = (reject, commit, commit_term);
            match preliminary {
                true => MessageType::MsgRequestPreVoteResponse,
                false => MessageType::MsgRequestVoteResponse,
            }
        }
        Body::Heartbeat { commit, token } => {
            m.commit = commit;
            m.context = token.map_or(Vec::new(), bytes_of).into();
            MessageType::MsgHeartbeat
        }
        Body::HeartbeatReply { commit, token } => {
            m.commit = commit;
            m.context = token.map_or(Vec::new(), bytes_of).into();
            MessageType::MsgHeartbeatResponse
        }
        Body::TimeoutNow => MessageType::MsgTimeoutNow,
        Body::Trimmed { .. } | Body::Inform { .. } | Body::Informed { .. } => return None,
    })
}

/// Converts from raft's message; `None` for a kind that the core never makes raft send.
pub(crate) fn from_raft(mut m: eraftpb::Message) -> Option<Message> {
    let token = token_of(&m.context);
    let body = match m.get_msg_type() {
        MessageType::MsgAppend => Body::Append {
            index: m.index,
            log_term: m.log_term,
            commit: m.commit,
            entries: m.take_entries().into_iter().map(from_entry).collect(),
        },
        MessageType::MsgAppendResponse => Body::AppendReply {
            index: m.index,
            commit: m.commit,
            reject: m.reject.then_some((m.reject_hint, m.log_term)),
        },
        t @ (MessageType::MsgRequestVote | MessageType::MsgRequestPreVote) => Body::Vote {
            preliminary: t == MessageType::MsgRequestPreVote,
            index: m.index,
            log_term: m.log_term,
            commit: m.commit,
            commit_term: m.commit_term,
            transfer: m.context == TRANSFER,
        },
        t @ (MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse) => {
            Body::VoteReply {
                preliminary: t == MessageType::MsgRequestPreVoteResponse,
                reject: m.reject,
                commit: m.commit,
                commit_term: m.commit_term,
            }
        }
        MessageType::MsgHeartbeat => Body::Heartbeat {
            commit: m.commit,
            token,
        },
        MessageType::MsgHeartbeatResponse => Body::HeartbeatReply {
            commit: m.commit,
            token,
        },
        MessageType::MsgTimeoutNow => Body::TimeoutNow,
        _ => return None,
    };
    Some(Message {
        from: m.from,
        to: m.to,
        term: m.term,
        body,
    })
}

fn from_entry(e: eraftpb::Entry) -> Entry {
    Entry {
        index: e.index,
        term: e.term,
        kind: kind(&e),
    }
}

/// A read's token as raft carries it.
pub(crate) fn bytes_of(token: u64) -> Vec<u8> {
    token.to_le_bytes().to_vec()
}

pub(crate) fn token_of(context: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(context.try_into().ok()?))
}
