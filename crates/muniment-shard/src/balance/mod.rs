//! The balancer's policy: which ranges of one collection move next, and where to.
//!
//! In this order: shards that are being removed give away everything; ranges leave shards outside of their
//! zone; then shards that have much more data than others give some away. A shard takes part in one migration
//! at a time. Ranges in which a zone begins or ends are to be split there before they can move.
//!
//! Invariants: no migration leads to a shard that is being removed, or to one outside of the range's zone;
//! repeating the plans comes to an end, since each migration brings a range off a shard where it must not be,
//! or makes the sizes more alike.

mod survey;
#[cfg(test)]
mod tests;

use crate::table::RangeTable;
use crate::zones::Zones;
use std::collections::BTreeSet;
use std::sync::Arc;
use survey::{Survey, Zone};

/// The size of ranges that are moved, unless a collection or the cluster has another.
pub const CHUNK_BYTES: u64 = 128 << 20;

/// Data moves only between shards whose sizes differ by this many chunks.
const THRESHOLD: u64 = 3;

/// A shard as the policy sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Its name.
    pub name: Arc<str>,
    /// The bytes of the collection that it has.
    pub bytes: u64,
    /// True if it is being removed.
    pub draining: bool,
    /// Its zones.
    pub zones: Vec<Arc<str>>,
}

/// Why a range moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Its shard is being removed.
    Draining,
    /// Its shard is not in its zone.
    Zone,
    /// Its shard has more data than others.
    Size,
}

/// A range that moves. Of a range larger than a chunk, the mover takes only a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The lower bound of the range.
    pub min: Vec<u8>,
    /// The upper bound of the range.
    pub max: Vec<u8>,
    /// The shard that has it.
    pub from: Arc<str>,
    /// The shard that gets it.
    pub to: Arc<str>,
    /// The reason.
    pub reason: Reason,
}

/// What is to be done for a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Bounds of zones that lie within ranges, which are to be split there.
    pub splits: Vec<Vec<u8>>,
    /// Ranges to move. No shard has a part in two of them.
    pub migrations: Vec<Migration>,
    /// The number of ranges that hold up the removal of a shard, because they are jumbo or no shard that
    /// stays is in their zone.
    pub stuck: usize,
}

impl Plan {
    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.splits.is_empty() && self.migrations.is_empty()
    }
}

/// The plan for a collection. `jumbo` has the lower bounds of the ranges that cannot be moved; a shard of the
/// table that is not among `shards` is left alone.
pub fn plan(
    table: &RangeTable,
    zones: &Zones,
    shards: &[Load],
    jumbo: &BTreeSet<Vec<u8>>,
    chunk_bytes: u64,
) -> Plan {
    let survey = Survey::of(table, zones, shards, jumbo);
    let mut planner = Planner {
        shards,
        survey: &survey,
        busy: vec![false; shards.len()],
        migrations: Vec::new(),
    };
    planner.drain();
    planner.return_to_zones();
    planner.even_out(chunk_bytes);
    Plan {
        migrations: planner.migrations,
        stuck: survey.stuck,
        splits: survey.splits,
    }
}

struct Planner<'p> {
    shards: &'p [Load],
    survey: &'p Survey,
    /// In step with `shards`: those that take part in a migration.
    busy: Vec<bool>,
    migrations: Vec<Migration>,
}

impl Planner<'_> {
    fn drain(&mut self) {
        for from in 0..self.shards.len() {
            if self.shards.get(from).is_some_and(|s| s.draining) {
                self.give_away(from, Reason::Draining, |_, _| true);
            }
        }
    }

    fn return_to_zones(&mut self) {
        for from in 0..self.shards.len() {
            self.give_away(from, Reason::Zone, |shard, zone| !in_zone(shard, zone));
        }
    }

    /// Moves one range of a shard, of a zone that `which` picks, to the shard with the least data that may
    /// have it.
    fn give_away(&mut self, from: usize, reason: Reason, which: impl Fn(&Load, &Zone) -> bool) {
        let Some(shard) = self.shards.get(from).filter(|_| self.is_free(from)) else {
            return;
        };
        let zones = self.survey.zones_on(from).filter(|zone| which(shard, zone));
        let found = zones.cloned().find_map(|zone| {
            let to = self.least(&zone, from)?;
            Some((zone, to))
        });
        if let Some((zone, to)) = found {
            self.migrate(&zone, from, to, reason);
        }
    }

    /// Moves data within each zone, from the shards that have the most to those that have the least.
    fn even_out(&mut self, chunk_bytes: u64) {
        for zone in self.survey.zones() {
            let may = |s: &&Load| !s.draining && in_zone(s, zone);
            let sizes: Vec<u64> = self.shards.iter().filter(may).map(|s| s.bytes).collect();
            let total = sizes.iter().fold(0, |a: u64, b| a.saturating_add(*b));
            let ideal = total / (sizes.len() as u64).max(1);
            while let Some(from) = self.most(zone)
                && let Some(to) = self.least(zone, from)
            {
                let bytes = |at: usize| self.shards.get(at).map_or(0, |s| s.bytes);
                let apart = bytes(from).saturating_sub(bytes(to));
                let uneven = bytes(from) > ideal && bytes(to) < ideal;
                if !uneven || apart < THRESHOLD.saturating_mul(chunk_bytes).max(1) {
                    break;
                }
                self.migrate(zone, from, to, Reason::Size);
            }
        }
    }

    /// The free shard with the most data among those of a zone that have a range of it to give.
    fn most(&self, zone: &Zone) -> Option<usize> {
        let gives = |at: &usize| {
            let shard = self.shards.get(*at);
            shard.is_some_and(|s| !s.draining && in_zone(s, zone))
                && self.is_free(*at)
                && self.survey.first(*at, zone).is_some()
        };
        let candidates = (0..self.shards.len()).filter(gives);
        candidates.max_by_key(|at| self.shards.get(*at).map(|s| s.bytes))
    }

    /// The free shard with the least data among those of a zone that stay, other than `from`.
    fn least(&self, zone: &Zone, from: usize) -> Option<usize> {
        let takes = |at: &usize| {
            let shard = self.shards.get(*at);
            *at != from
                && shard.is_some_and(|s| !s.draining && in_zone(s, zone))
                && self.is_free(*at)
        };
        let candidates = (0..self.shards.len()).filter(takes);
        candidates.min_by_key(|at| self.shards.get(*at).map(|s| s.bytes))
    }

    fn is_free(&self, shard: usize) -> bool {
        self.busy.get(shard).is_some_and(|busy| !busy)
    }

    fn migrate(&mut self, zone: &Zone, from: usize, to: usize, reason: Reason) {
        for at in [from, to] {
            if let Some(busy) = self.busy.get_mut(at) {
                *busy = true;
            }
        }
        let range = self.survey.first(from, zone);
        let ends = self.shards.get(from).zip(self.shards.get(to));
        if let (Some((min, max)), Some((from, to))) = (range, ends) {
            self.migrations.push(Migration {
                min: min.clone(),
                max: max.clone(),
                from: from.name.clone(),
                to: to.name.clone(),
                reason,
            });
        }
    }
}

/// Whether ranges of a zone may be on a shard. Those outside of zones may be anywhere.
fn in_zone(shard: &Load, zone: &Zone) -> bool {
    zone.as_ref().is_none_or(|z| shard.zones.contains(z))
}
