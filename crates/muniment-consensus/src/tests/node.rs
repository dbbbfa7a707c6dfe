//! A member under test: a core, a model of a log that loses what was not synced, and the bytes of the state
//! file. It carries effects out one at a time, so that a test can stop it between any two.

use crate::tests::Bugs;
use crate::*;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// A record of the model's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub index: u64,
    pub term: u64,
    pub kind: Kind,
    pub value: String,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.term)?;
        match &self.kind {
            Kind::Config(record) => {
                let record = ConfigRecord::decode(record).expect("our own record");
                match record.change {
                    None => write!(f, " config {}", record.config.version),
                    Some(Change::Voter(id)) => write!(f, " voter {id}"),
                    Some(Change::Learner(id)) => write!(f, " learner {id}"),
                    Some(Change::Remove(id)) => write!(f, " remove {id}"),
                }
            }
            Kind::Plain if self.value.is_empty() => Ok(()),
            Kind::Plain => write!(f, " {}", self.value),
        }
    }
}

/// A message from one member to another.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    Raft {
        message: Vec<u8>,
        records: Vec<Record>,
    },
    Report {
        from: MemberId,
        report: Report,
    },
}

/// An event that the test may be interested in.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Sent(MemberId, Packet),
    Opened {
        term: u64,
        no_op: bool,
    },
    Closed,
    Appended {
        first: u64,
        last: u64,
    },
    /// The commit point has moved; with the newly committed records that the log has.
    Committed {
        to: u64,
        records: Vec<Record>,
    },
    Role(Role, u64, Option<MemberId>),
    Config(String),
    Readable {
        token: u64,
        index: u64,
    },
    Outcome {
        token: u64,
        result: Result<(), Refusal>,
    },
    FarBehind(MemberId),
    InitialSync {
        from: MemberId,
        at_least: u64,
    },
    /// The log was cut, and these records are gone.
    GaveUp(Vec<Record>),
    Fatal(String),
}

pub(crate) struct Node {
    pub id: MemberId,
    pub options: Options,
    pub bugs: Bugs,
    pub core: Option<Core>,
    pub saved: Vec<u8>,
    /// The log has the records after this place.
    pub base: u64,
    pub base_term: u64,
    pub log: VecDeque<Record>,
    pub durable: u64,
    /// The commit point that the core has announced.
    pub committed: u64,
    /// Records of the door that the core was not told of yet.
    pub untold: Vec<Appended>,
    pub door: Option<u64>,
    pub events: Vec<Event>,
    /// The records that came with the current message.
    incoming: BTreeMap<u64, Record>,
    /// After this many more effects the member crashes.
    pub fuse: Option<u32>,
    reported: Option<(MemberId, Report)>,
    pub starts: u64,
}

impl Node {
    pub(crate) fn new(options: Options, state: &LocalState) -> Node {
        let base_term = state.terms.last().map_or(0, |(_, term)| *term);
        Node {
            id: state.id,
            options,
            bugs: Bugs::default(),
            core: None,
            saved: state.encode(),
            base: state.commit,
            base_term,
            log: VecDeque::new(),
            durable: state.commit,
            committed: state.commit,
            untold: Vec::new(),
            door: None,
            events: Vec::new(),
            incoming: BTreeMap::new(),
            fuse: None,
            reported: None,
            starts: 0,
        }
    }

    pub(crate) fn state(&self) -> LocalState {
        LocalState::decode(&self.saved).expect("our own state")
    }

    pub(crate) fn last(&self) -> u64 {
        self.base + self.log.len() as u64
    }

    pub(crate) fn record(&self, index: u64) -> Option<&Record> {
        self.log.get(index.checked_sub(self.base + 1)? as usize)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.core.is_some()
    }

    pub(crate) fn leads(&self) -> bool {
        self.core.as_ref().is_some_and(|c| c.role() == Role::Leader)
    }

