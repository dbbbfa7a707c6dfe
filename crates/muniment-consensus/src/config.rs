//! The set's configuration as far as the core needs it: the members with their numbers, votes and priorities,
//! and the modes of write concerns.
//!
//! MongoDB's document is kept as bytes that nothing here reads. The *wanted* configuration is a
//! [`Config`]; which members are voters at the moment is in [`InForce`], because they become voters and
//! cease to be voters one at a time, and a new one only when it has caught up.
//!
//! A member is identified by its number ([`MemberId`]), which is in its data directory (`LocalState::id`) and
//! in every message between members. Its address may change at any time.
//!
//! Invariant: a member's number is never given to another one, not even after its removal, because a vote or
//! a position in a late message must never be taken for another member's.

use crate::bytes::{Reader, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A member's number. It is not MongoDB's `_id`, which may be used again.
pub type MemberId = u64;

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub id: MemberId,
    /// MongoDB's `_id`.
    pub key: i32,
    /// Its address.
    pub host: String,
    /// Whether it is to vote (`votes: 1`).
    pub votes: bool,
    /// Whether it is an arbiter (`arbiterOnly: true`), which votes but stores nothing and so never
    /// acknowledges a record. The member with a given number is an arbiter always or never.
    pub arbiter: bool,
    /// Thousandths of MongoDB's `priority`. With 0 it never becomes primary.
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
    /// The modes of write concerns (`settings.getLastErrorModes`): how many different values of each tag.
    pub modes: BTreeMap<String, BTreeMap<String, u32>>,
    /// MongoDB's document of the configuration.
    pub document: Vec<u8>,
    /// Additions of later versions of Muniment, by number. A member that does not know a number keeps its
    /// content but ignores it, so a member may write an addition that changes the meaning of a configuration
    /// only when all members know it.
    pub more: BTreeMap<u32, Vec<u8>>,
}

/// In [`Config::more`]: the numbers of the members that vote at once in a configuration that was forced and
/// is in no member's log yet, eight bytes each.
const FORCED: u32 = 1;
/// In [`Config::more`]: the numbers of members that were added by a reconfiguration, eight bytes each.
const ADDED: u32 = 2;
/// In [`Config::more`] of records of the log only: the numbers of the members that vote from this record of a
/// forced configuration on, eight bytes each.
const SETTLED: u32 = 3;
/// In [`Config::more`]: the members that the previous configuration had and this one has not, with their
/// addresses. Such a member may vote until its removal is committed, which may need its acknowledgement.
const GOING: u32 = 4;
/// In [`Config::more`]: the members of [`GOING`] that are arbiters, eight bytes each.
const GOING_ARBITERS: u32 = 5;
/// The compiler checks that no two of these share a number.
const _: () =
    assert!(FORCED < ADDED && ADDED < SETTLED && SETTLED < GOING && GOING < GOING_ARBITERS);

fn bytes_of(numbers: &BTreeSet<MemberId>) -> Vec<u8> {
    numbers.iter().flat_map(|id| id.to_le_bytes()).collect()
}

/// The numbers of members, eight bytes each.
fn numbers(bytes: &[u8]) -> BTreeSet<MemberId> {
    let numbers = bytes.chunks_exact(8).filter_map(|b| b.try_into().ok());
    numbers.map(u64::from_le_bytes).collect()
}

impl Config {
    /// Whether the configuration was forced, so that no other member has agreed to it, and is in no log yet.
    /// A leader writes it to the log.
    pub fn is_forced(&self) -> bool {
        self.more.contains_key(&FORCED)
    }

    /// Notes that the configuration was forced, with the members that vote in it at once. With `None` it no
    /// longer counts as forced.
    pub fn set_forced(&mut self, voters: Option<&BTreeSet<MemberId>>) {
        match voters {
            Some(voters) => _ = self.more.insert(FORCED, bytes_of(voters)),
            None => _ = self.more.remove(&FORCED),
        }
    }

    /// The members that vote at once in a configuration that was forced. Every member that takes it over has
    /// to use the same ones.
    pub fn forced_voters(&self) -> Option<BTreeSet<MemberId>> {
        let mut voters = numbers(self.more.get(&FORCED)?);
        voters.retain(|id| self.member(*id).is_some());
        (!voters.is_empty()).then_some(voters)
    }

