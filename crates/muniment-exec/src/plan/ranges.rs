//! From intervals per field to byte ranges over an index.
//!
//! The leading fields bounded by points multiply into prefixes; the next field's intervals become
//! ranges below each prefix; what later fields demand is checked on every key. Ranges are in key
//! order; a backward scan takes them from the end.

use super::interval::Interval;
use muniment_storage::{Bound, KeyRange};
use muniment_value::{Result, keyenc};

/// More ranges than this are not opened one by one.
const MAX_RANGES: usize = 4096;

/// An interval of one field's encodings, in byte order.
#[derive(Clone, Debug)]
struct Encoded {
    low: Vec<u8>,
    low_incl: bool,
    high: Vec<u8>,
    high_incl: bool,
    point: bool,
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
        Encoded {
            low,
            low_incl,
            high,
            high_incl,
            point: i.is_point(),
            all: i.is_all(),
        }
    }

    fn contains(&self, key: &[u8]) -> bool {
        let above = match key.cmp(self.low.as_slice()) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => self.low_incl,
            std::cmp::Ordering::Greater => true,
        };
        above
            && match key.cmp(self.high.as_slice()) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal => self.high_incl,
                std::cmp::Ordering::Greater => false,
            }
    }
}

/// What a key inside a range must satisfy besides.
#[derive(Clone, Debug)]
pub struct KeyCheck {
    /// Per field up to the last that is checked: direction and intervals (none: anything).
    fields: Vec<(bool, Vec<Encoded>)>,
}

/// What a key that failed the check says about the next that can pass.
#[derive(Debug, PartialEq, Eq)]
pub enum Checked {
    /// It passes.
    Yes,
    /// It does not; nothing passes before this key (ascending).
    SeekTo(Vec<u8>),
    /// It does not.
    No,
}

impl KeyCheck {
    /// Checks a key.
    ///
    /// # Errors
    /// 22 InvalidBSON: the key is damaged.
    pub fn check(&self, key: &[u8]) -> Result<Checked> {
        let mut at = 0;
        for (descending, intervals) in &self.fields {
            let rest = key.get(at..).unwrap_or_default();
            let len = keyenc::skip(rest, *descending)?;
            let field = rest.get(..len).unwrap_or_default();
            if !intervals.is_empty() && !intervals.iter().any(|i| i.contains(field)) {
                let prefix = key.get(..at).unwrap_or_default();
                let next = intervals.iter().find(|i| i.low.as_slice() >= field);
                return Ok(match next {
                    Some(i) => {
                        let low = [prefix, &i.low].concat();
                        // Past an excluded end, or the same key would come again.
                        match i.low_incl {
                            true => Checked::SeekTo(low),
                            false => keyenc::prefix_end(&low).map_or(Checked::No, Checked::SeekTo),
                        }
                    }
                    None if at > 0 => match keyenc::prefix_end(prefix) {
                        Some(end) => Checked::SeekTo(end),
                        None => Checked::No,
                    },
                    None => Checked::No,
                });
            }
            at += len;
        }
        Ok(Checked::Yes)
    }
}

/// What a scan opens.
#[derive(Clone, Debug)]
pub struct ScanRanges {
    /// Disjoint and ascending.
    pub ranges: Vec<KeyRange>,
    /// What to check on every key.
    pub check: Option<KeyCheck>,
}

/// Compiles bounds. `fields` gives the direction of every index field beside its intervals.
pub fn compile<'a>(fields: impl Iterator<Item = (bool, &'a [Interval])>) -> ScanRanges {
    let fields: Vec<(bool, Vec<Encoded>)> = fields
        .map(|(descending, list)| {
            let mut e: Vec<Encoded> = list.iter().map(|i| Encoded::of(i, descending)).collect();
            if descending {
                e.reverse();
            }
            (descending, e)
        })
        .collect();
    if fields.iter().any(|(_, l)| l.is_empty()) {
        return ScanRanges {
            ranges: Vec::new(),
            check: None,
        };
    }
    let mut prefixes: Vec<Vec<u8>> = vec![Vec::new()];
    let mut used = 0;
    for (_, list) in &fields {
        if !list.iter().all(|i| i.point) || prefixes.len() * list.len() > MAX_RANGES {
            break;
        }
        prefixes = prefixes
            .iter()
            .flat_map(|p| list.iter().map(move |i| [p.as_slice(), &i.low].concat()))
            .collect();
        used += 1;
    }
    let mut ranges = Vec::new();
    let mut checked_from = used;
    match fields.get(used) {
        Some((_, list)) if !list.iter().any(|i| i.all) => {
            let too_many = prefixes.len() * list.len() > MAX_RANGES;
            if !too_many {
                checked_from = used + 1;
            }
            for p in &prefixes {
                let ends: Vec<(&Encoded, &Encoded)> = if too_many {
                    list.first().zip(list.last()).into_iter().collect()
                } else {
                    list.iter().map(|i| (i, i)).collect()
                };
                for (first, last) in ends {
                    let low = [p.as_slice(), &first.low].concat();
                    let high = [p.as_slice(), &last.high].concat();
                    ranges.push(KeyRange {
                        low: if first.low_incl {
                            Bound::Included(low)
                        } else {
                            Bound::Excluded(low)
                        },
                        high: if last.high_incl {
                            Bound::Included(high)
                        } else {
                            Bound::Excluded(high)
                        },
                    });
                }
            }
        }
        Some(_) => {
            checked_from = used + 1;
            ranges.extend(prefixes.into_iter().map(|p| {
                if p.is_empty() {
                    KeyRange::all()
                } else {
                    KeyRange::prefix(p)
                }
            }));
        }
        None => ranges.extend(prefixes.into_iter().map(KeyRange::prefix)),
    }
    let mut check: Vec<(bool, Vec<Encoded>)> = fields
        .into_iter()
        .enumerate()
        .map(|(i, (descending, list))| {
            let free = i < checked_from || list.iter().any(|e| e.all);
            (descending, if free { Vec::new() } else { list })
        })
        .collect();
    while check.last().is_some_and(|(_, l)| l.is_empty()) {
        check.pop();
    }
    ScanRanges {
        ranges,
        check: (!check.is_empty()).then_some(KeyCheck { fields: check }),
    }
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
        let s = compile([(false, &a[..]), (true, &b[..]), (false, &c[..])].into_iter());
        assert_eq!(s.ranges.len(), 2);
        assert_eq!(
            s.ranges[0],
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
        let s = compile([(false, &all[..]), (false, &all[..])].into_iter());
        assert_eq!(s.ranges, vec![KeyRange::all()]);
        assert!(s.check.is_none());
    }
}
