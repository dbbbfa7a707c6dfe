//! The set's configuration as the core needs it: who is a member under which number, who votes,
//! who is preferred, and the modes of write concerns.
//!
//! MongoDB's document rides along as bytes that nobody here reads. What is *wanted* is in
//! [`Config`]; who is a voter at the moment is in [`InForce`], because members become voters and
//! cease to be one at a time, and a new one only when it has caught up.
//!
//! Invariant: a member's number ([`MemberId`]) is never given to another one, not even after it was
//! removed: a vote or a position that a late message brings must never be taken for another's.

use crate::bytes::{Reader, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A member's number: not MongoDB's `_id`, which may be used again.
pub type MemberId = u64;

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub id: MemberId,
    /// MongoDB's `_id`.
    pub key: i32,
    /// Where it is.
    pub host: String,
    /// It is to vote (`votes: 1`).
    pub votes: bool,
    /// Thousandths of MongoDB's `priority`; with 0 it never becomes primary.
    pub priority: u32,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

/// The configuration that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// MongoDB's `version`.
    pub version: u64,
    /// The number that the next new member gets.
    pub next_id: MemberId,
    /// The members.
    pub members: Vec<Member>,
    /// Write concern modes (`settings.getLastErrorModes`): for a tag, how many values of it.
    pub modes: BTreeMap<String, BTreeMap<String, u32>>,
    /// MongoDB's document.
    pub document: Vec<u8>,
}

impl Config {
    /// The member with this number.
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        self.members.iter().find(|m| m.id == id)
    }

    /// The members' numbers follow from this configuration, which is to be replaced by `next`:
    /// who is in both, by MongoDB's `_id` and where it is, keeps its number, all others get new ones:
    /// another server in the place of one that was known has none of what that had.
    #[must_use]
    pub fn number(&self, mut next: Config) -> Config {
        next.next_id = self.next_id.max(1);
        for member in &mut next.members {
            let same = |m: &&Member| m.key == member.key && m.host == member.host;
            member.id = match self.members.iter().find(same) {
                Some(known) => known.id,
                None => {
                    let id = next.next_id;
                    next.next_id += 1;
                    id
                }
            };
        }
        next
    }

    /// The numbers of those that are to vote.
    pub fn wanted_voters(&self) -> BTreeSet<MemberId> {
        let voting = self.members.iter().filter(|m| m.votes);
        voting.map(|m| m.id).collect()
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        w.u64(self.next_id);
        w.count(self.members.len());
        for m in &self.members {
            w.u64(m.id);
            w.u32(m.key.cast_unsigned());
            w.run(m.host.as_bytes());
            w.flag(m.votes);
            w.u32(m.priority);
            w.count(m.tags.len());
            for (tag, value) in &m.tags {
                w.run(tag.as_bytes());
                w.run(value.as_bytes());
            }
        }
        w.count(self.modes.len());
        for (name, tags) in &self.modes {
            w.run(name.as_bytes());
            w.count(tags.len());
            for (tag, n) in tags {
                w.run(tag.as_bytes());
                w.u32(*n);
            }
        }
        w.run(&self.document);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Option<Config> {
        let mut config = Config {
            version: r.u64()?,
            next_id: r.u64()?,
            ..Config::default()
        };
        for _ in 0..r.count(25)? {
            let mut member = Member {
                id: r.u64()?,
                key: r.u32()?.cast_signed(),
                host: r.text()?,
                votes: r.flag()?,
                priority: r.u32()?,
                tags: BTreeMap::new(),
            };
            // Zero is raft's word for nobody.
            if member.id == 0 || member.id >= config.next_id || config.member(member.id).is_some() {
                return None;
            }
            for _ in 0..r.count(8)? {
                member.tags.insert(r.text()?, r.text()?);
            }
            config.members.push(member);
        }
        for _ in 0..r.count(8)? {
            let name = r.text()?;
            let mut tags = BTreeMap::new();
            for _ in 0..r.count(8)? {
                tags.insert(r.text()?, r.u32()?);
            }
            config.modes.insert(name, tags);
        }
        config.document = r.run()?.to_vec();
        Some(config)
    }
}

/// What one entry of the log changes about who votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// This member is a voter from now on.
    Voter(MemberId),
    /// This member gets the log and does not vote.
    Learner(MemberId),
    /// This member is gone.
    Remove(MemberId),
}

/// A record of the log that changes the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRecord {
    /// The one change of who votes, if any.
    pub change: Option<Change>,
    /// The configuration, whole.
    pub config: Config,
}

