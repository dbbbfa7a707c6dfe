//! Ascending lower ends of ranges, stored to be searched.
//!
//! They lie one after another, without the bytes that all of them begin with. A search compares the next
//! eight bytes of each as a number, which seldom leaves any to be compared as a whole. It begins where
//! the number would be if all were evenly spread, since each step elsewhere waits for memory.

use std::cmp::Ordering;

/// So many places before and after the guess are searched first: they lie close together.
const NEAR: usize = 12;

#[derive(Clone, Debug, Default)]
pub(super) struct Lows {
    /// The bytes that all begin with.
    prefix: Box<[u8]>,
    /// The first bytes of each rest, as a number in the same order.
    heads: Box<[u64]>,
    /// The lowest of the heads, and the places for each step up from it.
    first: u64,
    slope: f64,
    /// The rest of each.
    bytes: Box<[u8]>,
    /// Where each rest ends in `bytes`.
    ends: Box<[u32]>,
}

impl Lows {
    /// The ends that an iterator gives, ascending.
    pub(super) fn of<'l>(lows: impl Iterator<Item = &'l [u8]> + Clone) -> Lows {
        let (first, last) = (lows.clone().next(), lows.clone().last());
        let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
        // What the first and the last have in common, those between have too.
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let rests = lows.map(|low| low.get(common..).unwrap_or_default());
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for rest in rests.clone() {
            bytes.extend_from_slice(rest);
            ends.push(bytes.len() as u32);
        }
        let heads: Box<[u64]> = rests.map(head).collect();
        let lowest = heads.first().copied().unwrap_or_default();
        let span = heads.last().map_or(0, |last| last.saturating_sub(lowest));
        Lows {
            first: lowest,
            slope: heads.len() as f64 / (span as f64).max(1.0),
            prefix: first.get(..common).unwrap_or_default().into(),
            heads,
            bytes: bytes.into(),
            ends: ends.into(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, at: usize) -> Vec<u8> {
        [&self.prefix, self.rest(at)].concat()
    }

    /// The number of ends that are at most `key`.
    #[inline]
    pub(super) fn up_to(&self, key: &[u8]) -> usize {
        let (start, tail) = key
            .split_at_checked(self.prefix.len())
            .unwrap_or((key, &[]));
        match start.cmp(&self.prefix) {
            Ordering::Less => 0,
            Ordering::Greater => self.len(),
            Ordering::Equal => {
                let wanted = head(tail);
                let below = self.below(wanted);
                let alike = self.heads.get(below..).unwrap_or_default();
                let alike = alike.partition_point(|h| *h == wanted);
                below + partition(alike, |at| self.rest(below + at) <= tail)
            }
        }
    }

    /// The number of heads that are lower than one.
    #[inline]
    fn below(&self, wanted: u64) -> usize {
        let len = self.heads.len();
        // A cast of a double that is too large gives the greatest number.
        let guess = (wanted.saturating_sub(self.first) as f64 * self.slope) as usize;
        let from = guess.min(len).saturating_sub(NEAR);
        let to = guess.saturating_add(NEAR).min(len);
        let is_lower = |at: usize| self.heads.get(at).is_some_and(|h| *h < wanted);
        let (from, to) = match (is_lower(from), is_lower(to)) {
            (true, false) => (from, to),
            (false, _) => (0, from),
            (true, true) => (to, len),
        };
        let heads = self.heads.get(from..to).unwrap_or_default();
        from + heads.partition_point(|h| *h < wanted)
    }

    /// Roughly the bytes of memory.
    pub(super) fn heap_bytes(&self) -> usize {
        let each = size_of::<u64>() + size_of::<u32>();
        self.prefix.len() + self.bytes.len() + self.len() * each
    }

    #[inline]
    fn rest(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).and_then(|at| self.ends.get(at));
        let start = start.map_or(0, |n| *n as usize);
        let end = self.ends.get(at).map_or(0, |n| *n as usize);
        self.bytes.get(start..end).unwrap_or_default()
    }
}

/// The first eight bytes as a number; missing ones count as zero. Of two texts the lower one never has the
/// higher number.
#[inline]
fn head(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; 8];
            first
                .iter_mut()
                .zip(bytes)
                .for_each(|(to, from)| *to = *from);
            u64::from_be_bytes(first)
        }
    }
}

/// The number of places from 0 on for which `holds`, which must hold up to some place and not from there on.
#[inline]
fn partition(len: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low.midpoint(high);
        match holds(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_all_begin_with_is_stored_once() {
        let lows = ["abc", "abd", "abdx", "abz"];
        let lows = Lows::of(lows.iter().map(|l| l.as_bytes()));
        assert_eq!(&*lows.prefix, b"ab");
        for (key, want) in [
            ("", 0),
            ("a", 0),
            ("ab", 0),
            ("abb", 0),
            ("abc", 1),
            ("abd", 2),
            ("abdw", 2),
            ("abdy", 3),
            ("abzz", 4),
            ("ac", 4),
        ] {
            assert_eq!(lows.up_to(key.as_bytes()), want, "{key}");
        }
        assert_eq!(lows.get(2), b"abdx");
    }

    proptest! {
        #[test]
        fn a_search_is_the_same_as_counting(
            (lows, key) in prop_oneof![Just(3_u8), Just(255)].prop_flat_map(|most| {
                let text = prop::collection::vec(0..most, 0..12);
                (prop::collection::btree_set(text.clone(), 0..100), text)
            }),
        ) {
            let stored = Lows::of(lows.iter().map(Vec::as_slice));
            prop_assert_eq!(stored.up_to(&key), lows.range(..=key).count());
            for (at, low) in lows.iter().enumerate() {
                prop_assert_eq!(&stored.get(at), low);
            }
        }
    }
}
