//! The messages between members: raft's messages without payloads, and their encoding.
//!
//! Here, an entry of the log is only its place, its term and, if it changes the configuration, the record of
//! that change; the transport sends the records themselves next to the message ([`Message::records`]).
//!
//! Must not trust bytes from outside: a decoded message is well-formed, so that raft does not panic at its
//! mere shape ([`Message::is_sound`]). The core detects messages that contradict this member's own log.

use crate::bytes::{Reader, Writer};
use crate::config::MemberId;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The kind of an entry of the log, as far as the core distinguishes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A record of data, or an empty record.
    Plain,
    /// A change of the configuration, as the bytes of a [`ConfigRecord`](crate::ConfigRecord).
    Config(Arc<[u8]>),
}

/// The shadow of one record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the log.
    pub index: u64,
    /// The term of the leader that made it.
    pub term: u64,
    /// The kind of the record.
    pub kind: Kind,
}

/// A message from one member to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The sender.
    pub from: MemberId,
    /// The receiver.
    pub to: MemberId,
    /// The sender's term; for a preliminary vote, the term that it would campaign for.
    pub term: u64,
    /// The content.
    pub body: Body,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Carries the leader's entries after the place `index`, whose term is `log_term`.
    Append {
        /// The place before the first entry.
        index: u64,
        /// The term of that place.
        log_term: u64,
        /// The leader's commit point.
        commit: u64,
        /// The entries, without gaps.
        entries: Vec<Entry>,
    },
    /// Says that the sender's log equals the leader's up to `index`, durably, or that it does not.
    AppendReply {
        /// The last equal place; in a refusal, the place that did not match.
        index: u64,
        /// The sender's commit point.
        commit: u64,
        /// `Some` for a refusal: the place, and its term, from which the leader should look for a match.
        reject: Option<(u64, u64)>,
    },
    /// Asks for a vote.
    Vote {
        /// The sender only asks what the answer would be.
        preliminary: bool,
        /// The end of the sender's log.
        index: u64,
        /// The term of that record.
        log_term: u64,
        /// The sender's commit point.
        commit: u64,
        /// The term of the record there.
        commit_term: u64,
        /// The leader itself asked the sender to campaign.
        transfer: bool,
    },
    /// Answers a request for a vote.
    VoteReply {
        /// The request was for a preliminary vote.
        preliminary: bool,
        /// The vote is refused.
        reject: bool,
        /// The sender's commit point, in a refusal.
        commit: u64,
        /// The term of the record there.
        commit_term: u64,
    },
    /// Shows that the leader is alive.
    Heartbeat {
        /// The commit point, limited to the records that the receiver has.
        commit: u64,
        /// The token of a read, which the receiver sends back.
        token: Option<u64>,
    },
    /// Answers a heartbeat.
    HeartbeatReply {
        /// The sender's commit point.
        commit: u64,
        /// The heartbeat's token.
        token: Option<u64>,
    },
    /// The leader asks the receiver to campaign at once.
    TimeoutNow,
    /// Says that the leader's log begins only after this place, and so lacks records that the receiver still
    /// needs.
    Trimmed {
        /// The place before the first record.
        index: u64,
        /// The term of the record there.
        log_term: u64,
    },
    /// Tells an arbiter, which does not get the log, the configuration in force.
    Inform {
        /// If not 0, the arbiter that has sent this number may begin with the configuration.
        nonce: u64,
        /// The bytes of an [`InForce`](crate::InForce).
        in_force: Arc<[u8]>,
    },
    /// Tells the leader the configuration that an arbiter has.
    Informed {
        /// If not 0, the arbiter has no configuration, and waits for a message with this number before it
        /// begins.
        nonce: u64,
        /// The version of the configuration.
        version: u64,
        /// The place of the log up to which that configuration was made.
        index: u64,
    },
}

impl Message {
    /// The records of the log that have to be sent with the message.
    pub fn records(&self) -> Option<RangeInclusive<u64>> {
        match &self.body {
            Body::Append { entries, .. } => Some(entries.first()?.index..=entries.last()?.index),
            _ => None,
        }
    }