    /// The member with this number.
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        self.members.iter().find(|m| m.id == id)
    }

    /// Numbers the members of `next`, which is to replace this configuration. A member that is in both, by
    /// MongoDB's `_id`, keeps its number even if its address changes, and all others get new ones. If the
    /// server at a new address is another one, it has nothing, and is filled as a member that has lost its
    /// disk: it neither votes nor acknowledges before.
    #[must_use]
    pub fn number(&self, mut next: Config) -> Config {
        next.next_id = self.next_id.max(1);
        // The first configuration has founders, all of which count from the beginning.
        let mut added = self.added();
        let founded = self.version > 0;
        for member in &mut next.members {
            let same = |m: &&Member| m.key == member.key && m.arbiter == member.arbiter;
            member.id = match self.members.iter().find(same) {
                Some(known) => known.id,
                None => {
                    let id = next.next_id;
                    next.next_id += 1;
                    added.extend(founded.then_some(id));
                    id
                }
            };
        }
        added.retain(|id| next.member(*id).is_some());
        if !added.is_empty() {
            next.more.insert(ADDED, bytes_of(&added));
        }
        let going = || self.members.iter().filter(|m| next.member(m.id).is_none());
        // An arbiter without a vote may still be going when the next configuration comes.
        let mut arbiters = self.going_arbiters();
        arbiters.retain(|id| next.member(*id).is_none());
        arbiters.extend(going().filter(|m| m.arbiter).map(|m| m.id));
        let going = going().map(|m| (m.id, m.host.clone())).collect();
        next.set_going(&going, &arbiters);
        next
    }

    /// The addresses of the members that the previous configuration had and this one has not.
    /// [`InForce::voters`] says whether such a member still votes.
    pub fn going(&self) -> BTreeMap<MemberId, String> {
        let mut r = Reader(self.more.get(&GOING).map_or(&[], |b| b));
        let mut going = BTreeMap::new();
        while let (Some(id), Some(host)) = (r.u64(), r.text()) {
            going.insert(id, host);
        }
        going
    }

    fn going_arbiters(&self) -> BTreeSet<MemberId> {
        let all = self.more.get(&GOING_ARBITERS);
        all.map_or_else(BTreeSet::new, |b| numbers(b))
    }

    fn set_going(&mut self, going: &BTreeMap<MemberId, String>, arbiters: &BTreeSet<MemberId>) {
        match arbiters.is_empty() {
            true => _ = self.more.remove(&GOING_ARBITERS),
            false => _ = self.more.insert(GOING_ARBITERS, bytes_of(arbiters)),
        }
        let mut w = Writer::default();
        for (id, host) in going {
            w.u64(*id);
            w.run(host.as_bytes());
        }
        match going.is_empty() {
            true => _ = self.more.remove(&GOING),
            false => _ = self.more.insert(GOING, w.0),
        }
    }

    /// Notes that a removed member no longer votes, and need not be reached any more.
    pub(crate) fn is_gone(&mut self, id: MemberId) {
        let (mut going, mut arbiters) = (self.going(), self.going_arbiters());
        if going.remove(&id).is_some() | arbiters.remove(&id) {
            self.set_going(&going, &arbiters);
        }
    }

    /// The members that were added by a reconfiguration, not when the set was founded.
    fn added(&self) -> BTreeSet<MemberId> {
        self.more
            .get(&ADDED)
            .map_or_else(BTreeSet::new, |b| numbers(b))
    }

    /// The numbers of the members that are to vote.
    ///
    /// Nothing can be committed unless the members that store data are a majority of all voters, so at least
    /// one arbiter fewer than voters with data may vote. Further arbiters have no vote: they could help to
    /// elect a leader, but the set could not commit anything under it.
    pub fn wanted_voters(&self) -> BTreeSet<MemberId> {
        self.voters_among(|_| true)
    }

    /// The members that are to vote if only these could.
    pub fn voters_among(&self, these: impl Fn(MemberId) -> bool) -> BTreeSet<MemberId> {
        let these = &these;
        let of = |arbiter: bool| {
            let members = self.members.iter();
            members.filter(move |m| m.votes && m.arbiter == arbiter && these(m.id))
        };
        let arbiters = of(true).take(of(false).count().saturating_sub(1));
        of(false).chain(arbiters).map(|m| m.id).collect()
    }

    /// Whether this member is an arbiter, or was one in the previous configuration and is to go.
    pub fn is_arbiter(&self, id: MemberId) -> bool {
        match self.member(id) {
            Some(m) => m.arbiter,
            None => self.going_arbiters().contains(&id),
        }
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        w.u64(self.next_id);
        w.count(self.members.len());
        for m in &self.members {
            w.u64(m.id);
            w.u32(m.key.cast_unsigned());
            w.run(m.host.as_bytes());
            // Before there were arbiters, the second bit was always 0.
            w.u8(u8::from(m.votes) | u8::from(m.arbiter) << 1);
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
        // The additions extend to the end of the enclosing format; see `decode`.
        for (number, bytes) in &self.more {
            w.u32(*number);
            w.run(bytes);
        }
    }

    /// A configuration is the last part of every format that contains one, so it takes all bytes up to the
    /// end.
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
                votes: false,
                arbiter: false,
                priority: 0,
                tags: BTreeMap::new(),
            };
            let is = r.u8().filter(|is| *is < 4)?;
            (member.votes, member.arbiter) = (is & 1 != 0, is & 2 != 0);
            member.priority = r.u32()?;
            // For raft, the number zero means no member.
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
        while r.end().is_none() {
            let (number, bytes) = (r.u32()?, r.run()?.to_vec());
            if config.more.insert(number, bytes).is_some() {
                return None;
            }
        }
        Some(config)
    }
}

