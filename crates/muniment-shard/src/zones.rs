//! The zones of a collection: ranges of keys that belong on certain shards.

use crate::key::ShardKey;
use muniment_value::{Code, Error, Result};
use std::sync::Arc;

/// A range of keys that belongs on the shards of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneRange {
    /// The lower bound, which is inside.
    pub min: Vec<u8>,
    /// The upper bound, which is outside.
    pub max: Vec<u8>,
    /// The name of the zone.
    pub zone: Arc<str>,
}

/// The ranges of all zones of a collection, ascending and disjoint. Keys between them may be on any shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zones(Vec<ZoneRange>);

/// Where a range of keys lies among the zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneOf<'z> {
    /// The whole range is between the zones.
    None,
    /// The whole range is in this zone.
    One(&'z Arc<str>),
    /// A zone begins or ends within the range, at this bound.
    Divided(&'z [u8]),
}

impl Zones {
    /// The zones of these ranges, in any order.
    ///
    /// # Errors
    /// 178 RangeOverlapConflict if two overlap; 2 BadValue if one has no keys.
    pub fn new(key: &ShardKey, mut ranges: Vec<ZoneRange>) -> Result<Zones> {
        ranges.sort_by(|a, b| a.min.cmp(&b.min));
        if let Some(r) = ranges.iter().find(|r| r.min >= r.max) {
            return Err(Error::bad_value(format!(
                "the range of the zone {} from {} to {} has no keys",
                r.zone,
                key.show(&r.min),
                key.show(&r.max)
            )));
        }
        let overlap = ranges
            .windows(2)
            .find(|w| matches!(w, [a, b] if a.max > b.min));
        match overlap {
            Some([a, b]) => Err(Error::new(
                Code::RangeOverlapConflict,
                format!(
                    "the range of the zone {} from {} overlaps that of the zone {} from {}",
                    a.zone,
                    key.show(&a.min),
                    b.zone,
                    key.show(&b.min)
                ),
            )),
            _ => Ok(Zones(ranges)),
        }
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> &[ZoneRange] {
        &self.0
    }

    /// The bounds of zones that lie within the range from `min` to `max`, ascending.
    pub fn bounds_within(&self, min: &[u8], max: &[u8]) -> Vec<Vec<u8>> {
        let from = self.0.partition_point(|r| *r.max <= *min);
        let to = self.0.partition_point(|r| *r.min < *max);
        let ranges = self.0.get(from..to).unwrap_or_default();
        let bounds = ranges.iter().flat_map(|r| [&r.min, &r.max]);
        let mut within: Vec<Vec<u8>> = bounds
            .filter(|b| *min < ***b && ***b < *max)
            .cloned()
            .collect();
        within.dedup();
        within
    }

    /// Where the range from `min` to `max` lies.
    pub fn of(&self, min: &[u8], max: &[u8]) -> ZoneOf<'_> {
        let at = self.0.partition_point(|r| *r.max <= *min);
        match self.0.get(at) {
            Some(r) if *r.min <= *min && *max <= *r.max => ZoneOf::One(&r.zone),
            Some(r) if *r.min <= *min => ZoneOf::Divided(&r.max),
            Some(r) if *r.min < *max => ZoneOf::Divided(&r.min),
            _ => ZoneOf::None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::doc;

    fn range(min: u8, max: u8, zone: &str) -> ZoneRange {
        ZoneRange {
            min: vec![min],
            max: vec![max],
            zone: zone.into(),
        }
    }

    #[test]
    fn where_ranges_lie() {
        let key = ShardKey::parse(doc! { "a": 1 }.as_doc()).unwrap();
        let list = vec![range(30, 40, "b"), range(10, 20, "a"), range(20, 25, "c")];
        let zones = Zones::new(&key, list).unwrap();
        let of = |min: u8, max: u8| match zones.of(&[min], &[max]) {
            ZoneOf::None => "-".to_string(),
            ZoneOf::One(zone) => zone.to_string(),
            ZoneOf::Divided(at) => at[0].to_string(),
        };
        for (min, max, want) in [
            (0, 10, "-"),
            (0, 11, "10"),
            (10, 20, "a"),
            (12, 18, "a"),
            (12, 22, "20"),
            (20, 25, "c"),
            (22, 28, "25"),
            (25, 30, "-"),
            (25, 50, "30"),
            (40, 50, "-"),
        ] {
            assert_eq!(of(min, max), want, "{min} {max}");
        }
        let overlap = Zones::new(&key, vec![range(1, 5, "a"), range(4, 6, "b")]);
        assert_eq!(overlap.unwrap_err().code(), Code::RangeOverlapConflict);
        assert!(Zones::new(&key, vec![range(5, 5, "a")]).is_err());
    }
}
