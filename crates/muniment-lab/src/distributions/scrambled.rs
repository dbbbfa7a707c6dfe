//! Zipf's distribution with its hot numbers scattered over the range.

use super::zipfian::{THETA, Zipfian};
use super::{Distribution, fnv};
use muniment_load::rng::Rng;

/// The number of ranks to draw from, whatever the range is. It is constant so that adding keys does
/// not change which keys are hot.
const RANKS: u64 = 10_000_000_000;
/// ζ of so many ranks at θ = 0.99, as YCSB has it.
const ZETA: f64 = 26.469_028_201_783_02;

/// The scrambled Zipf distribution over `low..=high`.
#[derive(Debug, Clone)]
pub(crate) struct Scrambled {
    low: u64,
    count: u64,
    ranks: Zipfian,
}

impl Scrambled {
    /// Makes the distribution over `low..=high`.
    pub(crate) fn new(low: u64, high: u64) -> Scrambled {
        Scrambled {
            low,
            count: high.saturating_sub(low).saturating_add(1),
            // YCSB takes the number of ranks as the greatest rank, so there is one rank more.
            ranks: Zipfian::with_zeta(0, RANKS + 1, THETA, ZETA),
        }
    }

    /// The number that `rank` is mapped to.
    fn place(&self, rank: u64) -> u64 {
        self.low + fnv::hash(rank).unsigned_abs() % self.count
    }
}

impl Distribution for Scrambled {
    #[inline]
    fn draw(&mut self, rng: &mut Rng) -> u64 {
        let rank = self.ranks.draw(rng);
        self.place(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn the_hottest_keys_are_as_hot_whatever_the_range() {
        for n in [1000, 1_000_000] {
            let mut s = Scrambled::new(0, n - 1);
            let mut rng = Rng::new(11);
            let draws = 400_000;
            let mut counts: HashMap<u64, u32> = HashMap::new();
            for _ in 0..draws {
                *counts.entry(s.draw(&mut rng)).or_default() += 1;
            }
            let share = |rank| {
                let at = s.place(rank);
                f64::from(counts.get(&at).copied().unwrap_or(0)) / f64::from(draws)
            };
            // A key of a small range also gets a tail of draws from a few thousand other ranks.
            let tail = 1.0 / n as f64;
            assert!((share(0) - 0.0378).abs() < 0.002 + tail, "{}", share(0));
            assert!((share(1) - 0.0190).abs() < 0.002 + tail, "{}", share(1));
        }
    }
}
