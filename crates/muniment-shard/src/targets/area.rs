//! Areas of keys: for each field the values that it may have, whatever the other fields have.

use crate::interval::{Interval, coarsen, intersect, union};

/// The values that a field may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Values {
    /// Any value.
    Any,
    /// Values whose encodings are in one of the intervals, which are ascending and disjoint.
    In(Vec<Interval>),
}

impl Values {
    pub(super) fn intersect(&self, other: &Values) -> Values {
        match (self, other) {
            (Values::Any, v) | (v, Values::Any) => v.clone(),
            (Values::In(a), Values::In(b)) => Values::In(intersect(a, b)),
        }
    }

    /// How many intervals of keys each interval of the fields before becomes.
    fn size(&self) -> usize {
        match self {
            Values::Any => 1,
            Values::In(list) => list.len(),
        }
    }
}

/// The values that one of several conditions allows, in at most so many intervals.
pub(super) fn any_of(each: impl Iterator<Item = Values>, most: usize) -> Values {
    let mut all = Vec::new();
    for values in each {
        match values {
            Values::Any => return Values::Any,
            Values::In(list) => all.extend(list),
        }
    }
    Values::In(coarsen(union(all), most))
}

/// The keys whose fields have certain values.
#[derive(Clone, Debug)]
pub(super) struct Area {
    /// In step with the fields of the key. Each allows some value.
    pub(super) fields: Vec<Values>,
}

impl Area {
    /// The area of these values; `None` if some field allows none.
    pub(super) fn of(fields: Vec<Values>) -> Option<Area> {
        let empty = |v: &Values| matches!(v, Values::In(list) if list.is_empty());
        (!fields.iter().any(empty)).then_some(Area { fields })
    }

    /// The area of all keys with so many fields.
    pub(super) fn any(fields: usize) -> Area {
        Area {
            fields: vec![Values::Any; fields],
        }
    }

    pub(super) fn is_any(&self) -> bool {
        self.fields.iter().all(|v| *v == Values::Any)
    }

    /// The common part; `None` if there is none.
    pub(super) fn intersect(&self, other: &Area) -> Option<Area> {
        let both = self.fields.iter().zip(&other.fields);
        Area::of(both.map(|(a, b)| a.intersect(b)).collect())
    }

    /// The number of intervals of keys, if none is left out.
    pub(super) fn size(&self) -> usize {
        let sizes = self.fields.iter().map(Values::size);
        sizes.fold(1, usize::saturating_mul)
    }
}

/// One area that contains all of these; `None` if there are none.
pub(super) fn hull(areas: &[Area], most: usize) -> Option<Area> {
    let fields = areas.first()?.fields.len();
    let of = |n: usize| {
        let each = areas.iter().filter_map(|a| a.fields.get(n).cloned());
        any_of(each, most)
    };
    Area::of((0..fields).map(of).collect())
}
