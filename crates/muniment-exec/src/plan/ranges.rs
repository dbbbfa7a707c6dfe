//! Turns the intervals of each field into byte ranges over an index.
//!
//! The leading fields that are bounded to points multiply into prefixes. The next field's intervals
//! become ranges below each prefix. The bounds of later fields are checked on every key. Ranges are
//! in key order; a backward scan takes them from the end.
//!
//! If there would be many ranges, the scan opens a single one from the lowest key to the highest.
//! Every key that does not fit then tells where the next one that may fit begins, and the scan
//! steps or seeks there. So the cost depends on the keys that exist, however many values a query
//! names.

use super::interval::Interval;
use muniment_storage::{Bound, KeyRange};
use muniment_value::{Result, keyenc};
use std::cmp::Ordering;

/// If there are more ranges than this, they are not opened one by one: the scan seeks from key to
/// key.
const MAX_RANGES: usize = 128;

/// An interval of one field's encodings, in byte order.
#[derive(Clone, Debug)]
struct Encoded {
    low: Box<[u8]>,
    /// The upper end. `None` for a point, whose lower end is its upper end too.
    high: Option<Box<[u8]>>,
    low_incl: bool,
    high_incl: bool,
    all: bool,
}

impl Encoded {
    fn of(i: &Interval, descending: bool) -> Encoded {
        let (mut low, mut high) = (Vec::new(), Vec::new());
        keyenc::encode(i.low.as_value(), descending, &mut low);
        keyenc::encode(i.high.as_value(), descending, &mut high);
        let (mut low_incl, mut high_incl) = (i.low_incl, i.high_incl);
        if descending {
            std::mem::swap(&mut low, &mut high);
            std::mem::swap(&mut low_incl, &mut high_incl);
        }
        let point = low_incl && high_incl && low == high;
        Encoded {
            low: low.into(),
            high: (!point).then(|| high.into()),
            low_incl,
            high_incl,
            all: i.is_all(),
        }
    }

    fn is_point(&self) -> bool {
        self.high.is_none()
    }

    fn high(&self) -> &[u8] {
        self.high.as_deref().unwrap_or(&self.low)
    }

    /// True if the whole interval is below `field`.
    fn is_below(&self, field: &[u8]) -> bool {
        match self.high().cmp(field) {
            Ordering::Less => true,
            Ordering::Equal => !self.high_incl,
            Ordering::Greater => false,
        }
    }

    /// True if `field` is inside the interval. The caller knows that the interval is not below
    /// `field`.
    fn begins_by(&self, field: &[u8]) -> bool {
        match (*self.low).cmp(field) {
            Ordering::Less => true,
            Ordering::Equal => self.low_incl,
            Ordering::Greater => false,
        }
    }

    /// The range below `prefix` from the beginning of `first` to the end of `last`.
    fn range(first: &Encoded, last: &Encoded, prefix: &[u8]) -> KeyRange {
        let bound = |end: &[u8], inside| match inside {
            true => Bound::Included([prefix, end].concat()),
            false => Bound::Excluded([prefix, end].concat()),
        };
        KeyRange {
            low: bound(&first.low, first.low_incl),
            high: bound(last.high(), last.high_incl),
        }
    }
}

/// A field of the index: true for descending, and its intervals. No intervals means that any value
/// fits.
type FieldIntervals = (bool, Vec<Encoded>);

/// The conditions that a key inside a range must satisfy too.
#[derive(Clone, Debug)]
pub(crate) struct KeyCheck {
    /// The fields up to the last one that has to be checked.
    fields: Vec<FieldIntervals>,
    backward: bool,
}

/// The result of checking a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// The key passes.
    Yes,
    /// The key does not pass, nor does any key before this prefix in the scan's direction. In a
    /// backward scan, the keys that begin with the prefix are not before it.
    SeekTo(Vec<u8>),
    /// The key does not pass, nor does any key after it in the scan's direction.
    End,
}