/// One change of the voters.
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
    /// The one change of the voters, if any.
    pub change: Option<Change>,
    /// The whole configuration.
    pub config: Config,
}

impl ConfigRecord {
    /// The record of a forced configuration. It names the voters from this record on, since a member that
    /// learns of the configuration only from the log has other voters until then than the rest.
    pub(crate) fn settling(forced: &InForce) -> ConfigRecord {
        let mut config = forced.config.clone();
        config.set_forced(None);
        config.more.insert(SETTLED, bytes_of(&forced.voters));
        ConfigRecord {
            change: None,
            config,
        }
    }

    /// The voters of a record that [`ConfigRecord::settling`] has made.
    fn settled(&self) -> Option<BTreeSet<MemberId>> {
        let mut voters = numbers(self.config.more.get(&SETTLED)?);
        voters.retain(|id| self.config.member(*id).is_some());
        (self.change.is_none() && !voters.is_empty()).then_some(voters)
    }

    /// Encodes the record as it is in the log and in messages.
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

    /// Decodes a record; `None` if the bytes are not one.
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

/// The configuration in force, with its actual voters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    /// The place of the log up to which it was made.
    pub index: u64,
    /// The members that vote.
    pub voters: BTreeSet<MemberId>,
    /// The members that get the log and do not vote.
    pub learners: BTreeSet<MemberId>,
    /// The configuration that was asked for.
    pub config: Config,
}

/// How the members of a set are counted. The counts for an election and for a write differ only while a set
/// is being founded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The number of members that vote.
    pub voting: usize,
    /// How many of them store data, and so can acknowledge.
    pub writable: usize,
    /// The number of votes that elects a primary.
    pub majority: usize,
    /// The number of acknowledgements that makes a majority.
    pub write_majority: usize,
}

impl InForce {
    /// Counts the members. An added voter that has no data yet does not vote, and counts only when it does.
    pub fn counts(&self) -> Counts {
        let voting = self.voters.len();
        let arbiters = self.voters.iter().filter(|id| self.config.is_arbiter(**id));
        Counts {
            voting,
            writable: voting - arbiters.count(),
            majority: majority(voting),
            write_majority: majority(self.acknowledging().len()),
        }
    }

    /// The members more than half of which must have a record before it counts as being at a majority: those
    /// that vote, and those that the set was founded with, even though these get their votes one after the
    /// other.
    pub fn acknowledging(&self) -> BTreeSet<MemberId> {
        let (mut all, added) = (self.config.wanted_voters(), self.config.added());
        all.retain(|id| self.voters.contains(id) || !added.contains(id));
        all
    }

    /// Whether all of [`InForce::acknowledging`] vote.
    pub(crate) fn all_vote(&self) -> bool {
        self.acknowledging().is_subset(&self.voters)
    }

    /// A member's priority in elections. It is 0 for a member that must not lead, because of its priority or
    /// because it is to have no vote or is to go.
    pub fn rank(&self, id: MemberId) -> u32 {
        let member = self.config.member(id).filter(|m| m.votes);
        member.map_or(0, |m| m.priority)
    }