impl ConfigRecord {
    /// As bytes, which stand in the log and go from member to member.
    pub fn encode(&self) -> Arc<[u8]> {
        let mut w = Writer::default();
        let (kind, id) = match self.change {
            None => (0, 0),
            Some(Change::Voter(id)) => (1, id),
            Some(Change::Learner(id)) => (2, id),
            Some(Change::Remove(id)) => (3, id),
        };
        w.u8(kind);
        w.u64(id);
        self.config.encode(&mut w);
        w.0.into()
    }

    /// From bytes; `None` if they are none of a record.
    pub fn decode(bytes: &[u8]) -> Option<ConfigRecord> {
        let mut r = Reader(bytes);
        let change = match (r.u8()?, r.u64()?) {
            (0, 0) => None,
            (_, 0) => return None,
            (1, id) => Some(Change::Voter(id)),
            (2, id) => Some(Change::Learner(id)),
            (3, id) => Some(Change::Remove(id)),
            _ => return None,
        };
        let config = Config::decode(&mut r)?;
        r.end()?;
        Some(ConfigRecord { change, config })
    }
}

/// The configuration in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    /// The log's index up to which it was made.
    pub index: u64,
    /// Who votes.
    pub voters: BTreeSet<MemberId>,
    /// Who gets the log and does not vote.
    pub learners: BTreeSet<MemberId>,
    /// What was asked for.
    pub config: Config,
}

impl InForce {
    /// A member's priority in elections: 0 for one that must not lead, be it by its priority or
    /// because it is to have no vote or is to go.
    pub fn rank(&self, id: MemberId) -> u32 {
        let member = self.config.member(id).filter(|m| m.votes);
        member.map_or(0, |m| m.priority)
    }

    /// With what the record at `index` of the log changes.
    pub(crate) fn apply(&mut self, index: u64, record: ConfigRecord) {
        self.index = index;
        match record.change {
            None => {}
            Some(Change::Voter(id)) => {
                self.learners.remove(&id);
                self.voters.insert(id);
            }
            Some(Change::Learner(id)) => {
                self.voters.remove(&id);
                self.learners.insert(id);
            }
            Some(Change::Remove(id)) => {
                self.voters.remove(&id);
                self.learners.remove(&id);
            }
        }
        // A configuration that was forced is ahead of those that are still in the log.
        if record.config.version >= self.config.version {
            self.config = record.config;
        }
    }

    /// The next step from who votes to what is wanted; `ready` says of a member that is to become
    /// a voter whether it has caught up, `late` whether it gets the log with a delay. Such a one does not
    /// become a voter before others if nothing could be committed without it then: they would wait for it.
    pub(crate) fn next_change(
        &self,
        ready: impl Fn(MemberId) -> bool,
        late: impl Fn(MemberId) -> bool,
    ) -> Option<Change> {
        let prompt = self.voters.iter().filter(|id| !late(**id)).count();
        let needed = prompt < self.voters.len().div_ceil(2) + 1;
        let others = |m: &Member| m.votes && !self.voters.contains(&m.id) && !late(m.id);
        let first = needed && self.config.members.iter().any(others);
        let known = || self.voters.iter().chain(&self.learners);
        if let Some(gone) = known().find(|id| self.config.member(**id).is_none()) {
            return Some(Change::Remove(*gone));
        }
        for m in &self.config.members {
            let (voter, learner) = (self.voters.contains(&m.id), self.learners.contains(&m.id));
            if (!voter && !learner) || (voter && !m.votes) {
                return Some(Change::Learner(m.id));
            }
            if learner && m.votes && ready(m.id) && !(first && late(m.id)) {
                return Some(Change::Voter(m.id));
            }
        }
        None
    }

    /// As bytes, for a server that is to become a member.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::default();
        self.encode(&mut w);
        w.0
    }

    /// From bytes; `None` if they are none of a configuration.
    pub fn of_bytes(bytes: &[u8]) -> Option<InForce> {
        let mut r = Reader(bytes);
        let in_force = InForce::decode(&mut r)?;
        r.end()?;
        Some(in_force)
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u64(self.index);
        for set in [&self.voters, &self.learners] {
            w.count(set.len());
            set.iter().for_each(|id| w.u64(*id));
        }
        self.config.encode(w);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Option<InForce> {
        let index = r.u64()?;
        let mut sets = [BTreeSet::new(), BTreeSet::new()];
        for set in &mut sets {
            for _ in 0..r.count(8)? {
                let id = r.u64()?;
                if id == 0 || !set.insert(id) {
                    return None;
                }
            }
        }
        let [voters, learners] = sets;
        Some(InForce {
            index,
            // Raft cannot have a member as both.
            voters: voters.is_disjoint(&learners).then_some(voters)?,
            learners,
            config: Config::decode(r)?,
        })
    }
}
