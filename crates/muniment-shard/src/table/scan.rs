//! The ranges and shards of a table, all of them or those that some intervals reach.

use super::{Place, Range, RangeTable};
use crate::interval::Interval;

impl RangeTable {
    /// All ranges in the order of keys.
    pub fn ranges(&self) -> impl Iterator<Item = Range> {
        self.between(Place::default(), self.end())
    }

    /// The ranges that have a key of one of the intervals, each once, in the order of keys. The intervals are
    /// ascending and disjoint.
    pub fn ranges_in<'t>(&'t self, intervals: &'t [Interval]) -> impl Iterator<Item = Range> + 't {
        self.spans(intervals)
            .flat_map(|(from, to)| self.between(from, to))
    }

    /// The shards that have a key of one of the intervals, by their places, ascending. The intervals are
    /// ascending and disjoint.
    pub fn shards_in(&self, intervals: &[Interval]) -> Vec<usize> {
        let mut found = Found::new(self);
        for (from, to) in self.spans(intervals) {
            if found.missing == 0 {
                break;
            }
            self.add_shards(from, to, &mut found);
        }
        found.shards()
    }

    /// The places of each interval: the first range, and the one after the last. No range comes twice.
    fn spans(&self, intervals: &[Interval]) -> impl Iterator<Item = (Place, Place)> {
        let mut next = Place::default();
        intervals.iter().filter_map(move |i| {
            if i.is_empty() {
                return None;
            }
            let from = self.place(&i.low).max(next);
            let to = i
                .high
                .as_ref()
                .map_or(self.end(), |high| self.place_from(high));
            next = to.max(next);
            (from < to).then_some((from, to))
        })
    }

    fn between(&self, from: Place, to: Place) -> impl Iterator<Item = Range> {
        let mut place = from;
        let mut min = self.low(from);
        std::iter::from_fn(move || {
            if place >= to {
                return None;
            }
            let block = self.blocks.get(place.block)?;
            let (shard, version) = (block.shard(place.at) as usize, block.version(place.at));
            place = self.after(place);
            let max = self.low(place);
            Some(Range {
                min: std::mem::replace(&mut min, max.clone()),
                max,
                shard,
                version,
            })
        })
    }

    fn add_shards(&self, from: Place, to: Place, found: &mut Found) {
        let mut place = from;
        while place < to && found.missing > 0 {
            let Some(block) = self.blocks.get(place.block) else {
                return;
            };
            if place.at == 0 && place.block < to.block {
                block.totals().iter().for_each(|t| found.add(t.shard));
            } else {
                let end = if place.block < to.block {
                    block.len()
                } else {
                    to.at
                };
                (place.at..end).for_each(|at| found.add(block.shard(at)));
            }
            place = Place {
                block: place.block + 1,
                at: 0,
            };
        }
    }
}

/// The shards found so far.
struct Found {
    seen: Vec<bool>,
    /// How many shards that have ranges are not found yet.
    missing: usize,
}

impl Found {
    fn new(table: &RangeTable) -> Found {
        Found {
            seen: vec![false; table.shards.len()],
            missing: table.totals.iter().filter(|t| t.ranges > 0).count(),
        }
    }

    fn add(&mut self, shard: u32) {
        if let Some(seen) = self.seen.get_mut(shard as usize)
            && !std::mem::replace(seen, true)
        {
            self.missing -= 1;
        }
    }

    fn shards(&self) -> Vec<usize> {
        let places = self.seen.iter().enumerate();
        places.filter_map(|(at, seen)| seen.then_some(at)).collect()
    }
}
