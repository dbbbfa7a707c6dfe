//! One pass over the ranges of a collection: what the policy has to know of them.

use super::{Load, in_zone};
use crate::table::RangeTable;
use crate::zones::{ZoneOf, Zones};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The zone of a range; `None` if it is outside of all zones.
pub(super) type Zone = Option<Arc<str>>;

/// The bounds of a range.
type Ends = (Vec<u8>, Vec<u8>);

pub(super) struct Survey {
    /// In step with the shards: the first range of each zone that can be moved.
    first: Vec<BTreeMap<Zone, Ends>>,
    pub(super) splits: Vec<Vec<u8>>,
    pub(super) stuck: usize,
}

impl Survey {
    pub(super) fn of(
        table: &RangeTable,
        zones: &Zones,
        shards: &[Load],
        jumbo: &BTreeSet<Vec<u8>>,
    ) -> Survey {
        let place = |name: &Arc<str>| shards.iter().position(|s| s.name == *name);
        let places: Vec<Option<usize>> = table.shards().iter().map(place).collect();
        let mut survey = Survey {
            first: vec![BTreeMap::new(); shards.len()],
            splits: Vec::new(),
            stuck: 0,
        };
        for range in table.ranges() {
            let zone = match zones.of(&range.min, &range.max) {
                ZoneOf::None => None,
                ZoneOf::One(zone) => Some(zone.clone()),
                ZoneOf::Divided(_) => {
                    let bounds = zones.bounds_within(&range.min, &range.max);
                    survey.splits.extend(bounds);
                    continue;
                }
            };
            let Some(at) = places.get(range.shard).copied().flatten() else {
                continue;
            };
            let is_jumbo = jumbo.contains(&range.min);
            let draining = shards.get(at).is_some_and(|s| s.draining);
            let goes = || shards.iter().any(|s| !s.draining && in_zone(s, &zone));
            if draining && (is_jumbo || !goes()) {
                survey.stuck += 1;
            }
            if let Some(first) = survey.first.get_mut(at).filter(|_| !is_jumbo) {
                first.entry(zone).or_insert((range.min, range.max));
            }
        }
        survey
    }

    /// The zones of which a shard has a range that can be moved.
    pub(super) fn zones_on(&self, shard: usize) -> impl Iterator<Item = &Zone> {
        self.first.get(shard).into_iter().flat_map(BTreeMap::keys)
    }

    /// The zones of which any shard has a range that can be moved.
    pub(super) fn zones(&self) -> BTreeSet<&Zone> {
        self.first.iter().flat_map(BTreeMap::keys).collect()
    }

    /// The first range of a zone on a shard that can be moved.
    pub(super) fn first(&self, shard: usize, zone: &Zone) -> Option<&Ends> {
        self.first.get(shard)?.get(zone)
    }
}
