//! The Simple-8b words of a BSON column: small numbers packed into 64 bits.
//!
//! The lowest four bits of a word are its selector:
//!
//! | selector | next 4 bits | a value | values |
//! |---|---|---|---|
//! | 1…6, 9…14 | values begin here | 1 2 3 4 5 6, 10 12 15 20 30 60 bits | as many as fit into 60 bits |
//! | 7, 8 | 0 | 7 or 8 bits | as many as fit into 56 bits |
//! | 7 | 1…9 | 2 3 4 5 7 10 14 24 52 bits, above 4 bits that count zeros | ditto |
//! | 8 | 1…7 | 4 5 7 10 14 24 52 bits, above 4 bits that count fours of zeros | ditto |
//! | 8 | 8…13 | 4 6 9 13 23 51 bits, above 5 bits that count fours of zeros | ditto |
//! | 15 | n | the value before the word, (n + 1) · 120 times | |
//!
//! The counted zeros are appended to the value (at its low end). A slot with all bits set is a missing value.

use super::invalid;
use crate::Result;

/// How often the value is repeated for each step of the count in a repeating word.
const REPEAT: u32 = 120;

/// A run of words and the position of the reading in it.
#[derive(Clone, Default)]
pub(super) struct Words<'a> {
    rest: &'a [u8],
    /// The remaining slots, the next one lowest.
    slots: u64,
    left: u32,
    /// The bits of a slot.
    width: u32,
    /// How many of them count zeros, and how many zeros each step of the count means.
    counting: u32,
    zeros: u32,
    repeats: bool,
    last: Last,
}

/// The value that was read last; `None` if it was missing.
#[derive(Clone, Copy)]
struct Last(Option<u128>);

impl Default for Last {
    /// Before anything was read, a repeating word repeats zero.
    fn default() -> Last {
        Last(Some(0))
    }
}

impl<'a> Words<'a> {
    /// Continues with other words. The last value is remembered.
    pub(crate) fn load(&mut self, words: &'a [u8]) {
        self.rest = words;
        self.left = 0;
    }

    /// The next value, missing or not; `None` at the end of the words.
    ///
    /// # Errors
    /// If the selector does not exist.
    pub(crate) fn next(&mut self) -> Result<Option<Option<u128>>> {
        while self.left == 0 {
            let Some((word, rest)) = self.rest.split_first_chunk() else {
                return Ok(None);
            };
            self.rest = rest;
            self.open(u64::from_le_bytes(*word))?;
        }
        self.left -= 1;
        if self.repeats {
            return Ok(Some(self.last.0));
        }
        let mask = (1_u64 << self.width) - 1;
        let slot = self.slots & mask;
        // The width is below 64.
        self.slots >>= self.width;
        self.last = Last((slot != mask).then(|| {
            let zeros = slot & ((1 << self.counting) - 1);
            u128::from(slot >> self.counting) << (zeros as u32 * self.zeros)
        }));
        Ok(Some(self.last.0))
    }

    fn open(&mut self, word: u64) -> Result<()> {
        let (selector, extension) = (word & 15, (word >> 4) & 15);
        let pick = |widths: &[u32], at: u64| widths.get(at as usize).copied().unwrap_or(0);
        self.repeats = selector == 15;
        if self.repeats {
            self.left = (extension as u32 + 1) * REPEAT;
            return Ok(());
        }
        let (value, counting, zeros) = match (selector, extension) {
            (7 | 8, 0) => (selector as u32, 0, 0),
            (7, n) => (pick(&[0, 2, 3, 4, 5, 7, 10, 14, 24, 52], n), 4, 1),
            (8, n @ 1..8) => (pick(&[0, 4, 5, 7, 10, 14, 24, 52], n), 4, 4),
            (8, n) => (pick(&[4, 6, 9, 13, 23, 51], n - 8), 5, 4),
            (n, _) => {
                let widths = [0, 1, 2, 3, 4, 5, 6, 0, 0, 10, 12, 15, 20, 30, 60];
                (pick(&widths, n), 0, 0)
            }
        };
        if value == 0 {
            return Err(invalid("a word has a selector that there is not"));
        }
        let head = if matches!(selector, 7 | 8) { 8 } else { 4 };
        self.width = value + counting;
        self.counting = counting;
        self.zeros = zeros;
        self.slots = word >> head;
        self.left = (64 - head) / self.width;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn read(words: &[u64]) -> Vec<Option<u128>> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut w = Words::default();
        w.load(&bytes);
        let mut all = Vec::new();
        while let Some(v) = w.next().unwrap() {
            all.push(v);
        }
        all
    }