    /// The steps by which a record of the log changes the voters. At least one voter is left after each step.
    ///
    /// A record that is older than the configuration in force changes nothing: a forced configuration is
    /// newer than those that are still in the log, on which the former set decided.
    pub(crate) fn steps(&self, record: &ConfigRecord) -> Vec<Change> {
        if record.config.version < self.config.version {
            return Vec::new();
        }
        let Some(voters) = record.settled() else {
            return record.change.into_iter().collect();
        };
        let all = self.voters.union(&self.learners);
        let gone = all.filter(|id| record.config.member(**id).is_none());
        let others = record.config.members.iter().map(|m| m.id);
        let others = others.filter(|id| !voters.contains(id) && !self.learners.contains(id));
        let new = voters.iter().filter(|id| !self.voters.contains(id));
        new.map(|id| Change::Voter(*id))
            .chain(others.map(Change::Learner))
            .chain(gone.map(|id| Change::Remove(*id)))
            .collect()
    }

    /// Puts the changes of the log's record at `index` in force.
    pub(crate) fn apply(&mut self, index: u64, record: ConfigRecord) {
        self.index = index;
        for step in self.steps(&record) {
            match step {
                Change::Voter(id) => {
                    self.learners.remove(&id);
                    self.voters.insert(id);
                }
                Change::Learner(id) => {
                    self.voters.remove(&id);
                    self.learners.insert(id);
                }
                Change::Remove(id) => {
                    self.voters.remove(&id);
                    self.learners.remove(&id);
                }
            }
        }
        if record.config.version >= self.config.version {
            self.config = record.config;
            self.config.more.remove(&SETTLED);
        }
    }

    /// The next step from the present voters to those that are wanted. `ready` says whether a member that is
    /// to become a voter has caught up, and `late` whether it gets the log with a delay. A late member does
    /// not become a voter before others if nothing could be committed without it then, since every commit
    /// would wait for its delay.
    pub(crate) fn next_change(
        &self,
        ready: impl Fn(MemberId) -> bool,
        late: impl Fn(MemberId) -> bool,
    ) -> Option<Change> {
        let arbiter = |id| self.config.is_arbiter(id);
        let voters = self.voters.iter().copied();
        let prompt = voters.filter(|id| !late(*id) && !arbiter(*id)).count();
        let needed = prompt < self.voters.len().div_ceil(2) + 1;
        let wanted = self.config.wanted_voters();
        let others = |id: &MemberId| !self.voters.contains(id) && !late(*id) && !arbiter(*id);
        let first = needed && wanted.iter().any(others);
        let known = self.voters.iter().chain(&self.learners);
        let gone = known.filter(|id| self.config.member(**id).is_none());
        let changes = self.config.members.iter().filter_map(|m| {
            let (voter, learner) = (self.voters.contains(&m.id), self.learners.contains(&m.id));
            let wanted = wanted.contains(&m.id);
            if (!voter && !learner) || (voter && !wanted) {
                return Some(Change::Learner(m.id));
            }
            let becomes = learner && wanted && ready(m.id) && !(first && late(m.id));
            becomes.then_some(Change::Voter(m.id))
        });
        let mut all = gone.map(|id| Change::Remove(*id)).chain(changes);
        all.find(|change| self.can_commit_after(*change))
    }

    /// Whether a member has a vote that it should not have, and the vote can be taken away at once.
    pub(crate) fn loses_a_voter(&self) -> bool {
        let wanted = self.config.wanted_voters();
        let lost = self.voters.difference(&wanted);
        lost.into_iter()
            .any(|id| self.can_commit_after(Change::Remove(*id)))
    }

    /// Whether the members that store data are a majority of the voters after this change. Otherwise nothing
    /// could ever be committed any more, not even another change.
    fn can_commit_after(&self, change: Change) -> bool {
        let mut after = self.voters.clone();
        match change {
            Change::Voter(id) => after.insert(id),
            Change::Learner(id) | Change::Remove(id) => after.remove(&id),
        };
        let margin = |voters: &BTreeSet<MemberId>| {
            let arbiters = voters.iter().filter(|id| self.config.is_arbiter(**id));
            voters.len() as i64 - 2 * arbiters.count() as i64
        };
        margin(&after) > 0 || margin(&after) >= margin(&self.voters)
    }

    /// Encodes the configuration, for a server that is to become a member.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::default();
        self.encode(&mut w);
        w.0
    }

    /// Decodes a configuration; `None` if the bytes are not one.
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
            // For raft, a member cannot be both.
            voters: voters.is_disjoint(&learners).then_some(voters)?,
            learners,
            config: Config::decode(r)?,
        })
    }
}

/// The number of voters that is a majority.
pub fn majority(voters: usize) -> usize {
    voters / 2 + 1
}