    /// Crashes: of the records that were not synced, only the first `keep` are left.
    pub(crate) fn crash(&mut self, keep: u64) {
        self.core = None;
        self.door = None;
        self.untold.clear();
        self.reported = None;
        self.fuse = None;
        let stay = (self.durable + keep).min(self.last());
        self.log.truncate((stay - self.base) as usize);
    }

    /// Starts the member: cuts the log if necessary, syncs it, and begins with a new core.
    pub(crate) fn start(&mut self) {
        let state = self.state();
        if let Some(behind) = state.cut {
            let keep = behind.saturating_sub(self.base) as usize;
            let gone: Vec<Record> = self.log.drain(keep.min(self.log.len())..).collect();
            if !gone.is_empty() {
                self.events.push(Event::GaveUp(gone));
            }
        }
        self.durable = self.last();
        self.committed = 0;
        self.starts += 1;
        let ends = LogEnds {
            first: self.base + 1,
            last: self.last(),
            last_term: match self.log.back() {
                Some(record) => Some(record.term),
                None => (self.base > 0).then_some(self.base_term),
            },
            committed: self.base,
        };
        let options = Options {
            seed: self.options.seed.wrapping_add(self.starts << 32),
            ..self.options
        };
        match Core::start(options, state, ends) {
            Ok(mut core) => {
                core.bugs = self.bugs;
                self.core = Some(core);
                self.run();
            }
            Err(fatal) => self.events.push(Event::Fatal(fatal.to_string())),
        }
    }

    /// Gives the core an input and carries out its effects.
    pub(crate) fn input(&mut self, input: impl FnOnce(&mut Core) -> Result<(), Fatal>) {
        let Some(core) = &mut self.core else { return };
        if let Err(fatal) = input(core) {
            self.events.push(Event::Fatal(fatal.to_string()));
            self.crash(0);
            return;
        }
        self.run();
    }

    pub(crate) fn tick(&mut self) {
        self.input(|core| {
            core.pass(1);
            Ok(())
        });
    }

    pub(crate) fn receive(&mut self, packet: Packet) {
        match packet {
            Packet::Raft { message, records } => {
                let (message, used) = Message::decode(&message).expect("a sound message");
                assert!(used > 0);
                self.incoming = records.into_iter().map(|r| (r.index, r)).collect();
                self.input(|core| core.receive(message));
            }
            Packet::Report { from, report } => self.input(|core| {
                core.report(from, report);
                Ok(())
            }),
        }
    }

    /// Writes through the door. Returns the place, or `None` if the door is closed.
    pub(crate) fn write(&mut self, value: &str) -> Option<u64> {
        self.put(Kind::Plain, value)
    }

    fn put(&mut self, kind: Kind, value: &str) -> Option<u64> {
        let term = self.door?;
        let index = self.last() + 1;
        self.log.push_back(Record {
            index,
            term,
            kind: kind.clone(),
            value: value.to_owned(),
        });
        self.untold.push(Appended { index, term, kind });
        Some(index)
    }

    /// Tells the core of the records that the door has made.
    pub(crate) fn tell(&mut self) {
        let untold = std::mem::take(&mut self.untold);
        if !untold.is_empty() {
            self.input(|core| {
                core.appended(untold);
                Ok(())
            });
        }
    }

    /// Syncs the log up to this place, and tells the core.
    pub(crate) fn sync(&mut self, to: u64) {
        let to = to.min(self.last());
        if to > self.durable {
            self.durable = to;
            self.input(|core| {
                core.persisted(to);
                Ok(())
            });
        }
    }