impl KeyCheck {
    /// Checks a key by a binary search in every field.
    ///
    /// # Errors
    /// 22 InvalidBSON: the key is damaged.
    pub(crate) fn check(&self, key: &[u8]) -> Result<Checked> {
        let mut at = 0;
        for (descending, intervals) in &self.fields {
            let rest = key.get(at..).unwrap_or_default();
            let len = keyenc::skip(rest, *descending)?;
            let field = rest.get(..len).unwrap_or_default();
            if !intervals.is_empty() {
                let i = intervals.partition_point(|i| i.is_below(field));
                if !intervals.get(i).is_some_and(|i| i.begins_by(field)) {
                    let prefix = key.get(..at).unwrap_or_default();
                    let to = match self.backward {
                        false => KeyCheck::forward(prefix, intervals.get(i)),
                        true => {
                            let below = i.checked_sub(1).and_then(|i| intervals.get(i));
                            KeyCheck::backward(prefix, below)
                        }
                    };
                    return Ok(to.map_or(Checked::End, Checked::SeekTo));
                }
            }
            at += len;
        }
        Ok(Checked::Yes)
    }

    /// Where a scan continues if its key lies before the interval `next`, or after all intervals if
    /// that is `None`.
    fn forward(prefix: &[u8], next: Option<&Encoded>) -> Option<Vec<u8>> {
        match next {
            Some(i) => {
                let low = [prefix, &i.low].concat();
                // An excluded end is skipped, or the same key would come again.
                match i.low_incl {
                    true => Some(low),
                    false => keyenc::prefix_end(&low),
                }
            }
            None if prefix.is_empty() => None,
            None => keyenc::prefix_end(prefix),
        }
    }

    /// The same for a scan from high to low; `next` is the interval below the key.
    fn backward(prefix: &[u8], next: Option<&Encoded>) -> Option<Vec<u8>> {
        match next {
            Some(i) => {
                let high = [prefix, i.high()].concat();
                match i.high_incl {
                    true => Some(high),
                    false => prefix_before(&high),
                }
            }
            None if prefix.is_empty() => None,
            None => prefix_before(prefix),
        }
    }
}

/// The prefix of the last keys before all those that begin with `key`: the inverse of
/// [`keyenc::prefix_end`]. No key lies in between, since no field's encoding is a prefix of
/// another's. `None` if nothing is before `key`.
fn prefix_before(key: &[u8]) -> Option<Vec<u8>> {
    let len = key.iter().rposition(|b| *b != 0)? + 1;
    let mut before = key.get(..len)?.to_vec();
    if let Some(last) = before.last_mut() {
        *last -= 1;
    }
    Some(before)
}

/// The ranges that a scan opens.
#[derive(Clone, Debug)]
enum Ranges {
    /// A single range, or none at all.
    One(Option<KeyRange>),
    /// For every prefix one range per interval, or a single range if there are no intervals. The
    /// ranges are made when they are opened, because a query may name a million values.
    Product {
        prefixes: Vec<Vec<u8>>,
        intervals: Vec<Encoded>,
    },
}

/// The ranges that a scan opens, and the check on their keys.
#[derive(Clone, Debug)]
pub(crate) struct ScanRanges {
    ranges: Ranges,
    /// The check on every key, if one is needed.
    pub check: Option<KeyCheck>,
}

impl ScanRanges {
    /// One range without a check.
    pub(crate) fn one(range: KeyRange) -> ScanRanges {
        ScanRanges {
            ranges: Ranges::One(Some(range)),
            check: None,
        }
    }

    fn none() -> ScanRanges {
        ScanRanges {
            ranges: Ranges::One(None),
            check: None,
        }
    }

    /// How many ranges there are.
    pub(crate) fn len(&self) -> usize {
        match &self.ranges {
            Ranges::One(one) => usize::from(one.is_some()),
            Ranges::Product {
                prefixes,
                intervals,
            } => prefixes.len() * intervals.len().max(1),
        }
    }

