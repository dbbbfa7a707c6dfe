//! Lists of ranges of keys as sets.

use muniment_value::{ArrayBuf, Doc, Error, Result, Value};

/// A range of keys: the lower bound, which is inside, and the upper one, which is outside. `None`: no end.
pub type Owned = (Vec<u8>, Option<Vec<u8>>);

/// The ranges, ascending; those that touch are joined.
///
/// # Errors
/// 2 BadValue if ranges overlap, or one is empty.
pub fn join(mut ranges: Vec<Owned>) -> Result<Vec<Owned>> {
    let overlap = || Error::bad_value("owned ranges overlap");
    ranges.sort();
    let mut all: Vec<Owned> = Vec::new();
    for (min, max) in ranges {
        if max.as_ref().is_some_and(|max| *max <= min) {
            return Err(Error::bad_value("an owned range ends before it begins"));
        }
        match all.last_mut() {
            Some((_, None)) => return Err(overlap()),
            Some((_, Some(end))) if *end > min => return Err(overlap()),
            Some((_, end @ Some(_))) if end.as_ref() == Some(&min) => *end = max,
            _ => all.push((min, max)),
        }
    }
    Ok(all)
}

/// Whether a key lies in one of these ranges, which ascend.
pub fn holds(ranges: &[Owned], key: &[u8]) -> bool {
    let after = ranges.partition_point(|(min, _)| min.as_slice() <= key);
    let range = after.checked_sub(1).and_then(|i| ranges.get(i));
    range.is_some_and(|(_, max)| is_before(key, max.as_deref()))
}

/// Whether a key lies before the end of a range.
fn is_before(key: &[u8], end: Option<&[u8]>) -> bool {
    end.is_none_or(|end| key < end)
}

/// Whether two ranges have a key in common.
pub fn overlaps(a: &Owned, b: &Owned) -> bool {
    is_before(&a.0, b.1.as_deref()) && is_before(&b.0, a.1.as_deref())
}

/// What is in the first ranges and not in the second ones; both ascend. Each list is gone through once.
pub fn without(all: &[Owned], gone: &[Owned]) -> Vec<Owned> {
    let mut left = Vec::new();
    let mut holes = gone.iter().peekable();
    for range in all {
        let (mut min, max) = (range.0.clone(), &range.1);
        loop {
            let Some(hole) = holes
                .peek()
                .filter(|hole| is_before(&hole.0, max.as_deref()))
            else {
                left.push((min, max.clone()));
                break;
            };
            if !is_before(&min, hole.1.as_deref()) {
                holes.next();
                continue;
            }
            if min < hole.0 {
                left.push((min, Some(hole.0.clone())));
            }
            match &hole.1 {
                Some(end) if is_before(end, max.as_deref()) => min = end.clone(),
                // The hole may go on in the next range.
                _ => break,
            }
        }
    }
    left
}

/// The stored form: `[min, max, …]`, in which the end of a range without one is empty.
pub fn to_array(ranges: &[Owned]) -> ArrayBuf {
    let mut all = ArrayBuf::new();
    for (min, max) in ranges {
        for bytes in [min.as_slice(), max.as_deref().unwrap_or_default()] {
            all.push(Value::Binary { subtype: 0, bytes });
        }
    }
    all
}

/// Reads the stored form; `None` if it is malformed.
pub fn of_array(stored: Doc<'_>) -> Option<Vec<Owned>> {
    let mut bounds = stored.values().map(|v| match v {
        Value::Binary { bytes, .. } => Some(bytes.to_vec()),
        _ => None,
    });
    let mut ranges = Vec::new();
    while let Some(min) = bounds.next() {
        let max = bounds.next()??;
        ranges.push((min?, (!max.is_empty()).then_some(max)));
    }
    Some(ranges)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn range(min: u8, max: u8) -> Owned {
        (vec![min], (max > 0).then(|| vec![max]))
    }

    #[test]
    fn differences_are_those_of_the_keys() {
        let lists = |bits: u32| -> Vec<Owned> {
            let all = (0..6_u8).filter(|i| bits & (1 << i) != 0);
            join(
                all.map(|i| range(i + 1, if i == 5 { 0 } else { i + 2 }))
                    .collect(),
            )
            .unwrap()
        };
        for a in 0..64 {
            for b in 0..64 {
                let (all, gone) = (lists(a), lists(b));
                let left = without(&all, &gone);
                assert_eq!(left, lists(a & !b), "{a:b} {b:b}");
                for key in 1..9_u8 {
                    let in_left = holds(&left, &[key]);
                    assert_eq!(in_left, holds(&all, &[key]) && !holds(&gone, &[key]));
                }
                let common = all.iter().any(|x| gone.iter().any(|y| overlaps(x, y)));
                assert_eq!(common, a & b != 0);
            }
        }
        let stored = to_array(&lists(0b101101));
        assert_eq!(of_array(stored.as_doc()).unwrap(), lists(0b101101));
    }
}
