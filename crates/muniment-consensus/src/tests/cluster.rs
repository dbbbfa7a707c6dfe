//! Members and the messages between them, which a test moves by hand.

use crate::tests::node::{Event, Node, Packet};
use crate::*;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) struct Cluster {
    pub nodes: BTreeMap<MemberId, Node>,
    pub on_the_way: Vec<(MemberId, MemberId, Packet)>,
    pub cut_off: BTreeSet<(MemberId, MemberId)>,
    /// The members that sync their logs only when told to.
    pub slow: BTreeSet<MemberId>,
    /// The members whose door tells the core of its records only when told to.
    pub late: BTreeSet<MemberId>,
    /// Whether to show messages when they arrive.
    pub trace: bool,
    pub options: Options,
    pub lines: Vec<String>,
}

/// A member with the tests' defaults: it votes, and all members have the same priority.
pub(crate) fn member(id: MemberId) -> Member {
    Member {
        host: format!("host{id}:1"),
        id,
        key: id as i32,
        votes: true,
        arbiter: false,
        priority: 1000,
        tags: BTreeMap::new(),
    }
}

/// An arbiter.
pub(crate) fn arbiter(id: MemberId) -> Member {
    Member {
        arbiter: true,
        priority: 0,
        ..member(id)
    }
}

impl Cluster {
    pub(crate) fn new(options: Options) -> Cluster {
        Cluster {
            nodes: BTreeMap::new(),
            on_the_way: Vec::new(),
            cut_off: BTreeSet::new(),
            slow: BTreeSet::new(),
            late: BTreeSet::new(),
            trace: false,
            options,
            lines: Vec::new(),
        }
    }

    /// Sets up all members of a configuration with empty logs. Those that are to vote do so from the
    /// beginning.
    pub(crate) fn set_up(&mut self, config: &Config) {
        let voters = config.wanted_voters();
        let ids = config.members.iter().map(|m| m.id);
        let learners = ids.clone().filter(|id| !voters.contains(id)).collect();
        let in_force = InForce {
            index: 0,
            voters,
            learners,
            config: config.clone(),
        };
        for id in ids {
            self.join(&LocalState {
                id,
                in_force: in_force.clone(),
                ..LocalState::default()
            });
        }
    }

    pub(crate) fn join(&mut self, state: &LocalState) {
        let options = Options {
            seed: self.options.seed.wrapping_add(state.id),
            ..self.options
        };
        let mut node = Node::new(options, state);
        node.start();
        self.nodes.insert(state.id, node);
        self.after(state.id);
    }

    pub(crate) fn with(&mut self, id: MemberId, f: impl FnOnce(&mut Node)) {
        let Some(node) = self.nodes.get_mut(&id) else {
            self.lines.push(format!("there is no member {id}"));
            return;
        };
        f(node);
        self.after(id);
    }

    /// Tells the core of the records that the member's door has made and syncs its log, unless the script
    /// delays that, and notes the member's events.
    fn after(&mut self, id: MemberId) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        loop {
            let before = (node.untold.len(), node.durable);
            if !self.late.contains(&id) {
                node.tell();
            }
            if !self.slow.contains(&id) && node.is_up() {
                node.sync(u64::MAX);
            }
            if before == (node.untold.len(), node.durable) {
                break;
            }
        }
        for event in std::mem::take(&mut node.events) {
            match event {
                Event::Sent(to, packet) => self.on_the_way.push((id, to, packet)),
                other => self.lines.push(format!("{id}: {}", say(&other))),
            }
        }
    }

    /// Delivers the messages to this member, or to all, and those that result from them.
    pub(crate) fn deliver(&mut self, only: Option<MemberId>) {
        let mut left = 10_000;
        while let Some(at) =
            (self.on_the_way.iter()).position(|(_, to, _)| only.is_none_or(|only| only == *to))
        {
            let (from, to, packet) = self.on_the_way.remove(at);
            self.arrive(from, to, packet);
            left -= 1;
            assert!(left > 0, "the members never come to rest");
        }
    }

    pub(crate) fn arrive(&mut self, from: MemberId, to: MemberId, packet: Packet) {
        if self.cut_off.contains(&(from, to)) {
            return;
        }
        if self.trace
            && let Packet::Raft { message, .. } = &packet
        {
            let (message, _) = Message::decode(message).expect("a sound message");
            if let Some(text) = say_message(&message) {
                self.lines.push(format!("{from} -> {to}: {text}"));
            }
        }
        if self.nodes.get(&to).is_some_and(Node::is_up) {
            self.with(to, |node| node.receive(packet));
        }
    }
}