    /// Cuts off the entries after the first `n` (at least one), and returns them as a message of their own,
    /// for a transport that limits the size of its frames. Both parts, sent in order, mean the same as the
    /// whole.
    pub fn split_off(&mut self, n: usize) -> Option<Message> {
        let Body::Append {
            commit, entries, ..
        } = &mut self.body
        else {
            return None;
        };
        let n = n.max(1);
        if n >= entries.len() {
            return None;
        }
        let rest = entries.split_off(n);
        let before = entries.last()?;
        Some(Message {
            from: self.from,
            to: self.to,
            term: self.term,
            body: Body::Append {
                index: before.index,
                log_term: before.term,
                commit: *commit,
                entries: rest,
            },
        })
    }

    /// Merges a later message to the same member into this one, if its entries follow directly and the result
    /// has at most `most` entries; otherwise returns it. The merged message means the same as both in their
    /// order.
    pub fn join(&mut self, later: Message, most: usize) -> Option<Message> {
        let same = (self.from, self.to, self.term) == (later.from, later.to, later.term);
        let (
            Body::Append {
                index,
                log_term,
                commit,
                entries,
            },
            Body::Append {
                index: behind,
                log_term: behind_term,
                commit: newer,
                entries: more,
            },
        ) = (&mut self.body, &later.body)
        else {
            return Some(later);
        };
        let last = entries
            .last()
            .map_or((*index, *log_term), |e| (e.index, e.term));
        let goes_on = same && last == (*behind, *behind_term) && *newer >= *commit;
        if !goes_on || entries.len() + more.len() > most {
            return Some(later);
        }
        entries.extend_from_slice(more);
        *commit = *newer;
        None
    }

    /// Drops the entries after the first `n`, as if they had been lost on the way.
    pub fn truncate(&mut self, n: usize) {
        if let Body::Append { entries, .. } = &mut self.body {
            entries.truncate(n);
        }
    }

    /// Whether only a leader sends such a message without being asked.
    pub fn is_of_leader(&self) -> bool {
        matches!(
            self.body,
            Body::Append { .. }
                | Body::Heartbeat { .. }
                | Body::Trimmed { .. }
                | Body::Inform { .. }
        )
    }

    /// Whether the message asks for a vote, preliminary or not.
    #[cfg(test)]
    pub(crate) fn asks_for_vote(&self) -> bool {
        matches!(self.body, Body::Vote { .. })
    }

    /// Whether a member could have sent this: the entries have no gaps, their terms never fall and are not
    /// above the sender's, and no member's number is 0.
    pub fn is_sound(&self) -> bool {
        if self.from == 0 || self.to == 0 || self.from == self.to || self.term == 0 {
            return false;
        }
        match &self.body {
            Body::Append {
                index,
                log_term,
                entries,
                ..
            } => {
                let (mut index, mut term) = (*index, *log_term);
                (term == 0) == (index == 0)
                    && term <= self.term
                    && entries.iter().all(|e| {
                        let follows = index.checked_add(1) == Some(e.index);
                        let sound = follows && e.term >= term.max(1) && e.term <= self.term;
                        (index, term) = (e.index, e.term);
                        sound
                    })
            }
            Body::AppendReply {
                reject: Some((index, term)),
                ..
            } => (*term == 0) == (*index == 0),
            Body::Vote {
                index, log_term, ..
            }
            | Body::Trimmed { index, log_term } => {
                (*log_term == 0) == (*index == 0) && *log_term <= self.term
            }
            _ => true,
        }
    }

    /// Encodes the message, without the records.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.all([self.from, self.to, self.term]);
        self.body.write(&mut w);
        w.0
    }

    /// Decodes a message from the front of `bytes`, and returns it with the number of bytes that it took;
    /// `None` if the bytes are not a sound message.
    pub fn decode(bytes: &[u8]) -> Option<(Message, usize)> {
        let mut r = Reader(bytes);
        let (from, to, term) = (r.u64()?, r.u64()?, r.u64()?);
        let body = match r.u8()? {
            1 => decode_append(&mut r)?,
            2 => {
                let (index, commit, reject) = (r.u64()?, r.u64()?, r.flag()?);
                let hint = (r.u64()?, r.u64()?);
                Body::AppendReply {
                    index,
                    commit,
                    reject: reject.then_some(hint),
                }
            }
            3 => Body::Vote {
                preliminary: r.flag()?,
                index: r.u64()?,
                log_term: r.u64()?,
                commit: r.u64()?,
                commit_term: r.u64()?,
                transfer: r.flag()?,
            },
            4 => Body::VoteReply {
                preliminary: r.flag()?,
                reject: r.flag()?,
                commit: r.u64()?,
                commit_term: r.u64()?,
            },
            kind @ (5 | 6) => {
                let (commit, some, token) = (r.u64()?, r.flag()?, r.u64()?);
                let token = some.then_some(token);
                match kind {
                    5 => Body::Heartbeat { commit, token },
                    _ => Body::HeartbeatReply { commit, token },
                }
            }
            7 => Body::TimeoutNow,
            8 => Body::Trimmed {
                index: r.u64()?,
                log_term: r.u64()?,
            },
            9 => Body::Inform {
                nonce: r.u64()?,
                in_force: r.run()?.into(),
            },
            10 => Body::Informed {
                nonce: r.u64()?,
                version: r.u64()?,
                index: r.u64()?,
            },
            _ => return None,
        };
        let message = Message {
            from,
            to,
            term,
            body,
        };
        message
            .is_sound()
            .then(|| (message, bytes.len() - r.0.len()))
    }
}

