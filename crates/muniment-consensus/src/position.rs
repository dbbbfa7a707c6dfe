//! How far each member is, and which members count for a write.

use crate::config::{InForce, Member, MemberId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How far one member is, as places of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Its log has everything up to here.
    pub written: u64,
    /// A reader at the member sees everything up to here.
    pub applied: u64,
    /// Everything up to here survives a power cut of the member.
    pub durable: u64,
}

impl Position {
    /// The position of a member that has everything up to one place written, applied and durable.
    pub fn all(index: u64) -> Position {
        Position {
            written: index,
            applied: index,
            durable: index,
        }
    }

    /// The place up to which writes count as being at this member; `journaled`: only those that survive a
    /// power cut do.
    pub fn counts(&self, journaled: bool) -> u64 {
        match journaled {
            true => self.durable.min(self.applied),
            false => self.applied,
        }
    }
}

/// What a member reports about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The term it is in.
    pub term: u64,
    /// The term of its record at `position.written`.
    pub log_term: u64,
    /// How far it is.
    pub position: Position,
}

/// The set's members and how far they are, as a leader knows it: a position counts only as far as the
/// member's log equals the leader's own. A log that ends with records which lost an election is recognized
/// by their term, and its member does not count before it has given them up.
#[derive(Clone, Debug)]
pub struct Members {
    me: MemberId,
    in_force: Arc<InForce>,
    positions: BTreeMap<MemberId, Position>,
    syncing: BTreeSet<MemberId>,
    /// The end of the log when all members with which the set was founded had their votes. Records up to here
    /// may have been committed by fewer than a majority of those members.
    founded: u64,
}

impl Members {
    /// The members as `me` knows them at first: it is at `mine` itself, and knows nothing of the others yet.
    pub fn new(me: MemberId, mine: Position, in_force: Arc<InForce>) -> Members {
        Members {
            me,
            in_force,
            positions: BTreeMap::from([(me, mine)]),
            syncing: BTreeSet::new(),
            founded: 0,
        }
    }

    /// Whether the commit of this place alone proves that a majority of the members that count for a write
    /// ([`InForce::acknowledging`]) have it: all of them vote, and did so when it was committed.
    pub(crate) fn all_voted_at(&self, index: u64) -> bool {
        index > self.founded && self.in_force.all_vote()
    }

    /// Notes how far a member is. Within a term, a position only rises.
    pub(crate) fn report(&mut self, member: MemberId, new: Position) {
        if member != self.me && self.in_force.config.member(member).is_none() {
            return;
        }
        let known = self.positions.entry(member).or_default();
        known.written = known.written.max(new.written);
        known.applied = known.applied.max(new.applied);
        known.durable = known.durable.max(new.durable);
    }

    /// Drops what other members have reported: it does not count in the leadership that begins.
    pub(crate) fn forget_others(&mut self) {
        let me = self.me;
        self.positions.retain(|id, _| *id == me);
    }

    pub(crate) fn syncing(&mut self, member: MemberId, syncing: bool) {
        match syncing {
            true => self.syncing.insert(member),
            false => self.syncing.remove(&member),
        };
    }

    /// Whether a member is being synced anew.
    pub fn is_syncing(&self, member: MemberId) -> bool {
        self.syncing.contains(&member)
    }

    /// Puts a configuration in force, when the log ends at `last`.
    pub(crate) fn configure(&mut self, in_force: Arc<InForce>, last: u64) {
        if !self.in_force.all_vote() {
            self.founded = last;
        }
        let known = |id: &MemberId| in_force.config.member(*id).is_some() || *id == self.me;
        self.positions.retain(|id, _| known(id));
        self.syncing.retain(known);
        self.in_force = in_force;
    }

    /// The configuration in force.
    pub fn in_force(&self) -> &Arc<InForce> {
        &self.in_force
    }

    /// The last known position of a member.
    pub fn position(&self, member: MemberId) -> Position {
        self.positions.get(&member).copied().unwrap_or_default()
    }

    /// The members that can acknowledge a write, with their positions. Hidden, delayed and non-voting members
    /// are among them, but no arbiter and no member that is being synced anew.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (&Member, Position)> + Clone {
        let members = self.in_force.config.members.iter();
        members
            .filter(|m| !m.arbiter && !self.is_syncing(m.id))
            .map(|m| (m, self.position(m.id)))
    }
}