    /// The n-th range; ranges are disjoint and ascending.
    pub(crate) fn get(&self, n: usize) -> Option<KeyRange> {
        match &self.ranges {
            Ranges::One(one) => one.as_ref().filter(|_| n == 0).cloned(),
            Ranges::Product {
                prefixes,
                intervals,
            } => {
                let below = intervals.len().max(1);
                let prefix = prefixes.get(n / below)?;
                Some(match intervals.get(n % below) {
                    Some(i) => Encoded::range(i, i, prefix),
                    None if prefix.is_empty() => KeyRange::all(),
                    None => KeyRange::prefix(prefix.clone()),
                })
            }
        }
    }
}

/// The leading fields of an index, whose intervals are multiplied out.
struct Leading {
    /// The beginnings of the ranges' keys.
    prefixes: Vec<Vec<u8>>,
    /// The number of these fields.
    used: usize,
    /// The field whose intervals become ranges below the prefixes.
    ranged: Option<usize>,
    /// True if the next field would have made too many ranges.
    seeks: bool,
}

impl Leading {
    /// Takes fields up to one that is not bounded or has other intervals than points, as long as
    /// there are at most so many ranges.
    fn of(fields: &[FieldIntervals], most: usize) -> Leading {
        let mut leading = Leading {
            prefixes: vec![Vec::new()],
            used: 0,
            ranged: None,
            seeks: false,
        };
        for (at, (_, list)) in fields.iter().enumerate() {
            if has_all(list) {
                break;
            }
            if leading.prefixes.len().saturating_mul(list.len()) > most {
                leading.seeks = true;
                break;
            }
            leading.used += 1;
            if !list.iter().all(Encoded::is_point) || leading.used == fields.len() {
                leading.ranged = Some(at);
                break;
            }
            leading.prefixes = leading
                .prefixes
                .iter()
                .flat_map(|p| list.iter().map(move |i| [p.as_slice(), &i.low].concat()))
                .collect();
        }
        leading
    }
}

fn has_all(list: &[Encoded]) -> bool {
    list.iter().any(|i| i.all)
}

/// Turns bounds into ranges. `fields` gives the direction and the intervals of every index field.
/// `by_id` is true for the index of `_id`, whose points are looked up one by one: that costs less
/// than a scan's steps.
pub(crate) fn compile<'a>(
    fields: impl Iterator<Item = (bool, &'a [Interval])>,
    backward: bool,
    by_id: bool,
) -> ScanRanges {
    let mut fields: Vec<FieldIntervals> = fields
        .map(|(descending, list)| {
            let mut e: Vec<Encoded> = list.iter().map(|i| Encoded::of(i, descending)).collect();
            if descending {
                e.reverse();
            }
            (descending, e)
        })
        .collect();
    if fields.iter().any(|(_, l)| l.is_empty()) {
        return ScanRanges::none();
    }
    let most = match by_id && mostly_points(&fields) {
        true => usize::MAX,
        false => MAX_RANGES,
    };
    let Leading {
        prefixes,
        mut used,
        ranged,
        seeks,
    } = Leading::of(&fields, most);
    let ranges = match fields.get(used) {
        // There are too many ranges, so there is one from the first interval to the last, and all
        // fields are checked. If there is one prefix, the earlier fields have one value each.
        Some((_, list)) if seeks => match (prefixes.as_slice(), list.first(), list.last()) {
            ([prefix], Some(first), Some(last)) => {
                Ranges::One(Some(Encoded::range(first, last, prefix)))
            }
            _ => {
                used = 0;
                let ends = prefixes.first().zip(prefixes.last());
                Ranges::One(ends.map(|(first, last)| KeyRange {
                    low: Bound::Included(first.clone()),
                    high: Bound::Included(last.clone()),
                }))
            }
        },
        _ => Ranges::Product {
            prefixes,
            intervals: ranged
                .and_then(|at| fields.get_mut(at))
                .map(|(_, list)| std::mem::take(list))
                .unwrap_or_default(),
        },
    };
    let mut check: Vec<FieldIntervals> = fields
        .into_iter()
        .enumerate()
        .map(|(i, (descending, list))| {
            let free = i < used || has_all(&list);
            (descending, if free { Vec::new() } else { list })
        })
        .collect();
    while check.last().is_some_and(|(_, l)| l.is_empty()) {
        check.pop();
    }
    ScanRanges {
        ranges,
        check: (!check.is_empty()).then_some(KeyCheck {
            fields: check,
            backward,
        }),
    }
}

