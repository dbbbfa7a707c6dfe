//! How far each member is, and which members count.

use crate::config::{InForce, Member, MemberId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How far one member is, as places of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Its log has everything up to here.
    pub written: u64,
    /// Readers there see everything up to here.
    pub applied: u64,
    /// Everything up to here survives a power cut of the member.
    pub durable: u64,
}

impl Position {
    /// Everything up to one place.
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

/// What a member says of itself.
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
    /// The end of the log when all members with which the set was founded had their votes. Fewer than a
    /// majority of them may have committed what stands up to here.
    founded: u64,
}

impl Members {
    /// Of the member `me`, which is at `mine`; nothing is known of the others yet.
    pub fn new(me: MemberId, mine: Position, in_force: Arc<InForce>) -> Members {
        Members {
            me,
            in_force,
            positions: BTreeMap::from([(me, mine)]),
            syncing: BTreeSet::new(),
            founded: 0,
        }
    }

    /// What is committed at this place is so by a majority of those that count for a write
    /// ([`InForce::acknowledging`]), as all of them vote, and did when it was committed.
    pub(crate) fn all_voted_at(&self, index: u64) -> bool {
        index > self.founded && self.in_force.all_vote()
    }

    /// A member is so far. In one term that only rises.
    pub(crate) fn report(&mut self, member: MemberId, new: Position) {
        if member != self.me && self.in_force.config.member(member).is_none() {
            return;
        }
        let known = self.positions.entry(member).or_default();
        known.written = known.written.max(new.written);
        known.applied = known.applied.max(new.applied);
        known.durable = known.durable.max(new.durable);
    }

    /// A leadership begins: what other members reported before does not count.
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

    /// This configuration is in force from here on, and the log ends at `last`.
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

    /// How far a member is, as far as it was told.
    pub fn position(&self, member: MemberId) -> Position {
        self.positions.get(&member).copied().unwrap_or_default()
    }

    /// Those that can acknowledge a write, with how far they are: hidden, delayed and non-voting
    /// ones, too, but no arbiter, and none that is being synced anew.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (&Member, Position)> + Clone {
        let members = self.in_force.config.members.iter();
        members
            .filter(|m| !m.arbiter && !self.is_syncing(m.id))
            .map(|m| (m, self.position(m.id)))
    }
}