    /// Slots of `width` bits above a head of `shift` bits.
    fn word(head: u64, shift: u32, width: u32, slots: &[u64]) -> u64 {
        let at = |i: usize| shift + width * i as u32;
        slots
            .iter()
            .enumerate()
            .fold(head, |w, (i, s)| w | (s << at(i)))
    }

    #[test]
    fn every_plain_selector() {
        let widths = [1_u32, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 60];
        for (i, width) in widths.into_iter().enumerate() {
            let selector = i as u64 + 1;
            let shift = if matches!(selector, 7 | 8) { 8 } else { 4 };
            let n = ((64 - shift) / width) as usize;
            // The largest value that does not mean missing, zero, and the missing value.
            let top = (1_u64 << width) - 2;
            let slots: Vec<u64> = (0..n).map(|i| [top, 0, top + 1][i % 3]).collect();
            let expected: Vec<Option<u128>> = (0..n)
                .map(|i| [Some(u128::from(top)), Some(0), None][i % 3])
                .collect();
            let got = read(&[word(selector, shift, width, &slots)]);
            assert_eq!(got, expected, "selector {selector}");
        }
    }

    #[test]
    fn every_extended_selector() {
        let seven = [2_u32, 3, 4, 5, 7, 10, 14, 24, 52];
        let small = [4_u32, 5, 7, 10, 14, 24, 52];
        let large = [4_u32, 6, 9, 13, 23, 51];
        let cases = seven
            .iter()
            .enumerate()
            .map(|(i, w)| (7_u64, i as u64 + 1, *w, 4_u32, 1_u32))
            .chain(
                small
                    .iter()
                    .enumerate()
                    .map(|(i, w)| (8, i as u64 + 1, *w, 4, 4)),
            )
            .chain(
                large
                    .iter()
                    .enumerate()
                    .map(|(i, w)| (8, i as u64 + 8, *w, 5, 4)),
            );
        for (selector, extension, value, counting, each) in cases {
            let width = value + counting;
            let n = (56 / width) as usize;
            let slots: Vec<u64> = (0..n)
                .map(|i| match i % 2 {
                    // The value 1 with a count of five.
                    0 => (1 << counting) | 5,
                    _ => (1 << width) - 1,
                })
                .collect();
            let expected: Vec<Option<u128>> = (0..n)
                .map(|i| (i % 2 == 0).then_some(1_u128 << (5 * each)))
                .collect();
            let got = read(&[word(selector | (extension << 4), 8, width, &slots)]);
            assert_eq!(got, expected, "selector {selector}, extension {extension}");
        }
        // The most zeros that can be counted make a value of 128 bits.
        let top = read(&[word(8 | (13 << 4), 8, 56, &[(1 << 5) | 30])]);
        assert_eq!(top, [Some(1_u128 << 120)]);
    }

    #[test]
    fn repetitions() {
        // Before anything was read, zero repeats.
        assert_eq!(read(&[15]), vec![Some(0); 120]);
        let got = read(&[word(14, 4, 60, &[77]), 15 | (2 << 4)]);
        assert_eq!(got, vec![Some(77); 361]);
        let missing = word(14, 4, 60, &[(1 << 60) - 1]);
        assert_eq!(read(&[missing, 15]), vec![None; 121]);
        // The last value is remembered beyond the end of the words.
        let (first, then) = (word(14, 4, 60, &[5]).to_le_bytes(), 15_u64.to_le_bytes());
        let mut w = Words::default();
        w.load(&first);
        assert_eq!(w.next().unwrap(), Some(Some(5)));
        assert_eq!(w.next().unwrap(), None);
        w.load(&then);
        assert_eq!(w.next().unwrap(), Some(Some(5)));
    }

    #[test]
    fn selectors_that_there_are_not() {
        for word in [
            0_u64,
            7 | (10 << 4),
            7 | (15 << 4),
            8 | (14 << 4),
            8 | (15 << 4),
        ] {
            let bytes = word.to_le_bytes();
            let mut w = Words::default();
            w.load(&bytes);
            assert!(w.next().is_err(), "{word:#x}");
        }
    }
}