pub(crate) fn say(event: &Event) -> String {
    match event {
        Event::Sent(to, _) => format!("sent to {to}"),
        Event::Opened { term, no_op: true } => format!("opens the door of term {term}"),
        Event::Opened { term, .. } => format!("opens the door of term {term} again"),
        Event::Closed => "closes the door".into(),
        Event::Appended { first, last } => format!("appends {first}..{last}"),
        Event::Committed { to, .. } => format!("committed up to {to}"),
        Event::Role(role, term, leader) => {
            let whom = match (role, leader) {
                (Role::Follower, Some(leader)) => format!(" of {leader}"),
                _ => String::new(),
            };
            format!("{role:?}{whom} in term {term}").to_lowercase()
        }
        Event::Config(text) => format!("configuration {text}"),
        Event::Readable { token, index } => format!("read {token} has to see {index}"),
        Event::Outcome { token, result } => match result {
            Ok(()) => format!("request {token} is done"),
            Err(refusal) => format!("request {token} is refused: {refusal:?}"),
        },
        Event::FarBehind(member) => format!("member {member} needs what is trimmed"),
        Event::InitialSync { .. } => "needs an initial sync".into(),
        Event::GaveUp(records) => {
            let texts: Vec<_> = records.iter().map(ToString::to_string).collect();
            format!("gave up {}", texts.join(", "))
        }
        Event::Fatal(text) => format!("cannot go on: {text}"),
    }
}

fn known(in_force: &[u8]) -> String {
    let in_force = InForce::of_bytes(in_force).expect("our own configuration");
    format!("{} of {}", in_force.config.version, in_force.index)
}

/// A line about a message. Heartbeats have none, since they are not worth reading.
fn say_message(message: &Message) -> Option<String> {
    let term = message.term;
    Some(match &message.body {
        Body::Heartbeat { .. } | Body::HeartbeatReply { .. } => return None,
        Body::Append {
            index,
            log_term,
            commit,
            ..
        } => {
            let what = match message.records() {
                Some(records) => format!("append {}..{}", records.start(), records.end()),
                None => "append nothing".into(),
            };
            format!("{what} behind {index}/{log_term}, committed {commit}, term {term}")
        }
        Body::AppendReply {
            index,
            reject: None,
            ..
        } => format!("has {index}, term {term}"),
        Body::AppendReply {
            index,
            reject: Some((hint, hint_term)),
            ..
        } => format!("has no such {index}, try {hint}/{hint_term}, term {term}"),
        Body::Vote {
            preliminary,
            index,
            log_term,
            transfer,
            ..
        } => {
            let how = match (preliminary, transfer) {
                (true, _) => "would you vote for me",
                (false, true) => "vote for me, the leader wants it",
                (false, false) => "vote for me",
            };
            format!("{how} in term {term}, my log ends at {index}/{log_term}")
        }
        Body::VoteReply {
            preliminary,
            reject,
            ..
        } => {
            let how = match (preliminary, reject) {
                (true, false) => "would vote for you",
                (true, true) => "would not vote for you",
                (false, false) => "votes for you",
                (false, true) => "does not vote for you",
            };
            format!("{how}, term {term}")
        }
        Body::TimeoutNow => format!("campaign now, term {term}"),
        Body::Trimmed { index, log_term } => format!("my log begins behind {index}/{log_term}"),
        Body::Inform { nonce: 0, in_force } => format!("the configuration is {}", known(in_force)),
        Body::Inform { in_force, .. } => {
            format!("begin with the configuration {}", known(in_force))
        }
        Body::Informed {
            nonce: 0,
            version,
            index,
        } => format!("has configuration {version} of {index}"),
        Body::Informed { .. } => "has nothing".into(),
    })
}
