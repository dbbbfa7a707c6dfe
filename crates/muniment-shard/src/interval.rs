//! Intervals of key bytes, and lists of them.
//!
//! An interval includes its lower end and excludes its upper one. That is enough for points as well: no
//! encoding of a value is a prefix of another, so the keys that begin with an encoding end where
//! [`keyenc::prefix_end`] says.

use muniment_value::keyenc;

/// An interval of key bytes. The default is the interval of all keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// The lower end, which is inside. Empty bytes are below every key.
    pub low: Vec<u8>,
    /// The upper end, which is outside; `None` if there is none.
    pub high: Option<Vec<u8>>,
}

impl Interval {
    /// The interval of all keys.
    pub fn all() -> Interval {
        Interval::default()
    }

    /// The keys that begin with `prefix`: one key if the prefix is a whole key.
    pub fn prefix(prefix: Vec<u8>) -> Interval {
        Interval {
            high: keyenc::prefix_end(&prefix),
            low: prefix,
        }
    }

    /// The interval between two ends.
    pub fn between(low: Vec<u8>, high: Option<Vec<u8>>) -> Interval {
        Interval { low, high }
    }

    /// True if this is the interval of all keys.
    pub fn is_all(&self) -> bool {
        self.low.is_empty() && self.high.is_none()
    }

    /// True if no key is inside.
    pub fn is_empty(&self) -> bool {
        self.high.as_ref().is_some_and(|high| *high <= self.low)
    }

    /// True if `key` is inside.
    pub fn contains(&self, key: &[u8]) -> bool {
        *self.low <= *key && self.high.as_ref().is_none_or(|high| *key < **high)
    }

    /// True if the interval holds exactly the keys that begin with its lower end.
    pub fn is_prefix(&self) -> bool {
        !self.low.is_empty() && self.high == keyenc::prefix_end(&self.low)
    }
}

/// The upper end that reaches further.
fn further(a: Option<Vec<u8>>, b: Option<Vec<u8>>) -> Option<Vec<u8>> {
    Some(a?.max(b?))
}

/// The upper end that reaches less far.
fn nearer<'a>(a: Option<&'a Vec<u8>>, b: Option<&'a Vec<u8>>) -> Option<&'a Vec<u8>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Sorts a list, drops empty intervals, and joins those that touch or overlap.
pub(crate) fn union(mut list: Vec<Interval>) -> Vec<Interval> {
    list.retain(|i| !i.is_empty());
    list.sort_unstable_by(|a, b| a.low.cmp(&b.low));
    let mut out: Vec<Interval> = Vec::with_capacity(list.len());
    for next in list {
        match out.last_mut() {
            Some(last) if last.high.as_ref().is_none_or(|high| next.low < *high) => {
                last.high = further(last.high.take(), next.high);
            }
            _ => out.push(next),
        }
    }
    out
}

/// The common part of two ascending, disjoint lists.
pub(crate) fn intersect(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let mut out = Vec::new();
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let high = nearer(x.high.as_ref(), y.high.as_ref());
        let both = Interval::between((&x.low).max(&y.low).clone(), high.cloned());
        let first_ends = x.high.as_ref() == high;
        if !both.is_empty() {
            out.push(both);
        }
        match first_ends {
            true => i += 1,
            false => j += 1,
        }
    }
    out
}

/// Joins neighbours of an ascending list until there are at most `most` intervals.
pub(crate) fn coarsen(list: Vec<Interval>, most: usize) -> Vec<Interval> {
    if list.len() <= most {
        return list;
    }
    let run = list.len().div_ceil(most.max(1));
    let mut out: Vec<Interval> = Vec::with_capacity(most);
    for (n, next) in list.into_iter().enumerate() {
        match out.last_mut() {
            Some(last) if n % run != 0 => last.high = next.high,
            _ => out.push(next),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;

    fn i(low: u8, high: u8) -> Interval {
        Interval::between(vec![low], Some(vec![high]))
    }

    #[test]
    fn ends_and_points() {
        assert!(Interval::all().is_all() && Interval::all().contains(&[]));
        let point = Interval::prefix(vec![7, 255]);
        assert_eq!(point.high, Some(vec![8]));
        assert!(!Interval::all().is_prefix());
        assert!(point.is_prefix() && point.contains(&[7, 255, 1]) && !point.contains(&[8]));
        assert!(i(3, 3).is_empty() && !i(3, 4).is_empty());
        assert_eq!(Interval::prefix(vec![255]).high, None);
    }

    #[test]
    fn neighbours_are_joined_when_there_are_too_many() {
        let list: Vec<Interval> = (0..7).map(|n| i(10 * n, 10 * n + 1)).collect();
        assert_eq!(coarsen(list.clone(), 7), list);
        assert_eq!(coarsen(list, 3), [i(0, 21), i(30, 51), i(60, 61)]);
    }

    fn lists() -> impl Strategy<Value = Vec<Interval>> {
        let one = (0..40_u8, prop::option::of(0..40_u8))
            .prop_map(|(low, high)| Interval::between(vec![low], high.map(|h| vec![h])));
        prop::collection::vec(one, 0..6)
    }

    proptest! {
        #[test]
        fn union_and_intersection_are_those_of_sets(a in lists(), b in lists()) {
            let (ua, ub) = (union(a.clone()), union(b.clone()));
            let both = intersect(&ua, &ub);
            let few = coarsen(ua.clone(), 2);
            prop_assert!(few.len() <= 2);
            for key in 0..42_u8 {
                let is_in = |list: &[Interval]| list.iter().any(|i| i.contains(&[key]));
                prop_assert_eq!(is_in(&a), is_in(&ua));
                prop_assert_eq!(is_in(&a) && is_in(&b), is_in(&both));
                prop_assert!(!is_in(&a) || is_in(&few));
            }
        }
    }
}
