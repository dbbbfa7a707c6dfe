//! Turns areas into intervals of whole keys.
//!
//! The leading fields that are bounded to points multiply into prefixes. The intervals of the next field
//! become intervals below each prefix; later fields are left out.

use super::area::{Area, Values};
use crate::interval::{Interval, coarsen, union};
use muniment_value::{Value, keyenc};

/// The keys of all areas, in at most so many intervals.
pub(super) fn intervals(areas: &[Area], most: usize) -> Vec<Interval> {
    let size = areas.iter().map(Area::size).fold(0, usize::saturating_add);
    let each = match size <= most {
        true => most,
        false => (most / areas.len().max(1)).max(1),
    };
    let all = areas.iter().flat_map(|a| of_area(a, each)).collect();
    coarsen(union(all), most)
}

fn of_area(area: &Area, most: usize) -> Vec<Interval> {
    let mut prefixes = vec![Vec::new()];
    for (n, values) in area.fields.iter().enumerate() {
        let after = area.fields.len() - n - 1;
        let Values::In(list) = values else {
            return prefixes.into_iter().map(|p| below(p, after + 1)).collect();
        };
        let list = coarsen(list.clone(), (most / prefixes.len()).max(1));
        let join = |i: &Interval, p: &Vec<u8>| [&**p, &*i.low].concat();
        if after > 0 && list.iter().all(|i| is_point(i, 1)) {
            prefixes = prefixes
                .iter()
                .flat_map(|p| list.iter().map(move |i| join(i, p)))
                .collect();
            continue;
        }
        let ranges = prefixes
            .iter()
            .flat_map(|p| list.iter().map(move |i| ranged(p, i, after)));
        return ranges.collect();
    }
    prefixes.into_iter().map(Interval::prefix).collect()
}

/// True if the interval has the encodings of so many values and nothing else. A prefix alone would not do:
/// all ObjectIds up to the highest one begin with the same byte and end where it ends.
pub(super) fn is_point(i: &Interval, values: usize) -> bool {
    i.is_prefix() && are_whole(&i.low, values)
}

/// True if the bytes are the encodings of so many values.
fn are_whole(mut bytes: &[u8], values: usize) -> bool {
    for _ in 0..values {
        let rest = keyenc::skip(bytes, false).ok().and_then(|n| bytes.get(n..));
        let Some(rest) = rest else { return false };
        bytes = rest;
    }
    bytes.is_empty()
}

/// The keys that begin with a prefix, after which so many fields follow.
fn below(prefix: Vec<u8>, fields: usize) -> Interval {
    if prefix.is_empty() {
        return Interval::all();
    }
    let high = keyenc::prefix_end(&prefix);
    Interval::between(lowest(prefix, fields), high)
}

/// The keys that begin with a prefix, have a value of an interval after it, and then so many more fields.
fn ranged(prefix: &[u8], i: &Interval, after: usize) -> Interval {
    let low = [prefix, &i.low].concat();
    // Only after a whole value can the next field begin.
    let after = if are_whole(&i.low, 1) { after } else { 0 };
    let high = match &i.high {
        Some(high) => Some([prefix, high].concat()),
        None => keyenc::prefix_end(prefix),
    };
    Interval::between(lowest(low, after), high)
}

/// The lowest key that begins with a prefix. A range of chunks that ends exactly there is not reached, as it
/// would be if the interval began at the prefix itself, which is below.
fn lowest(mut prefix: Vec<u8>, fields: usize) -> Vec<u8> {
    for _ in 0..fields {
        keyenc::encode(Value::MinKey, false, &mut prefix);
    }
    prefix
}