    fn run(&mut self) {
        while let Some(effect) = self.core.as_mut().and_then(Core::next_effect) {
            if let Some(left) = &mut self.fuse {
                match left.checked_sub(1) {
                    Some(less) => *left = less,
                    None => {
                        self.crash(0);
                        return;
                    }
                }
            }
            self.carry_out(effect);
        }
        self.report();
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Save(state) => {
                self.saved = state.encode();
                assert_eq!(LocalState::decode(&self.saved).as_ref(), Ok(&*state));
            }
            Effect::CloseDoor => {
                self.door = None;
                self.events.push(Event::Closed);
                let untold = std::mem::take(&mut self.untold);
                let core = self.core.as_mut().expect("it runs");
                core.appended(untold);
                if let Err(fatal) = core.door_closed() {
                    self.events.push(Event::Fatal(fatal.to_string()));
                    self.crash(0);
                }
            }
            Effect::OpenDoor { term, no_op } => {
                assert_eq!(self.door, None, "{}: opened twice", self.id);
                self.door = Some(term);
                let empty = no_op.is_some();
                self.events.push(Event::Opened { term, no_op: empty });
                if let Some(index) = no_op {
                    assert_eq!(self.write(""), Some(index), "{}: the empty record", self.id);
                }
            }
            Effect::Append { first, last } => {
                for index in first..=last {
                    assert_eq!(index, self.last() + 1, "{}: appends in order", self.id);
                    let record = self.incoming.get(&index).expect("it came with the message");
                    self.log.push_back(record.clone());
                }
                self.events.push(Event::Appended { first, last });
            }
            Effect::Write(record) => {
                self.put(Kind::Config(record), "");
            }
            Effect::Send(message) => self.send(message),
            Effect::Committed(to) => {
                let from = std::mem::replace(&mut self.committed, to);
                assert!(from <= to, "{}: the commit point goes back", self.id);
                assert!(
                    to <= self.last(),
                    "{}: commits what it does not have",
                    self.id
                );
                let new = from.max(self.base) + 1..=to;
                let records = new.filter_map(|i| self.record(i).cloned()).collect();
                self.events.push(Event::Committed { to, records });
            }
            Effect::Role { role, term, leader } => {
                self.events.push(Event::Role(role, term, leader));
            }
            Effect::Config(in_force) => {
                let ids = |set: &std::collections::BTreeSet<u64>| {
                    let ids: Vec<_> = set.iter().map(u64::to_string).collect();
                    ids.join(" ")
                };
                let (voters, learners) = (ids(&in_force.voters), ids(&in_force.learners));
                let version = in_force.config.version;
                self.events.push(Event::Config(match learners.is_empty() {
                    true => format!("{version}, voters {voters}"),
                    false => format!("{version}, voters {voters}, learners {learners}"),
                }));
            }
            Effect::Readable { token, index } => {
                self.events.push(Event::Readable { token, index });
            }
            Effect::Outcome { token, result } => {
                self.events.push(Event::Outcome { token, result });
            }
            Effect::FarBehind(member) => self.events.push(Event::FarBehind(member)),
            Effect::InitialSync { from, at_least } => {
                self.events.push(Event::InitialSync { from, at_least });
            }
            Effect::Restart { cut_behind } => {
                assert_eq!(self.state().cut, Some(cut_behind));
                self.core = None;
                self.door = None;
                self.untold.clear();
                self.reported = None;
                self.start();
            }
        }
    }

    fn send(&mut self, message: Message) {
        let to = message.to;
        let records = message.records().into_iter().flatten();
        let records = records
            .map(|index| self.record(index).expect("it is in the log").clone())
            .collect();
        let packet = Packet::Raft {
            message: message.encode(),
            records,
        };
        self.events.push(Event::Sent(to, packet));
    }

    /// Reports to the leader how far this member is. Everything in the log counts as applied.
    fn report(&mut self) {
        let Some(core) = &mut self.core else { return };
        let written = self.base + self.log.len() as u64;
        let report = Report {
            term: core.term(),
            log_term: self.log.back().map_or(self.base_term, |r| r.term),
            position: Position {
                written,
                applied: written,
                durable: self.durable,
            },
        };
        let Some(leader) = core.leader() else { return };
        if self.reported == Some((leader, report)) {
            return;
        }
        self.reported = Some((leader, report));
        if leader == self.id {
            self.input(|core| {
                core.report(leader, report);
                Ok(())
            });
        } else {
            let from = self.id;
            let packet = Packet::Report { from, report };
            self.events.push(Event::Sent(leader, packet));
        }
    }
}
