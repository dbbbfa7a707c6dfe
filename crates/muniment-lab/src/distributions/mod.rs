//! The distributions by which keys, lengths and counts are drawn, in one file each.
//!
//! Each worker has its own distribution; what workers share (a counter) they hold in an `Arc`. The
//! formulas are those of YCSB's generators, so that a hot key is as hot here as there. The random
//! numbers themselves differ, since YCSB takes Java's.

pub(crate) mod counter;
pub(crate) mod exponential;
pub(crate) mod fnv;
pub(crate) mod histogram;
pub(crate) mod hotspot;
pub(crate) mod latest;
pub(crate) mod scrambled;
pub(crate) mod sequential;
pub(crate) mod uniform;
pub(crate) mod zipfian;

use muniment_load::rng::Rng;

/// A source of numbers.
pub(crate) trait Distribution: Send {
    /// Draws the next number.
    fn draw(&mut self, rng: &mut Rng) -> u64;
}

/// The distribution that always gives the same number.
#[derive(Debug, Clone)]
pub(crate) struct Constant(pub u64);

impl Distribution for Constant {
    fn draw(&mut self, _: &mut Rng) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod chi_square_tests;

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Computes Pearson's χ² of `draws` numbers against the expected shares of the numbers 0, 1, ….
    pub(crate) fn chi_square(d: &mut dyn Distribution, shares: &[f64], draws: u64) -> f64 {
        let mut counts = vec![0_u64; shares.len()];
        let mut rng = Rng::new(42);
        for _ in 0..draws {
            let n = d.draw(&mut rng) as usize;
            if let Some(c) = counts.get_mut(n) {
                *c += 1;
            }
        }
        counts
            .iter()
            .zip(shares)
            .filter(|(_, s)| **s > 0.0)
            .map(|(c, s)| {
                let expected = s * draws as f64;
                (*c as f64 - expected).powi(2) / expected
            })
            .sum()
    }
}