fn mostly_points(fields: &[FieldIntervals]) -> bool {
    fields.iter().all(|(_, list)| {
        let points = list.iter().filter(|i| i.is_point()).count();
        points >= list.len() - points
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::Value;

    fn enc(v: i32, desc: bool) -> Vec<u8> {
        let mut out = Vec::new();
        keyenc::encode(Value::Int32(v), desc, &mut out);
        out
    }

    #[test]
    fn points_multiply_and_a_range_ends_them() {
        let a = [
            Interval::new(1, true, 1, true),
            Interval::new(2, true, 2, true),
        ];
        let b = [Interval::new(5, false, 9, true)];
        let c = [Interval::new(7, true, 7, true)];
        let fields = [(false, &a[..]), (true, &b[..]), (false, &c[..])];
        let s = compile(fields.into_iter(), false, false);
        assert_eq!(s.len(), 2);
        assert_eq!(
            s.get(0).unwrap(),
            KeyRange {
                low: Bound::Included([enc(1, false), enc(9, true)].concat()),
                high: Bound::Excluded([enc(1, false), enc(5, true)].concat()),
            }
        );
        let check = s.check.unwrap();
        let key = |c: i32| [enc(1, false), enc(6, true), enc(c, false)].concat();
        assert_eq!(check.check(&key(7)).unwrap(), Checked::Yes);
        assert_eq!(check.check(&key(3)).unwrap(), Checked::SeekTo(key(7)));
        assert!(matches!(check.check(&key(9)).unwrap(), Checked::SeekTo(_)));
    }

    #[test]
    fn no_bounds_scan_everything() {
        let all = [Interval::all()];
        let fields = [(false, &all[..]), (false, &all[..])];
        let s = compile(fields.into_iter(), false, false);
        assert_eq!((s.len(), s.get(0)), (1, Some(KeyRange::all())));
        assert!(s.check.is_none());
    }

    #[test]
    fn what_stands_before_a_prefix() {
        assert_eq!(prefix_before(&[7, 3]), Some(vec![7, 2]));
        assert_eq!(prefix_before(&[7, 3, 0, 0]), Some(vec![7, 2]));
        assert_eq!(prefix_before(&[0, 0]), None);
        for key in [vec![1], vec![9, 0xFF], vec![3, 1, 0xFF]] {
            let before = prefix_before(&key).unwrap();
            assert_eq!(keyenc::prefix_end(&before).unwrap(), key);
        }
    }

    /// A few intervals of small numbers, ascending and disjoint: points, and open or closed ranges.
    fn some_intervals(x: &mut u32, many: bool) -> Vec<Interval> {
        let mut next = |n: u32| {
            *x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (*x >> 8) % n
        };
        let (mut out, mut low) = (Vec::new(), 0);
        for _ in 0..1 + next(if many { 150 } else { 4 }) {
            let from = low + next(3) as i32;
            let to = from + [0, 0, 2][next(3) as usize];
            let open = (to > from, next(2) == 0, next(2) == 0);
            out.push(Interval::new(
                from,
                !(open.0 && open.1),
                to,
                !(open.0 && open.2),
            ));
            low = to + 1;
        }
        out
    }

    /// Runs a scan over `keys` as IxScan does, and counts its steps and seeks.
    fn scan(s: &ScanRanges, keys: &[Vec<u8>], backward: bool) -> (Vec<Vec<u8>>, usize) {
        let (mut found, mut steps) = (Vec::new(), 0);
        for n in 0..s.len() {
            let range = s.get(if backward { s.len() - 1 - n } else { n }).unwrap();
            let above = |key: &Vec<u8>| match &range.low {
                Bound::Unbounded => true,
                Bound::Included(k) => key >= k,
                Bound::Excluded(k) => key > k && !key.starts_with(k),
            };
            let below = |key: &Vec<u8>| match &range.high {
                Bound::Unbounded => true,
                Bound::Included(k) => key < k || key.starts_with(k),
                Bound::Excluded(k) => key < k,
            };
            let mut inside: Vec<&Vec<u8>> = keys.iter().filter(|k| above(k) && below(k)).collect();
            if backward {
                inside.reverse();
            }
            let mut at = 0;
            while let Some(key) = inside.get(at) {
                steps += 1;
                at += 1;
                match s
                    .check
                    .as_ref()
                    .map_or(Checked::Yes, |c| c.check(key).unwrap())
                {
                    Checked::Yes => found.push((*key).clone()),
                    Checked::End => break,
                    Checked::SeekTo(to) => {
                        at += inside[at..]
                            .iter()
                            .take_while(|k| match backward {
                                false => ***k < to,
                                true => ***k > to && !k.starts_with(&to),
                            })
                            .count();
                    }
                }
            }
        }
        (found, steps)
    }

    #[test]
    fn ranges_checks_and_seeks_find_what_the_intervals_hold() {
        let mut x = 11;
        for round in 0..400 {
            let dirs = [round % 2 == 0, round % 3 == 0, round % 5 == 0];
            let many = round % 4;
            let lists: Vec<Vec<Interval>> = (0..3)
                .map(|i| match (round + i) % 7 {
                    0 => vec![Interval::all()],
                    _ => some_intervals(&mut x, i == many),
                })
                .collect();
            let mut keys: Vec<([i32; 3], Vec<u8>)> = (0..3000)
                .map(|i| {
                    let v = [i % 10, i / 10 % 20, i / 200];
                    let v = match many {
                        0 => [v[2] * 20, v[0], v[1]],
                        1 => [v[0], v[2] * 20, v[1]],
                        _ => v,
                    };
                    let key = v
                        .iter()
                        .zip(dirs)
                        .map(|(v, d)| enc(*v, d))
                        .collect::<Vec<_>>();
                    (v, key.concat())
                })
                .collect();
            keys.sort_by(|a, b| a.1.cmp(&b.1));
            let holds = |v: &[i32; 3]| {
                v.iter().zip(&lists).all(|(v, list)| {
                    let v = Interval::point(Value::Int32(*v));
                    !super::super::interval::intersect(&[v], list).is_empty()
                })
            };
            let mut expected: Vec<Vec<u8>> = keys
                .iter()
                .filter(|(v, _)| holds(v))
                .map(|(_, k)| k.clone())
                .collect();
            let keys: Vec<Vec<u8>> = keys.into_iter().map(|(_, k)| k).collect();
            for (backward, clustered) in
                [(false, false), (false, true), (true, true), (true, false)]
            {
                let fields = dirs.iter().copied().zip(lists.iter().map(Vec::as_slice));
                let s = compile(fields, backward, clustered);
                if backward && !clustered {
                    expected.reverse();
                }
                let (mut found, _) = scan(&s, &keys, backward);
                if backward && clustered {
                    found.reverse();
                }
                assert!(found == expected, "round {round} {backward} {clustered}");
            }
        }
    }

    #[test]
    fn a_hundred_thousand_points_cost_what_is_there() {
        let points: Vec<Interval> = (0..100_000)
            .map(|i| Interval::point(Value::Int32(i * 2)))
            .collect();
        let all = [Interval::all()];
        let keys: Vec<Vec<u8>> = (0..1000)
            .map(|i| [enc(i * 100, false), enc(i, false)].concat())
            .collect();
        for backward in [false, true] {
            let s = compile(
                [(false, &points[..]), (false, &all[..])].into_iter(),
                backward,
                false,
            );
            assert_eq!(s.len(), 1);
            let (found, steps) = scan(&s, &keys, backward);
            assert_eq!((found.len(), steps), (1000, 1000));
            let s = compile(
                [(false, &all[..]), (false, &points[..])].into_iter(),
                backward,
                false,
            );
            let (found, steps) = scan(&s, &keys, backward);
            assert_eq!(found.len(), 500);
            assert!(steps <= 1000);
        }
        // The points of a clustered index are looked up one by one.
        let s = compile([(false, &points[..])].into_iter(), false, true);
        assert_eq!((s.len(), s.check.is_none()), (100_000, true));
    }
}