/// The most entries that a decoded message can have. A count takes four bytes whatever its value, so without
/// a limit a few bytes could make the receiver allocate gigabytes.
const MOST_ENTRIES: usize = 1 << 20;

fn decode_append(r: &mut Reader<'_>) -> Option<Body> {
    let (index, log_term, commit) = (r.u64()?, r.u64()?, r.u64()?);
    let mut entries: Vec<Entry> = Vec::new();
    let mut next = index;
    for _ in 0..r.count(12)? {
        let (n, term) = (r.u32()? as usize, r.u64()?);
        if n > MOST_ENTRIES - entries.len() {
            return None;
        }
        for _ in 0..n {
            next = next.checked_add(1)?;
            entries.push(Entry {
                index: next,
                term,
                kind: Kind::Plain,
            });
        }
    }
    for _ in 0..r.count(8)? {
        let i = r.u32()? as usize;
        entries.get_mut(i)?.kind = Kind::Config(r.run()?.into());
    }
    Some(Body::Append {
        index,
        log_term,
        commit,
        entries,
    })
}

impl Body {
    /// Writes the number of its kind, and what it has.
    fn write(&self, w: &mut Writer) {
        match self {
            Body::Append {
                index,
                log_term,
                commit,
                entries,
            } => {
                w.u8(1);
                w.all([*index, *log_term, *commit]);
                write_entries(w, entries);
            }
            Body::AppendReply {
                index,
                commit,
                reject,
            } => {
                w.u8(2);
                w.all([*index, *commit]);
                w.maybe(reject.map(<[u64; 2]>::from));
            }
            Body::Vote {
                preliminary,
                index,
                log_term,
                commit,
                commit_term,
                transfer,
            } => {
                w.u8(3);
                w.flag(*preliminary);
                w.all([*index, *log_term, *commit, *commit_term]);
                w.flag(*transfer);
            }
            Body::VoteReply {
                preliminary,
                reject,
                commit,
                commit_term,
            } => {
                w.u8(4);
                w.flag(*preliminary);
                w.flag(*reject);
                w.all([*commit, *commit_term]);
            }
            Body::Heartbeat { commit, token } | Body::HeartbeatReply { commit, token } => {
                w.u8(5 + u8::from(matches!(self, Body::HeartbeatReply { .. })));
                w.u64(*commit);
                w.maybe(token.map(|token| [token]));
            }
            Body::TimeoutNow => w.u8(7),
            Body::Trimmed { index, log_term } => {
                w.u8(8);
                w.all([*index, *log_term]);
            }
            Body::Inform { nonce, in_force } => {
                w.u8(9);
                w.u64(*nonce);
                w.run(in_force);
            }
            Body::Informed {
                nonce,
                version,
                index,
            } => {
                w.u8(10);
                w.all([*nonce, *version, *index]);
            }
        }
    }
}

/// Writes the terms of a message's records in runs, and which of the records are configurations.
fn write_entries(w: &mut Writer, entries: &[Entry]) {
    let runs: Vec<_> = entries.chunk_by(|a, b| a.term == b.term).collect();
    w.count(runs.len());
    for run in runs {
        w.count(run.len());
        w.u64(run.first().map_or(0, |e| e.term));
    }
    let configs = || {
        entries
            .iter()
            .enumerate()
            .filter_map(|(i, e)| match &e.kind {
                Kind::Config(record) => Some((i, record)),
                Kind::Plain => None,
            })
    };
    w.count(configs().count());
    for (i, record) in configs() {
        w.count(i);
        w.run(record);
    }
}
